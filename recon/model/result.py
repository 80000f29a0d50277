"""Findings, verdicts and the result of a run: a report is drawn from these alone.

Three-valued in spirit: proved, refuted, or could not be proved. *Unproved* becomes status `error`
or `skipped`; it never becomes `pass`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from typing import Any, Literal, get_args

from recon.base.text import plural
from recon.model.books import BookLine
from recon.model.incident import Harm, Incident, OffsetSums
from recon.model.offsets import Span
from recon.model.past import PastAudits
from recon.model.subject import Subject


class Level(StrEnum):
    """How severe a finding is, the worst first. `INFO` explains; `UNPROVED` means that no witness could decide."""

    FAIL = "fail"
    UNPROVED = "unproved"
    WARN = "warn"
    INFO = "info"

    @property
    def rank(self) -> int:
        """Its place, 0 for the worst."""
        return list(Level).index(self)


class Code(StrEnum):
    """The verdicts of the fault catalogue, each with its severity."""

    level: Level

    def __new__(cls, name: str, level: Level = Level.FAIL) -> Code:
        """A code with its level; the default is for `Code("GAP")`, which looks one up."""
        code = str.__new__(cls, name)
        code._value_ = name
        code.level = level
        return code

    EMPTY = "EMPTY", Level.INFO
    CLOSED = "CLOSED", Level.INFO
    INFLIGHT = "INFLIGHT", Level.INFO
    EXPLAINED = "EXPLAINED", Level.INFO  # holes in the offsets that control records, aborts or compaction explain
    REPLAYED = "REPLAYED", Level.INFO  # a micro-batch was attempted again and written once
    NEW_EPOCH = "NEW_EPOCH", Level.INFO
    REPAIRED = "REPAIRED", Level.INFO  # what an earlier audit refuted, and is in order now
    ACCEPTED = "ACCEPTED", Level.INFO  # a refutation, or an open question, that somebody accepted
    ERASED = "ERASED", Level.INFO  # rows of a person that somebody removed from what recon keeps
    DELETED = "DELETED", Level.INFO  # rows of the sink that somebody deleted as recon.yml declares
    UNWITNESSED = "UNWITNESSED", Level.WARN  # micro-batches before the ledger's first entry: no proof speaks of them
    STALE_CHECKPOINT = "STALE_CHECKPOINT", Level.WARN  # an older copy: it ends before the ledger does
    LEDGER_MISSING = "LEDGER_MISSING", Level.WARN
    REBUILT = "REBUILT", Level.INFO  # an entry that was restored from the sink's own record
    METRIC_UNRELIABLE = "METRIC_UNRELIABLE", Level.WARN
    ATTESTED_ONLY = "ATTESTED_ONLY", Level.WARN
    UNSTAMPED = "UNSTAMPED", Level.WARN  # a data-changing commit without a ledger entry and without recon's stamp
    REPEATED = "REPEATED", Level.WARN  # rows that are more than once in a sink that only claims at-least-once
    UNUSUAL = "UNUSUAL", Level.WARN  # a figure far from the table's own history
    LAG = "LAG", Level.WARN  # unread records older than warn_after / error_after
    TOPIC_ID_UNKNOWN = "TOPIC_ID_UNKNOWN", Level.WARN
    RETENTION_NEAR = "RETENTION_NEAR", Level.WARN  # evidence will be cleaned up before the next audit
    VIOLATION_WARN = "VIOLATION_WARN", Level.WARN  # the same of a test that only warns; compliance reports only
    GAP = "GAP", Level.FAIL
    LOSS = "LOSS", Level.FAIL
    LOSS_RETENTION = "LOSS_RETENTION", Level.FAIL
    OVERLAP = "OVERLAP", Level.FAIL
    DUPLICATE = "DUPLICATE", Level.FAIL
    PARTIAL = "PARTIAL", Level.FAIL
    PHANTOM_ROWS = "PHANTOM_ROWS", Level.FAIL
    RECREATED = "RECREATED", Level.FAIL
    STALLED = "STALLED", Level.FAIL
    LOSS_AHEAD = "LOSS_AHEAD", Level.FAIL  # Kafka will delete unread records within the agreed time
    LEDGER_ORPHAN = "LEDGER_ORPHAN", Level.FAIL
    SKIPPED = "SKIPPED", Level.FAIL
    MUTATED = "MUTATED", Level.FAIL
    TAMPERED = "TAMPERED", Level.FAIL
    NONDETERMINISTIC = "NONDETERMINISTIC", Level.FAIL
    VIOLATION = "VIOLATION", Level.FAIL  # rows that violate a data test; used by compliance reports only
    INCONCLUSIVE = "INCONCLUSIVE", Level.UNPROVED


_GONE_FROM_KAFKA = frozenset({Code.LOSS, Code.LOSS_RETENTION})
_NOT_WRITTEN = frozenset({Code.GAP, Code.SKIPPED, Code.PARTIAL, Code.LEDGER_ORPHAN})
# What a finding says happened to a range: two checks may name one loss differently, and so does one check after
# Kafka deleted the records.
LOST = _GONE_FROM_KAFKA | {Code.GAP, Code.SKIPPED, Code.PARTIAL}
TWICE = frozenset({Code.DUPLICATE, Code.OVERLAP})

# The ages at the end of a message, as `OpenFinding.since` writes them.
_AGES = re.compile(
    r"(?: \(finding ([0-9a-f]{8}), open since the audit of [-0-9]{10} [:0-9]{8}Z; repair it, or decide with "
    r"`recon accept \1`\))+$"
)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One piece of evidence: what happened to which offsets of which micro-batch.

    Offsets are half-open, [start_offset, end_offset). None means that the finding does not concern that
    dimension (a RESTORE concerns no single partition). `topic_id` is Kafka's id of the topic: one that was deleted and
    created again has another. It is None, too, where the ledger does not know it, and in results that an older version
    stored.

    `rows` is how many rows or records are certainly lost or doubled, None where that is not known: offsets may be those
    of transaction markers. `changed_by` says of rows that were in the sink which versions of it may have changed or
    removed them: one of these did, () where the sink's record does not show which; None where it is about none such.

    `about` tells it from others where its code, offsets and micro-batch do not: a commit's version, a digest of exactly
    which rows. It is compared, and the message is not, which is for people: see `subject`. None in results that an
    older version stored; of these the message is compared.

    `undecidable` says of one that no witness decided that none is left: later audits say the same.
    """

    code: Code
    pipeline: str | None = None
    sink: str | None = None
    topic: str | None = None
    topic_id: str | None = None
    partition: int | None = None
    start_offset: int | None = None
    end_offset: int | None = None
    batch_id: int | None = None
    epoch: int | None = None
    message: str
    rows: int | None = None
    changed_by: tuple[int, ...] | None = None
    about: str | None = None
    undecidable: bool = False

    @property
    def level(self) -> Level:
        """The severity, which depends on the code alone."""
        return self.code.level

    @property
    def harm(self) -> Harm:
        """What became of the records."""
        if self.level is Level.UNPROVED:
            return "undecided"
        if self.changed_by is not None:
            return "removed"
        if self.code in _GONE_FROM_KAFKA:
            return "lost"
        return "missing" if self.code in _NOT_WRITTEN else "twice" if self.code in TWICE else "other"

    @property
    def span(self) -> Span | None:
        """The offsets it is about; None for none."""
        if self.start_offset is None or self.end_offset is None:
            return None
        return Span(self.start_offset, self.end_offset)

    @cached_property
    def subject(self) -> Subject:
        """What it is about: findings with the same subject are one."""
        return Subject(
            code=str(self.code),
            kind="lost" if self.code in LOST else "twice" if self.code in TWICE else str(self.code),
            pipeline=self.pipeline,
            sink=self.sink,
            topic=self.topic,
            topic_id=self.topic_id,
            partition=self.partition,
            span=self.span,
            epoch=self.epoch,
            batch_id=self.batch_id,
            about=self.about if self.about is not None else self._as_told(),
        )

    def _as_told(self) -> str:
        """The message of a finding that an older version stored, where nothing else tells it from others."""
        return "" if self.span is not None or self.batch_id is not None else self.as_said.message

    @property
    def as_said(self) -> Finding:
        """As its check said it, without the age that later audits add to its message."""
        message = _AGES.sub("", self.message)
        return self if message == self.message else replace(self, message=message)

    def as_dict(self) -> dict[str, Any]:
        """The keys of an item of `adapter_response.findings[]`."""
        changed_by = None if self.changed_by is None else list(self.changed_by)
        values = {column.name: getattr(self, column.name) for column in fields(self)}
        return {**values, "code": str(self.code), "changed_by": changed_by}


