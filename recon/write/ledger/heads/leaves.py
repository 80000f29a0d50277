"""Reads the leaves of a chain's tree from the ledger's entries."""

from __future__ import annotations

from dataclasses import replace

from recon.base.lazy import pc
from recon.write.ledger import arrow
from recon.write.ledger.heads.merkle import leaf_hash
from recon.write.ledger.heads.tiles import HASH, TiledLeaves, Unusable
from recon.write.ledger.store import SEQUENCE, Filter, Store

_HASH_COLUMN = "entry_hash"


def leaf_of(entry_hash: str | None) -> bytes:
    """The leaf of an entry: the hash over its `entry_hash` as it is stored, 64 hexadecimal digits."""
    return leaf_hash((entry_hash or "").encode("utf-8", errors="surrogatepass"))


def whole(store: Store, pipeline: str, sink: str) -> TiledLeaves:
    """The tree over all entries of a chain.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    return TiledLeaves.of(*_from(store, pipeline, sink, 0))


def continued(tree: TiledLeaves, store: Store, pipeline: str, sink: str) -> TiledLeaves:
    """A kept tree with the entries that the chain has behind its last one.

    Raises:
        Unusable: the entry that was kept as the last one has another hash or number in the ledger.
        LedgerError: the ledger cannot be read.
    """
    if not tree.size:
        raise Unusable("no hash was kept")
    hashes, sequence = _from(store, pipeline, sink, tree.sequence)
    last = tree.leaves(tree.size - 1, tree.size)[0]
    if hashes[:HASH] != last:
        raise Unusable("the last kept hash is not that of its entry")
    return tree.extended(hashes[HASH:], sequence) if len(hashes) > HASH else tree


def _from(store: Store, pipeline: str, sink: str, sequence: int) -> tuple[bytes, int]:
    """The leaf hashes from a sequence on in the chain's order, and the last one's sequence."""
    where = replace(Filter.of(pipeline, sink), above=sequence - 1 if sequence > 1 else None)
    rows = store.read(where, [SEQUENCE, _HASH_COLUMN])
    order = pc.sort_indices(rows, sort_keys=[(SEQUENCE, "ascending"), (_HASH_COLUMN, "ascending")])
    rows = rows.take(order)
    sequences, hashes = arrow.values(rows[SEQUENCE]), arrow.values(rows[_HASH_COLUMN])
    # An entry that is stored twice, as a merge of files by two processes can leave it, is one leaf.
    distinct = dict.fromkeys(zip(sequences, hashes, strict=True))
    leaves = b"".join([leaf_of(entry_hash) for _, entry_hash in distinct])
    return leaves, max((number or 0 for number in sequences[-1:]), default=sequence)
