"""recon explain: the next start, or one micro-batch, from hand-made witnesses; no stream, no broker."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from recon.base.errors import EvidenceError, NewEpochError
from recon.judge.kafka.clusters import Clusters
from recon.model import KafkaWitness, LedgerEntry, ReconStamp, Unavailable, dump_stamp, offsets_text
from recon.model.offsets import OffsetSpan
from recon.model.wire.app_ids import app_id
from recon.model.wire.kafka_state import Cluster, KafkaState, dump_kafka_state
from recon.project import Project
from recon.recovery.explain import Explanation, already_processed, explain
from recon.recovery.ranges import held, losses, unknown
from recon.recovery.starting_offsets import starting_offsets
from recon.testing.evidence import kafka, span
from recon.write.ledger import open_ledger
from tests.support import ledger_entries
from tests.support.broker import Broker
from tests.support.ledger_entries import AT
from tests.support.messages import raises


def entry(batch_id: int, **changes: object) -> LedgerEntry:
    ranges = (OffsetSpan("orders", None, 0, 10 * batch_id, 10 * batch_id + 10),)
    fields = {"offsets": ranges, "sink_version": batch_id, "at": AT + timedelta(minutes=batch_id)}
    return ledger_entries.entry(batch_id, **{**fields, **changes})  # type: ignore[arg-type]


class Stage:
    """A folder with a checkpoint, a Delta table's log and a ledger."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.project: Project = ledger_entries.project(path)
        self.query = "q-1"

    def checkpoint(self, planned: int, committed: int, query: str = "q-1", ends: Sequence[int] = ()) -> None:
        for folder in ("offsets", "commits", "sources/0"):
            (self.path / "cp" / folder).mkdir(parents=True, exist_ok=True)
        (self.path / "cp" / "metadata").write_text(json.dumps({"id": query}))
        (self.path / "cp" / "sources/0/0").write_bytes(b'\0v1\n{"orders":{"0":0}}')
        for n in range(planned):
            end = ends[n] if n < len(ends) else 10 * n + 10
            body = f'v1\n{{"batchTimestampMs":1763640000000}}\n{{"orders":{{"0":{end}}}}}'
            (self.path / "cp" / "offsets" / str(n)).write_text(body)
        for n in range(committed):
            (self.path / "cp" / "commits" / str(n)).write_text("v1\n{}")

    def commits(self, *entries: LedgerEntry) -> None:
        log = self.path / "orders" / "_delta_log"
        log.mkdir(parents=True, exist_ok=True)
        for one in entries:
            stamp = ReconStamp(
                pipeline="orders", sink="orders", epoch=one.epoch, batch_id=one.batch_id, query_id=one.query_id,
                run_id=None, prev_hash="", offsets_text=offsets_text(one.offsets),
            )  # fmt: skip
            actions = (
                {"commitInfo": {"timestamp": 1, "operation": "WRITE", "userMetadata": dump_stamp(stamp)}},
                {"txn": {"appId": app_id("orders", "orders"), "version": one.batch_id + 1}},
                {"add": {"path": f"f{one.sink_version}", "dataChange": True, "stats": json.dumps({"numRecords": 20})}},
            )
            (log / f"{one.sink_version:020d}.json").write_text("\n".join(map(json.dumps, actions)))

    def entered(self, *entries: LedgerEntry) -> None:
        ledger = open_ledger(self.project)
        for one in entries:
            ledger.append(one)

    def explain(self, batch_id: int | None = None) -> Explanation:
        return explain(self.project, "orders", batch_id)


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def test_before_the_first_start(stage: Stage) -> None:
    found = stage.explain()
    assert (found.next, found.batch_id, found.query_id) == ("first start", None, None)
    assert [s.action for s in found.sinks] == ["write"]
    stage.entered(entry(0))
    again = stage.explain()
    assert [s.action for s in again.sinks] == ["unknown"]
    assert "recon offsets --pipeline orders" in again.sentences[1]


def test_all_is_finished_and_the_next_one_is_written(stage: Stage) -> None:
    stage.checkpoint(planned=2, committed=2)
    stage.commits(entry(0), entry(1))
    stage.entered(entry(0), entry(1))
    found = stage.explain()
    assert (found.next, found.batch_id) == ("continue", 2)
    assert "commits/1 exists" in found.sentences[0]
    assert [(s.action, s.sentence) for s in found.sinks] == [("write", "writes it, behind micro-batch 1 (epoch 0)")]


def test_a_replay_of_what_neither_ledger_nor_sink_has(stage: Stage) -> None:
    stage.checkpoint(planned=2, committed=1)
    stage.commits(entry(0))
    stage.entered(entry(0))
    found = stage.explain()
    assert (found.next, found.batch_id) == ("replay", 1)
    assert [(r.span.start_offset, r.span.end_offset, r.held) for r in found.ranges] == [(10, 20, "unknown")]
    assert [s.action for s in found.sinks] == ["write"]
    assert "whether Kafka still has the ranges is not known" in found.sentences[-1]


