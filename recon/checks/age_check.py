"""What the checks share that hold the age of what waits to be read against two limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from recon.checks.base import EvidenceCheck
from recon.checks.period import Period
from recon.model import Code

Limits = Mapping[Code, Period]  # of the age, by the code of what is older, the worst first


@dataclass(frozen=True, kw_only=True)
class AgeCheck(EvidenceCheck):
    """Warns, or fails, where what waits is older than agreed."""

    warn_after: Period | None = None
    error_after: Period | None = None

    @property
    def limits(self) -> Limits:
        """Those that there are."""
        limits = {Code.STALLED: self.error_after, Code.LAG: self.warn_after}
        return {code: limit for code, limit in limits.items() if limit}

    @property
    def limits_told(self) -> Mapping[str, str | None]:
        """The limits for a verdict's evidence."""
        limits = {"warn_after": self.warn_after, "error_after": self.error_after}
        return {name: str(limit) if limit else None for name, limit in limits.items()}


def exceeded(limits: Limits, age: timedelta) -> Code | None:
    """The code of the worst limit that an age exceeds; None where it exceeds none."""
    return next((code for code, limit in limits.items() if age > limit.length), None)
