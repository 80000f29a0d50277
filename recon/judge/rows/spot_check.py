"""The spot check: rows that some commits added, read from their data files without Spark, against what was counted.

Counts and fingerprints of the write do not show a row that a transform loses while it filters others and doubles one,
nor what the sink made of the rows that it was given. The rows of a commit show both. What contradicts is a reason to
read the sink's rows; the verdict rests on those.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from random import Random
from typing import Any, NamedTuple

from recon.judge.findings import Findings
from recon.judge.history.table_history import history_of
from recon.judge.row_counts import Counts
from recon.judge.rows.sink_rows import judged_by_counts
from recon.model import Code, CommitRows, DeltaCommit, Unavailable, Witnesses
from recon.model.fingerprint import of_ranges
from recon.model.ledger import named
from recon.model.offsets import OffsetSpan, Span, Spans
from recon.model.once import once
from recon.text import plural, some

_HANDFUL = 20  # micro-batches that are looked at though their counts and fingerprints prove as much as such can
_REASONS = 5  # why commits were not looked at, the most frequent ones
_ROWS_PER_FILE = 10_000  # opening a data file costs about as much as reading so many rows


class Contradiction(NamedTuple):
    """What the rows of an entry's commit are, other than they should be.

    `swapped`: as many rows of as many offsets, and of others than expected.
    """

    what: str
    swapped: bool


def chosen(counts: Counts, witnesses: Witnesses, most: int, apart_from: Collection[int] = ()) -> list[int]:
    """The versions whose rows are to be read, at most so many rows, and in each audit others.

    First those whose entries were restored, then those of micro-batches that were filtered, or of which Spark did not
    report what the sink was given, then a handful of the others. None is of `apart_from`.
    """
    commits = own_appends(counts, witnesses).items()
    return _chosen({entry: one for entry, one in commits if one.version not in apart_from}, counts, most)


def chosen_of_made(counts: Counts, witnesses: Witnesses, most: int) -> list[int]:
    """The same of micro-batches whose transform may make several rows of one record, where epochs share batch ids.

    There the rows of the sink do not show which micro-batch wrote them.
    """
    if not any(head.epoch > 0 for head in counts.covered.slice.heads):
        return []
    return _chosen(own_appends(counts, witnesses, made=True), counts, most)


def _chosen(commits: Mapping[int, DeltaCommit], counts: Counts, most: int) -> list[int]:
    ledger = counts.covered.slice
    random = Random(f"{ledger.pipeline}/{ledger.sink}/{ledger.heads[-1].entry_hash}")
    kinds: tuple[list[int], ...] = ([], [], [])
    for entry in commits:
        counted, reported = counts.counted[entry], ledger.heads[entry].given is not None
        kinds[0 if counted.uncounted else 1 if counted.dropped or not reported else 2].append(entry)
    for kind in kinds:
        random.shuffle(kind)
    versions = []
    for entry in (*kinds[0], *kinds[1], *kinds[2][:_HANDFUL]):
        commit = commits[entry]
        cost = cost_of(counts, entry, commit)
        if commit.files_added and cost <= most:
            most -= cost
            versions.append(commit.version)
    return versions


def cost_of(counts: Counts, entry: int, commit: DeltaCommit) -> int:
    """What it costs to look at the rows of an entry's commit, as a number of rows."""
    rows = counts.covered.slice.heads[entry].rows_written or 0
    return max(rows, commit.rows_added or 0, commit.files_added * _ROWS_PER_FILE)


def own_appends(counts: Counts, witnesses: Witnesses, *, made: bool = False) -> Mapping[int, DeltaCommit]:
    """The entries of the period whose commit the log still has, and whose rows carry an offset each.

    With `made`, those whose transform may make several rows of one record.
    """
    return once(
        counts, (own_appends, made), lambda: dict(_found_appends(counts, witnesses, made=made)), witnesses.delta
    )


