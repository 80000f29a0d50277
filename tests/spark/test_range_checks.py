"""accepted_range, expression_is_true, matches_regex and not_empty_string on real Spark."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pytest

from recon.base.errors import ConfigError
from recon.checks.registry import build
from recon.project import CheckSpec
from recon.spark.frames import local_frame
from tests.support.data_checks import bound, counted_jobs, run
from tests.support.messages import raises

# As in the session that an audit starts.
pytestmark = pytest.mark.usefixtures("ansi")

UTC = dt.UTC
NOON = dt.datetime(2026, 1, 2, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def table(spark, tmp_path_factory):
    """Parquet, so that every job counted is ours."""
    path = str(tmp_path_factory.mktemp("ranges") / "t")
    rows = [
        (1, 0.1, 0.1, Decimal("1.10"), "new", dt.date(2026, 1, 1), dt.datetime(2026, 1, 1, 12, tzinfo=UTC)),
        (2, 0.2, 0.2, Decimal("2.20"), "", dt.date(2026, 1, 2), NOON),
        (3, float("nan"), None, None, " \t\n", dt.date(2026, 1, 3), dt.datetime(2026, 1, 3, 12, tzinfo=UTC)),
        (4, None, float("nan"), Decimal("4.40"), None, None, None),
        (2**62, -1.0, 5.0, Decimal("-4.40"), "ord-123456", dt.date(2025, 1, 1), dt.datetime(2025, 1, 1, tzinfo=UTC)),
    ]
    schema = "n bigint, d double, f float, m decimal(10,2), s string, day date, at timestamp"
    local_frame(spark, rows, schema).selectExpr(
        "*", "cast(at AS timestamp_ntz) AS ntz", "map('a', n) AS attributes", "named_struct('n', n) AS inside"
    ).coalesce(1).write.parquet(path)
    return spark.read.parquet(path)


# test, arguments, failures
RULES = [
    ("accepted_range", {"column_name": "n", "min_value": 1, "max_value": 4}, 1),
    ("accepted_range", {"column_name": "n", "min_value": 1, "max_value": 4, "inclusive": False}, 3),
    ("accepted_range", {"column_name": "n", "min_value": 1.5}, 1),
    ("accepted_range", {"column_name": "n", "max_value": 10**30}, 0),  # beyond any bigint
    ("accepted_range", {"column_name": "n", "max_value": 1e300}, 0),
    ("accepted_range", {"column_name": "n", "max_value": 2**62}, 0),
    ("accepted_range", {"column_name": "n", "max_value": 2**62 - 1}, 1),  # exact, not as doubles
    ("accepted_range", {"column_name": "n", "max_value": "inside.n"}, 0),
    ("accepted_range", {"column_name": "inside.n", "max_value": 3}, 2),
    ("accepted_range", {"column_name": "d", "min_value": 0}, 2),  # -1 and NaN; NULL passes
    ("accepted_range", {"column_name": "d", "min_value": 0.1, "max_value": 0.2}, 2),
    ("accepted_range", {"column_name": "f", "min_value": 0.1, "max_value": 0.2}, 2),  # 0.1 as a float holds it
    ("accepted_range", {"column_name": "m", "min_value": 1.1, "max_value": 4.4}, 1),
    ("accepted_range", {"column_name": "m", "min_value": 1.1, "max_value": 4.4, "inclusive": False}, 3),
    ("accepted_range", {"column_name": "s", "min_value": "'a'", "max_value": "'o'"}, 3),
    ("accepted_range", {"column_name": "day", "min_value": dt.date(2026, 1, 2)}, 2),
    ("accepted_range", {"column_name": "day", "min_value": "2026-01-02", "max_value": "2026-01-02"}, 3),
    ("accepted_range", {"column_name": "day", "max_value": "current_date()"}, 0),
    ("accepted_range", {"column_name": "day", "max_value": NOON}, 1),
    ("accepted_range", {"column_name": "at", "min_value": NOON}, 2),
    ("accepted_range", {"column_name": "at", "min_value": NOON.replace(tzinfo=None)}, 2),  # UTC
    ("accepted_range", {"column_name": "at", "min_value": "2026-01-02T13:00:00+01:00", "inclusive": False}, 3),
    ("accepted_range", {"column_name": "at", "max_value": dt.date(2026, 1, 2)}, 2),  # its midnight
    ("accepted_range", {"column_name": "ntz", "min_value": NOON, "max_value": NOON}, 3),
    ("accepted_range", {"column_name": "at", "min_value": "day"}, 0),
    ("accepted_range", {"column_name": "n", "max_value": "cast(NULL AS bigint)"}, 0),
    ("expression_is_true", {"expression": "n < 3"}, 3),
    ("expression_is_true", {"column_name": "n", "expression": "< 4 OR n > 4"}, 1),
    ("expression_is_true", {"expression": "d >= 0"}, 1),  # NULL passes; NaN is above every number
    ("expression_is_true", {"expression": "coalesce(d >= 0, false)"}, 2),
    ("matches_regex", {"column_name": "s", "regex": r"\d{6}"}, 3),
    ("matches_regex", {"column_name": "s", "regex": r"ord|new", "match": "full"}, 3),
    ("matches_regex", {"column_name": "s", "regex": r"\s", "match": "search", "negate": True}, 1),
    ("matches_regex", {"column_name": "s", "regex": r".*", "match": "full"}, 1),  # the dot matches no line end
    ("not_empty_string", {"column_name": "s"}, 2),
    ("not_empty_string", {"column_name": "s", "trim_whitespace": False}, 1),
    ("not_null", {"column_name": "s"}, 1),
    ("accepted_values", {"column_name": "s", "values": ["new", ""]}, 2),
]


def test_all_of_them_are_one_job_and_one_for_samples(spark, table):
    with counted_jobs(spark) as jobs:
        results = run(table, *(bound(test, None, **arguments) for test, arguments, _ in RULES))
    found = [(test, arguments, result.failures) for (test, arguments, _), result in zip(RULES, results, strict=True)]
    assert found == RULES
    assert {r.status for r in results} == {"pass", "fail"}
    assert len(jobs) == 2
    by_label = {r.message: r.samples for r in results if r.failures}
    assert by_label["n is not between 1 and 4 in 1 of 5 rows"] == ({"n": 2**62},)
    assert by_label["s is empty in 1 of 5 rows"] == ({"s": ""},)
    assert by_label["s does not match ord|new in 3 of 5 rows"]
    (whole,) = by_label["d >= 0 is false in 1 of 5 rows"]  # no column named: the row
    assert set(whole) == set(table.columns)


def test_no_rows_are_skipped(table):
    asked = [bound(test, {"where": "n = 99"}, **arguments) for test, arguments, _ in RULES]
    assert {(r.status, r.message) for r in run(table, *asked)} == {("skipped", "0 rows where n = 99")}


REFUSED = [
    ("accepted_range", {"column_name": "zzz", "min_value": 1}, "the_table has no column 'zzz'"),
    ("accepted_range", {"column_name": "s", "min_value": 1}, "1 is a number, and column s is string"),
    ("accepted_range", {"column_name": "n", "min_value": dt.date(2026, 1, 1)}, "2026-01-01 is a date, and column n is"),
    ("accepted_range", {"column_name": "day", "min_value": 5}, "5 is a number, and column day is date"),
    ("accepted_range", {"column_name": "n", "min_value": "zzz"}, "UNRESOLVED_COLUMN"),
    ("accepted_range", {"column_name": "day", "min_value": "5 + 5"}, "DATATYPE_MISMATCH"),
    ("expression_is_true", {"expression": "n >"}, "in 'n >'"),
    ("expression_is_true", {"expression": "n + 1"}, "DATATYPE_MISMATCH"),
    ("expression_is_true", {"expression": "max(n) > 1"}, "NESTED_AGGREGATE"),
    ("expression_is_true", {"expression": "zzz = 1"}, "UNRESOLVED_COLUMN"),
    ("matches_regex", {"column_name": "s", "regex": "("}, "regex '(' is no Java regular expression"),
    ("matches_regex", {"column_name": "n", "regex": "1"}, "matches_regex needs text, and column n is bigint"),
    ("not_empty_string", {"column_name": "n"}, "not_empty_string needs text, and column n is bigint"),
    ("not_empty_string", {"column_name": "zzz"}, "the_table has no column 'zzz'"),
]


def test_what_cannot_be_asked_is_an_error_and_the_others_still_share_one_job(spark, table):
    good = [bound("not_null", column_name="n"), bound("accepted_range", column_name="n", min_value=1)]
    with counted_jobs(spark) as jobs:
        results = run(table, good[0], *(bound(test, None, **arguments) for test, arguments, _ in REFUSED), good[1])
    assert [r.status for r in results] == ["pass", *["error"] * len(REFUSED), "pass"]
    for result, (_, _, said) in zip(results[1:-1], REFUSED, strict=True):
        assert said in result.message
        assert "\n" not in result.message
    assert len(jobs) == 1


def test_a_value_that_breaks_an_expression_costs_its_check_alone(spark, ansi, table):
    good = [bound("accepted_range", column_name="n", min_value=-i) for i in range(7)]
    with counted_jobs(spark) as jobs:
        results = run(table, *good[:3], bound("expression_is_true", expression="cast(s AS int) > 1"), *good[3:])
    assert [r.status for r in results] == ["pass"] * 3 + ["error"] + ["pass"] * 4
    assert "CAST_INVALID_INPUT" in results[3].message
    assert len(jobs) == 7  # halves of halves, not each on its own


@pytest.mark.parametrize(
    ("test", "arguments"),
    [
        ("accepted_range", {}),
        ("accepted_range", {"min_value": True}),
        ("accepted_range", {"max_value": [1]}),
        ("accepted_range", {"max_value": float("inf")}),
        ("accepted_range", {"min_value": 2, "max_value": 1}),
        ("accepted_range", {"min_value": 2, "max_value": 2, "inclusive": False}),
        ("accepted_range", {"min_value": NOON, "max_value": dt.date(2026, 1, 1)}),
        ("expression_is_true", {"expression": " "}),
        ("matches_regex", {"regex": "a", "match": "some"}),
    ],
    ids=str,
)
def test_arguments_that_make_no_sense(test, arguments):
    with raises(ConfigError):
        build(CheckSpec(test=test, column="n", arguments=arguments), "here")


def test_names():
    def label(test, **arguments):
        return build(CheckSpec(test=test, arguments=arguments), "here").label()

    assert label("accepted_range", column_name="n", min_value=0, max_value=9) == "n__0__9"
    assert label("expression_is_true", column_name="n", expression=">= 0") == "n >= 0"
    assert label("matches_regex", column_name="s", regex="a", negate=True) == "s__not_a"
    assert build(CheckSpec(test="dbt_utils.accepted_range", column="n", arguments={"min_value": 1}), "here")
