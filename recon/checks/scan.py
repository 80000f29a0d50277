"""One table's data checks, measured in as few Spark jobs as they allow.

Row checks fold into one aggregate; key checks that share a key and `where` share one grouping. Every
expression is analysed before anything runs, so that one wrong column name costs its check and no other.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

from recon.checks.base import DataCheck, KeyCheck, Measure, RowCheck
from recon.checks.bound import Bound
from recon.checks.registry import nearest
from recon.checks.runner import reason_of
from recon.checks.threshold import settle
from recon.errors import ConfigError
from recon.model import CheckResult, Verdict

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

DEFAULT_LIMIT = 5
# Shown with a failing row when the table has them: they say which record of which micro-batch it is.
_ORIGIN = ("_batch_id", "_source_topic", "_source_partition", "_source_offset")


@dataclass
class _Slot:
    """A check that was analysed and waits to be measured."""

    bound: Bound
    where: Column | None
    check: RowCheck | KeyCheck


class TableMeasurement:
    """The checks of one table; a job starts when a `result` that needs it is first asked for."""

    def __init__(
        self,
        bounds: Sequence[Bound],
        table: DataFrame,
        relation_name: str,
        clock: Callable[[], datetime],
    ) -> None:
        self._bounds = bounds
        self._table = table
        self._name = relation_name
        self._clock = clock
        self._done: dict[int, CheckResult] = {}
        self._folded: dict[int, _Slot] = {}
        self._grouped: dict[int, _Slot] = {}
        for at, bound in enumerate(bounds):
            self._admit(at, bound)

    def result(self, at: int) -> CheckResult:
        """The result of the check at this place of `bounds`."""
        if at not in self._done:
            if at in self._folded:
                self._run_folded(self._folded)
            else:
                self._run_grouped(at)
        return self._done[at]

    def fold(self, at: int, check: RowCheck) -> None:
        """Takes a check into the one aggregate, if Spark accepts its expressions."""
        where = self._where(self._bounds[at])
        slot = _Slot(self._bounds[at], where, check)
        _analyse(self._table.agg(*_aggregates(at, slot).values()))
        self._folded[at] = slot

    def group(self, at: int, check: KeyCheck) -> None:
        """Takes a check that groups the table by a key, if Spark can group by it."""
        where = self._where(self._bounds[at])
        slot = _Slot(self._bounds[at], where, check)
        _analyse(_first_keys(_counted(self._table, slot), check, DEFAULT_LIMIT))
        self._grouped[at] = slot

    def _admit(self, at: int, bound: Bound) -> None:
        started = self._clock()
        try:
            check = cast(DataCheck, bound.check)
            check.fit(self._types(check)).join(self, at)
        except Exception as error:
            self._settle(at, Verdict(unproved=reason_of(error)), started)

    def _types(self, check: DataCheck) -> Mapping[str, DataType]:
        """The types of the columns a check reads."""
        from pyspark.errors import AnalysisException, ParseException
        from pyspark.sql import functions as F

        found: dict[str, DataType] = {}
        for name in check.columns():
            try:
                found[name] = self._table.select(F.col(name)).schema[0].dataType
            except (AnalysisException, ParseException) as error:
                there = self._table.columns
                if name in there:
                    raise ConfigError(
                        f"column {name!r} of {self._name} cannot be named so; write it in backticks: `{name}`"
                    ) from error
                raise ConfigError(f"{self._name} has no column {name!r}{nearest(name, there)}") from error
        return found

    def _where(self, bound: Bound) -> Column | None:
        """The check's `where`, if Spark accepts it as a condition on this table."""
        from pyspark.sql import functions as F

        if bound.config.where is None:
            return None
        try:
            condition = F.expr(bound.config.where)
            _analyse(self._table.filter(condition))
        except Exception as error:
            raise ConfigError(
                f"where {bound.config.where!r} is no condition on {self._name}: {_spark_says(error)}"
            ) from error
        return condition

    def _run_folded(self, slots: Mapping[int, _Slot]) -> None:
        """Measures row checks in one job; if it breaks, each on its own, so that only the culprit errs."""
        started = self._clock()
        try:
            columns = [c for at, slot in slots.items() for c in _aggregates(at, slot).values()]
            measured = self._table.agg(*columns).collect()[0].asDict()
        except Exception as error:
            if len(slots) > 1:
                for at, slot in slots.items():
                    self._run_folded({at: slot})
            else:
                self._settle(next(iter(slots)), Verdict(unproved=self._broke(error)), started)
            return
        verdicts = {at: self._row_verdict(at, slot, measured) for at, slot in slots.items()}
        failed = {at: slots[at] for at, verdict in verdicts.items() if verdict.failures}
        samples = self._failing_rows(failed)
        for at, verdict in verdicts.items():
            self._settle(at, replace(verdict, samples=(*verdict.samples, *samples.get(at, ()))), started)

    def _row_verdict(self, at: int, slot: _Slot, measured: Mapping[str, Any]) -> Verdict:
        check = cast(RowCheck, slot.check)
        values = {name: measured[f"c{at}.{name}"] for name in (*check.measures(), "rows")}
        if not values["rows"]:
            return _no_rows(slot)
        try:
            return check.judge(values)
        except Exception as error:
            return Verdict(unproved=reason_of(error))

    def _failing_rows(self, failed: Mapping[int, _Slot]) -> Mapping[int, list[Mapping[str, Any]]]:
        """The first failing rows of the checks that failed, in one job; none when Spark cannot show them."""
        from functools import reduce

        from pyspark.sql import functions as F

        origin = [name for name in _ORIGIN if name in self._table.columns]
        parts: list[DataFrame] = []
        for at, slot in failed.items():
            condition = cast(RowCheck, slot.check).failing()
            if condition is None:
                continue
            rows = self._table.filter(condition)
            if slot.where is not None:
                rows = rows.filter(slot.where)
            shown = list(dict.fromkeys([*slot.check.columns(), *origin]))
            # A limit per branch lets Spark stop early; a window over all failing rows would sort them.
            first = rows.limit(slot.bound.config.limit or DEFAULT_LIMIT)
            parts.append(first.select(F.lit(at).alias("at"), _as_json(shown).alias("row")))
        if not parts:
            return {}
        found: dict[int, list[Mapping[str, Any]]] = {}
        try:
            for row in reduce(lambda a, b: a.unionAll(b), parts).collect():
                found.setdefault(row["at"], []).append(json.loads(row["row"]))
        except Exception:  # the counts stand without samples
            return {}
        return found

    def _run_grouped(self, at: int) -> None:
        """Measures the key checks that share this one's key and `where` in one job."""
        from pyspark.sql import functions as F

        started = self._clock()
        first = self._grouped[at]
        same = {n: slot for n, slot in self._grouped.items() if _grouping(slot) == _grouping(first)}
        counted = _counted(self._table, first)
        try:
            null = _key_holds_null(cast(KeyCheck, first.check))
            totals: list[Column] = [
                F.coalesce(F.sum("n"), F.lit(0)).alias("rows"),
                F.coalesce(F.sum(F.when(null, F.col("n"))), F.lit(0)).alias("null_keys"),
            ]
            for n, slot in same.items():
                again = _occurs_again(cast(KeyCheck, slot.check))
                surplus = F.sum(F.when(again, F.col("n") - 1))
                totals += [
                    F.count_if(again).alias(f"keys{n}"),
                    F.coalesce(surplus, F.lit(0)).alias(f"surplus{n}"),
                ]
            measured = counted.agg(*totals).collect()[0].asDict()
        except Exception as error:
            for n in same:
                self._settle(n, Verdict(unproved=self._broke(error)), started)
            return
        for n, slot in same.items():
            self._settle(n, self._key_verdict(n, slot, counted, measured), started)

    def _key_verdict(self, at: int, slot: _Slot, counted: DataFrame, measured: Mapping[str, Any]) -> Verdict:
        check = cast(KeyCheck, slot.check)
        if not measured["rows"]:
            return _no_rows(slot)
        samples: list[Mapping[str, Any]] = []
        if measured[f"keys{at}"]:
            limit = slot.bound.config.limit or DEFAULT_LIMIT
            with suppress(Exception):  # the counts stand without samples
                samples = [json.loads(r["key"]) for r in _first_keys(counted, check, limit).collect()]
        try:
            return check.judge(
                {
                    "rows": measured["rows"],
                    "null_keys": measured["null_keys"],
                    "duplicate_keys": measured[f"keys{at}"],
                    "surplus_rows": measured[f"surplus{at}"],
                    "samples": samples,
                }
            )
        except Exception as error:
            return Verdict(unproved=reason_of(error))

    def _settle(self, at: int, verdict: Verdict, started: datetime) -> None:
        self._done[at] = settle(self._bounds[at], verdict, started, self._clock(), self._name)

    def _broke(self, error: Exception) -> str:
        return f"Spark could not measure {self._name}: {_spark_says(error)}"


