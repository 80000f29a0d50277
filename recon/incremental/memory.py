"""Two memories for a scan: one that begins with whole tables, and one that adds new micro-batches to what is known.

Both collect the state to be kept; whoever runs the scan keeps it afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any

from recon.checks.base import KeyCheck, Measure, RowCheck
from recon.checks.bound import Bound
from recon.checks.engine.groupings import count_keys
from recon.errors import LedgerError
from recon.incremental.changes import News, Position, StaleState
from recon.incremental.merge import Merge, folded, grown
from recon.incremental.values import packed, unpacked
from recon.lazy import np
from recon.ledger.key_index import KeyIndex, Parts
from recon.model import Verdict
from recon.project import CheckConfig
from recon.spark.lazy import F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


@dataclass(frozen=True)
class CheckState:
    """What is kept of one check: what it covers, what was measured there, and the parts of its index of keys.

    `fingerprint` stands for the check's expressions, the table's schema and the session's settings: values that were
    measured under another one say nothing about this one.
    """

    fingerprint: str
    position: Position
    values: Mapping[str, Any]
    parts: Parts = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """In JSON's types.

        Raises:
            TypeError: a value is of a type that cannot be kept.
        """
        values = {name: packed(value) for name, value in self.values.items()}
        return {
            "fingerprint": self.fingerprint,
            "position": self.position.as_json(),
            "values": values,
            "parts": dict(self.parts),
        }

    @classmethod
    def of_json(cls, found: Mapping[str, Any]) -> CheckState:
        """From what `as_json` gave.

        Raises:
            KeyError, TypeError, ValueError, AttributeError, EvidenceError: it did not.
        """
        return cls(
            str(found["fingerprint"]),
            Position.of_json(found["position"]),
            {str(name): unpacked(value) for name, value in found["values"].items()},
            {str(part): int(rows) for part, rows in found["parts"].items()},
        )


@dataclass(frozen=True)
class Plan:
    """One incremental check: its fingerprint, how its values merge (None for a key check), what is known of it."""

    bound: Bound
    fingerprint: str
    merges: Mapping[str, Merge] | None
    known: CheckState | None = None
    news: News | None = None


class Beginning:
    """Keeps what is measured on a whole table."""

    def __init__(self, plans: Mapping[str, Plan], position: Position, index_of: Callable[[Bound], KeyIndex]) -> None:
        """`plans` by unique id; `position` is that of the version which is scanned."""
        self._plans, self._position, self._index_of = plans, position, index_of
        self.states: dict[str, CheckState] = {}
        self.refused: dict[str, str] = {}  # why a check's state is not kept

    def keeps(self, bound: Bound) -> bool:
        """The checks it has a plan for."""
        return bound.unique_id in self._plans

    def fold(self, bound: Bound, check: RowCheck, measured: Mapping[str, Any]) -> Mapping[str, Any]:
        """The values as they are."""
        plan = self._plans[bound.unique_id]
        assert plan.merges is not None
        values = {name: measured[name] for name in plan.merges}
        self.states[bound.unique_id] = CheckState(plan.fingerprint, self._position, values)
        return measured

    def group(self, bound: Bound, check: KeyCheck, rows: DataFrame) -> None:
        """Nothing is known yet: the scan groups the table."""
        return

    def begin(self, bound: Bound, check: KeyCheck, rows: DataFrame, measured: Mapping[str, Any]) -> None:
        """Keeps the totals, and makes the index of the table's keys."""
        plan = self._plans[bound.unique_id]
        try:
            wanted = rows.filter(~_holds_null(check)) if check.ignores_null else rows
            parts = self._index_of(bound).begin(wanted.select(_hash(check, wanted).alias("h")), measured["rows"])
        except Exception as error:  # Spark raises many kinds; the verdict stands without an index
            said = str(error).strip().splitlines()
            self.refused[bound.unique_id] = f"its keys could not be indexed: {said[0][:200] if said else error!r}"
            return
        self.states[bound.unique_id] = CheckState(plan.fingerprint, self._position, measured, parts)


@dataclass(frozen=True, kw_only=True)
class _Census(RowCheck):
    """Counts the rows that were read, and judges nothing."""

    def measures(self) -> Mapping[str, Measure]:
        """None beyond the number of rows, which every row check has."""
        return {}

    def judge(self, measured: Mapping[str, Any]) -> Verdict:
        """Nothing fails."""
        return Verdict()


