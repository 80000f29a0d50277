"""Summarises witnesses and results for reports: the answer, the coverage picture, rows per batch. No I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from recon.audits import scope
from recon.base.counts import sum_of
from recon.base.lazy import np
from recon.model import (
    RUNNING,
    Answer,
    BatchPoint,
    CheckResult,
    Code,
    CoverageCell,
    EntryHead,
    Finding,
    KafkaPartition,
    KafkaWitness,
    LedgerSlice,
    Level,
    PartitionFacts,
    PipelineFacts,
    SinkFacts,
    Witnesses,
    known,
)
from recon.model.grouping import grouped
from recon.model.incident import HARMS
from recon.model.ledger import sortable
from recon.model.positions import SourceKind, is_kafka
from recon.model.proof import Proofs, told_of_gone
from recon.project import Pipeline, Project, Sink

if TYPE_CHECKING:
    import numpy.typing as npt

# "complete" needs one check of each group: hashes match, ranges join, commits exist, rows add up. Where the sink is no
# Delta table, its own history or record takes the place of the Delta log.
PROOF = (
    ("ledger_integrity",),
    ("offset_continuity",),
    ("checkpoint_commits",),
    ("delta_history", "iceberg_history", "sink_commits"),
    ("source_rows",),
)

# Of a query that reads a Delta table, only its log shows which commits gave rows again, or none.
# The check that "complete" also needs where the query reads no Kafka, and the unit in which it is then said.
_OF_SOURCE: Mapping[SourceKind, tuple[str, str]] = {
    "a Delta table": ("source_table", "version"),
    "a folder of files": ("source_files", "file"),
}
_UNSEEN = "a row that is lost while another is doubled in the same micro-batch does not show"
_NO_PROOFS = Proofs()
_POINTS = 200  # of the chart of rows, at most
_BUCKETS = 60  # of micro-batches in the picture of a partition, at most
_State = Literal["covered", "gap", "overlap", "lost", "in flight"]
_WORST_FIRST: tuple[_State, ...] = ("lost", "gap", "overlap")
_STATES: Mapping[Code, _State] = {
    Code.GAP: "gap",
    Code.SKIPPED: "lost",
    Code.LOSS: "lost",
    Code.LOSS_RETENTION: "lost",
    Code.OVERLAP: "overlap",
    Code.DUPLICATE: "overlap",
}


def answer(
    results: Sequence[CheckResult],
    sinks: Iterable[str],
    proofs: Proofs = _NO_PROOFS,
    speaks_of: str = "",
    *,
    reads: SourceKind = "Kafka",
) -> tuple[Answer, str]:
    """A pipeline's answer and the sentence behind it, from its evidence checks alone, without those of `RUNNING`.

    A refutation makes it "not complete", whatever severity the check has; so does one of an earlier audit that is still
    open. The sentence is of the worst refutation: records that nobody can read any more come first. "complete" needs
    every check of `PROOF` to have passed for every sink. Anything less could not be proved. `speaks_of` names the
    micro-batches that "complete" speaks of. Where the query `reads` a Delta table or files, the check of that source is
    needed, too.
    """
    evidence = [r for r in results if r.kind == "evidence" and r.check not in RUNNING]
    waiting = unanswered(evidence, proofs)
    refuted = [f for r in evidence for f in r.findings if f.level is Level.FAIL]
    refuted += [finding for finding in waiting if finding.level is Level.FAIL]
    if refuted:
        first, *others = sorted(refuted, key=lambda finding: HARMS.index(finding.harm))
        counts = Counter(str(finding.code) for finding in others)
        also = "; also " + ", ".join(f"{count} {code}" for code, count in counts.most_common()) if others else ""
        return "not complete", f"{first.code}: {first.message}{also}"
    for result in evidence:
        if result.status == "fail":
            return "not complete", f"{result.name}: {result.message}"
    for sink in sinks:
        missing = lacking(evidence, sink, reads)
        if missing:
            return "could not be proved", f"{', '.join(missing)} did not run for sink {sink}"
    unproved = [f"{r.name}: {r.message}" for r in evidence if r.status in ("error", "skipped")]
    unproved += [f"{finding.code}: {finding.message}" for finding in waiting]
    if unproved:
        return "could not be proved", unproved[0]
    read = _OF_SOURCE[reads][1] if reads in _OF_SOURCE else "offset"
    return "complete", f"Every {read} of {speaks_of or 'what the stream has read so far'} is accounted for"


def unanswered(results: Iterable[CheckResult], proofs: Proofs) -> list[Finding]:
    """The findings of earlier audits that nobody accepted, and whose checks are not among these results.

    No check looks at those of a sink that recon.yml no longer has.
    """
    judged = {(r.sink, r.check) for r in results}
    gone = [told_of_gone(state, o) for state in proofs.gone for o in state.open if o.accepted is None]
    return gone + [
        open_finding.finding
        for sink, proof in proofs.of_sink.items()
        for open_finding in proof.open
        if open_finding.accepted is None and not judged & {(sink, open_finding.check), (None, open_finding.check)}
    ]


def lacking(results: Iterable[CheckResult], sink: str, reads: SourceKind = "Kafka") -> list[str]:
    """The checks of `PROOF` that did not run for a sink."""
    ran = {result.check for result in results if result.sink == sink}
    needed = (*PROOF, (_OF_SOURCE[reads][0],)) if reads in _OF_SOURCE else PROOF
    return [" or ".join(named) for named in needed if ran.isdisjoint(named)]


def pipeline_facts(
    project: Project, pipeline: Pipeline, witnesses: Witnesses, results: Sequence[CheckResult]
) -> PipelineFacts:
    """Everything a report shows of one pipeline; `results` may be of several."""
    of_pipeline = [result for result in results if result.pipeline == pipeline.name]
    slices, proofs = known(witnesses.ledgers) or {}, witnesses.proofs
    speaks_of = scope.speaks_of(proofs.of_sink, slices)
    names = [sink.name for sink in pipeline.sinks]
    outcome, because = answer(of_pipeline, names, proofs, speaks_of, reads=pipeline.source.kind)
    if outcome == "complete" and pipeline.is_observed:
        because += _but_observed(witnesses)
    elif outcome == "complete" and (not pipeline.of_kafka or _without_offsets(pipeline, slices)):
        because += f"; {_UNSEEN}"
    queries = (h.query_id for of_sink in slices.values() for h in reversed(of_sink.heads) if h.is_micro_batch)
    return PipelineFacts(
        name=pipeline.name,
        answer=outcome,
        because=because,
        query_id=next(queries, None),
        checkpoint=project.resolve(pipeline.checkpoint),
        topics=pipeline.source.names
        or tuple(sorted({topic for of_sink in slices.values() for _, topic, _ in of_sink.ranges.topics})),
        isolation_level=witnesses.isolation_level if pipeline.of_kafka else None,
        period_from=witnesses.period_from,
        since=scope.unwitnessed_before(proofs.of_sink, slices, of_pipeline),
        accepted=scope.accepted((*proofs.of_sink.values(), *proofs.gone)),
        sinks=tuple(sink_facts(sink, project.location(sink), witnesses, of_pipeline) for sink in pipeline.sinks),
        unanswered=sum(finding.level is Level.FAIL for finding in unanswered(of_pipeline, proofs)),
    )


def _without_offsets(pipeline: Pipeline, slices: Mapping[str, LedgerSlice]) -> bool:
    """Whether a sink does not stamp offsets, and of some micro-batch nobody took the fingerprint of its rows either."""
    unstamped = [slices[sink.name] for sink in pipeline.sinks if not sink.stamp_source_offsets and sink.name in slices]
    heads = (head for ledger in unstamped for head in ledger.heads)
    return any(head.is_micro_batch and head.rows_written and head.fingerprint_returned is None for head in heads)


def _but_observed(witnesses: Witnesses) -> str:
    """What "complete" says less of a query that writes without recon."""
    said = ", as recon observed it: nothing was counted during the write"
    return said if witnesses.source_columns else f"{said}, and {_UNSEEN}"


def sink_facts(sink: Sink, target: str, witnesses: Witnesses, results: Sequence[CheckResult]) -> SinkFacts:
    """Everything a report shows of one sink, whose table is `target`, for the judged entries of its ledger slice."""
    ledger, name = (known(witnesses.ledgers) or {}).get(sink.name), sink.name
    nothing = SinkFacts(
        name=name,
        kind=sink.kind,
        target=target,
        guarantee=sink.guarantee,
        chain_head=ledger.heads[-1].entry_hash if ledger is not None and ledger.heads else None,
    )
    if ledger is None or len(ledger.heads) == ledger.anchors:
        return nothing
    judged = ledger.heads[ledger.anchors :]
    judging = [r for r in results if r.kind == "evidence" and r.check not in RUNNING]
    findings = [f for r in judging if r.sink in (None, name) for f in r.findings]
    proved = _proved(results, name)
    batches = {(h.epoch, h.batch_id) for h in judged if h.is_micro_batch}
    refuted = touched_batches(ledger, findings, Level.FAIL) & batches
    doubted = touched_batches(ledger, findings, Level.UNPROVED) if proved else batches
    unproved = doubted & batches - refuted
    return replace(
        nothing,
        batches=len(batches),
        batches_proved=len(batches) - len(refuted) - len(unproved),
        batches_refuted=len(refuted),
        batches_unproved=len(unproved),
        epochs=len({h.epoch for h in judged if h.is_micro_batch}),
        rows_written=rows_written(judged),
        # In a route's entry, the rows of other routes count as filtered.
        rows_filtered=None if name in witnesses.routed else rows_filtered(judged),
        rows_quarantined=rows_quarantined(judged),
        first_commit=judged[0].committed_at,
        last_commit=judged[-1].committed_at,
        points=tuple(_points(ledger)),
        partitions=tuple(_partitions(ledger, known(witnesses.kafka), findings, witnesses.now)),
        guarantee_kept=kept_guarantee(sink.guarantee, findings, proved),
    )


def rows_written(entries: Iterable[EntryHead]) -> int | None:
    """The rows that these writes brought into the sink, less those removed; None where one of them is not known."""
    written = [entry for entry in entries if entry.status != "already_committed"]
    counts = [e.rows_written - (e.rows_removed or 0) for e in written if e.rows_written is not None]
    return sum(counts) if len(counts) == len(written) else None


def rows_filtered(entries: Iterable[EntryHead]) -> int | None:
    """The rows that the transform dropped before these writes; None where one of them did not count them."""
    return sum_of(entry.rows_filtered for entry in entries if entry.reads and entry.status != "already_committed")


def rows_quarantined(entries: Iterable[EntryHead]) -> int | None:
    """The rows that went into quarantine instead of the sink; None where one of these writes did not count them."""
    return sum_of(entry.rows_quarantined for entry in entries if entry.reads and entry.status != "already_committed")


def earliest(begins: Iterable[datetime | None]) -> datetime | None:
    """The earliest begin of several periods; None when one of them has no begin, or there is no period."""
    listed = list(begins)
    bounded = [begin for begin in listed if begin is not None]
    return min(bounded) if bounded and len(bounded) == len(listed) else None


# What a sink must not show whatever it claims, and what it may show where it claims no more than at-least-once.
_LOST = {Code.GAP, Code.LOSS, Code.LOSS_RETENTION, Code.SKIPPED, Code.PARTIAL, Code.LEDGER_ORPHAN}
_TWICE = {Code.DUPLICATE, Code.OVERLAP, Code.REPEATED}


def kept_guarantee(guarantee: str, findings: Sequence[Finding], proved: bool) -> bool | None:
    """Whether a sink kept what it claims; None where not all checks that decide this could be evaluated."""
    broken = {"at-least-once": _LOST, "at-most-once": _TWICE}.get(guarantee, _LOST | _TWICE)
    if any(finding.code in broken for finding in findings):
        return False
    doubted = any(finding.level is Level.UNPROVED for finding in findings)
    return True if proved and not doubted else None


def _proved(results: Sequence[CheckResult], sink: str) -> bool:
    """Whether the checks that proofs rest on could all be evaluated for this sink, and saw what they needed."""
    return proved_by(
        {r.check: evaluated(r.status, r.evidence) for r in results if r.kind == "evidence" and r.sink == sink}
    )


def proved_by(evaluated_checks: Mapping[str, bool]) -> bool:
    """Whether every check that a proof rests on was evaluated whole, by the checks' names."""
    return all(any(evaluated_checks.get(name, False) for name in named) for named in PROOF)


