"""source_table: how far the ledger is behind the Delta table that the query reads, and what changed in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, ClassVar

from typing_extensions import override

from recon.base.text import plural, some
from recon.checks.age_check import AgeCheck, Limits, exceeded
from recon.judge.case import SinkCase
from recon.judge.coverage import Key, coverage, read_last
from recon.judge.findings import Findings, no_entries
from recon.model import Code, LedgerSlice, SourceCommit, SourceTable, Verdict, Witnesses, why_unknown
from recon.model.delta_offsets import BEGINNING, Position, described, is_delta, offset_of, place, position_of
from recon.model.ledger import named
from recon.model.offsets import OffsetSpan, Spans
from recon.model.positions import SourceKind

_CLOCKS_APART = timedelta(minutes=5)  # of the driver and of whoever wrote the table


@dataclass(frozen=True, kw_only=True)
class SourceTableVersions(AgeCheck):
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
    uses: ClassVar[Sequence[str]] = ("delta", "sink_logs", "checkpoint")
    about: ClassVar[SourceKind | None] = "a Delta table"
    scope: ClassVar[str] = "sink"

    @override
    def judge(self, witnesses: Witnesses) -> Verdict:
        case, table = SinkCase(witnesses), witnesses.source_log
        if not isinstance(table, SourceTable):
            return Verdict(unproved=why_unknown(table, f"pipeline {witnesses.pipeline} reads no Delta table"))
        if not case.entered.heads:
            return no_entries(witnesses)
        ledger = case.ledger
        if why := _unproved(table, ledger, witnesses):
            return Verdict(unproved=why)
        findings = Findings.of(witnesses)
        newest = next(key for key in read_last(ledger) if is_delta(key.topic))
        if newest.topic != table.topic:
            message = (
                f"{table.location} has the id {table.table_id}, and what was read last is {newest}: the table was made "
                "anew, and the query needs a fresh checkpoint, or recon.yml names another one than the query reads"
            )
            findings.add(Code.RECREATED, message, about=f"table {table.table_id}", key=newest)
            return findings.verdict("")
        read = coverage(ledger).newest(newest)
        assert read is not None, "the slice has an entry that read it"
        reading = _Reading(newest, position_of(read.walked.frontier), table, ledger, witnesses, findings)
        reading.judge(self.limits)
        waiting = plural(len(reading.waiting), "later version")
        return findings.verdict(
            f"{table.location} read up to {place(read.walked.frontier)}; {waiting} with rows to read",
            limits=self.limits_told,
            versions=[table.first_retained or 0, table.last or 0],
            read_up_to=list(reading.come_to),
            waiting=sorted(reading.waiting),
            rows=reading.rows,
        )


def _unproved(table: SourceTable, ledger: LedgerSlice, witnesses: Witnesses) -> str:
    """Why the table and the ledger say nothing of each other; "" where they do."""
    if not any(is_delta(key.topic) for key in coverage(ledger).incarnations):
        return f"no micro-batch of sink {witnesses.sink} read a Delta table"
    if not table.exists or table.last is None or table.table_id is None:
        return f"there is no Delta table at {table.location}, or its log cannot be read"
    if not any(is_delta(key.topic) for key in read_last(ledger)):
        return f"the newest micro-batches of sink {witnesses.sink} read no Delta table"
    return ""


@dataclass(frozen=True)
class _Reading:
    """How far the stream came in the table."""

    key: Key
    come_to: Position
    table: SourceTable
    ledger: LedgerSlice
    witnesses: Witnesses
    findings: Findings

    @cached_property
    def waiting(self) -> Mapping[int, SourceCommit]:
        """The commits that have files to read."""
        return {v: c for v, c in self.table.commits.items() if _waits(c, self.come_to, self.table.passes)}

    @property
    def rows(self) -> int | None:
        """The rows that wait to be read."""
        return _sum(self.waiting, self.come_to)

    def judge(self, limits: Limits) -> None:
        """Judges what was not read, and what changed in what was; `limits` are those of the age."""
        last, come_to = self.table.last or 0, self.come_to
        if come_to.version > last + 1:
            message = (
                f" ends with version {last}, and version {come_to.version - 1} of it was read: an older copy was put "
                "in its place, and what was read beyond cannot be compared any more"
            )
            self._add(Code.MUTATED, message, span=(offset_of(last + 1, 0), offset_of(come_to.version, 0)))
        else:
            if not self.ledger.later:
                self._judge_lost()
                self._judge_waiting(limits)
            self._judge_changes()
            self._judge_unseen()
        self._judge_times()

    def _judge_lost(self) -> None:
        first, needed = self.table.first_retained or 0, self.come_to.version + self.come_to.in_snapshot
        if first > needed:
            span = (offset_of(needed, 0), offset_of(first, 0))
            message = (
                f": {self.key.offsets(*span)} were never read, and {self.key.log_starts_at(span[1])}: Spark stops the "
                "query there, or leaves them out (failOnDataLoss: false); read the table as a whole once more"
            )
            self._add(Code.LOSS_RETENTION, message, span=span)

    def _judge_waiting(self, limits: Limits) -> None:
        waiting, come_to = self.waiting, self.come_to
        counted = "" if self.rows is None else f" with {plural(self.rows, 'row')}"
        told = f"{plural(len(waiting), 'version')}{counted} to be read"
        oldest = min((commit.timestamp for commit in waiting.values()), default=self.witnesses.now)
        if come_to.in_snapshot:
            told = f"the rest of the table at version {come_to.version} and {told}"
            oldest = self.ledger.heads[coverage(self.ledger).micro_batches[-1]].committed_at
        elif not waiting:
            return
        self._add(Code.INFLIGHT, f": {told}")
        late = exceeded(limits, self.witnesses.now - oldest)
        if late is not None:
            since = f"what waits since {oldest:%Y-%m-%d %H:%M:%S}Z is not read, longer than {limits[late]}"
            self._add(late, f": {since}; see whether the query runs and keeps up")

    def _judge_times(self) -> None:
        """Versions that are younger than the micro-batch that read them are of another history of the table."""
        for entry, head in enumerate(self.ledger.heads):
            for read in self.ledger.ranges.of(entry) if head.is_micro_batch else ():
                youngest = self._youngest(read) if read.topic == self.key.topic else None
                if youngest is not None and youngest > head.committed_at + _CLOCKS_APART:
                    message = (
                        f": {self.key.offsets(*read.span)} were committed up to {youngest:%Y-%m-%d %H:%M:%S}Z, and "
                        f"{named(head)} is of {head.committed_at:%Y-%m-%d %H:%M:%S}Z: clocks are apart, or an older "
                        "copy of the table was written on, and not read; compare the rows, then accept this"
                    )
                    self._add(Code.INCONCLUSIVE, message, head=head, span=read.span)

    def _youngest(self, read: OffsetSpan) -> datetime | None:
        low, high = position_of(read.start_offset).version, position_of(read.end_offset).version
        commits = self.table.commits
        return max((commits[version].timestamp for version in range(low, high) if version in commits), default=None)

    def _judge_unseen(self) -> None:
        """Commits that were read since the audit before, and that the log no longer has."""
        proof = self.witnesses.proofs.of_sink.get(self.ledger.sink)
        read = _commits_read(self.ledger, self.key, above=-1 if proof is None else proof.position)
        for span in read.intersect(Spans.of([(0, offset_of(self.table.first_retained or 0, 0))])):
            message = (
                f": the log no longer has {described(*span)}, so whether commits changed rows there, or gave rows once "
                "more, is not known; audit within the log's retention"
            )
            self._add(Code.INCONCLUSIVE, message, span=span)

    def _judge_changes(self) -> None:
        """Commits that changed rows, of those that the stream read or has to read next."""
        if self.table.passes == "feed":
            return  # every change is given to the query
        read = _commits_read(self.ledger, self.key)
        explained: list[SourceCommit] = []
        for _, commit in sorted(self.table.commits.items()):
            was_read = bool(Spans.of([_span(commit)]).intersect(read))
            if not was_read and commit.version < self.come_to.version:
                continue  # another sink of the pipeline read it, or an earlier audit judged it
            if commit.removes or (commit.is_restore and commit.files):
                explained += self._judge_change(commit, was_read)
        if explained:
            self._add(
                Code.EXPLAINED,
                f": {_named(explained)} only deleted rows, or brought back such as had been there, which the stream "
                "does not pass on",
            )

    def _judge_change(self, commit: SourceCommit, was_read: bool) -> Sequence[SourceCommit]:
        """The commit itself where it gave the stream nothing to pass on."""
        skips = commit.removes and self.table.passes == "skip"
        if commit.removes and not _goes_on(commit, self.table.passes):
            self._report_undeclared(commit, was_read)
        elif not commit.files or (skips and _keeps_rows(commit)):
            return (commit,)
        elif was_read and skips:
            self._report_skipped(commit)
        elif was_read:
            self._report_read_again(commit)
        return ()

    def _report_undeclared(self, commit: SourceCommit, was_read: bool) -> None:
        options = "skipChangeCommits, ignoreChanges or ignoreDeletes; recon.yml names it, too (source: options)"
        what, span = f": {_named([commit])} changed rows", _span(commit)
        if was_read:
            told = f"{what}, and the query went on past it, which takes an option of it: {options}"
            self._add(Code.MUTATED, told, span=span)
        else:
            self._add(Code.STALLED, f"{what}: Spark stops the query there, unless it has an option: {options}")

    def _report_skipped(self, commit: SourceCommit) -> None:
        rows, copied = commit.rows, 0 if commit.copied is None else commit.copied
        # Without a count of copied rows, all in the new files may be new, or other rows of files with deletion vectors.
        known = rows is not None and (commit.copied is not None or not commit.vectors)
        new = f"{plural((rows or 0) - copied, 'changed or new row')} in it" if known else "the rows in its new files"
        passed = f"replaced rows, and the query passed over it (skipChangeCommits): {new} were not read"
        self._add(Code.GAP, f": {_named([commit])} {passed}", span=_span(commit))

    def _report_read_again(self, commit: SourceCommit) -> None:
        """A commit whose new files the query read, and the rows in them that it may have read before."""
        copied = None if commit.is_restore else commit.copied
        option = " (ignoreChanges)" if commit.removes else ""
        code = Code.INCONCLUSIVE
        rest = "whether rows in them had been read before, and are in the sink twice, is not known; compare them"
        if copied is not None:
            step = "merge into the sink by keys, or skip such commits"
            rest = f"{plural(copied, 'row')} in them did not change and are in the sink twice; {step}"
            code = Code.DUPLICATE
        if copied != 0 and self.witnesses.sink not in self.witnesses.rewriting:
            what = f"{_named([commit])}, and the query read its new files{option}"
            self._add(code, f": {what}: {rest}", span=_span(commit))

    def _add(self, code: Code, rest: str, **where: Any) -> None:
        self.findings.add(code, f"{self.table.location}{rest}", key=self.key, **where)


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


def _goes_on(commit: SourceCommit, passes: str) -> bool:
    """Whether the query goes on at a commit that removes data files."""
    return passes in ("skip", "changes") if commit.files else bool(passes)


def _keeps_rows(commit: SourceCommit) -> bool:
    """Whether all rows in the new files of a commit had been in the table before, as they are."""
    return not commit.adds_new or (commit.rows is not None and commit.copied == commit.rows)


def _span(commit: SourceCommit) -> tuple[int, int]:
    return offset_of(commit.version, 0), offset_of(commit.version + 1, 0)


def _named(commits: Sequence[SourceCommit]) -> str:
    return f"version {some(f'{commit.version} ({commit.operation})' for commit in commits)}"
