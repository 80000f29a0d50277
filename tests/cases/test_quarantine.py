"""Row checks in the hook: the split, thresholds, crashes between the writes, and the way back into the sink."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from recon.audits.compliance import compliance
from recon.base.clock import utc_now
from recon.base.decision import this_user
from recon.base.errors import ConfigError, SinkError
from recon.base.storage import Storage
from recon.model import LedgerEntry, Level, ReconStamp, RunResult
from recon.project import CheckConfig, CheckSpec, QuarantineConfig
from recon.recovery.forget import Forgetting
from recon.recovery.rebuild import rebuild
from recon.write.hook import ForeachBatch
from recon.write.ledger.quarantined import rows_by_batch
from recon.write.quarantine.release import release
from recon.write.quarantine.show import summaries
from recon.write.quarantine.table import QuarantineTable
from recon.write.sinks.failpoints import AFTER_WRITE, BEFORE_LEDGER, BEFORE_WRITE
from tests.cases.lake import Lake, complete, failing, findings, ranges, refuted, statuses, told
from tests.cases.test_hook import message_of
from tests.support.failpoints import dies_at
from tests.support.marks import long
from tests.support.messages import raises

MakeLake = Callable[..., Lake]
COLUMNS = "CAST(key AS STRING) AS k", "CAST(CAST(value AS STRING) AS INT) AS n"
STAMPS = "_source_topic", "_source_partition", "_source_offset"


def parse(frame: DataFrame) -> DataFrame:
    return frame.selectExpr(*COLUMNS, *STAMPS)


def spec(test: str, on_failure: str = "quarantine", **arguments: Any) -> CheckSpec:
    config = {key: arguments.pop(key) for key in ("where", "error_if", "alias") if key in arguments}
    return CheckSpec(test=test, arguments=arguments, config=CheckConfig(on_failure=on_failure, **config))


HAS_KEY = spec("not_null", column_name="k", alias="has_key")
SMALL = spec("accepted_values", column_name="n", values=tuple(range(10)), alias="small")


def produce(lake: Lake, *records: tuple[str | None, str]) -> None:
    lake.kafka.produce(lake.topic, [(key, value, 0) for key, value in records])


def quarantined(lake: Lake) -> list[Any]:
    return lake.spark.read.format("delta").load(str(place(lake))).orderBy("_source_offset").collect()


def place(lake: Lake) -> Path:
    return lake.path / "recon" / "quarantine" / "p" / "s"


def hook(lake: Lake, **options: Any) -> ForeachBatch:
    return lake.hook(transform=parse, **options)


def offsets(lake: Lake) -> list[int]:
    return [offset for _, offset in lake.values()]


# 0 and 4 are good; 1 fails one check, 2 the other, 3 both; 5 is NULL, which only not_null would mind.
MIXED = (("a", "1"), (None, "2"), ("c", "77"), (None, "88"), ("e", "9"), ("f", ""))


def test_the_split_its_counts_the_audit_and_the_way_back(make_lake: MakeLake, caplog: pytest.LogCaptureFixture) -> None:
    lake = make_lake(sink={"post_batch": (HAS_KEY, SMALL, spec("not_null", "warn", column_name="n", alias="warned"))})
    lake.spark.conf.set("spark.sql.ansi.enabled", "false")  # "" is no number: NULL
    try:
        produce(lake, *MIXED)
        lake.run(hook(lake))
        produce(lake, ("g", "3"), ("h", "4"))
        lake.run(hook(lake))
    finally:
        lake.spark.conf.unset("spark.sql.ansi.enabled")

    assert offsets(lake) == [0, 4, 5, 6, 7]
    rows = {row["_source_offset"]: row for row in quarantined(lake)}
    assert {offset: sorted(row["_recon_reasons"]) for offset, row in rows.items()} == {
        1: ["has_key"], 2: ["small"], 3: ["has_key", "small"],
    }  # fmt: skip
    one = rows[3]
    assert (one["_batch_id"], one["_recon_epoch"], one["_recon_release"], one["n"]) == (0, 0, None, 88)
    counts = [(e.rows_read, e.rows_written, e.rows_quarantined, e.rows_filtered) for e in lake.entries()]
    assert counts == [(6, 3, 3, 0), (2, 2, 0, 0)]
    assert rows_by_batch(Storage(str(place(lake))), "p", "s") == {(0, 0): 3}  # nothing is written where nothing fails
    assert "post-batch check has_key: fail 2" in caplog.text and "written to quarantine" in caplog.text
    assert "post-batch check warned: fail 1" in caplog.text

    run = lake.audit()
    assert run.pipelines[0].answer == "complete" and failing(run) == set()
    of_rows = next(r for r in run.results if r.check == "source_rows")
    assert of_rows.evidence["proved_by_counts"] == 2

    # one row can be repaired; the others still fail and go by force
    done = release(lake.project, "p", repair={"k": "coalesce(k, 'unknown')"}, spark=lake.spark)
    assert (done.number, done.rows, done.failing) == (0, 1, 2)
    fixed = {r["_source_offset"]: r for r in lake.rows()}[1]
    assert (fixed["k"], fixed["_batch_id"]) == ("unknown", 0) and "_recon_id" not in fixed.asDict()

    forced = release(lake.project, "p", force=True, spark=lake.spark)
    assert (forced.number, forced.rows) == (1, 2)
    assert release(lake.project, "p", force=True, spark=lake.spark).number is None

    assert offsets(lake) == list(range(8))
    assert [row["_recon_release"] for row in quarantined(lake)] == [0, 1, 1]
    released = lake.entries()[2:]
    assert [(e.epoch, e.batch_id, e.status, e.rows_read, e.rows_written, e.offsets) for e in released] == [
        (-1, 0, "released", 1, 1, ()),
        (-1, 1, "released", 2, 2, ()),
    ]
    after = lake.audit()
    assert after.pipelines[0].answer == "complete" and failing(after) == set()
    assert after.pipelines[0].sinks[0].batches == 2 and after.pipelines[0].sinks[0].rows_written == 8
    assert not findings(after, "NEW_EPOCH", "UNSTAMPED", "DUPLICATE", "LEDGER_MISSING")

    drawn = compliance(lake.project, datetime(2000, 1, 1, tzinfo=UTC), utc_now()).sinks[0]
    assert (drawn.batches, drawn.batches_proved, len(drawn.epochs), drawn.rows_written) == (2, 2, 1, 8)

    # the stream goes on behind the releases
    produce(lake, ("i", "5"), (None, "6"))
    lake.run(hook(lake))
    assert [(e.epoch, e.batch_id, e.rows_quarantined) for e in lake.entries()][-1] == (0, 2, 1)
    (summary,) = summaries(lake.project, reason="has_key")
    assert (summary.pending, summary.released) == (1, 2)
    assert [dict(b) for b in summary.batches] == [
        {"epoch": 0, "batch_id": 2, "pending": 1, "released": 0},
        {"epoch": 0, "batch_id": 0, "pending": 0, "released": 2},
    ]
    assert {r["reason"]: (r["pending"], r["released"]) for r in summary.reasons} == {
        "has_key": (1, 2), "small": (0, 1),
    }  # fmt: skip
    assert summary.samples[0]["_source_offset"] == 9

    # the ledger is lost: the log of the quarantine table has the number of quarantined rows
    for kept in ("ledger", "results", "proof"):
        (lake.path / "recon" / kept).rename(lake.path / f"lost-{kept}")
    rebuild(lake.project)
    assert {(e.epoch, e.batch_id): e.rows_quarantined for e in lake.entries() if e.epoch == 0} == {
        (0, 0): 3, (0, 1): None, (0, 2): 1,
    }  # fmt: skip
    assert lake.audit().pipelines[0].answer == "complete"

    # someone removes a row from the quarantine: counts still add up, and the audit looks anyway
    lake.spark.sql(f"DELETE FROM delta.`{place(lake)}` WHERE _source_offset = 9")
    last = lake.audit()
    assert last.pipelines[0].answer == "not complete"
    assert [(f.start_offset, f.end_offset) for f in findings(last, "GAP")] == [(9, 10)]


# Between the sink's commit and the quarantine, or between the quarantine and the ledger.
@pytest.mark.parametrize("at", [AFTER_WRITE, *long(BEFORE_LEDGER)])
def test_a_crash_between_the_writes_is_repaired_by_the_replay(make_lake: MakeLake, at: str) -> None:
    lake = make_lake(sink={"post_batch": (HAS_KEY,)})
    produce(lake, ("a", "1"), (None, "2"), (None, "3"))
    with pytest.raises(StreamingQueryException, match=f"died at {at}"):
        lake.run(hook(lake, failpoint=dies_at(at)))
    assert offsets(lake) == [0] and lake.entries() == []
    assert place(lake).exists() == (at == BEFORE_LEDGER)

    def ends_after(frame: DataFrame, batch_id: int) -> None:
        whole(frame, batch_id)
        raise RuntimeError("died after")

    whole = hook(lake)
    with pytest.raises(StreamingQueryException, match="died after"):
        lake.run(ends_after)  # and once more, behind the entry
    lake.run(hook(lake))
    assert offsets(lake) == [0] and [row["_source_offset"] for row in quarantined(lake)] == [1, 2]
    attempts = [(e.status, e.rows_written, e.rows_quarantined) for e in lake.entries()]
    restored = None if at == AFTER_WRITE else 2
    assert attempts == [("rebuilt", 1, restored), ("already_committed", 1, 2), ("already_committed", 1, 2)]
    run = lake.audit()
    assert run.pipelines[0].answer == "complete" and failing(run) == set()


@pytest.mark.long
def test_thresholds_and_stops_write_nothing_and_a_repair_goes_on(make_lake: MakeLake) -> None:
    lake = make_lake(sink={"post_batch": (HAS_KEY,), "quarantine": QuarantineConfig(stop_above=0.25)})
    produce(lake, ("a", "1"), (None, "2"), ("c", "3"), ("d", "4"))
    lake.run(hook(lake))  # a quarter is not above a quarter
    assert [(e.rows_written, e.rows_quarantined) for e in lake.entries()] == [(3, 1)]
    produce(lake, ("a", "1"), (None, "2"), (None, "3"))
    for _ in range(2):
        with pytest.raises(StreamingQueryException) as caught:
            lake.run(hook(lake))
        assert "2 of 3 rows of micro-batch 1 (66.67%) fail has_key" in message_of(caught)
        assert "stop_above allows 25.00%" in message_of(caught) and "nothing of it was written" in message_of(caught)
        assert len(lake.entries()) == 1 and len(quarantined(lake)) == 1 and offsets(lake) == [0, 2, 3]

    lake.sink = {"post_batch": (spec("accepted_values", "stop", column_name="n", values=(1,), alias="one"),)}
    with pytest.raises(StreamingQueryException) as caught:
        lake.run(hook(lake))
    assert "post-batch check one: fail 2" in message_of(
        caught
    ) and "nothing of micro-batch 1 was written" in message_of(caught)
    assert len(lake.entries()) == 1 and offsets(lake) == [0, 2, 3]

    lake.sink = {"post_batch": (spec("accepted_values", "stop", column_name="n", values=(1,), error_if=">2"), HAS_KEY)}
    lake.run(hook(lake))
    assert [(e.attempt, e.rows_written, e.rows_quarantined) for e in lake.entries()][1:] == [(1, 1, 2)]
    assert lake.audit().pipelines[0].answer == "complete"


@pytest.mark.parametrize(("of_gone", "of_odd"), [("quarantine", "stop"), *long(("stop", "quarantine"))])
def test_a_check_that_cannot_be_put(
    make_lake: MakeLake, ansi: None, caplog: pytest.LogCaptureFixture, of_gone: str, of_odd: str
) -> None:
    lake = make_lake()
    produce(lake, ("a", "1"), ("b", "0"))
    lake.sink = {"post_batch": (spec("not_null", of_gone, column_name="gone", alias="bad"),)}
    with pytest.raises(StreamingQueryException) as caught:
        lake.run(hook(lake))
    assert "bad" in message_of(caught) and "no column 'gone'" in message_of(caught)
    # known only when the rows are read: dividing by zero
    lake.sink = {"post_batch": (spec("not_null", of_odd, column_name="k", where="1 / n > 0", alias="odd"),)}
    with pytest.raises(StreamingQueryException) as caught:
        lake.run(hook(lake))
    said = message_of(caught)
    assert "post-batch check odd: " in said and "nothing of micro-batch 0 was written" in said
    assert not list(lake.table.glob("_delta_log/*.json")) and lake.entries() == []

    lake.sink = {
        "post_batch": (
            spec("not_null", "warn", column_name="gone", alias="bad"),
            spec("not_null", "warn", column_name="k", where="1 / n > 0", alias="odd"),
            HAS_KEY,
        )
    }
    lake.run(hook(lake))
    assert "post-batch check bad: error" in caplog.text and "post-batch check odd: error" in caplog.text
    assert offsets(lake) == [0, 1] and lake.entries()[0].rows_quarantined == 0

    lake.sink = {"post_batch": (spec("unique", column_name="k"),)}
    with raises(ConfigError):
        hook(lake)
    lake.sink = {"post_batch": (HAS_KEY,), "quarantine": QuarantineConfig(target="table")}
    with raises(ConfigError):
        hook(lake)


@pytest.mark.long
def test_a_release_that_was_interrupted_is_finished_once(make_lake: MakeLake) -> None:
    lake = make_lake(sink={"post_batch": (HAS_KEY,)})
    produce(lake, ("a", "1"), (None, "2"), (None, "3"), (None, "4"))
    lake.run(hook(lake))

    interrupted: dict[str, Any] = {"spark": lake.spark, "failpoint": dies_at(BEFORE_WRITE)}  # claimed, not written
    with pytest.raises(RuntimeError, match="died"):
        release(lake.project, "p", repair={"k": "'x'"}, where="n = 2", by="Ada", reason="ticket 7", **interrupted)
    claimed = lake.audit()  # nobody knows yet what becomes of the row
    assert [(f.start_offset, f.end_offset) for f in findings(claimed, "INCONCLUSIVE")] == [(1, 2)]
    assert claimed.pipelines[0].answer != "complete" and failing(claimed) == set()
    unrecorded = dies_at(BEFORE_LEDGER, batch_id=1)  # finishes 0; claims and writes 1, and does not enter it
    with pytest.raises(RuntimeError, match="died"):
        release(lake.project, "p", repair={"k": "'y'"}, where="n = 3", by="Bob", spark=lake.spark, failpoint=unrecorded)
    run = lake.audit()
    assert findings(run, "LEDGER_MISSING") and failing(run) == set()
    done = release(lake.project, "p", repair={"k": "'z'"}, spark=lake.spark)
    assert (done.finished, done.number, done.rows) == ((1,), 2, 1)
    assert {r["_source_offset"]: r["k"] for r in lake.rows()} == {0: "a", 1: "x", 2: "y", 3: "z"}
    assert [(e.batch_id, e.rows_written) for e in lake.entries() if e.epoch == -1] == [(0, 1), (1, 1), (2, 1)]
    decided = [(e.by, e.reason) for e in lake.entries() if e.epoch == -1]
    assert decided == [("Ada", "ticket 7"), ("Bob", None), (this_user(), None)], "each keeps who began it"

    # the next claim was a function's: only the caller has it
    produce(lake, (None, "5"))
    lake.run(hook(lake))
    with pytest.raises(RuntimeError, match="died"):
        release(lake.project, "p", repair=lambda f: f.withColumn("k", f["n"].cast("string")), **interrupted)
    with raises(ConfigError):
        release(lake.project, "p", spark=lake.spark)
    with raises(SinkError):
        release(lake.project, "p", repair=lambda f: f, spark=lake.spark)
    done = release(lake.project, "p", repair=lambda f: f.withColumn("k", f["n"].cast("string")), spark=lake.spark)
    assert (done.finished, done.number) == ((), 4) and {r["k"] for r in lake.rows()} == set("axyz5")
    assert statuses(lake.audit())["source_rows"] == "pass"

    for repair in ({"nope": "1"}, {"_batch_id": "1"}, {"k": "nope + 1"}, lambda f: f.drop("_recon_id")):
        with raises(ConfigError):
            release(lake.project, "p", repair=repair, spark=lake.spark)
    with raises(ConfigError):
        release(lake.project, "p", where="nope = 1", spark=lake.spark)
    assert json.loads((place(lake) / "_delta_log" / f"{0:020d}.json").read_text().splitlines()[0])


@pytest.mark.long
def test_two_releases_at_once_are_both_written(make_lake: MakeLake) -> None:
    lake = make_lake(sink={"post_batch": (HAS_KEY,)})
    produce(lake, ("a", "1"), (None, "2"), (None, "3"))
    lake.run(hook(lake))

    dies, meanwhile = dies_at(BEFORE_WRITE), list[str]()

    def repaired(rows: DataFrame) -> DataFrame:
        """B's repair: B has looked for unfinished releases already when A claims 0, and A gets no further for now."""
        if not meanwhile:
            meanwhile.append("A")
            with pytest.raises(RuntimeError, match="died"):
                release(lake.project, "p", repair={"k": "'x'"}, where="n = 2", spark=lake.spark, failpoint=dies)
        return rows.withColumn("k", F.lit("y"))

    done = release(lake.project, "p", repair=repaired, where="n = 3", spark=lake.spark)
    assert (done.number, done.rows) == (1, 1) and offsets(lake) == [0, 2]
    done = release(lake.project, "p", spark=lake.spark)
    assert (done.finished, done.number, done.failing) == ((0,), None, 0)
    assert {r["_source_offset"]: r["k"] for r in lake.rows()} == {0: "a", 1: "x", 2: "y"}
    assert [(e.epoch, e.batch_id, e.rows_written) for e in lake.entries()] == [(0, 0, 1), (-1, 1, 1), (-1, 0, 1)]
    run = lake.audit()
    assert run.pipelines[0].answer == "complete" and failing(run) == set() and not findings(run, "LEDGER_MISSING")


