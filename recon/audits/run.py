"""Runs an audit: collects evidence, evaluates checks, stores the result.

Evidence checks run first, then the checks of rows, table by table. No JVM is started unless a check reads rows.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime
from importlib.metadata import PackageNotFoundError, version
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recon._version import __version__
from recon.audits import summary
from recon.audits.accounting import with_account
from recon.audits.anchor import anchor
from recon.audits.audit_events import AuditEvents
from recon.audits.books import of_ledger
from recon.audits.collect import Evidence, collect
from recon.audits.incidents import Item, incidents_of, items_of
from recon.audits.options import Options, texts
from recon.audits.past import past_audits
from recon.audits.record import STOPPED, record_of
from recon.audits.session import AuditSession
from recon.audits.sources import Brokers, Sources
from recon.audits.store import store, store_proofs
from recon.base.clock import utc_now
from recon.base.errors import ConfigError
from recon.base.instants import instant
from recon.base.text import first_line, plural, some
from recon.checks.binding import bind
from recon.checks.bound import Bound
from recon.checks.engine import runner
from recon.checks.engine.context import ScanContext
from recon.checks.engine.executor import reason_of
from recon.checks.samples import Samples
from recon.checks.select import asks_last_run, select, unmatched
from recon.events import Emitter
from recon.model import CheckResult, LedgerSlice, PipelineFacts, RunResult, Unavailable, Witnesses, known
from recon.model.books import BookLine
from recon.project import Pipeline, Project, Sink, Table, as_project
from recon.reports.audit_run import AuditRun
from recon.spark.connect import analysed
from recon.write.ledger.heads.signing import public_keys
from recon.write.ledger.results import History
from recon.write.ledger.store import USUAL
from recon.write.sinks.catalog import ProjectTables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run_audit(
    project: str | Path | Project,
    *,
    select: Sequence[str] | str = (),
    exclude: Sequence[str] | str = (),
    from_: datetime | date | str | None = None,
    to: datetime | date | str | None = None,
    fail_fast: bool = False,
    no_spark: bool = False,
    full_refresh: bool = False,
    full: bool = False,
    warn_error: bool = False,
    require_complete: bool = False,
    spark: SparkSession | None = None,
    keep: bool = True,
    on_result: Callable[[int, int, CheckResult], None] | None = None,
) -> AuditRun:
    """Runs the project's checks on what was committed in [from_, to); `recon.audit(…)` is the same.

    Args:
        project: where recon.yml is, or a `Project`.
        select: dbt-like selectors; everything when empty.
        exclude: selectors of what not to run.
        from_: begin of a period to examine again: a datetime, a date, or a text as `--from` takes it; UTC without a
            time zone. By default the audit goes on behind the last ledger entry that an audit judged, and judges the
            last hour again (24 hours while a finding is open). The first audit judges the whole ledger.
        to: end of such a period, excluded, but for a date, which includes that day; now by default. With `from_` or
            `to` the proof does not advance.
        fail_fast: stop at the first failure; what did not run is `skipped`.
        no_spark: read no rows; checks that need rows are `skipped`.
        full_refresh: measure incremental checks on whole tables, and go on from there.
        full: prove everything anew, from the ledger's first entry on.
        warn_error: warnings fail the run; their status stays `warn`.
        require_complete: the run fails where a pipeline's answer is not "complete"; statuses stay as they are.
        spark: the session for checks that read rows; the active one, or one built from `spark:`, by default.
        keep: append the results to the ledger's results table and merge its small files; keep what incremental
            checks measured.
        on_result: called with (index from 1, total, result) as results come.

    Raises:
        ConfigError: recon.yml asks for something that does not exist, no check is selected, or a jar that Spark
            fetched differs from the one that was published.
    """
    run = audit(
        project,
        Options(
            select=texts("select", select),
            exclude=texts("exclude", exclude),
            from_=instant("from_", from_),
            to=instant("to", to, ends=True),
            fail_fast=fail_fast,
            no_spark=no_spark,
            full_refresh=full_refresh,
            full=full,
            warn_error=warn_error,
            require_complete=require_complete,
            spark=spark,
            keep=keep,
            on_result=on_result,
        ),
    )
    return AuditRun.of(run)


def audit(project: str | Path | Project, options: Options) -> RunResult:
    """Runs the project's checks as the options say; see `run_audit`.

    Raises:
        ConfigError: recon.yml asks for something that does not exist, no check is selected, or a jar that Spark
            fetched differs from the one that was published.
    """
    started, project = utc_now(), as_project(project)
    public_keys(project)  # a key that is none is better known before the audit than after it
    emitter = Emitter(project, logs=False)  # and so is an extra that is missing
    configured = bind(project)
    candidates = [b for b in configured if options.only is None or b.unique_id in options.only]
    bounds = select(candidates, options.select, options.exclude, options.last)
    unknown = unmatched(candidates, [*options.select, *options.exclude], options.last)
    if not bounds and (options.select or options.exclude):
        raise ConfigError("; ".join([*unknown, "no check is selected, so nothing was audited"]))
    if not bounds and not project.pipelines:
        raise ConfigError(
            "recon.yml has neither pipelines nor data_tests of its tables, so nothing was audited; write data_tests "
            "below an entry of tables"
        )
    if options.require_complete:
        _require_checked(project, options, candidates, bounds)
    if options.on_start:
        options.on_start(len(bounds))
    chosen = {bound.unique_id for bound in bounds}
    events = AuditEvents(
        emitter=emitter,
        project=project.name,
        invocation_id=str(uuid.uuid4()),
        started_at=started,
        pipelines=_pipelines_of(bounds),
        partial=_pipelines_of(bound for bound in configured if bound.unique_id not in chosen),
    )
    events.started(len(bounds))
    run = _Run(project, options, started, bounds)
    try:
        outcome = _outcome(run, events.invocation_id, configured, unknown)
        if options.keep:
            outcome = _kept(run, outcome)
    except Exception as error:
        events.failed(error)
        raise
    return events.finished(outcome, run.witnesses, options)


def _pipelines_of(bounds: Iterable[Bound]) -> tuple[str, ...]:
    """The pipelines that these checks are about; an entry of `tables` is of none."""
    return tuple(dict.fromkeys(bound.pipeline for bound in bounds if bound.pipeline is not None))


def _require_checked(project: Project, options: Options, candidates: Sequence[Bound], bounds: Sequence[Bound]) -> None:
    """Raises where a pipeline that must be proved complete has no check of evidence, and so would have no answer."""
    selectors = [selector for selector in options.select if not asks_last_run([selector])]
    if missing := unmatched(candidates, selectors, options.last):
        raise ConfigError("; ".join([*missing, "what is not there cannot be complete, so nothing was audited"]))
    checked = {bound.pipeline for bound in bounds if bound.kind == "evidence"}
    without = [pipeline.name for pipeline in project.pipelines if pipeline.name not in checked]
    if without and not options.select and not options.exclude and options.only is None:
        raise ConfigError(
            f"no enabled check of evidence looks at {', '.join(without)}, so nothing was audited: it could not be "
            "proved complete; give it data_tests such as offset_continuity, or select the others"
        )


def _outcome(run: _Run, invocation_id: str, configured: Sequence[Bound], unknown: Sequence[str]) -> RunResult:
    """Evaluates the checks; `configured` are those of recon.yml, selected or not, `unknown` are notes on selectors."""
    project, options, bounds = run.project, run.options, run.bounds
    results: list[CheckResult] = []
    for result in run.results():
        results.append(result)
        if options.on_result:
            options.on_result(len(results), len(bounds), result)
    # Whoever selects checks of rows alone still gets the picture of the pipeline: evidence is read for it now.
    evidence = {name: run.evidence_of(name) for name in run.reached if run.has_stream(name, configured)}
    run.session.raise_refusal()
    lines, without_books = _books(project, run.session, run.witnesses, results)
    finished = utc_now()
    # A message may quote what a driver was configured with; what is stored and returned has no secret in it.
    return project.masked(
        RunResult(
            invocation_id=invocation_id,
            project=project.name,
            recon_version=__version__,
            generated_at=options.now or finished,
            period_from=summary.earliest(of.witnesses.period_from for of in evidence.values()),
            period_to=options.until(run.now) or run.now,
            elapsed_time=(finished - run.began).total_seconds(),
            results=tuple(results),
            pipelines=tuple(
                facts_of(
                    project,
                    pipeline,
                    evidence[pipeline.name],
                    results,
                    keeps=options.keep and options.goes_on,
                )
                for pipeline in project.pipelines
                if pipeline.name in evidence
            ),
            args={"vars": dict(project.variables), **options.as_args()},
            versions=_versions(),
            notes=(
                *unknown,
                *_as_of(run),
                *_first_of_observed(project, evidence),
                *_not_incremental(project, bounds),
                *_unavailable(evidence),
                *_open_of_gone(run),
                *without_books,
            ),
            record=record_of(project, configured, results),
            runbook_url=project.reports.runbook_url,
            books=lines,
        )
    )


def _kept(run: _Run, outcome: RunResult) -> RunResult:
    """Stores the results and what they prove, signs the ledger's heads, and looks at earlier audits."""
    project, session = run.project, run.session
    outcome, results_kept = store(project, outcome, run.bounds, run.failing_rows, session)
    if run.options.goes_on:
        outcome = store_proofs(outcome, run.witnesses, session, results_kept=results_kept)
    outcome = anchor(project, session, outcome)
    return project.masked(replace(outcome, past=past_audits(project, session.ledger, outcome.generated_at)))


