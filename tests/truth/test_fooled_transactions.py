"""Stories in which an audit said "complete" of rows of aborted transactions, since it never met the marker behind them.

The other stories of that kind, and what `right` and `later` do, are in test_fooled.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from typing_extensions import override

from recon.model.evidence import Answers, Questions
from recon.model.offsets import Spans
from tests.truth.judge import DeclaresSeveral, WithoutKafka, WorldSources, audit
from tests.truth.repairs import repair
from tests.truth.stories import ran
from tests.truth.test_fooled import MakesThree, fooled, later, right
from tests.truth.test_proof_state import accept
from tests.truth.test_repair import RouteWorld
from tests.truth.world import TOPIC, IsolationLevel, Log, Query, Topic, World


def reads_aborted(declared: IsolationLevel = "read_uncommitted") -> World:
    """A micro-batch that ends before the marker of an aborted transaction, as maxOffsetsPerTrigger may have it."""
    world = World(declared=declared)
    world.query.isolation = "read_uncommitted"
    ran(1, world)
    world.produce(3, transaction="aborted")
    world.micro_batch(most=3)
    return world


@pytest.mark.parametrize("audited", [False, True])
@pytest.mark.parametrize("declared", ["read_uncommitted", "read_committed"])
def test_a_new_checkpoint_skips_the_marker_alone(declared: IsolationLevel, audited: bool) -> None:
    """The range that no micro-batch read holds no record for it, and shows that a transaction ended there."""
    world = reads_aborted(declared)
    if audited:
        later(world)
    world.new_checkpoint({where: end + 1 for where, end in world.query.positions.items()})
    ran(2, world)
    judgement = later(world, days=2)
    assert judgement.answer == "not complete" and judgement.codes == {"PHANTOM_ROWS"}
    assert later(world, days=2).answer == audit(world, full=True).answer == "not complete"


def test_a_new_checkpoint_skips_the_marker_of_a_committed_transaction() -> None:
    world = World(declared="read_uncommitted")
    world.produce(3, transaction="committed")
    world.micro_batch(most=3)
    world.new_checkpoint({where: end + 1 for where, end in world.query.positions.items()})
    ran(2, world)
    judgement = later(world, days=2)
    assert world.truth.whole and judgement.answer == "complete", judgement.because


@pytest.mark.parametrize("full", [False, True])
def test_aborted_records_of_a_topic_made_anew_at_offsets_that_the_old_topic_had_as_well(full: bool) -> None:
    """The old topic's offsets were read first, and read committed; somebody accepted all that its end left open."""
    world = ran(1)
    for count in (3, 5):
        world.produce(count, transaction="aborted")
        world.micro_batch()
    world.recreate(refill=8)
    world.new_checkpoint()
    world.micro_batch()
    audit(world)
    accept(world)
    world.open_transaction(4)
    world.micro_batch()
    assert audit(world).answer == "complete"
    world.end_transaction("aborted")
    world.query.isolation = "read_uncommitted"
    world.micro_batch(most=2)
    assert world.truth.phantom == {(TOPIC, "id-2", p, offset) for p in range(2) for offset in (8, 9)}
    world.tick(hours=2)
    judgement = audit(world, full=full)
    right(world, judgement)
    # Kafka is asked about offsets of the old topic, too, which the new one does not have yet: so it is not decided.
    found = [f for r in judgement.results for f in r.findings if f.code == "INCONCLUSIVE"]
    assert {(f.topic_id, f.epoch, f.span) for f in found} == {("id-2", 1, (8, 10))}


def test_a_transaction_that_the_hook_never_saw_is_aborted_and_a_new_checkpoint_begins_at_latest() -> None:
    world = World()  # declared read_committed; the entries say read_uncommitted
    world.query.isolation = "read_uncommitted"
    world.states_known = False
    ran(2, world)
    world.open_transaction(3)
    world.micro_batch()
    world.end_transaction("aborted")
    world.new_checkpoint({(TOPIC, p): log.end for p, log in enumerate(world.topics[TOPIC].logs)})
    ran(2, world)
    right(world, later(world))


@pytest.mark.parametrize("how", ["repaired", "accepted"])
def test_the_marker_lies_in_a_micro_batch_that_was_swallowed(how: str) -> None:
    """Whatever becomes of the lost records, the aborted ones are a finding of their own."""
    world = reads_aborted()
    world.tick(days=2)
    world.produce(3)
    world.micro_batch(swallow=True)
    ran(1, world)
    assert audit(world).codes == {"GAP", "PHANTOM_ROWS"}
    if how == "repaired":
        repair(world)
        assert audit(world).codes == {"PHANTOM_ROWS", "REPAIRED"}
        world.tick(days=2)
        right(world, audit(ran(2, world)))
        return
    accept(world)
    accepted = " ".join(audit(world).facts.accepted)
    assert "PHANTOM_ROWS" in accepted and "GAP" in accepted, accepted


