"""Fixtures of the tests that start nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.broker import Broker


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    """The one broker there is; it answers, and has no topics yet."""
    return Broker(monkeypatch)


@pytest.fixture
def activate(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    """Lets Spark say which session is active: none until a test names one."""
    from pyspark.sql import SparkSession

    def name(spark: Any) -> None:
        monkeypatch.setattr(SparkSession, "getActiveSession", lambda: spark)

    name(None)
    return name
