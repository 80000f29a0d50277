"""What a finding is about: the one rule by which two findings are the same, however their messages are worded."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from recon.model.offsets import Span


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What happened, and to what. Two findings with equal subjects are one finding.

    Attributes:
        code: what a check calls it.
        kind: what happened, whatever a check calls it: `lost`, `twice`, else the code.
        pipeline, sink: whose it is.
        topic, topic_id, partition: the topic partition; None where it is about none.
        span: the offsets; None for none.
        epoch, batch_id: the micro-batch; None for none.
        about: what else tells it from others: a commit, a digest of exactly which rows. "" where the rest is enough.
    """

    code: str
    kind: str
    pipeline: str | None
    sink: str | None
    topic: str | None
    topic_id: str | None
    partition: int | None
    span: Span | None
    epoch: int | None
    batch_id: int | None
    about: str = ""

    @property
    def id(self) -> str:
        """Eight hex digits of what happened where, the same for every check that reports it."""
        topic_id = (self.topic_id,) if self.topic_id is not None else ()
        place = self.span or (self.epoch, self.batch_id)
        where = (self.kind, self.pipeline, self.sink, self.topic, *topic_id, self.partition, *place)
        text = self.about if self.span is None and self.batch_id is None else ""
        return hashlib.sha256(repr((*where, text)).encode()).hexdigest()[:8]

    def is_at(self, other: Subject) -> bool:
        """Whether both are about the same topic partition; a topic that was created again is another one."""
        return (self.topic, self.topic_id, self.partition) == (other.topic, other.topic_id, other.partition)

    def includes(self, other: Subject) -> bool:
        """Whether the other one is this one, or about a part of its offsets, whichever check reports it."""
        if (self.kind, self.sink) != (other.kind, other.sink) or not self.is_at(other):
            return False
        if self.span is not None and other.span is not None:
            return self.span.start <= other.span.start and other.span.end <= self.span.end
        if self.span is not None or other.span is not None:
            return False
        mine, its = ((subject.code, subject.epoch, subject.batch_id, subject.about) for subject in (self, other))
        return mine == its

    def meets(self, other: Subject) -> bool:
        """Whether both may be about the same rows: neither offsets nor what tells them apart say otherwise."""
        if self.kind != other.kind or (self.topic, self.partition) != (other.topic, other.partition):
            return False
        if self.span is None or other.span is None:
            return True
        return self.span.start < other.span.end and other.span.start < self.span.end
