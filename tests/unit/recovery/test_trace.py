"""recon trace: one record, and what became of it in every sink."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from recon import trace
from recon.base.errors import ConfigError, LedgerError
from recon.model import REMOVALS, LedgerEntry
from recon.model.offsets import OffsetSpan
from recon.model.sample import SampledPath
from recon.project import Project, load
from tests.support import ledger_entries
from tests.support.broker import Broker
from tests.support.messages import raises
from tests.support.native_stream import NativeStream
from tests.unit.cli.test_cli import Ended, recon  # noqa: F401
from tests.unit.recovery.test_sample import Lake, kafka_has, lake, stray  # noqa: F401

BATCHES = int(os.environ.get("RECON_TRACED_BATCHES", "12"))  # ten records each


def traced(lake: Lake, offset: int) -> SampledPath:  # noqa: F811
    (path,) = trace(lake.project, f"orders/0/{offset}").paths
    return path


def of_topic(lake: Lake, *topics: str) -> Project:  # noqa: F811
    (pipe,) = lake.project.pipelines
    source = pipe.source.model_copy(update={"topics": topics})
    return lake.project.model_copy(update={"pipelines": (pipe.model_copy(update={"source": source}),)})


def test_a_record_is_followed_to_its_commit_and_its_file(lake: Lake) -> None:  # noqa: F811
    lake.write(0)
    lake.write(1)
    path = traced(lake, 13)
    assert path.outcome == "found" and path.said == (
        "version 1 wrote 1 row of it, in files that the table still has; other rows were not looked for"
    )
    assert [Path(place).is_file() for place in path.places] == [True]
    (write,) = path.writes
    assert (write.batch_id, write.version, write.confirmed) == (1, 1, True)


def test_a_record_in_a_file_that_optimize_rewrote_is_found(lake: Lake) -> None:  # noqa: F811
    lake.write(0)
    lake.write(1)
    DeltaTable(lake.table).optimize.compact()
    path = traced(lake, 13)
    assert (path.outcome, path.said) == ("found", "the sink has 1 row of it (_batch_id 1)")


def test_a_row_that_was_deleted_is_removed_and_its_neighbours_are_found(lake: Lake) -> None:  # noqa: F811
    lake.write(0)
    DeltaTable(lake.table).delete("_source_offset = 4")
    assert traced(lake, 4).outcome == "removed" and traced(lake, 5).outcome == "found"


def test_both_readings_of_an_offset_are_shown(lake: Lake) -> None:  # noqa: F811
    lake.write(0)
    lake.write(0, epoch=1)
    path = traced(lake, 3)
    assert [write.epoch for write in path.writes] == [0, 1] and len(path.places) == 2
    assert path.said.startswith("version 0 wrote 1 row and version 1 wrote 1 row of it")


def test_rows_that_others_put_there_are_looked_for_where_that_is_asked(lake: Lake) -> None:  # noqa: F811
    lake.write(0)
    stray(lake, 3, batch_id=0)
    assert traced(lake, 3).said.startswith("version 0 wrote 1 row of it")
    (path,) = trace(lake.project, "orders/0/3", all_rows=True).paths
    assert (path.outcome, path.said, len(path.places)) == ("found", "the sink has 2 rows of it (_batch_id 0)", 2)


def test_a_topic_that_was_created_again_has_two_records_at_an_offset(lake: Lake) -> None:  # noqa: F811
    lake.write(0)
    lake.write(0, epoch=1, topic_id="id-2")
    found = trace(lake.project, "orders/0/3").records
    assert [one.record.topic_id for one in found] == ["id-1", "id-2"]
    assert [path.writes[0].epoch for one in found for path in one.paths] == [0, 1]


def test_two_sources_of_one_topic_are_not_told_apart_by_a_row(lake: Lake) -> None:  # noqa: F811
    lake.write(0, [*range(10), *range(3), *range(4, 10)], rows_read=20)
    lake.ledger.append(two_sources(1))
    lake.write(2, [*range(20, 30), *range(20, 23), *range(24, 30)], rows_read=20, offsets=two_sources(2).offsets)
    outcomes = {n: [path.outcome for path in trace(lake.project, f"orders/0/{n}").paths] for n in (22, 23)}
    assert outcomes == {22: ["found", "found"], 23: ["not decided", "not decided"]}


def two_sources(batch_id: int) -> LedgerEntry:
    begin = 10 * batch_id
    spans = tuple(OffsetSpan("orders", "id-1", 0, begin, begin + 10, source) for source in range(2))
    return ledger_entries.entry(batch_id, offsets=spans)


def test_a_topic_id_that_a_micro_batch_did_not_know_makes_no_second_record(lake: Lake) -> None:  # noqa: F811
    lake.write(0)
    unknown = (OffsetSpan("orders", None, 0, 5, 12),)
    lake.ledger.append(ledger_entries.entry(1, offsets=unknown))
    lake.ledger.append(ledger_entries.entry(0, epoch=REMOVALS, offsets=(OffsetSpan("orders", "id-9", 0, 0, 10),)))
    (one,) = trace(lake.project, "orders/0/7").records
    assert one.record.topic_id == "id-1" and [write.batch_id for write in one.paths[0].writes] == [0, 1]
    (other,) = trace(lake.project, "orders/0/11").records
    assert other.record.topic_id is None


def test_what_could_not_be_looked_at_is_never_missing(lake: Lake, broker: Broker) -> None:  # noqa: F811
    kafka_has(broker, [(0, 30)])
    lake.write(0)
    lake.write(1, [10, 11, 12])
    assert traced(lake, 17).outcome == "missing"
    lake.write(2)
    DeltaTable(lake.table).delete("_source_offset = 24")
    DeltaTable(lake.table).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    path = traced(lake, 24)
    assert path.outcome == "not decided" and "no longer in the store" in path.said


def test_rows_that_were_written_without_their_source_are_never_missing(tmp_path: Path) -> None:
    plain = Lake(tmp_path)
    plain.write(0, columns=("_batch_id",))
    plain.write(1, schema_mode="merge")
    assert traced(plain, 13).outcome == "found"
    assert traced(plain, 3).outcome in ("not decided", "not read")


def test_a_table_whose_path_has_a_space(tmp_path: Path) -> None:
    spaced = Lake(tmp_path / "my lake")
    spaced.write(0)
    assert traced(spaced, 3).said.startswith("version 0 wrote 1 row of it, in files that the table still has")


def test_what_no_micro_batch_read(lake: Lake) -> None:  # noqa: F811
    lake.write(1)
    lake.project = of_topic(lake, "orders")
    lag, before = traced(lake, 20), traced(lake, 9)
    assert {lag.outcome, before.outcome} == {"in no micro-batch"}
    assert "no ledger entry has it yet: the newest ones end at offset 20" in lag.said
    assert "the stream began behind it, or left it out" in before.said
    stray(lake, 9, batch_id=4)
    assert traced(lake, 9).outcome == "not decided", "a row without an entry"


def test_a_pipeline_that_names_no_topics_is_one_that_read_the_offset(lake: Lake) -> None:  # noqa: F811
    lake.write(0)
    assert trace(lake.project, "orders/0/99").records == () and trace(lake.project, "else/0/3").records == ()


def test_every_record_is_traced_to_what_happened_to_it(lake: Lake, broker: Broker) -> None:  # noqa: F811
    """Against a model: rows lost, deleted, filtered, doubled, moved to other files, and offsets without a record."""
    rng, truth, aborted = random.Random(5), {}, []
    for number in range(BATCHES):
        offsets = list(range(10 * number, 10 * number + 10))
        fate = rng.choice(("whole", "whole", "lost", "marker", "twice", "deleted"))
        one = rng.choice(offsets)
        rows = [offset for offset in offsets if offset != one or fate not in ("lost", "marker")]
        lake.write(number, rows, rows_read=9 if fate == "marker" else 10)
        truth |= dict.fromkeys(offsets, "found")
        if fate == "twice":
            lake.write(number, [one], epoch=1)
        elif fate == "deleted":
            DeltaTable(lake.table).delete(f"_source_offset = {one}")
            truth[one] = "removed"
        elif fate == "lost":
            truth[one] = "missing"
        elif fate == "marker":
            truth[one], aborted = "aborted", [*aborted, one]
        if number == BATCHES // 2:
            DeltaTable(lake.table).optimize.compact()
    end = 10 * BATCHES
    records = [(a + 1, b) for a, b in zip([-1, *aborted], [*aborted, end], strict=True) if a + 1 < b]
    kafka_has(broker, [(0, end)], records)
    assert len(set(truth.values())) == 4
    found = {offset: traced(lake, offset).outcome for offset in truth}
    assert found == truth


def test_rows_that_carry_their_source_in_columns_of_the_users_own(tmp_path: Path) -> None:
    from tests.unit.observer.test_look import NAMED, looked, project_in

    stream = NativeStream(tmp_path / "checkpoint", tmp_path / "table").start({"t": {0: 0, 1: 5}})
    stream.batch({"t": {0: 10, 1: 5}})
    for more, outcome in ((NAMED, "found"), ("description: counts alone", "not read")):
        project = project_in(tmp_path, more)
        looked(project)
        (path,) = trace(project, "t/0/3").paths
        (all_rows,) = trace(project, "t/0/3", all_rows=True).paths
        assert (path.outcome, all_rows.outcome) == (outcome, outcome), (path, all_rows)
        assert trace(project, "t/0/99").paths[0].outcome == "in no micro-batch"
    project = project_in(tmp_path, NAMED)
    stream.batch({"t": {0: 20}})
    looked(project)
    DeltaTable(str(stream.table)).optimize.compact()
    assert [trace(project, f"t/0/{n}").paths[0].outcome for n in (3, 13)] == ["found", "found"]
    adopted = "".join(
        line
        for line in (tmp_path / "recon.yml").read_text().splitlines(keepends=True)
        if not line.strip().startswith(("write:", "source_columns:"))
    )
    (tmp_path / "recon.yml").write_text(adopted)
    stamped = pa.table({"_batch_id": [2], "_source_topic": ["t"], "_source_partition": [0], "_source_offset": [20]})
    write_deltalake(str(stream.table), stamped, mode="append", schema_mode="merge")
    (path,) = trace(load(tmp_path), "t/0/3", all_rows=True).paths
    assert path.outcome == "not decided"
    assert path.said.startswith("rows of micro-batch 0 (epoch 0) cannot be looked up")


def test_a_pipeline_that_reads_another_topic_now(lake: Lake) -> None:  # noqa: F811
    lake.write(0)
    lake.project = of_topic(lake, "others")
    assert traced(lake, 3).outcome == "found"


def test_the_command(lake: Lake, recon: Callable[..., Ended], monkeypatch: Any) -> None:  # noqa: F811
    lake.write(0, [0, 1, 2])
    folder = lake.project.project_dir
    (folder / "recon.yml").write_text(
        "{name: lake, ledger: _recon, pipelines: [{name: orders, checkpoint: cp, source: {topics: [orders]}, "
        "sinks: [{name: orders, target: orders}]}]}"
    )
    monkeypatch.chdir(folder)
    ended = recon("trace", "orders/0/1")
    assert ended.code == 0 and "orders-0, offset 1 (topic id id-1), pipeline orders" in ended.out
    assert "micro-batch 0 (epoch 0), committed at" in ended.out and ": found" in ended.out
    told = json.loads(recon("trace", "orders/0/1", "--output", "json").out)
    assert told["records"][0]["paths"][0]["outcome"] == "found"
    lake.write(1, [10, 11], rows_read=10)
    missing = recon("trace", "orders/0/17")
    assert missing.code == 1 and ": missing" in missing.out
    assert recon("trace", "orders/0/99").code == 1, "not read yet"
    assert recon("trace", "orders/0").code == 2 and recon("trace", "nope/0/1").code == 2


@pytest.mark.parametrize(
    "record",
    [
        "orders",
        "orders/1",
        "orders/x/1",
        "orders/1/-2",
        "/1/2",
        "orders/1/²",
        "a/b/1/2",
        f"t/0/{2**63}",
        "t/0/" + "9" * 5000,
    ],
)
def test_what_names_no_record(lake: Lake, record: str) -> None:  # noqa: F811
    lake.write(0)
    with raises(ConfigError):
        trace(of_topic(lake, "orders"), record)


def test_bad_input(lake: Lake) -> None:  # noqa: F811
    with raises(LedgerError):
        trace(lake.project, "orders/0/1")
    lake.write(0)
    with raises(ConfigError):
        trace(of_topic(lake, "orders", "returns"), "clicks/0/1")
    with raises(ConfigError):
        trace(lake.project, "orders/0/1", pipeline="none")
    with raises(ConfigError):
        trace(lake.project, "orders/0/1", pipeline="orders", sink="none")
    with raises(ConfigError):
        trace(lake.project, "orders/0/1", sink="none")


def test_an_entry_of_another_topic_and_partition_is_not_of_the_record(tmp_path: Path) -> None:
    other = Lake(tmp_path)
    other.write(0)
    assert trace(other.project, "orders/1/3").records == ()
