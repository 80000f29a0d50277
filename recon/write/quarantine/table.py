"""The quarantine table: one per sink, with the sink's failing rows and the checks that they fail.

Besides the sink's columns and recon's stamps it has `_recon_id` (unique), `_recon_reasons` (names of the checks),
`_recon_epoch`, `_recon_quarantined_at` and `_recon_release`. The last is NULL while a row waits, then the number of the
release that claimed it. An append carries a txn of its own, so that the replay of a micro-batch cannot quarantine rows
twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from typing_extensions import override

from recon.base.errors import ConfigError, SinkError
from recon.model import ReconStamp
from recon.model.wire.app_ids import quarantine_app_id
from recon.model.wire.columns import BATCH_ID, EPOCH, QUARANTINE_COLUMNS, QUARANTINED_AT, REASONS, RELEASE, ROW_ID
from recon.project import Pipeline, Project, Sink
from recon.spark.errors import spark_error
from recon.spark.lazy import F
from recon.witness import delta_log
from recon.write.ledger import quarantined
from recon.write.quarantine.rows import FittedRowChecks
from recon.write.sinks import DeltaAppend

if TYPE_CHECKING:
    from datetime import datetime

    from pyspark.sql import DataFrame, SparkSession

# New columns of the sink are added by mergeSchema. Rows are updated only when they are released, so that deletion
# vectors would gain nothing and keep other readers out.
_OPTIONS = {"mergeSchema": "true", "delta.enableDeletionVectors": "false"}


class QuarantineTable(DeltaAppend):
    """Appends the failing rows of micro-batches to the quarantine table of a sink."""

    def __init__(self, target: str, *, storage_options: Mapping[str, str] | None = None) -> None:
        """`target` is the table's path or URI; it is created by the first append."""
        super().__init__(target, storage_options=storage_options, options=_OPTIONS)

    def _app_id(self, stamp: ReconStamp) -> str:
        return quarantine_app_id(stamp.pipeline, stamp.sink, stamp.epoch)

    @override
    def _txn(self, stamp: ReconStamp) -> tuple[str, int]:
        # Writes of the sink are numbered, and these are not among them: a repair may have no such number.
        return self._app_id(stamp), stamp.batch_id

    def exists(self) -> bool:
        """Whether a row was ever quarantined."""
        return quarantined.exists(self.storage)

    def append_failing(self, frame: DataFrame, checks: FittedRowChecks, stamp: ReconStamp, at: datetime) -> int | None:
        """Append the rows of a micro-batch that fail a check with `on_failure: quarantine`, and confirm the commit.

        Returns the number of rows that the commit holds; None when the log does not have it.

        Raises:
            SinkError: they could not be written; the next start of the query tries again.
        """
        taken = [name for name in QUARANTINE_COLUMNS if name in frame.columns]
        fails = checks.quarantine_condition()
        assert fails is not None
        own = {
            ROW_ID: F.expr("uuid()"),
            REASONS: checks.reasons(),
            EPOCH: F.lit(stamp.epoch).cast("long"),
            RELEASE: F.lit(None).cast("long"),
            QUARANTINED_AT: F.lit(at),
        }
        try:
            if taken:
                raise ConfigError(f"the rows have a column {taken[0]}, which recon writes itself")
            self.write(frame.filter(fails).withColumns(own), stamp)
        except Exception as error:
            raise SinkError(
                f"pipeline {stamp.pipeline}, sink {stamp.sink}: the failing rows of micro-batch {stamp.batch_id} could "
                f"not be written to the quarantine table {self.target}: {spark_error(error)}; its other rows are in "
                "the sink: correct the cause, or name another table with `quarantine: {target: …}`, then restart the "
                "query, which writes the failing rows first"
            ) from error
        return self.confirm(stamp).rows

    def rows_of_batch(self, stamp: ReconStamp, spark: SparkSession) -> int | None:
        """Rows that an earlier attempt of this micro-batch quarantined; None when it ended before that."""
        if not self.exists():
            return None
        for commit in delta_log.read(self.storage).commits.values():
            ours = commit.txn.get(self._app_id(stamp)) == stamp.batch_id
            if ours and commit.rows_added is not None:
                return commit.rows_added
        last_batch = delta_log.transaction_version(self.storage, self._app_id(stamp))
        if last_batch is None or last_batch < stamp.batch_id:
            return None
        of_batch = (F.col(BATCH_ID) == stamp.batch_id) & (F.col(EPOCH) == stamp.epoch)
        return self.rows(spark).filter(of_batch).count()

    def rows(self, spark: SparkSession) -> DataFrame:
        """All rows, waiting and released."""
        return spark.read.format("delta").load(self.target)


def open_quarantine(project: Project, pipeline: Pipeline, sink: Sink) -> QuarantineTable:
    """The quarantine table of a sink, whether it exists or not.

    Raises:
        ConfigError: recon.yml names no place for it, or one that is a sink's own table or another's quarantine.
    """
    place = quarantined.location(project, pipeline.name, sink)
    if place is None:
        raise ConfigError(
            f"pipeline {pipeline.name}, sink {sink.name}: a ledger that is a catalog table has no folder for "
            "quarantined rows; set the sink's `quarantine: {target: path or URI}`"
        )
    for pipe, other in ((p, s) for p in project.pipelines for s in p.sinks):
        taken = {"the table": project.location(other)}
        if (pipe.name, other.name) != (pipeline.name, sink.name):
            taken["the quarantine"] = quarantined.location(project, pipe.name, other) or ""
        for what, where in taken.items():
            if where.rstrip("/") == place.rstrip("/"):
                raise ConfigError(
                    f"pipeline {pipeline.name}, sink {sink.name}: the quarantine target {place} is {what} of sink "
                    f"{other.name}; give quarantined rows a table of their own"
                )
    return QuarantineTable(place, storage_options=project.storage_options)
