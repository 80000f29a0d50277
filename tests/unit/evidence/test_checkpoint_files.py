"""Checkpoints made by hand: every form the files may have, and every way they may be broken."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from recon.base.errors import EvidenceError
from recon.base.storage import Storage
from recon.model.offsets import OffsetSpan
from recon.witness import checkpoint
from tests.support.messages import raises, same_message

AT = 1_795_255_097_583
META = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": AT, "conf": {}})


class Checkpoint:
    """Writes the files as Spark lays them out."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.storage = Storage(str(folder))
        self.write("metadata", '{"id":"7c9a0f2e-0001"}')

    def write(self, name: str, content: str | bytes) -> None:
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else content.encode())

    def planned(self, batch_id: int, *sources: Any, version: str = "v1") -> None:
        lines = [s if isinstance(s, str) else json.dumps(s, separators=(",", ":")) for s in sources]
        self.write(f"offsets/{batch_id}", "\n".join([version, META, *lines]))

    def committed(self, batch_id: int) -> None:
        self.write(f"commits/{batch_id}", 'v1\n{"nextBatchWatermarkMs":0}')

    def initial(self, offsets: Any, source: int | str = 0) -> None:
        self.write(f"sources/{source}/0", b"\0v1\n" + json.dumps(offsets).encode())


@pytest.fixture
def made(tmp_path: Path) -> Checkpoint:
    return Checkpoint(tmp_path)


def span(topic: str, partition: int, start: int, end: int, source: int = 0) -> OffsetSpan:
    return OffsetSpan(topic, None, partition, start, end, source)


def test_starts_come_from_the_batch_before_and_from_the_source(made: Checkpoint) -> None:
    made.initial({"orders": {"0": 5, "1": 0}})
    made.planned(0, {"orders": {"0": 9, "1": 3}})
    made.planned(1, {"orders": {"0": 9, "1": 7}})
    made.committed(0)
    witness = checkpoint.read(made.storage)
    assert (witness.query_id, witness.sources, witness.location) == ("7c9a0f2e-0001", 1, str(made.folder))
    first, second = witness.batches
    assert first.ranges == (span("orders", 0, 5, 9), span("orders", 1, 0, 3))
    assert second.ranges == (span("orders", 0, 9, 9), span("orders", 1, 3, 7))
    assert (first.committed, second.committed) == (True, False)
    assert first.planned_at == datetime.fromtimestamp(AT / 1000, UTC)
    assert first.starts_known
    assert witness.last == second
    assert checkpoint.read_batch(made.storage, 1) == second


def test_batches_are_ordered_by_number_not_by_name(made: Checkpoint) -> None:
    for batch_id in (9, 10, 100, 11):
        made.planned(batch_id, {"orders": {"0": batch_id}})
    assert [b.batch_id for b in checkpoint.read(made.storage).batches] == [9, 10, 11, 100]


def test_a_new_partition_has_no_start(made: Checkpoint) -> None:
    made.initial({"orders": {"0": 0}})
    made.planned(0, {"orders": {"0": 4}})
    made.planned(1, {"orders": {"0": 6, "1": 8}, "refunds": {"0": 2}})
    batch = checkpoint.read(made.storage).batches[1]
    assert batch.ranges == (span("orders", 0, 4, 6),)
    assert batch.new_partitions == ((0, "orders", 1, 8), (0, "refunds", 0, 2))
    assert batch.starts_known


def test_a_purged_predecessor_leaves_the_starts_unknown(made: Checkpoint) -> None:
    made.initial({"orders": {"0": 0}})
    made.planned(41, {"orders": {"0": 100}})
    made.planned(42, {"orders": {"0": 120}})
    oldest, newest = checkpoint.read(made.storage).batches
    assert (oldest.starts_known, oldest.ranges, oldest.new_partitions) == (False, (), ())
    assert newest.ranges == (span("orders", 0, 100, 120),)
    assert checkpoint.read_batch(made.storage, 41) == oldest
    assert checkpoint.read(made.storage).begins == ((0, "orders", 0, 0),)
    made.write("sources/0/0", b"torn")
    assert checkpoint.read(made.storage).begins == ()


def test_a_hole_in_the_middle_leaves_the_next_starts_unknown(made: Checkpoint) -> None:
    made.initial({"orders": {"0": 0}})
    made.planned(0, {"orders": {"0": 1}})
    made.planned(2, {"orders": {"0": 3}})
    assert [b.starts_known for b in checkpoint.read(made.storage).batches] == [True, False]


