"""source_rows with rows counted at three points: cases 46, 59 and 60."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from recon.checks.evidence.source_rows.check import SourceRows
from recon.model import LedgerSlice, RowsWitness, Verdict
from recon.model.fingerprint import of_offsets
from recon.testing.evidence import TOPIC, Entry, gone, kafka, ledger
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
    return CHECK.wants_rows(witnesses(slice_))


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
