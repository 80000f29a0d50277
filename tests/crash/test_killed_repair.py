"""A repair is killed (SIGKILL) at each of its points, killed once more, and run again: nothing is lost or doubled.

`make soak` adds variants: the same points of another sink, and later points of the same one.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from recon.evidence import delta_log, kafka_markers, manifests
from recon.model import REMOVALS, REPAIRS, Level, RunResult
from recon.model.wire.markers import Owner
from recon.reports import run_results
from recon.sinks.files.reading import batch_files
from recon.storage import Storage
from tests.crash.harness import Crashes, Outcome
from tests.crash.plan import IN_SOAK, Plan
from tests.crash.repairs import REPAIR_POINTS, audit_of
from tests.crash.sinks import DELTA, DELTA_MERGE, PARQUET, ROUTED, Adapter, World, delta_rows, jdbc, kafka
from tests.support.drivers import MARIADB_JDBC, POSTGRES_JDBC
from tests.support.kafka import LocalKafka

# Four starts, of minutes each on a busy machine, before the first test.
pytestmark = pytest.mark.timeout(3600)

# Where a repair that died at a point is killed once more; one that died behind its last write has no points left.
AGAIN = {
    "before_write": "after_write",
    "during": "after_ledger",
    "after_write": "removal_before_write",
    "before_ledger": "removal_after_write",
    "after_ledger": "removal_before_ledger",
    "removal_before_write": "removal_after_write",
}
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


def _config(world: World) -> dict[str, Any]:
    return {"kind": "delta", "target": "{sink}", "on_new_epoch": "warn"}


def _appends(name: str, product: str, java: str) -> Adapter:
    return jdbc(name, product, "jdbc_append", key=False, java=java, config={"on_new_epoch": "warn"})


def _merges(name: str) -> Adapter:
    def config(world: World) -> dict[str, Any]:
        # With delete_when a repair is refused: a deleted key leaves no trace in the table.
        return {"kind": "delta_merge", "target": "{sink}", "keys": ["id"]}

    return replace(DELTA_MERGE, name=name, config=config, read=delta_rows(name), deletes=False)


def _files(name: str, kind: str) -> Adapter:
    def config(world: World) -> dict[str, Any]:
        return {"kind": kind, "target": "{sink}"}

    def read(world: World) -> list[dict[str, Any]]:
        """What the manifests name; JSON by Python, Parquet by pyarrow."""
        found: list[dict[str, Any]] = []
        for file in batch_files(str(world.folder / name)):
            if kind == "parquet":
                found += pq.ParquetFile(file).read().to_pylist()
            else:
                found += [json.loads(line) for line in Path(file).read_text().splitlines()]
        return found

    return replace(PARQUET, name=name, config=config, read=read)


def _routed(name: str) -> Adapter:
    sinks = f"{name}_thirds", f"{name}_others"
    return replace(
        ROUTED,
        name=name,
        routes={"by": "n % 3 = 0", "to": {"true": sinks[0]}, "otherwise": sinks[1]},
        sinks=sinks,
        config=_config,
        read=delta_rows(*sinks),
    )


FILES = ("parquet_written", "json_committed", "parquet_entered")
TOPICS = ("topic_produced", "topic_marked")
_ALL = (
    *(
        Killed(replace(DELTA, name=point, config=_config, read=delta_rows(point)), point, AGAIN.get(point))
        for point in REPAIR_POINTS
    ),
    Killed(_files("parquet_written", "parquet"), "files_written", "manifest_written"),
    Killed(_files("json_committed", "json"), "manifest_written", variant=True),
    Killed(_files("parquet_entered", "parquet"), "before_write", "after_write", variant=True),
    Killed(kafka("topic_produced"), "produced", "before_ledger"),
    Killed(kafka("topic_marked"), "marked", variant=True),
    Killed(_routed("routed_writing"), "before_write", "after_write"),
    Killed(_routed("routed_written"), "before_ledger", "removal_after_write", variant=True),
    Killed(_merges("merge_reduced"), "reduced", "after_write"),
    Killed(_merges("merge_written"), "before_ledger", variant=True),
    Killed(_appends("postgres_open", "postgres", POSTGRES_JDBC), "transaction_open", "removal_after_write"),
    Killed(
        _appends("postgres_written", "postgres", POSTGRES_JDBC), "after_write", "removal_transaction_open", variant=True
    ),
    Killed(_appends("mariadb_removing", "mariadb", MARIADB_JDBC), "removal_before_commit", "removal_before_ledger"),
    Killed(
        jdbc("postgres_upserting", "postgres", "jdbc_upsert", key=True, java=POSTGRES_JDBC),
        "before_commit",
        "after_ledger",
    ),
    Killed(
        jdbc("mariadb_upserted", "mariadb", "jdbc_upsert", key=True, java=MARIADB_JDBC), "after_write", variant=True
    ),
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
    """Four starts: faults and an audit; the kills; the second kills; the repairs to their end and an audit."""
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
    before = run_results.read(audit_of(_start(crashes, "faults", doubled=tuple(DOUBLED))))
    outcomes = {name: crashes.compare(name) for name in NAMES}
    hits = _kill(crashes, {killed.adapter.name: killed.point for killed in KILLED})
    hits += _kill(crashes, {killed.adapter.name: killed.again for killed in KILLED if killed.again})
    crashes.produce(40)
    after = run_results.read(audit_of(_start(crashes, "finish")))
    yield Finished(crashes, before, outcomes, after, hits)


def _start(crashes: Crashes, does: str, code: int = 0, **changes: Any) -> Plan:
    plan = crashes.plan(**changes)
    child = crashes.launch(plan, "tests.crash.repairs", does)
    ended = child.wait()
    assert ended == code, f"the start ended with {ended}:\n{child.log.read_text()[-6000:]}"
    return plan


def _kill(crashes: Crashes, stop_at: Mapping[str, str]) -> list[tuple[str, str]]:
    """Kills the repairs at their points, and verifies by what is stored that each came to its own."""
    plan = _start(crashes, "kill", -signal.SIGKILL, stop_at=dict(stop_at), pipelines=tuple(stop_at))
    lines = [json.loads(line) for line in Path(plan.hits).read_text().splitlines()]
    mine = [line for line in lines if line["start"] == plan.start]
    assert mine[-1].get("killed"), mine
    hits = [(line["sink"], line["point"]) for line in mine[:-1]]
    assert dict(hits) == dict(stop_at)
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
