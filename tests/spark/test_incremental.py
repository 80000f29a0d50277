"""Incremental checks on real Delta tables, fed by stamped appends as the hook makes; a full scan is the measure."""

from __future__ import annotations

import random
import shutil
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from pyspark.sql import functions as F

from recon.audits import incremental
from recon.base.clock import utc_now
from recon.base.storage import Storage
from recon.checks.bound import Bound
from recon.checks.data.sketch import histogram, merged, quantile
from recon.checks.data_check import Measure, RowCheck, count_if, greatest, least, total
from recon.checks.engine.context import ScanContext
from recon.checks.engine.runner import run_table
from recon.model import CheckResult, LedgerEntry, ReconStamp, Verdict, dump_stamp, offsets_text
from recon.model.offsets import OffsetSpan
from recon.project import CheckConfig, DeltaSink, LedgerConfig, Pipeline, Project
from recon.spark.frames import local_frame
from recon.spark.releases import from_arrow
from recon.witness.delta_log import added_files
from recon.write.ledger import open_ledger
from recon.write.ledger.state import STATE
from recon.write.ledger.store import open_store
from recon.write.sinks.delta.append import DeltaAppend, app_id
from tests.support.data_checks import bound, counted_jobs, local_table

SCHEMA = (
    "id long, a string, b string, status string, amount double, price decimal(38,2), day date, at timestamp, ok boolean"
)

ARROW_SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("a", pa.string()),
        ("b", pa.string()),
        ("status", pa.string()),
        ("amount", pa.float64()),
        ("price", pa.decimal128(38, 2)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("ok", pa.bool_()),
    ]
)


@dataclass(frozen=True, kw_only=True)
class Figures(RowCheck):
    """Every mergeable aggregate on every type, as evidence."""

    test: ClassVar[str] = "figures"

    def measures(self) -> dict[str, Measure]:
        of = {name: F.col(name) for name in ("id", "a", "amount", "price", "day", "at", "ok")}
        extents = {f"least {n}": least(c) for n, c in of.items()} | {
            f"greatest {n}": greatest(c) for n, c in of.items()
        }
        return {
            **extents,
            "sum id": total(F.col("id")),
            "sum price": total(F.col("price")),
            "sum amount": total(F.when(~F.isnan("amount"), F.col("amount"))),
            "nulls": count_if(F.col("a").isNull()),
        }

    def judge(self, measured: Any) -> Verdict:
        return Verdict(evidence={"measured": dict(measured)})


