"""Evidence as plain values, one class per witness. `recon.witness` reads them; `recon.judge` judges them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cached_property
from typing import Any, NamedTuple, Protocol, TypeVar

from recon.model.deletion import AskedDeletion, DeclaredDeletion, DeletedRows
from recon.model.ledger import CountedRows, LedgerSlice
from recon.model.offsets import OffsetSpan, Span, Spans
from recon.model.progress import ProgressWitness
from recon.model.proof import Proofs, SinkProof
from recon.model.source_files import SourceFiles
from recon.model.source_table import SourceTable


@dataclass(frozen=True)
class Unavailable:
    """A witness that was not read, and why.

    `skipped` is True when the user chose not to read it (--no-spark): a check that needs it is then `skipped`, else
    `error`. Neither is ever `pass`.
    """

    witness: str
    reason: str
    skipped: bool = False


W = TypeVar("W")
SourceLog = SourceTable | SourceFiles  # what a query reads besides Kafka, by the log of it


def known(witness: W | Unavailable) -> W | None:
    """The witness, or None where it is `Unavailable`; for those to whom the reason does not matter.

    >>> known(Unavailable("kafka", "no broker")) or {}
    {}
    """
    return None if isinstance(witness, Unavailable) else witness


def why_unknown(witness: object, otherwise: str = "") -> str:
    """Why a witness is not known: the reason of an `Unavailable`, `otherwise` for a witness that was read.

    >>> why_unknown(Unavailable("kafka", "no broker"))
    'no broker'
    """
    return witness.reason if isinstance(witness, Unavailable) else otherwise


# When Kafka was first released, and how far ahead of its own time a broker takes a stamp by default
# (`message.timestamp.after.max.ms`).
_FIRST_RECORDS, _CLOCKS_DIFFER = datetime(2011, 1, 1, tzinfo=UTC), timedelta(hours=1)


@dataclass(frozen=True, kw_only=True)
class KafkaPartition:
    """One topic partition as the broker describes it now, in offsets.

    `log_end` is the end for the stream's isolation level: the last stable offset for read_committed, else
    the high watermark. `unread_since` is the timestamp of the first record at or after a given position. None when
    everything was read, no position was given, or it is no time. `unread_stamp` is the same as the broker has it, in
    milliseconds since 1970. `kept` says of (leader epoch, offset) whether the log below the offset is still that of
    this leader: False after an unclean leader election truncated it. What was not asked, or not answered, is absent.
    """

    partition: int
    log_start: int
    log_end: int
    high_watermark: int
    last_stable: int
    leader_epoch: int | None = None
    unread_since: datetime | None = None
    unread_stamp: int | None = None
    kept: Mapping[tuple[int, int], bool] = field(default_factory=dict)

    def waits_since(self, now: datetime) -> datetime | None:
        """`unread_since` where it may be true: a producer stamps its records with whatever number it likes."""
        since = self.unread_since
        return since if since is not None and _FIRST_RECORDS <= since <= now + _CLOCKS_DIFFER else None


@dataclass(frozen=True, kw_only=True)
class KafkaTopic:
    """A topic as the broker describes it now; `exists` is False for one that the broker does not know.

    `retention_ms` is -1 where nothing is deleted by age, None where the broker does not return it. `cluster_id` is the
    id of the Kafka cluster that has the topic, None where the broker does not give it.
    """

    topic: str
    exists: bool
    topic_id: str | None = None
    cluster_id: str | None = None
    cleanup_policy: str = "delete"
    retention_ms: int | None = None
    partitions: Mapping[int, KafkaPartition] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class KafkaWitness:
    """The topics of a pipeline as Kafka describes them, read at `read_at` (UTC), after the ledger."""

    bootstrap_servers: str
    isolation_level: str
    read_at: datetime
    topics: Mapping[str, KafkaTopic]


@dataclass(frozen=True, kw_only=True)
class CheckpointBatch:
    """One micro-batch in the checkpoint: planned (offsets/N), and perhaps finished (commits/N).

    `ranges` are per Kafka source, with start offsets from batch N-1 or from sources/<i>/0. A partition that is new in N
    is in `new_partitions` alone, as its start is not known. `starts_known` is False for the oldest batch of a purged
    checkpoint, whose predecessor is gone.
    """

    batch_id: int
    planned_at: datetime | None
    committed: bool
    ranges: tuple[OffsetSpan, ...]
    new_partitions: tuple[tuple[int, str, int, int], ...] = ()  # (source, topic, partition, end_offset)
    starts_known: bool = True
    since: int | None = None

    @property
    def label(self) -> str:
        """Its name in a sentence."""
        if self.since is None or self.since == self.batch_id:
            return f"micro-batch {self.batch_id}"
        return f"micro-batches {self.since} to {self.batch_id}"


@dataclass(frozen=True)
class CheckpointFlaw:
    """A file of a checkpoint that is missing between others, empty, or names something twice.

    `problem` is the beginning of a sentence that names the file, `step` its end: what to do; `batch_id` is its
    micro-batch, the first of several.
    """

    batch_id: int
    problem: str
    step: str = "restore the file from a copy"


@dataclass(frozen=True, kw_only=True)
class CheckpointWitness:
    """A Structured Streaming checkpoint: its query_id and the micro-batches it still holds, ascending.

    `stateful` is True where the query keeps state there. `flaws` are by batch_id. `newest_later` is the newest planned
    micro-batch after the ledger was read, looked up where the ledger is ahead; None where it was not. `begins` is where
    the query began, as (source, topic, partition, offset): Spark never removes it. Empty where it is not known.
    """

    location: str
    query_id: str
    batches: Sequence[CheckpointBatch]
    sources: int = 1
    stateful: bool = False
    flaws: Sequence[CheckpointFlaw] = ()
    newest_later: int | None = None
    begins: tuple[tuple[int, str, int, int], ...] = ()

    @property
    def last(self) -> CheckpointBatch | None:
        """The newest planned micro-batch."""
        return self.batches[-1] if self.batches else None


@dataclass(frozen=True, kw_only=True)
class ReconStamp:
    """The stamp on a data commit: which micro-batch of which sink was written.

    `offsets_text` is the canonical text of the ranges (recon.model.wire.stamp): a day of commits is compared without
    parsing. `prev_hash` links to the ledger. A sink that reduces its input (a MERGE) adds `given`, its input rows, and
    `taken`, the rows it applied, where its metrics do not count them. A repair that removed doubled rows adds
    `removed`, `taken` (rows that it put back) and `held` (offsets of its ranges that had a row before). One that read
    offsets again adds `read`, the records, and `filtered`, those without a row for the sink.

    `by` and `reason` are who released or repaired, and why; None for a micro-batch, and where nobody said so.

    `files_digest` is as in `LedgerEntry`, for a query that reads files.

    `number` counts the writes of the sink, from 1 on, across epochs. The driver has read the entries of all writes
    before it, and the sink refuses a number that it has. None where the sink numbers no writes.

    Spark's own Delta sink stamps nothing. Its commits get a stamp when they are read: from the ledger's entry, or from
    the plan in the checkpoint where there is none (recon.witness.observed).
    """

    pipeline: str
    sink: str
    epoch: int
    batch_id: int
    query_id: str
    run_id: str | None
    prev_hash: str
    offsets_text: str

    given: int | None = None
    taken: int | None = None
    removed: int | None = None
    held: int | None = None
    read: int | None = None
    filtered: int | None = None
    number: int | None = None
    by: str | None = None
    reason: str | None = None
    files_digest: str | None = None

    @property
    def rows_read(self) -> int | None:
        """The `rows_read` of its entry: records of a repair, offsets of a removal; None where it says neither."""
        return self.read if self.held is None else self.held

    def is_of(self, pipeline: str, sink: str | None) -> bool:
        """Whether it marks a write of this pipeline's sink."""
        return (self.pipeline, self.sink) == (pipeline, sink)

    @property
    def label(self) -> str:
        """The write in messages."""
        return f"pipeline {self.pipeline}, sink {self.sink}: micro-batch {self.batch_id} (epoch {self.epoch})"


