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
from recon.testing.evidence import NOW, Entry, ledger, span, witnesses

TABLE = "delta:bronze"
CHECK = SourceTableVersions()


def commit(version: int, *files: int | None, age: timedelta = timedelta(minutes=1), **fields: Any) -> SourceCommit:
    made = {"operation": "WRITE", **fields}
    return SourceCommit(version=version, timestamp=NOW - age, files=files, **made)


def table(*commits: SourceCommit, **fields: Any) -> SourceTable:
    versions = [one.version for one in commits]
    made: dict[str, Any] = {
        "topic": TABLE,
        "location": "/lake/bronze",
        "exists": True,
        "read_at": NOW,
        "table_id": "id-1",
        "first_retained": min(versions, default=None),
        "last": max(versions, default=None),
        "commits": {one.version: one for one in commits},
    }
    return SourceTable(**{**made, **fields})


def read(*ends: int, topic_id: str | None = "id-1") -> Sequence[Entry]:
    """An entry for each position, from the table's beginning on."""
    starts = (BEGINNING, *ends)
    return [
        Entry(n, span(start, end, topic=TABLE, topic_id=topic_id))
        for n, (start, end) in enumerate(zip(starts, ends, strict=False))
    ]


def judged(source: SourceTable | Unavailable | None, *ends: int, check: Any = CHECK, **fields: Any) -> Verdict:
    return check.judge(witnesses(ledger(*read(*ends)), source_table=source, **fields))


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


@pytest.mark.parametrize(
    ("source", "code"),
    [
        (table(commit(0, 3), table_id="id-2"), Code.RECREATED),
        (table(commit(0, 3), table_id=None), Code.INCONCLUSIVE),
        (table(exists=False), Code.RECREATED),
        (table(commit(0, 3), last=0), Code.INCONCLUSIVE),
    ],
)
def test_another_table(source: SourceTable, code: Code) -> None:
    assert code in codes(judged(source, offset_of(1, 0), offset_of(3, 0)))


@pytest.mark.parametrize(
    ("passes", "replaced", "deleted"),
    [
        ("", Code.MUTATED, Code.MUTATED),
        ("deletes", Code.MUTATED, Code.EXPLAINED),
        ("skip", Code.GAP, Code.EXPLAINED),
        ("changes", Code.DUPLICATE, Code.EXPLAINED),
    ],
)
def test_commits_that_changed_rows(passes: Any, replaced: Code, deleted: Code) -> None:
    replacing = table(commit(0, 3), commit(1, 3, removes=True, operation="UPDATE"), passes=passes)
    assert codes(judged(replacing, offset_of(2, 0))) == [replaced]
    deleting = table(commit(0, 3), commit(1, removes=True, operation="DELETE"), passes=passes)
    assert codes(judged(deleting, offset_of(2, 0))) == [deleted]


def test_a_sink_that_merges_takes_changes() -> None:
    source = table(commit(0, 3), commit(1, 3, removes=True, operation="UPDATE"), passes="changes")
    assert codes(judged(source, offset_of(2, 0), rewriting=("lake",))) == []


def test_a_commit_at_which_spark_stops() -> None:
    source = table(commit(0, 3), commit(1, 3, removes=True, operation="MERGE"))
    assert codes(judged(source, offset_of(1, 0))) == [Code.STALLED, Code.INFLIGHT]


def test_without_the_log_nothing_is_proved() -> None:
    assert judged(Unavailable("source_table", "the store does not answer"), offset_of(1, 0)).unproved
    assert judged(None, offset_of(1, 0)).unproved
    assert CHECK.judge(witnesses(None, source_table=table(commit(0, 3)))).unproved
