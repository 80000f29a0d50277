"""Rows counted by an Observation while Spark writes them."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from recon.model.ledger import CountedRows
from recon.spark.fingerprint import row_fingerprint, total_fingerprint
from recon.spark.lazy import F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation

_WITHIN_S = 10.0
_FINGERPRINT = "fingerprint"
_ROW = "_recon_row_fingerprint"
ROWS = "rows"  # the name of the count of all rows, whatever else is counted


class Counter:
    """Counts the rows of a DataFrame during the one job that consumes `frame`, and takes their fingerprint."""

    def __init__(self, frame: DataFrame, source: Sequence[str] = ()) -> None:
        """`self.frame` is the frame to write.

        Args:
            frame: the rows.
            source: its columns with topic, partition and offset; no fingerprint is taken where it lacks one of them.
        """
        from pyspark.sql import Observation

        self._observation = Observation()
        count = F.count(F.lit(1)).alias(ROWS)
        self._has_fingerprint = bool(source) and set(source) <= set(frame.columns)
        if not self._has_fingerprint:
            self.frame = frame.observe(self._observation, count)
            return
        # Spark compiles what it observes anew in every task, and a column once per stage.
        frame = frame.withColumn(_ROW, row_fingerprint(*source))
        taken = total_fingerprint(_ROW).alias(_FINGERPRINT)
        self.frame = frame.observe(self._observation, count, taken).drop(_ROW)

    def counted(self) -> CountedRows | None:
        """The rows and their fingerprint; None where Spark does not report them."""
        values = observed(self._observation)
        if values is None:
            return None
        rows = int(values[ROWS])
        # The sum over no rows is NULL; of some rows, NULL is a sum that Spark could not compute.
        taken = values.get(_FINGERPRINT) if rows else 0
        return CountedRows(rows, None if taken is None or not self._has_fingerprint else int(taken))

    def rows(self) -> int | None:
        """The number of rows; None where Spark does not report it."""
        counted = self.counted()
        return None if counted is None else counted.rows


def observed(observation: Observation) -> Mapping[str, Any] | None:
    """The observed values, or None: `Observation.get` blocks forever where Spark never reports."""
    reported: list[Mapping[str, Any]] = []
    reader = threading.Thread(target=lambda: reported.append(observation.get), daemon=True)
    reader.start()
    reader.join(_WITHIN_S)
    return reported[0] if reported and ROWS in reported[0] else None
