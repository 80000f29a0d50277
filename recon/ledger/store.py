"""Where ledger rows are kept: one interface, two writers.

`DeltalakeStore` needs no JVM and appends in milliseconds. `SparkStore` is for a catalog table, or for a
store that deltalake cannot reach. Both keep the same schema and refuse to let two writers extend one
chain from the same link: an append carries a Delta `txn` of its chain, so the later of two concurrent
appends fails, re-reads the chain's head and tries again.
"""

from __future__ import annotations

import re
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import unquote

from recon.errors import ConfigError, LedgerError
from recon.ledger import arrow, files
from recon.model.wire.app_ids import parse_chain_id
from recon.storage import Storage

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable
    from pyspark.sql import SparkSession

    from recon.project import Project

SCHEMA_VERSION = 1
_DESCRIPTION = "recon {kind}, schema version {version}"
# Every open and every commit of delta-rs lists the log folder, and a 10 s micro-batch adds 8,700 files a day to it:
# at Delta's usual 30 days an append would take a second. An audit looks at the history since the one before it.
_PROPERTIES = {"delta.logRetentionDuration": "interval 2 days"}
_CLEAN_EVERY = 100  # versions
_STALE_S = 3600.0


class ChainMoved(Exception):
    """Another writer extended the chain first; the caller re-reads its head and tries again."""


@dataclass(frozen=True)
class Filter:
    """What to read: equality on any column, and half-open bounds on a time column and its `date` partition."""

    equals: tuple[tuple[str, str], ...] = ()
    from_: datetime | None = None
    to: datetime | None = None
    dates: tuple[date, ...] | None = None

    def sql(self, time_column: str) -> str | None:
        """The filter as a SQL predicate, with the partition column first so that files are pruned."""
        terms = []
        if self.from_ is not None:
            terms.append(f"date >= DATE '{self.from_.date()}'")
            terms.append(f"{time_column} >= TIMESTAMP '{_instant(self.from_)}'")
        if self.to is not None:
            terms.append(f"date <= DATE '{self.to.date()}'")
            terms.append(f"{time_column} < TIMESTAMP '{_instant(self.to)}'")
        if self.dates is not None:
            days = ", ".join(f"DATE '{day}'" for day in self.dates)
            terms.append(f"date IN ({days})")
        terms.extend(f"{name} = '{_quoted(value)}'" for name, value in self.equals)
        return " AND ".join(terms) or None

    def covers(self, day: date) -> bool:
        """Whether rows of a day may match."""
        if self.from_ is not None and day < self.from_.astimezone(UTC).date():
            return False
        if self.to is not None and day > self.to.astimezone(UTC).date():
            return False
        return self.dates is None or day in self.dates

    def looks_at(self, time_column: str) -> list[str]:
        """The columns that `mask` needs."""
        bounded = self.from_ is not None or self.to is not None
        return [*(name for name, _ in self.equals), *([time_column] if bounded else [])]

    def mask(self, rows: pa.Table, time_column: str) -> pa.ChunkedArray | None:
        """Which rows match; None when all do."""
        import pyarrow.compute as pc

        terms = [pc.equal(rows[name], arrow.text(value)) for name, value in self.equals]
        if self.from_ is not None:
            terms.append(pc.greater_equal(rows[time_column], arrow.instant(self.from_)))
        if self.to is not None:
            terms.append(pc.less(rows[time_column], arrow.instant(self.to)))
        terms = [term for term in terms if not pc.all(term, skip_nulls=False).as_py()]
        return reduce(pc.and_, terms) if terms else None


def _instant(at: datetime) -> str:
    return at.isoformat(timespec="microseconds")


def _quoted(value: str) -> str:
    return value.replace("'", "''")


