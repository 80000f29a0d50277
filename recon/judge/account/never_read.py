"""Offsets that no micro-batch read, though the stream went past them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from recon.judge.coverage import Coverage, Key, Missed, TopicIncarnation, is_compacted, judged_holes, missed
from recon.model import Code, Witnesses
from recon.model.account import HowKnown, OffsetClass
from recon.model.offsets import Span, Spans
from recon.model.positions import is_kafka


class NeverRead(NamedTuple):
    """Offsets of a topic partition that no micro-batch read, and what the source says of them."""

    key: Key
    incarnation: TopicIncarnation
    span: Span
    offset_class: OffsetClass
    how: HowKnown


def never_read(covered: Coverage, witnesses: Witnesses, *, lost: bool) -> Iterator[NeverRead]:
    """All of them, up to where the reading has come to.

    `lost` is whether those are lost that Kafka has or had: no other program may have written rows of them.
    """
    for one in _never_read(covered, witnesses):
        if one.offset_class in (OffsetClass.LOST, OffsetClass.DELETED) and not lost:
            yield one._replace(offset_class=OffsetClass.NOT_KNOWN, how=HowKnown.NOTHING)
        else:
            yield one


def _never_read(covered: Coverage, witnesses: Witnesses) -> Iterator[NeverRead]:
    for key, incarnation, hole in judged_holes(covered):
        if is_kafka(key.topic):
            span = (hole.start, hole.end)
            yield from _classified(
                key, incarnation, list(missed(witnesses, key, incarnation.topic_id, span)), witnesses
            )
    for key, incarnation, below in (*late_starts(covered), *_late_again(covered)):
        # Where Kafka does not say, they were deleted: Spark reads a new partition from its log start.
        unread = list(missed(witnesses, key, incarnation.topic_id, (0, below), unknown=Code.LOSS_RETENTION))
        yield from _classified(key, incarnation, unread, witnesses)


def _classified(
    key: Key, incarnation: TopicIncarnation, unread: list[Missed], witnesses: Witnesses
) -> Iterator[NeverRead]:
    # A query that writes without recon may have read them in a micro-batch that has no entry.
    unseen = witnesses.observed and any(one.code is not Code.EXPLAINED for one in unread)
    for one in unread:
        found, how = _class_of(one, unseen=unseen)
        empty = _without_a_record(key, one, witnesses)
        for span, of_class in empty:
            yield NeverRead(key, incarnation, span, of_class, HowKnown.KAFKA)
        for span in Spans.of([one.span]).minus(Spans.of(span for span, _ in empty)):
            yield NeverRead(key, incarnation, span, found, how)


def _class_of(one: Missed, *, unseen: bool) -> tuple[OffsetClass, HowKnown]:
    if one.code is Code.EXPLAINED:
        return OffsetClass.WITHOUT_RECORD, HowKnown.REMEMBERED
    if unseen or not one.said:
        return OffsetClass.NOT_KNOWN, HowKnown.NOTHING
    if one.code is Code.LOSS_RETENTION:
        return OffsetClass.DELETED, HowKnown.KAFKA
    return OffsetClass.LOST, HowKnown.KAFKA


def _without_a_record(key: Key, one: Missed, witnesses: Witnesses) -> list[tuple[Span, OffsetClass]]:
    """The offsets that have no record for the stream, as far as Kafka was asked about each of them."""
    answer = witnesses.probes.get((key.topic, key.partition))
    topic = witnesses.topic(key.topic)
    if answer is None or answer.truncated is not None or topic is None or topic.topic_id != one.topic_id:
        return []
    if is_compacted(key.topic, witnesses):
        return []  # compaction may have removed a record that was lost
    asked = Spans.of([one.span]).intersect(answer.shown)
    aborted = asked.intersect(answer.aborted)
    reads_all = witnesses.isolation_level == "read_uncommitted"
    found = [(span, OffsetClass.ABORTED) for span in (() if reads_all else aborted)]
    return found + [(span, OffsetClass.MARKER) for span in asked.minus(answer.committed).minus(aborted)]


def late_starts(covered: Coverage) -> Iterator[tuple[Key, TopicIncarnation, int]]:
    """The partitions that appear while the query runs and are read from another offset on than their first, and which.

    A query begins with a table as it is, or with the version that it was told.
    """
    anywhere = _may_start_anywhere(covered)
    for key, incarnations in covered.incarnations.items():
        first = incarnations[0].stretches[0]
        below = min(first.start, first.end)
        if below and is_kafka(key.topic) and covered.judged(first.first) and key not in anywhere:
            yield key, incarnations[0], below


def _late_again(covered: Coverage) -> Iterator[tuple[Key, TopicIncarnation, int]]:
    """The same of topics that were created again: their first records are as good as any."""
    for key, incarnations in covered.incarnations.items():
        for incarnation in incarnations[1:]:
            first = incarnation.stretches[0]
            below = min(first.start, first.end)
            if below and is_kafka(key.topic) and covered.judged(first.first):
                yield key, incarnation, below


def _may_start_anywhere(covered: Coverage) -> set[Key]:
    """Topic partitions of which startingOffsets explains where reading begins.

    So it is for those of the ledger's first entry, and for a topic that is new in the first micro-batch of an epoch.
    """
    heads = covered.slice.heads
    begins = {key: incarnations[0].stretches[0].first for key, incarnations in covered.incarnations.items()}
    of_topic: dict[tuple[int, str], set[int]] = {}
    for key, entry in begins.items():
        of_topic.setdefault((key.source, key.topic), set()).add(entry)

    def may(key: Key, entry: int) -> bool:
        before = covered.before(entry)
        if before is None:
            return True
        return heads[before].epoch != heads[entry].epoch and of_topic[key.source, key.topic] == {entry}

    return {key for key, entry in begins.items() if may(key, entry)}
