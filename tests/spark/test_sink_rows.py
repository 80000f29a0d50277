"""The sink's rows as a witness, on real Delta tables, against plain Python."""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recon.base.errors import EvidenceError
from recon.model import WITHOUT_NUMBER, RowSearch
from recon.model.fingerprint import of_offsets
from recon.model.offsets import Spans
from recon.spark.frames import local_frame
from recon.witness.sink_rows import look_for, read, repeated
from tests.support.data_checks import counted_jobs
from tests.support.messages import same_message

pytestmark = pytest.mark.usefixtures("interpreted")

SCHEMA = "_batch_id bigint, _source_topic string, _source_partition int, _source_offset bigint, payload string"


def told(witness):
    return [
        (g.batch_id, g.topic, g.partition, g.rows, g.present.size, *g.present.hull, g.present, g.fingerprint, g.twice)
        for g in witness.groups
    ]


def expected(rows):
    groups = defaultdict(list)
    for batch, topic, partition, offset in rows:
        groups[batch, topic, partition].append(offset)
    return [
        (
            *key,
            len(found),
            len(set(found)),
            min(found),
            max(found) + 1,
            Spans.of_offsets(found),
            of_offsets(*key[1:], found),
            twice(found),
        )
        for key, found in sorted(groups.items())
    ]


