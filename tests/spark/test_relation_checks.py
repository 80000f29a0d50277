"""relationships, cardinality_equality, equal_rowcount, fewer_rows_than and equality on real Spark."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from recon.base.errors import ConfigError
from recon.checks.engine.context import ScanContext
from recon.checks.engine.runner import run_table
from recon.write.sinks.catalog import ProjectTables
from tests.support.data_checks import bound, counted_jobs, local_table
from tests.support.messages import raises

# As in the session that an audit starts.
pytestmark = pytest.mark.usefixtures("ansi", "interpreted")


class Others:
    """Tables by name."""

    def __init__(self, **tables):
        self.tables = tables

    def open(self, reference):
        if reference not in self.tables:
            raise ConfigError(f"there is no table {reference!r}")
        return self.tables[reference]


def run(table, others, *bounds):
    context = ScanContext(tables=others)
    return list(run_table(bounds, table, "the_table", lambda: datetime.now(UTC), context))


def one(table, others, test, config=None, **arguments):
    (result,) = run(table, others, bound(test, config, **arguments))
    return result


def figures(result):
    return result.status, result.failures


@pytest.fixture(scope="module")
def orders(spark):
    rows = [
        (1, 10, "new", 7),
        (2, 10, "new", 7),
        (3, 20, "paid", 7),
        (4, 30, "paid", 8),
        (5, 30, None, 8),
        (6, 40, None, 8),
        (7, None, "test", 8),
    ]
    return local_table(spark, rows, "id int, customer int, status string, _batch_id bigint")


@pytest.fixture(scope="module")
def others(spark):
    customers = [(10, "10", True), (20, "20", True), (20, "20", False), (30, "030", False), (None, None, True)]
    return Others(
        customers=local_table(spark, customers, "id bigint, code string, active boolean"),
        nobody=local_table(spark, [], "id int, code string, active boolean"),
        odd=local_table(spark, [({"a": 1}, (1,))], "id map<string, int>, struct struct<x: int>"),
    )


# --- collations ---


def test_text_with_a_collation_is_compared_by_it(spark):
    child = spark.sql(
        "SELECT c COLLATE UTF8_LCASE AS c, 'k' COLLATE UTF8_LCASE AS k FROM VALUES ('a'), ('A'), ('b') AS t (c)"
    )
    parent = spark.sql("SELECT c COLLATE UTF8_LCASE AS c, c AS plain FROM VALUES ('A'), ('B') AS t (c)")
    to = {"column_name": "c", "to": "parent"}
    asked = [
        ("unique", {"column_name": "c"}, "fail"),
        ("relationships", {**to, "field": "c"}, "pass"),
        ("relationships", {**to, "field": "plain"}, "error"),
        ("cardinality_equality", {**to, "field": "c"}, "fail"),  # twice here, once there
        ("accepted_values", {"column_name": "c", "values": ["A", "b"]}, "pass"),
        ("accepted_values", {"column_name": "c", "values": ["A"]}, "fail"),
        ("not_constant", {"column_name": "c"}, "pass"),
        ("not_constant", {"column_name": "k"}, "fail"),
        ("column_min", {"column_name": "c", "min_value": "'A'", "max_value": "'A'"}, "pass"),
    ]
    results = run(child, Others(parent=parent), *(bound(test, None, **arguments) for test, arguments, _ in asked))
    assert [(test, arguments, r.status) for (test, arguments, _), r in zip(asked, results, strict=True)] == asked
    assert "c is string collate UTF8_LCASE and plain of parent is string" in results[2].message
    assert results[3].failures == 2 and results[7].message == "k holds one value in all 3 rows: k"


# --- relationships -------------------------------------------------------------------------------------------


def test_rows_without_a_parent_fail_and_null_is_not_judged(orders, others):
    failed = one(orders, others, "relationships", column_name="customer", to="customers", field="id")
    assert figures(failed) == ("fail", 1)
    assert failed.message == "1 values of customer are not in id of customers, in 1 of 7 rows"
    assert failed.samples == ({"customer": 40, "_batch_id": 8},)
    assert failed.evidence == {"rows": 7, "judged_rows": 6, "missing_values": 1}


def test_columns_may_have_any_name(spark, others):
    names = ("k", "n", "p", "where_it_is", "here", "there", "rows_here", "k0")
    odd = local_table(spark, [(10,) * 8, (40,) * 8], ", ".join(f"{name} int" for name in names))
    asked = {"to": "customers", "field": "id"}
    related = run(odd, others, *(bound("relationships", column_name=name, **asked) for name in names))
    assert [(r.failures, r.samples) for r in related] == [(1, ({name: 40},)) for name in names]
    both = Others(other=odd.limit(1))
    counted = one(odd, both, "equal_rowcount", compare_model="other", group_by_columns=["rows_here", "here", "k0"])
    assert counted.samples == ({"rows_here": 40, "here": 40, "k0": 40, "rows_here_2": 1, "rows_there": 0},)


def test_conditions_of_either_side_and_where_of_the_checked_table(orders, others):
    asked = {"column_name": "customer", "to": "customers", "field": "id"}
    inactive = one(orders, others, "relationships_where", to_condition="active", **asked)
    assert (inactive.failures, inactive.evidence["missing_values"]) == (3, 2)  # 30 twice, 40
    only_old = one(orders, others, "relationships", from_condition="id < 5", to_condition="active", **asked)
    assert (only_old.failures, only_old.evidence["judged_rows"]) == (1, 4)
    assert one(orders, others, "relationships", {"where": "id < 4"}, to_condition="active", **asked).status == "pass"
    values = one(
        orders, others, "relationships", {"fail_calc": "count(DISTINCT customer)"}, **asked, to_condition="id = 0"
    )
    assert (values.failures, values.evidence["missing_values"]) == (4, 4)  # over the failing rows, not the values


def test_nothing_judged_is_not_a_pass(orders, others):
    asked = {"column_name": "customer", "to": "customers", "field": "id"}
    blank = one(orders, others, "relationships", {"where": "customer IS NULL"}, **asked)
    assert (blank.status, blank.message) == ("skipped", "customer has no value in 1 rows, so that none was judged")
    none = one(orders, others, "relationships", from_condition="id > 99", **asked)
    assert none.message == "customer has no value in 7 rows where id > 99, so that none was judged"
    assert one(orders, others, "relationships", {"where": "id > 99"}, **asked).message == "0 rows where id > 99"


def test_a_parent_without_rows_lacks_every_value(orders, others):
    asked = {"column_name": "customer", "to": "nobody", "field": "id"}
    assert figures(one(orders, others, "relationships", **asked)) == ("fail", 6)


def test_other_types_are_compared_as_text_and_never_break_the_job(orders, others):
    """Under ANSI a join of int with string casts the string, and one that is no number would end the job."""
    text = one(orders, others, "relationships", column_name="customer", to="customers", field="code")
    assert figures(text) == ("fail", 3)  # '030' is not '30'
    words = one(orders, others, "relationships", column_name="status", to="customers", field="id")
    assert figures(words) == ("fail", 5)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"to": "clients", "field": "id"}, "there is no table 'clients'"),
        ({"to": "customers", "field": "idd"}, "customers has no column 'idd'; did you mean 'id'?"),
        ({"to": "odd", "field": "struct"}, "customer is int and struct of odd is struct<x:int>, which cannot be"),
        ({"to": "odd", "field": "id"}, "customer is int and id of odd is map<string,int>, which cannot be compared"),
        (
            {"to": "customers", "field": "id", "to_condition": "nope"},
            "to_condition 'nope' is no condition on customers",
        ),
        (
            {"to": "customers", "field": "id", "from_condition": "id +"},
            "from_condition 'id +' is no condition on the t",
        ),
    ],
)
def test_what_does_not_fit_costs_its_check_and_no_other(orders, others, arguments, sentence):
    broken, fine = run(
        orders, others, bound("relationships", column_name="customer", **arguments), bound("not_null", column_name="id")
    )
    assert (broken.status, fine.status) == ("error", "pass")
    assert broken.message.startswith(sentence)
    assert "\n" not in broken.message


# --- cardinality_equality ------------------------------------------------------------------------------------


def test_cardinality_counts_as_dbt_utils_and_knows_null(spark, orders, others):
    same = Others(same=local_table(spark, [(10,), (10,), (20,), (30,), (30,), (40,), (None,)], "c bigint"))
    assert one(orders, same, "cardinality_equality", column_name="customer", to="same", field="c").status == "pass"
    failed = one(orders, others, "cardinality_equality", column_name="customer", to="customers", field="id")
    # 10, 20 and 30 in a different number of rows: two each; 40 on one side: one; NULL once on both.
    assert figures(failed) == ("fail", 7)
    assert failed.message == (
        "4 values of customer do not occur as often in id of customers; 7 rows here, 5 in customers"
    )
    assert failed.samples[0] == {"customer": 10, "rows_here": 2, "rows_there": 1}
    nulls = one(
        orders,
        others,
        "cardinality_equality",
        {"where": "customer IS NOT NULL"},
        column_name="customer",
        to="customers",
        field="id",
    )
    assert {"customer": None, "rows_here": 0, "rows_there": 1} in nulls.samples
    assert nulls.failures == 8


# --- equal_rowcount and fewer_rows_than ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def counts(spark):
    """By status: new 2 to 1, paid 2 to 2, NULL 2 to 2, test on one side, lost on the other."""
    rows = ["new", "paid", "paid", None, None, "lost", "lost"]
    return Others(
        raw=local_table(spark, [(s,) for s in rows], "status string"),
        none=local_table(spark, [], "status string"),
    )


def test_equal_counts_in_all_hide_a_group_that_is_missing(orders, counts):
    whole = one(orders, counts, "equal_rowcount", compare_model="raw")
    assert (whole.status, whole.evidence) == ("pass", {"rows": 7, "rows_there": 7})
    failed = one(orders, counts, "equal_rowcount", compare_model="raw", group_by_columns=["status"])
    assert figures(failed) == ("fail", 4)
    assert failed.message == "3 groups by (status) differ in their number of rows; 7 rows here, 7 in raw"
    assert failed.samples == (
        {"status": "lost", "rows_here": 0, "rows_there": 2},
        {"status": "new", "rows_here": 2, "rows_there": 1},
        {"status": "test", "rows_here": 1, "rows_there": 0},
    )


def test_a_group_that_is_null_equals_null(orders, counts):
    asked = {"compare_model": "raw", "group_by_columns": ["status"]}
    filtered = Others(raw=counts.open("raw").filter("status IS NULL"))
    assert one(orders, filtered, "equal_rowcount", {"where": "status IS NULL"}, **asked).status == "pass"
    one_less = one(orders, filtered, "equal_rowcount", {"where": "id = 5"}, **asked)
    assert (one_less.failures, one_less.samples) == (1, ({"status": None, "rows_here": 1, "rows_there": 2},))


def test_zero_rows_against_some_is_a_loss_and_against_zero_is_skipped(orders, counts):
    nothing = {"where": "id > 99"}
    for test in ("equal_rowcount", "equality"):
        more = {"compare_columns": ["status"]} if test == "equality" else {}
        lost = one(orders, counts, test, nothing, compare_model="raw", **more)
        assert lost.status == "fail"
        both = run(
            orders,
            counts,
            bound(test, nothing, compare_model="none", **more),
            bound(test, nothing | {"if_empty": "fail"}, compare_model="none", **more),
            bound(test, nothing | {"if_empty": "pass"}, compare_model="none", **more),
        )
        assert [r.status for r in both] == ["skipped", "fail", "pass"]
        assert both[0].message == "0 rows where id > 99"
    assert one(orders, counts, "equal_rowcount", compare_model="none").failures == 7


def test_fewer_rows_counts_a_group_that_the_other_lacks(orders, counts):
    equal = one(orders, counts, "fewer_rows_than", compare_model="raw")
    assert (equal.status, equal.failures, equal.message) == ("fail", 1, "7 rows here, 7 in raw")
    assert one(orders, counts, "fewer_rows_than", {"where": "id < 7"}, compare_model="raw").status == "pass"
    failed = one(orders, counts, "fewer_rows_than", compare_model="raw", group_by_columns=["status"])
    # new 1 too many, test 1 that the other lacks, paid and NULL equal; lost is fewer.
    assert figures(failed) == ("fail", 4)
    assert [s["status"] for s in failed.samples] == ["new", "test", None, "paid"]
    empty = one(orders, counts, "fewer_rows_than", {"where": "id > 99"}, compare_model="raw")
    assert (empty.status, empty.message) == ("skipped", "0 rows where id > 99")


# --- equality ------------------------------------------------------------------------------------------------


def test_equality_sees_how_often_a_row_is_there(spark, orders):
    """dbt_utils' EXCEPT compares sets: there both of these tables are equal."""
    twice = orders.union(orders.filter("id <= 2"))
    failed = one(twice, Others(once=orders), "equality", compare_model="once")
    assert figures(failed) == ("fail", 4)  # two rows without an equal, and the difference, as dbt_utils counts
    assert failed.message == "2 rows have no equal in once, and 0 of its rows have none here; 9 rows here, 7 in once"
    assert failed.samples[0] == {
        "id": 1, "customer": 10, "status": "new", "_batch_id": 7, "rows_here": 2, "rows_there": 1,
    }  # fmt: skip
    assert one(orders, Others(once=orders), "equality", compare_model="once").status == "pass"


