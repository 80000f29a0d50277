"""Rows counted by Spark while it writes them, for sinks that have no count of their own."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_WITHIN_S = 10.0


class Counter:
    """Counts the rows of a DataFrame during the one job that consumes `frame`."""

    def __init__(self, frame: DataFrame) -> None:
        """Write `self.frame` instead of the frame that was given."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        self._observation = Observation()
        self.frame = frame.observe(self._observation, F.count(F.lit(1)).alias("rows"))

    def rows(self) -> int | None:
        """What was counted; None where Spark does not report it, for which `Observation.get` would wait for ever."""
        found: list[Mapping[str, Any]] = []
        reader = threading.Thread(target=lambda: found.append(self._observation.get), daemon=True)
        reader.start()
        reader.join(_WITHIN_S)
        return int(found[0]["rows"]) if found and "rows" in found[0] else None
