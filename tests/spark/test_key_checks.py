"""unique and unique_combination_of_columns on real Spark."""

from __future__ import annotations

import pytest

from recon.spark.frames import local_frame
from tests.support.data_checks import bound, one, run
from tests.support.messages import same_message

# As in the session that an audit starts.
pytestmark = pytest.mark.usefixtures("ansi", "interpreted")


@pytest.fixture(scope="module")
def lines(spark):
    rows = [(1, 1), (1, 2), (1, 2), (1, 2), (2, 1), (2, 1), (3, None), (3, None), (None, 4), (None, 5)]
    return local_frame(spark, rows, "order_id int, line int")


def test_unique_counts_values_and_surplus_rows(lines):
    failed = one(lines, "unique", column_name="order_id")
    assert (failed.status, failed.failures) == ("fail", 3)
    assert failed.message == "3 values of order_id occur more than once, with 5 surplus rows"
    assert failed.samples == (
        {"order_id": 1, "n_records": 4},
        {"order_id": 2, "n_records": 2},
        {"order_id": 3, "n_records": 2},
    )
    assert failed.evidence == {"rows": 10, "null_keys": 2, "duplicate_keys": 3, "surplus_rows": 5}


def test_unique_does_not_judge_null(spark):
    table = local_frame(spark, [(1,), (None,), (None,)], "id int")
    assert one(table, "unique", column_name="id").status == "pass"
    blank = one(table, "unique", {"where": "id IS NULL"}, column_name="id")
    assert (blank.status, blank.message) == (
        "skipped",
        "id is NULL in all 2 rows, so that no value was compared",
    )


def test_a_combination_takes_null_as_equal_to_null(lines):
    failed = one(lines, "unique_combination_of_columns", combination_of_columns=["order_id", "line"])
    assert (failed.failures, failed.evidence["surplus_rows"]) == (3, 4)
    assert failed.samples == (
        {"order_id": 1, "line": 2, "n_records": 3},
        {"order_id": 2, "line": 1, "n_records": 2},
        {"order_id": 3, "line": None, "n_records": 2},
    )


def test_a_part_of_the_key_may_be_an_expression(spark):
    rows = [(1, "EU", 2.0), (1, "eu", 2.0), (2, "us", 3.0)]
    table = local_frame(spark, rows, "id int, region string, `sum(x)` double")
    failed = one(table, "unique_combination_of_columns", combination_of_columns=["id", "lower(region)"])
    assert (failed.failures, failed.samples) == (1, ({"id": 1, "lower(region)": "eu", "n_records": 2},))
    upper = {"combination_of_columns": ["id", "region"]}
    assert one(table, "unique_combination_of_columns", None, **upper).status == "pass"
    assert one(table, "unique_combination_of_columns", combination_of_columns=["`sum(x)`"]).failures == 1
    checks = [bound("unique_combination_of_columns", combination_of_columns=[key]) for key in ("sum(x)", "lower(rgn)")]
    results = run(table, *checks, bound("not_null", column_name="lower(region)"))
    assert {result.status for result in results} == {"error"}
    assert same_message("\n".join(result.message for result in results))


def test_where_and_limit(lines):
    passed = one(lines, "unique", {"where": "line = 1 AND order_id = 1 OR line = 5"}, column_name="order_id")
    assert (passed.status, passed.evidence["rows"]) == ("pass", 2)
    few = one(lines, "unique", {"limit": 1}, column_name="order_id")
    assert few.samples == ({"order_id": 1, "n_records": 4},)
    assert few.failures == 3


def test_no_rows_are_skipped(lines):
    empty = one(lines, "unique_combination_of_columns", {"where": "line > 9"}, combination_of_columns=["line"])
    assert (empty.status, empty.message) == ("skipped", "0 rows where line > 9")


@pytest.mark.parametrize(
    ("type_", "values", "duplicates"),
    [
        ("string", ["a", "A", "a ", " a", "\u00e1", "a\u0301"], 0),  # composed and decomposed differ
        ("string", ["", "", "a"], 1),
        ("double", [0.0, -0.0, 1.0], 1),
        ("double", [float("nan"), float("nan"), 1.0], 1),
        ("struct<x: int>", [(1,), (1,), (2,)], 1),
        ("array<int>", [[1, 2], [2, 1], [1, 2]], 1),
        ("binary", [b"a", b"a", b"b"], 1),
        ("boolean", [True, False], 0),
    ],
)
def test_equality(spark, type_, values, duplicates):
    table = local_frame(spark, [(v,) for v in values], f"v {type_}")
    assert one(table, "unique", column_name="v").failures == duplicates


def test_columns_may_have_any_name(spark):
    names = ["k1", "k0", "n", "at", "row", "which", "hash", "n_records"]
    table = local_frame(spark, [(1, 2, 3, 4, 5, 6, 7, 8)] * 2, ", ".join(f"`{name}` int" for name in names))
    row = dict(zip(names, range(1, 9), strict=True))
    keys = [bound("unique", column_name=name) for name in names[:-1]]
    whole = bound("unique_combination_of_columns", {"where": "which = 6"}, combination_of_columns=names)
    *found, all_of_them = run(table, *keys, whole)
    assert [r.samples for r in found] == [({name: row[name], "n_records": 2},) for name in names[:-1]]
    assert all_of_them.samples == ({**row, "n_records_2": 2},)


def test_a_nested_column_is_a_key(spark):
    table = local_frame(spark, [((1,),), ((1,),)], "o struct<id: int>")
    assert one(table, "unique", column_name="o.id").samples == ({"o.id": 1, "n_records": 2},)
