"""What `recon retry` runs: the checks that an audit left to do, with the options that it had."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from recon.audits.options import Options
from recon.audits.record import STOPPED
from recon.model import RunResult


def options_of(last: RunResult) -> Options:
    """The options of a retry of this run: its period, its switches, and the checks that it left to do.

    These are the checks that failed (warnings too, where the run counted them as failures), errored, or were left out
    by --fail-fast. History ends before what the run measured itself, or the run that it retried.
    """
    args = last.args
    to, history_to = (datetime.fromisoformat(args[name]) if args.get(name) else None for name in ("to", "history_to"))
    options = Options(
        begins={facts.name: facts.period_from for facts in last.pipelines},
        history_to=history_to or last.generated_at,
        to=to,
        fail_fast=bool(args.get("fail_fast")),
        no_spark=bool(args.get("no_spark")),
        full_refresh=bool(args.get("full_refresh")),
        warn_error=bool(args.get("warn_error")),
        require_complete=bool(args.get("require_complete")),
    )
    left = [r for r in last.results if r.status in options.failing or (r.status == "skipped" and r.message == STOPPED)]
    return replace(options, only=[result.unique_id for result in left])
