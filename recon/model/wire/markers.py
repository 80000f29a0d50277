"""Records of the marker topic of a Kafka sink.

Three kinds of records, all in partition 0 of one compacted topic, so that their order is total:

- a *plan* per (pipeline, sink, topic), written by the driver before its tasks start. Only the newest is kept: a task
  that reads a newer plan than its own belongs to a driver that was replaced.
- a *task marker* per task number, written in the transaction of that task's rows. The key has no micro-batch in it, so
  compaction keeps one per task: no reader needs an older one, since a micro-batch begins after the one before it is
  complete. Its (epoch, batch_id) tells which micro-batch's rows were committed.
- a *batch marker* per micro-batch, written by the driver when all tasks are done. These stay: they are the sink's log.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from recon.model.evidence import ReconStamp
from recon.model.wire import values
from recon.model.wire.stamp import dump_stamp, parse_stamp

PLAN, TASK, BATCH = "plan", "task", "batch"
_SUMS = ("tasks", "rows", "ids", "content")  # of a batch marker

# (topic, partition, first offset, last offset, rows) of the source records that a task wrote.
SourceRange = tuple[str, int, int, int, int]


@dataclass(frozen=True)
class Owner:
    """Whose records these are: one sink of one pipeline, and the topic it writes."""

    pipeline: str
    sink: str
    target: str

    def key(self, kind: str, *numbers: int) -> bytes:
        """The record key of a marker."""
        return _compact([self.pipeline, self.sink, self.target, kind, *numbers])

    @property
    def prefix(self) -> bytes:
        """How every key of this owner begins."""
        return _compact([self.pipeline, self.sink, self.target])[:-1] + b","


def plan_key(owner: Owner) -> bytes:
    """The key of an owner's plan."""
    return owner.key(PLAN)


def task_key(owner: Owner, task: int) -> bytes:
    """The key of a task's marker."""
    return owner.key(TASK, task)


def batch_key(owner: Owner, epoch: int, batch_id: int) -> bytes:
    """The key of a micro-batch's marker."""
    return owner.key(BATCH, epoch, batch_id)


class MarkerKey(NamedTuple):
    """A marker's key after its owner: the kind, and the task number or (epoch, batch_id)."""

    kind: str
    numbers: tuple[int, ...]


def parse_key(key: bytes) -> MarkerKey:
    """The kind and the numbers of a marker's key; raises ValueError or TypeError for another record's key."""
    _, _, _, kind, *numbers = values.loads(key)
    return MarkerKey(values.text(kind), tuple(map(values.whole, numbers)))


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A micro-batch that the driver is about to write.

    `tasks` is how many share the rows, `starts` where each partition of the target ended before, `schema` the written
    columns as Spark's JSON. `behind` are plans of other micro-batches that were begun and never completed: tasks of
    theirs may have written. `offset` is the record's own place in the marker topic: the newest plan has the highest.
    """

    query_id: str
    epoch: int
    batch_id: int
    offsets_text: str
    tasks: int
    behind: Sequence[Plan] = ()
    starts: Mapping[int, int] = field(default_factory=dict)
    schema: str | None = None
    offset: int = -1

    def dump(self) -> bytes:
        """The record's value."""
        return _compact(self._document())

    def _document(self) -> dict[str, Any]:
        return {
            "query_id": self.query_id,
            "epoch": self.epoch,
            "batch_id": self.batch_id,
            "offsets": self.offsets_text,
            "tasks": self.tasks,
            "behind": [{**plan._document(), "offset": plan.offset} for plan in self.behind],
            "starts": sorted(self.starts.items()),
            "schema": self.schema,
        }

    @classmethod
    def parse(cls, value: bytes, offset: int) -> Plan:
        """The plan that a value stands for, read at `offset`."""
        return cls._of(values.mapping(values.loads(value)), offset)

    @classmethod
    def _of(cls, fields: Mapping[str, Any], offset: int) -> Plan:
        plan = cls(
            query_id=fields["query_id"],
            behind=tuple(cls._of(values.mapping(other), values.whole(other["offset"])) for other in fields["behind"]),
            epoch=fields["epoch"],
            batch_id=fields["batch_id"],
            offsets_text=fields["offsets"],
            tasks=fields["tasks"],
            starts=_starts(fields["starts"]),
            schema=fields["schema"],
            offset=offset,
        )
        return values.checked(plan)


@dataclass(frozen=True, kw_only=True)
class TaskMarker:
    """The rows of one task, committed together with them.

    `ids` is a sum of hashes over topic, partition and offset of the source records, `content` one over keys and values.
    The order of the rows changes neither.
    """

    query_id: str
    epoch: int
    batch_id: int
    task: int
    tasks: int
    rows: int
    ids: int
    content: int
    sources: Sequence[SourceRange] = ()

    def dump(self) -> bytes:
        """The record's value."""
        return _compact(vars(self))

    @classmethod
    def parse(cls, value: bytes) -> TaskMarker:
        """The marker that a value stands for."""
        fields = values.mapping(values.loads(value))
        return values.checked(cls(**{**fields, "sources": [_source(*source) for source in fields["sources"]]}))


@dataclass(frozen=True, kw_only=True)
class BatchMarker:
    """A micro-batch that is complete: recon's stamp, and the sums over its tasks. `at` is the record's timestamp."""

    stamp: ReconStamp
    tasks: int
    rows: int
    ids: int
    content: int
    at: datetime
    starts: Mapping[int, int] = field(default_factory=dict)

    def dump(self) -> bytes:
        """The record's value."""
        return _compact(
            {
                "stamp": dump_stamp(self.stamp),
                **{name: getattr(self, name) for name in _SUMS},
                "starts": sorted(self.starts.items()),
            }
        )

    @classmethod
    def parse(cls, value: bytes, at: datetime) -> BatchMarker:
        """The marker that a value stands for, read from a record of the time `at`.

        Raises:
            ValueError: the value is no batch marker; also TypeError, KeyError and EvidenceError.
        """
        fields = values.mapping(values.loads(value))
        stamp = parse_stamp(values.text(fields["stamp"]))
        if stamp is None:
            raise ValueError("no stamp")
        marker = cls(
            stamp=stamp,
            **{name: fields[name] for name in _SUMS},
            starts=_starts(fields["starts"]),
            at=at,
        )
        return values.checked(marker)


def _starts(pairs: Any) -> dict[int, int]:
    return {values.whole(partition): values.whole(offset) for partition, offset in pairs}


def _source(topic: object, *numbers: object) -> SourceRange:
    partition, first, last, rows = map(values.whole, numbers)
    return (values.text(topic), partition, first, last, rows)


def _compact(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