@dataclass(frozen=True, kw_only=True)
class TableCommit:
    """One version of a Delta table, from its commit file, or a snapshot of an Iceberg table.

    Attributes:
        txn: the version by app id.
        rows_added: numRecords, summed over add actions with dataChange=true; None when a file has no statistics. So are
            `rows_removed` over remove actions, and `files_*` count these actions.
        rewrote: the rows added and removed by a commit that replaces files with dataChange=false; None where unknown.
        table_id: the table's id where the commit sets it (a metaData action).
        wrote: the (query_id, batch_id) that Spark's own Delta sink wrote there; None for every other writer.
        made_by: who made a commit without recon's stamp, as the log says (recon.witness.delta_commits). Most writers
            put nothing or only their own name there.
        left_nothing: whether no row of before is left, where the log says so (Iceberg); None where the operation has to
            tell.
        by_catalog: whether a catalog takes the table's commits from this one on; None where the commit does not say.
        removed_rows_of: the versions that wrote the rows of the files that the commit removed; None where it is not
            known of one of the files.
        properties: the summary of an Iceberg snapshot.
    """

    version: int
    timestamp: datetime
    operation: str = ""
    operation_parameters: Mapping[str, Any] = field(default_factory=dict)
    operation_metrics: Mapping[str, Any] = field(default_factory=dict)
    txn: Mapping[str, int] = field(default_factory=dict)
    user_metadata: str | None = None
    stamp: ReconStamp | None
    files_added: int = 0
    files_removed: int = 0
    rows_added: int | None
    rows_removed: int | None = 0
    data_change: bool
    rewrote: tuple[int | None, int | None] | None = None
    table_id: str | None = None
    made_by: Mapping[str, str] = field(default_factory=dict)
    wrote: tuple[str, int] | None = None
    left_nothing: bool | None = None
    by_catalog: bool | None = None
    removed_rows_of: frozenset[int] | None = None
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_deletion(self) -> bool:
        """Whether the commit says that it deletes rows; Iceberg calls a DELETE that rewrites files OVERWRITE."""
        operation = self.operation.upper()
        return operation.startswith("DELETE") or operation == "OVERWRITE"

    @cached_property
    def is_merge(self) -> bool:
        """Whether the commit is a MERGE, which also writes rows that it only copied."""
        return self.operation.upper().startswith("MERGE")

    @cached_property
    def is_restore(self) -> bool:
        """Whether the commit put an older version in place of the newest."""
        return self.operation.upper().startswith("RESTORE")

    @property
    def restored_version(self) -> int | None:
        """The version a RESTORE went back to; None for another operation, or when only a timestamp was given."""
        text = str(self.operation_parameters.get("version")).strip('"')
        return int(text) if self.is_restore and text.isdecimal() else None

    @property
    def adds_rows(self) -> bool:
        """Whether the table has more rows after it than before, or may have."""
        if not (self.data_change and self.files_added) or self.is_restore:
            return False
        return self.rows_added is None or self.rows_removed is None or self.rows_added > self.rows_removed

    @property
    def overwrites(self) -> bool:
        """Whether a write in mode overwrite took away all rows, or those of a part of the table, for its own."""
        mode = str(self.operation_parameters.get("mode", "")).lower()
        return self.operation == "WRITE" and mode == "overwrite" and bool(self.files_added and self.files_removed)

    @cached_property
    def rows_taken(self) -> int | None:
        """The rows that recon's write added or changed; None where neither statistics nor metrics have the count."""
        if self.stamp is not None and self.stamp.taken is not None:
            return self.stamp.taken
        if self.is_merge:
            changed = [self.metric(f"numTargetRows{what}") for what in ("Inserted", "Updated", "Deleted")]
            known = [count for count in changed if count is not None]
            return sum(known) if len(known) == len(changed) else None
        return self.metric("numOutputRows") if self.rows_added is None else self.rows_added

    @property
    def bytes_added(self) -> int | None:
        """The bytes of its new files, as the commit's metrics say."""
        return self.metric("numTargetBytesAdded" if self.is_merge else "numOutputBytes")

    def metric(self, name: str) -> int | None:
        """An operation metric as a number; Spark writes them as text."""
        text = str(self.operation_metrics.get(name))
        return int(text) if text.isdecimal() else None


