"""The fingerprint as Spark computes it per row, against the closed form."""

from __future__ import annotations

import random
from typing import Any

from recon.model.fingerprint import PRIME, of_offsets
from recon.spark.fingerprint import row_fingerprint, total_fingerprint
from recon.spark.observation import Counter

PLACES = [(topic, p) for topic in ("orders", "ünïcode." + "x" * 60) for p in (0, 1, 7, 199)]


def test_spark_and_python_compute_the_same(spark: Any) -> None:
    rng = random.Random(20261122)
    rows = [(t, p, o) for t, p in PLACES for o in (0, 1, 2**31 - 1, 2**31, *(rng.randrange(2**62) for _ in range(40)))]
    frame = spark.createDataFrame(rows, "topic string, `the partition` int, offset long").withColumn(
        "taken", row_fingerprint("topic", "the partition", "offset")
    )
    of_all = total_fingerprint("taken")
    expected = {(t, p): of_offsets(t, p, (o for a, b, o in rows if (a, b) == (t, p))) for t, p in PLACES}
    of_place = frame.groupBy("topic", "the partition").agg(of_all.alias("found")).collect()
    assert {(row[0], row[1]): row[2] for row in of_place} == expected
    assert frame.agg(of_all).first()[0] == sum(expected.values()) % PRIME


def test_columns_of_other_types_never_fail(spark: Any) -> None:
    frame = spark.sql("SELECT 'orders' AS topic, 3L AS partition, '17' AS offset UNION ALL SELECT NULL, NULL, 'x'")
    counter = Counter(frame, ("topic", "partition", "offset"))
    counter.frame.collect()
    assert counter.counted() == (2, of_offsets("orders", 3, [17]))


def test_no_rows_and_no_source_columns(spark: Any) -> None:
    frame = spark.sql("SELECT 'orders' AS topic, 3 AS partition, 5L AS offset")
    none, unknown = Counter(frame.where("offset > 5"), frame.columns), Counter(frame, ("topic", "partition", "missing"))
    none.frame.collect(), unknown.frame.collect()
    assert none.counted() == (0, 0) and unknown.counted() == (1, None)
