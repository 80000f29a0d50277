"""report.html: one self-contained page for a run, with the answer first, then findings, charts, checks and facts.

The page loads nothing from a network, so it opens from a file, a mail or a CI artefact.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from recon.base.text import plural
from recon.model import Answer, CheckResult, Code, Finding, Level, PipelineFacts, RunResult, SinkFacts
from recon.model.incident import HARMS, Incident
from recon.model.positions import SourceKind, kind_of
from recon.reports import books, pages, picture, runbook, sums
from recon.reports.codes import MEANINGS
from recon.reports.run_results import json_value, write_text
from recon.reports.trends import trends
from recon.reports.words import sink_name

if TYPE_CHECKING:
    from markupsafe import Markup

# On the page; run_results.json holds all of them. What is left out is said there, and the worst comes first.
MAX_INCIDENTS = 200
MAX_FINDINGS = 350
MAX_CARDS = 20  # pipelines with an answer of their own; complete ones are rows of a table where there are more than FEW
FEW = 6
MAX_PICTURES = 3  # sinks that have charts, where there are more pipelines than FEW
MAX_DETAILS = 150  # checks with evidence and findings
MAX_CHECKS = 2000
MAX_BOOK_ROWS = 400

ANSWERS: tuple[Answer, ...] = ("not complete", "could not be proved", "complete")

_STATUSES = ("fail", "error", "warn", "skipped", "pass")


def write(run: RunResult, path: str | os.PathLike[str], *, templates: Path | None = None) -> Path:
    """Writes the page to `path` in one step; `templates` is a folder of the user's, as for `render`.

    Raises:
        ConfigError: one of these templates has a fault; nothing is written.
    """
    return write_text(render(run, templates=templates), path)


def render(run: RunResult, *, templates: Path | None = None) -> str:
    """The page as HTML text. Files of the folder `templates` replace or extend recon's (docs/report_templates.md).

    Raises:
        ConfigError: one of them has a fault; the message names file and line.
    """
    return pages.html("report.html.j2", templates=templates, **values(run))


def values(run: RunResult) -> dict[str, Any]:
    """The variables of the template."""
    items = _findings(run)
    counts = run.counts()
    in_run = Counter(item.finding.code for item in items)
    pipelines = _ordered(run)
    few = len(pipelines) <= FEW
    of_rows_alone = _of_rows_alone(run)
    cards = [p for p in pipelines if few or p.answer != "complete"][:MAX_CARDS]
    sinks = [(pipeline, sink) for pipeline in pipelines for sink in pipeline.sinks]
    return {
        "run": run,
        "cards": [(p, sums.of_pipeline(p)) for p in cards],
        "totals": sums.of_run(run),
        "rows": [] if few else [(p, sums.of_pipeline(p)) for p in pipelines],
        "pipelines": pipelines,
        "few": few,
        "answer": _like(run) if of_rows_alone else worst_answer([p.answer for p in run.pipelines]),
        "of_rows_alone": of_rows_alone,
        "headline": headline(run),
        "counts": [(status, counts[status]) for status in _STATUSES],
        "checks_line": _checks_line(run),
        "trends": trends(run.past),
        "books": books.table(run.books, MAX_BOOK_ROWS),
        "incidents": _incidents(run)[:MAX_INCIDENTS],
        "incidents_total": len(_incidents(run)),
        "findings": items[:MAX_FINDINGS],
        "findings_total": len(items),
        "levels": [(str(level), sum(i.finding.level is level for i in items)) for level in Level],
        "codes": sorted((str(code), n) for code, n in in_run.items()),
        "finding_pipelines": sorted({i.finding.pipeline for i in items if i.finding.pipeline}),
        "pictures": [
            _pictures(pipeline, sink, run.period_to) for pipeline, sink in (sinks if few else sinks[:MAX_PICTURES])
        ],
        "pictures_total": len(sinks),
        "groups": _groups(run),
        "checks_total": len(run.results),
        "checks_shown": min(len(run.results), MAX_CHECKS),
        "meanings": [(str(code), str(code.level), MEANINGS[code], in_run[code]) for code in _by_use(in_run)],
        "args": _key_values(run.args),
        "explained": [str(book.code) for book in runbook.of_run(run)],
        "runbooks": _runbooks(run),
    }


def headline(run: RunResult) -> str:
    """The answer of the whole run in one line."""
    pipelines = run.pipelines
    if _of_rows_alone(run):
        return _passed(run)
    if not pipelines:
        return "No pipeline was audited"
    if len(pipelines) == 1:
        (only,) = pipelines
        verb = "" if only.answer == "could not be proved" else "is "
        return f"{only.name} {verb}{only.says}"
    answers = Counter(p.answer for p in pipelines)
    if answers["complete"] == len(pipelines):
        return f"All {len(pipelines)} pipelines are complete"
    refuted, unproved = answers["not complete"], answers["could not be proved"]
    of = f" of {len(pipelines)} pipelines"
    if not refuted:
        return f"{unproved}{of} could not be proved"
    start = f"{refuted}{of} {'is' if refuted == 1 else 'are'} not complete"
    return f"{start}, {unproved} could not be proved" if unproved else start


def _of_rows_alone(run: RunResult) -> bool:
    """Whether only rows of tables were tested, that no pipeline writes: nothing then has an answer."""
    return bool(run.results) and not run.pipelines and all(result.kind == "data" for result in run.results)


def _passed(run: RunResult) -> str:
    counts, total = run.counts(), plural(len(run.results), "data test")
    if failed := counts["fail"] + counts["error"]:
        return f"{failed} of {total} failed or could not be evaluated"
    return f"None of {total} failed"


def _like(run: RunResult) -> Answer:
    """The answer whose colour and sign the report of such tests has: no test fails where a pipeline is complete."""
    counts = run.counts()
    return "not complete" if counts["fail"] else "could not be proved" if counts["error"] else "complete"


def _runbooks(run: RunResult) -> list[tuple[runbook.Runbook, Markup]]:
    """The pages about the codes that need somebody, so that the report can be read without a network."""
    from markupsafe import Markup

    return [(book, Markup(runbook.as_html(book.code))) for book in runbook.of_run(run)]  # our own text


def worst_answer(answers: list[Answer]) -> Answer:
    """The worst of several answers; without any pipeline, "could not be proved"."""
    return min(answers, key=ANSWERS.index, default="could not be proved")


class _Item(NamedTuple):
    """A finding and the check that reported it."""

    finding: Finding
    check: str
    order: int


# Where the query reads no Kafka, whose lag the pictures show: what says what waits.
_WAITS: Mapping[SourceKind, str] = {
    "a Delta table": "The query reads a Delta table: the check source_table says which of its versions wait.",
    "a folder of files": "The query reads a folder of files: the check source_files says which of them wait.",
}


class _Pictures(NamedTuple):
    """The charts of one sink."""

    pipeline: PipelineFacts
    sink: SinkFacts
    title: str
    coverage: picture.Coverage | None
    bars: picture.Bars | None
    lags: tuple[picture.Lag, ...]
    lag_total: int
    lag_unknown: int
    waits: str


class _Shown(NamedTuple):
    """A check's result with its evidence and samples as table cells."""

    result: CheckResult
    evidence: tuple[tuple[str, str, bool], ...]
    columns: tuple[str, ...]
    samples: tuple[tuple[str, ...], ...]
    findings: tuple[Finding, ...]
    more: int
    brief: bool = False


