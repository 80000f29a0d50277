"""The options of an audit."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recon.base.errors import ConfigError
from recon.checks.select import LastRun
from recon.model import CheckResult

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from recon.audits.sources import Sources


@dataclass(frozen=True, kw_only=True)
class Options:
    """What an audit is asked to do: the arguments of `run_audit`, and behind them what only the command line sets.

    Args:
        only: unique_ids of the checks to choose from; all when None.
        last: the status of each unique_id in the last run, for the selector `result:`.
        begins: begin of the period per pipeline, where `from_` is None; None stands for the whole ledger.
        history_to: where the history ends that checks compare with; the audit's start when None.
        on_start: called with the number of checks.
        on_check: called with the name of the check that runs now.
        sources: where the witnesses of a pipeline are, in place of `Sources`; `recon try` has some of a recording.
        spark_log: a file for what Spark's JVM prints; the console when None.
        now: the time as of which everything is judged, UTC; that of a recording, else None. The run's own time is in
            its notes.
    """

    select: Sequence[str] = ()
    exclude: Sequence[str] = ()
    from_: datetime | None = None
    to: datetime | None = None
    fail_fast: bool = False
    no_spark: bool = False
    full_refresh: bool = False
    full: bool = False
    warn_error: bool = False
    require_complete: bool = False
    spark: SparkSession | None = None
    keep: bool = True
    on_result: Callable[[int, int, CheckResult], None] | None = None

    only: Collection[str] | None = None
    last: LastRun | None = None
    begins: Mapping[str, datetime | None] = field(default_factory=dict)
    history_to: datetime | None = None
    on_start: Callable[[int], None] | None = None
    on_check: Callable[[str], None] | None = None
    sources: type[Sources] | None = None
    now: datetime | None = None
    spark_log: Path | None = None

    @property
    def goes_on(self) -> bool:
        """Whether the audit goes on where the last one stopped, or proves everything anew: no period was asked for."""
        return self.from_ is None and self.to is None and not self.begins

    def until(self, now: datetime) -> datetime | None:
        """The end of the period where it lies before the audit itself; None for now, which nothing later is part of."""
        return self.to if self.to is not None and self.to <= now else None

    @property
    def failing(self) -> tuple[str, ...]:
        """The statuses that fail the run."""
        return ("fail", "error", "warn") if self.warn_error else ("fail", "error")

    def as_args(self) -> dict[str, Any]:
        """What run_results.json keeps under `args`, and `recon retry` reads again."""
        return {
            "select": list(self.select),
            "exclude": list(self.exclude),
            "from": self.from_.isoformat() if self.from_ else None,
            "to": self.to.isoformat() if self.to else None,
            "fail_fast": self.fail_fast,
            "no_spark": self.no_spark,
            "full_refresh": self.full_refresh,
            "full": self.full,
            "warn_error": self.warn_error,
            "require_complete": self.require_complete,
            "history_to": self.history_to.isoformat() if self.history_to else None,
        }


def texts(name: str, value: object) -> tuple[str, ...]:
    """One text or several, as several; None is none.

    Raises:
        ConfigError: it is something else.
    """
    several = [value] if isinstance(value, str) else value or []
    if not isinstance(several, Iterable) or not all(isinstance(text, str) for text in several):
        raise ConfigError(f"{name} {value!r} is not a list of texts; give a list such as ['pipeline:orders']")
    return tuple(several)
