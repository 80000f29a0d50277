"""Whether the rows that wait in a sink's quarantine table are still there, and as recon wrote them.

Each audit judges the commits that its log has since the audit before. Those of recon's own, and those that change no
data, ask nothing. Where others took rows out, or the log does not show what happened, the rows are counted and held
against the ledger: released rows may be deleted, rows that wait may not.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import ClassVar, NamedTuple, Self

from typing_extensions import override

from recon.judge.findings import Findings, commit_of, exactly, named
from recon.judge.history.table_history import TableHistory
from recon.model import (
    REPAIRS,
    Code,
    DeltaCommit,
    DeltaWitness,
    LedgerSlice,
    LiveFiles,
    QuarantinedRows,
    Unavailable,
    Witnesses,
    known,
    why_unknown,
)
from recon.model.erasure import Erasure
from recon.model.memory import SinkAudit, SinkMemory
from recon.model.proof import Proofs
from recon.model.wire.app_ids import claim_app_id
from recon.model.wire.columns import ROW_ID
from recon.model.wire.quarantine import parse_erased, parse_returned
from recon.text import plural, some

# Operations that write rows; with dataChange=false they say themselves that they changed none, and are not believed.
_WRITING = ("WRITE", "DELETE", "UPDATE", "MERGE", "TRUNCATE", "REPLACE", "CREATE OR REPLACE")
# How long after its entry an erasure may still write; for those of versions of recon that did not mark their commits.
_ERASES_WITHIN = timedelta(hours=1)
_ALL_REPAIRS = -1  # in place of a number


class _Batch(NamedTuple):
    epoch: int
    batch_id: int


@dataclass(frozen=True)
class Missing:
    """How many rows that should wait are not there: in all, and by micro-batch where that can be told.

    `unknown` is whether entries do not say how many rows they quarantined, or took: then there may be more.
    """

    rows: int
    of_batch: Mapping[tuple[int, int], int]
    unknown: bool


def missing(counted: QuarantinedRows) -> Missing:
    """The rows that the ledger counts as quarantined, less those that wait, and those that releases took.

    Rows that a release claimed without an entry still wait: it may be finished, or give them back. Rows of repairs
    carry the number of the micro-batch that read their offsets before, so that all repairs are counted together.
    """
    held: dict[tuple[int | None, int | None], int] = {}
    waiting: dict[tuple[int | None, int | None], int] = {}
    left: dict[int, int] = {}
    for (epoch, number, release), rows in counted.rows.items():
        batch_id = _ALL_REPAIRS if epoch == REPAIRS else number
        held[epoch, batch_id] = held.get((epoch, batch_id), 0) + rows
        if release is None or release not in counted.released:
            waiting[epoch, batch_id] = waiting.get((epoch, batch_id), 0) + rows
        else:
            left[release] = left.get(release, 0) + rows
    entered: dict[tuple[int, int], int] = {}
    unsaid = {_group(batch) for batch, rows in counted.entered.items() if rows is None}
    for batch, rows_of in counted.entered.items():
        entered[_group(batch)] = entered.get(_group(batch), 0) + (rows_of or 0)
    entered |= {batch: max(entered[batch], held.get(batch, 0)) for batch in unsaid}
    took = sum(left.get(number, 0) if rows is None else rows for number, rows in counted.released.items())
    lacks = sum(rows - min(rows, waiting.get(batch, 0)) for batch, rows in entered.items()) - took
    of_batch = {batch: rows - held.get(batch, 0) for batch, rows in entered.items() if rows > held.get(batch, 0)}
    if sum(of_batch.values()) != lacks or (REPAIRS, _ALL_REPAIRS) in of_batch:
        of_batch = {}  # released rows were deleted as well, of which nobody knows the micro-batches
    return Missing(max(lacks, 0), of_batch, bool(unsaid) or None in counted.released.values())


def _group(batch: tuple[int, int]) -> tuple[int, int]:
    """What the rows of a micro-batch or a repair are counted with."""
    return (REPAIRS, _ALL_REPAIRS) if batch[0] == REPAIRS else batch


@dataclass(frozen=True, kw_only=True)
class QuarantineJudged(SinkMemory):
    """How far an audit judged the log of a sink's quarantine table: up to this version of the table with this id.

    Both are None where there was no table. `missing` is how many rows the table had fewer than should wait there, by
    the newest audit that counted them: they were reported, and are reported no more than once.
    """

    name: ClassVar[str] = "quarantine"
    table_id: str | None = None
    version: int | None = None
    missing: int = 0

    @override
    @classmethod
    def after(cls, before: Self | None, audit: SinkAudit) -> Self | None:
        """How far the log is judged now; as before where it could not be, so that the next audit does."""
        ledger, witnesses = audit.ledger, audit.witnesses
        if unread(ledger.sink, witnesses) is not None:
            return before
        seen = log_of(ledger, witnesses)
        if seen is None:
            return before or cls()
        counted = witnesses.quarantine_rows.get(ledger.sink)
        if seen.needs_answer(counted) or seen.is_erasure_unknown:
            return before
        lacks = before.missing if before is not None else 0
        if isinstance(counted, QuarantinedRows):
            lacks = missing(counted).rows
        return cls(table_id=seen.log.table_id, version=seen.log.last, missing=lacks)


@dataclass(frozen=True)
class QuarantineLog:
    """The log of a sink's quarantine table, and how far the audit judged it whose state is known.

    `whole` is whether the audit judges the whole ledger; `entered` whether entries of its slice quarantined rows;
    `erased` are the erasures of the sink, None where they are not known.
    """

    pipeline: str
    sink: str
    log: DeltaWitness
    judged: QuarantineJudged | None
    whole: bool
    entered: bool
    erased: Sequence[Erasure] | None

    @classmethod
    def of(cls, ledger: LedgerSlice, log: DeltaWitness, proofs: Proofs) -> QuarantineLog:
        """The log of the sink that a slice of the ledger is of."""
        sink = ledger.sink
        unsure = sink in proofs.erasures_edited or sink in proofs.erasures_unknown
        return cls(
            ledger.pipeline,
            sink,
            log,
            proofs.memory(sink, QuarantineJudged),
            ledger.complete,
            quarantines(ledger),
            None if unsure else proofs.erased.get(sink, ()),
        )

    @property
    def is_replaced(self) -> bool:
        """Whether it is the log of another table than the one that was judged."""
        before = self.judged.table_id if self.judged is not None else None
        return None not in (before, self.log.table_id) and before != self.log.table_id

    @property
    def is_older(self) -> bool:
        """Whether the log ends before what was judged of it."""
        version = self.judged.version if self.judged is not None else None
        return not self.is_replaced and None not in (version, self.log.last) and self.log.last < version  # type: ignore[operator]

    @property
    def is_gone(self) -> bool:
        """Whether there is no table, though there was one, or entries quarantined rows."""
        was = self.judged is not None and self.judged.version is not None
        return not self.log.exists and (was or self.entered)

    @property
    def after(self) -> int:
        """The version up to which the commits were judged; -1 where all of them are judged now."""
        if self.whole or self.judged is None or self.judged.version is None or self.is_replaced or self.is_older:
            return -1
        return self.judged.version

    @property
    def is_cut(self) -> bool:
        """Whether the log lacks commits of those that are to be judged."""
        return self.log.last is not None and len(self._new) < self.log.last - self.after

    @property
    def needs_whole(self) -> bool:
        """Whether the commits before those that are to be judged are needed, too.

        A RESTORE may have undone them, and rows that others added before may stand for those that are removed now.
        """
        return bool(self.is_replaced or self.is_older or self.removing)

    @cached_property
    def _new(self) -> Sequence[DeltaCommit]:
        return [commit for version, commit in sorted(self.log.commits.items()) if version > self.after]

    @cached_property
    def _others(self) -> Sequence[DeltaCommit]:
        return [commit for commit in self._new if commit.data_change and not self._is_own(commit)]

    @property
    def removing(self) -> Sequence[DeltaCommit]:
        """Commits of others that took rows out, or put others in their place."""
        return [commit for commit in self._others if commit.files_removed or commit.is_restore]

    @property
    def adding(self) -> Sequence[DeltaCommit]:
        """Commits of others that only added rows."""
        return [commit for commit in self._others if not (commit.files_removed or commit.is_restore)]

    @property
    def is_ambiguous(self) -> bool:
        """Whether others removed rows and added others, now or before, so that their number proves nothing."""
        added = (c for c in self.log.commits.values() if c.data_change and not c.files_removed and not c.is_restore)
        return bool(self.removing) and any(not self._is_own(commit) for commit in added)

    @property
    def _is_questioned(self) -> bool:
        """Whether rows may be gone, or the log does not show that none are."""
        unsaid = any(not c.data_change and c.operation.upper().startswith(_WRITING) for c in self._new)
        return bool(self.removing or unsaid or self.is_cut or self.is_gone or self.is_replaced or self.is_older)

    @property
    def _is_unknown(self) -> bool:
        """Whether no audit looked at the rows of earlier periods yet."""
        return self.judged is None and not self.whole

    @property
    def needs_count(self) -> bool:
        """Whether the rows of the table must be counted."""
        return self._is_questioned or self._is_unknown or (self.whole and (self.entered or self.log.exists))

    def needs_answer(self, counted: QuarantinedRows | Unavailable | None) -> bool:
        """Whether the rows should have been counted and were not."""
        if isinstance(counted, QuarantinedRows):
            return False
        return self._is_questioned or (self._is_unknown and counted is not None)

    @property
    def is_erasure_unknown(self) -> bool:
        """Whether erasures may have changed rows, and what was erased is not known."""
        return self.erased is None and any(self._may_erase(commit) for commit in self._new)

    @staticmethod
    def _may_erase(commit: DeltaCommit) -> bool:
        marked = parse_erased(commit.user_metadata) is not None
        by_id = ROW_ID in str(commit.operation_parameters.get("predicate"))
        return commit.operation.upper().startswith("UPDATE") and (marked or by_id)

    def _is_own(self, commit: DeltaCommit) -> bool:
        """Whether recon made a commit for this sink: an append, a claim, rows that are given back, or an erasure."""
        if commit.stamp is not None:
            return commit.stamp.is_of(self.pipeline, self.sink) and not commit.files_removed
        if claim_app_id(self.pipeline, self.sink) in commit.txn:
            inserted_or_deleted = (commit.metric("numTargetRowsInserted"), commit.metric("numTargetRowsDeleted"))
            return commit.is_merge and not any(inserted_or_deleted)
        if not commit.operation.upper().startswith("UPDATE"):
            return False
        return parse_returned(commit.user_metadata) is not None or self._erases(commit)

    def _erases(self, commit: DeltaCommit) -> bool:
        """Whether an entry of `recon forget` accounts for a commit that removed values."""
        number, rows = parse_erased(commit.user_metadata), _updated(commit)
        if number is not None:
            same = (c for c in self.log.commits.values() if parse_erased(c.user_metadata) == number)
            rows = sum(_updated(c) or 0 for c in same)
            return self.erased is None or (
                0 < number <= len(self.erased) and rows <= self.erased[number - 1].quarantined
            )
        return (self.judged is None or self.whole) and self._erases_unmarked(commit, rows)

    def _erases_unmarked(self, commit: DeltaCommit, rows: int | None) -> bool:
        """Whether an entry of `recon forget` that marked no commit accounts for one: earlier versions marked none."""
        if ROW_ID not in str(commit.operation_parameters.get("predicate")):
            return False
        marked = {parse_erased(c.user_metadata) for c in self.log.commits.values()}
        return self.erased is None or any(
            entry.at - timedelta(seconds=1) <= commit.timestamp <= entry.at + _ERASES_WITHIN
            and (rows is None or rows <= entry.quarantined)
            for number, entry in enumerate(self.erased, start=1)
            if number not in marked
        )


def _updated(commit: DeltaCommit) -> int | None:
    """The rows that an UPDATE changed, as delta-rs or Spark counts them."""
    rows = commit.metric("num_updated_rows")
    return commit.metric("numUpdatedRows") if rows is None else rows


def quarantines(ledger: LedgerSlice) -> bool:
    """Whether entries of a slice, or those before it that it begins with, quarantined rows."""
    return any(head.rows_quarantined for head in ledger.heads)


def is_relied_on(ledger: LedgerSlice, proofs: Proofs) -> bool:
    """Whether rows may wait in a sink's quarantine table that the accounting counts on, of this period or before it."""
    judged = proofs.memory(ledger.sink, QuarantineJudged)
    return quarantines(ledger) or judged is None or judged.version is not None


