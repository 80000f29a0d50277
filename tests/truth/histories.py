"""Random histories of a world with one, two and three faults, and the truth about each."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Literal

from recon.model.proof import Acceptance, OpenFinding
from tests.truth.judge import Judgement, WithoutKafka, WithoutSpark, WorldSources, audit
from tests.truth.memory import MemoryStore
from tests.truth.repairs import repair
from tests.truth.stories import ran
from tests.truth.world import PIPELINE, SINK, TOPIC, Place, Query, World

Act = Callable[[World, random.Random], None]


def _ordinary(world: World, rng: random.Random) -> None:
    world.produce(rng.randint(0, 6), transaction=rng.choice((None, None, "committed", "aborted")))
    world.micro_batch(most=rng.choice((None, None, 4)))


def _new_epoch(world: World, _: random.Random) -> None:
    world.new_checkpoint(dict(world.query.positions))


def _skips(world: World, rng: random.Random) -> None:
    world.produce(5)
    world.micro_batch(skip=rng.randint(1, 4))


def _swallows(world: World, _: random.Random) -> None:
    world.produce(5)
    world.micro_batch(swallow=True)
    ran(1, world)


def _has_no_entry(world: World, rng: random.Random) -> None:
    world.produce(5)
    world.micro_batch(entry=False, lose=rng.choice(((), (1,), (0, 3))), double=rng.choice(((), (2,))))


def _inflates(world: World, rng: random.Random) -> None:
    world.produce(5)
    lost = rng.sample(range(5), rng.randint(1, 2))
    world.micro_batch(lose=lost, inflated=len(lost))


def _loses_and_doubles(world: World, rng: random.Random) -> None:
    world.produce(5)
    lost, doubled = rng.sample(range(10), 2)
    by: Sequence[Literal["reader", "transform", "sink"]] = ("reader", "transform", "sink")
    world.micro_batch(lose=(lost,), double=(doubled,), by=rng.choice(by))


def _sink_loses(world: World, rng: random.Random) -> None:
    world.produce(5)
    world.micro_batch(lose=rng.sample(range(5), rng.randint(1, 2)))


def _deletes(world: World, rng: random.Random) -> None:
    if world.rows:
        gone = rng.choice(world.rows)
        world.delete(rng.choice((lambda row: row is gone, lambda row: row.version == gone.version)))


def _restores(world: World, rng: random.Random) -> None:
    if world.commits:
        world.restore(rng.randint(0, max(world.commits)))


def _appends_again(world: World, rng: random.Random) -> None:
    if world.rows:
        again = rng.choice(world.rows)
        world.append_again(lambda row: row.version == again.version)


def _other_pipeline(world: World, rng: random.Random) -> None:
    mine, at = world.query, rng.randint(0, 5)
    world.query = Query(pipeline="orders_2", query_id="q-90", positions={(TOPIC, p): at for p in range(2)})
    world.micro_batch()
    world.query = mine


def _starts_over(world: World, rng: random.Random) -> None:
    world.new_checkpoint({(TOPIC, p): rng.randint(0, 3) for p in range(2)})
    ran(1, world)


def _foreign_checkpoint(world: World, _: random.Random) -> None:
    mine = world.query
    world.query = replace(mine, query_id="q-80", epoch=mine.epoch + 50, positions={}, planned=[])
    world.micro_batch(entry=False)
    world.query = mine


def _clock_jumps(world: World, rng: random.Random) -> None:
    world.skew = timedelta(hours=rng.choice((-60, -1, 0, 1, 24 * 365)))
    ran(1, world)


def _commits_twice(world: World, rng: random.Random) -> None:
    own = [commit for commit in world.commits.values() if commit.stamp is not None and commit.rows_added]
    if own:
        world.commit_again(rng.choice(own).version)


def _removes_a_file(world: World, rng: random.Random) -> None:
    if world.rows:
        gone = rng.choice(world.rows)
        world.delete(lambda row: (row.version, row.place[2]) == (gone.version, gone.place[2]), logged=False)


def _drops_the_table(world: World, _: random.Random) -> None:
    world.drop_table()


def _removes_the_table(world: World, _: random.Random) -> None:
    world.remove_table()
    ran(1, world)


def _cleans_the_log(world: World, _: random.Random) -> None:
    if world.commits:
        world.clean_log()


def _optimizes(world: World, _: random.Random) -> None:
    if world.commits:
        world.optimize()


def _compacts_and_loses(world: World, rng: random.Random) -> None:
    if world.rows:
        world.compact_and_lose(rng.choice(world.rows))


def _crashes(world: World, rng: random.Random) -> None:
    world.produce(rng.randint(0, 5))
    world.crash(rng.choice(("write", "entry", "commit")))
    if rng.random() < 0.3:
        audit(world)
    world.restart()


def _transaction_stays_open(world: World, rng: random.Random) -> None:
    world.open_transaction(rng.randint(1, 4))
    ran(1, world, count=0)
    if rng.random() < 0.3:
        audit(world)
    world.end_transaction(rng.choice(("committed", "aborted")))


def _adds_a_partition(world: World, rng: random.Random) -> None:
    world.add_partition()
    _ordinary(world, rng)


def _purges_the_checkpoint(world: World, rng: random.Random) -> None:
    world.purge_checkpoint(rng.randint(1, 3))


def _filters(world: World, rng: random.Random) -> None:
    divisor = rng.choice((2, 3, 7))
    world.query.filters = lambda offset: offset % divisor == 0
    ran(1, world)


def _sets_the_checkpoint_back(world: World, _: random.Random) -> None:
    planned = world.query.planned
    if len(planned) > 1:
        world.set_back(1)
        audit(world)
        world.query.planned = planned


def _sink_doubles(world: World, rng: random.Random) -> None:
    world.produce(5)
    world.micro_batch(double=(rng.randint(0, 9),))


def _rewrites(world: World, rng: random.Random) -> None:
    if world.rows:
        chosen = rng.choice(world.rows)
        world.rewrite(lambda row: row.version == chosen.version, lambda row: row is chosen)


def _repairs(world: World, rng: random.Random) -> None:
    audit(world, sources_of=rng.choice((WorldSources, WorldSources, WithoutSpark, WithoutKafka)))
    repair(world, crash=rng.choice((None, None, "write", "entry")))


def _is_audited_in_part(world: World, rng: random.Random) -> None:
    audit(world, sources_of=rng.choice((WithoutSpark, WithoutKafka)))


def _accepts(world: World, _: random.Random) -> None:
    """Somebody accepts all that is open, where it names every record that is lost or doubled."""
    audit(world)
    state, truth = world.ledger.proofs.newest(PIPELINE, SINK), world.truth
    assert state is not None
    lost = all(_is_named(place, [one for one in state.open if one.is_loss]) for place in truth.lost)
    doubled = all(_is_named(place, [one for one in state.open if one.is_doubling]) for place in truth.doubled)
    if not (lost and doubled) or truth.phantom or not state.open:
        return
    by = Acceptance(by="Ada", reason="known", at=world.now)
    opened = tuple(one if one.accepted is not None else replace(one, accepted=by) for one in state.open)
    assert world.ledger.proofs.append(
        replace(state, open=opened), after=state.sequence, prev_hash=state.entry_hash, cause="accept", at=world.now
    )
    world.forgive()
    world.settled = set(world.acts) <= HARMLESS | LOSSES


def _puts_the_proof_back(world: World, _: random.Random) -> None:
    """By one state, of which no audit's results say yet that it was there."""
    store = world.ledger.proofs.store
    assert isinstance(store, MemoryStore)
    if store.parts:
        store.parts = store.parts[:-1]
        store.lengths = {chain: length - 1 for chain, length in store.lengths.items()}


