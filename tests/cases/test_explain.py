"""recon explain, on a real stream: its prediction before a start is what the start then does."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pytest
from pyspark.errors import StreamingQueryException

from recon import already_processed, explain
from recon.write.hook import ForeachBatch
from tests.cases.lake import Lake
from tests.support.failpoints import dies_at

MakeLake = Callable[..., Lake]


def _dies_at(lake: Lake, point: str) -> ForeachBatch:
    return lake.hook(failpoint=dies_at(point))


def test_what_the_next_start_does(make_lake: MakeLake) -> None:
    lake = make_lake()
    assert explain(lake.project, "p").next == "first start"
    lake.produce(30)
    lake.run(per_trigger=10)
    explained = explain(lake.project, "p")
    assert (explained.next, explained.batch_id, explained.sinks[0].action) == ("continue", 3, "write")
    assert [(r.span.start_offset, r.span.end_offset, r.held) for r in explained.ranges] == [(30, 30, "held")]

    # Nothing was written: the replay writes.
    lake.produce(10)
    with pytest.raises(StreamingQueryException, match="died at before_write"):
        lake.run(_dies_at(lake, "before_write"))
    explained = explain(lake.project, "p")
    assert (explained.next, explained.batch_id, explained.sinks[0].action) == ("replay", 3, "write")
    assert not already_processed(lake.project, "p", 3)

    # Rows without an entry: the entry is restored, and nothing is written twice.
    with pytest.raises(StreamingQueryException, match="died at after_write"):
        lake.run(_dies_at(lake, "after_write"))
    explained = explain(lake.project, "p")
    assert (explained.next, explained.sinks[0].action) == ("replay", "restore")
    assert already_processed(lake.project, "p", 3)
    saved = lake.path / "older"
    shutil.copytree(lake.checkpoint, saved)

    # Rows and entry: the write is skipped. Then Kafka loses the range.
    with pytest.raises(StreamingQueryException, match="died at after_ledger"):
        lake.run(_dies_at(lake, "after_ledger"))
    explained = explain(lake.project, "p")
    assert explained.sinks[0].action == "skip"
    assert [e.status for e in explained.sinks[0].entries] == ["rebuilt", "already_committed"]
    lake.run()
    assert [e.status for e in lake.entries()][-3:] == ["rebuilt", "already_committed", "already_committed"]
    assert lake.values() == [(0, o) for o in range(40)]
    lake.kafka.delete_records({(lake.topic, 0): 35})
    past = explain(lake.project, "p", 3)
    assert (past.next, past.ranges[0].held, past.ranges[0].log_start) == ("past", "partly deleted", 35)
    assert f"Kafka deleted [30, 35) of {lake.topic}-0" in past.sentences[1]

    # The same checkpoint copied back: the micro-batches after it are in the ledger already.
    lake.produce(10)
    lake.run(per_trigger=5)
    shutil.rmtree(lake.checkpoint)
    shutil.copytree(saved, lake.checkpoint)
    explained = explain(lake.project, "p")
    assert (explained.next, explained.batch_id, explained.sinks[0].action) == ("replay", 3, "skip")
    later = explain(lake.project, "p", 4)
    assert later.next == "not planned" and "the checkpoint was set back" in later.sentences[1]
