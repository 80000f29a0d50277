"""Counts, proportions, statistics, recency and freshness on real Spark; groups; one job for all."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal

import pytest

from recon.base.errors import ConfigError
from recon.checks.registry import build, check_class
from recon.project import CheckSpec
from recon.spark.frames import local_frame
from tests.support.data_checks import bound, counted_jobs, one, run
from tests.support.messages import raises

# As in the session that an audit starts.
pytestmark = pytest.mark.usefixtures("ansi")

UTC = dt.UTC
NOON = dt.datetime(2026, 1, 2, 12, tzinfo=UTC)
# Two of it are no decimal(38,18).
WIDE = Decimal("-60000000000000000000.000000000000000001")
TWICE, LESS = Decimal("-120000000000000000000.000000000000000002"), Decimal("-120000000000000000000.000000000000000001")


@pytest.fixture(scope="module")
def table(spark, tmp_path_factory):
    """Parquet, so that every job counted is ours. Times are told from Spark's own clock."""
    path = str(tmp_path_factory.mktemp("columns") / "t")
    rows = [
        ("a", 1, 2**62, 1.5, 0.1, Decimal("0.10"), "x", dt.date(2026, 1, 1), NOON),
        ("a", 2, 2**62, 2.5, 0.1, Decimal("0.20"), None, dt.date(2026, 1, 3), None),
        ("b", 3, 2**62, None, None, None, None, None, dt.datetime(2026, 1, 1, tzinfo=UTC)),
        (None, 4, None, math.nan, 0.3, Decimal("0.40"), None, None, None),
    ]
    schema = "g string, n int, big bigint, d double, f float, m decimal(38,2), s string, day date, at timestamp"
    frame = local_frame(spark, rows, schema).selectExpr(
        "*",
        "cast(NULL AS int) AS none",
        "7 AS seven",
        "map('k', 1) AS attributes",
        "cast(at AS timestamp_ntz) AS ntz",
        "current_timestamp() - make_dt_interval(0, n) AS loaded",  # 1 to 4 hours ago
        "if(g = 'a', current_timestamp() - make_dt_interval(0, n), NULL) AS loaded_a",
        "cast(current_timestamp() - make_dt_interval(0, n) AS timestamp_ntz) AS loaded_ntz",
        "current_date() AS today",
        "if(n = 1, current_timestamp() + make_dt_interval(1), current_timestamp() - make_dt_interval(n)) AS ahead",
        "current_timestamp() + make_dt_interval(1) AS tomorrow",
    )
    frame.coalesce(1).write.parquet(path)
    return spark.read.parquet(path)


def hours(count):
    return {"count": count, "period": "hour"}


