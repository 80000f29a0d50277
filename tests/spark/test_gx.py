"""GX suites on real tables, by Great Expectations itself."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path

import pytest

from recon.checks.bound import Bound
from recon.checks.engine.runner import run_table
from recon.checks.registry import build_all
from recon.convert.gx import suite_of
from recon.model import CheckResult
from recon.project import CheckConfig, CheckSpec
from recon.spark.frames import local_frame
from tests.support.data_checks import bound, run

# Importing it takes seconds, and every process collects this file.
pytestmark = pytest.mark.skipif(find_spec("great_expectations") is None, reason="great_expectations is not installed")

NOT_NULL, BETWEEN, ROWS = (
    "expect_column_values_to_not_be_null",
    "expect_column_values_to_be_between",
    "expect_table_row_count_to_be_between",
)


def suite(*expectations, config: dict | None = None, folder: Path = Path(), **arguments) -> list[Bound]:
    settings = CheckConfig(**{"samples": "full", **(config or {})})
    given = {"expectations": list(expectations), **arguments} if expectations else arguments
    spec = CheckSpec(test="expectation_suite", arguments=given, config=settings)
    return [
        Bound(check=c, config=c.settled(settings), unique_id=f"t{n}", name=c.label(), pipeline="p", sink="s")
        for n, c in enumerate(build_all(spec, "here", folder))
    ]


@pytest.fixture(scope="module")
def table(spark, tmp_path_factory):
    rows = [(n, None if n % 10 == 0 else n * 1.5, ["new", "paid", "odd"][n % 3], f"m{n}") for n in range(60)]
    frame = local_frame(spark, [*rows, (5, 7.5, "new", "bad")], "id int, amount double, status string, mail string")
    # In a file, since the optimizer would filter a local frame without a job; in one, so that GX's jobs stay cheap.
    path = str(tmp_path_factory.mktemp("gx") / "table")
    frame.coalesce(1).write.parquet(path)
    return spark.read.parquet(path)


def told(results: list[CheckResult]) -> list[tuple[str, int | None]]:
    return [(r.status, r.failures) for r in results]


def test_every_expectation_has_its_result(spark, table, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    written = {
        "expectations": [
            {"type": NOT_NULL, "kwargs": {"column": "amount"}},
            {"type": NOT_NULL, "kwargs": {"column": "amount", "mostly": 0.5}},
            {"type": BETWEEN, "kwargs": {"column": "amount", "min_value": 10}, "severity": "warning"},
            {"type": "expect_column_values_to_be_in_set", "kwargs": {"column": "status", "value_set": ["new", "paid"]}},
            {"type": "expect_column_values_to_be_unique", "kwargs": {"column": "id"}},
            {"type": "expect_compound_columns_to_be_unique", "kwargs": {"column_list": ["id", "mail"]}},
            {
                "type": "expect_column_pair_values_a_to_be_greater_than_b",
                "kwargs": {"column_A": "amount", "column_B": "id", "ignore_row_if": "either_value_is_missing"},
            },
            {"type": ROWS, "kwargs": {"min_value": 100}},
            {"type": "expect_column_mean_to_be_between", "kwargs": {"column": "id", "max_value": 1}},
            {
                "type": "unexpected_rows_expectation",
                "kwargs": {"unexpected_rows_query": "select * from {batch} where id > 50"},
            },
        ]
    }
    (tmp_path / "s.json").write_text(json.dumps(written))
    kept_before = set(spark.sparkContext._jsc.getPersistentRDDs())  # Delta keeps snapshots of its own
    found = run(table, *suite(suite="s.json", folder=tmp_path))
    assert told(found) == [
        ("fail", 6),
        ("pass", 0),
        ("warn", 7),
        ("fail", 20),
        ("fail", 2),
        ("pass", 0),
        ("pass", 0),
        ("fail", 1),
        ("fail", 1),
        ("fail", 9),
    ]
    within, between, odd, twice, rows = (found[n] for n in (1, 2, 3, 4, 7))
    assert within.evidence["unexpected_count"] == 6 and within.message == "6 unexpected, within mostly 0.5"
    assert [s["amount"] for s in between.samples] == [1.5, 3.0, 4.5, 6.0, 7.5]  # the config's limit, 5
    assert odd.samples[0] == {"status": "odd"} and odd.evidence["rows"] == 61
    assert twice.samples == ({"id": 5}, {"id": 5})
    assert rows.message == f"{ROWS}: observed 61" and rows.evidence["observed_value"] == 61
    # Nothing is left behind: no cache, no view, no file, no telemetry.
    assert set(spark.sparkContext._jsc.getPersistentRDDs()) <= kept_before
    assert "tmp_view" not in [t.name for t in spark.catalog.listTables()]
    assert [file.name for file in tmp_path.iterdir()] == ["s.json"]
    assert os.environ["GX_ANALYTICS_ENABLED"] == "false"


def test_what_cannot_be_evaluated_is_an_error_and_the_others_run(table, tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text("{")
    good = {NOT_NULL: {"column": "id"}}
    found = run(
        table,
        *suite(
            {BETWEEN: {"column": "nope", "min_value": 1}},
            {BETWEEN: {"colum": "id", "min_value": 1}},
            {"expect_column_values_to_be_betwee": {"column": "id"}},
            {"expect_column_values_to_match_regex": {"column": "mail", "regex": "(["}},
            good,
        ),
        *suite(suite="bad.json", folder=tmp_path),
        bound("not_null", column_name="amount"),
    )
    assert [r.status for r in found] == ["error", "error", "error", "error", "pass", "error", "fail"]
    missing, wrong, unknown, regex = (r.message for r in found[:4])
    assert missing == f'{BETWEEN} could not be evaluated: The column "nope" in BatchData does not exist.'
    assert wrong == f"{BETWEEN} cannot be made of its arguments: column: field required"
    assert unknown == (
        f"Great Expectations knows no expectation 'expect_column_values_to_be_betwee'; did you mean '{BETWEEN}'?"
    )
    assert "Unclosed character class" in regex
    assert "bad.json is not valid JSON" in found[5].message


def test_values_that_json_cannot_hold_spoil_no_expectation(spark) -> None:
    odd = spark.sql(
        "SELECT cast(x AS binary) AS bin, named_struct('b', cast(x AS binary)) AS inside, "
        "array(cast(x AS binary)) AS l, make_dt_interval(n div 2) AS took, map('k', n) AS attributes, "
        "double('NaN') AS f, n "
        "FROM VALUES (1, 'a'), (2, 'a'), (3, NULL) AS t (n, x)"
    )
    found = run(
        odd,
        *suite(
            {"expect_column_values_to_be_unique": {"column": "bin"}},
            {NOT_NULL: {"column": "bin"}},
            {"expect_column_values_to_be_unique": {"column": "inside"}},
            {"expect_column_values_to_be_unique": {"column": "l"}},
            {"expect_column_values_to_be_unique": {"column": "took"}},
            {"expect_column_values_to_be_unique": {"column": "attributes"}},
            {BETWEEN: {"column": "f", "max_value": 2}},
            {BETWEEN: {"column": "n", "max_value": 2}},
        ),
    )
    assert found[0].samples == ({"bin": "YQ=="}, {"bin": "YQ=="})
    assert told(found[:4]) == [("fail", 2), ("fail", 1), ("fail", 2), ("fail", 2)]
    assert told(found[4:]) == [("fail", 2), ("error", None), ("fail", 3), ("fail", 1)]
    assert "EXPRESSION_TYPE_IS_NOT_ORDERABLE" in found[5].message


def test_no_rows_no_answer_but_for_the_table_itself(table) -> None:
    expectations = ({NOT_NULL: {"column": "amount"}}, {ROWS: {"min_value": 1}}, {ROWS: {"max_value": 1}})
    found = run(table, *suite(*expectations, config={"where": "id < 0"}))
    assert told(found) == [("skipped", None), ("fail", 1), ("pass", 0)]
    assert found[0].message == "0 rows where id < 0"


def test_on_a_micro_batch(spark, tmp_path: Path) -> None:
    """The same checks in foreachBatch, whose batches have a session of their own."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.json").write_text('{"id": 1}\n{"id": null}\n')
    found: list[CheckResult] = []
    checks = suite(
        {NOT_NULL: {"column": "id"}},
        {"unexpected_rows_expectation": {"unexpected_rows_query": "select * from {batch} where id = 1"}},
    )

    def judge(batch, _: int) -> None:
        found.extend(run_table(checks, batch, "the batch", lambda: datetime.now(UTC)))

    stream = spark.readStream.schema("id int").json(str(tmp_path / "in")).writeStream.foreachBatch(judge)
    stream.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start().awaitTermination()
    assert told(found) == [("fail", 1), ("fail", 1)]


