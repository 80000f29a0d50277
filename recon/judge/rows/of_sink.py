"""The counts of a sink's micro-batches and its rows, where they are known: source_rows and the account begin here."""

from __future__ import annotations

from recon.judge.findings import Findings
from recon.judge.history.table_history import history_of
from recon.judge.open_findings import recheck
from recon.judge.row_counts import Counts, counted_entries
from recon.judge.rows import of_table, rewriting, rows_from_commit_files
from recon.judge.rows.filtered import Filtered
from recon.judge.rows.reasons import perhaps_repeated, reasons
from recon.judge.rows.sink_rows import SinkRows, rewrites
from recon.judge.stateful_operators import operators_of
from recon.model import LedgerSlice, RowsWitness, Unavailable, Witnesses
from recon.model.once import once

CHECK = "source_rows"


def counts_of(ledger: LedgerSlice, witnesses: Witnesses) -> Counts:
    """The counts of the entries; made once for all who see the same witnesses."""
    seen = witnesses
    return once(
        ledger,
        counts_of,
        lambda: _counted(ledger, witnesses),
        seen.delta,
        seen.sink_logs,
        seen.progress,
        seen.checkpoint,
        seen.declared,
        seen.rewriting,
        seen.routed,
        seen.proofs,
        seen.source_log,
    )


def _counted(ledger: LedgerSlice, witnesses: Witnesses) -> Counts:
    before = witnesses.memory(Filtered) is not None
    records = of_table.records_of(ledger, witnesses)
    if rewrites(witnesses):
        given = rewriting.given_to(witnesses)
        return counted_entries(
            ledger, operators_of(witnesses), given, reduces=True, filtered_before=before, records=records
        )
    # In a route's entry, the rows of other routes count as filtered.
    declared = witnesses.declared
    filters, history = None if witnesses.sink in witnesses.routed else declared.filters, history_of(witnesses, ledger)
    appends = history.appends if history is not None else {}
    return counted_entries(
        ledger,
        operators_of(witnesses),
        # An entry may have counted rows that a retried stage wrote twice.
        in_files={key: c.rows_added for key, c in appends.items() if c.rows_added is not None},
        filters=filters,
        explodes=declared.explodes,
        filtered_before=before,
        records=records,
    )


def misses_rows(counts: Counts, witnesses: Witnesses) -> bool:
    """Whether rows of the sink are needed to tell which offsets it has."""
    if not reasons(counts, witnesses) and not recheck(witnesses, CHECK):
        return False
    return rows_from_commit_files.of_commits(counts, witnesses, CHECK) is None


def looks_for_repeated_alone(counts: Counts, witnesses: Witnesses) -> bool:
    """Whether rows were read only because a retry may have doubled some: counts prove that none were lost.

    What readers of the sink removed since is then no business of this check, as where rows are not read at all.
    """
    return bool(perhaps_repeated(counts, witnesses)) and not misses_rows(counts, witnesses)


def rows_of(counts: Counts, witnesses: Witnesses, findings: Findings) -> SinkRows | None:
    """The sink's rows, or those of the micro-batches in question; None where they carry no source offsets, or were not
    read.
    """
    rows: RowsWitness | Unavailable | None = witnesses.rows
    if not isinstance(rows, RowsWitness):
        rows = rows_from_commit_files.of_commits(counts, witnesses, CHECK)
    if rows is None or not rows.has_source_columns:
        return None
    return SinkRows(witnesses, counts.covered.slice, counts, rows, findings)
