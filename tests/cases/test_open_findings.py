"""What ends a finding: evidence that answers it. And what is no finding: a range in which Kafka has no record."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame

from recon.model import RunResult
from recon.model.offsets import Spans
from recon.project import CheckSpec
from tests.cases.lake import Lake, complete, failing, findings, listed, ranges, replace, told
from tests.cases.native import CHECKS, SOURCE_COLUMNS, NativeLake
from tests.cases.test_delta_merge import MergedLake
from tests.support.marks import long

Make = Callable[..., NativeLake]
ABORTED = [("k", f"v{i}", 0) for i in range(20)]


@pytest.fixture
def make(kafka: Any, spark: Any, topic: Callable[..., str], tmp_path: Path) -> Make:
    def made(partitions: int = 1, **options: Any) -> NativeLake:
        return NativeLake(tmp_path, kafka, spark, topic("f", partitions), **options)

    return made


def answer(run: RunResult) -> str:
    return run.pipelines[0].answer


def repaired(run: RunResult) -> set[str]:
    return {finding.message for finding in findings(run, "REPAIRED")}


# -- a range in which Kafka has no record ------------------------------------------------------------------------------


def guarded(lake: NativeLake) -> Callable[[DataFrame, int], None]:
    """A function with the usual guard: a micro-batch of aborted records, or of markers, is an empty frame."""

    def write(frame: DataFrame, batch_id: int) -> None:
        if not frame.isEmpty():
            lake.append(frame, batch_id)

    return write


@pytest.mark.parametrize("declared", [{}, *long({"filters": False})], ids=["filters not said", "no filters"])
def test_micro_batches_without_a_record_need_no_commit(make: Make, declared: dict[str, bool]) -> None:
    lake = make(
        write="foreach_batch",
        isolation_level="read_committed",
        declared=declared,
        checks=(*CHECKS, "kafka_end_offsets"),
        sink={"source_columns": SOURCE_COLUMNS},
    )
    for outcome in ("commit", "abort"):
        lake.kafka.transaction(lake.topic, ABORTED, outcome)
        lake.run(guarded(lake))
    run = lake.audit()
    assert complete(run), told(run)
    assert {(0, 21, 42)} <= ranges(findings(run, "EXPLAINED")), findings(run)
    assert not findings(run, "INFLIGHT"), "the stream has read all that is there"
    # Kafka forgets them before the next micro-batch has an entry; the audit that saw them has not.
    lake.kafka.delete_records({(lake.topic, 0): 42})
    run = lake.audit()
    assert complete(run), told(run)
    lake.kafka.transaction(lake.topic, ABORTED)
    lake.run(guarded(lake))
    run = lake.audit()
    assert complete(run), told(run)


def test_a_hook_behind_the_guard(kafka: Any, spark: Any, topic: Callable[..., str], tmp_path: Path) -> None:
    lake = Lake(tmp_path, kafka, spark, topic("f", 1), isolation_level="read_committed")
    hook = lake.hook()

    def write(frame: DataFrame, batch_id: int) -> None:
        if not frame.isEmpty():
            hook(frame, batch_id)

    for outcome in ("commit", "abort"):
        lake.kafka.transaction(lake.topic, ABORTED, outcome)
        lake.run(write)
    run = lake.audit()
    assert complete(run), told(run)


@pytest.mark.long
def test_a_long_range_of_aborted_records(make: Make) -> None:
    """Kafka is asked about the beginning of a range first, and about more where that has no record."""
    lake = make(write="foreach_batch", isolation_level="read_committed", sink={"source_columns": SOURCE_COLUMNS})
    lake.produce(5)
    lake.run(guarded(lake))
    lake.kafka.transaction(lake.topic, [("k", "v", 0)] * 12_000, "abort")
    lake.run(guarded(lake))
    lake.produce(5)
    lake.run(guarded(lake))
    run = lake.audit()
    assert complete(run), told(run)


def test_a_micro_batch_that_was_not_written_is_missing_all_the_same(make: Make) -> None:
    """One committed record in a range of aborted ones; and aborted records that a reader of all of them gets."""
    lake = make(write="foreach_batch", isolation_level="read_committed", sink={"source_columns": SOURCE_COLUMNS})
    lake.produce(5)
    lake.run(guarded(lake))
    lake.kafka.transaction(lake.topic, ABORTED, "abort")
    lake.produce(1)
    lake.run(lambda frame, batch_id: None)
    run = lake.audit()
    assert (answer(run), failing(run)) == ("not complete", {"GAP"}), told(run)
    assert ranges(findings(run, "GAP")) == {(0, 5, 27)}


@pytest.mark.long
def test_aborted_records_of_a_stream_whose_isolation_level_recon_was_not_told(make: Make) -> None:
    """The next step that the message names makes it complete."""
    lake = make(write="foreach_batch", isolation_level="read_committed", sink={"source_columns": SOURCE_COLUMNS})
    lake.produce(5)
    lake.run(guarded(lake))
    lake.kafka.transaction(lake.topic, ABORTED, "abort")
    lake.run(guarded(lake))
    run = replace(lake, isolation_level="read_uncommitted").audit()
    (gap,) = findings(run, "GAP")
    assert "`isolation_level: read_committed` under source" in gap.message
    run = lake.audit()
    assert complete(run), told(run)
    assert any("hold no record for the stream" in message for message in repaired(run)), repaired(run)


# -- a loss that was proved --------------------------------------------------------------------------------------------


def passes_over(lake: Any, drain: Callable[[], None], write: Callable[[int], None]) -> list[RunResult]:
    """Kafka deletes [20, 32) unread, an audit proves it, the stream goes on behind it: two audits, one without rows."""
    write(20)
    drain()
    assert complete(lake.audit())
    write(18)
    lake.kafka.delete_records({(lake.topic, 0): 32})
    run = lake.audit()
    assert failing(run) == {"LOSS_RETENTION"}, told(run)
    drain()
    return [lake.audit(no_spark=True), lake.audit()]


def stays_lost(runs: list[RunResult]) -> None:
    for run in runs:
        assert (answer(run), run.exit_code) == ("not complete", 1), told(run)
        assert "LOSS_RETENTION" in failing(run) and not repaired(run), told(run)
        assert offsets_of(run, "LOSS_RETENTION") == [(20, 32)]


def offsets_of(run: RunResult, code: str) -> list[tuple[int, int]]:
    return [(start, end) for start, end in Spans.of(f.span for f in findings(run, code) if f.span is not None)]


@pytest.mark.long
def test_the_stream_passes_over_lost_records_and_appends(
    kafka: Any, spark: Any, topic: Callable[..., str], tmp_path: Path
) -> None:
    lake = Lake(tmp_path, kafka, spark, topic("f", 1))
    stays_lost(passes_over(lake, lambda: lake.run(per_trigger=10, fail_on_data_loss=False), lake.produce))


@pytest.mark.long
def test_the_stream_passes_over_lost_records_and_merges(
    kafka: Any, spark: Any, topic: Callable[..., str], tmp_path: Path
) -> None:
    lake = MergedLake(tmp_path, kafka, spark, topic("f", 1), isolation_level="read_uncommitted")
    spark.sql(f"CREATE TABLE delta.`{lake.table}` (k STRING, v INT, at INT, op STRING) USING delta")

    def write(count: int) -> None:
        kafka.produce(lake.topic, [(f"k{i}", f"{i},{i},u", 0) for i in range(count)])

    stays_lost(passes_over(lake, lambda: lake.drain(per_trigger=10, fail_on_data_loss=False), write))


@pytest.mark.parametrize("severity", ["warn", *long("error")])
def test_the_stream_passes_over_lost_records_without_recon(make: Make, severity: str) -> None:
    """Also where the check only warns, as `recon init` had it: lag may warn, a loss may not."""
    lag = CheckSpec.model_validate({"test": "kafka_end_offsets", "config": {"severity": severity}})
    lake = make(sink={"data_tests": (*listed(CHECKS), lag)})
    runs = passes_over(lake, lambda: lake.stream(per_trigger=10, failOnDataLoss="false"), lake.produce)
    stays_lost(runs)
    # An audit that leaves the check out does not forget it.
    run = lake.audit(exclude=["test_name:kafka_end_offsets"])
    assert (answer(run), run.exit_code, run.pipelines[0].unanswered) == ("not complete", 1, 1), told(run)


@pytest.mark.long
def test_a_micro_batch_that_was_reading_them_had_them_all(
    kafka: Any, spark: Any, topic: Callable[..., str], tmp_path: Path
) -> None:
    """Kafka deletes a range while a micro-batch reads it: as many records as offsets show that nothing was lost."""
    lake = Lake(tmp_path, kafka, spark, topic("f", 1))
    lake.produce(20)
    lake.run()
    lake.produce(10)
    seen: list[RunResult] = []

    def late(frame: DataFrame, batch_id: int) -> None:
        kept = frame.cache()
        assert kept.count() == 10
        kafka.delete_records({(lake.topic, 0): 30})
        seen.append(lake.audit())
        lake.hook()(kept, batch_id)

    lake.run(late)
    assert "LOSS_RETENTION" in failing(seen[0]), told(seen[0])
    run = lake.audit()
    assert complete(run), told(run)
    assert any("LOSS_RETENTION" in message for message in repaired(run))


# -- rows that are twice in the table ----------------------------------------------------------------------------------


def test_rows_that_were_doubled_before_the_hook_was_adopted(make: Make) -> None:
    """The hook's rows do not show those of before: that these are there once is not known."""
    lake = make(sink={"source_columns": SOURCE_COLUMNS})
    lake.produce(20)
    lake.stream()
    assert complete(lake.audit())
    shutil.rmtree(lake.checkpoint)
    lake.stream()
    run = lake.audit()
    assert "DUPLICATE" in failing(run), told(run)
    adopted = Lake(lake.path, lake.kafka, lake.spark, lake.topic)
    lake.produce(5)
    columns = ("CAST(value AS STRING) AS value", "partition AS kafka_partition", "offset AS kafka_offset")
    source = ("_source_topic", "_source_partition", "_source_offset")
    adopted.run(transform=lambda frame: frame.selectExpr(*columns, *source))
    for run in (adopted.audit(), adopted.audit(full=True)):
        assert (answer(run), run.exit_code) == ("not complete", 1), told(run)
        assert "DUPLICATE" in failing(run) and not any("DUPLICATE" in message for message in repaired(run)), told(run)
