"""Findings of earlier audits that are still open: reported again until they are repaired or accepted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING

from recon.judge.coverage import Key, cleaned, is_compacted, log_start_of, widths
from recon.judge.history.database_counts import nothing_repeated
from recon.judge.kafka.kafka_states import was_held
from recon.judge.kafka.topic_ids import identified, is_of, with_topic_ids
from recon.lazy import np
from recon.model import Code, EntryHead, Finding, LedgerSlice, Level, RowsWitness, Verdict, Witnesses
from recon.model.fingerprint import of_entries
from recon.model.offsets import Span, Spans
from recon.model.positions import is_kafka
from recon.model.proof import OF_UNREAD_RANGES, FindingPlace, OpenFinding, place_of

if TYPE_CHECKING:
    import numpy.typing as npt


def with_open_findings(verdict: Verdict, check: str, witnesses: Witnesses) -> Verdict:
    """A check's verdict on what it saw now, and on what it reported in earlier audits.

    An open finding that this audit does not answer is reported again. One that somebody accepted explains, and does
    not fail. Ranges that were read after all, and rows that are there again, are REPAIRED.
    """
    if verdict.findings:
        verdict = replace(verdict, findings=tuple(identified(finding, witnesses) for finding in verdict.findings))
    open_ = _open(check, witnesses)
    seen_by = {sink: replace(witnesses, sink=sink) for sink, _ in open_}
    known = [(one, seen_by[sink]) for sink, one in open_]
    if not known:
        return verdict
    of_check = [(one, of_sink) for one, of_sink in known if one.check == check and one.accepted is None]
    found = [_accepted(finding, check, [one for one, _ in known]) for finding in verdict.findings]
    places: defaultdict[FindingPlace, list[Finding]] = defaultdict(list)
    for finding in found:
        places[place_of(finding)].append(finding)
    carried = [
        finding
        for one, of_sink in of_check
        for finding in _Audit(verdict, check, of_sink, places[place_of(one.finding)]).carried(one)
    ]
    found = [finding for finding in found if not _is_answered(finding, [one for one, _ in of_check])]
    found = [_with_age(finding, [one for one, _ in of_check]) for finding in found]
    if not carried and found == list(verdict.findings):
        return verdict
    return _rejudged(verdict, [*found, *carried])


def _open(check: str, witnesses: Witnesses) -> list[tuple[str, OpenFinding]]:
    """What is open of the judged sink; for a check of all sinks, what it found, each finding with its sink."""
    of_sink = witnesses.proofs.of_sink
    if witnesses.sink is not None:
        proof = of_sink.get(witnesses.sink)
        return [(witnesses.sink, one) for one in with_topic_ids(proof, witnesses).open] if proof is not None else []
    known: dict[tuple[str | None, str], tuple[str, OpenFinding]] = {}
    for sink, proof in of_sink.items():  # the state of each sink has them; somebody may have accepted one of them
        for one in (one for one in proof.open if one.check == check):
            key = (one.finding.sink, one.id)
            if key not in known or one.accepted is not None:
                known[key] = (one.finding.sink or sink, one)
    return list(known.values())


def recheck(witnesses: Witnesses, check: str) -> bool:
    """Whether an open finding of a check is about rows of the judged micro-batches, so that rows answer it."""
    proof, ledger = witnesses.proof, witnesses.ledger
    if proof is None or ledger is None:
        return False
    return any(
        one.spans.intersect(_judged(ledger, one.finding))
        for one in proof.open
        if one.check == check and one.accepted is None
    )


def _accepted(finding: Finding, check: str, open_: Sequence[OpenFinding]) -> Finding:
    """The finding, or where somebody accepted it, an explanation."""
    if finding.level not in (Level.FAIL, Level.UNPROVED):
        return finding
    for one in open_:
        if one.accepted is not None and one.includes(finding) and _is_same_doubling(one, finding, check):
            by = one.accepted
            why = f"accepted by {by.by} on {by.at:%Y-%m-%d} ({by.reason})"
            return replace(finding, code=Code.ACCEPTED, message=f"{why}: {finding.code}: {finding.message}")
    return finding


def _is_same_doubling(one: OpenFinding, finding: Finding, check: str) -> bool:
    """Whether rows that are doubled are as many as those that were accepted: the offsets may be those of many rows.

    That offsets were read twice, which another check finds, says nothing of rows. Where `about` does not say how many
    rows, the message does; of a part of the offsets, its beginning may name other micro-batches.
    """
    if not one.is_doubling or one.check != check:
        return not one.is_doubling
    if None not in (one.finding.about, finding.about):
        return one.finding.about == finding.about
    mine, other = one.finding.message, finding.message
    if one.finding.span != finding.span:
        mine, other = (message.rpartition(") ")[2] for message in (mine, other))
    return mine == other


def _is_answered(finding: Finding, open_: Sequence[OpenFinding]) -> bool:
    """Whether a question about offsets without a row was answered before: they were found to be lost.

    A witness that answered then may be out of reach now, and has not taken its answer back.
    """
    if finding.level is not Level.UNPROVED or finding.span is None:
        return False
    lost = (one for one in open_ if one.is_loss and one.finding.sink == finding.sink and one.is_at(finding))
    known = Spans.of(span for one in lost for span in one.spans)
    return not Spans.of([finding.span]).minus(known)


def _with_age(finding: Finding, open_: Sequence[OpenFinding]) -> Finding:
    """The finding, with its id and age where it is one that is open."""
    same = (one for one in open_ if one.includes(finding) and one.finding.span == finding.span)
    known = next(same, None)
    return finding if known is None else replace(finding, message=finding.message + known.since)


def _judged(ledger: LedgerSlice, finding: Finding) -> Spans:
    """The offsets of the finding's topic partition that judged entries speak of."""
    ranges, mine = ledger.ranges, _mine(ledger, finding)
    spans = zip(ranges.start[mine].tolist(), ranges.end[mine].tolist(), strict=True)
    return Spans.of((start, end) for start, end in spans if start < end)


