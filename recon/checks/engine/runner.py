"""Runs checks, whatever they are.

Evidence checks get witnesses and the answers to their questions; data checks share the scans of a
`TableMeasurement`. A check that cannot be evaluated is status error and the others still run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, cast

from recon.checks.base import EvidenceCheck
from recon.checks.bound import Bound
from recon.checks.engine.executor import judged
from recon.checks.threshold import settle
from recon.judge.open_findings import with_open_findings
from recon.model import CheckResult, ProbeAnswer, Unavailable, Verdict, Witnesses, known, why_unknown
from recon.model.offsets import Spans
from recon.text import plural

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from recon.checks.engine.context import ScanContext

Clock = Callable[[], datetime]
Questions = Mapping[tuple[str, int], Spans]
Answers = Mapping[tuple[str, int], ProbeAnswer]


def run_evidence(
    bounds: Sequence[Bound],
    witnesses_for: Callable[[Bound], Witnesses],
    answer: Callable[[Questions], Answers | Unavailable],
    clock: Clock,
) -> Iterator[CheckResult]:
    """Judges evidence checks one by one, in order; each result comes as soon as it is known.

    Args:
        bounds: checks of kind "evidence".
        witnesses_for: what one check may look at, without probes.
        answer: reads Kafka's records at the offsets that a check asks about; called only when there are any.
        clock: the time, in UTC.
    """
    for bound in bounds:
        started = clock()
        # A bug in one check must not silence the others.
        verdict = judged(partial(_evidence_verdict, bound, witnesses_for, answer))
        yield settle(bound, verdict, started, clock())


def without_answer(bound: Bound, missing: Unavailable, clock: Clock) -> CheckResult:
    """The result of a check that could not be evaluated at all: error, or skipped when the user chose so."""
    now = clock()
    return settle(bound, _unavailable(missing), now, now)


def _unavailable(missing: Unavailable) -> Verdict:
    return Verdict(skipped=missing.reason) if missing.skipped else Verdict(unproved=missing.reason)


def _evidence_verdict(
    bound: Bound,
    witnesses_for: Callable[[Bound], Witnesses],
    answer: Callable[[Questions], Answers | Unavailable],
) -> Verdict:
    check, witnesses = cast(EvidenceCheck, bound.check), witnesses_for(bound)
    return with_open_findings(_judged_now(check, witnesses, answer), check.test, witnesses)


def _judged_now(
    check: EvidenceCheck, witnesses: Witnesses, answer: Callable[[Questions], Answers | Unavailable]
) -> Verdict:
    """The verdict on what this audit sees."""
    for need in check.needs:
        if isinstance(witness := getattr(witnesses, need), Unavailable):
            return _unavailable(witness)
    asked: dict[tuple[str, int], Spans] = {}
    refused: Unavailable | None = None
    # A check may ask more once it knows some answers. It asks about offsets that it read of, so that this ends.
    while refused is None and (questions := _still_asked(check, witnesses, asked)):
        asked |= {where: spans.union(asked.get(where, Spans())) for where, spans in questions.items()}
        answers = answer(questions)
        refused = answers if isinstance(answers, Unavailable) else None
        before, now = witnesses.probes, known(answers) or {}
        told = {where: before[where].joined(one) if where in before else one for where, one in now.items()}
        witnesses = replace(witnesses, probes={**before, **told})
    verdict = check.judge(witnesses)
    missing = sorted(set(asked) - set(witnesses.probes))
    if not missing and refused is None:
        return verdict
    no_answer = f"the probe gave no answer for {plural(len(missing), 'topic partition')}" + (
        f", {missing[0][0]}-{missing[0][1]} first" if missing else ""
    )
    reason = why_unknown(refused, no_answer)
    verdict = replace(verdict, evidence={**verdict.evidence, "probe": reason})
    if verdict.failures or verdict.unproved is not None:
        return verdict
    return replace(verdict, unproved=reason)  # without an answer it is never a pass


def _still_asked(check: EvidenceCheck, witnesses: Witnesses, asked: Questions) -> dict[tuple[str, int], Spans]:
    """All that a check asks about the topic partitions of which it has not asked so much before."""
    questions = check.questions(witnesses)
    return {where: spans for where, spans in questions.items() if spans.minus(asked.get(where, Spans()))}


def run_table(
    bounds: Sequence[Bound],
    table: DataFrame,
    relation_name: str,
    clock: Clock,
    context: ScanContext | None = None,
) -> Iterator[CheckResult]:
    """Runs data checks on one table, results in order.

    All row checks share one Spark job. Key checks need one per distinct key and `where`, a check with a query of its
    own one more, and all that fail share a last one for samples. Nothing is cached. Checks that shared a job carry
    the same times.

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
