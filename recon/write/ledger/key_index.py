"""An index of key hashes beside the ledger: which keys a table already has, without reading the table.

One Delta table per key check, partitioned by `part`: what one audit added. A part counts only if the stored state names
it with its number of rows: what a crashed or a concurrent audit wrote is ignored. Hashes are sorted in each file;
looking for the keys of a micro-batch reads them once and keeps none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Literal
from uuid import uuid4

from recon.base.errors import LedgerError
from recon.base.lazy import np, pa
from recon.base.limits import delta_rs_options
from recon.base.storage import arrow_filesystem
from recon.spark.lazy import F
from recon.spark.releases import to_arrow
from recon.write.ledger import arrow
from recon.write.ledger.store.base import one_line
from recon.write.ledger.store.contention import Contended, again, deadline, others_wrote

if TYPE_CHECKING:
    import numpy.typing as npt
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame

    Hashes = npt.NDArray[np.int64]

IN_DRIVER = 10_000_000
_STEP = 1_000_000

Parts = Mapping[str, int]


class KeyIndex:
    """The index of one key check, at a path or URI that both delta-rs and Spark reach."""

    def __init__(
        self, uri: str, options: Mapping[str, str] | None = None, *, many_parts: int = 32, large: int = 8_000_000
    ) -> None:
        """Nothing is created until the index begins.

        Args:
            uri: where the index is.
            options: delta-rs's storage options.
            many_parts: from so many small ones on, parts are merged.
            large: hashes; a part of that size is not merged any more, and a merge holds twice as many in memory.
        """
        self.uri, self._options = uri, dict(options or {})
        self._many_parts, self._large = many_parts, large

    def begin(self, hashes: DataFrame, rows: int) -> Parts:
        """A new index in place of the one there was; returns its parts.

        Args:
            hashes: one column `h` of 64-bit hashes; duplicates are allowed.
            rows: about how many; more than the driver should hold are sorted and written by Spark.
        """
        if rows > IN_DRIVER:
            return self._begin_in_spark(hashes)
        return self._write(np.sort(arrow.numbers(to_arrow(hashes)["h"])), mode="overwrite")

    def _begin_in_spark(self, hashes: DataFrame) -> Parts:
        part = uuid4().hex
        # Ranges of hashes are sorted apart, so that a file is no larger than a task can sort.
        ranges = hashes.repartition(F.shiftright("h", 56)).sortWithinPartitions("h")
        (
            ranges.withColumn("part", F.lit(part))
            .write.format("delta")
            .mode("overwrite")
            .option("overwriteSchema", "true")
            .option("compression", "none")  # hashes do not compress
            .partitionBy("part")
            .save(self.uri)
        )
        return {part: self._sizes(self._open())[part]}

    def contains(self, parts: Parts, hashes: Hashes) -> npt.NDArray[np.bool_]:
        """Which of the hashes, sorted and distinct, the parts hold.

        Raises:
            LedgerError: the index does not hold these parts as they were written.
        """
        there = np.zeros(len(hashes), bool)
        if not parts:
            return there
        try:
            table = self._open()
            self._require(parts, self._sizes(table))
            data = table.to_pyarrow_dataset(
                file_pruning_predicate=[("part", "in", list(parts))], filesystem=arrow_filesystem(self.uri)
            )
            rows = 0
            for fragment in data.get_fragments():
                for batch in fragment.to_batches(schema=data.schema, columns=["h"]):
                    known = arrow.numbers(batch.column(0))
                    rows += len(known)
                    if len(known):
                        _mark(there, hashes, known)
        except LedgerError:
            raise
        except Exception as error:  # delta-rs and the filesystem raise many kinds
            raise self._unusable(one_line(error)) from error
        if rows != sum(parts.values()):
            raise self._unusable(f"it holds {rows} hashes where {sum(parts.values())} were kept")
        return there

    def add(self, parts: Parts, hashes: Hashes) -> Parts:
        """Adds sorted hashes as a further part; returns all parts. The smallest are merged when there are many."""
        if not len(hashes):
            return parts
        joined = self._to_merge(parts, len(hashes))
        if not joined:
            return {**parts, **self._write(hashes)}
        merged = np.empty(len(hashes) + sum(joined.values()), np.int64)
        merged[: len(hashes)] = hashes
        filled = len(hashes)
        for part, rows in joined.items():
            merged[filled : filled + rows] = self._read(part)
            filled += rows
        merged.sort()
        left = {part: rows for part, rows in parts.items() if part not in joined}
        return {**left, **self._write(merged)}

    def _to_merge(self, parts: Parts, fresh: int) -> dict[str, int]:
        """The parts that new hashes are merged with: none while few are small, else the smallest that memory takes."""
        small = sorted((rows, part) for part, rows in parts.items() if rows < self._large)
        joined: dict[str, int] = {}
        if len(small) >= self._many_parts:
            for rows, part in small:
                fresh += rows
                if fresh > 2 * self._large:
                    break
                joined[part] = rows
        return joined

    def forget(self, before: Parts, now: Parts) -> None:
        """Takes parts out of the table that were merged into another; their files stay until VACUUM."""
        gone = [part for part in before if part not in now]
        if gone:
            named = ", ".join(f"'{part}'" for part in gone)
            self._despite_others(lambda: self._open().delete(f"part IN ({named})"))

    def _write(self, hashes: Hashes, mode: Literal["append", "overwrite"] = "append") -> Parts:
        from deltalake import WriterProperties, write_deltalake

        part = uuid4().hex
        schema = pa.schema([("h", pa.int64()), ("part", pa.string())])

        def batches() -> Iterator[pa.RecordBatch]:
            for first in range(0, len(hashes), _STEP):
                some = arrow.array(hashes[first : first + _STEP])
                yield pa.record_batch([some, pa.repeat(arrow.scalar(part), len(some))], schema=schema)

        self._despite_others(
            lambda: write_deltalake(
                self.uri,
                pa.RecordBatchReader.from_batches(schema, batches()),
                mode=mode,
                schema_mode="overwrite" if mode == "overwrite" else None,
                partition_by=["part"],
                writer_properties=WriterProperties(compression="UNCOMPRESSED"),
                storage_options=delta_rs_options(self.uri, self._options),
            )
        )
        return {part: len(hashes)} if len(hashes) else {}

    def _despite_others(self, write: Callable[[], object]) -> None:
        """Writes, and tries again while others write the index at the same moment."""

        def once() -> None:
            try:
                write()
            except Exception as error:
                if others_wrote(error):
                    raise Contended(f"the index of key hashes {self.uri}", "audit again") from error
                raise self._unusable(one_line(error)) from error

        again(once, Contended, deadline())

    def _read(self, part: str) -> Hashes:
        data = self._open().to_pyarrow_dataset(
            file_pruning_predicate=[("part", "=", part)], filesystem=arrow_filesystem(self.uri)
        )
        return arrow.numbers(data.to_table(columns=["h"])["h"])

    def _open(self) -> DeltaTable:
        from deltalake import DeltaTable

        return DeltaTable(self.uri, storage_options=delta_rs_options(self.uri, self._options))

    def _sizes(self, table: DeltaTable) -> Counter[str]:
        """Rows per part, by the table's own statistics."""
        actions = pa.table(table.get_add_actions(flatten=True))
        sizes: Counter[str] = Counter()
        for part, rows in arrow.tuples(actions, "partition.part", "num_records"):
            sizes[part] += rows or 0
        return sizes

    def _require(self, parts: Parts, sizes: Counter[str]) -> None:
        for part, rows in parts.items():
            if sizes[part] != rows:
                raise self._unusable(f"part {part} has {sizes[part]} hashes where {rows} were kept")

    def _unusable(self, why: str) -> LedgerError:
        return LedgerError(
            f"the index of key hashes {self.uri} cannot be used: {why}; the next audit that can write it makes it anew"
        )


def _mark(there: npt.NDArray[np.bool_], wanted: Hashes, known: Hashes) -> None:
    """Sets `there` where a wanted hash is among the known ones; both are sorted."""
    if np.any(known[1:] < known[:-1]):  # somebody else's file
        known = np.sort(known)
    low, high = np.searchsorted(wanted, known[0]), np.searchsorted(wanted, known[-1], "right")
    mine = wanted[low:high]
    if len(mine):
        at = np.searchsorted(known, mine)  # in range: no wanted one is beyond the last known
        there[low:high] |= known[at] == mine
