"""The count identity against a Delta table or a folder that is read: its log says how many rows each range has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from recon.judge.coverage import Key
from recon.judge.row_counts import Counts
from recon.model import Code, DeclaredRows, LedgerSlice, SourceLog, Unavailable, Witnesses, why_unknown
from recon.model.delta_offsets import BEGINNING, is_delta
from recon.model.file_offsets import is_files
from recon.model.offsets import OffsetSpan
from recon.model.positions import is_kafka
from recon.text import plural

OF_OTHER_OFFSETS = "has as many rows as were read, and of other source offsets"


def records_of(ledger: LedgerSlice, witnesses: Witnesses) -> Sequence[int | None] | None:
    """How many rows each entry's ranges have in the table or folder that was read, None where its log does not say.

    None altogether for a query that reads Kafka, which counts no records.
    """
    if witnesses.source_log is None:
        return None
    counted: list[int | None] = []
    for entry in range(len(ledger.heads)):
        rows = [rows_in(read, witnesses.source_log) for read in ledger.ranges.of(entry)]
        known = [count for count in rows if not isinstance(count, str)]
        counted.append(sum(known) if len(known) == len(rows) else None)
    return counted


def rows_in(read: OffsetSpan, source: SourceLog | Unavailable | None) -> int | str:
    """How many rows the log of a Delta table or of a file source has in a range; or why they cannot be counted."""
    if is_kafka(read.topic):
        return f"recon.yml names another source than Kafka, and it read topic {read.topic}"
    if source is None or isinstance(source, Unavailable):
        return f"the log of what was read could not be looked at: {why_unknown(source, 'it was not read')}"
    return source.why_other(read.topic) or source.records(*read.span)


def unsaid_of(ranges: Sequence[OffsetSpan]) -> str:
    """What else may be the cause where files were read: options of the query say which rows a file has."""
    if not any(is_files(read.topic) for read in ranges):
        return ""
    return "; or recon.yml lacks an option of the query (source: options), such as header, multiLine, lineSep or mode"


def faults(
    counts: Counts,
    entry: int,
    ranges: Sequence[OffsetSpan],
    accounted: int,
    records: int,
    *,
    unknown: bool,
    declared: DeclaredRows,
) -> Iterator[tuple[Code, str]]:
    """What is wrong with the numbers of a micro-batch, where the log of what was read says how many rows it has.

    `ranges` are what it read, `accounted` the rows taken in, quarantined and filtered, `records` those of its source;
    `unknown` is whether the transform may have dropped rows that no entry tells of.
    """
    head = counts.covered.slice.heads[entry]
    source = ", ".join(Key(read.source, read.topic, read.partition).offsets(*read.span) for read in ranges) or "nothing"
    rows = f"{plural(records, 'row')} in {source}"
    began = ""
    if any(is_delta(read.topic) and read.start_offset == BEGINNING for read in ranges):
        began = "; where recon.yml did not name the version that the query began with (startingVersion), accept this"
    read = None if head.is_uncounted or counts.operators.keeps_state(head) else head.rows_read
    if read is not None and read != records:
        code, what = (Code.GAP, "left out") if read < records else (Code.DUPLICATE, "read twice")
        before = "; what a query filters before foreachBatch is not counted: filter in the transform"
        why = f"some were {what}{before if read < records else ''}{began}{unsaid_of(ranges)}"
        yield code, f"read {plural(read, 'row')}, and its source has {rows}: {why}"
    elif counts.counted[entry].doubted:
        yield Code.GAP, f"{OF_OTHER_OFFSETS}: some are lost, and others doubled"
    elif declared.explodes and read is None:
        unsaid = "how many rows were read was not recorded, and several rows are made of one"
        yield Code.INCONCLUSIVE, f"accounts for {plural(accounted, 'row')}, and its source has {rows}: {unsaid}"
    elif declared.explodes:
        if counts.counted[entry].lost > 0:
            yield Code.GAP, f"gave the sink {plural(head.rows_given or 0, 'row')}, and it took in {head.rows_written:,}"
    elif accounted < records and unknown:
        yield (
            Code.INCONCLUSIVE,
            f"accounts for {plural(accounted, 'row')}, and its source has {rows}: whether the query filters rows is "
            f"not known; where it does not, say so (rows: {{filters: false}}){began}",
        )
    elif accounted < records:
        missing = plural(records - accounted, "row")
        yield Code.GAP, f"accounts for {plural(accounted, 'row')}, and its source has {rows}: {missing} missing{began}"
    elif accounted > records:
        yield (
            Code.DUPLICATE,
            f"accounts for {plural(accounted, 'row')}, and its source has {rows}: rows are doubled, or the transform "
            f"makes several of one, which recon.yml would have to say (rows: {{explodes: true}}){began}",
        )
