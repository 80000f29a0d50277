"""A project with a month of ledger entries and stored audits, for the sample of a compliance report.

Its report is what `recon.audits.compliance` finds in them, as it does for everybody. `orders` has a release from
quarantine, `payments` a gap that was repaired, rows that somebody changed and a loss that stays open, `clicks` a ledger
that began after its stream and two days on which Kafka did not answer. On two days nobody audited anything, and one
audit was a partial one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from deltalake import CommitProperties, Transaction, write_deltalake

from recon.audits.compliance import compliance
from recon.base.storage import write_private
from recon.model import CheckResult, Code, Finding, LedgerEntry, RunRecord, RunResult
from recon.model.compliance import ComplianceReport
from recon.model.ledger import RELEASES, REPAIRS
from recon.model.offsets import OffsetSpan
from recon.model.proof import Acceptance, OpenFinding, SinkProof
from recon.model.wire.app_ids import chain_id
from recon.project import Project, load
from recon.write.ledger import Ledger, columns, open_ledger
from recon.write.ledger.chain import link
from recon.write.ledger.results import append_run, hash_of, rows_of
from tests.support.heads import SEED, publish_heads

BEGIN, END = datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 4, 1, tzinfo=UTC)
DAY, STEP = timedelta(days=1), timedelta(hours=6)
DAYS, A_DAY = 31, 4
NO_AUDIT, NO_KAFKA, PARTIAL = (21, 22), (9, 10), 14
RELEASED, BEGUN_LATE = 11, 4  # days
PARTITIONS = {"orders": (0, 1, 2, 3), "payments": (0, 1, 2), "clicks": (0, 1)}
WIDTHS = {"orders": 61_403, "payments": 48_120, "clicks": 250_900}
EVIDENCE = ("ledger_integrity", "offset_continuity", "checkpoint_commits", "delta_history", "source_rows")
TESTS = ("not_null", "unique", "accepted_values")
CONFIG = """\
version: 2
name: lake
ledger: _recon
heads:
  origin: example.org/lake
  key_file: heads.key
  publish: [{folder: published}]
