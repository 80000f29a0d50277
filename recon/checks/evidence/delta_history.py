"""delta_history: every ledger entry has its commit, and no other commit changed audited rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from typing import ClassVar

from typing_extensions import override

from recon.checks.base import EvidenceCheck
from recon.judge.coverage import widths
from recon.judge.findings import Findings, every_number, exactly, ledger_of, named, no_entries, quiet
from recon.judge.history.delta_changes import judge_changes
from recon.judge.history.entries import entries_with_unrecorded_commits
from recon.judge.history.lost_files import judge_files
from recon.judge.history.recon_commits import (
    looked_at_all,
    report_orphan,
    report_unrecorded,
    same_offsets,
    unrecorded,
)
from recon.judge.history.row_balance import TableRows, commits_never_read, compared, described, rows_to_remember
from recon.judge.history.table_history import TableHistory, history_of
from recon.judge.history.table_identity import judge_identity
from recon.judge.open_findings import recheck
from recon.lazy import np
from recon.model import (
    Code,
    DeltaCommit,
    DeltaWitness,
    EntryHead,
    LedgerSlice,
    ReconStamp,
    Verdict,
    Witnesses,
    known,
    why_unknown,
)
from recon.model.integrity import verify_stamps
from recon.text import plural, some

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
        if recheck(witnesses, self.test):
            witnesses = witnesses.with_rows()
        ledger, history = ledger_of(witnesses), history_of(witnesses, witnesses.ledger)
        if history is None:
            not_read = f"the history of sink {witnesses.sink} was not read"
            return Verdict(unproved=why_unknown(witnesses.delta, not_read))
        findings = Findings.of(witnesses)
        if ledger is None:
            _judge_commits(witnesses, history, findings)
            return no_entries(witnesses, findings)
        delta = history.log
        _judge_entries(history, ledger, findings)
        _report_version_gaps(delta, findings)
        _judge_commits(witnesses, history, findings)
        if witnesses.period_to >= witnesses.now:  # otherwise later commits follow entries behind the period
            findings.items.extend(verify_stamps(ledger, [stamp for _, stamp in history.own]))
        with_unrecorded = history_of(witnesses, entries_with_unrecorded_commits(witnesses)) or history
        judge_changes(with_unrecorded, findings, by_rows=witnesses.placed_by_rows)
        rows = compared(witnesses, history) if delta.exists else None
        if delta.exists:
            judge_files(ledger, delta, findings)
            _judge_rows(rows, witnesses, history, findings)
            _report_never_read(witnesses, history, findings)
        _report_retention(witnesses, delta, findings)
        self._report_unusual(ledger, findings)
        judged = len(ledger.heads) - ledger.anchors
        message = f"{plural(judged, 'ledger entry')} and their commits agree on ranges and rows"
        first, last = min(delta.commits, default=None), max(delta.commits, default=None)
        return findings.verdict(
            message if judged else quiet(ledger),
            entries=judged,
            commits=len(delta.commits),
            versions=[first, last],
            table_id=delta.table_id,
            table_version=delta.last,
            table_rows=rows_to_remember(witnesses),
            **described(rows),
        )

    def _report_unusual(self, ledger: LedgerSlice, findings: Findings) -> None:
        counted = [
            (i, head.rows_written)
            for i, head in enumerate(ledger.heads)
            if head.rows_written and head.status != "already_committed" and head.is_micro_batch
        ]
        if len(counted) < max(self.history, 1):
            return
        rows = np.array([count for _, count in counted], np.float64)
        median = float(np.median(rows))
        spread = 1.4826 * float(np.median(np.abs(rows - median)))
        far = np.abs(rows - median) > self.deviations * spread
        many, few = rows >= self.factor * median, rows <= median / self.factor
        unusual = [counted[i] for i in np.flatnonzero(far & (many | few)).tolist() if counted[i][0] >= ledger.anchors]
        for entry, count in unusual[:_NAMED]:
            head = ledger.heads[entry]
            findings.add(
                Code.UNUSUAL,
                f"{named(head)} wrote {plural(count, 'row')}, where the median of {len(counted):,} micro-batches is "
                f"{median:,.0f}; look at what the source sent at {head.started_at:%Y-%m-%d %H:%M:%S}Z",
                head=head,
            )
        if len(unusual) > _NAMED:
            findings.add(Code.UNUSUAL, f"{len(unusual) - _NAMED} more micro-batches have unusual row counts")


# -- entries and their commits -----------------------------------------------------------------------------------


def _claim(history: TableHistory, ledger: LedgerSlice, entry: int, *, wrote_nothing: bool) -> tuple[Code | None, str]:
    """What is to be said of the version that an entry claims, and why; None where the commit is its own."""
    log, head, commit = history.log, ledger.heads[entry], history.commit_of(ledger.heads[entry])
    version = head.sink_version
    if version is not None and log.undone(version):
        return Code.MUTATED, ""  # judge_changes reports what was rolled back
    if commit is not None:
        reason = _other_write(ledger, entry, commit)
        return Code.LEDGER_ORPHAN if reason else None, reason
    if wrote_nothing:
        return Code.EMPTY, ""
    if history.is_cleaned_up(version):
        return Code.ATTESTED_ONLY, ""
    if history.is_beyond(version):
        claimed = f"version {version}" if version is not None else "no version at all"
        return (
            Code.LEDGER_ORPHAN,
            f"the ledger claims {claimed} of {log.location}, whose log ends at version {log.last}",
        )
    return Code.INCONCLUSIVE, ""  # a version that is missing in between is reported once for all


def _judge_entries(history: TableHistory, ledger: LedgerSlice, findings: Findings) -> None:
    delta = history.log
    if not delta.exists:
        findings.add(
            Code.LEDGER_ORPHAN,
            f"there is no {delta.words.table} at {delta.location}, and the ledger claims commits in it: it was removed "
            "or moved; correct the sink's target in recon.yml, or restore the table",
            about=f"no table {delta.location}",
        )
        return
    width = widths(ledger)
    found: dict[Code | None, dict[int, str]] = defaultdict(dict)
    for i in range(ledger.anchors, len(ledger.heads)):
        code, reason = _claim(history, ledger, i, wrote_nothing=ledger.heads[i].rows_written == 0 and width[i] == 0)
        found[code][i] = reason
    orphans = found[Code.LEDGER_ORPHAN]
    confirmed = {i: commit for i in found[None] if (commit := history.commit_of(ledger.heads[i])) is not None}
    of_former_table = judge_identity(history, ledger, orphans, confirmed, findings)
    for i, reason in orphans.items():
        if i not in of_former_table:
            report_orphan(ledger.heads[i], "commit", reason, findings)
    for i, commit in confirmed.items():
        _judge_confirmed(ledger.heads[i], commit, findings)
    empty = [ledger.heads[i] for i in found[Code.EMPTY]]
    batches = plural(len(empty), "micro-batch")
    findings.add_for_all(Code.EMPTY, empty, f"{batches} without offsets, rows and commit")
    _report_attested([ledger.heads[i] for i in found[Code.ATTESTED_ONLY] if i not in of_former_table], delta, findings)
    _report_metrics(list(confirmed.values()), findings)


def _report_attested(alone: Sequence[EntryHead], delta: DeltaWitness, findings: Findings) -> None:
    """Entries whose commits are cleaned up."""
    # A restored entry and the one of its replay are of one micro-batch.
    heads = list({(head.epoch, head.batch_id): head for head in alone}.values())
    findings.add_for_all(
        Code.ATTESTED_ONLY,
        heads,
        f"the commits of {plural(len(heads), 'micro-batch')} {delta.words.removed} (it begins at version "
        f"{delta.first_retained}): the ledger alone attests them; audit within the log's retention",
    )


def _judge_confirmed(head: EntryHead, commit: DeltaCommit, findings: Findings) -> None:
    """An entry's rows against those of its commit."""
    rows = commit.rows_taken
    if head.is_removal:
        _judge_removal(head, commit, findings)
    elif rows is not None and head.rows_written not in (None, rows, _reported(commit)):
        reason = f"the ledger claims {head.rows_written:,} rows and version {commit.version} holds {rows:,}"
        report_orphan(head, "commit", reason, findings)


