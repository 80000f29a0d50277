"""What source_rows reports of offsets without a row, as the account classifies them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from recon.base.text import plural
from recon.judge.account.by_count import shares
from recon.judge.account.fold import Classified, Told, folded
from recon.judge.account.recorded import LEFT_OUT, looked_for, recorded
from recon.judge.account.records import RECORDS
from recon.judge.account.told_by_kafka import WITHOUT_A_RECORD
from recon.judge.findings import commit_of
from recon.judge.history.table_history import removes_rows
from recon.judge.row_counts import Counts, Piece
from recon.judge.rows.rewriting import SourceCounts
from recon.judge.rows.sink_rows import Explained, SinkRows, tell_explained
from recon.model import Code, EntryHead
from recon.model.account import OffsetClass
from recon.model.grouping import spans_by
from recon.model.ledger import named
from recon.model.offsets import Spans
from recon.model.proof import OpenFinding, SinkProof

_WITH_ANSWERS = (*WITHOUT_A_RECORD, *RECORDS)  # behind those that need none

# What explains that an offset has no row, by the word for it in findings.
_REASONS = {
    OffsetClass.QUARANTINED: "quarantined",
    OffsetClass.RELEASED: "filtered",
    OffsetClass.FILTERED: "filtered",
    OffsetClass.MARKER: "control",
    OffsetClass.ABORTED: "aborted",
    OffsetClass.COMPACTED: "compacted",
    OffsetClass.WITHOUT_RECORD: "without a record when read",
    OffsetClass.REMOVED: "deleted as declared",
}


def without_row(sink: SinkRows) -> list[Classified]:
    """Every offset without a row with its class."""
    found, left = recorded(sink)
    more, unknown = folded(sink, left.pieces, _WITH_ANSWERS)
    assert not unknown.pieces, "the last provider classifies all that is left"
    return [*found, *more]


def held(sink: SinkRows) -> int:
    """How many of the offsets that were looked for have a row."""
    return sum(looked_for(sink, where).intersect(sink.present.get(where, Spans())).size for where in sink.counts.judged)


def judge_missing(sink: SinkRows, found: Sequence[Classified]) -> Counter[str]:
    """Adds findings for lost offsets and for those that nothing explains; returns how many each reason explains.

    `found` are the offsets of `without_row`.
    """
    explained: Explained = {where: Counter() for where in sink.counts.judged}
    told: dict[Told, list[Piece]] = {}
    for each in found:
        if each.told is not None:
            told.setdefault(each.told, []).append(each.piece)
        elif each.offset_class in _REASONS:
            explained[each.piece.where][_REASONS[each.offset_class]] += each.piece.size
    for what, pieces in told.items():
        if what.by:
            sink.report(what.code, pieces, what.what, records=what.records, changed_by=what.by)
        elif what.removed:
            sink.report_removed(pieces, what.what)
        else:
            sink.report(what.code, pieces, what.what, records=what.records, undecidable=what.undecidable)
    _judge_lost(sink)
    _judge_hidden(sink, found)
    had_a_row = any(each.is_removed or each.told == LEFT_OUT for each in found)
    _report_other_pipelines(sink, removed=had_a_row)
    return tell_explained(explained, "row", sink.findings)


def _judge_lost(sink: SinkRows) -> None:
    """Rows that the sink was given and did not take in, where no finding names their offsets."""
    named_already = {(f.epoch, f.batch_id) for f in sink.findings.items if f.code is Code.GAP}
    for entry in _may_have_lost(sink):
        counted, head = sink.counts.counted[entry], sink.ledger.heads[entry]
        lost = counted.lost - _read_again(sink, entry)
        if lost > 0 and (head.epoch, head.batch_id) not in named_already:
            message = (
                f"the sink was given {plural(head.rows_given or 0, 'row')} of {named(head)} and took in "
                f"{head.rows_written or 0:,}: {lost:,} were lost in between"
            )
            sink.findings.add(Code.GAP, message, head=head)


def _may_have_lost(sink: SinkRows) -> list[int]:
    """The entries with offsets that nothing recorded explains, but for those whose rows `judge_made` compares.

    Where a topic was created again, a missing row may be taken for one of the other topic's, or be hidden by it.
    """
    counted = sink.counts.counted
    entries = set(recorded(sink)[1].of_entry)
    entries |= {entry for entry, counts in counted.items() if counts.lost} & _of_recreated(sink)
    return sorted(e for e in entries if not (sink.writing.declared.explodes and counted[e].explodes))


def _of_recreated(sink: SinkRows) -> set[int]:
    """The entries of topic partitions that were read under several topic ids."""
    several = [stretches for stretches in sink.counts.judged.values() if stretches.incarnations > 1]
    return {piece.entry for stretches in several for piece in stretches.readings(stretches.ranges)}


def _judge_hidden(sink: SinkRows, found: Sequence[Classified]) -> None:
    """Offsets without a row, as counts tell, where a row of another topic of the name has the same offset."""
    told = accepted_offsets(sink.proof, sink.counts)
    for each in found:
        told[each.piece.entry] += each.piece.size if each.told is not None else 0
    for entry, offsets in hidden(sink).items():
        head = sink.ledger.heads[entry]
        if told[entry] < _without(sink, entry) and not _was_proved(sink, head) and _is_unsure(sink, entry):
            message = (
                f"{named(head)} left {plural(offsets, 'offset')} without a row, where rows of another topic of the "
                "name have the same offsets; whether they had records is not known: compare the rows with the former "
                "topic's records, then accept it"
            )
            sink.findings.add(Code.INCONCLUSIVE, message, head=head, undecidable=True)


def _was_proved(sink: SinkRows, head: EntryHead) -> bool:
    """Whether an earlier audit judged an entry, and nothing of it is open."""
    proof = sink.proof
    if proof is None or not proof.judged(head, sink.ledger):
        return False
    return (head.epoch, head.batch_id) not in {(o.finding.epoch, o.finding.batch_id) for o in proof.open}


def _is_unsure(sink: SinkRows, entry: int) -> bool:
    """Whether counts and Kafka's answers leave open what became of some offsets of an entry."""
    writing = sink.writing
    against = SourceCounts(sink.counts, sink.source, sink.proof, writing.declared, writing.observed, False)
    classes = {share.offset_class for share in shares(against, entry, sink.counts.width[entry], rewrites=False)}
    return not classes.isdisjoint((OffsetClass.NOT_KNOWN, OffsetClass.LOST))


