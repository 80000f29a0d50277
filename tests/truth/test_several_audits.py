"""Stories of several audits: what one of them proved, counted, asked or got accepted, the next ones go on from.

What an audit still says otherwise than it should is marked; a mend takes its mark away.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import pytest

from recon.model import Code, Finding, Level
from tests.truth.judge import DeclaresSeveral, Judgement, audit
from tests.truth.repairs import repair
from tests.truth.stories import ran
from tests.truth.test_fooled import later, right
from tests.truth.test_proof_state import accept, state
from tests.truth.world import PIPELINE, TOPIC, Log, Query, Topic, World


def wrong(reason: str) -> pytest.MarkDecorator:
    return pytest.mark.xfail(strict=True, reason=reason)


def told(judgement: Judgement, *codes: Code) -> list[Finding]:
    return [f for r in judgement.results for f in r.findings if f.code in codes]


def refuting(judgement: Judgement) -> list[str]:
    levels = (Level.FAIL, Level.UNPROVED)
    return [f"{f.code}: {f.message}" for r in judgement.results for f in r.findings if f.level in levels]


def elsewhere(world: World) -> Query:
    """Another pipeline, which reads another topic into our table."""
    world.topics["clicks"] = Topic("clicks", "id-c", [Log()])
    world.produce(3, topic="clicks")
    return Query(pipeline="orders_3", query_id="q-70", topics=("clicks",), positions={("clicks", 0): 0})


# -- "complete" of a table that lacks a record -------------------------------------------------------------------------


@pytest.mark.parametrize("same", [True, False])
def test_a_row_is_replaced_after_an_accepted_removal_and_the_full_audit_comes_after_one_that_could_not_prove(
    same: bool,
) -> None:
    """Without the accepted removal, or without the audit in between, --full says GAP and DUPLICATE."""
    world = ran(3)
    assert later(world).answer == "complete"
    world.tick(days=2)
    ran(2, world)
    world.delete(lambda row: row.place[2:] == (0, 7))
    assert later(world).answer == "not complete"
    accept(world)
    assert later(world).answer == "complete"
    world.forgive()
    world.tick(days=2)
    ran(2, world)
    world.delete(lambda row: row.place[2:] == (1, 12))
    world.append_again(lambda row: row.place[2:] == ((1, 13) if same else (0, 3)))
    ran(1, world)
    world.clean_log()
    asked = later(world)
    assert asked.answer == "could not be proved" and "`recon audit --full` looks at the rows" in refuting(asked)[0]
    world.tick(days=2)
    ran(1, world)
    assert world.truth.lost and world.truth.doubled
    right(world, audit(world, full=True))


def test_a_question_about_a_topic_made_anew_is_not_answered_by_rows_of_the_one_before() -> None:
    world = ran(6)
    later(world)
    world.tick(days=2)
    world.recreate(refill=10)
    world.new_checkpoint()
    world.micro_batch()
    later(world)
    accept(world)  # RECREATED
    assert later(world).answer == "complete"
    world.tick(days=2)
    world.produce(4)
    world.micro_batch(lose=(0,), double=(5,))
    later(world)
    world.tick(days=2)
    ran(1, world)
    assert later(world).answer == "could not be proved"
    assert world.truth.lost == {(TOPIC, "id-2", 0, 10)}
    judgement = audit(world, full=True)
    said = [f.message for f in told(judgement, Code.REPAIRED) if f.partition == 0 and f.start_offset == 10]
    waiting = {open_finding.finding.topic_id for open_finding in state(world).open if open_finding.accepted is None}
    # docs/proof.md: "what was accepted of a topic ... does not cover the new one, and what is read of the new one
    # repairs nothing of the old".
    accept(world)
    right(world, later(world)) if "id-2" not in waiting else None
    assert not said, said


def test_another_row_of_the_micro_batch_is_doubled_once_the_accepted_one_is_removed() -> None:
    world = ran(3)
    world.append_again(lambda row: row.place[2:] == (0, 12))
    later(world)
    accept(world)
    world.tick(days=2)
    ran(1, world)
    again = [row for row in world.rows if row.place[2:] == (0, 12)][1]
    world.delete(lambda row: row is again)
    world.append_again(lambda row: row.place[2:] == (0, 13))
    ran(1, world)
    world.clean_log()
    judgement = later(world)
    assert judgement.answer != "complete"
    assert {f.span for f in told(judgement, Code.DUPLICATE)} == {(13, 14)}


@pytest.mark.parametrize("many", [False, True])
def test_other_rows_of_the_micro_batch_are_doubled_once_the_accepted_ones_are_removed(many: bool) -> None:
    """Offsets that have several rows too many, and more ranges of doubled ones than are findings of their own."""
    world = ran(3, count=30)
    first, then = ({60, 62, 64, 66, 68, 70}, {61, 63, 65, 67, 69, 71}) if many else ({70}, {71})
    for _ in range(1 if many else 2):
        world.append_again(lambda row: row.place[2] == 0 and row.place[3] in first)
    later(world)
    accept(world)
    assert later(world).answer == "complete"
    world.tick(days=2)
    ran(1, world)
    kept: dict[Any, Any] = {}
    for row in world.rows:
        kept.setdefault(row.place, row)
    world.delete(lambda row: row.place[2] == 0 and row.place[3] in first and kept[row.place] is not row)
    for _ in range(1 if many else 2):
        world.append_again(lambda row: row.place[2] == 0 and row.place[3] in then)
    ran(1, world)
    world.clean_log()
    assert world.truth.doubled
    assert later(world).answer != "complete"


def test_rows_of_an_accepted_restored_entry_are_replaced() -> None:
    """Of a micro-batch whose entry was not restored this is a GAP."""
    world = World()
    world.query.makes = lambda _: 2
    ran(2, world)
    world.produce(5)
    world.crash("entry")
    world.restart()
    ran(1, world)
    audit(world, sources_of=DeclaresSeveral)
    accept(world)
    world.tick(hours=2)
    assert audit(world, sources_of=DeclaresSeveral).answer == "complete"
    ran(1, world)
    lost = next(row for row in world.rows if row.place[2:] == (0, 12))
    again = next(row for row in world.rows if row.place[2:] == (0, 13))
    world.delete(lambda row: row is lost)
    world.append_again(lambda row: row is again)
    ran(1, world)
    world.clean_log()
    world.tick(hours=2)
    assert audit(world, sources_of=DeclaresSeveral).answer != "complete"


@pytest.mark.parametrize("how", ["a row", "a micro-batch", "MERGE"])
def test_rows_are_deleted_behind_a_restore_that_was_accepted(how: str) -> None:
    """The log is whole; --full finds it, and so does an audit where a micro-batch was written before the DELETE.

    The RESTORE's version is more than an hour older than the next micro-batch, so that it is not in the slice.
    """
    world = ran(4)
    assert later(world).answer == "complete"
    ran(1, world)
    world.restore(2)
    assert later(world).answer == "not complete"
    accept(world)
    world.forgive()
    if how == "MERGE":
        world.rewrite(lambda row: row.batch_id == 1, lambda row: row.place[2:] == (1, 7))
    else:
        world.delete(lambda row: row.batch_id == 1 if how == "a micro-batch" else row.place[2:] == (1, 7))
    assert world.truth.lost
    right(world, later(world))
    ran(1, world)
    right(world, later(world))


def test_a_row_of_a_table_that_was_filled_before_recon_is_replaced_and_the_full_audit_comes_after_another() -> None:
    """Nobody accepted anything. Without the audit in between, --full says GAP."""
    world = World()
    for _ in range(3):
        world.produce(3)
        world.micro_batch(hook=False)
    ran(2, world)
    assert later(world).answer == "complete"
    world.tick(days=2)
    ran(2, world)
    assert later(world).answer == "complete"
    world.tick(days=2)
    ran(1, world)
    world.delete(lambda row: row.place[2:] == (0, 10))
    world.append_as_stranger([("elsewhere", "id-e", 0, 0)])
    ran(1, world)
    world.clean_log()
    assert later(world).answer == "could not be proved"
    world.tick(days=2)
    ran(1, world)
    assert world.truth.lost == {(TOPIC, "id-1", 0, 10)}
    right(world, audit(world, full=True))


@pytest.mark.parametrize("fault", ["committed again", "a foreign checkpoint", "OPTIMIZE that loses a row"])
def test_a_fault_in_a_table_made_anew_whose_versions_the_former_one_had(fault: str) -> None:
    """The log is whole; --full finds each."""
    world = ran(8)
    assert later(world).answer == "complete"
    world.tick(days=3)
    world.drop_table()
    ran(2, world)
    assert {"MUTATED", "GAP"} <= later(world).codes
    accept(world)
    world.forgive()
    assert later(world).answer == "complete"
    if fault == "committed again":
        world.commit_again(1)
    elif fault == "a foreign checkpoint":
        of: dict[str, Any] = {"epoch": 50, "positions": {}, "planned": [], "read_of": {}, "begins": {}}
        with world.running(replace(world.query, query_id="q-80", **of)):
            world.micro_batch(entry=False)
    else:
        world.compact_and_lose(next(row for row in world.rows if row.place[2:] == (0, 41)))
    assert not world.truth.whole
    right(world, later(world))
    ran(1, world)
    right(world, later(world))


@pytest.mark.parametrize("lost", [True, False])
@pytest.mark.parametrize("full", [True, False])
def test_the_log_of_a_table_made_anew_is_cleaned_up(lost: bool, full: bool) -> None:
    """Versions of the table that was there before are not those of the rows that are counted."""
    world = ran(8)
    assert later(world).answer == "complete"
    world.tick(days=3)
    world.drop_table()
    ran(4, world)
    assert {"MUTATED", "GAP"} <= later(world).codes
    accept(world)
    world.forgive()
    assert later(world).answer == "complete"
    if lost:
        world.delete(lambda row: row.place[2:] == (0, 41))
    ran(1, world)
    world.clean_log()
    judgement = audit(world, full=True) if full else later(world)
    assert (judgement.answer == "complete") is not lost, refuting(judgement)


def commits_twice(world: World) -> None:
    world.commit_again(max(world.commits))


def foreign_checkpoint(world: World) -> None:
    of: dict[str, Any] = {"epoch": 50, "positions": {}, "planned": [], "read_of": {}, "begins": {}}
    with world.running(replace(world.query, query_id="q-80", **of)):
        world.micro_batch(entry=False)


def optimize_loses(world: World) -> None:
    world.compact_and_lose(world.rows[-1])


def delete(world: World) -> None:
    gone = world.rows[0]
    world.delete(lambda row: row is gone)


FAULTS = [commits_twice, foreign_checkpoint, optimize_loses, delete]


def found(world: World, fault: Callable[[World], None]) -> None:
    """What is open is accepted; then the fault happens, and audits find it."""
    accept(world)
    world.forgive()
    assert later(world).answer == "complete" or refuting(audit(world))
    accept(world)
    world.forgive()
    fault(world)
    assert not world.truth.whole
    right(world, later(world))
    ran(1, world)
    right(world, later(world))


@pytest.mark.parametrize("fault", FAULTS[:3])
def test_a_fault_in_a_table_made_anew_where_the_last_entry_of_the_former_one_was_restored(
    fault: Callable[[World], None],
) -> None:
    world = ran(8)
    world.produce(3)
    world.crash("entry")
    world.restart()
    assert later(world).answer == "complete"
    world.tick(days=3)
    world.drop_table()
    ran(2, world)
    assert "MUTATED" in later(world).codes
    found(world, fault)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_a_table_that_was_put_back_from_a_copy(fault: Callable[[World], None]) -> None:
    """The copy ends at version 2; versions 3 to 7 are of micro-batches that it lacks, and given out again."""
    world = ran(3)
    copy = list(world.rows), dict(world.commits), dict(world.written), dict(world.snapshots)
    ran(5, world)
    assert later(world).answer == "complete"
    world.tick(days=3)
    world.rows, world.commits, world.written, world.snapshots = copy
    ran(2, world)
    assert {"MUTATED", "GAP"} <= later(world).codes
    found(world, fault)


def test_a_table_made_anew_that_was_accepted_where_an_entry_was_restored_is_not_found_again() -> None:
    world = ran(8)
    world.produce(3)
    world.crash("entry")
    world.restart()
    audit(world)
    world.drop_table()
    ran(2, world)
    assert "MUTATED" in audit(world).codes
    for _ in range(3):
        accept(world)
        ran(2, world)
        world.clean_log()
        judgement = audit(world)
    assert judgement.answer == "complete", refuting(judgement)


# -- repairs that end nothing ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["sink", "reader"])
def test_doubled_rows_that_a_repair_removed_are_no_longer_doubled(by: Literal["sink", "reader"]) -> None:
    world = ran(2)
    world.produce(5)
    world.micro_batch(double=(1,), by=by)
    assert audit(world).codes == {"DUPLICATE"}
    repair(world)
    assert world.truth.whole
    judgement = audit(world)
    assert judgement.answer == "complete", refuting(judgement)


@pytest.mark.parametrize("restored", [True, False])
def test_doubled_rows_beside_filtered_ones_that_a_repair_removed(restored: bool) -> None:
    world = World()
    world.query.filters = lambda offset: offset % 3 == 0
    ran(2, world)
    audit(world)
    world.produce(6)
    if restored:
        world.crash("entry", double=(1,))
        world.restart()
    else:
        world.micro_batch(double=(1,), by="reader")
    ran(1, world)
    assert "DUPLICATE" in later(world).codes
    repair(world)
    assert world.truth.whole
    for judgement in (audit(world), later(world), audit(world, full=True)):
        assert "DUPLICATE" not in judgement.codes, refuting(judgement)


def test_a_gap_of_filtered_offsets_that_a_repair_read_again_and_the_transform_dropped_again() -> None:
    """The transform doubles one row and drops four; nothing is lost, and the audit says "1 missing"."""
    world = World()
    world.query.filters = lambda offset: offset % 3 == 0
    ran(2, world)
    audit(world)
    world.produce(6)
    world.micro_batch(double=(1,), by="transform")
    ran(1, world)
    assert not world.truth.lost and "GAP" in later(world).codes
    assert {planned.start_offset for planned in repair(world).of("read")} == {12, 15}
    assert world.truth.whole
    for judgement in (audit(world), later(world), audit(world, full=True)):
        assert judgement.answer == "complete", refuting(judgement)


# -- alarms though nothing happened ------------------------------------------------------------------------------------


@pytest.mark.parametrize("days", [0, 3])
def test_a_retried_stage_that_was_counted_twice_when_the_log_is_cleaned_up(days: int) -> None:
    """Case 37: METRIC_UNRELIABLE and "complete" while the log is there; MUTATED, GAP and DUPLICATE once it is not."""
    world = ran(2)
    world.produce(5)
    world.micro_batch(inflated=2)
    ran(1, world)
    assert later(world).answer == "complete"
    world.tick(days=days)
    ran(1, world)
    world.clean_log()
    assert world.truth.whole
    judgement = audit(world)
    assert judgement.answer == "complete", refuting(judgement)


# -- what was accepted comes back --------------------------------------------------------------------------------------


def test_a_restore_that_was_accepted_does_not_come_back_when_the_log_is_cleaned_up() -> None:
    """As it does not of a DELETE: test_what_was_accepted_does_not_come_back_when_the_log_is_cleaned_up."""
    world = ran(3)
    world.restore(1)
    ran(1, world)
    assert later(world).answer == "not complete"
    accept(world)
    assert later(world).answer == "complete"
    world.clean_log()
    judgement = later(world)
    assert judgement.answer == "complete", refuting(judgement)


def test_offsets_that_were_read_twice_and_accepted_are_not_found_again_by_the_next_audit() -> None:
    world = ran(1)
    audit(world)
    world.tick(days=3)
    world.new_checkpoint({(TOPIC, p): 2 for p in range(2)})
    world.micro_batch()
    assert later(world).answer == "not complete"
    accept(world)
    judgement = later(world)
    assert judgement.answer == "complete", refuting(judgement)


@wrong("--full finds the same rows as 'in the rows of 2 micro-batches'")
def test_rows_of_another_pipeline_that_were_accepted_are_not_found_again_by_a_full_audit() -> None:
    world = ran(2)
    later(world)
    world.tick(days=3)
    ran(1, world)
    later(world)
    with world.running(Query(pipeline="orders_2", query_id="q-90", positions={(TOPIC, p): 10 for p in range(2)})):
        world.micro_batch()
    assert later(world).answer == "not complete"
    accept(world)
    assert later(world).answer == "complete"
    judgement = audit(world, full=True)
    assert judgement.answer == "complete", refuting(judgement)


def test_a_doubled_row_that_was_accepted_when_a_new_epoch_has_a_micro_batch_of_the_same_number() -> None:
    world = ran(2)
    world.append_again(lambda row: row.place[2:] == (0, 7))
    world.new_checkpoint(dict(world.query.positions))
    ran(1, world)
    assert later(world).answer == "not complete"
    accept(world)
    assert later(world).answer == "complete"
    ran(1, world)
    judgement = later(world)
    assert judgement.answer == "complete", refuting(judgement)


def test_findings_that_were_not_listed_are_listed_by_the_next_audit() -> None:
    world = ran(2)
    for _ in range(505):
        world.produce(2)
        world.micro_batch(skip=1)
    said = [f.message for f in told(later(world), Code.GAP)]
    assert any(message.startswith("11 more findings are not listed: 11 GAP") for message in said)
    accept(world)
    assert len(refuting(later(world))) == 11
    accept(world)
    assert later(world).answer == "complete"


def test_a_table_made_anew_that_was_accepted_is_not_found_again_once_something_is_written_to_it() -> None:
    world = ran(3)
    assert later(world).answer == "complete"
    world.tick(days=2)
    ran(1, world)
    world.drop_table()
    assert "MUTATED" in later(world).codes
    accept(world)
    assert later(world).answer == "complete"
    ran(1, world)
    judgement = later(world)
    assert judgement.answer == "complete", refuting(judgement)


@wrong("the same offsets of the same topic id, by kafka_end_offsets first and by offset_continuity then")
def test_a_gap_of_a_topic_made_anew_that_was_accepted_is_not_found_again_once_it_is_read() -> None:
    world = ran(2)
    world.recreate(refill=40)
    assert later(world).answer == "not complete"
    accept(world)
    assert later(world).answer == "complete"
    ran(1, world)
    judgement = later(world)
    assert judgement.answer == "complete", refuting(judgement)


# -- RESTOREs, and repairs of doubled rows beside other offsets --------------------------------------------------------


def test_a_restore_that_was_accepted_is_not_found_again_when_the_next_audit_begins_later() -> None:
    world = ran(4)
    assert later(world).answer == "complete"
    world.tick(days=2)
    ran(2, world)
    world.restore(0)
    assert "MUTATED" in later(world).codes
    accept(world)
    judgement = later(world)
    assert judgement.answer == "complete", refuting(judgement)


@wrong("rows that a RESTORE undid are counted by delta_history's spans, which lack commits that were cleaned up before")
def test_a_restore_that_was_accepted_is_not_found_again_where_the_log_was_cleaned_up_before_the_audit() -> None:
    world = ran(4)
    assert audit(world).answer == "complete"
    ran(2, world)
    world.restore(0)
    world.clean_log(2)
    assert "MUTATED" in audit(world).codes
    accept(world)
    assert audit(world).answer == "complete"
    ran(1, world)
    world.clean_log()
    judgement = audit(world)
    assert judgement.answer == "complete", refuting(judgement)


@wrong("the row that the reader doubled is still taken for a record of one of the offsets without a row")
def test_doubled_rows_beside_a_transaction_marker_that_a_repair_removed() -> None:
    world = ran(2)
    audit(world)
    world.produce(2, transaction="committed")
    world.produce(5)
    world.micro_batch(double=(1,), by="reader")
    assert "DUPLICATE" in audit(world).codes
    repair(world)
    assert world.truth.whole
    judgement = audit(world)
    assert judgement.answer == "complete", refuting(judgement)


@wrong("doubled rows that a repair removed: aborted records that Kafka has expired since are LOSS_RETENTION")
def test_aborted_records_expire_between_the_audit_and_the_repair_of_doubled_rows() -> None:
    """The first audit finds the doubled rows and explains the offsets without a row."""
    world = ran(2)
    assert later(world).answer == "complete"
    world.produce(2, transaction="aborted")
    world.produce(5)
    world.micro_batch(double=(1,))
    assert audit(world).codes == {"DUPLICATE"}
    world.expire(15)
    audit(world)
    repair(world)
    audit(world)
    ran(1, world)
    assert world.truth.whole
    judgement = later(world)
    assert "LOSS_RETENTION" not in judgement.codes, refuting(judgement)


@pytest.mark.parametrize("days", [0, 2])
def test_a_row_is_replaced_in_a_filtered_micro_batch_of_which_a_repair_read_dropped_offsets_again(days: int) -> None:
    """Nothing was accepted, and --full looks at every row. Without the doubled row and the repair it says GAP."""
    world = World()
    world.query.filters = lambda offset: offset % 3 == 0
    ran(2, world)
    audit(world)
    world.produce(6)
    world.micro_batch(double=(1,), by="transform")
    ran(1, world)
    assert "DUPLICATE" in later(world).codes
    repair(world)
    assert audit(world).answer == "complete" and world.truth.whole
    world.tick(days=days)
    ran(1, world)
    assert later(world).answer == "complete"
    world.delete(lambda row: row.place[2:] == (1, 13))
    world.append_as_stranger([("elsewhere", "id-e", 0, 0)])
    ran(1, world)
    world.clean_log()
    later(world)
    assert world.truth.lost
    right(world, audit(world, full=True))


# -- questions, and words ----------------------------------------------------------------------------------------------


def test_a_merge_of_another_pipeline_that_two_audits_proved_is_not_in_question_again() -> None:
    world = ran(1)
    world.merge_as(elsewhere(world), lambda row: row.pipeline == PIPELINE, lambda row: False)
    for _ in range(4):
        judgement = later(world)
        assert judgement.answer == "complete", refuting(judgement)
        ran(1, world)


def test_how_many_micro_batches_lost_their_commit() -> None:
    world = ran(2)
    world.produce(5)
    world.crash("entry")
    world.restart()
    ran(2, world)
    world.clean_log()
    (found,) = told(audit(world), Code.ATTESTED_ONLY)
    assert "of 4 micro-batches" in found.message and "2, 2" not in found.message, found.message


def test_a_row_that_the_sink_lost_is_not_said_to_have_been_there() -> None:
    world = ran(2)
    world.produce(3)
    world.micro_batch(lose=(1,), double=(4,))
    (found,) = told(audit(world), Code.GAP)
    assert "had a row each when they were written" not in found.message, found.message


def test_a_query_that_makes_one_row_of_each_record_is_not_said_to_make_several() -> None:
    world = ran(2)
    for _ in range(2):
        world.produce(3)
        world.micro_batch(double=(1,))
        ran(1, world)
        assert later(world).answer == "not complete"
        if world.query.planned[-1].batch_id < 5:
            accept(world)
            later(world)
    said = [f.message for f in told(later(world), Code.INCONCLUSIVE)]
    assert not any("since the query makes several rows of one record" in message for message in said), said
