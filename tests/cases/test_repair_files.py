"""Repairs of file sinks on a real broker and stream: rows in a folder and a manifest of their own, once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from typing_extensions import override

from recon import read_batches
from recon.audits.accept import open_findings
from recon.base.errors import ConfigError, SinkError
from recon.model import REPAIRS, ReconStamp
from recon.recovery.repair.run import Repaired
from recon.recovery.repair.witnesses import repair_plans
from recon.write.sinks.failpoints import (
    AFTER_LEDGER,
    AFTER_WRITE,
    BEFORE_LEDGER,
    BEFORE_WRITE,
    FILES_WRITTEN,
    MANIFEST_WRITTEN,
)
from recon.write.sinks.files.replace import FileReplace
from tests.cases.lake import Lake, failing, findings, listed
from tests.cases.test_repair import mend, mend_twice_at_once, parse, swallowing
from tests.support.failpoints import dies_at

# tests/crash/test_killed_repair.py repairs such a sink in `make test`.
pytestmark = pytest.mark.long

CHECKS = (
    "offset_continuity",
    "kafka_end_offsets",
    "checkpoint_commits",
    "sink_commits",
    "source_rows",
    "ledger_integrity",
)
WHOLE = [(0, offset) for offset in range(60) if offset % 10 != 9]


@dataclass
class FileLake(Lake):
    """The pipeline, with a file sink."""

    files: Mapping[str, Any] = field(default_factory=dict)

    @property
    @override
    def sink_of_project(self) -> dict[str, Any]:
        return {"name": "s", "kind": "parquet", "target": "table", "data_tests": listed(CHECKS), **self.files}

    @override
    def rows(self) -> list[Any]:
        return read_batches(self.spark, str(self.table)).collect()


@pytest.fixture
def make_lake(kafka: Any, spark: Any, topic: Callable[..., str], tmp_path: Path) -> Callable[..., FileLake]:
    return lambda **files: FileLake(tmp_path, kafka, spark, topic("f"), files=files)


def number_files_only(lake: FileLake) -> Callable[[str, ReconStamp], None]:
    """The process dies behind the commit by number, and before the manifest."""

    def dies(point: str, stamp: ReconStamp) -> None:
        if point == MANIFEST_WRITTEN:
            (lake.table / "_recon_manifests" / str(REPAIRS) / "0" / f"{stamp.batch_id}.json").unlink()
            raise RuntimeError("died before its manifest")

    return dies


@pytest.mark.parametrize("kind", ["parquet", "json", "csv"])
def test_a_swallowed_micro_batch_is_a_folder_of_the_repair(make_lake: Callable[..., FileLake], kind: str) -> None:
    lake = make_lake(kind=kind)
    swallowing(lake)
    assert failing(lake.audit()) == {"GAP"}
    (plan,) = repair_plans(lake.project)
    assert [(one.action, one.start_offset, one.end_offset, one.batch_id) for one in plan.ranges] == [
        ("read", 20, 40, 1)
    ]
    done = mend(lake)
    assert (done.offsets, done.rows, done.incomplete) == (20, 18, ())
    assert lake.values() == WHOLE
    mine = [row for row in lake.rows() if 20 <= row["_source_offset"] < 40]
    assert {(row["_recon_epoch"], row["_batch_id"]) for row in mine} == {(REPAIRS, 1)}
    of_batch = read_batches(lake.spark, str(lake.table), batches=[1]).collect()
    assert len(of_batch) == 18, "the rows of the micro-batch that was swallowed"
    run = lake.audit()
    assert not failing(run) and findings(run, "REPAIRED")
    assert run.pipelines[0].answer == "complete", run.pipelines[0].because
    assert mend(lake).entries == () and not open_findings(lake.project)
    # Without the helper, Spark reads the folders.
    if kind == "parquet":
        assert lake.spark.read.parquet(str(lake.table)).count() == 54
    lake.produce(20)
    lake.run(transform=parse)
    assert not failing(lake.audit()) and not failing(lake.audit(full=True))


@pytest.mark.parametrize("point", [BEFORE_WRITE, FILES_WRITTEN, "number", MANIFEST_WRITTEN, AFTER_WRITE, BEFORE_LEDGER])
def test_an_interrupted_repair_is_run_again(make_lake: Callable[..., FileLake], point: str) -> None:
    lake = make_lake()
    swallowing(lake)
    lake.audit()
    dies = number_files_only(lake) if point == "number" else dies_at(point)
    with pytest.raises(RuntimeError, match="died"):
        mend(lake, failpoint=dies)
    written_before = point not in (BEFORE_WRITE, FILES_WRITTEN)
    done = mend(lake)
    assert done.finished == (("repair 0",) if written_before else ()) and done.incomplete == ()
    assert lake.values() == WHOLE
    run = lake.audit()
    assert not failing(run) and run.pipelines[0].answer == "complete", run.pipelines[0].because
    entry = next(one for one in lake.entries() if one.is_repair)
    assert (entry.rows_read, entry.rows_written, entry.rows_filtered) == (20, 18, 2)


@pytest.mark.parametrize(("at", "batch_id"), [(AFTER_LEDGER, 3), (BEFORE_WRITE, 4)])
def test_a_query_goes_on_beside_a_repair(make_lake: Callable[..., FileLake], at: str, batch_id: int) -> None:
    lake = make_lake()
    swallowing(lake)
    lake.audit()
    lake.produce(60)
    done: list[Repaired] = []

    def repairs(point: str, stamp: ReconStamp) -> None:
        if (point, stamp.batch_id) == (at, batch_id) and not done:
            done.append(mend(lake))

    lake.run(transform=parse, failpoint=repairs, per_trigger=20)
    assert [(one.offsets, one.rows, one.incomplete) for one in done] == [(20, 18, ())]
    assert lake.values() == [(0, o) for o in range(120) if o % 10 != 9]
    run = lake.audit()
    assert not failing(run) and run.pipelines[0].answer == "complete", run.pipelines[0].because


def test_a_repair_that_a_query_refuses_looks_anew(make_lake: Callable[..., FileLake]) -> None:
    lake = make_lake()
    swallowing(lake)
    lake.audit()
    numbers: list[int | None] = []

    def goes_on(point: str, stamp: ReconStamp) -> None:
        if point == BEFORE_WRITE:
            numbers.append(stamp.number)
            if len(numbers) < 3:
                lake.produce(20)
                lake.run(transform=parse)

    done = mend(lake, failpoint=goes_on)
    assert numbers == [3, 4, 5] and (done.offsets, done.rows, done.incomplete) == (20, 18, ())
    assert lake.values() == [(0, o) for o in range(100) if o % 10 != 9]
    assert not failing(lake.audit())


def test_two_repairs_at_once_write_once(make_lake: Callable[..., FileLake]) -> None:
    lake = make_lake()
    swallowing(lake)
    lake.audit()
    results = mend_twice_at_once(lake)
    assert [sorted(one.rows for one in results if isinstance(one, Repaired))] == [[0, 18]], results
    assert lake.values() == WHOLE and not failing(lake.audit())


def test_each_micro_batch_is_a_write_of_its_own_and_lost_rows_come_back(make_lake: Callable[..., FileLake]) -> None:
    lake = make_lake()
    hook = lake.hook(transform=parse)
    write = hook.writer.write
    losing = F.col("_source_offset").isin(3, 24)
    hook.writer.write = lambda frame, stamp: write(frame.where(~losing), stamp)  # type: ignore[method-assign]
    lake.produce(60)
    lake.run(hook, per_trigger=20)
    assert "GAP" in failing(lake.audit())
    done = mend(lake)
    assert done.rows == 2 and len(done.entries) == 2 and done.incomplete == ()
    assert lake.values() == WHOLE
    assert {(r["_batch_id"], r["_source_offset"]) for r in lake.rows() if r["_recon_epoch"] == REPAIRS} == {
        (0, 3),
        (1, 24),
    }
    run = lake.audit()
    assert not failing(run) and run.pipelines[0].answer == "complete", run.pipelines[0].because


def test_what_is_not_done(make_lake: Callable[..., FileLake]) -> None:
    lake = make_lake(on_new_epoch="warn")
    lake.produce(20)
    lake.run(transform=parse)
    lake.forget_checkpoint()
    lake.run(transform=parse)
    assert "DUPLICATE" in failing(lake.audit())
    (plan,) = repair_plans(lake.project)
    assert {one.action for one in plan.ranges} == {"unknown"}
    assert all("a repair removes none" in one.why for one in plan.ranges)
    assert mend(lake).entries == () and len(lake.rows()) == 36
    appended = make_lake(mode="append")
    with pytest.raises(ConfigError, match="it has mode: append"):
        mend(appended)


def frame_with(frame: DataFrame) -> DataFrame:
    """Another transform, with a column more."""
    return parse(frame).withColumn("more", F.lit(1))


def test_rows_with_other_columns_are_refused(make_lake: Callable[..., FileLake]) -> None:
    lake = make_lake()
    swallowing(lake)
    lake.audit()
    with pytest.raises(SinkError, match="column more is in the rows alone"):
        mend(lake, transform=frame_with, other_transform=True)
    assert isinstance(lake.hook().writer, FileReplace) and len(lake.rows()) == 36
