"""A check with its place in the project: what is run, and under which name its result is shown."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from recon.checks.base import Check
from recon.project import CheckConfig


@dataclass(frozen=True, kw_only=True)
class Bound:
    """One check bound to a pipeline, or to a sink of it.

    `unique_id` is `test.<project>.<name>`. `sink` is None for a check that is judged once for the pipeline;
    `column` is the column a column test is about.
    """

    check: Check
    config: CheckConfig
    unique_id: str
    name: str
    pipeline: str
    sink: str | None = None
    column: str | None = None
    tags: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """Whether `run_evidence` ("evidence") or `run_table` ("data") runs it."""
        return self.check.kind

    @property
    def fingerprint(self) -> str:
        """16 hexadecimal digits of a hash over the test, its arguments and `where`.

        Checks that judge different things have different fingerprints, even if they have one name.
        """
        return hashlib.sha256(f"{self.check!r} where {self.config.where!r}".encode()).hexdigest()[:16]