# test, arguments, status
RULES = [
    ("row_count", {"min_value": 4, "max_value": 4}, "pass"),
    ("row_count", {"min_value": 4, "inclusive": False}, "fail"),
    ("row_count", {"max_value": 3}, "fail"),
    ("not_null_proportion", {"column_name": "s", "at_least": 0.25}, "pass"),
    ("not_null_proportion", {"column_name": "s", "at_least": 0.26}, "fail"),
    ("not_null_proportion", {"column_name": "f", "at_least": 0.5, "at_most": 0.7}, "fail"),
    ("not_null_proportion", {"column_name": "none", "at_least": 0}, "pass"),
    ("not_constant", {"column_name": "n"}, "pass"),
    ("not_constant", {"column_name": "at"}, "pass"),
    ("not_constant", {"column_name": "ntz"}, "pass"),
    ("not_constant", {"column_name": "s"}, "fail"),  # one value and NULL
    ("not_constant", {"column_name": "none"}, "fail"),
    ("not_constant", {"column_name": "big"}, "fail"),
    ("not_constant", {"column_name": "today"}, "fail"),
    ("at_least_one", {"column_name": "s"}, "pass"),
    ("at_least_one", {"column_name": "none"}, "fail"),
    ("column_mean", {"column_name": "n", "min_value": 2.5, "max_value": 2.5}, "pass"),
    ("column_mean", {"column_name": "n", "min_value": 2.5, "inclusive": False}, "fail"),
    ("column_mean", {"column_name": "n", "max_value": "1 + 1"}, "fail"),
    ("column_mean", {"column_name": "big", "min_value": 2**62, "max_value": 2**62}, "pass"),
    ("column_mean", {"column_name": "d", "min_value": 0}, "fail"),  # NaN
    ("column_mean", {"column_name": "none", "min_value": 0}, "skipped"),
    ("column_sum", {"column_name": "big", "min_value": 3 * 2**62, "max_value": 3 * 2**62}, "pass"),
    ("column_sum", {"column_name": "big", "max_value": 3 * 2**62 - 1}, "fail"),
    ("column_sum", {"column_name": "big", "max_value": "cast(3 AS decimal(20,0)) * 4611686018427387904"}, "pass"),
    ("column_sum", {"column_name": "m", "min_value": 0.7, "max_value": 0.7}, "pass"),  # exact
    ("column_sum", {"column_name": "none", "max_value": 0}, "skipped"),
    ("column_min", {"column_name": "n", "min_value": 1}, "pass"),
    ("column_min", {"column_name": "n", "min_value": 2}, "fail"),
    ("column_min", {"column_name": "f", "min_value": 0.1, "max_value": 0.1}, "pass"),  # as a float holds it
    ("column_min", {"column_name": "s", "min_value": "'x'", "max_value": "'x'"}, "pass"),
    ("column_min", {"column_name": "at", "min_value": dt.date(2026, 1, 1)}, "pass"),
    ("column_min", {"column_name": "ntz", "max_value": dt.datetime(2025, 12, 31, 23)}, "fail"),
    ("column_max", {"column_name": "at", "min_value": NOON, "max_value": NOON}, "pass"),
    ("column_max", {"column_name": "at", "min_value": NOON.replace(tzinfo=None), "inclusive": False}, "fail"),
    ("column_max", {"column_name": "ntz", "min_value": NOON, "max_value": "2026-01-02 12:00:00"}, "pass"),
    ("column_max", {"column_name": "day", "max_value": "2026-01-02"}, "fail"),
    ("column_max", {"column_name": "day", "max_value": "current_date()"}, "pass"),
    ("column_max", {"column_name": "day", "max_value": "date '2026-01-02'"}, "fail"),
    ("column_max", {"column_name": "d", "min_value": 0}, "fail"),  # NaN
    ("column_max", {"column_name": "n", "max_value": "cast(NULL AS int)"}, "error"),  # not a pass
    ("column_stddev", {"column_name": "n", "min_value": 1.2909944, "max_value": 1.2909945}, "pass"),
    ("column_stddev", {"column_name": "n", "max_value": 1}, "fail"),
    ("column_stddev", {"column_name": "seven", "max_value": 0}, "pass"),
    ("column_stddev", {"column_name": "n", "max_value": "0.5 * 2"}, "fail"),
    ("column_stddev", {"column_name": "none", "max_value": 0}, "skipped"),
    ("column_quantile", {"column_name": "n", "quantile": 0.5, "min_value": 2.5, "max_value": 2.5}, "pass"),
    (
        "column_quantile",
        {"column_name": "n", "quantile": 0.5, "min_value": 1.98, "max_value": 2.02, "approx": True},
        "pass",
    ),
    ("column_quantile", {"column_name": "m", "quantile": 1, "max_value": 0.39}, "fail"),
    ("column_quantile", {"column_name": "none", "quantile": 0.5, "max_value": 1}, "skipped"),
    ("recency", {"datepart": "hour", "field": "loaded", "interval": 2}, "pass"),
    ("recency", {"datepart": "minute", "field": "loaded", "interval": 30}, "fail"),
    ("recency", {"datepart": "hour", "field": "loaded_ntz", "interval": 2}, "pass"),
    ("recency", {"datepart": "minute", "field": "loaded_ntz", "interval": 30}, "fail"),
    ("recency", {"datepart": "day", "field": "today", "interval": 1, "ignore_time_component": True}, "pass"),
    ("recency", {"datepart": "month", "field": "at", "interval": 1}, "fail"),
    ("recency", {"datepart": "year", "field": "cast(at AS string)", "interval": 1000}, "pass"),
    ("recency", {"datepart": "day", "field": "ahead", "interval": 3}, "pass"),  # the row of 2 days ago
    ("recency", {"datepart": "day", "field": "ahead", "interval": 1}, "fail"),
    ("recency", {"datepart": "day", "field": "tomorrow", "interval": 1}, "fail"),  # dbt_utils passes it
    ("freshness", {"loaded_at_field": "loaded", "error_after": hours(2)}, "pass"),
    ("freshness", {"loaded_at_field": "loaded", "warn_after": {"count": 30, "period": "minute"}}, "warn"),
    ("freshness", {"loaded_at_field": "loaded", "warn_after": hours(0), "error_after": hours(2)}, "warn"),
    ("freshness", {"loaded_at_field": "loaded", "warn_after": hours(0), "error_after": hours(1)}, "fail"),
    ("freshness", {"loaded_at_field": "loaded", "error_after": hours(2), "filter": "n > 2"}, "fail"),
    ("freshness", {"loaded_at_field": "loaded", "error_after": hours(2), "filter": "n > 9"}, "fail"),
    ("freshness", {"loaded_at_field": "loaded", "warn_after": hours(2), "filter": "n > 9"}, "warn"),
    ("freshness", {"loaded_at_field": "cast(none AS timestamp)", "warn_after": hours(2)}, "warn"),
    ("freshness", {"loaded_at_field": "today", "error_after": {"count": 2, "period": "day"}}, "pass"),
    ("freshness", {"loaded_at_field": "cast(none AS timestamp)", "error_after": hours(2)}, "fail"),
    ("freshness", {"loaded_at_field": "tomorrow", "error_after": hours(2)}, "fail"),
    ("freshness", {"loaded_at_field": "ahead", "error_after": hours(49)}, "pass"),
]


