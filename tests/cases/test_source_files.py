"""Streams that read files of a folder, by recon's hook and by Spark's own sink, held against the log of files."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from recon.audits.accept import accept, open_findings
from recon.model import Code, FileFormat
from recon.project import load
from recon.write.sinks.failpoints import BEFORE_LEDGER
from tests.cases.lake import statuses
from tests.cases.landing import Landing
from tests.cases.test_source_table import answer, codes
from tests.support.failpoints import dies_at
from tests.support.marks import long
from tests.support.processes import recon

pytestmark = pytest.mark.spark
DAY = timedelta(days=1)

written_by_both = pytest.mark.parametrize("landing", ["recon", "native"], indirect=True)


@pytest.fixture(params=("recon", *long("native")))
def landing(request: pytest.FixtureRequest, spark: Any, tmp_path: Path) -> Landing:
    return Landing(tmp_path, spark, write=request.param, rows={"filters": False})


@pytest.fixture
def hooked(spark: Any, tmp_path: Path) -> Landing:
    return Landing(tmp_path, spark, rows={"filters": False})


@written_by_both
def test_every_file_once(landing: Landing) -> None:
    """Five log entries, of which every third one compacts the log; Spark's default is every tenth."""
    every = "spark.sql.streaming.fileSource.log.compactInterval"
    landing.spark.conf.set(every, "3")
    try:
        landing.put("a b%20c.json", 3)
        landing.run()
        for n in range(4):
            landing.put(f"f{n}.json", 2, first=10 * n)
        landing = landing.with_(options={"maxFilesPerTrigger": "1"})
        landing.run()
    finally:
        landing.spark.conf.unset(every)
    assert (landing.checkpoint / "sources" / "0" / "2.compact").exists()
    run = landing.audit()
    assert set(statuses(run).values()) == {"pass"}
    assert answer(run) == "complete", run.pipelines[0].because
    assert run.pipelines[0].because.startswith("Every file of micro-batch 0 (file source of query ")
    assert landing.ranges() == [(n, n + 1) for n in range(5)]
    evidence = next(r.evidence for r in run.results if r.check == "source_files")
    assert (evidence["log_entries"], evidence["files"], evidence["waiting"], evidence["gone"]) == (5, 5, 0, 0)


@pytest.mark.parametrize(
    ("format", "options", "name"),
    [
        ("parquet", {}, "part-0.parquet"),
        ("csv", {"header": "true"}, "rows.csv"),
        *long(("orc", {}, "part-0.orc"), ("text", {}, "lines.txt"), ("json", {}, "rows.json.gz")),
    ],
)
def test_rows_of_each_format_are_counted(
    hooked: Landing, format: FileFormat, options: dict[str, str], name: str
) -> None:
    landing = hooked.with_(format=format, options=options)
    landing.put(name, 7)
    landing.put(f"empty-{name}", 0)
    landing.run()
    run = landing.audit()
    assert answer(run) == "complete", run.pipelines[0].because
    assert [entry.rows_read for entry in landing.entries()] == [7]


@pytest.mark.long
def test_lines_that_are_no_rows(hooked: Landing) -> None:
    r"""Spark leaves blank lines of JSON and CSV out, ends lines at \r, too, and makes several rows of an array."""
    hooked.folder.mkdir()
    (hooked.folder / "blank.json").write_bytes(b'\n{"id": 1}\r{"id": 2}\r\n  \n{"id": 3}')
    hooked.run()
    run = hooked.audit()
    assert answer(run) == "complete", run.pipelines[0].because
    assert [entry.rows_read for entry in hooked.entries()] == [3]
    (hooked.folder / "array.json").write_bytes(b'[{"id": 4}, {"id": 5}]\n')
    hooked.run()
    run = hooked.audit()
    assert answer(run) == "could not be proved"
    assert "array.json of log entry 1: a line of it is not one JSON object" in run.pipelines[0].because
    text = hooked.with_(path=hooked.path / "csv", format="csv", options={"header": "true"})
    text.folder.mkdir(parents=True)
    (text.folder / "blank.csv").write_bytes(b"\n\nid,name\n1,a\n   \n2,b\n\n")
    text.run()
    run = text.audit()
    assert answer(run) == "complete", run.pipelines[0].because


def test_what_waits_is_lag_and_its_age_is_judged(landing: Landing) -> None:
    landing.put("a.json", 3)
    landing.run()
    landing.put("b.json", 4)
    landing.put("date=2026-11-26/c.json", 1)
    landing.put("elsewhere/d.json", 1)
    landing.put("_hidden.json", 1)
    run = landing.audit()
    assert codes(run, "source_files") == [Code.INFLIGHT]
    assert answer(run) == "complete"
    evidence = next(r.evidence for r in run.results if r.check == "source_files")
    assert (evidence["waiting"], evidence["subfolders"]) == (2, 1)


