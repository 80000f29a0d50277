"""Why the ledger's counts are not enough to prove that every offset arrived, so that rows must be read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from recon.judge.findings import Findings, named
from recon.judge.history.database_counts import doubled_by_others, rows_removed, rows_replaced
from recon.judge.history.foreign_rows import read_of_others, releases
from recon.judge.history.lost_writes import lost_of
from recon.judge.history.row_balance import compared
from recon.judge.history.table_history import (
    TableHistory,
    changes_rows,
    history_of,
    may_swap_rows,
    other_count,
    removes_rows,
)
from recon.judge.row_counts import Counts
from recon.judge.rows import quarantine, spot_check
from recon.judge.rows.sink_rows import judged_by_counts, rewrites
from recon.judge.rows.transactions import read_while_open
from recon.model import (
    Code,
    DeltaCommit,
    EntryHead,
    RowsWitness,
    Unavailable,
    Verdict,
    Witnesses,
    known,
)
from recon.model.once import once
from recon.model.positions import is_kafka
from recon.text import plural, some


def reasons(counts: Counts, witnesses: Witnesses) -> list[str]:
    """Why the rows of the sink are needed; empty when counts, and the rows of some commits, are enough."""
    return [*by_counts(counts, witnesses), *spot_check.reasons(counts, witnesses)]


def by_counts(counts: Counts, witnesses: Witnesses) -> list[str]:
    """Why counts are not enough; empty when they are."""
    heads, unproved = counts.covered.slice.heads, list(counts.open)
    who = f"{plural(len(unproved), 'micro-batch')} ({some(named(heads[e]) for e in unproved)})"
    why = [f"{who} with {_counted(unproved, counts)}"] if unproved else []
    return [*why, *besides_counts(counts, witnesses)]


def _counted(unproved: Sequence[int], counts: Counts) -> str:
    """What counts say of entries that they do not prove."""
    known = sum(deficit for entry in unproved if (deficit := counts.counted[entry].deficit))
    if known:
        return f"{plural(known, 'offset')} without a counted row"
    doubted = any(counts.counted[entry].doubted for entry in unproved)
    return "as many rows as were read, but of other offsets" if doubted else "rows that counts cannot tell"


def besides_counts(counts: Counts, witnesses: Witnesses) -> list[str]:
    """Why rows are needed whatever the counts of the micro-batches say; empty where nothing else is in question."""
    heads, why = counts.covered.slice.heads, []
    opened = read_while_open(counts, witnesses)
    if opened:
        who = f"{plural(len(opened), 'micro-batch')} ({some(named(heads[e]) for e in sorted(opened))})"
        why.append(f"{who} read behind a transaction that was open then")
    why += [reason for reason in (read_twice(counts), added_by_others(counts, witnesses)) if reason]
    released = releases(witnesses)
    if released:
        why.append(f"{some(named(head) for head in released)} wrote rows that the sink may have had already")
    return [*why, *_committed_twice(counts, witnesses), *changes(counts, witnesses)]


def read_twice(counts: Counts) -> str:
    """How many offsets two micro-batches read, in a sentence; "" for none."""
    overlaps = counts.overlaps
    twice = sum(spans.size for key, spans in overlaps.items() if is_kafka(key.topic))
    parts = [f"{plural(twice, 'offset')}"] if twice else []
    parts += [key.offsets(*hull) for key, spans in overlaps.items() if not is_kafka(key.topic) and (hull := spans.hull)]
    return f"{', '.join(parts)} were read twice" if parts else ""


def _committed_twice(counts: Counts, witnesses: Witnesses) -> Iterator[str]:
    """Micro-batches that several commits of the sink's log are of, each with rows that stand."""
    history = history_of(witnesses, counts.covered.slice)
    if history is None:
        return
    for (_, batch_id), several in history.committed_again.items():
        if several[-1] > history.looked_up_to:
            yield f"micro-batch {batch_id} was committed as versions {some(several)}"


