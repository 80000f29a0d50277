"""One look at a stream that writes without recon: which of its micro-batches the ledger lacks, and what they read."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeVar

from recon.base.clock import utc_now
from recon.base.errors import EvidenceError
from recon.base.storage import Storage
from recon.base.text import plural, some
from recon.model import (
    CheckpointBatch,
    CheckpointWitness,
    LedgerEntry,
    ReconStamp,
    TableCommit,
    TableLog,
    offsets_text,
)
from recon.model.offsets import OffsetSpan
from recon.model.positions import is_kafka
from recon.model.wire.kafka_state import KafkaState, dump_kafka_state
from recon.project import Pipeline, Project, Sink
from recon.witness import checkpoint, commit_rows, delta_log, kafka_logs
from recon.witness.kafka_admin import KafkaAdmin
from recon.witness.observed import (
    attributed,
    front_of,
    is_by_rows,
    is_of_entry,
    is_of_plan,
    plans,
    ranges_of,
    written,
)
from recon.witness.observed_rows import Placed, placed
from recon.witness.source_files import LogDigest
from recon.write.ledger import Ledger
from recon.write.ledger.entries import new_entry

# Micro-batches that wait for a broker which does not give their topics' ids; Spark keeps 100 in the checkpoint.
_WAIT_AT_MOST = 50
_RECENT = 100  # the newest entries, among which is one of a micro-batch
_KAFKA_S = 10.0
T = TypeVar("T")
# Puts a question to the broker of these settings; raises EvidenceError where it does not answer.
Ask = Callable[[Mapping[str, str], Callable[[], T]], T]


@dataclass(frozen=True, kw_only=True)
class ObservationResult:
    """What one look found.

    Attributes:
        entered: the entries that were made, oldest first.
        unseen: batch ids that the query wrote since the newest entry, and whose plan the checkpoint no longer has:
            what they read is not known. Before the first entry, every stream that ran for long has some.
        waits: why micro-batches were left for the next look, in a sentence; "" where none were.
    """

    entered: Sequence[LedgerEntry] = ()
    unseen: Sequence[int] = ()
    waits: str = ""


@dataclass(frozen=True)
class _Observed:
    """A micro-batch that the table has, with its plan."""

    commit: TableCommit
    batch: CheckpointBatch
    ranges: tuple[OffsetSpan, ...]


def look(project: Project, pipeline: Pipeline, ledger: Ledger, ask: Ask, *, from_batch: int = 0) -> ObservationResult:  # type: ignore[type-arg]
    """Enters the micro-batches of a query that the table has and the ledger lacks, in the order of their commits.

    Only whole micro-batches of the query in the checkpoint are entered: those that another query wrote into the table
    are another program's. Somebody else may enter them at the same moment; then nothing is entered twice.

    Args:
        project: a loaded recon.yml.
        pipeline: one that it observes, or one that recon writes from now on; it has one sink.
        ledger: the project's.
        ask: puts a question to a broker, such as `recon.audits.sources.Brokers.ask`.
        from_batch: micro-batches before this one are left out.

    Raises:
        EvidenceError: the table's log or the checkpoint cannot be read.
        LedgerError: the ledger cannot be read or written.
    """
    (sink,) = pipeline.sinks
    position = ledger.end(pipeline.name, sink.name, again=True)
    recent = ledger.last(pipeline.name, sink.name, _RECENT) if position else []
    newest = _newest(recent)
    entered = {entry.sink_version: entry for entry in recent if entry.is_observed and entry.sink_version is not None}
    # The log before the checkpoint: whatever it holds was planned before, and is in the checkpoint or was purged.
    location = project.location(sink)
    if reason := project.why_unlocated(location):
        raise EvidenceError(reason)
    table = Storage(location, project.storage_options)
    log = _log(table, newest)
    app_id = sink.observed_app_id
    if not pipeline.placed_by_rows and not any(
        commit.wrote is not None or app_id in commit.txn for commit in log.commits.values()
    ):
        return ObservationResult()
    at = Storage(project.resolve(pipeline.checkpoint), project.storage_options)
    state = checkpoint.read(at, positions=not pipeline.of_kafka)
    rows = _placed(pipeline, sink, table, log, state, recent)
    log = attributed(log, app_id, state, by_rows=rows.numbers)
    found, unseen, taken = [], [], set()
    planned = plans(state)
    for commit, (query_id, batch_id) in written(log):
        known = entered.get(commit.version)
        if batch_id < from_batch or (known is not None and is_of_entry(commit, known)):
            continue
        batch = planned.get((query_id, batch_id))
        if is_by_rows(commit):
            if rows.unread and commit.version > min(rows.unread):
                break
            if batch is None or not batch.committed or batch_id in taken or _is_entered(batch_id, query_id, newest):
                continue  # Spark tries it again; or it was written twice, which is for an audit to say
            taken.add(batch_id)
        if batch is not None and batch.starts_known and is_of_plan(commit, batch):
            if commit.files_removed:
                return ObservationResult(
                    waits=f"micro-batch {batch_id} of query {query_id} replaced rows of {log.location} (version "
                    f"{commit.version}): recon observes queries that append (outputMode append) alone; "
                    "append, or let recon merge by key (docs/delta_merge.md)"
                )
            ranges = ranges_of(batch, pipeline.source.beginning)
            if not ranges and commit.rows_taken != 0:
                return ObservationResult(
                    waits=f"micro-batch {batch_id} of query {query_id} has no offsets in {state.location} that recon "
                    "knows: it proves streams that read Kafka, or one Delta table or folder that recon.yml names "
                    "(source: delta, or files)"
                )
            found.append(_Observed(commit, batch, ranges))
        elif query_id == state.query_id:
            unseen.append(batch_id)
    if not found:
        others = "" if unseen else _of_other_queries(log, state, _queries_of_others(project, pipeline, sink, ledger))
        return ObservationResult(unseen=unseen, waits=others or _not_placed(rows, log))
    found = _with_log_starts(found, project.kafka, ask, pipeline.source.beginning)
    try:
        found = _with_topic_ids(found, project.kafka, ask)
    except EvidenceError as error:
        if len(found) < _WAIT_AT_MOST:
            wait = f"{plural(len(found), 'micro-batch')} of the table wait for an entry until the broker gives the ids"
            return ObservationResult(unseen=unseen, waits=f"{wait} of their topics: {error}")
    entries = list(_entries(found, newest, pipeline.name, sink, location, log, LogDigest(at)))
    kafka_state = _kafka_state(found, position + len(entries), project.kafka, ask)
    entries[-1] = replace(entries[-1], kafka_state=kafka_state)
    return ObservationResult(
        entered=ledger.extend(entries, after=position), unseen=unseen, waits=_not_placed(rows, log)
    )


def _placed(
    pipeline: Pipeline,
    sink: Sink,
    table: Storage,
    log: TableLog,
    state: CheckpointWitness,
    recent: Sequence[LedgerEntry],
) -> Placed:
    names = pipeline.source_names(sink)
    if not pipeline.placed_by_rows or names is None:
        return Placed()
    explodes = bool(pipeline.rows.explodes)
    return placed(log, state, recent, lambda versions: commit_rows.together(table, versions, names), explodes=explodes)


def _is_entered(batch_id: int, query_id: str, newest: LedgerEntry | None) -> bool:
    return newest is not None and newest.query_id == query_id and newest.batch_id >= batch_id


def _not_placed(rows: Placed, log: TableLog) -> str:
    """Why commits in the time of a micro-batch were taken for none; "" where there are none."""
    for version, reason in sorted({**rows.unfit, **rows.unread}.items()):
        return f"version {version} of {log.location} was taken for no micro-batch: {reason}"
    return ""


def _queries_of_others(project: Project, pipeline: Pipeline, sink: Sink, ledger: Ledger) -> set[str]:
    """The queries of the other pipelines of recon.yml that write the table, as far as they are known."""
    found = set()
    for other, its in project.other_writers(pipeline, sink):
        found |= {entry.query_id for entry in ledger.last(other.name, its.name, _RECENT)}
        with suppress(EvidenceError):  # a query that never ran has no checkpoint yet
            found.add(checkpoint.query_id(Storage(project.resolve(other.checkpoint), project.storage_options)))
    return found


def _of_other_queries(log: TableLog, state: CheckpointWitness, known: Collection[str]) -> str:
    """Which query wrote the table, where it is neither the one of the checkpoint nor another pipeline's."""
    wrote = {query_id for _, (query_id, _) in written(log) if query_id}
    if wrote <= {*known} or state.query_id in wrote:
        return ""
    wrote -= {*known}
    return (
        f"{log.location} was written by query {some(sorted(wrote))}, and checkpoint {state.location} is of query "
        f"{state.query_id}: correct the pipeline's checkpoint or the sink's target in recon.yml"
    )


