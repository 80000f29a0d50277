"""A ledger as it was: its tables, read up to a position of each chain, and without some audits."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import date
from typing import Any, NoReturn

from typing_extensions import override

from recon.base.errors import LedgerError
from recon.base.lazy import np, pa
from recon.model.wire.app_ids import parse_chain_id
from recon.write.ledger import arrow
from recon.write.ledger.ledger import Ledger
from recon.write.ledger.store import SEQUENCE, Filter, Store

Chain = tuple[str, str]


def ledger_up_to(
    ledger: Ledger, entries: Mapping[Chain, int], states: Mapping[Chain, int], without: Collection[str]
) -> Ledger:
    """The ledger without what came later; nothing can be written into it.

    Args:
        ledger: the whole one.
        entries: the last entry of chains that are cut; of the others all entries are there.
        states: the last state of the proof of chains that are cut.
        without: the invocation_ids of audits whose results are left out.
    """
    place = ("pipeline", "sink", SEQUENCE)
    return Ledger(
        _View(ledger.store, _upto(entries), place, entries),
        _View(ledger.results, (lambda row: row[0] not in without) if without else None, ("invocation_id",), {}),
        _View(ledger.proofs.store, _upto(states), place, states),
    )


_WasThere = Callable[[tuple[Any, ...]], bool]


def _upto(last: Mapping[Chain, int]) -> _WasThere | None:
    return (lambda row: row[2] <= last.get((row[0], row[1]), row[2])) if last else None


class _View(Store):
    """Rows of a store that were there: those whose values in the columns `by` say so, or all of them."""

    def __init__(self, store: Store, was_there: _WasThere | None, by: Sequence[str], last: Mapping[Chain, int]) -> None:
        self._store, self._was_there, self._by, self._last = store, was_there, by, last
        self.kind, self.schema, self.time_column, self.added = store.kind, store.schema, store.time_column, store.added

    @property
    @override
    def location(self) -> str:
        return self._store.location

    @override
    def exists(self) -> bool:
        return self._store.exists()

    @override
    def read(self, which: Filter, columns: Sequence[str] | None = None) -> pa.Table:
        if self._was_there is None:
            return self._store.read(which, columns)
        wanted = self.schema.names if columns is None else columns
        rows = self._store.read(which, list(dict.fromkeys((*wanted, *self._by))))
        there = [self._was_there(row) for row in arrow.tuples(rows, *self._by)]
        if not all(there):
            rows = rows.take(arrow.array(np.flatnonzero(np.array(there, np.bool_))))
        return rows.select(list(wanted))

    @override
    def length(self, chain: str) -> int:
        length = self._store.length(chain)
        return min(length, self._last.get(parse_chain_id(chain), length))

    @override
    def dates(self) -> list[date]:
        return self._store.dates()

    @override
    def operations(self, after: int | None = None) -> list[tuple[int, str]]:
        return self._store.operations(after)

    @override
    def small_files(self) -> int:
        return 0

    @override
    def _append(self, rows: pa.Table, chain: str | None, after: int) -> None:
        self._refuse()

    @override
    def compact(self, *, growing: bool = False) -> Mapping[str, Any]:
        self._refuse()

    @override
    def vacuum(self, *, appended_only: bool = False) -> None:
        self._refuse()

    @override
    def forget(self, upto: date) -> None:
        self._refuse()

    @override
    def remove(self, predicate: str) -> None:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise LedgerError(f"{self.location} is read as it was, and nothing is written into it")


__all__ = ["ledger_up_to"]
