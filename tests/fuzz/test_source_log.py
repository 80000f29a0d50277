"""Damaged files of the log of a file source: never a traceback, and never in order where something was lost."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from recon.base.errors import ReconError
from recon.checks.evidence.source_files import SourceFilesRead
from recon.checks.evidence.source_rows import SourceRows
from recon.model import SourceFiles
from recon.testing.evidence import Entry, ledger, witnesses
from tests.fuzz.mutations import damaged
from tests.fuzz.test_witness_files import CHUNK, MUTATIONS
from tests.support.file_stream import MADE, QUERY, TOPIC, FileStream

ENTRIES = 13  # the log is compacted with the tenth
WEEK = 7 * 24 * 3600 * 1000


def made(folder: Path, *, lost: bool) -> FileStream:
    """A log of thirteen entries; in the lossy world a file that Spark passed over lies in the folder."""
    folder.mkdir()
    stream = FileStream(folder)
    uris = [stream.put(f"{n}.json", n + 1) for n in range(ENTRIES)]
    files = [{"path": uri, "timestamp": MADE, "batchId": n} for n, uri in enumerate(uris)]
    stream.log("9.compact", *files[:10])
    for n in range(10, ENTRIES):
        stream.log(str(n), files[n])
    if lost:
        stream.put("late.json", made=MADE - 2 * WEEK)
    return stream


def is_in_order(source: SourceFiles) -> bool:
    entries = [
        Entry(n, (0, 0), query_id=QUERY, rows_read=n + 1, rows_written=n + 1, rows_filtered=0) for n in range(ENTRIES)
    ]
    for n, entry in enumerate(entries):
        entry.ranges = (entry.ranges[0]._replace(topic=TOPIC, topic_id=QUERY, start_offset=n, end_offset=n + 1),)
    seen = witnesses(ledger(*entries), source_log=source)
    verdicts = [check.judge(seen) for check in (SourceFilesRead(), SourceRows())]
    return all(verdict.unproved is None and not verdict.failures for verdict in verdicts)


def test_undamaged(tmp_path: Path) -> None:
    assert is_in_order(made(tmp_path / "whole", lost=False).read((0, ENTRIES)))
    assert not is_in_order(made(tmp_path / "lossy", lost=True).read((0, ENTRIES)))


@pytest.mark.parametrize("first", range(0, MUTATIONS, CHUNK))
def test_damaged(first: int, tmp_path: Path) -> None:
    streams = [made(tmp_path / str(lost), lost=bool(lost)) for lost in (False, True)]
    whole = [stream.read((0, ENTRIES)).entries for stream in streams]
    for seed in range(first, first + CHUNK):
        random, lost = Random(seed), seed % 2
        stream = streams[lost]
        file = random.choice(sorted((stream.state / "sources" / "0").iterdir()))
        content = file.read_bytes()
        new = damaged(content, random)
        story = f"seed {seed}: {file.name}\n{content!r}\n{new!r}"
        file.write_bytes(new)
        try:
            read = stream.read((0, ENTRIES))
        except ReconError as error:
            assert "\n" not in str(error), story
            continue
        except Exception as error:
            raise AssertionError(story) from error
        finally:
            file.write_bytes(content)
        assert not is_in_order(read) or (not lost and read.entries == whole[lost]), story
