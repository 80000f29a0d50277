"""offset_continuity: every micro-batch starts where the one before it ended."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from typing_extensions import override

from recon.base.text import plural, some
from recon.checks.base import EvidenceCheck
from recon.judge.account.never_read import Unread, unread
from recon.judge.case import SinkCase
from recon.judge.checkpoint.entered import Entered
from recon.judge.coverage import Coverage, Key, Stretch, TopicIncarnation, coverage, widths
from recon.judge.findings import WROTE_NOTHING, Findings, no_entries, quiet
from recon.judge.history.table_history import TableHistory
from recon.judge.kafka.clusters import Clusters, Move
from recon.judge.open_findings import unread_before
from recon.judge.second_calls import second_calls
from recon.judge.source import Source
from recon.judge.topic_identity import judge_logs
from recon.model import Code, EntryHead, TableLog, Verdict, Witnesses, known
from recon.model.grouping import spans_by
from recon.model.ledger import named
from recon.model.offsets import Span, Spans
from recon.model.proof import SinkProof

TopicPartition = tuple[str, int]


@dataclass(frozen=True, kw_only=True)
class OffsetContinuity(EvidenceCheck):
    """Every micro-batch starts where the one before it ended, in every topic partition.

    Proves that the micro-batches in the ledger form one unbroken reading of Kafka: no offset left out, none read
    twice. It needs the ledger alone. Micro-batches that the sink has and the ledger not yet are taken from the sink's
    own record; where Kafka can be read, a gap is distinguished from a loss.
    """

    test: ClassVar[str] = "offset_continuity"
    uses: ClassVar[Sequence[str]] = ("kafka", "delta", "sink_logs", "checkpoint")
    scope: ClassVar[str] = "sink"

    @override
    def judge(self, witnesses: Witnesses) -> Verdict:
        case = SinkCase(witnesses)
        if not case.entered.heads:
            return no_entries(witnesses)
        covered = coverage(case.ledger)
        checkpoint = known(witnesses.checkpoint)
        entered = Entered(covered, checkpoint) if checkpoint is not None else None
        source = case.source.asking(lambda so_far: _questions(covered, entered, case.proof, so_far))
        findings = Findings.of(witnesses)
        _report_epochs(covered, entered, findings)
        _report_replays(covered, findings)
        _report_empty(covered, findings)
        _report_recreated(covered, source.clusters, findings)
        continuity = _Continuity(covered, entered, witnesses, source, findings)
        for left_out in unread(covered, case.proof):
            continuity.judge_unread(left_out)
        continuity.judge_ahead()
        for key, incarnations in covered.incarnations.items():
            for number, incarnation in enumerate(incarnations):
                continuity.judge_overlaps(key, incarnation)
                continuity.judge_steps_back(key, incarnation.stretches[1 if number else 0 :])
        judge_logs(covered, source, case.proof, findings)

        judged = covered.judged_entries()
        message = (
            f"{plural(len(judged), 'micro-batch')} over {plural(len(covered.incarnations), 'topic partition')}: each "
            "starts where the one before it ended"
        )
        return findings.verdict(
            message if judged else quiet(case.ledger), batches=len(judged), partitions=len(covered.incarnations)
        )


def _questions(
    covered: Coverage, entered: Entered | None, proof: SinkProof | None, source: Source
) -> Mapping[TopicPartition, Spans]:
    """Whether Kafka has records of what no micro-batch read."""
    holes = [(of.key, of.incarnation.topic_id, of.span) for of in unread(covered, proof)]
    asked = spans_by(
        ((key.topic, key.partition), span)
        for key, topic_id, whole in (*holes, *_ahead(covered, entered))
        for span in source.to_ask(key, topic_id, whole)
    )
    return {where: spans for where, spans in asked.items() if spans}


def _ahead(covered: Coverage, entered: Entered | None) -> Iterator[tuple[Key, str | None, Span]]:
    """Offsets that the next start leaves out, as the newest plan was edited: topic partition, topic id, range."""
    edit = entered.pending if entered is not None else None
    for key, span in sorted(edit.ahead.items()) if edit is not None and edit.batch.committed else ():
        incarnation = covered.newest(key)
        if incarnation is not None:
            yield from ((key, incarnation.topic_id, left) for left in Spans((span,)).minus(incarnation.walked.covered))


@dataclass(frozen=True)
class _Continuity:
    """How topic partitions were read."""

    covered: Coverage
    entered: Entered | None
    witnesses: Witnesses
    source: Source
    findings: Findings

    def judge_unread(self, left_out: Unread) -> None:
        """Reports offsets that no micro-batch read, with what the source says of them."""
        key, hole, span = left_out.key, left_out.hole, left_out.span
        stretch = left_out.incarnation.stretches[0] if hole is None else hole.at
        missing, head = left_out.missed(self.source), self.covered.slice.heads[stretch.first]
        unknown = self._why_unknown(left_out, head) if any(part.code is not Code.EXPLAINED for part in missing) else ""
        if unknown:
            self._add(key, Code.INCONCLUSIVE, f"{key.offsets(*span)} are in no ledger entry{unknown}", head, span)
            return
        if hole is not None:
            before = named(self.covered.slice.heads[hole.before.last])
            reason = f"{named(head)} starts beyond the end of {before}{self._edited(hole.before.last)}"
        else:
            new = "the re-created topic" if left_out.again else f"the partition is new in {named(head)} and"
            reason = f"{new} was read from offset {span.end} on, not from 0"
        for part in missing:
            message = part.says(key, f"were read by no micro-batch: {reason}")
            self.findings.add(part.code, message, head=head, key=key, span=part.span, topic_id=part.topic_id)

    def judge_ahead(self) -> None:
        """Reports offsets that the next start leaves out."""
        edit = self.entered.pending if self.entered is not None else None
        for key, topic_id, left in _ahead(self.covered, self.entered):
            head = self.covered.slice.heads[edit.entry] if edit is not None else None
            for part in self.source.missed(key, topic_id, left):
                why = f"are read by no micro-batch: {edit.says if edit else ''}, and the next one starts behind them"
                message = part.says(key, why)
                self.findings.add(part.code, message, head=head, key=key, span=part.span, topic_id=part.topic_id)

    def _edited(self, entry: int | None) -> str:
        """That the plan of an entry was edited after it was entered, in a clause; "" where it was not."""
        edit = self.entered.edits.get(entry) if self.entered is not None and entry is not None else None
        return f" ({edit.says})" if edit is not None else ""

    def _why_unknown(self, left_out: Unread, head: EntryHead) -> str:
        """Why a micro-batch that nobody saw may have read offsets, in a clause; "" where none can have."""
        heads, hole = self.covered.slice.heads, left_out.hole
        if hole is None:
            if left_out.again:
                return self._copied(left_out)
            return self._unentered_before(left_out, head) if self.witnesses.observed else ""
        before = heads[hole.before.last]
        if unknown := _unseen_between(before, head, self.witnesses):
            return f", and what was read into {unknown} is not known; compare them with the rows, then accept it"
        # Micro-batches may have run there and have no entry: of one query, by its numbers, or of two.
        skips_numbers = head.query_id != before.query_id or head.batch_id > before.batch_id + 1
        nothing = self.witnesses.may_write_nothing and skips_numbers
        return f": a micro-batch before {named(head)} wrote nothing, {WROTE_NOTHING}" if nothing else ""

    def _copied(self, left_out: Unread) -> str:
        incarnations = self.covered.incarnations[left_out.key]
        former = (of.topic_id for of in incarnations[: incarnations.index(left_out.incarnation)])
        moves = (self.source.clusters.move(topic_id, left_out.incarnation.topic_id) for topic_id in former)
        move = next((move for move in moves if move is not None), None)
        if move is None:
            return ""
        return f" of cluster {move.new}, and may be copies of what was read on cluster {move.old}; compare both by key"

    def _unentered_before(self, left_out: Unread, head: EntryHead) -> str:
        heads, first = self.covered.slice.heads, left_out.incarnation.stretches[0].first
        unentered = head.batch_id and (head.query_id, head.batch_id - 1) not in {
            (entry.query_id, entry.batch_id) for entry in heads
        }
        unseen = first and _unseen_between(heads[first - 1], head, self.witnesses)
        return (
            f": a micro-batch before {named(head)}, which has none, may have read them" if unentered or unseen else ""
        )

    def judge_steps_back(self, key: Key, stretches: Iterable[Stretch]) -> None:
        """Reports plans that run backward; a topic that was created again is RECREATED."""
        for stretch in stretches:
            if stretch.end < stretch.start and self.covered.judged(stretch.first):
                head = self.covered.slice.heads[stretch.first]
                message = (
                    f"{named(head)} was planned from offset {stretch.start} back to {stretch.end}: the topic was "
                    "re-created or its log was cut off by an unclean leader election; compare topic ids and leader "
                    "epochs with the broker's logs"
                )
                self._add(key, Code.INCONCLUSIVE, message, head)

    def judge_overlaps(self, key: Key, incarnation: TopicIncarnation) -> None:
        """Reports what was read twice."""
        heads = self.covered.slice.heads
        to_repair = unread_before(self.witnesses.proof, key.topic, incarnation.topic_id, key.partition)
        for stretch, twice in incarnation.walked.overlaps if len(incarnation.stretches) > 1 else ():
            if heads[stretch.first].is_repair:
                continue  # it read again what a micro-batch had read and the sink did not have: source_rows tells
            again, to_repair = twice.minus(to_repair), to_repair.minus(twice)
            again = again.minus(self._cleaned(key, stretch, again))
            for span in again if self.covered.judged(stretch.first) else ():
                entry = self.covered.entry_at(stretch, span.start)
                head, before = heads[entry], self.covered.before(entry)
                rest = "though the ledger already held them; source_rows tells whether rows are doubled"
                message = f"{key.offsets(*span)} were read again from {named(head)} on{self._edited(before)}, {rest}"
                self._add(key, Code.OVERLAP, message, head, span)

    def _cleaned(self, key: Key, stretch: Stretch, again: Spans) -> Spans:
        """Offsets that a stretch read again, and whose doubled rows a repair removed since."""
        return Spans.of(
            span
            for entry, looked_at in self.covered.removals.get((key.topic, key.partition), ())
            for span in again.intersect(Spans.of([looked_at]))
            if self.covered.entry_at(stretch, span.end - 1) < entry
        )

    def _add(self, key: Key, code: Code, message: str, head: EntryHead, span: tuple[int, int] | None = None) -> None:
        self.findings.add(code, f"{key}: {message}", head=head, key=key, span=span)


def _unseen_between(earlier: EntryHead, later: EntryHead, witnesses: Witnesses) -> str:
    """What may have been written without recon between two entries, and nobody saw, in a clause; "" for nothing.

    A commit that the log has no more may have been such a micro-batch, too.
    """
    log, before, at = witnesses.table_log, earlier.sink_version, later.sink_version
    if log is None or not (earlier.is_observed or later.is_observed):
        return ""
    if before is None or at is None:
        return "a commit that no entry names"
    strange = {commit.version for commit in TableHistory(log).unseen(before, at)}
    strange |= {version for version in range(before + 1, at) if version not in log.commits}
    if witnesses.own_function:  # Spark's own sink names the query
        # Where rows alone say which micro-batch a commit is of, it may have been written after the next one, too.
        strange |= _of_nobody(log, range(before + 1, (log.last or 0) + 1 if witnesses.placed_by_rows else at))
    return f"the sink's versions {some(sorted(strange))}, which no entry names," if strange else ""


def _of_nobody(log: TableLog, versions: Iterable[int]) -> set[int]:
    """The commits that brought rows and name no micro-batch."""
    commits = (log.commits[version] for version in versions if version in log.commits)
    return {commit.version for commit in commits if commit.stamp is None and commit.adds_rows}


def _report_recreated(covered: Coverage, clusters: Clusters, findings: Findings) -> None:
    """One finding for each topic and micro-batch, whatever the number of partitions."""
    recreated: dict[tuple[str, int], tuple[TopicIncarnation, TopicIncarnation]] = {}
    for key in covered.incarnations:
        for old, new, entry in covered.topic_changes(key):
            # A deleted topic never has its id again: another query still reads it, or one that moved back.
            back = new.stretches[0].first != entry and clusters.move(old.topic_id, new.topic_id) is None
            if covered.judged(entry) and not back:
                recreated.setdefault((key.topic, entry), (old, new))
    for (topic, entry), (old, new) in recreated.items():
        head = covered.slice.heads[entry]
        move = clusters.move(old.topic_id, new.topic_id)
        if move is not None:
            _report_moved(topic, move, head, findings)
            continue
        message = (
            f"topic {topic} was deleted and created again before {named(head)}: its id was {old.topic_id} and is "
            f"{new.topic_id}; whatever the old topic held beyond the ledger's end is gone"
        )
        findings.add(Code.RECREATED, message, head=head, topic=topic)


def _report_moved(topic: str, move: Move, head: EntryHead, findings: Findings) -> None:
    by = named(head)
    findings.add(
        Code.RECREATED,
        f"{by} read topic {topic} of another cluster: {move}; offsets of the two are not comparable",
        head=head,
        topic=topic,
    )
    findings.add(
        Code.INCONCLUSIVE,
        f"whether records that {by} and later ones read of topic {topic} are copies of records read on cluster "
        f"{move.old} is not known, nor whether records of that cluster were never read: compare both by key, and "
        "accept this when the sink has each record once",
        head=head,
        topic=topic,
        about=f"cluster {move.new}",
    )


def _report_epochs(covered: Coverage, entered: Entered | None, findings: Findings) -> None:
    heads = covered.slice.heads
    for before, entry in pairwise(covered.micro_batches):
        old, new = heads[before], heads[entry]
        if old.epoch == new.epoch or not covered.judged(entry):
            continue
        if entered is not None and before in entered.edits and old.batch_id == new.batch_id:
            continue  # the micro-batch ran again with another range: OVERLAP and GAP say of which offsets
        query = "a new query_id" if old.query_id != new.query_id else "the same query_id and batch ids that start over"
        message = f"epoch {new.epoch} begins with micro-batch {new.batch_id}: {query} ({new.query_id})"
        findings.add(Code.NEW_EPOCH, message, head=new)


def _report_replays(covered: Coverage, findings: Findings) -> None:
    unwritten = {call.again: covered.slice.heads[call.entry] for call in second_calls(covered).values() if call.differs}
    for entry in filter(covered.judged, covered.replays):
        head = covered.slice.heads[entry]
        said = f"was tried again (attempt {head.attempt}) and written once"
        if entry in unwritten:
            first, again = (given.transform or "no transform" for given in (unwritten[entry], head))
            said = (
                "was given to the hook again in the same run, and nothing of that call was written; the transforms of "
                f"the two are {first} and {again}: source_rows tells which records have no row"
            )
        findings.add(Code.REPLAYED, f"{named(head)} {said}", head=head)


def _report_empty(covered: Coverage, findings: Findings) -> None:
    width = widths(covered.slice)
    empty = [covered.slice.heads[entry] for entry in covered.judged_entries() if width[entry] == 0]
    findings.add_for_all(Code.EMPTY, empty, f"{plural(len(empty), 'micro-batch')} accounted for no offsets")
