"""Fault cases of the table's commits: doubled, skipped, rewritten and merged ones, with false metrics or no entry."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from dataclasses import replace as changed
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

from recon.model import ReconStamp
from recon.write.ledger import open_ledger
from recon.write.sinks.delta.append import DeltaAppend
from recon.write.sinks.failpoints import BEFORE_LEDGER
from tests.cases.lake import Keeps, Lake, complete, failing, findings, ranges, refuted, told
from tests.cases.test_delta_merge import MergedLake
from tests.support.failpoints import dies_at

MakeLake = Callable[..., Lake]
TWO_LOST = "_source_offset % 10 NOT IN (4, 7)"


def ran(lake: Lake, batches: int) -> None:
    """So many micro-batches of ten records, in one run of the query."""
    lake.produce(10 * batches)
    lake.run(per_trigger=10)


def commit_file(lake: Lake, version: int) -> Path:
    return lake.table / "_delta_log" / f"{version:020d}.json"


def commit_info(lake: Lake, version: int) -> dict[str, Any]:
    actions = [json.loads(line) for line in commit_file(lake, version).read_text().splitlines()]
    return next(dict(action["commitInfo"]) for action in actions if "commitInfo" in action)


def inflate(lake: Lake, version: int, rows: int) -> None:
    """The commit's metrics count more rows than its files hold, as after a stage that ran twice."""
    file = commit_file(lake, version)
    actions = [json.loads(line) for line in file.read_text().splitlines()]
    for action in actions:
        if "commitInfo" in action:
            metrics = action["commitInfo"]["operationMetrics"]
            metrics["numOutputRows"] = str(int(metrics["numOutputRows"]) + rows)
    file.write_text("".join(json.dumps(action) + "\n" for action in actions))
    for beside in (file.with_suffix(".crc"), file.with_name(f".{file.name}.crc")):
        beside.unlink(missing_ok=True)


def without_entry(lake: Lake, writer: DeltaAppend | None = None) -> None:
    """The last micro-batch is committed, has no entry, and Spark takes it as written."""
    hook = lake.hook(failpoint=dies_at(BEFORE_LEDGER))
    if writer is not None:
        hook.writer = writer

    def swallows(frame: DataFrame, batch_id: int) -> None:
        with contextlib.suppress(RuntimeError):
            hook(frame, batch_id)

    lake.produce(10)
    lake.run(swallows)


@pytest.mark.case(33, "SKIPPED")
def test_another_write_took_the_app_id_and_version(make_lake: MakeLake) -> None:
    lake = make_lake(sink={"txn_app_id": "our-writer"})
    ran(lake, 1)
    version = next(
        json.loads(line)["txn"]["version"]
        for line in commit_file(lake, 0).read_text().splitlines()
        if "txn" in json.loads(line)
    )
    nothing = lake.spark.read.format("delta").load(str(lake.table)).limit(0)
    taken = {"txnAppId": "our-writer", "txnVersion": str(version + 1)}
    nothing.write.format("delta").mode("append").options(**taken).save(str(lake.table))
    lake.produce(10)
    with pytest.raises(StreamingQueryException, match="was SKIPPED"):
        lake.run()
    run = lake.audit()
    assert refuted(run, "SKIPPED") and ranges(findings(run, "SKIPPED")) == {(0, 10, 20)}, told(run)


@pytest.mark.case(33)
def test_txn_settings_that_the_session_still_has_skip_nothing(make_lake: MakeLake) -> None:
    lake = make_lake()
    leaked = {"txnAppId": "recon:p:s", "txnVersion": "2"}
    for name, value in leaked.items():
        lake.spark.conf.set(f"spark.databricks.delta.write.{name}", value)
    try:
        ran(lake, 3)
    finally:
        for name in leaked:
            lake.spark.conf.unset(f"spark.databricks.delta.write.{name}")
    assert lake.values() == [(0, offset) for offset in range(30)]
    run = lake.audit()
    assert complete(run), told(run)


