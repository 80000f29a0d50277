"""Tables that no stream writes, with tests of their own: no pipeline, no ledger, no JVM."""

from __future__ import annotations

from pathlib import Path

import pytest

from recon.audits.run import run_audit
from recon.base.errors import ConfigError
from recon.checks.binding import bind
from recon.checks.select import select
from recon.project import load
from recon.reports import html, run_results
from recon.reports.forms.junit import as_junit
from recon.write.ledger import open_ledger
from tests.support.ledger_entries import entry
from tests.support.messages import raises

TABLES = """\
version: 2
name: warehouse
defaults: {samples: full}
tables:
  - name: customers
    format: table
    target: sales.customers
    defaults: {severity: warn}
    data_tests:
      - unique: {arguments: {column_name: id}}
    columns:
      - name: email
        tags: personal
        data_tests: [not_null]
  - {name: raw, format: parquet, target: lake/raw, data_tests: [{row_count: {arguments: {min_value: 1}}}]}
  - {name: parents, target: lake/parents}
"""
PIPELINE = """\
pipelines:
  - name: orders
    checkpoint: cp
    sinks:
      - {name: raw, target: lake/orders, data_tests: [{not_null: {arguments: {column_name: id}}}]}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "recon.yml").write_text(TABLES)
    return tmp_path


def test_its_tests_are_those_of_its_rows(folder: Path) -> None:
    bounds = bind(load(folder))
    assert [(b.name, b.pipeline, b.sink, b.column, b.tags) for b in bounds] == [
        ("unique_customers_id", None, "customers", "id", ()),
        ("not_null_customers_email", None, "customers", "email", ("personal",)),
        ("row_count_raw_1", None, "raw", None, ()),
    ]
    assert [(b.config.severity, b.config.samples) for b in bounds] == [*[("warn", "full")] * 2, ("error", "full")]


def test_selectors_tell_tables_from_sinks(folder: Path) -> None:
    (folder / "recon.yml").write_text(TABLES.replace("name: warehouse", "name: warehouse\nledger: _recon") + PIPELINE)
    bounds = bind(load(folder))

    def names(selector: str) -> list[str]:
        return [b.name for b in select(bounds, [selector]) if b.kind == "data"]

    assert names("table:raw") == ["row_count_raw_1"]
    assert names("sink:raw") == names("pipeline:orders") == ["not_null_raw_id"]


def test_a_sql_test_is_one_of_the_table_it_refers_to(folder: Path) -> None:
    (folder / "data_tests").mkdir()
    (folder / "data_tests" / "ids.sql").write_text("select * from {{ ref('parents') }} where id < 0")
    assert [(b.name, b.table) for b in bind(load(folder))][-1] == ("ids", "parents")


def test_what_a_stream_wrote_is_no_question_of_a_table(folder: Path) -> None:
    for test in ("offset_continuity", "ledger_integrity"):
        (folder / "recon.yml").write_text(TABLES.replace("[not_null]", f"[{test}]"))
        with raises(ConfigError):
            bind(load(folder))


def test_an_audit_of_tables_has_no_word_of_ledgers(folder: Path) -> None:
    run = run_audit(folder, no_spark=True)
    assert [(r.status, r.pipeline, r.sink) for r in run.results] == [
        ("skipped", None, "customers"),
        ("skipped", None, "customers"),
        ("skipped", None, "raw"),
    ]
    assert (run.pipelines, run.notes, run.exit_code, run.not_complete) == ((), (), 0, ())
    run_audit(folder, no_spark=True, require_complete=True)
    assert run_results.as_dict(run)["results"][0]["status"] == "skipped" and "not_null_customers_email" in as_junit(run)
    page = html.render(run)
    assert "None of 3 data tests failed" in page
    for word in ("No partition is known", "Incidents", "proved"):
        assert word not in page.partition("</main>")[0].partition("<main")[2].partition('id="codes"')[0]
    assert not (folder / "_recon").exists()


def test_tables_without_tests_are_no_audit(folder: Path) -> None:
    (folder / "recon.yml").write_text("name: warehouse\ntables: [{name: raw, target: lake/raw}]\n")
    with raises(ConfigError):
        run_audit(folder, no_spark=True)


def test_a_pipeline_without_stream_has_no_answer_until_a_ledger_is_there(tmp_path: Path) -> None:
    alone = "data_tests: [{ledger_integrity: {config: {enabled: false}}}]"
    pipeline = PIPELINE.replace("checkpoint: cp", f"checkpoint: none\n    {alone}")
    (tmp_path / "recon.yml").write_text(f"name: warehouse\nledger: _recon\n{pipeline}")
    run = run_audit(tmp_path, no_spark=True)
    assert (run.pipelines, run.notes, [r.pipeline for r in run.results]) == ((), (), ["orders"])
    with raises(ConfigError):
        run_audit(tmp_path, no_spark=True, require_complete=True)
    open_ledger(load(tmp_path)).append(entry())
    assert [facts.answer for facts in run_audit(tmp_path, no_spark=True).pipelines] == ["could not be proved"]
