"""sink_commits: every ledger entry has its write in the sink's own record, and no range was written twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from typing_extensions import override

from recon.base.text import plural, some
from recon.checks.base import EvidenceCheck
from recon.judge.case import SinkCase
from recon.judge.findings import Findings, no_entries, quiet
from recon.judge.history.recon_commits import judge_claims, judge_repeated, judge_unrecorded
from recon.judge.history.record_history import OtherRows, RecordHistory, TableJudged
from recon.model import Code, RecordCount, Unavailable, Verdict, Witnesses, why_unknown
from recon.model.ledger import named
from recon.model.proof import memory_of


@dataclass(frozen=True, kw_only=True)
class SinkCommits(EvidenceCheck):
    """Every ledger entry has its write in the sink's own record, with the same ranges and rows, and none has two.

    What `delta_history` is to Delta tables, for every other sink: the record is the `recon_ledger` table beside a
    database table, the markers of a Kafka topic, the manifests of a folder of files. It is written in one step with the
    rows, so it says what the sink holds whatever became of the ledger. The check holds the sink to the guarantee it
    claims. It needs the ledger and the sink, and no Spark.
    """

    test: ClassVar[str] = "sink_commits"
    needs: ClassVar[Sequence[str]] = ("ledgers", "sink_logs")
    uses: ClassVar[Sequence[str]] = ("checkpoint",)
    scope: ClassVar[str] = "sink"

    @override
    def judge(self, witnesses: Witnesses) -> Verdict:
        case = SinkCase(witnesses)
        history, ledger = case.record, case.entered
        if history is None:
            has_history = (
                f"sink {witnesses.sink} is a Delta or an Iceberg table, whose history says more than this check looks "
                "at: list delta_history or iceberg_history instead"
            )
            return Verdict(unproved=why_unknown(witnesses.sink_logs, has_history))
        findings = Findings.of(witnesses)
        judge_unrecorded(case.unrecorded, findings, observed=case.observed)
        judge_repeated(history, case.writing.guarantee, findings, placed_by_rows=witnesses.placed_by_rows)
        if history.log.gone and ledger.heads and _brought_rows(history):
            _report_gone(history, findings)
        else:
            _judge_rows(history, findings)
        _judge_record(history, findings)
        _judge_changes(history, findings)
        if not ledger.heads:
            return no_entries(witnesses, findings)
        judged = len(ledger.heads) - ledger.anchors
        if history.log.recorded:
            judge_claims(history, history.claims(), findings)
        elif judged:
            findings.add(
                Code.ATTESTED_ONLY,
                f"{history.location} keeps no record of its own: the ledger alone attests "
                f"{plural(judged, 'micro-batch')}; source_rows looks at the rows themselves",
            )
        message = f"{plural(judged, 'ledger entry')} and {history.location} agree on ranges and rows"
        return findings.verdict(
            message + history.not_counted if judged else quiet(ledger),
            entries=judged,
            commits=len(history.own_writes),
            guarantee=witnesses.guarantees.get(witnesses.sink or "", ""),
        )


def _brought_rows(history: RecordHistory) -> bool:
    """Whether any write is known that may have brought rows."""
    record = history.log.record
    in_record = isinstance(record, RecordCount) and record.rows != 0
    return in_record or any(head.rows_written != 0 for head in history.heads)


def _report_gone(history: RecordHistory, findings: Findings) -> None:
    message = (
        f"there is no table {history.location}: it was dropped or renamed, so the rows that were written to it are not "
        "there; put it back, by its name or from a backup, or read the topic again on a new checkpoint"
    )
    findings.add(Code.MUTATED, message, about=f"no table {history.location}", changed_by=())


def _judge_record(history: RecordHistory, findings: Findings) -> None:
    """Writes that the sink's own record had at the last audit, and has no more, or with other numbers of rows."""
    proof, now = history.proof, history.log.record
    judged = memory_of(proof, TableJudged)
    before = judged.record if judged is not None else None
    if proof is None or before is None or (history.exists and not isinstance(now, RecordCount)):
        return
    number, writes, rows = before
    kept, rows_kept = now.kept if isinstance(now, RecordCount) else (0, None)
    if kept == writes and (None in (rows, rows_kept) or rows == rows_kept):
        return
    message = (
        f"the sink's own record of writes to {history.location} was edited: up to number {number} it has "
        f"{plural(kept, 'write')} ({_rows(rows_kept)}), and had {writes:,} ({_rows(rows)}) at the audit of "
        f"{proof.at:%Y-%m-%d %H:%M:%S}Z; `recon audit --full` names the micro-batches that the ledger has"
    )
    findings.add(Code.MUTATED, message, about=f"record up to {number}: {kept} writes, {rows_kept} rows", changed_by=())


def _rows(rows: int | None) -> str:
    return "rows not counted" if rows is None else plural(rows, "row")


def _judge_rows(history: RecordHistory, findings: Findings) -> None:
    """Rows that were removed since they were written, by whomever: the record does not know."""
    proof, gone, since = history.proof, history.removed, "since they were written"
    if proof is not None and not proof.memories.keys().isdisjoint({OtherRows, TableJudged}):
        since = f"after the audit of {proof.at:%Y-%m-%d %H:%M:%S}Z"
    step = "source_rows names the offsets of rows whose micro-batch it reads"
    if gone > 0:
        message = (
            f"{history.location} lacks {plural(gone, 'row')} that had been written: somebody removed rows {since}; "
            f"{step}"
        )
        findings.add(Code.MUTATED, message, about=f"{gone} rows {since} {history.digest}", rows=gone, changed_by=())
    elif history.replaced:
        message = (
            f"{history.location} has {history.replaced}: {since}, somebody put other rows in the place of some, or "
            f"doubled some and removed as many; {step}"
        )
        findings.add(Code.MUTATED, message, about=f"replaced {since} {history.digest}", changed_by=())
    elif history.unknown:
        findings.add(
            Code.ATTESTED_ONLY,
            f"whether somebody removed rows of {history.location} since they were written, or doubled some, is not "
            f"known: {history.unknown}",
        )


def _judge_changes(history: RecordHistory, findings: Findings) -> None:
    """Writes that are gone, what others put there, and what could not be looked at."""
    changes, where = history.log.changes, history.location
    if isinstance(changes, Unavailable):
        message = f"whether {where} still has what was written is not known: {changes.reason}"
        findings.add(Code.ATTESTED_ONLY, message)
        return
    for writes in history.lost_runs:
        first, last = writes[0].stamp, writes[-1].stamp
        # Many at once, as where old folders are removed, are one finding to accept.
        alone = first is last
        who = named(first) if alone else f"{named(first)} to micro-batch {last.batch_id}"
        sentence = (
            f"{where} no longer has all that {who} wrote: {writes[0].lacks}{'' if alone else ', and more'}; find out "
            "what changes it, and restore it from a copy"
        )
        findings.add(Code.MUTATED, sentence, about="" if alone else who, head=first if alone else None, changed_by=())
    if changes.replaced:
        sentence = (
            f"rows that were written are gone: {changes.replaced}; find out what changes it, and write them again"
        )
        findings.add(Code.MUTATED, sentence, about=changes.replaced, changed_by=())
    if changes.foreign:
        findings.add(
            Code.UNSTAMPED,
            f"{where} has {plural(len(changes.foreign), 'file')} that no manifest names: {some(changes.foreign)}; "
            "recon.read_batches does not read them, readers of the folder do: move them elsewhere",
        )
