"""What audits print is followed as it was printed, in a world that knows every record: it never makes it worse."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from recon.write.ledger.ledger import Ledger
from tests.support.advice import printed_step
from tests.truth.follow import Followed, printed
from tests.truth.histories import history, planned
from tests.truth.judge import Judgement, audit
from tests.truth.memory import MemoryStore
from tests.truth.stories import STORIES, next_day, ran
from tests.truth.world import TOPIC, Log, Row, Topic, World

Ends = Mapping[tuple[str, int], int]


def messages(judgement: Judgement) -> list[str]:
    """All sentences of an audit that a report shows."""
    return [finding.message for result in judgement.results for finding in result.findings]


def said(world: World) -> Followed:
    """An audit of the world, whose steps are to be followed."""
    return Followed(world, audit(world))


def whole(followed: Followed) -> None:
    """Nothing is lost or doubled, and the audits of this day and the next say "complete"."""
    world = followed.world
    assert world.truth.whole, world.truth
    for command in ("recon audit", "recon audit", "recon audit --full"):
        followed.run(command)
        assert followed.last.answer == "complete", followed.last.because
        next_day(world)


def runs(followed: Followed, command: str) -> None:
    """Runs every printed command that begins so."""
    chosen = [printed_command for printed_command in printed(followed.last) if printed_command.startswith(command)]
    assert chosen, (command, printed(followed.last))
    for one in chosen:
        followed.run(one)


def accepts_all(followed: Followed) -> None:
    """Runs every printed `recon accept`, and audits."""
    runs(followed, "recon accept")
    followed.run("recon audit")


def partition_ends(text: str) -> Ends:
    """End offsets as messages print them: 25 for orders-0 and 25 for orders-1."""
    found = re.findall(r"(\d+) for (\S+?)-(\d+)\b", text)
    assert found, text
    return {(topic, int(partition)): int(end) for end, topic, partition in found}


# -- the checkpoint ----------------------------------------------------------------------------------------------------


@pytest.mark.advice("and put the end offsets back into …/offsets/…")
def test_end_offsets_of_an_edited_plan_are_put_back() -> None:
    world = ran(4)
    world.edit_plan(-2)
    followed = said(world)
    assert "STALE_CHECKPOINT" in followed.last.codes
    step = printed_step(messages(followed.last), "and put the end offsets back into …/offsets/…")
    assert int(step[2]) == world.query.planned[-1].batch_id
    world.put_ends_back(partition_ends(step.string[step.end() :]))
    whole(followed)


@pytest.mark.advice("Put the newest checkpoint back")
def test_the_newest_checkpoint_is_put_back() -> None:
    world = ran(5)
    newest = list(world.query.planned)
    world.set_back(2)
    followed = said(world)
    printed_step(messages(followed.last), "Put the newest checkpoint back")
    world.query.planned = newest
    whole(followed)


@pytest.mark.advice("or start a new one with the offsets that `…` prints")
def test_a_new_checkpoint_begins_where_recon_offsets_says() -> None:
    world = ran(5)
    world.set_back(2)
    followed = said(world)
    step = printed_step(messages(followed.last), "or start a new one with the offsets that `…` prints")
    followed.starts_fresh(step[1])
    whole(followed)


@pytest.mark.advice("start it with the offsets that `…` prints")
def test_a_new_checkpoint_that_would_read_again_begins_anew() -> None:
    world = ran(3)
    world.new_checkpoint()
    world.produce()
    world.crash("write")
    followed = said(world)
    step = printed_step(messages(followed.last), "start it with the offsets that `…` prints")
    followed.starts_fresh(step[1])
    ran(1, world)
    followed.run("recon audit")
    accepts_all(followed)  # nothing was read again: the runbook says beforehand that this is accepted
    whole(followed)


def lacks_a_partition(world: World) -> None:
    newest = world.query.planned[-1]
    world.query.planned[-1] = replace(newest, ranges=newest.ranges[:1])


@pytest.mark.advice("put it back from a copy")
def test_a_plan_that_lacks_a_partition_is_put_back() -> None:
    world = ran(4)
    copy = list(world.query.planned)
    lacks_a_partition(world)
    followed = said(world)
    assert followed.last.answer != "complete"
    printed_step(messages(followed.last), "put it back from a copy")
    world.query.planned = copy
    runs(followed, "recon audit")
    whole(followed)


@pytest.mark.advice("restore the file from a copy")
def test_a_file_of_the_checkpoint_is_restored() -> None:
    world = ran(5)
    copy = list(world.query.planned)
    world.remove_plan(2)
    followed = said(world)
    assert followed.last.answer != "complete"
    printed_step(messages(followed.last), "restore the file from a copy")
    world.query.planned, world.flaws = copy, []
    runs(followed, "recon audit")
    whole(followed)


@pytest.mark.advice("else accept this")
def test_a_plan_that_lacks_a_partition_is_accepted() -> None:
    """Where the query went on since, nothing needs the file any more."""
    world = ran(4)
    lacks_a_partition(world)
    ran(1, world)
    followed = said(world)
    printed_step(messages(followed.last), "else accept this")
    accepts_all(followed)
    whole(followed)


def unread_partition(world: World) -> None:
    """It was added, and no micro-batch ran since."""
    world.add_partition()
    world.produce(4)


def dropped_partition(world: World) -> None:
    world.query.left_out.add((TOPIC, 1))
    ran(2, world)


@pytest.mark.parametrize("before", [unread_partition, dropped_partition])
def test_recon_offsets_names_every_partition(before: Callable[[World], None]) -> None:
    """Spark refuses startingOffsets that leave a partition out."""
    world = ran(3)
    before(world)
    followed = said(world)
    followed.starts_fresh("recon offsets --pipeline orders")
    ran(1, world)
    whole(followed)


# -- topics ------------------------------------------------------------------------------------------------------------


@pytest.mark.advice("and start it on a fresh checkpoint", "stop the query")
@pytest.mark.parametrize("refill", [0, 4, 40])
def test_a_topic_made_anew_is_read_on_a_fresh_checkpoint(refill: int) -> None:
    world = ran(3)
    world.recreate(refill=refill)
    followed = said(world)
    printed_step(messages(followed.last), "stop the query")
    printed_step(messages(followed.last), "and start it on a fresh checkpoint")
    offsets = [command for command in printed(followed.last) if command.startswith("recon offsets")]
    was = world.truth
    followed.starts_fresh(offsets[0])
    ran(2, world)
    assert not world.truth.doubled and world.truth.lost <= was.lost, (was, world.truth)
    followed.run("recon audit")
    accepts_all(followed)
    whole(followed)


@pytest.mark.advice("and start it on a fresh checkpoint by timestamp")
@pytest.mark.parametrize("copied", [False, True])
def test_a_topic_on_another_cluster_is_read_by_timestamp(copied: bool) -> None:
    """Offsets of copies are others than those of the records that were read."""
    world = ran(3)
    audit(world)
    to = Topic(TOPIC, "id-b", [Log(), Log()], cluster_id="B")
    world.move(to)
    if copied:
        world.produce(15)  # what was read, mirrored
    followed = said(world)
    printed_step(messages(followed.last), "and start it on a fresh checkpoint by timestamp")
    with pytest.raises(Exception, match="startingOffsetsByTimestamp"):
        followed.offsets("recon offsets --pipeline orders")
    # Behind the copies of what was read: their timestamps are those of the records.
    world.new_checkpoint({(TOPIC, p): log.end for p, log in enumerate(to.logs)})
    world.expected = {place for place in world.expected if place[1] != "id-b"}
    ran(2, world)
    followed.run("recon audit")
    accepts_all(followed)
    whole(followed)


@pytest.mark.advice("or take it out", "create it, correct its name")
@pytest.mark.parametrize("step", ["take it out", "create it", "accept it"])
def test_a_topic_that_is_not_there(step: str) -> None:
    """What its first record creates is read from its beginning, whether it was accepted before or not."""
    world = ran(3)
    world.also_named = ("returns",)
    followed = said(world)
    assert followed.last.answer == "could not be proved"
    printed_step(messages(followed.last), "or take it out")
    printed_step(messages(followed.last), "create it, correct its name")
    if step == "accept it":
        accepts_all(followed)
        whole(followed)
    world.also_named = ()
    if step != "take it out":
        world.topics["returns"] = Topic("returns", "id-r", [Log()])
        world.query.topics = (TOPIC, "returns")
        world.produce(4, topic="returns")
        world.micro_batch()
    whole(followed)


@pytest.mark.advice("or name the topic again in recon.yml")
def test_a_topic_that_left_is_named_again() -> None:
    world = World()
    world.topics["returns"] = Topic("returns", "id-r", [Log()])
    world.query.topics = (TOPIC, "returns")
    world.produce(10, topic="returns")
    ran(2, world)
    audit(world)
    world.produce(4, topic="returns")
    audit(world)
    world.query.topics = (TOPIC,)
    expected = set(world.expected)
    world.expected = {place for place in expected if place[0] == TOPIC}
    ran(2, world)
    followed = said(world)
    printed_step(messages(followed.last), "or name the topic again in recon.yml")
    world.query.topics, world.expected = (TOPIC, "returns"), world.expected | expected
    ran(1, world)
    followed.run("recon audit")
    whole(followed)


# -- rows --------------------------------------------------------------------------------------------------------------


def skipped(world: World) -> None:
    world.produce()
    world.micro_batch(skip=4)


def swallowed(world: World) -> None:
    world.produce()
    world.micro_batch(swallow=True)


def lost(world: World) -> None:
    world.produce()
    world.micro_batch(lose=(1, 2, 7))


@pytest.mark.advice("read exactly this range once more", "`recon repair plan`")
@pytest.mark.parametrize("fault", [skipped, swallowed, lost])
def test_a_range_is_read_once_more(fault: Callable[[World], None]) -> None:
    world = ran(3)
    fault(world)
    ran(1, world)
    followed = said(world)
    printed_step(messages(followed.last), "read exactly this range once more")
    printed_step(messages(followed.last), "`recon repair plan`")
    followed.run("recon repair plan --pipeline orders")
    whole(followed)


@pytest.mark.advice("or `recon ledger rebuild`, restores it")
def test_a_missing_entry_is_restored() -> None:
    world = ran(3)
    world.produce()
    world.micro_batch(entry=False)
    world.tick(hours=2)
    followed = said(world)
    printed_step(messages(followed.last), "or `recon ledger rebuild`, restores it")
    followed.run("recon ledger rebuild")
    whole(followed)


@pytest.mark.advice("restore them from a copy")
def test_files_are_restored_from_a_copy() -> None:
    world = ran(4)
    rows = list(world.rows)
    world.delete(lambda row: row.version == 2, logged=False)
    followed = said(world)
    printed_step(messages(followed.last), "restore them from a copy")
    world.rows, world.lost_files = rows, []
    followed.run("recon audit")
    assert "REPAIRED" in followed.last.codes
    accepts_all(followed)  # that somebody removed files: the runbook says beforehand that this is accepted
    whole(followed)


def later_ones(world: World) -> Callable[[Row], bool]:
    """All rows but the first of each record."""
    first: dict[tuple[object, ...], Row] = {}
    for row in world.rows:
        first.setdefault(row.place, row)
    return lambda row: first[row.place] is not row


def read_twice(world: World) -> None:
    world.new_checkpoint({(TOPIC, p): 5 for p in range(2)})
    ran(1, world)


def inserted(world: World) -> None:
    world.append_again(lambda row: row.batch_id == 1)


def committed_twice(world: World) -> None:
    world.commit_again(1)


DOUBLED = {
    "remove those of the later ones": read_twice,
    "remove all but one": inserted,
    "and remove what is there twice": committed_twice,
}


@pytest.mark.advice("remove those of the later ones", "remove all but one", "and remove what is there twice")
@pytest.mark.parametrize("by_hand", [False, True])
def test_doubled_rows_are_removed(by_hand: bool) -> None:
    """A DELETE by hand is told as such, and accepted; a repair, which is printed beside, needs no acceptance."""
    for step, fault in DOUBLED.items():
        world = ran(3)
        fault(world)
        ran(1, world)
        followed = said(world)
        printed_step(messages(followed.last), step)
        if by_hand:
            world.delete(later_ones(world))
        else:
            runs(followed, "recon repair plan")
        followed.run("recon audit")
        assert world.truth.whole and "REPAIRED" in followed.last.codes, step
        assert by_hand == ("MUTATED" in followed.last.codes), step
        if followed.last.answer != "complete":
            accepts_all(followed)
        whole(followed)


@pytest.mark.advice("set kafka.isolation.level to read_committed", "and remove the rows")
def test_rows_of_aborted_transactions_are_removed() -> None:
    """The runbook says beforehand that the DELETE is told as MUTATED, and is accepted together with it."""
    world = ran(2)
    world.query.isolation = "read_uncommitted"
    world.produce(4, transaction="aborted")
    world.micro_batch()
    followed = said(world)
    for step in ("set kafka.isolation.level to read_committed", "and remove the rows"):
        printed_step(messages(followed.last), step)
    world.query.isolation = "read_committed"
    world.delete(lambda row: row.place in world.wrong)
    followed.run("recon audit")
    assert world.truth.whole
    accepts_all(followed)
    whole(followed)


# -- whatever happened -------------------------------------------------------------------------------------------------

HISTORIES = int(os.environ.get("RECON_TRUTH_HISTORIES", "2000")) // 20


def follows_all(followed: Followed) -> list[str]:
    """Runs all that is printed until nothing is printed; returns the commands that are printed all the same.

    Repairs come first, and what is left is accepted. Nothing is lost or doubled by any of it.
    """
    world, since = followed.world, followed.last.first_batch_id
    was = world.truth_since(since)
    for _ in range(3):
        for command in (one for one in printed(followed.last) if not one.startswith("recon accept")):
            followed.run(command)
        followed.run("recon audit")
        now = world.truth_since(since)
        assert now.lost <= was.lost and now.doubled <= was.doubled, followed.commands
        for command in (one for one in printed(followed.last) if one.startswith("recon accept")):
            followed.run(command)
        world.tick(hours=1)
        followed.run("recon audit")
        if not printed(followed.last):
            break
    # A micro-batch that waits to be run again, or a dropped partition, is the query's: no command of recon's helps.
    # Of a micro-batch that was committed again and repaired, audits say that it lacks its entry, which it has.
    looks = ("recon explain", "recon offsets", "recon ledger rebuild")
    return [command for command in printed(followed.last) if not command.startswith(looks)]


@pytest.mark.parametrize("first", range(0, HISTORIES, 50))
def test_what_audits_of_random_histories_print_is_followed(first: int) -> None:
    for seed in range(first, first + 50):
        acts, world, judgement = history(seed)
        followed = Followed(world, judgement)
        left = follows_all(followed)
        assert not left, f"seed {seed}: {', '.join(acts)}: {followed.commands}: {left}"


PRINTED_BY_STORIES = {
    "57-loss_and_open_question_in_one_check_of_which_the_loss_is_accepted": "or decide with `recon accept …`",
    "51-ledger_put_back_from_an_older_copy": "or run `recon ledger rebuild`",
    "70-topic_leaves_with_records_that_wait_which_somebody_accepts": "accept it where they are not needed",
    "44-another_pipelines_merge_removes_rows_of_an_earlier_period": "`recon audit --full` looks at them",
    "50-commit_without_entry_then_restore_over_it": "read these ranges once more",
    "18-topic_read_on_another_cluster": "and accept this when the sink has each record once",
}


@pytest.mark.advice(
    "or decide with `recon accept …`",
    "or run `recon ledger rebuild`",
    "accept it where they are not needed",
    "`recon audit --full` looks at them",
    "read these ranges once more",
    "and accept this when the sink has each record once",
)
def test_what_stories_print_is_followed() -> None:
    for name, step in PRINTED_BY_STORIES.items():
        world, judgement = STORIES[name].story()
        printed_step(messages(judgement), step)
        followed = Followed(world, judgement)
        assert follows_all(followed) == [], name
        assert followed.last.answer == "complete", (name, followed.last.because)


@pytest.mark.advice(
    "then accept it",
    "then accept this",
    "`recon audit --full` tells which records have none",
    "`recon ledger rebuild` restores what the sink's own record still holds",
)
def test_steps_that_random_histories_print_are_followed() -> None:
    """Of each step the first history that prints it; a step that none of these prints is missed by its mark.

    Records that an audit with `--full` would tell are what two calls of the hook leave.
    """
    left = {
        "then accept it",
        "then accept this",
        "`recon audit --full` tells which records have none",
        "`recon ledger rebuild` restores what the sink's own record still holds",
    }
    for seed in (
        seed for seed in range(5_000) if seed < 400 or "calls_two_hooks" in {s.name for s in planned(seed).steps}
    ):
        acts, world, judgement = history(seed)
        told = messages(judgement)
        if here := {step for step in left if any(step in message for message in told)}:
            for step in here:
                printed_step(told, step)
            followed = Followed(world, judgement)
            assert follows_all(followed) == [], (seed, acts)
            left -= here
        if not left:
            break


@pytest.mark.advice("restore the ledger from a copy")
def test_a_ledger_is_restored_from_a_copy() -> None:
    world = ran(5)
    store = world.ledger.store
    assert isinstance(store, MemoryStore)
    copy = list(store.parts)
    store.put([*copy[:2], *copy[4:]], "DELETE")
    world.ledger = Ledger(store, world.ledger.results, world.ledger.proofs.store)
    world.tick(hours=2)
    followed = said(world)
    assert "TAMPERED" in followed.last.codes
    printed_step(messages(followed.last), "restore the ledger from a copy")
    store.put(copy, "RESTORE")
    world.ledger = Ledger(store, world.ledger.results, world.ledger.proofs.store)
    followed.run("recon audit")
    accepts_all(followed)
    whole(followed)
