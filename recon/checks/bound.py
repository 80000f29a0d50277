"""A check with its place in the project: what is run, and under which name its result is shown."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from recon.checks.base import Check
from recon.project import CheckConfig


@dataclass(frozen=True, kw_only=True)
class Bound:
    """One check bound to a pipeline, to a sink of it, or to an entry of `tables`.

    `unique_id` is `test.<project>.<name>`. `sink` is None for a check that is judged once for the pipeline; `pipeline`
    is None for a check of an entry of `tables`, whose name `sink` then is. `column` is the column a column test is
    about, `line` where recon.yml lists the check.
    """

    check: Check
    config: CheckConfig
    unique_id: str
    name: str
    pipeline: str | None
    sink: str | None = None
    column: str | None = None
    tags: tuple[str, ...] = ()
    line: int | None = None

    @property
    def kind(self) -> str:
        """Whether `run_evidence` ("evidence") or `run_table` ("data") runs it."""
        return self.check.kind

    @property
    def table(self) -> str | None:
        """The name of the entry of `tables` that it is about; None where it is about a pipeline."""
        return self.sink if self.pipeline is None else None

    @property
    def place(self) -> str:
        """The end of a message about what recon.yml says of the check; empty for one that has no line."""
        return f" (line {self.line} of recon.yml)" if self.line is not None else ""

    @property
    def fingerprint(self) -> str:
        """16 hexadecimal digits of a hash over the test, its arguments and `where`.

        Checks that judge different things have different fingerprints, even if they have one name.
        """
        return hashlib.sha256(f"{self.check!r} where {self.config.where!r}".encode()).hexdigest()[:16]
