"""Stores an audit's results, and the failing rows of checks with `store_failures`, beside the ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from recon.audits.proof import advance
from recon.audits.session import AuditSession
from recon.base.errors import ReconError
from recon.base.text import first_line
from recon.checks.bound import Bound
from recon.model import CheckResult, RunResult, Unavailable, Witnesses, known
from recon.project import Project
from recon.write.ledger.failures import FAILURES, append_failures
from recon.write.ledger.proofs import ProofTable
from recon.write.ledger.results import append_run, hash_of, rows_of
from recon.write.ledger.store import open_store

Row = Mapping[str, Any]


def store(
    project: Project,
    run: RunResult,
    bounds: Sequence[Bound],
    failing_rows: Mapping[str, Sequence[Row]],
    session: AuditSession,
) -> tuple[RunResult, bool]:
    """Appends failing rows and results to the ledger's tables.

    `bounds` are the checks that were selected, `failing_rows` are by the unique_id of the check that failed.

    Returns:
        the run with a note of what could not be stored, and whether the results were.
    """
    storing = {bound.unique_id for bound in bounds if bound.config.store_failures}
    failed = [r.unique_id for r in run.results if r.failures and r.unique_id in storing]
    try:
        run = _with_failing_rows(project, run, {name: failing_rows.get(name, ()) for name in failed}, session)
    except Exception as error:  # nothing that is stored beside it keeps a report from being written
        run = replace(run, notes=(*run.notes, f"the failing rows could not be stored: {_reason(error)}"))
    try:
        ledger = session.ledger()
        measured = [result for result in run.results if _measured(result)]
        if ledger.exists():
            append_run(ledger.results, run)
        elif measured:  # a later audit's history; an audit that measured nothing creates no table
            append_run(ledger.results, replace(run, results=tuple(measured)))
    except Exception as error:
        note = f"the results could not be kept beside the ledger: {_reason(error)}"
        return replace(run, notes=(*run.notes, note)), False
    return run, True


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, ReconError) else f"{type(error).__name__}: {first_line(error)}"


def store_proofs(
    run: RunResult, witnesses: Mapping[str, Witnesses], session: AuditSession, *, results_kept: bool
) -> RunResult:
    """Advances the proof of every sink that this audit judged whole; the run with a note of what could not be stored.

    `witnesses` are by pipeline. `results_kept` is whether the results were stored: a state names no others.
    """
    if all(isinstance(seen.ledgers, Unavailable) for seen in witnesses.values()):
        return run
    table, notes = session.ledger().proofs, []
    rows = rows_of(run) if results_kept else []
    for pipeline, seen in witnesses.items():
        results = [result for result in run.results if result.pipeline == pipeline]
        of_pipeline = hash_of(row for row in rows if row["pipeline"] == pipeline) if results_kept else ""
        for sink in known(seen.ledgers) or {}:
            try:
                why_not = append_proof(table, sink, seen, results, run, of_pipeline)
            except Exception as error:  # what was proved is lost, not the report
                why_not = _reason(error)
            if why_not:
                notes.append(f"pipeline {pipeline}, sink {sink}: what this audit proved could not be kept: {why_not}")
    return replace(run, notes=(*run.notes, *notes)) if notes else run


def append_proof(
    table: ProofTable,
    sink: str,
    witnesses: Witnesses,
    results: Sequence[CheckResult],
    run: RunResult,
    results_hash: str,
) -> str:
    """Stores the state of one sink's proof after an audit; returns why it was not stored, "" otherwise.

    `results` are the pipeline's, `results_hash` is of them as the audit stored them; "" where it could not.

    Raises:
        LedgerError: the table cannot be written.
    """
    unread = witnesses.proofs.unreadable.get(sink)
    if unread is not None:  # a state in its place would forget what is open in it
        return f"the state that it goes on from could not be read: {unread}"
    before = witnesses.proofs.of_sink.get(sink)
    state = advance(before, sink, witnesses, results, run.invocation_id)
    if state is None:
        return ""
    state = replace(state, results_hash=results_hash)
    after = before.sequence if before is not None else witnesses.proofs.lengths.get(sink, 0)
    prev_hash = before.entry_hash if before is not None else ""
    kept = table.append(state, after=after, prev_hash=prev_hash, cause="audit", at=run.generated_at)
    return "" if kept else "another audit, or recon accept, stored a newer state meanwhile"


def _measured(result: CheckResult) -> bool:
    """Whether a data check left values that a later audit may compare with."""
    return result.kind == "data" and (
        result.status in ("pass", "warn", "fail") or (result.status == "skipped" and bool(result.evidence))
    )


def _with_failing_rows(
    project: Project, run: RunResult, rows: Mapping[str, Sequence[Row]], session: AuditSession
) -> RunResult:
    """The run with `stored_failures` in the evidence of each check whose failing rows were stored, which says where."""
    if not rows:
        return run
    table = open_store(project, FAILURES, session.running)
    append_failures(table, run, rows)
    results = list(run.results)
    for at, result in enumerate(results):
        if result.unique_id in rows:
            place = {"table": table.location, "invocation_id": run.invocation_id, "rows": len(rows[result.unique_id])}
            results[at] = replace(result, evidence={**result.evidence, "stored_failures": place})
    return replace(run, results=tuple(results))
