"""Random histories of a world with one, two and three faults, and the truth about each.

A history is a plan, and telling it: each act has a seed of its own, so that leaving one out (see `shrink`) changes none
of the others' choices.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Literal

import pyarrow as pa

from recon.model.proof import Acceptance, OpenFinding
from recon.write.ledger.ledger import Ledger
from tests.truth.judge import Judgement, WithoutKafka, WithoutSpark, WorldSources, audit
from tests.truth.memory import MemoryStore, memory_ledger
from tests.truth.repairs import repair
from tests.truth.stories import ran
from tests.truth.world import (
    ELSEWHERE,
    ELSEWHERES_PIPELINE,
    PIPELINE,
    RETENTION,
    SINK,
    TOPIC,
    IsolationLevel,
    Log,
    Place,
    Query,
    Row,
    Topic,
    World,
)

Act = Callable[[World, random.Random], None]
Judge = Callable[[World], Judgement]


def _ordinary(world: World, rng: random.Random) -> None:
    if rng.random() < 0.3:
        _ends_what_is_open(world, rng)
    aborts = "aborted" if world.query.isolation == "read_committed" or rng.random() < 0.2 else None
    world.produce(rng.randint(0, 6), transaction=rng.choice((None, None, "committed", aborts)))
    world.micro_batch(most=rng.choice((None, None, 4)))


def _ends_what_is_open(world: World, rng: random.Random) -> None:
    if any(log.stable is not None for log in world.topics[TOPIC].logs):
        world.end_transaction(rng.choice(("committed", "aborted")))


def _new_epoch(world: World, _: random.Random) -> None:
    world.new_checkpoint(dict(world.query.positions))


def _edits_a_plan(world: World, rng: random.Random) -> None:
    """Somebody moves the end of the newest plan forward, past records that wait."""
    world.produce(rng.randint(1, 4))
    positions = world.query.positions
    waiting = [world.topics[name].logs[p].end - position for (name, p), position in positions.items()]
    if world.query.planned and world.interrupted is None and min(waiting, default=0) > 0:
        world.edit_plan(rng.randint(1, min(waiting)))
        ran(1, world, count=rng.choice((0, 5)))


def _skips(world: World, rng: random.Random) -> None:
    world.produce(5)
    world.micro_batch(skip=rng.randint(1, 4))


def _swallows(world: World, _: random.Random) -> None:
    world.produce(5)
    world.micro_batch(swallow=True)
    ran(1, world)


def _is_guarded(world: World, _: random.Random) -> None:
    """The usual guard of functions for foreachBatch; micro-batches of aborted records, or markers, alone."""
    world.query.guarded = True
    for outcome in ("aborted", "committed"):
        world.produce(4, transaction=outcome)
        world.micro_batch()


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


def _retention_deletes(world: World, rng: random.Random) -> None:
    """The job that recon.yml names deletes rows that are old enough."""
    old = [] if world.skew else _old(world)
    if old:
        gone = {id(row) for row in rng.sample(old, rng.randint(1, len(old)))}
        world.delete(lambda row: id(row) in gone, by=RETENTION)


def _retention_deletes_and_vacuums(world: World, rng: random.Random) -> None:
    """The same, and which rows these were is not known."""
    _retention_deletes(world, rng)
    world.vacuum()


def _old(world: World) -> list[Row]:
    """The rows that the retention job may delete; two hours go by, and the stream goes on."""
    world.tick(hours=2)
    old = [row for row in world.rows if world.is_old(row)]
    ran(1, world)
    return old


def _retention_deletes_too_much(world: World, rng: random.Random) -> None:
    """The same, and it deletes a row besides that is too young."""
    old = [] if world.skew else _old(world)
    young = [row for row in world.rows if not world.is_old(row) and row.batch_id is not None]
    if young:
        gone = {id(row) for row in [*old[: rng.randint(0, 5)], rng.choice(young)]}
        world.delete(lambda row: id(row) in gone, by=RETENTION)


def _restores(world: World, rng: random.Random) -> None:
    if world.commits:
        world.restore(rng.randint(0, max(world.commits)))


def _appends_again(world: World, rng: random.Random) -> None:
    if world.rows:
        again = rng.choice(world.rows)
        world.append_again(lambda row: row.version == again.version)


def _other_pipeline(world: World, rng: random.Random) -> None:
    at = rng.randint(0, 5)
    with world.running(Query(pipeline="orders_2", query_id="q-90", positions={(TOPIC, p): at for p in range(2)})):
        world.micro_batch()


def _starts_over(world: World, rng: random.Random) -> None:
    world.new_checkpoint({(TOPIC, p): rng.randint(0, 3) for p in range(2)})
    ran(1, world)


def _foreign_checkpoint(world: World, _: random.Random) -> None:
    mine = world.query
    of: dict[str, Any] = {"epoch": mine.epoch + 50, "positions": {}, "planned": [], "read_of": {}, "begins": {}}
    with world.running(replace(mine, query_id="q-80", **of)):
        world.micro_batch(entry=False)


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


def _copies_the_table(world: World, rng: random.Random) -> None:
    lost = rng.choice(world.rows) if world.rows and rng.random() < 0.5 else None
    world.copy_table(lambda row: lost is not None and row == lost)


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


def _calls_two_hooks(world: World, rng: random.Random) -> None:
    """Of the sink, in one function. Of a run that nobody knows, two transforms of one name look like a replay."""
    world.produce(rng.randint(0, 5))
    transforms, run_id = rng.choice(
        ((("job:even", "job:odd"), "r-1"), (("job:even", "job:odd"), None), (("job:half", "job:half"), "r-1"))
    )
    rest = rng.choice((0, 1))
    between = rng.choice((None, None, world.tick, lambda: audit(world)))
    world.two_calls(lambda offset: offset % 2 == rest, transforms, run_id=run_id, between=between)


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


# -- Kafka's own ------------------------------------------------------------------------------------------------------


def _retention_follows(world: World, rng: random.Random) -> None:
    """Kafka deletes what the stream has read."""
    positions = [world.query.positions.get((TOPIC, p), 0) for p in range(len(world.topics[TOPIC].logs))]
    if not world.unread:
        world.expire(rng.randint(0, min(positions)))


def _retention_follows_an_audit(world: World, rng: random.Random) -> None:
    """Kafka deletes what an audit has judged."""
    audit(world)
    _retention_follows(world, rng)


def _retention_overtakes(world: World, rng: random.Random) -> None:
    """Kafka deletes what the stream has not read."""
    world.produce(rng.randint(2, 5))
    world.expire(max(world.query.positions.values(), default=0) + rng.randint(1, 4))
    if rng.random() < 0.3:
        audit(world)
    ran(1, world, count=rng.choice((0, 3)))


def _compaction(world: World, rng: random.Random) -> None:
    divisor = rng.choice((2, 3, 5))
    rest = rng.randrange(divisor)
    world.compact(lambda offset: offset % divisor == rest, unread=rng.random() < 0.7)


def _recreates_the_topic(world: World, rng: random.Random) -> None:
    if rng.random() < 0.5:
        world.produce(rng.randint(0, 3))
    world.recreate(refill=rng.choice((0, 3, 20, 60)))
    if rng.random() < 0.3:
        audit(world)
    if rng.random() < 0.4:
        world.new_checkpoint()
    ran(1, world, count=rng.choice((0, 5)))


def _reads_uncommitted(world: World, rng: random.Random) -> None:
    """From now on, whatever recon.yml says."""
    world.query.isolation = "read_uncommitted"
    world.produce(rng.randint(1, 4), transaction=rng.choice((None, "committed", "aborted")))
    world.micro_batch(most=rng.choice((None, 2)))


def _transaction_is_opened(world: World, rng: random.Random) -> None:
    """And ends at some later time, or never."""
    world.open_transaction(rng.randint(1, 4))
    world.produce(rng.randint(0, 2))
    ran(1, world, count=0)


def _partition_drops_out(world: World, rng: random.Random) -> None:
    """Of the query's plans. It stays out, or comes back where it was, at the beginning, or at the end."""
    where, topic = (TOPIC, 1), world.topics[TOPIC]
    world.query.left_out.add(where)
    world.tell(f"Partition {where[1]} drops out of the query's plans.")
    for _ in range(rng.randint(1, 2)):
        world.tick(hours=rng.choice((0, 2)))
        _ordinary(world, rng)
    back, at = rng.choice(("never", "where it was", "at the beginning", "at the end")), topic.logs[1]
    if back == "never" or world.query.positions.get(where, 0) > at.end:
        return
    world.query.left_out.discard(where)
    world.tell(f"It comes back, {back}.")
    if back == "at the beginning":
        world.query.positions[where] = at.start
    elif back == "at the end":
        world.comes_back(where, at.end if at.stable is None else at.stable)
    _ordinary(world, rng)


