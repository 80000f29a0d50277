"""Sinks whose target is the name of a catalog table: recon asks a Spark session where the table is, once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from recon import AuditRun, foreach_batch, run_audit, starting_offsets
from recon.base.errors import ConfigError, EvidenceError
from recon.base.storage import Storage
from recon.events.exporters.datasets import Dataset, of_sink
from recon.project import Project, load
from recon.spark.catalog import require_located
from recon.write.hook import ForeachBatch
from recon.write.sinks.catalog import ProjectTables
from tests.support.messages import raises, same_message
from tests.unit.recovery.test_starting_offsets import Table

Activate = Callable[[Any], None]
NAME = "main.sales.orders"
RECON = """\
version: 2
name: lake
ledger: _recon
tables: [{name: other, target: main.sales.other}]
pipelines:
  - name: orders
    checkpoint: cp
    sinks: [{name: orders, target: main.sales.orders, data_tests: [delta_history]}]
"""


class Spark:
    """A session whose catalog has tables."""

    version = "4.0.0"

    def __init__(self, tables: Mapping[str, Mapping[str, str]]) -> None:
        self.tables, self.asked = tables, []  # type: tuple[Mapping[str, Mapping[str, str]], list[str]]

    def sql(self, statement: str) -> Spark:
        self.asked.append(statement.removeprefix("DESCRIBE DETAIL "))
        if self.asked[-1] not in self.tables:
            raise ValueError(f"[TABLE_OR_VIEW_NOT_FOUND] The table {self.asked[-1]} cannot be found. SQLSTATE: 42P01")
        return self

    def first(self) -> Mapping[str, str]:
        return self.tables[self.asked[-1]]


def delta(location: str) -> dict[str, str]:
    return {"format": "delta", "location": location}


@pytest.fixture
def project(tmp_path: Path, activate: Activate) -> Project:
    """No session is active."""
    (tmp_path / "recon.yml").write_text(RECON)
    return load(tmp_path)


def with_table(location: str) -> Any:
    return Spark({NAME: delta(location)})


def statuses(run: AuditRun) -> dict[str, str]:
    return {result.name: result.status for result in run.results}


@pytest.mark.parametrize(
    ("answered", "location"),
    [("file:/lake/orders", "/lake/orders"), ("file:///lake/my orders", "/lake/my orders"), ("s3://l/o", "s3://l/o")],
)
def test_the_location_is_asked_once(project: Project, answered: str, location: str) -> None:
    spark = with_table(answered)
    for _ in range(2):
        require_located(project, project.pipelines[0].sinks, spark)
    assert spark.asked == [NAME]
    assert project.location(project.pipelines[0].sinks[0]) == location
    assert project.model_copy().location(project.pipelines[0].sinks[0]) == location


@pytest.mark.parametrize(
    "table", [None, {"format": "parquet", "location": "file:/lake/orders"}, delta("dbfs:/lake/orders")]
)
def test_no_usable_table(project: Project, table: Mapping[str, str] | None) -> None:
    spark: Any = Spark({} if table is None else {NAME: table})
    with raises(ConfigError):
        require_located(project, project.pipelines[0].sinks, spark)


def test_the_hook_asks_the_active_session(project: Project, activate: Activate) -> None:
    with raises(ConfigError):
        foreach_batch(project, pipeline="orders")
    activate(with_table("file:/lake/orders"))
    hook = foreach_batch(project, pipeline="orders")
    assert isinstance(hook, ForeachBatch) and hook.writer.target == "/lake/orders"  # type: ignore[attr-defined]
    assert not (project.project_dir / NAME).exists()


@pytest.mark.parametrize("session", ["given", "active", "started"])
def test_an_audit_resolves_through_a_session(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, activate: Activate, session: str
) -> None:
    Table(tmp_path).write(0, 0, 10)
    spark = with_table(f"file:{tmp_path}/orders")
    activate(spark if session == "active" else None)
    monkeypatch.setattr("recon.audits.session.session", lambda *_, **__: spark)
    given = spark if session == "given" else None
    run = run_audit(project, spark=given, no_spark=session == "active", keep=False)
    assert spark.asked[0] == NAME
    # The log alone has no txn, which is found by either way.
    (tmp_path / "recon.yml").write_text(RECON.replace(NAME, "orders"))
    by_path = run_audit(load(tmp_path), no_spark=True, keep=False)
    assert statuses(run) == statuses(by_path) and statuses(by_path)["delta_history_orders"] == "fail"


@pytest.mark.parametrize("found", ["no session", "no table"])
def test_an_audit_that_cannot_resolve(project: Project, activate: Activate, found: str) -> None:
    Table(project.project_dir).write(0, 0, 10)
    spark: Any = Spark({})
    activate(None if found == "no session" else spark)
    run = run_audit(project, no_spark=True, keep=False)
    [result] = [result for result in run.results if result.check == "delta_history"]
    assert result.status == "error" and {finding.code for finding in result.findings} <= {"INCONCLUSIVE"}
    assert same_message(result.message)
    assert not (project.project_dir / NAME).exists()


def test_tables_by_name(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []

    def read(_: Any, storage: Storage) -> Any:
        opened.append(storage.uri)
        frame = SimpleNamespace(schema="")
        frame.select = lambda *_: frame
        return frame

    monkeypatch.setattr("recon.write.sinks.catalog.read_newest", read)
    spark: Any = Spark({"main.sales.other": delta("file:/lake/other"), NAME: delta("file:/lake/orders")})
    tables = ProjectTables(project, spark)
    monkeypatch.setattr("recon.write.sinks.delta.append.read_newest", read)
    tables.open("ref('other')")
    tables.open("ref('orders')")
    assert opened == ["/lake/other", "/lake/orders"]
    with raises(ConfigError):
        ProjectTables(load(project.project_dir), Spark({})).open("ref('orders')")  # type: ignore[arg-type]


def test_what_needs_no_session_asks_one_that_is_active(project: Project, activate: Activate) -> None:
    folder = project.project_dir
    Table(folder).write(0, 0, 10)
    with raises(EvidenceError):
        starting_offsets(project, "orders")
    activate(with_table(f"file:{folder}/orders"))
    assert starting_offsets(project, "orders") == '{"orders":{"0":10}}'


def test_telemetry_names_a_table_that_is_not_located_as_recon_yml_does(project: Project) -> None:
    [pipeline] = project.pipelines
    assert of_sink(project, pipeline, pipeline.sinks[0], "lake") == Dataset("lake", NAME)
    project.set_location(NAME, "dbfs:/lake/orders")
    assert of_sink(project, pipeline, pipeline.sinks[0], "lake") == Dataset("dbfs://", "/lake/orders")
