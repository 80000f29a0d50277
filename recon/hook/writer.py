"""One pipeline's writer into one sink.

Per micro-batch: identify (checkpoint, Kafka), settle the epoch, stamp, ask the row checks, write the good rows,
confirm the commit, put failing rows aside, append the ledger entry, run the other post-batch checks. Nothing here
needs the JVM gateway: query_id and offset ranges stand in the checkpoint's own files.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from recon._version import __version__
from recon.errors import ConfigError, EvidenceError, GateError, SinkError
from recon.evidence import checkpoint
from recon.ledger import Ledger, open_ledger
from recon.ledger.ledger import checks_fingerprint, utc_now
from recon.ledger.rebuild import quarantine_of, recorded, restore, unrecorded
from recon.model import (
    CheckpointBatch,
    CheckResult,
    LedgerEntry,
    ReconStamp,
    offsets_text,
)
from recon.model.offsets import OffsetSpan
from recon.project import Pipeline, Project, Sink
from recon.quarantine.rows import FAILING, ROWS, Asked, RowChecks
from recon.quarantine.table import QuarantineTable, open_quarantine
from recon.sinks import BatchSink, Failpoint, Landed, failpoints, open_sink
from recon.spark.lazy import F
from recon.spark.observation import observed, rows_of
from recon.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation

from recon.hook.broker import Broker
from recon.hook.epochs import CLOCKS_APART, RECENT, Batch, Epochs
from recon.model.wire.columns import (
    BATCH_ID,
    KAFKA_COLUMNS,
    SOURCE_COLUMNS,
    SOURCE_OFFSET,
    SOURCE_PARTITION,
    SOURCE_TOPIC,
    STAMPED_COLUMNS,
)

log = logging.getLogger("recon")

Transform = Callable[..., "DataFrame"]


@dataclass(frozen=True, kw_only=True)
class Done:
    """A write as the ledger tells it; counts are None where unknown."""

    landed: Landed
    rows_read: int | None
    rows_filtered: int | None
    rows_quarantined: int | None


class ForeachBatch:
    """One pipeline's writer into one sink; call it as `foreachBatch` does, with (DataFrame, batch_id)."""

    def __init__(
        self,
        project: Project,
        pipeline: Pipeline,
        sink: Sink,
        transform: Transform | None = None,
        *,
        failpoint: Failpoint = failpoints.no_failpoint,
    ) -> None:
        """Nothing is read or written before the first micro-batch.

        Args:
            project: a loaded recon.yml.
            pipeline: one of its pipelines.
            sink: one of the pipeline's sinks.
            transform: the user's function, called with the micro-batch (and its batch_id).
            failpoint: called at the moments of recon.sinks.failpoints; a crash test's ends the process there.

        Raises:
            ConfigError: a post-batch check cannot be bound, or cannot do what its `on_failure` asks.
        """
        from recon.checks import registry

        self.project, self.pipeline, self.sink = project, pipeline, sink
        self._transform, self._failpoint = transform, failpoint
        self._checkpoint = Storage(project.resolve(pipeline.checkpoint), project.storage_options)
        self.writer: BatchSink = self._open_sink()
        self._broker = Broker(project.kafka)
        self._ledger: Ledger | None = None
        self._epochs: Epochs | None = None
        self._fingerprint = checks_fingerprint(sink)
        self._checks = RowChecks(registry.bind_post_batch(project, pipeline.name, sink.name) if sink.post_batch else ())
        self._aside = self._open_aside()
        self._observes = True  # until Spark once does not report what it observed
        self._broke = False  # a check broke on a value, so a job was run again without it

    def _open_sink(self) -> BatchSink:
        return open_sink(self.project, self.pipeline.name, self.sink, self._failpoint)

    def _open_aside(self) -> QuarantineTable | None:
        return open_quarantine(self.project, self.pipeline, self.sink) if self._checks.puts_aside else None

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Write one micro-batch and enter it in the ledger.

        Raises:
            SinkError: the write was swallowed or must not go on; nothing was entered.
            NewEpochError: the checkpoint started over and its ranges overlap or miss the ledger's end.
            LedgerError: the data is committed and the entry could not be written; the next start repairs it.
            GateError: a post-batch check with `on_failure: stop` failed, or more rows than `stop_above` allows.
        """
        try:
            self._write(frame, batch_id)
        except BaseException:
            self.forget()
            raise

    def forget(self) -> None:
        """The same object may be started again: then it must look at table and ledger anew, as a new one would."""
        self._ledger = self._epochs = None
        self.writer, self._aside = self._open_sink(), self._open_aside()
        self._checks.forget()

    def _write(self, frame: DataFrame, batch_id: int) -> None:
        started = utc_now()
        ledger = self._opened(frame)
        batch = self._identify(frame, batch_id)
        epochs = self._epochs
        assert epochs is not None
        # Another query of this sink, or a release: a driver that lost its place must not write on as if it had not.
        for other in ledger.others(self.pipeline.name, self.sink.name):
            epochs.entered(other)
        life = epochs.settle(batch)
        attempt = life.replays.attempt + 1 if life.replays else 1

        known = life.replays
        ranges = known.offsets if known else epochs.effective(batch, life.epoch)
        stamp = self._stamp(ledger, batch, life.epoch, ranges)
        landed = self.writer.landed(stamp, known.sink_version) if known else None
        if known and landed:
            status = "already_committed"
            aside = known.rows_quarantined
            if aside is None and self._aside is not None:  # restored: whether it came to the quarantine nobody knows
                aside = self._put_aside_again(frame, batch, ranges, stamp, landed)
            before = Done(
                landed=landed, rows_read=known.rows_read, rows_filtered=known.rows_filtered, rows_quarantined=aside
            )
            done = self._recounted(before, batch, ranges)
        else:
            status = "committed"
            done = self._land(frame, batch, ranges, stamp, again=known is not None)
            landed = done.landed
        entry = LedgerEntry(
            pipeline=self.pipeline.name,
            sink=self.sink.name,
            sink_kind=self.sink.kind,
            target=self._target,
            guarantee=self.sink.guarantee,
            query_id=batch.query_id,
            run_id=batch.run_id,
            epoch=life.epoch,
            batch_id=batch_id,
            attempt=attempt,
            status="already_committed" if status == "already_committed" else "committed",
            offsets=ranges,
            rows_read=done.rows_read,
            rows_written=landed.rows if landed.rows is not None or known is None else known.rows_written,
            rows_quarantined=done.rows_quarantined,
            rows_filtered=done.rows_filtered,
            sink_version=landed.version,
            started_at=started,
            committed_at=utc_now(),
            spark_version=frame.sparkSession.version,
            recon_version=__version__,
            checks_fingerprint=self._fingerprint,
            prev_hash="",
            entry_hash="",
        )
        self._failpoint(failpoints.BEFORE_LEDGER, stamp)
        epochs.entered(ledger.append(entry))
        self._failpoint(failpoints.AFTER_LEDGER, stamp)
        self._gate(frame, landed, stamp)

    def _recounted(self, done: Done, batch: Batch, ranges: Sequence[OffsetSpan]) -> Done:
        """A replayed write as the first attempt's entry tells it; a route counts what a restored entry lacks."""
        return done

    # -- open and repair ---------------------------------------------------------------------------

    def _opened(self, frame: DataFrame) -> Ledger:
        """The ledger, repaired on the first micro-batch from writes that a crash left unrecorded."""
        if self._ledger is None:
            ledger = open_ledger(self.project, frame.sparkSession)
            pipeline, sink = self.pipeline.name, self.sink.name
            recent = ledger.last(pipeline, sink, RECENT)
            # A release may have written while the query was down: commits before it may still lack their entry.
            of_batches = [entry for entry in recent if not entry.is_release]
            versions = [entry.sink_version for entry in of_batches if entry.sink_version is not None]
            since = max((entry.committed_at for entry in of_batches), default=None)
            remembered = self.writer.log(
                after=max(versions, default=None), since=None if since is None else since - CLOCKS_APART
            )
            known = {(entry.epoch, entry.batch_id) for entry in recent}
            if unrecorded(remembered.commits, pipeline, sink, known):
                known |= recorded(ledger, pipeline, sink)  # a sink without versions remembers more than was looked at
            restored = restore(
                ledger,
                pipeline,
                self.sink,
                remembered.commits,
                target=self._target,
                known=known,
                quarantine=lambda: quarantine_of(self.project, pipeline, self.sink),
            )
            for entry in restored:
                log.warning(
                    "pipeline %s, sink %s: %s %d (epoch %d) was committed%s and missing in the ledger; restored from "
                    "what the sink itself remembers",
                    pipeline,
                    sink,
                    "release" if entry.is_release else "micro-batch",
                    entry.batch_id,
                    entry.epoch,
                    "" if entry.sink_version is None else f" as version {entry.sink_version}",
                )
            self._epochs = Epochs(ledger, pipeline, self.sink, self._checkpoint.uri, (*recent, *restored))
            self._ledger = ledger
        return self._ledger

    # -- identify ----------------------------------------------------------------------------------

    def _identify(self, frame: DataFrame, batch_id: int) -> Batch:
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
        return Batch(
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

    # -- stamp and write ---------------------------------------------------------------------------

    def _stamp(self, ledger: Ledger, batch: Batch, epoch: int, ranges: Sequence[OffsetSpan]) -> ReconStamp:
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

    def _land(
        self, frame: DataFrame, batch: Batch, ranges: Sequence[OffsetSpan], stamp: ReconStamp, *, again: bool
    ) -> Done:
        """Writes the micro-batch: good rows into the sink, failing ones aside. `again`: it was tried before."""
        out, read = self._prepare(frame, batch, ranges)
        counted: Mapping[str, Any] | None = None
        self._broke = False
        if self._checks.bounds:
            landed, asked, counted = self._written(out, stamp)
        else:
            landed, asked = self._written_whole(out, stamp), None
        aside: int | None = 0
        # Unknown is never none: where Spark reported no counts, the failing rows are looked for.
        if asked is not None and self._aside is not None and (counted is None or counted.get(FAILING)):
            aside = self._aside.found(stamp, out.sparkSession) if again else None
            aside = self._aside.put(out, asked, stamp, utc_now()) if aside is None else aside
        given = counted[ROWS] if counted is not None else None
        kept = _sum(landed.rows, aside)
        handed = kept if landed.given is None else _sum(landed.given, aside)
        self._require_whole(batch, given, handed, landed, aside)
        if read is None:
            rows_read = handed if given is None else given
        else:  # a job that failed has told its own count, and no later one is heard
            rows_read = None if self._broke or self.writer.ran_again else rows_of(observed(read))
        # What the sink itself left out, because a later row has the same key, is not in it.
        put = kept if landed.given is not None or given is None else given
        return Done(
            landed=landed, rows_read=rows_read, rows_filtered=_difference(rows_read, put), rows_quarantined=aside
        )

    def _written_whole(self, out: DataFrame, stamp: ReconStamp) -> Landed:
        self._failpoint(failpoints.BEFORE_WRITE, stamp)
        self.writer.write(out, stamp)
        landed = self.writer.confirm(stamp)
        self._failpoint(failpoints.AFTER_WRITE, stamp)
        return landed

    def _written(self, out: DataFrame, stamp: ReconStamp) -> tuple[Landed, Asked, Mapping[str, Any] | None]:
        """Asks the row checks and writes the rows that pass; the counts are None where Spark reported none."""
        asked = self._checks.asked(out, self._rows_said)
        self._judge(asked.refusals(utc_now(), self._target), stamp)
        limited = self._checks.puts_aside and self.sink.quarantine.stop_above is not None
        beforehand = self._checks.stops or limited or not self._observes
        for last in (False, True):
            try:
                counted = asked.measure(out) if beforehand else None
                if counted is not None:
                    self._judge(asked.judge(counted, utc_now(), self._target), stamp)
                    self._require_few(counted, stamp)
                observation = self._write_good(out, asked, stamp, observe=not beforehand)
                break
            except SinkError:
                raise
            except Exception:
                # A check may break on a value (a cast, a division): then it, and not the micro-batch, is at fault.
                fewer = None if last else asked.without_those_that_break_on(out)
                if fewer is None:
                    raise
                self._judge(fewer.refusals(utc_now(), self._target), stamp)
                asked, self._broke = fewer, True
        landed = self.writer.confirm(stamp)
        self._failpoint(failpoints.AFTER_WRITE, stamp)
        if observation is not None:
            # What was observed of a write that ran twice may be the first run's: then a job counts.
            counted = asked.measure(out) if self.writer.ran_again else observed(observation)
            if counted is not None:
                self._judge(asked.judge(counted, utc_now(), self._target), stamp, written=True)
            else:
                log.warning(
                    "%s: Spark did not report what the row checks counted; from now on a job before the write counts",
                    self._of_batch(stamp.batch_id),
                )
                self._observes = False
        return landed, asked, counted

    def _write_good(self, out: DataFrame, asked: Asked, stamp: ReconStamp, *, observe: bool) -> Observation | None:
        from pyspark.sql import Observation

        observation = Observation() if observe else None
        if observation is not None:
            out = out.observe(observation, *asked.aggregates())
        bad = asked.bad()
        self._failpoint(failpoints.BEFORE_WRITE, stamp)
        self.writer.write(out if bad is None else out.filter(~bad), stamp)
        return observation

    def _put_aside_again(
        self, frame: DataFrame, batch: Batch, ranges: Sequence[OffsetSpan], stamp: ReconStamp, landed: Landed
    ) -> int | None:
        """The rows that a crash may have left neither in the sink nor in quarantine."""
        assert self._aside is not None
        found = self._aside.found(stamp, frame.sparkSession)
        if found is not None:
            return found
        out, _ = self._prepare(frame, batch, ranges)
        asked = self._checks.asked(out, self._rows_said)
        self._judge(asked.refusals(utc_now(), self._target), stamp)
        counted = asked.measure(out)
        if not counted[FAILING] or counted[ROWS] == (landed.rows if landed.given is None else landed.given):
            return 0  # nothing fails, or the rows were written before there was a check to hold any back
        aside = self._aside.put(out, asked, stamp, utc_now())
        handed = _sum(landed.rows if landed.given is None else landed.given, aside)
        self._require_whole(batch, counted[ROWS], handed, landed, aside)
        return aside

    def _of_batch(self, batch_id: int) -> str:
        return f"pipeline {self.pipeline.name}, sink {self.sink.name}, micro-batch {batch_id}"

    @property
    def _rows_said(self) -> str:
        return f"the micro-batch of pipeline {self.pipeline.name}, sink {self.sink.name}"

    @property
    def _target(self) -> str:
        return self.project.location(self.sink)

    def _prepare(
        self, frame: DataFrame, batch: Batch, ranges: Sequence[OffsetSpan]
    ) -> tuple[DataFrame, Observation | None]:
        """The rows to write, stamped; and a counter of the rows read, where they may differ from those written."""
        from pyspark.sql import Observation

        require_free(frame, self.pipeline.name)
        trimming = tuple(ranges) != tuple(batch.ranges)
        read = None
        if self._transform is not None or trimming:
            read = Observation()
            frame = frame.observe(read, F.count(F.lit(1)).alias("rows"))
        out = self._with_source(frame)
        if trimming:
            out = self._trimmed(out, ranges)
        if self._transform is not None:
            out = call(self._transform, out, batch.batch_id)
            out = self._with_source(out)
        return self._stamped(out, batch), read

    def _stamped(self, out: DataFrame, batch: Batch) -> DataFrame:
        """The rows with `_batch_id`, and with the source's coordinates where the sink wants them."""
        missing = [c for c in SOURCE_COLUMNS if c not in out.columns]
        if self.sink.stamp_source_offsets and missing:
            raise SinkError(
                f"pipeline {self.pipeline.name}: the rows to write have no column {missing[0]} and no Kafka columns "
                "to take it from; keep _source_topic, _source_partition and _source_offset in your transform, or set "
                f"stamp_source_offsets: false for sink {self.sink.name} (row-level proofs are then not possible)"
            )
        return out.withColumn(BATCH_ID, F.lit(batch.batch_id).cast("long"))

    def _with_source(self, frame: DataFrame) -> DataFrame:
        return with_source(frame) if self.sink.stamp_source_offsets else frame

    def _trimmed(self, frame: DataFrame, ranges: Sequence[OffsetSpan]) -> DataFrame:
        """Only the rows whose offsets lie in `ranges`."""
        if SOURCE_OFFSET not in frame.columns:
            raise SinkError(
                f"pipeline {self.pipeline.name}: trim_replayed_offsets needs the Kafka columns topic, partition and "
                "offset in the micro-batch; do not drop them before foreachBatch"
            )
        kept = [(s.topic, s.partition, s.start_offset, s.end_offset) for s in ranges if s.span.size]
        spans = frame.sparkSession.createDataFrame(kept, "t string, p int, a long, b long")
        inside = (
            (F.col(SOURCE_TOPIC) == F.col("t"))
            & (F.col(SOURCE_PARTITION) == F.col("p"))
            & (F.col(SOURCE_OFFSET) >= F.col("a"))
            & (F.col(SOURCE_OFFSET) < F.col("b"))
        )
        return frame.join(F.broadcast(spans), inside, "left_semi")

    # -- gate --------------------------------------------------------------------------------------

    def _judge(self, results: Iterable[CheckResult], stamp: ReconStamp, *, written: bool = False) -> None:
        """Tells what the row checks found; before the write, raises where there must be none."""
        actions = {bound.name: bound.config.on_failure for bound in self._checks.bounds}
        for result in results:
            action = actions[result.name]
            if result.status == "error" and action != "warn" and not written:
                raise GateError(
                    f"post-batch check {result.name}: {result.message}; what cannot be judged is not let through: "
                    f"nothing of micro-batch {stamp.batch_id} was written; correct the check, then restart the query"
                )
            if result.status == "fail" and action == "stop":
                raise GateError(
                    f"{_told(result)}; nothing of micro-batch {stamp.batch_id} was written: repair the rows in the "
                    "transform or relax the check, then restart the query, which reads the micro-batch again"
                )
            if action == "quarantine" and result.failures:
                log.warning("%s; the rows are put aside in %s", _told(result), self._aside and self._aside.target)
            elif result.status not in ("pass", "skipped"):
                log.warning("%s", _told(result))

    def _require_few(self, counted: Mapping[str, Any], stamp: ReconStamp) -> None:
        """Stops where a larger share of the rows fails than quarantine may take."""
        limit, rows = self.sink.quarantine.stop_above, counted[ROWS]
        failing = counted.get(FAILING, 0)
        if limit is None or not rows or failing <= limit * rows:
            return
        names = ", ".join(b.name for b in self._checks.bounds if b.config.on_failure == "quarantine")
        raise GateError(
            f"{failing:,} of {rows:,} rows of micro-batch {stamp.batch_id} ({failing / rows:.2%}) fail {names}, and "
            f"quarantine: stop_above allows {limit:.2%}; nothing of it was written: repair the rows in the transform, "
            "relax the checks or raise stop_above, then restart the query, which reads the micro-batch again"
        )

    def _require_whole(
        self, batch: Batch, given: int | None, kept: int | None, landed: Landed, aside: int | None
    ) -> None:
        """Rows that are neither in the sink nor aside, or in both: the two passes did not see the same rows."""
        if not self._checks.puts_aside or given is None or kept is None or given == kept:
            return
        log.error(
            "%s: the checks saw %d rows, and %s are in the sink and %s in quarantine: the transform does not give the "
            "same rows each time it runs (rand(), a changing lookup); make it deterministic, and audit: source_rows "
            "tells which offsets are missing",
            self._of_batch(batch.batch_id),
            given,
            landed.rows,
            aside,
        )

    def _gate(self, frame: DataFrame, landed: Landed, stamp: ReconStamp) -> None:
        """Runs the checks that judge the micro-batch as a whole, on the rows that landed."""
        bounds = self._checks.others
        if not bounds:
            return
        from recon.checks.engine import runner
        from recon.checks.engine.context import ScanContext
        from recon.sinks.catalog import ProjectTables

        rows = self.writer.rows_of(frame.sparkSession, landed, stamp)
        context = ScanContext(tables=ProjectTables(self.project, frame.sparkSession))
        for bound, result in zip(bounds, runner.run_table(bounds, rows, self._target, utc_now, context), strict=True):
            if result.status in ("pass", "skipped"):
                continue
            if bound.config.on_failure == "stop" and result.status in ("fail", "error"):
                where = "the sink" if landed.version is None else f"version {landed.version}"
                raise GateError(
                    f"{_told(result)}; the rows are in {where}, the micro-batch is not committed: "
                    "repair them or relax the check, then restart the query"
                )
            log.warning("%s", _told(result))


def _told(result: CheckResult) -> str:
    return f"post-batch check {result.name}: {result.status} {result.failures or ''} {result.message}".strip()


def _running_query(frame: DataFrame) -> tuple[str | None, str | None]:
    """(query_id, run_id) as Spark's own thread knows them; (None, None) where there is no gateway to ask."""
    try:
        context = frame.sparkSession.sparkContext
        return context.getLocalProperty("sql.streaming.queryId"), context.getLocalProperty("spark.jobGroup.id")
    except Exception:  # Spark Connect has no SparkContext, and says so in several ways
        return None, None


def require_free(frame: DataFrame, pipeline: str) -> None:
    """Raises SinkError where the micro-batch has a column of a name that recon writes."""
    reserved = [c for c in STAMPED_COLUMNS if c in frame.columns]
    if reserved:
        raise SinkError(
            f"pipeline {pipeline}: the micro-batch already has a column {reserved[0]}, which recon "
            "writes itself; rename it before the sink"
        )


def with_source(frame: DataFrame) -> DataFrame:
    """The rows with the source's coordinates, where Kafka's own columns are there to take them from."""
    have = set(frame.columns)
    if not have.issuperset(KAFKA_COLUMNS):
        return frame
    return frame.withColumns(
        {ours: F.col(kafka) for ours, kafka in zip(SOURCE_COLUMNS, KAFKA_COLUMNS, strict=True) if ours not in have}
    )


def call(transform: Transform, frame: DataFrame, batch_id: int) -> DataFrame:
    """What the user's transform gives; it may take the batch_id, too."""
    takes = [
        p
        for p in inspect.signature(transform).parameters.values()
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty
    ]
    return transform(frame, batch_id) if len(takes) > 1 else transform(frame)


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other


def _difference(read: int | None, written: int | None) -> int | None:
    """Rows that were read and not written; None when unknown, or when the transform made rows."""
    if read is None or written is None or written > read:
        return None
    return read - written
