"""recon's ledger on tables in memory: the real `Ledger`, chains and slices, without files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import date
from operator import is_not
from typing import Any

import pyarrow as pa
from typing_extensions import override

from recon.model.wire.app_ids import chain_id
from recon.write.ledger import arrow
from recon.write.ledger.columns import ENTRIES
from recon.write.ledger.ledger import Ledger
from recon.write.ledger.proofs import PROOF
from recon.write.ledger.results import RESULTS
from recon.write.ledger.store import SEQUENCE, ChainMoved, Filter, LedgerTable, Store

_LOOKED_FOR = ("pipeline", "sink", "kind", SEQUENCE)  # columns that readers filter by, beside time and day


class MemoryStore(Store):
    """One table of the ledger; `parts` are its appends."""

    def __init__(self, table: LedgerTable) -> None:
        super().__init__(table)
        self.parts: list[pa.Table] = []
        self._joined: list[pa.Table] = []  # the parts that `_whole` consists of
        self._whole: pa.Table = arrow.empty(self.schema)  # all their rows, in one chunk
        self._keys: list[dict[str, Any]] = []  # of each row, what it may be looked for by
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
    def _append(self, rows: pa.Table, chain: str | None, after: int) -> None:
        if chain is not None:
            if self.lengths.get(chain, 0) != after:
                raise ChainMoved(chain)
            self.lengths[chain] = after + rows.num_rows
        self.parts.append(rows)
        self.history.append((len(self.history), "WRITE"))

    @override
    def read(self, which: Filter, columns: Sequence[str] | None = None) -> pa.Table:
        self._join()
        wanted = [place for place, keys in enumerate(self._keys) if self._matches(which, keys)]
        rows = self._whole.select(list(columns)) if columns else self._whole
        if not wanted or wanted[-1] - wanted[0] + 1 == len(wanted):
            return rows.slice(wanted[0] if wanted else 0, len(wanted))
        return rows.take(wanted)

    def _matches(self, which: Filter, keys: Mapping[str, Any]) -> bool:
        """`Filter.mask` for one row, in Python: Arrow takes longer to begin than so few rows take."""
        at, sequence = keys[self.time_column], keys.get(SEQUENCE, 0)
        return (
            all(keys[name] == value for name, value in which.equals)
            and (which.from_ is None or at >= which.from_)
            and (which.to is None or at < which.to)
            and (which.dates is None or keys["date"] in which.dates)
            and (which.above is None or sequence > which.above)
            and (which.upto is None or sequence <= which.upto)
        )

    def _join(self) -> None:
        """Puts all rows together: behind those that are, the new ones; all again where a test changed a part."""
        known = len(self._joined)
        if known > len(self.parts) or any(map(is_not, self._joined, self.parts)):
            known, self._joined, self._whole, self._keys = 0, [], arrow.empty(self.schema), []
        if more := self.parts[known:]:
            self._joined += more
            self._whole = pa.concat_tables([self._whole, *more] if known else more).combine_chunks()
            names = [name for name in (*_LOOKED_FOR, self.time_column, "date") if name in self.schema.names]
            self._keys += [keys for part in more for keys in arrow.rows(part.select(names))]

    def put(self, parts: Sequence[pa.Table], operation: str | None = None) -> None:
        """These appends take the place of what is there: an operation of the table, or else files were put there."""
        logged = self.history[: len(parts)] if operation is None else [*self.history, (len(self.history), operation)]
        self.parts, self.history = list(parts), logged
        chains = Counter(chain_id(row["pipeline"], row["sink"]) for part in parts for row in part.to_pylist())
        self.lengths = {chain: chains[chain] for chain in self.lengths}

    @override
    def length(self, chain: str) -> int:
        return self.lengths.get(chain, 0)

    @override
    def dates(self) -> list[date]:
        self._join()
        return sorted({keys["date"] for keys in self._keys})

    @override
    def operations(self, after: int | None = None) -> list[tuple[int, str]]:
        return [operation for operation in self.history if after is None or operation[0] > after]

    @override
    def small_files(self) -> int:
        return 0

    @override
    def compact(self, *, growing: bool = False) -> Mapping[str, Any]:
        return {}

    @override
    def vacuum(self, *, appended_only: bool = False) -> None:
        pass

    @override
    def remove(self, predicate: str) -> None:
        raise NotImplementedError

    @override
    def forget(self, upto: date) -> None:
        raise NotImplementedError


def memory_ledger() -> Ledger:
    """An empty ledger."""
    return Ledger(MemoryStore(ENTRIES), MemoryStore(RESULTS), MemoryStore(PROOF))