def test_equality_by_columns_types_precision_and_null(spark):
    nan = float("nan")
    here = local_table(spark, [(1, 0.1, "a"), (2, nan, None), (3, -0.0, "")], "id int, x double, t string")
    there = Others(
        there=local_table(spark, [(1, 0.1004, "a"), (2, nan, None), (3, 0.0, "")], "ID bigint, x double, t string"),
        wide=local_table(spark, [(1, 0.1, "a", 9)], "id int, x double, t string, more int"),
    )
    exact = one(here, there, "equality", compare_model="there")
    assert (exact.failures, exact.evidence["only_here"], exact.evidence["only_there"]) == (2, 1, 1)
    assert one(here, there, "equality", compare_model="there", precision=3).status == "pass"
    assert one(here, there, "equality", compare_model="there", exclude_columns=["X"]).status == "pass"
    assert one(here, there, "equality", compare_model="there", compare_columns=["id", "t"]).status == "pass"
    blank = Others(there=here.selectExpr("id", "x", "IF(t IS NULL, '', t) AS t"))
    assert one(here, blank, "equality", compare_model="there").failures == 2  # '' is not NULL
    wide = one(here, there, "equality", compare_model="wide")
    assert wide.status == "error"
    assert wide.message.startswith("wide has the column 'more', which the table does not have; leave it out with excl")
    assert (
        one(here, there, "equality", {"where": "id = 1"}, compare_model="wide", exclude_columns=["more"]).status
        == "pass"
    )
    odd = one(here, there, "equality", compare_model="wide", exclude_columns=["mor"])
    assert odd.message == "neither the table nor wide has the column 'mor' to exclude; did you mean 'more'?"
    with raises(ConfigError):
        bound("equality", compare_model="wide", exclude_columns=["more"], compare_columns=["id"])


