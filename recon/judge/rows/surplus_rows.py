"""Rows that should not be there: of aborted transactions, doubled, or accounted for by no ledger entry."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

from typing_extensions import override

from recon.base.text import plural, some
from recon.judge.coverage import Key, by_key, by_partition
from recon.judge.findings import Findings, offsets
from recon.judge.history.record_history import RecordHistory, TableJudged
from recon.judge.history.table_history import TableHistory, history_of
from recon.judge.row_counts import Counts, Piece, ReadStretches
from recon.judge.rows.sink_rows import SinkRows, TopicPartition, present, spans_told
from recon.judge.rows.sink_rows import by_partition as groups_by_partition
from recon.judge.rows.transactions import judge_aborted
from recon.model import WITHOUT_NUMBER, Code, LedgerSlice, ReconStamp, RowGroup, TableCommit, parse_offsets
from recon.model.fingerprint import PRIME, of_ranges
from recon.model.grouping import spans_by, united
from recon.model.ledger import named
from recon.model.memory import SinkAudit, SinkMemory
from recon.model.offsets import OffsetSpan, Span, Spans, depths, held_by
from recon.model.proof import SinkProof, memory_of

_EXPLODES = "where the transform makes several rows of one record, say so in recon.yml: rows: {explodes: true}"
_NAMED = 5  # ranges of doubled offsets of a micro-batch that are findings of their own; more are one finding


@dataclass(frozen=True, kw_only=True)
class EarlierBatches(SinkMemory):
    """That micro-batches ran before the first one that the proof speaks of.

    `wrote_rows` is whether they may have left rows in the table which the first audit did not compare.
    """

    name: ClassVar[str] = "earlier_batches"
    format: ClassVar[int] = 2
    wrote_rows: bool

    @override
    @classmethod
    def after(cls, before: Self | None, audit: SinkAudit) -> Self | None:
        known = before if audit.before is not None and audit.before.position else None
        told = any(f.code is Code.UNWITNESSED for r in audit.results for f in r.findings)
        if known is not None or not told:
            return known
        return cls(wrote_rows=_ran_before(audit.ledger, history_of(audit.witnesses, audit.ledger)))

    @override
    @classmethod
    def upgraded(cls, fields: Any, version: int) -> Any:
        return {"wrote_rows": True}  # the first version compared none


def judge_surplus(counts: Counts, code: Code, findings: Findings) -> None:
    """Adds a finding for each micro-batch that wrote more rows than it read offsets, though no transform makes rows.

    It is for an audit that did not look at all rows of the sink. Rows that were found doubled one by one are not
    counted once more. `code` is that of doubled rows.
    """
    for entry, counted in counts.counted.items() if code not in findings else ():
        if counted.surplus:
            head = counts.ledger.heads[entry]
            more = f"wrote {plural(counted.surplus, 'row')} more than it read offsets, and no transform makes rows"
            findings.add(code, f"{named(head)} {more}: some are doubled", head=head)


def judge_repeated_rows(
    counts: Counts, record: RecordHistory | None, proof: SinkProof | None, code: Code, findings: Findings
) -> None:
    """Adds a finding for rows that share a source offset, more than at the last audit, as a database counts them.

    Where its rows are read, the search among all of them tells which these are. So it must where another pipeline
    writes other offsets of the topic, which may have several rows each by its own recon.yml. `code` is that of doubled
    rows.
    """
    if record is None or not record.repeated_since or code in findings:
        return
    stamps = [commit.stamp for commit in record.of_others]
    theirs, mine = _read_by(stamps), _ever_read(_accounted_for(counts, None), proof)
    if theirs and not any(spans.intersect(mine.get(where, Spans())) for where, spans in theirs.items()):
        return
    judged = proof if memory_of(proof, TableJudged) is not None else None
    since = f" since the audit of {judged.at:%Y-%m-%d %H:%M:%S}Z" if judged is not None else ""
    said = f"{record.location} has {record.count_said}: {plural(record.repeated_since, 'row')} doubled{since}"
    about = f"{record.repeated_since} rows{since} {record.digest}"
    findings.add(code, f"{said}; {_EXPLODES}", about=about, rows=record.repeated_since)


def judge_present(sink: SinkRows) -> None:
    """Adds findings for rows that should not be there."""
    judge_aborted(sink.counts, sink.source, sink.proof, sink.findings, sink.present)
    for where, groups in sorted(sink.groups.items()):
        stretches = sink.counts.judged.get(where)
        if stretches is not None:
            for group in groups:
                if group.surplus > 0:
                    _SharedOffsets(sink, where, stretches, group).judge()
            _judge_several(sink, where, stretches, groups)
    if sink.rows.repeated:
        _judge_searched(sink)
    _judge_removals(sink)
    _judge_without_number(sink)
    _judge_strays(sink)


# -- doubled rows of micro-batches -------------------------------------------------------------------------------------


def _judge_several(sink: SinkRows, where: TopicPartition, stretches: ReadStretches, groups: Sequence[RowGroup]) -> None:
    """Offsets in the rows of several micro-batches."""
    in_groups = sum(group.present.size for group in groups)
    if in_groups <= sink.present[where].size or _made_by_join(sink, stretches.pieces(stretches.ranges)):
        return
    deep: defaultdict[int, list[Span]] = defaultdict(list)
    for span, depth in depths(span for group in groups for span in group.present):
        deep[depth].append(span)
    for depth in sorted(deep.keys() - {1}):
        at = Spans.of(deep[depth])
        if depth <= stretches.incarnations:
            at = at.minus(_recurring(sink.counts, stretches.keys))
        sink.report(
            sink.doubled,
            stretches.pieces(at.intersect(stretches.ranges)),
            f"are in the rows of {depth} micro-batches: remove those of the later ones",
            records=depth == 2 and stretches.incarnations == 1,
        )


def _recurring(counts: Counts, keys: Iterable[Key]) -> Spans:
    """Offsets that more than one incarnation of a topic has: two rows with one offset are no duplicates there."""
    each = (held_by(2, (s for i in counts.covered.incarnations[key] for s in i.walked.covered)) for key in keys)
    return Spans.of(span for spans in each for span in spans)


@dataclass(frozen=True)
class _SharedOffsets:
    """Rows of one batch_id that share an offset; two epochs may hide behind one batch_id."""

    sink: SinkRows
    where: TopicPartition
    stretches: ReadStretches
    group: RowGroup

    @cached_property
    def mine(self) -> Spans:
        """The offsets that this audit judges."""
        return self.group.present.intersect(self.stretches.ranges)

    @cached_property
    def twice(self) -> Spans:
        """Those that have two rows, as far as the reader of the rows could tell."""
        return self.group.twice.intersect(self.mine)

    @property
    def surplus(self) -> int:
        """How many rows there are too many; where it is known of which offsets, other audits judge those of others."""
        return self.twice.size if self.group.twice.size == self.group.surplus else self.group.surplus

    @cached_property
    def pieces(self) -> Sequence[Piece]:
        """What the entries read of them."""
        return list(self.stretches.pieces(self.mine))

    @cached_property
    def read_twice(self) -> Spans:
        """What several micro-batches with its batch_id read: each of two epochs counts from 0."""
        readings, number = [], self.group.batch_id
        for piece in self.stretches.readings(self.mine):
            head = self.sink.ledger.heads[piece.entry]
            if head.is_micro_batch and number in (head.batch_id, WITHOUT_NUMBER):
                readings.append(Span(piece.start, piece.end))
        return held_by(2, readings)

    @property
    def declare(self) -> str:
        """What to do if the rows are lawful, where counts show that the transform made more rows than it read."""
        made = any(self.sink.counts.counted[piece.entry].explodes for piece in self.pieces)
        return f"; {_EXPLODES}" if made else ""

    def judge(self) -> None:
        """Adds a finding of each doubled offset, or of all rows that are too many."""
        if self.surplus <= 0 or not self.pieces or self._is_lawful:
            return
        if unknown := self._why_unknown():
            self.sink.report(Code.INCONCLUSIVE, self.pieces[:1], unknown, undecidable=self.stretches.incarnations > 1)
        elif self.read_twice.size == self.surplus:
            self._report(self.read_twice)
        elif self.declare or not self._is_searched:
            few = self.twice.size == self.surplus and len(self.twice.ranges) <= _NAMED
            self._report(self.twice if few else Spans())

    @property
    def _is_lawful(self) -> bool:
        """Whether the query makes several rows of one record: recon.yml declares it, or a join does."""
        if self.sink.writing.declared.explodes:
            return True
        if self.sink.writing.rewrites:  # a row per key: what the transform made of a record has keys of its own
            return bool(self.declare)
        return _made_by_join(self.sink, self.pieces)

    def _why_unknown(self) -> str:
        """Why it is not known whether the rows are doubled; "" where it is."""
        heads = [self.sink.ledger.heads[piece.entry] for piece in self.pieces]
        numbers = {(head.epoch, head.batch_id) for head in heads}
        if self.sink.writing.rewrites and not numbers <= self.sink.counts.given.keys():
            return "have rows that share an offset, and whether a transform made several of one record is not known"
        if self.stretches.incarnations > 1:
            return "are of one of several topics of the name, and rows share their offsets"
        if self.group.batch_id == WITHOUT_NUMBER and self.read_twice.size != self.surplus and _wrote_before(self.sink):
            return "share their offsets with other rows, which the query may have written before recon observed it"
        return ""

    @property
    def _is_searched(self) -> bool:
        """Whether the search of a whole sink without history found which of the offsets have the rows too many."""
        found = [group for group in self.sink.rows.repeated if (group.topic, group.partition) == self.where]
        more = sum((g.rows // g.present.size - 1) * g.present.intersect(self.mine).size for g in found)
        return self.sink.table is None and more == self.surplus

    def _report(self, each: Spans) -> None:
        """Adds a finding of each of these offsets, of two rows each; one of all rows too many where there are none."""
        code, pieces, surplus = self.sink.doubled, self.pieces, self.surplus
        if each:
            what = f"have two rows each: remove one of them{self.declare}"
            self.sink.report(code, self.stretches.pieces(each), what, records=True, about=_rows_each(2))
            return
        key, head = Key(0, *self.where), self.sink.ledger.heads[pieces[0].entry]
        span = (min(piece.start for piece in pieces), max(piece.end for piece in pieces))
        more = f"{plural(surplus, 'row')} too many: rows share an offset{self.declare}"
        message = f"{key}: {offsets(*span)} of {named(head)} have {more}"
        about = f"{surplus} rows too many, {_digest(self.group)}"
        self.sink.findings.add(code, message, about=about, head=head, key=key, span=span, rows=surplus)


def _rows_each(each: int) -> str:
    """How many rows share an offset: of a part of the offsets it is the same, and of more rows another finding."""
    return f"{each} rows each"


def _digest(group: RowGroup) -> str:
    """What tells which offsets rows of a group share: who accepts it accepts these."""
    if group.fingerprint is None:
        return ""
    once = of_ranges(OffsetSpan(group.topic, None, group.partition, *span) for span in group.present)
    return f"{(group.fingerprint - once) % PRIME:08x}"


def _wrote_before(sink: SinkRows) -> bool:
    """Whether the table had rows of the query before the first entry, perhaps of a topic that was created again."""
    earlier = memory_of(sink.proof, EarlierBatches)
    return (earlier is not None and earlier.wrote_rows) or _ran_before(sink.ledger, sink.table)


def _ran_before(ledger: LedgerSlice, table: TableHistory | None) -> bool:
    """Whether micro-batches of the query, as far as is known, wrote rows before the ledger's first entry.

    Rows of another query, whose checkpoint is lost, are compared as those of any other program.
    """
    first = ledger.heads[0].sink_version if ledger.complete and ledger.heads else None
    if not first:
        return False
    return table is None or not table.shows_all_before(first) or min(table.log.unstamped, default=first) < first


def _made_by_join(sink: SinkRows, pieces: Iterable[Piece]) -> bool:
    """Whether stateful operators make rows: a join gives a record again with each partner, in several micro-batches."""
    return any(sink.counts.operators.makes_rows(sink.ledger.heads[entry]) for entry in {p.entry for p in pieces})


# -- doubled rows of whomever ------------------------------------------------------------------------------------------


def _judge_searched(sink: SinkRows) -> None:
    """Offsets that several rows were found to have, others' among them, but for those that are told by micro-batch.

    A table with history is searched for rows that others added, of other periods' records as well; of any other sink
    the search is among all rows.
    """
    table, repeats = sink.table, _makes_rows(sink)
    mine = _ever_read(_accounted_for(sink.counts, table), sink.proof)
    stamps = _stamps_of_others(sink)
    theirs = _read_by(stamps)
    topics_of_ours = {topic for topic, _ in mine}
    # Of a sink without history, rows of topics that it reads.
    for group in (group for group in sink.rows.repeated if table is not None or group.topic in topics_of_ours):
        where, each = (group.topic, group.partition), group.rows // group.present.size
        read, topics = theirs.get(where, Spans()), _topics_read(sink, where)
        if repeats or 1 < topics >= each:
            _report_unknown(sink, group, group.present if table is not None else group.present.intersect(read))
        elif table is not None:
            _report_foreign(sink, group, topics, table)
        else:
            own = group.present.minus(read.minus(mine.get(where, Spans()))).minus(_told(sink, where))
            _report_doubled(sink, group, own, topics)
    _judge_other_pipelines(sink, stamps, mine)


def _stamps_of_others(sink: SinkRows) -> Sequence[ReconStamp]:
    """Of the writes of other pipelines of recon's into the sink."""
    if sink.table is not None:
        return [commit.stamp for commit in sink.table.others if commit.stamp is not None]
    commits = sink.record.of_others if sink.record is not None else ()
    return [commit.stamp for commit in commits]


