"""Rows counted by an Observation while Spark writes them."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from recon.spark.lazy import F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation

_WITHIN_S = 10.0
ROWS = "rows"  # the name of the count of all rows, whatever else is counted


class Counter:
    """Counts the rows of a DataFrame during the one job that consumes `frame`."""

    def __init__(self, frame: DataFrame) -> None:
        """`self.frame` is the frame to write."""
        from pyspark.sql import Observation

        self._observation = Observation()
        self.frame = frame.observe(self._observation, F.count(F.lit(1)).alias(ROWS))

    def rows(self) -> int | None:
        """The number of rows; None where Spark does not report it."""
        values = observed(self._observation)
        return None if values is None else int(values[ROWS])


def observed(observation: Observation) -> Mapping[str, Any] | None:
    """The observed values, or None: `Observation.get` blocks forever where Spark never reports."""
    reported: list[Mapping[str, Any]] = []
    reader = threading.Thread(target=lambda: reported.append(observation.get), daemon=True)
    reader.start()
    reader.join(_WITHIN_S)
    return reported[0] if reported and ROWS in reported[0] else None