# --- compare -------------------------------------------------------------------------------------------------


def test_compare_tells_what_is_missing_extra_and_changed(spark, orders):
    there = orders.selectExpr("id AS order_id", "IF(id = 4, 31, customer) AS customer", "status", "_batch_id")
    source = Others(
        same=there.filter("id <> 4").unionAll(orders.filter("id = 4")),
        source=there.filter("id > 1").unionAll(spark.sql("SELECT 9, 9, 'new', 9L")),
        none=there.limit(0),
    )
    asked = {"key": "id", "mapping": {"id": "order_id"}}
    equal, failed, tolerant, few, empty, lost, own_where, broken, fine = run(
        orders,
        source,
        bound("compare", to="same", **asked),
        bound("compare", to="source", **asked),
        bound(
            "compare",
            {"where": "id > 1"},
            to="source",
            tolerances={"customer": 1},
            to_condition="order_id < 9",
            **asked,
        ),
        bound("compare", {"limit": 1}, to="source", compare_columns=["status"], **asked),
        bound("compare", {"where": "id > 99"}, to="none", **asked),
        bound("compare", to="none", **asked),
        bound("compare", {"where": "id > 99", "if_empty": "fail"}, to="source", to_condition="false", **asked),
        bound("compare", to="same", key="id", mapping={"id": "nope"}),
        bound("not_null", column_name="id"),
    )
    assert figures(equal) == ("pass", 0)
    assert figures(failed) == ("fail", 3)
    assert failed.message == (
        "1 rows are not in source; 1 rows are in source alone; 1 rows changed in customer; 7 rows here, 7 in source"
    )
    assert failed.samples == (
        {"difference": "here alone", "id": 1, "customer": 10, "status": "new", "_batch_id": 7},
        {"difference": "in source alone", "id": 9, "customer": 9, "status": "new", "_batch_id": 9},
        {"difference": "changed", "id": 4, "customer": 30, "customer in source": 31},
    )
    assert failed.evidence["changed_columns"] == {"customer": 1}
    assert (tolerant.status, tolerant.evidence["tolerated"]) == ("pass", 1)
    assert (few.failures, len(few.samples)) == (2, 1)
    assert (empty.status, empty.message) == ("skipped", "0 rows where id > 99")
    assert figures(lost) == ("fail", 7)
    assert (own_where.status, own_where.failures) == ("fail", 1)
    assert (broken.status, fine.status) == ("error", "pass")
    assert broken.message.startswith("mapping names 'nope', which same does not have")


