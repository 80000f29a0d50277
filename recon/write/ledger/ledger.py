"""The ledger as the hook, the audit and the console use it: append to a chain, read it, verify it."""

from __future__ import annotations

import hashlib
import logging
import os
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recon.base.credentials import without_credentials
from recon.base.errors import LedgerError
from recon.base.lazy import pa, pc
from recon.base.storage import Storage
from recon.model import RELEASES, REMOVALS, Finding, LedgerEntry, LedgerSlice
from recon.model.books import TableWrite
from recon.model.integrity import unlawful, verify
from recon.model.offsets import Spans
from recon.model.wire.app_ids import chain_id
from recon.project import Project, Sink, as_project
from recon.write.ledger import arrow, columns, coverage
from recon.write.ledger.chain import GENESIS, link
from recon.write.ledger.files import Place
from recon.write.ledger.proofs import PROOF, ProofTable
from recon.write.ledger.reader import ChainReader, Period, by_time, in_order
from recon.write.ledger.results import RESULTS
from recon.write.ledger.store import (
    SEQUENCE,
    USUAL,
    ChainMoved,
    Filter,
    Housekeeping,
    Store,
    again,
    deadline,
    open_store,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("recon")


class Ledger:
    """The audit table of every sink write; beside it the results of every audit, and what all audits proved so far."""

    def __init__(
        self, entries: Store, results: Store, proofs: Store, mask: Callable[[str], str] = without_credentials
    ) -> None:
        """Three tables of one ledger folder; `mask` hides what must not be stored of a target."""
        self.store, self.results, self.proofs = entries, results, ProofTable(proofs)
        self._mask = mask
        # (length, last sequence, last entry's hash) per chain. Where somebody else extended the chain, the store
        # refuses our append.
        self._ends: dict[str, tuple[int, int, str]] = {}
        # Streams on one trigger append at the same moment: each looks at the files at another one.
        self._appended = random.randrange(entries.housekeeping.many_files)

    @property
    def location(self) -> str:
        """Where the entries are, for messages."""
        return self.store.location

    def exists(self) -> bool:
        """Whether anything was ever written."""
        return self.store.exists()

    def append(self, entry: LedgerEntry) -> LedgerEntry:
        """Chain the entry behind the newest of its (pipeline, sink), number it, seal it and write it.

        `sequence` is one more than that of the entry before it; `committed_at` stays what the clock said.

        Raises:
            LedgerError: the table cannot be written, or other writers kept winning the race for CONTENTION_S.
        """
        until = deadline()
        try:
            linked = again(partial(self._append, entry, until), ChainMoved, until)
        except ChainMoved as moved:
            raise LedgerError(
                f"the ledger {self.location} was extended by another writer, again and again, for pipeline "
                f"{entry.pipeline}, sink {entry.sink}: two queries write this sink; stop one of them"
            ) from moved
        self._tidy_now_and_then()
        return linked

    def _append(self, entry: LedgerEntry, until: float) -> LedgerEntry:
        """One try of `append` behind the end of the chain as it is known, which is read anew after a failed one."""
        chain = chain_id(entry.pipeline, entry.sink)
        length, sequence, prev_hash = self._end(entry.pipeline, entry.sink)
        linked = self._link(entry, sequence + 1, prev_hash)
        self._ends.pop(chain, None)
        self.store.append(columns.to_table([linked]), chain=chain, after=length, until=until)
        self._ends[chain] = (length + 1, linked.sequence, linked.entry_hash)
        return linked

    def _link(self, entry: LedgerEntry, sequence: int, prev_hash: str) -> LedgerEntry:
        return link(replace(entry, sequence=sequence, target=self._mask(entry.target)), prev_hash)

    def extend(self, entries: Sequence[LedgerEntry], *, after: int) -> Sequence[LedgerEntry]:
        """Chain entries behind the one with sequence `after`, all in one write; () where it is not the newest any more.

        For what somebody else may enter at the same moment: an audit and `recon observe` read the same commits.

        Raises:
            LedgerError: the table cannot be written.
        """
        pipeline, sink = entries[0].pipeline, entries[0].sink
        chain = chain_id(pipeline, sink)
        if self.end(pipeline, sink, again=True) != after:
            return ()
        length, sequence, prev_hash = self._end(pipeline, sink)
        linked: list[LedgerEntry] = []
        for entry in entries:
            sequence += 1
            linked.append(self._link(entry, sequence, prev_hash))
            prev_hash = linked[-1].entry_hash
        self._ends.pop(chain, None)
        try:
            self.store.append(columns.to_table(linked), chain=chain, after=length)
        except ChainMoved:
            return ()
        self._tidy_now_and_then()
        return linked

    def _tidy_now_and_then(self) -> None:
        # A day of 10 s micro-batches would leave 8,640 files for the audit to open.
        self._appended += 1
        if self._appended % self.store.housekeeping.many_files:
            return
        try:
            self.store.tidy()
        except LedgerError as error:  # housekeeping must not stop a stream; `recon ledger compact` can do it later
            log.warning("%s", error)

    def head_hash(self, pipeline: str, sink: str) -> str:
        """The newest entry's hash, "" for a chain without entries."""
        return self._end(pipeline, sink)[2]

    def end(self, pipeline: str, sink: str, *, again: bool = False) -> int:
        """The newest entry's sequence, as far as it was read, or read `again` now; 0 for a chain without entries."""
        if again:
            self._ends.pop(chain_id(pipeline, sink), None)
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

    def _end(self, pipeline: str, sink: str) -> tuple[int, int, str]:
        chain = chain_id(pipeline, sink)
        if chain not in self._ends:
            length = self.store.length(chain)
            tail = self.tail(pipeline, sink) if length else None
            sequence = tail.sequence if tail else 0
            # Sequences that removed entries had are not given again: the hole says that they were removed. A store
            # that is not quick counts the entries that are left.
            sequence = max(length, sequence) if self.store.quick else sequence
            self._ends[chain] = (length, sequence, tail.entry_hash if tail else GENESIS)
        return self._ends[chain]

    def _chain(self, pipeline: str, sink: str) -> ChainReader:
        return ChainReader(self.store, pipeline, sink)

    def tail(self, pipeline: str, sink: str) -> LedgerEntry | None:
        """The newest entry of a (pipeline, sink); None when there is none."""
        return next(iter(self.last(pipeline, sink, 1)), None)

    def last(self, pipeline: str, sink: str, count: int) -> list[LedgerEntry]:
        """The newest `count` entries of a (pipeline, sink), oldest first."""
        return columns.entries(self._chain(pipeline, sink).newest(count))

    def position(self, pipeline: str, sink: str) -> int:
        """The sequence of the newest entry of a (pipeline, sink); 0 when there is none."""
        newest = arrow.numbers(self._chain(pipeline, sink).newest(1, [SEQUENCE])[SEQUENCE])
        return int(newest.max(initial=0))

    def first_since(self, pipeline: str, sink: str, at: datetime) -> int | None:
        """The smallest sequence of an entry with a `committed_at` of `at` or later; None when there is none."""
        found = arrow.numbers(self.store.read(Filter.of(pipeline, sink, from_=at), [SEQUENCE])[SEQUENCE])
        return int(found.min()) if len(found) else None

    def position_before(self, pipeline: str, sink: str, at: datetime) -> int:
        """The position after which all entries have a `committed_at` of `at` or later."""
        found = arrow.numbers(self.store.read(Filter.of(pipeline, sink, from_=at), [SEQUENCE])[SEQUENCE])
        position = self.position(pipeline, sink)
        since = set(found.tolist())
        while position in since:
            position -= 1
        return position

    def slice(
        self,
        pipeline: str,
        sink: str,
        from_: datetime | None = None,
        to: datetime | None = None,
        *,
        after: int | None = None,
        operations: Sequence[tuple[int, str]] | None = None,
    ) -> LedgerSlice:
        """A run of entries of a (pipeline, sink), behind the anchors: what the run continues from.

        By position, the entries with a sequence above `after`. By time, the run from the first entry that was committed
        in [from_, to) to the last one, with everything between them. Clocks jump, so:

        - It begins no later than behind the entry with the latest `committed_at` before `from_`. Periods that follow
          each other leave nothing out, and an entry may be in several.
        - Without `to` it reaches to the chain's end, also to entries of a clock that runs ahead. Give None where the
          period reaches to the present.

        Every seal is recomputed; entries whose hash does not match are named in `broken`.

        Args:
            pipeline: the pipeline's name.
            sink: the sink's name.
            from_: begin of the period, UTC; not with `after`.
            to: end of the period, UTC, excluded.
            after: a position, such as `position` told earlier; 0 for the whole chain.
            operations: the table's own history as far as it is to be judged; all that is kept of it by default.

        Raises:
            ValueError: both `from_` and `after` are given.
        """
        if after is not None and from_ is not None:
            raise ValueError("give from_ or after, not both: each says where the run begins")
        chain = self._chain(pipeline, sink)
        period = chain.period(from_, to) if after is None else chain.behind(after, to)
        return self._slice(chain, period, operations)

    def slices(
        self, chains: Iterable[tuple[str, str]], from_: datetime | None, to: datetime | None
    ) -> tuple[dict[tuple[str, str], LedgerSlice], list[tuple[str, str]]]:
        """The runs by time of many (pipeline, sink), as `slice` gives them, and which others have entries of that time.

        Each file of the table is read once.
        """
        # In one piece: a year of days is as many pieces, and each chain is cut out of all of them.
        timed = self.store.read(Filter.of(from_=from_, to=to)).unify_dictionaries().combine_chunks()
        operations = self.store.operations()
        found = {}
        for pipeline, sink in chains:
            chain = self._chain(pipeline, sink)
            mine = pc.and_(
                pc.equal(timed["pipeline"], arrow.scalar(pipeline)), pc.equal(timed["sink"], arrow.scalar(sink))
            )
            found[pipeline, sink] = self._slice(chain, chain.period(from_, to, timed.filter(mine)), operations)
        # Not by `group_by`: that is made of pyarrow.dataset, which imports pandas.
        return found, sorted(set(arrow.tuples(timed, "pipeline", "sink")) - found.keys())

    def _slice(self, chain: ChainReader, period: Period, operations: Sequence[tuple[int, str]] | None) -> LedgerSlice:
        anchors = chain.anchors(period.above, period.day, period.before)
        numbers = ("query_id", "batch_id")
        counts = ("status", "rows_read", "rows_returned")
        later = None if period.upto is None else chain.run(period.upto, None, (*numbers, *counts))
        entries = period.entries
        return columns.to_slice(
            pa.concat_tables([part for part in (anchors, entries) if part.num_rows] or [entries]),
            pipeline=chain.pipeline,
            sink=chain.sink,
            anchors=anchors.num_rows,
            complete=period.above == 0 or anchors.num_rows == 0,
            operations=self.store.operations() if operations is None else operations,
            later=() if later is None else frozenset(arrow.tuples(later, *numbers)),
            transforms_later=None if later is None else _transforms(arrow.tuples(later, *counts)),
        )

    def before(self, pipeline: str, sink: str, at: datetime) -> LedgerSlice:
        """The furthest micro-batch of each epoch before the first entry that was committed at an instant, or later."""
        chain, since = self._chain(pipeline, sink), self.first_since(pipeline, sink, at)
        anchors = chain.anchors(self.position(pipeline, sink) if since is None else since - 1, at.date())
        return columns.to_slice(anchors, pipeline=pipeline, sink=sink, anchors=0, complete=False, operations=())

    def readings(self, pipeline: str, sink: str, topic: str, partition: int, offset: int) -> LedgerSlice:
        """Those entries of a (pipeline, sink) alone whose ranges hold an offset of a topic, whatever its topic id."""
        which = Filter.of(pipeline, sink)
        found = sorted(self.store.holding(which, Place(topic, partition, offset)))
        parts = [self.store.read(replace(which, above=number - 1, upto=number)) for number in found]
        table = in_order(pa.concat_tables(parts) if parts else arrow.empty(self.store.schema))
        return columns.to_slice(table, pipeline=pipeline, sink=sink, anchors=0, complete=False, operations=())

    def coverage(self, pipeline: str, sink: str, *, apart_from: int | None = None) -> dict[coverage.Key, Spans]:
        """Every offset that the entries of a (pipeline, sink) account for; reads the whole ledger, a day at a time.

        With `apart_from`, those of all other epochs, and of repairs.
        """
        held: dict[coverage.Key, Spans] = {}
        for day in self.store.dates():
            which = replace(Filter.of(pipeline, sink, dates=(day,)), apart_from=apart_from)
            of_day = coverage.of(columns.ranges(self.store.read(which, ["offsets"])))
            held = {key: held.get(key, Spans()).union(of_day.get(key, Spans())) for key in held.keys() | of_day.keys()}
        return held

    def numbers(self, pipeline: str, sink: str) -> frozenset[tuple[int, int, int | None]]:
        """(epoch, batch_id, sink_version) of every entry of a (pipeline, sink)."""
        names = ("epoch", "batch_id", "sink_version")
        return frozenset(arrow.tuples(self.store.read(Filter.of(pipeline, sink), names), *names))

    def writes(self, pipeline: str, sink: str, above: int = 0) -> list[TableWrite]:
        """What entries of a (pipeline, sink) with a sequence above one wrote into its table, in order."""
        names = ("sequence", "epoch", "status", "sink_table_id", "sink_version", "rows_written")
        run = self._chain(pipeline, sink).run(above, None, names)
        return [TableWrite(*values) for values in arrow.tuples(run, *names)]

    def quarantined(
        self, pipeline: str, sink: str
    ) -> tuple[Mapping[tuple[int, int], int | None], Mapping[int, int | None]]:
        """The rows that entries of a (pipeline, sink) quarantined, and those that each release took.

        The first by (epoch, batch_id) of those that quarantined some, the second by the number of the release; None
        where no entry says how many. A micro-batch that was entered again has one count.
        """
        names = ("epoch", "batch_id", "rows_quarantined", "rows_read")
        which = Filter.of(pipeline, sink)
        # Most micro-batches quarantine nothing. What is NULL in one entry may be said by another of its micro-batch.
        found = self.store.read(replace(which, not_zero=("rows_quarantined", RELEASES)), names)
        if found["rows_quarantined"].null_count:
            found = self.store.read(which, names)
        entered: dict[tuple[int, int], int | None] = {}
        released: dict[int, int | None] = {}
        for epoch, batch_id, rows, read in arrow.tuples(found, *names):
            if epoch == RELEASES:
                released[batch_id] = _more(released.get(batch_id), read)
            elif epoch != REMOVALS:
                entered[epoch, batch_id] = _more(entered.get((epoch, batch_id)), rows)
        return {batch: rows for batch, rows in entered.items() if rows != 0}, released

    def entries(
        self,
        pipeline: str | None = None,
        sink: str | None = None,
        from_: datetime | None = None,
        to: datetime | None = None,
        limit: int | None = None,
    ) -> list[LedgerEntry]:
        """Entries that match, oldest first, those of one chain in its order; with `limit`, the newest that many."""
        entries = by_time(self.store.read(Filter.of(pipeline, sink, from_, to)))
        return columns.entries(entries.slice(max(0, entries.num_rows - limit)) if limit else entries)

    def chains(self) -> list[tuple[str, str]]:
        """Every (pipeline, sink) that has entries, sorted."""
        names = ("pipeline", "sink")
        return sorted(set(arrow.tuples(self.store.read(Filter(), names), *names)))

    def verify(self, pipeline: str | None = None, sink: str | None = None) -> list[Finding]:
        """What is wrong with whole chains, from their first entry on, and with the states that audits left.

        An entry that a state names must be in its chain: a ledger that was put back to an earlier one is right in
        itself.
        """
        operations = self.store.operations()
        findings: list[Finding] = []
        hashes: dict[tuple[str, str], dict[int, str]] = {}
        for of_pipeline, of_sink in self.chains():
            if pipeline in (None, of_pipeline) and sink in (None, of_sink):
                chain = self.slice(of_pipeline, of_sink, operations=operations)
                findings.extend(verify(chain))
                hashes[of_pipeline, of_sink] = {head.sequence: head.entry_hash for head in chain.heads}
        if not hashes:  # the operation that removed every entry is a finding, too
            findings += [Finding(pipeline=pipeline, sink=sink, **finding) for finding in unlawful(operations)]
        return [*findings, *self.proofs.verify(hashes, pipeline, sink)]

    def tidy(self) -> None:
        """Merge small files where a day has gathered many, so that reading it stays cheap.

        Once a day, the files that merges replaced are removed.
        """
        for store in self._tables:
            store.tidy()
        self._vacuum()

    def compact(self) -> dict[str, Mapping[str, Any]]:
        """Merge the small files of the tables, and remove old ones as `tidy` does; the metrics of merging, by table."""
        tables = [store for store in self._tables if store.exists()]
        metrics = {store.kind: store.compact() for store in tables}
        self._vacuum()
        return metrics

    def _vacuum(self) -> None:
        for store in self._tables:
            try:
                store.vacuum(appended_only=True)
            except LedgerError as error:  # the tables can be read with them
                log.info("the files that merges of the %s table replaced are not removed: %s", store.kind, error)

    @property
    def _tables(self) -> Sequence[Store]:
        return (self.store, self.results, self.proofs.store)


def _more(count: int | None, other: int | None) -> int | None:
    """The larger of two counts; the one that is known."""
    if count is None or other is None:
        return other if count is None else count
    return max(count, other)


def _transforms(counted: Iterable[tuple[Any, ...]]) -> bool | None:
    """Whether (status, rows_read, rows_returned) of entries show a transform that drops or makes rows."""
    pairs = [
        (read, returned) for status, read, returned in counted if status == "committed" and None not in (read, returned)
    ]
    return any(read != returned for read, returned in pairs) if pairs else None


def why_unwritable(project: Project) -> str:
    """Why an audit could keep nothing beside the ledger; "" where it can, or where only a write would show it."""
    if project.ledger.table or not project.ledger.location:
        return ""
    folder = Storage(project.resolve(project.ledger.location)).local
    if folder is None or not folder.exists() or os.access(folder, os.W_OK | os.X_OK):
        return ""
    return f"{folder} cannot be written by this user"


def open_ledger(
    project: str | Path | Project, spark: SparkSession | None = None, housekeeping: Housekeeping = USUAL
) -> Ledger:
    """The project's ledger; nothing is created until the first append.

    Args:
        project: where recon.yml is, or a `Project`; its `ledger` says where the ledger is and who writes it.
        spark: the session for `writer: spark`; the active one when None.
        housekeeping: when its tables are tidied up.

    Raises:
        ConfigError: `ledger` names neither a location nor a table.
    """
    project = as_project(project)
    return Ledger(
        open_store(project, columns.ENTRIES, spark, housekeeping),
        open_store(project, RESULTS, spark, housekeeping),
        open_store(project, PROOF, spark, housekeeping),
        project.mask,
    )


def checks_fingerprint(sink: Sink) -> str:
    """A short hash of the checks that were agreed for a sink when an entry was made."""
    agreed = [spec.model_dump_json(exclude={"line"}) for spec in (*sink.data_tests, *sink.post_batch)]
    agreed += [spec.model_dump_json(exclude={"line"}) for column in sink.columns for spec in column.data_tests]
    return hashlib.sha256("\n".join(agreed).encode()).hexdigest()[:16]
