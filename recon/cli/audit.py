"""recon audit, retry, list, report, compliance: run checks and write reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from recon.base.clock import utc_now
from recon.base.errors import ConfigError
from recon.base.instants import instant
from recon.base.storage import make_private_folder, private_mode
from recon.base.text import short_path
from recon.cli.shared import (
    ExcludeOption,
    FromOption,
    OutputOption,
    PeriodFromOption,
    PeriodToOption,
    SelectOption,
    Session,
    TargetPathOption,
    ToOption,
    chosen_checks,
    period,
    print_json,
    print_table,
    required_period,
    writing,
)

if TYPE_CHECKING:
    from recon.audits.options import Options
    from recon.model import RunResult
    from recon.project import Project

RESULTS = "run_results.json"


class FileForm(StrEnum):
    """The forms that `--write` writes."""

    MARKDOWN, JUNIT, CSV, PARQUET = "markdown", "junit", "csv", "parquet"


WriteOption = Annotated[
    list[FileForm] | None,
    typer.Option("--write", help="Write the run in this form, too, to the target folder; repeatable."),
]
TemplatesOption = Annotated[
    Path | None,
    typer.Option("--templates", help="Folder of report templates; by default reports: templates of recon.yml."),
]
AnnotateOption = Annotated[
    Literal["github", "azure"] | None,
    typer.Option("--annotate", help="Print what failed as this CI server's annotations, too."),
]


@dataclass(frozen=True)
class AuditFlags:
    """The flags of `recon audit` that `recon retry` has too."""

    fail_fast: Annotated[bool, typer.Option("--fail-fast", help="Stop at the first failure.")] = False
    no_spark: Annotated[bool, typer.Option("--no-spark", help="Start no JVM; skip checks that read rows.")] = False
    warn_error: Annotated[bool, typer.Option("--warn-error", help="Warnings fail the run: exit 1.")] = False
    require_complete: Annotated[
        bool, typer.Option("--require-complete", help="A pipeline that is not proved complete fails the run: exit 1.")
    ] = False


def audit(
    session: Session,
    select: SelectOption = None,
    exclude: ExcludeOption = None,
    from_: FromOption = None,
    to: ToOption = None,
    flags: AuditFlags = AuditFlags(),
    full_refresh: Annotated[
        bool, typer.Option("--full-refresh", help="Measure incremental checks on whole tables.")
    ] = False,
    full: Annotated[bool, typer.Option("--full", help="Prove everything anew, from the first micro-batch on.")] = False,
    write: WriteOption = None,
    annotate: AnnotateOption = None,
    templates: TemplatesOption = None,
    target_path: TargetPathOption = None,
) -> None:
    """Run the checks and write the report.

    Goes on where the last audit stopped that judged everything, and looks at the last hour again (at the last 24 hours
    while a finding is open). With --from or --to a period is examined again, and the next audit goes on as if this one
    had not been.

    Exit 0 when none failed (warnings allowed), 1 when one failed or errored, 2 when recon could not run, or no check
    is selected.
    """
    from recon.audits.options import Options

    start, end = period(from_, to)
    target = session.target(target_path)
    last = _last_statuses(target, select, exclude)
    if last is not None and not _chooses(session.project(), select or (), exclude or (), last):
        typer.echo("Nothing to run: no selected check had such a result in the last run.")
        return
    options = Options(
        select=select or (),
        exclude=exclude or (),
        last=last,
        from_=start,
        to=end,
        full_refresh=full_refresh,
        full=full,
        **asdict(flags),
    )
    _run(session, target, options, _Forms(tuple(write or ()), annotate, templates_folder(session, templates)))


def _chooses(project: Project, select: Sequence[str], exclude: Sequence[str], last: Mapping[str, str]) -> bool:
    from recon.checks.binding import bind
    from recon.checks.select import select as chosen

    return bool(chosen(bind(project), select, exclude, last))


def retry(
    session: Session,
    from_: FromOption = None,
    to: ToOption = None,
    flags: AuditFlags = AuditFlags(),
    write: WriteOption = None,
    annotate: AnnotateOption = None,
    templates: TemplatesOption = None,
    target_path: TargetPathOption = None,
) -> None:
    """Run what failed in the last audit again.

    These are the checks that failed or errored and those that --fail-fast left out. Options, --vars and period are
    those of the last audit unless you give others. Exit codes are those of `recon audit`; 0 when there is nothing to
    retry.
    """
    start, end = period(from_, to)
    last = _last_run(session, target_path)
    from recon.base.credentials import HIDDEN

    variables = last.args.get("vars") or {}
    hidden = [name for name, value in variables.items() if HIDDEN in str(value) and name not in session.variables]
    if hidden:
        raise ConfigError(
            f"the last run's results do not hold the value of variable {hidden[0]}, since it is a credential; give it "
            f"again: recon retry --vars '{{{hidden[0]}: …}}'"
        )
    session.with_variables(variables)

    from recon.audits.retry import options_of
    from recon.checks.binding import bind

    before = options_of(last)
    unique_ids = before.only or ()
    if not unique_ids:
        typer.echo("Nothing to retry: in the last run no check failed, errored or was left out by --fail-fast.")
        return
    known = {check.unique_id for check in bind(session.project())}
    for unique_id in unique_ids:
        if unique_id not in known:
            typer.echo(f"Warning: {unique_id} is not in the project any more and cannot be retried", err=True)
    if known.isdisjoint(unique_ids):
        raise ConfigError("no check of the last run that failed is in the project any more; run 'recon audit'")
    options = replace(
        before,
        from_=start,
        to=end or before.to,
        fail_fast=flags.fail_fast or before.fail_fast,
        no_spark=flags.no_spark or before.no_spark,
        warn_error=flags.warn_error or before.warn_error,
        require_complete=flags.require_complete or before.require_complete,
    )
    forms = _Forms(tuple(write or ()), annotate, templates_folder(session, templates))
    _run(session, session.target(target_path), options, forms)


@dataclass(frozen=True)
class _Forms:
    """What an audit writes and prints besides its results: files, annotations, with whose templates."""

    write: tuple[FileForm, ...]
    annotate: str | None
    templates: Path | None


def templates_folder(session: Session, chosen: Path | None) -> Path | None:
    """The folder of report templates: an option is relative to the current folder, recon.yml's path to its own."""
    return session.project().report_templates if chosen is None else chosen.absolute()