class Store(ABC):
    """One Delta table of the ledger folder (`ledger`, `results`, `failures`), partitioned by `date`."""

    # Whether the length of a chain is known without a Spark job.
    quick: ClassVar[bool] = True

    def __init__(self, kind: str, schema: pa.Schema, time_column: str) -> None:
        """`kind` names the table, `time_column` is the timestamp that `date` is derived from."""
        self.kind, self.schema, self.time_column = kind, schema, time_column

    @property
    @abstractmethod
    def location(self) -> str:
        """The table's path, URI or catalog name, for messages."""

    @abstractmethod
    def exists(self) -> bool:
        """Whether the table has been created yet."""

    @abstractmethod
    def append(self, rows: pa.Table, *, chain: str | None = None, after: int = 0) -> None:
        """Append rows; with `chain`, only if that chain still has `after` entries.

        Raises:
            ChainMoved: another writer extended the chain first; nothing was written.
            LedgerError: the table cannot be written.
        """

    @abstractmethod
    def read(self, which: Filter, columns: Sequence[str] | None = None) -> pa.Table:
        """Rows that match, in no particular order; an empty table when there is no table yet."""

    @abstractmethod
    def length(self, chain: str) -> int:
        """How many entries the chain has."""

    @abstractmethod
    def dates(self) -> list[date]:
        """The days that have rows, ascending."""

    @abstractmethod
    def operations(self, after: int | None = None) -> list[tuple[int, str]]:
        """(version, operation) of the table's own history after a version, as far as it is kept, ascending."""

    @abstractmethod
    def small_files(self) -> int:
        """How many data files the fullest day has; many of them make a read slow."""

    @abstractmethod
    def compact(self) -> Mapping[str, Any]:
        """Merge small files; returns the operation's metrics."""

    @abstractmethod
    def forget(self, upto: date) -> None:
        """Remove whole days up to and including one, and the files that nothing refers to any more.

        Raises:
            LedgerError: the table cannot be written.
        """

    def _description(self) -> str:
        return _DESCRIPTION.format(kind=self.kind, version=SCHEMA_VERSION)

    def _check_version(self, description: str | None) -> None:
        found = re.search(r"schema version (\d+)", description or "")
        if found is None:
            raise LedgerError(
                f"{self.location} is a Delta table but not recon's {self.kind} (its description is "
                f"{description!r}); point `ledger:` in recon.yml at another folder"
            )
        if int(found[1]) > SCHEMA_VERSION:
            raise LedgerError(
                f"{self.location} has schema version {found[1]} and this recon knows up to {SCHEMA_VERSION}; "
                "upgrade spark-recon"
            )


