"""Which micro-batches may have read records of transactions that were aborted."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from recon.checks.evidence.kafka_states import open_transactions
from recon.checks.evidence.row_accounting import Account, Piece, ReadStretches
from recon.model import Witnesses


def read_uncommitted(counts: Account) -> frozenset[int]:
    """The judged entries whose query read uncommitted records, or may have.

    What Spark's plan says of the query counts. Where it is not known, recon.yml may say otherwise than the query does.
    """
    heads = counts.covered.slice.heads
    return frozenset(entry for entry in counts.counted if heads[entry].isolation_level != "read_committed")


def readings_of(stretches: ReadStretches, entries: Collection[int]) -> Iterator[Piece]:
    """What some of the entries read of a topic partition."""
    return (piece for piece in stretches.pieces(stretches.ranges) if piece.entry in entries) if entries else iter(())


def read_while_open(counts: Account, witnesses: Witnesses) -> frozenset[int]:
    """The judged entries that read offsets behind an open transaction, and may have read its records.

    The hook or an earlier audit saw it open. That it was aborted since, no count shows: the marker at its end is an
    offset that the stream need not have read yet.
    """
    doubtful = read_uncommitted(counts)
    if not doubtful:
        return frozenset()
    ledger = counts.covered.slice
    seen_open = open_transactions(ledger, witnesses.proofs.of_sink.get(ledger.sink))
    return frozenset(
        piece.entry
        for where, spans in seen_open.items()
        if (stretches := counts.judged.get(where)) is not None
        for piece in stretches.readings(spans.intersect(stretches.ranges))
        if piece.entry in doubtful
    )
