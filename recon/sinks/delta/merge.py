"""MERGE into a Delta table by keys: exactly once by `txn`, found again by `userMetadata`.

A MERGE takes its txn and its userMetadata from the session's settings alone. They are set on the micro-batch's own
session for that one statement and put back whatever happens: leaked, they would make Delta drop later writes in
silence. A MERGE with a txn always commits, even one that changes nothing; one that Delta skipped leaves no commit, and
that is how `confirm` tells the two apart.

The rows of a micro-batch are reduced to one per key first, in one shuffle, and kept until the MERGE is over: how many
there were, which keys are NULL and which values prune the target are counted on what was kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self, cast

from recon.errors import SinkError
from recon.evidence import delta_log
from recon.model import ReconStamp, dump_stamp, parse_offsets
from recon.model.offsets import Spans
from recon.model.wire.columns import BATCH_ID, SOURCE_COLUMNS
from recon.project import DeltaMergeSink, Project, Sink
from recon.sinks import failpoints
from recon.sinks.base import Landed
from recon.sinks.delta.append import DeltaAppend, refusing_other_writers
from recon.spark.columns import quoted
from recon.spark.errors import refusal, without_sqlstate
from recon.spark.lazy import F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_CONF = "spark.databricks.delta"
# Columns of ours beside the rows' own, between reduction and MERGE.
_ROWS, _ROW, _GONE, _NEW = "_recon_rows", "_recon_row", "_recon_gone", "_recon_new"
_AT, _END, _UNTIL, _OLD = "_recon_at", "_recon_end", "_recon_until", "_recon_old"
_LITERALS = 1000  # values of a prune column told one by one; more become their range
_PRUNING = ("string", "date", "boolean", "tinyint", "smallint", "int", "bigint", "decimal")
_NO_ORDER = ("map", "variant", "interval")  # types that no hash and no grouping takes
_EXAMPLES = 3


@dataclass(frozen=True, kw_only=True)
class _Counts:
    """What was counted on the reduced rows: rows handed over, rows left, NULLs and extents by column."""

    given: int
    rows: int
    nulls: Mapping[str, int]
    extents: Mapping[str, tuple[Any, Any, int]]  # least, greatest, NULLs


class DeltaMerge(DeltaAppend):
    """Merges micro-batches into the Delta table at a path or URI."""

    def __init__(self, target: str, sink: DeltaMergeSink, *, storage_options: Mapping[str, str] | None = None) -> None:
        """`sink` says how; `target` is where, as an absolute path or URI."""
        super().__init__(target, storage_options=storage_options, partition_by=sink.partition_by, options=sink.options)
        self.sink = sink

    @classmethod
    def of(cls, project: Project, pipeline: str, sink: Sink) -> Self:
        """The writer for a sink of recon.yml."""
        return cls(project.location(sink), cast(DeltaMergeSink, sink), storage_options=project.storage_options)

    # -- write -------------------------------------------------------------------------------------

    def write(self, frame: DataFrame, stamp: ReconStamp) -> None:
        """Reduce the rows to one per key and merge them, with txn and userMetadata.

        Raises:
            SinkError: columns are missing, keys are NULL, or a condition is no SQL; nothing was written.
        """
        if self._seen is None or self._seen < 0:
            latest = delta_log.latest_version(self.storage)
            self._seen = -1 if latest is None else latest
        new = self._seen < 0
        name = f"pipeline {stamp.pipeline}, sink {stamp.sink}: micro-batch {stamp.batch_id}"
        rows = _Source(self.sink, frame, name)
        rows.require_columns(self._partition_by if new else ())
        reduced = rows.reduced().persist()
        try:
            counts = rows.counted(reduced)
            rows.require_keys(counts)
            stamp = replace(stamp, given=counts.given, taken=None if self.sink.scd2 is None else counts.rows)
            self.failpoint(failpoints.REDUCED, stamp)
            if new:
                with refusing_other_writers(self.target, stamp):
                    self._create(rows)
                self.failpoint(failpoints.TABLE_CREATED, stamp)
            if counts.rows:
                self._merge(rows, reduced, counts, stamp)
            else:
                self._commit_nothing(frame.sparkSession, stamp)
        finally:
            reduced.unpersist()

    def _create(self, rows: _Source) -> None:
        """An empty table: a crash after it leaves nothing that the next attempt would not find as it needs it."""
        writer = rows.empty().write.format("delta").mode("ignore").options(**self._options)
        if self._partition_by:
            writer = writer.partitionBy(*self._partition_by)
        writer.save(self.target)

    def _commit_nothing(self, spark: SparkSession, stamp: ReconStamp) -> None:
        """No rows need no MERGE, which would look at the table; the commit says that the micro-batch was here."""
        (
            spark.read.format("delta")
            .load(self.target)
            .limit(0)
            .write.format("delta")
            .mode("append")
            .option("txnAppId", self._app_id(stamp))
            .option("txnVersion", stamp.batch_id)
            .option("userMetadata", dump_stamp(stamp))
            .save(self.target)
        )

    def _merge(self, rows: _Source, reduced: DataFrame, counts: _Counts, stamp: ReconStamp) -> None:
        from delta.tables import DeltaTable
        from pyspark.errors import ParseException

        spark = reduced.sparkSession
        table = DeltaTable.forPath(spark, self.target)
        rows.require_target(table.toDF(), self.target)
        try:
            merging = rows.history(table, reduced, counts) if self.sink.scd2 else rows.newest(table, reduced, counts)
        except ParseException as error:
            raise SinkError(f"{rows.name}: a condition of the sink is no SQL: {without_sqlstate(error)}") from error
        if self.sink.evolve_schema:
            merging = merging.withSchemaEvolution()
        try:
            commit = _as_commit(spark, self._app_id(stamp), stamp.batch_id, dump_stamp(stamp))
            with refusing_other_writers(self.target, stamp), commit:
                merging.execute()
        except Exception as error:
            said = refusal(error)
            if said is None:
                raise
            raise SinkError(
                f"{rows.name} cannot be merged into {self.target}: {said}; nothing of it was written: "
                "correct the sink's conditions or the transform, then restart the query"
            ) from error

    # -- what landed -------------------------------------------------------------------------------

    def rows_of(self, spark: SparkSession, landed: Landed, stamp: ReconStamp) -> DataFrame:
        """The rows of this micro-batch in the files that the commit added; what it copied from others is left out."""
        if landed.version is None:
            raise SinkError(f"{self.target}: no Delta version is known for this micro-batch; nothing to check")
        table = spark.read.format("delta").option("versionAsOf", landed.version).load(self.target)
        files = [path.rsplit("/", 1)[-1] for path in delta_log.added_files(self.storage, landed.version)]
        if not files:
            return table.limit(0)
        mine = table.filter((F.col(BATCH_ID) == stamp.batch_id) & F.col("_metadata.file_name").isin(files))
        if stamp.epoch == 0 or not set(SOURCE_COLUMNS) <= set(table.columns):
            return mine
        # A batch id starts over with an epoch: of an earlier one's rows with this number other offsets were read.
        return mine.filter(_within(stamp))


class _Source:
    """The rows of one micro-batch on their way into the table."""

    def __init__(self, sink: DeltaMergeSink, frame: DataFrame, name: str) -> None:
        self.sink, self.frame, self.name = sink, frame, name
        sensitive = str(frame.sparkSession.conf.get("spark.sql.caseSensitive", "false")).lower() == "true"
        self._fold = (lambda text: text) if sensitive else str.lower
        self._columns = {self._fold(column): column for column in frame.columns}
        self._condition: Column | None = None  # on the target alone, once it is known
        self._types = {field.name: field.dataType.simpleString() for field in frame.schema.fields}

    # -- what must be there ------------------------------------------------------------------------

    def require_columns(self, partition_by: Sequence[str]) -> None:
        """The columns that the sink's keys speak of, of types that they can be."""
        sink = self.sink
        wanted = [("keys", key) for key in sink.keys]
        wanted += [("newer_wins", sink.newer_wins)] if sink.newer_wins else []
        wanted += [("scd2: effective", sink.scd2.effective)] if sink.scd2 else []
        wanted += [("prune_by", prune.column) for prune in sink.prune_by]
        wanted += [("partition_by", column) for column in partition_by]
        missing = [(what, column) for what, column in wanted if self._fold(column) not in self._columns]
        if missing:
            told = ", ".join(f"{column} ({what})" for what, column in missing)
            raise SinkError(
                f"{self.name} has no column {told}; its columns are {', '.join(self.frame.columns)}: keep it in the "
                "transform, or correct the sink in recon.yml; nothing of it was written"
            )
        made = [sink.scd2.valid_to, sink.scd2.is_current] if sink.scd2 else []
        if sink.scd2 and self._fold(sink.scd2.valid_from) != self._fold(sink.scd2.effective):
            made.append(sink.scd2.valid_from)
        for column in made:
            if self._fold(column) in self._columns:
                raise SinkError(
                    f"{self.name} already has a column {column}, which the sink's scd2 makes; rename it in the "
                    "transform, or name the sink's column otherwise"
                )
        for column in self.grain:
            if self._types[column].split("<")[0] in _NO_ORDER:
                raise SinkError(
                    f"{self.name}: key column {column} is a {self._types[column]}, by which rows cannot be grouped; "
                    "choose other keys"
                )
        for column in self.pruning:
            if self._types[column].split("(")[0] not in _PRUNING:
                raise SinkError(
                    f"{self.name}: prune_by column {column} is a {self._types[column]}, whose values do not tell files "
                    f"apart exactly; prune by one of the types {', '.join(_PRUNING)}"
                )

    def require_keys(self, counts: _Counts) -> None:
        """No NULL in a key: it matches nothing, so that each such row would be inserted once more."""
        from functools import reduce

        null = {column: count for column, count in counts.nulls.items() if count}
        if not null:
            return
        bad = reduce(lambda a, b: a | b, (F.col(quoted(column)).isNull() for column in null))
        examples = ""
        if set(SOURCE_COLUMNS) <= set(self.frame.columns):
            found = self.frame.filter(bad).select(*SOURCE_COLUMNS).limit(_EXAMPLES).collect()
            examples = f" (such as {', '.join(f'{topic}-{p} offset {offset}' for topic, p, offset in found)})"
        told = ", ".join(f"{column} is NULL in {count:,}" for column, count in null.items())
        raise SinkError(
            f"{self.name}: key column {told} of {counts.given:,} rows{examples}: a MERGE matches no NULL; repair or "
            "drop the rows in the transform, or put them aside with a post_batch check not_null and on_failure: "
            "quarantine; nothing of it was written"
        )

    def require_target(self, table: DataFrame, target: str) -> None:
        """The target's columns: all of the grain, and without evolve_schema all others of the rows."""
        have = {self._fold(column) for column in table.columns}
        needed = list(self.keys)
        if self.sink.scd2 is not None:
            needed += [self.sink.scd2.valid_from, self.sink.scd2.valid_to, self.sink.scd2.is_current]
        missing = [column for column in needed if self._fold(column) not in have]
        if missing:
            raise SinkError(
                f"{self.name}: the table {target} has no column {', '.join(missing)}, by which rows are merged; its "
                f"columns are {', '.join(table.columns)}: correct the sink in recon.yml, or write to a new table"
            )
        new = [column for column in self.frame.columns if self._fold(column) not in have]
        if new and not self.sink.evolve_schema:
            raise SinkError(
                f"{self.name}: the table {target} has no column {', '.join(new)}; set evolve_schema: true for the "
                "sink, or drop it in the transform; nothing of it was written"
            )

    # -- reduce ------------------------------------------------------------------------------------

    @property
    def keys(self) -> list[str]:
        """The key columns as the rows name them."""
        return [self._columns[self._fold(key)] for key in self.sink.keys]

    @property
    def grain(self) -> list[str]:
        """What there is one row of in the reduced rows: a key, or a key's version."""
        scd2 = self.sink.scd2
        return self.keys if scd2 is None else [*self.keys, self._columns[self._fold(scd2.effective)]]

    @property
    def pruning(self) -> list[str]:
        """The prune columns as the rows name them."""
        return [self._columns[self._fold(prune.column)] for prune in self.sink.prune_by]

    def reduced(self) -> DataFrame:
        """One row per key, the latest, with the number of rows it stands for; one shuffle.

        Rows are ranked by `newer_wins`, `order_by`, offset, partition and topic, and last by a hash of the row, so
        that any two attempts choose the same one, whatever order Spark reads in. NULL ranks lowest.
        """
        from pyspark.errors import AnalysisException

        ranks = [F.col(quoted(self._columns[self._fold(self.sink.newer_wins)]))] if self.sink.newer_wins else []
        ranks += [F.expr(expression) for expression in self.sink.order_by]
        ranks += [F.col(column) for column in reversed(SOURCE_COLUMNS) if column in self.frame.columns]
        hashed = [c for c, kind in self._types.items() if not any(word in kind for word in _NO_ORDER)]
        ranks.append(F.xxhash64(*(F.col(quoted(column)) for column in hashed)))
        whole = F.struct(*(F.col(quoted(column)) for column in self.frame.columns))
        grain = [F.col(quoted(column)) for column in self.grain]
        try:
            # Expressions may name columns alone, or as those of `s`.
            grouped = (
                self.frame.alias("s")
                .groupBy(*grain)
                .agg(F.max_by(whole, F.struct(*ranks)).alias(_ROW), F.count(F.lit(1)).alias(_ROWS))
            )
            reduced = grouped.select(
                *(F.col(f"{_ROW}.{quoted(column)}").alias(column) for column in self.frame.columns), _ROWS
            )
            return reduced.alias("s").withColumn(_GONE, self._gone())
        except AnalysisException as error:
            raise SinkError(
                f"{self.name}: order_by or delete_when cannot be evaluated on its rows: {without_sqlstate(error)}; "
                "nothing was written; correct the sink in recon.yml"
            ) from error

    def _gone(self) -> Column:
        if self.sink.delete_when is None:
            return F.lit(False)
        return F.coalesce(F.expr(self.sink.delete_when), F.lit(False))

    def counted(self, reduced: DataFrame) -> _Counts:
        """The one look at the reduced rows before the MERGE."""
        given = F.coalesce(F.sum(_ROWS), F.lit(0))
        asked = [given.alias("given"), F.count(F.lit(1)).alias("rows")]
        for i, column in enumerate(self.grain):
            null = F.when(F.col(quoted(column)).isNull(), F.col(_ROWS))
            asked.append(F.coalesce(F.sum(null), F.lit(0)).alias(f"null{i}"))
        for i, column in enumerate(self.pruning):
            of = F.col(quoted(column))
            asked += [F.min(of).alias(f"min{i}"), F.max(of).alias(f"max{i}"), F.count_if(of.isNull()).alias(f"none{i}")]
        found = reduced.agg(*asked).collect()[0]
        return _Counts(
            given=found["given"],
            rows=found["rows"],
            nulls={column: found[f"null{i}"] for i, column in enumerate(self.grain)},
            extents={
                column: (found[f"min{i}"], found[f"max{i}"], found[f"none{i}"]) for i, column in enumerate(self.pruning)
            },
        )

    def empty(self) -> DataFrame:
        """The table to be, without rows."""
        scd2, made = self.sink.scd2, self.frame.limit(0)
        if scd2 is None:
            return made
        effective = F.col(quoted(self._columns[self._fold(scd2.effective)]))
        return made.withColumns(
            {
                scd2.valid_from: effective,
                scd2.valid_to: F.when(F.lit(False), effective),
                scd2.is_current: F.lit(True),
            }
        )

    # -- merge -------------------------------------------------------------------------------------

    def newest(self, table: Any, reduced: DataFrame, counts: _Counts) -> Any:
        """The MERGE that keeps one row per key."""
        sink = self.sink
        gone, newer = _of("s", _GONE), F.lit(True)
        if sink.newer_wins is not None:
            column = self._columns[self._fold(sink.newer_wins)]
            newer = (_of("s", column) > _of("t", column)) | _of("t", column).isNull()
        update, insert = newer & ~gone, ~gone
        if sink.update_when is not None:
            update = update & F.expr(sink.update_when)
        if sink.insert_when is not None:
            insert = insert & F.expr(sink.insert_when)
        values = {quoted(column): _of("s", column) for column in self.frame.columns}
        merging = table.alias("t").merge(reduced.drop(_ROWS).alias("s"), self._matches(reduced, counts))
        if sink.delete_when is not None:
            merging = merging.whenMatchedDelete(gone & newer)
        return merging.whenMatchedUpdate(update, values).whenNotMatchedInsert(insert, values)

    def history(self, table: Any, reduced: DataFrame, counts: _Counts) -> Any:
        """The MERGE that keeps every version of a key, whatever order they come in.

        The versions of the touched keys that the table has, and the new ones, are put on one line of time; each holds
        until the next begins. Only what is new or ends otherwise than before is merged.
        """
        from pyspark.sql import Window

        scd2 = self.sink.scd2
        assert scd2 is not None
        keys = [F.col(quoted(key)) for key in self.keys]
        effective = F.col(quoted(self._columns[self._fold(scd2.effective)]))
        touched = reduced.select(*keys).distinct()
        there = (
            table.toDF()
            .alias("t")
            .filter(self._pruned(reduced, counts))
            .join(touched, self.keys, "left_semi")
            .select(*keys, F.col(quoted(scd2.valid_from)).alias(_AT), F.col(quoted(scd2.valid_to)).alias(_END))
        )
        whole = F.struct(*(F.col(quoted(column)) for column in self.frame.columns), _GONE)
        new = reduced.select(*keys, effective.alias(_AT), whole.alias(_ROW))
        # Where a version ended and none follows, a tombstone ended it: that instant stays an end.
        ends = there.filter(F.col(_END).isNotNull()).select(*keys, F.col(_END).alias(_AT))
        line = there.withColumn(_OLD, F.lit(True)).unionByName(new, allowMissingColumns=True)
        points = (
            line.unionByName(ends, allowMissingColumns=True)
            .groupBy(*keys, _AT)
            .agg(
                F.max_by(F.col(_ROW), F.when(F.col(_ROW).isNotNull(), 1)).alias(_ROW),
                F.coalesce(F.bool_or(_OLD), F.lit(False)).alias(_OLD),
                F.max(_END).alias(_END),
            )
            .withColumn(_UNTIL, F.lead(_AT).over(Window.partitionBy(*keys).orderBy(_AT)))
        )
        is_new = F.col(_ROW).isNotNull()
        gone = is_new & F.col(f"{_ROW}.{_GONE}")
        ended = ~F.col(_UNTIL).eqNullSafe(F.col(_END))
        changed = (is_new & ~gone) | (F.col(_OLD) & (gone | ended))
        others = [column for column in self.frame.columns if column not in self.keys]
        source = points.filter(changed).select(
            *keys,
            *(F.col(f"{_ROW}.{quoted(column)}").alias(column) for column in others),
            _AT,
            _UNTIL,
            is_new.alias(_NEW),
            gone.alias(_GONE),
        )
        until = {quoted(scd2.valid_to): _of("s", _UNTIL), quoted(scd2.is_current): _of("s", _UNTIL).isNull()}
        row = {quoted(column): _of("s", column) for column in self.frame.columns}
        version = row | {quoted(scd2.valid_from): _of("s", _AT)} | until
        matches = self._matches(reduced, counts) & (_of("t", scd2.valid_from) == _of("s", _AT))
        merging = table.alias("t").merge(source.alias("s"), matches)
        return (
            merging.whenMatchedDelete(_of("s", _GONE))
            .whenMatchedUpdate(_of("s", _NEW), version)
            .whenMatchedUpdate(~_of("s", _NEW), until)
            .whenNotMatchedInsert(_of("s", _NEW) & ~_of("s", _GONE), version)
        )

    def _matches(self, reduced: DataFrame, counts: _Counts) -> Column:
        from functools import reduce

        pairs = [_of("t", key) == _of("s", key) for key in self.keys]
        return reduce(lambda a, b: a & b, pairs) & self._pruned(reduced, counts)

    def _pruned(self, reduced: DataFrame, counts: _Counts) -> Column:
        """A condition on the target alone: its rows may have no other values than the micro-batch's rows.

        A NULL there (a tombstone may carry nothing but its key) says nothing of the old row: then that column does not
        prune.
        """
        if self._condition is not None:
            return self._condition
        condition = F.lit(True)
        known = [column for column in self.pruning if not counts.extents[column][2]]
        some = reduced.select(*map(quoted, known)).distinct().limit(_LITERALS + 1).collect() if known else []
        for i, column in enumerate(known):
            of, (least, greatest, _) = _of("t", column), counts.extents[column]
            few = len(some) <= _LITERALS
            condition = condition & (of.isin(sorted({row[i] for row in some})) if few else of.between(least, greatest))
        self._condition = condition
        return condition