def log_of(ledger: LedgerSlice, witnesses: Witnesses) -> QuarantineLog | None:
    """The log of the sink's quarantine table; None where it was not read, or could not be."""
    log = (known(witnesses.quarantine) or {}).get(ledger.sink)
    return QuarantineLog.of(ledger, log, witnesses.proofs) if isinstance(log, DeltaWitness) else None


def unread(sink: str, witnesses: Witnesses) -> Unavailable | None:
    """Why the log of a sink's quarantine table is not known; None where it is, or there is none to read."""
    logs = witnesses.quarantine
    log = logs if isinstance(logs, Unavailable) else logs.get(sink)
    return log if isinstance(log, Unavailable) else None


def judge_quarantine(ledger: LedgerSlice, witnesses: Witnesses, findings: Findings, *, rows_tell: bool) -> None:
    """Adds findings where rows that waited in quarantine are gone, were changed by others, or nobody can tell.

    `rows_tell` is whether rows of the judged micro-batches were read, which name the offsets that are in no table.
    """
    state = witnesses.proofs.of_sink.get(ledger.sink)
    why = unread(ledger.sink, witnesses)
    if why is not None:
        judged = witnesses.proofs.memory(ledger.sink, QuarantineJudged)
        relies = judged.version is not None if judged is not None else state is not None and not ledger.complete
        if relies:
            _report_unread(why.reason, findings)
        return
    seen = log_of(ledger, witnesses)
    if seen is None:
        return
    _judge_table(seen, findings)
    _judge_commits(seen, findings)
    if seen.is_erasure_unknown:
        _report_unread("what was erased on somebody's request is not known, and commits may have done it", findings)
    counted = witnesses.quarantine_rows.get(ledger.sink)
    if seen.needs_answer(counted) and not (seen.whole and rows_tell):
        _report_unread(why_unknown(counted, "they were not counted"), findings)
    if isinstance(counted, QuarantinedRows):
        heads = ledger.heads[ledger.anchors :] if rows_tell else ()
        _judge_count(seen, missing(counted), findings, told={(head.epoch, head.batch_id) for head in heads})