@pytest.mark.long
def test_a_release_that_the_sink_refuses_waits_again(make_lake: MakeLake) -> None:
    lake = make_lake(sink={"post_batch": (HAS_KEY,)})
    produce(lake, ("a", "1"), (None, "2"), (None, "3"))
    lake.run(hook(lake))
    lake.sql("ALTER TABLE {table} ADD CONSTRAINT few CHECK (n < 3)")

    with raises(SinkError):
        release(lake.project, "p", repair={"k": "'x'"}, spark=lake.spark)
    assert [row["_recon_release"] for row in quarantined(lake)] == [None, None] and offsets(lake) == [0]
    done = release(lake.project, "p", repair={"k": "'x'"}, where="n = 2", spark=lake.spark)
    assert (done.finished, done.number, done.rows) == ((), 1, 1)

    # B finds a release of A unfinished and closes it, C takes its rows; then A goes on
    def closed(point: str, _: ReconStamp) -> None:
        if point == BEFORE_WRITE:
            with raises(SinkError):
                release(lake.project, "p", repair=lambda rows: rows, spark=lake.spark)
            done = release(lake.project, "p", repair={"k": "'z'", "n": "0"}, spark=lake.spark)
            assert (done.finished, done.number, done.rows) == ((), 3, 1)

    def repaired(rows: DataFrame) -> DataFrame:
        return rows.withColumns({"k": F.lit("y"), "n": F.lit(1)})

    with raises(SinkError):
        release(lake.project, "p", repair=repaired, spark=lake.spark, failpoint=closed)
    assert {r["_source_offset"]: r["k"] for r in lake.rows()} == {0: "a", 1: "x", 2: "z"}

    # A goes on although B wrote and entered its release: one commit, one entry
    def finished(point: str, _: ReconStamp) -> None:
        if point == BEFORE_WRITE:
            assert release(lake.project, "p", spark=lake.spark).finished == (4,)
            entered.extend(lake.entries())

    entered = list[LedgerEntry]()
    produce(lake, (None, "0"))
    lake.run(hook(lake))
    same = release(lake.project, "p", repair={"k": "'w'"}, spark=lake.spark, failpoint=finished)
    assert (same.number, same.rows) == (4, 1)
    assert lake.entries() == entered and offsets(lake) == [0, 1, 2, 3]
    run = lake.audit()
    assert run.pipelines[0].answer == "complete" and failing(run) == set() and not findings(run, "UNSTAMPED")


