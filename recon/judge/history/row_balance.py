"""The rows that a Delta table has, against those that the ledger wrote, where its log no longer shows what happened.

A commit that the log still has is judged as such. What was done to rows by commits that are cleaned up shows only in
how many rows were there before the first commit that is left.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self

from typing_extensions import override

from recon.base.text import plural
from recon.judge.findings import Findings, every_number
from recon.judge.history.table_history import TableHistory, history_of
from recon.model import AuditTime, Code, EntryHead, TableLog, Unavailable, Witnesses
from recon.model.memory import SinkAudit, SinkMemory
from recon.model.proof import OpenFinding, SinkProof, memory_of

_NOT_TOLD = "an earlier audit that counted them could not tell whether rows were replaced"
_NOT_COUNTED = "no earlier audit counted the rows of the table"


@dataclass(frozen=True, kw_only=True)
class CountedRows(SinkMemory):
    """How many rows the table had at a version up to which every one was accounted for.

    It is of the newest audit that could say so and advanced the proof.
    """

    name: ClassVar[str] = "counted_rows"
    at: int
    rows: int

    @override
    @classmethod
    def after(cls, before: Self | None, audit: SinkAudit) -> Self | None:
        history = history_of(audit.witnesses, audit.ledger)
        rows = RowBalance.of(audit.witnesses, history).to_remember if history is not None else None
        last = history.log.last if history is not None else None
        return before if rows is None or last is None else cls(at=last, rows=rows)


@dataclass(frozen=True)
class TableRows:
    """Rows of the table before `version`, the first that its log still shows.

    `held` is how many it had, `accounted` how many it should have had: those that an audit counted at version `since`,
    and those that entries wrote after it (-1: every entry). `unknown` is why they cannot be compared.
    """

    version: int
    since: int
    held: int = 0
    accounted: int = 0
    unknown: str = ""

    @property
    def missing(self) -> int:
        """How many rows fewer there were than there should have been."""
        return max(self.accounted - self.held, 0)

    @property
    def accounted_by(self) -> str:
        """Who accounts for how many rows, as the beginning of a sentence."""
        return (
            "the ledger" if self.since < 0 else f"the audit up to version {self.since} and the ledger"
        ) + " accounts for"

    @property
    def doubt(self) -> str:
        """Why rows may be gone that no commit of the log explains, in a sentence; "" where they cannot."""
        if self.held == self.accounted and not self.unknown:
            return ""
        what = f"the log of the sink begins at version {self.version}, and what was done to rows before it "
        if self.unknown:
            return f"{what}cannot be told: {self.unknown}"
        return f"{what}is not known: {plural(self.held, 'row')}, where {self.accounted:,} are accounted for"


@dataclass(frozen=True)
class RowBalance:
    """The rows that a table has against those of the ledger.

    How many it should have is not known where the query `rewrites` rows.
    """

    history: TableHistory
    proof: SinkProof | None
    time: AuditTime
    rewrites: bool
    explodes: bool

    @classmethod
    def of(cls, seen: Witnesses, history: TableHistory) -> Self:
        """The balance of the judged sink."""
        return cls(history, seen.proof, seen.time, seen.sink in seen.rewriting, bool(seen.declared.explodes))

    @cached_property
    def rows(self) -> TableRows | None:
        """What was compared; None where the log shows every commit, or micro-batches replace rows."""
        history, version = self.history, self._shown_from
        if version is None or self.rewrites:
            return None
        begins_at = _wrote_before(self._heads, history)
        shown = history.log.whole and all((head.sink_version or version) >= version for head in self._heads)
        return None if shown or version <= begins_at else self._compared(version, begins_at)

    def _compared(self, version: int, begins_at: int) -> TableRows | None:
        """The rows before the first version that the log shows; at `begins_at` the table was written before recon."""
        base, begun = self._counted_before, self.history.is_complete and not begins_at
        if base is None and not begun:
            attested = self.history.is_complete or _is_attested(self.history, version)
            return TableRows(version, -1, unknown=_NOT_COUNTED) if attested else None
        since_begin = self._since(-1, 0, version) if begun else None
        if base is None:
            return since_begin
        since_base = self._since(*base, version)
        if self.history.is_complete and self._is_asked:
            since_base = TableRows(version, base[0], unknown=_NOT_TOLD)
        return _surer(since_begin, since_base, self._missing_then(base))

    @property
    def _shown_from(self) -> int | None:
        """The first version that the log shows; None where it shows none, or another table was read before."""
        return None if self.history.is_another else self.history.first_shown

    @cached_property
    def _heads(self) -> Sequence[EntryHead]:
        """The entries whose rows this table should have.

        Versions of a table that was there before this one, or that a copy lacks, are those of other rows.
        """
        gone, heads = self.history.told_gone, self.history.heads
        return [head for i, head in enumerate(heads) if self.history.in_this_table(head) and i not in gone]

    @property
    def _counted(self) -> tuple[int, int] | None:
        """The version at which an earlier audit counted the rows of this table, and how many; None for none."""
        known = self.history.known
        if known is None or self.history.is_another:
            return None
        if known.position is None:  # no proof knows the table
            return known.counted
        counted = memory_of(self.proof, CountedRows)
        return (counted.at, counted.rows) if counted is not None else None

    @property
    def _counted_before(self) -> tuple[int, int] | None:
        """The same; None where entries between that audit and these are not known."""
        base = self._counted
        return None if base is None or self.history.looked_up_to > base[0] else base

    def _missing_then(self, base: tuple[int, int]) -> int:
        """How many rows were missing when an earlier audit counted, as far as findings count them.

        They are open, or somebody accepted them.
        """
        written = _written(self._heads, -1, base[0] + 1)
        before = max(written - base[1], 0) if isinstance(written, int) else 0
        return min(before, _counted_missing(self._open))

    @property
    def _is_asked(self) -> bool:
        """Whether a question about rows waits for an answer that an earlier audit, which counted them, did not give."""
        waiting = [of for of in self._open if of.accepted is None and of.check == "delta_history"]
        return any(of.finding.code is Code.INCONCLUSIVE for of in waiting)

    @property
    def _open(self) -> Sequence[OpenFinding]:
        return self.proof.open if self.proof is not None else ()

    def _since(self, since: int, rows: int, version: int) -> TableRows | None:
        """The comparison from `rows` rows at version `since` on; None where the log shows all commits since."""
        # The next number of a Delta log follows from the one before; an Iceberg table may begin anew with any.
        if version <= since + (1 if self.history.log.line is None else 0):
            return None
        held, written = _rows_before(self.history.log, version), _written(self._heads, since, version)
        if self.time.is_past:
            unknown = "the period ends before now, and the table's rows are those of now"
            return TableRows(version, since, unknown=unknown)
        for not_known in (held, written):
            if isinstance(not_known, str):
                return TableRows(version, since, unknown=not_known)
        before = self.history.deletions_before
        lawful, deleted = before.between(since, version) if before is not None else (0, 0)
        found = TableRows(version, since, int(held), rows + int(written) - deleted)
        unseen = _of_others(self._heads, since, version) - lawful
        if unseen and found.held == found.accounted:
            why = f"the log no longer has {plural(unseen, 'commit')} of others, which may have replaced rows"
            return TableRows(version, since, unknown=why)
        return found

    @property
    def _never_read(self) -> str:
        """Which commits are gone from the log that no audit read, and may have taken rows away that no count misses.

        Only in a sink whose micro-batches replace rows; "" where there are none. A Delta table numbers each commit, and
        the ledger has the numbers of its own. An Iceberg table numbers no rollback.
        """
        history, version = self.history, self._shown_from
        if version is None or not self.rewrites:
            return ""
        first = min((head.sink_version for head in self._heads if head.sink_version is not None), default=version)
        # What was done before the first entry, or before the period, took none of their rows. An audit that proved
        # nothing may have left out what others did, and what it found is not carried on.
        since = history.known.version if history.known is not None and history.known.position is not None else first
        if (history.log.whole and first >= version) or version <= since:
            return ""
        if history.log.line is not None:
            return f"snapshots between sequence numbers {since} and {version}"
        others = _of_others(self._heads, since, version)
        return f"{plural(others, 'commit')} of others between versions {since} and {version}" if others else ""

    def judge(self, findings: Findings) -> None:
        """Adds findings for rows that no commit of the log took away or added, and for what cannot be told of them."""
        rows, where, words = self.rows, self.history.location, self.history.log.words
        if never_read := self._never_read:
            message = (
                f"the {words.table} at {where} no longer shows {never_read}, which no audit had read. Whether rows "
                "were taken away there is not known: micro-batches replace rows, so that their number does not tell. "
                "Compare the table with its source, then accept this, and audit within the log's retention"
            )
            findings.add(Code.INCONCLUSIVE, message, about=f"not read: {never_read}", changed_by=())
        if rows is not None and rows.unknown:
            self._report_not_compared(rows, findings)
        elif rows is not None and rows.missing:
            _report_missing(rows, where, findings)
        elif rows is not None and rows.held > rows.accounted and not self._is_whole:
            findings.add(
                Code.INCONCLUSIVE,
                f"{where} had {plural(rows.held, 'row')} before version {rows.version}, and {rows.accounted_by} "
                f"{rows.accounted:,}: others were added by commits that are cleaned up from the log, and whether they "
                "double rows is not known; `recon audit --full` looks at the rows of all micro-batches",
                about=f"before version {rows.version} {rows.held} rows, {rows.accounted} since {rows.since}",
            )

    @property
    def _is_whole(self) -> bool:
        """Whether source_rows looks at the rows of all micro-batches of the ledger, or the audit proves nothing new."""
        return self.history.is_complete or self.time.is_past

    def _report_not_compared(self, rows: TableRows, findings: Findings) -> None:
        """Where rows cannot be compared; restored entries of a query that makes several of a record have no counts.

        One finding for all of these, which names each: who accepted that nobody counted them did not accept what was
        done to them.
        """
        unknown = (
            f"the rows of {self.history.location} could not be compared with those of the ledger: {rows.unknown}; its "
            f"log begins at version {rows.version}, and what was done to rows before is not known"
        )
        judged = self.history.heads[len(self.history.anchors) :]
        restored = [head for head in judged if head.is_uncounted and not head.is_observed]
        if not self._is_whole:
            message = f"{unknown}; `recon audit --full` looks at the rows of all micro-batches"
            findings.add(Code.INCONCLUSIVE, message, about=f"rows before version {rows.version} not counted")
            return
        findings.add(Code.METRIC_UNRELIABLE, unknown)
        if restored and self.explodes:
            which = every_number(restored)
            message = f"{unknown}: rows of restored entries ({which}) may be others; compare them, then accept it"
            findings.add(Code.INCONCLUSIVE, message, about=f"restored {which}")

    @property
    def to_remember(self) -> int | None:
        """The table's rows as the next audit may start from; None where this one did not read all commits up to now."""
        history, base = self.history, self._counted
        if history.first_shown is None or isinstance(history.log.files, Unavailable):
            return None
        if self.rows is not None and self.rows.held > self.rows.accounted and not history.is_complete:
            return None  # whether the rows too many double others was not looked at
        read_whole = base is None or history.first_shown <= max(base[0] + 1, history.log.first_retained or 0)
        return history.log.files.rows if read_whole else None