def _aggregates(at: int, slot: _Slot) -> dict[str, Column]:
    """A row check's aggregates and its number of rows, under names of their own in the shared job.

    Equal aggregates of several checks are computed once: Spark's physical aggregation tells them by meaning.
    """
    from pyspark.sql import functions as F

    measures = cast(RowCheck, slot.check).measures()
    bare = [name for name, measure in measures.items() if not isinstance(measure, Measure)]
    if bare:
        raise ConfigError(
            f"{slot.check.test} measures {bare[0]!r} with a bare Column, to which `where` cannot be applied; "
            "use count_if or Measure of recon.checks.base"
        )
    found = {name: measure.over(slot.where) for name, measure in measures.items()}
    found["rows"] = F.count(F.lit(1)) if slot.where is None else F.count_if(slot.where)
    return {name: column.alias(f"c{at}.{name}") for name, column in found.items()}


def _grouping(slot: _Slot) -> tuple[Sequence[str], str | None]:
    return tuple(cast(KeyCheck, slot.check).key()), slot.bound.config.where


def _counted(table: DataFrame, slot: _Slot) -> DataFrame:
    """Each key (columns k0, k1, …) with its number of rows n."""
    from pyspark.sql import functions as F

    rows = table if slot.where is None else table.filter(slot.where)
    key = [F.col(name).alias(f"k{i}") for i, name in enumerate(cast(KeyCheck, slot.check).key())]
    return rows.groupBy(*key).agg(F.count(F.lit(1)).alias("n"))


