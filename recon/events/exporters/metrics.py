"""Every metric, and its samples as events say them; pure.

An audit's gauges replace those of the audit before, so what an audit does not know is absent, and is not 0. What was
proved last is therefore kept apart, and stays until more is proved. Counters count since the process started.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple, get_args

from recon.events.model import AuditFailed, AuditFinished, Event, MicroBatchFailed, MicroBatchWritten
from recon.model import Answer, CheckResult, Level, PipelineFacts, SinkFacts
from recon.model.incident import Harm


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A metric: its name as Prometheus has it, what it is, and its labels."""

    name: str
    kind: Literal["gauge", "counter"]
    help: str
    labels: tuple[str, ...]

    @property
    def unit(self) -> str:
        """The unit of its name, as UCUM writes it; "1" for a number of things."""
        name = self.name.removesuffix("_total")
        return "s" if name.endswith("_seconds") else "1"

    @property
    def dotted(self) -> str:
        """Its name as OpenTelemetry has it: words separated by dots, without unit and `total`.

        >>> HOOK_OVERHEAD.dotted
        'recon.hook.overhead'
        """
        return self.name.removesuffix("_total").removesuffix("_seconds").replace("_", ".")


METRICS: list[Metric] = []
_PROJECT, _PIPELINE, _SINK = ("project",), ("project", "pipeline"), ("project", "pipeline", "sink")


def _gauge(name: str, labels: tuple[str, ...], help: str) -> Metric:
    METRICS.append(Metric(name=name, kind="gauge", help=help, labels=labels))
    return METRICS[-1]


def _counter(name: str, help: str) -> Metric:
    METRICS.append(Metric(name=name, kind="counter", help=help, labels=_SINK))
    return METRICS[-1]


AUDIT_SUCCESS = _gauge(
    "recon_audit_success", _PROJECT, "1 where the last audit ended with a result, 0 where it ended by an error."
)
AUDIT_END = _gauge("recon_audit_end_timestamp_seconds", _PROJECT, "When the last audit ended.")
AUDIT_DURATION = _gauge("recon_audit_duration_seconds", _PROJECT, "How long the last audit took.")
AUDITED = _gauge("recon_pipeline_audit_timestamp_seconds", _PIPELINE, "When the pipeline was audited last.")
ANSWER = _gauge(
    "recon_pipeline_answer",
    (*_PIPELINE, "answer"),
    "1 for the answer of the last audit: complete, not complete, or could not be proved; 0 for the others.",
)
CHECKS = _gauge(
    "recon_pipeline_checks", (*_PIPELINE, "status"), "Checks of the pipeline by the status that they ended with."
)
FINDINGS = _gauge(
    "recon_pipeline_open_findings",
    (*_PIPELINE, "level"),
    "Findings that are open: fail refutes, unproved could not be decided, warn warns.",
)
BATCHES = _gauge(
    "recon_sink_micro_batches",
    (*_SINK, "verdict"),
    "Micro-batches that the last audit judged, by its verdict.",
)
KEPT = _gauge(
    "recon_sink_guarantee_kept",
    _SINK,
    "1 where the sink kept its guarantee, 0 where not; absent where that is not known.",
)
OFFSETS = _gauge(
    "recon_sink_open_offsets",
    (*_SINK, "harm"),
    "Offsets of open incidents by what became of them; sink is empty where it is about the whole pipeline. A harm that "
    "the audit could not exclude is absent.",
)
LAG = _gauge(
    "recon_sink_lag_offsets",
    (*_SINK, "topic"),
    "Offsets of the topic that no micro-batch has read; absent where no broker answered.",
)
COMPLETE_AT = _gauge(
    "recon_pipeline_complete_timestamp_seconds", _PIPELINE, "When an audit last answered that the pipeline is complete."
)
PROVED_UNTIL = _gauge(
    "recon_sink_proved_commit_timestamp_seconds",
    _SINK,
    "When the newest micro-batch was committed up to which every offset is proved to have arrived.",
)
HOOK_BATCHES = _counter("recon_hook_micro_batches_total", "Micro-batches that were written and entered in the ledger.")
HOOK_REPLAYS = _counter("recon_hook_replays_total", "Micro-batches that an earlier attempt had already committed.")
HOOK_FAILURES = _counter("recon_hook_failures_total", "Micro-batches that ended by an error.")
HOOK_READ = _counter("recon_hook_rows_read_total", "Rows read from Kafka, where they were counted.")
HOOK_WRITTEN = _counter("recon_hook_rows_written_total", "Rows that the sink took in, where it says so.")
HOOK_BYTES = _counter(
    "recon_hook_bytes_written_total", "Bytes that writes added to the sink, where it says so (Delta)."
)
HOOK_QUARANTINED = _counter("recon_hook_rows_quarantined_total", "Rows put into quarantine instead of the sink.")
HOOK_SECONDS = _counter("recon_hook_duration_seconds_total", "Time that micro-batches took in the hook.")
HOOK_OVERHEAD = _counter(
    "recon_hook_overhead_seconds_total", "Time that micro-batches took in the hook outside the sink's own write."
)
HOOK_COMMIT = _gauge("recon_hook_commit_timestamp_seconds", _SINK, "When the newest micro-batch was committed.")