def _findings(run: RunResult) -> list[_Item]:
    """Every finding once, worst first: two checks may report the same one."""
    seen: dict[Finding, str] = {}
    for result in run.results:
        for finding in result.findings:
            seen.setdefault(finding, result.name)

    def key(pair: tuple[Finding, str]) -> tuple[Any, ...]:
        f = pair[0]
        return (
            f.level.rank,
            f.pipeline or "",
            f.sink or "",
            f.topic or "",
            -1 if f.partition is None else f.partition,
            -1 if f.start_offset is None else f.start_offset,
        )

    return [_Item(finding, check, n) for n, (finding, check) in enumerate(sorted(seen.items(), key=key))]


def _incidents(run: RunResult) -> list[tuple[str, Incident]]:
    """The incidents of all pipelines, each with its pipeline: open ones first, then by what became of records."""
    states = ("open", "accepted", "repaired")
    found = [(pipeline.name, incident) for pipeline in run.pipelines for incident in pipeline.incidents]
    return sorted(found, key=lambda item: (states.index(item[1].state), HARMS.index(item[1].harm)))


def _ordered(run: RunResult) -> list[PipelineFacts]:
    """The pipelines, worst answer first, then the one that lost most."""
    return sorted(run.pipelines, key=lambda p: (ANSWERS.index(p.answer), *sums.severity(p)))


