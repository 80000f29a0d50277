"""The account of a sink: every offset in one line, with what became of it and how that is known."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from recon.checks.evidence.source_rows import SourceRows
from recon.judge.account.lines import account_of
from recon.model import REPAIRS, Code, DeclaredRows, Finding, LedgerSlice
from recon.model.account import AccountLine, SinkAccount
from recon.model.fingerprint import of_offsets
from recon.model.offsets import Spans
from recon.model.proof import Acceptance, OpenFinding, Proofs, Tampering
from recon.testing.evidence import PIPELINE, SINK, START, TOPIC, TOPIC_ID, Entry, gone, kafka, ledger, span
from tests.support.ledgers import ledgers
from tests.support.witnesses import commit, delta, group, log_of, probe, regular_ledger, rows, sink_proof, witnesses

FULL = [Entry(0, (0, 10)), Entry(1, (10, 20))]


def account(slice_: LedgerSlice, **fields: Any) -> SinkAccount:
    found = account_of(witnesses(slice_, **{"delta": log_of(slice_), **fields}))
    assert found is not None
    return found.ordered()


def told(found: SinkAccount) -> dict[str, int]:
    return {str(of): count for of, count in found.sums.items() if count}


def lines(found: SinkAccount) -> list[tuple[int, int, int, str, str]]:
    """(start, end, offsets, class, how known) of each line."""
    return [(one.start, one.end, one.offsets, str(one.offset_class), str(one.how)) for one in found.lines()]


def test_what_counts_prove_is_in_rows_range_by_range() -> None:
    assert lines(account(ledger(*FULL))) == [
        (0, 10, 10, "in a row", "counted during the write"),
        (10, 20, 10, "in a row", "counted during the write"),
    ]


def test_counts_of_what_the_transform_left_out_do_not_say_which() -> None:
    filtered = Entry(2, (20, 30), rows_written=6, rows_filtered=3, rows_quarantined=1)
    found = account(ledger(*FULL, filtered))
    assert told(found) == {"in a row": 26, "quarantined": 1, "filtered": 3}
    assert [line[:3] for line in lines(found) if line[0] < 0] == [(-1, -1, 6), (-1, -1, 1), (-1, -1, 3)]
    assert found.read == 30


def test_rows_say_which() -> None:
    short = ledger(FULL[0], Entry(1, (10, 20), rows_written=7, rows_read=8))
    held = rows(group(0, (0, 10)), group(1, (10, 14), (15, 18)))
    answer = probe([(0, 20)], uncommitted=[(0, 19)], committed=[(0, 18)])
    assert lines(account(short, rows=held, probes=answer)) == [
        (0, 10, 10, "in a row", "read from rows"),
        (10, 14, 4, "in a row", "read from rows"),
        (14, 15, 1, "lost", "said by Kafka"),
        (15, 18, 3, "in a row", "read from rows"),
        (18, 19, 1, "aborted", "said by Kafka"),
        (19, 20, 1, "transaction marker", "said by Kafka"),
    ]


def test_what_was_removed_since() -> None:
    taken = commit(2, operation="DELETE", files_removed=1, rows_added=8, rows_removed=10)
    log = delta(*(commit(version, entry) for version, entry in enumerate(FULL)), taken)
    found = account(ledger(*FULL), delta=log, rows=rows(group(0, (0, 10)), group(1, (12, 20))))
    assert told(found) == {"in a row": 18, "removed since": 2} and not found.doubts


def test_without_rows_nobody_knows_which_were_removed_since() -> None:
    """What was written behind the DELETE is known; what stood there before is not."""
    later = Entry(3, (20, 25), sink_version=3)
    taken = commit(2, operation="DELETE", files_removed=1, rows_added=8, rows_removed=10)
    written = [commit(version, entry) for version, entry in enumerate(FULL)]
    log = delta(*written, taken, commit(3, later, rows_added=5))
    found = account(ledger(*FULL, later), delta=log, rows=gone("rows", skipped=True))
    assert told(found) == {"in a row": 5, "not known": 20}
    assert found.doubts == ["version 2 of the sink changed rows"]


def test_rows_of_the_commit_that_are_too_few_are_not_filled_up() -> None:
    found = account(ledger(FULL[0], Entry(1, (10, 20), rows_written=9)), rows=gone("rows", skipped=True))
    assert told(found) == {"in a row": 19, "not known": 1}


def test_what_no_micro_batch_read() -> None:
    """Kafka deleted one part, has a record of another, and a marker behind it."""
    holed = ledger(Entry(0, (0, 10)), Entry(1, (20, 30)))
    broker = kafka(15, 30)
    found = account(holed, kafka=broker, probes=probe([(15, 20)], [(15, 19)], [(15, 19)], log_start=15))
    assert [line for line in lines(found) if line[3] != "in a row"] == [
        (10, 15, 5, "deleted before it was read", "said by Kafka"),
        (15, 19, 4, "lost", "said by Kafka"),
        (19, 20, 1, "transaction marker", "said by Kafka"),
    ]
    assert {one.entry for one in found.lines() if one.offset_class != "in a row"} == {-1}


def test_a_topic_that_was_created_again_has_other_records() -> None:
    """Offset 9 was a marker of the deleted topic; in the new one it has a record."""
    short = ledger(Entry(0, (0, 10), rows_written=9, rows_read=9))
    asked = probe([(0, 10)], uncommitted=[(0, 10)], committed=[(0, 10)])
    found = account(short, rows=rows(group(0, (0, 9))), probes=asked, kafka=kafka(0, 30, topic_id="id-new"))
    assert told(found) == {"in a row": 9, "not known": 1}


def test_rows_that_are_not_one_per_record() -> None:
    assert told(account(ledger(*FULL), declared=DeclaredRows(explodes=True))) == {"not known": 20}
    several = rows(group(0, (0, 10)), group(1, (10, 20), rows=25))
    made = ledger(FULL[0], Entry(1, (10, 20), rows_written=25))
    assert told(account(made, declared=DeclaredRows(explodes=True), rows=several)) == {"in a row": 20}
    assert told(account(ledger(*FULL), rewriting=frozenset({SINK}))) == {"in a row": 20}


def test_a_sink_that_replaces_rows_by_what_kafka_has() -> None:
    short = ledger(FULL[0], Entry(1, (10, 20), rows_written=7))
    asked = probe([(10, 20)], uncommitted=[(10, 19)], committed=[(10, 18)])
    found = account(short, rewriting=frozenset({SINK}), probes=asked)
    assert told(found) == {"in a row": 17, "transaction marker": 1, "aborted": 1, "lost": 1}


def test_replays_and_what_was_read_twice_count_once() -> None:
    again = Entry(1, (10, 20), status="already_committed")
    assert told(account(ledger(*FULL, again))) == {"in a row": 20}
    assert told(account(ledger(*FULL, Entry(2, (15, 25))))) == {"in a row": 25}
    assert account_of(witnesses(dataclasses.replace(ledger(*FULL), anchors=2))) is None


@pytest.mark.parametrize(
    ("repair", "expected"),
    [
        (Entry(0, (20, 24)), {"in a row": 28}),  # no micro-batch read them
        (Entry(0, (12, 15)), {"in a row": 24, "lost": 4}),  # a micro-batch read them; nobody read [20, 24)
        (Entry(0, (18, 20), (20, 24)), {"in a row": 28}),  # a row of each offset
        (Entry(0, (20, 24), rows_written=1, rows_filtered=3), {"in a row": 25, "filtered": 3}),
        (Entry(0, (18, 24), rows_written=3, rows_filtered=3), {"in a row": 24, "not known": 4}),
    ],
)
def test_a_repair_counts_for_what_it_was_the_first_to_read(repair: Entry, expected: dict[str, int]) -> None:
    repair.head["epoch"] = REPAIRS
    assert told(account(ledger(*FULL, repair, Entry(2, (24, 28))), kafka=kafka(0, 28))) == expected


def test_several_partitions_and_doubled_rows() -> None:
    read = ledger(Entry(0, (0, 5), span(0, 5, partition=1)), Entry(1, (5, 8)))
    held = rows(group(0, (0, 5)), group(1, (3, 8)), group(0, (0, 4), partition=1))
    asked = probe([(0, 5)], [(0, 5)], [(0, 5)], partition=1)
    found = account(read, rows=held, probes=asked, delta=delta())
    assert found.doubled == [("orders", 0, 3, 5, 2)]
    assert [(one.partition, one.start, one.end, str(one.offset_class)) for one in found.lines()][-1] == (
        1,
        4,
        5,
        "removed since",
    )


@given(ledgers())
def test_every_offset_is_in_one_line(slice_: LedgerSlice) -> None:
    found = account_of(witnesses(slice_))
    if found is None:
        return
    seen: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for one in found.lines():
        if one.start >= 0:
            seen.setdefault((one.topic, one.partition), []).append((one.start, one.end))
            assert one.end - one.start == one.offsets > 0
    for ranges in seen.values():
        assert Spans.of(ranges).size == sum(end - start for start, end in ranges)


def test_the_lines_of_a_long_ledger_are_its_ranges() -> None:
    found = account(regular_ledger(50, 20))
    assert (len(found), found.read) == (1000, 50 * 20 * 100)
    first = AccountLine(0, 0, 0, 100, 100, *next(found.lines())[5:7], 0)
    assert next(found.lines()) == first
    some = found.take(np.arange(len(found)) % 2 == 0)
    assert len(some) == 500 and sum(some.sums.values()) == some.read


def test_what_somebody_accepted_says_so() -> None:
    found = Finding(
        code=Code.GAP,
        message="",
        pipeline=PIPELINE,
        sink=SINK,
        topic=TOPIC,
        partition=0,
        start_offset=14,
        end_offset=15,
    )  # fmt: skip
    by = Acceptance(by="Ada", reason="test data", at=START)
    left = OpenFinding(finding=found, check="source_rows", first_seen=START, last_seen=START, accepted=by)
    short = ledger(FULL[0], Entry(1, (10, 20), rows_written=9, rows_read=9))
    asked = probe([(0, 20)], [(0, 20)], [(0, 20)])
    held = rows(group(0, (0, 10)), group(1, (10, 14), (15, 20)))
    proofs = Proofs(of_sink={SINK: sink_proof(open=(left,))})
    told_of = [line for line in lines(account(short, rows=held, probes=asked, proofs=proofs)) if line[3] == "lost"]
    assert told_of == [(14, 15, 1, "lost", "accepted")]


@pytest.mark.parametrize(
    ("proofs", "says"),
    [
        (
            Proofs(damaged={SINK: Tampering("a state was edited", "proof, state 2")}),
            "what earlier audits found is not known: a state was edited",
        ),
        (Proofs(unreadable={SINK: "of a newer version"}), "what earlier audits found is not known: of a newer version"),
        (
            Proofs(contradicted={SINK: Tampering("entry 3 is another one", "3")}),
            "the ledger is not the one that was signed: entry 3 is another one",
        ),
    ],
)
def test_what_cannot_be_relied_on_proves_nothing(proofs: Proofs, says: str) -> None:
    found = account(ledger(*FULL), proofs=proofs)
    assert told(found) == {"not known": 20} and found.doubts == [says]


def test_an_entry_that_was_edited_proves_nothing() -> None:
    found = account(dataclasses.replace(ledger(*FULL), broken=(1,)))
    assert told(found) == {"in a row": 10, "not known": 10}
    assert found.doubts == ["the ledger entry of micro-batch 1 (epoch 0) was edited"]


def test_what_an_earlier_audit_found_missing_is_not_brought_back_by_counts() -> None:
    """The log has forgotten the DELETE since, and no rows were read."""
    found = Finding(
        code=Code.GAP, message="", pipeline=PIPELINE, sink=SINK, topic=TOPIC, partition=0,
        start_offset=3, end_offset=6, changed_by=(7,),
    )  # fmt: skip
    left = OpenFinding(finding=found, check="source_rows", first_seen=START, last_seen=START)
    proofs = Proofs(of_sink={SINK: sink_proof(open=(left,))})
    assert lines(account(ledger(*FULL), proofs=proofs)) == [
        (0, 3, 3, "in a row", "counted during the write"),
        (3, 6, 3, "removed since", "remembered"),
        (6, 10, 4, "in a row", "counted during the write"),
        (10, 20, 10, "in a row", "counted during the write"),
    ]


def test_while_a_finding_about_the_whole_sink_is_open_counts_prove_nothing() -> None:
    found = Finding(code=Code.MUTATED, message="the table was dropped", pipeline=PIPELINE, sink=SINK, about="table 1")
    left = OpenFinding(finding=found, check="delta_history", first_seen=START, last_seen=START)
    told_of = account(ledger(*FULL), proofs=Proofs(of_sink={SINK: sink_proof(open=(left,))}))
    assert told(told_of) == {"not known": 20}
    assert told_of.doubts == [f"finding {left.id} is open: the table was dropped"]


def test_rows_of_one_micro_batch_that_are_doubled() -> None:
    held = rows(group(0, (0, 10), rows=20), group(1, (10, 20), rows=11))
    found = account(ledger(*FULL), rows=held)
    assert found.doubled == [(TOPIC, 0, 0, 10, 2)]
    assert found.doubts == ["orders-0: micro-batch 1 has 11 rows of 10 offsets; which have several is not known"]


@pytest.mark.parametrize("gone", ["the topic", "the offsets"])
def test_what_was_read_as_records_is_lost_though_kafka_no_longer_has_it(gone: str) -> None:
    """Spark read a record at each offset, and the sink took in one fewer."""
    whole = of_offsets(TOPIC, 0, range(10))
    counts = {"rows_returned": 10, "rows_given": 10, "fingerprint_read": whole, "fingerprint_returned": whole}
    short = ledger(Entry(0, (0, 10), rows_written=9, rows_read=10, fingerprint_given=whole, **counts))
    other = gone == "the topic"
    broker = kafka(0, 30, topic_id="id-new") if other else kafka(10, 30)
    asked = probe([(0, 10)], [(0, 10)] if other else (), [(0, 10)] if other else (), log_start=0 if other else 10)
    seen = witnesses(short, rows=rows(group(0, (0, 7), (8, 10))), probes=asked, kafka=broker)
    (lost,) = (finding for finding in SourceRows().judge(seen).findings if finding.code is Code.GAP)
    assert (lost.batch_id, lost.span) == (0, None), "which one it is, Kafka does not show any more"


def test_rows_do_not_vouch_for_a_topic_that_two_sources_read() -> None:
    """All rows were read, and do not tell whose they are; the counts stand no longer, since rows were deleted."""
    twice = ledger(Entry(0, span(0, 5), span(0, 5, source=1)))
    taken = commit(1, operation="DELETE", files_removed=1, rows_added=2, rows_removed=10)
    log = delta(*log_of(twice).commits.values(), taken)
    found = account(twice, delta=log, rows=rows(group(0, (0, 2))))
    assert told(found) == {"not known": 10} and found.doubts


def test_a_count_that_the_log_alone_has_says_so() -> None:
    restored = ledger(FULL[0], Entry(1, (10, 20), status="rebuilt", rows_read=None, rows_filtered=None))
    assert [line[4] for line in lines(account(restored))] == ["counted during the write", "said by the log"]


def test_a_topic_whose_id_was_not_known_when_it_was_read() -> None:
    """It may have been created again since; where Kafka has the same id now, it was not."""
    read = ledger(Entry(0, span(0, 5)), Entry(1, span(5, 9, topic_id=None)))
    unknown, same = account(read, kafka=kafka(0, 30, topic_id="id-new")), account(read, kafka=kafka(0, 30))
    ids = [[found.topics[line.topic][2] for line in found.lines()] for found in (unknown, same)]
    assert ids == [[TOPIC_ID, None], [TOPIC_ID, TOPIC_ID]]
    assert unknown.read == same.read == 9


def test_another_pipeline_is_named_where_it_may_have_taken_a_row_while_others_are_doubled() -> None:
    """As many rows as offsets, one of them twice: the sink left one out, or the other pipeline's MERGE took it."""
    read = ledger(FULL[0], Entry(1, (10, 20)))
    ours = log_of(read).commits[1].stamp
    assert ours is not None
    stamp = replace(ours, pipeline="other")
    merge = commit(2, operation="MERGE", stamp=stamp, files_removed=1, rows_added=9, rows_removed=10)
    seen = witnesses(
        read,
        delta=delta(*log_of(read).commits.values(), merge),
        rows=rows(group(0, (0, 10)), group(1, (10, 14), (15, 20), rows=10)),
    )
    codes = {str(finding.code) for finding in SourceRows().judge(seen).findings}
    assert {"MUTATED", "GAP"} <= codes


def test_a_sentence_about_one_micro_batch_is_not_said_of_two() -> None:
    """Two micro-batches that touch lost and filtered as many; each has a finding of its own."""
    counts = {"rows_read": 10, "rows_written": 5, "rows_filtered": 2}
    read = ledger(Entry(0, (0, 10), **counts), Entry(1, (10, 20), **counts))
    asked = probe([(0, 20)], [(0, 20)], [(0, 20)])
    seen = witnesses(read, delta=log_of(read), rows=rows(group(0, (0, 5)), group(1, (15, 20))), probes=asked)
    found = [one for one in SourceRows().judge(seen).findings if one.code is Code.GAP]
    assert [(one.span, one.batch_id) for one in found] == [((5, 10), 0), ((10, 15), 1)]
