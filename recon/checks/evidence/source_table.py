"""source_table: how far the ledger is behind the Delta table that the query reads, and what changed in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, ClassVar

from typing_extensions import override

from recon.checks.base import EvidenceCheck
from recon.checks.period import Period
from recon.judge.coverage import Key, coverage, read_last
from recon.judge.findings import Findings, ledger_of, named, no_entries
from recon.judge.history.entries import entries_with_unrecorded_commits
from recon.model import Code, LedgerSlice, SourceCommit, SourceTable, Verdict, Witnesses, why_unknown
from recon.model.delta_offsets import BEGINNING, Position, described, is_delta, offset_of, place, position_of
from recon.model.offsets import Spans
from recon.model.positions import SourceKind
from recon.text import plural, some

_CLOCKS_APART = timedelta(minutes=5)  # of the driver and of whoever wrote the table


@dataclass(frozen=True, kw_only=True)
class SourceTableVersions(EvidenceCheck):
    """Where the ledger's last micro-batch ended, against the Delta table that the query reads (`source: {delta: …}`).

    Proves that no version of the table was left out after the ledger's end, says how far the stream lags, and
    which commits changed rows that the stream reads. "complete" rests on it. It needs the ledger and the table's log,
    and no Spark.

    Args:
        warn_after: the age of the oldest version with unread rows from which on lag warns, as
            `{count: 5, period: minute}`.
        error_after: the age from which on it fails. Periods are minute, hour and day.

    Example:
        data_tests:
          - source_table: {arguments: {warn_after: {count: 15, period: minute}}}
    """

    test: ClassVar[str] = "source_table"
    needs: ClassVar[Sequence[str]] = ("ledgers", "kafka")
    uses: ClassVar[Sequence[str]] = ("delta", "sink_logs")
    about: ClassVar[SourceKind | None] = "a Delta table"
    scope: ClassVar[str] = "sink"

    warn_after: Period | None = None
    error_after: Period | None = None

    @override
    def judge(self, witnesses: Witnesses) -> Verdict:
        table, ledger = witnesses.source_log, entries_with_unrecorded_commits(witnesses)
        if not isinstance(table, SourceTable):
            return Verdict(unproved=why_unknown(table, f"pipeline {witnesses.pipeline} reads no Delta table"))
        if ledger is None:
            return no_entries(witnesses)
        findings = Findings.of(witnesses)
        incarnations = {key: of for key, of in coverage(ledger).incarnations.items() if is_delta(key.topic)}
        if not incarnations:
            return Verdict(unproved=f"no micro-batch of sink {witnesses.sink} read a Delta table")
        if not table.exists or table.last is None or table.table_id is None:
            return Verdict(unproved=f"there is no Delta table at {table.location}, or its log cannot be read")
        newest = next((key for key in read_last(ledger) if is_delta(key.topic)), None)
        if newest is None:
            return Verdict(unproved=f"the newest micro-batches of sink {witnesses.sink} read no Delta table")
        if newest.topic != table.topic:
            findings.add(
                Code.RECREATED,
                f"{table.location} has the id {table.table_id}, and what was read last is {newest}: the table was made "
                "anew, and the query needs a fresh checkpoint, or recon.yml names another one than the query reads",
                about=f"table {table.table_id}",
                key=newest,
            )
            return findings.verdict("")
        frontier = incarnations[newest][-1].walked.frontier
        evidence = self._judge(newest, position_of(frontier), table, ledger, witnesses, findings)
        _judge_times(newest, ledger, table, findings)
        limits = {"warn_after": self.warn_after, "error_after": self.error_after}
        told = {name: str(limit) if limit else None for name, limit in limits.items()}
        waiting = plural(len(evidence["waiting"]), "later version")
        message = f"{table.location} read up to {place(frontier)}; {waiting} with rows to read"
        return findings.verdict(message, limits=told, **evidence)

    def _judge(
        self,
        key: Key,
        come_to: Position,
        table: SourceTable,
        ledger: LedgerSlice,
        witnesses: Witnesses,
        findings: Findings,
    ) -> dict[str, Any]:
        last, first = table.last or 0, table.first_retained or 0
        waiting = {v: c for v, c in table.commits.items() if _waits(c, come_to, table.passes)}
        evidence = {
            "versions": [first, last],
            "read_up_to": list(come_to),
            "waiting": sorted(waiting),
            "rows": _sum(waiting, come_to),
        }
        if come_to.version > last + 1:
            findings.add(
                Code.MUTATED,
                f"{table.location} ends with version {last}, and version {come_to.version - 1} of it was read: an "
                "older copy was put in its place, and what was read beyond cannot be compared any more",
                key=key,
                span=(offset_of(last + 1, 0), offset_of(come_to.version, 0)),
            )
            return evidence
        entries = ledger_of(witnesses)
        if entries is None or not entries.later:
            self._judge_unread(key, come_to, waiting, table, ledger, findings, witnesses.now)
        read = _commits_read(ledger, key)
        _judge_changes(key, come_to, read, table, witnesses, findings)
        _judge_unseen(key, ledger, table, witnesses, findings)
        return evidence

    def _judge_unread(
        self,
        key: Key,
        come_to: Position,
        waiting: Mapping[int, SourceCommit],
        table: SourceTable,
        ledger: LedgerSlice,
        findings: Findings,
        now: datetime,
    ) -> None:
        first = table.first_retained or 0
        needed = come_to.version + come_to.in_snapshot
        if first > needed:
            span = (offset_of(needed, 0), offset_of(first, 0))
            findings.add(
                Code.LOSS_RETENTION,
                f"{table.location}: {key.offsets(*span)} were never read, and "
                f"{key.log_starts_at(span[1])}: Spark stops the query there, or leaves them out (failOnDataLoss: "
                "false); read the table as a whole once more",
                key=key,
                span=span,
            )
        if not waiting and not come_to.in_snapshot:
            return
        rows = _sum(waiting, come_to)
        counted = "" if rows is None else f" with {plural(rows, 'row')}"
        told = f"{plural(len(waiting), 'version')}{counted} wait to be read" if waiting else ""
        if come_to.in_snapshot:
            rest = f"the rest of the table at version {come_to.version}"
            told = f"{rest} and {told}" if told else f"{rest} waits to be read"
        findings.add(Code.INFLIGHT, f"{table.location}: {told}", key=key)
        oldest = min((commit.timestamp for commit in waiting.values()), default=now)
        what = f"version {min(waiting, default=come_to.version)} of {oldest:%Y-%m-%d %H:%M:%S}Z is not read"
        if come_to.in_snapshot:
            oldest = ledger.heads[coverage(ledger).micro_batches[-1]].committed_at
            what = f"since {oldest:%Y-%m-%d %H:%M:%S}Z no more of the table was read"
        for code, limit in ((Code.STALLED, self.error_after), (Code.LAG, self.warn_after)):
            if limit is not None and now - oldest > limit.length:
                why = f"{what}, longer than {limit}; see whether the query runs and keeps up"
                findings.add(code, f"{table.location}: {why}", key=key)
                return


def _commits_read(ledger: LedgerSlice, key: Key, *, above: int = -1) -> Spans:
    """The offsets of commits, and not of snapshots, that judged entries read of a table.

    With `above`, of entries with a higher sequence number alone.
    """
    spans = []
    for entry in coverage(ledger).judged_entries():
        for read in ledger.ranges.of(entry) if ledger.heads[entry].sequence > above else ():
            low, high = position_of(read.start_offset), position_of(read.end_offset)
            start = read.start_offset
            if low.in_snapshot:  # a whole snapshot ends before the version of the position behind it
                first = high.version if read.start_offset == BEGINNING else low.version + 1
                start = offset_of(first + high.in_snapshot, 0)
            if read.topic == key.topic:
                spans.append((min(start, read.end_offset), read.end_offset))
    return Spans.of(spans)


def _waits(commit: SourceCommit, come_to: Position, passes: str) -> bool:
    """Whether a stream that came to a position has files of a commit to read, or stops there."""
    read = come_to.files if commit.version == come_to.version else 0
    if commit.version < come_to.version or (come_to.in_snapshot and commit.version == come_to.version):
        return False
    if commit.removes and passes != "feed":
        return not passes or (bool(commit.files) and passes != "skip")
    return len(commit.files) > read


def _sum(waiting: Mapping[int, SourceCommit], come_to: Position) -> int | None:
    """The rows of the files that wait; None where a file has no statistics."""
    total = 0
    for version, commit in waiting.items():
        files = commit.files[come_to.files if version == come_to.version and not come_to.in_snapshot else 0 :]
        known = [rows for rows in files if rows is not None]
        if len(known) < len(files):
            return None
        total += sum(known)
    return total


def _judge_times(key: Key, ledger: LedgerSlice, table: SourceTable, findings: Findings) -> None:
    """Versions that are younger than the micro-batch that read them are of another history of the table."""
    for entry, head in enumerate(ledger.heads):
        for read in ledger.ranges.of(entry) if head.is_micro_batch else ():
            low, high = position_of(read.start_offset).version, position_of(read.end_offset).version
            times = (table.commits[v].timestamp for v in range(low, high) if v in table.commits)
            youngest = max(times, default=None) if read.topic == key.topic else None
            if youngest is not None and youngest > head.committed_at + _CLOCKS_APART:
                findings.add(
                    Code.INCONCLUSIVE,
                    f"{table.location}: {key.offsets(*read.span)} were committed up to {youngest:%Y-%m-%d %H:%M:%S}Z, "
                    f"and {named(head)} is of {head.committed_at:%Y-%m-%d %H:%M:%S}Z: either clocks are apart, or an "
                    "older copy of the table was put in its place and written on, and what it has there now was not "
                    "read; compare the rows, then accept this",
                    head=head,
                    key=key,
                    span=read.span,
                )


def _judge_unseen(key: Key, ledger: LedgerSlice, table: SourceTable, witnesses: Witnesses, findings: Findings) -> None:
    """Commits that were read since the audit before, and that the log no longer has."""
    proof = witnesses.proofs.of_sink.get(ledger.sink)
    read = _commits_read(ledger, key, above=-1 if proof is None else proof.position)
    for span in read.intersect(Spans.of([(0, offset_of(table.first_retained or 0, 0))])):
        findings.add(
            Code.INCONCLUSIVE,
            f"{table.location}: the log no longer has {described(*span)}, so whether commits changed rows there, or "
            "gave rows once more, is not known; audit within the log's retention",
            key=key,
            span=span,
        )


def _judge_changes(
    key: Key, come_to: Position, read: Spans, table: SourceTable, witnesses: Witnesses, findings: Findings
) -> None:
    """Commits that changed rows, of those that the stream read or has to read next."""
    if table.passes == "feed":
        return  # every change is given to the query
    explained = []
    for _, commit in sorted(table.commits.items()):
        if not commit.removes and not (commit.is_restore and commit.files):
            continue
        was_read = bool(Spans.of([_span(commit)]).intersect(read))
        if not was_read and commit.version < come_to.version:
            continue  # another sink of the pipeline read it, or an earlier audit judged it
        if commit.removes and not _goes_on(commit, table.passes):
            _judge_undeclared(key, commit, table, findings, was_read=was_read)
        elif not commit.files or (table.passes == "skip" and commit.removes and _keeps_rows(commit)):
            explained.append(commit)
        elif was_read and table.passes == "skip" and commit.removes:
            _judge_skipped(key, commit, table, findings)
        elif was_read and witnesses.sink not in witnesses.rewriting:
            _judge_read_again(key, commit, table, findings)
    if explained:
        findings.add(
            Code.EXPLAINED,
            f"{table.location}: {_named(explained)} only deleted rows, or brought back such as had been there, which "
            "the stream does not pass on",
            key=key,
        )


def _goes_on(commit: SourceCommit, passes: str) -> bool:
    """Whether the query goes on at a commit that removes data files."""
    return passes in ("skip", "changes") if commit.files else bool(passes)


def _keeps_rows(commit: SourceCommit) -> bool:
    """Whether all rows in the new files of a commit had been in the table before, as they are."""
    return not commit.adds_new or (commit.rows is not None and commit.copied == commit.rows)


def _judge_undeclared(
    key: Key, commit: SourceCommit, table: SourceTable, findings: Findings, *, was_read: bool
) -> None:
    what = f"{table.location}: {_named([commit])} changed rows"
    if was_read:
        findings.add(
            Code.MUTATED,
            f"{what}, and the query went on past it: what it made of that version recon.yml has to say (source: "
            "options: skipChangeCommits, ignoreChanges or ignoreDeletes, as the query has it)",
            key=key,
            span=_span(commit),
        )
    else:
        findings.add(
            Code.STALLED,
            f"{what}: Spark stops the query there, unless it has an option for such commits (skipChangeCommits, "
            "ignoreChanges, ignoreDeletes), which recon.yml then names, too (source: options)",
            key=key,
        )


def _judge_skipped(key: Key, commit: SourceCommit, table: SourceTable, findings: Findings) -> None:
    rows, copied = commit.rows, commit.copied
    new = "" if rows is None or commit.vectors else f"{plural(rows, 'changed or new row')} at most in it were not read"
    if rows is not None and copied is not None:
        new = f"{plural(rows - copied, 'changed or new row')} in it were not read"
    findings.add(
        Code.GAP,
        f"{table.location}: {_named([commit])} replaced rows, and the query passed over it (skipChangeCommits): "
        f"{new or 'the rows in its new files were not read'}",
        key=key,
        span=_span(commit),
    )


def _judge_read_again(key: Key, commit: SourceCommit, table: SourceTable, findings: Findings) -> None:
    """A commit whose new files the query read, and the rows in them that it may have read before."""
    copied = None if commit.is_restore else commit.copied
    if copied == 0:
        return
    option = " (ignoreChanges)" if commit.removes else ""
    what = f"{table.location}: {_named([commit])}, and the query read its new files{option}"
    if copied is None:
        findings.add(
            Code.INCONCLUSIVE,
            f"{what}: whether rows in them had been read before, and are in the sink twice, is not known; compare them",
            key=key,
            span=_span(commit),
        )
    else:
        findings.add(
            Code.DUPLICATE,
            f"{what}: {plural(copied, 'row')} in them did not change and are in the sink twice; merge into the sink by "
            "keys, or skip such commits",
            key=key,
            span=_span(commit),
        )


def _span(commit: SourceCommit) -> tuple[int, int]:
    return offset_of(commit.version, 0), offset_of(commit.version + 1, 0)


def _named(commits: Sequence[SourceCommit]) -> str:
    return f"version {some(f'{commit.version} ({commit.operation})' for commit in commits)}"
