"""Collects the evidence about a pipeline: reads each witness that the selected checks look at, in a fixed order.

The statements of `collect` are that order. The query goes on writing while we read. By this order a micro-batch that
ends meanwhile looks like one in progress, or like lag, and never like a loss.

A sink's rows cost a Spark job, Kafka's own records a scan of a topic, and the rows of some commits a look into their
data files: `Evidence` reads these later, when a check needs them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar, cast

from recon.audits.options import Options
from recon.audits.sources import Sources
from recon.base.errors import ConfigError, EvidenceError, LedgerError
from recon.base.lazy import np
from recon.base.text import first_line, plural
from recon.checks.base import EvidenceCheck
from recon.checks.bound import Bound
from recon.checks.engine.reading import Reading
from recon.judge.case import SinkCase
from recon.judge.history.quarantine_log import QuarantineJudged, QuarantineLog, is_relied_on, quarantines
from recon.judge.history.record_history import TableJudged
from recon.judge.history.table_history import TableVersion
from recon.judge.kafka.kafka_states import leaders_seen
from recon.judge.rows.foreign_rows import search
from recon.model import (
    CheckpointWitness,
    CommitRows,
    DeclaredRows,
    EntryHead,
    KafkaWitness,
    LedgerSlice,
    LiveFiles,
    OtherWriter,
    PreviousAudit,
    ProgressWitness,
    QuarantinedRows,
    RowSearch,
    RowsWitness,
    SinkLog,
    SourceLog,
    TableLog,
    Unavailable,
    Unstamped,
    Witnesses,
    known,
    parse_offsets,
)
from recon.model.deletion import AskedDeletion, DeletedRows
from recon.model.erasure import Erasure
from recon.model.evidence import Answers, Questions, ReadBefore, SeenDeletions, joined
from recon.model.offsets import Span
from recon.model.positions import is_kafka
from recon.model.proof import Proofs, SinkProof, Tampering
from recon.project import Pipeline, Sink
from recon.witness import observed
from recon.witness.observed_rows import placed
from recon.write.ledger import Ledger
from recon.write.ledger.erasures import ErasuresEdited, what_is_gone
from recon.write.ledger.proofs import ProofEdited, ProofTable
from recon.write.ledger.rebuild import CLOCKS_APART, unrecorded
from recon.write.ledger.results import previous_audit
from recon.write.ledger.sealed_results import changed_since
from recon.write.ledger.unsaved_findings import with_unstored
from recon.write.observer import ObservationResult

# An audit goes on where the last one stopped that proved everything, and judges the hour before that again. The abort
# marker of a transaction may come that much later than its records (Kafka's transaction.max.timeout.ms is 15 minutes).
# While a finding is open it judges more again, so that rows which somebody put right since close it.
_AGAIN, _AGAIN_WHILE_OPEN = timedelta(hours=1), timedelta(hours=24)
# How far back earlier results are read.
_RESULTS_AT_MOST = timedelta(days=30)
# Older ones may be removed; the day is for clocks that differ.
_RESULTS_KEPT = _RESULTS_AT_MOST - timedelta(days=1)
# How a stream runs is judged by the last days of a longer period.
_PROGRESS_AT_MOST = timedelta(days=7)
# Micro-batches whose offsets are read from the progress table: they cost more than everything else in it.
_PROGRESS_SAMPLES = 16
# A sink's own record carries the sink's time; what is read of it begins this much before the period.
_EDGE = timedelta(minutes=5)

# The witnesses that a check sees only if it names them in `needs` or `uses`; every check sees the ledger. A check that
# names `kafka` sees the Delta table that a query reads instead.
_OPTIONAL = ("checkpoint", "kafka", "delta", "quarantine", "sink_logs", "progress")
# What a check may name instead of a witness, to see more of it.
_WITH = {"progress_offsets": "progress", "delta_files": "delta"}
# Those whose absence the run's notes explain.
_NOTED = ("ledgers", "checkpoint", "delta", "sink_logs", "kafka")

Slices = Mapping[str, LedgerSlice]
T = TypeVar("T")


def collect(sources: Sources, bounds: Sequence[Bound], options: Options, now: datetime) -> Evidence:
    """Reads the witnesses of a pipeline that its selected evidence checks look at, and the ledger in any case.

    A witness that cannot be read is `Unavailable` with the reason; so is one that no check looks at, unread. `bounds`
    are the pipeline's selected checks; `now` is the audit's clock, UTC.
    """
    try:
        return _collect(sources, bounds, options, now)
    except Exception as error:  # whatever it is, it is of this pipeline: the others' audit does not end with it
        return _nothing_read(sources, options, now, error)


def _collect(sources: Sources, bounds: Sequence[Bound], options: Options, now: datetime) -> Evidence:
    wanted = {"ledgers"}.union(*(_named(cast(EvidenceCheck, b.check)) for b in bounds if b.kind == "evidence"))
    pipeline = sources.pipeline
    until = options.until(now)
    reader = _Reader(sources, until, now)

    broken: dict[str, Exception] = {}

    def attempt(witness: str, of: Callable[[], T]) -> T | Unavailable:
        try:
            return _attempt(witness, of)
        except Exception as error:  # not one of recon's: each check that looks at this witness ends in error
            broken[witness] = error
            return _unforeseen(witness, error)

    def read(witness: str, of: Callable[[], T]) -> T | Unavailable:
        return attempt(witness, of) if witness in wanted else _unread(witness)

    # 0. Where the query writes without recon, its writes since the last look get their entries first. Not so where a
    #    period is examined again, or the audit keeps nothing.
    looks = pipeline.is_observed and options.keep and options.goes_on
    looked = attempt("the stream", sources.observe) if looks else ObservationResult()

    # 1. What earlier audits proved and recorded. The state first: an audit that ends meanwhile may advance it, and then
    #    what we judge again was judged before, and we advance nothing.
    ledger = attempt("ledgers", sources.ledger)
    earlier = attempt("previous", lambda: reader.previous(_required(ledger)))
    previous = known(earlier)
    proofs = known(attempt("proofs", lambda: reader.proofs(_required(ledger), earlier))) or Proofs()
    begin = _period_from(options, pipeline, proofs, until or now)
    goes_on = proofs if options.goes_on else Proofs()

    # 2. The checkpoint before the ledger: Spark marks a micro-batch as committed after its entry is written. Read the
    #    other way round, a micro-batch that ends in between would look like a commit without an entry.
    checkpoints = read("checkpoint", sources.checkpoint)
    # What a query that writes without recon wrote into each commit only the checkpoint says.
    plans = (known(checkpoints) or known(attempt("plans", sources.checkpoint))) if pipeline.is_observed else None

    # 3. The ledger.
    waits = looked.waits if isinstance(looked, ObservationResult) else ""
    slices = read("ledgers", lambda: reader.slices(_required(ledger), previous, begin, goes_on, waits=waits))

    # 4. The sinks' own records after the ledger, which says from which version or time on they are read. An entry is
    #    always written after its commit, so that every entry we hold has its commit in the record, if it has one.
    logs = read("delta", lambda: reader.delta(known(slices) or {}, proofs, files="delta_files" in wanted))
    delta = attempt("delta", lambda: _with_stamps(logs, known(slices) or {}, sources, plans, now))
    sink_logs = read("sink_logs", lambda: reader.sink_logs(known(slices) or {}, begin, proofs))

    # 5. The ledger again, where a record has commits without an entry. The query may have written their entries since
    #    step 3, or they are those of an earlier period. What has no entry now either is a finding.
    outruns = attempt(
        "ledgers", lambda: reader.outruns(known(slices) or {}, known(delta) or {}, known(sink_logs) or {})
    )
    if outruns:
        slices = read("ledgers", lambda: reader.slices(_required(ledger), previous, begin, goes_on, whole=True))
        delta = attempt("delta", lambda: _with_stamps(logs, known(slices) or {}, sources, plans, now))

    # 6. The checkpoint again, where the ledger is ahead of it. A micro-batch is planned before its entry is written, so
    #    a checkpoint that is behind the ledger even now is an older copy.
    if attempt("ledgers", lambda: _is_ahead(known(slices) or {}, checkpoints)) is True:
        checkpoints = attempt("checkpoint", lambda: _read_again(_required(checkpoints), sources.checkpoint()))

    # 7. The logs of the quarantine tables in which rows may wait, of this period or of earlier ones. Where such a log
    #    leaves a question, the rows are counted.
    quarantine = read("quarantine", lambda: reader.quarantine(_required(slices), proofs))
    counted = attempt(
        "quarantine", lambda: reader.quarantine_rows(known(slices) or {}, known(quarantine) or {}, proofs)
    )

    # 8. Kafka's log start and end offsets after the last reading of the ledger: what arrives meanwhile is lag, and
    #    never looks like a loss.
    kafka = read("kafka", lambda: reader.kafka(known(slices) or {}, proofs))
    #    The same holds for the Delta table or the folder that the query reads instead of Kafka.
    source_log = (
        None if pipeline.of_kafka else read("kafka", lambda: reader.source_log(known(slices) or {}, known(delta) or {}))
    )

    # 9. What a listener recorded of each micro-batch; nothing is compared with it.
    samples = _PROGRESS_SAMPLES if "progress_offsets" in wanted else 0
    progress = read("progress", lambda: reader.progress(begin, samples))

    witnesses = Witnesses(
        pipeline=pipeline.name,
        sink=None,
        now=now,
        isolation_level=pipeline.source.isolation_level,
        period_from=begin,
        period_to=until or now,
        ledgers=slices,
        checkpoint=checkpoints,
        kafka=kafka,
        delta=delta,
        rows=Unavailable("rows", "the rows were not read"),
        previous=earlier,
        quarantine=quarantine,
        quarantine_rows=known(counted) or {},
        sink_logs=sink_logs,
        guarantees={sink.name: sink.guarantee for sink in pipeline.sinks},
        rewriting=frozenset(sink.name for sink in pipeline.sinks if sink.rewrites),
        routed=pipeline.routes.sinks if pipeline.routes else (),
        topics=pipeline.source.topics,
        progress=progress,
        source_log=source_log,
        observed=pipeline.is_observed,
        own_function=pipeline.write == "foreach_batch",
        placed_by_rows=pipeline.placed_by_rows,
        source_columns=_source_columns(pipeline),
        proofs=proofs,
        deletes={sink.name: sink.declared_deletions for sink in pipeline.sinks if sink.deletes},
        declared=DeclaredRows(
            filters=pipeline.rows.filters, explodes=pipeline.rows.explodes, max_filtered=pipeline.max_filtered
        ),
    )
    return Evidence(reader, witnesses, frozenset(wanted), broken, looked)


def _nothing_read(sources: Sources, options: Options, now: datetime, error: Exception) -> Evidence:
    """The evidence of a pipeline that could not be collected: no witness is known, and every check ends in error."""
    pipeline, until = sources.pipeline, options.until(now)
    missing = {name: _unforeseen(name, error) for name in ("ledgers", "checkpoint", "kafka", "delta", "sink_logs")}
    witnesses = Witnesses(
        pipeline=pipeline.name,
        sink=None,
        now=now,
        isolation_level=pipeline.source.isolation_level,
        period_from=options.from_,
        period_to=until or now,
        ledgers=missing["ledgers"],
        checkpoint=missing["checkpoint"],
        kafka=missing["kafka"],
        delta=missing["delta"],
        sink_logs=missing["sink_logs"],
        rows=Unavailable("rows", "the rows were not read"),
        observed=pipeline.is_observed,
    )
    broken = dict.fromkeys(missing, error)
    return Evidence(_Reader(sources, until, now), witnesses, frozenset({"ledgers"}), broken, ObservationResult())


@dataclass
class Evidence:
    """The witnesses of one pipeline; the rows of its sinks and Kafka's own records are read when a check needs them."""

    _reader: _Reader
    witnesses: Witnesses
    _wanted: frozenset[str]
    _broken: Mapping[str, Exception]
    _looked: ObservationResult | Unavailable
    _rows: dict[str, RowsWitness | Unavailable] = field(default_factory=dict)
    _commit_rows: dict[str, dict[int, CommitRows | Unavailable]] = field(default_factory=dict)
    _answers: Answers = field(default_factory=dict)

    def of_sink(self, sink: str) -> Witnesses:
        """All that this audit has read of one sink, whichever checks asked for it."""
        return replace(
            self.witnesses,
            sink=sink,
            rows=self._rows.get(sink, self.witnesses.rows),
            commit_rows=self._commit_rows.get(sink, {}),
            probes=self._answers,
        )

    def seen_by(self, bound: Bound) -> Witnesses:
        """The witnesses as one check sees them: what it names in `needs` and `uses`, and what reads more for it.

        Raises:
            Exception: reading one of them broke in a way that recon does not know.
        """
        check = cast(EvidenceCheck, bound.check)
        named = _named(check)
        for witness in ("ledgers", *_OPTIONAL):
            if witness in self._broken and witness in {"ledgers", *named}:
                raise self._broken[witness]
        unseen = {witness: _unread(witness) for witness in _OPTIONAL if witness not in named}
        if self.witnesses.source_log is not None and "kafka" not in named:
            unseen["source_log"] = _unread("source_log")
        seen = replace(self.witnesses, sink=bound.sink, **unseen)  # type: ignore[arg-type]
        if bound.sink is None:
            return replace(seen, reader=Reading(ask=self.answer))
        sink = bound.sink
        reading = Reading(
            partial(self._rows_of, sink),
            partial(self._commit_rows_of, sink),
            self.answer,
            partial(self._deletions_of, sink),
        )
        return replace(seen, reader=reading)

    def _rows_of(self, sink: str) -> RowsWitness | Unavailable:
        if sink not in self._rows:
            try:
                self._rows[sink] = self._reader.rows(sink, replace(self.witnesses, sink=sink))
            except Exception as error:  # whatever Spark or a store raises: the rows are not known
                self._rows[sink] = _unforeseen("rows", error)
            rows = self._rows[sink]
            if isinstance(rows, RowsWitness):
                of_others = {**self.witnesses.of_others, sink: rows.of_others}
                self.witnesses = replace(self.witnesses, of_others=of_others)
        return self._rows[sink]

    def _commit_rows_of(self, sink: str, versions: Sequence[int]) -> Mapping[int, CommitRows | Unavailable]:
        try:
            read = self._reader.commit_rows(sink, versions)
        except Exception as error:  # whatever a store raises: nothing was looked at
            read = dict.fromkeys(versions, _unforeseen("commit_rows", error))
        self._commit_rows.setdefault(sink, {}).update(read)
        return read

    def _deletions_of(self, sink: str, asked: Sequence[AskedDeletion], instants: Collection[datetime]) -> SeenDeletions:
        """What was read of these, each once in an audit."""
        seen = self.witnesses.deletions.get(sink, SeenDeletions())
        asked = [question for question in asked if question.version not in seen.rows]
        instants = [at for at in instants if at not in seen.read_before]
        rows: Mapping[int, DeletedRows | Unavailable]
        try:
            rows = self._reader.deleted_rows(sink, asked)
        except Exception as error:  # whatever a store raises: nothing was looked at
            rows = dict.fromkeys((question.version for question in asked), _unforeseen("deleted_rows", error))
        read_before: dict[datetime, ReadBefore | Unavailable] = {}
        for at in instants:
            try:
                read_before[at] = self._reader.read_before(sink, at)
            except Exception as error:  # whatever the ledger's store raises
                read_before[at] = _unforeseen("ledgers", error)
        seen = seen.joined(SeenDeletions(rows=rows, read_before=read_before))
        self.witnesses = replace(self.witnesses, deletions={**self.witnesses.deletions, sink: seen})
        return seen

    def answer(self, questions: Questions) -> Answers | Unavailable:
        """What Kafka's own records say about some offsets; nothing where Kafka could not be read before."""
        if isinstance(self.witnesses.kafka, Unavailable):
            return self.witnesses.kafka
        try:
            answers = _attempt("kafka", lambda: self._reader.sources.probe(questions))
        except Exception as error:
            return _unforeseen("kafka", error)
        self._answers = joined(self._answers, known(answers) or {})
        return answers

    def unavailable(self) -> Iterator[Unavailable]:
        """The witnesses that a selected check looks at and that could not be read."""
        for witness in _NOTED:
            value = getattr(self.witnesses, witness)
            if witness in self._wanted and isinstance(value, Unavailable):
                yield value
        if isinstance(self.witnesses.source_log, Unavailable) and "kafka" in self._wanted:
            yield replace(self.witnesses.source_log, witness="the log of what the query reads")
        if isinstance(self._looked, Unavailable):
            yield self._looked
        elif self._looked.waits:
            yield Unavailable("what the stream wrote", self._looked.waits)
        earlier = self.witnesses.previous
        if isinstance(earlier, Unavailable) and not isinstance(self.witnesses.ledgers, Unavailable):
            yield replace(earlier, witness="the results of earlier audits")


