"""The count identity against the source's own records: what is judged where no row shows which record it was made of.

In a sink whose rows later micro-batches replace, a row that is missing proves nothing, since a later one may stand in
its place; rows that Spark's own sink wrote need not say where they come from. What can be counted is what each
micro-batch accounts for: rows taken in, left out because a later one has the same key, filtered, quarantined. Kafka,
or the log of the Delta table that was read, says how many records its ranges hold, and the two must be equal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from random import Random

from recon.judge.coverage import Key, is_compacted
from recon.judge.findings import Findings, every_number, named
from recon.judge.history.recon_commits import own_writes
from recon.judge.row_counts import Counts
from recon.judge.rows import of_table
from recon.judge.rows.sink_rows import TopicPartition, rows_lack_source
from recon.judge.rows.transactions import ended_unread, read_uncommitted, read_while_open
from recon.model import (
    Code,
    EntryHead,
    Witnesses,
    known,
)
from recon.model.offsets import OffsetSpan, Span, Spans
from recon.model.positions import is_kafka
from recon.text import plural

_CONFIRMED = 200_000  # offsets whose records one audit counts though numbers of rows prove their micro-batches


def given_to(witnesses: Witnesses) -> Mapping[tuple[int, int], int]:
    """Rows given to the sink per (epoch, batch_id), where its own record has that count."""
    stamps = (write.stamp for write in own_writes(witnesses))
    return {(stamp.epoch, stamp.batch_id): stamp.given for stamp in stamps if stamp.given is not None}


def questions(counts: Counts, witnesses: Witnesses) -> dict[TopicPartition, Spans]:
    """The ranges of the micro-batches that the ledger's counts do not prove, or that may hold aborted records."""
    requested: dict[TopicPartition, list[Span]] = {}
    for entry in (*counts.open, *perhaps_aborted(counts, witnesses), *to_confirm(counts, witnesses)):
        for read in ranges_read(counts, entry):
            requested.setdefault((read.topic, read.partition), []).append(read.span)
    return {where: Spans.of(ranges) for where, ranges in requested.items()}


def perhaps_aborted(counts: Counts, witnesses: Witnesses) -> list[int]:
    """Entries that counts prove, and that may have read records of aborted transactions.

    These lie anywhere in a partition in which another micro-batch has offsets without a record, or of which Kafka shows
    that transactions ended in what no micro-batch read.
    """
    holed = {(read.topic, read.partition) for entry in counts.open for read in ranges_read(counts, entry)}
    holed |= ended_unread(counts, witnesses)
    opened, proved = read_while_open(counts, witnesses), read_uncommitted(counts).difference(counts.open)
    return sorted(
        entry
        for entry in (proved if holed else proved & opened)
        if entry in opened or any((read.topic, read.partition) in holed for read in ranges_read(counts, entry))
    )


def to_confirm(counts: Counts, witnesses: Witnesses) -> list[int]:
    """Entries of a query that writes without recon, with as many rows as offsets: a row too many, and an offset without
    a record, would look the same.

    All of those in partitions where others have offsets without a record, and of the rest as many as a bounded reading
    of Kafka allows, in each audit others.
    """
    if witnesses.source_log is not None:
        return sorted(set(counts.counted).difference(counts.open))  # its log is read already
    if not witnesses.observed:
        return []
    holed, open_ = _holed(counts, witnesses), set(counts.open)
    proved = [entry for entry in counts.counted if entry not in open_ and counts.width[entry]]
    first = [entry for entry in proved if _is_in(counts, entry, holed)]
    # Where no broker answers, numbers of rows prove as much as they can.
    others = [entry for entry in proved if entry not in set(first)] if known(witnesses.kafka) is not None else []
    ledger, most = counts.covered.slice, _CONFIRMED
    Random(f"{ledger.pipeline}/{ledger.sink}/{ledger.heads[-1].entry_hash}").shuffle(others)
    for entry in others:
        if counts.width[entry] <= most:
            most -= counts.width[entry]
            first.append(entry)
    return sorted(first)


def _holed(counts: Counts, witnesses: Witnesses) -> set[TopicPartition]:
    """Topic partitions that are known to have offsets without a record, as those of transaction markers."""
    holed = {(read.topic, read.partition) for entry in counts.open for read in ranges_read(counts, entry)}
    return holed | ended_unread(counts, witnesses)


def _is_in(counts: Counts, entry: int, places: Collection[TopicPartition]) -> bool:
    return any((read.topic, read.partition) in places for read in ranges_read(counts, entry))


def said(counts: Counts, witnesses: Witnesses) -> str:
    """Of how many micro-batches the records were counted in Kafka, for the end of a message."""
    counted = [
        entry
        for entry in to_confirm(counts, witnesses)
        if not any(isinstance(held_in_kafka(read, witnesses), str) for read in ranges_read(counts, entry))
    ]
    if witnesses.source_log is not None:
        return f"; the log of what was read has the rows of {plural(len(counted), 'micro-batch')}"
    return f"; the records of {plural(len(counted), 'micro-batch')} were counted in Kafka" if counted else ""