def facts_of(
    project: Project, pipeline: Pipeline, evidence: Evidence, results: Sequence[CheckResult], *, keeps: bool = True
) -> PipelineFacts:
    """A pipeline's facts; where its witnesses hold values that cannot be summed up, its answer without the figures.

    `keeps` is whether the audit stores what it found.
    """
    witnesses = evidence.witnesses
    try:
        facts = summary.pipeline_facts(project, pipeline, witnesses, results)
        of_pipeline = [result for result in results if result.pipeline == pipeline.name]
        incidents = incidents_of(witnesses, of_pipeline, [sink.name for sink in pipeline.sinks], keeps=keeps)
        sinks = tuple(with_account(sink, evidence.of_sink(sink.name)) for sink in facts.sinks)
        return replace(facts, incidents=incidents, sinks=sinks)
    except Exception as error:  # whatever an edited ledger leads to: the other pipelines are reported all the same
        return _without_figures(project, pipeline, witnesses, results, _unforeseen(error))


def _without_figures(
    project: Project, pipeline: Pipeline, witnesses: Witnesses, results: Sequence[CheckResult], why: str
) -> PipelineFacts:
    """A pipeline's answer, which is not "complete", where its figures cannot be computed."""
    reason = f"the report's figures cannot be computed: {why}"
    unread = replace(witnesses, ledgers=Unavailable("ledgers", reason))
    try:
        facts = summary.pipeline_facts(project, pipeline, unread, results)
    except Exception:  # not even without its ledger: only what its checks found is reported
        mine = [result for result in results if result.pipeline == pipeline.name]
        outcome, because = summary.answer(mine, [sink.name for sink in pipeline.sinks], reads=pipeline.source.kind)
        facts = PipelineFacts(
            name=pipeline.name,
            answer=outcome,
            because=because,
            query_id=None,
            checkpoint=project.resolve(pipeline.checkpoint),
            topics=pipeline.source.names,
            isolation_level=witnesses.isolation_level if pipeline.of_kafka else None,
            period_from=witnesses.period_from,
        )
    unproved = facts.answer == "complete"
    return replace(facts, answer="could not be proved", because=reason) if unproved else facts


