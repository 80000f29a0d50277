"""recon sinks: prints the guarantee of each sink."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from recon.base.errors import ReconError
from recon.cli.shared import OutputOption, Session, print_json

if TYPE_CHECKING:
    from recon.project import Project


def sinks(
    session: Session,
    kinds: Annotated[bool, typer.Option("--kinds", help="Print every kind of sink, not the project's sinks.")] = False,
    output: OutputOption = "text",
) -> None:
    """Print the guarantee of each sink.

    What happens to a retried micro-batch there, why, and what the guarantee needs. It is given by recon's hook: the
    ledger tells whether the hook writes the sink. --kinds needs no project.
    """
    from dataclasses import asdict

    rows: list[dict[str, str]]
    notes: dict[str, str] = {}
    if kinds:
        from recon.project.guarantees import guarantees

        rows = [{"kind": kind, **asdict(promise)} for kind, promise in guarantees()]
    else:
        project = session.project()
        of = {
            f"{pipeline.name}.{sink.name}": (pipeline, sink)
            for pipeline in project.pipelines
            for sink in pipeline.sinks
        }
        rows = [{"sink": name, "kind": sink.kind, **asdict(sink.kept)} for name, (_, sink) in of.items()]
        notes = _not_written(project, [(pipeline.name, sink.name) for pipeline, sink in of.values()])
    if output == "json":
        print_json(
            [
                {"guarantee" if key == "label" else key: value for key, value in row.items()}
                | ({"note": notes.get(row["sink"])} if "sink" in row else {})
                for row in rows
            ]
        )
        return
    for row in rows:
        name = f"{row['sink']} ({row['kind']})" if "sink" in row else row["kind"]
        typer.secho(f"{name}: {row['label']}", bold=True)
        typer.echo(f"  {row['how']}")
        typer.echo(f"  needs {row['needs']}")
        if "sink" in row and row["sink"] in notes:
            typer.echo(f"  {notes[row['sink']]}")


def _not_written(project: Project, sinks: Sequence[tuple[str, str]]) -> dict[str, str]:
    """By `pipeline.sink`, why the ledger does not show that recon's hook writes it; what it shows is left out."""
    from recon.write.ledger import open_ledger

    try:
        ledger = open_ledger(project)
        known = set(ledger.chains()) if ledger.exists() else set()
        note = f"not shown by the ledger {ledger.location}: it has no micro-batch of this sink"
    except ReconError as error:
        known, note = set(), f"whether the hook writes it is not known: {error}"
    return {f"{pipeline}.{sink}": note for pipeline, sink in sinks if (pipeline, sink) not in known}
