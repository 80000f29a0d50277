"""delta_history: every ledger entry has its commit, and no other commit changed audited rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from typing import ClassVar

from typing_extensions import override

from recon.base.lazy import np
from recon.base.text import plural, some
from recon.checks.base import EvidenceCheck
from recon.judge.account.own_rows import lost_own
from recon.judge.case import SinkCase, with_deletions
from recon.judge.findings import Findings, exactly, no_entries, quiet
from recon.judge.history.lost_files import judge_files
from recon.judge.history.recon_commits import judge_claims, judge_repeated, judge_unrecorded
from recon.judge.history.row_balance import RowBalance, described
from recon.judge.history.sink_history import Claim
from recon.judge.history.table_changes import judge_changes
from recon.judge.history.table_history import TableHistory, reported
from recon.judge.history.table_identity import judge_identity
from recon.judge.open_findings import recheck
from recon.judge.rows.reasons import without_rows
from recon.model import (
    Code,
    EntryHead,
    LedgerSlice,
    TableCommit,
    TableLog,
    Unavailable,
    Verdict,
    Witnesses,
    known,
    why_unknown,
)
from recon.model.integrity import verify_stamps
from recon.model.ledger import named

_NAMED = 20  # unusual micro-batches named one by one


@dataclass(frozen=True, kw_only=True)
class DeltaHistory(EvidenceCheck):
    """Every ledger entry has its Delta commit, with the same ranges and rows, and no later commit changed them.

    Proves that what the ledger claims is what the table's own log says, and that audited rows were neither undone nor
    changed afterwards. It needs the ledger and the Delta log (without Spark). Rows are counted by the statistics of
    the added files, not by operation metrics, which a retried stage can inflate. A MERGE of recon's own also writes
    rows that it only copied, and is counted by its metrics: rows inserted, updated and deleted.

    Args:
        history: non-empty micro-batches there must be before a row count can be called unusual.
        deviations: how many scaled median absolute deviations (1.4826 MAD) from the median are unusual.
        factor: and how many times more, or fewer, than the median it must be as well.
    """

    test: ClassVar[str] = "delta_history"
    needs: ClassVar[Sequence[str]] = ("ledgers", "delta")
    uses: ClassVar[Sequence[str]] = ("delta_files", "checkpoint")
    scope: ClassVar[str] = "sink"
    reads_rows: ClassVar[bool] = True

    history: int = 20
    deviations: float = 8.0
    factor: float = 3.0

    @override
    def judge(self, witnesses: Witnesses) -> Verdict:
        case = SinkCase(witnesses := with_deletions(witnesses))
        ledger, history = case.entered, case.history
        if recheck(case.proof, ledger, self.test):
            witnesses.with_rows()  # the open findings are held against them
        if not isinstance(history, TableHistory):
            not_read = f"the history of sink {witnesses.sink} was not read"
            return Verdict(unproved=why_unknown(witnesses.delta, not_read))
        findings = Findings.of(witnesses)
        judge_unrecorded(case.unrecorded, findings, observed=case.observed)
        judge_repeated(history, case.writing.guarantee, findings, placed_by_rows=witnesses.placed_by_rows)
        _report_unseen(history.unseen(history.looked_up_to), findings)
        if not ledger.heads:
            return no_entries(witnesses, findings)
        delta, balance = history.log, RowBalance.of(witnesses, history)
        _judge_entries(history, ledger, findings)
        _report_version_gaps(delta, findings)
        if not case.time.is_past:  # otherwise later commits follow entries behind the period
            findings.items.extend(verify_stamps(ledger, [stamp for _, stamp in history.own]))
        table = case.table or history
        lost = lost_own(case) if table.doubtful_removals else False
        judge_changes(table, findings, lost, by_rows=witnesses.placed_by_rows)
        _judge_rows(history, ledger, balance, findings)
        _report_retention(witnesses, delta, findings)
        self._report_unusual(ledger, findings)
        judged = len(ledger.heads) - ledger.anchors
        message = f"{plural(judged, 'ledger entry')} and their commits agree on ranges and rows"
        first, last = min(delta.commits, default=None), max(delta.commits, default=None)
        verdict = findings.verdict(
            message if judged else quiet(ledger),
            entries=judged,
            commits=len(delta.commits),
            versions=[first, last],
            table_id=delta.table_id,
            table_version=delta.last,
            table_rows=balance.to_remember,
            **described(balance.rows if delta.exists else None),
        )
        return _without_rows(verdict, lost, table)

    def _report_unusual(self, ledger: LedgerSlice, findings: Findings) -> None:
        counted = _counted(ledger.heads)
        if len(counted) < max(self.history, 1):
            return
        rows = np.array([count for _, count in counted], np.float64)
        median = float(np.median(rows))
        spread = 1.4826 * float(np.median(np.abs(rows - median)))
        far = np.abs(rows - median) > self.deviations * spread
        far &= (rows >= self.factor * median) | (rows <= median / self.factor)
        judged = {head.sequence for head in ledger.heads[ledger.anchors :]}
        unusual = [counted[i] for i in np.flatnonzero(far).tolist() if counted[i][0].sequence in judged]
        for head, count in unusual[:_NAMED]:
            message = (
                f"{named(head)} wrote {plural(count, 'row')}, where the median of {len(counted):,} micro-batches is "
                f"{median:,.0f}; look at what the source sent at {head.started_at:%Y-%m-%d %H:%M:%S}Z"
            )
            findings.add(Code.UNUSUAL, message, head=head)
        if len(unusual) > _NAMED:
            findings.add(Code.UNUSUAL, f"{len(unusual) - _NAMED} more micro-batches have unusual row counts")


def _judge_rows(history: TableHistory, ledger: LedgerSlice, balance: RowBalance, findings: Findings) -> None:
    """What the table's files and their rows show, where there is a table."""
    if history.log.exists:
        judge_files(history, ledger, findings)
        balance.judge(findings)


