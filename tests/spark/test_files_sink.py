"""Files by micro-batch: what is finished is read, what is half written is not, and a replay leaves one copy."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col

from recon import batch_files, read_batches
from recon.base.errors import EvidenceError, SinkError
from recon.base.storage import Storage
from recon.model import ReconStamp, offsets_text
from recon.model.offsets import OffsetSpan
from recon.model.wire.manifests import DataFile, Manifest, dump_manifest, manifest_path
from recon.witness import manifests
from recon.write.sinks.files.append import FileAppend
from recon.write.sinks.files.replace import FileReplace, merge
from tests.support.messages import raises

pytestmark = pytest.mark.usefixtures("interpreted")


class Stop(Exception):
    """Where the process would be killed."""


def stamp(batch_id: int, start: int, end: int, epoch: int = 0, **fields: Any) -> ReconStamp:
    made = {
        "pipeline": "p",
        "sink": "s",
        "epoch": epoch,
        "batch_id": batch_id,
        "query_id": "q",
        "run_id": None,
        "prev_hash": "",
        "offsets_text": offsets_text([OffsetSpan("t", None, 0, start, end)]),
        "number": 1000 * epoch + batch_id + 1,
    }
    return ReconStamp(**{**made, **fields})


def frame(spark: SparkSession, batch_id: int, start: int, end: int) -> DataFrame:
    return spark.range(start, end, numPartitions=2).selectExpr(
        "id AS n",
        "CONCAT('v', id, ',\"x\"\\n') AS v",
        "IF(id % 2 = 0, 'a b', NULL) AS kind",
        f"CAST({batch_id} AS LONG) AS _batch_id",
        "'t' AS _source_topic",
        "0 AS _source_partition",
        "id AS _source_offset",
    )


def numbers(rows: DataFrame) -> list[tuple[int, int]]:
    return sorted((row["_batch_id"], row["n"]) for row in rows.select("_batch_id", "n").collect())


def expected(*batches: tuple[int, int, int]) -> list[tuple[int, int]]:
    return [(batch_id, n) for batch_id, start, end in batches for n in range(start, end)]


@pytest.mark.parametrize("kind", ["parquet", "json", "csv"])
def test_what_is_written_is_read_back(spark: SparkSession, lake: Path, kind: str) -> None:
    target = str(lake / "files")
    options = {"header": "true", "multiLine": "true"} if kind == "csv" else {}
    sink = FileReplace(target, kind, partition_by=("kind",), options=options)
    for batch_id, start, end in ((0, 0, 5), (1, 5, 9)):
        mark = stamp(batch_id, start, end)
        sink.write(frame(spark, batch_id, start, end), mark)
        landed = sink.confirm(mark)
        assert (landed.version, landed.rows, landed.given) == (None, end - start, None)
        assert sink.landed(mark, None) == landed
    more = {"multiLine": "true"} if kind == "csv" else {}
    read = read_batches(spark, target, options=more)
    assert numbers(read) == expected((0, 0, 5), (1, 5, 9))
    given = frame(spark, 0, 0, 5)
    assert dict(read.dtypes) == {**dict(given.dtypes), "_recon_epoch": "int"}
    assert read.columns == ["n", "v", "kind", "_source_topic", "_source_partition", "_source_offset", "_batch_id",
                            "_recon_epoch"]  # fmt: skip
    if kind != "csv":  # multiLine is the reader's
        row = sink.table(spark).filter("n = 4").first()
        assert (row["v"], row["kind"]) == ('v4,"x"\n', "a b")
        assert numbers(sink.rows_of(spark, landed, stamp(1, 5, 9))) == expected((1, 5, 9))
    assert numbers(read_batches(spark, target, batches=[1], options=more)) == expected((1, 5, 9))
    log = sink.log()
    assert [(c.stamp.batch_id, c.rows, c.version) for c in log.commits] == [(0, 5, None), (1, 4, None)]
    assert log.recorded and log.exists and log.commits[0].stamp == stamp(0, 0, 5)
    files = batch_files(target, batches=[0])
    assert files and all(
        Path(file).is_file() and "/_recon_epoch=0/_batch_id=0/_recon_attempt=" in file for file in files
    )
    # Spark alone finds the same folders, as columns.
    plain = spark.read.format(kind).options(**options).load(target)
    assert {"_recon_epoch", "_batch_id", "kind"} <= set(plain.columns)


def test_half_written_folders_are_not_read_and_a_replay_leaves_one_copy(spark: SparkSession, lake: Path) -> None:
    """Killed at each seam, then written again."""
    target = str(lake / "files")
    done = FileReplace(target, "parquet")
    done.write(frame(spark, 0, 0, 5), stamp(0, 0, 5))
    for seam in ("files_written", "manifest_written"):
        sink = FileReplace(target, "parquet", partition_by=())
        batch = 1 if seam == "files_written" else 2
        start = 5 * batch

        def stop(point: str, _: ReconStamp, seam: str = seam) -> None:
            if point == seam:
                raise Stop

        sink.failpoint = stop
        with pytest.raises(Stop):
            sink.write(frame(spark, batch, start, start + 5), stamp(batch, start, start + 5))
        folder = lake / "files" / "_recon_epoch=0" / f"_batch_id={batch}"
        assert list(folder.rglob("*.parquet"))
        seen = expected(*((b, 5 * b, 5 * b + 5) for b in range(batch + (seam == "manifest_written"))))
        assert numbers(read_batches(spark, target)) == seen
        left = set(folder.rglob("*.parquet"))
        again = FileReplace(target, "parquet")
        again.write(frame(spark, batch, start, start + 5), stamp(batch, start, start + 5))
        assert again.confirm(stamp(batch, start, start + 5)).rows == 5
        assert numbers(read_batches(spark, target)) == expected(*((b, 5 * b, 5 * b + 5) for b in range(batch + 1)))
        # Without a manifest it is written anew, and what was left is removed; with one nothing is touched.
        there = set(folder.rglob("*.parquet"))
        assert there == left if seam == "manifest_written" else there and not there & left
    # What a dead writer's late task leaves beside is not named by the manifest.
    stray = next((lake / "files" / "_recon_epoch=0" / "_batch_id=0").rglob("*.parquet"))
    shutil.copy(stray, stray.with_name("part-99999-late.snappy.parquet"))
    assert read_batches(spark, target).count() == 15 and spark.read.parquet(target).count() > 15


def test_a_number_is_taken_once(spark: SparkSession, lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The orders of moves that `tests/model` has, at the sink itself."""
    target = str(lake / "files")
    first, second = FileReplace(target, "parquet"), FileReplace(target, "parquet")
    first.write(frame(spark, 0, 0, 5), stamp(0, 0, 5))
    # Another driver, which has read the same entries: other records, other epoch, the same number.
    with raises(SinkError):
        second.write(frame(spark, 0, 5, 9), stamp(0, 5, 9, epoch=1, query_id="other", number=1))
    assert numbers(read_batches(spark, target)) == expected((0, 0, 5))

    # A driver dies between the file of the number and the manifest: the next start completes it.
    def dies(self: FileReplace, name: str, _: bytes) -> None:
        if "/layouts/" not in name:
            raise Stop(name)

    with monkeypatch.context() as patch:
        patch.setattr(FileReplace, "_put", dies)
        with pytest.raises(Stop):
            FileReplace(target, "parquet").write(frame(spark, 1, 5, 9), stamp(1, 5, 9))
    assert numbers(read_batches(spark, target)) == expected((0, 0, 5))
    assert second.newest_number("p", "s") == 2
    assert numbers(read_batches(spark, target)) == expected((0, 0, 5), (1, 5, 9))
    assert [c.stamp.number for c in second.log().commits] == [1, 2]

    # One that slept through many writes: the file of its number was removed, and it is refused all the same.
    for number in range(3, 15):
        second.storage.create(f"_recon_manifests/writes/{number}.json", b"{}")
    second.write(frame(spark, 2, 9, 10), stamp(2, 9, 10, number=15))
    assert manifests.numbers(second.storage) == list(range(6, 16))
    with raises(SinkError):
        first.write(frame(spark, 3, 10, 12), stamp(3, 10, 12, number=4))
    assert manifests.numbers(second.storage) == list(range(6, 16))
    assert numbers(read_batches(spark, target)) == expected((0, 0, 5), (1, 5, 9), (2, 9, 10))


