"""What a later audit says of a finding that is open, where a witness does not answer it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from recon.checks.evidence.kafka_end_offsets import KafkaEndOffsets
from recon.checks.evidence.source_rows import SourceRows
from recon.judge.open_findings import with_open_findings
from recon.model import Code, Finding, KafkaWitness, Verdict, Witnesses
from recon.model.fingerprint import PRIME, of_offsets
from recon.model.ledger import REPAIRS
from recon.model.offsets import OffsetSpan
from recon.model.proof import Acceptance, OpenFinding, Proofs
from recon.model.wire.kafka_state import KafkaState, TopicLogs, dump_kafka_state
from recon.testing.evidence import NOW, PIPELINE, SINK, TOPIC, TOPIC_ID, Entry, kafka, ledger, span
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


def test_a_check_is_not_skipped_over_a_question_that_is_open() -> None:
    """Without Spark it reports what an audit with it could not decide, and its status is not that of an untried one."""
    now = seen(proofs=Proofs(of_sink={SINK: sink_proof(open=(lost(14, 15, Code.INCONCLUSIVE),))}))
    verdict = with_open_findings(Verdict(skipped="rows were not read (--no-spark)"), "source_rows", now)
    assert told(verdict) == [("INCONCLUSIVE", 0, 14, 15)]
    assert verdict.skipped is None and verdict.unproved == verdict.evidence["unread"]
    nothing = seen(proofs=Proofs(of_sink={SINK: sink_proof()}))
    untried = Verdict(skipped="rows were not read (--no-spark)")
    assert with_open_findings(untried, "source_rows", nothing) == untried


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


# -- unread records, which a later range covers -----------------------------------------------------------------------


def unread(
    start: int,
    end: int,
    broker: KafkaWitness,
    *entries: Entry,
    topic_id: str | None = TOPIC_ID,
    code: Code = Code.LOSS_RETENTION,
) -> set[Code]:
    """What becomes of a finding of unread records in partition 0 behind these entries."""
    finding = Finding(
        code=code,
        message="",
        pipeline=PIPELINE,
        sink=SINK,
        topic=TOPIC,
        topic_id=topic_id,
        partition=0,
        start_offset=start,
        end_offset=end,
    )
    known = OpenFinding(finding=finding, check="kafka_end_offsets", first_seen=NOW, last_seen=NOW)
    now = witnesses(ledger(*entries), kafka=broker, proofs=Proofs(of_sink={SINK: sink_proof(open=(known,))}))
    verdict = with_open_findings(KafkaEndOffsets().judge(now), "kafka_end_offsets", now)
    return {f.code for f in verdict.findings if f.span == (start, end)}


LOST, REPAIRED = {Code.LOSS_RETENTION}, {Code.REPAIRED}


def test_as_many_records_as_offsets_show_that_all_were_read_where_each_was_there_once() -> None:
    """Of partition 0 twelve are lost, and what runs before the hook doubles twelve of partition 1."""
    two, broker = (span(20, 40), span(0, 20, 1)), kafka(32, 40)
    whole = (of_offsets(TOPIC, 0, range(20, 40)) + of_offsets(TOPIC, 1, range(20))) % PRIME
    doubled = (of_offsets(TOPIC, 0, range(32, 40)) + of_offsets(TOPIC, 1, [*range(20), *range(12)])) % PRIME
    assert unread(20, 32, broker, Entry(0, *two, rows_read=40, fingerprint_read=whole)) == REPAIRED
    assert unread(20, 32, broker, Entry(0, *two, rows_read=40, fingerprint_read=doubled)) == LOST
    assert unread(20, 32, broker, Entry(0, *two, rows_read=52)) == LOST


def _anew(start: int, end: int, **fields: Any) -> Entry:
    return Entry(1, span(start, end)._replace(topic_id="id-2"), **fields)


def test_where_the_log_of_a_topic_made_anew_begins_says_nothing_of_the_former_one() -> None:
    logs = TopicLogs([0], [0], [0], [10], [10])
    state = dump_kafka_state(KafkaState(asked_at=NOW, after=1, topics={TOPIC: logs}))
    short = Entry(0, (0, 40), rows_read=20)
    assert unread(0, 20, kafka(0, 40), short) == REPAIRED
    assert unread(0, 20, kafka(0, 10, topic_id="id-2"), short, _anew(0, 10, kafka_state=state)) == LOST


def test_where_the_log_begins_of_a_topic_whose_id_was_not_known_says_nothing() -> None:
    nameless = Entry(0, span(0, 40)._replace(topic_id=None), rows_read=20)
    assert unread(0, 20, kafka(0, 100, topic_id="id-2"), nameless, topic_id=None) == LOST


def test_what_one_of_two_sources_read_the_other_one_may_lack() -> None:
    def reads(source: int, start: int, end: int) -> OffsetSpan:
        return span(start, end)._replace(source=source)

    before, broker = Entry(4, reads(0, 0, 20), reads(1, 0, 20)), kafka(0, 40)
    assert unread(20, 32, broker, before, Entry(5, reads(0, 32, 40), reads(1, 20, 40))) == LOST
    assert unread(20, 32, broker, before, Entry(5, reads(0, 20, 40), reads(1, 20, 40))) == LOST  # until accepted
    again = Entry(0, reads(0, 20, 32), epoch=REPAIRS, status="repaired")
    assert unread(20, 32, broker, before, Entry(5, reads(0, 32, 40), reads(1, 32, 40)), again) == REPAIRED


def test_a_question_about_unread_offsets_is_not_answered_because_a_range_covers_them() -> None:
    short, whole = (Entry(0, (0, 20), rows_read=rows_read) for rows_read in (5, 20))
    for broker, entry, answer in ((kafka(15, 20), short, Code.INCONCLUSIVE), (kafka(15, 20), whole, Code.REPAIRED)):
        assert unread(5, 10, broker, entry, code=Code.INCONCLUSIVE) == {answer}
