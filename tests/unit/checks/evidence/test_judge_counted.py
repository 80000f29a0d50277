"""source_rows with rows counted at three points: cases 46, 59 and 60."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from recon.checks.evidence.source_rows import SourceRows
from recon.model import DeclaredRows, LedgerSlice, RowsWitness, Verdict
from recon.model.fingerprint import of_offsets
from recon.testing.evidence import TOPIC, Entry, gone, kafka, ledger
from tests.support.asked import wants_rows
from tests.support.messages import same_message
from tests.support.witnesses import group, probe, rows, told, witnesses

CHECK = SourceRows()
ALL = range(10)
NETTED = (0, 1, 2, 3, 3, 5, 6, 7, 8, 9)  # 4 is lost, 3 doubled


def counted(read: Iterable[int], returned: Iterable[int], written: int, **head: Any) -> Entry:
    """A micro-batch of offsets [0, 10): the offsets of the rows read, and of those that the transform returned."""
    at_read, at_sink = list(read), list(returned)
    fields: dict[str, Any] = {
        "rows_read": len(at_read),
        "rows_filtered": len(at_read) - len(at_sink),
        "rows_returned": len(at_sink),
        "rows_given": len(at_sink),
        "rows_written": written,
        "fingerprint_read": of_offsets(TOPIC, 0, at_read),
        "fingerprint_returned": of_offsets(TOPIC, 0, at_sink),
        "fingerprint_given": of_offsets(TOPIC, 0, at_sink),
    }
    return Entry(0, (0, 10), **{**fields, **head})


def wants(slice_: LedgerSlice) -> bool:
    return wants_rows(CHECK, witnesses(slice_))


def judged(slice_: LedgerSlice, found: RowsWitness | None = None, **fields: Any) -> Verdict:
    return CHECK.judge(witnesses(slice_, **({} if found is None else {"rows": found}), **fields))


def test_the_expected_fingerprint_proves_a_micro_batch() -> None:
    slice_ = ledger(counted(ALL, ALL, 10))
    assert not wants(slice_)
    assert judged(slice_).evidence["proved_by_counts"] == 1


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(counted(NETTED, NETTED, 10), id="before recon's hook"),
        pytest.param(counted(ALL, NETTED, 10), id="in the transform"),
        pytest.param(counted(ALL, NETTED, 10, fingerprint_read=None, rows_read=None), id="rows read were not counted"),
        pytest.param(counted(ALL, ALL, 10, fingerprint_given=of_offsets(TOPIC, 0, NETTED)), id="after the transform"),
    ],
)
def test_a_lost_and_a_doubled_row_need_the_rows(entry: Entry) -> None:
    slice_ = ledger(entry)
    assert wants(slice_)
    unread = judged(slice_, gone("rows"))
    assert unread.failures == 0 and same_message(unread.unproved or "")
    found = rows(replace(group(0, (0, 4), (5, 10)), rows=10))
    in_kafka = [(4, 5)]
    verdict = judged(slice_, found, probes=probe(in_kafka, in_kafka, in_kafka))
    assert sorted(code for code, *_ in told(verdict)) == ["DUPLICATE", "GAP"]
    assert ("GAP", 0, 4, 5) in told(verdict)


@pytest.mark.parametrize("filters", [None, True, False])
def test_a_transform_that_spark_sees_to_return_nothing(filters: bool | None) -> None:
    """As `where("1 = 0")`: Spark's plan has no read, whose rows nobody counts then."""
    uncounted: dict[str, Any] = dict.fromkeys(("rows_read", "rows_filtered", "fingerprint_read"))
    slice_ = ledger(counted((), (), 0, **uncounted), Entry(1, (10, 20)))
    found, in_kafka = rows(group(1, (10, 20))), [(0, 20)]
    verdict = judged(slice_, found, probes=probe(in_kafka, in_kafka, in_kafka), declared=DeclaredRows(filters=filters))
    if filters is False:
        assert told(verdict) == [("GAP", 0, 0, 10)]
    else:
        assert verdict.failures == 0 and verdict.unproved is None and verdict.evidence["filtered"] == 10


def test_rows_that_are_all_there_answer_the_doubt() -> None:
    slice_ = ledger(counted(ALL, NETTED, 10))
    verdict = judged(slice_, rows(group(0, (0, 10))))
    assert verdict.failures == 0 and verdict.unproved is None