def accepted_offsets(proof: SinkProof | None, counts: Counts) -> Counter[int]:
    """How many offsets of each entry somebody accepted."""
    found = Counter[int]()
    for (topic, topic_id, partition), spans in _accepted(proof.open if proof is not None else ()).items():
        stretches = counts.judged.get((topic, partition))
        for piece in stretches.readings_of(topic_id, spans) if stretches is not None else ():
            found[piece.entry] += piece.size
    return found


def _accepted(open_: Sequence[OpenFinding]) -> Mapping[tuple[str, str | None, int], Spans]:
    found = [each.finding for each in open_ if each.accepted is not None]
    return spans_by(((f.topic or "", f.topic_id, f.partition or 0), f.span) for f in found if f.span is not None)


def hidden(sink: SinkRows) -> Mapping[int, int]:
    """How many offsets without a row each entry has beyond those that the rows show.

    Rows carry no topic id: of a topic that was created again, rows stand at the former one's offsets.
    """
    found, shown = dict[int, int](), recorded(sink)
    seen = Counter[int](shown[1].of_entry)
    for each in shown[0]:
        seen[each.piece.entry] += each.piece.size
    for entry in _of_recreated(sink).intersection(sink.counts.counted) if sink.rows.of is None else ():
        counted, without = sink.counts.counted[entry], _without(sink, entry)
        if counted.deficit and not (counted.explodes or counted.doubted) and without > seen[entry]:
            found[entry] = without - seen[entry]
    return found


def _without(sink: SinkRows, entry: int) -> int:
    """How many offsets of an entry have no row of the sink, as counts tell."""
    counted = sink.counts.counted[entry]
    return (counted.deficit or 0) + (counted.dropped or 0) + counted.quarantined


def _read_again(sink: SinkRows, entry: int) -> int:
    """How many offsets of an entry repairs read again and have a row now."""
    again = 0
    for read in sink.ledger.ranges.of(entry) if sink.repaired else ():
        where = (read.topic, read.partition)
        if where in sink.repaired and where in sink.present and read.span.size > 0:
            again += Spans.of([read.span]).intersect(sink.repaired[where]).intersect(sink.present[where]).size
    return again


def _report_other_pipelines(sink: SinkRows, *, removed: bool) -> None:
    """Commits of other pipelines of recon's that took rows out of the table; delta_history reports everybody else's."""
    history = sink.table
    if history is None:
        return
    for commit in history.others:
        stamp = commit.stamp
        if stamp is None or commit.version <= history.first_claimed or not removes_rows(commit):
            continue
        what = (
            f"version {commit.version} ({commit.operation}) of pipeline {stamp.pipeline}, sink "
            f"{stamp.sink} changed rows of {sink.rows.location}, and "
        )
        if removed:
            apart = "rows of this pipeline are missing: give each pipeline a table of its own, or keys that cannot meet"
            sink.findings.add(Code.MUTATED, what + apart, about=commit_of(commit))
        elif not history.is_complete and commit.version > history.known_version:
            unread = "rows of earlier micro-batches were not read: `recon audit --full` looks at them"
            sink.findings.add(Code.INCONCLUSIVE, what + unread, about=commit_of(commit))