@pytest.mark.long
def test_a_file_that_is_too_old_is_passed_over(landing: Landing) -> None:
    """Spark reads no file that is older than the newest by more than maxFileAge, and says nothing."""
    landing.put("a.json", 3)
    landing.run()
    landing.put("late.json", 4, age=8 * DAY)
    landing.put("b.json", 1)
    landing.run()
    run = landing.audit()
    assert codes(run, "source_files") == [Code.GAP]
    assert answer(run) == "not complete"
    assert "late.json" in run.pipelines[0].because
    assert "older than the newest file that was read by more than 7d (maxFileAge)" in run.pipelines[0].because
    assert sum(entry.rows_read or entry.rows_written or 0 for entry in landing.entries()) == 4
    # With an age that allows it, the file is read after all; somebody has to say that this is what was missing.
    landing = landing.with_(options={"maxFileAge": "30d"})
    landing.run()
    run = landing.audit()
    assert codes(run, "source_files") == [Code.GAP]
    (finding,) = open_findings(landing.project)
    accept(landing.project, finding.id, reason="read since", by="Ada Lovelace")
    run = landing.audit()
    assert answer(run) == "complete", run.pipelines[0].because


def test_a_file_that_is_written_again(landing: Landing) -> None:
    landing.put("a.json", 3, age=2 * DAY)
    landing.run()
    assert answer(landing.audit()) == "complete"
    landing.put("a.json", 5)
    landing.put("b.json", 1)
    landing.run()
    run = landing.audit()
    assert codes(run, "source_files") == [Code.INCONCLUSIVE]
    assert answer(run) == "could not be proved"
    assert "a.json was written again at" in run.pipelines[0].because


@written_by_both
def test_a_folder_that_sparks_file_sink_writes(landing: Landing) -> None:
    """Its log names what Spark reads: no file of an attempt that failed, nor one that somebody put beside them."""
    raw = Landing(landing.path / "raw", landing.spark)
    every = "spark.sql.streaming.fileSink.log.compactInterval"

    def write(name: str, first: int) -> None:
        raw.put(name, 2, first=first)
        sink = (
            raw.read().writeStream.format("json").partitionBy("name").option("checkpointLocation", str(raw.checkpoint))
        )
        assert sink.trigger(availableNow=True).start(str(landing.folder)).awaitTermination(180)

    landing.spark.conf.set(every, "2")
    try:
        write("a.json", 0)
        landing.run()
        (written,) = (landing.folder / "name=n0").glob("*.json")
        shutil.copy(written, written.with_name("left-behind.json"))
        landing.put("old.json", 3, age=9 * DAY)
        write("b.json", 10)
        landing.run()
        write("c.json", 20)
    finally:
        landing.spark.conf.unset(every)
    assert (landing.folder / "_spark_metadata" / "1.compact").exists()
    run = landing.audit()
    assert codes(run, "source_files") == [Code.INFLIGHT]
    assert next(r.evidence for r in run.results if r.check == "source_files")["waiting"] == 2
    landing.run()
    run = landing.audit()
    assert set(statuses(run).values()) == {"pass"}
    assert codes(run, "source_files") == []
    assert answer(run) == "complete", run.pipelines[0].because
    assert landing.spark.read.format("delta").load(str(landing.silver)).count() == 6


@pytest.mark.long
def test_names_that_were_read_before(hooked: Landing) -> None:
    landing = hooked.with_(options={"fileNameOnly": "true", "recursiveFileLookup": "true"})
    landing.put("one/a.json", 3)
    landing.run()
    landing.put("two/a.json", 4)
    landing.put("two/b.json", 1)
    landing.run()
    run = landing.audit()
    assert codes(run, "source_files") == [Code.GAP]
    assert "two/a.json" in run.pipelines[0].because
    assert "fileNameOnly" in run.pipelines[0].because


def drops(frame: DataFrame) -> DataFrame:
    return frame.where(F.col("id") > 0)


@written_by_both
def test_rows_that_do_not_arrive(landing: Landing) -> None:
    landing.put("a.json", 5)
    if landing.write == "native":
        landing.run(transform=drops)
    else:
        landing.run(hook=landing.hook(transform=drops))
    run = landing.audit()
    assert codes(run, "source_rows") == [Code.GAP]
    assert answer(run) == "not complete"
    assert "the files of log entry 0" in run.pipelines[0].because


