"""Cases 41 to 90 of the fault catalogue, and some before them, each as a short story that ends with an audit.

Of case 90 that is the audit alone: what `recon offsets` and `recon explain` say, tests/cases asks them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Literal

from typing_extensions import override

from recon.model import (
    BatchProgress,
    CheckpointWitness,
    Code,
    CommitRows,
    Finding,
    LedgerEntry,
    ProgressWitness,
    ReconStamp,
    RowSearch,
    RowsWitness,
    Unavailable,
)
from recon.model.offsets import OffsetSpan, Spans
from recon.model.proof import Acceptance
from recon.project import Sink
from recon.write.ledger.ledger import Ledger
from tests.truth.judge import DeclaresSeveral, Judgement, WithoutSpark, WorldSources, audit
from tests.truth.memory import MemoryStore, memory_ledger
from tests.truth.world import (
    ELSEWHERE,
    ELSEWHERES_PIPELINE,
    PIPELINE,
    RETENTION,
    SINK,
    TOPIC,
    Log,
    Query,
    Row,
    Topic,
    World,
)

Story = Callable[[], tuple[World, Judgement]]
STORIES: dict[str, CatalogueCase] = {}


@dataclass(frozen=True)
class CatalogueCase:
    """A story, and the codes that its last audit should report; those in `never` would be a false alarm.

    Attributes:
        real: where the story stands for its case on real parts: the tests that find its codes there, in a sink of
            the same kind. The catalogue of tests/cases names both.
        explained: codes that only explain, which it should report as well.
    """

    case: int
    story: Story
    codes: tuple[str, ...]
    never: frozenset[str]
    real: tuple[str, ...] = ()
    explained: tuple[str, ...] = ()


def of_case(
    case: int, *codes: str, never: Sequence[str] = (), real: Sequence[str] = (), explained: Sequence[str] = ()
) -> Callable[[Story], Story]:
    """Registers a story of a case, which should report these codes, and none of those in `never`."""

    def register(story: Story) -> Story:
        told = CatalogueCase(case, story, codes, frozenset(never), tuple(real), tuple(explained))
        STORIES[f"{case}-{story.__name__}"] = told
        return story

    return register


def ran(batches: int, world: World | None = None, count: int = 5) -> World:
    """A world whose stream wrote some micro-batches."""
    world = world or World()
    for _ in range(batches):
        world.produce(count)
        world.micro_batch()
    return world


def next_day(world: World) -> None:
    """The next day's micro-batches."""
    world.tick(days=1)
    ran(3, world)


# -- the first forty cases ---------------------------------------------------------------------------------------------


@of_case(5, real=("test_5_a_new_partition_whose_first_records_are_gone",))
def partition_added_and_read_from_its_beginning() -> tuple[World, Judgement]:
    world = ran(2)
    world.add_partition()
    ran(2, world)
    assert ("orders", 2) in world.query.positions
    return world, audit(world)


@of_case(
    29,
    "OVERLAP",
    "DUPLICATE",
    real=("test_4_an_overlap_and_the_rows_it_doubles", "test_30_a_lost_checkpoint_under_a_fixed_app_id"),
    explained=("NEW_EPOCH",),
)
def checkpoint_lost_and_the_topic_read_again_from_the_start() -> tuple[World, Judgement]:
    world = ran(3)
    world.new_checkpoint()
    world.micro_batch()
    return world, audit(world)


@of_case(
    32,
    "GAP",
    real=(
        "test_2_and_3_a_gap_that_kafka_still_holds_and_one_whose_records_are_gone",
        "test_30_a_lost_checkpoint_under_a_fixed_app_id",
    ),
    explained=("NEW_EPOCH",),
)
def new_checkpoint_begins_at_latest() -> tuple[World, Judgement]:
    world = ran(3)
    world.produce(10)
    world.new_checkpoint({(TOPIC, p): log.end for p, log in enumerate(world.topics[TOPIC].logs)})
    ran(1, world)
    judgement = audit(world)
    assert _gaps(judgement) == {(p, 15, 25) for p in range(2)}
    return world, judgement


@of_case(32, "GAP", never=("NEW_EPOCH", "SKIPPED"), real=("test_a_plan_is_edited_after_it_was_entered",))
def plan_edited_over_a_record_after_it_was_entered() -> tuple[World, Judgement]:
    world = ran(3)
    world.produce(10)
    world.edit_plan(2)
    first = audit(world)
    world.micro_batch()
    judgement = audit(world)
    assert _gaps(first) == _gaps(judgement) == {(p, 15, 17) for p in range(2)}
    return world, judgement


@of_case(34, "OVERLAP", "DUPLICATE", real=("test_4_an_overlap_and_the_rows_it_doubles",))
def two_checkpoints_into_one_sink() -> tuple[World, Judgement]:
    """The second query reads what the first one read; then both go on."""
    world = ran(2)
    other = replace(world.query, query_id="q-8", epoch=1, positions={}, planned=[], read_of={}, begins={})
    with world.running(other):
        ran(1, world, count=0)
    ran(1, world)
    return world, audit(world)


@of_case(
    37,
    "METRIC_UNRELIABLE",
    real=("test_metrics_count_as_many_rows_as_were_read_and_files_hold_fewer",),
)
def metrics_that_count_rows_twice() -> tuple[World, Judgement]:
    world = ran(2)
    version = max(world.commits)
    twice = {"numOutputRows": str(world.written[version] + 3)}
    world.commits[version] = replace(world.commits[version], operation_metrics=twice)
    judgement = audit(world)
    assert judgement.answer == "complete"
    return world, judgement


# -- what was proved is remembered as a time ------------------------------------------------------------------------


@of_case(33, "GAP")
def second_hook_of_the_sink_in_one_run() -> tuple[World, Judgement]:
    world = ran(2)
    world.produce()
    world.two_calls(lambda offset: offset % 2 == 0)
    return world, audit(world)


@of_case(33, "GAP")
def second_hook_of_the_sink_in_the_run_that_tries_a_micro_batch_again() -> tuple[World, Judgement]:
    world = ran(2)
    world.produce()
    world.two_calls(lambda offset: offset % 2 == 0, between=world.tick)
    return world, audit(world)


@of_case(33, "INCONCLUSIVE")
def second_hook_of_the_sink_whose_transform_has_the_same_name() -> tuple[World, Judgement]:
    world = ran(2)
    world.produce()
    world.two_calls(lambda offset: offset % 2 == 0, ("job:half", "job:half"))
    return world, audit(world)


@of_case(33, "INCONCLUSIVE")
def second_hook_of_the_sink_in_a_run_that_nobody_knows() -> tuple[World, Judgement]:
    world = ran(2)
    world.produce()
    world.two_calls(lambda offset: offset % 2 == 0, run_id=None)
    return world, audit(world)


@of_case(33, "GAP")
def second_hook_of_the_sink_whose_first_one_was_audited_before() -> tuple[World, Judgement]:
    world = ran(2)
    world.produce()
    world.two_calls(lambda offset: offset % 2 == 0, between=lambda: audit(world))
    return world, audit(world)


@of_case(33)
def new_run_with_another_transform() -> tuple[World, Judgement]:
    """The first micro-batch of the run is one that the run before it had written."""
    world = ran(2)
    world.query.filters = lambda offset: offset % 3 == 0
    world.produce()
    world.of_call = {"run_id": "r-1", "transform": "job:old"}
    world.crash("commit")
    world.of_call = {"run_id": "r-2", "transform": "job:new"}
    world.restart()
    return ran(1, world), audit(world)


@of_case(41, "GAP", real=("test_27_an_error_the_users_function_swallowed",))
def first_micro_batch_swallowed() -> tuple[World, Judgement]:
    world = World()
    world.produce()
    world.micro_batch(swallow=True)
    ran(3, world)
    return world, audit(world)


@of_case(41, "GAP")
def first_micro_batch_swallowed_and_its_plan_removed() -> tuple[World, Judgement]:
    world = World()
    world.produce()
    world.micro_batch(swallow=True)
    ran(4, world)
    world.purge_checkpoint(2)
    return world, audit(world)


@of_case(42, "UNWITNESSED")
def hook_added_to_a_running_stream_whose_first_plans_are_removed() -> tuple[World, Judgement]:
    world = World()
    for _ in range(3):
        world.produce()
        world.micro_batch(hook=False)
    ran(3, world)
    world.purge_checkpoint(2)
    return world, audit(world)


@of_case(42, "UNWITNESSED")
def hook_added_to_a_running_stream() -> tuple[World, Judgement]:
    world = World()
    for lose in ((), (3,)):
        world.produce()
        world.micro_batch(hook=False, lose=lose)
    ran(3, world)
    return world, audit(world)