def test_what_spark_does_not_report_and_rows_that_change_between_the_passes(
    make_lake: MakeLake, monkeypatch: Any, caplog: pytest.LogCaptureFixture
) -> None:
    lake = make_lake(sink={"post_batch": (HAS_KEY,)})
    produce(lake, ("a", "1"), (None, "2"))
    with monkeypatch.context() as patched:
        patched.setattr(Observation, "get", property(lambda _: {}))
        lake.run(hook(lake))
    assert "did not report what the row checks counted" in caplog.text
    assert [(e.rows_read, e.rows_written, e.rows_quarantined, e.rows_filtered) for e in lake.entries()] == [
        (None, 1, 1, None)
    ]
    assert lake.audit().pipelines[0].answer == "complete"

    produce(lake, ("c", "3"), (None, "4"))
    append = QuarantineTable.append_failing
    with monkeypatch.context() as patched:  # as a transform would do that gives other rows the second time
        patched.setattr(
            QuarantineTable, "append_failing", lambda table, frame, *rest: append(table, frame.limit(0), *rest)
        )
        lake.run(hook(lake))
    assert "the checks saw 2 rows, and 1 are in the sink and 0 in quarantine" in caplog.text
    last = lake.entries()[-1]
    assert (last.rows_read, last.rows_written, last.rows_quarantined, last.rows_filtered) == (2, 1, 0, 0)
    run = lake.audit()
    assert [(f.start_offset, f.end_offset) for f in findings(run, "GAP")] == [(3, 4)]