def _named(check: EvidenceCheck) -> set[str]:
    """The witnesses that a check names.

    `progress_offsets` is the progress, with offsets of some micro-batches; `delta_files` the Delta log, with the files
    that the table consists of.
    """
    named = {*check.needs, *check.uses}
    return named | {whole for part, whole in _WITH.items() if part in named}


def _unread(witness: str) -> Unavailable:
    return Unavailable(witness, "no selected check looks at it")


def _attempt(witness: str, read: Callable[[], T]) -> T | Unavailable:
    """A witness, or why it could not be read."""
    try:
        return read()
    except (EvidenceError, LedgerError, ConfigError) as error:
        return Unavailable(witness, str(error))


def _unforeseen(witness: str, error: Exception) -> Unavailable:
    return Unavailable(witness, f"{type(error).__name__}: {first_line(error)}")


def _required(witness: T | Unavailable) -> T:
    """The witness; raises EvidenceError with the reason for which it could not be read."""
    if isinstance(witness, Unavailable):
        raise EvidenceError(witness.reason)
    return witness


def _source_columns(pipeline: Pipeline) -> str:
    """The user's columns with the source of each row, where Spark's own sink writes them; "" for none."""
    names = pipeline.source_names(pipeline.sinks[0]) if pipeline.is_observed else None
    return "" if names is None else ", ".join(names.renamed)


