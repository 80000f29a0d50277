"""Commits of a Delta table that changed or undid audited rows."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace

from recon.judge.coverage import FirstReaders, coverage
from recon.judge.findings import Findings, commit_of, exactly, named
from recon.judge.history.table_history import TableHistory, rows_lost, wipes
from recon.lazy import np
from recon.model import Code, DeltaCommit, EntryHead, LedgerSlice, ReconStamp
from recon.model.offsets import Span, Spans
from recon.text import plural, some

_CHANGED_BY = 5  # versions that one finding names


def judge_changes(history: TableHistory, findings: Findings, *, by_rows: bool = False) -> None:
    """Adds findings for commits after the first audited one that are not recon's, and for the ranges they undid."""
    if all(head.sink_version is None for head in history.heads):
        return
    for commit in history.removals:
        if history.oldest_standing < commit.version:
            _report_mutation(commit, findings)
    for commit in history.judged:
        if commit.is_restore:
            _report_restore(commit, history.written, findings)
            _report_unnamed(commit, history, findings)
    if history.rolled_back:
        _report_rollback(history, findings)
    _report_undone(history, findings)
    if history.strangers:
        _report_strangers(history.strangers, findings, by_rows=by_rows)


def _report_mutation(commit: DeltaCommit, findings: Findings) -> None:
    """A commit that changed rows of the ledger's commits."""
    lost = rows_lost(commit)
    rows = "an unknown number of rows" if lost is None else plural(lost, "row")
    what = commit.operation + (f" with mode {mode}" if (mode := commit.operation_parameters.get("mode")) else "")
    findings.add(
        Code.MUTATED,
        f"version {commit.version} is {what}, which changed rows that were written before and took away {rows}; find "
        f"out who ran it at {commit.timestamp:%Y-%m-%d %H:%M:%S}Z",
        about=commit_of(commit),
        changed_by=(commit.version,),
    )
    if lost != 0 and not wipes(commit):
        findings.add(
            Code.GAP,
            f"{rows} {'is' if lost == 1 else 'are'} gone since version {commit.version} ({commit.operation} at "
            f"{commit.timestamp:%Y-%m-%d %H:%M:%S}Z); source_rows names their offsets",
            about=commit_of(commit),
            rows=lost,
            changed_by=(commit.version,),
        )


def _report_restore(commit: DeltaCommit, written: Mapping[int, EntryHead | ReconStamp], findings: Findings) -> None:
    """A RESTORE; `written` are the versions that wrote rows of the sink."""
    target = commit.restored_version
    if target is None:
        findings.add(
            Code.INCONCLUSIVE,
            f"version {commit.version} is a RESTORE to a point in time, so which commits it undid is not known; "
            "see DESCRIBE HISTORY",
            about=commit_of(commit),
        )
        return
    undone = sorted(version for version in written if target < version < commit.version)
    # All that lie between, since the next audit may know fewer of them as audited: it is the same finding.
    last = commit.version - 1
    only = last == target + 1
    versions = (
        f"version {last}, a write of the query"
        if only
        else f"versions {target + 1} to {last}, writes of the query among them"
    )
    if undone:
        findings.add(
            Code.MUTATED,
            f"version {commit.version} is a RESTORE to version {target}, which undid {versions}; "
            "a restart does not write them again: read their ranges once more",
            about="" if only else commit_of(commit),
            head=written[undone[0]] if only else None,
            changed_by=(commit.version,),
        )


def _report_unnamed(commit: DeltaCommit, history: TableHistory, findings: Findings) -> None:
    """A RESTORE to before the entries of this audit: what it undid of earlier ones, their ranges do not name."""
    target, first = commit.restored_version, min(history.claimed, default=commit.version)
    if history.is_complete or target is None or commit.version <= history.known_version:
        return
    own = {of.version for of, _ in history.own}
    between = range(target + 1, min(first, commit.version))
    if any(version in own or version not in history.log.commits for version in between):
        findings.add(
            Code.GAP,
            f"rows of micro-batches before the period are gone since version {commit.version}, a RESTORE to version "
            f"{target}; `recon audit --full` names their offsets",
            about=f"before the period, {commit_of(commit)}",
            changed_by=(commit.version,),
        )


def _report_rollback(history: TableHistory, findings: Findings) -> None:
    """Audited versions that the newest one does not descend from."""
    log, undone = history.log, history.rolled_back
    findings.add(
        Code.MUTATED,
        f"{log.location} was rolled back or replaced: its version {log.last} does not descend from "
        f"{plural(len(undone), 'audited commit')} (version {some(undone)}); a restart does not write them again: find "
        "out who did it, and read their ranges once more",
        about="" if len(undone) == 1 else f"versions {exactly(undone)}",
        head=history.claimed[undone[0]] if len(undone) == 1 else None,
        changed_by=(),
    )


def _report_undone(history: TableHistory, findings: Findings) -> None:
    """The ranges of entries whose commits were undone, or wiped."""
    gone, ledger = history.gone, history.ledger
    if gone and ledger is not None:
        by = [commit.version for commit in history.judged if commit.is_restore or wipes(commit)]
        of_gone = [head.sink_version in gone and history.in_this_table(head) for head in ledger.heads]
        report_gone(ledger, of_gone, "were undone", findings, by)


def report_gone(
    ledger: LedgerSlice, gone: Sequence[bool], what: str, findings: Findings, by: Sequence[int] = ()
) -> None:
    """GAPs with the ranges of entries whose rows are gone whole and were not written again.

    `gone` says it of each entry; `what` happened to the commits from an entry on, in a sentence; `by` are the versions
    that may have done it, ascending, of which a finding names the first few.
    """
    of_gone = np.array(gone)[ledger.ranges.entry]
    lost, kept = (
        coverage(replace(ledger, ranges=ledger.ranges.take(which), anchors=0, complete=True))
        for which in (of_gone, ~of_gone)
    )
    again = {
        (key, incarnation.topic_id): incarnation.walked.covered
        for key, incarnations in kept.incarnations.items()
        for incarnation in incarnations
    }
    for key, incarnations in lost.incarnations.items():
        for incarnation in incarnations:
            left = incarnation.walked.covered.minus(again.get((key, incarnation.topic_id), Spans()))
            readers = FirstReaders(incarnation.stretches)
            for span in left:
                ((place, _),) = readers.cut(Spans((Span(span.start, span.start + 1),)))
                head = ledger.heads[lost.entry_at(incarnation.stretches[place], span.start)]
                after = 0 if head.sink_version is None else bisect_right(by, head.sink_version)
                findings.add(
                    Code.GAP,
                    f"{key}: {key.offsets(*span)} are no longer in the table: the commits from {named(head)} on "
                    f"{what}, and a restart does not read them again",
                    head=head,
                    key=key,
                    span=span,
                    changed_by=tuple(by[after : after + _CHANGED_BY]),
                )


def _report_strangers(commits: Sequence[DeltaCommit], findings: Findings, *, by_rows: bool) -> None:
    """`by_rows` is whether nothing but rows says which commits are the query's own."""
    counts = [commit.rows_added for commit in commits if commit.rows_added is not None]
    rows = plural(sum(counts), "row") if len(counts) == len(commits) else "an unknown number of rows"
    what = some(f"{c.version} ({c.operation or 'no operation'})" for c in commits)
    findings.add(
        Code.UNSTAMPED,
        f"{plural(len(commits), 'commit')} added {rows} "
        + ("that were taken for no micro-batch" if by_rows else "without recon's mark")
        + f": version {what}; another program writes to this table"
        + (", or the function at another time" if by_rows else ""),
    )
