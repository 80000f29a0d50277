"""`recon repair apply` in a `World`: the real plan, from the real proof and ledger, carried out on rows in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any, Literal

from recon.model import REMOVALS, REPAIRS, ReconStamp, offsets_text, parse_offsets
from recon.model.offsets import OffsetSpan, Spans
from recon.model.proof import with_id
from recon.model.wire.app_ids import app_id
from recon.recovery.repair.plan import PlannedRange, RepairPlan, planned, without
from recon.recovery.topic_clusters import clusters_of
from tests.truth.judge import WorldSources
from tests.truth.world import NOT_COUNTED, PIPELINE, SINK, TOPIC, Place, Row, World

Crash = Literal["write", "entry"]


def repair(
    world: World,
    *,
    finding: str | None = None,
    crash: Crash | None = None,
    lose: Collection[int] = (),
    blindly: bool = False,
    both: bool = False,
) -> RepairPlan:
    """Repairs what is open.

    Args:
        world: the world.
        finding: only this one, by its id.
        crash: where the process ends: before its commit, or before its ledger entry.
        lose: places among the rows read again that are not written.
        blindly: whether rows that are there already are written, too, as a broken repair would.
        both: whether every row of a doubled offset is removed, as a DELETE would.
    """
    world.tick()
    finish(world)
    plan = repair_plan(world, finding)
    if crash != "write":
        entered = crash != "entry"
        _read_again(world, plan.of("read"), lose, blindly, entered)
        _remove(world, plan.of("remove"), both, entered)
    return plan


def repair_plan(world: World, finding: str | None = None) -> RepairPlan:
    """What `recon repair plan` shows."""
    state = world.ledger.proofs.newest(PIPELINE, SINK)
    ledger = world.ledger.slice(PIPELINE, SINK)
    sources = WorldSources(world)
    kafka = sources.kafka(sorted({name for _, name, _ in ledger.ranges.topics} | {TOPIC}), {}, {})
    clusters = clusters_of(world.ledger, sources.pipeline, kafka)
    opened = state.open if state is not None else ()
    chosen = opened if finding is None else with_id(opened, finding)
    return planned(ledger, state.position if state is not None else 0, chosen, kafka, clusters=clusters)


def finish(world: World) -> None:
    """Adds the entries of repairs that were interrupted behind their commit."""
    entered = {(epoch, number) for epoch, number, _ in world.ledger.numbers(PIPELINE, SINK)}
    for version, commit in sorted(world.commits.items()):
        stamp = commit.stamp
        if stamp is None or stamp.epoch >= -1 or (stamp.epoch, stamp.batch_id) in entered:
            continue
        unknown = {**NOT_COUNTED, "rows_read": stamp.rows_read, "rows_filtered": stamp.filtered}
        made: dict[str, Any] = {"status": "rebuilt", "rows_removed": stamp.removed, **unknown}
        spans = parse_offsets(stamp.offsets_text)
        world.enter(stamp, spans, read=(), returned=(), written=commit.rows_taken or 0, version=version, **made)


def _read_again(
    world: World, ranges: Iterable[PlannedRange], lose: Collection[int], blindly: bool, entered: bool
) -> None:
    present: dict[tuple[str, int], Spans] = {}
    for row in () if blindly else world.rows:
        where = (row.place[0], row.place[2])
        present[where] = present.get(where, Spans()).union(Spans.of_offsets([row.place[3]]))
    missing = without(list(ranges), present)
    if not missing:
        return
    spans = [planned_range.span for planned_range in missing]
    read: list[tuple[Place, int | None]] = []
    for planned_range in missing:
        topic = world.topics[planned_range.topic]
        log = topic.logs[planned_range.partition]
        kinds = ("record",) if world.declared == "read_committed" else ("record", "aborted")
        read += [
            ((planned_range.topic, topic.topic_id, planned_range.partition, offset), planned_range.batch_id)
            for offset in range(planned_range.start_offset, planned_range.end_offset)
            if log.kinds[offset] in kinds and offset >= log.start and offset not in log.compacted
        ]
    filters, makes = world.query.filters, world.query.makes
    kept = [record for record in read if not filters(record[0][3]) for _ in range(makes(record[0][3]))]
    dropped = {place for place, _ in read} - {place for place, _ in kept}
    # The transform of now decides, also of what it would have kept when the micro-batch was read.
    world.expected -= dropped
    written = [record for i, record in enumerate(kept) if i not in lose]
    stamp = replace(_stamp(world, REPAIRS, spans), read=len(read), filtered=len(dropped))
    version = world.commit("WRITE", added=len(written), stamp=stamp, txn=_txn(stamp))
    world.rows += [Row(version, PIPELINE, REPAIRS, batch, place) for place, batch in written]
    if entered:
        places, returned = [place for place, _ in read], [place for place, _ in kept]
        world.enter(
            stamp, spans, read=places, returned=returned, written=len(written), version=version, status="repaired"
        )


def _remove(world: World, ranges: Iterable[PlannedRange], both: bool, entered: bool) -> None:
    ranges = list(ranges)
    owner = {
        (planned_range.topic, planned_range.partition, offset): planned_range.batch_id
        for planned_range in ranges
        for offset in range(planned_range.start_offset, planned_range.end_offset)
    }
    inside = [row for row in world.rows if (row.place[0], row.place[2], row.place[3]) in owner]
    counts = Counter(row.place for row in inside)
    doubled = {place for place, count in counts.items() if count > 1}
    if not doubled:
        return
    keep: dict[Place, Row] = {}
    for row in inside:
        mine = owner[row.place[0], row.place[2], row.place[3]]
        if row.place in doubled and (row.place not in keep or row.batch_id == mine):
            keep[row.place] = row
    removed = sum(counts[place] for place in doubled)
    spans = [planned_range.span for planned_range in ranges]
    stamp = replace(_stamp(world, REMOVALS, spans), taken=len(keep), removed=removed, held=len(counts))
    metrics = {"numTargetRowsDeleted": removed, "numTargetRowsInserted": len(keep), "numTargetRowsUpdated": 0}
    version = world.commit(
        "MERGE",
        added=0 if both else len(keep),
        removed=removed,
        stamp=stamp,
        txn=_txn(stamp),
        operation_metrics={name: str(0 if both and "Inserted" in name else n) for name, n in metrics.items()},
    )
    world.rows = [row for row in world.rows if row.place not in doubled]
    if not both:
        world.rows += [Row(version, row.pipeline, row.epoch, row.batch_id, row.place) for row in keep.values()]
    if entered:
        world.enter(
            stamp,
            spans,
            read=(),
            returned=(),
            written=len(keep),
            version=version,
            status="repaired",
            **{**NOT_COUNTED, "rows_read": len(counts), "rows_removed": removed, "rows_filtered": 0},
        )


def _stamp(world: World, epoch: int, spans: Iterable[OffsetSpan]) -> ReconStamp:
    taken = {number for of, number, _ in world.ledger.numbers(PIPELINE, SINK) if of == epoch}
    taken |= {c.stamp.batch_id for c in world.commits.values() if c.stamp is not None and c.stamp.epoch == epoch}
    return ReconStamp(
        pipeline=PIPELINE,
        sink=SINK,
        epoch=epoch,
        batch_id=1 + max(taken, default=-1),
        query_id="repair-1",
        run_id=None,
        prev_hash=world.ledger.head_hash(PIPELINE, SINK),
        offsets_text=offsets_text(spans),
        number=1 + sum(c.stamp is not None and c.stamp.pipeline == PIPELINE for c in world.commits.values()),
    )


def _txn(stamp: ReconStamp) -> dict[str, int]:
    return {app_id(PIPELINE, SINK): stamp.number or 0}