def _with_stamps(
    logs: Mapping[str, TableLog] | Unavailable,
    slices: Slices,
    sources: Sources,
    plans: CheckpointWitness | None,
    now: datetime,
) -> Mapping[str, TableLog] | Unavailable:
    """The logs, with stamps on what the query wrote without recon, now or before recon took the sink over."""
    if isinstance(logs, Unavailable):
        return logs
    pipeline = sources.pipeline

    def stamped(sink: Sink, log: TableLog) -> TableLog:
        log = _stamped(log, slices.get(sink.name), sources, sink, plans, now)
        for other, its in sources.other_writers(sink) if log.exists else ():
            log = _with_other_writer(log, other, its, now)
        return log

    return {sink.name: stamped(sink, logs[sink.name]) for sink in pipeline.sinks if sink.name in logs}


def _stamped(
    log: TableLog,
    of_sink: LedgerSlice | None,
    sources: Sources,
    sink: Sink,
    plans: CheckpointWitness | None,
    now: datetime,
) -> TableLog:
    """A log with stamps on what a pipeline's query wrote without recon."""
    pipeline, heads = sources.pipeline, of_sink.heads if of_sink is not None else ()
    if not (pipeline.is_observed or any(head.is_observed for head in heads)):
        return log
    by_rows: Mapping[int, int] = {}
    if pipeline.placed_by_rows:
        explodes = bool(pipeline.rows.explodes)
        read = partial(sources.rows_together, sink)
        by_rows = placed(log, plans, heads, read, explodes=explodes).numbers
    log = observed.attributed(log, sink.observed_app_id, plans, heads, by_rows)
    return observed.with_stamps(log, of_sink, plans, pipeline.name, sink.name, now, pipeline.source.beginning)


