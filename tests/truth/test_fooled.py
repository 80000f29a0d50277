"""Stories in which an audit said "complete", and records were lost, doubled, or of aborted transactions.

Somebody found them who knew the documentation and not the rules. What is marked is not met yet, and docs/limits.md
names it; a mend takes its mark away.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import pytest
from typing_extensions import override

from recon.judge.rows.foreign_rows import MOST_RANGES, ForeignRows
from recon.model import Code
from recon.model.offsets import OffsetSpan
from recon.project.model import Rows
from tests.truth.judge import DeclaresSeveral, Judgement, WithoutKafka, WithoutSpark, WorldSources, audit
from tests.truth.repairs import repair
from tests.truth.stories import ran
from tests.truth.test_proof_state import accept, state
from tests.truth.world import TOPIC, IsolationLevel, Place, Query, Row, World


def fooled(reason: str) -> pytest.MarkDecorator:
    return pytest.mark.xfail(strict=True, reason=reason)


def right(world: World, judgement: Judgement) -> None:
    """ "complete" is said of a whole world alone."""
    truth = world.truth_since(judgement.first_batch_id)
    assert truth.whole or judgement.answer != "complete", (judgement.because, truth)


def later(world: World, **delta: float) -> Judgement:
    """An audit when no micro-batch ran for a while."""
    world.tick(**(delta or {"hours": 2}))
    return audit(world)


def proved(world: World) -> None:
    """What ran is proved, and two days pass."""
    assert later(world).answer == "complete"
    world.tick(days=2)


def cut_off(world: World, keep: int, refilled: int) -> None:
    """An unclean election keeps the logs below `keep`, and producers write other records there."""
    for p, log in enumerate(world.topics[TOPIC].logs):
        read = world.query.positions[TOPIC, p]
        world.expected |= {
            (TOPIC, f"leader {log.leader_epoch + 1}", p, offset) for offset in range(keep, min(read, keep + refilled))
        }
        log.elect(keep)
        log.kinds += ["record"] * refilled


# -- rows of aborted transactions ----------------------------------------------------------------------------------


@pytest.mark.parametrize("declared", ["read_uncommitted", "read_committed"])
def test_aborted_records_that_kafka_deleted_before_the_first_audit(declared: IsolationLevel) -> None:
    """The marker behind them is still there, and so is the entry that says read_uncommitted."""
    world = World(declared=declared)
    world.query.isolation = "read_uncommitted"
    world.produce(3, transaction="aborted")
    world.micro_batch()
    ran(1, world)
    world.expire(3)
    right(world, audit(world))


def test_a_transaction_that_was_open_at_an_audit_and_whose_records_kafka_deleted_before_the_next() -> None:
    world = ran(1, World(declared="read_uncommitted"))
    world.open_transaction(3)
    world.micro_batch()
    assert audit(world).answer == "complete"
    world.end_transaction("aborted")
    ran(1, world)
    world.expire(8)
    right(world, later(world, days=1))


@pytest.mark.parametrize("goes_on", [False, True])
def test_a_transaction_that_was_open_at_an_audit_and_aborted_before_the_next_which_comes_a_day_later(
    goes_on: bool,
) -> None:
    """Where the stream has not read the marker, no count shows it: the audit remembers the open transaction."""
    world = ran(3, World(declared="read_uncommitted"))
    world.open_transaction(3)
    world.micro_batch()
    assert later(world).answer == "complete"
    world.end_transaction("aborted")
    world.tick(days=1)
    if goes_on:
        ran(2, world)
    right(world, later(world))


@pytest.mark.parametrize("hours", [1, 30])
def test_a_transaction_whose_marker_the_stream_reads_long_after_its_records_were_judged(hours: int) -> None:
    """It was open between two looks at Kafka, so that nobody saw it; the marker shows it at last."""
    world = ran(3, World(declared="read_uncommitted"))
    world.open_transaction(3)
    world.micro_batch()
    world.end_transaction("aborted")
    later(world)
    world.tick(hours=hours)
    ran(2, world)
    right(world, later(world))


def test_records_that_were_skipped_behind_an_open_transaction() -> None:
    """A reader of committed records does not get them yet: that says nothing of what they are."""
    world = ran(2)
    world.query.isolation = "read_uncommitted"
    world.open_transaction(3)
    world.micro_batch()
    world.produce(5)
    world.micro_batch(skip=3)
    assert world.truth.lost
    right(world, audit(world))
    world.end_transaction("committed")
    ran(1, world)
    right(world, later(world))


@pytest.mark.parametrize("by", ["reader", "sink"])
def test_records_of_a_topic_made_anew_are_lost_at_offsets_whose_question_was_accepted(
    by: Literal["reader", "sink"],
) -> None:
    """What somebody accepted are offsets of the former topic, which are other records."""
    world = World()
    world.produce(5, transaction="aborted")
    world.micro_batch()
    world.recreate()
    world.new_checkpoint()
    world.micro_batch()
    audit(world)
    accept(world)
    world.produce(3)
    world.micro_batch(lose=range(6), by=by)
    assert world.truth.lost
    for judgement in (audit(world), later(world, days=1), audit(world, full=True)):
        right(world, judgement)


def test_records_that_were_lost_of_a_topic_made_anew_whose_rows_have_the_same_offsets() -> None:
    """The rows of the new topic, in other micro-batches, must not stand for them."""
    world = ran(2)
    world.produce(1)
    world.micro_batch(lose=(0, 1), by="reader")
    world.recreate(refill=40)
    world.new_checkpoint()
    world.micro_batch()
    assert world.truth.lost
    audit(world)
    accept(world, lambda before: [o.id for o in before.open if o.finding.code is Code.RECREATED])
    right(world, audit(world))
    named = {open_finding.finding.batch_id for open_finding in state(world).open}
    assert 2 in named, "the micro-batch whose records are lost"


# -- leader epochs ------------------------------------------------------------------------------------------------


def test_an_unclean_election_below_what_was_proved_and_kafka_deleted_what_shows_it() -> None:
    """Without the first audit the answer is INCONCLUSIVE."""
    world = ran(3)
    proved(world)
    cut_off(world, 0, 15)
    ran(2, world)
    world.expire(20)
    ran(1, world)
    right(world, later(world))


@pytest.mark.parametrize("full", [False, True])
def test_a_question_about_an_election_that_the_next_audit_forgets(full: bool) -> None:
    world = ran(3)
    cut_off(world, 0, 15)
    ran(2, world)
    world.expire(20)
    ran(1, world)
    first = later(world)
    assert (first.answer, first.codes) == ("could not be proved", {"INCONCLUSIVE"})
    right(world, audit(world, full=full))


def test_a_log_that_ended_below_what_was_read_at_an_audit_and_was_filled_again_since() -> None:
    """Other partitions go on. `--full` asks for the leader epochs again, and finds it."""
    world = ran(3)
    world.topics[TOPIC].logs[1].elect(10)
    world.topics[TOPIC].logs[0].kinds += ["record"] * 5
    world.micro_batch()
    first = later(world)
    assert first.answer == "could not be proved" and "below 15 which was read" in first.because
    world.tick(days=2)
    world.expected |= {(TOPIC, "the next leader", 1, offset) for offset in range(10, 15)}
    ran(1, world, count=20)
    right(world, later(world))


def test_an_unclean_election_after_one_that_was_accepted() -> None:
    """`--full` does not find it either."""
    world = ran(3)
    cut_off(world, 10, 10)
    ran(2, world)
    audit(world)
    accept(world)
    world.expected = {place for place in world.expected if not place[1].startswith("leader")}
    assert audit(world).answer == "complete"
    ran(3, world)
    cut_off(world, 25, 30)
    ran(3, world)
    assert any(place[1].startswith("leader") for place in world.truth.lost)
    right(world, audit(world))


def test_an_unclean_election_between_two_runs_cuts_off_what_earlier_micro_batches_read() -> None:
    """The answer behind the last micro-batch of a run is lost; those before it are in the ledger: `--full` has it."""
    world = ran(5)
    proved(world)
    world.states.clear()
    cut_off(world, 5, 60)
    ran(2, world)
    right(world, later(world, days=2))


def test_clean_elections_between_two_runs_make_no_question() -> None:
    """Each audit compares with the leader that the one before it saw."""
    world = ran(5)
    proved(world)
    for _ in range(3):
        world.states.clear()
        for log in world.topics[TOPIC].logs:
            log.elect()
        ran(2, world)
        judgement = later(world, days=2)
        assert judgement.answer == "complete", judgement.because
        world.expire(world.query.positions[TOPIC, 0] - 5)


def test_an_unclean_election_while_no_micro_batch_ran_and_none_since() -> None:
    world = ran(5)
    proved(world)
    cut_off(world, 5, 60)
    right(world, later(world, days=2))


@pytest.mark.parametrize("days", [0, 2])
def test_an_unclean_election_of_a_topic_made_anew_whose_old_log_was_read_further(days: int) -> None:
    """The old topic was read to a higher offset under the same leader epoch, which proves nothing of the new log."""
    world = ran(10)
    world.recreate(refill=15)
    world.new_checkpoint()
    world.states.clear()
    world.states_known = False
    world.micro_batch()
    audit(world)
    accept(world)  # RECREATED
    assert audit(world).answer == "complete"
    world.tick(days=days)
    cut_off(world, 5, 60)
    world.micro_batch()
    right(world, audit(world))


def test_an_unclean_election_of_a_topic_made_anew_whose_old_log_had_a_later_leader() -> None:
    """What was compared of the old log answers nothing about the new one, of which Kafka holds no more."""
    world = ran(3)
    for _ in range(2):
        for log in world.topics[TOPIC].logs:
            log.elect()
        ran(2, world)
    world.recreate(refill=15)
    world.new_checkpoint()
    world.micro_batch()
    ran(1, world)
    audit(world)
    accept(world)
    assert audit(world).answer == "complete"
    cut_off(world, 5, 60)
    world.expire(30)
    world.micro_batch()
    ran(1, world)
    judgement = audit(world)
    right(world, judgement)
    assert any("leader epoch was 0 and is 1" in f.message for r in judgement.results for f in r.findings)


@pytest.mark.parametrize("states", [True, False])
@pytest.mark.parametrize("days", [0, 2])
def test_a_second_unclean_election_between_an_audit_that_doubted_the_log_and_the_next(days: int, states: bool) -> None:
    """Somebody accepted the first one: the audit that asked about it had seen the log that the second one cut off."""
    world = ran(5)
    proved(world)
    world.states.clear()
    world.states_known = states
    cut_off(world, 5, 60)
    ran(2, world)
    assert audit(world).answer == "could not be proved"
    accept(world)
    world.expected = {place for place in world.expected if not place[1].startswith("leader")}
    world.states.clear()
    cut_off(world, 70, 80)
    world.tick(days=days)
    ran(2, world)
    assert any(place[1] == "leader 2" for place in world.truth.lost)
    right(world, later(world))
    right(world, later(world))


@pytest.mark.parametrize("states", [True, False])
def test_clean_elections_behind_one_that_was_accepted_make_no_question(states: bool) -> None:
    world = ran(5)
    proved(world)
    world.states.clear()
    world.states_known = states
    cut_off(world, 5, 60)
    ran(2, world)
    audit(world)
    audit(world)
    accept(world)
    for _ in range(3):
        for log in world.topics[TOPIC].logs:
            log.elect()
        ran(2, world)
        judgement = later(world, days=2)
        assert judgement.answer == "complete", judgement.because


# -- the proof from audit to audit ----------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["without Kafka", "from", "to"])
def test_rows_that_are_gone_and_an_audit_that_proves_nothing_was_the_first_to_count_them(how: str) -> None:
    """The log of the DELETE is cleaned up."""
    world = ran(3)
    proved(world)
    ran(3, world)
    proved(world)
    begin = world.now
    world.delete(lambda row: row.place[2:] == (0, 7))
    ran(2, world)
    world.clean_log()
    if how == "without Kafka":
        audit(world, sources_of=WithoutKafka)
    elif how == "from":
        assert audit(world, from_=begin).answer == "not complete"
    else:
        audit(world, to=world.now)
    right(world, later(ran(1, world)))


def two_epochs() -> World:
    """Two checkpoints, one behind the other; what the second read is proved."""
    world = ran(2)
    world.new_checkpoint(dict(world.query.positions))
    ran(4, world)
    proved(world)
    return world


@pytest.mark.parametrize("back", [10, 18])
def test_a_third_checkpoint_reads_again_a_part_of_what_the_second_read(back: int) -> None:
    """Case 47, with two hours between a day's last micro-batch and its audit; `--full` finds OVERLAP and DUPLICATE."""
    world = two_epochs()
    ends = dict(world.query.positions)
    world.new_checkpoint({where: end - back for where, end in ends.items()})
    world.micro_batch(most=3)
    world.query.positions = ends
    ran(2, world)
    assert world.truth.doubled
    right(world, later(world))


