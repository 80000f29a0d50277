"""Writes the compliance report of a period as HTML, Markdown or PDF: a document that an auditor can sign."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from recon.base.storage import write_private
from recon.base.text import plural
from recon.model import Answer, Level
from recon.model.compliance import AuditRecord, ComplianceReport, ExceptionRecord, SinkCompliance
from recon.model.controls import UNKNOWN
from recon.model.incident import HARMS
from recon.reports import books, control_days, document, pages, pdf
from recon.reports.codes import MEANINGS
from recon.reports.run_results import write_text
from recon.reports.words import sink_name

Format = Literal["html", "md", "pdf", "json"]

# A statement's colour and shape, by the worst state of its days.
_TONES = {
    "not yet there": "could-not-be-proved",
    "shown": "complete",
    "answered": "complete",
    "partly covered": "could-not-be-proved",
    "not shown": "could-not-be-proved",
    "no audit": "could-not-be-proved",
    "refuted": "not-complete",
}


def render_html(report: ComplianceReport, templates: Path | None = None) -> str:
    """The document as one self-contained HTML page, laid out for paper and readable on a screen.

    Files of the folder `templates` replace or extend recon's (docs/report_templates.md).

    Raises:
        ConfigError: one of them has a fault; the message names file and line.
    """
    return pages.html("compliance.html.j2", templates=templates, document=document.packed(report), **values(report))


def render_markdown(report: ComplianceReport, templates: Path | None = None) -> str:
    """The document as Markdown; `templates` and errors are as for `render_html`."""
    return pages.markdown("compliance.md.j2", templates, **values(report))


def render_json(report: ComplianceReport) -> str:
    """The document's numbers as JSON, which `recon compliance verify` reads."""
    return document.dump(report, indent=2) + "\n"


def render_pdf(
    report: ComplianceReport, path: str | os.PathLike[str] = "a PDF", templates: Path | None = None
) -> bytes:
    """The document as PDF/A-3a, its numbers attached as JSON; `path` is named in errors.

    Raises:
        ConfigError: WeasyPrint or the system libraries that it needs are missing, or a template has a fault.
    """
    return pdf.make(
        render_html(report, templates),
        path=path,
        header=running_header(report),
        footer=running_footer(report),
        data=render_json(report),
        at=report.generated_at,
    )


def running_header(report: ComplianceReport) -> str:
    """The line on top of each page of a PDF."""
    return f"Document SHA-256 {document.document_hash(report)}"


def running_footer(report: ComplianceReport) -> str:
    """The left part of the line below each page of a PDF."""
    return f"Compliance report {report.period_from:%Y-%m-%d} to {report.last_day:%Y-%m-%d}"


def write(
    report: ComplianceReport,
    path: str | os.PathLike[str],
    format: Format = "html",
    *,
    templates: Path | None = None,
) -> Path:
    """Writes the document in one of its formats, whole or not at all; `templates` are as for `render_html`.

    Raises:
        ConfigError: a template has a fault, or the format is pdf, and WeasyPrint or the system libraries that it needs
            are missing.
    """
    if format == "pdf":
        return write_private(Path(path), render_pdf(report, path, templates))
    return write_text(text(report, format, templates=templates), path)


def text(report: ComplianceReport, format: Literal["html", "md", "json"], *, templates: Path | None = None) -> str:
    """The document in one of its formats that are text.

    Raises:
        ConfigError: a template has a fault.
    """
    if format == "json":
        return render_json(report)
    return (render_html if format == "html" else render_markdown)(report, templates)


def values(report: ComplianceReport) -> dict[str, Any]:
    """The variables of the template."""
    exceptions = sorted(
        report.exceptions,
        key=lambda e: (
            not e.open,
            e.finding.level.rank,
            e.finding.pipeline or "",
            e.first_seen,
            e.finding.topic or "",
            e.finding.partition or 0,
            e.finding.start_offset or 0,
        ),
    )
    codes = sorted({e.finding.code for e in exceptions})
    return {
        "report": report,
        "document_hash": document.document_hash(report),
        "answer": report.answer,
        "conclusion": _conclusion(report),
        "sinks": [(sink, report.answer_of(sink), _because(report, sink)) for sink in report.sinks],
        "exceptions": exceptions,
        "meanings": [(str(code), MEANINGS[code]) for code in codes],
        "audited": _audited(report),
        "outcomes": _outcomes(report),
        **_ran(report.audits),
        "books": books.table(report.books),
        "incidents": report.incidents,
        "controls": [
            (control, control_days.rows(control), control_days.summary(control)) for control in report.controls
        ],
        "frameworks": [
            (framework, [(s, control_days.summary(s), control_days.reasons(s)) for s in framework.statements])
            for framework in report.frameworks
        ],
        "said": control_days.said,
        "badges": {state: "not shown" if state in UNKNOWN else word for state, word in control_days.WORDS.items()},
        "words": control_days.WORDS,
        "tones": _TONES,
    }


