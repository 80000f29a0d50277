"""The hook takes over a stream that Spark's own sink, or somebody else, wrote until now. Without a JVM."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from typing_extensions import override

from recon.base.errors import NewEpochError, SinkError
from recon.model import ReconStamp, dump_stamp
from recon.project import DeltaSink, LedgerConfig, Pipeline, Project
from recon.write.hook import ForeachBatch, foreach_batch
from recon.write.ledger import open_ledger
from recon.write.sinks.delta.append import DeltaAppend
from tests.support.messages import raises
from tests.support.native_stream import NativeStream
from tests.unit.hook.test_writer import Rows

PLANNED = datetime(2026, 5, 4, 10, 0, tzinfo=UTC)
Hook = Callable[..., ForeachBatch]


class Sink(DeltaAppend):
    """Appends without Spark."""

    @override
    def write(self, frame: Any, stamp: ReconStamp) -> None:
        self._seen = -1
        append(
            Path(self.target),
            CommitProperties(
                custom_metadata={"userMetadata": dump_stamp(stamp)}, app_transactions=[Transaction(*self._txn(stamp))]
            ),
        )


class Table(DeltaSink):
    writer = f"{__name__}:Sink"


def append(table: Path, properties: CommitProperties | None = None) -> None:
    columns = {"kafka_topic": ["x"], "kafka_partition": pa.array([0], pa.int32()), "kafka_offset": pa.array([0])}
    write_deltalake(str(table), pa.table(columns), mode="append", commit_properties=properties)


@pytest.fixture
def stream(tmp_path: Path) -> NativeStream:
    """Micro-batches 0 and 1 of ten offsets each, and the plan of 2."""
    made = NativeStream(tmp_path / "cp", tmp_path / "t", at=PLANNED).start({"orders": {0: 0}})
    for n in (1, 2):
        made.batch({"orders": {0: 10 * n}})
    return made


@pytest.fixture
def make_hook(tmp_path: Path) -> Hook:
    def make(*others: str, **options: Any) -> ForeachBatch:
        sinks = tuple(Table(name=name, kind="delta", target="t", **options) for name in ("s", *others))
        pipeline = Pipeline(name="p", checkpoint="cp", sinks=sinks)
        project = Project(name="x", ledger=LedgerConfig(location="l"), pipelines=(pipeline,), project_dir=tmp_path)
        hook = foreach_batch(project, pipeline="p", sink="s")
        assert isinstance(hook, ForeachBatch)
        return hook

    return make


def entered(hook: ForeachBatch) -> list[tuple[int, str, int | None]]:
    return [(one.batch_id, one.status, one.sink_version) for one in open_ledger(hook.project).entries("p", "s")]


def test_a_micro_batch_that_spark_wrote_is_entered_and_not_written(stream: NativeStream, make_hook: Hook) -> None:
    stream.batch({"orders": {0: 30}}, commits=False)
    hook = make_hook()
    hook.write(Rows(read=10), 2)
    assert entered(hook) == [(2, "observed", 2)] and DeltaTable(str(stream.table)).version() == 2
    (entry,) = open_ledger(hook.project).entries("p", "s")
    assert entry.guarantee == "observed" and [span.span for span in entry.offsets] == [(20, 30)]
    hook.write(Rows(read=10), 2)  # Spark plans it once more
    assert entered(hook) == [(2, "observed", 2)]


def test_the_hook_goes_on_behind_what_spark_wrote(stream: NativeStream, make_hook: Hook) -> None:
    stream.batch({"orders": {0: 30}}, commits=False, writes=False)
    hook = make_hook()
    hook.write(Rows(read=10), 2)
    assert entered(hook) == [(2, "committed", 2)]


def test_one_that_cannot_be_entered_stops(stream: NativeStream, make_hook: Hook) -> None:
    stream.batch({"orders": {0: 30}}, commits=False)
    hook = make_hook("another")
    with raises(SinkError):
        hook.write(Rows(read=10), 2)
    assert not entered(hook) and DeltaTable(str(stream.table)).version() == 2


def test_rows_of_somebody_else_since_the_plan_stop(stream: NativeStream, make_hook: Hook) -> None:
    stream.batch({"orders": {0: 30}}, commits=False, writes=False)
    append(stream.table)
    hook = make_hook()
    with raises(NewEpochError):
        hook.write(Rows(read=10), 2)
    assert not entered(hook)
    accepting = make_hook(on_new_epoch="warn")
    accepting.write(Rows(read=10), 2)
    assert entered(accepting) == [(2, "committed", 3)]


def test_rows_that_were_restored_away_do_not(stream: NativeStream, make_hook: Hook) -> None:
    stream.batch({"orders": {0: 30}}, commits=False, writes=False)
    append(stream.table)
    DeltaTable(str(stream.table)).restore(1)
    hook = make_hook()
    hook.write(Rows(read=10), 2)
    assert entered(hook) == [(2, "committed", 4)]