def test_offsets_of_a_topic_made_anew_that_a_later_checkpoint_reads_again() -> None:
    """`--full` finds OVERLAP and DUPLICATE."""
    world = ran(1)
    world.recreate()
    world.new_checkpoint()
    ran(5, world)
    audit(world)
    accept(world)  # RECREATED
    proved(world)
    ends = dict(world.query.positions)
    world.new_checkpoint({where: end - 10 for where, end in ends.items()})
    world.micro_batch(most=3)
    world.query.positions = ends
    ran(2, world)
    assert world.truth.doubled
    right(world, later(world))


def test_a_lost_record_of_a_topic_made_anew_at_an_offset_whose_loss_was_accepted_before() -> None:
    """`--full` does not find it either."""
    world = ran(2)
    world.produce(5)
    world.micro_batch(lose=(1,))
    audit(world)
    accept(world)
    world.expected.discard((TOPIC, "id-1", 0, 11))
    world.recreate(refill=10)
    world.new_checkpoint()
    world.micro_batch()
    audit(world)
    accept(world)
    assert world.truth.whole
    world.produce(5)
    world.micro_batch(lose=(1,))
    ran(1, world)
    assert world.truth.lost == {(TOPIC, "id-2", 0, 11)}
    right(world, audit(world))


def test_rows_deleted_every_night_and_accepted_every_night() -> None:
    """Each night's audit names the offsets of that night alone."""
    world = ran(3)
    audit(world)
    for night in (1, 2, 3):
        world.delete(lambda row, upto=5 * night: row.place[2] == 0 and row.place[3] < upto)  # type: ignore[misc]
        world.produce()
        world.micro_batch()
        found = [f for r in audit(world).results if r.check == "source_rows" for f in r.findings if f.code == "GAP"]
        assert [(f.partition, f.span) for f in found] == [(0, (5 * night - 5, 5 * night))]
        accept(world)
    assert audit(world).answer == "complete", "with what was accepted"


