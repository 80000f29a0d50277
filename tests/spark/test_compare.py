"""recon.compare on real Spark: against a reference in plain Python, type by type, and how many jobs it takes."""

from __future__ import annotations

import json
import math
import random
from collections import Counter, defaultdict
from decimal import Decimal

import pytest

from recon import ConfigError, EvidenceError, compare
from recon.cli import main
from recon.spark.frames import local_frame
from tests.support.data_checks import counted_jobs
from tests.support.messages import raises

# As in the session that an audit starts.
pytestmark = pytest.mark.usefixtures("ansi", "interpreted")

# --- against a reference ------------------------------------------------------------------------------------

SCHEMA = "k int, part string, i bigint, s string, m decimal(10,3), d double"
KEY, VALUES = ("k", "part"), ("i", "s", "m", "d")
TOLERANCE = 0.0625  # exact in binary, as are the values of d


def _value(rng: random.Random) -> tuple:
    return (
        rng.choice([None, 0, 1, -(2**63), 2**63 - 1]),
        rng.choice([None, "", " ", "a", "a ", "A"]),
        rng.choice([None, Decimal("0.000"), Decimal("1.500")]),
        rng.choice([None, 0.0, -0.0, 0.0625, 1.0, 1.0625, 1.25, math.nan, math.inf]),
    )


def _tables(seed: int) -> tuple[list[tuple], list[tuple]]:
    """400 keys with no to four rows; the right ones are copies that were dropped, doubled or changed."""
    rng = random.Random(seed)
    left, right = [], []
    for k in range(400):
        key = (k if k else None, rng.choice([None, "", "x"]))
        rows = [(*key, *_value(rng)) for _ in range(rng.choice([0, 1, 1, 1, 1, 2, 4]))]
        left += rows
        for row in rows:
            fate = rng.random()
            if fate < 0.1:
                continue
            copy = list(row)
            if fate < 0.2 and copy[5] is not None:
                copy[5] += TOLERANCE
            elif fate < 0.4:
                at = rng.randrange(2, 6)
                copy[at] = _value(rng)[at - 2]
            right += [tuple(copy)] * (2 if fate > 0.95 else 1)
        if rng.random() < 0.05:
            right.append((*key, *_value(rng)))
    rng.shuffle(right)
    return left, right


def _same(a, b) -> bool:
    return a == b or (isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b))


def _near(a, b, tolerance: float | None) -> bool:
    if _same(a, b):
        return True
    return tolerance is not None and a is not None and b is not None and abs(a - b) <= tolerance < math.inf


def _ordered(row: tuple) -> list:
    """As Spark sorts: NULL first, NaN last."""
    return [
        (0,)
        if v is None
        else (2,)
        if isinstance(v, float) and math.isnan(v)
        else (1, v.encode() if isinstance(v, str) else v)
        for v in row
    ]


def _normal(row: tuple) -> tuple:
    return tuple(
        "NaN" if isinstance(v, float) and math.isnan(v) else (v + 0.0 if isinstance(v, float) else v) for v in row
    )


def _expected(left: list[tuple], right: list[tuple], tolerance: float | None) -> dict:
    """The definition, by hand: strike out what is equal, set the rest of a key side by side in order."""
    found: Counter[str] = Counter()
    columns: Counter[str] = Counter()
    keys: dict[tuple, tuple[list, list]] = defaultdict(lambda: ([], []))
    for side, rows in enumerate((left, right)):
        for row in rows:
            keys[row[:2]][side].append(row[2:])
    for ours, theirs in keys.values():
        before = dict(found)
        counted = [Counter(_normal(r) for r in side) for side in (ours, theirs)]
        rest = [
            sorted(
                ((counted[i] - counted[1 - i]).elements()),
                key=lambda r: _ordered([math.nan if v == "NaN" else v for v in r]),
            )
            for i in range(2)
        ]
        rest = [[tuple(math.nan if v == "NaN" else v for v in r) for r in side] for side in rest]
        both = min(map(len, rest))
        found["missing"] += len(rest[0]) - both
        found["extra"] += len(rest[1]) - both
        for one, two in zip(*rest, strict=False):
            differing = [
                name
                for name, a, b in zip(VALUES, one, two, strict=True)
                if not _near(a, b, tolerance if name == "d" else None)
            ]
            columns.update(differing)
            found["changed" if differing else "tolerated"] += 1
        if any(found[kind] != before.get(kind, 0) for kind in ("missing", "extra", "changed")):
            found["duplicate_keys_left"] += len(ours) > 1
            found["duplicate_keys_right"] += len(theirs) > 1
    return {**found, "columns": dict(columns)}


