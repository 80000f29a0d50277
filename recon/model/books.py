"""The books of pipelines, day by day: what each hop read, and what became of it, as two sums that may not balance."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date


@dataclass(frozen=True, kw_only=True)
class BookLine:
    """The rows of one sink on one day (UTC), as ledger entries counted them; None where one entry did not.

    Nothing here follows from what it is to prove: rows that a table has were counted by the pipelines that wrote it,
    rows read by the pipeline that read it, rows written by the sink.

    Attributes:
        pipeline: who reads.
        sink: who is written to.
        day: of the entries' `committed_at`.
        hop: 1 for a pipeline whose source no pipeline of the project writes, else one more than that pipeline's.
        source: what is read: topics, or the sinks (`pipeline.sink`) whose table it is, or the table.
        micro_batches: how many were written; a repair is none.
        waiting_before: rows of the table that is read, not read when the day began; None also for topics.
        arrived: rows that pipelines of the project wrote into that table on the day; None also for topics.
        read: rows before the transform.
        filtered: rows that the transform dropped; with routes, those of other routes, too.
        made: rows that the transform made besides those that it read.
        quarantined: rows that were put into quarantine.
        written: rows that the sink took in, of micro-batches and repairs.
        released: rows that the sink took in from quarantine.
        lost: offsets, or rows where they are counted, that open and accepted findings name as lost or missing.
        waiting_after: as `waiting_before`, when the day ended.
        unknown_source: why nothing can be said of `waiting_before + arrived = read + waiting_after`; "" where it can.
        unknown_rows: why nothing can be said of `read + made = filtered + quarantined + written`; "" where it can.
        routed: whether the sink is a route.
    """

    pipeline: str
    sink: str
    day: date
    hop: int
    source: tuple[str, ...]
    micro_batches: int
    waiting_before: int | None = None
    arrived: int | None = None
    read: int | None
    filtered: int | None
    made: int | None
    quarantined: int | None
    written: int | None
    released: int | None
    lost: int
    waiting_after: int | None = None
    unknown_source: str = ""
    unknown_rows: str = ""
    routed: bool = False

    @property
    def unread(self) -> int | None:
        """Rows that arrived, were not read and do not wait; negative where more were read. None where not known."""
        terms = (self.waiting_before, self.arrived, self.read, self.waiting_after)
        before, arrived, read, after = terms
        if self.unknown_source or before is None or arrived is None or read is None or after is None:
            return None
        return before + arrived - read - after

    @property
    def unwritten(self) -> int | None:
        """Rows that were read and are in none of the other terms; negative where more were written. None if unknown."""
        read, made, filtered = self.read, self.made, self.filtered
        quarantined, written = self.quarantined, self.written
        if self.unknown_rows or None in (read, made, filtered, quarantined, written):
            return None
        assert read is not None and made is not None and filtered is not None
        assert quarantined is not None and written is not None
        return read + made - filtered - quarantined - written
