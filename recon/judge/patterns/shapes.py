"""What groups of findings have in common. A shape is named only where it holds for each offset that it speaks of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from recon.base.text import plural, some
from recon.judge.findings import NOT_LISTED
from recon.judge.patterns.facts import Facts, MicroBatch, Number, Place
from recon.judge.patterns.groups import Group, is_counted, united
from recon.judge.patterns.stretches import LEAST, Stretch, stretches
from recon.model import Code
from recon.model.grouping import grouped
from recon.model.incident import Shape
from recon.model.offsets import Spans
from recon.model.positions import partition_name

_PLACES = 3  # topic partitions that a sentence names
_OF_MANY: Sequence[Shape] = ("every_nth", "part_of_each")  # what thousands of findings may have in common
_FEW = 3  # micro-batches of which a part is missing: fewer may be a coincidence


class Common(NamedTuple):
    """What some groups have in common; `groups` are their places in the list that was given."""

    groups: Sequence[int]
    shape: Shape
    says: str
    epoch: int | None = None


Finder = Callable[[Sequence[tuple[int, Group]], Facts], Iterator[Common]]


def in_common(groups: Sequence[Group], facts: Facts) -> list[Common]:
    """What groups have in common; each group is in one answer at most."""
    found: list[Common] = []
    for alike in grouped(((g.state, g.harm, g.kind), (at, g)) for at, g in enumerate(groups)).values():
        left = alike
        for finder in _FINDERS:
            for common in list(finder(left, facts)):
                found.append(common)
                left = [(at, group) for at, group in left if at not in common.groups]
        of_many = [common for common in found if common.shape in _OF_MANY and common.groups[0] in dict(alike)]
        if len(of_many) == 1:
            found[found.index(of_many[0])] = _with_unlisted(of_many[0], left)
    return found


def _with_unlisted(common: Common, left: Sequence[tuple[int, Group]]) -> Common:
    """With the findings that a check only counts, because there are so many; nothing is said of their offsets."""
    unlisted = [at for at, group in left if all((f.about or "").startswith(NOT_LISTED) for f in group.findings)]
    says = f"{common.says}; of further findings that are not listed nothing is said" if unlisted else common.says
    return common._replace(groups=[*common.groups, *unlisted], says=says)


# -- a new epoch ------------------------------------------------------------------------------------------------------


def _read_again(groups: Sequence[tuple[int, Group]], facts: Facts) -> Iterator[Common]:
    """Offsets that a new epoch read, though an earlier one had read them."""
    by_epoch: dict[int, list[tuple[int, Group]]] = {}
    for at, group in groups:
        epochs = {f.epoch for f in group.findings if f.code is Code.OVERLAP}
        epoch = epochs.pop() if len(epochs) == 1 else None
        if epoch is not None and epoch > 0 and group.is_exact and _held_before(group, epoch, facts):
            by_epoch.setdefault(epoch, []).append((at, group))
    for epoch, members in by_epoch.items():
        offsets = united([group for _, group in members])
        starts = {place: spans.ranges[0].start for place, spans in offsets.items()}
        began = facts.epochs.get(epoch)
        first = f", which began with micro-batch {began.first}," if began is not None else ""
        where = _beginning(starts, facts)
        says = f"epoch {epoch}{first} read again what epochs before it had read, {where}{_of(offsets)}"
        yield Common([at for at, _ in members], "read_again", says, epoch)


def _held_before(group: Group, epoch: int, facts: Facts) -> bool:
    """Whether earlier epochs read the offsets of a group: their entries show it, or its first micro-batch met them."""
    before = [batch for batch in facts.readers(group.offsets) if batch.number[0] < epoch]
    if _is_within(group.offsets, before):
        return True
    began = facts.epochs.get(epoch)
    first = began.first if began is not None else 0
    return all(f.batch_id == first for f in group.findings if f.code is Code.OVERLAP)


def _beginning(starts: Mapping[Place, int], facts: Facts) -> str:
    if all(start == 0 for start in starts.values()):
        return "from offset 0 on: "
    if all(start == facts.log_starts.get(place) for place, start in starts.items()):
        return "from the first offset that Kafka has: "
    return ""


def _passed_over(groups: Sequence[tuple[int, Group]], facts: Facts) -> Iterator[Common]:
    """Offsets between the end of an epoch and the beginning of the next one."""
    for at, group in groups:
        epochs = {number[0] for number in group.numbers}
        epoch = min(epochs, default=0)
        began = facts.epochs.get(epoch)
        if not group.unread or not group.is_exact or len(epochs) != 1 or epoch == 0 or began is None:
            continue
        first = [b for b in _first_of(facts, (epoch, began.first), group) if b.number == (epoch, began.first)]
        if first and all(
            place in first[0].read and spans.ranges[-1].end == first[0].read[place].start
            for place, spans in group.offsets.items()
        ):
            says = (
                f"epoch {epoch} began with micro-batch {began.first} behind the end of the epoch before it, and "
                f"nothing read what lies between: {_of(group.offsets)}"
            )
            yield Common([at], "passed_over", says, epoch)


def _first_of(facts: Facts, number: Number, group: Group) -> Sequence[MicroBatch]:
    """The micro-batches that begin where the offsets of a group end."""
    behind = {p: Spans.of([(s.ranges[-1].end, s.ranges[-1].end + 1)]) for p, s in group.offsets.items()}
    return [batch for batch in facts.readers(behind) if batch.number == number]


# -- Kafka's log ------------------------------------------------------------------------------------------------------


def _before_log_start(groups: Sequence[tuple[int, Group]], facts: Facts) -> Iterator[Common]:
    """Offsets that Kafka deleted unread: its log begins behind them now."""
    for at, group in groups:
        starts = {place: facts.log_starts.get(place, -1) for place in group.offsets}
        ends = {place: spans.ranges[-1].end for place, spans in group.offsets.items()}
        if group.harm == "lost" and group.is_exact and all(ends[place] <= starts[place] for place in ends):
            now = some([f"{partition_name(*place)} at {start:,}" for place, start in sorted(starts.items())], _PLACES)
            says = f"Kafka's log now begins at or behind the end of each range ({now}): {_of(group.offsets)}"
            yield Common([at], "before_log_start", says)


# -- within micro-batches ---------------------------------------------------------------------------------------------


def _every_nth(groups: Sequence[tuple[int, Group]], facts: Facts) -> Iterator[Common]:
    """Offsets that repeat with a period."""
    exact = [(at, group) for at, group in groups if group.is_exact and group.harm != "removed"]
    for members in (exact, _in_step(exact)):
        offsets = united([group for _, group in members])
        found = {place: stretches(spans) for place, spans in offsets.items()}
        if found and all(found.values()):
            numbers = frozenset(number for _, group in members for number in group.numbers)
            count = sum(spans.size for spans in offsets.values())
            within = f" in {plural(len(numbers), 'micro-batch')}" if numbers else ""
            yield Common(
                [at for at, _ in members], "every_nth", f"{plural(count, 'offset')}{within}: {_stretches(found)}"
            )
            return


def _in_step(groups: Sequence[tuple[int, Group]]) -> Sequence[tuple[int, Group]]:
    """The groups whose ranges have the distance and the size that most have, where others have not."""
    ranges = [spans.ranges for _, group in groups for spans in group.offsets.values()]
    steps = Counter((b.start - a.start, a.size) for spans in ranges for a, b in pairwise(spans))
    (period, size), times = next(iter(steps.most_common(1)), ((0, 0), 0))
    if times < LEAST:
        return ()
    starts = Counter(
        (place, span.start % period) for _, g in groups for place, spans in g.offsets.items() for span in spans
    )
    usual: dict[Place, int] = {}
    for (place, residue), _ in starts.most_common():
        usual.setdefault(place, residue)
    return [
        (at, group)
        for at, group in groups
        if all(
            span.size == size and span.start % period == usual[place]
            for place, spans in group.offsets.items()
            for span in spans
        )
    ]


def _stretches(found: Mapping[Place, Sequence[Stretch]]) -> str:
    if len(found) > _PLACES and len(rules := {s.rule for each in found.values() for s in each}) == 1:
        return f"{rules.pop()} of {len(found)} topic partitions, in {plural(sum(map(len, found.values())), 'stretch')}"
    told = []
    for place, each in sorted(found.items()):
        by_rule = grouped((stretch.rule, f"from {stretch.first:,} to {stretch.last:,}") for stretch in each)
        each_rule = [f"{rule} {some(where, _PLACES)}" for rule, where in by_rule.items()]
        told.append(f"{' and '.join(each_rule)} of {partition_name(*place)}")
    return some(told, _PLACES)


class _Share(NamedTuple):
    """How many offsets of a micro-batch are harmed, of how many that it read; None where that is not known."""

    harmed: int
    read: int | None


def _part_of_each(groups: Sequence[tuple[int, Group]], facts: Facts) -> Iterator[Common]:
    """A part of each of several micro-batches."""
    by_epoch: dict[int, dict[int, Mapping[Number, _Share]]] = {}
    for at, group in groups:
        mine = _shares(group, facts) if group.harm in ("missing", "twice", "undecided") and not group.unread else {}
        epochs = {epoch for epoch, _ in mine}
        if len(epochs) == 1:
            by_epoch.setdefault(epochs.pop(), {})[at] = mine
    for epoch, of_group in by_epoch.items():
        shares = {batch_id: share for each in of_group.values() for (_, batch_id), share in each.items()}
        first, last = min(shares), max(shares)
        ran = last - first + 1
        if len(shares) >= _FEW and 2 * len(shares) >= ran:
            which = "each" if len(shares) == ran else f"{len(shares):,}"
            says = f"of {which} of the {ran:,} micro-batches {first} to {last} (epoch {epoch}) a part{_sizes(shares)}"
            yield Common(list(of_group), "part_of_each", says, epoch)


def _sizes(shares: Mapping[int, _Share]) -> str:
    known = [(share.harmed, share.read) for share in shares.values() if share.read is not None]
    if len(known) < len(shares):
        return ""
    if len(set(known)) == 1:
        return f": {known[0][0]:,} of {known[0][1]:,} offsets each"
    percent = sorted(100 * harmed / read for harmed, read in known)
    low, high = f"{percent[0]:.0f}", f"{percent[-1]:.0f}"
    return f": {low} % of its offsets" if low == high else f": {low} to {high} % of its offsets"


def _shares(group: Group, facts: Facts) -> Mapping[Number, _Share]:
    """What is harmed of each micro-batch of a group; nothing where it is not shown that something is left of each."""
    found: dict[Number, _Share] = {}
    read = {batch.number: batch.size for batch in facts.readers(_named(group))}
    for number, told in grouped(((f.epoch or 0, f.batch_id), (f, check)) for f, check in group.told).items():
        epoch, batch_id = number
        counted = [f for f, _ in told if is_counted(f)]
        of_batch = Group(group.harm, group.kind, group.state, told)
        if batch_id is None or (not of_batch.is_exact and (len(told) > 1 or not counted)):
            return {}
        whole = read.get((epoch, batch_id))
        if counted:
            span = counted[0].span
            whole = whole if whole is not None else span.size if span is not None else None
            harmed, has_more = counted[0].rows or 0, False
        else:
            harmed = sum(spans.size for spans in of_batch.offsets.values())
            has_more = any(len(spans.ranges) > 1 for spans in of_batch.offsets.values())
        if not harmed or not (has_more if whole is None else harmed < whole):
            return {}
        found[epoch, batch_id] = _Share(harmed, whole)
    return found


def _named(group: Group) -> Mapping[Place, Spans]:
    """All offsets that findings of a group name, of which they count rows, too."""
    named = [(f.topic or "", f.partition or 0, f.span) for f in group.findings if f.topic and f.span is not None]
    return {place: Spans.of(spans) for place, spans in grouped(((t, p), s) for t, p, s in named).items()}


def _whole(groups: Sequence[tuple[int, Group]], facts: Facts) -> Iterator[Common]:
    """All that micro-batches read, or all that they read of some topic partitions."""
    for at, group in groups:
        if not group.is_exact or group.harm == "removed" or group.unread:
            continue
        offsets, readers = group.offsets, facts.readers(group.offsets)
        if not readers or not _is_within(offsets, readers):
            continue
        harmed = {frozenset(place for place in batch.read if place in offsets) for batch in readers}
        if not all(_has_all_of(offsets, batch) for batch in readers) or len(harmed) != 1:
            continue
        places = harmed.pop()
        named = _numbers([batch.number for batch in readers])
        if all(places == frozenset(batch.read) for batch in readers):
            yield Common([at], "whole_micro_batches", f"all that {named} read: {_of(offsets)}")
        elif all(len(batch.read) > len(places) for batch in readers):
            only = some([partition_name(*place) for place in sorted(places)], _PLACES)
            others = max(len(batch.read) - len(places) for batch in readers)
            says = f"{only} only, of which it is all that {named} read; of {plural(others, 'other partition')} nothing"
            yield Common([at], "one_partition", says)


def _is_within(offsets: Mapping[Place, Spans], readers: Sequence[MicroBatch]) -> bool:
    """Whether these micro-batches read all of some offsets."""
    read = grouped((place, span) for batch in readers for place, span in batch.read.items())
    return not any(spans.minus(Spans.of(read.get(place, ()))) for place, spans in offsets.items())


def _has_all_of(offsets: Mapping[Place, Spans], batch: MicroBatch) -> bool:
    """Whether some offsets hold all that a micro-batch read, of each topic partition where they hold any."""
    return not any(Spans((span,)).minus(offsets[place]) for place, span in batch.read.items() if place in offsets)


# -- words ------------------------------------------------------------------------------------------------------------


def _of(offsets: Mapping[Place, Spans]) -> str:
    """Offsets by topic partition, as far as a sentence has room.

    >>> _of({("orders", 0): Spans.of([(0, 100)]), ("orders", 1): Spans.of([(0, 50), (60, 70)])})
    'orders-0 [0, 100), orders-1 [0, 50) and 1 more range'
    """
    told = []
    for place, spans in sorted(offsets.items()):
        more = f" and {plural(len(spans.ranges) - 1, 'more range')}" if len(spans.ranges) > 1 else ""
        told.append(f"{partition_name(*place)} [{spans.ranges[0].start}, {spans.ranges[0].end}){more}")
    return some(told, _PLACES)


def _numbers(numbers: Sequence[Number]) -> str:
    """Micro-batches in a sentence.

    >>> _numbers([(0, 3), (0, 4), (0, 5)]), _numbers([(1, 0)])
    ('micro-batches 3 to 5 (epoch 0)', 'micro-batch 0 (epoch 1)')
    """
    told = []
    for epoch, ids in grouped(sorted(numbers)).items():
        runs = [f"{a}" if b - a == 1 else f"{a} to {b - 1}" for a, b in Spans.of_offsets(ids)]
        told.append(f"{'micro-batch' if len(set(ids)) == 1 else 'micro-batches'} {some(runs, _PLACES)} (epoch {epoch})")
    return " and ".join(told)


_FINDERS: Sequence[Finder] = (_read_again, _before_log_start, _passed_over, _every_nth, _part_of_each, _whole)
