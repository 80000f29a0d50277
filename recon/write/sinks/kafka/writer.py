"""Write records to a Kafka topic: exactly once by transactions with markers, or plainly at least once.

Each Spark task writes its rows and one marker record, to a compacted marker topic, in ONE Kafka transaction (KIP-98).
So its rows are in the topic if and only if its marker is. A replay runs the same tasks again; those whose marker is
committed write nothing and compare counts and hashes instead. When all are done the driver writes a batch marker, which
`confirm`, `landed` and `log` read. Readers of the topic need `isolation.level=read_committed`.

What makes it hold:

- *The same rows in the same task.* Rows are partitioned across tasks by (_source_topic, _source_partition) alone, and
  sorted by offset. The number of tasks is in a plan that the driver commits first; a replay takes it from there,
  whatever recon.yml says now. Adaptive execution changes no `repartition(n, column)`: it coalesces and splits only what
  it introduced itself. Every task verifies that each of its rows is its own.
- *A dead or slow attempt that is still writing* (an executor that outlives its driver, a speculative or retried task).
  transactional.id is per (pipeline, sink, topic, task), and a task begins with init_transactions. By this the
  coordinator aborts or completes the id's open transaction, and fences its producer by a higher epoch. It answers only
  when the outcome is in all partitions (KIP-98; KIP-360 and KIP-890 closed the remaining holes in brokers). The task
  reads the markers AFTER that: the earlier attempt has committed what it could, and commits nothing more.
- *A marker that is committed and not seen.* A committed reader ends at the last stable offset, which any open
  transaction in the marker topic holds back. So the task reads on behind it with an uncommitted reader, and waits if a
  record of this task is there (recon.witness.kafka_markers).
- *An attempt that wakes up late*, after the driver was replaced: it is the newest of its id, and no other producer
  fences it. It finds a plan newer than its own in the marker topic, and writes nothing.
- *Two drivers.* The driver has a transactional.id, too. The one that starts last fences the other, which then can
  commit neither a plan nor a batch marker. It does so before it reads the ledger and the markers, so that it sees what
  the other has completed. Tasks of both for one micro-batch fence each other and write the same rows.
- *A checkpoint that starts over (a new epoch) while a micro-batch of the old one is written in part.* Its rows are in
  the topic, and no ledger entry has them. The driver commits its own plan, which names the unfinished one, fences its
  tasks, and reads their markers: where the new micro-batch would read their source records again it stops, unless
  `on_new_epoch: warn`. When it is started again, its own plan is the newest, and still names the other.
- *A transform that gives other rows on the replay.* A task compares number and hash of its source records with the
  marker, and the driver does so for tasks that now have no rows: a difference is an error. Other keys or values of the
  same source records (a processing time) double and lose nothing: a warning.

Not covered: a target or marker topic that is deleted, or loses acknowledged records by unclean leader election.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

from typing_extensions import override

from recon.base.clock import utc_now
from recon.base.errors import EvidenceError, SinkError
from recon.model import ReconStamp, SinkChanges, SinkLog, parse_offsets, same_ranges
from recon.model.sample import FoundRow, Place
from recon.model.wire.columns import BATCH_ID, EPOCH_HEADER
from recon.model.wire.markers import BatchMarker, Owner, Plan
from recon.project import KafkaSink, Project, Sink
from recon.spark.lazy import F
from recon.witness import kafka, kafka_markers, kafka_rows
from recon.witness.kafka_markers import Markers
from recon.write.sinks import failpoints
from recon.write.sinks.base import BatchSink, ConfirmedWrite
from recon.write.sinks.kafka import task as kafka_task
from recon.write.sinks.kafka.frame import record_frame, written_schema
from recon.write.sinks.kafka.markers import MarkerTopic
from recon.write.sinks.kafka.partitioner import partitioned, task_count
from recon.write.sinks.kafka.producer import INIT_S
from recon.write.sinks.kafka.reading import read_records
from recon.write.sinks.kafka.task import Job

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.types import StructType

log = logging.getLogger("recon")

_TRANSACTION_S = 60.0
_SINK_ERROR = re.compile(rf"{re.escape(SinkError.__module__)}\.SinkError: (.+)")


class KafkaWriter(BatchSink):
    """Writes micro-batches as records of one topic."""

    def __init__(self, project: Project, pipeline: str, sink: KafkaSink) -> None:
        """The broker is not contacted before the first call of a method."""
        self.sink, self.conf = sink, sink.client_settings(project.kafka)
        self.owner = Owner(pipeline, sink.name, sink.target)
        self._markers = MarkerTopic(self.conf, self.owner, sink)
        self._done: BatchMarker | None = None
        self._plain_rows: int | None = None  # rows of the last write of plain records
        self._starts: Mapping[int, int] = {}  # where the topic ended before that

    @classmethod
    @override
    def of(cls, project: Project, pipeline: str, sink: Sink) -> KafkaWriter:
        return cls(project, pipeline, cast(KafkaSink, sink))

    # -- write -------------------------------------------------------------------------------------

    @override
    def newest_number(self, pipeline: str, sink: str) -> int | None:
        """Fences the driver that wrote before, so that `log` then tells all that it completed; there are no numbers."""
        if self.sink.transactional:
            self._markers.take_over(f"pipeline {pipeline}, sink {sink}")
        return None

    @override
    def write(self, frame: DataFrame, stamp: ReconStamp) -> None:
        self._done = self._plain_rows = None
        records = record_frame(frame, self.sink, stamp)
        if not self.sink.transactional:
            self._starts = self._target_ends(stamp.label)
            self._plain_rows = sum(report.rows for report in _run(records, self._job(stamp, marker_topic=None)))
            return
        markers = self._markers.opened(stamp.label)
        if self._is_complete(markers, stamp):
            return
        resumed = next((plan for plan in markers.unfinished if _same_batch(plan, stamp)), None)
        others = tuple(replace(plan, behind=()) for plan in markers.unfinished if plan is not resumed)
        self._require_no_overlap(others, markers, stamp)
        tasks = task_count(stamp, self.sink.tasks) if resumed is None else resumed.tasks
        position, found = markers.position, markers
        plan = self._markers.begin(replace(self._plan(frame, stamp, tasks, resumed), behind=others), stamp)
        self.failpoint(failpoints.PLANNED, stamp)
        if others:
            # A task that still writes for them meets our plan from here on, or was fenced, or had committed. Where the
            # records of one stop this write, our plan names theirs for the next attempt.
            self._markers.fence(range(max(other.tasks for other in others)), stamp.label)
            found = self._markers.read(Markers(position=position, tasks=dict(markers.tasks)), stamp.label)
            self._require_no_overlap(others, found, stamp)
            position = found.position
        known = {marker.task: marker for marker in found.of(stamp.query_id, stamp.epoch, stamp.batch_id)}
        job = self._job(
            stamp, marker_topic=self._markers.topic, tasks=tasks, plan=plan.offset, position=position, known=known
        )
        reports = _run(partitioned(records, tasks), job)
        self._compare(job, reports, stamp, replayed=resumed is not None)
        self.failpoint(failpoints.TASKS_COMMITTED, stamp)
        marker = BatchMarker(
            stamp=stamp,
            tasks=tasks,
            rows=sum(report.rows for report in reports),
            ids=kafka_task.total(report.ids for report in reports),
            content=kafka_task.total(report.content for report in reports),
            starts=plan.starts,
            at=utc_now(),
        )
        self._markers.finish(marker, stamp)
        self._done = marker
        self.failpoint(failpoints.MARKED, stamp)

    @override
    def confirm(self, stamp: ReconStamp) -> ConfirmedWrite:
        if not self.sink.transactional:
            return ConfirmedWrite(rows=self._plain_rows)
        if self._done is None:
            raise SinkError(
                f"{stamp.label} left no batch marker in {self._markers.topic}; restart the query, which completes it"
            )
        self._require_ours(self._done, stamp)
        return ConfirmedWrite(rows=self._done.rows)

    @override
    def landed(self, stamp: ReconStamp, version: int | None) -> ConfirmedWrite | None:
        if not self.sink.transactional:
            return ConfirmedWrite()
        marker = self._markers.batch(stamp)
        if marker is None or not same_ranges(marker.stamp.offsets_text, stamp.offsets_text):
            return None
        return ConfirmedWrite(rows=marker.rows)

    @override
    def log(self, after: int | None = None, since: datetime | None = None) -> SinkLog:
        if not self.sink.transactional:
            return SinkLog(location=f"topic {self.sink.target}", exists=True, recorded=False)
        markers = self._markers.all(since)
        return SinkLog(
            location=f"{self._markers.topic} (markers of topic {self.sink.target})",
            exists=markers is not None,
            commits=() if markers is None else kafka_markers.log(markers, since),
            since=since,
        )

    @override
    def changes(self, since: datetime | None = None) -> SinkChanges:
        """Whether the topic still reaches as far as the markers tell; records that expire or are compacted may go."""
        markers = self._markers.known() if self.sink.transactional else None
        written = [] if markers is None else [marker for marker in markers.batches.values() if marker.rows]
        if not written:
            return SinkChanges()
        topics = kafka.read(self.conf, [self.sink.target], isolation_level="read_committed").topics
        return SinkChanges(replaced=kafka_markers.cut_off(topics[self.sink.target], written))

    # -- read --------------------------------------------------------------------------------------

    @override
    def rows_at(self, places: Mapping[Place, Collection[int]]) -> Mapping[Place, Sequence[FoundRow]]:
        """Reads the topic on from where the oldest of the micro-batches begins in it, which its marker says.

        Raises:
            EvidenceError: no marker says where the records of the micro-batches begin.
        """
        markers = self._markers.known() if self.sink.transactional else None
        if markers is None:
            raise EvidenceError(f"no marker says where in topic {self.sink.target} the records of a micro-batch begin")
        wanted = {batch_id for batch_ids in places.values() for batch_id in batch_ids}
        starts: dict[int, int] = {}
        for (_, batch_id), marker in markers.batches.items():
            for partition, start in marker.starts.items() if batch_id in wanted else ():
                starts[partition] = min(start, starts.get(partition, start))
        if not starts:
            raise EvidenceError(f"no marker says where in topic {self.sink.target} the records of a micro-batch begin")
        return kafka_rows.find(self.conf, self.owner, starts, places)

    @override
    def table(self, spark: SparkSession) -> DataFrame:
        return read_records(spark, self.sink, self.owner, self.conf, self._schema(), starts=None)

    @override
    def rows_of(self, spark: SparkSession, landed: ConfirmedWrite, stamp: ReconStamp) -> DataFrame:
        starts: Mapping[int, int] | None = self._starts
        if self.sink.transactional:
            marker = self._markers.batch(stamp)
            starts = None if marker is None else marker.starts
        self._await_stable(stamp.label)
        if starts:  # Spark wants every partition named; -2 is the beginning of one that was added since
            starts = {p: starts.get(p, -2) for p in self._target(stamp.label).partitions}
        rows = read_records(spark, self.sink, self.owner, self.conf, self._schema(), starts)
        return rows.filter((F.col(BATCH_ID) == stamp.batch_id) & (F.col(EPOCH_HEADER) == stamp.epoch))

    def _schema(self) -> StructType | None:
        """The columns of the newest write, from its plan; None where there is none."""
        from pyspark.sql.types import StructType

        plan = self._markers.newest_plan() if self.sink.transactional else None
        return None if plan is None or plan.schema is None else StructType.fromJson(json.loads(plan.schema))

    def _await_stable(self, name: str) -> None:
        """Wait until every record that is in the topic now can be read as committed; `name` is for errors."""
        if not self.sink.transactional:
            return
        ends = self._target(name).partitions
        deadline = time.monotonic() + float(self.conf.get("transaction.timeout.ms", _TRANSACTION_S * 1000)) / 1000
        while any(
            p.last_stable < ends[n].high_watermark for n, p in self._target(name).partitions.items() if n in ends
        ):
            if time.monotonic() > deadline:
                raise EvidenceError(
                    f"{name}: an open transaction holds back readers of topic {self.sink.target}, so its rows "
                    "cannot be read back yet; the broker ends it after its transaction.timeout.ms"
                )
            time.sleep(0.1)

    # -- the micro-batch's tasks ---------------------------------------------------------------------

    def _target(self, name: str) -> Any:
        topics = kafka.read(self.conf, [self.sink.target], isolation_level="read_committed", timeout_s=INIT_S).topics
        target = topics[self.sink.target]
        if not target.exists:
            raise SinkError(
                f"{name}: topic {self.sink.target} does not exist at {self.conf.get('bootstrap.servers')}; "
                "create it (kafka-topics --create), or correct the sink's target; nothing was written"
            )
        return target

    def _target_ends(self, name: str) -> Mapping[int, int]:
        return {number: p.high_watermark for number, p in self._target(name).partitions.items()}

    def _plan(self, frame: DataFrame, stamp: ReconStamp, tasks: int, resumed: Plan | None) -> Plan:
        return Plan(
            query_id=stamp.query_id,
            epoch=stamp.epoch,
            batch_id=stamp.batch_id,
            offsets_text=stamp.offsets_text,
            tasks=tasks,
            starts=self._target_ends(stamp.label) if resumed is None else resumed.starts,
            schema=json.dumps(written_schema(frame, self.sink).jsonValue(), separators=(",", ":")),
        )

    def _job(self, stamp: ReconStamp, **more: Any) -> Job:
        return Job(
            conf=self.conf,
            owner=self.owner,
            query_id=stamp.query_id,
            epoch=stamp.epoch,
            batch_id=stamp.batch_id,
            **more,
        )

    def _is_complete(self, markers: Markers, stamp: ReconStamp) -> bool:
        """Whether there is a batch marker, which `confirm` then finds."""
        marker = markers.batches.get((stamp.epoch, stamp.batch_id))
        if marker is not None:
            self._require_ours(marker, stamp)
            self._done = marker
        return marker is not None

    # -- refusals ---------------------------------------------------------------------------------

    def _require_ours(self, marker: BatchMarker, stamp: ReconStamp) -> None:
        theirs = marker.stamp
        if theirs.query_id != stamp.query_id or not same_ranges(theirs.offsets_text, stamp.offsets_text):
            other = "with other offsets" if theirs.query_id == stamp.query_id else f"of query {theirs.query_id}"
            raise SinkError(
                f"{stamp.label} is in topic {self.sink.target} already, {other}: two queries write this "
                "sink, or the ledger is older than the topic; stop one of them, then run `recon audit`"
            )

    def _require_no_overlap(self, unfinished: Iterable[Plan], markers: Markers, stamp: ReconStamp) -> None:
        """Nothing of other micro-batches that were never completed may be written a second time."""
        for plan in unfinished:
            self._require_apart(plan, markers, stamp)

    def _require_apart(self, unfinished: Plan, markers: Markers, stamp: ReconStamp) -> None:
        written = markers.of(unfinished.query_id, unfinished.epoch, unfinished.batch_id)
        ranges = parse_offsets(stamp.offsets_text)
        repeated = [
            (topic, partition, low, high)
            for marker in written
            for topic, partition, low, high, _ in marker.sources
            for span in ranges
            if (span.topic, span.partition) == (topic, partition)
            and span.start_offset <= high
            and low < span.end_offset
        ]
        if not repeated:
            return
        topic, partition, low, high = repeated[0]
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
        changed = [report.task for report in reports if not report.same_content]
        if changed:
            log.warning(
                "%s: NON-deterministic transform: tasks %s give other keys or values than the first time; no row is "
                "lost or doubled, and the topic keeps what was written first",
                job.name,
                ", ".join(map(str, changed)),
            )
        if not replayed:
            return
        # Tasks that have no rows now did not compare them with their markers.
        without_rows = sorted(set(range(job.tasks)) - {report.task for report in reports if report.rows})
        if not without_rows:
            return
        self._markers.fence(without_rows, stamp.label)
        markers = self._markers.read(Markers(position=job.position, tasks=dict(job.known)), stamp.label)
        for task in without_rows:
            marker = markers.task(job.query_id, job.epoch, job.batch_id, task)
            if marker is not None:
                kafka_task.require_same(job, marker, rows=0, ids=0)


def _run(frame: DataFrame, job: Job) -> list[Row]:
    """Run the tasks; each reports one row."""

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return kafka_task.run(job, batches)

    try:
        return frame.mapInArrow(task, kafka_task.REPORT).collect()
    except Exception as error:
        # The message of an exception in a task reaches the driver as text.
        refusal = _SINK_ERROR.search(str(error))
        if refusal is None:
            raise
        raise SinkError(refusal[1].strip()) from None


def _same_batch(plan: Plan, stamp: ReconStamp) -> bool:
    same = (plan.query_id, plan.epoch, plan.batch_id) == (stamp.query_id, stamp.epoch, stamp.batch_id)
    return same and same_ranges(plan.offsets_text, stamp.offsets_text)
