"""Test a sink of your own: a micro-batch as the hook gives it to a sink, and the contract that every sink keeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from recon.base.errors import EvidenceError, SinkError
from recon.model import REPAIRS, ReconStamp, offsets_text, parse_offsets
from recon.model.offsets import OffsetSpan
from recon.model.wire.columns import BATCH_ID, SOURCE_OFFSET, SOURCE_PARTITION, SOURCE_TOPIC
from recon.project import LedgerConfig, Pipeline, Project, Sink
from recon.write.sinks import BatchSink, ConfirmedWrite, open_sink
from recon.write.sinks.failpoints import no_failpoint
from recon.write.sinks.repair import RepairStore, open_repair

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, kw_only=True)
class MicroBatch:
    """The rows of one micro-batch with recon's columns, how many they are, and the stamp of their write."""

    frame: DataFrame
    stamp: ReconStamp
    rows: int


def micro_batch(
    spark: SparkSession,
    rows: Sequence[tuple[Any, ...]],
    schema: str,
    *,
    batch_id: int = 0,
    epoch: int = 0,
    pipeline: str = "orders",
    sink: str = "orders",
    topic: str = "orders",
    start_offset: int | None = None,
) -> MicroBatch:
    """A micro-batch as the hook gives it to a sink.

    Args:
        spark: the session that makes the DataFrame.
        rows: the rows, without recon's columns.
        schema: their columns as Spark's DDL, such as `id int, amount int`.
        batch_id: the number of the micro-batch.
        epoch: the epoch it belongs to.
        pipeline: the pipeline's name.
        sink: the sink's name.
        topic: the topic whose partition 0 the rows come from, one record per row.
        start_offset: the first row's offset; by default the micro-batches of one size follow each other.
    """
    start = batch_id * len(rows) if start_offset is None else start_offset
    stamped = [(*row, topic, 0, start + n, batch_id) for n, row in enumerate(rows)]
    columns = f"{schema}, {SOURCE_TOPIC} string, {SOURCE_PARTITION} int, {SOURCE_OFFSET} bigint, {BATCH_ID} bigint"
    stamp = ReconStamp(
        pipeline=pipeline,
        sink=sink,
        epoch=epoch,
        batch_id=batch_id,
        query_id="4f0c1c5e-0000-4000-8000-000000000000",
        run_id=None,
        prev_hash="",
        offsets_text=offsets_text([OffsetSpan(topic, None, 0, start, start + len(rows))]),
        number=batch_id + 1,
    )
    return MicroBatch(frame=spark.createDataFrame(stamped, columns), stamp=stamp, rows=len(rows))


def verify_sink(sink: Sink, first: MicroBatch, second: MicroBatch) -> None:
    """Hold a sink to the contract of `recon.BatchSink` and to its promise.

    Writes `first`; writes it again with a new writer, as after a crash before the ledger entry; then writes `second`.
    After each write `confirm`, `landed`, `log` and, where the sink can be read back, its rows are compared with what
    was written.

    Args:
        sink: the config, whose target is empty.
        first: a micro-batch.
        second: the next one, with the same columns and, for a sink with keys, other keys.

    Raises:
        AssertionError: one sentence that names the method and what it returned.
    """
    _write(sink, first)
    assert _open(sink, second).landed(second.stamp, None) is None or not _open(sink, second).log().recorded, (
        "`landed` finds a micro-batch that was never written; it must return None, so that the hook writes it"
    )
    _require_rows(sink, first, exactly=True)
    _write(sink, first)
    _require_rows(sink, first, exactly=sink.guarantee.startswith("exactly-once"))
    _write(sink, second)
    for batch in (first, second):
        _require_rows(sink, batch, exactly=batch is second or sink.guarantee.startswith("exactly-once"))


