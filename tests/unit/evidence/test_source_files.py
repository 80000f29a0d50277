"""The log of Spark's file source and the folder, read from files as Spark writes them."""

from __future__ import annotations

import gzip
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from recon.base.errors import EvidenceError
from recon.base.storage import Storage
from recon.model.offsets import OffsetSpan
from recon.witness import checkpoint, source_files
from tests.support.file_stream import MADE, QUERY, TOPIC, FileStream
from tests.support.messages import raises


@pytest.fixture
def landing(tmp_path: Path) -> FileStream:
    return FileStream(tmp_path)


def test_a_log_of_plain_files(landing: FileStream) -> None:
    landing.logged(0, landing.put("a.json", 2), landing.put("b c.json", 3))
    landing.logged(1, landing.put("c%20d.json", 4))
    landing.put("e.json")
    read = landing.read((0, 1), (1, 2))
    assert (read.query_id, read.topic, read.last, read.files, read.exists) == (QUERY, TOPIC, 1, 3, True)
    assert (read.records(0, 1), read.records(0, 2), read.records(1, 1)) == (5, 9, 0)
    assert read.records(1, 3) == "the log of the file source has no entry 2"
    assert [file.path for file in read.unread] == [file.path for file in read.waiting] == ["e.json"]
    assert read.newest == datetime.fromtimestamp(MADE / 1000, UTC)
    assert not (read.twice or read.replaced or read.missing or read.elsewhere or read.gone or read.below)


def test_only_rows_of_the_asked_ranges_are_counted(landing: FileStream) -> None:
    for entry in range(4):
        landing.logged(entry, landing.put(f"{entry}.json", entry + 1))
    read = landing.read((2, 3))
    assert read.records(2, 3) == 3
    assert sorted(read.entries) == [2, 3]
    assert "were not counted" in str(read.records(3, 4))


def test_a_compacted_log_stands_for_the_files_before_it(landing: FileStream) -> None:
    uris = [landing.put(f"{n}.json") for n in range(12)]
    files = [{"path": uri, "timestamp": MADE, "batchId": n} for n, uri in enumerate(uris)]
    landing.log("3", {"path": landing.put("stale.json"), "timestamp": MADE, "batchId": 3})
    landing.log("9.compact", *files[:10])
    landing.log("10", files[10])
    landing.log("11", files[11])
    (landing.state / "sources" / "0" / ".9.compact.crc").write_text("x")
    read = landing.read((0, 12))
    assert (read.last, read.files, read.records(0, 12)) == (11, 12, 12)
    assert not read.missing
    assert [file.path for file in read.unread] == ["stale.json"]


def test_of_a_folder_that_sparks_file_sink_writes_its_log_names_the_files(landing: FileStream) -> None:
    """Files that it does not name are left of an attempt that failed, or somebody else's: no query reads them."""
    landing.written("8", landing.put("compacted since.json"))
    landing.written("9.compact", landing.put("a.json"), landing.put("day=1/b c.json"), landing.put("gone.json"))
    landing.written("10")
    landing.written("11", landing.put("c.json", made=MADE + 5), landing.put("c.csv"))
    landing.written("12", (landing.folder / "day=1").as_uri(), isDir=True)
    for age, name in enumerate(("left.json", "day=1/left.json", "old.json")):
        landing.put(name, made=MADE - age * 30 * 24 * 3600 * 1000)
    (landing.folder / "gone.json").unlink()
    landing.logged(0, (landing.folder / "a.json").as_uri())
    read = landing.read((0, 1), options={"pathglobfilter": "*.json"})
    # The time is the log's. A file that is gone is read next, too, unless ignoreMissingFiles skips it.
    assert [(file.path, round(file.modified.timestamp() * 1000)) for file in read.waiting] == [
        ("c.json", MADE),
        ("day=1/b c.json", MADE),
        ("gone.json", MADE),
    ]
    assert not (read.passed_over or read.unlisted)


