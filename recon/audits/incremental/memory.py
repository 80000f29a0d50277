"""The state of a check, and the two memories of a scan (`recon.checks.engine.context.Memory`) that make it.

`WholeTableMemory` records what is measured on a whole table, `NewBatchesMemory` adds what is measured on new
micro-batches to the saved state. Both collect states; the caller saves them after the scan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from recon.audits.incremental.changes import CoveredVersion, NewBatches, StaleState
from recon.audits.incremental.merge import Merge, merged, merged_key_counts
from recon.audits.incremental.values import packed, unpacked
from recon.base.errors import LedgerError
from recon.base.lazy import np, pa, pc
from recon.base.text import first_line
from recon.checks.bound import Bound
from recon.checks.data_check import KeyCheck, Measure, RowCheck
from recon.checks.engine.context import Memory
from recon.checks.engine.groupings import count_keys
from recon.model import Verdict
from recon.project import CheckConfig
from recon.spark.columns import expression, key_column
from recon.spark.lazy import F
from recon.spark.releases import from_arrow, to_arrow
from recon.write.ledger import arrow
from recon.write.ledger.key_index import KeyIndex, Parts

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


@dataclass(frozen=True)
class CheckState:
    """The saved state of one check: the version it covers, the values measured there, and the parts of its key index.

    `fingerprint` is a hash of the check's expressions, the table's schema and the session's settings: values measured
    under another fingerprint must not be merged.
    """

    fingerprint: str
    covered: CoveredVersion
    values: Mapping[str, Any]
    parts: Parts = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Values that JSON can hold.

        Raises:
            TypeError: a value is of a type that cannot be saved.
        """
        values = {name: packed(value) for name, value in self.values.items()}
        return {
            "fingerprint": self.fingerprint,
            "position": self.covered.as_json(),
            "values": values,
            "parts": dict(self.parts),
        }

    @classmethod
    def of_json(cls, document: Mapping[str, Any]) -> CheckState:
        """The inverse of `as_json`.

        Raises:
            KeyError, TypeError, ValueError, AttributeError, EvidenceError: the document is of another form.
        """
        return cls(
            str(document["fingerprint"]),
            CoveredVersion.of_json(document["position"]),
            {str(name): unpacked(value) for name, value in document["values"].items()},
            {str(part): int(rows) for part, rows in document["parts"].items()},
        )


@dataclass(frozen=True)
class Plan:
    """How one check is measured: how its values merge (None for a key check), its saved state, the new micro-batches.

    Without `new` the check is measured on the whole table.
    """

    bound: Bound
    fingerprint: str
    merges: Mapping[str, Merge] | None
    saved: CheckState | None = None
    new: NewBatches | None = None


class WholeTableMemory(Memory):
    """Makes the state of checks that are measured on the whole table."""

    def __init__(
        self, plans: Mapping[str, Plan], covered: CoveredVersion, index_of: Callable[[Bound], KeyIndex]
    ) -> None:
        """`plans` by unique id; `covered` is the version that is scanned."""
        self._plans, self._covered, self._index_of = plans, covered, index_of
        self.states: dict[str, CheckState] = {}
        self.refused: dict[str, str] = {}  # why a check's state cannot be saved

    @override
    def keeps(self, bound: Bound) -> bool:
        return bound.unique_id in self._plans

    @override
    def fold(self, bound: Bound, check: RowCheck, measured: Mapping[str, Any]) -> Mapping[str, Any]:
        plan = self._plans[bound.unique_id]
        assert plan.merges is not None
        values = {name: measured[name] for name in plan.merges}
        self.states[bound.unique_id] = CheckState(plan.fingerprint, self._covered, values)
        return measured

    @override
    def group(self, bound: Bound, check: KeyCheck, rows: DataFrame) -> None:
        return  # nothing is saved yet: the scan groups the table

    @override
    def begin(self, bound: Bound, check: KeyCheck, rows: DataFrame, measured: Mapping[str, Any]) -> None:
        """Keeps the totals, and writes the index of the table's keys."""
        plan = self._plans[bound.unique_id]
        try:
            wanted = rows.filter(~_holds_null(check)) if check.ignores_null else rows
            parts = self._index_of(bound).begin(wanted.select(_hash(check, wanted).alias("h")), measured["rows"])
        except Exception as error:  # Spark raises many kinds; the verdict needs no index
            self.refused[bound.unique_id] = f"its keys could not be indexed: {first_line(error, 200)}"
            return
        self.states[bound.unique_id] = CheckState(plan.fingerprint, self._covered, measured, parts)


