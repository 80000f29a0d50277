"""The rows of a sink that is no Delta table, as it counts them itself, against those that its record accounts for.

Two figures of each audit are compared with those of the audit before. How many rows there are besides those that
recon's writes brought: fewer were removed, more were added by others. And, of a database table, how many rows have the
source offset of another row: one that is removed while another is doubled leaves the first figure as it was.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from typing_extensions import override

from recon.judge.coverage import by_partition, coverage
from recon.judge.stateful_operators import operators_of
from recon.model import (
    REMOVALS,
    EntryHead,
    LedgerSlice,
    RecordCount,
    RowsWitness,
    SinkCommit,
    TableCount,
    Unavailable,
    Witnesses,
)
from recon.model.fingerprint import PRIME
from recon.model.memory import SinkAudit, SinkMemory
from recon.model.offsets import Spans
from recon.model.once import once
from recon.model.wire.stamp import reads_any_of
from recon.text import plural


@dataclass(frozen=True, kw_only=True)
class TableFingerprint:
    """The fingerprint of the source offsets in a database table, as of its write with the number `newest`.

    It is that of all rows which have a `_batch_id`, of the topics that the sink reads, without those of the writes
    `pending`, as (epoch, batch_id): their entries were not in the ledger yet when it was read.
    """

    location: str
    newest: int
    value: int
    pending: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, kw_only=True)
class TableJudged(SinkMemory):
    """The rows of a database table as an audit counted them.

    `own` is how many rows of the topics that the sink reads it had besides those that the record of this sink accounts
    for, `numbered` how many of these have a `_batch_id`. `repeated` is how many rows of these topics had the source
    offset of another row, with those that repairs removed since. None where an audit could not say. `together` is
    whether the same audit counted both; else `repeated` is of an earlier one. `record` is what the sink's own record
    had, of tables and of files: the number of the newest write, how many writes there were, and the rows that they
    brought. `fingerprint` is None where the database did not compute it.
    """

    name: ClassVar[str] = "table"
    own: int | None = None
    repeated: int | None = None
    together: bool = True
    record: tuple[int, int, int | None] | None = None
    numbered: int | None = None
    fingerprint: TableFingerprint | None = None

    @override
    @classmethod
    def after(cls, before: Self | None, audit: SinkAudit) -> Self | None:
        """What was known before, where this audit could not count."""
        witnesses, known = audit.witnesses, before or cls()
        log, figures = witnesses.sink_record, _figures(witnesses)
        if log is not None and not log.exists:
            known = replace(known, record=None)  # that it is gone is told by the audit that finds it so
        elif log is not None and isinstance(log.record, RecordCount):
            known = replace(known, record=(log.record.newest, log.record.writes, log.record.rows))
        if figures is None:
            return known if known != cls() else before
        own = known.own if figures.own is None else figures.own
        summed = _summed(witnesses)
        fingerprint = summed.known if summed is not None else None
        count = _count(witnesses)
        unread = count is not None and not count.numbered  # for want of the columns: the next audit may see them again
        numbered = known.numbered if unread else figures.numbered
        known = replace(known, own=own, numbered=numbered, fingerprint=fingerprint)
        if figures.repeated is None:
            return replace(known, together=False)
        return replace(known, repeated=figures.repeated, together=True)


@dataclass(frozen=True, kw_only=True)
class OtherRows(SinkMemory):
    """How many rows a sink that is no Delta table had besides those that its own record accounted for."""

    name: ClassVar[str] = "other_rows"
    rows: int

    @override
    @classmethod
    def after(cls, before: Self | None, audit: SinkAudit) -> Self | None:
        """What was known before, where this audit could not count them."""
        log, figures = audit.witnesses.sink_record, _figures(audit.witnesses)
        now = figures.all if figures is not None else log.other_rows if log is not None else None
        return cls(rows=now) if isinstance(now, int) else before


@dataclass(frozen=True)
class _Figures:
    """What a count says: rows besides those of all writers, rows besides this sink's own, and rows that are repeated.

    The others than the first are of the topics that the sink reads; `numbered` are those of these topics, or of none,
    that have a `_batch_id`, besides its own. None where the count does not say.
    """

    all: int | None
    own: int | None
    repeated: int | None
    numbered: int | None = None


@dataclass(frozen=True)
class _Summed:
    """The fingerprint to go on from, and by how much it differs from what it should be; None where that is not known.

    `as_many` is whether the number of rows is what it should be: then a difference shows that rows were replaced.
    """

    known: TableFingerprint | None
    difference: int | None = None
    as_many: bool = False


def rows_changed(witnesses: Witnesses) -> int:
    """How many rows others added to a sink that is no Delta table, negative for those removed, since the last audit.

    From the first audit on, for one that has none before it; 0 where the sink cannot tell. Rows of other topics, which
    another pipeline of recon's writes into the same table, are not counted as long as it writes none of ours.
    """
    log, figures = witnesses.sink_record, _figures(witnesses)
    now: int | Unavailable | None
    if figures is None:
        now = log.other_rows if log is not None else None
    elif _is_apart(witnesses):
        return 0 if figures.own is None else figures.own - (_known(witnesses).own or 0)
    else:
        now = figures.all
    if not isinstance(now, int):
        return 0
    known = witnesses.memory(OtherRows)
    return now - (known.rows if known is not None else 0)


def rows_repeated(witnesses: Witnesses) -> int:
    """How many more rows than at the last audit have the source offset of another row, as they should not.

    0 where they are not counted, or where the query lawfully writes several rows with one offset.
    """
    return max(_repeated_since(witnesses) or 0, 0)


def rows_removed(witnesses: Witnesses) -> int:
    """How many rows somebody removed at least since the last audit; doubled ones that were removed are not among them.

    Where rows were doubled besides, and recon's own writes doubled none, as many more are gone as others added fewer.
    Of rows with a `_batch_id` others add none, so that rows which they add without one make up for none that is gone.
    """
    changed, repeated = rows_changed(witnesses), _repeated_since(witnesses)
    numbered = _numbered_since(witnesses)
    fewer = max(-changed, -numbered if numbered is not None else 0)
    removals = any(write.stamp.epoch == REMOVALS for write in of_others(witnesses))
    if repeated is None or not _known(witnesses).together or removals:
        return max(fewer, 0)
    if repeated > 0 and _counts_others_alone(witnesses):
        return max(repeated - changed, fewer, 0)
    return max(fewer + min(repeated, 0), 0)


def rows_replaced(witnesses: Witnesses) -> str:
    """How the sink has as many rows as it should have, and others, in a clause; "" where it has not.

    The fingerprint of all its source offsets is not that of the last audit with those of what was written since.
    """
    summed = _summed(witnesses)
    if summed is None or not summed.as_many or not summed.difference:
        return ""
    return "as many rows as its record accounts for, and of other source offsets"


def digest(witnesses: Witnesses) -> str:
    """Which rows came or went besides recon's own, for `Finding.about`: who accepts it accepts these."""
    summed = _summed(witnesses)
    if summed is None or not summed.difference:
        return ""
    return f"{summed.difference:08x}"


