"""A project's own SQL tests, stored failing rows and history, through whole audits of real tables."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
from deltalake import DeltaTable, write_deltalake

from recon.audits.run import run_audit
from recon.base.clock import utc_now
from recon.checks import registry
from recon.checks.binding import bind_post_batch
from recon.checks.data_check import Measure, RowCheck, count_if
from recon.checks.engine.context import ScanContext
from recon.checks.engine.runner import run_table
from recon.model import CheckResult, Verdict
from recon.project import Project, load
from recon.testing import only_built_in
from recon.write.ledger.failures import FAILURES, stored_failures
from recon.write.ledger.store import open_store

pytestmark = pytest.mark.usefixtures("interpreted")

RECON = """\
name: lake
ledger: _recon
defaults: {samples: full}
tables: [{name: customers, target: customers}]
pipelines:
  - name: p
    checkpoint: cp
    sinks:
      - name: orders
        target: orders
        data_tests: [remembering, {sql_rows: {arguments: {other: ref('customers')}, config: {where: id < 3}}}]
        columns:
          - name: amount
            data_tests:
              - at_least: {arguments: {least: 10}, config: {severity: warn, alias: too_small}}
              - {not_null: {config: {store_failures: true}}}
        post_batch: [{at_least: {column_name: amount, least: 100}}]
      - name: empty
        target: empty
"""
FILES = {
    "macros/tests.sql": """{% test at_least(model, column_name, least=0) %}
select {{ column_name }} from {{ model }} where {{ column_name }} < {{ least | sql_literal }}
{% endtest %}
{% test sql_rows(model, other) %}select m.* from {{ model }} m anti join {{ other }} c on m.customer = c.id{% endtest %}
""",
    "data_tests/paid.sql": """-- paid orders of known customers, but why
{{ config(store_failures=true, limit=2, tags='money') }}
with paid as (select * from {{ ref('orders') }} where status = '{{ var("status", "paid") }}')
select paid.*, c.id from paid join {{ ref('customers') }} c on c.id = paid.customer order by paid.id;
-- done;
""",
    "data_tests/none.sql": "select * from {{ ref('orders') }} where id > 99",
    "data_tests/mine.sql": "{{ config(where=\"status = 'paid'\") }} select * from {{ ref('p', 'orders') }}",
    "data_tests/calc.sql": "{{ config(fail_calc='sum(id)') }} select id from {{ ref('orders') }}",
    "data_tests/calc_null.sql": "{{ config(fail_calc='sum(nullif(id, id))') }} select id from {{ ref('orders') }}",
    "data_tests/calc_half.sql": "{{ config(fail_calc='avg(id) / 4') }} select id from {{ ref('orders') }}",
    "data_tests/column.sql": "select o.ident from {{ ref('orders') }} o",
    "data_tests/syntax.sql": "select * frm {{ ref('orders') }}",
    "data_tests/ghost.sql": "select * from {{ ref('orders') }}, {{ ref('custmers') }}",
    "data_tests/drop.sql": "drop table {{ ref('orders') }}",
    "data_tests/insert.sql": """with x as (select 9 as id) insert into delta.`{{ var('here') }}/orders`
