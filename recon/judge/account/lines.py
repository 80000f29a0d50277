"""The account of one sink: every offset that its stream went past, in one line, with what became of it.

The ranges of the ledger are cut up by what is known of them: offset by offset where rows were read, or where counts
prove a micro-batch that left nothing out; else by numbers per micro-batch (`counts`). Which of the two, `_exact` says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from recon.base.lazy import np
from recon.judge.account.by_count import Share, shares
from recon.judge.account.doubled import doubled
from recon.judge.account.missing import accepted_offsets, without_row
from recon.judge.account.never_read import never_read
from recon.judge.account.standing import Standing, standing
from recon.judge.case import SinkCase
from recon.judge.coverage import Coverage, Key, Stretch, TopicIncarnation
from recon.judge.kafka.topic_ids import is_of
from recon.judge.row_counts import Counts, Piece
from recon.judge.rows.of_sink import CHECK, RowEvidence, source_counts
from recon.judge.rows.reasons import added_by_others
from recon.judge.rows.sink_rows import SinkRows
from recon.judge.source import Source
from recon.model import Finding, Witnesses
from recon.model.account import CLASSES, KNOWN, AccountLine, HowKnown, OffsetClass, SinkAccount, Write
from recon.model.grouping import grouped
from recon.model.offsets import GrowingSpans, Span, Spans
from recon.model.positions import is_kafka
from recon.model.proof import OpenFinding, SinkProof

if TYPE_CHECKING:
    import numpy.typing as npt

    Ints = npt.NDArray[np.int64]
    Bools = npt.NDArray[np.bool_]

Topic = tuple[int, str, str | None]  # source, name, id

_IN_A_ROW = CLASSES.index(OffsetClass.IN_A_ROW)
_COUNTED, _SPARK = KNOWN.index(HowKnown.COUNTED), KNOWN.index(HowKnown.SPARK)
_ROWS, _FILES = KNOWN.index(HowKnown.ROWS), KNOWN.index(HowKnown.FILES)


def account_of(witnesses: Witnesses) -> SinkAccount | None:
    """The account of the judged sink, for the judged entries of its ledger; None where it has none that read Kafka.

    Args:
        witnesses: of the sink, with the rows and Kafka's answers that the audit read. What was not read is not known.
    """
    case = SinkCase(witnesses)
    return _account(case, *_first_readings(case.counts)) if case.entered.heads else None


def _account(case: SinkCase, topics: Sequence[Topic], ranges: _Ranges) -> SinkAccount | None:
    """The account of what was read of some topics; None for none."""
    if not topics:
        return None
    counts, ledger, evidence = case.counts, case.ledger, RowEvidence.of(case)
    rows = None if case.judged_by_counts or evidence.looks_for_repeated_alone else evidence.sink
    counted, by_rows = _exact(counts, topics, ranges, rows)
    how = _FILES if rows is None or rows.rows.of is not None else _ROWS  # of some micro-batches their files were read
    found = [
        *_cut(ranges.take(counted), _gone(case, topics), _COUNTED),
        *_cut(ranges.take(by_rows), _without_row(rows, topics), how),
        *_by_count(case, ranges.take(~(counted | by_rows))),
    ]
    numbers = {topic: number for number, topic in enumerate(topics)}
    unread = list(_unread(case, numbers, rows))
    twice, unclear = doubled(counts, case.table, rows)
    account = SinkAccount(
        ledger.pipeline,
        ledger.sink,
        list(numbers),
        [Write(head.epoch, head.batch_id, head.sink_version) for head in ledger.heads],
        **_joined([*found, _columns(unread)]),
        partitions=sorted(where for where in counts.judged if is_kafka(where[0])),
        doubled=twice,
        doubts=unclear,
    )
    account = _accepted(_doubted(account, standing(case)), case.proof, counts)
    return _unnamed(_by_the_log(account, counts), counts, case.source)


def _unread(case: SinkCase, numbers: dict[Topic, int], rows: SinkRows | None) -> Iterator[AccountLine]:
    """What no micro-batch read; `numbers` gets the topics of which none read anything."""
    read, seen = list(numbers), dict[tuple[Key, str | None], GrowingSpans]()
    # Rows without a _batch_id do not say what they are of; and of a commit that is gone nobody knows what it wrote.
    lost = not added_by_others(case) and _shows_all(case)
    for skipped in never_read(case.counts.covered, case.source, case.proof, lost=lost, observed=case.observed):
        topic, topic_id = skipped.key.topic, skipped.incarnation.topic_id
        # A log that got shorter has an offset twice: it counts once, as it was read first.
        new = seen.setdefault((skipped.key, topic_id), GrowingSpans()).add(*skipped.span)
        spans = Spans(tuple(new)).minus(skipped.incarnation.walked.covered)
        # Another program, or a write without an entry, may have brought rows of them.
        alone = [known for known in read if known[1] == topic] == [(skipped.key.source, topic, topic_id)]
        known = rows.present if rows is not None and alone else {}
        present = known.get((topic, skipped.key.partition), Spans())
        number = numbers.setdefault((skipped.key.source, topic, topic_id), len(numbers))
        found = [(span, OffsetClass.IN_A_ROW, HowKnown.ROWS) for span in spans.intersect(present)]
        found += [(span, skipped.offset_class, skipped.how) for span in spans.minus(present)]
        for span, offset_class, how in found:
            yield AccountLine(number, skipped.key.partition, *span, span.size, offset_class, how, -1)


def _shows_all(case: SinkCase) -> bool:
    """Whether the table's log, where it has one, has every commit since the last one that earlier audits judged."""
    table, ledger = case.table, case.ledger
    before = [head.sink_version + 1 for head in ledger.heads[: ledger.anchors] if head.sink_version is not None]
    judged = [head.sink_version for head in ledger.heads[ledger.anchors :] if head.sink_version is not None]
    first = max(before, default=min(judged, default=None))
    return table is None or first is None or min(table.log.commits, default=first) <= first


