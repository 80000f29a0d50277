"""A small world that knows what happened to every record: Kafka, one query, its Delta table, its ledger.

Everything is a plain value in memory, but the ledger, which is recon's own on a table in memory. A fault is an act
like any other: `World.truth` always tells which records the stream read past that no live row holds, and which have
more than one. What recon gets to see of it is in `judge`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from recon.ledger.ledger import Ledger
from recon.model import CheckpointBatch, DataFile, DeltaCommit, LedgerEntry, ReconStamp, offsets_text, parse_offsets
from recon.model.fingerprint import PRIME, of_offsets
from recon.model.offsets import OffsetSpan, Span
from recon.model.wire.app_ids import app_id
from recon.model.wire.kafka_state import KafkaState, TopicLogs, dump_kafka_state
from tests.truth.memory import memory_ledger

PIPELINE, SINK, TOPIC = "orders", "lake", "orders"
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

Place = tuple[str, str, int, int]  # topic, topic id, partition, offset


@dataclass
class Log:
    """One partition: what is at every offset since 0 (`record`, `aborted` or `marker`), and what Kafka still holds."""

    kinds: list[str] = field(default_factory=list)
    start: int = 0
    compacted: set[int] = field(default_factory=set)
    stable: int | None = None  # the last stable offset while a transaction is open
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
        self.commits: dict[int, DeltaCommit] = {}
        self.rows: list[Row] = []
        self.lost_files: list[list[Row]] = []  # rows of files that the log names and the store does not have
        self.tables = 0  # how often the table was made
        self.statistics = True  # whether data files carry them
        self.levels_known = True  # whether the hook learns the query's isolation level
        self.states_known = True  # whether the hook learns the state of Kafka's logs
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
        self.interrupted: Callable[[], None] | None = None  # what the next start of the query does first

    # -- Kafka ---------------------------------------------------------------------------------------------------

    def produce(self, count: int = 10, *, transaction: str | None = None, topic: str = TOPIC) -> None:
        """Appends records to every partition; a transaction's end (`committed`, `aborted`) adds a marker."""
        for log in self.topics[topic].logs:
            log.kinds += ["aborted" if transaction == "aborted" else "record"] * count
            log.kinds += ["marker"] if transaction in ("committed", "aborted") else []

    def recreate(self, topic: str = TOPIC, refill: int = 0) -> None:
        """Deletes the topic and makes it anew."""
        self.incarnations += 1
        old = self.topics[topic]
        self.topics[topic] = Topic(topic, f"id-{self.incarnations}", [Log() for _ in old.logs], old.compacts)
        self.produce(refill, topic=topic)

    def expire(self, upto: int) -> None:
        """Retention moves the log start of every partition."""
        for topic in self.topics.values():
            for log in topic.logs:
                log.start = max(log.start, min(upto, log.end))

    def add_partition(self, topic: str = TOPIC) -> None:
        """The topic gets one partition more."""
        self.topics[topic].logs.append(Log())

    def open_transaction(self, count: int, topic: str = TOPIC) -> None:
        """A transaction writes records and stays open: the last stable offset is its first one."""
        for log in self.topics[topic].logs:
            log.stable = log.end if log.stable is None else log.stable
            log.kinds += ["record"] * count

    def end_transaction(self, outcome: Literal["committed", "aborted"], topic: str = TOPIC) -> None:
        """The open transaction ends."""
        for p, log in enumerate(self.topics[topic].logs):
            if log.stable is None:
                continue
            if outcome == "aborted":
                for offset in range(log.stable, log.end):
                    place = (topic, self.topics[topic].topic_id, p, offset)
                    log.kinds[offset] = "aborted"
                    if place in self.expected:
                        self.expected.discard(place)
                        self.wrong.add(place)
            log.kinds.append("marker")
            log.stable = None

    def compact(self, chosen: Callable[[int], bool], topic: str = TOPIC) -> None:
        """Compaction takes records that the stream has read past out of the log."""
        self.topics[topic].compacts = True
        for p, log in enumerate(self.topics[topic].logs):
            end = min(self.query.positions.get((topic, p), 0), log.end)
            log.compacted |= {o for o in range(log.start, end) if log.kinds[o] == "record" and chosen(o)}

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
        spans = []
        for name in query.topics:
            topic = self.topics[name]
            for p, log in enumerate(topic.logs):
                at = query.positions.get((name, p), 0)
                if p in drop:
                    continue
                self.origin.setdefault((name, p), at)
                stable = log.end if log.stable is None or query.isolation == "read_uncommitted" else log.stable
                end = max(at, stable if most is None else min(stable, at + most))
                spans.append(OffsetSpan(name, topic.topic_id, p, min(at + skip, end), end))
                for offset in range(at, min(at + skip, end)):
                    self._read(topic, p, offset)  # passed by, and never written
                query.positions[name, p] = end
        self._plan(spans, finish)
        read: list[Place] = []
        for span in spans:
            topic = self.topics[span.topic]
            read += [
                (span.topic, topic.topic_id, span.partition, offset)
                for offset in range(span.start_offset, span.end_offset)
                if self._read(topic, span.partition, offset)
            ]
        if swallow:
            return
        kept = [place for place in read if not query.filters(place[3])]
        lost = {kept[i] for i in lose if i < len(kept)}
        again = [place for i, place in enumerate(kept) if i in double]
        faulty = [place for place in kept if place not in lost] + again
        if by == "transform" and not again:
            self.expected -= lost  # leaving rows out, and doubling none, is what a transform that filters does
        returned = kept if by == "sink" else faulty
        read = [place for place in read if place not in lost] + again if by == "reader" else read
        self._write(spans, read, returned, faulty, entry=entry, hook=hook, inflated=inflated)

    def crash(self, at: Literal["write", "entry", "commit"], **faults: Any) -> None:
        """The driver dies in a micro-batch: before its write, before its ledger entry, before commits/N."""
        if at == "write":
            self._crash_before_write()
            return
        self.micro_batch(entry=at != "entry", finish=False, **faults)
        version, spans, read, returned = self.last
        stamp = self.commits[version].stamp
        written = self.commits[version].rows_added
        assert stamp is not None and written is not None

        def replay() -> None:
            if at == "entry":
                self.restore_entry(version)
            # A replay takes the counts of the earlier attempt's entry; a restored one has none.
            more: dict[str, Any] = {"status": "already_committed", "attempt": 2}
            more |= NOT_COUNTED if at == "entry" else {}
            self.enter(stamp, spans, read=read, returned=returned, written=written, version=version, **more)

        self.interrupted = replay

    def _crash_before_write(self) -> None:
        """The micro-batch is planned and nothing of it written."""
        self.tick()
        query, spans = self.query, []
        self.number = query.planned[-1].batch_id + 1 if query.planned else 0
        for name in query.topics:
            topic = self.topics[name]
            for p, log in enumerate(topic.logs):
                at = query.positions.get((name, p), 0)
                self.origin.setdefault((name, p), at)
                open_ = log.stable is not None and query.isolation == "read_committed"
                end = max(at, log.stable or 0) if open_ else max(at, log.end)
                spans.append(OffsetSpan(name, topic.topic_id, p, at, end))
                query.positions[name, p] = end
        self._plan(spans, finish=False)

        def replay() -> None:
            read = [
                (s.topic, str(s.topic_id), s.partition, offset)
                for s in spans
                for offset in range(s.start_offset, s.end_offset)
                if self._read(self.topics[s.topic], s.partition, offset)
            ]
            kept = [place for place in read if not query.filters(place[3])]
            self._write(spans, read, kept, kept)

        self.interrupted = replay

    def restart(self) -> None:
        """The query starts again after a crash: it replays the micro-batch that was not finished."""
        if self.interrupted is not None:
            self.tick()
            replay, self.interrupted = self.interrupted, None
            replay()
            self.query.planned[-1] = replace(self.query.planned[-1], committed=True)

    def restore_entry(self, version: int) -> None:
        """The hook restores the entry of a commit from its stamp."""
        commit = self.commits[version]
        assert commit.stamp is not None
        self.enter(
            commit.stamp,
            parse_offsets(commit.stamp.offsets_text),
            read=(),
            returned=(),
            written=commit.rows_added or 0,
            version=version,
            status="rebuilt",
            started_at=commit.timestamp,
            committed_at=commit.timestamp,
            **NOT_COUNTED,
        )

    def purge_checkpoint(self, keep: int) -> None:
        """Spark removes the checkpoint's oldest micro-batches."""
        self.query.planned = self.query.planned[-keep:]

    def set_back(self, batches: int) -> None:
        """An older copy of the checkpoint is put back, which lacks its newest micro-batches."""
        self.query.planned = self.query.planned[:-batches]

    def _read(self, topic: Topic, partition: int, offset: int) -> bool:
        """Whether the stream gets a record there; what it should write is expected from now on."""
        log, place = topic.logs[partition], (topic.name, topic.topic_id, partition, offset)
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

    def _plan(self, spans: Sequence[OffsetSpan], finish: bool) -> None:
        query = self.query
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
        self.rows += [Row(version, query.pipeline, query.epoch, batch_id if hook else None, place) for place in written]
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
            "kafka_state": self.states.pop(stamp.pipeline, None),
            "sink_table_id": self.table_id,
            "sink_version": version,
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

    def _kafka_state(self, after: int) -> str:
        """What the broker says of the logs behind an entry; the next entry has it."""
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
        return dump_kafka_state(KafkaState(asked_at=self.now, after=after, topics=topics))

    def new_checkpoint(self, positions: dict[tuple[str, int], int] | None = None, *, epoch: bool = True) -> None:
        """The checkpoint is removed and the query restarted, from the beginning or from these positions."""
        query = self.query
        number = int(query.query_id.split("-")[1]) + 1
        self.interrupted = None
        starts = {(t, p): log.start for t in query.topics for p, log in enumerate(self.topics[t].logs)}
        self.query = replace(
            query,
            query_id=f"q-{number}",
            epoch=query.epoch + epoch,
            positions={**starts, **(positions or {})},
            planned=[],
        )

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
        self.written[version] = added
        self.commits[version] = DeltaCommit(**{**made, **fields})
        return version

    def commit_again(self, version: int, **changes: Any) -> None:
        """A commit of recon's own is made once more, as without a txn; `changes` are of its stamp."""
        self.tick()
        again = self.commits[version]
        assert again.stamp is not None
        rows = [row for row in self.rows if row.version == version]
        stamp = replace(again.stamp, **changes)
        made = self.commit("WRITE", added=len(rows), stamp=stamp, txn=again.txn)
        self.rows += [replace(row, version=made, batch_id=stamp.batch_id) for row in rows]

    def delete(self, gone: Callable[[Row], bool], *, logged: bool = True) -> None:
        """Rows vanish from the table: by a DELETE, or, not `logged`, because data files are removed from the store."""
        kept = [row for row in self.rows if not gone(row)]
        if logged:
            self.tick()
            predicate = {"predicate": '["(_source_offset = 7)"]' if kept else '["true"]'}
            self.commit("DELETE", removed=len(self.rows) - len(kept), operation_parameters=predicate)
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
        self.commit("OPTIMIZE", files_added=1, files_removed=len(self.commits))

    def compact_and_lose(self, lost: Row) -> None:
        """What says of itself that it is an OPTIMIZE, and leaves a row out."""
        self.tick()
        self.commit(
            "OPTIMIZE",
            added=len(self.rows) - 1,
            removed=len(self.rows),
            data_change=False,
            files_added=1,
            files_removed=len(self.commits),
        )
        self.rows = [row for row in self.rows if row is not lost]

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

    def restore(self, version: int) -> None:
        """RESTORE TABLE … TO VERSION AS OF."""
        self.tick()
        then = self.snapshots.get(version, self.rows)
        back, gone = Counter(then) - Counter(self.rows), Counter(self.rows) - Counter(then)
        parameters = {"version": str(version)}
        self.commit("RESTORE", added=back.total(), removed=gone.total(), operation_parameters=parameters)
        self.rows = list(then)
        self.lost_files = [rows for rows in self.lost_files if rows[0].version <= version]

    def remove_table(self) -> None:
        """The table's folder is removed; the next commit makes it anew, with version 0."""
        self.rows, self.commits, self.lost_files, self.snapshots = [], {}, [], {}

    def drop_table(self) -> None:
        """DROP TABLE and CREATE TABLE: versions begin at 0 again."""
        self.tick()
        self.remove_table()
        self.commit("CREATE TABLE", data_change=False)

    def clean_log(self, keep: int = 1) -> None:
        """The log's files but the newest are cleaned up behind a checkpoint."""
        first = max(min(self.commits), max(self.commits) - keep + 1)
        self.commits = {v: commit for v, commit in self.commits.items() if v >= first}

    def rewrite(self, changed: Callable[[Row], bool], lost: Callable[[Row], bool]) -> None:
        """Another program's UPDATE or MERGE writes rows anew, and leaves some out."""
        self.tick()
        touched = [row for row in self.rows if changed(row)]
        kept = [row for row in touched if not lost(row)]
        version = self.commit("MERGE", added=len(kept), removed=len(touched))
        rest = [row for row in self.rows if not changed(row)]
        self.rows = rest + [replace(row, version=version) for row in kept]

    # -- time, and the truth ----------------------------------------------------------------------------------------

    def tick(self, **delta: float) -> None:
        """Time goes on, by ten seconds or as told."""
        self.now += timedelta(**(delta or {"seconds": 10}))

    @property
    def truth(self) -> Truth:
        """What happened to the records that the stream read past."""
        return self.truth_since(0)

    def truth_since(self, batch_id: int) -> Truth:
        """The same of the records that were read from a micro-batch of the first epoch on."""
        live = Counter(row.place for row in self.rows)
        before = {place for place, at in self.read_by.items() if at < batch_id}
        return Truth(
            lost={place for place in self.expected - before - self.forgiven.lost if not live[place]},
            doubled={
                place
                for place, count in live.items()
                if count > max(1, self.forgiven_rows[place]) and place not in before
            },
            phantom={place for place in self.wrong - before if live[place]},
        )

    def forgive(self) -> None:
        """Somebody accepts what is lost and doubled now: from then on the truth is what is lost or doubled besides."""
        now, live = self.truth, Counter(row.place for row in self.rows)
        self.forgiven = Truth(self.forgiven.lost | now.lost, self.forgiven.doubled | now.doubled, set())
        self.forgiven_rows = Counter({place: live[place] for place in self.forgiven.doubled})


def fingerprint(places: Iterable[Place]) -> int:
    """The fingerprint of the rows of these records."""
    return sum(of_offsets(topic, partition, [offset]) for topic, _, partition, offset in places) % PRIME


def replace_topic_id(span: OffsetSpan, topic_id: str | None) -> OffsetSpan:
    """The range as a checkpoint has it, which knows no topic ids."""
    return span._replace(topic_id=topic_id)