@of_case(47, "OVERLAP", "DUPLICATE", real=("test_4_an_overlap_and_the_rows_it_doubles",))
def third_epoch_reads_what_the_second_read() -> tuple[World, Judgement]:
    world = ran(3)
    audit(world)
    for _ in range(2):
        world.tick(days=1)
        world.new_checkpoint({(TOPIC, p): 10 for p in range(2)})
        ran(2, world)
        judgement = audit(world)
    return world, judgement


@of_case(53, "GAP", real=("test_27_an_error_the_users_function_swallowed",))
def bounded_audit_of_a_day_whose_micro_batches_were_all_swallowed() -> tuple[World, Judgement]:
    world = ran(3)
    audit(world)
    world.tick(days=1)
    begin = world.now
    for _ in range(3):
        world.produce()
        world.micro_batch(swallow=True)
    world.tick(hours=1)
    end = world.now
    world.tick(days=1)
    return world, audit(world, from_=begin, to=end)


@of_case(53, "GAP")
def bounded_audit_whose_last_micro_batch_was_swallowed() -> tuple[World, Judgement]:
    world = ran(3)
    begin = world.now
    ran(2, world)
    world.produce()
    world.micro_batch(swallow=True)
    world.tick(hours=1)
    end = world.now
    world.tick(days=1)
    return world, audit(world, from_=begin, to=end)


@of_case(54, "GAP")
def gap_that_nobody_repaired_audited_on_later_days() -> tuple[World, Judgement]:
    world = ran(3)
    world.produce()
    world.micro_batch(skip=4)
    audit(world)
    for _ in range(4):
        next_day(world)
        judgement = audit(world)
    return world, judgement


@of_case(54, "GAP")
def swallowed_micro_batch_audited_on_later_days() -> tuple[World, Judgement]:
    world = ran(3)
    world.produce()
    world.micro_batch(swallow=True)
    ran(1, world)
    audit(world)
    for _ in range(4):
        next_day(world)
        judgement = audit(world)
    return world, judgement


@of_case(55, "GAP", real=("test_27_an_error_the_users_function_swallowed",))
def audit_to_a_future_time_and_then_a_loss() -> tuple[World, Judgement]:
    world = ran(3)
    audit(world, to=world.now + timedelta(days=10))
    world.tick(days=1)
    world.produce()
    world.micro_batch(lose=(2,))
    world.delete(lambda row: row.place[3] == 6)
    ran(2, world)
    world.tick(days=2)
    return world, audit(world)


@of_case(56, "GAP")
def first_audit_selects_one_check() -> tuple[World, Judgement]:
    world = ran(3)
    world.produce()
    world.micro_batch(skip=3)
    world.tick(days=3)
    audit(world, only=("ledger_integrity",))
    next_day(world)
    return world, audit(world)


@of_case(69, "GAP")
def drivers_clock_a_year_ahead_and_then_right() -> tuple[World, Judgement]:
    world = ran(3)
    audit(world)
    world.skew = timedelta(days=365)
    next_day(world)
    world.produce()
    world.micro_batch(lose=(1,), inflated=1)
    world.skew = timedelta()
    next_day(world)
    return world, audit(world)


@of_case(69, "GAP", real=("test_27_an_error_the_users_function_swallowed",))
def drivers_clock_behind() -> tuple[World, Judgement]:
    world = ran(3)
    world.tick(days=3)
    audit(world)
    world.skew = -timedelta(days=2, hours=12)
    world.produce()
    world.micro_batch(skip=4)
    world.tick(days=1)
    return world, audit(world)


@of_case(69, "GAP")
def drivers_clock_jumps_to_and_fro() -> tuple[World, Judgement]:
    world = World()
    for hours in (0, 24 * 365, -60, 0, 5):
        world.skew = timedelta(hours=hours)
        ran(1, world)
    world.skew = -timedelta(days=1)
    world.produce()
    world.micro_batch(skip=4)
    world.skew = timedelta()
    return world, audit(ran(1, world))


@of_case(69)
def drivers_clock_jumps_and_nothing_is_lost() -> tuple[World, Judgement]:
    world = ran(3)
    audit(world)
    for hours in (24 * 365, 0, -1, 5, 0):
        world.tick(hours=6)
        world.skew = timedelta(hours=hours)
        ran(1, world)
    return world, audit(world)


@of_case(70, "STALLED", real=("test_a_micro_batch_that_was_planned_and_not_finished",))
def partition_drops_out_of_the_plans() -> tuple[World, Judgement]:
    world = ran(3)
    for _ in range(3):
        world.tick(hours=2)
        world.produce()
        world.micro_batch(drop=(1,))
    return world, audit(world)


def _with_returns() -> World:
    """A world whose recon.yml names a second topic, of which Kafka has ten records."""
    world = World()
    world.topics["returns"] = Topic("returns", "id-r", [Log()])
    world.query.topics = (TOPIC, "returns")
    world.produce(10, topic="returns")
    return world


@of_case(70, never=("GAP", "OVERLAP", "LOSS", "DUPLICATE", "STALLED"))
def topic_leaves_the_query_and_comes_back() -> tuple[World, Judgement]:
    world = ran(2, _with_returns())
    audit(world)
    world.query.left_out.add(("returns", 0))
    world.produce(4, topic="returns")
    ran(2, world)
    assert "STALLED" in audit(world).codes
    world.query.left_out.discard(("returns", 0))
    ran(2, world)
    return world, audit(world)


@of_case(70, "STALLED")
def topic_that_nothing_reads() -> tuple[World, Judgement]:
    world = _with_returns()
    world.query.left_out.add(("returns", 0))
    ran(2, world)
    judgement = audit(world)
    world.expire(10)
    assert "LOSS_RETENTION" in audit(world).codes
    return world, judgement


@of_case(70, "INCONCLUSIVE", never=("STALLED", "LOSS"))
def topic_leaves_with_records_that_wait_which_somebody_accepts() -> tuple[World, Judgement]:
    world = _with_returns()
    world.micro_batch()
    world.produce(4, topic="returns")
    audit(world)
    world.query.topics = (TOPIC,)
    world.expected = {place for place in world.expected if place[0] == TOPIC}
    ran(2, world)
    judgement = audit(world)
    accepted(world, lambda finding: finding.code is Code.INCONCLUSIVE)
    for _ in range(2):
        ran(1, world)
        assert audit(world).answer == "complete"
    return world, judgement


# -- commits without an entry, and other commits of the table ---------------------------------------------------------


def _second_pipeline(world: World) -> Query:
    """Another recon pipeline that reads the same topic into the same table."""
    return Query(pipeline="orders_2", query_id="q-9", positions={})


def _written_by(world: World, other: Query, batches: int) -> None:
    mine, world.query = world.query, other
    ran(batches, world, count=0)
    world.query = mine


@of_case(43, "OVERLAP", "DUPLICATE")
def two_pipelines_append_one_topic_into_one_table() -> tuple[World, Judgement]:
    world = ran(3)
    _written_by(world, _second_pipeline(world), 1)
    return world, audit(world)


def _merge_of_another_pipeline(world: World, gone: int) -> None:
    """Another recon pipeline's MERGE takes the rows of an offset out of the table."""
    world.tick()
    stamp = next(commit.stamp for commit in world.commits.values() if commit.stamp is not None)
    version = world.commit(
        "MERGE",
        added=8,
        removed=10,
        stamp=replace(stamp, pipeline="orders_2"),
        txn={"recon:orders_2:lake": 1},
        operation_metrics={
            "numTargetRowsInserted": "0",
            "numTargetRowsUpdated": "8",
            "numTargetRowsDeleted": "2",
            "numSourceRows": "10",
        },
    )
    world.rows = [row for row in world.rows if row.place[3] != gone or row.version >= version]


@of_case(44, "MUTATED", real=("test_38_an_overwrite",))
def another_pipelines_merge_removes_our_rows() -> tuple[World, Judgement]:
    world = ran(3)
    _merge_of_another_pipeline(world, 7)
    return world, audit(world)


@of_case(44, "GAP", "MUTATED")
def another_pipelines_merge_removes_rows_that_were_judged_before() -> tuple[World, Judgement]:
    world = ran(3)
    world.tick(days=1)
    audit(world)
    _merge_of_another_pipeline(world, 2)
    ran(1, world)
    return world, audit(world)


@of_case(44, "INCONCLUSIVE")
def another_pipelines_merge_removes_rows_of_an_earlier_period() -> tuple[World, Judgement]:
    world = ran(3)
    for _ in range(2):
        audit(world)
        next_day(world)
    audit(world)
    _merge_of_another_pipeline(world, 2)
    ran(1, world)
    return world, audit(world)


@of_case(43, "OVERLAP", "DUPLICATE")
def another_pipeline_wrote_the_offsets_before_ours() -> tuple[World, Judgement]:
    world = World()
    world.produce()
    _written_by(world, _second_pipeline(world), 1)
    ran(3, world)
    return world, audit(world)


