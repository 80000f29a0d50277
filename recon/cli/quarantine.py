"""recon quarantine: what was put aside, and how it comes back."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from recon.cli.shared import (
    OutputOption,
    PipelineOption,
    Session,
    SinkOption,
    command,
    new_app,
    print_json,
    print_table,
)
from recon.errors import ConfigError


def add_to(app: typer.Typer) -> None:
    """Registers this module's commands."""
    group = new_app("Show the rows that checks put aside, or release them into their sink.")
    command(group, "show")(show)
    command(group, "release")(release)
    app.add_typer(group, name="quarantine")


def show(
    session: Session,
    pipeline: PipelineOption = None,
    sink: SinkOption = None,
    reason: Annotated[str | None, typer.Option("--reason", help="Only rows that this check put aside.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="So many samples, and micro-batches, the newest.")] = 5,
    output: OutputOption = "text",
) -> None:
    """Show what waits in quarantine.

    Counts by reason and by micro-batch, and samples of waiting rows. Needs no Spark.
    """
    session.check_names(pipeline, sink)

    from recon.quarantine.show import summaries

    found = summaries(session.project(), pipeline, sink, reason=reason, limit=limit)
    if output == "json":
        print_json(found)
        return
    if not found:
        typer.echo("Nothing was ever put aside.", err=True)
    for one in found:
        typer.echo(f"{one.pipeline}.{one.sink}: {one.pending:,} rows wait, {one.released:,} were released")
        typer.echo(f"  {session.mask(one.location)}")
        if one.reasons:
            rows = [(r["reason"], r["pending"], r["released"]) for r in one.reasons]
            print_table(["reason", "pending", "released"], rows)
        if one.batches:
            counts = [(b["epoch"], b["batch_id"], b["pending"], b["released"]) for b in one.batches]
            print_table(["epoch", "batch_id", "pending", "released"], counts)
        for row in one.samples:
            typer.echo(session.mask(json.dumps(row, default=str, ensure_ascii=False)))


def release(
    session: Session,
    pipeline: Annotated[str, typer.Option("--pipeline", help="The pipeline whose rows go on.")],
    sink: Annotated[str | None, typer.Option("--sink", help="One of its sinks; needed when it has several.")] = None,
    where: Annotated[str | None, typer.Option("--where", help="SQL on the waiting rows; all when not given.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help='A repair: "column = SQL expression"; repeatable.')
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Release rows that still fail, too.")] = False,
    output: OutputOption = "text",
) -> None:
    """Write waiting rows into their sink.

    They are repaired, checked again and written once, with a ledger entry of their own. Rows that still fail wait on.
    """
    session.check_names(pipeline, sink)
    repair = dict(_assignment(text) for text in set_ or ())

    from recon.quarantine.release import release as let_go

    done = let_go(session.project(), pipeline, sink, repair=repair or None, where=where, force=force)
    if output == "json":
        print_json(done)
        return
    for number in done.finished:
        typer.echo(f"release {number}, which was interrupted, is finished")
    if done.number is None:
        typer.echo("No row was released.")
    else:
        typer.echo(
            f"release {done.number}: {done.rows:,} rows are in {done.pipeline}.{done.sink}, version {done.version}"
        )
    if done.failing:
        typer.echo(f"{done.failing:,} rows still fail and wait on; repair them with --set, or let them go with --force")


def _assignment(text: str) -> tuple[str, str]:
    column, found, expression = text.partition("=")
    if not found or not column.strip() or not expression.strip():
        raise ConfigError(f"--set '{text}' is not of the form \"column = SQL expression\"")
    return column.strip(), expression.strip()
