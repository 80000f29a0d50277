"""Audit results stored beside the ledger: later audits compare with them, the compliance report is made of them."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from recon.base.errors import LedgerError
from recon.base.text import first_line
from recon.model import ChainEnd, CheckResult, Code, Finding, KnownTable, PreviousAudit, RunRecord, RunResult, plain
from recon.model.wire.values import checked, loads, mapping, optional, text, whole
from recon.write.ledger import arrow, canonical_json
from recon.write.ledger.store import Filter, LedgerTable, Store

if TYPE_CHECKING:
    import pyarrow as pa

_spelled = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
_GIVEN = ("pass", "warn", "fail")  # statuses of a check that gave a verdict
_LOG_STARTS = timedelta(days=2)  # how far back an earlier log start is looked for
_EXAMINED_AGAIN = ("from", "to", "history_to")  # options of audits of a period, and of `recon retry`

# `kind`, and `check`, of a row that is no check's: its evidence is who ran the audit, and how.
RUN = "run"

# One row per check of an audit; `findings` and `evidence` are JSON.
RESULTS = LedgerTable(
    kind="results",
    time="generated_at",
    columns={
        "invocation_id": str,
        "generated_at": datetime,
        "project": str,
        "pipeline": str,
        "sink": str,
        "unique_id": str,
        "name": str,
        "check": str,
        "kind": str,
        "status": str,
        "severity": str,
        "failures": int,
        "message": str,
        "findings": str,
        "evidence": str,
        "period_from": datetime,
        "period_to": datetime,
        "execution_time": float,
        "recon_version": str,
        "row_hash": str,
    },
)


_SEALED = tuple(name for name in RESULTS.columns if name != "row_hash")


def append_run(store: Store, run: RunResult) -> None:
    """Appends every result of a run, in one commit."""
    store.append_rows(rows_of(run))


def rows_of(run: RunResult) -> list[dict[str, Any]]:
    """The results of a run as rows, each sealed by a hash of its content; one per pipeline says who ran it."""
    begins = {facts.name: facts.period_from for facts in run.pipelines}
    return [
        sealed(
            {
                "invocation_id": run.invocation_id,
                "generated_at": run.generated_at,
                "project": run.project,
                "pipeline": result.pipeline,
                "sink": result.sink,
                "unique_id": result.unique_id,
                "name": result.name,
                "check": result.check,
                "kind": result.kind,
                "status": result.status,
                "severity": result.severity,
                "failures": result.failures,
                "message": result.message,
                "findings": json.dumps([f.as_dict() for f in result.findings]),
                "evidence": json.dumps(plain(result.evidence), default=str),
                "period_from": begins.get(result.pipeline or "", run.period_from),
                "period_to": run.period_to,
                "execution_time": result.execution_time,
                "recon_version": run.recon_version,
            }
        )
        for result in (*run.results, *_records(run))
    ]


def _records(run: RunResult) -> Iterator[CheckResult]:
    """The parameters of a run, as a row of each of its pipelines, so that the hash in their proofs covers them."""
    if run.record is None:
        return
    selected = Counter(result.pipeline for result in run.results)
    for pipeline in filter(None, selected):
        yield CheckResult(
            unique_id=f"{RUN}.{run.project}.{pipeline}",
            name=RUN,
            check=RUN,
            kind=RUN,
            status="pass",
            failures=None,
            message="",
            pipeline=pipeline,
            evidence={
                "by": run.record.by,
                "config": run.record.config,
                "config_hash": run.record.config_hash,
                "checks": run.record.checks.get(pipeline, 0),
                "selected": selected[pipeline],
                "stopped": run.record.stopped,
                "args": run.args,
                "versions": run.versions,
            },
        )


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """How a stored audit was run; `record` is None where it was stored by a version that did not say so.

    `selected` is how many checks ran, by pipeline.
    """

    record: RunRecord | None = None
    selected: Mapping[str, int] = field(default_factory=dict)
    args: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)


def record_of(rows: Iterable[Mapping[str, Any]]) -> Parameters:
    """The parameters of an audit, from all that it stored.

    Raises:
        LedgerError: a row does not hold what an audit writes there.
    """
    found, checks, selected = Parameters(), dict[str, int](), dict[str, int]()
    for row in (row for row in rows if row["kind"] == RUN):
        evidence = evidence_of(row)
        try:
            checks[text(row["pipeline"])] = whole(evidence["checks"], 0)
            selected[row["pipeline"]] = whole(evidence["selected"], 0)
            record = RunRecord(
                by=text(evidence["by"]),
                config=text(evidence["config"]),
                config_hash=optional(text, evidence["config_hash"]),
                checks=checks,
                stopped=evidence["stopped"] is True,
            )
            versions = {name: text(version) for name, version in mapping(evidence["versions"]).items()}
            args = mapping(evidence["args"])
            found = Parameters(record=record, selected=selected, args=args, versions=versions)
        except (ValueError, TypeError, KeyError) as error:
            raise _malformed(row, error) from error
    return found


def sealed(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row with its `row_hash`: SHA-256 over all other columns."""
    return {**row, "row_hash": _hash_of_row(row)}


