"""Deletions that recon.yml declares: which commits they are, which rows these took, and whether these were old enough.

A commit is recognized by its own log. Which rows it took is read from the data files that it removed and added, and
remembered, since VACUUM removes these files. What is not known is inside no declaration.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import NamedTuple, Self

from recon.base.lazy import np
from recon.model import LedgerSlice, RangeTable, TableCommit, Unavailable
from recon.model.deletion import AskedDeletion, DeclaredDeletion, Deletion, TopicPartition
from recon.model.evidence import ReadBefore, SeenDeletions
from recon.model.offsets import Spans
from recon.model.proof import CoveredRanges, SinkProof

Offsets = Mapping[TopicPartition, Spans]
Stored = tuple[tuple[str, int, tuple[tuple[int, int], ...]], ...]  # offsets, as they are stored

# Spark writes a column of a condition as its name, '#', and a number that is another one in each query.
_OF_SPARK = re.compile(r"#\d+L?\b")
_TEXT = re.compile(r"'(?:[^']|'')*'")  # a text of SQL, as delta-rs writes conditions
_NAME = re.compile(r'"((?:[^"]|"")+)"|\b([A-Za-z_]\w*)\b(?!\s*\()')
_WORDS = frozenset(["and", "or", "not", "in", "is", "null", "between", "like", "ilike", "true", "false", "interval"])
_ANY_AGE = timedelta(0)


# -- which commits they are ----------------------------------------------------------------------------------------


def declared_for(commit: TableCommit, declared: Iterable[DeclaredDeletion]) -> DeclaredDeletion | None:
    """The declaration that names a commit; of several, the one that allows the youngest rows. None for none."""
    fitting = (declaration for declaration in declared if _names(declaration, commit))
    return min(fitting, key=lambda declaration: declaration.older_than or _ANY_AGE, default=None)


def _names(declared: DeclaredDeletion, commit: TableCommit) -> bool:
    """Whether a commit is a deletion, and was made by whom a declaration names."""
    if commit.stamp is not None or not commit.is_deletion or not commit.files_removed:
        return False
    condition = str(commit.operation_parameters.get("predicate") or "")
    return (
        _begins(commit.user_metadata or "", declared.user_metadata)
        and _holds(commit.made_by, declared.made_by)
        and _holds(commit.properties, declared.properties)
        and (not declared.columns or _names_alone(condition, declared.columns))
    )


def _begins(found: str, wanted: str) -> bool:
    """Whether a text is the wanted one, or begins with what stands before its `*`; "" is any."""
    return not wanted or found == wanted or (wanted.endswith("*") and found.startswith(wanted[:-1]))


def _holds(found: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    return all(found.get(name) == value for name, value in wanted.items())


def _names_alone(condition: str, columns: Sequence[str]) -> bool:
    """Whether a condition names all of these columns, and no other.

    >>> _names_alone('["(event_time#290 < 2026-01-01 12:00:00)"]', ["event_time"])
    True
    >>> _names_alone("event_time < '2026-01-01' AND status = 'old'", ["event_time"])
    False
    """
    if numbers := _OF_SPARK.findall(condition):
        # Spark writes texts without quotes: what looks like a column in one of them is none that is declared.
        found = [len(re.findall(rf"(?<![\w.]){re.escape(name)}(?=#\d+L?\b)", condition)) for name in columns]
        return all(found) and sum(found) == len(numbers)
    names = {quoted or bare for quoted, bare in _NAME.findall(_TEXT.sub("''", condition))}
    return {name for name in names if name.lower() not in _WORDS} == {*columns}


# -- which rows they took ------------------------------------------------------------------------------------------


class Question(NamedTuple):
    """What has to be read to judge a commit: its rows, and where its rows do not tell their age, `read_before`."""

    rows: AskedDeletion
    read_before: datetime | None


def question_of(commit: TableCommit, declared: DeclaredDeletion) -> Question:
    """What is asked of a commit that a declaration names."""
    if declared.older_than is None:
        return Question(AskedDeletion(commit.version), None)
    before = commit.timestamp - declared.older_than
    if declared.column:
        return Question(AskedDeletion(commit.version, declared.column, before), None)
    return Question(AskedDeletion(commit.version), before)


@dataclass(frozen=True)
class Known:
    """What is known of the offsets that a sink's stream read: by the audited entries, and by earlier audits."""

    ledger: LedgerSlice
    proof: SinkProof | None

    def ids(self, topic: str) -> Collection[str | None]:
        """The ids under which a topic was read."""
        named = [(name, topic_id) for _, name, topic_id in self.ledger.ranges.topics]
        named += [(of.topic, of.topic_id) for of in self._earlier]
        return {topic_id for name, topic_id in named if name == topic}

    def mine(self, offsets: Offsets) -> Offsets:
        """Those of some offsets that the stream read: nobody judges others.

        Where entries before the audited ones are not known, those of its topics are taken for read.
        """
        read = {where: spans for where, spans in offsets.items() if self.ids(where[0])}
        if not self.ledger.complete and not self._earlier:
            return read
        earlier = {(of.topic, of.partition): Spans.of(of.ranges) for of in self._earlier}
        return both(read, united((read_by(self.ledger.ranges, read), earlier)))

    @property
    def _earlier(self) -> Sequence[CoveredRanges]:
        return self.proof.coverage if self.proof is not None else ()