def _judge_removal(head: EntryHead, commit: DeltaCommit, findings: Findings) -> None:
    """A repair's removal of doubled rows: as many rows taken away and put back as its entry says, and no others."""
    counts = (commit.metric("numTargetRowsDeleted"), commit.metric("numTargetRowsInserted"))
    changed = commit.metric("numTargetRowsUpdated")
    if commit.is_merge and not changed and None not in counts and counts == (head.rows_removed, head.rows_written):
        return
    deleted, inserted = ("an unknown number" if count is None else f"{count:,}" for count in counts)
    reason = (
        f"the ledger claims {head.rows_removed or 0:,} rows removed and {head.rows_written or 0:,} put back, and "
        f"version {commit.version} ({commit.operation}) removed {deleted} and put back {inserted}"
    )
    report_orphan(head, "commit", reason, findings)


def _other_write(ledger: LedgerSlice, entry: int, commit: DeltaCommit) -> str:
    """Why the commit that an entry claims is another write's; "" where it is the entry's own."""
    head, stamp = ledger.heads[entry], commit.stamp
    if stamp is None or (stamp.epoch, stamp.batch_id) != (head.epoch, head.batch_id):
        carries = f"is stamped for micro-batch {stamp.batch_id} (epoch {stamp.epoch})" if stamp else "has no stamp"
        return f"version {commit.version}, which the ledger claims, {carries} ({commit.operation})"
    if not stamp.is_of(ledger.pipeline, ledger.sink):
        return f"version {commit.version}, which the ledger claims, is a write of {stamp.label}"
    if not same_offsets(ledger, entry, stamp):
        return f"version {commit.version} carries other offset ranges than the ledger"
    return ""


