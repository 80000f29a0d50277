"""Stores an audit's results, and the failing rows of checks with `store_failures`, beside the ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from recon.checks.bound import Bound
from recon.errors import ReconError
from recon.ledger import open_ledger
from recon.ledger.failures import FAILURES, append_failures
from recon.ledger.results import append_run
from recon.ledger.store import open_store
from recon.model import CheckResult, RunResult
from recon.project import Project
from recon.text import first_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Row = Mapping[str, Any]


def store(
    project: Project,
    run: RunResult,
    bounds: Sequence[Bound],
    failing_rows: Mapping[str, Sequence[Row]],
    spark: SparkSession | None,
) -> RunResult:
    """Appends failing rows and results to the ledger's tables; the run with a note of what could not be stored.

    `bounds` are the checks that were selected, `failing_rows` are by the unique_id of the check that failed.
    """
    storing = {bound.unique_id for bound in bounds if bound.config.store_failures}
    failed = [r.unique_id for r in run.results if r.failures and r.unique_id in storing]
    try:
        run = _with_failing_rows(project, run, {name: failing_rows.get(name, ()) for name in failed}, spark)
    except Exception as error:  # nothing that is stored beside it keeps a report from being written
        run = replace(run, notes=(*run.notes, f"the failing rows could not be stored: {_reason(error)}"))
    try:
        ledger = open_ledger(project, spark)
        measured = [result for result in run.results if _measured(result)]
        if ledger.exists():
            append_run(ledger.results, run)
            ledger.tidy()
        elif measured:  # a later audit's history; an audit that measured nothing creates no table
            append_run(ledger.results, replace(run, results=tuple(measured)))
    except Exception as error:
        return replace(run, notes=(*run.notes, f"the results could not be kept beside the ledger: {_reason(error)}"))
    return run


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, ReconError) else f"{type(error).__name__}: {first_line(error)}"


def _measured(result: CheckResult) -> bool:
    """Whether a data check left values that a later audit may compare with."""
    return result.kind == "data" and (
        result.status in ("pass", "warn", "fail") or (result.status == "skipped" and bool(result.evidence))
    )


def _with_failing_rows(
    project: Project, run: RunResult, rows: Mapping[str, Sequence[Row]], spark: SparkSession | None
) -> RunResult:
    """The run with `stored_failures` in the evidence of each check whose failing rows were stored, which says where."""
    if not rows:
        return run
    table = open_store(project, FAILURES, spark)
    append_failures(table, run, rows)
    results = list(run.results)
    for at, result in enumerate(results):
        if result.unique_id in rows:
            place = {"table": table.location, "invocation_id": run.invocation_id, "rows": len(rows[result.unique_id])}
            results[at] = replace(result, evidence={**result.evidence, "stored_failures": place})
    return replace(run, results=tuple(results))
