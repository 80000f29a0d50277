"""recon compliance sample and recon trace on real parts: streams, their sinks, a broker with aborted transactions."""

from __future__ import annotations

import gc
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from recon import trace
from recon.model.sample import Sample
from recon.recovery.sample import sample
from recon.spark.lazy import F
from tests.cases.lake import Lake
from tests.cases.test_databases import DatabaseLake, keyed

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def whole(lake: Lake) -> Sample:
    now = datetime.now(UTC)
    return sample(lake.project, now - timedelta(hours=1), now + timedelta(minutes=1), n=1000, seed="s")


def outcomes(drawn: Sample) -> dict[int, str]:
    return {one.record.offset: one.paths[0].outcome for one in drawn.records}


def traced(lake: Lake, *only: int) -> dict[int, str]:
    """What `recon trace` says of each offset that the sample has, one by one; or of some alone."""
    found = {offset: trace(lake.project, f"{lake.topic}/0/{offset}") for offset in only or outcomes(whole(lake))}
    assert all(len(one.paths) == 1 for one in found.values())
    return {offset: one.paths[0].outcome for offset, one in found.items()}


def test_each_record_is_followed_to_its_end(make_lake: Callable[..., Lake]) -> None:
    lake = make_lake(isolation_level="read_committed")
    lake.produce(10)
    lake.kafka.transaction(lake.topic, [("k", "aborted", 0)] * 7, "abort")
    lake.produce(10)
    lake.run(lake.hook(transform=lambda rows: rows.filter(F.col("offset") != 3)))
    drawn = whole(lake)
    expected = dict.fromkeys(range(28), "found") | dict.fromkeys(range(10, 17), "aborted")
    assert outcomes(drawn) == expected | {3: "filtered", 17: "control record"}
    (write,) = drawn.records[0].paths[0].writes
    assert write.confirmed and write.version == lake.entries()[0].sink_version

    lake.sql("DELETE FROM {table} WHERE _source_offset = 20")
    assert outcomes(whole(lake))[20] == "removed"
    assert traced(lake) == outcomes(whole(lake))


@pytest.fixture
def make_sink(kafka: Any, spark: Any, topic: Callable[..., str], tmp_path: Path) -> Callable[..., DatabaseLake]:
    """A pipeline whose sink is none of Delta's, with ten records in one micro-batch and ten in the next."""

    def make(**sink: Any) -> DatabaseLake:
        lake = DatabaseLake(tmp_path, kafka, spark, topic("t"), sink=sink)
        for _ in range(2):
            lake.produce(10)
            lake.run(transform=keyed)
        return lake

    return make


def confirmed(drawn: Sample) -> set[bool | None]:
    return {write.confirmed for one in drawn.records for path in one.paths for write in path.writes}


@pytest.mark.long
def test_files_of_manifests(make_sink: Callable[..., DatabaseLake]) -> None:
    lake = make_sink(kind="parquet", target="files")
    drawn = whole(lake)
    assert outcomes(drawn) == dict.fromkeys(range(20), "found") and confirmed(drawn) == {True}
    assert traced(lake) == outcomes(drawn)
    (place,) = drawn.records[0].paths[0].places
    (lake.path / "files" / place).unlink()
    assert set(outcomes(whole(lake)).values()) == {"not read"}


def test_records_of_a_kafka_sink(make_sink: Callable[..., DatabaseLake], topic: Callable[..., str]) -> None:
    lake = make_sink(kind="kafka", value_format="json", key="k", target=topic("out"), marker_topic=f"{topic('m')}-made")
    drawn = whole(lake)
    assert outcomes(drawn) == dict.fromkeys(range(20), "found") and confirmed(drawn) == {True}
    assert "offset" in drawn.records[0].paths[0].places[0]
    assert traced(lake, 0, 19) == {0: "found", 19: "found"}  # each reads the topic anew
    lake.kafka.delete_topic(str(lake.sink["target"]))
    assert set(outcomes(whole(lake)).values()) == {"not read"}


def connections(postgres: Any) -> int:
    ((number,),) = postgres.sql("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'")
    return int(number)


@pytest.mark.long
@pytest.mark.database
def test_rows_of_a_database(make_sink: Callable[..., DatabaseLake], postgres: Any) -> None:
    lake = make_sink(kind="jdbc_append", connection=postgres.connection, create_table=True, target="sampled")
    drawn = whole(lake)
    assert outcomes(drawn) == dict.fromkeys(range(20), "found") and confirmed(drawn) == {True}
    postgres.sql("DELETE FROM sampled WHERE _source_offset = 13")
    assert outcomes(whole(lake))[13] == "missing"

    # A process that audits all day looks at a database often; the garbage collector need not come by in between.
    connected, gc_ran = connections(postgres), gc.isenabled()
    gc.disable()
    try:
        assert traced(lake) == outcomes(whole(lake))
        assert connections(postgres) == connected
    finally:
        if gc_ran:
            gc.enable()
    postgres.sql("DROP TABLE sampled")
    assert set(outcomes(whole(lake)).values()) == {"not read"}