def test_compare_fails_for_a_column_that_one_side_lacks_and_for_types_if_asked(orders):
    source = Others(source=orders.selectExpr("CAST(id AS BIGINT) AS id", "customer", "status"))
    lacks, left_out, types = run(
        orders,
        source,
        bound("compare", to="source", key=["id"]),
        bound("compare", to="source", key=["id"], exclude_columns=["_batch_id"]),
        bound("compare", to="source", key=["id"], exclude_columns=["_batch_id"], same_types=True),
    )
    assert figures(lacks) == ("fail", 1)
    assert lacks.message.startswith("column _batch_id is bigint here and missing there; ")
    assert left_out.status == "pass"
    assert (types.failures, types.message.split(";")[0]) == (1, "column id is int here and bigint there")
    with raises(ConfigError):
        bound("compare", to="s", key="id", compare_columns=["a"], exclude_columns=["b"])
    with raises(ConfigError):
        bound("compare", to="s", key=[])


# --- what it costs, and where the other tables come from -----------------------------------------------------


@pytest.fixture
def no_broadcast(spark):
    """A small table is sent to all executors by a job of Spark's own, which would be counted."""
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    yield
    spark.conf.unset("spark.sql.autoBroadcastJoinThreshold")


def test_each_is_one_job_and_all_that_fail_share_one_for_samples(spark, orders, others, counts, tmp_path, no_broadcast):
    orders.write.parquet(str(tmp_path / "o"))
    table = spark.read.parquet(str(tmp_path / "o"))
    both = Others(**others.tables, **counts.tables, same=table)
    asked = {"column_name": "customer", "field": "id"}
    passing = [
        bound("not_null", column_name="id"),
        bound("relationships", {"where": "id < 6"}, to="customers", **asked),
        bound("equal_rowcount", compare_model="raw"),
        bound("equality", compare_model="same"),
        bound("fewer_rows_than", {"where": "id < 6"}, compare_model="raw"),
    ]
    failing = [
        bound("relationships", to="customers", **asked),
        bound("cardinality_equality", to="customers", **asked),
        bound("equal_rowcount", compare_model="raw", group_by_columns=["status"]),
    ]
    with counted_jobs(spark) as jobs:
        results = run(table, both, *passing)
    assert [r.status for r in results] == ["pass"] * 5
    assert len(jobs) == 5  # the shared scan, and one for each of the four
    with counted_jobs(spark) as jobs:
        results = run(table, both, *passing, *failing)
    assert [(r.status, bool(r.samples)) for r in results] == [("pass", False)] * 5 + [("fail", True)] * 3
    assert len(jobs) == 9


