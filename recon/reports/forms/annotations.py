"""A run as annotations: lines that a CI server reads from the output of a step and shows beside it."""

from __future__ import annotations

from collections.abc import Iterator

from recon.model import CheckResult, RunResult
from recon.reports import runbook
from recon.reports.words import one_line

_BY = "recon"  # who speaks, in each line
_LEVELS = {"fail": "error", "error": "error", "warn": "warning"}


def as_github(run: RunResult) -> str:
    """GitHub's workflow commands: an error or a warning per check that has something to say."""
    lines = []
    for level, result in _annotated(run):
        title = _escaped(f"{_BY}: {result.name}").replace(":", "%3A").replace(",", "%2C")
        lines.append(f"::{level} title={title}::{_escaped(_message(result, run))}\n")
    return "".join(lines)


def as_azure(run: RunResult) -> str:
    """Azure Pipelines' logging commands."""
    return "".join(
        f"##vso[task.logissue type={level}]{_escaped(f'{_BY}: {result.name}: {_message(result, run)}')}\n"
        for level, result in _annotated(run)
    )


def _annotated(run: RunResult) -> Iterator[tuple[str, CheckResult]]:
    return ((_LEVELS[result.status], result) for result in run.results if result.status in _LEVELS)


def _message(result: CheckResult, run: RunResult) -> str:
    runbooks = "; ".join(map(str, runbook.of_result(result, run)))
    return f"{result.message}; what to do about it: {runbooks}" if runbooks else result.message


def _escaped(text: str) -> str:
    return one_line(text).replace("%", "%25")
