"""Removes doubled rows from a Delta table: one MERGE takes out every row of a doubled offset and puts one back.

Two rows may differ in nothing at all, so that no condition tells them apart: a DELETE would take both. The MERGE's
source has two rows for each such offset: one that matches, by which all its rows are deleted, and one that matches
nothing, by which the row to keep is inserted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from recon.errors import RefusedError
from recon.evidence import delta_log
from recon.model import DeltaCommit, ReconStamp, dump_stamp
from recon.model.wire.app_ids import app_id
from recon.model.wire.columns import BATCH_ID, SOURCE_COLUMNS
from recon.recovery.repair.missing import OWNER, with_owner
from recon.recovery.repair.plan import PlannedRange
from recon.sinks.delta.append import refusing_other_writers
from recon.sinks.delta.commit import committing_with
from recon.spark.columns import literal, quoted
from recon.spark.delta_tables import Merge
from recon.spark.lazy import F
from recon.spark.merge import Clause
from recon.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_KEYS = ("_recon_topic", "_recon_partition", "_recon_offset")
_ROW = "_recon_row"


@dataclass(frozen=True)
class DoubledRows:
    """The doubled rows of some ranges, as a table has them at one version.

    Attributes:
        frame: a row per doubled offset, with the row to keep.
        held: offsets of the ranges that have a row.
        kept: offsets that have several, of each of which one row is kept.
        removed: rows of these offsets.
        unclear: offsets whose rows differ, so that which one is right is not known.
    """

    frame: DataFrame
    held: int
    kept: int
    removed: int
    unclear: int


def doubled_rows(table: DataFrame, ranges: Sequence[PlannedRange]) -> DoubledRows:
    """Looks at the rows of the ranges; one Spark job. The row to keep is one of the micro-batch that owns the range."""
    whole = F.struct(*(F.col(quoted(name)) for name in table.columns))
    owned = F.coalesce(F.col(BATCH_ID) == F.col(OWNER), F.lit(False))
    text = F.to_json(whole)
    grouped = (
        with_owner(table, ranges, "inner")
        .groupBy(*(F.col(name).alias(key) for name, key in zip(SOURCE_COLUMNS, _KEYS, strict=True)))
        .agg(
            F.count(F.lit(1)).alias("n"),
            F.max_by(whole, F.when(owned, 1).otherwise(0)).alias(_ROW),
            F.count_if(owned).alias("owned"),
            F.count_distinct(F.when(owned, text)).alias("of_owner"),
            F.count_distinct(text).alias("texts"),
        )
    )
    several = F.col("n") > 1
    differ = F.when(F.col("owned") > 0, F.col("of_owner") > 1).otherwise(F.col("texts") > 1)
    counts = grouped.agg(
        F.count(F.lit(1)).alias("held"),
        F.count_if(several).alias("kept"),
        F.coalesce(F.sum(F.when(several, F.col("n"))), F.lit(0)).alias("removed"),
        F.count_if(several & differ).alias("unclear"),
    ).collect()[0]
    frame = grouped.filter(several).select(*_KEYS, _ROW)
    return DoubledRows(frame, *(int(counts[name]) for name in ("held", "kept", "removed", "unclear")))


def remove(spark: SparkSession, storage: Storage, rows: DoubledRows, stamp: ReconStamp) -> DeltaCommit:
    """Commits the removal, with recon's stamp, under the number of the stamp.

    Raises:
        RefusedError: another writer took the number, or changed the table at the same moment; nothing was changed.
    """
    before = delta_log.latest_version(storage)
    nothing = [F.lit(None).cast(rows.frame.schema[key].dataType).alias(key) for key in _KEYS]
    to_delete = rows.frame.select(*_KEYS, F.lit(None).cast(rows.frame.schema[_ROW].dataType).alias(_ROW))
    source = to_delete.unionByName(rows.frame.select(*nothing, _ROW))
    pairs = zip(SOURCE_COLUMNS, _KEYS, strict=True)
    same = [f"t.{name} = s.{key}" for name, key in pairs]
    bounds = rows.frame.agg(F.min(_KEYS[2]), F.max(_KEYS[2])).collect()[0]
    near = f"t.{SOURCE_COLUMNS[2]} BETWEEN {literal(bounds[0])} AND {literal(bounds[1])}"
    columns = [field.name for field in rows.frame.schema[_ROW].dataType]  # type: ignore[attr-defined]
    values = {quoted(name): f"s.{_ROW}.{quoted(name)}" for name in columns}
    merge = Merge(
        target=storage.uri,
        source=source,
        on=" AND ".join([*same, near]),
        clauses=[
            Clause(matched=True),
            Clause(matched=False, condition=f"s.{_ROW} IS NOT NULL", values=values),
        ],
    )
    metadata, app, number = dump_stamp(stamp), app_id(stamp.pipeline, stamp.sink), stamp.number or 0
    with committing_with(spark, metadata, app, number), refusing_other_writers(storage.uri, stamp):
        merge.execute()
    commit = delta_log.find_stamped(storage, app, number, after=-1 if before is None else before)
    if commit is None or commit.user_metadata != metadata:
        raise RefusedError(
            f"another writer of pipeline {stamp.pipeline}, sink {stamp.sink} took write {number} at the same moment; "
            "nothing was removed here: run it again",
            number,
        )
    return commit
