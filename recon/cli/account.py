"""recon account: what became of every offset, as sums and as ranges."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recon.base.text import plural, short_path
from recon.cli.shared import (
    PeriodFromOption,
    PeriodToOption,
    PipelineOption,
    Session,
    SinkOption,
    period,
    print_table,
)

if TYPE_CHECKING:
    from recon.model.account import SinkAccount
    from recon.reports.account import OffsetAccount

_SHOWN = 100


def account(
    session: Session,
    pipeline: PipelineOption = None,
    sink: SinkOption = None,
    partition: Annotated[
        str | None, typer.Option("--partition", help="Only this topic partition, such as orders-3; lists its ranges.")
    ] = None,
    offset_class: Annotated[
        str | None, typer.Option("--class", help="Only this class, such as lost; lists its ranges.")
    ] = None,
    ranges: Annotated[bool, typer.Option("--ranges", help="List the ranges besides the sums.")] = False,
    from_: PeriodFromOption = None,
    to: PeriodToOption = None,
    no_spark: Annotated[
        bool, typer.Option("--no-spark", help="Start no JVM; what only rows tell is not known.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option("--output", help="Write a row per range to this .parquet or .csv file.")
    ] = None,
) -> None:
    """Show what became of every offset: how many are in rows, filtered, markers, lost, not known.

    Each offset is in one class, so that the numbers add up. It reads the whole ledger, or the period; rows are read
    where counts leave a question. Nothing is stored. Always exit 0: `recon audit` gives the answer.
    """
    session.check_names(pipeline, sink)
    start, end = period(from_, to)
    project = session.project()

    from recon.audits.account import account as accounted
    from recon.reports.account import written_to

    place = written_to(output) if output is not None else None
    found = accounted(project, pipeline=pipeline, sink=sink, from_=start, to=end, no_spark=no_spark)
    found = found.only(partition=partition, offset_class=offset_class)
    _print_sums(found)
    for of_sink in found.sinks:
        for doubt in of_sink.doubts:
            typer.echo(f"Pipeline {of_sink.pipeline}, sink {of_sink.sink}: {doubt}.")
        for topic, number, first, last, rows in of_sink.doubled[:_SHOWN]:
            typer.echo(
                f"Pipeline {of_sink.pipeline}, sink {of_sink.sink}: {topic}-{number} [{first}, {last}): {rows} rows "
                "each."
            )
    for name in found.without:
        typer.echo(f"No account of {name}: the ledger has no entry of it.")
    if ranges or partition is not None or offset_class is not None:
        _print_ranges(found)
    if place is not None:
        typer.echo(f"Account: {short_path(found.write(place))}")


def _print_sums(found: OffsetAccount) -> None:
    """The sums; those of a part of the account add up to no more than that part."""
    table: list[tuple[Any, ...]] = [
        (pipeline, sink, str(of), str(how), f"{offsets:,}") for pipeline, sink, of, how, offsets in found.rows()
    ]
    table += [(of_sink.pipeline, of_sink.sink, "= offsets", "", f"{of_sink.read:,}") for of_sink in found.sinks]
    print_table(("pipeline", "sink", "class", "how known", "offsets"), sorted(table, key=itemgetter(0, 1)))


def _print_ranges(found: OffsetAccount) -> None:
    lines = sum(len(of_sink) for of_sink in found.sinks)
    if not lines:
        typer.echo("No range of this account is known: of its micro-batches numbers alone are, or it has none.")
        return
    shown = islice((row for of_sink in found.sinks for row in _ranges(of_sink)), _SHOWN)
    print_table(("sink", "partition", "offsets", "count", "class", "how known", "micro-batch", "version"), shown)
    if lines > _SHOWN:
        typer.echo(f"{plural(lines - _SHOWN, 'further range')}: --output writes all of them.")


def _ranges(of_sink: SinkAccount) -> Iterator[tuple[Any, ...]]:
    for line in of_sink.ordered().lines():
        write = of_sink.writes[line.entry] if line.entry >= 0 else None
        yield (
            of_sink.sink,
            "" if line.topic < 0 else f"{of_sink.topics[line.topic][1]}-{line.partition}",
            "" if line.topic < 0 else f"[{line.start}, {line.end})",
            f"{line.offsets:,}",
            str(line.offset_class),
            str(line.how),
            "" if write is None else f"{write.batch_id} (epoch {write.epoch})",
            None if write is None else write.version,
        )
