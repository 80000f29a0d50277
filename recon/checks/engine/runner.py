"""Runs checks of every kind: evidence checks on witnesses, data checks on a table.

Evidence checks get witnesses, and read more while they judge; data checks share the scans of a
`TableMeasurement`. A check that cannot be evaluated is status error and the others still run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, cast

from recon.checks.base import EvidenceCheck
from recon.checks.bound import Bound
from recon.checks.engine.executor import judged
from recon.checks.engine.reading import Reading
from recon.checks.threshold import settle
from recon.judge.open_findings import with_open_findings
from recon.model import CheckResult, Unavailable, Verdict, Witnesses

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from recon.checks.engine.context import ScanContext

Clock = Callable[[], datetime]


def run_evidence(
    bounds: Sequence[Bound], witnesses_for: Callable[[Bound], Witnesses], clock: Clock
) -> Iterator[CheckResult]:
    """Judges evidence checks one by one, in order; each result comes as soon as it is known.

    Args:
        bounds: checks of kind "evidence".
        witnesses_for: what one check may look at, with a `Reading` for what it asks for while it judges.
        clock: the time, in UTC.
    """
    for bound in bounds:
        started = clock()
        # A bug in one check must not silence the others.
        verdict = judged(partial(_evidence_verdict, bound, witnesses_for))
        yield settle(bound, verdict, started, clock())


def without_answer(bound: Bound, missing: Unavailable, clock: Clock) -> CheckResult:
    """The result of a check that could not be evaluated at all: error, or skipped when the user chose so."""
    now = clock()
    return settle(bound, _unavailable(missing), now, now)


def _unavailable(missing: Unavailable) -> Verdict:
    return Verdict(skipped=missing.reason) if missing.skipped else Verdict(unproved=missing.reason)


def _evidence_verdict(bound: Bound, witnesses_for: Callable[[Bound], Witnesses]) -> Verdict:
    check, witnesses = cast(EvidenceCheck, bound.check), witnesses_for(bound)
    for need in check.needs:
        if isinstance(witness := getattr(witnesses, need), Unavailable):
            return with_open_findings(_unavailable(witness), check.test, witnesses)
    verdict, reading = check.judge(witnesses), witnesses.reader
    if isinstance(reading, Reading):
        verdict, witnesses = _without_answers(verdict, reading.unanswered), reading.seen(witnesses)
    return with_open_findings(verdict, check.test, witnesses)


def _without_answers(verdict: Verdict, why: str) -> Verdict:
    """The verdict of a check to which Kafka did not answer all that it asked: without an answer it is never a pass."""
    if not why:
        return verdict
    verdict = replace(verdict, evidence={**verdict.evidence, "probe": why})
    return verdict if verdict.failures or verdict.unproved is not None else replace(verdict, unproved=why)


def run_table(
    bounds: Sequence[Bound],
    table: DataFrame,
    relation_name: str,
    clock: Clock,
    context: ScanContext | None = None,
) -> Iterator[CheckResult]:
    """Runs data checks on one table, results in order.

    All row checks share one Spark job. Key checks need one per distinct key and `where`; a query check needs one of its
    own. All that fail share a last one for samples. Nothing is cached. Checks that shared a job carry the same times.

    Args:
        bounds: checks of kind "data", all on this table.
        table: the rows; read as often as there are jobs.
        relation_name: what messages and results call the table.
        clock: the time, in UTC.
        context: other tables, earlier results and the like, for checks that use them.
    """
    if not bounds:
        return
    from recon.checks.engine.scan import TableMeasurement

    measurement = TableMeasurement(bounds, table, relation_name, clock, context)
    for at in range(len(bounds)):
        yield measurement.result(at)
