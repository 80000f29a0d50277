"""The table `erasures` beside the ledger: who erased how many rows of a person, hashed and chained per sink."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from recon._version import __version__
from recon.base.errors import LedgerError
from recon.base.text import plural
from recon.model.erasure import Erasure
from recon.model.wire.app_ids import chain_id
from recon.write.ledger import arrow
from recon.write.ledger.store import ChainMoved, Filter, LedgerTable, Store, again, deadline

ERASURES = LedgerTable(
    kind="erasures",
    time="at",
    columns={
        "pipeline": str,
        "sink": str,
        "sequence": int,
        "at": datetime,
        "by": str,
        "reason": str,
        "quarantined": int,
        "failures": int,
        "samples": int,
        "recon_version": str,
        "prev_hash": str,
        "entry_hash": str,
    },
)
_SEALED = [name for name in ERASURES.columns if name != "entry_hash"]


class ErasureTable:
    """The erasures of one ledger."""

    def __init__(self, store: Store) -> None:
        """`store` holds the table `erasures`."""
        self.store = store

    def of(self, pipeline: str, sink: str) -> list[Erasure]:
        """The erasures of a sink, in the order of their chain; raises what `chain` raises."""
        return [erasure for erasure, _ in self.chain(pipeline, sink)]

    def chain(self, pipeline: str, sink: str) -> list[tuple[Erasure, str]]:
        """The erasures of a sink with the hash of each entry, in the order of their chain.

        Raises:
            ErasuresEdited: an entry was edited, added or removed.
            LedgerError: the table cannot be read.
        """
        rows = self._rows(pipeline, sink)
        if fault := self._fault(pipeline, sink, rows):
            raise ErasuresEdited(fault)
        names = [name for name in ERASURES.columns if name in Erasure.__dataclass_fields__]
        return [(Erasure(**{name: row[name] for name in names}), str(row["entry_hash"])) for row in rows]

    def append(self, erasure: Erasure) -> int:
        """Enters an erasure behind the newest; its number.

        Raises:
            LedgerError: the table was edited, or cannot be written, or others wrote it all the time.
        """
        until = deadline()
        try:
            return again(partial(self._append, erasure, until), ChainMoved, until)
        except ChainMoved as moved:
            raise LedgerError(
                f"other erasures of pipeline {erasure.pipeline}, sink {erasure.sink} were entered in "
                f"{self.store.location}, again and again; erase once they are done"
            ) from moved

    def _append(self, erasure: Erasure, until: float) -> int:
        self.of(erasure.pipeline, erasure.sink)
        rows = self._rows(erasure.pipeline, erasure.sink)
        row = {
            **vars(erasure),
            "sequence": len(rows) + 1,
            "recon_version": __version__,
            "prev_hash": rows[-1]["entry_hash"] if rows else "",
            "date": erasure.at.date(),
        }
        row["entry_hash"] = _seal(row)
        chain = chain_id(erasure.pipeline, erasure.sink)
        self.store.append(arrow.table([row], self.store.schema), chain=chain, after=len(rows), until=until)
        return len(rows) + 1

    def _rows(self, pipeline: str, sink: str) -> list[dict[str, Any]]:
        if not self.store.exists():
            return []
        rows = arrow.rows(self.store.read(Filter.of(pipeline, sink)))
        return sorted(rows, key=lambda row: int(row["sequence"]))

    def _fault(self, pipeline: str, sink: str, rows: Sequence[Mapping[str, Any]]) -> str | None:
        of_sink = f"the erasures of pipeline {pipeline}, sink {sink} in {self.store.location}"
        length = self.store.length(chain_id(pipeline, sink)) if self.store.exists() else 0
        if [row["sequence"] for row in rows] != list(range(1, length + 1)):
            return f"{of_sink} are not the {length} that were entered: the table was edited"
        before = ""
        for row in rows:
            if row["prev_hash"] != before or _seal(row) != row["entry_hash"]:
                return f"number {row['sequence']} of {of_sink} does not match its hashes: it was edited"
            before = row["entry_hash"]
        return None


def what_is_gone(
    pipeline: str, sink: str, chain: Sequence[tuple[Erasure, str]], seen: tuple[int, str] | None
) -> str | None:
    """Says that a chain is not the one that an earlier audit saw, or its continuation; None where it is.

    `seen` is how many entries that audit saw, and the hash of the newest of them.
    """
    if seen is None or (len(chain) >= seen[0] and chain[seen[0] - 1][1] == seen[1]):
        return None
    return (
        f"an earlier audit read {plural(seen[0], 'erasure')} of pipeline {pipeline}, sink {sink}, and the table "
        f"{ERASURES.kind} has {len(chain)}, or others: it was removed or edited, or is an older copy"
    )


class ErasuresEdited(LedgerError):
    """The erasures are not what recon entered."""


def _seal(row: Mapping[str, Any]) -> str:
    values = [row[name].isoformat() if isinstance(row[name], datetime) else row[name] for name in _SEALED]
    return hashlib.sha256(json.dumps(values, separators=(",", ":"), ensure_ascii=False).encode()).hexdigest()