def test_epochs_schemas_and_other_writers(spark: SparkSession, lake: Path) -> None:
    target = str(lake / "files")
    sink = FileReplace(target, "parquet")
    sink.write(frame(spark, 0, 0, 5), stamp(0, 0, 5))
    # Batch ids start over in a new epoch, and a column was added.
    sink.write(frame(spark, 0, 5, 8).selectExpr("*", "1.5D AS more"), stamp(0, 5, 8, epoch=1))
    rows = read_batches(spark, target)
    assert sorted((r["_recon_epoch"], r["_batch_id"], r["n"], r["more"]) for r in rows.collect()) == [
        *((0, 0, n, None) for n in range(5)),
        *((1, 0, n, 1.5) for n in range(5, 8)),
    ]
    # An empty micro-batch has a manifest, too.
    sink.write(frame(spark, 1, 0, 0), stamp(1, 8, 8, epoch=1))
    assert sink.confirm(stamp(1, 8, 8, epoch=1)).rows == 0
    # The same number with other offsets, and another pipeline, are refused before a file is touched.
    before = {file: file.stat().st_mtime_ns for file in (lake / "files").rglob("*.parquet")}
    with raises(SinkError):
        FileReplace(target, "parquet").write(frame(spark, 0, 0, 9), stamp(0, 0, 9, query_id="other"))
    with raises(SinkError):
        FileReplace(target, "parquet").write(frame(spark, 0, 0, 5), stamp(0, 0, 5, pipeline="p2"))
    assert {file: file.stat().st_mtime_ns for file in (lake / "files").rglob("*.parquet")} == before
    # The broker that was not asked the first time changes nothing.
    known = offsets_text([OffsetSpan("t", "id-1", 0, 0, 5)])
    assert sink.landed(stamp(0, 0, 5, offsets_text=known), None) is not None
    # A file that is gone: told by confirm, and the replay writes the micro-batch again.
    victim = min((lake / "files" / "_recon_epoch=0" / "_batch_id=0").rglob("*.parquet"))
    victim.unlink()
    with raises(SinkError) as told:
        sink.confirm(stamp(0, 0, 5))
    assert victim.name in str(told.value)
    assert sink.landed(stamp(0, 0, 5), None) is None
    newest = sink.newest_number("p", "s")
    assert newest == 1002
    sink.write(frame(spark, 0, 0, 5), stamp(0, 0, 5, number=newest + 1))
    assert sink.confirm(stamp(0, 0, 5)).rows == 5 and read_batches(spark, target).count() == 8
    # A column that changes its type cannot be read together, and its own micro-batches can.
    sink.write(frame(spark, 2, 8, 9).withColumn("n", col("n").cast("string")), stamp(2, 8, 9, epoch=1, number=1004))
    with raises(EvidenceError):
        read_batches(spark, target)
    assert read_batches(spark, target, batches=[2]).count() == 1
    with raises(SinkError):
        sink.write(frame(spark, 3, 9, 9).selectExpr("*", "1 AS _recon_epoch"), stamp(3, 9, 9, epoch=1))
    with raises(EvidenceError):
        read_batches(spark, str(lake / "nowhere"))