@pytest.mark.parametrize(("seed", "tolerance"), [(1, None), (2, TOLERANCE)])
def test_it_agrees_with_the_definition(spark, seed, tolerance):
    left, right = _tables(seed)
    found = compare(
        local_frame(spark, left, SCHEMA),
        local_frame(spark, right, SCHEMA),
        key=KEY,
        tolerances=None if tolerance is None else {"d": tolerance},
        samples=100_000,
    )
    expected = _expected(left, right, tolerance)
    told = {name: getattr(found, name) for name in expected if name != "columns"}
    assert {**told, "columns": {c.column: c.rows for c in found.columns}} == expected
    assert min(expected[kind] for kind in ("missing", "extra", "changed", "duplicate_keys_left")) > 5  # a real trial
    assert (expected.get("tolerated", 0) > 5) == (tolerance is not None)
    assert (found.left_rows, found.right_rows) == (len(left), len(right))
    assert found.matched == len(right) - found.extra - found.changed
    assert Counter(s.kind for s in found.samples) == {k: expected[k] for k in ("missing", "extra", "changed")}
    assert all(len(c.samples) == c.rows for c in found.columns)
    assert not found.equal


def test_the_same_rows_in_another_order_are_equal(spark):
    rows, _ = _tables(3)
    turned = [tuple(-v if v == 0 and isinstance(v, float) else v for v in row) for row in reversed(rows)]
    found = compare(local_frame(spark, rows, SCHEMA), local_frame(spark, turned, SCHEMA), key=KEY)
    assert (found.equal, found.matched, found.samples, found.columns) == (True, len(rows), (), ())


# --- what it costs ------------------------------------------------------------------------------------------


def test_rows_are_paired_without_constraints_and_the_session_is_as_before(spark, monkeypatch):
    from recon.checks.comparison import engine

    name, seen = "spark.sql.constraintPropagation.enabled", []

    def paired(*arguments):
        seen.append(spark.conf.get(name))
        return with_differences(*arguments)

    with_differences = engine.with_differences
    monkeypatch.setattr(engine, "with_differences", paired)
    one, other = (local_frame(spark, [(1, value)], "id int, v int") for value in (1, 2))
    before = spark.conf.get(name)
    assert compare(one, other, key=["id"]).changed == 1
    assert (seen, spark.conf.get(name)) == (["false"], before)


@pytest.fixture(scope="module")
def lake(spark, tmp_path_factory):
    """Parquet, so that every job counted is ours and none Delta's."""
    folder = tmp_path_factory.mktemp("compare")
    rows = spark.range(3_000).selectExpr("id", "id % 7 AS a", "CAST(id AS STRING) AS b", "id / 8D AS c")
    rows.repartition(3).write.parquet(f"{folder}/left")
    rows.repartition(2).write.parquet(f"{folder}/same")
    rows.where("id != 11").selectExpr("id", "IF(id = 20, 99, a) AS a", "b", "c + 0.0625D AS c").write.parquet(
        f"{folder}/other"
    )
    return lambda name: spark.read.parquet(f"{folder}/{name}")


def test_equal_tables_are_one_job_and_others_two(spark, lake):
    left, same, other = lake("left"), lake("same"), lake("other")  # Spark reads the schema of a file in a job
    with counted_jobs(spark) as equal:
        assert compare(left, same, key=["id"]).equal
    with counted_jobs(spark) as different:
        found = compare(left, other, key=["id"], exclude=["c"], samples=1)
    assert (len(equal), len(different)) == (1, 2)
    # Counts and examples stand on one reading: one stage that reads, one for each of them, one that unites them.
    tracker = spark.sparkContext.statusTracker()
    assert len(tracker.getJobInfo(max(different)).stageIds) == 4
    assert (found.missing, found.changed, found.matched) == (1, 1, 2998)
    missing, changed = found.samples
    assert (missing.kind, missing.key, missing.left, missing.right) == (
        "missing",
        {"id": 11},
        {"a": 4, "b": "11"},
        None,
    )
    assert (changed.key, changed.left, changed.right) == ({"id": 20}, {"a": 6}, {"a": 99})
    assert [(c.column, c.rows, c.max_difference) for c in found.columns] == [("a", 1, 93.0)]