def _mine(ledger: LedgerSlice, finding: Finding) -> npt.NDArray[np.bool_]:
    """Which ranges of judged entries are of the finding's topic partition."""
    ranges = ledger.ranges
    topics = [i for i, (_, name, topic_id) in enumerate(ranges.topics) if is_of(finding, name, topic_id)]
    mine: npt.NDArray[np.bool_] = (ranges.entry >= ledger.anchors) & (ranges.partition == finding.partition)
    return mine & np.isin(ranges.topic, topics)


@dataclass(frozen=True)
class _Audit:
    """What this audit says of an open finding of one check; `found` is what it found at the same place."""

    verdict: Verdict
    check: str
    witnesses: Witnesses
    found: Sequence[Finding]

    def carried(self, one: OpenFinding) -> Iterator[Finding]:
        """What is left of an open finding, and what was repaired of it."""
        if one.finding.span is None:
            if not any(one.includes(finding) for finding in self.found) and not self._answers(one.finding):
                yield self._again(one, one.finding)
            return
        again = Spans.of(f.span for f in self.found if f.span is not None and self._is_same_place(one, f))
        left = one.spans.minus(again)
        repaired = left.intersect(self._repaired(one)).minus(self._in_question(one))
        where = Key(0, one.finding.topic or "", one.finding.partition or 0)
        for start, end in repaired:
            happened, then = "are in the sink again, once", "is repaired"
            if one.is_loss and not Spans.of([(start, end)]).minus(self._without_record(one)):
                happened = "hold no record for the stream"
            elif self.check in OF_UNREAD_RANGES:
                twice = "were read twice, and their doubled rows removed"
                happened = twice if one.is_doubling else "were read after all"
            elif one.is_loss and not Spans.of([(start, end)]).minus(self._waits(one.finding)):
                happened = "wait in quarantine again"
            elif one.is_loss and self._read_again(one.finding).intersect(Spans.of([(start, end)])):
                happened = "were read again: each is in the sink, or its row was filtered or quarantined"
            message = (
                f"{where}: {where.offsets(start, end)} {happened}: {one.finding.code}, "
                f"found on {one.first_seen:%Y-%m-%d}, {then}"
            )
            yield replace(_part(one.finding, start, end), code=Code.REPAIRED, message=message)
        for start, end in left.minus(repaired):
            yield self._again(one, _part(one.finding, start, end))

    @staticmethod
    def _is_same_place(one: OpenFinding, finding: Finding) -> bool:
        """Whether a finding of now takes an open one's place: a question does not take that of a refutation."""
        levels = (Level.FAIL,) if one.finding.level is Level.FAIL else (Level.FAIL, Level.UNPROVED)
        kind = finding.level in levels or finding.code is Code.ACCEPTED
        return kind and one.finding.sink == finding.sink and one.is_at(finding)

    @staticmethod
    def _again(one: OpenFinding, finding: Finding) -> Finding:
        return replace(finding, message=one.finding.message + one.since)

    def _in_question(self, one: OpenFinding) -> Spans:
        """The offsets of an open finding that this audit could not decide: they are not repaired.

        Whether a record without a row is lost is no question of doubled rows.
        """
        asked = (f for f in self.found if f.level is Level.UNPROVED and f.sink == one.finding.sink and one.is_at(f))
        spans = Spans.of(f.span for f in asked if f.span is not None)
        rows = self.witnesses.rows
        if not one.is_doubling or not isinstance(rows, RowsWitness) or not rows.has_source_columns:
            return spans
        mine = (g for g in rows.groups if (g.topic, g.partition) == (one.finding.topic, one.finding.partition))
        return spans.intersect(Spans.of(span for group in mine for span in group.present))

    def _repaired(self, one: OpenFinding) -> Spans:
        """The offsets of an open finding that this audit saw to be in order."""
        if self._ledger is None:
            return Spans()
        judged = _judged(self._ledger, one.finding)
        if one.finding.level is Level.UNPROVED:
            of_rows = self.check == "source_rows" and self._is_recreated(one.finding.topic)
            hidden = self._of_other_topics(one.finding) if of_rows else Spans()
            if self.check in OF_UNREAD_RANGES:
                judged = self._read(self._ledger, one.finding).union(self._without_record(one))
            return judged.minus(hidden) if self._is_evaluated else Spans()
        if self.check in OF_UNREAD_RANGES:
            read = self._read(self._ledger, one.finding) if one.is_loss else self._cleaned(one)
            return read.union(self._without_record(one)) if one.is_loss else read
        if one.is_doubling and self.check == "source_rows" and nothing_repeated(self.witnesses):
            return one.spans
        rows = self.witnesses.rows
        if not isinstance(rows, RowsWitness) or not rows.has_source_columns or not self._is_evaluated:
            return Spans()
        mine = [g for g in rows.groups if (g.topic, g.partition) == (one.finding.topic, one.finding.partition)]
        if one.is_loss:
            # Rows do not tell which incarnation of a topic they are of: another one's row at that offset mends nothing.
            if self._is_recreated(one.finding.topic):
                return Spans()
            present = Spans.of(span for group in mine for span in group.present).union(self._waits(one.finding))
            return judged.intersect(present.union(self._read_again(one.finding)))
        if not one.is_doubling:
            return Spans()
        doubled = Spans.of(span for g in mine for span in g.maybe_doubled)
        seen = Spans()
        for group in mine:
            doubled, seen = doubled.union(seen.intersect(group.present)), seen.union(group.present)
        # Rows that do not show may be there all the same, as those from before the hook was adopted.
        return judged.intersect(seen).minus(doubled)

    def _read(self, ledger: LedgerSlice, finding: Finding) -> Spans:
        """The offsets of a finding of which judged entries are known to have read every record that was there.

        A range alone does not show it: Spark plans a range, and passes over what Kafka deleted. An entry shows it by as
        many records as offsets, each once, or where Kafka had not deleted them after it had read. Where several sources
        of the query read the topic, each of them has to: the finding may be of any.
        """
        width, once, ranges = widths(ledger), of_entries(ledger.ranges, len(ledger.heads)), ledger.ranges
        found: defaultdict[int, list[Span]] = defaultdict(list)
        again = list[Span]()
        for row in np.flatnonzero(_mine(ledger, finding)).tolist():
            entry, span = int(ranges.entry[row]), Span(int(ranges.start[row]), int(ranges.end[row]))
            head, (source, topic, topic_id) = ledger.heads[entry], ranges.topics[int(ranges.topic[row])]
            if not head.reads or span.size <= 0:
                continue
            read, key = again if head.is_repair else found[source], Key(source, topic, finding.partition or 0)
            if head.rows_read == width[entry] and head.fingerprint_read in (None, int(once[entry])):
                read.append(span)
            elif not is_compacted(topic, self.witnesses):
                read += self._still_held(ledger, head, key, topic_id, span)
        readers = {source for source, name, topic_id in ranges.topics if is_of(finding, name, topic_id)}
        if len(readers) < 2:
            return Spans.of([*again, *chain.from_iterable(found.values())])
        by_all = Spans.of(span for spans in found.values() for span in spans)
        for source in readers:
            by_all = by_all.intersect(Spans.of(found[source]).union(self._read_before(finding, source)))
        return by_all.union(Spans.of(again))

    def _read_before(self, finding: Finding, source: int) -> Spans:
        """The offsets of a finding's topic partition that earlier audits saw one source of the query read."""
        proof = self.witnesses.proof
        return Spans.of(
            span
            for one in (proof.coverage if proof is not None else ())
            if one.source == source and one.partition == finding.partition and is_of(finding, one.topic, one.topic_id)
            for span in one.ranges
        )

    def _without_record(self, one: OpenFinding) -> Spans:
        """The offsets of an open finding that hold no record for the stream, as the source shows now."""
        at = (f for f in self.found if f.code is Code.EXPLAINED and f.sink == one.finding.sink and one.is_at(f))
        return Spans.of(f.span for f in at if f.span is not None)

    def _still_held(self, ledger: LedgerSlice, head: EntryHead, key: Key, topic_id: str | None, read: Span) -> Spans:
        """The offsets of a range that the source had not deleted when an entry had read them.

        Of several topics of a name, the broker's answers do not say of which they are.
        """
        if is_kafka(key.topic) and not self._is_topic(key.topic):
            return Spans()
        if was_held(ledger, head.sequence, (key.topic, key.partition), read.start):
            return Spans.of([read])
        log_start, _ = log_start_of(self.witnesses, key, topic_id)
        start = read.end if log_start is None else max(read.start, log_start)
        return Spans.of([(start, read.end)]) if start < read.end else Spans()

    def _read_again(self, finding: Finding) -> Spans:
        """The offsets of a finding that judged repairs read, which say how many rows they filtered of them.

        One that still lacks its row is a finding of this audit.
        """
        ledger = self._ledger
        if ledger is None:
            return Spans()
        repairs = [i for i, head in enumerate(ledger.heads) if head.is_repair and head.rows_filtered is not None]
        read = [span for i in repairs if i >= ledger.anchors for span in ledger.ranges.of(i)]
        mine = (s for s in read if is_of(finding, s.topic, s.topic_id) and s.partition == finding.partition)
        return Spans.of(s.span for s in mine if s.span.size > 0)

    def _waits(self, finding: Finding) -> Spans:
        """The offsets of a finding's topic partition whose rows wait in quarantine, as far as these were read."""
        rows, where = self.witnesses.rows, (finding.topic, finding.partition)
        if not isinstance(rows, RowsWitness):
            return Spans()
        waiting = (g for g in rows.quarantined if g.release is None and (g.topic, g.partition) == where)
        return Spans.of(span for group in waiting for span in group.present)

    def _cleaned(self, one: OpenFinding) -> Spans:
        """The offsets that were read twice, and whose doubled rows a judged removal took out of the sink."""
        if not one.is_doubling or self._ledger is None:
            return Spans()
        return cleaned(self._ledger, one.finding.topic, one.finding.partition, after=self._ledger.anchors - 1)

    def _is_recreated(self, topic: str | None) -> bool:
        """Whether the ledger, or what was proved of it, knows a topic by more than one id."""
        return len(self._ids(topic)) > 1

    def _ids(self, topic: str | None) -> set[str]:
        """The ids of a topic of this name that the ledger, or what was proved of it, knows."""
        proof = self.witnesses.proof
        known = {covered.topic_id for covered in (proof.coverage if proof else ()) if covered.topic == topic}
        if self._ledger is not None:
            known |= {topic_id for _, name, topic_id in self._ledger.ranges.topics if name == topic}
        return {topic_id for topic_id in known if topic_id is not None}

    def _is_topic(self, name: str) -> bool:
        """Whether Kafka's topic is known to be the only one of the name that the query read."""
        described = self.witnesses.topic(name)
        return described is not None and described.topic_id is not None and self._ids(name) == {described.topic_id}

    def _of_other_topics(self, finding: Finding) -> Spans:
        """The offsets that were read of other topics of the name: their rows may hide that this topic's are missing."""
        proof = self.witnesses.proof
        read = [
            range_
            for covered in (proof.coverage if proof else ())
            if (covered.topic, covered.partition) == (finding.topic, finding.partition)
            and covered.topic_id != finding.topic_id
            for range_ in covered.ranges
        ]
        if self._ledger is not None:
            ranges = self._ledger.ranges
            several = enumerate(ranges.topics)
            topics = [i for i, (_, name, id_) in several if name == finding.topic and id_ != finding.topic_id]
            mine = (ranges.partition == finding.partition) & np.isin(ranges.topic, topics)
            read += zip(ranges.start[mine].tolist(), ranges.end[mine].tolist(), strict=True)
        return Spans.of((start, end) for start, end in read if start < end)

    def _answers(self, finding: Finding) -> bool:
        """Whether the micro-batch of a finding without offsets was judged again, and the check found nothing."""
        if not self._is_evaluated or self._ledger is None or finding.batch_id is None:
            return self._is_evaluated and self._answers_whole(finding)
        return (finding.epoch, finding.batch_id) in self._judged_batches

    def _answers_whole(self, finding: Finding) -> bool:
        if finding.code is Code.DUPLICATE and nothing_repeated(self.witnesses):
            return True
        # What changed a table or the ledger may have left both logs since: not finding it again proves nothing.
        if self._ledger is None or not self._ledger.complete:
            return False
        if finding.level is Level.UNPROVED:
            return finding.changed_by is None
        return finding.code is Code.GAP and self._tells_every_offset

    @property
    def _tells_every_offset(self) -> bool:
        """Whether the rows of all micro-batches were read, so that every row that is missing is told by its offset.

        A number of rows that are gone from quarantine, of no micro-batch, has its offsets in its place then.
        """
        rows, seen = self.witnesses.rows, self.witnesses
        if self.check != "source_rows" or seen.sink in seen.rewriting or seen.declared.explodes:
            return False
        return isinstance(rows, RowsWitness) and rows.has_source_columns and rows.of is None

    @cached_property
    def _judged_batches(self) -> set[tuple[int, int]]:
        ledger = self._ledger
        return {(h.epoch, h.batch_id) for h in ledger.heads[ledger.anchors :]} if ledger is not None else set()

    @cached_property
    def _is_evaluated(self) -> bool:
        """Whether the check saw all that it needed; one that could not decide a question did."""
        if self.verdict.skipped is not None or self.verdict.evidence.keys() & {"unread", "probe"}:
            return False
        return self.verdict.unproved is None or any(f.level is Level.UNPROVED for f in self.verdict.findings)

    @property
    def _ledger(self) -> LedgerSlice | None:
        return self.witnesses.ledger