def _run(session: Session, target: Path, options: Options, wanted: _Forms) -> None:
    """Runs the audit, prints each result as it comes, writes the files and ends with the exit code."""
    project = session.project()

    from recon.audits import run as audits
    from recon.reports import forms, run_results
    from recon.reports.console import Console
    from recon.write.ledger.ledger import why_unwritable

    if wanted.templates is not None:
        _try_templates(project, target, wanted)
    results, page = target / RESULTS, target / "report.html"
    with Console() as console:

        def begin(count: int) -> None:
            # The last run's files would pass for this one's, should it be killed or break. Before them, a file is
            # made: an audit whose results cannot be written is not worth its time.
            with writing(target):
                private_mode()
                make_private_folder(target)
                with TemporaryFile(dir=target):
                    pass
                for file in (RESULTS, page.name, *forms.FORMS.values()):
                    (target / file).unlink(missing_ok=True)
            if reason := why_unwritable(project):
                typer.echo(
                    session.mask(
                        f"Warning: {reason}: what this audit finds is not kept beside the ledger, and the next one "
                        "begins where this one did"
                    ),
                    err=True,
                )
            console.expect(count)

        spark_log = None if session.debug else target / "spark.log"
        options = replace(options, on_start=begin, on_check=console.started, on_result=console.line)
        run = audits.audit(project, replace(options, spark_log=spark_log))
        console.summary(run)
        counts = run.counts()
        if not (counts["fail"] or counts["error"]):
            if run.args.get("warn_error") and counts["warn"]:
                typer.echo("Warnings fail this run (--warn-error).")
            if run.args.get("require_complete") and run.not_complete:
                names = ", ".join(run.not_complete)
                typer.echo(f"This run fails, because {names} was not proved complete (--require-complete).")
    with writing(target):
        run_results.write(run, results)
        written, fault = _written(run, target, wanted)
    if wanted.annotate is not None:
        typer.echo(forms.text(run, wanted.annotate), nl=False)
    typer.echo(f"Results: {short_path(results)}")
    typer.echo(f"Report:  {short_path(page)}")
    for file in written:
        typer.echo(f"         {short_path(file)}")
    if fault is not None:
        raise ConfigError(f"{fault}; the report was written with recon's own templates") from fault
    raise typer.Exit(run.exit_code)


