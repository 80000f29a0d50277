"""Rows that should not be there: of aborted transactions, doubled, or accounted for by no ledger entry."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar, Self

from typing_extensions import override

from recon.judge.coverage import Key, by_key, by_partition
from recon.judge.findings import Findings, named, offsets
from recon.judge.history.database_counts import (
    TableJudged,
    count_said,
    digest,
    may_repeat,
    of_others,
    rows_repeated,
)
from recon.judge.history.foreign_rows import read_of_others, releases, search
from recon.judge.history.recon_commits import doubled
from recon.judge.history.table_history import history_of
from recon.judge.row_counts import Counts, Piece, ReadStretches
from recon.judge.rows.sink_rows import SinkRows, TopicPartition, rewrites, rows_are_no_newer
from recon.judge.rows.transactions import judge_aborted
from recon.model import (
    WITHOUT_NUMBER,
    Code,
    DeltaCommit,
    Finding,
    ReconStamp,
    RowGroup,
    Witnesses,
    parse_offsets,
)
from recon.model.fingerprint import PRIME, of_ranges
from recon.model.memory import SinkAudit, SinkMemory
from recon.model.offsets import OffsetSpan, Span, Spans
from recon.text import plural, some

_NAMED = 5  # ranges of doubled offsets of a micro-batch that are findings of their own; more are one finding


@dataclass(frozen=True, kw_only=True)
class EarlierBatches(SinkMemory):
    """That micro-batches ran before the first one that the proof speaks of."""

    name: ClassVar[str] = "earlier_batches"

    @override
    @classmethod
    def after(cls, before: Self | None, audit: SinkAudit) -> Self | None:
        known = before if audit.before is not None and audit.before.position else None
        told = any(f.code is Code.UNWITNESSED for r in audit.results for f in r.findings)
        return known or (cls() if told else None)


def judge_surplus(counts: Counts, witnesses: Witnesses, findings: Findings, *, rows_tell: bool) -> None:
    """Adds a finding for each micro-batch that wrote more rows than it read offsets, though no transform makes rows.

    Rows that were found doubled one by one are not counted once more. Where all rows of the sink were looked at
    (`rows_tell`), neither are those of a micro-batch from which a repair has removed the doubled ones since, nor those
    that the sink says it wrote beyond what it was given: a retried stage may have been counted twice.
    """
    code, _ = doubled(witnesses)
    ledger = counts.covered.slice
    for entry, counted in counts.counted.items() if code not in findings else ():
        if counted.surplus:
            head = ledger.heads[entry]
            gone = max(-counted.lost, 0) + _removed_since(entry, counts, witnesses) if rows_tell else 0
            if counted.surplus <= gone:
                continue
            findings.add(
                code,
                f"{named(head)} wrote {plural(counted.surplus, 'row')} more than it read offsets, and no transform "
                "makes rows: some are doubled",
                head=head,
            )


def _removed_since(entry: int, counts: Counts, witnesses: Witnesses) -> int:
    """How many rows the repairs behind an entry have removed that looked at offsets which it read."""
    ledger, removed = counts.covered.slice, 0
    history = history_of(witnesses, ledger)
    mine = by_partition(ledger.ranges.of(entry))
    for i in range(entry + 1, len(ledger.heads)):
        head = ledger.heads[i]
        undone = history is not None and head.sink_version is not None and not history.stands(head.sink_version)
        if not head.is_removal or undone:
            continue
        looked_at = by_partition(ledger.ranges.of(i)).items()
        if any(spans.intersect(mine.get(where, Spans())) for where, spans in looked_at):
            removed += (head.rows_removed or 0) - (head.rows_written or 0)
    return removed


def judge_repeated_rows(counts: Counts, witnesses: Witnesses, findings: Findings) -> None:
    """Adds a finding for rows that share a source offset, more than at the last audit, as a database counts them.

    Where its rows are read, the search among all of them tells which these are. So it must where another pipeline
    writes other offsets of the topic, which may have several rows each by its own recon.yml.
    """
    code, _ = doubled(witnesses)
    repeated, log = rows_repeated(witnesses), witnesses.sink_record
    if not repeated or log is None or code in findings:
        return
    theirs, mine = _read_by(commit.stamp for commit in of_others(witnesses)), _ever_read(counts, witnesses)
    if theirs and not any(spans.intersect(mine.get(where, Spans())) for where, spans in theirs.items()):
        return
    proof = witnesses.proof
    counted = proof is not None and witnesses.memory(TableJudged) is not None
    since = f" since the audit of {proof.at:%Y-%m-%d %H:%M:%S}Z" if proof is not None and counted else ""
    are = "is" if repeated == 1 else "are"
    findings.add(
        code,
        f"{log.location} has {count_said(witnesses)}: {plural(repeated, 'row')} {are} doubled{since}; where the "
        f"transform makes several rows of one record, say so in recon.yml: rows: {{explodes: true}}",
        about=f"{repeated} rows{since} {digest(witnesses)}",
        rows=repeated,
    )


def judge_present(sink: SinkRows) -> None:
    """Adds findings for rows that should not be there."""
    judge_aborted(sink.counts, sink.witnesses, sink.findings, sink.present)
    _judge_duplicates(sink)
    _judge_repeated(sink)
    _judge_removals(sink)
    _judge_unstamped(sink)


# -- doubled rows ------------------------------------------------------------------------------------------------------


def _judge_duplicates(sink: SinkRows) -> None:
    for where, groups in sorted(sink.groups.items()):
        stretches = sink.counts.judged.get(where)
        if stretches is None:
            continue
        incarnations = stretches.incarnations
        for group in groups:
            _judge_group(sink, where, stretches, group)
        in_groups = sum(group.present.size for group in groups)
        if in_groups <= sink.present[where].size or _may_repeat(sink, stretches):
            continue
        deep = list(depths(span for group in groups for span in group.present))
        several = Spans.of(span for span, depth in deep if depth > 1)
        not_of_each = several.minus(_recurring(sink.counts, stretches.keys)) if incarnations > 1 else Spans()
        for depth in sorted({depth for _, depth in deep if depth > 1}):
            at = Spans.of(span for span, found in deep if found == depth)
            at = at if depth > incarnations else at.intersect(not_of_each)
            sink.report(
                doubled(sink.witnesses)[0],
                stretches.pieces(at.intersect(stretches.ranges)),
                f"are in the rows of {depth} micro-batches: remove those of the later ones",
                records=depth == 2 and incarnations == 1,
            )


def _judge_repeated(sink: SinkRows) -> None:
    """Rows that others added of records which the sink has already; of other periods' records as well."""
    history = sink.history
    if history is None:
        _judge_repeated_in_record(sink)
        return
    if not sink.rows.repeated:
        return
    adding = [commit for commit in history.others if commit.rows_added != 0]
    by, of_releases = some(_made_by(commit) for commit in adding), releases(sink.witnesses)
    alone = bool(of_releases) and not adding
    who = [f"another program added rows ({by or 'in commits that the log no longer has'})"] if not alone else []
    who += [f"{some(named(head) for head in of_releases)} wrote one of them"] if of_releases else []
    repeats, code = _makes_rows(sink), doubled(sink.witnesses)[0]
    asked, known = search(sink.witnesses).offsets, read_of_others(sink.witnesses)
    for group in sink.rows.repeated:
        key, each = Key(0, group.topic, group.partition), group.rows // group.present.size
        seen = asked.get((group.topic, group.partition), Spans())
        told = Spans.of(f.span for f in sink.findings.items if f.code is code and f.span and _is_at(f, key[1:]))
        # What several micro-batches wrote, and no other program, is told of these.
        of_readings = _read_at_least(sink, key[1:], each).intersect(told).intersect(seen)
        if alone:
            of_readings = of_readings.union(told.minus(seen))
        for span, topics in _without(_with_topics(sink, group), of_readings):
            what, then = f"{key}: {offsets(*span)} have {each:,} rows each", "remove its rows"
            if Spans((span,)).minus(seen):
                what += f", and {', or '.join(who)}"
                then = then if not of_releases else "remove all but one"
            elif not Spans((span,)).minus(known.get(key[1:], Spans())):
                what += ", and another program added rows (as an earlier audit saw)"
            else:
                what, then = f"{what}, and an earlier audit found them doubled", "remove all but one"
            if repeats or 1 < topics >= each:
                why = "the query makes several rows of one record" if repeats else "the topic was re-created"
                unknown = f"{what}; whether they are doubled is not known, since {why}"
                sink.findings.add(Code.INCONCLUSIVE, unknown, key=key, span=span)
            else:
                many = Span(*span).size * (each - topics) if topics < each else None
                sink.findings.add(code, f"{what}: {then}", about=_rows_each(each), key=key, span=span, rows=many)
    _judge_other_pipelines(sink, (commit.stamp for commit in history.others if commit.stamp is not None))