@pytest.mark.long
def test_of_a_write_that_ran_twice_a_job_counts(make_lake: MakeLake, monkeypatch: Any) -> None:
    """Spark's Observation keeps the counts of a first job that failed, and none of a later job."""
    lake = make_lake(sink={"post_batch": (HAS_KEY,)})
    produce(lake, ("a", "1"), (None, "2"))
    again = hook(lake)
    confirm = again.writer.confirm
    monkeypatch.setattr(again.writer, "confirm", lambda stamp: replace(confirm(stamp), computed_again=True))
    monkeypatch.setattr(Observation, "get", property(lambda _: {"rows": 0, "failing": 0}))
    lake.run(again)
    (entry,) = lake.entries()
    assert (entry.rows_written, entry.rows_quarantined) == (1, 1)
    assert lake.audit().pipelines[0].answer == "complete"


@dataclass
class Days:
    """A lake whose clocks are set ahead, day by day: a daily audit looks at one hour of the day before."""

    lake: Lake
    audits_later: Callable[[timedelta], None]
    day: int = 0

    def on_next_day(self, *records: tuple[str | None, str]) -> RunResult:
        """The stream reads some records, and an audit follows."""
        self.day += 1
        self.audits_later(timedelta(days=self.day))
        produce(self.lake, *records)
        self.lake.run(hook(self.lake))
        return self.lake.audit()

    def until_nothing_was_quarantined(self) -> None:
        """Three rows wait since the first day; two days later no daily audit's period has their micro-batch."""
        first = self.on_next_day(("a", "1"), (None, "2"), (None, "3"), (None, "4"))
        runs = [first, self.on_next_day(("b", "5")), self.on_next_day(("c", "6"))]
        assert [answer(run) for run in runs] == ["complete"] * 3

    def sql(self, statement: str) -> None:
        self.lake.spark.sql(statement.format(q=f"delta.`{place(self.lake)}`"))


