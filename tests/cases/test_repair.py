"""Repairs on a real broker, stream and table: what an audit refuted is REPAIRED, once, wherever one is interrupted."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from recon.audits.accept import open_findings
from recon.base.errors import ConfigError, SinkError
from recon.cli import main
from recon.model import REPAIRS, ReconStamp
from recon.model.wire.app_ids import app_id
from recon.recovery.repair.run import Repaired, repair
from recon.recovery.repair.witnesses import repair_plans
from recon.write.sinks.failpoints import AFTER_LEDGER, AFTER_WRITE, BEFORE_LEDGER, BEFORE_WRITE
from tests.cases.lake import EVIDENCE, Lake, failing, findings, ranges
from tests.support.failpoints import dies_at
from tests.support.interpreted import interpreted
from tests.support.marks import long

# tests/crash/test_killed_repair.py repairs such a table in `make test` as well, and tests/model repairs beside queries.
MakeLake = Callable[..., Lake]
CHECKS = (*EVIDENCE, "ledger_integrity")
STAMPS = "_source_topic", "_source_partition", "_source_offset"


def parse(frame: DataFrame) -> DataFrame:
    """The transform of the query; it drops every tenth record."""
    rows = frame.selectExpr("CAST(key AS STRING) AS k", "CAST(value AS STRING) AS v", *STAMPS)
    return rows.filter(F.col("_source_offset") % 10 != 9)


def other(frame: DataFrame) -> DataFrame:
    """Another one."""
    return parse(frame).withColumn("v", F.lit("other"))


def swallowing(lake: Lake, *, partitions: int = 1) -> None:
    """Micro-batch 1 of three is swallowed."""
    good = lake.hook(transform=parse)

    def swallows(frame: DataFrame, batch_id: int) -> None:
        if batch_id != 1:
            good(frame, batch_id)

    for partition in range(partitions):
        lake.produce(60, partition)
    lake.run(swallows, per_trigger=20 * partitions)


@pytest.fixture(scope="module")
def swallowed_once(kafka: Any, spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Three micro-batches of which one was swallowed, and audited; `swallowed` gives copies."""
    lake = Lake(tmp_path_factory.mktemp("swallowed"), kafka, spark, f"swallowed-{uuid.uuid4().hex[:8]}", checks=CHECKS)
    kafka.create_topic(lake.topic)
    with interpreted(spark):
        swallowing(lake)
        assert failing(lake.audit()) == {"GAP"}
    return lake


@pytest.fixture
def swallowed(swallowed_once: Lake, tmp_path: Path) -> Lake:
    """Such a lake, for a test that writes nothing to its topic."""
    shutil.copytree(swallowed_once.path, tmp_path / "lake")
    return replace(swallowed_once, path=tmp_path / "lake")


def mend(lake: Lake, **options: Any) -> Repaired:
    return repair(lake.project, "p", "s", spark=lake.spark, **{"transform": parse, **options})


@pytest.mark.parametrize("point", [None, *long(BEFORE_WRITE, AFTER_WRITE, BEFORE_LEDGER)])
def test_a_swallowed_micro_batch_is_read_again_through_the_transform(make_lake: MakeLake, point: str | None) -> None:
    lake = make_lake(partitions=2, checks=CHECKS)
    swallowing(lake, partitions=2)
    assert failing(lake.audit()) == {"GAP"}
    (plan,) = repair_plans(lake.project)
    assert [(one.action, one.partition, one.start_offset, one.end_offset, one.batch_id) for one in plan.ranges] == [
        ("read", 0, 20, 40, 1),
        ("read", 1, 20, 40, 1),
    ]
    if point is not None:
        with pytest.raises(RuntimeError, match=point):
            mend(lake, failpoint=dies_at(point), by="Ada", reason="ticket 7")
    done = mend(lake, by="Bob")
    written_before = point in (AFTER_WRITE, BEFORE_LEDGER)
    assert done.incomplete == () and done.finished == (("repair 0",) if written_before else ())
    assert (done.offsets, done.rows) == ((0, 0) if written_before else (40, 36))
    assert lake.values() == [(p, o) for p in range(2) for o in range(60) if o % 10 != 9]
    assert {row["_batch_id"] for row in lake.rows() if 20 <= row["_source_offset"] < 40} == {1}
    run = lake.audit()
    assert not failing(run) and findings(run, "REPAIRED")
    (facts,) = run.pipelines
    assert facts.answer == "complete" and not open_findings(lake.project), facts.because
    entry = next(one for one in lake.entries() if one.is_repair)
    assert (entry.epoch, entry.batch_id, entry.rows_written) == (-2, 0, 36)
    assert (entry.rows_read, entry.rows_filtered) == (40, 4), "a restored entry knows it, too"
    assert (entry.by, entry.reason) == (("Ada", "ticket 7") if written_before else ("Bob", None))
    # The query goes on, and a second repair finds nothing to do.
    assert mend(lake).entries == ()
    lake.produce(20)
    lake.run(transform=parse)
    assert not failing(lake.audit()) and not failing(lake.audit(full=True))


