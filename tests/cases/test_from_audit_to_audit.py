"""The proof from audit to audit (docs/proof.md), on a real broker, stream, table and ledger: fault cases 41 and on."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from threading import Barrier

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame

from recon.audits.accept import open_findings
from recon.base.clock import utc_now
from recon.local.client import wait_until
from recon.model import CheckResult, RunResult
from recon.model.proof import SinkProof
from recon.project import CheckSpec, DeltaSink, Project
from recon.write.hook import foreach_batch
from recon.write.ledger import open_ledger
from tests.cases.lake import EVIDENCE, Lake, failing, findings, ranges
from tests.support import fault_cases
from tests.unit.cli.test_cli import Ended, recon  # noqa: F401

MakeLake = Callable[..., Lake]
Recon = Callable[..., Ended]
Later = Callable[[timedelta], None]


def swallowed(frame: DataFrame, batch_id: int) -> None:
    """A function for foreachBatch that swallows the micro-batch: Spark takes it as written."""


def write_recon_yml(lake: Lake) -> None:
    """The lake's project, for the command line."""
    (pipeline,) = lake.project.pipelines
    sinks = [{"name": "s", "kind": "delta", "target": "table", "data_tests": list(EVIDENCE)}]
    source = {"topics": [lake.topic], "isolation_level": lake.isolation_level}
    content = {
        "name": "lake",
        "ledger": "recon",
        "kafka": dict(lake.project.kafka),
        "pipelines": [{"name": "p", "checkpoint": pipeline.checkpoint, "source": source, "sinks": sinks}],
    }
    (lake.path / "recon.yml").write_text(json.dumps(content, indent=1))


def state(lake: Lake) -> SinkProof:
    found = open_ledger(lake.project).proofs.newest("p", "s")
    assert found is not None
    return found


def says(run: RunResult) -> str:
    return run.pipelines[0].says


def with_swallowed_middle(lake: Lake) -> None:
    """Micro-batch 1 of three, offsets [20, 40), is swallowed."""
    hook = lake.hook()
    lake.produce(60)
    lake.run(lambda frame, batch_id: (swallowed if batch_id == 1 else hook)(frame, batch_id), per_trigger=20)


# -- where a proof begins ----------------------------------------------------------------------------


@pytest.mark.case(42, "UNWITNESSED")
def test_42_the_hook_is_added_to_a_query_that_already_wrote(make_lake: MakeLake) -> None:
    lake = make_lake()

    def by_hand(frame: DataFrame, batch_id: int) -> None:
        frame.write.format("delta").mode("append").save(str(lake.table))

    lake.produce(20)
    lake.run(by_hand)
    lake.sql(
        "ALTER TABLE {table} ADD COLUMNS "
        "(_source_topic STRING, _source_partition INT, _source_offset BIGINT, _batch_id BIGINT)"
    )
    lake.produce(20)
    lake.run()
    run = lake.audit()
    assert says(run) == "complete since micro-batch 1" and failing(run) == set()
    (unwitnessed,) = findings(run, "UNWITNESSED")
    assert f"micro-batches 0 to 0 ({lake.topic}-0 from offset 0 on)" in unwitnessed.message
    assert run.pipelines[0].because == (
        f"Every offset of micro-batch 1 ({lake.topic}-0 from offset 20) to 1 is accounted for"
    )
    lake.produce(20)
    lake.run()
    run = lake.audit()
    assert says(run) == "complete since micro-batch 1"
    assert run.pipelines[0].because.endswith(f"micro-batch 1 ({lake.topic}-0 from offset 20) to 2 is accounted for")


