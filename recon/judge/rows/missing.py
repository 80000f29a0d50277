"""Offsets without a row: filtered, quarantined, released, never a record, or lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from recon.judge.coverage import is_compacted
from recon.judge.findings import commit_of
from recon.judge.history.table_history import first_version, is_another, known_table, others, removes_rows
from recon.judge.kafka.kafka_states import was_held
from recon.judge.row_accounting import Piece
from recon.judge.rows.exploded_rows import filtered_by_transform, lost_by_fingerprints, read_others
from recon.judge.rows.quarantine import judge_unreleased, waiting
from recon.judge.rows.reasons import awaited
from recon.judge.rows.sink_rows import (
    Explained,
    SinkRows,
    TopicPartition,
    by_partition,
    tell_explained,
)
from recon.judge.rows.spot_check import contradictions
from recon.model import Code, ProbeAnswer
from recon.model.ledger import named
from recon.model.offsets import GrowingSpans, Span, Spans
from recon.model.once import once
from recon.text import plural

_CHECK = "source_rows"


@dataclass(frozen=True)
class Missing:
    """The offsets of a sink that no row carries, before Kafka is asked.

    Args:
        unexplained: those that nothing recorded explains, by topic partition: questions for Kafka.
        removed: those of entries whose commit wrote a row for every offset.
        released: those of rows that a release took from quarantine, by its number.
        explained: how many were filtered or wait in quarantine.
        offsets: how many there are in all.
        held: how many offsets have a row.
    """

    unexplained: Mapping[TopicPartition, Sequence[Piece]]
    removed: Sequence[Piece]
    released: Mapping[int, Sequence[Piece]]
    explained: Explained
    offsets: int
    held: int


def missing_from(sink: SinkRows) -> Missing:
    """Offsets without a row, cut up by the entries that read them; found once for `questions` and `judge`."""
    return once(sink.counts, missing_from, lambda: _missing_from(sink), sink.rows)


def _missing_from(sink: SinkRows) -> Missing:
    pieces: list[Piece] = []
    explained: Explained = {}
    released: dict[int, list[Piece]] = {}
    held = 0
    quarantined = by_partition(group for group in sink.rows.quarantined if group.release is None)
    taken = by_partition(group for group in sink.rows.quarantined if group.release is not None)
    of_some = _ranges_of_some(sink) if sink.rows.of is not None else None
    for where, stretches in sink.counts.judged.items():
        ranges = stretches.ranges if of_some is None else of_some.get(where, Spans())
        absent = ranges.minus(sink.present.get(where, Spans()))
        held += ranges.size - absent.size
        in_quarantine = waiting(stretches, absent, quarantined.get(where, ()), sink.ledger.heads)
        explained.setdefault(where, Counter())["quarantined"] += in_quarantine.size
        absent = absent.minus(in_quarantine)
        of_releases = GrowingSpans()
        for group in taken.get(where, ()):
            new = [part for span in absent.intersect(group.present) for part in of_releases.add(*span)]
            released.setdefault(group.batch_id, []).extend(stretches.pieces(Spans(tuple(new))))
        pieces += stretches.pieces(absent.minus(of_releases.spans))
    if not sink.witnesses.observed:
        # Rows from before recon wrote the table have no source columns of recon's: none of them can be looked for.
        pieces = [piece for piece in pieces if not sink.ledger.heads[piece.entry].is_observed]
    of_entry: Counter[int] = Counter()
    for piece in pieces:
        of_entry[piece.entry] += piece.size
    unexplained: dict[TopicPartition, list[Piece]] = {}
    removed: list[Piece] = []
    contradicted = contradictions(sink.counts, sink.witnesses)
    dropped_again = _dropped_again(sink)
    left = {
        piece.entry
        for piece in pieces
        if Spans.of([(piece.start, piece.end)]).minus(dropped_again.get(piece.where, Spans()))
    }
    for piece in pieces:
        if piece.entry not in left:
            explained[piece.where]["filtered"] += piece.size
            continue
        counted = sink.counts.counted[piece.entry]
        doubles = piece.entry in contradicted or (counted.uncounted and sink.doubles(piece.entry))
        if counted.proved and not counted.dropped and (counted.missing_at_read == 0 or not doubles):
            # The commit wrote a row for every offset, whatever Kafka may still know of them.
            removed.append(piece)
        elif not (counted.explodes or counted.doubted) and counted.dropped == of_entry[piece.entry]:
            explained[piece.where]["filtered"] += piece.size
        else:
            unexplained.setdefault(piece.where, []).append(piece)
    in_all = of_entry.total() + sum(piece.size for mine in released.values() for piece in mine)
    in_all += sum(tally["quarantined"] for tally in explained.values())
    return Missing(unexplained, removed, released, explained, in_all, held)


def _dropped_again(sink: SinkRows) -> Mapping[TopicPartition, Spans]:
    """The offsets without a row that a repair read once more, and of which the transform dropped as many again.

    They say what became of a micro-batch that has no other offset without a row. Of others, its own count tells: how
    many its transform dropped in all.
    """
    dropped: dict[TopicPartition, list[Span]] = {}
    for entry, counted in sink.counts.counted.items():
        head = sink.ledger.heads[entry]
        was_read = sink.rows.of is None or (head.epoch, head.batch_id) in sink.rows.of
        if not (head.is_repair and was_read and counted.dropped) or counted.explodes or counted.doubted:
            continue
        read = [((one.topic, one.partition), one.span) for one in sink.ledger.ranges.of(entry)]
        absent = [(where, Spans.of([span]).minus(sink.present.get(where, Spans()))) for where, span in read]
        if sum(spans.size for _, spans in absent) == counted.dropped:
            for where, spans in absent:
                dropped.setdefault(where, []).extend(spans)
    return {where: Spans.of(spans) for where, spans in dropped.items()}


def _ranges_of_some(sink: SinkRows) -> Mapping[TopicPartition, Spans]:
    """What those micro-batches read whose rows alone were read."""
    spans: dict[TopicPartition, list[Span]] = {}
    for entry, head in enumerate(sink.ledger.heads):
        if (head.epoch, head.batch_id) in (sink.rows.of or ()):
            for read in sink.ledger.ranges.of(entry):
                spans.setdefault((read.topic, read.partition), []).append(read.span)
    return {where: Spans.of(mine) for where, mine in spans.items()}


def judge_missing(sink: SinkRows, missing: Missing) -> Counter[str]:
    """Adds findings for lost offsets and for those that nothing explains; returns how many each reason explains."""
    unread: dict[int, list[Piece]] = {}
    not_there: dict[int, list[Piece]] = {}
    explained: Explained = {where: Counter(tally) for where, tally in missing.explained.items()}
    proved = _proved_before(sink, missing)
    for where, pieces in missing.unexplained.items():
        answer = sink.witnesses.probes.get(where)
        if answer is None:
            sink.report(Code.INCONCLUSIVE, pieces, "are in no row, and Kafka could not be read to explain them")
            continue
        for piece in _without_a_record(sink, pieces, answer, explained[where], not_there, proved):
            unread.setdefault(piece.entry, []).append(piece)
    _judge_records(sink, unread, explained)
    _judge_holes(sink, unread, not_there)
    judge_unreleased(sink, missing.released, explained)
    _judge_lost(sink, missing)
    _report_other_pipelines(sink, missing)
    # How many rows the sink wrote is known, and not which: it may have written another one twice instead.
    left_out = [piece for piece in missing.removed if sink.doubles(piece.entry)]
    removed = [piece for piece in missing.removed if not sink.doubles(piece.entry)]
    sink.report(
        Code.GAP,
        left_out,
        "have no row, while rows of the same micro-batch are doubled: the numbers of rows agree, so the sink left "
        "these out, or they were removed since",
        records=True,
    )
    or_quarantine = any(sink.counts.counted[piece.entry].quarantined for piece in removed)
    sink.report_removed(
        removed,
        "had a row each when they were written, and no row carries them now: they were removed from the sink"
        + (" or from its quarantine" if or_quarantine else ""),
    )
    return tell_explained(explained, "row", sink.findings)


def _judge_lost(sink: SinkRows, missing: Missing) -> None:
    """Rows that the sink was given and did not take in, where no finding names their offsets."""
    named_already = {(f.epoch, f.batch_id) for f in sink.findings.items if f.code is Code.GAP}
    open_entries = {piece.entry for pieces in missing.unexplained.values() for piece in pieces}
    # Where a topic was created again, a missing row may be taken for one of the other topic's, or be hidden by it.
    open_entries |= {entry for entry, counted in sink.counts.counted.items() if counted.lost} & _of_recreated(sink)
    for entry in sorted(open_entries):
        if sink.witnesses.declared.explodes and sink.counts.counted[entry].explodes:
            continue  # judge_made compares its rows
        counted, head = sink.counts.counted[entry], sink.ledger.heads[entry]
        lost = counted.lost - _read_again(sink, entry)
        if lost > 0 and (head.epoch, head.batch_id) not in named_already:
            sink.findings.add(
                Code.GAP,
                f"the sink was given {plural(head.rows_given or 0, 'row')} of {named(head)} and took in "
                f"{head.rows_written or 0:,}: {lost:,} were lost in between",
                head=head,
            )


def _of_recreated(sink: SinkRows) -> set[int]:
    """The entries of topic partitions that were read under several topic ids."""
    several = [stretches for stretches in sink.counts.judged.values() if stretches.incarnations > 1]
    return {piece.entry for stretches in several for piece in stretches.readings(stretches.ranges)}


def _read_again(sink: SinkRows, entry: int) -> int:
    """How many offsets of an entry repairs read again and have a row now."""
    again = 0
    for read in sink.ledger.ranges.of(entry) if sink.repaired else ():
        where = (read.topic, read.partition)
        if where in sink.repaired and where in sink.present and read.span.size > 0:
            again += Spans.of([read.span]).intersect(sink.repaired[where]).intersect(sink.present[where]).size
    return again


def _report_other_pipelines(sink: SinkRows, missing: Missing) -> None:
    """Commits of other pipelines of recon's that took rows out of the table; delta_history reports everybody else's."""
    log, ledger = sink.witnesses.table_log, sink.ledger
    if log is None:
        return
    first, known = first_version(log, ledger), known_table(sink.witnesses)
    judged = known.version if known is not None and not is_another(log, known) else -1
    for commit in others(log, ledger):
        if commit.stamp is None or commit.version <= first or not removes_rows(commit):
            continue
        what = (
            f"version {commit.version} ({commit.operation}) of pipeline {commit.stamp.pipeline}, sink "
            f"{commit.stamp.sink} changed rows of {sink.rows.location}, and "
        )
        if missing.removed:
            apart = "rows of this pipeline are missing: give each pipeline a table of its own, or keys that cannot meet"
            sink.findings.add(Code.MUTATED, what + apart, about=commit_of(commit))
        elif not ledger.complete and commit.version > judged:
            unread = "rows of earlier micro-batches were not read: `recon audit --full` looks at them"
            sink.findings.add(Code.INCONCLUSIVE, what + unread, about=commit_of(commit))


def _without_a_record(
    sink: SinkRows,
    pieces: Sequence[Piece],
    answer: ProbeAnswer,
    tally: Counter[str],
    not_there: dict[int, list[Piece]],
    proved: Collection[int],
) -> Iterator[Piece]:
    """Counts or reports what Kafka explains or has deleted; yields offsets that have a record, and so need a row.

    Offsets that have no record for a reader of committed records go to `not_there`, by the entry that read them. Of
    entries that are `proved`, offsets that Kafka has deleted since are explained.
    """
    wanted = Spans.of((piece.start, piece.end) for piece in pieces)
    expired = wanted.intersect(Spans.of([(0, answer.log_start)]))
    rest = wanted.minus(expired)
    lost = expired.intersect(_found_lost(sink, (answer.topic, answer.partition)))
    sink.report(
        Code.GAP,
        within(pieces, lost),
        "are in no row; an earlier audit found them in Kafka, which has deleted them since",
        records=True,
    )
    expired = expired.minus(lost)
    seen, aborted = rest.intersect(answer.committed), rest.intersect(answer.uncommitted).minus(answer.committed)
    unseen = rest.minus(answer.committed).minus(answer.uncommitted)
    sure = answer.requested.intersect(Spans.of([(0, answer.last_stable)])) if answer.truncated is None else Spans()
    doubtful = aborted.union(unseen).minus(sure)
    tally["aborted"] += aborted.intersect(sure).size
    tally["compacted" if is_compacted(answer.topic, sink.witnesses) else "control"] += unseen.intersect(sure).size
    if is_compacted(answer.topic, sink.witnesses):
        sink.report(
            Code.INCONCLUSIVE,
            (p for p in within(pieces, unseen.intersect(sure)) if sink.counts.counted[p.entry].uncounted),
            "are in no row, and Kafka has no record there now: compaction may have removed one that was lost since "
            "it was written, and no count says how many records were read",
        )
    log_start = f"are in no row, and Kafka's log now starts at {answer.log_start}"
    gone = [piece for piece in within(pieces, expired) if piece.entry not in proved]
    tally["without a record when read"] += expired.size - sum(piece.size for piece in gone)
    leading = {piece: _expired_unread(sink, piece, answer.log_start) for piece in gone if piece.leads}
    unread = [piece for piece, expired_before in leading.items() if expired_before]
    unknown = [piece for piece, expired_before in leading.items() if expired_before is None]
    sink.report(Code.LOSS_RETENTION, unread, f"{log_start}: they cannot be read any more")
    sink.report(
        Code.INCONCLUSIVE,
        unknown,
        f"{log_start}: whether they had expired when they were read, or were records of aborted transactions, is not "
        "known any more",
    )
    sink.report(
        Code.INCONCLUSIVE,
        (piece for piece in gone if piece not in unread and piece not in unknown),
        f"{log_start}: they were there when they were read, and whether they were records is unknown",
    )
    why = answer.truncated or "the probe did not reach them"
    sink.report(Code.INCONCLUSIVE, within(pieces, doubtful), f"are in no row, and Kafka could not explain them: {why}")
    for piece in within(pieces, aborted.union(unseen).intersect(sure)):
        not_there.setdefault(piece.entry, []).append(piece)
    yield from within(pieces, seen)


def _found_lost(sink: SinkRows, where: TopicPartition) -> Spans:
    """Offsets that an earlier audit found to be those of records without a row, all of them.

    Where the topic was created again, they may be of another one.
    """
    proof = sink.witnesses.proof
    if proof is None or sink.counts.judged[where].incarnations > 1:
        return Spans()
    found = (o for o in proof.open if o.check == _CHECK and o.finding.code is Code.GAP and o.is_in(*where))
    return Spans.of(span for one in found if one.finding.rows == one.spans.size for span in one.spans)


def _expired_unread(sink: SinkRows, piece: Piece, log_start: int) -> bool | None:
    """Whether the beginning of a range had expired when it was read; None where nobody knows.

    The broker may have told the hook later where the log starts. If not, it is so where the log still starts right
    behind it, and where the query reads uncommitted, which gets every record that Kafka still has; one that reads
    committed leaves out those of aborted transactions, too, and retention may have taken them since.
    """
    head = sink.ledger.heads[piece.entry]
    held = was_held(sink.ledger, head.sequence, piece.where, piece.start)
    if held is None:
        reads_all = (head.isolation_level or sink.witnesses.isolation_level) == "read_uncommitted"
        return True if reads_all or piece.end == log_start else None
    return not held


def _proved_before(sink: SinkRows, missing: Missing) -> frozenset[int]:
    """Entries that an earlier audit proved, and of which no more offsets lack a row than lacked a record when read.

    That audit found the reason for each of these offsets while Kafka could still show it.
    """
    proof = sink.witnesses.proof
    if proof is None:
        return frozenset()
    named_open = {(one.finding.epoch, one.finding.batch_id) for one in proof.open}
    without, doubted = Counter[int](), set[int]()
    for where, pieces in missing.unexplained.items():
        of_where = [one.spans for one in proof.open if one.is_in(*where)]
        open_spans = Spans.of(span for spans in of_where for span in spans)
        for piece in pieces:
            without[piece.entry] += piece.size
            if Spans.of([(piece.start, piece.end)]).intersect(open_spans):
                doubted.add(piece.entry)
    proved = set[int]()
    for entry, size in without.items():
        head, counted = sink.ledger.heads[entry], sink.counts.counted[entry]
        if head.sequence > proof.position or entry in doubted or (head.epoch, head.batch_id) in named_open:
            continue
        # Where the reader did not count, the offsets that no counted row accounts for are those without a record.
        holes = counted.deficit if counted.missing_at_read is None else counted.missing_at_read
        if holes is not None and not counted.explodes and size <= holes + (counted.dropped or 0):
            proved.add(entry)
    return frozenset(proved)


def _judge_holes(
    sink: SinkRows,
    unread: Mapping[int, Sequence[Piece]],
    not_there: Mapping[int, Sequence[Piece]],
) -> None:
    """Offsets that have no record today, where fewer had none when they were read: some had one, and it has no row."""
    for entry, pieces in not_there.items():
        counted = sink.counts.counted[entry]
        if counted.missing_at_read is None or counted.explodes:
            continue
        filtered = max((counted.dropped or 0) - sum(piece.size for piece in unread.get(entry, ())), 0)
        more = sum(piece.size for piece in pieces) - counted.missing_at_read - filtered
        if more <= 0 or counted.dropped is None:
            continue
        sink.report(
            Code.INCONCLUSIVE,
            pieces,
            f"are in no row, and Kafka has no record there now; when the micro-batch was read, {more:,} more of its "
            "offsets had one: as many were lost, and Kafka no longer shows which",
        )


def _judge_records(sink: SinkRows, unread: Mapping[int, Sequence[Piece]], explained: Explained) -> None:
    """Records that both readers get and no row carries: filtered, if their micro-batch says so, else lost."""
    lost: list[Piece] = []
    undecided: list[Piece] = []
    in_state: list[Piece] = []
    counts = sink.counts
    not_recorded = set(awaited(unread, counts, sink.witnesses, sink.findings))
    for entry, pieces in unread.items():
        dropped = counts.counted[entry].dropped
        if dropped is None and entry in not_recorded:
            continue
        if dropped is None and counts.operators.keeps_state(sink.ledger.heads[entry]):
            in_state += pieces
        elif dropped is None and counts.counted[entry].explodes and filtered_by_transform(sink, entry, pieces):
            for piece in pieces:
                explained[piece.where]["filtered"] += piece.size
        elif dropped is None and (
            counts.counted[entry].explodes
            or counts.transforms
            or counts.only_rebuilt
            or sink.ledger.heads[entry].is_observed
        ):
            undecided += pieces
        elif sum(piece.size for piece in pieces) <= (dropped or 0) and not read_others(sink, entry, pieces):
            for piece in pieces:
                explained[piece.where]["filtered"] += piece.size
        elif dropped:
            _judge_filtered_and_lost(sink, entry, pieces, dropped, explained)
        else:
            lost += pieces
    in_kafka = "are in no row and in Kafka"
    if sink.witnesses.observed:
        unsaid = "whether the query filters rows is not known: where it does not, say so (rows: {filters: false})"
        if sink.witnesses.declared.filters:
            unsaid = "the query filters rows, and nothing says which"
        sink.report(Code.INCONCLUSIVE, undecided, f"{in_kafka}, and {unsaid}")
    else:
        unsaid = "the micro-batch does not say how many it filtered"
        sink.report(Code.INCONCLUSIVE, undecided, f"{in_kafka}, and {unsaid}")
    sink.report(
        Code.INCONCLUSIVE,
        in_state,
        f"{in_kafka}: the query keeps state, and nothing recorded how many rows its stateful operators dropped; add "
        "recon.ProgressListener to the session",
    )
    dropped_by = " nor does the micro-batch say it dropped them"
    if sink.witnesses.declared.filters is False:
        dropped_by = ", and recon.yml says that the transform filters none"
    sink.report(
        Code.GAP,
        lost,
        f"are in Kafka and were read past, and no row carries them{dropped_by}; read exactly this range once more "
        "(`recon repair plan`)",
        records=True,
    )


def _judge_filtered_and_lost(
    sink: SinkRows, entry: int, pieces: Sequence[Piece], dropped: int, explained: Explained
) -> None:
    """Records of one micro-batch without a row, which are more than its transform filtered."""
    size = sum(piece.size for piece in pieces)
    missing = size - dropped
    told = f"{plural(size, 'offset')} of the micro-batch without a row, {dropped:,} filtered, {missing:,} missing"
    step = "read exactly this range once more (`recon repair plan`)"
    lost = lost_by_fingerprints(sink, entry, pieces)
    if missing <= 0:
        told = f"{plural(size, 'offset')} of the micro-batch without a row, and others than were read"
    if lost:
        sink.report(
            Code.GAP, lost, f"are in Kafka and were read past, and no row carries them ({told}); {step}", records=True
        )
        for piece in pieces:
            explained[piece.where]["filtered"] += piece.size
        for piece in lost:
            explained[piece.where]["filtered"] -= piece.size
        return
    which = "which of them, neither counts nor fingerprints tell"
    sink.report(Code.GAP, pieces, f"are in Kafka and were read past, and no row carries them ({told}: {which}); {step}")


def within(pieces: Iterable[Piece], spans: Spans) -> Iterator[Piece]:
    """The parts of the pieces that lie in `spans`."""
    if not spans:
        return
    for piece in pieces:
        for start, end in Spans.of([(piece.start, piece.end)]).intersect(spans):
            yield piece._replace(start=start, end=end, leads=piece.leads and start == piece.start)
