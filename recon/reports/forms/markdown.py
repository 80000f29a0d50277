"""A run as Markdown, for a pull request or a chat: the answers, then what failed, warned or could not be decided."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from recon.model import CheckResult, RunResult
from recon.reports.words import located, one_line, period, sink_name
from recon.text import plural

_MOST = 20  # findings shown of each check: a comment has a largest size
_MARKS = {"complete": "✅", "not complete": "❌", "could not be proved": "❓"}
_SPECIAL = re.compile(r"([\\`*_\[\]|~$])")
# GitHub makes links of these, and tells the people whom they name: a zero width space keeps them text.
_LINKS = re.compile(r"(@|#|://|\bwww)")


def as_markdown(run: RunResult) -> str:
    """GitHub's Markdown; whatever comes from data is text in it, and names nobody."""
    parts = [f"## recon: {_text(run.project)}", _text(period(run.period_from, run.period_to)) + "\n"]
    answers = [
        (f"{_MARKS[one.answer]} {_text(one.says)}", _text(one.name), _text(one.because)) for one in run.pipelines
    ]
    if answers:
        parts.append(_table(("answer", "pipeline", "because"), answers))
    told = [result for result in run.results if result.status in ("fail", "error", "warn")]
    counts = ", ".join(f"{count} {status}" for status, count in run.counts().items() if count)
    parts.append(f"{plural(len(run.results), 'check')}: {counts or 'none'}\n")
    if told:
        checks = [
            (result.status, _text(result.name), _text(sink_name(result.pipeline, result.sink)), _text(result.message))
            for result in told
        ]
        parts.append(_table(("status", "check", "where", "message"), checks))
    parts += [part for result in told for part in _details(result)]
    parts += [f"- {_text(note)}" for note in run.notes]
    return "\n".join(parts).rstrip() + "\n"


def _details(result: CheckResult) -> Iterable[str]:
    findings = [finding for finding in result.findings if finding.level.name != "INFO"]
    if len(findings) < 2:
        return
    yield f"<details><summary>{_text(result.name)}: {plural(len(findings), 'finding')}</summary>\n"
    rows = [(str(f.code), _text(located(f)), _text(f.message)) for f in findings[:_MOST]]
    yield _table(("code", "where", "message"), rows)
    if len(findings) > _MOST:
        yield f"and {len(findings) - _MOST:,} more\n"
    yield "</details>\n"


def _table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [names, ["---"] * len(names), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def _text(text: str) -> str:
    escaped = _LINKS.sub("\\1\u200b", _SPECIAL.sub(r"\\\1", one_line(text)))
    return escaped.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
