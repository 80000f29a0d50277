"""Whether a sink lacks rows that it had, as its rows show: of a table that several pipelines write, no count tells."""

from __future__ import annotations

from recon.judge.account.recorded import LEFT_OUT, recorded
from recon.judge.case import SinkCase
from recon.judge.rows.of_sink import RowEvidence
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
    return False if case.ledger.complete and not left.pieces and sink.rows.of is None else None