def _report_unread(reason: str, findings: Findings) -> None:
    message = f"whether the rows that wait in quarantine are still there is not known: {reason}"
    findings.add(Code.INCONCLUSIVE, message, about="quarantine")


def _judge_table(seen: QuarantineLog, findings: Findings) -> None:
    """Another table, an older copy, and data files that are gone."""
    table, before = f"the quarantine table {seen.log.location}", seen.judged
    if seen.is_older and before is not None:
        findings.add(
            Code.MUTATED,
            f"{table} ends with version {seen.log.last}, and an earlier audit read version {before.version}: it was "
            "put back to an older copy; find out who did it, and restore the newer one",
            about=f"quarantine ends with version {seen.log.last}, was read up to {before.version}",
        )
    if seen.is_replaced and (seen.adding or seen.removing or seen.is_cut):
        findings.add(
            Code.MUTATED,
            f"{table} is another table than an earlier audit read, and not recon alone wrote it: its rows may be "
            "others than those that were quarantined; restore the table that was there",
            about=f"another quarantine table: {seen.log.table_id}",
        )
    files = seen.log.files
    gone = files.gone if isinstance(files, LiveFiles) else files
    if isinstance(gone, Unavailable):
        if seen.log.exists:
            _report_unread(gone.reason, findings)
    elif gone:
        findings.add(
            Code.MUTATED,
            f"{table} lacks {plural(len(gone), 'data file')} that its log names: {some(file.path for file in gone)}; "
            "restore them from a copy, and find out what removes files past Delta",
            about=f"quarantine files {exactly(sorted(file.path for file in gone))}",
        )