@dataclass
class Fed:
    """A table fed batch by batch, and its incremental audits."""

    spark: Any
    folder: Path
    partition_by: tuple[str, ...] = ()

    @property
    def table(self) -> Path:
        return self.folder / "orders"

    @property
    def project(self) -> Project:
        sink = DeltaSink(name="s", target="orders")
        return Project(
            name="p",
            ledger=LedgerConfig(location="_recon"),
            project_dir=self.folder,
            pipelines=(Pipeline(name="p", checkpoint="cp", sinks=(sink,)),),
        )

    def stamp(self, batch_id: int, epoch: int = 0) -> ReconStamp:
        spans = (OffsetSpan("t", None, 0, batch_id * 10, batch_id * 10 + 10),)
        return ReconStamp(
            pipeline="p",
            sink="s",
            epoch=epoch,
            batch_id=batch_id,
            query_id="q",
            run_id=None,
            prev_hash="",
            offsets_text=offsets_text(spans),
            number=1000 * epoch + batch_id + 1,
        )

    def append(self, batch_id: int, rows: list[tuple], epoch: int = 0, txn_app_id: str | None = None) -> None:
        """A micro-batch as the sink writes it, its rows written by deltalake: Spark takes seconds for each commit."""
        stamp = self.stamp(batch_id, epoch)
        write_deltalake(
            self.table,
            pa.Table.from_arrays(
                [pa.array(list(c), f.type) for c, f in zip(zip(*rows, strict=True), ARROW_SCHEMA, strict=True)],
                schema=ARROW_SCHEMA,
            ),
            mode="append",
            partition_by=self.partition_by or None,
            commit_properties=CommitProperties(
                custom_metadata={"userMetadata": dump_stamp(stamp)},
                app_transactions=[Transaction(txn_app_id or app_id("p", "s"), stamp.number or 0)],
            ),
        )
        self.enter(batch_id, epoch, "committed", DeltaTable(self.table).version())

    def append_by_spark(self, batch_id: int, rows: list[tuple], epoch: int = 0) -> None:
        """The same through the sink's own writer."""
        writer = DeltaAppend(str(self.table), partition_by=self.partition_by)
        stamp = self.stamp(batch_id, epoch)
        writer.write(local_table(self.spark, rows, SCHEMA), stamp)
        self.enter(batch_id, epoch, "committed", writer.confirm(stamp).version)

    def enter(self, batch_id: int, epoch: int, status: Any, version: int | None) -> None:
        entry = LedgerEntry(
            pipeline="p",
            sink="s",
            sequence=0,
            sink_kind="delta",
            target=str(self.table),
            guarantee="exactly-once",
            query_id="q",
            run_id=None,
            epoch=epoch,
            batch_id=batch_id,
            attempt=1,
            status=status,
            rows_read=None,
            rows_written=None,
            rows_quarantined=None,
            rows_filtered=None,
            sink_version=version,
            started_at=utc_now(),
            committed_at=utc_now(),
            spark_version=None,
            recon_version="0",
            checks_fingerprint=None,
            prev_hash="",
            entry_hash="",
            offsets=(OffsetSpan("t", None, 0, batch_id * 10, batch_id * 10 + 10),),
        )
        open_ledger(self.project).append(entry)

    def version(self) -> int:
        return DeltaTable(self.table).version()

    def compact(self) -> None:
        """OPTIMIZE, by deltalake."""
        DeltaTable(self.table).optimize.compact()

    def sql(self, statement: str) -> None:
        self.spark.sql(statement.format(table=f"delta.`{self.table}`"))

    def started(self, bounds: list[Bound], **options: Any):
        pipeline = self.project.pipelines[0]
        sink_scan = incremental.SinkScan(
            project=self.project, pipeline=pipeline, sink=pipeline.sinks[0], spark=self.spark, **options
        )
        return incremental.results(sink_scan, bounds, utc_now, ScanContext())

    def audit(self, bounds: list[Bound], **options: Any) -> list[CheckResult]:
        return list(self.started(bounds, **options))

    def full(self, bounds: list[Bound]) -> list[CheckResult]:
        """The same checks on all rows of the table, which deltalake reads."""
        rows = DeltaTable(self.table).to_pyarrow_table()
        table = from_arrow(self.spark, rows, SCHEMA).coalesce(1)
        return list(run_table(bounds, table, str(self.table), utc_now))


def checks(**config: Any) -> list[Bound]:
    """All that can be added up, each `incremental`."""
    some = [
        bound("not_null", column_name="a"),
        bound("accepted_values", {"where": "id % 3 = 0"}, column_name="status", values=["new", "paid"]),
        bound("unique", {"where": "id % 5 != 0"}, column_name="amount"),
        bound("unique_combination_of_columns", combination_of_columns=["a", "lower(b)"]),
        bound("column_quantile", column_name="id", quantile=0.9, min_value=0, approx=True),
    ]
    figures = Bound(check=Figures(), config=CheckConfig(), unique_id="", name="figures", pipeline="p", sink="s")
    return [
        replace(b, unique_id=f"test.p.{n}", config=b.config.model_copy(update={"incremental": True, **config}))
        for n, b in enumerate([*some, figures])
    ]


def scans(results: list[CheckResult]) -> list[str]:
    return [r.evidence["incremental"]["scan"] for r in results]


def because(results: list[CheckResult]) -> set[str]:
    return {r.evidence["incremental"].get("because", "") for r in results}


