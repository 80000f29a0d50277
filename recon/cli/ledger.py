"""recon ledger and recon offsets: shows, verifies and repairs the ledger, and prints where it ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from recon.cli.shared import (
    FromOption,
    OutputOption,
    PipelineOption,
    Session,
    SinkOption,
    ToOption,
    period,
    print_json,
    print_table,
)
from recon.errors import LedgerError

if TYPE_CHECKING:
    from recon.ledger import Ledger


def _existing(session: Session) -> Ledger:
    """The project's ledger.

    Raises:
        LedgerError: there is none yet.
    """
    from recon.ledger import open_ledger

    ledger = open_ledger(session.project())
    if not ledger.exists():
        raise LedgerError(
            f"there is no ledger at {ledger.location}; the first micro-batch through recon's hook creates it, "
            "or 'recon ledger rebuild' from the Delta logs"
        )
    return ledger


def offsets(
    session: Session,
    pipeline: Annotated[str, typer.Option("--pipeline", help="The pipeline to continue.")],
    sink: Annotated[str | None, typer.Option("--sink", help="One of its sinks; needed when it has several.")] = None,
) -> None:
    """Print the startingOffsets at which the ledger ends.

    Prints only JSON for Spark's Kafka source; a new checkpoint with it continues exactly there.
    """
    session.check_names(pipeline, sink)
    project = session.project()

    from recon.recovery.starting_offsets import starting_offsets

    typer.echo(starting_offsets(project, pipeline, sink))


def show(
    session: Session,
    pipeline: PipelineOption = None,
    sink: SinkOption = None,
    from_: FromOption = None,
    to: ToOption = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most so many entries, the newest.")] = 50,
    output: OutputOption = "text",
) -> None:
    """Show the ledger's entries, oldest first."""
    start, end = period(from_, to)
    session.check_names(pipeline, sink)

    entries = _existing(session).entries(pipeline, sink, from_=start, to=end, limit=limit)
    if output == "json":
        print_json(entries)
    elif entries:
        headers = (
            "committed_at pipeline sink sequence epoch batch_id attempt status rows_written quarantined offsets "
            "version hash"
        )
        print_table(
            headers.split(),
            (
                (
                    e.committed_at.strftime("%Y-%m-%d %H:%M:%S"),
                    e.pipeline,
                    e.sink,
                    e.sequence,
                    e.epoch,
                    e.batch_id,
                    e.attempt,
                    e.status,
                    e.rows_written,
                    e.rows_quarantined,
                    sum(o.end_offset - o.start_offset for o in e.offsets),
                    e.sink_version,
                    e.entry_hash[:12],
                )
                for e in entries
            ),
        )
    else:
        typer.echo("The ledger has no such entry.", err=True)


def verify(
    session: Session, pipeline: PipelineOption = None, sink: SinkOption = None, output: OutputOption = "text"
) -> None:
    """Recompute every entry's hash and its link to the entry before.

    The commits of Delta sinks say which entries there must be. The states that audits left in the table `proof` are
    verified, too. Exit 1 when something is wrong or cannot be compared.
    """
    session.check_names(pipeline, sink)

    from recon.model import Level
    from recon.recovery.verify import verify as verified

    ledger = _existing(session)
    findings = verified(session.project(), ledger, pipeline, sink)
    refuted = any(f.level is Level.FAIL for f in findings)
    failed = any(f.level in (Level.FAIL, Level.UNPROVED) for f in findings)
    if output == "json":
        print_json([f.as_dict() for f in findings])
    else:
        for finding in findings:
            typer.echo(f"{finding.code}  {finding.message}")
        conclusion = "The ledger is intact: every hash and link is right."
        if failed:
            conclusion = "The ledger was changed or is damaged." if refuted else "Not everything could be compared."
        typer.echo(conclusion)
    raise typer.Exit(1 if failed else 0)


def rebuild(
    session: Session, pipeline: PipelineOption = None, sink: SinkOption = None, output: OutputOption = "text"
) -> None:
    """Restore missing entries from what the sinks themselves recorded.

    From the userMetadata of Delta commits, and from the records of other sinks.
    """
    session.check_names(pipeline, sink)

    from recon.ledger import open_ledger
    from recon.recovery.rebuild import rebuild as restore

    project = session.project()
    restored, ledger = restore(project, pipeline, sink), open_ledger(project)
    if not restored and not ledger.exists():
        raise LedgerError(
            f"there is no ledger at {ledger.location}, and no sink has a record of recon's writes to make it from; "
            "has the hook ever written?"
        )
    if output == "json":
        print_json(restored)
        return
    for entry in restored:
        typer.echo(
            f"restored {entry.pipeline}.{entry.sink} epoch {entry.epoch} batch {entry.batch_id} "
            f"from version {entry.sink_version} ({entry.rows_written} rows)"
        )
    typer.echo(f"{len(restored)} restored." if restored else "Nothing was missing.")


def compact(session: Session, output: OutputOption = "text") -> None:
    """Merge the small files of the ledger's tables."""
    metrics = _existing(session).compact()
    if output == "json":
        print_json(metrics)
        return
    for table, counters in metrics.items():
        counts = ", ".join(f"{k} {v}" for k, v in counters.items() if isinstance(v, (int, str)))
        typer.echo(f"{table}: {counts}")
