"""source_rows where the query reads a Delta table: numbers of rows against those that the table's log has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from recon.checks.evidence.source_rows import SourceRows
from recon.model import Code, DeclaredRows, SourceCommit, SourceTable, Unavailable, Verdict
from recon.model.delta_offsets import offset_of
from recon.testing.evidence import NOW, START, Entry, ledger, span, witnesses
from tests.support.asked import questions, wants_rows
from tests.support.witnesses import commit, delta

TOPIC = "delta:id-1"


def table(*files: Sequence[int | None], **fields: Any) -> SourceTable:
    """A table with a commit for each list of files."""
    commits = {
        version: SourceCommit(version=version, timestamp=START, operation="WRITE", files=tuple(rows))
        for version, rows in enumerate(files)
    }
    made = {"table_id": "id-1", "first_retained": 0, "last": len(files) - 1, "commits": commits}
    return SourceTable(location="/lake/bronze", exists=True, read_at=NOW, **{**made, **fields})


def entry(batch_id: int = 0, *, rows: int = 10, **head: Any) -> Entry:
    """A micro-batch that read one version."""
    versions = (offset_of(batch_id, 0), offset_of(batch_id + 1, 0))
    made = {"rows_read": rows, "rows_written": rows, "rows_returned": rows, "rows_given": rows, "rows_filtered": 0}
    return Entry(batch_id, span(*versions, topic=TOPIC, topic_id="id-1"), **{**made, **head})


def judged(source: SourceTable | Unavailable, *entries: Entry, **fields: Any) -> Verdict:
    log = delta(*(commit(n, one, rows_added=one.head["rows_written"]) for n, one in enumerate(entries)))
    seen = witnesses(ledger(*entries), delta=log, source_log=source, **fields)
    check = SourceRows()
    assert questions(check, seen) == {}
    assert not wants_rows(check, seen)
    return check.judge(seen)


def codes(verdict: Verdict) -> list[Code]:
    return [finding.code for finding in verdict.findings]


def test_as_many_rows_as_the_table_has() -> None:
    verdict = judged(table([10], [4, 6]), entry(0), entry(1))
    assert (codes(verdict), verdict.unproved) == ([], None)
    assert "quarantined are as many as the records of their source" in verdict.message


@pytest.mark.parametrize(
    ("head", "declared", "code"),
    [
        ({"rows_read": 8, "rows_returned": 8, "rows_given": 8, "rows_written": 8}, {}, Code.GAP),  # not read
        ({"rows_read": 12, "rows_returned": 12, "rows_given": 12, "rows_written": 12}, {}, Code.DUPLICATE),
        ({"rows_returned": 8, "rows_given": 8, "rows_written": 8, "rows_filtered": 2}, {}, None),  # shown by number
        ({"rows_returned": 8, "rows_given": 8, "rows_written": 8, "rows_filtered": 2}, {"filters": False}, Code.GAP),
        ({"rows_written": 9}, {}, Code.GAP),  # the sink took in fewer than it was given
        ({"rows_returned": 13, "rows_given": 13, "rows_written": 13, "rows_filtered": None}, {}, Code.DUPLICATE),
        ({"rows_returned": 13, "rows_given": 13, "rows_written": 13, "rows_filtered": None}, {"explodes": True}, None),
        (
            {"rows_returned": 13, "rows_given": 13, "rows_written": 12, "rows_filtered": None},
            {"explodes": True},
            Code.GAP,
        ),
        # One row was read twice and another left out, and the transform makes up for neither.
        ({"rows_read": 9, "rows_returned": 10, "rows_given": 10, "rows_filtered": None}, {}, Code.GAP),
        # A row lost and another doubled by the transform: of other source offsets, where rows carry these.
        ({"fingerprint_read": 5, "fingerprint_returned": 6, "fingerprint_given": 6}, {}, Code.GAP),
        (
            {"status": "rebuilt", "rows_read": None, "rows_returned": None, "rows_given": None, "rows_filtered": None},
            {},
            None,
        ),
        (
            {"status": "rebuilt", "rows_read": None, "rows_returned": None, "rows_given": None, "rows_written": 30},
            {"explodes": True},
            Code.INCONCLUSIVE,
        ),
    ],
)
def test_numbers_that_do_not_agree(head: dict[str, Any], declared: dict[str, bool], code: Code | None) -> None:
    verdict = judged(table([10]), entry(**head), declared=DeclaredRows(**declared))
    assert codes(verdict) == ([] if code is None else [code])


@pytest.mark.parametrize(
    "source",
    [
        table([10], commits={}),
        table([None]),
        table([10], table_id="id-2"),
        Unavailable("kafka", "the store does not answer"),
    ],
)
def test_a_log_that_does_not_tell(source: SourceTable | Unavailable) -> None:
    assert codes(judged(source, entry())) == [Code.INCONCLUSIVE]


def test_topics_beside_the_table_prove_nothing() -> None:
    of_kafka = Entry(0, span(0, 10), rows_read=10, rows_written=10)
    assert codes(judged(table([10]), of_kafka)) == [Code.INCONCLUSIVE]
