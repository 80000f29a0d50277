"""`ForeachBatch`: writes the micro-batches of one pipeline into one sink, and enters each in the ledger.

For each micro-batch, in this order: identify it (checkpoint, Kafka) and its epoch; prepare and stamp the rows. Write
the rows that pass the row checks, confirm the commit, write failing rows to quarantine. Append the ledger entry, then
run the checks that judge the micro-batch as a whole.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from recon.base.clock import utc_now
from recon.base.errors import RefusedError, SinkError
from recon.base.limits import CONTENTION_S
from recon.base.storage import Storage
from recon.events import Emitter, MicroBatchFailed, MicroBatchWritten
from recon.events.errors import sentence
from recon.model import EntryStatus, LedgerEntry, ReconStamp, offsets_text
from recon.model.ledger import named
from recon.model.positions import is_kafka
from recon.project import Pipeline, Project, Routes, Sink
from recon.spark.connect import connects
from recon.spark.observation import ROWS, Counter, observed
from recon.spark.running_query import isolation_level
from recon.witness.source_files import LogDigest
from recon.write.hook import calls
from recon.write.hook.adopt import require_not_written, take_over
from recon.write.hook.broker import Broker
from recon.write.hook.epochs import Batch, BatchToWrite, Epochs
from recon.write.hook.gate import Gate
from recon.write.hook.identify import identify
from recon.write.hook.prepare import BatchRows, PreparedRows, Transform, WholeBatch, source_of
from recon.write.hook.repair import open_repaired
from recon.write.hook.routing import passed
from recon.write.hook.row_counts import CountedWrite, RowCounts, delivered
from recon.write.hook.version_guard import Sent
from recon.write.ledger import Ledger, open_ledger
from recon.write.ledger.entries import new_entry
from recon.write.ledger.ledger import checks_fingerprint
from recon.write.quarantine.rows import FAILING, FittedRowChecks, RowChecks
from recon.write.quarantine.table import QuarantineTable, open_quarantine
from recon.write.sinks import BatchSink, ConfirmedWrite, Failpoint, failpoints, open_sink

if TYPE_CHECKING:
    from datetime import datetime

    from pyspark.sql import DataFrame, Observation, SparkSession

log = logging.getLogger("recon")

_ASK_EVERY_S = 0.2  # for the entry of a repair
_NEWEST = 20  # entries among which it is looked for


@dataclass(frozen=True, kw_only=True)
class SinkWrite:
    """One write of the sink.

    Attributes:
        landed: what the sink confirmed.
        checks: the row checks that were evaluated; None where the sink has none.
        counts: what they counted; None where there are none, or Spark did not report the counts.
        computed_once: whether one Spark job computed the rows. If not, an Observation of them may have the counts of
            a job that failed.
        given: counts the rows that the sink was given; None where it was given all rows.
    """

    landed: ConfirmedWrite
    checks: FittedRowChecks | None = None
    counts: Mapping[str, Any] | None = None
    computed_once: bool
    given: Counter | None = None

    @property
    def rows_checked(self) -> int | None:
        """Rows that the row checks counted."""
        return None if self.counts is None else self.counts[ROWS]


@dataclass(kw_only=True)
class Opened:
    """What is known of a sink: its ledger, the epochs there, and the number of its newest write that is entered there.

    `number` is None where the sink numbers no writes. `newest_native` is the newest micro-batch of the query that
    Spark's own sink wrote there, -1 for none; None until the first one is looked at.
    """

    ledger: Ledger
    epochs: Epochs
    number: int | None
    newest_native: int | None = None


class ForeachBatch(Sent):
    """One pipeline's writer into one sink; call it as `foreachBatch` does, with (DataFrame, batch_id)."""

    # A repair that took our number enters its commit within the time for which an append is tried; then we restore it.
    entry_within_s = CONTENTION_S

    def __init__(
        self,
        project: Project,
        pipeline: Pipeline,
        sink: Sink,
        transform: Transform | None = None,
        *,
        routes: Routes | None = None,
        failpoint: Failpoint = failpoints.no_failpoint,
        emitter: Emitter | None = None,
    ) -> None:
        """Nothing is read or written before the first micro-batch.

        Args:
            project: a loaded recon.yml.
            pipeline: one of its pipelines.
            sink: one of the pipeline's sinks.
            transform: the user's function, called with the micro-batch (and its batch_id).
            routes: those by which the rows were chosen that it is given.
            failpoint: called at the moments of recon.write.sinks.failpoints; a crash test's ends the process there.
            emitter: of the events, where several writers share one.

        Raises:
            ConfigError: a post-batch check cannot be bound, or does not support its `on_failure`, or what should be
                told of micro-batches cannot be.
        """
        from recon.checks.binding import bind_post_batch

        self.project, self.pipeline, self.sink = project, pipeline, sink
        self._transform, self._failpoint = transform, failpoint
        self.emitter = Emitter(project) if emitter is None else emitter
        self._routes, self._passed = routes, passed(transform, routes)
        self._name = f"pipeline {pipeline.name}, sink {sink.name}"
        self._location = project.location(sink)
        self._ledger_place = project.ledger.table or project.resolve(project.ledger.location or "")
        self._checkpoint = Storage(project.resolve(pipeline.checkpoint), project.storage_options)
        self._files = LogDigest(self._checkpoint)
        self._broker = Broker(project.kafka)
        self._checks = RowChecks(bind_post_batch(project, pipeline.name, sink.name) if sink.post_batch else ())
        self._fingerprint = checks_fingerprint(sink)
        self._reports_observations = True  # until Spark once does not report one
        self._levels: Mapping[str, str | None] = {}  # the running query's isolation level, by run_id
        self._began, self._write_seconds = 0.0, 0.0  # of the micro-batch that is being written
        self._open_anew()
        self._gate = Gate(project, sink, self._checks, self._quarantine.target if self._quarantine else None)

    def _open_anew(self) -> None:
        self._opened: Opened | None = None
        self.writer: BatchSink = open_sink(self.project, self.pipeline.name, self.sink, self._failpoint)
        self._quarantine: QuarantineTable | None = None
        if self._checks.quarantines:
            self._quarantine = open_quarantine(self.project, self.pipeline, self.sink)

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Write one micro-batch and enter it in the ledger.

        Raises:
            SinkError: the sink did not commit the write, or it must not go on; nothing was entered. Or another call of
                the same run wrote the micro-batch: nothing of this one was written, and it is entered.
            NewEpochError: the checkpoint started over and its ranges overlap or miss the ledger's end.
            TableReplacedError: the sink's table is not the one that the ledger's entries were written into.
            LedgerError: the data is committed and the entry could not be written; the next start repairs it.
            GateError: a post-batch check with `on_failure: stop` failed, or more rows than `stop_above` allows.
        """
        self.write(WholeBatch(frame, self.sink, self._transform, of_table=not self.pipeline.of_kafka), batch_id)

    def write(self, rows: BatchRows, batch_id: int) -> None:
        """Write these rows of one micro-batch and enter them in the ledger; raises what a call raises.

        Where a repair took the number of the write, everything is read anew and the micro-batch is written again. This
        is repeated as often as another repair commits first.
        """
        started_at = utc_now()
        while True:
            try:
                self._write(rows, batch_id)
                return
            except RefusedError as error:
                repair = self._repair_behind(error)
                if repair is None:
                    self._tell_failed(batch_id, started_at, error)
                    raise
                log.warning(
                    "%s, micro-batch %d: %s was committed at the same moment, and the sink refused the micro-batch, of "
                    "which nothing was written: recon reads what is there anew and writes it again",
                    self._name,
                    batch_id,
                    named(repair),
                )
                self._await_entry(repair, rows.frame.sparkSession)
            except BaseException as error:
                self.forget()
                self._tell_failed(batch_id, started_at, error)
                raise

    def _tell_failed(self, batch_id: int, started_at: datetime, error: BaseException) -> None:
        self.emitter.emit(
            lambda: MicroBatchFailed(
                project=self.project.name,
                pipeline=self.pipeline.name,
                sink=self.sink.name,
                batch_id=batch_id,
                started_at=started_at,
                error=type(error).__name__,
                message=sentence(error),
            )
        )

    def _repair_behind(self, error: RefusedError) -> ReconStamp | None:
        """The repair that took the number of a write; forgets everything read so far."""
        try:
            names = (self.pipeline.name, self.sink.name)
            return None if error.number is None else self.writer.repair_of(*names, error.number)
        finally:
            self.forget()

    def _await_entry(self, repair: ReconStamp, spark: SparkSession) -> None:
        """Waits a moment for the entry of a repair, which knows more than one that the hook would restore."""
        ledger, until = open_ledger(self.project, spark), time.monotonic() + self.entry_within_s
        while time.monotonic() < until:
            newest = ledger.last(self.pipeline.name, self.sink.name, _NEWEST)
            if any((entry.epoch, entry.batch_id) == (repair.epoch, repair.batch_id) for entry in newest):
                return
            time.sleep(_ASK_EVERY_S)

    def forget(self) -> None:
        """Drops everything read so far: the query may be started again with the same object."""
        self._open_anew()
        self._checks.forget()

    def _write(self, rows: BatchRows, batch_id: int) -> None:
        started_at = utc_now()
        self._began, self._write_seconds = time.monotonic(), 0.0
        opened = self._open(rows.frame.sparkSession)
        identified = identify(
            rows.frame,
            batch_id,
            pipeline=self.pipeline.name,
            storage=self._checkpoint,
            broker=self._broker,
            reads=self.pipeline.source.kind,
            beginning=self.pipeline.source.beginning,
        )
        identified = replace(identified, files_digest=self._files.of(identified.ranges))
        # Entries of another query of this sink, or of a release: a driver that was replaced must not write on.
        if opened.ledger.others(self.pipeline.name, self.sink.name):
            self._opened = None
            opened = self._open(rows.frame.sparkSession)
        partitions = {(span.topic, span.partition) for span in identified.ranges if is_kafka(span.topic)}
        if not self._broker.was_asked:
            self._broker.ask_state(partitions, after=opened.ledger.end(self.pipeline.name, self.sink.name))
        if opened.newest_native is None:
            opened = self._take_over(opened, identified, rows.frame.sparkSession)
        batch = self._to_write(opened, identified)
        stamp, earlier = batch.stamp, batch.replays
        if earlier is not None and earlier.is_observed:
            log.warning("%s: Spark's own sink wrote %s before recon took over; it stays", self._name, named(earlier))
            return
        if earlier is None:
            require_not_written(self._name, self._location, identified, opened.newest_native)

        landed = self.writer.landed(stamp, earlier.sink_version) if earlier else None
        entered = self._entered_by_this_run(opened, rows, batch, landed, started_at)
        status: EntryStatus
        if earlier and landed:
            status = "already_committed"
            quarantined = self._quarantined_before(rows, batch, earlier, landed)
            counts = rows.counts_of_replay(RowCounts.of_entry(earlier, landed, quarantined), landed, batch)
        else:
            status = "committed"
            landed, counts = self._write_rows(rows, batch)
            counts = counts.or_written(earlier.rows_written) if earlier else counts

        attempt = earlier.attempt + 1 if earlier else 1
        entry = replace(
            self._entry(rows, batch, status, counts, landed, started_at, attempt),
            isolation_level=self._isolation_level(rows.frame.sparkSession, identified),
            kafka_state=self._broker.state(),
        )
        self._failpoint(failpoints.BEFORE_LEDGER, stamp)
        if not (entered and status == "already_committed"):
            self._enter(opened, entry, stamp, landed.size)
        self._broker.ask_state(partitions, after=opened.ledger.end(self.pipeline.name, self.sink.name))
        self._failpoint(failpoints.AFTER_LEDGER, stamp)
        if self._checks.others:
            self._gate.require_whole_batch(self.writer.rows_of(rows.frame.sparkSession, landed, stamp), landed.version)

    def _entered_by_this_run(
        self, opened: Opened, rows: BatchRows, batch: BatchToWrite, landed: ConfirmedWrite | None, started_at: datetime
    ) -> bool:
        """Whether an earlier call of this run entered the micro-batch; if not, it is this call's from now on.

        Raises:
            SinkError: that call gave other rows. This one is entered, too, so that an audit finds it.
        """
        stamp, earlier, place = batch.stamp, batch.replays, (self._ledger_place, self.pipeline.name, self.sink.name)
        call = calls.Call(
            run_id=stamp.run_id,
            number=(stamp.epoch, stamp.batch_id),
            frame=rows.frame,
            transform=self._transform,
            routes=self._routes,
        )
        before = calls.before(place, call) if earlier else None
        if earlier is None or before is None:
            calls.remember(place, call)
            return False
        if call.gives_same_rows(before):
            log.warning("%s: %s was written in this run and given to the hook again", self._name, named(stamp))
            return earlier.run_id == stamp.run_id and earlier.status != "rebuilt"
        there = landed or ConfirmedWrite(version=earlier.sink_version, rows=earlier.rows_written)
        counts = RowCounts.of_entry(earlier, there, earlier.rows_quarantined)
        opened.ledger.append(
            self._entry(rows, batch, "already_committed", counts, there, started_at, earlier.attempt + 1)
        )
        raise SinkError(
            f"{self._name}: another call of the hook wrote micro-batch {stamp.batch_id} in this run, "
            f"{call.difference(before)}, and a sink takes a micro-batch once: nothing of this call was written; write "
            "both with one transform, split the rows with `routes` in recon.yml, or give each call a sink of its own; "
            "then restart the query, run `recon audit`, and repair what the micro-batch lacks"
        )

    def write_repair(self, rows: BatchRows, batch: BatchToWrite, ledger: Ledger) -> LedgerEntry:
        """Write rows that were read again, as a repair of its own, and enter it in the ledger.

        Checks that judge a micro-batch as a whole are not evaluated.

        Raises:
            RefusedError: another writer took the number of the write; nothing was written.
            SinkError: the sink did not commit the write; nothing was entered.
            LedgerError: the rows are committed and the entry could not be written.
            GateError: a row check with `on_failure: stop` failed.
        """
        started_at = utc_now()
        landed, counts = self._write_rows(rows, batch)
        self._failpoint(failpoints.BEFORE_LEDGER, batch.stamp)
        entry = ledger.append(
            replace(self._entry(rows, batch, "repaired", counts, landed, started_at), guarantee="exactly-once")
        )
        self._failpoint(failpoints.AFTER_LEDGER, batch.stamp)
        return entry

    @property
    def quarantines(self) -> bool:
        """Whether failing rows go to a quarantine table."""
        return self._quarantine is not None

    def quarantine_repair(self, rows: BatchRows, batch: BatchToWrite) -> None:
        """Quarantine the failing rows of a repair that is in the sink, where it was interrupted before it did.

        Raises:
            SinkError: they could not be written.
        """
        spark, stamp = rows.frame.sparkSession, batch.stamp
        if self._quarantine is None or self._quarantine.rows_of_batch(stamp, spark) is not None:
            return
        prepared = rows.prepare(batch).rows
        checks = self._fitted_checks(prepared, stamp)
        if checks.measure(prepared)[FAILING]:
            self._quarantine.append_failing(prepared, checks, stamp, utc_now())

    def _entry(
        self,
        rows: BatchRows,
        batch: BatchToWrite,
        status: EntryStatus,
        counts: RowCounts,
        landed: ConfirmedWrite,
        started_at: datetime,
        attempt: int = 1,
    ) -> LedgerEntry:
        return new_entry(
            batch.stamp,
            self.sink,
            status,
            target=self._location,
            offsets=batch.ranges,
            **{field.name: getattr(counts, field.name) for field in fields(counts)},
            version=landed.version,
            started_at=started_at,
            attempt=attempt,
            spark_version=rows.frame.sparkSession.version,
            fingerprint=self._fingerprint,
            transform=self._passed,
            sink_table_id=self.writer.table_id(landed),
        )

    def _isolation_level(self, spark: SparkSession, batch: Batch) -> str | None:
        """The level with which the running query reads Kafka, looked up once a run; None where it is not known."""
        if batch.run_id is None:
            return None
        if batch.run_id not in self._levels:
            level = isolation_level(spark, batch.query_id)
            self._levels = {batch.run_id: level}
            declared = self.pipeline.source.isolation_level
            if level not in (None, declared):
                log.warning(
                    "%s: the query reads Kafka with isolation level %s, and recon.yml says %s; open its stream with "
                    "recon.read_kafka, or correct the pipeline's source in recon.yml",
                    self._name,
                    level,
                    declared,
                )
        return self._levels[batch.run_id]

    def _open(self, spark: SparkSession) -> Opened:
        """The ledger, repaired on the first micro-batch, and the epochs it has."""
        if self._opened is None:
            # The number is read first: the ledger, once repaired, then has every write up to it.
            number = self.writer.newest_number(self.pipeline.name, self.sink.name)
            ledger, entries = open_repaired(self.project, self.pipeline, self.sink, self.writer, spark)
            epochs = Epochs(ledger, self.pipeline.name, self.sink, self._checkpoint.uri, entries)
            self._opened = Opened(ledger=ledger, epochs=epochs, number=number)
        return self._opened

    def _take_over(self, opened: Opened, batch: Batch, spark: SparkSession) -> Opened:
        """The ledger with what the query wrote without recon before, where that has to be known."""
        newest, entered = take_over(
            self.project, self.pipeline, self.sink, self.writer, opened.ledger, opened.epochs.front, batch
        )
        if entered:
            self._opened = None
            opened = self._open(spark)
        opened.newest_native = newest
        return opened

    def _enter(self, opened: Opened, entry: LedgerEntry, stamp: ReconStamp, size: int | None) -> None:
        """Appends the entry; where another one came before it, the next micro-batch reads the ledger anew.

        `size` is what the write added to the sink, in bytes, where that is known.
        """
        appended = opened.ledger.append(entry)
        seconds = time.monotonic() - self._began
        self.emitter.emit(
            lambda: MicroBatchWritten(
                project=self.project.name,
                at=appended.committed_at,
                seconds=seconds,
                write_seconds=self._write_seconds,
                bytes_written=size if entry.status == "committed" else None,
                entry=appended,
            )
        )
        if appended.prev_hash != stamp.prev_hash:
            self._opened = None
            return
        opened.epochs.add(appended)
        if entry.status == "committed":
            opened.number = stamp.number

    def _to_write(self, opened: Opened, batch: Batch) -> BatchToWrite:
        ledger, epochs = opened.ledger, opened.epochs
        placement = epochs.place(batch)
        ranges = placement.replays.offsets if placement.replays else epochs.effective(batch, placement.epoch)
        stamp = ReconStamp(
            pipeline=self.pipeline.name,
            sink=self.sink.name,
            epoch=placement.epoch,
            batch_id=batch.batch_id,
            query_id=batch.query_id,
            run_id=batch.run_id,
            prev_hash=ledger.head_hash(self.pipeline.name, self.sink.name),
            offsets_text=offsets_text(ranges),
            number=None if opened.number is None else opened.number + 1,
            files_digest=batch.files_digest,
        )
        trimmed = tuple(ranges) != batch.ranges
        return BatchToWrite(stamp=stamp, ranges=tuple(ranges), trimmed=trimmed, replays=placement.replays)

    # -- write -------------------------------------------------------------------------------------

    def _write_rows(self, rows: BatchRows, batch: BatchToWrite) -> tuple[ConfirmedWrite, RowCounts]:
        """Writes the micro-batch: rows that pass into the sink, failing ones to quarantine."""
        stamp, prepared = batch.stamp, rows.prepare(batch)
        write = self._write_passing(prepared.rows, stamp) if self._checks.bounds else self._write_all(prepared, stamp)
        quarantined = self._write_failing(prepared.rows, write, stamp, again=batch.replays is not None)
        self._report_other_rows(stamp, write.landed, checked=write.rows_checked, quarantined=quarantined)
        counted = self._counted(prepared, write)
        if prepared.read is not None:
            at_read = prepared.read.counted() if write.computed_once or prepared.read.by_job else None
        else:
            at_read = counted.returned
        if at_read is not None:
            read = at_read.rows
            counted = replace(counted, fingerprint_read=at_read.fingerprint)
        elif prepared.read is not None:
            read = None
        elif write.rows_checked is not None:
            read = write.rows_checked
        else:
            read = delivered(write.landed, quarantined)
        counts = RowCounts.of_write(
            write.landed, read=read, checked=write.rows_checked, quarantined=quarantined, counted=counted
        )
        return write.landed, rows.counts_of_write(counts, write.landed, batch)

    def _counted(self, prepared: PreparedRows, write: SinkWrite) -> CountedWrite:
        """What Spark counted of the rows after the transform and of those given to the sink."""
        if prepared.returned is None or not self._reports_observations:
            return CountedWrite()
        if not write.computed_once and not prepared.returned.by_job:
            return CountedWrite()
        returned = prepared.returned.counted()
        # Spark reports nothing where a sink reads the rows otherwise than as a DataFrame, and recon waits for it.
        self._reports_observations = returned is not None
        given = returned if write.given is None or returned is None else write.given.counted()
        return CountedWrite(returned=returned, given=given)

    def _write_all(self, prepared: PreparedRows, stamp: ReconStamp) -> SinkWrite:
        self._failpoint(failpoints.BEFORE_WRITE, stamp)
        self._write_into_sink(prepared.rows, stamp)
        landed = self.writer.confirm(stamp)
        self._failpoint(failpoints.AFTER_WRITE, stamp)
        return SinkWrite(landed=landed, computed_once=not landed.computed_again)

    def _write_into_sink(self, rows: DataFrame, stamp: ReconStamp) -> None:
        began = time.monotonic()
        self.writer.write(rows, stamp)
        self._write_seconds += time.monotonic() - began

    def _write_passing(self, rows: DataFrame, stamp: ReconStamp) -> SinkWrite:
        """Evaluates the row checks and writes the rows that pass."""
        checks = self._fitted_checks(rows, stamp)
        limited = self._checks.quarantines and self.sink.quarantine.stop_above is not None
        reported = self._reports_observations and not connects(rows.sparkSession)
        measure_first = self._checks.stops or limited or not reported
        broke = False
        while True:
            counts: Mapping[str, Any] | None = None
            try:
                if measure_first:
                    counts = checks.measure(rows)
                    self._gate.before_write(checks.results(counts, utc_now(), self._location), stamp.batch_id)
                    self._gate.require_few_failing(counts, stamp.batch_id)
                observation, given = self._write_observed(rows, checks, stamp, observe=not measure_first)
                break
            except SinkError:
                raise
            except Exception:
                # A check may break on a value (a cast, a division): then the rows are written without that check.
                remaining = None if broke else checks.without_those_that_break_on(rows)
                if remaining is None:
                    raise
            checks, broke = remaining, True
            self._gate.before_write(checks.errors(utc_now(), self._location), stamp.batch_id)
        landed = self.writer.confirm(stamp)
        self._failpoint(failpoints.AFTER_WRITE, stamp)
        if observation is not None:
            # An Observation keeps only the first job's count, so rows computed again are counted by a job of their own.
            counts = checks.measure(rows) if landed.computed_again else observed(observation)
            self._judge_observed(checks, counts, stamp)
        return SinkWrite(
            landed=landed,
            checks=checks,
            counts=counts,
            computed_once=not (broke or landed.computed_again),
            given=given,
        )

    def _write_observed(
        self, rows: DataFrame, checks: FittedRowChecks, stamp: ReconStamp, *, observe: bool
    ) -> tuple[Observation | None, Counter | None]:
        """Writes the rows that pass; gives what the checks counted, and what counts the rows given to the sink."""
        from pyspark.sql import Observation

        observation = Observation() if observe else None
        if observation is not None:
            rows = rows.observe(observation, *checks.aggregates())
        fails = checks.quarantine_condition()
        given = None if fails is None else Counter(rows.filter(~fails), source_of(rows))
        self._failpoint(failpoints.BEFORE_WRITE, stamp)
        self._write_into_sink(rows if given is None else given.frame, stamp)
        return observation, given

    def _judge_observed(self, checks: FittedRowChecks, counts: Mapping[str, Any] | None, stamp: ReconStamp) -> None:
        if counts is not None:
            self._gate.after_write(checks.results(counts, utc_now(), self._location), stamp.batch_id)
            return
        log.warning(
            "%s, micro-batch %d: Spark did not report what the row checks counted; from now on recon counts with a "
            "job before the write",
            self._name,
            stamp.batch_id,
        )
        self._reports_observations = False

    def _fitted_checks(self, rows: DataFrame, stamp: ReconStamp) -> FittedRowChecks:
        """The row checks for rows of this schema; logs those that cannot be evaluated on them."""
        checks = self._checks.fitted(rows, f"the micro-batch of {self._name}")
        self._gate.before_write(checks.errors(utc_now(), self._location), stamp.batch_id)
        return checks

    # -- quarantine --------------------------------------------------------------------------------

    def _write_failing(self, rows: DataFrame, write: SinkWrite, stamp: ReconStamp, *, again: bool) -> int | None:
        """Writes failing rows to quarantine, unless an earlier attempt did; their number."""
        if write.checks is None or self._quarantine is None:
            return 0
        # Unknown is not none: where Spark reported no counts, failing rows are searched for.
        if write.counts is not None and not write.counts.get(FAILING):
            return 0
        quarantined = self._quarantine.rows_of_batch(stamp, rows.sparkSession) if again else None
        if quarantined is not None:
            return quarantined
        return self._quarantine.append_failing(rows, write.checks, stamp, utc_now())

    def _quarantined_before(
        self, rows: BatchRows, batch: BatchToWrite, earlier: LedgerEntry, landed: ConfirmedWrite
    ) -> int | None:
        """Rows that an earlier attempt quarantined; writes them where a crash came before that."""
        if earlier.rows_quarantined is not None or self._quarantine is None:
            return earlier.rows_quarantined
        # The entry was restored from the sink's commit: the crash may have come before the quarantine's.
        stamp = batch.stamp
        quarantined = self._quarantine.rows_of_batch(stamp, rows.frame.sparkSession)
        if quarantined is not None:
            return quarantined
        prepared = rows.prepare(batch).rows
        checks = self._fitted_checks(prepared, stamp)
        counts = checks.measure(prepared)
        if not counts[FAILING] or counts[ROWS] == delivered(landed, 0):
            return 0  # nothing fails, or the rows were written before there was a check with on_failure: quarantine
        quarantined = self._quarantine.append_failing(prepared, checks, stamp, utc_now())
        self._report_other_rows(stamp, landed, checked=counts[ROWS], quarantined=quarantined)
        return quarantined

    def _report_other_rows(
        self, stamp: ReconStamp, landed: ConfirmedWrite, *, checked: int | None, quarantined: int | None
    ) -> None:
        """Logs rows that are neither in the sink nor in quarantine, or in both: two passes gave different rows."""
        rows = delivered(landed, quarantined)
        if not self._checks.quarantines or checked is None or rows is None or checked == rows:
            return
        log.error(
            "%s, micro-batch %d: the checks saw %d rows, and %s are in the sink and %s in quarantine: the transform "
            "does not give the same rows each time it runs (rand(), a changing lookup); make it deterministic, and "
            "audit: source_rows reports which offsets are missing",
            self._name,
            stamp.batch_id,
            checked,
            landed.rows,
            quarantined,
        )