@dataclass(frozen=True, kw_only=True)
class SinkCommit:
    """One of recon's writes in the sink's own record: a Delta commit, a row of recon_ledger, a marker, a manifest.

    `version` is the Delta version, None where a sink has no versions; `rows` is None where the record has no count.
    `at` is the sink's own time of the commit, UTC.
    """

    version: int | None
    stamp: ReconStamp
    rows: int | None
    at: datetime


@dataclass(frozen=True, kw_only=True)
class LostWrite:
    """A write of which the sink no longer has everything; `lacks` says what, in a clause."""

    stamp: ReconStamp
    lacks: str


@dataclass(frozen=True, kw_only=True)
class SinkChanges:
    """What happened to a sink besides recon's writes, as far as it can be told without reading rows.

    `lost` are writes of which something is gone, or another than was written, oldest first. `replaced` is why the sink
    is not the one that was written into, in a clause; "" where it is, or nobody knows. `foreign` names what others put
    beside recon's writes, where a reader of the sink may take it for rows.
    """

    lost: tuple[LostWrite, ...] = ()
    replaced: str = ""
    foreign: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class TableCount:
    """The rows of a database table that is appended to, and what its record accounts for, as of one moment.

    Attributes:
        rows: how many rows there are, by the topic that their source columns name. The key is None for rows that lack
            one of the three, and for all rows where the table has no such columns.
        numbered: how many of these rows have a `_batch_id`, by topic; empty where the sink does not write its rows with
            their source.
        topics: the topics that the judged sink reads.
        repeated: how many rows of these topics have the topic, partition and offset of another row: all but one of each
            offset. Or why they were not counted.
        written: by pipeline and sink, the rows written into the table as its record says, less doubled ones that
            repairs removed; None where the table has no record.
        removed: doubled rows that repairs of the judged sink removed.
        has_unique_key: whether a writer may replace rows of another by a key.
        others: the writes of other pipelines and sinks since the instant that the record was read from, oldest first;
            all of them where rows are repeated.
        fingerprint: of the source offsets of those rows of these topics that have a `_batch_id`
            (recon.model.fingerprint), or why the database did not compute it. None where there is nothing to compute.
        newest: the number of the judged sink's newest write, into whatever table.
        new: (epoch, batch_id) of its writes into this table after a given number, in order. None where they are too
            many to look at, or there is no record.
    """

    rows: Mapping[str | None, int]
    topics: frozenset[str]
    repeated: int | Unavailable
    written: Mapping[tuple[str, str], int] | None = None
    removed: int = 0
    has_unique_key: bool = False
    others: tuple[SinkCommit, ...] = ()
    numbered: Mapping[str | None, int] = field(default_factory=dict)
    fingerprint: int | Unavailable | None = None
    newest: int = 0
    new: tuple[tuple[int, int], ...] | None = None


