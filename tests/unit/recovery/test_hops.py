"""recon trace from table to table: bronze, silver and gold, with a fate for each record that the test knows."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake

from recon import trace
from recon.model import ReconStamp, dump_stamp, offsets_text
from recon.model.delta_offsets import BEGINNING, offset_of
from recon.model.offsets import OffsetSpan
from recon.project import Project, load
from recon.write.ledger import Ledger, open_ledger
from tests.support.ledger_entries import entry
from tests.unit.cli.test_cli import Ended, recon  # noqa: F401

BATCHES = int(os.environ.get("RECON_TRACED_BATCHES", "12"))  # ten records each
YAML = """\
version: 2
name: lake
ledger: _recon
pipelines:
  - {name: bronze, checkpoint: c/b, source: {topics: [orders]}, sinks: [{name: bronze, target: bronze}]}
  - {name: silver, checkpoint: c/s, source: {delta: bronze}, sinks: [{name: silver, target: silver}]}
  - {name: gold, checkpoint: c/g, source: {delta: silver}, sinks: [{name: gold, target: gold}]}
"""
COLUMNS = ("_batch_id", "_source_topic", "_source_partition", "_source_offset")


@dataclass
class Chain:
    """Three tables, written by hand as the hook would: each commit with its stamp, then its ledger entry."""

    folder: Path
    versions: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("bronze", "silver", "gold"), 0))
    came_to: dict[str, int] = field(default_factory=lambda: {"silver": BEGINNING, "gold": BEGINNING})

    def __post_init__(self) -> None:
        (self.folder / "recon.yml").write_text(YAML)

    @property
    def project(self) -> Project:
        return load(self.folder)

    @property
    def ledger(self) -> Ledger:
        return open_ledger(self.project)

    def table(self, layer: str) -> str:
        return str(self.folder / layer)

    def write(
        self,
        layer: str,
        offsets: Sequence[int],
        *,
        read: int | None = None,
        span: tuple[int, int] | None = None,
        columns: Sequence[str] = COLUMNS,
        **changes: Any,
    ) -> None:
        """A micro-batch: the rows of these offsets of Kafka, from `read` rows of the table before."""
        batch_id, version = self.versions[layer], self.versions[layer]
        if layer == "bronze":
            source = OffsetSpan("orders", "id-1", 0, *(span or (min(offsets), max(offsets) + 1)))
        else:
            before = {"silver": "bronze", "gold": "silver"}[layer]
            end = offset_of(self.versions[before], 0)
            table_id = str(DeltaTable(self.table(before)).metadata().id)
            source = OffsetSpan(f"delta:{table_id}", table_id, 0, *(span or (self.came_to[layer], end)))
            self.came_to[layer] = source.end_offset
        rows = pa.table(
            {
                "_batch_id": pa.array([batch_id] * len(offsets), pa.int64()),
                "_source_topic": pa.array(["orders"] * len(offsets), pa.string()),
                "_source_partition": pa.array([0] * len(offsets), pa.int32()),
                "_source_offset": pa.array(offsets, pa.int64()),
                "value": pa.array(offsets, pa.int64()),
            }
        ).select([*columns, "value"])
        stamp = ReconStamp(
            pipeline=layer,
            sink=layer,
            epoch=0,
            batch_id=batch_id,
            query_id="q-1",
            run_id=None,
            prev_hash="",
            offsets_text=offsets_text((source,)),
        )
        properties = CommitProperties(custom_metadata={"userMetadata": dump_stamp(stamp)})
        write_deltalake(self.table(layer), rows, mode="append", commit_properties=properties)
        taken = len(offsets) if read is None else read
        counts = {"rows_read": taken, "rows_written": len(offsets), "rows_filtered": taken - len(offsets)}
        made = {"pipeline": layer, "sink": layer, "target": self.table(layer), "sink_version": version}
        self.ledger.append(entry(batch_id, offsets=(source,), **{**counts, **made, **changes}))
        self.versions[layer] = version + 1

    def outcomes(self, offset: int) -> dict[str, str]:
        """What became of a record in each table."""
        found = trace(self.project, f"orders/0/{offset}")
        return {path.sink: path.outcome for path in found.paths}


@pytest.fixture
def chain(tmp_path: Path) -> Chain:
    return Chain(tmp_path)


def test_a_record_through_three_tables(chain: Chain) -> None:
    chain.write("bronze", range(10))
    chain.write("bronze", range(10, 20))
    chain.write("silver", range(20))
    chain.write("gold", range(20))
    found = trace(chain.project, "orders/0/13")
    assert [(one.record.pipeline, Path(one.through).name) for one in found.records] == [
        ("bronze", ""),
        ("silver", "bronze"),
        ("gold", "silver"),
    ]
    assert [path.outcome for path in found.paths] == ["found", "found", "found"]
    assert [path.writes[0].batch_id for path in found.paths] == [1, 0, 0]
    assert all(write.confirmed for path in found.paths for write in path.writes)
    assert [Path(path.places[0]).parent.name for path in found.paths] == ["bronze", "silver", "gold"]


def test_what_the_next_stream_has_not_read_yet(chain: Chain) -> None:
    chain.write("bronze", range(10))
    assert chain.outcomes(3) == {"bronze": "found", "silver": "in no micro-batch"}
    chain.write("silver", range(10))
    chain.write("bronze", range(10, 20))
    assert chain.outcomes(13) == {"bronze": "found", "silver": "in no micro-batch"}
    assert chain.outcomes(3) == {"bronze": "found", "silver": "found", "gold": "in no micro-batch"}


def test_an_aggregate_ends_the_line(chain: Chain) -> None:
    chain.write("bronze", range(10))
    chain.write("silver", range(10))
    chain.write("gold", [1], read=10, columns=("_batch_id",))
    assert chain.outcomes(3) == {"bronze": "found", "silver": "found", "gold": "not read"}
    assert "ends the line" in trace(chain.project, "orders/0/3").paths[-1].said


def test_a_row_that_was_removed_from_a_later_table(chain: Chain) -> None:
    chain.write("bronze", range(10))
    chain.write("silver", range(10))
    DeltaTable(chain.table("silver")).delete("_source_offset = 4")
    assert chain.outcomes(4) == {"bronze": "found", "silver": "removed"}


def test_filtered_or_lost(chain: Chain) -> None:
    chain.write("bronze", range(10))
    chain.write("silver", [], read=10)
    assert chain.outcomes(4) == {"bronze": "found", "silver": "filtered"}
    chain.write("bronze", range(10, 20))
    chain.write("silver", range(10, 18), read=10)
    assert chain.outcomes(19) == {"bronze": "found", "silver": "not decided"}
    chain.write("bronze", range(20, 30))
    chain.write("silver", range(20, 28), read=10, rows_filtered=0)
    assert chain.outcomes(29) == {"bronze": "found", "silver": "missing"}
    chain.write("bronze", range(30, 40))
    chain.write("silver", range(30, 38), read=10, rows_filtered=None)
    assert chain.outcomes(39) == {"bronze": "found", "silver": "not decided"}


def test_what_a_call_of_the_hook_that_was_not_written_may_have_had_is_not_filtered(chain: Chain) -> None:
    chain.write("bronze", range(10))
    chain.write("silver", [], read=10, run_id="r-1", transform="job:even")
    (first,) = chain.ledger.entries("silver", "silver")
    chain.ledger.append(replace(first, status="already_committed", attempt=2, transform="job:odd"))
    assert chain.outcomes(4) == {"bronze": "found", "silver": "not decided"}


def test_a_version_that_was_read_in_part_is_never_missing(chain: Chain) -> None:
    chain.write("bronze", range(10))
    chain.write("silver", range(5), read=5, span=(BEGINNING, offset_of(0, 1, in_snapshot=True)))
    assert chain.outcomes(7) == {"bronze": "found", "silver": "not decided"}


def test_every_record_is_traced_to_what_happened_to_it(chain: Chain) -> None:
    """Random fates; whole micro-batches are filtered, so that it is known of each record what became of it."""
    rng = random.Random(7)
    fate: dict[int, dict[str, str]] = {}
    waiting: dict[str, list[int]] = {"silver": [], "gold": []}
    for batch in range(BATCHES):
        offsets = list(range(10 * batch, 10 * batch + 10))
        chain.write("bronze", offsets)
        fate |= {offset: {"bronze": "found"} for offset in offsets}
        waiting["silver"] += offsets
        for layer, behind in (("silver", "gold"), ("gold", None)):
            if rng.random() < 0.3 or not waiting[layer]:
                continue
            read, waiting[layer] = waiting[layer], []
            kind = rng.choice(("all", "all", "none", "lost"))
            lost = rng.choice(read) if kind == "lost" else None
            kept = [] if kind == "none" else [offset for offset in read if offset != lost]
            chain.write(layer, kept, read=len(read), rows_filtered=len(read) if kind == "none" else 0)
            for offset in read:
                without = "filtered" if kind == "none" else "missing"
                fate[offset][layer] = "found" if offset in kept else without
            if behind is not None:
                waiting[behind] += kept
    for layer in ("silver", "gold"):
        for offset in waiting[layer]:
            fate[offset][layer] = "in no micro-batch"
    wrong = {offset: (fate[offset], seen) for offset in fate if (seen := chain.outcomes(offset)) != fate[offset]}
    assert not wrong


def test_the_command(chain: Chain, recon: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    chain.write("bronze", range(10))
    chain.write("silver", range(10))
    monkeypatch.chdir(chain.folder)
    ended = recon("trace", "orders/0/3")
    assert "pipeline silver, which reads " in ended.out
    as_json = json.loads(recon("trace", "orders/0/3", "--output", "json").out)
    assert [one.get("through", "")[-6:] for one in as_json["records"]] == ["", "bronze", "silver"]
    only = recon("trace", "orders/0/3", "--sink", "bronze")
    assert "silver" not in only.out
