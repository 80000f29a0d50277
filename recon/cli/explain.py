"""recon explain: what the next start of a query will do, or what became of a micro-batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from recon.cli.shared import OutputOption, Session, print_json, print_table

if TYPE_CHECKING:
    from recon.recovery.explain import Explanation

_MOST = 20  # ranges listed when Kafka still has all of them


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

    explanation = explained(session.project(), pipeline, batch)
    if output == "json":
        print_json(explanation.as_dict())
    else:
        _print(session, explanation)


def _print(session: Session, explanation: Explanation) -> None:
    for sentence in explanation.sentences:
        typer.echo(session.mask(f"{sentence[:1].upper()}{sentence[1:]}."))
    for sink in explanation.sinks:
        typer.echo(session.mask(f"Sink {sink.sink} ({sink.kind}, {sink.guarantee}) {sink.sentence}."))
    shown = [r for r in explanation.ranges if r.held != "held"] or list(explanation.ranges[:_MOST])
    if shown:
        typer.echo()
        rows = [(f"{r.span.topic}-{r.span.partition}", *r.span[3:5], r.log_start, r.log_end, r.held) for r in shown]
        print_table(("partition", "start", "end", "log_start", "log_end", "kafka"), rows)
    if len(shown) < len(explanation.ranges):
        typer.echo(f"{len(explanation.ranges) - len(shown)} more ranges, all held.")
