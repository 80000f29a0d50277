"""source_table: positions in a Delta table against what its log has now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import pytest

from recon.checks.evidence.source_table import SourceTableVersions
from recon.checks.period import Period
from recon.model import Code, SourceCommit, SourceTable, Unavailable, Verdict
from recon.model.delta_offsets import BEGINNING, offset_of
from recon.model.proof import Proofs
from recon.testing.evidence import NOW, Entry, ledger, span, witnesses
from tests.support.witnesses import sink_proof

TABLE = "delta:id-1"
CHECK = SourceTableVersions()


def commit(version: int, *files: int | None, age: timedelta = timedelta(hours=6), **fields: Any) -> SourceCommit:
    made = {"operation": "WRITE", **fields}
    return SourceCommit(version=version, timestamp=NOW - age, files=files, **made)


def table(*commits: SourceCommit, **fields: Any) -> SourceTable:
    versions = [one.version for one in commits]
    made: dict[str, Any] = {
        "location": "/lake/bronze",
        "exists": True,
        "read_at": NOW,
        "table_id": "id-1",
        "first_retained": min(versions, default=None),
        "last": max(versions, default=None),
        "commits": {one.version: one for one in commits},
    }
    return SourceTable(**{**made, **fields})


def read(*ends: int) -> Sequence[Entry]:
    """An entry for each position, from the table's beginning on."""
    starts = (BEGINNING, *ends)
    return [
        Entry(n, span(start, end, topic=TABLE, topic_id="id-1"))
        for n, (start, end) in enumerate(zip(starts, ends, strict=False))
    ]


def judged(source: SourceTable | Unavailable | None, *ends: int, check: Any = CHECK, **fields: Any) -> Verdict:
    return check.judge(witnesses(ledger(*read(*ends)), source_log=source, **fields))


def codes(verdict: Verdict) -> list[Code]:
    return [finding.code for finding in verdict.findings]


def test_read_to_the_end() -> None:
    verdict = judged(table(commit(0, 3), commit(1, 4)), offset_of(1, 0), offset_of(2, 0))
    assert (codes(verdict), verdict.unproved, verdict.evidence["waiting"]) == ([], None, [])


def test_what_waits_and_how_long() -> None:
    source = table(commit(0, 3), commit(1, 4, 2, age=timedelta(hours=2)), commit(2, 5))
    verdict = judged(source, offset_of(1, 1))
    assert codes(verdict) == [Code.INFLIGHT]
    assert (verdict.evidence["waiting"], verdict.evidence["rows"]) == ([1, 2], 7)
    limits: Mapping[str, Period] = {"warn_after": Period(1, "hour")}
    assert codes(judged(source, offset_of(1, 1), check=SourceTableVersions(**limits))) == [Code.LAG, Code.INFLIGHT]
    limits = {"error_after": Period(1, "hour"), "warn_after": Period(1, "minute")}
    assert codes(judged(source, offset_of(1, 1), check=SourceTableVersions(**limits))) == [Code.STALLED, Code.INFLIGHT]


def test_the_rest_of_the_snapshot_waits() -> None:
    verdict = judged(table(commit(3, 3)), offset_of(3, 1, in_snapshot=True))
    assert codes(verdict) == [Code.INFLIGHT]


def test_compaction_does_not_wait() -> None:
    assert codes(judged(table(commit(0, 3), commit(1)), offset_of(1, 0))) == []


def test_versions_that_are_gone_unread() -> None:
    verdict = judged(table(commit(5, 3)), offset_of(2, 0))
    assert Code.LOSS_RETENTION in codes(verdict)
    (lost,) = [one for one in verdict.findings if one.code is Code.LOSS_RETENTION]
    assert (lost.start_offset, lost.end_offset) == (offset_of(2, 0), offset_of(5, 0))


def test_another_table() -> None:
    verdict = judged(table(commit(0, 3), table_id="id-2"), offset_of(1, 0))
    assert codes(verdict) == [Code.RECREATED]


def test_an_older_copy_in_its_place() -> None:
    assert codes(judged(table(commit(0, 3), last=0), offset_of(1, 0), offset_of(3, 0))) == [Code.MUTATED]
    # As soon as it is written on, its versions are younger than the micro-batches that read those of before.
    later = table(commit(0, 3, age=timedelta(hours=7)), commit(1, 3, age=timedelta(hours=1)))
    assert codes(judged(later, offset_of(1, 0), offset_of(2, 0))) == [Code.INCONCLUSIVE]


