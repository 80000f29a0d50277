"""recon's ledger on tables in memory: the real `Ledger`, chains and slices, without files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from operator import is_not
from typing import Any

import pyarrow as pa
from typing_extensions import override

from recon.ledger import arrow
from recon.ledger.columns import ENTRIES
from recon.ledger.ledger import Ledger
from recon.ledger.proofs import PROOF
from recon.ledger.results import RESULTS
from recon.ledger.store import ChainMoved, Filter, LedgerTable, Store


class MemoryStore(Store):
    """One table of the ledger; `parts` are its appends."""

    def __init__(self, table: LedgerTable) -> None:
        super().__init__(table)
        self.parts: list[pa.Table] = []
        self._joined: tuple[list[pa.Table], pa.Table] | None = None  # the parts, and all their rows
        self.lengths: dict[str, int] = {}
        self.history: list[tuple[int, str]] = []

    @property
    @override
    def location(self) -> str:
        return f"memory/{self.kind}"

    @override
    def exists(self) -> bool:
        return bool(self.history)

    @override
    def append(self, rows: pa.Table, *, chain: str | None = None, after: int = 0) -> None:
        if chain is not None:
            if self.lengths.get(chain, 0) != after:
                raise ChainMoved(chain)
            self.lengths[chain] = after + rows.num_rows
        self.parts.append(rows)
        self.history.append((len(self.history), "WRITE"))

    @override
    def read(self, which: Filter, columns: Sequence[str] | None = None) -> pa.Table:
        rows = self._whole()
        mask = which.mask(rows, self.time_column)
        rows = rows if mask is None else rows.filter(mask)
        if which.dates is not None:
            rows = rows.filter(pa.array([day in which.dates for day in rows["date"].to_pylist()], pa.bool_()))
        return rows.select(list(columns)) if columns else rows

    def _whole(self) -> pa.Table:
        """All rows in one chunk; put together again when there are other parts."""
        known = self._joined[0] if self._joined is not None else []
        if self._joined is None or len(known) != len(self.parts) or any(map(is_not, known, self.parts)):
            whole = pa.concat_tables(self.parts).combine_chunks() if self.parts else arrow.empty(self.schema)
            self._joined = list(self.parts), whole
        return self._joined[1]

    @override
    def length(self, chain: str) -> int:
        return self.lengths.get(chain, 0)

    @override
    def dates(self) -> list[date]:
        return sorted({day for part in self.parts for day in part["date"].unique().to_pylist()})

    @override
    def operations(self, after: int | None = None) -> list[tuple[int, str]]:
        return [one for one in self.history if after is None or one[0] > after]

    @override
    def small_files(self) -> int:
        return 0

    @override
    def compact(self) -> Mapping[str, Any]:
        return {}

    @override
    def forget(self, upto: date) -> None:
        raise NotImplementedError


def memory_ledger() -> Ledger:
    """An empty ledger."""
    return Ledger(MemoryStore(ENTRIES), MemoryStore(RESULTS), MemoryStore(PROOF))