def test_batch_zero_without_its_source_file_has_unknown_starts(made: Checkpoint) -> None:
    made.planned(0, {"orders": {"0": 4}})
    assert not checkpoint.read(made.storage).batches[0].starts_known
    assert not checkpoint.read_batch(made.storage, 0).starts_known


def test_several_sources_are_kept_apart(made: Checkpoint) -> None:
    made.initial({"orders": {"0": 1}}, source=0)
    made.initial({"orders": {"0": 50}}, source=1)
    made.planned(0, {"orders": {"0": 2}}, {"orders": {"0": 60}})
    witness = checkpoint.read(made.storage)
    assert witness.sources == 2
    assert witness.batches[0].ranges == (span("orders", 0, 1, 2, 0), span("orders", 0, 50, 60, 1))


def test_a_source_that_had_no_offset_yet_starts_at_its_own_beginning(made: Checkpoint) -> None:
    made.initial({"orders": {"0": 1}}, source=0)
    made.initial({"late": {"0": 7}}, source=1)
    made.planned(0, {"orders": {"0": 2}}, "-")
    made.planned(1, {"orders": {"0": 2}}, {"late": {"0": 9}})
    first, second = checkpoint.read(made.storage).batches
    assert first.ranges == (span("orders", 0, 1, 2),)
    assert second.ranges == (span("orders", 0, 2, 2), span("late", 0, 7, 9, 1))
    assert checkpoint.read_batch(made.storage, 1) == second


@pytest.mark.parametrize(
    "line",
    [
        "5",  # rate
        {"logOffset": 3},  # files
        {"sourceVersion": 1, "reservoirId": "x", "reservoirVersion": 4, "index": -1, "isStartingVersion": False},
        {"shard": {"0": "49590338271490256608"}},  # offsets that are no numbers
        {"shard": {"a-1": 3}},  # partitions that are no numbers
    ],
)
def test_a_source_that_is_not_kafka_gives_no_ranges(made: Checkpoint, line: Any) -> None:
    made.initial({"orders": {"0": 0}}, source=1)
    made.planned(0, line, {"orders": {"0": 3}})
    made.planned(1, line, {"orders": {"0": 4}})
    first, second = checkpoint.read(made.storage).batches
    assert first.ranges == (span("orders", 0, 0, 3, 1),)
    assert second.ranges == (span("orders", 0, 3, 4, 1),)
    assert first.starts_known
    assert second.starts_known


def test_lookalikes_of_kafka_can_be_left_out(made: Checkpoint) -> None:
    made.planned(0, {"orders": {"0": 3}})
    batch = checkpoint.read(made.storage, topics_are_kafka=False).batches[0]
    assert (batch.ranges, batch.new_partitions, batch.starts_known) == ((), (), True)


def test_version_two_names_its_sources(made: Checkpoint) -> None:
    made.initial({"orders": {"0": 1}}, source=0)
    made.initial({"orders": {"0": 50}}, source=1)
    made.planned(0, {"orders": {"0": 2}}, {"orders": {"0": 60}})
    # upgraded: v1 goes before v2, lines in any order
    made.planned(1, '1:{"orders":{"0":70}}', '0:{"orders":{"0":3}}', version="v2")
    made.planned(2, '1:{"orders":{"0":70}}', '0:{"orders":{"0":5}}', '10:{"late":{"0":5}}', version="v2")
    made.planned(3, "0:-", '1:{"orders":{"0":71}}', version="v2")
    witness = checkpoint.read(made.storage)
    assert witness.sources == 3
    assert witness.batches[1].ranges == (span("orders", 0, 2, 3, 0), span("orders", 0, 60, 70, 1))
    assert not witness.batches[2].starts_known  # source 10 is new and has no sources/10/0
    assert witness.batches[3].ranges == (span("orders", 0, 70, 71, 1),)
    assert checkpoint.read_batch(made.storage, 1) == witness.batches[1]


def test_version_two_with_source_names(made: Checkpoint) -> None:
    made.initial({"orders": {"0": 1}}, source="shop")
    made.initial({"orders": {"0": 4}}, source="app")
    made.planned(0, 'shop:{"orders":{"0":2}}', 'app:{"orders":{"0":6}}', version="v2")
    assert checkpoint.read(made.storage).batches[0].ranges == (
        span("orders", 0, 4, 6, 0),
        span("orders", 0, 1, 2, 1),
    )


