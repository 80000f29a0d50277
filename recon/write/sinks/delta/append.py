"""Append to a Delta table: exactly once by `txn`, found again by `userMetadata`.

The data commit carries `txn(app id, number)` (Delta PROTOCOL.md, "Transaction Identifiers"). There is one app id per
sink. The number is one more than that of the newest write whose ledger entry the driver has read. So of two drivers (or
a driver and a repair) that have read the same entries, Delta accepts one, whatever their epochs and batch ids are. It
refuses the other's commit where that was under way, and drops its write silently where it begins later: hence
`confirm`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Self, cast

from typing_extensions import override

from recon.base.errors import EvidenceError, RefusedError, SinkError
from recon.base.storage import Storage, require_location
from recon.model import (
    REMOVALS,
    REPAIRS,
    LedgerEntry,
    ReconStamp,
    SinkLog,
    TableCommit,
    TableLog,
    dump_stamp,
)
from recon.model.ledger import named
from recon.model.sample import FoundRow, Place
from recon.model.wire.app_ids import app_id
from recon.model.wire.columns import BATCH_ID
from recon.project import DeltaSink, Project, Sink
from recon.spark.columns import quoted
from recon.spark.lazy import F
from recon.witness import delta_log, delta_rows
from recon.write.sinks.adopt import add_columns
from recon.write.sinks.base import ConfirmedWrite
from recon.write.sinks.path import PathSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


# A refusal at the commit: the same txn, or a table that was made or changed meanwhile.
_OTHER_WRITER = re.compile(
    r"Concurrent(Transaction|Append|DeleteRead|DeleteDelete|Write)Exception|(Protocol|Metadata)ChangedException"
)


@contextmanager
def refusing_other_writers(target: str, stamp: ReconStamp) -> Iterator[None]:
    """Turn Delta's refusal of a commit, because another one came first, into one sentence.

    Raises:
        RefusedError: another writer committed at the same moment; nothing of ours is in the table.
    """
    try:
        yield
    except Exception as error:  # of Delta's classes or Py4J's, depending on the session
        conflict = _OTHER_WRITER.search(f"{type(error).__name__}: {error}")
        if conflict is None:
            raise
        raise RefusedError(
            f"{stamp.label} met another writer of {target}, whose commit came first (Delta raised {conflict[0]}); "
            "nothing of it was written: where two queries write as one sink, stop one of them, then restart the query",
            stamp.number,
        ) from error


class DeltaAppend(PathSink):
    """Appends micro-batches to the Delta table at a path or URI."""

    def __init__(
        self,
        target: str,
        *,
        storage_options: Mapping[str, str] | None = None,
        partition_by: Sequence[str] = (),
        options: Mapping[str, str] | None = None,
        txn_app_id: str | None = None,
    ) -> None:
        """`options` go to Spark's writer; with `txn_app_id` that app id is used, and numbered by batch_id."""
        super().__init__(target, "delta", storage_options=storage_options, partition_by=partition_by, options=options)
        self._fixed_app_id = txn_app_id
        self._seen: int | None = None  # newest version that was read; later ones are read one by one
        self._has_columns = False  # whether the table was seen to have recon's columns

    @classmethod
    @override
    def of(cls, project: Project, pipeline: str, sink: Sink) -> Self:
        config = cast(DeltaSink, sink)
        return cls(
            project.location(config),
            storage_options=project.storage_options,
            partition_by=config.partition_by,
            options=config.options,
            txn_app_id=config.txn_app_id,
        )

    def _txn(self, stamp: ReconStamp) -> tuple[str, int]:
        """The app id and the version of a write's transaction."""
        if self._fixed_app_id is not None:
            return self._fixed_app_id, stamp.batch_id
        if stamp.number is None:
            raise SinkError(f"{stamp.label} has no number, by which Delta tells writes of this sink apart")
        return app_id(stamp.pipeline, stamp.sink), stamp.number

    @override
    def newest_number(self, pipeline: str, sink: str) -> int | None:
        """The txn version of the sink's newest commit; None with a fixed app id."""
        if self._fixed_app_id is not None:
            return None
        return delta_log.transaction_version(self.storage, app_id(pipeline, sink)) or 0

    @override
    def repair_of(self, pipeline: str, sink: str, number: int) -> ReconStamp | None:
        commit = delta_log.numbered(self.storage, app_id(pipeline, sink), number)
        stamp = None if commit is None else commit.stamp
        return stamp if stamp is not None and stamp.epoch in (REPAIRS, REMOVALS) else None

    @override
    def write(self, frame: DataFrame, stamp: ReconStamp) -> None:
        """Append with txn and userMetadata; Delta skips it silently if it has the txn's version, or a later one."""
        if self._seen is None:
            self._seen = self._newest()
        self._add_columns(frame, stamp)
        writer = self._writer(frame, "append").options(**self._commit_options(stamp))
        with refusing_other_writers(self.target, stamp):
            writer.save(self.target)

    def _add_columns(self, frame: DataFrame, stamp: ReconStamp) -> None:
        """Before the first write into a table that exists: it may have been written without recon until now."""
        if not self._has_columns and self._seen is not None and self._seen >= 0:
            with refusing_other_writers(self.target, stamp):
                # By its location: a name would have Spark make the folder of its catalog's tables.
                read = partial(frame.sparkSession.read.format("delta").load, self.target)
                add_columns(frame, read, f"delta.{quoted(self.target)}", self.target, stamp.label)
        self._has_columns = True

    def _newest(self) -> int:
        """The newest version of the table, -1 where there is none yet."""
        latest = delta_log.latest_version(self.storage)
        return -1 if latest is None else latest

    def _commit_options(self, stamp: ReconStamp) -> dict[str, Any]:
        return commit_options(*self._txn(stamp), dump_stamp(stamp))

    @override
    def confirm(self, stamp: ReconStamp) -> ConfirmedWrite:
        after = -1 if self._seen is None else self._seen
        commit = delta_log.find_stamped(self.storage, *self._txn(stamp), after=after)
        if commit is None:
            raise self._no_commit(stamp)
        self._require_ours(commit, stamp)
        self._seen = commit.version
        return _landed(commit)

    @override
    def landed(self, stamp: ReconStamp, version: int | None) -> ConfirmedWrite | None:
        """The commit of an earlier attempt, read at the version the ledger names."""
        if version is None:
            return None
        log = delta_log.read(self.storage, from_version=version, to_version=version)
        commit = log.commits.get(version)
        if commit is None and log.first_retained is not None and version < log.first_retained:
            # The log no longer holds the commit; the sink's txn is still known, so it was there.
            app = self._fixed_app_id or app_id(stamp.pipeline, stamp.sink)
            known = delta_log.transaction_version(self.storage, app)
            least = stamp.batch_id if self._fixed_app_id else 1
            return ConfirmedWrite(version=version, rows=None) if known is not None and known >= least else None
        if commit is None or commit.stamp is None:
            return None
        same = commit.stamp.epoch == stamp.epoch and commit.stamp.batch_id == stamp.batch_id
        return _landed(commit) if same and commit.stamp.offsets_text == stamp.offsets_text else None

    @override
    def newest_native(self, query_id: str) -> int | None:
        return delta_log.transaction_version(self.storage, query_id)

    @override
    def added_since(self, at: datetime, *, apart_from: str) -> TableCommit | None:
        found = None
        for commit in delta_log.standing(self.storage, at):
            native = commit.wrote is not None and commit.wrote[0] == apart_from
            if commit.stamp is None and not native and commit.adds_rows:
                found = commit
        return found

    @override
    def table_id(self, landed: ConfirmedWrite) -> str | None:
        return None if landed.version is None else delta_log.table_id(self.storage, landed.version)

    @override
    def replaced(self, entry: LedgerEntry) -> str:
        if entry.sink_version is None:
            return ""
        version = f"the version {entry.sink_version} that {named(entry)} wrote"
        newest = delta_log.latest_version(self.storage)
        if newest is None:
            return f"there is no Delta table at {self.target} any more, and the ledger has {version}"
        if newest < entry.sink_version:
            return f"{self.target} ends at version {newest}, before {version}: it was made anew, or is an older copy"
        now = delta_log.current_table_id(self.storage, newest)
        if None not in (now, entry.sink_table_id) and now != entry.sink_table_id:
            return f"{self.target} is another table (id {now}) than that of {version} (id {entry.sink_table_id})"
        return ""

    @override
    def log(self, after: int | None = None, since: datetime | None = None) -> SinkLog:
        return delta_log.stamped(self.storage, after=after)

    @override
    def history(self, from_version: int | None, *, files: bool) -> TableLog:
        return delta_log.read(self.storage, from_version=from_version, files=files)

    @override
    def rows_at(self, places: Mapping[Place, Collection[int]]) -> Mapping[Place, Sequence[FoundRow]]:
        found = delta_rows.find(self.storage, places)
        return {place: [FoundRow(file, row[BATCH_ID]) for file, row in rows] for place, rows in found.items()}

    @override
    def table(self, spark: SparkSession) -> DataFrame:
        return read_newest(spark, self.storage)

    @override
    def rows_of(self, spark: SparkSession, landed: ConfirmedWrite, stamp: ReconStamp) -> DataFrame:
        """The rows of the files that the commit added, whatever happened to the table since.

        Raises:
            SinkError: the version of the commit is not known.
        """
        if landed.version is None:
            raise SinkError(f"{self.target}: no Delta version is known for this micro-batch; nothing to check")
        files = delta_log.added_files(self.storage, landed.version)
        table = spark.read.format("delta").load(self.target)
        if not files:
            return table.limit(0)
        # Delta alone knows what the columns are called in the files.
        if delta_log.physical_names(self.storage, landed.version):
            names = [path.rpartition("/")[2] for path in files]
            at = spark.read.format("delta").option("versionAsOf", landed.version).load(self.target)
            return at.where(F.col("_metadata.file_name").isin(names))
        # A missing or torn file is an error here, whatever the session's settings are.
        reader = spark.read.options(ignoreMissingFiles="false", ignoreCorruptFiles="false")
        return reader.schema(table.schema).option("basePath", self.target).parquet(*files)

    def _require_ours(self, commit: TableCommit, stamp: ReconStamp) -> None:
        ours = commit.stamp
        if ours is None or (ours.query_id, ours.offsets_text) != (stamp.query_id, stamp.offsets_text):
            app, version = self._txn(stamp)
            raise RefusedError(
                f"{self.target} version {commit.version} carries txn ({app}, {version}) {_difference(ours, stamp)}: "
                "two drivers write this sink, and Delta dropped this one's rows; stop one of them, then restart the "
                "other, which reads what was written",
                stamp.number,
            )

    def _no_commit(self, stamp: ReconStamp) -> SinkError:
        name = stamp.label
        app, version = self._txn(stamp)
        known = delta_log.transaction_version(self.storage, app)
        if known is not None and known >= version:
            return RefusedError(
                f"{name} was SKIPPED: {self.target} already holds txn version {known} of app id {app}, so Delta "
                "dropped the write without an error and its rows are not in the table; "
                + (
                    "remove txn_app_id from the sink (recon numbers the writes of a sink itself) and restart"
                    if self._fixed_app_id
                    else f"another driver wrote this sink after this one had read it (up to write {version - 1}): "
                    "stop one of them, then restart the other, which reads what was written"
                ),
                stamp.number,
            )
        return SinkError(
            f"{name} left no commit in {self.target}, though Spark reported success; look for session settings "
            "spark.databricks.delta.write.txnAppId/txnVersion leaked by other code, then restart the query"
        )


