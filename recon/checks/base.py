"""What a check is: it says what to measure and how to judge, and does neither itself.

Evidence checks judge witnesses (`EvidenceCheck.judge`). Data checks name aggregates over one table
(`RowCheck.measures`) that the runner folds into one Spark job, or group by a key (`KeyCheck`). A check
neither collects, prints nor renders.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from recon.model import Verdict, Witnesses
from recon.offsets import Spans

if TYPE_CHECKING:
    from pyspark.sql import Column


@dataclass(frozen=True, kw_only=True)
class Check(ABC):
    """Anything that gives a verdict. `test` is its dbt-like kind, set by each class."""

    test: ClassVar[str]

    def label(self) -> str:
        """The part of the check's name that its arguments add, like dbt's; `""` for none."""
        return ""


@dataclass(frozen=True, kw_only=True)
class EvidenceCheck(Check):
    """Judges witnesses. `needs` names the fields of `Witnesses` it cannot do without.

    `scope` is "pipeline" (judged once) or "sink" (judged once per sink). The runner answers for a witness in
    `needs` that is Unavailable: status error, or skipped when the user chose so; `judge` then never runs.
    """

    needs: ClassVar[Sequence[str]] = ("ledgers",)
    scope: ClassVar[str] = "pipeline"

    @abstractmethod
    def judge(self, witnesses: Witnesses) -> Verdict:
        """The verdict. Pure: no I/O, no clock."""

    def questions(self, witnesses: Witnesses) -> Mapping[tuple[str, int], Spans]:
        """Offsets per (topic, partition) that only Kafka's own records can explain; answered before `judge`.

        The door puts the answers into `witnesses.probes`. Empty for a check that asks nothing.
        """
        return {}


@dataclass(frozen=True, kw_only=True)
class RowCheck(Check):
    """Aggregates over the rows of one table, all folded into one scan.

    `measures` maps a name to an aggregate Column; `judge` gets the same names with plain values, and
    `rows`, the number of rows it was measured on. `failing` is the condition a failing row meets, for samples.
    """

    @abstractmethod
    def measures(self) -> Mapping[str, Column]:
        """Aggregates by name. The runner applies `where` to them."""

    @abstractmethod
    def judge(self, measured: Mapping[str, Any]) -> Verdict:
        """The verdict from the measured values."""

    def failing(self) -> Column | None:
        """The condition that a failing row meets; None where a row alone cannot fail."""
        return None

    def columns(self) -> Sequence[str]:
        """Columns the check reads; the runner checks that they exist and prunes to them."""
        return ()


@dataclass(frozen=True, kw_only=True)
class KeyCheck(Check):
    """Groups one table by a key and judges keys that occur more than once.

    `judge` gets `rows`, `duplicate_keys` (keys that occur more than once), `surplus_rows` (rows beyond the
    first of each such key) and `samples` (the first `limit` keys with their counts).
    """

    @abstractmethod
    def key(self) -> Sequence[str]:
        """The key's columns."""

    @abstractmethod
    def judge(self, measured: Mapping[str, Any]) -> Verdict:
        """The verdict from the measured values."""


__all__ = ["Check", "EvidenceCheck", "KeyCheck", "RowCheck"]
