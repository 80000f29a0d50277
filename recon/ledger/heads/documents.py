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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from recon.errors import LedgerError
from recon.ledger.heads.keys import PublicKey
from recon.ledger.heads.notes import Head, verified


@dataclass(frozen=True, kw_only=True)
class Document:
    """The heads of one audit. `consistency` has the size of the earlier tree and the proof, by origin."""

    origin: str
    heads: tuple[Head, ...]
    consistency: Mapping[str, tuple[int, tuple[bytes, ...]]] = field(default_factory=dict)
    timestamp: bytes | None = None

    @property
    def stamped(self) -> bytes:
        """What a timestamp speaks of."""
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


def parse(content: bytes, keys: Sequence[PublicKey], where: str) -> Document:
    """A document, its signatures verified; a signed note alone is one, too.

    Raises:
        LedgerError: it is neither, or a signature is wrong.
    """
    try:
        text = content.decode()
        if not text.lstrip().startswith("{"):
            head = verified(text, keys, where)
            return Document(origin=head.ledger, heads=(head,))
        values = json.loads(text)
        origin, notes = str(values["origin"]), [str(note) for note in values["notes"]]
        consistency = {
            str(of): (int(proof["from"]), tuple(base64.b64decode(node, validate=True) for node in proof["hashes"]))
            for of, proof in values.get("consistency", {}).items()
        }
        stamp = values.get("timestamp")
        timestamp = None if stamp is None else base64.b64decode(stamp, validate=True)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise LedgerError(
            f"{where} is no document of signed heads ({type(error).__name__}): it was cut off or edited; take another "
            "copy of it"
        ) from error
    heads = tuple(verified(note, keys, f"{where}, note {number}") for number, note in enumerate(notes, 1))
    return Document(origin=origin, heads=heads, consistency=consistency, timestamp=timestamp)
