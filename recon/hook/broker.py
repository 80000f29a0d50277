"""What the hook asks Kafka while a micro-batch waits."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence

from recon.errors import EvidenceError
from recon.evidence.kafka_admin import KafkaAdmin

log = logging.getLogger("recon")

_TOPIC_IDS_LIVE_S = 30.0  # a topic id is asked for again after this long; a failed broker is retried then too


class Broker:
    """What the hook asks Kafka: topic ids, and log starts of new partitions. Never blocks a batch for long."""

    def __init__(self, conf: Mapping[str, str]) -> None:
        self._conf = dict(conf)
        self._admin: KafkaAdmin | None = None
        self._ids: dict[str, str | None] = {}
        self._asked = float("-inf")

    def topic_ids(self, topics: Sequence[str]) -> Mapping[str, str | None]:
        """The topics' ids as far as the broker tells them; asked again every half minute."""
        fresh = time.monotonic() - self._asked < _TOPIC_IDS_LIVE_S
        if not topics or "bootstrap.servers" not in self._conf or (fresh and set(topics) <= set(self._ids)):
            return self._ids
        self._asked = time.monotonic()
        try:
            self._ids = dict(self._opened().topic_ids(topics, timeout_s=3))
        except EvidenceError as error:
            log.warning("topic ids are unknown for now: %s", error)
            self._ids = dict.fromkeys(topics)
        return self._ids

    def log_starts(self, wanted: Sequence[tuple[str, int]]) -> Mapping[tuple[str, int], int]:
        """The log start of each (topic, partition), as far as the broker tells it."""
        if "bootstrap.servers" not in self._conf:
            return {}
        try:
            return dict(self._opened().log_starts(wanted, timeout_s=3))
        except EvidenceError as error:
            log.warning("the log start of new partitions is unknown, taken as 0: %s", error)
            return {}

    def _opened(self) -> KafkaAdmin:
        if self._admin is None:
            self._admin = KafkaAdmin(self._conf)
        return self._admin
