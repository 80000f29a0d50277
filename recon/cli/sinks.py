"""recon sinks: prints the guarantee of each sink."""

from __future__ import annotations

from typing import Annotated

import typer

from recon.cli.shared import OutputOption, Session, print_json


def sinks(
    session: Session,
    kinds: Annotated[bool, typer.Option("--kinds", help="Print every kind of sink, not the project's sinks.")] = False,
    output: OutputOption = "text",
) -> None:
    """Print the guarantee of each sink.

    What happens to a retried micro-batch there, why, and what the guarantee needs. --kinds needs no project.
    """
    from dataclasses import asdict

    rows: list[dict[str, str]]
    if kinds:
        from recon.project.guarantees import guarantees

        rows = [{"kind": kind, **asdict(promise)} for kind, promise in guarantees()]
    else:
        rows = [
            {"sink": f"{pipeline.name}.{sink.name}", "kind": sink.kind, **asdict(sink.promise)}
            for pipeline in session.project().pipelines
            for sink in pipeline.sinks
        ]
    if output == "json":
        print_json([{"guarantee" if key == "label" else key: value for key, value in row.items()} for row in rows])
        return
    for row in rows:
        name = f"{row['sink']} ({row['kind']})" if "sink" in row else row["kind"]
        typer.secho(f"{name}: {row['label']}", bold=True)
        typer.echo(f"  {row['how']}")
        typer.echo(f"  needs {row['needs']}")