def _reported(commit: DeltaCommit) -> int | None:
    """The rows of a write by its metrics, which a retried stage may inflate."""
    return commit.metric("numOutputRows") if commit.operation.upper().startswith("WRITE") else None


def _report_metrics(commits: Sequence[DeltaCommit], findings: Findings) -> None:
    """Metrics that contradict the files of a commit, and commits that have no counts."""
    unreliable = [
        f"version {commit.version} (numOutputRows {_reported(commit):,}, files hold {commit.rows_added:,})"
        for commit in commits
        if commit.rows_added is not None and _reported(commit) not in (None, commit.rows_added)
    ]
    merged = [f"version {c.version} ({growth})" for c in commits if c.is_merge and (growth := _other_growth(c))]
    uncounted = [str(commit.version) for commit in commits if commit.rows_taken is None]
    no_counts = f"{plural(len(uncounted), 'commit')} carry neither file statistics nor metrics of rows, so their rows"
    for sentence, versions in (
        ("operation metrics contradict the files added, which were believed:", unreliable),
        ("the metrics of a MERGE contradict its files, so that its rows cannot be compared exactly:", merged),
        (f"{no_counts} could not be compared: version", uncounted),
    ):
        if versions:
            findings.add(Code.METRIC_UNRELIABLE, f"{sentence} {some(versions)}")


def _other_growth(merge: DeltaCommit) -> str:
    """How a MERGE's metrics contradict what its files say of how the table grew; "" where they agree."""
    inserted, deleted = merge.metric("numTargetRowsInserted"), merge.metric("numTargetRowsDeleted")
    added, removed = merge.rows_added, merge.rows_removed
    if inserted is None or deleted is None or added is None or removed is None:
        return ""
    by_metrics, by_files = inserted - deleted, added - removed
    return "" if by_metrics == by_files else f"inserted less deleted {by_metrics:,}, its files gained {by_files:,} rows"


# -- commits without an entry, commits too many, commits that are gone ---------------------------------------------