def test_doubled_rows_are_removed_but_one(make_lake: MakeLake) -> None:
    lake = make_lake(sink={"on_new_epoch": "warn"}, checks=CHECKS)
    lake.produce(40)
    lake.run(transform=parse)
    lake.forget_checkpoint()
    lake.produce(5)
    lake.run(transform=parse)
    assert failing(lake.audit()) == {"OVERLAP", "DUPLICATE"}
    with pytest.raises(RuntimeError, match=AFTER_WRITE):
        mend(lake, failpoint=dies_at(AFTER_WRITE))
    done = mend(lake)
    assert done.finished == ("removal 0 of doubled rows",)
    assert lake.values() == [(0, o) for o in range(45) if o % 10 != 9]
    entry = next(one for one in lake.entries() if one.is_removal)
    assert (entry.rows_read, entry.rows_removed, entry.rows_written) == (36, 72, 36)
    run = lake.audit()
    assert not failing(run), findings(run)
    assert (0, 0, 40) in ranges(findings(run, "REPAIRED")) and not failing(lake.audit(full=True))


@pytest.mark.long
def test_rows_that_a_micro_batch_wrote_twice_are_removed_but_one(make_lake: MakeLake) -> None:
    """The micro-batch keeps its counts, of one row too many; beside the doubled row its transform drops two records."""
    lake = make_lake(checks=CHECKS)
    good = lake.hook(transform=parse)

    def doubles(frame: DataFrame, batch_id: int) -> None:
        good(frame.union(frame.where("offset = 23")) if batch_id == 1 else frame, batch_id)

    lake.produce(60)
    lake.run(doubles, per_trigger=20)
    assert "DUPLICATE" in failing(lake.audit())
    assert mend(lake).entries
    assert lake.values() == [(0, o) for o in range(60) if o % 10 != 9]
    for full in (False, True):
        run = lake.audit(full=full)
        assert not failing(run), (findings(run), run.pipelines[0].because)


@pytest.mark.long
def test_rows_that_differ_are_not_removed(make_lake: MakeLake) -> None:
    lake = make_lake(checks=CHECKS)
    lake.produce(20)
    lake.run(transform=parse)
    lake.sql("INSERT INTO {table} SELECT 'x', v, " + ", ".join(STAMPS) + ", _batch_id FROM {table}")
    assert "DUPLICATE" in failing(lake.audit())
    done = mend(lake)
    assert done.entries == () and "18 offsets" in done.incomplete[0] and len(lake.rows()) == 36