def _key_holds_null(check: KeyCheck) -> Column:
    from functools import reduce

    from pyspark.sql import functions as F

    return reduce(lambda a, b: a | b, (F.col(f"k{i}").isNull() for i in range(len(check.key()))))


def _occurs_again(check: KeyCheck) -> Column:
    from pyspark.sql import functions as F

    again = F.col("n") > 1
    return again & ~_key_holds_null(check) if check.ignores_null else again


def _first_keys(counted: DataFrame, check: KeyCheck, limit: int) -> DataFrame:
    """The keys that occur most often, as JSON; ties in the order of the key."""
    from pyspark.sql import functions as F

    key = [f"k{i}" for i in range(len(check.key()))]
    names = [F.col(k).alias(name) for k, name in zip(key, check.key(), strict=True)]
    return (
        counted.filter(_occurs_again(check))
        .orderBy(F.desc("n"), *key)
        .limit(limit)
        .select(F.to_json(F.struct(*names, F.col("n").alias("n_records")), {"ignoreNullFields": "false"}).alias("key"))
    )


def _as_json(columns: Sequence[str]) -> Column:
    """Columns of a row as JSON text, NULLs kept, under the names they were asked for."""
    from pyspark.sql import functions as F

    return F.to_json(F.struct(*(F.col(c).alias(c) for c in columns)), {"ignoreNullFields": "false"})


def _analyse(frame: DataFrame) -> None:
    """Lets Spark resolve and type a plan; no job runs, on Spark Connect either."""
    _ = frame.schema


def _no_rows(slot: _Slot) -> Verdict:
    where = slot.bound.config.where
    return Verdict(skipped=f"0 rows where {where}" if where else "0 rows")


def _spark_says(error: Exception) -> str:
    """Spark's own sentence, without its stack trace."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # A failure on an executor comes as "An error occurred while calling …" with the cause on the next line.
    told = next(
        (line for line in lines if not line.startswith("An error occurred while calling")),
        type(error).__name__,
    )
    return told.lstrip(": ")[:400]
