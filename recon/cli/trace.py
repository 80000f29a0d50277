"""recon trace: what became of one source record."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from recon.cli.shared import OutputOption, PipelineOption, Session, SinkOption, print_json
from recon.reports.words import one_line, when

if TYPE_CHECKING:
    from recon.model.sample import SampledPath, SampledRecord


# The record is in the sink, or it is known why it is not. Whether compaction removed a record before it was read, or
# after, is not known.
_EXPLAINED = {"found", "quarantined", "filtered", "aborted", "control record"}


def trace(
    session: Session,
    record: Annotated[str, typer.Argument(help="TOPIC/PARTITION/OFFSET, such as orders/3/18442.")],
    pipeline: PipelineOption = None,
    sink: SinkOption = None,
    all_rows: Annotated[
        bool, typer.Option("--all-rows", help="Look at all rows of a Delta table, for further rows of the record.")
    ] = False,
    output: OutputOption = "text",
) -> None:
    """Show what became of one source record.

    Which micro-batches read it, in which commit, file or row each sink has it, or that it is in quarantine, was
    filtered, is no record of its own, or is missing. Reads ledger, sinks, quarantine and, where a sink has no row,
    Kafka; starts no Spark. Exit 0 when each sink has the record, or it is known why not; 1 when a sink lacks it, or it
    is not known.
    """
    session.check_names(pipeline, sink)

    from recon.recovery.trace import trace as traced

    found = traced(session.project(), record, pipeline=pipeline, sink=sink, all_rows=all_rows)
    if output == "json":
        print_json(found.as_dict())
    else:
        for sampled in found.records:
            for line in _record(sampled):
                typer.echo(session.mask(one_line(line)) if line else "")
        if not found.records:
            typer.echo("No pipeline has an entry of this offset.")
    outcomes = {path.outcome for path in found.paths}
    raise typer.Exit(0 if outcomes and outcomes <= _EXPLAINED else 1)


def _record(sampled: SampledRecord) -> Iterator[str]:
    at = sampled.record
    topic_id = f" (topic id {at.topic_id})" if at.topic_id else ""
    through = f", which reads {sampled.through}" if sampled.through else ""
    yield f"{at.topic}-{at.partition}, offset {at.offset}{topic_id}, pipeline {at.pipeline}{through}"
    for path in sampled.paths:
        yield from _path(path)
    yield ""


def _path(path: SampledPath) -> Iterator[str]:
    yield f"  sink {path.sink} ({path.kind}, {path.target}): {path.outcome}"
    for write in path.writes:
        version = "" if write.version is None else f", version {write.version}"
        yield (
            f"    micro-batch {write.batch_id} (epoch {write.epoch}), {write.status} at "
            f"{when(write.at or write.committed_at)}{version}, ledger entry {write.sequence}: {write.said}"
        )
    yield f"    {path.said}"
    yield from (f"    in {place}" for place in path.places)
