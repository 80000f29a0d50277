"""Why the ledger's counts are not enough to prove that every offset arrived, so that rows must be read."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from recon.base.text import plural, some
from recon.judge.case import SinkCase
from recon.judge.findings import Findings
from recon.judge.history import table_history
from recon.judge.history.record_history import RecordHistory
from recon.judge.history.row_balance import TableRows
from recon.judge.history.table_history import TableHistory
from recon.judge.row_counts import Counts
from recon.judge.rows import quarantine
from recon.judge.rows.foreign_rows import read_of_others, releases
from recon.judge.rows.transactions import read_while_open
from recon.model import AuditTime, Code, EntryHead, LedgerSlice, RowsWitness, TableCommit, Unavailable, Verdict, known
from recon.model.ledger import named
from recon.model.once import kept
from recon.model.positions import is_kafka


def who(entries: Collection[int], counts: Counts) -> str:
    """Some micro-batches, in a sentence."""
    heads = counts.ledger.heads
    return f"{plural(len(entries), 'micro-batch')} ({some(named(heads[entry]) for entry in entries)})"


def counted_of(unproved: Sequence[int], counts: Counts) -> str:
    """What counts say of entries that they do not prove."""
    if known := sum(counts.counted[entry].deficit or 0 for entry in unproved):
        return f"{plural(known, 'offset')} without a counted row"
    doubted = any(counts.counted[entry].doubted for entry in unproved)
    return "as many rows as were read, but of other offsets" if doubted else "rows of which only the number is known"


@kept
def besides_counts(case: SinkCase) -> Sequence[str]:
    """Why rows are needed whatever the counts of the micro-batches say; empty where nothing else is in question.

    These sentences tell findings apart: reworded, an accepted one is found anew. So are those that they come from.
    """
    opened, released, table = sorted(read_while_open(case.counts, case.proof)), releases(case), case.table
    why = [f"{who(opened, case.counts)} read behind a transaction that was open then"] if opened else []
    why += [reason for reason in (read_twice(case.counts), added_by_others(case)) if reason]
    if released:
        why.append(f"{some(named(head) for head in released)} wrote rows that the sink may have had already")
    if table is not None:
        again = ((n, several) for (_, n), several in table.committed_again.items() if several[-1] > table.looked_up_to)
        why += [f"micro-batch {batch_id} was committed as versions {some(several)}" for batch_id, several in again]
    return [*why, *changes(case)]


def read_twice(counts: Counts) -> str:
    """How many offsets two micro-batches read, in a sentence; "" for none."""
    overlaps = counts.overlaps
    twice = sum(spans.size for key, spans in overlaps.items() if is_kafka(key.topic))
    parts = [f"{plural(twice, 'offset')}"] if twice else []
    parts += [key.offsets(*hull) for key, spans in overlaps.items() if not is_kafka(key.topic) and (hull := spans.hull)]
    return f"{', '.join(parts)} were read twice" if parts else ""


def perhaps_repeated(case: SinkCase) -> list[EntryHead]:
    """Micro-batches whose rows may be in the sink twice, whatever their own counts say.

    A run of the query begins by writing again what the run before it left unfinished. A sink that keeps a record of its
    writes tells whether it had them already; of any other, the first micro-batch of each run may be such a retry.
    """
    heads = case.ledger.heads
    if case.record is None or case.record.log.recorded:
        return []
    first: dict[object, int] = {}
    for entry, head in enumerate(heads):
        if head.is_micro_batch:
            first.setdefault(head.run_id or entry, entry)
    of_runs = set(first.values())
    return [heads[entry] for entry in case.counts.counted if entry in of_runs and heads[entry].status == "committed"]


def changes(case: SinkCase) -> Iterator[str]:
    """What may have removed rows since they were counted, from the sink or from its quarantine."""
    ledger = case.ledger
    if removals := some(named(head) for head in ledger.heads[ledger.anchors :] if head.is_removal):
        yield f"{removals} changed rows of the sink"
    if case.record is not None:
        yield from _told_by_record(case.record, ledger)
    if case.table is not None and case.balance is not None:
        # Where rows do not tell, it stays unknown what was swapped: a question would have no answer.
        changing = _changing(case.table, rewrites=case.rewrites, rows_tell=not case.judged_by_counts)
        yield from _changed_by_commits(case.table, changing, case.balance.rows)
    yield from quarantine.doubts(case.counts, case.quarantine, case.time)


def _told_by_record(record: RecordHistory, ledger: LedgerSlice) -> Iterator[str]:
    """What may have removed rows, as the sink's own record and its counts say."""
    if record.removed:
        yield f"the sink has {plural(record.removed, 'row')} fewer than were written"
    if record.replaced:
        yield f"the sink has {record.replaced}"
    if lost := record.lost(ledger):
        yield f"the sink no longer has all that {some(named(write.stamp) for write in lost)} wrote"