def _judge_commits(witnesses: Witnesses, history: TableHistory, findings: Findings) -> None:
    """Stamped commits of this sink that no entry records, and micro-batches that were committed twice."""
    for missing in unrecorded(witnesses):
        report_unrecorded(f"version {missing.version}", missing.stamp, findings, observed=witnesses.observed)
    _report_unseen(history.unseen(history.looked_up_to), findings)
    claimed = _claimed(history)
    newest = {(stamp.epoch, stamp.batch_id): (commit, stamp) for commit, stamp in history.own}
    for number, (commit, stamp) in newest.items():
        versions = {*history.standing.get(number, ())}
        # A version that entries claim counts, though its log is no longer read, or it has no rows; one that a RESTORE
        # undid does not.
        versions |= {version for version in claimed.get(number, ()) if versions and history.stands(version)}
        if commit.version <= history.looked_up_to or len(versions) < 2 or _is_cleaned(history, stamp, max(versions)):
            continue
        findings.add(
            Code.DUPLICATE,
            f"{named(stamp)} was committed {len(versions)} times, as versions {some(sorted(versions))}: its rows "
            + (
                "of the same offsets are doubled; compare the versions, and remove what is there twice"
                if witnesses.placed_by_rows
                else "are doubled; remove those of one version"
            ),
            head=stamp,
        )


def _report_unseen(commits: Sequence[DeltaCommit], findings: Findings) -> None:
    """Micro-batches that Spark wrote without recon, and of which nobody knows what they read."""
    numbers = sorted(commit.wrote[1] for commit in commits if commit.wrote is not None)
    if numbers:
        findings.add(
            Code.INCONCLUSIVE,
            f"{plural(len(numbers), 'micro-batch')} written without recon (batch_id {some(numbers)}) had no plan "
            "in the checkpoint when recon looked: what was read into them is not known; let `recon observe "
            "--every 60s` run beside the stream, or audit before Spark has written 100 micro-batches more",
            batch_id=numbers[-1],
        )


def _is_cleaned(history: TableHistory, stamp: ReconStamp, version: int) -> bool:
    """Whether repairs looked at every offset of a write after a version, and removed the doubled rows."""
    ledger, heads = history.ledger, enumerate(history.heads)
    numbers = [(i, head.sink_version) for i, head in heads if head.is_removal and head.sink_version is not None]
    standing = [i for i, number in numbers if number > version and history.stands(number)]
    return ledger is not None and looked_at_all([span for i in standing for span in ledger.ranges.of(i)], stamp)


def _claimed(history: TableHistory) -> Mapping[tuple[int, int], set[int]]:
    """The versions of this table that entries claim, by (epoch, batch_id)."""
    claimed: dict[tuple[int, int], set[int]] = {}
    heads = ((h.epoch, h.batch_id, h.sink_version) for h in history.heads if history.in_this_table(h))
    for epoch, batch_id, version in (*heads, *(history.ledger.recorded if history.ledger is not None else ())):
        commit = history.log.commits.get(version) if version is not None else None
        stamp = commit.stamp if commit is not None else None
        of_another = stamp is not None and (stamp.epoch, stamp.batch_id) != (epoch, batch_id)
        if version is not None and not of_another:
            claimed.setdefault((epoch, batch_id), set()).add(version)
    return claimed


def _report_version_gaps(delta: DeltaWitness, findings: Findings) -> None:
    if delta.line is not None:
        return  # numbers that attempts took which were never published
    missing = [
        f"{before + 1}" if after == before + 2 else f"{before + 1} to {after - 1}"
        for before, after in pairwise(sorted(delta.commits))
        if after > before + 1
    ]
    if missing and delta.last is not None:
        findings.add(
            Code.INCONCLUSIVE,
            f"{delta.location}/_delta_log has no commit file for version {some(missing)}, though older ones are there: "
            "what those commits did is not known; restore the files from a copy",
            about=f"no commit file {exactly(missing)}",
        )