def test_a_lost_record_of_a_topic_made_anew_at_an_offset_that_a_row_of_the_old_topic_has() -> None:
    """Accepting that rows of both share offsets must not accept the loss."""
    world = ran(3)
    world.recreate(refill=15)
    world.new_checkpoint()
    world.micro_batch(lose=(12,))
    assert world.truth.lost == {(TOPIC, "id-2", 0, 12)}
    assert "GAP" in audit(world).codes


def test_a_row_of_a_topic_made_anew_is_doubled_at_an_offset_whose_doubled_row_was_accepted() -> None:
    """Rows carry no topic id: what was accepted is that the old topic's row, or the new one's, is there three times."""
    world = ran(2)
    world.append_again(lambda row: row.place[2:] == (0, 3))
    audit(world)
    accept(world)
    world.recreate(refill=10)
    world.new_checkpoint()
    world.micro_batch()
    audit(world)
    accept(world)
    assert audit(world).answer == "complete", "with what was accepted"
    world.append_again(lambda row: row.place == (TOPIC, "id-2", 0, 3))
    assert (TOPIC, "id-2", 0, 3) in world.truth.doubled
    right(world, audit(world))


def test_a_gap_of_the_old_topic_is_not_repaired_by_what_was_read_of_the_new_one() -> None:
    world = ran(2)
    world.produce(10)
    world.micro_batch(skip=4)
    ran(1, world)
    assert audit(world).codes == {"GAP"}
    world.recreate(refill=30)
    world.new_checkpoint()
    world.micro_batch()
    ran(1, world)
    judgement = audit(world)
    assert "REPAIRED" not in judgement.codes
    assert any(f.code == "GAP" and f.topic_id == "id-1" for r in judgement.results for f in r.findings)


