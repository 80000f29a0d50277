"""The rows that a Delta table has, against those that the ledger wrote, where its log no longer shows what happened.

A commit that the log still has is judged as such. What was done to rows by commits that are cleaned up shows only in
how many rows were there before the first commit that is left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

from typing_extensions import override

from recon.judge.history.table_history import TableHistory, history_of
from recon.model import Code, DeltaWitness, EntryHead, Unavailable, Witnesses
from recon.model.memory import SinkAudit, SinkMemory
from recon.text import plural

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
        table = audit.witnesses.table_log
        rows = rows_to_remember(audit.witnesses) if table is not None else None
        return before if rows is None or table is None or table.last is None else cls(at=table.last, rows=rows)


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
    def doubt(self) -> str:
        """Why rows may be gone that no commit of the log explains, in a sentence; "" where they cannot."""
        if self.held == self.accounted and not self.unknown:
            return ""
        what = f"the log of the sink begins at version {self.version}, and what was done to rows before it "
        if self.unknown:
            return f"{what}cannot be told: {self.unknown}"
        return f"{what}is not known: {plural(self.held, 'row')}, where {self.accounted:,} are accounted for"


def compared(witnesses: Witnesses, history: TableHistory) -> TableRows | None:
    """The table's rows against the ledger's; None where the log shows every commit, or micro-batches replace rows."""
    version = history.first_shown
    if version is None or witnesses.sink in witnesses.rewriting or history.is_another:
        return None
    heads = _still_claimed(history)
    begins_at = _wrote_before(heads, history)
    shown = history.log.whole and all((head.sink_version or version) >= version for head in heads)
    return None if shown or version <= begins_at else _compared(witnesses, history, heads, version, begins_at)


def _compared(
    witnesses: Witnesses, history: TableHistory, heads: Sequence[EntryHead], version: int, begins_at: int
) -> TableRows | None:
    """The rows before the first version that the log shows; `begins_at` is where the table was written before recon."""
    base, begun = _counted_before(witnesses, history), history.is_complete and not begins_at
    if base is None and not begun:
        attested = history.is_complete or _is_attested(history, version)
        return TableRows(version, -1, unknown=_NOT_COUNTED) if attested else None
    since_begin = _since(-1, 0, witnesses, heads, history, version) if begun else None
    if base is None:
        return since_begin
    since_base = _since(*base, witnesses, heads, history, version)
    if history.is_complete and _is_asked(witnesses):
        since_base = TableRows(version, base[0], unknown=_NOT_TOLD)
    return _surer(since_begin, since_base, _missing_then(heads, base, witnesses))


def _still_claimed(history: TableHistory) -> Sequence[EntryHead]:
    """The entries whose rows this table should have.

    Versions of a table that was there before this one, or that a copy lacks, are those of other rows.
    """
    gone = history.told_gone
    return [head for i, head in enumerate(history.heads) if history.in_this_table(head) and i not in gone]


def _counted_before(witnesses: Witnesses, history: TableHistory) -> tuple[int, int] | None:
    """The (version, rows) that an earlier audit counted; None where entries between it and these are not known."""
    base = _counted(witnesses, history)
    return None if base is None or history.looked_up_to > base[0] else base


def _is_attested(history: TableHistory, version: int) -> bool:
    """Whether a judged entry's commit is one that the log, which begins at `version`, no longer shows."""
    judged = history.heads[len(history.anchors) :]
    return any(
        head.sink_version is not None and head.sink_version < version and history.in_this_table(head) for head in judged
    )


def _missing_then(heads: Sequence[EntryHead], base: tuple[int, int], witnesses: Witnesses) -> int:
    """How many rows were missing when an earlier audit counted, as far as findings count them.

    They are open, or somebody accepted them.
    """
    written = _written(heads, -1, base[0] + 1)
    before = max(written - base[1], 0) if isinstance(written, int) else 0
    return min(before, _counted_missing(witnesses))


def _surer(since_begin: TableRows | None, since_base: TableRows | None, missing_then: int) -> TableRows | None:
    """Which of two comparisons says more: that with all entries, or that with what an earlier audit counted."""
    if since_begin is not None and since_begin.missing:
        return since_base if since_begin.missing <= missing_then else since_begin
    # Rows too many may have been there when that audit counted; a slice that has every entry shows them all the same.
    return since_begin if since_begin is not None and not (since_base is not None and since_base.doubt) else since_base


def _is_asked(witnesses: Witnesses) -> bool:
    """Whether a question about rows waits for an answer that an earlier audit, which counted them, could not give."""
    proof = witnesses.proof
    waiting = [one for one in (proof.open if proof is not None else ()) if one.accepted is None]
    return any(one.check == "delta_history" and one.finding.code is Code.INCONCLUSIVE for one in waiting)


def _counted_missing(witnesses: Witnesses) -> int:
    """How many missing rows the findings count at most that are open or accepted.

    Those of source_rows that name offsets tell of the same rows; those of delta_history name what a RESTORE undid.
    """
    proof = witnesses.proof
    gone = [one for one in (proof.open if proof is not None else ()) if one.finding.code is Code.GAP]
    by_commits = [one for one in gone if one.finding.changed_by is not None]
    told = (one for one in by_commits if one.finding.span is None or one.check == "delta_history")
    return sum(one.finding.rows or one.spans.size for one in told)