@dataclass(frozen=True, kw_only=True)
class RecordCount:
    """How many writes a sink's own record has of all that recon ever made, by their numbers.

    `newest` is the number of the newest one, 0 where there is none. `writes` is how many there are; `rows` is how many
    rows they wrote, None where the record of one does not say. `kept` is (writes, rows) up to a given number.
    """

    newest: int
    writes: int
    rows: int | None
    kept: tuple[int, int | None] = (0, 0)


@dataclass(frozen=True, kw_only=True)
class SinkLog:
    """The sink's own record of recon's writes, oldest first.

    `recorded` is False for a sink that keeps no record: what was written is then known from the ledger alone. `since`
    is the instant from which the record was read, None for the whole record. `other_rows` is how many rows the sink has
    more than its whole record accounts for, negative where rows are gone; None for a sink that cannot tell. `table`
    says more of a database table. `changes` are those of everything that was ever written. `gone` is whether the table
    that was written to is not there; `record` counts the whole record, None where it is not counted.
    """

    location: str
    exists: bool
    commits: tuple[SinkCommit, ...] = ()
    recorded: bool = True
    since: datetime | None = None
    other_rows: int | Unavailable | None = None
    table: TableCount | Unavailable | None = None
    changes: SinkChanges | Unavailable = SinkChanges()
    gone: bool = False
    record: RecordCount | Unavailable | None = None


@dataclass(frozen=True, kw_only=True)
class DataFile:
    """A data file of a Delta table, as the statistics of its add action describe its rows.

    `rows` is None without statistics. `batch_ids` are the lowest and the highest `_batch_id`. `topic`, `partition` are
    known where all rows have the same; `offsets` are then the lowest `_source_offset` and the highest plus one.
    """

    path: str
    rows: int | None = None
    batch_ids: tuple[int, int] | None = None
    topic: str | None = None
    partition: int | None = None
    offsets: Span | None = None


@dataclass(frozen=True, kw_only=True)
class LiveFiles:
    """The data files that a Delta table consists of at its newest version.

    `rows` sums their numRecords, less rows that deletion vectors mark as deleted; None where a file has no statistics
    (`without_statistics` counts these). `gone` are files that are no longer in the store.
    """

    files: int
    rows: int | None
    without_statistics: int = 0
    gone: Sequence[DataFile] | Unavailable = ()


class Unstamped(StrEnum):
    """Why it is not known what a commit of Spark's own sink read, though its query is the pipeline's."""

    BEFORE = "before"  # it precedes the ledger's first entry
    UNSEEN = "unseen"  # Spark had removed its plan from the checkpoint when recon looked
    LATER = "later"  # it is newer than the checkpoint as the audit read it
    ELSEWHERE = "elsewhere"  # its entry is of another period than the audit's


@dataclass(frozen=True, kw_only=True)
class OtherWriter:
    """Another pipeline of recon.yml that writes the judged table.

    Attributes:
        topics: what it reads, as far as recon.yml, its ledger and its checkpoint say; None where none of them does.
        observed: whether it writes without recon, so that its rows carry no batch_id of recon's.
        unstamped: the versions that it wrote, and of which it is not known what was read into them.
        unknown: why its commits are not known; "" where they are.
    """

    pipeline: str
    sink: str
    topics: frozenset[str] | None
    observed: bool = False
    unstamped: frozenset[int] = frozenset()
    unknown: str = ""


@dataclass(frozen=True, kw_only=True)
class TableWords:
    """What messages call a table, its log, the removal of old commits, and the setting for how long these are kept."""

    table: str
    log: str
    removed: str
    retention: str


DELTA_WORDS = TableWords(
    table="Delta table",
    log="Delta log",
    removed="were cleaned up from the log",
    retention="delta.logRetentionDuration",
)
ICEBERG_WORDS = TableWords(
    table="Iceberg table",
    log="Iceberg metadata",
    removed="were expired, and are no longer in the table's metadata",
    retention="history.expire.max-snapshot-age-ms",
)


