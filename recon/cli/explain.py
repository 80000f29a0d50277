"""recon explain: what the next start of a query will do, or what became of a micro-batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from recon.cli.shared import OutputOption, Session, print_json, print_table
from recon.model.positions import SourceKind, is_kafka, kind_of, partition_name, place

if TYPE_CHECKING:
    from recon.recovery.explain import Explanation
    from recon.recovery.ranges import RangeHeld

_SOURCE: Mapping[SourceKind, str] = {"a Delta table": "table", "a folder of files": "log"}  # the last column
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
        source = next((_SOURCE[kind] for r in shown if (kind := kind_of(r.span.topic)) != "Kafka"), "kafka")
        rows = [(partition_name(r.span.topic, r.span.partition), *_places(r), r.held) for r in shown]
        print_table(("partition", "start", "end", "log_start", "log_end", source), rows)
    if len(shown) < len(explanation.ranges):
        typer.echo(f"{len(explanation.ranges) - len(shown)} more ranges, all held.")


def _places(held: RangeHeld) -> Iterator[int | str | None]:
    """Start, end, log start and log end of a range; positions in a Delta table in words."""
    for offset in (held.span.start_offset, held.span.end_offset, held.log_start, held.log_end):
        yield offset if offset is None or is_kafka(held.span.topic) else place(held.span.topic, offset)