@of_case(24, "DUPLICATE", real=("test_4_an_overlap_and_the_rows_it_doubles",))
def micro_batch_of_an_earlier_period_is_committed_again() -> tuple[World, Judgement]:
    world = ran(4)
    world.tick(days=1)
    audit(world)
    world.commit_again(1)
    return world, audit(world)


@of_case(24, "DUPLICATE")
def micro_batch_of_an_earlier_epoch_is_committed_again() -> tuple[World, Judgement]:
    world = ran(2)
    world.new_checkpoint(dict(world.query.positions))
    ran(2, world)
    world.tick(days=1)
    audit(world)
    world.commit_again(1)
    next_day(world)
    return world, audit(world)


@of_case(24, "DUPLICATE")
def empty_micro_batch_is_committed_again_with_rows() -> tuple[World, Judgement]:
    world = ran(3)
    world.micro_batch()
    world.commit_again(1, batch_id=3)
    return world, audit(world)


@of_case(48, "MUTATED", "GAP", real=("test_87_the_tables_folder_is_removed_and_the_query_restarted",))
def table_dropped_and_made_anew_between_audits() -> tuple[World, Judgement]:
    world = ran(5)
    audit(world)
    world.tick(days=1)
    world.drop_table()
    ran(8, world)
    return world, audit(world)


@of_case(49, "DUPLICATE")
def insert_into_the_table_from_itself() -> tuple[World, Judgement]:
    world = ran(3)
    world.append_again(lambda row: row.batch_id == 1)
    return world, audit(world)


@of_case(50, "MUTATED", "GAP", real=("test_38_restore_takes_audited_rows_away",))
def commit_without_entry_then_restore_over_it() -> tuple[World, Judgement]:
    world = ran(2)
    world.produce()
    world.micro_batch(entry=False)
    world.restore(1)
    ran(1, world)
    return world, audit(world)


@of_case(50, "GAP")
def commit_without_entry_with_fewer_rows_than_offsets() -> tuple[World, Judgement]:
    world = ran(2)
    world.produce()
    world.micro_batch(entry=False, lose=(0, 1))
    world.tick(hours=1)
    return world, audit(world)


@of_case(50, "DUPLICATE", real=("test_4_an_overlap_and_the_rows_it_doubles",))
def commit_without_entry_of_a_foreign_checkpoint() -> tuple[World, Judgement]:
    world = ran(3)
    mine = world.query
    world.query = replace(mine, query_id="q-8", epoch=1, positions={}, planned=[])
    world.micro_batch(entry=False)
    world.query = mine
    world.tick(hours=1)
    return world, audit(world)


@of_case(51, "TAMPERED")
def ledger_put_back_from_an_older_copy() -> tuple[World, Judgement]:
    world = ran(3)
    store = world.ledger.store
    assert isinstance(store, MemoryStore)
    copy = len(store.parts)
    ran(2, world)
    store.parts, store.lengths = store.parts[:copy], dict.fromkeys(store.lengths, copy)
    store.history = store.history[:copy]
    world.ledger = Ledger(store, world.ledger.results, world.ledger.proofs.store)
    world.tick(hours=2)
    return world, audit(world)


@of_case(61, "DUPLICATE")
def two_commits_of_one_micro_batch_and_one_entry() -> tuple[World, Judgement]:
    world = ran(3)
    last = world.commits[max(world.commits)]
    world.tick()
    version = world.commit("WRITE", added=10, stamp=last.stamp, txn=last.txn)
    world.rows += [replace(row, version=version) for row in world.rows if row.version == last.version]
    return world, audit(world)


@of_case(66, "GAP", real=("test_rows_dropped_before_the_hook_are_a_gap",))
def more_findings_than_are_listed() -> tuple[World, Judgement]:
    world = ran(1, World(partitions=1))
    for _ in range(3):
        world.produce(800)
        world.micro_batch(lose=range(0, 800, 2), by="reader")
    judgement = audit(world)
    assert len(_gaps(judgement)) < 1200
    (sink,) = judgement.facts.sinks
    assert (sink.batches, sink.batches_proved, sink.batches_refuted) == (4, 1, 3)
    return world, judgement


def _renamed() -> World:
    """A pipeline whose first two micro-batches were written under another name."""
    world = World()
    world.query.pipeline = "orders_before"
    ran(2, world)
    world.query.pipeline = PIPELINE
    return ran(2, world)


@of_case(68, "UNWITNESSED", real=("test_42_the_hook_is_added_to_a_query_that_already_wrote",))
def pipeline_is_renamed() -> tuple[World, Judgement]:
    world = _renamed()
    judgement = audit(world)
    assert judgement.facts.since == "micro-batch 2"
    return world, judgement


@of_case(68, "TAMPERED")
def pipeline_is_renamed_and_the_old_chain_cut() -> tuple[World, Judgement]:
    world = _renamed()
    audit(world)
    store = world.ledger.store
    assert isinstance(store, MemoryStore)
    store.put([store.parts[0], *store.parts[2:]], "DELETE")
    world.ledger = Ledger(store, world.ledger.results, world.ledger.proofs.store)
    return world, audit(world)


@of_case(67, "TAMPERED", real=("test_51_the_ledger_is_put_back_from_an_older_copy",))
def chain_rewritten_whole_before_the_first_audit() -> tuple[World, Judgement]:
    world = ran(2)
    world.produce()
    world.micro_batch(skip=3)
    ran(1, world)
    written = world.ledger.entries(PIPELINE, SINK)
    world.ledger = memory_ledger()
    for entry in written:
        healed = tuple(s._replace(start_offset=max(s.start_offset - 3, 10)) for s in entry.offsets)
        offsets = healed if entry.batch_id == 2 else entry.offsets
        world.ledger.append(replace(entry, offsets=offsets))
    return world, audit(world)


@of_case(67, "TAMPERED", real=("test_51_the_ledger_is_put_back_from_an_older_copy",))
def end_of_the_chain_cut_off() -> tuple[World, Judgement]:
    world = ran(3)
    first = world.ledger.entries(PIPELINE, SINK)[0]
    world.ledger = memory_ledger()
    world.ledger.append(first)
    return world, audit(world)


@of_case(79, "LEDGER_MISSING", real=("test_22_a_commit_the_ledger_does_not_know_is_found_and_repaired",))
def entry_missing_and_commit_there() -> tuple[World, Judgement]:
    world = ran(2)
    world.produce()
    world.micro_batch(entry=False)
    ran(1, world)
    world.tick(hours=1)
    return world, audit(world)


@of_case(64, "STALE_CHECKPOINT")
def checkpoint_put_back_from_an_older_copy() -> tuple[World, Judgement]:
    world = ran(5)
    world.set_back(2)
    return world, audit(world)


@of_case(64, "STALE_CHECKPOINT")
def checkpoint_put_back_from_a_copy_older_than_the_last_audit() -> tuple[World, Judgement]:
    world = ran(5)
    audit(world)
    next_day(world)
    audit(world)
    world.set_back(6)
    return world, audit(world)


@of_case(64, never=("STALE_CHECKPOINT",))
def checkpoint_of_a_new_epoch_that_has_come_less_far() -> tuple[World, Judgement]:
    world = ran(5)
    world.new_checkpoint(dict(world.query.positions))
    ran(2, world)
    return world, audit(world)


@of_case(81, never=("LEDGER_MISSING",))
def stream_running_commit_there_entry_not_yet() -> tuple[World, Judgement]:
    world = ran(3)
    world.produce()
    world.micro_batch(entry=False, finish=False)
    return world, audit(world)


@of_case(81, never=("LEDGER_MISSING", "INCONCLUSIVE"))
def stream_with_a_filter_running_commit_there_entry_not_yet() -> tuple[World, Judgement]:
    world = World()
    world.query.filters = lambda offset: offset % 3 == 0
    ran(3, world)
    assert audit(world).answer == "complete"
    world.produce()
    world.micro_batch(entry=False, finish=False)
    return world, audit(world)


@of_case(81, "LEDGER_MISSING")
def commit_in_progress_at_an_audit_whose_entry_was_never_written() -> tuple[World, Judgement]:
    world = ran(3)
    world.produce()
    world.micro_batch(entry=False, finish=False)
    assert audit(world).codes == set()
    world.query.planned[-1] = replace(world.query.planned[-1], committed=True)
    ran(2, world)
    return world, audit(world)


@of_case(81, "LEDGER_MISSING")
def query_that_stopped_between_a_commit_and_its_entry() -> tuple[World, Judgement]:
    world = ran(3)
    world.crash("entry")
    assert audit(world).codes == set()
    world.tick(hours=1)
    return world, audit(world)