def test_each_as_it_should_and_all_in_one_job_but_for_exact_quantiles(spark, table):
    with counted_jobs(spark) as jobs:
        results = run(table, *(bound(test, None, **arguments) for test, arguments, _ in RULES))
    assert len(jobs) == 1 + 3
    found = [(test, arguments, r.status) for (test, arguments, _), r in zip(RULES, results, strict=True)]
    assert found == RULES
    said = {r.message for r in results}
    assert {
        "there are 4 rows, not at most 3",
        "s is not NULL in 1 of 4 rows (0.25), not between 0.26 and 1",
        "s holds one value in all 4 rows: x",
        "none is NULL in all 4 rows",
        "none has no value in 4 rows",
        "the mean of n is 2.5, not above 2.5",
        "the mean of d is NaN, not at least 0",
        "none has no mean: too few of its 4 rows have a value",
        f"the sum of big is {3 * 2**62}, not at most {3 * 2**62 - 1}",
        "the smallest value of ntz is 2026-01-01T00:00:00Z, not at most 2025-12-31 23:00:00",
        "the greatest value of day is 2026-01-03T00:00:00Z, not at most 2026-01-02",
        "tomorrow holds no time up to now in 4 rows, and 4 in the future",
        "cast(none AS timestamp) is NULL in all 4 rows",
        "there are 0 rows where n > 9, and so no time in loaded",
    } <= said
    ages = [r.evidence["age_seconds"] for r in results if r.check == "freshness" and "age_seconds" in r.evidence]
    assert 3600 <= ages[0] < 7200


