"""recon observe: enters in the ledger what streams write without recon."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from recon.base.errors import ConfigError, ReconError
from recon.base.text import plural, some
from recon.cli.shared import PipelineOption, Session

if TYPE_CHECKING:
    from recon.audits.sources import Brokers
    from recon.model import LedgerEntry
    from recon.project import Pipeline
    from recon.write.ledger import Ledger

_SHORTEST_S = 1.0


def observe(
    session: Session,
    pipeline: PipelineOption = None,
    every: Annotated[
        str | None, typer.Option("--every", help="Look again and again, such as 60s or 5m; once without it.")
    ] = None,
) -> None:
    """Enter in the ledger what streams with `write: native` or `foreach_batch` wrote.

    Reads their checkpoints and the logs of their tables, and writes ledger entries alone. Spark keeps about 100
    micro-batches in a checkpoint: look more often than it writes so many. Every audit looks once by itself.
    """
    from recon.audits.sources import Brokers
    from recon.write.ledger import open_ledger

    project = session.project()
    session.check_names(pipeline, None)
    watched = [pipe for pipe in project.pipelines if pipe.is_observed and pipeline in (None, pipe.name)]
    if not watched:
        named = f"pipeline {pipeline} has" if pipeline else "no pipeline of recon.yml has"
        raise ConfigError(
            f"{named} `write: native` or `foreach_batch`: there is nothing to observe, since recon's hook enters what "
            "it writes; set that key where Spark's own Delta sink writes, or a function of yours"
        )
    pause = None if every is None else _seconds(every)
    ledger = open_ledger(project)
    if pause is None:
        failed = _look(session, watched, ledger, Brokers(), always=True)
        raise typer.Exit(2 if failed else 0)
    typer.echo(f"Observing {', '.join(pipe.name for pipe in watched)} every {every}; end with Ctrl-C.", err=True)
    while True:
        began = time.monotonic()
        _look(session, watched, ledger, Brokers(), always=False)
        time.sleep(max(_SHORTEST_S, pause - (time.monotonic() - began)))


def _look(session: Session, watched: Sequence[Pipeline], ledger: Ledger, brokers: Brokers, *, always: bool) -> bool:
    """Looks once at each stream; whether one could not be looked at. The others are not held up by it."""
    from recon.spark.catalog import ask_active
    from recon.write.observer import look

    ask_active(session.project())
    failed = False
    for pipeline in watched:
        try:
            found = look(session.project(), pipeline, ledger, brokers.ask)
        except ReconError as error:
            failed = True
            typer.echo(session.mask(f"{pipeline.name}: {error}"), err=True)
            continue
        if found.entered or always:
            typer.echo(f"{pipeline.name}: {_entered(found.entered)}")
        if found.waits:
            typer.echo(session.mask(f"{pipeline.name}: {found.waits}"), err=True)
        if found.unseen and (found.entered or always):
            typer.echo(
                f"{pipeline.name}: {plural(len(found.unseen), 'micro-batch')} ({some(found.unseen)}) had no plan "
                "in the checkpoint any more: what was read into them is not known",
                err=True,
            )
    return failed


def _entered(entries: Sequence[LedgerEntry]) -> str:
    if not entries:
        return "nothing new"
    first, last = entries[0].batch_id, entries[-1].batch_id
    which = f"micro-batch {first}" if len(entries) == 1 else f"{len(entries):,} micro-batches, {first} to {last}"
    rows = sum(entry.rows_written or 0 for entry in entries)
    return f"entered {which} ({plural(rows, 'row')})"


def _seconds(text: str) -> float:
    """A length of time such as 60s, 5m or 1h in seconds."""
    match = re.fullmatch(r"(\d+)\s*([smh]?)", text.strip())
    seconds = int(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]] if match else 0
    if seconds < _SHORTEST_S:
        raise ConfigError(f"--every {text!r} is no length of time of a second or more; write such as 60s, 5m or 1h")
    return float(seconds)