def _hash_of_row(row: Mapping[str, Any]) -> str:
    values = [row[name] for name in _SEALED]
    content = _spelled([value.isoformat() if isinstance(value, datetime) else value for value in values])
    return hashlib.sha256(content.encode()).hexdigest()


def is_sealed(row: Mapping[str, Any]) -> bool:
    """Whether a stored row is what an audit wrote there."""
    return bool(_hash_of_row(row) == row["row_hash"])


def stored_rows(table: pa.Table) -> list[dict[str, Any]]:
    """Stored results row by row, each with `is_sealed`: whether it is what an audit wrote there.

    The same as `is_sealed` of each row, of which a year has a hundred thousand. Most of their values repeat: each is
    made, and spelled, once.
    """
    columns: dict[str, list[Any]] = {}
    texts: dict[str, list[str]] = {}
    for name in table.column_names:
        found, places = arrow.distinct(table[name])
        columns[name] = [found[place] for place in places]
        if name in _SEALED:
            cells = canonical_json.cells(
                [value.isoformat() if isinstance(value, datetime) else value for value in found]
            )
            texts[name] = [cells[place] for place in places]
    contents = (f"[{','.join(cells)}]" for cells in zip(*(texts[name] for name in _SEALED), strict=True))
    hashes = (hashlib.sha256(content.encode()).hexdigest() for content in contents)
    columns["is_sealed"] = [own == computed for own, computed in zip(columns["row_hash"], hashes, strict=True)]
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def hash_of(rows: Iterable[Mapping[str, Any]]) -> str:
    """One hash of all results that an audit stored for a pipeline; in any order."""
    return hashlib.sha256("".join(sorted(str(row["row_hash"]) for row in rows)).encode()).hexdigest()


def hashes_of_audits(store: Store, since: datetime) -> dict[str, str]:
    """One hash of all results that each audit since an instant stored, by invocation id; "" where one was edited.

    Raises:
        LedgerError: the table cannot be read.
    """
    rows = list(stored_rows(store.read(Filter.of(from_=since))))
    edited = {row["invocation_id"] for row in rows if not row["is_sealed"]}
    return {name: "" if name in edited else of_all for name, of_all in _hashes(rows).items()}


class Remembering(Protocol):
    """A check of the project that compares with its earlier results."""

    @property
    def unique_id(self) -> str:
        """Its name in the results; another check may get it when recon.yml's tests are put in another order."""

    @property
    def fingerprint(self) -> str:
        """A hash of what it measures, which tells its own results from another's."""


class History:
    """What earlier audits measured: `history(check, key)` of a scan. The table is read once, when first needed.

    Only audits before `before` count, newest first, and at most `most` values of a check. A check that could not be
    evaluated has left no value; one that was skipped may have, such as for want of history.
    """

    def __init__(self, open_results: Callable[[], Store], wanted: Collection[str], before: datetime, most: int = 200):
        """`open_results` gives the table of results; `wanted` are the unique_ids of the checks that have a history."""
        self._open, self._wanted, self._before, self._most = open_results, frozenset(wanted), before, most

    def __call__(self, bound: Remembering, key: str) -> Sequence[Any]:
        """The values of a key of the check's evidence, newest first.

        Raises:
            LedgerError: the results cannot be read.
        """
        fingerprint = bound.fingerprint
        values = (e.get(key) for e in self._evidence.get(bound.unique_id, ()) if e.get("asked") == fingerprint)
        return [value for value in values if value is not None]

    @cached_property
    def _evidence(self) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        store = self._open()
        measured: dict[str, list[tuple[datetime, Mapping[str, Any]]]] = {unique_id: [] for unique_id in self._wanted}
        days = [day for day in reversed(store.dates()) if day <= self._before.date()]
        # A month at a time, so that years of audits cost what the last ones cost.
        for first in range(0, len(days), 31):
            which = Filter(equals=(("kind", "data"),), dates=tuple(days[first : first + 31]), to=self._before)
            for row in arrow.rows(store.read(which, ["unique_id", "generated_at", "status", "evidence"])):
                if row["unique_id"] in measured and row["status"] in ("pass", "warn", "fail", "skipped"):
                    measured[row["unique_id"]].append((row["generated_at"], evidence_of(row)))
            if all(len(of_check) >= self._most for of_check in measured.values()):
                break
        return {
            unique_id: [
                evidence for _, evidence in sorted(of_check, key=lambda dated: dated[0], reverse=True)[: self._most]
            ]
            for unique_id, of_check in measured.items()
        }