def test_an_exported_suite_agrees_with_the_checks(spark, table) -> None:
    """Round trip: what `recon export gx` writes finds the same, by GX, as the checks themselves."""
    ours = [
        bound("not_null", column_name="amount"),
        bound("not_null", {"where": "id > 30", "severity": "warn"}, column_name="amount"),
        bound("not_null_proportion", column_name="amount", at_least=0.5),
        bound("accepted_values", column_name="status", values=["new", "paid"]),
        bound("accepted_range", column_name="amount", min_value=7.5, inclusive=False),
        bound("accepted_range", column_name="amount", min_value="id + 5"),
        bound("matches_regex", column_name="mail", regex="m[0-9]+", match="full"),
        bound("matches_regex", column_name="mail", regex="m1", negate=True),
        bound("not_empty_string", column_name="mail"),
        bound("expression_is_true", {"where": "id < 50"}, expression="amount < 30"),
        bound("unique", column_name="id"),
        bound("unique_combination_of_columns", combination_of_columns=["id", "status"]),
        bound("unique_combination_of_columns", combination_of_columns=["amount", "status"]),
        bound("row_count", min_value=61, inclusive=False),
        bound("row_count", max_value=61),
        bound("column_mean", column_name="amount", max_value=10),
        bound("column_min", column_name="id", min_value=0),
        bound("column_max", column_name="id", max_value=59, inclusive=False),
        bound("column_sum", column_name="id", min_value=1775, max_value=1775),
        bound("column_stddev", column_name="amount", min_value=20, max_value=30),
        bound("column_quantile", column_name="id", quantile=0.5, min_value=29, max_value=30),
        bound("not_constant", column_name="status"),
        bound("at_least_one", column_name="amount"),
    ]
    suite_json = json.loads(json.dumps(suite_of(ours, "s").suite))
    assert suite_json["meta"]["recon"]["left_out"] == []
    theirs = suite(*suite_json["expectations"])
    assert [b.config.severity for b in theirs] == [b.config.severity for b in ours]
    found = run(table, *ours, *theirs)
    mine, gx = found[: len(ours)], found[len(ours) :]
    assert {r.status for r in mine} == {"pass", "warn", "fail"}
    for a, b in zip(mine, gx, strict=True):
        # recon counts values that occur more than once, GX the rows that have one.
        failures = a.failures
        if a.failures and a.check.startswith("unique"):
            failures = a.evidence["duplicate_keys"] + a.evidence["surplus_rows"]
        assert (b.status, b.failures) == (a.status, failures), (a, b)
