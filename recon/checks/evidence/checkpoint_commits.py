"""checkpoint_commits: the check, and what it finds."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from itertools import pairwise, repeat
from typing import Any, ClassVar

from typing_extensions import override

from recon.base.text import command, plural, some
from recon.checks.base import EvidenceCheck
from recon.checks.period import Period
from recon.judge.case import SinkCase
from recon.judge.checkpoint.plans import forgotten, planned_ranges, stamped_ranges
from recon.judge.checkpoint.writes import Writes
from recon.judge.coverage import Key, by_key, ranges_of
from recon.judge.findings import WROTE_NOTHING, Findings, no_entries, offsets
from recon.judge.history.table_history import TableHistory, as_write
from recon.judge.open_findings import unread_before
from recon.judge.source import Missed, Source
from recon.judge.subscription import Subscription
from recon.model import (
    CheckpointBatch,
    CheckpointWitness,
    Code,
    EntryHead,
    KafkaPartition,
    ReconStamp,
    SinkCommit,
    TableCommit,
    TableLog,
    Verdict,
    Witnesses,
    known,
    parse_offsets,
    why_unknown,
)
from recon.model.delta_offsets import is_delta, position_of
from recon.model.grouping import grouped
from recon.model.ledger import named
from recon.model.offsets import OffsetSpan, Span, Spans
from recon.model.positions import beginning
from recon.model.wire.processing_signature import parts_of

_HOUR = Period(1, "hour")


@dataclass(frozen=True, kw_only=True)
class CheckpointCommits(EvidenceCheck):
    """Every micro-batch that Spark finished is in the ledger and in the sink.

    Compares the micro-batches the checkpoint still holds (planned: offsets/N, finished: commits/N) with the ledger's
    entries and the stamped commits of the Delta log (of a sink that is no Delta table: its own record), by query_id,
    batch_id and offset ranges. It needs all three; Kafka, where it can be asked, tells what can still be read.
    Micro-batches of earlier audits are not judged again, and the message says so.

    Args:
        stalled_after: how long a micro-batch may stay planned and not finished, as `{count: 1, period: hour}`.
    """

    test: ClassVar[str] = "checkpoint_commits"
    needs: ClassVar[Sequence[str]] = ("ledgers", "checkpoint")
    uses: ClassVar[Sequence[str]] = ("kafka", "delta", "sink_logs")
    scope: ClassVar[str] = "sink"

    stalled_after: Period = _HOUR

    @override
    def judge(self, witnesses: Witnesses) -> Verdict:
        case, checkpoint = SinkCase(witnesses), known(witnesses.checkpoint)
        history = _history_of(case)
        if checkpoint is None:
            return Verdict(unproved=why_unknown(witnesses.checkpoint))
        if history is None:
            not_read = why_unknown(witnesses.sink_logs, f"sink {witnesses.sink} was not read")
            return Verdict(unproved=why_unknown(witnesses.delta, not_read))
        writes = Writes(history, checkpoint, witnesses.observed, witnesses.own_function, witnesses.placed_by_rows)
        if not writes.heads and not writes.stamped:
            return no_entries(witnesses)

        def evaluation(source: Source) -> _Evaluation:
            findings = Findings.of(witnesses)
            return _Evaluation(witnesses, source, checkpoint, writes, self.stalled_after, findings)

        return evaluation(case.source.asking(lambda source: evaluation(source).questions)).verdict()


def _planned(batch: CheckpointBatch) -> set[tuple[int, str, int]]:
    """The topic partitions of a plan, as `Key` has them."""
    planned = {(s.source, s.topic, s.partition) for s in batch.ranges}
    return planned | {new[:3] for new in batch.new_partitions}


def _left_out(before: CheckpointBatch, after: CheckpointBatch) -> set[tuple[int, str, int]]:
    """The topic partitions of a plan that the next one lacks; none where either is not known whole."""
    whole = before.starts_known and after.starts_known and after.batch_id == before.batch_id + 1
    return _planned(before) - _planned(after) if whole else set()


def _spans(batch: CheckpointBatch) -> list[tuple[Key, Span]]:
    """The ranges of a plan that hold an offset."""
    return [(key, planned.span) for key, planned in planned_ranges(batch).items() if planned.span.size]


def _spans_read(batch: CheckpointBatch) -> list[OffsetSpan]:
    """The ranges of a plan that hold an offset, of partitions whose start is known."""
    return [span for span in batch.ranges if span.start_offset < span.end_offset]


def _history_of(case: SinkCase) -> TableHistory | None:
    """The history of the sink's table; of another kind of sink its own record, read as commits that are numbered."""
    if case.record is None:
        return case.history if isinstance(case.history, TableHistory) else None
    record = case.record.log
    commits = {
        number: TableCommit(
            version=number, timestamp=commit.at, stamp=commit.stamp, rows_added=commit.rows, data_change=True
        )
        for number, commit in enumerate(record.commits)
    }
    log = TableLog(
        location=record.location, exists=record.exists, first_retained=0, last=len(commits) - 1, commits=commits
    )
    return TableHistory(log, case.entered.pipeline, case.sink, case.entered, case.proof, known(case.witnesses.previous))


