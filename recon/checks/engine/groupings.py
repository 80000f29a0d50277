"""Key checks: hashes first, all in one job; where those leave a doubt, one grouping per key and `where`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, cast

from recon.checks.base import KeyCheck
from recon.checks.engine.aggregates import Folded
from recon.checks.engine.context import ScanContext
from recon.checks.engine.executor import Slot, broke, judged, reason_of
from recon.checks.engine.hashed import HashedKeys
from recon.model import Verdict

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


class Grouped:
    """Key checks: hashes first, all in one job; where those leave a doubt, one grouping per key and `where`."""

    def __init__(self, table: DataFrame, name: str, context: ScanContext, folded: Folded) -> None:
        self._table, self._name, self._context, self._folded = table, name, context, folded
        self._slots: dict[int, Slot] = {}
        self._hashed = HashedKeys(table)
        self._keys: dict[int, DataFrame] = {}  # of those that were measured: each key with its number of rows

    def admit(self, slot: Slot) -> None:
        """Takes a check if Spark can group by its key."""
        _ = self._counted(slot).schema
        self._slots[slot.at] = slot
        memory = self._context.memory
        if memory is None or not memory.keeps(slot.bound):
            self._hashed.admit(slot)

    def measure(self, slot: Slot) -> Mapping[int, Verdict]:
        """All with this key and `where`."""
        memory = self._context.memory
        try:
            if memory is not None and memory.keeps(slot.bound):
                known = memory.group(slot.bound, cast(KeyCheck, slot.check), self._rows(slot))
                if known is not None:
                    values, self._keys[slot.at] = known
                    return {slot.at: judged(slot, values, self._context)}
        except Exception as error:
            return {slot.at: Verdict(unproved=reason_of(error))}
        try:
            if (unique := self._hashed.values(slot, self._folded.table_rows())) is not None:
                return {slot.at: judged(slot, unique, self._context)}
        except Exception:  # the keys themselves give the answer, or the reason why there is none
            self._hashed.forget()
        same = {at: s for at, s in self._slots.items() if _grouping(s) == _grouping(slot)}
        try:
            counted = self._counted(slot)
            row = counted.agg(*_key_totals(same)).collect()[0].asDict()
        except Exception as error:
            return dict.fromkeys(same, Verdict(unproved=str(broke(self._name, error))))
        self._keys.update(dict.fromkeys(same, counted))
        for at, of in same.items():
            if memory is not None and memory.keeps(of.bound):
                memory.begin(of.bound, cast(KeyCheck, of.check), self._rows(of), _of_key(at, row))
        return {at: judged(s, _of_key(at, row), self._context) for at, s in same.items()}

    def failing(self, slot: Slot, limit: int) -> DataFrame | None:
        """The keys that occur most often; ties in the order of the key."""
        from pyspark.sql import functions as F

        check = cast(KeyCheck, slot.check)
        key = [f"k{i}" for i in range(len(check.key()))]
        named = [F.col(k).alias(name) for k, name in zip(key, check.key(), strict=True)]
        again = self._keys[slot.at].filter(_occurs_again(check))
        return again.orderBy(F.desc("n"), *key).limit(limit).select(*named, F.col("n").alias("n_records"))

    def _rows(self, slot: Slot) -> DataFrame:
        return self._table if slot.where is None else self._table.filter(slot.where)

    def _counted(self, slot: Slot) -> DataFrame:
        return count_keys(cast(KeyCheck, slot.check), self._rows(slot))


def count_keys(check: KeyCheck, rows: DataFrame) -> DataFrame:
    """Each key of these rows (columns k0, k1, …) with its number of rows n."""
    from pyspark.sql import functions as F

    key = [F.col(name).alias(f"k{i}") for i, name in enumerate(check.key())]
    return rows.groupBy(*key).agg(F.count(F.lit(1)).alias("n"))


def _grouping(slot: Slot) -> tuple[Sequence[str], str | None]:
    return tuple(cast(KeyCheck, slot.check).key()), slot.bound.config.where


def _key_totals(slots: Mapping[int, Slot]) -> list[Column]:
    from pyspark.sql import functions as F

    null = _key_holds_null(cast(KeyCheck, next(iter(slots.values())).check))
    totals = [
        F.coalesce(F.sum("n"), F.lit(0)).alias("rows"),
        F.coalesce(F.sum(F.when(null, F.col("n"))), F.lit(0)).alias("null_keys"),
    ]
    for at, slot in slots.items():
        again = _occurs_again(cast(KeyCheck, slot.check))
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
    from pyspark.sql import functions as F

    return reduce(lambda a, b: a | b, (F.col(f"k{i}").isNull() for i in range(len(check.key()))))


def _occurs_again(check: KeyCheck) -> Column:
    from pyspark.sql import functions as F

    again = F.col("n") > 1
    return again & ~_key_holds_null(check) if check.ignores_null else again
