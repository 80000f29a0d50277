"""throughput, lag_trend and state_growth on made-up streams whose truth is known; and what they say of too little."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from recon.audits.summary import PROOF, answer
from recon.base.trend import theil_sen, trend
from recon.checks.bound import Bound
from recon.checks.engine.runner import run_evidence
from recon.checks.evidence.lag_trend import LagTrend
from recon.checks.evidence.state_growth import StateGrowth
from recon.checks.evidence.throughput import Throughput, kept_up
from recon.checks.period import Period
from recon.checks.registry import build
from recon.model import Code, KafkaWitness, PreviousAudit, Unavailable, Verdict, Witnesses
from recon.model.progress import BatchProgress, ProgressWitness, SourceOffsets
from recon.project import CheckConfig, CheckSpec
from recon.testing import evidence as builders
from recon.write.ledger import open_ledger
from recon.write.ledger.results import append_run
from tests.support.ledger_entries import project
from tests.support.messages import same_message
from tests.support.witnesses import witnesses
from tests.unit.audits.test_facts_answer import ran
from tests.unit.ledger.test_results import NOW as AUDITED
from tests.unit.ledger.test_results import left, run

BEGIN = builders.NOW - timedelta(hours=6)
HOUR = 3600.0


def batch(n: int, **fields: Any) -> BatchProgress:
    """One of a healthy stream: 1,000 rows in 2 seconds, every 10 seconds."""
    made: dict[str, Any] = {
        "query_id": "q",
        "run_id": "r",
        "batch_id": n,
        "at": BEGIN + timedelta(seconds=10 * n),
        "rows": 1000,
        "seconds": 2.0,
        "offsets": 1000,
        "partitions": 1,
        "lag": 0,
    }
    return BatchProgress(**{**made, **fields})


def recorded(batches: Sequence[BatchProgress], **offsets: Any) -> ProgressWitness:
    return ProgressWitness(location="lake/progress", batches=batches, **offsets)


def given(batches: Sequence[BatchProgress], **fields: Any) -> Witnesses:
    return replace(witnesses(), sink=None, **{"progress": recorded(batches), **fields})


def status(verdict: Verdict) -> str:
    if verdict.skipped is not None:
        return "skipped"
    if verdict.unproved is not None:
        return "error"
    return "fail" if verdict.failures else "warn" if verdict.warnings or _warns(verdict) else "pass"


def _warns(verdict: Verdict) -> bool:
    return any(f.level == "warn" for f in verdict.findings)


# -- the robust line ---------------------------------------------------------------------------------------------------


def test_a_line_through_noise_and_outliers() -> None:
    chance = random.Random(1)
    x = [float(n) for n in range(200)]
    y = [5 + 3 * n + chance.gauss(0, 4) for n in x]
    for n in range(0, 200, 5):
        y[n] = 10_000.0  # a fifth of the points is nonsense
    line = theil_sen(x, y)
    assert line is not None and abs(line.slope - 3) < 0.35 and abs(line.intercept - 5) < 25
    assert theil_sen([1.0, 1.0], [2.0, 3.0]) is None and theil_sen([], []) is None


def test_a_trend_is_sure_and_chance_is_none() -> None:
    chance = random.Random(2)
    times = [float(n) for n in range(500)]
    found = [trend(times, [chance.gauss(0, 1) for _ in times]) for _ in range(200)]
    assert sum(t.rises for t in found if t) <= 4, "one series in two hundred may look steep"
    rising = trend(times, [n / 100 + chance.gauss(0, 1) for n in times])
    assert rising is not None and rising.rises
    assert trend([0.0, 1.0], [0.0, 1.0]) is None
    flat = trend(times, [3.0] * 500)
    assert flat is not None and not flat.rises and flat.line.slope == 0


# -- throughput --------------------------------------------------------------------------------------------------------


def test_a_stream_that_keeps_up_passes_with_its_figures() -> None:
    found = Throughput().judge(given([batch(n) for n in range(20)]))
    assert status(found) == "pass"
    assert (found.evidence["rows_per_second"], found.evidence["kept_up"]) == (500.0, 1.0)
    assert same_message(found.message)


@pytest.mark.parametrize(
    ("limits", "expected"),
    [({"warn_below": 499}, "pass"), ({"warn_below": 501}, "warn"), ({"error_below": 501, "warn_below": 600}, "fail")],
)
def test_rows_per_second_against_the_limits(limits: dict[str, float], expected: str) -> None:
    found = Throughput(**limits).judge(given([batch(n) for n in range(20)]))
    assert status(found) == expected
    assert expected == "pass" or found.message.startswith("below ")


def test_waiting_for_data_is_not_slowness() -> None:
    quiet = [batch(n, at=BEGIN + timedelta(minutes=10 * n)) for n in range(20)]
    assert status(Throughput(error_below=400).judge(given(quiet))) == "pass"


def test_falling_behind_is_measured_against_what_arrives() -> None:
    """1,250 offsets arrive while 1,000 are read."""
    behind = [batch(n, lag=250 * n) for n in range(40)]
    share = kept_up(behind)
    assert share is not None and share.share == pytest.approx(0.8) and share.left_behind == 250 * 39
    found = Throughput().judge(given(behind))
    assert status(found) == "warn" and found.message.startswith("kept up with 80.0%, below 95.0%: ")
    assert status(Throughput(error_kept_up=0.9).judge(given(behind))) == "fail"
    assert status(Throughput(warn_kept_up=None).judge(given(behind))) == "pass"


def test_one_micro_batch_on_its_way_is_not_falling_behind() -> None:
    assert status(Throughput().judge(given([*(batch(n) for n in range(10)), batch(10, lag=999)]))) == "pass"


def test_working_off_a_backlog_is_more_than_keeping_up() -> None:
    catching_up = [batch(n, lag=100_000 - 500 * n) for n in range(20)]
    found = Throughput().judge(given(catching_up))
    assert status(found) == "pass" and found.evidence["kept_up"] == 2.0


def test_throughput_with_too_little_history_or_no_lag() -> None:
    few = Throughput().judge(given([batch(n) for n in range(9)]))
    assert status(few) == "skipped" and "9 micro-batches that read rows, and 10 are needed" in str(few.skipped)
    none = Throughput().judge(given([]))
    assert status(none) == "skipped" and "recon.ProgressListener" in str(none.skipped)
    blind = [batch(n, lag=None) for n in range(20)]
    assert status(Throughput().judge(given(blind))) == "pass"
    asked = Throughput(error_kept_up=0.9).judge(given(blind))
    assert status(asked) == "error" and "latest offsets" in str(asked.unproved)
    changed = [batch(n, partitions=1 if n < 10 else 2) for n in range(20)]
    assert kept_up(changed) is None


def test_only_the_query_that_runs_now_is_judged() -> None:
    old = [batch(n, query_id="before", seconds=100.0) for n in range(30)]
    new = [batch(n, at=BEGIN + timedelta(hours=1, seconds=10 * n)) for n in range(30)]
    found = Throughput(error_below=400).judge(given([*old, *new]))
    assert status(found) == "pass" and found.evidence["batches"] == 30


# -- lag_trend ---------------------------------------------------------------------------------------------------------


def falling_behind(count: int = 360) -> list[BatchProgress]:
    """Reads 100 offsets a second, and 110 arrive: lag gains 600 a minute."""
    return [
        batch(n, at=BEGIN + timedelta(minutes=n), rows=6000, offsets=6000, lag=600 * n, seconds=60.0)
        for n in range(count)
    ]


def sampled(batches: Sequence[BatchProgress]) -> ProgressWitness:
    """With the offsets of the first and the last, in one partition."""

    def at(place: int) -> SourceOffsets:
        end = sum(b.offsets or 0 for b in batches[1 : place + 1])
        key = (builders.TOPIC, 0)
        return SourceOffsets(start={}, end={key: end}, latest={key: end + (batches[place].lag or 0)})

    last = len(batches) - 1
    return recorded(batches, offsets={0: at(0), last: at(last)})


def broker(batches: Sequence[BatchProgress], log_start: int, age: timedelta, retention_ms: int | None) -> KafkaWitness:
    end = sum(b.offsets or 0 for b in batches[1:])
    found = builders.kafka(
        log_start, end + (batches[-1].lag or 0) + 1, unread_since=builders.NOW - age, leader_epoch=None
    )
    topics = {name: replace(topic, retention_ms=retention_ms) for name, topic in found.topics.items()}
    return replace(found, topics=topics)


def test_lag_that_stays_is_no_trend() -> None:
    chance = random.Random(3)
    found = LagTrend().judge(given([batch(n, lag=chance.randrange(0, 3000)) for n in range(500)]))
    assert status(found) == "pass" and same_message(found.message)


def test_a_burst_that_is_worked_off_is_no_trend() -> None:
    burst = [batch(n, lag=50_000 - 500 * (n - 50) if 50 <= n < 150 else 0) for n in range(300)]
    assert status(LagTrend().judge(given(burst))) == "pass"


def test_growing_lag_warns_with_its_slope() -> None:
    found = LagTrend(warn_if_within=None).judge(given(falling_behind()))
    assert [f.code for f in found.findings] == [Code.LAG] and status(found) == "warn"
    assert found.evidence["offsets_per_hour"] == pytest.approx(36_000, rel=0.01)
    assert same_message(found.message)


def test_growth_smaller_than_a_micro_batch_is_none() -> None:
    assert status(LagTrend().judge(given([batch(n, lag=n) for n in range(360)]))) == "pass"


def test_the_forecast_by_retention() -> None:
    """The oldest unread record is 2 h old, gains 1 - 100/110 s a second, and is deleted at 3 h: in 11 h."""
    behind = falling_behind()
    kafka = broker(behind, 0, timedelta(hours=2), 3 * 3_600_000)
    seen = given(behind, progress=sampled(behind), kafka=kafka)
    found = LagTrend(warn_if_within=Period(12, "hour"), error_if_within=Period(10, "hour")).judge(seen)
    assert {f.code for f in found.findings} == {Code.LAG, Code.RETENTION_NEAR}
    (forecast,) = found.evidence["forecast"]
    assert forecast["seconds"] == pytest.approx(11 * HOUR, rel=0.02)
    fails = LagTrend(error_if_within=Period(12, "hour")).judge(seen)
    assert status(fails) == "fail" and Code.LOSS_AHEAD in {f.code for f in fails.findings}
    assert fails.message.startswith(
        "orders-0: Kafka will delete unread records in 11.0 hours (the oldest unread record"
    )
    far = LagTrend(warn_if_within=Period(10, "hour")).judge(seen)
    assert {f.code for f in far.findings} == {Code.LAG}


def test_the_forecast_by_log_starts() -> None:
    """The log start moved by 200 offsets a second in the hour since an audit; 100 are read, and 720,000 lie between."""
    behind = falling_behind()
    committed = 6000 * 359
    kafka = broker(behind, committed - 720_000, timedelta(minutes=1), None)
    before = {(builders.TOPIC, 0): (builders.NOW - timedelta(hours=1), committed - 1_440_000)}
    seen = given(
        behind,
        progress=sampled(behind),
        kafka=kafka,
        previous=PreviousAudit(generated_at=builders.NOW - timedelta(hours=1), log_starts=before),
    )
    found = LagTrend(error_if_within=Period(3, "hour")).judge(seen)
    assert status(found) == "fail"
    (forecast,) = found.evidence["forecast"]
    assert (
        forecast["seconds"] == pytest.approx(2 * HOUR, rel=0.02) and "the log start moves by 200.0" in forecast["how"]
    )
    assert found.evidence["log_starts"] == [["orders", 0, committed - 720_000]]


def test_a_query_that_has_stopped_reads_nothing_any_more() -> None:
    """Its last micro-batch was 5 h ago: what is unread for 5 h of 6 is deleted in one, though lag never grew."""
    healthy = [replace(b, lag=0) for b in falling_behind(60)]
    kafka = broker(healthy, 0, timedelta(hours=5), 6 * 3_600_000)
    kafka = replace(kafka, topics={n: _longer(t) for n, t in kafka.topics.items()})
    found = LagTrend(error_if_within=Period(2, "hour")).judge(given(healthy, progress=sampled(healthy), kafka=kafka))
    assert status(found) == "fail" and found.evidence["forecast"][0]["seconds"] == pytest.approx(HOUR, rel=0.02)


def _longer(topic: Any) -> Any:
    partitions = {n: replace(p, log_end=p.log_end + 5000) for n, p in topic.partitions.items()}
    return replace(topic, partitions=partitions)


def test_what_was_deleted_already_is_told_at_once_and_what_is_read_is_not_lost() -> None:
    behind = falling_behind()
    kafka = broker(behind, 0, timedelta(hours=4), 3 * 3_600_000)
    found = LagTrend(error_if_within=Period(1, "minute")).judge(given(behind, progress=sampled(behind), kafka=kafka))
    assert same_message(found.message)
    read = [replace(b, lag=0) for b in behind]
    at_end = broker(read, 0, timedelta(hours=4), 3 * 3_600_000)
    at_end = replace(at_end, topics={n: _ends_where_read(t, read) for n, t in at_end.topics.items()})
    assert status(LagTrend().judge(given(read, progress=sampled(read), kafka=at_end))) == "pass"


def _ends_where_read(topic: Any, batches: Sequence[BatchProgress]) -> Any:
    end = sum(b.offsets or 0 for b in batches[1:])
    return replace(topic, partitions={n: replace(p, log_end=end) for n, p in topic.partitions.items()})


def test_a_forecast_that_was_asked_for_and_cannot_be_made_is_no_pass() -> None:
    seen = given(falling_behind(), kafka=Unavailable("kafka", "the broker is down"))
    found = LagTrend(error_if_within=Period(6, "hour")).judge(seen)
    assert status(found) == "error" and "the broker is down" in str(found.unproved)
    unlimited = falling_behind()
    kafka = broker(unlimited, 0, timedelta(hours=2), -1)
    seen = given(unlimited, progress=sampled(unlimited), kafka=kafka)
    assert status(LagTrend(error_if_within=Period(6, "hour")).judge(seen)) == "error"
    assert status(LagTrend().judge(seen)) == "warn"


def test_a_compacted_topic_deletes_nothing_by_age() -> None:
    behind = falling_behind()
    kafka = broker(behind, 0, timedelta(hours=4), 3_600_000)
    kafka = replace(kafka, topics={n: replace(t, cleanup_policy="compact") for n, t in kafka.topics.items()})
    found = LagTrend().judge(given(behind, progress=sampled(behind), kafka=kafka))
    assert {f.code for f in found.findings} == {Code.LAG}


def test_lag_trend_with_too_little_history() -> None:
    found = LagTrend().judge(given([batch(n) for n in range(19)]))
    assert status(found) == "skipped" and "19 micro-batches whose lag is known, and 20 are needed" in str(found.skipped)
    blind = LagTrend().judge(given([batch(n, lag=None) for n in range(100)]))
    assert status(blind) == "skipped" and "0 micro-batches" in str(blind.skipped)


# -- state_growth ------------------------------------------------------------------------------------------------------


def stateful(n: int, rows: float, **fields: Any) -> BatchProgress:
    made: dict[str, Any] = {
        "state_rows": int(rows),
        "state_bytes": int(rows) * 100,
        "state_operators": ("dedupe",),
        "watermark": BEGIN + timedelta(seconds=10 * n - 60),
    }
    return batch(n, **{**made, **fields})


def test_state_that_fills_up_and_stays_is_no_growth() -> None:
    filling = [stateful(n, min(n, 150) * 1000 + n % 7) for n in range(600)]
    assert status(StateGrowth().judge(given(filling))) == "pass"


def test_state_without_end_warns_and_fails_by_its_doubling_time() -> None:
    """1,000 rows more every 10 s, 600,000 now: it doubles in 100 minutes."""
    growing = [stateful(n, n * 1000) for n in range(601)]
    found = StateGrowth().judge(given(growing))
    assert status(found) == "warn" and found.warnings == 2
    assert found.evidence["rows_double_in_seconds"] == pytest.approx(6000, rel=0.02)
    assert found.message.startswith(
        "state rows grow by 360,000 an hour and double in 1.7 hours (now 600,000); state bytes"
    )
    assert status(StateGrowth(error_if_doubling_within=Period(2, "hour")).judge(given(growing))) == "fail"
    assert status(StateGrowth(warn_if_doubling_within=Period(1, "hour")).judge(given(growing))) == "pass"
    assert status(StateGrowth(warn_if_doubling_within=None).judge(given(growing))) == "pass"


def test_more_state_than_allowed_fails() -> None:
    steady = [stateful(n, 1000) for n in range(30)]
    found = StateGrowth(error_above_bytes=99_999).judge(given(steady))
    assert status(found) == "fail" and same_message(found.message)
    assert status(StateGrowth(error_above_bytes=100_000).judge(given(steady))) == "pass"


def test_a_watermark_that_stands_still_warns() -> None:
    still = [stateful(n, 1000, watermark=BEGIN) for n in range(400)]
    found = StateGrowth().judge(given(still))
    assert status(found) == "warn" and same_message(found.message)
    assert status(StateGrowth(watermark_still=None).judge(given(still))) == "pass"
    idle = [replace(b, rows=0) for b in still]
    assert status(StateGrowth().judge(given(idle))) == "pass", "nothing came in that could move it"
    lately = [stateful(n, 1000, **({"watermark": BEGIN} if n > 300 else {})) for n in range(400)]
    assert status(StateGrowth().judge(given(lately))) == "pass", "16 minutes are less than an hour"


def test_state_without_a_watermark_warns() -> None:
    never = [stateful(n, 1000, watermark=None) for n in range(400)]
    found = StateGrowth().judge(given(never))
    assert status(found) == "warn" and same_message(found.message)


def test_no_state_and_too_little_of_it() -> None:
    assert StateGrowth().judge(given([batch(n) for n in range(50)])).skipped == "the query keeps no state"
    found = StateGrowth().judge(given([stateful(n, 10) for n in range(19)]))
    assert status(found) == "skipped" and "19 micro-batches with state, and 20 are needed" in str(found.skipped)
    assert status(StateGrowth().judge(given([]))) == "skipped"


# -- in the run --------------------------------------------------------------------------------------------------------


def test_arguments_as_recon_yml_gives_them() -> None:
    spec = {"lag_trend": {"arguments": {"error_if_within": {"count": 6, "period": "hour"}, "warn_if_within": None}}}
    check = build(CheckSpec.model_validate(spec), "here")
    assert check == LagTrend(error_if_within=Period(6, "hour"), warn_if_within=None)


def test_a_progress_that_cannot_be_read_is_an_error() -> None:
    bound = Bound(
        check=Throughput(), config=CheckConfig(), unique_id="test.x.t", name="throughput_p", pipeline="p", sink=None
    )
    seen = given([], progress=Unavailable("progress", "the table is torn"))
    (result,) = run_evidence([bound], lambda _: seen, lambda: datetime.now(UTC))
    assert (result.status, result.message) == ("error", "the table is torn")


def test_how_the_stream_runs_does_not_decide_whether_data_arrived() -> None:
    proved = [ran(names[0]) for names in PROOF]
    slow = [ran("throughput", "fail"), ran("lag_trend", "fail", Code.LOSS_AHEAD), ran("state_growth", "skipped")]
    assert answer([*proved, *slow], ["s"])[0] == answer(proved, ["s"])[0] == "complete"


def test_the_next_audit_knows_an_earlier_log_start(tmp_path: Path) -> None:
    """The oldest of the last two days: a longer way makes a better rate."""
    store = open_ledger(project(tmp_path)).results
    for hours, start in ((72, 10), (30, 500), (2, 900)):
        made = run(AUDITED - timedelta(hours=hours), lag_trend="pass")
        told = replace(made.results[0], evidence={"log_starts": [["orders", 0, start]]})
        append_run(store, replace(made, results=(told,)))
    found = left(store)
    assert found is not None
    assert found.log_starts == {("orders", 0): (AUDITED - timedelta(hours=30), 500)}
