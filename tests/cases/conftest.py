"""A lake per test: its own topic, checkpoint, table and ledger on the run's one broker and session."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cases.lake import Lake


@pytest.fixture
def make_lake(kafka: Any, spark: Any, topic: Callable[..., str], tmp_path: Path) -> Callable[..., Lake]:
    def make(partitions: int = 1, config: dict[str, str] | None = None, **options: Any) -> Lake:
        return Lake(tmp_path, kafka, spark, topic("t", partitions, config), **options)

    return make
