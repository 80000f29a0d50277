"""sink_commits: every ledger entry has its write in the sink's own record, and no range was written twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from typing_extensions import override

from recon.checks.base import EvidenceCheck
from recon.judge.coverage import widths
from recon.judge.findings import Findings, ledger_of, named, no_entries, quiet
from recon.judge.history.database_counts import (
    OtherRows,
    TableJudged,
    digest,
    not_counted,
    nothing_repeated,
    rows_removed,
    rows_replaced,
    why_unknown_rows,
)
from recon.judge.history.lost_writes import judge_changes
from recon.judge.history.recon_commits import (
    doubled,
    looked_at_all,
    own_writes,
    report_orphan,
    report_unrecorded,
    same_offsets,
    unrecorded,
)
from recon.model import (
    REMOVALS,
    Code,
    EntryHead,
    LedgerSlice,
    ReconStamp,
    RecordCount,
    SinkCommit,
    SinkLog,
    Verdict,
    Witnesses,
    parse_offsets,
    why_unknown,
)
from recon.text import plural


@dataclass(frozen=True, kw_only=True)
class SinkCommits(EvidenceCheck):
    """Every ledger entry has its write in the sink's own record, with the same ranges and rows, and none has two.

    What `delta_history` is to Delta tables, for every other sink: the record is the `recon_ledger` table beside a
    database table, the markers of a Kafka topic, the manifests of a folder of files. It is written in one step with the
    rows, so it says what the sink holds whatever became of the ledger, and it holds the sink to the guarantee it
    claims. It needs the ledger and the sink, and no Spark.
    """

    test: ClassVar[str] = "sink_commits"
    needs: ClassVar[Sequence[str]] = ("ledgers", "sink_logs")
    uses: ClassVar[Sequence[str]] = ("checkpoint",)
    scope: ClassVar[str] = "sink"

    @override
    def judge(self, witnesses: Witnesses) -> Verdict:
        log = witnesses.sink_record
        if log is None:
            has_history = (
                f"sink {witnesses.sink} is a Delta or an Iceberg table, whose history says more than this check looks "
                "at: list delta_history or iceberg_history instead"
            )
            return Verdict(unproved=why_unknown(witnesses.sink_logs, has_history))
        ledger, findings = ledger_of(witnesses), Findings.of(witnesses)
        mine = own_writes(witnesses)
        for commit in unrecorded(witnesses):
            report_unrecorded("the sink", commit.stamp, findings)
        _report_twice(witnesses, mine, findings)
        if log.gone and ledger is not None and _brought_rows(ledger, log):
            _report_gone(log, findings)
        else:
            _judge_rows(witnesses, log, findings)
        _judge_record(witnesses, log, findings)
        judge_changes(log, findings)
        if ledger is None:
            return no_entries(witnesses, findings)
        _judge_entries(ledger, log, mine, findings)
        judged = len(ledger.heads) - ledger.anchors
        message = f"{plural(judged, 'ledger entry')} and {log.location} agree on ranges and rows"
        message += not_counted(witnesses)
        guarantee = witnesses.guarantees.get(witnesses.sink or "", "")
        return findings.verdict(
            message if judged else quiet(ledger), entries=judged, commits=len(mine), guarantee=guarantee
        )


def _brought_rows(ledger: LedgerSlice, log: SinkLog) -> bool:
    """Whether any write is known that may have brought rows."""
    in_record = isinstance(log.record, RecordCount) and log.record.rows != 0
    return in_record or any(head.rows_written != 0 for head in ledger.heads)


def _report_gone(log: SinkLog, findings: Findings) -> None:
    findings.add(
        Code.MUTATED,
        f"there is no table {log.location}: it was dropped or renamed, so the rows that were written to it are not "
        "there; put it back, by its name or from a backup, or read the topic again on a new checkpoint",
        about=f"no table {log.location}",
        changed_by=(),
    )


def _judge_record(witnesses: Witnesses, log: SinkLog, findings: Findings) -> None:
    """Writes that the sink's own record had at the last audit, and has no more, or with other numbers of rows."""
    proof, now = witnesses.proof, log.record
    judged = witnesses.memory(TableJudged)
    before = judged.record if judged is not None else None
    if proof is None or before is None or (log.exists and not isinstance(now, RecordCount)):
        return
    number, writes, rows = before
    kept, rows_kept = now.kept if isinstance(now, RecordCount) else (0, None)
    if kept != writes:
        what = f"{plural(kept, 'write')}, and had {writes:,}"
    elif None not in (rows, rows_kept) and rows != rows_kept:
        what = f"{plural(writes, 'write')} with {rows_kept:,} rows, and had them with {rows:,}"
    else:
        return
    findings.add(
        Code.MUTATED,
        f"the sink's own record of writes to {log.location} was edited: up to number {number} it has {what} at the "
        f"audit of {proof.at:%Y-%m-%d %H:%M:%S}Z; `recon audit --full` names the micro-batches that the ledger has",
        about=f"record up to {number}: {kept} writes, {rows_kept} rows",
        changed_by=(),
    )