select * from x -- {{ ref('orders') }}""",
    "data_tests/nothing.sql": "select 1 from {{ ref('empty') }}",
    "data_tests/emptied.sql": "select count(*) from {{ ref('empty') }} having count(*) = 0",
    "data_tests/secret.sql": "select 1 from {{ ref('orders') }} where id < int('{{ env_var('RECON_TEST_KEY') }}')",
    "data_tests/untold.sql": "select cast(status as int) n from {{ ref('orders') }}",
    "data_tests/text.sql": "select * from {{ ref('orders') }} where status = {{ \"pa'id\\\\\" | sql_literal }}",
}


@dataclass(frozen=True, kw_only=True)
class Remembering(RowCheck):
    """Fails by one for every earlier run that it knows of."""

    test: ClassVar[str] = "remembering"
    remembers: ClassVar[str | None] = "rows"

    def measures(self) -> dict[str, Measure]:
        from pyspark.sql import functions as F

        return {"n": count_if(F.col("id") > 0)}

    def judge(self, measured: Any) -> Verdict:
        return Verdict(evidence={"rows": measured["rows"], "history": list(measured["history"])})


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """Three tables and many tests."""
    import pyarrow as pa

    folder = tmp_path_factory.mktemp("own_sql")
    orders = pa.table(
        {
            "id": [1, 2, 3, 4],
            "customer": [1, 1, 2, 7],
            "status": ["paid", "paid", "new", "pa'id\\"],
            "amount": [5, None, 50, 70],
        }
    )
    write_deltalake(str(folder / "orders"), orders)
    write_deltalake(str(folder / "customers"), pa.table({"id": [1, 2]}))
    write_deltalake(str(folder / "empty"), orders.slice(0, 0))
    (folder / "recon.yml").write_text(RECON)
    for name, text in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    with only_built_in(), pytest.MonkeyPatch.context() as patch:
        registry.register(Remembering)
        patch.setenv("RECON_TEST_KEY", "hunter2-secret")
        yield load(folder, {"here": str(folder)})


@pytest.fixture(scope="module")
def results(project: Project, spark: Any) -> dict[str, CheckResult]:
    run = run_audit(project, select=["test_type:data"], spark=spark)
    assert run.notes == ("pipeline p: ledgers could not be read: " + run.notes[0].split("read: ")[1],)
    return {r.name: r for r in run.results}


def test_rows_that_a_query_returns_fail(results: dict[str, CheckResult], project: Project) -> None:
    paid = results["paid"]
    assert (paid.status, paid.failures, paid.check, paid.sink, paid.tags) == (
        "fail",
        2,
        "sql_test",
        "orders",
        ("money",),
    )
    assert paid.message == "the query returns 2 failing rows"
    assert (results["untold"].failures, results["untold"].samples) == (4, ()), "it can be counted and not be shown"
    assert results["untold"].evidence["samples"].startswith("could not be read: ")
    assert "CAST_INVALID_INPUT" in results["untold"].evidence["samples"] and "samples" not in paid.evidence
    assert [(s["id"], s["id_2"]) for s in paid.samples] == [(1, 1), (2, 1)], "two columns of one name stay apart"
    assert paid.evidence["rows"] == 4 and paid.relation_name == project.resolve("orders")
    assert (results["none"].status, results["none"].failures) == ("pass", 0)
    assert (results["mine"].status, results["mine"].failures) == ("fail", 2), "where narrows its own sink"
    assert results["mine"].evidence["rows"] == 2
    assert (results["nothing"].status, results["nothing"].message) == ("skipped", "0 rows, and the query returns none")
    emptied = results["emptied"]  # what asks for rows is answered where there are none
    assert (emptied.status, emptied.failures, emptied.evidence["rows"]) == ("fail", 1, 0)
    assert (results["text"].failures, results["text"].samples[0]["id"]) == (1, 4)


def test_fail_calc(results: dict[str, CheckResult]) -> None:
    assert (results["calc"].status, results["calc"].failures) == ("fail", 10)
    assert results["calc_null"].status == results["calc_half"].status == "error"
    assert "gives NULL over 4 failing rows" in results["calc_null"].message
    assert "gives 0.625, which is not a whole number" in results["calc_half"].message


def test_generic_tests(results: dict[str, CheckResult]) -> None:
    small = results["too_small"]
    assert (small.status, small.failures, small.check, small.column) == ("warn", 1, "at_least", "amount")
    assert small.samples == ({"amount": 5},), "NULL is not below anything"
    (other,) = [r for r in results.values() if r.check == "sql_rows"]
    assert (other.status, other.failures, other.evidence["rows"]) == ("pass", 0, 2), "the stranger is outside of where"


def test_what_cannot_run_is_an_error_of_its_own(results: dict[str, CheckResult], project: Project) -> None:
    told = {name: results[name].message for name in ("column", "syntax", "ghost", "drop", "insert", "secret")}
    assert {results[name].status for name in told} == {"error"}
    assert "data_tests/column.sql: [UNRESOLVED_COLUMN" in told["column"] and "`o`.`ident`" in told["column"]
    assert "data_tests/syntax.sql: [PARSE_SYNTAX_ERROR] Syntax error at or near" in told["syntax"]
    assert told["ghost"] == "there is no table 'custmers'; did you mean 'customers'?"
    assert "drop.sql begins with 'drop'; a SQL test is one SELECT that returns failing rows" in told["drop"]
    assert "data_tests/insert.sql: [PARSE_SYNTAX_ERROR]" in told["insert"]
    assert "***" in told["secret"] and "hunter2" not in told["secret"]
    assert not any("recon_" in message.replace("recon_test", "") for message in told.values()), "no view's name is told"
    assert DeltaTable(project.resolve("orders")).version() == 0, "nothing wrote"


def test_views_are_gone_and_a_micro_batch_is_what_its_tests_see(project: Project, spark: Any) -> None:
    found: list[CheckResult] = []

    def ask(batch: Any, batch_id: int) -> None:
        bounds = bind_post_batch(project, "p", "orders")
        found.extend(run_table(bounds, batch.where("id < 4"), "batch", utc_now, ScanContext()))

    stream = spark.readStream.format("delta").load(project.resolve("orders")).writeStream.foreachBatch(ask)
    query = stream.option("checkpointLocation", project.resolve("cp")).trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    (result,) = found
    assert (result.status, result.failures) == ("fail", 2), result.message
    assert sorted(sample["amount"] for sample in result.samples) == [5, 50], "70 is not in the batch"
    assert [t.name for t in spark.catalog.listTables() if t.name.startswith("recon_")] == []


def test_failing_rows_are_stored_and_never_dropped(
    results: dict[str, CheckResult], project: Project, spark: Any
) -> None:
    store = open_store(project, FAILURES)
    first = stored_failures(store)
    assert [(r["name"], r["row_number"]) for r in first] == [("not_null_orders_amount", 1), ("paid", 1), ("paid", 2)]
    assert (first[1]["failing_row"]["id"], first[1]["check"], first[1]["pipeline"]) == (1, "sql_test", "p")
    where = results["paid"].evidence["stored_failures"]
    assert where == {"table": store.location, "invocation_id": first[0]["invocation_id"], "rows": 2}
    again = run_audit(project, select=["paid", "remembering*"], spark=spark)
    assert [r["name"] for r in stored_failures(store)] == ["paid", "paid"]
    assert stored_failures(store, where["invocation_id"]) == first
    assert DeltaTable(store.location).to_pyarrow_dataset().count_rows() == 5
    remembering = {r.name: r for r in again.results}["remembering_orders"]
    assert results["remembering_orders"].evidence["history"] == []
    assert remembering.evidence["history"] == [4], "what the audit before measured, though there is no ledger"
    unkept = run_audit(project, select=["paid"], spark=spark, keep=False)
    assert "stored_failures" not in unkept.results[0].evidence or unkept.results[0].evidence["stored_failures"] == {}
    assert DeltaTable(store.location).version() == 2, "created, and appended to twice"


def test_the_evidence_is_json(results: dict[str, CheckResult]) -> None:
    assert json.loads(json.dumps(dict(results["paid"].evidence)))["stored_failures"]["rows"] == 2
    assert Path(results["paid"].evidence["stored_failures"]["table"]).name == "failures"