def _is_named(place: Place, known: Sequence[OpenFinding]) -> bool:
    topic, topic_id, partition, offset = place
    of_place = [one.spans for one in known if one.is_in(topic, partition) and one.finding.topic_id in (None, topic_id)]
    return any(start <= offset < end for spans in of_place for start, end in spans)


def _elects_a_leader(world: World, _: random.Random) -> None:
    for log in world.topics[TOPIC].logs:
        log.elect()
    ran(1, world)


def _elects_an_unclean_leader(world: World, rng: random.Random) -> None:
    query, entered = world.query, world.ledger.numbers(PIPELINE, SINK)
    if query.planned and (query.epoch, query.planned[-1].batch_id) not in {(epoch, n) for epoch, n, _ in entered}:
        ran(1, world)  # behind a micro-batch that has no entry, the hook does not ask who leads (docs/limits.md)
    for p, log in enumerate(world.topics[TOPIC].logs):
        read, end = world.query.positions.get((TOPIC, p), 0), log.end
        keep = rng.randint(min(log.start, end), end)
        # What takes the lost offsets is never read.
        world.expected |= {(TOPIC, "after the election", p, offset) for offset in range(keep, read)}
        log.elect(keep)
        log.kinds += ["record"] * (end - keep)
    ran(1, world)