def without_scan(results: list[CheckResult]) -> list[Any]:
    return [
        (r.status, r.failures, r.message, {k: v for k, v in r.evidence.items() if k not in ("incremental", "measured")})
        for r in results
    ]


def assert_as_full(fed: Fed, found: list[CheckResult], bounds: list[Bound]) -> None:
    whole = fed.full(bounds)
    assert without_scan(found) == without_scan(whole)
    mine, theirs = dict(found[-1].evidence["measured"]), dict(whole[-1].evidence["measured"])
    assert mine.pop("sum amount") == pytest.approx(theirs.pop("sum amount"), rel=1e-12)
    # NaN differs from itself; as text it does not.
    assert {k: repr(v) for k, v in mine.items()} == {k: repr(v) for k, v in theirs.items()}


def some_rows(chance: random.Random, first: int, count: int) -> list[tuple]:
    def maybe(value: Any) -> Any:
        return None if chance.random() < 0.1 else value

    return [
        (
            i if chance.random() < 0.8 else i - 1,
            maybe(chance.choice("xyzäß")),
            maybe(str(chance.randrange(40))),
            maybe(chance.choice(["new", "paid", "odd"])),
            maybe(chance.choice([0.0, -0.0, float("nan"), 1e300, chance.uniform(-1e6, 1e6)])),
            maybe(Decimal(chance.randrange(10**30)).scaleb(-2)),
            maybe(date(2026, 1, 1) + timedelta(days=chance.randrange(300))),
            maybe(datetime(2026, 1, 1, tzinfo=UTC) + timedelta(microseconds=chance.randrange(10**14))),
            maybe(chance.random() < 0.5),
        )
        for i in range(first, first + count)
    ]