def _unforeseen(error: Exception) -> str:
    return f"{type(error).__name__}: {first_line(error)}"


def _books(
    project: Project, session: AuditSession, witnesses: Mapping[str, Witnesses], results: Sequence[CheckResult]
) -> tuple[tuple[BookLine, ...], Sequence[str]]:
    """The books of the pipelines that were looked at, and notes on what they lack."""
    slices: dict[tuple[str, str], LedgerSlice] = {}
    items: dict[tuple[str, str], list[Item]] = {}
    notes: list[str] = []
    for pipeline in (pipeline for pipeline in project.pipelines if pipeline.name in witnesses):
        seen, names = witnesses[pipeline.name], [sink.name for sink in pipeline.sinks]
        try:
            of_pipeline = items_of(seen, [result for result in results if result.pipeline == pipeline.name], names)
        except Exception as error:  # without its findings its books would be wrong; the others' are not
            notes.append(f"The books of pipeline {pipeline.name} could not be computed: {_unforeseen(error)}")
            continue
        for sink, of_sink in (known(seen.ledgers) or {}).items():
            slices[pipeline.name, sink] = of_sink
            items[pipeline.name, sink] = [item for item in of_pipeline if item.sink in (None, sink)]
    lines, without = of_ledger(project, session.ledger(), slices, items) if slices else ((), ())
    return lines, (*notes, *without)