def _judge_repeated_in_record(sink: SinkRows) -> None:
    """Offsets with several rows in a sink without versions, but for those that were reported by micro-batch."""
    theirs = of_others(sink.witnesses)
    read, mine = _read_by(commit.stamp for commit in theirs), _ever_read(sink.counts, sink.witnesses)
    known = {topic for topic, _ in mine}
    code, _ = doubled(sink.witnesses)
    repeats = may_repeat(sink.witnesses)
    for group in sink.rows.repeated:
        where, each = (group.topic, group.partition), group.rows // group.present.size
        if group.topic not in known:
            continue
        key, of_others_alone = Key(0, *where), read.get(where, Spans()).minus(mine.get(where, Spans()))
        told = Spans.of(f.span for f in sink.findings.items if f.code is code and f.span and _is_at(f, where))
        for span, topics in _with_topics(sink, group):
            if repeats or 1 < topics >= each:
                for both in Spans.of([span]).intersect(read.get(where, Spans())):
                    unknown = (
                        f"{key}: {offsets(*both)} have {each:,} rows each, and another pipeline read them, too; "
                        "whether they are doubled is not known, since the query may write several rows of one offset"
                    )
                    sink.findings.add(Code.INCONCLUSIVE, unknown, key=key, span=both)
                continue
            left = Spans.of([span]).minus(told).minus(of_others_alone)
            stretches = sink.counts.judged.get(where)
            judged = left.intersect(stretches.ranges) if stretches is not None else Spans()
            what = f"have {each:,} rows each: remove all but one"
            if stretches is not None:
                sink.report(code, stretches.pieces(judged), what, records=each == 2, about=_rows_each(each))
            for one in left.minus(judged):
                sink.findings.add(
                    code,
                    f"{key}: {offsets(*one)} {what}",
                    about=_rows_each(each),
                    key=key,
                    span=one,
                    rows=one.size * (each - 1),
                )
    _judge_other_pipelines(sink, (commit.stamp for commit in theirs))


