"""Audits after a fault that lack a part: the broker, Spark, or the newest state of the proof.

None of them raises, none proves what it did not see, and nothing that was open is gone.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from recon.audits.accept import open_findings
from recon.model import Level, RunResult
from recon.model.proof import OpenFinding
from tests.cases.lake import failing, replace, told
from tests.cases.native import CHECKS, SOURCE_COLUMNS, NativeLake
from tests.support.interpreted import interpreted
from tests.support.marks import long

DEAD: Any = SimpleNamespace(bootstrap_servers="127.0.0.1:1")


def nothing(lake: NativeLake) -> None:
    lake.produce(10)
    lake.stream()


def the_stream_passes_over_lost_records(lake: NativeLake) -> None:
    """What is there now does not show that Kafka deleted them before they were read: an audit saw it."""
    lake.produce(18)
    lake.kafka.delete_records({(lake.topic, 0): 32})
    assert failing(lake.audit()) == {"LOSS_RETENTION"}
    lake.stream(failOnDataLoss="false")


def rows_are_deleted(lake: NativeLake) -> None:
    lake.sql("DELETE FROM {table} WHERE value IN ('v3', 'v4')")


FAULTS: dict[str, tuple[Callable[[NativeLake], None], dict[str, Any]]] = {
    "nothing": (nothing, {"source_columns": SOURCE_COLUMNS}),
    "a loss that was passed over": (the_stream_passes_over_lost_records, {}),
    "deleted rows": (rows_are_deleted, {"source_columns": SOURCE_COLUMNS}),
}


@pytest.fixture(scope="module", params=FAULTS.items(), ids=list(FAULTS))
def audited(request: pytest.FixtureRequest, kafka: Any, spark: Any, tmp_path_factory: Any) -> NativeLake:
    """A lake with a fault that two audits found, and the proof of the audit before in the folder `yesterday`."""
    _, (fault, sink) = request.param
    lake = NativeLake(
        tmp_path_factory.mktemp("bad"),
        kafka,
        spark,
        f"bad-{uuid.uuid4().hex[:8]}",
        sink=sink,
        checks=(*CHECKS, "kafka_end_offsets"),
    )
    kafka.create_topic(lake.topic)
    with interpreted(spark):
        lake.produce(20)
        lake.stream()
        assert lake.audit().pipelines[0].answer == "complete"
        shutil.copytree(lake.path / "recon" / "proof", lake.path / "yesterday")
        fault(lake)
        for _ in range(2):
            lake.audit()
    return lake


def waiting(lake: NativeLake) -> list[OpenFinding]:
    return [open_finding for open_finding in open_findings(lake.project) if open_finding.accepted is None]


def is_gone(known: OpenFinding, among: list[OpenFinding]) -> bool:
    return not any(o.check == known.check and o.includes(known.finding) for o in among)


@pytest.mark.parametrize(
    "lacks",
    [{"Spark"}, {"proof"}, {"broker", "Spark", "proof"}, *long({"broker"})],
    ids=["Spark", "proof", "all", "broker"],
)
def test_an_audit_that_lacks_a_part(audited: NativeLake, lacks: set[str], tmp_path: Any) -> None:
    before = waiting(audited)
    shutil.copytree(audited.path, tmp_path / "lake")
    whole = replace(audited, path=tmp_path / "lake")
    if "proof" in lacks:
        shutil.rmtree(whole.path / "recon" / "proof")
        shutil.copytree(whole.path / "yesterday", whole.path / "recon" / "proof")
    lake = replace(whole, kafka=DEAD) if "broker" in lacks else whole
    run = lake.audit(no_spark="Spark" in lacks)
    holds(run, before, lacks)
    refuted = [o for o in before if o.finding.level is Level.FAIL]
    assert not [o.finding for o in refuted if is_gone(o, waiting(lake))], told(run)
    # Once all parts are there again, what was open is, too.
    run = whole.audit()
    holds(run, before, lacks & {"proof"})
    assert not [o.finding for o in before if is_gone(o, waiting(whole))], told(run)


def holds(run: RunResult, before: list[OpenFinding], lacks: set[str]) -> None:
    """The answer is that of the audits before, or what is missing is said."""
    assert ("TAMPERED" in failing(run)) == ("proof" in lacks), told(run)
    answer, code = run.pipelines[0].answer, run.exit_code
    if before or "proof" in lacks:
        assert (answer, code) == ("not complete", 1), told(run)
    elif "broker" in lacks:
        assert (answer, code) == ("could not be proved", 1), told(run)
    else:
        assert (answer, code) == ("complete", 0), told(run)