def evaluated(status: str, evidence: Mapping[str, Any]) -> bool:
    """Whether a check was evaluated whole: it may have failed on one range while others could not be read."""
    return status in ("pass", "warn", "fail") and not evidence.get("unread") and not evidence.get("probe")


def touched_ranges(ledger: LedgerSlice, findings: Sequence[Finding], level: Level) -> npt.NDArray[np.bool_]:
    """Which of the slice's ranges have findings of a level: by their offsets, else by their micro-batch."""
    mask = np.zeros(len(ledger.ranges), dtype=bool)
    mine = [finding for finding in findings if finding.level is level]
    placed = (f for f in mine if f.span is not None and f.topic is not None and f.partition is not None)
    of_partition = grouped(((finding.topic or "", finding.partition or 0), finding) for finding in placed)
    # A gap lies in no range; it names the micro-batch behind it.
    named = [f for f in mine if f.span is None or f.topic is None or f.partition is None]
    rows_of = _rows_by_partition(ledger) if of_partition else {}
    for where, of_place in of_partition.items():
        rows = rows_of.get(where, np.zeros(0, np.int64))
        starts, ends = ledger.ranges.start[rows], ledger.ranges.end[rows]
        spans = np.array([finding.span for finding in of_place], np.int64)
        mask[rows] |= _meet(starts, ends, spans[:, 0], spans[:, 1])
        met = _meet(spans[:, 0], spans[:, 1], starts, ends)
        named += [finding for finding, touches in zip(of_place, met.tolist(), strict=True) if not touches]
    batches = {(finding.batch_id, finding.epoch) for finding in named if finding.batch_id is not None}
    for_all = {batch_id for batch_id, epoch in batches if epoch is None}
    touched = [(head.batch_id, head.epoch) in batches or head.batch_id in for_all for head in ledger.heads]
    mask |= np.array(touched, np.bool_)[ledger.ranges.entry]
    return mask