def perhaps_repeated(counts: Counts, witnesses: Witnesses) -> list[EntryHead]:
    """Micro-batches whose rows may be in the sink twice, whatever their own counts say.

    A run of the query begins by writing again what the run before it left unfinished. A sink that keeps a record of its
    writes tells whether it had them already; of any other, the first micro-batch of each run may be such a retry.
    """
    log, ledger = witnesses.sink_record, counts.covered.slice
    if log is None or log.recorded:
        return []
    first, seen = set[int](), set[str]()
    for entry, head in enumerate(ledger.heads):
        if head.is_micro_batch:
            if head.run_id is None or head.run_id not in seen:
                first.add(entry)
            seen.add(head.run_id or "")
    return [ledger.heads[e] for e in counts.counted if e in first and ledger.heads[e].status == "committed"]


def changes(counts: Counts, witnesses: Witnesses) -> Iterator[str]:
    """What may have removed rows since they were counted, from the sink or from its quarantine."""
    yield from _changed(counts, witnesses)
    yield from quarantine.doubts(counts, witnesses)


def _changed(counts: Counts, witnesses: Witnesses) -> Iterator[str]:
    """Which commits of others, and which RESTORE, changed rows of the sink."""
    ledger = counts.covered.slice
    history = history_of(witnesses, ledger)
    removals = [head for head in ledger.heads[ledger.anchors :] if head.is_removal]
    if removals:
        yield f"{some(named(head) for head in removals)} changed rows of the sink"
    removed = rows_removed(witnesses)
    if removed:
        yield f"the sink has {plural(removed, 'row')} fewer than were written"
    if replaced := rows_replaced(witnesses):
        yield f"the sink has {replaced}"
    lost = lost_of(witnesses.sink_record, ledger)
    if lost:
        yield f"the sink no longer has all that {some(named(write.stamp) for write in lost)} wrote"
    if history is not None:
        yield from once(
            counts, _changed_by_commits, lambda: list(_changed_by_commits(history, witnesses)), witnesses.delta
        )


def _changed_by_commits(history: TableHistory, witnesses: Witnesses) -> Iterator[str]:
    """The same of a Delta table, whose log says it."""
    for versions, what in _changing(history, witnesses):
        if versions:
            yield f"version {some(versions)} of the sink {what}"
    files = known(history.log.files)
    if gone := known(files.gone) if files is not None else ():
        yield f"the store lacks {plural(len(gone), 'data file')} of the sink"
    rows = compared(witnesses, history)
    if rows is not None and rows.doubt:
        yield rows.doubt


def _changing(history: TableHistory, witnesses: Witnesses) -> Iterator[tuple[Sequence[int], str]]:
    """The versions behind the first claimed one that may have changed rows, by what they did."""
    later = [commit for commit in history.acting if commit.version > history.first_claimed]
    # Where micro-batches replace rows anyway, another pipeline may do so with rows of its own.
    removes = changes_rows if rewrites(witnesses) else removes_rows
    changing = {commit.version for commit in history.others if removes(commit)} | {*history.restores}
    yield _versions(c for c in later if c.version in changing), "changed rows"
    yield _versions(filter(other_count, later)), "rewrote data files with another number of rows"
    # Where rows do not tell, it stays unknown: a question would have no answer.
    swapping = () if judged_by_counts(witnesses) else filter(may_swap_rows, later)
    same = "rewrote data files, and neither its operation nor a count shows that the rows are the same"
    yield _versions(swapping), same


def _versions(commits: Iterable[DeltaCommit]) -> list[int]:
    return [commit.version for commit in commits]


def added_by_others(counts: Counts, witnesses: Witnesses) -> str:
    """Which commits of others added rows, perhaps of records that the sink has already; "" for none."""
    if why := doubled_by_others(witnesses):
        return why
    history, found = history_of(witnesses, counts.covered.slice), list[str]()
    adding = [c.version for c in history.others if c.rows_added != 0] if history is not None else []
    if adding:
        found.append(f"another program added rows in version {some(adding)} of the sink")
    again = sum(spans.size for spans in read_of_others(witnesses).values())
    if again:
        found.append(f"the query read {plural(again, 'offset')} of which another program had added rows to the sink")
    return "; ".join(found)