def answer(run: RunResult) -> str:
    return str(run.pipelines[0].answer)


def about_rows(run: RunResult) -> set[str]:
    of_rows = next(r for r in run.results if r.check == "source_rows")
    return {str(f.code) for f in of_rows.findings if f.level in (Level.FAIL, Level.UNPROVED)}


@pytest.mark.long
def test_rows_that_wait_since_earlier_days_and_are_deleted_by_hand(
    make_lake: MakeLake, audits_later: Callable[[timedelta], None]
) -> None:
    days = Days(lake := make_lake(sink={"post_batch": (HAS_KEY,)}), audits_later)
    days.until_nothing_was_quarantined()

    # What recon itself does there, and what changes no row that waits, asks nothing.
    assert release(lake.project, "p", repair={"k": "'x'"}, where="n = 2", spark=lake.spark).rows == 1
    assert answer(days.on_next_day(("d", "7"))) == "complete"
    forgetting = Forgetting(lake.project, "n = 3", spark=lake.spark)
    forgetting.erase(forgetting.found(), by="Ada", reason="request 7")
    assert answer(days.on_next_day(("e", "8"))) == "complete"
    days.sql("OPTIMIZE {q}")
    days.sql("DELETE FROM {q} WHERE _recon_release IS NOT NULL")  # which is allowed
    days.sql("ALTER TABLE {q} ADD COLUMNS (more STRING)")
    assert answer(days.on_next_day(("f", "9"))) == "complete"
    assert len(quarantined(lake)) == 2

    days.sql("DELETE FROM {q} WHERE n = 4")
    run = days.on_next_day(("g", "1"))
    assert answer(run) == "not complete" and failing(run) == {"GAP"}
    assert sum(f.rows or 0 for f in findings(run, "GAP")) == 1
    assert answer(days.on_next_day(("h", "2"))) == "not complete", "it stays open"
    full = lake.audit(full=True)
    assert [(f.start_offset, f.end_offset) for f in findings(full, "GAP") if f.topic] == [(3, 4)]