def _judge_commits(seen: QuarantineLog, findings: Findings) -> None:
    """Commits of others that still act on the table; which rows a DELETE took is told by the count."""
    history, table = TableHistory(seen.log), f"the quarantine table {seen.log.location}"
    for commit in (commit for commit in seen.removing if history.stands(commit.version)):
        at = f"find out who ran it at {commit.timestamp:%Y-%m-%d %H:%M:%S}Z"
        if commit.is_restore:
            _judge_restore(seen, commit, findings)
        elif not commit.operation.upper().startswith(("DELETE", "TRUNCATE")):
            findings.add(
                Code.MUTATED,
                f"version {commit.version} of {table} is {commit.operation or 'a commit without an operation'}, which "
                f"recon did not make: rows that wait there may have other values than were quarantined; {at}, and "
                f"compare them with version {commit.version - 1}",
                about=f"quarantine {commit_of(commit)}",
            )
    strangers = [commit for commit in seen.adding if history.stands(commit.version)]
    if strangers:
        what = some(f"{c.version} ({c.operation or 'no operation'})" for c in strangers)
        findings.add(
            Code.UNSTAMPED,
            f"{plural(len(strangers), 'commit')} added rows to {table} without recon's mark: version {what}; a release "
            "would write them to the sink",
        )


