"""SIGKILL at every seam of every sink, again and again; then source, sink and ledger must agree exactly.

Two drivers, two JVMs, meet beside them: one is killed before its write, two are started on its checkpoint, and both
write the same micro-batch at the same moment. They have pipelines of their own, and share the starts of the others.

`make test` gives each kind of sink so many pipelines that two starts hit all of its points; `make soak` has one, which
dies at all of them.

`RECON_CRASH_ROUNDS` (1) is how often each (sink, point) is hit, and a fifth of it, at least once, how often each seam
that only one sink has; `RECON_CRASH_VARIANT_ROUNDS` (a fifth of it) counts for sinks that are much like another;
`RECON_CRASH_RANDOM` (0) how many kills come at a random moment on top; `RECON_CRASH_SEED` what the order and those
moments follow from; `RECON_CRASH_SINKS` which sinks. `make soak` sets them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import pytest

from recon.write.sinks.failpoints import BEFORE_WRITE
from tests.crash.harness import Child, Crashes, Outcome, together
from tests.crash.plan import IN_SOAK, POINTS, ROUNDS
from tests.crash.sinks import ADAPTERS, Adapter, pipeline_of
from tests.support.kafka import LocalKafka

OWN_ROUNDS = max(1, ROUNDS // 5)
VARIANT_ROUNDS = int(os.environ.get("RECON_CRASH_VARIANT_ROUNDS", OWN_ROUNDS))
RANDOM = int(os.environ.get("RECON_CRASH_RANDOM", "0"))
SEED = int(os.environ.get("RECON_CRASH_SEED", "5"))
SINKS = tuple(os.environ.get("RECON_CRASH_SINKS", ",".join(ADAPTERS)).split(","))

# The starts of a round.
_STARTS = 2
# They number or fence their writes as another sink here does; `make soak` lets two drivers write these, too.
_LIKE_ANOTHER = ("delta_merge", "iceberg_merge", "routed")
# The sinks that two drivers write at once, each by a pipeline of its own.
MET = {
    kind: f"{kind}_met"
    for kind in SINKS
    if ADAPTERS[kind].label == "exactly-once" and (not ADAPTERS[kind].variant or kind == "iceberg")
    if IN_SOAK or kind not in _LIKE_ANOTHER
}

# A start is 10 to 20 s, and minutes with many pipelines on a busy machine.
pytestmark = pytest.mark.timeout(60 * (60 + ROUNDS * 6 + RANDOM))


@dataclass
class Drained:
    """`outcomes`: of the sinks that were killed. `met`: of those that two drivers wrote."""

    crashes: Crashes
    outcomes: dict[str, Outcome]
    drivers: Sequence[Child]
    met: dict[str, Outcome]
    audit: tuple[int, str, dict[str, str]]


def _pipelines(adapter: Adapter) -> list[Adapter]:
    """Those of a kind that are killed."""
    count = 1 if IN_SOAK else -(-(len(POINTS) + len(adapter.points)) // _STARTS)
    return [adapter, *(pipeline_of(adapter.kind, f"{adapter.kind}_{n}") for n in range(2, count + 1))]


@pytest.fixture(scope="module")
def drained(
    broker: LocalKafka, classpath: str, archive: Path, folder: Path, request: pytest.FixtureRequest
) -> Iterator[Drained]:
    """All kills, and then the rest of the topic, by two drivers where they meet."""
    killed = {kind: _pipelines(ADAPTERS[kind]) for kind in SINKS}
    adapters = [*chain.from_iterable(killed.values()), *(pipeline_of(kind, name) for kind, name in MET.items())]
    servers = {name: request.getfixturevalue(name) for adapter in adapters for name in adapter.needs}
    crashes = Crashes(
        folder / "killed",
        broker,
        adapters,
        classpath=classpath,
        archive=archive,
        topic="killed",
        seed=SEED,
        per_trigger=30 if IN_SOAK else 100,
        **servers,
    )
    print(f"crash kit: {', '.join(SINKS)}; {ROUNDS} rounds, {RANDOM} random kills, seed {SEED}")
    names = {kind: [adapter.name for adapter in pipelines] for kind, pipelines in killed.items()}
    starts = crashes.rounds(names, ROUNDS, OWN_ROUNDS, VARIANT_ROUNDS)
    starts[0][0].update(dict.fromkeys(MET.values(), BEFORE_WRITE))
    for stop_at, fresh in starts:
        # For a micro-batch that no start has planned yet.
        crashes.produce(60)
        crashes.kill_at(stop_at, fresh=fresh)
    for _ in range(RANDOM):
        crashes.produce(300)
        crashes.kill_at_random([name for pipelines in names.values() for name in pipelines])
    drivers = crashes.drain(meeting=list(MET.values()))
    for driver in drivers:
        print(driver.endings())
    outcomes = {
        kind: together(kind, [crashes.compare(name) for name in pipelines]) for kind, pipelines in names.items()
    }
    met = {kind: crashes.compare(name) for kind, name in MET.items()}
    report = crashes.report(outcomes.values())
    (crashes.folder / "report.md").write_text(report)
    print(report)
    yield Drained(crashes, outcomes, drivers, met, crashes.audit())


@pytest.fixture(params=SINKS)
def outcome(request: pytest.FixtureRequest, drained: Drained) -> Outcome:
    return drained.outcomes[request.param]


@pytest.fixture
def hits(outcome: Outcome, drained: Drained) -> Callable[[str], int]:
    return lambda point: drained.crashes.counts()[outcome.sink, point]


def test_every_point_was_hit_often_enough(outcome: Outcome, hits: Callable[[str], int]) -> None:
    rounds = VARIANT_ROUNDS if ADAPTERS[outcome.sink].variant else ROUNDS
    wanted = dict.fromkeys(POINTS, rounds) | dict.fromkeys(ADAPTERS[outcome.sink].points, OWN_ROUNDS)
    assert {point: hits(point) for point, times in wanted.items() if hits(point) < times} == {}


def test_kills_came_both_in_first_attempts_and_in_recoveries(outcome: Outcome, drained: Drained) -> None:
    crashes = drained.crashes
    again = {hit.again for hit in crashes.hits if crashes.adapters[hit.sink].kind == outcome.sink}
    assert again == {True, False}


def test_nothing_is_lost(outcome: Outcome) -> None:
    assert outcome.records > 0
    assert outcome.lost == []


def test_nothing_is_doubled_where_the_label_says_so(outcome: Outcome) -> None:
    if outcome.label == "exactly-once":
        assert outcome.doubled == []
    assert outcome.foreign == []


def test_the_ledger_says_what_the_label_is(outcome: Outcome) -> None:
    assert outcome.labels == {outcome.label}


def test_the_ledger_accounts_for_every_record(outcome: Outcome) -> None:
    assert outcome.unentered == []
    assert outcome.broken_chain == []


def test_kills_after_the_commit_were_seen_as_such(outcome: Outcome) -> None:
    """A replay of what was committed is recognised: no entry says that it was written twice."""
    assert outcome.attempts["already_committed"] > 0
    assert outcome.twice_committed == []


def test_the_audit_passes(drained: Drained) -> None:
    code, output, statuses = drained.audit
    assert {name: status for name, status in statuses.items() if status in ("fail", "error")} == {}, output
    assert code == 0, output


# -- two drivers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("sink", MET)
def test_both_drivers_were_there_and_one_of_them_stopped(drained: Drained, sink: str) -> None:
    for driver in drained.drivers:
        assert f"{MET[sink]}: met start" in driver.log.read_text()
    endings = [driver.endings().get(MET[sink]) for driver in drained.drivers]
    # Both may give way to each other; both going on would be two writers of one sink.
    assert any(endings), "neither of the two drivers stopped"


@pytest.mark.parametrize("sink", MET)
def test_two_drivers_lose_and_double_nothing(drained: Drained, sink: str) -> None:
    outcome = drained.met[sink]
    assert outcome.records > 0
    assert (outcome.lost, outcome.doubled, outcome.foreign) == ([], [], [])
    assert (outcome.unentered, outcome.broken_chain) == ([], [])