@dataclass(frozen=True, kw_only=True)
class _RowCounter(RowCheck):
    """Counts the rows that were read, and judges nothing."""

    @override
    def measures(self) -> Mapping[str, Measure]:
        return {}  # every row check also has the number of rows

    @override
    def judge(self, measured: Mapping[str, Any]) -> Verdict:
        return Verdict()


class NewBatchesMemory(Memory):
    """Merges what is measured on new micro-batches into the saved state.

    The scan has to read as many rows as the log says are new. With any other number nothing is merged, and the check
    gets status error.
    """

    def __init__(
        self,
        plans: Mapping[str, Plan],
        new: NewBatches,
        rows: DataFrame,
        whole: DataFrame,
        index_of: Callable[[Bound], KeyIndex],
        *,
        keep: bool,
    ) -> None:
        """`plans` by unique id, all with `new`; `rows` are the rows of `new`, `whole` is the table that holds them."""
        self._plans, self._new, self._rows, self._whole = plans, new, rows, whole
        self._index_of, self._keep = index_of, keep
        self._rows_read: int | None = None  # by the row checks' aggregate, whatever their `where`
        self.states: dict[str, CheckState] = {}
        self.row_counter = Bound(check=_RowCounter(), config=CheckConfig(), unique_id="", name="", pipeline="")

    @override
    def keeps(self, bound: Bound) -> bool:
        return bound is self.row_counter or bound.unique_id in self._plans

    @override
    def fold(self, bound: Bound, check: RowCheck, measured: Mapping[str, Any]) -> Mapping[str, Any]:
        """Merges the new values into the saved ones. The row counter comes first and counts for all."""
        if bound is self.row_counter:
            self._rows_read = measured["rows"]
            return measured
        self._require_all(self._rows_read)
        plan, saved = self._of(bound)
        assert plan.merges is not None
        values = merged(plan.merges, saved.values, measured)
        self.states[bound.unique_id] = CheckState(plan.fingerprint, self._new.reached, values)
        return values

    @override
    def group(self, bound: Bound, check: KeyCheck, rows: DataFrame) -> tuple[Mapping[str, Any], DataFrame]:
        """Adds the counts of the new keys to the saved ones.

        Keys are looked up by their hashes. A hash that occurred before, or occurs twice among the new ones, may be of
        two keys: these keys are counted by their values in the table.
        """
        plan, saved = self._of(bound)
        index = self._index_of(bound)
        hashes, null_keys, count, read = _hashes(check, self._rows, bound.config.where)
        self._require_all(read)
        distinct, times = np.unique(hashes, return_counts=True)
        suspects = distinct[(times > 1) | index.contains(saved.parts, distinct)]
        repeated: Sequence[tuple[int, int, int]] = ()
        if len(suspects):
            counted = self._counted(bound, check, rows, suspects)
            repeated = _repeated(counted)
        else:
            counted = count_keys(check, rows.limit(0))
        values = merged_key_counts(saved.values, rows=count, null_keys=null_keys, repeated=repeated)
        parts = index.add(saved.parts, distinct) if self._keep else saved.parts
        self.states[bound.unique_id] = CheckState(plan.fingerprint, self._new.reached, values, parts)
        return values, counted

    @override
    def begin(self, bound: Bound, check: KeyCheck, rows: DataFrame, measured: Mapping[str, Any]) -> None:
        raise AssertionError("`group` has counted every key check")

    def _require_all(self, read: int | None) -> None:
        if read is None or read != self._new.rows:
            number = "an unknown number of" if read is None else read
            raise StaleState(f"{number} rows of new micro-batches were read, and the log has {self._new.rows}")

    def _of(self, bound: Bound) -> tuple[Plan, CheckState]:
        plan = self._plans[bound.unique_id]
        assert plan.saved is not None
        return plan, plan.saved

    def _counted(self, bound: Bound, check: KeyCheck, rows: DataFrame, suspects: Any) -> DataFrame:
        """The suspected keys that have new rows: k0, k1, …, their number of rows `n`, of which `fresh` are new."""
        # Only rows of the table with one of these hashes are counted.
        suspected = F.broadcast(from_arrow(rows.sparkSession, pa.table({"h": arrow.array(suspects)}), "h long"))
        where = bound.config.where
        whole = self._whole if where is None else self._whole.filter(expression(where, "where"))

        def keys(of: DataFrame, fresh: int) -> DataFrame:
            named = [key_column(name).alias(f"k{i}") for i, name in enumerate(check.key())]
            if check.ignores_null:
                of = of.filter(~_holds_null(check))
            hashed = of.select(*named, _hash(check, of).alias("h"), F.lit(fresh).alias("fresh"))
            return hashed.join(suspected, "h", "left_semi")

        both = keys(whole, 0).unionAll(keys(rows, 1))
        groups = both.groupBy(*(f"k{i}" for i in range(len(check.key()))))
        counted = groups.agg(F.sum(F.lit(1) - F.col("fresh")).alias("n"), F.sum("fresh").alias("fresh"))
        return counted.filter("fresh > 0 AND n > 1")


