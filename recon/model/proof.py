"""What the audits of one sink proved so far, and what they found that nobody has answered.

The state is about positions, never about times: the ledger's entries up to one sequence number were judged. Whatever
was refuted on the way, or could not be decided, is an `OpenFinding` until it is answered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import Any, TypeVar, cast

from recon.base.errors import ConfigError
from recon.base.text import some
from recon.model.erasure import Erasure
from recon.model.ledger import EntryHead, LedgerSlice
from recon.model.offsets import Span, Spans
from recon.model.result import LOST, TWICE, Code, Finding, Level

M = TypeVar("M")
_SHORTEST = 4  # characters of a finding's id

# Findings about the present state of the stream or of Kafka: the next audit sees for itself.
_PRESENT = frozenset({Code.STALLED, Code.LOSS_AHEAD})
_CHECKS_OF_THE_PRESENT = frozenset({"kafka_end_offsets", "checkpoint_commits"})

# These checks report ranges that no micro-batch read into the sink; an entry that reads one later repairs it.
OF_UNREAD_RANGES = frozenset({"offset_continuity", "checkpoint_commits", "kafka_end_offsets", "atomicity"})


@dataclass(frozen=True, kw_only=True)
class Acceptance:
    """Somebody's decision to live with a finding."""

    by: str
    reason: str
    at: datetime


@dataclass(frozen=True, kw_only=True)
class OpenFinding:
    """A refutation, or a question that no witness could decide, and the check that reported it.

    It stays until it is repaired or accepted. Times are those of audits, UTC.
    """

    finding: Finding
    check: str
    first_seen: datetime
    last_seen: datetime
    accepted: Acceptance | None = None
    known_as: str = ""

    @property
    def id(self) -> str:
        """Eight hex digits of what happened where, the same for every check that reports it.

        An older version of recon may have given it another one, which it keeps.
        """
        return self.known_as or self.finding.subject.id

    @cached_property
    def since(self) -> str:
        """What later audits add to its message: its id, its age, and what to do."""
        return (
            f" (finding {self.id}, open since the audit of {self.first_seen:%Y-%m-%d %H:%M:%S}Z; repair it, or decide "
            f"with `recon accept {self.id}`)"
        )

    def includes(self, other: Finding) -> bool:
        """Whether a finding is this one, or of a part of its offsets."""
        return self.finding.subject.includes(self._seen_by(other).subject)

    def keeps_id(self, finding: Finding) -> str:
        """The id that a finding of now, which this one includes, goes on with; "" for that of its subject."""
        told_otherwise = self.finding.about is None and finding.about is not None and finding.span is None
        return self.known_as or (self.id if told_otherwise else "")

    def _seen_by(self, other: Finding) -> Finding:
        """Another finding as the version of recon told it that stored this one: by its message alone."""
        return other if self.finding.about is not None or other.about is None else replace(other, about=None)

    def is_at(self, other: Finding) -> bool:
        """Whether a finding is about the same topic partition; a topic that was created again is another one."""
        return self.finding.subject.is_at(other.subject)

    def is_in(self, topic: str, partition: int) -> bool:
        """Whether it is about this topic partition, of whichever topic of the name."""
        return (self.finding.topic, self.finding.partition) == (topic, partition)

    @property
    def spans(self) -> Spans:
        """The offsets that it is about; empty where it names none."""
        return Spans.of([self.finding.span]) if self.finding.span is not None else Spans()

    @property
    def is_loss(self) -> bool:
        """Whether records are missing."""
        return self.finding.code in LOST

    @property
    def is_doubling(self) -> bool:
        """Whether records were read or written twice."""
        return self.finding.code in TWICE


