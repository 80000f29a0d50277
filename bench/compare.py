"""Comparing two Delta tables by key, against a hand-written full outer join: 10 million rows, or 200 columns.

Floor: one full outer join on the key, in the same session, that counts the rows missing on either side and those of
which any other column differs; it tells neither which rows these are nor which columns. Ours:
`recon.compare` with its examples. The tables are kept in bench/.work.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any

ROWS = 10_000_000
CHANGED = 1_000
MISSING = 100
WIDE_ROWS = 10_000
RUNS = 3

_WORK = Path(__file__).with_name(".work") / f"compare-{ROWS}"


def equal() -> dict[str, Any]:
    """Both tables hold the same rows, in different files and order."""
    return _run("compare_equal", "same", (0, 0))


def different() -> dict[str, Any]:
    """1,000 rows are changed in one column, and 100 are missing."""
    return _run("compare_different", "other", (CHANGED, MISSING))


def wide() -> dict[str, Any]:
    """10,000 rows of 200 columns, of which one value differs."""
    return _run("compare_wide", "wide_other", (1, 0), left="wide", write=_write_wide)


def _run(
    name: str, right: str, wanted: tuple[int, int], left: str = "left", write: Callable[[Any], None] | None = None
) -> dict[str, Any]:
    from recon.local.spark import spark_session

    spark = spark_session(name, conf={"spark.driver.memory": "6g"})
    try:
        (write or _write)(spark)

        def ours(part: str) -> tuple[int, int]:
            from recon.checks.comparison import compare

            comparison = compare(_table(spark, left), _table(spark, right), key=["id"], where=part)
            assert comparison.extra == 0
            return comparison.changed, comparison.missing

        def floor(part: str) -> tuple[int, int]:
            return _join(_table(spark, left).where(part), _table(spark, right).where(part))

        took = _alternate(ours, floor, wanted)
    finally:
        spark.stop()
    return {"name": name, **took, "ratio": took["ours"] / took["floor"], "unit": "s", "peers": {}}


def _table(spark: Any, name: str) -> Any:
    return spark.read.format("delta").load(str(_WORK / name))


def _write(spark: Any) -> None:
    """The three tables, unless they are there; the right ones are written in another order."""
    rows = spark.range(0, ROWS, 1, 8).selectExpr(
        "id",
        "concat('order-', lpad(hex(xxhash64(id)), 16, '0')) AS reference",
        "CAST(pmod(xxhash64(id, 1), 10000000) / 100 AS DECIMAL(12, 2)) AS amount",
        "pmod(xxhash64(id, 2), 1000003) / 977D AS weight",
        "timestamp_micros(1760000000000000 + id * 1000 + pmod(xxhash64(id, 3), 1000)) AS ordered_at",
        "CAST(pmod(xxhash64(id, 4), 100) AS INT) AS quantity",
        "pmod(xxhash64(id, 5), 10) < 3 AS express",
        "IF(id % 50 = 0, NULL, concat('customer ', pmod(xxhash64(id, 6), 500000))) AS customer",
    )
    step = ROWS // CHANGED
    changed = rows.selectExpr("*", f"id % {step} = 7 AS hit").selectExpr(
        "id",
        "reference",
        "IF(hit, amount + 1, amount) AS amount",
        "weight",
        "ordered_at",
        "quantity",
        "express",
        "customer",
    )
    other = changed.where(f"id % {ROWS // MISSING} != 11")
    _keep("left", rows)
    _keep("same", rows.repartition(6, "reference"))
    _keep("other", other.repartition(6, "reference"))


def _write_wide(spark: Any) -> None:
    """Two tables of 199 columns of numbers and text beside the key."""
    columns = [f"xxhash64(id, {n}) AS n{n}" if n % 2 else f"hex(xxhash64(id, {n})) AS s{n}" for n in range(199)]
    rows = spark.range(0, WIDE_ROWS, 1, 2).selectExpr("id", *columns)
    _keep("wide", rows)
    _keep("wide_other", rows.withColumn("n99", rows.n99 + (rows.id == WIDE_ROWS // 2).cast("long")))


def _keep(name: str, table: Any) -> None:
    if not (_WORK / name / "_delta_log").exists():
        table.write.format("delta").save(str(_WORK / name))


def _join(left: Any, right: Any) -> tuple[int, int]:
    """(changed, missing) by the join that one would write by hand."""
    from pyspark.sql import functions as F

    l, r = left.alias("l"), right.alias("r")  # noqa: E741
    columns = [c for c in left.columns if c != "id"]
    differs = reduce(lambda a, b: a | b, (~F.col(f"l.{c}").eqNullSafe(F.col(f"r.{c}")) for c in columns))
    there = F.col("l.id").isNotNull() & F.col("r.id").isNotNull()
    counts = (
        l.join(r, F.col("l.id") == F.col("r.id"), "full_outer")
        .agg(
            F.count_if(F.col("r.id").isNull()).alias("missing"),
            F.count_if(F.col("l.id").isNull()).alias("extra"),
            F.count_if(there & differs).alias("changed"),
        )
        .collect()[0]
    )
    assert counts["extra"] == 0
    return counts["changed"], counts["missing"]


def _alternate(
    ours: Callable[[str], tuple[int, int]], floor: Callable[[str], tuple[int, int]], wanted: tuple[int, int]
) -> dict[str, float]:
    """Medians of alternating runs in seconds, after a tenth of the rows as warm-up; who is first alternates, too."""
    times: dict[str, list[float]] = {"ours": [], "floor": []}
    work = {"ours": ours, "floor": floor}
    for side in work.values():
        side(f"id < {ROWS // 10}")
    for n in range(RUNS):
        for name in ("ours", "floor") if n % 2 else ("floor", "ours"):
            began = time.perf_counter()
            counts = work[name]("id >= 0")
            assert counts == wanted, (name, counts, wanted)
            times[name].append(time.perf_counter() - began)
    print(json.dumps({name: [round(t, 2) for t in taken] for name, taken in times.items()}))
    return {name: statistics.median(taken) for name, taken in times.items()}
