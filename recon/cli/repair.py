"""recon repair: what can be done about open findings, and doing it."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recon.base.decision import Decision
from recon.base.errors import ConfigError
from recon.cli.shared import (
    ByOption,
    OutputOption,
    PipelineOption,
    ReasonOption,
    Session,
    SinkOption,
    assignments,
    print_json,
    print_table,
)

if TYPE_CHECKING:
    from recon.project import Project
    from recon.recovery.repair.plan import RepairPlan
    from recon.recovery.repair.run import Repaired

FindingOption = Annotated[
    str | None, typer.Option("--finding", help="Only this one, by its id as `recon findings` prints it.")
]


def plan(
    session: Session,
    pipeline: PipelineOption = None,
    sink: SinkOption = None,
    finding: FindingOption = None,
    output: OutputOption = "text",
) -> None:
    """Show what `recon repair apply` would do about each open finding.

    Which missing offsets Kafka still has, which are gone, and which rows are doubled. Reads only, without Spark.
    """
    session.check_names(pipeline, sink)

    from recon.recovery.repair.witnesses import repair_plans

    plans = repair_plans(session.project(), pipeline, sink, finding=finding)
    if output == "json":
        print_json(plans)
    elif plans:
        _print_plans(session, plans)
    else:
        typer.echo("No finding is open.", err=True)


def apply(
    session: Session,
    pipeline: Annotated[str, typer.Option("--pipeline", help="The pipeline to repair.")],
    sink: Annotated[str | None, typer.Option("--sink", help="One of its sinks; needed when it has several.")] = None,
    finding: FindingOption = None,
    transform: Annotated[
        str | None, typer.Option("--transform", help="The query's transform: module:function.")
    ] = None,
    other_transform: Annotated[
        bool, typer.Option("--other-transform", help="Use it, or none, whatever transform the ledger names.")
    ] = False,
    option: Annotated[
        list[str] | None, typer.Option("--option", help="Of Spark's Kafka source: name=value; repeatable.")
    ] = None,
    by: ByOption = None,
    reason: ReasonOption = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    audit: Annotated[bool, typer.Option("--audit/--no-audit", help="Audit the pipeline afterwards.")] = True,
    output: OutputOption = "text",
) -> None:
    """Read missing offsets again and write them, and remove doubled rows.

    Shows the plan and asks first. Each write has a ledger entry of its own; interrupted, it can be run again. An audit
    then says which findings are REPAIRED. Exit 0 when all that was planned is, 1 when something stays open.
    """
    session.check_names(pipeline, sink)
    options = assignments("--option", option, "name=value")
    decision = Decision.of(by, reason)
    project = session.project()
    out = project.find_sink(pipeline, sink)[1]
    function = None if transform is None else _imported(transform, session.folder())

    from recon.recovery.repair.run import repair
    from recon.recovery.repair.witnesses import repair_plans

    plans = repair_plans(project, pipeline, out.name, finding=finding)
    if not plans:
        typer.echo("No finding is open.", err=True)
        return
    if output == "text":
        _print_plans(session, plans)
    if plans[0].refused:
        raise ConfigError(plans[0].refused)
    if not plans[0].does_something and not plans[0].of("done"):
        typer.echo("Nothing of it can be repaired.", err=True)
        raise typer.Exit(1)
    if not yes:
        ask(f"{project.location(out)} will be changed")
    done = repair(
        project,
        pipeline,
        out.name,
        finding=finding,
        transform=function,
        other_transform=other_transform,
        kafka_options=options,
        by=decision.by,
        reason=decision.reason,
    )
    left = _audited(project, done) if audit else ()
    if output == "json":
        print_json({**vars(done), "still_open": left})
    else:
        _print_done(session, done, left, audit)
    raise typer.Exit(1 if done.incomplete or left else 0)


def _imported(name: str, folder: Path) -> Callable[..., Any]:
    """The function that module:function names; modules are looked for in the folder of recon.yml, too.

    Raises:
        ConfigError: there is no such function.
    """
    module, _, path = name.partition(":")
    if not module or not path:
        raise ConfigError(f"--transform '{name}' is not of the form module:function")
    sys.path.insert(0, str(folder.absolute()))
    try:
        found: Any = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except Exception as error:  # whatever the module does when it is imported
        raise ConfigError(f"--transform '{name}' cannot be imported: {type(error).__name__}: {error}") from error
    finally:
        sys.path.pop(0)
    if not callable(found):
        raise ConfigError(f"--transform '{name}' is no function")
    function: Callable[..., Any] = found
    return function


def ask(what: str) -> None:
    """Asks whether to go on; ends the command where the answer is no.

    Raises:
        ConfigError: there is nobody to ask.
    """
    if not sys.stdin.isatty():
        raise ConfigError(f"{what}, and there is nobody to ask: add --yes")
    if not typer.confirm(f"{what}. Go on?"):
        typer.echo("Nothing was changed.", err=True)
        raise typer.Exit(1)


def _audited(project: Project, done: Repaired) -> tuple[str, ...]:
    """Audits the pipeline's evidence; the ids of the findings that the repair was about and that are still open."""
    from recon.audits.accept import open_findings
    from recon.audits.run import run_audit

    run_audit(project, select=[f"pipeline:{done.pipeline},test_type:evidence"])
    about = {
        finding
        for planned in done.plan.ranges
        if planned.action in ("read", "remove", "done")
        for finding in planned.findings
    }
    waiting = {open_finding.id for open_finding in open_findings(project) if open_finding.accepted is None}
    return tuple(sorted(about & waiting))


def _print_plans(session: Session, plans: Sequence[RepairPlan]) -> None:
    for of_sink in plans:
        typer.echo(f"{of_sink.pipeline}.{of_sink.sink}")
        if of_sink.refused:
            typer.echo(session.mask(f"  recon does not repair it: {of_sink.refused}"))
        if of_sink.ranges:
            print_table(
                ("does", "partition", "start", "end", "micro-batch", "findings", "why"),
                [
                    (
                        each.action,
                        f"{each.topic}-{each.partition}",
                        each.start_offset,
                        each.end_offset,
                        each.batch_id,
                        ", ".join(each.findings),
                        session.mask(each.why),
                    )
                    for each in of_sink.ranges
                ],
            )
        for left in of_sink.left_open:
            typer.echo(session.mask(f"  {left.finding} {left.code}: {left.message}; {left.step}"))


def _print_done(session: Session, done: Repaired, left: Sequence[str], audited: bool) -> None:
    for name in done.finished:
        typer.echo(f"{name} had been interrupted; its ledger entry was added")
    place = f"{done.pipeline}.{done.sink}"
    if done.offsets:
        typer.echo(f"{place}: {done.offsets:,} offsets were read again and {done.rows:,} rows written")
    if done.removed:
        typer.echo(f"{place}: {done.removed:,} doubled rows were removed")
    if not done.entries:
        typer.echo(f"{place}: nothing was missing or doubled any more, and nothing was written")
    for sentence in done.incomplete:
        typer.echo(session.mask(f"Not complete: {sentence}"))
    if left:
        typer.echo(f"Still open after the audit: {', '.join(left)}; see `recon findings`")
    elif audited:
        typer.echo("The audit says that everything that was repaired is REPAIRED.")
    else:
        typer.echo("Run `recon audit`: it says what is REPAIRED.")
