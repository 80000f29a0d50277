"""What became of source records in the sinks of a pipeline: the writes that the ledger has, the rows, the quarantine.

A path says only what witnesses show, and names those that are missing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property

from recon.base.errors import EvidenceError, LedgerError, ReconError
from recon.base.lazy import np
from recon.base.limits import STATEMENT_S, within
from recon.base.storage import Storage
from recon.base.text import plural, some
from recon.judge.row_counts import Counts, Processing, counted_entries
from recon.judge.second_calls import filtered_for_sure
from recon.judge.stateful_operators import Operators
from recon.model import EntryHead, KafkaWitness, LedgerSlice, ProbeAnswer, Unavailable, known
from recon.model.offsets import Spans
from recon.model.proof import OpenFinding
from recon.model.sample import FoundRow, Outcome, Place, SampledPath, SampledWrite, SourceRecord
from recon.model.wire.columns import RELEASE, SourceNames
from recon.project import Pipeline, Project, Sink
from recon.recovery.topic_clusters import clusters_of
from recon.witness import checkpoint, commit_rows, delta_log, delta_rows, observed
from recon.write.ledger import Ledger, quarantined
from recon.write.sinks import BatchSink, open_sink

_CALLED_TWICE = "the hook was called twice for the micro-batch, and the call that was not written may have had it"
_STAMPED = "carries this micro-batch's stamp"
_UNFILTERED = "nothing of the micro-batch was filtered"
_Said = tuple[KafkaWitness, Mapping[tuple[str, int], ProbeAnswer]]
_Found = tuple[Outcome, str, tuple[str, ...]]  # with the places that have it
_EDGE = timedelta(minutes=5)  # clocks of the driver and of the sink may be so far apart


class Broker:
    """What Kafka says of some records; asked once, and only when a sink has no row of one."""

    def __init__(self, project: Project, ledger: Ledger, pipeline: Pipeline, records: Sequence[SourceRecord]) -> None:
        self._project, self._ledger, self._pipeline, self._records = project, ledger, pipeline, records

    @cached_property
    def _said(self) -> _Said | Unavailable:
        """What the broker answered, or why it did not."""
        try:
            return self._answers()
        except ReconError as error:
            return Unavailable("kafka", str(error))

    def _answers(self) -> _Said:
        from recon.witness import kafka, kafka_probe

        wanted: dict[tuple[str, int], Spans] = {}
        for record in self._records:
            place = (record.topic, record.partition)
            wanted[place] = wanted.get(place, Spans()).union(Spans.of_offsets([record.offset]))
        topics, level = sorted({topic for topic, _ in wanted}), self._pipeline.source.isolation_level
        described = kafka.read(self._project.kafka, topics, isolation_level=level)
        return described, kafka_probe.probe(self._project.kafka, wanted)

    def of(self, record: SourceRecord, *, reads_aborted: bool) -> tuple[Outcome | None, str]:
        """What Kafka has at an offset: an outcome where there is no record to deliver, None where there is one."""
        said = self._said
        if isinstance(said, Unavailable):
            return "not read", f"Kafka could not be asked: {said.reason}"
        topic, answer = said[0].topics.get(record.topic), said[1].get((record.topic, record.partition))
        if topic is None or answer is None or not topic.exists:
            return "not decided", f"Kafka has no topic {record.topic} any more"
        if None not in (topic.topic_id, record.topic_id) and topic.topic_id != record.topic_id:
            clusters = clusters_of(self._ledger, self._pipeline, said[0])
            return "not decided", clusters.other_records(record.topic, record.topic_id, topic.topic_id)
        if record.offset in answer.committed:
            return None, "Kafka has the record"
        if record.offset < answer.log_start:
            return "not decided", f"Kafka deleted the offset (the log starts at {answer.log_start})"
        if answer.truncated is not None:
            return "not decided", f"Kafka could not be read to an answer: {answer.truncated}"
        if record.offset in answer.aborted and reads_aborted:
            return None, "Kafka has the record, of an aborted transaction, which a query reads that reads uncommitted"
        if record.offset in answer.aborted:
            return "aborted", "the record is of a transaction that was aborted"
        if topic.cleanup_policy == "delete":
            return "control record", "Kafka has no record at this offset, and the topic is not compacted"
        return "compacted or control record", f"Kafka has no record there (cleanup.policy={topic.cleanup_policy})"


@dataclass
class RecordPaths:
    """Follows the records of one pipeline into one sink.

    `entries` are those of the sink that may hold the records; `every` gives all that hold them, of whatever time and
    topic id. With `near`, all rows of a Delta sink are looked at only where the files of the record's own commits do
    not have it. `without_entry` is what is said of a record that has neither an entry nor a row.
    """

    project: Project
    pipeline: Pipeline
    sink: Sink
    ledger: Ledger
    entries: LedgerSlice
    records: Sequence[SourceRecord]
    broker: Broker
    every: Callable[[], LedgerSlice]
    near: bool = False
    without_entry: tuple[Outcome, str] = ("not decided", "no ledger entry of this sink in the period has the offset")

    def paths(self) -> dict[SourceRecord, SampledPath]:
        """The path of each record; the witnesses are read once for all of them."""
        covering = {record: _covering(self.entries, record, self.entries.anchors) for record in self.records}
        near = self._near(covering) if self.near else {}
        far = {r: found for r, found in covering.items() if r not in near}
        rows = self._rows({r.place: [self.entries.heads[at].batch_id for at in found] for r, found in far.items()})
        quarantine = self._in_quarantine() if far else {}
        findings = self._findings()
        writes = self.confirmed({at for found in covering.values() for at in found})
        paths = {}
        for record, found in covering.items():
            outcome, said, places = near.get(record) or self._outcome(record, found, rows, quarantine)
            named = [about for about in findings if _is_about(about, record)]
            paths[record] = SampledPath(
                pipeline=self.pipeline.name,
                sink=self.sink.name,
                kind=self.sink.kind,
                target=self.project.mask(self.project.location(self.sink)),
                writes=tuple(writes[at] for at in found),
                outcome=outcome,
                said=self.project.mask("; ".join([said, *map(_finding, named)])),
                places=tuple(self.project.mask(place) for place in places),
            )
        return paths

    # -- the witnesses ---------------------------------------------------------------------------------------------

    def _writer(self) -> BatchSink:
        return open_sink(self.project, self.pipeline.name, self.sink)

    def _rows(self, batches: Mapping[Place, Collection[int]]) -> Mapping[Place, Sequence[FoundRow]] | Unavailable:
        if not batches:
            return {}
        names = self.pipeline.source_names(self.sink)
        if names is None:
            return Unavailable("rows", "its rows name no source record, as recon.yml has no source_columns")
        if not self.sink.stamp_source_offsets:
            return Unavailable("rows", "the sink stamps no source offsets, so its rows name no source record")
        try:
            slow = f"the rows of sink {self.sink.name} were not looked at: it did not answer"
            if self.sink.observed:
                return within(2 * STATEMENT_S, lambda: self._rows_by(names, batches), slow)
            return within(2 * STATEMENT_S, lambda: self._writer().rows_at(batches), slow)
        except ReconError as error:
            return Unavailable("rows", str(error))
        except Exception as error:  # a sink of the user's own package
            return Unavailable("rows", f"{type(error).__name__}: {error}")

    def _rows_by(self, names: SourceNames, places: Collection[Place]) -> Mapping[Place, Sequence[FoundRow]]:
        """Rows that carry their source in columns of the user's own; which micro-batch wrote them they do not say."""
        found = delta_rows.find(self._storage, places, names=names)
        return {place: [FoundRow(file, None) for file, _ in rows] for place, rows in found.items()}

    def _near(self, covering: Mapping[SourceRecord, Sequence[int]]) -> dict[SourceRecord, _Found]:
        """Records of which each commit that wrote them has rows, in data files that the table still has."""
        names, said = self.pipeline.source_names(self.sink), dict[SourceRecord, _Found]()
        if not self.sink.is_delta or self.sink.rewrites or names is None:
            return {}
        try:
            live = delta_rows.live_files(self._storage) or ()
            for record, of_record in covering.items():
                rows = self._rows_of(record, of_record, names, live)
                files = tuple(file for _, of_version in rows for file in of_version)
                told = " and ".join(f"version {v} wrote {plural(sum(of.values()), 'row')}" for v, of in rows)
                where = f"{told} of it, in files that the table still has; other rows were not looked for"
                said |= {record: ("found", where, files)} if rows else {}
        except ReconError:
            return {}
        return said

    def _rows_of(
        self, record: SourceRecord, found: Sequence[int], names: SourceNames, live: Collection[str]
    ) -> Sequence[tuple[int, Mapping[str, int]]]:
        """The rows of a record in each of its commits, by version; none where one has no rows in live files."""
        if self._namesakes(record, {self.entries.heads[at].batch_id for at in found}):
            return ()  # which of them a row is of takes a look at all of them
        rows = []
        for version in dict.fromkeys(self.entries.heads[at].sink_version for at in found):
            if version is None:
                return ()
            of_version = delta_rows.in_commit(self._storage, version, [record.place], names).get(record.place, {})
            if not of_version or not set(of_version) <= set(live):
                return ()
            rows.append((version, of_version))
        return rows

    def _in_quarantine(self) -> Mapping[Place, Sequence[delta_rows.Row]] | Unavailable:
        place = quarantined.location(self.project, self.pipeline.name, self.sink)
        if place is None:
            return {}
        storage = Storage(place, self.project.storage_options)
        try:
            if not quarantined.exists(storage):
                return {}
            return delta_rows.find(storage, [record.place for record in self.records], [RELEASE])
        except ReconError as error:
            return Unavailable("quarantine", str(error))

    def _findings(self) -> Sequence[OpenFinding]:
        try:
            state = self.ledger.proofs.newest(self.pipeline.name, self.sink.name)
        except LedgerError:
            return ()
        return state.open if state is not None else ()

    def confirmed(self, places: Collection[int]) -> dict[int, SampledWrite]:
        """The writes of some entries, by index, as the sink's own record has them."""
        heads = [self.entries.heads[at] for at in places]
        recorded: Mapping[tuple[int, int], datetime] | Unavailable | None = None
        if heads and not self.sink.has_history:
            recorded = self._recorded(min(head.committed_at for head in heads) - _EDGE)
        writes = {}
        for at, head in zip(places, heads, strict=True):
            confirmed, when, said = (
                self._commit_of(head) if self.sink.has_history else _in_record(head, recorded, self.sink.name)
            )
            who = f"query {head.query_id}" + (f", run {head.run_id}" if head.run_id else "")
            writes[at] = SampledWrite(
                epoch=head.epoch,
                batch_id=head.batch_id,
                sequence=head.sequence,
                status=head.status,
                entry_hash=head.entry_hash,
                committed_at=head.committed_at,
                version=head.sink_version,
                at=when,
                by=f"{who}, recon {head.recon_version}",
                confirmed=confirmed,
                said=self.project.mask(said),
            )
        return writes

    def _recorded(self, since: datetime) -> Mapping[tuple[int, int], datetime] | Unavailable | None:
        """When the sink's record says that micro-batches were written; None where it keeps no record."""
        try:
            slow = f"the record of sink {self.sink.name} was not looked at: it did not answer"
            log = within(STATEMENT_S, lambda: self._writer().log(since=since), slow)
        except ReconError as error:
            return Unavailable("sink_logs", str(error))
        if not log.recorded:
            return None
        return {
            (commit.stamp.epoch, commit.stamp.batch_id): commit.at
            for commit in log.commits
            if commit.stamp.is_of(self.pipeline.name, self.sink.name)
        }

    def _commit_of(self, head: EntryHead) -> tuple[bool | None, datetime | None, str]:
        """What the table's history has of an entry's commit."""
        version = head.sink_version
        if version is None:
            return None, None, "the entry names no version"
        try:
            if self.sink.is_delta:
                log = delta_log.read(self._storage, from_version=version, to_version=version)
            else:
                log = self._writer().history(version, files=False)
        except ReconError as error:
            return None, None, str(error)
        commit = log.commits.get(version)
        if commit is None:
            if log.first_retained is not None and version < log.first_retained:
                return None, None, f"version {version} is no longer in the log, which begins at {log.first_retained}"
            return False, None, f"the log has no version {version}"
        stamp = commit.stamp
        if head.is_observed:
            ours = observed.is_of_entry(commit, head)
        else:
            of_sink = stamp is not None and stamp.is_of(self.pipeline.name, self.sink.name)
            ours = stamp is not None and of_sink and (stamp.epoch, stamp.batch_id) == (head.epoch, head.batch_id)
        what = "is another commit" if not ours else "is this micro-batch's" if stamp is None else _STAMPED
        return ours, commit.timestamp, f"version {version} {what} ({commit.operation or 'unknown'})"

    @property
    def _storage(self) -> Storage:
        return Storage(self.project.location(self.sink), self.project.storage_options)

    # -- the verdict -------------------------------------------------------------------------------------------------

    def _outcome(
        self,
        record: SourceRecord,
        found: Sequence[int],
        rows: Mapping[Place, Sequence[FoundRow]] | Unavailable,
        quarantine: Mapping[Place, Sequence[delta_rows.Row]] | Unavailable,
    ) -> _Found:
        if isinstance(rows, Unavailable) and not found:
            return self.without_entry[0], f"{self.without_entry[1]}; its rows could not be read: {rows.reason}", ()
        if isinstance(rows, Unavailable):
            return "not read", f"the sink's rows could not be read: {rows.reason}", ()
        if record.place in rows:
            outcome, said, where = self._with_rows(record, found, rows[record.place])
            return outcome, "; ".join([said, *self._not_looked_up(found)]), where
        if not_looked_up := self._not_looked_up(found):
            return "not decided", "; ".join(not_looked_up), ()
        if isinstance(quarantine, Unavailable):
            return "not read", f"no row in the sink; the quarantine could not be read: {quarantine.reason}", ()
        if record.place in quarantine:
            waiting = [row for _, row in quarantine[record.place] if row.get(RELEASE) is None]
            state = "waits there" if waiting else "was released, and the sink has no row of it"
            files = tuple(f"quarantine: {file}" for file, _ in quarantine[record.place])
            without: Outcome = "not decided" if self.sink.rewrites else "missing"
            return ("quarantined" if waiting else without), f"the row is in the quarantine table and {state}", files
        return self._without_row(record, found)

    def _not_looked_up(self, found: Sequence[int]) -> Sequence[str]:
        """That rows may be there which the query wrote without recon, before the hook; nothing where there are none.

        They do not have the hook's columns, and recon.yml no longer names those that they have.
        """
        before = [] if self.sink.observed else [head for at in found if (head := self.entries.heads[at]).is_observed]
        if not before:
            return ()
        which = some(dict.fromkeys(f"micro-batch {head.batch_id} (epoch {head.epoch})" for head in before))
        return (f"rows of {which} cannot be looked up: the query wrote them without recon, before the hook",)

    def _with_rows(self, record: SourceRecord, found: Sequence[int], rows: Sequence[FoundRow]) -> _Found:
        where = tuple(dict.fromkeys(row.where for row in rows))
        written = {self.entries.heads[at].batch_id for at in found}
        # Rows that recon did not write do not say their micro-batch.
        batches = written if self.sink.observed and found else {row.batch_id for row in rows}
        others = batches - written
        if others:
            others -= {self._whole.heads[at].batch_id for at in _covering(self._whole, record, 0)}
        numbers = ", ".join(sorted(map(str, batches)))
        if others:
            return "not decided", f"a row has the offset and _batch_id {numbers}, which no entry of it has", where
        count = "1 row" if len(rows) == 1 else f"{len(rows)} rows"
        if len(rows) < 1 + len(self._namesakes(record, batches)):
            why = f"several topics or sources have the offset, and micro-batch {numbers} read both"
            return "not decided", f"the sink has {count} with the offset, and it may be of another record: {why}", where
        return "found", f"the sink has {count} of it (_batch_id {numbers})", where

    @cached_property
    def _whole(self) -> LedgerSlice:
        return self.every()

    def _namesakes(self, record: SourceRecord, batches: Collection[int | None]) -> set[SourceRecord]:
        """The other records at the same offset that such a micro-batch read.

        So there are of a topic that was deleted and created again, and of a topic that several sources read.
        """
        read = {(source, topic_id) for source, name, topic_id in self._whole.ranges.topics if name == record.topic}
        others = {record._replace(source=source, topic_id=topic_id) for source, topic_id in read} - {record}
        return {
            other
            for other in others
            if (other.source != record.source or None not in (other.topic_id, record.topic_id))
            and any(self._whole.heads[at].batch_id in batches for at in _covering(self._whole, other, 0, by_name=False))
        }

    def _without_row(self, record: SourceRecord, found: Sequence[int]) -> _Found:
        if not found:
            return self.without_entry[0], f"no row, and {self.without_entry[1]}", ()
        removed, looked_at, whole = self._in_files(record, found)
        if removed is not None:
            why = "; a later record of its key may have replaced it" if self.sink.rewrites else ""
            return "removed", f"{removed[0]}, and the table has no row of it any more{why}", (removed[1],)
        heads = [self.entries.heads[at] for at in found]
        levels = {head.isolation_level or self.pipeline.source.isolation_level for head in heads}
        outcome, said = self.broker.of(record, reads_aborted="read_uncommitted" in levels)
        if outcome in ("aborted", "control record", "compacted or control record"):
            return outcome, f"no row; {said}", ()
        if outcome is not None:
            if not any(head.rows_read == self._counts.width[at] for at, head in zip(found, heads, strict=True)):
                return outcome, f"no row; {said}", ()
            said += "; each offset of the micro-batch was counted as a record when it was read"
        outcome, more = self._explained(found) or ("missing" if whole else "not decided", f"{_UNFILTERED}; {looked_at}")
        return outcome, f"no row; {said}; {more}", ()

    def _explained(self, found: Sequence[int]) -> tuple[Outcome, str] | None:
        """Why a record without a row need not be lost; None where the micro-batches that read it give no reason."""
        counts, heads = self._counts, [self.entries.heads[at] for at in found]
        writes = {counts.covered.replays.get(at, at) for at in found}
        if not writes.isdisjoint(filtered_for_sure(counts.covered)):
            return "not decided", _CALLED_TWICE
        if why := self._filtered(heads):
            return "filtered", why
        dropped = [counts.counted[at].dropped if at in counts.counted else None for at in sorted(writes)]
        if None in dropped:
            return "not decided", "whether the transform dropped it was not counted"
        if any(dropped):
            numbers = ", ".join(f"{rows:,}" for rows in dropped)
            return "not decided", f"{numbers} rows were filtered, and which ones is not recorded"
        return ("not decided", "a later record of its key may have replaced the row") if self.sink.rewrites else None

    @cached_property
    def _counts(self) -> Counts:
        """What the entries counted, as an audit takes it."""
        stateful: frozenset[str] = frozenset()
        with suppress(EvidenceError):
            storage = Storage(self.project.resolve(self.pipeline.checkpoint), self.project.storage_options)
            stateful = frozenset({checkpoint.query_id(storage)} if checkpoint.is_stateful(storage) else ())
        declared = self.pipeline.rows
        filters = declared.filters if self.sink.observed else None  # the hook counts what was filtered
        how = Processing(operators=Operators(stateful), filters=filters, explodes=declared.explodes)
        return counted_entries(self.entries, how)

    def _in_files(self, record: SourceRecord, found: Sequence[int]) -> tuple[tuple[str, str] | None, str, bool]:
        """The commit that wrote a row of the record, with its file; else what was looked at, and whether it is all."""
        if not self.sink.is_delta:
            return None, "the sink keeps no files of single writes", True
        names = self.pipeline.source_names(self.sink)
        said, whole = [], True
        for version in dict.fromkeys(self.entries.heads[at].sink_version for at in found):
            if version is None or names is None:
                whole = False
                continue
            try:
                files = delta_rows.in_commit(self._storage, version, [record.place], names)
            except EvidenceError as error:
                said.append(f"the files of version {version} could not be read: {error}")
                whole = False
                continue
            if record.place in files:
                return (f"version {version} wrote a row", next(iter(files[record.place]))), "", True
            said.append(f"the files of version {version} have no row of it")
        return None, "; ".join(said) or "no version is known", whole

    def _filtered(self, heads: Sequence[EntryHead]) -> str:
        """Why it is known that the sink was not given the record: its commits have what it was given, and no more."""
        if not self.sink.is_delta or self.sink.rewrites:
            return ""
        for head in heads:
            version = head.sink_version
            if not head.rows_filtered or head.given is None or head.given.fingerprint is None or version is None:
                return ""
            of_commit = known(commit_rows.read(self._storage, [version])[version])
            if of_commit is None or of_commit.held != head.given:
                return ""
        filtered = sum(head.rows_filtered or 0 for head in heads)
        return f"the transform dropped {filtered:,} rows, and the commit has exactly the rows that it returned"


