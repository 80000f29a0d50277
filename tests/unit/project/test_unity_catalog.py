"""Tables that recon.yml names, found by Unity Catalog's REST API without Spark (tests/support/unity.py stands in)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from recon.audits.run import run_audit
from recon.base.errors import ConfigError
from recon.project import Project, load
from recon.spark.catalog import require_located
from recon.spark.catalogs import ask
from tests.support.messages import raises, same_message
from tests.support.native_stream import NativeStream
from tests.support.unity import Unity, unity
from tests.unit.cli.test_cli import Ended, recon  # noqa: F401

TOKEN = "dapi-5cef7f1e"
RECON = """
name: lake
ledger: ledger
catalogs: {{main: {{uri: "{uri}", token: "{{{{ env_var('UNITY_TOKEN') }}}}", timeout: 5}}}}
pipelines:
  - name: p
    write: native
    checkpoint: checkpoint
    source: {{topics: [t]}}
    rows: {{filters: false}}
    sinks:
      - name: s
        target: {target}
        data_tests: [ledger_integrity, offset_continuity, checkpoint_commits, delta_history, source_rows]
"""


@pytest.fixture
def catalog(monkeypatch: pytest.MonkeyPatch, activate: object) -> Iterator[Unity]:
    monkeypatch.setenv("UNITY_TOKEN", TOKEN)
    with unity() as served:
        yield served


def project_in(folder: Path, catalog: Unity, target: str = "main.sales.orders") -> Project:
    (folder / "recon.yml").write_text(RECON.format(uri=catalog.uri, target=target))
    return load(folder)


def location(project: Project) -> str:
    return project.location(project.pipelines[0].sinks[0])


def why(project: Project, catalog: Unity) -> str:
    """Why the table is not found, with the server's port taken out."""
    ask(project)
    return project.why_unlocated(location(project)).replace(catalog.uri, "http://unity")


def test_an_audit_without_spark_reads_the_table_where_the_catalog_has_it(catalog: Unity, tmp_path: Path) -> None:
    stream = NativeStream(tmp_path / "checkpoint", tmp_path / "a table").start({"t": {0: 0}})
    stream.batch({"t": {0: 10}})
    catalog.add("main.sales.orders", f"file://{tmp_path}/a table")
    run = run_audit(project_in(tmp_path, catalog), no_spark=True)
    assert run.pipelines[0].answer == "complete", [(r.name, r.message) for r in run.results]
    assert catalog.asked == [("main.sales.orders", f"Bearer {TOKEN}")]


@pytest.mark.parametrize(
    ("stored", "found"),
    [
        ("s3://bucket/lake/orders", "s3://bucket/lake/orders"),
        ("abfss://lake@account.dfs.core.windows.net/orders", "abfss://lake@account.dfs.core.windows.net/orders"),
        ("file:///lake/orders", "/lake/orders"),
        ("file:/lake/orders", "/lake/orders"),
    ],
)
def test_the_location_is_used_as_it_is(catalog: Unity, tmp_path: Path, stored: str, found: str) -> None:
    catalog.add("main.sales.orders", stored, table_type="MANAGED")
    project = project_in(tmp_path, catalog)
    ask(project)
    assert location(project) == found and not project.catalog_tables()


def test_names_in_backticks_are_asked_for_by_their_parts(catalog: Unity, tmp_path: Path) -> None:
    catalog.add("main.my sales.orders", "/lake/orders")
    project = project_in(tmp_path, catalog, "main.`my sales`.orders")
    ask(project)
    assert location(project) == "/lake/orders"


@pytest.mark.parametrize("target", ["sales.orders", "other.sales.orders", "lake/orders"])
def test_a_catalog_is_asked_for_its_own_tables_alone(catalog: Unity, tmp_path: Path, target: str) -> None:
    ask(project_in(tmp_path, catalog, target))
    assert not catalog.asked


def test_the_hook_needs_no_session_to_find_the_table(catalog: Unity, tmp_path: Path) -> None:
    catalog.add("main.sales.orders", "/lake/orders")
    project = project_in(tmp_path, catalog)
    require_located(project, project.pipelines[0].sinks)
    assert location(project) == "/lake/orders"
    missing = project_in(tmp_path, catalog, "main.sales.missing")
    with pytest.raises(ConfigError, match=r"has no table main\.sales\.missing"):
        require_located(missing, missing.pipelines[0].sinks)


def refuses(status: int, body: str = "", **headers: str) -> Callable[[Unity], None]:
    return lambda catalog: catalog.tables.update({"main.sales.orders": (status, body, headers)})


def describes(**other: Any) -> Callable[[Unity], None]:
    return lambda catalog: catalog.add("main.sales.orders", other.pop("storage_location", "/lake/orders"), **other)


