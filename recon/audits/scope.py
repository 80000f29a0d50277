"""What a verdict covers: from which micro-batch and offsets on, and what somebody accepted. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from recon.base.lazy import np
from recon.base.text import plural
from recon.judge.rows.surplus_rows import EarlierBatches
from recon.model import CheckResult, Code, LedgerSlice, RangeTable
from recon.model.ledger import firsts, sortable
from recon.model.positions import beginning, partition_name
from recon.model.proof import SinkProof

Place = tuple[int, str, str | None, int]  # source, topic, topic id, partition


def speaks_of(proofs: Mapping[str, SinkProof], ledgers: Mapping[str, LedgerSlice]) -> str:
    """The micro-batches and offsets of each sink: "micro-batch 3 (orders-0 from offset 3000) to 812".

    What audits proved before is among them where this one goes on from there. Otherwise the audit speaks of its
    period's micro-batches alone, not of the one before it.
    """
    parts = []
    for sink, ledger in ledgers.items():
        proof = _proved(proofs).get(sink)
        of_period = ledger.heads[ledger.anchors :]
        if proof is not None and of_period and of_period[0].sequence > proof.position + 1:
            proof = None
        known = of_period if proof is None else ledger.heads
        heads = [head for head in known if head.is_micro_batch]
        if proof is not None and not of_period:
            heads = [head for head in heads if head.sequence <= proof.position]
        if not heads:
            continue
        first = proof.first_batch_id if proof is not None else heads[0].batch_id
        begins = proof.begins if proof is not None else _begins(ledger)
        where = ""
        if begins:
            (topic, partition), offset = min(begins.items())
            more = f", and {plural(len(begins) - 1, 'more partition')}" if len(begins) > 1 else ""
            where = f" ({partition_name(topic, partition)} {beginning(topic, offset)}{more})"
        of_sink = f" of sink {sink}" if len(ledgers) > 1 else ""
        parts.append(f"micro-batch {first}{where} to {heads[-1].batch_id}{of_sink}")
    if not parts and any(ledger.anchors for ledger in ledgers.values()):
        return "what the stream read in the period (no micro-batch)"
    return "; ".join(parts)


def unwitnessed_before(
    proofs: Mapping[str, SinkProof], ledgers: Mapping[str, LedgerSlice], results: Sequence[CheckResult]
) -> str:
    """The first micro-batch that the verdict covers, where others are known to have run before; else ""."""
    found = {f.sink for r in results for f in r.findings if f.code is Code.UNWITNESSED and f.sink is not None}
    proved = _proved(proofs)
    firsts = {proof.first_batch_id for proof in proved.values() if proof.memory(EarlierBatches) is not None}
    new = [ledgers[sink] for sink in found - proved.keys() if sink in ledgers]
    firsts |= {ledger.heads[0].batch_id for ledger in new if ledger.heads}
    return f"micro-batch {max(firsts)}" if firsts else ""


def _proved(proofs: Mapping[str, SinkProof]) -> Mapping[str, SinkProof]:
    """The states in which something is proved: others hold what is open, and no more."""
    return {sink: proof for sink, proof in proofs.items() if proof.position}


def accepted(proofs: Iterable[SinkProof]) -> tuple[str, ...]:
    """What somebody accepted, a sentence each."""
    return tuple(
        f"{known.finding.code}: {known.finding.message}; accepted by {known.accepted.by} on "
        f"{known.accepted.at:%Y-%m-%d}: {known.accepted.reason}"
        for proof in proofs
        for known in proof.open
        if known.accepted is not None
    )


def _begins(ledger: LedgerSlice) -> Mapping[tuple[str, int], int]:
    """The first offset of each topic partition that the period's entries read, of any of its sources."""
    table = ledger.ranges
    period = slice(int(np.searchsorted(table.entry, ledger.anchors)), None)
    mine = np.flatnonzero(table.end[period] > table.start[period]) + period.start
    if not len(mine):
        return {}
    width = int(table.partition[mine].max()) + 1
    code = table.topic[mine].astype(np.int64) * width + table.partition[mine]
    starts: dict[tuple[str, int], int] = {}
    for place in mine[firsts(code)].tolist():
        topic = table.topics[int(table.topic[place])][1]
        starts.setdefault((topic, int(table.partition[place])), int(table.start[place]))
    return starts


def stretches(table: RangeTable, entries: int) -> Iterator[tuple[Place, tuple[int, int]]]:
    """What the first entries read, consecutive ranges joined: there are a few of these among a day's millions."""
    mine = np.flatnonzero((table.entry < entries) & (table.end > table.start))
    if not len(mine):
        return
    width = int(table.partition.max()) + 1
    code = sortable(table.topic[mine].astype(np.int64) * width + table.partition[mine])
    mine = mine[np.argsort(code, kind="stable")]
    topic, partition, start, end = (c[mine] for c in (table.topic, table.partition, table.start, table.end))
    breaks = (topic[1:] != topic[:-1]) | (partition[1:] != partition[:-1]) | (start[1:] != end[:-1])
    low = np.concatenate(([0], np.flatnonzero(breaks) + 1))
    high = np.append(low[1:], len(mine)) - 1
    columns = (topic[low], partition[low], start[low], end[high])
    for number, of_partition, first, last in zip(*(column.tolist() for column in columns), strict=True):
        yield (*table.topics[number], of_partition), (first, last)