def findings_of(row: Mapping[str, Any]) -> list[Finding]:
    """The findings of a stored result.

    Raises:
        LedgerError: the row does not hold what an audit writes there.
    """
    if row["findings"] in (None, "[]"):  # most are
        return []
    try:
        items = loads(row["findings"])
        return [_finding(item) for item in items]
    except (ValueError, TypeError, KeyError) as error:
        raise _malformed(row, error) from error


def _finding(item: Mapping[str, Any]) -> Finding:
    changed_by = item.get("changed_by")
    versions = None if changed_by is None else tuple(whole(version) for version in changed_by)
    return checked(Finding(**{**item, "code": Code(item["code"]), "changed_by": versions}))


def evidence_of(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """The evidence of a stored result.

    Raises:
        LedgerError: the row does not hold what an audit writes there.
    """
    if row["evidence"] in (None, "", "{}"):  # of most there is none
        return {}
    try:
        return mapping(loads(row["evidence"], nan=True))
    except (ValueError, TypeError, KeyError) as error:
        raise _malformed(row, error) from error


def _malformed(row: Mapping[str, Any], error: Exception) -> LedgerError:
    """The error of a stored result that does not hold what an audit writes."""
    at, name = row.get("generated_at"), row.get("unique_id") or row.get("check")
    return LedgerError(
        f"the stored result of {name} at {at} does not hold what an audit writes there ({first_line(error, 120)}); "
        "restore the ledger's table of results from a backup, or remove the row"
    )


def previous_audit(store: Store, pipeline: str, not_before: datetime) -> PreviousAudit | None:
    """What a pipeline's audits since an instant recorded; None when there was none.

    Each value is taken from the audit of the newest period that has it. So an audit of a past week, or of one check,
    removes nothing.
    """
    stored = [typed_row(row) for row in arrow.rows(store.read(Filter.of(pipeline, from_=not_before)))]
    rows = sorted(stored, key=lambda row: (row["period_to"], row["generated_at"]))
    if not rows:
        return None
    newest = max(row["generated_at"] for row in rows)
    ends_of_chains: dict[str, ChainEnd] = {}
    periods: dict[str, datetime] = {}
    ends: dict[tuple[str, int], int] = {}
    ended: dict[tuple[str, int], datetime] = {}
    starts: dict[tuple[str, int], tuple[datetime, int]] = {}
    version: int | None = None
    states: dict[str, int] = {}
    erasures: dict[str, tuple[int, str]] = {}
    for row in rows:
        position, head = row["evidence"].get("chain_position"), row["evidence"].get("chain_head")
        if head and position is not None:
            periods[row["sink"]] = row["period_to"]
            end = ChainEnd(position, head, row["generated_at"])
            ends_of_chains[row["sink"]] = max(
                end, ends_of_chains.get(row["sink"], end), key=lambda chain_end: chain_end.sequence
            )
        for topic, partition, end in row["evidence"].get("log_ends", ()):
            ends[(topic, partition)] = end
            ended[(topic, partition)] = row[
                "period_to"
            ]  # which is not after the audit began, and so not after that read
        if row["generated_at"] >= newest - _LOG_STARTS:
            for topic, partition, start in row["evidence"].get("log_starts", ()):
                earlier = starts.get((topic, partition))
                if earlier is None or row["generated_at"] < earlier[0]:
                    starts[(topic, partition)] = (row["generated_at"], start)
        if row["evidence"].get("proof_states"):
            states[row["sink"]] = max(states.get(row["sink"], 0), row["evidence"]["proof_states"])
        if row["evidence"].get("erasures"):
            seen = row["evidence"]["erasures"]
            erasures[row["sink"]] = max(seen, erasures.get(row["sink"], seen), key=lambda erasure: erasure[0])
        version = max(version or 0, row["evidence"].get("ledger_version") or 0) or None
    return PreviousAudit(
        generated_at=min(periods.values(), default=rows[-1]["period_to"]),
        chain_ends=ends_of_chains,
        log_ends=ends,
        log_ended=ended,
        log_starts=starts,
        ledger_version=version,
        proof_states=states,
        erasures=erasures,
        tables=_tables(rows),
        found=_found(rows),
        hashes=_hashes(rows),
    )


def _hashes(rows: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """One hash of all results of each audit, by invocation id; a row that a merge of files left twice is one."""
    by_audit: dict[str, dict[str, Mapping[str, Any]]] = {}
    for row in rows:
        by_audit.setdefault(row["invocation_id"], {})[row["row_hash"]] = row
    return {name: hash_of(of_audit.values()) for name, of_audit in by_audit.items()}


def _found(rows: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """The results with findings, without those of audits that examined a period again."""
    again = {
        row["invocation_id"]
        for row in rows
        if row["kind"] == RUN and any((row["evidence"].get("args") or {}).get(name) for name in _EXAMINED_AGAIN)
    }
    found = [r for r in rows if r["kind"] == "evidence" and r["findings"] not in (None, "[]")]
    return sorted((r for r in found if r["invocation_id"] not in again), key=lambda row: row["generated_at"])


def typed_row(row: Mapping[str, Any], *, sealed: bool = False) -> dict[str, Any]:
    """A stored result with its evidence; what a later audit goes on from is checked for its type.

    `sealed` is whether the caller has compared the row with its hash already.

    Raises:
        LedgerError: the row does not hold what an audit writes there.
    """
    if not sealed and not is_sealed(row):
        raise _malformed(row, ValueError("it does not match its own row_hash: it was edited"))
    evidence = evidence_of(row)
    try:
        for name in ("invocation_id", "check", "kind", "status"):
            text(row[name])
        for name in ("generated_at", "period_to"):
            if row[name] is None:
                raise ValueError(f"{name} is missing")
        typed = {name: _TYPES[name](value) for name, value in evidence.items() if name in _TYPES and value is not None}
    except (ValueError, TypeError) as error:
        raise _malformed(row, error) from error
    return {**row, "evidence": {**evidence, **typed}}


def _sequences(stored: Any) -> list[int]:
    return [whole(sequence) for sequence in stored or ()]


def _log_offsets(stored: Any) -> list[tuple[str, int, int]]:
    return [(text(topic), whole(partition, 0), whole(at, 0)) for topic, partition, at in stored]


def _erasures(stored: Any) -> tuple[int, str] | None:
    """How many erasures an audit read, and the hash of the newest; None for none."""
    if not stored:
        return None
    count, newest = stored
    return whole(count, 1), text(newest)


# What a later audit goes on from, where the evidence has it.
_TYPES: Mapping[str, Callable[[Any], Any]] = {
    "chain_head": text,
    "chain_position": whole,
    "ledger_version": whole,
    "proof_states": whole,
    "erasures": _erasures,
    "judged": _sequences,
    "table_id": text,
    "table_version": whole,
    "table_rows": whole,
    "log_ends": _log_offsets,
    "log_starts": _log_offsets,
}


def _tables(rows: Sequence[Mapping[str, Any]]) -> dict[str, KnownTable]:
    """The Delta table of each sink, as the newest audit read it, whatever its period was.

    Rows count as accounted for only where that audit also judged the rows of the sink.
    """
    judged = {(row["invocation_id"], row["sink"]) for row in rows if row["check"] == "source_rows" and _evaluated(row)}
    tables: dict[str, KnownTable] = {}
    for row in sorted(rows, key=lambda row: row["generated_at"]):
        evidence, sink = row["evidence"], row["sink"]
        table_id, version = evidence.get("table_id"), evidence.get("table_version")
        if not table_id or version is None:
            continue
        before = tables.get(sink)
        counted = before.counted if before is not None and before.table_id == table_id else None
        count = evidence.get("table_rows")
        if count is not None and _evaluated(row) and (row["invocation_id"], sink) in judged:
            counted = (version, count)
        tables[sink] = KnownTable(table_id=table_id, version=version, read_at=row["generated_at"], counted=counted)
    return tables


def _evaluated(row: Mapping[str, Any]) -> bool:
    return row["status"] in _GIVEN and not row["evidence"].get("unread")
