"""Whether the rows that wait in a sink's quarantine table are still there, and as recon wrote them.

Each audit judges the commits that its log has since the audit before. Those of recon's own, and those that change no
data, ask nothing. Where others took rows out, or the log does not show what happened, the rows are counted and held
against the ledger: released rows may be deleted, rows that wait may not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import ClassVar, NamedTuple, Self

from typing_extensions import override

from recon.base.text import plural, some
from recon.judge.findings import Findings, commit_of, exactly
from recon.judge.history.table_history import TableHistory
from recon.model import (
    RELEASES,
    REPAIRS,
    Code,
    LedgerSlice,
    QuarantinedRows,
    TableCommit,
    TableLog,
    Unavailable,
    Witnesses,
    why_unknown,
)
from recon.model.erasure import Erasure
from recon.model.ledger import named
from recon.model.memory import SinkAudit, SinkMemory
from recon.model.proof import Proofs
from recon.model.wire.app_ids import claim_app_id
from recon.model.wire.quarantine import parse_erased, parse_returned

# Operations that write rows; with dataChange=false they say themselves that they changed none, and are not believed.
_WRITING = ("WRITE", "DELETE", "UPDATE", "MERGE", "TRUNCATE", "REPLACE", "CREATE OR REPLACE")


class _Batch(NamedTuple):
    epoch: int
    batch_id: int


_EVERY_REPAIR = _Batch(REPAIRS, -1)


@dataclass(frozen=True)
class Missing:
    """How many rows that should wait are not there: in all, and by micro-batch where that can be told.

    `unknown` is whether entries do not say how many rows they quarantined, or took: then there may be more.
    """

    rows: int
    of_batch: Mapping[_Batch, int]
    unknown: bool


def missing(counted: QuarantinedRows) -> Missing:
    """The rows that the ledger counts as quarantined, less those that wait, and those that releases took.

    Rows that a release claimed without an entry still wait: it may be finished, or give them back. Rows of repairs
    carry the number of the micro-batch that read their offsets before, so that all repairs are counted together.
    """
    held, waiting, left = Counter[_Batch](), Counter[_Batch](), Counter[int | None]()
    for (epoch, number, release), rows in counted.rows.items():
        held[_group(epoch, number)] += rows
        if release in counted.released:
            left[release] += rows
        else:
            waiting[_group(epoch, number)] += rows
    entered = _entered(counted, held)
    took = sum(left[number] if rows_of is None else rows_of for number, rows_of in counted.released.items())
    lacks, of_batch = (entered - waiting).total() - took, entered - held
    # Else released rows were deleted as well, of which nobody knows the micro-batches.
    tells = of_batch.total() == lacks and _EVERY_REPAIR not in of_batch
    unknown = None in (*counted.entered.values(), *counted.released.values())
    return Missing(max(lacks, 0), of_batch if tells else {}, unknown)


def _entered(counted: QuarantinedRows, held: Counter[_Batch]) -> Counter[_Batch]:
    """The rows that entries count; of one that does not say how many, at least those that the table has."""
    entered, unsaid = Counter[_Batch](), Counter[_Batch]()
    for of, rows in counted.entered.items():
        batch = _group(*of)
        entered[batch] += rows or 0
        if rows is None:
            unsaid[batch] = held[batch]
    return entered | unsaid


def _group(epoch: int | None, number: int | None) -> _Batch:
    """What the rows of a micro-batch or a repair are counted with; those without a number with no entry."""
    if epoch is None or number is None:
        return _Batch(RELEASES, -1)
    return _EVERY_REPAIR if epoch == REPAIRS else _Batch(epoch, number)


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
        quarantine = Quarantine.of(audit.ledger, audit.witnesses)
        seen, counted = quarantine.seen, quarantine.counted
        if quarantine.unread is not None:
            return before
        if seen is None:
            return before or cls()
        if seen.needs_answer(counted) or seen.is_erasure_unknown:
            return before
        lacks = before.missing if before is not None else 0
        if isinstance(counted, QuarantinedRows):
            lacks = missing(counted).rows
        return cls(table_id=seen.log.table_id, version=seen.log.last, missing=lacks)


@dataclass(frozen=True, eq=False)
class QuarantineLog(TableHistory):
    """What happened to a sink's quarantine table, and how far the audit judged it whose state is known.

    `erased` are the erasures of the sink, None where they are not known.
    """

    before: QuarantineJudged | None = None
    erased: Sequence[Erasure] | None = ()

    @classmethod
    def of(cls, ledger: LedgerSlice, log: TableLog, proofs: Proofs) -> QuarantineLog:
        """The log of the sink that a slice of the ledger is of."""
        sink = ledger.sink
        unsure = sink in proofs.erasures_edited or sink in proofs.erasures_unknown
        erased = None if unsure else proofs.erased.get(sink, ())
        return cls(log, ledger.pipeline, sink, ledger, before=proofs.memory(sink, QuarantineJudged), erased=erased)

    @property
    def table(self) -> str:
        """The table, in messages."""
        return f"the quarantine table {self.location}"

    @property
    def is_replaced(self) -> bool:
        """Whether it is the log of another table than the one that was judged."""
        before = self.before.table_id if self.before is not None else None
        return None not in (before, self.log.table_id) and before != self.log.table_id

    @property
    def is_older(self) -> bool:
        """Whether the log ends before what was judged of it."""
        version = self.before.version if self.before is not None else None
        last = self.log.last
        return not self.is_replaced and version is not None and last is not None and last < version

    @property
    def is_gone(self) -> bool:
        """Whether there is no table, though there was one, or entries quarantined rows."""
        was = self.before is not None and self.before.version is not None
        return not self.exists and (was or quarantines(self.ledger))

    @property
    def after(self) -> int:
        """The version up to which the commits were judged; -1 where all of them are judged now."""
        if self.is_complete or self.before is None or self.before.version is None or self.is_replaced or self.is_older:
            return -1
        return self.before.version

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
    def _new(self) -> Sequence[TableCommit]:
        return [commit for commit in self.commits if commit.version > self.after]

    @cached_property
    def removing(self) -> Sequence[TableCommit]:
        """Commits of others that took rows out, or put others in their place."""
        return [commit for commit in self._new if self._is_foreign(commit) and not _appends(commit)]

    @cached_property
    def adding(self) -> Sequence[TableCommit]:
        """Commits of others that only added rows."""
        return [commit for commit in self._new if self._is_foreign(commit) and _appends(commit)]

    @property
    def is_ambiguous(self) -> bool:
        """Whether others removed rows and added others, now or before, so that their number proves nothing."""
        return bool(self.removing) and any(self._is_foreign(c) and _appends(c) for c in self.commits)

    @property
    def _is_questioned(self) -> bool:
        """Whether rows may be gone, or the log does not show that none are."""
        unsaid = any(not c.data_change and c.operation.upper().startswith(_WRITING) for c in self._new)
        return bool(self.removing or unsaid or self.is_cut or self.is_gone or self.is_replaced or self.is_older)

    @property
    def _is_unknown(self) -> bool:
        """Whether no audit looked at the rows of earlier periods yet."""
        return self.before is None and not self.is_complete

    @property
    def needs_count(self) -> bool:
        """Whether the rows of the table must be counted."""
        in_ledger = quarantines(self.ledger) or (self.is_complete and self.exists)
        return self._is_questioned or self._is_unknown or in_ledger

    def needs_answer(self, counted: QuarantinedRows | Unavailable | None) -> bool:
        """Whether the rows should have been counted and were not."""
        if isinstance(counted, QuarantinedRows):
            return False
        return self._is_questioned or (self._is_unknown and counted is not None)

    @property
    def is_erasure_unknown(self) -> bool:
        """Whether erasures may have changed rows, and what was erased is not known."""
        return self.erased is None and any(parse_erased(c.user_metadata) is not None for c in self._new)

    def _is_foreign(self, commit: TableCommit) -> bool:
        return commit.data_change and not self.is_own(commit)

    @override
    def is_own(self, commit: TableCommit) -> bool:
        """Whether recon made a commit for this sink: an append, a claim, rows that are given back, or an erasure."""
        if commit.stamp is not None:
            return super().is_own(commit) and not commit.files_removed
        if claim_app_id(self.pipeline, self.sink or "") in commit.txn:
            inserted_or_deleted = (commit.metric("numTargetRowsInserted"), commit.metric("numTargetRowsDeleted"))
            return commit.is_merge and not any(inserted_or_deleted)
        if not commit.operation.upper().startswith("UPDATE"):
            return False
        return parse_returned(commit.user_metadata) is not None or self._erases(commit)

    def _erases(self, commit: TableCommit) -> bool:
        """Whether an entry of `recon forget` accounts for a commit that removed values."""
        number = parse_erased(commit.user_metadata)
        if number is None or self.erased is None:
            return number is not None
        rows = sum(_updated(c) or 0 for c in self.commits if parse_erased(c.user_metadata) == number)
        return 0 < number <= len(self.erased) and rows <= self.erased[number - 1].quarantined


def _appends(commit: TableCommit) -> bool:
    return not (commit.files_removed or commit.is_restore)


def _updated(commit: TableCommit) -> int | None:
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


@dataclass(frozen=True)
class Quarantine:
    """The quarantine table of a sink, as an audit read it.

    `seen` is its log, None where it was not read or there is none; `unread` is why it is not known, None where it is.
    `counted` are its rows, where they were counted. `may_wait` is whether rows of earlier periods may wait there, as
    far as earlier audits say.
    """

    ledger: LedgerSlice
    seen: QuarantineLog | None
    unread: Unavailable | None
    counted: QuarantinedRows | Unavailable | None
    may_wait: bool

    @classmethod
    def of(cls, ledger: LedgerSlice, witnesses: Witnesses) -> Self:
        """The table of the sink that a slice of the ledger is of."""
        logs, proofs = witnesses.quarantine, witnesses.proofs
        log = logs if isinstance(logs, Unavailable) else logs.get(ledger.sink)
        return cls(
            ledger,
            seen=QuarantineLog.of(ledger, log, proofs) if isinstance(log, TableLog) else None,
            unread=log if isinstance(log, Unavailable) else None,
            counted=witnesses.quarantine_rows.get(ledger.sink),
            may_wait=_may_wait(ledger, proofs),
        )


def judge_quarantine(quarantine: Quarantine, findings: Findings, *, rows_tell: bool) -> None:
    """Adds findings where rows that waited in quarantine are gone, were changed by others, or nobody can tell.

    `rows_tell` is whether rows of the judged micro-batches were read, which name the offsets that are in no table.
    """
    seen, counted, ledger = quarantine.seen, quarantine.counted, quarantine.ledger
    if quarantine.unread is not None and quarantine.may_wait:
        _report_unread(quarantine.unread.reason, findings)
    if seen is None:
        return
    _judge_table(seen, findings)
    _judge_files(seen, findings)
    _judge_commits(seen, findings)
    if seen.needs_answer(counted) and not (seen.is_complete and rows_tell):
        _report_unread(why_unknown(counted, "they were not counted"), findings)
    if isinstance(counted, QuarantinedRows):
        heads = ledger.heads[ledger.anchors :] if rows_tell else ()
        _judge_count(seen, missing(counted), findings, told={_Batch(head.epoch, head.batch_id) for head in heads})


def _may_wait(ledger: LedgerSlice, proofs: Proofs) -> bool:
    """Whether rows of earlier periods may wait, as far as earlier audits say."""
    judged = proofs.memory(ledger.sink, QuarantineJudged)
    if judged is None:
        return ledger.sink in proofs.of_sink and not ledger.complete
    return judged.version is not None


def _report_unread(reason: str, findings: Findings) -> None:
    message = f"whether the rows that wait in quarantine are still there is not known: {reason}"
    findings.add(Code.INCONCLUSIVE, message, about="quarantine")


def _judge_table(seen: QuarantineLog, findings: Findings) -> None:
    """Another table, and an older copy."""
    # Another table that recon alone wrote has what it should have, by its count.
    is_written_anew = seen.is_replaced and (seen.adding or seen.removing or seen.is_cut)
    if seen.before is None or not (seen.is_older or is_written_anew):
        return
    was, now = (
        f"id {of[0]}, version {of[1]}"
        for of in ((seen.before.table_id, seen.before.version), (seen.log.table_id, seen.log.last))
    )
    message = (
        f"{seen.table} ({now}) is another table, or an older copy, than an earlier audit read ({was}): its rows may be "
        "others than those that were quarantined; find out who did it, and restore the table that was there"
    )
    findings.add(Code.MUTATED, message, about=f"quarantine ends with {now}, was read up to {was}")


def _judge_files(seen: QuarantineLog, findings: Findings) -> None:
    """Data files that are gone."""
    gone = seen.log.files_gone if seen.exists else ()
    if isinstance(gone, Unavailable):
        _report_unread(gone.reason, findings)
    elif gone:
        message = (
            f"{seen.table} lacks {plural(len(gone), 'data file')} that its log names: {some(f.path for f in gone)}; "
            "restore them from a copy, and find out what removes files past Delta"
        )
        findings.add(Code.MUTATED, message, about=f"quarantine files {exactly(sorted(file.path for file in gone))}")


def _judge_commits(seen: QuarantineLog, findings: Findings) -> None:
    """Commits of others that still act on the table."""
    for commit in filter(partial(_may_have_changed, seen), seen.removing):
        message = (
            f"version {commit.version} of {seen.table} is {commit.operation or 'a commit without an operation'}, which "
            "recon did not make: rows that wait there may be gone, or have other values than were quarantined; find "
            f"out who ran it at {commit.timestamp:%Y-%m-%d %H:%M:%S}Z, and compare with version {commit.version - 1}"
        )
        findings.add(Code.MUTATED, message, about=f"quarantine {commit_of(commit)}")
    if strangers := [commit for commit in seen.adding if seen.stands(commit.version)]:
        what = some(f"{c.version} ({c.operation or 'no operation'})" for c in strangers)
        findings.add(
            Code.UNSTAMPED,
            f"{plural(len(strangers), 'commit')} added rows to {seen.table} without recon's mark: version {what}; a "
            "release would write them to the sink",
        )
    if seen.is_erasure_unknown:
        _report_unread("what was erased on somebody's request is not known, and commits may have done it", findings)


def _may_have_changed(seen: QuarantineLog, commit: TableCommit) -> bool:
    """Whether rows that wait may be others since a commit; which ones a DELETE took is told by the count."""
    if not seen.stands(commit.version) or commit.operation.upper().startswith(("DELETE", "TRUNCATE")):
        return False
    target = commit.restored_version
    return target is None or _undid_own(seen, target, commit.version)


def _undid_own(seen: QuarantineLog, target: int, version: int) -> bool:
    undone = map(seen.log.commits.get, range(target + 1, version))
    return any(commit is None or (commit.data_change and seen.is_own(commit)) for commit in undone)


def _judge_count(seen: QuarantineLog, lacks: Missing, findings: Findings, *, told: Collection[_Batch]) -> None:
    """Rows that should wait, and that the table does not have; `told` are micro-batches whose rows were read."""
    before = seen.before.missing if seen.before is not None else 0
    if lacks.rows <= before:
        _judge_uncertain(seen, lacks, findings, rows_tell=bool(told))
    elif seen.is_complete and (told or seen.before is None):
        return  # source_rows reads the rows, and names the offsets that are in no table
    elif seen.before is None:
        message = (
            f"{seen.table} does not have {plural(lacks.rows, 'row')} that should wait there by the ledger's counts, "
            "and no earlier audit counted them; `recon audit --full` looks whether the sink has them"
        )
        findings.add(Code.INCONCLUSIVE, message, about=f"quarantine lacks {lacks.rows}")
    else:
        _report_missing(seen, lacks, before, findings, told)


def _report_missing(
    seen: QuarantineLog, lacks: Missing, before: int, findings: Findings, told: Collection[_Batch]
) -> None:
    how = f"rows were removed in version {_removed_in(seen)}; " if seen.removing else ""
    rest = f"that waited there; {how}`recon audit --full` names their offsets, so that they can be read again"
    no_longer = f"{seen.table} no longer has"
    if before or not lacks.of_batch:
        rows = lacks.rows - before
        message = f"{no_longer} {plural(rows, 'row')} ({lacks.rows} in all) {rest}"
        findings.add(Code.GAP, message, about=f"quarantine lacks {lacks.rows} after {before}", rows=rows)
        return
    for batch, rows in sorted((batch, rows) for batch, rows in lacks.of_batch.items() if batch not in told):
        message = f"{no_longer} {plural(rows, 'row')} of {named(batch)} {rest}"
        findings.add(Code.GAP, message, head=batch, rows=rows)


def _judge_uncertain(seen: QuarantineLog, lacks: Missing, findings: Findings, *, rows_tell: bool) -> None:
    """Why as many rows as should wait prove nothing."""
    if lacks.unknown and seen.needs_answer(None) and not seen.is_complete:
        _report_unread(f"entries of the ledger do not say how many rows they put into {seen.table}, or took", findings)
    if seen.is_ambiguous and not (seen.is_complete and rows_tell):
        _report_unread(f"others added rows to {seen.table}, and removed rows in version {_removed_in(seen)}", findings)


def _removed_in(seen: QuarantineLog) -> str:
    return some(f"{commit.version} ({commit.operation})" for commit in seen.removing)