@dataclass(frozen=True, kw_only=True)
class TableLog:
    """A table's log between two versions, both included; versions that the log no longer holds are absent.

    `first_retained` is the oldest version whose commit file still exists, `last` the newest.
    `log_retention_days` comes from the table's properties. `txns` is the newest txn version per app id over the whole
    table. `table_id` is the id of the table at its newest version, None where it is not known. `files` are its data
    files, where they were looked at. `unstamped` are micro-batches of the pipeline that Spark's own sink wrote and that
    have no stamp, by version. `other_writers` are the other pipelines of recon.yml that write the table.

    An Iceberg table's history is the same witness (recon.witness.iceberg): a snapshot is a commit and its sequence
    number the version. `line` then holds the newest version and its ancestors, `highest` the greatest number that was
    given out. Both are None for a Delta log, whose RESTOREs say what still counts. `whole` is whether the table had no
    rows before the first version of the line.
    """

    location: str
    exists: bool
    first_retained: int | None
    last: int | None
    commits: Mapping[int, TableCommit]
    txns: Mapping[str, int] = field(default_factory=dict)
    log_retention_days: float = 30.0
    table_id: str | None = None
    files: LiveFiles | Unavailable = Unavailable("delta_files", "the data files were not looked at")
    unstamped: Mapping[int, Unstamped] = field(default_factory=dict)
    other_writers: Sequence[OtherWriter] = ()
    line: frozenset[int] | None = None
    highest: int | None = None
    whole: bool = False
    words: TableWords = DELTA_WORDS

    @property
    def files_gone(self) -> Sequence[DataFile] | Unavailable:
        """Its data files that are no longer in the store, or why that is not known."""
        return self.files.gone if isinstance(self.files, LiveFiles) else self.files

    def undone(self, version: int) -> bool:
        """Whether the newest version certainly does not descend from this one, which was given out."""
        if self.line is None or version in self.line or version > (self.highest or 0):
            return False
        return version > min(self.line, default=-1)


@dataclass(frozen=True, kw_only=True)
class CommitRows:
    """The rows of the data files that one commit added to a Delta table, whatever became of them since.

    `held` counts them, with the fingerprint of their source offsets. `offsets` is how many different ones they have;
    `spans` are, per topic partition, from the lowest to the highest. `present` returns exactly those that are there, in
    the order of `spans`.
    """

    version: int
    held: CountedRows
    offsets: int
    spans: Sequence[OffsetSpan] = ()
    present: Callable[[], Sequence[Spans]] = field(default=tuple, repr=False, compare=False)


WITHOUT_NUMBER = -1  # batch_id of rows that do not say which micro-batch wrote them


# By topic and partition: the offset that was read next, for each topic id under which any was read.
ReadBefore = Mapping[tuple[str, int], Mapping[str | None, int]]


@dataclass(frozen=True, kw_only=True)
class SeenDeletions:
    """What was read of declared deletions of one sink.

    `rows` are those that a commit deleted, by version. `read_before` is how far the stream had read, by instant.
    """

    rows: Mapping[int, DeletedRows | Unavailable] = field(default_factory=dict)
    read_before: Mapping[datetime, ReadBefore | Unavailable] = field(default_factory=dict)

    def joined(self, later: SeenDeletions) -> SeenDeletions:
        """What this and a later reading say together."""
        return SeenDeletions(rows={**self.rows, **later.rows}, read_before={**self.read_before, **later.read_before})


@dataclass(frozen=True, kw_only=True)
class RowGroup:
    """Rows of one (batch_id, topic, partition) in the sink: how many, over which offsets.

    The batch_id is `WITHOUT_NUMBER` where rows do not say which micro-batch wrote them.
    Of quarantined rows, `epoch` is the micro-batch's. `release` is the number of the release that took them (then
    `batch_id` is that number, too); None before their release. `fingerprint` is that of the rows' source offsets
    (recon.model.fingerprint), None where it was not computed. `twice` are offsets that have two rows each, as far as
    the reader can tell: where the group has more rows than offsets in `present` and `twice`, some have three or more.
    """

    batch_id: int
    topic: str
    partition: int
    rows: int
    present: Spans
    epoch: int = 0
    release: int | None = None
    fingerprint: int | None = None
    twice: Spans = field(default_factory=Spans)

    @property
    def surplus(self) -> int:
        """How many rows there are more than offsets."""
        return self.rows - self.present.size

    @property
    def maybe_doubled(self) -> Spans:
        """The offsets that have two rows each; all offsets where those do not account for the rows too many."""
        return self.twice if self.surplus <= self.twice.size else self.present


@dataclass(frozen=True, kw_only=True)
class RowsWitness:
    """The sink's rows, read once: groups per (batch_id, topic, partition).

    `unstamped_rows` counts rows with no `_batch_id`; `groups` is empty when the table has no source columns
    (`has_source_columns` False), and then row-level questions cannot be answered. `quarantined` are groups of the
    sink's quarantine table, of rows not released yet and of released rows. `repeated` has the offsets of rows of
    others' commits that have several rows in the whole table. It has a group per topic partition and number of rows
    that each offset has, with `batch_id` 0. `of_others` has, in the same form, all offsets of a `RowSearch` that the
    table has; `batch_id` is `WITHOUT_NUMBER` where a row that was looked for has no `_batch_id`. `of` names the
    micro-batches, as (epoch, batch_id), whose rows alone were read; None where those of all micro-batches of the period
    were.
    """

    location: str
    version: int | None
    rows: int
    unstamped_rows: int
    has_source_columns: bool
    groups: Sequence[RowGroup]
    quarantined: Sequence[RowGroup] = ()
    repeated: Sequence[RowGroup] = ()
    of_others: Sequence[RowGroup] = ()
    of: frozenset[tuple[int, int]] | None = None