def _pictures(pipeline: PipelineFacts, sink: SinkFacts, until: datetime) -> _Pictures:
    lags = picture.lags(sink)
    known = [lag.lag for lag in lags if lag.lag is not None]
    return _Pictures(
        pipeline=pipeline,
        sink=sink,
        title=sink_name(pipeline.name, sink.name),
        coverage=picture.coverage(sink),
        bars=picture.bars(sink, until),
        lags=lags,
        lag_total=sum(known),
        lag_unknown=len(lags) - len(known),
        waits=next((_WAITS[kind] for p in sink.partitions if (kind := kind_of(p.topic)) in _WAITS), ""),
    )


def _groups(run: RunResult) -> list[tuple[str, list[_Shown]]]:
    """Checks by pipeline; pipelines and checks in order of severity, worst first.

    Of many checks the worst have their details, the others a line.
    """
    order = {p.name: n for n, p in enumerate(_ordered(run))}
    names = sorted({r.pipeline for r in run.results if r.pipeline and r.pipeline not in order})
    order |= {name: len(order) + n for n, name in enumerate(names)}
    worst = sorted(run.results, key=lambda r: (_STATUSES.index(r.status), order.get(r.pipeline or "", len(order))))
    groups: dict[str | None, list[_Shown]] = {}
    for n, result in enumerate(worst[:MAX_CHECKS]):
        shown = _shown(result) if n < MAX_DETAILS else _Shown(result, (), (), (), (), 0, brief=True)
        groups.setdefault(result.pipeline, []).append(shown)
    placed = sorted(groups, key=lambda name: (name is None, order.get(name or "", 0)))
    return [(name or "Project", groups[name]) for name in placed]


def _shown(result: CheckResult) -> _Shown:
    columns: dict[str, None] = {}
    for sample in result.samples:
        columns.update(dict.fromkeys(str(k) for k in sample))
    rows = tuple(
        tuple(_cell(sample[c]) if c in sample else "" for c in columns)
        for sample in ({str(k): v for k, v in s.items()} for s in result.samples)
    )
    limit = 50
    return _Shown(
        result=result,
        evidence=_key_values(result.evidence),
        columns=tuple(columns),
        samples=rows,
        findings=result.findings[:limit],
        more=max(len(result.findings) - limit, 0),
    )


def _key_values(values: Mapping[str, Any]) -> tuple[tuple[str, str, bool], ...]:
    """(key, text, whether the text is JSON of several lines)."""
    rows = []
    for key, value in values.items():
        plain = json_value(value)
        if isinstance(plain, (dict, list)) and plain:
            short = json.dumps(plain, ensure_ascii=False)
            wide = len(short) > 80
            rows.append((str(key), json.dumps(plain, ensure_ascii=False, indent=1) if wide else short, wide))
        else:
            rows.append((str(key), _cell(plain), False))
    return tuple(rows)


def _cell(value: Any) -> str:
    """A value as a table cell; None is NULL, as in SQL."""
    plain = json_value(value)
    if plain is None:
        return "NULL"
    if isinstance(plain, (bool, dict, list)):
        return json.dumps(plain, ensure_ascii=False)
    return str(plain)


def _checks_line(run: RunResult) -> str:
    counts, total = run.counts(), len(run.results)
    words = {
        "fail": "failed",
        "error": "could not be evaluated",
        "warn": "warned",
        "skipped": "skipped",
        "pass": "passed",
    }
    parts = [f"{counts[s]} {words[s]}" for s in _STATUSES if counts[s]]
    return f"{plural(total, 'check')}: {', '.join(parts)}" if total else "No check ran"


def _by_use(in_run: Mapping[Code, int]) -> list[Code]:
    """All codes: those of this run first, each group by level."""
    return sorted(MEANINGS, key=lambda c: (c not in in_run, c.level.rank, c))
