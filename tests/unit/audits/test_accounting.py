"""What became of every offset that was read: the sum adds up by itself, or says that it does not."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from recon.audits.accounting import offset_account
from recon.audits.incidents import incidents_of
from recon.checks.evidence.source_rows import SourceRows
from recon.model import REPAIRS, CheckResult, DeclaredRows, LedgerSlice, OffsetAccount, Witnesses
from recon.testing.evidence import PIPELINE, SINK, Entry, gone, ledger
from tests.support.witnesses import commit, delta, group, probe, rows, witnesses

FULL = [Entry(0, (0, 10)), Entry(1, (10, 20))]


def account(slice_: LedgerSlice, **fields: Any) -> OffsetAccount | None:
    seen: Witnesses = witnesses(slice_, **fields)
    verdict = SourceRows().judge(seen)
    status = "fail" if verdict.failures else "skipped" if verdict.skipped else "error" if verdict.unproved else "pass"
    result = CheckResult(
        unique_id="source_rows", name="source_rows", check="source_rows", kind="evidence", status=status,
        failures=verdict.failures, message=verdict.message, pipeline=PIPELINE, sink=SINK,
        findings=verdict.findings, evidence=verdict.evidence,
    )  # fmt: skip
    return offset_account(SINK, seen, [result], incidents_of(seen, [result], [SINK], keeps=True))


def told(found: OffsetAccount | None) -> dict[str, Any]:
    assert found is not None
    return {name: value for name, value in found.terms.items() if value != 0}


def test_counts_alone_add_up() -> None:
    filtered = Entry(2, (20, 30), rows_written=6, rows_filtered=3, rows_quarantined=1)
    found = account(ledger(*FULL, filtered))
    assert told(found) == {"rows": 26, "filtered": 3, "quarantined": 1}
    assert found is not None and (found.offsets, found.difference, found.rows_read) == (30, 0, False)


def test_what_kafka_explains_and_what_is_missing_are_terms() -> None:
    short = ledger(FULL[0], Entry(1, (10, 20), rows_written=7, rows_read=8))
    held = rows(group(0, (0, 10)), group(1, (10, 14), (15, 18)))
    answer = probe([(0, 20)], uncommitted=[(0, 19)], committed=[(0, 18)])
    found = account(short, rows=held, probes=answer)
    assert told(found) == {"rows": 17, "control": 1, "aborted": 1, "missing": 1}
    assert found is not None and found.difference == 0


def test_what_was_removed_is_a_term_of_its_own() -> None:
    taken = commit(2, operation="DELETE", files_removed=1, rows_added=8, rows_removed=10)
    log = delta(*(commit(version, entry) for version, entry in enumerate(FULL)), taken)
    found = account(ledger(*FULL), delta=log, rows=rows(group(0, (0, 10)), group(1, (12, 20))))
    # Without a reason to read rows, counts prove what was written; the audit reads them where the log shows a DELETE.
    assert told(found) == {"rows": 18, "removed": 2}
    assert found is not None and found.difference == 0 and found.rows_read


def test_a_sum_that_does_not_add_up_is_not_filled_up() -> None:
    """Rows of the commit are one fewer than offsets, and no check said why."""
    seen = witnesses(ledger(FULL[0], Entry(1, (10, 20), rows_written=9)))
    silent = CheckResult(
        unique_id="source_rows", name="source_rows", check="source_rows", kind="evidence", status="pass",
        failures=0, message="", pipeline=PIPELINE, sink=SINK, evidence={"explained": {}},
    )  # fmt: skip
    found = offset_account(SINK, seen, [silent], ())
    assert found is not None and found.difference == 1


def test_what_no_witness_could_look_at_is_not_known() -> None:
    found = account(ledger(FULL[0], Entry(1, (10, 20), rows_written=9)), rows=gone("rows", skipped=True))
    assert found is not None
    assert (found.control, found.aborted, found.difference) == (None, None, None)


@pytest.mark.parametrize(
    "fields",
    [{"declared": DeclaredRows(explodes=True)}, {"rewriting": frozenset({SINK})}],
)
def test_rows_that_are_not_one_per_record_are_not_compared(fields: Any) -> None:
    found = account(ledger(*FULL), **fields)
    assert found is not None and found.rows is None and found.unknown and found.difference is None


def test_replays_and_what_was_read_twice_count_once() -> None:
    again = Entry(1, (10, 20), status="already_committed")
    assert (found := account(ledger(*FULL, again))) is not None and (found.offsets, found.rows) == (20, 20)
    quiet = dataclasses.replace(ledger(*FULL), anchors=2)
    assert account(quiet) is None


@pytest.mark.parametrize(
    ("repaired", "expected"), [(False, {"rows": 5, "missing": 5}), (True, {"rows": 9, "filtered": 1})]
)
def test_what_is_filtered_where_a_second_call_of_the_hook_was_not_written(
    repaired: bool, expected: dict[str, int | None]
) -> None:
    """The repair drops one of the offsets that it reads again."""
    first = {"run_id": "r-1", "sink_version": 0, "rows_written": 5, "rows_filtered": 5}
    again = {**first, "attempt": 2, "status": "already_committed", "transform": "job:odd"}
    calls = [Entry(0, (0, 10), transform="job:even", **first), Entry(0, (0, 10), **again)]
    repair = Entry(0, (5, 10), epoch=REPAIRS, status="repaired", rows_read=5, rows_written=4, rows_filtered=1)
    present = group(0, (0, 9)) if repaired else group(0, (0, 5))
    probes = probe([(0, 10)], [(0, 10)], [(0, 10)])
    found = account(ledger(*calls, *([repair] if repaired else [])), rows=rows(present), probes=probes)
    assert told(found) == expected
    assert found is not None and found.difference == 0


@pytest.mark.parametrize(
    ("repair", "expected"),
    [
        (Entry(0, (20, 24)), {"rows": 28}),  # no micro-batch read them: the sum has its rows
        (Entry(0, (12, 15)), {"rows": 24}),  # a micro-batch counted them
        (Entry(0, (18, 20), (20, 24)), {"rows": 28}),  # a row of each offset: four are of those that nobody had read
        (Entry(0, (20, 24), rows_written=1, rows_filtered=3), {"rows": 25, "filtered": 3}),
        (Entry(0, (18, 24), rows_written=3, rows_filtered=3), {"rows": None, "filtered": None, "quarantined": None}),
    ],
)
def test_a_repair_counts_for_what_it_was_the_first_to_read(repair: Entry, expected: dict[str, int | None]) -> None:
    repair.head["epoch"] = REPAIRS
    slice_ = ledger(*FULL, repair, Entry(2, (24, 28)))
    silent = CheckResult(
        unique_id="source_rows", name="source_rows", check="source_rows", kind="evidence", status="pass",
        failures=0, message="", pipeline=PIPELINE, sink=SINK, evidence={"explained": {}},
    )  # fmt: skip
    found = offset_account(SINK, witnesses(slice_), [silent], ())
    assert told(found) == expected
    assert found is not None and found.difference == (None if None in expected.values() else 0)