def commit_options(app_id: str, version: int, metadata: str) -> dict[str, Any]:
    """The options by which Delta's writer puts a txn and userMetadata into its commit."""
    return {"txnAppId": app_id, "txnVersion": version, "userMetadata": metadata}


def commit_nothing(spark: SparkSession, target: str, options: Mapping[str, Any]) -> None:
    """Append no rows, so that the log has what `commit_options` put into it."""
    nothing = spark.read.format("delta").load(target).limit(0)
    nothing.write.format("delta").mode("append").options(**options).save(target)


def read_newest(spark: SparkSession, storage: Storage) -> DataFrame:
    """The rows of a Delta table at its newest version, whatever is written meanwhile.

    Where only Spark can read the log (a store for which recon has no `storage_options`), Spark chooses the version.
    """
    require_location(storage)
    reader = spark.read.format("delta")
    try:
        version = delta_log.latest_version(storage)
    except EvidenceError:
        version = None
    return (reader if version is None else reader.option("versionAsOf", version)).load(storage.uri)


def _difference(theirs: ReconStamp | None, ours: ReconStamp) -> str:
    if theirs is None or theirs.offsets_text != ours.offsets_text:
        return "with other offsets than this micro-batch"
    return f"of query {theirs.query_id}, and this is query {ours.query_id}"


def _landed(commit: TableCommit) -> ConfirmedWrite:
    given = None if commit.stamp is None else commit.stamp.given
    return ConfirmedWrite(version=commit.version, rows=commit.rows_taken, given=given, size=commit.bytes_added)
