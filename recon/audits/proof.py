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
from recon.judge.history import database_counts as counts
from recon.judge.history.foreign_rows import to_remember
from recon.judge.history.quarantine_log import quarantine_judged
from recon.judge.history.row_balance import rows_to_remember
from recon.judge.kafka.topic_ids import with_topic_ids
from recon.model import (
    RUNNING,
    CheckResult,
    Code,
    DeltaWitness,
    EntryHead,
    LedgerSlice,
    Level,
    Witnesses,
    known,
)
from recon.model.offsets import Spans
from recon.model.proof import (
    MOST_WITHOUT_RECORD,
    OF_UNREAD_RANGES,
    CoveredRanges,
    FindingPlace,
    LogJudged,
    OffsetsWithoutRecord,
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

    An audit advances the proof where every check that "complete" rests on was evaluated for this sink; what such a
    check refuted, or could not decide, stays open. Nothing advances beyond what was judged: the position stops before
    a micro-batch that is in flight. Of an audit that could not evaluate them all, what it refuted stays open alone:
    the next one judges the same entries again, and may answer the questions.

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
    before = with_topic_ids(before, replace(witnesses, sink=sink)) if before is not None else None
    if not _whole(mine, sink):
        return _with_refuted(before, ledger, mine, witnesses, invocation_id)
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
    table = (known(witnesses.delta) or {}).get(sink)
    covered, of_sink = _covered(before, ledger, len(settled)), replace(witnesses, sink=sink)
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
        unwitnessed=(begun is not None and begun.unwitnessed)
        or any(f.code is Code.UNWITNESSED for r in mine for f in r.findings),
        filtered=(before is not None and before.filtered) or any(head.rows_filtered for head in settled),
        table_id=table.table_id if table is not None else None,
        table_version=table.last if table is not None else None,
        table_rows=_rows(before, table, of_sink),
        other_rows=counts.other_rows(of_sink),
        table=counts.table_judged(of_sink),
        quarantine=quarantine_judged(ledger, witnesses),
        of_others=to_remember(before, of_sink, covered),
        without_record=_without_record(before, mine, witnesses.isolation_level),
        coverage=covered,
        logs=_logs(before, ledger, covered, witnesses, doubted=_is_log_doubted(mine)),
        open=opened,
    )


def advances(sink: str, witnesses: Witnesses, results: Sequence[CheckResult]) -> bool:
    """Whether every check of a sink was evaluated, so that what an audit could not decide of it stays open, too."""
    return refutes(sink, witnesses) and _whole(_of_sink(results, sink), sink)


def refutes(sink: str, witnesses: Witnesses) -> bool:
    """Whether what an audit refuted of a sink stays open: it read entries, and all since those judged before."""
    ledger = (known(witnesses.ledgers) or {}).get(sink)
    return ledger is not None and bool(ledger.heads) and _joins(witnesses.proofs.of_sink.get(sink), ledger)


def _with_refuted(
    before: SinkProof | None,
    ledger: LedgerSlice,
    results: Sequence[CheckResult],
    witnesses: Witnesses,
    invocation_id: str,
) -> SinkProof | None:
    """The state before, with what an audit saw that did not evaluate every check; None where that is nothing new.

    That is what it refuted, and which offsets have no record. What was open stays so, also what the audit saw repaired:
    the next one that advances the proof sees it again.
    """
    earlier, now = before.open if before is not None else (), witnesses.now
    refuted = [one for one in _found(earlier, results, now) if one.finding.level is Level.FAIL]
    without_record = _without_record(before, results, witnesses.isolation_level)
    if not refuted and without_record == (before.without_record if before is not None else ()):
        return None
    opened = _by_place(earlier)
    for one in refuted:
        there = opened[one.check, place_of(one.finding)]
        if any(other.accepted is None and other.includes(one.finding) for other in there):
            known_as = [o for o in there if o.accepted is None and o.includes(one.finding)]
            there[:] = [replace(o, last_seen=now) if o in known_as else o for o in there]
            continue
        within = [other for other in there if other.accepted is None and one.includes(other.finding)]
        first_seen = min(other.first_seen for other in (one, *within))
        there[:] = [*(other for other in there if other not in within), replace(one, first_seen=first_seen)]
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
    return replace(before, invocation_id=invocation_id, open=opened_now, without_record=without_record)


def _by_place(found: Iterable[OpenFinding]) -> defaultdict[tuple[str, FindingPlace], list[OpenFinding]]:
    """Findings by their check and place."""
    places: defaultdict[tuple[str, FindingPlace], list[OpenFinding]] = defaultdict(list)
    for one in found:
        places[one.check, place_of(one.finding)].append(one)
    return places


def _first(ledger: LedgerSlice) -> EntryHead:
    """The first micro-batch of a slice that has entries; the first entry where it has none."""
    return next((head for head in ledger.heads if head.is_micro_batch), ledger.heads[0])


def _of_sink(results: Sequence[CheckResult], sink: str) -> list[CheckResult]:
    return [r for r in results if r.kind == "evidence" and r.sink in (None, sink) and r.check not in RUNNING]