@pytest.mark.parametrize("fields", [{"exists": False}, {"table_id": None}, {"last": None}])
def test_a_table_that_is_out_of_reach_is_no_other_table(fields: dict[str, Any]) -> None:
    verdict = judged(table(commit(0, 3), **fields), offset_of(1, 0))
    assert verdict.unproved and not verdict.findings


OLD = timedelta(hours=7)
REPLACED, DELETED = {"operation": "UPDATE", "removes": True}, {"operation": "DELETE", "removes": True}
RESTORED = {"operation": "RESTORE"}


@pytest.mark.parametrize(
    ("passes", "fields", "files", "code"),
    [
        ("", REPLACED, (3,), Code.MUTATED),
        ("", DELETED, (), Code.MUTATED),
        ("deletes", REPLACED, (3,), Code.MUTATED),
        ("deletes", DELETED, (), Code.EXPLAINED),
        ("skip", REPLACED, (3,), Code.GAP),
        ("skip", {**REPLACED, "metrics": {"numCopiedRows": "3"}}, (3,), Code.EXPLAINED),
        ("skip", DELETED, (2,), Code.EXPLAINED),
        ("skip", {**RESTORED, "removes": True}, (2,), Code.EXPLAINED),
        ("skip", RESTORED, (2,), Code.INCONCLUSIVE),
        ("deletes", RESTORED, (2,), Code.INCONCLUSIVE),
        ("changes", REPLACED, (3,), Code.INCONCLUSIVE),
        ("changes", {**REPLACED, "metrics": {"numCopiedRows": "2"}}, (3,), Code.DUPLICATE),
        ("changes", {**REPLACED, "metrics": {"num_copied_rows": 2}, "vectors": True}, (3,), Code.INCONCLUSIVE),
        ("changes", {**REPLACED, "metrics": {"numTargetRowsCopied": "0"}}, (3,), None),
        ("changes", {"operation": "WRITE", "removes": True}, (3,), None),
        ("changes", DELETED, (), Code.EXPLAINED),
        ("feed", REPLACED, (3,), None),
        ("feed", RESTORED, (3,), None),
    ],
)
def test_commits_that_changed_rows(
    passes: Any, fields: dict[str, Any], files: tuple[int, ...], code: Code | None
) -> None:
    source = table(commit(0, 3, age=OLD), commit(1, *files, age=OLD, **fields), passes=passes)
    assert codes(judged(source, offset_of(1, 0), offset_of(2, 0))) == ([] if code is None else [code])
    # What a query read as a part of the whole table, it did not read as a commit.
    assert codes(judged(source, offset_of(2, 0))) == []


def test_a_sink_that_merges_takes_changes() -> None:
    source = table(commit(0, 3, age=OLD), commit(1, 3, age=OLD, **REPLACED), passes="changes")
    assert codes(judged(source, offset_of(1, 0), offset_of(2, 0), rewriting=("lake",))) == []


def test_commits_that_are_gone_since_they_were_read() -> None:
    read = (offset_of(1, 0), offset_of(3, 0), offset_of(6, 0))
    verdict = judged(table(commit(5, 3, age=OLD)), *read)
    assert codes(verdict) == [Code.INCONCLUSIVE]
    assert verdict.findings[0].span == (offset_of(1, 0), offset_of(5, 0))
    assert (
        codes(judged(table(commit(5, 3, age=OLD)), *read, proofs=Proofs(of_sink={"lake": sink_proof(position=3)})))
        == []
    )


def test_a_stream_that_stops_within_the_snapshot_is_late() -> None:
    check = SourceTableVersions(error_after=Period(1, "hour"))
    assert Code.STALLED in codes(judged(table(commit(3, 3)), offset_of(3, 1, in_snapshot=True), check=check))


def test_a_commit_at_which_spark_stops() -> None:
    source = table(commit(0, 3), commit(1, 3, removes=True, operation="MERGE"))
    assert codes(judged(source, offset_of(1, 0))) == [Code.STALLED, Code.INFLIGHT]


def test_a_commit_that_will_be_passed_over_does_not_wait() -> None:
    source = table(commit(0, 3), commit(1, 3, **REPLACED), passes="skip")
    assert codes(judged(source, offset_of(1, 0))) == []


def test_without_the_log_nothing_is_proved() -> None:
    assert judged(Unavailable("source_table", "the store does not answer"), offset_of(1, 0)).unproved
    assert judged(None, offset_of(1, 0)).unproved
    assert CHECK.judge(witnesses(None, source_log=table(commit(0, 3)))).unproved
