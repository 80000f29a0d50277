"""Repairs in a world that knows every record: what they mend is complete, and what they break is found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from typing_extensions import override

from recon.model import Code, LedgerEntry
from tests.truth.histories import history
from tests.truth.judge import Judgement, audit
from tests.truth.repairs import Crash, finish, repair
from tests.truth.stories import next_day, ran
from tests.truth.test_proof_state import spans, state
from tests.truth.world import TOPIC, World


def skipped(world: World) -> None:
    """Offsets that no micro-batch read."""
    world.produce()
    world.micro_batch(skip=4)


def swallowed(world: World) -> None:
    """A micro-batch that Spark finished and nobody wrote."""
    world.produce()
    world.micro_batch(swallow=True)


def lost(world: World) -> None:
    """Rows that were read and are in no commit."""
    world.produce()
    world.micro_batch(lose=(1, 2, 7))


def lost_in_a_transaction(world: World) -> None:
    world.produce(5, transaction="committed")
    world.produce(5, transaction="aborted")
    world.produce(5, transaction="committed")
    world.micro_batch(lose=(1, 8))


def skipped_in_a_transaction(world: World) -> None:
    world.produce(5, transaction="committed")
    world.micro_batch(skip=3)


LOSSES = (skipped, swallowed, lost, lost_in_a_transaction, skipped_in_a_transaction)


def read_twice(world: World) -> None:
    """The checkpoint was lost, and the query began anew."""
    world.new_checkpoint()
    world.micro_batch()


def read_a_part_twice(world: World) -> None:
    world.new_checkpoint({(TOPIC, 0): 8, (TOPIC, 1): 12})
    world.micro_batch()


def committed_twice(world: World) -> None:
    world.commit_again(1)


def inserted_again(world: World) -> None:
    world.append_again(lambda row: row.version == 1)


DOUBLINGS = (read_twice, read_a_part_twice, committed_twice, inserted_again)


def broken(fault: Callable[[World], None], *, later: bool = False) -> World:
    """Micro-batches, a fault, and the audit that found it; `later` ones go on until the fault is out of sight."""
    world = ran(3)
    fault(world)
    ran(2, world)
    judgement = audit(world)
    assert judgement.answer == "not complete", judgement.because
    if later:
        for _ in range(3):
            next_day(world)
        assert audit(world).answer == "not complete"
    return world


def whole(world: World, judgement: Judgement) -> None:
    assert world.truth.whole, world.truth
    assert (judgement.answer, state(world).open) == ("complete", ()), judgement.because
    assert all(sink.account is None or sink.account.difference in (None, 0) for sink in judgement.facts.sinks)
    next_day(world)
    again = audit(world)
    assert again.answer == "complete", again.because
    everything = audit(world, full=True)
    assert everything.answer == "complete", everything.because


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("fault", LOSSES)
def test_missing_rows_are_read_again_once(fault: Callable[[World], None], later: bool) -> None:
    world = broken(fault, later=later)
    repair(world)
    judgement = audit(world)
    assert "REPAIRED" in judgement.codes
    rows = len(world.rows)
    repair(world)
    assert len(world.rows) == rows, "nothing is open"
    whole(world, judgement)


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("fault", DOUBLINGS)
def test_doubled_rows_are_removed_but_one(fault: Callable[[World], None], later: bool) -> None:
    if later and fault is committed_twice:
        pytest.skip("a finding that names no offsets stays until somebody accepts it")
    world = broken(fault, later=later)
    before = {row.place for row in world.rows}
    repair(world)
    assert {row.place for row in world.rows} == before and world.truth.whole
    judgement = audit(world)
    assert "REPAIRED" in judgement.codes or fault is committed_twice
    whole(world, judgement)


@pytest.mark.parametrize("audited", [False, True])
@pytest.mark.parametrize("crash", ["write", "entry"])
@pytest.mark.parametrize("fault", (*LOSSES, *DOUBLINGS))
def test_a_repair_that_was_interrupted_runs_again(fault: Callable[[World], None], crash: Crash, audited: bool) -> None:
    world = broken(fault)
    repair(world, crash=crash)
    if audited:
        world.tick(minutes=10)
        judgement = audit(world)
        assert world.truth.whole or judgement.answer != "complete"
    repair(world)
    assert world.truth.whole, "nothing is doubled, nothing missing"
    whole(world, audit(world))


def test_a_restart_of_the_query_does_not_mind_a_repair_without_an_entry() -> None:
    world = broken(lost)
    repair(world, crash="entry")
    ran(2, world)
    assert "LEDGER_MISSING" in audit(world).codes
    finish(world)
    whole(world, audit(world))


def test_what_was_read_again_meanwhile_is_not_read_once_more() -> None:
    world = broken(skipped)
    ends = dict(world.query.positions)
    world.new_checkpoint(dict.fromkeys(ends, 15))
    world.micro_batch(most=2)
    world.query.positions = ends
    repair(world)
    judgement = audit(world)
    assert judgement.codes == {"REPAIRED"}, judgement.because
    whole(world, judgement)


def test_rows_that_are_there_again_are_not_written() -> None:
    world = ran(4)
    world.delete(lambda row: row.batch_id == 2)
    audit(world)
    world.restore(3)
    rows = len(world.rows)
    repair(world)
    assert len(world.rows) == rows and world.truth.whole


@pytest.mark.parametrize("fault", [skipped, lost])
def test_a_repair_that_loses_a_row_is_not_complete_and_a_second_one_is(fault: Callable[[World], None]) -> None:
    world = broken(fault)
    repair(world, lose=(1,))
    judgement = audit(world)
    assert world.truth.lost and judgement.answer == "not complete" and "GAP" in judgement.codes
    repair(world)
    whole(world, audit(world))


def test_a_repair_that_writes_what_is_there_doubles_and_is_found() -> None:
    world = ran(4)
    world.delete(lambda row: row.batch_id == 2)
    audit(world)
    world.restore(3)
    repair(world, blindly=True)
    judgement = audit(world)
    assert world.truth.doubled and "DUPLICATE" in judgement.codes and judgement.answer == "not complete"


@pytest.mark.parametrize("later", [False, True])
def test_a_removal_that_takes_the_last_row_is_found(later: bool) -> None:
    world = broken(read_a_part_twice, later=later)
    repair(world, both=True)
    judgement = audit(world)
    assert world.truth.lost and judgement.answer == "not complete"
    assert judgement.codes & {"GAP", "LEDGER_ORPHAN"}


def test_what_kafka_has_no_more_is_gone_and_the_rest_is_read() -> None:
    world = broken(swallowed)
    world.expire(18)
    plan = repair(world)
    assert {(planned.action, planned.start_offset, planned.end_offset) for planned in plan.ranges} == {
        ("gone", 15, 18),
        ("read", 18, 25),
    }
    judgement = audit(world)
    assert judgement.answer == "not complete" and spans(judgement, Code.REPAIRED) == {(18, 25)}


def test_nothing_is_read_of_a_topic_that_was_made_anew() -> None:
    world = broken(lost)
    world.recreate(refill=40)
    rows = len(world.rows)
    plan = repair(world)
    assert {planned.action for planned in plan.ranges} == {"gone"} and len(world.rows) == rows
    assert "was deleted and created again" in plan.ranges[0].why


def test_nothing_is_guessed_where_the_ledger_knows_two_topics_of_one_name() -> None:
    world = broken(lost)
    world.recreate(refill=40)
    world.new_checkpoint()
    world.micro_batch()
    rows = len(world.rows)
    plan = repair(world)
    assert {planned.action for planned in plan.ranges} == {"unknown"} and len(world.rows) == rows


def test_a_row_belongs_to_the_micro_batch_that_read_past_it() -> None:
    world = ran(3)
    world.produce()
    world.micro_batch(lose=(0,))
    world.produce()
    world.micro_batch(lose=(0,))
    audit(world)
    plan = repair(world)
    assert [(planned.start_offset, planned.batch_id) for planned in plan.of("read")] == [(15, 3), (25, 4)]


def test_a_row_that_was_swallowed_belongs_to_the_micro_batch_that_spark_planned() -> None:
    plan = repair(broken(swallowed))
    assert {planned.batch_id for planned in plan.of("read")} == {3}


def test_a_repair_that_was_not_audited_yet_is_done_and_not_planned_again() -> None:
    world = broken(lost)
    repair(world)
    assert {planned.action for planned in repair(world).ranges} == {"done"}


def test_a_finding_without_offsets_is_left_and_says_so() -> None:
    world = ran(3)
    world.delete(lambda row: row.place[3] == 7)
    audit(world)
    plan = repair(world)
    assert {finding.code for finding in plan.left_open} == {"MUTATED", "GAP"}
    assert "GAP" in {f.code for r in audit(world).results for f in r.findings} and world.truth.whole


class RouteWorld(World):
    """A world whose sink is a route: its entries have no fingerprints, and rows of other routes count as filtered."""

    @override
    def enter(self, *args: Any, **more: Any) -> LedgerEntry:
        fingerprints = ("rows_returned", "rows_given", "fingerprint_read", "fingerprint_returned", "fingerprint_given")
        return super().enter(*args, **{**more, **dict.fromkeys(fingerprints)})


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("lose", [(3,), (1, 3)])
@pytest.mark.parametrize("kind", [World, RouteWorld])
def test_a_finding_about_rows_that_were_filtered_besides_is_repaired(
    kind: type[World], lose: tuple[int, ...], later: bool
) -> None:
    """Which offsets were lost is not known, so all without a row are open; the repair filters the others again."""
    world = kind()
    world.query.filters = lambda offset: offset % 3 == 0
    ran(2, world, 9)
    world.produce(9)
    world.micro_batch(lose=lose)
    ran(1, world, 9)
    assert audit(world).answer == "not complete"
    if later:
        next_day(world)
        assert audit(world).answer == "not complete"
    repair(world)
    whole(world, audit(world))


@pytest.mark.parametrize("crash", ["write", "entry"])
def test_what_a_repair_of_them_loses_is_not_repaired(crash: Crash) -> None:
    world = RouteWorld()
    world.query.filters = lambda offset: offset % 3 == 0
    ran(2, world, 9)
    world.produce(9)
    world.micro_batch(lose=(1, 3))
    ran(1, world, 9)
    audit(world)
    repair(world, lose=(0,))
    assert world.truth.lost and audit(world).answer == "not complete"
    repair(world, crash=crash)
    world.tick(minutes=10)
    judgement = audit(world)
    assert world.truth.whole or judgement.answer == "not complete"
    repair(world)
    whole(world, audit(world))


@pytest.mark.parametrize("first", range(0, 400, 50))
def test_random_histories_repaired(first: int) -> None:
    """A repair never loses or doubles a row, and after it no history is called complete that is not."""
    for seed in range(first, first + 50):
        acts, world, before = history(seed)
        was = world.truth_since(before.first_batch_id)
        crash = (None, "write", "entry", None)[seed % 4]
        repair(world, crash=crash)  # type: ignore[arg-type]
        repair(world)
        judgement = audit(world, full=seed % 3 == 0)
        now = world.truth_since(judgement.first_batch_id)
        story = f"seed {seed}: {', '.join(acts)}; {judgement.answer}: {judgement.because}; {now}; was {was}"
        assert now.lost <= was.lost and now.doubled <= was.doubled, story
        knowable = world.knowable_since(judgement.first_batch_id)
        assert knowable.whole or judgement.answer != "complete", story
