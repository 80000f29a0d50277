"""The content of a compliance report: figures and facts, which recon.audit collects and recon.reports draws.

Three-valued like a run: a sink's period is complete, not complete, or could not be proved.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, timedelta

from recon.model.result import NOT_ANCHORED, Answer, Finding, Level


@dataclass(frozen=True, kw_only=True)
class ChainHeads:
    """The hash chain of one sink's ledger over the period.

    `first` and `last` are entry hashes, None when there is no entry. `verified` is True when every entry's
    hash was computed again and every link is right, False when one is not, None when it was not checked;
    `reason` is the reason for the last two. `signed` says which head of the chain's tree was signed last, and where
    heads are published.
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
    `accepted` says who accepted it, when and why; "" where nobody did.
    """

    finding: Finding
    first_seen: datetime
    last_seen: datetime
    audits: int
    open: bool
    accepted: str = ""


@dataclass(frozen=True, kw_only=True)
class SinkCompliance:
    """One sink's period. Proved, refuted and unproved add up to the total, for batches and for ranges.

    A batch that no audit of the period judged is unproved. `ranges` counts (batch, topic, partition);
    `offsets` sums their widths. `rows_written` is None when the commits have no count, `rows_filtered` (by the
    transform) and `rows_quarantined` when a micro-batch did not count them.
    `days_without_audit` are those that no audit of the pipeline looked at: what Kafka held then and the stream did not
    read, nobody knows.
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
    offsets: int
    rows_written: int | None
    rows_filtered: int | None
    rows_quarantined: int | None
    days_without_audit: tuple[date, ...] = ()
    epochs: tuple[EpochRecord, ...]
    chain: ChainHeads


@dataclass(frozen=True, kw_only=True)
class AuditRecord:
    """One audit of the period: when it ran, which period it covered, its outcome. The counts are of checks."""

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

    `days_without_audit` are days that are over, or today; `days_to_come` counts those after today, of which nothing is
    said.
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
    days_to_come: int = 0
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

    def answer_of(self, sink: SinkCompliance) -> Answer:
        """The sink's answer for the period. Refuted outranks unproved; unproved outranks proved.

        A failing exception that is no longer open does not count by itself: if rows are still missing, the batch is
        refuted in the figures.
        """
        levels = {e.finding.level for e in self.exceptions_of(sink) if e.open}
        if sink.batches_refuted or sink.ranges_refuted or sink.chain.verified is False or Level.FAIL in levels:
            return "not complete"
        if (
            sink.batches_unproved
            or sink.ranges_unproved
            or sink.days_without_audit
            or sink.chain.verified is None
            or Level.UNPROVED in levels
            or not self.audits
        ):
            return "could not be proved"
        return "complete"

    @property
    def answer(self) -> Answer:
        """The worst of the sinks' answers; a report without a sink proves nothing."""
        answers = {self.answer_of(sink) for sink in self.sinks}
        if "not complete" in answers:
            return "not complete"
        return "complete" if answers == {"complete"} else "could not be proved"