def test_a_row_that_is_doubled_after_another_one_of_its_micro_batch_was_accepted() -> None:
    world = ran(3)
    world.append_again(lambda row: row.place[2:] == (0, 12))
    audit(world)
    accept(world)
    accepted = set(world.truth.doubled)
    assert audit(world).answer == "complete"
    world.append_again(lambda row: row.place[2:] == (0, 13))
    ran(1, world)
    judgement = audit(world)
    assert world.truth.doubled == accepted or judgement.answer != "complete", judgement.because


# -- the log of the table -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("places", [1, 10])
def test_rows_that_were_doubled_and_accepted_are_added_once_more(places: int) -> None:
    """That offsets were read twice was accepted, and that rows are there twice; three rows are another finding."""
    world = ran(2)
    world.new_checkpoint(dict.fromkeys(world.query.positions, 0))
    ran(1, world)
    assert audit(world).codes >= {"OVERLAP", "DUPLICATE"}
    accept(world)
    assert later(world).answer == "complete"
    again = [row for row in world.rows if row.epoch][:places]
    world.append_again(lambda row: any(row is other for other in again))
    for judgement in (later(world), later(world, days=2), audit(world, full=True)):
        assert judgement.answer == "not complete" and "DUPLICATE" in judgement.codes


@pytest.mark.parametrize("by", ["a row of the table", "a row of another source"])
def test_a_row_is_removed_and_another_one_added_and_the_log_is_cleaned_up(by: str) -> None:
    """`--full` does not find it either. A correction by hand, and no audit within the log's retention."""
    world = ran(3)
    proved(world)
    world.delete(lambda row: row.place[2:] == (0, 7))
    if by == "a row of the table":
        world.append_again(lambda row: row.place[2:] == (1, 12))
    else:
        world.rows.append(Row(world.commit("WRITE", added=1), None, 0, None, ("elsewhere", "id-e", 0, 0)))
    ran(2, world)
    world.clean_log()
    right(world, later(world))


def test_a_row_that_was_proved_is_removed_from_a_table_without_statistics_and_the_log_is_cleaned_up() -> None:
    """`--full` finds it. docs/limits.md says that the rows are read."""
    world = World()
    world.statistics = False
    ran(3, world)
    proved(world)
    world.delete(lambda row: row.place[2:] == (0, 12))
    ran(2, world)
    world.clean_log()
    right(world, later(world))


def test_another_checkpoint_writes_rows_again_without_an_entry_and_the_log_is_cleaned_up() -> None:
    """Its batch_id is below those whose rows an audit reads that goes on from the last one."""
    world = ran(5)
    proved(world)
    mine = world.query
    world.query = replace(mine, query_id="q-80", epoch=50, positions={}, planned=[])
    world.micro_batch(entry=False)
    world.query = mine
    ran(1, world)
    world.clean_log()
    assert world.truth.doubled
    right(world, later(world))
    assert "DUPLICATE" in audit(world, full=True).codes


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("cleaned", ["before it is read", "after it is read"])
def test_another_program_adds_a_record_that_the_query_reads_later_and_the_log_is_cleaned_up(
    cleaned: str, full: bool
) -> None:
    """The audit that sees the commit finds the record once; while the log is there, the next one finds it twice."""
    world = ran(2)
    world.produce(5)
    world.append_as_stranger([(TOPIC, "id-1", 0, 12)])
    assert later(world).codes == {"UNSTAMPED"}
    if cleaned == "before it is read":
        world.micro_batch(most=1)
        world.clean_log()
        assert later(world).answer == "complete"
    world.tick(days=2)
    ran(2, world)
    if cleaned == "after it is read":
        world.clean_log()
    assert (TOPIC, "id-1", 0, 12) in world.truth.doubled
    right(world, audit(world, full=full))


