"""What the hook promises around the write: epochs, gate, broker and ledger failures, bad input."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

from recon.audits.run import run_audit
from recon.base.errors import ConfigError, SinkError
from recon.model import ReconStamp, parse_stamp
from recon.project import CheckConfig, CheckSpec
from recon.recovery.repair.run import repair
from recon.recovery.starting_offsets import starting_offsets
from recon.write.hook import ForeachBatch, foreach_batch
from recon.write.ledger import open_ledger
from recon.write.sinks.failpoints import BEFORE_LEDGER
from tests.cases.lake import Lake, complete, failing, findings, ranges, statuses, told
from tests.support.failpoints import dies_at
from tests.support.messages import raises

MakeLake = Callable[..., Lake]


def message_of(caught: pytest.ExceptionInfo[StreamingQueryException]) -> str:
    """recon's own sentence out of Spark's wrapping."""
    found = re.search(r"recon\.base\.errors\.\w+: (.*)", str(caught.value))
    assert found, str(caught.value)
    return found[1]


def test_every_row_and_commit_is_stamped(make_lake: MakeLake) -> None:
    lake = make_lake(partitions=2)
    lake.produce(10)
    lake.run()
    row = lake.rows()[0].asDict()
    assert (row["_batch_id"], row["_source_topic"], row["_source_partition"]) == (0, lake.topic, 0)
    commit = lake.table / "_delta_log" / f"{0:020d}.json"
    actions = [json.loads(line) for line in commit.read_text().splitlines()]
    info = next(a["commitInfo"] for a in actions if "commitInfo" in a)
    stamp = parse_stamp(info["userMetadata"])
    assert stamp is not None and (stamp.epoch, stamp.batch_id, stamp.prev_hash) == (0, 0, "")
    txn = next(a["txn"] for a in actions if "txn" in a)
    assert (txn["appId"], txn["version"]) == ("recon:p:s", 1)
    entry = lake.entries()[0]
    assert entry.offsets[0].topic_id == lake.kafka.topic_id(lake.topic)
    assert entry.query_id == json.loads((lake.checkpoint / "metadata").read_text())["id"] and entry.run_id


def test_a_new_epoch_that_overlaps_stops_and_tells_the_two_ways_on(make_lake: MakeLake) -> None:
    lake = make_lake()
    lake.produce(40)
    lake.run()
    lake.forget_checkpoint()
    with pytest.raises(StreamingQueryException) as caught:
        lake.run()
    assert f"{lake.topic}-0 [0, 40)" in message_of(caught)
    assert "recon offsets --pipeline p --sink s" in message_of(caught) and "on_new_epoch: warn" in message_of(caught)
    assert len(lake.rows()) == 40 and len(lake.entries()) == 1


def test_the_offsets_it_names_continue_exactly(make_lake: MakeLake) -> None:
    lake = make_lake(partitions=2)
    lake.produce(40)
    lake.produce(7, partition=1)
    lake.run()
    lake.forget_checkpoint()
    lake.produce(3)
    starting = starting_offsets(lake.project, "p", "s")
    assert json.loads(starting) == {lake.topic: {"0": 40, "1": 7}}
    lake.run(starting=starting)
    assert [e.epoch for e in lake.entries()] == [0, 1]
    assert lake.values() == [(0, o) for o in range(43)] + [(1, o) for o in range(7)]
    run = lake.audit()
    assert failing(run) == set() and run.pipelines[0].answer == "complete"


@pytest.mark.long
def test_the_offsets_count_a_commit_the_ledger_has_not_seen(make_lake: MakeLake) -> None:
    lake = make_lake()
    lake.produce(20)
    lake.run()
    lake.produce(20)
    shutil.copytree(lake.path / "recon", lake.path / "before")
    lake.run()
    shutil.rmtree(lake.path / "recon")
    (lake.path / "before").rename(lake.path / "recon")
    assert len(lake.entries()) == 1
    assert json.loads(starting_offsets(lake.project, "p")) == {lake.topic: {"0": 40}}


def test_a_gap_stops_too(make_lake: MakeLake) -> None:
    lake = make_lake(sink={"trim_replayed_offsets": True})
    lake.produce(40)
    lake.run()
    lake.produce(40)
    lake.forget_checkpoint()
    with pytest.raises(StreamingQueryException) as caught:
        lake.run(starting=json.dumps({lake.topic: {"0": 50}}))
    assert f"gap to the ledger's end ({lake.topic}-0 [40, 50))" in message_of(caught)


def test_the_same_without_yaml(make_lake: MakeLake) -> None:
    lake = make_lake()
    lake.produce(10)
    write = foreach_batch(
        pipeline="p",
        sink="s",
        checkpoint=str(lake.checkpoint),
        target=str(lake.table),
        ledger=str(lake.path / "recon"),
        kafka={"bootstrap.servers": lake.kafka.bootstrap_servers},
    )
    lake.run(write)
    assert len(lake.entries()) == 1 and lake.audit().pipelines[0].answer == "complete"


@pytest.mark.case(15)
def test_a_transform_keeps_the_stamps_and_its_filter_is_recorded(make_lake: MakeLake) -> None:
    lake = make_lake()
    lake.produce(20)

    def evens(frame: DataFrame, batch_id: int) -> DataFrame:
        columns = ["CAST(value AS STRING) AS v", "_source_topic", "_source_partition", "_source_offset"]
        return frame.where("offset % 2 = 0").selectExpr(*columns, f"{batch_id} AS n")

    lake.run(transform=evens)
    entry = lake.entries()[0]
    assert (entry.rows_read, entry.rows_written, entry.rows_filtered) == (20, 10, 10)
    assert set(lake.rows()[0].asDict()) == {
        "v", "n", "_batch_id", "_source_topic", "_source_partition", "_source_offset",
    }  # fmt: skip
    run = lake.audit()
    assert failing(run) == set() and run.pipelines[0].answer == "complete"
    lake.produce(10)
    lake.run(transform=lambda frame, batch_id: evens(frame, batch_id).where("1 = 0"))
    entry = lake.entries()[-1]
    assert entry.rows_read is None, "Spark's plan has no read: nobody counted it"
    run = lake.audit()
    assert failing(run) == set() and run.pipelines[0].answer == "complete"


@pytest.mark.case(15, "GAP")
def test_rows_dropped_before_the_hook_are_a_gap(make_lake: MakeLake) -> None:
    lake = make_lake()
    lake.produce(20)
    hook = lake.hook()
    lake.run(lambda frame, batch_id: hook(frame.where("offset <> 7"), batch_id))
    run = lake.audit()
    assert failing(run) == {"GAP"} and ranges(findings(run, "GAP")) == {(0, 7, 8)}


def test_a_transform_that_drops_the_stamps_is_told_so(make_lake: MakeLake) -> None:
    lake = make_lake()
    lake.produce(5)
    with pytest.raises(StreamingQueryException) as caught:
        lake.run(transform=lambda frame: frame.selectExpr("CAST(value AS STRING) AS v"))
    assert "_source_topic" in message_of(caught) and "stamp_source_offsets: false" in message_of(caught)
    assert not lake.table.exists()


def test_without_source_columns_row_proofs_are_not_claimed(make_lake: MakeLake) -> None:
    lake = make_lake(sink={"stamp_source_offsets": False})
    lake.produce(20)
    hook = lake.hook(transform=lambda frame: frame.selectExpr("CAST(value AS STRING) AS v"))
    lake.run(lambda frame, batch_id: hook(frame.where("offset <> 7"), batch_id))
    run = lake.audit()
    assert statuses(run)["source_rows"] == "error" and run.pipelines[0].answer == "could not be proved"


def test_a_reserved_column_in_the_data(make_lake: MakeLake) -> None:
    lake = make_lake()
    lake.produce(5)
    hook = lake.hook()
    with pytest.raises(StreamingQueryException) as caught:
        lake.run(lambda frame, batch_id: hook(frame.selectExpr("*", "1 AS _batch_id"), batch_id))
    assert "already has a column _batch_id" in message_of(caught) and not lake.table.exists()


def _not_null(**config: Any) -> CheckSpec:
    return CheckSpec(test="not_null", arguments={"column_name": "key"}, config=CheckConfig(**config))


def test_the_gate_stops_before_the_batch_is_committed(make_lake: MakeLake) -> None:
    unique = CheckSpec(test="unique", arguments={"column_name": "key"}, config=CheckConfig(on_failure="stop"))
    lake = make_lake(sink={"post_batch": (unique,)})
    lake.produce(5)
    lake.run()
    lake.kafka.produce(lake.topic, [("twice", "v", 0), ("twice", "w", 0)])
    for attempt in (1, 2):  # a restart meets the same gate
        with pytest.raises(StreamingQueryException) as caught:
            lake.run()
        assert "unique_s_key" in message_of(caught) and "the micro-batch is not committed" in message_of(caught)
        assert [p.name for p in (lake.checkpoint / "commits").glob("[0-9]*")] == ["0"]
        assert [(e.batch_id, e.attempt) for e in lake.entries()][-1] == (1, attempt)
    assert len(lake.rows()) == 7


@pytest.mark.long
def test_the_gate_can_only_warn(make_lake: MakeLake, caplog: pytest.LogCaptureFixture) -> None:
    lake = make_lake(sink={"post_batch": (_not_null(on_failure="warn"),)})
    lake.kafka.produce(lake.topic, [(None, "v", 0)])
    lake.run()
    assert "post-batch check not_null_s_key" in caplog.text and len(lake.entries()) == 1


def test_without_a_broker_it_still_writes_and_the_audit_says_so(make_lake: MakeLake) -> None:
    lake = make_lake()
    lake.produce(10)
    hook = lake.hook()
    unreachable = hook.project.model_copy(update={"kafka": {"bootstrap.servers": "127.0.0.1:1"}})
    lake.run(ForeachBatch(unreachable, hook.pipeline, hook.sink))
    assert lake.entries()[0].offsets[0].topic_id is None and len(lake.rows()) == 10
    run = lake.audit()
    # Whether the topic is still the one that was read, nobody knows.
    assert [finding.batch_id for finding in findings(run, "INCONCLUSIVE")] == [0]
    assert statuses(run)["offset_continuity"] == "error" and run.pipelines[0].answer == "could not be proved"


def test_a_ledger_that_cannot_be_written_stops_and_the_next_start_repairs(make_lake: MakeLake) -> None:
    lake = make_lake()
    lake.produce(10)
    lake.run()
    lake.produce(10)
    ledger, moved = lake.path / "recon", lake.path / "moved"

    def block(point: str, _: ReconStamp) -> None:
        if point == BEFORE_LEDGER:
            ledger.rename(moved)
            ledger.write_text("not a folder")

    with pytest.raises(StreamingQueryException) as caught:
        lake.run(failpoint=block)
    assert "cannot be written" in message_of(caught) and "restores what is missing" in message_of(caught)
    ledger.unlink()
    moved.rename(ledger)
    assert len(lake.rows()) == 20 and len(lake.entries()) == 1
    lake.run()
    assert [e.status for e in lake.entries()] == ["committed", "rebuilt", "already_committed"]
    assert lake.audit().pipelines[0].answer == "complete"


def test_the_same_object_started_again_repairs_what_it_left(make_lake: MakeLake) -> None:
    lake = make_lake()
    lake.produce(10)
    lake.run()
    lake.produce(10)
    hook = lake.hook(failpoint=dies_at(BEFORE_LEDGER, times=1))
    with pytest.raises(StreamingQueryException, match="died"):
        lake.run(hook)
    lake.run(hook)
    assert [e.status for e in lake.entries()] == ["committed", "rebuilt", "already_committed"]
    assert len(lake.rows()) == 20 and lake.audit().pipelines[0].answer == "complete"


def test_a_refill_with_trim_writes_only_what_is_missing(make_lake: MakeLake) -> None:
    lake = make_lake(sink={"on_new_epoch": "warn", "trim_replayed_offsets": True})
    lake.produce(120)
    lake.run(starting=json.dumps({lake.topic: {"0": 80}}))
    lake.forget_checkpoint()
    lake.run(starting=json.dumps({lake.topic: {"0": 50}}), per_trigger=35)
    assert lake.values() == [(0, o) for o in range(50, 120)]
    assert json.loads(starting_offsets(lake.project, "p")) == {lake.topic: {"0": 120}}
    assert failing(lake.audit()) == set()


@pytest.mark.long
def test_a_trimmed_batch_is_recognised_when_it_is_tried_again(make_lake: MakeLake) -> None:
    lake = make_lake(sink={"trim_replayed_offsets": True})
    lake.produce(40)
    lake.run()
    lake.produce(20)
    lake.forget_checkpoint()
    hook = lake.hook()

    def dies_after(frame: DataFrame, batch_id: int) -> None:
        hook(frame, batch_id)
        raise RuntimeError("died here")

    with pytest.raises(StreamingQueryException, match="died here"):
        lake.run(dies_after)
    lake.run()
    assert [(e.epoch, e.attempt, e.status) for e in lake.entries()] == [
        (0, 1, "committed"),
        (1, 1, "committed"),
        (1, 2, "already_committed"),
    ]
    assert lake.values() == [(0, o) for o in range(60)] and lake.audit().pipelines[0].answer == "complete"


def test_two_sinks_of_one_pipeline_have_their_own_chains(make_lake: MakeLake) -> None:
    lake = make_lake()
    lake.produce(20)
    one = lake.project.pipelines[0]
    copy = one.sinks[0].model_copy(update={"name": "copy", "target": "copy"})
    both = lake.project.model_copy(update={"pipelines": (one.model_copy(update={"sinks": (*one.sinks, copy)}),)})
    first, second = (foreach_batch(both, pipeline="p", sink=name) for name in ("s", "copy"))

    def write(frame: DataFrame, batch_id: int) -> None:
        first(frame, batch_id)
        if batch_id == 0:
            second(frame, batch_id)

    lake.run(write, per_trigger=10)
    entries = open_ledger(both).entries()
    assert [(e.sink, e.batch_id) for e in entries] == [("s", 0), ("copy", 0), ("s", 1)]
    assert [e.prev_hash for e in entries] == ["", "", entries[0].entry_hash]
    with raises(ConfigError):
        starting_offsets(both, "p")
    run = run_audit(both, spark=lake.spark)
    assert ranges(findings(run, "GAP")) == {(0, 10, 20)} and {f.sink for f in findings(run, "GAP")} == {"copy"}


def test_the_wrong_checkpoint_is_refused(make_lake: MakeLake, tmp_path: Path) -> None:
    lake, other = make_lake(), make_lake(checkpoint_name="other")
    other.topic = lake.topic
    lake.produce(5)
    lake.run()
    with pytest.raises(StreamingQueryException) as caught:
        other.run(lake.hook())
    assert "belongs to query" in message_of(caught) and "checkpointLocation" in message_of(caught)


def test_two_topics_and_two_sources_in_one_query(make_lake: MakeLake) -> None:
    lake, more = make_lake(), make_lake()
    lake.produce(12)
    more.produce(8)
    source = (
        lake.spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", lake.kafka.bootstrap_servers)
        .option("startingOffsets", "earliest")
    )
    both = source.option("subscribe", lake.topic).load().union(source.option("subscribe", more.topic).load())
    query = (
        both.writeStream.foreachBatch(lake.hook())
        .option("checkpointLocation", str(lake.checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    assert {(s.source, s.topic, s.end_offset) for e in lake.entries() for s in e.offsets if s.end_offset} == {
        (0, lake.topic, 12),
        (1, more.topic, 8),
    }
    run = lake.audit()
    assert failing(run) == set() and run.pipelines[0].answer == "complete"


def test_names_that_do_not_exist(make_lake: MakeLake) -> None:
    lake = make_lake()
    with raises(ConfigError):
        foreach_batch(lake.project, pipeline="q")
    with raises(ConfigError):
        foreach_batch(lake.project, pipeline="p", sink="x")
    with raises(ConfigError):
        foreach_batch(pipeline="p")
    with raises(ConfigError):
        foreach_batch(pipeline="p", checkpoint="c", target="t", ledger="l", on_new_epoch="stpo")


# -- two calls for one micro-batch -------------------------------------------------------------------------------------


def even(frame: DataFrame) -> DataFrame:
    return frame.where("_source_offset % 2 = 0")


def odd(frame: DataFrame) -> DataFrame:
    return frame.where("_source_offset % 2 = 1")


def both(frame: DataFrame) -> DataFrame:
    return even(frame).unionByName(odd(frame))


def named(frame: DataFrame) -> DataFrame:
    return frame.selectExpr("*", "CAST(value AS STRING) AS name")


def calling(*hooks: ForeachBatch) -> Callable[[DataFrame, int], None]:
    """A function for foreachBatch that calls several hooks."""

    def write(frame: DataFrame, batch_id: int) -> None:
        for hook in hooks:
            hook(frame, batch_id)

    return write


@pytest.mark.case(33, "GAP")
def test_two_hooks_of_one_sink_in_one_function(make_lake: MakeLake) -> None:
    """The second call is refused, also after a restart; what it lacks is found, and repaired as the message says."""
    lake = make_lake()
    lake.produce(20)
    for _ in range(2):
        with pytest.raises(StreamingQueryException) as caught:
            lake.run(calling(lake.hook(transform=even), lake.hook(transform=odd)), per_trigger=10)
        said = message_of(caught)
        assert said.startswith("pipeline p, sink s: another call of the hook wrote micro-batch 0 in this run"), said
        assert f"with {__name__}:even, and this call has {__name__}:odd" in said and "`routes`" in said, said
    assert lake.values() == [(0, offset) for offset in range(0, 10, 2)]

    lake.run(transform=both, per_trigger=10)
    run = lake.audit()
    assert failing(run) == {"GAP"} and run.pipelines[0].answer == "not complete", told(run)
    assert repair(lake.project, "p", "s", spark=lake.spark, transform=both).rows == 5
    assert lake.values() == [(0, offset) for offset in range(20)]
    run = lake.audit(full=True)
    assert complete(run), told(run)


@pytest.mark.long
@pytest.mark.case(33, "GAP")
def test_a_ledger_in_which_a_second_call_was_taken_for_a_replay(make_lake: MakeLake) -> None:
    """As versions before wrote it, and as it is where the function swallows the error."""
    lake = make_lake()
    lake.produce(20)
    first, second = lake.hook(transform=even), lake.hook(transform=odd)

    def write(frame: DataFrame, batch_id: int) -> None:
        first(frame, batch_id)
        with pytest.raises(SinkError):
            second(frame, batch_id)

    lake.run(write, per_trigger=10)
    assert [(e.batch_id, e.status, e.transform) for e in lake.entries()] == [
        (number, status, f"{__name__}:{name}")
        for number in range(2)
        for status, name in (("committed", "even"), ("already_committed", "odd"))
    ]
    run = lake.audit()
    assert failing(run) == {"GAP"} and run.pipelines[0].answer == "not complete", told(run)
    assert ranges(findings(run, "GAP")) == {(0, offset, offset + 1) for offset in range(1, 20, 2)}
    assert not [f for f in findings(run, "REPLAYED") if "written once" in f.message]


def test_a_function_that_splits_the_micro_batch_before_one_hook(make_lake: MakeLake) -> None:
    lake = make_lake()
    lake.produce(10)
    hook = lake.hook()

    def write(frame: DataFrame, batch_id: int) -> None:
        for rest in range(2):
            hook(frame.where(f"offset % 2 = {rest}"), batch_id)

    with pytest.raises(StreamingQueryException) as caught:
        lake.run(write)
    assert "in this run, with another DataFrame" in message_of(caught)
    assert failing(lake.audit()) == {"GAP"}


def test_a_function_that_tries_again_writes_once(make_lake: MakeLake) -> None:
    """The hook had written when something behind it failed, or when the hook itself did."""
    lake = make_lake()
    lake.produce(20)
    hook, failed = lake.hook(transform=named, failpoint=dies_at(BEFORE_LEDGER, times=1)), set[int]()

    def write(frame: DataFrame, batch_id: int) -> None:
        for _ in range(4):
            try:
                hook(frame.where("value IS NOT NULL"), batch_id)  # a DataFrame of its own each time
                if batch_id not in failed:
                    failed.add(batch_id)
                    raise RuntimeError("something behind the hook failed")
            except RuntimeError:
                continue
            return

    lake.run(write, per_trigger=10)
    assert [(e.batch_id, e.status) for e in lake.entries()] == [
        (0, "rebuilt"), (0, "already_committed"), (1, "committed"),
    ]  # fmt: skip
    run = lake.audit()
    assert complete(run), told(run)
    assert lake.values() == [(0, offset) for offset in range(20)]
