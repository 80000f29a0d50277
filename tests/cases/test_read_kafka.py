"""`recon.read_kafka` on a real broker, and what an entry has of Kafka and the table beside offsets and counts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recon import read_kafka
from recon.model.wire.kafka_state import parse_kafka_state
from recon.write.hook import foreach_batch
from tests.cases.lake import Lake, failing, findings
from tests.support.kafka import LocalKafka

MakeLake = Callable[..., Lake]


def drained(lake: Lake) -> None:
    """Reads the topic to its end through `read_kafka`."""
    query = (
        read_kafka(lake.spark, lake.project, "p", startingOffsets="earliest")
        .writeStream.foreachBatch(lake.hook())
        .option("checkpointLocation", str(lake.checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(180)
    assert not query.isActive


def in_transactions(lake: Lake) -> None:
    lake.kafka.transaction(lake.topic, [("a", str(n), 0) for n in range(5)], "abort")
    lake.kafka.transaction(lake.topic, [("c", str(n), 0) for n in range(7)])


def test_the_stream_reads_as_recon_yml_says(make_lake: MakeLake) -> None:
    lake = make_lake(isolation_level="read_committed")
    in_transactions(lake)
    drained(lake)
    assert [offset for _, offset in lake.values()] == list(range(6, 13))
    assert {entry.isolation_level for entry in lake.entries()} == {"read_committed"}
    run = lake.audit()
    assert failing(run) == set() and run.pipelines[0].answer == "complete"


@pytest.mark.case(45, "PHANTOM_ROWS")
def test_a_query_that_reads_uncommitted_though_recon_yml_says_otherwise(make_lake: MakeLake) -> None:
    """Case 45."""
    lake = make_lake(isolation_level="read_committed", stream_options={"kafka.isolation.level": "read_uncommitted"})
    in_transactions(lake)
    lake.run()
    (entry,) = lake.entries()
    assert entry.isolation_level == "read_uncommitted" and entry.rows_written == 12
    run = lake.audit()
    assert failing(run) == {"PHANTOM_ROWS"} and run.pipelines[0].answer == "not complete"


def test_an_entry_has_the_state_of_the_log_and_the_tables_id(make_lake: MakeLake) -> None:
    lake = make_lake(partitions=2)
    for partition in range(2):
        lake.produce(20, partition)
    lake.kafka.delete_records({(lake.topic, 1): 5})
    lake.run(per_trigger=10)
    entries = lake.entries()
    states = [parse_kafka_state(entry.kafka_state) for entry in entries if entry.kafka_state is not None]
    assert len(states) >= 2 and all(state.after < len(entries) for state in states)
    first, last = states[0].topics[lake.topic], states[-1].topics[lake.topic]
    assert (first.partition, first.log_start, first.high_watermark) == ([0, 1], [0, 5], [20, 20])
    assert first.last_stable == [20, 20] and last.leader_epoch == first.leader_epoch == [0, 0]
    assert last.log_start is None  # offsets are asked for every half minute
    ids = {entry.sink_table_id for entry in entries}
    (table_id,) = lake.spark.sql(f"DESCRIBE DETAIL delta.`{lake.table}`").select("id").collect()[0]
    assert ids == {table_id}


@pytest.mark.case(19, "INCONCLUSIVE")
@pytest.mark.case(63, "INCONCLUSIVE")
def test_a_log_that_an_unclean_election_cut_off_and_producers_filled_again(spark: Any, tmp_path: Path) -> None:
    """Case 63: nothing but the leader epochs shows that other records stand where the stream had read."""
    with LocalKafka(tmp_path / "broker") as broker:
        lake = Lake(tmp_path, broker, spark, "orders")
        broker.create_topic(lake.topic)
        for _ in range(4):  # batches of five: the log can be cut off only where one begins
            lake.produce(5)
        lake.run(per_trigger=5)
        proved = lake.audit().pipelines[0]
        assert proved.answer == "complete", proved.because
        broker.cut_off(lake.topic, 10)
        lake.produce(20)
        lake.run(per_trigger=5)
        run = lake.audit()
        assert run.pipelines[0].answer == "could not be proved"
        (finding,) = findings(run, "INCONCLUSIVE")
        assert (finding.topic, finding.partition, finding.batch_id) == (lake.topic, 0, 3)


@pytest.mark.case(62, "INCONCLUSIVE")
def test_a_topic_whose_id_was_unknown_and_that_was_made_anew(make_lake: MakeLake) -> None:
    """Case 62."""
    lake = make_lake()
    lake.produce(10)
    no_broker = lake.project.model_copy(update={"kafka": {}})
    lake.run(foreach_batch(no_broker, pipeline="p", sink="s"))
    lake.kafka.delete_topic(lake.topic)
    lake.kafka.create_topic(lake.topic)
    lake.produce(30)
    lake.run()
    first, *_, last = lake.entries()
    assert first.offsets[0].topic_id is None and last.offsets[0].topic_id is not None
    run = lake.audit()
    assert run.pipelines[0].answer == "could not be proved"
    assert {finding.batch_id for finding in findings(run, "INCONCLUSIVE")} == {0}


@pytest.mark.case(74)
def test_a_marker_at_the_start_of_a_range_audited_before_and_after_retention(make_lake: MakeLake) -> None:
    """Case 74."""
    lake = make_lake(isolation_level="read_committed")
    in_transactions(lake)
    lake.run()
    assert lake.audit().pipelines[0].answer == "complete"
    lake.kafka.delete_records({(lake.topic, 0): 8})
    again = lake.audit(full=True)
    assert failing(again) == set() and again.pipelines[0].answer == "complete"
