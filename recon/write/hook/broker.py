"""Asks Kafka for the hook. A micro-batch waits for topic ids and log starts, so these have short time limits. The state
of the topics' logs is asked for beside the write, and nothing waits for it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from threading import Thread

from recon.base.clock import utc_now
from recon.base.errors import ReconError
from recon.model.wire.kafka_state import KafkaState, dump_kafka_state
from recon.witness import kafka_logs
from recon.witness.kafka_admin import KafkaAdmin, Key

log = logging.getLogger("recon")

_FRESH_FOR_S = 30.0  # topic ids and offsets are asked for again after this long, and a failed broker is tried again
_STATE_S = 10.0  # the time limit of an answer for which nothing waits


class Broker:
    """Reads topic ids, log starts of new partitions, and the state of logs; what it does not get is unknown."""

    def __init__(self, conf: Mapping[str, str], admin: Callable[[Mapping[str, str]], KafkaAdmin] = KafkaAdmin) -> None:
        self._conf, self._connect = dict(conf), admin
        self._ids: dict[str, str | None] = {}
        self._read_at = float("-inf")
        self._asked_at = float("-inf")
        self._asking: _Question | None = None

    @cached_property
    def _admin(self) -> KafkaAdmin:
        return self._connect(self._conf)

    @property
    def _is_configured(self) -> bool:
        return "bootstrap.servers" in self._conf

    def topic_ids(self, topics: Sequence[str]) -> Mapping[str, str | None]:
        """The id of each topic, None where the broker does not give it within 3 s; read again every half minute."""
        fresh = time.monotonic() - self._read_at < _FRESH_FOR_S
        if not topics or not self._is_configured or (fresh and set(topics) <= set(self._ids)):
            return self._ids
        self._read_at = time.monotonic()
        try:
            self._ids = dict(self._admin.topic_ids(topics, timeout_s=3))
        except ReconError as error:
            log.warning("topic ids are unknown for now: %s", error)
            self._ids = dict.fromkeys(topics)
        return self._ids

    def log_starts(self, partitions: Sequence[Key]) -> Mapping[Key, int]:
        """The log start of each (topic, partition) that the broker gives within 3 s."""
        if not self._is_configured:
            return {}
        try:
            return dict(self._admin.log_starts(partitions, timeout_s=3))
        except ReconError as error:
            log.warning("the log start of new partitions is unknown, taken as 0: %s", error)
            return {}

    def ask_state(self, partitions: Collection[Key], after: int) -> None:
        """Begins to ask for the state of these logs, while nothing waits; `after` is `KafkaState.after`.

        Leader epochs are asked for each time, unless the last answer is still awaited; offsets every half minute.
        """
        if (self._asking is not None and self._asking.is_alive()) or not self._is_configured or not partitions:
            return
        offsets = time.monotonic() - self._asked_at >= _FRESH_FOR_S
        if offsets:
            self._asked_at = time.monotonic()
        self._asking = _Question(self._admin, sorted(set(partitions)), after, offsets=offsets)
        self._asking.start()

    @property
    def was_asked(self) -> bool:
        """Whether the state of logs was ever asked for."""
        return self._asking is not None

    def state(self) -> str | None:
        """The broker's newest answer as an entry has it, once; None where there is none that no entry has yet."""
        if self._asking is None or self._asking.is_alive():
            return None
        answer, self._asking.answer = self._asking.answer, None
        return answer


class _Question(Thread):
    """One question to the broker, answered while the hook does other things."""

    def __init__(self, admin: KafkaAdmin, partitions: Sequence[Key], after: int, *, offsets: bool) -> None:
        super().__init__(name="recon-kafka-state", daemon=True)
        self._admin, self._partitions, self._after, self._offsets = admin, partitions, after, offsets
        self._asked_at = utc_now()
        self.answer: str | None = None

    def run(self) -> None:
        """Asks; without an answer the state stays unknown."""
        try:
            ask = kafka_logs.offsets if self._offsets else kafka_logs.leader_epochs
            topics = ask(self._admin, self._partitions, _STATE_S)
            cluster = self._admin.cluster(topics, _STATE_S) if self._offsets else None
        except Exception as error:  # the thread has no caller to tell
            log.debug("the state of Kafka's logs is unknown for now: %s", error)
            return
        state = KafkaState(asked_at=self._asked_at, after=self._after, topics=topics, cluster=cluster)
        self.answer = dump_kafka_state(state)