def test_a_log_of_sparks_file_sink_without_files(landing: FileStream) -> None:
    landing.put("a.json")
    (landing.folder / "_spark_metadata").mkdir()
    assert not landing.read().unread
    landing.written("0")
    assert not landing.read().unread


@pytest.mark.parametrize("names", [("1",), ("0", "2"), ("2", "4.compact", "6")])
def test_a_log_of_sparks_file_sink_that_lacks_an_entry(landing: FileStream, names: tuple[str, ...]) -> None:
    for name in names:
        landing.written(name, landing.put("a.json"))
    with raises(EvidenceError):
        landing.read()


def test_a_torn_log_of_sparks_file_sink(landing: FileStream) -> None:
    landing.written("0", "file:///a.json", modificationTime="today")
    with raises(EvidenceError):
        landing.read()


def test_entries_that_are_missing(landing: FileStream) -> None:
    for entry in (0, 3):
        landing.logged(entry, landing.put(f"{entry}.json"))
    assert list(landing.read((0, 4)).missing) == [(1, 3)]


def test_ranges_beyond_the_log_take_no_memory(landing: FileStream) -> None:
    landing.logged(0, landing.put("a.json"))
    assert landing.read((0, 2**62)).records(0, 2**62) == "the log of the file source has no entry 1"
    landing.logged(10**17, landing.put("b.json"))
    assert list(landing.read().missing) == [(1, 10**17)]


def test_a_file_twice_and_a_file_that_was_written_again(landing: FileStream) -> None:
    a, b = landing.put("a.json"), landing.put("b.json", made=MADE + 5000)
    landing.logged(0, a, b)
    landing.logged(1, a)
    read = landing.read((0, 2))
    assert [(one.path, one.entry, one.again, one.modified == one.modified_again) for one in read.twice] == [
        ("a.json", 0, 1, True)
    ]
    assert [(one.path, one.entry, one.again) for one in read.replaced] == [("b.json", 0, None)]
    assert read.records(0, 1) == "b.json of log entry 0: the file was written again since"


@pytest.mark.parametrize(
    ("logged", "now", "same"), [(0, 0, True), (1, 0, True), (0, 1, True), (1, 2, False), (1, 1000, False)]
)
def test_times_in_seconds_alone(landing: FileStream, logged: int, now: int, same: bool) -> None:
    """A store that keeps seconds gives 0 ms; where both have milliseconds, they are compared."""
    second = MADE // 1000 * 1000
    landing.logged(0, landing.put("a.json", made=second + now), made=second + logged)
    assert bool(landing.read((0, 1)).replaced) is not same


def test_what_is_gone_or_elsewhere(landing: FileStream) -> None:
    a = landing.put("a.json")
    landing.logged(0, a, "file:///somewhere/else.json")
    (landing.folder / "a.json").unlink()
    read = landing.read((0, 1))
    assert (read.gone, read.elsewhere) == (1, 1)
    assert read.records(0, 1) == "a.json of log entry 0: the file is gone"


def test_where_a_file_is_archived_its_rows_are_counted(landing: FileStream) -> None:
    landing.logged(0, landing.put("a.json", 3))
    archive = landing.path / "archive"
    to = archive / str(landing.folder / "a.json").lstrip("/")
    to.parent.mkdir(parents=True)
    (landing.folder / "a.json").rename(to)
    options = {"cleansource": "archive", "sourcearchivedir": str(archive)}
    assert landing.read((0, 1), options=options).records(0, 1) == 3
    to.unlink()
    assert "cannot be read" in str(landing.read((0, 1), options=options).records(0, 1))


@pytest.mark.parametrize(
    ("name", "options", "listed"),
    [
        ("a.json", {}, True),
        ("_a.json", {}, False),
        (".a.json", {}, False),
        ("_tmp/a.json", {}, False),
        ("a.json._COPYING_", {}, False),
        ("day=1/_hour=2/a.json", {}, True),
        ("sub/a.json", {}, False),
        ("day=1/sub/a.json", {}, False),
        ("sub/a.json", {"recursivefilelookup": "true"}, True),
        ("a.json", {"pathglobfilter": "*.json"}, True),
        ("a.csv", {"pathglobfilter": "*.json"}, False),
        ("a.csv", {"pathglobfilter": "*.{json,csv}"}, True),
        ("b1.csv", {"pathglobfilter": "[^a]?.csv"}, True),
    ],
)
def test_which_files_spark_lists(landing: FileStream, name: str, options: dict[str, str], listed: bool) -> None:
    landing.put(name)
    assert [file.path for file in landing.read(options=options).unread] == ([name] if listed else [])


