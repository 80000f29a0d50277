"""Offsets that no micro-batch read, though the stream went past them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from recon.judge.coverage import Coverage, Hole, Key, TopicIncarnation, judged_holes
from recon.judge.source import Missed, Source
from recon.model import Code
from recon.model.account import HowKnown, OffsetClass
from recon.model.grouping import grouped
from recon.model.offsets import Span, Spans
from recon.model.positions import is_kafka
from recon.model.proof import SinkProof

_NO_TOPIC_ID = (
    "may have been read of this topic, when the hook did not learn the topic id; look for rows of them, then accept it"
)
_BEFORE_THE_PERIOD = (
    "may have been read before the period, whose entries this audit does not have; audit without `--from`"
)


class Unread(NamedTuple):
    """Offsets that the stream went past.

    `hole` is where it did; None where reading began behind them. `again` is whether it began so in a topic that was
    created again, whose first records are as good as any. `doubt` is why a micro-batch may have read them, with the
    next step; "" where none can have.
    """

    key: Key
    incarnation: TopicIncarnation
    span: Span
    hole: Hole | None = None
    again: bool = False
    doubt: str = ""

    def missed(self, source: Source) -> list[Missed]:
        """What the source says of them."""
        if self.doubt:
            return [Missed(Code.INCONCLUSIVE, self.span, self.doubt, self.incarnation.topic_id, said=False)]
        # Where Kafka does not say, they were deleted: Spark reads a new partition from its log start.
        unknown = Code.GAP if self.hole is not None or self.again else Code.LOSS_RETENTION
        return list(source.missed(self.key, self.incarnation.topic_id, self.span, unknown))


def unread(covered: Coverage, proof: SinkProof | None) -> Iterator[Unread]:
    """All that was left out in the period: before the first offset of a partition, and between micro-batches.

    A query begins with a table as it is, or with the version that it was told. What audits before saw read is not left
    out: a partition that micro-batches did not read for a while has no entry among the period's anchors.
    """
    yield from _before_the_first(covered, proof)
    for key, incarnation, hole in judged_holes(covered):
        missed = Unread(key, incarnation, Span(hole.start, hole.end), hole)
        # Where the last micro-batch before the period did not read the partition, an earlier one may have.
        certain = covered.judged(hole.before.last) or hole.before.last == covered.last_anchor
        yield from [missed] if certain else _apart(missed, None, covered, proof)


def _before_the_first(covered: Coverage, proof: SinkProof | None) -> Iterator[Unread]:
    """What was left out before the first offset of a topic partition that was read."""
    anywhere = _may_start_anywhere(covered)
    for key, incarnations in covered.incarnations.items():
        for number, incarnation in enumerate(incarnations if is_kafka(key.topic) else ()):
            first = incarnation.stretches[0]
            below = min(first.start, first.end)
            if below and covered.judged(first.first) and (number or key not in anywhere):
                former = incarnations[number - 1] if number else None
                yield from _apart(Unread(key, incarnation, Span(0, below), again=number > 0), former, covered, proof)


def _apart(
    unread: Unread, former: TopicIncarnation | None, covered: Coverage, proof: SinkProof | None
) -> Iterator[Unread]:
    """Offsets that were left out, apart from those that may have been read: before the period, or under no topic id."""
    topic, partition, topic_id = unread.key.topic, unread.key.partition, unread.incarnation.topic_id
    left = Spans((unread.span,)).minus(proof.read(topic, topic_id, partition) if proof else Spans())
    unnamed = Spans.of((read.start, read.end) for read in (former.unnamed_since if former else ()))
    doubt = "" if former or proof or covered.slice.complete else _BEFORE_THE_PERIOD
    yield from (unread._replace(span=span, doubt=doubt) for span in left.minus(unnamed))
    yield from (unread._replace(span=span, doubt=_NO_TOPIC_ID) for span in left.intersect(unnamed))


class NeverRead(NamedTuple):
    """Offsets of a topic partition that no micro-batch read, and what the source says of them."""

    key: Key
    incarnation: TopicIncarnation
    span: Span
    offset_class: OffsetClass
    how: HowKnown


def never_read(
    covered: Coverage, source: Source, proof: SinkProof | None, *, lost: bool, observed: bool
) -> Iterator[NeverRead]:
    """The offsets of Kafka that no micro-batch read, up to where the reading has come to.

    `lost` is whether those are lost that Kafka has or had: no other program may have written rows of them. `observed`
    is whether the query writes without recon.
    """
    for left_out in unread(covered, proof):
        parts = left_out.missed(source) if is_kafka(left_out.key.topic) else []
        # A query that writes without recon may have read them in a micro-batch that has no entry.
        unseen = observed and any(part.code is not Code.EXPLAINED for part in parts)
        for part in parts:
            empty = _without_a_record(left_out.key, part, source)
            for span, of_class in empty:
                yield NeverRead(left_out.key, left_out.incarnation, span, of_class, HowKnown.KAFKA)
            found = _class_of(part, lost=lost and not unseen)
            for span in Spans.of([part.span]).minus(Spans.of(span for span, _ in empty)):
                yield NeverRead(left_out.key, left_out.incarnation, span, *found)


def _class_of(part: Missed, *, lost: bool) -> tuple[OffsetClass, HowKnown]:
    if part.code is Code.EXPLAINED:
        return OffsetClass.WITHOUT_RECORD, HowKnown.REMEMBERED
    if not lost or not part.said:
        return OffsetClass.NOT_KNOWN, HowKnown.NOTHING
    return OffsetClass.DELETED if part.code is Code.LOSS_RETENTION else OffsetClass.LOST, HowKnown.KAFKA


def _without_a_record(key: Key, part: Missed, source: Source) -> list[tuple[Span, OffsetClass]]:
    """The offsets that have no record for the stream, as far as Kafka was asked about each of them."""
    answer = source.answers.get((key.topic, key.partition))
    topic = source.topic(key.topic)
    if answer is None or answer.truncated is not None or topic is None or topic.topic_id != part.topic_id:
        return []
    if source.is_compacted(key.topic):
        return []  # compaction may have removed a record that was lost
    asked = Spans.of([part.span]).intersect(answer.shown)
    aborted = asked.intersect(answer.aborted)
    reads_all = source.isolation_level == "read_uncommitted"
    found = [(span, OffsetClass.ABORTED) for span in (() if reads_all else aborted)]
    return found + [(span, OffsetClass.MARKER) for span in asked.minus(answer.committed).minus(aborted)]


def _may_start_anywhere(covered: Coverage) -> set[Key]:
    """Topic partitions of which startingOffsets explains where reading begins.

    So it is for those of the ledger's first entry, and for a topic that is new in the first micro-batch of an epoch.
    """
    heads = covered.slice.heads
    begins = {key: incarnations[0].stretches[0].first for key, incarnations in covered.incarnations.items()}
    of_topic = grouped((key[:2], entry) for key, entry in begins.items())

    def may(key: Key, entry: int) -> bool:
        before = covered.before(entry)
        if before is None:
            return True
        return heads[before].epoch != heads[entry].epoch and set(of_topic[key[:2]]) == {entry}

    return {key for key, entry in begins.items() if may(key, entry)}
