"""`compare`: one aggregate over both tables (`sweep`), then only the rows that it cannot clear (`differences`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from recon.base.errors import ConfigError, EvidenceError
from recon.checks.comparison.align import Alignment, align
from recon.checks.comparison.differences import with_differences
from recon.checks.comparison.result import Comparison
from recon.checks.comparison.sides import aligned_side
from recon.checks.comparison.sweep import sweep
from recon.checks.comparison.tolerance import Tolerance
from recon.checks.comparison.values import allowed
from recon.spark.columns import named, path_of
from recon.spark.errors import spark_error
from recon.spark.settings import without_constraints

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SAMPLES = 20
# Spark's time to plan the second query grows faster than the columns: seconds for 50, half a minute for 200, and for
# thousands its planner ends without an answer.
MOST_COLUMNS = 500


def compare(
    left: DataFrame,
    right: DataFrame,
    *,
    key: Sequence[str],
    columns: Sequence[str] | None = None,
    exclude: Sequence[str] = (),
    mapping: Mapping[str, str] | None = None,
    tolerances: Mapping[str, Any] | None = None,
    where: str | None = None,
    left_name: str = "left",
    right_name: str = "right",
    samples: int = SAMPLES,
    same_types: bool = False,
) -> Comparison:
    """Compares two tables row by row: what is missing on the right, extra there, or changed.

    NULL equals NULL, in keys and in values, and nothing else; NaN equals NaN; 0.0 equals -0.0. Text is compared byte by
    byte, so `''`, `' '` and NULL are three values. Types that differ are aligned first (see `common_type`).

    Keys need not be unique. Rows of a key that are equal on both sides are removed, the others are paired in the order
    of their values: a key that occurs twice on the left and once on the right has a missing row.

    Costs one aggregate over both tables. If they differ, a second query reads both again and shuffles only the rows of
    differing buckets. Nothing is cached. Read a table that is written meanwhile at a fixed version, or the two queries
    see different rows.

    Args:
        left: the rows that should have arrived, such as the source's.
        right: the rows to check against them, such as the sink's.
        key: columns that identify a row on both sides, by their names on the left; `a.b` is a field of a struct, and a
            name with a dot or a backtick stands in backticks.
        columns: compare only these; by default all that both sides have. Columns of one side are then no difference.
        exclude: leave these out, whichever side they are on.
        mapping: the right side's name of a left column, where it differs.
        tolerances: per column a number, a duration (`"5 seconds"`) or `{"absolute": …, "relative": …}`.
        where: SQL that both sides' rows must meet, with the left side's names.
        left_name: what the result calls the left table.
        right_name: what the result calls the right table.
        samples: the largest number of examples of each kind of difference and of each column; 0 for none.
        same_types: also differ where types differ.

    Raises:
        ConfigError: an argument does not fit the tables, types cannot be compared, or more than 500 columns are.
        EvidenceError: the rows cannot be read, or changed while they were compared.
    """
    names = (left_name, right_name)
    alignment = align(
        left.schema,
        right.schema,
        key=_listed(key),
        columns=None if columns is None else _listed(columns),
        exclude=_listed(exclude),
        mapping=mapping or {},
        names=names,
    )
    if len(alignment.columns) > MOST_COLUMNS:
        raise ConfigError(
            f"{left_name} and {right_name} have {len(alignment.columns)} columns to compare, and Spark can plan that "
            f"for {MOST_COLUMNS}; compare them in parts, each with some of the columns (columns, or compare_columns of "
            "the check)"
        )
    bounds = _tolerances(tolerances or {}, alignment, names)
    sides = (
        aligned_side(left, alignment, where, left_name),
        aligned_side(right, alignment, where, right_name, renamed=True),
    )
    try:
        swept = sweep(sides, alignment)
        comparison = Comparison(
            left=left_name,
            right=right_name,
            key=tuple(p.name for p in alignment.key),
            compared=tuple(p.name for p in alignment.columns),
            left_rows=swept.left_rows,
            right_rows=swept.right_rows,
            schema=alignment.schema,
            same_types=same_types,
        )
        if not swept.buckets:
            return comparison
        with without_constraints(left.sparkSession):
            comparison = with_differences(comparison, sides, alignment, bounds, swept.buckets, samples)
    except Exception as error:
        raise EvidenceError(
            f"the rows of {left_name} and {right_name} cannot be compared: {spark_error(error)}"
        ) from error
    if not (comparison.missing or comparison.extra or comparison.changed or comparison.tolerated):
        raise EvidenceError(
            f"{left_name} and {right_name} differed when they were first read and no longer when they were read again: "
            "one of them is being written to; compare fixed versions of them"
        )
    return comparison


def _listed(names: Sequence[str]) -> Sequence[str]:
    return (names,) if isinstance(names, str) else names


def _tolerances(written: Mapping[str, Any], alignment: Alignment, names: tuple[str, str]) -> Mapping[str, Tolerance]:
    """The tolerances by column, each of which its column's type allows."""
    columns = {p.name.casefold(): p for p in alignment.columns}
    tolerances = {}
    for name, value in written.items():
        pair = columns.get(named(path_of(name)).casefold())
        if pair is None:
            known = ", ".join(p.name for p in alignment.columns) or "none"
            raise ConfigError(f"tolerances name {name!r}, which is not a compared column; these are compared: {known}")
        tolerance = Tolerance.of(pair.name, value)
        complaint = allowed(pair, tolerance)
        if complaint:
            raise ConfigError(f"the tolerance of {pair.name!r} does not fit {names[0]} and {names[1]}: {complaint}")
        tolerances[pair.name] = tolerance
    return tolerances