def mend_twice_at_once(lake: Lake) -> list[Repaired | SinkError]:
    """Two repairs whose writes meet."""
    both, results = Barrier(2), list[Repaired | SinkError]()

    def wait(point: str, stamp: ReconStamp) -> None:
        if point == BEFORE_WRITE:
            both.wait(60)

    def mends() -> None:
        try:
            results.append(mend(lake, failpoint=wait))
        except SinkError as error:
            results.append(error)

    threads = [Thread(target=mends) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(240)
    return results


def test_two_repairs_at_once_write_once(swallowed: Lake) -> None:
    lake = swallowed
    results = mend_twice_at_once(lake)
    assert [sorted(one.rows for one in results if isinstance(one, Repaired))] == [[0, 18]], results
    assert lake.values() == [(0, o) for o in range(60) if o % 10 != 9]
    assert not failing(lake.audit())


@pytest.mark.long
@pytest.mark.parametrize(("at", "batch_id"), [(AFTER_LEDGER, 3), (BEFORE_WRITE, 4)])
def test_a_query_goes_on_beside_a_repair(make_lake: MakeLake, at: str, batch_id: int) -> None:
    """The repair comes between two of its micro-batches, and between its look at the sink and its commit."""
    lake = make_lake(checks=CHECKS)
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
    numbers = [(entry.epoch, entry.batch_id, entry.status) for entry in lake.entries()]
    after = [(0, n, "committed") for n in (3, 4, 5)]
    after.insert(1, (REPAIRS, 0, "repaired"))
    assert numbers == [(0, 0, "committed"), (0, 2, "committed"), *after]
    run = lake.audit()
    assert not failing(run) and findings(run, "REPAIRED")
    assert run.pipelines[0].answer == "complete", run.pipelines[0].because


@pytest.mark.long
def test_a_removal_beside_a_query(make_lake: MakeLake) -> None:
    lake = make_lake(sink={"on_new_epoch": "warn"}, checks=CHECKS)
    lake.produce(20)
    lake.run(transform=parse)
    lake.forget_checkpoint()
    lake.run(transform=parse)
    lake.audit()
    lake.produce(20)
    done: list[Repaired] = []

    def repairs(point: str, stamp: ReconStamp) -> None:
        if point == BEFORE_WRITE and not done:
            done.append(mend(lake))

    lake.run(transform=parse, failpoint=repairs)
    assert done[0].removed == 18
    assert lake.values() == [(0, o) for o in range(40) if o % 10 != 9]
    assert not failing(lake.audit())


class Transforms:
    """The query's transform, and how often it was called; each call gives other rows."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, frame: DataFrame) -> DataFrame:
        self.calls += 1
        return parse(frame).withColumn("v", F.lit(f"call {self.calls}"))


@pytest.mark.long
def test_a_repair_that_a_query_refuses_looks_anew_and_reads_nothing_twice(make_lake: MakeLake) -> None:
    lake = make_lake(checks=CHECKS)
    swallowing(lake)
    lake.audit()
    transform, commits = Transforms(), []

    def goes_on(point: str, stamp: ReconStamp) -> None:
        if point == BEFORE_WRITE:
            commits.append(stamp.number)
            if len(commits) < 3:
                lake.produce(20)
                lake.run(transform=parse)

    done = mend(lake, transform=transform, other_transform=True, failpoint=goes_on)
    assert commits == [3, 4, 5] and transform.calls == 1
    assert (done.offsets, done.rows, done.incomplete) == (20, 18, ())
    assert lake.values() == [(0, o) for o in range(100) if o % 10 != 9]
    assert {row["v"] for row in lake.rows() if 20 <= row["_source_offset"] < 40} == {"call 1"}
    run = lake.audit()
    assert not failing(run) and run.pipelines[0].answer == "complete", run.pipelines[0].because


@pytest.mark.long
def test_a_query_on_a_fresh_checkpoint_reads_the_same_offsets(make_lake: MakeLake) -> None:
    """Of a hole that it does not see: its first micro-batch is in it, the second one stops it."""
    lake = make_lake(checks=CHECKS)
    swallowing(lake)
    lake.audit()
    errors: list[str] = []

    def other_query(point: str, stamp: ReconStamp) -> None:
        if point == BEFORE_WRITE:
            start = json.dumps({lake.topic: {"0": 20}})
            with pytest.raises(StreamingQueryException) as stopped:
                replace(lake, checkpoint_name="fresh").run(transform=parse, starting=start, per_trigger=20)
            errors.append(str(stopped.value))

    done = mend(lake, failpoint=other_query)
    assert (done.entries, done.rows) == ((), 0) and "NewEpochError" in errors[0]
    assert lake.values() == [(0, o) for o in range(60) if o % 10 != 9]
    assert {row["_batch_id"] for row in lake.rows() if 20 <= row["_source_offset"] < 40} == {0}


@pytest.mark.long
def test_a_repair_that_is_refused_again_and_again_ends(make_lake: MakeLake) -> None:
    lake = make_lake(checks=CHECKS)
    swallowing(lake)
    lake.audit()
    numbers: list[int] = []

    def takes_the_number(point: str, stamp: ReconStamp) -> None:
        if point == BEFORE_WRITE:
            numbers.append(stamp.number or 0)
            nothing = DeltaTable(lake.table).to_pyarrow_table().slice(0, 0)
            txn = [Transaction(app_id("p", "s"), numbers[-1])]
            write_deltalake(
                lake.table, nothing, mode="append", commit_properties=CommitProperties(app_transactions=txn)
            )

    with pytest.raises(SinkError, match="came first 10 times in a row, and the repair gave up"):
        mend(lake, failpoint=takes_the_number)
    assert numbers == list(range(3, 13)) and len(lake.rows()) == 36
    assert not [entry for entry in lake.entries() if entry.is_repair]
    assert mend(lake).rows == 18


def test_what_a_repair_refuses(swallowed: Lake) -> None:
    lake = swallowed
    (finding,) = {one.id for one in open_findings(lake.project)}
    for wrong in (None, other):
        with pytest.raises(ConfigError, match="rows went through the transform tests"):
            mend(lake, transform=wrong)
    with pytest.raises(ConfigError, match="no open finding with id 'ffffffff'; open are"):
        mend(lake, finding="ffffffff")
    without = lake.project.model_copy(update={"kafka": {}})
    with pytest.raises(ConfigError, match="a repair reads missing offsets again from Kafka"):
        repair(without, "p", "s", spark=lake.spark, transform=parse)
    with pytest.raises(SinkError, match="do not look like those of the table"):
        mend(lake, transform=lambda frame: frame, other_transform=True)
    assert len(lake.rows()) == 36
    done = mend(lake, finding=finding[:5], transform=other, other_transform=True)
    assert done.rows == 18


@pytest.mark.long
def test_what_kafka_has_no_more_is_named(make_lake: MakeLake) -> None:
    lake = make_lake(checks=CHECKS)
    swallowing(lake)
    lake.audit()
    lake.kafka.delete_records({(lake.topic, 0): 30})
    done = mend(lake)
    assert [(one.action, one.start_offset, one.end_offset) for one in done.plan.ranges] == [
        ("gone", 20, 30),
        ("read", 30, 40),
    ]
    run = lake.audit()
    assert ranges(findings(run, "REPAIRED")) == {(0, 30, 40)} and failing(run)


def test_the_command(swallowed: Lake, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    lake = swallowed
    tests = ", ".join(CHECKS)
    (lake.path / "recon.yml").write_text(
        f"name: lake\nledger: recon\nkafka: {{bootstrap.servers: '{lake.kafka.bootstrap_servers}'}}\npipelines:\n"
        f"  - name: p\n    checkpoint: {lake.checkpoint_name}\n    source: {{topics: [{lake.topic}]}}\n"
        f"    sinks: [{{name: s, target: table, data_tests: [{tests}]}}]\n"
    )
    monkeypatch.chdir(lake.path)
    arguments = ["repair", "apply", "--pipeline", "p", "--transform", "tests.cases.test_repair:parse", "--yes"]
    with pytest.raises(SystemExit) as end:
        main(arguments)
    out = capsys.readouterr().out
    assert not end.value.code, out
    assert "p.s: 20 offsets were read again and 18 rows written" in out and "is REPAIRED" in out
    assert lake.values() == [(0, o) for o in range(60) if o % 10 != 9] and not open_findings(lake.project)
