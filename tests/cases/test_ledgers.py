"""Fault cases of the ledger and of what audits remember: rewritten chains, new names, several findings at once."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace as changed

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame

from recon.audits.accept import accept, open_findings
from recon.hook import foreach_batch
from recon.ledger import open_ledger
from recon.model import LedgerEntry
from recon.project import Project
from recon.recovery.rebuild import rebuild
from tests.cases.lake import EVIDENCE, Lake, failing, findings, ranges, refuted, told
from tests.cases.test_cases import edit_ledger
from tests.support import fault_cases

MakeLake = Callable[..., Lake]


def swallowed(frame: DataFrame, batch_id: int) -> None:
    """A function for foreachBatch that writes nothing."""


def ran(lake: Lake, *hooks: Callable[[DataFrame, int], None] | None) -> None:
    for hook in hooks:
        lake.produce(10)
        lake.run(hook)


@pytest.mark.case(57, "GAP", "INCONCLUSIVE")
def test_a_loss_and_an_open_question_in_one_check(make_lake: MakeLake) -> None:
    lake = make_lake()
    lake.produce(10)
    unknown_id = lake.project.model_copy(update={"kafka": {}})
    lake.run(foreach_batch(unknown_id, pipeline="p", sink="s"))
    lake.kafka.delete_topic(lake.topic)
    lake.kafka.create_topic(lake.topic)
    lake.produce(20)
    lake.run()
    ran(lake, swallowed, None)
    run = lake.audit()
    (continuity,) = [result for result in run.results if result.check == "offset_continuity"]
    assert {"GAP", "INCONCLUSIVE"} <= {str(f.code) for f in continuity.findings}, told(run)
    answers = ["not complete"]
    for code in ("GAP", "INCONCLUSIVE"):
        for known in {one.id for one in open_findings(lake.project) if one.finding.code == code}:
            accept(lake.project, known, by="Ada Lovelace", reason="test data")
        again = fault_cases.audit(lake.project, spark=lake.spark)
        answers.append(again.pipelines[0].answer)
    assert answers == ["not complete", "could not be proved", "complete"], told(again)


def test_restored_entries_are_accepted_one_by_one(make_lake: MakeLake) -> None:
    """Where rows carry no source offsets, nothing shows whose rows the commits of a ledger that is gone have."""
    lake = make_lake(sink={"stamp_source_offsets": False})
    ran(lake, None, None)
    shutil.rmtree(lake.path / "recon")
    rebuild(lake.project)
    run = lake.audit()
    assert run.pipelines[0].answer == "could not be proved" and not failing(run), told(run)
    known = {one.finding.batch_id: one.id for one in open_findings(lake.project)}
    assert set(known) == {0, 1}, told(run)
    accept(lake.project, known[0], by="Ada Lovelace", reason="counted by hand")
    run = lake.audit()
    assert run.pipelines[0].answer == "could not be proved" and not failing(run), told(run)
    assert [f.batch_id for f in findings(run, "INCONCLUSIVE")] == [1], told(run)


@pytest.mark.case(66, "GAP")
def test_more_findings_than_are_listed(make_lake: MakeLake) -> None:
    """Three micro-batches have 400 holes each, and the first one none."""
    lake = make_lake()
    lake.produce(20)
    lake.run()
    hook = lake.hook()
    lake.produce(2400)
    lake.run(lambda frame, batch_id: hook(frame.where("offset % 2 = 0"), batch_id), per_trigger=800)
    run = lake.audit()
    assert refuted(run, "GAP"), told(run)
    assert len(ranges(findings(run, "GAP"))) < 1200
    (sink,) = run.pipelines[0].sinks
    assert (sink.batches, sink.batches_proved, sink.batches_refuted) == (4, 1, 3)


def rewrite(lake: Lake, entries: list[LedgerEntry]) -> None:
    """The ledger is made anew of these entries, each sealed and linked to the one before."""
    shutil.rmtree(lake.path / "recon")
    ledger = open_ledger(lake.project)
    for entry in entries:
        ledger.append(entry)


@pytest.mark.case(67, "TAMPERED")
def test_the_whole_chain_is_rewritten_before_the_first_audit(make_lake: MakeLake) -> None:
    lake = make_lake()
    ran(lake, None, swallowed, None, None)
    first, second, third = lake.entries()
    spans = tuple(span._replace(start_offset=10) for span in second.offsets)
    rewrite(lake, [first, changed(second, offsets=spans), third])
    run = lake.audit()
    assert "TAMPERED" in failing(run) and run.pipelines[0].answer == "not complete", told(run)


@pytest.mark.case(67, "TAMPERED")
def test_the_end_of_the_chain_is_cut_off(make_lake: MakeLake) -> None:
    lake = make_lake()
    ran(lake, None, None, None)
    rewrite(lake, lake.entries()[:1])
    run = lake.audit()
    assert refuted(run, "TAMPERED"), told(run)


def _named(project: Project, pipeline: str, sink: str) -> Project:
    (mine,) = project.pipelines
    (out,) = mine.sinks
    sinks = (out.model_copy(update={"name": sink}),)
    return project.model_copy(update={"pipelines": (mine.model_copy(update={"name": pipeline, "sinks": sinks}),)})


def renamed(lake: Lake, pipeline: str, sink: str) -> Project:
    """The project under these names, in which micro-batch 2 was written."""
    ran(lake, None, None)
    assert not failing(lake.audit())
    project = _named(lake.project, pipeline, sink)
    ran(lake, foreach_batch(project, pipeline=pipeline, sink=sink))
    return project


@pytest.mark.case(68, "UNWITNESSED")
def test_a_pipeline_is_renamed(make_lake: MakeLake) -> None:
    lake = make_lake()
    run = fault_cases.audit(renamed(lake, "renamed", "s"), spark=lake.spark)
    assert run.pipelines[0].says != "complete" and not failing(run), told(run)


@pytest.mark.case(68, "TAMPERED")
def test_a_sink_is_renamed_and_the_old_chain_cut(make_lake: MakeLake) -> None:
    lake = make_lake(checks=(*EVIDENCE, "ledger_integrity"))
    project = renamed(lake, "p", "renamed")
    before = fault_cases.audit(project, spark=lake.spark)
    assert not failing(before), told(before)
    DeltaTable(str(lake.path / "recon/ledger")).delete("sink = 's' AND batch_id = 1")
    run = fault_cases.audit(project, spark=lake.spark)
    assert "TAMPERED" in failing(run), told(run)


@pytest.mark.case(89, "TAMPERED", "GAP")
def test_an_entry_is_edited_so_that_it_covers_a_gap(make_lake: MakeLake) -> None:
    lake = make_lake(sink={"on_new_epoch": "warn"})
    ran(lake, None)
    lake.produce(10)
    lake.forget_checkpoint()
    lake.run(starting=json.dumps({lake.topic: {"0": 15}}))

    def covers(rows: list[dict[str, object]]) -> list[dict[str, object]]:
        for row in rows:
            for span in row["offsets"]:  # type: ignore[attr-defined]
                span["start_offset"] = 10 if span["start_offset"] == 15 else span["start_offset"]
        return rows

    edit_ledger(lake, covers)
    run = lake.audit()
    assert {"TAMPERED", "GAP"} <= failing(run) and run.pipelines[0].answer == "not complete", told(run)
    assert (0, 10, 15) in ranges(findings(run, "GAP")), told(run)