@dataclass
class _Evaluation:
    """One checkpoint against one sink."""

    witnesses: Witnesses
    source: Source
    checkpoint: CheckpointWitness
    writes: Writes
    stalled_after: Period
    findings: Findings
    new_epoch: bool = False
    recorded: int = 0
    unrouted: int = 0
    older: list[CheckpointBatch] = field(default_factory=list)  # planned before what this audit judges
    new: list[tuple[CheckpointBatch, TableCommit | None]] = field(default_factory=list)  # without an entry
    empty: list[CheckpointBatch] = field(default_factory=list)
    asked: dict[tuple[str, int], list[Span]] = field(default_factory=dict)

    @property
    def questions(self) -> Mapping[tuple[str, int], Spans]:
        """Whether Kafka has records of what was planned and is in no commit: what the verdict rests on."""
        self.verdict()
        return {where: Spans.of(spans) for where, spans in self.asked.items() if spans}

    def verdict(self) -> Verdict:
        self._report_flaws()
        self._report_dropped()
        if not self.checkpoint.batches:
            self._report_no_batches()
            return self.findings.verdict("")
        for batch in self.checkpoint.batches:
            entry = self.writes.entered.entry_of(batch)
            if entry is not None:
                self.recorded += 1
                self._judge_recorded(batch, entry)
            elif self.writes.entered.edit_of(batch) is None:  # else offset_continuity says what it changes
                self._sort(batch)
        self._judge_first_entry()
        self._report_edited()
        self.new_epoch = self._judge_new_epoch()
        if not self.new_epoch:
            self._report_stale()
        for batch, commit in sorted(self.new, key=lambda new: new[1] is None):
            if commit is not None:
                self._report_missing_entry(batch, commit)
            else:
                self._judge_open(batch)
        return self._told()

    def _told(self) -> Verdict:
        """The verdict on all findings."""
        if self.empty:
            self.findings.add(
                Code.EMPTY,
                f"{plural(len(self.empty), 'micro-batch')} read no offsets and wrote nothing: batch_id "
                f"{some(batch.batch_id for batch in self.empty)}",
                batch_id=self.empty[0].batch_id if len(self.empty) == 1 else None,
            )
        message = f"{plural(self.recorded, 'micro-batch')} of the checkpoint agree with the ledger"
        if self.older:
            message += f"; {plural(len(self.older), 'earlier one', 'earlier ones')} were not judged"
        if self.unrouted:
            message += f"; no route leads to the sink any more, since {plural(self.unrouted, 'micro-batch')}"
        counts = {"batches": len(self.checkpoint.batches), "recorded": self.recorded, "not_judged": len(self.older)}
        return self.findings.verdict(message, query_id=self.checkpoint.query_id, **counts)

    def _say(self, batch: CheckpointBatch, code: Code, message: str, **where: Any) -> bool:
        """Adds a finding about a micro-batch; always True, so that a reason can say that it applies."""
        self.findings.add(code, message, batch_id=batch.batch_id, **where)
        return True

    def _report_no_batches(self) -> None:
        checkpoint, mine = self.checkpoint, (head for head in self.writes.heads if head.is_micro_batch)
        if any(head.query_id == checkpoint.query_id for head in mine):
            message = (
                f"checkpoint {checkpoint.location} holds no micro-batch any more, though the ledger does: its offsets "
                "were deleted, and the query's next start begins a new epoch"
            )
            self.findings.add(Code.INCONCLUSIVE, message, about=f"empty checkpoint of {checkpoint.query_id}")
        else:
            message = (
                f"checkpoint {checkpoint.location} belongs to query {checkpoint.query_id}, which has planned nothing"
            )
            self.findings.add(Code.NEW_EPOCH, f"{message} yet: its first micro-batch begins a new epoch")

    def _report_flaws(self) -> None:
        """What cannot be compared, because a file of the checkpoint is gone or damaged."""
        ids = [batch.batch_id for batch in self.checkpoint.batches]
        for flaw in self.checkpoint.flaws:
            # The next micro-batch that is whole tells the time; where there is none, it is now.
            after = self.checkpoint.batches[bisect_left(ids, flaw.batch_id) :][:1]
            if all(self._is_judged(batch) for batch in after):
                self.findings.add(
                    Code.INCONCLUSIVE,
                    f"{flaw.problem}: what Spark planned or finished there is not known; {flaw.step}",
                    batch_id=flaw.batch_id,
                )

    def _report_dropped(self) -> None:
        """Topic partitions that plans leave out, though one before had them, and that have more offsets since."""
        for batch, key, end in self._dropped():
            topic = self.source.topic(key.topic)
            if topic is None:
                code, rest = Code.INCONCLUSIVE, "; whether Kafka still has it could not be read"
            elif key.partition in topic.partitions and self._is_left(key, topic.partitions[key.partition], end):
                code = Code.STALLED
                rest = f": it is not read from {end} on; compare the query's subscription with recon.yml"
            else:
                continue  # read to its end, or gone from Kafka: kafka_end_offsets judges how far it was read
            left = f"{key}: Spark's plan of micro-batch {batch.batch_id} leaves it out, and the plan before it did not"
            self._say(batch, code, left + rest, key=key)

    def _is_left(self, key: Key, partition: KafkaPartition, end: int) -> bool:
        """Whether a topic partition has more records, or is to get some: the query still reads others of its topic."""
        planned = _planned(self.checkpoint.batches[-1])
        return partition.log_end > end or any(topic == key.topic for _, topic, _ in planned)

    def _dropped(self) -> Iterator[tuple[CheckpointBatch, Key, int]]:
        """(the first plan without it, a topic partition of recon.yml that the newest plan lacks, where it was left)."""
        subscribed, batches = Subscription.of(self.witnesses), self.checkpoint.batches
        newest = _planned(batches[-1]) if batches else set()
        for before, after in pairwise(batches):
            for where in sorted(_left_out(before, after) - newest):
                key = Key(*where)
                if subscribed.names(key.topic) and self._is_judged(after):
                    yield after, key, planned_ranges(before)[key].end

    def _sort(self, batch: CheckpointBatch) -> None:
        """Whether this audit judges a micro-batch that the ledger does not have."""
        older = self._is_older(batch)
        # What earlier audits looked at, a Delta log tells by its versions, and the record of another sink by the
        # number of the micro-batch: its time is a driver's, whose clock may have been wrong.
        looked_at = older and self.witnesses.table_log is None
        commit = self.writes.commit_of(batch) if not looked_at else None
        if commit is None and self._is_unrouted(batch):
            self.unrouted += 1
        elif not self._too_late(batch, commit.timestamp if commit else batch.planned_at) and (commit or not older):
            self.new.append((batch, commit))
        elif older:
            self.older.append(batch)

    def _is_judged(self, batch: CheckpointBatch) -> bool:
        return not self._is_older(batch) and not self._too_late(batch, batch.planned_at)

    def _is_older(self, batch: CheckpointBatch) -> bool:
        first = self.writes.first_judged
        return first is not None and batch.batch_id < first

    def _too_late(self, batch: CheckpointBatch, at: datetime | None) -> bool:
        """After this audit's slice of the ledger: the next audit's business."""
        if at is None:
            return False
        if at > self.witnesses.now:
            return True
        if self.witnesses.period_to >= self.witnesses.now:
            return False
        return at >= self.witnesses.period_to or self.writes.entered_later(batch)

    def _is_unrouted(self, batch: CheckpointBatch) -> bool:
        """Whether the micro-batch lies behind all that the sink has of the query, and was split without it.

        It was not where another sink has it with the routes of the sink's newest entry: the sink lacks it then.
        """
        mine = [head for head in self.writes.heads if head.is_micro_batch]
        of_query = (head.batch_id for head in mine if head.query_id == self.checkpoint.query_id)
        if not self.witnesses.is_unrouted or not mine or batch.batch_id <= max(of_query, default=-1):
            return False
        routes = parts_of(mine[-1].transform)[1]
        return all(parts_of(head.transform)[1] != routes for _, head in self._entered.get(batch.batch_id, ()))

    @cached_property
    def _entered(self) -> Mapping[int, Sequence[tuple[str, EntryHead]]]:
        """The entries of this query that any sink of the pipeline has, with the sink, by batch_id."""
        ledgers, query = known(self.witnesses.ledgers) or {}, self.checkpoint.query_id
        heads = ((sink, head) for sink, ledger in ledgers.items() for head in ledger.heads)
        return grouped((head.batch_id, (sink, head)) for sink, head in heads if head.query_id == query)

    def _judge_first_entry(self) -> None:
        """Of the older micro-batches those before the ledger's first entry: nobody judged anything there.

        They are new, or UNWITNESSED. Earlier audits judged the others.
        """
        first = self.writes.first_entry
        if first is None:
            return
        if first.query_id != self.checkpoint.query_id or not first.batch_id:
            self._report_rows_before(first)
        else:
            older, self.older = self.older, []
            self._judge_before(first, older)

    def _judge_before(self, first: EntryHead, older: Sequence[CheckpointBatch]) -> None:
        whole = len(older) == first.batch_id
        ran = older if whole else self._forgotten(first)
        if ran and self._nobody_wrote(first.batch_id):
            self.new[:0] = zip(ran, repeat(None))
        elif whole and all(batch.starts_known and not _spans_read(batch) for batch in older):
            self._report_rows_before(first)
        else:
            self._report_unwitnessed(first, older)

    def _forgotten(self, first: EntryHead) -> Sequence[CheckpointBatch]:
        """The micro-batches before the first entry as one, where their plans were removed; none that read nothing."""
        read = self.writes.history.ledger.ranges.of(self.writes.heads.index(first))
        batch = forgotten(self.checkpoint.begins, read, first.batch_id)
        return [batch] if _spans_read(batch) else []

    def _report_unwitnessed(self, first: EntryHead, older: Sequence[CheckpointBatch]) -> None:
        read, where = min((s for batch in older for s in _spans_read(batch)), default=None), ""
        if read is not None:
            key = Key(read.source, read.topic, read.partition)
            where = f" ({key} {beginning(key.topic, read.start_offset)} on)"
        self.findings.add(
            Code.UNWITNESSED,
            f"query {first.query_id} ran micro-batches 0 to {first.batch_id - 1}{where} before the ledger's first "
            f"entry: what they wrote is not known, and recon's verdict begins with micro-batch {first.batch_id}",
            batch_id=first.batch_id - 1,
        )

    def _report_rows_before(self, first: EntryHead) -> None:
        """Whether the table of an observed query had rows before the first entry's commit, as far as it is known.

        What the log no longer shows was seen by the first audit, if there was one.
        """
        log, version, proof = self.witnesses.table_log, first.sink_version, self.witnesses.proof
        if log is None or not version or not first.is_observed:
            return
        shown = self.writes.history.shows_all_before(version)
        unseen = not shown and not (proof is not None and proof.position)
        repeat = self._not_compared(shown=shown)
        if unseen or any(commit.adds_rows for commit in self.writes.history.commits_before(version)):
            self.findings.add(
                Code.UNWITNESSED,
                f"the table had rows, or may have had some, before version {version}, with which recon's verdict "
                f"begins ({named(first)}): no verdict speaks of them{repeat}",
                head=first,
            )

    def _not_compared(self, *, shown: bool) -> str:
        """That nobody knows what rows repeat, to end a sentence; source_rows compares those that name records."""
        return "" if shown and self.witnesses.source_columns else ", nor of whether they repeat what was read since"

    def _nobody_wrote(self, before: int) -> bool:
        """Whether the sink is known from its beginning on, and had no row of its topics when recon first wrote to it.

        Micro-batches that another sink of the pipeline has, or may have, were no loss: this sink was added later.
        """
        log = self.witnesses.table_log
        if log is None or log.first_retained != 0 or 0 not in log.commits:
            return False
        if any(self._may_be_elsewhere(before)):
            return False
        first = min((commit.version for commits in self.writes.stamped.values() for commit, _ in commits), default=0)
        return not any(commit.data_change for commit in self.writes.history.commits_before(first))

    def _may_be_elsewhere(self, before: int) -> Iterator[bool]:
        """Of each other sink, whether it has micro-batches of this query before a number, or may have."""
        for sink, ledger in (known(self.witnesses.ledgers) or {}).items():
            mine = [head for head in ledger.heads if head.query_id == self.checkpoint.query_id]
            if sink != self.witnesses.sink:
                yield any(head.batch_id < before for head in mine) or (bool(mine) and not ledger.complete)

    def _judge_recorded(self, batch: CheckpointBatch, entry: int) -> None:
        head = self.writes.heads[entry]
        if not batch.committed and batch is self.checkpoint.last:
            self.findings.add(
                Code.INFLIGHT,
                f"{named(head)} is in the sink and in the ledger, and Spark has not finished it (no "
                f"commits/{batch.batch_id}): its next start tries it again, and recon recognises it",
                head=head,
            )
        elif entry in self.writes.tried_again:
            self.findings.add(Code.REPLAYED, f"{named(head)} was tried again and written once", head=head)

    def _report_missing_entry(self, batch: CheckpointBatch, commit: TableCommit) -> None:
        stamp, code, rest = commit.stamp, Code.INFLIGHT, "the next audit, or `recon observe`, enters it"
        if not self.witnesses.observed:
            rest = "it is being written, or the query stopped in it a moment ago; the next audit judges it"
            if stamp is None or not self._is_in_progress(as_write(commit, stamp)):
                code, rest = Code.LEDGER_MISSING, "the query's next start, or `recon ledger rebuild`, restores it"
        message = f"micro-batch {batch.batch_id} is in the sink, and the ledger has no entry of it; {rest}"
        self.findings.add(code, message, head=stamp)

    def _is_in_progress(self, write: SinkCommit) -> bool:
        return self.writes.history.is_in_progress(write, self.witnesses.now, self.checkpoint)

    @cached_property
    def _newest(self) -> EntryHead | None:
        """The newest micro-batch of the ledger."""
        covered = self.writes.covered
        return covered.slice.heads[covered.micro_batches[-1]] if covered.micro_batches else None

    def _judge_new_epoch(self) -> bool:
        """Whether the checkpoint started an epoch that the ledger does not know, and where it begins."""
        newest, query = self._newest, self.checkpoint.query_id
        if newest is None:
            return False
        why = f"batch ids of query {query} started over"
        begins = next((new for new in self.new if self.writes.numbers(new[0].batch_id)), None)
        if newest.query_id != query:
            why = f"its query is {query}, the ledger's newest {newest.query_id}"
            begins = begins or next(iter(self.new), None)
        if begins is not None:
            batch, stamp = begins[0], begins[1].stamp if begins[1] is not None else None
            starts = f"checkpoint {self.checkpoint.location} starts a new epoch with micro-batch {batch.batch_id}"
            epoch = stamp.epoch if stamp is not None else newest.epoch + 1
            self._say(batch, Code.NEW_EPOCH, f"{starts}: {why}", epoch=epoch)
            self._judge_start(batch, stamp)
        elif newest.query_id != query:
            message = f"checkpoint {self.checkpoint.location} starts a new epoch with its next micro-batch: {why}"
            self.findings.add(Code.NEW_EPOCH, message)
        return begins is not None

    def _judge_start(self, batch: CheckpointBatch, stamp: ReconStamp | None) -> None:
        """Where a new epoch begins, against where the ledger ends."""
        reads = self._reads(batch, stamp)
        for key, planned in planned_ranges(batch).items():
            incarnation = self.writes.covered.newest(key)
            if incarnation is None or planned.start is None:
                continue
            walked = incarnation.walked
            if not self._is_comparable(key, incarnation.topic_id, stamp):
                continue  # kafka_end_offsets and offset_continuity say that the topic is another one
            if planned.start > walked.frontier:
                self._report_left_out(batch, key, Span(walked.frontier, planned.start))
                continue
            repairs = unread_before(self.witnesses.proof, key.topic, incarnation.topic_id, key.partition)
            for span in reads.get(key, Spans()).intersect(walked.covered).minus(repairs):
                message = (
                    f"{key}: the new checkpoint's micro-batch {batch.batch_id} reads {offsets(*span)} again, which the "
                    f"ledger already holds; start it with the offsets that `{self._offsets}` prints"
                )
                self._say(batch, Code.OVERLAP, message, key=key, span=span)

    def _is_comparable(self, key: Key, read_id: str | None, stamp: ReconStamp | None) -> bool:
        """Whether a plan is, as far as is known, of the topic that the ledger has: another one has other offsets."""
        stamped = parse_offsets(stamp.offsets_text) if stamp is not None else ()
        ids = {read.topic_id for read in stamped if (read.topic, read.partition) == key[1:]} - {None}
        return ids == {read_id} if ids and read_id else not self.source.other_records(key.topic, read_id)

    def _reads(self, batch: CheckpointBatch, stamp: ReconStamp | None) -> Mapping[Key, Spans]:
        """What was written counts, or what is about to be: a write that was skipped or swallowed doubles nothing."""
        if stamp is not None:
            return stamped_ranges(stamp)
        if batch.committed or self.writes.skipping_app(batch, new_epoch=True) is not None:
            return {}
        return {key: Spans.of([span]) for key, span in _spans(batch)}

    def _report_left_out(self, batch: CheckpointBatch, key: Key, span: Span) -> None:
        why = f"the new checkpoint starts at {span.end}, the ledger ends at {span.start}"
        if unplaced := self.writes.unplaced_since():
            message = (
                f"{key}: {why}, and what the sink's versions {some(unplaced)}, which no entry names, hold of "
                f"{key.offsets(*span)} is not known; compare the range with the rows, then accept it"
            )
            self._say(batch, Code.INCONCLUSIVE, message, key=key, span=span)
        else:
            self._report_missed(batch, [(key, span)], why)

    def _report_edited(self) -> None:
        """An edited plan with which the next start reads offsets again. What it leaves out is a GAP of the ledger."""
        for found in self.writes.entered.edits.values():
            if found.lacks and not self._too_late(found.batch, found.batch.planned_at):
                message = (
                    f"{found.says}: it lacks {some(map(str, found.lacks))}, which the micro-batch read; a start that "
                    "needs this file takes them for new; put it back from a copy, else accept this"
                )
                self._say(found.batch, Code.INCONCLUSIVE, message)
        edit = self.writes.entered.pending
        if edit is None or not edit.back or self._too_late(edit.batch, edit.batch.planned_at):
            return
        ends = self.writes.entered.ends_of(edit)
        self.findings.add(
            Code.STALE_CHECKPOINT,
            f"{edit.says}. The next start of the query reads again what the ledger has: "
            f"{some(f'{key} {key.offsets(*span)}' for key, span in sorted(edit.back.items()))}. Stop the query and put "
            f"the end offsets back into {self.checkpoint.location}/offsets/{edit.batch.batch_id}: {some(ends)}",
            batch_id=edit.batch.batch_id,
            epoch=self.writes.heads[edit.entry].epoch,
        )

    @property
    def _offsets(self) -> str:
        """The command that prints where a fresh checkpoint begins."""
        return command("recon offsets", self.witnesses.pipeline)

    def _report_stale(self) -> None:
        """A checkpoint that ends before the ledger does, though it is the same query's: an older copy of it."""
        newest, last = self._newest, self.checkpoint.last
        if newest is None or last is None or newest.query_id != self.checkpoint.query_id:
            return
        damaged = (flaw.batch_id for flaw in self.checkpoint.flaws)
        planned = max(last.batch_id, self.checkpoint.newest_later or 0, *damaged)
        if newest.batch_id <= planned:
            return
        again = "one with the ranges of its entry writes nothing, one with others begins a new epoch (`on_new_epoch`)"
        if self.witnesses.observed:
            again = "Delta drops those whose number the table has; a function without txnVersion writes them again"
        ranges = some(self._ranges_behind(newest, planned))
        self.findings.add(
            Code.STALE_CHECKPOINT,
            f"checkpoint {self.checkpoint.location} ends with micro-batch {planned}, and the ledger with "
            f"{newest.batch_id} of the same query: it is an older copy. The next start reads the offsets of "
            f"micro-batches {planned + 1} to {newest.batch_id} again ({ranges}): {again}. Put the newest "
            f"checkpoint back, or start a new one with the offsets that `{self._offsets}` prints",
            batch_id=planned + 1,
            epoch=newest.epoch,
        )

    def _ranges_behind(self, newest: EntryHead, planned: int) -> Iterator[str]:
        """What the micro-batches of the newest entry's epoch behind a number read, by topic partition."""
        covered = self.writes.covered
        heads = covered.slice.heads
        behind = (i for i in covered.micro_batches if heads[i].epoch == newest.epoch and heads[i].batch_id > planned)
        for key, spans in sorted(by_key(r for entry in behind for r in ranges_of(covered.slice, entry)).items()):
            if spans.hull is not None:
                yield f"{key} {key.offsets(*spans.hull)}"

    def _judge_open(self, batch: CheckpointBatch) -> None:
        """A plan that neither the ledger nor the sink has: the first reason that applies says what is found."""
        reasons = (
            self._overwritten,
            self._without_offsets,
            self._without_a_record,
            self._perhaps_in_the_sink,
            self._skipped_by_delta,
            self._not_finished,
            self._unobserved,
            self._cleaned_up,
            self._without_a_commit,
        )
        any(reason(batch) for reason in reasons)

    def _overwritten(self, batch: CheckpointBatch) -> bool:
        message = (
            f"micro-batch {batch.batch_id} has no offsets of Kafka in the checkpoint, and its ledger entry has: "
            f"offsets/{batch.batch_id} was overwritten, or belongs to another query"
        )
        nothing = batch.starts_known and not _planned(batch)
        return nothing and self.writes.entered.reads(batch.batch_id) and self._say(batch, Code.INCONCLUSIVE, message)

    def _without_offsets(self, batch: CheckpointBatch) -> bool:
        if _spans(batch) or not batch.starts_known:
            return False
        if not batch.committed:
            return self._say_unfinished(batch)
        self.empty.append(batch)
        return True

    def _without_a_record(self, batch: CheckpointBatch) -> bool:
        """The source has no record for the stream in the micro-batch, so that there was nothing to write."""
        parts = [part for key, span in _spans(batch) for part in self._missed(key, span)] if batch.committed else []
        if not batch.committed or not batch.starts_known or any(part.code is not Code.EXPLAINED for part in parts):
            return False
        self._report_missed(batch, _spans(batch), "")
        return True

    def _perhaps_in_the_sink(self, batch: CheckpointBatch) -> bool:
        """A function of the user's own wrote a commit that may be the micro-batch's."""
        commit = self.writes.unplaced(batch) if batch.committed and self.witnesses.own_function else None
        if commit is None:
            return False
        txn = some(f"txn version {version} of app id {app}" for app, version in sorted(commit.txn.items())) or "no txn"
        return self._say(
            batch,
            Code.INCONCLUSIVE,
            f"micro-batch {batch.batch_id} has no commit that is known to be its own, and version {commit.version} "
            f"({txn}, {commit.timestamp:%Y-%m-%d %H:%M:%S}Z) may be it, or another program's: compare its rows with "
            "the source, then accept it (docs/observe.md says how a commit is known)",
        )

    def _skipped_by_delta(self, batch: CheckpointBatch) -> bool:
        app = self.writes.skipping_app(batch, new_epoch=self.new_epoch)
        if app is None:
            return False
        step = "remove txn_app_id from the sink"
        if self.witnesses.own_function:
            step = "give the function a new txnAppId, in recon.yml, too, after an audit has looked once more,"
        elif self.witnesses.observed:
            step = f"start the query on a fresh checkpoint, with the offsets that `{self._offsets}` prints,"
        again = "and read the range again"
        if self.witnesses.observed and not self.witnesses.own_function and self._is_behind_the_ledger(batch):
            again = "which reads the range"
        version = self.writes.transactions.newest.get(app, -1)
        drops = f"app id {app} already has txn version {version}, so Delta drops the write and reports no error"
        if missing := self._unheld(batch):
            rest = f" are not in the sink: {drops}; {step} {again}"
            return self._say_of_ranges(batch, Code.SKIPPED, missing, rest)
        return self._say(
            batch,
            Code.STALE_CHECKPOINT,
            f"{batch.label} reads again what the ledger has: {drops}. So it does with each micro-batch up to number "
            f"{version}, also where records in it are new: {step.removesuffix(',')}",
        )

    def _is_behind_the_ledger(self, batch: CheckpointBatch) -> bool:
        """Whether a query that begins where the ledger ends reads all of a micro-batch."""
        ends = {key: of[-1].walked.frontier for key, of in self.writes.covered.incarnations.items()}
        return all(span.start >= ends.get(key, span.start) for key, span in _spans(batch))

    def _not_finished(self, batch: CheckpointBatch) -> bool:
        return not batch.committed and batch is self.checkpoint.last and self._say_unfinished(batch)

    def _unobserved(self, batch: CheckpointBatch) -> bool:
        """Spark finished it, and nothing tells where it began, or what it has."""
        version = self.writes.unseen.get(batch.batch_id)
        what = "was finished by Spark, has no entry and no commit, and the checkpoint no longer tells where it began"
        if batch.starts_known:
            what = (
                f"is in the sink as version {version}, written without recon, which did not observe it: what is in it "
                "is not known; compare its rows with the source, then accept it"
            )
        applies = version is not None or not batch.starts_known
        return applies and self._say(batch, Code.INCONCLUSIVE, f"micro-batch {batch.batch_id} {what}")

    def _cleaned_up(self, batch: CheckpointBatch) -> bool:
        """The sink's log lost the commits of the time of a plan, and nobody entered them while it had them.

        What the hook writes has its entry right after its commit.
        """
        log, oldest = self.writes.history.log, self.writes.oldest
        before = oldest is None or batch.planned_at is None or batch.planned_at < oldest
        if not self.witnesses.observed or not (self.writes.lacks_commits or (log.first_retained and before)):
            return False
        rest = (
            f" have no ledger entry, and the log of {log.location} no longer has the commits of that time (it begins "
            f"at version {log.first_retained}): whether they were written is not known"
        )
        return self._say_of_ranges(batch, Code.INCONCLUSIVE, self._unheld(batch), rest)

    def _without_a_commit(self, batch: CheckpointBatch) -> bool:
        if self.witnesses.may_write_nothing:
            rest = f", which Spark finished, have no commit in the sink: it wrote nothing, {WROTE_NOTHING}"
            return self._say_of_ranges(batch, Code.INCONCLUSIVE, self._unheld(batch), rest)
        why = f"Spark finished {batch.label}, and neither the sink nor the ledger has any of them"
        if batch.since in (None, batch.batch_id):
            why = f"Spark finished {batch.label}, and neither the sink nor the ledger has it"
        self._report_missed(batch, self._unheld(batch), why)
        return True

    def _say_unfinished(self, batch: CheckpointBatch) -> bool:
        """What can be read no more of a micro-batch that Spark did not finish, and since when it is planned."""
        self._report_deleted(batch)
        code, since, step = Code.INCONCLUSIVE, "at a time that the checkpoint does not record", ""
        if batch.planned_at is not None:
            since = f"at {batch.planned_at:%Y-%m-%d %H:%M:%S}Z"
            code, step = Code.INFLIGHT, "; it is being written, or the query stopped in it"
            if self.witnesses.now - batch.planned_at > self.stalled_after.length:
                step = f", longer ago than {self.stalled_after}; look at the query's log for what holds it up"
                code = Code.STALLED
        return self._say(batch, code, f"micro-batch {batch.batch_id} was planned {since} and is not finished{step}")

    def _report_deleted(self, batch: CheckpointBatch) -> None:
        for key, planned in planned_ranges(batch).items():
            log_start, _ = self.source.log_start(key, self.writes.topic_id(key))
            start, end = planned.span
            if is_delta(key.topic) and position_of(start).in_snapshot:
                continue  # a snapshot can be read as long as its data files are there
            if planned.start is not None and log_start is not None and start < log_start and start < end:
                gone = (start, min(log_start, end))
                message = (
                    f"{key}: micro-batch {batch.batch_id} is planned from {key.place(start)} on and not finished, and "
                    f"{key.log_starts_at(log_start)}: {key.offsets(*gone)} cannot be read any more"
                )
                self._say(batch, Code.LOSS_RETENTION, message, key=key, span=gone)

    def _unheld(self, batch: CheckpointBatch) -> list[tuple[Key, Span]]:
        return [(key, span) for key, planned in _spans(batch) for span in Spans.of([planned]).minus(self._held(key))]

    def _held(self, key: Key) -> Spans:
        """What the ledger has of a topic partition; nothing where Kafka's topic is known to be another one."""
        other = self.source.other_records(key.topic, self.writes.topic_id(key))
        return Spans() if other else self.writes.held(key)

    def _say_of_ranges(self, batch: CheckpointBatch, code: Code, ranges: Iterable[tuple[Key, Span]], rest: str) -> bool:
        for key, span in ranges:
            message = f"{key}: {key.offsets(*span)} of {batch.label}{rest}"
            self._say(batch, code, message, key=key, span=span)
        return True

    def _report_missed(self, batch: CheckpointBatch, ranges: Iterable[tuple[Key, Span]], why: str) -> None:
        for key, span in ranges:
            for part in self._missed(key, span):
                message = part.says(key, f"are missing: {why}")
                self._say(batch, part.code, message, key=key, span=part.span, topic_id=part.topic_id)

    def _missed(self, key: Key, unread: Span) -> Sequence[Missed]:
        """What the source says of offsets that no entry and no commit accounts for; it is asked about them."""
        topic_id = self.writes.topic_id(key)
        self.asked.setdefault((key.topic, key.partition), []).extend(self.source.to_ask(key, topic_id, unread))
        return list(self.source.missed(key, topic_id, unread))
