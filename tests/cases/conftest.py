"""A lake per test: its own topic, checkpoint, table and ledger on the run's one broker and session."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.cases.lake import Lake

# A query here runs once, over a few rows: compiling its plan takes a fifth of all CPU. Other folders let Spark compile.
_INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}


@pytest.fixture(autouse=True)
def interpreted(request: pytest.FixtureRequest) -> Iterator[None]:
    """Lets Spark interpret plans in this folder."""
    if "spark" not in request.fixturenames:
        yield
        return
    spark = request.getfixturevalue("spark")
    for key, value in _INTERPRETED.items():
        spark.conf.set(key, value)
    yield
    for key in _INTERPRETED:
        spark.conf.unset(key)


@pytest.fixture
def make_lake(kafka: Any, spark: Any, topic: Callable[..., str], tmp_path: Path) -> Callable[..., Lake]:
    def make(partitions: int = 1, config: dict[str, str] | None = None, **options: Any) -> Lake:
        return Lake(tmp_path, kafka, spark, topic("t", partitions, config), **options)

    return make


@pytest.fixture
def audits_later(monkeypatch: pytest.MonkeyPatch) -> Callable[[timedelta], None]:
    """Sets the clock of the audits that follow ahead."""

    def set_ahead(by: timedelta) -> None:
        monkeypatch.setattr("recon.audits.run.utc_now", lambda: datetime.now(UTC) + by)

    return set_ahead


@pytest.fixture
def written_earlier(monkeypatch: pytest.MonkeyPatch) -> Callable[[timedelta], AbstractContextManager[None]]:
    """Sets the clock of the hook back, and that of the entries which it makes."""

    @contextmanager
    def set_back(by: timedelta) -> Iterator[None]:
        with monkeypatch.context() as patched:
            for place in ("recon.hook.writer.utc_now", "recon.ledger.entries.utc_now"):
                patched.setattr(place, lambda: datetime.now(UTC) - by)
            yield

    return set_back
