"""What a probe reads from Kafka to tell what offsets without a row are, against the whole topic.

A topic of 4 partitions holds 800,000 records of 1 KB, written in transactions of 1,000 records a partition: 800
markers, which no row of a sink carries. Ours: megabytes that `recon.witness.kafka_probe` receives when it is asked
about these offsets. Floor: megabytes that a consumer receives that reads the topic once. Seconds of both are printed.
In `peers`: the same where one marker in ten, and one in a hundred, is asked about.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from recon.local.kafka import LocalKafka
from recon.model.offsets import Spans
from recon.witness.kafka_probe import probe

TOPIC, PARTITIONS, TRANSACTIONS, RECORDS, BYTES = "probed", 4, 200, 1000, 1000
RUNS = 3


def run() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        broker = LocalKafka(Path(folder)).start()
        try:
            _fill(broker)
            conf = {"bootstrap.servers": broker.bootstrap_servers}
            everything = [_received(conf, _read_all) for _ in range(RUNS)]
            asked = {
                every: [_received(conf, partial(_ask, every=every)) for _ in range(RUNS)] for every in (1, 10, 100)
            }
        finally:
            broker.stop()
    named = {"the topic read once": everything, **{f"1 marker in {every}": asked[every] for every in asked}}
    for name, taken in named.items():
        print(f"{name}: {_median(taken, 0):.1f} MB, {_median(taken, 1):.2f} s")
    ours, floor = _median(asked[1], 0), _median(everything, 0)
    return {
        "name": "probe",
        "ours": ours,
        "floor": floor,
        "ratio": ours / floor,
        "unit": "MB",
        "peers": {f"1 marker in {every}": _median(asked[every], 0) / floor for every in (10, 100)},
    }


def _median(taken: list[tuple[float, float]], place: int) -> float:
    return statistics.median(pair[place] for pair in taken)


def _fill(broker: LocalKafka) -> None:
    """Each transaction has so many records in each partition, and then a marker in each."""
    from confluent_kafka import Producer

    broker.create_topic(TOPIC, PARTITIONS)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "bench", "linger.ms": 20})
    producer.init_transactions(30)
    value = bytes(range(250)) * (BYTES // 250)
    for _ in range(TRANSACTIONS):
        producer.begin_transaction()
        for n in range(RECORDS * PARTITIONS):
            producer.produce(TOPIC, value, partition=n % PARTITIONS)
            producer.poll(0)
        producer.commit_transaction(30)


def _received(conf: Mapping[str, str], read: Callable[[Mapping[str, Any]], None]) -> tuple[float, float]:
    """(megabytes that librdkafka's clients received, seconds)."""
    by_client: dict[str, int] = {}

    def count(text: str) -> None:
        told = json.loads(text)
        by_client[told["name"]] = told["rx_bytes"]

    began = time.perf_counter()
    read({**conf, "stats_cb": count, "statistics.interval.ms": "10"})
    return sum(by_client.values()) / 1e6, time.perf_counter() - began


def _ask(conf: Mapping[str, Any], every: int) -> None:
    markers = [(RECORDS + 1) * n + RECORDS for n in range(TRANSACTIONS)][::every]
    questions = {(TOPIC, p): Spans.of((at, at + 1) for at in markers) for p in range(PARTITIONS)}
    for answer in probe(conf, questions).values():
        assert answer.truncated is None and not answer.uncommitted and not answer.committed, answer


def _read_all(conf: Mapping[str, Any]) -> None:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({**conf, "group.id": "bench", "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, p, 0) for p in range(PARTITIONS)])
    left = TRANSACTIONS * RECORDS * PARTITIONS
    while left:
        left -= len(consumer.consume(10_000, 0.5))
    time.sleep(0.05)
    consumer.poll(0)
    consumer.close()
