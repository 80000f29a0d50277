"""delta_history: every ledger entry has its commit, and no other commit changed audited rows."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import ClassVar

from typing_extensions import override

from recon.checks.base import EvidenceCheck
from recon.checks.evidence.coverage import FirstReaders, coverage, texts_of_ranges, widths
from recon.checks.evidence.findings import Findings, ledger_of, named, no_entries, offsets, quiet
from recon.checks.evidence.table_history import (
    alive,
    changes_rows,
    is_restore,
    judged_since,
    metric,
    restored_version,
    rows_lost,
    wipes,
)
from recon.lazy import np
from recon.model import (
    RELEASES,
    Code,
    DeltaCommit,
    DeltaWitness,
    EntryHead,
    LedgerSlice,
    RangeTable,
    Unavailable,
    Verdict,
    Witnesses,
    same_ranges,
)
from recon.model.offsets import Spans
from recon.text import plural, some

_EDGE = timedelta(minutes=5)  # how long after its data commit a ledger entry may come, at the end of a period
_TOLD = 20  # unusual micro-batches named one by one


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

    Codes:
        LEDGER_ORPHAN: an entry whose commit is not there, or carries another stamp, other ranges or other row counts.
        DUPLICATE: two commits carry one (epoch, batch_id).
        LEDGER_MISSING: a stamped commit without an entry (warns); the next start of the query or `recon ledger
            rebuild` restores it.
        MUTATED: RESTORE below an audited commit, DELETE, UPDATE, MERGE, TRUNCATE or an overwrite after it. With it GAP:
            the ranges of every micro-batch that was undone whole; for a DELETE of some rows one GAP without
            offsets that says how many rows (which ones, only source_rows finds out). A RESTORE that was itself undone
            counts for nothing.
        UNSTAMPED: a commit of somebody else added rows (warns).
        METRIC_UNRELIABLE: numOutputRows contradicts the files added, a MERGE's metrics contradict how the files say
            the table grew, or a commit has no row counts at all (warns).
        ATTESTED_ONLY: the commit's file was cleaned up, so the ledger alone attests the micro-batch (warns).
        RETENTION_NEAR: the log is kept for less time than lies between audits (warns).
        UNUSUAL: a micro-batch has far more or fewer rows than the others (warns).
        INCONCLUSIVE: commit files are missing in the middle of the log, or a RESTORE does not say to which version.
        EMPTY: entries without offsets, rows and commit; they explain and do not fail.

    OPTIMIZE, VACUUM and changes of schema or properties change no rows and are no findings.
    """

    test: ClassVar[str] = "delta_history"
    needs: ClassVar[Sequence[str]] = ("ledgers", "delta")
    scope: ClassVar[str] = "sink"

    history: int = 20
    deviations: float = 8.0
    factor: float = 3.0

    @override
    def judge(self, witnesses: Witnesses) -> Verdict:
        ledger = ledger_of(witnesses)
        if isinstance(witnesses.delta, Unavailable):
            return Verdict(unproved=witnesses.delta.reason)
        delta = witnesses.delta.get(witnesses.sink or "")
        if delta is None:
            return Verdict(unproved=f"the Delta log of sink {witnesses.sink} was not read")
        findings = Findings.of(witnesses)
        if ledger is None:
            _report_missing(witnesses, delta, LedgerSlice("", "", (), _no_ranges()), findings)
            return findings.verdict("") if findings.found else no_entries(witnesses)
        _judge_entries(ledger, delta, findings)
        _report_version_gaps(delta, findings)
        _report_missing(witnesses, delta, ledger, findings)
        _judge_changes(ledger, delta, findings)
        _report_retention(witnesses, delta, findings)
        self._report_unusual(ledger, findings)
        judged = len(ledger.heads) - ledger.anchors
        message = f"{plural(judged, 'ledger entry')} and their commits agree on ranges and rows"
        first, last = min(delta.commits, default=None), max(delta.commits, default=None)
        return findings.verdict(
            message if judged else quiet(ledger), entries=judged, commits=len(delta.commits), versions=[first, last]
        )

    def _report_unusual(self, ledger: LedgerSlice, findings: Findings) -> None:
        seen = [
            (i, head.rows_written)
            for i, head in enumerate(ledger.heads)
            if head.status != "already_committed" and not head.is_release
        ]
        counted = [(i, rows) for i, rows in seen if rows]
        if len(counted) < max(self.history, 1):
            return
        rows = np.array([count for _, count in counted], np.float64)
        median = float(np.median(rows))
        spread = 1.4826 * float(np.median(np.abs(rows - median)))
        far = np.abs(rows - median) > self.deviations * spread
        many, few = rows >= self.factor * median, rows <= median / self.factor
        unusual = [counted[i] for i in np.flatnonzero(far & (many | few)).tolist() if counted[i][0] >= ledger.anchors]
        for entry, count in unusual[:_TOLD]:
            head = ledger.heads[entry]
            findings.add(
                Code.UNUSUAL,
                f"{named(head)} wrote {plural(count, 'row')}, where the median of {len(counted):,} micro-batches is "
                f"{median:,.0f}; look at what the source sent at {head.started_at:%Y-%m-%d %H:%M:%S}Z",
                head=head,
            )
        if len(unusual) > _TOLD:
            findings.add(Code.UNUSUAL, f"{len(unusual) - _TOLD} more micro-batches have unusual row counts")