@of_case(81, "GAP")
def commit_in_progress_at_an_audit_that_lost_a_row() -> tuple[World, Judgement]:
    world = ran(3)
    world.crash("entry", lose=(3,))
    world.produce()
    world.crash("entry", lose=(2,))
    assert "LEDGER_MISSING" not in audit(world).codes
    world.restart()
    return world, audit(world)


@of_case(50, "GAP", "MUTATED")
def restore_over_the_commit_in_progress() -> tuple[World, Judgement]:
    world = ran(3)
    before = max(world.commits)
    world.produce()
    world.crash("entry")
    assert audit(world).codes == set()
    world.restore(before)
    return world, audit(world)


@of_case(81, "GAP", "MUTATED")
def delete_from_the_commit_in_progress() -> tuple[World, Judgement]:
    world = ran(3)
    world.produce()
    world.crash("entry")
    newest = max(world.commits)
    world.delete(lambda row: row.version == newest)
    return world, audit(world)


@of_case(82, never=("RETENTION_NEAR",))
def period_that_begins_long_before_the_table() -> tuple[World, Judgement]:
    world = ran(3)
    return world, audit(world, from_=world.now - timedelta(days=60))


@of_case(82, "RETENTION_NEAR")
def period_that_begins_long_before_a_log_that_was_cleaned_up() -> tuple[World, Judgement]:
    world = ran(3)
    world.clean_log()
    return world, audit(world, from_=world.now - timedelta(days=60))


@of_case(84, "MUTATED", "GAP")
def data_file_removed_from_the_store() -> tuple[World, Judgement]:
    world = ran(4)
    world.delete(lambda row: row.batch_id == 1, logged=False)
    return world, audit(world)


@of_case(85, "MUTATED", "GAP")
def delete_then_vacuum_and_log_cleanup() -> tuple[World, Judgement]:
    world = ran(4)
    world.delete(lambda row: row.batch_id == 1)
    ran(2, world)
    world.clean_log()
    return world, audit(world)


@of_case(84, "MUTATED", "GAP")
def data_file_of_an_earlier_period_removed_from_the_store() -> tuple[World, Judgement]:
    world = ran(4)
    audit(world)
    next_day(world)
    audit(world)
    world.delete(lambda row: row.batch_id == 1, logged=False)
    next_day(world)
    return world, audit(world)


@of_case(85, "MUTATED", "GAP")
def delete_and_log_cleanup_after_an_audit() -> tuple[World, Judgement]:
    world = ran(4)
    audit(world)
    world.tick(days=1)
    ran(2, world)
    world.delete(lambda row: row.batch_id == 1)
    ran(2, world)
    world.clean_log()
    return world, audit(world)


@of_case(85, "GAP")
def delete_and_log_cleanup_of_a_table_without_statistics() -> tuple[World, Judgement]:
    world = World()
    world.statistics = False
    ran(4, world)
    world.delete(lambda row: row.batch_id == 1)
    ran(2, world)
    world.clean_log()
    return world, audit(world)


@of_case(85, "GAP")
def delete_and_log_cleanup_of_a_table_that_others_filled_as_well() -> tuple[World, Judgement]:
    world = World()
    world.commit("WRITE", added=100)
    world.rows += [Row(0, None, 0, None, ("elsewhere", "id-e", 0, offset)) for offset in range(100)]
    ran(4, world)
    world.delete(lambda row: row.batch_id == 1)
    ran(2, world)
    world.clean_log()
    return world, audit(world)


@of_case(48, "MUTATED", "GAP")
def table_dropped_and_made_anew_before_the_first_audit() -> tuple[World, Judgement]:
    world = ran(5)
    world.drop_table()
    ran(3, world)
    return world, audit(world)


@of_case(48, "MUTATED", "GAP")
def table_made_anew_after_which_its_versions_went_further() -> tuple[World, Judgement]:
    world = ran(3)
    audit(world)
    world.tick(days=1)
    world.drop_table()
    ran(5, world)
    world.clean_log()
    return world, audit(world)


@of_case(86, "GAP", real=("test_2_and_3_a_gap_that_kafka_still_holds_and_one_whose_records_are_gone",))
def two_pipelines_fan_in_from_two_topics() -> tuple[World, Judgement]:
    world = World()
    world.topics["clicks"] = Topic("clicks", "id-c", [Log()])
    ran(3, world)
    other = Query(pipeline="orders_2", query_id="q-9", topics=("clicks",))
    world.produce(topic="clicks")
    _written_by(world, other, 1)
    world.delete(lambda row: row.place == (TOPIC, "id-1", 0, 7))
    return world, audit(world)


@of_case(86, never=("MUTATED", "GAP", "UNSTAMPED", "INCONCLUSIVE"))
def a_row_of_another_pipeline_is_deleted() -> tuple[World, Judgement]:
    world = World()
    world.topics[ELSEWHERE] = Topic(ELSEWHERE, "id-c", [Log()])
    ran(3, world)
    world.produce(topic=ELSEWHERE)
    _written_by(world, Query(pipeline=ELSEWHERES_PIPELINE, query_id="q-9", topics=(ELSEWHERE,)), 1)
    world.delete(lambda row: row.place == (ELSEWHERE, "id-c", 0, 7))
    return world, audit(world)


@of_case(87, "MUTATED", "GAP")
def tables_folder_removed_and_the_query_restarted() -> tuple[World, Judgement]:
    world = ran(4)
    audit(world)
    world.remove_table()
    ran(2, world)
    return world, audit(world)


@of_case(
    89,
    "TAMPERED",
    "GAP",
    real=(
        "test_40_a_tampered_ledger",
        "test_2_and_3_a_gap_that_kafka_still_holds_and_one_whose_records_are_gone",
    ),
)
def entry_edited_so_that_it_covers_a_gap() -> tuple[World, Judgement]:
    world = ran(2)
    world.produce()
    world.micro_batch(skip=3)
    ran(1, world)
    store = world.ledger.store
    assert isinstance(store, MemoryStore)
    rows = store.parts[2].to_pylist()
    for span in rows[0]["offsets"]:
        span["start_offset"] -= 3
    store.parts[2] = type(store.parts[2]).from_pylist(rows, schema=store.schema)
    return world, audit(world, sources_of=WithoutSpark)


# -- counts netted over a micro-batch ----------------------------------------------------------------------------------


def _reads_uncommitted(world: World) -> tuple[World, Judgement]:
    world.query.isolation = "read_uncommitted"
    ran(2, world)
    world.produce(3, transaction="aborted")
    world.micro_batch()
    return world, audit(world)


@of_case(45, "PHANTOM_ROWS")
def declared_read_committed_and_read_uncommitted() -> tuple[World, Judgement]:
    return _reads_uncommitted(World())


@of_case(45, "PHANTOM_ROWS")
def declared_read_committed_and_read_otherwise_as_nobody_knows() -> tuple[World, Judgement]:
    world = World()
    world.levels_known = False
    return _reads_uncommitted(world)


@of_case(45, "PHANTOM_ROWS")
def declared_read_committed_and_aborted_in_a_later_micro_batch() -> tuple[World, Judgement]:
    world = World()
    world.query.isolation = "read_uncommitted"
    ran(2, world)
    world.open_transaction(3)
    world.micro_batch()
    world.end_transaction("aborted")
    ran(1, world)
    return world, audit(world)


@of_case(46, "INCONCLUSIVE")
def lost_records_compacted_since() -> tuple[World, Judgement]:
    world = World()
    world.topics[TOPIC].compacts = True
    ran(2, world)
    world.produce()
    world.micro_batch(lose=(2, 3))
    for offset in (2, 3):
        world.topics[TOPIC].logs[0].compacted.add(10 + offset)
    return world, audit(world)


@of_case(52, "PHANTOM_ROWS", real=("test_11_aborted_transactions_that_the_stream_did_read",))
def transaction_open_at_the_first_audit_aborted_before_the_second() -> tuple[World, Judgement]:
    world = World(declared="read_uncommitted")
    ran(2, world)
    before = world.topics[TOPIC].logs[0].end
    world.produce(4)
    for log in world.topics[TOPIC].logs:
        log.stable = before
    world.micro_batch()
    audit(world)
    world.tick(days=1)
    for p, log in enumerate(world.topics[TOPIC].logs):
        log.stable = None
        for offset in range(before, log.end):
            log.kinds[offset] = "aborted"
            place = (TOPIC, "id-1", p, offset)
            world.expected.discard(place)
            world.wrong.add(place)
        log.kinds.append("marker")
    ran(2, world)
    return world, audit(world)


