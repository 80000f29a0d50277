"""The count identity against the source's own records: what is judged where no row shows which record it was made of.

In a sink whose rows later micro-batches replace, a row that is missing proves nothing, since a later one may stand in
its place; rows that Spark's own sink wrote need not say where they come from. What can be counted is what each
micro-batch accounts for: rows taken in, left out because a later one has the same key, filtered, quarantined. Kafka,
or the log of the Delta table that was read, says how many records its ranges hold, and the two must be equal.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from random import Random
from typing import NamedTuple

from recon.base.text import plural
from recon.judge.coverage import Key, by_partition
from recon.judge.findings import Findings, every_number
from recon.judge.row_counts import Counted, Counts
from recon.judge.rows.sink_rows import TopicPartition
from recon.judge.rows.transactions import ended_unread, read_uncommitted, read_while_open
from recon.judge.source import Source
from recon.model import Code, DeclaredRows, EntryHead, known
from recon.model.delta_offsets import BEGINNING, is_delta
from recon.model.file_offsets import is_files
from recon.model.ledger import named
from recon.model.offsets import OffsetSpan, Spans
from recon.model.proof import SinkProof

_CONFIRMED = 200_000  # offsets whose records one audit counts though numbers of rows prove their micro-batches
_STATE_UNRECORDED = (
    "was given rows of the query's state, and what went in was not recorded; add recon.ProgressListener to the session"
)
_OF_OTHER_OFFSETS = "has as many rows as were read, and of other source offsets: some are lost, and others doubled"
_OR_DROPPED = ", or the transform drops some records and makes several rows of others; compare them, then accept it"
_FILTERED_BEFORE = "left out; what a query filters before foreachBatch is not counted: filter in the transform"
_FILTERS_UNKNOWN = "whether the query filters rows is not known; where it does not, say so (rows: {filters: false})"
_UNRECORDED = "the rows that the transform filtered were not recorded"
_MAYBE_DOUBLED = "rows are doubled, or the transform makes several of one (rows: {explodes: true})"
_EXPLODED = (
    "the query makes several rows of one record, so that numbers of rows prove nothing: keep Kafka's partition and "
    "offset in columns of the table (source_columns), or write with recon's hook"
)


class Fault(NamedTuple):
    """What is wrong with a micro-batch, the sentence behind its name, and how many records certainly have no row."""

    code: Code
    sentence: str
    missing: int | None = None


@dataclass(frozen=True)
class SourceCounts:
    """The counts of micro-batches against the records of their source.

    `observed` is whether the query writes without recon, `lacks_source` whether no row says what it was made of.
    """

    counts: Counts
    source: Source
    proof: SinkProof | None
    declared: DeclaredRows
    observed: bool
    lacks_source: bool

    @property
    def questions(self) -> dict[TopicPartition, Spans]:
        """The ranges of the micro-batches that the ledger's counts do not prove, or that may hold aborted records."""
        entries = (*self.counts.open, *self.perhaps_aborted, *self.to_confirm)
        return by_partition(read for entry in entries for read in self.counts.ranges_of(entry))

    @cached_property
    def perhaps_aborted(self) -> Sequence[int]:
        """Entries that counts prove, and that may have read records of aborted transactions.

        These lie anywhere in a partition in which another micro-batch has offsets without a record, or of which Kafka
        shows that transactions ended in what no micro-batch read.
        """
        opened = read_while_open(self.counts, self.proof)
        proved = read_uncommitted(self.counts).difference(self.counts.open)
        return sorted(entry for entry in proved if entry in opened or self.is_holed(entry))

    @cached_property
    def to_confirm(self) -> Sequence[int]:
        """Entries of a query that writes without recon, with as many rows as offsets: a row too many, and an offset
        without a record, would look the same.

        All of those in partitions where others have offsets without a record, and of the rest as many as a bounded
        reading of Kafka allows, in each audit others; none where no broker answers. The log of another source is read
        already.
        """
        proved = {entry for entry, counted in self.counts.counted.items() if counted.proved}
        if self.is_of_log:
            return sorted(proved)
        chosen = {entry for entry in proved if self.observed and self.is_holed(entry)}
        asks = self.observed and known(self.source.kafka) is not None
        return sorted(chosen.union(self._drawn(sorted(proved - chosen)) if asks else ()))

    def _drawn(self, entries: list[int]) -> Iterator[int]:
        """Some of the entries, in each audit others."""
        ledger, most = self.counts.ledger, _CONFIRMED
        Random(f"{ledger.pipeline}/{ledger.sink}/{ledger.heads[-1].entry_hash}").shuffle(entries)
        for entry in entries:
            if 0 < self.counts.width[entry] <= most:
                most -= self.counts.width[entry]
                yield entry

    @cached_property
    def _holed(self) -> Set[TopicPartition]:
        """Topic partitions that are known to have offsets without a record, as those of transaction markers."""
        holed = {(read.topic, read.partition) for entry in self.counts.open for read in self.counts.ranges_of(entry)}
        return holed | ended_unread(self.counts, self.source)

    def is_holed(self, entry: int) -> bool:
        """Whether an entry read such a topic partition."""
        reads = self.counts.ranges_of(entry) if self._holed else ()
        return any((read.topic, read.partition) in self._holed for read in reads)

    @property
    def is_of_log(self) -> bool:
        """Whether the query reads a Delta table or files, whose log says how many rows it has."""
        return self.source.log is not None

    @property
    def confirmed(self) -> str:
        """Of how many micro-batches the records were counted in the source, for the end of a message."""
        counted = [entry for entry in self.to_confirm if not MicroBatch(self, entry).unread]
        return f"; the records of {plural(len(counted), 'micro-batch')} were counted in their source" if counted else ""

    def judge(self, findings: Findings, but: Collection[int] = ()) -> dict[TopicPartition, Counter[str]]:
        """Holds the counts of each open entry, `but` some, against its records; gives what Kafka explains."""
        explained: defaultdict[TopicPartition, Counter[str]] = defaultdict(Counter)
        if self.observed and self.declared.explodes:
            heads = [self.counts.ledger.heads[entry] for entry in self.counts.counted if self.counts.width[entry]]
            which = every_number(heads)
            if heads:
                findings.add(Code.INCONCLUSIVE, f"{_EXPLODED}: {which}", about=which)
            return explained
        for entry in sorted({*self.counts.open, *self.to_confirm}.difference(but)):
            batch = MicroBatch(self, entry)
            if not batch.stands_by_counts:
                _judge(batch, findings, explained)
        for entry in self.perhaps_aborted:
            _judge_proved(MicroBatch(self, entry), findings)
        return explained