class _Run:
    """The evaluation of one audit's checks, one result after the other."""

    def __init__(self, project: Project, options: Options, began: datetime, bounds: Sequence[Bound]) -> None:
        self.project, self.options, self.began, self.bounds = project, options, began, bounds
        self.now = options.now or began  # as of which everything is judged
        self.brokers = Brokers()
        self.session = AuditSession(
            project,
            options.no_spark,
            options.spark,
            tidies=USUAL if options.keep else None,
            spark_log=options.spark_log,
        )
        self.failing_rows: dict[str, Sequence[Mapping[str, Any]]] = {}
        self.reached: dict[str, None] = {}  # pipelines whose turn had come when --fail-fast stopped
        self._pipelines = {pipeline.name: pipeline for pipeline in project.pipelines}
        self._evidence: dict[str, Evidence] = {}
        remembering = [bound.unique_id for bound in bounds if getattr(bound.check, "remembers", None)]
        self._history = History(lambda: self.session.ledger().results, remembering, options.history_to or self.now)

    def evidence_of(self, name: str) -> Evidence:
        """A pipeline's evidence, collected when first needed."""
        if name not in self._evidence:
            bounds = [bound for bound in self.bounds if bound.pipeline == name]
            of_witnesses = self.options.sources or Sources
            sources = of_witnesses(self.project, self._pipelines[name], self.session, self.brokers)
            self._evidence[name] = collect(sources, bounds, self.options, self.now)
        return self._evidence[name]

    def has_stream(self, name: str, configured: Sequence[Bound]) -> bool:
        """Whether a pipeline is more than its tables, as one that was imported is: it has an answer then.

        Evidence checks say so, or a ledger that is there, in which something may be open.
        """
        if any(bound.kind == "evidence" and bound.pipeline == name for bound in configured):
            return True
        try:
            return self.session.ledger().exists()
        except Exception:  # what cannot be read may hold an open finding
            return True

    @property
    def witnesses(self) -> Mapping[str, Witnesses]:
        """What was read of each pipeline."""
        return {name: of_pipeline.witnesses for name, of_pipeline in self._evidence.items()}

    def results(self) -> Iterator[CheckResult]:
        """The result of every check; after a failure that --fail-fast stops at, `skipped` for those that are left."""
        # Evidence first, then rows, table by table: the cheap results do not wait for Spark.
        bounds = sorted(self.bounds, key=_table_of)
        self.session.locate()
        for done, result in enumerate(self._evaluated(bounds), start=1):
            self.session.raise_refusal()
            # A driver's or a store's message may quote what it was configured with.
            yield self.project.masked(result)
            if self.options.fail_fast and result.status in self.options.failing:
                stopped = Unavailable("", STOPPED, skipped=True)
                yield from (runner.without_answer(bound, stopped, utc_now) for bound in bounds[done:])
                return

    def _evaluated(self, bounds: Sequence[Bound]) -> Iterator[CheckResult]:
        evidence = [bound for bound in bounds if bound.kind == "evidence"]
        for bound in evidence:
            self.reached |= dict.fromkeys(_pipelines_of([bound]))
            self._announce(bound)
            yield from runner.run_evidence([bound], self._seen_by, utc_now)
        of_rows = bounds[len(evidence) :]
        self.reached |= dict.fromkeys(_pipelines_of(of_rows))
        for _, group in groupby(of_rows, _table_of):
            of_table = list(group)
            self._announce(of_table[0])
            yield from self._of_table(of_table)

    def _seen_by(self, bound: Bound) -> Witnesses:
        assert bound.pipeline is not None, "evidence is of pipelines alone"
        return self.evidence_of(bound.pipeline).seen_by(bound)

    def _announce(self, bound: Bound) -> None:
        if self.options.on_check:
            self.options.on_check(bound.name)

    def _of_table(self, bounds: Sequence[Bound]) -> Iterator[CheckResult]:
        """The results of one table's checks of rows, in their order; `error` where they cannot be evaluated."""
        given = 0
        try:
            for result in self._table(bounds):
                given += 1
                yield result
        except Exception as error:  # not of a check, but of what they share: the other tables are still measured
            broken = Unavailable("rows", f"the checks of this table could not be evaluated: {reason_of(error)}")
            yield from (runner.without_answer(bound, broken, utc_now) for bound in bounds[given:])

    def _table(self, bounds: Sequence[Bound]) -> Iterator[CheckResult]:
        """The results of one table's checks of rows."""
        pipeline, of_rows = self._subject(bounds[0])
        target = self.project.location(of_rows)
        spark = self.session.for_rows()
        if isinstance(spark, Unavailable):
            yield from (runner.without_answer(bound, spark, utc_now) for bound in bounds)
            return
        tables = ProjectTables(self.project, spark)
        context = ScanContext(
            tables=tables,
            history=self._history,
            keep_failures=self._keep_failing_rows if self.options.keep else None,
            fail_fast=self.options.fail_fast,
            samples=Samples.of(self.project, of_rows),
        )
        of_new_rows = any(bound.config.incremental for bound in bounds)
        if of_new_rows and pipeline and not isinstance(of_rows, Table) and of_rows.kind == "delta":
            from recon.audits import incremental  # most audits have no such check, and need not load it

            sink_scan = incremental.SinkScan(
                project=self.project,
                pipeline=pipeline,
                sink=of_rows,
                spark=spark,
                refresh=self.options.full_refresh,
                keep=self.options.keep,
            )
            yield from incremental.results(sink_scan, bounds, utc_now, context)
            return
        try:
            table = analysed(tables.rows_of(pipeline, of_rows))
        except Exception as error:  # AnalysisException and whatever the filesystem raises
            unreadable = Unavailable("rows", f"table {target} cannot be read: {reason_of(error)}")
            yield from (runner.without_answer(bound, unreadable, utc_now) for bound in bounds)
            return
        yield from runner.run_table(bounds, table, target, utc_now, context)

    def _subject(self, bound: Bound) -> tuple[Pipeline | None, Sink | Table]:
        """The table whose rows a check is about, and the pipeline that writes it; none for an entry of `tables`."""
        if bound.pipeline is None:
            return None, next(table for table in self.project.tables if table.name == bound.sink)
        return self.project.find_sink(bound.pipeline, bound.sink)

    def _keep_failing_rows(self, bound: Bound, rows: Sequence[Mapping[str, Any]]) -> None:
        self.failing_rows[bound.unique_id] = rows


