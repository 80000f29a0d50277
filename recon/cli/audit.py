"""recon audit, list, report, compliance: what is judged, and how it is told."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from recon.cli.shared import (
    ExcludeOption,
    FromOption,
    OutputOption,
    SelectOption,
    Session,
    TargetPathOption,
    ToOption,
    command,
    period,
    print_json,
    print_table,
)
from recon.errors import ConfigError, ReconError


def add_to(app: typer.Typer) -> None:
    """Registers this module's commands."""
    command(app, "audit")(audit)
    command(app, "list")(list_checks)
    command(app, "report")(report)
    command(app, "compliance")(compliance)


def audit(
    session: Session,
    select: SelectOption = None,
    exclude: ExcludeOption = None,
    from_: FromOption = None,
    to: ToOption = None,
    fail_fast: Annotated[bool, typer.Option("--fail-fast", help="Stop at the first failure.")] = False,
    no_spark: Annotated[
        bool, typer.Option("--no-spark", help="Start no JVM: checks that read rows are skipped.")
    ] = False,
    full_refresh: Annotated[
        bool, typer.Option("--full-refresh", help="Measure incremental checks on whole tables.")
    ] = False,
    target_path: TargetPathOption = None,
) -> None:
    """Run the checks and write the report.

    Exit 0 when none failed (warnings allowed), 1 when one failed or errored, 2 when recon could not run.
    """
    start, end = period(from_, to)
    project, target = session.project(), session.target(target_path)

    from recon.audit import audit as run_audit
    from recon.model import CheckResult
    from recon.reports import html, run_results
    from recon.reports.console import Console

    done = total = 0

    with Console() as console:

        def on_start(count: int) -> None:
            nonlocal total
            total = count

        def on_check(name: str) -> None:
            console.started(done + 1, total, name)

        def on_result(index: int, count: int, result: CheckResult) -> None:
            nonlocal done
            done = index
            console.line(index, count, result)

        run = run_audit(
            project,
            select=select or [],
            exclude=exclude or [],
            from_=start,
            to=end,
            fail_fast=fail_fast,
            no_spark=no_spark,
            full_refresh=full_refresh,
            on_start=on_start,
            on_check=on_check,
            on_result=on_result,
        )
        console.summary(run)
    results, page = target / "run_results.json", target / "report.html"
    with _writing(target):
        run_results.write(run, results)
        html.write(run, page)
    typer.echo(f"Results: {_friendly(results)}")
    typer.echo(f"Report:  {_friendly(page)}")
    raise typer.Exit(run.exit_code)


def list_checks(
    session: Session,
    select: SelectOption = None,
    exclude: ExcludeOption = None,
    output: OutputOption = "text",
) -> None:
    """Show which checks an audit would run."""
    project = session.project()

    from recon.checks.registry import bind
    from recon.checks.select import select as choose
    from recon.checks.select import unmatched

    bounds = bind(project)
    chosen = choose(bounds, select or [], exclude or [])
    for sentence in unmatched(bounds, [*(select or []), *(exclude or [])]):
        typer.echo(f"Warning: {sentence}", err=True)
    if output == "json":
        print_json(
            [
                {
                    "unique_id": b.unique_id,
                    "name": b.name,
                    "check": b.check.test,
                    "kind": b.kind,
                    "pipeline": b.pipeline,
                    "sink": b.sink,
                    "column": b.column,
                    "tags": b.tags,
                    "config": b.config.model_dump(),
                }
                for b in chosen
            ]
        )
    elif chosen:
        headers = ("name", "check", "kind", "pipeline", "sink", "column", "severity", "tags")
        print_table(
            headers,
            (
                (b.name, b.check.test, b.kind, b.pipeline, b.sink, b.column, b.config.severity, " ".join(b.tags))
                for b in chosen
            ),
        )
    else:
        typer.echo("No check is selected.", err=True)


def report(
    session: Session,
    target_path: TargetPathOption = None,
    format: Annotated[Literal["html"], typer.Option("--format", help="The only one so far.")] = "html",
    output: Annotated[Path | None, typer.Option("--output", help="The file to write.")] = None,
) -> None:
    """Draw the last audit's report again.

    Reads run_results.json and nothing else.
    """
    from recon.reports import html, run_results

    target = session.target(target_path)
    source = target / "run_results.json"
    if not source.is_file():
        raise ConfigError(f"no {source}; run 'recon audit' first, or point to its folder with --target-path")
    run = run_results.read(source)
    page = (output or target / f"report.{format}").absolute()
    with _writing(page.parent):
        html.write(run, page)
    typer.echo(f"Report:  {_friendly(page)}")


def compliance(
    session: Session,
    from_: Annotated[str, typer.Option("--from", help="Start of the period: a date or time, or 30d ago.")],
    to: Annotated[str, typer.Option("--to", help="End of the period; a bare date includes that day.")],
    format: Annotated[Literal["html", "md", "pdf"], typer.Option("--format", help="What to write.")] = "html",
    output: Annotated[Path | None, typer.Option("--output", help="The file to write.")] = None,
) -> None:
    """Write the compliance report of a period.

    Drawn from the ledger and the stored results of audits.
    """
    start, end = period(from_, to)
    project = session.project()
    page = (output or session.target(None) / f"compliance.{format}").absolute()

    from recon.compliance import compliance as gather
    from recon.reports import compliance as drawn
    from recon.reports.run_results import write_text

    assert start is not None and end is not None
    found = gather(project, start, end)
    with _writing(page.parent):
        if format == "pdf":
            drawn.write_pdf(found, page)
        else:
            write_text(drawn.render_html(found) if format == "html" else drawn.render_markdown(found), page)
    typer.echo(f"Compliance report: {_friendly(page)}")


class _writing:
    """Names the folder when the disk refuses."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            raise ReconError(
                f"{self.folder} cannot be written: {error.strerror or error}; choose another folder"
            ) from error


def _friendly(path: Path) -> str:
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