def _part(finding: Finding, start: int, end: int) -> Finding:
    """A finding of a part of its offsets; the number of rows is known where each offset has one."""
    span = finding.span
    rows = finding.rows
    if span is None or span != (start, end):
        rows = end - start if span is not None and rows == span.size else None
    return replace(finding, start_offset=start, end_offset=end, rows=rows)


def _rejudged(verdict: Verdict, findings: Sequence[Finding]) -> Verdict:
    """The verdict with other findings; a witness that could not be read stays unread."""
    before = [f for f in verdict.findings if f.level is Level.FAIL]
    failing = [f for f in findings if f.level is Level.FAIL]
    unproved = [f for f in findings if f.level is Level.UNPROVED]
    failures = max(verdict.failures - len(before), 0) + len(failing)
    asked = any(f.level is Level.UNPROVED for f in verdict.findings)
    unread = verdict.skipped or (None if asked else verdict.unproved)
    message = verdict.message
    worst = next(iter((*failing, *unproved)), None)
    accepted = [f.message for f in findings if f.code is Code.ACCEPTED]
    settled = any(f.message and verdict.message.startswith(f.message) for f in before if _ends_one(accepted, f))
    if worst is not None and (not verdict.failures or worst not in verdict.findings or settled):
        more = len(failing) + len(unproved) - 1
        message = worst.message + (f" (and {more} more)" if more else "")
    elif worst is None and (before or asked):
        message = accepted[0] if accepted else ""
    reason = unread or (unproved[0].message if unproved else None)
    evidence = {**verdict.evidence, "unread": unread} if unread else verdict.evidence
    return replace(
        verdict,
        failures=failures,
        findings=tuple(sorted(findings, key=lambda f: f.level.rank)),
        message=message,
        unproved=None if failing else reason,
        skipped=None if failing else verdict.skipped,
        evidence=evidence,
    )


def _ends_one(accepted: Sequence[str], finding: Finding) -> bool:
    """Whether a finding is among those that were accepted: their messages end with its own."""
    return any(message.endswith(f"{finding.code}: {finding.message}") for message in accepted)


def unread_before(witnesses: Witnesses, topic: str, topic_id: str | None, partition: int) -> Spans:
    """Offsets that earlier audits found to be read by no micro-batch: reading them now is a repair, no repetition.

    Without a topic id, those of any topic of the name.
    """
    proof = witnesses.proof
    return proof.unread(topic, topic_id, partition) if proof is not None else Spans()


__all__ = ["recheck", "unread_before", "with_open_findings"]
