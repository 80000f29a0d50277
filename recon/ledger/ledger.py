"""The ledger as the hook, the audit and the console use it: append to a chain, read it by time, verify it."""

from __future__ import annotations

import hashlib
import logging
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recon.errors import LedgerError
from recon.lazy import np, pa, pc
from recon.ledger import arrow, columns, coverage
from recon.ledger.chain import GENESIS, link
from recon.ledger.results import RESULTS
from recon.ledger.store import MANY_FILES, ChainMoved, Filter, Store, open_store
from recon.model import Finding, LedgerEntry, LedgerSlice
from recon.model.integrity import verify
from recon.model.offsets import Spans
from recon.model.wire.app_ids import chain_id
from recon.project import Project, Sink, as_project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("recon")

_TRIES = 40


class Ledger:
    """The audit table of every sink write, and beside it the results of every audit."""

    def __init__(self, entries: Store, results: Store) -> None:
        """Two tables of one ledger folder."""
        self.store, self.results = entries, results
        # (length, last entry's hash and time) per chain: right as long as nobody else extends the chain, and
        # the store refuses our append when somebody did.
        self._ends: dict[str, tuple[int, str, datetime | None]] = {}
        self._appended = 0

    @property
    def location(self) -> str:
        """Where the entries are, for messages."""
        return self.store.location

    def exists(self) -> bool:
        """Whether anything was ever written."""
        return self.store.exists()

    def append(self, entry: LedgerEntry) -> LedgerEntry:
        """Chain the entry behind the newest of its (pipeline, sink), seal it and write it.

        `committed_at` is moved forward if it would not be later than the entry before, so that the order of
        time is the order of the chain.

        Raises:
            LedgerError: the table cannot be written, or other writers keep winning the race.
        """
        chain = chain_id(entry.pipeline, entry.sink)
        for attempt in range(_TRIES):
            length, prev_hash, last_at = self._end(entry.pipeline, entry.sink)
            at = entry.committed_at
            if last_at is not None and at <= last_at:
                at = last_at + timedelta(microseconds=1)
            linked = link(replace(entry, committed_at=at), prev_hash)
            try:
                self.store.append(columns.to_table([linked]), chain=chain, after=length)
            except ChainMoved:
                self._ends.pop(chain, None)
                time.sleep(random.uniform(0, 0.02 * (attempt + 1)))
                continue
            except LedgerError:
                self._ends.pop(chain, None)
                raise
            self._ends[chain] = (length + 1, linked.entry_hash, linked.committed_at)
            self._tidy_now_and_then()
            return linked
        raise LedgerError(
            f"the ledger {self.location} was extended by another writer {_TRIES} times in a row for pipeline "
            f"{entry.pipeline}, sink {entry.sink}: two queries write this sink; stop one of them"
        )

    def _tidy_now_and_then(self) -> None:
        # A day of 10 s micro-batches would leave 8,640 files for the audit to open.
        self._appended += 1
        if self._appended % MANY_FILES:
            return
        try:
            self.store.compact()
        except LedgerError as error:  # housekeeping must not stop a stream; `recon ledger compact` can do it later
            log.warning("%s", error)

    def head_hash(self, pipeline: str, sink: str) -> str:
        """The newest entry's hash, "" for a chain without entries."""
        return self._end(pipeline, sink)[1]

    def others(self, pipeline: str, sink: str) -> list[LedgerEntry]:
        """Entries that another writer appended since we last read the chain's end.

        None are returned where that would cost a Spark job; the next append notices them.
        """
        known = self._ends.get(chain_id(pipeline, sink))
        if known is None or not self.store.quick:
            return []
        more = self.store.length(chain_id(pipeline, sink)) - known[0]
        if more <= 0:
            return []
        del self._ends[chain_id(pipeline, sink)]
        return self.last(pipeline, sink, more)

    def _end(self, pipeline: str, sink: str) -> tuple[int, str, datetime | None]:
        chain = chain_id(pipeline, sink)
        if chain not in self._ends:
            length = self.store.length(chain)
            tail = self.tail(pipeline, sink) if length else None
            self._ends[chain] = (length, tail.entry_hash, tail.committed_at) if tail else (length, GENESIS, None)
        return self._ends[chain]

    def tail(self, pipeline: str, sink: str) -> LedgerEntry | None:
        """The newest entry of a (pipeline, sink); None when there is none."""
        return next(iter(self.last(pipeline, sink, 1)), None)

    def last(self, pipeline: str, sink: str, count: int) -> list[LedgerEntry]:
        """The newest `count` entries of a (pipeline, sink), oldest first."""
        entries = self._back(pipeline, sink, None, lambda parts: sum(part.num_rows for part in parts) >= count)
        return columns.entries(entries.slice(max(0, entries.num_rows - count)))

    def _back(
        self,
        pipeline: str,
        sink: str,
        before: datetime | None,
        enough: Callable[[Sequence[pa.Table]], bool],
        names: Sequence[str] | None = None,
    ) -> pa.Table:
        """Whole days of entries before an instant, newest day first, until there are enough; in chain order."""
        parts: list[pa.Table] = []
        # One partition at a time: a year of days costs what the last one costs.
        for day in reversed(self.store.dates()):
            if before is not None and day > before.date():
                continue
            part = self.store.read(Filter.of(pipeline, sink, dates=(day,), to=before), names)
            parts += [part] if part.num_rows else []
            if enough(parts):
                break
        empty = arrow.empty(self.store.schema)
        return _in_order(pa.concat_tables(parts) if parts else empty.select(names or empty.column_names))

    def slice(
        self,
        pipeline: str,
        sink: str,
        from_: datetime | None = None,
        to: datetime | None = None,
        *,
        operations: Sequence[tuple[int, str]] | None = None,
    ) -> LedgerSlice:
        """Entries of a (pipeline, sink) committed in [from_, to), behind the anchors: what the period continues from.

        Every seal is recomputed; entries whose hash does not match are named in `broken`. `operations` is the table's
        own history as far as it is to be judged; all that is kept of it by default.
        """
        entries = _in_order(self.store.read(Filter.of(pipeline, sink, from_, to)))
        anchors = self._anchors(pipeline, sink, from_) if from_ is not None else entries.slice(0, 0)
        numbers = ("query_id", "batch_id")
        behind = self.store.read(Filter.of(pipeline, sink, from_=to), numbers) if to is not None else None
        return columns.to_slice(
            pa.concat_tables([part for part in (anchors, entries) if part.num_rows] or [entries]),
            pipeline=pipeline,
            sink=sink,
            anchors=anchors.num_rows,
            complete=from_ is None or anchors.num_rows == 0,
            operations=self.store.operations() if operations is None else operations,
            later=frozenset(arrow.tuples(behind, *numbers)) if behind is not None else (),
        )

    def _anchors(self, pipeline: str, sink: str, before: datetime) -> pa.Table:
        """What a period continues from: the newest entry before it, and the furthest micro-batch of every epoch.

        The newest is what the chain goes on from. It need not be the furthest: it may be a replay, or an older
        micro-batch that was restored later. Earlier epochs are there so that a later one that read their offsets
        again does not look like the first.
        """

        def has_a_write(parts: Sequence[pa.Table]) -> bool:
            return any(pc.any(pc.equal(part["status"], arrow.scalar("committed"))).as_py() for part in parts)

        keys = ["epoch", "batch_id", "attempt", "committed_at", "status"]
        recent = self._back(pipeline, sink, before, has_a_write, keys)
        if not recent.num_rows:
            return arrow.empty(self.store.schema)
        furthest = _furthest(recent)
        times = arrow.values(recent["committed_at"])
        chosen = {times[place] for place in (*furthest.values(), -1)}
        of_sink = Filter.of(pipeline, sink, to=before)
        if max(furthest) > 0:
            whole = _in_order(self.store.read(of_sink, keys))
            times = arrow.values(whole["committed_at"])
            chosen |= {times[place] for epoch, place in _furthest(whole).items() if epoch not in furthest}
        # Ranges are read for these few alone.
        moment = timedelta(microseconds=1)
        at = [self.store.read(replace(of_sink, from_=time, to=time + moment)) for time in sorted(chosen)]
        return _in_order(pa.concat_tables(at))

    def coverage(self, pipeline: str, sink: str) -> dict[coverage.Key, Spans]:
        """Every offset that the entries of a (pipeline, sink) account for; reads the whole ledger, a day at a time."""
        held: dict[coverage.Key, Spans] = {}
        for day in self.store.dates():
            entries = self.store.read(Filter.of(pipeline, sink, dates=(day,)), ["offsets"])
            of_day = coverage.of(columns.ranges(entries))
            held = {key: held.get(key, Spans()).union(of_day.get(key, Spans())) for key in held.keys() | of_day.keys()}
        return held

    def numbers(self, pipeline: str, sink: str) -> frozenset[tuple[int, int, int | None]]:
        """(epoch, batch_id, sink_version) of every entry of a (pipeline, sink)."""
        names = ("epoch", "batch_id", "sink_version")
        return frozenset(arrow.tuples(self.store.read(Filter.of(pipeline, sink), names), *names))

    def entries(
        self,
        pipeline: str | None = None,
        sink: str | None = None,
        from_: datetime | None = None,
        to: datetime | None = None,
        limit: int | None = None,
    ) -> list[LedgerEntry]:
        """Entries that match, oldest first; with `limit`, the newest that many."""
        entries = _in_order(self.store.read(Filter.of(pipeline, sink, from_, to)))
        return columns.entries(entries.slice(max(0, entries.num_rows - limit)) if limit else entries)

    def chains(self) -> list[tuple[str, str]]:
        """Every (pipeline, sink) that has entries, sorted."""
        names = ("pipeline", "sink")
        return sorted(set(arrow.tuples(self.store.read(Filter(), names), *names)))

    def verify(self, pipeline: str | None = None, sink: str | None = None) -> list[Finding]:
        """What is wrong with whole chains, from their first entry on; empty when all are intact."""
        operations = self.store.operations()
        findings: list[Finding] = []
        for of_pipeline, of_sink in self.chains():
            if pipeline in (None, of_pipeline) and sink in (None, of_sink):
                findings.extend(verify(self.slice(of_pipeline, of_sink, operations=operations)))
        return findings

    def tidy(self) -> None:
        """Merge small files where a day has gathered many, so that reading it stays cheap."""
        for store in (self.store, self.results):
            store.tidy()

    def compact(self) -> dict[str, Mapping[str, Any]]:
        """Merge the small files of both tables; the metrics of each, by table."""
        return {store.kind: store.compact() for store in (self.store, self.results) if store.exists()}


