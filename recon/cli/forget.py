"""recon forget: erases rows of a person from what recon keeps."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from recon.base.decision import stated
from recon.base.errors import ConfigError
from recon.base.text import plural, short_path
from recon.cli.repair import ask
from recon.cli.shared import (
    OutputOption,
    PipelineOption,
    SelectOption,
    Session,
    SinkOption,
    TargetPathOption,
    chosen_checks,
    print_json,
    print_table,
)

if TYPE_CHECKING:
    from recon.model import RunResult
    from recon.recovery.forget import Found


def forget(
    session: Session,
    where: Annotated[str, typer.Option("--where", help='SQL condition on the rows, such as "customer_id = 7".')],
    by: Annotated[str, typer.Option("--by", help="Who erases.")] = "",
    reason: Annotated[str, typer.Option("--reason", help="Why, such as a ticket; not who it is about.")] = "",
    pipeline: PipelineOption = None,
    sink: SinkOption = None,
    select: SelectOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be erased.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    output: OutputOption = "text",
    target_path: TargetPathOption = None,
) -> None:
    """Erase rows of a person from quarantine, from stored failures and from the samples of the last results.

    The erasure is entered in a chain of its own, which audits and `recon ledger verify` show. Run it again where it was
    interrupted. Starts no Spark.
    """
    session.check_names(pipeline, sink)
    for option, text in (("--by", by), ("--reason", reason)):
        if not (text.strip() or dry_run):
            raise ConfigError(f"{option} is missing; an auditor will ask for it")
    project, target = session.project(), session.target(target_path)

    from recon.recovery.forget import UNREACHED, Forgetting, last_results
    from recon.reports import run_results

    file = last_results(target)
    run = run_results.read(file) if file is not None else None
    checks = {check.unique_id for check in chosen_checks(session, select)} if select else None
    forgetting = Forgetting(project, where, pipeline=pipeline, sink=sink, checks=checks, run=run)
    found = forgetting.found()
    _print(found, output)
    count = sum(of_sink.rows for of_sink in found)
    if count and not dry_run:
        if not yes:
            ask(f"This erases {plural(count, 'row')} for good")
        forgotten = forgetting.erase(found, by=stated("--by", by), reason=stated("--reason", reason))
        if forgotten is not None:
            _write(session, target, forgotten)
        typer.echo(f"{plural(count, 'row')} erased.", err=output == "json")
    if output == "text":
        typer.echo(UNREACHED)


def _print(found: list[Found], output: str) -> None:
    counts = [
        (of_sink.pipeline, of_sink.sink, len(of_sink.quarantined), len(of_sink.failures), of_sink.sample_count)
        for of_sink in found
    ]
    headers = ("pipeline", "sink", "quarantined", "failures", "samples")
    if output == "json":
        rows = [dict(zip(headers, row, strict=True)) for row in counts]
        print_json([{**row, "unknown": of_sink.unknown} for row, of_sink in zip(rows, found, strict=True)])
        return
    if any(of_sink.rows for of_sink in found):
        print_table(headers, counts)
    else:
        typer.echo("No row meets the condition.", err=True)
    for of_sink in found:
        for sentence in of_sink.unknown:
            typer.echo(f"Warning: {of_sink.pipeline}.{of_sink.sink}: {sentence}", err=True)


def _write(session: Session, target: Path, run: RunResult) -> None:
    """Writes the last results without the samples, and every file that was made of them."""
    from recon.reports import forms, html, run_results

    templates = session.project().report_templates
    # The results last: where this is interrupted, the samples are still found by the next run.
    for form, name in forms.FORMS.items():
        if (target / name).is_file():
            forms.write(run, form, target / name, templates)
    if (target / "report.html").is_file():
        html.write(run, target / "report.html", templates=templates)
    typer.echo(f"Results: {short_path(run_results.write(run, target / 'run_results.json'))}", err=True)