def _with_other_writer(log: TableLog, sources: Sources, sink: Sink, now: datetime) -> TableLog:
    """A log of which it is known what another pipeline of recon.yml wrote: by its entries, and by its checkpoint.

    What recon's hook writes names its pipeline itself.
    """
    pipeline, nobodys = sources.pipeline, {v: c for v, c in log.commits.items() if c.stamp is None and c.data_change}
    nobodys = {version: commit for version, commit in nobodys.items() if version not in log.unstamped}
    topics = frozenset(pipeline.source.topics) or None
    writer = OtherWriter(pipeline=pipeline.name, sink=sink.name, topics=topics, observed=pipeline.is_observed)
    if not nobodys:
        return replace(log, other_writers=(*log.other_writers, writer))
    since = min(commit.timestamp for commit in nobodys.values())
    of_sink = _attempt("ledgers", lambda: sources.ledger().slice(pipeline.name, sink.name, since))
    plans = _attempt("checkpoint", sources.checkpoint) if pipeline.is_observed else None
    entered, planned = known(of_sink), known(plans)
    theirs = _stamped(replace(log, commits=nobodys), entered, sources, sink, planned, now)
    writer = replace(
        writer,
        topics=_topics(writer.topics, entered, planned),
        unstamped=frozenset(theirs.unstamped),
        unknown=plans.reason if isinstance(plans, Unavailable) else "",
    )
    writers, commits = (*log.other_writers, writer), {**log.commits, **theirs.commits}
    return replace(log, commits=commits, other_writers=writers)


def _topics(
    declared: frozenset[str] | None, of_sink: LedgerSlice | None, plans: CheckpointWitness | None
) -> frozenset[str] | None:
    """What a pipeline reads, as recon.yml, its ledger and its checkpoint say; None where none of them does."""
    found = set(declared or ())
    found |= {name for _, name, _ in of_sink.ranges.topics} if of_sink is not None else set()
    found |= {read.topic for batch in (plans.batches if plans is not None else ()) for read in batch.ranges}
    return frozenset(found) or None


def _is_ahead(slices: Slices, checkpoint: CheckpointWitness | Unavailable) -> bool:
    """Whether the ledger has micro-batches of the query behind the last one that its checkpoint plans."""
    if isinstance(checkpoint, Unavailable) or checkpoint.last is None:
        return False
    query_id, last = checkpoint.query_id, checkpoint.last.batch_id
    heads = (head for of_sink in slices.values() for head in of_sink.heads)
    return any(head.query_id == query_id and head.is_micro_batch and head.batch_id > last for head in heads)


def _read_again(before: CheckpointWitness, now: CheckpointWitness) -> CheckpointWitness:
    """The checkpoint as it was read before the ledger, with its newest micro-batch of now."""
    if now.query_id != before.query_id or now.last is None:
        raise EvidenceError(f"checkpoint {before.location} was replaced while the audit read it; audit again")
    return replace(before, newest_later=now.last.batch_id)


