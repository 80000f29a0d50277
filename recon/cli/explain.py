"""recon explain: what the next start of a query will do, or what became of a micro-batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from recon.cli.shared import OutputOption, Session, command, print_json, print_table

if TYPE_CHECKING:
    from recon.recovery.explain import Explanation

_MOST = 20  # ranges listed when Kafka still has all of them


def add_to(app: typer.Typer) -> None:
    """Registers this module's command."""
    command(app, "explain")(explain)


def explain(
    session: Session,
    pipeline: Annotated[str, typer.Option("--pipeline", help="The pipeline whose query to explain.")],
    batch: Annotated[int | None, typer.Option("--batch", min=0, help="A micro-batch; by default the next one.")] = None,
    output: OutputOption = "text",
) -> None:
    """Show what the next start of a query will do.

    Reads checkpoint, ledger, sinks and Kafka: what Spark will run (a replay of N, or N+1), whether Kafka still has
    the offsets, and what each sink will do. With --batch, the same for one micro-batch. Changes nothing.
    """
    session.check_names(pipeline, None)

    from recon.recovery.explain import explain as explained

    found = explained(session.project(), pipeline, batch)
    if output == "json":
        print_json(found.as_dict())
    else:
        _print(session, found)


def _print(session: Session, found: Explanation) -> None:
    for sentence in found.sentences:
        typer.echo(session.mask(f"{sentence[:1].upper()}{sentence[1:]}."))
    for sink in found.sinks:
        typer.echo(session.mask(f"Sink {sink.sink} ({sink.kind}, {sink.guarantee}) {sink.sentence}."))
    shown = [one for one in found.ranges if one.held != "held"] or list(found.ranges[:_MOST])
    if shown:
        typer.echo()
        rows = [
            (f"{one.span.topic}-{one.span.partition}", *one.span[3:5], one.log_start, one.log_end, one.held)
            for one in shown
        ]
        print_table(("partition", "start", "end", "log_start", "log_end", "kafka"), rows)
    if len(shown) < len(found.ranges):
        typer.echo(f"{len(found.ranges) - len(shown)} more ranges, all held.")
