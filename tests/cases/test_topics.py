"""Fault cases of what Kafka holds: deleted and re-created topics, transactions, compaction, markers."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from recon.model import RunResult
from recon.recovery.explain import explain
from recon.recovery.starting_offsets import starting_offsets
from tests.cases.lake import Keeps, Lake, complete, failing, findings, ranges, refuted, told
from tests.cases.test_table_files import accepted

MakeLake = Callable[..., Lake]
COMPACT = {"cleanup.policy": "compact"}


def steps_of_questions(run: RunResult) -> set[str]:
    """The commands that the report names for what no witness decided."""
    (pipeline,) = run.pipelines
    questions = [incident for incident in pipeline.incidents if incident.codes == ("INCONCLUSIVE",)]
    return {step.command.split()[1] for incident in questions for step in incident.steps}


@pytest.mark.case(6, "CLOSED")
def test_a_topic_is_deleted_that_was_read_to_its_end(make_lake: MakeLake) -> None:
    lake = make_lake()
    lake.produce(20)
    lake.run()
    assert complete(lake.audit())
    lake.kafka.delete_topic(lake.topic)
    run = lake.audit()
    assert findings(run, "CLOSED") and complete(run), told(run)


@pytest.mark.case(6, "LOSS")
def test_a_topic_is_deleted_with_records_that_were_not_read(make_lake: MakeLake) -> None:
    lake = make_lake()
    lake.produce(20)
    lake.run()
    lake.produce(5)
    assert complete(lake.audit())
    lake.kafka.delete_topic(lake.topic)
    run = lake.audit()
    assert refuted(run, "LOSS") and ranges(findings(run, "LOSS")) == {(0, 20, 25)}, told(run)


@pytest.mark.case(13, "EXPLAINED")
def test_records_that_were_compacted_before_they_were_read(make_lake: MakeLake) -> None:
    lake = make_lake(config=COMPACT)
    for _ in range(2):
        lake.produce(10)
    lake.kafka.compact(lake.topic)
    lake.run()
    assert not {(0, offset) for offset in range(10)} & set(lake.values())
    run = lake.audit()
    assert complete(run) and findings(run, "EXPLAINED"), told(run)


@pytest.mark.case(14)
def test_records_that_were_compacted_after_they_were_read(make_lake: MakeLake) -> None:
    lake = make_lake(config=COMPACT)
    for _ in range(2):
        lake.produce(10)
    lake.run()
    lake.kafka.compact(lake.topic)
    lake.run()
    assert complete(lake.audit()) and complete(lake.audit(full=True))


@pytest.mark.case(46, "GAP")
def test_a_row_is_lost_and_its_record_compacted_before_the_first_audit(make_lake: MakeLake) -> None:
    lake = make_lake(config=COMPACT)
    lake.produce(10)
    hook = lake.hook()
    hook.writer = Keeps(lake, "_source_offset <> 4")
    lake.run(hook)
    lake.produce(10)
    lake.kafka.compact(lake.topic)
    run = lake.audit()
    # What the sink was given was counted; which of the offsets is lost, Kafka no longer shows.
    assert refuted(run, "GAP"), told(run)


@pytest.mark.case(20, "EXPLAINED")
def test_one_offset_that_holds_no_record(make_lake: MakeLake) -> None:
    lake = make_lake()
    lake.produce(5)
    lake.kafka.transaction(lake.topic, [("k", "v", 0)] * 3)
    lake.produce(5)
    lake.run()
    assert [offset for _, offset in lake.values()] == [*range(8), *range(9, 14)]
    run = lake.audit()
    assert complete(run) and findings(run, "EXPLAINED"), told(run)


@pytest.mark.case(90, "RECREATED")
def test_what_recon_offsets_and_explain_say_of_a_topic_made_anew(make_lake: MakeLake) -> None:
    lake = make_lake()
    lake.produce(30)
    lake.run()
    lake.kafka.delete_topic(lake.topic)
    lake.kafka.create_topic(lake.topic)
    lake.produce(40)
    assert json.loads(starting_offsets(lake.project, "p")) == {lake.topic: {"0": 0}}
    assert [one.held for one in explain(lake.project, "p").ranges] == ["re-created"]
    assert [one.held for one in explain(lake.project, "p", 0).ranges] == ["re-created"]
    run = lake.audit()
    assert "RECREATED" in failing(run) and run.pipelines[0].answer == "not complete", told(run)


def test_an_offset_without_a_row_whose_topic_was_made_anew_since(make_lake: MakeLake) -> None:
    """The topic of now has another record there, which explains nothing; the printed steps lead to "complete"."""
    lake = make_lake()
    lake.produce(10)
    lake.kafka.transaction(lake.topic, [("k", "v", 0)] * 3)
    lake.run()
    lake.kafka.delete_topic(lake.topic)
    lake.kafka.create_topic(lake.topic)
    lake.produce(40)
    run = lake.audit()
    assert ranges(findings(run, "INCONCLUSIVE")) == {(0, 13, 14)}, told(run)
    assert steps_of_questions(run) == {"accept"}, "another audit says the same"
    # As the steps of RECREATED say: a fresh checkpoint, and the startingOffsets of `recon offsets`.
    starting = starting_offsets(lake.project, "p")
    lake.forget_checkpoint()
    lake.run(lake.hook(), starting=starting)
    again = lake.audit(full=True)
    assert failing(again) == {"RECREATED"} and steps_of_questions(again) == {"accept"}, told(again)
    assert accepted(lake) == "complete", told(lake.audit())
