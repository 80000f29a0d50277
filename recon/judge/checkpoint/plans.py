"""What Spark planned for a micro-batch, and how a write's ranges compare with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from recon.judge.coverage import Key, by_key
from recon.model import CheckpointBatch, ReconStamp, parse_offsets
from recon.model.offsets import OffsetSpan, Span, Spans
from recon.model.positions import is_kafka


class Planned(NamedTuple):
    """A micro-batch's ranges by topic partition; `start` is None for a partition that is new in it."""

    start: int | None
    end: int

    @property
    def span(self) -> Span:
        """The range; a new partition is taken from 0 on, so that whatever is missing shows."""
        return Span(min(self.start or 0, self.end), self.end)


def planned_ranges(batch: CheckpointBatch) -> dict[Key, Planned]:
    """A micro-batch's plan by topic partition."""
    plan = {Key(s.source, s.topic, s.partition): Planned(s.start_offset, s.end_offset) for s in batch.ranges}
    for source, topic, partition, end in batch.new_partitions:
        plan[Key(source, topic, partition)] = Planned(None, end)
    return plan


def stamped_ranges(stamp: ReconStamp) -> dict[Key, Spans]:
    """The ranges a commit carries."""
    return by_key((s.source, s.topic, s.partition, *s[3:5]) for s in parse_offsets(stamp.offsets_text))


def fits(plan: Mapping[Key, Planned], held: Mapping[Key, Spans], batch: CheckpointBatch) -> bool:
    """Whether everything held was planned. Without known starts only the number of the batch can speak."""
    for key, spans in held.items():
        hull, planned = spans.hull, plan.get(key)
        if hull is None or (planned is None and not batch.starts_known):
            continue
        if planned is None or hull.end > planned.end or hull.start < planned.span.start:
            return False
    return True


def rest_of(plan: Mapping[Key, Planned], held: Mapping[Key, Spans]) -> list[tuple[Key, Spans]]:
    """What was planned and is not held. A new partition begins wherever the write began."""
    found = []
    for key, planned in plan.items():
        if planned.start is None:
            continue
        left = Spans.of([planned.span]).minus(held.get(key, Spans()))
        if left:
            found.append((key, left))
    return found


def forgotten(
    begins: Iterable[tuple[int, str, int, int]], first: Iterable[OffsetSpan], batch_id: int
) -> CheckpointBatch:
    """What micro-batches before a number read together, from where the query began to where it goes on with `first`.

    Spark removed their plans. A partition that the query did not begin with is new in them.
    """
    at = {Key(source, topic, partition): offset for source, topic, partition, offset in begins}
    read = [(span, at.get(Key(span.source, span.topic, span.partition))) for span in first if is_kafka(span.topic)]
    known = (
        span._replace(start_offset=begin, end_offset=span.start_offset) for span, begin in read if begin is not None
    )
    new = ((span.source, span.topic, span.partition, span.start_offset) for span, begin in read if begin is None)
    return CheckpointBatch(
        batch_id=batch_id - 1,
        planned_at=None,
        committed=True,
        ranges=tuple(known),
        new_partitions=tuple(new),
        since=0,
    )