def with_id(known: Sequence[OpenFinding], finding: str) -> list[OpenFinding]:
    """The findings with an id, or with one that begins so; several checks may report one loss.

    Raises:
        ConfigError: there is none, or several ids begin so.
    """
    ids = {
        open_finding.id
        for open_finding in known
        if len(finding) >= _SHORTEST and open_finding.id.startswith(finding.lower())
    }
    if len(ids) != 1:
        waiting = sorted({open_finding.id for open_finding in known if open_finding.accepted is None})
        listed = f"; open are {some(waiting)}" if waiting else "; nothing is open"
        raise ConfigError(
            f"{'several findings have' if ids else 'there is no open finding with'} id {finding!r}{listed}"
        )
    return [open_finding for open_finding in known if open_finding.id in ids]


FindingPlace = tuple[str | None, str | None, int | None]


def place_of(finding: Finding) -> FindingPlace:
    """The sink and the topic partition that a finding is about: of two that differ in it, none includes the other."""
    return finding.sink, finding.topic, finding.partition


def stays_open(check: str, finding: Finding) -> bool:
    """Whether a finding is carried from audit to audit until it is answered."""
    if finding.level not in (Level.FAIL, Level.UNPROVED) or finding.code in _PRESENT:
        return False
    # A question of the present is kept where it says what exactly it is about, so that it can be accepted.
    exact = finding.span is not None or finding.batch_id is not None or finding.about is not None
    return exact or finding.level is Level.FAIL or check not in _CHECKS_OF_THE_PRESENT


def is_of_the_present(check: str, finding: Finding) -> bool:
    """Whether an audit that evaluates the check sees for itself whether it is still so."""
    placed = finding.span is not None or finding.batch_id is not None
    return finding.level is Level.UNPROVED and not placed and check in _CHECKS_OF_THE_PRESENT


@dataclass(frozen=True, kw_only=True)
class CoveredRanges:
    """The offsets of one topic partition that the judged entries account for, as half-open ranges, ascending."""

    source: int
    topic: str
    topic_id: str | None
    partition: int
    ranges: tuple[tuple[int, int], ...]


@dataclass(frozen=True, kw_only=True)
class SinkProof:
    """The state after an audit, or after somebody accepted a finding.

    Attributes:
        at: when the audit read the ledger, UTC.
        position: the sequence number of the newest ledger entry that was judged.
        chain_head: that entry's entry_hash.
        committed_at: that entry's time; None before one was judged.
        first_epoch, first_batch_id: the micro-batch that the proof begins with.
        results_hash: of the results that the audit stored for the pipeline; "" where that audit is not known.
        coverage: every offset that the entries up to `position` account for.
        open: findings that are not repaired; among them those that somebody accepted.
        memories: what `recon.judge.memories` lists, by its type, as far as it is known.
        sequence: the number of this state in its own chain, from 1 on.
        audited_at: when the newest audit that left a state stored it, UTC: somebody may have accepted findings since.
            None of a state that was not read from the table.
    """

    pipeline: str
    sink: str
    at: datetime
    invocation_id: str
    position: int
    chain_head: str
    first_epoch: int
    first_batch_id: int
    committed_at: datetime | None = None
    results_hash: str = ""
    coverage: tuple[CoveredRanges, ...] = ()
    open: tuple[OpenFinding, ...] = ()
    memories: Mapping[Any, Any] = field(default_factory=dict)
    sequence: int = 0
    entry_hash: str = ""
    audited_at: datetime | None = None

    def memory(self, kind: type[M]) -> M | None:
        """What is remembered of one kind; None for nothing."""
        return cast("M | None", self.memories.get(kind))

    def judged(self, head: EntryHead, ledger: LedgerSlice) -> bool:
        """Whether an audit judged this entry, and the ledger still has the newest one that was judged."""
        return head.sequence <= self.position and ledger.keeps(self.position, self.chain_head)

    @property
    def of_open_alone(self) -> SinkProof:
        """The state with what is open in it, and with nothing that was proved."""
        return replace(self, position=0, chain_head="", committed_at=None, coverage=(), memories={})

    def is_accepted(self, tampering: Tampering) -> bool:
        """Whether somebody decided to live with it."""
        mine = (o for o in self.open if o.accepted is not None and o.finding.code is Code.TAMPERED)
        return any(open_finding.finding.about == tampering.about for open_finding in mine)

    @property
    def begins(self) -> Mapping[tuple[str, int], int]:
        """The lowest offset that the proof speaks of, per topic partition of the first source that reads it."""
        starts: dict[tuple[str, int], int] = {}
        for covered in self.coverage:
            if covered.ranges:
                starts.setdefault((covered.topic, covered.partition), covered.ranges[0][0])
        return starts

    def read(self, topic: str, topic_id: str | None, partition: int) -> Spans:
        """The offsets of a topic partition that micro-batches of earlier audits read, under this topic id."""
        mine = (topic, topic_id, partition)
        return Spans.of(
            span
            for seen in self.coverage
            if (seen.topic, seen.topic_id, seen.partition) == mine
            for span in seen.ranges
        )

    def unread(self, topic: str, topic_id: str | None, partition: int) -> Spans:
        """The offsets of a topic partition that are known to be read by no micro-batch, and wait for a repair.

        A finding without a topic id is of any topic of the name.
        """
        mine = (
            o for o in self.open if o.check in OF_UNREAD_RANGES and o.is_loss and o.finding.sink in (None, self.sink)
        )
        return Spans.of(
            Span(*o.finding.span)
            for o in mine
            if o.finding.span is not None
            and (o.finding.topic, o.finding.partition) == (topic, partition)
            and (topic_id is None or o.finding.topic_id in (None, topic_id))
        )