@pytest.mark.case(56, "GAP")
def test_56_a_sink_that_gets_its_checks_later_is_judged_from_its_own_first_entry(make_lake: MakeLake) -> None:
    lake = make_lake()
    lake.produce(30)
    (pipeline,) = lake.project.pipelines
    unchecked = DeltaSink(name="copy", target="copy")
    checked = unchecked.model_copy(update={"data_tests": tuple(CheckSpec(test=name) for name in EVIDENCE)})

    def with_copy(copy: DeltaSink) -> Project:
        both = pipeline.model_copy(update={"sinks": (*pipeline.sinks, copy)})
        return lake.project.model_copy(update={"pipelines": (both,)})

    first, second = (foreach_batch(with_copy(unchecked), pipeline="p", sink=name) for name in ("s", "copy"))

    def loses_the_middle_of_the_copy(frame: DataFrame, batch_id: int) -> None:
        first(frame, batch_id)
        if batch_id != 1:
            second(frame, batch_id)

    lake.run(loses_the_middle_of_the_copy, per_trigger=10)
    fault_cases.audit(with_copy(unchecked), spark=lake.spark)
    assert state(lake).position == 3, "the sink with checks was judged"
    run = fault_cases.audit(with_copy(checked), spark=lake.spark)
    assert says(run) == "not complete" and {f.sink for f in findings(run, "GAP")} == {"copy"}
    assert ranges(findings(run, "GAP")) == {(0, 10, 20)}


# -- what stays open, and what answers it ------------------------------------------------------------


@pytest.mark.case(54, "GAP")
def test_54_a_gap_stays_until_somebody_accepts_it(
    make_lake: MakeLake,
    audits_later: Later,
    recon: Recon,  # noqa: F811
) -> None:
    lake = make_lake()
    with_swallowed_middle(lake)
    write_recon_yml(lake)
    assert failing(lake.audit()) == {"GAP"}
    (known,) = {one.id for one in open_findings(lake.project)}
    seen = min(one.first_seen for one in open_findings(lake.project))
    audits_later(timedelta(days=2))
    lake.produce(20)
    lake.run()
    run = lake.audit()
    assert says(run) == "not complete" and ranges(findings(run, "GAP")) == {(0, 20, 40)}
    assert f"(finding {known}, open since the audit of {seen:%Y-%m-%d %H:%M:%S}Z" in run.pipelines[0].because
    assert state(lake).position == len(lake.entries())

    assert recon("findings").out.count(known) == len(open_findings(lake.project))
    assert recon("accept", known, "--by", "Ada Lovelace", "--reason", "test data, not needed").code == 0
    audited = recon("audit")
    assert audited.code == 0, audited.out
    accepted = f"[20, 40)[^\\n]*accepted by Ada Lovelace on {utc_now():%Y-%m-%d}: test data, not needed"
    answer = "complete, but for"
    page = (lake.path / "target" / "report.html").read_text()
    assert answer in " ".join(audited.out.split()) and answer in page
    results = json.loads((lake.path / "target" / "run_results.json").read_text())
    text = json.dumps(results)
    for where in (page, text, " ".join(audited.out.split())):
        assert re.search(accepted.replace("[20, 40)", r"\[20, 40\)"), where), where[-2000:]


@pytest.mark.long
def test_a_third_row_of_a_record_whose_second_one_was_accepted(
    make_lake: MakeLake,
    recon: Recon,  # noqa: F811
) -> None:
    """The second row is the query's own, written again after a lost checkpoint, or another program's."""
    lake = make_lake(sink={"on_new_epoch": "warn"})
    lake.produce(10)
    lake.run()
    lake.forget_checkpoint()
    lake.run(starting=json.dumps({lake.topic: {"0": 6}}))
    adds = "INSERT INTO {table} BY NAME SELECT DISTINCT * EXCEPT (_batch_id), CAST(NULL AS BIGINT) AS _batch_id "
    lake.sql(adds + "FROM {table} WHERE _source_offset = 2")
    write_recon_yml(lake)
    run = lake.audit()
    assert says(run) == "not complete" and ranges(findings(run, "DUPLICATE")) == {(0, 2, 3), (0, 6, 10)}
    for known in {one.id for one in open_findings(lake.project)}:
        assert recon("accept", known, "--by", "Ada Lovelace", "--reason", "readers keep one row").code == 0
    run = lake.audit()
    assert says(run).startswith("complete, but for") and failing(run) == set(), run.pipelines[0].because
    lake.sql(adds + "FROM {table} WHERE _source_offset IN (2, 7)")
    assert [lake.values().count((0, offset)) for offset in (1, 2, 6, 7)] == [1, 3, 2, 3]
    for _ in range(2):  # nor does the audit that found it answer it
        run = lake.audit()
        assert says(run) == "not complete" and failing(run) == {"DUPLICATE"}, run.pipelines[0].because
        assert ranges(findings(run, "DUPLICATE")) == {(0, 2, 3), (0, 7, 8)}