def test_a_tolerance_makes_lawful_what_differs_everywhere(lake):
    found = compare(lake("left"), lake("other"), key=["id"], columns=["c"], where="id > 20", tolerances={"c": 0.0625})
    assert (found.equal, found.tolerated, found.matched) == (True, 2979, 2979)
    apart = compare(lake("left"), lake("other"), key=["id"], columns=["c"], where="id > 20", samples=0)
    assert (apart.changed, apart.samples) == (2979, ())
    assert apart.columns[0].max_difference == pytest.approx(0.0625)


def test_many_rows_of_one_key_are_no_cross_product(spark):
    left = spark.range(30_000).selectExpr("CAST(NULL AS INT) AS k", "id AS v")
    right = spark.range(30_000).selectExpr("CAST(NULL AS INT) AS k", "IF(id < 10, -id - 1, id) AS v")
    found = compare(left, right, key=["k"], samples=2)
    assert (found.matched, found.changed, found.missing, found.extra) == (29_990, 10, 0, 0)
    assert (found.duplicate_keys_left, found.duplicate_keys_right) == (1, 1)
    assert {s.left_rows for s in found.samples} == {30_000}


def test_no_rows(spark):
    left = local_frame(spark, [(1, 2)], "id int, a int")
    empty = compare(left.where("id > 5"), left.where("id > 5"), key=["id"])
    assert (empty.equal, empty.left_rows, empty.right_rows) == (True, 0, 0)
    gone = compare(left, left.where("id > 5"), key=["id"])
    assert (gone.equal, gone.missing, gone.right_rows) == (False, 1, 0)


# --- values -------------------------------------------------------------------------------------------------


def test_values_that_a_careless_hash_takes_for_equal(spark):
    schema = "id int, a string, b string, x array<int>, y array<int>, s struct<p: int, q: int>, z binary"
    left = [
        (1, None, "a", None, None, None, None),
        (2, "ab", "c", None, None, None, None),
        (3, "", None, None, None, None, None),
        (4, None, None, [1], [2], None, None),
        (5, None, None, [None, 1], None, None, None),
        (6, None, None, None, None, (None, 1), None),
        (7, None, None, None, None, None, b""),
        (8, None, None, [], None, None, None),
        (9, "a", "a", [1, None], [2], (1, None), b"a"),
        (10, None, None, None, None, (None, None), None),
    ]
    right = [
        (1, "a", None, None, None, None, None),
        (2, "a", "bc", None, None, None, None),
        (3, None, "", None, None, None, None),
        (4, None, None, [1, 2], [], None, None),
        (5, None, None, [1, None], None, None, None),
        (6, None, None, None, None, (1, None), None),
        (7, None, None, None, None, None, None),
        (8, None, None, None, None, None, None),
        (9, "a", "a", [1, None], [2], (1, None), b"a"),
        (10, None, None, None, None, None, None),
    ]
    found = compare(local_frame(spark, left, schema), local_frame(spark, right, schema), key=["id"])
    assert (found.matched, found.changed) == (1, 9)
    by_column = {c.column: sorted(s.key["id"] for s in c.samples) for c in found.columns}
    assert by_column == {"a": [1, 2, 3], "b": [1, 2, 3], "x": [4, 5, 8], "y": [4], "s": [6, 10], "z": [7]}


