"""Lines in dbt's form; colour and progress on a terminal only."""

from __future__ import annotations

import dataclasses
import io

import pytest

from recon.model import CheckResult
from recon.reports.console import Console
from tests.support import sample_run


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch):
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "COLUMNS", "LINES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


def result(status, failures=None, name="offset_continuity_orders", **more) -> CheckResult:
    return CheckResult(
        unique_id=f"test.lake.{name}",
        name=name,
        check="offset_continuity",
        kind="evidence",
        status=status,
        failures=failures,
        message=more.pop("message", ""),
        execution_time=0.012,
        **more,
    )


def lines_of(*results: CheckResult, file: io.StringIO | None = None, width: int | None = None) -> list[str]:
    out = file or io.StringIO()
    console = Console(out, width=width)
    for n, one in enumerate(results, 1):
        console.line(n, 9, one)
    return out.getvalue().splitlines()


def test_a_line_for_each_status():
    lines = lines_of(
        result("pass", 0),
        result("warn", 2, "delta_history_orders"),
        result("fail", 7, "unique_orders_order_id"),
        result("error", None, "source_rows_orders"),
        result("skipped", None, "not_null_orders_status", message="--no-spark was given"),
    )
    assert lines == [
        "1 of 9 PASS offset_continuity_orders ........................................... [PASS in 0.01s]",
        "2 of 9 WARN 2 delta_history_orders ............................................. [WARN 2 in 0.01s]",
        "3 of 9 FAIL 7 unique_orders_order_id ........................................... [FAIL 7 in 0.01s]",
        "4 of 9 ERROR source_rows_orders ................................................ [ERROR in 0.01s]",
        "5 of 9 SKIP not_null_orders_status ............................................. [SKIP]",
        "  --no-spark was given",
    ]


def test_a_long_name_is_kept_whole():
    name = "unique_combination_of_columns_" + "x" * 90
    assert lines_of(result("pass", 0, name)) == [f"1 of 9 PASS {name}  [PASS in 0.01s]"]


def test_dots_fit_a_terminals_width():
    (line,) = lines_of(result("pass", 0), width=60)
    assert len(line) == 60
    assert line.endswith("... [PASS in 0.01s]")
    (wide,) = lines_of(result("pass", 0), width=200)
    assert wide.index("[") == 81