# -- what nobody learns -----------------------------------------------------------------------------------------------


def _isolation_level_is_unknown(world: World, _: random.Random) -> None:
    world.levels_known = False
    world.tell("From now on the hook does not learn the isolation level.")


def _broker_answers_no_hook(world: World, _: random.Random) -> None:
    world.states_known = False
    world.states.clear()
    world.tell("From now on the hook learns nothing from the broker.")


def _topic_ids_are_unknown(world: World, rng: random.Random) -> None:
    """For a while."""
    world.ids_known = False
    world.tell("The hook does not learn topic ids.")
    for _ in range(rng.randint(1, 2)):
        _ordinary(world, rng)
    if rng.random() < 0.2:
        world.recreate(refill=rng.choice((0, 40)))
        _ordinary(world, rng)
        world.acts.append("recreates_the_topic")
    world.ids_known = True
    world.tell("The hook learns topic ids again.")


def _files_carry_no_statistics(world: World, _: random.Random) -> None:
    world.statistics = False
    world.tell("From now on data files carry no statistics.")


# -- other programs, and other pipelines ------------------------------------------------------------------------------


def _stranger_appends_other_rows(world: World, rng: random.Random) -> None:
    world.append_as_stranger([("elsewhere", "id-e", 0, n) for n in range(rng.randint(1, 7))])


