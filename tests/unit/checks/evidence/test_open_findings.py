"""What a later audit says of a finding that is open, where a witness does not answer it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from recon.checks.evidence.open_findings import with_open_findings
from recon.checks.evidence.source_rows.check import SourceRows
from recon.model import Code, Finding, Verdict, Witnesses
from recon.model.ledger import REPAIRS
from recon.model.proof import Acceptance, OpenFinding, Proofs
from recon.testing.evidence import NOW, PIPELINE, SINK, TOPIC, Entry, ledger
from tests.support.witnesses import group, probe, rows, sink_proof, told, witnesses

CHECK = SourceRows()
# Offsets 14 and 19 have no row.
SHORT = ledger(Entry(0, (0, 10), rows_read=10, rows_written=10), Entry(1, (10, 20), rows_read=8, rows_written=8))
HOLES = rows(group(0, (0, 10)), group(1, (10, 14), (15, 19)))


def seen(**fields: Any) -> Witnesses:
    return witnesses(SHORT, rows=HOLES, **fields)


def again(*open_: OpenFinding) -> Verdict:
    """What the check says without a broker, with what earlier audits left open."""
    now = seen(proofs=Proofs(of_sink={SINK: sink_proof(open=open_)}))
    return with_open_findings(CHECK.judge(now), "source_rows", now)


def lost(start: int, end: int, code: Code = Code.LOSS_RETENTION) -> OpenFinding:
    (finding,) = CHECK.judge(seen(probes=probe([(14, 15)], log_start=100))).findings[:1]
    finding = replace(finding, code=code, start_offset=start, end_offset=end, topic=TOPIC)
    return OpenFinding(finding=finding, check="source_rows", first_seen=NOW, last_seen=NOW)


def test_a_loss_stays_one_where_no_broker_tells_of_it_again() -> None:
    """The question that the loss had answered is not asked anew; others are."""
    verdict = again(lost(14, 15))
    assert told(verdict) == [("INCONCLUSIVE", 0, 19, 20), ("LOSS_RETENTION", 0, 14, 15)]
    assert verdict.failures == 1
    first: Finding = verdict.findings[0]
    assert "open since the audit of" in first.message


def test_a_question_that_is_open_is_asked_once() -> None:
    verdict = again(lost(14, 15, Code.INCONCLUSIVE))
    assert told(verdict) == [("INCONCLUSIVE", 0, 14, 15), ("INCONCLUSIVE", 0, 19, 20)]
    assert verdict.failures == 0


def test_a_repair_that_left_a_row_out_repairs_nothing_where_no_broker_tells_why() -> None:
    again_read = Entry(0, (14, 20), epoch=REPAIRS, status="repaired", rows_read=6, rows_written=5, rows_filtered=0)
    slice_ = ledger(
        Entry(0, (0, 10), rows_read=10, rows_written=10),
        Entry(1, (10, 20), rows_read=4, rows_written=4),
        again_read,
    )
    now = witnesses(
        slice_,
        rows=rows(group(0, (0, 10)), group(1, (10, 14), (15, 20))),
        proofs=Proofs(of_sink={SINK: sink_proof(open=(lost(14, 20),))}),
    )
    verdict = with_open_findings(CHECK.judge(now), "source_rows", now)
    assert [t for t in told(verdict, info=True) if t[2] is not None and t[2] <= 14 < (t[3] or 0)] == [
        ("LOSS_RETENTION", 0, 14, 15)
    ], told(verdict, info=True)


def test_an_accepted_finding_does_not_lead_a_message() -> None:
    """Two findings without offsets, of which one was accepted: the other one is what the check says."""
    known, new = (
        Finding(code=Code.GAP, message=f"{name} was never read", pipeline=PIPELINE, sink=SINK)
        for name in ("old", "new")
    )
    by = Acceptance(by="ada", reason="known", at=NOW)
    open_ = OpenFinding(finding=known, check="source_files", first_seen=NOW, last_seen=NOW, accepted=by)
    verdict = Verdict.of_findings([known, new], message="old was never read (and 1 more)")
    judged = with_open_findings(verdict, "source_files", seen(proofs=Proofs(of_sink={SINK: sink_proof(open=(open_,))})))
    assert judged.message == "new was never read"
    assert [f.code for f in judged.findings] == [Code.GAP, Code.ACCEPTED]
