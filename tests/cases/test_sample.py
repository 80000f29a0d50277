"""recon compliance sample on real parts: a stream, its Delta table, a broker with aborted transactions."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from recon.model.sample import Sample
from recon.recovery.sample import sample
from recon.spark.lazy import F
from tests.cases.lake import Lake

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def whole(lake: Lake) -> Sample:
    now = datetime.now(UTC)
    return sample(lake.project, now - timedelta(hours=1), now + timedelta(minutes=1), n=1000, seed="s")


def outcomes(drawn: Sample) -> dict[int, str]:
    return {one.record.offset: one.paths[0].outcome for one in drawn.records}


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
