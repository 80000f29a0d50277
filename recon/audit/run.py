"""The daily door: gather the witnesses, hand them to the judges, keep and return one result.

Witnesses are read late and once. The ledger is read before Kafka's end offsets, so that what arrives meanwhile
looks like lag and never like loss. No JVM is started unless a check reads rows.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from recon import incremental
from recon._version import __version__
from recon.audit import summary
from recon.checks import registry
from recon.checks.base import EvidenceCheck
from recon.checks.bound import Bound
from recon.checks.engine import runner
from recon.checks.engine.context import ScanContext
from recon.checks.engine.executor import reason_of
from recon.checks.select import LastRun, unmatched
from recon.checks.select import select as select_bounds
from recon.errors import ConfigError, EvidenceError, LedgerError
from recon.evidence import checkpoint, delta_log
from recon.lazy import np
from recon.ledger import Ledger, open_ledger, quarantined
from recon.ledger.failures import FailingRows, append_failures, open_failures
from recon.ledger.ledger import utc_now
from recon.ledger.progress import open_progress, read_progress
from recon.ledger.rebuild import S, unrecorded
from recon.ledger.results import History, append_run, previous_audit
from recon.model import (
    CheckpointWitness,
    CheckResult,
    DeltaCommit,
    DeltaWitness,
    KafkaWitness,
    LedgerSlice,
    PipelineFacts,
    PreviousAudit,
    ProbeAnswer,
    ProgressWitness,
    RowsWitness,
    RunResult,
    SinkLog,
    Unavailable,
    Witnesses,
)
from recon.model.offsets import Spans
from recon.project import Pipeline, Project, Sink, as_project
from recon.sinks import open_sink
from recon.sinks.catalog import ProjectTables
from recon.spark.errors import spark_error
from recon.spark.session import session
from recon.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A period goes on where the last audit that left no question open ended, within these bounds.
_AT_LEAST = timedelta(hours=24)
_AT_MOST = timedelta(days=30)
# Of a longer period, so much of its end is looked at for how the stream runs.
_PROGRESS_AT_MOST = timedelta(days=7)
# A sink's clock may differ from ours by less than this.
_CLOCKS_APART = timedelta(days=1)
# An entry may become visible a little after the time it carries; periods overlap by this much.
_EDGE = timedelta(minutes=5)
_NO_SPARK = "rows were not read (--no-spark)"
STOPPED = "--fail-fast stopped the audit before this check"


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a run was asked for; see `audit`."""

    select: Sequence[str] = ()
    exclude: Sequence[str] = ()
    from_: datetime | None = None
    to: datetime | None = None
    fail_fast: bool = False
    no_spark: bool = False
    full_refresh: bool = False
    warn_error: bool = False
    keep: bool = True
    begins: Mapping[str, datetime | None] = field(default_factory=dict)
    history_to: datetime | None = None


