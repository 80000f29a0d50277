"""A history that shows a judge to be wrong is made short and told, and the acts that are left do what they did."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tests.truth.histories import FAULTS, HARMLESS, Judge, Plan, Step, planned, told
from tests.truth.judge import Judgement, audit
from tests.truth.shrink import RULES, as_story, is_complete_though_harmed, is_refuted_though_nothing_happened, shrunk
from tests.truth.world import World


def overlooks(*codes: str) -> Judge:
    """A judge that says "complete" where all that it has to say are these codes."""

    def judge(world: World) -> Judgement:
        said = audit(world)
        return replace(said, answer="complete") if said.codes <= {*codes} else said

    return judge


def of(*names: str) -> Plan:
    """A history of these acts, between which the query runs."""
    runs = planned(0).steps[0]
    assert runs.name == "runs"
    steps = [runs]
    for seed, name in enumerate(names):
        steps += [Step(name, FAULTS[name], seed), replace(runs, seed=seed)]
    return Plan(7, "read_committed", tuple(steps))


def test_a_judge_that_overlooks_lost_rows_is_shown_by_the_act_that_loses_them() -> None:
    plan = of("optimizes", "clock_jumps", "sink_loses", "adds_a_partition", "elects_a_leader")
    judge = overlooks("GAP")
    history = told(plan, judge)
    assert is_complete_though_harmed(history)
    short = shrunk(plan, is_complete_though_harmed, judge)
    assert [step.name for step in short.plan.steps] == ["sink_loses"]
    assert short.plan.steps[0] in plan.steps
    story = as_story(short, is_complete_though_harmed, len(plan.steps))
    assert story.splitlines() == [
        '"complete" was said, and a record is lost, doubled, or of an aborted transaction.',
        "Seed 7, declared read_committed; 1 of 11 acts are enough: sink_loses.",
        "Day 1",
        "  12:00 5 records are appended to each partition of orders.",
        "  12:00 Micro-batch 0 of q-1 reads orders-0 [0, 5), orders-1 [0, 5).",
        "  12:00 The sink loses orders-0 (id-1) [0, 1).",
        "  12:00 9 rows are written as version 0.",
        f'  14:00 An audit says "not complete": {short.judgement.because}.',
        "  14:00 It reports GAP.",
        'The answer is "complete".',
        "What really happened",
        "  orders-0 (id-1) [0, 1): no live row, though the stream went past them.",
    ]


def test_two_acts_that_only_together_fool_a_judge_both_stay() -> None:
    """A judge that overlooks doubled rows is fooled by a topic that is read from its beginning again."""
    plan = of("crashes", "starts_over", "optimizes")
    short = shrunk(plan, is_complete_though_harmed, overlooks("DUPLICATE", "OVERLAP"))
    assert [step.name for step in short.plan.steps] == ["runs", "starts_over"]


def test_a_judge_that_says_too_little_is_shown_by_a_query_that_ran() -> None:
    def judge(world: World) -> Judgement:
        return replace(audit(world), answer="could not be proved")

    short = shrunk(of("clock_jumps", "optimizes"), is_refuted_though_nothing_happened, judge)
    assert [step.name for step in short.plan.steps] == ["runs"]
    assert as_story(short, is_refuted_though_nothing_happened, 5).endswith("\n  Nothing is lost or doubled.")


def _draws(_: World, rng: random.Random) -> None:
    rng.random()


@pytest.mark.parametrize("seed", range(40, 60))
def test_leaving_an_act_out_that_does_nothing_changes_nothing(seed: int) -> None:
    """Each act draws from its own seed."""
    plan = planned(seed)
    nothing = Step("nothing", _draws, 1)
    longer = replace(plan, steps=tuple(step for act in plan.steps for step in (nothing, act)))
    assert told(longer).world.story == told(plan).world.story


def test_every_fault_can_be_told_alone_and_in_an_empty_world() -> None:
    for name in sorted(FAULTS):
        for plan in (of(name), replace(of(name), steps=of(name).steps[1:2])):
            history = told(plan)
            assert history.world.acts.count(name) == 1 and not is_complete_though_harmed(history), as_story(
                history, RULES[0], 3
            )
    assert {"runs", "audited", "new epoch", *FAULTS} >= HARMLESS
