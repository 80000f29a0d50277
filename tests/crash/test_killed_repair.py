"""A repair is killed (SIGKILL) at each of its points, killed once more, and run again: nothing is lost or doubled.

`make soak` adds variants: the same points of another sink, and later points of the same one.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from recon.base.storage import Storage
from recon.local.process import tail
from recon.model import REMOVALS, REPAIRS, Level, RunResult
from recon.model.wire.markers import Owner
from recon.reports import run_results
from recon.witness import delta_log, kafka_markers, manifests
from tests.crash.harness import CHILD_TIMEOUT_S, Child, Crashes, Outcome
from tests.crash.plan import IN_SOAK, Plan
from tests.crash.repairs import REPAIR_POINTS, audit_of, goes_on
from tests.crash.sinks import Adapter, delta, delta_merge, files, jdbc, kafka, routed
from tests.support.kafka import LocalKafka
from tests.support.processes import until

# Three starts, of minutes each on a busy machine, before the first test.
pytestmark = pytest.mark.timeout(3600)

# Where the repair of a Delta sink is killed first, and then once more: together all points. A repair that died behind
# its last write has no points left.
DELTA = {
    "before_write": "after_write",
    "during": "after_ledger",
    "before_ledger": "removal_after_write",
    "after_write": "removal_before_write",
    "removal_before_write": "removal_before_ledger",
}
DELTA_VARIANTS = {"after_ledger": "removal_before_ledger", "removal_after_write": None, "removal_before_ledger": None}
# The points of a step from which on it is committed, and that from which on the ledger has it.
COMMITTED = ("committed", "manifest_written", "marked", "after_write", "before_ledger", "after_ledger")


@dataclass(frozen=True)
class Killed:
    """A sink whose repair is killed at a point, and perhaps killed again; a variant by `make soak` alone."""

    adapter: Adapter
    point: str
    again: str | None = None
    variant: bool = False

    @property
    def doubled(self) -> bool:
        """Whether it has doubled rows, besides those that it lost; a keyed sink merges them, the others keep them."""
        return not self.adapter.rewrites and self.adapter.name not in (*FILES, *TOPICS)


def _appends(name: str, product: str) -> Adapter:
    return jdbc(name, product, "jdbc_append", on_new_epoch="warn")


def _delta(point: str, again: str | None, *, variant: bool = False) -> Killed:
    return Killed(delta(point, on_new_epoch="warn"), point, again, variant)


FILES = ("parquet_written", "json_committed", "parquet_entered")
TOPICS = ("topic_produced", "topic_marked")
_ALL = (
    *(_delta(point, again) for point, again in DELTA.items()),
    *(_delta(point, again, variant=True) for point, again in DELTA_VARIANTS.items()),
    Killed(files("parquet_written"), "files_written", "manifest_written"),
    Killed(files("json_committed", "json"), "manifest_written", variant=True),
    Killed(files("parquet_entered"), "before_write", "after_write", variant=True),
    Killed(kafka("topic_produced"), "produced", "before_ledger"),
    Killed(kafka("topic_marked"), "marked", variant=True),
    Killed(routed("routed_writing", on_new_epoch="warn"), "before_write", "after_write"),
    Killed(routed("routed_written", on_new_epoch="warn"), "before_ledger", "removal_after_write", variant=True),
    # With delete_when a repair is refused: a deleted key leaves no trace in the table.
    Killed(delta_merge("merge_reduced", deletes=False), "reduced", "after_write"),
    Killed(delta_merge("merge_written", deletes=False), "before_ledger", variant=True),
    Killed(_appends("postgres_open", "postgres"), "transaction_open", "removal_after_write"),
    Killed(_appends("postgres_written", "postgres"), "after_write", "removal_transaction_open", variant=True),
    Killed(_appends("mariadb_removing", "mariadb"), "removal_before_commit", "removal_before_ledger"),
    Killed(jdbc("postgres_upserting", "postgres", "jdbc_upsert"), "before_commit", "after_ledger"),
    Killed(jdbc("mariadb_upserted", "mariadb", "jdbc_upsert"), "after_write", variant=True),
)
KILLED = [killed for killed in _ALL if IN_SOAK or not killed.variant]
NAMES = [killed.adapter.name for killed in KILLED]
DOUBLED = [killed.adapter.name for killed in KILLED if killed.doubled]


@dataclass
class Finished:
    """What there was before the repairs, and after them."""

    crashes: Crashes
    before: RunResult
    outcomes_before: Mapping[str, Outcome]
    after: RunResult
    hits: list[tuple[str, str]]


@pytest.fixture(scope="module")
def finished(
    broker: LocalKafka, classpath: str, archive: Path, folder: Path, request: pytest.FixtureRequest
) -> Iterator[Finished]:
    """Three starts: faults, an audit and the kills; the second kills; the repairs to their end and an audit."""
    adapters = [killed.adapter for killed in KILLED]
    servers = {name: request.getfixturevalue(name) for adapter in adapters for name in adapter.needs}
    crashes = Crashes(
        folder / "repaired",
        broker,
        adapters,
        classpath=classpath,
        archive=archive,
        topic="repaired",
        per_trigger=60,
        **servers,
    )
    crashes.produce(120)
    first = {killed.adapter.name: killed.point for killed in KILLED}
    plan = crashes.plan(stop_at=first, doubled=tuple(DOUBLED))
    child = crashes.launch(plan, "tests.crash.repairs", "faults")
    try:
        until(lambda: goes_on(plan).exists() or not child.alive, CHILD_TIMEOUT_S)
        assert goes_on(plan).exists() and child.alive, tail(child.log, 60)
        before = run_results.read(audit_of(plan))
        outcomes = {name: crashes.compare(name) for name in NAMES}
    except BaseException:
        child.kill()
        raise
    goes_on(plan).unlink()
    _end(child, -signal.SIGKILL)
    hits = _hits(crashes, plan)
    plan = crashes.plan(stop_at={killed.adapter.name: killed.again for killed in KILLED if killed.again})
    _end(crashes.launch(plan, "tests.crash.repairs", "kill"), -signal.SIGKILL)
    hits += _hits(crashes, plan)
    crashes.produce(40)
    plan = crashes.plan()
    _end(crashes.launch(plan, "tests.crash.repairs", "finish"), 0)
    yield Finished(crashes, before, outcomes, run_results.read(audit_of(plan)), hits)


def _end(child: Child, code: int) -> None:
    ended = child.wait()
    assert ended == code, f"the start ended with {ended}:\n{child.log.read_text()[-6000:]}"


def _hits(crashes: Crashes, plan: Plan) -> list[tuple[str, str]]:
    """(pipeline, point) of the repairs that a start killed; what is stored has to say that each came to its own."""
    lines = [json.loads(line) for line in Path(plan.hits).read_text().splitlines()]
    mine = [line for line in lines if line["start"] == plan.start]
    assert mine[-1].get("killed"), mine
    hits = [(line["sink"], line["point"]) for line in mine[:-1]]
    assert dict(hits) == plan.stop_at
    for name, point in hits:
        last = crashes.adapters[name].entered[-1]
        entered = {entry.epoch for entry in crashes.ledger.entries(name, last)} & {REPAIRS, REMOVALS}
        assert (_committed(crashes, name), entered) == _stands(point), (name, point)
    return hits


def _committed(crashes: Crashes, name: str) -> set[int]:
    """The epochs of what repairs have committed in a sink: REPAIRS, REMOVALS."""
    adapter = crashes.adapters[name]
    if adapter.needs:
        (product,) = adapter.needs
        epochs = {row[0] for row in crashes.world.sql(product, f"SELECT epoch FROM recon_ledger WHERE sink = '{name}'")}
    elif name in TOPICS:
        sink = crashes.project.find_sink(name)[1]
        conf, owner = {"bootstrap.servers": crashes.kafka.bootstrap_servers}, Owner(name, name, sink.target)
        markers = kafka_markers.read(conf, f"{crashes.world.tag}_markers", owner, decides=lambda key, offset: False)
        epochs = {epoch for epoch, _ in markers.batches} if markers is not None else set()
    else:
        target = Storage(str(crashes.folder / adapter.entered[-1]))
        commits = (manifests.log(target) if name in FILES else delta_log.stamped(target)).commits
        epochs = {commit.stamp.epoch for commit in commits}
    return epochs & {REPAIRS, REMOVALS}


def _stands(point: str) -> tuple[set[int], set[int]]:
    """Of a repair at a point: the epochs of what it has committed, and of what the ledger has."""
    step = point.removeprefix("removal_")
    done: set[int] = {REPAIRS} if step != point else set()
    mine = {REMOVALS if step != point else REPAIRS}
    return done | (mine if step in COMMITTED else set()), done | (mine if step == "after_ledger" else set())


def test_each_pipeline_had_lost_records_and_perhaps_doubled_ones(finished: Finished) -> None:
    for name, outcome in finished.outcomes_before.items():
        assert outcome.lost and bool(outcome.doubled) == (name in DOUBLED), name
    assert {pipeline.name: pipeline.answer for pipeline in finished.before.pipelines} == dict.fromkeys(
        NAMES, "not complete"
    )


def test_every_point_was_hit(finished: Finished) -> None:
    assert {point for _, point in finished.hits} >= set(REPAIR_POINTS)
    assert len(finished.hits) == len(KILLED) + sum(killed.again is not None for killed in KILLED)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_lost_or_doubled(finished: Finished, name: str) -> None:
    outcome = finished.crashes.compare(name)
    assert outcome.records == 160
    assert (outcome.lost, outcome.doubled, outcome.foreign) == ([], [], [])
    assert (outcome.unentered, outcome.broken_chain) == ([], [])
    for sink in finished.crashes.adapters[name].entered:
        entries = finished.crashes.ledger.entries(name, sink)
        done = [REMOVALS, REPAIRS] if name in DOUBLED else [REPAIRS]
        assert sorted(entry.epoch for entry in entries if entry.epoch < 0) == done


@pytest.mark.parametrize("name", NAMES)
def test_the_audit_says_repaired_and_complete(finished: Finished, name: str) -> None:
    (facts,) = (pipeline for pipeline in finished.after.pipelines if pipeline.name == name)
    found = [f for r in finished.after.results if r.pipeline == name for f in r.findings]
    assert facts.says == "complete", facts.because
    assert [f for f in found if f.level in (Level.FAIL, Level.UNPROVED)] == []
    assert "REPAIRED" in {str(f.code) for f in found}
