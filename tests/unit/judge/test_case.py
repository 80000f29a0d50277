"""What an audit knows of one sink: found once, without reading what a check has to ask for."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any

from recon.judge.case import SinkCase
from recon.judge.rows.of_sink import RowEvidence
from recon.model import SinkLog, Unavailable, Witnesses
from recon.model.proof import Proofs
from recon.testing.evidence import PIPELINE, SINK, Entry, gone, ledger
from tests.support.asked import Asked
from tests.support.witnesses import group, log_of, rows, sink_proof, witnesses

FULL = [Entry(0, (0, 10)), Entry(1, (10, 20))]
SHORT = [Entry(0, (0, 10)), Entry(1, (10, 20), rows_written=9)]


def seen(*entries: Entry, written: Any = None, **fields: Any) -> Witnesses:
    of = ledger(*entries)
    return witnesses(of, **{"delta": log_of(ledger(*(written or entries))), **fields})


def test_a_commit_without_an_entry_is_judged_as_the_entry_that_it_lacks() -> None:
    case = SinkCase(seen(*FULL, written=[*FULL, Entry(2, (20, 30))]))
    assert [head.batch_id for head in case.entered.heads] == [0, 1]
    assert [head.batch_id for head in case.ledger.heads] == [0, 1, 2]
    assert [write.stamp.batch_id for write in case.unrecorded] == [2]
    assert case.table is not None and case.table.heads == case.ledger.heads
    assert [*case.counts.counted] == [0, 1, 2]


def test_nothing_in_the_case_reads_what_a_check_has_to_ask_for() -> None:
    given = seen(*SHORT)
    asked = Asked(given)
    case = SinkCase(replace(given, reader=asked))
    found = {name: getattr(case, name) for name, of in vars(SinkCase).items() if isinstance(of, cached_property)}
    assert found.keys() >= {"ledger", "counts", "table", "balance", "quarantine"}
    assert (asked.for_rows, asked.versions, asked.questions) == (False, [], {})


def test_rows_that_are_read_later_change_nothing_that_was_found_without_them() -> None:
    given = seen(*SHORT, rows=rows(group(0, (0, 10)), group(1, (10, 19))))
    asked = Asked(given)
    before = RowEvidence.of(SinkCase(replace(given, rows=gone("rows"), reader=asked)))
    assert before.misses_rows and before.sink is None and not asked.for_rows
    after = before.read_rows()
    assert asked.for_rows and after.sink is not None and after.sink.rows is given.rows
    assert before.sink is None and after.case is before.case


def test_rows_that_cannot_be_read_stay_unknown_with_the_reason() -> None:
    given = seen(*SHORT, rows=gone("rows"))
    evidence = RowEvidence.of(SinkCase(replace(given, reader=Asked(given)))).read_rows()
    assert evidence.sink is None
    assert isinstance(evidence.rows, Unavailable) and evidence.rows.reason == gone("rows").reason


def test_checks_that_see_the_same_share_what_follows_from_it() -> None:
    given = seen(*FULL)
    first, another = SinkCase(given), SinkCase(replace(given, kafka=gone("kafka")))
    assert first.table is another.table and first.counts is another.counts
    proofs = Proofs(of_sink={SINK: sink_proof(None, None)})
    assert SinkCase(replace(given, proofs=proofs)).table is not first.table


def test_a_sink_without_entries_has_an_empty_slice() -> None:
    case = SinkCase(witnesses(None, delta=log_of(ledger(*FULL))))
    assert not case.entered.heads and (case.entered.pipeline, case.entered.sink) == (PIPELINE, SINK)
    assert [write.stamp.batch_id for write in case.unrecorded] == [0, 1]


def test_a_sink_has_the_history_of_its_kind() -> None:
    table = SinkCase(seen(*FULL))
    assert table.history is table.table and table.record is None and table.balance is not None
    of_database = SinkCase(seen(*FULL, delta=gone("delta"), sink_logs={SINK: SinkLog(location="db", exists=True)}))
    assert of_database.history is of_database.record is not None and of_database.table is of_database.balance is None
    nothing = SinkCase(seen(*FULL, delta=gone("delta")))
    assert nothing.history is None and nothing.ledger is nothing.entered