def _period_from(options: Options, pipeline: Pipeline, proofs: Proofs, to: datetime) -> datetime | None:
    """Begin of the period that ends at `to`, by the audit's own clock; None for the whole ledger."""
    if options.from_ is not None:
        return options.from_
    if pipeline.name in options.begins:
        return options.begins[pipeline.name]
    states = [proofs.of_sink[sink.name] for sink in pipeline.sinks if sink.name in proofs.of_sink]
    judged = [state.committed_at for state in states if state.committed_at is not None]
    if options.full or len(judged) < len(pipeline.sinks):
        return None
    is_open = any(open_finding.accepted is None for state in states for open_finding in state.open)
    return min(
        *(at - (_AGAIN_WHILE_OPEN if is_open else _AGAIN) for at in (to, *judged)),
        *(state.at - _EDGE for state in states),
    )


def _states_gone(
    table: ProofTable, pipeline: str, sink: str, length: int, previous: PreviousAudit | None
) -> Tampering | None:
    """That there are fewer states of a sink than an earlier audit read; None where there are as many."""
    before = previous.proof_states.get(sink, 0) if previous is not None else 0
    if length >= before:
        return None
    sentence = (
        f"{table.store.location} has {plural(length, 'state')} of pipeline {pipeline}, sink {sink}, and an earlier "
        f"audit read {before}: the table was removed, or is an older copy"
    )
    return Tampering(sentence, about=f"proof, {plural(before, 'state')}")


