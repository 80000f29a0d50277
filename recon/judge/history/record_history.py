"""What happened to a sink that is no Delta or Iceberg table: its own record of writes, and the rows that it counts.

Two figures of each audit are compared with those of the audit before. How many rows there are besides those that
recon's writes brought: fewer were removed, more were added by others. And, of a database table, how many rows have the
source offset of another row. A fingerprint of all source offsets tells where others are there in the place of some.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import ClassVar, Self, TypeVar

from typing_extensions import override

from recon.base.text import plural
from recon.judge.coverage import coverage
from recon.judge.history.sink_history import (
    BEFORE_ALL,
    Claim,
    Number,
    Repeated,
    SinkHistory,
    entry_may_follow,
    looked_at_all,
    number_of,
)
from recon.judge.stateful_operators import Operators, operators_of
from recon.model import (
    REMOVALS,
    AuditTime,
    CheckpointWitness,
    Code,
    DeclaredRows,
    EntryHead,
    LedgerSlice,
    LostWrite,
    ProgressWitness,
    ReconStamp,
    RecordCount,
    SinkCommit,
    SinkLog,
    TableCount,
    Unavailable,
    Witnesses,
    known,
    parse_offsets,
)
from recon.model.fingerprint import PRIME
from recon.model.memory import SinkAudit, SinkMemory
from recon.model.once import kept
from recon.model.proof import SinkProof, memory_of
from recon.model.wire.stamp import reads_any_of


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
        history, known_now = record_of(audit.witnesses, audit.ledger), before if before is not None else cls()
        if history is None:
            return before
        if not history.exists:
            known_now = replace(known_now, record=None)  # that it is gone is told by the audit that finds it so
        elif isinstance(record := history.log.record, RecordCount):
            known_now = replace(known_now, record=(record.newest, record.writes, record.rows))
        if history.count is not None:
            known_now = history.counted_after(known_now)
        return known_now if known_now != cls() else before


_Judged = TypeVar("_Judged", bound=TableJudged)


@dataclass(frozen=True, kw_only=True)
class OtherRows(SinkMemory):
    """How many rows a sink that is no Delta table had besides those that its own record accounted for."""

    name: ClassVar[str] = "other_rows"
    rows: int

    @override
    @classmethod
    def after(cls, before: Self | None, audit: SinkAudit) -> Self | None:
        """What was known before, where this audit could not count them."""
        history = record_of(audit.witnesses, audit.ledger)
        now = history.besides_all if history is not None else None
        return cls(rows=now) if now is not None else before


@dataclass(frozen=True)
class _Summed:
    """The fingerprint to go on from, and by how much it differs from what it should be; None where that is not known.

    `as_many` is whether the number of rows is what it should be: then a difference shows that rows were replaced.
    """

    known: TableFingerprint | None
    difference: int | None = None
    as_many: bool = False


@dataclass(frozen=True, eq=False)
class RecordHistory(SinkHistory):
    """What happened to a sink, as its own record and its counts tell one who knows the ledger and the audit before.

    What a count does not say is None, and a difference to an unknown count 0 or "".
    """

    log: SinkLog
    pipeline: str
    sink: str | None
    ledger: LedgerSlice
    proof: SinkProof | None
    declared: DeclaredRows
    operators: Operators

    @property
    def _me(self) -> tuple[str, str]:
        return self.pipeline, self.sink or ""

    # -- recon's own writes ------------------------------------------------------------------------------------------

    @cached_property
    @override
    def own_writes(self) -> Sequence[SinkCommit]:
        return [commit for commit in self.log.commits if commit.stamp.is_of(self.pipeline, self.sink)]

    @override
    def shown(self, entry: int) -> Claim:
        head, where = self.heads[entry], self.location
        write = self.newest.get(number_of(head))
        if write is None:
            if head.rows_written in (0, None) and self.width[entry] == 0:
                return Claim(Code.EMPTY)
            return Claim(Code.LEDGER_ORPHAN, f"{where} has no record {'of it' if self.exists else 'at all'}")
        if not self.has_ranges_of(entry, write.stamp):
            return Claim(Code.LEDGER_ORPHAN, f"{where} has it with other offset ranges than the ledger")
        if None not in (write.rows, head.rows_written) and write.rows != head.rows_written:
            other = f"the ledger claims {head.rows_written:,} rows and {where} says {write.rows:,}"
            return Claim(Code.LEDGER_ORPHAN, other, is_there=True)
        return Claim(None, is_there=True)

    @override
    def repeated(self) -> Iterator[Repeated]:
        of_batch, of_range = defaultdict[Number, list[ReconStamp]](list), defaultdict[str, list[ReconStamp]](list)
        for write in self.own_writes:
            of_batch[number_of(write.stamp)].append(write.stamp)
            # A repair reads offsets without a row again, whoever read them before; source_rows looks at the rows.
            if write.stamp.epoch >= 0 and write.rows != 0:
                of_range[write.stamp.offsets_text].append(write.stamp)
        yield from (Repeated(stamps) for stamps in of_batch.values() if len(stamps) > 1)
        of_range.pop("[]", None)
        # Rows that somebody removed before they were written again are not doubled.
        if not self.nothing_repeated:
            yield from (Repeated(stamps) for stamps in of_range.values() if self._are_doubled(stamps))

    def _are_doubled(self, stamps: Sequence[ReconStamp]) -> bool:
        """Whether several micro-batches wrote, and no removal behind them looked at every offset of them.

        source_rows looks at the rows that stay.
        """
        if len({*map(number_of, stamps)}) < 2:
            return False
        last = max(stamp.number or 0 for stamp in stamps)
        removals = [w.stamp for w in self.own_writes if w.stamp.epoch == REMOVALS and (w.stamp.number or 0) > last]
        looked_at = [span for stamp in removals for span in parse_offsets(stamp.offsets_text)]
        return not looked_at_all(looked_at, stamps[0])

    @override
    def _is_asked(self, write: SinkCommit, time: AuditTime, checkpoint: CheckpointWitness | None) -> bool:
        # Clocks may be wrong. A micro-batch behind the newest one before the period is of the period at any time, and
        # the entry of one before the newest entry of all does not follow any more.
        first, last = self._newest_numbers
        begin, number = time.begin, number_of(write.stamp)
        before = begin is not None and write.at < begin and not BEFORE_ALL < first < number
        if before or BEFORE_ALL < number < last:
            return not before
        return not (entry_may_follow(write, time) or self.is_in_progress(write, time.now, checkpoint))

    @cached_property
    def _newest_numbers(self) -> tuple[Number, Number]:
        """The highest number of micro-batches before the period, and of all; one before all where there is none."""
        before, every = (
            max((number_of(head) for head in heads if head.is_micro_batch), default=BEFORE_ALL)
            for heads in (self.anchors, self.heads)
        )
        return before, every

    # -- what was taken away -----------------------------------------------------------------------------------------

    @property
    def _lost(self) -> Sequence[LostWrite]:
        changes = known(self.log.changes)
        return changes.lost if changes is not None else ()

    def lost(self, ledger: LedgerSlice) -> Sequence[LostWrite]:
        """Writes of judged entries of which the sink no longer has everything."""
        judged = {*map(number_of, ledger.heads[ledger.anchors :])}
        return [write for write in self._lost if number_of(write.stamp) in judged]

    @cached_property
    def lost_runs(self) -> Sequence[Sequence[LostWrite]]:
        """Writes of which the sink no longer has everything; those of micro-batches that follow each other together."""
        runs = groupby(enumerate(self._lost), lambda at: (at[1].stamp.epoch, at[1].stamp.batch_id - at[0]))
        return [[write for _, write in run] for _, run in runs]

    @cached_property
    def changed(self) -> int:
        """How many rows others added, negative for those removed, since the last audit.

        From the first audit on, for one that has none before it. Rows of other topics, which another pipeline of
        recon's writes into the same table, are not counted as long as it writes none of ours.
        """
        if self.is_apart:
            return _since(self.besides_own, self._judged.own)
        before = memory_of(self.proof, OtherRows)
        return _since(self.besides_all, before.rows if before is not None else None)

    @cached_property
    def removed(self) -> int:
        """How many rows somebody removed at least since the last audit; doubled ones that were removed do not count.

        Of rows with a `_batch_id` others add none: rows that they add without one make up for none that is gone. Where
        others alone doubled rows, as many more are gone as they added fewer.
        """
        fewer = max(-self.changed, -(self._numbered_since or 0), 0)
        removals = any(write.stamp.epoch == REMOVALS for write in self.of_others)
        if self._repeated_since is None or not self._judged.together or removals:
            return fewer
        if self._repeated_since > 0 and self._doubled_none:
            return max(self._repeated_since - self.changed, fewer)
        return max(fewer + min(self._repeated_since, 0), 0)

    @property
    def _doubled_none(self) -> bool:
        """Whether recon's own writes doubled no row since the last audit, by their counts and fingerprints."""
        ledger, proof = self.ledger, self.proof
        if self.of_others or not self.log.recorded or _reads_twice(ledger):
            return False
        position = proof.position if proof is not None and memory_of(self.proof, TableJudged) is not None else 0
        return all(_wrote_each(head) for head in ledger.heads[ledger.anchors :] if head.sequence > position)

    @property
    def repeated_since(self) -> int:
        """How many more rows than at the last audit have the source offset of another row, as they should not."""
        return max(self._repeated_since or 0, 0)

    @property
    def replaced(self) -> str:
        """How the sink has as many rows as it should have, and others, in a clause; "" where it has not.

        The fingerprint of all its source offsets is not that of the last audit with those of what was written since.
        """
        summed = self._summed
        if summed is None or not summed.as_many or not summed.difference:
            return ""
        return "as many rows as its record accounts for, and of other source offsets"

    @property
    def digest(self) -> str:
        """Which rows came or went besides recon's own, for `Finding.about`: who accepts it accepts these."""
        difference = self._summed.difference if self._summed is not None else None
        return f"{difference:08x}" if difference else ""

    @property
    def doubled_by_others(self) -> str:
        """What may have doubled rows, in a sentence; "" for nothing."""
        if self.repeated_since:
            return f"the sink has {self.count_said}"
        if self.replaced:
            return f"the sink has {self.replaced}"
        if self.changed > 0:
            return f"another program added {plural(self.changed, 'row')} to the sink"
        if self.of_others and self._repeated_since is None:
            names = {(write.stamp.pipeline, write.stamp.sink) for write in self.of_others}
            return f"{_named(names)} writes records of the same topics into the sink"
        return ""

    # -- what is not known -------------------------------------------------------------------------------------------

    @property
    def unknown(self) -> str:
        """Why it is not known whether somebody removed or doubled rows; "" where it is, or no sink of the kind tells.

        What recon.yml says is not to be counted is no question.
        """
        count = self.count
        read = (self.log.table, self.log.other_rows, self.log.record, count.fingerprint if count is not None else None)
        unread = next((witness.reason for witness in read if isinstance(witness, Unavailable)), "")
        return unread if unread or count is None else self._hidden_by(count)

    def _hidden_by(self, count: TableCount) -> str:
        if self.log.recorded and self.besides_all is None and not self.is_apart:
            return f"{_named(self._other_writers)} writes into it, too, and by its unique key rows may replace others"
        if not isinstance(count.repeated, Unavailable) or count.repeated.skipped or {*count.rows} == {None}:
            return ""
        return "" if self.may_repeat else count.repeated.reason

    @property
    def not_counted(self) -> str:
        """What somebody chose not to have counted, for the end of a message; "" where everything is."""
        repeated = self.count.repeated if self.count is not None else None
        if not isinstance(repeated, Unavailable) or not repeated.skipped:
            return ""
        return f"; whether rows are doubled was not counted ({repeated.reason})"

    # -- counts ------------------------------------------------------------------------------------------------------

    @property
    def count(self) -> TableCount | None:
        """The rows of a database table, where they were counted."""
        return known(self.log.table) if self.log.table is not None else None

    @cached_property
    def may_repeat(self) -> bool:
        """See `may_repeat`."""
        return may_repeat(self.ledger, self.proof, self.declared, self.operators)

    @property
    def nothing_repeated(self) -> bool:
        """Whether no two rows have one source offset, as of the audit's count: none are doubled."""
        count = self.count
        return count is not None and count.repeated == 0 and not count.rows.get(None)

    @property
    def count_said(self) -> str:
        """The rows of the topics that the sink reads, and their different source offsets, in a clause."""
        count = self.count
        if count is None or isinstance(count.repeated, Unavailable):
            return ""
        rows = sum(count.rows.get(topic, 0) for topic in count.topics)
        return f"{plural(rows, 'row')} of {plural(rows - count.repeated, 'different source offset')}"

    @cached_property
    def of_others(self) -> Sequence[SinkCommit]:
        """The writes of other pipelines of recon's into the sink that read a topic of ours, as its record has them."""
        theirs = [commit for commit in self.log.commits if not commit.stamp.is_of(self.pipeline, self.sink)]
        theirs += self.count.others if self.count is not None else ()
        topics = {topic for topic, _, _ in _ever_read(self.ledger, self.proof)}
        return [commit for commit in theirs if reads_any_of(commit.stamp.offsets_text, topics)]

    @cached_property
    def is_apart(self) -> bool:
        """Whether other pipelines of recon's write the table, none a topic of ours, and every row names its topic.

        Then the rows of our topics are ours.
        """
        named = self.count is not None and not self.count.rows.get(None)
        return named and bool(self._other_writers) and not self.of_others

    @property
    def _other_writers(self) -> Collection[tuple[str, str]]:
        return {*(self.count.written or ())} - {self._me} if self.count is not None else ()

    @cached_property
    def _adds_up(self) -> bool:
        """Whether there are as many rows as writes brought: not where writers replace rows of each other by a key."""
        return self.count is not None and not (self.count.has_unique_key and self._other_writers)

    @cached_property
    def besides_all(self) -> int | None:
        """How many rows there are besides those of all of recon's writers."""
        count = self.count
        if count is None:
            return self.log.other_rows if isinstance(self.log.other_rows, int) else None
        known_rows = self._adds_up and count.written is not None
        return sum(count.rows.values()) - sum((count.written or {}).values()) if known_rows else None

    @cached_property
    def besides_own(self) -> int | None:
        """How many rows of the topics that the sink reads there are besides those of its own writes."""
        count = self.count
        if count is None or count.written is None:
            return None
        return sum(count.rows.get(topic, 0) for topic in count.topics) - count.written.get(self._me, 0)

    @cached_property
    def _numbered(self) -> int | None:
        """How many of these, or of no topic, have a `_batch_id`: a transform may make rows that name no record."""
        count = self.count
        if count is None or count.written is None or not count.numbered or not self._adds_up or self.of_others:
            return None
        return sum(count.numbered.get(topic, 0) for topic in {*count.topics, None}) - count.written.get(self._me, 0)

    @property
    def _numbered_since(self) -> int | None:
        before = self._judged.numbered
        return None if self._numbered is None or before is None else self._numbered - before

    @property
    def _repeated(self) -> int | None:
        """How many rows have the source offset of another row, with those that repairs removed."""
        count = self.count
        return None if count is None or isinstance(count.repeated, Unavailable) else count.repeated + count.removed

    @cached_property
    def _repeated_since(self) -> int | None:
        """By how much that grew since the last audit; None where it says nothing."""
        if self._repeated is None or self.may_repeat:
            return None
        return self._repeated - (self._judged.repeated or 0)

    @cached_property
    def _judged(self) -> TableJudged:
        """What earlier audits remember of the table; nothing before the first."""
        return memory_of(self.proof, TableJudged) or TableJudged()

    def counted_after(self, before: _Judged) -> _Judged:
        """What is to be remembered of the counts of this audit."""
        own = before.own if self.besides_own is None else self.besides_own
        # The columns may be there again in the next audit.
        numbered = self._numbered if self.count is not None and self.count.numbered else before.numbered
        fingerprint = self._summed.known if self._summed is not None else None
        counted = replace(before, own=own, numbered=numbered, fingerprint=fingerprint, together=False)
        return counted if self._repeated is None else replace(counted, repeated=self._repeated, together=True)

    # -- the fingerprint of all rows ---------------------------------------------------------------------------------

    @cached_property
    def _summed(self) -> _Summed | None:
        """The table's fingerprint against those of what was there and what was written; None where none was counted."""
        count = self.count
        if count is None:
            return None
        before, more = self._summed_before()
        expected = self._expected(before, count.new)
        if not isinstance(count.fingerprint, int):  # the next audit compares from here
            return _Summed(expected if more is not None or memory_of(self.proof, TableJudged) is not None else None)
        anew = self._fingerprint(count.fingerprint)
        if expected is None or more is None:
            return _Summed(anew)
        if expected.pending:
            return _Summed(anew if more else expected)
        return _Summed(anew, difference=(count.fingerprint - expected.value) % PRIME, as_many=more == 0)

    def _fingerprint(self, value: int, pending: tuple[Number, ...] = ()) -> TableFingerprint:
        newest = self.count.newest if self.count is not None else 0
        return TableFingerprint(location=self.location, newest=newest, value=value, pending=pending)

    def _summed_before(self) -> tuple[TableFingerprint | None, int | None]:
        """The fingerprint that the last audit left, and how many rows there are more than were written since."""
        judged = memory_of(self.proof, TableJudged)
        if judged is None and self.is_complete:  # the table has no rows but those of its writes
            return TableFingerprint(location=self.location, newest=0, value=0), self._numbered
        before = judged.fingerprint if judged is not None else None
        if before is None or before.location != self.location:
            return None, None
        return before, self._numbered_since

    def _expected(self, before: TableFingerprint | None, new: Sequence[Number] | None) -> TableFingerprint | None:
        """The fingerprint with those of the writes since; None where an entry does not say what it gave to the sink."""
        if before is None or new is None:
            return None
        entries = {number_of(h): h for h in reversed(self.heads) if h.status != "already_committed"}
        value, pending = before.value, list[Number]()
        for write in (*before.pending, *new):
            if write not in entries and write not in before.pending:  # an audit reads the ledger before the database
                pending.append(write)
                continue
            given = _fingerprint_given(entries.get(write))
            if given is None:
                return None
            value = (value + given) % PRIME
        return self._fingerprint(value, tuple(pending))


