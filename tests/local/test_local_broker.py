"""The local broker, for real: what the audit's tests will do to Kafka must be possible here."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from recon.base.errors import ConfigError, EvidenceError
from recon.local.client import KafkaClient, Record
from recon.local.kafka import running_broker, start_detached, stop_detached
from recon.local.process import command_line
from tests.support.kafka import LocalKafka
from tests.support.marks import long
from tests.support.messages import raises

pytestmark = pytest.mark.kafka
Topic = Callable[..., str]


def rows(count: int, partition: int = 0) -> list[Record]:
    return [Record(f"k{i}", f"v{i}", partition) for i in range(count)]


def test_plain_records_move_the_end_offsets(kafka: LocalKafka, topic: Topic) -> None:
    name = topic("plain", partitions=2)
    assert kafka.produce(name, [*rows(3, 0), *rows(1, 1)]) == 4
    assert kafka.offsets(name) == {0: (0, 3), 1: (0, 1)}
    assert [(one.partition, one.offset, one.key) for one in kafka.read(name)] == [
        (0, 0, b"k0"),
        (0, 1, b"k1"),
        (0, 2, b"k2"),
        (1, 0, b"k0"),
    ]


def test_a_commit_takes_an_offset_for_its_marker(kafka: LocalKafka, topic: Topic) -> None:
    name = topic("committed")
    kafka.transaction(name, rows(5), "commit")
    assert kafka.offsets(name, "read_committed") == {0: (0, 6)}
    assert len(kafka.read(name, "read_committed")) == 5


def test_aborted_records_are_in_the_log_and_only_read_uncommitted_sees_them(kafka: LocalKafka, topic: Topic) -> None:
    name = topic("aborted")
    kafka.transaction(name, rows(5), "abort")
    assert kafka.offsets(name) == {0: (0, 6)}
    assert len(kafka.read(name, "read_uncommitted")) == 5
    assert kafka.read(name, "read_committed") == []


def test_an_open_transaction_holds_the_last_stable_offset_back(kafka: LocalKafka, topic: Topic) -> None:
    name = topic("open")
    kafka.produce(name, rows(2))
    held = kafka.transaction(name, rows(3), "open")
    assert kafka.offsets(name, "read_uncommitted") == {0: (0, 5)}
    assert kafka.offsets(name, "read_committed") == {0: (0, 2)}
    held.commit()
    assert kafka.offsets(name, "read_committed") == {0: (0, 6)}
    assert len(kafka.read(name, "read_committed")) == 5


def test_one_producer_can_run_several_transactions(kafka: LocalKafka, topic: Topic) -> None:
    name = topic("several")
    producer = kafka.transactional()
    producer.send(name, rows(2)).send(name, rows(3), "abort").send(name, rows(4))
    assert kafka.offsets(name) == {0: (0, 12)}
    assert len(kafka.read(name, "read_committed")) == 6


def test_delete_records_moves_the_log_start(kafka: LocalKafka, topic: Topic) -> None:
    name = topic("expired")
    kafka.produce(name, rows(10))
    assert kafka.delete_records({(name, 0): 4}) == {(name, 0): 4}
    assert kafka.offsets(name) == {0: (4, 10)}
    assert [one.offset for one in kafka.read(name)] == [4, 5, 6, 7, 8, 9]


def test_a_topic_made_again_has_another_id_and_starts_at_zero(kafka: LocalKafka, topic: Topic) -> None:
    name = topic("again")
    kafka.produce(name, rows(3))
    before = kafka.topic_id(name)
    kafka.delete_topic(name)
    after = kafka.create_topic(name, partitions=1)
    assert after == kafka.topic_id(name) != before
    assert kafka.offsets(name) == {0: (0, 0)}


def test_partitions_can_be_added(kafka: LocalKafka, topic: Topic) -> None:
    name = topic("grown")
    kafka.produce(name, rows(2))
    kafka.add_partitions(name, 3)
    kafka.produce(name, rows(1, partition=2))
    assert kafka.offsets(name) == {0: (0, 2), 1: (0, 0), 2: (0, 1)}


def test_compaction_leaves_the_last_record_of_each_key_and_holes_between(kafka: LocalKafka, topic: Topic) -> None:
    name = topic("compacted")
    kafka.produce(name, [Record(f"k{i % 3}", str(i), 0) for i in range(30)])
    kafka.compact(name)
    left = [(one.offset, one.key, one.value) for one in kafka.read(name)]
    assert left[:3] == [(27, b"k0", b"27"), (28, b"k1", b"28"), (29, b"k2", b"29")]
    assert len(left) == 4  # and the record that closed the segment
    assert kafka.offsets(name) == {0: (0, 31)}


def test_an_unknown_topic_has_no_offsets_and_is_not_created_by_asking(kafka: LocalKafka) -> None:
    assert kafka.offsets("nobody-made-this") == {}
    assert kafka.offsets("nobody-made-this") == {}


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    with LocalKafka(tmp_path_factory.mktemp("own-broker")) as broker:
        yield broker


def test_it_runs_until_it_is_left(tmp_path: Path) -> None:
    with LocalKafka(tmp_path / "kafka") as broker:
        pid = broker.pid
        assert "kafka.Kafka" in (command_line(pid) or "")
    assert command_line(pid) is None
    log = (tmp_path / "kafka" / "broker.log").read_text()
    assert "Kafka Server started" in log
    assert "shut down completed" in log


@pytest.mark.parametrize("end", ["kill", *long("stop")])
def test_data_and_address_survive_a_restart(own: LocalKafka, end: str) -> None:
    name, address = f"kept-{end}", own.bootstrap_servers
    topic_id = own.create_topic(name)
    own.produce(name, rows(3))
    getattr(own, end)()
    with raises(EvidenceError):
        _ = own.pid
    own.start()
    assert own.bootstrap_servers == address
    assert own.topic_id(name) == topic_id
    assert own.offsets(name) == {0: (0, 3)}


def test_a_taken_port_is_one_sentence_that_names_the_log(own: LocalKafka, tmp_path: Path) -> None:
    second = tmp_path / "second"
    # A broker that ran before, whose ports have been taken since.
    with LocalKafka(second) as before:
        theirs = before.bootstrap_servers.rpartition(":")[2]
    mine = own.bootstrap_servers.rpartition(":")[2]
    properties = second / "server.properties"
    properties.write_text(properties.read_text().replace(f":{theirs}", f":{mine}"))
    with pytest.raises(ConfigError, match=r"did not start: .*; its log is .*second/broker\.log"):
        LocalKafka(second).start()


def test_a_detached_broker_is_started_once_found_again_and_stopped(tmp_path: Path) -> None:
    began = start_detached(tmp_path / "kafka")
    try:
        client = KafkaClient(began.bootstrap_servers)
        client.create_topic("kept")
        client.produce("kept", rows(2))
        assert start_detached(tmp_path / "kafka") == began == running_broker(tmp_path / "kafka")
    finally:
        stopped = stop_detached(tmp_path / "kafka")
    assert stopped == began
    assert command_line(began.pid) is None
    assert running_broker(tmp_path / "kafka") is None
    assert stop_detached(tmp_path / "kafka") is None


def test_stop_never_ends_a_process_that_is_not_the_broker(tmp_path: Path) -> None:
    # A state file whose pid now belongs to somebody else: this very test.
    mine = os.getpid()
    (tmp_path / "broker.json").write_text(
        f'{{"pid": {mine}, "bootstrap_servers": "127.0.0.1:1", "data_dir": "x", "log_file": "y"}}'
    )
    caught: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: caught.append(number))
    try:
        assert stop_detached(tmp_path) is None
    finally:
        signal.signal(signal.SIGTERM, before)
    assert caught == []
    assert not (tmp_path / "broker.json").exists()


def test_a_torn_state_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "broker.json").write_text('{"pid": ')
    with raises(ConfigError):
        running_broker(tmp_path)
