"""Requires that a release writes each quarantined row at most once, with the stamps that it waited with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from recon.base.errors import ConfigError
from recon.base.text import plural
from recon.model.wire.columns import BATCH_ID, EPOCH, ROW_ID, SOURCE_COLUMNS, STAMPED_COLUMNS
from recon.spark.errors import spark_error
from recon.spark.lazy import F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Entered = Mapping[tuple[int, int], int | None]

_BEFORE = "_recon_before_"  # of a column as it was before the repair


def require_single(rows: DataFrame, table: DataFrame, entered: Callable[[], Entered], place: str) -> None:
    """Requires that nobody doubled rows that wait, by their `_recon_id` or by their source offset.

    A transform may have made several rows of one record: then the micro-batch has no more rows there than it entered.

    Args:
        rows: the rows to be released, before their repair.
        table: all rows of the quarantine table.
        entered: gives the rows that entries of the ledger quarantined, by (epoch, batch_id).
        place: where the quarantine table is, for messages.

    Raises:
        ConfigError: a row is there twice.
    """
    source = [name for name in SOURCE_COLUMNS if name in rows.columns]
    of_batch = [EPOCH, BATCH_ID]
    first = F.concat_ws("-", *source[:2]) if source else F.lit("")
    several = (
        rows.groupBy(*of_batch, *source)
        .agg(F.count(F.lit(1)).alias("n"), F.count_distinct(ROW_ID).alias("ids"))
        .filter("n > 1")
        .groupBy(*of_batch)
        .agg(
            F.sum(F.expr("n - ids")).alias("same"),
            F.sum(F.expr("n - 1")).alias("more"),
            F.min(F.concat(first, F.lit(" offset "), F.col(source[2])) if len(source) > 2 else first).alias("at"),
        )
        .orderBy(*of_batch)
        .collect()
    )
    if not several:
        return
    said = entered() if len(source) > 2 else {}
    for epoch, batch_id, same, more, at in several:
        where = f" ({at})" if at else ""
        step = "delete all but one of each there, or leave them out with `where`, then release again"
        if same:
            raise ConfigError(
                f"{plural(same, 'row')} of {place} {_is(same)} there twice with the same {ROW_ID}{where}: another "
                f"program doubled what waits; {step}"
            )
        counted = said.get((epoch, batch_id))
        if counted is None or epoch < 0:
            continue
        held = table.filter((F.col(EPOCH) == epoch) & (F.col(BATCH_ID) == batch_id)).count()
        if held > counted:
            raise ConfigError(
                f"{place} has {plural(held, 'row')} of micro-batch {batch_id} (epoch {epoch}), which quarantined "
                f"{counted:,}, and {plural(more, 'row')} {_is(more)} there twice by the source offset{where}: another "
                f"program doubled what waits; {step}"
            )


def require_kept(before: DataFrame, after: DataFrame, place: str) -> None:
    """Requires that a repair returned each row once at most, with the `_recon_id` and the stamps that it had.

    Raises:
        ConfigError: it did not, or its rows cannot be computed.
    """
    stamps = [name for name in STAMPED_COLUMNS if name in before.columns]
    was = before.select(*(F.col(name).alias(_BEFORE + name) for name in (ROW_ID, *stamps))).distinct()
    joined = after.select(ROW_ID, *stamps).join(was, F.col(ROW_ID) == F.col(_BEFORE + ROW_ID), "left")
    changed = {name: ~F.col(name).eqNullSafe(F.col(_BEFORE + name)) for name in stamps}
    unknown = F.col(_BEFORE + ROW_ID).isNull()
    of_row = joined.groupBy(ROW_ID).agg(
        (F.count(F.lit(1)) > 1).alias("twice"),
        F.bool_or(unknown).alias("unknown"),
        *(F.bool_or(~unknown & condition).alias(f"changed_{name}") for name, condition in changed.items()),
    )
    flags = ["unknown", *(f"changed_{name}" for name in stamps), "twice"]
    try:
        found = of_row.agg(
            *(F.count_if(flag).alias(flag) for flag in flags),
            *(
                F.min(F.when(F.col(flag), F.coalesce(F.col(ROW_ID), F.lit("NULL")))).alias(f"id_{flag}")
                for flag in flags
            ),
        ).collect()[0]
    except Exception as error:
        raise ConfigError(
            f"what the repair returned cannot be compared with the quarantined rows of {place}: {spark_error(error)}"
        ) from error
    said = {
        "unknown": "returned {rows} with another " + ROW_ID + " than the waiting rows have",
        **{f"changed_{name}": f"changed {name} of {{rows}}" for name in stamps},
        "twice": "returned {rows} more than once",
    }
    for flag in flags:
        if found[flag]:
            raise ConfigError(
                f"the repair {said[flag].format(rows=plural(found[flag], 'row'))} ({ROW_ID} {found[f'id_{flag}']}); "
                f"{ROW_ID} and the stamped columns tell which record each row was made of: return every row once at "
                "most, with these as they were; nothing was released"
            )


def _is(count: int) -> str:
    return "is" if count == 1 else "are"