def _try_templates(project: Project, target: Path, wanted: _Forms) -> None:
    """Draws the last run, or one without results: a fault of a template is better known before the audit than after it.

    Raises:
        ConfigError: a template has a fault.
    """
    from recon.base.errors import EvidenceError
    from recon.model import RunResult
    from recon.reports import forms, html, run_results

    try:
        run = run_results.read(target / RESULTS)
    except EvidenceError:
        at = utc_now()
        run = RunResult(
            invocation_id="",
            project=project.name,
            recon_version="",
            generated_at=at,
            period_from=None,
            period_to=at,
            elapsed_time=0.0,
            results=(),
        )
    html.render(run, templates=wanted.templates)
    if FileForm.MARKDOWN in wanted.write:
        forms.text(run, FileForm.MARKDOWN, wanted.templates)


def _written(run: RunResult, target: Path, wanted: _Forms) -> tuple[list[Path], ConfigError | None]:
    """The files besides the results and the page; where a template has a fault, recon's own draw all, and the fault."""
    from recon.reports import forms, html

    def write(templates: Path | None) -> list[Path]:
        html.write(run, target / "report.html", templates=templates)
        kinds = dict.fromkeys(wanted.write)
        return [forms.write(run, form, target / forms.FORMS[form], templates) for form in kinds]

    try:
        return write(wanted.templates), None
    except ConfigError as fault:
        if wanted.templates is None:
            raise
        return write(None), fault


def _last_run(session: Session, target_path: Path | None) -> RunResult:
    """The last run's results. recon.yml may need --vars to be read, which are stored in these results."""
    from recon.reports import run_results

    try:
        file = session.target(target_path) / RESULTS
    except ConfigError:
        file = session.folder() / "target" / RESULTS
        if not file.is_file():
            raise
    return run_results.read(file)


def _last_statuses(target: Path, select: Sequence[str] | None, exclude: Sequence[str] | None) -> dict[str, str] | None:
    """The status of each check in the last run, read only when a selector asks for it."""
    from recon.checks.select import asks_last_run

    file = target / RESULTS
    if not asks_last_run([*(select or ()), *(exclude or ())]) or not file.is_file():
        return None
    from recon.reports import run_results

    return {result.unique_id: result.status for result in run_results.read(file).results}


def list_checks(
    session: Session,
    select: SelectOption = None,
    exclude: ExcludeOption = None,
    output: OutputOption = "text",
    target_path: TargetPathOption = None,
) -> None:
    """Show which checks an audit would run."""
    last = _last_statuses(session.target(target_path), select, exclude)
    rows: list[dict[str, Any]] = [
        {
            "unique_id": check.unique_id,
            "name": check.name,
            "check": check.check.test,
            "kind": check.kind,
            "pipeline": check.pipeline,
            "sink": check.sink,
            "column": check.column,
            "tags": check.tags,
            "config": check.config.model_dump(),
        }
        for check in chosen_checks(session, select, exclude, last)
    ]
    if output == "json":
        print_json(rows)
    elif rows:
        columns = ("name", "check", "kind", "pipeline", "sink", "column")
        print_table(
            (*columns, "severity", "tags"),
            [(*(row[c] for c in columns), row["config"]["severity"], " ".join(row["tags"])) for row in rows],
        )
    else:
        typer.echo("No check is selected.", err=True)


