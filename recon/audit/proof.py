"""How an audit advances the proof of a sink: what it judged is added, what it found stays open. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from recon.audit import summary
from recon.audit.scope import Place, stretches
from recon.model import (
    RUNNING,
    CheckResult,
    Code,
    EntryHead,
    LedgerSlice,
    Level,
    Witnesses,
    known,
)
from recon.model.offsets import Spans
from recon.model.proof import CoveredRanges, OpenFinding, SinkProof, stays_open


def advance(
    before: SinkProof | None,
    sink: str,
    witnesses: Witnesses,
    results: Sequence[CheckResult],
    invocation_id: str,
) -> SinkProof | None:
    """The state after an audit of one sink; None where the audit proved nothing new about it, or not everything.

    An audit advances the proof where every check that "complete" rests on was evaluated for this sink; what such a
    check refuted, or could not decide, stays open. Nothing advances beyond what was judged: the position stops before
    a micro-batch that is in flight.

    Args:
        before: the state that the audit went on from.
        sink: the sink's name.
        witnesses: what the audit read.
        results: of the pipeline's checks.
        invocation_id: the audit's.
    """
    ledger = (known(witnesses.ledgers) or {}).get(sink)
    mine = [r for r in results if r.kind == "evidence" and r.sink in (None, sink) and r.check not in RUNNING]
    if ledger is None or not ledger.heads or not _whole(mine, sink):
        return None
    judged = ledger.heads[ledger.anchors :]
    settled = _settled(judged, mine)
    last = settled[-1] if settled else None
    if before is None and last is None:
        return None
    first = next((head for head in ledger.heads if not head.is_release), ledger.heads[0])
    tables = known(witnesses.delta) or {}
    table = tables.get(sink)
    moved = last is not None and (before is None or last.sequence > before.position)
    return SinkProof(
        pipeline=witnesses.pipeline,
        sink=sink,
        at=witnesses.now,
        invocation_id=invocation_id,
        position=last.sequence if last is not None and moved else before.position if before is not None else 0,
        chain_head=last.entry_hash if last is not None and moved else before.chain_head if before is not None else "",
        first_epoch=before.first_epoch if before is not None else first.epoch,
        first_batch_id=before.first_batch_id if before is not None else first.batch_id,
        unwitnessed=(before is not None and before.unwitnessed)
        or any(f.code is Code.UNWITNESSED for r in mine for f in r.findings),
        table_version=table.last if table is not None else None,
        coverage=_covered(before, ledger, len(settled)),
        open=tuple(_open(before, mine, witnesses.now)),
    )


def _whole(results: Sequence[CheckResult], sink: str) -> bool:
    """Whether every check was evaluated, and among them all that a proof rests on."""
    of_sink = {r.check: looked(r) for r in results if r.sink == sink}
    return summary.proved_by(of_sink) and all(looked(r) for r in results)


def looked(result: CheckResult) -> bool:
    """Whether a check saw all that it needed; one with findings that nothing could decide did."""
    if result.evidence.keys() & {"unread", "probe"}:
        return False
    if result.status == "error":
        return any(f.level is Level.UNPROVED for f in result.findings)
    return result.status != "skipped"


def _settled(judged: Sequence[EntryHead], results: Iterable[CheckResult]) -> Sequence[EntryHead]:
    """The judged entries before the first one that is in flight."""
    open_ = {
        (f.epoch, f.batch_id) for r in results for f in r.findings if f.code is Code.INFLIGHT and f.batch_id is not None
    }
    for place, head in enumerate(judged):
        if (head.epoch, head.batch_id) in open_ or (None, head.batch_id) in open_:
            return judged[:place]
    return judged


def _covered(before: SinkProof | None, ledger: LedgerSlice, settled: int) -> tuple[CoveredRanges, ...]:
    """What the entries up to the new position account for, besides what was known."""
    ranges: dict[Place, list[tuple[int, int]]] = {}
    for covered in before.coverage if before is not None else ():
        ranges[covered.source, covered.topic, covered.topic_id, covered.partition] = list(covered.ranges)
    for place, stretch in stretches(ledger.ranges, ledger.anchors + settled):
        ranges.setdefault(place, []).append(stretch)
    return tuple(
        CoveredRanges(source=s, topic=t, topic_id=i, partition=p, ranges=tuple((a, b) for a, b in Spans.of(spans)))
        for (s, t, i, p), spans in sorted(ranges.items(), key=lambda item: (item[0][0], item[0][1], item[0][3]))
    )


def _open(before: SinkProof | None, results: Sequence[CheckResult], now: datetime) -> list[OpenFinding]:
    """What is open after an audit: its own findings, and earlier ones that no check of it could look at."""
    earlier = list(before.open) if before is not None else []
    ran = {r.check for r in results}
    found = [(r.check, f) for r in results for f in r.findings if stays_open(r.check, f)]
    kept = [one for one in earlier if one.accepted is not None or one.check not in ran]
    for check, reported in found:
        # Each audit adds the age to the message anew; a finding without a place is known by its message.
        since = next((one.since for one in earlier if reported.message.endswith(one.since)), "")
        finding = replace(reported, message=reported.message.removesuffix(since))
        known_as = [one for one in earlier if one.check == check and one.accepted is None and one.includes(finding)]
        first_seen = min((one.first_seen for one in known_as), default=now)
        kept.append(OpenFinding(finding=finding, check=check, first_seen=first_seen, last_seen=now))
    return kept
