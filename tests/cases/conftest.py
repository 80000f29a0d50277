"""A lake per test: its own topic, checkpoint, table and ledger on the run's one broker and session."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from recon.base.clock import clock
from tests.cases.lake import Lake
from tests.support.interpreted import interpreted as of_session


@pytest.fixture(autouse=True)
def interpreted(request: pytest.FixtureRequest) -> Iterator[None]:
    """Lets Spark interpret plans in this folder, whose queries read a few rows."""
    if "spark" not in request.fixturenames:
        yield
        return
    with of_session(request.getfixturevalue("spark")):
        yield


@pytest.fixture
def make_lake(kafka: Any, spark: Any, topic: Callable[..., str], tmp_path: Path) -> Callable[..., Lake]:
    def make(partitions: int = 1, config: dict[str, str] | None = None, **options: Any) -> Lake:
        return Lake(tmp_path, kafka, spark, topic("t", partitions, config), **options)

    return make


@pytest.fixture(scope="session")
def written_once(kafka: Any, spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Three micro-batches of twenty records, of which `written` gives copies."""
    lake = Lake(tmp_path_factory.mktemp("written"), kafka, spark, f"written-{uuid.uuid4().hex[:8]}")
    kafka.create_topic(lake.topic)
    lake.produce(60)
    with of_session(spark):
        lake.run(per_trigger=20)
    return lake


@pytest.fixture
def written(written_once: Lake, tmp_path: Path) -> Lake:
    """A lake with three micro-batches of twenty records, for a test that writes nothing to its topic."""
    shutil.copytree(written_once.path, tmp_path / "lake")
    return replace(written_once, path=tmp_path / "lake")


@pytest.fixture
def audits_later() -> Iterator[Callable[[timedelta], None]]:
    """Sets the clock ahead, for the audits that follow."""
    with ExitStack() as clocks:
        yield lambda by: clocks.enter_context(clock(lambda: datetime.now(UTC) + by))


@pytest.fixture
def written_earlier() -> Callable[[timedelta], AbstractContextManager[None]]:
    """Sets the clock back, for what the hook writes meanwhile."""
    return lambda by: clock(lambda: datetime.now(UTC) - by)
