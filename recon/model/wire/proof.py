"""The state of a sink's proof as JSON, in the ledger's table `proof`."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, cast

from recon.errors import LedgerError
from recon.model.proof import SinkProof
from recon.text import first_line

if TYPE_CHECKING:
    from pydantic import TypeAdapter


def dump_proof(proof: SinkProof) -> str:
    """The state as JSON, without its place in the chain."""
    return _codec().dump_json(proof, exclude={"sequence", "entry_hash", "audited_at"}).decode()


def parse_proof(text: str) -> SinkProof:
    """The state, every value checked against its type.

    Raises:
        LedgerError: the text is not a state.
    """
    from pydantic import ValidationError

    try:
        return _codec().validate_json(text)
    except (ValidationError, ValueError) as error:
        raise LedgerError(f"a state of the proof cannot be read: {first_line(error)}") from error


@cache
def _codec() -> TypeAdapter[SinkProof]:
    from pydantic import TypeAdapter

    return cast("TypeAdapter[SinkProof]", TypeAdapter(SinkProof))
