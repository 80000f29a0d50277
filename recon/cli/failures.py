"""recon failures: shows the failing rows that audits stored."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from recon.cli.shared import OutputOption, SelectOption, Session, command, new_app, print_json, print_table
from recon.errors import LedgerError


def add_to(app: typer.Typer) -> None:
    """Registers this module's commands."""
    group = new_app("Show failing rows of checks with store_failures.")
    command(group, "show")(show)
    app.add_typer(group, name="failures")


def show(
    session: Session,
    select: SelectOption = None,
    invocation_id: Annotated[
        str | None, typer.Option("--invocation-id", help="The run; by default the last one that stored failing rows.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most so many rows of each check.")] = 10,
    output: OutputOption = "text",
) -> None:
    """Show failing rows that an audit stored."""
    project = session.project()

    from recon.checks.registry import bind
    from recon.checks.select import select as choose
    from recon.checks.select import unmatched
    from recon.ledger.failures import FAILURES, stored_failures
    from recon.ledger.store import open_store

    store = open_store(project, FAILURES)
    if not store.exists():
        raise LedgerError(
            f"there are no stored failures at {store.location}; checks with store_failures: true store them there"
        )
    bounds = bind(project)
    wanted = {bound.unique_id for bound in choose(bounds, select or [])}
    for sentence in unmatched(bounds, select or []):
        typer.echo(f"Warning: {sentence}", err=True)
    found = [
        row
        for row in stored_failures(store, invocation_id)
        if row["row_number"] <= limit and (row["unique_id"] in wanted or not select)
    ]
    if output == "json":
        print_json(found)
    elif found:
        typer.echo(f"Run {found[0]['invocation_id']}, stored {found[0]['stored_at']:%Y-%m-%d %H:%M:%S} UTC")
        print_table(
            ("name", "row", "failing_row"),
            ((row["name"], row["row_number"], json.dumps(row["failing_row"], ensure_ascii=False)) for row in found),
        )
    else:
        typer.echo("No failing rows are stored for this selection.", err=True)