def test_no_rows(table):
    results = run(table, *(bound(test, {"where": "n = 99"}, **arguments) for test, arguments, _ in RULES))
    for (test, arguments, _), result in zip(RULES, results, strict=True):
        if test == "row_count":
            assert result.status == ("fail" if "min_value" in arguments else "pass")
        elif test == "at_least_one":
            assert (result.status, result.message) == ("fail", f"{arguments['column_name']} has no value in 0 rows")
        elif test == "recency":  # as in dbt_utils since 1.4.0: no row is not a recent row
            message = f"there are 0 rows, and so no time in {arguments['field']}"
            assert (result.status, result.failures, result.message) == ("fail", 1, message)
        elif test == "freshness":  # as in dbt: what holds no row was loaded infinitely long ago
            assert result.status == ("fail" if "error_after" in arguments else "warn")
            assert result.message.startswith("there are 0 rows")
        else:
            assert (result.status, result.message) == ("skipped", "0 rows where n = 99")


def test_groups(spark, table):
    by = {"group_by_columns": ["g"]}
    asked = [
        bound("at_least_one", column_name="s", **by),
        bound("not_null_proportion", column_name="d", at_least=0.6, **by),
        bound("not_constant", column_name="n", **by),
        bound("recency", datepart="hour", field="loaded_a", interval=5, **by),
        bound("at_least_one", column_name="n", **by),
        bound("at_least_one", {"where": "n > 99"}, column_name="s", **by),
        bound("recency", {"where": "n > 99"}, datepart="hour", field="loaded_a", interval=5, **by),
        bound("at_least_one", column_name="s", group_by_columns=["zzz"]),
        bound("not_null_proportion", column_name="d", at_least=0, at_most=0.5, **by),
    ]
    with counted_jobs(spark) as jobs:
        results = run(table, *asked)
    found = [(r.status, r.failures) for r in results]
    # As in dbt_utils since 1.3.0 (at_least_one) and 1.4.0 (recency).
    assert found == [
        ("fail", 2),
        ("fail", 1),
        ("fail", 2),
        ("fail", 2),
        ("pass", 0),
        ("skipped", None),
        ("skipped", None),
        ("error", None),
        ("fail", 2),
    ]
    assert [r.message for r in results] == [
        "s has no value in 2 groups",
        "the share of rows whose d is not NULL is not between 0.6 and 1 in 1 groups",
        "n does not vary in 2 groups",
        "the newest loaded_a is older than 5 hours in 2 groups",
        "",
        "0 rows where n > 99",
        "0 rows where n > 99",
        f"the_table has no column 'zzz'; there is {', '.join(table.columns)}",
        "the share of rows whose d is not NULL is not between 0 and 0.5 in 2 groups",
    ]

    def by_key(result):
        return sorted(result.samples, key=lambda s: s["g"] or "")

    assert by_key(results[0]) == [{"g": None, "n_records": 1}, {"g": "b", "n_records": 1}]
    assert results[1].samples == ({"g": "b", "n_records": 1, "not_null_proportion": 0.0},)
    assert by_key(results[2]) == [{"g": None, "n_records": 1, "n": 4}, {"g": "b", "n_records": 1, "n": 3}]
    assert [s["most_recent"] for s in results[3].samples] == [None, None]
    assert len(jobs) == 9  # eight groupings, and the samples of all that fail


