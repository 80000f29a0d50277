"""checkpoint_commits: the check, and what it finds."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import ClassVar

from typing_extensions import override

from recon.checks.base import EvidenceCheck
from recon.checks.period import Period
from recon.judge.checkpoint.plans import Planned, planned_ranges, stamped_ranges
from recon.judge.checkpoint.writes import Writes
from recon.judge.coverage import Key, Missed, by_key, log_start_of, missed, ranges_of, to_ask
from recon.judge.findings import WROTE_NOTHING, Findings, ledger_of, named, no_entries, offsets
from recon.judge.history.recon_commits import is_in_progress
from recon.judge.history.table_history import TableHistory, history_of, known_table
from recon.judge.open_findings import unread_before
from recon.model import (
    CheckpointBatch,
    CheckpointWitness,
    Code,
    DeltaCommit,
    DeltaWitness,
    EntryHead,
    ReconStamp,
    Verdict,
    Witnesses,
    known,
    why_unknown,
)
from recon.model.delta_offsets import is_delta, position_of
from recon.model.offsets import Span, Spans
from recon.model.positions import beginning
from recon.model.wire.processing_signature import parts_of
from recon.text import plural, some

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
        evaluation = self._evaluation(witnesses.with_answers(self._questions))
        return evaluation if isinstance(evaluation, Verdict) else evaluation.verdict()

    def _questions(self, witnesses: Witnesses) -> Mapping[tuple[str, int], Spans]:
        """Whether Kafka has records of what was planned and is in no commit."""
        evaluation = self._evaluation(witnesses)
        if isinstance(evaluation, Verdict):
            return {}
        evaluation.verdict()
        return {where: Spans.of(spans) for where, spans in evaluation.asked.items() if spans}

    def _evaluation(self, witnesses: Witnesses) -> _Evaluation | Verdict:
        """What is to be judged, or the verdict where that is not known."""
        checkpoint, history = known(witnesses.checkpoint), _history_of(witnesses)
        if checkpoint is None:
            return Verdict(unproved=why_unknown(witnesses.checkpoint))
        if history is None:
            not_read = why_unknown(witnesses.sink_logs, f"sink {witnesses.sink} was not read")
            return Verdict(unproved=why_unknown(witnesses.delta, not_read))
        writes = Writes(history, checkpoint, witnesses.observed, witnesses.own_function, witnesses.placed_by_rows)
        if writes.history.ledger is None and not writes.stamped:
            return no_entries(witnesses)
        return _Evaluation(witnesses, checkpoint, writes, self.stalled_after, Findings.of(witnesses))


def _planned(batch: CheckpointBatch) -> set[tuple[int, str, int]]:
    """The topic partitions of a plan, as `Key` has them."""
    planned = {(s.source, s.topic, s.partition) for s in batch.ranges}
    return planned | {new[:3] for new in batch.new_partitions}


def _history_of(witnesses: Witnesses) -> TableHistory | None:
    """The history of the sink's table; of another kind of sink its own record, read as commits that are numbered."""
    ledger, record = ledger_of(witnesses), witnesses.sink_record
    if witnesses.table_log is not None or record is None:
        return history_of(witnesses, ledger)
    commits = {
        number: DeltaCommit(
            version=number, timestamp=commit.at, stamp=commit.stamp, rows_added=commit.rows, data_change=True
        )
        for number, commit in enumerate(record.commits)
    }
    log = DeltaWitness(
        location=record.location, exists=record.exists, first_retained=0, last=len(commits) - 1, commits=commits
    )
    return TableHistory(log, witnesses.pipeline, witnesses.sink, ledger, known_table(witnesses))


def _numbers(commit: DeltaCommit) -> str:
    """What a commit's transactions say, and when it was made."""
    txns = ", ".join(f"txn version {version} of app id {app}" for app, version in commit.txn.items()) or "no txn"
    return f"{txns}, {commit.timestamp:%Y-%m-%d %H:%M:%S} UTC"


