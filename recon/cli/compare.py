"""recon compare: compares two tables by key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from recon.cli.shared import OutputOption, Session, assignments, print_json


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

    Exit 0 when they are equal, 1 when they differ, 2 when they could not be compared.
    """
    tolerances = assignments("--tolerance", tolerance, "column=bound")
    mapping = assignments("--map", map, "left=right")
    project = session.project()

    from recon.comparison import compare as compared
    from recon.comparison import text
    from recon.sinks.catalog import ProjectTables
    from recon.spark.session import session as spark_session

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
    if output == "json":
        print_json(comparison.as_dict())
    else:
        for line in text(comparison):
            typer.echo(line)
    raise typer.Exit(0 if comparison.equal else 1)


def _names(texts: Sequence[str]) -> list[str]:
    return [name.strip() for text in texts for name in text.split(",") if name.strip()]