def _stranger_appends_unread_records(world: World, rng: random.Random) -> None:
    """The stream reads them later, some at a time; audits may come in between, and the log may be cleaned up."""
    world.produce(rng.randint(1, 4))
    topic = world.topics[TOPIC]
    unread = [
        (TOPIC, topic.topic_id, p, offset)
        for p, log in enumerate(topic.logs)
        for offset in range(world.query.positions.get((TOPIC, p), 0), log.end)
        if log.kinds[offset] == "record"
    ]
    if unread:
        world.append_as_stranger(rng.sample(unread, rng.randint(1, min(3, len(unread)))))
    if rng.random() < 0.6:
        _is_audited(world, rng)
    for _ in range(rng.randint(0, 2)):
        world.micro_batch(most=rng.choice((None, 1)))
        if rng.random() < 0.3:
            world.clean_log()
        if rng.random() < 0.3:
            audit(world)


def _stranger_fills_up(world: World, rng: random.Random) -> None:
    """By hand, what is lost; and once in a while a row too many."""
    lost = sorted(world.truth.lost, key=str)
    also = [rng.choice(world.rows).place] if world.rows and rng.random() < 0.3 else []
    if lost or also:
        world.append_as_stranger([*lost, *also])


def _elsewhere(world: World) -> Query:
    """Another pipeline, which reads another topic into our table."""
    world.topics.setdefault(ELSEWHERE, Topic(ELSEWHERE, "id-c", [Log()]))
    world.produce(3, topic=ELSEWHERE)
    end = world.topics[ELSEWHERE].logs[0].end - 3
    return Query(pipeline=ELSEWHERES_PIPELINE, query_id="q-70", topics=(ELSEWHERE,), positions={(ELSEWHERE, 0): end})


def _other_pipeline_reads_another_topic(world: World, rng: random.Random) -> None:
    """Somebody may delete a row of it: a loss of that pipeline, and none of ours."""
    with world.running(_elsewhere(world)):
        world.micro_batch()
    theirs = [row for row in world.rows if row.place[0] == ELSEWHERE]
    if theirs and rng.random() < 0.5:
        gone = rng.choice(theirs)
        world.delete(lambda row: row is gone)


def _other_pipeline_merges(world: World, rng: random.Random) -> None:
    if world.rows:
        chosen, loses = rng.choice(world.rows), rng.random() < 0.7
        world.merge_as(
            _elsewhere(world), lambda row: row.version == chosen.version, lambda row: loses and row is chosen
        )


# -- the ledger's table -----------------------------------------------------------------------------------------------


