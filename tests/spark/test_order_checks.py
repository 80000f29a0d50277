"""sequential_values and mutually_exclusive_ranges on real Spark."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from decimal import Decimal

import pytest

from recon.base.errors import ConfigError
from tests.support.data_checks import bound, counted_jobs, local_table, one, run
from tests.support.messages import raises

# As in the session that an audit starts.
pytestmark = pytest.mark.usefixtures("ansi", "interpreted")

MIDNIGHT = datetime(2026, 1, 1)


@pytest.fixture(scope="module")
def lines(spark):
    rows = [(1, 1), (1, 2), (1, 4), (1, 4), (1, 5), (2, 7), (2, 8), (3, None), (None, 1), (None, 3), (2, None)]
    return local_table(spark, rows, "order_id int, line int")


def test_holes_and_repeats_fail_once_each(lines):
    failed = one(lines, "sequential_values", column_name="line", group_by_columns=["order_id"])
    assert (failed.status, failed.failures) == ("fail", 3)
    assert failed.message == "line is not the previous value plus 1 in 3 of 11 rows"
    assert failed.evidence == {"rows": 11, "judged_rows": 9}
    assert sorted(failed.samples, key=str) == [
        {"order_id": 1, "line": 4, "previous": 2},
        {"order_id": 1, "line": 4, "previous": 4},
        {"order_id": None, "line": 3, "previous": 1},
    ]
    assert one(lines, "sequential_values", {"where": "order_id = 2"}, column_name="line").status == "pass"


def test_no_values_and_no_rows_are_skipped(lines):
    blank = one(lines, "sequential_values", {"where": "order_id = 3"}, column_name="line")
    assert (blank.status, blank.message) == ("skipped", "line is NULL in all 1 rows, so that no value was compared")
    empty = one(lines, "sequential_values", {"where": "line > 99"}, column_name="line")
    assert (empty.status, empty.message) == ("skipped", "0 rows where line > 99")


def test_a_sequence_goes_on_from_one_stretch_to_the_next(spark):
    """200,000 values are cut into stretches; a hole, a repeat or an unbroken step may be at their edge."""
    whole = spark.range(-100_001, 100_011, 1, 4)
    with counted_jobs(spark) as jobs:
        assert one(whole, "sequential_values", column_name="id").status == "pass"
    assert len(jobs) == 1
    hole = one(whole.filter("id <> 100000"), "sequential_values", column_name="id")
    assert (hole.failures, hole.samples) == (1, ({"id": 100_001, "previous": 99_999},))
    before = one(whole.filter("id <> 99999"), "sequential_values", column_name="id")
    assert (before.failures, before.samples) == (1, ({"id": 100_000, "previous": 99_998},))
    far = one(whole.filter("id < -100000 OR id > 100005"), "sequential_values", column_name="id")
    assert far.samples == ({"id": 100_006, "previous": -100_001},)
    twice = one(whole.union(spark.range(-100_000, -99_999)), "sequential_values", column_name="id")
    assert (twice.failures, twice.samples) == (1, ({"id": -100_000, "previous": -100_000},))


@pytest.mark.parametrize(
    ("type_", "values", "arguments", "failures"),
    [
        ("decimal(10,2)", [Decimal("0.10"), Decimal("0.20"), Decimal("0.30"), Decimal("0.45")], {"interval": 0.1}, 1),
        ("double", [1.5, 2.0, 2.5, 4.0, float("nan"), float("inf")], {"interval": 0.5}, 3),
        ("int", [0, 2, 4, 5, 6], {"interval": 2}, 2),  # 5 after 4, and 6 after 5
        ("int", [2, 1, 0], {"interval": -1}, 2),  # always in ascending order, as in dbt_utils
        ("int", [5, 5, 6], {"interval": 0}, 1),
        ("tinyint", [127, 126, 127], {}, 1),
        ("bigint", [2**63 - 1, 2**63 - 1], {}, 1),  # nothing follows the greatest; the job does not break
        ("date", [date(2026, 3, 28), date(2026, 3, 29), date(2026, 3, 31)], {}, 1),
        ("date", [date(2026, 1, 1), date(2026, 2, 1), date(2026, 3, 1)], {"datepart": "month"}, 0),
        (
            "timestamp",
            [datetime(2025, 12, 31, 23), datetime(2026, 1, 1), MIDNIGHT.replace(hour=2)],
            {"datepart": "hour"},
            1,
        ),
        ("timestamp_ntz", [MIDNIGHT - timedelta(seconds=2), MIDNIGHT], {"interval": 2, "datepart": "second"}, 0),
    ],
)
def test_types_and_intervals(spark, type_, values, arguments, failures):
    table = local_table(spark, [(v,) for v in values], f"v {type_}")
    assert one(table, "sequential_values", column_name="v", **arguments).failures == failures


def test_what_has_no_next_value_is_an_error(spark):
    table = local_table(spark, [("a", datetime(2026, 1, 1))], "t string, at timestamp")
    results = run(
        table,
        bound("sequential_values", column_name="t"),
        bound("sequential_values", column_name="at"),
        bound("sequential_values", column_name="t", datepart="day"),
        bound("not_null", column_name="t"),
    )
    assert [r.status for r in results] == ["error", "error", "error", "pass"]
    assert results[0].message.startswith("t is string, and a sequence is of numbers; ")
    assert results[1].message.startswith("at is a timestamp; say in which datepart the interval is")
    assert results[2].message.startswith("t is string, and datepart day needs a date or timestamp; ")
    with raises(ConfigError):
        bound("sequential_values", column_name="at", interval=0.5, datepart="day")


# --- mutually_exclusive_ranges -------------------------------------------------------------------------------

BOUNDS = {"lower_bound_column": "low", "upper_bound_column": "high"}


def ranges(spark, *rows):
    return local_table(spark, rows, "who string, low int, high int")


@pytest.mark.parametrize(
    ("rows", "failures"),
    [
        ([("a", 1, 3), ("a", 3, 5), ("a", 7, 9)], {"allowed": 0, "not_allowed": 1, "required": 1}),
        ([("a", 1, 9), ("a", 2, 3), ("a", 4, 5)], {"allowed": 1, "not_allowed": 2, "required": 1}),
        ([("a", 1, 3), ("b", 2, 4), (None, 1, 3), (None, 2, 4)], {"allowed": 1, "not_allowed": 1, "required": 1}),
        ([("a", 1, 3), ("a", 1, 3)], {"allowed": 1, "not_allowed": 1, "required": 1}),
        ([("a", 3, 1), ("a", 4, 4)], {"allowed": 2, "not_allowed": 2, "required": 2}),
        ([("a", None, 3), ("a", 5, None), ("a", 7, 8)], {"allowed": 2, "not_allowed": 2, "required": 2}),
        ([("a", 1, None)], {"allowed": 1, "not_allowed": 1, "required": 1}),
    ],
)
def test_ranges(spark, rows, failures):
    asked = [bound("mutually_exclusive_ranges", gaps=gaps, partition_by="who", **BOUNDS) for gaps in failures]
    assert [r.failures for r in run(ranges(spark, *rows), *asked)] == list(failures.values())


def test_what_a_failed_range_tells(spark):
    table = ranges(spark, ("a", 1, 3), ("a", 2, 4), ("b", 2, 2), ("b", None, 9))
    failed = one(table, "mutually_exclusive_ranges", partition_by=["who"], **BOUNDS)
    assert failed.failures == 3
    assert failed.message == (
        "the range is wrong in 3 of 4 rows: in 2 high is NULL or not after low, in 2 it overlaps the next one"
    )
    assert {"who": "a", "lower_bound": 1, "upper_bound": 3, "next_lower_bound": 2} in failed.samples
    assert {"who": "b", "lower_bound": None, "upper_bound": 9, "next_lower_bound": 2} in failed.samples
    zero = one(table, "mutually_exclusive_ranges", {"where": "low = high"}, zero_length_range_allowed=True, **BOUNDS)
    assert zero.status == "pass"
    empty = one(table, "mutually_exclusive_ranges", {"where": "low > 99"}, **BOUNDS)
    assert (empty.status, empty.message) == ("skipped", "0 rows where low > 99")


def test_bounds_may_be_expressions_and_partitions_several_columns(spark):
    table = ranges(spark, ("a", 1, 3), ("a", 3, None), ("b", 2, 4))
    asked = {"lower_bound_column": "low", "upper_bound_column": "coalesce(high, 99)", "gaps": "not_allowed"}
    with counted_jobs(spark) as jobs:
        results = run(
            table,
            bound("mutually_exclusive_ranges", partition_by="who, upper(who)", **asked),
            bound("mutually_exclusive_ranges", partition_by=["who"], **asked),
        )
    assert [r.status for r in results] == ["pass", "pass"]
    assert len(jobs) == 2
    assert one(table, "mutually_exclusive_ranges", **asked).failures == 2  # a and b overlap


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"upper_bound_column": "hig"}, "the table has no column 'hig'; did you mean 'high'?"),
        ({"upper_bound_column": "high +"}, "'high +' is neither a column nor an expression on the table: "),
        ({"upper_bound_column": "struct(high)"}, "low is int and struct(high) is struct<high:int>, which cannot be"),
        ({"partition_by": "whom"}, "'struct(whom)' is neither a column nor an expression on the table: "),
        ({"partition_by": ["whom"]}, "the table has no column 'whom'; did you mean 'who'?"),
    ],
)
def test_what_does_not_fit_is_an_error(spark, arguments, sentence):
    table = ranges(spark, ("a", 1, 3))
    broken = one(table, "mutually_exclusive_ranges", **{**BOUNDS, **arguments})
    assert broken.status == "error"
    assert broken.message.startswith(sentence)
    assert "\n" not in broken.message
