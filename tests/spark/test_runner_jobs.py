"""The runner: how many Spark jobs, what is read, and one bad check among good ones."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import pytest

from recon.checks.data_check import RowCheck
from recon.spark.frames import local_frame
from tests.support.data_checks import bound, counted_jobs, run

pytestmark = pytest.mark.usefixtures("interpreted")


@pytest.fixture(scope="module")
def orders(spark, tmp_path_factory):
    """A Parquet table, so that every job counted is ours and none Delta's."""
    path = str(tmp_path_factory.mktemp("orders") / "t")
    spark.range(1_000).selectExpr(
        "id",
        "id DIV 2 AS pair",
        "IF(id % 10 = 0, NULL, 'new') AS status",
        "CAST(id AS STRING) AS text",
        "repeat('x', 50) AS payload",
    ).repartition(3).write.parquet(path)
    return spark.read.parquet(path)


def passing():
    return [
        bound("not_null", column_name="id"),
        bound("not_null", {"where": "id % 10 != 0"}, column_name="status"),
        bound("accepted_values", column_name="status", values=["new"]),
        bound("accepted_values", {"where": "id > 5"}, column_name="id", values=list(range(6, 1000))),
    ]


def test_all_row_checks_are_one_job(spark, orders):
    with counted_jobs(spark) as jobs:
        results = run(orders, *passing())
    assert [r.status for r in results] == ["pass"] * 4
    assert [r.evidence["rows"] for r in results] == [1000, 900, 1000, 994]
    assert len(jobs) == 1


def test_all_that_fail_share_one_more_job(spark, orders):
    failing = [
        bound("not_null", column_name="status"),
        bound("accepted_values", {"where": "id < 10"}, column_name="text", values=["1", "2"]),
    ]
    with counted_jobs(spark) as jobs:
        results = run(orders, *passing(), *failing)
    assert [r.status for r in results] == ["pass"] * 4 + ["fail"] * 2
    assert [r.failures for r in results[4:]] == [100, 8]
    assert [len(r.samples) for r in results[4:]] == [5, 5]
    assert len(jobs) == 2


def test_row_checks_and_key_checks_that_fail_share_the_job_for_samples(spark, orders):
    with counted_jobs(spark) as jobs:
        results = run(
            orders,
            bound("not_null", column_name="status"),
            bound("unique", column_name="pair"),
            bound("unique", column_name="text"),
        )
    assert [(r.status, len(r.samples)) for r in results] == [("fail", 5), ("fail", 5), ("pass", 0)]
    assert len(jobs) == 4  # the aggregate, the hashes of both keys, a grouping of the one that fails, all samples


def test_a_key_check_is_one_job_and_one_more_when_it_fails(spark, orders):
    with counted_jobs(spark) as jobs:
        (result,) = run(orders, bound("unique", column_name="id"))
    assert (result.status, len(jobs)) == ("pass", 1)
    with counted_jobs(spark) as jobs:
        (result,) = run(orders, bound("unique", column_name="pair"))
    assert (result.status, result.failures, len(jobs)) == ("fail", 500, 3)  # hashes, keys, samples


def test_all_key_checks_are_one_job_when_nothing_occurs_twice(spark, orders):
    with counted_jobs(spark) as jobs:
        results = run(
            orders,
            bound("unique", column_name="id"),
            bound("unique_combination_of_columns", combination_of_columns=["id"]),
            bound("unique_combination_of_columns", combination_of_columns=["pair", "text"]),
            bound("unique", {"where": "id > 1"}, column_name="text"),
            bound("unique", {"where": "status IS NULL"}, column_name="id"),
        )
    assert [(r.status, r.evidence["rows"]) for r in results] == [("pass", n) for n in (1000, 1000, 1000, 998, 100)]
    assert len(jobs) == 1


def test_keys_of_a_table_whose_rows_were_counted(spark, orders):
    """The same verdicts by lists of hashes, which a table of few rows allows."""
    known = bound("not_null", column_name="id")
    with counted_jobs(spark) as jobs:
        results = run(
            orders,
            known,
            bound("unique", column_name="id"),
            bound("unique_combination_of_columns", combination_of_columns=["pair", "text"]),
            bound("unique", {"where": "id > 1"}, column_name="text"),
            bound("unique", column_name="pair"),
            bound("unique", column_name="status"),
            bound("unique", {"where": "id % 10 = 0 OR id = 1"}, column_name="status"),
        )
    assert [(r.status, r.failures, r.evidence["rows"]) for r in results] == [
        ("pass", 0, 1000),
        ("pass", 0, 1000),
        ("pass", 0, 1000),
        ("pass", 0, 998),
        ("fail", 500, 1000),
        ("fail", 1, 1000),
        ("pass", 0, 101),
    ]
    assert results[6].evidence["null_keys"] == 100
    assert len(jobs) == 5  # the aggregate, all hashes, the two that fail, all samples


