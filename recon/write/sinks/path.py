"""What sinks at a path or URI have in common: the target and Spark's writer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

from typing_extensions import override

from recon.base.storage import Storage
from recon.project import FileSink, Project, Sink
from recon.write.sinks.base import BatchSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter


class PathSink(BatchSink):
    """A sink that Spark's writer writes to a path or URI."""

    def __init__(
        self,
        target: str,
        kind: str,
        *,
        storage_options: Mapping[str, str] | None = None,
        partition_by: Sequence[str] = (),
        options: Mapping[str, str] | None = None,
    ) -> None:
        """`kind` is Spark's format; `options` go to Spark's writer, and to its reader of files."""
        self.target, self.kind = target, kind
        self.storage = Storage(target, dict(storage_options or {}))
        self._partition_by, self._options = tuple(partition_by), dict(options or {})

    @classmethod
    @override
    def of(cls, project: Project, pipeline: str, sink: Sink) -> PathSink:
        config = cast(FileSink, sink)
        return cls(
            project.location(config),
            config.kind,
            storage_options=project.storage_options,
            partition_by=config.partition_by,
            options=config.options,
        )

    def _writer(self, frame: DataFrame, mode: str) -> DataFrameWriter:
        writer = frame.write.format(self.kind).mode(mode).options(**self._options)
        return writer.partitionBy(*self._partition_by) if self._partition_by else writer