# -- what was read, each offset once ---------------------------------------------------------------------------------


class _Ranges(NamedTuple):
    """Ranges in columns; no offset is in two of them."""

    topic: Ints
    partition: Ints
    start: Ints
    end: Ints
    entry: Ints

    def take(self, which: Bools | Ints) -> _Ranges:
        if which.dtype == np.bool_ and which.all():
            return self  # most days all of them are wanted, and there are millions
        return _Ranges(*(column[which] for column in self))


def _first_readings(counts: Counts) -> tuple[list[Topic], _Ranges]:
    """What judged entries read of Kafka before any other did, range by range, and the topics that `topic` indexes."""
    covered, numbers = counts.covered, dict[Topic, int]()
    parts: list[_Ranges] = []
    for key, incarnations in covered.incarnations.items():
        for incarnation in incarnations if is_kafka(key.topic) else ():
            read = list(_readings(covered, incarnation))
            if not read:
                continue
            starts, ends, entries = (np.concatenate(columns) for columns in zip(*read, strict=True))
            topic = numbers.setdefault((key.source, key.topic, incarnation.topic_id), len(numbers))
            topics, partitions = (np.full(len(starts), number, np.int64) for number in (topic, key.partition))
            parts.append(_Ranges(topics, partitions, starts, ends, entries))
    empty = _Ranges(*(np.zeros(0, np.int64) for _ in _Ranges._fields))
    return list(numbers), _Ranges(*(np.concatenate(columns) for columns in zip(empty, *parts, strict=True)))


def _readings(covered: Coverage, incarnation: TopicIncarnation) -> Iterator[tuple[Ints, Ints, Ints]]:
    """(starts, ends, entries) of what the judged stretches of a topic partition read before any other did."""
    seen = GrowingSpans()
    for stretch in incarnation.stretches:
        if stretch.first < incarnation.anchors:
            seen.add(0, max(stretch.end, 0))  # what is below it is the business of earlier audits
        elif stretch.end > stretch.start:
            new = list(seen.add(stretch.start, stretch.end))
            if covered.judged(stretch.first) and new:
                yield _ranges_of(covered, stretch, new)


