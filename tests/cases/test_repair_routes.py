"""Repairs of routes on a real broker and stream: each route gets back its own rows, and no other's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame

from recon.audits.accept import open_findings
from recon.base.errors import ConfigError
from recon.recovery.repair.run import Repaired, repair
from recon.recovery.repair.witnesses import repair_plans
from recon.write.sinks.failpoints import AFTER_WRITE
from tests.cases.lake import failing, findings
from tests.cases.test_routed import EVERY, Streams, parsed
from tests.support.failpoints import dies_at

# tests/crash/test_killed_repair.py repairs such a sink in `make test`.
pytestmark = pytest.mark.long

# Every tenth offset is filtered (9), the even ones are the first route's.
LANDS = ["eu", "us"] * 5


@pytest.fixture
def streams(kafka: Any, spark: Any, topic: Callable[..., str], tmp_path: Path) -> Streams:
    merged: dict[str, Any] = {"name": "xx", "kind": "delta_merge", "target": "two/xx", "keys": ["_source_offset"]}
    merged["data_tests"] = [{"test": name} for name in (*EVERY, "delta_history")]
    routes = {"by": "land", "to": {"eu": "eu", "us": "us", "xx": "xx"}}
    return Streams(tmp_path, kafka, spark, topic("r"), routes, (merged,))


def mend(streams: Streams, sink: str, **options: Any) -> Repaired:
    return repair(streams.project, "p", sink, spark=streams.spark, **{"transform": parsed, **options})


def merged(streams: Streams) -> list[int]:
    rows = streams.spark.read.format("delta").load(str(streams.path / "two" / "xx")).collect()
    return sorted(row["_source_offset"] for row in rows)


def swallowed(streams: Streams) -> None:
    """Micro-batch 1 of three is swallowed: no route has it."""
    streams.produce(*LANDS[:8], "xx", "us")
    streams.run(streams.hook(transform=parsed))
    streams.produce(*LANDS[:8], "xx", "us")
    streams.run(lambda frame, batch_id: None)
    streams.produce(*LANDS[:8], "xx", "us")
    streams.run(streams.hook(transform=parsed))


@pytest.mark.parametrize("dies", [False, True])
def test_each_route_gets_its_own_rows_of_a_swallowed_micro_batch(streams: Streams, dies: bool) -> None:
    swallowed(streams)
    run = streams.audit()
    assert failing(run) == {"GAP"}
    plans = {plan.sink: plan for plan in repair_plans(streams.project)}
    assert [(one.action, one.start_offset, one.end_offset, one.batch_id) for one in plans["eu"].ranges] == [
        ("read", 10, 20, 1)
    ]
    assert plans["eu"].ranges[0].why.endswith("rows of other routes among them are left out")
    if dies:
        with pytest.raises(RuntimeError, match=AFTER_WRITE):
            mend(streams, "eu", failpoint=dies_at(AFTER_WRITE))
    done = [mend(streams, sink) for sink in ("eu", "xx")]
    assert [one.incomplete for one in done] == [(), ()]
    assert done[0].finished == (("repair 0",) if dies else ())
    assert streams.offsets()["eu"] == [o for o in range(30) if o % 10 in (0, 2, 4, 6)]
    assert merged(streams) == [8, 18, 28]
    entries = {sink: next(e for e in streams.entries(sink) if e.is_repair) for sink in ("eu", "xx")}
    counts = {s: (e.rows_read, e.rows_written, e.rows_filtered, e.rows_quarantined or 0) for s, e in entries.items()}
    assert counts == {"eu": (10, 4, 6, 0), "xx": (10, 1, 9, 0)}
    run = streams.audit()
    mended = {f.sink for result in run.results for f in result.findings if str(f.code) == "REPAIRED"}
    assert {"eu", "xx"} <= mended and "us" not in mended
    assert {finding.finding.sink for finding in open_findings(streams.project)} <= {"us"}
    # The query goes on, and a second repair finds nothing to do.
    assert mend(streams, "eu").entries == ()
    streams.produce("eu", "us", "xx")
    streams.run(streams.hook(transform=parsed))
    assert streams.offsets()["eu"][-1] == 30 and merged(streams)[-1] == 32


def test_a_row_that_a_route_lost(streams: Streams) -> None:
    """Which of the offsets without a row it was, counts do not tell: all are read, and the others filtered again."""
    streams.produce(*LANDS)
    hook = streams.hook(transform=parsed)
    write = hook.parts[0].writer.write

    def losing(frame: DataFrame, stamp: Any) -> None:
        write(frame.where("_source_offset <> 4"), stamp)

    hook.parts[0].writer.write = losing  # type: ignore[method-assign]
    streams.run(hook)
    streams.produce(*LANDS)
    streams.run(streams.hook(transform=parsed))
    run = streams.audit()
    assert failing(run) == {"GAP", "PARTIAL"}
    done = mend(streams, "eu")
    assert (done.offsets, done.rows, done.incomplete) == (6, 1, ())
    assert streams.offsets()["eu"] == list(range(0, 20, 2))
    run = streams.audit()
    assert failing(run) == set(), findings(run)
    assert run.pipelines[0].answer == "complete", run.pipelines[0].because
    assert not open_findings(streams.project)


def test_doubled_rows_of_a_route_are_removed(streams: Streams) -> None:
    streams.produce(*LANDS)
    streams.run(streams.hook(transform=parsed))
    eu = streams.path / "one" / "eu"
    streams.spark.sql(f"INSERT INTO delta.`{eu}` SELECT * FROM delta.`{eu}`")
    assert "DUPLICATE" in failing(streams.audit())
    assert mend(streams, "eu").removed == 5
    assert streams.offsets()["eu"] == [0, 2, 4, 6, 8]
    assert "DUPLICATE" not in failing(streams.audit())


def test_routes_that_were_changed_since(streams: Streams) -> None:
    swallowed(streams)
    streams.audit()
    streams.routes = {"by": "land", "to": {"eu": "eu", "us": "us"}, "otherwise": "eu"}
    with pytest.raises(ConfigError, match="may send these records to other sinks"):
        mend(streams, "eu")
    assert streams.offsets()["eu"] == [o for o in (*range(10), *range(20, 30)) if o % 10 in (0, 2, 4, 6)]
    assert mend(streams, "eu", other_transform=True).rows == 5


def test_a_route_that_was_removed(streams: Streams) -> None:
    """Its records go to another sink since: a repair would write those of every route into it."""
    checks = [{"test": "offset_continuity"}]
    streams.produce(*["eu", "us"] * 3)
    streams.run(streams.hook(transform=parsed))
    streams.more = ({"name": "eu2", "kind": "delta", "target": "one/eu2", "data_tests": checks},)
    streams.routes = {"by": "land", "to": {"eu": "eu2", "us": "us"}}
    streams.produce(*["eu", "us"] * 3)
    streams.run(streams.hook(transform=parsed))
    streams.audit()
    for other_transform in (False, True):
        with pytest.raises(ConfigError, match="routes chose its rows, and those"):
            mend(streams, "eu", other_transform=other_transform)
    assert streams.offsets()["eu"] == [0, 2, 4]
