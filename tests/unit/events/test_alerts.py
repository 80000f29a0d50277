"""Alerts on real HTTP and SMTP servers: on change only, recovery, one message for many, limits, channels that fail."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from recon.base.errors import ConfigError, EvidenceError
from recon.events import (
    AuditFailed,
    AuditFinished,
    FindingChanged,
    MicroBatchFailed,
    MicroBatchWritten,
    StreamProgressed,
    StreamResumed,
    StreamStalled,
    StreamTerminated,
)
from recon.events.alerts import ChannelAlerts
from recon.model import CheckResult, HarmCount, Incident, NextStep, PipelineFacts, RunResult
from recon.project import Project, load
from tests.support.channels import Mails, Received, http, smtp  # noqa: F401
from tests.support.ledger_entries import entry
from tests.support.messages import raises

AT = datetime(2026, 11, 23, 6, tzinfo=UTC)
NAMES = ("orders", "payments", "stock", "people", "places", "times")


class Clock:
    """The time of a test."""

    def __init__(self) -> None:
        self.at = AT

    def now(self) -> datetime:
        return self.at

    def seconds(self) -> float:
        return self.at.timestamp()

    def wait(self, **length: float) -> None:
        self.at += timedelta(**length)


@pytest.fixture
def clock() -> Clock:
    return Clock()


Lake = Callable[..., Project]


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """A project that tells one channel, by its URL; `alerts` and `pipeline` are further YAML."""

    def make(url: str, alerts: str = "", pipeline: str = "", channel: str = "") -> Project:
        monkeypatch.setenv("ONCALL_URL", url)
        pipelines = "".join(
            f"  - name: {name}\n    checkpoint: cp/{name}\n{pipeline if name == 'orders' else ''}"
            f"    sinks: [{{name: {name}, target: {name}}}]\n"
            for name in NAMES
        )
        (tmp_path / "recon.yml").write_text(
            "name: lake\nledger: _recon\nalerts:\n  channels:\n    - name: oncall\n"
            f"      url: \"{{{{ env_var('ONCALL_URL') }}}}\"\n{channel}{alerts}pipelines:\n{pipelines}"
        )
        return load(tmp_path)

    return make


def channel(project: Project, clock: Clock, **more: Any) -> ChannelAlerts:
    return ChannelAlerts(project, project.alerts.channels[0], now=clock.now, clock=clock.seconds, **more)


def incident(*ids: str, harm: str = "removed", **changed: Any) -> Incident:
    given: dict[str, Any] = {
        "id": ids[0] if ids else "",
        "sink": "orders",
        "cause": "DELETE where day = 1 took away 400 rows: version 12 of lake/orders",
        "codes": ("MUTATED",),
        "checks": ("delta_history",),
        "state": "open",
        "first_seen": AT,
        "findings": ids,
        "counts": (HarmCount(harm=harm, offsets=0, rows=400),),  # type: ignore[arg-type]
        "steps": (NextStep(purpose="see", command="recon repair plan --pipeline orders"),),
    }
    return Incident(**{**given, **changed})


def result(name: str, status: str, pipeline: str = "orders", kind: str = "data", **changed: Any) -> CheckResult:
    given: dict[str, Any] = {
        "unique_id": f"test.lake.{name}",
        "name": name,
        "check": name,
        "kind": kind,
        "status": status,
        "failures": 7 if status in ("fail", "warn") else 0,
        "message": f"{name} says {status}",
        "pipeline": pipeline,
        "sink": pipeline,
    }
    return CheckResult(**{**given, **changed})


def audit(
    clock: Clock,
    results: Sequence[CheckResult] = (),
    incidents: Sequence[Incident] = (),
    answer: str | None = None,
    **changed: Any,
) -> AuditFinished:
    pipelines = list(dict.fromkeys(["orders", *(r.pipeline or "" for r in results)]))
    bad = bool(incidents) or any(r.status == "fail" for r in results)
    unknown = any(r.status == "error" for r in results)
    facts = tuple(
        PipelineFacts(
            name=name,
            answer=answer or ("not complete" if bad else "could not be proved" if unknown else "complete"),  # type: ignore[arg-type]
            because="of what was found",
            query_id=None,
            checkpoint="cp",
            topics=(),
            isolation_level="read_committed",
            incidents=tuple(incidents) if name == "orders" else (),
        )
        for name in pipelines
    )
    run = RunResult(
        invocation_id="i",
        project="lake",
        recon_version="1",
        generated_at=clock.at,
        period_from=None,
        period_to=clock.at,
        elapsed_time=1.0,
        results=tuple(results),
        pipelines=facts,
    )
    given: dict[str, Any] = {
        "project": "lake",
        "at": clock.at,
        "invocation_id": "i",
        "started_at": clock.at,
        "kept": True,
        "goes_on": True,
        "run": run,
        "evaluated": frozenset(r.unique_id for r in results if r.status in ("pass", "warn", "fail")),
    }
    return AuditFinished(**{**given, **changed})


# -- on change only ---------------------------------------------------------------------------------------------------


def test_a_problem_is_told_once_and_once_more_when_it_is_over(lake: Lake, http: Received, clock: Clock) -> None:  # noqa: F811
    project = lake(http.url, alerts="  report_url: https://ci.example.org/report.html\n")
    bad, good = [result("not_null_status", "fail")], [result("not_null_status", "pass")]
    for results in (bad, bad, bad, good, good):
        channel(project, clock).take([audit(clock, results)])  # each audit is a process of its own
        clock.wait(days=1)
    assert http.titles == ["lake, pipeline orders: 1 new", "lake, pipeline orders: 1 over"]
    new, over = http.posts
    assert new["message"].splitlines() == [
        "FAIL not_null_status: not_null_status says fail (7 failures), first seen 2026-11-23 06:00 UTC",
        "  next: recon audit --select not_null_status",
        "report: https://ci.example.org/report.html",
    ]
    assert (new["type"], over["type"]) == ("failure", "success")
    assert over["message"].splitlines()[0] == (
        "OVER not_null_status: not_null_status says fail (7 failures), told 2026-11-23 06:00 UTC: passed"
    )


@pytest.mark.parametrize("status", ["skipped", "error"])
def test_what_was_not_looked_at_is_not_over(lake: Lake, http: Received, clock: Clock, status: str) -> None:  # noqa: F811
    project = lake(http.url, alerts="  on: [failure, recovery]\n")
    alerts = channel(project, clock)
    alerts.take([audit(clock, [result("unique_id", "fail")])])
    alerts.take([audit(clock, [result("unique_id", status)])])
    alerts.take([audit(clock, [])])
    assert len(http.posts) == 1


def test_an_incident_is_told_again_only_when_it_grows(lake: Lake, http: Received, clock: Clock) -> None:  # noqa: F811
    alerts = channel(lake(http.url), clock)
    found = [result("delta_history", "fail", kind="evidence")]
    alerts.take([audit(clock, found, [incident("aaaa")])])
    alerts.take([audit(clock, found, [incident("aaaa")])])
    assert http.titles == ["lake, pipeline orders: 1 new"]
    assert http.posts[0]["message"].splitlines() == [
        "FAIL MUTATED sink orders: DELETE where day = 1 took away 400 rows: version 12 of lake/orders "
        "(400 rows removed), first seen 2026-11-23 06:00 UTC",
        "  next: recon repair plan --pipeline orders",
    ]
    alerts.take([audit(clock, found, [incident("aaaa", "bbbb")])])
    alerts.take([audit(clock, found, [incident("bbbb", "aaaa")])])  # the same, named after the other finding
    alerts.take([audit(clock, found, [incident("bbbb"), incident("aaaa")])])  # told apart now
    assert http.titles[1:] == ["lake, pipeline orders: 1 grown"]


def test_an_incident_ends_by_repair_by_acceptance_or_because_its_checks_find_nothing(
    lake: Lake,
    http: Received,  # noqa: F811
    clock: Clock,
) -> None:
    alerts = channel(lake(http.url), clock)
    found, passed = (
        [result("delta_history", "fail", kind="evidence")],
        [result("delta_history", "pass", kind="evidence")],
    )
    for ending in (
        audit(clock, passed, [incident("aaaa", state="repaired")], answer="complete"),
        audit(clock, passed, [incident("aaaa", state="accepted", accepted="accepted by Ada")], answer="complete"),
        FindingChanged(
            project="lake",
            change="accepted",
            pipeline="orders",
            sink="orders",
            finding="aaaa",
            code="MUTATED",
            check="delta_history",
            message="m",
            first_seen=AT,
            by="Ada",
            reason="known",
        ),
        audit(clock, passed),
    ):
        alerts.take([audit(clock, found, [incident("aaaa")])])
        # Nobody looked, or a period was examined again: it may still be there.
        alerts.take([audit(clock, [])])
        alerts.take([audit(clock, passed, goes_on=False)])
        alerts.take([ending])
    assert http.titles == ["lake, pipeline orders: 1 new", "lake, pipeline orders: 1 over"] * 4
    endings = [post["message"].rpartition(": ")[2] for post in http.posts[1::2]]
    assert endings == ["repaired", "accepted by Ada", "known", "its checks find it no more"]


def test_two_incidents_that_have_no_id_are_two(lake: Lake, http: Received, clock: Clock) -> None:  # noqa: F811
    """Two topics that the query dropped: neither finding is carried, so neither has an id."""

    def stalled(topic: str, waiting: int) -> Incident:
        cause = f"{topic}-0 was read last by micro-batch 3, and micro-batch 4 does not read it: {waiting} offsets wait"
        return incident(codes=("STALLED",), checks=("kafka_end_offsets",), cause=cause, counts=())

    alerts = channel(lake(http.url), clock)
    found = [result("kafka_end_offsets", "fail", kind="evidence")]
    alerts.take([audit(clock, found, [stalled("a1", 10)])])
    alerts.take([audit(clock, found, [stalled("b1", 5), stalled("a1", 20)])])
    alerts.take([audit(clock, found, [stalled("b1", 7), stalled("a1", 30)])])
    alerts.take([audit(clock, found, [stalled("b1", 9)])])
    assert http.titles == [
        "lake, pipeline orders: 1 new",
        "lake, pipeline orders: 1 new",
        "lake, pipeline orders: 1 over",
    ]
    assert ["a1-0" in post["message"] for post in http.posts] == [True, False, True]


def test_only_the_sink_that_was_looked_at_recovers(lake: Lake, http: Received, clock: Clock) -> None:  # noqa: F811
    alerts = channel(lake(http.url), clock)
    of_b = incident(sink="b", codes=("NONDETERMINISTIC",), checks=("source_rows",))
    rows = {"kind": "evidence", "check": "source_rows"}
    alerts.take([audit(clock, [result("rows_b", "fail", **rows, sink="b")], [of_b])])
    alerts.take([audit(clock, [result("rows_a", "pass", **rows, sink="a")], partial=("orders",))])
    assert http.titles == ["lake, pipeline orders: 1 new"]
    alerts.take([audit(clock, [result("rows_b", "pass", **rows, sink="b")])])
    assert http.titles[1:] == ["lake, pipeline orders: 1 over"]


@pytest.mark.parametrize("sink", ["orders", "b"])
def test_a_check_that_could_not_be_evaluated_is_told_beside_an_old_incident_of_it(
    lake: Lake,
    http: Received,  # noqa: F811
    clock: Clock,
    sink: str,
) -> None:
    alerts = channel(lake(http.url), clock)
    rows: dict[str, Any] = {"kind": "evidence", "check": "source_rows"}
    known = incident("aaaa", checks=("source_rows",))
    alerts.take([audit(clock, [result("rows_orders", "fail", **rows)], [known])])
    errs = result(f"rows_{sink}", "error", **{**rows, "sink": sink})
    alerts.take([audit(clock, [errs], [known])])
    assert http.titles == ["lake, pipeline orders: 1 new"] * 2
    assert http.posts[1]["message"].startswith(f"NOT PROVED rows_{sink}: ")


@pytest.mark.parametrize("before", ["a test that is gone", "a question"])
def test_an_answer_is_told_though_something_else_is_still_known(
    lake: Lake,
    http: Received,  # noqa: F811
    clock: Clock,
    before: str,
) -> None:
    alerts = channel(lake(http.url, alerts="  on: [failure]\n"), clock)
    if before == "a question":
        asks = [result("source_rows", "error", kind="evidence")]
        alerts.take([audit(clock, asks, answer="could not be proved")])
        alerts.take([audit(clock, asks, answer="not complete")])
    else:
        alerts.take([audit(clock, [result("gone", "fail")], answer="complete")])
        alerts.take([audit(clock, [result("a", "pass")], answer="not complete")])
    assert http.posts[-1]["message"].startswith("FAIL not complete: of what was found")


def test_an_audit_that_broke_is_not_over_because_a_part_of_one_ran(lake: Lake, http: Received, clock: Clock) -> None:  # noqa: F811
    alerts = channel(lake(http.url), clock)
    alerts.take(
        [
            AuditFailed(
                project="lake",
                invocation_id="i",
                pipelines=("orders",),
                started_at=AT,
                error="LedgerError",
                message="m",
            )
        ]
    )
    alerts.take([audit(clock, [result("a", "pass")], partial=("orders",))])
    alerts.take([audit(clock, [result("a", "pass")], goes_on=False)])
    assert http.titles == ["lake: 1 new"]
    alerts.take([audit(clock, [result("a", "pass")])])
    assert http.titles == ["lake: 1 new", "lake: 1 over"]


def test_an_audit_that_keeps_nothing_tells_nothing_and_one_that_breaks_does(
    lake: Lake,
    http: Received,  # noqa: F811
    clock: Clock,
) -> None:
    alerts = channel(lake(http.url), clock)
    alerts.take([audit(clock, [result("a", "fail")], kept=False)])
    assert http.posts == []
    broke = AuditFailed(
        project="lake",
        invocation_id="i",
        pipelines=("orders",),
        started_at=AT,
        error="LedgerError",
        message="no such folder",
    )
    alerts.take([broke])
    alerts.take([broke])
    alerts.take([audit(clock, [result("a", "pass")])])
    assert http.titles == ["lake: 1 new", "lake: 1 over"]
    assert "the audit ended by an error: LedgerError: no such folder" in http.posts[0]["message"]


def test_an_answer_is_told_where_nothing_else_says_why(lake: Lake, http: Received, clock: Clock) -> None:  # noqa: F811
    alerts = channel(lake(http.url), clock)
    alerts.take([audit(clock, [result("a", "skipped")], answer="could not be proved")])
    assert http.posts == []
    alerts.take([audit(clock, [result("a", "pass")], answer="could not be proved")])
    alerts.take([audit(clock, [result("a", "pass")], answer="complete")])
    assert http.titles == ["lake, pipeline orders: 1 new", "lake, pipeline orders: 1 over"]
    assert http.posts[0]["message"].startswith("NOT PROVED could not be proved: of what was found")


def test_checks_that_say_the_same_are_one_line_and_many_are_cut(lake: Lake, http: Received, clock: Clock) -> None:  # noqa: F811
    alerts = channel(lake(http.url), clock)
    dead = [result(f"evidence_{n}", "error", kind="evidence", message="the broker does not answer") for n in range(6)]
    alerts.take([audit(clock, dead)])
    assert http.titles == ["lake, pipeline orders: 6 new"]
    assert [line for line in http.posts[0]["message"].splitlines() if "broker" in line] == [
        "NOT PROVED evidence_0 and 5 more: the broker does not answer, first seen 2026-11-23 06:00 UTC"
    ]
    alerts.take([audit(clock, [result(f"check_{n}", "fail") for n in range(8)])])
    assert http.posts[1]["message"].splitlines()[-1] == "3 more"


# -- who is told of what ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, ["fails", "errs"]),
        ({"alerts": "  on: warning\n"}, ["warns"]),
        ({"alerts": "  on: [warning]\n", "channel": "      on: [unproved]\n"}, ["errs"]),
        ({"channel": "      on: [unproved]\n", "pipeline": "    alerts: {on: [failure]}\n"}, ["fails"]),
        ({"pipeline": "    alerts: {channels: []}\n"}, []),
    ],
)
def test_a_channel_is_told_of_what_it_asks_for(
    lake: Lake,
    http: Received,  # noqa: F811
    clock: Clock,
    given: dict[str, str],
    told: list[str],
) -> None:
    results = [result("fails", "fail"), result("errs", "error"), result("warns", "warn")]
    channel(lake(http.url, **given), clock).take([audit(clock, results)])
    message = http.posts[0]["message"] if http.posts else ""
    assert [name for name in ("fails", "errs", "warns") if f" {name}: " in message] == told


def test_a_warning_that_becomes_a_failure_is_told(lake: Lake, http: Received, clock: Clock) -> None:  # noqa: F811
    alerts = channel(lake(http.url, alerts="  on: [failure, warning]\n"), clock)
    for status in ("warn", "fail", "warn", "pass"):
        alerts.take([audit(clock, [result("a", status)])])
    assert http.titles == ["lake, pipeline orders: 1 new", "lake, pipeline orders: 1 worse"]


# -- streams ----------------------------------------------------------------------------------------------------------

STREAM: dict[str, Any] = {"project": "lake", "pipeline": "orders", "query_id": "q", "run_id": "r"}


def failed(sink: str = "orders", message: str = "no space left") -> MicroBatchFailed:
    return MicroBatchFailed(
        project="lake", pipeline="orders", sink=sink, batch_id=41, started_at=AT, error="SinkError", message=message
    )


def test_a_micro_batch_that_fails_again_and_again_is_one_problem(lake: Lake, http: Received, clock: Clock) -> None:  # noqa: F811
    alerts = channel(lake(http.url), clock)
    ended = StreamTerminated(**STREAM, error="[STREAM_FAILED] …")
    for _ in range(3):
        alerts.take([failed(), ended])
    assert http.titles == ["lake, pipeline orders: 1 new"]
    assert http.posts[0]["message"].startswith("STREAM sink orders: micro-batch 41 failed: SinkError: no space left")
    written = MicroBatchWritten(project="lake", entry=replace(entry(41), pipeline="orders", sink="orders"))
    alerts.take([written])
    alerts.take([written])
    assert http.titles[1:] == ["lake, pipeline orders: 1 over"]


def test_a_query_that_ends_or_stalls_is_told_and_when_it_runs_again(lake: Lake, http: Received, clock: Clock) -> None:  # noqa: F811
    alerts = channel(lake(http.url), clock)
    alerts.take([StreamTerminated(**STREAM)])  # it was stopped
    assert http.posts == []
    alerts.take([StreamTerminated(**STREAM, error="no leader")])
    alerts.take([StreamProgressed(**STREAM, batch_id=3, progress={})])
    alerts.take([StreamStalled(**STREAM, last_seen=AT)])
    alerts.take([StreamStalled(**STREAM, last_seen=AT)])
    alerts.take([StreamResumed(**STREAM, stalled_since=AT)])
    assert http.titles == ["lake, pipeline orders: 1 new", "lake, pipeline orders: 1 over"] * 2


def test_streams_that_go_on_read_the_memory_once_a_minute(
    lake: Lake,
    http: Received,  # noqa: F811
    clock: Clock,
    tmp_path: Path,
) -> None:
    project = lake(http.url)
    here, elsewhere = channel(project, clock), channel(project, clock)
    written = MicroBatchWritten(project="lake", entry=replace(entry(41), pipeline="orders", sink="orders"))
    here.take([written])
    assert not (tmp_path / "_recon" / "alerts").exists()
    elsewhere.take([failed()])  # the driver that was replaced
    here.take([written])
    assert len(http.posts) == 1
    clock.wait(minutes=2)
    here.take([written])
    assert http.titles[1:] == ["lake, pipeline orders: 1 over"]


# -- limits -----------------------------------------------------------------------------------------------------------


def test_more_messages_than_a_period_allows_become_one_with_the_rest(lake: Lake, http: Received, clock: Clock) -> None:  # noqa: F811
    project = lake(http.url, alerts="  rate_limit: {count: 3, period: hour}\n")
    alerts = channel(project, clock)
    bad = [result(f"check_{name}", "fail", name) for name in NAMES]
    alerts.take([audit(clock, bad)])
    assert len(http.posts) == 3 and http.titles[-1] == "lake: 4 more pipelines: 4 new"
    assert http.posts[-1]["message"].splitlines() == [*(f"{name}: 1 new" for name in NAMES[2:]), "next: recon findings"]
    # No more within the hour; what came meanwhile is told afterwards.
    alerts.take([audit(clock, [*bad, result("late", "fail", "stock")])])
    assert len(http.posts) == 3
    clock.wait(minutes=61)
    alerts.take(())
    assert http.titles[3:] == ["lake, pipeline stock: 1 new"]


def test_two_audits_at_once_tell_one_problem_once(lake: Lake, http: Received, clock: Clock) -> None:  # noqa: F811
    project = lake(http.url)
    both = [channel(project, clock) for _ in range(4)]
    start = threading.Barrier(len(both))

    def tell(alerts: ChannelAlerts) -> None:
        start.wait(60)
        alerts.take([audit(clock, [result("a", "fail")], [incident("aaaa")])])

    threads = [threading.Thread(target=tell, args=(alerts,)) for alerts in both]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert http.titles == ["lake, pipeline orders: 2 new"]


def test_a_process_that_dies_while_it_tells_is_followed_by_another(
    lake: Lake,
    http: Received,  # noqa: F811
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    project = lake(http.url)
    dying = channel(project, clock)

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("recon.events.alerts.channel.Sender.send", die)
    with pytest.raises(KeyboardInterrupt):
        dying.take([audit(clock, [result("a", "fail")])])
    monkeypatch.undo()
    channel(project, clock).take([audit(clock, [result("a", "fail")])])
    assert http.posts == []  # the other may still be telling
    clock.wait(minutes=6)
    channel(project, clock).take([audit(clock, [result("a", "fail")])])
    assert http.titles == ["lake, pipeline orders: 1 new"]


def test_a_damaged_memory_tells_again_what_is_open(lake: Lake, http: Received, clock: Clock, tmp_path: Path) -> None:  # noqa: F811
    project = lake(http.url)
    bad = audit(clock, [result("a", "fail")])
    channel(project, clock).take([bad])
    folder = tmp_path / "_recon" / "alerts" / "to_oncall"
    newest = max(folder.iterdir())
    newest.write_text(newest.read_text().replace('"told_severity": "failure"', '"told_severity": "warning"'))
    channel(project, clock).take([bad])
    assert len(http.posts) == 2
    for _ in range(30):
        channel(project, clock).take([bad])
    assert len(http.posts) == 2 and len(list(folder.iterdir())) <= 25


def test_what_cannot_be_remembered_is_told_all_the_same(
    lake: Lake,
    http: Received,  # noqa: F811
    clock: Clock,
    tmp_path: Path,
) -> None:
    project = lake(http.url)
    (tmp_path / "_recon").mkdir()
    (tmp_path / "_recon" / "alerts").write_text("a file where the folder should be")
    alerts = channel(project, clock)
    with pytest.raises(EvidenceError, match="cannot be remembered"):
        alerts.take([audit(clock, [result("a", "fail")])])
    with pytest.raises(EvidenceError, match="cannot be remembered"):
        alerts.take([audit(clock, [result("a", "fail")])])
    assert len(http.posts) == 1


# -- channels that fail -----------------------------------------------------------------------------------------------


def test_what_a_channel_refused_is_told_when_it_takes_it(lake: Lake, http: Received, clock: Clock) -> None:  # noqa: F811
    alerts = channel(lake(http.url), clock)
    http.status = 503
    with pytest.raises(EvidenceError) as refused:
        alerts.take([audit(clock, [result("a", "fail")])])
    assert "channel oncall did not take the message" in str(refused.value) and "503" in str(refused.value)
    http.status = 200
    alerts.take(())  # not at once
    assert http.posts == []
    clock.wait(seconds=31)
    alerts.take(())
    assert http.titles == ["lake, pipeline orders: 1 new"]


def test_what_a_channel_did_not_take_counts_for_no_limit(lake: Lake, http: Received, clock: Clock) -> None:  # noqa: F811
    alerts = channel(lake(http.url, alerts="  rate_limit: {count: 1, period: day}\n"), clock)
    http.status = 503
    for _ in range(3):
        with pytest.raises(EvidenceError):
            alerts.take([audit(clock, [result("a", "fail")])])
    http.status = 200
    alerts.take([audit(clock, [result("a", "fail")])])
    assert http.titles == ["lake, pipeline orders: 1 new"]


def test_a_channel_that_hangs_is_given_up_after_the_deadline(
    lake: Lake,
    http: Received,  # noqa: F811
    clock: Clock,
) -> None:
    alerts = channel(lake(f"{http.url}?rto=300&cto=300"), clock, within_s=0.2)
    http.go.clear()
    with pytest.raises(EvidenceError, match=r"did not take the message within 0\.2 s"):
        alerts.take([audit(clock, [result("a", "fail")])])
    assert http.asked.is_set()
    with pytest.raises(EvidenceError, match="still has not answered"):
        alerts.take([audit(clock, [result("b", "fail")])])
    http.go.set()
    http.await_count(1)


def test_mail(lake: Lake, smtp: Mails, clock: Clock) -> None:  # noqa: F811
    channel(lake(smtp.url), clock).take([audit(clock, [result("a", "fail")], [incident("aaaa")])])
    (mail,) = smtp.mails
    assert "Subject: lake, pipeline orders: 2 new" in mail
    assert "next: recon repair plan --pipeline orders" in mail


# -- settings ---------------------------------------------------------------------------------------------------------


def test_urls_come_from_the_environment_and_are_never_shown(lake: Lake, tmp_path: Path) -> None:
    secret = "slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/"
    project = lake(secret)
    assert secret not in repr(project) and "TIiajk" not in repr(project)
    assert "TIiajk" not in project.mask(f"POST {secret} and https://hooks.slack.com/TIiajkdnlazkcOXrIdevi7FQ")
    text = (tmp_path / "recon.yml").read_text()
    (tmp_path / "recon.yml").write_text(text.replace("{{ env_var('ONCALL_URL') }}", secret))
    with raises(ConfigError) as refused:
        load(tmp_path)
    assert "TIiajk" not in str(refused.value)


@pytest.mark.parametrize(
    "given",
    [
        {"alerts": "  on: [failures]\n"},
        {"alerts": "  rate_limit: {count: 0, period: hour}\n"},
        {"channel": "    - {name: oncall, url: \"{{ env_var('ONCALL_URL') }}\"}\n"},
        {"pipeline": "    alerts: {channels: [onkall]}\n"},
    ],
)
def test_settings_that_cannot_be_used(lake: Lake, given: dict[str, str]) -> None:
    with raises(ConfigError):
        lake("json://localhost", **given)


def test_a_url_that_apprise_does_not_know_is_refused_without_showing_it(lake: Lake) -> None:
    project = lake("nosuch://user:tr0ub4dor@localhost")
    with raises(ConfigError) as refused:
        ChannelAlerts(project, project.alerts.channels[0])
    assert "tr0ub4dor" not in str(refused.value)


def test_without_apprise_one_sentence_names_the_extra(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    project = lake("json://localhost")
    monkeypatch.setitem(__import__("sys").modules, "apprise", None)
    with raises(ConfigError):
        ChannelAlerts(project, project.alerts.channels[0])
