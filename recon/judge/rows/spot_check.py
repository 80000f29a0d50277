"""The spot check: rows that some commits added, read from their data files without Spark, against what was counted.

Counts and fingerprints of the write do not show a row that a transform loses while it filters others and doubles one.
Nor do they show what the sink made of the rows that it was given. The rows of a commit show both. What contradicts is a
reason to read the sink's rows; the verdict rests on those.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Any, NamedTuple

from recon.base.text import plural, some
from recon.judge.coverage import by_partition
from recon.judge.findings import Findings
from recon.judge.history.table_history import TableHistory
from recon.judge.row_counts import Counts
from recon.model import Code, CommitRows, CountedRows, TableCommit, Unavailable
from recon.model.fingerprint import of_ranges
from recon.model.ledger import named
from recon.model.offsets import OffsetSpan, Spans

_HANDFUL = 20  # micro-batches that are looked at though their counts and fingerprints prove as much as such can
_REASONS = 5  # why commits were not looked at, the most frequent ones
_ROWS_PER_FILE = 10_000  # opening a data file costs about as much as reading so many rows


class Contradiction(NamedTuple):
    """What the rows of an entry's commit are, other than they should be.

    `swapped`: as many rows of as many offsets, and of others than expected.
    """

    what: str
    swapped: bool


@dataclass(frozen=True)
class SpotCheck:
    """The rows of the commits that were looked at, by version, against what was counted.

    `observed` is whether the query writes without recon, `explodes` whether its transform is said to make several rows
    of one record; `rows_tell` is whether rows say which record they were made of, and a missing one is missing.
    """

    counts: Counts
    table: TableHistory | None
    commit_rows: Mapping[int, CommitRows | Unavailable]
    observed: bool
    explodes: bool
    rows_tell: bool

    @cached_property
    def appends(self) -> Mapping[int, TableCommit]:
        """The entries of the period whose commit the log still has, and whose rows carry an offset each."""
        return self._appends(made=False)

    def _appends(self, *, made: bool) -> Mapping[int, TableCommit]:
        """The same; with `made`, those whose transform may make several rows of one record."""
        appends = self.table.appends if self.table is not None and self.rows_tell else {}
        found = {}
        for entry, counted in self.counts.counted.items() if appends else ():
            head = self.counts.ledger.heads[entry]
            commit = appends.get((head.sink_version, head.epoch, head.batch_id))
            if commit is not None and counted.explodes == made and not self.counts.operators.keeps_state(head):
                found[entry] = commit
        return found

    def chosen(self, most: int, apart_from: Collection[int] = (), *, made: bool = False) -> list[int]:
        """The versions whose rows are to be read, at most so many rows, and in each audit others.

        First those whose entries were restored. Then those of micro-batches that were filtered, or of which Spark did
        not report what the sink was given. Then a handful of the others. None is of `apart_from`; `made` is as in
        `_appends`.
        """
        ledger, commits = self.counts.ledger, self._appends(made=made)
        random = Random(f"{ledger.pipeline}/{ledger.sink}/{ledger.heads[-1].entry_hash}")

        def kind(entry: int) -> int:
            counted, reported = self.counts.counted[entry], ledger.heads[entry].given is not None
            return 0 if counted.uncounted else 1 if counted.dropped or not reported else 2

        entries = [entry for entry, commit in commits.items() if commit.version not in apart_from]
        random.shuffle(entries)
        entries.sort(key=kind)
        versions = []
        for entry in entries[: sum(kind(entry) < 2 for entry in entries) + _HANDFUL]:
            cost = self.cost_of(entry, commits[entry])
            if commits[entry].files_added and cost <= most:
                most -= cost
                versions.append(commits[entry].version)
        return versions

    def cost_of(self, entry: int, commit: TableCommit) -> int:
        """What it costs to look at the rows of an entry's commit, as a number of rows."""
        rows = self.counts.ledger.heads[entry].rows_written or 0
        return max(rows, commit.rows_added or 0, commit.files_added * _ROWS_PER_FILE)

    @property
    def is_whole(self) -> bool:
        """Whether commits were chosen, and all of them could be looked at."""
        return bool(self.commit_rows) and all(isinstance(rows, CommitRows) for rows in self.commit_rows.values())

    @cached_property
    def contradictions(self) -> Mapping[int, Contradiction]:
        """The entries whose commit added other rows than they say."""
        found = {}
        for entry, commit in self.appends.items() if self.commit_rows else ():
            rows = self.commit_rows.get(commit.version)
            if isinstance(rows, CommitRows) and (other := self._other_than_said(rows, entry, commit)):
                found[entry] = other
        return found

    def _other_than_said(self, rows: CommitRows, entry: int, commit: TableCommit) -> Contradiction | None:
        ledger, held = self.counts.ledger, rows.held
        head, ranges = ledger.heads[entry], ledger.ranges.of(entry)
        given = head.given or CountedRows(held.rows, None)
        of, written = f"data files with {plural(held.rows, 'row')}", commit.rows_added
        for what, count in (
            ("given to the sink", given.rows),
            ("written", head.rows_written if written is None else written),
        ):
            if count not in (None, held.rows):
                return Contradiction(f"{of}, where {count:,} were {what}", False)
        several = _different(ranges) != self.counts.width[entry] or self.explodes  # or two sources read a topic
        if rows.offsets != held.rows and not several:
            return Contradiction(f"{of} of {plural(rows.offsets, 'offset')}", False)
        if given.fingerprint not in (None, held.fingerprint) or not _are_within(rows, ranges):
            return Contradiction(f"{of}, as many as were written, and of other offsets", True)
        return None

    @cached_property
    def unproved(self) -> Sequence[int]:
        """Restored entries of as many rows as offsets, of which nothing shows that each offset has one."""
        heads, operators = self.counts.ledger.heads, self.counts.operators
        return [
            entry
            for entry, counted in (self.counts.counted.items() if self.rows_tell else ())
            # One row of one offset can be no other; what a query with state wrote, Spark's own counts say.
            if counted.proved and counted.uncounted and self.counts.width[entry] > 1
            # Of what Spark's own sink wrote, nobody ever promised more than its number of rows.
            if not (heads[entry].is_observed or operators.keeps_state(heads[entry]) or self._shown(entry))
        ]

    def _shown(self, entry: int) -> bool:
        """Whether the rows of its commit were looked at, and each offset of the entry has one."""
        version, ranges = self.counts.ledger.heads[entry].sink_version, self.counts.ledger.ranges.of(entry)
        rows = None if version is None else self.commit_rows.get(version)
        if not isinstance(rows, CommitRows) or rows.held != CountedRows(self.counts.width[entry], of_ranges(ranges)):
            return False
        return rows.offsets == _different(ranges) and _are_within(rows, ranges)

    @cached_property
    def reasons(self) -> Sequence[str]:
        """Why what was seen, or could not be looked at, makes it necessary to read the sink's rows."""
        heads, found, why = self.counts.ledger.heads, self.contradictions, list[str]()
        unread = [of.reason for of in self.commit_rows.values() if isinstance(of, Unavailable)]
        if self.observed and unread:
            why.append(f"the rows of {plural(len(unread), 'micro-batch')} that could not be looked at ({unread[0]})")
        if found:
            entry, first = next(iter(found.items()))
            more = f", and {len(found) - 1:,} more are not as counted" if len(found) > 1 else ""
            why.append(f"{named(heads[entry])} has {first.what}{more}")
        left = [heads[entry] for entry in self.unproved if entry not in found]
        if left:
            why.append(
                f"{plural(len(left), 'micro-batch')} ({some(map(named, left))}) restored from the commit, and of the "
                "rows only their number known"
            )
        return why

    def judge_swapped(self, findings: Findings) -> None:
        """Adds a finding where a commit added rows of other offsets, and the sink's rows show no fault of them."""
        refuted = {(finding.epoch, finding.batch_id) for finding in findings.items}
        for entry, contradiction in self.contradictions.items():
            head = self.counts.ledger.heads[entry]
            if contradiction.swapped and (head.epoch, head.batch_id) not in refuted:
                findings.add(Code.INCONCLUSIVE, f"{named(head)} has {contradiction.what}: some may be lost", head=head)

    @property
    def evidence(self) -> Mapping[str, Any]:
        """What was looked at, and why other commits that were chosen were not."""
        if not self.commit_rows:
            return {}
        read = [rows for rows in self.commit_rows.values() if isinstance(rows, CommitRows)]
        left = Counter(why.reason for why in self.commit_rows.values() if isinstance(why, Unavailable))
        seen = {"micro_batches": len(read), "rows": sum(rows.held.rows for rows in read)}
        return {"looked_at": seen, "not_looked_at": dict(left.most_common(_REASONS))}


def _are_within(rows: CommitRows, ranges: Iterable[OffsetSpan]) -> bool:
    """Whether offsets are between the first and the last that were read of their topic partitions."""
    read = by_partition(ranges)
    hulls = ((span, read.get((span.topic, span.partition), Spans()).hull) for span in rows.spans)
    return all(hull and hull.start <= span.start_offset and span.end_offset <= hull.end for span, hull in hulls)


def _different(ranges: Iterable[OffsetSpan]) -> int:
    """How many different offsets of topic partitions some ranges have."""
    return sum(spans.size for spans in by_partition(ranges).values())
