"""The ways of measuring a table: folded into one aggregate, grouped by a key, queried, jointly, alone.

A part answers for a check, and for every other that its job measured as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol, cast

from recon.checks.base import DataCheck, JointCheck, KeyCheck, Measure, QueryCheck, RowCheck, WholeCheck
from recon.checks.bound import Bound
from recon.checks.context import ScanContext
from recon.checks.hashed import HashedKeys
from recon.checks.runner import reason_of
from recon.errors import ConfigError, ReconError
from recon.model import Verdict

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# Shown with a failing row when the table has them: they say which record of which micro-batch it is.
ORIGIN = ("_batch_id", "_source_topic", "_source_partition", "_source_offset")


@dataclass(frozen=True)
class Slot:
    """A check that waits to be measured: its place among the scan's checks, and its `where`."""

    at: int
    bound: Bound
    check: DataCheck
    where: Column | None


class Part(Protocol):
    """One way of measuring."""

    def admit(self, slot: Slot) -> None:
        """Takes a check; raises when it cannot be measured."""

    def measure(self, slot: Slot) -> Mapping[int, Verdict]:
        """Verdicts by place: this check's, and those of all that the same job measured."""

    def failing(self, slot: Slot, limit: int) -> DataFrame | None:
        """At most `limit` failing rows of a failed check; None where no row alone fails."""