def _ranges_of(covered: Coverage, stretch: Stretch, new: Sequence[Span]) -> tuple[Ints, Ints, Ints]:
    """The ranges of a stretch, as far as they lie in what is new."""
    low, high = stretch.rows
    ends, entries = (of[low:high].astype(np.int64, copy=False) for of in (covered.ends, covered.entries))
    starts = np.concatenate(([stretch.start], ends[:-1]))
    if new != [(stretch.start, stretch.end)]:
        starts, ends, entries = _within(starts, ends, entries, new)
    kept = ends > starts
    return starts[kept], ends[kept], entries[kept]


def _within(starts: Ints, ends: Ints, entries: Ints, spans: Iterable[tuple[int, int]]) -> tuple[Ints, Ints, Ints]:
    """The parts of ascending ranges that lie in some spans."""
    found = []
    for start, end in spans:
        low, high = int(np.searchsorted(ends, start, side="right")), int(np.searchsorted(starts, end))
        found.append((np.maximum(starts[low:high], start), np.minimum(ends[low:high], end), entries[low:high]))
    starts, ends, entries = (np.concatenate(columns) for columns in zip(*found, strict=True))
    return starts, ends, entries


# -- which of them are known offset by offset ------------------------------------------------------------------------


def _exact(counts: Counts, topics: Sequence[Topic], ranges: _Ranges, rows: SinkRows | None) -> tuple[Bools, Bools]:
    """Which ranges are in rows whole, by the counts of the write, and of which the rows were looked for."""
    heads = counts.covered.slice.heads
    whole, looked_for = np.zeros(len(heads), np.bool_), np.zeros(len(heads), np.bool_)
    for entry in counts.counted:
        whole[entry] = counts.is_whole(entry)
        if rows is not None and (rows.writing.observed or not heads[entry].is_observed):
            of = rows.rows.of
            looked_for[entry] = of is None or (heads[entry].epoch, heads[entry].batch_id) in of
    by_rows = looked_for[ranges.entry] & ~_shared(topics, ranges)
    return whole[ranges.entry] & ~by_rows, by_rows


def _shared(topics: Sequence[Topic], ranges: _Ranges) -> Bools:
    """Which micro-batches read offsets that another topic of the name has, too, or another source read.

    Rows carry neither the topic's id nor the source: they do not tell whose they are.
    """
    names, shared = [name for _, name, _ in topics], np.zeros(len(ranges.start), np.bool_)
    for name in {name for name in names if names.count(name) > 1}:
        several = np.isin(ranges.topic, [at for at, of in enumerate(names) if of == name])
        for partition in np.unique(ranges.partition[several]).tolist():
            mine = several & (ranges.partition == partition)
            end = [ranges.end[mine & (ranges.topic == at)].max(initial=0) for at in np.unique(ranges.topic[mine])]
            shared |= mine & (ranges.start < sorted([0, *end])[-2])
    return np.isin(ranges.entry, ranges.entry[shared])


_Known = Mapping[tuple[int, int], Sequence[tuple[Span, OffsetClass, HowKnown]]]  # by topic and partition


def _without_row(rows: SinkRows | None, topics: Sequence[Topic]) -> _Known:
    """What is known of offsets without a row."""
    if rows is None:
        return {}
    number, known = {topic: at for at, topic in enumerate(topics)}, []
    for piece, offset_class, how, _ in without_row(rows):
        read_of = rows.counts.covered.incarnation_of(piece.key, piece.entry, piece.start)
        at = number.get((*piece.key[:2], read_of.topic_id if read_of is not None else None))
        if at is not None:
            known.append(((at, piece.key.partition), (Span(piece.start, piece.end), offset_class, how)))
    return grouped(known)


def _is_remembered(open_: OpenFinding) -> bool:
    """Whether an earlier audit found offsets without a row, and nobody answered; counts do not bring them back."""
    return open_.check == CHECK and open_.is_loss


