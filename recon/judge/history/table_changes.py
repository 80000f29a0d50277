"""Commits of a Delta table that changed or undid audited rows."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace

from recon.base.lazy import np
from recon.base.text import plural, some
from recon.judge.coverage import FirstReaders, coverage
from recon.judge.findings import Findings, commit_of, exactly
from recon.judge.history.table_history import TableHistory, rows_in_all, rows_lost, wipes
from recon.model import Code, LedgerSlice, TableCommit, Unavailable
from recon.model.deletion import Deletion, places_of, size_of
from recon.model.ledger import named
from recon.model.offsets import Span, Spans

_CHANGED_BY = 5  # versions that one finding names


def judge_changes(
    history: TableHistory, findings: Findings, lost_own: bool | str | Unavailable, *, by_rows: bool = False
) -> None:
    """Adds findings for commits after the first audited one that are not recon's, and for the ranges they undid.

    `lost_own` is whether the sink lacks rows that it had, as its rows show; a sentence where they do not. It is
    asked of `history.doubtful_removals` alone. What rows would tell that were not read is no finding.
    """
    if all(head.sink_version is None for head in history.heads):
        return
    _report_deletions(history, findings)
    for commit in history.own_removals:
        if history.oldest_standing < commit.version:
            _report_mutation(commit, findings)
    for commit in history.doubtful_removals:
        _report_removal_of_whom(commit, history, findings, lost_own)
    for commit in history.judged:
        if commit.is_restore:
            _report_restore(commit, history, findings)
    if history.rolled_back:
        _report_rollback(history, history.rolled_back, findings)
    _report_undone(history, findings)
    if history.strangers:
        _report_strangers(history, findings, by_rows=by_rows)


def _report_deletions(history: TableHistory, findings: Findings) -> None:
    for deletion in history.judged_deletions:
        _report_deletion(deletion, history, findings)


def _report_deletion(deletion: Deletion, history: TableHistory, findings: Findings) -> None:
    """A commit that recon.yml names: what of it was declared, and what was not, or is not known."""
    commit = history.log.commits[deletion.version]
    about, by = commit_of(commit), (deletion.version,)
    what, declared = _what(commit), f"recon.yml declares a deletion {deletion.label}"
    inside, young, ageless = (size_of(of) for of in (deletion.inside, deletion.young, deletion.ageless))
    if inside:
        at = f"{commit.timestamp:%Y-%m-%d %H:%M:%S}Z"
        message = f"version {commit.version} ({commit.operation} at {at}) deleted {plural(inside, 'row')} as declared"
        findings.add(Code.DELETED, f"{message}: {deletion.label}", about=about, rows=inside, changed_by=by)
    if deletion.changed:
        message = f"{what}; {declared}, and {deletion.changed}; {_who(commit)}"
        findings.add(Code.MUTATED, message, about=about, changed_by=by)
    if young:
        message = f"{what}; {declared}, and {plural(young, 'row')} were younger; {_who(commit)}"
        findings.add(Code.MUTATED, message, about=about, changed_by=by)
        gone = f"{plural(young, 'row')} that were younger than declared are gone since version {commit.version}"
        message = f"{gone} ({commit.operation}): {places_of(deletion.young)}"
        findings.add(Code.GAP, message, about=about, rows=young, changed_by=by)
    if ageless or deletion.unknown:
        rows = plural(ageless, "row") if ageless else rows_in_all([rows_lost(commit)])
        why = f": {deletion.unknown}" if deletion.unknown else ""
        message = f"{what}; {declared}, but the age of {rows} is not known{why}; compare them, then accept this"
        findings.add(Code.INCONCLUSIVE, message, about=about, changed_by=by)


def _report_rollback(history: TableHistory, undone: Sequence[int], findings: Findings) -> None:
    """Audited versions that the newest one does not descend from."""
    alone = len(undone) == 1
    findings.add(
        Code.MUTATED,
        f"{history.location} was rolled back or replaced: its version {history.log.last} does not descend from "
        f"{plural(len(undone), 'audited commit')} (version {some(undone)}); a restart does not write them again: find "
        "out who did it, and read their ranges once more",
        about="" if alone else f"versions {exactly(undone)}",
        head=history.claimed[undone[0]] if alone else None,
        changed_by=(),
    )


def _report_undone(history: TableHistory, findings: Findings) -> None:
    """The ranges of entries whose commits were undone, or wiped."""
    gone, ledger = history.gone, history.ledger
    if gone:
        by = [commit.version for commit in history.judged if commit.is_restore or wipes(commit)]
        of_gone = [head.sink_version in gone and history.in_this_table(head) for head in ledger.heads]
        report_gone(ledger, of_gone, "were undone", findings, by)


def _report_removal_of_whom(
    commit: TableCommit, history: TableHistory, findings: Findings, lost: bool | str | Unavailable
) -> None:
    """A commit that changed rows of a table that several pipelines write, where the log does not tell whose."""
    about, by = commit_of(commit), (commit.version,)
    changed = f"{_what(commit)}, in a table that pipeline {some(sorted(history.other_writers))} writes as well"
    if lost is True:
        among = "rows of this pipeline are among them, and source_rows names their offsets"
        findings.add(Code.MUTATED, f"{changed}; {among}; {_who(commit)}", about=about, changed_by=by)
    elif isinstance(lost, str):
        unknown = "whether rows of this pipeline are among them is not known"
        findings.add(Code.INCONCLUSIVE, f"{changed}; {unknown}: {lost}", about=about, changed_by=by)
    elif lost is False and commit.rows_added != 0:
        unknown = "every offset of this pipeline has its row, and whether other columns were changed is not known"
        then = "compare the table with its source, then accept this"
        findings.add(Code.INCONCLUSIVE, f"{changed}; {unknown}: {then}", about=about, changed_by=by)


def _what(commit: TableCommit) -> str:
    mode, rows = commit.operation_parameters.get("mode"), rows_in_all([rows_lost(commit)])
    return (
        f"version {commit.version} is {commit.operation}{f' with mode {mode}' if mode else ''}, which changed rows "
        f"that were written before and took away {rows}"
    )


def _who(commit: TableCommit) -> str:
    return f"find out who ran it at {commit.timestamp:%Y-%m-%d %H:%M:%S}Z"


def _report_mutation(commit: TableCommit, findings: Findings) -> None:
    """A commit that changed rows of the ledger's commits."""
    lost, rows, at = rows_lost(commit), rows_in_all([rows_lost(commit)]), f"{commit.timestamp:%Y-%m-%d %H:%M:%S}Z"
    about, by = commit_of(commit), (commit.version,)
    findings.add(Code.MUTATED, f"{_what(commit)}; {_who(commit)}", about=about, changed_by=by)
    if lost != 0 and not wipes(commit):
        gone = f"{rows} {'is' if lost == 1 else 'are'} gone since version {commit.version} ({commit.operation} at {at})"
        findings.add(Code.GAP, f"{gone}; source_rows names their offsets", about=about, rows=lost, changed_by=by)