class Folded:
    """Row checks of every `where` in one aggregate, and the row counts that other parts ask for.

    Equal aggregates of several checks are computed once: Spark's physical aggregation tells them by meaning.
    """

    def __init__(self, table: DataFrame, name: str, context: ScanContext) -> None:
        self._table, self._name, self._context = table, name, context
        self._slots: dict[int, Slot] = {}
        self._counted: dict[int, Slot] = {}
        self._values: dict[int, Mapping[str, Any] | Exception] = {}

    def admit(self, slot: Slot) -> None:
        """Takes a check whose measures are what they must be."""
        _columns(slot)
        self._slots[slot.at] = slot

    def count_rows(self, slot: Slot) -> None:
        """Counts the rows of a check that another part measures, and takes the `measures` of its query."""
        _ = self._wanted(slot)
        self._counted[slot.at] = slot

    def rows(self, slot: Slot) -> int:
        """The number of rows that `count_rows` asked for."""
        return int(self.values(slot)["rows"])

    def values(self, slot: Slot) -> Mapping[str, Any]:
        """The number of rows that `count_rows` asked for, and the measures."""
        self._run()
        found = self._values[slot.at]
        if isinstance(found, Exception):
            raise found
        return found

    def table_rows(self) -> int | None:
        """How many rows the table has, if a check without `where` has counted them already."""
        for at, values in self._values.items():
            slot = self._slots.get(at) or self._counted.get(at)
            if slot is not None and slot.where is None and not isinstance(values, Exception):
                return int(values["rows"])
        return None

    def measure(self, slot: Slot) -> Mapping[int, Verdict]:
        """All of them at once."""
        self._run()
        return {at: self._verdict(of) for at, of in self._slots.items()}

    def failing(self, slot: Slot, limit: int) -> DataFrame | None:
        """The columns of the check, and where the record came from."""
        from pyspark.sql import functions as F

        condition = cast(RowCheck, slot.check).failing()
        if condition is None:
            return None
        rows = self._table.filter(condition)
        if slot.where is not None:
            rows = rows.filter(slot.where)
        names = slot.check.columns() or self._table.columns
        shown = dict.fromkeys([*names, *(name for name in ORIGIN if name in self._table.columns)])
        # A limit per branch lets Spark stop early; a window over all failing rows would sort them.
        return rows.limit(limit).select(*(F.col(name).alias(name) for name in shown))

    def _run(self) -> None:
        waiting = {at: s for at, s in (self._slots | self._counted).items() if at not in self._values}
        if waiting:
            self._values.update(self._collected(waiting))

    def _collected(self, slots: Mapping[int, Slot]) -> dict[int, Mapping[str, Any] | Exception]:
        """The values of one job; if it breaks, those of each half, so that in the end only the culprit errs."""
        try:
            columns = [c.alias(f"c{at}.{n}") for at, s in slots.items() for n, c in self._wanted(s).items()]
            row = self._table.agg(*columns).collect()[0].asDict()
        except Exception as error:
            if len(slots) == 1:
                return dict.fromkeys(slots, broke(self._name, error))
            refused = self._refused(slots)
            if refused:  # found without a job; the others still share one
                others = {at: s for at, s in slots.items() if at not in refused}
                return refused | (self._collected(others) if others else {})
            places = list(slots)
            halves = places[: len(places) // 2], places[len(places) // 2 :]
            return {at: v for half in halves for at, v in self._collected({at: slots[at] for at in half}).items()}
        return {at: {n: row[f"c{at}.{n}"] for n in self._wanted(s)} for at, s in slots.items()}

    def _refused(self, slots: Mapping[int, Slot]) -> dict[int, Mapping[str, Any] | Exception]:
        """Those that Spark cannot even plan, such as an expression with an unknown column."""
        found: dict[int, Mapping[str, Any] | Exception] = {}
        for at, slot in slots.items():
            try:
                _ = self._table.agg(*self._wanted(slot).values()).schema
            except Exception as error:
                found[at] = broke(self._name, error)
        return found

    def _wanted(self, slot: Slot) -> dict[str, Column]:
        return _columns(slot) if isinstance(slot.check, (RowCheck, QueryCheck)) else {"rows": _row_count(slot)}

    def _verdict(self, slot: Slot) -> Verdict:
        values = self._values[slot.at]
        if isinstance(values, Exception):
            return Verdict(unproved=reason_of(values))
        memory = self._context.memory
        if memory is not None and memory.keeps(slot.bound):
            try:
                values = memory.fold(slot.bound, cast(RowCheck, slot.check), values)
            except Exception as error:
                return Verdict(unproved=reason_of(error))
        return judged(slot, values, self._context)


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


class Queried:
    """Checks with a query of their own: one job each, and the shared aggregate for the number of rows."""

    def __init__(self, table: DataFrame, name: str, context: ScanContext, folded: Folded) -> None:
        self._table, self._name, self._context, self._folded = table, name, context, folded
        self._counted: dict[int, DataFrame] = {}
        self._folds: set[int] = set()

    def admit(self, slot: Slot) -> None:
        """Takes a check if Spark accepts its query."""
        check = cast(QueryCheck, slot.check)
        counted = check.counted(self._rows(slot), self._context.tables)
        _ = counted.schema
        self._counted[slot.at] = counted
        if check.measures() or not (check.judges_empty or "rows" in check.figures()):
            self._folded.count_rows(slot)
            self._folds.add(slot.at)

    def measure(self, slot: Slot) -> Mapping[int, Verdict]:
        """This one alone."""
        check = cast(QueryCheck, slot.check)
        try:
            values: dict[str, Any] = {"rows": None, "failures": 0}
            if slot.at in self._folds:
                values |= self._folded.values(slot)
            if values["rows"] != 0 or check.judges_empty:
                values |= self._figures(slot, check)
        except Exception as error:
            return {slot.at: Verdict(unproved=str(broke(self._name, error)))}
        return {slot.at: judged(slot, values, self._context)}

    def failing(self, slot: Slot, limit: int) -> DataFrame | None:
        """The query's own rows."""
        return self._failing(slot).limit(limit)

    def _failing(self, slot: Slot) -> DataFrame:
        return cast(QueryCheck, slot.check).failing_rows(self._rows(slot), self._context.tables)

    def _figures(self, slot: Slot, check: QueryCheck) -> dict[str, Any]:
        """The failures and the check's figures, in one job."""
        from pyspark.sql import functions as F

        figures = [F.expr(sql).alias(name) for name, sql in check.figures().items()]
        own = slot.bound.config.fail_calc
        failures = F.expr(own or check.fail_calc()).alias("failures")
        if own is None:
            found = self._counted[slot.at].agg(failures, *figures)
        else:
            found = self._failing(slot).agg(failures, F.count(F.lit(1)).alias("failing_rows"))
            if figures:
                found = found.crossJoin(self._counted[slot.at].agg(*figures))
        values = found.collect()[0].asDict()
        return {**values, "failures": _whole(values["failures"], own, values.pop("failing_rows", 0))}

    def _rows(self, slot: Slot) -> DataFrame:
        return self._table if slot.where is None else self._table.filter(slot.where)


def _whole(failures: Any, fail_calc: str | None, failing_rows: int) -> int:
    """The number of failures; one that is NULL or a fraction would hide some."""
    if failures is None and failing_rows:
        raise ConfigError(f"fail_calc {fail_calc!r} gives NULL over {failing_rows} failing rows; count what is there")
    try:
        whole = int(failures or 0)
    except (TypeError, ValueError, OverflowError):
        whole = None
    if whole is None or whole != (failures or 0):
        raise ConfigError(f"fail_calc {fail_calc!r} gives {failures}, which is not a whole number")
    return whole


class Joint:
    """Checks that foreign code measures together; those of one party and `where` share a call."""

    def __init__(self, table: DataFrame, name: str, folded: Folded) -> None:
        self._table, self._name, self._folded = table, name, folded
        self._slots: dict[int, Slot] = {}

    def admit(self, slot: Slot) -> None:
        """Takes a check."""
        self._slots[slot.at] = slot
        if not slot.check.judges_empty:
            self._folded.count_rows(slot)

    def measure(self, slot: Slot) -> Mapping[int, Verdict]:
        """The whole party."""
        mine = self._party(slot)
        together = {at: s for at, s in self._slots.items() if self._party(s) == mine}
        try:
            if not slot.check.judges_empty and not self._folded.rows(slot):
                return {at: empty(s) for at, s in together.items()}
            rows = self._table if slot.where is None else self._table.filter(slot.where)
            checks = [s.check for s in together.values()]
            found = cast(JointCheck, slot.check).judge_all(checks, rows)
        except Exception as error:
            return dict.fromkeys(together, Verdict(unproved=reason_of(error)))
        return dict(zip(together, found, strict=True))

    def failing(self, slot: Slot, limit: int) -> DataFrame | None:
        """Their verdicts bring samples along."""
        return None

    def _party(self, slot: Slot) -> tuple[Any, ...]:
        return (type(slot.check), cast(JointCheck, slot.check).party(), slot.bound.config.where)


class Alone:
    """Checks that measure themselves; they bring their samples along."""

    def __init__(self, table: DataFrame, name: str, context: ScanContext, limit: Callable[[Slot], int]) -> None:
        self._table, self._name, self._context, self._limit = table, name, context, limit

    def admit(self, slot: Slot) -> None:
        """Takes any."""

    def measure(self, slot: Slot) -> Mapping[int, Verdict]:
        """This one alone."""
        rows = self._table if slot.where is None else self._table.filter(slot.where)
        try:
            found = cast(WholeCheck, slot.check).judge_tables(rows, self._context.tables, self._limit(slot))
        except ReconError as error:
            return {slot.at: Verdict(unproved=reason_of(error))}
        except Exception as error:
            return {slot.at: Verdict(unproved=str(broke(self._name, error)))}
        return {slot.at: empty(slot) if found is None else found}

    def failing(self, slot: Slot, limit: int) -> DataFrame | None:
        """None beyond those of the verdict."""
        return None


def count_keys(check: KeyCheck, rows: DataFrame) -> DataFrame:
    """Each key of these rows (columns k0, k1, …) with its number of rows n."""
    from pyspark.sql import functions as F

    key = [F.col(name).alias(f"k{i}") for i, name in enumerate(check.key())]
    return rows.groupBy(*key).agg(F.count(F.lit(1)).alias("n"))


def judged(slot: Slot, values: Mapping[str, Any], context: ScanContext) -> Verdict:
    """The check's verdict on measured values, or what zero rows give."""
    check = cast("RowCheck | KeyCheck | QueryCheck", slot.check)
    if not values["rows"] and not check.judges_empty:
        return empty(slot)
    try:
        if check.remembers is not None:
            values = {**values, "history": context.history(slot.bound, check.remembers)}
            verdict = check.judge(values)
            return replace(verdict, evidence={**verdict.evidence, "asked": slot.bound.asked})
        verdict = check.judge(values)
    except Exception as error:
        return Verdict(unproved=reason_of(error))
    # There were rows, and none to judge: all NULL, or left out by a condition of the check's own.
    nothing = verdict.skipped is not None and slot.bound.config.if_empty != "skip"
    return empty(slot, verdict.skipped) if nothing else verdict


def empty(slot: Slot, said: str | None = None) -> Verdict:
    """What a check gives that was put to no rows, as `if_empty` says."""
    where, allowed = slot.bound.config.where, slot.bound.config.if_empty
    if said is None:
        said = f"0 rows where {where}" if where else "0 rows"
    if allowed == "skip":
        return Verdict(skipped=said)
    return Verdict(
        failures=int(allowed == "fail"), regardless=True, message=f"{said}, which if_empty takes as {allowed}"
    )


def broke(name: str, error: Exception) -> Exception:
    """What to tell when Spark, rather than the check, gave up."""
    if isinstance(error, ConfigError):
        return error
    return ConfigError(f"Spark could not measure {name}: {spark_says(error)}")


def spark_says(error: Exception) -> str:
    """Spark's own sentence, without its stack trace."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # A failure on an executor comes as "An error occurred while calling …" with the cause on the next line.
    told = next(
        (line for line in lines if not line.startswith("An error occurred while calling")),
        type(error).__name__,
    )
    sql = dict(pairwise(lines)).get("== SQL ==")  # what could not be parsed
    return told.lstrip(": ")[:400] + (f" (in {sql!r})" if sql else "")


def _columns(slot: Slot) -> dict[str, Column]:
    """A check's aggregates and its number of rows, by name."""
    measures = cast("RowCheck | QueryCheck", slot.check).measures()
    bare = [name for name, measure in measures.items() if not isinstance(measure, Measure)]
    if bare:
        raise ConfigError(
            f"{slot.check.test} measures {bare[0]!r} with a bare Column, to which `where` cannot be applied; "
            "use count_if or Measure of recon.checks.base"
        )
    return {name: measure.over(slot.where) for name, measure in measures.items()} | {"rows": _row_count(slot)}


def _row_count(slot: Slot) -> Column:
    from pyspark.sql import functions as F

    return F.count(F.lit(1)) if slot.where is None else F.count_if(slot.where)


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
