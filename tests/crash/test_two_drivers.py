"""Two drivers, two JVMs, one checkpoint: the same micro-batch is written by both at the same moment."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.crash.harness import Child, Crashes, Outcome
from tests.crash.plan import IN_SOAK
from tests.crash.sinks import ADAPTERS, ICEBERG_APPEND
from tests.support.kafka import LocalKafka

# They number or fence their writes as another sink here does; `make soak` takes them, too.
_LIKE_ANOTHER = ("delta_merge", "iceberg_merge", "routed")
SINKS = [
    name
    for name, adapter in ADAPTERS.items()
    if adapter.label == "exactly-once" and (not adapter.variant or adapter is ICEBERG_APPEND)
    if IN_SOAK or name not in _LIKE_ANOTHER
]


@dataclass
class Met:
    drivers: tuple[Child, Child]
    outcomes: dict[str, Outcome]
    audit: tuple[int, str, dict[str, str]]


@pytest.fixture(scope="module")
def met(
    broker: LocalKafka, classpath: str, archive: Path, folder: Path, request: pytest.FixtureRequest
) -> Iterator[Met]:
    """A driver dies before its write; two are started, as a scheduler that lost sight of the first would."""
    adapters = [ADAPTERS[name] for name in SINKS]
    servers = {name: request.getfixturevalue(name) for adapter in adapters for name in adapter.needs}
    crashes = Crashes(folder / "two", broker, adapters, classpath=classpath, archive=archive, topic="two", **servers)
    crashes.produce(150)
    crashes.kill_at(dict.fromkeys(SINKS, "before_write"))
    first, second = crashes.starts, crashes.starts + 1
    drivers = (crashes.launch(crashes.plan(meets=second)), crashes.launch(crashes.plan(meets=first)))
    codes = [driver.wait() for driver in drivers]
    assert set(codes) <= {0, 3}, codes
    for driver in drivers:
        print(driver.endings())
    crashes.drain()
    yield Met(drivers, {name: crashes.compare(name) for name in SINKS}, crashes.audit())


@pytest.mark.parametrize("sink", SINKS)
def test_both_were_there_and_one_of_them_stopped(met: Met, sink: str) -> None:
    for driver in met.drivers:
        assert f"{sink}: met start" in driver.log.read_text()
    endings = [driver.endings().get(sink) for driver in met.drivers]
    # Both may give way to each other; both going on would be two writers of one sink.
    assert any(endings), "neither of the two drivers stopped"


@pytest.mark.parametrize("sink", SINKS)
def test_nothing_is_lost_or_doubled(met: Met, sink: str) -> None:
    outcome = met.outcomes[sink]
    assert outcome.records > 0
    assert (outcome.lost, outcome.doubled, outcome.foreign) == ([], [], [])
    assert (outcome.unentered, outcome.broken_chain) == ([], [])


def test_the_audit_passes(met: Met) -> None:
    code, output, statuses = met.audit
    assert {name: status for name, status in statuses.items() if status in ("fail", "error")} == {}, output
    assert code == 0, output
