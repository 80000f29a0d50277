"""What Spark counts on the way, and rows counted while they are written, for sinks that have no count of their own."""

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
        """Write `self.frame` instead of the frame that was given."""
        from pyspark.sql import Observation

        self._observation = Observation()
        self.frame = frame.observe(self._observation, F.count(F.lit(1)).alias(ROWS))

    def rows(self) -> int | None:
        """What was counted; None where Spark does not report it."""
        return rows_of(observed(self._observation))


def observed(observation: Observation) -> Mapping[str, Any] | None:
    """What was observed, or None: `Observation.get` waits for ever where Spark never reports."""
    found: list[Mapping[str, Any]] = []
    reader = threading.Thread(target=lambda: found.append(observation.get), daemon=True)
    reader.start()
    reader.join(_WITHIN_S)
    return found[0] if found and ROWS in found[0] else None


def rows_of(told: Mapping[str, Any] | None) -> int | None:
    """The count of rows in what was observed; None for unknown."""
    return None if told is None else int(told[ROWS])
