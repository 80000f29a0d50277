"""recon compare: compares two tables by key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recon.cli.shared import OutputOption, Session, assignments, print_json

if TYPE_CHECKING:
    from recon.checks.comparison import Comparison, RowDifference
    from recon.project import Pipeline, Project, Sink


def compare(
    session: Session,
    left: Annotated[str, typer.Argument(help="The expected rows: a sink, an entry of tables, a path.")],
    right: Annotated[str, typer.Argument(help="The rows to compare with them.")],
    key: Annotated[list[str], typer.Option("--key", help="Columns that identify a row on both sides: a,b.")],
    columns: Annotated[list[str] | None, typer.Option("--columns", help="Compare only these columns: a,b.")] = None,
    exclude: Annotated[list[str] | None, typer.Option("--exclude", help="Columns to leave out: a,b.")] = None,
    tolerance: Annotated[
        list[str] | None,
        typer.Option("--tolerance", help="amount=0.01, weight=0.1% or at='5 seconds'; repeatable."),
    ] = None,
    map: Annotated[
        list[str] | None, typer.Option("--map", help="left=right, for a column with two names; repeatable.")
    ] = None,
    where: Annotated[
        str | None, typer.Option("--where", help="SQL condition on the rows of both sides, with the left side's names.")
    ] = None,
    samples: Annotated[int, typer.Option("--samples", min=0, help="At most so many examples of each difference.")] = 20,
    same_types: Annotated[
        bool, typer.Option("--same-types", help="Report columns whose types differ as a difference.")
    ] = False,
    output: OutputOption = "text",
) -> None:
    """Compare two tables by key.

    Exit 0 when they are equal, 1 when they differ, 2 when they could not be compared. Examples show what `samples` and
    `never_show` of recon.yml allow: by default the keys.
    """
    tolerances = assignments("--tolerance", tolerance, "column=bound")
    mapping = assignments("--map", map, "left=right")
    project = session.project()

    from recon.checks.comparison import compare as compared
    from recon.checks.comparison import text
    from recon.spark.session import session as spark_session
    from recon.write.sinks.catalog import ProjectTables

    tables = ProjectTables(project, spark_session(project))
    comparison = compared(
        tables.open(left),
        tables.open(right),
        key=_names(key),
        columns=_names(columns) if columns else None,
        exclude=_names(exclude or ()),
        mapping=mapping,
        tolerances=tolerances,
        where=where,
        left_name=left,
        right_name=right,
        samples=samples,
        same_types=same_types,
    )
    comparison = _visible(project, comparison)
    if output == "json":
        print_json(comparison.as_dict())
    else:
        for line in text(comparison):
            typer.echo(line)
    raise typer.Exit(0 if comparison.equal else 1)


def _visible(project: Project, comparison: Comparison) -> Comparison:
    """The comparison with no more values of rows than both tables' `samples` and `never_show` allow."""
    from recon.base.credentials import HIDDEN
    from recon.checks.samples import Samples, strictest

    sinks = [(pipeline, sink) for pipeline in project.pipelines for sink in pipeline.sinks]
    ours = [
        project.defaults_of(pipeline, sink)
        for pipeline, sink in sinks
        if {comparison.left, comparison.right} & _references(project, pipeline, sink)
    ]
    never = [project.defaults_of(pipeline, sink).never_show for pipeline, sink in sinks]
    config = strictest(ours or [project.defaults], never_show=[name for of_sink in never for name in of_sink])
    samples = Samples(keys=comparison.key, hash_key=project.sample_hash_key)

    def side(row: Mapping[str, Any] | None, changed: bool) -> Mapping[str, Any] | None:
        if row is None:
            return None
        shown = next(iter(samples.shown([row], config)), {})
        return {name: shown.get(name, HIDDEN) for name in row} if changed else shown

    def rows(differences: Sequence[RowDifference]) -> tuple[RowDifference, ...]:
        return tuple(
            replace(
                row,
                key=next(iter(samples.shown([row.key], config)), {}),
                left=side(row.left, row.kind == "changed"),
                right=side(row.right, row.kind == "changed"),
            )
            for row in (() if config.samples == "none" else differences)
        )

    columns = tuple(replace(column, samples=rows(column.samples)) for column in comparison.columns)
    return replace(comparison, samples=rows(comparison.samples), columns=columns)


def _references(project: Project, pipeline: Pipeline, sink: Sink) -> set[str]:
    """How `recon compare` may name a sink's table."""
    names = {sink.name, f"{pipeline.name}.{sink.name}", sink.target, project.location(sink)}
    calls = {f"ref({quote}{sink.name}{quote})" for quote in ("'", '"')}
    return names | calls | {f"ref({quote}{pipeline.name}{quote}, {quote}{sink.name}{quote})" for quote in ("'", '"')}


def _names(texts: Sequence[str]) -> list[str]:
    return [name.strip() for text in texts for name in text.split(",") if name.strip()]
