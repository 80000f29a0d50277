"""What the ledger counts as quarantined: rows that wait in the quarantine table, and rows that were released."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from recon.judge.findings import named
from recon.judge.history.quarantine_log import Missing, log_of, missing, unread
from recon.judge.history.table_history import TableHistory, changes_rows, rows_lost
from recon.judge.row_counts import Counts, ReadStretches
from recon.model import (
    DeltaWitness,
    EntryHead,
    LedgerSlice,
    QuarantinedRows,
    RowGroup,
    Witnesses,
)
from recon.model.offsets import Span, Spans
from recon.model.wire.app_ids import claim_app_id
from recon.model.wire.quarantine import parse_returned
from recon.text import plural, some


def doubts(counts: Counts, witnesses: Witnesses) -> Iterator[str]:
    """Why rows that the ledger counts as quarantined may no longer be there."""
    quarantined = sum(counted.quarantined for counted in counts.counted.values())
    if not quarantined:
        return
    ledger = counts.covered.slice
    rows = f"{plural(quarantined, 'row')} were quarantined"
    why = unread(ledger.sink, witnesses)
    if why is not None:
        yield f"{rows}, and that log was not read ({why.reason})"
        return
    log = witnesses.quarantine_log
    if not isinstance(log, DeltaWitness) or not log.exists:
        yield f"{rows}, and there is no quarantine table"
        return
    counted_rows = witnesses.quarantine_rows.get(ledger.sink)
    lacks = missing(counted_rows) if isinstance(counted_rows, QuarantinedRows) else None
    if lacks is not None and lacks.rows and ledger.complete:
        yield f"{plural(lacks.rows, 'row')} that should wait in the quarantine table are not there"
    removing = [c.version for c in log.commits.values() if c.is_restore or (changes_rows(c) and rows_lost(c) != 0)]
    if removing and not _are_all_there(ledger, witnesses, lacks):
        yield f"version {some(removing)} of the quarantine table removed rows"
    other = _with_other_counts(counts, log)
    if other:
        yield f"the log of the quarantine table does not have the rows that were quarantined of {some(other)}"
    unfinished = _unfinished(ledger, log, witnesses)
    if unfinished:
        claimed = f"release {some(unfinished)} was claimed and has no ledger entry"
        yield f"{claimed}: finish it with `recon quarantine release`"


def _are_all_there(ledger: LedgerSlice, witnesses: Witnesses, lacks: Missing | None) -> bool:
    """Whether every row that should wait was counted, and nobody added others: those removed had been released."""
    seen = log_of(ledger, witnesses)
    return lacks is not None and seen is not None and not (lacks.rows or lacks.unknown or seen.is_ambiguous)


def _with_other_counts(counts: Counts, log: DeltaWitness) -> list[str]:
    """Micro-batches whose quarantined rows are more or fewer in the table's log, as far as it reaches."""
    ledger = counts.covered.slice
    history = TableHistory(log, ledger.pipeline, ledger.sink)
    logged = {
        (stamp.epoch, stamp.batch_id): commit.rows_added
        for commit, stamp in history.own
        if history.stands(commit.version)
    }
    oldest = log.commits[min(log.commits)] if log.commits else None
    other = []
    for entry, counted in counts.counted.items():
        head = ledger.heads[entry]
        # The oldest commit that is left may be any; only the table's first one says that there is nothing before it.
        reaches = oldest is not None and (oldest.version == 0 or head.started_at >= oldest.timestamp)
        expected = (None, counted.quarantined)
        if counted.quarantined and reaches and logged.get((head.epoch, head.batch_id), 0) not in expected:
            other.append(named(head))
    return other


def _unfinished(ledger: LedgerSlice, log: DeltaWitness, witnesses: Witnesses) -> list[int]:
    """Releases that claimed rows in the period and were neither entered nor given up."""
    app, begin = claim_app_id(ledger.pipeline, ledger.sink), witnesses.period_from
    entered = {head.batch_id for head in ledger.heads if head.is_release}
    claimed: set[int] = set()
    for _, commit in sorted(log.commits.items()):
        if app in commit.txn and commit.timestamp < witnesses.period_to and not (begin and commit.timestamp < begin):
            claimed.add(commit.txn[app])
        returned = parse_returned(commit.user_metadata)
        if returned is not None:
            claimed.discard(returned)
    return sorted(claimed - entered)


def waiting(stretches: ReadStretches, absent: Spans, groups: Iterable[RowGroup], heads: Sequence[EntryHead]) -> Spans:
    """Offsets whose rows wait in quarantine.

    A re-created topic has its offsets twice. There a row counts only for the micro-batch that quarantined it.
    """
    if stretches.incarnations == 1:
        return absent.intersect(Spans.of(span for group in groups for span in group.present))
    of_batch: dict[tuple[int, int], list[Span]] = {}
    for group in groups:
        of_batch.setdefault((group.epoch, group.batch_id), []).extend(group.present)
    in_table = {batch: Spans.of(spans) for batch, spans in of_batch.items()}
    elsewhere: list[Span] = []
    for piece in stretches.readings(absent):
        head = heads[piece.entry]
        mine = in_table.get((head.epoch, head.batch_id), Spans())
        elsewhere += Spans.of([(piece.start, piece.end)]).minus(mine)
    return absent.minus(Spans.of(elsewhere))