def _judge_rows(rows: TableRows | None, witnesses: Witnesses, history: TableHistory, findings: Findings) -> None:
    """Rows that the table lacks or has too many, and that no commit of the log took away or added."""
    if rows is None:
        return
    # source_rows looks at the rows of all micro-batches of the ledger, or the audit proves nothing new.
    whole, delta = history.is_complete or witnesses.period_to < witnesses.now, history.log
    if rows.unknown:
        _report_not_compared(rows, witnesses, history, findings, whole=whole)
        return
    counted = "the ledger" if rows.since < 0 else f"the audit up to version {rows.since}, and the ledger since,"
    if rows.held > rows.accounted and not whole:
        findings.add(
            Code.INCONCLUSIVE,
            f"{delta.location} had {plural(rows.held, 'row')} before version {rows.version}, and {counted} accounts "
            f"for {rows.accounted:,}: others were added by commits that are cleaned up from the log, and whether they "
            "double rows is not known; `recon audit --full` looks at the rows of all micro-batches",
            about=f"before version {rows.version} {rows.held} rows, {rows.accounted} since {rows.since}",
        )
    elif rows.missing:
        # Before which version it had how many rows changes as more of the log is cleaned up, and is in the evidence.
        gone, one = plural(rows.missing, "row"), rows.missing == 1
        findings.add(
            Code.MUTATED,
            f"{delta.location} lacks {gone} that {counted} accounts for: commits that are cleaned up from the log took "
            f"{'it' if one else 'them'} away; find out who ran a DELETE, a RESTORE or an overwrite",
            about=f"{rows.missing} rows since {rows.since}",
            changed_by=(),
        )
        findings.add(
            Code.GAP,
            f"{gone} that {'was' if one else 'were'} written to {delta.location}, and that {counted} accounts for, "
            f"{'is' if one else 'are'} gone, and the log no longer shows why; source_rows names the offsets",
            about=f"{rows.missing} rows since {rows.since}",
            rows=rows.missing,
            changed_by=(),
        )


def _report_not_compared(
    rows: TableRows, witnesses: Witnesses, history: TableHistory, findings: Findings, *, whole: bool
) -> None:
    unknown = (
        f"the rows of {history.log.location} could not be compared with those of the ledger: {rows.unknown}; its log "
        f"begins at version {rows.version}, and what was done to rows before is not known"
    )
    if whole:
        findings.add(Code.METRIC_UNRELIABLE, unknown)
        _report_uncounted(witnesses, history, findings)
    else:
        message = f"{unknown}; `recon audit --full` looks at the rows of all micro-batches"
        findings.add(Code.INCONCLUSIVE, message, about=f"rows before version {rows.version} not counted")


def _report_uncounted(witnesses: Witnesses, history: TableHistory, findings: Findings) -> None:
    """Restored entries of a query that makes several rows of a record: no count shows which of their rows are gone.

    One finding for all, which names each: who accepted that nobody counted them did not accept what was done to them.
    """
    judged = history.heads[len(history.anchors) :]
    restored = [head for head in judged if head.is_uncounted and not head.is_observed]
    if restored and witnesses.declared.explodes:
        findings.add(
            Code.INCONCLUSIVE,
            f"commits of others that are cleaned up from the log of {history.log.location} may have replaced rows of "
            f"restored entries ({every_number(restored)}), of which it is not known how many rows the sink was given; "
            "compare them with the source, then accept it",
            about=f"restored {every_number(restored)}",
        )


def _report_never_read(witnesses: Witnesses, history: TableHistory, findings: Findings) -> None:
    log = history.log
    if never_read := commits_never_read(witnesses, history):
        findings.add(
            Code.INCONCLUSIVE,
            f"the {log.words.table} at {log.location} no longer shows {never_read}, which no audit had read. Whether "
            "rows were taken away there is not known: micro-batches replace rows, so that their number does "
            "not tell. Compare the table with its source, then accept this, and audit within the log's retention",
            about=f"not read: {never_read}",
            changed_by=(),
        )


# -- retention --------------------------------------------------------------------------------------------------------


def _report_retention(witnesses: Witnesses, delta: DeltaWitness, findings: Findings) -> None:
    if delta.whole:
        return
    previous = known(witnesses.previous)
    # A log that still has its first version lost nothing, however long ago the period began.
    begin = witnesses.period_from if delta.first_retained != 0 else None
    spans: Mapping[str, timedelta | None] = {
        "the previous audit": witnesses.now - previous.generated_at if previous else None,
        "the begin of the period": witnesses.now - begin if begin else None,
    }
    kept = timedelta(days=delta.log_retention_days)
    for what, since in spans.items():
        if since is not None and since > kept:
            findings.add(
                Code.RETENTION_NEAR,
                f"{delta.location} keeps its log for {kept / timedelta(days=1):g} days ({delta.words.retention}), "
                f"and {what} is {since / timedelta(days=1):.1f} days ago: commits may have been cleaned up unseen; "
                "audit more often, or keep the log longer",
            )
            return