Status = Literal["pass", "warn", "fail", "error", "skipped"]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A check's answer, before severity is applied.

    Args:
        failures: failing units: rows or keys for a data check, failing findings for an evidence check.
        warnings: like `failures`, but units that only warn whatever the severity (a lag past warn_after).
        findings: the evidence, in any order.
        message: one sentence; may be empty when the check passed.
        unproved: why the check could not decide; forces status `error`.
        skipped: why the check was not evaluated (zero rows, --no-spark); forces status `skipped`.
        regardless: the failures count whatever `warn_if` and `error_if` say.
        samples: the first failing keys or rows, each a flat mapping column → value.
        evidence: figures and versions that the verdict is based on; JSON-serialisable.
    """

    failures: int = 0
    warnings: int = 0
    findings: tuple[Finding, ...] = ()
    message: str = ""
    unproved: str | None = None
    skipped: str | None = None
    regardless: bool = False
    samples: tuple[Mapping[str, Any], ...] = ()
    evidence: Mapping[str, Any] = field(default_factory=dict)

    @property
    def loses_records(self) -> bool:
        """Whether a finding says of records that they have no row, whoever took it, or cannot be read any more."""
        return any(finding.code in _GONE_FROM_KAFKA | _NOT_WRITTEN for finding in self.findings)

    @classmethod
    def counted(cls, failures: int, message: str, **evidence: Any) -> Verdict:
        """A number of failures; `message` is the sentence for when there are any."""
        return cls(failures=failures, message=message if failures else "", evidence=evidence)

    @classmethod
    def of_findings(cls, findings: Sequence[Finding], *, message: str = "", **evidence: Any) -> Verdict:
        """Counts findings by level; an UNPROVED one makes the whole verdict unproved unless something failed.

        FAIL outranks UNPROVED: a proved loss stays `fail` even if another range could not be probed; the unproved
        finding stays in the findings.
        """
        failing = [f for f in findings if f.level is Level.FAIL]
        warning = [f for f in findings if f.level is Level.WARN]
        unproved = [f for f in findings if f.level is Level.UNPROVED]
        worst = next(iter((*failing, *unproved, *warning)), None)
        return cls(
            failures=len(failing),
            warnings=len(warning),
            findings=tuple(findings),
            message=message or (worst.message if worst else ""),
            unproved=unproved[0].message if unproved and not failing else None,
            evidence=evidence,
        )


@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """One check's line in a run: a verdict with severity applied.

    `unique_id` is `test.<project>.<name>`; `name` is dbt-like (`unique_orders_order_id`); `check` is the kind
    (`unique`); `kind` is "evidence" or "data". Times are UTC; `execution_time` is in seconds.
    """

    unique_id: str
    name: str
    check: str
    kind: str
    status: Status
    failures: int | None
    message: str
    severity: str = "error"
    pipeline: str | None = None
    sink: str | None = None
    column: str | None = None
    tags: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    samples: tuple[Mapping[str, Any], ...] = ()
    evidence: Mapping[str, Any] = field(default_factory=dict)
    relation_name: str | None = None
    started_at: datetime | None = None
    completed_at: datetime | None = None
    execution_time: float = 0.0


# What a report says of a ledger whose heads nobody published.
NOT_ANCHORED = "not anchored outside"

# An address of pages about codes, with {code} in place of a code. Nothing in it ends a link of HTML or Markdown.
RUNBOOK_URL = re.compile(r"https?://[^\s\"'<>()\[\]\\`|{}]+(\{code\})[^\s\"'<>()\[\]\\`|{}]*")

Answer = Literal["complete", "not complete", "could not be proved"]

# Evidence checks of how a stream runs: whether its data arrived does not depend on them.
RUNNING = ("throughput", "lag_trend", "state_growth")


@dataclass(frozen=True, kw_only=True)
class CoverageCell:
    """One coloured rectangle in the coverage picture of a topic partition.

    Cells of a partition are ascending and do not overlap in time. Offsets are half-open.
    """

    from_time: datetime
    to_time: datetime
    start_offset: int
    end_offset: int
    state: Literal["covered", "gap", "overlap", "lost", "in flight"]


@dataclass(frozen=True, kw_only=True)
class PartitionFacts:
    """One topic partition as the report draws it. `lag` is in offsets, None when no broker answered."""

    topic: str
    partition: int
    start_offset: int
    end_offset: int
    log_start: int | None = None
    log_end: int | None = None
    lag: int | None = None
    cells: tuple[CoverageCell, ...] = ()


@dataclass(frozen=True, kw_only=True)
class BatchPoint:
    """Rows per micro-batch for the chart; several batches are folded into one point when there are many.

    `offsets` is the width of the ranges read, in offsets, None of a Delta table; `rows_written` the count of the
    commits.
    """

    at: datetime
    epoch: int
    first_batch_id: int
    last_batch_id: int
    batches: int
    offsets: int | None
    rows_written: int | None


@dataclass(frozen=True, kw_only=True)
class SinkFacts:
    """The ledger's figures of one sink in the audited period.

    The `batches_*` figures add up: proved + refuted + unproved = batches. `guarantee_kept` is whether the audit
    found that the sink keeps its `guarantee`: None where the checks that decide this were not all evaluated.
    `rows_filtered` are the rows that the transform dropped, each record once where there is an `account`; None also for
    sinks that routes lead to. `rows_quarantined` are those that were put into quarantine instead. Both are None where a
    micro-batch did not count them. `account` is what became of the offsets that were read; None where none were.
    """

    name: str
    kind: str
    target: str
    guarantee: str
    batches: int = 0
    batches_proved: int = 0
    batches_refuted: int = 0
    batches_unproved: int = 0
    epochs: int = 0
    rows_written: int | None = None
    first_commit: datetime | None = None
    last_commit: datetime | None = None
    chain_head: str | None = None
    points: tuple[BatchPoint, ...] = ()
    partitions: tuple[PartitionFacts, ...] = ()
    guarantee_kept: bool | None = None
    rows_filtered: int | None = None
    rows_quarantined: int | None = None
    account: OffsetSums | None = None


# What became of records that somebody accepted, in the answer.
_TOLD: Mapping[str, str] = {"lost": "lost", "missing": "missing", "removed": "removed", "twice": "doubled"}


@dataclass(frozen=True, kw_only=True)
class PipelineFacts:
    """One pipeline's answer: complete, not complete, or could not be proved, and the reason in one sentence.

    `isolation_level` is that of the Kafka consumer, None for a query that reads a Delta table.
    `period_from` is where this pipeline's audited period begins, None when the whole ledger was audited. `since` names
    the micro-batch that the answer begins with, where others ran before it that nobody witnessed; "" for none.
    `accepted` are the refutations and questions that somebody accepted: the answer is given but for these. `incidents`
    are the findings by their cause, open ones first. `unanswered` is how many refutations of earlier audits are open
    whose checks this one did not run.
    """

    name: str
    answer: Answer
    because: str
    query_id: str | None
    checkpoint: str
    topics: tuple[str, ...]
    isolation_level: str | None
    period_from: datetime | None = None
    since: str = ""
    accepted: tuple[str, ...] = ()
    sinks: tuple[SinkFacts, ...] = ()
    incidents: tuple[Incident, ...] = ()
    unanswered: int = 0

    @property
    def says(self) -> str:
        """The answer with what it leaves out: "complete since micro-batch 3, but for 1 accepted finding".

        Where it is known how many records, or else offsets, were accepted in all, the answer says so: "(700 offsets
        lost, 3 records removed)".
        """
        since = f" since {self.since}" if self.since else ""
        count = len(self.accepted)
        but = f", but for {count} accepted finding{'s' if count > 1 else ''}{self._accepted_records}" if count else ""
        return f"{self.answer}{since}{but}" if self.answer == "complete" else self.answer

    @property
    def _accepted_records(self) -> str:
        sums: Counter[tuple[str, str]] = Counter()
        for count in (
            count for incident in self.incidents if incident.state == "accepted" for count in incident.counts
        ):
            number, what = (count.offsets, "offset") if count.rows is None else (count.rows, "record")
            if not number or count.harm not in _TOLD:
                return ""
            sums[what, _TOLD[count.harm]] += number
        told = [f"{plural(number, what)} {harm}" for (what, harm), number in sums.items()]
        return f" ({', '.join(told)})" if told else ""


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """Who ran an audit, with which recon.yml, and how many checks that had.

    Attributes:
        by: the user of the operating system and the machine, as these name themselves.
        config: the name of the file; "" for a project that was made in Python.
        config_hash: SHA-256 of the file's bytes, as `sha256sum` prints it; None where there is no file.
        checks: by pipeline, how many checks recon.yml has, selected or not.
        stopped: whether `--fail-fast` ended the audit early.
    """

    by: str
    config: str = ""
    config_hash: str | None = None
    checks: Mapping[str, int] = field(default_factory=dict)
    stopped: bool = False


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """The result of one audit: every report is drawn from this alone.

    `args` are the options the run was started with; `versions` has the version of each package that was used. `notes`
    are sentences for the reader (a missing witness, a broker that did not answer). `heads` says whether the heads of
    the ledger's trees were signed, and where they were published. `record` is who ran it; None of runs of versions that
    did not say so. `runbook_url` is where pages about codes are; "" where recon.yml does not say. `past` is what
    earlier audits found; None where nobody looked. `books` are what each sink's pipeline read, by day and hop, and what
    became of it.
    """

    invocation_id: str
    project: str
    recon_version: str
    generated_at: datetime
    period_from: datetime | None
    period_to: datetime
    elapsed_time: float
    results: tuple[CheckResult, ...]
    pipelines: tuple[PipelineFacts, ...] = ()
    args: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    heads: str = NOT_ANCHORED
    runbook_url: str = ""
    record: RunRecord | None = None
    past: PastAudits | None = None
    books: tuple[BookLine, ...] = ()

    def counts(self) -> dict[str, int]:
        """Number of results per status; every status is a key."""
        counts = Counter(result.status for result in self.results)
        return {status: counts[status] for status in get_args(Status)}

    @property
    def exit_code(self) -> int:
        """1 where a check failed or errored, or did not look at an open finding of an earlier audit; else 0.

        With `warn_error` 1 where one warned, too; with `require_complete` where a pipeline was not proved complete.
        """
        counts = self.counts()
        warned = counts["warn"] if self.args.get("warn_error") else 0
        lacking = self.not_complete if self.args.get("require_complete") else ()
        unanswered = any(pipeline.unanswered for pipeline in self.pipelines)
        return 1 if counts["fail"] or counts["error"] or unanswered or warned or lacking else 0

    @property
    def incidents_with_a_pattern(self) -> tuple[tuple[str, Incident], ...]:
        """The open incidents whose offsets have something in common, each with its pipeline: these are told first."""
        return tuple(
            (pipeline.name, incident)
            for pipeline in self.pipelines
            for incident in pipeline.incidents
            if incident.pattern is not None and incident.state == "open"
        )

    @property
    def not_complete(self) -> tuple[str, ...]:
        """The pipelines whose answer is "not complete" or "could not be proved"."""
        return tuple(pipeline.name for pipeline in self.pipelines if pipeline.answer != "complete")


def plain(value: Any) -> Any:
    """A dataclass tree as plain JSON-ready values; datetimes as ISO 8601 with `Z`."""
    if hasattr(value, "__dataclass_fields__"):
        value = asdict(value)
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return value
