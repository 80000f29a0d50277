"""Follows a source record beyond the first table that has it, through streams that read that table.

Rows keep `_source_topic`, `_source_partition`, `_source_offset` from table to table, as long as each stream keeps these
columns. Where a stream drops them, as an aggregate does, the record cannot be followed further. By the ledger, those
micro-batches may have read the record that read the version of the previous table that has it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from recon.base.errors import EvidenceError, ReconError
from recon.base.storage import Storage
from recon.base.text import plural, some
from recon.judge.coverage import coverage
from recon.judge.second_calls import filtered_for_sure
from recon.model import EntryHead, LedgerSlice
from recon.model.delta_offsets import BEGINNING, is_delta, offset_of, position_of, topic_of
from recon.model.sample import Outcome, Place, SampledPath, SourceRecord
from recon.model.wire.columns import BATCH_ID, RELEASE
from recon.project import Pipeline, Project, Sink
from recon.recovery.paths import Broker, RecordPaths
from recon.witness import delta_log, delta_rows
from recon.write.ledger import Ledger, quarantined

_RECENT = 100  # newest entries, among which is one that says how far a table was read


class Hop(NamedTuple):
    """A record in a stream that reads a table which has it: the table, and the path to each sink of the pipeline."""

    record: SourceRecord
    through: str
    paths: tuple[SampledPath, ...]


@dataclass(frozen=True)
class Hops:
    """Follows records through the pipelines of a project."""

    project: Project
    ledger: Ledger
    _ids: dict[str, str | None] = field(default_factory=dict, init=False)  # of the tables that were looked at

    def after(self, record: SourceRecord, paths: Sequence[SampledPath]) -> Iterator[Hop]:
        """The hops of a record, nearest first; `paths` are those to the sinks of the pipeline that read its topic."""
        waiting = [(record.pipeline, path) for path in paths]
        seen = {record.pipeline}
        while waiting:
            name, path = waiting.pop(0)
            if path.outcome != "found":
                continue
            source = self.project.find_sink(name, path.sink)[1]
            versions = sorted({write.version for write in path.writes if write.version is not None})
            for pipeline in self._readers(source):
                if pipeline.name in seen:
                    continue
                seen.add(pipeline.name)
                there = record._replace(pipeline=pipeline.name, source=0)
                found = tuple(self._path(pipeline, sink, record.place, versions) for sink in pipeline.sinks)
                yield Hop(there, path.target, found)
                waiting += [(pipeline.name, reached) for reached in found]

    def _readers(self, sink: Sink) -> Iterator[Pipeline]:
        """The pipelines that read the table of a sink."""
        if not sink.is_delta:
            return
        mine = self._table_id(self.project.location(sink))
        for pipeline in self.project.pipelines:
            read = pipeline.source.delta
            if mine is not None and read is not None and self._table_id(self.project.table_location(read)) == mine:
                yield pipeline

    def _table_id(self, location: str) -> str | None:
        """The id of a Delta table; None where it cannot be read."""
        if location not in self._ids:
            table = Storage(location, self.project.storage_options)
            try:
                newest = delta_log.latest_version(table)
                self._ids[location] = None if newest is None else delta_log.current_table_id(table, newest)
            except ReconError:
                self._ids[location] = None
        return self._ids[location]

    def _path(self, pipeline: Pipeline, sink: Sink, place: Place, versions: Sequence[int]) -> SampledPath:
        entries = self._entries(pipeline, sink, versions)
        reading = [at for at, head in enumerate(entries.heads) if head.reads]
        outcome, said, places, batches = self._outcome(pipeline, sink, place, versions, entries)
        if batches is not None:
            reading = [at for at in reading if entries.heads[at].batch_id in batches]
        broker = Broker(self.project, self.ledger, pipeline, ())
        paths = RecordPaths(self.project, pipeline, sink, self.ledger, entries, (), broker, lambda: entries)
        return SampledPath(
            pipeline=pipeline.name,
            sink=sink.name,
            kind=sink.kind,
            target=self.project.mask(self.project.location(sink)),
            writes=tuple(paths.confirmed(reading).values()),
            outcome=outcome,
            said=self.project.mask(said),
            places=tuple(self.project.mask(where) for where in places),
        )

    def _entries(self, pipeline: Pipeline, sink: Sink, versions: Sequence[int]) -> LedgerSlice:
        """The entries whose micro-batches read one of these versions, or a part of one, or the table as it was then."""
        topic = self._topic(pipeline)
        offsets = [offset_of(version, 0) for version in versions] + ([BEGINNING] if 0 in versions else [])
        of_none = self.ledger.readings(pipeline.name, sink.name, "", 0, 0)
        slices = (self.ledger.readings(pipeline.name, sink.name, topic, 0, offset) for offset in offsets)
        return next((entries for entries in slices if entries.heads), of_none)

    def _topic(self, pipeline: Pipeline) -> str:
        """What the table that a pipeline reads is called in the ledger; "" where its id cannot be read."""
        table_id = self._table_id(self.project.table_location(pipeline.source.delta or ""))
        return "" if table_id is None else topic_of(table_id)

    def _outcome(
        self, pipeline: Pipeline, sink: Sink, place: Place, versions: Sequence[int], entries: LedgerSlice
    ) -> tuple[Outcome, str, tuple[str, ...], set[int | None] | None]:
        """What became of the record in a sink, in words, where, and the micro-batches that its rows name."""
        if not sink.is_delta:
            return "not read", f"a sink of kind {sink.kind} is not followed from table to table", (), None
        storage = Storage(self.project.location(sink), self.project.storage_options)
        try:
            rows = delta_rows.find(storage, [place], numbered=not sink.observed).get(place, [])
            kept = self._in_quarantine(pipeline, sink, place) if not rows else []
        except EvidenceError as error:
            if not any(head.reads for head in entries.heads):
                return (*self._without_row(pipeline, sink, place, versions, entries), (), None)
            ends = "the record cannot be followed into this table: an aggregate, or a transform that drops the columns"
            return "not read", f"{error}; {ends} with its source, ends the line", (), None
        except ReconError as error:
            return "not read", str(error), (), None
        if rows:
            batches = None if sink.observed else {row[BATCH_ID] for _, row in rows}
            named = "" if batches is None else f" (_batch_id {some(sorted(batches, key=str))})"
            files = tuple(dict.fromkeys(f"{storage.uri}/{file}" for file, _ in rows))
            return "found", f"the sink has {plural(len(rows), 'row')} of it{named}", files, batches
        if kept:
            files = tuple(f"quarantine: {file}" for file, _ in kept)
            waits = any(row.get(RELEASE) is None for _, row in kept)
            said = "the row is in the quarantine table and waits there" if waits else "the row was in quarantine"
            return ("quarantined" if waits else "not decided"), said, files, None
        return (*self._without_row(pipeline, sink, place, versions, entries), (), None)

    def _in_quarantine(self, pipeline: Pipeline, sink: Sink, place: Place) -> Sequence[delta_rows.Row]:
        where = quarantined.location(self.project, pipeline.name, sink)
        storage = None if where is None else Storage(where, self.project.storage_options)
        if storage is None or not quarantined.exists(storage):
            return []
        return delta_rows.find(storage, [place], [RELEASE]).get(place, [])

    def _without_row(
        self, pipeline: Pipeline, sink: Sink, place: Place, versions: Sequence[int], entries: LedgerSlice
    ) -> tuple[Outcome, str]:
        heads = [head for head in entries.heads if head.reads]
        which = f"version {some(versions)} of the table before" if versions else "the table before"
        if not heads:
            return "in no micro-batch", f"no row, and no ledger entry has read {which}{self._come_to(pipeline, sink)}"
        if sink.rewrites:
            return "not decided", "no row: a later one of its key may have replaced it"
        wrote = self._wrote(sink, place, heads)
        if wrote:
            return "removed", f"{wrote}, and the table has no row of it any more"
        if wrote is None or not _whole(entries, versions):
            return "not decided", f"no row; not all that micro-batches wrote of {which} could be looked at"
        if any(head.rows_filtered is None for head in heads):
            return "not decided", f"no row; {which} was read, and whether the transform dropped rows was not counted"
        if filtered_for_sure(coverage(entries)):
            why = "the hook was called twice for a micro-batch, and the call that was not written may have had it"
            return "not decided", f"no row; {which} was read, and {why}"
        filtered = sum(head.rows_filtered or 0 for head in heads)
        if pipeline.source.passes == "skip":
            return "not decided", f"no row; the query may have passed over {which} (skipChangeCommits)"
        if all(head.rows_read and head.rows_filtered == head.rows_read for head in heads):
            return "filtered", f"no row; the transform dropped every row of {which}"
        if filtered:
            return "not decided", f"no row; {filtered:,} rows were filtered, and which ones is not recorded"
        return "missing", f"no row; {which} was read, and nothing of it was filtered"

    def _wrote(self, sink: Sink, place: Place, heads: Sequence[EntryHead]) -> str | None:
        """The commit that wrote a row of the record, in words; "" for none, None where not all could be looked at."""
        storage = Storage(self.project.location(sink), self.project.storage_options)
        for head in heads:
            if head.sink_version is None:
                return None
            try:
                files = delta_rows.in_commit(storage, head.sink_version, [place])
            except EvidenceError:
                return None
            if place in files:
                return f"version {head.sink_version} wrote a row ({next(iter(files[place]))})"
        return ""

    def _come_to(self, pipeline: Pipeline, sink: Sink) -> str:
        newest = self.ledger.last(pipeline.name, sink.name, _RECENT)
        ends = [span.end_offset for entry in newest for span in entry.offsets if is_delta(span.topic)]
        return f": the newest entry ends before version {position_of(max(ends)).version}" if ends else ""


def _whole(entries: LedgerSlice, versions: Sequence[int]) -> bool:
    """Whether micro-batches read these versions to their ends, each in one micro-batch."""
    ends = [span.end_offset for at in range(len(entries.heads)) for span in entries.ranges.of(at)]
    behind = offset_of(max(versions) + 1, 0) if versions else 0
    return bool(ends) and all(end >= behind and not position_of(end).in_snapshot for end in ends)


__all__ = ["Hop", "Hops"]