def test_no_broker_answers_when_a_range_was_left_out() -> None:
    """What nobody read is a GAP then, and stays one; the audit that reaches Kafka finds the aborted records."""
    world = reads_aborted()
    world.new_checkpoint({where: end + 1 for where, end in world.query.positions.items()})
    ran(2, world)
    assert audit(world, sources_of=WithoutKafka).answer != "complete"
    right(world, audit(world))


def test_retention_takes_the_records_and_the_marker() -> None:
    """The rows are named, and not the marker's offset alone: who accepts that has accepted both."""
    world = World()
    world.query.isolation = "read_uncommitted"
    world.produce(3, transaction="aborted")
    world.micro_batch()
    ran(2, world)
    world.expire(4)
    judgement = audit(world)
    spans = {f.span for result in judgement.results for f in result.findings if str(f.code) == "INCONCLUSIVE"}
    assert judgement.answer == "could not be proved" and spans == {(0, 3), (3, 4)}


@pytest.mark.parametrize("taken", ["retention", "compaction"])
def test_what_an_audit_could_not_decide_about_rows_the_next_one_does_not_forget(taken: str) -> None:
    world = World()  # declared read_committed; the entries say read_uncommitted
    world.query.isolation = "read_uncommitted"
    world.topics[TOPIC].compacts = taken == "compaction"
    world.produce(3, transaction="aborted")
    world.micro_batch()
    ran(1, world)
    for log in world.topics[TOPIC].logs:
        if taken == "compaction":
            log.compacted |= {0, 1, 2}
        else:
            log.start = 3
    for _ in range(2):
        assert later(world).answer == "could not be proved"
        ran(1, world)
    assert audit(world, full=True).answer == "could not be proved"


@fooled("where Kafka's log starts right behind what is missing, expired and aborted records look the same")
def test_retention_took_exactly_the_aborted_records_at_the_beginning_of_a_range() -> None:
    world = World()
    world.produce(3, transaction="aborted")
    world.micro_batch()
    world.expire(4)
    assert world.truth.whole and audit(world).answer == "could not be proved"


class ReadsLittle(WorldSources):
    """The probe reaches its limit of records where it is asked about more than two offsets."""

    @override
    def probe(self, questions: Questions) -> Answers:
        cut = {"uncommitted": Spans(), "committed": Spans(), "truncated": "the limit of records to read was reached"}
        answers = super().probe(questions)
        return {w: replace(a, **cut) if a.requested.size > 2 else a for w, a in answers.items()}  # type: ignore[arg-type]


def test_the_probe_is_cut_short_after_it_has_shown_the_marker() -> None:
    world = reads_aborted()
    world.new_checkpoint({where: end + 1 for where, end in world.query.positions.items()})
    ran(2, world)
    right(world, audit(world, sources_of=ReadsLittle))


def test_a_range_begins_with_aborted_records_and_nobody_asked_the_broker_before_retention_took_them() -> None:
    """That they had expired before they were read is not known, so it is no LOSS_RETENTION."""
    world = World()
    world.produce(3, transaction="aborted")
    world.produce(3)
    world.micro_batch()
    world.expire(5)
    judgement = audit(world)
    assert judgement.answer == "could not be proved" and judgement.codes == {"INCONCLUSIVE"}


def test_a_route_that_was_proved_stays_so_when_retention_takes_its_markers() -> None:
    """A route's entries do not say how many offsets had a record, but how many no row accounts for."""
    world = RouteWorld()
    ran(1, world)
    world.produce(3, transaction="committed")
    world.micro_batch()
    ran(1, world)
    assert audit(world).answer == "complete"
    world.tick(days=3)
    world.expire(10)
    assert audit(world).answer == audit(world, full=True).answer == "complete"
    world.delete(lambda row: row.place[3] == 6)
    assert audit(world, full=True).answer != "complete"


# -- several rows of one record, in a later epoch -----------------------------------------------------------------


def second_epoch() -> World:
    world = MakesThree()
    ran(1, world)
    world.new_checkpoint(dict(world.query.positions))
    return ran(2, world)


def test_the_sink_loses_one_of_three_rows_and_doubles_another_after_a_new_epoch() -> None:
    """Rows do not say which epoch wrote them; the data files of the commit do."""
    world = second_epoch()
    assert isinstance(world, MakesThree)
    world.sink_loses, world.sink_doubles = 4, 9
    ran(1, world)
    world.sink_loses = world.sink_doubles = None
    ran(1, world)
    assert audit(world, sources_of=DeclaresSeveral).answer == "not complete"
    assert audit(world, sources_of=DeclaresSeveral, full=True).answer == "not complete"


def test_two_pipelines_write_one_table_and_ours_makes_several_rows() -> None:
    """Micro-batches of both have the same numbers; their topics are others."""
    world = MakesThree()
    ran(1, world)
    world.topics["clicks"] = Topic("clicks", "id-c", [Log()])
    mine, world.query = world.query, Query(pipeline="orders_2", query_id="q-9", topics=("clicks",))
    world.produce(5, topic="clicks")
    world.micro_batch()
    world.query = mine
    assert audit(ran(1, world), sources_of=DeclaresSeveral).answer == "complete"
