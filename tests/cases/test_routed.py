"""One stream to several sinks: Delta and Parquet routes, one that fails and is retried, rows without a route."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from recon import Batch, RoutedForeachBatch, read_batches, starting_offsets
from recon.audits.run import run_audit
from recon.model import LedgerEntry, RunResult
from recon.project import Project
from recon.write.hook import foreach_batch
from recon.write.ledger import open_ledger
from recon.write.sinks.failpoints import BEFORE_LEDGER, BEFORE_WRITE, FILES_WRITTEN
from tests.cases.lake import failing, findings, statuses
from tests.support.failpoints import dies_at
from tests.support.kafka import LocalKafka
from tests.support.marks import long
from tests.support.messages import same_message

NAMES = ("eu", "eu2")
EVERY = ["offset_continuity", "checkpoint_commits", "source_rows", "kafka_end_offsets"]


def parsed(frame: DataFrame) -> DataFrame:
    """Drops every tenth record, and names the land."""
    return frame.where("offset % 10 <> 9").selectExpr(
        "CAST(value AS STRING) AS land", "_source_topic", "_source_partition", "_source_offset"
    )


@dataclass
class Streams:
    """A pipeline `p` that is split by land: eu into Delta, us into Parquet on another root."""

    path: Path
    kafka: LocalKafka
    spark: SparkSession
    topic: str
    routes: dict[str, Any] = field(default_factory=lambda: {"by": "land", "to": {"eu": "eu", "us": "us"}})
    more: tuple[Mapping[str, Any], ...] = ()
    sent: int = 0

    @property
    def project(self) -> Project:
        def sink(name: str, kind: str, target: str, *tests: str) -> dict[str, Any]:
            checks = [{"test": test} for test in (*EVERY, *tests)]
            return {"name": name, "kind": kind, "target": target, "data_tests": checks}

        pipeline = {
            "name": "p",
            "checkpoint": "checkpoint",
            "source": {"topics": [self.topic]},
            "data_tests": [{"test": "atomicity"}],
            "routes": self.routes,
            "sinks": [
                sink("eu", "delta", "one/eu", "delta_history"),
                sink("us", "parquet", "two/us", "sink_commits"),
                *self.more,
            ],
        }
        return Project.model_validate(
            {
                "name": "lake",
                "ledger": "recon",
                "kafka": {"bootstrap.servers": self.kafka.bootstrap_servers},
                "pipelines": [pipeline],
                "project_dir": self.path,
            }
        )

    def produce(self, *lands: str | None) -> None:
        records = [(f"k{self.sent + i}", land, 0) for i, land in enumerate(lands)]
        self.kafka.produce(self.topic, records)
        self.sent += len(lands)

    def hook(self, **options: Any) -> RoutedForeachBatch:
        made = foreach_batch(self.project, pipeline="p", **options)
        assert isinstance(made, RoutedForeachBatch)
        return made

    def run(
        self, hook: Callable[[DataFrame, int], None], checkpoint: str = "checkpoint", *, starting: str = "earliest"
    ) -> None:
        query = (
            self.spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", self.kafka.bootstrap_servers)
            .option("subscribe", self.topic)
            .option("startingOffsets", starting)
            .load()
            .writeStream.foreachBatch(hook)
            .option("checkpointLocation", str(self.path / checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(120)
        assert not query.isActive

    def entries(self, sink: str) -> list[LedgerEntry]:
        return open_ledger(self.project).entries("p", sink)

    def offsets(self) -> dict[str, list[int]]:
        eu = self.spark.read.format("delta").load(str(self.path / "one" / "eu"))
        us = read_batches(self.spark, str(self.path / "two" / "us"))
        return {
            "eu": sorted(row["_source_offset"] for row in eu.collect()),
            "us": sorted(row["_source_offset"] for row in us.collect()),
        }

    def audit(self) -> RunResult:
        return run_audit(self.project, spark=self.spark)

    def forget_entries(self, sink: str, batch_id: int) -> None:
        """Removes entries of the ledger, as nobody should."""
        from deltalake import DeltaTable

        DeltaTable(str(self.path / "recon" / "ledger")).delete(f"sink = '{sink}' AND batch_id = {batch_id}")


@pytest.fixture
def streams(kafka: Any, spark: Any, topic: Callable[..., str], tmp_path: Path) -> Streams:
    return Streams(tmp_path, kafka, spark, topic("r"))


def message_of(caught: pytest.ExceptionInfo[StreamingQueryException]) -> str:
    found = re.search(r"recon\.base\.errors\.\w+: (.*)", str(caught.value))
    assert found, str(caught.value)
    return found[1]


def counts(entry: LedgerEntry) -> tuple[Any, ...]:
    return entry.status, entry.attempt, entry.rows_read, entry.rows_written, entry.rows_filtered


def test_a_route_that_fails_is_retried_and_nothing_is_lost_or_doubled(streams: Streams) -> None:
    """The second route fails after the first has landed; the query is started again."""
    streams.produce(*["eu", "us"] * 10)
    hook = streams.hook(transform=parsed, failpoint=dies_at(FILES_WRITTEN, sink="us", times=1))
    us = hook.parts[1].writer
    write = us.write
    us.write = lambda frame, stamp: write(frame.limit(3), stamp)  # type: ignore[method-assign] # half of it
    with pytest.raises(StreamingQueryException, match="died at files_written"):
        streams.run(hook)
    assert [counts(e) for e in streams.entries("eu")] == [("committed", 1, 20, 10, 10)]
    assert streams.entries("us") == []
    run = streams.audit()
    assert [str(f.code) for r in run.results if r.check == "atomicity" for f in r.findings] == ["INFLIGHT"]

    # The same object: it looks at ledger and sinks anew.
    streams.run(hook)
    assert [counts(e) for e in streams.entries("eu")] == [
        ("committed", 1, 20, 10, 10), ("already_committed", 2, 20, 10, 10),
    ]  # fmt: skip
    assert [counts(e) for e in streams.entries("us")] == [("committed", 1, 20, 8, 12)]
    assert streams.offsets() == {"eu": list(range(0, 20, 2)), "us": [1, 3, 5, 7, 11, 13, 15, 17]}

    # A micro-batch that has rows for one route only: the other has an entry of no rows.
    streams.produce("us", "us", "us")
    streams.run(streams.hook(transform=parsed))
    assert [counts(e)[2:] for e in (streams.entries("eu")[-1], streams.entries("us")[-1])] == [(3, 0, 3), (3, 3, 0)]
    run = streams.audit()
    assert failing(run) == set(), findings(run)
    assert run.pipelines[0].answer == "complete", run.pipelines[0].because
    assert statuses(run)["atomicity"] == "pass"
    (atomic,) = (r for r in run.results if r.check == "atomicity")
    assert (atomic.evidence["landed"], atomic.evidence["rows_read"], atomic.evidence["rows_in_routes"]) == (2, 23, 21)
    targets = {sink.name: sink.target for sink in run.pipelines[0].sinks}
    assert targets == {"eu": str(streams.path / "one" / "eu"), "us": str(streams.path / "two" / "us")}

    # An entry that is gone from one route's chain.
    streams.forget_entries("us", 0)
    run = streams.audit()
    found = [f for r in run.results if r.check == "atomicity" for f in r.findings]
    assert [(str(f.code), f.sink, f.batch_id, f.start_offset, f.end_offset) for f in found] == [
        ("PARTIAL", "us", 0, 0, 20)
    ]


def test_a_value_without_a_route_stops_before_anything_is_written(streams: Streams) -> None:
    streams.produce("eu", "xx", "us", None, "xx")
    with pytest.raises(StreamingQueryException) as caught:
        streams.run(streams.hook(transform=parsed))
    assert message_of(caught).startswith(
        "pipeline p, micro-batch 0: 3 of its rows have no route by land: "
        f"'xx' (2, such as offset 1 of {streams.topic}-0), NULL (1, such as offset 3 of {streams.topic}-0); "
        "nothing was written: name a sink for them in `to`"
    )
    assert not (streams.path / "one").exists() and not (streams.path / "two").exists()
    assert streams.entries("eu") == [] and streams.entries("us") == []
    # A sink for the others, without the transform and by an expression over Kafka's own columns; then a third route.
    streams.routes = {"by": "CAST(value AS STRING)", "to": {"eu": "eu"}, "otherwise": "us", "persist": False}
    streams.run(streams.hook())
    assert streams.offsets() == {"eu": [0], "us": [1, 2, 3, 4]}
    streams.more = ({"name": "xx", "kind": "json", "target": "two/xx", "data_tests": [{"test": "source_rows"}]},)
    streams.routes = {"by": "CAST(value AS STRING)", "to": {"eu": "eu", "xx": "xx"}, "otherwise": "us"}
    streams.produce("eu", "xx", "us")
    streams.run(streams.hook())
    assert streams.offsets() == {"eu": [0, 5], "us": [1, 2, 3, 4, 7]}
    assert [(e.epoch, e.batch_id, e.rows_read, e.rows_written) for e in streams.entries("xx")] == [(0, 1, 3, 1)]
    run = streams.audit()
    assert failing(run) == set() and statuses(run)["atomicity"] == "pass"
    messages = [f.message for r in run.results if r.check == "atomicity" for f in r.findings]
    assert messages == [
        "sink xx begins after 1 micro-batch that other sinks have, the last of them micro-batch 0 (epoch 0): it was "
        "added later"
    ]
    streams.routes = {"by": "nosuch", "to": {"eu": "eu"}, "otherwise": "us"}
    streams.produce("eu")
    with pytest.raises(StreamingQueryException) as caught:
        streams.run(streams.hook())
    assert "routes: by: 'nosuch' cannot be evaluated on it" in message_of(
        caught
    ) and "nothing was written" in message_of(caught)


@pytest.mark.long
def test_a_failed_route_that_is_passed_over_is_partial_and_a_restored_one_is_judged(streams: Streams) -> None:
    streams.produce(*["eu", "us"] * 5)
    # Killed between the first route's commit and its ledger entry.
    first = streams.hook(transform=parsed, failpoint=dies_at(BEFORE_LEDGER, sink="eu"))
    with pytest.raises(StreamingQueryException):
        streams.run(first)
    assert streams.entries("eu") == []
    second = streams.hook(transform=parsed)
    streams.run(second)
    assert [counts(e) for e in streams.entries("eu")] == [
        ("rebuilt", 1, None, 5, None), ("already_committed", 2, 10, 5, 5),
    ]  # fmt: skip
    assert [counts(e) for e in streams.entries("us")] == [("committed", 1, 10, 4, 6)]
    run = streams.audit()
    assert failing(run) == set() and run.pipelines[0].answer == "complete", run.pipelines[0].because

    # A caller that swallows what a route raises: Spark goes on, and the route does not have the micro-batch.
    third = streams.hook(transform=parsed)

    def refuse(frame: DataFrame, stamp: Any) -> None:
        raise OSError("full")

    third.parts[1].writer.write = refuse  # type: ignore[method-assign]

    def careless(frame: DataFrame, batch_id: int) -> None:
        with contextlib.suppress(OSError):
            third(frame, batch_id)

    streams.produce(*["eu", "us"] * 2)
    streams.run(careless)
    run = streams.audit()
    assert "PARTIAL" in failing(run)
    (partial,) = findings(run, "PARTIAL")
    assert (partial.sink, partial.batch_id, partial.start_offset, partial.end_offset) == ("us", 1, 10, 14)


def test_routes_that_lead_nowhere() -> None:
    with pytest.raises(ValidationError) as caught:
        Project.model_validate(
            {
                "name": "x",
                "ledger": "recon",
                "pipelines": [
                    {
                        "name": "p",
                        "checkpoint": "c",
                        "routes": {"by": "land", "to": {"eu": "lake_e", True: "lake_eu"}},
                        "sinks": [{"name": "lake_eu", "target": "t"}],
                    }
                ],
            }
        )
    error = caught.value.errors()[0]
    assert error["loc"] == ("pipelines", 0) and same_message(error["msg"])


class Killed(Exception):
    """Where a process would be killed."""


def killed(*_: Any) -> None:
    raise Killed


@pytest.mark.long
def test_files_and_functions_of_ones_own_through_the_hook(streams: Streams) -> None:
    """Parquet with manifests, plain append, and a function that remembers: killed before the ledger row, each."""
    remembered: dict[str, int] = {}

    def put(frame: DataFrame, batch: Batch) -> None:
        remembered.setdefault(batch.key, frame.count())

    def confirm(batch: Batch) -> int | None:
        return remembered.get(batch.key)

    kinds: dict[str, dict[str, Any]] = {
        "replaced": {"kind": "parquet", "target": "files"},
        "appended": {"kind": "json", "mode": "append", "target": "plain"},
        "mine": {"kind": "custom", "declares": "exactly-once"},
        "unconfirmed": {"kind": "custom"},
    }
    project = Project.model_validate(
        {
            "name": "lake",
            "ledger": "recon",
            "kafka": {"bootstrap.servers": streams.kafka.bootstrap_servers},
            "project_dir": streams.path,
            "pipelines": [
                {
                    "name": name,
                    "checkpoint": name,
                    "source": {"topics": [streams.topic]},
                    "sinks": [
                        {"name": name, **keys, "data_tests": [{"test": t} for t in (*EVERY[:3], "sink_commits")]}
                    ],
                }
                for name, keys in kinds.items()
            ],
        }
    )
    functions: dict[str, dict[str, Any]] = {"mine": {"write": put, "confirm": confirm}, "unconfirmed": {"write": put}}

    def hook(name: str, **options: Any) -> Any:
        return foreach_batch(project, pipeline=name, **functions.get(name, {}), **options)

    streams.produce("a", "b", "c")
    for name in kinds:
        first = hook(name, failpoint=dies_at(BEFORE_LEDGER))
        with pytest.raises(StreamingQueryException):
            streams.run(first, name)
        streams.run(hook(name), name)
    ledger = open_ledger(project)
    attempts = {name: [(*counts(e)[:2], e.rows_written) for e in ledger.entries(name, name)] for name in kinds}
    assert attempts == {
        "replaced": [("rebuilt", 1, 3), ("already_committed", 2, 3)],
        "appended": [("committed", 1, 3)],
        "mine": [("committed", 1, 3)],
        "unconfirmed": [("committed", 1, None)],
    }
    assert remembered == {"mine:mine:0:0": 3, "unconfirmed:unconfirmed:0:0": 3}
    assert read_batches(streams.spark, str(streams.path / "files")).count() == 3
    assert streams.spark.read.json(str(streams.path / "plain")).count() == 6  # doubled, as its label allows
    # A checkpoint that starts over: batch ids too, and the manifests keep both.
    streams.produce("d")
    (streams.path / "replaced").rename(streams.path / "old")
    ends = starting_offsets(project, "replaced")
    assert json.loads(ends) == {streams.topic: {"0": 3}}
    streams.run(hook("replaced"), "replaced", starting=ends)
    rows = read_batches(streams.spark, str(streams.path / "files")).collect()
    assert sorted((r["_recon_epoch"], r["_batch_id"], r["_source_offset"]) for r in rows) == [
        (0, 0, 0), (0, 0, 1), (0, 0, 2), (1, 0, 3),
    ]  # fmt: skip

    run = run_audit(project, spark=streams.spark)
    of = {(r.check, r.pipeline): (r.status, {str(f.code) for f in r.findings}) for r in run.results}
    assert of["sink_commits", "replaced"] == ("pass", set())
    assert of["source_rows", "replaced"] == ("pass", set())
    for name in ("appended", "mine", "unconfirmed"):
        assert of["sink_commits", name] == ("warn", {"ATTESTED_ONLY"})
    # No function reads its rows back, so nothing shows that the retry of its first micro-batch doubled none.
    assert of["source_rows", "mine"] == ("warn", {"ATTESTED_ONLY"})
    assert of["source_rows", "unconfirmed"][0] == "error"  # no count, and no function to read the rows
    answers = {p.name: p.answer for p in run.pipelines}
    assert answers["replaced"] == "complete", [p.because for p in run.pipelines]
    assert answers["unconfirmed"] == "could not be proved"
    labels = {s.name: s.guarantee for p in run.pipelines for s in p.sinks}
    assert labels == {
        "replaced": "exactly-once", "appended": "at-least-once", "mine": "exactly-once", "unconfirmed": "at-least-once",
    }  # fmt: skip

    # The ledger says one thing and the manifest another.
    manifest = next((streams.path / "files" / "_recon_manifests" / "1" / "0").glob("0.json"))
    manifest.unlink()
    run = run_audit(project, spark=streams.spark)
    assert [(str(f.code), f.sink, f.epoch) for f in findings(run, "LEDGER_ORPHAN")] == [
        ("LEDGER_ORPHAN", "replaced", 1)
    ]


def test_a_route_is_removed_that_lacks_a_micro_batch(streams: Streams) -> None:
    """A function around the hook swallows the error of the last route, so that Spark goes on without its rows."""
    streams.produce(*["eu", "us"] * 3)
    streams.run(streams.hook(transform=parsed))
    broken = streams.hook(transform=parsed, failpoint=dies_at(FILES_WRITTEN, sink="us", times=9))

    def swallows(frame: DataFrame, batch_id: int) -> None:
        with contextlib.suppress(Exception):
            broken(frame, batch_id)

    streams.produce("eu", "us", "eu")
    streams.run(swallows)
    streams.more = ({"name": "us2", "kind": "delta", "target": "one/us2", "data_tests": [{"test": t} for t in EVERY]},)
    streams.routes = {"by": "land", "to": {"eu": "eu", "us": "us2"}}
    streams.produce(*["eu", "us"] * 3)
    streams.run(streams.hook(transform=parsed))
    run = streams.audit()
    assert ("GAP", "us", 6, 9) in {(str(f.code), f.sink, f.start_offset, f.end_offset) for f in findings(run)}


@pytest.mark.long
@pytest.mark.parametrize("stops", [False, *long(True)])
def test_a_route_that_was_removed_keeps_its_history(streams: Streams, stops: bool) -> None:
    """Also one that had not written the micro-batch in which the query stopped: the new route gets its rows."""
    streams.produce(*["eu", "us"] * 3)
    streams.run(streams.hook(transform=parsed))
    if stops:
        streams.produce("eu", "us", "eu")
        with pytest.raises(StreamingQueryException):
            streams.run(streams.hook(transform=parsed, failpoint=dies_at(BEFORE_WRITE, sink="eu", times=9)))
    checks = [{"test": test} for test in (*EVERY, "delta_history")]
    streams.more = ({"name": "eu2", "kind": "delta", "target": "one/eu2", "data_tests": checks},)
    streams.routes = {"by": "land", "to": {"eu": "eu2", "us": "us"}}
    streams.produce(*["eu", "us"] * 3)
    streams.run(streams.hook(transform=parsed))
    read = {name: streams.spark.read.format("delta").load(str(streams.path / "one" / name)).count() for name in NAMES}
    assert read == {"eu": 3, "eu2": 4 if stops else 3}  # the transform drops offset 9
    run = streams.audit()
    assert not failing(run) and run.pipelines[0].answer == "complete", run.pipelines[0].because
    of_eu = {r.check: r.message for r in run.results if r.sink == "eu"}
    assert "no route leads to sink eu any more" in of_eu["kafka_end_offsets"]
    assert "no route leads to the sink any more" in of_eu["checkpoint_commits"]
    # What was in it is judged as before.
    streams.spark.sql(f"DELETE FROM delta.`{streams.path}/one/eu` WHERE _source_offset = 2")
    assert failing(streams.audit()) == {"MUTATED", "GAP"}
    if not stops:  # a route that leads to it again: docs/limits.md
        streams.routes = {"by": "land", "to": {"eu": "eu", "us": "us"}}
        streams.produce("eu", "us")
        streams.run(streams.hook(transform=parsed))
        assert "PARTIAL" in failing(streams.audit())
