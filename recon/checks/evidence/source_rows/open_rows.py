"""The rows of the micro-batches that counts do not prove, where their own commits show them.

Where nothing but these micro-batches is in question, nothing changed the sink's rows since, and the query appends to a
Delta table, its rows are those of the data files that the commits added. They are read without Spark, and no others.
"""

from __future__ import annotations

from collections.abc import Mapping

from recon.checks.evidence.open_findings import recheck
from recon.checks.evidence.row_accounting import Account
from recon.checks.evidence.source_rows import spot_check
from recon.checks.evidence.source_rows.reasons import besides_counts
from recon.checks.evidence.source_rows.transactions import read_uncommitted
from recon.model import CommitRows, DeltaCommit, RowGroup, RowsWitness, Witnesses
from recon.model.fingerprint import of_ranges
from recon.model.offsets import OffsetSpan, Span, Spans


def versions(counts: Account, witnesses: Witnesses, check: str, most: int) -> list[int]:
    """The versions that added the rows, and those that the spot check looks at besides; `most` rows altogether.

    None where theirs are more, or where they do not suffice. `check` is the name of the check that asks.
    """
    commits = _commits(counts, witnesses, check)
    left = most - sum(spot_check.cost_of(counts, entry, commit) for entry, commit in commits.items())
    if not commits or left < 0:
        return []
    mine = [commit.version for commit in commits.values()]
    return [*mine, *spot_check.chosen(counts, witnesses, left, apart_from=mine)]


def of_commits(counts: Account, witnesses: Witnesses, check: str) -> RowsWitness | None:
    """The rows of these micro-batches as the sink has them; None where they were not read, or do not suffice."""
    if not witnesses.commit_rows or any(True for _ in spot_check.reasons(counts, witnesses)):
        return None
    ledger, log = counts.covered.slice, witnesses.of_sink(witnesses.delta)
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


def _commits(counts: Account, witnesses: Witnesses, check: str) -> Mapping[int, DeltaCommit]:
    """The commits of the entries that counts do not prove; empty where the rows of others are needed, too."""
    heads, wanted = counts.covered.slice.heads, {*counts.open}
    commits = {entry: one for entry, one in spot_check.own_appends(counts, witnesses).items() if entry in wanted}
    if (
        not commits
        or len(commits) < len(wanted)
        or any(counts.counted[entry].quarantined for entry in commits)
        or any(head.is_release for head in heads)
        or any(stretches.incarnations > 1 for stretches in counts.judged.values())
        # A record of an aborted transaction may be among the rows of any micro-batch that read uncommitted.
        or read_uncommitted(counts)
        or besides_counts(counts, witnesses)
        or recheck(witnesses, check)
    ):
        return {}
    return commits


def _are_its_own(rows: CommitRows, ranges: list[OffsetSpan]) -> bool:
    """Whether each row has an offset of its own, of those that the entry read."""
    read: dict[tuple[str, int], list[Span]] = {}
    for one in ranges:
        read.setdefault((one.topic, one.partition), []).append(one.span)
    return rows.offsets == rows.held.rows and not any(
        present.minus(Spans.of(read.get((hull.topic, hull.partition), ())))
        for hull, present in zip(rows.spans, rows.present(), strict=True)
    )


def _groups(rows: CommitRows, batch_id: int) -> list[RowGroup]:
    return [
        RowGroup(
            batch_id=batch_id,
            topic=hull.topic,
            partition=hull.partition,
            rows=present.size,
            present=present,
            fingerprint=of_ranges([OffsetSpan(hull.topic, None, hull.partition, *span) for span in present]),
        )
        for hull, present in zip(rows.spans, rows.present(), strict=True)
    ]