def test_without_fingerprints_counts_are_enough() -> None:
    none = dict.fromkeys(("fingerprint_read", "fingerprint_returned", "fingerprint_given"))
    assert not wants(ledger(counted(NETTED, NETTED, 10, **none)))


def test_rows_that_the_sink_lost_are_not_filtered() -> None:
    """10 read, 3 filtered, 7 given to the sink, which took in 6."""
    slice_ = ledger(counted(ALL, [0, 1, 2, 4, 5, 7, 8], 6))
    assert wants(slice_)
    absent = [(2, 4), (6, 7), (9, 10)]
    verdict = judged(slice_, rows(group(0, (0, 2), (4, 6), (7, 9))), probes=probe(absent, absent, absent))
    assert {code for code, *_ in told(verdict)} == {"GAP"}


def test_rows_that_the_sink_lost_and_compaction_removed_since() -> None:
    slice_ = ledger(counted(ALL, ALL, 8))
    found = rows(group(0, (0, 2), (4, 10)))
    verdict = judged(slice_, found, probes=probe([(2, 4)]), kafka=kafka(policy="compact"))
    assert [code for code, *_ in told(verdict)] == ["GAP", "INCONCLUSIVE"]
    assert all(same_message(finding.message) for finding in verdict.findings if finding.code != "EXPLAINED")


def test_holes_that_were_there_when_they_were_read_are_explained() -> None:
    without = [o for o in ALL if o not in (2, 3)]
    slice_ = ledger(counted(without, without, 8))
    found = rows(group(0, (0, 2), (4, 10)))
    verdict = judged(slice_, found, probes=probe([(2, 4)]), kafka=kafka(policy="compact"))
    assert verdict.failures == 0 and verdict.unproved is None


def test_rows_that_a_transform_may_not_filter_are_missing() -> None:
    slice_ = ledger(counted(ALL, [o for o in ALL if o != 4], 9))
    assert not wants(slice_)
    filtered = judged(slice_)
    assert filtered.failures == 0 and filtered.evidence["filtered"] == 1 and same_message(filtered.message)
    none = DeclaredRows(filters=False)
    assert wants_rows(CHECK, witnesses(slice_, declared=none))
    in_kafka = [(4, 5)]
    probes = probe(in_kafka, in_kafka, in_kafka)
    verdict = judged(slice_, rows(group(0, (0, 4), (5, 10))), probes=probes, declared=none)
    assert told(verdict) == [("GAP", 0, 4, 5)] and same_message(verdict.message)


def with_shares(*filtered: int) -> LedgerSlice:
    """Micro-batches of 100 rows, so many of them filtered."""
    entries = [
        Entry(n, (100 * n, 100 * n + 100), rows_read=100, rows_filtered=count, rows_written=100 - count)
        for n, count in enumerate(filtered)
    ]
    return ledger(*entries)


@pytest.mark.parametrize(
    ("filtered", "most", "unusual"),
    [
        pytest.param((1, 1, 1, 1, 40), None, [4], id="the fifth may be unusual"),
        pytest.param((1, 1, 1, 40), None, [], id="the fourth has too few before it"),
        pytest.param((20, 22, 18, 20, 40), None, [], id="twice as many are not unusual"),
        pytest.param((0, 0, 0, 0, 4), None, [], id="nor are a few where there were none"),
        pytest.param((0, 2, 1, 0, 40), 0.01, [1, 4], id="more than agreed"),
        pytest.param((1, 1, 1, 1, 40), 0.5, [], id="agreed"),
    ],
)
def test_shares_of_filtered_rows(filtered: tuple[int, ...], most: float | None, unusual: list[int]) -> None:
    declared = DeclaredRows(max_filtered=most)
    verdict = judged(with_shares(*filtered), declared=declared)
    found = [finding for finding in verdict.findings if finding.code == "UNUSUAL"]
    assert bool(found) == bool(unusual) and verdict.failures == 0 and verdict.warnings == len(found)
    if found:
        assert same_message(found[0].message)
        assert found[0].message.endswith("batch_id " + ", ".join(map(str, unusual)))
    routed = judged(with_shares(*filtered), declared=declared, routed=("lake",))
    assert not routed.findings, "what a route filters are the rows of the others"
