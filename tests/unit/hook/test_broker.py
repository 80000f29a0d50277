"""What the hook asks the broker for while nothing waits: leader epochs each time, offsets now and then."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from recon.base.errors import EvidenceError
from recon.model import KafkaPartition
from recon.model.wire.kafka_state import Cluster, KafkaState, parse_kafka_state
from recon.write.hook.broker import Broker

PLACES = [("orders", 1), ("orders", 0), ("returns", 0)]


class Admin:
    """A broker whose partition p of any topic has the log [p, 100), and which answers when it is let."""

    def __init__(self) -> None:
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.fails = False

    def leader_epochs(self, places: Any, timeout_s: float) -> dict[Any, int]:
        self.may_answer.wait(10)
        if self.fails:
            raise EvidenceError("no broker")
        return {(topic, p): 7 + p for topic, p in places}

    def cluster(self, topics: Any, timeout_s: float) -> Cluster:
        return Cluster("cluster-1", {topic: f"id of {topic}" for topic in topics})

    def offsets(self, places: Any, deadline: float) -> dict[Any, KafkaPartition | None]:
        epochs = self.leader_epochs(places, 0)
        made = {
            (topic, p): KafkaPartition(
                partition=p, log_start=p, log_end=99, high_watermark=100, last_stable=99, leader_epoch=epochs[topic, p]
            )
            for topic, p in places
        }
        return {**made, ("orders", 9): None}


@pytest.fixture
def admin() -> Any:
    return Admin()


@pytest.fixture
def broker(admin: Any) -> Broker:
    return Broker({"bootstrap.servers": "b:9092"}, lambda _: admin)


@pytest.fixture
def asked(admin: Admin) -> Callable[[Broker, int], KafkaState | None]:
    def ask(of: Broker, after: int) -> KafkaState | None:
        of.ask_state(PLACES, after)
        for thread in threading.enumerate():
            if thread.name == "recon-kafka-state":
                thread.join(10)
        text = of.state()
        return None if text is None else parse_kafka_state(text)

    return ask


def test_the_first_answer_has_offsets_and_the_next_leader_epochs_alone(asked: Any, broker: Broker) -> None:
    first, second = asked(broker, 3), asked(broker, 4)
    assert (first.after, second.after) == (3, 4)
    orders = first.topics["orders"]
    assert (orders.partition, orders.leader_epoch, orders.log_start) == ([0, 1], [7, 8], [0, 1])
    assert (orders.last_stable, orders.high_watermark) == ([99, 99], [100, 100])
    assert second.topics["orders"].leader_epoch == [7, 8] and second.topics["orders"].log_start is None
    assert first.cluster == Cluster("cluster-1", {"orders": "id of orders", "returns": "id of returns"})
    assert second.cluster is None
    assert set(first.topics) == set(second.topics) == {"orders", "returns"}


def test_an_answer_is_given_once(asked: Any, broker: Broker) -> None:
    assert asked(broker, 1) is not None
    assert broker.state() is None


def test_nothing_waits_for_an_answer_and_a_late_one_is_of_the_moment_it_was_asked(
    admin: Admin, asked: Any, broker: Broker
) -> None:
    admin.may_answer.clear()
    broker.ask_state(PLACES, 1)
    assert broker.was_asked and broker.state() is None
    broker.ask_state(PLACES, 2)  # it is still awaited
    admin.may_answer.set()
    assert asked(broker, 3).after in (1, 3)


def test_without_an_answer_the_state_is_unknown(admin: Admin, asked: Any, broker: Broker) -> None:
    admin.fails = True
    assert asked(broker, 1) is None
    admin.fails = False
    assert asked(broker, 2) is not None


def test_a_hook_without_a_broker_asks_nobody(asked: Any) -> None:
    of = Broker({})
    assert asked(of, 1) is None and not of.was_asked