# -- entries and their commits -----------------------------------------------------------------------------------


def _judge_entries(ledger: LedgerSlice, delta: DeltaWitness, findings: Findings) -> None:
    if not delta.exists:
        _report_no_table(ledger, delta, findings)
        return
    text_of = texts_of_ranges(ledger)
    width = widths(ledger)
    empty: list[EntryHead] = []
    attested: list[EntryHead] = []
    unreliable: list[str] = []
    merged: list[str] = []
    uncounted: list[int] = []
    for i in range(ledger.anchors, len(ledger.heads)):
        head = ledger.heads[i]
        version = head.sink_version
        commit = delta.commits.get(version) if version is not None else None
        if commit is None:
            if head.rows_written == 0 and width[i] == 0:
                empty.append(head)
            elif version is not None and delta.first_retained is not None and version < delta.first_retained:
                attested.append(head)
            elif version is None or delta.last is None or version > delta.last:
                claimed = f"version {version}" if version is not None else "no version at all"
                ends = f"ends at version {delta.last}"
                _orphan(head, f"the ledger claims {claimed} of {delta.location}, whose log {ends}", findings)
            continue  # a version missing in between is reported once for all
        stamp = commit.stamp
        if stamp is None or (stamp.epoch, stamp.batch_id) != (head.epoch, head.batch_id):
            carries = f"is stamped for micro-batch {stamp.batch_id} (epoch {stamp.epoch})" if stamp else "has no stamp"
            _orphan(head, f"version {version}, which the ledger claims, {carries} ({commit.operation})", findings)
            continue
        if stamp.offsets_text != text_of(i) and not same_ranges(stamp.offsets_text, text_of(i)):
            _orphan(head, f"version {version} carries other offset ranges than the ledger", findings)
            continue
        reported = metric(commit, "numOutputRows") if commit.operation.upper().startswith("WRITE") else None
        if commit.rows_added is not None and reported not in (None, commit.rows_added):
            unreliable.append(f"version {version} (numOutputRows {reported:,}, files hold {commit.rows_added:,})")
        if (grown := _grown(commit)) is not None:
            merged.append(f"version {version} ({grown})")
        truth = commit.rows_taken
        if truth is None:
            uncounted.append(commit.version)
        elif head.rows_written not in (None, truth, reported):
            _orphan(
                head, f"the ledger claims {head.rows_written:,} rows and version {version} holds {truth:,}", findings
            )
    _fold(Code.EMPTY, empty, lambda n: f"{plural(n, 'micro-batch')} without offsets, rows and commit", findings)
    _fold(
        Code.ATTESTED_ONLY,
        attested,
        lambda n: (
            f"the commits of {plural(n, 'micro-batch')} were cleaned up from the log (it begins at version "
            f"{delta.first_retained}): the ledger alone attests them; audit within the log's retention"
        ),
        findings,
    )
    if unreliable:
        findings.add(
            Code.METRIC_UNRELIABLE,
            f"operation metrics contradict the files added, which were believed: {some(unreliable)}",
        )
    if merged:
        findings.add(
            Code.METRIC_UNRELIABLE,
            f"the metrics of a MERGE contradict its files, so that its rows cannot be compared exactly: {some(merged)}",
        )
    if uncounted:
        findings.add(
            Code.METRIC_UNRELIABLE,
            f"{plural(len(uncounted), 'commit')} carry neither file statistics nor metrics of rows, so their rows "
            f"could not be compared: version {some(uncounted)}",
        )