def audit(
    project: str | Path | Project,
    *,
    select: Sequence[str] = (),
    exclude: Sequence[str] = (),
    from_: datetime | None = None,
    to: datetime | None = None,
    fail_fast: bool = False,
    no_spark: bool = False,
    full_refresh: bool = False,
    warn_error: bool = False,
    only: Collection[str] | None = None,
    last: LastRun | None = None,
    begins: Mapping[str, datetime | None] | None = None,
    history_to: datetime | None = None,
    spark: SparkSession | None = None,
    keep: bool = True,
    on_start: Callable[[int], None] | None = None,
    on_check: Callable[[str], None] | None = None,
    on_result: Callable[[int, int, CheckResult], None] | None = None,
) -> RunResult:
    """Run the project's checks on what was committed in [from_, to).

    Args:
        project: where recon.yml is, or a `Project`.
        select: dbt-like selectors; everything when empty.
        exclude: selectors of what not to run.
        from_: begin of the period, UTC; by default where the last audit of the pipeline ended that left no question
            open, at least 24 hours and at most 30 days back; the whole ledger when there was no audit.
        to: end of the period, UTC; now by default.
        fail_fast: stop at the first failure; what did not run is `skipped`.
        no_spark: read no rows; checks that need rows are `skipped`.
        full_refresh: measure incremental checks on whole tables, and go on from there.
        warn_error: warnings fail the run; their status stays `warn`.
        only: unique_ids of the checks to choose from; all when None.
        last: the status of each unique_id in the last run, for the selector `result:`.
        begins: begin of the period per pipeline, where `from_` does not say one; None stands for the whole ledger.
        history_to: where the history ends that checks compare with; this audit's start by default.
        spark: the session for checks that read rows; the active one, or one built from `spark:`, by default.
        keep: append the results to the ledger's results table and merge its small files; keep what incremental
            checks measured.
        on_start: called with the number of checks.
        on_check: called with the name of the check that runs now.
        on_result: called with (index from 1, total, result) as results come.

    Raises:
        ConfigError: recon.yml asks for something that does not exist.
    """
    started, project = utc_now(), as_project(project)
    options = Options(
        select=tuple(select),
        exclude=tuple(exclude),
        from_=from_,
        to=to,
        fail_fast=fail_fast,
        no_spark=no_spark,
        full_refresh=full_refresh,
        warn_error=warn_error,
        keep=keep,
        begins=dict(begins or {}),
        history_to=history_to,
    )
    there = [bound for bound in registry.bind(project) if only is None or bound.unique_id in only]
    bounds = select_bounds(there, select, exclude, last)
    run = _Run(project, options, started, _Session(project, no_spark, spark), bounds)
    if on_start:
        on_start(len(bounds))
    results: list[CheckResult] = []
    for result in run.results(_in_turn(bounds), on_check or (lambda _: None)):
        results.append(result)
        if on_result:
            on_result(len(results), len(bounds), result)
    finished = utc_now()
    outcome = RunResult(
        invocation_id=run.invocation_id,
        project=project.name,
        recon_version=__version__,
        generated_at=finished,
        period_from=run.period_from,
        period_to=to or started,
        elapsed_time=(finished - started).total_seconds(),
        results=tuple(results),
        pipelines=tuple(run.facts(pipe, results) for pipe in project.pipelines if pipe.name in run.gathered),
        args=_args(project, options),
        versions=_versions(),
        notes=(*unmatched(there, [*select, *exclude], last), *run.notes()),
    )
    if keep:
        outcome = _kept(project, run, outcome)
    return outcome


def retried(last: RunResult) -> list[str]:
    """The unique_ids of what a run left to do: failures, errors, what --fail-fast stopped before it was asked.

    Warnings too, where the run counted them as failures.
    """
    failing = ("fail", "error", "warn") if last.args.get("warn_error") else ("fail", "error")
    return [
        r.unique_id for r in last.results if r.status in failing or (r.status == "skipped" and r.message == STOPPED)
    ]


def history_of(last: RunResult) -> datetime:
    """Where history ends for a retry of this run: before what it measured itself, or the run it retried."""
    first = last.args.get("history_to")
    return datetime.fromisoformat(first) if first else last.generated_at


def _kept(project: Project, run: _Run, outcome: RunResult) -> RunResult:
    """Append failing rows and results to the ledger's folder; where that fails the run says so, and is not lost."""
    try:
        outcome = _with_stored_failures(project, run, outcome)
    except LedgerError as error:
        outcome = replace(outcome, notes=(*outcome.notes, f"the failing rows could not be stored: {error}"))
    try:
        ledger = open_ledger(project, run.session.found)
        measured = [
            r
            for r in outcome.results
            if r.kind == "data" and (r.status in ("pass", "warn", "fail") or (r.status == "skipped" and r.evidence))
        ]
        if ledger.exists():
            append_run(ledger.results, outcome)
            ledger.tidy()
        elif measured:  # what was measured is a later audit's history; an audit of nothing leaves nothing behind
            append_run(ledger.results, replace(outcome, results=tuple(measured)))
    except LedgerError as error:
        return replace(outcome, notes=(*outcome.notes, f"the results could not be kept beside the ledger: {error}"))
    return outcome


