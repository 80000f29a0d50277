"""Tables that were made anew, put back from a copy or restored, and what audits say of them, one after the other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from recon.model import Code
from tests.truth.judge import WithoutSpark, audit
from tests.truth.stories import ran
from tests.truth.test_fooled import later, right
from tests.truth.test_proof_state import accept
from tests.truth.test_several_audits import told
from tests.truth.world import START, World


@pytest.mark.parametrize("fault", ["committed again", "foreign", "stranger"])
@pytest.mark.parametrize("before", [True, False])
def test_rows_are_doubled_between_the_copy_that_was_put_back_and_the_next_audit(fault: str, before: bool) -> None:
    """The log is whole. The anchor claims version 7 of the same table id, which is not in the copy."""
    world = ran(3)
    copy = list(world.rows), dict(world.commits), dict(world.written), dict(world.snapshots)
    world.tick(days=1)
    ran(5, world)
    assert later(world).answer == "complete"
    world.tick(days=1)
    ran(2, world)
    assert later(world).answer == "complete"
    world.tick(days=1)
    world.rows, world.commits, world.written, world.snapshots = copy
    ran(0 if before else 2, world)
    if fault == "committed again":
        world.commit_again(0)
    elif fault == "stranger":
        world.append_again(lambda row: row.batch_id == 0)
    else:
        of: dict[str, Any] = {"epoch": 50, "positions": {}, "planned": [], "read_of": {}, "begins": {}}
        with world.running(replace(world.query, query_id="q-80", **of)):
            world.micro_batch(entry=False, most=5)
    ran(2 if before else 0, world)
    first = later(world)
    assert world.truth.doubled
    said = told(first, Code.DUPLICATE, Code.LEDGER_MISSING, Code.OVERLAP, Code.TAMPERED)
    accept(world)
    ran(1, world)
    assert said or later(world).answer != "complete"


def test_the_offsets_of_a_table_made_anew_are_named_by_an_audit_of_the_whole_ledger() -> None:
    world = ran(3)
    assert later(world).answer == "complete"
    world.tick(days=2)
    ran(2, world)
    assert later(world).answer == "complete"
    world.tick(days=2)
    world.drop_table()
    ran(2, world)
    later(world)
    for judgement in (audit(world, from_=START.replace(year=2025)), audit(world, full=True)):
        spans = {f.span for f in told(judgement, Code.GAP) if f.span is not None and f.partition == 0}
        assert any(span.start == 0 for span in spans)


@pytest.mark.parametrize("lost", [False, True])
def test_a_copy_of_the_table_takes_its_place(lost: bool) -> None:
    world = ran(3)
    assert later(world).answer == "complete"
    world.tick(days=1)
    world.copy_table(lambda row: lost and row.place[2:] == (0, 3))
    ran(1, world)
    first = audit(world)
    assert first.answer == "not complete" and "MUTATED" in first.codes
    gaps = {f.span for judgement in (first, later(world)) for f in told(judgement, Code.GAP)}
    assert {tuple(span) for span in gaps if span is not None} == ({(3, 4)} if lost else set())
    if not lost:
        accept(world)
        for _ in range(3):
            ran(1, world)
            assert later(world).answer == "complete"
        world.delete(lambda row: row.place[2:] == (0, 3))
        assert later(world).answer == "not complete"


def test_what_a_copy_lacks_is_no_answer_of_audits_that_read_no_rows() -> None:
    world = ran(3)
    assert later(world).answer == "complete"
    world.tick(days=1)
    world.copy_table(lambda row: row.place[2:] == (0, 3))
    for _ in range(3):
        ran(1, world)
        assert audit(world, sources_of=WithoutSpark).answer == "not complete"
    accept(world, lambda proof: [o.id for o in proof.open if o.finding.code is Code.MUTATED])
    for _ in range(2):
        ran(1, world)
        assert later(world).answer != "complete"


def test_a_replay_into_a_table_made_anew_is_one_commit() -> None:
    world = ran(3)
    world.produce(5)
    world.crash("commit")
    world.drop_table()
    ran(4, world)
    world.produce(5)
    world.crash("entry")
    first = later(world)
    assert not told(first, Code.DUPLICATE), [f.message for f in told(first, Code.DUPLICATE)]


def test_a_delete_behind_a_restore_that_was_accepted_is_not_found_again() -> None:
    world = ran(2)
    world.append_as_stranger([("elsewhere", "id-e", 0, 0)])
    world.tick(days=1)
    ran(2, world)
    later(world)
    world.tick(days=1)
    ran(1, world)
    later(world)
    world.restore(2)
    later(world)
    accept(world)
    world.delete(lambda row: row.place[2:] == (1, 7))
    later(world)
    accept(world)
    ran(1, world)
    later(world)
    ran(1, world)
    judgement = audit(world, full=True)
    assert not any(f.message.startswith("version 7 is DELETE") for f in told(judgement, Code.MUTATED))


def made_anew_behind_a_restored_entry(count: int) -> World:
    """The last entry of the table that was there before was restored: version 8, 10 rows."""
    world = ran(8)
    world.produce(5)
    world.crash("entry")
    world.restart()
    later(world)
    world.tick(days=3)
    world.drop_table()
    ran(2, world, count)
    later(world)
    accept(world)
    world.forgive()
    assert later(world).answer == "complete"
    world.tick(days=2)
    return world


def test_versions_of_a_restored_entry_of_the_former_table_are_not_those_of_the_rows() -> None:
    world = made_anew_behind_a_restored_entry(3)
    ran(7, world, 3)
    world.clean_log()
    assert world.truth.whole
    judgement = audit(world, full=True)
    assert "MUTATED" not in judgement.codes


def test_a_table_made_anew_where_entries_have_no_table_id() -> None:
    world = World()
    enter = world.enter

    def without_id(*args: Any, **more: Any) -> Any:
        return enter(*args, **{**more, "sink_table_id": None})

    world.enter = without_id  # type: ignore[method-assign]
    ran(9, world)
    later(world)
    world.enter = enter  # type: ignore[method-assign]
    world.tick(days=3)
    world.drop_table()
    ran(2, world)
    later(world)
    accept(world)
    world.forgive()
    later(world)
    world.tick(days=2)
    ran(3, world)
    world.append_again(lambda row: row.version == 5)
    ran(1, world)
    world.clean_log()
    assert world.truth.doubled
    judgement = audit(world, full=True)
    right(world, judgement)


def test_a_table_made_anew_is_refilled_with_doubled_rows() -> None:
    world = ran(3)
    world.tick(days=1)
    assert later(world).answer == "complete"
    world.tick(days=1)
    ran(2, world)
    assert later(world).answer == "complete"
    world.tick(days=2)
    old = list(world.rows)
    world.drop_table()
    version = world.commit("WRITE", added=len(old) + 1)
    world.rows = [replace(row, version=version) for row in (*old, old[0])]
    ran(2, world)
    assert {f.span for f in told(later(world), Code.DUPLICATE)} == {(0, 1)}


def test_rows_older_than_the_slice_that_a_restore_undid_are_told() -> None:
    world = ran(2)
    world.tick(days=1)
    ran(2, world)
    assert later(world).answer == "complete"
    world.tick(days=1)
    ran(1, world)
    assert later(world).answer == "complete"
    world.restore(1)
    first = later(world)
    gaps = {(f.partition, at) for f in told(first, Code.GAP) if f.span is not None for at in range(*f.span)}
    counted = any(f.span is None for f in told(first, Code.GAP))
    assert counted or {place[2:] for place in world.truth.lost} <= gaps


def test_a_target_that_was_moved_to_a_table_which_others_wrote_before() -> None:
    world = ran(6)
    assert later(world).answer == "complete"
    world.tick(days=2)
    ran(1, world)
    assert later(world).answer == "complete"
    world.tick(days=2)
    world.remove_table()
    for _ in range(9):
        world.append_as_stranger([("elsewhere", "id-e", 0, 0)] * 2)
    other = world.rows[0]
    world.delete(lambda row: row is other)
    ran(2, world)
    judgement = later(world)
    assert not any(f.message.startswith("version 9 is DELETE") for f in told(judgement, Code.MUTATED))


def test_a_table_put_back_from_a_copy_whose_lost_versions_hide_a_commit_of_others() -> None:
    """Every entry knows its table's id; --full takes the stranger's version 6 for the commit of a lost entry."""
    world = ran(3)
    copy = list(world.rows), dict(world.commits), dict(world.written), dict(world.snapshots)
    ran(6, world)
    assert later(world).answer == "complete"
    world.tick(days=3)
    world.rows, world.commits, world.written, world.snapshots = copy
    ran(2, world)
    assert {"MUTATED", "GAP"} <= later(world).codes
    accept(world)
    world.forgive()
    assert later(world).answer == "complete"
    world.tick(days=2)
    ran(1, world)
    world.append_again(lambda row: row.version == 5 and row.batch_id == 11)
    ran(1, world)
    world.clean_log()
    assert world.truth.doubled
    judgement = audit(world, full=True)
    right(world, judgement)
