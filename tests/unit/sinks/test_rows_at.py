"""Sinks look single source records up without Spark, and raise where they cannot."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlalchemy

from recon.base.errors import EvidenceError
from recon.base.storage import Storage
from recon.model import KafkaPartition, ReconStamp, offsets_text
from recon.model.offsets import OffsetSpan
from recon.model.wire.columns import batch_headers, source_headers
from recon.model.wire.manifests import (
    DataFile,
    Layout,
    Manifest,
    dump_layout,
    dump_manifest,
    layout_path,
    manifest_path,
    name_of_layout,
)
from recon.model.wire.markers import Owner
from recon.project.sinks import JdbcAppendSink
from recon.witness import kafka_rows
from recon.write.sinks.files.replace import FileReplace
from recon.write.sinks.jdbc.writers import JdbcAppend
from tests.unit.evidence.test_manifest_files import AT

ONE, OTHER = ("t", 0, 3), ("t", 0, 4)
WANTED = {ONE: [0], OTHER: [0]}


# -- files -----------------------------------------------------------------------------------------------------------


def written(folder: Path, kind: str = "parquet") -> FileReplace:
    target = Storage(str(folder))
    span = OffsetSpan("t", None, 0, 0, 10)
    stamp = ReconStamp(
        pipeline="p", sink="s", epoch=0, batch_id=0, query_id="q", run_id=None, prev_hash="",
        offsets_text=offsets_text([span]),
    )  # fmt: skip
    layout = Layout(format=kind, schema={}, partition_by=(), options={})
    name = name_of_layout(dump_layout(layout))
    target.write(layout_path(name), dump_layout(layout))
    made = Manifest(stamp=stamp, attempt="a1", at=AT, rows=1, layout=name, files=(DataFile("a.parquet", 1, 1),))
    target.write(manifest_path(0, 0), dump_manifest(made).encode())
    file = folder / made.paths[0]
    file.parent.mkdir(parents=True)
    pq.write_table(pa.table({"_source_topic": ["t"], "_source_partition": [0], "_source_offset": [3]}), file)
    return FileReplace(str(folder), kind)


def test_files_that_manifests_name(tmp_path: Path) -> None:
    sink = written(tmp_path)
    ((place, (row,)),) = sink.rows_at(WANTED).items()
    assert place == ONE and row.batch_id == 0 and (tmp_path / row.where).is_file()
    (tmp_path / row.where).unlink()
    with pytest.raises(EvidenceError):
        sink.rows_at(WANTED)


def test_files_of_other_formats_are_not_looked_at(tmp_path: Path) -> None:
    with pytest.raises(EvidenceError):
        written(tmp_path, "json").rows_at(WANTED)


# -- databases -------------------------------------------------------------------------------------------------------


def database(engine: sqlalchemy.Engine, **keys: Any) -> JdbcAppend:
    connection = {"url": "jdbc:postgresql://db.example/shop", "password": "p"}
    writer = JdbcAppend("p", JdbcAppendSink(kind="jdbc_append", name="s", target="t", connection=connection, **keys))
    writer.__dict__["engine"] = engine  # a cached property; quoting of names is the same in SQLite
    return writer


def test_rows_of_a_database(tmp_path: Path) -> None:
    engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path / 'db'}")
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE t (_batch_id, _source_topic, _source_partition, _source_offset, x)")
        connection.exec_driver_sql("INSERT INTO t VALUES (7, 't', 0, 3, 'a'), (7, 't', 0, 3, 'b'), (7, 't', 1, 4, 'c')")
    found = database(engine).rows_at(WANTED)
    assert {place: [row.batch_id for row in rows] for place, rows in found.items()} == {ONE: [7, 7]}


def test_a_database_that_cannot_be_asked(tmp_path: Path) -> None:
    engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path / 'db'}")
    with pytest.raises(EvidenceError):
        database(engine).rows_at(WANTED)  # no such table
    with pytest.raises(EvidenceError):
        database(engine, stamp_source_offsets=False).rows_at(WANTED)


# -- Kafka -----------------------------------------------------------------------------------------------------------

OWNER = Owner("p", "s", "out")


class Message:
    def __init__(self, offset: int, headers: Any) -> None:
        self._offset, self._headers = offset, headers

    def error(self) -> Any:
        return None

    def headers(self) -> Any:
        return self._headers

    def topic(self) -> str:
        return "out"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset


class End(Message):
    """The end of the partition."""

    def __init__(self) -> None:
        super().__init__(-1, None)

    def error(self) -> Any:
        class Error:
            def code(self) -> int:
                import confluent_kafka as ck

                return ck.KafkaError._PARTITION_EOF

        return Error()


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic whose records are our own two, one of another sink, and one that no recon wrote."""

    def ours(offset: int, source: tuple[str, int, int], sink: str = "s") -> Message:
        return Message(offset, [*batch_headers("p", sink, 0, 5), *source_headers(*source)])

    messages = [ours(20, ONE, "another"), Message(21, None), ours(22, ("t", 1, 3)), ours(23, ONE), End()]

    class Admin:
        def __init__(self, conf: Any) -> None:
            pass

        def offsets(self, keys: Any, deadline: float) -> Any:
            one = KafkaPartition(partition=0, log_start=20, log_end=24, high_watermark=24, last_stable=24)
            return dict.fromkeys(keys, one)

        @contextmanager
        def consumer(self, isolation_level: str, positions: Any) -> Any:
            assert (isolation_level, positions) == ("read_committed", {("out", 0): 20})
            yield None

    monkeypatch.setattr(kafka_rows, "KafkaAdmin", Admin)
    monkeypatch.setattr(kafka_rows, "received", lambda *_: messages)


@pytest.mark.usefixtures("topic")
def test_records_of_a_topic_by_their_headers() -> None:
    found = kafka_rows.find({}, OWNER, {0: 20}, [ONE, OTHER])
    assert found == {ONE: [("out-0 offset 23", 5)]}


@pytest.mark.usefixtures("topic")
def test_a_topic_that_no_longer_has_the_micro_batch() -> None:
    with pytest.raises(EvidenceError):
        kafka_rows.find({}, OWNER, {0: 19}, [ONE])