def _grown(commit: DeltaCommit) -> str | None:
    """How a MERGE's metrics contradict what its files say of how the table grew; None where they agree."""
    inserted, deleted = (metric(commit, f"numTargetRows{what}") for what in ("Inserted", "Deleted"))
    if not commit.is_merge or None in (inserted, deleted, commit.rows_added, commit.rows_removed):
        return None
    assert inserted is not None and deleted is not None  # the other cases returned above
    assert commit.rows_added is not None and commit.rows_removed is not None
    by_metrics, by_files = inserted - deleted, commit.rows_added - commit.rows_removed
    return (
        None if by_metrics == by_files else f"inserted less deleted {by_metrics:,}, its files gained {by_files:,} rows"
    )


def _orphan(head: EntryHead, reason: str, findings: Findings) -> None:
    findings.add(
        Code.LEDGER_ORPHAN,
        f"{named(head)} has a ledger entry without the commit that belongs to it: {reason}",
        head=head,
    )


def _report_no_table(ledger: LedgerSlice, delta: DeltaWitness, findings: Findings) -> None:
    claimed = len(ledger.heads) - ledger.anchors
    findings.add(
        Code.LEDGER_ORPHAN,
        f"there is no Delta table at {delta.location}, and the ledger claims {plural(claimed, 'commit')} in it for the "
        "period: it was removed or moved; correct the sink's target in recon.yml, or restore the table",
    )


def _fold(code: Code, heads: Sequence[EntryHead], reason: Callable[[int], str], findings: Findings) -> None:
    if heads:
        only = heads[0] if len(heads) == 1 else None
        findings.add(code, f"{reason(len(heads))}: batch_id {some(head.batch_id for head in heads)}", head=only)


# -- commits without an entry, commits too many, commits that are gone ---------------------------------------------


def _report_missing(witnesses: Witnesses, delta: DeltaWitness, ledger: LedgerSlice, findings: Findings) -> None:
    """Stamped commits of this sink that no entry records, and those that one entry has twice."""
    known = {(head.epoch, head.batch_id) for head in ledger.heads}
    # Of the releases before the period only the newest is in the slice; the others are the business of earlier audits.
    released = max((head.batch_id for head in ledger.heads[: ledger.anchors] if head.is_release), default=-1)
    begin = witnesses.period_from
    since, last = (
        judged_since(ledger),
        max((h.sink_version for h in ledger.heads if h.sink_version is not None), default=-1),
    )
    still = alive(delta)
    commits: dict[tuple[int, int], list[DeltaCommit]] = {}
    for version in sorted(delta.commits):
        commit = delta.commits[version]
        stamp = commit.stamp
        if stamp is not None and (stamp.pipeline, stamp.sink) == (witnesses.pipeline, witnesses.sink):
            commits.setdefault((stamp.epoch, stamp.batch_id), []).append(commit)
    for (epoch, batch_id), mine in commits.items():
        newest = mine[-1]
        earlier = epoch == RELEASES and batch_id < released and begin is not None and newest.timestamp < begin
        entered = earlier or (epoch, batch_id) in known
        unknown = not entered and newest.version > since
        if unknown and not _after_the_period(newest, last, witnesses):
            findings.add(
                Code.LEDGER_MISSING,
                f"version {newest.version} holds {_written(epoch, batch_id)}, and the ledger has no entry of it; the "
                "query's next start, or `recon ledger rebuild`, restores it",
                epoch=epoch,
                batch_id=batch_id,
            )
        twice = [c for c in mine if c.data_change and c.rows_taken != 0 and c.version in still]
        if len(twice) > 1 and newest.version > since:
            findings.add(
                Code.DUPLICATE,
                f"{_written(epoch, batch_id)} was committed {len(twice)} times, as versions "
                f"{some(c.version for c in twice)}: its rows are doubled; remove those of one version",
                epoch=epoch,
                batch_id=batch_id,
            )