@dataclass(frozen=True)
class _Reader:
    """Decides what is read of each witness. Everything may raise; `until` is the end of the period, None for now."""

    sources: Sources
    until: datetime | None
    now: datetime

    @property
    def _sinks(self) -> Sequence[Sink]:
        return self.sources.pipeline.sinks

    def previous(self, ledger: Ledger) -> PreviousAudit | None:
        return previous_audit(ledger.results, self.sources.pipeline.name, self.now - _RESULTS_AT_MOST)

    def proofs(self, ledger: Ledger, earlier: PreviousAudit | Unavailable | None) -> Proofs:
        """What earlier audits proved of each sink; a state that cannot be used is named, and nothing rests on it."""
        name, table, previous = self.sources.pipeline.name, ledger.proofs, known(earlier)
        of_sink: dict[str, SinkProof] = {}
        damaged: dict[str, Tampering] = {}
        unreadable: dict[str, str] = {}
        lengths: dict[str, int] = {}
        for sink in self._sinks:
            try:
                lengths[sink.name] = table.length(name, sink.name)
                state = table.newest(name, sink.name)
                lacks = _states_gone(table, name, sink.name, lengths[sink.name], previous)
                if lacks is not None and (state is None or not state.is_accepted(lacks)):
                    damaged[sink.name] = lacks
                    state = state.of_open_alone if state is not None else None
                if state is not None:
                    of_sink[sink.name] = state
            except ProofEdited as error:
                damaged[sink.name] = Tampering(str(error), about=f"proof, state {lengths[sink.name]}")
            except Exception as error:  # whatever a store raises: what is open is not known, which is never "nothing"
                unreadable[sink.name] = first_line(error)
        results = {} if isinstance(earlier, Unavailable) else self._results_changed(ledger, of_sink, previous)
        heads = self.sources.session.compared()
        signed = {names[1]: said for names, said in heads.results.items() if names[0] == name}
        self._judge_signed(signed, of_sink, results, damaged)
        if previous is not None:
            self._with_unstored(ledger, previous.found, of_sink, unreadable, damaged)
        unread = dict.fromkeys((sink.name for sink in self._sinks), heads.unread) if heads.unread else {}
        proofs = Proofs(
            of_sink=of_sink,
            damaged=damaged,
            unreadable=unreadable,
            lengths=lengths,
            results_changed=results,
            contradicted={sink: said for (of, sink), said in heads.contradicted.items() if of == name},
            heads_unknown=unread | {sink: why for (of, sink), why in heads.unknown.items() if of == name},
        )
        return self._with_erasures(self._with_gone(ledger, proofs), previous)

    @staticmethod
    def _judge_signed(
        signed: Mapping[str, tuple[datetime, str]],
        of_sink: dict[str, SinkProof],
        results: dict[str, str],
        damaged: dict[str, Tampering],
    ) -> None:
        """Adds that results of an audit are not those that its signed head covers: when it was signed, and a sentence.

        A state from before that may be an older copy, as the results may be: what is open in it stays, and nothing is
        proved by it.
        """
        for sink, (at, sentence) in signed.items():
            state, tampering = of_sink.get(sink), Tampering(sentence, about=f"results signed {at:%Y-%m-%dT%H:%M:%SZ}")
            if state is not None and (state.audited_at or state.at) > at:
                results.setdefault(sink, sentence)
            elif sink not in results and (state is None or not state.is_accepted(tampering)):
                damaged.setdefault(sink, tampering)
                if state is not None:
                    of_sink[sink] = state.of_open_alone

    def _with_gone(self, ledger: Ledger, proofs: Proofs) -> Proofs:
        """With the states of sinks that the query had under names which recon.yml no longer has.

        Where they cannot be read, what is open is not known of any sink.
        """
        try:
            gone = self.sources.session.gone().of(self.sources.pipeline)
            states = [ledger.proofs.newest(*names) for names in gone]
        except Exception as error:  # whatever a store raises
            why = f"what is open of sinks that recon.yml no longer has is not known: {first_line(error)}"
            return replace(proofs, unreadable={**{sink.name: why for sink in self._sinks}, **proofs.unreadable})
        return replace(proofs, gone=[state for state in states if state is not None])

    def _results_changed(
        self, ledger: Ledger, of_sink: Mapping[str, SinkProof], previous: PreviousAudit | None
    ) -> dict[str, str]:
        """Of which sinks the results of the audit that left the newest state are not as it stored them."""
        recent = {s: state for s, state in of_sink.items() if (state.audited_at or state.at) > self.now - _RESULTS_KEPT}
        hashes = {} if previous is None else previous.hashes
        if any(changed_since(state, hashes.get(state.invocation_id)) for state in recent.values()):
            # An audit that ended since the results were read stored its own before its state.
            again = self.previous(ledger)
            hashes = {} if again is None else again.hashes
        changed = {s: changed_since(state, hashes.get(state.invocation_id)) for s, state in recent.items()}
        return {sink: sentence for sink, sentence in changed.items() if sentence}

    def _with_unstored(
        self,
        ledger: Ledger,
        found: Sequence[Mapping[str, Any]],
        of_sink: dict[str, SinkProof],
        unreadable: dict[str, str],
        damaged: Collection[str],
    ) -> None:
        """Adds to the states what audits refuted that left none, or one that is gone."""
        name, stored = self.sources.pipeline.name, set(of_sink)
        for sink in {audited.name for audited in self._sinks} - unreadable.keys():
            before, others = of_sink.get(sink), bool(stored - {sink})
            try:
                state = with_unstored(
                    before, name, sink, found, ledger.proofs, self.now, others=others, gone=sink in damaged
                )
            except Exception as error:  # whatever a store raises: what is open is not known
                of_sink.pop(sink, None)
                unreadable[sink] = first_line(error)
                continue
            if state is not None:
                of_sink[sink] = state

    def _with_erasures(self, proofs: Proofs, previous: PreviousAudit | None) -> Proofs:
        """What was erased of the sinks, compared with what earlier audits saw of it."""
        erased: dict[str, list[Erasure]] = {}
        edited: dict[str, str] = {}
        ends: dict[str, tuple[int, str]] = {}
        unknown: dict[str, str] = {}
        for sink in self._sinks:
            seen = previous.erasures.get(sink.name) if previous is not None else None
            try:
                chain = self.sources.erasures(sink.name)
            except ErasuresEdited as error:
                edited[sink.name] = str(error)
                continue
            except Exception as error:  # whatever a store raises
                unknown[sink.name] = first_line(error)
                continue
            erased[sink.name] = [erasure for erasure, _ in chain]
            if (lacks := what_is_gone(self.sources.pipeline.name, sink.name, chain, seen)) is not None:
                edited[sink.name] = lacks
            elif chain:  # a chain that took another one's place is no end for the next audit to go on from
                ends[sink.name] = (len(chain), chain[-1][1])
        return replace(proofs, erased=erased, erasures_edited=edited, erasures=ends, erasures_unknown=unknown)

    def _positions(self, ledger: Ledger, proofs: Proofs, begin: datetime | None) -> Mapping[str, int]:
        """The entry behind which each sink's slice begins: the proof's, or the last before the period."""
        name, after = self.sources.pipeline.name, {}
        for sink in self._sinks:
            state = proofs.of_sink.get(sink.name)
            if state is not None and begin is not None:
                after[sink.name] = min(state.position, ledger.position_before(name, sink.name, begin))
        return after

    def slices(
        self,
        ledger: Ledger,
        previous: PreviousAudit | None,
        begin: datetime | None,
        goes_on: Proofs,
        *,
        whole: bool = False,
        waits: str = "",
    ) -> Slices:
        """The entries of each sink: those behind the position of its proof, else of the period, else all.

        `goes_on` are the proofs that the audit goes on from. With `whole`, the numbers of all its entries besides.
        `waits` is why the query's micro-batches were not entered.
        """
        if not ledger.exists():
            never = "has the hook ever written?"
            if self.sources.pipeline.is_observed:
                never = "nothing that the query wrote could be entered yet"
                if waits:
                    never += f": {waits}"
                elif self.sources.pipeline.placed_by_rows:
                    never += (
                        ": no commit of its table that was made between the plans of two micro-batches has, in the "
                        "source_columns that recon.yml names, the offsets that the first of them read"
                    )
                elif self.sources.pipeline.write == "foreach_batch":
                    never += (
                        ": no commit of its table has a txn with the txn_app_id that recon.yml names and the number of "
                        "a micro-batch that the checkpoint has"
                    )
            raise LedgerError(f"there is no ledger at {ledger.location}; {never}")
        operations = ledger.store.operations(after=previous.ledger_version if previous else None)
        name, after = self.sources.pipeline.name, self._positions(ledger, goes_on, begin)
        slices = {
            sink.name: ledger.slice(name, sink.name, after=after[sink.name], operations=operations)
            if sink.name in after
            else ledger.slice(name, sink.name, begin, self.until, operations=operations)
            for sink in self._sinks
        }
        if not whole:
            return slices
        return {sink: replace(of_sink, recorded=ledger.numbers(name, sink)) for sink, of_sink in slices.items()}

    def delta(self, slices: Slices, proofs: Proofs, *, files: bool) -> Mapping[str, TableLog]:
        """The logs of the sinks that are Delta or Iceberg tables; with `files`, what their data files are."""
        tables = (sink for sink in self._sinks if sink.has_history)
        return {s.name: self._history(s, slices.get(s.name), proofs.of_sink.get(s.name), files) for s in tables}

    def _history(self, sink: Sink, of_sink: LedgerSlice | None, state: SinkProof | None, files: bool) -> TableLog:
        log = self._newer(sink, of_sink, state, files)
        mine, shown = self.sources.pipeline.name, log.commits
        shared = self.sources.other_writers(sink) or any(c.stamp and c.stamp.pipeline != mine for c in shown.values())
        removing = [c for c in shown.values() if c.stamp is None and c.files_removed] if shared else ()
        # Whose rows a commit removed, the commits tell that added them, however long ago; what a RESTORE brought back,
        # those from the version on to which it went.
        told = all(c.removed_rows_of is not None and c.removed_rows_of <= shown.keys() for c in removing)
        told = told and all(c.restored_version in (None, *shown) for c in shown.values() if c.is_restore)
        return log if told else self.sources.history(sink, None, files=files)

    def _newer(self, sink: Sink, of_sink: LedgerSlice | None, state: SinkProof | None, files: bool) -> TableLog:
        first, table = None, state.memory(TableVersion) if state is not None else None
        if of_sink is not None and not of_sink.complete:
            # From the anchor on: a mutation right after it belongs to the period. The version of a release or of a
            # repair says nothing about how far the micro-batches have come.
            anchors = [i for i in range(of_sink.anchors) if of_sink.heads[i].is_micro_batch]
            recent = of_sink.heads[anchors[-1] if anchors else 0 :]
            first = min((head.sink_version for head in recent if head.sink_version is not None), default=None)
        if first is None or table is None or table.version is None:
            return self.sources.history(sink, first, files=files)
        # Entries before may claim versions that a former table had, or an older copy lacks which was put in its place.
        log = self.sources.history(sink, min(first, table.version + 1), files=files)
        another = log.table_id not in (None, table.table_id) or (log.last is not None and log.last < table.version)
        return self.sources.history(sink, None, files=files) if another else log

    def sink_logs(self, slices: Slices, begin: datetime | None, proofs: Proofs) -> Mapping[str, SinkLog]:
        """What sinks that keep no history have recorded of the slices' entries, and in the day before these."""
        return {s.name: self._sink_log(s, slices.get(s.name), begin, proofs) for s in self._sinks if not s.has_history}

    def _sink_log(self, sink: Sink, of_sink: LedgerSlice | None, begin: datetime | None, proofs: Proofs) -> SinkLog:
        heads = [] if of_sink is None else of_sink.heads[of_sink.anchors :]
        # Such an entry has the time of the restart; its write may be much older.
        restored = any(head.status in ("already_committed", "rebuilt") for head in heads)
        state = proofs.of_sink.get(sink.name)
        since = None if restored or begin is None else self._recorded_since(heads, begin, state)
        topics = {covered.topic for covered in (state.coverage if state is not None else ())}
        topics |= {name for _, name, _ in of_sink.ranges.topics} if of_sink is not None else set()
        return replace(self.sources.sink_log(sink, since, topics, proofs.memory(sink.name, TableJudged)), since=since)

    def _recorded_since(self, heads: Sequence[EntryHead], begin: datetime, state: SinkProof | None) -> datetime:
        """The earliest time at which the sink may have recorded what these entries say.

        The entries have the driver's clock, which may be wrong by any time. Those behind the position of the proof were
        written after the audit that left it, whatever their own time is.
        """
        instants = [begin, *(head.committed_at for head in heads)]
        if state is not None:
            instants.append(state.at - _AGAIN_WHILE_OPEN)
        return min(instants) - CLOCKS_APART

    def outruns(self, slices: Slices, delta: Mapping[str, TableLog], sink_logs: Mapping[str, SinkLog]) -> bool:
        """Whether a sink's record has a commit of the period for which these slices have no entry."""
        for sink, of_sink in slices.items():
            entries = {(head.epoch, head.batch_id) for head in of_sink.heads}
            commits = [(c.stamp, c.timestamp) for c in delta[sink].commits.values()] if sink in delta else []
            commits += [(c.stamp, c.at) for c in sink_logs[sink].commits] if sink in sink_logs else []
            of_period = (stamp for stamp, at in commits if self.until is None or at < self.until)
            if any(unrecorded(stamp, self.sources.pipeline.name, sink, entries) for stamp in of_period):
                return True
            if sink in delta and Unstamped.UNSEEN in delta[sink].unstamped.values():
                return True
        return False

    def quarantine(self, slices: Slices, proofs: Proofs) -> Mapping[str, TableLog | Unavailable]:
        """The logs of the sinks' quarantine tables, but of sinks that never quarantined a row."""
        logs: dict[str, TableLog | Unavailable] = {}
        for sink in (sink for sink in self._sinks if is_relied_on(slices[sink.name], proofs)):
            log = self._quarantine_log(sink, slices[sink.name], proofs)
            if log is not None:
                logs[sink.name] = log
        return logs

    def _quarantine_log(self, sink: Sink, of_sink: LedgerSlice, proofs: Proofs) -> TableLog | Unavailable | None:
        """The commits after those that were judged; all of them where entries of the slice are compared with them."""
        judged = proofs.memory(sink.name, QuarantineJudged)
        version = judged.version if judged is not None else None
        if version is not None and not of_sink.complete and not quarantines(of_sink):
            log = _attempt("quarantine", lambda: self.sources.quarantine_log(sink, version + 1))
            if not isinstance(log, TableLog) or not QuarantineLog.of(of_sink, log, proofs).needs_whole:
                return log
        return _attempt("quarantine", lambda: self.sources.quarantine_log(sink, None))

    def quarantine_rows(
        self, slices: Slices, logs: Mapping[str, TableLog | Unavailable], proofs: Proofs
    ) -> Mapping[str, QuarantinedRows | Unavailable]:
        """The rows of the sinks' quarantine tables, counted where the log does not show that all of them are there."""
        counted: dict[str, QuarantinedRows | Unavailable] = {}
        for sink in self._sinks:
            log = logs.get(sink.name)
            if isinstance(log, TableLog) and QuarantineLog.of(slices[sink.name], log, proofs).needs_count:
                try:
                    counted[sink.name] = self.sources.quarantine_rows(sink, log)
                except Exception as error:  # whatever a store raises
                    counted[sink.name] = Unavailable("quarantine", first_line(error))
        return counted

    def source_log(self, slices: Slices, logs: Mapping[str, TableLog]) -> SourceLog:
        """The Delta table or the folder that the query reads, from where the entries of the slices begin."""
        read = (
            span
            for of_sink in slices.values()
            for entry in range(len(of_sink.heads))
            for span in of_sink.ranges.of(entry)
        )
        # A commit without an entry is judged as the entry that it lacks.
        stamps = (commit.stamp for log in logs.values() for commit in log.commits.values() if commit.stamp is not None)
        written = (span for stamp in stamps for span in parse_offsets(stamp.offsets_text))
        return self.sources.source_log({span for span in (*read, *written) if not is_kafka(span.topic)})

    def kafka(self, slices: Slices, proofs: Proofs) -> KafkaWitness:
        if not self.sources.pipeline.of_kafka:
            return KafkaWitness(bootstrap_servers="", isolation_level="", read_at=self.now, topics={})
        positions = _positions(slices.values())
        # A topic that left the subscription was read, too.
        read = (name for of_sink in slices.values() for _, name, _ in of_sink.ranges.topics)
        topics = {*self.sources.pipeline.source.topics, *(name for name in read if is_kafka(name))}
        epochs: dict[tuple[str, int], set[tuple[int, int]]] = {}
        for sink, of_sink in slices.items():
            for where, leaders in leaders_seen(of_sink, proofs.of_sink.get(sink)).items():
                epochs.setdefault(where, set()).update((leader.epoch, leader.position) for leader in leaders)
        return self.sources.kafka(sorted(topics), positions, epochs)

    def progress(self, begin: datetime | None, samples: int) -> ProgressWitness:
        """What a listener recorded in the period, or in its last week."""
        since = (self.until or self.now) - _PROGRESS_AT_MOST
        return self.sources.progress(max(since, begin) if begin else since, self.until, samples)

    def commit_rows(self, sink_name: str, versions: Sequence[int]) -> Mapping[int, CommitRows | Unavailable]:
        """The rows of some commits of a sink that is a Delta table."""
        sink = next(s for s in self._sinks if s.name == sink_name)
        return self.sources.commit_rows(sink, versions)

    def deleted_rows(self, sink_name: str, asked: Sequence[AskedDeletion]) -> Mapping[int, DeletedRows | Unavailable]:
        """The rows that some commits of a sink deleted."""
        return self.sources.deleted_rows(next(s for s in self._sinks if s.name == sink_name), asked) if asked else {}

    def read_before(self, sink_name: str, at: datetime) -> ReadBefore:
        """How far the stream had read at an instant, for a sink: what the entries before it read, by topic id."""
        of_sink = self.sources.ledger().before(self.sources.pipeline.name, sink_name, at)
        ends: dict[tuple[str, int], dict[str | None, int]] = {}
        for entry in range(len(of_sink.heads)):
            for read in of_sink.ranges.of(entry):
                of_partition = ends.setdefault((read.topic, read.partition), {})
                of_partition[read.topic_id] = max(read.end_offset, of_partition.get(read.topic_id, 0))
        return ends

    def rows(self, sink_name: str, witnesses: Witnesses) -> RowsWitness | Unavailable:
        """The rows of a sink, as groups: of the period's micro-batches, where the ledger tells which these are."""
        sink = next(s for s in self._sinks if s.name == sink_name)
        case, log = SinkCase(witnesses), witnesses.table_log
        of_sink = case.ledger if case.entered.heads else None
        first = None
        within = _judged_ranges(of_sink) if of_sink is not None and sink.observed else None
        if of_sink is not None and not of_sink.complete:
            heads = [head for head in of_sink.heads if not head.is_release]
            # Batch ids of two epochs do not compare: where a new one began, all rows are read. So they are after a
            # repair, which touches rows of any micro-batch.
            if {head.epoch for head in heads} == {heads[0].epoch if heads else 0} and heads[0].is_micro_batch:
                first = min(head.batch_id for head in heads)
        wanted = search(case) if of_sink is not None else RowSearch()
        files = log.files if log is not None else None
        lacking = isinstance(files, LiveFiles) and not isinstance(files.gone, Unavailable) and bool(files.gone)
        version = log.last if log is not None else None

        def read() -> RowsWitness | Unavailable:
            rows = self.sources.rows(sink, first, wanted, version=version, lacking=lacking, within=within)
            if case.record is None or not case.record.doubled_by_others or not isinstance(rows, RowsWitness):
                return rows
            return replace(rows, repeated=self.sources.repeated_rows(sink))

        return _attempt("rows", read)