def judge(
    counts: Counts, witnesses: Witnesses, findings: Findings, but: Collection[int] = ()
) -> dict[TopicPartition, Counter[str]]:
    """Holds the counts of each open entry, `but` some, against Kafka's records; gives what Kafka explains."""
    explained: dict[TopicPartition, Counter[str]] = {}
    if witnesses.observed and witnesses.declared.explodes:
        heads = [counts.covered.slice.heads[entry] for entry in counts.counted if counts.width[entry]]
        step = (
            "keep Kafka's partition and offset in columns of the table, and name them with source_columns"
            if witnesses.source_log is None
            else "write with recon's hook, which counts the rows that it was given"
        )
        why = "the query makes several rows of one record, so that numbers of rows prove nothing"
        if heads:
            findings.add(Code.INCONCLUSIVE, f"{why}: {step}: {every_number(heads)}", about=every_number(heads))
        return explained
    for entry in counts.open:
        if entry not in but and not (rows_lack_source(witnesses) and _was_proved(counts, entry, witnesses)):
            _judge(counts, entry, witnesses, findings, explained)
    for entry in perhaps_aborted(counts, witnesses):
        _judge_proved(counts, entry, witnesses, findings)
    holed = _holed(counts, witnesses)
    for entry in to_confirm(counts, witnesses):
        unread = any(isinstance(held_in_kafka(read, witnesses), str) for read in ranges_read(counts, entry))
        # Elsewhere numbers of rows prove as much as they can where Kafka does not show the records any more.
        if not unread or (_is_in(counts, entry, holed) and not _was_proved(counts, entry, witnesses)):
            _judge(counts, entry, witnesses, findings, explained)
    return explained


def _was_proved(counts: Counts, entry: int, witnesses: Witnesses) -> bool:
    """Whether an earlier audit proved an entry, of whose records Kafka no longer has all."""
    head, proof = counts.covered.slice.heads[entry], witnesses.proof
    if proof is None or head.sequence > proof.position:
        return False
    if any((one.finding.epoch, one.finding.batch_id) == (head.epoch, head.batch_id) for one in proof.open):
        return False
    return any(isinstance(held_in_kafka(read, witnesses), str) for read in ranges_read(counts, entry))


def _judge_proved(counts: Counts, entry: int, witnesses: Witnesses, findings: Findings) -> None:
    """A micro-batch with as many rows as offsets has rows of every record that Kafka shows as aborted."""
    head = counts.covered.slice.heads[entry]
    for read in ranges_read(counts, entry):
        answer = held_in_kafka(read, witnesses)
        if isinstance(answer, str) or not answer["aborted"]:
            continue  # what Kafka does not show any more, counts prove as far as they can
        records = plural(answer["aborted"], "record")
        if counts.transforms:
            code, sentence = Code.INCONCLUSIVE, f"read {records} of aborted transactions, perhaps filtered"
        else:
            code = Code.PHANTOM_ROWS
            sentence = (
                f"read {records} of aborted transactions: their rows were merged into the sink; set "
                "kafka.isolation.level to read_committed and correct the rows"
            )
        key = Key(read.source, read.topic, read.partition)
        findings.add(code, f"{named(head)} {sentence}", head=head, key=key, span=read.span)


