"""What recon says of a world, against what happened in it: "complete" is never said of lost or doubled records."""

from __future__ import annotations

import os

import pytest

from recon.model import RUNNING, HarmedRange, Level
from recon.model.offsets import Span, Spans
from tests.truth.histories import history
from tests.truth.judge import Judgement
from tests.truth.stories import STORIES

# Cases that the judge is still fooled by, or that it names otherwise: what is missing. A mend takes its line away.
UNMET: dict[str, str] = {}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.xfail(strict=True, reason=UNMET[name]) if name in UNMET else ())
        for name in STORIES
    ],
)
def test_a_case_of_the_catalogue(name: str) -> None:
    case = STORIES[name]
    world, judgement = case.story()
    truth = world.truth_since(judgement.first_batch_id)
    assert truth.whole or judgement.answer != "complete", (judgement.because, truth)
    assert case.codes <= judgement.codes, judgement.codes
    assert not case.never & judgement.codes, judgement.codes
    if truth.whole and not case.codes & {"TAMPERED", "REPAIRED", "STALLED", "MUTATED"}:
        assert judgement.answer == "complete", judgement.because


# `make soak` looks at 100,000. Each takes about 12 ms, and the hundreds are shared out among pytest's processes.
HISTORIES = int(os.environ.get("RECON_TRUTH_HISTORIES", "10000"))


@pytest.mark.parametrize("first", range(0, HISTORIES, 100))
def test_random_histories(first: int) -> None:
    """No history is called complete that lost or doubled a record, and none is refuted in which nothing happened.

    Nor one in which somebody accepted all that was lost.
    """
    for seed in range(first, first + 100):
        acts, world, judgement = history(seed)
        truth = world.truth_since(judgement.first_batch_id)
        story = f"seed {seed}: {', '.join(acts)}; {judgement.answer}: {judgement.because}; {truth}"
        assert truth.whole or judgement.answer != "complete", story
        assert not world.settled or judgement.answer == "complete", story
        assert _uncovered(judgement) == set(), story
        assert _counted_twice(judgement) == [], story
        accounts = [sink.account for sink in judgement.facts.sinks if sink.account is not None]
        if judgement.answer == "complete":
            assert all(account.difference in (None, 0) for account in accounts), (story, accounts)


def _uncovered(judgement: Judgement) -> set[str]:
    """Codes that refute, or that nothing could decide, and are in no open incident."""
    reported = {
        str(finding.code)
        for result in judgement.results
        for finding in result.findings
        if result.check not in RUNNING and finding.level in (Level.FAIL, Level.UNPROVED)
    }
    return reported - {code for one in judgement.facts.incidents if one.state == "open" for code in one.codes}


def _counted_twice(judgement: Judgement) -> list[HarmedRange]:
    """Ranges of missing rows that two open incidents have."""
    seen: dict[tuple[str, str | None, int], Spans] = {}
    twice = []
    for one in (one for one in judgement.facts.incidents if one.state == "open"):
        for lost in (lost for lost in one.ranges if lost.harm in ("lost", "missing", "removed")):
            where, span = (lost.topic, lost.topic_id, lost.partition), Span(lost.start_offset, lost.end_offset)
            before = seen.get(where, Spans())
            twice += [lost] if before.intersect(Spans((span,))) else []
            seen[where] = before.union(Spans((span,)))
    return twice
