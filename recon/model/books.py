"""The books of pipelines, day by day: what each hop read, what became of it, and where sums do not add up."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import NamedTuple


class TableWrite(NamedTuple):
    """A ledger entry as a write of a table: what it brought in, and as which version; None for what it does not say."""

    sequence: int
    epoch: int
    status: str
    table_id: str | None
    version: int | None
    rows: int | None


@dataclass(frozen=True, kw_only=True)
class BookLine:
    """The rows of one sink on one day (UTC), as ledger entries counted them; None where one entry did not.

    Sums are compared write by write, and a day's differences are added up by sign: lost and doubled rows do not cancel.
    Nothing is computed from what it is compared with.

    Attributes:
        pipeline: who reads.
        sink: who is written to.
        day: of the entries' `committed_at`.
        hop: 1 for a pipeline whose source no pipeline of the project writes, else one more than that pipeline's.
        source: what is read: topics, the sinks (`pipeline.sink`) whose table it is, or the table.
        reads_table: whether a pipeline of the project writes what is read.
        micro_batches: how many were written.
        written_before: rows that pipelines of the project wrote into the versions of the table that were read; None
            also for topics.
        read: rows before the transform.
        filtered: rows that the transform dropped.
        made: rows that the transform made besides those that it read.
        quarantined: rows that were put into quarantine.
        written: rows of micro-batches that the sink took in.
        released_or_repaired: rows that the sink took in from quarantine or by a repair.
        lost: offsets, or rows where they are counted, that findings name as lost, missing or removed since.
        twice: offsets, or rows, that findings name as read or written twice.
        unread: rows in versions that were read, and that were not read.
        more_read: rows read that are in none of the versions that were read.
        passed_over: rows in versions that no micro-batch read.
        again: rows in versions that had been read before.
        unwritten: rows that the transform returned and that were neither quarantined nor written.
        more_written: rows quarantined or written that the transform did not return.
        unknown: why nothing can be said of some writes, each reason once.
        unknown_writes: how many these are.
    """

    pipeline: str
    sink: str
    day: date
    hop: int
    source: tuple[str, ...]
    reads_table: bool = False
    micro_batches: int
    written_before: int | None = None
    read: int | None
    filtered: int | None
    made: int | None
    quarantined: int | None
    written: int | None
    released_or_repaired: int | None = 0
    lost: int = 0
    twice: int = 0
    unread: int = 0
    more_read: int = 0
    passed_over: int = 0
    again: int = 0
    unwritten: int = 0
    more_written: int = 0
    unknown: tuple[str, ...] = ()
    unknown_writes: int = 0
