"""The ledger's tables through delta-rs: no Spark, no JVM, an append in milliseconds."""

from __future__ import annotations

import logging
import re
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from datetime import date
from functools import partial
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import unquote

from typing_extensions import override

from recon.base.errors import LedgerError, UnreachedLedgerError
from recon.base.lazy import pa
from recon.base.limits import delta_rs_options
from recon.base.storage import Storage
from recon.model.integrity import is_lawful
from recon.write.ledger import arrow, files
from recon.write.ledger.store import merging, short_log
from recon.write.ledger.store.append_lock import turn
from recon.write.ledger.store.base import SEQUENCE, ChainMoved, Filter, LedgerTable, Store, one_line, operation_of
from recon.write.ledger.store.contention import Contended, others_wrote
from recon.write.ledger.store.housekeeping import USUAL, Housekeeping

if TYPE_CHECKING:
    from deltalake import DeltaTable, WriterProperties

# A checkpoint holds the files that merges replaced, too, 8,640 a day for each stream of 10 s micro-batches, as long as
# their retention says; nothing reads that. An audit looks at the history since the one before it.
_PROPERTIES = {
    "delta.deletedFileRetentionDuration": "interval 1 hours",
    "delta.logRetentionDuration": "interval 2 days",
}
_CLEAN_EVERY = 100  # versions
# Merging a whole day at each hundredth append would rewrite the day 86 times, and take a second at the day's end.
_LARGE_FILES = 8  # of a day that grows: what is larger than an eighth of it is not rewritten
_LARGEST = 100 * 1024 * 1024  # bytes: delta-rs's own bound
# Readers that began before a merge still open the files that it replaced. The log is kept as long.
_REPLACED_KEPT_H = 48
_STALE_S = 3600.0  # without a refresh: commits that the snapshot lacks may have left the log
_READERS = 4  # data files decoded at the same time; Arrow needs no lock of Python's for it
# What delta-rs says of a store that does not answer or refuses; of damaged files it says other things.
_NOT_REACHED = re.compile(
    r"Generic \w+ error|permission denied|access denied|forbidden|unauthori[sz]ed|credential|timed? ?out|connect"
    r"|not a directory|unsupported url|no such host|dns error",
    re.IGNORECASE,
)


log = logging.getLogger("recon")