def _changed(world: World, parts: Iterable[pa.Table]) -> None:
    store = world.ledger.store
    assert isinstance(store, MemoryStore)
    store.put(list(parts))
    world.ledger = Ledger(store, world.ledger.results, world.ledger.proofs.store)


def _parts(world: World) -> list[pa.Table]:
    store = world.ledger.store
    assert isinstance(store, MemoryStore)
    return store.parts


def _puts_the_ledger_back(world: World, rng: random.Random) -> None:
    """A copy from before the last micro-batches. The hook restores what the table has, or the query goes on without."""
    copy = list(_parts(world))
    for _ in range(rng.randint(1, 2)):
        _ordinary(world, rng)
    _changed(world, copy)
    world.tell("The ledger is put back from a copy that is older than these micro-batches.")
    if rng.random() < 0.5:
        restores_entries(world)
    if rng.random() < 0.5:
        ran(1, world)


def restores_entries(world: World) -> None:
    """Entries of recon's own commits that have none."""
    entered = {(epoch, number) for epoch, number, _ in world.ledger.numbers(PIPELINE, SINK)}
    for version, commit in sorted(world.commits.items()):
        stamp = commit.stamp
        if stamp is None or stamp.pipeline != PIPELINE or stamp.epoch < 0:
            continue
        if (stamp.epoch, stamp.batch_id) not in entered:
            world.restore_entry(version)
            entered.add((stamp.epoch, stamp.batch_id))


def _edits_an_entry(world: World, rng: random.Random) -> None:
    """It covers other offsets or rows than it did, and keeps its hash."""
    parts = list(_parts(world))
    if not parts:
        return
    chosen = rng.randrange(len(parts))
    (row,) = parts[chosen].to_pylist()
    what = rng.choice(("start", "end", "rows"))
    for span in row["offsets"]:
        span["start_offset"] = max(0, span["start_offset"] - 3 * (what == "start"))
        span["end_offset"] += 3 * (what == "end")
    row["rows_written"] += what == "rows"
    parts[chosen] = pa.Table.from_pylist([row], schema=parts[chosen].schema)
    _changed(world, parts)
    world.tell(f"Somebody edits the ledger entry of micro-batch {row['batch_id']}: {what}.")


def _removes_an_entry(world: World, rng: random.Random) -> None:
    parts = list(_parts(world))
    if parts:
        (gone,) = parts.pop(rng.randrange(len(parts))).to_pylist()
        _changed(world, parts)
        world.tell(f"Somebody removes the ledger entry of micro-batch {gone['batch_id']}.")
        if gone["sequence"] > len(parts):  # docs/limits.md: of a call that was not written the sink has no record
            world.hidden |= world.told_by.get(gone["sequence"], set())


def _writes_the_ledger_anew(world: World, rng: random.Random) -> None:
    """Whole, so that all hashes fit; one of its entries begins three offsets earlier."""
    written = world.ledger.entries(PIPELINE, SINK)
    begun = [entry.sequence for entry in written if any(span.start_offset for span in entry.offsets)]
    if not begun:
        return
    chosen = rng.choice(begun)
    anew = memory_ledger()
    for entry in written:
        spans = tuple(s._replace(start_offset=max(0, s.start_offset - 3)) for s in entry.offsets)
        anew.append(replace(entry, offsets=spans) if entry.sequence == chosen else entry)
    world.ledger = Ledger(anew.store, world.ledger.results, world.ledger.proofs.store)
    world.tell(f"Somebody writes the ledger anew, with another range in entry {chosen}.")


# -- the query --------------------------------------------------------------------------------------------------------


def _stops_in_a_micro_batch(world: World, rng: random.Random) -> None:
    """Its driver dies, and it starts again with its next micro-batch, whatever happens in between."""
    world.produce(rng.randint(0, 5))
    world.crash(rng.choice(("write", "entry", "commit")))


def _starts_at_latest(world: World, rng: random.Random) -> None:
    world.produce(rng.randint(0, 4))
    ends = [log.end if log.stable is None else log.stable for log in world.topics[TOPIC].logs]
    world.new_checkpoint({(TOPIC, p): end for p, end in enumerate(ends)})
    ran(1, world)


