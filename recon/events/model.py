"""The events: frozen values of what happened, and their JSON.

`to_dict` is the form that leaves the process. It gains keys within a schema version; a key that is renamed, removed, or
means something else makes a new version. Some events also carry the value that they are made of (`run`, `entry`,
`incident`), for consumers in this process.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar, Literal

from recon.base.clock import utc_now
from recon.model import Answer, Incident, LedgerEntry, RunResult
from recon.model.result import plain

SCHEMA_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something that happened. `at` is when, UTC; `id` is of this event alone."""

    project: str
    at: datetime = field(default_factory=utc_now)
    id: str = field(default_factory=lambda: uuid.uuid4().hex)

    # Fields that are for consumers in this process, and are not in the JSON as they are.
    _in_process: ClassVar[frozenset[str]] = frozenset()

    @property
    def kind(self) -> str:
        """What happened, in two words: `audit.finished`."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """The JSON of the event."""
        own = {name: value for name, value in vars(self).items() if name not in self._in_process}
        return {"schema_version": SCHEMA_VERSION, "kind": self.kind, **plain(own), **plain(self._more())}

    def _more(self) -> Mapping[str, Any]:
        """Keys of the JSON that are no fields."""
        return {}


# -- audits -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class AuditStarted(Event):
    """An audit begins to evaluate its checks."""

    invocation_id: str
    checks: int
    pipelines: tuple[str, ...]

    @property
    def kind(self) -> str:
        """`audit.started`."""
        return "audit.started"


@dataclass(frozen=True, kw_only=True)
class PipelineAnswer:
    """What an audit answers of one pipeline, and why."""

    pipeline: str
    answer: Answer
    because: str


@dataclass(frozen=True, kw_only=True)
class AuditFinished(Event):
    """An audit ended with a result.

    `kept` is whether it stored its results, `goes_on` whether it went on where the last one stopped: another one
    examined a period again. `partial` are the pipelines of which it evaluated some checks only. `run` is the whole
    result, `evaluated` are the unique ids of checks that saw all they needed.
    """

    invocation_id: str
    started_at: datetime
    kept: bool
    goes_on: bool
    partial: tuple[str, ...] = ()
    run: RunResult = field(repr=False)
    evaluated: frozenset[str] = field(default=frozenset(), repr=False)

    _in_process: ClassVar[frozenset[str]] = frozenset({"run", "evaluated"})

    @property
    def kind(self) -> str:
        """`audit.finished`."""
        return "audit.finished"

    @property
    def answers(self) -> tuple[PipelineAnswer, ...]:
        """The answer of each pipeline that was audited."""
        return tuple(PipelineAnswer(pipeline=p.name, answer=p.answer, because=p.because) for p in self.run.pipelines)

    def _more(self) -> Mapping[str, Any]:
        run = self.run
        return {
            "recon_version": run.recon_version,
            "period_from": run.period_from,
            "period_to": run.period_to,
            "elapsed_time": run.elapsed_time,
            "exit_code": run.exit_code,
            "counts": run.counts(),
            "answers": self.answers,
            "notes": run.notes,
        }


@dataclass(frozen=True, kw_only=True)
class AuditFailed(Event):
    """An audit ended by an error, and has no result."""

    invocation_id: str
    pipelines: tuple[str, ...]
    started_at: datetime
    error: str
    message: str

    @property
    def kind(self) -> str:
        """`audit.failed`."""
        return "audit.failed"


# -- findings ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class IncidentChanged(Event):
    """What an audit says of one incident: the findings of one cause together."""

    change: Literal["opened", "still_open", "accepted", "repaired"]
    invocation_id: str
    pipeline: str
    incident: Incident = field(repr=False)

    _in_process: ClassVar[frozenset[str]] = frozenset({"incident", "change"})

    @property
    def kind(self) -> str:
        """`incident.opened`, `incident.still_open`, `incident.accepted` or `incident.repaired`."""
        return f"incident.{self.change}"

    def _more(self) -> Mapping[str, Any]:
        incident = self.incident
        return {
            "sink": incident.sink,
            "incident": incident.id,
            "cause": incident.cause,
            "codes": incident.codes,
            "checks": incident.checks,
            "findings": incident.findings,
            "counts": incident.counts,
            "first_seen": incident.first_seen,
            "accepted": incident.accepted,
            "steps": incident.steps,
            "pattern": incident.pattern,
        }


@dataclass(frozen=True, kw_only=True)
class FindingChanged(Event):
    """A finding that was open is not any more.

    Somebody accepted it (`by`, `reason`), or it recovered. Then the check that reported it was evaluated again and does
    not report it, and no witness shows a repair.
    """

    change: Literal["accepted", "recovered"]
    pipeline: str
    sink: str | None
    finding: str
    code: str
    check: str
    message: str
    first_seen: datetime
    by: str = ""
    reason: str = ""

    _in_process: ClassVar[frozenset[str]] = frozenset({"change"})

    @property
    def kind(self) -> str:
        """`finding.accepted` or `finding.recovered`."""
        return f"finding.{self.change}"


# -- the hook ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class MicroBatchWritten(Event):
    """A micro-batch is in the sink and in the ledger.

    It is `micro_batch.replayed` where an earlier attempt had written it already. `entry` is that of the ledger.
    `seconds` is how long the hook took; `write_seconds` is Spark's part of it, to compute the rows and write them. None
    where that was not measured. `bytes_written` is what the write added to the sink, where it says so.
    """

    seconds: float | None = None
    write_seconds: float | None = None
    bytes_written: int | None = None
    entry: LedgerEntry = field(repr=False)

    _in_process: ClassVar[frozenset[str]] = frozenset({"entry"})

    @property
    def kind(self) -> str:
        """`micro_batch.written` or `micro_batch.replayed`."""
        return "micro_batch.replayed" if self.entry.status == "already_committed" else "micro_batch.written"

    def _more(self) -> Mapping[str, Any]:
        entry = self.entry
        names = (
            *("pipeline", "sink", "sink_kind", "target", "guarantee", "query_id", "run_id", "epoch", "batch_id"),
            *("attempt", "rows_read", "rows_written", "rows_quarantined", "rows_filtered", "sink_version"),
            *("started_at", "committed_at"),
        )
        return {
            **{name: getattr(entry, name) for name in names},
            "offsets": [
                {
                    "topic": span.topic,
                    "topic_id": span.topic_id,
                    "partition": span.partition,
                    "start_offset": span.start_offset,
                    "end_offset": span.end_offset,
                }
                for span in entry.offsets
            ],
        }


@dataclass(frozen=True, kw_only=True)
class MicroBatchFailed(Event):
    """A micro-batch ended by an error. `error` is its class, `message` its first line."""

    pipeline: str
    sink: str
    batch_id: int
    started_at: datetime
    error: str
    message: str

    @property
    def kind(self) -> str:
        """`micro_batch.failed`."""
        return "micro_batch.failed"


# -- streams, as the listener sees them -------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _StreamEvent(Event):
    pipeline: str
    query_id: str
    run_id: str


@dataclass(frozen=True, kw_only=True)
class StreamStarted(_StreamEvent):
    """A query of a pipeline started."""

    @property
    def kind(self) -> str:
        """`stream.started`."""
        return "stream.started"


@dataclass(frozen=True, kw_only=True)
class StreamProgressed(_StreamEvent):
    """A query finished a micro-batch; `progress` is Spark's JSON of it."""

    batch_id: int
    progress: Mapping[str, Any] = field(repr=False)

    _in_process: ClassVar[frozenset[str]] = frozenset({"progress"})

    @property
    def kind(self) -> str:
        """`stream.progressed`."""
        return "stream.progressed"

    def _more(self) -> Mapping[str, Any]:
        return {"rows": self.progress.get("numInputRows"), "duration_ms": self.progress.get("durationMs")}


@dataclass(frozen=True, kw_only=True)
class StreamTerminated(_StreamEvent):
    """A query ended: by an error, whose first lines are in `error`, or because it was stopped ("")."""

    error: str = ""

    @property
    def kind(self) -> str:
        """`stream.terminated`."""
        return "stream.terminated"


@dataclass(frozen=True, kw_only=True)
class StreamStalled(_StreamEvent):
    """A query that runs has reported nothing since `last_seen`: no micro-batch, and not that it waits for records."""

    last_seen: datetime

    @property
    def kind(self) -> str:
        """`stream.stalled`."""
        return "stream.stalled"


@dataclass(frozen=True, kw_only=True)
class StreamResumed(_StreamEvent):
    """A query that had stalled reports again."""

    stalled_since: datetime

    @property
    def kind(self) -> str:
        """`stream.resumed`."""
        return "stream.resumed"