def verify_repair(sink: Sink, first: MicroBatch, second: MicroBatch) -> None:
    """Hold a sink whose config class has `repairs` to what `recon repair` needs of it.

    Writes `first`, then the rows of `second` as a repair, whose record and rows are compared with what was written. A
    second repair that has seen the same state of the sink must be refused.

    Args:
        sink: the config, whose target is empty.
        first: a micro-batch.
        second: the next one, with the same columns, as if no query had written it.

    Raises:
        AssertionError: one sentence that says what is missing.
    """
    assert not sink.repair_ability.refused, sink.repair_ability.refused
    _write(sink, first)
    store = _store(sink, first)
    seen = store.snapshot()
    assert seen.newest == first.stamp.number, f"`newest_number` is {seen.newest} after write {first.stamp.number}"
    stamp = replace(second.stamp, epoch=REPAIRS, batch_id=0, query_id="repair-1", number=seen.next)
    ranges = [_Range(span, second.stamp.batch_id) for span in parse_offsets(stamp.offsets_text)]
    writer = store.writer(ranges, seen, no_failpoint)
    writer.write(second.frame, stamp)
    writer.confirm(stamp)
    recorded = [commit.stamp for commit in _store(sink, first).commits() if commit.stamp.epoch == REPAIRS]
    assert recorded == [stamp], f"`log` lists the repairs {recorded}; it must list {stamp}, with all of its fields"
    other = replace(stamp, query_id="repair-2")
    try:
        late = _store(sink, first).writer(ranges, seen, no_failpoint)
        late.write(second.frame, other)
        late.confirm(other)
    except SinkError:
        assert _store(sink, first).was_taken(other), "`log` does not list the repair that took the number"
    else:
        raise AssertionError(f"`write` took number {seen.next} twice; it must raise SinkError where the sink has it")
    _require_rows(sink, second, exactly=True)


@dataclass(frozen=True)
class _Range:
    span: OffsetSpan
    batch_id: int | None


def _store(sink: Sink, batch: MicroBatch) -> RepairStore:
    """As each repair opens one."""
    return open_repair(_project(sink, batch), batch.stamp.pipeline, sink)


def _open(sink: Sink, batch: MicroBatch) -> BatchSink:
    """A new writer, as each start of the query makes one."""
    return open_sink(_project(sink, batch), batch.stamp.pipeline, sink)


def _project(sink: Sink, batch: MicroBatch) -> Project:
    pipeline = Pipeline(name=batch.stamp.pipeline, checkpoint="unused", sinks=(sink,))
    return Project(name="test", ledger=LedgerConfig(location="unused"), pipelines=(pipeline,))


def _write(sink: Sink, batch: MicroBatch) -> None:
    writer = _open(sink, batch)
    writer.write(batch.frame, batch.stamp)
    landed = writer.confirm(batch.stamp)
    _require_landed(sink, batch, landed, "confirm")
    again = _open(sink, batch).landed(batch.stamp, landed.version)
    assert again is not None, "`landed` does not find the micro-batch that `confirm` has just found"
    _require_landed(sink, batch, again, "landed")
    log = _open(sink, batch).log()
    if log.recorded:
        name = (batch.stamp.epoch, batch.stamp.batch_id)
        commits = [commit for commit in log.commits if (commit.stamp.epoch, commit.stamp.batch_id) == name]
        assert commits, f"`log` does not list micro-batch {name[1]} (epoch {name[0]}), which was written"
        offsets = {commit.stamp.offsets_text for commit in commits}
        assert offsets == {batch.stamp.offsets_text}, f"`log` returned the offset ranges {offsets} for it"


def _require_landed(sink: Sink, batch: MicroBatch, landed: ConfirmedWrite, method: str) -> None:
    """The count that a sink returns is right or None; a sink with keys may have fewer rows than the micro-batch."""
    if sink.rewrites and landed.given is None:
        return
    rows = landed.rows if landed.given is None else landed.given
    assert rows in (None, batch.rows), (
        f"`{method}` returned {landed} for {batch.rows} rows; it must return their number, or None where it is unknown"
    )


def _require_rows(sink: Sink, batch: MicroBatch, *, exactly: bool) -> None:
    spark = batch.frame.sparkSession
    try:
        table = _open(sink, batch).table(spark)
    except EvidenceError:
        return  # the sink cannot be read back
    rows = table.filter(f"{BATCH_ID} = {batch.stamp.batch_id}").count()
    enough = rows == batch.rows if exactly else rows >= batch.rows
    assert enough, (
        f"`table` has {rows} rows of micro-batch {batch.stamp.batch_id}, of which {batch.rows} rows were written; the "
        f"sink promises {sink.guarantee}"
    )
