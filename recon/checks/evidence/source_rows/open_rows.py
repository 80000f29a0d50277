"""The rows of the micro-batches that counts do not prove, where rows of others are in no question.

Nothing but these micro-batches is in question then, and nothing changed the sink's rows since: their rows alone show
which of their offsets have one. Where the query appends to a Delta table, the data files that their commits added show
it as well, which are read without Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from recon.checks.evidence.open_findings import recheck
from recon.checks.evidence.row_accounting import Account
from recon.checks.evidence.source_rows import spot_check
from recon.checks.evidence.source_rows.reasons import besides_counts, perhaps_repeated
from recon.checks.evidence.source_rows.transactions import read_uncommitted
from recon.model import CommitRows, DeltaCommit, RowGroup, RowsWitness, Witnesses
from recon.model.offsets import OffsetSpan, Span, Spans

_Numbers = frozenset[tuple[int, int]]


def numbers(counts: Account, witnesses: Witnesses, check: str) -> _Numbers:
    """The micro-batches, as (epoch, batch_id), whose rows alone are to be read; none where rows of others are, too.

    `check` is the name of the check that asks. Rows carry no epoch, so that all must be of one.
    """
    heads = counts.covered.slice.heads
    if len({head.epoch for head in heads}) > 1 or witnesses.observed or not _are_alone(counts, witnesses, check):
        return frozenset()
    if any(True for _ in spot_check.reasons(counts, witnesses)) or perhaps_repeated(counts, witnesses):
        return frozenset()
    return frozenset((heads[entry].epoch, heads[entry].batch_id) for entry in counts.open)


def are_enough(counts: Account, rows: RowsWitness) -> bool:
    """Whether each of the rows that were read of these micro-batches has an offset of its own, of those they read."""
    heads, table = counts.covered.slice.heads, counts.covered.slice.ranges
    read = {heads[entry].batch_id: _ranges(table.of(entry)) for entry in counts.open}
    return rows.has_source_columns and all(
        group.rows == group.present.size
        and not group.present.minus(read.get(group.batch_id, {}).get((group.topic, group.partition), Spans()))
        for group in rows.groups
    )


def versions(counts: Account, witnesses: Witnesses, check: str, most: int) -> list[int]:
    """The versions that added the rows, and those that the spot check looks at besides; `most` rows altogether.

    None where theirs are more, or where they do not suffice. `check` is the name of the check that asks.
    """
    commits = _commits(counts, witnesses, check)
    left = most - sum(spot_check.cost_of(counts, entry, commit) for entry, commit in commits.items())
    if not commits or left < 0:
        return []
    mine = [commit.version for commit in commits.values()]
    return [*mine, *spot_check.chosen(counts, witnesses, left, apart_from=frozenset(mine))]


def of_commits(counts: Account, witnesses: Witnesses, check: str) -> RowsWitness | None:
    """The rows that the commits of these micro-batches added; None where they were not read, or do not suffice."""
    return counts.once("rows of commits", witnesses.commit_rows, lambda: _of_commits(counts, witnesses, check))


def _of_commits(counts: Account, witnesses: Witnesses, check: str) -> RowsWitness | None:
    if not witnesses.commit_rows or any(True for _ in spot_check.reasons(counts, witnesses)):
        return None
    ledger, log = counts.covered.slice, witnesses.of_sink(witnesses.delta)
    commits = _commits(counts, witnesses, check)
    groups: list[RowGroup] = []
    for entry, commit in commits.items():
        rows = witnesses.commit_rows.get(commit.version)
        if not isinstance(rows, CommitRows) or rows.offsets != rows.held.rows:
            return None
        groups += _groups(rows, ledger.heads[entry].batch_id)
    if not commits or log is None:
        return None
    found = RowsWitness(
        location=log.location,
        version=log.last,
        rows=sum(group.rows for group in groups),
        unstamped_rows=0,
        has_source_columns=True,
        groups=groups,
        of=frozenset((ledger.heads[entry].epoch, ledger.heads[entry].batch_id) for entry in commits),
    )
    return found if are_enough(counts, found) else None


def _commits(counts: Account, witnesses: Witnesses, check: str) -> Mapping[int, DeltaCommit]:
    """The commits of the entries that counts do not prove; empty where one lacks, or rows of others are needed."""
    wanted = {*counts.open}
    commits = {entry: one for entry, one in spot_check.own_appends(counts, witnesses).items() if entry in wanted}
    several = len({counts.covered.slice.heads[entry].batch_id for entry in commits}) < len(commits)
    if several or len(commits) < len(wanted) or not _are_alone(counts, witnesses, check):
        return {}
    return commits


def _are_alone(counts: Account, witnesses: Witnesses, check: str) -> bool:
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


def _ranges(read: Iterable[OffsetSpan]) -> Mapping[tuple[str, int], Spans]:
    found: dict[tuple[str, int], list[Span]] = {}
    for one in read:
        found.setdefault((one.topic, one.partition), []).append(one.span)
    return {where: Spans.of(spans) for where, spans in found.items()}


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
