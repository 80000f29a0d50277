"""source_files: the log of files and the folder against what micro-batches read."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from recon.checks.evidence.offset_continuity import OffsetContinuity
from recon.checks.evidence.source_files import SourceFilesRead
from recon.checks.evidence.source_rows import SourceRows
from recon.checks.period import Period
from recon.model import ChangedFile, Code, FileListing, SourceFile, SourceFiles, Unavailable, Verdict
from recon.model.offsets import OffsetSpan, Spans
from recon.testing.evidence import NOW, Entry, ledger, witnesses

QUERY, OTHER = "query-1", "query-2"
CHECK = SourceFilesRead()
HOUR = timedelta(hours=1)


def file(path: str, rows: int | str = 1, age: timedelta = timedelta(hours=7)) -> SourceFile:
    return SourceFile(path, NOW - age, rows)


def source(*entries: list[SourceFile], **fields: Any) -> SourceFiles:
    made: dict[str, Any] = {
        "location": "/landing",
        "exists": True,
        "read_at": NOW,
        "query_id": QUERY,
        "last": len(entries) - 1 if entries else None,
        "entries": dict(enumerate(entries)),
        "files": sum(map(len, entries)),
        "newest": max((f.modified for files in entries for f in files), default=None),
    }
    return SourceFiles(**{**made, **fields})


def read(number: int, start: int, end: int, query: str = QUERY, **head: Any) -> Entry:
    return Entry(number, OffsetSpan(f"files:{query}", query, 0, start, end, 0), query_id=query, **head)


def judged(of: SourceFiles | Unavailable | None, *entries: Entry, check: Any = CHECK, **fields: Any) -> Verdict:
    return check.judge(witnesses(ledger(*entries), source_log=of, **fields))


def codes(verdict: Verdict) -> list[Code]:
    return [finding.code for finding in verdict.findings]


def test_read_to_the_end() -> None:
    verdict = judged(source([file("a")], [file("b")]), read(0, 0, 1), read(1, 1, 2))
    assert not verdict.findings
    assert verdict.message == "/landing: 2 files in the log, read up to log entry 1; 0 files to read"


@pytest.mark.parametrize(
    ("check", "code"),
    [
        (CHECK, None),
        (SourceFilesRead(warn_after=Period(count=1, period="hour")), Code.LAG),
        (
            SourceFilesRead(warn_after=Period(count=1, period="hour"), error_after=Period(count=2, period="hour")),
            Code.STALLED,
        ),
    ],
)
def test_what_waits_in_the_log_and_in_the_folder(check: SourceFilesRead, code: Code | None) -> None:
    of = source([file("a")], [file("b", age=3 * HOUR)], unread=[file("c", age=HOUR)])
    verdict = judged(of, read(0, 0, 1), check=check)
    assert set(codes(verdict)) == {Code.INFLIGHT, *([code] if code else [])}
    assert verdict.evidence["waiting"] == 2


def test_files_that_spark_passes_over() -> None:
    of = source([file("a", age=timedelta())], unread=[file("late", age=timedelta(days=8)), file("new")])
    verdict = judged(of, read(0, 0, 1))
    assert codes(verdict) == [Code.GAP, Code.INFLIGHT]
    assert "late of" in verdict.findings[0].message
    newest_first = FileListing(options={"latestfirst": "true", "maxfilespertrigger": "1"})
    any_age = source([file("a", age=timedelta())], unread=of.unread, listing=newest_first)
    assert codes(judged(any_age, read(0, 0, 1))) == [Code.INFLIGHT]
    named = source([file("x/a")], unread=[file("y/a")], known_names=frozenset({"y/a"}))
    assert codes(judged(named, read(0, 0, 1))) == [Code.GAP]


def test_files_that_changed_are_findings_of_their_own() -> None:
    """A finding that somebody accepts is not that of another file of the same log entry."""
    replaced = [ChangedFile(name, 0, NOW - 7 * HOUR, None, NOW - HOUR) for name in ("a", "b")]
    verdict = judged(source([file("a"), file("b")], replaced=replaced), read(0, 0, 1))
    assert codes(verdict) == [Code.INCONCLUSIVE] * 2
    assert len({(f.message, f.span) for f in verdict.findings}) == 2
    assert {f.span for f in verdict.findings} == {None}


@pytest.mark.parametrize(("again", "code"), [(NOW - 7 * HOUR, Code.DUPLICATE), (NOW - HOUR, Code.INCONCLUSIVE)])
def test_files_that_were_read_twice(again: datetime, code: Code) -> None:
    of = source([file("a")], [file("a")], twice=[ChangedFile("a", 0, NOW - 7 * HOUR, 1, again)])
    assert codes(judged(of, read(0, 0, 1), read(1, 1, 2))) == [code]
    assert not judged(of, read(0, 0, 1), read(1, 1, 2), rewriting=("lake",)).findings


def test_a_log_that_ends_below_what_was_read_or_lacks_entries() -> None:
    assert codes(judged(source([file("a")]), read(0, 0, 1), read(1, 1, 3))) == [Code.MUTATED]
    empty = judged(source(), read(0, 0, 1))
    assert codes(empty) == [Code.MUTATED] and "has 0 entries" in empty.findings[0].message
    of = source([file("a")], [], [file("b")], missing=Spans.of([(1, 2)]))
    assert codes(judged(of, read(0, 0, 3))) == [Code.INCONCLUSIVE]


def test_a_log_with_other_files_than_were_read() -> None:
    of = source([file("a")], [file("b")], digests={1: "x", 2: "y"})
    same = judged(of, read(0, 0, 1, files_digest="x"), read(1, 1, 2, files_digest="y"), read(2, 2, 2))
    assert not same.findings
    other = judged(of, read(0, 0, 1, files_digest="x"), read(1, 1, 2, files_digest="z"))
    assert codes(other) == [Code.MUTATED]
    assert other.findings[0].batch_id == 1


def test_a_file_that_may_have_been_renamed() -> None:
    renamed = [ChangedFile("b", 0, NOW - HOUR, 1, NOW - HOUR, "a")]
    of = source([file("a")], [file("b")], renamed=renamed)
    assert codes(judged(of, read(0, 0, 1), read(1, 1, 2))) == [Code.INCONCLUSIVE]
    assert not judged(of, read(0, 0, 1), read(1, 1, 2), rewriting=("lake",)).findings


def test_a_query_with_a_log_of_its_own() -> None:
    old = file("a", age=timedelta(days=1))
    entries = (read(0, 0, 1, OTHER), read(0, 0, 1, QUERY, epoch=1))
    verdict = judged(source([old, file("b", age=timedelta())]), *entries)
    assert codes(verdict) == [Code.INCONCLUSIVE]
    assert "1 file from before" in verdict.findings[0].message
    assert not judged(source([file("b", age=timedelta())]), *entries).findings
    assert not judged(source([old]), *entries, rewriting=("lake",)).findings
    assert codes(judged(source([old]), read(0, 0, 1, OTHER))) == [Code.RECREATED]


@pytest.mark.parametrize(
    "of",
    [
        None,
        Unavailable("kafka", "the store does not answer"),
        source([file("a")], exists=False),
        source([file("a")], elsewhere=1),
        source([file("a")], sources=2),
        source([file("a")], unlisted=("sub/a",)),
    ],
)
def test_what_cannot_be_proved(of: Any) -> None:
    assert judged(of, read(0, 0, 1)).unproved
    assert judged(source([file("a")])).unproved
    assert judged(source([file("a")]), Entry(0, (0, 3))).unproved


def test_rows_against_the_files() -> None:
    of = source([file("a", 3)], [file("b", "the file is gone")])
    entries = (
        read(0, 0, 1, rows_read=3, rows_written=3, rows_filtered=0),
        read(1, 1, 2, rows_read=2, rows_written=2, rows_filtered=0),
    )
    assert not judged(of, *entries[:1], check=SourceRows()).findings
    unknown = judged(of, *entries, check=SourceRows())
    assert codes(unknown) == [Code.INCONCLUSIVE]
    assert "b of log entry 1: the file is gone" in unknown.findings[0].message
    fewer = read(0, 0, 1, rows_read=2, rows_written=2, rows_filtered=0)
    assert codes(judged(of, fewer, check=SourceRows())) == [Code.GAP]


def test_log_entries_that_no_micro_batch_read() -> None:
    of = source([file("a")], [file("b")], [file("c")])
    verdict = judged(of, read(0, 0, 1), read(2, 2, 3), check=OffsetContinuity())
    assert codes(verdict) == [Code.GAP]
    assert "the files of log entry 1" in verdict.findings[0].message
    assert "read exactly these files once more" in verdict.findings[0].message


@pytest.mark.parametrize("topic", ["orders", "delta:0b9e7c1a"])
def test_a_query_that_reads_something_else_as_well(topic: str) -> None:
    """The other source's records are not known, so that nothing is proved."""
    files = OffsetSpan(f"files:{QUERY}", QUERY, 0, 0, 1, 0)
    both = Entry(0, files, OffsetSpan(topic, None, 0, 0, 3, 1), query_id=QUERY, rows_read=4, rows_written=4)
    verdict = judged(source([file("a", 1)]), both, check=SourceRows())
    assert codes(verdict) == [Code.INCONCLUSIVE]
    assert "recon.yml names" in verdict.findings[0].message