def _fingerprint_given(entry: EntryHead | None) -> int | None:
    """The fingerprint of the rows of an entry; None where it is not known, or the sink took in more or fewer."""
    given = entry.given if entry is not None else None
    return given.fingerprint if entry is not None and given is not None and given.rows == entry.rows_written else None


def record_of(seen: Witnesses, ledger: LedgerSlice) -> RecordHistory | None:
    """What happened to the judged sink by its own record; None where it is a table with a log, or was not read."""
    if seen.sink_record is None:
        return None
    return _of(ledger, seen.sink_record, seen.proof, seen.declared, known(seen.progress), known(seen.checkpoint))


@kept
def _of(
    ledger: LedgerSlice,
    log: SinkLog,
    proof: SinkProof | None,
    declared: DeclaredRows,
    progress: ProgressWitness | None,
    checkpoint: CheckpointWitness | None,
) -> RecordHistory:
    operators = operators_of(progress, checkpoint)
    return RecordHistory(log, ledger.pipeline, ledger.sink, ledger, proof, declared, operators)


def may_repeat(ledger: LedgerSlice, proof: SinkProof | None, declared: DeclaredRows, operators: Operators) -> bool:
    """Whether the query lawfully writes several rows with one source offset, as far as is known.

    Its transform makes several of one record, or a join does; two sources read one topic; or a topic was created again.
    """
    if declared.explodes or _reads_a_topic_twice(_ever_read(ledger, proof)):
        return True
    return any(operators.makes_rows(h) or operators.keeps_state(h) or h.makes_rows for h in ledger.heads)


