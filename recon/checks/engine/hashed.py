"""Are keys unique? By 64-bit hashes first, those of all key checks of a table in one shuffle.

Distinct hashes prove distinct keys, so a table without duplicates never shuffles its keys: 8 bytes of each row travel,
however long the key is, and once instead of once per check. Where a hash occurs twice nothing is proved yet, and the
keys themselves are grouped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from recon.checks.base import KeyCheck
from recon.spark.lazy import F

# A list holds some 24 bytes a hash outside the memory that Spark manages, and one value may have all rows: at most
# 300 MB.
_FEW = 12_000_000
# With more than 128 lists a task, for both kinds of `which`, Spark would sort instead.
_LISTS = 64

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

    from recon.checks.engine.executor import ScheduledCheck


class HashedKeys:
    """The key checks of one table whose keys can be told apart by hashes of their bytes."""

    def __init__(self, table: DataFrame) -> None:
        self._table = table
        self._scheduled: list[ScheduledCheck] = []
        self._values: dict[int, Mapping[str, Any] | None] | None = None

    def admit(self, scheduled: ScheduledCheck) -> None:
        """Takes a check if equal values of its key have equal bytes."""
        key = self._table.select(*(F.col(name) for name in cast(KeyCheck, scheduled.check).key()))
        if all(_by_its_bytes(field.dataType) for field in key.schema):
            self._scheduled.append(scheduled)

    def values(self, scheduled: ScheduledCheck, rows: int | None) -> Mapping[str, Any] | None:
        """What `KeyCheck.judge` gets, when no hash occurs twice; None when the keys must be looked at.

        The first call measures every check that was admitted. `rows` is how many the table has, where that is known.
        """
        if scheduled not in self._scheduled:
            return None
        if self._values is None:
            self._values = self._measured(few=rows is not None and rows * len(self._scheduled) <= _FEW)
        return self._values[scheduled.at]

    def forget(self) -> None:
        """Lets every key be looked at: the hashes could not be had."""
        self._scheduled = []

    def _measured(self, *, few: bool) -> dict[int, Mapping[str, Any] | None]:
        """One job: hashes are dealt out by their value, and what occurs again is counted per group of checks."""
        groups = _groups(self._scheduled)
        hashes = self._hashes([members[0] for members in groups])
        dealt = _listed(hashes, len(groups)) if few else _counted(hashes)
        sums = dealt.groupBy("which").agg(F.sum("n").alias("rows"), F.sum("again").alias("surplus"))
        found = {row["which"]: (row["rows"], row["surplus"]) for row in sums.collect()}
        values: dict[int, Mapping[str, Any] | None] = {}
        for number, members in enumerate(groups):
            rows, surplus = found.get(2 * number, (0, 0))
            null_rows, null_surplus = found.get(2 * number + 1, (0, 0))
            # Keys with a NULL that equal no other are spread by partition; their hashes say nothing.
            judged_nulls = 0 if cast(KeyCheck, members[0].check).ignores_null else null_surplus
            unique = {"rows": rows + null_rows, "null_keys": null_rows, "duplicate_keys": 0, "surplus_rows": 0}
            values |= {scheduled.at: None if surplus + judged_nulls else unique for scheduled in members}
        return values

    def _hashes(self, scheduled_checks: Sequence[ScheduledCheck]) -> DataFrame:
        """Columns `which` (twice the group's number, one more for a key that holds a NULL) and `hash`."""
        columns = [_which_and_hash(number, scheduled) for number, scheduled in enumerate(scheduled_checks)]
        if len(columns) > 1:
            all_of_a_row = F.array(*(F.struct(which, hashed) for which, hashed in columns))
            return self._table.select(F.inline(all_of_a_row)).filter("which IS NOT NULL")
        hashes = self._table.select(*columns[0])
        return hashes if scheduled_checks[0].where is None else hashes.filter("which IS NOT NULL")


def _counted(hashes: DataFrame) -> DataFrame:
    """Hashes with their number of rows `n` and those beyond the first, `again`, however many there are.

    Rows are dealt out before anything is aggregated: keys that should be unique give a first aggregation nothing to
    fold.
    """
    counted = hashes.repartition("which", "hash").groupBy("which", "hash").agg(F.count(F.lit(1)).alias("n"))
    return counted.withColumn("again", F.col("n") - 1)


def _listed(hashes: DataFrame, groups: int) -> DataFrame:
    """The same for few rows, by lists of hashes: twice as fast, and held in memory."""
    lists = max(8, _LISTS // groups)
    dealt = hashes.groupBy("which", F.pmod("hash", F.lit(lists))).agg(F.collect_list("hash").alias("all"))
    n = F.size("all").cast("long")
    return dealt.select("which", n.alias("n"), (n - F.size(F.array_distinct("all"))).alias("again"))


def _which_and_hash(number: int, scheduled: ScheduledCheck) -> tuple[Column, Column]:
    """For a row: its group and whether its key holds a NULL, and the hash; NULL where `where` leaves it out."""
    from functools import reduce

    check = cast(KeyCheck, scheduled.check)
    key = [F.col(name) for name in check.key()]
    null = reduce(lambda a, b: a | b, (part.isNull() for part in key))
    which = F.when(null, F.lit(2 * number + 1)).otherwise(F.lit(2 * number))
    hashed = F.xxhash64(*key)
    if check.ignores_null:
        # They are only counted: one value for all of them would put them all into one task.
        hashed = F.when(null, F.spark_partition_id().cast("long")).otherwise(hashed)
    elif len(key) > 1:
        # xxhash64 passes over NULL, so that (1, NULL) and (NULL, 1) would look equal.
        hashed = F.xxhash64(*key, *(part.isNull() for part in key))
    if scheduled.where is not None:
        which = F.when(scheduled.where, which)
    return which.alias("which"), hashed.alias("hash")


def _groups(scheduled_checks: Sequence[ScheduledCheck]) -> list[list[ScheduledCheck]]:
    """Slots that ask the same: one key, one `where`, NULL taken alike."""
    found: dict[Any, list[ScheduledCheck]] = {}
    for scheduled in scheduled_checks:
        check = cast(KeyCheck, scheduled.check)
        found.setdefault((tuple(check.key()), scheduled.bound.config.where, check.ignores_null), []).append(scheduled)
    return list(found.values())


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
