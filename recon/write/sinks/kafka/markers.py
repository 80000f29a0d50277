"""The driver's side of the marker topic: it reads the sink's markers, and commits plans and batch markers.

Tasks commit their own markers with their rows (recon.write.sinks.kafka.task); the format of the records is
recon.model.wire.markers, the way they are read past open transactions recon.witness.kafka_markers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from typing import Any

from recon.base.errors import SinkError
from recon.model import ReconStamp
from recon.model.wire.markers import BATCH, TASK, BatchMarker, Owner, Plan, batch_key, parse_key, plan_key
from recon.project import KafkaSink
from recon.witness import kafka_markers
from recon.witness.kafka_admin import KafkaAdmin
from recon.witness.kafka_markers import Markers
from recon.write.sinks.kafka.producer import INIT_S, cause_of, client_conf, open_producer, sentence, transactional_id

_KEPT_DAYS = 30  # that markers must stay at least, where the topic also deletes by age
# Whether a record that is not committed yet, by key and offset, has to be waited for.
Decides = Callable[[bytes, int], bool]


class MarkerTopic:
    """The markers of one sink, as far as they were read, and the driver's transactional producer."""

    def __init__(self, conf: Mapping[str, str], owner: Owner, sink: KafkaSink) -> None:
        """Nothing is read before the first call of a method."""
        self._conf, self._owner, self._sink = conf, owner, sink
        self.topic = sink.marker_topic
        self._driver: Any = None  # the driver's transactional producer
        self._opened = False
        self._markers: Markers | None = None
        self._from_begin = False  # whether `_markers` was read from the topic's beginning

    @cached_property
    def _admin(self) -> KafkaAdmin:
        return KafkaAdmin(self._conf)

    # -- read --------------------------------------------------------------------------------------

    def take_over(self, name: str) -> None:
        """Fence the driver that wrote this sink before: it commits neither a plan nor a batch marker any more.

        What is read from the topic from here on holds all that it has completed. `name` is for errors.
        """
        if self._driver is None:
            self._require_compacted(name)
            self._driver = self._fencing("driver", name, reports=True)

    def opened(self, name: str) -> Markers:
        """The markers, once this driver is the only one that may write them, and no task of another one writes."""
        if not self._opened:
            self.take_over(name)
            # Markers that `log` began to read at the ledger's end are enough: older ones are complete, and `batch`
            # finds them. Those that were read before the other driver was fenced may lack what it has committed since.
            markers = self.read(self._markers, name, decides=lambda key, _: False)
            for plan in markers.unfinished:
                # Transactions that its tasks left open hide what was written after them, and hold back readers.
                self.fence(range(plan.tasks), name)
            self._markers = self.read(markers, name, decides=lambda key, _: parse_key(key).kind != TASK)
            self._opened = True
        assert self._markers is not None
        return self._markers

    def read(self, known: Markers | None, name: str, decides: Decides | None = None) -> Markers:
        """What follows on `known` in the topic; raises SinkError where the topic is gone."""
        markers = self._read(known, decides)
        if markers is None:
            raise SinkError(f"{name}: marker topic {self.topic} is gone; restart the query")
        return markers

    def all(self, since: datetime | None = None) -> Markers | None:
        """The markers of batches, at least from an instant on; None where there is no topic."""
        known = self._markers if self._from_begin else None
        markers = self._read(known, lambda key, _: parse_key(key).kind == BATCH, since)
        self._from_begin = markers is not None and (self._from_begin or since is None)
        self._markers = markers
        return markers

    def _read(self, known: Markers | None, decides: Decides | None, since: datetime | None = None) -> Markers | None:
        return kafka_markers.read(
            self._conf, self.topic, self._owner, known=known, since=since, decides=decides, admin=self._admin
        )

    def known(self) -> Markers | None:
        """The markers as far as they were read; all of them where none were read yet, None where there is no topic."""
        return self._markers if self._markers is not None else self.all()

    def batch(self, stamp: ReconStamp) -> BatchMarker | None:
        """The batch marker of a micro-batch."""
        name = (stamp.epoch, stamp.batch_id)
        if self._markers is not None and name in self._markers.batches:
            return self._markers.batches[name]
        markers = None if self._from_begin and self._markers is not None else self.all()
        return None if markers is None else markers.batches.get(name)

    def newest_plan(self) -> Plan | None:
        """The plan of the newest write; None where there is none."""
        if self._markers is not None and self._markers.plan is not None:
            return self._markers.plan
        markers = self.all()
        return None if markers is None else markers.plan

    # -- write -------------------------------------------------------------------------------------

    def begin(self, plan: Plan, stamp: ReconStamp) -> Plan:
        """Commit a plan: from here on tasks of any other plan write nothing."""
        plan = replace(plan, offset=self._commit(plan_key(self._owner), plan.dump(), stamp.label))
        if self._markers is not None:
            self._markers.plan = plan
        return plan

    def finish(self, marker: BatchMarker, stamp: ReconStamp) -> None:
        """Commit a batch marker."""
        offset = self._commit(batch_key(self._owner, stamp.epoch, stamp.batch_id), marker.dump(), stamp.label)
        markers = self.opened(stamp.label)
        # Nothing before our own newest record can matter to the tasks of the next micro-batch.
        markers.position = offset + 1
        markers.tasks.clear()
        markers.batches[stamp.epoch, stamp.batch_id] = marker

    def driver(self, name: str) -> Any:
        """The driver's transactional producer; `name` is for errors."""
        self.take_over(name)
        return self._driver

    def fence(self, tasks: Iterable[int], name: str) -> None:
        """End the open transactions of tasks."""
        for task in tasks:
            self._fencing(task, name)

    def _fencing(self, producer_id: str | int, name: str, *, reports: bool = False) -> Any:
        """A producer that has fenced an earlier one of its id, and ended that one's transaction."""
        producer = open_producer(self._conf, transactional_id(self._owner, producer_id), reports=reports)
        try:
            producer.init_transactions(INIT_S)
        except Exception as error:
            raise self._error(error, producer, name) from None
        return producer

    def _commit(self, key: bytes, value: bytes, name: str) -> int:
        """Commit one record of the driver's; returns its offset."""
        offsets: list[int] = []
        try:
            self._driver.begin_transaction()
            self._driver.produce(
                self.topic,
                key=key,
                value=value,
                partition=kafka_markers.PARTITION,
                on_delivery=lambda error, message: None if error else offsets.append(message.offset()),
            )
            self._driver.flush(INIT_S)
            self._driver.commit_transaction(INIT_S)
        except Exception as error:
            raise self._error(error, self._driver, name, self.topic) from None
        if not offsets:
            raise SinkError(f"{name}: Kafka did not report the marker's offset; restart the query")
        return offsets[0]

    def _error(self, error: BaseException, producer: Any, name: str, topic: str | None = None) -> SinkError:
        cause = cause_of(error, producer)
        return SinkError(sentence(name, cause, self._conf, self._owner, topic or self._owner.target))

    # -- the topic ---------------------------------------------------------------------------------

    def _require_compacted(self, name: str) -> None:
        topic = self.topic
        servers = self._conf.get("bootstrap.servers")
        if self._admin.ends((topic, kafka_markers.PARTITION)) is None:
            self._create_topic(name)
        settings = self._admin.settings([topic]).get(topic)
        if settings is None:
            raise SinkError(
                f"{name}: the broker does not show whether marker topic {topic} is compacted; grant this user "
                "DescribeConfigs on it"
            )
        policies = {p.strip() for p in settings.get("cleanup.policy", "").split(",")}
        retention = int(settings.get("retention.ms", "-1"))
        kept = "delete" not in policies or retention < 0 or retention >= _KEPT_DAYS * 86_400_000
        if "compact" not in policies or not kept:
            policy = f"cleanup.policy={settings.get('cleanup.policy')}" + (
                "" if kept else f", retention.ms={retention}"
            )
            raise SinkError(
                f"{name}: marker topic {topic} is not compacted ({policy}), so Kafka would drop the "
                f"markers that keep a replay from writing twice; run: kafka-configs --bootstrap-server {servers} "
                f"--alter --topic {topic} --add-config cleanup.policy=compact; nothing was written"
            )

    def _create_topic(self, name: str) -> None:
        import confluent_kafka.admin as admin

        topic = self.topic
        # One partition: the order of plans and markers is then the order of the log. The broker's own clock on them.
        new = admin.NewTopic(  # type: ignore[attr-defined]
            topic,
            num_partitions=1,
            replication_factor=self._sink.marker_replication_factor or -1,
            config={"cleanup.policy": "compact", "message.timestamp.type": "LogAppendTime"},
        )
        try:
            client = admin.AdminClient(client_conf(self._conf))
            client.create_topics([new])[topic].result(30)
        except Exception as error:
            first = error.args[0] if error.args else error
            if getattr(first, "name", lambda: "")() != "TOPIC_ALREADY_EXISTS":
                text = first.str() if hasattr(first, "str") else str(first)
                raise SinkError(
                    f"{name}: marker topic {topic} is not there and could not be created: "
                    f"{self._admin.safe(text)}; create it with one partition and cleanup.policy=compact, or grant "
                    "this user Create"
                ) from None
        deadline = time.monotonic() + 30
        while self._admin.ends((topic, kafka_markers.PARTITION)) is None:
            if time.monotonic() > deadline:
                raise SinkError(f"{name}: marker topic {topic} was created and has no leader; restart the query")
            time.sleep(0.05)
