"""A sink under a new name whose old chain was cut, and restored entries that somebody accepts one by one."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame

from recon.audits.accept import accept, open_findings
from recon.project import Project
from recon.recovery.rebuild import rebuild
from recon.write.hook import foreach_batch
from tests.cases.lake import EVIDENCE, Lake, failing, findings, told
from tests.support import fault_cases

MakeLake = Callable[..., Lake]


def ran(lake: Lake, batches: int, hook: Callable[[DataFrame, int], None] | None = None) -> None:
    """So many micro-batches of ten records, in one run of the query."""
    lake.produce(10 * batches)
    lake.run(hook, per_trigger=10)


def test_restored_entries_are_accepted_one_by_one(make_lake: MakeLake) -> None:
    """Where rows carry no source offsets, nothing shows whose rows the commits of a ledger that is gone have."""
    lake = make_lake(sink={"stamp_source_offsets": False})
    ran(lake, 2)
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


def _with_sink_named(project: Project, name: str) -> Project:
    (pipeline,) = project.pipelines
    (sink,) = pipeline.sinks
    sinks = (sink.model_copy(update={"name": name}),)
    return project.model_copy(update={"pipelines": (pipeline.model_copy(update={"sinks": sinks}),)})


@pytest.mark.long
@pytest.mark.case(68, "TAMPERED")
def test_a_sink_is_renamed_and_the_old_chain_cut(make_lake: MakeLake) -> None:
    lake = make_lake(checks=(*EVIDENCE, "ledger_integrity"))
    ran(lake, 2)
    assert not failing(lake.audit())
    project = _with_sink_named(lake.project, "renamed")
    ran(lake, 1, foreach_batch(project, pipeline="p", sink="renamed"))
    before = fault_cases.audit(project, spark=lake.spark)
    assert not failing(before), told(before)
    DeltaTable(str(lake.path / "recon/ledger")).delete("sink = 's' AND batch_id = 1")
    run = fault_cases.audit(project, spark=lake.spark)
    assert "TAMPERED" in failing(run), told(run)
