"""recon failures: shows the failing rows that audits stored."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from recon.base.errors import LedgerError
from recon.cli.shared import OutputOption, SelectOption, Session, chosen_checks, print_json, print_table


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
    from recon.write.ledger.failures import FAILURES, stored_failures
    from recon.write.ledger.store import open_store

    store = open_store(session.project(), FAILURES)
    if not store.exists():
        raise LedgerError(
            f"there are no stored failures at {store.location}; checks with store_failures: true store them there"
        )
    chosen = {check.unique_id for check in chosen_checks(session, select)}
    rows = [
        row
        for row in stored_failures(store, invocation_id)
        if row["row_number"] <= limit and (row["unique_id"] in chosen or not select)
    ]
    if output == "json":
        print_json(rows)
    elif rows:
        typer.echo(f"Run {rows[0]['invocation_id']}, stored {rows[0]['stored_at']:%Y-%m-%d %H:%M:%S} UTC")
        print_table(
            ("name", "row", "failing_row"),
            ((row["name"], row["row_number"], json.dumps(row["failing_row"], ensure_ascii=False)) for row in rows),
        )
    else:
        typer.echo("No failing rows are stored for this selection.", err=True)