def why_unknown_rows(witnesses: Witnesses) -> str:
    """Why it is not known whether somebody removed or doubled rows of the sink; "" where it is, or no sink tells.

    What recon.yml says is not to be counted is no question.
    """
    log = witnesses.sink_record
    if log is None:
        return ""
    unknown = next((one for one in (log.table, log.other_rows, log.record) if isinstance(one, Unavailable)), None)
    if unknown is not None:
        return unknown.reason
    count, figures = _count(witnesses), _figures(witnesses)
    if count is None or figures is None:
        return ""
    if isinstance(count.fingerprint, Unavailable):
        return count.fingerprint.reason
    if log.recorded and figures.all is None and not _is_apart(witnesses):
        return (
            f"{_named(_other_writers(witnesses))} writes into it, too, and the table has a unique key, by which rows "
            "may replace each other"
        )
    if isinstance(count.repeated, Unavailable) and any(topic is not None for topic in count.rows):
        return "" if may_repeat(witnesses) or count.repeated.skipped else count.repeated.reason
    return ""


def not_counted(witnesses: Witnesses) -> str:
    """What somebody chose not to have counted, for the end of a message; "" where everything is."""
    count = _count(witnesses)
    if count is None or not isinstance(count.repeated, Unavailable) or not count.repeated.skipped:
        return ""
    return f"; whether rows are doubled was not counted ({count.repeated.reason})"


def nothing_repeated(witnesses: Witnesses) -> bool:
    """Whether no two rows of the sink have one source offset, as of the audit's count: none are doubled."""
    count = _count(witnesses)
    return count is not None and count.repeated == 0 and not count.rows.get(None)


def of_others(witnesses: Witnesses) -> Sequence[SinkCommit]:
    """The writes of other pipelines of recon's into the sink that read a topic of ours, as its record has them."""
    log, count = witnesses.sink_record, _count(witnesses)
    if log is None:
        return ()
    theirs = [commit for commit in log.commits if not commit.stamp.is_of(witnesses.pipeline, witnesses.sink)]
    theirs += count.others if count is not None else ()
    return [commit for commit in theirs if reads_any_of(commit.stamp.offsets_text, _topics(witnesses))]


