"""A repair of a sink that an installed package offers; the code is that of docs/own_sinks.md. Without a JVM."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from recon.base.clock import utc_now
from recon.base.errors import ConfigError
from recon.model import REPAIRS, LedgerEntry, ReconStamp, SinkCommit, offsets_text
from recon.model.offsets import OffsetSpan, Spans
from recon.project import Pipeline, Project, Sink, load, sink_class
from recon.recovery.repair.plan import PlannedRange
from recon.recovery.repair.witnesses import ability_of
from recon.testing import MicroBatch, only_built_in, verify_repair
from recon.write.hook.epochs import BatchToWrite
from recon.write.ledger import Ledger, open_ledger
from recon.write.ledger.rebuild import entry_of
from recon.write.sinks.repair import RepairStore, open_repair
from tests.support.broker import Broker
from tests.support.own_sinks import blocks, install
from tests.support.repairs import Given, repaired
from tests.unit.hook.test_writer import plan_three

NUMBERED = "numbered_lines"


@dataclass(frozen=True)
class Frame:
    """Rows as JSON, with as much of a DataFrame as the page's writer and its test use."""

    rows: list[str]
    sparkSession: Any = field(default_factory=lambda: SimpleNamespace(version="4.0.0"))

    def selectExpr(self, text: str) -> Frame:
        return self

    def collect(self) -> list[Any]:
        return [SimpleNamespace(line=row) for row in self.rows]

    def filter(self, condition: str) -> Frame:
        batch_id = int(condition.removeprefix("_batch_id = "))
        return Frame([row for row in self.rows if json.loads(row)["_batch_id"] == batch_id])

    def count(self) -> int:
        return len(self.rows)


def stamp(number: int, batch_id: int, span: OffsetSpan) -> ReconStamp:
    of: dict[str, Any] = {"pipeline": "orders", "sink": "orders", "epoch": 0, "query_id": "q-1", "run_id": None}
    return ReconStamp(**of, batch_id=batch_id, number=number, prev_hash="", offsets_text=offsets_text([span]))


def micro_batch(batch_id: int) -> MicroBatch:
    span = OffsetSpan("orders", "id-1", 0, 10 * batch_id, 10 * batch_id + 2)
    frame: Any = Frame([json.dumps({"_batch_id": batch_id, "n": n}) for n in range(2)])
    return MicroBatch(frame=frame, stamp=stamp(batch_id + 1, batch_id, span), rows=2)


@pytest.fixture(autouse=True)
def the_package_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    with only_built_in():
        install(
            tmp_path, monkeypatch, f"json_lines = lake_sinks:JsonLinesSink\n{NUMBERED} = lake_sinks:NumberedLinesSink"
        )
        import lake_sinks  # type: ignore[import-not-found]

        def table(self: Any, spark: Any) -> Frame:
            files = sorted(self.folder.glob(f"*{self.suffix}"))
            return Frame([row for file in files for row in self._lines(file)[1:]], spark)

        monkeypatch.setattr(lake_sinks.JsonLinesWriter, "table", table)
        yield lake_sinks
    sys.modules.pop("lake_sinks", None)


def project(folder: Path, kind: str) -> tuple[Project, Pipeline, Sink]:
    text = blocks("yaml")[0].replace("kind: json_lines", f"kind: {kind}")
    (folder / "recon.yml").write_text(text + "\nkafka: {bootstrap.servers: localhost:1}\n")
    loaded = load(folder)
    return loaded, loaded.pipelines[0], loaded.pipelines[0].sinks[0]


def test_a_sink_is_repaired_where_its_class_says_through_what(tmp_path: Path) -> None:
    plan_three(tmp_path / "checkpoints/orders")
    loaded, pipeline, sink = project(tmp_path, "json_lines")
    assert "a repair writes no sinks of kind json_lines" in ability_of(loaded, pipeline, sink).refused
    loaded, pipeline, sink = project(tmp_path, NUMBERED)
    assert ability_of(loaded, pipeline, sink).refused == ""
    assert type(open_repair(loaded, "orders", sink)) is RepairStore
    able = sink.repair_ability
    assert (able.refused, able.only_unread) == ("", "") and able.no_removal.startswith("a repair removes no rows")


