"""A Delta table that was dropped and made anew, or put back to an earlier state: what was written before is gone."""

from __future__ import annotations

from collections.abc import Collection

from recon.base.text import some
from recon.judge.findings import Findings
from recon.judge.history.table_changes import report_gone
from recon.judge.history.table_history import TableHistory
from recon.model import Code, EntryHead, KnownTable, LedgerSlice
from recon.model.ledger import named


def judge_identity(
    history: TableHistory, ledger: LedgerSlice, orphans: Collection[int], confirmed: Collection[int], findings: Findings
) -> frozenset[int]:
    """Adds findings where the table is another one than entries or an earlier audit know; gives the entries it lacks.

    Args:
        history: what happened to the table, as the entries and the previous audit know it.
        ledger: the entries.
        orphans: entries of the slice, by index, whose commit the log ought to have and has not.
        confirmed: entries whose commit is there.
        findings: where findings are added.
    """
    told = history.told_gone
    why, lacking = _known_otherwise(history, orphans, confirmed)
    former = {i for i, head in enumerate(ledger.heads) if _brought_rows(head) and not history.in_this_table(head)}
    former -= {*confirmed}
    why = why or _written_elsewhere(history, former - told)
    begun, before = _begun_again(ledger, {*orphans} - former - told, confirmed)
    lacking |= former | before
    _report(history, ledger, why or begun, lacking - told, findings)
    return frozenset(lacking | (told - set(confirmed)))


def _report(history: TableHistory, ledger: LedgerSlice, why: str, unnamed: Collection[int], findings: Findings) -> None:
    """Adds findings for another table, in a sentence, and for the ranges that it lacks, and no finding names."""
    log = history.log
    if why:
        lost = "what was written to it before is gone; find out who did it, and read it again"
        message = f"{why}: the table was dropped and made anew, or put back to an earlier state; {lost}"
        findings.add(Code.MUTATED, message, about=f"another table: {log.table_id}", changed_by=())
    if unnamed and (why or ledger.complete):  # an audit of the whole ledger names what those of a part of it could not
        of_gone = [entry in unnamed for entry in range(len(ledger.heads))]
        what = "were made before the table was made anew"
        report_gone(ledger, of_gone, what, findings, brought_by=_perhaps_copied(history))
    if why and not ledger.complete:
        message = (
            f"rows that were written to {log.location} before the period are gone with the table that was there; "
            "`recon audit --full` names their offsets"
        )
        findings.add(Code.GAP, message, about=f"before the period, another table: {log.table_id}", changed_by=())


def _perhaps_copied(history: TableHistory) -> str:
    """Which commits of others may have copied rows of a former table into this one, in a clause; "" for none."""
    added = [commit for commit in history.strangers if commit.rows_added != 0]
    versions = some(f"{commit.version} ({commit.operation})" for commit in added)
    return f"version {versions} of another program may have brought their rows" if added else ""


def _written_elsewhere(history: TableHistory, former: Collection[int]) -> str:
    """The newest entry of a former table, of those that no finding names, in a sentence; "" for none."""
    if not former:
        return ""
    log, head = history.log, history.heads[max(former)]
    at = f"the table at {log.location} has the id {log.table_id}, and {named(head)} was written to one with"
    return f"{at} the id {head.sink_table_id}"


def _brought_rows(head: EntryHead) -> bool:
    return head.sink_version is not None and head.rows_written != 0


def _known_otherwise(
    history: TableHistory, orphans: Collection[int], confirmed: Collection[int]
) -> tuple[str, set[int]]:
    """What an earlier audit knows otherwise, in a sentence, and the entries of before it that the table lacks."""
    log, known = history.log, history.known
    if known is None or not (history.is_another or history.is_put_back):
        return "", set()
    earlier = {i for i, head in enumerate(history.heads) if _of_then(head, known) and _brought_rows(head)}
    read = f"the audit of {known.read_at:%Y-%m-%d %H:%M:%S}Z read"
    if not history.is_another:
        why = f"the log of {log.location} ends at version {log.last}, and {read} version {known.version}"
        return why, earlier & set(orphans)
    since = next((f" since version {c.version}" for c in history.commits if c.table_id == log.table_id), "")
    why = f"the table at {log.location} has the id {log.table_id}{since}, and {read} one with the id {known.table_id}"
    return why, earlier - set(confirmed)


def _of_then(head: EntryHead, known: KnownTable) -> bool:
    """Whether an entry is of the table as it was known, and not of one that was made since."""
    if known.position is not None:
        return head.sequence <= known.position
    return head.committed_at < known.read_at


def _begun_again(ledger: LedgerSlice, orphans: Collection[int], confirmed: Collection[int]) -> tuple[str, set[int]]:
    """Where the chain's versions begin again, in a sentence, and the entries before it whose commits are not there.

    A restored entry does not know its table's id.
    """
    why, begun, highest = "", -1, (-1, -1)  # version and entry of the orphan with the highest version so far
    for entry in sorted({*orphans, *confirmed}):
        head, version = ledger.heads[entry], ledger.heads[entry].sink_version
        if version is not None and entry in orphans:
            highest = max(highest, (version, entry))
        elif version is not None and version <= highest[0]:
            begun, orphan = entry, ledger.heads[highest[1]]
            versions = some((f"{named(orphan)} as version {highest[0]}", f"later {named(head)} as {version}"))
            why = why or f"the versions of the table begin again: the ledger has {versions}"
    return why, {entry for entry in orphans if entry < begun}