class Sample(NamedTuple):
    """A value of a metric: what a gauge shows now, what a counter grew by."""

    metric: Metric
    labels: Mapping[str, str]
    value: float


class Group(NamedTuple):
    """Samples that are written together: (label, value) pairs that all of them have, and what tells them."""

    told_by: Literal["audit", "proof", "hook"]
    labels: tuple[tuple[str, str], ...]

    @property
    def is_replaced(self) -> bool:
        """Whether an update has all gauges of the group, so that those it does not have are not known any more."""
        return self.told_by != "hook"


class Update(NamedTuple):
    """New samples of a group."""

    group: Group
    samples: tuple[Sample, ...]


# Harms, and how a label says them.
_HARMS: Mapping[Harm, str] = {
    "lost": "lost",
    "missing": "missing",
    "removed": "removed",
    "twice": "duplicated",
    "other": "other",
    "undecided": "unproved",
}


def updates(event: Event) -> tuple[Update, ...]:
    """What an event changes.

    Of a pipeline of which an audit evaluated some checks only, or a period again, nothing is said.
    """
    if isinstance(event, AuditFinished):
        return tuple(_of_audit(event))
    if isinstance(event, AuditFailed):
        return (_of_run(event, event.at, (event.at - event.started_at).total_seconds(), success=False),)
    if isinstance(event, MicroBatchWritten):
        return (_of_batch(event),)
    if isinstance(event, MicroBatchFailed):
        where = {"project": event.project, "pipeline": event.pipeline, "sink": event.sink}
        return (Update(_group("hook", where), (Sample(HOOK_FAILURES, where, 1),)),)
    return ()


def _of_audit(event: AuditFinished) -> Iterator[Update]:
    run = event.run
    yield _of_run(event, run.generated_at, run.elapsed_time, success=True)
    if not (event.goes_on and event.kept):
        return
    for facts in run.pipelines:
        if facts.name in event.partial:
            continue
        where = {"project": event.project, "pipeline": facts.name}
        results = [result for result in run.results if result.pipeline == facts.name]
        yield Update(_group("audit", where), tuple(_of_pipeline(where, run.generated_at, facts, results)))
        if facts.answer == "complete":
            yield Update(_group("proof", where), (Sample(COMPLETE_AT, where, run.generated_at.timestamp()),))
            for sink in facts.sinks:
                if sink.last_commit is not None:
                    of_sink = {**where, "sink": sink.name}
                    proved = Sample(PROVED_UNTIL, of_sink, sink.last_commit.timestamp())
                    yield Update(_group("proof", of_sink), (proved,))


def _of_run(event: AuditFinished | AuditFailed, ended: datetime, seconds: float, *, success: bool) -> Update:
    where = {"project": event.project}
    samples = (
        Sample(AUDIT_SUCCESS, where, int(success)),
        Sample(AUDIT_END, where, ended.timestamp()),
        Sample(AUDIT_DURATION, where, seconds),
    )
    return Update(_group("audit", where), samples)


