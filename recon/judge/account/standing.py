"""Whether what the ledger counted still stands in the sink, as the sink's own log or record tells."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from recon.base.lazy import np
from recon.base.text import some
from recon.judge.case import SinkCase
from recon.judge.history.record_history import RecordHistory
from recon.judge.history.table_history import TableHistory, changes_rows, removes_rows
from recon.judge.rows.reasons import changes
from recon.model import Code, EntryHead, LedgerSlice, Unavailable, Witnesses
from recon.model.ledger import named
from recon.model.proof import OpenFinding

if TYPE_CHECKING:
    import numpy.typing as npt


@dataclass(frozen=True)
class Standing:
    """Of which entries nobody knows any more whether the sink has their rows, and why.

    Args:
        unknown: of each entry of the slice.
        doubts: the reasons, a sentence each.
    """

    unknown: npt.NDArray[np.bool_]
    doubts: list[str]


def standing(case: SinkCase) -> Standing:
    """What the log, the record and earlier audits tell of the rows that were counted."""
    every = np.ones(len(case.ledger.heads), np.bool_)
    gone = [*_all_unknown(case), *_told_before(case.witnesses)]
    if gone:
        return Standing(every, gone)
    found = (_changed(case), _edited(case.ledger), _elsewhere(case.ledger, case.table), _lost(case.ledger, case.record))
    return Standing(
        np.logical_or.reduce([part.unknown for part in found]), [text for part in found for text in part.doubts]
    )


def _changed(case: SinkCase) -> Standing:
    """What others changed, or took away."""
    doubts = list(changes(case))
    none = np.zeros(len(case.ledger.heads), np.bool_)
    return Standing(_before_the_last_change(case) if doubts else none, doubts)


def _edited(ledger: LedgerSlice) -> Standing:
    """Entries that do not match their own hash."""
    unknown = np.isin(np.arange(len(ledger.heads)), list(ledger.broken))
    which = some(named(ledger.heads[entry]) for entry in ledger.broken)
    return Standing(unknown, [f"the ledger entry of {which} was edited"] if ledger.broken else [])


def _elsewhere(ledger: LedgerSlice, history: TableHistory | None) -> Standing:
    """Entries under whose version the table has another commit."""
    heads = ledger.heads
    unknown = np.array([history is not None and _is_elsewhere(head, history) for head in heads], np.bool_)
    if history is None or not unknown.any():
        return Standing(unknown, [])
    which = some(named(heads[entry]) for entry in np.flatnonzero(unknown).tolist())
    return Standing(unknown, [f"the table at {history.log.location} has other commits than those of {which}"])


def _lost(ledger: LedgerSlice, record: RecordHistory | None) -> Standing:
    """Writes of which the sink's own record no longer has everything; `changes` names them."""
    gone = record.lost(ledger) if record is not None else ()
    lost = {(write.stamp.epoch, write.stamp.batch_id) for write in gone}
    return Standing(np.array([(head.epoch, head.batch_id) in lost for head in ledger.heads], np.bool_), [])


def _all_unknown(case: SinkCase) -> list[str]:
    """Why nothing is known of what the sink has now, as a list of one sentence; empty where something is."""
    if case.history is None:
        return [f"what the sink has now was not read: {_why_unread(case.witnesses)}"]
    return [f"there is no table at {case.table.location}"] if case.table is not None and not case.table.exists else []


def _why_unread(witnesses: Witnesses) -> str:
    reasons = (witness.reason for witness in (witnesses.delta, witnesses.sink_logs) if isinstance(witness, Unavailable))
    return next(reasons, "no log and no record of it is known")


def _is_elsewhere(head: EntryHead, history: TableHistory) -> bool:
    log, version = history.log, head.sink_version
    if version is None or head.rows_written == 0:
        return False
    commit = log.commits.get(version)
    if commit is None:
        return not history.in_this_table(head) or history.is_beyond(version)
    if commit.stamp is None:
        return not head.is_observed
    return (commit.stamp.epoch, commit.stamp.batch_id) != (head.epoch, head.batch_id)


def _told_before(witnesses: Witnesses) -> Iterator[str]:
    """What earlier audits said of the whole sink, and nobody answered: the log may have forgotten it since.

    So where their state cannot be relied on.
    """
    sink, proofs = witnesses.sink or "", witnesses.proofs
    unsure = [proofs.damaged[sink].sentence] if sink in proofs.damaged else []
    unsure += [proofs.unreadable[sink]] if sink in proofs.unreadable else []
    yield from (f"what earlier audits found is not known: {why}" for why in unsure)
    if sink in proofs.contradicted:
        yield f"the ledger is not the one that was signed: {proofs.contradicted[sink].sentence}"
    known = witnesses.proof.open if witnesses.proof is not None else ()
    yield from (f"finding {open_.id} is open: {open_.finding.message}" for open_ in known if _is_of_all(open_))


def _is_of_all(open_: OpenFinding) -> bool:
    """Whether rows of the whole sink are in question."""
    found = open_.finding
    return found.code is Code.MUTATED and found.span is None and found.batch_id is None and open_.accepted is None


def _before_the_last_change(case: SinkCase) -> npt.NDArray[np.bool_]:
    """Which entries were written before somebody changed rows the last time; all, where no log says when."""
    heads, history = case.ledger.heads, case.table
    removes = changes_rows if case.rewrites else removes_rows
    changed: list[int] = []
    if history is not None:
        changed += [commit.version for commit in history.others if removes(commit)]
        changed += [commit.version for commit in history.commits if commit.is_restore]
    newest = max(changed, default=None)
    return np.array(
        [newest is None or head.sink_version is None or head.sink_version < newest for head in heads], np.bool_
    )