@of_case(
    57,
    "GAP",
    "INCONCLUSIVE",
    real=("test_27_an_error_the_users_function_swallowed", "test_a_topic_whose_id_was_unknown_and_that_was_made_anew"),
)
def loss_and_open_question_in_one_check() -> tuple[World, Judgement]:
    world = World()
    world.ids_known = False
    ran(3, world)
    world.ids_known = True
    world.recreate(refill=30)
    world.micro_batch()
    world.produce(5)
    world.micro_batch(swallow=True)
    ran(1, world)
    first = audit(world)
    of_check = next(result for result in first.results if result.check == "offset_continuity")
    assert {"GAP", "INCONCLUSIVE"} <= {str(f.code) for f in of_check.findings} and first.answer == "not complete"
    return world, first


@of_case(57, "INCONCLUSIVE", "ACCEPTED")
def loss_and_open_question_in_one_check_of_which_the_loss_is_accepted() -> tuple[World, Judgement]:
    world, _ = loss_and_open_question_in_one_check()
    accepted(world, lambda finding: finding.code is Code.GAP)
    return world, audit(world)


@of_case(58, "GAP")
def output_rows_count_rows_twice_and_files_hold_fewer() -> tuple[World, Judgement]:
    world = ran(2)
    world.produce()
    world.micro_batch(lose=(1, 2), inflated=2)
    return world, audit(world)


def _loses_and_doubles(by: Literal["reader", "transform", "sink"], doubled: int) -> tuple[World, Judgement]:
    """Of 20 rows the second is lost and another is there twice."""
    world = ran(2)
    world.produce()
    world.micro_batch(lose=(1,), double=(doubled,), by=by)
    return world, audit(world)


@of_case(59, "GAP", "DUPLICATE")
def loss_and_duplicate_in_one_partition() -> tuple[World, Judgement]:
    return _loses_and_doubles("reader", 2)


@of_case(59, "GAP", "DUPLICATE")
def loss_and_duplicate_across_two_partitions() -> tuple[World, Judgement]:
    return _loses_and_doubles("reader", 13)


@of_case(59, "GAP", "DUPLICATE")
def loss_and_duplicate_in_the_transform() -> tuple[World, Judgement]:
    return _loses_and_doubles("transform", 2)


@of_case(59, "GAP", "DUPLICATE")
def loss_and_duplicate_in_the_transform_of_a_topic_with_transactions() -> tuple[World, Judgement]:
    world = ran(2)
    world.produce(transaction="committed")
    world.micro_batch(lose=(1,), double=(13,), by="transform")
    return world, audit(world)


@of_case(59, "GAP", "DUPLICATE")
def loss_and_duplicate_in_a_transform_that_filters() -> tuple[World, Judgement]:
    world = World()
    world.query.filters = lambda offset: offset % 3 == 0
    ran(2, world)
    world.produce()
    world.micro_batch(lose=(1,), double=(8,), by="transform")
    return world, audit(world)


@of_case(59, "GAP", "DUPLICATE")
def loss_and_duplicate_in_the_sink() -> tuple[World, Judgement]:
    return _loses_and_doubles("sink", 13)


@of_case(60, "GAP")
def sink_loses_rows_after_the_transform() -> tuple[World, Judgement]:
    world = ran(2)
    world.produce()
    world.micro_batch(lose=(1, 5))
    return world, audit(world)


@of_case(60, "GAP")
def sink_loses_a_row_and_the_transform_filters_others() -> tuple[World, Judgement]:
    world = World()
    world.query.filters = lambda offset: offset % 3 == 0
    ran(2, world)
    world.produce()
    world.micro_batch(lose=(5,))
    return world, audit(world)


@of_case(62, "INCONCLUSIVE")
def topic_id_unknown_and_the_topic_made_anew() -> tuple[World, Judgement]:
    world = World()
    world.topics[TOPIC].topic_id = None  # type: ignore[assignment]
    ran(3, world)
    world.recreate(refill=30)
    return world, _next_then_audit(world)


def _next_then_audit(world: World) -> Judgement:
    for p in range(2):
        for offset in range(world.query.positions[TOPIC, p]):
            world.expected.add((TOPIC, world.topics[TOPIC].topic_id, p, offset))
    world.micro_batch()
    return audit(world)


@of_case(62)
def topic_id_unknown_for_a_while_and_the_same_since() -> tuple[World, Judgement]:
    world = ran(2)
    world.topics[TOPIC].topic_id = None  # type: ignore[assignment]
    ran(1, world)
    world.topics[TOPIC].topic_id = "id-1"
    for place in [place for place in world.expected if place[1] is None]:
        world.expected.discard(place)
        world.expected.add((place[0], "id-1", *place[2:]))
    world.rows = [replace(row, place=(row.place[0], "id-1", *row.place[2:])) for row in world.rows]
    ran(1, world)
    return world, audit(world)


@of_case(63)
def clean_election() -> tuple[World, Judgement]:
    world = ran(3)
    for log in world.topics[TOPIC].logs:
        log.elect()
    ran(2, world)
    return world, audit(world)


@of_case(63, "INCONCLUSIVE")
def two_elections_the_first_of_them_unclean() -> tuple[World, Judgement]:
    world = ran(3)
    _cut_off(world, 10)
    world.produce(10)
    world.micro_batch()
    for log in world.topics[TOPIC].logs:
        log.elect()
    ran(2, world)
    return world, audit(world)


@of_case(63, "INCONCLUSIVE")
def unclean_election_after_an_audit_reported_on_later_days() -> tuple[World, Judgement]:
    world = ran(3)
    audit(world)
    _cut_off(world, 10)
    world.produce(10)
    world.micro_batch()
    audit(world)
    next_day(world)
    next_day(world)
    return world, audit(world)


def _cut_off(world: World, keep: int) -> None:
    for p, log in enumerate(world.topics[TOPIC].logs):
        # The records that take the lost offsets again are others, which the stream never read.
        world.expected |= {(TOPIC, "id-1 after the election", p, offset) for offset in range(keep, log.end)}
        log.elect(keep)


@of_case(63, "INCONCLUSIVE")
def unclean_election_refilled_past_the_position() -> tuple[World, Judgement]:
    world = ran(3)
    for p, log in enumerate(world.topics[TOPIC].logs):
        log.elect(10)
        # The records that take the lost offsets again are others, which the stream never read.
        world.expected |= {(TOPIC, "id-1 after the election", p, offset) for offset in range(10, 15)}
    world.produce(10)
    world.micro_batch()
    return world, audit(world)


@of_case(83, "GAP")
def filter_and_one_row_removed() -> tuple[World, Judgement]:
    world = World()
    world.query.filters = lambda offset: offset % 3 == 0
    ran(3, world, count=9)
    world.delete(lambda row: row.place == (TOPIC, "id-1", 0, 10))
    judgement = audit(world)
    assert _gaps(judgement) == {(0, 10, 11)}
    return world, judgement


def _gaps(judgement: Judgement) -> set[tuple[int | None, int, int]]:
    """The offsets of each GAP that names some, by partition."""
    found = [f for r in judgement.results for f in r.findings if f.code is Code.GAP]
    return {(f.partition, *f.span) for f in found if f.span is not None}


def _filters_and_loses(*lose: int, by: Literal["reader", "transform", "sink"]) -> tuple[World, Judgement]:
    """A micro-batch of offsets [9, 18) of two partitions, of which every third is filtered."""
    world = World()
    world.query.filters = lambda offset: offset % 3 == 0
    ran(1, world, count=9)
    world.produce(9)
    world.micro_batch(lose=lose, by=by)
    ran(1, world, count=9)
    return world, audit(world)


@of_case(83, "GAP")
def filter_and_one_row_that_the_sink_lost() -> tuple[World, Judgement]:
    world, judgement = _filters_and_loses(3, by="sink")
    assert _gaps(judgement) == {(0, 14, 15)}
    return world, judgement


@of_case(83, "GAP")
def filter_and_one_row_that_the_reader_lost() -> tuple[World, Judgement]:
    world, judgement = _filters_and_loses(8, by="reader")
    assert _gaps(judgement) == {(1, 13, 14)}
    return world, judgement


@of_case(83, "GAP")
def filter_and_a_row_lost_by_the_reader_and_one_removed() -> tuple[World, Judgement]:
    world, _ = _filters_and_loses(8, by="reader")
    world.delete(lambda row: row.place == (TOPIC, "id-1", 0, 10))
    judgement = audit(world)
    assert _gaps(judgement) == {(0, 10, 11), (1, 13, 14)}
    return world, judgement


@of_case(83, "GAP")
def filter_and_several_rows_lost() -> tuple[World, Judgement]:
    world, judgement = _filters_and_loses(1, 3, by="sink")
    gaps = Spans.of((start, end) for partition, start, end in _gaps(judgement) if partition == 0)
    assert {11, 14} <= {offset for start, end in gaps for offset in range(start, end)}
    return world, judgement


