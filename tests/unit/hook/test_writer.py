"""The hook's steps without a JVM: a checkpoint's files, a custom sink, and rows that stand for a DataFrame."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typing_extensions import override

from recon.base.clock import utc_now
from recon.base.errors import NewEpochError, SinkError
from recon.model import CountedRows, LedgerEntry, ReconStamp, offsets_text
from recon.model.offsets import OffsetSpan
from recon.project import CustomSink, LedgerConfig, Pipeline, Project
from recon.write.hook import ForeachBatch, foreach_batch
from recon.write.hook.epochs import BatchToWrite
from recon.write.hook.prepare import BatchRows, PreparedRows
from recon.write.ledger import open_ledger
from recon.write.ledger.entries import new_entry
from recon.write.sinks.failpoints import AFTER_LEDGER, AFTER_WRITE, BEFORE_LEDGER, BEFORE_WRITE
from tests.support.failpoints import dies_at

SPARK = SimpleNamespace(version="4.0.0")  # as with Spark Connect there is no SparkContext


class Rows(BatchRows):
    """10 rows read; `written` of them are left by the transform."""

    def __init__(self, read: int | None = None, spark: SimpleNamespace = SPARK) -> None:
        self.frame: Any = SimpleNamespace(sparkSession=spark)
        self.observed: Any = None if read is None else SimpleNamespace(counted=lambda: CountedRows(read, None))

    @override
    def prepare(self, batch: BatchToWrite) -> PreparedRows:
        return PreparedRows(rows=self.frame, read=self.observed)


class Sink:
    """A custom sink: what `confirm` finds of each micro-batch."""

    def __init__(self) -> None:
        self.writes: list[str] = []
        self.confirms: Any = {"rows": 8}

    def write(self, frame: Any, batch: Any) -> None:
        self.writes.append(batch.key)

    def confirm(self, batch: Any) -> Any:
        return self.confirms if batch.key in self.writes else None


@pytest.fixture
def sink() -> Sink:
    return Sink()


def plan_three(checkpoint: Path) -> None:
    """The checkpoint of query q-1, with three micro-batches of ten offsets each."""
    for folder in ("offsets", "sources/0"):
        (checkpoint / folder).mkdir(parents=True)
    (checkpoint / "metadata").write_text(json.dumps({"id": "q-1"}))
    (checkpoint / "sources/0/0").write_bytes(b'\0v1\n{"orders":{"0":0}}')
    for n in range(3):
        body = f'v1\n{{"batchTimestampMs":1763640000000}}\n{{"orders":{{"0":{10 * n + 10}}}}}'
        (checkpoint / "offsets" / str(n)).write_text(body)


@pytest.fixture
def make_hook(tmp_path: Path, sink: Sink) -> Callable[..., ForeachBatch]:
    plan_three(tmp_path / "cp")
    out = CustomSink(name="s", kind="custom", target="t", declares="exactly-once")
    pipeline = Pipeline(name="p", checkpoint="cp", sinks=(out,))
    project = Project(name="x", ledger=LedgerConfig(location="l"), pipelines=(pipeline,), project_dir=tmp_path)

    def make(**options: Any) -> ForeachBatch:
        hook = foreach_batch(project, pipeline="p", write=sink.write, confirm=sink.confirm, **options)
        assert isinstance(hook, ForeachBatch)
        return hook

    return make


def entries(hook: ForeachBatch) -> list[LedgerEntry]:
    return open_ledger(hook.project).entries("p", "s")


def attempt(entry: LedgerEntry) -> tuple[Any, ...]:
    return entry.batch_id, entry.status, entry.attempt


def counts(entry: LedgerEntry) -> tuple[Any, ...]:
    return entry.rows_read, entry.rows_filtered, entry.rows_quarantined, entry.rows_written


def test_each_micro_batch_is_written_confirmed_and_entered(make_hook: Callable[..., ForeachBatch], sink: Sink) -> None:
    points: list[str] = []
    hook = make_hook(failpoint=lambda point, stamp: points.append(f"{point} {stamp.batch_id}"))
    hook.write(Rows(read=10), 0)
    hook.write(Rows(), 1)
    first, second = entries(hook)
    assert attempt(first) == (0, "committed", 1) and counts(first) == (10, 2, 0, 8)
    assert attempt(second) == (1, "committed", 1) and counts(second) == (8, 0, 0, 8)
    assert [span.span for span in second.offsets] == [(10, 20)] and second.prev_hash == first.entry_hash
    assert sink.writes == ["p:s:0:0", "p:s:0:1"]
    order = (BEFORE_WRITE, AFTER_WRITE, BEFORE_LEDGER, AFTER_LEDGER)
    assert points == [f"{point} {n}" for n in (0, 1) for point in order]


@pytest.mark.parametrize("point", [BEFORE_WRITE, AFTER_WRITE, BEFORE_LEDGER])
def test_a_micro_batch_without_an_entry_is_written_again(
    make_hook: Callable[..., ForeachBatch], sink: Sink, point: str
) -> None:
    hook = make_hook(failpoint=dies_at(point, times=1))
    with pytest.raises(RuntimeError, match=point):
        hook.write(Rows(read=10), 0)
    assert entries(hook) == []
    hook.write(Rows(read=10), 0)
    (entry,) = entries(hook)
    assert attempt(entry) == (0, "committed", 1) and counts(entry) == (10, 2, 0, 8)
    assert len(sink.writes) == (1 if point == BEFORE_WRITE else 2)


def test_a_replay_that_finds_its_rows_writes_nothing_and_keeps_the_counts(
    make_hook: Callable[..., ForeachBatch], sink: Sink
) -> None:
    with pytest.raises(RuntimeError, match="died"):
        make_hook(failpoint=dies_at(AFTER_LEDGER)).write(Rows(read=10), 0)
    sink.confirms = True  # the sink has the micro-batch, and no longer reports its rows
    hook = make_hook()
    hook.write(Rows(), 0)
    assert [attempt(entry) for entry in entries(hook)] == [(0, "committed", 1), (0, "already_committed", 2)]
    assert [counts(entry) for entry in entries(hook)] == [(10, 2, 0, 8)] * 2
    assert sink.writes == ["p:s:0:0"]


def test_a_replay_that_does_not_find_its_rows_writes_them_again(
    make_hook: Callable[..., ForeachBatch], sink: Sink
) -> None:
    make_hook().write(Rows(read=10), 0)
    sink.writes.clear()
    hook = make_hook()
    hook.write(Rows(read=10), 0)
    assert [attempt(entry) for entry in entries(hook)] == [(0, "committed", 1), (0, "committed", 2)]
    assert sink.writes == ["p:s:0:0"]


def test_an_entry_that_another_query_appends_during_the_write_is_seen(
    make_hook: Callable[..., ForeachBatch], sink: Sink
) -> None:
    """Its entry comes between the stamp and the entry of micro-batch 0, and has the records of micro-batch 1."""

    def appends(point: str, stamp: ReconStamp) -> None:
        if point == BEFORE_LEDGER:
            of = [OffsetSpan("orders", None, 0, 10, 20)]
            other = replace(stamp, query_id="q-2", epoch=1, offsets_text=offsets_text(of))
            fields = {"read": 10, "written": 10, "quarantined": 0, "filtered": 0, "version": None}
            ledger = open_ledger(hook.project)
            ledger.append(
                new_entry(other, hook.sink, "committed", target="t", offsets=tuple(of), started_at=utc_now(), **fields)
            )

    hook = make_hook(failpoint=appends)
    hook.write(Rows(read=10), 0)
    assert [(entry.query_id, entry.epoch) for entry in entries(hook)] == [("q-2", 1), ("q-1", 0)]
    with pytest.raises(NewEpochError):
        hook.write(Rows(read=10), 1)
    assert sink.writes == ["p:s:0:0"]


def test_counts_that_nobody_reports_are_unknown(make_hook: Callable[..., ForeachBatch], sink: Sink) -> None:
    sink.confirms = True
    hook = make_hook()
    hook.write(Rows(read=10), 0)
    hook.write(Rows(), 1)
    assert [counts(entry) for entry in entries(hook)] == [(10, None, 0, None), (None, None, 0, None)]
    sink.confirms = {"rows": 6, "given": 8}  # the sink kept one row per key
    hook.write(Rows(read=10), 2)
    assert counts(entries(hook)[-1]) == (10, 4, 0, 6)


# -- several calls for one micro-batch ---------------------------------------------------------------------------------


REFUSED = "another call of the hook wrote micro-batch 0 in this run"


def run(run_id: str) -> SimpleNamespace:
    """A session in whose thread a run of query q-1 calls the function of foreachBatch."""
    properties = {"sql.streaming.queryId": "q-1", "spark.jobGroup.id": run_id}
    return SimpleNamespace(version="4.0.0", sparkContext=SimpleNamespace(getLocalProperty=properties.get))


def evens(frame: Any) -> Any:
    return frame


def odds(frame: Any) -> Any:
    return frame


def test_a_second_call_of_a_run_with_another_transform_is_refused(
    make_hook: Callable[..., ForeachBatch], sink: Sink
) -> None:
    """In every run, as a restart does not make its rows written; what was refused is entered, for the audit."""
    one, other = make_hook(transform=evens), make_hook(transform=odds)
    for run_id in ("r-1", "r-2"):
        rows = Rows(read=10, spark=run(run_id))
        one.write(rows, 0)
        with pytest.raises(SinkError, match=REFUSED):
            other.write(rows, 0)
    assert [(entry.run_id, entry.status, entry.transform) for entry in entries(one)] == [
        ("r-1", "committed", f"{__name__}:evens"),
        ("r-1", "already_committed", f"{__name__}:odds"),
        ("r-2", "already_committed", f"{__name__}:evens"),
        ("r-2", "already_committed", f"{__name__}:odds"),
    ]
    assert {counts(entry) for entry in entries(one)} == {(10, 2, 0, 8)} and sink.writes == ["p:s:0:0"]
    one.write(Rows(read=10, spark=run("r-2")), 1)
    assert attempt(entries(one)[-1]) == (1, "committed", 1)


def made(number: int) -> Callable[[Any], Any]:
    return lambda frame: (frame, number)[0]


def test_two_transforms_of_one_name_are_two(make_hook: Callable[..., ForeachBatch], sink: Sink) -> None:
    rows = Rows(read=10, spark=run("r-1"))
    make_hook(transform=made(0)).write(rows, 0)
    with pytest.raises(SinkError, match=REFUSED):
        make_hook(transform=made(1)).write(rows, 0)
    assert sink.writes == ["p:s:0:0"]


def test_another_frame_in_the_same_run_is_refused(make_hook: Callable[..., ForeachBatch], sink: Sink) -> None:
    """As where the function of foreachBatch splits the micro-batch before the hook."""
    hook = make_hook()
    hook.write(Rows(read=5, spark=run("r-1")), 0)
    with pytest.raises(SinkError, match=REFUSED):
        hook.write(Rows(read=5, spark=run("r-1")), 0)
    assert sink.writes == ["p:s:0:0"]


@pytest.mark.parametrize("again", ["the same hook", "another hook with the same transform"])
def test_a_retry_within_a_run_writes_and_enters_nothing(
    make_hook: Callable[..., ForeachBatch], sink: Sink, again: str
) -> None:
    rows, hook = Rows(read=10, spark=run("r-1")), make_hook(transform=evens, failpoint=dies_at(AFTER_LEDGER, times=1))
    with pytest.raises(RuntimeError, match="died"):
        hook.write(rows, 0)
    (hook if again == "the same hook" else make_hook(transform=evens)).write(rows, 0)
    assert [attempt(entry) for entry in entries(hook)] == [(0, "committed", 1)] and sink.writes == ["p:s:0:0"]


def test_a_retry_writes_what_the_call_before_it_did_not(make_hook: Callable[..., ForeachBatch], sink: Sink) -> None:
    """Also with another transform, as nothing of the micro-batch is in the sink."""
    rows = Rows(read=10, spark=run("r-1"))
    with pytest.raises(RuntimeError, match="died"):
        make_hook(transform=evens, failpoint=dies_at(BEFORE_WRITE)).write(rows, 0)
    hook = make_hook(transform=odds)
    hook.write(rows, 0)
    assert [attempt(entry) for entry in entries(hook)] == [(0, "committed", 1)] and sink.writes == ["p:s:0:0"]


def test_where_the_run_is_not_known_another_call_may_be_a_replay(
    make_hook: Callable[..., ForeachBatch], sink: Sink
) -> None:
    hook = make_hook(transform=evens)
    hook.write(Rows(read=10), 0)
    make_hook(transform=odds).write(Rows(read=10), 0)
    assert [attempt(entry) for entry in entries(hook)] == [(0, "committed", 1), (0, "already_committed", 2)]
    assert sink.writes == ["p:s:0:0"]