def _written(epoch: int, batch_id: int) -> str:
    return f"release {batch_id} from quarantine" if epoch == RELEASES else f"micro-batch {batch_id} (epoch {epoch})"


def _after_the_period(commit: DeltaCommit, last_known: int, witnesses: Witnesses) -> bool:
    """A commit that this audit's slice of the ledger need not know: the entry comes a moment after the commit."""
    if commit.timestamp > witnesses.now:
        return True
    bounded = witnesses.period_to < witnesses.now
    return bounded and commit.version > last_known and commit.timestamp > witnesses.period_to - _EDGE


def _report_version_gaps(delta: DeltaWitness, findings: Findings) -> None:
    if not delta.commits or delta.last is None:
        return
    versions = sorted(delta.commits)
    missing = []
    for before, after in zip(versions, [*versions[1:], None], strict=True):
        if after is not None and after > before + 1:
            missing.append(f"{before + 1}" if after == before + 2 else f"{before + 1} to {after - 1}")
    if missing:
        findings.add(
            Code.INCONCLUSIVE,
            f"{delta.location}/_delta_log has no commit file for version {some(missing)}, though older ones are there: "
            "what those commits did is not known; restore the files from a copy",
        )


# -- changes to what was audited ------------------------------------------------------------------------------------


def _judge_changes(ledger: LedgerSlice, delta: DeltaWitness, findings: Findings) -> None:
    audited = {head.sink_version: head for head in ledger.heads if head.sink_version is not None}
    if not audited:
        return
    first = judged_since(ledger) if not ledger.complete else min(audited)
    still = alive(delta)
    versions = sorted(audited)
    standing = [version for version in versions if version in still]
    wiped_by: DeltaCommit | None = None
    strangers: list[DeltaCommit] = []
    undone: list[DeltaCommit] = []
    for version in sorted(delta.commits):
        commit = delta.commits[version]
        if version <= first or version not in still:
            continue
        if is_restore(commit):
            undone.append(commit)
        elif changes_rows(commit):
            if before := bisect_left(standing, version):
                _report_mutation(commit, standing[0], standing[before - 1], findings)
            wiped_by = commit if wipes(commit) and rows_lost(commit) != 0 else wiped_by
        elif commit.stamp is None and commit.data_change:
            strangers.append(commit)
    for commit in undone:
        target = restored_version(commit)
        after = bisect_right(versions, commit.version if target is None else target)
        lost = versions[after : bisect_left(versions, commit.version)]
        if target is None:
            findings.add(
                Code.INCONCLUSIVE,
                f"version {commit.version} is a RESTORE to a point in time, so which commits it undid is not known; "
                "see DESCRIBE HISTORY",
            )
        elif lost:
            commits = f"{plural(len(lost), 'audited commit')} (version {some(lost)})"
            findings.add(
                Code.MUTATED,
                f"version {commit.version} is a RESTORE to version {target}, which undid {commits}; a "
                "restart does not write them again: read their ranges once more",
                head=audited[lost[0]] if len(lost) == 1 else None,
            )
    below = wiped_by.version if wiped_by is not None else -1
    gone = {
        i
        for i, head in enumerate(ledger.heads)
        if head.sink_version is not None
        and (head.sink_version < below or head.sink_version not in still)
        and head.sink_version in delta.commits
    }
    if gone:
        _report_gone(ledger, gone, findings)
    if strangers:
        counts = [commit.rows_added for commit in strangers]
        known = [count for count in counts if count is not None]
        rows = plural(sum(known), "row") if len(known) == len(counts) else "an unknown number of rows"
        what = some(f"{c.version} ({c.operation or 'no operation'})" for c in strangers)
        findings.add(
            Code.UNSTAMPED,
            f"{plural(len(strangers), 'commit')} added {rows} without recon's mark: version {what}; another program "
            "writes to this table",
        )


