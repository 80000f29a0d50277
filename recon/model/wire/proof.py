"""The state of a sink's proof as JSON, in the ledger's table `proof`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

from recon.base.errors import LedgerError
from recon.base.text import first_line
from recon.model.memory import SinkMemory
from recon.model.proof import SinkProof

if TYPE_CHECKING:
    from pydantic import TypeAdapter


class UnknownFieldError(LedgerError):
    """A later version of recon stored the state."""


def dump_proof(proof: SinkProof) -> str:
    """The state as JSON, without its place in the chain."""
    memories = {memory.name: {"version": memory.format, "fields": memory} for memory in proof.memories.values()}
    stored = replace(proof, memories=memories)
    return _codec(SinkProof).dump_json(stored, exclude={"sequence", "entry_hash", "audited_at"}).decode()


def parse_proof(text: str, kinds: Sequence[type[SinkMemory]]) -> SinkProof:
    """The state, every value checked against its type; `kinds` are all the memories that it may have.

    Raises:
        UnknownFieldError: the text has a field that this version of recon does not know, or a later one of a memory.
        LedgerError: the text is not a state.
    """
    from pydantic import ValidationError

    try:
        text = text if '"memories":' in text else _with_memories(text)  # within a message its quotes are escaped
        stored: SinkProof = _codec(SinkProof).validate_json(text)
        proof = replace(stored, memories=dict(_memories(stored.memories, kinds)))
    except (ValidationError, ValueError, TypeError, LookupError, AttributeError) as error:
        raise LedgerError(f"a state of the proof cannot be read: {first_line(error)}") from error
    written = dump_proof(proof)
    if text != written:
        unknown = next(_unknown({**json.loads(text), "memories": stored.memories}, json.loads(written)), None)
        if unknown is not None:
            raise UnknownFieldError(f"this version of recon does not know its field {unknown!r}")
    return proof


def _memories(stored: Mapping[str, Any], kinds: Sequence[type[SinkMemory]]) -> Iterator[tuple[type, SinkMemory]]:
    """The memories by their type, as far as this version of recon knows them; they are brought to its version."""
    for kind in kinds:
        memory = stored.get(kind.name)
        if memory is not None and memory["version"] <= kind.format:
            if memory["version"] < kind.format:
                memory.update(version=kind.format, fields=kind.upgraded(memory["fields"], memory["version"]))
            yield kind, _codec(kind).validate_python(memory["fields"])


def _with_memories(text: str) -> str:
    """A state as it is stored now; earlier versions of recon stored what is remembered in fields of the state."""
    stored = json.loads(text)
    table = {"table_id": stored.pop("table_id", None), "version": stored.pop("table_version", None)}
    counted, other_rows = stored.pop("table_rows", None), stored.pop("other_rows", None)
    fields = {
        "earlier_batches": {} if stored.pop("unwitnessed", False) else None,
        "filtered": {} if stored.pop("filtered", False) else None,
        "table_version": table if any(value is not None for value in table.values()) else None,
        "counted_rows": {"at": counted[0], "rows": counted[1]} if counted is not None else None,
        "other_rows": {"rows": other_rows} if other_rows is not None else None,
        "table": stored.pop("table", None),
        "quarantine": stored.pop("quarantine", None),
        "foreign_rows": {"offsets": listed} if (listed := stored.pop("of_others", ())) else None,
        "without_record": {"offsets": listed} if (listed := stored.pop("without_record", ())) else None,
        "kafka_logs": {"logs": listed} if (listed := stored.pop("logs", ())) else None,
    }
    stored["memories"] = {name: {"version": 1, "fields": of} for name, of in fields.items() if of is not None}
    return json.dumps(stored, separators=(",", ":"), ensure_ascii=False)


def _unknown(stored: Any, written: Any) -> Iterator[str]:
    """The names in a stored document that are not in what this version writes of it: their meaning would be lost."""
    if isinstance(stored, dict) and isinstance(written, dict):
        yield from (name for name in stored if name not in written)
        for name in stored.keys() & written.keys():
            yield from _unknown(stored[name], written[name])
    elif isinstance(stored, list) and isinstance(written, list):
        for item, other in zip(stored, written, strict=False):
            yield from _unknown(item, other)


def _codec(kind: Any) -> TypeAdapter[Any]:
    return _made(kind)


@cache
def _made(kind: Any) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)
