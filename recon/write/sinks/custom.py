"""Write by the user's own function: recon stamps, records and skips; the user declares what a retry does.

A crash after the function wrote and before the ledger entry stays possible. The function then gets the same micro-batch
again, with the same `Batch.key`; only a function that checks the key is exactly-once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Self, cast

from typing_extensions import override

from recon.base.errors import ConfigError, EvidenceError, SinkError
from recon.model import ReconStamp, SinkLog, parse_offsets
from recon.model.offsets import OffsetSpan
from recon.model.wire.columns import BATCH_ID
from recon.project import CustomSink, Project, Sink
from recon.write.sinks.base import BatchSink, ConfirmedWrite, rows_of_batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_COUNTS = ("rows", "given")


@dataclass(frozen=True, kw_only=True)
class Batch:
    """The micro-batch that a function of yours writes: the same for every attempt of it."""

    pipeline: str
    sink: str
    target: str
    epoch: int
    batch_id: int
    query_id: str
    offsets: tuple[OffsetSpan, ...]

    @property
    def key(self) -> str:
        """A text that no other micro-batch has, to recognise an earlier write by."""
        return f"{self.pipeline}:{self.sink}:{self.epoch}:{self.batch_id}"


class CustomWriter(BatchSink):
    """Calls `write`, and `confirm` and `read` where they are given."""

    def __init__(self, name: str, sink: CustomSink) -> None:
        """`name` is for errors. Functions are imported when they are first called, or by `require`."""
        self._name, self._sink = name, sink
        self.target = sink.target

    @classmethod
    @override
    def of(cls, project: Project, pipeline: str, sink: Sink) -> Self:
        return cls(f"pipeline {pipeline}, sink {sink.name}", cast(CustomSink, sink))

    def require(self) -> None:
        """Refuse what would fail at the first micro-batch.

        Raises:
            ConfigError: there is no function to write with, or a function cannot be imported.
        """
        if self._sink.write is None:
            raise ConfigError(
                f"{self._name}: kind custom needs a function to write with; name it in recon.yml as `write: "
                "package.module:function`, or give foreach_batch(…, write=function)"
            )
        for key in ("write", "confirm", "read"):
            self._function(key)

    @override
    def write(self, frame: DataFrame, stamp: ReconStamp) -> None:
        """Call the user's function; its exceptions are raised unchanged."""
        self.require()
        write = self._function("write")
        assert write is not None
        write(frame, self._batch(stamp))

    @override
    def confirm(self, stamp: ReconStamp) -> ConfirmedWrite:
        """The result of the user's `confirm`; without one it is only known that `write` returned.

        Raises:
            SinkError: the user's `confirm` does not find the micro-batch.
        """
        landed = self.landed(stamp, None)
        if landed is None:
            raise SinkError(
                f"{self._name}: `confirm` does not find micro-batch {stamp.batch_id} (epoch {stamp.epoch}), though "
                "`write` returned without an error; the ledger has no entry of it: correct one of the functions, then "
                "restart the query, which writes the micro-batch again"
            )
        return landed

    @override
    def landed(self, stamp: ReconStamp, version: int | None) -> ConfirmedWrite | None:
        """The result of the user's `confirm`; without one the ledger is trusted."""
        confirm = self._function("confirm")
        return ConfirmedWrite() if confirm is None else self._landed(confirm(self._batch(stamp)))

    @override
    def log(self, after: int | None = None, since: datetime | None = None) -> SinkLog:
        """None recorded: a function has no record of writes that recon could list."""
        return SinkLog(location=self.target or self._name, exists=True, recorded=False, since=since)

    @override
    def table(self, spark: SparkSession) -> DataFrame:
        try:
            read = self._function("read")
        except ConfigError as error:
            raise EvidenceError(str(error)) from error
        if read is None:
            raise EvidenceError(
                f"{self._name}: the rows of a custom sink can only be read by a function of yours; name it in "
                "recon.yml as `read: package.module:function`, called with the Spark session and returning a DataFrame"
            )
        rows = read(spark)
        if not hasattr(rows, "schema"):
            raise EvidenceError(f"{self._name}: `read` returned {type(rows).__name__}; it must return a DataFrame")
        return cast("DataFrame", rows)

    @override
    def rows_of(self, spark: SparkSession, landed: ConfirmedWrite, stamp: ReconStamp) -> DataFrame:
        rows = self.table(spark)
        if BATCH_ID not in rows.columns:
            raise SinkError(f"{self._name}: the rows of `read` lack {BATCH_ID}; keep this column for post-batch checks")
        return rows_of_batch(rows, stamp)

    def _batch(self, stamp: ReconStamp) -> Batch:
        return Batch(
            pipeline=stamp.pipeline,
            sink=stamp.sink,
            target=self.target,
            epoch=stamp.epoch,
            batch_id=stamp.batch_id,
            query_id=stamp.query_id,
            offsets=parse_offsets(stamp.offsets_text),
        )

    def _function(self, key: str) -> Callable[..., Any] | None:
        """A function of the sink by its key in recon.yml; None where the key is not set."""
        value = getattr(self._sink, key)
        if not isinstance(value, str):
            return cast("Callable[..., Any] | None", value)
        try:
            function = resolve_name(value)
        except Exception as error:  # importing runs the user's module
            raise ConfigError(
                f"{self._name}: {key}: {value} cannot be imported ({type(error).__name__}: {error}); write "
                "package.module:function, and put the package where the query and the audit find it"
            ) from error
        if not callable(function):
            raise ConfigError(f"{self._name}: {key}: {value} is {type(function).__name__}, not a function")
        return cast("Callable[..., Any]", function)

    def _landed(self, result: Any) -> ConfirmedWrite | None:
        """The meaning of `confirm`'s result: None or False not there, True there, a number of rows, or a mapping."""
        if result is None or result is False:
            return None
        if result is True:
            return ConfirmedWrite()
        if isinstance(result, int):
            return ConfirmedWrite(rows=result)
        if isinstance(result, Mapping) and set(result) <= set(_COUNTS):
            counts = {key: None if result.get(key) is None else int(result[key]) for key in _COUNTS}
            return ConfirmedWrite(rows=counts["rows"], given=counts["given"])
        raise SinkError(
            f"{self._name}: `confirm` returned {result!r}; it must return the number of rows, True, None (not there) "
            "or a mapping with 'rows' and 'given'"
        )