def _report_mutation(commit: DeltaCommit, first: int, last: int, findings: Findings) -> None:
    """A commit that changed rows after the audited versions from `first` to `last`."""
    lost = rows_lost(commit)
    rows = "an unknown number of rows" if lost is None else plural(lost, "row")
    what = commit.operation + (f" with mode {mode}" if (mode := commit.operation_parameters.get("mode")) else "")
    findings.add(
        Code.MUTATED,
        f"version {commit.version} is {what}, which changed rows after the audited versions {first} to "
        f"{last} and took away {rows}; find out who ran it at {commit.timestamp:%Y-%m-%d %H:%M:%S}Z",
    )
    if lost != 0 and not wipes(commit):
        findings.add(
            Code.GAP,
            f"{rows} of the audited versions {first} to {last} are gone since version {commit.version} "
            f"({commit.operation}); source_rows names their offsets",
        )


def _report_gone(ledger: LedgerSlice, gone: set[int], findings: Findings) -> None:
    """GAPs with the ranges of micro-batches that were undone whole and not written again."""
    lost = coverage(_only(ledger, gone))
    kept = coverage(_only(ledger, set(range(len(ledger.heads))) - gone))
    again: dict[tuple[object, str | None], Spans] = {
        (key, incarnation.topic_id): incarnation.walked.covered
        for key, incarnations in kept.incarnations.items()
        for incarnation in incarnations
    }
    for key, incarnations in lost.incarnations.items():
        for incarnation in incarnations:
            left = incarnation.walked.covered.minus(again.get((key, incarnation.topic_id), Spans()))
            readers = FirstReaders(incarnation.stretches)
            for start, end in left:
                ((place, _),) = readers.cut(Spans.of([(start, start + 1)]))
                head = ledger.heads[lost.entry_at(incarnation.stretches[place], start)]
                findings.add(
                    Code.GAP,
                    f"{key}: {offsets(start, end)} are no longer in the table: the commits from {named(head)} on were "
                    "undone, and a restart does not read them again",
                    head=head,
                    topic=key.topic,
                    partition=key.partition,
                    start_offset=start,
                    end_offset=end,
                )


def _only(ledger: LedgerSlice, entries: Iterable[int]) -> LedgerSlice:
    """The slice with the ranges of some entries."""
    table = ledger.ranges
    mine = np.isin(table.entry, np.array(sorted(entries), np.int64))
    ranges = RangeTable(
        table.entry[mine], table.topic[mine], table.partition[mine], table.start[mine], table.end[mine], table.topics
    )
    return replace(ledger, ranges=ranges, anchors=0, complete=True)


def _no_ranges() -> RangeTable:
    none = np.zeros(0, np.int64)
    return RangeTable(none, none.astype(np.int32), none, none, none, ())


# -- retention --------------------------------------------------------------------------------------------------------


def _report_retention(witnesses: Witnesses, delta: DeltaWitness, findings: Findings) -> None:
    spans: Mapping[str, timedelta | None] = {
        "the previous audit": witnesses.now - witnesses.previous.generated_at if witnesses.previous else None,
        "the begin of the period": witnesses.now - witnesses.period_from if witnesses.period_from else None,
    }
    kept = timedelta(days=delta.log_retention_days)
    for what, since in spans.items():
        if since is not None and since > kept:
            findings.add(
                Code.RETENTION_NEAR,
                f"{delta.location} keeps its log for {kept / timedelta(days=1):g} days (delta.logRetentionDuration), "
                f"and {what} is {since / timedelta(days=1):.1f} days ago: commits may have been cleaned up unseen; "
                "audit more often, or keep the log longer",
            )
            return