def test_a_file_that_vanished_before_it_was_read(hooked: Landing) -> None:
    """ignoreMissingFiles: the file is in the log, and none of its rows anywhere."""
    landing = hooked.with_(options={"ignoreMissingFiles": "true", "maxFilesPerTrigger": "1"})
    landing.put("a.json", 3)
    hook = landing.hook()

    def too_late(frame: DataFrame, batch_id: int) -> None:
        if batch_id == 0:
            (landing.folder / "a.json").unlink()
        hook(frame, batch_id)

    landing.run(hook=too_late)
    run = landing.audit()
    assert answer(run) == "could not be proved"
    assert "a.json of log entry 0: the file is gone" in run.pipelines[0].because


@pytest.mark.long
def test_files_that_are_archived(hooked: Landing, tmp_path: Path) -> None:
    """cleanSource moves what was read; its rows are counted where it is now."""
    archive = tmp_path / "archive"
    landing = hooked.with_(options={"cleanSource": "archive", "sourceArchiveDir": str(archive)})
    for n in range(3):
        landing.put(f"{n}.json", 3)
        landing.run()
    assert list(archive.rglob("*.json"))
    run = landing.audit()
    assert answer(run) == "complete", run.pipelines[0].because
    evidence = next(r.evidence for r in run.results if r.check == "source_files")
    assert evidence["gone"] == len(list(archive.rglob("*.json")))


@written_by_both
def test_a_fresh_checkpoint_reads_every_file_again(landing: Landing) -> None:
    landing.put("a.json", 3, age=DAY)
    landing.run()
    assert answer(landing.audit()) == "complete"
    shutil.rmtree(landing.checkpoint)
    landing.put("b.json", 1)
    if landing.write == "recon":
        with pytest.raises(StreamingQueryException, match="reads every file in the folder again"):
            landing.run()
        shutil.rmtree(landing.checkpoint)
        landing = landing.with_(sink={"on_new_epoch": "warn"})
    landing.run()
    run = landing.audit()
    assert Code.INCONCLUSIVE in codes(run, "source_files")
    assert answer(run) != "complete"


@pytest.mark.long
def test_the_log_is_an_older_copy_or_lacks_entries(hooked: Landing) -> None:
    for n in range(3):
        hooked.put(f"{n}.json", 2)
        hooked.run()
    log = hooked.checkpoint / "sources" / "0"
    copy = hooked.path / "copy"
    shutil.copytree(log, copy)
    (log / "2").unlink()
    run = hooked.audit()
    assert Code.MUTATED in codes(run, "source_files")
    shutil.copy(copy / "2", log / "2")
    (log / "1").unlink()
    run = hooked.audit()
    assert Code.INCONCLUSIVE in codes(run, "source_files")
    shutil.copy(copy / "1", log / "1")
    text = (log / "2").read_text().replace("2.json", "1.json")
    (log / "2").write_text(text)
    run = hooked.audit()
    assert {Code.DUPLICATE, Code.INCONCLUSIVE} & set(codes(run, "source_files"))
    (log / "2").write_text("v1\nnot json")
    run = hooked.audit()
    assert answer(run) != "complete"
    assert run.results


def test_an_older_checkpoint_that_goes_on_with_other_files(landing: Landing) -> None:
    """As many rows as before, so that no count shows it: the checksum of the log does."""
    landing.put("a.json", 2, age=2 * DAY)
    landing.run()
    older = landing.path / "older"
    shutil.copytree(landing.checkpoint, older)
    landing.put("b.json", 2, first=5)
    landing.run()
    assert answer(landing.audit()) == "complete"
    shutil.rmtree(landing.checkpoint)
    older.rename(landing.checkpoint)
    (landing.folder / "b.json").unlink()
    landing.put("c.json", 2, first=50)
    if landing.write == "recon":
        with pytest.raises(StreamingQueryException, match="its log of files has other files than were read then"):
            landing.run()
    else:
        landing.run()  # Delta takes it for a replay and drops it
    run = landing.audit()
    assert Code.MUTATED in codes(run, "source_files")
    assert answer(run) == "not complete"


@pytest.mark.long
def test_an_older_checkpoint_after_a_crash_before_the_entry(hooked: Landing) -> None:
    """The entry is restored from the stamp of the commit, which has the checksum, too."""
    hooked.put("a.json", 2, age=2 * DAY)
    hooked.run()
    older = hooked.path / "older"
    shutil.copytree(hooked.checkpoint, older)
    hooked.put("b.json", 2, first=5)
    with pytest.raises(StreamingQueryException, match="died at before_ledger"):
        hooked.run(failpoint=dies_at(BEFORE_LEDGER))
    shutil.rmtree(hooked.checkpoint)
    older.rename(hooked.checkpoint)
    (hooked.folder / "b.json").unlink()
    hooked.put("c.json", 2, first=50)
    with pytest.raises(StreamingQueryException, match="its log of files has other files than were read then"):
        hooked.run()
    assert [entry.status for entry in hooked.entries()] == ["committed", "rebuilt"]
    run = hooked.audit()
    assert Code.MUTATED in codes(run, "source_files")
    assert answer(run) == "not complete"


