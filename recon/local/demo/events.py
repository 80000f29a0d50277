"""The records that the demo's two producers send, and the offsets of the faults, computed before anything is read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from recon.local.client import KafkaClient, Record

ORDERS_PARTITIONS = 8
ORDERS_TRANSACTIONS = 80
ORDERS_ABORTED = (11, 29, 47, 71)  # these are aborted first, then sent again
EVENTS_PER_TRANSACTION = 2_500
ORDERS_EVENTS = ORDERS_TRANSACTIONS * EVENTS_PER_TRANSACTION
CRASH_AT = 5  # the micro-batch whose process is killed
_LINES = 4  # lines of an order
_STATUSES = ("new", "paid", "shipped")

PAYMENTS_PARTITIONS = 4
PAYMENTS_BEFORE = 12_000
PAYMENTS_AFTER = 8_000
SENT_TWICE = 40
_SENT_AGAIN = range(0, SENT_TWICE * 307, 307)  # a prime step spreads them over the partitions
EXPIRED_PARTITION = 2
EXPIRED_RECORDS = 700
# payment_id from, to (exclusive): the rows that the DELETE removes. Kafka still holds these records, so that
# the audit can prove that they existed.
DELETED_ROWS = (17_000, 17_100)
DELETED_WHERE = f"payment_id BETWEEN {DELETED_ROWS[0]} AND {DELETED_ROWS[1] - 1}"


@dataclass(frozen=True)
class OrdersSent:
    """The content of the topic orders: `offsets` counts the records that must arrive, those of aborted
    transactions, and transaction markers.
    """

    committed: int
    aborted: int
    offsets: int


def send_orders(kafka: KafkaClient, topic: str) -> OrdersSent:
    """Fills the topic with 200,000 events in transactions; four are aborted and sent again, as a producer does."""
    producer = kafka.transactional(f"{topic}-producer")
    aborted = 0
    for number in range(ORDERS_TRANSACTIONS):
        if number in ORDERS_ABORTED:
            producer.send(topic, _orders(number), "abort")
            aborted += EVENTS_PER_TRANSACTION
        producer.send(topic, _orders(number))
    ends = kafka.offsets(topic)
    return OrdersSent(ORDERS_EVENTS, aborted, sum(end for _, end in ends.values()))


def _orders(transaction: int) -> Iterator[Record]:
    first = transaction * EVENTS_PER_TRANSACTION
    for n in range(first, first + EVENTS_PER_TRANSACTION):
        order, line = divmod(n, _LINES)
        event = {"order_id": order, "line": line + 1, "status": _STATUSES[order % 3], "amount": (n % 9_000) / 100}
        yield Record(str(order), json.dumps(event), order % ORDERS_PARTITIONS)


def send_payments(kafka: KafkaClient, topic: str) -> None:
    """Sends the first payments, then forty of them once more as new records."""
    kafka.produce(topic, map(_payment, [*range(PAYMENTS_BEFORE), *_SENT_AGAIN]))


def send_later_payments(kafka: KafkaClient, topic: str) -> None:
    """Sends the payments that arrive while the job is down."""
    kafka.produce(topic, map(_payment, range(PAYMENTS_BEFORE, PAYMENTS_BEFORE + PAYMENTS_AFTER)))


def _payment(number: int) -> Record:
    event = {"payment_id": number, "customer": f"c-{number % 977}", "amount": (number % 9_000) / 100}
    return Record(str(number), json.dumps(event), number % PAYMENTS_PARTITIONS)


def expired_offsets() -> tuple[int, int]:
    """[start, end) in `EXPIRED_PARTITION`: the first of the later payments, deleted before they are read."""
    start = _before(EXPIRED_PARTITION)
    return start, start + EXPIRED_RECORDS


def deleted_offsets() -> dict[int, tuple[int, int]]:
    """Partition → [start, end): the offsets of the payments that the DELETE removes."""
    first, end = (n - PAYMENTS_BEFORE for n in DELETED_ROWS)
    by_partition = {}
    for partition in range(PAYMENTS_PARTITIONS):
        offsets = [n // PAYMENTS_PARTITIONS for n in range(first, end) if n % PAYMENTS_PARTITIONS == partition]
        by_partition[partition] = (_before(partition) + offsets[0], _before(partition) + offsets[-1] + 1)
    return by_partition


def _before(partition: int) -> int:
    """Records of a partition before the later payments arrive."""
    return sum(n % PAYMENTS_PARTITIONS == partition for n in (*range(PAYMENTS_BEFORE), *_SENT_AGAIN))
