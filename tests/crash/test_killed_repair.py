"""A repair is killed (SIGKILL) at each of its points, killed once more, and run again: nothing is lost or doubled."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from recon.evidence import delta_log
from recon.model import REMOVALS, REPAIRS, Level, RunResult
from recon.reports import run_results
from recon.storage import Storage
from tests.crash.harness import Crashes, Outcome
from tests.crash.plan import Plan
from tests.crash.repairs import REPAIR_POINTS, audit_of
from tests.crash.sinks import DELTA, World, delta_rows
from tests.support.kafka import LocalKafka

# Where a repair that died at a point is killed once more; one that died behind its last write has no points left.
AGAIN = {
    "before_write": "after_write",
    "during": "after_ledger",
    "after_write": "removal_before_write",
    "before_ledger": "removal_after_write",
    "after_ledger": "removal_before_ledger",
    "removal_before_write": "removal_after_write",
}
# Of a repair at a point: the epochs of what it has committed, and of what the ledger has.
STANDS: dict[str, tuple[set[int], set[int]]] = {
    "before_write": (set(), set()),
    "during": (set(), set()),
    "after_write": ({REPAIRS}, set()),
    "before_ledger": ({REPAIRS}, set()),
    "after_ledger": ({REPAIRS}, {REPAIRS}),
    "removal_before_write": ({REPAIRS}, {REPAIRS}),
    "removal_after_write": ({REPAIRS, REMOVALS}, {REPAIRS}),
    "removal_before_ledger": ({REPAIRS, REMOVALS}, {REPAIRS}),
}


@dataclass
class Finished:
    """What there was before the repairs, and after them."""

    crashes: Crashes
    before: RunResult
    outcomes_before: Mapping[str, Outcome]
    after: RunResult
    hits: list[tuple[str, str]]


@pytest.fixture(scope="module")
def finished(broker: LocalKafka, classpath: str, archive: Path, folder: Path) -> Iterator[Finished]:
    """Four starts: faults and an audit; the kills; the second kills; the repairs to their end and an audit."""
    adapters = [replace(DELTA, name=point, config=_config, read=delta_rows(point)) for point in REPAIR_POINTS]
    crashes = Crashes(
        folder / "repaired", broker, adapters, classpath=classpath, archive=archive, topic="repaired", per_trigger=60
    )
    crashes.produce(120)
    before = run_results.read(audit_of(_start(crashes, "faults")))
    outcomes = {name: crashes.compare(name) for name in REPAIR_POINTS}
    hits = []
    for stop_at in ({point: point for point in REPAIR_POINTS}, AGAIN):
        hits += _kill(crashes, stop_at)
    crashes.produce(40)
    after = run_results.read(audit_of(_start(crashes, "finish")))
    yield Finished(crashes, before, outcomes, after, hits)


def _config(world: World) -> dict[str, Any]:
    return {"kind": "delta", "target": "{sink}", "on_new_epoch": "warn"}


def _start(crashes: Crashes, does: str, code: int = 0, **changes: Any) -> Plan:
    plan = crashes.plan(**changes)
    child = crashes.launch(plan, "tests.crash.repairs", does)
    ended = child.wait()
    assert ended == code, f"the start ended with {ended}:\n{child.log.read_text()[-6000:]}"
    return plan


def _kill(crashes: Crashes, stop_at: Mapping[str, str]) -> list[tuple[str, str]]:
    """Kills the repairs at their points, and verifies by the files that each came to its own."""
    plan = _start(crashes, "kill", -signal.SIGKILL, stop_at=dict(stop_at), pipelines=tuple(stop_at))
    lines = [json.loads(line) for line in Path(plan.hits).read_text().splitlines()]
    mine = [line for line in lines if line["start"] == plan.start]
    assert mine[-1].get("killed"), mine
    hits = [(line["sink"], line["point"]) for line in mine[:-1]]
    assert dict(hits) == dict(stop_at)
    for name, point in hits:
        commits = delta_log.stamped(Storage(str(crashes.folder / name))).commits
        committed = {commit.stamp.epoch for commit in commits} & {REPAIRS, REMOVALS}
        entered = {entry.epoch for entry in crashes.ledger.entries(name)} & {REPAIRS, REMOVALS}
        assert (committed, entered) == STANDS[point], (name, point)
    return hits


def test_each_pipeline_had_lost_and_doubled_records(finished: Finished) -> None:
    for name, outcome in finished.outcomes_before.items():
        assert outcome.lost and outcome.doubled, name
    assert {pipeline.name: pipeline.answer for pipeline in finished.before.pipelines} == dict.fromkeys(
        REPAIR_POINTS, "not complete"
    )


def test_every_point_was_hit(finished: Finished) -> None:
    assert {point for _, point in finished.hits} == set(REPAIR_POINTS)
    assert len(finished.hits) == len(REPAIR_POINTS) + len(AGAIN)


@pytest.mark.parametrize("name", REPAIR_POINTS)
def test_nothing_is_lost_or_doubled(finished: Finished, name: str) -> None:
    outcome = finished.crashes.compare(name)
    assert outcome.records == 160
    assert (outcome.lost, outcome.doubled, outcome.foreign) == ([], [], [])
    assert (outcome.unentered, outcome.broken_chain) == ([], [])
    entries = finished.crashes.ledger.entries(name)
    assert sorted(entry.epoch for entry in entries if entry.epoch < 0) == [REMOVALS, REPAIRS]


@pytest.mark.parametrize("name", REPAIR_POINTS)
def test_the_audit_says_repaired_and_complete(finished: Finished, name: str) -> None:
    (facts,) = (pipeline for pipeline in finished.after.pipelines if pipeline.name == name)
    found = [f for r in finished.after.results if r.pipeline == name for f in r.findings]
    assert facts.says == "complete", facts.because
    assert [f for f in found if f.level in (Level.FAIL, Level.UNPROVED)] == []
    assert "REPAIRED" in {str(f.code) for f in found}