def test_another_program_adds_a_record_that_the_query_reads_days_later() -> None:
    world = ran(2)
    world.produce(5)
    world.append_as_stranger([(TOPIC, "id-1", 0, 12)])
    assert later(world).answer == "complete"
    world.tick(days=2)
    ran(2, world)
    assert "DUPLICATE" in audit(world).codes


def of_others(world: World) -> dict[int, list[int]]:
    """The offsets that the proof remembers of rows of others, by partition."""
    known = state(world).memory(ForeignRows)
    offsets = known.offsets if known is not None else ()
    return {of.partition: [o for span in of.ranges for o in range(*span)] for of in offsets}


def stranger_adds_unread(offsets: Sequence[int], world: World | None = None) -> World:
    """Another program adds rows of partition 0 that the query has not read; an audit sees them, the log no longer."""
    world = world or ran(2)
    world.produce(30)
    world.append_as_stranger([(TOPIC, "id-1", 0, offset) for offset in offsets])
    assert later(world).codes == {"UNSTAMPED"}
    world.tick(days=2)
    world.micro_batch(most=1)
    world.clean_log()
    return world


def test_what_another_program_added_is_remembered_until_the_query_has_read_it() -> None:
    """Over several audits, and some of it at a time."""
    world = stranger_adds_unread([22, 30, 31])
    for _ in range(3):
        assert later(world, days=1).answer == "complete"
        assert of_others(world) == {0: [22, 30, 31]}
    world.micro_batch(most=12)
    judgement = later(world)
    assert "orders-0: offsets [22, 23) have 2 rows each, and an earlier audit saw rows of others" in (judgement.because)
    world.delete(lambda row: row.pipeline is None and row.place[3] == 22)
    world.clean_log()
    assert later(world).codes >= {"REPAIRED"}
    assert of_others(world) == {0: [30, 31]}
    world.tick(days=2)
    world.micro_batch()
    assert (TOPIC, "id-1", 0, 31) in world.truth.doubled
    judgement = audit(world)
    doubled = [f for r in judgement.results for f in r.findings if f.code == "DUPLICATE"]
    assert [f.span for f in doubled] == [(30, 32)] and judgement.answer == "not complete"


@pytest.mark.parametrize("logged", [True, False])
def test_rows_of_another_program_that_are_gone_when_the_query_reads_their_records(logged: bool) -> None:
    """Whether the log shows that they were removed, or not. That rows are gone somebody has to accept."""
    world = stranger_adds_unread([22])
    world.delete(lambda row: row.pipeline is None)
    world.micro_batch()
    if not logged:
        world.clean_log()
    assert later(world).codes & {"MUTATED", "DUPLICATE"} == {"MUTATED"}
    assert of_others(world) == {}, "every row is one of the query's"
    accept(world)
    for full in (False, True):
        assert world.truth.whole and audit(world, full=full).answer == "complete"


@pytest.mark.parametrize("full", [False, True])
def test_a_repair_writes_records_that_another_program_has_put_in_their_place(full: bool) -> None:
    """Its rows have no number, so that the offsets have no row of a micro-batch."""
    world = ran(2)
    world.produce(5)
    world.micro_batch(swallow=True)
    ran(1, world)
    world.append_as_stranger([(TOPIC, "id-1", 0, 22)])
    assert "GAP" in later(world).codes
    assert of_others(world) == {0: [22]}
    world.tick(days=2)
    ran(1, world)
    world.clean_log()
    repair(world)
    assert (TOPIC, "id-1", 0, 22) in world.truth.doubled
    judgement = audit(world, full=full)
    assert judgement.answer == "not complete" and "DUPLICATE" in judgement.codes


def test_the_audit_that_sees_the_commit_of_another_program_reads_no_rows() -> None:
    """It proves nothing, and the next one has the commit in question still, or the number of rows in its place."""
    for cleaned in (False, True):
        world = ran(2)
        assert later(world).answer == "complete"
        world.produce(15)
        world.append_as_stranger([(TOPIC, "id-1", 0, 22)])
        world.micro_batch(most=1)
        position = state(world).position
        world.tick(hours=2)
        assert audit(world, sources_of=WithoutSpark).answer == "could not be proved"
        assert state(world).position == position
        world.micro_batch(most=1)
        if cleaned:
            world.clean_log()
        world.tick(days=2)
        later(world)
        assert of_others(world) == {0: [22]}, cleaned
        world.clean_log()
        world.micro_batch()
        assert (TOPIC, "id-1", 0, 22) in world.truth.doubled
        assert "DUPLICATE" in audit(world).codes, cleaned


