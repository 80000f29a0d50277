"""A length of time as dbt's freshness writes it, which several checks take as an argument."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal


@dataclass(frozen=True)
class Period:
    """A length of time as dbt's freshness writes it: `{count: 5, period: minute}`."""

    count: int
    period: Literal["minute", "hour", "day"]

    @property
    def length(self) -> timedelta:
        """The same as a timedelta."""
        return self.count * timedelta(**{f"{self.period}s": 1})

    def __str__(self) -> str:
        return f"{self.count} {self.period}{'s' if self.count != 1 else ''}"