@dataclass
class _Evaluation:
    """One checkpoint against one sink."""

    witnesses: Witnesses
    checkpoint: CheckpointWitness
    writes: Writes
    stalled_after: Period
    findings: Findings
    empty: list[CheckpointBatch] = field(default_factory=list)
    asked: dict[tuple[str, int], list[Span]] = field(default_factory=dict)

    def verdict(self) -> Verdict:
        batches = self.checkpoint.batches
        self._report_flaws()
        self._report_dropped()
        if not batches and self._is_fresh():
            self.findings.add(
                Code.NEW_EPOCH,
                f"checkpoint {self.checkpoint.location} belongs to query {self.checkpoint.query_id}, which has planned "
                "no micro-batch yet: its first one begins a new epoch",
            )
            return self.findings.verdict("")
        if not batches:
            self.findings.add(
                Code.INCONCLUSIVE,
                f"checkpoint {self.checkpoint.location} holds no micro-batch any more, though the ledger does: its "
                "offsets were deleted, and the query's next start begins a new epoch",
                about="empty checkpoint",
            )
            return self.findings.verdict("")
        recorded = unrouted = 0
        older: list[CheckpointBatch] = []
        new: list[tuple[CheckpointBatch, DeltaCommit | None]] = []
        for batch in batches:
            entry = self.writes.entry_of(batch)
            if entry is not None:
                recorded += 1
                self._judge_recorded(batch, entry)
                continue
            commit = self.writes.commit_of(batch)
            # What earlier audits looked at, a Delta log tells by its versions, and the record of another sink by the
            # number of the micro-batch: its time is a driver's, whose clock may have been wrong.
            looked_at = not self._has_versions and self._is_older(batch)
            if commit is not None and not looked_at and not self._too_late(batch, commit.timestamp):
                new.append((batch, commit))
            elif self._is_older(batch):
                older.append(batch)
            elif commit is None and self._is_unrouted(batch):
                unrouted += 1
            elif commit is None and not self._too_late(batch, batch.planned_at):
                new.append((batch, None))
        older = self._judge_first_entry(older, new)
        new_epoch = self._judge_new_epoch(new)
        if not new_epoch:
            self._report_stale()
        for batch, commit in new:
            if commit is not None:
                self._report_missing_entry(batch, commit)
        for batch, commit in new:
            if commit is None:
                self._judge_open(batch, new_epoch=new_epoch)
        if self.empty:
            self.findings.add(
                Code.EMPTY,
                f"{plural(len(self.empty), 'micro-batch')} read no offsets and wrote nothing: batch_id "
                f"{some(batch.batch_id for batch in self.empty)}",
                batch_id=self.empty[0].batch_id if len(self.empty) == 1 else None,
            )
        message = f"{plural(recorded, 'micro-batch')} of the checkpoint agree with the ledger"
        if older:
            ids = f"{older[0].batch_id} to {older[-1].batch_id}" if len(older) > 1 else str(older[0].batch_id)
            message += f"; batch_id {ids} were planned before the entries looked at and were not judged"
        if unrouted:
            message += f"; no route leads to the sink any more, since {plural(unrouted, 'micro-batch')}"
        return self.findings.verdict(
            message, query_id=self.checkpoint.query_id, batches=len(batches), recorded=recorded, not_judged=len(older)
        )

    def _is_fresh(self) -> bool:
        """Whether the checkpoint is of a query that the ledger does not know."""
        return all(head.query_id != self.checkpoint.query_id for head in self.writes.heads if head.is_micro_batch)

    def _report_flaws(self) -> None:
        """What cannot be compared, because a file of the checkpoint is gone or damaged."""
        ids = [batch.batch_id for batch in self.checkpoint.batches]
        for flaw in self.checkpoint.flaws:
            # The next micro-batch that is whole tells the time; where there is none, it is now.
            after = self.checkpoint.batches[at] if (at := bisect_left(ids, flaw.batch_id)) < len(ids) else None
            if after is not None and (self._is_older(after) or self._too_late(after, after.planned_at)):
                continue
            self.findings.add(
                Code.INCONCLUSIVE,
                f"{flaw.problem}: what Spark planned or finished there is not known; restore the file from a copy",
                batch_id=flaw.batch_id,
            )

    def _report_dropped(self) -> None:
        """Topic partitions that a plan leaves out though the plan before it had them, and Kafka still has them."""
        plans = [(batch, _planned(batch)) for batch in self.checkpoint.batches]
        for (before, planned_before), (after, planned) in pairwise(plans):
            whole = before.starts_known and after.starts_known and after.batch_id == before.batch_id + 1
            dropped = planned_before - planned if whole else ()
            if not dropped or self._is_older(after) or self._too_late(after, after.planned_at):
                continue
            for key in (Key(*where) for where in sorted(dropped)):
                topic = self.witnesses.topic(key.topic)
                if topic is not None and key.partition not in topic.partitions:
                    continue  # gone from Kafka: kafka_end_offsets judges how far it was read
                left = (
                    f"{key}: Spark's plan of micro-batch {after.batch_id} leaves it out, and the plan before it did not"
                )
                if topic is None:
                    unknown = "whether Kafka still has it could not be read"
                    self.findings.add(Code.INCONCLUSIVE, f"{left}; {unknown}", batch_id=after.batch_id, key=key)
                else:
                    step = "its records are not read any more; compare the query's subscription with recon.yml"
                    self.findings.add(Code.STALLED, f"{left}: {step}", batch_id=after.batch_id, key=key)

    @property
    def _has_versions(self) -> bool:
        return self.witnesses.table_log is not None

    def _is_older(self, batch: CheckpointBatch) -> bool:
        first = self.writes.first_judged
        return first is not None and batch.batch_id < first

    def _is_unrouted(self, batch: CheckpointBatch) -> bool:
        """Whether the micro-batch lies behind all that the sink has of the query, and was split without it.

        It was not where another sink has it with the routes of the sink's newest entry: the sink lacks it then.
        """
        mine = [head for head in self.writes.heads if head.is_micro_batch]
        if not self.witnesses.is_unrouted or not mine:
            return False
        of_query = (head.batch_id for head in mine if head.query_id == self.checkpoint.query_id)
        if batch.batch_id <= max(of_query, default=-1):
            return False
        routes = parts_of(mine[-1].transform)[1]
        return not any(
            (head.query_id, head.batch_id) == (self.checkpoint.query_id, batch.batch_id)
            and parts_of(head.transform)[1] == routes
            for ledger in (known(self.witnesses.ledgers) or {}).values()
            for head in ledger.heads
        )

    def _judge_first_entry(
        self, older: list[CheckpointBatch], new: list[tuple[CheckpointBatch, DeltaCommit | None]]
    ) -> list[CheckpointBatch]:
        """Which of the older micro-batches earlier audits judged; others go to `new` or are UNWITNESSED.

        Before the ledger's first entry nobody judged anything.
        """
        first = self.writes.first_entry
        runs_on = first is not None and first.query_id == self.checkpoint.query_id and first.batch_id
        if first is None or not runs_on:
            if first is not None:
                self._report_rows_before(first)
            return older
        known = {batch.batch_id: batch for batch in older}
        if len(known) == first.batch_id and self._nobody_wrote(older):
            new[:0] = [(batch, None) for batch in older]
            return []
        ranges = [span for batch in older for span in batch.ranges if span.start_offset < span.end_offset]
        if len(known) < first.batch_id or ranges or any(not batch.starts_known for batch in older):
            read = min(ranges, default=None)
            where = ""
            if read is not None:
                key = Key(read.source, read.topic, read.partition)
                where = f" ({key} {beginning(key.topic, read.start_offset)} on)"
            self.findings.add(
                Code.UNWITNESSED,
                f"query {first.query_id} ran micro-batches 0 to {first.batch_id - 1}{where} before the ledger's first "
                f"entry: what they wrote is not known, and recon's verdict begins with micro-batch {first.batch_id}",
                batch_id=first.batch_id - 1,
            )
        else:
            self._report_rows_before(first)
        return []

    def _report_rows_before(self, first: EntryHead) -> None:
        before = self._rows_before(first) if first.is_observed else ""
        if before:
            self.findings.add(
                Code.UNWITNESSED,
                f"the table {before} version {first.sink_version}, with which recon's verdict begins "
                f"({named(first)}): no verdict speaks of them, nor of whether they repeat records that were read since",
                head=first,
            )

    def _rows_before(self, first: EntryHead) -> str:
        """Whether the table had rows before the first entry's commit, as far as it is known; "" where it had none.

        What the log no longer shows was seen by the first audit, if there was one.
        """
        log = known(self.witnesses.delta) and self.witnesses.table_log
        if not isinstance(log, DeltaWitness) or not first.sink_version:
            return ""
        kept = [commit for version, commit in log.commits.items() if version < first.sink_version]
        if any(commit.adds_rows for commit in kept):
            return "had rows before"
        proof = self.witnesses.proof
        unseen = len(kept) < first.sink_version and not (proof is not None and proof.position)
        return "may have had rows, which its log no longer shows, before" if unseen else ""

    def _nobody_wrote(self, older: Sequence[CheckpointBatch]) -> bool:
        """Whether the sink is known from its beginning on, and was empty when recon first wrote to it.

        Micro-batches that another sink of the pipeline has were no loss: this sink was added later.
        """
        log = known(self.witnesses.delta) and self.witnesses.table_log
        if not isinstance(log, DeltaWitness) or log.first_retained != 0 or 0 not in log.commits:
            return False
        first = min((commit.version for commits in self.writes.stamped.values() for commit, _ in commits), default=0)
        if any(commit.data_change for version, commit in log.commits.items() if version < first):
            return False
        ledgers = known(self.witnesses.ledgers) or {}
        others = [ledger for name, ledger in ledgers.items() if name != self.witnesses.sink]
        wrote = {(head.query_id, head.batch_id) for ledger in others for head in ledger.heads}
        return not any((self.checkpoint.query_id, batch.batch_id) in wrote for batch in older)

    def _too_late(self, batch: CheckpointBatch, at: datetime | None) -> bool:
        """After this audit's slice of the ledger: the next audit's business."""
        if at is None:
            return False
        if at > self.witnesses.now:
            return True
        if self.witnesses.period_to >= self.witnesses.now:
            return False
        return at >= self.witnesses.period_to or self.writes.entered_later(batch)

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

    def _report_missing_entry(self, batch: CheckpointBatch, commit: DeltaCommit) -> None:
        stamp = commit.stamp
        if self.witnesses.observed:
            self.findings.add(
                Code.INFLIGHT,
                f"micro-batch {batch.batch_id} is in the sink as version {commit.version}, and is not entered in the "
                "ledger yet; the next audit, or `recon observe`, enters it",
                head=stamp,
            )
            return
        if stamp is not None and is_in_progress(self.witnesses, stamp, commit.timestamp, commit.version):
            self.findings.add(
                Code.INFLIGHT,
                f"micro-batch {batch.batch_id} is in the sink, and its ledger entry does not stand yet: it is being "
                "written, or the query stopped in it a moment ago; the next audit judges it",
                head=stamp,
            )
            return
        done = "finished by Spark" if batch.committed else "not finished by Spark"
        version = f" as version {commit.version}" if commit.operation else ""  # others have no versions
        self.findings.add(
            Code.LEDGER_MISSING,
            f"micro-batch {batch.batch_id} is in the sink{version}, {done}, and has no ledger entry; the query's "
            "next start, or `recon ledger rebuild`, restores the entry",
            batch_id=batch.batch_id,
            epoch=stamp.epoch if stamp is not None else None,
        )

    def _judge_new_epoch(self, new: Sequence[tuple[CheckpointBatch, DeltaCommit | None]]) -> bool:
        """Whether the checkpoint started an epoch that the ledger does not know, and where it begins."""
        if self.writes.history.ledger is None or self.writes.covered is None or not self.writes.covered.micro_batches:
            return False
        newest = self.writes.history.ledger.heads[self.writes.covered.micro_batches[-1]]
        other_query = newest.query_id != self.checkpoint.query_id
        contradicts = [(batch, commit) for batch, commit in new if self.writes.numbers(batch.batch_id)]
        if not contradicts and not (other_query and new):
            if other_query:
                self.findings.add(
                    Code.NEW_EPOCH,
                    f"checkpoint {self.checkpoint.location} belongs to query {self.checkpoint.query_id}, the ledger's "
                    f"newest epoch {newest.epoch} to query {newest.query_id}: its next micro-batch begins a new epoch",
                )
            return False
        batch, commit = (contradicts or new)[0]
        why = f"batch ids of query {self.checkpoint.query_id} started over"
        if other_query:
            why = f"its query is {self.checkpoint.query_id}, the ledger's newest {newest.query_id}"
        stamp = commit.stamp if commit is not None else None
        self.findings.add(
            Code.NEW_EPOCH,
            f"checkpoint {self.checkpoint.location} starts a new epoch with micro-batch {batch.batch_id}: {why}",
            batch_id=batch.batch_id,
            epoch=stamp.epoch if stamp is not None else newest.epoch + 1,
        )
        self._judge_start(batch, stamp)
        return True

    def _report_stale(self) -> None:
        """A checkpoint that ends before the ledger does, though it is the same query's: an older copy of it."""
        ledger, covered, last = self.writes.history.ledger, self.writes.covered, self.checkpoint.last
        if ledger is None or covered is None or not covered.micro_batches or last is None:
            return
        newest = ledger.heads[covered.micro_batches[-1]]
        planned = max(last.batch_id, self.checkpoint.newest_later or 0)
        if newest.query_id != self.checkpoint.query_id or newest.batch_id <= planned:
            return
        behind = [
            i
            for i in covered.micro_batches
            if ledger.heads[i].epoch == newest.epoch and ledger.heads[i].batch_id > planned
        ]
        again = by_key(span for i in behind for span in ranges_of(ledger, i))
        hulls = [
            f"{key} {key.offsets(*hull)}" for key, spans in sorted(again.items()) if (hull := spans.hull) is not None
        ]
        rows = "their rows are written again and doubled"
        if self.witnesses.sink in self.witnesses.rewriting:
            rows = "their rows are written again, in place of those of the same keys"
        self.findings.add(
            Code.STALE_CHECKPOINT,
            f"checkpoint {self.checkpoint.location} ends with micro-batch {planned}, and the ledger with "
            f"{newest.batch_id} of the same query: it is an older copy. The next start reads offsets of micro-batches "
            f"{planned + 1} to {newest.batch_id} again ({some(hulls)}): {self._on_restart(rows)}. Put the newest "
            "checkpoint back, or start a new one with the offsets that `recon offsets` prints",
            batch_id=planned + 1,
            epoch=newest.epoch,
        )

    def _on_restart(self, rows: str) -> str:
        """What the sink does with micro-batches that it has already; `rows` is what becomes of those it writes."""
        if self.witnesses.placed_by_rows:
            return f"nothing on a commit says that the table has them already: {rows}"
        if self.witnesses.observed:
            return (
                "Delta drops every micro-batch whose number the table has, also one that Spark plans with other "
                "ranges, whose further records are then lost"
            )
        return (
            "a micro-batch that Spark plans with the ranges of its entry is recognised and writes nothing; one with "
            f"other ranges begins a new epoch, which stops the query, or with `on_new_epoch: warn` {rows}"
        )

    def _judge_start(self, batch: CheckpointBatch, stamp: ReconStamp | None) -> None:
        """Where a new epoch begins, against where the ledger ends.

        What was written counts, or what is about to be: a write that was skipped or swallowed doubles nothing.
        """
        skipped = self.writes.skipping_app(batch, new_epoch=True) is not None
        nothing = stamp is None and (batch.committed or skipped)
        written = stamped_ranges(stamp) if stamp is not None else None
        for key, planned in planned_ranges(batch).items():
            incarnation = self.writes.incarnation(key)
            if incarnation is None or planned.start is None:
                continue
            walked = incarnation.walked
            if planned.start > walked.frontier:
                why = f"the new checkpoint starts at {planned.start}, the ledger ends at {walked.frontier}"
                if unplaced := self.writes.unplaced_since():
                    self.findings.add(
                        Code.INCONCLUSIVE,
                        f"{key}: {why}, and what version {some(unplaced)} of the sink, which no entry names, holds of "
                        f"{key.offsets(walked.frontier, planned.start)} is not known; compare the range with the rows, "
                        "then accept it",
                        batch_id=batch.batch_id,
                        key=key,
                        span=(walked.frontier, planned.start),
                    )
                    continue
                self._report_missed(batch, key, (walked.frontier, planned.start), why)
                continue
            reads = Spans.of([planned.span]) if written is None else written.get(key, Spans())
            repairs = unread_before(self.witnesses, key.topic, incarnation.topic_id, key.partition)
            for span in reads.intersect(walked.covered).minus(repairs) if not nothing else ():
                self.findings.add(
                    Code.OVERLAP,
                    f"{key}: the new checkpoint's micro-batch {batch.batch_id} reads {offsets(*span)} again, which "
                    "the ledger already holds; start it with the offsets that `recon offsets` prints",
                    batch_id=batch.batch_id,
                    key=key,
                    span=span,
                )

    def _judge_open(self, batch: CheckpointBatch, *, new_epoch: bool) -> None:
        """A plan that neither the ledger nor the sink has."""
        plan = planned_ranges(batch)
        if not plan and batch.starts_known and self.writes.reads(batch.batch_id):
            self.findings.add(
                Code.INCONCLUSIVE,
                f"micro-batch {batch.batch_id} has no offsets of Kafka in the checkpoint, and its ledger entry has: "
                f"offsets/{batch.batch_id} was overwritten, or belongs to another query",
                batch_id=batch.batch_id,
            )
            return
        if not any(planned.span.size for planned in plan.values()) and batch.starts_known:
            if batch.committed:
                self.empty.append(batch)
            else:
                self._judge_unfinished(batch, plan)
            return
        if batch.committed and self._without_a_record(batch, plan):
            return
        app = self.writes.skipping_app(batch, new_epoch=new_epoch)
        if batch.committed and self.witnesses.own_function and (commit := self._unplaced(batch)) is not None:
            self.findings.add(
                Code.INCONCLUSIVE,
                f"micro-batch {batch.batch_id} has no commit that is known to be its own, and version "
                f"{commit.version} ({_numbers(commit)}) may be it, or another program's: compare its rows with the "
                f"source, then accept it; {self._what_places()}",
                batch_id=batch.batch_id,
            )
        elif app is not None:
            for key, planned in plan.items():
                if planned.span.size:
                    version = self.writes.transactions.newest.get(app, -1)
                    self.findings.add(
                        Code.SKIPPED,
                        f"{key}: {key.offsets(*planned.span)} of micro-batch {batch.batch_id} are not in the "
                        f"sink: app id {app} already has txn version {version}, so Delta drops the write and reports "
                        f"no error; {self._with_another_number()} and read the range again",
                        batch_id=batch.batch_id,
                        key=key,
                        span=planned.span,
                    )
        elif not batch.committed and batch is self.checkpoint.last:
            self._judge_unfinished(batch, plan)
        elif not batch.starts_known:
            self.findings.add(
                Code.INCONCLUSIVE,
                f"micro-batch {batch.batch_id} was finished by Spark, has no entry and no commit, and the checkpoint "
                "no longer tells where it began",
                batch_id=batch.batch_id,
            )
        elif (unseen := self.writes.unseen.get(batch.batch_id)) is not None:
            self.findings.add(
                Code.INCONCLUSIVE,
                f"micro-batch {batch.batch_id} is in the sink as version {unseen}, written without recon, which "
                "did not observe it: what is in it is not known; compare its rows with the source, then accept it",
                batch_id=batch.batch_id,
            )
        elif self._may_be_cleaned_up(batch):
            log = self.writes.history.log
            for key, planned in plan.items():
                for span in Spans.of([planned.span]).minus(self.writes.held(key)):
                    self.findings.add(
                        Code.INCONCLUSIVE,
                        f"{key}: {key.offsets(*span)} of micro-batch {batch.batch_id} have no ledger entry, and "
                        f"the log of {log.location} no longer has the commits of that time (it begins at version "
                        f"{log.first_retained}): whether they were written is not known",
                        batch_id=batch.batch_id,
                        key=key,
                        span=span,
                    )
        elif self.witnesses.may_write_nothing:
            for key, planned in plan.items():
                for span in Spans.of([planned.span]).minus(self.writes.held(key)):
                    self.findings.add(
                        Code.INCONCLUSIVE,
                        f"{key}: {key.offsets(*span)} of micro-batch {batch.batch_id}, which Spark finished, have no "
                        f"commit in the sink: it wrote nothing, {WROTE_NOTHING}",
                        batch_id=batch.batch_id,
                        key=key,
                        span=span,
                    )
        else:
            why = f"Spark finished micro-batch {batch.batch_id}, and neither the sink nor the ledger has it"
            for key, planned in plan.items():
                for span in Spans.of([planned.span]).minus(self.writes.held(key)):
                    self._report_missed(batch, key, span, why)

    def _without_a_record(self, batch: CheckpointBatch, plan: Mapping[Key, Planned]) -> bool:
        """Whether the source has no record for the stream in a micro-batch, so that there was nothing to write."""
        unread = [
            (key, one) for key, planned in plan.items() if planned.span.size for one in self._missed(key, planned.span)
        ]
        if not batch.starts_known or any(one.code is not Code.EXPLAINED for _, one in unread):
            return False
        for key, one in unread:
            self._add(one, batch, key, one.says(key, ""))
        return True

    def _unplaced(self, batch: CheckpointBatch) -> DeltaCommit | None:
        following = next((one for one in self.checkpoint.batches if one.batch_id == batch.batch_id + 1), None)
        return self.writes.unplaced(batch, following)

    def _what_places(self) -> str:
        if self.witnesses.placed_by_rows:
            return (
                f"a micro-batch is one append, whose rows carry in {self.witnesses.source_columns} offsets that it read"
            )
        return "txn_app_id of recon.yml must be the function's txnAppId, and txnVersion the batch_id"

    def _with_another_number(self) -> str:
        if self.witnesses.own_function:
            return "give the function a new txnAppId, in recon.yml, too, after an audit has looked once more,"
        if self.witnesses.observed:
            return "start the query on a fresh checkpoint, with the offsets that `recon offsets` prints,"
        return "remove txn_app_id from the sink"

    def _may_be_cleaned_up(self, batch: CheckpointBatch) -> bool:
        """Whether the sink's log lost the commits of the time of a plan, where nobody entered them while it had them.

        What the hook writes has its entry right after its commit.
        """
        if not self.witnesses.observed:
            return False
        if self.writes.lacks_commits:
            return True
        if not self.writes.history.log.first_retained:
            return False
        oldest = self.writes.oldest
        return oldest is None or batch.planned_at is None or batch.planned_at < oldest

    def _judge_unfinished(self, batch: CheckpointBatch, plan: Mapping[Key, Planned]) -> None:
        for key, planned in plan.items():
            log_start, _ = log_start_of(self.witnesses, key, self.writes.topic_id(key))
            start, end = planned.span
            if is_delta(key.topic) and position_of(start).in_snapshot:
                continue  # a snapshot can be read as long as its data files are there
            if planned.start is not None and log_start is not None and start < log_start and start < end:
                gone = (start, min(log_start, end))
                self.findings.add(
                    Code.LOSS_RETENTION,
                    f"{key}: micro-batch {batch.batch_id} is planned from {key.place(start)} on and not finished, and "
                    f"{key.log_starts_at(log_start)}: {key.offsets(*gone)} cannot be read any more",
                    batch_id=batch.batch_id,
                    key=key,
                    span=gone,
                )
        if batch.planned_at is None:
            code, since = Code.INCONCLUSIVE, "at a time that the checkpoint does not record"
        else:
            age = self.witnesses.now - batch.planned_at
            code = Code.STALLED if age > self.stalled_after.length else Code.INFLIGHT
            since = f"at {batch.planned_at:%Y-%m-%d %H:%M:%S}Z"
        step = {
            Code.STALLED: f", longer ago than {self.stalled_after}; look at the query's log for what holds it up",
            Code.INFLIGHT: "; it is being written, or the query stopped in it",
        }.get(code, "")
        self.findings.add(
            code,
            f"micro-batch {batch.batch_id} was planned {since} and is not finished{step}",
            batch_id=batch.batch_id,
        )

    def _report_missed(self, batch: CheckpointBatch, key: Key, unread: tuple[int, int], why: str) -> None:
        for one in self._missed(key, unread):
            self._add(one, batch, key, one.says(key, f"are missing: {why}"))

    def _add(self, one: Missed, batch: CheckpointBatch, key: Key, message: str) -> None:
        self.findings.add(one.code, message, batch_id=batch.batch_id, key=key, span=one.span, topic_id=one.topic_id)

    def _missed(self, key: Key, unread: tuple[int, int]) -> Sequence[Missed]:
        """What the source says of offsets that no entry and no commit accounts for; it is asked about them."""
        topic_id = self.writes.topic_id(key)
        self.asked.setdefault((key.topic, key.partition), []).extend(to_ask(self.witnesses, key, topic_id, unread))
        return list(missed(self.witnesses, key, topic_id, unread))