def _read_at_least(sink: SinkRows, where: TopicPartition, times: int) -> Spans:
    """The offsets that so many judged entries or more read."""
    stretches = sink.counts.judged.get(where)
    read = stretches.readings(stretches.ranges) if stretches is not None else ()
    deep = depths(Span(piece.start, piece.end) for piece in read if sink.ledger.heads[piece.entry].reads)
    return Spans.of(span for span, depth in deep if depth >= times)


def _without(found: Iterable[tuple[Span, int]], spans: Spans) -> Iterator[tuple[Span, int]]:
    for span, topics in found:
        yield from ((left, topics) for left in Spans((span,)).minus(spans))


def _is_at(finding: Finding, where: TopicPartition) -> bool:
    return (finding.topic, finding.partition) == where


def _with_topics(sink: SinkRows, group: RowGroup) -> Iterator[tuple[Span, int]]:
    """The offsets of a group, and of how many topics of its name they were read; rows carry no topic id.

    Where there is one topic, it is 1, whatever is known of the offsets; where there are several, offsets of which no
    entry is known may be of each.
    """
    read: dict[str | None, list[Span]] = {}
    where = (group.topic, group.partition)
    for key, incarnations in sink.counts.covered.incarnations.items():
        for incarnation in incarnations if (key.topic, key.partition) == where else ():
            read.setdefault(incarnation.topic_id, []).extend(incarnation.walked.covered)
    proof = sink.witnesses.proof
    for covered in proof.coverage if proof is not None else ():
        if (covered.topic, covered.partition) == where:
            read.setdefault(covered.topic_id, []).extend(Spans.of(covered.ranges))
    if len(read) < 2:
        yield from ((span, 1) for span in group.present)
        return
    of_topics = [span for spans in read.values() for span in Spans.of(spans).intersect(group.present)]
    yield from depths(of_topics)
    yield from ((span, len(read)) for span in group.present.minus(Spans.of(of_topics)))


def _makes_rows(sink: SinkRows) -> bool:
    """Whether the query makes several rows of one record, as far as entries show: a transform does, or a join."""
    counts, heads = sink.counts, sink.ledger.heads
    return (
        any(counted.explodes for counted in counts.counted.values())
        or any(head.makes_rows for head in heads)
        or any(counts.operators.makes_rows(head) for head in heads)
    )


