"""recon.yml as typed values. Reading it (Jinja, line numbers, nearest key) is `load`.

dbt's keys mean what they mean in dbt; Kafka's are librdkafka's; Spark's are Spark's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class CheckConfig(_Strict):
    """dbt's test config, and `on_failure` for post-batch checks. `limit` caps samples."""

    severity: Literal["error", "warn"] = "error"
    warn_if: str = "!=0"
    error_if: str = "!=0"
    where: str | None = None
    limit: int | None = Field(default=None, ge=1)
    tags: tuple[str, ...] = ()
    meta: dict[str, Any] = Field(default_factory=dict)
    enabled: bool = True
    alias: str | None = None
    description: str | None = None
    on_failure: Literal["warn", "stop"] = "warn"


class CheckSpec(_Strict):
    """One item of a `data_tests` list: the check's name, its arguments and config.

    `column` is filled in for a test listed below a column; `line` is its line in recon.yml.
    """

    test: str
    arguments: dict[str, Any] = Field(default_factory=dict)
    config: CheckConfig = CheckConfig()
    column: str | None = None
    line: int | None = None


class Column(_Strict):
    """A column of a sink with its tests."""

    name: str
    description: str | None = None
    data_tests: tuple[CheckSpec, ...] = ()


class Sink(_Strict):
    """Where a pipeline writes. `kind: delta` appends to the Delta table at `target` (a path or URI).

    `stamp_source_offsets`: also stamp `_source_topic`, `_source_partition`, `_source_offset`.
    `on_new_epoch`: what a checkpoint that starts over does when its ranges overlap or miss the ledger's end.
    `trim_replayed_offsets`: drop rows whose (topic, partition, offset) the ledger already holds.
    `txn_app_id`: a fixed Delta application id, for tables that already have one; recon's own is safer.
    `partition_by`, `options`: passed to Spark's writer.
    """

    name: str
    kind: Literal["delta"] = "delta"
    target: str
    description: str | None = None
    stamp_source_offsets: bool = True
    on_new_epoch: Literal["stop", "warn"] = "stop"
    trim_replayed_offsets: bool = False
    txn_app_id: str | None = None
    partition_by: tuple[str, ...] = ()
    options: dict[str, str] = Field(default_factory=dict)
    data_tests: tuple[CheckSpec, ...] = ()
    columns: tuple[Column, ...] = ()
    post_batch: tuple[CheckSpec, ...] = ()


class Source(_Strict):
    """The Kafka side of a pipeline. `isolation_level` is the stream's `kafka.isolation.level`."""

    topics: tuple[str, ...] = ()
    isolation_level: Literal["read_committed", "read_uncommitted"] = "read_uncommitted"


class Pipeline(_Strict):
    """One streaming query: its checkpoint, its source, its sinks, its tests."""

    name: str
    checkpoint: str
    description: str | None = None
    source: Source = Source()
    data_tests: tuple[CheckSpec, ...] = ()
    sinks: tuple[Sink, ...] = Field(min_length=1)


class LedgerConfig(_Strict):
    """Where the ledger lives and who writes it: a folder, or a catalog table written by Spark.

    With `location`, the Delta tables `<location>/ledger` and `<location>/results` are used. With `table`
    (`catalog.schema.name`) Spark writes `name` and `name_results`.
    """

    location: str | None = None
    table: str | None = None
    writer: Literal["deltalake", "spark"] = "deltalake"


class SparkConfig(_Strict):
    """How the audit builds a session when none is active: `master`, `conf`, `packages` (Maven coordinates)."""

    master: str | None = None
    conf: dict[str, str] = Field(default_factory=dict)
    packages: tuple[str, ...] = ()


class Project(_Strict):
    """A whole recon.yml. Relative paths are relative to `project_dir`, the folder that holds it."""

    version: Literal[2] = 2
    name: str
    ledger: LedgerConfig
    kafka: dict[str, str] = Field(default_factory=dict, repr=False)
    spark: SparkConfig = SparkConfig()
    storage_options: dict[str, str] = Field(default_factory=dict, repr=False)
    target_path: str = "target"
    pipelines: tuple[Pipeline, ...] = Field(min_length=1)
    project_dir: Path = Path()

    def resolve(self, location: str) -> str:
        """A path or URI of recon.yml as an absolute one."""
        if "://" in location or location.startswith("file:"):
            return location
        return str((self.project_dir / location).absolute())
