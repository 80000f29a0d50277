"""Where recon.yml says that something is: paths, URIs names of catalog tables; none makes a wrong folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recon import foreach_batch
from recon.base.errors import ConfigError, EvidenceError
from recon.base.storage import Storage
from recon.cli.shared import Session, SharedOptions
from recon.project import load
from recon.write.ledger import quarantined
from tests.support.messages import raises, same_message

FORMS = {
    "ledger": "ledger: {}",
    "ledger: location": "ledger: {{location: '{}', writer: spark}}",
    "target_path": "target_path: {}",
    "templates": "reports: {{templates: '{}'}}",
    "key_file": "heads: {{key_file: '{}'}}",
    "folder": "heads: {{publish: [{{folder: '{}'}}]}}",
    "git": "heads: {{publish: [{{git: '{}'}}]}}",
    "roots": "heads: {{timestamp: {{url: 'http://tsa', roots: '{}'}}}}",
    "table of parquet": "tables: [{{name: other, format: parquet, target: '{}'}}]",
    "table of delta": "tables: [{{name: other, target: '{}'}}]",
    "catalog table": "tables: [{{name: other, format: table, target: '{}'}}]",
    "checkpoint": "checkpoint: {}",
    "target": "target: {}",
    "target of files": "kind: parquet, target: {}",
    "target of a topic": "kind: kafka, target: {}",
    "quarantine": "target: lake/orders, quarantine: {{target: '{}'}}",
}
NAMES = ["main.sales.orders", "spark_catalog.db.t", "db.t", "`main`.`my sales`.orders", "main.sales.2024_orders"]


def written(folder: Path, key: str, location: str) -> Path:
    """A recon.yml in which `key` has the location."""
    parts = {"checkpoint": "checkpoint: checkpoints/orders", "target": "target: lake/orders", "top": ""}
    line = FORMS[key].format(location if "'" in FORMS[key] else f"'{location}'")
    if key == "checkpoint":
        parts["checkpoint"] = line
    elif key.startswith(("target of", "quarantine")) or key == "target":
        parts["target"] = line
    else:
        parts["top"] = line
    ledger = "" if parts["top"].startswith("ledger") else "ledger: lake/_recon\n"
    (folder / "recon.yml").write_text(
        f"version: 2\nname: lake\n{ledger}{parts['top']}\nkafka: {{bootstrap.servers: 'localhost:1'}}\n"
        f"pipelines:\n  - name: orders\n    {parts['checkpoint']}\n    sinks: [{{name: orders, {parts['target']}}}]\n"
    )
    return folder


@pytest.fixture
def dbfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine that has DBFS as a folder."""
    mount = tmp_path / "dbfs_of_this_machine"
    mount.mkdir()
    monkeypatch.setattr("recon.base.storage.DBFS_MOUNT", mount)
    return mount


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "key",
    ["ledger", "ledger: location", "target_path", "folder", "table of parquet", "checkpoint", "target of files"],
)
def test_a_name_where_there_can_be_no_catalog_table(tmp_path: Path, key: str, name: str) -> None:
    with raises(ConfigError):
        load(written(tmp_path, key, name))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("key", ["target", "quarantine", "table of delta"])
def test_a_name_is_no_folder(tmp_path: Path, key: str, name: str) -> None:
    project = load(written(tmp_path, key, name))
    [pipeline] = project.pipelines
    location = {
        "target": project.location(pipeline.sinks[0]),
        "quarantine": quarantined.location(project, "orders", pipeline.sinks[0]),
        "table of delta": project.table_location(name),
    }[key]
    assert location == f"catalog:{name}"
    log = Storage(location).child("_delta_log")
    uses: list[Callable[[], Any]] = [lambda: log.read("x"), log.names, lambda: log.write("x", b""), log.files]
    for use in uses:
        with pytest.raises(EvidenceError, match="known to a catalog alone"):
            use()
    assert [file.name for file in tmp_path.iterdir()] == ["recon.yml"]


def test_what_is_no_name(tmp_path: Path) -> None:
    (tmp_path / "a.b").mkdir()
    for location in ("orders", "lake/orders", "a.b", "./main.sales.orders", "v1.2", "../up", "a.b.c.d", ".hidden"):
        project = load(written(tmp_path, "target", location))
        assert project.location(project.pipelines[0].sinks[0]) == str(tmp_path / location)
    for location in ("orders.parquet", "a.b", "./x.y"):
        project = load(written(tmp_path, "target of files", location))
        assert project.location(project.pipelines[0].sinks[0]) == str(tmp_path / location)
    topic = load(written(tmp_path, "target of a topic", "shop.orders.v1"))
    assert topic.location(topic.pipelines[0].sinks[0]) == "shop.orders.v1"
    assert load(written(tmp_path, "catalog table", "main.sales.orders")).tables[0].target == "main.sales.orders"
    for key in ("templates", "key_file", "git", "roots"):
        assert load(written(tmp_path, key, "signing.pem"))


