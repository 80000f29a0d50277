"""Deletions that recon.yml declares, made by real engines on real tables, and audited."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from recon.base.storage import Storage
from recon.witness import delta_log
from tests.cases.lake import Lake, complete, failing, findings, ranges, told
from tests.cases.test_iceberg import Make, make
from tests.support.kafka import LocalKafka

__all__ = ["make"]  # a fixture

JOB = "spark.databricks.delta.commitInfo.userMetadata"
# Records are produced and deleted within a minute, so that an age is one that the rows of a column have.
BY_COLUMN = {"by": {"predicate": "at"}, "older_than": {"count": 30, "period": "day", "column": "at"}}
BY_JOB = {"by": {"user_metadata": "gdpr-*"}}
YOUNG = {"by": {"predicate": "_source_offset"}, "older_than": {"count": 1, "period": "day"}}


def dated(frame: Any) -> Any:
    """The first twenty records of a partition are of 60 days ago, the others of now."""
    old = F.current_timestamp() - F.expr("INTERVAL 60 DAYS")
    return frame.withColumn("at", F.when(F.col("offset") < 20, old).otherwise(F.current_timestamp()))


@pytest.mark.parametrize("vectors", ["false", "true"])
def test_a_retention_job_and_somebody_else(
    spark: SparkSession, kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path, vectors: str
) -> None:
    options = {"delta.enableDeletionVectors": vectors}
    sink = {"deletes": [BY_COLUMN, BY_JOB, YOUNG], "options": options}
    lake = Lake(tmp_path, kafka, spark, topic("deletes"), sink=sink)
    lake.produce(40)
    lake.run(per_trigger=10, transform=dated)
    run = lake.audit()
    assert complete(run), told(run)

    lake.sql("DELETE FROM {table} WHERE at < current_timestamp() - INTERVAL 30 DAYS AND at IS NOT NULL")
    run = lake.audit()
    assert complete(run), told(run)
    (deleted,) = findings(run, "DELETED")
    assert "deleted 20 rows as declared: by predicate at, older than 30 days by at" in deleted.message
    spark.conf.set(JOB, "gdpr-4711")
    lake.sql("DELETE FROM {table} WHERE _source_offset = 33 AND value = 'v33'")
    spark.conf.unset(JOB)
    run = lake.audit(no_spark=True)
    assert complete(run), told(run)
    (account,) = [sink.account for sink in run.pipelines[0].sinks]
    assert account is not None
    assert (account.deleted, account.removed, account.missing) == (21, 0, 0)
    lake.produce(5)
    lake.run(transform=dated)
    run = lake.audit(full=True)
    assert complete(run), told(run)

    lake.sql("DELETE FROM {table} WHERE _source_offset BETWEEN 24 AND 26")  # declared, and read today
    version = delta_log.latest_version(Storage(str(lake.table))) or 0
    run = lake.audit(keep=False)
    assert failing(run) == {"MUTATED", "GAP"}, told(run)
    assert (0, 24, 27) in ranges(findings(run, "GAP"))
    lake.sql(f"RESTORE TABLE {{table}} TO VERSION AS OF {version - 1}")
    run = lake.audit(keep=False)
    assert "GAP" not in failing(run), told(run)

    lake.sql("DELETE FROM {table} WHERE value = 'v39'")
    run = lake.audit(keep=False)
    assert {"MUTATED", "GAP"} <= failing(run), told(run)
    named = {found for found in ranges(findings(run, "GAP")) if found[0] is not None}
    assert named == {(0, 39, 40)}, told(run)


def test_a_retention_job_on_an_iceberg_table(make: Make) -> None:
    by = {"by": {"snapshot_property": {"job": "retention"}}}
    lake = make(sink={"deletes": [by]})
    lake.produce(20)
    lake.run(per_trigger=10)
    assert complete(lake.audit())

    job = {"job": "retention"}
    lake.of.table().delete("_source_offset = 3 or _source_offset = 4", snapshot_properties=job)
    run = lake.audit()
    assert complete(run), told(run)
    (deleted,) = findings(run, "DELETED")
    assert "(OVERWRITE at" in deleted.message, "it writes the rows that are left into another file"
    assert "deleted 2 rows as declared: by snapshot property job retention" in deleted.message

    before = lake.of.table().current_snapshot()
    assert before is not None
    lake.spark.catalog.refreshTable(lake.of.target)
    rows = lake.spark.table(lake.of.target).where("_source_offset <> 9")
    changed = rows.withColumn("value", F.lit(b"other")).localCheckpoint().writeTo(lake.of.target)
    # The same job and the same operation as a DELETE that rewrites files, and it changed rows.
    changed.option("snapshot-property.job", "retention").overwrite(F.col("_source_offset") >= 0)
    run = lake.audit(keep=False)
    assert {"MUTATED", "GAP"} <= failing(run), told(run)
    lake.roll_back(before.sequence_number or 0)

    lake.sql("DELETE FROM {table} WHERE _source_offset = 13")  # nobody's job
    run = lake.audit(keep=False)
    assert failing(run) == {"MUTATED", "GAP"}, told(run)
    assert (0, 13, 14) in ranges(findings(run, "GAP"))
    lake.roll_back(before.sequence_number or 0)

    lake.sql("ALTER TABLE {table} SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')")
    lake.of.table().delete("_source_offset = 15", snapshot_properties=job)
    run = lake.audit(full=True)
    assert complete(run), told(run)