@dataclass(frozen=True, kw_only=True)
class RowSearch:
    """Which rows of a table with history are looked for, by their offsets, among all of its rows.

    Attributes:
        versions: those that these versions added.
        offsets: those of these offsets, by topic partition.
        unnumbered: those without a `_batch_id`, whichever version added them.
    """

    versions: Sequence[int] = ()
    offsets: Mapping[tuple[str, int], Spans] = field(default_factory=dict)
    unnumbered: bool = False

    def __bool__(self) -> bool:
        return bool(self.versions or self.offsets or self.unnumbered)


@dataclass(frozen=True, kw_only=True)
class QuarantinedRows:
    """The rows of a sink's quarantine table, counted, and those that the whole ledger says went there and left it.

    `rows` has them by (epoch, batch_id, number of the release that claimed them, None while they wait). `entered` are
    the rows that entries count as quarantined, by (epoch, batch_id). `released` are those that releases took, by
    number. None where no entry says how many.
    """

    rows: Mapping[tuple[int | None, int | None, int | None], int]
    entered: Mapping[tuple[int, int], int | None]
    released: Mapping[int, int | None]


@dataclass(frozen=True, kw_only=True)
class ProbeAnswer:
    """The offsets that two readers receive in a stretch of one topic partition.

    `uncommitted` and `committed` are the offsets that a read_uncommitted and a read_committed reader received. Both are
    exact inside `requested` when `truncated` is None; else it says why the probe is incomplete.
    """

    topic: str
    partition: int
    requested: Spans
    uncommitted: Spans = field(default_factory=Spans)
    committed: Spans = field(default_factory=Spans)
    log_start: int = 0
    last_stable: int = 0
    truncated: str | None = None

    @cached_property
    def aborted(self) -> Spans:
        """The offsets of records that a read_committed reader does not receive."""
        return self.uncommitted.minus(self.committed)

    @property
    def stable(self) -> Spans:
        """The offsets that Kafka has not deleted, up to the first open transaction."""
        return Spans.of([(self.log_start, max(self.log_start, self.last_stable))])

    @cached_property
    def shown(self) -> Spans:
        """The offsets in question of which it says whether they have a record."""
        return self.requested.intersect(self.stable)

    def tells(self, span: Span) -> bool:
        """Whether it is exact for all of a range: nothing was deleted when Kafka was asked, and no transaction open."""
        return self.truncated is None and not Spans.of([span]).minus(self.shown)

    def joined(self, later: ProbeAnswer) -> ProbeAnswer:
        """What this answer and a later one about the same topic partition say together."""
        return replace(
            later,
            requested=self.requested.union(later.requested),
            uncommitted=self.uncommitted.union(later.uncommitted),
            committed=self.committed.union(later.committed),
            log_start=max(self.log_start, later.log_start),
            last_stable=min(self.last_stable, later.last_stable),
            truncated=self.truncated or later.truncated,
        )


@dataclass(frozen=True, kw_only=True)
class KnownTable:
    """A Delta table as an earlier audit read it, at `read_at`: its id, and its newest version.

    `counted` is (version, rows): how many rows the table had at the newest version at which an audit accounted for
    every one of them. `position` is the sequence number of the newest entry that was judged by then; None where no
    proof says so.
    """

    table_id: str
    version: int
    read_at: datetime
    counted: tuple[int, int] | None = None
    position: int | None = None


class ChainEnd(NamedTuple):
    """The newest entry of a chain that an audit read at `at`, UTC: its sequence number and its entry_hash."""

    sequence: int
    entry_hash: str
    at: datetime


@dataclass(frozen=True, kw_only=True)
class PreviousAudit:
    """Values from the last audit of a pipeline, so that the next one notices what changed since.

    Partitions are (topic, partition).

    Attributes:
        chain_ends: by sink, the newest entry of its chain that any audit read.
        log_ends: by partition, the log end offset.
        log_ended: by partition, a time before which the log had not gone beyond that offset.
        log_starts: by partition, an earlier log start offset, and when an audit of the last days read it.
        ledger_version: the version up to which the ledger table's own history was checked.
        proof_states: by sink, the number of states of its proof that an audit found.
        erasures: by sink, the number of its erasures that an audit found, and the hash of the newest.
        tables: by sink, the sink's Delta table as it was read last.
        found: the stored results with findings of audits that went on from the proof, oldest first.
        hashes: one hash of all results that an audit stored, by its invocation id.
    """

    generated_at: datetime
    chain_ends: Mapping[str, ChainEnd] = field(default_factory=dict)
    log_ends: Mapping[tuple[str, int], int] = field(default_factory=dict)
    log_ended: Mapping[tuple[str, int], datetime] = field(default_factory=dict)
    log_starts: Mapping[tuple[str, int], tuple[datetime, int]] = field(default_factory=dict)
    ledger_version: int | None = None
    proof_states: Mapping[str, int] = field(default_factory=dict)
    erasures: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    tables: Mapping[str, KnownTable] = field(default_factory=dict)
    found: Sequence[Mapping[str, Any]] = ()
    hashes: Mapping[str, str] = field(default_factory=dict)