@pytest.fixture(scope="module", autouse=True)
def interpreted(spark):
    """Queries over a few hundred rows take most of their time to compile and to re-plan: Spark interprets them here."""
    settings = {
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.adaptive.enabled": "false",
    }
    before = {name: spark.conf.get(name) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    yield
    for name, value in before.items():
        spark.conf.set(name, value)


@pytest.fixture(scope="module")
def fed(spark, tmp_path_factory):
    """A table with a few micro-batches that an audit has already measured."""
    fed = Fed(spark, tmp_path_factory.mktemp("fed"))
    chance = random.Random(4)
    fed.append_by_spark(0, some_rows(chance, 0, 300))
    fed.append(1, some_rows(chance, 300, 5))
    first = fed.audit(checks())
    assert scans(first) == ["whole table"] * 6
    assert because(first) == {"no state is saved yet"}
    assert_as_full(fed, first, checks())
    return fed


@pytest.fixture
def copy(fed, tmp_path):
    """The same table and state, for a test to break."""
    shutil.copytree(fed.folder, tmp_path / "lake")
    return Fed(fed.spark, tmp_path / "lake")


def test_new_batches_alone_give_what_a_full_scan_gives(spark, fed):
    chance, first, batch = random.Random(7), 305, 2
    for batches in (0, 3, 2):
        for _ in range(batches):
            count = chance.choice([0, 1, 40])
            (fed.append if count else fed.append_by_spark)(batch, some_rows(chance, first, count))
            first, batch = first + count, batch + 1
        found = fed.audit(checks())
        assert scans(found) == ["new micro-batches"] * 6
        assert {r.evidence["incremental"]["micro_batches"] for r in found} == {batches}
        assert_as_full(fed, found, checks())
    # NULLs leave no trace in a hash: these keys share one, and are two; the third is the second again.
    key = [("q", None), (None, "q"), (None, "q")]
    duplicates = []
    for n, (a, b) in enumerate(key):
        fed.append(batch + n, [(10**6 + n, a, b, *[None] * 6)])
        found = fed.audit(checks())
        assert scans(found) == ["new micro-batches"] * 6
        duplicates.append(found[3].evidence["duplicate_keys"])
    assert duplicates == [duplicates[0], duplicates[0], duplicates[0] + 1]
    assert_as_full(fed, found, checks())
    assert found[3].samples == ({"a": None, "lower(b)": "q", "n_records": 2},)


@pytest.mark.long
def test_a_replayed_batch_is_counted_once(copy):
    rows = [(900 + i, "x", "y", "new", 5.0, None, None, None, None) for i in range(3)]
    copy.append(20, rows)
    found = copy.audit(checks())
    assert {r.evidence["incremental"]["micro_batches"] for r in found} == {1}
    version = found[0].evidence["incremental"]["version"]
    # The query comes back with the batch: Delta drops the rows, the ledger notes the attempt.
    DeltaAppend(str(copy.table)).write(local_table(copy.spark, rows, SCHEMA), copy.stamp(20))
    assert copy.version() == version
    copy.enter(20, 0, "already_committed", version)
    again = copy.audit(checks())
    assert {r.evidence["incremental"]["micro_batches"] for r in again} == {0}
    assert_as_full(copy, again, checks())
    # The same batch of a later epoch is another one.
    copy.append(20, rows, epoch=1)
    assert scans(copy.audit(checks())) == ["new micro-batches"] * 6
    # And the same batch twice in the table, which a full scan sees twice, is nothing to add up.
    copy.append(20, rows, epoch=1, txn_app_id="another")
    found = copy.audit(checks())
    assert because(found) == {f"version {version + 2} wrote micro-batch 20 (epoch 1) again"}
    assert_as_full(copy, found, checks())


@pytest.mark.long
def test_what_else_changed_the_table_makes_it_be_read_again(copy):
    row = (900, "x", "y", "new", 5.0, None, None, None, None)

    def reasons() -> set[str]:
        found = copy.audit(checks())
        assert_as_full(copy, found, checks())
        return because(found)

    copy.append(2, [row], epoch=5)
    copy.sql("OPTIMIZE {table}")
    copy.append(3, [row], epoch=5)
    assert reasons() == {""}  # rows moved between files are the same rows
    copy.sql("DELETE FROM {table} WHERE id < 20")
    (reason,) = reasons()
    assert reason.startswith("version ") and reason.endswith(" is a DELETE")
    assert reasons() == {""}
    local_table(copy.spark, [row], SCHEMA).write.format("delta").mode("append").save(str(copy.table))
    (reason,) = reasons()
    assert reason.endswith("is a WRITE that recon did not make")
    copy.sql("RESTORE TABLE {table} TO VERSION AS OF 1")
    (reason,) = reasons()
    assert reason.endswith("is a RESTORE")
    # A table made anew at the same place.
    shutil.rmtree(copy.table)
    copy.append(0, [row], epoch=6)
    (reason,) = reasons()
    assert reason.startswith("the table is at version 0,")
    assert reason.endswith("it was replaced")


@pytest.mark.long
def test_a_state_that_does_not_fit_is_measured_anew(copy, monkeypatch):
    other = [replace(b, config=b.config.model_copy(update={"where": "id < 100"})) for b in checks()]
    found = copy.audit(other)
    assert because(found) == {"the check, the table's schema or the session's settings changed"}
    assert_as_full(copy, found, other)
    # More keys than the driver should hold are indexed by Spark.
    monkeypatch.setattr("recon.write.ledger.key_index.IN_DRIVER", 0)
    assert because(copy.audit(other, refresh=True)) == {"--full-refresh"}
    monkeypatch.undo()
    copy.append(1, [(50, "x", "y", "new", 5.0, None, None, None, None)], epoch=5)
    found = copy.audit(other)
    assert because(found) == {""}
    assert_as_full(copy, found, other)

    # One index of keys is gone: that check alone reads the table again.
    shutil.rmtree(sorted((copy.folder / "_recon" / "keys").iterdir())[0])
    copy.append(2, [(50, "x", "y", "new", 5.0, None, None, None, None)], epoch=5)
    found = copy.audit(other)
    assert sorted(scans(found)) == ["new micro-batches"] * 5 + ["whole table"]
    assert_as_full(copy, found, other)
    assert because(copy.audit(other)) == {""}

    # Somebody wrote nonsense into the state.
    store = open_store(copy.project, STATE)
    now = utc_now()
    row = {"pipeline": "p", "sink": "s", "kept_at": now, "checks": "{torn", "recon_version": "0"}
    store.append_rows([row])
    found = copy.audit(other)
    assert scans(found) == ["whole table"] * 6
    assert "is no JSON object" in because(found).pop()
    assert because(copy.audit(other)) == {""}


@pytest.mark.long
def test_two_audits_at_once_count_nothing_twice(copy):
    copy.append(2, [(901, "x", "q", "new", 5.0, None, None, None, None)], epoch=5)
    one, two = copy.started(checks()), copy.started(checks())
    mine = [next(one)]
    theirs = list(two)
    mine += list(one)
    assert without_scan(mine) == without_scan(theirs)
    copy.append(3, [(902, "x", "q", "new", 5.0, None, None, None, None)], epoch=5)
    found = copy.audit(checks())
    assert scans(found) == ["new micro-batches"] * 6
    assert_as_full(copy, found, checks())


@pytest.mark.long
def test_checks_that_cannot_be_added_up_say_so(spark, tmp_path, caplog):
    fed = Fed(spark, tmp_path, partition_by=("status",))
    fed.append(0, [(1, "x", "y", "new", 5.0, None, None, None, None)])
    plain = replace(bound("not_null", column_name="a"), unique_id="plain")
    today = replace(
        bound("not_null", {"incremental": True, "where": "day < current_date()"}, column_name="a"), unique_id="today"
    )
    missing = replace(bound("not_null", {"incremental": True}, column_name="nix"), unique_id="missing")
    good = replace(bound("unique", {"incremental": True}, column_name="id"), unique_id="good")
    for _ in range(2):
        found = fed.audit([plain, today, missing, good])
        assert [r.status for r in found] == ["pass", "skipped", "error", "pass"]
        assert "incremental" not in found[0].evidence
        assert found[1].evidence["incremental"] == {
            "scan": "whole table",
            "because": "it uses 'current_date', whose value for the same row may change",
        }
    assert found[3].evidence["incremental"]["scan"] == "new micro-batches"
    # New rows are read once for all row checks, and once for each key; the table is not.
    fed.append(1, [(2, "x", "y", "new", 5.0, None, None, None, None)])
    values = replace(bound("not_null", {"incremental": True}, column_name="a"), unique_id="values")
    fed.audit([values])
    fed.append(2, [(3, "x", "y", "new", 5.0, None, None, None, None)])
    with counted_jobs(spark) as jobs:
        found = fed.audit([good, values])
    assert [r.evidence["rows"] for r in found] == [3, 3]
    assert len(jobs) <= 4, jobs
    # -0.0 is 0.0 and NaN is NaN, though their bytes may differ.
    amounts = replace(bound("unique", {"incremental": True}, column_name="amount"), unique_id="amounts")
    fed.append(3, [(n, "x", "y", "new", v, None, None, None, None) for n, v in enumerate([0.0, float("nan")])])
    assert fed.audit([amounts])[0].failures == 1
    fed.append(4, [(n, "x", "y", "new", v, None, None, None, None) for n, v in enumerate([-0.0, float("nan")])])
    found = fed.audit([amounts])
    assert scans(found) == ["new micro-batches"] and found[0].failures == 3
    assert without_scan(found) == without_scan(fed.full([amounts]))
    # The files of a new micro-batch are gone, after an OPTIMIZE that kept its rows.
    fed.append(5, [(9, "x", "y", "new", 9.0, None, None, None, None)])
    version = fed.version()
    fed.compact()
    (file,) = map(Path, added_files(Storage(str(fed.table)), version))
    one_row = file.read_bytes()
    file.unlink()  # what VACUUM does a week later
    found = fed.audit([amounts])
    assert "files of new micro-batches cannot be read" in because(found).pop()
    assert without_scan(found) == without_scan(fed.full([amounts]))
    assert because(fed.audit([amounts])) == {""}
    # They give fewer rows than were written, or none because the session passes over torn ones.
    some = [
        replace(bound("not_null", {"incremental": True, "where": "id > 1"}, column_name="a"), unique_id="some values"),
        replace(bound("unique", {"incremental": True, "where": "id > 1"}, column_name="id"), unique_id="some keys"),
        amounts,
    ]
    fed.audit(some)
    spark.conf.set("spark.sql.files.ignoreCorruptFiles", "true")
    try:
        for batch, content, why in (
            (6, one_row, "1 rows of new micro-batches were read, and the log has 2"),
            (7, b"torn", "could not "),
        ):
            fed.append(batch, [(n, "x", "y", "new", 9.0, None, None, None, None) for n in (batch, 9)])
            version = fed.version()
            fed.compact()
            (file,) = map(Path, added_files(Storage(str(fed.table)), version))
            file.write_bytes(content)
            file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
            found = fed.audit(some)
            assert all(why in reason for reason in because(found)), because(found)
            assert without_scan(found) == without_scan(fed.full(some))
            assert because(fed.audit(some)) == {""}
    finally:
        spark.conf.unset("spark.sql.files.ignoreCorruptFiles")
    # Nobody knows how many rows came: they may be more than can be looked up, and nothing says that all were read.
    spark.conf.set("spark.databricks.delta.stats.collect", "false")
    try:
        fed.append_by_spark(8, [(10, "x", "y", "new", 9.0, None, None, None, None)])
    finally:
        spark.conf.unset("spark.databricks.delta.stats.collect")
    found = fed.audit([amounts, values])
    assert because(found) == {"the log has no statistics of the new files, so the number of new rows is unknown"}
    assert without_scan(found) == without_scan(fed.full([amounts, values]))
    assert because(fed.audit([amounts, values])) == {""}
    # A state that cannot be saved is logged, and the verdict stands.
    kept = tmp_path / "_recon" / "state"
    shutil.rmtree(kept)
    kept.write_text("no table")
    found = fed.audit([good])
    assert without_scan(found) == without_scan(fed.full([good]))
    assert "pipeline p, sink s: the state of incremental checks could not be saved" in caplog.text
    # Without a ledger nothing is kept, and nothing is created.
    shutil.rmtree(tmp_path / "_recon")
    found = fed.audit([good])
    assert without_scan(found) == without_scan(fed.full([good])) and "there is no ledger" in because(found).pop()
    assert not (tmp_path / "_recon").exists()


def test_the_sketch_is_the_same_for_every_split(spark):
    """Spark's histogram never joins two buckets, on however many partitions."""
    numbers = [
        0.0,
        -0.0,
        float("nan"),
        float("inf"),
        float("-inf"),
        5e-324,
        1.7e308,
        *(-1.001) ** np.arange(0, 9000, 3),
    ]
    rows = local_frame(spark, [(float(v),) for v in numbers] + [(None,)], "v double").repartition(7)
    measure = histogram(F.col("v"))
    parts = [rows, rows.filter("v > 1"), rows.filter("NOT v > 1 OR v IS NULL")]
    whole, one, other = (merged(p.agg(measure.over(None)).collect()[0][0], []) for p in parts)
    assert merged(one, other) == whole
    assert sum(count for _, count in whole) == len(numbers)
    ordered = sorted(numbers, key=lambda v: (v != v, v))
    for q in (0.01, 0.2, 0.5, 0.77, 0.99):
        assert quantile(whole, q) == pytest.approx(ordered[int(q * (len(numbers) - 1))], rel=0.0101)
    assert rows.filter("v IS NULL").agg(measure.over(None)).collect()[0][0] is None
