"""An erasure: rows of a person that somebody removed from what recon keeps, and what is said of it afterwards."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from recon.base.text import plural


@dataclass(frozen=True, kw_only=True)
class Erasure:
    """What was erased of one sink, when, by whom and why; the condition is not kept, since it names the person.

    `quarantined` are rows in quarantine whose values were removed, `failures` stored failing rows, `samples` samples in
    the results of the last run: as many as there were when the erasure began.
    """

    pipeline: str
    sink: str
    at: datetime
    by: str
    reason: str
    quarantined: int
    failures: int
    samples: int

    @property
    def rows(self) -> int:
        """How many rows and samples it is about."""
        return self.quarantined + self.failures + self.samples

    @property
    def sentence(self) -> str:
        """What reports say of it."""
        counted = (
            (self.quarantined, "quarantined row"),
            (self.failures, "stored failing row"),
            (self.samples, "sample"),
        )
        what = ", ".join(plural(count, noun) for count, noun in counted if count)
        return f"{what} erased by {self.by} on {self.at:%Y-%m-%d %H:%M:%S}Z: {self.reason}"
