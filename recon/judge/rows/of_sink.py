"""What counts leave open of a sink, and its rows, where they are known: source_rows and the account begin here.

Often the rows of some micro-batches alone are in question. Where the query appends to a Delta table, and nothing
changed its rows since, these are in the data files that the commits added. They are read without Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain

from recon.judge.case import SinkCase
from recon.judge.coverage import by_partition
from recon.judge.findings import Findings
from recon.judge.open_findings import recheck
from recon.judge.row_counts import Counts
from recon.judge.rows.foreign_rows import releases, search
from recon.judge.rows.reasons import attested, besides_counts, counted_of, lacks, perhaps_repeated, who
from recon.judge.rows.rewriting import SourceCounts
from recon.judge.rows.sink_rows import SinkRows
from recon.judge.rows.spot_check import SpotCheck
from recon.judge.rows.transactions import read_uncommitted
from recon.judge.source import Source
from recon.model import Code, CommitRows, EntryHead, LedgerSlice, RowGroup, RowsWitness, TableCommit, Unavailable
from recon.model.offsets import Spans

CHECK = "source_rows"


@dataclass(frozen=True)
class RowEvidence:
    """A sink's counts with the rows that were read: those of some commits, and perhaps all."""

    case: SinkCase
    commit_rows: Mapping[int, CommitRows | Unavailable]
    rows: RowsWitness | Unavailable

    @classmethod
    def of(cls, case: SinkCase) -> RowEvidence:
        """With the rows that were given."""
        return cls(case, case.witnesses.commit_rows, case.witnesses.rows)

    def look_at(self, versions: Sequence[int]) -> RowEvidence:
        """The same with the rows of some commits, which are read now."""
        return replace(self, commit_rows=self.case.witnesses.with_commit_rows(versions).commit_rows)

    def read_rows(self) -> RowEvidence:
        """The same with the rows of the sink, which are read now."""
        return replace(self, rows=self.case.witnesses.with_rows().rows)

    @property
    def counts(self) -> Counts:
        """Rows and offsets of each micro-batch."""
        return self.case.counts

    @cached_property
    def spot(self) -> SpotCheck:
        """The rows of the commits that were looked at."""
        case, explodes = self.case, bool(self.case.declared.explodes)
        tell = not case.judged_by_counts
        return SpotCheck(case.counts, case.table, self.commit_rows, case.observed, explodes, rows_tell=tell)

    @cached_property
    def besides(self) -> Sequence[str]:
        """Why rows are needed whatever the counts of the micro-batches say."""
        return besides_counts(self.case)

    @cached_property
    def by_counts(self) -> Sequence[str]:
        """Why counts are not enough; empty when they are."""
        open_, counts = self.counts.open, self.counts
        why = [f"{who(open_, counts)} with {counted_of(open_, counts)}"] if open_ else []
        return [*why, *self.besides]

    @property
    def reasons(self) -> Sequence[str]:
        """Why the rows of the sink are needed; empty when counts, and the rows of some commits, are enough."""
        return [*self.by_counts, *self.spot.reasons]

    @cached_property
    def perhaps_repeated(self) -> Sequence[EntryHead]:
        """Micro-batches whose rows may be in the sink twice, whatever their counts say."""
        return perhaps_repeated(self.case)

    @cached_property
    def misses_rows(self) -> bool:
        """Whether rows of the sink are needed to tell which offsets it has."""
        return bool(self.reasons or self._is_rechecked) and self._of_commits is None

    @property
    def _is_rechecked(self) -> bool:
        """Whether an open finding is about rows of the judged micro-batches."""
        return recheck(self.case.proof, self.case.entered, CHECK)

    @property
    def looks_for_repeated_alone(self) -> bool:
        """Whether rows were read only because a retry may have doubled some: counts prove that none were lost.

        What readers of the sink removed since is then no business of this check, as where rows are not read at all.
        """
        return bool(self.perhaps_repeated) and not self.misses_rows

    @cached_property
    def sink(self) -> SinkRows | None:
        """The sink's rows, or those of the micro-batches in question; None where they carry no source offsets, or were
        not read.
        """
        rows = self.rows if isinstance(self.rows, RowsWitness) else self._of_commits
        if rows is None or not rows.has_source_columns:
            return None
        case = self.case
        return SinkRows(
            counts=case.counts,
            rows=rows,
            spot=self.spot,
            source=case.source,
            writing=case.writing,
            table=case.table,
            record=case.record,
            proof=case.proof,
            time=case.time,
            sought=search(case),
            released=releases(case),
            findings=Findings.of(case.witnesses),
        )

    def versions_of_open(self, most: int) -> list[int]:
        """The versions that added rows in question, and those that the spot check looks at besides; `most` rows in all.

        None where theirs are more, or where they do not suffice.
        """
        commits = self._commits
        left = most - sum(self.spot.cost_of(entry, commit) for entry, commit in commits.items())
        if not commits or left < 0:
            return []
        mine = [commit.version for commit in commits.values()]
        return [*mine, *self.spot.chosen(left, apart_from=frozenset(mine))]

    @cached_property
    def _of_commits(self) -> RowsWitness | None:
        """The rows that the commits of these micro-batches added; None where they were not read, or do not suffice."""
        table, ledger = self.case.table, self.case.ledger
        # Commits that could not be looked at, of the spot check as well, leave it to the sink's rows.
        commits = self._commits if self.spot.is_whole and not self.spot.reasons else {}
        own = [_own(self.commit_rows.get(commit.version), ledger, entry) for entry, commit in commits.items()]
        if table is None or not commits or None in own:
            return None
        groups = list(_standing(chain.from_iterable(filter(None, own)), table.as_declared))
        return RowsWitness(
            location=table.location,
            version=table.log.last,
            rows=sum(group.rows for group in groups),
            unstamped_rows=0,
            has_source_columns=True,
            groups=groups,
            of=frozenset((ledger.heads[entry].epoch, ledger.heads[entry].batch_id) for entry in commits),
        )

    @cached_property
    def _commits(self) -> Mapping[int, TableCommit]:
        """The commits of the entries that counts do not prove; empty where one lacks, or rows of others are needed."""
        appends, open_, heads = self.spot.appends, self.counts.open, self.case.ledger.heads
        several = len({heads[entry].batch_id for entry in open_}) < len(open_)
        if not open_ or several or any(entry not in appends for entry in open_) or any(self._need_others()):
            return {}
        return {entry: appends[entry] for entry in open_}

    def _need_others(self) -> Iterator[object]:
        """What is in question besides the rows of the micro-batches that counts do not prove."""
        heads = self.case.ledger.heads
        for entry in self.counts.open:
            counted = self.counts.counted[entry]
            yield counted.quarantined or counted.explodes or self.counts.operators.keeps_state(heads[entry])
        yield any(head.is_release for head in heads)
        yield any(stretches.incarnations > 1 for stretches in self.counts.judged.values())
        # A record of an aborted transaction may be among the rows of any micro-batch that read uncommitted.
        yield read_uncommitted(self.counts)
        yield self.besides
        yield self._is_rechecked

    def report_untold(self, rows: RowsWitness, findings: Findings) -> None:
        """Adds findings for what rows alone could tell, where they carry no offsets: no later audit can, either."""
        case, counts, heads = self.case, self.counts, self.case.ledger.heads
        told = attested(counts, case.time, findings, rewrites=case.rewrites)
        for entry in (*(entry for entry in counts.open if entry not in told), *self.spot.unproved):
            untold = (
                f"counts leave open whether every offset arrived ({counted_of([entry], counts)}), and {lacks(rows)}"
            )
            findings.add_for_each(Code.INCONCLUSIVE, [heads[entry]], untold)
        # Versions begin anew in a table that is made anew.
        table_id = case.table.log.table_id if case.table is not None else None
        of_table = f" (table id {table_id})" if table_id else ""
        for reason in self.besides:
            findings.add(Code.INCONCLUSIVE, f"{reason}, and {lacks(rows)}{of_table}", about=f"{reason}{of_table}")