class Growing:
    """Adds what is measured on new micro-batches to what is known of the rows before them.

    As many rows have to be read as the log says are new; otherwise nothing is added up, and the check errs.
    """

    def __init__(
        self,
        plans: Mapping[str, Plan],
        news: News,
        rows: DataFrame,
        whole: DataFrame,
        index_of: Callable[[Bound], KeyIndex],
        *,
        keep: bool,
    ) -> None:
        """`plans` by unique id, all with this news; `rows` are the new ones, `whole` is the table they lead to."""
        self._plans, self._news, self._rows, self._whole = plans, news, rows, whole
        self._index_of, self._keep = index_of, keep
        self._read: int | None = None  # rows that the row checks were measured on, of any `where`
        self.states: dict[str, CheckState] = {}
        self.census = Bound(check=_Census(), config=CheckConfig(), unique_id="", name="", pipeline="")

    def keeps(self, bound: Bound) -> bool:
        """The checks it has a plan for, and the census."""
        return bound is self.census or bound.unique_id in self._plans

    def fold(self, bound: Bound, check: RowCheck, measured: Mapping[str, Any]) -> Mapping[str, Any]:
        """The known values and the new ones, merged. The census comes first and counts for all."""
        if bound is self.census:
            self._read = measured["rows"]
            return measured
        self._require_all(self._read)
        plan, known, news = self._of(bound)
        assert plan.merges is not None
        values = folded(plan.merges, known.values, measured)
        self.states[bound.unique_id] = CheckState(plan.fingerprint, news.position, values)
        return values

    def group(self, bound: Bound, check: KeyCheck, rows: DataFrame) -> tuple[Mapping[str, Any], DataFrame]:
        """The known totals, and what the new keys add to them.

        Keys are looked up by their hashes. Those that occur before, or twice among the new ones, are then counted by
        their values in the table itself, so that two keys with one hash stay two.
        """
        plan, known, news = self._of(bound)
        index = self._index_of(bound)
        hashes, null_keys, count, read = _hashes(check, self._rows, bound.config.where)
        self._require_all(read)
        distinct, twice = _distinct(hashes)
        suspects = distinct[twice | index.found(known.parts, distinct)]
        counted = count_keys(check, rows.limit(0)) if not len(suspects) else self._counted(bound, check, rows, suspects)
        touched = _touched(counted) if len(suspects) else ()
        values = grown(known.values, rows=count, null_keys=null_keys, touched=touched)
        parts = index.add(known.parts, distinct) if self._keep else known.parts
        self.states[bound.unique_id] = CheckState(plan.fingerprint, news.position, values, parts)
        return values, counted

    def begin(self, bound: Bound, check: KeyCheck, rows: DataFrame, measured: Mapping[str, Any]) -> None:
        """Never asked: `group` always answers."""

    def _require_all(self, read: int | None) -> None:
        if read is None or read != self._news.rows:
            found = "an unknown number of" if read is None else read
            raise StaleState(f"{found} rows of new micro-batches were read, and the log tells of {self._news.rows}")

    def _of(self, bound: Bound) -> tuple[Plan, CheckState, News]:
        plan = self._plans[bound.unique_id]
        assert plan.known is not None and plan.news is not None
        return plan, plan.known, plan.news

    def _counted(self, bound: Bound, check: KeyCheck, rows: DataFrame, suspects: Any) -> DataFrame:
        """The suspected keys that have new rows: k0, k1, …, n rows in all, of which `fresh` new."""
        import pyarrow as pa

        from recon.ledger import arrow

        # The keys come from the table: of all of it only rows with one of these hashes are looked at.
        asked = F.broadcast(rows.sparkSession.createDataFrame(pa.table({"h": arrow.array(suspects)})))
        where = bound.config.where
        whole = self._whole if where is None else self._whole.filter(F.expr(where))

        def keys(of: DataFrame, fresh: int) -> DataFrame:
            named = [F.col(name).alias(f"k{i}") for i, name in enumerate(check.key())]
            if check.ignores_null:
                of = of.filter(~_holds_null(check))
            found = of.select(*named, _hash(check, of).alias("h"), F.lit(fresh).alias("fresh"))
            return found.join(asked, "h", "left_semi")

        both = keys(whole, 0).unionAll(keys(rows, 1))
        groups = both.groupBy(*(f"k{i}" for i in range(len(check.key()))))
        counted = groups.agg(F.sum(F.lit(1) - F.col("fresh")).alias("n"), F.sum("fresh").alias("fresh"))
        return counted.filter("fresh > 0 AND n > 1")


def _touched(counted: DataFrame) -> list[tuple[int, int, int]]:
    """How many keys have so many rows known and so many new ones."""
    kinds = counted.groupBy("n", "fresh").agg(F.count(F.lit(1)).alias("keys")).collect()
    if any(row["fresh"] > row["n"] for row in kinds):
        raise LedgerError("rows of new micro-batches are not in the table: it was changed while it was read")
    return [(row["keys"], row["n"] - row["fresh"], row["fresh"]) for row in kinds]


def _hashes(check: KeyCheck, rows: DataFrame, where: str | None) -> tuple[Any, int, int, int]:
    """The hashes of keys that can be duplicates, how many keys hold a NULL, the number of rows, and that of all read.

    Only the last counts rows that do not meet `where`.
    """
    import pyarrow.compute as pc

    from recon.ledger import arrow

    columns = [_hash(check, rows).alias("h"), _holds_null(check).alias("null")]
    if where is not None:
        columns.append(F.coalesce(F.expr(where), F.lit(False)).alias("mine"))
    found = rows.select(*columns).toArrow()
    read = found.num_rows
    if where is not None:
        found = found.filter(found["mine"])
    nulls = int(pc.sum(found["null"]).as_py() or 0)
    judged = found.filter(pc.invert(found["null"])) if check.ignores_null and nulls else found
    return arrow.numbers(judged["h"]), nulls, found.num_rows, read


def _distinct(hashes: Any) -> tuple[Any, Any]:
    """The distinct hashes, sorted, and which of them occur more than once."""
    distinct, counts = np.unique(hashes, return_counts=True)
    return distinct, counts > 1


def _hash(check: KeyCheck, rows: DataFrame) -> Column:
    """64 bits that equal keys share; in GROUP BY -0.0 equals 0.0, which adding 0.0 makes of it."""
    from pyspark.sql import types as T

    key = [F.col(name) for name in check.key()]
    kinds = [field.dataType for field in rows.select(*key).schema]
    return F.xxhash64(
        *(
            c + F.lit(0.0) if isinstance(k, T.FractionalType) and not isinstance(k, T.DecimalType) else c
            for c, k in zip(key, kinds, strict=True)
        )
    )


def _holds_null(check: KeyCheck) -> Column:
    return reduce(lambda a, b: a | b, (F.col(name).isNull() for name in check.key()))


__all__ = ["Beginning", "CheckState", "Growing", "Plan"]