def report(
    session: Session,
    target_path: TargetPathOption = None,
    format: Annotated[
        Literal["html", "markdown", "junit", "csv", "parquet", "github", "azure"],
        typer.Option("--format", help="What to write."),
    ] = "html",
    output: Annotated[Path | None, typer.Option("--output", help="The file to write; - prints it.")] = None,
    run_id: Annotated[
        str | None, typer.Option("--run", help="An earlier audit, by its invocation id or the beginning of it.")
    ] = None,
    last: Annotated[
        str | None, typer.Option("--last", help="The newest audit since then, with all of the time: 30d, 24h.")
    ] = None,
    templates: TemplatesOption = None,
) -> None:
    """Write an audit's report again, without Spark.

    Of the last audit it reads run_results.json and nothing else; with --run or --last the results that are stored
    beside the ledger.
    """
    from recon.reports import forms, html, run_results

    if run_id is not None and last is not None:
        raise ConfigError("--run and --last exclude each other: one names an audit, the other a time")
    target = session.target(target_path)
    if run_id is not None:
        from recon.audits.stored_report import stored_run

        run = stored_run(session.project(), run_id)
    elif last is not None:
        from recon.audits.past import MAX_DAYS
        from recon.audits.stored_report import newest_run

        since = instant("--last", last)
        assert since is not None
        if since >= utc_now():
            raise ConfigError(f"--last {last} is not before now; give how long ago, such as 30d, or a day that is past")
        run = newest_run(session.project(), since)
        if since < utc_now() - timedelta(days=MAX_DAYS):
            typer.echo(f"Note: the report shows the audits of the newest {MAX_DAYS} days, at most.", err=True)
    else:
        source = target / RESULTS
        if not source.is_file():
            raise ConfigError(f"no {source}; run 'recon audit' first, or point to its folder with --target-path")
        run = run_results.read(source)
    folder = templates.absolute() if templates is not None else _templates_of_project(session)
    if output == Path("-"):
        text = html.render(run, templates=folder) if format == "html" else forms.text(run, format, folder)
        typer.echo(text, nl=False)
        return
    page = (output or target / ("report.html" if format == "html" else forms.FORMS[format])).absolute()
    with writing(page):
        if format == "html":
            html.write(run, page, templates=folder)
        else:
            forms.write(run, format, page, folder)
    typer.echo(f"Report:  {short_path(page)}")


OutputFileOption = Annotated[Path | None, typer.Option("--output", help="The file to write.")]


def _templates_of_project(session: Session) -> Path | None:
    """Those of recon.yml, where there is one: a report of run_results.json needs none."""
    try:
        session.folder()
    except ConfigError:
        return None
    try:
        return session.project().report_templates
    except ConfigError as error:
        typer.echo(f"Warning: recon.yml cannot be read, so its templates are not used: {error}", err=True)
        return None


def compliance(
    session: Session,
    from_: PeriodFromOption = None,
    to: PeriodToOption = None,
    format: Annotated[Literal["html", "md", "pdf", "json"], typer.Option("--format", help="What to write.")] = "html",
    templates: TemplatesOption = None,
    output: Annotated[Path | None, typer.Option("--output", help="The file to write; - prints it.")] = None,
) -> None:
    """Write the compliance report of a period."""
    start, end = required_period(from_, to)
    project = session.project()
    page = (output or session.target(None) / f"compliance.{format}").absolute()

    from recon.audits.compliance import compliance as gather
    from recon.reports.compliance import text, write

    folder = templates_folder(session, templates)
    if output == Path("-"):
        if format == "pdf":
            raise ConfigError("a PDF is not printed; give the file to write: --output compliance.pdf")
        typer.echo(text(gather(project, start, end), format, templates=folder), nl=False)
        return
    document = gather(project, start, end)
    with writing(page):
        write(document, page, format, templates=folder)
    typer.echo(f"Compliance report: {short_path(page)}")


def pack(
    session: Session, from_: PeriodFromOption = None, to: PeriodToOption = None, output: OutputFileOption = None
) -> None:
    """Write the auditor's pack of a period.

    One HTML page, which verifies signed heads, entries and numbers offline in a browser.
    """
    start, end = required_period(from_, to)

    from recon.audits.pack import pack as gather
    from recon.reports.pack import write

    page = (output or session.target(None) / "pack.html").absolute()
    document = gather(session.project(), start, end)
    with writing(page):
        write(document, page)
    typer.echo(f"Auditor's pack: {short_path(page)}")
