"""The content of a compliance report: figures and facts, which recon.audits collects and recon.reports draws.

Three-valued like a run: a sink's period is complete, not complete, or could not be proved.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Literal

from recon.model.books import BookLine
from recon.model.controls import UNKNOWN, ControlRecord, FrameworkRecord
from recon.model.incident import HarmCount
from recon.model.result import NOT_ANCHORED, Answer, Code, Finding, Level


@dataclass(frozen=True, kw_only=True)
class ChainHeads:
    """The hash chain of one sink's ledger over the period.

    `first` and `last` are entry hashes, None when there is no entry. `verified` is True when every entry's hash was
    computed again and every link is right, False when one is not, None when it was not checked. `reason` is why, for
    the last two. `signed` says which head of the chain's tree was signed last, and where heads are published.
    """

    first: str | None
    last: str | None
    entries: int
    verified: bool | None
    reason: str = ""
    signed: str = NOT_ANCHORED


@dataclass(frozen=True, kw_only=True)
class EpochRecord:
    """One epoch of a checkpoint as far as it lies in the period; times are UTC."""

    epoch: int
    query_id: str
    first_batch_id: int
    last_batch_id: int
    first_commit: datetime
    last_commit: datetime


@dataclass(frozen=True, kw_only=True)
class ExceptionRecord:
    """A finding of the period, listed once for all audits that reported it.

    `audits` counts the audits that reported it; `open` is True when the last audit of its pipeline still did.
    `accepted` says who accepted it, when and why; "" where nobody did. `id` is that of `recon findings`, "" for what
    is not carried from audit to audit. `checks` reported it; `owner` answers for it, "" where recon.yml names none.
    `closed_at` is None while it is open, `closed` says how it ended.
    """

    finding: Finding
    first_seen: datetime
    last_seen: datetime
    audits: int
    open: bool
    accepted: str = ""
    id: str = ""
    checks: tuple[str, ...] = ()
    owner: str = ""
    closed_at: datetime | None = None
    closed: str = ""


IncidentState = Literal["open", "accepted", "closed"]


@dataclass(frozen=True, kw_only=True)
class IncidentRecord:
    """The exceptions of one cause together.

    Attributes:
        id: of the first of its findings that `recon findings` lists; "" where it lists none.
        pipeline: None where it is about the whole project.
        sink: None where it is about the whole pipeline.
        cause: a sentence.
        codes: the worst first.
        state: "open" while one of its exceptions is.
        owner: "" where recon.yml names none.
        detected_at: when an audit first reported it.
        last_seen: when an audit reported it last.
        closed_at: None while it is open.
        ended: who accepted it and why, or how it was closed.
        exceptions: how many findings it is.
        counts: how many offsets or rows are lost, missing, removed or doubled; empty where findings count none.
    """

    id: str
    pipeline: str | None
    sink: str | None
    cause: str
    codes: tuple[Code, ...]
    state: IncidentState
    owner: str
    detected_at: datetime
    last_seen: datetime
    closed_at: datetime | None
    ended: str
    exceptions: int
    counts: tuple[HarmCount, ...] = ()

    @property
    def level(self) -> Level:
        """The worst of its findings' levels."""
        return min((code.level for code in self.codes), key=lambda level: level.rank)


@dataclass(frozen=True, kw_only=True)
class ActionRecord:
    """What somebody did about rows or findings.

    `by` is "" where it is not recorded: by an older version, in an entry that was restored from a database's own
    record, or for a restored micro-batch, which nobody decided. `reason` is "" where none was given.

    `kind` is "accepted" (a finding), "released" (rows from quarantine), "repaired" (missing offsets, read again),
    "removed" (doubled rows) or "restored" (a ledger entry, from the sink's own record).
    """

    kind: Literal["accepted", "released", "repaired", "removed", "restored"]
    at: datetime
    pipeline: str
    sink: str
    what: str
    by: str = ""
    reason: str = ""

    @property
    def who(self) -> str:
        """Who did it, in words."""
        return self.by or "not recorded"

    @property
    def why(self) -> str:
        """Why, in words."""
        return self.reason or ("no reason given" if self.by else "not recorded")


