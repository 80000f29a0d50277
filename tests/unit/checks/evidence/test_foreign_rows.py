"""What a state remembers of rows that another program added, and when an audit needs rows because of it."""

from __future__ import annotations

import pytest

from recon.judge.history.foreign_rows import bounded
from recon.judge.rows.reasons import without_rows
from recon.model import Code, Finding, Unavailable, Verdict
from recon.model.offsets import Spans


@pytest.mark.parametrize("most", [1, 2, 3, 4, 5, 6, 100])
def test_ranges_with_the_fewest_offsets_between_them_are_joined_until_so_many_are_left(most: int) -> None:
    """Whatever the partition; what was there is still there, and each partition keeps a range."""
    offsets = {("t", 0): Spans.of([(0, 1), (2, 3), (9, 10)]), ("t", 1): Spans.of([(0, 1), (5, 6), (50, 60)])}
    joined = bounded(offsets, most)
    assert sum(len(spans.ranges) for spans in joined.values()) == min(max(most, 2), 6)
    assert not any(spans.minus(joined[where]) for where, spans in offsets.items())
    if most == 3:
        assert joined == {("t", 0): Spans.of([(0, 10)]), ("t", 1): Spans.of([(0, 6), (50, 60)])}


def test_where_rows_were_needed_and_not_read_a_question_that_stays_open_does_not_answer_for_them() -> None:
    """The audit advances no proof: the next one judges the same entries again."""
    asked = Finding(
        code=Code.INCONCLUSIVE, message="is not known", topic="t", partition=0, start_offset=0, end_offset=1
    )
    for verdict in (Verdict(unproved="is not known", findings=(asked,)), Verdict(failures=1), Verdict()):
        unread = without_rows(verdict, Unavailable("rows", "no executor answers"), ["another program added rows"])
        assert unread.evidence["unread"] == "another program added rows"
