"""What `recon retry` runs: the checks that an audit left to do, with the options that it had."""

from __future__ import annotations

from datetime import datetime

from recon.audit.options import Options
from recon.audit.run import STOPPED
from recon.model import RunResult


def retried(last: RunResult) -> list[str]:
    """The unique_ids of the checks to run again: those that failed, errored, or were left out by --fail-fast.

    Warnings too, where the run counted them as failures.
    """
    failing = Options(warn_error=bool(last.args.get("warn_error"))).failing
    return [
        r.unique_id for r in last.results if r.status in failing or (r.status == "skipped" and r.message == STOPPED)
    ]


def history_of(last: RunResult) -> datetime:
    """Where history ends for a retry of this run: before what it measured itself, or the run it retried."""
    first = last.args.get("history_to")
    return datetime.fromisoformat(first) if first else last.generated_at


def options_of(last: RunResult) -> Options:
    """The options of a retry of this run: its checks left to do, its period, its switches."""
    to = last.args.get("to")
    return Options(
        only=retried(last),
        begins={facts.name: facts.period_from for facts in last.pipelines},
        history_to=history_of(last),
        to=datetime.fromisoformat(to) if to else None,
        fail_fast=bool(last.args.get("fail_fast")),
        no_spark=bool(last.args.get("no_spark")),
        full_refresh=bool(last.args.get("full_refresh")),
        warn_error=bool(last.args.get("warn_error")),
    )
