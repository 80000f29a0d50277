"""Topic ids and log starts from Kafka, for the hook: with short time limits, since a micro-batch waits for them."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from functools import cached_property

from recon.errors import EvidenceError
from recon.evidence.kafka_admin import KafkaAdmin

log = logging.getLogger("recon")

_TOPIC_IDS_FOR_S = 30.0  # topic ids are read again after this long, and a failed broker is tried again


class Broker:
    """Reads topic ids, and log starts of new partitions; what a broker does not give within 3 s is unknown."""

    def __init__(self, conf: Mapping[str, str]) -> None:
        self._conf = dict(conf)
        self._ids: dict[str, str | None] = {}
        self._read_at = float("-inf")

    @cached_property
    def _admin(self) -> KafkaAdmin:
        return KafkaAdmin(self._conf)

    def topic_ids(self, topics: Sequence[str]) -> Mapping[str, str | None]:
        """The id of each topic, None where the broker does not give it; read again every half minute."""
        fresh = time.monotonic() - self._read_at < _TOPIC_IDS_FOR_S
        if not topics or "bootstrap.servers" not in self._conf or (fresh and set(topics) <= set(self._ids)):
            return self._ids
        self._read_at = time.monotonic()
        try:
            self._ids = dict(self._admin.topic_ids(topics, timeout_s=3))
        except EvidenceError as error:
            log.warning("topic ids are unknown for now: %s", error)
            self._ids = dict.fromkeys(topics)
        return self._ids

    def log_starts(self, partitions: Sequence[tuple[str, int]]) -> Mapping[tuple[str, int], int]:
        """The log start of each (topic, partition) that the broker gives."""
        if "bootstrap.servers" not in self._conf:
            return {}
        try:
            return dict(self._admin.log_starts(partitions, timeout_s=3))
        except EvidenceError as error:
            log.warning("the log start of new partitions is unknown, taken as 0: %s", error)
            return {}