@pytest.mark.long
def test_witnesses_that_are_not_there(hooked: Landing) -> None:
    hooked.put("a.json", 2)
    hooked.run()
    hooked.checkpoint.rename(hooked.path / "elsewhere")
    run = hooked.audit()
    assert answer(run) == "could not be proved"
    assert any("the log of what the query reads could not be read" in note for note in run.notes), run.notes
    (hooked.path / "elsewhere").rename(hooked.checkpoint)
    hooked.folder.rename(hooked.path / "away")
    run = hooked.audit()
    assert answer(run) == "could not be proved"
    assert "there is no folder at" in next(r.message for r in run.results if r.check == "source_files")


@pytest.mark.long
def test_a_file_that_was_renamed(landing: Landing) -> None:
    landing.put("a.json", 2)
    landing.run()
    assert answer(landing.audit()) == "complete"
    (landing.folder / "a.json").rename(landing.folder / "b.json")
    landing.run()
    run = landing.audit()
    assert codes(run, "source_files") == [Code.INCONCLUSIVE]
    assert "b.json, read in log entry 1, has exactly the modification time of a.json" in run.pipelines[0].because


@pytest.mark.long
def test_a_parent_of_the_folder_that_the_query_reads(hooked: Landing) -> None:
    hooked.put("a.json", 2)
    hooked.run()
    hooked.put("late.json", 1, age=10 * DAY)
    run = hooked.audit_as(".")
    assert answer(run) == "could not be proved"
    assert "the query read landing/a.json in" in run.pipelines[0].because


@pytest.mark.long
def test_a_folder_that_is_reached_by_links(hooked: Landing) -> None:
    real, other = hooked.path / "real", hooked.path / "other"
    real.mkdir()
    other.mkdir()
    hooked.folder.symlink_to(real)
    (real / "day=1").symlink_to(other)
    hooked.put("day=1/a.json", 2)
    hooked.run()
    for folder in ("landing", "real", "./other/../landing"):
        run = hooked.audit_as(folder)
        assert answer(run) == "complete", (folder, run.pipelines[0].because)


@pytest.mark.long
def test_another_folder_than_the_query_reads(hooked: Landing, tmp_path: Path) -> None:
    hooked.put("a.json", 3)
    hooked.run()
    hooked.folder.rename(tmp_path / "other")
    hooked.folder.mkdir()
    run = hooked.audit()
    assert answer(run) == "could not be proved"
    (tmp_path / "other").rename(hooked.folder / "below")
    assert answer(hooked.audit()) == "could not be proved"


def test_init_from_its_checkpoint(spark: Any, tmp_path: Path) -> None:
    landing = Landing(tmp_path, spark, write="native")
    landing.put("day=1/a.json", 3)
    landing.put("day=2/b.json", 4)
    landing.run()
    ended = recon("init", "--from", "checkpoint", cwd=tmp_path)
    assert ended.returncode == 0, ended
    source = load(tmp_path).pipelines[0].source
    assert (source.files, source.format) == ("landing", "json")
    assert load(tmp_path).pipelines[0].rows.filters is False
    ended = recon("audit", "--require-complete", "--no-spark", cwd=tmp_path)
    assert ended.returncode == 0 and "complete. Every file of micro-batch 0" in ended.stdout, ended
    explained = recon("explain", "--pipeline", "silver", cwd=tmp_path)
    assert explained.returncode == 0 and "file source of query" in explained.stdout, explained
    assert "2 files read of" in recon("debug", cwd=tmp_path).stdout


@pytest.mark.long
def test_a_replay_after_a_crash_writes_once(hooked: Landing) -> None:
    hooked.put("a.json", 3)
    hook = hooked.hook()

    def crashes(frame: DataFrame, batch_id: int) -> None:
        hook(frame, batch_id)
        raise RuntimeError("after the ledger")

    with pytest.raises(StreamingQueryException, match="after the ledger"):
        hooked.run(hook=crashes)
    hooked.put("b.json", 2)
    hooked.run()
    assert [entry.status for entry in hooked.entries()] == ["committed", "already_committed", "committed"]
    assert hooked.spark.read.format("delta").load(str(hooked.silver)).count() == 5
    assert answer(hooked.audit()) == "complete"


@pytest.mark.long
def test_files_that_are_gone_later(landing: Landing, audits_later: Callable[[timedelta], None]) -> None:
    """What an earlier audit proved stays proved."""
    landing.put("a.json", 3)
    landing.run()
    assert answer(landing.audit()) == "complete"
    (landing.folder / "a.json").unlink()
    landing.put("b.json", 2)
    landing.run()
    audits_later(DAY)
    run = landing.audit()
    assert answer(run) == "complete", run.pipelines[0].because