def _rows(before: SinkProof | None, table: DeltaWitness | None, witnesses: Witnesses) -> tuple[int, int] | None:
    """How many rows the table has at its newest version; what was known before where this audit cannot tell."""
    rows = rows_to_remember(witnesses) if table is not None else None
    if rows is None or table is None or table.last is None:
        return before.table_rows if before is not None else None
    return table.last, rows


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
    if _is_log_doubted(results):
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


def _is_log_doubted(results: Sequence[CheckResult]) -> bool:
    """Whether it is not known if Kafka's log is the one that was read."""
    findings = [f for r in results for f in r.findings]
    return any(f.level is Level.UNPROVED and f.topic is not None and f.span is None for f in findings)


def _logs(
    before: SinkProof | None,
    ledger: LedgerSlice,
    covered: Sequence[CoveredRanges],
    witnesses: Witnesses,
    *,
    doubted: bool,
) -> tuple[LogJudged, ...]:
    """The logs as Kafka describes them now, up to what was read of them; of the others what was known before.

    Where it is doubted that they are the ones that were read, the question stays, and the logs of now are added: the
    next election is another question.
    """
    known_before = before.logs if before is not None else ()
    if doubted:
        covered = _covered(before, ledger, len(ledger.heads) - ledger.anchors)
    seen = _logs_now({_leader(log): log.position for log in known_before}, covered, witnesses)
    if doubted:
        leaders = set(map(_leader, known_before))
        return (*known_before, *(log for log in seen.values() if _leader(log) not in leaders))
    return (*(log for log in known_before if _leader(log)[:3] not in seen), *seen.values())


def _leader(log: LogJudged) -> tuple[str, str | None, int, int]:
    return log.topic, log.topic_id, log.partition, log.leader_epoch


def _logs_now(
    positions: Mapping[tuple[str, str | None, int, int], int], covered: Sequence[CoveredRanges], witnesses: Witnesses
) -> Mapping[tuple[str, str | None, int], LogJudged]:
    """The logs that Kafka has of what was covered; `positions` are known already, by leader epoch."""
    logs: dict[tuple[str, str | None, int], LogJudged] = {}
    for one in covered:
        topic = witnesses.topic(one.topic)
        partition = topic.partitions.get(one.partition) if topic is not None else None
        if topic is None or partition is None or partition.leader_epoch is None or topic.topic_id != one.topic_id:
            continue
        place, position = (one.topic, one.topic_id, one.partition), one.ranges[-1][1] if one.ranges else 0
        position = max(position, positions.get((*place, partition.leader_epoch), 0))
        if place in logs:
            position = max(position, logs[place].position)  # another source of the query may have come further
        logs[place] = LogJudged(
            topic=one.topic,
            topic_id=one.topic_id,
            partition=one.partition,
            leader_epoch=partition.leader_epoch,
            position=min(position, partition.high_watermark),
            open_transactions=(partition.last_stable, partition.high_watermark)
            if partition.last_stable < partition.high_watermark
            else None,
        )
    return logs


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


def _without_record(
    before: SinkProof | None, results: Sequence[CheckResult], isolation_level: str
) -> tuple[OffsetsWithoutRecord, ...]:
    """The ranges that no micro-batch with an entry read, and of which audits saw that they have no record."""
    known_empty = before.without_record if before is not None else ()
    ranges = {(o.topic, o.topic_id, o.partition, o.isolation_level): list(o.ranges) for o in known_empty}
    for found in (f for r in results if r.check in OF_UNREAD_RANGES for f in r.findings):
        if found.code is Code.EXPLAINED and found.span and found.topic is not None and found.partition is not None:
            where = (found.topic, found.topic_id, found.partition, isolation_level)
            ranges.setdefault(where, []).append(found.span)
    return tuple(
        OffsetsWithoutRecord(
            topic=topic,
            topic_id=topic_id,
            partition=partition,
            isolation_level=level,
            ranges=tuple((start, end) for start, end in Spans.of(spans))[-MOST_WITHOUT_RECORD:],
        )
        for (topic, topic_id, partition, level), spans in sorted(
            ranges.items(), key=lambda item: (item[0][0], item[0][2])
        )
    )


def _open(before: SinkProof | None, results: Sequence[CheckResult], now: datetime) -> list[OpenFinding]:
    """What is open after an audit: its own findings, and earlier ones that no check of it could look at."""
    earlier = before.open if before is not None else ()
    ran = {r.check for r in results}
    kept = [one for one in earlier if one.accepted is not None or one.check not in ran]
    return [*kept, *_found(earlier, results, now)]


def _found(earlier: Sequence[OpenFinding], results: Sequence[CheckResult], now: datetime) -> Iterator[OpenFinding]:
    """What an audit found that stays open, known since the audit that first found it."""
    places = _by_place(earlier)
    for check, reported in ((r.check, f) for r in results for f in r.findings if stays_open(r.check, f)):
        finding = reported.as_said  # each audit adds the age to the message anew
        known_as = [one for one in places[check, place_of(finding)] if one.accepted is None and one.includes(finding)]
        first_seen = min((one.first_seen for one in known_as), default=now)
        id_ = next((kept for one in known_as if (kept := one.keeps_id(finding))), "")
        yield OpenFinding(finding=finding, check=check, first_seen=first_seen, last_seen=now, known_as=id_)
