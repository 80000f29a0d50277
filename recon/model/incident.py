"""Incidents: the findings of one cause together, with numbers, the commit that did it, and what to do next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

# What became of records.
# lost: Kafka deleted them before they were read
# missing: the sink has no row of them
# removed: the sink had their rows, and these were changed or removed
# twice: read or written more than once
# other: anything else that refutes
# undecided: no witness could decide
Harm = Literal["lost", "missing", "removed", "twice", "other", "undecided"]
HARMS: tuple[Harm, ...] = ("lost", "missing", "removed", "twice", "other", "undecided")

IncidentState = Literal["open", "accepted", "repaired"]


@dataclass(frozen=True, kw_only=True)
class HarmedRange:
    """Offsets [start_offset, end_offset) of a topic partition, and what became of them."""

    harm: Harm
    topic: str
    topic_id: str | None
    partition: int
    start_offset: int
    end_offset: int


@dataclass(frozen=True, kw_only=True)
class HarmCount:
    """How much of an incident is of one harm.

    `offsets` are those that findings name; some may be of transaction markers, and findings may name too few. `rows` is
    how many rows or records these certainly are; None where that is not known. `certain` of the offsets are known to be
    those of records.
    """

    harm: Harm
    offsets: int
    rows: int | None
    certain: int = 0


@dataclass(frozen=True, kw_only=True)
class OffsetSums:
    """What became of the offsets that were read in the period: a sum whose terms are known independently.

    Attributes:
        offsets: in the ledger's ranges, each once.
        rows: how many of them have a row: by the rows of the sink where these were read (`rows_read`), else as the
            commits count.
        filtered: records that the transform dropped, counted during the write.
        quarantined: rows that wait in quarantine; where no rows were read, that were put there.
        control: transaction markers.
        aborted: records of aborted transactions.
        compacted: without a record because of compaction.
        without_record: that had no record when they were read, as an earlier audit found.
        lost: that Kafka deleted before they were read.
        removed: whose rows were in the sink, and are not any more; 0 where `rows` are those that were written.
        deleted: whose rows were deleted since, as recon.yml declares.
        missing: records of which no row is in the sink, though nothing took it away.
        undecided: of which no witness could say what became of them.
        unknown: why `rows` cannot be compared with offsets; "" where they can.
    """

    offsets: int
    rows: int | None
    filtered: int | None
    quarantined: int | None
    control: int | None
    aborted: int | None
    compacted: int | None
    without_record: int | None
    lost: int
    removed: int | None
    missing: int | None
    undecided: int
    rows_read: bool = False
    unknown: str = ""
    deleted: int = 0

    @property
    def terms(self) -> Mapping[str, int | None]:
        """What `offsets` should be the sum of."""
        names = (
            "rows",
            "filtered",
            "quarantined",
            "control",
            "aborted",
            "compacted",
            "without_record",
            "lost",
            "removed",
            "deleted",
            "missing",
            "undecided",
        )
        return {name: getattr(self, name) for name in names}

    @property
    def difference(self) -> int | None:
        """Offsets that no term accounts for, negative where terms account for too many; None where one is not known."""
        known = [term for term in self.terms.values() if term is not None]
        return self.offsets - sum(known) if len(known) == len(self.terms) else None


@dataclass(frozen=True, kw_only=True)
class SinkChange:
    """A commit of the sink, by somebody else than recon's hook, as the sink's own log describes it.

    `rows` is how many it took away on balance, None where the log does not say. `made_by` is who made it, as far as the
    log says (`TableCommit.made_by`).
    """

    version: int
    at: datetime
    operation: str
    predicate: str = ""
    rows: int | None = None
    made_by: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class NextStep:
    """A command, and what it is for."""

    purpose: str
    command: str


@dataclass(frozen=True, kw_only=True)
class LikelyCause:
    """What may have caused an incident; nothing here is proved.

    Attributes:
        says: the cause.
        because: what speaks for it.
        look: where somebody sees whether it is this one: a command, a file or a part of the program.
        then: what to do if it is.
    """

    says: str
    because: str
    look: str
    then: str


# What the offsets of an incident have in common.
# every_nth: every Nth offset of a stretch, or some of every N
# part_of_each: of each of several micro-batches a part
# one_partition: all that micro-batches read of some partitions, and nothing of the others
# whole_micro_batches: all that micro-batches read
# read_again: a new epoch read what was read before
# planned_again: a new checkpoint plans to read what was read before
# passed_over: a new epoch began behind the end of the one before
# before_log_start: Kafka's log now begins behind them
Shape = Literal[
    "every_nth",
    "part_of_each",
    "one_partition",
    "whole_micro_batches",
    "read_again",
    "planned_again",
    "passed_over",
    "before_log_start",
]


@dataclass(frozen=True, kw_only=True)
class Pattern:
    """What the offsets of an incident have in common, and what usually causes that.

    Attributes:
        says: a sentence, which holds for each of the offsets that it speaks of.
        first, last: examples, as "orders-0 [3, 4)"; "" where no offsets are known.
        causes: likely ones, the one that takes least to check first; none where nobody knows one.
    """

    shape: Shape
    says: str
    first: str = ""
    last: str = ""
    causes: tuple[LikelyCause, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Incident:
    """What findings of a pipeline, or of one of its sinks, have in common.

    Attributes:
        id: that of its first finding, as `recon findings` lists it.
        sink: None where it is about the whole pipeline.
        cause: a sentence.
        codes: of its findings, the worst first.
        checks: that reported it.
        findings: the ids that `recon accept` and `recon repair` take; empty for what is not carried to the next audit.
        ranges: by topic, partition and offset.
        counts: the worst harm first.
        changes: the commits of the sink that did it, or one of which did.
        first_seen: by which audit.
        accepted: who accepted it, when and why; "" where it is not accepted.
        steps: what to do next.
        pattern: what its offsets have in common; None where no pattern was found.
        messages: the sentences of its findings, the worst first, as many as a report shows.
    """

    id: str
    sink: str | None
    cause: str
    codes: tuple[str, ...]
    checks: tuple[str, ...]
    state: IncidentState
    first_seen: datetime
    findings: tuple[str, ...] = ()
    ranges: tuple[HarmedRange, ...] = ()
    counts: tuple[HarmCount, ...] = ()
    changes: tuple[SinkChange, ...] = ()
    accepted: str = ""
    steps: tuple[NextStep, ...] = ()
    pattern: Pattern | None = None
    messages: tuple[str, ...] = ()

    @property
    def harm(self) -> Harm:
        """The worst of its harms."""
        return min((count.harm for count in self.counts), key=HARMS.index, default="other")