def _judge_other_pipelines(sink: SinkRows, stamps: Iterable[ReconStamp]) -> None:
    """Offsets with several rows that another pipeline of recon's read as well."""
    repeated: dict[TopicPartition, Spans] = {}
    for group in sink.rows.repeated:
        where = (group.topic, group.partition)
        repeated[where] = repeated.get(where, Spans()).union(group.present)
    mine = _ever_read(sink.counts, sink.witnesses)
    by_sink: dict[tuple[str, str], list[ReconStamp]] = {}
    for stamp in stamps:
        by_sink.setdefault((stamp.pipeline, stamp.sink), []).append(stamp)
    for (pipeline, name), theirs in sorted(by_sink.items()):
        for where, spans in sorted(_read_by(theirs).items()):
            both = spans.intersect(mine.get(where, Spans()))
            for span in both.intersect(repeated.get(where, Spans())):
                key = Key(0, *where)
                sink.findings.add(
                    Code.OVERLAP,
                    f"{key}: {offsets(*span)} were read by pipeline {pipeline}, sink {name} as well, which writes into "
                    f"{sink.rows.location} too: let one pipeline write this topic",
                    key=key,
                    span=span,
                )


def _read_by(stamps: Iterable[ReconStamp]) -> dict[TopicPartition, Spans]:
    """The offsets that writes with these stamps read."""
    return by_partition(span for stamp in stamps for span in parse_offsets(stamp.offsets_text))


def _made_by(commit: DeltaCommit) -> str:
    """A commit and who made it, in a list."""
    stamp = commit.stamp
    return f"version {commit.version}, {commit.operation if stamp is None else f'pipeline {stamp.pipeline}'}"


def _may_repeat(sink: SinkRows, stretches: ReadStretches) -> bool:
    """Whether a record may be in the rows of several micro-batches: a join gives it again with each partner."""
    entries = {piece.entry for piece in stretches.pieces(stretches.ranges)}
    return any(sink.counts.operators.makes_rows(sink.ledger.heads[entry]) for entry in entries)


def _judge_group(sink: SinkRows, where: TopicPartition, stretches: ReadStretches, group: RowGroup) -> None:
    """Rows of one batch_id that share an offset; two epochs may hide behind one batch_id."""
    surplus = group.surplus
    if surplus <= 0:
        return
    mine = group.present.intersect(stretches.ranges)
    pieces, exactly = list(stretches.pieces(mine)), group.twice.intersect(mine)
    if group.twice.size == surplus:  # other audits judged those of other ranges
        surplus = exactly.size
    if not pieces or not surplus or _made_several(sink, pieces):
        return
    heads = [sink.ledger.heads[piece.entry] for piece in pieces]
    if rewrites(sink.witnesses) and any((h.epoch, h.batch_id) not in sink.counts.given for h in heads):
        unknown = "have rows that share an offset, and whether a transform made several of one record is not known"
        sink.report(Code.INCONCLUSIVE, pieces[:1], unknown)
        return
    if stretches.incarnations > 1:
        shared = "lie in a topic that was re-created, and rows share their offsets"
        sink.report(Code.INCONCLUSIVE, pieces[:1], shared, undecidable=True)
        return
    before = group.batch_id == WITHOUT_NUMBER and _wrote_before(sink)
    code, _ = doubled(sink.witnesses)
    # Rows of two micro-batches fall into one group where both have this batch_id: two epochs count from 0 each.
    readings = [
        piece
        for piece, head in ((piece, sink.ledger.heads[piece.entry]) for piece in stretches.readings(mine))
        if head.is_micro_batch and group.batch_id in (head.batch_id, WITHOUT_NUMBER)
    ]
    twice = Spans.of(span for span, depth in depths(Span(p.start, p.end) for p in readings) if depth > 1)
    if twice.size == surplus:
        sink.report(
            code,
            stretches.pieces(twice),
            "have two rows each: remove those of the later attempt",
            records=True,
            about=_rows_each(2),
        )
        return
    if before:
        unknown = "share their offsets with other rows, which the query may have written before recon observed it"
        sink.report(Code.INCONCLUSIVE, pieces[:1], unknown)
        return
    if not _counted_as_made(sink, pieces) and _is_told_by_offset(sink, where, mine, surplus):
        return
    declare = ""
    if _counted_as_made(sink, pieces):
        declare = "; where the transform makes several rows of one record, say so in recon.yml: rows: {explodes: true}"
    if exactly.size == surplus and len(exactly.ranges) <= _NAMED:
        what = f"have two rows each: remove one of them{declare}"
        sink.report(code, stretches.pieces(exactly), what, records=True, about=_rows_each(2))
        return
    key, span = Key(0, *where), (min(piece.start for piece in pieces), max(piece.end for piece in pieces))
    sink.findings.add(
        code,
        f"{key}: {offsets(*span)} of {named(heads[0])} have {plural(surplus, 'row')} too many: rows share an offset"
        f"{declare}",
        about=f"{surplus} rows too many, {_digest(group)}",
        head=heads[0],
        key=key,
        span=span,
        rows=surplus,
    )