def _gone(case: SinkCase, topics: Sequence[Topic]) -> _Known:
    """The offsets that had a row by the counts of the write, and whose rows are known to be gone since.

    Where others added rows, one of theirs may be of an offset whose own row was deleted as declared.
    """
    found = dict(_of_findings(case.proof, topics, _is_remembered, case.counts))
    names = [name for _, name, _ in topics]
    known = (OffsetClass.REMOVED, HowKnown.DECLARED)
    known = (OffsetClass.NOT_KNOWN, HowKnown.NOTHING) if added_by_others(case) else known
    for (topic, partition), spans in case.table.as_declared.items() if case.table is not None else ():
        if names.count(topic) == 1:
            place = (names.index(topic), partition)
            found[place] = [*((span, *known) for span in spans), *found.get(place, ())]
    return found


def _of_findings(
    proof: SinkProof | None,
    topics: Sequence[Topic],
    wanted: Callable[[OpenFinding], bool],
    counts: Counts | None = None,
) -> _Known:
    """The offsets of some findings of earlier audits, as lost or removed since; but those that were written again."""
    known = []
    for open_ in filter(wanted, proof.open if proof is not None else ()):
        found = open_.finding
        of_topics = [at for at, (_, name, topic_id) in enumerate(topics) if is_of(found, name, topic_id)]
        known += [((at, found.partition or 0), part) for part in _known_of(found, proof, counts) for at in of_topics]
    return grouped(known)


def _known_of(
    found: Finding, proof: SinkProof | None, counts: Counts | None
) -> Iterator[tuple[Span, OffsetClass, HowKnown]]:
    if found.span is None or found.partition is None:
        return
    of_class = OffsetClass.LOST if found.changed_by is None else OffsetClass.REMOVED
    read, written = _read_since(proof, counts, found) if proof and counts else (Spans(), Spans())
    yield from ((part, of_class, HowKnown.REMEMBERED) for part in Spans.of([found.span]).minus(read))
    yield from ((part, OffsetClass.NOT_KNOWN, HowKnown.NOTHING) for part in read.minus(written))


def _read_since(proof: SinkProof, counts: Counts, found: Finding) -> tuple[Spans, Spans]:
    """The offsets of a finding that a repair, or a micro-batch after it, read; and those of which each has a row."""
    stretches = counts.judged.get((found.topic or "", found.partition or 0))
    if stretches is None or found.span is None:
        return Spans(), Spans()
    later = [p for p in stretches.readings(Spans.of([found.span])) if _is_after(proof, counts, found, p)]
    whole = [piece for piece in later if counts.is_whole(piece.entry)]
    return _offsets(later), _offsets(whole)


def _offsets(pieces: Iterable[Piece]) -> Spans:
    return Spans.of((piece.start, piece.end) for piece in pieces)


def _is_after(proof: SinkProof, counts: Counts, found: Finding, piece: Piece) -> bool:
    """Whether an entry was written after what a finding tells of."""
    head, changed = counts.ledger.heads[piece.entry], max(found.changed_by or (0,))
    later = (head.sink_version or 0) > changed if changed else head.sequence > proof.position
    return later or head.is_repair


def _cut(ranges: _Ranges, known: _Known, how: int) -> Iterator[_Columns]:
    """Ranges that are in rows, `how` says so, but for what is known otherwise."""
    touched = np.zeros(len(ranges.start), np.bool_)
    for (topic, partition), several in known.items():
        mine = (ranges.topic == topic) & (ranges.partition == partition)
        if mine.any():
            touched |= mine
            yield _cut_of_partition(ranges.take(mine), several, how)
    yield _whole(ranges.take(~touched), _IN_A_ROW, how)


