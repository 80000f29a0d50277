"""A Delta table that was dropped and made anew, or put back to an earlier state: what was written before is gone."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from recon.judge.findings import Findings, named
from recon.judge.history.delta_changes import report_gone
from recon.judge.history.table_history import in_this_table, is_another, known_table, told_gone
from recon.model import Code, DeltaWitness, EntryHead, KnownTable, LedgerSlice, Witnesses
from recon.text import some


def judge_identity(
    witnesses: Witnesses,
    ledger: LedgerSlice,
    delta: DeltaWitness,
    orphans: Mapping[int, str],
    confirmed: Collection[int],
    findings: Findings,
) -> frozenset[int]:
    """Adds findings where the table is another one than entries or an earlier audit know; gives the entries it lacks.

    Args:
        witnesses: with the previous audit.
        ledger: the entries.
        delta: the table's log.
        orphans: entries of the slice, by index, whose commit the log ought to have and has not.
        confirmed: entries whose commit is there.
        findings: where findings are added.
    """
    known = known_table(witnesses)
    why, lacking = _known_otherwise(known, ledger, delta, orphans, confirmed)
    former = {i for i, head in enumerate(ledger.heads) if _is_elsewhere(head, delta)} - set(confirmed)
    seen = {entry for entry in former if _was_seen(ledger.heads[entry], known)}
    told = told_gone(ledger, witnesses)
    if (newest := max(former - seen - told, default=None)) is not None:
        head = ledger.heads[newest]
        at = f"the table at {delta.location} has the id {delta.table_id}, and {named(head)} was written to one with"
        why = why or f"{at} the id {head.sink_table_id}"
    begun, before = _begun_again(ledger, [entry for entry in orphans if entry not in former | told], confirmed)
    why, lacking = why or begun, lacking | former | before
    if why:
        lost = "what was written to it before is gone; find out who did it, and read it again"
        findings.add(
            Code.MUTATED,
            f"{why}: the table was dropped and made anew, or put back to an earlier state; {lost}",
            about=f"another table: {delta.table_id}",
            changed_by=(),
        )
    unnamed = lacking - told
    if unnamed and (why or ledger.complete):  # an audit of the whole ledger names what those of a part of it could not
        of_gone = [entry in unnamed for entry in range(len(ledger.heads))]
        report_gone(ledger, of_gone, "were made before the table was made anew", findings)
    if why and not ledger.complete:
        findings.add(
            Code.GAP,
            f"rows that were written to {delta.location} before the period are gone with the table that was there; "
            "`recon audit --full` names their offsets",
            about=f"before the period, another table: {delta.table_id}",
            changed_by=(),
        )
    return frozenset(lacking | (told - set(confirmed)))


def _is_elsewhere(head: EntryHead, delta: DeltaWitness) -> bool:
    """Whether an entry's rows were written to a table that was there before this one."""
    return head.sink_version is not None and head.rows_written != 0 and not in_this_table(head, delta)


def _was_seen(head: EntryHead, known: KnownTable | None) -> bool:
    """Whether an earlier audit saw that the entry is of a table that was there before: it knew a later one."""
    if known is None or head.sink_table_id in (None, known.table_id):
        return False
    return _of_then(head, known)


def _known_otherwise(
    known: KnownTable | None,
    ledger: LedgerSlice,
    delta: DeltaWitness,
    orphans: Collection[int],
    confirmed: Collection[int],
) -> tuple[str, set[int]]:
    """What an earlier audit knows otherwise, in a sentence, and the entries of before it that the table lacks."""
    if known is None:
        return "", set()
    earlier = {
        entry
        for entry, head in enumerate(ledger.heads)
        if _of_then(head, known) and head.sink_version is not None and head.rows_written != 0
    }
    read = f"the audit of {known.read_at:%Y-%m-%d %H:%M:%S}Z read"
    if is_another(delta, known):
        since = [str(version) for version, commit in sorted(delta.commits.items()) if commit.table_id == delta.table_id]
        at = f" since version {since[0]}" if since else ""
        why = f"the table at {delta.location} has the id {delta.table_id}{at}, and {read} one with the id "
        return why + known.table_id, earlier - set(confirmed)
    if delta.last is not None and delta.last < known.version:
        why = f"the log of {delta.location} ends at version {delta.last}, and {read} version {known.version}"
        return why, earlier & set(orphans)
    return "", set()


def _of_then(head: EntryHead, known: KnownTable) -> bool:
    """Whether an entry is of the table as it was known, and not of one that was made since."""
    if known.position is not None:
        return head.sequence <= known.position
    return head.committed_at < known.read_at


def _begun_again(ledger: LedgerSlice, orphans: Collection[int], confirmed: Collection[int]) -> tuple[str, set[int]]:
    """Where the chain's versions begin again, in a sentence, and the entries before it whose commits are not there."""
    heads = ledger.heads
    highest: tuple[int, int] | None = None  # version and entry of the orphan with the highest version so far
    why, begun = "", -1
    for entry, head in enumerate(heads):
        version = head.sink_version
        if version is None:
            continue
        if entry in orphans and (highest is None or version > highest[0]):
            highest = version, entry
        elif entry in confirmed and highest is not None and version <= highest[0]:
            begun = entry
            versions = some(
                (f"{named(heads[highest[1]])} as version {highest[0]}", f"later {named(head)} as {version}")
            )
            why = why or f"the versions of the table begin again: the ledger has {versions}"
    return why, {entry for entry in orphans if entry < begun}
