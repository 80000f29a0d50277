"""dbt's severity, warn_if and error_if: from a verdict to a status.

`severity: error` applies error_if first (fail), then warn_if (warn); `severity: warn` applies warn_if alone. What
could not be proved is `error` whatever the severity, and what was not judged is `skipped`. Records that are lost are
`fail`, whatever the severity and the thresholds: lag may warn, a loss may not.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING

from recon.base.errors import ConfigError
from recon.checks.samples import without_values
from recon.model import CheckResult, Status, Verdict

if TYPE_CHECKING:
    from recon.checks.bound import Bound
    from recon.project import CheckConfig

Threshold = Callable[[int], bool]

_OPERATORS: dict[str, Callable[[int, int], bool]] = {
    "!=": operator.ne,
    "<>": operator.ne,
    "=": operator.eq,
    "==": operator.eq,
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
_COMPARISON = re.compile(r"\s*(!=|<>|==|=|>=|>|<=|<)\s*(\d+)\s*")
_BETWEEN = re.compile(r"\s*(not\s+)?between\s+(\d+)\s+and\s+(\d+)\s*", re.IGNORECASE)


@lru_cache(maxsize=256)
def parse(expression: str) -> Threshold:
    """The predicate on the number of failures that a `warn_if` or `error_if` stands for.

    Comparisons with a whole number (`!= 0`, `>10`, `= 0`) and `between 5 and 10`, both ends included.

    Raises:
        ConfigError: it is neither.

    >>> parse(">= 5")(5), parse("between 1 and 3")(4)
    (True, False)
    """
    if match := _COMPARISON.fullmatch(expression):
        compare, bound = _OPERATORS[match[1]], int(match[2])
        return lambda failures: compare(failures, bound)
    if match := _BETWEEN.fullmatch(expression):
        low, high, inside = int(match[2]), int(match[3]), not match[1]
        return lambda failures: (low <= failures <= high) is inside
    raise ConfigError(
        f"threshold {expression!r} is not understood; write a comparison of the number of failures, "
        "such as `!= 0`, `> 10` or `between 5 and 10`"
    )


def status_of(verdict: Verdict, *, severity: str, warn_if: str, error_if: str) -> Status:
    """The status that a verdict gets under these thresholds."""
    if verdict.skipped is not None:
        return "skipped"
    if verdict.unproved is not None:
        return "error"
    if verdict.loses_records:
        return "fail"
    if verdict.regardless and verdict.failures:
        return "fail" if severity == "error" else "warn"
    if severity == "error" and parse(error_if)(verdict.failures):
        return "fail"
    if parse(warn_if)(verdict.failures) or verdict.warnings:
        return "warn"
    return "pass"


def settle(
    bound: Bound,
    verdict: Verdict,
    started_at: datetime,
    completed_at: datetime,
    relation_name: str | None = None,
) -> CheckResult:
    """A check's line in the run: its verdict with its severity and thresholds applied."""
    config = bound.config
    status = status_of(verdict, severity=config.severity, warn_if=config.warn_if, error_if=config.error_if)
    return CheckResult(
        unique_id=bound.unique_id,
        name=bound.name,
        check=bound.check.test,
        kind=bound.kind,
        status=status,
        failures=None if status in ("error", "skipped") else verdict.failures,
        message=_masked(bound, _message(status, verdict, config)),
        severity=config.severity,
        pipeline=bound.pipeline,
        sink=bound.sink,
        column=bound.column,
        tags=bound.tags,
        findings=verdict.findings,
        samples=verdict.samples,
        evidence=verdict.evidence,
        relation_name=relation_name,
        started_at=started_at,
        completed_at=completed_at,
        execution_time=(completed_at - started_at).total_seconds(),
    )


def _masked(bound: Bound, message: str) -> str:
    """The message without secrets and, of a check of rows, without the values that an error of Spark quotes."""
    hidden = bound.check.hide(message)
    return without_values(hidden, bound.config) if bound.kind == "data" else hidden


def _message(status: Status, verdict: Verdict, config: CheckConfig) -> str:
    threshold = config.error_if if status == "fail" else config.warn_if
    if verdict.skipped is not None:
        return verdict.skipped
    if verdict.unproved is not None:
        return verdict.unproved
    if status == "pass" and not verdict.failures:
        return verdict.message
    text = verdict.message or f"got {verdict.failures} failures"
    if threshold.replace(" ", "") != "!=0" and not (verdict.regardless or verdict.loses_records):
        does = "fail" if status == "fail" else "warn"
        text += f" (got {verdict.failures}, configured to {does} if {threshold})"
    return text