def _judge_restore(seen: QuarantineLog, commit: DeltaCommit, findings: Findings) -> None:
    """A RESTORE: it may undo what others did to the table, but nothing that recon wrote."""
    target = commit.restored_version
    named_version = f"version {commit.version} of the quarantine table {seen.log.location} is a RESTORE"
    if target is None:
        findings.add(
            Code.INCONCLUSIVE,
            f"{named_version} to a point in time, so which commits it undid is not known; see DESCRIBE HISTORY",
            about=f"quarantine {commit_of(commit)}",
        )
        return
    between = [seen.log.commits.get(version) for version in range(target + 1, commit.version)]
    undone = [c.version for c in between if c is not None and c.data_change and seen._is_own(c)]
    if undone or None in between:
        what = f"what recon wrote in version {some(undone)}" if undone else "commits that the log no longer has"
        findings.add(
            Code.MUTATED,
            f"{named_version} to version {target}, which undid {what}: rows that were released may wait again, and "
            "rows that were quarantined may be gone; find out who ran it, and compare the table with version "
            f"{commit.version - 1}",
            about=f"quarantine {commit_of(commit)}",
        )


def _judge_count(seen: QuarantineLog, lacks: Missing, findings: Findings, *, told: Collection[tuple[int, int]]) -> None:
    """Rows that should wait, and that the table does not have; `told` are micro-batches whose rows were read."""
    before = seen.judged.missing if seen.judged is not None else 0
    table = f"the quarantine table {seen.log.location}"
    since = some(f"{commit.version} ({commit.operation})" for commit in seen.removing)
    if lacks.rows <= before:
        if lacks.unknown and seen.needs_answer(None) and not seen.whole:
            _report_unread(f"entries of the ledger do not say how many rows they put into {table}, or took", findings)
        if seen.is_ambiguous and not (seen.whole and told):
            _report_unread(f"others added rows to {table}, and removed rows in version {since}", findings)
        return
    if seen.whole and (told or seen.judged is None):
        return  # source_rows reads the rows, and names the offsets that are in no table
    if seen.judged is None:
        findings.add(
            Code.INCONCLUSIVE,
            f"{table} does not have {plural(lacks.rows, 'row')} that should wait there by the ledger's counts, and no "
            "earlier audit counted them; `recon audit --full` looks whether the sink has them",
            about=f"quarantine lacks {lacks.rows}",
        )
        return
    how = f"; rows were removed in version {since}" if since else "; there is no table" if seen.is_gone else ""
    step = "`recon audit --full` names their offsets, so that they can be read again"
    if not before and lacks.of_batch:
        for batch, rows in sorted((batch, rows) for batch, rows in lacks.of_batch.items() if batch not in told):
            what = f"{plural(rows, 'row')} of {named(_Batch(*batch))}"
            findings.add(
                Code.GAP,
                f"{table} no longer has {what} that waited there{how}; {step}",
                head=_Batch(*batch),
                rows=rows,
            )
        return
    what = plural(lacks.rows - before, "row")
    findings.add(
        Code.GAP,
        f"{table} no longer has {what} that waited there ({lacks.rows} in all){how}; {step}",
        about=f"quarantine lacks {lacks.rows} after {before}",
        rows=lacks.rows - before,
    )


__all__ = [
    "QuarantineJudged",
    "QuarantineLog",
    "is_relied_on",
    "judge_quarantine",
    "log_of",
    "missing",
    "unread",
]
