"""not_null and accepted_values on real Spark."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pytest

from recon.spark.frames import local_frame
from tests.support.data_checks import bound, counted_jobs, one, run

# As in the session that an audit starts.
pytestmark = pytest.mark.usefixtures("ansi")


@pytest.fixture(scope="module")
def orders(spark):
    rows = [
        (1, "new", 1.0, {"city": "Bern"}),
        (2, None, float("nan"), {"city": None}),
        (3, "", None, None),
        (4, "New", -0.0, {"city": "Bern"}),
        (5, "new ", 2.0, {"city": "Bern"}),
        (6, None, 3.0, {"city": "Basel"}),
    ]
    return local_frame(spark, rows, "id int, status string, amount double, address struct<city: string>")


def test_not_null(orders):
    failed = one(orders, "not_null", column_name="status")
    assert (failed.status, failed.failures) == ("fail", 2)
    assert failed.message == "status is NULL in 2 of 6 rows"
    assert failed.samples == ({"status": None}, {"status": None})
    assert one(orders, "not_null", column_name="id").status == "pass"
    assert one(orders, "not_null", column_name="amount").failures == 1  # NaN is a value
    assert one(orders, "not_null", column_name="address.city").failures == 2


def test_where(orders):
    assert one(orders, "not_null", {"where": "id < 3"}, column_name="status").failures == 1
    assert one(orders, "not_null", {"where": "id < 2"}, column_name="status").status == "pass"
    # Rows for which `where` is NULL are not looked at, as in SQL.
    assert one(orders, "not_null", {"where": "amount > 0"}, column_name="amount").evidence == {"rows": 4}


def test_no_rows_are_skipped_not_passed(orders):
    empty = one(orders.limit(0), "not_null", column_name="id")
    assert (empty.status, empty.message, empty.failures) == ("skipped", "0 rows", None)
    nowhere = one(orders, "accepted_values", {"where": "id > 99"}, column_name="status", values=["new"])
    assert (nowhere.status, nowhere.message) == ("skipped", "0 rows where id > 99")


def test_accepted_values_compare_exactly_and_accept_null(orders):
    failed = one(orders, "accepted_values", column_name="status", values=["new"])
    assert (failed.status, failed.failures) == ("fail", 3)
    assert failed.message == "status is none of the 1 accepted values in 3 of 6 rows"
    assert sorted(s["status"] for s in failed.samples) == ["", "New", "new "]
    assert one(orders, "accepted_values", column_name="status", values=["new", "New", "new ", ""]).status == "pass"


@pytest.mark.parametrize("values", [[1, 2, 3], ["1", "2", "3"], [1.0, "2.00", 3, 3e9, 10**30, float("nan")]])
def test_values_are_read_as_the_columns_type(orders, values):
    assert one(orders, "accepted_values", column_name="id", values=values).failures == 3


def test_numbers_compare_as_in_sparks_in(spark):
    kinds = ["tinyint", "int", "bigint", "decimal(10,2)", "decimal(38,18)", "double"]
    held = ["1", "100", "2147483647", "1.01", "60000000000000000000", "0.1"]
    lists = ["1.0, 7", "1e0", "1.01", "1, 1.005", "300, 100.00", "1.5, 60000000000000000000", "0.1", "2147483647.0"]
    for kind, value in zip(kinds, held, strict=True):
        table = spark.sql(f"SELECT cast(v AS {kind}) AS v FROM VALUES ('1'), ('{value}') AS t (v)")
        outside = table.selectExpr(*(f"count_if(v NOT IN ({values}))" for values in lists)).first()
        asked = [bound("accepted_values", column_name="v", values=values.split(", ")) for values in lists]
        assert [r.failures for r in run(table, *asked)] == list(outside), kind


@pytest.mark.parametrize(
    ("column", "values", "said"),
    [
        ("id", [1, "four"], "values holds 'four', which is no int, and column id is one"),
        ("id", [True], "values holds True, which is no int"),
        ("big", [dt.date(2026, 1, 1)], "values holds datetime.date(2026, 1, 1), which is no bigint"),
        ("amount", ["1", "1_0"], "values holds '1_0', which is no double"),
        ("yes", ["true", 1, "maybe"], "values holds 'maybe', which is no boolean"),
        ("day", ["2026-01-01", "01/01/2026"], "values holds '01/01/2026', which is no date"),
        ("day", ["2026-02-30"], "values holds '2026-02-30', which is no date"),
        ("at", [dt.date(2026, 1, 1), 12], "values holds 12, which is no timestamp"),
        ("address", ["Bern"], "accepted_values compares plain values, not struct<city:string>"),
    ],
)
def test_a_value_that_is_none_of_the_columns_type_is_named_and_no_job_runs(spark, orders, column, values, said):
    table = orders.selectExpr(
        "*", "id > 1 AS yes", "date '2026-01-01' AS day", "timestamp '2026-01-01' AS at", "cast(id AS bigint) AS big"
    )
    with counted_jobs(spark) as jobs:
        wrong = one(table, "accepted_values", column_name=column, values=values)
    assert wrong.status == "error" and said in wrong.message
    assert not jobs


@pytest.mark.parametrize(
    ("type_", "good", "bad", "values"),
    [
        ("boolean", True, False, [True]),
        ("decimal(10,2)", Decimal("1.00"), Decimal("1.01"), [1]),
        ("decimal(10,2)", Decimal("1.00"), Decimal("1.01"), [1.005, "1.0149", "1.000", "1e2"]),
        ("int", 2, 1, [1.5, 2]),
        ("bigint", 1, 2, [0, 1.0e0]),
        ("decimal(38,18)", Decimal(6 * 10**19), Decimal(7 * 10**19), [6e19, "1e19", 1e30]),
        ("double", 1.0, 1.5, [1]),
        ("double", float("nan"), 1.5, [float("nan"), "Infinity"]),
        ("float", 0.1, 0.2, [0.1]),
        ("binary", b"a", b"b", ["a"]),
        ("date", dt.date(2026, 1, 1), dt.date(2026, 1, 2), [dt.date(2026, 1, 1)]),
        ("date", dt.date(2026, 1, 1), dt.date(2026, 1, 2), ["2026-01-01 00:00:00", "2026-01-02T12:00:00"]),
        (
            "timestamp_ntz",
            dt.datetime(2026, 1, 1, 0, 0, 0, 1),
            dt.datetime(2026, 1, 1, 0, 0, 0, 2),
            ["2026-01-01 00:00:00.0000010", "2026-01-01 00:00:00.0000029"],
        ),
        ("string", "1", "01", [1]),
        ("string", "true", "True", [True]),
    ],
)
def test_types(spark, type_, good, bad, values):
    table = local_frame(spark, [(good,), (bad,), (None,)], f"v {type_}")
    assert one(table, "accepted_values", column_name="v", values=values).failures == 1


def test_unquoted_strings_are_sql(orders):
    assert one(orders, "accepted_values", column_name="id", values=["1 + 1", 3], quote=False).failures == 4
    wrong = one(orders, "accepted_values", column_name="id", values=["1 +"], quote=False)
    assert wrong.status == "error"


def test_samples_keep_to_the_limit_and_tell_the_rows_origin(spark):
    table = spark.range(100).selectExpr(
        "CAST(NULL AS STRING) AS status",
        "id AS other",
        "id DIV 10 AS _batch_id",
        "'orders' AS _source_topic",
        "0 AS _source_partition",
        "id AS _source_offset",
    )
    few = one(table, "not_null", {"limit": 3, "where": "_source_offset >= 40"}, column_name="status")
    assert (few.failures, len(few.samples)) == (60, 3)
    for sample in few.samples:
        assert set(sample) == {"status", "_batch_id", "_source_topic", "_source_partition", "_source_offset"}
        assert sample["_source_offset"] >= 40
    assert len(one(table, "not_null", column_name="status").samples) == 5


def test_severity_and_thresholds(orders):
    assert one(orders, "not_null", {"severity": "warn"}, column_name="status").status == "warn"
    warned = one(orders, "not_null", {"error_if": ">2"}, column_name="status")
    assert (warned.status, warned.failures) == ("warn", 2)
    assert one(orders, "not_null", {"error_if": ">=2"}, column_name="status").status == "fail"
