"""Whether what the ledger counted still stands in the sink, as the sink's own log or record tells."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from recon.judge.findings import named
from recon.judge.history.lost_writes import lost_of
from recon.judge.history.table_history import TableHistory, changes_rows, history_of, removes_rows
from recon.judge.row_counts import Counts
from recon.judge.rows.reasons import changes
from recon.judge.rows.sink_rows import rewrites
from recon.lazy import np
from recon.model import Code, EntryHead, Unavailable, Witnesses
from recon.model.proof import OpenFinding
from recon.text import some

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


def standing(counts: Counts, witnesses: Witnesses) -> Standing:
    """What the log, the record and earlier audits tell of the rows that were counted."""
    every = np.ones(len(counts.covered.slice.heads), np.bool_)
    gone = [*_all_unknown(witnesses), *_told_before(witnesses)]
    if gone:
        return Standing(every, gone)
    found = [part(counts, witnesses) for part in (_changed, _edited, _elsewhere, _lost)]
    return Standing(
        np.logical_or.reduce([one.unknown for one in found]), [text for one in found for text in one.doubts]
    )


def _changed(counts: Counts, witnesses: Witnesses) -> Standing:
    """What others changed, or took away."""
    doubts = list(changes(counts, witnesses))
    none = np.zeros(len(counts.covered.slice.heads), np.bool_)
    return Standing(_before_the_last_change(counts, witnesses) if doubts else none, doubts)


def _edited(counts: Counts, witnesses: Witnesses) -> Standing:
    """Entries that do not match their own hash."""
    ledger = counts.covered.slice
    unknown = np.isin(np.arange(len(ledger.heads)), list(ledger.broken))
    which = some(named(ledger.heads[entry]) for entry in ledger.broken)
    return Standing(unknown, [f"the ledger entry of {which} was edited"] if ledger.broken else [])


def _elsewhere(counts: Counts, witnesses: Witnesses) -> Standing:
    """Entries under whose version the table has another commit."""
    ledger = counts.covered.slice
    history, heads = history_of(witnesses, ledger), ledger.heads
    unknown = np.array([history is not None and _is_elsewhere(head, history) for head in heads], np.bool_)
    if history is None or not unknown.any():
        return Standing(unknown, [])
    which = some(named(heads[entry]) for entry in np.flatnonzero(unknown).tolist())
    return Standing(unknown, [f"the table at {history.log.location} has other commits than those of {which}"])


def _lost(counts: Counts, witnesses: Witnesses) -> Standing:
    """Writes of which the sink's own record no longer has everything; `changes` names them."""
    ledger = counts.covered.slice
    lost = {(write.stamp.epoch, write.stamp.batch_id) for write in lost_of(witnesses.sink_record, ledger)}
    return Standing(np.array([(head.epoch, head.batch_id) in lost for head in ledger.heads], np.bool_), [])


def _all_unknown(witnesses: Witnesses) -> list[str]:
    """Why nothing is known of what the sink has now, as a list of one sentence; empty where something is."""
    log = witnesses.table_log
    if log is None and witnesses.sink_record is None:
        return [f"what the sink has now was not read: {_why_unread(witnesses)}"]
    return [f"there is no table at {log.location}"] if log is not None and not log.exists else []


def _why_unread(witnesses: Witnesses) -> str:
    reasons = (one.reason for one in (witnesses.delta, witnesses.sink_logs) if isinstance(one, Unavailable))
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
    unsure = [damage[sink] for damage in (proofs.damaged, proofs.unreadable) if sink in damage]
    yield from (f"what earlier audits found is not known: {why}" for why in unsure)
    if sink in proofs.contradicted:
        yield f"the ledger is not the one that was signed: {proofs.contradicted[sink].sentence}"
    yield from (f"finding {one.id} is open: {one.finding.message}" for one in _open(witnesses) if _is_of_all(one))


def _open(witnesses: Witnesses) -> Sequence[OpenFinding]:
    return witnesses.proof.open if witnesses.proof is not None else ()


def _is_of_all(one: OpenFinding) -> bool:
    """Whether rows of the whole sink are in question."""
    found = one.finding
    return found.code is Code.MUTATED and found.span is None and found.batch_id is None and one.accepted is None


def _before_the_last_change(counts: Counts, witnesses: Witnesses) -> npt.NDArray[np.bool_]:
    """Which entries were written before somebody changed rows the last time; all, where no log says when."""
    heads, history = counts.covered.slice.heads, history_of(witnesses, counts.covered.slice)
    removes = changes_rows if rewrites(witnesses) else removes_rows
    changed: list[int] = []
    if history is not None:
        changed += [commit.version for commit in history.others if removes(commit)]
        changed += [commit.version for commit in history.commits if commit.is_restore]
    newest = max(changed, default=None)
    return np.array(
        [newest is None or head.sink_version is None or head.sink_version < newest for head in heads], np.bool_
    )
