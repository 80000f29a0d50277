"""Findings as a table: a row for each finding, and one for each check that failed without any."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from recon.model import CheckResult, Finding, RunResult

if TYPE_CHECKING:
    import pyarrow as pa

# Names and types; `at` is the end of the audited period, UTC.
COLUMNS: Mapping[str, type] = {
    "invocation_id": str,
    "project": str,
    "at": datetime,
    "check": str,
    "name": str,
    "status": str,
    "severity": str,
    "failures": int,
    "pipeline": str,
    "sink": str,
    "column": str,
    "code": str,
    "level": str,
    "topic": str,
    "topic_id": str,
    "partition": int,
    "start_offset": int,
    "end_offset": int,
    "epoch": int,
    "batch_id": int,
    "message": str,
}
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
_TELLS_MORE = ("fail", "error", "warn")


def rows(run: RunResult) -> Iterator[dict[str, Any]]:
    """A row per finding, in the run's order; `code` and `level` are None where a check found rows and not offsets."""
    for result in run.results:
        if result.findings:
            yield from (_row(run, result, finding) for finding in result.findings)
        elif result.status in _TELLS_MORE:
            yield _row(run, result, None)


def _row(run: RunResult, result: CheckResult, finding: Finding | None) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(COLUMNS)
    row |= {"invocation_id": run.invocation_id, "project": run.project, "at": run.period_to}
    row |= {name: getattr(result, name) for name in ("check", "name", "status", "severity", "failures", "column")}
    row |= {"pipeline": result.pipeline, "sink": result.sink, "message": result.message}
    if finding is not None:
        told = finding.as_dict()
        row |= {name: told[name] for name in COLUMNS.keys() & told.keys() if told[name] is not None}
        row["level"] = finding.level.name.lower()
    return row


def as_csv(run: RunResult) -> str:
    """CSV (RFC 4180) with a header. A text that a spreadsheet would take for a formula begins with an apostrophe."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(COLUMNS)
    for row in rows(run):
        writer.writerow(cell(value) for value in row.values())
    return text.getvalue()


def cell(value: Any) -> Any:
    """A value for CSV: times in UTC; a text that a spreadsheet would take for a formula begins with an apostrophe."""
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def as_arrow(run: RunResult) -> pa.Table:
    """The same as an Arrow table: offsets and counts int64, `at` a timestamp in UTC."""
    import pyarrow as pa

    types = {str: pa.string(), int: pa.int64(), datetime: pa.timestamp("us", "UTC")}
    schema = pa.schema([(name, types[kind]) for name, kind in COLUMNS.items()])
    return pa.Table.from_pylist(list(rows(run)), schema)