def _standing(groups: Iterable[RowGroup], deleted: Mapping[tuple[str, int], Spans]) -> Iterator[RowGroup]:
    """The rows that commits added, without those that were deleted since as declared."""
    for group in groups:
        left = group.present.minus(deleted.get((group.topic, group.partition), Spans()))
        yield replace(group, rows=left.size, present=left)


def source_counts(case: SinkCase, source: Source) -> SourceCounts:
    """The counts of a sink against the records of its source, as far as it was asked."""
    return SourceCounts(case.counts, source, case.proof, case.declared, case.observed, case.rows_lack_source)


def _own(rows: CommitRows | Unavailable | None, ledger: LedgerSlice, entry: int) -> Sequence[RowGroup] | None:
    """The rows of an entry's commit by topic partition.

    None where they are not known, or not each has an offset of its own, of those that the entry read.
    """
    if not isinstance(rows, CommitRows):
        return None
    batch_id, read = ledger.heads[entry].batch_id, by_partition(ledger.ranges.of(entry))
    own = [
        RowGroup(batch_id=batch_id, topic=hull.topic, partition=hull.partition, rows=spans.size, present=spans)
        for hull, spans in zip(rows.spans, rows.present(), strict=True)
        if not spans.minus(read.get((hull.topic, hull.partition), Spans()))
    ]
    return own if sum(group.rows for group in own) == rows.held.rows else None