def test_temporary_and_checksum_files_are_no_batches(made: Checkpoint) -> None:
    made.initial({"orders": {"0": 0}})
    made.planned(0, {"orders": {"0": 3}})
    for name in (".0.crc", ".1.7a1f.tmp", "1.tmp", "__tmp_path_dir"):
        made.write(f"offsets/{name}", b"junk")
        made.write(f"commits/{name}", b"junk")
    batches = checkpoint.read(made.storage).batches
    assert [(b.batch_id, b.committed) for b in batches] == [(0, False)]


def test_a_topic_that_shrank_keeps_its_numbers(made: Checkpoint) -> None:
    made.initial({"orders": {"0": 0}})
    made.planned(0, {"orders": {"0": 100}})
    made.planned(1, {"orders": {"0": 20}})
    assert checkpoint.read(made.storage).batches[1].ranges == (span("orders", 0, 100, 20),)


def test_a_deleted_partition_has_no_range(made: Checkpoint) -> None:
    made.initial({"orders": {"0": 0, "1": 0}})
    made.planned(0, {"orders": {"0": 100, "1": 3}})
    made.planned(1, {"orders": {"0": 120}})
    assert checkpoint.read(made.storage).batches[1].ranges == (span("orders", 0, 100, 120),)


def test_an_empty_checkpoint_has_no_batches(made: Checkpoint) -> None:
    witness = checkpoint.read(made.storage)
    assert (list(witness.batches), witness.last, witness.sources) == ([], None, 1)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"v", "'v'"),
        (b"v3\n{}\n{}", "'v3'"),
        (b"v1", "1 line"),
        (b"v1\n" + META.encode(), "2 line"),
        (b"v1\n" + META.encode() + b"\n", "2 line"),
        (b'v1\n{"batchWater\n{"orders":{"0":1}}', "line 2 is not JSON"),
        (b'v1\n[]\n{"orders":{"0":1}}', "line 2 is not the micro-batch's metadata"),
        (b"v1\n" + META.encode() + b'\n{"orders":{"0":12', "line 3 is not JSON"),
        (b"v1\n" + META.encode() + b'\n{"orders":{"0":1}}\n', None),  # a newline at the end changes nothing
        (b"v1\n" + META.encode() + b'\n{"orders":{"0":1}}\n{"or', "line 4 is not JSON"),
        (b"v2\n" + META.encode() + b"\nnothing", "line 3 is not `source:offset`"),
        (b'v1\n\xff\xfe\n{"orders":{"0":1}}', "not UTF-8"),
    ],
)
def test_a_torn_offsets_file_is_named(made: Checkpoint, content: bytes, says: str | None) -> None:
    made.initial({"orders": {"0": 0}})
    made.write("offsets/0", content)
    for read in (lambda: checkpoint.read(made.storage), lambda: checkpoint.read_batch(made.storage, 0)):
        if says is None:
            read()
            continue
        with pytest.raises(EvidenceError) as caught:
            read()
        assert same_message(str(caught.value))
        assert says in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"\n"])
def test_an_empty_offsets_file_spoils_its_micro_batch_alone(made: Checkpoint, content: bytes) -> None:
    made.initial({"orders": {"0": 0}})
    made.planned(0, {"orders": {"0": 10}})
    made.committed(0)
    made.write("offsets/1", content)
    witness = checkpoint.read(made.storage)
    (flaw,) = witness.flaws
    assert [batch.batch_id for batch in witness.batches] == [0]
    assert flaw.batch_id == 1 and flaw.problem.endswith("offsets/1: it is empty")
    assert same_message(flaw.step)
    with pytest.raises(EvidenceError, match="it is empty"):
        checkpoint.read_batch(made.storage, 1)


def test_a_source_line_that_is_cut_off_is_torn_not_a_source_less(made: Checkpoint) -> None:
    made.initial({"orders": {"0": 0}}, source=0)
    made.initial({"refunds": {"0": 0}}, source=1)
    made.planned(0, {"orders": {"0": 2}}, {"refunds": {"0": 2}})
    made.planned(1, {"orders": {"0": 3}})
    for read in (lambda: checkpoint.read(made.storage), lambda: checkpoint.read_batch(made.storage, 1)):
        with raises(EvidenceError):
            read()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "it is empty"),
        (b"\0", "it is empty"),
        (b"\0v1", "offsets are missing"),
        (b"\0v1\n", "offsets are missing"),
        (b'\0v7\n{"orders":{"0":1}}', "'v7'"),
        (b'\0v1\n{"orders":{"0"', "not JSON"),
        (b"\0v1\n17", "expected"),
    ],
)
def test_a_torn_source_file_is_named(made: Checkpoint, content: bytes, says: str) -> None:
    made.planned(0, {"orders": {"0": 3}})
    made.write("sources/0/0", content)
    with pytest.raises(EvidenceError) as caught:
        checkpoint.read(made.storage)
    assert same_message(str(caught.value))
    assert says in str(caught.value)