@pytest.mark.long
@pytest.mark.parametrize(
    ("leaves_out", "doubles", "codes"),
    [(-1, -1, ()), (13, -1, ("MUTATED", "GAP")), (13, 14, ("GAP", "DUPLICATE"))],
    ids=["keeps all rows", "loses one", "loses one and doubles another"],
)
def test_a_rewrite_that_says_it_changes_no_data(
    make_lake: MakeLake, leaves_out: int, doubles: int, codes: tuple[str, ...]
) -> None:
    lake = make_lake()
    ran(lake, 2)
    assert complete(lake.audit())
    rows = lake.spark.read.format("delta").load(str(lake.table))
    kept = rows.where(f"_source_offset <> {leaves_out}").union(rows.where(f"_source_offset = {doubles}"))
    writer = kept.localCheckpoint().coalesce(1).write.format("delta").mode("overwrite")
    writer.option("dataChange", "false").save(str(lake.table))
    run = lake.audit()
    assert refuted(run, *codes) if codes else complete(run), told(run)
    if codes:
        assert (0, 13, 14) in ranges(findings(run, "GAP")), told(run)


@pytest.mark.case(58, "GAP", "METRIC_UNRELIABLE")
def test_metrics_count_as_many_rows_as_were_read_and_files_hold_fewer(make_lake: MakeLake) -> None:
    lake = make_lake()
    ran(lake, 1)

    def inflates(point: str, stamp: ReconStamp) -> None:
        if point == BEFORE_LEDGER:
            inflate(lake, 1, 2)

    hook = lake.hook(failpoint=inflates)
    hook.writer = Keeps(lake, TWO_LOST)
    lake.produce(10)
    lake.run(hook)
    assert commit_info(lake, 1)["operationMetrics"]["numOutputRows"] == "10"
    run = lake.audit()
    assert refuted(run, "GAP") and {(0, 14, 15), (0, 17, 18)} <= ranges(findings(run, "GAP")), told(run)


@pytest.mark.case(28)
@pytest.mark.case(37)
def test_a_merge_that_copies_rows_and_one_that_matches_nothing(make_merged: Callable[..., MergedLake]) -> None:
    lake = make_merged(newer_wins="at")
    lake.send([(key, 1, 5, "u") for key in "abcde"])
    lake.drain()
    lake.sql("OPTIMIZE {table}")
    lake.send([("a", 2, 6, "u")])
    lake.drain()
    merged = commit_info(lake, DeltaTable(str(lake.table)).version())
    assert merged["operationMetrics"]["numTargetRowsCopied"] == "4"
    lake.send([("b", 0, 1, "u")])  # older than what is there
    lake.drain()
    assert [entry.rows_written for entry in lake.entries()] == [5, 1, 0]
    run = lake.audit()
    assert complete(run), told(run)


@pytest.mark.case(28, "LEDGER_ORPHAN")
def test_an_entry_without_a_commit(make_lake: MakeLake) -> None:
    lake = make_lake()
    ran(lake, 1)
    lake.produce(10)
    lake.run(lambda frame, batch_id: None)
    (entry,) = lake.entries()
    spans = tuple(span._replace(start_offset=10, end_offset=20) for span in entry.offsets)
    open_ledger(lake.project).append(changed(entry, batch_id=1, offsets=spans, sink_version=1))
    run = lake.audit()
    assert "LEDGER_ORPHAN" in failing(run) and run.pipelines[0].answer == "not complete", told(run)


@pytest.fixture
def make_merged(kafka: Any, spark: Any, topic: Callable[..., str], tmp_path: Path) -> Callable[..., MergedLake]:
    return lambda **sink: MergedLake(tmp_path, kafka, spark, topic("m"), sink=sink)


@pytest.mark.case(50, "LEDGER_MISSING", "GAP")
def test_a_commit_without_an_entry_that_has_fewer_rows_than_offsets(make_lake: MakeLake) -> None:
    lake = make_lake()
    ran(lake, 1)
    without_entry(lake, Keeps(lake, TWO_LOST))
    assert len(lake.rows()) == 18 and len(lake.entries()) == 1
    run = lake.audit()
    assert refuted(run, "GAP"), told(run)