def _rows_each(each: int) -> str:
    """How many rows share an offset: of a part of the offsets it is the same, and of more rows another finding."""
    return f"{each} rows each"


def _digest(group: RowGroup) -> str:
    """What tells which offsets rows of a group share: who accepts it accepts these."""
    if group.fingerprint is None:
        return ""
    once = of_ranges(OffsetSpan(group.topic, None, group.partition, *span) for span in group.present)
    return f"{(group.fingerprint - once) % PRIME:08x}"


def _is_told_by_offset(sink: SinkRows, where: TopicPartition, mine: Spans, surplus: int) -> bool:
    """Whether the search of the whole sink found which of these offsets have the rows too many."""
    if sink.witnesses.table_log is not None:
        return False
    found = ((g.rows // g.present.size - 1, g) for g in sink.rows.repeated if (g.topic, g.partition) == where)
    return sum(more * g.present.intersect(mine).size for more, g in found) == surplus


def _wrote_before(sink: SinkRows) -> bool:
    """Whether the table had rows of the query before the first entry, perhaps of a topic that was created again."""
    earlier = sink.witnesses.memory(EarlierBatches)
    return earlier is not None or (sink.ledger.complete and bool(sink.ledger.heads[0].sink_version))


def _made_several(sink: SinkRows, pieces: Iterable[Piece]) -> bool:
    """Whether the query lawfully makes several rows of one record: recon.yml declares it, or a join does."""
    if sink.witnesses.declared.explodes:
        return True
    if rewrites(sink.witnesses):  # a row per key: what the transform made of a record has keys of its own
        return _counted_as_made(sink, pieces)
    return any(sink.counts.operators.makes_rows(sink.ledger.heads[piece.entry]) for piece in pieces)


def _counted_as_made(sink: SinkRows, pieces: Iterable[Piece]) -> bool:
    """Whether counts show that the transform made more rows than it read."""
    return any(sink.counts.counted[piece.entry].explodes for piece in pieces)


def _recurring(counts: Counts, keys: Iterable[Key]) -> Spans:
    """Offsets that more than one incarnation of a topic has: two rows with one offset are no duplicates there."""
    recurring = Spans()
    for key in keys:
        before = Spans()
        for incarnation in counts.covered.incarnations[key]:
            covered = incarnation.walked.covered
            recurring = recurring.union(before.intersect(covered))
            before = before.union(covered)
    return recurring


def depths(spans: Iterable[Span]) -> Iterator[tuple[Span, int]]:
    """How many of some ranges hold each offset, where any does."""
    steps: Counter[int] = Counter()
    for start, end in spans:
        steps[start] += 1
        steps[end] -= 1
    depth, before = 0, 0
    for at in sorted(steps):
        if depth:
            yield Span(before, at), depth
        depth, before = depth + steps[at], at


def _judge_removals(sink: SinkRows) -> None:
    """After a repair removed doubled rows, every offset that had a row has one: not two still, and not none."""
    for i in range(sink.ledger.anchors, len(sink.ledger.heads)):
        head = sink.ledger.heads[i]
        if not head.is_removal:
            continue
        held = 0
        for where, spans in by_key((s.source, s.topic, s.partition, *s.span) for s in sink.ledger.ranges.of(i)).items():
            every = [span for group in sink.groups.get((where.topic, where.partition), ()) for span in group.present]
            held += spans.intersect(sink.present.get((where.topic, where.partition), Spans())).size
            twice = Spans.of(span for span, depth in depths(every) if depth > 1).intersect(spans)
            for span in twice:
                left = f"{where}: {offsets(*span)} have more rows than one, though {named(head)} removed such"
                sink.findings.add(doubled(sink.witnesses)[0], left, head=head, key=where, span=span)
        if head.rows_read is None:
            sink.findings.add(
                Code.INCONCLUSIVE, f"{named(head)} does not say how many offsets had a row before", head=head
            )
        elif held < head.rows_read:
            lost = plural(head.rows_read - held, "offset")
            sink.findings.add(Code.GAP, f"{lost} of {named(head)} had rows before it, and have none now", head=head)


# -- rows that no entry accounts for -----------------------------------------------------------------------------------


def _judge_unstamped(sink: SinkRows) -> None:
    """Rows of other programs; offsets are compared only when the whole ledger, up to now, is known."""
    if sink.rows.unstamped_rows > _observed_rows(sink):
        count = sink.rows.unstamped_rows
        without = f"{plural(count, 'row')} of {sink.rows.location} {'has' if count == 1 else 'have'} no _batch_id"
        first = _all_before(sink)
        if first is None:
            sink.findings.add(Code.UNSTAMPED, f"{without}: another program wrote them")
        else:
            before = f"the table has them from before recon's first write, version {first}: no verdict speaks of them"
            sink.findings.add(Code.UNWITNESSED, f"{without}: {before}")
    if not sink.ledger.complete or sink.witnesses.period_to < sink.witnesses.now:
        return
    accounted = _accounted_for(sink.counts, sink.witnesses)
    bounded = not rows_are_no_newer(sink)
    for where, present in sorted(sink.present.items()):
        in_ledger, key = accounted.get(where, Spans()), Key(0, *where)
        strays = present.minus(in_ledger)
        if sink.witnesses.observed:
            strays = _since_observed(sink, strays, in_ledger)
        if bounded:
            strays = strays.intersect(Spans.of([(0, in_ledger.hull.end if in_ledger.hull is not None else 0)]))
        hull = strays.hull
        if hull is not None:
            sink.findings.add(
                Code.UNSTAMPED,
                f"{key}: rows carry {plural(strays.size, 'offset')} within {offsets(*hull)} that no ledger entry "
                "accounts for: another program wrote them, or an entry is missing",
                key=key,
                span=hull,
            )


def _observed_rows(sink: SinkRows) -> int:
    """The rows that were written before recon wrote the table, and observed; they have no _batch_id."""
    if sink.witnesses.observed:
        return 0
    return sum(head.rows_written or 0 for head in sink.ledger.heads if head.is_observed)


def _all_before(sink: SinkRows) -> int | None:
    """The version of the first entry, where the table has rows from before and nobody but recon added any since.

    None where others did, or the log does not show every commit since.
    """
    log = sink.witnesses.table_log
    if log is None or not sink.ledger.complete or not sink.ledger.heads or log.last is None:
        return None
    first = sink.ledger.heads[0].sink_version
    if not first or any(version not in log.commits for version in range(first, log.last + 1)):
        return None
    since = (commit for version, commit in log.commits.items() if version > first)
    return None if any(commit.stamp is None and commit.adds_rows for commit in since) else first


def _ever_read(counts: Counts, witnesses: Witnesses) -> dict[TopicPartition, Spans]:
    """The offsets that the sink accounts for, of earlier periods too, as far as they are known."""
    read, proof = _accounted_for(counts, witnesses), witnesses.proof
    for covered in proof.coverage if proof is not None else ():
        where = (covered.topic, covered.partition)
        read[where] = read.get(where, Spans()).union(Spans.of(covered.ranges))
    return read


def _since_observed(sink: SinkRows, strays: Spans, in_ledger: Spans) -> Spans:
    """Those of some offsets that lie behind what recon first saw of a partition; none where it did not see everything.

    The query wrote before, and rows of a micro-batch whose plan nobody saw are in no entry either.
    """
    log = sink.witnesses.table_log
    if in_ledger.hull is None or (log is not None and log.unstamped):
        return Spans()
    return strays.minus(Spans.of([(0, in_ledger.hull.start)]))


def _accounted_for(counts: Counts, witnesses: Witnesses) -> dict[TopicPartition, Spans]:
    """The offsets of ledger entries, and of stamped commits that still lack an entry."""
    spans: dict[TopicPartition, list[Span]] = {}
    for key, incarnations in counts.covered.incarnations.items():
        for incarnation in incarnations:
            spans.setdefault((key.topic, key.partition), []).extend(incarnation.walked.covered)
    ledger = counts.covered.slice
    entered = {(head.epoch, head.batch_id) for head in ledger.heads}
    history = history_of(witnesses, ledger)
    for _, stamp in history.own if history is not None else ():
        for read in parse_offsets(stamp.offsets_text) if (stamp.epoch, stamp.batch_id) not in entered else ():
            if read.span.size > 0:
                spans.setdefault((read.topic, read.partition), []).append(read.span)
    return {where: Spans.of(mine) for where, mine in spans.items()}
