"""The `recon` command: its subcommands, and the options that may be given before one."""

from __future__ import annotations

from typing import Annotated

import typer

from recon._version import __version__
from recon.cli import advise, audit, compare, convert, debug, explain, failures, ledger, quarantine, sinks, start
from recon.cli.shared import DebugOption, NoColorOption, ProjectDirOption, Session, VarsOption, new_app

app = new_app(
    "Prove, micro-batch by micro-batch, that streamed data arrived: from Kafka's offsets to the sink's commits."
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"recon {__version__}")
        raise typer.Exit


@app.callback()
def _before(
    context: typer.Context,
    project_dir: ProjectDirOption = None,
    variables: VarsOption = None,
    debug: DebugOption = False,
    no_color: NoColorOption = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    context.obj = Session.start(project_dir, variables, debug, no_color)


audit.add_to(app)
advise.add_to(app)
compare.add_to(app)
convert.add_to(app)
ledger.add_to(app)
failures.add_to(app)
quarantine.add_to(app)
start.add_to(app)
explain.add_to(app)
sinks.add_to(app)
debug.add_to(app)
