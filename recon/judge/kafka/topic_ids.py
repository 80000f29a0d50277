"""Which topic of a name a finding is about: one that was deleted and created again has another id."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from recon.model import Finding, LedgerSlice
from recon.model.grouping import grouped
from recon.model.offsets import Spans
from recon.model.once import kept
from recon.model.proof import SinkProof


def identified(finding: Finding, ledger: LedgerSlice | None, proof: SinkProof | None) -> Finding:
    """The finding with the id of the topic that it is about, as the ledger and earlier audits know it.

    Where a topic had several ids: that of the entry which the finding names, else the only one under which its offsets
    were read. It stays without an id where these do not tell.
    """
    if finding.topic is None or finding.topic_id is not None:
        return finding
    ids = set(_known(finding.topic, ledger, proof))
    if len(ids) > 1 and ledger is not None:
        ids = set(_of_entries(finding, ledger)) or set(_of_offsets(finding, ledger, proof))
    return replace(finding, topic_id=ids.pop()) if len(ids) == 1 else finding


def with_topic_ids(proof: SinkProof, ledger: LedgerSlice | None) -> SinkProof:
    """The proof with open findings that say the topic's id: states of older versions do not have it."""
    if all(open_.finding.topic is None or open_.finding.topic_id is not None for open_ in proof.open):
        return proof
    known = (identified(open_.finding, ledger, proof) for open_ in proof.open)
    return replace(
        proof, open=tuple(replace(open_, finding=found) for open_, found in zip(proof.open, known, strict=True))
    )


def is_of(finding: Finding, topic: str, topic_id: str | None) -> bool:
    """Whether ranges of a topic with this id are of the finding's topic; one without an id is any of its name."""
    return finding.topic == topic and finding.topic_id in (None, topic_id)


def _known(topic: str, ledger: LedgerSlice | None, proof: SinkProof | None) -> Iterator[str | None]:
    for _, name, topic_id in ledger.ranges.topics if ledger is not None else ():
        if name == topic:
            yield topic_id
    for covered in proof.coverage if proof is not None else ():
        if covered.topic == topic:
            yield covered.topic_id


def _of_entries(finding: Finding, ledger: LedgerSlice) -> Iterator[str | None]:
    """The ids in the entries of the micro-batch that a finding names."""
    if finding.batch_id is None:
        return
    for entry in _entries(ledger).get((finding.epoch, finding.batch_id), ()):
        for read in ledger.ranges.of(entry):
            if read.topic == finding.topic and finding.partition in (None, read.partition):
                yield read.topic_id


@kept
def _entries(ledger: LedgerSlice) -> Mapping[tuple[int | None, int], list[int]]:
    """The entries by (epoch, batch_id), and by (None, batch_id): a finding about a plan names no epoch."""
    return grouped(
        ((epoch, head.batch_id), entry) for entry, head in enumerate(ledger.heads) for epoch in (head.epoch, None)
    )


def _of_offsets(finding: Finding, ledger: LedgerSlice, proof: SinkProof | None) -> Iterator[str | None]:
    """The ids under which offsets of a finding were read."""
    if finding.span is None:
        return
    start, end = finding.span
    ranges = ledger.ranges
    for place, (_, name, topic_id) in enumerate(ranges.topics):
        if name == finding.topic:
            mine = (ranges.topic == place) & (ranges.partition == finding.partition)
            if (mine & (ranges.start < end) & (ranges.end > start)).any():
                yield topic_id
    for covered in proof.coverage if proof is not None else ():
        mine = (covered.topic, covered.partition) == (finding.topic, finding.partition)
        if mine and Spans.of(covered.ranges).intersect(Spans.of([(start, end)])):
            yield covered.topic_id