def test_one_grouping_per_key_and_where_that_fails(spark, orders):
    with counted_jobs(spark) as jobs:
        results = run(
            orders,
            bound("unique", column_name="pair"),
            bound("unique_combination_of_columns", combination_of_columns=["pair"]),
            bound("unique", {"where": "id > 1"}, column_name="pair"),
        )
    assert [(r.failures, r.evidence["rows"]) for r in results] == [(500, 1000), (500, 1000), (499, 998)]
    assert len(jobs) == 4  # hashes, two groupings, samples


def test_keys_whose_equal_values_have_other_bytes_are_grouped_at_once(spark):
    table = spark.sql("SELECT * FROM VALUES (0.0D, 1), (-0.0D, 2), (double('NaN'), 3), (double('NaN'), 4) AS t (f, n)")
    (result,) = run(table, bound("unique", column_name="f"))
    assert (result.status, result.failures) == ("fail", 2)
    collated = spark.sql("SELECT c COLLATE UTF8_LCASE AS c FROM VALUES ('a'), ('A'), ('b') AS t (c)")
    (result,) = run(collated, bound("unique", column_name="c"))
    assert (result.status, result.failures) == ("fail", 1)


def test_keys_with_null_are_told_apart_by_which_column_is_null(spark):
    table = local_frame(spark, [(1, None), (None, 1), (None, None)], "a int, b int")
    with counted_jobs(spark) as jobs:
        (result,) = run(table, bound("unique_combination_of_columns", combination_of_columns=["a", "b"]))
    assert (result.status, result.evidence["null_keys"], len(jobs)) == ("pass", 3, 1)


def test_null_is_judged_per_check_in_a_shared_grouping(spark):
    table = local_frame(spark, [(1,), (None,), (None,)], "id int")
    results = run(
        table,
        bound("unique", column_name="id"),
        bound("unique_combination_of_columns", combination_of_columns=["id"]),
    )
    assert [(r.status, r.failures) for r in results] == [("pass", 0), ("fail", 1)]


def test_nothing_to_run_starts_no_job(spark, orders):
    with counted_jobs(spark) as jobs:
        assert run(orders) == []
        unknown = run(orders, bound("not_null", column_name="nope"), bound("unique", column_name="nope"))
    assert [r.status for r in unknown] == ["error", "error"]
    assert jobs == []


def test_a_job_starts_only_when_its_result_is_asked_for(spark, orders):
    from datetime import UTC, datetime

    from recon.checks.engine.runner import run_table

    bounds = [bound("unique", column_name="id"), *passing()]
    with counted_jobs(spark) as jobs:
        first = next(run_table(bounds, orders, "t", lambda: datetime.now(UTC)))
    assert (first.check, first.status, len(jobs)) == ("unique", "pass", 1)


def test_equal_expressions_are_computed_once_and_columns_pruned(orders):
    from recon.checks.engine.aggregates import aggregates_of
    from recon.checks.engine.executor import ScheduledCheck

    columns = []
    for at, twice in enumerate([bound("not_null", column_name="status"), bound("not_null", column_name="status")]):
        scheduled = ScheduledCheck(at, twice, twice.check, None)
        columns += [column.alias(f"{at}{name}") for name, column in aggregates_of(scheduled).items()]
    plan = orders.agg(*columns)._jdf.queryExecution().executedPlan().toString()
    partial = next(line for line in plan.splitlines() if "partial_count" in line)
    assert partial.count("partial_count(") == 2  # rows and nulls, not four
    assert "ReadSchema: struct<status:string>" in plan


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        (("not_null", {}, {"column_name": "statuss"}), "the_table has no column 'statuss'; did you mean 'status'?"),
        (("unique", {}, {"column_name": "zzz"}), "the_table has no column 'zzz'; there is id, pair, status"),
        (("not_null", {"where": "id >"}, {"column_name": "id"}), "where 'id >' is no condition on the_table: "),
        (("not_null", {"where": "id"}, {"column_name": "id"}), "where 'id' is no condition on the_table: "),
        (("not_null", {"where": "nope = 1"}, {"column_name": "id"}), "where 'nope = 1' is no condition"),
        (("not_null", {"where": "count(*) > 1"}, {"column_name": "id"}), "where 'count(*) > 1' is no condition"),
        (("unique", {"where": "nope = 1"}, {"column_name": "id"}), "where 'nope = 1' is no condition"),
    ],
)
def test_what_spark_refuses_costs_its_check_and_no_other(spark, orders, asked, sentence):
    test, config, arguments = asked
    with counted_jobs(spark) as jobs:
        results = run(orders, passing()[0], bound(test, config, **arguments), passing()[2])
    assert [r.status for r in results] == ["pass", "error", "pass"]
    assert results[1].message.startswith(sentence)
    assert "\n" not in results[1].message
    assert len(jobs) == 1


