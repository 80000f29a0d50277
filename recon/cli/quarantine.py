"""recon quarantine: shows the rows in quarantine and releases them into their sink."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from recon.cli.shared import (
    ByOption,
    OutputOption,
    PipelineOption,
    ReasonOption,
    Session,
    SinkOption,
    assignments,
    print_json,
    print_table,
)


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

    from recon.write.quarantine.show import summaries

    sinks = summaries(session.project(), pipeline, sink, reason=reason, limit=limit)
    if output == "json":
        print_json(sinks)
        return
    if not sinks:
        typer.echo("No row was ever quarantined.", err=True)
    for summary in sinks:
        typer.echo(
            f"{summary.pipeline}.{summary.sink}: {summary.pending:,} rows pending, {summary.released:,} released"
        )
        typer.echo(f"  {session.mask(summary.location)}")
        for counts, by in ((summary.reasons, ("reason",)), (summary.batches, ("epoch", "batch_id"))):
            headers = (*by, "pending", "released")
            if counts:
                print_table(headers, [[count[header] for header in headers] for count in counts])
        for row in summary.samples:
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
    by: ByOption = None,
    reason: ReasonOption = None,
    output: OutputOption = "text",
) -> None:
    """Write pending rows into their sink.

    recon repairs them, checks them again and writes them once, with a ledger entry of their own. Rows that still fail
    stay in quarantine.
    """
    session.check_names(pipeline, sink)
    repair = assignments("--set", set_, '"column = SQL expression"')

    from recon.write.quarantine.release import release as release_rows

    result = release_rows(
        session.project(), pipeline, sink, repair=repair or None, where=where, force=force, by=by, reason=reason
    )
    if output == "json":
        print_json(result)
        return
    for number in result.finished:
        typer.echo(f"release {number} had been interrupted and is finished now")
    if result.number is None:
        typer.echo("No row was released.")
    else:
        place = f"{result.pipeline}.{result.sink}, version {result.version}"
        typer.echo(f"release {result.number}: {result.rows:,} rows are in {place}")
    if result.failing:
        typer.echo(f"{result.failing:,} rows still fail and stay in quarantine; repair them with --set, or add --force")
