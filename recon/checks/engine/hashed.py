"""Whether keys are unique: by 64-bit hashes first, those of all key checks of a table in one shuffle.

Distinct hashes prove distinct keys. So Spark shuffles 8 bytes per row and check, however long the key is, and all
checks share the shuffle. Where a hash occurs twice nothing is proved yet, and the engine groups the keys themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

from recon.checks.data_check import KeyCheck
from recon.spark.columns import key_column
from recon.spark.lazy import F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

    from recon.checks.engine.executor import ScheduledCheck

    ScheduledKey = ScheduledCheck[KeyCheck]

# A list holds some 24 bytes a hash outside the memory that Spark manages, and one value may have all rows: at most
# 300 MB.
_FEW = 12_000_000
# With more than 128 lists a task, for both kinds of `which`, Spark would sort instead.
_LISTS = 64


class HashedKeys:
    """The key checks of one table whose keys can be told apart by hashes of their bytes."""

    def __init__(self, table: DataFrame) -> None:
        self._table = table
        self._scheduled: list[ScheduledKey] = []
        self._values: dict[int, Mapping[str, Any] | None] | None = None

    def admit(self, scheduled: ScheduledKey) -> None:
        """Takes a check if equal values of its key have equal bytes."""
        key = self._table.select(*(key_column(name) for name in scheduled.check.key()))
        if all(_by_its_bytes(field.dataType) for field in key.schema):
            self._scheduled.append(scheduled)

    def values(self, scheduled: ScheduledKey, rows: int | None) -> Mapping[str, Any] | None:
        """What `KeyCheck.judge` gets, when no hash occurs twice; None when the keys must be grouped.

        The first call measures every check that was admitted. `rows` is the table's number of rows, where known.
        """
        if scheduled not in self._scheduled:
            return None
        if self._values is None:
            self._values = self._measured(few=rows is not None and rows * len(self._scheduled) <= _FEW)
        return self._values[scheduled.at]

    def forget(self) -> None:
        """Gives None for every check from now on, because the job over the hashes failed."""
        self._scheduled = []

    def _measured(self, *, few: bool) -> dict[int, Mapping[str, Any] | None]:
        """One job: rows are partitioned by hash, and repeated hashes counted per group of checks."""
        groups = _groups(self._scheduled)
        hashes = self._hashes([members[0] for members in groups])
        counts = _listed(hashes, len(groups)) if few else _counted(hashes)
        sums = counts.groupBy("which").agg(F.sum("n").alias("rows"), F.sum("again").alias("surplus"))
        totals = {row["which"]: (row["rows"], row["surplus"]) for row in sums.collect()}
        values: dict[int, Mapping[str, Any] | None] = {}
        for number, members in enumerate(groups):
            rows, surplus = totals.get(2 * number, (0, 0))
            null_rows, null_surplus = totals.get(2 * number + 1, (0, 0))
            # Where a NULL key is no duplicate, its hash is its partition's number and may well occur twice.
            judged_nulls = 0 if members[0].check.ignores_null else null_surplus
            unique = {"rows": rows + null_rows, "null_keys": null_rows, "duplicate_keys": 0, "surplus_rows": 0}
            values |= {scheduled.at: None if surplus + judged_nulls else unique for scheduled in members}
        return values

    def _hashes(self, scheduled_checks: Sequence[ScheduledKey]) -> DataFrame:
        """Columns `which` (twice the group's number, one more for a key that holds a NULL) and `hash`."""
        columns = [_which_and_hash(number, scheduled) for number, scheduled in enumerate(scheduled_checks)]
        if len(columns) > 1:
            all_of_a_row = F.array(*(F.struct(which, hashed) for which, hashed in columns))
            return self._table.select(F.inline(all_of_a_row)).filter("which IS NOT NULL")
        hashes = self._table.select(*columns[0])
        return hashes if scheduled_checks[0].where is None else hashes.filter("which IS NOT NULL")


def _counted(hashes: DataFrame) -> DataFrame:
    """Hashes with their number of rows `n` and those beyond the first, `again`; for any number of rows.

    Rows are repartitioned before the aggregation: with keys that should be unique, a partial aggregation before the
    shuffle would reduce nothing.
    """
    counted = hashes.repartition("which", "hash").groupBy("which", "hash").agg(F.count(F.lit(1)).alias("n"))
    return counted.withColumn("again", F.col("n") - 1)


def _listed(hashes: DataFrame, groups: int) -> DataFrame:
    """The same by lists of hashes, which is twice as fast and needs them in memory: for few rows."""
    lists = max(8, _LISTS // groups)
    listed = hashes.groupBy("which", F.pmod("hash", F.lit(lists))).agg(F.collect_list("hash").alias("all"))
    n = F.size("all").cast("long")
    return listed.select("which", n.alias("n"), (n - F.size(F.array_distinct("all"))).alias("again"))


def _which_and_hash(number: int, scheduled: ScheduledKey) -> tuple[Column, Column]:
    """For a row: its group and whether its key holds a NULL, and the hash; NULL where `where` leaves it out."""
    check = scheduled.check
    key = [key_column(name) for name in check.key()]
    null = reduce(lambda a, b: a | b, (part.isNull() for part in key))
    which = F.when(null, F.lit(2 * number + 1)).otherwise(F.lit(2 * number))
    hashed = F.xxhash64(*key)
    if check.ignores_null:
        # NULL keys are only counted; one hash for all of them would send them all to one task.
        hashed = F.when(null, F.spark_partition_id().cast("long")).otherwise(hashed)
    elif len(key) > 1:
        # xxhash64 ignores NULL, so that (1, NULL) and (NULL, 1) would look equal.
        hashed = F.xxhash64(*key, *(part.isNull() for part in key))
    if scheduled.where is not None:
        which = F.when(scheduled.where, which)
    return which.alias("which"), hashed.alias("hash")


def _groups(scheduled_checks: Sequence[ScheduledKey]) -> list[list[ScheduledKey]]:
    """The checks that share a key, a `where` and their treatment of NULL."""
    groups: dict[Any, list[ScheduledKey]] = {}
    for scheduled in scheduled_checks:
        check = scheduled.check
        groups.setdefault((tuple(check.key()), scheduled.bound.config.where, check.ignores_null), []).append(scheduled)
    return list(groups.values())


def _by_its_bytes(kind: DataType) -> bool:
    """Whether equal values hash alike: not so floats (0.0 and -0.0), collated strings, and what holds them."""
    from pyspark.sql import types as T

    if isinstance(kind, T.StringType):
        return getattr(kind, "collation", "UTF8_BINARY") == "UTF8_BINARY"
    plain = (
        T.IntegralType,
        T.DecimalType,
        T.DateType,
        T.TimestampType,
        T.TimestampNTZType,
        T.BooleanType,
        T.BinaryType,
    )
    return isinstance(kind, plain)