REFUSED = [
    ("column_mean", {"column_name": "s", "min_value": 1}, "column_mean needs numbers, and column s is string"),
    ("column_sum", {"column_name": "day", "min_value": 1}, "column_sum needs numbers, and column day is date"),
    ("column_stddev", {"column_name": "zzz", "min_value": 1}, "the_table has no column 'zzz'"),
    ("column_quantile", {"column_name": "s", "quantile": 0, "min_value": 1}, "column_quantile needs numbers"),
    ("column_min", {"column_name": "s", "min_value": 1}, "1 is a number, and column s is string"),
    ("column_max", {"column_name": "attributes", "min_value": "1"}, "which has no order"),
    ("column_max", {"column_name": "n", "max_value": "g"}, "MISSING_GROUP_BY"),
    ("column_max", {"column_name": "n", "max_value": "1 +"}, "in '1 +'"),
    ("not_constant", {"column_name": "attributes"}, "column attributes is map<string,int>, which has no order"),
    ("recency", {"datepart": "day", "field": "n", "interval": 1}, "recency needs a date or timestamp, and column n is"),
    ("recency", {"datepart": "day", "field": "zzz", "interval": 1}, "the_table has no column 'zzz'"),
    ("freshness", {"loaded_at_field": "s", "error_after": hours(1)}, "`to_timestamp(s)` makes one of it"),
    ("freshness", {"loaded_at_field": "at", "error_after": hours(1), "filter": "n +"}, "in 'n +'"),
]


def test_what_cannot_be_asked_is_an_error_and_the_others_still_share_one_job(spark, table):
    with counted_jobs(spark) as jobs:
        results = run(
            table,
            bound("row_count", min_value=1),
            *(bound(test, None, **arguments) for test, arguments, _ in REFUSED),
            bound("at_least_one", column_name="n"),
        )
    assert [r.status for r in results] == ["pass", *["error"] * len(REFUSED), "pass"]
    for result, (_, _, said) in zip(results[1:-1], REFUSED, strict=True):
        assert said in result.message
        assert "\n" not in result.message
    assert len(jobs) == 1


@pytest.mark.parametrize(
    ("test", "arguments"),
    [
        ("row_count", {}),
        ("row_count", {"min_value": "many"}),
        ("not_null_proportion", {"column_name": "n", "at_least": 2}),
        ("not_null_proportion", {"column_name": "n", "at_least": 0.5, "at_most": 0.4}),
        ("column_quantile", {"column_name": "n", "quantile": 50, "min_value": 1}),
        ("column_quantile", {"column_name": "n", "quantile": 0.5}),
        ("recency", {"datepart": "fortnight", "field": "n", "interval": 1}),
        ("recency", {"datepart": "day", "field": "n", "interval": -1}),
        ("freshness", {"loaded_at_field": "at"}),
        ("freshness", {"loaded_at_field": "at", "warn_after": {"count": 1, "period": "week"}}),
    ],
    ids=str,
)
def test_arguments_that_make_no_sense(test, arguments):
    with raises(ConfigError):
        build(CheckSpec(test=test, arguments=arguments), "here")


def test_merged_measures_are_those_of_the_whole(spark):
    """Two halves, measured apart and merged, give what one scan gives."""
    columns = ["id", "cast(id AS decimal(38,2)) AS m", "cast(id * 1e9 + 1e15 AS double) AS d", "cast(id AS int) AS n"]
    first, second, whole = (spark.range(*ends).selectExpr(*columns) for ends in ((0, 50), (50, 101), (0, 101)))
    checks = {}
    for test in ("column_mean", "column_sum", "column_min", "column_max", "column_stddev"):
        for name in whole.columns:
            check = check_class(test)(column_name=name, min_value=0).fit({name: whole.schema[name].dataType}, whole)
            checks[f"{test}_{name}"] = (check, check.measures())
    asked = [m.over(None).alias(f"{key}:{n}") for key, (_, of) in checks.items() for n, m in of.items()]
    rows = [table.agg(*asked).collect()[0].asDict() for table in (first, second, whole)]
    for key, (check, measures) in checks.items():
        one_, other, all_ = ({n: row[f"{key}:{n}"] for n in measures} for row in rows)
        merged = {n: m.merge(one_[n], other[n]) for n, m in measures.items()}
        exact = "stddev" not in key and not key.endswith("_d")
        value, ends = (check.figure.value(of, check.column_type) for of in (merged, all_))
        assert value == (ends if exact else pytest.approx(ends, rel=1e-12))
        assert {n: m.merge(None, other[n]) for n, m in measures.items()} == other