def _found_appends(counts: Counts, witnesses: Witnesses, *, made: bool) -> Iterator[tuple[int, DeltaCommit]]:
    ledger = counts.covered.slice
    history = history_of(witnesses, ledger)
    if history is None or judged_by_counts(witnesses):
        return
    for entry, counted in counts.counted.items():
        head = ledger.heads[entry]
        commit = history.appends.get((head.sink_version, head.epoch, head.batch_id))
        if commit is not None and counted.explodes == made and not counts.operators.keeps_state(head):
            yield entry, commit


def contradictions(counts: Counts, witnesses: Witnesses) -> Mapping[int, Contradiction]:
    """The entries whose commit added other rows than they say."""
    return once(counts, contradictions, lambda: _contradictions(counts, witnesses), witnesses.commit_rows)


def _contradictions(counts: Counts, witnesses: Witnesses) -> dict[int, Contradiction]:
    found = {}
    for entry, commit in own_appends(counts, witnesses).items() if witnesses.commit_rows else ():
        rows = witnesses.commit_rows.get(commit.version)
        if isinstance(rows, CommitRows):
            contradiction = _contradiction(rows, entry, commit, counts, witnesses)
            if contradiction is not None:
                found[entry] = contradiction
    return found


def _contradiction(
    rows: CommitRows, entry: int, commit: DeltaCommit, counts: Counts, witnesses: Witnesses
) -> Contradiction | None:
    head = counts.covered.slice.heads[entry]
    held, given = rows.held, head.given
    written = head.rows_written if commit.rows_added is None else commit.rows_added
    of = f"data files with {plural(held.rows, 'row')}"
    if given is not None and given.rows != held.rows:
        return Contradiction(f"{of} of the {given.rows:,} that the sink was given", False)
    if written is not None and written != held.rows:
        return Contradiction(f"{of}, where {written:,} were written", False)
    ranges = counts.covered.slice.ranges.of(entry)
    once = _different(ranges) == counts.width[entry]  # two sources of a query may read the same topic
    if rows.offsets != held.rows and once and not witnesses.declared.explodes:
        return Contradiction(f"{of} of {plural(rows.offsets, 'offset')}", False)
    if given is not None and given.fingerprint is not None and given.fingerprint != held.fingerprint:
        return Contradiction(f"{of}, as many as the sink was given, and of other offsets", True)
    if not _are_within(rows.spans, ranges):
        return Contradiction(f"{of}, some of offsets that it did not read", True)
    return None


def _are_within(spans: Iterable[OffsetSpan], ranges: Iterable[OffsetSpan]) -> bool:
    """Whether offsets are between the first and the last that were read of their topic partitions."""
    hulls: dict[tuple[str, int], tuple[int, int]] = {}
    for read in ranges:
        low, high = hulls.get((read.topic, read.partition), read.span)
        hulls[read.topic, read.partition] = min(low, read.start_offset), max(high, read.end_offset)
    for span in spans:
        low, high = hulls.get((span.topic, span.partition), (0, 0))
        if span.start_offset < low or span.end_offset > high:
            return False
    return True


def _different(ranges: Iterable[OffsetSpan]) -> int:
    """How many different offsets of topic partitions some ranges have."""
    of_places: dict[tuple[str, int], list[Span]] = {}
    for read in ranges:
        of_places.setdefault((read.topic, read.partition), []).append(read.span)
    return sum(Spans.of(spans).size for spans in of_places.values())


def unproved(counts: Counts, witnesses: Witnesses) -> list[int]:
    """Restored entries of as many rows as offsets, of which nothing shows that each offset has one."""
    if judged_by_counts(witnesses):
        return []
    heads, operators = counts.covered.slice.heads, counts.operators
    left = [
        entry
        for entry, counted in counts.counted.items()
        # One row of one offset can be no other; what a query with state wrote, Spark's own counts say.
        if counted.proved and counted.uncounted and counts.width[entry] > 1
        # Of what Spark's own sink wrote, nobody ever promised more than its number of rows.
        if not (heads[entry].is_observed or operators.keeps_state(heads[entry]))
    ]
    return [entry for entry in left if not _shown(entry, counts, witnesses)]