def attested(counts: Counts, witnesses: Witnesses, findings: Findings) -> frozenset[int]:
    """Unproved entries of a stateful query of which Spark says that it read every offset, or will say so soon.

    Not those of which the sink, if it keeps all rows, took in fewer or more than it was given.
    """
    heads, operators = counts.covered.slice.heads, counts.operators
    stateful = [entry for entry in counts.open if operators.keeps_state(heads[entry])]
    read = [entry for entry in stateful if is_attested(counts, witnesses, entry)]
    if read:
        findings.add(
            Code.ATTESTED_ONLY,
            f"{plural(len(read), 'micro-batch')} ({some(named(heads[e]) for e in read)}): the query keeps state, and "
            "its rows carry no source offsets; Spark reports that every offset was read; counts do not show what the "
            "state made of them",
        )
    return frozenset((*read, *awaited(stateful, counts, witnesses, findings)))


def is_attested(counts: Counts, witnesses: Witnesses, entry: int) -> bool:
    """Whether Spark says of a micro-batch of a stateful query, which counts do not prove, that it read every offset."""
    head, counted = counts.covered.slice.heads[entry], counts.counted[entry]
    if counted.proved or not counts.operators.keeps_state(head) or (counted.lost and not rewrites(witnesses)):
        return False
    return counts.operators.read_whole(head, counts.width[entry])


def awaited(entries: Iterable[int], counts: Counts, witnesses: Witnesses, findings: Findings) -> list[int]:
    """Entries whose progress is not recorded yet, with one finding for all of them."""
    heads = counts.covered.slice.heads
    not_recorded = sorted({entry for entry in entries if counts.operators.awaited(heads[entry], witnesses)})
    if not_recorded:
        findings.add(
            Code.INFLIGHT,
            f"{plural(len(not_recorded), 'micro-batch')} ({some(named(heads[e]) for e in not_recorded)}): Spark's "
            "progress is not recorded yet; the next audit looks at them again",
        )
    return not_recorded


def report_untold(counts: Counts, witnesses: Witnesses, rows: RowsWitness, findings: Findings) -> None:
    """Adds findings for what rows alone could tell, where they carry no source offsets: no later audit can, either."""
    told, heads = attested(counts, witnesses, findings), counts.covered.slice.heads
    lacks = f"{rows.location} has no _source_topic, _source_partition, _source_offset to tell (stamp_source_offsets)"
    for entry in (entry for entry in counts.open if entry not in told):
        open_ = f"counts leave open whether every offset arrived ({_counted([entry], counts)}), and {lacks}"
        findings.add_for_each(Code.INCONCLUSIVE, [heads[entry]], open_)
    log = witnesses.table_log
    # Versions begin anew in a table that is made anew.
    of_table = f" (table id {log.table_id})" if log is not None and log.table_id else ""
    for reason in besides_counts(counts, witnesses):
        findings.add(Code.INCONCLUSIVE, f"{reason}, and {lacks}{of_table}", about=f"{reason}{of_table}")


def without_rows(verdict: Verdict, rows: RowsWitness | Unavailable, why: Sequence[str], proved: str = "") -> Verdict:
    """The verdict where rows are needed and cannot be had: refuted findings stand, everything else is unproved."""
    # Whatever else the check could not decide: the next audit judges these entries again.
    verdict = replace(verdict, evidence={**verdict.evidence, "unread": "; ".join(why)})
    if verdict.failures:
        return verdict
    message = f"{proved}{'; '.join(why)}: the sink's rows are needed and "
    if isinstance(rows, RowsWitness):
        message += f"{rows.location} has no _source_topic, _source_partition, _source_offset (stamp_source_offsets)"
        return replace(verdict, unproved=message, message=message)
    message += rows.reason
    if rows.skipped:
        return replace(verdict, skipped=message, message=message)
    return replace(verdict, unproved=message, message=message)
