"""A small world that knows what happened to every record: Kafka, one query, its Delta table, its ledger.

Everything is a plain value in memory, but the ledger, which is recon's own on a table in memory. A fault is an act
like any other: `World.truth` always tells which records the stream read past that no live row holds, and which have
more than one. What recon gets to see of it is in `judge`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from recon.model import (
    CheckpointBatch,
    CheckpointFlaw,
    DataFile,
    LedgerEntry,
    ReconStamp,
    TableCommit,
    offsets_text,
    parse_offsets,
)
from recon.model.fingerprint import PRIME, of_offsets
from recon.model.offsets import OffsetSpan, Span, Spans
from recon.model.wire.app_ids import app_id
from recon.model.wire.kafka_state import Cluster, KafkaState, TopicLogs, dump_kafka_state
from recon.write.ledger.ledger import Ledger
from tests.truth.memory import memory_ledger

PIPELINE, SINK, TOPIC = "orders", "lake", "orders"
ELSEWHERE, ELSEWHERES_PIPELINE = "clicks", "orders_3"  # what another pipeline of recon.yml reads into the table
RETENTION, KEPT_FOR = "retention", timedelta(hours=1)  # the job that may delete rows which were read so long ago
IsolationLevel = Literal["read_committed", "read_uncommitted"]
START = datetime(2026, 11, 1, 12, tzinfo=UTC)

# What the entry of a commit has no counts of, where it was restored from the commit.
NOT_COUNTED: dict[str, None] = dict.fromkeys(
    (
        "rows_read",
        "rows_filtered",
        "rows_returned",
        "rows_given",
        "fingerprint_read",
        "fingerprint_returned",
        "fingerprint_given",
        "isolation_level",
        "kafka_state",
        "sink_table_id",
    )
)

_COUNTS = [name for name in NOT_COUNTED if name.startswith(("rows", "fingerprint"))]

Place = tuple[str, str, int, int]  # topic, topic id, partition, offset


@dataclass
class Log:
    """One partition: what is at every offset since 0 (`record`, `aborted` or `marker`), and what Kafka still holds."""

    kinds: list[str] = field(default_factory=list)
    start: int = 0
    compacted: set[int] = field(default_factory=set)
    stable: int | None = None  # the last stable offset while a transaction is open
    open: set[int] = field(default_factory=set)  # the records of that transaction
    seen_open: bool = False  # whether a ledger entry or an audit has it that this transaction was open
    unseen: dict[int, int] = field(default_factory=dict)  # aborted records that none saw open: the marker behind them
    leader_epoch: int = 0
    epoch_starts: dict[int, int] = field(default_factory=lambda: {0: 0})  # the first offset of each leader epoch

    @property
    def end(self) -> int:
        """The high watermark."""
        return len(self.kinds)

    def elect(self, keep: int | None = None) -> None:
        """Another broker leads; an unclean election keeps its log below `keep` alone."""
        del self.kinds[self.end if keep is None else keep :]
        self.leader_epoch += 1
        self.epoch_starts = {epoch: min(start, self.end) for epoch, start in self.epoch_starts.items()}
        self.epoch_starts[self.leader_epoch] = self.end

    def kept(self, epoch: int, offset: int) -> bool:
        """Whether the log below an offset is the one that the leader of this epoch had, or the ones before it."""
        return min((start for e, start in self.epoch_starts.items() if e > epoch), default=self.end) >= offset


@dataclass
class Topic:
    """One incarnation of a topic."""

    name: str
    topic_id: str
    logs: list[Log]
    compacts: bool = False
    cluster_id: str = "A"


@dataclass(frozen=True)
class Row:
    """One live row of the table; `place` is the record it was made of."""

    version: int
    pipeline: str | None
    epoch: int
    batch_id: int | None
    place: Place


@dataclass
class Query:
    """A streaming query: where it is, and its checkpoint."""

    pipeline: str = PIPELINE
    query_id: str = "q-1"
    epoch: int = 0
    isolation: str = "read_committed"
    topics: tuple[str, ...] = (TOPIC,)
    positions: dict[tuple[str, int], int] = field(default_factory=dict)
    planned: list[CheckpointBatch] = field(default_factory=list)
    filters: Callable[[int], bool] = lambda offset: False
    makes: Callable[[int], int] = lambda offset: 1  # rows that the transform makes of the record at an offset
    sources: int = 1  # Kafka sources of the query, all of which read the same topics
    read_of: dict[tuple[str, int], Topic] = field(default_factory=dict)  # the incarnation that a position is of
    begins: dict[tuple[str, int], int] = field(default_factory=dict)  # below it nothing of that incarnation is read
    left_out: set[tuple[str, int]] = field(default_factory=set)  # partitions that its plans lack
    initial: tuple[tuple[int, str, int, int], ...] = ()  # as CheckpointWitness.begins
    guarded: bool = False  # whether its function returns at once where a micro-batch has no record


@dataclass
class Truth:
    """What really happened to the records that the stream read past: `lost` have no live row, `doubled` several."""

    lost: set[Place]
    doubled: set[Place]
    phantom: set[Place]

    @property
    def whole(self) -> bool:
        """Whether "complete" would be true."""
        return not (self.lost or self.doubled or self.phantom)

    def told(self) -> list[str]:
        """It in sentences."""
        said = [
            (self.lost, "no live row, though the stream went past them"),
            (self.doubled, "more than one live row"),
            (self.phantom, "a live row, though their transaction was aborted"),
        ]
        return [f"{places_text(places)}: {what}." for places, what in said if places] or ["Nothing is lost or doubled."]


class World:
    """One pipeline `orders`, which reads topic `orders` into the Delta table `lake`, and its audits."""

    def __init__(self, partitions: int = 2, *, declared: IsolationLevel = "read_committed") -> None:
        self.now = START
        self.skew = timedelta()  # of the driver's clock
        self.declared = declared
        self.topics = {TOPIC: Topic(TOPIC, "id-1", [Log() for _ in range(partitions)])}
        self.incarnations = 1
        self.query = Query(isolation=declared)
        self.ledger: Ledger = memory_ledger()
        self.commits: dict[int, TableCommit] = {}
        self.rows: list[Row] = []
        self.lost_files: list[list[Row]] = []  # rows of files that the log names and the store does not have
        self.tables = 0  # how often the table was made
        self.statistics = True  # whether data files carry them
        self.levels_known = True  # whether the hook learns the query's isolation level
        self.states_known = True  # whether the hook learns the state of Kafka's logs
        self.asked: list[Log] = []  # the logs in which the broker last named an open transaction to the hook
        self.counts_known = True  # whether Spark reports the counts of a micro-batch
        self.ids_known = True  # whether the hook learns topic ids
        self.restored = False  # whether an entry was restored from its commit
        self.states: dict[str, str] = {}  # what each pipeline's hook learnt of it and no entry has yet
        self.expected: set[Place] = set()  # records that the stream read past and should have written
        self.wrong: set[Place] = set()  # records of aborted transactions that it wrote
        self.origin: dict[tuple[str, int], int] = {}
        self.number = 0  # of the micro-batch that runs
        self.read_by: dict[Place, int] = {}  # the micro-batch of the first epoch that read past a record
        self.snapshots: dict[int, list[Row]] = {}  # the rows of each version but the newest
        self.forgiven: Truth = Truth(set(), set(), set())  # what somebody accepted
        self.acts: list[str] = []  # what happened, by its name
        self.settled = True  # nothing happened since the beginning, or since all was accepted, that an audit may refute
        self.forgiven_rows: Counter[Place] = Counter()  # how many rows each record had then
        self.written: dict[int, int] = {}  # rows in the files that each version added
        self.read_at: dict[Place, datetime] = {}  # when the stream read past a record first
        self.deleted: dict[int, list[Row]] = {}  # the rows that a DELETE took
        self.seen: set[int] = set()  # of these, the versions that an audit judged which remembers it
        self.vacuumed: set[int] = set()  # the versions of which VACUUM removed the files that they had replaced
        self.lawful: set[Place] = set()  # records whose row the retention job deleted, and that were old enough
        self.lawful_then: dict[int, set[Place]] = {}  # the same at each version but the newest
        self.origins: dict[int, frozenset[int]] = {}  # of files with rows of others: the versions that wrote these
        self.of_call: dict[str, Any] = {}  # what entries say of the call of the hook that runs, where it is one of two
        self.takes: Callable[[int], bool] = lambda offset: True  # the offsets that this call gives to the sink
        self.also_named: tuple[str, ...] = ()  # topics of recon.yml that the query does not subscribe to
        self.flaws: list[CheckpointFlaw] = []  # files of the checkpoint that are gone
        self.told_by: dict[int, set[Place]] = {}  # records of a call that was not written, by the entry that tells it
        self.interrupted: Callable[[], None] | None = None  # what the next start of the query does first
        self.unread: list[tuple[Topic, OffsetSpan]] = []  # what a micro-batch planned that the driver died in
        self.passed: set[Place] = set()  # records that no micro-batch read, and that the stream has gone past
        self.lost_unread: set[Place] = set()  # lost before the hook, and no whole audit looked at Kafka since
        self.swapped: dict[int, set[Place]] = {}  # records that a version's write lost or doubled, as many of each
        self.hidden: set[Place] = set()  # records of which docs/limits.md says that no audit can know their fate
        self.wrong_accounts: list[str] = []  # what the accounts of audits said that was not so
        self.story: list[tuple[datetime, str]] = []  # what happened, in sentences

    # -- Kafka ---------------------------------------------------------------------------------------------------

    def produce(self, count: int = 10, *, transaction: str | None = None, topic: str = TOPIC) -> None:
        """Appends records to every partition; a transaction's end (`committed`, `aborted`) adds a marker."""
        for log in self.topics[topic].logs:
            if transaction == "aborted":
                log.unseen.update(dict.fromkeys(range(log.end, log.end + count), log.end + count))
            log.kinds += ["aborted" if transaction == "aborted" else "record"] * count
            log.kinds += ["marker"] if transaction in ("committed", "aborted") else []
        of = f", in a transaction that is {transaction}" if transaction else ""
        self.tell(f"{count} records are appended to each partition of {topic}{of}.")

    def recreate(self, topic: str = TOPIC, refill: int = 0) -> None:
        """Deletes the topic and makes it anew."""
        self.incarnations += 1
        old = self.topics[topic]
        self.tell(f"Topic {topic} is deleted and created again.")
        for p, log in enumerate(old.logs):
            stable = log.end if log.stable is None else log.stable
            self._pass_by(old, p, self.query.positions.get((topic, p), 0 if self.query.planned else stable), stable)
        self.topics[topic] = Topic(topic, f"id-{self.incarnations}", [Log() for _ in old.logs], old.compacts)
        self.produce(refill, topic=topic)

    def move(self, to: Topic) -> Topic:
        """The bootstrap servers are another cluster's, which has a topic of the name; returns the one before."""
        old = self.topics[to.name]
        self.topics[to.name] = to
        self.tell(f"Topic {to.name} is on cluster {to.cluster_id} from now on.")
        return old

    def expire(self, upto: int) -> None:
        """Retention moves the log start of every partition."""
        for log in self.logs:
            log.start = max(log.start, min(upto, log.end))
        self.tell(f"Kafka deletes the records below offset {upto}, as retention says.")

    def add_partition(self, topic: str = TOPIC) -> None:
        """The topic gets one partition more."""
        self.topics[topic].logs.append(Log())
        self.tell(f"Topic {topic} gets one partition more.")

    def open_transaction(self, count: int, topic: str = TOPIC) -> None:
        """A transaction writes records and stays open: the last stable offset is its first one."""
        for log in self.topics[topic].logs:
            log.stable = log.end if log.stable is None else log.stable
            log.open |= set(range(log.end, log.end + count))
            log.kinds += ["record"] * count
        self.tell(f"A transaction appends {count} records to each partition of {topic} and stays open.")

    def end_transaction(self, outcome: Literal["committed", "aborted"], topic: str = TOPIC) -> None:
        """The open transaction ends."""
        for p, log in enumerate(self.topics[topic].logs):
            if log.stable is None:
                continue
            if outcome == "aborted":
                log.unseen.update({} if log.seen_open else dict.fromkeys(log.open, log.end))
                for offset in sorted(log.open):
                    place = (topic, self.topics[topic].topic_id, p, offset)
                    log.kinds[offset] = "aborted"
                    if place in self.expected:
                        self.expected.discard(place)
                        self.wrong.add(place)
            log.kinds.append("marker")
            log.stable, log.open, log.seen_open = None, set(), False
        self.tell(f"The open transaction of {topic} is {outcome}.")

    def compact(self, chosen: Callable[[int], bool], topic: str = TOPIC, *, unread: bool = False) -> None:
        """Compaction takes records out of the log that the stream has read past; or, `unread`, of the whole log."""
        self.topics[topic].compacts = True
        taken = []
        for p, log in enumerate(self.topics[topic].logs):
            end = min(self.query.positions.get((topic, p), 0), log.end)
            end = (log.end if log.stable is None else log.stable) if unread else end
            kinds = ("record", "aborted") if unread else ("record",)
            now = {o for o in range(log.start, end) if log.kinds[o] in kinds and chosen(o)} - log.compacted
            log.compacted |= now
            taken += [(topic, self.topics[topic].topic_id, p, offset) for offset in sorted(now)]
        # docs/limits.md: a record that something before the hook lost and compaction removed before the first audit;
        # rows of aborted records which compaction removed, of a topic that is read uncommitted as recon.yml says.
        self.hidden |= self.lost_unread & set(taken)
        if self.declared == "read_uncommitted":
            self.hidden |= {place for place in taken if self.topics[topic].logs[place[2]].kinds[place[3]] == "aborted"}
        self.tell(f"Compaction removes {places_text(taken) or 'nothing'}.")

    # -- the stream -------------------------------------------------------------------------------------------------

    def micro_batch(
        self,
        *,
        lose: Collection[int] = (),
        double: Collection[int] = (),
        swallow: bool = False,
        entry: bool = True,
        finish: bool = True,
        hook: bool = True,
        most: int | None = None,
        drop: Collection[int] = (),
        skip: int = 0,
        inflated: int = 0,
        by: Literal["reader", "transform", "sink"] = "sink",
    ) -> None:
        """Reads what is there, and writes it.

        Args:
            lose: places among the rows that are left out.
            double: places of rows that are written twice.
            by: who does so: code before recon's hook, the transform, or the sink with rows that it was given.
            swallow: an error in the user's function is swallowed: nothing is written, Spark goes on.
            entry: the ledger entry is written.
            finish: Spark writes commits/N.
            hook: recon's hook writes; otherwise a plain append without stamp and entry.
            most: offsets per partition.
            drop: partitions that the plan leaves out.
            skip: offsets that each partition's read starts beyond its position (`failOnDataLoss=false`).
            inflated: rows by which the commit's numOutputRows exceed those in the files.
        """
        self.restart()
        self.tick()
        query = self.query
        self.number = query.planned[-1].batch_id + 1 if query.planned else 0
        spans = self._spans(most, drop, skip)
        self._plan(spans, finish)
        read: list[Place] = []
        for span in spans:
            topic = self.topics[span.topic]
            read += [
                (span.topic, topic.topic_id, span.partition, offset)
                for offset in range(span.start_offset, span.end_offset)
                if self._read(topic, span.partition, offset)
            ]
        self.tell(f"Micro-batch {self.number} of {query.query_id} reads {spans_text(spans)}.")
        if swallow:
            self.tell("Its error is swallowed: nothing is written.")
            return
        if query.guarded and not read:
            self.tell("It has no record, and the function returns at once.")
            return
        kept = self._returned(read)
        lost = {kept[i] for i in lose if i < len(kept)}
        again = [place for i, place in enumerate(kept) if i in double]
        faulty = [place for place in kept if place not in lost] + again
        if by == "transform" and not again:
            self.expected -= lost  # leaving rows out, and doubling none, is what a transform that filters does
        if by == "reader":
            self.lost_unread |= lost
        for what, places in (("loses", lost), ("doubles", again)):
            if places:
                who = {"reader": "What runs before the hook", "transform": "The transform", "sink": "The sink"}[by]
                self.tell(f"{who} {what} {places_text(places)}.")
        returned = kept if by == "sink" else faulty
        read = [place for place in read if place not in lost] + again if by == "reader" else read
        self._write(spans, read, returned, faulty, entry=entry, hook=hook, inflated=inflated)
        if by == "sink" and lost and again:
            self.swapped[max(self.commits)] = {*lost, *again}

    def two_calls(
        self,
        takes: Callable[[int], bool],
        transforms: tuple[str, str] = ("job:one", "job:other"),
        *,
        run_id: str | None = "r-1",
        between: Callable[[], Any] | None = None,
    ) -> None:
        """A micro-batch for which the user's function calls two hooks of the sink; of the second nothing is written.

        Args:
            takes: the offsets that the first one gives to the sink; the second one would give the others.
            transforms: the names of the two hooks' transforms.
            run_id: of the run; None where the hook does not learn it.
            between: what happens between the two, after the driver died and before the query starts again.
        """
        self.takes, self.of_call = takes, {"run_id": run_id, "transform": transforms[0]}
        self.micro_batch(finish=between is None)
        self.takes = lambda offset: True
        version, spans, read, returned = self.last
        stamp, written = self.commits[version].stamp, self.commits[version].rows_taken or 0
        assert stamp is not None
        calls = [transforms[1]]
        if between is not None:
            self.tell("The driver dies before it calls the second hook.")
            between()
            self.tick()
            calls, run_id = list(transforms), run_id and "r-2"
        for attempt, transform in enumerate(calls, start=2):
            again: dict[str, Any] = {"status": "already_committed", "attempt": attempt, "transform": transform}
            again["run_id"] = run_id
            entry = self.enter(stamp, spans, read=read, returned=returned, written=written, version=version, **again)
        self.told_by[entry.sequence] = set(read) - set(returned)
        self.query.planned[-1] = replace(self.query.planned[-1], committed=True)
        self.of_call = {}
        self.tell(f"The function calls a second hook of the sink, with {transforms[1]}: nothing of it is written.")

    def crash(self, at: Literal["write", "entry", "commit"], **faults: Any) -> None:
        """The driver dies in a micro-batch: before its write, before its ledger entry, before commits/N."""
        self.restart()
        if at == "write":
            self._crash_before_write()
            return
        topics = dict(self.topics)
        self.micro_batch(entry=at != "entry", finish=False, **faults)
        version, spans, read, returned = self.last
        stamp, table = self.commits[version].stamp, self.tables
        written = self.commits[version].rows_taken
        assert stamp is not None and written is not None
        self.tell(f"The driver dies before {'the ledger entry' if at == 'entry' else f'commits/{stamp.batch_id}'}.")

        def replay() -> None:
            if table != self.tables or not self.commits:  # the table that has this commit is gone
                self._run_again(spans, topics)
                return
            if at == "entry" and version in self.commits:
                self.restore_entry(version)
            # A replay takes the counts of the earlier attempt's entry; a restored one has none.
            more: dict[str, Any] = {"status": "already_committed", "attempt": 2}
            more |= NOT_COUNTED if at == "entry" else {}
            self.enter(stamp, spans, read=read, returned=returned, written=written, version=version, **more)

        self.interrupted = replay

    def _crash_before_write(self) -> None:
        """The micro-batch is planned and nothing of it written."""
        self.tick()
        self.number = self.query.planned[-1].batch_id + 1 if self.query.planned else 0
        spans, topics = self._spans(None, (), 0), dict(self.topics)
        self._plan(spans, finish=False)
        self.unread = [(topics[span.topic], span) for span in spans]
        self.tell(f"The driver dies in micro-batch {self.number}, which was to read {spans_text(spans)}.")
        self.interrupted = lambda: self._run_again(spans, topics)

    def _run_again(self, planned: Sequence[OffsetSpan], topics: Mapping[str, Topic]) -> None:
        """Reads and writes what an attempt planned; of a topic made anew since, these are offsets of the new log."""
        self.unread = []
        spans = [replace_topic_id(s, self.topics[s.topic].topic_id if self.ids_known else None) for s in planned]
        for s in planned:
            if self.topics[s.topic] is not topics[s.topic]:
                self._pass_by(topics[s.topic], s.partition, s.start_offset, s.end_offset)
        read = [
            (s.topic, self.topics[s.topic].topic_id, s.partition, offset)
            for s in spans
            for offset in range(s.start_offset, min(s.end_offset, self.topics[s.topic].logs[s.partition].end))
            if self._read(self.topics[s.topic], s.partition, offset)
        ]
        kept = self._returned(read)
        self._write(spans, read, kept, kept)

    def _spans(self, most: int | None, drop: Collection[int], skip: int) -> list[OffsetSpan]:
        """What the next micro-batch reads, from the positions, which move on."""
        query, spans = self.query, []
        for name in query.topics:
            topic = self.topics[name]
            for p, log in enumerate(topic.logs):
                where = (name, p)
                if p in drop or where in query.left_out:
                    continue
                at = query.positions.get(where, 0)
                self.origin.setdefault(where, at)
                self._pass_what_no_position_reaches(topic, p, at)
                stable = log.end if log.stable is None or query.isolation == "read_uncommitted" else log.stable
                end = max(at, stable if most is None else min(stable, at + most))
                known = topic.topic_id if self.ids_known else None
                spans += [OffsetSpan(name, known, p, min(at + skip, end), end, i) for i in range(query.sources)]
                # Passed by, and never written; a query without a position simply begins there.
                for offset in range(at, min(at + skip, end)) if where in query.positions else ():
                    self._read(topic, p, offset)
                query.positions[where] = end
        return spans

    def _pass_what_no_position_reaches(self, topic: Topic, partition: int, at: int) -> None:
        """Of a topic that was made anew, what lies below the position that the query had in the old one."""
        where = (topic.name, partition)
        if self.query.read_of.setdefault(where, topic) is not topic:
            self.query.read_of[where] = topic
            self.query.begins[where] = at
        self._pass_by(topic, partition, 0, self.query.begins.get(where, 0))

    def comes_back(self, where: tuple[str, int], at: int) -> None:
        """A partition that the plans lacked is read again from an offset on."""
        topic = self.topics[where[0]]
        self._pass_by(topic, where[1], self.query.positions.get(where, 0), at)
        self.query.positions[where] = at

    def _pass_by(self, topic: Topic, partition: int, start: int, end: int) -> None:
        """The stream goes past these offsets and reads none: records that it should have written are expected."""
        log = topic.logs[partition]
        if self.query.pipeline != PIPELINE:
            return
        for offset in range(start, min(end, log.end)):
            place = (topic.name, topic.topic_id, partition, offset)
            if place not in self.passed:
                self.passed.add(place)
                gone = offset in log.compacted or log.kinds[offset] != "record" or self.query.filters(offset)
                self.expected |= set() if gone else {place}

    def restart(self) -> None:
        """The query starts again after a crash: it replays the micro-batch that was not finished."""
        if self.interrupted is not None:
            self.tick()
            self.tell("The query starts again, and runs its unfinished micro-batch once more.")
            replay, self.interrupted = self.interrupted, None
            replay()
            self.query.planned[-1] = replace(self.query.planned[-1], committed=True)

    def restore_entry(self, version: int) -> None:
        """The hook restores the entry of a commit from its stamp."""
        self.restored = True
        self.tell(f"The hook restores the ledger entry of version {version}.")
        commit = self.commits[version]
        assert commit.stamp is not None
        self.enter(
            commit.stamp,
            parse_offsets(commit.stamp.offsets_text),
            read=(),
            returned=(),
            written=commit.rows_taken or 0,
            version=version,
            status="rebuilt",
            started_at=commit.timestamp,
            committed_at=commit.timestamp,
            **NOT_COUNTED,
        )

    def purge_checkpoint(self, keep: int) -> None:
        """Spark removes the checkpoint's oldest micro-batches."""
        self.query.planned = self.query.planned[-keep:]
        self.tell(f"The checkpoint keeps its last {keep} micro-batches alone.")

    def set_back(self, batches: int) -> None:
        """An older copy of the checkpoint is put back, which lacks its newest micro-batches."""
        self.query.planned = self.query.planned[:-batches]
        self.tell(f"A copy of the checkpoint is put back that lacks the last {batches} micro-batches.")

    def _read(self, topic: Topic, partition: int, offset: int) -> bool:
        """Whether the stream gets a record there; what it should write is expected from now on."""
        log, place = topic.logs[partition], (topic.name, topic.topic_id, partition, offset)
        self.read_at.setdefault(place, self.now)
        # What another pipeline reads, and whether its rows stay, is its own audit's question.
        mine = self.query.pipeline == PIPELINE
        if not self.query.epoch and mine:
            self.read_by.setdefault(place, self.number)
        if offset < log.start or offset in log.compacted:
            if offset in log.compacted:
                self.expected.discard(place)  # a later record of the key stands for it
            elif log.kinds[offset] == "record" and mine:
                self.expected.add(place)
            return False
        kind = log.kinds[offset]
        if kind == "record" and mine and not self.query.filters(offset):
            self.expected.add(place)
        if kind == "aborted" and self.query.isolation == "read_uncommitted":
            self.wrong.add(place)
            return True
        return kind == "record"

    def _returned(self, read: Sequence[Place]) -> list[Place]:
        """What the transform makes of the records that were read."""
        query = self.query
        kept = (place for place in read if self.takes(place[3]) and not query.filters(place[3]))
        return [place for place in kept for _ in range(query.makes(place[3]))]

    def _plan(self, spans: Sequence[OffsetSpan], finish: bool) -> None:
        query = self.query
        query.initial = query.initial or tuple((s.source, s.topic, s.partition, s.start_offset) for s in spans)
        query.planned.append(
            CheckpointBatch(
                batch_id=query.planned[-1].batch_id + 1 if query.planned else 0,
                planned_at=self.now,
                committed=finish,
                ranges=tuple(replace_topic_id(span, None) for span in spans),
            )
        )

    def _write(
        self,
        spans: Sequence[OffsetSpan],
        read: Sequence[Place],
        returned: Sequence[Place],
        written: Sequence[Place],
        *,
        entry: bool = True,
        hook: bool = True,
        inflated: int = 0,
    ) -> None:
        query, batch_id = self.query, self.query.planned[-1].batch_id
        stamp = ReconStamp(
            pipeline=query.pipeline,
            sink=SINK,
            epoch=query.epoch,
            batch_id=batch_id,
            query_id=query.query_id,
            run_id=None,
            prev_hash=self.ledger.head_hash(query.pipeline, SINK),
            offsets_text=offsets_text(spans),
            number=1 + sum(c.stamp is not None and c.stamp.pipeline == query.pipeline for c in self.commits.values()),
        )
        version = self.commit(
            "WRITE",
            added=len(written),
            stamp=stamp if hook else None,
            txn={app_id(query.pipeline, SINK): stamp.number or 0} if hook else {},
            operation_metrics={"numOutputRows": str(len(written) + inflated)},
        )
        self.last = (version, spans, read, returned)
        how = ", with no stamp" if not hook else ", with no ledger entry" if not entry else ""
        self.tell(f"{len(written)} rows are written as version {version}{how}.")
        self.rows += [Row(version, query.pipeline, query.epoch, batch_id if hook else None, place) for place in written]
        self.lawful -= {*written}
        if hook and entry:
            self.enter(stamp, spans, read=read, returned=returned, written=len(written) + inflated, version=version)

    def enter(
        self,
        stamp: ReconStamp,
        spans: Iterable[OffsetSpan],
        *,
        read: Sequence[Place],
        returned: Sequence[Place],
        written: int,
        version: int,
        **more: Any,
    ) -> LedgerEntry:
        """Appends the entry that the hook writes."""
        made: dict[str, Any] = {
            "pipeline": stamp.pipeline,
            "sink": SINK,
            "sequence": 0,
            "sink_kind": "delta",
            "target": "lake/orders",
            "guarantee": "exactly-once",
            "query_id": stamp.query_id,
            "run_id": None,
            "epoch": stamp.epoch,
            "batch_id": stamp.batch_id,
            "attempt": 1,
            "status": "committed",
            "rows_read": len(read),
            "rows_written": written,
            "rows_quarantined": 0,
            "rows_filtered": len(read) - len(returned) if len(read) >= len(returned) else None,
            "rows_returned": len(returned),
            "rows_given": len(returned),
            "fingerprint_read": fingerprint(read),
            "fingerprint_returned": fingerprint(returned),
            "fingerprint_given": fingerprint(returned),
            "isolation_level": self.query.isolation if self.levels_known else None,
            "kafka_state": self._told_by_kafka(stamp.pipeline),
            "sink_table_id": self.table_id,
            "sink_version": version,
            **({} if self.counts_known else dict.fromkeys(_COUNTS)),
            **self.of_call,
            "started_at": self.now + self.skew,
            "committed_at": self.now + self.skew + timedelta(seconds=2),
            "spark_version": "4.0.0",
            "recon_version": "0",
            "checks_fingerprint": None,
            "prev_hash": "",
            "entry_hash": "",
            "offsets": tuple(spans),
        }
        entry = self.ledger.append(LedgerEntry(**{**made, **more}))
        if self.states_known:
            self.states[stamp.pipeline] = self._kafka_state(entry.sequence)
        return entry

    def _told_by_kafka(self, pipeline: str) -> str | None:
        """What the hook learnt behind the entry before this one."""
        state = self.states.pop(pipeline, None)
        if state is not None and pipeline == PIPELINE:
            for log in self.asked:
                log.seen_open |= log.stable is not None
        return state

    def _kafka_state(self, after: int) -> str:
        """What the broker says of the logs behind an entry; the next entry has it."""
        self.asked = [log for name in self.query.topics for log in self.topics[name].logs if log.stable is not None]
        topics = {
            name: TopicLogs(
                partition=list(range(len(logs := self.topics[name].logs))),
                log_start=[log.start for log in logs],
                last_stable=[log.end if log.stable is None else log.stable for log in logs],
                high_watermark=[log.end for log in logs],
                leader_epoch=[log.leader_epoch for log in logs],
            )
            for name in self.query.topics
        }
        of = [self.topics[name] for name in self.query.topics]
        ids = {topic.name: topic.topic_id for topic in of if self.ids_known and topic.topic_id}
        cluster = Cluster(of[0].cluster_id, ids)
        return dump_kafka_state(KafkaState(asked_at=self.now, after=after, topics=topics, cluster=cluster))

    def edit_plan(self, by: int) -> None:
        """Somebody moves the end of the newest plan forward in every partition, after it was entered."""
        newest = self.query.planned[-1]
        for of in newest.ranges:
            self._pass_by(self.topics[of.topic], of.partition, of.end_offset, of.end_offset + by)
            self.query.positions[of.topic, of.partition] += by
        moved = tuple(of._replace(end_offset=of.end_offset + by) for of in newest.ranges)
        self.query.planned[-1] = replace(newest, ranges=moved)
        self.tell(f"The end offsets in offsets/{newest.batch_id} are moved forward by {by}.")

    def new_checkpoint(self, positions: dict[tuple[str, int], int] | None = None, *, epoch: bool = True) -> None:
        """The checkpoint is removed and the query restarted, from the beginning or from these positions."""
        query = self.query
        number = int(query.query_id.split("-")[1]) + 1
        self.interrupted = None
        for of, span in self.unread:  # planned by a micro-batch that nobody runs again
            self._pass_by(of, span.partition, span.start_offset, span.end_offset)
        self.unread = []
        starts = {(t, p): log.start for t in query.topics for p, log in enumerate(self.topics[t].logs)}
        starts.update(positions or {})
        self.tell(f"The checkpoint is removed; a new query begins at {starts_text(starts)}.")
        begins = {}
        for (name, p), start in starts.items():
            topic, before = self.topics[name], query.read_of.get((name, p))
            if before is not None and p < len(topic.logs):
                same = before is topic
                self._pass_by(topic, p, query.positions[name, p] if same else 0, start)
                begins[name, p] = query.begins.get((name, p), 0) if same else start
        self.query = replace(
            query,
            query_id=f"q-{number}",
            epoch=query.epoch + epoch,
            positions=starts,
            planned=[],
            initial=(),
            read_of={where: self.topics[where[0]] for where in begins},
            begins=begins,
        )

    def remove_plan(self, batch_id: int) -> None:
        """Somebody removes a file of the checkpoint between others."""
        at = next(i for i, batch in enumerate(self.query.planned) if batch.batch_id == batch_id)
        self.query.planned[at + 1] = replace(self.query.planned[at + 1], starts_known=False)
        del self.query.planned[at]
        self.flaws.append(CheckpointFlaw(batch_id, f"cp/offsets/{batch_id} is missing"))
        self.tell(f"offsets/{batch_id} is removed.")

    def put_ends_back(self, ends: Mapping[tuple[str, int], int]) -> None:
        """Somebody writes these end offsets into the newest plan."""
        newest = self.query.planned[-1]
        self.query.positions |= ends
        put = tuple(of._replace(end_offset=ends.get((of.topic, of.partition), of.end_offset)) for of in newest.ranges)
        self.query.planned[-1] = replace(newest, ranges=put)
        self.tell(f"The end offsets {starts_text(ends)} are put back into offsets/{newest.batch_id}.")

    # -- the table --------------------------------------------------------------------------------------------------

    def commit(self, operation: str, *, added: int = 0, removed: int = 0, **fields: Any) -> int:
        """A commit of the table; returns its version."""
        version = max(self.commits, default=-1) + 1
        self.tables += not self.commits
        made: dict[str, Any] = {
            "version": version,
            "timestamp": self.now + timedelta(seconds=1),
            "operation": operation,
            "operation_parameters": {"mode": "Append"} if operation == "WRITE" else {},
            "stamp": None,
            "files_added": int(added > 0),
            "files_removed": int(removed > 0),
            "rows_added": added if self.statistics or not added else None,
            "rows_removed": removed if self.statistics or not removed else None,
            "data_change": bool(added or removed),
            "table_id": None if self.commits else self.table_id,
        }
        self.snapshots[version - 1] = list(self.rows)
        self.lawful_then[version - 1] = set(self.lawful)
        self.written[version] = added
        self.commits[version] = TableCommit(**{**made, **fields})
        return version

    def removed_rows_of(self, rows: Iterable[Row]) -> frozenset[int]:
        """The versions that wrote the rows of the files in which some rows are."""
        return frozenset().union(*(self.origins.get(row.version, {row.version}) for row in rows))

    def commit_again(self, version: int, **changes: Any) -> None:
        """A commit of recon's own is made once more, as without a txn; `changes` are of its stamp."""
        self.tick()
        again = self.commits[version]
        assert again.stamp is not None
        rows = [row for row in self.rows if row.version == version]
        stamp = replace(again.stamp, **changes)
        made = self.commit("WRITE", added=len(rows), stamp=stamp, txn=again.txn)
        self.rows += [replace(row, version=made, batch_id=stamp.batch_id) for row in rows]
        self.tell(f"The {len(rows)} rows of version {version} are committed again, as version {made}.")

    def is_old(self, row: Row) -> bool:
        """Whether the retention job may delete a row, were it to run now."""
        return self.read_at.get(row.place, self.now) < self.now - KEPT_FOR

    def vacuum(self) -> None:
        """VACUUM removes the files that commits have replaced."""
        self.vacuumed |= {*self.deleted}
        self.tell("VACUUM removes the data files that no version needs which is newer.")

    def delete(self, gone: Callable[[Row], bool], *, logged: bool = True, by: str | None = None) -> None:
        """Rows vanish from the table: by a DELETE, or, not `logged`, because data files are removed from the store.

        `by` is the userMetadata of the commit.
        """
        kept = [row for row in self.rows if not gone(row)]
        how = "A DELETE removes" if logged else "Somebody removes data files from the store, with"
        self.tell(f"{how} {places_text(row.place for row in self.rows if gone(row)) or 'no rows'}.")
        if logged:
            self.tick()
            predicate = {"predicate": '["(_source_offset = 7)"]' if kept else '["true"]'}
            of = self.removed_rows_of(row for row in self.rows if gone(row))
            removed = len(self.rows) - len(kept)
            made: dict[str, Any] = {"removed_rows_of": of, "user_metadata": by}
            version = self.commit("DELETE", removed=removed, operation_parameters=predicate, **made)
            self.deleted[version] = [row for row in self.rows if gone(row)]
            if by == RETENTION:
                live = Counter(row.place for row in kept if row.batch_id is not None)
                self.lawful |= {r.place for r in self.deleted[version] if self.is_old(r) and not live[r.place]}
        else:
            files: dict[tuple[int, Place], list[Row]] = {}
            for row in self.rows:
                if gone(row):
                    files.setdefault((row.version, (*row.place[:3], 0)), []).append(row)
            self.lost_files += files.values()
        self.rows = kept

    def optimize(self) -> None:
        """OPTIMIZE: the same rows in other files."""
        self.tick()
        self.tell("OPTIMIZE writes the table's rows into other files.")
        of = self.removed_rows_of(self.rows)
        self.commit("OPTIMIZE", files_added=1, files_removed=len(self.commits), removed_rows_of=of)
        self.origins |= {row.version: of for row in self.rows}

    def compact_and_lose(self, lost: Row) -> None:
        """What says of itself that it is an OPTIMIZE, and leaves a row out."""
        self.tick()
        self.commit(
            "OPTIMIZE",
            data_change=False,
            files_added=0,
            files_removed=0,
            rewrote=(len(self.rows) - 1, len(self.rows)),
            removed_rows_of=self.removed_rows_of(self.rows),
        )
        self.rows = [row for row in self.rows if row is not lost]
        self.tell(f"A commit that calls itself OPTIMIZE leaves out {places_text([lost.place])}.")

    @property
    def named(self) -> tuple[str, ...]:
        """The topics that recon.yml names."""
        return (*self.query.topics, *self.also_named)

    @property
    def logs(self) -> list[Log]:
        """The logs of all topics."""
        return [log for topic in self.topics.values() for log in topic.logs]

    @property
    def table_id(self) -> str:
        """The id of the table as it is now."""
        return f"table-{self.tables}"

    @property
    def files_gone(self) -> list[DataFile]:
        """What the log says of the files that are gone."""
        return [
            DataFile(
                path=f"part-{n}.parquet",
                rows=len(rows) if self.statistics else None,
                batch_ids=(rows[0].batch_id, rows[0].batch_id) if rows[0].batch_id is not None else None,
                topic=rows[0].place[0],
                partition=rows[0].place[2],
                offsets=Span(min(row.place[3] for row in rows), max(row.place[3] for row in rows) + 1),
            )
            for n, rows in enumerate(self.lost_files)
        ]

    def append_again(self, again: Callable[[Row], bool]) -> None:
        """Somebody's INSERT INTO t SELECT * FROM t WHERE …, without a stamp."""
        self.tick()
        rows = [row for row in self.rows if again(row)]
        version = self.commit("WRITE", added=len(rows))
        self.rows += [replace(row, version=version) for row in rows]
        self.tell(f"Somebody inserts rows of the table into it once more: {places_text(row.place for row in rows)}.")

    def restore(self, version: int) -> None:
        """RESTORE TABLE … TO VERSION AS OF."""
        self.tick()
        then = self.snapshots.get(version, self.rows)
        back, gone = Counter(then) - Counter(self.rows), Counter(self.rows) - Counter(then)
        parameters = {"version": str(version)}
        self.commit("RESTORE", added=back.total(), removed=gone.total(), operation_parameters=parameters)
        self.rows, self.lawful = list(then), self.lawful_then.get(version, self.lawful)
        self.tell(f"RESTORE TABLE ... TO VERSION AS OF {version}.")
        self.lost_files = [rows for rows in self.lost_files if rows[0].version <= version]

    def remove_table(self) -> None:
        """The table's folder is removed; the next commit makes it anew, with version 0."""
        self.rows, self.commits, self.lost_files, self.snapshots = [], {}, [], {}
        self.deleted, self.lawful_then = {}, {}
        self.tell("The table is removed.")

    def drop_table(self) -> None:
        """DROP TABLE and CREATE TABLE: versions begin at 0 again."""
        self.tick()
        self.remove_table()
        self.commit("CREATE TABLE", data_change=False)
        self.tell("The table is made anew.")

    def copy_table(self, lost: Callable[[Row], bool] = lambda row: False) -> None:
        """CREATE TABLE … AS SELECT of the table's rows, some left out, and the copy takes its place."""
        kept = [row for row in self.rows if not lost(row)]
        self.remove_table()
        self.tick()
        version = self.commit("CREATE TABLE AS SELECT", added=len(kept))
        self.rows = [replace(row, version=version) for row in kept]
        self.tell("A copy of the table takes its place.")

    def clean_log(self, keep: int = 1) -> None:
        """The log's files but the newest are cleaned up behind a checkpoint."""
        first = max(min(self.commits), max(self.commits) - keep + 1)
        self.commits = {v: commit for v, commit in self.commits.items() if v >= first}
        # docs/limits.md, "The spot check": it looks into the files of commits that the log still has.
        self.hidden |= {place for version, places in self.swapped.items() if version < first for place in places}
        # Who deleted rows that are gone, nothing shows any more.
        self.settled &= all(version >= first or version in self.seen for version in self.deleted)
        self.tell(f"The table's log is cleaned up: it begins at version {first}.")

    def rewrite(self, changed: Callable[[Row], bool], lost: Callable[[Row], bool]) -> None:
        """Another program's UPDATE or MERGE writes rows anew, and leaves some out."""
        self.tick()
        touched = [row for row in self.rows if changed(row)]
        kept = [row for row in touched if not lost(row)]
        of = self.removed_rows_of(touched)
        version = self.commit("MERGE", added=len(kept), removed=len(touched), removed_rows_of=of)
        self.origins[version] = of | {version}
        rest = [row for row in self.rows if not changed(row)]
        self.rows = rest + [replace(row, version=version) for row in kept]
        gone = places_text(row.place for row in touched if lost(row)) or "none"
        self.tell(f"Another program's MERGE writes {len(kept)} rows anew and leaves out {gone}.")

    def append_as_stranger(self, places: Sequence[Place]) -> None:
        """Another program appends rows of these records, or of what is no record of the topics, without a stamp."""
        self.tick()
        version = self.commit("WRITE", added=len(places))
        self.rows += [Row(version, None, 0, None, place) for place in places]
        self.tell(f"Another program appends rows: {places_text(places)}.")

    def merge_as(self, other: Query, changed: Callable[[Row], bool], lost: Callable[[Row], bool]) -> None:
        """Another recon pipeline reads its topics, and its MERGE writes rows anew that are not its own."""
        with self.running(other):
            self.micro_batch()
        touched = [row for row in self.rows if changed(row) and row.version in self.commits]
        kept = [row for row in touched if not lost(row)]
        version = max(self.commits)
        added = self.commits[version].rows_taken or 0
        of = self.removed_rows_of(touched)
        self.origins[version] = of | {version}
        self.commits[version] = replace(
            self.commits[version],
            removed_rows_of=of,
            operation="MERGE",
            operation_parameters={},
            rows_added=added + len(kept) if self.statistics else None,
            rows_removed=len(touched) if self.statistics else None,
            files_removed=int(bool(touched)),
            operation_metrics={
                "numTargetRowsInserted": str(added),
                "numTargetRowsUpdated": str(len(kept)),
                "numTargetRowsDeleted": str(len(touched) - len(kept)),
                "numSourceRows": str(added + len(touched)),
            },
        )
        self.written[version] = added + len(kept)
        mine = {id(row) for row in touched}
        self.rows = [row for row in self.rows if id(row) not in mine] + [replace(r, version=version) for r in kept]
        gone = places_text(row.place for row in touched if lost(row)) or "none"
        self.tell(f"Its commit is a MERGE, which writes {len(kept)} of our rows anew and leaves out {gone}.")

    @contextmanager
    def running(self, other: Query) -> Iterator[None]:
        """Another query runs, beside the one whose audits these are, which may be in the middle of a micro-batch."""
        mine, interrupted, number, unread = self.query, self.interrupted, self.number, self.unread
        self.query, self.interrupted = other, None
        yield
        self.query, self.interrupted, self.number, self.unread = mine, interrupted, number, unread

    # -- time, and the truth ----------------------------------------------------------------------------------------

    def tick(self, **delta: float) -> None:
        """Time goes on, by ten seconds or as told."""
        self.now += timedelta(**(delta or {"seconds": 10}))

    def tell(self, sentence: str) -> None:
        """Notes what happens, for whoever reads the history."""
        self.story.append((self.now, sentence))

    @property
    def truth(self) -> Truth:
        """What happened to the records that the stream read past."""
        return self.truth_since(0)

    def truth_since(self, batch_id: int) -> Truth:
        """The same of the records that were read from a micro-batch of the first epoch on."""
        # Rows of other topics are the business of whoever reads these.
        live = Counter(row.place for row in self.rows if row.place[0] in self.query.topics)
        before = {place for place, at in self.read_by.items() if at < batch_id}
        due, makes = self.query.sources, self.query.makes
        return Truth(
            lost={
                place
                for place in self.expected - before - self.forgiven.lost - self.lawful
                if live[place] < due * min(1, makes(place[3]))
            },
            doubled={
                place
                for place, count in live.items()
                if count > max(due * makes(place[3]), self.forgiven_rows[place]) and place not in before
            },
            phantom={place for place in self.wrong - before if live[place]},
        )

    def knowable_since(self, batch_id: int) -> Truth:
        """The same without the records of which docs/limits.md says that no audit can know what became of them."""
        truth = self.truth_since(batch_id)
        return Truth(
            truth.lost - self.hidden,
            truth.doubled - self.hidden,
            {place for place in truth.phantom - self.hidden if not self._marker_is_unread(place)},
        )

    def _marker_is_unread(self, place: Place) -> bool:
        """docs/limits.md: aborted records of which nobody saw the transaction open show once their marker is read."""
        topic, topic_id, partition, offset = place
        if self.topics[topic].topic_id != topic_id:
            return False
        marker = self.topics[topic].logs[partition].unseen.get(offset)
        return marker is not None and marker >= self.query.positions[topic, partition]

    def sees_open(self) -> None:
        """An audit that Kafka answers, or an entry with Kafka's answer, has it which transactions are open."""
        for log in self.logs:
            log.seen_open |= log.stable is not None

    def forgive(self) -> None:
        """Somebody accepts what is lost and doubled now: from then on the truth is what is lost or doubled besides."""
        now, live = self.truth, Counter(row.place for row in self.rows)
        self.forgiven = Truth(self.forgiven.lost | now.lost, self.forgiven.doubled | now.doubled, set())
        self.forgiven_rows = Counter({place: live[place] for place in self.forgiven.doubled})


