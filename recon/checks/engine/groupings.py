"""Key checks: hashes of all keys in one job; one grouping per key and `where` for keys whose hashes are not unique."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from recon.checks.data_check import KeyCheck
from recon.checks.engine.aggregates import AggregateExecutor
from recon.checks.engine.executor import (
    Executor,
    ScannedTable,
    ScheduledCheck,
    measuring_error,
    reason_of,
    verdict_of,
)
from recon.checks.engine.hashed import HashedKeys
from recon.model import Verdict
from recon.spark.columns import key_column
from recon.spark.lazy import F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

ScheduledKey = ScheduledCheck[KeyCheck]


class GroupingExecutor(Executor):
    """Measures key checks: by hashes of all keys in one job, then by a grouping where a hash occurs twice."""

    def __init__(self, table: ScannedTable, aggregates: AggregateExecutor) -> None:
        super().__init__(table)
        self._aggregates = aggregates
        self._hashed = HashedKeys(table.frame)
        self._keys: dict[int, DataFrame] = {}  # of the measured checks: each key with its number of rows

    @override
    def admit(self, scheduled: ScheduledKey) -> None:
        _ = self._keys_of(scheduled).schema  # Spark refuses a key that it cannot group by
        super().admit(scheduled)
        if self._table.context.memory_of(scheduled.bound) is None:
            self._hashed.admit(scheduled)

    @override
    def measure(self, scheduled: ScheduledKey) -> Mapping[int, Verdict]:
        return self._from_memory(scheduled) or self._from_hashes(scheduled) or self._from_grouping(scheduled)

    @override
    def failing(self, scheduled: ScheduledKey, limit: int) -> DataFrame | None:
        """The keys that occur most often; ties in the order of the key."""
        check = scheduled.check
        key = [f"k{i}" for i in range(len(check.key()))]
        named = [F.col(k).alias(name) for k, name in zip(key, check.key(), strict=True)]
        duplicates = self._keys[scheduled.at].filter(_is_duplicate(check))
        return duplicates.orderBy(F.desc("n"), *key).limit(limit).select(*named, F.col("n").alias("n_records"))

    def _from_memory(self, scheduled: ScheduledKey) -> Mapping[int, Verdict] | None:
        """The verdict from what earlier runs measured; None where they measured nothing."""
        context = self._table.context
        memory = context.memory_of(scheduled.bound)
        if memory is None:
            return None
        try:
            merged = memory.group(scheduled.bound, scheduled.check, self._table.rows_for(scheduled))
        except Exception as error:
            return {scheduled.at: Verdict(unproved=reason_of(error))}
        if merged is None:
            return None
        values, self._keys[scheduled.at] = merged
        return {scheduled.at: verdict_of(scheduled, values, context)}

    def _from_hashes(self, scheduled: ScheduledKey) -> Mapping[int, Verdict] | None:
        """The verdict where no hash occurs twice, which proves that no key does; None where one does."""
        try:
            values = self._hashed.values(scheduled, self._aggregates.table_rows())
        except Exception:  # the grouping gives the verdict, or the reason why there is none
            self._hashed.forget()
            return None
        return None if values is None else {scheduled.at: verdict_of(scheduled, values, self._table.context)}

    def _from_grouping(self, scheduled: ScheduledKey) -> Mapping[int, Verdict]:
        """The verdicts of all checks with this key and `where`."""
        same = {at: s for at, s in self._scheduled.items() if _grouping(s) == _grouping(scheduled)}
        try:
            keys = self._keys_of(scheduled)
            row = keys.agg(*_key_totals(same)).collect()[0].asDict()
        except Exception as error:
            return dict.fromkeys(same, Verdict(unproved=str(measuring_error(self._table.name, error))))
        self._keys.update(dict.fromkeys(same, keys))
        context = self._table.context
        for at, member in same.items():
            if (memory := context.memory_of(member.bound)) is not None:
                memory.begin(member.bound, member.check, self._table.rows_for(member), _totals_of(at, row))
        return {at: verdict_of(member, _totals_of(at, row), context) for at, member in same.items()}

    def _keys_of(self, scheduled: ScheduledKey) -> DataFrame:
        return count_keys(scheduled.check, self._table.rows_for(scheduled))


def count_keys(check: KeyCheck, rows: DataFrame) -> DataFrame:
    """Each key of these rows (columns k0, k1, …) with its number of rows n."""
    key = [key_column(name).alias(f"k{i}") for i, name in enumerate(check.key())]
    return rows.groupBy(*key).agg(F.count(F.lit(1)).alias("n"))


def _grouping(scheduled: ScheduledKey) -> tuple[Sequence[str], str | None]:
    return tuple(scheduled.check.key()), scheduled.bound.config.where


def _key_totals(checks: Mapping[int, ScheduledKey]) -> list[Column]:
    null = _key_holds_null(next(iter(checks.values())).check)
    totals = [
        F.coalesce(F.sum("n"), F.lit(0)).alias("rows"),
        F.coalesce(F.sum(F.when(null, F.col("n"))), F.lit(0)).alias("null_keys"),
    ]
    for at, scheduled in checks.items():
        duplicate = _is_duplicate(scheduled.check)
        surplus = F.coalesce(F.sum(F.when(duplicate, F.col("n") - 1)), F.lit(0))
        totals += [F.count_if(duplicate).alias(f"keys{at}"), surplus.alias(f"surplus{at}")]
    return totals


def _totals_of(at: int, row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "rows": row["rows"],
        "null_keys": row["null_keys"],
        "duplicate_keys": row[f"keys{at}"],
        "surplus_rows": row[f"surplus{at}"],
    }


def _key_holds_null(check: KeyCheck) -> Column:
    return reduce(lambda a, b: a | b, (F.col(f"k{i}").isNull() for i in range(len(check.key()))))


def _is_duplicate(check: KeyCheck) -> Column:
    duplicate = F.col("n") > 1
    return duplicate & ~_key_holds_null(check) if check.ignores_null else duplicate