@pytest.mark.long
def test_rows_that_wait_and_are_overwritten_by_hand(
    make_lake: MakeLake, audits_later: Callable[[timedelta], None]
) -> None:
    days = Days(make_lake(sink={"post_batch": (HAS_KEY,)}), audits_later)
    days.until_nothing_was_quarantined()
    days.sql("UPDATE {q} SET n = 99 WHERE n = 2")
    run = days.on_next_day(("d", "7"))
    assert answer(run) == "not complete" and about_rows(run) == {"MUTATED"}
    days.sql("DELETE FROM {q} WHERE n = 3")
    days.sql("RESTORE {q} TO VERSION AS OF 1")
    run = days.on_next_day(("e", "8"))
    assert about_rows(run) == {"MUTATED"} and len(findings(run, "MUTATED")) == 1, "what was put back is no loss"
    rmtree(place(days.lake))
    run = days.on_next_day(("f", "9"))
    assert about_rows(run) == {"MUTATED", "GAP"} and sum(f.rows or 0 for f in findings(run, "GAP")) == 3


def three_wait(lake: Lake, written_earlier: Any) -> None:
    """Offsets 1, 2 and 3 wait since two days ago, and an audit judged them."""
    produce(lake, ("a", "1"), (None, "2"), (None, "3"), (None, "4"))
    with written_earlier(timedelta(hours=48)):
        lake.run(hook(lake))
    produce(lake, ("b", "5"))
    with written_earlier(timedelta(hours=26)):
        lake.run(hook(lake))
    assert complete(lake.audit())