@pytest.mark.parametrize(
    "says",
    [
        lambda catalog: None,
        refuses(401, json.dumps({"error_code": "UNAUTHENTICATED", "message": "Invalid access token."})),
        refuses(403, json.dumps({"error_code": "PERMISSION_DENIED", "message": f"{TOKEN} may not USE SCHEMA"})),
        refuses(500, "<html>oops</html>"),
        refuses(200, "<html>login</html>"),
        refuses(200, "[1, 2]"),
        describes(table_type="VIEW", storage_location=None),
        describes(data_source_format="PARQUET"),
        describes(storage_location=17),
        describes(storage_location=""),
    ],
    ids=["missing", "unauthorized", "forbidden", "error", "a page", "a list", "a view", "Parquet", "a number", "none"],
)
def test_bad_answers(catalog: Unity, tmp_path: Path, says: Callable[[Unity], None]) -> None:
    says(catalog)
    project = project_in(tmp_path, catalog)
    message = project.mask(why(project, catalog))
    assert same_message(message) and TOKEN not in message and "\n" not in message
    run = run_audit(project_in(tmp_path, catalog), no_spark=True)
    assert run.pipelines[0].answer == "could not be proved"
    assert not (tmp_path / "main.sales.orders").exists()


def test_a_redirect_is_not_followed_with_the_token(catalog: Unity, tmp_path: Path) -> None:
    with unity() as elsewhere:
        elsewhere.add("main.sales.orders", "/lake/orders")
        refuses(307, Location=f"{elsewhere.uri}/api/2.1/unity-catalog/tables/main.sales.orders")(catalog)
        message = why(project_in(tmp_path, catalog), catalog)
        assert not elsewhere.asked
    assert same_message(message)


@pytest.mark.parametrize("state", ["slow", "gone"])
def test_a_catalog_that_does_not_answer(
    catalog: Unity, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    text = RECON.format(uri=catalog.uri if state == "slow" else "http://127.0.0.1:1", target="main.sales.orders")
    (tmp_path / "recon.yml").write_text(text.replace("timeout: 5", "timeout: 0.3"))
    catalog.waits = 1.0
    assert same_message(why(load(tmp_path), catalog))


def test_a_catalog_that_is_silent_is_asked_once(catalog: Unity, tmp_path: Path) -> None:
    text = RECON.format(uri=catalog.uri, target="main.sales.orders").replace("timeout: 5", "timeout: 0.3")
    second = text[text.index("  - name: p") :].replace("name: p", "name: q").replace("sales.orders", "sales.returns")
    (tmp_path / "recon.yml").write_text(text + second)
    catalog.waits = 1.0
    run = run_audit(load(tmp_path), no_spark=True)
    assert [pipeline.answer for pipeline in run.pipelines] == ["could not be proved"] * 2
    time.sleep(1.2)
    assert len(catalog.asked) == 1


def test_commands_ask_the_catalog(catalog: Unity, recon: Callable[..., Ended], tmp_path: Path) -> None:  # noqa: F811
    stream = NativeStream(tmp_path / "checkpoint", tmp_path / "table").start({"t": {0: 0}})
    stream.batch({"t": {0: 10}})
    catalog.add("main.sales.orders", str(tmp_path / "table"))
    project_in(tmp_path, catalog)
    place = ("--project-dir", str(tmp_path))
    assert "entered micro-batch 0" in recon("observe", *place).out
    assert "table of p.s: OK, Delta table at version 0" in recon("debug", *place).out
    assert recon("ledger", "verify", *place).code == 0
    del catalog.tables["main.sales.orders"]
    asked = recon("debug", *place)
    assert "table of p.s: not OK, the catalog at" in asked.out and TOKEN not in asked.out + asked.err


@pytest.mark.parametrize(
    "line",
    [
        "catalogs: {main: {uri: unity.example.com}}",
        "catalogs: {main: {token: x}}",
        "catalogs: {main: {uri: 'https://u', host: x}}",
        "catalogs: {main: {uri: 'https://u', timeout: 0}}",
    ],
    ids=["no URL", "no uri", "unknown key", "no time"],
)
def test_bad_input(tmp_path: Path, line: str) -> None:
    text = RECON.format(uri="https://u", target="t")
    lines = [line if one.startswith("catalogs:") else one for one in text.splitlines()]
    (tmp_path / "recon.yml").write_text("\n".join(lines))
    with raises(ConfigError):
        load(tmp_path)


def test_an_answer_that_nobody_foresaw_is_of_its_table_alone(
    catalog: Unity, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raises_what_nobody_foresaw(*_: Any) -> Any:
        raise RuntimeError("nobody foresaw this")

    monkeypatch.setattr("recon.spark.catalogs._asked", raises_what_nobody_foresaw)
    said = why(project_in(tmp_path, catalog), catalog)
    assert same_message(said)
