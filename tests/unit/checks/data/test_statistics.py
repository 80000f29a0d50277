"""Statistics of a column, judged on what Spark measured, without Spark."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest
from pyspark.sql import types as T

from recon.base.errors import ConfigError
from recon.checks.data.statistics import ColumnMean, ColumnQuantile, ColumnSum
from recon.checks.data_check import total
from tests.support.messages import raises


def test_a_quantile_lies_exactly_between_its_neighbours():
    check = replace(ColumnQuantile(column_name="n", quantile=0.95, max_value=9.55), column_type=T.IntegerType())
    measured = {"rows": 12, "count": 10, "lower": 9, "upper": 10}
    assert check.judge(measured).failures == 0  # in doubles 9.549999999999999
    assert replace(check, inclusive=False).judge(measured).failures == 1


@pytest.mark.parametrize(
    ("type_", "measured", "value"),
    [
        (T.DecimalType(10, 2), {"sum": Decimal("0.30"), "count": 2}, 0.3),
        (T.DecimalType(38, 18), {"sum": Decimal(-12 * 10**17), "rest": Decimal("-0.5"), "count": 2}, -12e19),
        (T.DoubleType(), {"sum": 0.5, "count": 2}, 0.5),
    ],
)
def test_a_sum_is_put_together_of_what_was_added_up(type_, measured, value):
    check = replace(ColumnSum(column_name="c", max_value=1), column_type=type_)
    assert check.judge({"rows": 2, **measured}).evidence["value"] == value


def test_a_sum_that_spark_has_not_is_no_column_without_values():
    check = replace(ColumnMean(column_name="c", max_value=1), column_type=T.DecimalType(28, 0))
    assert check.judge({"rows": 2, "count": 0, "sum": None}).skipped
    with raises(ConfigError):
        check.judge({"rows": 2, "count": 2, "sum": None})


def test_sums_are_merged_to_the_last_digit():
    most, least = Decimal(f"{10**37}.5"), Decimal("0.5")  # 39 digits, where Python's decimals have 28 unless told so
    assert total(None).merge(most, least) == 10**37 + 1