def _table_of(bound: Bound) -> tuple[str, str]:
    """The table that a check of rows reads; evidence checks come before all tables."""
    return ("", "") if bound.kind == "evidence" else (bound.pipeline or "", bound.sink or "")


def _as_of(run: _Run) -> Iterator[str]:
    """A note on an audit that judges as of another time than its own."""
    if run.options.now is not None:
        yield (
            f"everything is judged as of {run.now:%Y-%m-%d %H:%M} UTC, when it was recorded; the audit ran on "
            f"{run.began:%Y-%m-%d %H:%M} UTC"
        )


def _first_of_observed(project: Project, evidence: Mapping[str, Evidence]) -> Iterator[str]:
    """What the first audit of a query that writes without recon can prove, and what the hook would add."""
    for pipeline in project.pipelines:
        seen = evidence[pipeline.name].witnesses if pipeline.is_observed and pipeline.name in evidence else None
        if seen is None or seen.proofs.of_sink:
            continue
        entries = sum(len(of_sink.heads) for of_sink in (known(seen.ledgers) or {}).values())
        rows = "the columns of its rows" if seen.source_columns else "numbers of rows"
        more = "" if seen.source_columns else " and name the offsets that have no row,"
        yield (
            f"pipeline {pipeline.name} is observed: {plural(entries, 'micro-batch')} that its query wrote without "
            f"recon were judged by its checkpoint, its table's log and {rows}; recon.foreach_batch would besides count "
            f"what the query filters,{more} and see a row that is lost while another is doubled"
        )


