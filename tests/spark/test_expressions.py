"""SQL expressions of recon.yml: Spark's `expr` takes the word behind one for an alias, and recon does not."""

from __future__ import annotations

import pytest

from recon.base.errors import ConfigError, SinkError
from recon.checks.engine.runner import run_table
from recon.project import DeltaMergeSink
from recon.project.model import Routes
from recon.spark.columns import expression, filtered
from recon.spark.frames import local_frame
from recon.write.hook.routing import Routing
from recon.write.quarantine.repair import repaired
from recon.write.sinks.newest import explained, newest_clauses
from recon.write.sinks.reduce import MergeRows
from tests.support.data_checks import bound, one

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("ansi")]

ALIASED = [
    "id > 5 or",
    "id > 5 AS big",
    "id > 5 AS",
    "100 nonsense",
    "count(*) rows",
    "id > 5 or -- with a comment",
    "(id > 5) `or`",
    "id > 5 AS (a, b)",
    "DISTINCT id",
    "table id",
    "values id",
    "id >\n5\nor",
]
NO_SQL = ["1) or (1", "id > 5) -- ", "id, id", "id +", "", "id > 5;", "SELECT id", "1 /*"]
GOOD = {
    "id > 5 -- the rest": 4,
    "id > 5 /* (or */ or\nid = 0": 5,
    "-- first\nid > 5": 4,
    "(id > 5)": 4,
    "id in (1, 2) and (id, 1) = (1, 1)": 1,
    "case when id > 5 then true else false end": 4,
    "exists(array(id), x -> x > 5)": 4,
    "concat('a)', id, ' or') = 'a)7 or'": 1,
}


@pytest.fixture(scope="module")
def table(spark):
    return local_frame(spark, [(n,) for n in range(10)], "id int")


@pytest.mark.parametrize("sql", ALIASED)
def test_a_word_behind_an_expression_is_no_alias(table, sql):
    with pytest.raises(ConfigError) as told:
        filtered(table, sql, "where", "the table")
    assert str(told.value).startswith(f"where {sql!r} is no SQL expression: Spark would take what it ends with")


@pytest.mark.parametrize("sql", NO_SQL)
def test_what_is_no_expression_is_refused_as_it_stands(table, sql):
    with pytest.raises(ConfigError, match=r"is no condition on the table: |is no SQL expression: "):
        filtered(table, sql, "where", "the table")


@pytest.mark.parametrize("sql", GOOD)
def test_comments_lines_and_parentheses_are_kept(table, sql):
    assert filtered(table, sql, "where", "the table").count() == GOOD[sql]
    assert str(expression("id > 5", "where")) == "Column<'id > 5'>"  # nothing is left of the second parsing


CHECKS = [
    ("not_null", {"where": "id > 5 or"}, {"column_name": "id"}, "where 'id > 5 or'"),
    ("accepted_range", {}, {"column_name": "id", "max_value": "100 nonsense"}, "max_value '100 nonsense'"),
    ("accepted_range", {}, {"column_name": "id", "min_value": "0 or"}, "min_value '0 or'"),
    ("column_max", {}, {"column_name": "id", "max_value": "100 nonsense"}, "max_value '100 nonsense'"),
    ("expression_is_true", {}, {"expression": "id >= 0 and"}, "expression 'id >= 0 and'"),
    ("expression_is_true", {}, {"column_name": "id", "expression": ">= 0 and"}, "expression 'id >= 0 and'"),
    ("accepted_values", {}, {"column_name": "id", "values": ["1 or"], "quote": False}, "the value '1 or'"),
    ("recency", {}, {"datepart": "day", "field": "current_date() x", "interval": 1}, "field 'current_date() x'"),
    (
        "freshness",
        {},
        {"loaded_at_field": "current_date()", "error_after": {"count": 1, "period": "day"}, "filter": "id > 5 or"},
        "filter 'id > 5 or'",
    ),
    (
        "mutually_exclusive_ranges",
        {},
        {"lower_bound_column": "id", "upper_bound_column": "id + 1 or"},
        "the expression 'id + 1 or'",
    ),
    (
        "mutually_exclusive_ranges",
        {},
        {"lower_bound_column": "id", "upper_bound_column": "id + 1", "partition_by": "id, id x"},
        "partition_by 'id, id x'",
    ),
]


@pytest.mark.parametrize(("test", "config", "arguments", "named"), CHECKS)
def test_every_check_refuses_it(table, test, config, arguments, named):
    result = one(table, test, config, **arguments)
    assert result.status == "error"
    assert f"{named} is no SQL expression: " in result.message
    assert "\n" not in result.message


def test_a_number_of_failures_and_a_repair_refuse_it(spark, table, tmp_path):
    other = str(tmp_path / "other")
    table.write.parquet(other)
    (result,) = run_table(
        [bound("equality", {"fail_calc": "count(*) or"}, compare_model=other)], table, "t", _now, _context(table)
    )
    assert result.status == "error" and "fail_calc 'count(*) or' is no SQL expression: " in result.message
    with pytest.raises(ConfigError, match=r"id '1 or' is no SQL expression"):
        repaired(table, {"id": "1 or"}, "t")


@pytest.mark.parametrize("key", ["order_by", "delete_when", "update_when", "insert_when"])
def test_a_sink_that_merges_refuses_it(table, key):
    conditions = {"order_by": "id", key: "id > 5 or"}
    sink = DeltaMergeSink(name="s", kind="delta_merge", target="t", keys=("id",), **conditions)
    rows = MergeRows(sink, table, "micro-batch 1")
    with pytest.raises(SinkError, match=rf"^micro-batch 1: .*{key} 'id > 5 or' is no SQL expression: "):
        rows.reduced()
        with explained(rows, "t"):
            newest_clauses(rows)


def test_routes_refuse_it(table):
    routing = Routing(routes=Routes(by="id or", to={"1": "a"}), name="micro-batch 1", step="")
    with pytest.raises(SinkError, match=r"^micro-batch 1: routes: by: .*'id or' is no SQL expression: "):
        routing.routed(table)


def _now():
    from datetime import UTC, datetime

    return datetime.now(UTC)


def _context(table):
    from recon.checks.engine.context import ScanContext

    class Same:
        def open(self, reference):
            return table.where("id > 5")

    return ScanContext(tables=Same())
