"""offset_continuity: every micro-batch starts where the one before it ended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from typing_extensions import override

from recon.checks.base import EvidenceCheck
from recon.judge.account.never_read import late_starts
from recon.judge.coverage import (
    Coverage,
    Hole,
    Key,
    Missed,
    Stretch,
    TopicIncarnation,
    coverage,
    judged_holes,
    missed,
    to_ask,
    widths,
)
from recon.judge.findings import WROTE_NOTHING, Findings, named, no_entries, quiet
from recon.judge.history.entries import entries_with_unrecorded_commits
from recon.judge.history.table_history import TableHistory
from recon.judge.kafka.topic_identity import judge_logs
from recon.judge.open_findings import unread_before
from recon.judge.second_calls import second_calls
from recon.model import Code, EntryHead, Verdict, Witnesses
from recon.model.offsets import Span, Spans
from recon.text import plural, some

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
        ledger = entries_with_unrecorded_commits(witnesses)
        if ledger is None:
            return no_entries(witnesses)
        covered = coverage(ledger)
        witnesses = witnesses.with_answers(lambda so_far: _questions(covered, so_far))
        findings = Findings.of(witnesses)
        _report_epochs(covered, findings)
        _report_replays(covered, findings)
        _report_empty(covered, findings)
        _report_recreated(covered, findings)
        for key, incarnation, below in late_starts(covered):
            _judge_start(covered, key, incarnation, below, witnesses, findings)
        for key, incarnations in covered.incarnations.items():
            for number, incarnation in enumerate(incarnations):
                _judge_incarnation(covered, key, incarnation, number, witnesses, findings)
        judge_logs(covered, witnesses, findings)

        judged = covered.judged_entries()
        message = (
            f"{plural(len(judged), 'micro-batch')} over {plural(len(covered.incarnations), 'topic partition')}: each "
            "starts where the one before it ended"
        )
        return findings.verdict(
            message if judged else quiet(ledger), batches=len(judged), partitions=len(covered.incarnations)
        )


def _questions(covered: Coverage, witnesses: Witnesses) -> Mapping[TopicPartition, Spans]:
    """Whether Kafka has records of what no micro-batch read."""
    asked: dict[TopicPartition, list[Span]] = {}
    unread = [(key, of, (hole.start, hole.end)) for key, of, hole in judged_holes(covered)]
    unread += [(key, of, (0, below)) for key, of, below in late_starts(covered)]
    for key, incarnation, span in unread:
        wanted = to_ask(witnesses, key, incarnation.topic_id, span)
        asked.setdefault((key.topic, key.partition), []).extend(wanted)
    return {where: Spans.of(spans) for where, spans in asked.items() if spans}


def _judge_start(
    covered: Coverage, key: Key, incarnation: TopicIncarnation, below: int, witnesses: Witnesses, findings: Findings
) -> None:
    """A partition that appears while the query runs is read from its first offset."""
    first = incarnation.stretches[0]
    head = covered.slice.heads[first.first]
    before = covered.slice.heads[first.first - 1] if first.first else None
    unentered = head.batch_id and not _is_entered(covered, head.query_id, head.batch_id - 1)
    # Where Kafka does not say, they were deleted: Spark reads a new partition from its log start.
    unread = list(missed(witnesses, key, incarnation.topic_id, (0, below), unknown=Code.LOSS_RETENTION))
    is_open = witnesses.observed and any(one.code is not Code.EXPLAINED for one in unread)
    if is_open and (unentered or (before is not None and _unseen_between(before, head, witnesses))):
        findings.add(
            Code.INCONCLUSIVE,
            f"{key}: the partition is new in {named(head)} and was read from offset {below} on; whether a "
            "micro-batch before it, which is in no ledger entry, read what is below is not known",
            head=head,
            key=key,
            span=(0, below),
        )
        return
    reason = f"the partition is new in {named(head)} and was read from offset {below} on, not from 0"
    _report_missed(key, unread, head, reason, findings)


def _is_entered(covered: Coverage, query_id: str, batch_id: int) -> bool:
    """Whether a micro-batch has an entry, as far as the slice has them."""
    return any((head.query_id, head.batch_id) == (query_id, batch_id) for head in covered.slice.heads)


def _judge_incarnation(
    covered: Coverage, key: Key, incarnation: TopicIncarnation, number: int, witnesses: Witnesses, findings: Findings
) -> None:
    heads, first = covered.slice.heads, incarnation.stretches[0]
    below = min(first.start, first.end)
    if number and below and covered.judged(first.first):  # a re-created topic: its first records are as good as any
        unread = missed(witnesses, key, incarnation.topic_id, (0, below))
        reason = f"the re-created topic was read from offset {below} on, not from 0"
        _report_missed(key, unread, heads[first.first], reason, findings)
    if len(incarnation.stretches) == 1 and first.end >= first.start:
        return
    walked = incarnation.walked
    for hole in walked.holes:
        if covered.judged(hole.at.first):
            _judge_hole(covered, key, incarnation, hole, witnesses, findings)
    to_repair = unread_before(witnesses, key.topic, incarnation.topic_id, key.partition)
    for stretch, twice in walked.overlaps:
        if heads[stretch.first].is_repair:
            continue  # it read again what a micro-batch had read and the sink did not have: source_rows reads the rows
        again, to_repair = twice.minus(to_repair), to_repair.minus(twice)
        again = again.minus(_cleaned(covered, key, stretch, again))
        for span in again if covered.judged(stretch.first) else ():
            head = heads[covered.entry_at(stretch, span.start)]
            findings.add(
                Code.OVERLAP,
                f"{key}: {key.offsets(*span)} were read again from {named(head)} on, though the ledger already "
                "held them; source_rows tells whether rows are doubled",
                head=head,
                key=key,
                span=span,
            )
    for stretch in incarnation.stretches:
        reported = number and stretch is first  # as RECREATED
        if stretch.end < stretch.start and covered.judged(stretch.first) and not reported:
            head = heads[stretch.first]
            findings.add(
                Code.INCONCLUSIVE,
                f"{key}: {named(head)} was planned from offset {stretch.start} back to {stretch.end}: the topic was "
                "re-created or its log was cut off by an unclean leader election; compare topic ids and leader "
                "epochs with the broker's logs",
                head=head,
                key=key,
            )


def _cleaned(covered: Coverage, key: Key, stretch: Stretch, again: Spans) -> Spans:
    """Offsets that a stretch read again, and whose doubled rows a repair removed since."""
    return Spans.of(
        span
        for entry, looked_at in covered.removals.get((key.topic, key.partition), ())
        for span in again.intersect(Spans.of([looked_at]))
        if covered.entry_at(stretch, span.end - 1) < entry
    )


def _judge_hole(
    covered: Coverage, key: Key, incarnation: TopicIncarnation, hole: Hole, witnesses: Witnesses, findings: Findings
) -> None:
    head = covered.slice.heads[hole.at.first]
    missing = list(missed(witnesses, key, incarnation.topic_id, (hole.start, hole.end)))
    unread = [one for one in missing if one.code is not Code.EXPLAINED]
    heads = covered.slice.heads
    unknown = _unseen_between(heads[hole.before.last], heads[hole.at.first], witnesses) if unread else ""
    if unknown:
        before = named(covered.slice.heads[hole.before.last])
        findings.add(
            Code.INCONCLUSIVE,
            f"{key}: {key.offsets(hole.start, hole.end)} are in no ledger entry, and what was read between {before} "
            f"and {named(head)} into {unknown} is not known; compare the range with the rows, then accept it",
            head=head,
            key=key,
            span=(hole.start, hole.end),
        )
        return
    if unread and witnesses.may_write_nothing and _skips_numbers(covered, hole):
        findings.add(
            Code.INCONCLUSIVE,
            f"{key}: {key.offsets(hole.start, hole.end)} are in no ledger entry: a micro-batch before {named(head)} "
            f"wrote nothing, {WROTE_NOTHING}",
            head=head,
            key=key,
            span=(hole.start, hole.end),
        )
        return
    _report_missed(key, missing, head, _reason(covered, hole), findings)


def _skips_numbers(covered: Coverage, hole: Hole) -> bool:
    """Whether micro-batches may have run in a hole and have no entry: of one query, by its numbers, or of two."""
    before, at = (covered.slice.heads[entry] for entry in (hole.before.last, hole.at.first))
    return at.query_id != before.query_id or at.batch_id > before.batch_id + 1


def _unseen_between(one: EntryHead, other: EntryHead, witnesses: Witnesses) -> str:
    """What was written without recon between two entries, and nobody saw, in a clause; "" for nothing.

    A commit that the log has no more may have been such a micro-batch, too.
    """
    log = witnesses.table_log
    before, at = one.sink_version, other.sink_version
    if log is None or not (one.is_observed or other.is_observed):
        return ""
    commits = TableHistory(log).unseen(-1 if before is None else before, at)
    numbers = sorted(commit.wrote[1] for commit in commits if commit.wrote)
    if numbers:
        return f"micro-batch {some(numbers)}, which was written without recon,"
    # Where rows alone say which micro-batch a commit is of, it may have been written after the next one, too.
    until = (log.last or 0) + 1 if witnesses.placed_by_rows else at or 0
    between = range(0 if before is None else before + 1, until)
    strange = [v for v in between if (c := log.commits.get(v)) is not None and c.stamp is None and c.adds_rows]
    if strange and witnesses.own_function:  # Spark's own sink names the query
        return f"version {some(strange)} of the sink, which names no micro-batch of the query,"
    if before is None or at is None:
        return "a commit that no entry names"
    gone = [version for version in range(before + 1, at) if version not in log.commits]
    return f"version {some(gone)} of the sink, whose commit file its log no longer has," if gone else ""


def _reason(covered: Coverage, hole: Hole) -> str:
    """Between which micro-batches a hole opened; a jump of batch ids is evidence of a lost entry."""
    heads = covered.slice.heads
    before, at = heads[hole.before.last], heads[hole.at.first]
    if before.epoch != at.epoch:
        return f"epoch {at.epoch} starts beyond the end of epoch {before.epoch}"
    previous = heads[covered.before(hole.at.first) or 0]
    jump = at.batch_id - previous.batch_id > 1 and previous.epoch == at.epoch
    return f"{named(at)} starts beyond the end of {named(before)}" + (
        f", and batch ids jump from {previous.batch_id} to {at.batch_id}" if jump else ""
    )


def _report_missed(key: Key, unread: Iterable[Missed], head: EntryHead, reason: str, findings: Findings) -> None:
    for one in unread:
        message = one.says(key, f"were read by no micro-batch: {reason}")
        findings.add(one.code, message, head=head, key=key, span=one.span, topic_id=one.topic_id)


def _report_recreated(covered: Coverage, findings: Findings) -> None:
    """One finding for each topic and micro-batch, whatever the number of partitions."""
    recreated: dict[tuple[str, int], tuple[TopicIncarnation, TopicIncarnation]] = {}
    for key, incarnations in covered.incarnations.items():
        for old, new in pairwise(incarnations):
            if covered.judged(new.stretches[0].first):
                recreated.setdefault((key.topic, new.stretches[0].first), (old, new))
    for (topic, entry), (old, new) in recreated.items():
        head = covered.slice.heads[entry]
        findings.add(
            Code.RECREATED,
            f"topic {topic} was deleted and created again before {named(head)}: its id was {old.topic_id} and is "
            f"{new.topic_id}; whatever the old topic held beyond the ledger's end is gone",
            head=head,
            topic=topic,
        )


def _report_epochs(covered: Coverage, findings: Findings) -> None:
    heads = covered.slice.heads
    for before, entry in pairwise(covered.micro_batches):
        old, new = heads[before], heads[entry]
        if old.epoch == new.epoch or not covered.judged(entry):
            continue
        query = "a new query_id" if old.query_id != new.query_id else "the same query_id and batch ids that start over"
        findings.add(
            Code.NEW_EPOCH,
            f"epoch {new.epoch} begins with micro-batch {new.batch_id}: {query} ({new.query_id})",
            head=new,
        )


def _report_replays(covered: Coverage, findings: Findings) -> None:
    unwritten = {call.again: covered.slice.heads[call.entry] for call in second_calls(covered).values() if call.differs}
    for entry in covered.replays:
        head = covered.slice.heads[entry]
        if entry in unwritten and covered.judged(entry):
            transforms = (one.transform or "no transform" for one in (unwritten[entry], head))
            findings.add(
                Code.REPLAYED,
                f"{named(head)} was given to the hook again in the same run, and nothing of that call was written; the "
                "transforms of the two are {} and {}: source_rows tells which records have no row".format(*transforms),
                head=head,
            )
        elif covered.judged(entry):
            at = f", version {head.sink_version} of the sink" if head.sink_version is not None else ""
            findings.add(
                Code.REPLAYED,
                f"{named(head)} was tried again (attempt {head.attempt}) and written once{at}",
                head=head,
            )


def _report_empty(covered: Coverage, findings: Findings) -> None:
    width = widths(covered.slice)
    empty = [covered.slice.heads[entry] for entry in covered.judged_entries() if width[entry] == 0]
    findings.add_for_all(Code.EMPTY, empty, f"{plural(len(empty), 'micro-batch')} accounted for no offsets")
