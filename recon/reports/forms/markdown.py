"""A run as Markdown, for a pull request or a chat: the answers, then what failed, warned or could not be decided."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from recon.base.text import plural
from recon.model import RunResult
from recon.reports import pages, runbook
from recon.reports.words import located

_MOST = 20  # findings shown of each check: a comment has a largest size
_MARKS = {"complete": "✅", "not complete": "❌", "could not be proved": "❓"}


def as_markdown(run: RunResult, templates: Path | None = None) -> str:
    """GitHub's Markdown; whatever comes from data is text in it, and names nobody.

    Raises:
        ConfigError: a template of the user's folder `templates` has a fault.
    """
    return pages.markdown("report.md.j2", templates, **values(run)).rstrip() + "\n"


def values(run: RunResult) -> dict[str, Any]:
    """The variables of the template."""
    told = [result for result in run.results if result.status in ("fail", "error", "warn")]
    counts = ", ".join(f"{count} {status}" for status, count in run.counts().items() if count)
    findings = {result.unique_id: [f for f in result.findings if f.level.name != "INFO"] for result in told}
    return {
        "run": run,
        "marks": _MARKS,
        "patterns": run.incidents_with_a_pattern,
        "told": told,
        "details": [(result, findings[result.unique_id]) for result in told if len(findings[result.unique_id]) > 1],
        "most": _MOST,
        "checks_line": f"{plural(len(run.results), 'check')}: {counts or 'none'}",
        "place": located,
        "runbooks": runbook.of_run(run),
    }