@dataclass(frozen=True, kw_only=True)
class ConfigVersion:
    """A version of recon.yml that audits of the period ran with; `config_hash` is None where they did not store it."""

    config_hash: str | None
    first_used: datetime
    last_used: datetime
    audits: int


@dataclass(frozen=True, kw_only=True)
class ChangeRecord:
    """A change to a sink's rows, or to its table, that the stream did not make, as audits reported it."""

    pipeline: str
    sink: str | None
    code: Code
    what: str
    reported_at: datetime
    versions: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class SinkCompliance:
    """One sink's period. Proved, refuted and unproved add up to the total, for batches and for ranges.

    A batch that no audit of the period judged is unproved. What was accepted, or repaired since, refutes no batch and
    leaves none unproved, as in an audit's answer. `ranges` counts (batch, topic, partition); `offsets` sums their
    widths, None of a Delta table that is read. `rows_written` is None when the commits have no count, `rows_filtered`
    (by the transform) and `rows_quarantined` when a micro-batch did not count them.
    `days_without_audit` are those from the ledger's first entry on that no audit of the pipeline looked at: nobody
    knows what Kafka held then and the stream did not read. Of `days_partly_audited` audits looked at a part.
    """

    pipeline: str
    sink: str
    kind: str
    target: str
    guarantee: str
    topics: tuple[str, ...]
    batches: int
    batches_proved: int
    batches_refuted: int
    batches_unproved: int
    ranges: int
    ranges_proved: int
    ranges_refuted: int
    ranges_unproved: int
    offsets: int | None
    rows_written: int | None
    rows_filtered: int | None
    rows_quarantined: int | None
    days_without_audit: tuple[date, ...] = ()
    days_partly_audited: tuple[date, ...] = ()
    epochs: tuple[EpochRecord, ...]
    chain: ChainHeads


@dataclass(frozen=True, kw_only=True)
class AuditRecord:
    """One audit of the period: when it ran, which period it covered, its outcome. The counts are of checks.

    `by`, `config_hash` and `options` are None where the version that ran it did not store them. `options` are those
    that were given, in words. `checks` ran, as names with how often; `partial` says why it is a partial audit, "" for a
    whole one. `recon_version` is that of the audit.
    """

    invocation_id: str
    generated_at: datetime
    period_from: datetime | None
    period_to: datetime
    outcome: Answer
    passed: int
    warned: int
    failed: int
    errored: int
    skipped: int
    partial: str = ""
    by: str | None = None
    config_hash: str | None = None
    options: str | None = None
    checks: tuple[tuple[str, int], ...] = ()
    pipelines: tuple[str, ...] = ()
    recon_version: str = ""


@dataclass(frozen=True, kw_only=True)
class Signature:
    """A line for a signature; `name` is printed where it is given."""

    role: str
    name: str = ""


METHOD = (
    "Every micro-batch that a pipeline writes leaves three traces that do not depend on each other: the "
    "checkpoint of the stream, which plans the exact range of Kafka offsets to read; the commit in the target "
    "table, which carries those ranges and the number of rows; and an entry in the ledger, sealed by a SHA-256 "
    "hash over its content and over the hash of the entry before it.",
    "An audit compares these traces with each other and with Kafka's own account of what was there to read. "
    "Its answer has three values. Proved: the traces exist, agree on ranges and rows, and continue the batch "
    "before without a gap and without an overlap. Refuted: a trace shows that records are missing, doubled or "
    "changed. Could not be proved: a trace that is needed was missing or could not be read; this is never "
    "counted as proved.",
    "A batch that no audit of the period has judged counts as not provable, whatever its traces may say.",
)

LIMITS = (
    "The report speaks of records that reached Kafka. What a producer never sent, or Kafka never "
    "acknowledged, cannot be detected.",
    "A range of offsets is not a number of rows: transaction markers, aborted transactions and compaction take "
    "offsets without leaving rows.",
    "The hash chain shows that entries were changed or removed after they were written. It does not show who "
    "did so, and whoever can write the whole ledger can write it anew with right hashes, except for entries whose "
    "hash, or a signed head over them, has been noted elsewhere, for example on this page.",
    "The content of the rows is examined only by the data checks that the project has configured.",
)