def _judge_rows(witnesses: Witnesses, log: SinkLog, findings: Findings) -> None:
    """Rows that were removed since they were written, by whomever: the record does not know."""
    proof, gone = witnesses.proof, rows_removed(witnesses)
    counted = witnesses.memory(OtherRows) is not None or witnesses.memory(TableJudged) is not None
    since = f"after the audit of {proof.at:%Y-%m-%d %H:%M:%S}Z" if proof is not None and counted else "since then"
    if gone > 0:
        rows, them = plural(gone, "row"), "it" if gone == 1 else "them"
        findings.add(
            Code.MUTATED,
            f"{log.location} lacks {rows} that had been written to it: somebody removed {them} {since}; source_rows "
            f"names the offsets of those whose micro-batch it reads",
            about=f"{gone} rows {since} {digest(witnesses)}",
            rows=gone,
            changed_by=(),
        )
    elif replaced := rows_replaced(witnesses):
        findings.add(
            Code.MUTATED,
            f"{log.location} has {replaced}: {since if counted else 'since they were written'}, somebody put other "
            "rows in the place of some, or doubled some and removed as many; source_rows names the offsets of missing "
            f"rows whose micro-batch it reads, and those of doubled ones",
            about=f"replaced {since} {digest(witnesses)}",
            changed_by=(),
        )
    elif unknown := why_unknown_rows(witnesses):
        findings.add(
            Code.ATTESTED_ONLY,
            f"whether somebody removed rows of {log.location} since they were written, or doubled some, is not known: "
            f"{unknown}",
        )


def _judge_entries(ledger: LedgerSlice, log: SinkLog, commits: Sequence[SinkCommit], findings: Findings) -> None:
    judged = range(ledger.anchors, len(ledger.heads))
    if not log.recorded:
        if judged:
            findings.add(
                Code.ATTESTED_ONLY,
                f"{log.location} keeps no record of its own: the ledger alone attests "
                f"{plural(len(judged), 'micro-batch')}; source_rows looks at the rows themselves",
            )
        return
    newest: Mapping[tuple[int, int], SinkCommit] = {(c.stamp.epoch, c.stamp.batch_id): c for c in commits}
    width = widths(ledger)
    empty: list[EntryHead] = []
    for i in judged:
        head = ledger.heads[i]
        commit, reason = newest.get((head.epoch, head.batch_id)), None
        if commit is None:
            if head.rows_written in (0, None) and width[i] == 0:
                empty.append(head)
            else:
                reason = f"{log.location} has no record of it" if log.exists else f"{log.location} has no record at all"
        elif not same_offsets(ledger, i, commit.stamp):
            reason = f"{log.location} has it with other offset ranges than the ledger"
        elif None not in (commit.rows, head.rows_written) and commit.rows != head.rows_written:
            reason = f"the ledger claims {head.rows_written:,} rows and {log.location} says {commit.rows:,}"
        if reason is not None:
            report_orphan(head, "write", reason, findings)
    batches = plural(len(empty), "micro-batch")
    findings.add_for_all(Code.EMPTY, empty, f"{batches} without offsets, rows and record")


def _report_twice(witnesses: Witnesses, commits: Sequence[SinkCommit], findings: Findings) -> None:
    """Micro-batches, and ranges, that were written more than once."""
    code, claimed = doubled(witnesses)
    of_batch: dict[tuple[int, int], list[ReconStamp]] = {}
    of_range: dict[str, list[ReconStamp]] = {}
    for commit in commits:
        stamp = commit.stamp
        of_batch.setdefault((stamp.epoch, stamp.batch_id), []).append(stamp)
        # A repair reads offsets without a row again, whoever read them before; source_rows looks at the rows.
        if stamp.epoch >= 0 and stamp.offsets_text != "[]" and commit.rows != 0:
            of_range.setdefault(stamp.offsets_text, []).append(stamp)
    for mine in of_batch.values():
        if len(mine) > 1:
            findings.add(
                code,
                f"the sink has {named(mine[0])} {len(mine)} times, and claims {claimed}: its rows are doubled",
                head=mine[0],
            )
    # Rows that somebody removed before they were written again are not doubled.
    for mine in of_range.values() if not nothing_repeated(witnesses) else ():
        if len({(stamp.epoch, stamp.batch_id) for stamp in mine}) > 1 and not _is_cleaned(mine, commits):
            findings.add(
                code,
                f"{' and '.join(named(stamp) for stamp in mine)} wrote the same ranges into a sink that claims "
                f"{claimed}: their rows are doubled",
                head=mine[-1],
            )


def _is_cleaned(stamps: Sequence[ReconStamp], commits: Sequence[SinkCommit]) -> bool:
    """Whether removals behind these writes looked at every offset of them; source_rows looks at the rows that stay."""
    last = max(stamp.number or 0 for stamp in stamps)
    removals = [c.stamp for c in commits if c.stamp.epoch == REMOVALS and (c.stamp.number or 0) > last]
    return looked_at_all([span for stamp in removals for span in parse_offsets(stamp.offsets_text)], stamps[0])
