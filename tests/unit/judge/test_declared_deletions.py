"""Declared deletions: which commits they are, which of their rows were old enough, and what the account says."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from recon.checks.evidence.delta_history import DeltaHistory
from recon.checks.evidence.source_rows import SourceRows
from recon.judge.account.lines import account_of
from recon.judge.history.declared_deletions import declared_for
from recon.model import Code, Unavailable, Verdict, Witnesses
from recon.model.deletion import DeclaredDeletion, DeletedRows
from recon.model.evidence import SeenDeletions
from recon.model.offsets import Spans
from recon.testing.evidence import SINK, TOPIC, TOPIC_ID, Entry, ledger
from tests.support.witnesses import commit, delta, group, probe, rows, witnesses

BY_COLUMN = DeclaredDeletion(columns=("event_time",), older_than=timedelta(30), age="30 days", column="event_time")
BY_READING = DeclaredDeletion(columns=("event_time",), older_than=timedelta(30), age="30 days")
SPARK = '["(event_time#290 < 2026-01-01 12:00:00)"]'
FULL = [Entry(0, (0, 10)), Entry(1, (10, 20))]


@pytest.mark.parametrize(
    ("predicate", "columns", "fits"),
    [
        (SPARK, ["event_time"], True),
        ('["((event_time#290 < 2026-01-01) AND (_source_offset#288L < 7))"]', ["event_time"], False),
        ('["((event_time#290 < 2026-01-01) AND (_source_offset#288L < 7))"]', ["_source_offset", "event_time"], True),
        ('["(my event_time#290 < 2026-01-01)"]', ["event_time"], True),
        ('["(my event_time#290 < 2026-01-01)"]', ["my event_time"], True),
        ('["((name#3 = event_time#290) AND (event_time#290 IS NOT NULL))"]', ["event_time"], False),
        ('["(last_event_time#290 < 2026-01-01)"]', ["event_time"], False),
        ('["true"]', ["event_time"], False),
        ("[]", ["event_time"], False),
        ("event_time < arrow_cast('2027-01-01', 'Timestamp(Microsecond)')", ["event_time"], True),
        ("event_time < 'it''s status' OR \"a b\" = 1", ["event_time", "a b"], True),
        ("event_time < '2026-01-01' OR status = 1", ["event_time"], False),
        ("true", ["event_time"], False),
    ],
)
def test_a_condition_names_the_declared_columns_and_no_others(predicate: str, columns: list[str], fits: bool) -> None:
    taken = commit(2, operation="DELETE", files_removed=1, operation_parameters={"predicate": predicate})
    declared = DeclaredDeletion(columns=tuple(columns))
    assert (declared_for(taken, [declared]) is declared) is fits


@pytest.mark.parametrize("operation", ["UPDATE", "MERGE", "WRITE", "TRUNCATE", "RESTORE", "OPTIMIZE"])
def test_another_operation_is_no_deletion(operation: str) -> None:
    taken = commit(2, operation=operation, files_removed=1, user_metadata="gdpr-1")
    assert declared_for(taken, [DeclaredDeletion(user_metadata="gdpr-*")]) is None


def test_who_deletes_is_what_the_log_says() -> None:
    fields: Mapping[str, Any] = {"operation": "DELETE", "files_removed": 1}
    by_job, by_text = DeclaredDeletion(made_by={"job": "erase"}), DeclaredDeletion(user_metadata="gdpr-*")
    assert declared_for(commit(2, **fields, made_by={"job": "erase", "user": "ada"}), [by_job]) is by_job
    assert declared_for(commit(2, **fields, made_by={"job": "other"}), [by_job]) is None
    assert declared_for(commit(2, **fields), [by_job, by_text]) is None
    assert declared_for(commit(2, **fields, user_metadata="gdpr-4711"), [by_job, by_text]) is by_text
    assert declared_for(commit(2, **fields, user_metadata="no gdpr-4711"), [by_job, by_text]) is None
    # Of several the one that allows the youngest rows counts.
    both = commit(2, **fields, user_metadata="gdpr-1", operation_parameters={"predicate": SPARK})
    assert declared_for(both, [BY_COLUMN, by_text]) is by_text


def _seen(declared: DeclaredDeletion, deleted: DeletedRows | Unavailable, **fields: Any) -> Witnesses:
    """A DELETE of version 2 after two micro-batches, and what was read of it."""
    taken = commit(
        2,
        operation="DELETE",
        files_removed=1,
        rows_added=8,
        rows_removed=10,
        operation_parameters={"predicate": SPARK},
    )
    log = delta(*(commit(version, entry) for version, entry in enumerate(FULL)), taken)
    seen = SeenDeletions(rows={2: deleted}, read_before=fields.pop("read_before", {}))
    of_sink = {"deletes": {SINK: (declared,)}, "deletions": {SINK: seen}}
    return witnesses(ledger(*FULL), delta=log, **of_sink, **fields)


def _offsets(*spans: tuple[int, int]) -> Mapping[tuple[str, int], Spans]:
    return {(TOPIC, 0): Spans.of(spans)}


def _codes(verdict: Verdict) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for finding in verdict.findings:
        found.setdefault(str(finding.code), []).append(finding.message)
    return found


def test_rows_that_are_old_enough_are_counted_and_refute_nothing() -> None:
    deleted = DeletedRows(version=2, rows=2, offsets=_offsets((3, 5)), older=_offsets((3, 5)))
    seen = _seen(BY_COLUMN, deleted)
    assert _codes(DeltaHistory().judge(seen)).keys() == {"DELETED"}
    assert SourceRows().judge(seen).unproved is None
    account = account_of(seen)
    assert account is not None
    lines = [(line.start, line.end, str(line.offset_class), str(line.how)) for line in account.ordered().lines()]
    assert (3, 5, "removed since", "declared deletion") in lines
    assert sum(line[1] - line[0] for line in lines if line[2] == "in a row") == 18


def test_rows_that_are_younger_are_gone() -> None:
    deleted = DeletedRows(version=2, rows=3, offsets=_offsets((3, 6)), older=_offsets((3, 5)))
    held = rows(group(0, (0, 3), (6, 10)), group(1, (10, 20)))
    seen = _seen(BY_COLUMN, deleted, rows=held, probes=probe([(0, 20)], committed=[(0, 20)]))
    assert _codes(DeltaHistory().judge(seen)).keys() == {"DELETED", "MUTATED", "GAP"}
    gaps = [f for f in SourceRows().judge(seen).findings if f.code is Code.GAP]
    assert [(f.span, f.changed_by) for f in gaps] == [((5, 6), (2,))]


def test_rows_whose_age_is_not_known_are_inside_nothing() -> None:
    held = rows(group(0, (0, 3), (5, 10)), group(1, (10, 20)))
    ageless = DeletedRows(version=2, rows=2, offsets=_offsets((3, 5)), ageless=_offsets((3, 5)))
    for deleted in (ageless, Unavailable("deleted_rows", "data files are no longer in the store")):
        seen = _seen(BY_COLUMN, deleted, rows=held, probes=probe([(0, 20)], committed=[(0, 20)]))
        assert _codes(DeltaHistory().judge(seen)).keys() == {"INCONCLUSIVE"}
        asked = [f for f in SourceRows().judge(seen).findings if f.code is Code.INCONCLUSIVE]
        assert [f.span for f in asked] == [(3, 5)]


def test_more_rows_are_gone_than_a_deletion_took() -> None:
    held = rows(group(0, (0, 3), (6, 10)), group(1, (10, 20)))  # the DELETE took two
    why = Unavailable("deleted_rows", "data files are no longer in the store")
    seen = _seen(BY_COLUMN, why, rows=held, probes=probe([(0, 20)], committed=[(0, 20)]))
    assert [f.span for f in SourceRows().judge(seen).findings if f.code is Code.GAP] == [(3, 6)]


def test_a_deletion_that_adds_rows_is_none() -> None:
    deleted = DeletedRows(version=2, rows=2, offsets=_offsets((3, 5)), older=_offsets((3, 5)), changed="it added rows")
    assert "MUTATED" in _codes(DeltaHistory().judge(_seen(BY_COLUMN, deleted)))


def test_ages_from_when_a_record_was_read() -> None:
    deleted = DeletedRows(version=2, rows=5, offsets=_offsets((3, 8)))
    at = commit(2).timestamp - timedelta(30)
    read: Mapping[tuple[str, int], Mapping[str | None, int]] = {(TOPIC, 0): {TOPIC_ID: 5}}
    found = _codes(DeltaHistory().judge(_seen(BY_READING, deleted, read_before={at: read})))
    assert "3 rows were younger" in found["MUTATED"][0] and "deleted 2 rows" in found["DELETED"][0]
    other: Mapping[tuple[str, int], Mapping[str | None, int]] = {(TOPIC, 0): {"id of another topic": 50}}
    assert "DELETED" not in _codes(DeltaHistory().judge(_seen(BY_READING, deleted, read_before={at: other})))
    unread = {at: Unavailable("ledger", "the store did not answer")}
    assert _codes(DeltaHistory().judge(_seen(BY_READING, deleted, read_before=unread))).keys() == {"INCONCLUSIVE"}