def _not_incremental(project: Project, bounds: Sequence[Bound]) -> Iterator[str]:
    """Notes on incremental checks that measured a whole table."""
    kinds = {(pipe.name, sink.name): sink.kind for pipe in project.pipelines for sink in pipe.sinks}
    kinds |= {("", table.name): "an entry of tables" for table in project.tables}
    tables = {(b.pipeline or "", b.sink or "") for b in bounds if b.kind == "data" and b.config.incremental}
    for pipeline, sink in sorted(tables):
        if kinds[pipeline, sink] != "delta":
            yield (
                f"{f'pipeline {pipeline}, sink {sink}' if pipeline else f'table {sink}'}: only sinks of kind delta "
                f"tell which rows are new; checks with incremental: true measured all rows of this one "
                f"({kinds[pipeline, sink]})"
            )


def _unavailable(evidence: Mapping[str, Evidence]) -> Iterator[str]:
    """Notes on witnesses that could not be read; a broker or a ledger that several pipelines share is said once."""
    pipelines: dict[tuple[str, str], list[str]] = defaultdict(list)
    for pipeline, of_pipeline in evidence.items():
        for missing in of_pipeline.unavailable():
            pipelines[missing.witness, missing.reason].append(pipeline)
    for (witness, reason), names in pipelines.items():
        of = f"pipeline {names[0]}" if len(names) == 1 else f"{len(names)} pipelines ({some(names)})"
        yield f"{of}: {witness} could not be read: {reason}"


def _open_of_gone(run: _Run) -> Iterator[str]:
    """Notes on open findings of sinks that recon.yml no longer has, and that are of no pipeline's query."""
    if not run.witnesses:
        return
    judged = {(state.pipeline, state.sink) for seen in run.witnesses.values() for state in seen.proofs.gone}
    try:
        gone = run.session.gone()
    except Exception:  # a ledger that cannot be opened is said of each pipeline
        return
    yield from gone.notes(judged)


def _versions() -> dict[str, str]:
    versions = {"spark-recon": __version__}
    for package in ("pyspark", "delta-spark", "deltalake", "confluent-kafka"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return versions
