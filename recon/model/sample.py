"""A random sample of source records, and the path of each to its sinks: what an auditor repeats and marks.

The choice is arithmetic on a seed and on hashes of the ledger, so that anybody can make it again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NamedTuple

from recon.model.offsets import Spans

# found: the sink has a row of the record
# removed: a commit wrote it, and the sink no longer has it
# quarantined: it is in the quarantine table
# filtered: the transform returned no row of it
# aborted, control record, compacted or control record: the offset has no record to deliver
# missing: Kafka has the record, nothing filtered it, and the sink has no row of it
# not decided: every witness was read, and none says
# not read: a witness could not be read
# in no micro-batch: neither a ledger entry nor a row has the offset (in a trace; a sample chooses from the entries)
Outcome = Literal[
    "found",
    "removed",
    "quarantined",
    "filtered",
    "aborted",
    "control record",
    "compacted or control record",
    "missing",
    "not decided",
    "not read",
    "in no micro-batch",
]
Place = tuple[str, int, int]  # topic, partition, offset


class FoundRow(NamedTuple):
    """A row of a source record in a sink: where, for people, and its `_batch_id`."""

    where: str
    batch_id: int | None


class SourceRecord(NamedTuple):
    """An offset of the ledger's ranges; whether Kafka has a record there is part of the answer."""

    pipeline: str
    source: int
    topic: str
    topic_id: str | None
    partition: int
    offset: int

    @property
    def place(self) -> Place:
        """The topic, partition and offset."""
        return (self.topic, self.partition, self.offset)


class Frame(NamedTuple):
    """Offsets to choose from: [start_offset, end_offset) of one topic partition of a pipeline."""

    pipeline: str
    source: int
    topic: str
    topic_id: str | None
    partition: int
    start_offset: int
    end_offset: int


class LedgerHead(NamedTuple):
    """The newest entry of a sink's chain in the period; `entry_hash` is "" where it has none."""

    pipeline: str
    sink: str
    entry_hash: str
    entries: int


@dataclass(frozen=True, kw_only=True)
class SampledWrite:
    """A ledger entry whose ranges hold the record, and what the sink's own record says of it.

    `confirmed` is True where the sink's record of the write was found, and False where it was looked for and is not
    there. It is None where nobody could look, or the sink keeps none. `by` says who wrote it.
    """

    epoch: int
    batch_id: int
    sequence: int
    status: str
    entry_hash: str
    committed_at: datetime
    version: int | None
    at: datetime | None
    by: str
    confirmed: bool | None
    said: str


@dataclass(frozen=True, kw_only=True)
class SampledPath:
    """What became of a record in one sink; `places` are the rows, files or versions that were looked at and have it."""

    pipeline: str
    sink: str
    kind: str
    target: str
    writes: tuple[SampledWrite, ...]
    outcome: Outcome
    said: str
    places: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class SampledRecord:
    """A chosen record, its number in the sample from 1 on, and its path to each sink of its pipeline.

    `through` is the table from which the pipeline read it, "" for one that reads the record's own topic.
    """

    number: int
    record: SourceRecord
    paths: tuple[SampledPath, ...]
    through: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        paths = [{**vars(path), "writes": [vars(write) for write in path.writes]} for path in self.paths]
        through = {"through": self.through} if self.through else {}
        return {"number": self.number, **self.record._asdict(), **through, "paths": paths}


METHOD = (
    "Population: every offset that the ledger's entries of the period say was read, once for each pipeline and topic "
    "partition, sorted by pipeline, source, topic, topic id, partition and offset. Offsets that no micro-batch read "
    "are not in it: that there are none is what audits prove.",
    "Key: the SHA-256, in hexadecimal, of the seed, a line feed, and one line `pipeline TAB sink TAB entry_hash` for "
    "each head below, joined by line feeds.",
    "Choice: for i = 0, 1, 2, … the SHA-256 of the text `key:i`, read as a big-endian number, modulo the size of the "
    "population, is an index into it; an index that was chosen before is left out. With strata, each pipeline is a "
    "population of its own, the text is `key:pipeline:i`, and each pipeline gives the same number of records, or all "
    "that it has.",
)