def _newest(entries: Iterable[LedgerEntry]) -> LedgerEntry | None:
    """The micro-batch that got furthest."""
    batches = [entry for entry in entries if entry.is_micro_batch]
    return max(batches, key=lambda entry: (entry.epoch, entry.batch_id), default=None)


def _log(storage: Storage, newest: LedgerEntry | None) -> TableLog:
    """The table's log behind the newest entry; all of it where the table is not the one of then.

    It was made anew, or put back from a copy: then the entry's version is another commit, or there is none yet.
    """
    if newest is None or newest.sink_version is None:
        return delta_log.read(storage)
    log = delta_log.read(storage, from_version=newest.sink_version)
    commit = log.commits.get(newest.sink_version)
    shorter = log.last is not None and log.last < newest.sink_version
    another = None not in (log.table_id, newest.sink_table_id) and log.table_id != newest.sink_table_id
    if shorter or another or (commit is not None and newest.is_observed and not is_of_entry(commit, newest)):
        return delta_log.read(storage)
    return replace(log, commits={v: commit for v, commit in log.commits.items() if v > newest.sink_version})


def _with_log_starts(
    found: Sequence[_Observed],
    conf: Mapping[str, str],
    ask: Ask,  # type: ignore[type-arg]
    beginning: int,
) -> list[_Observed]:
    """With the offsets at which Spark began to read the partitions that are new in a plan: their log starts.

    Kafka may have deleted records since, after Spark read them. The log start of now is that of then where the commit
    has as many rows as there are offsets from it on. Otherwise, or where no broker says it, the start stays 0.
    """
    new = sorted({(topic, p) for of in found for _, topic, p, _ in of.batch.new_partitions if is_kafka(topic)})
    if "bootstrap.servers" not in conf or not new:
        return list(found)
    try:
        starts: Mapping[tuple[str, int], int] = ask(conf, lambda: KafkaAdmin(conf).log_starts(new, _KAFKA_S))
    except EvidenceError:
        return list(found)

    def begun(observed: _Observed) -> _Observed:
        ranges = ranges_of(observed.batch, beginning, starts)
        agree = observed.commit.rows_taken == sum(span.end_offset - span.start_offset for span in ranges)
        return replace(observed, ranges=ranges) if agree else observed

    return [begun(observed) if observed.batch.new_partitions else observed for observed in found]


