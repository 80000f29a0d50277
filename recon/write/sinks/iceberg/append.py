"""Append to an Iceberg table: staged on a branch, published by one commit, found again by the snapshot's summary."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Self, cast

from typing_extensions import override

from recon.base.errors import EvidenceError, SinkError
from recon.model import CommitRows, LedgerEntry, ReconStamp, SinkLog, TableCommit, TableLog, Unavailable, dump_stamp
from recon.model.deletion import AskedDeletion, DeletedRows
from recon.model.ledger import named
from recon.model.wire.iceberg import STAMP
from recon.project import IcebergSink, IcebergTableSink, Project, Sink
from recon.spark.columns import quoted
from recon.spark.errors import without_sqlstate
from recon.spark.merge import temporary_view
from recon.witness import iceberg
from recon.witness.iceberg import IcebergTable
from recon.write.sinks import failpoints
from recon.write.sinks.adopt import add_columns
from recon.write.sinks.base import BatchSink, ConfirmedWrite
from recon.write.sinks.iceberg.publish import Branch, new_branch, published, require_number, staged

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot
    from pyspark.sql import DataFrame, SparkSession

_ATTEMPTS = 10  # how often a micro-batch is written where others commit to the table during the write


class IcebergAppend(BatchSink):
    """Appends micro-batches to an Iceberg table of the session's catalog."""

    def __init__(self, sink: IcebergTableSink) -> None:
        self.sink = sink
        self.source = IcebergTable(sink.target, sink.catalog)
        self._prepared = False  # whether the table was seen to be there, with recon's columns
        self._attempts = 0  # of the last write

    @classmethod
    @override
    def of(cls, project: Project, pipeline: str, sink: Sink) -> Self:
        return cls(cast(IcebergTableSink, sink))

    @property
    def _sql_name(self) -> str:
        return ".".join(map(quoted, self.sink.target.split(".")))

    def _found(self) -> Table:
        table = self.source.find()
        if table is None:
            raise EvidenceError(f"there is no Iceberg table {self.sink.target} in the catalog that recon.yml names")
        return table

    # -- write ---------------------------------------------------------------------------------------------------

    @override
    def newest_number(self, pipeline: str, sink: str) -> int | None:
        table = self.source.find()
        return 0 if table is None else iceberg.newest_number(table, pipeline, sink)

    @override
    def write(self, frame: DataFrame, stamp: ReconStamp) -> None:
        """Write to a branch and publish it; anew on a new branch where others have committed to the table meanwhile."""
        self._prepare(frame, stamp)
        for self._attempts in range(1, _ATTEMPTS + 1):
            branch = new_branch(self._found(), stamp)
            self.failpoint(failpoints.BRANCH_CREATED, stamp)
            try:
                # Spark keeps tables in memory, and would not know the branch.
                frame.sparkSession.catalog.refreshTable(self._sql_name)
                newest = self._stage(frame, branch, stamp)
            except SinkError:
                raise
            except Exception as error:  # of Spark's, Iceberg's or Py4J's classes
                self._explain(error, stamp)
                raise
            self.failpoint(failpoints.BRANCH_WRITTEN, stamp)
            if published(self.source, branch, newest, stamp):
                self.failpoint(failpoints.PUBLISHED, stamp)
                return
        raise SinkError(
            f"{stamp.label}: others committed to {self.sink.target} during each of {_ATTEMPTS} attempts to write it; "
            "nothing of it was published: let fewer programs write to the table, or give them another one"
        )

    def _explain(self, error: Exception, stamp: ReconStamp) -> None:
        """Raises a SinkError where it is known why Spark could not write to the branch."""
        table = self.source.find()
        if table is not None:
            require_number(table, stamp)  # another driver's commit has removed the branch
        if "branch (does not exist)" in str(error):
            raise SinkError(
                f"{stamp.label}: Spark does not see the branch that pyiceberg made in {self.sink.target}: let "
                f"`catalog` of the sink and spark.sql.catalog.{self.source.catalog_name} of the session name one "
                "catalog; nothing of it was written"
            ) from error

    def _branch(self, branch: Branch) -> str:
        return f"{self._sql_name}.{quoted(f'branch_{branch.name}')}"

    def _stage(self, frame: DataFrame, branch: Branch, stamp: ReconStamp) -> Snapshot:
        options = {**self._options, f"snapshot-property.{STAMP}": dump_stamp(stamp)}
        frame.writeTo(self._branch(branch)).options(**options).append()
        return staged(self.source, branch, stamp)

    @property
    def _options(self) -> Mapping[str, str]:
        return cast(IcebergSink, self.sink).options

    def _prepare(self, frame: DataFrame, stamp: ReconStamp) -> None:
        """Before the first write: make the table, or add recon's columns to one that was written without recon."""
        if self._prepared:
            return
        catalog = self.source.catalog_name
        if frame.sparkSession.conf.get(f"spark.sql.catalog.{catalog}", None) is None:
            raise SinkError(
                f"{stamp.label}: the session has no catalog {catalog}, with which the target {self.sink.target} "
                f"begins: set spark.sql.catalog.{catalog} to org.apache.iceberg.spark.SparkCatalog, and its "
                "properties, when the session is built"
            )
        if self.source.find() is None:
            self._make_table(frame, stamp)
            self.failpoint(failpoints.TABLE_CREATED, stamp)
            if self.source.find() is None:
                raise SinkError(
                    f"{stamp.label}: Spark has made the table {self.sink.target}, and pyiceberg does not find it in "
                    f"the catalog that recon.yml names: let `catalog` of the sink and spark.sql.catalog.{catalog} of "
                    "the session name one catalog (a SQL catalog keeps its tables under that name)"
                )
        else:
            frame.sparkSession.catalog.refreshTable(self._sql_name)
            read = partial(frame.sparkSession.table, self._sql_name)
            add_columns(frame, read, self._sql_name, self.sink.target, stamp.label)
        self._prepared = True

    def _make_table(self, frame: DataFrame, stamp: ReconStamp) -> None:
        """An empty table with the columns of the rows; one that another driver makes at the same moment is as good."""
        sink = self.sink
        properties = {"format-version": "2", **sink.table_properties}
        listed = ", ".join(f"{_text(key)} = {_text(value)}" for key, value in properties.items())
        partitioned = f"PARTITIONED BY ({', '.join(sink.partition_by)}) " if sink.partition_by else ""
        try:
            with temporary_view(frame.limit(0)) as rows:
                frame.sparkSession.sql(
                    f"CREATE TABLE IF NOT EXISTS {self._sql_name} USING iceberg {partitioned}TBLPROPERTIES ({listed}) "
                    f"AS SELECT * FROM {rows}"
                )
        except Exception as error:  # of Spark's, Iceberg's or Py4J's classes
            if self.source.find() is None:
                raise SinkError(
                    f"{stamp.label}: the table {sink.target} could not be made: {without_sqlstate(error)}; make it, or "
                    "correct the sink, then restart the query"
                ) from error

    # -- confirm and look up -------------------------------------------------------------------------------------

    @override
    def confirm(self, stamp: ReconStamp) -> ConfirmedWrite:
        table = self._found()
        for commit in iceberg.commits(table):
            if commit.stamp is not None and _same(commit.stamp, stamp) and commit.stamp.number == stamp.number:
                return self._landed(commit)
        require_number(table, stamp)
        raise SinkError(
            f"{stamp.label} is not in {self.sink.target}, though its commit succeeded: the table was rolled back at "
            "the same moment; find out who did it, then restart the query"
        )

    @override
    def landed(self, stamp: ReconStamp, version: int | None) -> ConfirmedWrite | None:
        table = self.source.find()
        if version is None or table is None:
            return None
        left_behind = (iceberg.commit_of(snapshot) for snapshot in table.metadata.snapshots)  # by a rollback
        for commit in (*iceberg.commits(table), *left_behind):
            if commit.version == version:
                return self._landed(commit) if commit.stamp is not None and _same(commit.stamp, stamp) else None
        # The snapshot is expired; the sink's number is still known, so it was there.
        known = iceberg.newest_number(table, stamp.pipeline, stamp.sink) > 0
        return ConfirmedWrite(version=version) if known and version <= iceberg.highest_number(table) else None

    def _landed(self, commit: TableCommit) -> ConfirmedWrite:
        given = None if commit.stamp is None else commit.stamp.given
        return ConfirmedWrite(
            version=commit.version,
            rows=commit.rows_taken,
            given=given,
            computed_again=self._attempts > 1,
            size=commit.bytes_added,
        )

    @override
    def added_since(self, at: datetime, *, apart_from: str) -> TableCommit | None:
        table = self.source.find()
        later = [] if table is None else iceberg.commits(table)
        strangers = [c for c in later if c.timestamp >= at and c.stamp is None and c.adds_rows]
        return min(strangers, key=lambda commit: commit.version, default=None)

    @override
    def table_id(self, landed: ConfirmedWrite) -> str | None:
        table = self.source.find()
        return None if table is None else str(table.metadata.table_uuid)

    @override
    def replaced(self, entry: LedgerEntry) -> str:
        if entry.sink_version is None:
            return ""
        table = self.source.find()
        wrote = f"the snapshot with sequence number {entry.sink_version} that {named(entry)} wrote"
        if table is None:
            return f"there is no Iceberg table {self.sink.target} any more, and the ledger has {wrote}"
        now, highest = str(table.metadata.table_uuid), iceberg.highest_number(table)
        if entry.sink_table_id not in (None, now):
            return f"{self.sink.target} is another table (id {now}) than that of {wrote} (id {entry.sink_table_id})"
        if highest < entry.sink_version:
            return f"{self.sink.target} ends at sequence number {highest}, before {wrote}: it is an older copy"
        return ""

    @override
    def log(self, after: int | None = None, since: datetime | None = None) -> SinkLog:
        return iceberg.stamped(self.sink.target, self.source.find(), after=after, since=since)

    @override
    def history(self, from_version: int | None, *, files: bool) -> TableLog:
        return iceberg.read(self.sink.target, self.source.find(), files=files)

    @override
    def commit_rows(self, versions: Collection[int]) -> Mapping[int, CommitRows | Unavailable]:
        return iceberg.rows_of(self._found(), versions)

    @override
    def deleted_rows(self, asked: Sequence[AskedDeletion]) -> Mapping[int, DeletedRows | Unavailable]:
        return iceberg.deleted_rows(self._found(), asked)

    # -- rows ----------------------------------------------------------------------------------------------------

    @override
    def table(self, spark: SparkSession) -> DataFrame:
        return self._rows_at(spark, self._found().current_snapshot())

    @override
    def rows_as_of(self, spark: SparkSession, version: int) -> DataFrame:
        found = iceberg.snapshot_of(self._found(), version)
        if found is None:
            raise EvidenceError(f"{self.sink.target} no longer has the snapshot with sequence number {version}")
        return self._rows_at(spark, found)

    def _rows_at(self, spark: SparkSession, snapshot: Snapshot | None) -> DataFrame:
        """The rows of a snapshot, whatever is written meanwhile."""
        spark.catalog.refreshTable(self._sql_name)
        if snapshot is None:
            return spark.table(self._sql_name)
        return spark.read.option("snapshot-id", str(snapshot.snapshot_id)).table(self._sql_name)

    def _snapshot(self, landed: ConfirmedWrite) -> Snapshot:
        found = None if landed.version is None else iceberg.snapshot_of(self._found(), landed.version)
        if found is None:
            raise SinkError(f"{self.sink.target}: no snapshot is known for this micro-batch; nothing to check")
        return found

    @override
    def rows_of(self, spark: SparkSession, landed: ConfirmedWrite, stamp: ReconStamp) -> DataFrame:
        """The rows that the snapshot added to the one before it."""
        snapshot = self._snapshot(landed)
        spark.catalog.refreshTable(self._sql_name)
        between = {
            "start-snapshot-id": str(snapshot.parent_snapshot_id),
            "end-snapshot-id": str(snapshot.snapshot_id),
        }
        return spark.read.options(**between).table(self._sql_name)


def _same(stamp: ReconStamp, other: ReconStamp) -> bool:
    """Whether two stamps are of one micro-batch, with the same ranges."""
    return (stamp.pipeline, stamp.sink, stamp.epoch, stamp.batch_id, stamp.offsets_text) == (
        other.pipeline,
        other.sink,
        other.epoch,
        other.batch_id,
        other.offsets_text,
    )


def _text(value: str) -> str:
    """An SQL string."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