def _with_stored_failures(project: Project, run: _Run, outcome: RunResult) -> RunResult:
    """Failing rows of checks with `store_failures` in their table, and in the evidence of each where they are."""
    storing = {bound.unique_id: bound for bound in run.bounds if bound.config.store_failures}
    failed = [result for result in outcome.results if result.failures and result.unique_id in storing]
    if not failed:
        return outcome
    store = open_failures(project, run.session.found)
    kept = {result.unique_id: run.failing.get(result.unique_id, ()) for result in failed}
    found = [FailingRows(bound=storing[unique_id], rows=rows) for unique_id, rows in kept.items()]
    at = outcome.generated_at
    append_failures(store, found, invocation_id=outcome.invocation_id, project=project.name, at=at)
    told = {
        unique_id: {"table": store.location, "invocation_id": outcome.invocation_id, "rows": len(rows)}
        for unique_id, rows in kept.items()
    }
    results = tuple(
        replace(r, evidence={**r.evidence, "stored_failures": told[r.unique_id]}) if r.unique_id in told else r
        for r in outcome.results
    )
    return replace(outcome, results=results)


def _in_turn(bounds: Sequence[Bound]) -> list[Bound]:
    """Evidence first, then rows, table by table: the cheap answers do not wait for Spark."""
    evidence = [b for b in bounds if b.kind == "evidence"]
    tables = sorted({(b.pipeline, b.sink or "") for b in bounds if b.kind != "evidence"})
    rows = [b for key in tables for b in bounds if b.kind != "evidence" and (b.pipeline, b.sink or "") == key]
    return evidence + rows


def _args(project: Project, options: Options) -> dict[str, Any]:
    return {
        "vars": dict(project.variables),
        "select": list(options.select),
        "exclude": list(options.exclude),
        "from": options.from_.isoformat() if options.from_ else None,
        "to": options.to.isoformat() if options.to else None,
        "fail_fast": options.fail_fast,
        "no_spark": options.no_spark,
        "full_refresh": options.full_refresh,
        "warn_error": options.warn_error,
        "history_to": options.history_to.isoformat() if options.history_to else None,
    }


