"""source_rows where a transform makes several rows of one record: rows are compared with what the sink was given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from recon.checks.evidence.source_rows import SourceRows
from recon.model import DeclaredRows, LedgerSlice, RowGroup, Verdict
from recon.model.fingerprint import of_offsets
from recon.testing.evidence import TOPIC, Entry, gone, ledger
from tests.support.asked import wants_rows
from tests.support.messages import same_message
from tests.support.witnesses import commit, delta, group, probe, rows, told, witnesses

THRICE = [offset for offset in range(10) for _ in range(3)]
EVENLY = [offset for offset in range(0, 10, 2) for _ in range(2)]  # half of the records dropped, the others doubled
EXPLODES = DeclaredRows(explodes=True)


def made(returned: Sequence[int], written: int | None = None, **head: Any) -> Entry:
    """A micro-batch of offsets [0, 10) of which the transform made rows with these offsets."""
    fields: dict[str, Any] = {
        "rows_read": 10,
        "rows_filtered": 10 - len(returned) if len(returned) <= 10 else None,
        "rows_returned": len(returned),
        "rows_given": len(returned),
        "rows_written": len(returned) if written is None else written,
        "fingerprint_read": of_offsets(TOPIC, 0, range(10)),
        "fingerprint_returned": of_offsets(TOPIC, 0, returned),
        "fingerprint_given": of_offsets(TOPIC, 0, returned),
    }
    return Entry(0, (0, 10), **{**fields, **head})


def passed(verdict: Verdict) -> bool:
    return verdict.failures == 0 and verdict.unproved is None


def held(offsets: Sequence[int]) -> RowGroup:
    one = group(0, *((o, o + 1) for o in sorted(set(offsets))), rows=len(offsets))
    return replace(one, fingerprint=of_offsets(TOPIC, 0, offsets))


def judged(entry: Entry, offsets: Sequence[int], declared: DeclaredRows = EXPLODES, **fields: Any) -> Verdict:
    """The verdict where the sink's one commit is known, and its rows have these offsets; Kafka has every record."""
    slice_: LedgerSlice = ledger(entry)
    log, found = delta(commit(0, entry)), rows(held(offsets), version=0)
    in_kafka = probe([(0, 10)], [(0, 10)], [(0, 10)])
    return SourceRows().judge(
        witnesses(slice_, **{"delta": log, "rows": found, "probes": in_kafka, "declared": declared, **fields})
    )


def test_as_many_rows_as_the_sink_was_given() -> None:
    verdict = judged(made(THRICE), THRICE)
    assert passed(verdict)


@pytest.mark.parametrize(
    ("offsets", "code"),
    [
        pytest.param(THRICE[:-1], "GAP", id="one of three rows was removed"),
        pytest.param([*THRICE, 4], "DUPLICATE", id="one of three rows was doubled"),
        pytest.param([*THRICE[:-1], 4], "GAP", id="one was removed and another doubled"),
    ],
)
def test_other_rows_than_the_sink_was_given(offsets: Sequence[int], code: str) -> None:
    verdict = judged(made(THRICE), offsets)
    assert [found for found, *_ in told(verdict)] == [code]
    assert same_message(verdict.message)


def test_a_row_that_the_sink_did_not_take_in() -> None:
    verdict = judged(made(THRICE, 29), THRICE[:-1])
    assert [found for found, *_ in told(verdict)] == ["GAP"]


@pytest.mark.parametrize("epoch", [0, 1])
def test_without_the_sinks_log_or_after_a_new_epoch_the_counts_of_the_write_decide(epoch: int) -> None:
    """Rows of two epochs have the same numbers of micro-batches."""
    log = gone("delta") if epoch == 0 else delta(commit(0, made(THRICE, 29, epoch=1)))
    verdict = judged(made(THRICE, 29, epoch=epoch), THRICE, delta=log)
    assert [found for found, *_ in told(verdict)] == ["GAP"]
    assert same_message(verdict.message)


def test_a_transform_that_drops_records_and_makes_rows_of_others() -> None:
    """As many rows returned as read, so that counts alone look like a transform that does nothing."""
    verdict = judged(made(EVENLY), EVENLY)
    assert passed(verdict)
    assert verdict.evidence["explained"] == {"filtered": 5}


def test_records_that_the_transform_dropped_are_told_from_those_that_the_sink_lost() -> None:
    verdict = judged(made(EVENLY), EVENLY[:-2])
    assert {found for found, *_ in told(verdict)} == {"GAP", "INCONCLUSIVE"}


def test_records_that_were_never_read_were_not_dropped() -> None:
    """9 was not read, 8 was read twice: as many rows as offsets."""
    read = of_offsets(TOPIC, 0, [0, 1, 2, 3, 4, 5, 6, 7, 8, 8])
    verdict = judged(made(EVENLY, fingerprint_read=read), EVENLY)
    assert verdict.evidence["explained"] == {} and verdict.unproved is not None


def test_a_transform_that_may_not_drop_records_lost_them() -> None:
    verdict = judged(made(EVENLY), EVENLY, DeclaredRows(explodes=True, filters=False))
    assert told(verdict) == [("GAP", 0, o, o + 1) for o in range(1, 10, 2)]


def test_a_micro_batch_whose_rows_were_left_as_they_were_is_proved_by_counts() -> None:
    assert not wants_rows(SourceRows(), witnesses(ledger(made(range(10))), declared=EXPLODES))
    assert wants_rows(SourceRows(), witnesses(ledger(made(EVENLY)), declared=EXPLODES))


def test_a_restored_entry_does_not_say_how_many_rows_the_sink_was_given() -> None:
    unknown = {name: None for name in made(THRICE).head if name.startswith(("rows_r", "rows_f", "rows_g", "finger"))}
    restored = made(THRICE, 29, **unknown, status="rebuilt")
    verdict = judged(restored, THRICE[:-1])
    assert told(verdict) == [("INCONCLUSIVE", None, None, None)] and same_message(verdict.message)
    assert passed(judged(made(range(10), 10, **unknown, status="rebuilt"), range(10), DeclaredRows()))