def repair(lake: Lake, start: int, size: int) -> None:
    """Reads a range again through the hook, with a checkpoint of its own and one micro-batch."""
    mended = replace(lake, checkpoint_name="repair")
    reader = (
        lake.spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", lake.kafka.bootstrap_servers)
        .option("subscribe", lake.topic)
        .option("startingOffsets", json.dumps({lake.topic: {"0": start}}))
        .option("maxOffsetsPerTrigger", size)
    )
    query = (
        reader.load()
        .writeStream.foreachBatch(mended.hook())
        .option("checkpointLocation", str(mended.checkpoint))
        .trigger(processingTime="1 hour")
        .start()
    )
    try:
        wait_until((mended.checkpoint / "commits" / "0").exists, "the repair's micro-batch did not end")
    finally:
        query.stop()


@pytest.mark.case(72, "REPAIRED")
def test_72_a_gap_is_repaired_by_reading_exactly_that_range_again(make_lake: MakeLake) -> None:
    lake = make_lake()
    with_swallowed_middle(lake)
    assert ranges(findings(lake.audit(), "GAP")) == {(0, 20, 40)}
    repair(lake, 20, 20)
    assert lake.values() == [(0, offset) for offset in range(60)]
    run = lake.audit()
    assert says(run) == "complete", run.pipelines[0].because
    assert failing(run) == set() and ranges(findings(run, "REPAIRED")) == {(0, 20, 40)}
    assert state(lake).open == ()
    # The query goes on where it was.
    lake.produce(20)
    lake.run()
    assert says(lake.audit()) == "complete" and says(lake.audit(full=True)) == "complete"


# -- positions, not times ----------------------------------------------------------------------------


# -- tampering, and two audits at once ---------------------------------------------------------------


def test_a_proof_that_was_edited_or_removed_is_tampered(make_lake: MakeLake, recon: Recon) -> None:  # noqa: F811
    lake = make_lake()
    lake.produce(20)
    lake.run()
    write_recon_yml(lake)
    for _ in range(2):
        assert says(lake.audit()) == "complete"
    ledger, copy = lake.path / "recon", lake.path / "copy"
    place = open_ledger(lake.project).proofs.store.location
    shutil.copytree(ledger, copy)
    DeltaTable(place).update(updates={"state": "replace(state, '\"position\":1', '\"position\":0')"})
    run = lake.audit()
    assert says(run) == "not complete" and failing(run) == {"TAMPERED"}
    assert "does not match its own entry_hash: it was edited" in run.pipelines[0].because

    shutil.rmtree(ledger)
    copy.rename(ledger)
    shutil.rmtree(place)
    for _ in range(2):  # the state that the first of them leaves does not forget
        run = lake.audit()
        assert says(run) == "not complete" and failing(run) == {"TAMPERED"}
        assert "the table was removed, or is an older copy" in run.pipelines[0].because
    (known,) = {one.id for one in open_findings(lake.project)}
    assert recon("accept", known, "--by", "Ada", "--reason", "moved to another disk").code == 0
    assert says(lake.audit()) == "complete, but for 1 accepted finding"


def test_two_audits_at_the_same_moment(make_lake: MakeLake) -> None:
    lake = make_lake()
    lake.produce(20)
    lake.run()
    both_judged = Barrier(2, timeout=120)

    def audit(_: int) -> RunResult:
        def judged(index: int, total: int, result: CheckResult) -> None:
            if index == total:
                both_judged.wait()

        return lake.audit(on_result=judged)

    with ThreadPoolExecutor(2) as audits:
        runs = list(audits.map(audit, range(2)))
    assert [says(run) for run in runs] == ["complete", "complete"]
    late = "what this audit proved could not be kept: another audit, or recon accept, stored a newer state meanwhile"
    assert sorted(sum(late in note for note in run.notes) for run in runs) == [0, 1]
    assert (state(lake).sequence, state(lake).position) == (1, 1)
    assert state(lake).invocation_id in {run.invocation_id for run in runs if not run.notes}
    assert says(lake.audit()) == "complete" and state(lake).sequence == 2