def read_by(ranges: RangeTable, places: Iterable[TopicPartition]) -> Offsets:
    """The offsets of some ranges, in some topic partitions."""
    found: dict[TopicPartition, Spans] = {}
    for topic, partition in places:
        topics = [at for at, (_, name, _) in enumerate(ranges.topics) if name == topic]
        mine = (ranges.partition == partition) & np.isin(ranges.topic, topics) & (ranges.end > ranges.start)
        starts, ends = ranges.start[mine].tolist(), ranges.end[mine].tolist()
        found[topic, partition] = Spans.of(zip(starts, ends, strict=True))
    return found


def judged(commit: TableCommit, declared: DeclaredDeletion, seen: SeenDeletions, of_sink: Known) -> Deletion:
    """What a declaration says of a commit that it names."""
    deletion = Deletion(version=commit.version, at=commit.timestamp, label=declared.label)
    rows = seen.rows.get(commit.version, Unavailable("deleted_rows", "they were not read"))
    if isinstance(rows, Unavailable):
        return replace(deletion, unknown=rows.reason)
    mine, deletion = of_sink.mine(rows.offsets), replace(deletion, rows=rows.rows, changed=rows.changed)
    if rows.changed or declared.older_than is None:
        return replace(deletion, inside={} if rows.changed else mine)
    old, ageless = rows.older, rows.ageless
    if not declared.column:
        before = question_of(commit, declared).read_before
        read = seen.read_before.get(before) if before is not None else None
        old, ageless = _by_reading(mine, read if not isinstance(read, Unavailable) else None, of_sink)
    inside, ageless = both(mine, old), both(mine, ageless)
    return replace(deletion, inside=inside, ageless=ageless, young=without(without(mine, inside), ageless))


def _by_reading(offsets: Offsets, read: ReadBefore | None, of_sink: Known) -> tuple[Offsets, Offsets]:
    """Those of some offsets that the stream had read at an instant, and those of which nobody knows.

    A position says nothing of another topic of the name, which begins anew.
    """
    old: dict[TopicPartition, Spans] = {}
    unknown: dict[TopicPartition, Spans] = {}
    for where, spans in offsets.items():
        ids = of_sink.ids(where[0])
        if read is None or len(ids) != 1 or None in ids:
            unknown[where] = spans
        else:
            end = read.get(where, {}).get(next(iter(ids)), 0)
            old[where] = spans.intersect(Spans.of([(0, end)]))
    return old, unknown


def both(offsets: Offsets, other: Offsets) -> Offsets:
    """The offsets that both have."""
    common = {where: spans.intersect(other.get(where, Spans())) for where, spans in offsets.items()}
    return {where: spans for where, spans in common.items() if spans}


def without(offsets: Offsets, other: Offsets) -> Offsets:
    """The offsets that the other does not have."""
    left = {where: spans.minus(other.get(where, Spans())) for where, spans in offsets.items()}
    return {where: spans for where, spans in left.items() if spans}


def united(several: Iterable[Offsets]) -> Offsets:
    """The offsets that any has."""
    found: dict[TopicPartition, Spans] = {}
    for offsets in several:
        for where, spans in offsets.items():
            found[where] = spans.union(found[where]) if where in found else spans
    return found


# -- what is remembered of them ------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class StoredDeletion:
    """A `Deletion` whose rows are known, as it is stored."""

    version: int
    at: datetime
    label: str
    rows: int | None
    changed: str
    inside: Stored
    young: Stored
    ageless: Stored

    @classmethod
    def of(cls, deletion: Deletion) -> Self:
        """As it is stored."""
        return cls(
            version=deletion.version,
            at=deletion.at,
            label=deletion.label,
            rows=deletion.rows,
            changed=deletion.changed,
            inside=stored(deletion.inside),
            young=stored(deletion.young),
            ageless=stored(deletion.ageless),
        )

    @property
    def deletion(self) -> Deletion:
        """As it was judged."""
        return Deletion(
            version=self.version,
            at=self.at,
            label=self.label,
            rows=self.rows,
            changed=self.changed,
            inside=offsets_of(self.inside),
            young=offsets_of(self.young),
            ageless=offsets_of(self.ageless),
        )


def stored(offsets: Offsets) -> Stored:
    """Offsets as they are stored."""
    return tuple((*where, tuple((span.start, span.end) for span in spans)) for where, spans in sorted(offsets.items()))


def offsets_of(kept: Stored) -> Offsets:
    """Stored offsets as the judge has them."""
    return {(topic, partition): Spans.of(spans) for topic, partition, spans in kept}