def test_of_a_sink_that_rewrites_rows_only_what_nobody_read_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink_class(NUMBERED), "rewrites", True)
    able = project(tmp_path, NUMBERED)[2].repair_ability
    assert able.only_unread.startswith("rows of this sink are replaced") and able.no_removal and not able.refused


def test_a_store_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_class(NUMBERED), "repairs", "lake_sinks:Store")
    loaded, _, sink = project(tmp_path, NUMBERED)
    with pytest.raises(ConfigError, match="lake_sinks:Store, by which a repair writes kind numbered_lines"):
        open_repair(loaded, "orders", sink)


def test_the_pages_sink_keeps_what_a_repair_needs(tmp_path: Path) -> None:
    sink = sink_class(NUMBERED)(name="orders", kind=NUMBERED, target=str(tmp_path / "t"))
    verify_repair(sink, micro_batch(0), micro_batch(1))


@pytest.mark.parametrize(
    ("broken", "named"),
    [
        ("newest_number", "`newest_number` is 0 after write 1"),
        ("_publish", "`write` took number 2 twice"),
        ("log", "`log` lists the repairs"),
    ],
)
def test_a_sink_that_does_not_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, the_package_of_the_page: Any, broken: str, named: str
) -> None:
    writer, plain = the_package_of_the_page.NumberedLinesWriter, the_package_of_the_page.JsonLinesWriter
    log = plain.log
    methods = {
        "newest_number": lambda self, pipeline, sink: 0,
        "_publish": vars(plain)["_publish"],
        "log": lambda self: replace(log(self), commits=tuple(c for c in log(self).commits if c.stamp.epoch >= 0)),
    }
    monkeypatch.setattr(writer, broken, methods[broken])
    sink = sink_class(NUMBERED)(name="orders", kind=NUMBERED, target=str(tmp_path / "t"))
    with pytest.raises(AssertionError, match=named):
        verify_repair(sink, micro_batch(0), micro_batch(1))


@dataclass(kw_only=True)
class Hook(Given):
    """Writes a repair as ForeachBatch does."""

    sink: Sink
    dies: bool = False

    def write_repair(self, rows: Any, batch: BatchToWrite, ledger: Ledger) -> LedgerEntry:
        self.writer.write(rows.frame, batch.stamp)
        landed = self.writer.confirm(batch.stamp)
        if self.dies:
            raise KeyboardInterrupt
        commit = SinkCommit(version=None, stamp=batch.stamp, rows=landed.rows, at=utc_now())
        return ledger.append(entry_of(commit, self.sink, target="t"))


def test_a_repair_writes_it_once_and_finishes_what_was_interrupted(tmp_path: Path, broker: Broker) -> None:
    plan_three(tmp_path / "checkpoints/orders")
    loaded, _, sink = project(tmp_path, NUMBERED)
    first = micro_batch(0)
    writer: Any = open_repair(loaded, "orders", sink).opened()
    writer.write(first.frame, first.stamp)
    ledger = open_ledger(loaded)
    ledger.append(entry_of(SinkCommit(version=None, stamp=first.stamp, rows=2, at=utc_now()), sink, target="t"))
    of: dict[str, Any] = {"topic": "orders", "topic_id": "id-1", "partition": 0, "source": 0, "findings": (), "why": ""}
    missing = PlannedRange(action="read", start_offset=2, end_offset=4, batch_id=0, **of)
    hook = Hook(sink=sink, dies=True, missing=[missing], frame=micro_batch(0).frame, counted=(2, 0))
    with pytest.raises(KeyboardInterrupt):
        repaired(loaded, hook)
    files = sorted(file.name for file in (tmp_path / "lake/orders").iterdir())
    assert files == ["000000000001.ndjson", "000000000002.ndjson"], "the second is the repair"
    hook.dies, hook.rows = False, Spans.of([(2, 4)])
    done = repaired(loaded, hook)
    assert done.finished == ("repair 0",) and done.rows == 0, "what was written is not written again"
    entries = [(e.epoch, e.batch_id, e.rows_written) for e in open_ledger(loaded).entries("orders")]
    assert entries == [(0, 0, 2), (REPAIRS, 0, 2)]
