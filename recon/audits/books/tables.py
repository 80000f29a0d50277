"""What the sinks of a project wrote into the Delta tables between two hops, version by version."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate

from recon.model import REMOVALS, LedgerSlice
from recon.model.books import TableWrite
from recon.model.delta_offsets import BEGINNING, position_of
from recon.project import Project, Sink
from recon.write.ledger import Ledger

Names = tuple[str, str]  # pipeline, sink
Writes = Mapping[Names, Sequence[TableWrite]]
_EARLIER = 20_000  # writes: two days of a micro-batch every 10 seconds
_IN_PART = "a version was read in part"
_REPLACED = "rows of the table that is read replace earlier ones"
_REMOVED = "rows were removed from the table that is read"
UNEXPLAINED = "a version that was read has no ledger entry here, or one that counts no rows"


def writes_of(project: Project, ledger: Ledger, slices: Mapping[Names, LedgerSlice]) -> Writes:
    """What the sinks of a project wrote into Delta tables, where a pipeline reads one: also a while before the slices.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    if all(pipeline.of_kafka for pipeline in project.pipelines):
        return {}
    chains = [(pipe.name, sink.name) for pipe in project.pipelines for sink in pipe.sinks if sink.is_delta]
    return {names: ledger.writes(*names, above=_above(slices.get(names))) for names in chains}


def _above(ledger: LedgerSlice | None) -> int:
    """The entry behind which writes are read: a reader may be behind by that many."""
    heads = ledger.heads[ledger.anchors :] if ledger is not None else ()
    return max(0, heads[0].sequence - 1 - _EARLIER) if heads else 0


@dataclass
class WrittenTable:
    """What pipelines of the project wrote into one Delta table, version by version."""

    sinks: dict[Names, Sink] = field(default_factory=dict)
    rows: dict[int, int | None] = field(default_factory=dict)  # by version
    ambiguous: set[int] = field(default_factory=set)  # versions that entries count differently
    removals: set[int] = field(default_factory=set)  # versions that took doubled rows out

    def add(self, names: Names, sink: Sink, write: TableWrite) -> None:
        """Adds a write of a sink, in the order of its chain."""
        self.sinks[names] = sink
        if write.version is None:
            return
        if write.epoch == REMOVALS:
            self.removals.add(write.version)
            self.rows[write.version] = 0
        elif write.status == "already_committed":  # the replay of a write that has an entry, or has none
            self.rows.setdefault(write.version, write.rows)
        else:
            # The table was put back to an older copy and written again; nobody knows which of the two was read.
            if self.rows.get(write.version) not in (None, write.rows):
                self.ambiguous.add(write.version)
            self.rows[write.version] = write.rows

    def offered(self, start: int, end: int, passes: str) -> tuple[int | None, str]:
        """The rows in a range of positions; None, and why, where they are not known."""
        low, high = position_of(start), position_of(end)
        whole = start == BEGINNING
        if high.files or high.in_snapshot or (not whole and (low.files or low.in_snapshot)):
            return None, _IN_PART
        if self._is_rewritten:
            return None, _REPLACED
        first = 0 if whole else low.version
        if (whole or passes != "skip") and self._removals_in(first, high.version):
            return None, _REMOVED
        at, upto = bisect_left(self._versions, first), bisect_left(self._versions, high.version)
        if upto - at != high.version - first:
            return None, UNEXPLAINED
        return self._sums[upto] - self._sums[at], ""

    def _removals_in(self, first: int, end: int) -> int:
        return bisect_left(self._removals, end) - bisect_left(self._removals, first)

    @cached_property
    def _removals(self) -> Sequence[int]:
        return sorted(self.removals)

    @cached_property
    def newest(self) -> int:
        """The newest version that an entry has; -1 for none."""
        return max(self.rows, default=-1)

    @cached_property
    def _is_rewritten(self) -> bool:
        return any(sink.rewrites for sink in self.sinks.values())

    @cached_property
    def _versions(self) -> Sequence[int]:
        """Those whose rows are known."""
        return sorted(v for v, rows in self.rows.items() if rows is not None and v not in self.ambiguous)

    @cached_property
    def _sums(self) -> Sequence[int]:
        """The rows of all versions before each of these."""
        return list(accumulate((self.rows[version] or 0 for version in self._versions), initial=0))


def tables_of(project: Project, writes: Writes) -> dict[str, WrittenTable]:
    """The tables that sinks wrote, by id."""
    tables: dict[str, WrittenTable] = defaultdict(WrittenTable)
    for names, of_sink in writes.items():
        sink = project.find_sink(*names)[1]
        for write, table_id in zip(of_sink, _table_ids(of_sink), strict=True):
            if table_id is not None:
                tables[table_id].add(names, sink, write)
    return dict(tables)


def _table_ids(writes: Sequence[TableWrite]) -> list[str | None]:
    """The table of each write; one that does not say it is of the table of those around it, where these agree."""
    before, behind = _last_said(writes), _last_said(writes[::-1])[::-1]
    found: list[str | None] = []
    for write, earlier, later in zip(writes, before, behind, strict=True):
        around = {said.table_id for said in (earlier, later) if said is not None}
        fits = write.version is not None and (
            (earlier is None or earlier.version is None or earlier.version < write.version)
            and (later is None or later.version is None or write.version < later.version)
        )
        found.append(write.table_id or (around.pop() if fits and len(around) == 1 else None))
    return found


def _last_said(writes: Sequence[TableWrite]) -> list[TableWrite | None]:
    """For each write the last one before it that says its table; a replay says an older one."""
    last: TableWrite | None = None
    found: list[TableWrite | None] = []
    for write in writes:
        found.append(last)
        last = write if write.table_id is not None and write.status != "already_committed" else last
    return found
