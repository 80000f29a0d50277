"""Commits of a Delta table that changed or undid audited rows."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace

from recon.judge.coverage import FirstReaders, coverage
from recon.judge.findings import Findings, commit_of, exactly, named
from recon.judge.history.recon_commits import own_commits
from recon.judge.history.table_history import (
    alive,
    changes_rows,
    claimed_in,
    first_version,
    in_this_table,
    is_another,
    is_restore,
    judged_since,
    known_table,
    loses_rows,
    restored_version,
    rows_lost,
    wipes,
)
from recon.lazy import np
from recon.model import Code, DeltaCommit, DeltaWitness, EntryHead, LedgerSlice, ReconStamp, Witnesses
from recon.model.offsets import Span, Spans
from recon.text import plural, some

_CHANGED_BY = 5  # versions that one finding names
_UNDONE = "were undone"


def judge_changes(
    witnesses: Witnesses, ledger: LedgerSlice, delta: DeltaWitness, findings: Findings, *, by_rows: bool = False
) -> None:
    """Adds findings for commits after the first audited one that are not recon's, and for the ranges they undid."""
    if not any(head.sink_version is not None for head in ledger.heads):
        return
    audited = claimed_in(delta, ledger)
    versions = sorted(audited)
    first = judged_since(witnesses, ledger, delta) if not ledger.complete else first_version(delta, ledger)
    still = alive(delta)
    written = _written(ledger, delta, audited)
    standing = [version for version in sorted(written) if version in still]
    # Rows that are older than the entries, and than the log that was read, may stand as well.
    judged = known_table(witnesses)
    here = not is_another(delta, judged) and all(in_this_table(head, delta) for head in ledger.heads)
    earlier = here and not ledger.complete and still.floor >= 0
    later = [commit for version, commit in sorted(delta.commits.items()) if version > first and version in still]
    mutations = [c for c in later if changes_rows(c) or loses_rows(c)]
    for commit in mutations:
        if (standing and standing[0] < commit.version) or earlier:
            _report_mutation(commit, findings)
    for commit in later:
        if is_restore(commit):
            _report_restore(commit, written, findings)
            if judged is None or is_another(delta, judged) or commit.version > judged.version:
                _report_unnamed(commit, ledger, delta, audited, findings)
    rolled_back = [version for version in versions if delta.undone(version)]
    if rolled_back:
        _report_rollback(delta, audited, rolled_back, findings)
    wiped_by = max((c.version for c in mutations if wipes(c) and rows_lost(c) != 0), default=-1)
    gone = {v for v in audited if v in delta.commits and (v < wiped_by or v not in still)} | {*rolled_back}
    if gone:
        undoing = [c.version for c in later if is_restore(c) or wipes(c)]
        of_gone = [head.sink_version in gone and in_this_table(head, delta) for head in ledger.heads]
        report_gone(ledger, of_gone, _UNDONE, findings, undoing)
    unstamped = [c for c in later if c.stamp is None and c.version not in delta.unstamped]
    strangers = [c for c in unstamped if c.data_change and not (is_restore(c) or changes_rows(c))]
    if strangers:
        _report_strangers(strangers, findings, by_rows=by_rows)


def _written(
    ledger: LedgerSlice, delta: DeltaWitness, audited: Mapping[int, EntryHead]
) -> Mapping[int, EntryHead | ReconStamp]:
    """The versions that wrote rows of the sink: those of the entries, and of earlier ones as the log shows them.

    A RESTORE may have undone all that the entries of this audit wrote, and some of what is older than these.
    """
    if ledger.complete:
        return audited
    return {commit.version: stamp for commit, stamp in own_commits(delta, ledger.pipeline, ledger.sink)} | {**audited}


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
    target = restored_version(commit)
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
    one = last == target + 1
    versions = (
        f"version {last}, a write of the query"
        if one
        else f"versions {target + 1} to {last}, writes of the query among them"
    )
    if undone:
        findings.add(
            Code.MUTATED,
            f"version {commit.version} is a RESTORE to version {target}, which undid {versions}; "
            "a restart does not write them again: read their ranges once more",
            about="" if one else commit_of(commit),
            head=written[undone[0]] if one else None,
            changed_by=(commit.version,),
        )


def _report_unnamed(
    commit: DeltaCommit, ledger: LedgerSlice, delta: DeltaWitness, audited: Mapping[int, EntryHead], findings: Findings
) -> None:
    """A RESTORE to before the entries of this audit: what it undid of earlier ones, their ranges do not name."""
    target, first = restored_version(commit), min(audited, default=commit.version)
    if ledger.complete or target is None:
        return
    own = {of.version for of, _ in own_commits(delta, ledger.pipeline, ledger.sink)}
    between = range(target + 1, min(first, commit.version))
    if any(version in own or version not in delta.commits for version in between):
        findings.add(
            Code.GAP,
            f"rows of micro-batches before the period are gone since version {commit.version}, a RESTORE to version "
            f"{target}; `recon audit --full` names their offsets",
            about=f"before the period, {commit_of(commit)}",
            changed_by=(commit.version,),
        )


def _report_rollback(
    delta: DeltaWitness, audited: Mapping[int, EntryHead], undone: Sequence[int], findings: Findings
) -> None:
    """Audited versions that the newest one does not descend from; a rollback makes no commit of its own."""
    findings.add(
        Code.MUTATED,
        f"{delta.location} was rolled back or replaced: its version {delta.last} does not descend from "
        f"{plural(len(undone), 'audited commit')} (version {some(undone)}); a restart does not write them again: find "
        "out who did it, and read their ranges once more",
        about="" if len(undone) == 1 else f"versions {exactly(undone)}",
        head=audited[undone[0]] if len(undone) == 1 else None,
        changed_by=(),
    )


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
