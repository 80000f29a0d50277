"""Checks that measure themselves: by foreign code that takes several at once, or each alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from recon.checks.base import JointCheck, WholeCheck
from recon.checks.engine.aggregates import Folded
from recon.checks.engine.context import ScanContext
from recon.checks.engine.executor import Slot, broke, empty, reason_of
from recon.errors import ReconError
from recon.model import Verdict

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Joint:
    """Checks that foreign code measures together; those of one party and `where` share a call."""

    def __init__(self, table: DataFrame, name: str, folded: Folded) -> None:
        self._table, self._name, self._folded = table, name, folded
        self._slots: dict[int, Slot] = {}

    def admit(self, slot: Slot) -> None:
        """Takes a check."""
        self._slots[slot.at] = slot
        if not slot.check.judges_empty:
            self._folded.count_rows(slot)

    def measure(self, slot: Slot) -> Mapping[int, Verdict]:
        """The whole party."""
        mine = self._party(slot)
        together = {at: s for at, s in self._slots.items() if self._party(s) == mine}
        try:
            if not slot.check.judges_empty and not self._folded.rows(slot):
                return {at: empty(s) for at, s in together.items()}
            rows = self._table if slot.where is None else self._table.filter(slot.where)
            checks = [s.check for s in together.values()]
            found = cast(JointCheck, slot.check).judge_all(checks, rows)
        except Exception as error:
            return dict.fromkeys(together, Verdict(unproved=reason_of(error)))
        return dict(zip(together, found, strict=True))

    def failing(self, slot: Slot, limit: int) -> DataFrame | None:
        """Their verdicts bring samples along."""
        return None

    def _party(self, slot: Slot) -> tuple[Any, ...]:
        return (type(slot.check), cast(JointCheck, slot.check).party(), slot.bound.config.where)


class Alone:
    """Checks that measure themselves; they bring their samples along."""

    def __init__(self, table: DataFrame, name: str, context: ScanContext, limit: Callable[[Slot], int]) -> None:
        self._table, self._name, self._context, self._limit = table, name, context, limit

    def admit(self, slot: Slot) -> None:
        """Takes any."""

    def measure(self, slot: Slot) -> Mapping[int, Verdict]:
        """This one alone."""
        rows = self._table if slot.where is None else self._table.filter(slot.where)
        try:
            found = cast(WholeCheck, slot.check).judge_tables(rows, self._context.tables, self._limit(slot))
        except ReconError as error:
            return {slot.at: Verdict(unproved=reason_of(error))}
        except Exception as error:
            return {slot.at: Verdict(unproved=str(broke(self._name, error)))}
        return {slot.at: empty(slot) if found is None else found}

    def failing(self, slot: Slot, limit: int) -> DataFrame | None:
        """None beyond those of the verdict."""
        return None
