"""An incident whose offsets have something in common is told first, with its likely causes, in every report."""

from __future__ import annotations

import io
from dataclasses import replace

from recon.events.alerts.problems import _of_incident
from recon.model import Finding, LikelyCause, Pattern, RunResult
from recon.reports import html, run_results
from recon.reports.console import Console
from recon.reports.forms.markdown import as_markdown
from tests.support import sample_run

CAUSE = LikelyCause(
    says="the function writes twice",
    because="Delta drops the second",
    look="`recon trace orders/0/3`",
    then="write once",
)
PATTERN = Pattern(
    shape="every_nth",
    says="1,250 offsets in 40 micro-batches: every fourth offset from 3 to 4,999 of orders-0",
    first="orders-0 [3, 4)",
    last="orders-0 [4999, 5000)",
    causes=(CAUSE,),
)


def with_a_pattern() -> tuple[RunResult, list[Finding]]:
    """A run whose first open incident has a pattern, and the findings of it that checks list."""
    run = sample_run.sample_run()
    listed = [f for r in run.results if r.status == "fail" for f in r.findings if f.level.name == "FAIL"]
    ids = tuple(finding.subject.id for finding in listed)
    at = next(at for at, p in enumerate(run.pipelines) if any(i.state == "open" for i in p.incidents))
    facts = run.pipelines[at]
    mine = next(incident for incident in facts.incidents if incident.state == "open")
    told = replace(mine, id=ids[0], pattern=PATTERN, findings=ids)
    incidents = tuple(told if incident is mine else incident for incident in facts.incidents)
    changed = replace(facts, incidents=incidents)
    return replace(run, pipelines=(*run.pipelines[:at], changed, *run.pipelines[at + 1 :])), listed


def test_the_console_tells_it_before_the_checks_and_its_findings_once() -> None:
    run, _ = with_a_pattern()
    text = io.StringIO()
    Console(text, width=200).summary(run)
    lines = text.getvalue().splitlines()
    told = next(at for at, line in enumerate(lines) if line.startswith("Incident "))
    checks = next(at for at, line in enumerate(lines) if line.startswith("Failure in test"))
    assert told < checks
    assert f"  Pattern: {PATTERN.says}" in lines
    assert "  First orders-0 [3, 4), last orders-0 [4999, 5000)" in lines
    assert f"  1. {CAUSE.says}" in lines
    assert [f"     {word}: {said}" in lines for word, said in (("For it", CAUSE.because), ("Then", CAUSE.then))]


def test_the_console_does_not_list_many_findings_of_an_incident_once_more() -> None:
    run, listed = with_a_pattern()
    many = tuple(replace(listed[0], start_offset=at, end_offset=at + 1) for at in range(0, 40, 4))
    failed = next(result for result in run.results if listed[0] in result.findings)
    results = tuple(replace(r, findings=many) if r is failed else r for r in run.results)
    ((name, incident),) = run.incidents_with_a_pattern
    told = replace(incident, findings=tuple(each.subject.id for each in many))
    pipelines = tuple(replace(p, incidents=(told,)) if p.name == name else p for p in run.pipelines)
    text = io.StringIO()
    Console(text, width=200).summary(replace(run, results=results, pipelines=pipelines))
    assert f"  10 findings of incident {incident.id}, above" in text.getvalue().splitlines()


def test_page_markdown_and_json_have_it() -> None:
    run, _ = with_a_pattern()
    page = html.render(run)
    assert "every fourth offset from 3 to 4,999" in page and "None of them is proved" in page
    assert "1. Likely: the function writes twice" in as_markdown(run)
    assert run_results.from_dict(run_results.as_dict(run)) == run


def test_an_alert_says_the_pattern_and_the_first_likely_cause() -> None:
    run, _ = with_a_pattern()
    ((pipeline, incident),) = run.incidents_with_a_pattern
    says = _of_incident(pipeline, incident).says
    assert says.startswith(incident.cause)
    assert says.endswith(f"{PATTERN.says}; likely: {CAUSE.says}; look at {CAUSE.look}")