def _shown(entry: int, counts: Counts, witnesses: Witnesses) -> bool:
    """Whether the rows of its commit were looked at, and each offset of the entry has one."""
    head = counts.covered.slice.heads[entry]
    rows = None if head.sink_version is None else witnesses.commit_rows.get(head.sink_version)
    if not isinstance(rows, CommitRows):
        return False
    ranges = counts.covered.slice.ranges.of(entry)
    as_many = rows.held.rows == counts.width[entry] and rows.offsets == _different(ranges)
    return as_many and _are_within(rows.spans, ranges) and rows.held.fingerprint == of_ranges(ranges)


def reasons(counts: Counts, witnesses: Witnesses) -> Iterator[str]:
    """Why the spot check, or what it could not look at, makes it necessary to read the sink's rows."""
    heads = counts.covered.slice.heads
    unread = [why.reason for why in witnesses.commit_rows.values() if isinstance(why, Unavailable)]
    if witnesses.observed and unread:
        yield f"the rows of {plural(len(unread), 'micro-batch')} that could not be looked at ({unread[0]})"
    found = contradictions(counts, witnesses)
    if found:
        entry, first = next(iter(found.items()))
        which = f"{named(heads[entry])} has {first.what}"
        yield which + (f", and {len(found) - 1:,} more are not as counted" if len(found) > 1 else "")
    left = [heads[entry] for entry in unproved(counts, witnesses) if entry not in found]
    if left:
        yield (
            f"{plural(len(left), 'micro-batch')} ({some(map(named, left))}) restored from the commit, and of the rows "
            "only their number known"
        )


def judge_swapped(counts: Counts, witnesses: Witnesses, findings: Findings) -> None:
    """Adds a finding where a commit added rows of other offsets, and the sink's rows show no fault of them."""
    refuted = {(finding.epoch, finding.batch_id) for finding in findings.items}
    for entry, contradiction in contradictions(counts, witnesses).items():
        head = counts.covered.slice.heads[entry]
        if contradiction.swapped and (head.epoch, head.batch_id) not in refuted:
            findings.add(Code.INCONCLUSIVE, f"{named(head)} has {contradiction.what}: some may be lost", head=head)


def report_unproved(counts: Counts, witnesses: Witnesses, findings: Findings) -> None:
    """Adds a finding about each restored entry of a sink whose rows carry no source offsets: nothing shows them."""
    heads = counts.covered.slice.heads
    findings.add_for_each(
        Code.INCONCLUSIVE,
        [heads[entry] for entry in unproved(counts, witnesses)],
        "restored from the commit, and of the rows only their number is known: the sink has no _source_topic, "
        "_source_partition, _source_offset (stamp_source_offsets) to show whether some are lost and others doubled",
    )


def said(witnesses: Witnesses) -> str:
    """How many micro-batches' rows were looked at, for the end of a message."""
    read = [rows for rows in witnesses.commit_rows.values() if isinstance(rows, CommitRows)]
    return f"; the rows of {plural(len(read), 'micro-batch')} were looked at" if read else ""


def evidence(witnesses: Witnesses) -> Mapping[str, Any]:
    """What was looked at, and why other commits that were chosen were not."""
    if not witnesses.commit_rows:
        return {}
    read = [rows for rows in witnesses.commit_rows.values() if isinstance(rows, CommitRows)]
    left = Counter(why.reason for why in witnesses.commit_rows.values() if isinstance(why, Unavailable))
    seen = {"micro_batches": len(read), "rows": sum(rows.held.rows for rows in read)}
    return {"looked_at": seen, "not_looked_at": dict(left.most_common(_REASONS))}
