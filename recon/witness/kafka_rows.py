"""Looks single source records up in the topic of a Kafka sink, by the headers that recon adds to its records."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import Any

from recon.base.errors import EvidenceError
from recon.model.sample import FoundRow, Place
from recon.model.wire.columns import BATCH_ID, PIPELINE_HEADER, SINK_HEADER, SOURCE_COLUMNS
from recon.model.wire.markers import Owner
from recon.witness.kafka_admin import KafkaAdmin, received
from recon.witness.lazy import ck

_RECORDS, _SECONDS = 2_000_000, 60  # after which a search of the topic is given up


def find(
    conf: Mapping[str, str], owner: Owner, starts: Mapping[int, int], places: Collection[Place]
) -> dict[Place, list[FoundRow]]:
    """The committed records of an owner's topic that were made of these source records.

    Args:
        conf: librdkafka configuration.
        owner: the pipeline, the sink and its topic.
        starts: the offset to read from, by partition of the topic.
        places: the source records.

    Raises:
        EvidenceError: the topic was not read to its end, so that what was not found may be there.
    """
    admin = KafkaAdmin(conf)
    topic, deadline = owner.target, time.monotonic() + _SECONDS
    known = admin.offsets([(topic, partition) for partition in starts], deadline)
    positions: dict[tuple[str, int], int] = {}
    for key, partition in known.items():
        if partition is None or starts[key[1]] < partition.log_start:
            raise EvidenceError(f"topic {topic} no longer has all records since offset {starts[key[1]]} of {key[1]}")
        if starts[key[1]] < partition.last_stable:
            positions[key] = starts[key[1]]
    wanted, found, left = set(places), dict[Place, list[FoundRow]](), set(positions)
    read = 0
    with admin.consumer("read_committed", positions) as consumer:
        while left:
            if read > _RECORDS or time.monotonic() > deadline:
                raise EvidenceError(
                    f"topic {topic} was not read to its end in {_SECONDS} s or {_RECORDS:,} records; look for the "
                    "record with a consumer of your own"
                )
            for message in received(consumer, 10_000, 0.5):
                error = message.error()
                if error is not None:
                    if error.code() != ck.KafkaError._PARTITION_EOF:
                        raise EvidenceError(f"topic {topic} cannot be read: {admin.safe(error.str())}")
                    left.discard((message.topic(), message.partition()))
                    continue
                read += 1
                row = _row(message, owner)
                if row is not None and row[0] in wanted:
                    found.setdefault(row[0], []).append(row[1])
    return found


def _row(message: Any, owner: Owner) -> tuple[Place, FoundRow] | None:
    """The source record of a record that this owner wrote; recon's headers were added last."""
    headers = dict(message.headers() or ())
    try:
        mine = (headers[PIPELINE_HEADER], headers[SINK_HEADER]) == (owner.pipeline.encode(), owner.sink.encode())
        topic, partition, offset = (headers[name] for name in SOURCE_COLUMNS)
        place = (topic.decode(), int(partition), int(offset))
        row = FoundRow(f"{message.topic()}-{message.partition()} offset {message.offset()}", int(headers[BATCH_ID]))
        return (place, row) if mine else None
    except (KeyError, ValueError, AttributeError):  # a record of another writer
        return None
