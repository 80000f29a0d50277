"""Rows counted by an Observation while Spark writes them.

Over Spark Connect nothing is observed. Of nested observations its server reports one or none, and PySpark 4.0 fails on
a frame that is observed and joined with itself. A job counts the rows there, if they are the same whenever they are
read.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from recon.model.ledger import CountedRows
from recon.spark.connect import connects
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

    def __init__(self, frame: DataFrame, source: Sequence[str] = (), *, same_again: bool = False) -> None:
        """`self.frame` is the frame to write.

        Args:
            frame: the rows.
            source: its columns with topic, partition and offset; no fingerprint is taken where it lacks one of them.
            same_again: whether the rows are the same each time they are read, as a source's are.
        """
        self._has_fingerprint = bool(source) and set(source) <= set(frame.columns)
        aggregates = [F.count(F.lit(1)).alias(ROWS)]
        rows = frame
        if self._has_fingerprint:
            # Spark compiles what it observes anew in every task, and a column once per stage.
            rows = frame.withColumn(_ROW, row_fingerprint(*source))
            aggregates.append(total_fingerprint(_ROW).alias(_FINGERPRINT))
        self._observation: Observation | None = None
        self._job: DataFrame | None = None
        if connects(frame.sparkSession):
            self.frame = frame
            self._job = rows.agg(*aggregates) if same_again else None
            return
        from pyspark.sql import Observation

        self._observation = Observation()
        observed_rows = rows.observe(self._observation, *aggregates)
        self.frame = observed_rows.drop(_ROW) if self._has_fingerprint else observed_rows

    @property
    def by_job(self) -> bool:
        """Whether a job of its own counts the rows, whatever the write does."""
        return self._job is not None

    def counted(self) -> CountedRows | None:
        """The rows and their fingerprint; None where Spark does not report them."""
        values: Mapping[str, Any] | None = None
        if self._job is not None:
            values = self._job.collect()[0].asDict()
        elif self._observation is not None:
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