def test_a_float_columns_sum_is_a_doubles(spark):
    table = spark.range(3).selectExpr("cast(0.1 AS float) AS f")
    assert one(table, "column_sum", column_name="f", min_value=0.29, max_value=0.31).status == "pass"


# test, arguments, status: of values that doubles do not hold, and sums that decimals of 38 digits do not hold.
EXACT = [
    ("column_sum", {"column_name": "w", "min_value": TWICE, "max_value": TWICE}, "pass"),
    ("column_sum", {"column_name": "w", "min_value": LESS}, "fail"),
    ("column_sum", {"column_name": "w", "max_value": "-120000000000000000000"}, "pass"),
    ("column_sum", {"column_name": "w", "max_value": "cast(NULL AS int)"}, "error"),
    ("column_sum", {"column_name": "w", "max_value": "'many'"}, "error"),
    ("column_mean", {"column_name": "w", "min_value": WIDE, "max_value": WIDE}, "pass"),
    ("column_mean", {"column_name": "w", "max_value": WIDE, "inclusive": False}, "fail"),
    ("column_sum", {"column_name": "whole", "min_value": 198 * 10**36, "max_value": 198 * 10**36}, "pass"),
    ("column_sum", {"column_name": "part", "min_value": Decimal("1.8"), "max_value": Decimal("1.8")}, "pass"),
    ("column_mean", {"column_name": "big", "max_value": "9007199254740992"}, "fail"),
    ("column_sum", {"column_name": "none", "max_value": 0}, "skipped"),
    ("column_quantile", {"column_name": "m", "quantile": 0.5, "min_value": 0.15, "max_value": 0.15}, "pass"),
    ("column_quantile", {"column_name": "m", "quantile": 0.5, "max_value": "0.10 + 0.05"}, "pass"),
    ("column_quantile", {"column_name": "m", "quantile": 0.5, "max_value": "0.1"}, "fail"),
    ("column_quantile", {"column_name": "n", "quantile": 0.95, "min_value": 1.95, "max_value": 1.95}, "pass"),
    ("column_quantile", {"column_name": "big", "quantile": 0.5, "max_value": 2**53}, "fail"),
    ("column_quantile", {"column_name": "w", "quantile": 0, "min_value": WIDE, "max_value": WIDE}, "pass"),
    ("column_quantile", {"column_name": "none", "quantile": 0.5, "max_value": 1}, "skipped"),
    ("metric_anomaly", {"column_name": "w", "metric": "sum"}, "skipped"),
]


@pytest.mark.parametrize("mode", ["true", "false"])
def test_sums_means_and_quantiles_are_exact(spark, mode):
    spark.conf.set("spark.sql.ansi.enabled", mode)  # the fixture sets it back
    table = spark.sql(
        f"SELECT {WIDE:f} AS w, cast('{99 * 10**36}' AS decimal(38,0)) AS whole, cast(0.9 AS decimal(38,38)) AS part, "
        "9007199254740993 AS big, cast(m AS decimal(10,2)) AS m, n, cast(NULL AS decimal(38,18)) AS none "
        "FROM VALUES (1, 0.10), (2, 0.20) AS t (n, m)"
    )
    results = run(table, *(bound(test, None, **arguments) for test, arguments, _ in EXACT))
    found = [(test, arguments, r.status) for (test, arguments, _), r in zip(EXACT, results, strict=True)]
    assert found == EXACT
    said = [r.message for r in results if r.status in ("error", "skipped")]
    assert said == [
        "a bound of w is NULL, so that nothing was compared",
        "max_value \"'many'\" gives 'many', which is no number that bounds anything",
        "none has no sum: too few of its 2 rows have a value",
        "none has no quantile: too few of its 2 rows have a value",
        "not enough history: 0 of 7 runs",
    ]
    assert results[-1].evidence["value"] == -1.2e20