def test_what_breaks_while_running_costs_its_check_and_no_other(orders):
    results = run(
        orders,
        passing()[0],
        bound("not_null", {"where": "CAST(status AS INT) > 1"}, column_name="id"),  # 'new' is no INT
        bound("unique", {"where": "CAST(status AS INT) > 1"}, column_name="id"),
        bound("not_null", column_name="status"),
    )
    assert [r.status for r in results] == ["pass", "error", "error", "fail"]
    for broken in results[1:3]:
        assert broken.message.startswith("Spark could not measure the_table: ")
        assert "CAST_INVALID_INPUT" in broken.message
        assert "\n" not in broken.message


@dataclass(frozen=True, kw_only=True)
class Careless(RowCheck):
    """Breaks where it is told to."""

    test: ClassVar[str] = "careless"
    bare: bool = False

    def columns(self):
        return ("id",)

    def measures(self):
        from pyspark.sql import functions as F

        from recon.checks.data_check import Measure

        return {"top": F.max("id") if self.bare else Measure(F.col("id"), F.max)}

    def judge(self, measured):
        assert measured == {"top": 499, "rows": 500}
        raise ZeroDivisionError("in judge")


def test_a_bug_in_a_check_is_its_own_error(orders):
    broken = replace(bound("not_null", {"where": "id < 500"}, column_name="id"), check=Careless())
    bare = replace(broken, check=Careless(bare=True))
    results = run(orders, passing()[0], broken, bare)
    assert [r.status for r in results] == ["pass", "error", "error"]
    assert results[1].message == "the check could not be evaluated: ZeroDivisionError: in judge"
    assert "bare Column" in results[2].message


def test_columns_that_need_backticks(spark):
    table = local_frame(spark, [(None, 1), (2, 1)], "`order id` int, `a.b` int")
    results = run(
        table,
        bound("not_null", column_name="`order id`"),
        bound("not_null", column_name="order id"),
        bound("unique", column_name="`a.b`"),
        bound("unique", column_name="a.b"),
        bound("expression_is_true", column_name="order id", expression="> 5"),
        bound("expression_is_true", column_name="`a.b`", expression="> 5"),
    )
    assert [r.status for r in results] == ["fail", "fail", "fail", "error", "fail", "fail"]
    assert results[3].message.startswith("the_table has no column 'a.b'; write `a.b`: ")


def test_what_no_rows_give(spark, orders):
    none = {"where": "id < 0"}
    lenient = {"warn_if": ">10", "error_if": ">100"}
    results = run(
        orders,
        bound("not_null", none, column_name="id"),
        bound("not_null", {**none, "if_empty": "pass"}, column_name="id"),
        bound("not_null", {**none, **lenient, "if_empty": "fail"}, column_name="id"),
        bound("not_null", {**none, "severity": "warn", "if_empty": "fail"}, column_name="id"),
        # Rows, and none of them judged: NULL in all.
        bound("unique", {"where": "status IS NULL"}, column_name="status"),
        bound("unique", {"where": "status IS NULL", "if_empty": "fail"}, column_name="status"),
    )
    assert [r.status for r in results] == ["skipped", "pass", "fail", "warn", "skipped", "fail"]
    assert results[2].message == "0 rows where id < 0, which if_empty takes as fail"
    assert results[5].message.startswith("status is NULL in all 100 rows")


def test_a_delta_table_stays_at_the_version_it_was_opened_at(spark, tmp_path):
    from recon.project import DeltaSink, LedgerConfig, Pipeline, Project
    from recon.write.sinks.catalog import ProjectTables, open_delta

    path = str(tmp_path / "t")
    spark.range(3).coalesce(1).write.format("delta").save(path)
    sink = DeltaSink(name="s", target=path)
    pipeline = Pipeline(name="p", checkpoint="c", sinks=(sink,))
    project = Project(name="p", ledger=LedgerConfig(location="l"), pipelines=(pipeline,), project_dir=tmp_path)
    tables = ProjectTables(project, spark)
    opened = [open_delta(project, path, spark), tables.open("ref('s')"), tables.open(path)]
    spark.range(5).coalesce(1).write.format("delta").mode("append").save(path)
    assert [table.count() for table in opened] == [3, 3, 3]
    assert open_delta(project, path, spark).count() == 8
