"""The state of a sink's proof as JSON, in the ledger's table `proof`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from recon.errors import LedgerError
from recon.model.proof import SinkProof
from recon.text import first_line

if TYPE_CHECKING:
    from pydantic import TypeAdapter


class UnknownFieldError(LedgerError):
    """A later version of recon stored the state."""


def dump_proof(proof: SinkProof) -> str:
    """The state as JSON, without its place in the chain."""
    return _codec().dump_json(proof, exclude={"sequence", "entry_hash", "audited_at"}).decode()


def parse_proof(text: str) -> SinkProof:
    """The state, every value checked against its type.

    Raises:
        UnknownFieldError: the text has a field that this version of recon does not know.
        LedgerError: the text is not a state.
    """
    from pydantic import ValidationError

    try:
        proof = _codec().validate_json(text)
    except (ValidationError, ValueError) as error:
        raise LedgerError(f"a state of the proof cannot be read: {first_line(error)}") from error
    written = dump_proof(proof)
    unknown = next(_unknown(json.loads(text), json.loads(written)), None) if text != written else None
    if unknown is not None:
        raise UnknownFieldError(f"this version of recon does not know its field {unknown!r}")
    return proof


def _unknown(stored: Any, written: Any) -> Iterator[str]:
    """The names in a stored document that are not in what this version writes of it: their meaning would be lost."""
    if isinstance(stored, dict) and isinstance(written, dict):
        yield from (name for name in stored if name not in written)
        for name in stored.keys() & written.keys():
            yield from _unknown(stored[name], written[name])
    elif isinstance(stored, list) and isinstance(written, list):
        for one, other in zip(stored, written, strict=False):
            yield from _unknown(one, other)


@cache
def _codec() -> TypeAdapter[SinkProof]:
    from pydantic import TypeAdapter

    return cast("TypeAdapter[SinkProof]", TypeAdapter(SinkProof))