def _conclusion(report: ComplianceReport) -> str:
    batches = sum(s.batches for s in report.sinks)
    if not report.sinks:
        return "This report covers no pipeline, so nothing was proved."
    scope = f"{plural(batches, 'micro-batch', 'micro-batches')} of {plural(len(report.sinks), 'sink')}"
    proved = sum(s.batches_proved for s in report.sinks)
    refuted = sum(s.batches_refuted for s in report.sinks)
    unproved = sum(s.batches_unproved for s in report.sinks)
    if report.answer == "complete":
        when = f"until {report.generated_at:%Y-%m-%d %H:%M} UTC" if report.days_to_come else "in this period"
        when += ", from the first ledger entry on," if _is_begun(report) else ""
        but = _but_for(report.accepted_of(*report.sinks))
        return f"All {scope} were proved: every record that Kafka held {when} arrived once and is unchanged{but}."
    figures = f"Of {scope}, {proved:,} were proved, {refuted:,} refuted and {unproved:,} could not be proved."
    if report.answer == "not complete":
        names = [sink_name(s.pipeline, s.sink) for s in report.sinks if report.answer_of(s) == "not complete"]
        return f"{figures} Not complete: {', '.join(names)}."
    return f"{figures} Nothing was refuted, and completeness was not shown for the whole period."


def _because(report: ComplianceReport, sink: SinkCompliance) -> str:
    """Why a sink has its answer, in one sentence."""
    open_exceptions = [e for e in report.exceptions_of(sink) if e.open]
    failing = [e for e in open_exceptions if e.finding.level is Level.FAIL]
    if sink.chain.verified is False:
        return f"The ledger's hash chain is broken{': ' + sink.chain.reason if sink.chain.reason else ''}."
    if sink.batches_refuted or sink.ranges_refuted:
        batches = plural(sink.batches_refuted, "micro-batch", "micro-batches")
        return f"{batches} and {plural(sink.ranges_refuted, 'range')} were refuted."
    if failing:
        verb, first = "is" if len(failing) == 1 else "are", min(failing, key=_harm).finding
        more = f"; and {len(failing) - 1} more" if len(failing) > 1 else ""
        return f"{plural(len(failing), 'exception')} {verb} still open: {first.code}: {first.message}{more}."
    if not report.audits:
        return "No audit ran in the period."
    if sink.batches_unproved or sink.ranges_unproved:
        batches = plural(sink.batches_unproved, "micro-batch", "micro-batches")
        return f"{batches} and {plural(sink.ranges_unproved, 'range')} could not be proved."
    if sink.days_without_audit:
        return f"No audit looked at {plural(len(sink.days_without_audit), 'day')} of the period."
    if sink.days_partly_audited:
        return f"Audits looked at a part of {plural(len(sink.days_partly_audited), 'day')} of the period."
    if sink.chain.verified is None:
        return f"The ledger's hash chain was not verified{': ' + sink.chain.reason if sink.chain.reason else ''}."
    if any(e.finding.level is Level.UNPROVED for e in open_exceptions):
        return "The last audit could not prove everything."
    if days := report.days_not_shown(sink):
        return f"Completeness was not shown on {plural(days, 'day')} of the period; why stands at that control."
    if not sink.batches:
        return "Nothing was written in the period, and no audit reported a loss."
    but = _but_for(report.accepted_of(sink))
    return f"Every micro-batch and every range was proved{but}, and the ledger's hash chain is intact."


def _harm(exception: ExceptionRecord) -> int:
    return HARMS.index(exception.finding.harm)


def _but_for(accepted: int) -> str:
    """What an answer leaves out, in the words of an audit's answer."""
    return f", but for {plural(accepted, 'accepted finding')}" if accepted else ""


def _audited(report: ComplianceReport) -> str:
    """Which days of the period were audited."""
    sentences = [
        f"{plural(len(missing), 'day')} of the period {what}: {control_days.when([(day, day) for day in missing])}."
        for missing, what in (
            (report.days_without_audit, "without an audit"),
            (report.days_partly_audited, "of which audits looked at a part"),
        )
        if missing
    ]
    if not sentences and report.audits:
        up_to_now = report.days_to_come or report.generated_at < report.period_to
        since = ", from the first ledger entry on," if _is_begun(report) else ""
        sentences.append(f"Every day of the period{' up to now' if up_to_now else ''}{since} was audited.")
    elif not sentences:
        sentences.append("No audit ran in the period.")
    if report.days_to_come:
        verb = "is" if report.days_to_come == 1 else "are"
        sentences.append(
            f"{plural(report.days_to_come, 'day')} of the period {verb} still to come: nothing is said about them."
        )
    return " ".join(sentences)


def _is_begun(report: ComplianceReport) -> bool:
    """Whether the ledger of a sink begins in the period."""
    return any(control.count("not yet there") for control in report.controls)


def _ran(audits: Sequence[AuditRecord]) -> dict[str, Any]:
    """The audits as (audit, number), and what they ran as (an audit of it, audits), in the order of these numbers.

    Most audits of a period run the same checks by the same recon.yml, which is said once.
    """
    same: dict[tuple[Any, ...], list[AuditRecord]] = {}
    for audit in audits:
        same.setdefault((audit.recon_version, audit.config_hash, audit.checks), []).append(audit)
    number = {key: n for n, key in enumerate(same, 1)}
    return {
        "audits": [(audit, number[audit.recon_version, audit.config_hash, audit.checks]) for audit in audits],
        "ran": [(of_key[0], len(of_key)) for of_key in same.values()],
    }


def _outcomes(report: ComplianceReport) -> list[tuple[Answer, int]]:
    answers: tuple[Answer, ...] = ("complete", "not complete", "could not be proved")
    return [(answer, sum(a.outcome == answer for a in report.audits)) for answer in answers]