def _report_unknown(sink: SinkRows, group: RowGroup, spans: Spans) -> None:
    key, each = Key(0, group.topic, group.partition), group.rows // group.present.size
    why = (
        "whether they are doubled is not known: the query makes several rows of a record, or several topics of the "
        "name were read"
    )
    for span in spans:
        message = f"{key}: {offsets(*span)} have {each:,} rows each, and others write, too; {why}"
        sink.findings.add(Code.INCONCLUSIVE, message, key=key, span=span)


def _report_doubled(sink: SinkRows, group: RowGroup, spans: Spans, topics: int, added: str = "") -> None:
    """Offsets of a group that several rows have; in a sink without history, micro-batches are named that are judged."""
    where, each, code = (group.topic, group.partition), group.rows // group.present.size, sink.doubled
    key, about = Key(0, *where), _rows_each(each)
    what, judged = f"have {each:,} rows each{added}: remove all but one", Spans()
    if sink.table is None and (stretches := sink.counts.judged.get(where)) is not None:
        judged = spans.intersect(stretches.ranges)
        sink.report(code, stretches.pieces(judged), what, records=each == 2, about=about)
    for span in spans.minus(judged):
        message, rows = f"{key}: {offsets(*span)} {what}", span.size * (each - topics)
        sink.findings.add(code, message, about=about, key=key, span=span, rows=rows)


