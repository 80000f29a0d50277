"""recon quarantine: shows the rows in quarantine and releases them into their sink."""

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
    group = new_app("Show the rows in quarantine, or release them into their sink.")
    command(group, "show")(show)
    command(group, "release")(release)
    app.add_typer(group, name="quarantine")


def show(
    session: Session,
    pipeline: PipelineOption = None,
    sink: SinkOption = None,
    reason: Annotated[str | None, typer.Option("--reason", help="Only rows that failed this check.")] = None,
    limit: Annotated[
        int, typer.Option("--limit", min=1, help="At most so many samples and micro-batches, the newest.")
    ] = 5,
    output: OutputOption = "text",
) -> None:
    """Show which rows are in quarantine.

    Counts by failed check and by micro-batch, and samples of pending rows. Starts no Spark.
    """
    session.check_names(pipeline, sink)

    from recon.quarantine.show import summaries

    quarantines = summaries(session.project(), pipeline, sink, reason=reason, limit=limit)
    if output == "json":
        print_json(quarantines)
        return
    if not quarantines:
        typer.echo("No row was ever quarantined.", err=True)
    for one in quarantines:
        typer.echo(f"{one.pipeline}.{one.sink}: {one.pending:,} rows pending, {one.released:,} released")
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
    pipeline: Annotated[str, typer.Option("--pipeline", help="The pipeline of the rows.")],
    sink: Annotated[str | None, typer.Option("--sink", help="One of its sinks; needed when it has several.")] = None,
    where: Annotated[str | None, typer.Option("--where", help="SQL condition; by default all pending rows.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help='A repair: "column = SQL expression"; repeatable.')
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Also release rows that still fail.")] = False,
    output: OutputOption = "text",
) -> None:
    """Write pending rows into their sink.

    recon repairs them, checks them again and writes them once, with a ledger entry of their own. Rows that still fail
    stay in quarantine.
    """
    session.check_names(pipeline, sink)
    repair = dict(_assignment(text) for text in set_ or ())

    from recon.quarantine.release import release as release_rows

    done = release_rows(session.project(), pipeline, sink, repair=repair or None, where=where, force=force)
    if output == "json":
        print_json(done)
        return
    for number in done.finished:
        typer.echo(f"release {number} had been interrupted and is finished now")
    if done.number is None:
        typer.echo("No row was released.")
    else:
        typer.echo(
            f"release {done.number}: {done.rows:,} rows are in {done.pipeline}.{done.sink}, version {done.version}"
        )
    if done.failing:
        typer.echo(f"{done.failing:,} rows still fail and stay in quarantine; repair them with --set, or add --force")


def _assignment(text: str) -> tuple[str, str]:
    column, separator, expression = text.partition("=")
    if not separator or not column.strip() or not expression.strip():
        raise ConfigError(f"--set '{text}' is not of the form \"column = SQL expression\"")
    return column.strip(), expression.strip()