class DeltalakeStore(Store):
    """A Delta table at a path or URI, through delta-rs: no Spark, no JVM."""

    def __init__(
        self,
        kind: str,
        schema: pa.Schema,
        time_column: str,
        uri: str,
        options: Mapping[str, str] | None = None,
    ) -> None:
        """`uri` is a local path or a URI that delta-rs reaches; `options` are its storage options."""
        super().__init__(kind, schema, time_column)
        self._uri, self._options = uri, dict(options or {})
        self._local = Storage(uri).local
        self._handle: DeltaTable | None = None
        self._looked_at = 0.0

    @property
    def location(self) -> str:
        """The table's path or URI."""
        return self._uri

    def _table(self, *, refresh: bool = True) -> DeltaTable | None:
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        try:
            # An idle writer's snapshot may be older than the log that is left; it cannot be brought forward then.
            if self._handle is None or time.monotonic() - self._looked_at > _STALE_S:
                table = DeltaTable(self._uri, storage_options=self._options)
                self._check_version(table.metadata().description)
                self._handle = table
            elif refresh and self._may_have_moved(self._handle.version()):
                self._handle.update_incremental()
            self._looked_at = time.monotonic()
        except TableNotFoundError:
            return None
        except LedgerError:
            raise
        except Exception as error:  # delta-rs raises many kinds, some of them plain Exception
            raise self._unreadable(error) from error
        return self._handle

    def _may_have_moved(self, version: int) -> bool:
        """Whether there is a newer version; delta-rs would list the whole log to know."""
        return self._local is None or (self._local / f"_delta_log/{version + 1:020d}.json").exists()

    def _unreadable(self, error: Exception) -> LedgerError:
        return LedgerError(
            f"the {self.kind} table {self._uri} cannot be read: {_one_line(error)}; "
            "restore the folder from a backup, or move it away and run `recon ledger rebuild`"
        )

    def exists(self) -> bool:
        """Whether the table has been created yet."""
        return self._table() is not None

    def append(self, rows: pa.Table, *, chain: str | None = None, after: int = 0) -> None:
        """Append rows in one commit; see `Store.append`."""
        from deltalake import CommitProperties, PostCommitHookProperties, Transaction, write_deltalake
        from deltalake.exceptions import CommitFailedError, DeltaError

        txn = [Transaction(chain, after + rows.num_rows, None)] if chain else None
        try:
            table = self._table(refresh=self._handle is None) or self._create()
            if chain and (table.transaction_version(chain) or 0) != after:
                raise ChainMoved(chain)
            # Unasked, delta-rs would look for expired log files at every commit: several listings of the folder.
            clean = (table.version() + 1) % _CLEAN_EVERY == 0
            write_deltalake(
                table,
                rows,
                mode="append",
                commit_properties=CommitProperties(app_transactions=txn),
                post_commithook_properties=PostCommitHookProperties(cleanup_expired_logs=clean),
            )
        except CommitFailedError as error:
            self._handle = None
            # The other one extended the chain, or both made the table at the same time: look again, and try again.
            if chain and ("oncurrent transaction" in str(error) or "etadata changed" in str(error)):
                raise ChainMoved(chain) from error
            raise self._unwritable(error) from error
        except (DeltaError, OSError) as error:
            self._handle = None
            raise self._unwritable(error) from error

    def _create(self) -> DeltaTable:
        from deltalake import DeltaTable

        DeltaTable.create(
            self._uri,
            schema=self.schema,
            mode="ignore",
            partition_by=["date"],
            name=f"recon_{self.kind}",
            description=self._description(),
            configuration=_PROPERTIES,
            storage_options=self._options,
        )
        table = self._table()
        assert table is not None
        return table

    def _unwritable(self, error: Exception) -> LedgerError:
        return LedgerError(
            f"the {self.kind} table {self._uri} cannot be written: {_one_line(error)}; make the folder "
            "writable, or room on its disk, and restart the query: what the sink has committed stays there, and the "
            "next start restores what is missing from the sink's own record"
        )

    def read(self, which: Filter, columns: Sequence[str] | None = None) -> pa.Table:
        """Rows that match; see `Store.read`."""
        import pyarrow as pa

        names = list(columns or self.schema.names)
        target = pa.schema([self.schema.field(name) for name in names])
        table = self._table()
        if table is None:
            return arrow.empty(target)
        try:
            if self._local and table.protocol().min_reader_version == 1:  # no deletion vectors, no renamed columns
                with suppress(files.Unfamiliar):
                    return self._read_files(table, which, target)
            found = pa.table(table.scan(columns=names, predicate=which.sql(self.time_column)))
        except Exception as error:  # a missing or torn data file surfaces here, in many kinds
            raise self._unreadable(error) from error
        return found.select(names).cast(target).cast(files.schema_of(target))

    def _read_files(self, table: DeltaTable, which: Filter, target: pa.Schema) -> pa.Table:
        import pyarrow as pa

        schema = files.schema_of(self.schema)
        looked_at = which.looks_at(self.time_column)
        found = [
            files.read(path, schema, target.names, looked_at, lambda rows: which.mask(rows, self.time_column))
            for path in map(unquote, table.file_uris())
            if which.covers(files.day_of(path))
        ]
        parts = [part for part in found if part.num_rows]
        return pa.concat_tables(parts) if parts else arrow.empty(files.schema_of(target))

    def length(self, chain: str) -> int:
        """How many entries the chain has; kept as the version of the chain's `txn`."""
        table = self._table()
        return 0 if table is None else table.transaction_version(chain) or 0

    def dates(self) -> list[date]:
        """The days that have rows, ascending."""
        table = self._table()
        if table is None:
            return []
        return sorted({date.fromisoformat(str(part["date"])) for part in table.partitions()})

    def operations(self, after: int | None = None) -> list[tuple[int, str]]:
        """(version, operation) of the table's own history; see `Store.operations`."""
        table = self._table()
        if table is None:
            return []
        if self._local is not None:
            return self._local_operations(self._local / "_delta_log", table.version(), -1 if after is None else after)
        newer = None if after is None else max(0, table.version() - after)
        commits = table.history(newer) if newer != 0 else []
        return sorted((int(commit["version"]), _operation(commit)) for commit in commits)

    def _local_operations(self, log: Path, last: int, after: int) -> list[tuple[int, str]]:
        """The same from the commit files, a day of which delta-rs would take half a second for."""
        from pydantic_core import from_json

        found = []
        for version in range(last, after, -1):
            try:
                with open(f"{log}/{version:020d}.json", "rb", buffering=0) as file:  # noqa: PTH123 - thousands of them
                    raw = file.read()
            except FileNotFoundError:
                break  # cleaned up, like all before it
            except OSError as error:
                raise self._unreadable(error) from error
            lines = (line for line in raw.split(b"\n") if b'"commitInfo"' in line)
            try:
                infos = [action["commitInfo"] for action in map(from_json, lines) if "commitInfo" in action]
            except (ValueError, TypeError) as error:
                raise self._unreadable(error) from error
            found.append((version, _operation(infos[0] if infos else {})))
        return found[::-1]

    def small_files(self) -> int:
        """How many data files the fullest day has."""
        table = self._table()
        if table is None:
            return 0
        days = Counter(map(files.day_of, table.file_uris()))
        return max(days.values(), default=0)

    def compact(self) -> Mapping[str, Any]:
        """Merge small files per day, and let old log entries be summarised."""
        table = self._table()
        if table is None:
            return {}
        try:
            return table.optimize.compact()
        except Exception as error:
            raise self._unwritable(error) from error

    def forget(self, upto: date) -> None:
        """Remove whole days; see `Store.forget`."""
        table = self._table()
        if table is None:
            return
        try:
            if any(day <= upto for day in self.dates()):
                table.delete(f"date <= DATE '{upto}'")
            # Files that compaction replaced: a week, delta-rs's own bound, so that no reader loses one.
            table.vacuum(dry_run=False)
        except Exception as error:
            raise self._unwritable(error) from error