def _is_attested(history: TableHistory, version: int) -> bool:
    """Whether a judged entry's commit is one that the log, which begins at `version`, no longer shows."""
    judged = history.heads[len(history.anchors) :]
    return any(
        head.sink_version is not None and head.sink_version < version and history.in_this_table(head) for head in judged
    )


def _surer(since_begin: TableRows | None, since_base: TableRows | None, missing_then: int) -> TableRows | None:
    """Which of two comparisons says more: that with all entries, or that with what an earlier audit counted."""
    if since_begin is not None and since_begin.missing:
        return since_base if since_begin.missing <= missing_then else since_begin
    # Rows too many may have been there when that audit counted; a slice that has every entry shows them all the same.
    return since_begin if since_begin is not None and not (since_base is not None and since_base.doubt) else since_base


def _counted_missing(open_: Iterable[OpenFinding]) -> int:
    """How many missing rows the findings count at most that are open or accepted.

    Those of source_rows that name offsets tell of the same rows; those of delta_history name what a RESTORE undid.
    """
    gone = [of for of in open_ if of.finding.code is Code.GAP and of.finding.changed_by is not None]
    told = (of for of in gone if of.finding.span is None or of.check == "delta_history")
    return sum(of.finding.rows or of.spans.size for of in told)


def _wrote_before(heads: Sequence[EntryHead], history: TableHistory) -> int:
    """The version of the first entry where the table was written before recon: what was there is not known.

    0 where nothing was there before the first entry: recon made the table, or somebody did who wrote nothing into it.
    """
    first = heads[0] if history.is_complete and heads else None
    version = (first.sink_version or 0) if first is not None else 0
    made = 0 if history.log.line is None else 1  # Iceberg's sequence numbers begin at 1
    return version if first is not None and (first.is_observed or version > made + 1) else 0