def _counted(heads: Sequence[EntryHead]) -> Sequence[tuple[EntryHead, int]]:
    """The micro-batches that wrote rows, and how many."""
    written = (head for head in heads if head.is_micro_batch and head.status != "already_committed")
    return [(head, head.rows_written) for head in written if head.rows_written]


def _without_rows(verdict: Verdict, lost: bool | str | Unavailable, table: TableHistory) -> Verdict:
    """The verdict; where rows were not read that tell whose rows commits took away, nothing is proved."""
    if not isinstance(lost, Unavailable):
        return verdict
    versions = some(commit.version for commit in table.doubtful_removals)
    others = some(sorted(table.other_writers))
    why = f"version {versions} changed rows of {table.location}, which pipeline {others} writes as well"
    return without_rows(verdict, lost, [why])


# -- entries and their commits -----------------------------------------------------------------------------------


def _judge_entries(history: TableHistory, ledger: LedgerSlice, findings: Findings) -> None:
    if not history.exists:
        message = (
            f"there is no {history.log.words.table} at {history.location}, and the ledger claims commits in it: it was "
            "removed or moved; correct the sink's target in recon.yml, or restore the table"
        )
        findings.add(Code.LEDGER_ORPHAN, message, about=f"no table {history.location}")
        return
    claims = history.claims()
    confirmed = {entry for entry, of in claims.items() if of.is_there}
    elsewhere = judge_identity(history, ledger, _with(Code.LEDGER_ORPHAN, claims) - confirmed, confirmed, findings)
    judge_claims(history, claims, findings, elsewhere)
    _report_attested(history, sorted(_with(Code.ATTESTED_ONLY, claims) - elsewhere), findings)
    commits = (history.commit_of(ledger.heads[entry]) for entry in sorted(confirmed))
    _report_metrics([commit for commit in commits if commit is not None], findings)


def _with(code: Code, claims: Mapping[int, Claim]) -> set[int]:
    return {entry for entry, claim in claims.items() if claim.code is code}


