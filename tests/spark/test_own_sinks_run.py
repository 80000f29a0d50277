"""A sink of a user's own, written through the hook, and held to the contract; the code is that of docs/own_sinks.md."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from recon import foreach_batch, open_ledger
from recon.project import load
from recon.spark.frames import local_frame
from recon.testing import micro_batch, only_built_in, verify_sink
from tests.support.messages import raises
from tests.support.own_sinks import blocks, install


@pytest.fixture(autouse=True)
def the_package_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with only_built_in():
        install(tmp_path, monkeypatch, "json_lines = lake_sinks:JsonLinesSink")
        yield
    sys.modules.pop("lake_sinks", None)


def plan(folder: Path, batch_id: int) -> None:
    """A checkpoint that has planned micro-batches of two records each."""
    for name in ("offsets", "commits", "sources/0"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "metadata").write_text(json.dumps({"id": "q-1"}))
    (folder / "sources/0/0").write_bytes(b'\0v1\n{"orders":{"0":0}}')
    body = f'v1\n{{"batchTimestampMs":1763640000000}}\n{{"orders":{{"0":{2 * batch_id + 2}}}}}'
    (folder / "offsets" / str(batch_id)).write_text(body)


def test_the_hook_writes_it_and_restores_an_entry_from_its_record(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "recon.yml").write_text(blocks("yaml")[0])
    columns = "value string, topic string, partition int, offset bigint"
    for batch_id in (0, 1):
        plan(tmp_path / "checkpoints/orders", batch_id)
        rows = [(f"v{n}", "orders", 0, 2 * batch_id + n) for n in (0, 1)]
        foreach_batch(tmp_path, pipeline="orders")(local_frame(spark, rows, columns), batch_id)
    files = sorted(file.name for file in (tmp_path / "lake/orders").iterdir())
    assert files == ["0-0.ndjson", "0-1.ndjson"]
    entries = open_ledger(load(tmp_path)).last("orders", "orders", 10)
    assert [(e.batch_id, e.status, e.rows_written, e.sink_kind) for e in entries] == [
        (0, "committed", 2, "json_lines"),
        (1, "committed", 2, "json_lines"),
    ]
    # A replay: the ledger knows it, the sink finds it, and it is not written again.
    foreach_batch(tmp_path, pipeline="orders")(local_frame(spark, rows, columns), 1)
    assert open_ledger(load(tmp_path)).last("orders", "orders", 1)[0].status == "already_committed"


def test_the_pages_own_tests_pass(spark: SparkSession, tmp_path: Path) -> None:
    about: dict[str, Any] = {"__name__": "lake_sinks_page"}
    for block in blocks("python"):
        exec(compile(block, "own_sinks.md", "exec", dont_inherit=True), about)
    about["test_json_lines"](spark, tmp_path / "target")
    about["test_repair_of_numbered_lines"](spark, tmp_path / "repaired")


@pytest.mark.parametrize("broken", [("landed", "confirm"), ("log",), ("table",)], ids=" and ".join)
def test_a_broken_sink_is_named(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: tuple[str, ...]
) -> None:
    import lake_sinks  # type: ignore[import-not-found]

    import recon

    table = lake_sinks.JsonLinesWriter.table
    methods = {
        "confirm": lambda self, stamp: recon.ConfirmedWrite(version=None, rows=2),
        "landed": lambda self, stamp, version: None,
        "log": lambda self, after=None, since=None: recon.SinkLog(location="here", exists=True),
        "table": lambda self, spark: table(self, spark).union(table(self, spark)),
    }
    for name in broken:
        monkeypatch.setattr(lake_sinks.JsonLinesWriter, name, methods[name])
    sink = lake_sinks.JsonLinesSink(name="orders", kind="json_lines", target=str(tmp_path / "target"))
    first, second = (micro_batch(spark, [(1,), (2,)], "id int", batch_id=n) for n in (0, 1))
    with raises(AssertionError):
        verify_sink(sink, first, second)
