"""A ledger and stored audits of it, day by day, without a stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from recon.model import CheckResult, Finding, RunRecord, RunResult
from recon.model.compliance import ComplianceReport
from recon.model.proof import OpenFinding, SinkProof
from recon.project import DeltaSink, LedgerConfig, Pipeline, Project
from recon.write.ledger import Ledger, open_ledger
from recon.write.ledger.results import append_run, hash_of, rows_of
from tests.support.ledger_entries import entry

BEGIN = datetime(2026, 10, 1, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
PROVING = ("ledger_integrity", "offset_continuity", "checkpoint_commits", "delta_history", "source_rows")
LIMITS = {"limits": {"warn_after": "5 minutes", "error_after": None}}


@dataclass
class AuditedLake:
    """Pipelines with one sink each, which has the pipeline's name, and one micro-batch at noon of each day."""

    folder: Path
    names: Sequence[str] = ("orders",)
    pipeline: Mapping[str, Any] | None = None
    more: Mapping[str, Any] | None = None

    @property
    def project(self) -> Project:
        return Project(
            name="lake",
            ledger=LedgerConfig(location="_recon"),
            pipelines=tuple(
                Pipeline(
                    name=name,
                    checkpoint="cp",
                    sinks=(DeltaSink(name="orders", target=name),),
                    **(self.pipeline or {}),
                )
                for name in self.names
            ),
            project_dir=self.folder,
            **(self.more or {}),
        )

    @property
    def ledger(self) -> Ledger:
        return open_ledger(self.project)

    def write(self, days: int) -> None:
        ledger = self.ledger
        for name in self.names:
            for n in range(days):
                ledger.append(entry(n, at=BEGIN + n * DAY + 12 * HOUR, pipeline=name))

    def _hash(self, pipeline: str, position: int) -> str:
        """The entry_hash of an entry of the ledger."""
        heads = self.ledger.slice(pipeline, "orders").heads
        return next((head.entry_hash for head in heads if head.sequence == position), "there is none")

    def audit(
        self,
        day: int,
        *findings: Finding,
        pipeline: str = "orders",
        checks: Sequence[str] = (*PROVING, "kafka_end_offsets"),
        status: Mapping[str, str] | None = None,
        data: Sequence[tuple[str, str] | tuple[str, str, str]] = (),
        judged: tuple[int, int] | None = None,
        begin: datetime | None = None,
        end: datetime | None = None,
        record: RunRecord | None = None,
        evidence: Mapping[str, Any] = LIMITS,
        open_: Sequence[OpenFinding] = (),
        args: Mapping[str, Any] | None = None,
        of: str = "source_rows",
        sink: str | None = "orders",
        proves: bool = True,
        at: datetime | None = None,
    ) -> RunResult:
        """Stores the audit of a day, which runs `at`, by default an hour after it; its findings are those of `of`.

        `data` are tests of rows: the check, its status, and its message. `proves` is whether it leaves a state.
        """
        at = at or BEGIN + (day + 1) * DAY + HOUR
        begin = BEGIN + day * DAY if begin is None else begin
        states = self.ledger.proofs.length(pipeline, "orders")
        integrity = {"judged": list(judged or (day + 1, day + 1)), "proof_states": states}
        of_check = {"ledger_integrity": integrity, "kafka_end_offsets": evidence}

        def result(check: str, kind: str, given: str, found: Sequence[Finding] = (), message: str = "") -> CheckResult:
            return CheckResult(
                unique_id=f"test.lake.{check}_{pipeline}", name=f"{check}_{pipeline}", check=check, kind=kind,
                status=given, failures=len(found), message=message or f"{given} of {check}", pipeline=pipeline,
                sink=sink, findings=tuple(found), evidence=of_check.get(check, {}),
            )  # fmt: skip

        results = [
            result(
                check,
                "evidence",
                (status or {}).get(check) or ("fail" if check == of and findings else "pass"),
                findings if check == of else (),
            )
            for check in checks
        ]
        results += [result(check, "data", given, message="".join(message)) for check, given, *message in data]
        run = RunResult(
            invocation_id=f"{pipeline}-{day}",
            project="lake",
            recon_version="0.1.0",
            generated_at=at,
            period_from=begin,
            period_to=end or at,
            elapsed_time=0,
            results=tuple(results),
            args=args or {"select": [], "exclude": []},
            record=record or RunRecord(by="ada on lake-1", config_hash="ab" * 32, checks={pipeline: len(results)}),
        )
        ledger = self.ledger
        append_run(ledger.results, run)
        if not proves:
            return run
        length = ledger.proofs.length(pipeline, "orders")
        before = ledger.proofs.newest(pipeline, "orders")
        rows = [row for row in rows_of(run) if row["pipeline"] == pipeline]
        state = SinkProof(
            pipeline=pipeline,
            sink="orders",
            at=at,
            invocation_id=run.invocation_id,
            position=day + 1,
            chain_head=self._hash(pipeline, day + 1),
            first_epoch=0,
            first_batch_id=0,
            results_hash=hash_of(rows),
            open=tuple(open_),
        )
        assert ledger.proofs.append(
            state, after=length, prev_hash=before.entry_hash if before else "", cause="audit", at=at
        )
        return run

    def report(self, days: int, first: int = 0) -> ComplianceReport:
        from recon.audits.compliance import compliance

        return compliance(self.project, BEGIN + first * DAY, BEGIN + days * DAY)


def days_of(report: ComplianceReport, control: str, pipeline: str = "orders") -> dict[str, list[int]]:
    """The days of a control of one pipeline, as numbers from 0 on, by state."""
    found: dict[str, list[int]] = {}
    (record,) = [record for record in report.controls if record.id == control]
    for sink in record.sinks:
        for stretch in sink.stretches if sink.pipeline == pipeline else ():
            first = (stretch.first - BEGIN.date()).days
            found.setdefault(stretch.state, []).extend(range(first, first + stretch.days))
    return found


def at_batch(finding: Finding, batch_id: int) -> Finding:
    return replace(finding, epoch=0, batch_id=batch_id)