def _cut_of_partition(ranges: _Ranges, known: Sequence[tuple[Span, OffsetClass, HowKnown]], how: int) -> _Columns:
    ranges = ranges.take(np.argsort(ranges.start, kind="stable"))
    seen = GrowingSpans()  # where two meet, the first one's class counts
    parts = ((new, of_class, known_by) for span, of_class, known_by in known for new in seen.add(*span))
    pieces = sorted(parts, key=lambda piece: piece[0])
    starts = np.array([span.start for span, *_ in pieces], np.int64)
    ends = np.array([span.end for span, *_ in pieces], np.int64)
    points = np.unique(np.concatenate((ranges.start, ranges.end, starts, ends)))
    low, high = points[:-1], points[1:]
    of = np.searchsorted(ranges.start, low, side="right") - 1
    kept = (of >= 0) & (low < ranges.end[of])
    low, high, of = low[kept], high[kept], of[kept]
    piece = np.searchsorted(starts, low, side="right") - 1
    lacks = (piece >= 0) & (low < ends[piece])
    classes = np.array([CLASSES.index(of_class) for _, of_class, _ in pieces], np.int8)
    hows = np.array([KNOWN.index(known_by) for *_, known_by in pieces], np.int8)
    of_class = np.where(lacks, classes[piece], _IN_A_ROW).astype(np.int8)
    known_by = np.where(lacks, hows[piece], how).astype(np.int8)
    places = (ranges.topic[of], ranges.partition[of])
    return _Columns(*places, low, high, high - low, of_class, known_by, ranges.entry[of])


# -- by numbers per micro-batch ---------------------------------------------------------------------------------------


def _by_count(case: SinkCase, ranges: _Ranges) -> Iterator[_Columns]:
    """Lines of micro-batches of which numbers are known; a micro-batch of one class keeps its ranges."""
    against = source_counts(case, case.source)
    order = np.argsort(ranges.entry, kind="stable")
    ranges = ranges.take(order)
    firsts = np.flatnonzero(np.append(True, ranges.entry[1:] != ranges.entry[:-1])[: len(ranges.entry)])
    sizes = np.add.reduceat(ranges.end - ranges.start, firsts).tolist() if len(firsts) else []
    lines: list[AccountLine] = []
    single: dict[int, Share] = {}
    for entry, size in zip(ranges.entry[firsts].tolist(), sizes, strict=True):
        found = list(shares(against, entry, size, rewrites=case.rewrites))
        assert sum(share.offsets for share in found) == size, "the classes of a micro-batch add up to its offsets"
        if len(found) == 1:
            single[entry] = found[0]
        else:
            lines += [AccountLine(-1, -1, -1, -1, s.offsets, s.offset_class, s.how, entry) for s in found]
    yield _columns(lines)
    if single:
        mine = ranges.take(np.isin(ranges.entry, list(single)))
        heads = len(case.ledger.heads)
        of, how = np.zeros(heads, np.int8), np.zeros(heads, np.int8)
        for entry, share in single.items():
            of[entry], how[entry] = CLASSES.index(share.offset_class), KNOWN.index(share.how)
        yield _Columns(*mine[:4], mine.end - mine.start, of[mine.entry], how[mine.entry], mine.entry)


# -- columns ---------------------------------------------------------------------------------------------------------


class _Columns(NamedTuple):
    """The columns of `SinkAccount`."""

    topic: Ints
    partition: Ints
    start: Ints
    end: Ints
    offsets: Ints
    offset_class: npt.NDArray[np.int8]
    how: npt.NDArray[np.int8]
    entry: Ints


def _whole(ranges: _Ranges, offset_class: int, how: int) -> _Columns:
    size = len(ranges.start)
    of_class, known = np.full(size, offset_class, np.int8), np.full(size, how, np.int8)
    return _Columns(*ranges[:4], ranges.end - ranges.start, of_class, known, ranges.entry)


def _columns(lines: Sequence[AccountLine]) -> _Columns:
    topic, partition, start, end, offsets = np.array([line[:5] for line in lines], np.int64).reshape(-1, 5).T
    return _Columns(
        *(topic, partition, start, end, offsets),
        np.array([CLASSES.index(line.offset_class) for line in lines], np.int8),
        np.array([KNOWN.index(line.how) for line in lines], np.int8),
        np.array([line.entry for line in lines], np.int64),
    )


def _joined(several: Sequence[_Columns]) -> dict[str, Any]:
    some = [columns for columns in several if len(columns.offsets)] or several[:1]
    return {name: np.concatenate(of) for name, of in zip(_Columns._fields, zip(*some, strict=True), strict=True)}


# -- what is said besides --------------------------------------------------------------------------------------------