def _versions() -> dict[str, str]:
    found = {"spark-recon": __version__}
    for package in ("pyspark", "delta-spark", "deltalake", "confluent-kafka"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


T = TypeVar("T")


def _or_unavailable(witness: str, read: Callable[[], T]) -> T | Unavailable:
    """What a witness says, or why it could not be asked."""
    try:
        return read()
    except (EvidenceError, LedgerError, ConfigError) as error:
        return Unavailable(witness, str(error))


class _Session:
    """The Spark session, found or built when the first check needs rows."""

    def __init__(self, project: Project, no_spark: bool, spark: SparkSession | None) -> None:
        self._project, self._no_spark = project, no_spark
        self.found: SparkSession | None = spark

    def get(self) -> SparkSession | Unavailable:
        if self._no_spark:
            return Unavailable("rows", _NO_SPARK, skipped=True)
        if self.found is None:
            try:
                self.found = session(self._project)
            except Exception as error:  # the JVM fails in many ways; each is one reason
                return Unavailable("rows", f"no Spark session could be started: {spark_error(error)}")
        return self.found


@dataclass
class _Gathered:
    """One pipeline's witnesses, each read when first asked for."""

    project: Project
    pipeline: Pipeline
    options: Options
    now: datetime
    session: _Session
    rows_read: dict[str, RowsWitness | Unavailable] = field(default_factory=dict)
    probed: dict[tuple[str, int], ProbeAnswer] = field(default_factory=dict)

    @cached_property
    def ledger(self) -> Ledger | Unavailable:
        return _or_unavailable("ledgers", lambda: open_ledger(self.project, self._ledger_session()))

    def _ledger_session(self) -> SparkSession | None:
        # A ledger that Spark keeps cannot be read without it, whatever --no-spark says about rows.
        kept_by_spark = self.project.ledger.table or self.project.ledger.writer == "spark"
        if not kept_by_spark:
            return self.session.found
        found = _Session(self.project, False, self.session.found).get()
        if isinstance(found, Unavailable):
            raise LedgerError(f"the ledger is kept by Spark: {found.reason}")
        self.session.found = found
        return found

    @cached_property
    def previous(self) -> PreviousAudit | None:
        ledger = self.ledger
        if isinstance(ledger, Unavailable):
            return None
        try:
            return previous_audit(ledger.results, self.pipeline.name, self.now - _AT_MOST, summary.PROOF)
        except LedgerError:
            return None

    @cached_property
    def period_from(self) -> datetime | None:
        if self.options.from_ is None and self.pipeline.name in self.options.begins:
            return self.options.begins[self.pipeline.name]
        if self.options.from_ is not None or self.previous is None:
            return self.options.from_
        to = self.options.to or self.now
        return max(min((self.previous.audited_to or to - _AT_MOST) - _EDGE, to - _AT_LEAST), to - _AT_MOST)

    @cached_property
    def ledgers(self) -> Mapping[str, LedgerSlice] | Unavailable:
        ledger = self.ledger
        if isinstance(ledger, Unavailable):
            return ledger
        if not _or_unavailable("ledgers", ledger.exists):
            return Unavailable("ledgers", f"there is no ledger at {ledger.location}; has the hook ever written?")

        # Spark marks a micro-batch as done after its entry is written: read the other way round, one that ends
        # in between would look like a write without an entry.
        _ = self.checkpoint

        def read() -> Mapping[str, LedgerSlice]:
            since = self.previous.ledger_version if self.previous else None
            operations = ledger.store.operations(after=since)
            return {
                sink.name: ledger.slice(
                    self.pipeline.name, sink.name, self.period_from, self.options.to, operations=operations
                )
                for sink in self.pipeline.sinks
            }

        return _or_unavailable("ledgers", read)

    @cached_property
    def checkpoint(self) -> CheckpointWitness | Unavailable:
        return _or_unavailable("checkpoint", lambda: checkpoint.read(self._storage(self.pipeline.checkpoint)))

    @cached_property
    def delta(self) -> Mapping[str, DeltaWitness] | Unavailable:
        def read() -> Mapping[str, DeltaWitness]:
            return {sink.name: self._delta_of(sink) for sink in self.pipeline.sinks if sink.is_delta}

        found = _or_unavailable("delta", read)
        if not isinstance(found, Unavailable) and self._outruns_ledger(found):
            # The query may have written its entry meanwhile: look once more, and at Kafka after it.
            self.__dict__.pop("ledgers", None)
            self.__dict__.pop("kafka", None)
        return found

    def _outruns_ledger(self, delta: Mapping[str, DeltaWitness]) -> bool:
        """Whether a commit is newer than the ledger as it was read; the entry comes after the commit."""
        slices = self.ledgers
        if isinstance(slices, Unavailable):
            return False
        return any(self._unrecorded(slices[sink], self._in_period(of)) for sink, of in delta.items())

    def _unrecorded(self, of_sink: LedgerSlice, commits: Iterable[S]) -> list[S]:
        known = {(head.epoch, head.batch_id) for head in of_sink.heads}
        return unrecorded(commits, self.pipeline.name, of_sink.sink, known)

    @cached_property
    def sink_logs(self) -> Mapping[str, SinkLog] | Unavailable:
        """What sinks that are no Delta tables remember of the period, and of a day before it."""
        slices = self.ledgers  # before the sinks: an entry always comes after its write

        def read() -> Mapping[str, SinkLog]:
            others = [sink for sink in self.pipeline.sinks if not sink.is_delta]
            return {sink.name: self._sink_log(sink, slices) for sink in others}

        found = _or_unavailable("sink_logs", read)
        if not isinstance(found, Unavailable) and not isinstance(slices, Unavailable):
            until = self.options.to
            for sink, log in found.items():
                if self._unrecorded(slices[sink], [c for c in log.commits if until is None or c.at < until]):
                    # The query may have written its entry meanwhile: look once more, and at Kafka after it.
                    self.__dict__.pop("ledgers", None)
                    self.__dict__.pop("kafka", None)
                    break
        return found

    def _sink_log(self, sink: Sink, slices: Mapping[str, LedgerSlice] | Unavailable) -> SinkLog:
        heads = [] if isinstance(slices, Unavailable) else slices[sink.name].heads[slices[sink.name].anchors :]
        # Such an entry carries the time of the restart, and may stand for a write of long ago.
        again = any(head.status in ("already_committed", "rebuilt") for head in heads)
        since = None if again or self.period_from is None else self.period_from - _CLOCKS_APART
        return replace(open_sink(self.project, self.pipeline.name, sink).log(since=since), since=since)

    def _in_period(self, of: DeltaWitness) -> list[DeltaCommit]:
        until = self.options.to
        return [commit for commit in of.commits.values() if until is None or commit.timestamp < until]

    def _delta_of(self, sink: Sink) -> DeltaWitness:
        slices = self.ledgers
        first = None
        if not isinstance(slices, Unavailable):
            of_sink = slices[sink.name]
            # A release says nothing of how far the micro-batches have come.
            anchors = [i for i in range(of_sink.anchors) if not of_sink.heads[i].is_release]
            recent = of_sink.heads[anchors[-1] if anchors else 0 :]
            versions = [h.sink_version for h in recent if h.sink_version is not None]
            # From the anchor on: a mutation right after it belongs to the period. A slice that holds the whole
            # chain looks at the whole log.
            first = min(versions) if versions and not slices[sink.name].complete else None
        return delta_log.read(self._storage(sink.target), from_version=first)

    @cached_property
    def quarantine(self) -> Mapping[str, DeltaWitness] | Unavailable:
        """The logs of the quarantine tables of sinks whose entries say that rows were put aside."""
        slices = self.ledgers
        if isinstance(slices, Unavailable):
            return Unavailable("quarantine", slices.reason)

        def read() -> Mapping[str, DeltaWitness]:
            aside = [s for s in self.pipeline.sinks if any(h.rows_quarantined for h in slices[s.name].heads)]
            places = {sink.name: quarantined.location(self.project, self.pipeline.name, sink) for sink in aside}
            return {name: delta_log.read(self._storage(place)) for name, place in places.items() if place is not None}

        return _or_unavailable("quarantine", read)

    @cached_property
    def kafka(self) -> KafkaWitness | Unavailable:
        from recon.evidence import kafka

        slices = self.ledgers  # before the end offsets: what arrives meanwhile is lag, never loss
        positions = {} if isinstance(slices, Unavailable) else _positions(slices.values())
        topics = sorted({*self.pipeline.source.topics, *(topic for topic, _ in positions)})
        if "bootstrap.servers" not in self.project.kafka:
            return Unavailable("kafka", "recon.yml has no kafka: bootstrap.servers")
        return _or_unavailable(
            "kafka",
            lambda: kafka.read(
                self.project.kafka,
                topics,
                isolation_level=self.pipeline.source.isolation_level,
                positions=positions,
            ),
        )

    @cached_property
    def progress(self) -> ProgressWitness | Unavailable:
        """What a listener recorded in the period, of its last week."""
        return self._progress(samples=0)

    @cached_property
    def progress_offsets(self) -> ProgressWitness | Unavailable:
        """The same with the offsets of some micro-batches, which cost more to read than all the rest."""
        return self._progress(samples=16)

    def _progress(self, samples: int) -> ProgressWitness | Unavailable:
        until = self.options.to or self.now
        since = until - _PROGRESS_AT_MOST
        since = since if self.period_from is None else max(since, self.period_from)

        def read() -> ProgressWitness:
            store = open_progress(self.project, self._ledger_session())
            return read_progress(store, self.pipeline.name, since, self.options.to, samples=samples)

        return _or_unavailable("progress", read)

    def rows(self, sink: str) -> RowsWitness | Unavailable:
        if sink not in self.rows_read:
            self.rows_read[sink] = self._read_rows(sink)
        return self.rows_read[sink]

    def _read_rows(self, sink: str) -> RowsWitness | Unavailable:
        from recon.evidence import sink_rows
        from recon.quarantine import groups as quarantine_groups

        spark = self.session.get()
        if isinstance(spark, Unavailable):
            return spark
        found = next(s for s in self.pipeline.sinks if s.name == sink)
        slices = self.ledgers
        first = None
        if not isinstance(slices, Unavailable) and not slices[sink].complete:
            heads = [h for h in slices[sink].heads if not h.is_release]
            # Batch ids of two epochs do not compare: where a new one began, all rows are read.
            if len({h.epoch for h in heads}) == 1:
                first = min(h.batch_id for h in heads)
        place = quarantined.location(self.project, self.pipeline.name, found)

        def read() -> RowsWitness:
            location = self.project.location(found)
            if found.is_delta:
                rows = sink_rows.read(spark, location, first_batch=first)
            else:
                table = open_sink(self.project, self.pipeline.name, found).table(spark)
                rows = sink_rows.read(spark, table, location=location, first_batch=first)
            if place is None or not quarantined.exists(self._storage(place)):
                return rows
            return replace(rows, quarantined=quarantine_groups.read(spark, place, first_batch=first))

        return _or_unavailable("rows", read)

    def answer(self, questions: Mapping[tuple[str, int], Spans]) -> Mapping[tuple[str, int], ProbeAnswer] | Unavailable:
        from recon.evidence import kafka_probe

        if isinstance(self.kafka, Unavailable):
            return self.kafka
        return _or_unavailable("kafka", lambda: kafka_probe.probe(self.project.kafka, questions))

    def witnesses(self, bound: Bound) -> Witnesses:
        check = cast(EvidenceCheck, bound.check)
        looked_at = {*check.needs, *check.uses}
        for sends_back in {"delta", "sink_logs"} & looked_at:
            getattr(self, sends_back)  # reading it may send us back to the ledger
        found = Witnesses(
            pipeline=self.pipeline.name,
            sink=bound.sink,
            now=self.now,
            isolation_level=self.pipeline.source.isolation_level,
            period_from=self.period_from,
            period_to=self.options.to or self.now,
            ledgers=self.ledgers,
            checkpoint=self._if("checkpoint", looked_at),
            kafka=self._if("kafka", looked_at),
            delta=self._if("delta", looked_at),
            rows=Unavailable("rows", "the rows were not read"),
            previous=self.previous,
            quarantine=self._if("quarantine", looked_at),
            sink_logs=self._if("sink_logs", looked_at),
            guarantees={sink.name: sink.guarantee for sink in self.pipeline.sinks},
            rewriting=frozenset(sink.name for sink in self.pipeline.sinks if sink.rewrites),
            routed=self.pipeline.routes.sinks if self.pipeline.routes else (),
            progress=self._if("progress_offsets" if "progress_offsets" in looked_at else "progress", looked_at),
        )
        if bound.sink is not None and ("rows" in check.needs or check.wants_rows(found)):
            found = replace(found, rows=self.rows(bound.sink))
        return found

    def _if(self, witness: str, needs: set[str]) -> Any:
        return getattr(self, witness) if witness in needs else Unavailable(witness, "not asked for")

    def _storage(self, location: str) -> Storage:
        return Storage(self.project.resolve(location), self.project.storage_options)


def _positions(slices: Iterable[LedgerSlice]) -> dict[tuple[str, int], int]:
    """How far the slowest sink has come, per topic partition."""
    ends: dict[tuple[str, int], int] = {}
    for of_sink in slices:
        ranges = of_sink.ranges
        if not len(ranges):
            continue
        # The furthest micro-batch, which need not be the newest entry: that may be a replay, or one restored late.
        furthest = max(range(len(of_sink.heads)), key=lambda i: (of_sink.heads[i].epoch, of_sink.heads[i].batch_id))
        mine = np.flatnonzero(ranges.entry == furthest)
        for i in mine.tolist():
            key = (ranges.topics[int(ranges.topic[i])][1], int(ranges.partition[i]))
            end = int(ranges.end[i])
            ends[key] = min(ends.get(key, end), end)
    return ends


class _Run:
    """One audit: the pipelines' witnesses, and the checks judged against them."""

    def __init__(
        self, project: Project, options: Options, now: datetime, session: _Session, bounds: Sequence[Bound]
    ) -> None:
        self.project, self.options, self.now, self.session, self.bounds = project, options, now, session, bounds
        self.invocation_id = str(uuid.uuid4())
        self.gathered: dict[str, _Gathered] = {}
        self.failing: dict[str, Sequence[Mapping[str, Any]]] = {}
        remembering = [b.unique_id for b in bounds if getattr(b.check, "remembers", None)]
        before = options.history_to or now
        self.history = History(lambda: open_ledger(project, session.found).results, remembering, before)

    def _of(self, pipeline: str) -> _Gathered:
        if pipeline not in self.gathered:
            found = next(pipe for pipe in self.project.pipelines if pipe.name == pipeline)
            self.gathered[pipeline] = _Gathered(self.project, found, self.options, self.now, self.session)
        return self.gathered[pipeline]

    def results(self, bounds: Sequence[Bound], on_check: Callable[[str], None]) -> Iterator[CheckResult]:
        for done, found in enumerate(self._all(bounds, on_check), start=1):
            # A driver's or a store's message may quote what it was configured with.
            result = replace(found, message=self.project.mask(found.message))
            yield result
            stopping = ("fail", "error", "warn") if self.options.warn_error else ("fail", "error")
            if self.options.fail_fast and result.status in stopping:
                stopped = Unavailable("", STOPPED, skipped=True)
                yield from (runner.without_answer(bound, stopped, utc_now) for bound in bounds[done:])
                return

    def _all(self, bounds: Sequence[Bound], on_check: Callable[[str], None]) -> Iterator[CheckResult]:
        tables: dict[tuple[str, str], list[Bound]] = {}
        for bound in bounds:
            gathered = self._of(bound.pipeline)
            if bound.kind == "evidence":
                on_check(bound.name)
                yield from runner.run_evidence([bound], gathered.witnesses, gathered.answer, utc_now)
            else:
                tables.setdefault((bound.pipeline, bound.sink or ""), []).append(bound)
        for (pipeline, sink), of_table in tables.items():
            on_check(of_table[0].name)
            yield from self._table(self._of(pipeline), sink, of_table)

    def _table(self, gathered: _Gathered, sink: str, bounds: Sequence[Bound]) -> Iterator[CheckResult]:
        found = next(s for s in gathered.pipeline.sinks if s.name == sink)
        target = self.project.location(found)
        spark = self.session.get()
        if isinstance(spark, Unavailable):
            yield from (runner.without_answer(bound, spark, utc_now) for bound in bounds)
            return
        context = ScanContext(
            tables=ProjectTables(self.project, spark),
            history=self.history,
            keep_failures=self._keep_failures if self.options.keep else None,
            fail_fast=self.options.fail_fast,
        )
        if any(bound.config.incremental for bound in bounds) and found.kind == "delta":
            sink_scan = incremental.SinkScan(
                project=self.project,
                pipeline=gathered.pipeline,
                sink=found,
                spark=spark,
                refresh=self.options.full_refresh,
                keep=self.options.keep,
            )
            yield from incremental.results(sink_scan, bounds, utc_now, context)
            return
        try:
            table = open_sink(self.project, gathered.pipeline.name, found).table(spark)
        except Exception as error:  # AnalysisException and whatever the filesystem raises
            gone = Unavailable("rows", f"table {target} cannot be read: {reason_of(error)}")
            yield from (runner.without_answer(bound, gone, utc_now) for bound in bounds)
            return
        yield from runner.run_table(bounds, table, target, utc_now, context)

    def _keep_failures(self, bound: Bound, rows: Sequence[Mapping[str, Any]]) -> None:
        self.failing[bound.unique_id] = rows

    @property
    def period_from(self) -> datetime | None:
        """The earliest begin over the pipelines; None when one of them was audited whole."""
        begins = [gathered.period_from for gathered in self.gathered.values()]
        known = [begin for begin in begins if begin is not None]
        return min(known) if known and len(known) == len(begins) else None

    def facts(self, pipeline: Pipeline, results: Sequence[CheckResult]) -> PipelineFacts:
        gathered = self._of(pipeline.name)
        mine = [r for r in results if r.pipeline == pipeline.name]
        said, because = summary.answer(mine, [sink.name for sink in pipeline.sinks])
        slices = gathered.ledgers
        kafka = gathered.__dict__.get("kafka", Unavailable("kafka", "not asked for"))
        heads = [] if isinstance(slices, Unavailable) else [h for s in slices.values() for h in reversed(s.heads)]
        queries = [head.query_id for head in heads if not head.is_release]
        return PipelineFacts(
            name=pipeline.name,
            answer=said,
            because=because,
            query_id=queries[0] if queries else None,
            checkpoint=self.project.resolve(pipeline.checkpoint),
            topics=pipeline.source.topics or _topics(slices),
            isolation_level=pipeline.source.isolation_level,
            period_from=gathered.period_from,
            sinks=tuple(
                summary.sink_facts(
                    name=sink.name,
                    kind=sink.kind,
                    target=self.project.location(sink),
                    guarantee=sink.guarantee,
                    ledger=slices if isinstance(slices, Unavailable) else slices[sink.name],
                    kafka=kafka,
                    results=mine,
                    now=self.now,
                )
                for sink in pipeline.sinks
            ),
        )

    def notes(self) -> Iterator[str]:
        kinds = {(pipe.name, sink.name): sink.kind for pipe in self.project.pipelines for sink in pipe.sinks}
        whole = {(b.pipeline, b.sink or "") for b in self.bounds if b.kind == "data" and b.config.incremental}
        for pipeline, of_sink in sorted(whole):
            if kinds[pipeline, of_sink] != "delta":
                yield (
                    f"pipeline {pipeline}, sink {of_sink}: only sinks of kind delta tell which rows are new; checks "
                    f"with incremental: true measured all rows of this one ({kinds[pipeline, of_sink]})"
                )
        for name, gathered in self.gathered.items():
            for witness in ("ledgers", "checkpoint", "delta", "sink_logs", "kafka"):
                said = gathered.__dict__.get(witness)
                if isinstance(said, Unavailable):
                    yield f"pipeline {name}: {witness} could not be asked: {said.reason}"


def _topics(slices: Mapping[str, LedgerSlice] | Unavailable) -> tuple[str, ...]:
    if isinstance(slices, Unavailable):
        return ()
    return tuple(sorted({topic for s in slices.values() for _, topic, _ in s.ranges.topics}))