def _rows_by_partition(ledger: LedgerSlice, first: int = 0) -> Mapping[tuple[str, int], npt.NDArray[np.int64]]:
    """The rows of the range table from one on, of each topic partition, whatever its topic ids and epochs."""
    ranges, names = ledger.ranges, sorted({name for _, name, _ in ledger.ranges.topics})
    of_topic = np.array([names.index(name) for _, name, _ in ranges.topics] or [0], np.int64)
    width = int(ranges.partition.max(initial=0)) + 1
    code = sortable(of_topic[ranges.topic[first:]] * width + ranges.partition[first:])
    order = np.argsort(code, kind="stable")
    code = code[order]
    starts = np.flatnonzero(np.append(True, code[1:] != code[:-1]))[: len(code)]
    of_code = zip(code[starts].tolist(), np.split(order + first, starts[1:]), strict=False)
    return {(names[key // width], int(key % width)): rows for key, rows in of_code}


def _meet(
    starts: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],
    other_starts: npt.NDArray[np.int64],
    other_ends: npt.NDArray[np.int64],
) -> npt.NDArray[np.bool_]:
    """Which of the ranges have offsets in common with any of the others.

    Of the others that start before a range's end, the one that ends last decides.
    """
    order = np.argsort(other_starts, kind="stable")
    before = np.searchsorted(other_starts[order], ends, side="left")
    last_end = np.concatenate(([np.iinfo(np.int64).min], np.maximum.accumulate(other_ends[order])))
    return last_end[before] > starts


def touched_batches(ledger: LedgerSlice, findings: Sequence[Finding], level: Level) -> set[tuple[int, int]]:
    """The (epoch, batch_id) of the slice that findings of a level are about."""
    batches = {
        (f.epoch, f.batch_id) for f in findings if f.level is level and f.epoch is not None and f.batch_id is not None
    }
    for entry in np.unique(ledger.ranges.entry[touched_ranges(ledger, findings, level)]).tolist():
        batches.add((ledger.heads[entry].epoch, ledger.heads[entry].batch_id))
    return batches


def _points(ledger: LedgerSlice) -> Iterable[BatchPoint]:
    judged = range(ledger.anchors, len(ledger.heads))
    low = np.searchsorted(ledger.ranges.entry, np.arange(len(ledger.heads) + 1))
    sums = np.concatenate(([0], np.cumsum(ledger.ranges.sizes)))
    widths = sums[low[1:]] - sums[low[:-1]]
    of_table = any(not is_kafka(name) for _, name, _ in ledger.ranges.topics)
    heads = ledger.heads
    written = [i for i in judged if heads[i].status != "already_committed" and heads[i].is_micro_batch]
    size = max(1, -(-len(written) // _POINTS))
    for at in range(0, len(written), size):
        members = written[at : at + size]
        of_point = [heads[i] for i in members]
        yield BatchPoint(
            at=of_point[-1].committed_at,
            epoch=of_point[-1].epoch,
            first_batch_id=of_point[0].batch_id,
            last_batch_id=of_point[-1].batch_id,
            batches=len(of_point),
            offsets=None if of_table else int(widths[members].sum()),
            rows_written=rows_written(of_point),
        )


def _partitions(
    ledger: LedgerSlice, kafka: KafkaWitness | None, findings: Sequence[Finding], now: datetime
) -> Iterable[PartitionFacts]:
    first = int(np.searchsorted(ledger.ranges.entry, ledger.anchors))  # of the judged ones: entries ascend
    of_partition = grouped(((finding.topic, finding.partition), finding) for finding in findings)
    for (topic, partition), members in _rows_by_partition(ledger, first).items():
        described = kafka.topics.get(topic) if kafka else None
        broker = described.partitions.get(partition) if described else None
        yield _partition(ledger, topic, partition, members, of_partition.get((topic, partition), ()), broker, now)


def _partition(
    ledger: LedgerSlice,
    topic: str,
    partition: int,
    members: npt.NDArray[np.int64],
    findings: Sequence[Finding],
    broker: KafkaPartition | None,
    now: datetime,
) -> PartitionFacts:
    start, end = int(ledger.ranges.start[members].min()), int(ledger.ranges.end[members].max())
    cells = _cells(ledger, members, findings)
    if broker is not None and broker.log_end > end and cells:
        begin, log_end = cells[-1].to_time, broker.log_end
        cells.append(
            CoverageCell(from_time=begin, to_time=now, start_offset=end, end_offset=log_end, state="in flight")
        )
    return PartitionFacts(
        topic=topic,
        partition=partition,
        start_offset=start,
        end_offset=end,
        log_start=None if broker is None else broker.log_start,
        log_end=None if broker is None else broker.log_end,
        lag=None if broker is None else max(0, broker.log_end - end),
        cells=tuple(cells),
    )


def _cells(ledger: LedgerSlice, members: npt.NDArray[np.int64], findings: Sequence[Finding]) -> list[CoverageCell]:
    """The partition's stretches over time; neighbours of one state are one cell."""
    ranges, heads = ledger.ranges, ledger.heads
    marks = [(f.span, _STATES[f.code]) for f in findings if f.span is not None and f.code in _STATES]
    step = max(1, -(-len(members) // _BUCKETS)) if marks else len(members)
    cells: list[CoverageCell] = []
    for at in range(0, len(members), step):
        some = members[at : at + step]
        first, last = heads[int(ranges.entry[some[0]])], heads[int(ranges.entry[some[-1]])]
        a, b = int(ranges.start[some].min()), int(ranges.end[some].max())
        previous_end = int(ranges.end[members[at - 1]]) if at else a
        low = min(a, previous_end)  # a gap lies between the end before and this start
        touched = [state for span, state in marks if span.start < max(b, low + 1) and span.end > low]
        state: _State = next((worst for worst in _WORST_FIRST if worst in touched), "covered")
        begin = cells[-1].to_time if cells else first.started_at
        end = max(last.committed_at, begin)
        if cells and cells[-1].state == state:
            before = cells.pop()
            begin, a = before.from_time, before.start_offset
        cells.append(CoverageCell(from_time=begin, to_time=end, start_offset=a, end_offset=b, state=state))
    return cells