@pytest.mark.parametrize("full", [False, True])
def test_the_audit_that_sees_what_another_program_had_added_read_again_reads_no_rows(full: bool) -> None:
    """As many rows as offsets: counts alone would prove it."""
    world = stranger_adds_unread([22])
    assert later(world).answer == "complete"
    world.tick(days=2)
    world.micro_batch()
    judgement = audit(world, full=full, sources_of=WithoutSpark)
    assert judgement.answer == "could not be proved"
    assert "the query read 1 offset of which another program had added rows to the sink" in judgement.because
    assert "DUPLICATE" in audit(world, full=full).codes
    assert "DUPLICATE" in later(world).codes


@pytest.mark.parametrize("full", [False, True])
def test_doubled_rows_of_another_program_are_accepted_and_the_log_is_cleaned_up(full: bool) -> None:
    """The message no longer names its commits, and the finding is the same."""
    world = ran(2)
    world.append_as_stranger([(TOPIC, "id-1", 0, 7)])
    assert "DUPLICATE" in later(world).codes
    accept(world)
    assert later(world).answer == "complete"
    ran(1, world)
    world.clean_log()
    assert audit(world, full=full).answer == "complete"
    world.append_as_stranger([(TOPIC, "id-1", 0, 7)])
    assert audit(world, full=full).answer == "not complete", "there is one more"


def test_a_doubled_row_is_no_less_there_when_the_log_no_longer_shows_its_commit() -> None:
    """The rows of the micro-batches have the offset once, for the other row has no number."""
    world = ran(2)
    world.append_as_stranger([(TOPIC, "id-1", 0, 7)])
    assert "DUPLICATE" in later(world).codes
    ran(1, world)
    world.clean_log()
    for full in (False, True):
        judgement = audit(world, full=full)
        assert judgement.answer == "not complete" and "REPAIRED" not in judgement.codes


@pytest.mark.parametrize("seen", [False, True])
def test_rows_of_another_program_whose_commit_is_gone_from_the_log_before_an_audit_sees_it(seen: bool) -> None:
    """The table has rows too many, so that all rows without a number are looked for, of records read or not."""
    world = ran(2)
    world.produce(15)
    world.append_as_stranger([(TOPIC, "id-1", 0, 7 if seen else 22)])
    world.micro_batch(most=1)
    world.clean_log()
    judgement = later(world)
    assert ("DUPLICATE" in judgement.codes) == seen
    world.tick(days=2)
    world.micro_batch()
    assert "DUPLICATE" in audit(world).codes


def test_what_another_program_added_to_a_table_that_was_made_anew_is_forgotten() -> None:
    world = stranger_adds_unread([22])
    assert later(world).answer == "complete"
    world.drop_table()
    later(world)
    accept(world)
    later(world)
    assert of_others(world) == {}


def test_how_much_a_state_remembers_of_what_others_added() -> None:
    """No more ranges than so many, else one per partition: what lies between them costs a search."""
    world = ran(2)
    world.produce(4 * MOST_RANGES)
    world.append_as_stranger([(TOPIC, "id-1", p, 20 + 3 * n) for p in range(2) for n in range(MOST_RANGES)])
    world.append_as_stranger([(TOPIC, "id-1", 1, 20 + 3 * MOST_RANGES)])
    assert later(world).codes == {"UNSTAMPED"}
    known = state(world).memory(ForeignRows)
    assert known is not None and [len(of.ranges) for of in known.offsets] == [1, 1]
    kept = of_others(world)
    added = {(row.place[2], row.place[3]) for row in world.rows if row.pipeline is None}
    assert added <= {(p, offset) for p, offsets in kept.items() for offset in offsets}
    world.micro_batch(most=1)
    world.clean_log()
    world.tick(days=2)
    world.micro_batch(most=25)
    assert audit(world).answer == "not complete"


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("doubled_by", ["another pipeline", "the rows once more", "a lost checkpoint"])
def test_another_program_adds_a_third_row_of_a_record_whose_second_one_was_accepted(
    doubled_by: str, full: bool
) -> None:
    world = World()
    world.produce(5)
    world.micro_batch()
    if doubled_by == "another pipeline":
        with world.running(Query(pipeline="orders_2", query_id="q-90")):
            world.micro_batch()
    elif doubled_by == "the rows once more":
        world.append_again(lambda row: row.batch_id == 0)
    else:
        world.new_checkpoint({(TOPIC, p): 0 for p in range(2)})
        world.micro_batch()
    assert later(world).answer == "not complete"
    accept(world)
    assert later(world).answer == "complete"
    world.append_as_stranger([(TOPIC, "id-1", 0, 3)])
    world.tick(hours=2)
    for again in range(3):  # it is not forgotten, either
        judgement = audit(world, full=full and not again)
        assert judgement.answer == "not complete" and "DUPLICATE" in judgement.codes
        world.tick(hours=2)


