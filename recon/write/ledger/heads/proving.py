"""Proofs that others can verify: an entry is in a signed head's tree, and one head's tree begins with another's.

A proof is verified before it is written: kept hashes that are wrong, or an entry that was edited, end in an error.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from recon.base.errors import ConfigError, LedgerError
from recon.base.lazy import pc
from recon.model import LedgerEntry, offsets_text
from recon.project import Project
from recon.write.ledger import arrow, columns
from recon.write.ledger.chain import seal
from recon.write.ledger.heads import leaves
from recon.write.ledger.heads.keys import PublicKey
from recon.write.ledger.heads.merkle import consistency, includes, inclusion
from recon.write.ledger.heads.notes import Head
from recon.write.ledger.heads.signing import Chain, known_heads, leads_to, tree_of
from recon.write.ledger.heads.tiles import TiledLeaves
from recon.write.ledger.ledger import Ledger
from recon.write.ledger.store import SEQUENCE, Filter

_FEWEST_DIGITS = 8  # of a hash


def prove(project: Project, ledger: Ledger, keys: Sequence[PublicKey], chain: Chain, entry: str) -> dict[str, Any]:
    """The proof that an entry is in the tree of its chain's newest signed head, as `dump` writes it.

    Args:
        project: says where heads are kept and published.
        ledger: the project's ledger.
        keys: whose signatures are accepted.
        chain: the entry's (pipeline, sink).
        entry: its number in the chain, or the beginning of its hash.

    Raises:
        ConfigError: `entry` is neither.
        LedgerError: there is no such entry or no head that covers it, or the ledger is not the one that was signed.
    """
    found = _entry(ledger, chain, entry)
    head, tree = _newest(project, ledger, keys, chain)
    leaf = leaves.leaf_of(found.entry_hash)
    index = tree.find(leaf, found.sequence - 1)
    if index is None:  # the tree has all entries of the ledger, but for those that were put before its kept end
        raise _another_ledger(head)
    if index >= head.size:
        raise LedgerError(
            f"entry {found.sequence} of {'.'.join(chain)} is behind {head}; the next audit signs one that covers it"
        )
    path = inclusion(tree, index, head.size)
    if not includes(head.root, head.size, index, leaf, path):
        raise _another_ledger(head)
    return {
        "pipeline": found.pipeline,
        "sink": found.sink,
        "sequence": found.sequence,
        "entry_hash": found.entry_hash,
        "index": index,
        "hashes": _texts(path),
        "note": head.note,
    }


def prove_growth(
    project: Project, ledger: Ledger, keys: Sequence[PublicKey], chain: Chain, old: Head
) -> dict[str, Any]:
    """The proof that the tree of a chain's newest signed head begins with the one of an older head.

    Raises:
        LedgerError: there is no newer head, or it does not.
    """
    head, tree = _newest(project, ledger, keys, chain)
    if not 0 < old.size <= head.size or not leads_to(tree, old):
        raise _another_ledger(old)
    return {"old": old.note, "hashes": _texts(consistency(tree, old.size, head.size)), "note": head.note}


def dump(proof: dict[str, Any]) -> bytes:
    """A proof as it is written: JSON, below 2 KB for an entry."""
    return (json.dumps(proof, ensure_ascii=False, separators=(",", ":")) + "\n").encode()


def _newest(project: Project, ledger: Ledger, keys: Sequence[PublicKey], chain: Chain) -> tuple[Head, TiledLeaves]:
    """The newest signed head of a chain, and its tree, which is the one that was signed."""
    known = known_heads(project, keys)
    head = known.newest.get(chain)
    if head is None:
        unreadable = f" ({known.notes[0]})" if known.notes else ""
        raise LedgerError(
            f"no signed head of {'.'.join(chain)} is known{unreadable}; name a key below `heads:` in recon.yml and run "
            "an audit, which signs one"
        )
    tree, _ = tree_of(project, ledger, chain, head)
    if not leads_to(tree, head):
        raise _another_ledger(head)
    return head, tree


def _another_ledger(head: Head) -> LedgerError:
    return LedgerError(
        f"the ledger's entries do not lead to {head}: entries were edited, removed or put in another order since; "
        "`recon ledger verify --heads` says which"
    )


def _entry(ledger: Ledger, chain: Chain, name: str) -> LedgerEntry:
    """The entry of a number, or of the beginning of a hash, whose content has this hash."""
    text = name.strip().lower()
    where = Filter.of(*chain)
    if re.fullmatch(r"[0-9]{1,18}", text) and len(text) < _FEWEST_DIGITS:
        sequence = int(text)
    elif re.fullmatch(rf"[0-9a-f]{{{_FEWEST_DIGITS},64}}", text):
        rows = ledger.store.read(where, [SEQUENCE, "entry_hash"])
        rows = rows.filter(pc.starts_with(rows["entry_hash"], text))
        numbers = set(arrow.values(rows[SEQUENCE]))
        if len(numbers) > 1:
            raise ConfigError(f"{len(numbers)} entries of {'.'.join(chain)} have a hash that begins with {name}")
        sequence = next(iter(numbers), 0)
    else:
        raise ConfigError(
            f"--entry {name!r} is no entry: give its number in the chain (sequence), or {_FEWEST_DIGITS} or more "
            "digits of its hash; `recon ledger show` prints both"
        )
    found = columns.entries(ledger.store.read(replace(where, above=sequence - 1, upto=sequence)))
    if not found:
        raise LedgerError(f"the ledger has no entry {name} of {'.'.join(chain)}; `recon ledger show` prints them")
    entry = found[0]
    if seal(entry, offsets_text(entry.offsets)) != entry.entry_hash:
        raise LedgerError(
            f"entry {entry.sequence} of {'.'.join(chain)} does not match its own hash: it was edited, and nothing is "
            "proved of it; `recon ledger verify` says more"
        )
    return entry


def _texts(hashes: Sequence[bytes]) -> list[str]:
    return [base64.b64encode(node).decode() for node in hashes]
