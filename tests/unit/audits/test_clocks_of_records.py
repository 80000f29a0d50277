"""A driver's clock is wrong, and the sink keeps a record of its own instead of a history of versions."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from recon.model import Level
from tests.fuzz.lakes import Lake, remembered
from tests.truth.stories import ran
from tests.truth.world import World


def _audit(world: World, folder: Path) -> tuple[str, set[str]]:
    run = remembered(world, Lake(world, folder, files=True))
    found = {str(f.code) for result in run.results for f in result.findings if f.level is not Level.INFO}
    return run.pipelines[0].answer, found


def _with_clock(world: World, skew: timedelta, by_driver: bool, *, entry: bool = True) -> None:
    """What is written from now on has the driver's clock in the ledger; `by_driver`: in the sink's record as well."""
    world.skew, before = skew, set(world.commits)
    ran(1, world)
    world.produce()
    world.micro_batch(entry=entry)
    world.skew = timedelta()
    for version in set(world.commits) - before if by_driver else ():
        commit = world.commits[version]
        world.commits[version] = replace(commit, timestamp=commit.timestamp + skew)


@pytest.mark.parametrize("by_driver", [False, True])
@pytest.mark.parametrize("hours", [-60, -24 * 30, 60, 24 * 365])
def test_a_wrong_clock_is_no_finding_and_hides_none(hours: int, by_driver: bool, tmp_path: Path) -> None:
    world, skew = ran(3), timedelta(hours=hours)
    world.tick(days=3)
    assert _audit(world, tmp_path / "1") == ("complete", set())
    _with_clock(world, skew, by_driver)
    world.tick(days=3)
    ran(1, world)
    assert _audit(world, tmp_path / "2") == ("complete", set())
    world.tick(hours=1)
    _with_clock(world, skew, by_driver, entry=False)
    ran(1, world)
    answer, codes = _audit(world, tmp_path / "3")
    assert answer != "complete" and "LEDGER_MISSING" in codes