def test_rows_that_the_query_itself_wrote_three_times_are_not_said_to_be_of_another_program() -> None:
    world = ran(2)
    assert later(world).answer == "complete"
    for _ in range(2):
        world.tick(days=1)
        world.new_checkpoint({(TOPIC, p): 0 for p in range(2)})
        world.micro_batch()
        judgement = later(world)
        assert judgement.answer == "not complete"
        messages = [finding.message for result in judgement.results for finding in result.findings]
        assert not any("another program" in message for message in messages)
    assert any("have 3 rows each, and an earlier audit saw" in message for message in messages)


def test_a_table_made_anew_has_the_versions_of_other_micro_batches() -> None:
    """Rows in the files of its version 1 say nothing of what the former table's version 1 had."""
    world = ran(1)
    world.produce(3)
    world.micro_batch()
    assert later(world).answer == "complete"
    world.drop_table()
    ran(1, world)
    world.produce(9)
    world.micro_batch()
    answer = later(world)
    assert answer.codes >= {"MUTATED", "GAP"} and "DUPLICATE" not in answer.codes


# -- repairs --------------------------------------------------------------------------------------------------------


def test_compaction_removes_a_record_between_the_audit_that_found_its_loss_and_the_repair() -> None:
    world = ran(2)
    world.produce(5)
    world.micro_batch(swallow=True)
    ran(1, world)
    assert audit(world).answer == "not complete"
    world.compact(lambda offset: offset == 12)
    repair(world)
    assert world.truth.lost == {(TOPIC, "id-1", p, 12) for p in range(2)}
    right(world, audit(world))


# -- what a transform does with rows --------------------------------------------------------------------------------


class ReadsWrongly(World):
    """A world in which code before the hook may lose one record and give another one twice."""

    misread: tuple[Place | None, Place | None] = (None, None)

    @override
    def _write(
        self,
        spans: Sequence[OffsetSpan],
        read: Sequence[Place],
        returned: Sequence[Place],
        written: Sequence[Place],
        **more: Any,
    ) -> None:
        lost, again = self.misread

        def given(places: Sequence[Place]) -> list[Place]:
            return [place for place in places for _ in range((place != lost) + (place == again))]

        super()._write(spans, given(read), given(returned), given(written), **more)


def test_a_record_is_lost_before_the_hook_and_one_that_the_transform_drops_is_read_twice() -> None:
    """As many rows read as offsets; their fingerprint is not that of the offsets."""
    world = ReadsWrongly()
    world.query.filters = lambda offset: offset % 3 == 0
    ran(2, world)
    world.misread = ((TOPIC, "id-1", 1, 11), (TOPIC, "id-1", 0, 12))
    ran(1, world)
    world.misread = (None, None)
    ran(1, world)
    assert world.truth.lost == {(TOPIC, "id-1", 1, 11)}
    right(world, audit(world))


@fooled(
    "Kafka compacts without a trace: to every witness a record that nobody delivered, and that compaction removed "
    "before the audit, is the same as one that it had removed before the read"
)
def test_a_record_is_lost_before_the_hook_and_compaction_removes_it_before_the_first_audit() -> None:
    world = ran(3)
    world.produce(5)
    world.micro_batch(lose=(1,), by="reader")
    world.compact(lambda offset: offset == 16)
    ran(1, world)
    assert world.truth.lost
    right(world, audit(world))


