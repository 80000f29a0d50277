"""The foreachBatch door: every sink write is stamped, confirmed and entered in the ledger.

Per micro-batch: identify (checkpoint, Kafka), settle the epoch, stamp and write, confirm the commit,
append the ledger entry, run the post-batch checks. Nothing here needs the JVM gateway: query_id and offset
ranges stand in the checkpoint's own files.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recon._version import __version__
from recon.errors import ConfigError, EvidenceError, GateError, NewEpochError, SinkError
from recon.evidence import checkpoint, delta_log
from recon.evidence.kafka import KafkaAdmin
from recon.ledger import Ledger, coverage, open_ledger
from recon.ledger.ledger import utc_now
from recon.ledger.rebuild import restore, unrecorded
from recon.model import CheckpointBatch, LedgerEntry, RangeTable, ReconStamp, offsets_text, parse_offsets
from recon.offsets import OffsetSpan, Spans
from recon.project import LedgerConfig, Pipeline, Project, Sink, Source, load
from recon.sinks import BatchSink, Landed, open_sink
from recon.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation

log = logging.getLogger("recon")

Transform = Callable[..., "DataFrame"]

BATCH_ID = "_batch_id"
SOURCE_COLUMNS = {"_source_topic": "topic", "_source_partition": "partition", "_source_offset": "offset"}
_TOPIC_IDS_LIVE_S = 30.0  # a topic id is asked for again after this long; a failed broker is retried then too
_OBSERVED_WITHIN_S = 10.0
_RECENT = 1000  # entries looked back at for a replay: Spark itself keeps 100 micro-batches


def foreach_batch(
    project: str | Path | Project | None = None,
    *,
    pipeline: str,
    sink: str | None = None,
    transform: Transform | None = None,
    checkpoint: str | None = None,
    target: str | None = None,
    ledger: str | None = None,
    kafka: Mapping[str, str] | None = None,
    isolation_level: str = "read_uncommitted",
    **sink_options: Any,
) -> ForeachBatch:
    """The callable for `writeStream.foreachBatch` that writes, proves and records each micro-batch.

    Either name a project (a folder with recon.yml, the file, or a `Project`), or give `checkpoint`, `target`
    and `ledger` here and no YAML is needed.

    Args:
        project: where recon.yml is.
        pipeline: the pipeline's name.
        sink: the sink's name; may be left out when the pipeline has one.
        transform: your own function, called with the micro-batch (and its batch_id, if it takes two
            arguments) and returning what to write. The micro-batch it gets already carries
            `_source_topic, _source_partition, _source_offset`; keep them.
        checkpoint: the query's checkpointLocation.
        target: path or URI of the Delta table.
        ledger: folder of the ledger.
        kafka: librdkafka settings, at least `bootstrap.servers`.
        isolation_level: the stream's `kafka.isolation.level`.
        sink_options: further keys of a sink in recon.yml, such as `on_new_epoch="warn"`.

    Raises:
        ConfigError: the project, pipeline or sink is not usable, before any batch is written.
    """
    if project is None:
        if not (checkpoint and target and ledger):
            raise ConfigError(
                "foreach_batch needs a project (the folder of recon.yml), or checkpoint=, target= and ledger="
            )
        project = _project_of(pipeline, sink, checkpoint, target, ledger, kafka, isolation_level, sink_options)
    elif not isinstance(project, Project):
        project = load(project)
    pipe, out = find_sink(project, pipeline, sink)
    return ForeachBatch(project, pipe, out, transform)


def _project_of(
    pipeline: str,
    sink: str | None,
    checkpoint: str,
    target: str,
    ledger: str,
    kafka: Mapping[str, str] | None,
    isolation_level: str,
    sink_options: Mapping[str, Any],
) -> Project:
    from pydantic import ValidationError

    try:
        return Project(
            name=pipeline,
            ledger=LedgerConfig(location=ledger),
            kafka=dict(kafka or {}),
            pipelines=(
                Pipeline(
                    name=pipeline,
                    checkpoint=checkpoint,
                    source=Source.model_validate({"isolation_level": isolation_level}),
                    sinks=(Sink.model_validate({"name": sink or pipeline, "target": target, **sink_options}),),
                ),
            ),
            project_dir=Path.cwd(),
        )
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"foreach_batch: {where}: {first['msg']} (got {first['input']!r})") from error


def find_pipeline(project: Project, name: str) -> Pipeline:
    """A pipeline by name; raises ConfigError when there is none."""
    for pipe in project.pipelines:
        if pipe.name == name:
            return pipe
    known = ", ".join(sorted(pipe.name for pipe in project.pipelines))
    raise ConfigError(f"recon.yml has no pipeline {name!r}; it has {known}")


def find_sink(project: Project, pipeline: str, sink: str | None = None) -> tuple[Pipeline, Sink]:
    """A pipeline and its sink by name; the only sink when none is named.

    Raises:
        ConfigError: there is no such pipeline or sink, or the pipeline has several sinks and none was named.
    """
    pipe = find_pipeline(project, pipeline)
    outs = {out.name: out for out in pipe.sinks}
    if sink is None and len(outs) == 1:
        return pipe, pipe.sinks[0]
    if sink not in outs:
        found = f"no sink {sink!r}" if sink else "several sinks and none was named"
        raise ConfigError(f"pipeline {pipeline} has {found}; it has {', '.join(sorted(outs))}")
    return pipe, outs[sink]


@dataclass(frozen=True, kw_only=True)
class _Batch:
    """A micro-batch, identified: who reads which ranges, as the checkpoint planned it."""

    query_id: str
    run_id: str | None
    batch_id: int
    ranges: tuple[OffsetSpan, ...]
    new_partitions: frozenset[tuple[int, str, int]] = frozenset()  # their starts are not in the checkpoint


@dataclass(frozen=True, kw_only=True)
class _Life:
    """Where a micro-batch stands in the ledger: its epoch, and the entry it replays, if it does."""

    epoch: int
    replays: LedgerEntry | None = None


class ForeachBatch:
    """One pipeline's writer into one sink; call it as `foreachBatch` does, with (DataFrame, batch_id)."""

    def __init__(self, project: Project, pipeline: Pipeline, sink: Sink, transform: Transform | None = None) -> None:
        """Nothing is read or written before the first micro-batch."""
        self.project, self.pipeline, self.sink = project, pipeline, sink
        self._transform = transform
        self._checkpoint = Storage(project.resolve(pipeline.checkpoint), project.storage_options)
        self._writer: BatchSink = open_sink(project, sink)
        self._broker = _Broker(project.kafka)
        self._ledger: Ledger | None = None
        self._front: LedgerEntry | None = None  # the entry that got furthest: highest (epoch, batch_id)
        self._held: dict[coverage.Key, Spans] | None = None  # what the ledger covers, where that is asked
        self._fingerprint = _fingerprint(sink)

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Write one micro-batch and enter it in the ledger.

        Raises:
            SinkError: the write was swallowed or must not go on; nothing was entered.
            NewEpochError: the checkpoint started over and its ranges overlap or miss the ledger's end.
            LedgerError: the data is committed and the entry could not be written; the next start repairs it.
            GateError: a post-batch check with `on_failure: stop` failed.
        """
        try:
            self._write(frame, batch_id)
        except BaseException:
            # The same object may be started again: then it must look at table and ledger anew, as a new one would.
            self._ledger = self._front = self._held = None
            self._writer = open_sink(self.project, self.sink)
            raise

    def _write(self, frame: DataFrame, batch_id: int) -> None:
        started = utc_now()
        ledger = self._opened(frame)
        batch = self._identify(frame, batch_id)
        life = self._settle(ledger, batch)
        attempt = life.replays.attempt + 1 if life.replays else 1

        known = life.replays
        ranges = known.offsets if known else self._effective(ledger, batch, life.epoch)
        stamp = self._stamp(ledger, batch, life.epoch, ranges)
        landed = self._writer.landed(stamp, known.sink_version) if known else None
        rows_read: int | None
        if known and landed:
            status, rows_read, filtered = "already_committed", known.rows_read, known.rows_filtered
        else:
            out, observed = self._prepare(frame, batch, ranges)
            self._writer.write(out, stamp)
            landed = self._writer.confirm(stamp)
            status = "committed"
            rows_read = landed.rows if observed is None else _observed(observed)
            filtered = _difference(rows_read, landed.rows)
        entry = LedgerEntry(
            pipeline=self.pipeline.name,
            sink=self.sink.name,
            sink_kind=self.sink.kind,
            target=self.project.resolve(self.sink.target),
            guarantee=self.sink.guarantee,
            query_id=batch.query_id,
            run_id=batch.run_id,
            epoch=life.epoch,
            batch_id=batch_id,
            attempt=attempt,
            status="already_committed" if status == "already_committed" else "committed",
            offsets=ranges,
            rows_read=rows_read,
            rows_written=landed.rows if landed.rows is not None or known is None else known.rows_written,
            rows_quarantined=0,
            rows_filtered=filtered,
            sink_version=landed.version,
            started_at=started,
            committed_at=utc_now(),
            spark_version=frame.sparkSession.version,
            recon_version=__version__,
            checks_fingerprint=self._fingerprint,
            prev_hash="",
            entry_hash="",
        )
        self._before_ledger(entry)
        self._front = _further(self._front, ledger.append(entry))
        if self._held is not None:
            self._held = coverage.plus(self._held, ranges)
        self._gate(frame, landed)

    def _before_ledger(self, entry: LedgerEntry) -> None:
        """Nothing; the crash tests and the demo stop the process here, between data commit and ledger."""

    # -- open and repair ---------------------------------------------------------------------------

    def _opened(self, frame: DataFrame) -> Ledger:
        """The ledger, repaired on the first micro-batch from commits that a crash left unrecorded."""
        if self._ledger is None:
            ledger = open_ledger(self.project, frame.sparkSession)
            pipeline, sink = self.pipeline.name, self.sink.name
            recent = ledger.last(pipeline, sink, _RECENT)
            versions = [entry.sink_version for entry in recent if entry.sink_version is not None]
            target = self.project.resolve(self.sink.target)
            restored = restore(
                ledger,
                pipeline,
                sink,
                target=target,
                storage=Storage(target, self.project.storage_options),
                kind=self.sink.kind,
                guarantee=self.sink.guarantee,
                after_version=max(versions, default=None),
                known={(entry.epoch, entry.batch_id) for entry in recent},
            )
            for entry in restored:
                log.warning(
                    "pipeline %s, sink %s: micro-batch %d (epoch %d) was committed as version %s and missing in "
                    "the ledger; restored from the Delta log",
                    pipeline,
                    sink,
                    entry.batch_id,
                    entry.epoch,
                    entry.sink_version,
                )
            for entry in (*recent, *restored):
                self._front = _further(self._front, entry)
            self._ledger = ledger
        return self._ledger

    # -- identify ----------------------------------------------------------------------------------

    def _identify(self, frame: DataFrame, batch_id: int) -> _Batch:
        query_id = checkpoint.query_id(self._checkpoint)
        running, run_id = _running_query(frame)
        if running is not None and running != query_id:
            raise ConfigError(
                f"pipeline {self.pipeline.name}: the running query is {running}, but checkpoint "
                f"{self._checkpoint.uri} belongs to query {query_id}; set the pipeline's checkpoint to the "
                "checkpointLocation of this query"
            )
        planned = checkpoint.read_batch(self._checkpoint, batch_id)
        if not planned.starts_known:
            raise EvidenceError(
                f"checkpoint {self._checkpoint.uri} no longer tells where micro-batch {batch_id} begins (offsets/"
                f"{batch_id - 1} or sources/0/0 is missing), so its range cannot be recorded; restore the file, or "
                "start a fresh checkpoint with the offsets that `recon offsets` prints"
            )
        return _Batch(
            query_id=query_id,
            run_id=run_id,
            batch_id=batch_id,
            ranges=self._ranges(planned),
            new_partitions=frozenset((source, topic, p) for source, topic, p, _ in planned.new_partitions),
        )

    def _ranges(self, planned: CheckpointBatch) -> tuple[OffsetSpan, ...]:
        topics = sorted({s.topic for s in planned.ranges} | {topic for _, topic, _, _ in planned.new_partitions})
        ids = self._broker.topic_ids(topics)
        # A topic that was made anew and is shorter now moves the position back: nothing was read.
        ranges = [
            span._replace(topic_id=ids.get(span.topic), start_offset=min(span.start_offset, span.end_offset))
            for span in planned.ranges
        ]
        if planned.new_partitions:
            # The checkpoint does not say where Spark began to read a partition that appeared meanwhile: it begins
            # at the log start. Unknown, it is taken as 0, so that whatever is missing shows up as missing.
            wanted = [(topic, partition) for _, topic, partition, _ in planned.new_partitions]
            starts = self._broker.log_starts(wanted)
            for source, topic, partition, end in planned.new_partitions:
                start = min(starts.get((topic, partition), 0), end)
                ranges.append(OffsetSpan(topic, ids.get(topic), partition, start, end, source))
        return tuple(ranges)

    # -- settle the epoch --------------------------------------------------------------------------

    def _settle(self, ledger: Ledger, batch: _Batch) -> _Life:
        front = self._front
        if front is None:
            return _Life(epoch=0)
        if front.query_id == batch.query_id:
            if batch.batch_id > front.batch_id:
                return _Life(epoch=front.epoch)
            known = self._known(ledger, front.epoch, batch)
            if known is not None:
                return _Life(epoch=front.epoch, replays=known)
        self._require_continuity(ledger, front, batch)
        return _Life(epoch=front.epoch + 1)

    def _covered(self, ledger: Ledger) -> dict[coverage.Key, Spans]:
        """What the ledger covers, read once: only a new epoch needs to know it all."""
        if self._held is None:
            self._held = ledger.coverage(self.pipeline.name, self.sink.name)
        return self._held

    def _known(self, ledger: Ledger, epoch: int, batch: _Batch) -> LedgerEntry | None:
        """The newest entry of this very micro-batch: same epoch, same number, same ranges."""
        for entry in reversed(ledger.last(self.pipeline.name, self.sink.name, _RECENT)):
            if (entry.epoch, entry.batch_id) == (epoch, batch.batch_id):
                planned = offsets_text(_without_ids(entry.offsets))
                again = _starting_as(entry, batch)
                same = planned == offsets_text(_without_ids(again))
                return entry if same or planned == self._text_when_trimmed(ledger, entry, again) else None
        return None

    def _text_when_trimmed(self, ledger: Ledger, entry: LedgerEntry, planned: Sequence[OffsetSpan]) -> str | None:
        """What the entry would hold if it were this micro-batch, less what the ledger held before it."""
        if not self.sink.trim_replayed_offsets:
            return None
        before = ledger.slice(self.pipeline.name, self.sink.name, to=entry.committed_at, operations=())
        mine = [(head.epoch, head.batch_id) == (entry.epoch, entry.batch_id) for head in before.heads]
        held = coverage.of(_without_entries(before.ranges, mine))
        return offsets_text(_without_ids(coverage.remainder(held, planned)))

    def _require_continuity(self, ledger: Ledger, front: LedgerEntry, batch: _Batch) -> None:
        """A new epoch may only go on where the ledger ends, unless the user accepted what it does instead."""
        overlaps, gaps = coverage.relation(self._covered(ledger), batch.ranges)
        name = f"pipeline {self.pipeline.name}, sink {self.sink.name}"
        if self.sink.trim_replayed_offsets:
            overlaps = []
        if not (overlaps or gaps):
            log.warning("%s: query %s begins epoch %d", name, batch.query_id, front.epoch + 1)
            return
        said = []
        if overlaps:
            said.append(f"overlap what the ledger already holds ({coverage.told(overlaps)})")
        if gaps:
            said.append(f"leave a gap to the ledger's end ({coverage.told(gaps)})")
        message = (
            f"{name}: micro-batch {batch.batch_id} of checkpoint {self._checkpoint.uri} begins a new epoch and its "
            f"ranges {' and '.join(said)}; either start a fresh checkpoint with the startingOffsets that "
            f"`recon offsets --pipeline {self.pipeline.name} --sink {self.sink.name}` prints, or accept it with "
            "`on_new_epoch: warn`"
            + (" (or drop what is already there with `trim_replayed_offsets: true`)" if overlaps else "")
        )
        if self.sink.on_new_epoch == "stop":
            raise NewEpochError(message)
        log.warning("%s", message)

    # -- stamp and write ---------------------------------------------------------------------------

    def _effective(self, ledger: Ledger, batch: _Batch, epoch: int) -> tuple[OffsetSpan, ...]:
        """The ranges this write accounts for: all of them, or what the ledger does not hold yet."""
        if not self.sink.trim_replayed_offsets or epoch == 0:
            return batch.ranges
        held = self._covered(ledger)
        overlaps, _ = coverage.relation(held, batch.ranges)
        if not overlaps:
            return batch.ranges
        unknown = sorted(
            {span.topic for span in batch.ranges if span.topic_id is None} | {t for t, i, _ in held if not i}
        )
        if unknown:
            raise SinkError(
                f"pipeline {self.pipeline.name}: trim_replayed_offsets cannot tell whether topic {unknown[0]} is the "
                "one the ledger knows, because no broker gave its topic id, now or when it was written; set kafka: "
                "bootstrap.servers in recon.yml, or start where `recon offsets` says"
            )
        return coverage.remainder(held, batch.ranges)

    def _stamp(self, ledger: Ledger, batch: _Batch, epoch: int, ranges: Sequence[OffsetSpan]) -> ReconStamp:
        return ReconStamp(
            pipeline=self.pipeline.name,
            sink=self.sink.name,
            epoch=epoch,
            batch_id=batch.batch_id,
            query_id=batch.query_id,
            run_id=batch.run_id,
            prev_hash=ledger.head_hash(self.pipeline.name, self.sink.name),
            offsets_text=offsets_text(ranges),
        )

    def _prepare(
        self, frame: DataFrame, batch: _Batch, ranges: Sequence[OffsetSpan]
    ) -> tuple[DataFrame, Observation | None]:
        """The rows to write, stamped; and a counter of the rows read, where they may differ from those written."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        reserved = [c for c in (BATCH_ID, *SOURCE_COLUMNS) if c in frame.columns]
        if reserved:
            raise SinkError(
                f"pipeline {self.pipeline.name}: the micro-batch already has a column {reserved[0]}, which recon "
                "writes itself; rename it before the sink"
            )
        trimming = tuple(ranges) != tuple(batch.ranges)
        observed = None
        if self._transform is not None or trimming:
            observed = Observation()
            frame = frame.observe(observed, F.count(F.lit(1)).alias("rows"))
        out = self._with_source(frame)
        if trimming:
            out = self._trimmed(out, ranges)
        if self._transform is not None:
            out = _call(self._transform, out, batch.batch_id)
            out = self._with_source(out)
        missing = [c for c in SOURCE_COLUMNS if c not in out.columns]
        if self.sink.stamp_source_offsets and missing:
            raise SinkError(
                f"pipeline {self.pipeline.name}: the rows to write have no column {missing[0]} and no Kafka columns "
                "to take it from; keep _source_topic, _source_partition and _source_offset in your transform, or set "
                f"stamp_source_offsets: false for sink {self.sink.name} (row-level proofs are then not possible)"
            )
        return out.withColumn(BATCH_ID, F.lit(batch.batch_id).cast("long")), observed

    def _with_source(self, frame: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        have = set(frame.columns)
        if not self.sink.stamp_source_offsets or not have.issuperset(SOURCE_COLUMNS.values()):
            return frame
        return frame.withColumns({n: F.col(o) for n, o in SOURCE_COLUMNS.items() if n not in have})

    def _trimmed(self, frame: DataFrame, ranges: Sequence[OffsetSpan]) -> DataFrame:
        """Only the rows whose offsets lie in `ranges`."""
        from pyspark.sql import functions as F

        if "_source_offset" not in frame.columns:
            raise SinkError(
                f"pipeline {self.pipeline.name}: trim_replayed_offsets needs the Kafka columns topic, partition and "
                "offset in the micro-batch; do not drop them before foreachBatch"
            )
        kept = [(s.topic, s.partition, s.start_offset, s.end_offset) for s in ranges if s.span.size]
        spans = frame.sparkSession.createDataFrame(kept, "t string, p int, a long, b long")
        inside = (
            (F.col("_source_topic") == F.col("t"))
            & (F.col("_source_partition") == F.col("p"))
            & (F.col("_source_offset") >= F.col("a"))
            & (F.col("_source_offset") < F.col("b"))
        )
        return frame.join(F.broadcast(spans), inside, "left_semi")

    # -- gate --------------------------------------------------------------------------------------

    def _gate(self, frame: DataFrame, landed: Landed) -> None:
        if not self.sink.post_batch:
            return
        from recon.checks import registry, runner

        bounds = registry.bind_post_batch(self.project, self.pipeline.name, self.sink.name)
        rows = self._writer.rows_of(frame.sparkSession, landed, ())
        for bound, result in zip(
            bounds,
            runner.run_table(bounds, rows, self.project.resolve(self.sink.target), utc_now),
            strict=True,
        ):
            if result.status in ("pass", "skipped"):
                continue
            said = f"post-batch check {result.name}: {result.status} {result.failures or ''} {result.message}".strip()
            if bound.config.on_failure == "stop" and result.status in ("fail", "error"):
                raise GateError(
                    f"{said}; the rows are in version {landed.version}, the micro-batch is not committed: repair them "
                    "or relax the check, then restart the query"
                )
            log.warning("%s", said)


class _Broker:
    """What the hook asks Kafka: topic ids, and log starts of new partitions. Never blocks a batch for long."""

    def __init__(self, conf: Mapping[str, str]) -> None:
        self._conf = dict(conf)
        self._admin: KafkaAdmin | None = None
        self._ids: dict[str, str | None] = {}
        self._asked = float("-inf")

    def topic_ids(self, topics: Sequence[str]) -> Mapping[str, str | None]:
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


def _running_query(frame: DataFrame) -> tuple[str | None, str | None]:
    """(query_id, run_id) as Spark's own thread knows them; (None, None) where there is no gateway to ask."""
    try:
        context = frame.sparkSession.sparkContext
        return context.getLocalProperty("sql.streaming.queryId"), context.getLocalProperty("spark.jobGroup.id")
    except Exception:  # Spark Connect has no SparkContext, and says so in several ways
        return None, None


def _call(transform: Transform, frame: DataFrame, batch_id: int) -> DataFrame:
    takes = [
        p
        for p in inspect.signature(transform).parameters.values()
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty
    ]
    return transform(frame, batch_id) if len(takes) > 1 else transform(frame)


def _observed(observation: Observation) -> int | None:
    """The observed count, or None: `Observation.get` waits for ever where Spark never reports."""
    found: list[int] = []
    reader = threading.Thread(target=lambda: found.append(int(observation.get["rows"])), daemon=True)
    reader.start()
    reader.join(_OBSERVED_WITHIN_S)
    return found[0] if found else None


def _difference(read: int | None, written: int | None) -> int | None:
    """Rows that were read and not written; None when unknown, or when the transform made rows."""
    if read is None or written is None or written > read:
        return None
    return read - written


def _without_ids(ranges: Sequence[OffsetSpan]) -> list[OffsetSpan]:
    # A replay may meet a broker that the first attempt did not, or the other way round.
    return [span._replace(topic_id=None) for span in ranges]


def _starting_as(entry: LedgerEntry, batch: _Batch) -> list[OffsetSpan]:
    """The planned ranges; a partition that was new starts where the entry says, since only Kafka said it then."""
    starts = {(s.source, s.topic, s.partition): s.start_offset for s in entry.offsets}
    return [
        span._replace(start_offset=starts.get(where, span.start_offset)) if where in batch.new_partitions else span
        for span in batch.ranges
        for where in [(span.source, span.topic, span.partition)]
    ]


def _without_entries(table: RangeTable, left_out: Sequence[bool]) -> RangeTable:
    import numpy as np

    kept = ~np.array(left_out, dtype=bool)[table.entry]
    return RangeTable(
        entry=table.entry[kept],
        topic=table.topic[kept],
        partition=table.partition[kept],
        start=table.start[kept],
        end=table.end[kept],
        topics=table.topics,
    )


def _further(front: LedgerEntry | None, entry: LedgerEntry) -> LedgerEntry:
    """Whichever got further; a replay of the same micro-batch replaces its earlier entry."""
    if front is None or (entry.epoch, entry.batch_id) >= (front.epoch, front.batch_id):
        return entry
    return front


def _fingerprint(sink: Sink) -> str:
    """A short hash of what was agreed for this sink when the write was made."""
    agreed = [spec.model_dump_json(exclude={"line"}) for spec in (*sink.data_tests, *sink.post_batch)]
    agreed += [spec.model_dump_json(exclude={"line"}) for column in sink.columns for spec in column.data_tests]
    return hashlib.sha256("\n".join(agreed).encode()).hexdigest()[:16]


def starting_offsets(project: Project, pipeline: str, sink: str | None = None) -> str:
    """The `startingOffsets` JSON that continues exactly where the ledger ends.

    Commits that a crash left unrecorded count too. With several sinks and none named, all must agree.

    Raises:
        ConfigError: unknown names, sinks that ended at different offsets, one topic in several sources.
        LedgerError: the ledger cannot be read.
    """
    pipe = find_sink(project, pipeline, sink)[0] if sink else find_pipeline(project, pipeline)
    ledger = open_ledger(project)
    answers: dict[str, str] = {}
    for out in pipe.sinks:
        if sink in (None, out.name):
            ends = _ends(project, ledger, pipe.name, out)
            answers[out.name] = json.dumps(ends, separators=(",", ":"))
    if len(set(answers.values())) > 1:
        raise ConfigError(
            f"the sinks of pipeline {pipeline} end at different offsets ({', '.join(answers)}); name one with --sink"
        )
    return next(iter(answers.values()))


def _ends(project: Project, ledger: Ledger, pipeline: str, sink: Sink) -> dict[str, dict[str, int]]:
    front: LedgerEntry | None = None
    recent = ledger.last(pipeline, sink.name, _RECENT)
    for entry in recent:
        front = _further(front, entry)
    storage = Storage(project.resolve(sink.target), project.storage_options)
    version = front.sink_version + 1 if front and front.sink_version is not None else None
    commits = delta_log.read(storage, from_version=version).commits.values()
    later = unrecorded(commits, pipeline, sink.name, {(entry.epoch, entry.batch_id) for entry in recent})
    written = [parse_offsets(commit.stamp.offsets_text) for commit in later if commit.stamp]
    last = written[-1] if written else (front.offsets if front else ())
    if front is not None and front.epoch > 0:
        # An epoch that read old offsets again may not have come as far as the one before it.
        held = ledger.coverage(pipeline, sink.name)
        for ranges in written:
            held = coverage.plus(held, ranges)
        last = coverage.remainder(held, [span._replace(start_offset=span.end_offset) for span in last])
    if not last:
        raise ConfigError(
            f"the ledger holds no offsets for pipeline {pipeline}, sink {sink.name}; begin with "
            'startingOffsets "earliest" or "latest"'
        )
    if len({(span.topic, span.source) for span in last}) > len({span.topic for span in last}):
        raise ConfigError(
            f"pipeline {pipeline} reads one topic through several sources; take their ends from "
            f"`recon ledger show --pipeline {pipeline} --output json` and set startingOffsets per source"
        )
    ends: dict[str, dict[str, int]] = {}
    for span in sorted(last):
        partitions = ends.setdefault(span.topic, {})
        partitions[str(span.partition)] = max(partitions.get(str(span.partition), 0), span.end_offset)
    return ends


__all__ = ["ForeachBatch", "find_sink", "foreach_batch", "starting_offsets"]
