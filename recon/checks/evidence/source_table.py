"""source_table: how far the ledger is behind the Delta table that the query reads, and what changed in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from typing_extensions import override

from recon.checks.base import EvidenceCheck
from recon.checks.evidence.coverage import Key, TopicIncarnation, coverage
from recon.checks.evidence.findings import Findings, ledger_of, no_entries
from recon.checks.evidence.reading import reading_of
from recon.checks.period import Period
from recon.model import Code, SourceCommit, SourceTable, Unavailable, Verdict, Witnesses, why_unknown
from recon.model.delta_offsets import Position, is_delta, offset_of, position_of
from recon.text import plural, some


@dataclass(frozen=True, kw_only=True)
class SourceTableVersions(EvidenceCheck):
    """Where the ledger's last micro-batch ended, against the Delta table that the query reads (`source: {delta: …}`).

    Proves that no version of the table was left out behind the ledger's end, says how far the stream is behind, and
    which commits changed rows that the stream reads. It needs the ledger and the table's log, and no Spark.

    Args:
        warn_after: the age of the oldest version with unread rows from which on lag warns, as
            `{count: 5, period: minute}`.
        error_after: the age from which on it fails. Periods are minute, hour and day.

    Codes:
        INFLIGHT: versions with rows that wait to be read. Lag alone is no failure.
        LAG: the oldest of them is older than `warn_after` (warns).
        STALLED: it is older than `error_after`; or a version that waits changes rows, at which Spark stops the query,
            since recon.yml names no option with which it goes on.
        LOSS_RETENTION: the log begins behind the ledger's end: the versions between were cleaned up unread. Spark stops
            the query there or, with `failOnDataLoss: false`, leaves them out without an error.
        RECREATED: the table was made anew: it has another id than the one that was read.
        GAP: a commit replaced rows (UPDATE, MERGE, an overwrite), and the query passed over it with the new rows
            (`skipChangeCommits`).
        DUPLICATE: a commit replaced rows, and the query read its new files (`ignoreChanges`), with all rows in them
            that had been read before. Not in a sink whose rows later micro-batches replace.
        MUTATED: a commit changed rows, the query read on behind it, and recon.yml does not say with which option.
        EXPLAINED: commits that only deleted rows, which a stream does not pass on.
        INCONCLUSIVE: the table ends below what was read of it, or its id is not known.

    Example:
        data_tests:
          - source_table: {arguments: {warn_after: {count: 15, period: minute}}}

    Evidence: `versions` that the log has, `read_up_to`, `waiting` versions and their `rows`, and the `limits` that
    they were held against.
    """

    test: ClassVar[str] = "source_table"
    needs: ClassVar[Sequence[str]] = ("ledgers", "kafka")
    uses: ClassVar[Sequence[str]] = ("delta", "sink_logs")
    scope: ClassVar[str] = "sink"

    warn_after: Period | None = None
    error_after: Period | None = None

    @override
    def judge(self, witnesses: Witnesses) -> Verdict:
        table, ledger = witnesses.source_table, reading_of(witnesses)
        if table is None or isinstance(table, Unavailable):
            return Verdict(unproved=why_unknown(table, f"pipeline {witnesses.pipeline} reads no Delta table"))
        if ledger is None:
            return no_entries(witnesses)
        findings = Findings.of(witnesses)
        incarnations = {key: of for key, of in coverage(ledger).incarnations.items() if is_delta(key.topic)}
        if not incarnations:
            return Verdict(unproved=f"no micro-batch of sink {witnesses.sink} read a Delta table")
        if not table.exists or table.last is None:
            findings.add(Code.RECREATED, f"there is no Delta table at {table.location} any more")
            return findings.verdict("")
        evidence: dict[str, Any] = {}
        for key, of in incarnations.items():
            evidence = self._judge(key, of[-1], table, witnesses, findings)
        limits = {"warn_after": self.warn_after, "error_after": self.error_after}
        told = {name: str(limit) if limit else None for name, limit in limits.items()}
        behind = plural(len(evidence["waiting"]), "version")
        where = f"{behind} before the newest" if evidence["waiting"] else "the newest version"
        return findings.verdict(f"{table.location} read up to {where}", limits=told, **evidence)

    def _judge(
        self,
        key: Key,
        incarnation: TopicIncarnation,
        table: SourceTable,
        witnesses: Witnesses,
        findings: Findings,
    ) -> dict[str, Any]:
        come_to = position_of(incarnation.walked.frontier)
        last, first = table.last or 0, table.first_retained or 0
        waiting = {v: c for v, c in table.commits.items() if _waits(c, come_to, stops=not table.passes)}
        evidence = {
            "versions": [first, last],
            "read_up_to": list(come_to),
            "waiting": sorted(waiting),
            "rows": _sum(waiting, come_to),
        }
        if None not in (incarnation.topic_id, table.table_id) and incarnation.topic_id != table.table_id:
            findings.add(
                Code.RECREATED,
                f"{table.location} has the id {table.table_id}, and the table that was read "
                f"{incarnation.topic_id}: it was made anew, and the query needs a fresh checkpoint, or recon.yml names "
                "another table than the query reads",
                key=key,
            )
            return evidence
        if table.table_id is None:
            findings.add(Code.INCONCLUSIVE, f"the id of {table.location} could not be read", key=key)
        if come_to.version > last + 1:
            findings.add(
                Code.INCONCLUSIVE,
                f"{table.location} ends with version {last}, and version {come_to.version - 1} of it was read: an "
                "older copy was put in its place, and what was read beyond cannot be compared any more",
                key=key,
            )
            return evidence
        ledger = ledger_of(witnesses)
        goes_on = ledger is not None and bool(ledger.later)
        if not goes_on:
            self._judge_unread(key, come_to, waiting, table, witnesses, findings)
        _judge_changes(key, come_to, table, witnesses, findings)
        return evidence

    def _judge_unread(
        self,
        key: Key,
        come_to: Position,
        waiting: Mapping[int, SourceCommit],
        table: SourceTable,
        witnesses: Witnesses,
        findings: Findings,
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
        oldest = min((commit.timestamp for commit in waiting.values()), default=None)
        if oldest is None:
            return
        age = witnesses.now - oldest
        for code, limit in ((Code.STALLED, self.error_after), (Code.LAG, self.warn_after)):
            if limit is not None and age > limit.length:
                findings.add(
                    code,
                    f"{table.location}: version {min(waiting)} of {oldest:%Y-%m-%d %H:%M:%S}Z is not read, longer than "
                    f"{limit}; see whether the query runs and keeps up",
                    key=key,
                )
                return


def _waits(commit: SourceCommit, come_to: Position, *, stops: bool) -> bool:
    """Whether a stream that came to a position has files of a commit to read, or `stops` where files are removed."""
    read = come_to.files if commit.version == come_to.version else 0
    if commit.version < come_to.version or (come_to.in_snapshot and commit.version == come_to.version):
        return False
    return len(commit.files) > read or (commit.removes and stops)


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


def _judge_changes(key: Key, come_to: Position, table: SourceTable, witnesses: Witnesses, findings: Findings) -> None:
    """Commits that removed data files, of those that the stream read or has to read next."""
    removing = [commit for _, commit in sorted(table.commits.items()) if commit.removes]
    deleting = [commit for commit in removing if not commit.files]
    passed = deleting if table.passes else []
    if passed:
        findings.add(
            Code.EXPLAINED,
            f"{table.location}: {_named(passed)} only deleted rows, which the stream does not pass on",
            key=key,
        )
    for commit in removing:
        goes_on = bool(table.passes) if not commit.files else table.passes in ("skip", "changes")
        if not goes_on:
            _judge_undeclared(key, commit, come_to, table, findings)
        elif commit.files and commit.version < come_to.version:
            _judge_replaced(key, commit, table, witnesses, findings)


def _judge_undeclared(
    key: Key, commit: SourceCommit, come_to: Position, table: SourceTable, findings: Findings
) -> None:
    what = f"{table.location}: {_named([commit])} changed rows"
    if commit.version < come_to.version:
        findings.add(
            Code.MUTATED,
            f"{what}, and the query read on behind it: what it made of that version recon.yml has to say (source: "
            "options: skipChangeCommits, ignoreChanges or ignoreDeletes, as the query has it)",
            key=key,
            span=(offset_of(commit.version, 0), offset_of(commit.version + 1, 0)),
        )
    else:
        findings.add(
            Code.STALLED,
            f"{what}: Spark stops the query there, unless it has an option for such commits (skipChangeCommits, "
            "ignoreChanges, ignoreDeletes), which recon.yml then names, too (source: options)",
            key=key,
        )


def _judge_replaced(
    key: Key, commit: SourceCommit, table: SourceTable, witnesses: Witnesses, findings: Findings
) -> None:
    """A commit that replaced rows, and what the query made of its new files."""
    span = (offset_of(commit.version, 0), offset_of(commit.version + 1, 0))
    rows = "" if commit.rows is None else f", {plural(commit.rows, 'row')}"
    what = f"{table.location}: {_named([commit])} replaced rows"
    if table.passes == "skip":
        findings.add(
            Code.GAP,
            f"{what}, and the query passed over it (skipChangeCommits): the rows in its new files{rows}, changed ones "
            "and new ones, were not read",
            key=key,
            span=span,
        )
    elif witnesses.sink not in witnesses.rewriting:
        findings.add(
            Code.DUPLICATE,
            f"{what}, and the query read its new files{rows} (ignoreChanges): rows in them that did not change are in "
            "the sink twice; merge into the sink by keys, or skip such commits",
            key=key,
            span=span,
        )


def _named(commits: Sequence[SourceCommit]) -> str:
    return f"version {some(f'{commit.version} ({commit.operation})' for commit in commits)}"