def test_append_doubles_and_says_so(spark: SparkSession, lake: Path) -> None:
    sink = FileAppend(str(lake / "files"), "json")
    mark = stamp(0, 0, 5)
    sink.write(frame(spark, 0, 0, 5), mark)
    assert sink.confirm(mark).rows == 5
    FileAppend(str(lake / "files"), "json").write(frame(spark, 0, 0, 5), mark)  # a replay after a crash
    assert sink.table(spark).count() == 10 and sink.rows_of(spark, sink.confirm(mark), mark).count() == 10
    log = sink.log()
    assert (log.recorded, log.commits) == (False, ())
    with raises(EvidenceError):
        FileAppend(str(lake / "nothing"), "json").table(spark)


# -- manifests alone, without Spark ----------------------------------------------------------------------------


def test_a_year_of_manifests_is_not_read(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = Storage(str(lake / "files"))
    start = datetime(2026, 1, 1, tzinfo=UTC)

    def put(batch_id: int, epoch: int = 0) -> None:
        made = Manifest(
            stamp=stamp(batch_id, batch_id, batch_id + 1, epoch),
            attempt="a1",
            at=start + timedelta(hours=batch_id + 100 * epoch),
            rows=1,
            layout="x",
            files=(DataFile(path="part-0.parquet", size=1, rows=1),),
        )
        target.write(manifest_path(epoch, batch_id), dump_manifest(made).encode())

    monkeypatch.setattr("recon.model.wire.manifests.PER_GROUP", 10)
    for batch_id in range(35):
        put(batch_id)
    whole = manifests.read(target)
    assert [m.stamp.batch_id for m in whole] == list(range(35))
    assert merge(target, keep=(0, 3)) == 3
    assert sorted(p.name for p in (lake / "files" / "_recon_manifests" / "0").iterdir()) == [
        "0.jsonl.gz", "1.jsonl.gz", "2.jsonl.gz", "3",
    ]  # fmt: skip
    assert manifests.read(target) == whole and merge(target, keep=(0, 3)) == 0
    assert manifests.find(target, 0, 12) == whole[12] and manifests.find(target, 0, 40) is None
    # A single manifest that came after the merge is the newer one.
    put(12)
    assert merge(target, keep=(0, 3)) == 1 and [m.stamp.batch_id for m in manifests.read(target)] == list(range(35))
    put(0, epoch=1)

    read: list[str] = []
    real = Storage.read
    monkeypatch.setattr(Storage, "read", lambda self, name: (read.append(name), real(self, name))[1])
    since = start + timedelta(hours=28)
    assert [(m.stamp.epoch, m.stamp.batch_id) for m in manifests.read(target, since=since)] == [
        *((0, n) for n in range(28, 35)), (1, 0),
    ]  # fmt: skip
    assert not any("/0/0.jsonl" in name for name in read)  # the oldest ones were not opened
    assert len(manifests.log(target, since).commits) == 8
    assert [m.stamp.batch_id for m in manifests.read(target, batches=[3, 33])] == [3, 33]


def test_a_torn_manifest_is_told(lake: Path) -> None:
    target = Storage(str(lake / "files"))
    target.write(manifest_path(0, 0), json.dumps({"recon_manifest": 2}).encode())
    with raises(EvidenceError):
        manifests.read(target)
    assert manifests.log(Storage(str(lake / "else"))).exists is False