def _changed_by_commits(
    table: TableHistory, changing: Iterable[tuple[Iterable[TableCommit], str]], rows: TableRows | None
) -> Iterator[str]:
    """What may have changed rows of a table, as its log says."""
    for commits, what in changing:
        if versions := [commit.version for commit in commits]:
            yield f"version {some(versions)} of the sink {what}"
    files = known(table.log.files)
    if gone := known(files.gone) if files is not None else ():
        yield f"the store lacks {plural(len(gone), 'data file')} of the sink"
    if rows is not None and rows.doubt:
        yield rows.doubt


def _changing(history: TableHistory, *, rewrites: bool, rows_tell: bool) -> Iterator[tuple[Iterable[TableCommit], str]]:
    """The commits behind the first claimed one that may have changed rows, by what they did."""
    later = [c for c in history.acting if c.version > history.first_claimed and not history.spares_own(c)]
    later = [commit for commit in later if not history.is_lawful(commit)]
    # Where micro-batches replace rows anyway, another pipeline may do so with rows of its own.
    removes = table_history.changes_rows if rewrites else table_history.removes_rows
    changing = {commit.version for commit in history.others if removes(commit)} | {*history.restores}
    yield (commit for commit in later if commit.version in changing), "changed rows"
    yield filter(table_history.other_count, later), "rewrote data files with another number of rows"
    if rows_tell:
        same = "rewrote data files, and neither its operation nor a count shows that the rows are the same"
        yield filter(table_history.may_swap_rows, later), same


def added_by_others(case: SinkCase) -> str:
    """Which commits of others added rows, perhaps of records that the sink has already; "" for none."""
    if case.record is not None and case.record.doubled_by_others:
        return case.record.doubled_by_others
    found, others = list[str](), case.table.others if case.table is not None else ()
    adding = [commit.version for commit in others if commit.rows_added != 0]
    if adding:
        found.append(f"another program added rows in version {some(adding)} of the sink")
    again = sum(spans.size for spans in read_of_others(case).values())
    if again:
        found.append(f"the query read {plural(again, 'offset')} of which another program had added rows to the sink")
    return "; ".join(found)


def attested(counts: Counts, time: AuditTime, findings: Findings, *, rewrites: bool) -> frozenset[int]:
    """Unproved entries of a stateful query of which Spark says that it read every offset, or will say so soon.

    Not those of which the sink, if it keeps all rows, took in fewer or more than it was given.
    """
    heads, operators = counts.ledger.heads, counts.operators
    stateful = [entry for entry in counts.open if operators.keeps_state(heads[entry])]
    read = [entry for entry in stateful if is_attested(counts, entry, rewrites=rewrites)]
    if read:
        findings.add(
            Code.ATTESTED_ONLY,
            f"{who(read, counts)}: the query keeps state, and its rows carry no source offsets; Spark reports that "
            "every offset was read; counts do not show what the state made of them",
        )
    return frozenset((*read, *awaited(stateful, counts, time, findings)))


def is_attested(counts: Counts, entry: int, *, rewrites: bool) -> bool:
    """Whether Spark says of a micro-batch of a stateful query, which counts do not prove, that it read every offset."""
    head, counted = counts.ledger.heads[entry], counts.counted[entry]
    if counted.proved or not counts.operators.keeps_state(head) or (counted.lost and not rewrites):
        return False
    return counts.operators.read_whole(head, counts.width[entry])


def awaited(entries: Iterable[int], counts: Counts, time: AuditTime, findings: Findings) -> list[int]:
    """Entries whose progress is not recorded yet, with one finding for all of them."""
    heads = counts.ledger.heads
    not_recorded = sorted({entry for entry in entries if counts.operators.awaited(heads[entry], time)})
    if not_recorded:
        what = "Spark's progress is not recorded yet; the next audit looks at them again"
        findings.add(Code.INFLIGHT, f"{who(not_recorded, counts)}: {what}")
    return not_recorded


def lacks(rows: RowsWitness) -> str:
    """Why rows do not tell, in a clause."""
    return f"{rows.location} has no _source_topic, _source_partition, _source_offset (stamp_source_offsets)"


def without_rows(verdict: Verdict, rows: RowsWitness | Unavailable, why: Sequence[str], proved: str = "") -> Verdict:
    """The verdict where rows are needed and cannot be had: refuted findings stand, everything else is unproved."""
    # Whatever else the check could not decide: the next audit judges these entries again.
    verdict = replace(verdict, evidence={**verdict.evidence, "unread": "; ".join(why)})
    if verdict.failures:
        return verdict
    not_told = lacks(rows) if isinstance(rows, RowsWitness) else rows.reason
    message = f"{proved}{'; '.join(why)}: the sink's rows are needed and {not_told}"
    if isinstance(rows, Unavailable) and rows.skipped:
        return replace(verdict, skipped=message, message=message)
    return replace(verdict, unproved=message, message=message)
