"""What audits showed of each control, day by day, and of each statement of a framework. No I/O.

A control is one of six properties that auditors ask for. A day is one of commits: it counts as shown where audits whose
periods cover it evaluated every check that the control rests on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Literal, get_args

from recon.model.result import Code, Level

Control = Literal["completeness", "uniqueness", "accuracy", "timeliness", "audit trail", "change control"]
CONTROLS: tuple[Control, ...] = get_args(Control)

# The worst is last.
# not yet there: the day was over before the sink's first ledger entry, so there is nothing to show
# answered: nothing of it is open; somebody accepted what was found, or it is repaired
# partly covered: audits looked at a part of the day, and showed that part
# not shown: audits did not, or could not, evaluate every check
# no audit: none looked at any of the day
DayState = Literal["not yet there", "shown", "answered", "partly covered", "not shown", "no audit", "refuted"]
DAY_STATES: tuple[DayState, ...] = get_args(DayState)
UNKNOWN: tuple[DayState, ...] = ("partly covered", "not shown", "no audit")

# What contradicts a control, beside INCONCLUSIVE and VIOLATION, which do so by the check that reports them.
AGAINST: Mapping[Control, frozenset[Code]] = {
    "completeness": frozenset(
        {
            Code.GAP,
            Code.LOSS,
            Code.LOSS_RETENTION,
            Code.SKIPPED,
            Code.PARTIAL,
            Code.LEDGER_ORPHAN,
            Code.RECREATED,
            Code.MUTATED,
        }
    ),
    "uniqueness": frozenset({Code.OVERLAP, Code.DUPLICATE, Code.REPEATED}),
    "accuracy": frozenset({Code.PHANTOM_ROWS, Code.NONDETERMINISTIC, Code.PARTIAL, Code.MUTATED}),
    "timeliness": frozenset({Code.LAG, Code.STALLED, Code.LOSS_AHEAD}),
    "audit trail": frozenset({Code.TAMPERED, Code.LEDGER_MISSING, Code.LEDGER_ORPHAN}),
    "change control": frozenset({Code.MUTATED, Code.UNSTAMPED, Code.RECREATED}),
}

# Tests of rows that are about another control than accuracy.
_OF_TESTS: Mapping[str, Control] = {
    "unique": "uniqueness",
    "unique_combination_of_columns": "uniqueness",
    "freshness": "timeliness",
    "recency": "timeliness",
    "row_count": "completeness",
    "equal_rowcount": "completeness",
    "fewer_rows_than": "completeness",
    "cardinality_equality": "completeness",
    "volume_anomaly": "completeness",
}


def control_of_test(check: str) -> Control:
    """The control that a test of rows is about."""
    return _OF_TESTS.get(check, "accuracy")


def contradicts(code: Code, controls: Iterable[Control]) -> bool:
    """Whether a finding with the code, of whichever check, contradicts one of the controls."""
    return code.level is not Level.INFO and any(code in AGAINST[control] for control in controls)


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """Days in a row of which the same is to be said; both ends are part of it."""

    first: date
    last: date
    state: DayState
    because: str = ""

    @property
    def days(self) -> int:
        """How many days it has."""
        return (self.last - self.first).days + 1


@dataclass(frozen=True, kw_only=True)
class ControlDays:
    """What audits showed of a control of one sink, or of a statement, on each day of the period that is not to come."""

    pipeline: str
    sink: str
    stretches: tuple[Stretch, ...]

    def count(self, state: DayState) -> int:
        """The days of a state."""
        return sum(stretch.days for stretch in self.stretches if stretch.state == state)

    @property
    def total(self) -> int:
        """All days."""
        return sum(stretch.days for stretch in self.stretches)


@dataclass(frozen=True, kw_only=True)
class ControlRecord:
    """A control, or a statement of a framework, over all sinks of a period.

    Attributes:
        id: of the framework's own numbering; the control's name for a control.
        title: what the framework's requirement is about, in our words.
        controls: findings that contradict one of these contradict it.
        checks: what it rests on; of each group one check is enough.
        shown: what may be said where it is shown.
        limits: what it does not say even then.
        sinks: its days.
    """

    id: str
    title: str
    controls: tuple[Control, ...]
    checks: tuple[tuple[str, ...], ...]
    shown: str
    limits: str
    sinks: tuple[ControlDays, ...]

    def count(self, state: DayState) -> int:
        """The days of a state, of all sinks."""
        return sum(sink.count(state) for sink in self.sinks)

    @property
    def total(self) -> int:
        """The days of all sinks."""
        return sum(sink.total for sink in self.sinks)

    @property
    def state(self) -> DayState:
        """The worst that is so on any day of any sink; "not shown" where there is no day."""
        found = [state for state in reversed(DAY_STATES) if self.count(state)]
        return found[0] if found else "not shown"


@dataclass(frozen=True, kw_only=True)
class FrameworkRecord:
    """A framework's statements, each with what audits of the period showed of it."""

    name: str
    title: str
    source: str
    statements: tuple[ControlRecord, ...]
