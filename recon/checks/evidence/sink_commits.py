"""sink_commits: every ledger entry has its write in the sink's own record, and no range was written twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar

from typing_extensions import override

from recon.checks.base import EvidenceCheck
from recon.checks.evidence.coverage import texts_of_ranges, widths
from recon.checks.evidence.findings import Findings, ledger_of, named, no_entries, quiet
from recon.model import (
    RELEASES,
    Code,
    EntryHead,
    LedgerSlice,
    SinkCommit,
    SinkLog,
    Unavailable,
    Verdict,
    Witnesses,
    same_ranges,
)
from recon.text import plural, some

_EDGE = timedelta(minutes=5)  # how long after its write a ledger entry may come, at the end of a period


@dataclass(frozen=True, kw_only=True)
class SinkCommits(EvidenceCheck):
    """Every ledger entry has its write in the sink's own record, with the same ranges and rows, and none has two.

    What `delta_history` is to Delta tables, for every other sink: the record is the `recon_ledger` table beside a
    database table, the markers of a Kafka topic, the manifests of a folder of files. It is written in one step with the
    rows, so it says what the sink holds whatever became of the ledger, and it holds the sink to the guarantee it
    claims. It needs the ledger and the sink, and no Spark.

    Codes:
        LEDGER_ORPHAN: an entry whose write the record does not have, or has with other ranges or other row counts.
        LEDGER_MISSING: a write without an entry (warns); the next start of the query or `recon ledger rebuild` restores
            it.
        DUPLICATE: two writes of one micro-batch, or of the same ranges, in a sink that claims exactly-once.
        REPEATED: the same in a sink that claims no more than at-least-once (warns).
        ATTESTED_ONLY: the sink keeps no record, so the ledger alone attests what was written (warns).
        EMPTY: entries without offsets and rows; they explain and do not fail.
    """

    test: ClassVar[str] = "sink_commits"
    needs: ClassVar[Sequence[str]] = ("ledgers", "sink_logs")
    scope: ClassVar[str] = "sink"

    @override
    def judge(self, witnesses: Witnesses) -> Verdict:
        if isinstance(witnesses.sink_logs, Unavailable):
            return Verdict(unproved=witnesses.sink_logs.reason)
        log = witnesses.sink_logs.get(witnesses.sink or "")
        if log is None:
            return Verdict(
                unproved=f"sink {witnesses.sink} is a Delta table, whose log says more than this check looks at: list "
                "delta_history instead"
            )
        ledger, findings = ledger_of(witnesses), Findings.of(witnesses)
        heads = [] if ledger is None else ledger.heads
        mine = [c for c in log.commits if (c.stamp.pipeline, c.stamp.sink) == (witnesses.pipeline, witnesses.sink)]
        _report_missing(witnesses, mine, heads, findings)
        _report_twice(witnesses, mine, findings)
        if ledger is None:
            return findings.verdict("") if findings.found else no_entries(witnesses)
        _judge_entries(ledger, log, mine, findings)
        judged = len(ledger.heads) - ledger.anchors
        message = f"{plural(judged, 'ledger entry')} and {log.location} agree on ranges and rows"
        guarantee = witnesses.guarantees.get(witnesses.sink or "", "")
        return findings.verdict(
            message if judged else quiet(ledger), entries=judged, commits=len(mine), guarantee=guarantee
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
    text_of, width = texts_of_ranges(ledger), widths(ledger)
    empty: list[EntryHead] = []
    for i in judged:
        head = ledger.heads[i]
        commit = newest.get((head.epoch, head.batch_id))
        if commit is None:
            if head.rows_written in (0, None) and width[i] == 0:
                empty.append(head)
            else:
                _orphan(head, f"{log.location} {'has no record of it' if log.exists else 'is not there'}", findings)
        elif commit.stamp.offsets_text != text_of(i) and not same_ranges(commit.stamp.offsets_text, text_of(i)):
            _orphan(head, f"{log.location} has it with other offset ranges than the ledger", findings)
        elif None not in (commit.rows, head.rows_written) and commit.rows != head.rows_written:
            reason = f"the ledger claims {head.rows_written:,} rows and {log.location} says {commit.rows:,}"
            _orphan(head, reason, findings)
    if empty:
        findings.add(
            Code.EMPTY,
            f"{plural(len(empty), 'micro-batch')} without offsets, rows and record: batch_id "
            f"{some(head.batch_id for head in empty)}",
            head=empty[0] if len(empty) == 1 else None,
        )


def _orphan(head: EntryHead, reason: str, findings: Findings) -> None:
    findings.add(
        Code.LEDGER_ORPHAN,
        f"{named(head)} has a ledger entry without the write that belongs to it: {reason}",
        head=head,
    )


def _report_missing(
    witnesses: Witnesses, commits: Sequence[SinkCommit], heads: Sequence[EntryHead], findings: Findings
) -> None:
    known = {(head.epoch, head.batch_id) for head in heads}
    bounded = witnesses.period_to < witnesses.now
    for commit in commits:
        where = (commit.stamp.epoch, commit.stamp.batch_id)
        before = witnesses.period_from is not None and commit.at < witnesses.period_from
        after = commit.at > witnesses.now or (bounded and commit.at > witnesses.period_to - _EDGE)
        if where not in known and not before and not after:
            findings.add(
                Code.LEDGER_MISSING,
                f"the sink holds {_text(commit)}, and the ledger has no entry of it; the query's next start, or `recon "
                "ledger rebuild`, restores it",
                epoch=where[0],
                batch_id=where[1],
            )


def _report_twice(witnesses: Witnesses, commits: Sequence[SinkCommit], findings: Findings) -> None:
    """Micro-batches, and ranges, that were written more than once."""
    claimed = witnesses.guarantees.get(witnesses.sink or "", "exactly-once")
    code = Code.DUPLICATE if claimed.startswith("exactly-once") else Code.REPEATED
    of_batch: dict[tuple[int, int], list[SinkCommit]] = {}
    of_range: dict[str, list[SinkCommit]] = {}
    for commit in commits:
        of_batch.setdefault((commit.stamp.epoch, commit.stamp.batch_id), []).append(commit)
        if commit.stamp.offsets_text != "[]" and commit.rows != 0:
            of_range.setdefault(commit.stamp.offsets_text, []).append(commit)
    for mine in of_batch.values():
        if len(mine) > 1:
            findings.add(
                code,
                f"the sink has {_text(mine[0])} {len(mine)} times, and claims {claimed}: its rows are doubled",
                epoch=mine[0].stamp.epoch,
                batch_id=mine[0].stamp.batch_id,
            )
    for mine in of_range.values():
        batches = {(c.stamp.epoch, c.stamp.batch_id) for c in mine}
        if len(batches) > 1:
            findings.add(
                code,
                f"{' and '.join(_text(c) for c in mine)} wrote the same ranges into a sink that claims {claimed}: "
                "their rows are doubled",
                epoch=mine[-1].stamp.epoch,
                batch_id=mine[-1].stamp.batch_id,
            )


def _text(commit: SinkCommit) -> str:
    stamp = commit.stamp
    if stamp.epoch == RELEASES:
        return f"release {stamp.batch_id} from quarantine"
    return f"micro-batch {stamp.batch_id} (epoch {stamp.epoch})"
