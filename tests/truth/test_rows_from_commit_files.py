"""Micro-batches that counts do not prove: the data files of their own commits show which offsets have a row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pytest
from typing_extensions import override

from recon.model import Code, CommitRows, RowsWitness, Unavailable
from recon.project import Sink
from tests.truth.judge import Judgement, WithoutSpark, WorldSources, audit
from tests.truth.stories import ran
from tests.truth.world import World


def transactions(world: World, kinds: str = "cac") -> World:
    """A micro-batch per transaction, which is committed (c) or aborted (a)."""
    for kind in kinds:
        world.produce(transaction={"c": "committed", "a": "aborted"}[kind])
        world.micro_batch()
    return world


def gaps(judgement: Judgement) -> list[tuple[int | None, tuple[int, int] | None]]:
    return [(f.partition, f.span) for r in judgement.results for f in r.findings if f.code is Code.GAP]


def test_transactions_are_complete_without_spark() -> None:
    judgement = audit(transactions(ran(2)), sources_of=WithoutSpark)
    assert (judgement.answer, judgement.codes) == ("complete", set())
    (source_rows,) = (r for r in judgement.results if r.check == "source_rows")
    assert "counts prove 2 of them, and the rows of the others were read from their data files" in source_rows.message


def test_retention_that_took_what_was_not_read_is_told_without_spark() -> None:
    world = ran(2)
    world.produce()
    world.expire(14)
    world.micro_batch()
    judgement = audit(world, sources_of=WithoutSpark)
    assert judgement.answer == "not complete" and "LOSS_RETENTION" in judgement.codes


@pytest.mark.parametrize(
    ("by", "answer"), [("reader", "not complete"), ("transform", "complete"), ("sink", "could not be proved")]
)
def test_what_is_missing_among_transactions(by: str, answer: str) -> None:
    """What a transform leaves out it filters, where recon.yml does not say that it may not."""
    world = transactions(ran(1), "c")
    world.produce(transaction="committed")
    world.micro_batch(lose=(3,), by=by)  # type: ignore[arg-type]
    judgement = audit(world, sources_of=WithoutSpark)
    assert judgement.answer == answer
    assert gaps(judgement) == ([(0, (19, 20))] if by == "reader" else [])
    # What the sink was given is not what its commit added: its rows are read.
    again = audit(world)
    assert again.answer == ("complete" if by == "transform" else "not complete")
    assert gaps(again) == ([] if by == "transform" else [(0, (19, 20))])


@pytest.mark.parametrize("by", ["reader", "transform", "sink"])
def test_what_is_lost_while_another_row_is_doubled_is_never_complete(by: str) -> None:
    world = transactions(ran(1), "c")
    world.produce(transaction="committed")
    world.micro_batch(lose=(3,), double=(5,), by=by)  # type: ignore[arg-type]
    for sources in (WithoutSpark, WorldSources):
        assert audit(world, sources_of=sources).answer != "complete"


def deleted(world: World) -> None:
    world.delete(lambda row: row.place[3] == 7)


def read_uncommitted(world: World) -> None:
    world.query.isolation = "read_uncommitted"
    transactions(world, "c")


@pytest.mark.parametrize("act", [deleted, read_uncommitted])
def test_where_rows_of_others_are_in_question_too_all_are_read(act: Callable[[World], None]) -> None:
    world = transactions(ran(2), "c")
    act(world)
    assert audit(world, sources_of=WithoutSpark).answer != "complete"


class Counting(WorldSources):
    """Counts how often the sink's rows are read."""

    read = 0

    @override
    def rows(self, sink: Sink, *args: object, **others: object) -> RowsWitness | Unavailable:
        type(self).read += 1
        return super().rows(sink, *args, **others)  # type: ignore[arg-type]


def test_the_rows_of_the_sink_are_not_read_for_it() -> None:
    Counting.read = 0
    world = ran(2)
    for _ in range(3):
        world.tick(hours=20)
        assert audit(transactions(world), sources_of=Counting).answer == "complete"
    assert Counting.read == 0


class FilesGone(Counting):
    """The data files of commits are gone, as VACUUM leaves it."""

    read = 0

    @override
    def commit_rows(self, sink: Sink, versions: Sequence[int]) -> Mapping[int, CommitRows | Unavailable]:
        return dict.fromkeys(versions, Unavailable("commit_rows", "data files are no longer in the store"))


def test_where_the_data_files_are_gone_the_rows_of_the_sink_are_read() -> None:
    FilesGone.read = 0
    assert audit(transactions(ran(2), "c"), sources_of=FilesGone).answer == "complete"
    assert FilesGone.read == 1


@pytest.mark.parametrize("sources", [WorldSources, FilesGone])
def test_a_swap_in_a_micro_batch_that_counts_prove_is_found_though_others_are_in_question(
    sources: type[WorldSources],
) -> None:
    """The log has lost the commit of the micro-batch that counts do not prove, so that its data files are not known."""
    world = transactions(World(), "c")
    ran(1, world)
    world.produce()
    world.micro_batch(lose=(3,), double=(5,), by="sink")
    world.clean_log(2)
    assert audit(world, sources_of=sources).answer == "not complete"
