"""Whether a sink lacks rows that it had, as its rows show: of a table that several pipelines write, no count tells."""

from __future__ import annotations

from collections import Counter

from recon.judge.account.recorded import LEFT_OUT, recorded
from recon.judge.case import SinkCase
from recon.judge.rows.of_sink import RowEvidence
from recon.judge.rows.sink_rows import SinkRows
from recon.model import Unavailable
from recon.model.account import OffsetClass


def lost_own(case: SinkCase) -> bool | Unavailable | None:
    """Whether offsets of the sink lack the row that they had; None where rows do not tell, or not of all of them."""
    evidence = RowEvidence.of(case).read_rows()
    if isinstance(evidence.rows, Unavailable):
        return evidence.rows
    sink = evidence.sink
    if sink is None:
        return None
    known, left = recorded(sink)
    if any(of.offset_class is OffsetClass.REMOVED or of.told == LEFT_OUT for of in known):
        return True
    absent = Counter(left.of_entry)
    for of in known:
        absent[of.piece.entry] += of.piece.size
    every = all(_has_every_row(sink, entry, absent[entry]) for entry in left.of_entry)
    return False if every and case.ledger.complete and sink.rows.of is None else None


def _has_every_row(sink: SinkRows, entry: int, absent: int) -> bool:
    """Whether as many offsets of an entry have a row as it wrote rows; the others may never have had one."""
    written = sink.ledger.heads[entry].rows_written
    return written == sink.counts.width[entry] - absent and not sink.doubles(entry)