# Acts after which the answer must still be "complete".
HARMLESS = frozenset({"runs", "audited", "new epoch", "clock_jumps", "cleans_the_log", "optimizes"}) | {
    "crashes",
    "transaction_stays_open",
    "adds_a_partition",
    "purges_the_checkpoint",
    "sets_the_checkpoint_back",
    "repairs",
    "is_audited_in_part",
    "accepts",
    "elects_a_leader",
}

# Acts of which all is said once it is accepted: doubled rows are said anew where others are doubled beside them.
LOSSES = frozenset({"skips", "swallows", "inflates", "sink_loses", "deletes", "removes_a_file"})

FAULTS: dict[str, Act] = {
    fault.__name__.strip("_"): fault
    for fault in (
        _skips,
        _swallows,
        _has_no_entry,
        _inflates,
        _loses_and_doubles,
        _sink_loses,
        _deletes,
        _restores,
        _appends_again,
        _other_pipeline,
        _starts_over,
        _foreign_checkpoint,
        _commits_twice,
        _clock_jumps,
        _removes_a_file,
        _drops_the_table,
        _removes_the_table,
        _cleans_the_log,
        _optimizes,
        _compacts_and_loses,
        _crashes,
        _transaction_stays_open,
        _adds_a_partition,
        _purges_the_checkpoint,
        _sets_the_checkpoint_back,
        _filters,
        _sink_doubles,
        _rewrites,
        _repairs,
        _is_audited_in_part,
        _accepts,
        _puts_the_proof_back,
        _elects_a_leader,
        _elects_an_unclean_leader,
    )
}


def _is_audited(world: World, rng: random.Random) -> None:
    """An audit; every other one lacks a witness, or runs one check."""
    sources, only = rng.choice(
        (*((WorldSources, ()),) * 3, (WithoutSpark, ()), (WithoutKafka, ()), (WithoutSpark, ("delta_history",)))
    )
    audit(world, sources_of=sources, only=only)
    world.tick(days=rng.choice((0, 1, 3)))


def history(seed: int) -> tuple[list[str], World, Judgement]:
    """What happened, the world after it, and what its last audit says; some histories were audited on the way."""
    rng, world = random.Random(seed), World()
    faults = rng.sample(sorted(FAULTS), seed % 4)
    acts: list[tuple[str, Act]] = [("runs", _ordinary)] * rng.randint(2, 5)
    acts += [("new epoch", _new_epoch)] * (rng.random() < 0.2)
    audited = [("audited", _is_audited)] * rng.choice((0, 0, 1, 2, 3))
    rest = [*audited, *((name, FAULTS[name]) for name in faults)] + [("runs", _ordinary)] * 2
    rng.shuffle(rest)
    for name, act in [*acts, *rest]:
        world.settled &= name in HARMLESS
        world.acts.append(name)
        act(world, rng)
    world.tick(hours=2)
    return world.acts, world, audit(world)