def told_of_gone(state: SinkProof, open_finding: OpenFinding) -> Finding:
    """An open finding of a sink that recon.yml no longer has, with what to do about it."""
    finding = open_finding.finding
    why = (
        f" (finding {open_finding.id} of pipeline {state.pipeline}, sink {state.sink}, which recon.yml no longer has "
        f"under these names, so that no check looks at it; decide with `recon accept {open_finding.id}`)"
    )
    return replace(finding, message=finding.message + why)


def memory_of(proof: SinkProof | None, kind: type[M]) -> M | None:
    """What is remembered of one kind; None for nothing."""
    return proof.memory(kind) if proof is not None else None


@dataclass(frozen=True)
class Tampering:
    """That something is not what recon stored or signed; `about` is as in `Finding`."""

    sentence: str
    about: str


@dataclass(frozen=True, kw_only=True)
class Proofs:
    """The states of a pipeline's sinks, as an audit begins; mappings are by sink.

    Attributes:
        damaged: what is wrong with the sink's state; `of_sink` then has what is known to be open, and nothing proved.
        unreadable: why the state could not be read.
        lengths: how many states the sink has.
        results_changed: that the results of the audit which left the state were edited or removed.
        contradicted: that the ledger does not lead to a head that was signed.
        heads_unknown: why the ledger could not be compared with a signed head.
        erased: what was erased on somebody's request, in the order of the entries.
        erasures_edited: that these entries were edited.
        erasures: how many they are, with the hash of the newest.
        erasures_unknown: why they cannot be read.
        gone: the states of sinks of the same query that recon.yml no longer has under their names.
    """

    of_sink: Mapping[str, SinkProof] = field(default_factory=dict)
    damaged: Mapping[str, Tampering] = field(default_factory=dict)
    unreadable: Mapping[str, str] = field(default_factory=dict)
    lengths: Mapping[str, int] = field(default_factory=dict)
    results_changed: Mapping[str, str] = field(default_factory=dict)
    contradicted: Mapping[str, Tampering] = field(default_factory=dict)
    heads_unknown: Mapping[str, str] = field(default_factory=dict)
    erased: Mapping[str, Sequence[Erasure]] = field(default_factory=dict)
    erasures_edited: Mapping[str, str] = field(default_factory=dict)
    erasures: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    erasures_unknown: Mapping[str, str] = field(default_factory=dict)
    gone: Sequence[SinkProof] = ()

    def memory(self, sink: str | None, kind: type[M]) -> M | None:
        """What earlier audits remember of a sink, of one kind; None for nothing."""
        return memory_of(self.of_sink.get(sink or ""), kind)