class SparkStore(Store):
    """A catalog table, or a path only Spark can reach; every append costs a Spark commit (seconds)."""

    quick: ClassVar[bool] = False

    def __init__(
        self,
        kind: str,
        schema: pa.Schema,
        time_column: str,
        *,
        table: str | None = None,
        path: str | None = None,
        spark: SparkSession | None = None,
    ) -> None:
        """Exactly one of `table` (catalog name) and `path`; `spark` is the active session when None."""
        super().__init__(kind, schema, time_column)
        self._table_name, self._path, self._session = table, path, spark

    @property
    def location(self) -> str:
        """The catalog name or path."""
        return self._table_name or self._path or ""

    @property
    def _relation(self) -> str:
        return self._table_name or f"delta.`{self._path}`"

    def _spark(self) -> SparkSession:
        from pyspark.sql import SparkSession

        spark = self._session or SparkSession.getActiveSession()
        if spark is None:
            raise LedgerError(
                f"the {self.kind} table {self.location} is kept by Spark and no session is active; start one, or "
                "give `spark:` in recon.yml, or use `writer: deltalake`"
            )
        return spark

    def exists(self) -> bool:
        """Whether the table has been created yet."""
        from delta.tables import DeltaTable

        spark = self._spark()
        if self._table_name:
            return bool(spark.catalog.tableExists(self._table_name))
        return bool(DeltaTable.isDeltaTable(spark, self._path or ""))

    def _ready(self) -> bool:
        if not self.exists():
            return False
        detail = self._spark().sql(f"DESCRIBE DETAIL {self._relation}").select("description").collect()
        self._check_version(detail[0][0])
        return True

    def _create(self) -> None:
        from delta.tables import DeltaTable
        from pyspark.sql.pandas.types import from_arrow_schema

        builder = DeltaTable.createIfNotExists(self._spark()).addColumns(from_arrow_schema(self.schema))
        builder = builder.tableName(self._table_name) if self._table_name else builder.location(self._path or "")
        builder.partitionedBy("date").comment(self._description()).execute()

    def append(self, rows: pa.Table, *, chain: str | None = None, after: int = 0) -> None:
        """Append rows in one commit; see `Store.append`."""
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException
        from pyspark.sql.pandas.types import from_arrow_schema

        spark = self._spark()
        try:
            if not self._ready():
                self._create()
            if chain and self.length(chain) != after:
                raise ChainMoved(chain)
            frame = spark.createDataFrame(rows.to_pylist(), from_arrow_schema(self.schema))
            writer = frame.coalesce(1).write.format("delta").mode("append")
            if chain:
                writer = writer.option("txnAppId", chain).option("txnVersion", after + rows.num_rows)
            if self._table_name:
                writer.saveAsTable(self._table_name)
            else:
                writer.save(self._path)
            # Delta skips a write whose txn it already knows, without a word: look that ours is there.
            if chain and self.length(chain) != after + rows.num_rows:
                raise ChainMoved(chain)
        except (PySparkException, Py4JError) as error:
            if "ConcurrentTransaction" in str(error):
                raise ChainMoved(chain) from error
            raise LedgerError(
                f"the {self.kind} table {self.location} cannot be written: {_one_line(error)}; make it writable "
                "and restart the query: what the sink has committed stays there, and the next start restores what is "
                "missing from the sink's own record"
            ) from error

    def read(self, which: Filter, columns: Sequence[str] | None = None) -> pa.Table:
        """Rows that match; see `Store.read`."""
        import pyarrow as pa
        from pyspark.errors import PySparkException

        names = list(columns or self.schema.names)
        target = pa.schema([self.schema.field(name) for name in names])
        try:
            if not self._ready():
                return arrow.empty(target)
            frame = self._spark().table(self._relation).select(*names)
            predicate = which.sql(self.time_column)
            return (frame.where(predicate) if predicate else frame).toArrow().cast(target)
        except PySparkException as error:
            raise LedgerError(f"the {self.kind} table {self.location} cannot be read: {_one_line(error)}") from error

    def length(self, chain: str) -> int:
        """How many entries the chain has, counted: Spark offers no look-up of a txn version."""
        pipeline, sink = parse_chain_id(chain)
        which = Filter(equals=(("pipeline", pipeline), ("sink", sink)))
        return int(self.read(which, ["entry_hash"]).num_rows)

    def dates(self) -> list[date]:
        """The days that have rows, ascending."""
        return sorted(set(self.read(Filter(), ["date"]).column("date").to_pylist()))

    def operations(self, after: int | None = None) -> list[tuple[int, str]]:
        """(version, operation) of the table's own history; see `Store.operations`."""
        if not self._ready():
            return []
        history = (
            self._spark().sql(f"DESCRIBE HISTORY {self._relation}").where(f"version > {-1 if after is None else after}")
        )
        rows = history.select("version", "operation", "operationParameters").collect()
        return sorted(
            (int(v), _operation({"operation": op, "operationParameters": dict(p or {})})) for v, op, p in rows
        )

    def small_files(self) -> int:
        """How many data files the table has per day, on average: Spark's DETAIL knows no more."""
        if not self._ready():
            return 0
        files = self._spark().sql(f"DESCRIBE DETAIL {self._relation}").select("numFiles").collect()[0][0]
        return int(files) // max(1, len(self.dates()))

    def compact(self) -> Mapping[str, Any]:
        """Merge small files by OPTIMIZE."""
        if not self._ready():
            return {}
        row = self._spark().sql(f"OPTIMIZE {self._relation}").collect()[0]
        return {"path": row["path"], "metrics": row["metrics"].asDict(recursive=True)}

    def forget(self, upto: date) -> None:
        """Remove whole days; see `Store.forget`. Files are left to the catalog's own VACUUM."""
        if self._ready():
            self._spark().sql(f"DELETE FROM {self._relation} WHERE date <= DATE '{upto}'")