@of_case(83, "GAP")
def filter_and_one_row_lost_and_repaired_by_a_wrong_one() -> tuple[World, Judgement]:
    """Another micro-batch's row is put under the lost one's batch: the sums no longer tell which one is missing."""
    world = World()
    world.query.filters = lambda offset: offset % 3 == 0
    ran(3, world, count=9)
    world.delete(lambda row: row.place in {(TOPIC, "id-1", 0, 10), (TOPIC, "id-1", 0, 11)})
    filtered = next(row for row in world.rows if row.place[2:] == (0, 13))
    world.commit("WRITE", added=1)
    world.rows.append(replace(filtered, place=(TOPIC, "id-1", 0, 9), version=max(world.commits)))
    judgement = audit(world)
    gaps = Spans.of((start, end) for partition, start, end in _gaps(judgement) if partition == 0)
    assert {10, 11} <= {offset for start, end in gaps for offset in range(start, end)}
    return world, judgement


@of_case(88, "GAP")
def restored_entry_and_an_audit_of_the_time_of_its_commit() -> tuple[World, Judgement]:
    world = ran(2)
    world.tick(days=1)
    begin = world.now
    world.produce(5)
    world.crash("entry", lose=(2,))
    world.tick(hours=1)
    end = world.now
    world.tick(days=3)
    ran(2, world)
    return world, audit(world, from_=begin, to=end)


def _rebuilt(world: World) -> World:
    """The ledger was lost, and restored from the table's log long after."""
    world.tick(days=3)
    world.ledger = memory_ledger()
    for version in sorted(world.commits):
        world.restore_entry(version)
    return world


@of_case(88, "GAP")
def ledger_restored_whole_and_an_audit_of_the_time_of_a_commit() -> tuple[World, Judgement]:
    world = ran(2)
    world.tick(days=1)
    begin = world.now
    world.produce(5)
    world.micro_batch(lose=(2,))
    world.tick(hours=1)
    end = world.now
    world.tick(days=1)
    ran(2, world)
    ran(2, _rebuilt(world))
    return world, audit(world, from_=begin, to=end)


@of_case(88, "INCONCLUSIVE")
def ledger_restored_whole_of_a_query_whose_transform_filters() -> tuple[World, Judgement]:
    world = World()
    world.query.filters = lambda offset: offset % 3 == 0
    begin = world.now
    world.produce(9)
    world.micro_batch(lose=(2,))
    world.tick(hours=1)
    end = world.now
    world.tick(days=1)
    ran(2, _rebuilt(world))
    judgement = audit(world, from_=begin, to=end)
    assert judgement.answer == "could not be proved"
    return world, judgement


@of_case(88)
def ledger_restored_whole_and_the_query_goes_on() -> tuple[World, Judgement]:
    world = ran(3)
    audit(_rebuilt(world))
    for _ in range(2):
        next_day(world)
        judgement = audit(world)
    return world, judgement


@of_case(88)
def entry_restored_days_later_between_audits() -> tuple[World, Judgement]:
    world = ran(3)
    audit(world)
    world.crash("entry")
    for _ in range(3):
        world.tick(days=1)
        audit(world)
    next_day(world)
    audit(world)
    next_day(world)
    return world, audit(world)


@of_case(88, real=("test_restored_entries_are_judged",))
def entry_restored_behind_a_later_one_and_an_audit_of_what_came_then() -> tuple[World, Judgement]:
    world = ran(1)
    world.produce(5)
    world.micro_batch(entry=False)
    ran(1, world)
    world.tick(hours=1)
    world.restore_entry(1)
    ran(1, world)
    return world, audit(world, from_=world.ledger.entries(PIPELINE, SINK)[-1].committed_at)


@of_case(88, "GAP")
def lossy_entry_restored_behind_a_later_one() -> tuple[World, Judgement]:
    world = ran(1)
    world.produce(5)
    world.micro_batch(entry=False, lose=(1,))
    ran(1, world)
    audit(world)
    world.tick(days=2)
    world.restore_entry(1)
    ran(2, world)
    return world, audit(world)


@of_case(46, "INCONCLUSIVE")
def lost_record_of_a_restored_entry_compacted_since() -> tuple[World, Judgement]:
    world = ran(2)
    world.produce(5)
    world.crash("entry", lose=(1,))
    world.restart()
    world.compact(lambda offset: offset == 11)
    return world, audit(world)


@of_case(59, "DUPLICATE")
def sink_doubles_a_row() -> tuple[World, Judgement]:
    world = ran(2)
    world.produce(5)
    world.micro_batch(double=(2,))
    return world, audit(world)


@of_case(59, "GAP", "DUPLICATE")
def loss_and_duplicate_in_a_commit_without_entry() -> tuple[World, Judgement]:
    world = ran(2)
    world.produce(5)
    world.micro_batch(lose=(4,), double=(0,), by="reader", entry=False)
    world.tick(hours=1)
    return world, audit(world)


def accepted(world: World, chosen: Callable[[Finding], bool]) -> None:
    """Somebody accepts open findings."""
    before = world.ledger.proofs.newest(PIPELINE, SINK)
    assert before is not None
    by = Acceptance(by="Ada", reason="known", at=world.now)
    opened = tuple(
        replace(open_finding, accepted=by) if chosen(open_finding.finding) else open_finding
        for open_finding in before.open
    )
    after = replace(before, open=opened)
    proofs = world.ledger.proofs
    assert proofs.append(after, after=before.sequence, prev_hash=before.entry_hash, cause="accept", at=world.now)


@of_case(18, "GAP")
def lost_record_whose_offset_the_topic_made_anew_has_again() -> tuple[World, Judgement]:
    world = ran(2)
    world.produce(5)
    world.micro_batch(lose=(1,))
    audit(world)
    world.recreate(refill=20)
    world.new_checkpoint()
    world.micro_batch()
    audit(world)
    accepted(world, lambda finding: finding.code is not Code.GAP)
    return world, audit(world, full=True)


@of_case(90, "RECREATED")
def topic_made_anew_and_filled_again() -> tuple[World, Judgement]:
    world = ran(6)
    world.recreate(refill=40)
    world.micro_batch()
    return world, audit(world)


def _moved(world: World, topic: Topic, positions: dict[tuple[str, int], int] | None = None) -> Topic:
    """The topic is read on another cluster from now on, with a new checkpoint; returns the one that was read."""
    before = world.move(topic)
    world.new_checkpoint(positions)
    return before


def _on_b() -> Topic:
    return Topic(TOPIC, "id-b", [Log(), Log()], cluster_id="B")


@of_case(18, "RECREATED", "INCONCLUSIVE", never=("GAP", "OVERLAP", "LOSS", "DUPLICATE"))
def topic_read_on_another_cluster() -> tuple[World, Judgement]:
    """Offsets of the two clusters are the same numbers; whether records are copies, somebody says by accepting it."""
    world = ran(3)
    audit(world)
    _moved(world, _on_b())
    ran(3, world)
    judgement = audit(world)
    assert audit(world).answer != "complete"
    accepted(world, lambda finding: True)
    assert audit(world).answer == "complete"
    return world, judgement


@of_case(18, "GAP")
def row_lost_on_another_cluster_whose_offset_the_first_one_has() -> tuple[World, Judgement]:
    world = ran(3)
    audit(world)
    _moved(world, _on_b())
    world.produce(5)
    world.micro_batch(lose=(1,))
    audit(world)
    accepted(world, lambda finding: finding.code is not Code.GAP)
    return world, audit(world, full=True)


@of_case(18, "RECREATED", "INCONCLUSIVE", never=("GAP", "OVERLAP", "LOSS", "DUPLICATE"))
def topic_read_on_another_cluster_and_on_the_first_again() -> tuple[World, Judgement]:
    world = ran(3)
    first = _moved(world, _on_b())
    ran(2, world)
    audit(world)
    _moved(world, first, {(TOPIC, p): 15 for p in range(2)})
    ran(2, world)
    judgement = audit(world)
    moves = [f.message for r in judgement.results for f in r.findings if "of another cluster: it was" in f.message]
    assert len(moves) == 2, moves
    accepted(world, lambda finding: True)
    assert audit(world).answer == "complete"
    return world, judgement


@of_case(48, "MUTATED")
def table_made_anew_and_a_bounded_audit_was_the_first_to_see_it() -> tuple[World, Judgement]:
    world = ran(3)
    world.tick(days=1)
    audit(world)
    world.drop_table()
    ran(1, world)
    audit(world, to=world.now)
    world.tick(days=2)
    ran(2, world)
    return world, audit(world)


# -- false alarms -----------------------------------------------------------------------------------------------------


