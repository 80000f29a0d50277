"""How an audit advances the proof of a sink: what it judged is added, what it found stays open. No I/O.

An audit in which a check could not be evaluated advances nothing, and what it refuted stays open all the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import chain

from recon.audits import summary
from recon.audits.scope import Place, stretches
from recon.judge.kafka.judged_logs import is_log_doubted
from recon.judge.kafka.topic_ids import with_topic_ids
from recon.judge.memories import remembered
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
from recon.model.memory import SinkAudit
from recon.model.offsets import Spans
from recon.model.proof import (
    CoveredRanges,
    FindingPlace,
    OpenFinding,
    SinkProof,
    place_of,
    stays_open,
)


def advance(
    before: SinkProof | None,
    sink: str,
    witnesses: Witnesses,
    results: Sequence[CheckResult],
    invocation_id: str,
) -> SinkProof | None:
    """The state after an audit of one sink; None where there is nothing new to remember of it.

    An audit advances the proof where every check that "complete" needs was evaluated for this sink. What such a check
    refuted, or could not decide, stays open. Nothing advances beyond what was judged: the position stops before a
    micro-batch that is in flight. Where not all of these checks could be evaluated, only what was refuted stays open:
    the next audit judges the same entries again.

    Args:
        before: the state that the audit went on from.
        sink: the sink's name.
        witnesses: what the audit read.
        results: of the pipeline's checks.
        invocation_id: the audit's.
    """
    ledger = (known(witnesses.ledgers) or {}).get(sink)
    mine = _of_sink(results, sink)
    if ledger is None or not refutes(sink, witnesses):
        return None
    witnesses = replace(witnesses, sink=sink)
    before = with_topic_ids(before, ledger) if before is not None else None
    audit = SinkAudit(before=before, ledger=ledger, witnesses=witnesses, results=mine)
    if not _whole(mine, sink):
        return _with_refuted(audit, invocation_id)
    settled = _settled(ledger, mine, witnesses)
    ends = [(before.position, before.chain_head, before.committed_at)] if before is not None else []
    ends += [(head.sequence, head.entry_hash, head.committed_at) for head in settled[-1:]]
    opened = tuple(_open(before, mine, witnesses.now))
    if not ends and not opened:
        return None
    # Before anything is settled, a state holds what is open, so that it can be accepted.
    position, chain_head, committed_at = max(ends, key=lambda end: end[0], default=(0, "", None))
    first = _first(ledger)
    begun = before if before is not None and before.position else None
    judged, covered = len(ledger.heads) - ledger.anchors, _covered(before, ledger, len(settled))
    read = covered if len(settled) == judged else _covered(before, ledger, judged)
    return SinkProof(
        pipeline=witnesses.pipeline,
        sink=sink,
        at=witnesses.now,
        invocation_id=invocation_id,
        position=position,
        chain_head=chain_head,
        committed_at=committed_at,
        first_epoch=begun.first_epoch if begun is not None else first.epoch,
        first_batch_id=begun.first_batch_id if begun is not None else first.batch_id,
        coverage=covered,
        memories=remembered(replace(audit, settled=settled, coverage=covered, read=read), whole=True),
        open=opened,
    )


def advances(sink: str, witnesses: Witnesses, results: Sequence[CheckResult]) -> bool:
    """Whether every check of a sink was evaluated, so that what an audit could not decide of it stays open, too."""
    return refutes(sink, witnesses) and _whole(_of_sink(results, sink), sink)


def refutes(sink: str, witnesses: Witnesses) -> bool:
    """Whether what an audit refuted of a sink stays open: it read entries, and all since those judged before."""
    ledger = (known(witnesses.ledgers) or {}).get(sink)
    return ledger is not None and bool(ledger.heads) and _joins(witnesses.proofs.of_sink.get(sink), ledger)


def _with_refuted(audit: SinkAudit, invocation_id: str) -> SinkProof | None:
    """The state before, with what an audit saw that did not evaluate every check; None where that is nothing new.

    That is what it refuted, and what any audit remembers. What was open stays so, also what the audit saw repaired:
    the next one that advances the proof sees it again.
    """
    before, ledger, now = audit.before, audit.ledger, audit.witnesses.now
    earlier = before.open if before is not None else ()
    refuted = [found for found in _found(earlier, audit.results, now) if found.finding.level is Level.FAIL]
    memories = remembered(audit, whole=False)
    if not refuted and memories == (before.memories if before is not None else {}):
        return None
    opened = _by_place(earlier)
    for found in refuted:
        there = opened[found.check, place_of(found.finding)]
        if known_as := [o for o in there if o.accepted is None and o.includes(found.finding)]:
            there[:] = [replace(o, last_seen=now) if o in known_as else o for o in there]
            continue
        within = [other for other in there if other.accepted is None and found.includes(other.finding)]
        first_seen = min(other.first_seen for other in (found, *within))
        there[:] = [*(other for other in there if other not in within), replace(found, first_seen=first_seen)]
    if before is None:
        first = _first(ledger)
        before = SinkProof(
            pipeline=ledger.pipeline,
            sink=ledger.sink,
            at=now,
            invocation_id=invocation_id,
            position=0,
            chain_head="",
            first_epoch=first.epoch,
            first_batch_id=first.batch_id,
        )
    opened_now = tuple(chain.from_iterable(opened.values()))
    return replace(before, invocation_id=invocation_id, open=opened_now, memories=memories)


def _by_place(found: Iterable[OpenFinding]) -> defaultdict[tuple[str, FindingPlace], list[OpenFinding]]:
    """Findings by their check and place."""
    places: defaultdict[tuple[str, FindingPlace], list[OpenFinding]] = defaultdict(list)
    for open_finding in found:
        places[open_finding.check, place_of(open_finding.finding)].append(open_finding)
    return places


def _first(ledger: LedgerSlice) -> EntryHead:
    """The first micro-batch of a slice that has entries; the first entry where it has none."""
    return next((head for head in ledger.heads if head.is_micro_batch), ledger.heads[0])


def _of_sink(results: Sequence[CheckResult], sink: str) -> list[CheckResult]:
    return [r for r in results if r.kind == "evidence" and r.sink in (None, sink) and r.check not in RUNNING]


def _whole(results: Sequence[CheckResult], sink: str) -> bool:
    """Whether every check was evaluated, and among them all that a proof rests on."""
    of_sink = {r.check: looked(r) for r in results if r.sink == sink}
    return summary.proved_by(of_sink) and all(looked(r) for r in results)


def _joins(before: SinkProof | None, ledger: LedgerSlice) -> bool:
    """Whether no entry lies between those judged before and those judged now."""
    judged = ledger.heads[ledger.anchors :]
    return ledger.complete or (before is not None and (not judged or judged[0].sequence <= before.position + 1))


def looked(result: CheckResult) -> bool:
    """Whether a check saw all that it needed; one with findings that nothing could decide did."""
    if result.evidence.keys() & {"unread", "probe"}:
        return False
    if result.status == "error":
        return any(f.level is Level.UNPROVED for f in result.findings)
    return result.status != "skipped"


def _settled(ledger: LedgerSlice, results: Sequence[CheckResult], witnesses: Witnesses) -> Sequence[EntryHead]:
    """The judged entries before the first one that a later audit has to judge again.

    That is one in flight, or one that read records of a transaction which is still open. While it is not known whether
    Kafka's log is the one that was read, it is every entry.
    """
    judged = ledger.heads[ledger.anchors :]
    findings = [f for r in results for f in r.findings]
    if is_log_doubted(results):
        return ()
    open_ = {(f.epoch, f.batch_id) for f in findings if f.code is Code.INFLIGHT and f.batch_id is not None}
    undecided = _undecided(ledger, witnesses)
    for place, head in enumerate(judged):
        if (head.epoch, head.batch_id) in open_ or (None, head.batch_id) in open_:
            return judged[:place]
        if undecided and head.isolation_level != "read_committed":
            ranges = ledger.ranges.of(ledger.anchors + place)
            if any(read.end_offset > undecided.get((read.topic, read.partition), read.end_offset) for read in ranges):
                return judged[:place]
    return judged


def _undecided(ledger: LedgerSlice, witnesses: Witnesses) -> Mapping[tuple[str, int], int]:
    """By topic partition with an open transaction, the offset from which its records may still be aborted."""
    topics = {name: witnesses.topic(name) for _, name, _ in ledger.ranges.topics}
    return {
        (name, number): partition.last_stable
        for name, topic in topics.items()
        if topic is not None and topic.exists
        for number, partition in topic.partitions.items()
        if partition.last_stable < partition.high_watermark
    }


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
    earlier = before.open if before is not None else ()
    ran = {r.check for r in results}
    kept = [
        open_finding for open_finding in earlier if open_finding.accepted is not None or open_finding.check not in ran
    ]
    return [*kept, *_found(earlier, results, now)]


def _found(earlier: Sequence[OpenFinding], results: Sequence[CheckResult], now: datetime) -> Iterator[OpenFinding]:
    """What an audit found that stays open, known since the audit that first found it."""
    places = _by_place(earlier)
    for check, reported in ((r.check, f) for r in results for f in r.findings if stays_open(r.check, f)):
        finding = reported.as_said  # each audit adds the age to the message anew
        known_as = [
            open_finding
            for open_finding in places[check, place_of(finding)]
            if open_finding.accepted is None and open_finding.includes(finding)
        ]
        first_seen = min((open_finding.first_seen for open_finding in known_as), default=now)
        id_ = next((kept for open_finding in known_as if (kept := open_finding.keeps_id(finding))), "")
        yield OpenFinding(finding=finding, check=check, first_seen=first_seen, last_seen=now, known_as=id_)
