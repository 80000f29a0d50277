"""recon compliance verify: whether a report is as recon wrote it, and its numbers are those of ledger and proof."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from recon.base.text import plural, short_path
from recon.cli.audit import TemplatesOption, templates_folder
from recon.cli.shared import OutputOption, Session, print_json
from recon.reports.words import one_line


def verify(
    session: Session,
    file: Annotated[Path, typer.Argument(help="A report: HTML, PDF or JSON.")],
    templates: TemplatesOption = None,
    output: OutputOption = "text",
) -> None:
    """Derive every number of a report again.

    From ledger and proof, for the report's period and as of its own time; what came later is listed. What an HTML page
    or a PDF shows is compared with the data in it. Exit 0 when all is the same, 1 when something differs or could not
    be compared, 2 when the file is no compliance report, truncated, edited or of a newer version.
    """
    from recon.audits.verify_report import verify as verified

    project = session.project()
    result = verified(project, file, templates=templates_folder(session, templates))
    if output == "json":
        names = ("file", "kind", "sha256", "values", "unread", "since")
        print_json(
            {
                **{name: getattr(result, name) for name in names},
                "same": result.is_same,
                "differences": [vars(difference) for difference in result.differences],
            }
        )
    else:
        report = result.report
        typer.echo(
            f"{short_path(file.absolute())}: {report.project}, {report.period_from:%Y-%m-%d} to {report.last_day}"
        )
        typer.echo(f"Document SHA-256 {result.sha256}: the content's own")
        if result.unread:
            typer.echo(f"Not compared: {one_line(result.unread)}")
        for difference in result.differences:
            shown = f"{difference.path}: {difference.document} in the report, {difference.now} by ledger and proof"
            typer.echo(f"Different: {one_line(shown)}")
        values = plural(result.values, "value")
        at = f"as of {report.generated_at:%Y-%m-%d %H:%M:%S} UTC, its own time"
        if result.is_same:
            typer.echo(f"Same: {values} derived again from ledger and proof, {at}.")
        else:
            typer.echo(f"{plural(len(result.differences), 'difference')} in {values}, {at}.")
        for sentence in result.since:
            typer.echo(f"Since then: {one_line(sentence)}")
    raise typer.Exit(0 if result.is_same else 1)
