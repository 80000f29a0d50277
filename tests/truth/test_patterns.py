"""What incidents have in common, against what happened: a pattern holds, whatever else happened beside it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from recon.model import Incident, Pattern
from tests.truth.histories import planned, told
from tests.truth.judge import Judgement, audit
from tests.truth.stories import ran
from tests.truth.world import World

_TOPIC = "orders"


def patterns(judgement: Judgement) -> Mapping[str, Pattern]:
    """The patterns of open incidents, by shape."""
    incidents = [incident for incident in judgement.facts.incidents if incident.state == "open"]
    return {incident.pattern.shape: incident.pattern for incident in incidents if incident.pattern is not None}


def every_fourth(world: World, batches: int) -> None:
    """Micro-batches of which every fourth record of each partition is lost between hook and table."""
    for _ in range(batches):
        world.produce(16)
        world.micro_batch(lose=[place for place in range(32) if place % 16 % 4 == 3])


def test_every_fourth_record_of_each_micro_batch_is_lost() -> None:
    world = World()
    every_fourth(world, 5)
    told_of = audit(world)
    assert told_of.answer == "not complete"
    pattern = patterns(told_of)["every_nth"]
    assert pattern.says.startswith("40 offsets in 5 micro-batches: every fourth offset from 3 to 79 of orders-0")
    (incident,) = told_of.facts.incidents
    assert incident.counts[0].rows == 40
    assert len(incident.findings) == 40
    again = audit(world)  # the next audit has the findings alone, and says the same
    assert patterns(again)["every_nth"].says == pattern.says


def test_every_fourth_record_beside_a_delete_and_a_swallowed_micro_batch() -> None:
    world = World()
    every_fourth(world, 5)
    world.produce(16)
    world.micro_batch(swallow=True)
    ran(1, world)
    world.delete(lambda row: row.place[3] == 4)
    found = patterns(audit(world))
    assert "every fourth offset" in found["every_nth"].says
    assert "[80, 96)" not in found["every_nth"].says


def test_a_lost_checkpoint_is_one_incident_of_both_partitions() -> None:
    world = ran(3)
    world.new_checkpoint()
    ran(1, world)
    told_of = audit(world)
    incident = next(each for each in told_of.facts.incidents if each.pattern is not None)
    assert incident.pattern is not None and incident.pattern.shape == "read_again"
    assert set(incident.codes) == {"OVERLAP", "DUPLICATE"}
    assert {harmed.partition for harmed in incident.ranges} == {0, 1}
    assert next(cause.says for cause in incident.pattern.causes).startswith("the checkpoint was deleted")


def test_a_lost_checkpoint_that_reads_again_in_two_audits_is_one_incident() -> None:
    world = ran(4)
    world.new_checkpoint()
    world.micro_batch(most=4)
    audit(world)
    world.micro_batch(most=4)
    found = [each for each in audit(world).facts.incidents if each.pattern is not None]
    assert [each.pattern.shape for each in found if each.pattern is not None] == ["read_again"]


def test_a_new_checkpoint_behind_the_end_of_the_old_one() -> None:
    world = ran(3)
    world.produce(12)
    world.new_checkpoint({(_TOPIC, p): world.topics[_TOPIC].logs[p].end for p in (0, 1)})
    ran(1, world)
    assert "passed_over" in patterns(audit(world))


def test_what_retention_deleted() -> None:
    world = ran(3)
    world.produce(40)
    world.expire(world.topics[_TOPIC].logs[0].end - 5)
    world.micro_batch()
    assert "before_log_start" in patterns(audit(world))


@pytest.mark.parametrize("first", range(0, 100, 25))
def test_patterns_of_random_histories_hold_for_their_incidents(first: int) -> None:
    """What a pattern says of epochs and of Kafka's log is so in the world, whatever else happened there."""
    for seed in range(first, first + 25):
        history = told(planned(seed))
        world = history.world
        told_of = audit(world)
        for incident in told_of.facts.incidents:
            if incident.pattern is not None:
                _assert_holds(incident, incident.pattern, world, seed)


def _assert_holds(incident: Incident, pattern: Pattern, world: World, seed: int) -> None:
    where = (seed, pattern.says)
    if pattern.shape in ("read_again", "passed_over"):
        # Another query that writes with a checkpoint of its own has an epoch of its own, too.
        assert world.query.epoch > 0 or any(row.epoch > 0 for row in world.rows), where
    if pattern.shape == "before_log_start":
        for harmed in incident.ranges:
            assert harmed.end_offset <= world.topics[harmed.topic].logs[harmed.partition].start, where
    if pattern.shape == "every_nth":
        assert len(incident.ranges) >= 4, where
