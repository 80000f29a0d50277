"""A whole repair of one sink: finishes what a crash left, reads missing offsets again, removes doubled rows.

A repair commits as a driver does. It reads the number of the sink's newest write, then the ledger and the table, and
commits with the next number as a txn. Where a query, or another repair, wrote meanwhile, Delta refuses or drops the
commit. The repair then reads everything anew, except for the records that it has already, and tries again. Nothing
needs to be undone after a crash: before the commit nothing happened; after it the entry is restored from the commit's
stamp.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recon.base.clock import utc_now
from recon.base.decision import Decision
from recon.base.errors import ConfigError, RefusedError, SinkError
from recon.base.text import plural, some
from recon.judge.coverage import by_partition
from recon.model import REMOVALS, REPAIRS, LedgerEntry, ReconStamp, offsets_text, parse_offsets
from recon.model.ledger import named
from recon.model.offsets import OffsetSpan, Spans
from recon.model.proof import OpenFinding, with_id
from recon.project import Pipeline, Project, Sink, as_project
from recon.recovery.repair.doubled import doubled_rows
from recon.recovery.repair.missing import RepairRows, by_batch, kafka_rows, present
from recon.recovery.repair.passed import require_route, require_same
from recon.recovery.repair.plan import PlannedRange, RepairPlan, TopicPartition, without
from recon.recovery.repair.witnesses import ability_of, open_findings, plan_of, require_broker
from recon.spark.catalog import require_located
from recon.spark.session import session
from recon.write.hook.epochs import BatchToWrite
from recon.write.hook.prepare import Transform, takes_batch_id
from recon.write.hook.routing import Routing, passed, routes_to
from recon.write.hook.writer import ForeachBatch
from recon.write.ledger import open_ledger
from recon.write.ledger.entries import new_entry
from recon.write.ledger.rebuild import recorded, restore, unrecorded
from recon.write.sinks.failpoints import AFTER_WRITE, BEFORE_LEDGER, BEFORE_WRITE, Failpoint, no_failpoint
from recon.write.sinks.repair import SinkSnapshot, open_repair

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger("recon")

_COMMITTED = (
    "{} was committed beside this repair, and the ledger has no entry of it yet: its offsets were left out; audit"
)
_BEGUN = (
    "{} was begun and is not complete: its offsets were left to its query; restart that, or, where its checkpoint is "
    "gone, let another query of the sink complete a micro-batch; then audit"
)
_TRIES = 10  # a query commits every few seconds, a repair within some


@dataclass(frozen=True, kw_only=True)
class Repaired:
    """What a repair did.

    Attributes:
        pipeline: the pipeline's name.
        sink: the sink's name.
        plan: what it set out to do.
        finished: writes that a crash had interrupted, and whose ledger entries were added first.
        entries: the ledger entries of this repair.
        offsets: offsets that were read again.
        rows: rows that were written.
        removed: doubled rows that were removed.
        incomplete: why the repair did less than it set out to do, a sentence each; none where it did all.
    """

    pipeline: str
    sink: str
    plan: RepairPlan
    finished: tuple[str, ...] = ()
    entries: tuple[LedgerEntry, ...] = ()
    offsets: int = 0
    rows: int = 0
    removed: int = 0
    incomplete: tuple[str, ...] = ()


def repair(
    project: str | Path | Project,
    pipeline: str,
    sink: str | None = None,
    *,
    finding: str | None = None,
    transform: Transform | None = None,
    other_transform: bool = False,
    kafka_options: Mapping[str, str] | None = None,
    by: str | None = None,
    reason: str | None = None,
    spark: SparkSession | None = None,
    failpoint: Failpoint = no_failpoint,
) -> Repaired:
    """Reads the missing offsets of a sink's open findings again and writes them, and removes its doubled rows.

    Exactly the offsets are read that neither the sink nor its quarantine has a row of. They go through the same
    transform, row checks and sink as the query's, in a commit and a ledger entry of their own. A row has the
    `_batch_id` of the micro-batch that read past it. Of doubled rows one of each offset is kept. The next audit says
    which findings are REPAIRED.

    Args:
        project: where recon.yml is, or a `Project`.
        pipeline: the pipeline's name.
        sink: the sink's name; may be left out when the pipeline has one.
        finding: repair only this finding, by its id.
        transform: the function that the query gives `foreach_batch`. The ledger has its name, and one of another name
            is refused.
        other_transform: use `transform`, or none, whatever the ledger says.
        kafka_options: further options of Spark's Kafka source, such as `includeHeaders`.
        by: who repairs, for the ledger and the compliance report; the user of the operating system by default.
        reason: why.
        spark: the session; the active one, or one built from `spark:`, by default.
        failpoint: for tests: called before and after each commit, and around its ledger entry.

    Raises:
        ConfigError: no broker, unknown names, a sink that cannot be repaired, another transform than the ledger's, or
            an empty `by` or `reason`.
        EvidenceError: Kafka, or the rows of the sink, cannot be read.
        SinkError: the sink did not take the rows; run the repair again.
        LedgerError: the rows are in the sink and the entry could not be written; run the repair again.
    """
    decision = Decision.of(by, reason)
    project = as_project(project)
    pipe, out = project.find_sink(pipeline, sink)
    require_broker(project)
    if project.catalog_tables([out]):
        require_located(project, [out], spark or session(project, kafka=True))
    can = ability_of(project, pipe, out)
    if can.refused:
        raise ConfigError(can.refusal({"read", "remove"}))
    run = SinkRepair(project, pipe, out, transform, kafka_options or {}, decision, spark, failpoint)
    return run.run(finding, other_transform)


@dataclass
class SinkRepair:
    """A repair of one sink. What asks Kafka or Spark is a method of its own: `plan`, `read`, `there` and `hook`."""

    project: Project
    pipeline: Pipeline
    sink: Sink
    transform: Transform | None
    kafka_options: Mapping[str, str]
    decision: Decision
    given_spark: SparkSession | None
    failpoint: Failpoint
    token: str = field(default_factory=lambda: str(uuid.uuid4()))
    position: int = 0  # of the newest entry when the plan was made
    incomplete: list[str] = field(default_factory=list)
    counted: dict[tuple[OffsetSpan, ...], int | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.ledger = open_ledger(self.project, self.given_spark)
        self.store = open_repair(self.project, self.pipeline.name, self.sink)
        self.name = f"pipeline {self.pipeline.name}, sink {self.sink.name}"
        self.routes = routes_to(self.pipeline, self.sink)

    def run(self, finding: str | None, other_transform: bool) -> Repaired:
        """The whole of it, as `repair` says."""
        finished = self._finish(other_transform)
        self.position = self.ledger.position(self.pipeline.name, self.sink.name)
        known = open_findings(self.ledger, self.pipeline, self.sink)
        chosen = known if finding is None else with_id(known, finding)
        plan = self.plan(chosen)
        result = partial(
            Repaired, pipeline=self.pipeline.name, sink=self.sink.name, plan=plan, finished=tuple(map(named, finished))
        )
        if not plan.does_something:
            return result()
        if plan.of("read"):
            self._require_same([part.span for part in plan.of("read")], other_transform)
        entries = [*self._read_again(plan.of("read")), *self._remove(plan.of("remove"))]
        written = [entry for entry in entries if entry.is_repair]
        return result(
            entries=tuple(entries),
            offsets=sum(span.span.size for entry in written for span in entry.offsets),
            rows=sum(entry.rows_written or 0 for entry in written),
            removed=sum((e.rows_removed or 0) - (e.rows_written or 0) for e in entries if e.is_removal),
            incomplete=tuple(self.incomplete),
        )

    def plan(self, findings: Sequence[OpenFinding]) -> RepairPlan:
        """What there is to do about findings."""
        return plan_of(self.project, self.ledger, self.pipeline, self.sink, findings)

    # -- what a crash left ---------------------------------------------------------------------------------------------

    def _finish(self, other_transform: bool) -> list[LedgerEntry]:
        """Adds the entries of repairs that were interrupted behind their commit, and what they did not quarantine."""
        entries = recorded(self.ledger, self.pipeline.name, self.sink.name)
        commits = [
            commit
            for commit in self.store.commits()
            if commit.stamp.epoch in (REPAIRS, REMOVALS)
            and unrecorded(commit.stamp, self.pipeline.name, self.sink.name, entries)
        ]
        repairs = [commit.stamp for commit in commits if commit.stamp.epoch == REPAIRS]
        if repairs and self.hook().quarantines:
            read = [span for stamp in repairs for span in parse_offsets(stamp.offsets_text)]
            self._require_same(read, other_transform)
            for stamp in repairs:
                self._quarantine(stamp)
        restored = restore(self.project, self.ledger, self.pipeline.name, self.sink, commits)
        for entry in restored:
            log.warning("%s: %s was interrupted behind its write; its ledger entry was added", self.name, named(entry))
        return restored

    def _quarantine(self, stamp: ReconStamp) -> None:
        """Writes the failing rows of a repair that is in the sink into quarantine, unless it did."""
        plan = self.plan(open_findings(self.ledger, self.pipeline, self.sink))
        spans = parse_offsets(stamp.offsets_text)
        read = [
            replace(part, start_offset=start, end_offset=end)
            for part in plan.of("read")
            for span in spans
            if (part.topic, part.partition) == (span.topic, span.partition)
            for start, end in Spans.of([part.span.span]).intersect(Spans.of([span.span]))
        ]
        batch = BatchToWrite(stamp=stamp, ranges=spans, trimmed=False, replays=None)
        with closing(self.read(spans, read, None)) as rows:
            self.hook().quarantine_repair(rows, batch)

    def hook(self) -> ForeachBatch:
        """What writes the rows, as it does those of a micro-batch."""
        return ForeachBatch(
            self.project, self.pipeline, self.sink, self.transform, routes=self.routes, failpoint=self.failpoint
        )

    def read(self, spans: Sequence[OffsetSpan], ranges: Sequence[PlannedRange], table: DataFrame | None) -> RepairRows:
        """The records of the spans, read again; `ranges` say of which micro-batch they are."""
        frame = kafka_rows(self._spark(), self.project, self.pipeline, spans, self.kafka_options)
        columns = None if table is None else partial(self.store.columns, table)
        routing = None
        if self.routes is not None:
            routing = Routing(routes=self.routes, name=f"{self.name}, records read again", step="run the repair again")
        return RepairRows(frame, self.sink, self.transform, ranges, columns, routing)

    def _require_same(self, spans: Sequence[OffsetSpan], other_transform: bool) -> None:
        """Requires that rows of these offsets go through what the query's rows went through."""
        whole = self.ledger.slice(self.pipeline.name, self.sink.name, operations=())
        require_route(self.name, whole, self.pipeline, self.sink)
        if other_transform:
            return
        require_same(self.name, whole, passed(self.transform, self.routes), spans)

    # -- missing rows -------------------------------------------------------------------------------------------------

    def _read_again(self, planned: Sequence[PlannedRange]) -> list[LedgerEntry]:
        apart = self.store.of_one_batch or (self.transform is not None and takes_batch_id(self.transform))
        groups = by_batch(planned) if apart else [list(planned)] if planned else []
        return [entry for group in groups for entry in self._read_group(group)]

    def _read_group(self, planned: Sequence[PlannedRange]) -> list[LedgerEntry]:
        """Reads what is missing of these ranges, in one write."""
        spark, missing = self._spark(), list(planned)
        rows: RepairRows | None = None
        try:
            for look in self._looks(spark):
                missing = self._still_missing(missing, look)
                if not missing:
                    return []
                if rows is None:
                    spans = [part.span for part in missing]
                    rows = self.read(spans, missing, look.table)
                with suppress(RefusedError):
                    return [self._write(rows, missing, look)]
        finally:
            if rows is not None:
                rows.close()
        return []

    def _still_missing(self, wanted: Sequence[PlannedRange], look: _Look) -> list[PlannedRange]:
        """The ranges of which neither the sink nor its quarantine has a row, nor a write since the plan was made."""
        # Rows that expire may be many: they are read for the offsets alone of which nothing else tells.
        left = list(wanted) if self.store.expires else without(wanted, self.there(wanted, look))
        for why, spans in look.written:
            before, left = left, without(left, by_partition(spans))
            if why and left != before and why not in self.incomplete:
                self.incomplete.append(why)
        if self.store.expires:
            left = without(left, self.store.read())
            left = without(left, self.there(left, look)) if left else []
        return left

    def there(self, ranges: Sequence[PlannedRange], look: _Look) -> dict[TopicPartition, Spans]:
        """The offsets of which the sink, or its quarantine, has a row; where rows are replaced, those it was given."""
        if self.sink.rewrites:
            return self.store.read()
        spans = [part.span for part in ranges]
        return present(look.spark, look.table, self.project, self.pipeline.name, self.sink, spans)

    def _write(self, rows: RepairRows, ranges: Sequence[PlannedRange], look: _Look) -> LedgerEntry:
        spans = tuple(part.span for part in ranges)
        records = self._records(spans)
        stamp = self._stamp(REPAIRS, look, spans)
        batch = BatchToWrite(stamp=stamp, ranges=spans, trimmed=False, replays=None)
        # So that an entry that is restored from the commit has these counts, too.
        read, filtered = rows.counted(batch)
        batch = replace(batch, stamp=replace(stamp, read=read, filtered=filtered))
        if self.sink.rewrites:
            self.store.require_order(rows.prepare(batch).rows, look.table)
        hook = self.hook()
        hook.writer = self.store.writer(ranges, look.sink, self.failpoint)
        try:
            entry = hook.write_repair(rows, batch, self.ledger)
        except RefusedError:
            raise
        except SinkError as error:
            if not self.store.was_taken(stamp):
                raise
            raise RefusedError(f"another repair of {self.name} took number {stamp.batch_id}") from error
        self._compare(entry, records)
        return entry

    def _records(self, spans: tuple[OffsetSpan, ...]) -> int | None:
        """How many records Kafka has in the ranges for the stream, counted once; None where that was not possible."""
        if spans not in self.counted:
            self.counted = {spans: self._counted(spans)}
        return self.counted[spans]

    def _counted(self, spans: Sequence[OffsetSpan]) -> int | None:
        from recon.witness import kafka_probe

        answers = kafka_probe.probe(self.project.kafka, by_partition(spans)).values()
        if any(answer.truncated is not None for answer in answers):
            return None
        committed = self.pipeline.source.isolation_level == "read_committed"
        return sum((answer.committed if committed else answer.uncommitted).size for answer in answers)

    def _compare(self, entry: LedgerEntry, records: int | None) -> None:
        """Fewer rows than Kafka has records: the repair is not whole."""
        what = named(entry)
        if records is None or entry.rows_read is None:
            self.incomplete.append(f"{what}: how many records Kafka has in its ranges could not be compared; audit")
        elif entry.rows_read != records:
            self.incomplete.append(f"{what} read {entry.rows_read:,} rows, and Kafka has {plural(records, 'record')}")
        elif not self.sink.rewrites and entry.given is not None and entry.rows_written != entry.given.rows:
            wrote = "an unknown number of" if entry.rows_written is None else f"{entry.rows_written:,}"
            self.incomplete.append(f"{what}: the sink was given {entry.given.rows:,} rows and wrote {wrote}")

    # -- doubled rows -------------------------------------------------------------------------------------------------

    def _remove(self, planned: Sequence[PlannedRange]) -> list[LedgerEntry]:
        if not planned:
            return []
        if self.pipeline.rows.explodes:
            self.incomplete.append(
                "recon.yml says that the transform makes several rows of one record (rows: {explodes: true}), so which "
                "rows are doubled is not known, and none was removed"
            )
            return []
        spark = self._spark()
        for look in self._looks(spark):
            with suppress(RefusedError):
                return self._remove_now(planned, look)
        return []

    def _remove_now(self, planned: Sequence[PlannedRange], look: _Look) -> list[LedgerEntry]:
        started_at = utc_now()
        if look.table is None:
            where = self.project.location(self.sink)
            raise SinkError(f"there is no table {where}, so nothing of it is doubled: run an audit")
        rows = doubled_rows(self.store.comparable(look.table), planned)
        if rows.unclear:
            self.incomplete.append(
                f"{plural(rows.unclear, 'offset')} of {some(sorted({f'{p.topic}-{p.partition}' for p in planned}))} "
                "have rows that differ, so which one is right is not known, and none was removed: remove them by hand"
            )
            return []
        if not rows.kept:
            self.incomplete.append("no offset of the ranges to clean has more rows than one: audit, then decide")
            return []
        spans = tuple(part.span for part in planned)
        put_back = rows.kept if self.store.puts_back else 0
        removed = rows.removed if self.store.puts_back else rows.removed - rows.kept
        stamp = self._stamp(REMOVALS, look, spans, taken=put_back, removed=removed, held=rows.held)
        self.failpoint(BEFORE_WRITE, stamp)
        done = self.store.remove(rows, planned, stamp, look.sink, self.failpoint)
        self.failpoint(AFTER_WRITE, stamp)
        entry = new_entry(
            stamp,
            self.sink,
            "repaired",
            target=self.project.location(self.sink),
            offsets=spans,
            read=rows.held,
            written=done.put_back,
            quarantined=0,
            filtered=0,
            version=done.version,
            started_at=started_at,
            spark_version=look.spark.version,
            removed=done.rows,
        )
        self.failpoint(BEFORE_LEDGER, stamp)
        return [self.ledger.append(entry)]

    # -- both ---------------------------------------------------------------------------------------------------------

    def _spark(self) -> SparkSession:
        return self.given_spark or session(self.project, kafka=True)

    def _looks(self, spark: SparkSession) -> Iterator[_Look]:
        """A look at the sink for each attempt.

        Raises:
            RefusedError: each attempt was refused.
        """
        yield self._look(spark)
        for attempt in range(2, _TRIES + 1):
            log.warning(
                "%s: another writer's commit came first, and nothing was written: the repair looks at what is missing "
                "anew (attempt %d of %d)",
                self.name,
                attempt,
                _TRIES,
            )
            yield self._look(spark)
        raise RefusedError(
            f"{self.name}: other writers of {self.project.location(self.sink)} came first {_TRIES} times in a row, and "
            "the repair gave up its write, of which nothing is in the table: run it again while the query is stopped"
        )

    def _look(self, spark: SparkSession) -> _Look:
        """The sink as it is now: in this order, so that everything up to its number is in what is read behind it."""
        names = (self.pipeline.name, self.sink.name)
        sink = self.store.snapshot()
        self.ledger.others(*names)  # whose entries the next one follows
        recorded_numbers = recorded(self.ledger, *names)
        since = self.ledger.slice(*names, after=self.position, operations=())
        entered = [
            read
            for i, head in enumerate(since.heads)
            if head.sequence > self.position and head.reads
            for read in since.ranges.of(i)
        ]
        stamps = [commit.stamp for commit in self.store.commits() if commit.stamp.is_of(*names)]
        # A hook that has committed may still write its quarantine: the entry comes last.
        behind = [
            s for s in stamps if (s.epoch >= 0 or s.epoch == REPAIRS) and (s.epoch, s.batch_id) not in recorded_numbers
        ]
        taken = recorded_numbers | {(stamp.epoch, stamp.batch_id) for stamp in stamps}
        return _Look(
            spark=spark,
            sink=sink,
            taken=taken,
            written=[
                ("", entered),
                *((_COMMITTED.format(named(s)), parse_offsets(s.offsets_text)) for s in behind),
                *((_BEGUN.format(name), spans) for name, spans in sink.begun),
            ],
            table=sink.table(spark),
        )

    def _stamp(self, epoch: int, look: _Look, spans: Sequence[OffsetSpan], **counts: Any) -> ReconStamp:
        """The stamp of a write: numbered as one of the sink, and in its epoch by a number that no entry has."""
        return ReconStamp(
            pipeline=self.pipeline.name,
            sink=self.sink.name,
            epoch=epoch,
            batch_id=1 + max((number for of, number in look.taken if of == epoch), default=-1),
            query_id=f"repair-{self.token}",  # of two repairs at once, each finds its own commit
            run_id=None,
            prev_hash=self.ledger.head_hash(self.pipeline.name, self.sink.name),
            offsets_text=offsets_text(spans),
            number=look.sink.next,
            by=self.decision.by,
            reason=self.decision.reason,
            **counts,
        )


@dataclass(frozen=True, kw_only=True)
class _Look:
    """A sink as an attempt of a repair finds it.

    Attributes:
        spark: the session.
        sink: the sink.
        taken: (epoch, batch_id) of what was entered or committed.
        written: offsets that others read since the plan was made, with a sentence about each: of entries, of commits
            without an entry, and of incomplete micro-batches.
        table: its rows; None where there is no table.
    """

    spark: SparkSession
    sink: SinkSnapshot
    taken: set[tuple[int, int]]
    written: Sequence[tuple[str, Sequence[OffsetSpan]]]
    table: DataFrame | None
