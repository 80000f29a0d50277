"""Heads as signed notes in the checkpoint format of C2SP (tlog-checkpoint, signed-note).

    example.org/lake/orders/orders
    8640
    5sQ0V1Gq…=
    at 2026-11-23T17:00:00Z
    results 5b0c…-… 9f86…

    — example.org/lake 8hX0…=

The origin, the size of the tree, and its root. Two extensions: the time of signing, and the audit's invocation id with
one hash of all results that it stored. An empty line, then signatures. docs/heads.md has the grammar, which
examples/verify_heads.py has, too; tests hold both to the same vectors.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from recon.base.errors import LedgerError
from recon.base.text import some
from recon.write.ledger.heads.keys import PublicKey, SigningKey, decoded

_SIGNATURE = re.compile(r"— ([^\s+]+) (\S+)")
_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f]")
_ORIGIN = re.compile(r"[^\s+]+/[^\s+/]+/[^\s+/]+")
_AT, _RESULTS = "at ", "results "
_NUMBER = re.compile(r"0|[1-9][0-9]{0,17}")
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]Z")
_STORED = re.compile(r"(\S+) ([0-9a-f]{64})")
_MOST_SIGNATURES = 16  # that C2SP's signed-note asks verifiers to take
_LEAST_BYTES = 5  # of a signature: those of the key's id, and one


@dataclass(frozen=True, kw_only=True)
class Head:
    """The head of one chain's tree, as it was signed. `origin` ends with `/<pipeline>/<sink>`; `at` is UTC.

    `results` is the invocation id of the audit that signed, and one hash of all results that it stored.
    """

    origin: str
    size: int
    root: bytes
    at: datetime
    note: str
    results: tuple[str, str] | None = None

    @property
    def chain(self) -> tuple[str, str]:
        """The (pipeline, sink); their names hold no slash."""
        _, pipeline, sink = self.origin.rsplit("/", 2)
        return pipeline, sink

    @property
    def ledger(self) -> str:
        """The origin of the whole ledger."""
        return self.origin.rsplit("/", 2)[0]

    def __str__(self) -> str:
        return f"the head of {self.size} entries of {'.'.join(self.chain)}, signed {self.at:%Y-%m-%d %H:%M:%S}Z"


def signed(
    key: SigningKey, origin: str, size: int, root: bytes, at: datetime, results: tuple[str, str] | None = None
) -> Head:
    """A head, signed; the time to the second."""
    at = at.astimezone(UTC).replace(microsecond=0)
    body = f"{origin}\n{size}\n{base64.b64encode(root).decode()}\n{_AT}{at:%Y-%m-%dT%H:%M:%SZ}\n"
    if results is not None:
        body += f"{_RESULTS}{' '.join(results)}\n"
    signature = base64.b64encode(key.public.id + key.sign(body.encode())).decode()
    return Head(origin=origin, size=size, root=root, at=at, note=f"{body}\n— {key.name} {signature}\n", results=results)


def read(note: str, where: str) -> Head:
    """The head of a note as it stands; who signed it, `verified` says.

    Raises:
        LedgerError: it is no whole note, or no head.
    """
    body, _ = _parts(note, where)
    return _parsed(body, note, where)


def verified(note: str, keys: Sequence[PublicKey], where: str) -> Head:
    """The head of a note that one of the keys signed.

    Args:
        note: the whole text.
        keys: any of them may have signed; signatures of others are left alone.
        where: the note comes from, for messages.

    Raises:
        LedgerError: it is no whole note, none of the keys signed it, or its text was changed.
    """
    body, signatures = _parts(note, where)
    known = {(key.name, key.id): key for key in keys}
    theirs = []
    for name, raw in signatures:
        key = known.get((name, raw[:4]))
        if key is None:
            theirs.append(f"{name[:80]}+{raw[:4].hex()}")
        elif not key.verifies(raw[4:], body.encode()):
            raise LedgerError(f"{where} was changed after {name} signed it: its signature does not match its text")
    if len(theirs) == len(signatures):
        raise LedgerError(
            f"{where} was signed by {some(theirs)}, and by none of the known keys "
            f"({some(str(key) for key in keys) or 'there is none'}); give the public key with --key, or in public_keys "
            "of heads"
        )
    return _parsed(body, note, f"{where} is signed, and")


def _parts(note: str, where: str) -> tuple[str, list[tuple[str, bytes]]]:
    """What is signed, and the signatures: who signed, and the bytes of the key's id before those of the signature."""
    body, empty, below = note.rpartition("\n\n")
    lines = below.split("\n")[:-1]
    signatures = [signature for line in lines[:_MOST_SIGNATURES] if (signature := _signature(line))]
    right = empty and note.endswith("\n") and 0 < len(lines) == len(signatures)
    if not right or _CONTROL.search(note) or not _is_encodable(note):
        raise LedgerError(f"{where} is no whole signed note: it was cut off or edited; take another copy of it")
    return f"{body}\n", signatures


def _signature(line: str) -> tuple[str, bytes] | None:
    parts = _SIGNATURE.fullmatch(line)
    raw = _decoded(parts[2]) if parts else b""
    return (parts[1], raw) if parts and len(raw) >= _LEAST_BYTES else None


def _parsed(body: str, note: str, said: str) -> Head:
    """The head of a signed text; `said` begins the sentence of an error."""
    lines = body.split("\n")[:-1]
    times = [line.removeprefix(_AT) for line in lines[3:] if line.startswith(_AT)]
    whole = len(lines) > 3 and all(lines) and len(times) == 1
    if not whole or not _ORIGIN.fullmatch(lines[0]) or not _NUMBER.fullmatch(lines[1]):
        raise LedgerError(f"{said} is no head of a ledger: origin, size, root and time are expected")
    root = _decoded(lines[2])
    try:
        at = datetime.fromisoformat(times[0] if _TIME.fullmatch(times[0]) else "")
    except ValueError:
        raise LedgerError(f"{said} has no time of signing, but {times[0][:80]!r}") from None
    if len(root) != 32:
        raise LedgerError(f"{said} has a root that is no SHA-256 hash")
    results = _results([line.removeprefix(_RESULTS) for line in lines[3:] if line.startswith(_RESULTS)], said)
    return Head(origin=lines[0], size=int(lines[1]), root=root, at=at, note=note, results=results)


def _results(stored: Sequence[str], said: str) -> tuple[str, str] | None:
    """The audit and the hash of its results; None where the head has none."""
    if not stored:
        return None
    parts = _STORED.fullmatch(stored[0])
    if parts is None or len(stored) > 1:
        raise LedgerError(f"{said} has results that are not those of one audit: its id and one hash are expected")
    return parts[1], parts[2]


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a character
        return False
    return True


def _decoded(text: str) -> bytes:
    try:
        return decoded(text)
    except ValueError:
        return b""
