"""What earlier audits of a project found, day by day: the trends of a report. Days are of UTC."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime


@dataclass(frozen=True, kw_only=True)
class Spell:
    """Days on end, `first` and `last` included, that have one state; `audits` were made on them.

    The state is an answer for a pipeline, a status for a check. Days without an audit are in no spell.
    """

    first: date
    last: date
    state: str
    audits: int


@dataclass(frozen=True, kw_only=True)
class Strip:
    """The days of a pipeline or of a check, ascending.

    For a check, `pipeline` is where it belongs. `failed` is in how many of its audits it failed or could not be
    evaluated; `failures` is the most that one audit counted, None where none counted any.
    """

    name: str
    days: tuple[Spell, ...]
    pipeline: str | None = None
    failed: int = 0
    failures: int | None = None


@dataclass(frozen=True, kw_only=True)
class PastAudit:
    """One audit.

    `answers` counts its pipelines by answer, `counts` its checks by status; `seconds` are those of its checks.
    `failing` names checks that failed or could not be evaluated. `edited` is whether stored results of it were changed.
    """

    invocation_id: str
    generated_at: datetime
    answers: Mapping[str, int]
    counts: Mapping[str, int]
    seconds: float
    failing: str = ""
    edited: bool = False


@dataclass(frozen=True, kw_only=True)
class DayCost:
    """What the audits of a day took: seconds of their checks, together and of the longest audit."""

    day: date
    audits: int
    seconds: float
    longest: float


@dataclass(frozen=True, kw_only=True)
class DayLag:
    """The largest lag that an audit of the day found, in offsets; None where no audit could tell."""

    day: date
    lag: int | None


@dataclass(frozen=True, kw_only=True)
class PipelineLag:
    """A pipeline's lag by day, ascending; days without an audit are left out."""

    pipeline: str
    days: tuple[DayLag, ...]


@dataclass(frozen=True, kw_only=True)
class Detection:
    """When something happened, and when an audit first reported it.

    `happened_at` is when the micro-batch that it is about, or the commit that did it, was committed; None where that is
    not known. `findings` are reported of it.
    """

    pipeline: str
    sink: str | None
    codes: tuple[str, ...]
    findings: int
    happened_at: datetime | None
    first_seen: datetime

    @property
    def seconds(self) -> float | None:
        """How long it took to be found; None where that is not known."""
        return None if self.happened_at is None else max((self.first_seen - self.happened_at).total_seconds(), 0.0)


@dataclass(frozen=True, kw_only=True)
class PastAudits:
    """The audits from `first_day` to `last_day`, this one among them, as their results were stored beside the ledger.

    Attributes:
        first_day: from which day on results were read.
        last_day: that of the report's own audit.
        audits: how many there are.
        read_from: where earlier days were left out because there are too many results, the first that was read.
        project: the worst answer of all pipelines by day.
        pipelines: by name.
        checks: that failed, could not be evaluated or warned, the one that failed in most audits first.
        checks_total: how many such checks there are.
        recent: the newest audits, the newest first.
        costs: by day.
        lags: of pipelines that lagged, by their newest lag.
        detections: of what was found in this time, the newest first.
        unknown: why nothing could be read; "" where it could.
    """

    first_day: date
    last_day: date
    audits: int = 0
    read_from: date | None = None
    project: tuple[Spell, ...] = ()
    pipelines: tuple[Strip, ...] = ()
    checks: tuple[Strip, ...] = ()
    checks_total: int = 0
    recent: tuple[PastAudit, ...] = ()
    costs: tuple[DayCost, ...] = ()
    lags: tuple[PipelineLag, ...] = ()
    detections: tuple[Detection, ...] = ()
    unknown: str = ""


__all__ = [
    "DayCost",
    "DayLag",
    "Detection",
    "PastAudit",
    "PastAudits",
    "PipelineLag",
    "Spell",
    "Strip",
]