pipelines:
  - name: orders
    owner: Ada Lovelace
    checkpoint: checkpoints/orders
    sinks: [{name: orders, kind: delta, target: s3://lake/orders}]
  - name: payments
    owner: Grace Hopper
    checkpoint: checkpoints/payments
    sinks: [{name: payments, kind: delta, target: s3://lake/payments}]
  - name: clicks
    checkpoint: checkpoints/clicks
    sinks: [{name: clicks, kind: delta, target: s3://lake/clicks}]
"""


def month(folder: Path) -> ComplianceReport:
    """The report of the month, whose project is made in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "recon.yml").write_text(CONFIG, encoding="utf-8")
    write_private(folder / "heads.key", SEED.encode())
    project = load(folder)
    _write(open_ledger(project))
    _Audits(project).run()
    publish_heads(project, END)
    return compliance(project, BEGIN, END)


# What the streams wrote


def _write(ledger: Ledger) -> None:
    """Writes all entries at once: an append of each would take seconds."""
    chains = {name: list(_linked(_entries(name))) for name in PARTITIONS}
    (first, *rest) = (entry for chain in chains.values() for entry in chain)
    ledger.store.append(columns.to_table([first]))
    lengths = [Transaction(chain_id(name, name), len(chain), None) for name, chain in chains.items()]
    write_deltalake(
        ledger.location,
        columns.to_table(rest),
        mode="append",
        commit_properties=CommitProperties(app_transactions=lengths),
    )


def _linked(entries: Iterable[LedgerEntry]) -> Iterator[LedgerEntry]:
    head = ""
    for number, entry in enumerate(entries, 1):
        linked_entry = link(replace(entry, sequence=number), head)
        head = linked_entry.entry_hash
        yield linked_entry


def _entries(name: str) -> Iterator[LedgerEntry]:
    for batch_id in range((BEGUN_LATE if name == "clicks" else 0) * A_DAY, DAYS * A_DAY):
        at = BEGIN + batch_id * STEP + timedelta(minutes=7)
        if name == "orders" and batch_id == RELEASED * A_DAY:
            yield _entry(name, 0, at, (), epoch=RELEASES, status="released", rows=38)
        if name == "payments" and batch_id == 7 * A_DAY:
            yield _entry(name, 0, at, (_GAP,), epoch=REPAIRS, status="repaired", rows=622)
        yield _entry(name, batch_id, at, tuple(_spans(name, batch_id)))


def _spans(name: str, batch_id: int) -> Iterator[OffsetSpan]:
    width = WIDTHS[name]
    for partition in PARTITIONS[name]:
        start, end = batch_id * width, (batch_id + 1) * width
        if name == "payments" and (partition, batch_id) == (_GAP.partition, _GAP_BATCH):
            start = _GAP.end_offset
        yield OffsetSpan(name, f"id-{name}", partition, start, end)


_GAP_BATCH = 5 * A_DAY + 1
_GAP = OffsetSpan("payments", "id-payments", 1, _GAP_BATCH * WIDTHS["payments"], _GAP_BATCH * WIDTHS["payments"] + 622)


def _entry(
    name: str,
    batch_id: int,
    at: datetime,
    offsets: tuple[OffsetSpan, ...],
    *,
    epoch: int = 0,
    status: Any = "committed",
    rows: int | None = None,
) -> LedgerEntry:
    read = sum(span.end_offset - span.start_offset for span in offsets)
    filtered, quarantined = (37, 2) if name == "orders" and rows is None else (0, 0)
    return LedgerEntry(
        pipeline=name, sink=name, sequence=0, sink_kind="delta", target=f"s3://lake/{name}",
        guarantee="exactly-once", query_id=f"6f1f7a0e-8b0b-4d2d-9b4e-{name.encode().hex()[:12]}", run_id=None,
        epoch=epoch, batch_id=batch_id, attempt=1, status=status, rows_read=read,
        rows_written=read - filtered - quarantined if rows is None else rows, rows_quarantined=quarantined,
        rows_filtered=filtered, sink_version=batch_id, started_at=at - timedelta(seconds=9), committed_at=at,
        spark_version="4.0.0", recon_version="0.1.0", checks_fingerprint=None, prev_hash="", entry_hash="",
        offsets=offsets,
    )  # fmt: skip


# What the audits found


def _finding(code: Code, message: str, name: str, span: OffsetSpan | None = None, **more: Any) -> Finding:
    at = {} if span is None else {
        "topic": span.topic, "topic_id": span.topic_id, "partition": span.partition,
        "start_offset": span.start_offset, "end_offset": span.end_offset,
    }  # fmt: skip
    return Finding(code=code, message=message, pipeline=name, sink=name, **at, **more)


_LOST = OffsetSpan("payments", "id-payments", 2, 17 * A_DAY * WIDTHS["payments"], 17 * A_DAY * WIDTHS["payments"] + 342)
GAP = _finding(Code.GAP, "no micro-batch read 622 offsets of payments-1; Kafka still has them", "payments", _GAP)
REPAIR = _finding(Code.REPAIRED, "a repair read 622 offsets of payments-1 again", "payments", _GAP)
LOSS = _finding(
    Code.LOSS_RETENTION, "Kafka deleted 342 records of payments-2 before a micro-batch read them", "payments", _LOST
)
CHANGED = _finding(
    Code.MUTATED,
    'version 98 of the table is DELETE where ["(amount < 0)"], which removed 1,204 rows, by ada@example.org',
    "payments",
    batch_id=24 * A_DAY,
    epoch=0,
)
LATE = _finding(
    Code.LAG, "the oldest unread record of clicks-0 is 22 minutes old, and recon.yml warns after 5 minutes", "clicks"
)
UNANSWERED = _finding(Code.INCONCLUSIVE, "no broker answered at kafka-2.internal:9092 within 10 s", "clicks")
UNSEEN = _finding(
    Code.UNWITNESSED,
    f"the ledger of clicks begins with micro-batch {BEGUN_LATE * A_DAY}: no proof speaks of those before it",
    "clicks",
)


def _findings(day: int) -> Iterator[tuple[str, Finding]]:
    """The checks that find something on a day, and what."""
    if day in (5, 6):
        yield "offset_continuity", GAP
    if day == 7:
        yield "offset_continuity", REPAIR
    if day in NO_KAFKA:
        yield "kafka_end_offsets", UNANSWERED
    if day == 12:
        yield "kafka_end_offsets", LATE
    if day >= 17:
        yield "kafka_end_offsets", LOSS
    if day in (24, 25):
        yield "delta_history", CHANGED
    if day >= BEGUN_LATE:
        yield "offset_continuity", UNSEEN


class _Audits:
    """An audit each morning of the day before, as it is stored."""

    def __init__(self, project: Project) -> None:
        self._ledger = open_ledger(project)
        self._known: list[OpenFinding] = []

    def run(self) -> None:
        for day in range(DAYS):
            if day == PARTIAL:
                self._audit(day, at=timedelta(hours=15), by="ada on laptop-7", checks=EVIDENCE[:2])
            if day not in NO_AUDIT:
                self._audit(day)

    def _audit(
        self,
        day: int,
        *,
        at: timedelta = DAY + timedelta(hours=1),
        by: str = "airflow on lake-1",
        checks: Sequence[str] = (*EVIDENCE, "kafka_end_offsets", *TESTS),
    ) -> None:
        now = BEGIN + day * DAY + at
        partial = len(checks) < len(EVIDENCE)
        names = [name for name in PARTITIONS if name != "clicks" or day >= BEGUN_LATE]
        found = [pair for pair in _findings(day) if pair[0] in checks]
        run = RunResult(
            invocation_id=f"00000000-0000-4000-8000-{day:08}{int(partial):04}",
            project="lake",
            recon_version="0.1.0",
            generated_at=now,
            period_from=BEGIN + day * DAY,
            period_to=now,
            elapsed_time=14.2,
            results=tuple(_result(check, name, day, found) for name in names for check in checks),
            args={"select": list(checks) if partial else [], "exclude": []},
            record=RunRecord(
                by=by,
                config="recon.yml",
                config_hash=hashlib.sha256(f"version {day >= RELEASED}".encode()).hexdigest(),
                checks=dict.fromkeys(names, len(EVIDENCE) + 1 + len(TESTS)),
            ),
        )
        append_run(self._ledger.results, run)
        self._know(found, day, now)
        if not partial:
            for name in names:
                self._prove(run, name, (day + 1) * A_DAY)

    def _know(self, found: Iterable[tuple[str, Finding]], day: int, now: datetime) -> None:
        """What is open after an audit, or accepted."""
        for check, finding in found:
            before = next((open_finding for open_finding in self._known if open_finding.includes(finding)), None)
            if finding.code in (Code.GAP, Code.LOSS_RETENTION, Code.MUTATED) and before is None:
                self._known.append(OpenFinding(finding=finding, check=check, first_seen=now, last_seen=now))
        if day == 7:
            self._known = [open_finding for open_finding in self._known if open_finding.finding != GAP]
        if day == 25:
            accepted = Acceptance(by="Grace Hopper", reason="test payments, removed on request (TICKET-4711)", at=now)
            self._known = [
                replace(open_finding, accepted=accepted) if open_finding.finding == CHANGED else open_finding
                for open_finding in self._known
            ]

    def _prove(self, run: RunResult, name: str, position: int) -> None:
        proofs = self._ledger.proofs
        before, length = proofs.newest(name, name), proofs.length(name, name)
        state = SinkProof(
            pipeline=name,
            sink=name,
            at=run.generated_at,
            invocation_id=run.invocation_id,
            position=position,
            chain_head="h",
            first_epoch=0,
            first_batch_id=0,
            results_hash=hash_of([row for row in rows_of(run) if row["pipeline"] == name]),
            open=tuple(open_finding for open_finding in self._known if open_finding.finding.pipeline == name),
        )
        prev = before.entry_hash if before is not None else ""
        assert proofs.append(state, after=length, prev_hash=prev, cause="audit", at=run.generated_at)


def _result(check: str, name: str, day: int, found: Iterable[tuple[str, Finding]]) -> CheckResult:
    findings = tuple(finding for by, finding in found if (by, finding.pipeline) == (check, name))
    failures, message, status = len(findings), "", "pass"
    if any(finding.code is Code.INCONCLUSIVE for finding in findings):
        status, message = "error", findings[0].message
    elif any(finding.code.level == "fail" for finding in findings):
        status = "fail"
    elif any(finding.code.level == "warn" for finding in findings):
        status = "warn"
    if (check, name, day) == ("not_null", "payments", 19):
        failures, message, status = 17, "17 rows have no amount", "fail"
    evidence: dict[str, Any] = {}
    if check == "ledger_integrity":
        # Releases and repairs have entries of their own.
        begun = (BEGUN_LATE if name == "clicks" else 0) * A_DAY
        more = int(day >= {"orders": RELEASED, "payments": 7}.get(name, DAYS))
        evidence = {"judged": [1, (day + 1) * A_DAY - begun + more]}
    elif check == "kafka_end_offsets":
        evidence = {"limits": {"warn_after": "5 minutes", "error_after": None}}
    return CheckResult(
        unique_id=f"test.lake.{check}_{name}", name=f"{check}_{name}", check=check,
        kind="data" if check in TESTS else "evidence", status=status, failures=failures, message=message,
        pipeline=name, sink=name, findings=findings, evidence=evidence,
    )  # fmt: skip