class DeclaresFilters(WorldSources):
    """Its sources, where recon.yml says `rows: {filters: true}`."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        pipeline = self.pipeline.model_copy(update={"rows": Rows(filters=True)})
        object.__setattr__(self, "pipeline", pipeline)
        object.__setattr__(self, "project", self.project.model_copy(update={"pipelines": (pipeline,)}))


@pytest.mark.parametrize("declared", [False, True])
@pytest.mark.parametrize("days", [0, 2])
def test_a_filter_that_seldom_acts_and_a_restored_entry_of_a_micro_batch_in_which_it_did(
    days: int, declared: bool
) -> None:
    """Whether offset 50 was filtered is not known: that is no GAP."""

    world = World()
    world.query.filters = lambda offset: offset % 50 == 0
    ran(5, world)
    proved(world)
    for _ in range(days):
        ran(2, world)
        proved(world)
    ran(4 - 2 * days, world)
    world.produce(7)
    world.crash("entry")
    ran(2, world)
    assert world.truth.whole
    judgement = audit(world, sources_of=DeclaresFilters if declared else WorldSources)
    assert "GAP" not in judgement.codes, judgement.because


class MakesThree(ReadsWrongly):
    """A world whose transform makes three rows of each record; the sink may lose and double one of them."""

    sink_loses: int | None = None
    sink_doubles: int | None = None

    @override
    def _write(
        self,
        spans: Sequence[OffsetSpan],
        read: Sequence[Place],
        returned: Sequence[Place],
        written: Sequence[Place],
        **more: Any,
    ) -> None:
        made = [place for place in returned for _ in range(3)]
        kept = [place for i, place in enumerate(made) if i != self.sink_loses]
        kept += [place for i, place in enumerate(made) if i == self.sink_doubles]
        super()._write(spans, read, made, kept, **more)

    def rows_of(self, place: Place) -> int:
        """How many rows a record has."""
        return sum(row.place == place for row in self.rows)


def test_three_rows_of_each_record_are_complete() -> None:
    world = MakesThree()
    ran(3, world)
    assert audit(world, sources_of=DeclaresSeveral).answer == "complete"
    world.sink_loses = 4
    ran(1, world)
    assert audit(world, sources_of=DeclaresSeveral).codes == {"GAP"}


def test_the_sink_loses_one_of_three_rows_in_a_commit_whose_entry_is_restored() -> None:
    world = MakesThree()
    ran(2, world)
    world.sink_loses = 4
    world.produce(5)
    world.crash("entry")
    world.sink_loses = None
    ran(1, world)
    assert world.rows_of((TOPIC, "id-1", 0, 11)) == 2
    assert audit(world, sources_of=DeclaresSeveral).answer != "complete"


@pytest.mark.parametrize("marker", [False, True])
def test_a_record_is_read_twice_before_a_transform_that_makes_several_rows(marker: bool) -> None:
    """11 rows read of 10 records; a transaction marker makes room for the eleventh."""
    world = MakesThree()
    ran(2, world)
    if marker:
        world.produce(5, transaction="committed")
    world.misread = (None, (TOPIC, "id-1", 0, 12))
    ran(0 if marker else 1, world)
    if marker:
        world.micro_batch()
    world.misread = (None, None)
    ran(1, world)
    assert world.rows_of((TOPIC, "id-1", 0, 12)) == 6
    assert audit(world, sources_of=DeclaresSeveral).answer != "complete"


def test_the_sink_loses_one_of_three_rows_and_doubles_one_of_another_record() -> None:
    """tests/unit/checks/evidence/test_judge_made.py gives rows of version 0; `Sources.rows` reads the newest."""
    world = MakesThree()
    ran(2, world)
    world.sink_loses, world.sink_doubles = 4, 9
    ran(1, world)
    world.sink_loses = world.sink_doubles = None
    ran(1, world)
    assert world.rows_of((TOPIC, "id-1", 0, 11)) == 2 and world.rows_of((TOPIC, "id-1", 0, 13)) == 4
    assert audit(world, sources_of=DeclaresSeveral).answer != "complete"


def test_the_sink_doubles_a_row_where_each_record_has_one_and_a_marker_makes_room_for_it() -> None:
    """12 offsets, 10 rows given, 11 taken in. Without the transaction it is a DUPLICATE."""
    world = ran(2)
    world.produce(5, transaction="committed")
    world.micro_batch(double=(1,))
    ran(1, world)
    assert world.truth.doubled
    right(world, audit(world, sources_of=DeclaresSeveral))


@pytest.mark.parametrize("audited", [True, False])
def test_a_compaction_that_loses_a_row_is_no_compaction(audited: bool) -> None:
    """By its own word it changes no data. Once the log is cleaned up, the number of rows tells it still."""
    world = ran(3)
    audit(world)
    world.compact_and_lose(next(row for row in world.rows if row.place[2:] == (0, 6)))
    if audited:
        judgement = audit(world)
        assert judgement.answer == "not complete" and judgement.codes >= {"MUTATED", "GAP"}, judgement.because
    world.optimize()
    world.clean_log()
    for full in (False, True):
        assert audit(world, full=full).answer == "not complete"


@pytest.mark.parametrize("by", ["reader", "sink"])
@pytest.mark.parametrize("full", [False, True])
def test_an_accepted_loss_stays_accepted_when_kafka_deletes_the_record(
    by: Literal["reader", "sink"], full: bool
) -> None:
    world = ran(2)
    world.produce()
    world.micro_batch(lose=(3,), by=by)
    assert "GAP" in audit(world).codes
    accept(world)
    assert audit(world).answer == "complete"
    world.expire(18)
    judgement = audit(world, full=full)
    assert judgement.answer == "complete" and judgement.facts.accepted, (judgement.because, judgement.codes)


def test_a_loss_that_nobody_accepted_stays_the_same_finding_when_kafka_deletes_the_record() -> None:
    world = ran(2)
    world.produce()
    world.micro_batch(lose=(3,))
    audit(world)
    before = [open_finding.id for open_finding in state(world).open]
    world.expire(18)
    assert audit(world).answer == "not complete"
    assert [open_finding.id for open_finding in state(world).open] == before


def test_a_compaction_of_files_without_statistics_that_loses_a_row() -> None:
    for transaction in (None, "committed"):
        world = ran(1)
        world.produce(transaction=transaction)
        world.micro_batch()
        world.statistics = False
        world.compact_and_lose(next(row for row in world.rows if row.place[3] == 3))
        for _ in range(2):
            assert audit(world, sources_of=WithoutSpark).answer != "complete"
            judgement = audit(world)
            assert judgement.answer == "not complete" and "GAP" in judgement.codes