def _judged_ranges(ledger: LedgerSlice) -> dict[tuple[str, int], Span]:
    """From the first to the last offset that the judged entries read, per topic partition."""
    found: dict[tuple[str, int], Span] = {}
    for entry in range(ledger.anchors, len(ledger.heads)):
        for read in ledger.ranges.of(entry):
            low, high = found.get((read.topic, read.partition), read.span)
            found[read.topic, read.partition] = Span(min(low, read.start_offset), max(high, read.end_offset))
    return found


def _positions(slices: Iterable[LedgerSlice]) -> dict[tuple[str, int], int]:
    """How far the slowest sink has come, per topic partition."""
    ends: dict[tuple[str, int], int] = {}
    for of_sink in slices:
        ranges = of_sink.ranges
        if not len(ranges):
            continue
        # The furthest micro-batch, which need not be the newest entry: that may be a replay, or one restored late.
        furthest = max(range(len(of_sink.heads)), key=lambda i: (of_sink.heads[i].epoch, of_sink.heads[i].batch_id))
        for i in np.flatnonzero(ranges.entry == furthest).tolist():
            key = (ranges.topics[int(ranges.topic[i])][1], int(ranges.partition[i]))
            end = int(ranges.end[i])
            ends[key] = min(ends.get(key, end), end)
    return ends