class AuditTime(NamedTuple):
    """The period of an audit, from `begin` (None: the stream's) to `end`, and the audit's clock."""

    begin: datetime | None
    end: datetime
    now: datetime

    @property
    def is_past(self) -> bool:
        """Whether the period ends before now."""
        return self.end < self.now


@dataclass(frozen=True, kw_only=True)
class DeclaredRows:
    """What recon.yml says that a pipeline's transform does with rows; None where it does not say.

    `filters`: it drops rows. `explodes`: it makes several rows of one record. `max_filtered`: the share of a
    micro-batch's rows that it may drop, 0 to 1.
    """

    filters: bool | None = None
    explodes: bool | None = None
    max_filtered: float | None = None


class Writing(NamedTuple):
    """How a query writes a sink.

    `observed` is whether without recon, `rewrites` whether later micro-batches may replace rows of earlier ones,
    `guarantee` what the sink claims, `declared` what recon.yml says of the transform.
    """

    observed: bool
    rewrites: bool
    guarantee: str
    declared: DeclaredRows


Questions = Mapping[tuple[str, int], Spans]
Answers = Mapping[tuple[str, int], ProbeAnswer]


def joined(before: Answers, later: Answers) -> Answers:
    """Kafka's answers, with those of later questions."""
    told = {where: before[where].joined(answer) if where in before else answer for where, answer in later.items()}
    return {**before, **told}


class Reader(Protocol):
    """Reads for one check, when it asks, what costs more than the other witnesses.

    What cannot be read is `Unavailable`, with the reason. It remembers what it read.
    """

    def rows(self) -> RowsWitness | Unavailable:
        """The rows of the judged sink: a Spark job."""

    def commit_rows(self, versions: Sequence[int]) -> Mapping[int, CommitRows | Unavailable]:
        """The rows in the data files that some commits of the judged sink added, without Spark."""

    def deletions(self, asked: Sequence[AskedDeletion], instants: Collection[datetime]) -> SeenDeletions:
        """The rows that some commits of the judged sink deleted, and how far the stream had read at some instants."""

    def answers(self, questions: Questions) -> Answers | Unavailable:
        """What Kafka's own records say about some offsets: a scan of the topic from there on."""


def answered(reader: Reader | None, answers: Answers, questions: Callable[[Answers], Questions]) -> Answers:
    """Kafka's answers, with those to the questions that they leave, and to the questions that these leave.

    It ends where there are no further answers, or nothing is asked that was not asked before.
    """
    asked = dict[tuple[str, int], Spans]()
    while reader is not None:
        wanted = {where: spans for where, spans in questions(answers).items() if spans.minus(asked.get(where, Spans()))}
        more = reader.answers(wanted) if wanted else {}
        if isinstance(more, Unavailable) or not wanted:
            break
        asked |= {where: spans.union(asked.get(where, Spans())) for where, spans in wanted.items()}
        answers = joined(answers, more)
    return answers


