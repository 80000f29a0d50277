"""The demo holds the audit against what was done: everything that differs is named, nothing else."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from recon.local.demo import events
from recon.local.demo.expected import differences, refuted
from recon.model import CheckResult, Code, Finding, PipelineFacts, RunResult, Status

NOW = datetime(2026, 11, 21, tzinfo=UTC)


def result(
    pipeline: str, check: str, status: Status = "pass", column: str | None = None, **more: object
) -> CheckResult:
    known = [one for one in refuted() if (one.pipeline, one.check) == (pipeline, check)]
    findings = tuple(
        Finding(
            code=Code(one.code),
            message="m",
            pipeline=pipeline,
            partition=one.partition,
            start_offset=one.start_offset,
            end_offset=one.end_offset,
        )
        for one in known
    )
    fields = {"findings": findings, "failures": len(findings), **more}
    name = f"{check}_{pipeline}_{column}"
    return CheckResult(
        unique_id=name, name=name, check=check, kind="evidence", status=status, message="", pipeline=pipeline,
        column=column, **fields,  # type: ignore[arg-type]
    )  # fmt: skip


def finding_of(code: Code) -> Finding:
    return Finding(code=code, message="m", pipeline="orders", batch_id=events.CRASH_AT, epoch=0)


def expected_run() -> RunResult:
    results = (
        result("orders", "offset_continuity", findings=(finding_of(Code.REPLAYED),)),
        result("orders", "ledger_integrity", findings=(finding_of(Code.REBUILT),)),
        *(result("orders", n) for n in ("kafka_end_offsets", "checkpoint_commits", "delta_history", "source_rows")),
        result("orders", "unique_combination_of_columns"),
        result("orders", "not_null", column="order_id"),
        result("orders", "not_null", column="status"),
        result("orders", "accepted_values", column="status"),
        *(result("payments", n) for n in ("offset_continuity", "kafka_end_offsets", "checkpoint_commits")),
        result("payments", "ledger_integrity"),
        result("payments", "delta_history", "fail"),
        result("payments", "source_rows", "fail"),
        result("payments", "not_null", column="payment_id"),
        result("payments", "unique", "fail", column="payment_id", failures=events.SENT_TWICE),
    )
    facts = [
        PipelineFacts(
            name=name, answer=answer, because="", query_id=None, checkpoint="c", topics=(), isolation_level=""
        )
        for name, answer in (("orders", "complete"), ("payments", "not complete"))
    ]
    return RunResult(
        invocation_id="1", project="demo", recon_version="0", generated_at=NOW, period_from=None, period_to=NOW,
        elapsed_time=1.0, results=results, pipelines=tuple(facts),  # type: ignore[arg-type]
    )  # fmt: skip


def repaired_run() -> RunResult:
    run = expected_run()
    again = tuple(
        Finding(code=Code.REPAIRED, message="m", partition=partition, start_offset=start, end_offset=end)
        for partition, (start, end) in events.deleted_offsets().items()
    )
    results = [r for r in run.results if r.pipeline == "payments" and r.status == "pass"]
    results += [
        result("payments", "delta_history", findings=()),
        result("payments", "source_rows", findings=again),
        result("payments", "unique", "fail", column="payment_id", failures=events.SENT_TWICE),
    ]
    facts = replace(run.pipelines[1], answer="complete", accepted=("a loss", "a gap", "a mutation"))
    return replace(run, results=tuple(results), pipelines=(facts,))


def with_result(run: RunResult, at: int, **changes: object) -> RunResult:
    results = list(run.results)
    results[at] = replace(results[at], **changes)  # type: ignore[arg-type]
    return replace(run, results=tuple(results))


def test_the_expected_run_differs_in_nothing() -> None:
    assert differences(expected_run()) == []


def test_the_repaired_run_differs_in_nothing() -> None:
    assert differences(repaired_run(), repaired=True) == []


def test_what_the_repair_left_is_named() -> None:
    run = repaired_run()
    where = at(run, "payments", "source_rows")
    fewer = with_result(run, where, findings=run.results[where].findings[1:])
    (difference,) = differences(fewer, repaired=True)
    assert difference.startswith("REPAIRED was expected for")
    one = replace(run, pipelines=(replace(run.pipelines[0], accepted=("a loss",)),))
    assert differences(one, repaired=True) == [
        "pipeline payments: expected 'complete, but for 3 accepted findings', "
        "found 'complete, but for 1 accepted finding'"
    ]
    assert len(differences(expected_run(), repaired=True)) > 3


def at(run: RunResult, pipeline: str, check: str) -> int:
    return next(n for n, r in enumerate(run.results) if (r.pipeline, r.check) == (pipeline, check))


@pytest.mark.parametrize("status", ["fail", "error", "skipped", "warn"])
def test_another_status_is_named(status: str) -> None:
    run = expected_run()
    changed = with_result(run, at(run, "orders", "source_rows"), status=status)
    assert differences(changed) == [f"source_rows of orders: expected pass, found {status}"]


def test_a_missing_and_an_extra_check_are_named() -> None:
    run = expected_run()
    where = at(run, "payments", "source_rows")
    extra = result("orders", "unique", column="x")
    changed = replace(run, results=(*run.results[:where], *run.results[where + 1 :], extra))
    assert "unique x of orders: expected no such check, found pass" in differences(changed)
    assert "source_rows of payments: expected fail, found no result" in differences(changed)
    assert sum("was expected and not found" in line for line in differences(changed)) == 5


def test_a_finding_at_other_offsets_is_named_twice() -> None:
    run = expected_run()
    where = at(run, "payments", "source_rows")
    findings = tuple(
        replace(f, end_offset=f.end_offset + 1) if f.code is Code.LOSS_RETENTION and f.end_offset else f
        for f in run.results[where].findings
    )
    start, end = events.expired_offsets()
    loss = f"LOSS_RETENTION by source_rows of payments partition {events.EXPIRED_PARTITION} [{start}, "
    assert differences(with_result(run, where, findings=findings)) == [
        f"{loss}{end}) was expected and not found",
        f"{loss}{end + 1}) was found and not expected",
    ]


def test_a_finding_on_the_healthy_pipeline_is_named() -> None:
    run = expected_run()
    changed = with_result(run, at(run, "orders", "delta_history"), findings=(finding_of(Code.UNSTAMPED),))
    assert differences(changed) == ["UNSTAMPED by delta_history of orders was found and not expected"]


def test_other_figures_and_answers_are_named() -> None:
    run = expected_run()
    fewer = with_result(run, at(run, "payments", "unique"), failures=39)
    assert differences(fewer) == ["unique of payments: expected 40 duplicate keys, found [39]"]
    silent = with_result(run, at(run, "orders", "ledger_integrity"), findings=())
    assert differences(silent) == ["REBUILT was expected for micro-batch 5 of orders and not found"]
    unproved = replace(run, pipelines=(replace(run.pipelines[0], answer="could not be proved"), run.pipelines[1]))
    assert differences(unproved) == ["pipeline orders: expected 'complete', found 'could not be proved'"]


def test_where_the_faults_lie_follows_from_what_was_sent() -> None:
    # 3,000 payments in each partition, and ten of those sent twice; 25 of the 100 deleted rows in each.
    assert events.expired_offsets() == (3010, 3710)
    assert events.deleted_offsets() == dict.fromkeys(range(4), (4260, 4285))
