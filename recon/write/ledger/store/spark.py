"""The ledger's tables through Spark: a catalog table, or a store that delta-rs cannot reach."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from typing_extensions import override

from recon.base.errors import LedgerError
from recon.base.lazy import pa
from recon.model.wire.app_ids import parse_chain_id
from recon.spark.delta_tables import create_table, is_delta_table
from recon.spark.releases import from_arrow, to_arrow
from recon.write.ledger import arrow
from recon.write.ledger.store.base import ChainMoved, Filter, LedgerTable, Store, one_line, operation_of
from recon.write.ledger.store.contention import others_wrote
from recon.write.ledger.store.housekeeping import USUAL, Housekeeping

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkStore(Store):
    """A catalog table, or a path only Spark can reach; every append costs a Spark commit (seconds)."""

    quick: ClassVar[bool] = False

    def __init__(
        self,
        table: LedgerTable,
        *,
        name: str | None = None,
        path: str | None = None,
        spark: SparkSession | None = None,
        housekeeping: Housekeeping = USUAL,
    ) -> None:
        """Exactly one of `name` (in the catalog) and `path`; `spark` is the active session when None."""
        super().__init__(table, housekeeping)
        self._table_name, self._path, self._session = name, path, spark

    @property
    @override
    def location(self) -> str:
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

    @override
    def exists(self) -> bool:
        spark = self._spark()
        if self._table_name:
            return bool(spark.catalog.tableExists(self._table_name))
        return is_delta_table(spark, self._path or "")

    def _ready(self) -> bool:
        if not self.exists():
            return False
        detail = self._spark().sql(f"DESCRIBE DETAIL {self._relation}").select("description").collect()
        self._check_version(detail[0][0])
        return True

    def _create(self) -> None:
        from pyspark.sql.pandas.types import from_arrow_schema

        create_table(
            self._spark(),
            from_arrow_schema(self.schema),
            name=self._table_name,
            location=self._path or "",
            partition_by="date",
            comment=self._description(),
        )

    @override
    def _append(self, rows: pa.Table, chain: str | None, after: int) -> None:
        from pyspark.sql.pandas.types import from_arrow_schema

        spark = self._spark()
        try:
            if not self._ready():
                self._create()
            if chain and self.length(chain) != after:
                raise ChainMoved(chain)
            stored = spark.table(self._relation).columns if self.added else rows.column_names
            rows = self._for_table(rows, stored)
            frame = from_arrow(spark, rows, from_arrow_schema(rows.schema))
            writer = frame.coalesce(1).write.format("delta").mode("append")
            if not set(rows.column_names) <= set(stored):
                writer = writer.option("mergeSchema", "true")
            if chain:
                writer = writer.option("txnAppId", chain).option("txnVersion", after + rows.num_rows)
            if self._table_name:
                writer.saveAsTable(self._table_name)
            else:
                writer.save(self._path)
            # Delta skips a write whose txn it already has, without an error: make sure that ours was made.
            if chain and not self._has(rows):
                raise ChainMoved(chain)
        except _errors_of_spark() as error:
            if "ConcurrentTransaction" in str(error):
                raise ChainMoved(chain) from error
            raise self._failed(error) from error

    def _failed(self, error: Exception) -> LedgerError:
        """What to raise of a write that failed."""
        if others_wrote(error):
            return self._contended()
        return LedgerError(
            f"the {self.kind} table {self.location} cannot be written: {one_line(error)}; make it writable and "
            f"{self._after_failed_write}"
        )

    @override
    def read(self, which: Filter, columns: Sequence[str] | None = None) -> pa.Table:
        from pyspark.errors import PySparkException

        names = list(columns or self.schema.names)
        target = pa.schema([self.schema.field(name) for name in names])
        try:
            if not self._ready():
                return arrow.empty(target)
            table = self._spark().table(self._relation)
            stored = table.columns
            frame = table.select(*(name for name in names if name in stored or name not in self.added))
            predicate = which.sql(self.time_column)
            rows = to_arrow(frame.where(predicate) if predicate else frame)
            return arrow.with_nulls(rows, target).cast(target)
        except PySparkException as error:
            raise LedgerError(f"the {self.kind} table {self.location} cannot be read: {one_line(error)}") from error

    @override
    def length(self, chain: str) -> int:
        """How many entries the chain has, counted: Spark offers no look-up of a txn version."""
        pipeline, sink = parse_chain_id(chain)
        return int(self.read(Filter.of(pipeline, sink), ["entry_hash"]).num_rows)

    @override
    def dates(self) -> list[date]:
        return sorted(set(self.read(Filter(), ["date"]).column("date").to_pylist()))

    @override
    def operations(self, after: int | None = None) -> list[tuple[int, str]]:
        if not self._ready():
            return []
        history = (
            self._spark().sql(f"DESCRIBE HISTORY {self._relation}").where(f"version > {-1 if after is None else after}")
        )
        rows = history.select("version", "operation", "operationParameters").collect()
        return sorted(
            (int(v), operation_of({"operation": op, "operationParameters": dict(p or {})})) for v, op, p in rows
        )

    @override
    def small_files(self) -> int:
        """How many data files the table has per day, on average: Spark's DETAIL knows no more."""
        if not self._ready():
            return 0
        files = self._spark().sql(f"DESCRIBE DETAIL {self._relation}").select("numFiles").collect()[0][0]
        return int(files) // max(1, len(self.dates()))

    @override
    def compact(self, *, growing: bool = False) -> Mapping[str, Any]:
        if not self._ready():
            return {}
        row = self._spark().sql(f"OPTIMIZE {self._relation}").collect()[0]
        return {"path": row["path"], "metrics": row["metrics"].asDict(recursive=True)}

    @override
    def vacuum(self, *, appended_only: bool = False) -> None:
        """Nothing: files that OPTIMIZE replaced are left to the catalog's own VACUUM."""

    @override
    def forget(self, upto: date) -> None:
        """Removes whole days; their files are left to the catalog's own VACUUM."""
        self.remove(f"date <= DATE '{upto}'")

    @override
    def remove(self, predicate: str) -> None:
        if self._ready():
            self._despite_others(partial(self._remove, predicate))

    def _remove(self, predicate: str) -> None:
        try:
            self._spark().sql(f"DELETE FROM {self._relation} WHERE {predicate}")
        except _errors_of_spark() as error:
            raise self._failed(error) from error


def _errors_of_spark() -> tuple[type[Exception], ...]:
    """What Spark raises, and the JVM gateway, which pyspark-client does not have."""
    from pyspark.errors import PySparkException

    try:
        from py4j.protocol import Py4JError
    except ImportError:
        return (PySparkException,)
    return PySparkException, Py4JError
