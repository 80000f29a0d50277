"""A history that shows the judge to be wrong, made as short as it can be, and told in sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import groupby

from recon.model import RUNNING, HarmedRange, Level
from recon.model.offsets import Span, Spans
from tests.truth.histories import Judge, Plan, Told, told
from tests.truth.judge import Judgement, audit

Rule = Callable[[Told], bool]


def is_complete_though_harmed(history: Told) -> bool:
    """ "complete" was said, and a record is lost, doubled, or of an aborted transaction."""
    return (
        history.judgement.answer == "complete"
        and not history.world.knowable_since(history.judgement.first_batch_id).whole
    )


def is_refuted_though_nothing_happened(history: Told) -> bool:
    """ "complete" was not said, and nothing happened that an audit may refute, or somebody accepted all of it."""
    world = history.world
    if history.judgement.answer == "complete" or not world.settled or world.wrong:
        return False
    stopped = world.interrupted is not None  # STALLED
    # docs/limits.md, "Compacted topics and restored entries": a marker looks like a record that compaction removed.
    unclear = world.restored and any(topic.compacts for topic in world.topics.values())
    # An uncommitted reader's hole behind an open transaction: what it is, a committed reader tells once that has ended.
    unclear |= world.query.isolation == "read_uncommitted" and any(log.stable is not None for log in world.logs)
    # docs/limits.md, "Micro-batches of aborted records": compaction may have removed what one without a commit read.
    unclear |= world.query.guarded and any(topic.compacts for topic in world.topics.values())
    return world.ledger.exists() and bool(world.query.planned) and not stopped and not unclear


def has_a_finding_in_no_incident(history: Told) -> bool:
    """A code that refutes, or that nothing could decide, is in no open incident."""
    return bool(uncovered(history.judgement))


def has_a_range_in_two_incidents(history: Told) -> bool:
    """Missing rows are counted in two open incidents."""
    return bool(counted_twice(history.judgement))


def has_a_wrong_account(history: Told) -> bool:
    """The account of an audit says of an offset what is not so."""
    return bool(history.world.wrong_accounts)


# What must be so of no history.
RULES: tuple[Rule, ...] = (
    is_complete_though_harmed,
    is_refuted_though_nothing_happened,
    has_a_finding_in_no_incident,
    has_a_range_in_two_incidents,
    has_a_wrong_account,
)


def uncovered(judgement: Judgement) -> set[str]:
    """Codes that refute, or that nothing could decide, and are in no open incident."""
    reported = {
        str(finding.code)
        for result in judgement.results
        for finding in result.findings
        if result.check not in RUNNING and finding.level in (Level.FAIL, Level.UNPROVED)
    }
    return reported - {
        code for incident in judgement.facts.incidents if incident.state == "open" for code in incident.codes
    }


def counted_twice(judgement: Judgement) -> list[HarmedRange]:
    """Ranges of missing rows that two open incidents have."""
    seen: dict[tuple[str, str | None, int], Spans] = {}
    twice = []
    for incident in (incident for incident in judgement.facts.incidents if incident.state == "open"):
        for lost in (lost for lost in incident.ranges if lost.harm in ("lost", "missing", "removed")):
            where, span = (lost.topic, lost.topic_id, lost.partition), Span(lost.start_offset, lost.end_offset)
            before = seen.get(where, Spans())
            twice += [lost] if before.intersect(Spans((span,))) else []
            seen[where] = before.union(Spans((span,)))
    return twice


def shrunk(plan: Plan, rule: Rule, judge: Judge = audit) -> Told:
    """The shortest history that leaving out one act after the other makes of a plan, and that still breaks the rule."""
    found = told(plan, judge)
    goes_on = True
    while goes_on:
        goes_on = False
        for place in reversed(range(len(found.plan.steps))):
            steps = found.plan.steps
            shorter = _broken(replace(found.plan, steps=(*steps[:place], *steps[place + 1 :])), rule, judge)
            if shorter is not None:
                found, goes_on = shorter, True
    return found


def _broken(plan: Plan, rule: Rule, judge: Judge) -> Told | None:
    try:
        history = told(plan, judge)
    except (ArithmeticError, AssertionError, LookupError, ValueError):
        return None  # an act needs one that was left out
    return history if rule(history) else None


def as_story(history: Told, rule: Rule, of: int) -> str:
    """A history in sentences, by day; `of` is how many acts it had before it was shrunk."""
    left = Counter(step.name for step in history.plan.steps)
    first = history.world.story[0][0].date() if history.world.story else None
    lines = [
        (rule.__doc__ or rule.__name__).strip(),
        f"Seed {history.plan.seed}, declared {history.plan.declared}; "
        f"{len(history.plan.steps)} of {of} acts are enough: "
        f"{', '.join(name if count == 1 else f'{count} × {name}' for name, count in left.items())}.",
    ]
    for day, said in groupby(history.world.story, key=lambda told: told[0].date()):
        lines.append(f"Day {(day - first).days + 1 if first else 1}")
        lines += [f"  {at:%H:%M} {sentence}" for at, sentence in said]
    lines += [f'The answer is "{history.judgement.answer}".', "What really happened"]
    lines += [f"  {sentence}" for sentence in history.world.knowable_since(history.judgement.first_batch_id).told()]
    return "\n".join(lines)