@pytest.mark.parametrize(
    ("format", "content", "options", "rows"),
    [
        ("json", b'{"a": 1}\n\n  \n{"a": 2}', {}, 2),
        ("json", b'{"a": 1}\r{"a": 2}\r\n', {}, 2),
        ("json", b'[{"a": 1}, {"a": 2}]\n', {}, None),
        ("json", b"null\n", {}, None),
        ("json", b'{"a": "}{"}\n{"a": {"b": [{}, {}]}}\n{broken\n', {}, 3),
        ("json", b'{"a": 1}{"a": 2}\n', {}, None),
        ("json", b'{"a": 1} [1]\n', {}, None),
        ("json", b'{"a": 1}x{"a": 2}\n', {}, None),
        ("json", b"{'a': {'b': 1}}\n{\"a\": [1\n", {}, 2),
        ("json", b'{"a": 1}\n\x0b\n\x00\n', {}, None),
        ("json", b'{"a": 1}\n', {"multiline": "true"}, None),
        ("json", b'{"a": 1}\n', {"mode": "DROPMALFORMED"}, None),
        ("text", b"a\n\nb", {}, 3),
        ("text", b"a\n\nb", {"wholetext": "true"}, None),
        ("csv", b"a,b\n1,2\n\n", {"header": "true"}, 1),
        ("csv", b"a,b\n1,2\n\n", {}, 2),
        ("csv", b"", {"header": "true"}, 0),
        ("csv", b"a,b\n#1,2\n", {"comment": "#"}, None),
        ("avro", b"Obj", {}, None),
        ("parquet", b"PAR", {}, None),
    ],
)
def test_rows_of_a_file(
    landing: FileStream, format: str, content: bytes, options: dict[str, str], rows: int | None
) -> None:
    uri = landing.put("file")
    (landing.folder / "file").write_bytes(content)
    os.utime(landing.folder / "file", ns=(MADE * 1_000_000, MADE * 1_000_000))
    landing.logged(0, uri)
    counted = landing.read((0, 1), format=format, options=options).records(0, 1)
    assert counted == rows or (rows is None and isinstance(counted, str))


def test_endings_of_codecs_in_any_case_and_summaries_of_parquet(landing: FileStream) -> None:
    uri = landing.put("a.json.GZ")
    (landing.folder / "a.json.GZ").write_bytes(gzip.compress(b'{"a": 1}\n' * 300))
    os.utime(landing.folder / "a.json.GZ", ns=(MADE * 1_000_000, MADE * 1_000_000))
    landing.logged(0, uri, landing.put("_metadata"))
    read = landing.read((0, 1))
    assert (read.records(0, 1), read.unlisted) == (300, ())


def test_files_that_recon_yml_does_not_list(landing: FileStream) -> None:
    landing.logged(0, landing.put("sub/a.json"), landing.put("b.csv"))
    assert landing.read((0, 1), options={"pathglobfilter": "*.json"}).unlisted == ("b.csv", "sub/a.json")
    assert landing.read((0, 1), options={"recursivefilelookup": "true"}).unlisted == ()


def test_a_file_that_was_renamed(landing: FileStream) -> None:
    a = landing.put("a.json")
    landing.logged(0, a)
    (landing.folder / "a.json").rename(landing.folder / "b.json")
    landing.logged(1, (landing.folder / "b.json").as_uri())
    assert [(one.before, one.path, one.entry, one.again) for one in landing.read((0, 2)).renamed] == [
        ("a.json", "b.json", 0, 1)
    ]
    assert not landing.read((0, 1)).renamed, "of entries that are not asked about"