def _wrote_before(heads: Sequence[EntryHead], history: TableHistory) -> int:
    """The version of the first entry where the table was written before recon: what was there is not known.

    0 where nothing was there before the first entry: recon made the table, or somebody did who wrote nothing into it.
    """
    first = heads[0] if history.is_complete and heads else None
    version = (first.sink_version or 0) if first is not None else 0
    made = 0 if history.log.line is None else 1  # Iceberg's sequence numbers begin at 1
    return version if first is not None and (first.is_observed or version > made + 1) else 0


def _since(
    since: int, rows: int, witnesses: Witnesses, heads: Sequence[EntryHead], history: TableHistory, version: int
) -> TableRows | None:
    """The comparison that starts from `rows` rows at version `since`; None where the log shows all commits since."""
    # The next number of a Delta log follows from the one before; an Iceberg table may begin anew with any.
    if version <= since + (1 if history.log.line is None else 0):
        return None
    held, written = _rows_before(history.log, version), _written(heads, since, version)
    unknown = next((reason for reason in (held, written) if isinstance(reason, str)), "")
    if witnesses.period_to < witnesses.now:
        unknown = "the period ends before now, and the table's rows are those of now"
    unseen = _of_others(heads, since, version)
    if not unknown and unseen and held == rows + int(written):
        unknown = f"the log no longer has {plural(unseen, 'commit')} of others, which may have replaced rows"
    if isinstance(held, str) or isinstance(written, str) or unknown:
        return TableRows(version, since, unknown=unknown)
    return TableRows(version, since, held, rows + written)


def _of_others(heads: Sequence[EntryHead], since: int, before: int) -> int:
    """How many versions between two, both excluded, are of no entry: others made them."""
    own = {head.sink_version for head in heads if head.sink_version is not None}
    return before - since - 1 - sum(since < version < before for version in own)


def commits_never_read(witnesses: Witnesses, history: TableHistory) -> str:
    """Which commits are gone from the log that no audit read, and may have taken rows away that no count misses.

    Only in a sink whose micro-batches replace rows, so that how many it should have is not known; "" where there are
    none. A Delta table numbers each commit, and the ledger has the numbers of its own. An Iceberg table numbers no
    rollback.
    """
    log, known, version = history.log, history.known, history.first_shown
    if version is None or witnesses.sink not in witnesses.rewriting or history.is_another:
        return ""
    heads = _still_claimed(history)
    written = [head.sink_version for head in heads if head.sink_version is not None]
    # What was done before the first entry, or before the period, took none of their rows. An audit that proved nothing
    # may have left out what others did, and what it found is not carried on.
    since = min(written, default=version) if known is None or known.position is None else known.version
    if (log.whole and min(written, default=version) >= version) or version <= since:
        return ""
    if log.line is not None:
        return f"snapshots between sequence numbers {since} and {version}"
    others = _of_others(heads, since, version)
    return f"{plural(others, 'commit')} of others between versions {since} and {version}" if others else ""


def rows_to_remember(witnesses: Witnesses) -> int | None:
    """The table's rows as the next audit may start from; None where this one did not read all commits up to now."""
    history = history_of(witnesses, witnesses.ledger)
    if history is None or history.first_shown is None or isinstance(history.log.files, Unavailable):
        return None
    seen, base = compared(witnesses, history), _counted(witnesses, history)
    if seen is not None and seen.held > seen.accounted and not history.is_complete:
        return None  # whether the rows too many double others was not looked at
    read_whole = base is None or history.first_shown <= max(base[0] + 1, history.log.first_retained or 0)
    return history.log.files.rows if read_whole else None


def _counted(witnesses: Witnesses, history: TableHistory) -> tuple[int, int] | None:
    """The version at which an earlier audit counted the rows of this table, and how many it had; None for none."""
    if history.known is None or history.is_another:
        return None
    if history.known.position is None:  # no proof knows the table
        return history.known.counted
    counted = witnesses.memory(CountedRows)
    return (counted.at, counted.rows) if counted is not None else None


def _rows_before(delta: DeltaWitness, version: int) -> int | str:
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

    Several entries may name one version, and the newest counts. An entry may have counted rows that a retried stage
    wrote twice.
    """
    rows: dict[int, int | None] = {}
    for head in reversed(heads):
        if head.sink_version is not None and since < head.sink_version < before:
            known = rows.get(head.sink_version)
            certain = head.rows_written is not None and (head.given is None or head.rows_written <= head.given.rows)
            brought = (head.rows_written or 0) - (head.rows_removed or 0) if certain else None
            rows[head.sink_version] = brought if known is None else known
    unknown = sum(count is None for count in rows.values())
    if unknown:
        return f"the rows written are not known of {plural(unknown, 'ledger entry')}"
    return sum(count for count in rows.values() if count is not None)


def described(rows: TableRows | None) -> Mapping[str, int | str]:
    """The comparison for a verdict's evidence; empty where there was none."""
    if rows is None:
        return {}
    if rows.unknown:
        return {"rows_not_compared": rows.unknown}
    return {"rows_before": rows.held, "rows_accounted": rows.accounted, "log_shown_from": rows.version}
