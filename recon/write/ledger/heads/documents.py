"""What an audit publishes: one JSON document with the signed head of every chain.

    {"origin": …, "notes": [note, …], "consistency": {"<origin of the chain>": {"from": size, "hashes": [base64, …]}},
     "timestamp": base64}

`consistency` leads from the head before, so that who has the documents alone sees that each tree begins with the one
before it. `timestamp` is an RFC 3161 response over the SHA-256 of all notes, where recon.yml names an authority.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from recon.base.errors import LedgerError
from recon.base.text import first_line
from recon.model.wire.values import loads, mapping, optional, text, whole
from recon.write.ledger.heads.keys import PublicKey, decoded
from recon.write.ledger.heads.notes import Head
from recon.write.ledger.heads.notes import read as read_note
from recon.write.ledger.heads.notes import verified as verified_note

MOST_BYTES = 1 << 23  # more than the heads of two thousand sinks need
_MOST_HASHES = 128  # of a consistency proof: twice the levels that a tree can have


@dataclass(frozen=True, kw_only=True)
class Document:
    """The heads of one audit. `consistency` has the size of the earlier tree and the proof, by origin."""

    origin: str
    heads: tuple[Head, ...]
    consistency: Mapping[str, tuple[int, tuple[bytes, ...]]] = field(default_factory=dict)
    timestamp: bytes | None = None

    @property
    def stamped(self) -> bytes:
        """The bytes that a timestamp is made over."""
        return "".join(head.note for head in self.heads).encode()

    @property
    def name(self) -> str:
        """A file name; names sort by the time of signing."""
        at = max((head.at for head in self.heads), default=datetime.min.replace(tzinfo=UTC))
        return f"{at:%Y%m%dT%H%M%SZ}-{hashlib.sha256(self.stamped).hexdigest()[:12]}.json"

    def dump(self) -> bytes:
        """The document as it is published."""
        content: dict[str, Any] = {
            "origin": self.origin,
            "notes": [head.note for head in self.heads],
            "consistency": {
                origin: {"from": size, "hashes": [base64.b64encode(node).decode() for node in nodes]}
                for origin, (size, nodes) in self.consistency.items()
            },
        }
        if self.timestamp is not None:
            content["timestamp"] = base64.b64encode(self.timestamp).decode()
        return (json.dumps(content, ensure_ascii=False, indent=1) + "\n").encode()


def read(content: bytes, where: str) -> Document:
    """What a document says, its signatures not verified; a signed note alone is one, too.

    Raises:
        LedgerError: it is neither: it is too large, cut off, or holds what recon never writes.
    """
    if len(content) > MOST_BYTES:
        raise too_large(where)
    try:
        given = content.decode()
        if not given.lstrip().startswith("{"):
            head = read_note(given, where)
            return Document(origin=head.ledger, heads=(head,))
        values = loads(given)
        origin, notes = text(values["origin"]), [text(note) for note in _listed(values["notes"])]
        consistency = {
            of: (whole(mapping(proof)["from"], 0), tuple(map(_hash, _listed(proof["hashes"], _MOST_HASHES))))
            for of, proof in mapping(values.get("consistency", {})).items()
        }
        timestamp = optional(_bytes, values.get("timestamp"))
    except (ValueError, TypeError) as error:
        raise _no_document(where, first_line(error)) from error
    except KeyError as error:
        raise _no_document(where, f"it has no {error}") from error
    heads = tuple(read_note(note, f"{where}, note {number}") for number, note in enumerate(notes, 1))
    if not heads or {head.ledger for head in heads} != {origin} or len({head.origin for head in heads}) < len(heads):
        raise _no_document(where, "it has other notes than one for each chain of its origin")
    return Document(origin=origin, heads=heads, consistency=consistency, timestamp=timestamp)


def verified(document: Document, keys: Sequence[PublicKey], where: str, heads: Collection[Head] | None = None) -> None:
    """Verifies the signatures of a document's heads, or of some.

    Raises:
        LedgerError: one is wrong, or of no known key.
    """
    for number, head in enumerate(document.heads, 1):
        if heads is None or head in heads:
            verified_note(head.note, keys, where if len(document.heads) == 1 else f"{where}, note {number}")


def parse(content: bytes, keys: Sequence[PublicKey], where: str) -> Document:
    """A document, its signatures verified; a signed note alone is one, too.

    Raises:
        LedgerError: it is neither, or a signature is wrong.
    """
    document = read(content, where)
    verified(document, keys, where)
    return document


def too_large(where: str) -> LedgerError:
    """A file is no document, as it has more bytes than one can have."""
    return _no_document(where, f"it is larger than {MOST_BYTES >> 20} MiB")


def _no_document(where: str, why: str) -> LedgerError:
    return LedgerError(
        f"{where} is no document of signed heads ({why}): it was cut off or edited; take another copy of it"
    )


def _listed(value: object, most: int | None = None) -> list[Any]:
    if not isinstance(value, list) or (most is not None and len(value) > most):
        raise TypeError("it has no list, or one that is too long, where a list is expected")
    return value


def _bytes(value: object) -> bytes:
    return decoded(text(value))


def _hash(value: object) -> bytes:
    node = _bytes(value)
    if len(node) != 32:
        raise ValueError("a hash of its consistency proof is no SHA-256 hash")
    return node
