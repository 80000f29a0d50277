"""What recon says of a world, against what happened in it: "complete" is never said of lost or doubled records."""

from __future__ import annotations

import os

import pytest

from tests.truth.histories import planned, told
from tests.truth.shrink import RULES, as_story, shrunk
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
    assert not world.wrong_accounts, world.wrong_accounts
    assert set(case.codes) <= judgement.codes, judgement.codes
    explained = {str(f.code) for result in judgement.results for f in result.findings}
    assert set(case.explained) <= explained, explained
    assert not case.never & judgement.codes, judgement.codes
    if truth.whole and not set(case.codes) & {"TAMPERED", "REPAIRED", "STALLED", "MUTATED", "INCONCLUSIVE"}:
        assert judgement.answer == "complete", judgement.because


# `make soak` looks at 100,000, shared out by the hundred among pytest's processes. Other ones: RECON_TRUTH_FIRST.
HISTORIES = int(os.environ.get("RECON_TRUTH_HISTORIES", "2000"))
FIRST = int(os.environ.get("RECON_TRUTH_FIRST", "0"))


@pytest.mark.parametrize("first", range(FIRST, FIRST + HISTORIES, 100))
def test_random_histories(first: int) -> None:
    """No history is called complete that lost or doubled a record, and none is refuted in which nothing happened.

    Nor one in which somebody accepted all that was lost.
    """
    for seed in range(first, first + 100):
        plan = planned(seed)
        history = told(plan)
        for rule in RULES:
            if rule(history):
                pytest.fail(as_story(shrunk(plan, rule), rule, len(plan.steps)), pytrace=False)