def test_a_replay_that_the_ledger_knows_is_skipped(stage: Stage) -> None:
    stage.checkpoint(planned=2, committed=1)
    stage.commits(entry(0), entry(1))
    stage.entered(entry(0), entry(1))
    (answer,) = stage.explain().sinks
    assert answer.action == "skip"
    assert "attempt 1 wrote 20 rows as version 1" in answer.sentence
    assert [e.batch_id for e in answer.entries] == [1]


def test_a_replay_whose_entry_a_crash_left_out_is_restored(stage: Stage) -> None:
    stage.checkpoint(planned=2, committed=1)
    stage.commits(entry(0), entry(1))
    stage.entered(entry(0))
    (answer,) = stage.explain().sinks
    assert (answer.action, answer.entries) == ("restore", ())
    assert len(open_ledger(stage.project).entries()) == 1, "explain writes nothing"


def test_already_processed_asks_for_epoch_number_and_ranges(stage: Stage) -> None:
    stage.checkpoint(planned=3, committed=1)
    stage.commits(entry(0), entry(1))
    stage.entered(entry(0))
    assert [already_processed(stage.project, "orders", n) for n in range(3)] == [True, True, False]
    with raises(EvidenceError):
        already_processed(stage.project, "orders", 9)
    stage.checkpoint(planned=1, committed=0, query="q-2")  # another checkpoint's micro-batch 0 is another one
    with raises(NewEpochError):
        already_processed(stage.project, "orders", 0)


def test_a_replay_that_the_table_lost_is_written_again(stage: Stage) -> None:
    stage.checkpoint(planned=2, committed=1)
    stage.commits(entry(0), entry(1))
    stage.entered(entry(0), entry(1))
    stage.commits(replace(entry(0), sink_version=1))  # version 1 is another write now, as after a table made anew
    (answer,) = stage.explain().sinks
    assert answer.action == "write again"


def test_a_checkpoint_that_was_set_back(stage: Stage) -> None:
    stage.checkpoint(planned=2, committed=2)
    stage.commits(entry(0), entry(1), entry(2))
    stage.entered(entry(0), entry(1), entry(2))
    (answer,) = stage.explain().sinks
    assert answer.action == "stop"
    assert "already has micro-batch 2: the checkpoint was set back" in answer.sentence


def test_a_replay_with_other_ranges_stops(stage: Stage) -> None:
    stage.checkpoint(planned=2, committed=1, ends=(10, 17))
    stage.commits(entry(0), entry(1))
    stage.entered(entry(0), entry(1))
    (answer,) = stage.explain().sinks
    assert answer.action == "stop"
    assert "overlap what the ledger already holds" in answer.sentence


def test_a_new_checkpoint_that_reads_again_stops(stage: Stage) -> None:
    stage.checkpoint(planned=1, committed=0, query="q-2")
    stage.commits(entry(0))
    stage.entered(entry(0))
    (answer,) = stage.explain().sinks
    assert (answer.action, answer.entries) == ("stop", ())


def test_a_ledger_behind_the_checkpoint(stage: Stage) -> None:
    stage.checkpoint(planned=3, committed=3)
    stage.commits(entry(0))
    stage.entered(entry(0))
    (answer,) = stage.explain().sinks
    assert "of micro-batches 1 to 2 neither the ledger nor the sink has a record" in answer.sentence


def test_one_micro_batch_of_the_past(stage: Stage) -> None:
    stage.checkpoint(planned=3, committed=3)
    for kept in range(3):
        stage.commits(entry(kept))
        stage.entered(entry(kept))
    found = stage.explain(1)
    assert (found.next, found.batch_id) == ("past", 1)
    assert "has 20 rows as version 1" in found.sinks[0].sentence
    # Nobody answers for Kafka: that is no loss.
    assert found.sentences[1].startswith("whether Kafka still has the ranges is not known: ")
    assert not any("could not read it all" in sentence for sentence in found.sentences)
    (stage.path / "cp/offsets/0").unlink()
    gone = stage.explain(0)
    assert "no longer in the checkpoint, which begins at micro-batch 1" in gone.sentences[0]
    assert [r.span.end_offset for r in gone.ranges] == [10]  # from the ledger
    later = stage.explain(7)
    assert (later.next, later.sentences[0].split(":")[0]) == ("not planned", "micro-batch 7 is not planned")


