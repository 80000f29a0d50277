"""Key checks: hashes first, all in one job; where those leave a doubt, one grouping per key and `where`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, cast

from recon.checks.base import KeyCheck
from recon.checks.engine.aggregates import AggregateExecutor
from recon.checks.engine.context import ScanContext
from recon.checks.engine.executor import ScheduledCheck, broke, judged, reason_of
from recon.checks.engine.hashed import HashedKeys
from recon.model import Verdict
from recon.spark.lazy import F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


class GroupingExecutor:
    """Key checks: hashes first, all in one job; where those leave a doubt, one grouping per key and `where`."""

    def __init__(self, table: DataFrame, name: str, context: ScanContext, folded: AggregateExecutor) -> None:
        self._table, self._name, self._context, self._folded = table, name, context, folded
        self._scheduled: dict[int, ScheduledCheck] = {}
        self._hashed = HashedKeys(table)
        self._keys: dict[int, DataFrame] = {}  # of those that were measured: each key with its number of rows

    def admit(self, scheduled: ScheduledCheck) -> None:
        """Takes a check if Spark can group by its key."""
        _ = self._counted(scheduled).schema
        self._scheduled[scheduled.at] = scheduled
        memory = self._context.memory
        if memory is None or not memory.keeps(scheduled.bound):
            self._hashed.admit(scheduled)

    def measure(self, scheduled: ScheduledCheck) -> Mapping[int, Verdict]:
        """All with this key and `where`."""
        memory = self._context.memory
        try:
            if memory is not None and memory.keeps(scheduled.bound):
                known = memory.group(scheduled.bound, cast(KeyCheck, scheduled.check), self._rows(scheduled))
                if known is not None:
                    values, self._keys[scheduled.at] = known
                    return {scheduled.at: judged(scheduled, values, self._context)}
        except Exception as error:
            return {scheduled.at: Verdict(unproved=reason_of(error))}
        try:
            if (unique := self._hashed.values(scheduled, self._folded.table_rows())) is not None:
                return {scheduled.at: judged(scheduled, unique, self._context)}
        except Exception:  # the keys themselves give the answer, or the reason why there is none
            self._hashed.forget()
        same = {at: s for at, s in self._scheduled.items() if _grouping(s) == _grouping(scheduled)}
        try:
            counted = self._counted(scheduled)
            row = counted.agg(*_key_totals(same)).collect()[0].asDict()
        except Exception as error:
            return dict.fromkeys(same, Verdict(unproved=str(broke(self._name, error))))
        self._keys.update(dict.fromkeys(same, counted))
        for at, of in same.items():
            if memory is not None and memory.keeps(of.bound):
                memory.begin(of.bound, cast(KeyCheck, of.check), self._rows(of), _of_key(at, row))
        return {at: judged(s, _of_key(at, row), self._context) for at, s in same.items()}

    def failing(self, scheduled: ScheduledCheck, limit: int) -> DataFrame | None:
        """The keys that occur most often; ties in the order of the key."""
        check = cast(KeyCheck, scheduled.check)
        key = [f"k{i}" for i in range(len(check.key()))]
        named = [F.col(k).alias(name) for k, name in zip(key, check.key(), strict=True)]
        again = self._keys[scheduled.at].filter(_occurs_again(check))
        return again.orderBy(F.desc("n"), *key).limit(limit).select(*named, F.col("n").alias("n_records"))

    def _rows(self, scheduled: ScheduledCheck) -> DataFrame:
        return self._table if scheduled.where is None else self._table.filter(scheduled.where)

    def _counted(self, scheduled: ScheduledCheck) -> DataFrame:
        return count_keys(cast(KeyCheck, scheduled.check), self._rows(scheduled))


def count_keys(check: KeyCheck, rows: DataFrame) -> DataFrame:
    """Each key of these rows (columns k0, k1, …) with its number of rows n."""
    key = [F.col(name).alias(f"k{i}") for i, name in enumerate(check.key())]
    return rows.groupBy(*key).agg(F.count(F.lit(1)).alias("n"))


def _grouping(scheduled: ScheduledCheck) -> tuple[Sequence[str], str | None]:
    return tuple(cast(KeyCheck, scheduled.check).key()), scheduled.bound.config.where


def _key_totals(checks: Mapping[int, ScheduledCheck]) -> list[Column]:
    null = _key_holds_null(cast(KeyCheck, next(iter(checks.values())).check))
    totals = [
        F.coalesce(F.sum("n"), F.lit(0)).alias("rows"),
        F.coalesce(F.sum(F.when(null, F.col("n"))), F.lit(0)).alias("null_keys"),
    ]
    for at, scheduled in checks.items():
        again = _occurs_again(cast(KeyCheck, scheduled.check))
        surplus = F.coalesce(F.sum(F.when(again, F.col("n") - 1)), F.lit(0))
        totals += [F.count_if(again).alias(f"keys{at}"), surplus.alias(f"surplus{at}")]
    return totals


def _of_key(at: int, row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "rows": row["rows"],
        "null_keys": row["null_keys"],
        "duplicate_keys": row[f"keys{at}"],
        "surplus_rows": row[f"surplus{at}"],
    }


def _key_holds_null(check: KeyCheck) -> Column:
    return reduce(lambda a, b: a | b, (F.col(f"k{i}").isNull() for i in range(len(check.key()))))


def _occurs_again(check: KeyCheck) -> Column:
    again = F.col("n") > 1
    return again & ~_key_holds_null(check) if check.ignores_null else again