def _versions(first: int, last: int) -> str:
    return f"version {first}" if first == last else f"versions {first} to {last}"


def _report_restore(commit: TableCommit, history: TableHistory, findings: Findings) -> None:
    """A RESTORE: what it undid, and what of earlier audits' entries, whose ranges these do not name."""
    target, about, by = commit.restored_version, commit_of(commit), (commit.version,)
    what = f"version {commit.version} is a RESTORE to"
    if target is None:
        message = f"{what} a point in time, so which commits it undid is not known; see DESCRIBE HISTORY"
        findings.add(Code.INCONCLUSIVE, message, about=about)
        return
    undone = sorted(version for version in history.written if target < version < commit.version)
    if undone:
        # All that lie between, since the next audit may know fewer of them as audited: it is the same finding.
        alone = commit.version == target + 2
        versions = _versions(target + 1, commit.version - 1)
        findings.add(
            Code.MUTATED,
            f"{what} version {target}, which undid {versions}; a restart does not write again what the query wrote "
            "there: read these ranges once more",
            about="" if alone else about,
            head=history.written[undone[0]] if alone else None,
            changed_by=by,
        )
    if not history.is_complete and commit.version > history.known_version and _undid_earlier(target, commit, history):
        findings.add(
            Code.GAP,
            f"rows of micro-batches before the period are gone: {what} version {target}; `recon audit --full` names "
            "their offsets",
            about=f"before the period, {about}",
            changed_by=by,
        )


def _undid_earlier(target: int, restore: TableCommit, history: TableHistory) -> bool:
    """Whether a RESTORE may have undone writes of before the entries."""
    own, shown = {of.version for of, _ in history.own}, history.log.commits
    between = range(target + 1, min((*history.claimed, restore.version)))
    return any(version in own or version not in shown for version in between)


def report_gone(
    ledger: LedgerSlice,
    gone: Sequence[bool],
    what: str,
    findings: Findings,
    by: Sequence[int] = (),
    brought_by: str = "",
) -> None:
    """GAPs with the ranges of entries whose rows are gone whole and were not written again.

    `gone` says it of each entry; `what` happened to the commits from an entry on, in a sentence; `by` are the versions
    that may have done it, ascending, of which a finding names the first few. `brought_by` are commits that may have
    brought the rows back: then they are questions.
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
                code = Code.INCONCLUSIVE if brought_by else Code.GAP
                says = "are no longer in the table:", "a restart does not read them again"
                if brought_by:
                    says = "may be no longer in the table:", f"{brought_by}: compare these rows, then accept this"
                findings.add(
                    code,
                    f"{key}: {key.offsets(*span)} {says[0]} the commits from {named(head)} on {what}, and {says[1]}",
                    head=head,
                    key=key,
                    span=span,
                    changed_by=tuple(by[after : after + _CHANGED_BY]),
                )


def _report_strangers(history: TableHistory, findings: Findings, *, by_rows: bool) -> None:
    """`by_rows` is whether nothing but rows says which commits are the query's own."""
    commits, unknown = history.strangers, [of for of in history.log.other_writers if of.unknown]
    rows = rows_in_all(commit.rows_added for commit in commits)
    what = some(f"{c.version} ({c.operation or 'no operation'})" for c in commits)
    how = "that were taken for no micro-batch" if by_rows else "without recon's mark"
    who = "another program writes to this table" + (", or the function at another time" if by_rows else "")
    who += "".join(
        f", or pipeline {of.pipeline}, of which it is not known what it wrote: {of.unknown}" for of in unknown
    )
    findings.add(Code.UNSTAMPED, f"{plural(len(commits), 'commit')} added {rows} {how}: version {what}; {who}")