class Aggregates(World):
    """Its query counts records by their keys, of which each record has another; rows carry no source offsets."""

    def __init__(self) -> None:
        super().__init__()
        self.input_rows: list[BatchProgress] = []

    @override
    def enter(self, stamp: ReconStamp, spans: Iterable[OffsetSpan], **counts: Any) -> LedgerEntry:
        self.input_rows.append(
            BatchProgress(
                query_id=stamp.query_id,
                run_id="run-1",
                batch_id=stamp.batch_id,
                at=self.now,
                rows=len(counts["read"]),
                seconds=1.0,
                state_operators=("stateStoreSave",),
            )
        )
        unknown: dict[str, Any] = dict.fromkeys(("fingerprint_read", "fingerprint_returned", "fingerprint_given"))
        return super().enter(stamp, spans, **counts, **unknown)


class OfAggregates(WorldSources):
    """The witnesses of such a query: Spark's progress, and rows without source columns."""

    @override
    def checkpoint(self) -> CheckpointWitness:
        return replace(super().checkpoint(), stateful=True)

    @override
    def progress(self, since: datetime, until: datetime | None, samples: int) -> ProgressWitness:
        assert isinstance(self.world, Aggregates)
        return ProgressWitness(location="_recon/progress", batches=self.world.input_rows)

    @override
    def commit_rows(self, sink: Sink, versions: Sequence[int]) -> Mapping[int, CommitRows | Unavailable]:
        return {}

    @override
    def rows(self, sink: Sink, first_batch: int | None, search: RowSearch, **how: Any) -> RowsWitness | Unavailable:
        rows = super().rows(sink, first_batch, search, **how)
        assert isinstance(rows, RowsWitness)
        return replace(rows, groups=[], repeated=[], of_others=[], has_source_columns=False)


@of_case(65, "INCONCLUSIVE", never=("ATTESTED_ONLY",))
def half_the_input_of_an_aggregate_expires_before_it_is_read() -> tuple[World, Judgement]:
    world = Aggregates()
    world.produce(20)
    world.crash("write")
    world.expire(10)
    world.restart()
    judgement = audit(world, sources_of=OfAggregates)
    assert judgement.answer == "could not be proved"
    return world, judgement


@of_case(65, "ATTESTED_ONLY")
def all_the_input_of_an_aggregate_is_read() -> tuple[World, Judgement]:
    world = Aggregates()
    ran(3, world)
    return world, audit(world, sources_of=OfAggregates)


@of_case(71)
def lists_of_which_some_are_empty_over_a_topic_with_transactions() -> tuple[World, Judgement]:
    world = World()
    world.query.makes = lambda offset: offset % 3
    for transaction in ("committed", "aborted", "committed"):
        world.produce(10, transaction=transaction)
        world.micro_batch()
    return world, audit(world, sources_of=DeclaresSeveral)


@of_case(72, "REPAIRED")
def gap_repaired_as_advised() -> tuple[World, Judgement]:
    world = ran(3)
    world.produce()
    world.micro_batch(skip=4)
    audit(world)
    ends = dict(world.query.positions)
    world.new_checkpoint({where: end - 10 for where, end in ends.items()})
    world.micro_batch(most=4)
    world.query.positions = ends
    ran(1, world)
    return world, audit(world)


@of_case(38, "MUTATED")
def micro_batch_undone_by_a_restore_is_committed_again() -> tuple[World, Judgement]:
    world = ran(3)
    rows = [row for row in world.rows if row.version == 2]
    world.restore(1)
    world.tick()
    stamp = world.commits[2].stamp
    version = world.commit("WRITE", added=len(rows), stamp=stamp)
    world.rows += [replace(row, version=version) for row in rows]
    judgement = audit(world)
    assert "DUPLICATE" not in judgement.codes  # its rows are there once
    return world, judgement


def _deleted_and_put_back() -> tuple[World, int]:
    """The version of the DELETE, which a RESTORE undid."""
    world = ran(3)
    audit(world)
    before = max(world.commits)
    world.delete(lambda row: row.batch_id == 1)
    assert {"GAP", "MUTATED"} <= audit(world).codes
    world.restore(before)
    return world, before + 1


@of_case(38, "MUTATED", never=("GAP",), explained=("REPAIRED",))
def restore_that_puts_deleted_rows_back() -> tuple[World, Judgement]:
    world, _ = _deleted_and_put_back()
    return world, audit(world)


@of_case(38, "MUTATED", "GAP")
def restore_that_takes_rows_away_which_another_had_put_back() -> tuple[World, Judgement]:
    world, deleted = _deleted_and_put_back()
    assert "GAP" not in audit(world).codes
    world.restore(deleted)
    return world, audit(world)


# -- deletions that recon.yml declares --------------------------------------------------------------------------------


def _kept(world: World, batch_id: int) -> None:
    """The retention job deletes the rows of a micro-batch, two hours after it."""
    world.tick(hours=2)
    world.delete(lambda row: row.batch_id == batch_id, by=RETENTION)


@of_case(38, never=("MUTATED", "GAP", "INCONCLUSIVE"), explained=("DELETED",))
def retention_job_of_each_night() -> tuple[World, Judgement]:
    world = ran(4)
    for night in range(3):
        _kept(world, night)
        judgement = audit(world)
        assert _deleted(judgement) == {10}, "each night its own"
        next_day(world)
    world.vacuum()
    world.clean_log()
    judgement = audit(world, full=True)
    assert judgement.answer == "complete"
    _kept(world, 3)
    return world, audit(world)


def _deleted(judgement: Judgement) -> set[int | None]:
    """How many rows were deleted as declared, by each commit that the audit judged."""
    found = (finding for result in judgement.results for finding in result.findings)
    return {finding.rows for finding in found if finding.code is Code.DELETED}


@of_case(38, "MUTATED", "GAP", explained=("DELETED",))
def retention_job_deletes_young_rows_as_well() -> tuple[World, Judgement]:
    world = ran(2)
    world.tick(hours=2)
    ran(1, world)
    world.delete(lambda row: row.batch_id == 0 or (row.batch_id == 2 and row.place[3] == 12), by=RETENTION)
    judgement = audit(world)
    assert _deleted(judgement) == {10}
    assert _gaps(judgement) == {(0, 12, 13), (1, 12, 13)}
    return world, judgement


@of_case(38, "MUTATED", "GAP", explained=("DELETED",))
def retention_job_and_somebody_else() -> tuple[World, Judgement]:
    world = ran(3)
    _kept(world, 0)
    world.delete(lambda row: row.place == (TOPIC, "id-1", 0, 7))
    judgement = audit(world)
    assert _gaps(judgement) == {(0, 7, 8)}
    return world, judgement


@of_case(38, "GAP", explained=("DELETED",))
def retention_job_deletes_a_micro_batch_that_lost_a_record() -> tuple[World, Judgement]:
    world = ran(1)
    world.produce(5)
    world.micro_batch(lose=(2,))
    ran(1, world)
    _kept(world, 1)
    judgement = audit(world)
    assert _gaps(judgement) == {(0, 7, 8)}, "what was never there is lost, whatever was deleted"
    return world, judgement


@of_case(38, "MUTATED", never=("GAP",))
def retention_job_whose_deletion_is_restored() -> tuple[World, Judgement]:
    world = ran(3)
    _kept(world, 0)
    assert audit(world).answer == "complete"
    world.restore(max(world.commits) - 1)
    assert not world.lawful
    audit(world)
    world.delete(lambda row: row.batch_id == 0)
    assert {"GAP", "MUTATED"} <= audit(world).codes, "the second time somebody else did it"
    world.restore(max(world.commits) - 1)
    return world, audit(world)


@of_case(38, "INCONCLUSIVE", never=("GAP", "MUTATED"))
def retention_job_and_vacuum_before_the_audit() -> tuple[World, Judgement]:
    world = ran(3)
    _kept(world, 0)
    world.vacuum()
    return world, audit(world)


@of_case(38, "GAP", "MUTATED")
def rows_that_the_retention_job_deleted_are_written_again_and_lost() -> tuple[World, Judgement]:
    world = ran(3)
    _kept(world, 0)
    audit(world)
    world.new_checkpoint({(TOPIC, p): 0 for p in range(2)})
    world.micro_batch(most=5)
    world.delete(lambda row: row.epoch == 1)
    return world, audit(world)


@of_case(38, never=("GAP", "INCONCLUSIVE"), explained=("DELETED",))
def retention_job_in_a_table_of_two_pipelines() -> tuple[World, Judgement]:
    world = World()
    world.topics[ELSEWHERE] = Topic(ELSEWHERE, "id-c", [Log()])
    ran(3, world)
    world.produce(topic=ELSEWHERE)
    _written_by(world, Query(pipeline=ELSEWHERES_PIPELINE, query_id="q-9", topics=(ELSEWHERE,)), 1)
    world.tick(hours=2)
    world.delete(lambda row: row.batch_id == 0, by=RETENTION)
    judgement = audit(world)
    assert _deleted(judgement) == {10}, "its own rows"
    return world, judgement