def _writes_without_the_hook(world: World, rng: random.Random) -> None:
    world.produce(4)
    world.micro_batch(hook=False, lose=rng.choice(((), (1,))))


def _reader_loses(world: World, rng: random.Random) -> None:
    world.produce(5)
    world.micro_batch(lose=rng.sample(range(5), rng.randint(1, 2)), by="reader")


def _accepts(world: World, _: random.Random) -> None:
    """Somebody accepts all that is open, where it names every record that is lost or doubled."""
    audit(world)
    state, truth = world.ledger.proofs.newest(PIPELINE, SINK), world.truth
    if state is None:
        return
    lost = all(
        _is_named(place, [open_finding for open_finding in state.open if open_finding.is_loss]) for place in truth.lost
    )
    doubled = all(
        _is_named(place, [open_finding for open_finding in state.open if open_finding.is_doubling])
        for place in truth.doubled
    )
    if not (lost and doubled) or truth.phantom or not state.open:
        return
    by = Acceptance(by="Ada", reason="known", at=world.now)
    opened = tuple(
        open_finding if open_finding.accepted is not None else replace(open_finding, accepted=by)
        for open_finding in state.open
    )
    assert world.ledger.proofs.append(
        replace(state, open=opened), after=state.sequence, prev_hash=state.entry_hash, cause="accept", at=world.now
    )
    world.forgive()
    for p, log in enumerate(world.topics[TOPIC].logs):
        # Of a topic made anew, offsets that nobody reads are named before they are written.
        later = ((TOPIC, world.topics[TOPIC].topic_id, p, offset) for offset in range(log.end, log.end + 100))
        losses = [open_finding for open_finding in state.open if open_finding.is_loss]
        world.forgiven.lost.update(place for place in later if _is_named(place, losses))
    world.settled = set(world.acts) <= HARMLESS | LOSSES


def _puts_the_proof_back(world: World, rng: random.Random) -> None:
    """By one state, of which no audit's results say yet that it was there, or by several."""
    store = world.ledger.proofs.store
    assert isinstance(store, MemoryStore)
    if back := min(rng.choice((1, 1, 2, 4)), len(store.parts)):
        store.parts = store.parts[:-back]
        store.lengths = {chain: length - back for chain, length in store.lengths.items()}


def _is_named(place: Place, known: Sequence[OpenFinding]) -> bool:
    topic, topic_id, partition, offset = place
    of_place = [
        open_finding.spans
        for open_finding in known
        if open_finding.is_in(topic, partition) and open_finding.finding.topic_id in (None, topic_id)
    ]
    return any(start <= offset < end for spans in of_place for start, end in spans)


def _elects_a_leader(world: World, _: random.Random) -> None:
    for log in world.topics[TOPIC].logs:
        log.elect()
    ran(1, world)


def _elects_an_unclean_leader(world: World, rng: random.Random) -> None:
    if not world.states_known:
        return  # where nobody asked who leads, nothing shows the election (docs/limits.md, "Leader elections")
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
    "retention_follows_an_audit",
    "isolation_level_is_unknown",
    "broker_answers_no_hook",
    "compaction",
    "is_guarded",
    "transaction_is_opened",
    "stops_in_a_micro_batch",
    "stranger_appends_other_rows",
    "other_pipeline_reads_another_topic",
    "retention_deletes",
}

# Acts of which all is said once it is accepted: doubled rows are said anew where others are doubled beside them.
LOSSES = frozenset(
    {"skips", "swallows", "inflates", "sink_loses", "deletes", "removes_a_file", "retention_deletes_too_much"}
)

