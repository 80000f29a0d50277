"""The row counts of one micro-batch in one sink, as its ledger entry has them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from recon.base.counts import sum_of
from recon.model import CountedRows, LedgerEntry
from recon.write.sinks import ConfirmedWrite


@dataclass(frozen=True, kw_only=True)
class CountedWrite:
    """What Spark counted while the sink wrote: the rows that the transform returned, and those given to the sink.

    `fingerprint_read` is of the rows read; None where it is unknown.
    """

    fingerprint_read: int | None = None
    returned: CountedRows | None = None
    given: CountedRows | None = None


@dataclass(frozen=True, kw_only=True)
class RowCounts:
    """Rows read, filtered, quarantined and written, of which an audit expects: read - filtered - quarantined = written.

    None means unknown, and never 0; whatever is computed from an unknown count is unknown, too.

    Attributes:
        read: rows of the micro-batch, before the transform. None in a restored entry, and where Spark did not report
            the count or computed the rows more than once: it reports the first job, even one that failed.
        filtered: rows read and neither written nor quarantined. The transform dropped them, or the sink kept another
            row of the same key and reports how many rows it was given. None where `read` is unknown, nobody counted the
            rows after the transform, or the transform made more rows than it read.
        quarantined: rows written to the quarantine table. None where its log does not have their number, and in a
            restored entry without a quarantine commit.
        written: rows that the sink took in. None where the sink does not report them.
        fingerprint_read: of the source offsets of the rows read.
        returned: rows that the transform returned, as Spark counted them during the write.
        given: rows that the sink was given: those returned and not quarantined.
    """

    read: int | None
    filtered: int | None
    quarantined: int | None
    written: int | None
    fingerprint_read: int | None = None
    returned: CountedRows | None = None
    given: CountedRows | None = None

    @classmethod
    def of_entry(cls, entry: LedgerEntry, landed: ConfirmedWrite, quarantined: int | None) -> RowCounts:
        """The counts of a replay that wrote nothing: those of the earlier attempt's entry."""
        return cls(
            read=entry.rows_read,
            filtered=entry.rows_filtered,
            quarantined=quarantined,
            written=landed.rows,
            fingerprint_read=entry.fingerprint_read,
            returned=entry.returned,
            given=entry.given,
        ).or_written(entry.rows_written)

    @classmethod
    def of_write(
        cls,
        landed: ConfirmedWrite,
        *,
        read: int | None,
        checked: int | None,
        quarantined: int | None,
        counted: CountedWrite | None = None,
    ) -> RowCounts:
        """The counts of a write.

        Args:
            landed: what the sink confirmed.
            read: rows of the micro-batch.
            checked: rows that the row checks counted, after the transform; None without row checks or a report.
            quarantined: rows written to the quarantine table.
            counted: what Spark counted during the write; None where it did not report it.
        """
        counted = counted or CountedWrite()
        returned = checked if counted.returned is None else counted.returned.rows
        # Rows that a sink reduced away count as filtered only where it reports what it was given: otherwise rows that
        # it lost would count, too.
        kept = sum_of((landed.rows, quarantined)) if landed.given is not None or returned is None else returned
        return cls(
            read=read,
            filtered=_remainder(read, kept),
            quarantined=quarantined,
            written=landed.rows,
            fingerprint_read=counted.fingerprint_read,
            returned=counted.returned,
            given=counted.given,
        )

    def of_route(self, landed: ConfirmedWrite, *, read: int, elsewhere: int | None) -> RowCounts:
        """The counts of one route: the whole micro-batch is read, and rows without a row in this route are filtered.

        Args:
            landed: what the route's sink confirmed.
            read: rows of the whole micro-batch.
            elsewhere: rows of the micro-batch that gave this route no row; None where they cannot be counted.
        """
        filtered = None if elsewhere is None else elsewhere + reduced(landed)
        return replace(self, read=read, filtered=filtered, fingerprint_read=None)

    def or_written(self, rows: int | None) -> RowCounts:
        """These counts, with `rows` written where the sink does not report the number."""
        return self if self.written is not None else replace(self, written=rows)


def delivered(landed: ConfirmedWrite, quarantined: int | None) -> int | None:
    """Rows that the sink was given, and rows written to quarantine."""
    return sum_of((landed.rows if landed.given is None else landed.given, quarantined))


def reduced(landed: ConfirmedWrite) -> int:
    """Rows that the sink was given and left out itself, as far as it reports them."""
    return landed.given - landed.rows if landed.given is not None and landed.rows is not None else 0


def _remainder(read: int | None, kept: int | None) -> int | None:
    return None if read is None or kept is None or kept > read else read - kept