@pytest.mark.long
def test_a_repair_function_returns_each_row_once_with_its_stamps(make_lake: MakeLake, written_earlier: Any) -> None:
    lake = make_lake(sink={"post_batch": (HAS_KEY,)})
    three_wait(lake, written_earlier)
    moved = F.expr("CASE WHEN n = 2 THEN 2L ELSE _source_offset END")
    another = F.expr("CASE WHEN n = 2 THEN 'another' ELSE _recon_id END")
    for repair in (
        lambda rows: rows.where("n <> 2").union(rows.where("n = 3")),
        lambda rows: rows.withColumn("_source_offset", moved),
        lambda rows: rows.withColumn("_recon_id", another),
    ):
        with raises(ConfigError):
            release(lake.project, "p", repair=repair, force=True, spark=lake.spark)
    assert offsets(lake) == [0, 4] and [row["_recon_release"] for row in quarantined(lake)] == [None, None, None]

    kept = release(
        lake.project, "p", repair=lambda rows: rows.where("n <> 2").withColumn("k", F.lit("x")), spark=lake.spark
    )
    assert (kept.number, kept.rows) == (0, 2) and offsets(lake) == [0, 2, 3, 4]
    assert complete(lake.audit()), "a function may leave rows out: they wait"
    assert complete(lake.audit(full=True))