def doubled_by_others(witnesses: Witnesses) -> str:
    """What may have doubled rows of a sink that is no Delta table, in a sentence; "" for nothing."""
    repeated, added = rows_repeated(witnesses), rows_changed(witnesses)
    if repeated:
        return f"the sink has {count_said(witnesses)}"
    if replaced := rows_replaced(witnesses):
        return f"the sink has {replaced}"
    if added > 0:
        return f"another program added {plural(added, 'row')} to the sink"
    theirs = of_others(witnesses)
    if theirs and _repeated_since(witnesses) is None:
        names = {(one.stamp.pipeline, one.stamp.sink) for one in theirs}
        return f"{_named(names)} writes records of the same topics into the sink"
    return ""


def may_be_doubled(witnesses: Witnesses) -> bool:
    """Whether the whole sink is to be searched for doubled rows."""
    return bool(doubled_by_others(witnesses))


def count_said(witnesses: Witnesses) -> str:
    """The rows of the topics that the sink reads, and their different source offsets, in a clause."""
    count = _count(witnesses)
    if count is None or isinstance(count.repeated, Unavailable):
        return ""
    rows = sum(count.rows.get(topic, 0) for topic in count.topics)
    return f"{plural(rows, 'row')} of {plural(rows - count.repeated, 'different source offset')}"


def may_repeat(witnesses: Witnesses) -> bool:
    """Whether the query lawfully writes several rows with one source offset, as far as is known.

    Its transform makes several of one record, or a join does; two sources read one topic; or a topic was created again.
    """
    ledger = witnesses.ledger
    if ledger is None or witnesses.declared.explodes:
        return True
    operators = operators_of(witnesses)
    if any(operators.makes_rows(head) or operators.keeps_state(head) or head.makes_rows for head in ledger.heads):
        return True
    read: dict[str, set[tuple[int, str | None]]] = {}
    proof = witnesses.proof
    covered = [(one.source, one.topic, one.topic_id) for one in (proof.coverage if proof is not None else ())]
    for source, topic, topic_id in (*ledger.ranges.topics, *covered):
        read.setdefault(topic, set()).add((source, topic_id))
    return any(
        len({source for source, _ in places}) > 1 or len({named for _, named in places} - {None}) > 1
        for places in read.values()
    )


def _known(witnesses: Witnesses) -> TableJudged:
    """What earlier audits remember of the table; nothing before the first."""
    return witnesses.memory(TableJudged) or TableJudged()


def _count(witnesses: Witnesses) -> TableCount | None:
    log = witnesses.sink_record
    return log.table if log is not None and isinstance(log.table, TableCount) else None


def _topics(witnesses: Witnesses) -> Collection[str]:
    """The topics that the sink reads, by the ledger's entries and what was proved of earlier ones."""
    ledger, proof = witnesses.ledger, witnesses.proof
    topics = {name for _, name, _ in ledger.ranges.topics} if ledger is not None else set()
    return topics | {one.topic for one in (proof.coverage if proof is not None else ())}


def _figures(witnesses: Witnesses) -> _Figures | None:
    count = _count(witnesses)
    if count is None:
        return None
    repeated = None if isinstance(count.repeated, Unavailable) else count.repeated + count.removed
    if count.written is None:
        return _Figures(None, None, repeated)
    own = sum(rows for topic, rows in count.rows.items() if topic in count.topics)
    known = not (count.has_unique_key and _other_writers(witnesses))
    whole = sum(count.rows.values()) - sum(count.written.values()) if known else None
    mine = count.written.get(_me(witnesses), 0)
    numbered = None
    if known and count.numbered and not of_others(witnesses):
        # A transform may make rows that name no record.
        topics = {*count.topics, None}
        numbered = sum(rows for topic, rows in count.numbered.items() if topic in topics) - mine
    return _Figures(whole, own - mine, repeated, numbered)


def _numbered_since(witnesses: Witnesses) -> int | None:
    """How many more rows with a `_batch_id` there are than at the last audit, besides the sink's own."""
    figures, before = _figures(witnesses), _known(witnesses).numbered
    return None if figures is None or figures.numbered is None or before is None else figures.numbered - before


def _summed(witnesses: Witnesses) -> _Summed | None:
    """The table's fingerprint against those of what was there and what was written; None where nothing was counted."""
    log, count, ledger = witnesses.sink_record, _count(witnesses), witnesses.ledger
    if log is None or count is None or ledger is None:
        return None
    return once(ledger, _summed, lambda: _sums(witnesses, ledger, count, log.location), count)


