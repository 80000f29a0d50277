"""What the ledger counts as quarantined: rows that wait in the quarantine table, and rows that were released."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from recon.base.text import command, plural, some
from recon.judge.history.quarantine_log import Missing, Quarantine, QuarantineLog, missing
from recon.judge.history.table_history import changes_rows
from recon.judge.row_counts import Counts, ReadStretches
from recon.judge.rows.sink_rows import takes_rows
from recon.model import AuditTime, EntryHead, LedgerSlice, QuarantinedRows, RowGroup, TableLog, Unavailable
from recon.model.offsets import Span, Spans
from recon.model.wire.app_ids import claim_app_id
from recon.model.wire.quarantine import parse_returned


def doubts(counts: Counts, quarantine: Quarantine, time: AuditTime) -> Iterator[str]:
    """Why rows that the ledger counts as quarantined may no longer be there; the sentences tell findings apart."""
    quarantined = sum(counted.quarantined for counted in counts.counted.values())
    if not quarantined:
        return
    seen, rows = quarantine.seen, f"{plural(quarantined, 'row')} were quarantined"
    if quarantine.unread is not None:
        yield f"{rows}, and that log was not read ({quarantine.unread.reason})"
    elif seen is None or not seen.exists:
        yield f"{rows}, and there is no quarantine table"
    else:
        yield from _removed(counts.ledger, seen, quarantine.counted)
        if unfinished := _unfinished(counts.ledger, seen.log, time):
            release = command("recon quarantine release", counts.ledger.pipeline, counts.ledger.sink)
            claimed = f"release {some(unfinished)} was claimed and has no ledger entry"
            yield f"{claimed}: finish it with `{release}`"


def _removed(ledger: LedgerSlice, seen: QuarantineLog, counted: QuarantinedRows | Unavailable | None) -> Iterator[str]:
    """What took rows from the table that should wait there."""
    if isinstance(counted, Unavailable):
        yield f"the rows that wait in the quarantine table could not be counted ({counted.reason})"
    lacks = missing(counted) if isinstance(counted, QuarantinedRows) else Missing(0, {}, unknown=True)
    unsure = any((lacks.rows, lacks.unknown, seen.is_ambiguous))
    if lacks.rows and ledger.complete:
        yield f"{plural(lacks.rows, 'row')} that should wait in the quarantine table are not there"
    # Where every row that should wait was counted, and nobody added others, those removed had been released.
    removing = [commit.version for commit in seen.log.commits.values() if takes_rows(commit, changes_rows)]
    if removing and unsure:
        yield f"version {some(removing)} of the quarantine table removed rows"


def _unfinished(ledger: LedgerSlice, log: TableLog, time: AuditTime) -> list[int]:
    """Releases that claimed rows in the period and were neither entered nor given up."""
    app, begin = claim_app_id(ledger.pipeline, ledger.sink), time.begin
    entered = {head.batch_id for head in ledger.heads if head.is_release}
    claimed: set[int] = set()
    for _, commit in sorted(log.commits.items()):
        if app in commit.txn and commit.timestamp < time.end and not (begin and commit.timestamp < begin):
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
    of_batch: defaultdict[tuple[int, int], list[Span]] = defaultdict(list)
    for group in groups:
        of_batch[group.epoch, group.batch_id].extend(group.present)
    elsewhere: list[Span] = []
    for piece in stretches.readings(absent):
        head = heads[piece.entry]
        mine = Spans.of(of_batch[head.epoch, head.batch_id])
        elsewhere += Spans.of([(piece.start, piece.end)]).minus(mine)
    return absent.minus(Spans.of(elsewhere))