@pytest.mark.long
@pytest.mark.parametrize("row_id", ["_recon_id", "uuid() AS _recon_id"], ids=["the same id", "another id"])
def test_a_waiting_row_that_another_program_doubled_is_not_released(
    make_lake: MakeLake, written_earlier: Any, row_id: str
) -> None:
    lake = make_lake(sink={"post_batch": (HAS_KEY,)})
    three_wait(lake, written_earlier)
    doubled = f"SELECT * EXCEPT (_recon_id), {row_id} FROM delta.`{place(lake)}` WHERE n = 2"
    lake.spark.sql(f"INSERT INTO delta.`{place(lake)}` BY NAME {doubled}")
    with raises(ConfigError):
        release(lake.project, "p", repair={"k": "'x'"}, spark=lake.spark)
    assert release(lake.project, "p", repair={"k": "'x'"}, where="n > 2", spark=lake.spark).rows == 2
    assert offsets(lake) == [0, 2, 3, 4] and complete(lake.audit())


@pytest.mark.long
def test_a_row_that_the_sink_had_already_is_found_when_it_is_released(
    make_lake: MakeLake, written_earlier: Any, audits_later: Callable[[timedelta], None]
) -> None:
    lake = make_lake(sink={"post_batch": (HAS_KEY,)})
    three_wait(lake, written_earlier)
    lake.sql(
        "INSERT INTO {table} BY NAME SELECT * EXCEPT (_source_offset), CAST(1 AS BIGINT) AS _source_offset "
        "FROM {table} WHERE _source_offset = 0"
    )
    for day, record in enumerate((("c", "6"), ("d", "7"))):
        audits_later(timedelta(days=2 * day))
        produce(lake, record)
        lake.run(hook(lake))
        lake.audit()
    release(lake.project, "p", repair={"k": "'x'"}, spark=lake.spark)
    assert offsets(lake) == [0, 1, 1, 2, 3, 4, 5, 6]
    for full in (False, True):
        run = lake.audit(full=full, keep=False)
        assert refuted(run, "DUPLICATE") and ranges(findings(run, "DUPLICATE")) == {(0, 1, 2)}, told(run)
    lake.audit()
    lake.sql("DELETE FROM {table} WHERE _source_offset = 1 AND k = 'a'")
    run = lake.audit(full=True)
    assert not findings(run, "DUPLICATE") and ranges(findings(run, "REPAIRED")) == {(0, 1, 2)}, told(run)


@pytest.mark.long
def test_rows_that_were_put_back_into_quarantine_are_no_loss_any_more(
    make_lake: MakeLake, written_earlier: Any
) -> None:
    lake = make_lake(sink={"post_batch": (HAS_KEY,)})
    three_wait(lake, written_earlier)
    lake.spark.sql(f"DELETE FROM delta.`{place(lake)}` WHERE n = 4")
    assert refuted(lake.audit(), "GAP")
    assert ranges(findings(lake.audit(full=True), "GAP")) == {(0, 3, 4)}
    lake.spark.sql(f"RESTORE delta.`{place(lake)}` TO VERSION AS OF 0")
    daily, run = lake.audit(), lake.audit(full=True)
    assert complete(run), told(run)
    assert any(findings(audit, "REPAIRED") for audit in (daily, run)), told(run)
