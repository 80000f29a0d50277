"""SIGKILL at every seam of every sink, again and again; then source, sink and ledger must agree exactly.

`RECON_CRASH_ROUNDS` (1) is how often each (sink, point) is hit, and a fifth of it, at least once, how often each seam
that only one sink has; `RECON_CRASH_VARIANT_ROUNDS` (a fifth of it) counts for sinks that are much like another;
`RECON_CRASH_RANDOM` (0) how many kills come at a random moment on top; `RECON_CRASH_SEED` what the order and those
moments follow from; `RECON_CRASH_SINKS` which sinks. `make soak` sets them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.crash.harness import Crashes, Outcome
from tests.crash.plan import POINTS, ROUNDS
from tests.crash.sinks import ADAPTERS
from tests.support.kafka import LocalKafka

OWN_ROUNDS = max(1, ROUNDS // 5)
VARIANT_ROUNDS = int(os.environ.get("RECON_CRASH_VARIANT_ROUNDS", OWN_ROUNDS))
RANDOM = int(os.environ.get("RECON_CRASH_RANDOM", "0"))
SEED = int(os.environ.get("RECON_CRASH_SEED", "5"))
SINKS = tuple(os.environ.get("RECON_CRASH_SINKS", ",".join(ADAPTERS)).split(","))

# A start is 10 to 20 s, and a minute on a busy machine; there are some thirty of them.
pytestmark = pytest.mark.timeout(60 * (60 + ROUNDS * 6 + RANDOM))


@dataclass
class Drained:
    crashes: Crashes
    outcomes: dict[str, Outcome]
    audit: tuple[int, str, dict[str, str]]


@pytest.fixture(scope="module")
def drained(
    broker: LocalKafka, classpath: str, archive: Path, folder: Path, request: pytest.FixtureRequest
) -> Iterator[Drained]:
    """All kills, and then the rest of the topic."""
    adapters = [ADAPTERS[name] for name in SINKS]
    servers = {name: request.getfixturevalue(name) for adapter in adapters for name in adapter.needs}
    crashes = Crashes(
        folder / "killed", broker, adapters, classpath=classpath, archive=archive, topic="killed", seed=SEED, **servers
    )
    print(f"crash kit: {', '.join(SINKS)}; {ROUNDS} rounds, {RANDOM} random kills, seed {SEED}")
    crashes.produce(2 * crashes.per_trigger)
    crashes.warm_up()
    own = max((len(adapter.points) for adapter in adapters), default=0)
    # A start takes two micro-batches of a stream at most, a random one what it comes to.
    crashes.produce(crashes.per_trigger * (2 * (ROUNDS * len(POINTS) + OWN_ROUNDS * own) + 10 * RANDOM))
    crashes.rounds(ROUNDS, OWN_ROUNDS, VARIANT_ROUNDS)
    for _ in range(RANDOM):
        crashes.kill_at_random()
    crashes.drain(per_trigger=1_000_000)
    outcomes = {name: crashes.compare(name) for name in SINKS}
    report = crashes.report(outcomes.values())
    (crashes.folder / "report.md").write_text(report)
    print(report)
    yield Drained(crashes, outcomes, crashes.audit())


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
    if (VARIANT_ROUNDS if ADAPTERS[outcome.sink].variant else ROUNDS) < 2:
        pytest.skip("one round lets every kill hit whatever comes first")
    again = {hit.again for hit in drained.crashes.hits if hit.sink == outcome.sink}
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
