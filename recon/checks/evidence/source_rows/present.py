"""Rows that should not be there: of aborted transactions, doubled, or accounted for by no ledger entry."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from recon.checks.evidence.coverage import Key
from recon.checks.evidence.findings import Findings, named, offsets
from recon.checks.evidence.row_accounting import Account, ReadStretches
from recon.checks.evidence.source_rows.rows import SinkRows, TopicPartition, rewrites
from recon.model import Code, RowGroup, Unavailable, Witnesses, parse_offsets
from recon.model.offsets import Span, Spans
from recon.text import plural


def doubled(witnesses: Witnesses) -> Code:
    """The code of doubled rows: a sink may claim no more than that no row is lost."""
    claimed = witnesses.guarantees.get(witnesses.sink or "", "exactly-once")
    return Code.DUPLICATE if claimed.startswith("exactly-once") else Code.REPEATED


def tell_surplus(counts: Account, findings: Findings, code: Code) -> None:
    """Adds a finding for each micro-batch that wrote more rows than it read offsets, though no transform makes rows."""
    for entry, counted in counts.counted.items():
        if counted.surplus:
            head = counts.covered.slice.heads[entry]
            findings.add(
                code,
                f"{named(head)} wrote {plural(counted.surplus, 'row')} more than it read offsets, and no transform "
                "makes rows: some are doubled",
                head=head,
            )


def judge_present(sink: SinkRows) -> None:
    """Adds findings for rows that should not be there."""
    _judge_phantoms(sink)
    _judge_duplicates(sink)
    _judge_unstamped(sink)


# -- aborted transactions ----------------------------------------------------------------------------------------------


def _judge_phantoms(sink: SinkRows) -> None:
    for where, answer in sorted(sink.witnesses.probes.items()):
        stretches = sink.stretches.get(where)
        if stretches is None:
            continue
        present = sink.present.get(where, Spans()).intersect(stretches.ranges).intersect(answer.requested)
        stable = Spans.of([(0, answer.last_stable)])
        phantoms = present.intersect(answer.uncommitted).minus(answer.committed).intersect(stable)
        pieces = stretches.pieces(phantoms)
        if answer.truncated is None:
            sink.report(
                Code.PHANTOM_ROWS,
                pieces,
                "have rows, and their transaction was aborted: set kafka.isolation.level to read_committed and "
                "remove the rows",
            )
        elif phantoms:
            sink.report(Code.INCONCLUSIVE, pieces, f"may be rows of aborted transactions: {answer.truncated}")


# -- doubled rows ------------------------------------------------------------------------------------------------------


def _judge_duplicates(sink: SinkRows) -> None:
    for where, groups in sorted(sink.groups.items()):
        stretches = sink.stretches.get(where)
        if stretches is None:
            continue
        incarnations = stretches.incarnations
        for group in groups:
            _judge_group(sink, where, stretches, group)
        in_groups = sum(group.present.size for group in groups)
        if in_groups <= sink.present[where].size or _lawfully_again(sink, stretches):
            continue
        depths = list(_depths(groups))
        twice = Spans.of(depth.span for depth in depths if depth.groups > incarnations)
        if incarnations > 1:
            several = Spans.of(depth.span for depth in depths if depth.groups > 1)
            twice = twice.union(several.minus(_recurring(sink.counts, stretches.keys)))
        sink.report(
            doubled(sink.witnesses),
            stretches.pieces(twice.intersect(stretches.ranges)),
            "are in the rows of more than one micro-batch: remove those of the later one",
        )


def _lawfully_again(sink: SinkRows, stretches: ReadStretches) -> bool:
    """Whether a record may be in the rows of several micro-batches: a join gives it again with each partner."""
    entries = {piece.entry for piece in stretches.pieces(stretches.ranges)}
    return any(sink.counts.operators.makes_rows(sink.ledger.heads[entry]) for entry in entries)


def _judge_group(sink: SinkRows, where: TopicPartition, stretches: ReadStretches, group: RowGroup) -> None:
    """Rows of one batch_id that share an offset; two epochs may hide behind one batch_id."""
    surplus = group.rows - group.distinct_offsets
    if surplus <= 0:
        return
    mine = group.present.intersect(stretches.ranges)
    pieces = list(stretches.pieces(mine))
    if not pieces or any(sink.counts.counted[piece.entry].explodes for piece in pieces):
        return
    heads = [sink.ledger.heads[piece.entry] for piece in pieces]
    if rewrites(sink.witnesses) and any((h.epoch, h.batch_id) not in sink.counts.given for h in heads):
        unknown = "have rows that share an offset, and whether a transform made several of one record is not known"
        sink.report(Code.INCONCLUSIVE, pieces[:1], unknown)
        return
    if stretches.incarnations > 1:
        sink.report(Code.INCONCLUSIVE, pieces[:1], "lie in a topic that was re-created, and rows share their offsets")
        return
    twice = Spans()
    for key in stretches.keys:
        twice = twice.union(sink.counts.overlaps.get(key, Spans()).intersect(mine))
    if twice.size == surplus:
        again = list(stretches.pieces(twice))
        sink.report(doubled(sink.witnesses), again, "have two rows each: remove those of the later attempt")
        return
    start, end = min(piece.start for piece in pieces), max(piece.end for piece in pieces)
    topic, partition = where
    sink.findings.add(
        doubled(sink.witnesses),
        f"{topic}-{partition}: {plural(surplus, 'row')} too many among {offsets(start, end)} of {named(heads[0])}: "
        "rows share an offset",
        head=heads[0],
        topic=topic,
        partition=partition,
        start_offset=start,
        end_offset=end,
    )


def _recurring(counts: Account, keys: Iterable[Key]) -> Spans:
    """Offsets that more than one incarnation of a topic has: two rows with one offset are lawful there."""
    recurring = Spans()
    for key in keys:
        before = Spans()
        for incarnation in counts.covered.incarnations[key]:
            covered = incarnation.walked.covered
            recurring = recurring.union(before.intersect(covered))
            before = before.union(covered)
    return recurring


class _Depth(NamedTuple):
    """A range of offsets, and how many groups of rows carry each of them."""

    span: Span
    groups: int


def _depths(groups: Iterable[RowGroup]) -> Iterator[_Depth]:
    """How many groups carry each range of offsets, where any does."""
    steps: Counter[int] = Counter()
    for group in groups:
        for start, end in group.present:
            steps[start] += 1
            steps[end] -= 1
    depth, before = 0, 0
    for at in sorted(steps):
        if depth:
            yield _Depth(Span(before, at), depth)
        depth, before = depth + steps[at], at


# -- rows that no entry accounts for -----------------------------------------------------------------------------------


def _judge_unstamped(sink: SinkRows) -> None:
    """Rows of other programs; offsets are compared only when the whole ledger, up to now, is known."""
    if sink.rows.unstamped_rows:
        sink.findings.add(
            Code.UNSTAMPED,
            f"{plural(sink.rows.unstamped_rows, 'row')} of {sink.rows.location} have no _batch_id: another program "
            "wrote them",
        )
    if not sink.ledger.complete or sink.witnesses.period_to < sink.witnesses.now:
        return
    accounted = _accounted_for(sink)
    bounded = not _rows_are_no_newer(sink)
    for (topic, partition), present in sorted(sink.present.items()):
        known = accounted.get((topic, partition), Spans())
        strays = present.minus(known)
        if bounded:
            strays = strays.intersect(Spans.of([(0, known.hull.end if known.hull is not None else 0)]))
        hull = strays.hull
        if hull is not None:
            sink.findings.add(
                Code.UNSTAMPED,
                f"{topic}-{partition}: rows carry {plural(strays.size, 'offset')} within {offsets(*hull)} that no "
                "ledger entry accounts for: another program wrote them, or an entry is missing",
                topic=topic,
                partition=partition,
                start_offset=hull.start,
                end_offset=hull.end,
            )


def _accounted_for(sink: SinkRows) -> dict[TopicPartition, Spans]:
    """The offsets of ledger entries, and of stamped commits that still lack an entry."""
    spans: dict[TopicPartition, list[Span]] = {}
    for key, incarnations in sink.counts.covered.incarnations.items():
        for incarnation in incarnations:
            spans.setdefault((key.topic, key.partition), []).extend(incarnation.walked.covered)
    entered = {(head.epoch, head.batch_id) for head in sink.ledger.heads}
    logs = {} if isinstance(sink.witnesses.delta, Unavailable) else sink.witnesses.delta
    log = logs.get(sink.witnesses.sink or "")
    for commit in log.commits.values() if log is not None else ():
        stamp = commit.stamp
        ours = stamp is not None and (stamp.pipeline, stamp.sink) == (sink.ledger.pipeline, sink.ledger.sink)
        if stamp is None or not ours or (stamp.epoch, stamp.batch_id) in entered:
            continue
        for read in parse_offsets(stamp.offsets_text):
            if read.span.size > 0:
                spans.setdefault((read.topic, read.partition), []).append(read.span)
    return {where: Spans.of(mine) for where, mine in spans.items()}


def _rows_are_no_newer(sink: SinkRows) -> bool:
    """Whether the rows were read at a version that the Delta log's witness knows."""
    logs, version = sink.witnesses.delta, sink.rows.version
    log = None if isinstance(logs, Unavailable) else logs.get(sink.witnesses.sink or "")
    return log is not None and log.last is not None and version is not None and version <= log.last


__all__ = ["doubled", "judge_present", "tell_surplus"]