def test_types_are_aligned_and_told(spark):
    left = spark.sql(
        "SELECT 1 AS id, CAST(1.5 AS DECIMAL(5,1)) AS amount, DATE'2026-11-01' AS day, '7' AS text, true AS flag, "
        "TIMESTAMP'2026-11-01 06:00:00' AS at, ARRAY(1) AS list, 'abc' AS word, CAST(NULL AS INT) AS gone"
    )
    right = spark.sql(
        "SELECT 1L AS ID, CAST(1.5 AS DECIMAL(9,3)) AS amount, TIMESTAMP_NTZ'2026-11-01 00:00:00' AS day, 7 AS text, "
        "1 AS flag, TIMESTAMP_NTZ'2026-11-01 06:00:00' AS at, ARRAY(1L) AS list, 5 AS word, 1 AS more"
    )
    found = compare(left, right, key=["id"], exclude=["gone", "more"])
    assert (found.changed, [c.column for c in found.columns]) == (1, ["word"])  # text that is no number fails nothing
    assert (found.samples[0].left, found.samples[0].right) == ({"word": "abc"}, {"word": "5"})
    assert {s.column: s.compared_as for s in found.schema} == {
        "id": "bigint",
        "amount": "decimal(9,3)",
        "day": "timestamp_ntz",
        "text": "string",
        "flag": "int",
        "at": "timestamp",
        "list": "array<bigint>",
        "word": "string",
    }
    one_sided = compare(left, right, key=["id"], exclude=["word"])
    assert (one_sided.changed, one_sided.equal) == (0, False)
    assert compare(left, right, key=["id"], exclude=["word", "gone", "more"]).equal
    assert not compare(left, right, key=["id"], columns=["amount"], same_types=True).equal


def test_tolerances_of_every_kind(spark):
    schema = "id int, n bigint, m decimal(12,2), r double, day date"
    at, zoned = "TIMESTAMP_NTZ'2026-03-29 01:59:58'", "TIMESTAMP'2026-03-29 00:59:58.25'"
    from datetime import date

    low, high = -(2**63), 2**63 - 1
    left = local_frame(spark, [(1, 10, Decimal("1.00"), 100.0, date(2026, 11, 1)), (2, low, None, 1.0, None)], schema)
    right = local_frame(
        spark, [(1, 12, Decimal("1.01"), 100.5, date(2026, 11, 2)), (2, high, Decimal(0), math.inf, None)], schema
    )
    left = left.selectExpr("*", f"{at} AS at", f"{zoned} AS zoned")
    right = right.selectExpr(
        "*", f"{at} + INTERVAL '4.5' SECOND AS at", f"{zoned} + INTERVAL '01:00:00' HOUR TO SECOND AS zoned"
    )
    close = {"n": 2, "m": "0.01", "r": "0.5%", "day": "1 day", "at": "4500 milliseconds", "zoned": "1 hour"}
    found = compare(left, right, key=["id"], tolerances=close)
    assert (found.tolerated, found.changed) == (1, 1)
    assert {c.column: (c.rows, c.max_difference) for c in found.columns} == {
        "n": (1, float(high - low)),
        "m": (1, None),
        "r": (1, None),
    }
    short = {
        "n": 1,
        "m": "0.009",
        "r": {"relative": 0.004},
        "day": "23 hours",
        "at": "4499 milliseconds",
        "zoned": "3599 seconds",
    }
    apart = compare(left.where("id = 1"), right.where("id = 1"), key=["id"], tolerances=short)
    assert {c.column: c.max_difference for c in apart.columns} == {
        "n": 2.0,
        "m": 0.01,
        "r": 0.5,
        "day": 86_400.0,
        "at": 4.5,
        "zoned": 3_600.0,
    }


def test_odd_names_mapping_and_where(spark):
    left = local_frame(spark, [(1, "a", 1, 0), (2, "b", 2, 0)], "`order.id` int, `a b` string, `back``tick` int, x int")
    right = local_frame(spark, [("b", 1, 2, 0), ("b", 2, 3, 0)], "`c` string, `key` int, `back``tick` int, y int")
    found = compare(
        left,
        right,
        key=["`order.id`"],
        mapping={"`order.id`": "key", "`a b`": "c", "x": "y"},
        where="`order.id` > 1",
        left_name="src",
        right_name="dst",
    )
    (row,) = found.samples
    assert (row.key, row.left, row.right) == ({"`order.id`": 2}, {"`back``tick`": 2}, {"`back``tick`": 3})
    with raises(ConfigError):
        compare(left, right, key=["`order.id`"], mapping={"`order.id`": "key"}, where="nope > 1", left_name="src")
    for tolerances in ({"x": "5 seconds"}, {"a b": 1}, {"q": 1}):
        with raises(ConfigError):
            compare(
                left,
                right,
                key=["`order.id`"],
                mapping={"`order.id`": "key", "a b": "c", "x": "y"},
                tolerances=tolerances,
            )