def _judge_proved(batch: MicroBatch, findings: Findings) -> None:
    """A micro-batch with as many rows as offsets has rows of every record that Kafka shows as aborted.

    What Kafka does not show any more, counts prove as far as they can.
    """
    for read, answer in batch.answers:
        if not isinstance(answer, str) and answer["aborted"]:
            code, what, _ = batch.of_aborted
            read_them = f"read {plural(answer['aborted'], 'record')} of aborted transactions{what}"
            batch.report(findings, Fault(code, read_them), read)


def _judge(batch: MicroBatch, findings: Findings, explained: Mapping[TopicPartition, Counter[str]]) -> None:
    if fault := batch.fault:
        batch.report(findings, fault, batch.ranges[0] if len(batch.ranges) == 1 else None)
        return
    for read, answer in batch.answers if not batch.against.is_of_log else ():
        if not isinstance(answer, str):
            tally = explained[read.topic, read.partition]
            tally["compacted" if batch.source.is_compacted(read.topic) else "control"] += answer["absent"]
            tally["aborted"] += answer["aborted"]


@dataclass(frozen=True)
class MicroBatch:
    """A micro-batch whose rows are held by their number against the records of its source."""

    against: SourceCounts
    entry: int
    counts: Counts = field(init=False)
    source: Source = field(init=False)
    head: EntryHead = field(init=False)
    counted: Counted = field(init=False)

    def __post_init__(self) -> None:
        counts, entry = self.against.counts, self.entry
        head, counted = counts.ledger.heads[entry], counts.counted[entry]
        self.__dict__.update(counts=counts, source=self.against.source, head=head, counted=counted)

    @cached_property
    def ranges(self) -> Sequence[OffsetSpan]:
        """What it read."""
        return self.counts.ranges_of(self.entry)

    @cached_property
    def answers(self) -> Sequence[tuple[OffsetSpan, Mapping[str, int] | str]]:
        """The records of each range, or why they cannot be counted."""
        return [(read, self.source.held_in(read)) for read in self.ranges]

    @property
    def reads_uncommitted(self) -> bool:
        """Whether its query reads the records of aborted transactions."""
        return (self.head.isolation_level or self.source.isolation_level) == "read_uncommitted"

    @property
    def unread(self) -> str:
        """Why its records cannot be counted; "" where they were."""
        return next((answer for _, answer in self.answers if isinstance(answer, str)), "")

    @property
    def was_proved(self) -> bool:
        """Whether an earlier audit proved it, and Kafka no longer has all of its records."""
        head, proof = self.head, self.against.proof
        if proof is None or not proof.judged(head, self.counts.ledger):
            return False
        of_open = {(open_.finding.epoch, open_.finding.batch_id) for open_ in proof.open}
        return (head.epoch, head.batch_id) not in of_open and bool(self.unread)

    @property
    def stands_by_counts(self) -> bool:
        """Whether numbers of rows prove as much as they can, as Kafka does not show its records any more.

        They do not where it is in partitions that have offsets without a record, unless an earlier audit proved it.
        """
        if not self.unread or not self.against.lacks_source:
            return False
        return self.was_proved or not self.against.is_holed(self.entry)

    @property
    def of_aborted(self) -> Fault:
        """What its records of aborted transactions are, and how their sentence ends."""
        if self.counts.transforms:
            return Fault(Code.INCONCLUSIVE, ", perhaps filtered")
        step = "set kafka.isolation.level to read_committed and correct the rows"
        return Fault(Code.PHANTOM_ROWS, f": their rows are in the sink; {step}")

    def report(self, findings: Findings, fault: Fault, read: OffsetSpan | None) -> None:
        """Adds a finding about it, and where it is about one range, about that."""
        key, span = (None, None) if read is None else (Key(read.source, read.topic, read.partition), read.span)
        sentence = f"{named(self.head)} {fault.sentence}"
        findings.add(fault.code, sentence, head=self.head, key=key, span=span, rows=fault.missing)

    def held(self, kind: str) -> int:
        """How many offsets of its ranges are of a kind."""
        return sum(answer[kind] for _, answer in self.answers if not isinstance(answer, str))

    @property
    def _accounted(self) -> int:
        """The rows taken in, quarantined and filtered."""
        # Where rows that the sink had already were dropped before it, the count of rows given to it shows its own part.
        given, counted = self.counts.given.get((self.head.epoch, self.head.batch_id)), self.counted
        taken = self.head.rows_written if counted.dropped is not None or given is None else given
        return (taken or 0) + counted.quarantined + (counted.dropped or 0)

    @property
    def _accounts_for(self) -> str:
        return f"accounts for {plural(self._accounted, 'row')}"

    @cached_property
    def fault(self) -> Fault | None:
        """What is wrong with its numbers, or not known of them; the first that applies."""
        if why := self._why_unknown:
            return Fault(Code.INCONCLUSIVE, why)
        if self._has_other_rows and not self.against.is_of_log:
            return Fault(Code.GAP, f"{_OF_OTHER_OFFSETS}; read exactly its ranges once more through the hook")
        if self.unread:
            width = plural(self.counts.width[self.entry], "offset")
            return Fault(Code.INCONCLUSIVE, f"{self._accounts_for} of {width}, and {self.unread}")
        aborted = self.held("aborted") if self.reads_uncommitted else 0  # of Kafka's records alone
        records = self.held("committed") + aborted
        source = ", ".join(Key(r.source, r.topic, r.partition).offsets(*r.span) for r in self.ranges)
        has = f"and its source has {plural(records, 'record')} in {source or 'nothing'}"
        if self.against.is_of_log:
            return self._fault_of_table(records, has)
        return self._miscounted(records, has) or self._perhaps_aborted(aborted, has)

    @property
    def _why_unknown(self) -> str:
        """Why its own counts say nothing; "" where they do."""
        if self.head.rows_written is None:
            return "does not say how many rows it wrote"
        unrecorded = self.counted.deficit is None and self.counts.operators.keeps_state(self.head)
        return _STATE_UNRECORDED if unrecorded else ""

    @property
    def _has_other_rows(self) -> bool:
        """Whether some rows were lost and others doubled, which no number of records answers."""
        declared = self.against.declared
        lawful = not self.against.is_of_log and (self.counts.transforms or declared.filters or declared.explodes)
        return self.counted.doubted and not lawful

    def _perhaps_aborted(self, aborted: int, has: str) -> Fault | None:
        """Where numbers agree: records of aborted transactions among them, or other ones than were read."""
        if aborted:
            code, what, _ = self.of_aborted
            return Fault(
                code, f"{self._accounts_for}, {has}, of which {aborted:,} belong to aborted transactions{what}"
            )
        return Fault(Code.INCONCLUSIVE, f"{_OF_OTHER_OFFSETS}{_OR_DROPPED}") if self.counted.doubted else None

    def _fault_of_table(self, records: int, has: str) -> Fault | None:
        """What is wrong with its numbers, where the log of a Delta table or of files says how many rows it has."""
        read = self._rows_read
        if read not in (None, records):
            code, what = (Code.GAP, _FILTERED_BEFORE) if (read or 0) < records else (Code.DUPLICATE, "read twice")
            return Fault(code, f"read {plural(read or 0, 'row')}, {has}: some were {what}{self._or_options}")
        if self._has_other_rows:
            return Fault(Code.GAP, _OF_OTHER_OFFSETS)
        if not self.against.declared.explodes:
            return self._miscounted(records, has)
        if read is None:
            unsaid = "how many rows were read was not recorded, and several rows are made of one"
            return Fault(Code.INCONCLUSIVE, f"{self._accounts_for}, {has}: {unsaid}")
        gave = f"gave the sink {plural(self.head.rows_given or 0, 'row')}, and it took in {self.head.rows_written:,}"
        return Fault(Code.GAP, gave) if self.counted.lost > 0 else None

    @property
    def _rows_read(self) -> int | None:
        """The rows of its source that it read; None where nobody counted them."""
        uncounted = self.head.is_uncounted or self.counts.operators.keeps_state(self.head)
        return None if uncounted else self.head.rows_read

    def _miscounted(self, records: int, has: str) -> Fault | None:
        """Fewer rows than records, or more."""
        missing, sums, step = records - self._accounted, f"{self._accounts_for}, {has}", self._or_options
        if missing > 0 and may_have_dropped(self.head, self.counts, self.counted.dropped):
            unsaid = _FILTERS_UNKNOWN if self.against.lacks_source else _UNRECORDED
            return Fault(Code.INCONCLUSIVE, f"{sums}: {unsaid}{step}")
        if missing > 0:
            again = "" if self.against.is_of_log else "; read exactly its ranges once more"
            return Fault(Code.GAP, f"{sums}: {plural(missing, 'record')} missing{again}{step}", missing)
        if missing < 0 and self.against.is_of_log:
            return Fault(Code.DUPLICATE, f"{sums}: {_MAYBE_DOUBLED}{step}")
        perhaps = f"{sums}: compaction removed records since, or the transform makes rows"
        return Fault(Code.INCONCLUSIVE, perhaps) if missing < 0 else None

    @property
    def _or_options(self) -> str:
        """What recon.yml may lack: the version that reading began with, or options that say which rows files have."""
        if any(is_delta(read.topic) and read.start_offset == BEGINNING for read in self.ranges):
            return "; where recon.yml did not name the version that the query began with (startingVersion), accept this"
        lacks = "header, multiLine, lineSep or mode"
        of_files = any(is_files(read.topic) for read in self.ranges)
        return f"; or recon.yml lacks an option of the query (source: options), such as {lacks}" if of_files else ""


def may_have_dropped(head: EntryHead, counts: Counts, dropped: int | None) -> bool:
    """Whether the transform may have dropped rows that no entry tells of."""
    recorded = dropped is not None and (head.status != "rebuilt" or head.rows_read is not None)
    return not recorded and (counts.transforms or counts.only_rebuilt)