def _covering(entries: LedgerSlice, record: SourceRecord, anchors: int, *, by_name: bool = True) -> list[int]:
    """The entries, by index, whose ranges of the record's topic hold its offset and that read them from Kafka.

    `by_name` is whether an entry that does not know the topic's id may be of it.
    """
    ranges = entries.ranges
    topics = [
        source == record.source
        and name == record.topic
        and topic_id in ((record.topic_id, None) if by_name else (record.topic_id,))
        for source, name, topic_id in ranges.topics
    ]
    if not any(topics):
        return []
    holds = (ranges.partition == record.partition) & (ranges.start <= record.offset) & (ranges.end > record.offset)
    holds &= np.array(topics, np.bool_)[ranges.topic]
    return [at for at in dict.fromkeys(ranges.entry[holds].tolist()) if at >= anchors and entries.heads[at].reads]


def _in_record(
    head: EntryHead, recorded: Mapping[tuple[int, int], datetime] | Unavailable | None, sink: str
) -> tuple[bool | None, datetime | None, str]:
    if recorded is None:
        return None, None, "the sink keeps no record of its writes: the ledger alone says so"
    if isinstance(recorded, Unavailable):
        return None, None, f"the sink's record could not be read: {recorded.reason}"
    at = recorded.get((head.epoch, head.batch_id))
    if at is None:
        return False, None, f"the record of sink {sink} has no such write"
    return True, at, "the sink's own record has the write"


def _is_about(about: OpenFinding, record: SourceRecord) -> bool:
    finding = about.finding
    place = (finding.topic, finding.partition) == (record.topic, record.partition)
    return place and finding.topic_id in (None, record.topic_id) and record.offset in about.spans


def _finding(about: OpenFinding) -> str:
    state = "open" if about.accepted is None else f"accepted by {about.accepted.by}"
    return f"finding {about.id} ({about.finding.code}, {state})"
