"""What a state remembers of rows that another program added, and when an audit needs rows because of it."""

from __future__ import annotations

import pytest

from recon.judge.rows.foreign_rows import bounded
from recon.judge.rows.reasons import without_rows
from recon.model import Code, Finding, Unavailable, Verdict
from recon.model.offsets import Spans


@pytest.mark.parametrize("most", [1, 5, 6, 100])
def test_where_there_are_too_many_ranges_each_partition_keeps_one(most: int) -> None:
    """What was there is still there."""
    offsets = {("t", 0): Spans.of([(0, 1), (2, 3), (9, 10)]), ("t", 1): Spans.of([(0, 1), (5, 6), (50, 60)])}
    joined = bounded(offsets, most)
    assert joined == (offsets if most >= 6 else {("t", 0): Spans.of([(0, 10)]), ("t", 1): Spans.of([(0, 60)])})


def test_where_rows_were_needed_and_not_read_a_question_that_stays_open_does_not_answer_for_them() -> None:
    """The audit advances no proof: the next one judges the same entries again."""
    asked = Finding(
        code=Code.INCONCLUSIVE, message="is not known", topic="t", partition=0, start_offset=0, end_offset=1
    )
    for verdict in (Verdict(unproved="is not known", findings=(asked,)), Verdict(failures=1), Verdict()):
        unread = without_rows(verdict, Unavailable("rows", "no executor answers"), ["another program added rows"])
        assert unread.evidence["unread"] == "another program added rows"