def test_relationships_groups_before_it_joins_unless_the_parent_is_broadcast(spark, orders, others):
    check = bound("relationships", column_name="customer", to="customers", field="id").check
    threshold = "spark.sql.autoBroadcastJoinThreshold"
    small = Others(customers=others.open("customers").limit(10))
    below = {}
    try:
        for size in ("-1", "10485760"):
            spark.conf.set(threshold, size)
            plan = check.counted(orders, small)._jdf.queryExecution().optimizedPlan().toString()
            below[size] = "Aggregate [" in plan.partition("LeftAnti")[2]  # printed from the top
    finally:
        spark.conf.unset(threshold)
    assert below == {"-1": True, "10485760": False}


def test_tables_of_a_project(spark, orders, tmp_path):
    from recon.project import DeltaSink, LedgerConfig, Pipeline, Project, Table

    orders.write.format("delta").save(str(tmp_path / "lake" / "orders"))
    orders.limit(2).write.parquet(str(tmp_path / "some.parquet"))
    orders.limit(3).write.saveAsTable("three_orders")
    sink = DeltaSink(name="orders", target="lake/orders")
    project = Project(
        name="p",
        ledger=LedgerConfig(location="_recon"),
        pipelines=(
            Pipeline(name="a", checkpoint="c", sinks=(sink,)),
            Pipeline(name="b", checkpoint="d", sinks=(sink,)),
        ),
        tables=(
            Table(name="some", format="parquet", target="some.parquet"),
            Table(name="lost", target="lake/lost"),
            Table(name="raw.three", format="table", target="three_orders"),
        ),
        project_dir=tmp_path,
    )
    tables = ProjectTables(project, spark)
    rows = {
        "ref('a', 'orders')": 7,
        '{{ ref("some") }}': 2,
        "some": 2,
        "a.orders": 7,
        "lake/orders": 7,
        "some.parquet": 2,
        str(tmp_path / "lake" / "orders"): 7,
        "source('raw', 'three')": 3,
        "three_orders": 3,
        f"delta.`{tmp_path}/lake/orders`": 7,
    }
    assert {reference: tables.open(reference).count() for reference in rows} == rows
    assert tables.open("some") is tables.open("ref('some')")  # opened once, so that all checks see one version
    for reference, sentence in {
        "ref('orders')": "several pipelines have a sink 'orders'; write one of a.orders, b.orders",
        "ref('som')": "there is no table 'som'; did you mean 'some'?",
        "ref(some)": "'ref(some)' names no table; write ref('name'), a path or a catalog table",
        "lost": "table 'lost' cannot be read: ",
        "lake/nowhere": "table 'lake/nowhere' cannot be read: ",
        "nothing_here": "there is no table 'nothing_here'",
        "no such name": "there is no table 'no such name'",
    }.items():
        with pytest.raises(ConfigError) as caught:
            tables.open(reference)
        assert str(caught.value).startswith(sentence)
        assert "\n" not in str(caught.value)
    lost, fine = run(orders, tables, bound("equal_rowcount", compare_model="lost"), bound("not_null", column_name="id"))
    assert (lost.status, fine.status) == ("error", "pass")