def test_fields_of_structs_are_compared_and_mapped(spark):
    left = local_frame(spark, [((1, 5), 7), ((2, 6), 8)], "`the row` struct<`a.id`: int, v: int>, k0 int")
    right = local_frame(
        spark, [(1, (1, 5), 7), (2, (2, 9), 8)], "id int, `the row` struct<`a.id`: int, v: int>, k0 int"
    )
    found = compare(
        left,
        right,
        key=["the row.`a.id`"],
        columns=["`the row`.v", "k0"],
        mapping={"`the row`.`a.id`": "id"},
        tolerances={"the row.v": 1},
        where="k0 > 7",
    )
    (row,) = found.samples
    assert (row.key, row.left, row.right) == ({"the row.`a.id`": 2}, {"the row.v": 6}, {"the row.v": 9})
    assert (found.left_rows, found.right_rows) == (1, 1)


def test_more_columns_than_spark_can_plan_are_refused_before_anything_runs(spark):
    wide = spark.range(3).selectExpr("id", *(f"{n} AS c{n}" for n in range(2_000)))
    with counted_jobs(spark) as jobs, raises(ConfigError):
        compare(wide, wide, key=["id"])
    assert not jobs
    assert compare(wide, wide, key=["id"], columns=["c1", "c1999"]).equal


def test_rows_that_cannot_be_read(spark, tmp_path):
    spark.range(10).coalesce(1).write.parquet(f"{tmp_path}/t")
    table = spark.read.parquet(f"{tmp_path}/t")
    next((tmp_path / "t").glob("part-*")).unlink()
    with raises(EvidenceError):
        compare(table, spark.range(10), key=["id"])


def test_a_table_that_moves_is_not_called_equal(spark, tmp_path):
    """What differed at first and is equal on reading again proves nothing."""
    path = f"{tmp_path}/t"
    spark.range(10).coalesce(1).write.parquet(path)
    from pyspark.sql import functions as F

    # Not by Arrow: PySpark 4.2.0 would wait without end for a function over Parquet (docs/compatibility.md).
    @F.udf("long", useArrow=False)
    def moving(value):  # 100 until the file says otherwise
        import pathlib

        mark = pathlib.Path(path) / "_second"
        if value == 9 and not mark.exists():
            mark.touch()
            return 100
        return value

    table = spark.read.parquet(path)
    with raises(EvidenceError):
        compare(
            table.select("id", moving(F.col("id")).alias("v")), table.select("id", F.col("id").alias("v")), key=["id"]
        )


# --- the command --------------------------------------------------------------------------------------------


def test_the_command(spark, lake, tmp_path, monkeypatch, capsys):
    lake("left").write.format("delta").save(f"{tmp_path}/orders")
    lake("other").withColumnRenamed("a", "total").write.parquet(f"{tmp_path}/source.parquet")
    (tmp_path / "recon.yml").write_text(
        "name: lake\nledger: _recon\ntables: [{name: source, format: parquet, target: source.parquet}]\n"
        "pipelines: [{name: orders, checkpoint: cp, sinks: [{name: orders, target: orders}]}]\n"
    )
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        with pytest.raises(SystemExit) as end:
            main(["compare", "source", "orders", "--map", "total=a", *arguments])
        told = capsys.readouterr()
        return end.value.code, told.out, told.err

    close = ("--tolerance", "c=0.0625")
    code, out, _ = run("--key", "id", *close, "--output", "json")
    told = json.loads(out)
    assert (code, told["extra"], told["changed"], told["left"]) == (1, 1, 1, "source")
    code, out, _ = run("--key", "id,b", *close, "--where", "id > 20")
    assert (code or 0) == 0
    assert out.startswith("source and orders are equal (2,979 rows)")
    code, _, err = run("--key", "idd")
    assert code == 2
    assert "key names 'idd', which source does not have; did you mean 'id'?" in err
    code, _, err = run("--key", "id", "--tolerance", "c")
    assert (code, "--tolerance 'c' is not of the form column=bound" in err) == (2, True)