@dataclass(frozen=True, kw_only=True)
class ComplianceReport:
    """The report on one project; the period is half-open, [period_from, period_to), in UTC.

    `days_without_audit` are days up to today on which a sink's ledger had begun. Of `days_partly_audited` audits looked
    at a part. `days_to_come` counts those after today, of which nothing is said. `controls` are what audits showed day
    by day, `frameworks` the same by statements of standards. `incidents` are the exceptions by cause, open ones first.
    `unproved` are sentences: what could not be proved, and what no audit, or no witness, ever saw. `books` are what
    each sink's pipeline read and what became of it, by day and hop.
    """

    project: str
    recon_version: str
    generated_at: datetime
    period_from: datetime
    period_to: datetime
    sinks: tuple[SinkCompliance, ...]
    exceptions: tuple[ExceptionRecord, ...]
    audits: tuple[AuditRecord, ...]
    days_without_audit: tuple[date, ...]
    days_partly_audited: tuple[date, ...] = ()
    days_to_come: int = 0
    controls: tuple[ControlRecord, ...] = ()
    frameworks: tuple[FrameworkRecord, ...] = ()
    incidents: tuple[IncidentRecord, ...] = ()
    actions: tuple[ActionRecord, ...] = ()
    config_versions: tuple[ConfigVersion, ...] = ()
    changes: tuple[ChangeRecord, ...] = ()
    books: tuple[BookLine, ...] = ()
    unproved: tuple[str, ...] = ()
    method: tuple[str, ...] = METHOD
    limits: tuple[str, ...] = LIMITS
    signatures: tuple[Signature, ...] = (Signature(role="Prepared by"), Signature(role="Reviewed by"))

    @property
    def last_day(self) -> date:
        """The last day of the period."""
        return (self.period_to - timedelta(microseconds=1)).date()

    def exceptions_of(self, sink: SinkCompliance) -> tuple[ExceptionRecord, ...]:
        """Exceptions that concern a sink: its own, and those of its pipeline or of the whole project."""
        return tuple(
            e
            for e in self.exceptions
            if e.finding.pipeline in (None, sink.pipeline) and e.finding.sink in (None, sink.sink)
        )

    def accepted_of(self, *sinks: SinkCompliance) -> int:
        """How many accepted findings the sinks' answers leave out."""
        return len({e.id for sink in sinks for e in self.exceptions_of(sink) if e.accepted})

    def answer_of(self, sink: SinkCompliance) -> Answer:
        """The sink's answer for the period. Refuted outranks unproved; unproved outranks proved.

        A failing exception that is no longer open does not count by itself: if rows are still missing, the batch is
        refuted in the figures. A day on which audits did not show completeness is one that nothing is known of, also
        where no micro-batch was written on it.
        """
        levels = {e.finding.level for e in self.exceptions_of(sink) if e.open}
        if sink.batches_refuted or sink.ranges_refuted or sink.chain.verified is False or Level.FAIL in levels:
            return "not complete"
        if (
            sink.batches_unproved
            or sink.ranges_unproved
            or sink.days_without_audit
            or self.days_not_shown(sink)
            or sink.chain.verified is None
            or Level.UNPROVED in levels
            or not self.audits
        ):
            return "could not be proved"
        return "complete"

    def days_not_shown(self, sink: SinkCompliance) -> int:
        """On how many days of the period audits did not show the sink's completeness, or of a part of the day only."""
        return sum(
            days.count(state)
            for state in UNKNOWN
            for control in self.controls
            if control.id == "completeness"
            for days in control.sinks
            if (days.pipeline, days.sink) == (sink.pipeline, sink.sink)
        )

    @property
    def answer(self) -> Answer:
        """The worst of the sinks' answers; a report without a sink proves nothing."""
        answers = {self.answer_of(sink) for sink in self.sinks}
        if "not complete" in answers:
            return "not complete"
        return "complete" if answers == {"complete"} else "could not be proved"