class DeltalakeStore(Store):
    """A Delta table at a path or URI, through delta-rs: no Spark, no JVM."""

    def __init__(
        self,
        table: LedgerTable,
        uri: str,
        options: Mapping[str, str] | None = None,
        housekeeping: Housekeeping = USUAL,
    ) -> None:
        """`uri` is a local path or a URI that delta-rs reaches; `options` are its storage options."""
        super().__init__(table, housekeeping)
        self._uri, self._options = uri, delta_rs_options(uri, options or {})
        self._local = Storage(uri).local
        self._handle: DeltaTable | None = None
        self._refreshed_at = 0.0
        self._listed: tuple[DeltaTable, int, pa.Table] | None = None

    @property
    @override
    def location(self) -> str:
        return self._uri

    def _table(self, *, refresh: bool = True) -> DeltaTable | None:
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        try:
            if self._handle is None or self._is_stale(self._handle.version()):
                table = DeltaTable(self._uri, storage_options=self._options)
                self._check_version(table.metadata().description)
                self._handle = table
            elif refresh and self._may_have_moved(self._handle.version()):
                self._handle.update_incremental()
            self._refreshed_at = time.monotonic()
        except TableNotFoundError:
            self._require_absent()
            return None
        except LedgerError:
            raise
        except Exception as error:  # delta-rs raises many kinds, some of them plain Exception
            raise self._unreadable(error) from error
        return self._handle

    def _is_stale(self, version: int) -> bool:
        """Whether an idle writer's snapshot may be older than the log that is left: it cannot be brought forward."""
        if time.monotonic() - self._refreshed_at > _STALE_S:
            return True
        return self._local is not None and not short_log.may_be_updated(self._local, version, self.housekeeping)

    def _may_have_moved(self, version: int) -> bool:
        """Whether there may be a newer version; delta-rs lists the whole log to find out."""
        return self._local is None or short_log.commit_file(self._local, version + 1).exists()

    def _unreadable(self, error: Exception) -> LedgerError:
        """Only a table that is damaged is moved away."""
        reason = error.strerror if isinstance(error, OSError) and error.strerror else one_line(error)
        cannot = f"the {self.kind} table {self._uri} cannot be read: {reason}"
        if isinstance(error, PermissionError | NotADirectoryError) or _NOT_REACHED.search(str(error)):
            step = "check its path, the storage_options, and what this user may read there"
            return UnreachedLedgerError(f"{cannot}; {step}")
        anew = "run `recon ledger rebuild`" if self.kind == "ledger" else "begin a new one"
        return LedgerError(f"{cannot}; restore the folder from a backup, or move it away and {anew}")

    def _require_absent(self) -> None:
        """Raises where there may be a table that this user cannot see; delta-rs says then that there is none."""
        if self._local is not None:
            try:
                (self._local / "_delta_log").stat()
            except FileNotFoundError:
                return
            except OSError as error:
                raise self._unreadable(error) from error

    @override
    def exists(self) -> bool:
        return self._table() is not None

    @override
    def _append(self, rows: pa.Table, chain: str | None, after: int) -> None:
        from deltalake import CommitProperties, Transaction, write_deltalake

        txn = [Transaction(chain, after + rows.num_rows, None)] if chain else None
        with self._writing(chain), turn(self._local):
            table = self._table(refresh=self._handle is None or self._local is not None) or self._create()
            if chain and (table.transaction_version(chain) or 0) != after:
                raise ChainMoved(chain)
            clean = (table.version() + 1) % _CLEAN_EVERY == 0
            stored = _columns(table) if self.added else rows.column_names
            rows = self._for_table(rows, stored)
            write_deltalake(
                table,
                rows,
                mode="append",
                schema_mode=None if set(rows.column_names) <= set(stored) else "merge",
                commit_properties=CommitProperties(app_transactions=txn),
                post_commithook_properties=merging.after_commit(clean=clean),
                writer_properties=_written_as("SNAPPY"),
            )

    def _create(self) -> DeltaTable:
        from deltalake import DeltaTable

        DeltaTable.create(
            self._uri,
            schema=self.schema,
            mode="ignore",
            partition_by=["date"],
            name=f"recon_{self.kind}",
            description=self._description(),
            configuration={**_PROPERTIES, "delta.checkpointInterval": f"{self.housekeeping.checkpoint_interval}"},
            storage_options=self._options,
        )
        table = self._table()
        assert table is not None
        return table

    @contextmanager
    def _writing(self, chain: str | None = None) -> Iterator[None]:
        """Raises an error of a write as one of the ledger's; the table is opened anew for the next one."""
        try:
            yield
        except (ChainMoved, LedgerError):
            self._handle = None
            raise
        except Exception as error:  # as of `_table`
            self._handle = None
            if chain and "oncurrent transaction failed" in str(error):
                raise ChainMoved(chain) from error
            if others_wrote(error):
                raise self._contended() from error
            raise LedgerError(
                f"the {self.kind} table {self._uri} cannot be written: {one_line(error)}; make the folder "
                f"writable, or free space on its disk, and {self._after_failed_write}"
            ) from error

    @override
    def read(self, which: Filter, columns: Sequence[str] | None = None) -> pa.Table:
        names = list(columns or self.schema.names)
        target = pa.schema([self.schema.field(name) for name in names])
        table = self._table()
        if table is None:
            return arrow.empty(target)
        try:
            if self._local and table.protocol().min_reader_version == 1:  # no deletion vectors, no renamed columns
                with suppress(files.Unfamiliar):
                    return self._read_files(table, which, target)
            stored = _columns(table) if self.added else names
            there = [name for name in names if name in stored or name not in self.added]
            rows = pa.table(table.scan(columns=there, predicate=which.sql(self.time_column)))
            rows = arrow.with_nulls(rows, target)
        except Exception as error:  # a missing or torn data file surfaces here, in many kinds
            raise self._unreadable(error) from error
        return rows.select(names).cast(target).cast(files.schema_of(target))

    def _read_files(self, table: DeltaTable, which: Filter, target: pa.Schema) -> pa.Table:
        schema = files.schema_of(self.schema)
        filtered_by, bounds = which.columns(self.time_column), which.bounds(self.time_column)

        def read(path: str) -> pa.Table:
            wanted = partial(which.mask, time_column=self.time_column)
            rows = files.read(path, schema, target.names, filtered_by, wanted, self.added, bounds)
            # delta-rs merges the newest rows first.
            return arrow.ascending(rows, SEQUENCE) if SEQUENCE in target.names else rows

        paths = self._paths(table, which)
        with ThreadPoolExecutor(_READERS) if len(paths) > 1 else nullcontext() as pool:
            tables = list(map(read, paths) if pool is None else pool.map(read, paths))
        parts = [part for part in tables if part.num_rows]
        if SEQUENCE in target.names:
            # Files of one chain follow each other: the whole is in order then, and a day's ranges are not copied again.
            parts.sort(key=lambda part: int(arrow.numbers(part[SEQUENCE].slice(0, 1))[0]))
        return pa.concat_tables(parts) if parts else arrow.empty(files.schema_of(target))

    @override
    def holding(self, which: Filter, place: files.Place) -> list[int]:
        table = self._table()
        if table is None or self._local is None or table.protocol().min_reader_version > 1:
            return super().holding(which, place)
        try:
            paths = self._paths(table, which)
            with ThreadPoolExecutor(_READERS) as pool:
                return [
                    n
                    for found in pool.map(lambda path: files.sequences(path, which.equals, place), paths)
                    for n in found
                ]
        except files.Unfamiliar:
            return super().holding(which, place)
        except Exception as error:  # as of `read`
            raise self._unreadable(error) from error

    def _paths(self, table: DeltaTable, which: Filter) -> list[str]:
        """The data files that may have matching rows."""
        assert self._local is not None
        found = which.files(self._add_actions(table), self.time_column)
        # The largest first: while its ranges are decoded, another thread opens the small ones.
        by_size = sorted(arrow.tuples(found, "size_bytes", "path"), reverse=True)
        return [str(self._local / unquote(path)) for _, path in by_size if which.covers(files.day_of(f"/{path}"))]

    def _add_actions(self, table: DeltaTable) -> pa.Table:
        """The table's data files; delta-rs takes milliseconds for a year of them, and a report reads often."""
        listed = self._listed
        if listed is None or listed[0] is not table or listed[1] != table.version():
            adds = pa.RecordBatchReader.from_stream(table.get_add_actions(flatten=True)).read_all()
            listed = self._listed = (table, table.version(), adds)
        return listed[2]

    @override
    def length(self, chain: str) -> int:
        table = self._table()
        return 0 if table is None else table.transaction_version(chain) or 0

    @override
    def dates(self) -> list[date]:
        table = self._table()
        if table is None:
            return []
        return sorted({date.fromisoformat(str(part["date"])) for part in table.partitions()})

    @override
    def rows_by_day(self) -> Mapping[date, int]:
        table = self._table()
        if table is None:
            return {}
        counts: dict[date, int] = {}
        unknown: set[date] = set()
        for path, rows in arrow.tuples(self._add_actions(table), "path", "num_records"):
            day = files.day_of(f"/{path}")
            if rows is None:
                unknown.add(day)
            else:
                counts[day] = counts.get(day, 0) + rows
        return {day: count for day, count in counts.items() if day not in unknown}

    @override
    def operations(self, after: int | None = None) -> list[tuple[int, str]]:
        table = self._table()
        if table is None:
            return []
        if self._local is not None:  # for a day of commits delta-rs takes half a second
            try:
                return short_log.operations(self._local, table.version(), -1 if after is None else after)
            except (OSError, ValueError) as error:
                raise self._unreadable(error) from error
        newer = None if after is None else max(0, table.version() - after)
        commits = table.history(newer) if newer != 0 else []
        return sorted((int(commit["version"]), operation_of(commit)) for commit in commits)

    @override
    def small_files(self) -> int:
        table = self._table()
        return 0 if table is None else max(map(len, self._sizes(table).values()), default=0)

    def _sizes(self, table: DeltaTable) -> dict[date, list[int]]:
        """The size of each data file in bytes, by day."""
        sizes: dict[date, list[int]] = defaultdict(list)
        for path, size in arrow.tuples(self._add_actions(table), "path", "size_bytes"):
            sizes[files.day_of(f"/{path}")].append(size)
        return sizes

    @override
    def compact(self, *, growing: bool = False) -> Mapping[str, Any]:
        table = self._table()
        if table is None:
            return {}
        metrics: Mapping[str, Any] = {}
        with self._writing(), merging.claimed(table, f"the {self.kind} table {self._uri}"):
            table.update_incremental()
            for days, large in self._by_days(table) if growing else [(None, None)]:
                metrics = table.optimize.compact(
                    days,
                    target_size=large,
                    writer_properties=_written_as("ZSTD"),
                    post_commithook_properties=merging.after_commit(),
                )
        return metrics

    def _by_days(self, table: DeltaTable) -> Iterator[tuple[list[tuple[str, str, str]], int | None]]:
        """The fullest day and how large its files may become, then all other days, whose files may have any size."""
        sizes = self._sizes(table)
        fullest = max(sizes, key=lambda day: len(sizes[day]), default=None)
        if fullest is not None:
            large = max(self.housekeeping.large, sum(sizes.pop(fullest)) // _LARGE_FILES)
            yield [("date", "=", f"{fullest}")], min(large, _LARGEST)
        if any(len(of_day) > 1 for of_day in sizes.values()):
            yield [("date", "!=", f"{fullest}")], None

    @override
    def tidy(self) -> None:
        super().tidy()
        table = self._table()
        if self._local is not None and table is not None:
            try:
                short_log.shorten(self._local, table.version(), self.housekeeping)
            except (OSError, ValueError) as error:  # housekeeping: appends are slower without it
                log.info("the log of the %s table %s stays long: %s", self.kind, self._uri, one_line(error))

    @override
    def vacuum(self, *, appended_only: bool = False) -> None:
        table = self._table()
        with suppress(Contended), self._writing():  # what is left now is removed a day later
            if table is None or not merging.claims_vacuum(table):
                return
            if appended_only and not all(is_lawful(operation) for _, operation in self.operations()):
                merging.hold_vacuum(table)
            else:
                self._remove_replaced(table)

    @override
    def forget(self, upto: date) -> None:
        self._despite_others(partial(self._forget, upto))

    def _forget(self, upto: date) -> None:
        table = self._table()
        if table is None:
            return
        with self._writing():
            if any(day <= upto for day in self.dates()):
                table.delete(f"date <= DATE '{upto}'")
            self._remove_replaced(table)

    def _remove_replaced(self, table: DeltaTable) -> None:
        # `full`, since checkpoints do not name the files that were replaced for as long.
        table.vacuum(_REPLACED_KEPT_H, dry_run=False, enforce_retention_duration=False, full=True)

    @override
    def remove(self, predicate: str) -> None:
        self._despite_others(partial(self._remove, predicate))

    def _remove(self, predicate: str) -> None:
        table = self._table()
        if table is None:
            return
        with self._writing(), turn(self._local):
            table.update_incremental()
            table.delete(predicate)


def _columns(table: DeltaTable) -> Sequence[str]:
    """The names of the table's columns."""
    return [field.name for field in table.schema().fields]


def _written_as(compression: Literal["SNAPPY", "ZSTD"]) -> WriterProperties:
    from deltalake import WriterProperties

    # Named, since delta-rs drops its default where it gets other properties. Appends take SNAPPY. Merges take ZSTD: a
    # day's ranges need two thirds of the space and are read as fast.
    return WriterProperties(compression=compression, max_row_group_size=files.ROW_GROUP)
