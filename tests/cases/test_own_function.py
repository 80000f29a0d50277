"""Queries that write by a function of their own for foreachBatch (`write: foreach_batch`), and without recon.

The function writes with Delta's options txnAppId and txnVersion: a commit has the batch_id, and not the query_id. Or it
puts nothing on its commits, and their rows say of which micro-batch they are.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from recon.write.hook import foreach_batch
from tests.cases.lake import complete, failing, findings, ranges, told
from tests.cases.native import APP, COLUMNS, NativeLake
from tests.cases.test_native import answer, both_in_soak, purge
from tests.support import fault_cases, pages
from tests.support.marks import long

PAGE = Path(__file__).parents[2] / "docs" / "observe.md"
PAGE_NEEDS = "{name: lake, ledger: l, pipelines: [{name: p, checkpoint: c, sinks: [{name: s, target: t}]}]}"
Make = Callable[..., NativeLake]


@pytest.fixture
def make(kafka: Any, spark: Any, topic: Callable[..., str], tmp_path: Path) -> Make:
    def made(named: bool = True, **options: Any) -> NativeLake:
        lake = NativeLake(tmp_path, kafka, spark, topic("f", 1), write="foreach_batch", **options)
        return lake.named() if named else lake

    return made


@both_in_soak
def test_what_a_function_writes_is_proved_from_checkpoint_and_log(make: Make, named: bool) -> None:
    lake = make(named)
    lake.produce(100)
    lake.run(lake.append, per_trigger=40)
    run = lake.audit()
    assert complete(run), (told(run), [(r.name, r.status, r.message) for r in run.results])
    assert [(e.status, e.batch_id, e.rows_written) for e in lake.entries()] == [
        ("observed", 0, 40), ("observed", 1, 40), ("observed", 2, 20)
    ]  # fmt: skip
    assert len({e.query_id for e in lake.entries()} - {""}) == 1
    lake.produce(30)
    lake.run(lake.append)
    assert complete(lake.audit()) and len(lake.entries()) == 4
    assert complete(lake.audit(full=True)) and len(lake.entries()) == 4


def test_what_a_function_writes_without_numbers_is_proved_by_its_rows(make: Make) -> None:
    lake = make(numbered=False)
    lake.produce(100)
    lake.run(lake.append, per_trigger=40)
    assert complete(lake.audit())
    assert [(e.status, e.batch_id, e.rows_written) for e in lake.entries()] == [
        ("observed", 0, 40), ("observed", 1, 40), ("observed", 2, 20)
    ]  # fmt: skip
    lake.produce(30)
    lake.run(lake.append)
    lake.sql("OPTIMIZE {table}")
    assert complete(lake.audit()) and len(lake.entries()) == 4
    assert complete(lake.audit(full=True)) and len(lake.entries()) == 4
    lake.sql("DELETE FROM {table} WHERE kafka_offset BETWEEN 10 AND 14")
    run = lake.audit()
    assert answer(run) == "not complete" and {"MUTATED", "GAP"} <= failing(run), told(run)


def test_a_function_without_numbers_that_is_tried_again_doubles(make: Make) -> None:
    lake = make(numbered=False)
    lake.produce(30)

    def fails_after_the_write(frame: Any, batch_id: int) -> None:
        lake.append(frame, batch_id)
        if batch_id == 1:
            raise RuntimeError("the driver dies")

    lake.run(fails_after_the_write, per_trigger=10, fails=True)
    between = lake.audit()
    assert answer(between) == "complete" and [e.batch_id for e in lake.entries()] == [0], told(between)
    lake.run(lake.append, per_trigger=10)
    run = lake.audit()
    assert answer(run) == "not complete" and "DUPLICATE" in failing(run), told(run)
    assert any(
        "as versions 1, 2: rows of the same offsets are doubled" in f.message for f in findings(run, "DUPLICATE")
    )
    assert [f.rows for f in findings(run, "DUPLICATE") if f.partition == 0] == [10] and len(lake.rows()) == 40
    assert [e.batch_id for e in lake.entries()] == [0, 1, 2]
    lake.sql("RESTORE TABLE {table} TO VERSION AS OF 1")
    lake.run(lake.append, per_trigger=10)
    assert answer(lake.audit()) == "not complete", "micro-batch 2 went with it"


@pytest.mark.long
def test_a_failure_that_a_function_without_numbers_swallows(make: Make) -> None:
    lake = make(numbered=False)
    lake.produce(30)
    lake.run(lambda frame, batch_id: lake.append(frame, batch_id) if batch_id != 1 else None, per_trigger=10)
    run = lake.audit()
    assert answer(run) == "not complete" and failing(run) == {"GAP"}, told(run)
    assert ranges(findings(run, "GAP")) == {(0, 10, 20)}


@pytest.mark.parametrize("from_", [20, *long(40, 55)], ids=["reads again", "goes on", "leaves out"])
def test_after_a_lost_checkpoint_of_a_function_without_numbers(make: Make, from_: int) -> None:
    lake = make(numbered=False)
    lake.produce(40)
    lake.run(lake.append, per_trigger=20)
    assert complete(lake.audit())
    lake.produce(40)
    lake.forget_checkpoint()
    lake.run(lake.append, starting=json.dumps({lake.topic: {"0": from_}}))
    run = lake.audit()
    if from_ == 40:
        assert complete(run), told(run)
    else:
        assert answer(run) == "not complete", told(run)
        assert ({"DUPLICATE", "OVERLAP"} if from_ == 20 else {"GAP"}) <= failing(run), told(run)


@pytest.mark.parametrize("function", ["write", "write_rows"])
def test_the_functions_of_observe_md(make: Make, function: str) -> None:
    lake = make(numbered=function == "write")
    lake.produce(30)
    named: dict[str, Any] = {"spark": SimpleNamespace(streams=SimpleNamespace(addListener=lambda _: None))}
    (lake.path / "recon.yml").write_text(PAGE_NEEDS)
    pages.run(PAGE, named, {"lake/orders": str(lake.table), '"."': repr(str(lake.path))})
    lake.run(named[function], per_trigger=10)
    assert complete(lake.audit()) and [e.batch_id for e in lake.entries()] == [0, 1, 2]


@pytest.mark.long
@both_in_soak
def test_a_function_that_is_tried_again_wrote_once(make: Make, named: bool) -> None:
    lake = make(named)
    lake.produce(30)

    def fails_after_the_write(frame: Any, batch_id: int) -> None:
        lake.append(frame, batch_id)
        if batch_id == 1:
            raise RuntimeError("the driver dies")

    lake.run(fails_after_the_write, per_trigger=10, fails=True)
    between = lake.audit()
    assert answer(between) == "complete" and [e.batch_id for e in lake.entries()] == [0, 1], told(between)
    lake.run(lake.append, per_trigger=10)
    assert complete(lake.audit()) and [e.batch_id for e in lake.entries()] == [0, 1, 2]


@both_in_soak
@pytest.mark.parametrize("declared", [{"filters": False}, *long({})], ids=["filters nothing", "undeclared"])
def test_a_failure_that_the_function_swallows_is_never_complete(
    make: Make, named: bool, declared: dict[str, bool]
) -> None:
    lake = make(named, declared=declared)
    lake.produce(30)

    def swallows(frame: Any, batch_id: int) -> None:
        try:
            if batch_id == 1:
                raise OSError("the table cannot be written")
            lake.append(frame, batch_id)
        except OSError:
            pass

    lake.run(swallows, per_trigger=10)
    run = lake.audit()
    if declared:
        assert answer(run) == "not complete" and failing(run) == {"GAP"}, told(run)
        assert ranges(findings(run, "GAP")) == {(0, 10, 20)}
    else:
        assert answer(run) == "could not be proved" and not failing(run), told(run)
        assert (0, 10, 20) in ranges(findings(run, "INCONCLUSIVE"))
        assert any("filters: false" in f.message for f in findings(run, "INCONCLUSIVE"))
    again = lake.audit()
    assert answer(again) == answer(run), "it stays so"


@pytest.mark.long
def test_a_micro_batch_that_the_function_filters_whole_is_no_loss(make: Make) -> None:
    lake = make(declared={"filters": True})
    lake.produce(30)

    def writes_what_is_left(frame: Any, batch_id: int) -> None:
        left = frame.where("kafka_offset >= 10")
        if not left.isEmpty():
            lake.append(left, batch_id)

    lake.run(writes_what_is_left, per_trigger=10)
    run = lake.audit()
    assert answer(run) != "not complete" and not failing(run), told(run)


@pytest.mark.long
@both_in_soak
def test_rows_deleted_by_hand_and_a_restore(make: Make, named: bool) -> None:
    lake = make(named)
    lake.produce(60)
    lake.run(lake.append, per_trigger=20)
    assert complete(lake.audit())
    lake.sql("DELETE FROM {table} WHERE kafka_offset BETWEEN 10 AND 14")
    run = lake.audit()
    assert answer(run) == "not complete" and {"MUTATED", "GAP"} <= failing(run), told(run)
    lake.sql("RESTORE TABLE {table} TO VERSION AS OF 0")
    run = lake.audit()
    assert answer(run) == "not complete" and {"MUTATED", "GAP"} <= failing(run), told(run)


@pytest.mark.long
@both_in_soak
@pytest.mark.parametrize("from_", [30, *long(40, 55)], ids=["too early", "goes on", "too late"])
def test_after_a_lost_checkpoint_delta_drops_what_the_new_one_writes(make: Make, named: bool, from_: int) -> None:
    """Its numbers begin with 0 again, and Delta has them already."""
    lake = make(named)
    lake.produce(40)
    lake.run(lake.append, per_trigger=20)
    assert complete(lake.audit())
    lake.produce(40)
    lake.forget_checkpoint()
    lake.run(lake.append, starting=json.dumps({lake.topic: {"0": from_}}))
    assert len(lake.rows()) == 40, "Delta took the number of the new query"
    run = lake.audit()
    assert answer(run) == "not complete" and "SKIPPED" in failing(run), told(run)
    assert (0, max(from_, 40), 80) in ranges(findings(run, "SKIPPED", "GAP")) or from_ == 30, told(run)
    # Its further numbers are taken: what stands before them stays lost.
    for _ in range(3):
        lake.produce(10)
        lake.run(lake.append)
    later = lake.audit()
    assert answer(later) == "not complete", told(later)


@pytest.mark.long
@both_in_soak
def test_another_query_that_uses_the_same_application_id(make: Make, named: bool) -> None:
    lake = make(named)
    lake.produce(20)
    lake.run(lake.append)
    assert complete(lake.audit())
    rows = "CAST(id AS STRING) value", "CAST(0 AS INT) kafka_partition", "id + 20 kafka_offset"
    lake.append(lake.spark.range(30).selectExpr(*rows), 1)
    lake.produce(30)
    lake.run(lake.append)
    assert len(lake.rows()) == 50, "Delta dropped the micro-batch"
    run = lake.audit()
    assert answer(run) == "could not be proved" and not failing(run), told(run)
    assert any(f"txn version 1 of app id {APP}" in f.message for f in findings(run, "INCONCLUSIVE")), told(run)


@pytest.mark.long
@both_in_soak
def test_micro_batches_that_nobody_saw_are_not_complete(make: Make, named: bool) -> None:
    lake = make(named)
    lake.produce(10)
    lake.run(lake.append)
    assert complete(lake.audit())
    lake.produce(40)
    lake.run(lake.append, per_trigger=10)
    purge(lake, 0, 1, 2)  # and with 2 the start of 3
    run = lake.audit()
    assert answer(run) == "could not be proved", told(run)
    assert not failing(run) and (0, 10, 40) in ranges(findings(run, "INCONCLUSIVE")), told(run)


@pytest.mark.long
def test_a_stranger_that_appends_is_not_the_function(make: Make) -> None:
    lake = make()
    lake.produce(20)
    lake.run(lake.append)
    assert complete(lake.audit())
    rows = lake.spark.createDataFrame([("x", 0, 5)], "value STRING, kafka_partition INT, kafka_offset LONG")
    rows.write.format("delta").mode("append").save(str(lake.table))
    run = lake.audit()
    assert answer(run) != "complete", told(run)


@pytest.mark.parametrize("looked", [True, False], ids=["an audit looked", "nobody looked"])
@pytest.mark.parametrize("kept", [{"txn_app_id": APP}, *long({})], ids=["same id", "recon's own id"])
def test_recon_takes_over(make: Make, kept: dict[str, str], looked: bool) -> None:
    """The function wrote micro-batch 1, and the driver died before Spark finished it: the hook is given it again."""
    lake = make()
    lake.produce(20)
    lake.run(
        lambda frame, batch_id: lake.append(frame, batch_id) if batch_id == 0 else 1 / 0, per_trigger=10, fails=True
    )
    assert complete(lake.audit())

    def fails_after_the_write(frame: Any, batch_id: int) -> None:
        lake.append(frame, batch_id)
        raise RuntimeError("the driver dies")

    lake.run(fails_after_the_write, per_trigger=10, fails=True)
    if looked:
        assert complete(lake.audit())
    lake.produce(10)
    columns = (*COLUMNS, "topic", "partition", "offset")
    hook = foreach_batch(
        project=lake.taken_over(**kept),
        pipeline="p",
        transform=lambda frame: frame.drop("topic", "partition", "offset"),
    )
    if looked:
        lake.run(hook, per_trigger=10, columns=columns)
        assert lake.values() == [(0, offset) for offset in range(30)]
        run = fault_cases.audit(lake.taken_over(**kept), spark=lake.spark)
        assert complete(run), told(run)
    else:
        with pytest.raises(StreamingQueryException, match="they would be there twice"):
            lake.run(hook, per_trigger=10, columns=columns)
        assert lake.values() == [(0, offset) for offset in range(20)], "nothing was written twice"


@pytest.mark.long
def test_recon_takes_over_from_a_function_without_numbers(make: Make) -> None:
    """The function wrote micro-batch 1, and the driver died before Spark finished it: no look can enter it."""
    lake = make(numbered=False)
    lake.produce(20)
    lake.run(lambda frame, batch_id: (lake.append(frame, batch_id), 1 // (1 - batch_id))[0], per_trigger=10, fails=True)
    assert complete(lake.audit()) and len(lake.rows()) == 20
    columns = (*COLUMNS, "topic", "partition", "offset")
    hook = foreach_batch(
        project=lake.taken_over(),
        pipeline="p",
        transform=lambda frame: frame.drop("topic", "partition", "offset"),
    )
    with pytest.raises(StreamingQueryException, match="they would be there twice"):
        lake.run(hook, per_trigger=10, columns=columns)
    assert lake.values() == [(0, offset) for offset in range(20)], "nothing was written twice"
    lake.sql("RESTORE TABLE {table} TO VERSION AS OF 0")
    lake.produce(10)
    lake.run(hook, per_trigger=10, columns=columns)
    assert lake.values() == [(0, offset) for offset in range(30)]
    run = fault_cases.audit(lake.taken_over(), spark=lake.spark)
    assert complete(run), told(run)
