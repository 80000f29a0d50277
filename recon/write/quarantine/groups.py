"""The rows of a quarantine table as a witness: the offsets of waiting rows, and of released ones."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from recon.base.errors import EvidenceError
from recon.model.wire.columns import BATCH_ID, EPOCH, RELEASE
from recon.spark.errors import spark_error
from recon.spark.lazy import F
from recon.witness import sink_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from recon.model import RowGroup

_EPOCHS = 1 << 40  # more micro-batches than an epoch can have


def read(spark: SparkSession, target: str, *, first_batch: int | None = None) -> list[RowGroup]:
    """Groups of waiting rows per (epoch, batch_id), then groups of claimed rows per number of the release.

    Raises:
        EvidenceError: the table cannot be read.
    """
    from pyspark.errors import PySparkException

    try:
        rows = spark.read.format("delta").load(target)
        if first_batch is not None:
            rows = rows.filter(F.col(BATCH_ID) >= first_batch)
        claimed = F.col(RELEASE).isNotNull()
        waiting = rows.filter(~claimed).withColumn(BATCH_ID, F.col(EPOCH) * _EPOCHS + F.col(BATCH_ID))
        released = rows.filter(claimed).withColumn(BATCH_ID, F.col(RELEASE))
    except PySparkException as error:
        raise EvidenceError(f"the quarantined rows of {target} cannot be read: {spark_error(error)}") from error
    return [
        *(
            replace(group, epoch=group.batch_id // _EPOCHS, batch_id=group.batch_id % _EPOCHS)
            for group in sink_rows.read(spark, waiting, location=target).groups
        ),
        *(replace(group, release=group.batch_id) for group in sink_rows.read(spark, released, location=target).groups),
    ]
