"""recon findings and recon accept: what is open, and decisions about it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from recon.cli.shared import OutputOption, PipelineOption, Session, SinkOption, print_json, print_table

if TYPE_CHECKING:
    from recon.model import Finding
    from recon.model.proof import OpenFinding


def findings(
    session: Session,
    pipeline: PipelineOption = None,
    sink: SinkOption = None,
    output: OutputOption = "text",
) -> None:
    """Show what audits refuted or could not decide, until it is repaired; among it what was accepted."""
    project = session.project()

    from recon.audits.accept import open_findings, proved_names

    proved = proved_names(project)
    if not any(pipeline in (None, of_pipeline) and sink in (None, of_sink) for of_pipeline, of_sink in proved):
        session.check_names(pipeline, sink)  # one that recon.yml no longer has is looked for in the proof alone

    listed = [
        open_finding
        for open_finding in open_findings(project)
        if pipeline in (None, open_finding.finding.pipeline) and sink in (None, open_finding.finding.sink)
    ]
    if output == "json":
        print_json([{"id": open_finding.id, **vars(open_finding)} for open_finding in listed])
    elif listed:
        print_table(
            ("id", "pipeline", "sink", "code", "since", "state", "finding"),
            (
                (
                    open_finding.id,
                    open_finding.finding.pipeline,
                    open_finding.finding.sink,
                    str(open_finding.finding.code),
                    f"{open_finding.first_seen:%Y-%m-%d %H:%M}",
                    "open"
                    if open_finding.accepted is None
                    else f"accepted by {open_finding.accepted.by}: {open_finding.accepted.reason}",
                    open_finding.finding.message + _of_which_topic(open_finding.finding, listed),
                )
                for open_finding in listed
            ),
        )
    else:
        typer.echo("No finding is open.", err=True)


def _of_which_topic(finding: Finding, listed: Sequence[OpenFinding]) -> str:
    """The id of the finding's topic, where findings of several topics of this name are listed; "" otherwise."""
    ids = {open_finding.finding.topic_id for open_finding in listed if open_finding.finding.topic == finding.topic}
    return f" (topic id {finding.topic_id or 'not known'})" if finding.topic is not None and len(ids) > 1 else ""


def accept(
    session: Session,
    finding: Annotated[str, typer.Argument(help="Its id, as `recon findings` prints it.")],
    reason: Annotated[str, typer.Option("--reason", help="Why it is accepted.")],
    by: Annotated[str, typer.Option("--by", help="Who accepts it.")],
) -> None:
    """Accept a finding, so that it no longer makes the answer "not complete".

    Every later audit and compliance report names it, with who accepted it and why.
    """
    project = session.project()

    from recon.audits.accept import accept as accept_finding

    for open_finding in accept_finding(project, finding, reason=reason, by=by):
        typer.echo(f"Accepted {open_finding.id}: {open_finding.finding.code}: {open_finding.finding.message}")