def open_store(
    project: Project, kind: str, schema: pa.Schema, time_column: str, spark: SparkSession | None = None
) -> Store:
    """One table of the project's ledger; nothing is created until the first append.

    Args:
        project: its `ledger` says where the ledger lives and who writes it.
        kind: the table's name: `<location>/<kind>`, or `<table>_<kind>`, and for `ledger` the table itself.
        schema: its columns, with `date` as the last.
        time_column: the timestamp that `date` is derived from.
        spark: the session for `writer: spark`; the active one when None.

    Raises:
        ConfigError: `ledger` names neither a location nor a table.
    """
    config = project.ledger
    if config.table:
        table = config.table if kind == "ledger" else f"{config.table}_{kind}"
        return SparkStore(kind, schema, time_column, table=table, spark=spark)
    if not config.location:
        raise ConfigError("recon.yml has no place for the ledger; set `ledger: {location: lake/_recon}`")
    path = f"{project.resolve(config.location).rstrip('/')}/{kind}"
    if config.writer == "spark":
        return SparkStore(kind, schema, time_column, path=path, spark=spark)
    return DeltalakeStore(kind, schema, time_column, path, project.storage_options)


def _operation(commit: Mapping[str, Any]) -> str:
    operation = str(commit.get("operation") or "UNKNOWN")
    mode = str((commit.get("operationParameters") or {}).get("mode", "")).lower()
    # An overwrite is a WRITE too; tell them apart, only the append is lawful in a ledger.
    return f"{operation} {mode}" if operation == "WRITE" and mode != "append" else operation


def _one_line(error: BaseException) -> str:
    """A library's error in one line: delta-rs draws a tree of causes, in colours."""
    text = re.sub(r"\x1b\[\d+m|↳", "", str(error).strip() or type(error).__name__)
    return ": ".join(line.strip() for line in text.splitlines()[:4] if line.strip())[:400]