def test_colour_on_a_terminal_only(monkeypatch):
    assert "\x1b[32mPASS in 0.01s\x1b[0m" in lines_of(result("pass", 0), file=Terminal())[0]
    assert "\x1b[" not in lines_of(result("pass", 0))[0]
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[3" not in lines_of(result("fail", 1), file=Terminal())[0]


def test_progress_on_a_terminal_only():
    terminal, file = Terminal(), io.StringIO()
    for out in (terminal, file):
        with Console(out) as console:
            console.expect(9)
            console.started("offset_continuity_orders")
            console.line(1, 9, result("pass", 0))
            console.started("unique_orders_order_id")
    assert "2 of 9 unique_orders_order_id" in terminal.getvalue()
    assert terminal.getvalue().endswith("\x1b[2K")  # and the line is gone again
    assert file.getvalue().splitlines() == lines_of(result("pass", 0))


def summary_of(run) -> str:
    out = io.StringIO()
    Console(out).summary(run)
    return out.getvalue()


def test_the_closing_line_is_dbts_and_counts_failures_as_errors():
    text = summary_of(sample_run.sample_run())
    assert text.splitlines()[-1] == "Done. PASS=10 WARN=2 ERROR=6 SKIP=1 TOTAL=19"
    assert "Finished running 19 data tests in 0 hours 0 minutes and 18.74 seconds (18.74s)." in text
    assert "Completed with 6 errors and 2 warnings:" in text


def test_a_run_without_failures_completed_successfully():
    text = summary_of(sample_run.healthy_run())
    assert "Completed successfully" in text
    assert "Failure" not in text
    assert text.splitlines()[-1] == "Done. PASS=8 WARN=0 ERROR=0 SKIP=0 TOTAL=8"


def test_failures_are_told_with_their_first_findings_and_samples():
    lines = summary_of(sample_run.sample_run()).splitlines()
    at = lines.index("Failure in test kafka_end_offsets_payments (payments)")
    assert lines[at + 1] == "  4,102 records of payments-2 expired before they were read"
    assert lines[at + 2].startswith(
        "  LOSS_RETENTION  payments-2 [26658, 27000) batch 80  the log of payments-2 starts"
    )
    assert lines[at + 7] == "  … and 8 more in the report"
    assert "  payment_id=P-1003, count=4" in lines
    assert not any(line.startswith("  NEW_EPOCH") for line in lines)  # what only informs is in the report


def test_each_pipelines_answer_and_the_notes_are_told():
    text = summary_of(sample_run.sample_run())
    assert "Pipeline orders: complete. All 144 micro-batches" in text
    assert "Pipeline payments: not complete. Kafka deleted" in text
    assert "Pipeline clicks: could not be proved. No broker answered" in text
    assert "Note: No broker answered at kafka-2.internal:9092" in text


def test_what_somebody_accepted_is_named_below_the_answer():
    run = sample_run.healthy_run()
    of_first = dataclasses.replace(run.pipelines[0], accepted=("GAP: orders-0; accepted by Ada\non 2026-11-22: lost",))
    lines = summary_of(dataclasses.replace(run, pipelines=(of_first, *run.pipelines[1:]))).splitlines()
    (answer,) = (place for place, line in enumerate(lines) if line.startswith(f"Pipeline {of_first.name}: "))
    assert "complete, but for 1 accepted finding" in lines[answer]
    assert lines[answer + 1] == "  Accepted: GAP: orders-0; accepted by Ada on 2026-11-22: lost"


def test_data_cannot_steer_the_terminal():
    run = sample_run.hostile_run()
    out = io.StringIO()
    console = Console(out)
    for n, one in enumerate(run.results, 1):
        console.line(n, len(run.results), one)
    console.summary(run)
    assert "\x1b" not in out.getvalue()
    assert "\\x1b[31m" in out.getvalue()


def test_brackets_in_data_are_not_markup():
    text = summary_of(
        dataclasses.replace(
            sample_run.healthy_run(), results=(result("fail", 1, message="values [bold]x[/bold] :smile: were found"),)
        )
    )
    assert "values [bold]x[/bold] :smile: were found" in text


def test_rows_that_were_not_meant_for_a_sink_are_counted_below_the_answer():
    run = sample_run.sample_run()
    sink = dataclasses.replace(run.pipelines[0].sinks[0], rows_filtered=1_204, rows_quarantined=1)
    first = dataclasses.replace(run.pipelines[0], sinks=(sink,))
    others = dataclasses.replace(sink, rows_filtered=None, rows_quarantined=0)
    second = dataclasses.replace(first, name="second", sinks=(others,))
    out = io.StringIO()
    Console(out).summary(dataclasses.replace(run, pipelines=(first, second)))
    said = [line for line in out.getvalue().splitlines() if line.startswith("  ") and "filtered" in line]
    assert said == [f"  {sink.name}: 1,204 rows filtered by the transform and 1 row put into quarantine"]


DEAD = "Kafka at broker:9092 cannot be reached: Local: Timed out; start the broker, or check bootstrap.servers"


def run_without_a_broker():
    """Three pipelines, one broker that does not answer: two checks each say so, their answers and a note as well."""
    run = sample_run.healthy_run()
    names = ("orders", "payments", "clicks")
    results = tuple(
        result("error", None, f"{check}_{name}", message=DEAD, pipeline=name)
        for name in names
        for check in ("kafka_end_offsets", "checkpoint_commits")
    )
    answers = tuple(
        dataclasses.replace(
            run.pipelines[0],
            name=name,
            answer="could not be proved",
            because=f"kafka_end_offsets_{name}: {DEAD}",
            sinks=(),
        )
        for name in names
    )
    note = f"3 pipelines (orders, payments, clicks): kafka could not be read: {DEAD}"
    return dataclasses.replace(run, results=results, pipelines=answers, notes=(note,))


@pytest.mark.parametrize("width", [60, 80, 160])
def test_a_broker_that_does_not_answer_is_said_once(width):
    out = io.StringIO()
    Console(out, width=width).summary(run_without_a_broker())
    tests = (
        "kafka_end_offsets_orders, checkpoint_commits_orders, kafka_end_offsets_payments, checkpoint_commits_payments, "
        "kafka_end_offsets_clicks and 1 more"
    )
    assert out.getvalue().splitlines()[5:] == [
        f"Error in 6 tests: {tests}",
        f"  {DEAD}",
        "",
        "Pipeline orders: could not be proved. kafka_end_offsets_orders: see above",
        "Pipeline payments: could not be proved. kafka_end_offsets_payments: see above",
        "Pipeline clicks: could not be proved. kafka_end_offsets_clicks: see above",
        "Note: 3 pipelines (orders, payments, clicks): kafka could not be read: see above",
        "",
        "Done. PASS=0 WARN=0 ERROR=6 SKIP=0 TOTAL=6",
    ]


def test_failures_with_one_sentence_are_told_one_by_one():
    same = [result("fail", 1, f"not_null_{n}", message="1 row has no value in this column") for n in range(2)]
    text = summary_of(dataclasses.replace(sample_run.healthy_run(), results=tuple(same)))
    assert text.count("1 row has no value in this column") == 2


def test_why_checks_are_skipped_is_said_where_it_changes():
    reasons = ("--no-spark was given", "--no-spark was given", "the table has no rows", "--no-spark was given")
    lines = lines_of(*(result("skipped", None, message=reason) for reason in reasons))
    assert [line.strip() for line in lines if line.startswith("  ")] == [reasons[0], reasons[2], reasons[3]]


@pytest.mark.parametrize("width", [60, 80, 160])
def test_lines_of_checks_at_the_width_of_a_terminal(width):
    long = "unique_combination_of_columns_orders_order_id_line"
    lines = lines_of(result("pass", 0), result("fail", 12, long), width=width)
    golden = {
        60: [
            "1 of 9 PASS offset_continuity_orders ....... [PASS in 0.01s]",
            f"2 of 9 FAIL 12 {long}  [FAIL 12 in 0.01s]",
        ],
        80: [
            "1 of 9 PASS offset_continuity_orders ........................... [PASS in 0.01s]",
            f"2 of 9 FAIL 12 {long}  [FAIL 12 in 0.01s]",
        ],
        160: [
            "1 of 9 PASS offset_continuity_orders ........................................... [PASS in 0.01s]",
            f"2 of 9 FAIL 12 {long} .............. [FAIL 12 in 0.01s]",
        ],
    }
    assert lines == golden[width]