def _report_attested(history: TableHistory, entries: Sequence[int], findings: Findings) -> None:
    """Entries whose commits are cleaned up."""
    # A restored entry and the one of its replay are of one micro-batch.
    heads = list({(history.heads[i].epoch, history.heads[i].batch_id): history.heads[i] for i in entries}.values())
    findings.add_for_all(
        Code.ATTESTED_ONLY,
        heads,
        f"the commits of {plural(len(heads), 'micro-batch')} {history.log.words.removed} (it begins at version "
        f"{history.log.first_retained}): the ledger alone attests them; audit within the log's retention",
    )


def _report_metrics(commits: Sequence[TableCommit], findings: Findings) -> None:
    """Commits whose metrics contradict their files, or that have no counts."""
    doubted = [f"version {commit.version} ({why})" for commit in commits if (why := _doubt_of_counts(commit))]
    if doubted:
        message = (
            f"the row counts of these commits are not reliable: {some(doubted)}; counts of data files were used, if any"
        )
        findings.add(Code.METRIC_UNRELIABLE, message)


def _doubt_of_counts(commit: TableCommit) -> str:
    """How the metrics of a commit contradict its files, or that it has no counts; "" for neither."""
    if commit.rows_taken is None:
        return "neither file statistics nor metrics of rows"
    added, removed, by_metrics = commit.rows_added, commit.rows_removed, reported(commit)
    if added is not None and by_metrics not in (None, added):
        return f"numOutputRows {by_metrics:,}, files hold {added:,}"
    inserted, deleted = commit.metric("numTargetRowsInserted"), commit.metric("numTargetRowsDeleted")
    if not commit.is_merge or added is None or removed is None or inserted is None or deleted is None:
        return ""
    if inserted - deleted == added - removed:
        return ""
    return f"inserted less deleted {inserted - deleted:,}, its files gained {added - removed:,} rows"


# -- commits without an entry, commits that are gone ---------------------------------------------------------------


def _report_unseen(commits: Sequence[TableCommit], findings: Findings) -> None:
    """Micro-batches that Spark wrote without recon, and of which nobody knows what they read."""
    numbers = sorted(commit.wrote[1] for commit in commits if commit.wrote is not None)
    if numbers:
        message = (
            f"{plural(len(numbers), 'micro-batch')} written without recon (batch_id {some(numbers)}) had no plan "
            "in the checkpoint when recon looked: what was read into them is not known; let `recon observe "
            "--every 60s` run beside the stream, or audit before Spark has written 100 micro-batches more"
        )
        findings.add(Code.INCONCLUSIVE, message, batch_id=numbers[-1])


def _report_version_gaps(delta: TableLog, findings: Findings) -> None:
    if delta.line is not None:
        return  # numbers that attempts took which were never published
    missing = [
        f"{before + 1}" if after == before + 2 else f"{before + 1} to {after - 1}"
        for before, after in pairwise(sorted(delta.commits))
        if after > before + 1
    ]
    if missing and delta.last is not None:
        message = (
            f"{delta.location}/_delta_log has no commit file for version {some(missing)}, though older ones are there: "
            "what those commits did is not known; restore the files from a copy"
        )
        findings.add(Code.INCONCLUSIVE, message, about=f"no commit file {exactly(missing)}")


# -- retention --------------------------------------------------------------------------------------------------------


def _report_retention(witnesses: Witnesses, delta: TableLog, findings: Findings) -> None:
    previous, kept = known(witnesses.previous), timedelta(days=delta.log_retention_days)
    # A log that still has its first version lost nothing, however long ago the period began.
    begin = witnesses.period_from if delta.first_retained != 0 else None
    begins = {"the previous audit": previous.generated_at if previous else None, "the begin of the period": begin}
    ago = {what: witnesses.now - at for what, at in begins.items() if at is not None and witnesses.now - at > kept}
    if not ago or delta.whole:
        return
    what, since = next(iter(ago.items()))
    findings.add(
        Code.RETENTION_NEAR,
        f"{delta.location} keeps its log for {kept / timedelta(days=1):g} days ({delta.words.retention}), and {what} "
        f"is {since / timedelta(days=1):.1f} days ago: commits may have been cleaned up unseen; audit more often, or "
        "keep the log longer",
    )