@contextmanager
def _as_commit(spark: SparkSession, app: str, version: int, metadata: str) -> Iterator[None]:
    """Lets the MERGE inside carry txn and userMetadata, which it takes from the session alone."""
    wanted = {
        f"{_CONF}.write.txnAppId": app,
        f"{_CONF}.write.txnVersion": str(version),
        f"{_CONF}.commitInfo.userMetadata": metadata,
    }
    before = {key: spark.conf.get(key, None) for key in wanted}
    try:
        for key, value in wanted.items():
            spark.conf.set(key, value)
        yield
    finally:
        for key, old in before.items():
            if old is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, old)


def _within(stamp: ReconStamp) -> Column:
    """Rows whose source coordinates lie in the stamp's ranges."""
    found = F.lit(False)
    spans: dict[tuple[str, int], Spans] = {}
    for span in parse_offsets(stamp.offsets_text):
        where = (span.topic, span.partition)
        spans[where] = spans.get(where, Spans()).union(Spans.of([(span.start_offset, span.end_offset)]))
    topic, partition, offset = (F.col(column) for column in SOURCE_COLUMNS)
    for (name, number), ranges in spans.items():
        for start, end in ranges:
            found = found | ((topic == name) & (partition == number) & offset.between(start, end - 1))
    return found


def _of(side: str, column: str) -> Column:
    return F.col(f"{side}.{quoted(column)}")


__all__ = ["DeltaMerge"]