def _doubted(account: SinkAccount, stands: Standing) -> SinkAccount:
    """The account without what was counted and may have been changed since: that is not known any more."""
    counted = (account.offset_class == _IN_A_ROW) & np.isin(account.how, (_COUNTED, _SPARK)) & (account.entry >= 0)
    counted &= stands.unknown[account.entry]
    if not counted.any():
        return account
    offset_class, how = account.offset_class.copy(), account.how.copy()
    offset_class[counted] = CLASSES.index(OffsetClass.NOT_KNOWN)
    how[counted] = KNOWN.index(HowKnown.NOTHING)
    return account.replace(offset_class=offset_class, how=how, doubts=[*stands.doubts, *account.doubts])


def _by_the_log(account: SinkAccount, counts: Counts) -> SinkAccount:
    """The account, where the sink's own log or record has the only count of a write: nothing was counted during it."""
    uncounted = np.array([head.is_uncounted for head in counts.covered.slice.heads], np.bool_)
    of_log = (account.how == _COUNTED) & (account.entry >= 0) & uncounted[account.entry]
    return account.replace(how=np.where(of_log, KNOWN.index(HowKnown.LOG), account.how).astype(np.int8))


def _unnamed(account: SinkAccount, counts: Counts, source: Source) -> SinkAccount:
    """The account without the id of a topic that was read while nobody knew it, and may be another topic's since."""
    covered, numbers, topic = counts.covered, {of: at for at, of in enumerate(account.topics)}, account.topic
    for key, incarnations in covered.incarnations.items():
        for incarnation in incarnations:
            named = numbers.get((key.source, key.topic, incarnation.topic_id))
            if named is None or not incarnation.unnamed_since or source.is_topic(key.topic, incarnation.topic_id):
                continue
            entries = np.concatenate([covered.entries[slice(*stretch.rows)] for stretch in incarnation.unnamed_since])
            mine = (account.topic == named) & (account.partition == key.partition) & np.isin(account.entry, entries)
            topic = np.where(mine, numbers.setdefault((key.source, key.topic, None), len(numbers)), topic)
    return account.replace(topic=topic, topics=list(numbers))


def _accepted(account: SinkAccount, proof: SinkProof | None, counts: Counts) -> SinkAccount:
    """The account with what somebody accepted: it stays what it is, and how it is known says so."""
    bad, how = np.isin(account.offset_class, [CLASSES.index(of) for of in _HARMED]), account.how.copy()
    how[bad & np.isin(account.entry, _accepted_whole(account, proof))] = KNOWN.index(HowKnown.ACCEPTED)
    known = _of_findings(proof, account.topics, _is_accepted)
    for (topic, partition), several in known.items():
        mine = bad & (account.topic == topic) & (account.partition == partition)
        for span, *_ in several:
            how[mine & (account.start >= span.start) & (account.end <= span.end)] = KNOWN.index(HowKnown.ACCEPTED)
    # Where a micro-batch has a number alone, what was accepted may be as many of its offsets.
    numbers = bad & (account.start < 0)
    for entry, offsets in accepted_offsets(proof, counts).items() if numbers.any() else ():
        mine = numbers & (account.entry == entry)
        if account.offsets[mine].sum() <= offsets:
            how[mine] = KNOWN.index(HowKnown.ACCEPTED)
    return account.replace(how=how)


def _accepted_whole(account: SinkAccount, proof: SinkProof | None) -> list[int]:
    """The entries of which all was accepted: a finding without offsets is about all of its micro-batch."""
    accepted = (open_.finding for open_ in (proof.open if proof else ()) if _is_accepted(open_))
    whole = {(finding.epoch, finding.batch_id) for finding in accepted if finding.span is None}
    return [entry for entry, write in enumerate(account.writes) if (write.epoch, write.batch_id) in whole]


def _is_accepted(open_: OpenFinding) -> bool:
    return open_.accepted is not None


_HARMED = (OffsetClass.DELETED, OffsetClass.REMOVED, OffsetClass.LOST, OffsetClass.NOT_KNOWN)
