"""Whether a sink lacks rows that it had, as its rows show: of a table that several pipelines write, no count tells."""

from __future__ import annotations

from collections import Counter

from recon.judge.account.recorded import LEFT_OUT, recorded
from recon.judge.case import SinkCase
from recon.judge.row_counts import Piece
from recon.judge.rows.of_sink import RowEvidence
from recon.judge.rows.sink_rows import SinkRows
from recon.model import Unavailable
from recon.model.account import HowKnown
from recon.model.offsets import Spans

_COMPARE = "compare the table with its source, then accept this"
_FULL = "`recon audit --full` names the offsets that lack their row; where it names none, accept this"


def lost_own(case: SinkCase) -> bool | str | Unavailable:
    """Whether offsets of the sink lack the row that they had; a sentence where rows do not tell, with what to do.

    Those of which an earlier audit said so are left out.
    """
    evidence = RowEvidence.of(case).read_rows()
    if isinstance(evidence.rows, Unavailable):
        return evidence.rows
    sink = evidence.sink
    if sink is None:
        return f"no row says which record it was made of: {_COMPARE}"
    if _lacks_rows(sink):
        return True
    if not case.ledger.complete or sink.rows.of is not None:
        return f"rows of earlier micro-batches were not read: {_FULL}"
    return False if _has_every_row(sink) else f"how many rows it had is not known: {_COMPARE}"


def _lacks_rows(sink: SinkRows) -> bool:
    known, _ = recorded(sink)
    gone = (of.piece for of in known if of.is_removed or of.told == LEFT_OUT)
    return any(Spans.of([(piece.start, piece.end)]).minus(_told_before(sink, piece)) for piece in gone)


def _told_before(sink: SinkRows, piece: Piece) -> Spans:
    """The offsets of its topic partition that findings say are lost, which are open or accepted."""
    open_ = sink.proof.open if sink.proof is not None else ()
    return Spans.of(span for of in open_ if of.is_loss and of.is_in(*piece.where) for span in of.spans)


def _has_every_row(sink: SinkRows) -> bool:
    """Whether of each entry as many offsets have a row as it wrote rows: the others may never have had one."""
    known, left = recorded(sink)
    absent = Counter(left.of_entry)
    for of in known:
        if of.how is HowKnown.DECLARED:
            continue  # it had its row
        absent[of.piece.entry] += of.piece.size
    heads, width = sink.ledger.heads, sink.counts.width
    open_ = left.of_entry
    return all(heads[e].rows_written == width[e] - absent[e] and not sink.doubles(e) for e in open_)
