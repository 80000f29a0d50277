"""recon compliance sample: random source records of a period, and the path of each to its sinks."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Annotated, Literal

import typer

from recon.base.errors import ConfigError
from recon.base.text import plural, short_path
from recon.cli.shared import (
    ExcludeOption,
    PeriodFromOption,
    PeriodToOption,
    SelectOption,
    Session,
    chosen_checks,
    print_table,
    required_period,
    writing,
)


def sample(
    session: Session,
    from_: PeriodFromOption = None,
    to: PeriodToOption = None,
    n: Annotated[int, typer.Option("--n", min=1, help="How many records; all, where there are no more.")] = 25,
    seed: Annotated[
        str | None, typer.Option("--seed", help="The same seed chooses the same records again; random by default.")
    ] = None,
    stratify: Annotated[bool, typer.Option("--stratify", help="As many records from each pipeline.")] = False,
    select: SelectOption = None,
    exclude: ExcludeOption = None,
    format: Annotated[Literal["html", "md", "csv", "json"], typer.Option("--format", help="What to write.")] = "html",
    output: Annotated[Path | None, typer.Option("--output", help="The file to write; - prints it.")] = None,
) -> None:
    """Show the path of random source records to the sink.

    The records are chosen from all offsets of the ledger's ranges, by the seed and the ledger's heads, so that an
    auditor can repeat the choice. Each one's path is read anew from ledger, sink, quarantine and Kafka; starts no
    Spark. With --select, of the sinks whose checks are selected.
    """
    start, end = required_period(from_, to)
    project = session.project()
    sinks = None
    if select or exclude:
        bounds = chosen_checks(session, select, exclude)
        sinks = {
            (pipe.name, sink.name)
            for pipe in project.pipelines
            for sink in pipe.sinks
            if any(bound.pipeline == pipe.name and bound.sink in (None, sink.name) for bound in bounds)
        }
        if not sinks:
            raise ConfigError("no check is selected, so no sink is; 'recon list' shows the checks")

    from recon.recovery.sample import sample as draw
    from recon.reports import sample as reports

    drawn = draw(project, start, end, n=n, seed=seed or secrets.token_hex(8), stratify=stratify, sinks=sinks)
    if output == Path("-"):
        typer.echo(reports.text(drawn, format), nl=False)
        return
    page = (output or session.target(None) / f"sample.{format}").absolute()
    with writing(page):
        reports.write(drawn, page, format)
    if drawn.records:
        print_table(*reports.table(drawn))
    outcomes = ", ".join(f"{count} {outcome}" for outcome, count in drawn.outcomes().items()) or "nothing to choose"
    typer.echo(f"{plural(len(drawn.records), 'record')} of {plural(drawn.size, 'offset')}: {outcomes}.")
    if drawn.left_out:
        others = ", ".join(drawn.left_out)
        typer.echo(f"Not sampled, as they read no Kafka, and rows of other sources have no offsets: {others}")
    typer.echo(f"Seed {drawn.seed}, key {drawn.key}")
    typer.echo(f"Sample: {short_path(page)}")