def _report_foreign(sink: SinkRows, group: RowGroup, topics: int, history: TableHistory) -> None:
    """Rows of a table with history; of each of so many topics of a name a record has one lawfully."""
    where, released = (group.topic, group.partition), sink.released
    adding = [commit for commit in history.others if commit.rows_added != 0]
    by = some([*map(_made_by, adding), *map(named, released)])
    added = f", and rows were added by {by}" if by else ", and an earlier audit saw rows of others, or doubled ones"
    told, seen = _told(sink, where), sink.sought.offsets.get(where, Spans())
    # What several micro-batches wrote, and no other program, is told of these.
    left = group.present.minus(told.intersect(seen).intersect(_read_at_least(sink, group)))
    _report_doubled(sink, group, left.minus(told.minus(seen)) if released and not adding else left, topics, added)


def _read_at_least(sink: SinkRows, group: RowGroup) -> Spans:
    """The offsets that as many judged entries read as each offset of a group has rows, or more."""
    stretches = sink.counts.judged.get((group.topic, group.partition))
    read = stretches.readings(stretches.ranges) if stretches is not None else ()
    spans = (Span(piece.start, piece.end) for piece in read if sink.ledger.heads[piece.entry].reads)
    return held_by(group.rows // group.present.size, spans)


def _told(sink: SinkRows, where: TopicPartition) -> Spans:
    """The offsets that findings tell to be doubled."""
    return spans_told(sink.findings, where, lambda found: found.code is sink.doubled)


def _topics_read(sink: SinkRows, where: TopicPartition) -> int:
    """How many topics of one name were read of a partition, at least 1; rows carry no topic id."""
    of_slice = (of for key, of in sink.counts.covered.incarnations.items() if (key.topic, key.partition) == where)
    read = {incarnation.topic_id for incarnations in of_slice for incarnation in incarnations}
    earlier = sink.proof.coverage if sink.proof is not None else ()
    return max(len(read.union(of.topic_id for of in earlier if (of.topic, of.partition) == where)), 1)


def _makes_rows(sink: SinkRows) -> bool:
    """Whether the query makes several rows of one record, as far as is known: a transform does, or a join."""
    if sink.table is None:
        return sink.record is None or sink.record.may_repeat
    counts, heads = sink.counts, sink.ledger.heads
    return any(counted.explodes for counted in counts.counted.values()) or any(
        head.makes_rows or counts.operators.makes_rows(head) for head in heads
    )


def _judge_other_pipelines(sink: SinkRows, stamps: Sequence[ReconStamp], mine: dict[TopicPartition, Spans]) -> None:
    """Offsets with several rows that another pipeline of recon's read as well."""
    repeated = present(groups_by_partition(sink.rows.repeated))
    for pipeline, name in sorted({(stamp.pipeline, stamp.sink) for stamp in stamps}):
        theirs = _read_by(stamp for stamp in stamps if stamp.is_of(pipeline, name))
        for where, spans in sorted(theirs.items()):
            key, both = Key(0, *where), spans.intersect(mine.get(where, Spans()))
            for span in both.intersect(repeated.get(where, Spans())):
                message = (
                    f"{key}: {offsets(*span)} were read by pipeline {pipeline}, sink {name} as well, which writes into "
                    f"{sink.rows.location} too: let one pipeline write this topic"
                )
                sink.findings.add(Code.OVERLAP, message, key=key, span=span)


def _read_by(stamps: Iterable[ReconStamp]) -> dict[TopicPartition, Spans]:
    """The offsets that writes with these stamps read."""
    return by_partition(span for stamp in stamps for span in parse_offsets(stamp.offsets_text))


def _made_by(commit: TableCommit) -> str:
    """A commit and who made it, in a list."""
    stamp = commit.stamp
    return f"version {commit.version}, {commit.operation if stamp is None else f'pipeline {stamp.pipeline}'}"


def _judge_removals(sink: SinkRows) -> None:
    """After a repair removed doubled rows, every offset that had a row has one: not two still, and not none."""
    for entry in range(sink.ledger.anchors, len(sink.ledger.heads)):
        head, held = sink.ledger.heads[entry], 0
        if not head.is_removal:
            continue
        ranges = sink.ledger.ranges.of(entry)
        for key, spans in by_key((s.source, s.topic, s.partition, *s.span) for s in ranges).items():
            every = [span for group in sink.groups.get((key.topic, key.partition), ()) for span in group.present]
            held += spans.intersect(sink.present.get((key.topic, key.partition), Spans())).size
            for span in held_by(2, every).intersect(spans):
                left = f"{key}: {offsets(*span)} have more rows than one, though {named(head)} removed such"
                sink.findings.add(sink.doubled, left, head=head, key=key, span=span)
        if head.rows_read is None:
            unsaid = f"{named(head)} does not say how many offsets had a row before"
            sink.findings.add(Code.INCONCLUSIVE, unsaid, head=head)
        elif held < head.rows_read:
            lost = plural(head.rows_read - held, "offset")
            sink.findings.add(Code.GAP, f"{lost} of {named(head)} had rows before it, and have none now", head=head)


# -- rows that no entry accounts for -----------------------------------------------------------------------------------


def _judge_without_number(sink: SinkRows) -> None:
    """Rows without a `_batch_id`; observed ones were written before recon wrote the table, and have none."""
    if _others_give_no_number(sink):
        return
    observed = sum(head.rows_written or 0 for head in sink.ledger.heads if head.is_observed)
    if sink.rows.unstamped_rows <= (0 if sink.writing.observed else observed):
        return
    count = sink.rows.unstamped_rows
    without = f"{plural(count, 'row')} of {sink.rows.location} {'has' if count == 1 else 'have'} no _batch_id"
    first = _all_before(sink)
    if first is None:
        sink.findings.add(Code.UNSTAMPED, f"{without}: another program wrote them")
    else:
        before = f"the table has them from before recon's first write, version {first}: no verdict speaks of them"
        sink.findings.add(Code.UNWITNESSED, f"{without}: {before}")


def _others_give_no_number(sink: SinkRows) -> bool:
    """Whether rows of other pipelines of recon.yml have none, or lack the columns that this one's query gives rows."""
    others = sink.table.log.other_writers if sink.table is not None else ()
    return any(sink.writing.observed or of.observed for of in others)


def _judge_strays(sink: SinkRows) -> None:
    """Offsets of rows that no entry read; they are compared only when the whole ledger, up to now, is known."""
    if not sink.ledger.complete or sink.time.is_past:
        return
    accounted = _accounted_for(sink.counts, sink.table)
    theirs = _topics_of_others(sink, {topic for topic, _ in accounted})
    for where, spans in sorted(sink.present.items()):
        if where[0] in theirs:
            continue
        key, strays = Key(0, *where), _strays(sink, spans, accounted.get(where, Spans()))
        if (hull := strays.hull) is not None:
            message = (
                f"{key}: rows carry {plural(strays.size, 'offset')} within {offsets(*hull)} that no ledger entry "
                "accounts for: another program wrote them, or an entry is missing"
            )
            sink.findings.add(Code.UNSTAMPED, message, key=key, span=hull)


def _topics_of_others(sink: SinkRows, mine: Collection[str]) -> Collection[str]:
    """Topics that other pipelines of recon's read into the table, and this one does not: these judge the rows."""
    table = sink.table
    if table is None:
        return ()
    read = {topic for of in table.log.other_writers for topic in of.topics or ()}
    stamps = (commit.stamp for commit in table.commits if commit.stamp is not None and not table.is_own(commit))
    read |= {span.topic for stamp in stamps for span in parse_offsets(stamp.offsets_text)}
    return read.difference(mine)


def _strays(sink: SinkRows, spans: Spans, in_ledger: Spans) -> Spans:
    """Those of some offsets that the ledger ought to have, and has not."""
    strays, (first, end) = spans.minus(in_ledger), in_ledger.hull or (0, 0)
    if sink.writing.observed:
        # The query wrote before recon saw it, and rows of a micro-batch whose plan nobody saw are in no entry.
        unseen = not in_ledger or (sink.table is not None and sink.table.log.unstamped)
        strays = Spans() if unseen else strays.minus(Spans.of([(0, first)]))
    return strays if sink.are_no_newer else strays.intersect(Spans.of([(0, end)]))


def _all_before(sink: SinkRows) -> int | None:
    """The version of the first entry, where the table has rows from before and nobody but recon added any since.

    None where others did, or the log does not show every commit since.
    """
    first = sink.ledger.heads[0].sink_version
    if not first or not sink.ledger.complete or sink.table is None:
        return None
    log = sink.table.log
    others = [version for version, commit in log.commits.items() if commit.stamp is None and commit.adds_rows]
    versions = {first, *range(first, (log.last or 0) + 1)}
    return first if versions <= log.commits.keys() and max(others, default=0) <= first else None


def _ever_read(accounted: Mapping[TopicPartition, Spans], proof: SinkProof | None) -> dict[TopicPartition, Spans]:
    """The offsets that the sink accounts for, with those of earlier periods, as far as they are known."""
    earlier = proof.coverage if proof is not None else ()
    return united(accounted, spans_by(((of.topic, of.partition), span) for of in earlier for span in of.ranges))


def _accounted_for(counts: Counts, table: TableHistory | None) -> Mapping[TopicPartition, Spans]:
    """The offsets of ledger entries, and of stamped commits that still lack an entry."""
    spans: defaultdict[TopicPartition, list[Span]] = defaultdict(list)
    for key, incarnations in counts.covered.incarnations.items():
        for incarnation in incarnations:
            spans[key.topic, key.partition].extend(incarnation.walked.covered)
    entered = {(head.epoch, head.batch_id) for head in counts.ledger.heads}
    own = (stamp for _, stamp in table.own) if table is not None else ()
    for where, read in _read_by(stamp for stamp in own if (stamp.epoch, stamp.batch_id) not in entered).items():
        spans[where].extend(read)
    return {where: Spans.of(mine) for where, mine in spans.items()}
