"""not_null and accepted_values on real Spark."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pytest

from recon.spark.frames import local_frame
from tests.support.data_checks import one

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


@pytest.mark.parametrize("values", [[1, 2, 3], ["1", "2", "3"], [1, "2", 3, "four"]])
def test_values_are_read_as_the_columns_type(orders, values):
    assert one(orders, "accepted_values", column_name="id", values=values).failures == 3


def test_a_value_of_another_type_does_not_hide_failures(orders):
    # "four" is no int: in plain SQL it would make `NOT IN` NULL, or break the job.
    failed = one(orders, "accepted_values", column_name="id", values=["four"])
    assert (failed.status, failed.failures) == ("fail", 6)


@pytest.mark.parametrize(
    ("type_", "good", "bad", "values"),
    [
        ("boolean", True, False, [True]),
        ("decimal(10,2)", Decimal("1.00"), Decimal("1.01"), [1]),
        ("decimal(10,2)", Decimal("1.00"), Decimal("1.01"), [1.005, "1.0149", "1.000", "1e2"]),
        ("int", 2, 1, [1.5, 2]),
        ("double", 1.0, 1.5, [1]),
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