def _repeated(counted: DataFrame) -> list[tuple[int, int, int]]:
    """(number of keys, rows of each before, new rows of each)."""
    kinds = counted.groupBy("n", "fresh").agg(F.count(F.lit(1)).alias("keys")).collect()
    if any(row["fresh"] > row["n"] for row in kinds):
        raise LedgerError("rows of new micro-batches are not in the table: it was changed while it was read")
    return [(row["keys"], row["n"] - row["fresh"], row["fresh"]) for row in kinds]


def _hashes(check: KeyCheck, rows: DataFrame, where: str | None) -> tuple[Any, int, int, int]:
    """The hashes of keys that can be duplicates, the number of keys with a NULL, of rows, and of rows read.

    Only the last number counts rows that do not meet `where`.
    """
    columns = [_hash(check, rows).alias("h"), _holds_null(check).alias("null")]
    if where is not None:
        columns.append(F.coalesce(expression(where, "where"), F.lit(False)).alias("mine"))
    keys = to_arrow(rows.select(*columns))
    rows_read = keys.num_rows
    if where is not None:
        keys = keys.filter(keys["mine"])
    nulls = int(pc.sum(keys["null"]).as_py() or 0)
    judged = keys.filter(pc.invert(keys["null"])) if check.ignores_null and nulls else keys
    return arrow.numbers(judged["h"]), nulls, keys.num_rows, rows_read


def _hash(check: KeyCheck, rows: DataFrame) -> Column:
    """64 bits that equal keys share; adding 0.0 turns -0.0 into 0.0, which equals it in GROUP BY."""
    from pyspark.sql import types as T

    key = [key_column(name) for name in check.key()]
    kinds = [field.dataType for field in rows.select(*key).schema]
    return F.xxhash64(
        *(
            c + F.lit(0.0) if isinstance(k, T.FractionalType) and not isinstance(k, T.DecimalType) else c
            for c, k in zip(key, kinds, strict=True)
        )
    )


def _holds_null(check: KeyCheck) -> Column:
    return reduce(lambda a, b: a | b, (key_column(name).isNull() for name in check.key()))