@pytest.mark.parametrize("key", [key for key in FORMS if key not in ("target of a topic", "catalog table")])
def test_dbfs_on_another_machine(tmp_path: Path, key: str) -> None:
    with raises(ConfigError):
        load(written(tmp_path, key, "dbfs:/lake/orders"))


def test_dbfs_where_it_is_mounted(tmp_path: Path, dbfs: Path) -> None:
    project = load(written(tmp_path, "target", "dbfs:/lake/orders"))
    location = project.location(project.pipelines[0].sinks[0])
    assert location == "dbfs:/lake/orders", "Spark on Databricks would take /dbfs/lake for a folder of DBFS"
    assert Storage(location).local == dbfs / "lake/orders"
    assert Storage("dbfs:///lake").child("x").local == dbfs / "lake/x"
    project = load(written(tmp_path, "checkpoint", "dbfs:/checkpoints/orders"))
    Storage(project.resolve(project.pipelines[0].checkpoint)).write("metadata", b"{}")
    assert (dbfs / "checkpoints/orders/metadata").exists()
    project = load(written(tmp_path, "target_path", "dbfs:/results"))
    assert project.local_path(project.target_path) == dbfs / "results"


def test_a_ledger_on_dbfs_is_written_by_spark(tmp_path: Path, dbfs: Path) -> None:
    assert load(written(tmp_path, "ledger: location", "dbfs:/lake/_recon"))
    with raises(ConfigError):
        load(written(tmp_path, "ledger", "dbfs:/lake/_recon"))


def test_a_home(tmp_path: Path, home: Path) -> None:
    project = load(written(tmp_path, "target", "~/lake/orders"))
    assert project.location(project.pipelines[0].sinks[0]) == str(home / "lake/orders")
    for key in FORMS:
        load(written(tmp_path, key, "~/x"))
    assert project.resolve("~/checkpoints") == str(home / "checkpoints") and project.resolve("~") == str(home)
    assert project.local_path("~/results") == home / "results"


@pytest.mark.parametrize("key", ["checkpoint", "target", "ledger"])
def test_a_home_that_nobody_has(tmp_path: Path, key: str) -> None:
    with raises(ConfigError):
        load(written(tmp_path, key, "~nobody-of-this-name/x"))


@pytest.mark.parametrize("key", ["target_path", "key_file", "git"])
def test_what_must_be_on_this_machine(tmp_path: Path, key: str) -> None:
    with raises(ConfigError):
        load(written(tmp_path, key, "s3://lake/x"))
    assert load(written(tmp_path, key, "file:/tmp/x"))


@pytest.mark.parametrize(
    "location", ["abfss://c@a.dfs.core.windows.net/x", "s3://l/x", "gs://l/x", "hdfs://n/x", "file:/x"]
)
@pytest.mark.parametrize("key", ["checkpoint", "target", "ledger", "folder", "quarantine"])
def test_uris_are_passed_on(tmp_path: Path, key: str, location: str) -> None:
    assert load(written(tmp_path, key, location)).resolve(location) == location


@pytest.mark.usefixtures("activate")
@pytest.mark.parametrize("location", ["main.sales.orders", "dbfs:/x", "~nobody-of-this-name/x"])
@pytest.mark.parametrize("argument", ["checkpoint", "ledger", "target"])
def test_arguments_of_the_hook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, argument: str, location: str) -> None:
    monkeypatch.chdir(tmp_path)
    given: dict[str, Any] = {"checkpoint": "cp", "ledger": "led", "target": "lake", argument: location}
    with raises(ConfigError):
        foreach_batch(pipeline="orders", **given)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("activate")
@pytest.mark.parametrize("location", ["main.sales.orders", "dbfs:/x", "s3://lake/x"])
def test_an_option_of_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, location: str) -> None:
    monkeypatch.chdir(tmp_path)
    session = Session(SharedOptions())
    with pytest.raises(ConfigError) as caught:
        session.target(Path(location))
    assert same_message(str(caught.value))


def test_options_of_the_command_line_that_are_paths(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    session = Session(SharedOptions())
    assert session.target(Path("~/results")) == home / "results" and session.target(Path("out")) == tmp_path / "out"
    (home / "lake").mkdir(parents=True)
    written(home / "lake", "target", "lake/orders")
    assert load("~/lake").name == "lake"