def _of_pipeline(
    where: Mapping[str, str], at: datetime, facts: PipelineFacts, results: Iterable[CheckResult]
) -> Iterator[Sample]:
    results = list(results)
    yield Sample(AUDITED, where, at.timestamp())
    for answer in get_args(Answer):
        yield Sample(ANSWER, {**where, "answer": answer}, int(facts.answer == answer))
    statuses = Counter(result.status for result in results)
    for status in ("pass", "warn", "fail", "error", "skipped"):
        yield Sample(CHECKS, {**where, "status": status}, statuses[status])
    levels = Counter(finding.level for result in results for finding in result.findings)
    for level in (Level.FAIL, Level.UNPROVED, Level.WARN):
        yield Sample(FINDINGS, {**where, "level": str(level)}, levels[level])
    yield from _open_offsets(where, facts)
    for sink in facts.sinks:
        yield from _of_sink({**where, "sink": sink.name}, sink)


def _open_offsets(where: Mapping[str, str], facts: PipelineFacts) -> Iterator[Sample]:
    """The offsets of open incidents. None is only said to be lost, or doubled, where nothing remained undecided."""
    offsets: Counter[tuple[str, Harm]] = Counter()
    for incident in facts.incidents:
        if incident.state == "open":
            for count in incident.counts:
                offsets[incident.sink or "", count.harm] += count.offsets
    sinks = dict.fromkeys([*(sink.name for sink in facts.sinks), *(sink for sink, _ in offsets)])
    known = facts.answer != "could not be proved"
    for sink in sinks:
        for harm, label in _HARMS.items():
            if known or offsets[sink, harm]:
                yield Sample(OFFSETS, {**where, "sink": sink, "harm": label}, offsets[sink, harm])


def _of_sink(where: Mapping[str, str], sink: SinkFacts) -> Iterator[Sample]:
    verdicts = {"proved": sink.batches_proved, "refuted": sink.batches_refuted, "unproved": sink.batches_unproved}
    for verdict, count in verdicts.items():
        yield Sample(BATCHES, {**where, "verdict": verdict}, count)
    if sink.guarantee_kept is not None:
        yield Sample(KEPT, where, int(sink.guarantee_kept))
    lags: dict[str, list[int | None]] = defaultdict(list)
    for partition in sink.partitions:
        lags[partition.topic].append(partition.lag)
    for topic, of_topic in lags.items():
        known = [lag for lag in of_topic if lag is not None]
        if len(known) == len(of_topic):
            yield Sample(LAG, {**where, "topic": topic}, sum(known))


def _of_batch(event: MicroBatchWritten) -> Update:
    entry = event.entry
    where = {"project": event.project, "pipeline": entry.pipeline, "sink": entry.sink}
    replayed = entry.status == "already_committed"
    # The attempt that wrote a replayed micro-batch has counted its rows.
    counted = (
        {}
        if replayed
        else {
            HOOK_READ: entry.rows_read,
            HOOK_WRITTEN: entry.rows_written,
            HOOK_BYTES: event.bytes_written,
            HOOK_QUARANTINED: entry.rows_quarantined,
        }
    )
    samples = [Sample(HOOK_REPLAYS if replayed else HOOK_BATCHES, where, 1)]
    samples += [Sample(metric, where, value) for metric, value in counted.items() if value is not None]
    if event.seconds is not None:
        samples.append(Sample(HOOK_SECONDS, where, event.seconds))
        if event.write_seconds is not None:
            samples.append(Sample(HOOK_OVERHEAD, where, max(0.0, event.seconds - event.write_seconds)))
    samples.append(Sample(HOOK_COMMIT, where, entry.committed_at.timestamp()))
    return Update(_group("hook", where), tuple(samples))


def _group(told_by: Literal["audit", "proof", "hook"], labels: Mapping[str, str]) -> Group:
    return Group(told_by, tuple(labels.items()))
