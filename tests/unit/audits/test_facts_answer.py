"""A pipeline's answer in one sentence."""

from __future__ import annotations

import pytest

from recon.audits.accounting import with_account
from recon.audits.summary import PROOF, answer, rows_filtered, rows_quarantined, sink_facts
from recon.model import REPAIRS, CheckResult, Code, Finding, Status
from recon.project import DeltaSink
from recon.testing.evidence import SINK, Entry, ledger
from tests.support.witnesses import log_of, witnesses


def ran(check: str, status: Status = "pass", *codes: Code, kind: str = "evidence") -> CheckResult:
    findings = tuple(Finding(code=code, message=f"{code} happened") for code in codes)
    return CheckResult(
        unique_id=check, name=f"{check}_s", check=check, kind=kind, status=status, failures=len(codes),
        message="m", pipeline="p", sink="s", findings=findings,
    )  # fmt: skip


def test_complete_needs_every_proof() -> None:
    proofs = [ran(checks[0]) for checks in PROOF]
    assert answer(proofs, ["s"])[0] == "complete"
    for left_out in range(len(proofs)):
        said, because = answer(proofs[:left_out] + proofs[left_out + 1 :], ["s"])
        assert said == "could not be proved"
        assert PROOF[left_out][0] in because


def test_the_worst_refutation_is_told_and_the_others_are_counted() -> None:
    results = [
        ran("delta_history", "fail", Code.MUTATED, Code.GAP),
        ran("source_rows", "fail", Code.LOSS_RETENTION, Code.GAP, Code.REPLAYED),
    ]
    assert answer(results, ["s"]) == (
        "not complete",
        "LOSS_RETENTION: LOSS_RETENTION happened; also 2 GAP, 1 MUTATED",
    )


def test_a_single_refutation_stands_alone() -> None:
    assert answer([ran("source_rows", "fail", Code.LOSS)], ["s"]) == ("not complete", "LOSS: LOSS happened")


def test_a_failed_data_test_is_not_incompleteness() -> None:
    proofs = [ran(checks[0]) for checks in PROOF]
    assert answer([*proofs, ran("unique", "fail", kind="data")], ["s"])[0] == "complete"


@pytest.mark.parametrize("status", ["error", "skipped"])
def test_a_witness_that_did_not_answer(status: Status) -> None:
    proofs = [ran(checks[0]) for checks in PROOF]
    said, because = answer([*proofs, ran("kafka_end_offsets", status)], ["s"])
    assert said == "could not be proved"
    assert because == "kafka_end_offsets_s: m"


def test_rows_that_were_not_meant_for_the_sink_are_counted_once() -> None:
    first = Entry(0, (0, 10), rows_filtered=3, rows_quarantined=1)
    again = Entry(0, (0, 10), rows_filtered=3, rows_quarantined=1, status="already_committed")
    second = Entry(1, (10, 20), rows_filtered=4, rows_quarantined=0)
    heads = ledger(first, again, second).heads
    assert (rows_filtered(heads), rows_quarantined(heads)) == (7, 1)


def test_a_micro_batch_that_did_not_count_leaves_the_number_unknown() -> None:
    heads = ledger(Entry(0, (0, 10), rows_filtered=3), Entry(1, (10, 20), rows_filtered=None)).heads
    assert rows_filtered(heads) is None


def test_a_record_that_was_read_again_is_filtered_once() -> None:
    """Entries count it twice: of a repair that read what had no row, and of a new checkpoint that begins before."""
    first = Entry(0, (0, 10), rows_read=10, rows_filtered=3, rows_written=6)
    repaired = Entry(0, (6, 10), epoch=REPAIRS, rows_read=4, rows_filtered=3, rows_written=1, sink_version=1)
    again = Entry(0, (0, 10), epoch=1, rows_read=10, rows_filtered=3, rows_written=7, sink_version=1)
    for slice_ in (ledger(first, repaired), ledger(first, again)):
        facts = sink_facts(DeltaSink(name=SINK, target="t"), "t", witnesses(slice_), ())
        assert (facts.rows_filtered, with_account(facts, witnesses(slice_)).rows_filtered) == (6, 3)


@pytest.mark.parametrize(("written", "expected"), [(10, 3), (7, None)])
def test_what_was_filtered_is_known_where_an_entry_did_not_count_and_nothing_is_undecided(
    written: int, expected: int | None
) -> None:
    """Of 10 offsets 7 have a row, and whether the other three were filtered nobody counted."""
    counted = Entry(0, (0, 10), rows_read=10, rows_filtered=3, rows_written=7)
    uncounted = Entry(1, (10, 20), rows_read=None, rows_filtered=None, rows_written=written)
    read = ledger(counted, uncounted)
    seen = witnesses(read, delta=log_of(read))
    facts = with_account(sink_facts(DeltaSink(name=SINK, target="t"), "t", seen, ()), seen)
    assert facts.account is not None and (facts.account.undecided > 0) == (expected is None), facts.account
    assert facts.rows_filtered == expected
