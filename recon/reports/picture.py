"""Computes the positions of everything in the report's charts; the templates draw them.

Positions are per cent of the plot's width, so that a chart fits any screen without being distorted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import groupby, pairwise
from typing import NamedTuple

from recon.base.counts import sum_of
from recon.base.text import duration, plural
from recon.model import BatchPoint, CoverageCell, PartitionFacts, SinkFacts
from recon.model.positions import is_kafka, partition_name
from recon.reports.words import number, offsets, when

# Worst first. The first three are problems; "in flight" is not finished yet.
STATES = ("lost", "gap", "overlap", "in flight", "covered")
PROBLEMS = frozenset(("lost", "gap", "overlap"))
FEW = 24  # up to so many partitions, each has a row with its name
MAX_PROBLEM_ROWS = 40
MAX_CELLS = 6000  # per chart; beyond it neighbouring cells share a slot, which shows the worst state of them
MAX_BARS = 240
MAX_PAUSES = 5  # named; the longest
# A stream stands still when no micro-batch comes for so long, and for so many times its usual interval.
PAUSE_AT_LEAST, PAUSE_FACTOR = timedelta(minutes=10), 10

_STEPS = [
    timedelta(seconds=s) for s in (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200)
] + [timedelta(days=d) for d in (1, 2, 7, 14, 30, 90, 180, 365, 730, 1825)]


class Tick(NamedTuple):
    """A mark on the time axis; `date` is drawn below the time where the day changes."""

    x: float
    label: str
    date: str
    anchor: str


class Block(NamedTuple):
    """A rectangle on a row."""

    x: float
    width: float
    state: str
    title: str


class Row(NamedTuple):
    """One topic partition, from the first offset shown to the last; `ends` are these two."""

    label: str
    name: str
    worst: str
    blocks: tuple[Block, ...]
    ends: tuple[int, int]
    topic: str = ""

    @property
    def title(self) -> str:
        """The row in a sentence."""
        whole = "all " if self.worst == "covered" else ""
        what = "offsets " if is_kafka(self.topic) else ""
        return f"{self.name}: {what}{offsets(*self.ends, self.topic)}, {whole}{self.worst}"


class Coverage(NamedTuple):
    """The coverage of one sink. `first` rows are shown at once, `every` row on demand (empty: same as `first`)."""

    first: tuple[Row, ...]
    every: tuple[Row, ...]
    states: tuple[str, ...]
    partitions: int
    problems: int


class Bar(NamedTuple):
    """One micro-batch in the rows chart; heights in per cent.

    `rows` is None when the commit has no row count, `offsets` when a Delta table was read.
    """

    x: float
    width: float
    rows: float | None
    offsets: float | None
    epoch: int
    title: str


class Bars(NamedTuple):
    """Rows per micro-batch. `levels` are horizontal lines (height in per cent, label).

    `pauses` are stretches without a micro-batch that are long for this stream; they have a place where the chart is
    drawn over time. `more_pauses` are not listed.
    """

    bars: tuple[Bar, ...]
    epochs: tuple[tuple[float, int], ...]
    ticks: tuple[Tick, ...]
    levels: tuple[tuple[float, str], ...]
    in_order: bool
    unknown: int
    of_offsets: bool = True
    pauses: tuple[Pause, ...] = ()
    more_pauses: int = 0


class Pause(NamedTuple):
    """A stretch without a micro-batch; `x` and `width` are None where the chart is not drawn over time."""

    x: float | None
    width: float | None
    text: str


class Lag(NamedTuple):
    """Lag of one topic partition; `share` is per cent of the largest."""

    name: str
    lag: int | None
    share: float


def coverage(sink: SinkFacts) -> Coverage | None:
    """The chart of a sink's offsets, each partition over its own; None when there is nothing to draw."""
    rows = [_row(p, fold(p.cells)) for p in sink.partitions if p.cells]
    if not rows:
        return None
    if sum(len(row.blocks) for row in rows) > MAX_CELLS:
        slots = max(8, MAX_CELLS // len(rows))
        rows = [row._replace(blocks=tuple(_coarse(row.blocks, slots))) for row in rows]
    ordered = sorted(rows, key=lambda row: STATES.index(row.worst))  # stable: partitions stay ascending
    problems = [row for row in ordered if row.worst in PROBLEMS]
    few = len(rows) <= FEW
    seen = {block.state for row in rows for block in row.blocks}
    return Coverage(
        first=tuple(ordered if few else problems[:MAX_PROBLEM_ROWS]),
        every=() if few else tuple(rows),
        states=tuple(s for s in reversed(STATES) if s in seen),
        partitions=len(rows),
        problems=len(problems),
    )


def fold(cells: Sequence[CoverageCell]) -> list[CoverageCell]:
    """Joins neighbours of one state whose offsets continue each other."""
    folded: list[CoverageCell] = []
    for cell in cells:
        last = folded[-1] if folded else None
        if last is not None and last.state == cell.state and last.end_offset == cell.start_offset:
            folded[-1] = replace(last, to_time=cell.to_time, end_offset=cell.end_offset)
        else:
            folded.append(cell)
    return folded


def bars(sink: SinkFacts, until: datetime | None = None) -> Bars | None:
    """The chart of rows per micro-batch; None when there is nothing to draw.

    `until` is the end of the audited period: where the last micro-batch was written long before it, the chart goes on
    to there.
    """
    every = sorted(sink.points, key=lambda p: p.at)
    points = fold_points(every)
    if not points:
        return None
    stands_still = _pauses([point.at for point in every], until)
    start, end = points[0].at, points[-1].at
    if until is not None and any(to == until for _, to in stands_still):
        end = until
    own, span = (max(to - start, timedelta(seconds=1)) for to in (points[-1].at, end))
    width = min(80 / len(points), 4.0)
    # Micro-batches that come in bursts would hide each other on a time axis; they are drawn in order instead.
    gaps = [(b.at - a.at) / own * 100 for a, b in pairwise(points)]
    in_order = sum(gap < width / 2 for gap in gaps) > len(gaps) * 0.3
    width = width if in_order else max(width * (own / span), 0.15)
    top, levels = scale(max(max(p.offsets or 0, p.rows_written or 0) for p in points))
    drawn, epochs = [], []
    for n, point in enumerate(points):
        share = (n + 0.5) / len(points) if in_order else (point.at - start) / span
        x = share * 100 - width / 2 if in_order else share * (100 - width)
        if n and point.epoch != points[n - 1].epoch:
            epochs.append((round(max(x - width * 0.15, 0), 3), point.epoch))
        drawn.append(
            Bar(
                x=round(x, 3),
                width=round(width, 3),
                rows=None if point.rows_written is None else round(point.rows_written / top * 100, 2),
                offsets=None if point.offsets is None else round(point.offsets / top * 100, 2),
                epoch=point.epoch,
                title=_point_title(point),
            )
        )
    return Bars(
        bars=tuple(drawn),
        epochs=tuple(epochs),
        ticks=tuple(_ordered_ticks(points) if in_order else _ticks(start, start + span)),
        levels=levels,
        in_order=in_order,
        unknown=sum(p.rows_written is None for p in points),
        of_offsets=any(p.offsets is not None for p in points),
        pauses=tuple(
            Pause(
                x=None if in_order else round((a - start) / span * 100, 3),
                width=None if in_order else round((b - a) / span * 100, 3),
                text=f"no micro-batch for {duration((b - a).total_seconds())}, {when(a)} to {when(b)}",
            )
            for a, b in stands_still[:MAX_PAUSES]
        ),
        more_pauses=max(len(stands_still) - MAX_PAUSES, 0),
    )


def _pauses(times: Sequence[datetime], until: datetime | None) -> list[tuple[datetime, datetime]]:
    """The stretches without a micro-batch that are long beside the usual ones, the longest first."""
    ends = [*times, *([until] if until is not None and until > times[-1] else [])]
    between = sorted(b - a for a, b in pairwise(times) if b > a)
    usual = between[len(between) // 2] if between else timedelta(0)
    long = max(usual * PAUSE_FACTOR, PAUSE_AT_LEAST)
    found = [(a, b) for a, b in pairwise(ends) if b - a >= long]
    return sorted(found, key=lambda pause: pause[0] - pause[1])


def lags(sink: SinkFacts) -> tuple[Lag, ...]:
    """Lag per topic partition of Kafka, unknown first, then largest first."""
    of_kafka = [p for p in sink.partitions if is_kafka(p.topic)]
    top = max((p.lag or 0 for p in of_kafka), default=0)
    ordered = sorted(of_kafka, key=lambda p: (p.lag is not None, -(p.lag or 0), p.topic, p.partition))
    return tuple(
        Lag(
            name=partition_name(p.topic, p.partition),
            lag=p.lag,
            share=round(max((p.lag or 0) / top * 100, 0.6 if p.lag else 0), 2) if top else 0.0,
        )
        for p in ordered
    )


def _row(partition: PartitionFacts, cells: Sequence[CoverageCell]) -> Row:
    name = partition_name(partition.topic, partition.partition)
    low, high = min(c.start_offset for c in cells), max(c.end_offset for c in cells)
    span = max(high - low, 1)
    blocks = []
    for cell in cells:
        x = (cell.start_offset - low) / span * 100
        # A few lost records must be seen among millions.
        width = max((cell.end_offset - cell.start_offset) / span * 100, 0.15 if cell.state == "covered" else 0.5)
        size = plural(cell.end_offset - cell.start_offset, "offset")
        held = offsets(cell.start_offset, cell.end_offset, partition.topic)
        title = (
            f"{name}: {cell.state}, {f'{held}, {size}' if is_kafka(partition.topic) else held}, "
            f"{when(cell.from_time)} to {when(cell.to_time)}"
        )
        blocks.append(Block(round(min(x, 100 - width), 3), round(width, 3), cell.state, title))
    worst = min((c.state for c in cells), key=STATES.index)
    # Problems are drawn last, so that a widened one is not hidden by its neighbour.
    blocks.sort(key=lambda block: block.state != "covered")
    label = name if len(name) <= 16 else "…" + name[-15:]
    return Row(label=label, name=name, worst=worst, blocks=tuple(blocks), ends=(low, high), topic=partition.topic)


def _coarse(blocks: Sequence[Block], slots: int) -> Iterator[Block]:
    """At most `slots` blocks: those that begin in one slot become one, which shows its worst state."""
    ordered = sorted(blocks, key=lambda b: b.x)
    for _, members in groupby(ordered, key=lambda b: int(b.x / 100 * slots)):
        group = list(members)
        worst = min(group, key=lambda b: STATES.index(b.state))
        end = max(b.x + b.width for b in group)
        more = "" if len(group) == 1 else f" (and {len(group) - 1} more stretches here)"
        yield Block(group[0].x, round(end - group[0].x, 3), worst.state, worst.title + more)


def fold_points(points: Sequence[BatchPoint]) -> list[BatchPoint]:
    """At most about MAX_BARS points; only batches of one epoch are folded together."""
    size = -(-len(points) // MAX_BARS)
    folded: list[BatchPoint] = []
    for _, members in groupby(points, key=lambda p: p.epoch):
        epoch = list(members)
        for n in range(0, len(epoch), size or 1):
            group = epoch[n : n + size]
            folded.append(
                replace(
                    group[0],
                    last_batch_id=group[-1].last_batch_id,
                    batches=sum(p.batches for p in group),
                    offsets=sum_of(p.offsets for p in group),
                    rows_written=sum_of(p.rows_written for p in group),
                )
            )
    return folded


def _point_title(point: BatchPoint) -> str:
    ids = (
        f"batch {point.first_batch_id}"
        if point.batches == 1
        else f"batches {point.first_batch_id} to {point.last_batch_id}"
    )
    read = "" if point.offsets is None else f"{number(point.offsets)} offsets read, "
    return f"{ids} of epoch {point.epoch}: {number(point.rows_written)} rows written, {read}{when(point.at)}"


def scale(largest: int) -> tuple[float, tuple[tuple[float, str], ...]]:
    """The top of the value axis and three or four round levels on it."""
    largest = max(largest, 1)
    step = next(m * 10**e for e in range(19) for m in (1, 2, 5) if largest / (m * 10**e) <= 4)
    count = -(-largest // step)
    return float(step * count), tuple((n * 100 / count, _short(step * n)) for n in range(count + 1))


def _short(value: int) -> str:
    for unit, letter in ((10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k")):
        if value >= unit:
            return f"{value / unit:g} {letter}"
    return str(value)


def _ticks(start: datetime, end: datetime) -> Iterator[Tick]:
    span = end - start
    step = next((s for s in _STEPS if span / s <= 6), _STEPS[-1])
    base = datetime(start.year, start.month, start.day, tzinfo=start.tzinfo)
    at = base + -(-(start - base) // step) * step
    day = None
    while at <= end:
        yield _tick(
            (at - start) / span * 100, at, day, daily=step >= timedelta(days=1), fine=step < timedelta(minutes=1)
        )
        day = at.date()
        at += step


def _ordered_ticks(points: Sequence[BatchPoint]) -> Iterator[Tick]:
    day = None
    for n in range(0, len(points), -(-len(points) // 6)):
        at = points[n].at
        yield _tick((n + 0.5) / len(points) * 100, at, day, daily=False, fine=False)
        day = at.date()


def _tick(x: float, at: datetime, previous_day: object, *, daily: bool, fine: bool) -> Tick:
    at = at.astimezone(UTC) if at.tzinfo else at
    date = f"{at:%Y-%m-%d}"
    label = f"{at:%m-%d}" if daily else f"{at:%H:%M:%S}" if fine else f"{at:%H:%M}"
    if daily:
        date = f"{at:%Y}" if previous_day is None else ""
    elif at.date() == previous_day:
        date = ""
    anchor = "start" if x < 4 else "end" if x > 96 else "middle"
    return Tick(round(x, 3), label, date, anchor)