def _judge(
    counts: Counts,
    entry: int,
    witnesses: Witnesses,
    findings: Findings,
    explained: dict[TopicPartition, Counter[str]],
) -> None:
    head, counted = counts.covered.slice.heads[entry], counts.counted[entry]
    ranges = ranges_read(counts, entry)
    only = ranges[0] if len(ranges) == 1 else None
    key, span = (None, None) if only is None else (Key(only.source, only.topic, only.partition), only.span)

    def report(code: Code, sentence: str) -> None:
        findings.add(code, f"{named(head)} {sentence}", head=head, key=key, span=span)

    if head.rows_written is None:
        replaced = "" if witnesses.observed else ", and rows of this sink are replaced by later ones"
        report(Code.INCONCLUSIVE, f"does not say how many rows it wrote{replaced}")
        return
    if counted.deficit is None and counts.operators.keeps_state(head):
        report(
            Code.INCONCLUSIVE,
            "was given what came out of the query's state, and the rows that went in were not recorded; add "
            "recon.ProgressListener to the session, which does",
        )
        return
    lawful = counts.transforms or bool(witnesses.declared.filters or witnesses.declared.explodes)
    if counted.doubted and not lawful and witnesses.source_log is None:  # no number of records in Kafka answers that
        step = "read exactly its ranges once more through the hook"
        report(Code.GAP, f"{of_table.OF_OTHER_OFFSETS}: some are lost, and others doubled; {step}")
        return
    # Where rows that the sink had already were dropped before it, the count of rows given to it shows its own part.
    given = counts.given.get((head.epoch, head.batch_id))
    taken = head.rows_written if counted.dropped is not None or given is None else given
    accounted = taken + counted.quarantined + (counted.dropped or 0)
    held: dict[TopicPartition, Counter[str]] = {}
    for read in ranges:
        answer = held_in_kafka(read, witnesses)
        if isinstance(answer, str):
            short = f" with {plural(counted.deficit, 'offset')} without a counted row" if counted.deficit else ""
            report(Code.INCONCLUSIVE, f"accounts for {plural(accounted, 'row')}{short}, and {answer}")
            return
        held.setdefault((read.topic, read.partition), Counter()).update(answer)
    committed, aborted = (sum(of[reader] for of in held.values()) for reader in ("committed", "aborted"))
    uncommitted_too = (head.isolation_level or witnesses.isolation_level) == "read_uncommitted"
    records = committed + aborted if uncommitted_too else committed
    unknown = may_have_dropped(head, counts, counted.dropped)
    if witnesses.source_log is not None:
        for code, sentence in of_table.faults(
            counts, entry, ranges_read(counts, entry), accounted, records, unknown=unknown, declared=witnesses.declared
        ):
            report(code, sentence)
        return
    sums = f"accounts for {plural(accounted, 'row')}, and Kafka has {plural(records, 'record')} in its ranges"
    if accounted < records and unknown:
        report(Code.INCONCLUSIVE, f"{sums}; the rows that the transform filtered were not recorded")
    elif accounted < records:
        report(
            Code.GAP,
            f"{sums}: the stream read past {plural(records - accounted, 'record')} that no count covers; read "
            f"exactly its ranges once more{'' if witnesses.observed else ' through the hook'}",
        )
    elif accounted > records:
        report(
            Code.INCONCLUSIVE,
            f"{sums}, {accounted - records:,} fewer: compaction removed records since, or the transform makes rows",
        )
    elif uncommitted_too and aborted and not counts.transforms:
        report(
            Code.PHANTOM_ROWS,
            f"{sums}, of which {aborted:,} belong to aborted transactions: their rows were merged into the sink; set "
            "kafka.isolation.level to read_committed and correct the rows",
        )
    elif uncommitted_too and aborted:
        report(Code.INCONCLUSIVE, f"{sums}, of which {aborted:,} belong to aborted transactions, perhaps filtered")
    elif counted.doubted:
        report(
            Code.INCONCLUSIVE,
            f"{of_table.OF_OTHER_OFFSETS}: the transform drops some records and makes several rows of others, or some "
            "are lost; compare them with the source, then accept it",
        )
    else:
        for where, of in held.items():
            tally = explained.setdefault(where, Counter())
            tally["compacted" if is_compacted(where[0], witnesses) else "control"] += of["absent"]
            tally["aborted"] += of["aborted"]


def may_have_dropped(head: EntryHead, counts: Counts, dropped: int | None) -> bool:
    """Whether the transform may have dropped rows that no entry tells of."""
    recorded = dropped is not None and (head.status != "rebuilt" or head.rows_read is not None)
    return not recorded and (counts.transforms or counts.only_rebuilt)


def ranges_read(counts: Counts, entry: int) -> list[OffsetSpan]:
    """What a micro-batch read."""
    return [read for read in counts.covered.slice.ranges.of(entry) if read.span.size > 0]


def held_in_kafka(read: OffsetSpan, witnesses: Witnesses) -> dict[str, int] | str:
    """How many offsets of a range have a committed record, an aborted one or none; or why they cannot be counted."""
    if witnesses.source_log is not None or not is_kafka(read.topic):
        rows = of_table.rows_in(read, witnesses.source_log)
        return rows if isinstance(rows, str) else {"committed": rows, "aborted": 0, "absent": 0}
    name = f"{read.topic}-{read.partition}"
    answer = witnesses.probes.get((read.topic, read.partition))
    if answer is None:
        return f"Kafka could not be read for {name}"
    topic = witnesses.topic(read.topic)
    now = None if topic is None else topic.topic_id
    if now is not None and read.topic_id is not None and now != read.topic_id:
        return f"topic {read.topic} was re-created since: its records are others now"
    if read.start_offset < answer.log_start:
        return f"Kafka's log of {name} now starts at {answer.log_start}: its records can no longer be counted"
    if answer.truncated is not None:
        return f"Kafka could not be read for all of {name}: {answer.truncated}"
    span = Spans.of([read.span])
    if span.intersect(answer.requested).size < span.size or read.end_offset > answer.last_stable:
        return f"a transaction of {name} is still open, or the probe did not reach that far"
    # A reader of uncommitted records gets the committed ones, too.
    committed, both = span.intersect(answer.committed).size, span.intersect(answer.uncommitted).size
    return {
        "committed": committed,
        "aborted": max(both - committed, 0),
        "absent": span.size - max(both, committed),
    }
