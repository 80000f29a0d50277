"""recon import dbt and odcs, recon export gx and odcs: reads and writes the files of other tools."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from recon.base.errors import ConfigError
from recon.cli.shared import PipelineOption, Session, SinkOption, writing

if TYPE_CHECKING:
    from recon.project import Pipeline, Project, Sink

OutputOption = Annotated[
    str, typer.Option("--output", "-o", help="The file to write, which must not exist yet; - is stdout.")
]


def import_dbt(
    session: Session,
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A dbt schema.yml, or the folder of a dbt project.")],
    output: OutputOption = "-",
) -> None:
    """Make a recon.yml from the tests of a dbt schema.yml.

    A test without a counterpart in recon becomes a comment and is listed on stderr.
    """
    from recon.convert.dbt import read

    imported = read(path, session.variables)
    _write(imported.text, output)
    _summarise(f"Imported {imported.tests} tests of {imported.tables} tables", imported.left_out)
    if imported.differs:
        typer.echo("In some cases recon's check gives another status than dbt:", err=True)
    for sentence in imported.differs:
        typer.echo(f"  {sentence}", err=True)


def import_odcs(
    session: Session,
    path: Annotated[Path, typer.Argument(metavar="PATH", help="The YAML file of a data contract (ODCS 3.x).")],
    output: OutputOption = "-",
) -> None:
    """Make a recon.yml from a data contract (Open Data Contract Standard).

    What recon has no check for becomes a comment and is listed on stderr. SQL rules become files in data_tests.
    """
    from recon.convert.odcs import read

    imported = read(path)
    left_out = list(imported.left_out)
    folder = Path(output).parent
    if output == "-":
        left_out += [f"{name}: a rule of SQL, which --output writes beside recon.yml" for name in imported.files]
    else:
        for name in imported.files:
            _refuse_existing(folder / name)
    _write(imported.text, output)
    for name, text in imported.files.items() if output != "-" else ():
        with writing(folder / name):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
        _write(text, str(folder / name))
    _summarise(f"Imported {imported.tests} tests of {imported.tables} tables", left_out)


def export_odcs(
    session: Session, pipeline: PipelineOption = None, sink: SinkOption = None, output: OutputOption = "-"
) -> None:
    """Write sinks and their data tests as a data contract (Open Data Contract Standard).

    A test without a counterpart in the standard is a rule of `engine: recon`, which recon import odcs takes back.
    """
    session.check_names(pipeline, sink)

    from recon.convert.odcs import contract_of

    project = session.project()
    exported = contract_of(project, [(p.name, s) for p, s in _chosen(project, pipeline, sink)])
    _write(exported.text, output)
    _summarise(f"Wrote {exported.tests} tests of {exported.objects} tables", exported.left_out)


def _chosen(project: Project, pipeline: str | None, sink: str | None) -> list[tuple[Pipeline, Sink]]:
    return [
        (p, s)
        for p in project.require_pipelines()
        if pipeline in (None, p.name)
        for s in p.sinks
        if sink in (None, s.name)
    ]


def _summarise(done: str, left_out: Sequence[str]) -> None:
    left = f"; {len(left_out)} {'is' if len(left_out) == 1 else 'are'} left to you:" if left_out else "."
    typer.echo(f"{done}{left}", err=True)
    for sentence in left_out:
        typer.echo(f"  {sentence}", err=True)


def export_gx(
    session: Session, pipeline: PipelineOption = None, sink: SinkOption = None, output: OutputOption = "-"
) -> None:
    """Write a sink's row checks as a Great Expectations suite.

    A check without a counterpart in GX is kept in the suite's meta and listed on stderr.
    """
    session.check_names(pipeline, sink)

    from recon.checks.binding import bind
    from recon.convert.gx import suite_of

    project = session.project()
    sinks = [(p.name, s.name) for p, s in _chosen(project, pipeline, sink)]
    if len(sinks) > 1:
        raise ConfigError(
            f"a suite is for one sink, and there are {', '.join(f'{p}.{s}' for p, s in sinks)}; "
            "choose one with --sink, and --pipeline where the name is not enough"
        )
    of_pipeline, of_sink = sinks[0]
    bounds = [b for b in bind(project) if (b.pipeline, b.sink, b.kind) == (of_pipeline, of_sink, "data")]
    exported = suite_of(bounds, of_sink)
    _write(json.dumps(exported.suite, indent=2, ensure_ascii=False, default=str) + "\n", output)
    written = len(bounds) - len(exported.left_out)
    left = f"; {len(exported.left_out)} have no counterpart in GX:" if exported.left_out else "."
    typer.echo(f"Wrote {written} of {len(bounds)} checks on the rows of {of_sink}{left}", err=True)
    for name, reason in exported.left_out:
        typer.echo(f"  {name}: {reason}", err=True)


def _write(text: str, output: str) -> None:
    """Writes to stdout, or to a file that must not exist yet."""
    if output == "-":
        sys.stdout.write(text)
        return
    file = Path(output)
    _refuse_existing(file)
    with writing(file), file.open("x", encoding="utf-8") as out:
        out.write(text)
    typer.echo(f"Wrote {file}", err=True)


def _refuse_existing(file: Path) -> None:
    if file.exists():
        raise ConfigError(f"{file} exists already and was not changed; choose another name, or remove it")
