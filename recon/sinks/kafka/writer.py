"""Write records to a Kafka topic: exactly once by transactions with markers, or plainly at least once.

Each Spark task writes the rows of its share and one marker record to a compacted marker topic in ONE Kafka
transaction (KIP-98), so a share is in the topic if and only if its marker is. A replay runs the same tasks again; those
whose marker is committed write nothing and compare counts and hashes instead. When all are done the driver writes a
batch marker, which `confirm`, `landed` and `log` read. Readers of the topic need `isolation.level=read_committed`.

What makes it hold:

- *The same rows in the same task.* Rows are dealt to tasks by (_source_topic, _source_partition) alone, sorted by
  offset, and the number of tasks stands in a plan that the driver commits first: a replay takes the plan's number,
  whatever recon.yml says now. Adaptive execution leaves a `repartition(n, column)` alone (it coalesces and splits only
  what it introduced itself), and every task verifies that each of its rows is its own.
- *A dead or slow attempt that is still writing* (an executor that outlives its driver, a speculative or retried task).
  transactional.id is per (pipeline, sink, topic, task), and a task begins with init_transactions: the coordinator
  aborts or completes the id's open transaction, fences its producer by a higher epoch, and answers only when the
  outcome stands in all partitions (KIP-98; KIP-360 and KIP-890 closed the remaining holes in brokers). The look at the
  markers comes AFTER that: what the earlier attempt could commit is committed by then, and it commits nothing more.
- *A marker that is committed and not seen.* A committed reader ends at the last stable offset, which any open
  transaction in the marker topic holds back. So the look goes on behind it with an uncommitted reader, and waits if a
  record of this task stands there (recon.evidence.kafka_markers).
- *An attempt that wakes up late*, after the driver was replaced: it is the newest of its id and nobody fences it. It
  meets a plan newer than its own in the marker topic, and writes nothing.
- *Two drivers.* The driver has a transactional.id, too. The one that starts last fences the other, which then can
  commit neither a plan nor a batch marker; tasks of both for one micro-batch fence each other and are the same rows.
- *A checkpoint that starts over (a new epoch) while a micro-batch of the old one is written in part.* Its rows are in
  the topic, and no ledger entry tells. The driver commits its own plan, fences the tasks of the unfinished one, and
  looks at their markers: where the new micro-batch would read their source records again it stops, unless
  `on_new_epoch: warn`.
- *A transform that gives other rows on the replay.* A task compares number and hash of its source records with the
  marker, and the driver those of tasks that now have no rows: an error. Other keys or values of the same source records
  (a processing time) double and lose nothing: a warning.

Not covered: a target or marker topic that is deleted, or loses acknowledged records by unclean leader election.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from recon.errors import EvidenceError, SinkError
from recon.evidence import kafka_markers
from recon.evidence.kafka import read as read_topics
from recon.evidence.kafka_admin import KafkaAdmin
from recon.evidence.kafka_markers import Markers
from recon.model import ReconStamp, SinkLog, parse_offsets, same_ranges
from recon.model.wire import markers
from recon.model.wire.columns import (
    BATCH_ID,
    EPOCH_HEADER,
    KAFKA_COLUMNS,
    PIPELINE_HEADER,
    SINK_HEADER,
    SOURCE_COLUMNS,
    SOURCE_OFFSET,
    SOURCE_PARTITION,
    SOURCE_TOPIC,
    STAMPED_COLUMNS,
)
from recon.model.wire.markers import BatchMarker, Owner, Plan, batch_key, plan_key
from recon.project import KafkaSink, Project
from recon.sinks import failpoints
from recon.sinks.base import BatchSink, Landed
from recon.sinks.kafka import task as kafka_task
from recon.sinks.kafka.task import Job
from recon.spark.columns import quoted
from recon.spark.lazy import F

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, Row, SparkSession
    from pyspark.sql.types import StructType

log = logging.getLogger("recon")

_TASKS = 8
_KEPT_DAYS = 30
_TRANSACTION_S = 60.0
_SAMPLE = 200
_JSON = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}  # Spark's own keeps milliseconds only
_SINK_ERROR = re.compile(r"recon\.errors\.SinkError: (.+)")


class KafkaWriter(BatchSink):
    """Writes micro-batches as records of one topic."""

    def __init__(self, project: Project, pipeline: str, sink: KafkaSink) -> None:
        """Nothing is asked of the broker before the first question or write."""
        self.sink, self.conf = sink, {**project.kafka, **sink.kafka}
        self.owner = Owner(pipeline, sink.name, sink.target)
        self._connection: KafkaAdmin | None = None
        self._driver: Any = None  # the driver's transactional producer
        self._record: Markers | None = None
        self._whole = False  # the record was read from its beginning
        self._done: BatchMarker | None = None
        self._plain: int | None = None  # rows of the last plain write
        self._starts: Mapping[int, int] = {}

    @classmethod
    def of(cls, project: Project, pipeline: str, sink: KafkaSink) -> KafkaWriter:
        """The writer for a sink of recon.yml."""
        return cls(project, pipeline, sink)

    # -- write -------------------------------------------------------------------------------------

    def write(self, frame: DataFrame, stamp: ReconStamp) -> None:
        """Write the micro-batch; what an earlier attempt committed of it stays and is not written again."""
        self._done = self._plain = None
        columns = self._columns(frame, stamp)
        if not self.sink.transactional:
            self._starts = self._target_ends(stamp)
            job = self._job(stamp, marker_topic=None)
            self._plain = sum(report.rows for report in self._run(frame.select(*columns), job))
            return
        record = self._opened(stamp)
        complete = record.batches.get((stamp.epoch, stamp.batch_id))
        if complete is not None:
            self._require_ours(complete, stamp)
            self._done = complete
            return
        unfinished = record.unfinished
        ours = unfinished is not None and _same_batch(unfinished, stamp)
        if unfinished is not None and not ours:
            self._require_apart(unfinished, record, stamp)
        tasks = unfinished.tasks if unfinished is not None and ours else self._tasks(stamp)
        position = record.position
        known = {m.task: m for m in record.of(stamp.epoch, stamp.batch_id)}
        plan = self._begin(frame, stamp, tasks, unfinished if ours else None)
        self.failpoint(failpoints.PLANNED, stamp)
        if unfinished is not None and not ours:
            # Whoever still writes for it: from here on it meets our plan, or was fenced, or had committed.
            self._fence(range(unfinished.tasks), stamp)
            again = self._read(Markers(position=position, tasks=dict(record.tasks)), stamp)
            self._require_apart(unfinished, again, stamp)
            # Its markers may have our number, where a checkpoint was thrown away before the ledger had an entry of it.
            position, known = again.position, {}
        job = self._job(
            stamp,
            marker_topic=self.sink.marker_topic,
            tasks=tasks,
            plan=plan.offset,
            position=position,
            known=known,
        )
        reports = self._run(self._dealt(frame.select(*columns), tasks), job)
        self._compare(job, reports, stamp, replayed=ours)
        self.failpoint(failpoints.TASKS_COMMITTED, stamp)
        marker = BatchMarker(
            stamp=stamp,
            tasks=tasks,
            rows=sum(report.rows for report in reports),
            ids=kafka_task.total(report.ids for report in reports),
            content=kafka_task.total(report.content for report in reports),
            starts=plan.starts,
            at=datetime.now(UTC),
        )
        offset = self._put(batch_key(self.owner, stamp.epoch, stamp.batch_id), marker.dump(), stamp)
        # Nothing before our own newest record can matter to the tasks of the next micro-batch.
        record.position = offset + 1
        record.tasks.clear()
        record.batches[stamp.epoch, stamp.batch_id] = self._done = marker
        self.failpoint(failpoints.MARKED, stamp)

    def confirm(self, stamp: ReconStamp) -> Landed:
        """The batch marker, which the broker acknowledged as committed; for plain records what was acknowledged."""
        if not self.sink.transactional:
            return Landed(version=None, rows=self._plain)
        if self._done is None:
            raise SinkError(
                f"{stamp.label} left no batch marker in {self.sink.marker_topic}; restart the query, which completes it"
            )
        self._require_ours(self._done, stamp)
        return Landed(version=None, rows=self._done.rows)

    def landed(self, stamp: ReconStamp, version: int | None) -> Landed | None:
        """The batch marker of an earlier attempt; without markers the ledger is trusted."""
        if not self.sink.transactional:
            return Landed(version=None, rows=None)
        found = self._marked(stamp)
        if found is None or not same_ranges(found.stamp.offsets_text, stamp.offsets_text):
            return None
        return Landed(version=None, rows=found.rows)

    def log(self, after: int | None = None, since: datetime | None = None) -> SinkLog:
        """The batch markers, from an instant on."""
        where = f"{self.sink.marker_topic} (markers of topic {self.sink.target})"
        if not self.sink.transactional:
            return SinkLog(location=f"topic {self.sink.target}", exists=True, recorded=False)
        found = self._markers(since=since)
        if found is None:
            return SinkLog(location=where, exists=False, since=since)
        return SinkLog(location=where, exists=True, commits=kafka_markers.log(found, since), since=since)

    # -- read --------------------------------------------------------------------------------------

    def table(self, spark: SparkSession) -> DataFrame:
        """All committed records of the topic: key and value (or the JSON's columns), and recon's headers as columns.

        Records that another pipeline or sink of recon stamped are left out; those that nobody stamped are not.
        """
        return self._read_back(spark, self._schema(), starts=None)

    def rows_of(self, spark: SparkSession, landed: Landed, stamp: ReconStamp) -> DataFrame:
        """The records that carry this micro-batch's stamp, from where the topic ended before it."""
        starts: Mapping[int, int] | None = self._starts
        if self.sink.transactional:
            found = self._marked(stamp)
            starts = None if found is None else found.starts
        self._await_stable(stamp)
        if starts:  # Spark wants every partition named; -2 is the beginning of one that was added since
            starts = {p: starts.get(p, -2) for p in self._target(stamp).partitions}
        rows = self._read_back(spark, self._schema(), starts=starts)
        return rows.filter((F.col(BATCH_ID) == stamp.batch_id) & (F.col(EPOCH_HEADER) == stamp.epoch))

    def _read_back(self, spark: SparkSession, schema: StructType | None, starts: Mapping[int, int] | None) -> DataFrame:
        topic = self.sink.target
        begin = "earliest" if not starts else json.dumps({topic: {str(p): at for p, at in starts.items()}})
        options = {
            **spark_options(self.conf),
            "subscribe": topic,
            "startingOffsets": begin,
            "endingOffsets": "latest",
            "includeHeaders": "true",
            "kafka.isolation.level": "read_committed" if self.sink.transactional else "read_uncommitted",
            **self.sink.options,
        }
        read = spark.read.format("kafka").options(**options).load()

        def header(name: str) -> Column:
            # Ours were added last. A topic may hold records of others, whose headers are anything.
            of_name = F.filter("headers", lambda h: h["key"] == name)
            return F.try_element_at(of_name, F.lit(-1))["value"].cast("string")

        stamps = {
            BATCH_ID: header(BATCH_ID).try_cast("bigint"),
            EPOCH_HEADER: header(EPOCH_HEADER).try_cast("int"),
            SOURCE_TOPIC: header(SOURCE_TOPIC),
            SOURCE_PARTITION: header(SOURCE_PARTITION).try_cast("int"),
            SOURCE_OFFSET: header(SOURCE_OFFSET).try_cast("bigint"),
        }
        mine = (header(PIPELINE_HEADER) == self.owner.pipeline) & (header(SINK_HEADER) == self.owner.sink)
        rows = read.filter(F.coalesce(mine, F.lit(True)))
        if self.sink.value_format == "json":
            if schema is None:
                schema = _inferred(rows)
            parsed = F.from_json(F.col("value").cast("string"), schema, _JSON)
            values: list[Column] = [F.col("key").cast("string").alias("_key"), parsed.alias("_json")]
            return rows.select(*values, *(c.alias(n) for n, c in stamps.items())).select(
                *(F.col("_json")[field.name].alias(field.name) for field in schema.fields),
                *(["_key"] if "_key" not in schema.names else []),
                *(n for n in stamps if n not in schema.names),
            )
        types = {} if schema is None else {field.name: field.dataType for field in schema.fields}
        return rows.select(
            F.col("key").cast(types.get("key", "string")).alias("key"),
            F.col("value").cast(types.get("value", "string")).alias("value"),
            "headers",
            "partition",
            "offset",
            "timestamp",
            *(c.alias(n) for n, c in stamps.items()),
        )

    def _schema(self) -> StructType | None:
        """The columns of the newest write, as its plan tells; None where there is none."""
        from pyspark.sql.types import StructType

        if not self.sink.transactional:
            return None
        found = self._record if self._record is not None and self._record.plan is not None else self._markers()
        told = found.plan.schema if found is not None and found.plan is not None else None
        return None if told is None else StructType.fromJson(json.loads(told))

    def _await_stable(self, stamp: ReconStamp) -> None:
        """Wait until every record that is in the topic now can be read as committed."""
        if not self.sink.transactional:
            return
        ends = self._target(stamp).partitions
        deadline = time.monotonic() + float(self.conf.get("transaction.timeout.ms", _TRANSACTION_S * 1000)) / 1000
        while any(
            p.last_stable < ends[n].high_watermark for n, p in self._target(stamp).partitions.items() if n in ends
        ):
            if time.monotonic() > deadline:
                raise EvidenceError(
                    f"{stamp.label}: an open transaction holds back readers of topic {self.sink.target}, so its rows "
                    "cannot be read back yet; the broker ends it after its transaction.timeout.ms"
                )
            time.sleep(0.1)

    # -- topics and markers ------------------------------------------------------------------------

    @property
    def _admin(self) -> KafkaAdmin:
        if self._connection is None:
            self._connection = KafkaAdmin(self.conf)
        return self._connection

    def _target(self, stamp: ReconStamp) -> Any:
        asked = [self.sink.target]
        told = read_topics(self.conf, asked, isolation_level="read_committed", timeout_s=kafka_task.INIT_S)
        found = told.topics[self.sink.target]
        if not found.exists:
            raise SinkError(
                f"{stamp.label}: topic {self.sink.target} does not exist at {self.conf.get('bootstrap.servers')}; "
                "create it (kafka-topics --create), or correct the sink's target; nothing was written"
            )
        return found

    def _target_ends(self, stamp: ReconStamp) -> Mapping[int, int]:
        return {number: p.high_watermark for number, p in self._target(stamp).partitions.items()}

    def _opened(self, stamp: ReconStamp) -> Markers:
        """The markers, once the topic is fit to keep them and this driver is the only one that may write them."""
        if self._driver is None:
            self._require_compacted(stamp)
            driver = kafka_task.open_producer(
                self.conf, kafka_task.transactional_id(self.owner, "driver"), reports=True
            )
            try:
                driver.init_transactions(kafka_task.INIT_S)
            except Exception as error:
                raise self._said(error, stamp) from None
            # What was read before the other driver was fenced may lack what that one did since. A record that `log`
            # began at the ledger's end is enough: what is older is complete, and `landed` finds it.
            self._record = self._read(self._record, stamp, decides=lambda key, _: False)
            if self._record.unfinished is not None:
                # What its tasks left open would hide what was written after it, and hold back readers of the topic.
                self._fence(range(self._record.unfinished.tasks), stamp)
            self._record = self._read(
                self._record, stamp, decides=lambda key, _: markers.parse_key(key).kind != markers.TASK
            )
            self._driver = driver
        assert self._record is not None
        return self._record

    def _require_compacted(self, stamp: ReconStamp) -> None:
        topic = self.sink.marker_topic
        servers = self.conf.get("bootstrap.servers")
        if self._admin.ends((topic, kafka_markers.PARTITION)) is None:
            self._create(stamp)
        told = self._admin.settings(topic)
        if told is None:
            raise SinkError(
                f"{stamp.label}: the broker does not tell whether marker topic {topic} is compacted; grant this user "
                "DescribeConfigs on it"
            )
        policies = {p.strip() for p in told.get("cleanup.policy", "").split(",")}
        retention = int(told.get("retention.ms", "-1"))
        kept = "delete" not in policies or retention < 0 or retention >= _KEPT_DAYS * 86_400_000
        if "compact" not in policies or not kept:
            found = f"cleanup.policy={told.get('cleanup.policy')}" + ("" if kept else f", retention.ms={retention}")
            raise SinkError(
                f"{stamp.label}: marker topic {topic} is not compacted ({found}), so Kafka would drop the "
                f"markers that keep a replay from writing twice; run: kafka-configs --bootstrap-server {servers} "
                f"--alter --topic {topic} --add-config cleanup.policy=compact; nothing was written"
            )

    def _create(self, stamp: ReconStamp) -> None:
        import confluent_kafka.admin as admin

        topic = self.sink.marker_topic
        # One partition: the order of plans and markers is then the order of the log. The broker's own clock on them.
        new = admin.NewTopic(  # type: ignore[attr-defined]
            topic,
            num_partitions=1,
            replication_factor=self.sink.marker_replication_factor or -1,
            config={"cleanup.policy": "compact", "message.timestamp.type": "LogAppendTime"},
        )
        try:
            client = admin.AdminClient(kafka_task.client_conf(self.conf))
            client.create_topics([new])[topic].result(30)
        except Exception as error:
            first = error.args[0] if error.args else error
            if getattr(first, "name", lambda: "")() != "TOPIC_ALREADY_EXISTS":
                text = first.str() if hasattr(first, "str") else str(first)
                raise SinkError(
                    f"{stamp.label}: marker topic {topic} is not there and could not be created: "
                    f"{self._admin.safe(text)}; create it with one partition and cleanup.policy=compact, or grant "
                    "this user Create"
                ) from None
        deadline = time.monotonic() + 30
        while self._admin.ends((topic, kafka_markers.PARTITION)) is None:
            if time.monotonic() > deadline:
                raise SinkError(f"{stamp.label}: marker topic {topic} was created and has no leader; restart the query")
            time.sleep(0.05)

    def _markers(self, since: datetime | None = None) -> Markers | None:
        """This sink's record, read on from where it was; read anew where it does not reach back far enough."""
        found = kafka_markers.read(
            self.conf,
            self.sink.marker_topic,
            self.owner,
            known=self._record if self._whole else None,
            since=since,
            decides=lambda key, _: markers.parse_key(key).kind == markers.BATCH,
            admin=self._admin,
        )
        self._whole = found is not None and (self._whole or since is None)
        self._record = found
        return found

    def _read(
        self, known: Markers | None, stamp: ReconStamp, decides: Callable[[bytes, int], bool] | None = None
    ) -> Markers:
        found = kafka_markers.read(
            self.conf, self.sink.marker_topic, self.owner, known=known, decides=decides, admin=self._admin
        )
        if found is None:
            raise SinkError(f"{stamp.label}: marker topic {self.sink.marker_topic} is gone; restart the query")
        return found

    def _marked(self, stamp: ReconStamp) -> BatchMarker | None:
        where = (stamp.epoch, stamp.batch_id)
        if self._record is not None and where in self._record.batches:
            return self._record.batches[where]
        found = None if self._whole and self._record is not None else self._markers()
        return None if found is None else found.batches.get(where)

    def _put(self, key: bytes, value: bytes, stamp: ReconStamp) -> int:
        """Commit one record of the driver's; returns its offset."""
        placed: list[int] = []
        try:
            self._driver.begin_transaction()
            self._driver.produce(
                self.sink.marker_topic,
                key=key,
                value=value,
                partition=kafka_markers.PARTITION,
                on_delivery=lambda error, message: None if error else placed.append(message.offset()),
            )
            self._driver.flush(kafka_task.INIT_S)
            self._driver.commit_transaction(kafka_task.INIT_S)
        except Exception as error:
            raise self._said(error, stamp, self.sink.marker_topic) from None
        if not placed:
            raise SinkError(f"{stamp.label}: Kafka did not tell where the marker is; restart the query")
        return placed[0]

    def _begin(self, frame: DataFrame, stamp: ReconStamp, tasks: int, before: Plan | None) -> Plan:
        """Commit the plan; from here on tasks of any other plan write nothing."""
        starts = before.starts if before is not None else self._target_ends(stamp)
        plan = Plan(
            epoch=stamp.epoch,
            batch_id=stamp.batch_id,
            offsets_text=stamp.offsets_text,
            tasks=tasks,
            starts=starts,
            schema=json.dumps(self._written(frame).jsonValue(), separators=(",", ":")),
        )
        offset = self._put(plan_key(self.owner), plan.dump(), stamp)
        found = Plan(**{**plan.__dict__, "offset": offset})
        if self._record is not None:
            self._record.plan = found
        return found

    def _fence(self, tasks: Iterable[int], stamp: ReconStamp) -> None:
        """End the open transactions of tasks."""
        for task in tasks:
            producer = kafka_task.open_producer(self.conf, kafka_task.transactional_id(self.owner, task))
            try:
                producer.init_transactions(kafka_task.INIT_S)
            except Exception as error:
                raise self._said(error, stamp) from None

    # -- what stands in the way --------------------------------------------------------------------

    def _require_ours(self, found: BatchMarker, stamp: ReconStamp) -> None:
        if not same_ranges(found.stamp.offsets_text, stamp.offsets_text):
            raise SinkError(
                f"{stamp.label} is in topic {self.sink.target} already, with other offsets: two queries write this "
                "sink, or the ledger is older than the topic; stop one of them, then run `recon audit`"
            )

    def _require_apart(self, unfinished: Plan, record: Markers, stamp: ReconStamp) -> None:
        """Nothing of another micro-batch that was never completed may be written a second time."""
        written = record.of(unfinished.epoch, unfinished.batch_id)
        ranges = parse_offsets(stamp.offsets_text)
        again = [
            (topic, partition, low, high)
            for marker in written
            for topic, partition, low, high, _ in marker.sources
            for span in ranges
            if (span.topic, span.partition) == (topic, partition)
            and span.start_offset <= high
            and low < span.end_offset
        ]
        if not again:
            return
        topic, partition, low, high = again[0]
        message = (
            f"{stamp.label} would write source records again: {len(written)} of {unfinished.tasks} tasks of "
            f"micro-batch {unfinished.batch_id} (epoch {unfinished.epoch}), which was never completed, are in topic "
            f"{self.sink.target}, among them {topic}-{partition} [{low}, {high}]; restart the query on the checkpoint "
            "that began it, which completes it, or accept these records twice with `on_new_epoch: warn`"
        )
        if self.sink.on_new_epoch == "stop":
            raise SinkError(message)
        log.warning("%s", message)

    def _compare(self, job: Job, reports: Sequence[Row], stamp: ReconStamp, *, replayed: bool) -> None:
        other = [report.task for report in reports if not report.same_content]
        if other:
            log.warning(
                "%s: NON-deterministic transform: tasks %s give other keys or values than the first time; no row is "
                "lost or doubled, and the topic keeps what was written first",
                job.name,
                ", ".join(map(str, other)),
            )
        if not replayed:
            return
        # Tasks that have no rows now did not look at what they had before.
        silent = sorted(set(range(job.tasks)) - {report.task for report in reports if report.rows})
        if not silent:
            return
        self._fence(silent, stamp)
        found = self._read(Markers(position=job.position, tasks=dict(job.known)), stamp)
        for task in silent:
            marker = found.task(job.epoch, job.batch_id, task)
            if marker is not None:
                kafka_task.require_same(job, marker, rows=0, ids=0)

    def _said(self, error: BaseException, stamp: ReconStamp, topic: str | None = None) -> SinkError:
        return SinkError(kafka_task.sentence(stamp.label, error, self.conf, self.owner, topic or self.sink.target))

    # -- the frame that tasks get ------------------------------------------------------------------

    def _columns(self, frame: DataFrame, stamp: ReconStamp) -> list[Column]:
        """Key, value, headers, partition and source coordinates as the tasks read them."""
        have = dict(frame.dtypes)
        key = self.sink.key or "key"
        if self.sink.key is not None and key not in have:
            raise SinkError(
                f"{stamp.label}: the rows have no column {key}, which is the sink's key; they have {_some(have)}"
            )
        columns: dict[str, Column] = {}
        if key in have:
            columns[kafka_task.KEY] = _bytes(key, have[key])
        if self.sink.value_format == "json":
            names = self._written(frame).names
            columns[kafka_task.VALUE] = F.to_json(F.struct(*(F.col(quoted(n)) for n in names)), _JSON).cast("binary")
        elif "value" in have:
            columns[kafka_task.VALUE] = _bytes("value", have["value"])
        else:
            raise SinkError(
                f"{stamp.label}: the rows have no column value to write (they have {_some(have)}); name one "
                "`value` in the transform, or set value_format: json to write all columns"
            )
        if "headers" in have and have["headers"].startswith("array<struct<"):
            columns[kafka_task.HEADERS] = F.col("headers").cast("array<struct<key:string,value:binary>>")
        # `partition` beside topic and offset is where a row came from, not where it goes.
        if "partition" in have and not set(KAFKA_COLUMNS) <= set(have):
            columns[kafka_task.PARTITION] = F.col("partition").cast("int")
        source = zip(SOURCE_COLUMNS, (kafka_task.TOPIC, kafka_task.FROM, kafka_task.OFFSET), strict=True)
        columns |= {to: F.col(name) for name, to in source if name in have}
        if self.sink.transactional:
            columns[kafka_task.IDS] = F.xxhash64(*(F.col(name) for name in SOURCE_COLUMNS))
            what = [columns[name] for name in (kafka_task.KEY, kafka_task.VALUE) if name in columns]
            columns[kafka_task.CONTENT] = F.xxhash64(*what)
        return [column.alias(name) for name, column in columns.items()]

    def _written(self, frame: DataFrame) -> StructType:
        """The columns that a reader of the topic gets back."""
        from pyspark.sql.types import StructType

        if self.sink.value_format == "columns":
            key = self.sink.key or "key"
            fields = [field for field in frame.schema.fields if field.name in (key, "value")]
            named = [(field.name if field.name == "value" else "key", field.dataType) for field in fields]
            found = StructType()
            for name, kind in named:
                found = found.add(name, kind)
            return found
        left_out = {*STAMPED_COLUMNS, "headers"} | (
            set(KAFKA_COLUMNS) if set(KAFKA_COLUMNS) <= set(frame.columns) else set()
        )
        return StructType([field for field in frame.schema.fields if field.name not in left_out])

    def _tasks(self, stamp: ReconStamp) -> int:
        """As many as there are source partitions to read, up to what is configured."""
        sources = {(s.topic, s.partition) for s in parse_offsets(stamp.offsets_text) if s.span.size}
        return max(1, min(len(sources), self.sink.tasks or _TASKS))

    def _dealt(self, frame: DataFrame, tasks: int) -> DataFrame:
        """Every row to its task, by its source partition; neighbouring partitions to different tasks."""
        # Spark deals rows by the hash of a column: numbers whose hashes are 0, 1, 2, … put each where we want it.
        lots = F.array(*(F.lit(lot) for lot in lots_of(tasks)))
        topic = F.coalesce(F.crc32(F.col(kafka_task.TOPIC).cast("binary")), F.lit(0))
        number = F.coalesce(F.col(kafka_task.FROM), F.lit(0))
        task = F.pmod(topic + number, F.lit(tasks)).cast("int")
        dealt = frame.withColumn(kafka_task.TASK, task).withColumn(
            "_lot", F.element_at(lots, F.col(kafka_task.TASK) + 1)
        )
        ordered = (kafka_task.TOPIC, kafka_task.FROM, kafka_task.OFFSET)
        return dealt.repartition(tasks, "_lot").sortWithinPartitions(*ordered).drop("_lot")

    def _job(self, stamp: ReconStamp, **more: Any) -> Job:
        return Job(conf=self.conf, owner=self.owner, epoch=stamp.epoch, batch_id=stamp.batch_id, **more)

    def _run(self, frame: DataFrame, job: Job) -> list[Row]:
        """Run the tasks; what comes back is one line for each."""

        def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return kafka_task.run(job, batches)

        try:
            return frame.mapInArrow(task, kafka_task.REPORT).collect()
        except Exception as error:
            # What a task raises reaches the driver as text.
            said = _SINK_ERROR.search(str(error))
            if said is None:
                raise
            raise SinkError(said[1].strip()) from None


def lots_of(tasks: int) -> list[int]:
    """For each task a number that Spark's hash partitioning into so many puts there.

    >>> lots_of(1)
    [0]
    """
    found: dict[int, int] = {}
    lot = 0
    while len(found) < tasks:
        found.setdefault(spark_hash(lot) % tasks, lot)
        lot += 1
    return [found[task] for task in range(tasks)]


def spark_hash(number: int) -> int:
    """Spark's hash of an int column (Murmur3, x86, 32 bits, seed 42), signed."""

    def rotated(x: int, by: int) -> int:
        return (x << by | x >> 32 - by) & 0xFFFFFFFF

    k = rotated(number * 0xCC9E2D51 & 0xFFFFFFFF, 15) * 0x1B873593 & 0xFFFFFFFF
    h = (rotated(42 ^ k, 13) * 5 + 0xE6546B64) & 0xFFFFFFFF
    h ^= 4
    h = (h ^ h >> 16) * 0x85EBCA6B & 0xFFFFFFFF
    h = (h ^ h >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    h ^= h >> 16
    return h - (1 << 32) if h >> 31 else h


def spark_options(conf: Mapping[str, str]) -> dict[str, str]:
    """Connection settings of librdkafka in the words of Spark's Kafka reader, as far as they have a counterpart."""
    same = ("bootstrap.servers", "security.protocol", "client.id")
    found = {f"kafka.{name}": conf[name] for name in same if name in conf}
    if "security.protocol" in conf:
        found["kafka.security.protocol"] = conf["security.protocol"].upper()
    mechanism = conf.get("sasl.mechanism") or conf.get("sasl.mechanisms")
    if mechanism:
        found["kafka.sasl.mechanism"] = mechanism
        module = "plain.Plain" if mechanism == "PLAIN" else "scram.Scram"
        if "sasl.username" in conf and (mechanism == "PLAIN" or mechanism.startswith("SCRAM")):
            user, word = (conf.get(f"sasl.{name}", "").replace('"', '\\"') for name in ("username", "password"))
            found["kafka.sasl.jaas.config"] = (
                f'org.apache.kafka.common.security.{module}LoginModule required username="{user}" password="{word}";'
            )
    if "ssl.ca.location" in conf:
        found |= {"kafka.ssl.truststore.type": "PEM", "kafka.ssl.truststore.location": conf["ssl.ca.location"]}
    return found


def _inferred(rows: DataFrame) -> StructType:
    """The columns of JSON values, from a sample of them."""
    from pyspark.sql.types import ArrayType, StructType

    sample = rows.select(F.col("value").cast("string").alias("value")).limit(_SAMPLE).collect()
    text = "[" + ",".join(row.value for row in sample if row.value) + "]"
    if text == "[]":
        return StructType()
    told = rows.sparkSession.range(1).select(F.schema_of_json(F.lit(text))).collect()[0][0]
    found = rows.sparkSession.range(0).select(F.from_json(F.lit(text), told).alias("found")).schema["found"].dataType
    inner = found.elementType if isinstance(found, ArrayType) else None
    return inner if isinstance(inner, StructType) else StructType()


def _same_batch(plan: Plan, stamp: ReconStamp) -> bool:
    same = (plan.epoch, plan.batch_id) == (stamp.epoch, stamp.batch_id)
    return same and same_ranges(plan.offsets_text, stamp.offsets_text)


def _bytes(name: str, kind: str) -> Column:
    column = F.col(quoted(name))
    # Numbers as text, as Spark's own sink would have it cast by hand; a number's raw bytes help nobody.
    return column if kind == "binary" else column.cast("string").cast("binary")


def _some(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"