def _reads_a_topic_twice(read: Collection[tuple[str, int, str | None]]) -> bool:
    """Whether two sources read one topic, or one source two topics of one name."""
    sources = {(topic, source) for topic, source, _ in read}
    ids = {(topic, topic_id) for topic, _, topic_id in read if topic_id is not None}
    return len(sources) > len({topic for topic, _ in sources}) or len(ids) > len({topic for topic, _ in ids})


def _ever_read(ledger: LedgerSlice, proof: SinkProof | None) -> Collection[tuple[str, int, str | None]]:
    """The (topic, source, topic id) that the sink reads, by the entries and what was proved of earlier ones."""
    read = {(topic, source, topic_id) for source, topic, topic_id in ledger.ranges.topics}
    return read | {(of.topic, of.source, of.topic_id) for of in (proof.coverage if proof is not None else ())}


def _reads_twice(ledger: LedgerSlice) -> bool:
    read = (of for incarnations in coverage(ledger).incarnations.values() for of in incarnations)
    return any(of.walked.overlaps for of in read)


def _wrote_each(head: EntryHead) -> bool:
    """Whether a micro-batch wrote a row for each record, by counts and fingerprints: it made none of two."""
    if not head.is_micro_batch or head.rows_read is None or head.rows_written != head.rows_read:
        return False
    return head.fingerprint_given is not None and head.fingerprint_given == head.fingerprint_read


def _since(now: int | None, before: int | None) -> int:
    return 0 if now is None else now - (before or 0)


def _named(writers: Collection[tuple[str, str]]) -> str:
    return " and ".join(f"pipeline {pipeline}, sink {sink}" for pipeline, sink in sorted(writers))