def _furthest(table: pa.Table) -> dict[int, int]:
    """The place of the highest batch_id of each epoch, the newest of equals."""
    furthest: dict[int, tuple[int, int]] = {}
    for place, (epoch, batch_id) in enumerate(arrow.tuples(table, "epoch", "batch_id")):
        if epoch not in furthest or batch_id >= furthest[epoch][0]:
            furthest[epoch] = (batch_id, place)
    return {epoch: place for epoch, (_, place) in furthest.items()}


def _in_order(table: pa.Table) -> pa.Table:
    """Rows in the order of the chain."""
    keys = table.select(["committed_at", "attempt"])
    order = pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in keys.column_names])
    places = arrow.numbers(order)
    return table if np.all(places[1:] > places[:-1]) else table.take(order)


def open_ledger(project: str | Path | Project, spark: SparkSession | None = None) -> Ledger:
    """The project's ledger; nothing is created until the first append.

    Args:
        project: where recon.yml is, or a `Project`; its `ledger` says where the ledger is and who writes it.
        spark: the session for `writer: spark`; the active one when None.

    Raises:
        ConfigError: `ledger` names neither a location nor a table.
    """
    project = as_project(project)
    return Ledger(
        open_store(project, columns.ENTRIES, spark),
        open_store(project, RESULTS, spark),
    )


def checks_fingerprint(sink: Sink) -> str:
    """A short hash of the checks that were agreed for a sink when an entry was made."""
    agreed = [spec.model_dump_json(exclude={"line"}) for spec in (*sink.data_tests, *sink.post_batch)]
    agreed += [spec.model_dump_json(exclude={"line"}) for column in sink.columns for spec in column.data_tests]
    return hashlib.sha256("\n".join(agreed).encode()).hexdigest()[:16]


def utc_now() -> datetime:
    """The clock of the ledger: UTC, microseconds."""
    return datetime.now(UTC)