def _sums(witnesses: Witnesses, ledger: LedgerSlice, count: TableCount, location: str) -> _Summed:
    judged, found = witnesses.memory(TableJudged), count.fingerprint if isinstance(count.fingerprint, int) else None
    anew = None if found is None else TableFingerprint(location=location, newest=count.newest, value=found)
    if judged is None and ledger.complete:  # the table has no rows but those of its writes
        figures = _figures(witnesses)
        before, more = TableFingerprint(location=location, newest=0, value=0), figures.numbered if figures else None
    elif judged is None or judged.fingerprint is None or judged.fingerprint.location != location:
        return _Summed(anew)
    else:
        before, more = judged.fingerprint, _numbered_since(witnesses)
    if count.new is None or (more is None and (found is not None or judged is None)):
        return _Summed(anew)
    entries = {(h.epoch, h.batch_id): h for h in reversed(ledger.heads) if h.status != "already_committed"}
    value, pending = before.value, list[tuple[int, int]]()
    for write in (*before.pending, *count.new):
        entry = entries.get(write)
        if entry is None and write not in before.pending:  # an audit reads the ledger before the database
            pending.append(write)
            continue
        given = entry.given if entry is not None else None
        if entry is None or given is None or given.fingerprint is None or given.rows != entry.rows_written:
            return _Summed(anew)
        value = (value + given.fingerprint) % PRIME
    expected = TableFingerprint(location=location, newest=count.newest, value=value, pending=tuple(pending))
    if found is None:  # the next audit compares from here
        return _Summed(expected)
    if pending:
        return _Summed(expected if more == 0 else anew)
    return _Summed(anew, difference=(found - value) % PRIME, as_many=more == 0)


def _is_apart(witnesses: Witnesses) -> bool:
    """Whether other pipelines of recon's write the table, none of them a topic of ours, and every row names its topic.

    Then the rows of our topics are ours.
    """
    count = _count(witnesses)
    named = count is not None and not count.rows.get(None)
    return named and bool(_other_writers(witnesses)) and not of_others(witnesses)


def _other_writers(witnesses: Witnesses) -> Collection[tuple[str, str]]:
    count = _count(witnesses)
    return set(count.written or ()) - {_me(witnesses)} if count is not None else set()


def _me(witnesses: Witnesses) -> tuple[str, str]:
    return witnesses.pipeline, witnesses.sink or ""


def _repeated_since(witnesses: Witnesses) -> int | None:
    """By how much the number of repeated rows grew since the last audit; None where it says nothing."""
    figures = _figures(witnesses)
    if figures is None or figures.repeated is None or may_repeat(witnesses):
        return None
    return figures.repeated - (_known(witnesses).repeated or 0)


def _counts_others_alone(witnesses: Witnesses) -> bool:
    """Whether recon's own writes doubled no row since the last audit, so that what is repeated is others' doing."""
    ledger = witnesses.ledger
    if ledger is None or of_others(witnesses) or _figures(witnesses) is None:
        return False
    log = witnesses.sink_record
    if log is None or not log.recorded:
        return False
    proof = witnesses.proof
    position = proof.position if proof is not None and witnesses.memory(TableJudged) is not None else 0
    new = [i for i in range(ledger.anchors, len(ledger.heads)) if ledger.heads[i].sequence > position]
    if _reads_once(ledger) and all(_wrote_each(ledger.heads[i]) for i in new):
        return True
    return _doubled_none_of(witnesses, ledger, new)


def _doubled_none_of(witnesses: Witnesses, ledger: LedgerSlice, entries: Sequence[int]) -> bool:
    """Whether all doubled rows of the sink were found by offset, and none of them is of what these entries read."""
    rows, count = witnesses.rows, _count(witnesses)
    if not isinstance(rows, RowsWitness) or count is None:
        return False
    read = by_partition(span for entry in entries for span in ledger.ranges.of(entry))
    found = [group for group in rows.repeated if group.topic in count.topics]
    of_them = any(group.present.intersect(read.get((group.topic, group.partition), Spans())) for group in found)
    return not of_them and sum(group.surplus for group in found) == count.repeated


def _reads_once(ledger: LedgerSlice) -> bool:
    incarnations = (one for several in coverage(ledger).incarnations.values() for one in several)
    return not any(one.walked.overlaps for one in incarnations)


def _wrote_each(head: EntryHead) -> bool:
    """Whether a micro-batch wrote a row for each record, by counts and fingerprints: it made none of two."""
    if not head.is_micro_batch or head.rows_read is None or head.rows_written != head.rows_read:
        return False
    return head.fingerprint_given is not None and head.fingerprint_given == head.fingerprint_read


def _named(writers: Collection[tuple[str, str]]) -> str:
    return " and ".join(f"pipeline {pipeline}, sink {sink}" for pipeline, sink in sorted(writers))