@dataclass(frozen=True, kw_only=True)
class Sample:
    """The sample of a period, half-open, in UTC.

    Attributes:
        asked: the number of records that were asked for.
        left_out: pipelines that read a Delta table in the period, whose rows have no offsets to choose from.
    """

    project: str
    recon_version: str
    generated_at: datetime
    period_from: datetime
    period_to: datetime
    seed: str
    asked: int
    stratified: bool
    heads: tuple[LedgerHead, ...]
    population: tuple[Frame, ...]
    records: tuple[SampledRecord, ...]
    left_out: tuple[str, ...] = ()
    method: tuple[str, ...] = METHOD

    @property
    def size(self) -> int:
        """The number of offsets to choose from."""
        return sum(frame.end_offset - frame.start_offset for frame in self.population)

    @property
    def key(self) -> str:
        """What the choice is made with."""
        return key_of(self.seed, self.heads)

    def outcomes(self) -> dict[Outcome, int]:
        """How many paths have each outcome, most first."""
        counts: dict[Outcome, int] = {}
        for sampled in self.records:
            for path in sampled.paths:
                counts[path.outcome] = counts.get(path.outcome, 0) + 1
        return dict(sorted(counts.items(), key=lambda item: -item[1]))

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            **{name: value for name, value in vars(self).items() if name not in ("heads", "population", "records")},
            "key": self.key,
            "size": self.size,
            "heads": [head._asdict() for head in self.heads],
            "population": [frame._asdict() for frame in self.population],
            "records": [sampled.as_dict() for sampled in self.records],
        }


def key_of(seed: str, heads: Sequence[LedgerHead]) -> str:
    """The key of a choice; see METHOD."""
    lines = [seed, *(f"{head.pipeline}\t{head.sink}\t{head.entry_hash}" for head in heads)]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def chosen(key: str, size: int, count: int) -> list[int]:
    """`count` different indexes below `size`, in the order of their choice; all of them where there are no more.

    >>> chosen("k", 5, 9)
    [0, 1, 2, 3, 4]
    """
    if count >= size:
        return list(range(size))
    indexes: dict[int, None] = {}
    i = 0
    while len(indexes) < count:
        indexes[int.from_bytes(hashlib.sha256(f"{key}:{i}".encode()).digest()) % size] = None
        i += 1
    return list(indexes)


def choose(key: str, population: Sequence[Frame], count: int, *, stratified: bool = False) -> list[SourceRecord]:
    """Records of a population, in its order."""
    if not stratified:
        return _at(population, chosen(key, _size(population), count))
    strata: dict[str, list[Frame]] = {}
    for frame in population:
        strata.setdefault(frame.pipeline, []).append(frame)
    shares = _shares({name: _size(frames) for name, frames in strata.items()}, count)
    return [
        record
        for name, frames in strata.items()
        for record in _at(frames, chosen(f"{key}:{name}", _size(frames), shares[name]))
    ]


def _size(population: Iterable[Frame]) -> int:
    return sum(frame.end_offset - frame.start_offset for frame in population)


def _shares(sizes: Mapping[str, int], count: int) -> dict[str, int]:
    """The same number for each, one more for the first; what one does not have, the others give."""
    shares = dict.fromkeys(sizes, 0)
    left = min(count, sum(sizes.values()))
    while left:
        wanting = [name for name in sizes if shares[name] < sizes[name]]
        each = max(left // len(wanting), 1)
        for name in wanting:
            more = min(each, sizes[name] - shares[name], left)
            shares[name] += more
            left -= more
    return shares


def _at(population: Sequence[Frame], indexes: Iterable[int]) -> list[SourceRecord]:
    """The records at some indexes, in the population's order."""
    records: list[SourceRecord] = []
    frames, begin = iter(population), 0
    frame = next(frames, None)
    for index in sorted(indexes):
        while frame is not None and index >= begin + frame.end_offset - frame.start_offset:
            begin += frame.end_offset - frame.start_offset
            frame = next(frames, None)
        assert frame is not None
        records.append(SourceRecord(*frame[:5], offset=frame.start_offset + index - begin))
    return records


def frames_of(pipeline: str, covered: Mapping[tuple[int, str, str | None, int], Spans]) -> list[Frame]:
    """A pipeline's part of the population: `covered` by source, topic, topic id and partition."""
    order = sorted(covered, key=lambda key: (key[0], key[1], key[2] or "", key[3]))
    return [Frame(pipeline, *key, span.start, span.end) for key in order for span in covered[key]]