def fingerprint(places: Iterable[Place]) -> int:
    """The fingerprint of the rows of these records."""
    return sum(of_offsets(topic, partition, [offset]) for topic, _, partition, offset in places) % PRIME


def places_text(places: Iterable[Place]) -> str:
    """Records by topic partition, as ranges; one that is there several times is named once."""
    offsets: dict[tuple[str, str, int], list[int]] = {}
    for topic, topic_id, partition, offset in places:
        offsets.setdefault((topic, topic_id, partition), []).append(offset)
    return ", ".join(
        f"{topic}-{partition} ({topic_id}) {' '.join(f'[{start}, {end})' for start, end in Spans.of_offsets(found))}"
        for (topic, topic_id, partition), found in sorted(offsets.items(), key=str)
    )


def spans_text(spans: Iterable[OffsetSpan]) -> str:
    """Ranges, in words."""
    return ", ".join(f"{s.topic}-{s.partition} [{s.start_offset}, {s.end_offset})" for s in spans) or "nothing"


def starts_text(starts: Mapping[tuple[str, int], int]) -> str:
    """Positions, in words."""
    return ", ".join(f"{topic}-{partition} offset {offset}" for (topic, partition), offset in sorted(starts.items()))


def replace_topic_id(span: OffsetSpan, topic_id: str | None) -> OffsetSpan:
    """The range as a checkpoint has it, which knows no topic ids."""
    return span._replace(topic_id=topic_id)
