"""The rows of the micro-batches that counts do not prove, where their own commits show them.

Where nothing but these micro-batches is in question, nothing changed the sink's rows since, and the query appends to a
Delta table, its rows are those of the data files that the commits added. They are read without Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from recon.judge.open_findings import recheck
from recon.judge.row_counts import Counts
from recon.judge.rows import spot_check
from recon.judge.rows.reasons import besides_counts
from recon.judge.rows.transactions import read_uncommitted
from recon.model import CommitRows, DeltaCommit, RowGroup, RowsWitness, Witnesses
from recon.model.offsets import OffsetSpan, Span, Spans
from recon.model.once import once


def versions(counts: Counts, witnesses: Witnesses, check: str, most: int) -> list[int]:
    """The versions that added the rows, and those that the spot check looks at besides; `most` rows altogether.

    None where theirs are more, or where they do not suffice. `check` is the name of the check that asks.
    """
    commits = _commits(counts, witnesses, check)
    left = most - sum(spot_check.cost_of(counts, entry, commit) for entry, commit in commits.items())
    if not commits or left < 0:
        return []
    mine = [commit.version for commit in commits.values()]
    return [*mine, *spot_check.chosen(counts, witnesses, left, apart_from=frozenset(mine))]


def of_commits(counts: Counts, witnesses: Witnesses, check: str) -> RowsWitness | None:
    """The rows that the commits of these micro-batches added; None where they were not read, or do not suffice."""
    return once(counts, of_commits, lambda: _of_commits(counts, witnesses, check), witnesses.commit_rows)


def _of_commits(counts: Counts, witnesses: Witnesses, check: str) -> RowsWitness | None:
    # Commits that could not be looked at, of the spot check as well, leave it to the sink's rows.
    if not witnesses.commit_rows or not all(isinstance(rows, CommitRows) for rows in witnesses.commit_rows.values()):
        return None
    if any(True for _ in spot_check.reasons(counts, witnesses)):
        return None
    ledger, log = counts.covered.slice, witnesses.table_log
    commits = _commits(counts, witnesses, check)
    groups: list[RowGroup] = []
    for entry, commit in commits.items():
        rows = witnesses.commit_rows.get(commit.version)
        if not isinstance(rows, CommitRows) or not _are_its_own(rows, ledger.ranges.of(entry)):
            return None
        groups += _groups(rows, ledger.heads[entry].batch_id)
    if not commits or log is None:
        return None
    return RowsWitness(
        location=log.location,
        version=log.last,
        rows=sum(group.rows for group in groups),
        unstamped_rows=0,
        has_source_columns=True,
        groups=groups,
        of=frozenset((ledger.heads[entry].epoch, ledger.heads[entry].batch_id) for entry in commits),
    )


def _commits(counts: Counts, witnesses: Witnesses, check: str) -> Mapping[int, DeltaCommit]:
    """The commits of the entries that counts do not prove; empty where one lacks, or rows of others are needed."""
    wanted = {*counts.open}
    commits = {entry: one for entry, one in spot_check.own_appends(counts, witnesses).items() if entry in wanted}
    several = len({counts.covered.slice.heads[entry].batch_id for entry in commits}) < len(commits)
    if several or len(commits) < len(wanted) or not _are_alone(counts, witnesses, check):
        return {}
    return commits


def _are_alone(counts: Counts, witnesses: Witnesses, check: str) -> bool:
    """Whether nothing is in question but the rows of the micro-batches that counts do not prove."""
    heads, operators = counts.covered.slice.heads, counts.operators
    return bool(counts.open) and not (
        any(counts.counted[entry].quarantined or counts.counted[entry].explodes for entry in counts.open)
        or any(operators.keeps_state(heads[entry]) for entry in counts.open)
        or any(head.is_release for head in heads)
        or any(stretches.incarnations > 1 for stretches in counts.judged.values())
        # A record of an aborted transaction may be among the rows of any micro-batch that read uncommitted.
        or read_uncommitted(counts)
        or besides_counts(counts, witnesses)
        or recheck(witnesses, check)
    )


def _are_its_own(rows: CommitRows, ranges: Iterable[OffsetSpan]) -> bool:
    """Whether each row has an offset of its own, of those that the entry read."""
    read: dict[tuple[str, int], list[Span]] = {}
    for one in ranges:
        read.setdefault((one.topic, one.partition), []).append(one.span)
    return rows.offsets == rows.held.rows and not any(
        present.minus(Spans.of(read.get((hull.topic, hull.partition), ())))
        for hull, present in zip(rows.spans, rows.present(), strict=True)
    )


def _groups(rows: CommitRows, batch_id: int) -> Sequence[RowGroup]:
    return [
        RowGroup(
            batch_id=batch_id,
            topic=hull.topic,
            partition=hull.partition,
            rows=present.size,
            present=present,
        )
        for hull, present in zip(rows.spans, rows.present(), strict=True)
    ]