def test_the_checksum_is_the_same_as_the_log_grows_and_is_compacted(landing: FileStream) -> None:
    grown, digests = source_files.LogDigest(Storage(str(landing.state))), {}
    files = [{"path": landing.put(f"{n}.json"), "timestamp": MADE + n, "batchId": n} for n in range(13)]
    for n, file in enumerate(files):
        landing.log(str(n), file)
        digests[n + 1] = grown.of([OffsetSpan(TOPIC, QUERY, 0, n, n + 1)])
    assert len({*digests.values(), None}) == 14
    landing.log("9.compact", *files[:10])
    for n in range(10):
        (landing.state / "sources" / "0" / str(n)).unlink()
    read = landing.read(*((n, n + 1) for n in range(13)))
    assert read.digests == digests
    fresh = source_files.LogDigest(Storage(str(landing.state)))
    for end in (13, 4, 10, 11):
        assert fresh.of([OffsetSpan(TOPIC, QUERY, 0, 0, end)]) == digests[end]
    landing.log("11", files[12] | {"batchId": 11})
    assert landing.read((0, 13)).digests[13] != digests[13]
    (landing.state / "sources" / "0" / "11").unlink()
    assert landing.read((0, 13)).digests == {}
    assert fresh.of([OffsetSpan(TOPIC, QUERY, 0, 0, 12)]) is None
    assert fresh.of([OffsetSpan("orders", None, 0, 0, 12)]) is None


@pytest.mark.parametrize(
    "content",
    [
        "",
        "v1\n",
        "v2\n",
        "v1\n{",
        'v1\n{"path": "file:///a"}',
        'v1\n{"path": 1, "timestamp": 1, "batchId": 0}',
        "v1\n[]",
    ],
)
def test_a_log_that_cannot_be_understood(landing: FileStream, content: str) -> None:
    (landing.state / "sources" / "0" / "0").write_text(content)
    with raises(EvidenceError):
        landing.read()


@pytest.mark.parametrize("path", ["file:///landing/a\0.json", "file:///landing/a%00.json", "file://[a.json"])
def test_a_path_that_no_file_has(landing: FileStream, path: str) -> None:
    landing.log("0", {"path": path, "timestamp": MADE, "batchId": 0})
    with pytest.raises(EvidenceError, match="a line names no file"):
        landing.read((0, 1))


def test_an_entry_in_the_file_of_another(landing: FileStream) -> None:
    landing.logged(1, landing.put("a.json"), name="0")
    with raises(EvidenceError):
        landing.read()


def test_positions_in_the_checkpoint(landing: FileStream) -> None:
    metadata = '{"batchWatermarkMs":0,"batchTimestampMs":1764000000000}'
    for batch, number in enumerate((0, 0, 4)):
        (landing.state / "offsets" / str(batch)).write_text(f'v1\n{metadata}\n{{"logOffset":{number}}}')
    batches = checkpoint.read(Storage(str(landing.state)), positions=True).batches
    assert [batch.ranges for batch in batches] == [
        (OffsetSpan(TOPIC, QUERY, 0, 0, 1),),
        (OffsetSpan(TOPIC, QUERY, 0, 1, 1),),
        (OffsetSpan(TOPIC, QUERY, 0, 1, 5),),
    ]
    assert checkpoint.planned_ends(Storage(str(landing.state)), 2, positions=True) == [(0, TOPIC, 0, 5)]
    # Without positions it is a source that recon does not know.
    assert not any(batch.ranges for batch in checkpoint.read(Storage(str(landing.state))).batches)


def test_the_folder_and_format_that_a_log_names(landing: FileStream) -> None:
    landing.logged(0, landing.put("day=1/a.json.gz"), landing.put("day=2/hour=3/b.json.gz"))
    assert source_files.found(Storage(str(landing.state)), 0) == (str(landing.folder), "json")
    landing.logged(1, "s3a://bucket/a.json")
    with raises(EvidenceError):
        source_files.found(Storage(str(landing.state)), 0)
