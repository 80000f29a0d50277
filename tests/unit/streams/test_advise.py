"""Each rule of `recon advise`, against streams whose true cost is known."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from recon.cli.app import app
from recon.model import KafkaPartition, KafkaTopic
from recon.model.progress import BatchProgress
from recon.project import Project
from recon.write.ledger.progress import PROGRESS, row_of
from recon.write.ledger.store import open_store
from recon.write.streams.advise import advise
from recon.write.streams.cost import FULL, Cost, cost
from recon.write.streams.facts import Advice, Facts
from recon.write.streams.rules import (
    RULES,
    deduplication,
    fail_on_data_loss,
    max_offsets_per_trigger,
    partitions,
    state_store,
    trigger_interval,
)
from tests.unit.streams.test_listener import event

BEGIN = datetime(2026, 11, 21, tzinfo=UTC)
TRUE = Cost(2.0, 0.0002, 1.0, 0, 0, 0)  # 2 s a micro-batch and 0.2 ms a row


def batches(
    rows: Callable[[int], int], *, count: int = 60, every: float = 10.0, noise: float = 0.0, **fields: Any
) -> list[BatchProgress]:
    """A stream of the true cost: micro-batch n reads `rows(n)`."""
    chance = random.Random(7)
    found = []
    for n in range(count):
        seconds = TRUE.of(rows(n)) * (1 + abs(chance.gauss(0, noise)))
        at = BEGIN + timedelta(seconds=every * n)
        made: dict[str, Any] = {"offsets": rows(n), "partitions": 4, "lag": 0, **fields}
        found.append(BatchProgress(query_id="q", run_id="r", batch_id=n, at=at, rows=rows(n), seconds=seconds, **made))
    return found


def varied(n: int) -> int:
    return 1000 + (n * 7919) % 19_000


def facts(of: list[BatchProgress], **fields: Any) -> Facts:
    return Facts(**{"batches": of, "target": timedelta(seconds=10), "cores": 2, **fields})


def topic(retention_ms: int | None = 604_800_000, count: int = 4, policy: str = "delete") -> dict[str, KafkaTopic]:
    made = {
        n: KafkaPartition(partition=n, log_start=0, log_end=0, high_watermark=0, last_stable=0) for n in range(count)
    }
    return {"t": KafkaTopic(topic="t", exists=True, cleanup_policy=policy, retention_ms=retention_ms, partitions=made)}


# -- the line through rows and seconds ---------------------------------------------------------------------------------


def test_the_true_cost_is_found_through_noise_and_outliers() -> None:
    exact = cost(facts(batches(varied)).settled)
    assert isinstance(exact, Cost)
    assert (exact.fixed, exact.per_row, exact.worst) == pytest.approx((2.0, 0.0002, 1.0))
    rough = batches(varied, noise=0.1)
    for n in range(10, 60, 10):
        rough[n] = replace(rough[n], seconds=120.0)  # a pause
    found = cost(facts(rough).settled)
    assert isinstance(found, Cost)
    assert found.fixed == pytest.approx(2.0, rel=0.2) and found.per_row == pytest.approx(0.0002, rel=0.15)


def test_the_first_micro_batch_of_a_run_is_left_out() -> None:
    of = batches(varied)
    assert len(facts(of).settled) == 59
    of[30:] = [replace(b, run_id="restarted") for b in of[30:]]
    assert len(facts(of).settled) == 58


@pytest.mark.parametrize(
    ("of", "lacks"),
    [
        (batches(varied, count=10), "9 micro-batches with rows are recorded after each run's first, and 10 are needed"),
        (batches(lambda n: 5000), "about the same rows (5,000 to 5,000)"),
        ([replace(b, seconds=3.0) for b in batches(varied)], "more rows did not take longer"),
        ([], "spark.streams.addListener(recon.ProgressListener('.'))"),
    ],
)
def test_without_enough_data_the_rules_say_what_they_lack(of: list[BatchProgress], lacks: str) -> None:
    for rule in (max_offsets_per_trigger, trigger_interval):
        advice = rule(facts(of))
        assert (advice.decision, advice.value) == ("unknown", None) and lacks in advice.because


# -- maxOffsetsPerTrigger ----------------------------------------------------------------------------------------------


def test_the_recommended_size_takes_what_was_planned() -> None:
    advice = max_offsets_per_trigger(facts(batches(varied)))
    # (10 s * 0.8 - 2 s) / 0.2 ms = 30,000 rows
    assert (advice.decision, advice.setting, advice.value) == ("change", "maxOffsetsPerTrigger", 30_000)
    assert TRUE.of(advice.value) == pytest.approx(10 * FULL)
    assert advice.because.startswith(
        "a micro-batch takes 2.00 s + 200.00 µs a row (robust line through 59 micro-batches of 1,"
    )
    assert "of 10 s 8.0 s are planned, so (8.0 - 2.00) / 200.00 µs = 30,000 rows" in advice.because
    assert advice.figures["fixed_seconds"] == pytest.approx(2.0)


def test_with_the_recommended_size_about_nineteen_of_twenty_micro_batches_are_in_time() -> None:
    """The promise itself, on streams with noise: 2,000 new micro-batches of the size that 59 measured ones gave."""
    for noise in (0.05, 0.2, 0.4):
        advice = max_offsets_per_trigger(facts(batches(varied, noise=noise)))
        later = batches(lambda n: int(advice.value), count=2000, noise=noise)  # noqa: B023 - used at once
        late = sum(b.seconds > 10 for b in later)
        assert late <= 0.1 * 2000, (noise, advice.value, late)
        assert advice.value >= 8000, "and not by being far too careful"


def test_a_line_is_not_followed_far_beyond_what_was_seen() -> None:
    advice = max_offsets_per_trigger(facts(batches(lambda n: 100 + n * 10)))
    assert advice.value == 2000 and "the line is extrapolated no farther" in advice.because


def test_fixed_costs_above_the_target_ask_for_another() -> None:
    advice = max_offsets_per_trigger(facts(batches(varied), target=timedelta(seconds=2)))
    assert advice.setting == "--target-batch-time" and advice.value == 5.0
    assert "fixed cost alone" in advice.because


def test_transaction_markers_take_offsets() -> None:
    of = [replace(b, offsets=2 * b.rows) for b in batches(varied)]
    advice = max_offsets_per_trigger(facts(of))
    assert advice.value == 60_000 and "a row takes 2.00 offsets" in advice.because


def test_a_size_that_cannot_keep_up_is_said_to() -> None:
    crowded = [replace(b, lag=40_000 * n) for n, b in enumerate(batches(varied))]
    advice = max_offsets_per_trigger(facts(crowded))
    assert "which is too little: lag would grow" in advice.because
    assert advice.figures["rows_per_second_arriving"] > advice.figures["rows_per_second_able"]


# -- trigger interval --------------------------------------------------------------------------------------------------


def test_an_interval_that_wastes_time_on_fixed_costs_is_lengthened() -> None:
    """1,000 rows/s take 20 % of the time; 2 s fixed are 20 % of 10 s, and 50 % of 4 s."""
    often = trigger_interval(facts(batches(lambda n: 2000 + n * 70, every=4.0)))
    assert (often.decision, often.value) == ("change", 10.0)
    assert often.figures["fixed_share"] == pytest.approx(0.5)
    seldom = trigger_interval(facts(batches(lambda n: 5000 + n * 175, every=10.0)))
    assert seldom.decision == "keep" and seldom.figures["interval_seconds"] == 10.0


def test_an_interval_must_keep_up() -> None:
    """Some 3,400 rows/s take 68 % of the time: 2 s fixed are the other 12 % of 17 s."""
    advice = trigger_interval(facts(batches(lambda n: 25_000 + n * 300, every=10.0)))
    assert (advice.decision, advice.value) == ("change", 20.0)


def test_no_interval_helps_where_rows_alone_take_all_the_time() -> None:
    advice = trigger_interval(facts(batches(lambda n: 40_000 + n * 700, every=10.0)))
    assert advice.value is None and "more cores" in advice.recommendation


# -- partitions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "cores", "says", "setting", "value"),
    [
        (4, 4, "keep", None, None),
        (200, 100, "keep", None, None),
        (2, 8, "change", "minPartitions", 8),
        (9, 8, "change", "partitions", 8),
        (11, 8, "change", "partitions", 16),
        (200, 2, "change", "coalesce", 6),
    ],
)
def test_kafka_partitions_against_cores(count: int, cores: int, says: str, setting: str, value: int) -> None:
    advice = partitions(facts(batches(varied), cores=cores, topics=topic(count=count)))
    assert (advice.decision, advice.setting, advice.value) == (says, setting, value)
    assert advice.because.startswith(f"{count} Kafka partitions are {count} tasks on {cores} cores: ")


def test_without_a_broker_the_recorded_partitions_count() -> None:
    assert partitions(facts(batches(varied), cores=4)).figures["partitions"] == 4
    assert "--cores" in partitions(facts(batches(varied), cores=None)).because
    assert partitions(facts([], cores=4)).decision == "unknown"


def test_shuffle_partitions_of_the_state() -> None:
    of = batches(varied, state_partitions=200, state_operators=("dedupe",))
    advice = partitions(facts(of, cores=4))
    assert advice.decision == "change" and "spark.sql.shuffle.partitions to 4 to 12" in advice.recommendation
    assert "200 shuffle partitions, 50.0 for each core" in advice.because
    assert partitions(facts(batches(varied, state_partitions=8), cores=4)).decision == "keep"


# -- deduplication -----------------------------------------------------------------------------------------------------


def keyed(n_rows: int, bytes_each: int, delay: timedelta | None) -> list[BatchProgress]:
    of = batches(lambda n: 10_000)
    return [
        replace(
            b,
            state_operators=("dedupe",),
            state_rows=n_rows,
            state_bytes=n_rows * bytes_each,
            watermark=None if delay is None else b.at - delay,
        )
        for b in of
    ]


def test_a_window_that_fits_keeps_its_state_and_one_that_does_not_merges() -> None:
    """1,000 rows/s of 100 bytes fill 1 GiB in 2.98 hours."""
    fits = deduplication(facts(keyed(600_000, 100, timedelta(minutes=10))))
    assert fits.decision == "keep" and fits.figures["window_seconds"] == pytest.approx((1 << 30) / 100_000, rel=0.02)
    assert "1 hour takes 343.3 MiB" in fits.because and "measured over 60 micro-batches" in fits.because
    wide = deduplication(facts(keyed(600_000, 100, timedelta(days=1))))
    assert (wide.decision, wide.value) == ("change", "delta_merge") and "window of 24.0 hours" in wide.recommendation
    endless = deduplication(facts(keyed(600_000, 100, None)))
    assert (endless.decision, endless.setting) == ("change", "withWatermark")


def test_a_merge_is_told_what_state_would_hold() -> None:
    advice = deduplication(facts(batches(lambda n: 10_000), kinds=("delta_merge",)))
    assert (
        advice.decision == "keep"
        and "assumed" in advice.because
        and "delta_merge drops duplicates of any age" in (advice.recommendation)
    )
    assert deduplication(facts(batches(varied, count=5))).decision == "unknown"
    assert "nothing drops duplicates here" in deduplication(facts(batches(varied))).recommendation


# -- failOnDataLoss ----------------------------------------------------------------------------------------------------


def interrupted(down: timedelta) -> list[BatchProgress]:
    of = batches(varied)
    return [*of[:30], *(replace(b, run_id="restarted", at=b.at + down) for b in of[30:])]


def test_retention_against_downtime_and_lag() -> None:
    short = fail_on_data_loss(facts(interrupted(timedelta(hours=2)), topics=topic(), unread_for=timedelta(hours=1)))
    assert (short.decision, short.value) == ("keep", True) and "2 times their sum is 6.0 hours" in short.because
    long = fail_on_data_loss(facts(interrupted(timedelta(days=5)), topics=topic()))
    assert (long.decision, long.setting) == ("change", "retention.ms")
    assert long.value == pytest.approx(10 * 86_400_000, rel=0.01) and "LOSS_RETENTION" in long.recommendation


def test_retention_that_nobody_tells_or_that_does_not_delete() -> None:
    assert "Kafka did not answer" in fail_on_data_loss(facts(batches(varied))).because
    assert fail_on_data_loss(facts(batches(varied), topics=topic(None))).decision == "unknown"
    assert fail_on_data_loss(facts([], topics=topic())).decision == "unknown"
    for kept in (topic(-1), topic(1000, policy="compact")):
        assert fail_on_data_loss(facts(interrupted(timedelta(days=5)), topics=kept)).decision == "keep"


# -- state store -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "rocksdb", "says"), [(1 << 20, False, "keep"), (1 << 30, False, "change"), (1 << 30, True, "keep")]
)
def test_big_state_belongs_into_rocksdb(size: int, rocksdb: bool, says: str) -> None:
    advice = state_store(facts(batches(varied, state_bytes=size, state_rows=9, rocksdb=rocksdb)))
    assert advice.decision == says
    assert says == "keep" or str(advice.value).endswith("RocksDBStateStoreProvider")
    assert "median of 60 micro-batches" in advice.because


def test_no_state_needs_no_store() -> None:
    assert state_store(facts(batches(varied))).recommendation == "nothing to choose: the query keeps no state"
    assert state_store(facts([])).decision == "unknown"


# -- all together ------------------------------------------------------------------------------------------------------


def test_every_rule_answers_with_figures_or_with_what_it_lacks() -> None:
    for of in ([], batches(varied, count=1), batches(varied), keyed(10, 10, timedelta(hours=1))):
        for rule in RULES:
            advice = rule(facts(of, topics=topic()))
            assert isinstance(advice, Advice) and advice.because and advice.recommendation
            assert advice.decision != "unknown" or advice.value is None
            json.dumps(advice.figures)


def recorded(folder: Path) -> Project:
    """A project whose progress is that of a stream of the true cost, up to now."""
    (folder / "recon.yml").write_text(
        "version: 2\nname: lake\nledger: recon\npipelines:\n  - name: orders\n    checkpoint: cp\n"
        "    sinks: [{name: orders, kind: delta, target: t}]\n"
    )
    from recon.project import load

    of = load(folder)
    begin = datetime.now(UTC) - timedelta(hours=1)
    rows = []
    for n in range(60):
        at, ms = (begin + timedelta(seconds=10 * n)).isoformat(), round(1000 * TRUE.of(varied(n)))
        ends = {"t": {"0": 10_000 * n, "1": 10_000 * n}}
        source = {"description": "K", "startOffset": ends, "endOffset": ends, "latestOffset": ends}
        changed = {"numInputRows": varied(n), "durationMs": {"triggerExecution": ms, "addBatch": ms}}
        made = event("plain", 1, batchId=n, timestamp=at, sources=[source], **changed)
        rows.append(row_of(made, "orders", cores=2))
    open_store(of, PROGRESS).append_rows(rows)
    return of


def test_from_the_table_to_the_command(tmp_path: Path) -> None:
    of = recorded(tmp_path)
    found = {a.rule: a for a in advise(of, "orders", target=timedelta(seconds=20))}
    # (20 s * 0.8 - 2 s) / 0.2 ms is 70,000, and no more than three times the largest seen is recommended.
    assert found["max_offsets_per_trigger"].value == 55_000 and found["partitions"].figures["cores"] == 2
    ran = CliRunner().invoke(app, ["advise", "--project-dir", str(tmp_path), "--target-batch-time", "10s"])
    assert ran.exit_code == 0, ran.output
    assert "pipeline orders" in ran.stdout and "set maxOffsetsPerTrigger to 30,000" in ran.stdout
    asked = ["advise", "--project-dir", str(tmp_path), "--pipeline", "orders", "--cores", "8", "--output", "json"]
    told = json.loads(CliRunner().invoke(app, asked).stdout)
    assert [a["rule"] for a in told] == [rule.__name__ for rule in RULES]
    assert next(a for a in told if a["rule"] == "partitions")["figures"]["cores"] == 8
    assert next(a for a in told if a["rule"] == "fail_on_data_loss")["says"] == "unknown"


def test_options_that_cannot_be_meant(tmp_path: Path) -> None:
    recorded(tmp_path)
    for option, said in (
        (["--target-batch-time", "soon"], "not a length of time"),
        (["--pipeline", "ordres"], "orders"),
    ):
        ran = CliRunner().invoke(app, ["advise", "--project-dir", str(tmp_path), *option])
        assert ran.exit_code == 2 and said in ran.stderr
