"""What became of every offset that micro-batches of the period read, as one sum that may fail to add up. No I/O."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from recon.audits.summary import evaluated
from recon.counts import sum_of
from recon.judge.coverage import coverage
from recon.judge.history.entries import entries_with_unrecorded_commits
from recon.judge.history.recon_commits import rows_in_files
from recon.judge.row_accounting import as_in_files
from recon.judge.second_calls import filtered_for_sure
from recon.lazy import np
from recon.model import CheckResult, HarmedRange, Incident, LedgerSlice, OffsetAccount, Witnesses, known
from recon.model.incident import Harm
from recon.model.offsets import Span, Spans
from recon.model.positions import is_kafka

_Place = tuple[str, str | None, int]


def offset_account(
    sink: str, witnesses: Witnesses, results: Sequence[CheckResult], incidents: Sequence[Incident]
) -> OffsetAccount | None:
    """The sum of one sink; None where no micro-batch of the period read anything.

    No term is derived from the others: offsets are the ranges of the ledger, rows those of the sink or the counts of
    commits, filtered rows were counted during the write, and Kafka said what has no record. What is lost is what checks
    name.
    """
    ledger = entries_with_unrecorded_commits(replace(witnesses, sink=sink))
    read = _read(ledger) if ledger is not None else {}
    if ledger is None or not read:
        return None
    why = _why_rows_do_not_count(sink, witnesses, ledger)
    evidence = _evidence(sink, results)
    explained, held = evidence.get("explained"), evidence.get("offsets_with_row")
    log = replace(witnesses, sink=sink).table_log
    written = list(_written(ledger, rows_in_files(log, ledger.pipeline, sink)))
    mine = [one for one in incidents if one.sink in (None, sink) and one.state != "repaired"]
    return OffsetAccount(
        offsets=sum(spans.size for spans in read.values()),
        rows=None if why else sum_of(one.rows for one in written) if held is None else held,
        filtered=None if sink in witnesses.routed else sum_of(one.filtered for one in written),
        quarantined=_of(explained, "quarantined") if held is not None else sum_of(one.quarantined for one in written),
        control=_of(explained, "control"),
        aborted=_of(explained, "aborted"),
        compacted=_of(explained, "compacted"),
        without_record=_of(explained, "without a record when read"),
        lost=_within(mine, "lost", read),
        removed=0 if held is None else _certain(mine, "removed", read),
        missing=_certain(mine, "missing", read),
        undecided=_within(mine, "undecided", read),
        rows_read=held is not None,
        unknown=why,
    )


def _read(ledger: LedgerSlice) -> dict[_Place, Spans]:
    """The offsets that entries of the period read, each once."""
    covered = coverage(ledger)  # checks have computed it
    places: dict[_Place, list[Span]] = defaultdict(list)
    for key, incarnations in covered.incarnations.items():
        for incarnation in incarnations:
            if not is_kafka(key.topic):
                continue  # its offsets are positions: source_rows counts the rows
            places[key.topic, incarnation.topic_id, key.partition] += [
                Span(stretch.start, stretch.end)
                for stretch in incarnation.stretches
                if covered.judged(stretch.first) and stretch.end > stretch.start
            ]
    return {place: Spans.of(spans) for place, spans in places.items() if spans}


class _Counts(NamedTuple):
    """What an entry counted of the offsets that it was the first to read; None is not known."""

    rows: int | None
    filtered: int | None
    quarantined: int | None


def _written(ledger: LedgerSlice, in_files: Mapping[tuple[int, int, int], int]) -> Iterator[_Counts]:
    """The counts of micro-batches, and of repairs that read what none of these had; replays read nothing further."""
    covered = coverage(ledger)
    sure = filtered_for_sure(covered)
    in_part = {entry for entry in range(len(ledger.heads)) if covered.replays.get(entry, entry) in sure}
    for entry in range(ledger.anchors, len(ledger.heads)):
        head = as_in_files(ledger.heads[entry], in_files)
        if not head.reads or head.status == "already_committed":
            continue
        counts = _Counts(head.rows_written, sure.get(entry, head.rows_filtered), head.rows_quarantined)
        if head.is_micro_batch:
            yield counts
        elif head.is_repair:
            offsets, first = _first_read(ledger, entry, in_part)
            if first and first == offsets:
                yield counts
            elif first:  # which of its rows are of these offsets is known where each offset has one
                yield _Counts(first, 0, 0) if head.rows_written == offsets else _Counts(None, None, None)


def _first_read(ledger: LedgerSlice, repair: int, but: Collection[int]) -> tuple[int, int]:
    """How many offsets a repair read, and how many of them no micro-batch, `but` some, or repair before it."""
    before = np.array(
        [
            entry >= ledger.anchors and head.reads and (head.is_micro_batch or entry < repair) and entry not in but
            for entry, head in enumerate(ledger.heads)
        ],
        np.bool_,
    )[ledger.ranges.entry]
    offsets = first = 0
    for read in ledger.ranges.of(repair):
        if not is_kafka(read.topic) or read.span.size <= 0:
            continue
        topics = [i for i, topic in enumerate(ledger.ranges.topics) if topic[1:] == (read.topic, read.topic_id)]
        same = before & (ledger.ranges.partition == read.partition) & np.isin(ledger.ranges.topic, topics)
        spans = zip(ledger.ranges.start[same].tolist(), ledger.ranges.end[same].tolist(), strict=True)
        mine = Spans.of([read.span])
        offsets += mine.size
        first += mine.minus(Spans.of((start, end) for start, end in spans if start < end)).size
    return offsets, first


def _why_rows_do_not_count(sink: str, witnesses: Witnesses, ledger: LedgerSlice) -> str:
    """Why rows of a sink are not one per record; "" where they are."""
    checkpoint = known(witnesses.checkpoint)
    if checkpoint is not None and checkpoint.stateful:
        return "the query keeps state, so its rows are not one per record"
    if witnesses.declared.explodes:
        return "the transform makes several rows of one record"
    if sink in witnesses.rewriting:
        return "rows of this sink replace earlier ones, so they are not one per record"
    topics = {(source, topic) for source, topic, _ in ledger.ranges.topics}
    if len(topics) > len({topic for _, topic in topics}):
        return "the query reads one topic through several sources"
    return ""


def _evidence(sink: str, results: Sequence[CheckResult]) -> Mapping[str, Any]:
    """What source_rows told of a sink; empty where it could not be evaluated whole."""
    return next(
        (
            result.evidence
            for result in results
            if (result.check, result.sink) == ("source_rows", sink) and evaluated(result.status, result.evidence)
        ),
        {},
    )


def _of(explained: Mapping[str, int] | None, reason: str) -> int | None:
    return None if explained is None else explained.get(reason, 0)


def _within(incidents: Iterable[Incident], harm: Harm, read: dict[_Place, Spans]) -> int:
    """How many offsets of one harm lie in what was read; what no micro-batch read is no part of the sum."""
    return sum(
        Spans.of([Span(r.start_offset, r.end_offset)]).intersect(_read_at(r, read)).size
        for one in incidents
        for r in one.ranges
        if r.harm == harm
    )


def _read_at(harmed: HarmedRange, read: dict[_Place, Spans]) -> Spans:
    """What was read of a range's topic partition; of every topic of the name where its id is unknown."""
    if harmed.topic_id is not None:
        return read.get((harmed.topic, harmed.topic_id, harmed.partition), Spans())
    of_name = (
        spans for (topic, _, number), spans in read.items() if (topic, number) == (harmed.topic, harmed.partition)
    )
    return Spans.of(span for spans in of_name for span in spans)


def _certain(incidents: Sequence[Incident], harm: Harm, read: dict[_Place, Spans]) -> int | None:
    """How many records of one harm were read; None where not each of the offsets is known to be that of a record."""
    total = 0
    for one in incidents:
        within = _within([one], harm, read)
        if within and any(count.certain != count.offsets for count in one.counts if count.harm == harm):
            return None
        total += within
    return total
