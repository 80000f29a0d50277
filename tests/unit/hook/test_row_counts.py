"""The counts of a ledger entry: read - filtered - quarantined = written, and unknown where a part is unknown."""

from __future__ import annotations

from dataclasses import replace

import pytest

from recon.base.counts import sum_of
from recon.write.hook.row_counts import RowCounts, delivered, reduced
from recon.write.sinks import ConfirmedWrite
from tests.support.ledger_entries import entry


def landed(rows: int | None, given: int | None = None) -> ConfirmedWrite:
    return ConfirmedWrite(version=1, rows=rows, given=given)


def counts(read: int | None, filtered: int | None, quarantined: int | None, written: int | None) -> RowCounts:
    return RowCounts(read=read, filtered=filtered, quarantined=quarantined, written=written)


def test_the_parts_of_what_was_read_add_up() -> None:
    """10 rows read, 2 dropped by the transform, 3 quarantined, 5 written."""
    of_write = RowCounts.of_write(landed(5), read=10, checked=8, quarantined=3)
    assert of_write == counts(10, 2, 3, 5)
    assert of_write.read - of_write.filtered - of_write.quarantined == of_write.written  # type: ignore[operator]


def test_without_row_checks_the_sinks_count_is_what_was_kept() -> None:
    assert RowCounts.of_write(landed(7), read=10, checked=None, quarantined=0) == counts(10, 3, 0, 7)


def test_rows_that_a_sink_reports_to_have_reduced_are_filtered() -> None:
    """8 rows given to a MERGE, 6 of them the last of their key; 1 more quarantined."""
    assert RowCounts.of_write(landed(6, given=8), read=9, checked=9, quarantined=1) == counts(9, 2, 1, 6)
    assert RowCounts.of_write(landed(6, given=8), read=10, checked=None, quarantined=0) == counts(10, 4, 0, 6)


def test_rows_that_a_sink_reduces_and_does_not_report_are_not_filtered() -> None:
    """The checks counted 8 of 9 rows and the sink holds 6: one row was filtered, and two are the sink's affair."""
    assert RowCounts.of_write(landed(6), read=9, checked=8, quarantined=0) == counts(9, 1, 0, 6)


@pytest.mark.parametrize(
    ("read", "checked", "rows", "quarantined", "filtered"),
    [
        pytest.param(None, 8, 8, 0, None, id="Spark did not report the rows read"),
        pytest.param(10, None, None, 0, None, id="the sink does not report its rows, and nothing checked them"),
        pytest.param(10, 8, None, 0, 2, id="the checks counted what the sink does not report"),
        pytest.param(10, None, 8, None, None, id="the quarantine's log does not have its rows"),
        pytest.param(10, 12, 12, 0, None, id="the transform made more rows than it read"),
        pytest.param(0, None, 0, 0, 0, id="nothing was read: known, and 0"),
    ],
)
def test_unknown_is_never_zero(
    read: int | None, checked: int | None, rows: int | None, quarantined: int | None, filtered: int | None
) -> None:
    of_write = RowCounts.of_write(landed(rows), read=read, checked=checked, quarantined=quarantined)
    assert of_write == counts(read, filtered, quarantined, rows)


def test_a_replay_keeps_the_counts_of_the_earlier_entry() -> None:
    earlier = replace(entry(0), rows_read=10, rows_filtered=2, rows_quarantined=None, rows_written=5)
    assert RowCounts.of_entry(earlier, landed(5), 3) == counts(10, 2, 3, 5)
    assert RowCounts.of_entry(earlier, landed(4), None) == counts(10, 2, None, 4)
    assert RowCounts.of_entry(earlier, landed(None), 3) == counts(10, 2, 3, 5), "the sink no longer reports its rows"
    assert counts(10, 2, 3, 0).or_written(5).written == 0


def test_a_route_reads_the_whole_micro_batch_and_filters_the_records_of_others() -> None:
    """20 records read, 12 without a row in this route; 8 rows given to the sink, which keeps 6."""
    of_write = RowCounts.of_write(landed(6, given=8), read=8, checked=None, quarantined=0)
    assert of_write.of_route(landed(6, given=8), read=20, elsewhere=12) == counts(20, 14, 0, 6)
    assert of_write.of_route(landed(6), read=20, elsewhere=12) == counts(20, 12, 0, 6)
    assert of_write.of_route(landed(6, given=8), read=20, elsewhere=None).filtered is None


def test_delivered_reduced_and_sums() -> None:
    assert delivered(landed(5), 3) == 8
    assert delivered(landed(5, given=7), 3) == 10
    assert delivered(landed(None, given=7), 0) == 7
    assert delivered(landed(None), 0) is None and delivered(landed(5), None) is None
    assert reduced(landed(5, given=7)) == 2
    assert reduced(landed(5)) == 0 and reduced(landed(None, given=7)) == 0
    assert (sum_of((1, 2)), sum_of((None, 2)), sum_of((1, None)), sum_of((0, 0))) == (3, None, None, 0)
