"""offset_continuity: every micro-batch starts where the one before it ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from typing_extensions import override

from recon.checks.base import EvidenceCheck
from recon.checks.evidence.coverage import Coverage, Hole, Key, TopicIncarnation, coverage, missed, widths
from recon.checks.evidence.findings import Findings, ledger_of, named, no_entries, offsets, quiet
from recon.model import Code, EntryHead, Verdict, Witnesses
from recon.text import plural, some


@dataclass(frozen=True, kw_only=True)
class OffsetContinuity(EvidenceCheck):
    """Every micro-batch starts where the one before it ended, in every topic partition.

    Proves that the micro-batches in the ledger form one unbroken reading of Kafka: no offset left out, none read
    twice. It needs the ledger alone; where Kafka can be read, a gap is distinguished from a loss.
    A period without micro-batches has nothing that could deviate and passes with a message that says so (what
    waits in Kafka is `kafka_end_offsets`' question). A ledger without any entry proves nothing: status error.

    Codes:
        GAP: offsets between two micro-batches that none of them read; Kafka still holds them, or could not be read.
        LOSS_RETENTION: the same, but below Kafka's log start by now; also the offsets below the first one read of a
            partition that appeared while the query ran.
        OVERLAP: offsets that two micro-batches read. Whether rows are doubled is `source_rows`' question.
        RECREATED: the topic was deleted and created again between two micro-batches.
        INCONCLUSIVE: a position went back within one topic: re-created without a known topic id, or cut off by an
            unclean leader election.
        NEW_EPOCH, REPLAYED, EMPTY: a checkpoint that started over, a micro-batch that was tried again and written
            once, micro-batches that read nothing; they explain and do not fail.

    A slice that begins in the middle of the ledger takes everything before its anchors as read: earlier audits
    judged it.
    """

    test: ClassVar[str] = "offset_continuity"
    needs: ClassVar[Sequence[str]] = ("ledgers",)
    uses: ClassVar[Sequence[str]] = ("kafka",)
    scope: ClassVar[str] = "sink"

    @override
    def judge(self, witnesses: Witnesses) -> Verdict:
        ledger = ledger_of(witnesses)
        if ledger is None:
            return no_entries(witnesses)
        covered = coverage(ledger)
        findings = Findings.of(witnesses)
        _report_epochs(covered, findings)
        _report_replays(covered, findings)
        _report_empty(covered, findings)
        recreated: set[tuple[str, int]] = set()
        for key, incarnations in covered.incarnations.items():
            for n, incarnation in enumerate(incarnations):
                if n:
                    _report_recreated(covered, key, incarnations[n - 1], incarnation, recreated, findings)
                _judge_incarnation(covered, key, incarnation, n, witnesses, findings)

        judged = covered.judged_entries()
        message = (
            f"{plural(len(judged), 'micro-batch')} over {plural(len(covered.incarnations), 'topic partition')}: each "
            "starts where the one before it ended"
        )
        return findings.verdict(
            message if judged else quiet(ledger), batches=len(judged), partitions=len(covered.incarnations)
        )


def _judge_incarnation(
    covered: Coverage, key: Key, incarnation: TopicIncarnation, number: int, witnesses: Witnesses, findings: Findings
) -> None:
    heads, first = covered.slice.heads, incarnation.stretches[0]
    if covered.judged(first.first):
        below = min(first.start, first.end)
        if number:  # a re-created topic: its first records are as good as any
            if below:
                reason = f"the re-created topic was read from offset {below} on, not from 0"
                _report_missed(key, incarnation, 0, below, heads[first.first], reason, witnesses, findings)
        elif below and not _may_start_anywhere(covered, key, first.first):
            head = heads[first.first]
            reason = f"the partition is new in {named(head)} and was read from offset {below} on, not from 0"
            _report_missed(key, incarnation, 0, below, head, reason, witnesses, findings, new=True)
    if len(incarnation.stretches) == 1 and first.end >= first.start:
        return
    walked = incarnation.walked
    for hole in walked.holes:
        if covered.judged(hole.at.first):
            reason = _reason(covered, hole)
            _report_missed(key, incarnation, hole.start, hole.end, heads[hole.at.first], reason, witnesses, findings)
    for stretch, twice in walked.overlaps:
        if not covered.judged(stretch.first):
            continue
        for start, end in twice:
            head = heads[covered.entry_at(stretch, start)]
            findings.add(
                Code.OVERLAP,
                f"{key}: {offsets(start, end)} were read again from {named(head)} on, though the ledger already "
                "held them; source_rows tells whether rows are doubled",
                head=head,
                topic=key.topic,
                partition=key.partition,
                start_offset=start,
                end_offset=end,
            )
    for stretch in incarnation.stretches:
        known = number and stretch is first  # reported as RECREATED
        if stretch.end < stretch.start and covered.judged(stretch.first) and not known:
            head = heads[stretch.first]
            findings.add(
                Code.INCONCLUSIVE,
                f"{key}: {named(head)} was planned from offset {stretch.start} back to {stretch.end}: the topic was "
                "re-created or its log was cut off by an unclean leader election; compare topic ids and leader "
                "epochs with the broker's logs",
                head=head,
                topic=key.topic,
                partition=key.partition,
            )


def _may_start_anywhere(covered: Coverage, key: Key, entry: int) -> bool:
    """Whether startingOffsets explains where reading of a partition begins.

    So it is for the ledger's first entry, and for a topic that is new in the first micro-batch of an epoch.
    """
    heads, before = covered.slice.heads, covered.before(entry)
    if before is None:
        return True
    opens_epoch = heads[before].epoch != heads[entry].epoch
    topic_known = any(
        incarnations[0].stretches[0].first != entry
        for other, incarnations in covered.incarnations.items()
        if (other.source, other.topic) == (key.source, key.topic)
    )
    return opens_epoch and not topic_known


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


def _report_missed(
    key: Key,
    incarnation: TopicIncarnation,
    start: int,
    end: int,
    head: EntryHead,
    reason: str,
    witnesses: Witnesses,
    findings: Findings,
    *,
    new: bool = False,
) -> None:
    for code, low, high, next_step in missed(witnesses.kafka, key, incarnation.topic_id, start, end):
        if new and code is Code.GAP and not _held(next_step):
            code = Code.LOSS_RETENTION  # Spark reads a new partition from its log start
        findings.add(
            code,
            f"{key}: {offsets(low, high)} were read by no micro-batch: {reason}; {next_step}",
            head=head,
            topic=key.topic,
            partition=key.partition,
            start_offset=low,
            end_offset=high,
        )


def _held(next_step: str) -> bool:
    return next_step.startswith("Kafka still holds")


def _report_recreated(
    covered: Coverage,
    key: Key,
    old: TopicIncarnation,
    new: TopicIncarnation,
    reported: set[tuple[str, int]],
    findings: Findings,
) -> None:
    first = new.stretches[0].first
    if not covered.judged(first) or (key.topic, first) in reported:
        return
    reported.add((key.topic, first))
    head = covered.slice.heads[first]
    findings.add(
        Code.RECREATED,
        f"topic {key.topic} was deleted and created again before {named(head)}: its id was {old.topic_id} and is "
        f"{new.topic_id}; whatever the old topic held beyond the ledger's end is gone",
        head=head,
        topic=key.topic,
    )


def _report_epochs(covered: Coverage, findings: Findings) -> None:
    heads = covered.slice.heads
    for before, entry in pairwise(covered.order):
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
    for entry in covered.replays:
        head = covered.slice.heads[entry]
        if covered.judged(entry):
            at = f", version {head.sink_version} of the sink" if head.sink_version is not None else ""
            findings.add(
                Code.REPLAYED,
                f"{named(head)} was tried again (attempt {head.attempt}) and written once{at}",
                head=head,
            )


def _report_empty(covered: Coverage, findings: Findings) -> None:
    width = widths(covered.slice)
    empty = [entry for entry in covered.judged_entries() if width[entry] == 0]
    if empty:
        ids = some(covered.slice.heads[entry].batch_id for entry in empty)
        only = covered.slice.heads[empty[0]] if len(empty) == 1 else None
        findings.add(
            Code.EMPTY, f"{plural(len(empty), 'micro-batch')} accounted for no offsets: batch_id {ids}", head=only
        )
