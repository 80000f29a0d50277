"""Seals entries: every entry's SHA-256 covers its content, its ranges and the hash of the entry before it.

An entry that is edited no longer matches its own hash; one that is removed leaves a successor whose
`prev_hash` points nowhere.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from datetime import datetime
from itertools import repeat
from typing import Any

from recon.model import EntryHead, LedgerEntry, offsets_text
from recon.write.ledger import canonical_json

GENESIS = ""
# Sealed where an entry has them: entries of versions that knew nothing of them keep their hash.
ADDED = ("by", "reason", "files_digest")
_SEALED = tuple(f.name for f in fields(EntryHead) if f.name not in ("entry_hash", *ADDED))
_TIMES = ("started_at", "committed_at")
_spelled = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


def _micros(at: datetime) -> int:
    # Microseconds since the epoch, computed in integers: a float would lose the last digit.
    return int(at.timestamp()) * 1_000_000 + at.microsecond


def seal(head: EntryHead, ranges_text: str) -> str:
    """The entry_hash that belongs to this content: SHA-256 in hex over its `sealed_text`."""
    return hashlib.sha256(sealed_text(head, ranges_text).encode()).hexdigest()


def sealed_text(head: EntryHead, ranges_text: str) -> str:
    """What an entry_hash is made of: the canonical JSON, a line break, and the ranges."""
    values = vars(head)
    content = {name: values[name] for name in _SEALED}
    for name in ADDED:
        if values[name] is not None:
            content[name] = values[name]
    content["started_at"], content["committed_at"] = _micros(head.started_at), _micros(head.committed_at)
    return f"{_spelled(content)}\n{ranges_text}"


def seals(same: Mapping[str, Any], columns: Mapping[str, Sequence[Any]], ranges_texts: Sequence[str]) -> list[str]:
    """`seal` of many entries: what they have in common is spelled once, everything else a column at a time.

    `same` has the values of columns that all entries have in common, `columns` the others.
    """
    count, said = len(ranges_texts), "{"
    pieces: list[Iterable[str]] = []
    for place, name in enumerate((*_SEALED, *ADDED)):
        key = f'{"," if place else ""}"{name}":'
        if name in same:
            value = same[name]
            if value is not None or name not in ADDED:
                said += key + _spelled(_micros(value) if name in _TIMES else value)
            continue
        values = list(map(_micros, columns[name])) if name in _TIMES else columns[name]
        texts = canonical_json.cells(values)
        if name in ADDED:
            texts = ["" if value is None else key + text for value, text in zip(values, texts, strict=True)]
        else:
            said += key
        pieces += [repeat(said, count), texts]
        said = ""
    pieces += [repeat(said + "}\n", count), ranges_texts]
    contents = map("".join, zip(*pieces, strict=True))
    return [hashlib.sha256(content.encode()).hexdigest() for content in contents]


def link(entry: LedgerEntry, prev_hash: str) -> LedgerEntry:
    """The entry, chained behind `prev_hash` and sealed."""
    linked = replace(entry, prev_hash=prev_hash)
    return replace(linked, entry_hash=seal(linked, offsets_text(linked.offsets)))