def test_the_answer_as_json(stage: Stage) -> None:
    stage.checkpoint(planned=1, committed=0)
    stage.commits(entry(0))
    stage.entered(entry(0))
    found = stage.explain().as_dict()
    assert found["ranges"][0]["topic"] == "orders"
    assert found["sinks"][0]["entries"][0]["status"] == "committed"
    json.dumps(found, default=str)


@pytest.mark.parametrize(
    ("witness", "expected"),
    [
        (kafka(0, 100), "held"),
        (kafka(15, 100), "partly deleted"),
        (kafka(40, 100), "deleted"),
        (kafka(0, 15), "beyond the end"),
        (kafka(0, 100, topic_id="id-2"), "re-created"),
        (kafka(exists=False), "gone"),
        (Unavailable("kafka", "no broker"), "unknown"),
    ],
)
def test_what_kafka_has_of_a_range(witness: KafkaWitness | Unavailable, expected: str) -> None:
    found = held(span(10, 20), witness, Clusters({}))
    assert found.held == expected
    assert bool(losses([found])) == (expected not in ("held", "unknown"))
    assert bool(unknown([found], witness)) == (expected == "unknown")


# -- topics and tables that are not what they were --------------------------------------------------------------------


def of_topic(batch_id: int, topic_id: str = "id-1") -> LedgerEntry:
    return entry(batch_id, offsets=(OffsetSpan("orders", topic_id, 0, 10 * batch_id, 10 * batch_id + 10),))


def kafka_says(stage: Stage, broker: Broker, witness: KafkaWitness) -> None:
    """Kafka answers, and describes the topic so."""
    broker.has(witness)
    stage.project = stage.project.model_copy(update={"kafka": {"bootstrap.servers": "localhost:1"}})


@pytest.mark.parametrize("committed", [1, 2])
def test_a_topic_made_anew_is_not_held(stage: Stage, broker: Broker, committed: int) -> None:
    stage.checkpoint(planned=2, committed=committed)
    stage.commits(of_topic(0), of_topic(1))
    stage.entered(of_topic(0), of_topic(1))
    kafka_says(stage, broker, kafka(log_start=0, log_end=90, topic_id="id-1"))
    assert {one.held for one in stage.explain().ranges} == {"held"}
    kafka_says(stage, broker, kafka(log_start=0, log_end=90, topic_id="id-2"))
    explained = stage.explain()
    assert {one.held for one in explained.ranges} == {"re-created"}
    assert any("topic orders was deleted and created again" in sentence for sentence in explained.sentences)


def test_a_topic_of_another_cluster_is_not_held(stage: Stage, broker: Broker) -> None:
    at_a = KafkaState(asked_at=AT, after=0, topics={}, cluster=Cluster("A", {"orders": "id-1"}))
    first = replace(of_topic(0), kafka_state=dump_kafka_state(at_a))
    stage.checkpoint(planned=2, committed=1)
    stage.commits(first, of_topic(1))
    stage.entered(first, of_topic(1))
    kafka_says(stage, broker, kafka(log_start=0, log_end=90, topic_id="id-2", cluster_id="B"))
    explained = stage.explain()
    assert {one.held for one in explained.ranges} == {"on another cluster"}
    said = "topic orders is on another cluster (it was on cluster A and is on cluster B): these offsets may be other"
    assert any(said in sentence for sentence in explained.sentences)


def test_the_offsets_of_a_topic_made_anew_are_its_log_starts(stage: Stage, broker: Broker) -> None:
    stage.commits(of_topic(0), of_topic(1))
    stage.entered(of_topic(0), of_topic(1))
    kafka_says(stage, broker, kafka(log_start=4, log_end=90, topic_id="id-1"))
    assert json.loads(starting_offsets(stage.project, "orders")) == {"orders": {"0": 20}}
    kafka_says(stage, broker, kafka(log_start=4, log_end=90, topic_id="id-2"))
    assert json.loads(starting_offsets(stage.project, "orders")) == {"orders": {"0": 4}}

    broker.refuses = EvidenceError("no broker answers")
    assert json.loads(starting_offsets(stage.project, "orders")) == {"orders": {"0": 20}}


def test_a_replay_of_what_a_restore_undid_is_skipped_and_said(stage: Stage) -> None:
    stage.checkpoint(planned=2, committed=1)
    stage.commits(entry(0), entry(1))
    stage.entered(entry(0), entry(1))
    restore = {"commitInfo": {"timestamp": 2, "operation": "RESTORE", "operationParameters": {"version": "0"}}}
    (stage.path / "orders" / "_delta_log" / f"{2:020d}.json").write_text(json.dumps(restore))
    (answer,) = stage.explain().sinks
    assert answer.action == "skip" and "a RESTORE or a rollback undid it as version 1" in answer.sentence
    (answer,) = stage.explain(1).sinks
    assert "a RESTORE or a rollback undid it" in answer.sentence
