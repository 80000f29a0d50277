"""What groups of findings have in common. A shape is named only where it holds for each offset that it speaks of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from recon.base.text import plural, some
from recon.judge.findings import NOT_LISTED
from recon.judge.patterns.facts import Facts, MicroBatch, Number, Place
from recon.judge.patterns.groups import Group, is_counted, number_of, united
from recon.judge.patterns.stretches import LEAST, Stretch, stretches
from recon.model import Code, Finding
from recon.model.grouping import grouped
from recon.model.incident import Shape
from recon.model.offsets import Span, Spans
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
    alike = grouped(((g.state, g.harm, g.kind), (at, g)) for at, g in enumerate(groups))
    return [common for members in alike.values() for common in _of_kind(members, facts)]


def _of_kind(groups: Sequence[tuple[int, Group]], facts: Facts) -> list[Common]:
    """The same of groups of one harm."""
    found: list[Common] = []
    left = groups
    for finder in _FINDERS:
        found += (news := list(finder(left, facts)))
        taken = {at for common in news for at in common.groups}
        left = [(at, group) for at, group in left if at not in taken]
    of_many = [common for common in found if common.shape in _OF_MANY]
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
    by_epoch = grouped((epoch, (at, group)) for at, group in groups for epoch in _reads_again(group, facts))
    for epoch, members in by_epoch.items():
        offsets = united([group for _, group in members])
        began = facts.epochs.get(epoch)
        first = f", which began with micro-batch {began.first}," if began is not None else ""
        says = f"epoch {epoch}{first} read again what epochs before it had read, {_from(offsets, facts)}{_of(offsets)}"
        yield Common([at for at, _ in members], "read_again", says, epoch)


def _reads_again(group: Group, facts: Facts) -> Iterator[int]:
    """The epoch that read the offsets of a group, though an earlier one had."""
    epochs = {f.epoch or 0 for f in group.findings if f.code is Code.OVERLAP}
    if len(epochs) == 1 and group.is_exact and 0 not in epochs:
        yield from (epoch for epoch in epochs if _held_before(group, epoch, facts))


def _held_before(group: Group, epoch: int, facts: Facts) -> bool:
    """Whether earlier epochs read the offsets of a group: their entries show it, or its first micro-batch met them."""
    before = [batch for batch in facts.readers(group.offsets) if batch.number[0] < epoch]
    if _is_within(group.offsets, before):
        return True
    began = facts.epochs.get(epoch)
    first = began.first if began is not None else 0
    return all(f.batch_id == first for f in group.findings if f.code is Code.OVERLAP)


def _from(offsets: Mapping[Place, Spans], facts: Facts) -> str:
    """Where offsets begin, in words; "" where there is nothing to say of it."""
    starts = {place: spans.ranges[0].start for place, spans in offsets.items()}
    if all(start == 0 for start in starts.values()):
        return "from offset 0 on: "
    if all(start == facts.log_starts.get(place) for place, start in starts.items()):
        return "from the first offset that Kafka has: "
    return ""


def _passed_over(groups: Sequence[tuple[int, Group]], facts: Facts) -> Iterator[Common]:
    """Offsets between the end of an epoch and the beginning of the next one."""
    for at, group in groups:
        epochs = {epoch for epoch, _ in group.numbers}
        epoch = min(epochs, default=0)
        is_of_one = epoch > 0 and len(epochs) == 1 and group.unread and group.is_exact
        ends = {place: spans.ranges[-1].end for place, spans in group.offsets.items()}
        if is_of_one and all(facts.begins(epoch, place) == end for place, end in ends.items()):
            says = f"epoch {epoch} began behind the end of the epoch before it, and nothing read what lies between: "
            yield Common([at], "passed_over", f"{says}{_of(group.offsets)}", epoch)


def _planned_again(groups: Sequence[tuple[int, Group]], facts: Facts) -> Iterator[Common]:
    """Offsets that a new checkpoint plans to read, though the ledger has them."""
    for at, group in groups:
        planned = {(finding.code, finding.epoch, check) for finding, check in group.told}
        if facts.new_query and group.is_exact and planned == {(Code.OVERLAP, None, "checkpoint_commits")}:
            says = "a new checkpoint plans to read again what the ledger has, "
            says += f"{_from(group.offsets, facts)}{_of(group.offsets)}"
            yield Common([at], "planned_again", says)


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
    """Offsets that repeat with a period: of all groups, or of those in step where others are not."""
    exact = [(at, group) for at, group in groups if group.is_exact and group.harm != "removed"]
    for members in (exact, _in_step(exact)):
        if says := _repeat([group for _, group in members]):
            yield Common([at for at, _ in members], "every_nth", says)
            return


def _repeat(groups: Sequence[Group]) -> str:
    """How the offsets of groups repeat; "" where they do not."""
    offsets = united(groups)
    found = {place: stretches(spans) for place, spans in offsets.items()}
    if not found or not all(found.values()):
        return ""
    numbers = frozenset(number for group in groups for number in group.numbers)
    count = sum(spans.size for spans in offsets.values())
    within = f" in {plural(len(numbers), 'micro-batch')}" if numbers else ""
    return f"{plural(count, 'offset')}{within}: {_stretches(found)}"


def _in_step(groups: Sequence[tuple[int, Group]]) -> Sequence[tuple[int, Group]]:
    """The groups whose ranges have the distance and the size that most have, where others have not."""
    period, size, times = _usual_step([group for _, group in groups])
    starts = Counter((place, span.start % period) for _, group in groups for place, span in _each(group))
    usual = dict(place for place, _ in reversed(starts.most_common()))

    def is_in_step(place: Place, span: Span) -> bool:
        return span.size == size and span.start % period == usual[place]

    found = [(at, group) for at, group in groups if all(is_in_step(*each) for each in _each(group))]
    return found if times >= LEAST else ()


def _usual_step(groups: Sequence[Group]) -> tuple[int, int, int]:
    """The distance of ranges, and their size, that occur most often, and how often."""
    ranges = [spans.ranges for group in groups for spans in group.offsets.values()]
    steps = Counter((b.start - a.start, a.size) for spans in ranges for a, b in pairwise(spans))
    (period, size), times = next(iter(steps.most_common(1)), ((1, 0), 0))
    return period, size, times


def _each(group: Group) -> Iterator[tuple[Place, Span]]:
    """The ranges of a group."""
    for place, spans in group.offsets.items():
        yield from ((place, span) for span in spans)


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
        mine = _shares(group, facts)
        epochs = {epoch for epoch, _ in mine}
        if len(epochs) == 1:
            by_epoch.setdefault(epochs.pop(), {})[at] = mine
    for epoch, of_group in by_epoch.items():
        if says := _most_have(epoch, list(of_group.values())):
            yield Common(list(of_group), "part_of_each", says, epoch)


def _most_have(epoch: int, shares_of_groups: Sequence[Mapping[Number, _Share]]) -> str:
    """Of which micro-batches a part is harmed; "" where these are few, or most of those between them are not."""
    shares = {batch_id: share for shares in shares_of_groups for (_, batch_id), share in shares.items()}
    first, last = min(shares), max(shares)
    ran = last - first + 1
    if len(shares) < _FEW or 2 * len(shares) < ran:
        return ""
    which = "each" if len(shares) == ran else f"{len(shares):,}"
    return f"of {which} of the {ran:,} micro-batches {first} to {last} (epoch {epoch}) a part{_sizes(shares)}"


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
    if group.unread or group.harm not in ("missing", "twice", "undecided"):
        return {}
    read = {batch.number: batch.size for batch in facts.readers(_named(group))}
    by_number = grouped((number_of(finding), (finding, check)) for finding, check in group.told)
    found: dict[Number, _Share] = {}
    for number, told in by_number.items():
        share = _share(replace(group, told=told), read.get(number)) if number is not None else None
        if number is None or share is None:
            return {}
        found[number] = share
    return found


def _share(of_batch: Group, read: int | None) -> _Share | None:
    """What is harmed of one micro-batch; None where it is not shown that something is left."""
    if of_batch.is_exact:
        harmed = sum(spans.size for spans in of_batch.offsets.values())
        has_holes = any(len(spans.ranges) > 1 for spans in of_batch.offsets.values())
        return _Share(harmed, read) if (has_holes if read is None else harmed < read) else None
    return _counted_share(of_batch.findings[0], read) if len(of_batch.findings) == 1 else None


def _counted_share(found: Finding, read: int | None) -> _Share | None:
    """The same of a finding that counts rows, and does not say which these are."""
    whole = read if read is not None else found.span.size if found.span is not None else 0
    is_part = is_counted(found) and 0 < (found.rows or 0) < whole
    return _Share(found.rows or 0, whole) if is_part else None


def _named(group: Group) -> Mapping[Place, Spans]:
    """All offsets that findings of a group name, of which they count rows, too."""
    named = [(f.topic or "", f.partition or 0, f.span) for f in group.findings if f.topic and f.span is not None]
    return {place: Spans.of(spans) for place, spans in grouped(((t, p), s) for t, p, s in named).items()}


def _whole(groups: Sequence[tuple[int, Group]], facts: Facts) -> Iterator[Common]:
    """All that micro-batches read, or all that they read of some topic partitions."""
    for at, group in groups:
        readers = facts.readers(group.offsets) if group.is_exact and group.harm != "removed" else ()
        places = {frozenset(place for place in batch.read if place in group.offsets) for batch in readers}
        if len(places) == 1 and _is_all_of(group.offsets, readers) and not group.unread:
            yield from _whole_of(at, group, readers, places.pop())


def _whole_of(at: int, group: Group, readers: Sequence[MicroBatch], places: frozenset[Place]) -> Iterator[Common]:
    """What is said of a group that has all that micro-batches read of some topic partitions."""
    named = _numbers([batch.number for batch in readers])
    if all(places == frozenset(batch.read) for batch in readers):
        yield Common([at], "whole_micro_batches", f"all that {named} read: {_of(group.offsets)}")
    elif all(len(batch.read) > len(places) for batch in readers):
        only = some([partition_name(*place) for place in sorted(places)], _PLACES)
        others = max(len(batch.read) - len(places) for batch in readers)
        says = f"{only} only, of which it is all that {named} read; of {plural(others, 'other partition')} nothing"
        yield Common([at], "one_partition", says)


def _is_all_of(offsets: Mapping[Place, Spans], readers: Sequence[MicroBatch]) -> bool:
    """Whether offsets are just what micro-batches read of their topic partitions."""
    return _is_within(offsets, readers) and all(_has_all_of(offsets, batch) for batch in readers)


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


_FINDERS: Sequence[Finder] = (
    _read_again,
    _planned_again,
    _before_log_start,
    _passed_over,
    _every_nth,
    _part_of_each,
    _whole,
)