def _with_topic_ids(found: Sequence[_Observed], conf: Mapping[str, str], ask: Ask) -> list[_Observed]:  # type: ignore[type-arg]
    """With the ids of their topics as the broker gives them now; without a broker in recon.yml none are known.

    A topic that was created again between the micro-batch and the look has the new one's id.
    """
    if "bootstrap.servers" not in conf:
        return list(found)
    topics = sorted({span.topic for observed in found for span in observed.ranges if is_kafka(span.topic)})
    ids: Mapping[str, str | None] = ask(conf, lambda: KafkaAdmin(conf).topic_ids(topics, _KAFKA_S)) if topics else {}
    return [
        replace(observed, ranges=tuple(s._replace(topic_id=s.topic_id or ids.get(s.topic)) for s in observed.ranges))
        for observed in found
    ]


def _entries(
    found: Iterable[_Observed],
    newest: LedgerEntry | None,
    pipeline: str,
    sink: Sink,
    target: str,
    log: TableLog,
    files: LogDigest,
) -> Iterable[LedgerEntry]:
    front = front_of(newest)
    for observed in found:
        commit, batch = observed.commit, observed.batch
        assert commit.wrote is not None
        query_id = commit.wrote[0]
        front = front._replace(
            epoch=front.epoch_of(query_id, batch.batch_id), query_id=query_id, batch_id=batch.batch_id
        )
        stamp = ReconStamp(
            pipeline=pipeline,
            sink=sink.name,
            epoch=front.epoch,
            batch_id=front.batch_id,
            query_id=query_id,
            run_id=None,
            prev_hash="",
            offsets_text=offsets_text(observed.ranges),
            files_digest=files.of(observed.ranges),
        )
        entry = new_entry(
            stamp,
            sink.as_observed(),
            "observed",
            target=target,
            offsets=observed.ranges,
            read=None,
            written=commit.rows_taken,
            quarantined=None,
            filtered=None,
            version=commit.version,
            started_at=batch.planned_at or commit.timestamp,
            sink_table_id=log.table_id,
        )
        # The commit's own time: an audit of that period judges it, whenever it was entered.
        yield replace(entry, committed_at=commit.timestamp)


def _kafka_state(found: Sequence[_Observed], after: int, conf: Mapping[str, str], ask: Ask) -> str | None:  # type: ignore[type-arg]
    """What the broker says of the logs after all of these were read; None where it does not say."""
    partitions = {
        (span.topic, span.partition) for observed in found for span in observed.ranges if is_kafka(span.topic)
    }
    if "bootstrap.servers" not in conf or not partitions:
        return None
    asked_at = utc_now()
    names = sorted({topic for topic, _ in partitions})
    try:
        topics = ask(conf, lambda: kafka_logs.offsets(KafkaAdmin(conf), partitions, _KAFKA_S))
        cluster = ask(conf, lambda: KafkaAdmin(conf).cluster(names, _KAFKA_S))
    except EvidenceError:
        return None
    return dump_kafka_state(KafkaState(asked_at=asked_at, after=after, topics=topics, cluster=cluster))
