"""recon import dbt, recon export gx: from and to the files of other tools."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from recon.cli.shared import PipelineOption, Session, SinkOption, command, new_app
from recon.errors import ConfigError

OutputOption = Annotated[
    str, typer.Option("--output", "-o", help="The file to write, which must not exist yet; - is stdout.")
]


def add_to(app: typer.Typer) -> None:
    """Registers this module's commands."""
    importing = new_app("Make recon.yml of other tools' files.")
    command(importing, "dbt")(import_dbt)
    app.add_typer(importing, name="import")
    exporting = new_app("Write checks in the form of other tools.")
    command(exporting, "gx")(export_gx)
    app.add_typer(exporting, name="export")


def import_dbt(
    session: Session,
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A dbt schema.yml, or the folder of a dbt project.")],
    output: OutputOption = "-",
) -> None:
    """Make recon.yml of a dbt schema.yml's tests.

    Tests without a counterpart in recon become comments, and are listed on stderr.
    """
    from recon.convert.dbt import read

    found = read(path)
    _write(found.text, output)
    left = f"; {len(found.left_out)} are left out:" if found.left_out else "."
    typer.echo(f"Converted {found.tests} tests of {found.tables} tables{left}", err=True)
    for sentence in found.left_out:
        typer.echo(f"  {sentence}", err=True)


def export_gx(
    session: Session, pipeline: PipelineOption = None, sink: SinkOption = None, output: OutputOption = "-"
) -> None:
    """Write a sink's row checks as a Great Expectations suite.

    Checks without a counterpart in GX are listed in the suite's meta and on stderr.
    """
    session.check_names(pipeline, sink)

    from recon.checks.registry import bind
    from recon.convert.gx import suite_of

    project = session.project()
    sinks = [
        (p.name, s.name)
        for p in project.pipelines
        if pipeline in (None, p.name)
        for s in p.sinks
        if sink in (None, s.name)
    ]
    if len(sinks) > 1:
        raise ConfigError(
            f"a suite is for one sink, and there are {', '.join(f'{p}.{s}' for p, s in sinks)}; "
            "choose one with --sink, and --pipeline where the name is not enough"
        )
    if not sinks:
        raise ConfigError(f"pipeline '{pipeline}' has no sink '{sink}'")
    of_pipeline, of_sink = sinks[0]
    bounds = [b for b in bind(project) if (b.pipeline, b.sink, b.kind) == (of_pipeline, of_sink, "data")]
    found = suite_of(bounds, of_sink)
    _write(json.dumps(found.suite, indent=2, ensure_ascii=False, default=str) + "\n", output)
    written = len(bounds) - len(found.left_out)
    left = f"; {len(found.left_out)} have no counterpart:" if found.left_out else "."
    typer.echo(f"Wrote {written} of {len(bounds)} checks on the rows of {of_sink}{left}", err=True)
    for name, reason in found.left_out:
        typer.echo(f"  {name}: {reason}", err=True)


def _write(text: str, output: str) -> None:
    """To stdout, or to a file that is not there yet."""
    if output == "-":
        sys.stdout.write(text)
        return
    file = Path(output)
    try:
        with file.open("x", encoding="utf-8") as out:
            out.write(text)
    except FileExistsError:
        raise ConfigError(f"{file} exists already and is left as it is; choose another name, or remove it") from None
    except OSError as error:
        raise ConfigError(f"{file} cannot be written: {error.strerror or error}") from error
    typer.echo(f"Wrote {file}", err=True)