@of_case(38, "GAP", "MUTATED")
def a_deletion_that_somebody_accepts_each_night() -> tuple[World, Judgement]:
    world = ran(5)
    audit(world)
    for night in range(3):
        world.tick(days=1)
        world.delete(lambda row, night=night: row.batch_id == night)  # type: ignore[misc]
        ran(1, world)
        judgement = audit(world, full=True)
        open_ = {span for span in _gaps(judgement) if span[0] is not None}
        assert open_ == {(p, 5 * night, 5 * night + 5) for p in range(2)}, "each night its own"
        if night < 2:
            accepted(world, lambda finding: True)
    return world, judgement


@of_case(73)
def audit_after_one_to_a_future_time() -> tuple[World, Judgement]:
    world = ran(3)
    audit(world, to=world.now + timedelta(days=5))
    next_day(world)
    return world, audit(world)


@of_case(73)
def two_epochs_and_a_later_begin() -> tuple[World, Judgement]:
    world = ran(3)
    audit(world)
    world.tick(days=1)
    world.new_checkpoint(dict(world.query.positions))
    begin = world.now
    ran(3, world)
    return world, audit(world, from_=begin)


@of_case(73)
def two_epochs_and_a_begin_behind_the_last_audited_entry() -> tuple[World, Judgement]:
    world = ran(2)
    world.new_checkpoint(dict(world.query.positions))
    ran(1, world)
    audit(world)
    ran(1, world)
    world.tick(hours=1)
    begin = world.now
    ran(1, world)
    return world, audit(world, from_=begin)


@of_case(73)
def end_in_the_past_with_commits_behind_it() -> tuple[World, Judgement]:
    world = ran(3)
    end = world.now
    world.tick(hours=1)
    ran(2, world)
    return world, audit(world, to=end + timedelta(minutes=1))


@of_case(73)
def end_in_the_past_and_retention_since() -> tuple[World, Judgement]:
    world = ran(3)
    end = world.now
    world.tick(hours=1)
    ran(1, world)
    world.expire(18)
    return world, audit(world, to=end + timedelta(minutes=1))


@of_case(73)
def clock_ahead_and_a_full_audit_with_an_end() -> tuple[World, Judgement]:
    world = ran(1)
    world.skew = timedelta(days=365)
    ran(1, world)
    audit(world, from_=world.now - timedelta(days=1))
    return world, audit(world, full=True, to=world.now)


@of_case(73, never=("LEDGER_MISSING",))
def clock_ahead_and_a_commit_without_entry_in_a_bounded_period() -> tuple[World, Judgement]:
    world = ran(2)
    world.skew = timedelta(days=365)
    ran(1, world)
    world.tick(days=2)
    begin = world.now
    world.produce(5)
    world.crash("entry")
    world.tick()
    return world, audit(world, from_=begin, to=world.now)


@of_case(74)
def aborted_records_at_the_start_of_a_range_audited_after_retention() -> tuple[World, Judgement]:
    world = World()
    world.produce(3, transaction="aborted")
    world.micro_batch()
    ran(2, world)
    audit(world)
    world.expire(4)
    return world, audit(world)


@of_case(74, "INCONCLUSIVE", real=("test_a_topic_whose_id_was_unknown_and_that_was_made_anew",))
def marker_at_the_start_of_a_range_audited_after_retention_alone() -> tuple[World, Judgement]:
    world = World()
    world.produce(5, transaction="aborted")
    world.produce(7, transaction="committed")
    for _ in range(3):
        world.micro_batch(most=6)
    ran(1, world)
    world.expire(8)
    judgement = audit(world)
    assert judgement.answer == "could not be proved"
    return world, judgement


@of_case(74, "INCONCLUSIVE")
def lost_before_the_hook_and_audited_after_retention() -> tuple[World, Judgement]:
    world = World()
    world.produce(5)
    world.micro_batch(lose=(0, 1), by="reader")
    ran(2, world)
    world.expire(4)
    return world, audit(world)


@of_case(16, "LOSS_RETENTION")
def records_expire_while_they_are_read_and_an_audit_comes_later() -> tuple[World, Judgement]:
    world = World()
    world.produce(5)
    world.expire(2)
    world.micro_batch()
    ran(2, world)
    return world, audit(world)


@of_case(81, "UNSTAMPED", never=("LEDGER_MISSING",))
def new_epoch_in_progress_and_a_stranger_since_the_last_audit() -> tuple[World, Judgement]:
    world = ran(4)
    world.tick(days=1)
    ran(2, world)
    audit(world)
    world.new_checkpoint(dict(world.query.positions))
    world.tick()
    world.commit("WRITE", added=3)
    world.produce(4)
    world.micro_batch(entry=False, finish=False)
    return world, audit(world)


@of_case(75)
def retention_after_two_epochs() -> tuple[World, Judgement]:
    world = ran(3)
    world.new_checkpoint(dict(world.query.positions))
    ran(3, world)
    world.expire(20)
    return world, audit(world)


def _of_two_sources(batches: int) -> World:
    world = World()
    world.query.sources = 2
    return ran(batches, world)


@of_case(76, "INCONCLUSIVE", never=("GAP",), real=("test_half_the_input_of_an_aggregate_is_lost",))
def counts_that_spark_did_not_report_and_a_filter_that_seldom_acts() -> tuple[World, Judgement]:
    world = World()
    world.query.filters = lambda offset: offset == 7
    world.counts_known = False
    ran(3, world)
    judgement = audit(world)
    assert judgement.answer == "could not be proved"
    return world, judgement


@of_case(77)
def two_sources_on_one_topic() -> tuple[World, Judgement]:
    world = _of_two_sources(3)
    assert len(world.rows) == 60
    return world, audit(world)


@of_case(77, "GAP")
def two_sources_on_one_topic_of_which_one_loses_a_row() -> tuple[World, Judgement]:
    world = _of_two_sources(2)
    world.produce(5)
    world.micro_batch(lose=(1,))
    return world, audit(world)


@of_case(78, "OVERLAP", "DUPLICATE", real=("test_4_an_overlap_and_the_rows_it_doubles",))
def first_epoch_began_above_zero_and_the_next_below() -> tuple[World, Judgement]:
    world = World()
    world.produce(20)
    world.query.positions = {(TOPIC, p): 10 for p in range(2)}
    world.micro_batch()
    world.new_checkpoint()
    world.micro_batch()
    return world, audit(world)


@of_case(80, real=("test_8_a_range_that_holds_only_a_transaction_marker",))
def skipped_range_that_holds_only_markers() -> tuple[World, Judgement]:
    world = ran(3)
    for log in world.topics[TOPIC].logs:
        log.kinds += ["marker"] * 2
    world.produce()
    world.micro_batch(skip=2)
    return world, audit(world)


@of_case(82)
def begin_far_back_while_the_log_is_whole() -> tuple[World, Judgement]:
    world = ran(3)
    world.tick(days=60)
    ran(2, world)
    return world, audit(world, from_=world.now - timedelta(days=61))


@of_case(37)
def optimize_before_an_audit_and_after_it() -> tuple[World, Judgement]:
    world = ran(3)
    world.optimize()
    audit(world)
    world.optimize()
    next_day(world)
    return world, audit(world)


@of_case(39)
def optimize_and_log_cleanup() -> tuple[World, Judgement]:
    world = ran(3)
    world.optimize()
    audit(world)
    next_day(world)
    world.optimize()
    ran(1, world)
    world.clean_log()
    return world, audit(world)


@of_case(39, "ATTESTED_ONLY")
def log_cleanup_before_the_first_audit() -> tuple[World, Judgement]:
    world = ran(5)
    world.clean_log()
    return world, audit(world)


def _stranger(world: World, rows: int) -> None:
    """Another program appends rows of its own, which carry no source offsets."""
    version = world.commit("WRITE", added=rows)
    world.rows += [Row(version, None, 0, None, ("elsewhere", "id-e", 0, n)) for n in range(rows)]


@of_case(39)
def rows_of_a_stranger_and_log_cleanup() -> tuple[World, Judgement]:
    world = ran(3)
    _stranger(world, 7)
    audit(world)
    next_day(world)
    world.clean_log()
    return world, audit(world)


@of_case(39, "MUTATED")
def rows_of_a_stranger_are_deleted_by_a_commit_that_the_log_has() -> tuple[World, Judgement]:
    world = ran(3)
    _stranger(world, 7)
    audit(world)
    world.delete(lambda row: row.pipeline is None)
    ran(2, world)
    return world, audit(world)


@of_case(39)
def filters_and_log_cleanup() -> tuple[World, Judgement]:
    world = World()
    world.query.filters = lambda offset: offset % 3 == 0
    ran(4, world)
    audit(world)
    next_day(world)
    world.clean_log()
    return world, audit(world)
