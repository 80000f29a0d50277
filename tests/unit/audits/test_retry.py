"""recon retry, --warn-error, result: and stored failures on the command line; no Spark is started."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from recon.audits.options import Options
from recon.audits.record import STOPPED
from recon.audits.retry import options_of
from recon.audits.run import audit, run_audit
from recon.checks.binding import bind
from recon.checks.bound import Bound
from recon.model import CheckResult, RunResult
from recon.project import load
from recon.reports import run_results
from recon.write.ledger import open_ledger
from recon.write.ledger.failures import FAILURES, append_failures, stored_failures
from recon.write.ledger.results import History, append_run
from recon.write.ledger.store import open_store
from tests.support.messages import same_message
from tests.support.sample_run import sample_run
from tests.unit.cli.test_cli import BASE, Ended, project, recon  # noqa: F401 - fixtures

NOW = datetime(2026, 11, 20, 6, tzinfo=UTC)
NOT_NULL, UNIQUE, LEDGER = (
    "not_null_orders_status",
    "unique_combination_of_columns_orders_a__b",
    "ledger_integrity_orders",
)
Run = Callable[..., Ended]


def result(name: str, status: str, message: str = "", at: datetime = NOW, **more: object) -> CheckResult:
    return CheckResult(
        unique_id=f"test.lake.{name}",
        name=name,
        check=name,
        kind="data",
        status=status,  # type: ignore[arg-type]
        failures=int(status in ("fail", "warn")),
        message=message,
        pipeline="orders",
        sink="orders",
        **more,  # type: ignore[arg-type]
    )


def last(*results: CheckResult, **args: object) -> RunResult:
    facts = replace(sample_run().pipelines[0], name="orders", period_from=None)
    run = replace(sample_run(), project="lake", results=results, args=args, pipelines=(facts,), generated_at=NOW)
    run_results.write(run, "target/run_results.json")
    return run


def results_now(folder: Path) -> dict[str, str]:
    return {r.name: r.status for r in run_results.read(folder / "target/run_results.json").results}


# --- retry ------------------------------------------------------------------------------------------------


def test_what_a_run_left_to_do() -> None:
    run = replace(
        sample_run(),
        args={},
        results=(
            result("a", "fail"),
            result("b", "error"),
            result("c", "warn"),
            result("d", "skipped", STOPPED),
            result("e", "skipped", "0 rows"),
            result("f", "pass"),
        ),
    )
    assert options_of(run).only == ["test.lake.a", "test.lake.b", "test.lake.d"]
    strict = replace(run, args={"warn_error": True})
    assert options_of(strict).only == ["test.lake.a", "test.lake.b", "test.lake.c", "test.lake.d"]
    assert [
        of.exit_code for of in (replace(run, results=run.results[2:]), replace(strict, results=run.results[2:]))
    ] == [0, 1]


def test_retry_runs_what_failed_with_the_same_options(recon: Run, project: Path) -> None:  # noqa: F811
    (project / "recon.yml").write_text(BASE.replace("ledger: _recon", "ledger: \"{{ var('place') }}\""))
    assert recon("retry").err.startswith("Error: recon.yml:2: variable place is not given")
    last(
        result(NOT_NULL, "pass"),
        result(UNIQUE, "skipped", STOPPED),
        result(LEDGER, "error"),
        result("gone", "fail"),
        vars={"place": "kept"},
        to="2026-11-20T00:00:00+00:00",
        no_spark=True,
        fail_fast=False,
        warn_error=True,
    )
    ended = recon("retry")
    assert ended.code == 1
    assert "Warning: test.lake.gone is not in the project any more" in ended.err
    assert results_now(project) == {LEDGER: "error", UNIQUE: "skipped"}
    run = run_results.read(project / "target/run_results.json")
    assert run.args["vars"] == {"place": "kept"} and run.args["no_spark"] and run.args["warn_error"]
    assert (run.period_from, run.period_to) == (None, datetime(2026, 11, 20, tzinfo=UTC))
    assert same_message(run.results[0].message) and same_message(run.results[0].message)
    assert recon("retry", "--vars", "{place: other}", "--fail-fast").code == 1
    run = run_results.read(project / "target/run_results.json")
    assert same_message(run.results[0].message)
    assert [r.name for r in run.results] == [LEDGER], "the other was skipped because of --no-spark, not left undone"


def test_nothing_to_retry(recon: Run, project: Path) -> None:  # noqa: F811
    assert recon("retry").err == f"Error: {project}/target/run_results.json does not exist; run 'recon audit' first\n"
    last(result(NOT_NULL, "pass"), result(UNIQUE, "warn"))
    ended = recon("retry")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith("Nothing to retry: in the last run no check failed, errored or was left out")
    last(result("gone", "fail"))
    ended = recon("retry")
    assert ended.code == 2
    assert ended.err.endswith(
        "Error: no check of the last run that failed is in the project any more; run 'recon audit'\n"
    )


def test_retry_looks_at_the_same_period(recon: Run, project: Path) -> None:  # noqa: F811
    begin = datetime(2026, 10, 1, tzinfo=UTC)
    run = audit(load(project), Options(no_spark=True, keep=False, begins={"orders": begin}))
    assert (run.period_from, run.pipelines[0].period_from) == (begin, begin)
    to = datetime(2026, 11, 2, tzinfo=UTC)
    given = Options(no_spark=True, keep=False, begins={"orders": begin}, from_=NOW.replace(day=1), to=to)
    run = audit(load(project), given)
    assert run.period_from == datetime(2026, 11, 1, 6, tzinfo=UTC), "what is given wins"


# --- the last run's results as a selector --------------------------------------------------------------------


def test_result_selects_by_the_last_run(recon: Run, project: Path) -> None:  # noqa: F811
    ended = recon("list", "--select", "result:fail")
    assert (ended.code, ended.out) == (2, "")
    assert "there is no run_results.json in the target folder; run 'recon audit' first" in ended.err
    last(result(NOT_NULL, "fail"), result(UNIQUE, "pass"))
    chosen = json.loads(recon("list", "--select", "result:fail", "--output", "json").out)
    assert [c["name"] for c in chosen] == [NOT_NULL]
    assert recon("audit", "--no-spark", "--select", "result:fail result:wrn").code == 2
    ended = recon("audit", "--no-spark", "--select", "result:fail", "--exclude", "result:pass", "tag:nope")
    assert ended.code == 2, "tag:nope is no command"
    ended = recon("audit", "--no-spark", "--select", "result:fail", "--exclude", "tag:nope")
    assert ended.code == 0
    assert results_now(project) == {NOT_NULL: "skipped"}
    assert "Note: selector 'tag:nope' matches no check" in ended.out
    (project / "target/run_results.json").write_text("{")
    assert "cannot be read as JSON" in recon("list", "--select", "result:fail").err


def test_a_selection_without_a_check_leaves_the_last_report(recon: Run, project: Path) -> None:  # noqa: F811
    last(result(NOT_NULL, "pass"))
    before = (project / "target/run_results.json").read_bytes()
    ended = recon("audit", "--no-spark", "--select", "nosuch")
    assert ended.code == 2 and "Completed" not in ended.out and same_message(ended.err)
    ended = recon("audit", "--no-spark", "--select", "pipeline:orders", "--exclude", "pipeline:orders")
    assert ended.code == 2 and same_message(ended.err)
    ended = recon("audit", "--no-spark", "--select", "result:fail")
    assert (ended.code, ended.err) == (0, "") and same_message(ended.out)
    assert (project / "target/run_results.json").read_bytes() == before


def test_results_that_cannot_be_written_are_noticed_before_the_audit(recon: Run, project: Path) -> None:  # noqa: F811
    (project / "full").touch()
    ended = recon("audit", "--no-spark", "--target-path", "full")
    assert (ended.code, ended.out) == (2, "") and "full cannot be written" in ended.err
    assert not open_ledger(load(project)).results.exists()


def test_a_pipeline_that_is_not_proved_fails_a_run_that_requires_it(recon: Run, project: Path) -> None:  # noqa: F811
    ended = recon("audit", "--no-spark", "--select", NOT_NULL)
    assert ended.code == 0 and "Completed, but 1 pipeline not proved complete:" in ended.out
    ended = recon("audit", "--no-spark", "--select", NOT_NULL, "--require-complete")
    assert ended.code == 1
    assert "This run fails, because orders was not proved complete (--require-complete).\n" in ended.out
    assert options_of(run_results.read(project / "target/run_results.json")).require_complete


def test_what_no_check_looks_at_is_not_taken_for_complete(recon: Run, project: Path) -> None:  # noqa: F811
    ended = recon("audit", "--no-spark", "--require-complete", "--select", NOT_NULL, "--select", "pipeline:nosuch")
    assert (ended.code, ended.out) == (2, "") and same_message(ended.err)
    off = "data_tests: [{ledger_integrity: {config: {enabled: false}}}]"
    more = f"\n  - {{name: returns, checkpoint: cp, sinks: [{{name: returns, target: returns, {off}}}]}}\n"
    (project / "recon.yml").write_text((project / "recon.yml").read_text().rstrip() + more)
    ended = recon("audit", "--no-spark", "--require-complete")
    assert (ended.code, ended.out) == (2, "") and same_message(ended.err)
    assert recon("audit", "--no-spark", "--require-complete", "--select", NOT_NULL).code == 1


# --- stored failures, history -----------------------------------------------------------------------------


def test_stored_failures_are_shown(recon: Run, project: Path) -> None:  # noqa: F811
    ended = recon("failures", "show")
    assert ended.err.startswith(f"Error: there are no stored failures at {project}/_recon/failures; checks with")
    bounds = {b.name: b.unique_id for b in bind(load(project))}
    store = open_store(load(project), FAILURES)

    def keep(invocation: str, at: datetime, **rows: list[dict[str, object]]) -> None:
        results = tuple(replace(result(name, "fail"), unique_id=bounds[name]) for name in rows)
        run = replace(sample_run(), invocation_id=invocation, project="lake", generated_at=at, results=results)
        append_failures(store, run, {bounds[name]: of for name, of in rows.items()})

    keep("none", NOW)
    assert not store.exists(), "an audit without failing rows leaves no table"
    keep("one", NOW, **{NOT_NULL: [{"status": None}]})
    keep("two", NOW.replace(hour=7), **{UNIQUE: [{"a": 1, "b": "ü"}, {"a": 2, "b": NOW}], NOT_NULL: [{"status": None}]})
    assert [r["failing_row"] for r in stored_failures(store, "one")] == [{"status": None}]
    shown = json.loads(recon("failures", "show", "--output", "json").out)
    assert [(r["name"], r["row_number"], r["invocation_id"]) for r in shown] == [
        (NOT_NULL, 1, "two"),
        (UNIQUE, 1, "two"),
        (UNIQUE, 2, "two"),
    ]
    assert shown[2]["failing_row"] == {"a": 2, "b": "2026-11-20T06:00:00Z"}
    ended = recon("failures", "show", "--select", "unique*", "--limit", "1")
    assert ended.out.startswith("Run two, stored 2026-11-20 07:00:00 UTC\n")
    assert '{"a": 1, "b": "ü"}' in ended.out and '"a": 2' not in ended.out and NOT_NULL not in ended.out
    ended = recon("failures", "show", "--invocation-id", "three", "--select", "nope")
    assert (ended.code, ended.out) == (0, "")
    assert "selector 'nope' matches no check" in ended.err


def test_history_is_read_once_newest_first_and_only_what_was_before(project: Path) -> None:  # noqa: F811
    bound = next(b for b in bind(load(project)) if b.name == NOT_NULL)
    store = open_ledger(load(project)).results
    opened: list[int] = []

    def open_results() -> object:
        opened.append(1)
        return store

    def history(before: datetime, most: int = 200, wanted: Bound = bound) -> History:
        return History(open_results, [wanted.unique_id], before, most)  # type: ignore[arg-type]

    assert history(NOW)(bound, "rows") == []
    for day, status, evidence in (
        (1, "pass", {"rows": 1}),
        (2, "error", {"rows": 99}),
        (3, "fail", {"rows": 3}),
        (4, "warn", {"other": 1}),
        (5, "pass", {"rows": 5}),
        (6, "skipped", {"rows": 6}),
        (7, "skipped", {}),
        (20, "pass", {"rows": 20}),
    ):
        at, evidence = NOW.replace(day=day), {"asked": bound.fingerprint, **evidence}
        of = (result(NOT_NULL, status, evidence=evidence), result(UNIQUE, status, evidence={"rows": 1000}))
        append_run(store, replace(sample_run(), project="lake", generated_at=at, results=of, pipelines=()))
    opened.clear()
    kept = history(NOW)
    assert [list(kept(bound, "rows")), list(kept(bound, "other")), list(kept(bound, "none"))] == [[6, 5, 3, 1], [1], []]
    assert opened == [1]
    assert history(NOW.replace(hour=7))(bound, "rows") == [20, 6, 5, 3, 1]
    assert history(NOW, most=2)(bound, "rows") == [6], "of the newest two runs one had no such value"
    other = replace(bound, config=bound.config.model_copy(update={"where": "status <> 'test'"}))
    assert history(NOW)(other, "rows") == [], "the name is the same, what is asked is not"


def test_what_is_asked_is_the_test_its_arguments_and_where(project: Path) -> None:  # noqa: F811
    one, two = (b for b in bind(load(project)) if b.name in (NOT_NULL, UNIQUE))
    assert one.fingerprint == replace(one, name="other", unique_id="test.lake.other").fingerprint != two.fingerprint
    assert len(one.fingerprint) == 16


def test_a_retry_does_not_remember_the_run_it_retries(recon: Run, project: Path) -> None:  # noqa: F811
    store, bound = open_ledger(load(project)).results, next(b for b in bind(load(project)) if b.name == NOT_NULL)
    failed = result(NOT_NULL, "fail", evidence={"asked": bound.fingerprint, "rows": 7})
    run = last(failed)
    append_run(store, run)
    assert options_of(run).history_to == NOW
    assert History(lambda: store, [bound.unique_id], options_of(run).history_to)(bound, "rows") == []
    assert recon("retry", "--no-spark").code == 0
    again = run_results.read(project / "target/run_results.json")
    assert again.generated_at > NOW and options_of(again).history_to == NOW, "nor does a retry of the retry"


def test_an_audit_without_a_ledger_keeps_no_unasked_questions(project: Path) -> None:  # noqa: F811
    run_audit(load(project), no_spark=True)
    assert not (project / "_recon").exists()


def test_where_failing_rows_are_kept(project: Path) -> None:  # noqa: F811
    def location(ledger: str) -> str:
        (project / "recon.yml").write_text(BASE.replace("ledger: _recon", f"ledger: {ledger}"))
        return open_store(load(project), FAILURES).location

    assert location("{table: main.audit.recon}") == "main.audit.recon_failures"
    assert location("{location: s3://b/x/, writer: spark}") == "s3://b/x/failures"
    assert location("lake") == str(project / "lake" / "failures")