FAULTS: dict[str, Act] = {
    fault.__name__.strip("_"): fault
    for fault in (
        _skips,
        _edits_a_plan,
        _swallows,
        _is_guarded,
        _has_no_entry,
        _inflates,
        _loses_and_doubles,
        _sink_loses,
        _deletes,
        _retention_deletes,
        _retention_deletes_and_vacuums,
        _retention_deletes_too_much,
        _restores,
        _appends_again,
        _other_pipeline,
        _starts_over,
        _foreign_checkpoint,
        _commits_twice,
        _clock_jumps,
        _removes_a_file,
        _drops_the_table,
        _copies_the_table,
        _removes_the_table,
        _cleans_the_log,
        _optimizes,
        _compacts_and_loses,
        _crashes,
        _transaction_stays_open,
        _adds_a_partition,
        _purges_the_checkpoint,
        _sets_the_checkpoint_back,
        _calls_two_hooks,
        _filters,
        _sink_doubles,
        _rewrites,
        _repairs,
        _is_audited_in_part,
        _accepts,
        _puts_the_proof_back,
        _elects_a_leader,
        _elects_an_unclean_leader,
        _retention_follows,
        _retention_follows_an_audit,
        _retention_overtakes,
        _isolation_level_is_unknown,
        _broker_answers_no_hook,
        _topic_ids_are_unknown,
        _files_carry_no_statistics,
        _compaction,
        _recreates_the_topic,
        _reads_uncommitted,
        _transaction_is_opened,
        _partition_drops_out,
        _stranger_appends_other_rows,
        _stranger_appends_unread_records,
        _stranger_fills_up,
        _other_pipeline_reads_another_topic,
        _other_pipeline_merges,
        _puts_the_ledger_back,
        _edits_an_entry,
        _removes_an_entry,
        _writes_the_ledger_anew,
        _stops_in_a_micro_batch,
        _starts_at_latest,
        _writes_without_the_hook,
        _reader_loses,
    )
}


def _is_audited(world: World, rng: random.Random) -> None:
    """An audit; some lack a witness, run one check, look at a period, or judge all anew."""
    sources, only = rng.choice(
        (*((WorldSources, ()),) * 3, (WithoutSpark, ()), (WithoutKafka, ()), (WithoutSpark, ("delta_history",)))
    )
    audit(world, sources_of=sources, only=only, **_of_a_period(world, rng))
    world.tick(days=rng.choice((0, 1, 3)))


def _of_a_period(world: World, rng: random.Random) -> dict[str, Any]:
    """What an audit is asked for: mostly nothing, else --from, --to, both, or --full."""
    hours = (0, 1, 2, 24)
    from_, to = (world.now - timedelta(hours=rng.choice(hours), minutes=1) for _ in range(2))
    asked: Sequence[dict[str, Any]] = (
        *({},) * 6,
        {"full": True},
        {"from_": from_},
        {"to": to},
        {"to": world.now + timedelta(days=3)},
        {"from_": min(from_, to), "to": max(from_, to)},
    )
    return rng.choice(asked)


@dataclass(frozen=True)
class Step:
    """An act of a history, with the seed of its own choices."""

    name: str
    act: Act
    seed: int


@dataclass(frozen=True)
class Plan:
    """A history before it is told; `declared` is the isolation level that recon.yml has, and with which it begins."""

    seed: int
    declared: IsolationLevel
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Told:
    """What happened, the world after it, and what its last audit says."""

    plan: Plan
    world: World
    judgement: Judgement


def planned(seed: int) -> Plan:
    """The history of a seed, with none to three faults; some are audited on the way."""
    rng = random.Random(seed)
    faults = rng.sample(sorted(FAULTS), seed % 4)
    acts: list[tuple[str, Act]] = [("runs", _ordinary)] * rng.randint(2, 5)
    acts += [("new epoch", _new_epoch)] * (rng.random() < 0.2)
    audited = [("audited", _is_audited)] * rng.choice((0, 0, 1, 2, 3))
    rest = [*audited, *((name, FAULTS[name]) for name in faults)] + [("runs", _ordinary)] * 2
    rng.shuffle(rest)
    committed: list[IsolationLevel] = ["read_committed"] * 5
    declared = rng.choice([*committed, "read_uncommitted"])
    return Plan(seed, declared, tuple(Step(name, act, rng.getrandbits(64)) for name, act in [*acts, *rest]))


def told(plan: Plan, judge: Judge = audit) -> Told:
    """Plays a history, and asks for the answer at its end."""
    world = World(declared=plan.declared)
    for step in plan.steps:
        world.settled &= step.name in HARMLESS
        world.acts.append(step.name)
        step.act(world, random.Random(step.seed))
    world.tick(hours=2)
    return Told(plan, world, judge(world))


def history(seed: int) -> tuple[list[str], World, Judgement]:
    """What happened, by the names of the acts, the world after it, and what its last audit says."""
    outcome = told(planned(seed))
    return outcome.world.acts, outcome.world, outcome.judgement