def _of_others(heads: Sequence[EntryHead], since: int, before: int) -> int:
    """How many versions between two, both excluded, are of no entry: others made them."""
    own = {head.sink_version for head in heads if head.sink_version is not None}
    return before - since - 1 - sum(since < version < before for version in own)


def _report_missing(rows: TableRows, where: str, findings: Findings) -> None:
    # Before which version it had how many rows changes as more of the log is cleaned up, and is in the evidence.
    about = f"{rows.missing} rows since {rows.since}"
    lacks = f"{where} lacks {plural(rows.missing, 'row')} that were written; {rows.accounted_by} {rows.accounted:,}"
    step = "find out who ran a DELETE, a RESTORE or an overwrite"
    message = f"{lacks}: commits that are cleaned up from the log took rows away; {step}"
    findings.add(Code.MUTATED, message, about=about, changed_by=())
    message = f"{lacks}, and the log no longer shows why; source_rows names the offsets"
    findings.add(Code.GAP, message, about=about, rows=rows.missing, changed_by=())


def _rows_before(delta: TableLog, version: int) -> int | str:
    """The rows of the table before a version: those of now, without what the commits since added on balance."""
    if isinstance(delta.files, Unavailable):
        return delta.files.reason
    if delta.files.rows is None:
        without, files = delta.files.without_statistics, delta.files.files
        return f"the statistics of {without:,} of {files:,} data files do not say how many rows are left"
    rows = delta.files.rows
    for commit in delta.commits.values():
        if commit.version >= version:
            added, removed = commit.rewrote or (commit.rows_added, commit.rows_removed)
            if added is None or removed is None:
                if commit.rewrote is not None:
                    continue  # as many of both, as far as is known
                return f"version {commit.version} does not say how many rows it added and removed"
            rows -= added - removed
    return rows


def _written(heads: Sequence[EntryHead], since: int, before: int) -> int | str:
    """The rows that entries wrote between two versions, both excluded, less those that repairs removed.

    Several entries may name one version, and the newest that says how many counts.
    """
    rows: dict[int, int | None] = {}
    for head in reversed(heads):
        version = head.sink_version
        if version is not None and since < version < before and rows.get(version) is None:
            rows[version] = _brought(head)
    unknown = sum(count is None for count in rows.values())
    if unknown:
        return f"the rows written are not known of {plural(unknown, 'ledger entry')}"
    return sum(count for count in rows.values() if count is not None)


def _brought(head: EntryHead) -> int | None:
    """The rows of an entry; None where it may have counted some that a retried stage wrote twice."""
    certain = head.rows_written is not None and (head.given is None or head.rows_written <= head.given.rows)
    return (head.rows_written or 0) - (head.rows_removed or 0) if certain else None


def described(rows: TableRows | None) -> Mapping[str, int | str]:
    """The comparison for a verdict's evidence; empty where there was none."""
    if rows is None:
        return {}
    if rows.unknown:
        return {"rows_not_compared": rows.unknown}
    return {"rows_before": rows.held, "rows_accounted": rows.accounted, "log_shown_from": rows.version}