def twice(offsets):
    """Those with two rows each, but for ones that share a word of 64 offsets with one that has more."""
    times = Counter(offsets)
    several = {offset // 64 for offset, rows in times.items() if rows > 2}
    return Spans.of_offsets(offset for offset, rows in times.items() if rows == 2 and offset // 64 not in several)


stretch = st.tuples(
    st.integers(0, 2),
    st.sampled_from(["orders", "payments"]),
    st.integers(0, 1),
    st.sampled_from([0, 63, 64, 2**33]),
    st.integers(0, 400),
    st.sampled_from([1, 64, 200, 9_000]),
    st.integers(1, 70),
)


@given(st.lists(stretch, min_size=1, max_size=6))
@settings(max_examples=10, suppress_health_check=list(HealthCheck))
def test_every_offset_is_told_exactly(spark, stretches):
    rows = [
        (batch, topic, partition, base + at + n)
        for batch, topic, partition, base, at, size, without in stretches
        for n in range(size)
        if n % 71 != without
    ]
    if not rows:
        return
    table = local_frame(spark, [(*r, "x") for r in rows], SCHEMA).repartition(3)
    witness = read(spark, table)
    assert told(witness) == expected(rows)
    assert (witness.rows, witness.unstamped_rows, witness.has_source_columns) == (len(rows), 0, True)


@pytest.fixture(scope="module")
def lake(spark, tmp_path_factory):
    """Three micro-batches of 1,000 offsets on two partitions, then a DELETE."""
    path = str(tmp_path_factory.mktemp("lake") / "orders")
    for batch in range(3):
        spark.range(2_000).selectExpr(
            f"CAST({batch} AS BIGINT) AS _batch_id",
            "'orders' AS _source_topic",
            "CAST(id % 2 AS INT) AS _source_partition",
            f"{batch} * 1000 + id DIV 2 AS _source_offset",
            "'x' AS payload",
        ).write.format("delta").mode("append").save(path)
    spark.sql(f"DELETE FROM delta.`{path}` WHERE _source_partition = 1 AND _source_offset BETWEEN 1100 AND 1899")
    return path


def test_a_table_with_a_hole(spark, lake):
    witness = read(spark, lake)
    assert [(g.batch_id, g.partition, g.rows) for g in witness.groups] == [
        (0, 0, 1000),
        (0, 1, 1000),
        (1, 0, 1000),
        (1, 1, 200),
        (2, 0, 1000),
        (2, 1, 1000),
    ]
    assert witness.groups[3].present == Spans.of([(1000, 1100), (1900, 2000)])
    assert (witness.location, witness.version, witness.rows) == (lake, None, 5200)


def test_a_version_before_the_hole(spark, lake):
    witness = read(spark, lake, version=2)
    assert (witness.rows, witness.version) == (6000, 2)
    assert witness.groups[3].present == Spans.of([(1000, 2000)])


def test_it_is_one_job(spark, lake, tmp_path):
    # Parquet, because Delta's own look into its log is a job too.
    spark.read.format("delta").load(lake).write.parquet(str(tmp_path / "copy"))
    table = spark.read.parquet(str(tmp_path / "copy"))
    with counted_jobs(spark) as jobs:
        assert read(spark, table).rows == 5200
    assert len(jobs) == 1


@pytest.mark.parametrize(
    ("asked", "batches"),
    [
        ({"first_batch": 1}, [1, 2]),
        ({"last_batch": 0}, [0]),
        ({"first_batch": 1, "last_batch": 1}, [1]),
        ({"batches": {0, 2}}, [0, 2]),
        ({"batches": {0, 2}, "first_batch": 1}, [2]),
        ({"batches": set()}, []),
    ],
)
def test_only_the_batches_asked_for(spark, lake, asked, batches):
    witness = read(spark, lake, **asked)
    assert sorted({g.batch_id for g in witness.groups}) == batches
    assert witness.rows == sum(g.rows for g in witness.groups)


def test_rows_nobody_stamped_are_counted_whatever_is_asked(spark):
    rows = [
        (0, "orders", 0, 5, "x"),
        (1, "orders", 0, 6, "x"),
        (None, None, None, None, "x"),
        (None, "orders", 0, 7, "x"),
        (1, "orders", 0, None, "x"),  # stamped, and no offset: in `rows`, in no group
        (1, "orders", None, 8, "x"),
    ]
    table = local_frame(spark, rows, SCHEMA)
    witness = read(spark, table, location="lake/orders")
    assert (witness.location, witness.rows, witness.unstamped_rows) == ("lake/orders", 6, 2)
    assert told(witness) == expected([(0, "orders", 0, 5), (1, "orders", 0, 6)])
    one = read(spark, table, first_batch=1)
    assert (one.rows, one.unstamped_rows, len(one.groups)) == (5, 2, 1)


def test_an_empty_table(spark):
    witness = read(spark, local_frame(spark, [], SCHEMA))
    assert (witness.rows, witness.unstamped_rows, witness.has_source_columns, list(witness.groups)) == (0, 0, True, [])


def test_a_table_without_source_columns_tells_only_its_counts(spark):
    batches = read(spark, local_frame(spark, [(1,), (1,), (None,)], "_batch_id bigint"))
    assert (batches.rows, batches.unstamped_rows, batches.has_source_columns) == (3, 1, False)
    assert list(batches.groups) == []
    foreign = read(spark, spark.range(4), first_batch=3)
    assert (foreign.rows, foreign.unstamped_rows, foreign.has_source_columns) == (4, 4, False)


@pytest.mark.parametrize("version", [None, 99])
def test_what_cannot_be_read_is_named(spark, lake, tmp_path, version):
    where = str(tmp_path / "nowhere") if version is None else lake
    with pytest.raises(EvidenceError) as told:
        read(spark, where, version=version)
    ours, _, deltas = str(told.value).partition(": ")
    assert same_message(ours)
    assert where in ours and deltas and "\n" not in deltas


def test_how_many_rows_offsets_have_that_others_added(spark, tmp_path):
    """Groups by that number: of offset 3 there are two rows, of 4 and 5 three, and another file has 7 twice."""
    target = str(tmp_path / "orders")

    def append(*offsets):
        rows = [(0, "orders", 0, offset, "x") for offset in offsets]
        before = {file.name for file in (tmp_path / "orders").glob("*.parquet")}
        local_frame(spark, rows, SCHEMA).coalesce(1).write.format("delta").mode("append").save(target)
        return {file.name for file in (tmp_path / "orders").glob("*.parquet")} - before

    append(*range(10), 7)
    added = append(3, 4, 5, 4, 5, 20)
    in_files = look_for(spark, target, added)
    found = [(g.batch_id, g.topic, g.partition, g.rows, g.present) for g in repeated(in_files)]
    twice, thrice = ((0, "orders", 0, 2, Spans.of([(3, 4)])), (0, "orders", 0, 6, Spans.of([(4, 6)])))
    assert found == [twice, thrice]
    assert [(g.rows, g.present) for g in in_files] == [(1, Spans.of([(20, 21)])), *(one[3:] for one in found)]
    found = [(g.rows, g.present) for g in repeated(look_for(spark, target, None))]
    assert found == [(4, Spans.of([(3, 4), (7, 8)])), (6, Spans.of([(4, 6)]))]


def test_rows_that_are_looked_for_by_their_offsets_or_because_they_have_no_number(spark, tmp_path):
    """Of all rows of the table with one of these offsets; a thousand ranges are one expression."""
    target = str(tmp_path / "orders")
    rows = [(3, "orders", 0, offset, "x") for offset in range(3_000)]
    rows += [(None, "orders", 0, 7, "x"), (None, "orders", 0, 5_000, "x"), (None, "orders", 1, None, "x")]
    rows += [(3, "orders", 0, 12, "x"), (None, "other", 0, 12, "x")]
    local_frame(spark, rows, SCHEMA).write.format("delta").save(target)

    def found(names=(), **search):
        groups = look_for(spark, target, names, RowSearch(**search))
        return [(g.batch_id, g.topic, g.partition, g.rows, g.present) for g in groups]

    every_third = Spans.of((offset, offset + 1) for offset in range(0, 3_000, 3))
    once = (0, "orders", 0, 999, every_third.minus(Spans.of([(12, 13)])))
    assert found(offsets={("orders", 0): every_third}) == [once, (0, "orders", 0, 2, Spans.of([(12, 13)]))]
    once_unnumbered = [(WITHOUT_NUMBER, "orders", 0, 1, Spans.of([(5_000, 5_001)]))]
    once_unnumbered += [(WITHOUT_NUMBER, "other", 0, 1, Spans.of([(12, 13)]))]
    twice = (WITHOUT_NUMBER, "orders", 0, 2, Spans.of([(7, 8)]))
    assert found(unnumbered=True) == [*once_unnumbered, twice]
    both = found(unnumbered=True, offsets={("orders", 0): Spans.of([(7, 8), (12, 13)])})
    assert both == [*once_unnumbered, (0, "orders", 0, 2, Spans.of([(12, 13)])), twice]
    whole = found(names=None)
    assert sum(rows for *_, rows, _ in whole) == 3_004 and twice in whole
    gone = found(names=["no-such-file.parquet"], offsets={("orders", 0): every_third})
    assert gone == whole, "rows of a file that is no longer part of the table may be in any other"