@dataclass(frozen=True, kw_only=True)
class Witnesses:
    """All evidence for the checks of one pipeline (and one sink); a missing witness is an `Unavailable`.

    Attributes:
        sink: the judged sink; None for a pipeline-level check. Mappings with sinks as keys are of the pipeline's sinks.
        now: the audit's clock, so that no check reads the time.
        delta: the log of each sink that is a Delta or Iceberg table; `sink_logs` has the own record of each other.
        previous: None where no audit came before; `proofs` has the state that earlier audits left of each sink.
        quarantine: the log of each sink's quarantine table; `quarantine_rows` counts rows where it leaves a question.
        guarantees: what each sink claims.
        rewriting: sinks whose rows later micro-batches may replace.
        routed: sinks that the pipeline's routes lead to; none where it has no routes.
        topics: those of Kafka that recon.yml names; none where it is not known.
        progress: Spark's own report of each micro-batch, empty where no listener recorded it.
        observed: whether the query writes without recon (`write: native` or `foreach_batch`).
        own_function: whether a function of the user's own writes (`write: foreach_batch`).
        placed_by_rows: whether nothing but a commit's rows says which micro-batch it is of.
        source_columns: the user's columns with the source of each row, for an observed query; "" for none.
        source_log: the Delta table or the folder that the query reads; None for a query that reads Kafka.
        declared: what recon.yml says of the transform.
        commit_rows: by version, the rows of those commits of the sink that a check asks for.
        of_others: of each sink whose rows were read, what `RowsWitness.of_others` says.
        deletes: by sink, the deletions that recon.yml declares.
        deletions: by sink, what a check read of its declared deletions.
        reader: reads `rows`, `commit_rows` and `probes` when a check asks (`with_rows` and the like); None where
            nothing more can be read.
    """

    pipeline: str
    sink: str | None
    now: datetime
    isolation_level: str
    period_from: datetime | None
    period_to: datetime
    ledgers: Mapping[str, LedgerSlice] | Unavailable
    checkpoint: CheckpointWitness | Unavailable
    kafka: KafkaWitness | Unavailable
    delta: Mapping[str, TableLog] | Unavailable
    rows: RowsWitness | Unavailable
    probes: Mapping[tuple[str, int], ProbeAnswer] = field(default_factory=dict)
    previous: PreviousAudit | Unavailable | None = None
    quarantine: Mapping[str, TableLog | Unavailable] | Unavailable = Unavailable("quarantine", "not read")
    quarantine_rows: Mapping[str, QuarantinedRows | Unavailable] = field(default_factory=dict)
    sink_logs: Mapping[str, SinkLog] | Unavailable = Unavailable("sink_logs", "not read")
    guarantees: Mapping[str, str] = field(default_factory=dict)
    rewriting: Collection[str] = ()
    routed: Collection[str] = ()
    topics: Collection[str] = ()
    progress: ProgressWitness | Unavailable = Unavailable("progress", "not read")
    observed: bool = False
    own_function: bool = False
    placed_by_rows: bool = False
    source_columns: str = ""
    source_log: SourceLog | Unavailable | None = None
    proofs: Proofs = field(default_factory=Proofs)
    declared: DeclaredRows = DeclaredRows()
    commit_rows: Mapping[int, CommitRows | Unavailable] = field(default_factory=dict)
    of_others: Mapping[str, Sequence[RowGroup]] = field(default_factory=dict)
    deletes: Mapping[str, tuple[DeclaredDeletion, ...]] = field(default_factory=dict)
    deletions: Mapping[str, SeenDeletions] = field(default_factory=dict)
    reader: Reader | None = field(default=None, repr=False, compare=False)

    def with_rows(self) -> Witnesses:
        """The same with the rows of the judged sink, which are read now."""
        return self if self.reader is None else replace(self, rows=self.reader.rows())

    def with_commit_rows(self, versions: Sequence[int]) -> Witnesses:
        """The same with the rows of some commits of the judged sink, which are read now."""
        if self.reader is None or not versions:
            return self
        return replace(self, commit_rows={**self.commit_rows, **self.reader.commit_rows(versions)})

    def with_deletions(self, asked: Sequence[AskedDeletion], instants: Collection[datetime]) -> Witnesses:
        """The same with what some declared deletions of the judged sink deleted, which is read now."""
        if self.reader is None or not asked:
            return self
        sink, read = self.sink or "", self.reader.deletions(asked, instants)
        seen = self.deletions.get(sink, SeenDeletions()).joined(read)
        return replace(self, deletions={**self.deletions, sink: seen})

    def with_answers(self, questions: Callable[[Witnesses], Questions]) -> Witnesses:
        """The same with Kafka's answers to the questions that they leave, and to those that the answers leave.

        See `answered`.
        """
        probes = answered(self.reader, self.probes, lambda so_far: questions(replace(self, probes=so_far)))
        return replace(self, probes=probes)

    @property
    def time(self) -> AuditTime:
        """The audited period, and the audit's clock."""
        return AuditTime(self.period_from, self.period_to, self.now)

    @property
    def is_unrouted(self) -> bool:
        """Whether the pipeline has routes, and none leads to the judged sink any more: the query does not write it."""
        return bool(self.routed) and self.sink not in self.routed

    @property
    def may_write_nothing(self) -> bool:
        """Whether a micro-batch with records may leave no commit: a function need not write what it filtered whole."""
        return self.own_function and self.declared.filters is not False

    @property
    def ledger(self) -> LedgerSlice | None:
        """The judged sink's entries; None where they were not read."""
        return self._of_sink(self.ledgers)

    @property
    def table_log(self) -> TableLog | None:
        """The log of the judged sink, a Delta or Iceberg table; None where it is none, or was not read."""
        return self._of_sink(self.delta)

    @property
    def sink_record(self) -> SinkLog | None:
        """The own record of the judged sink, where it is no Delta or Iceberg table; None where it was not read."""
        return self._of_sink(self.sink_logs)

    @property
    def quarantine_log(self) -> TableLog | Unavailable | None:
        """The log of the judged sink's quarantine table; None where there is none."""
        return self._of_sink(self.quarantine)

    @property
    def proof(self) -> SinkProof | None:
        """The state that earlier audits left of the judged sink; None before the first."""
        return self.proofs.of_sink.get(self.sink or "")

    def memory(self, kind: type[W]) -> W | None:
        """What earlier audits remember of the judged sink, of one kind; None for nothing."""
        return self.proofs.memory(self.sink, kind)

    def _of_sink(self, by_sink: Mapping[str, W] | Unavailable) -> W | None:
        return (known(by_sink) or {}).get(self.sink or "")

    def topic(self, name: str) -> KafkaTopic | None:
        """A topic as Kafka describes it; None where it was not read."""
        kafka = known(self.kafka)
        return None if kafka is None else kafka.topics.get(name)