def test_no_checkpoint_at_all_says_what_was_found(tmp_path: Path) -> None:
    with raises(EvidenceError):
        checkpoint.read(Storage(str(tmp_path / "absent")))
    (tmp_path / "_delta_log").mkdir()
    with raises(EvidenceError):
        checkpoint.query_id(Storage(str(tmp_path)))


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"id":3}', '{"id":""}'])
def test_a_metadata_file_without_an_id_is_named(made: Checkpoint, content: str) -> None:
    made.write("metadata", content)
    with raises(EvidenceError):
        checkpoint.query_id(made.storage)


def test_a_batch_that_was_never_planned_is_an_error(made: Checkpoint) -> None:
    with raises(EvidenceError):
        checkpoint.read_batch(made.storage, 3)


def test_a_file_uri_is_a_local_folder(made: Checkpoint) -> None:
    assert checkpoint.query_id(Storage(f"file:{made.folder}")) == "7c9a0f2e-0001"
    assert checkpoint.query_id(Storage(f"file://{made.folder}")) == "7c9a0f2e-0001"


def flaws(made: Checkpoint) -> list[tuple[int, str]]:
    return [(f.batch_id, f.problem.replace(str(made.folder), "cp")) for f in checkpoint.read(made.storage).flaws]


def running(made: Checkpoint, first: int, last: int) -> None:
    """A checkpoint whose newest micro-batch is being written, purged below `first`."""
    made.initial({"orders": {"0": 0}})
    for batch_id in range(first, last + 1):
        made.planned(batch_id, {"orders": {"0": 10 * (batch_id + 1)}})
        if batch_id < last:
            made.committed(batch_id)


@pytest.mark.parametrize("first", [0, 41])
def test_a_purged_checkpoint_whose_newest_micro_batch_runs_has_no_flaw(made: Checkpoint, first: int) -> None:
    running(made, first, 45)
    made.committed(first - 1) if first else None  # commits are purged a moment after the offsets
    assert flaws(made) == []


def test_files_that_are_missing_between_others_are_flaws(made: Checkpoint) -> None:
    running(made, 3, 12)
    for name in ("offsets/5", "offsets/6", "commits/8", "offsets/12"):
        (made.folder / name).unlink()
    made.committed(11)
    made.write("commits/9", "")
    assert flaws(made) == [
        (5, "checkpoint cp has no offsets/5 to offsets/6, though it has offsets/4 and offsets/7"),
        (8, "checkpoint cp has no commits/8, though Spark planned later micro-batches"),
        (9, "checkpoint file cp/commits/9 is empty"),
    ]
    made.committed(12)
    assert flaws(made)[-1] == (12, "checkpoint cp has no offsets/12, though it has commits/12")


def test_a_partition_or_a_source_that_is_named_twice_is_a_flaw(made: Checkpoint) -> None:
    running(made, 0, 3)
    made.planned(1, '{"orders":{"0":20,"0":30}}')
    made.planned(2, '0:{"orders":{"0":30}}', '0:{"orders":{"0":30}}', version="v2")
    assert [batch_id for batch_id, _ in flaws(made)] == [1, 2]
    assert [batch.batch_id for batch in checkpoint.read(made.storage).batches] == [0, 3]
    assert not checkpoint.read(made.storage).batches[1].starts_known
    assert same_message(checkpoint.read(made.storage).flaws[0].problem)


@pytest.mark.parametrize("offset", ["-1", str(2**63), "1.5", '"7"', "null", "true", "[]"])
def test_an_offset_that_kafka_cannot_have_makes_the_checkpoint_unreadable(made: Checkpoint, offset: str) -> None:
    running(made, 0, 2)
    made.planned(1, f'{{"orders":{{"0":{offset}}}}}')
    with raises(EvidenceError):
        checkpoint.read(made.storage)


@pytest.mark.parametrize("millis", ['"today"', "true", "-5", str(10**40), "1e300"])
def test_a_time_that_is_none_makes_the_checkpoint_unreadable(made: Checkpoint, millis: str) -> None:
    running(made, 0, 1)
    made.write("offsets/0", f'v1\n{{"batchTimestampMs":{millis}}}\n{{"orders":{{"0":1}}}}')
    with raises(EvidenceError):
        checkpoint.read(made.storage)
