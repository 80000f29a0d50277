"""Findings of earlier audits that are still open: reported again until they are repaired or accepted."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from recon.base.lazy import np
from recon.judge.case import SinkCase
from recon.judge.coverage import Key, cleaned, widths
from recon.judge.history.table_history import TableVersion
from recon.judge.kafka.kafka_states import was_held
from recon.judge.kafka.topic_ids import identified, is_of, with_topic_ids
from recon.model import (
    Code,
    EntryHead,
    Finding,
    LedgerSlice,
    Level,
    RowGroup,
    RowsWitness,
    TableCommit,
    Unavailable,
    Verdict,
    Witnesses,
    known,
)
from recon.model.fingerprint import of_entries
from recon.model.grouping import grouped
from recon.model.offsets import Span, Spans, held_by
from recon.model.once import kept
from recon.model.positions import is_kafka
from recon.model.proof import OF_UNREAD_RANGES, OpenFinding, SinkProof, is_of_the_present, memory_of, place_of

if TYPE_CHECKING:
    import numpy.typing as npt

_DEVIATES = (Level.FAIL, Level.UNPROVED)
_Known = tuple[SinkCase, OpenFinding]  # an open finding, with what the audit knows of its sink


def with_open_findings(verdict: Verdict, check: str, witnesses: Witnesses) -> Verdict:
    """A check's verdict on what it saw now, and on what it reported in earlier audits.

    An open finding that this audit does not answer is reported again. One that somebody accepted explains, and does
    not fail. Ranges that were read after all, and rows that are there again, are REPAIRED.
    """
    ledger, proof = witnesses.ledger, witnesses.proof
    verdict = replace(verdict, findings=tuple(identified(finding, ledger, proof) for finding in verdict.findings))
    known = _open(check, witnesses)
    waiting = [(seen, open_) for seen, open_ in known if open_.check == check and open_.accepted is None]
    found = [_accepted(finding, check, known) for finding in verdict.findings]
    carried = list(_carried(waiting, verdict, found))
    found = [_with_age(finding, waiting) for finding in found if not _is_answered(finding, waiting)]
    unchanged = not carried and found == list(verdict.findings)
    return verdict if unchanged else _rejudged(verdict, found, carried)


def _open(check: str, witnesses: Witnesses) -> Sequence[_Known]:
    """What is open of the judged sink; for a check of all sinks, what it found of each."""
    if witnesses.sink is None:
        return _open_of_all(check, witnesses)
    case, proof = SinkCase(witnesses), witnesses.proof
    return [(case, open_) for open_ in with_topic_ids(proof, witnesses.ledger).open] if proof is not None else []


def _open_of_all(check: str, witnesses: Witnesses) -> Sequence[_Known]:
    known: dict[tuple[str | None, str], tuple[str, OpenFinding]] = {}
    for sink, proof in witnesses.proofs.of_sink.items():
        for open_ in proof.open:  # the state of each sink has them; somebody may have accepted one of them
            key = (open_.finding.sink, open_.id)
            if open_.check == check and (key not in known or open_.accepted is not None):
                known[key] = (open_.finding.sink or sink, open_)
    seen_by = {sink: SinkCase(replace(witnesses, sink=sink)) for sink, _ in known.values()}
    return [(seen_by[sink], open_) for sink, open_ in known.values()]


def _carried(waiting: Sequence[_Known], verdict: Verdict, found: Sequence[Finding]) -> Iterator[Finding]:
    """What is left of open findings, and what was repaired of them."""
    places = grouped((place_of(finding), finding) for finding in found)
    for seen, open_ in waiting:
        yield from _Recheck(open_, seen, verdict, places.get(place_of(open_.finding), ())).told()


def recheck(proof: SinkProof | None, ledger: LedgerSlice | None, check: str) -> bool:
    """Whether an open finding of a check is about rows of the judged micro-batches, so that rows answer it."""
    if proof is None or ledger is None:
        return False
    return any(
        open_.spans.intersect(_spans(ledger, _judged(ledger, open_.finding)))
        for open_ in proof.open
        if open_.check == check and open_.accepted is None
    )


def _accepted(finding: Finding, check: str, known: Sequence[_Known]) -> Finding:
    """The finding, or where somebody accepted it, an explanation."""
    for _, open_ in known if finding.level in _DEVIATES else ():
        if (by := open_.accepted) and open_.includes(finding) and _is_same_doubling(open_, finding, check):
            why = f"accepted by {by.by} on {by.at:%Y-%m-%d} ({by.reason})"
            return replace(finding, code=Code.ACCEPTED, message=f"{why}: {finding.code}: {finding.message}")
    return finding


def _is_same_doubling(open_: OpenFinding, finding: Finding, check: str) -> bool:
    """Whether rows that are doubled are as many as those that were accepted: the offsets may be those of many rows.

    That offsets were read twice, which another check finds, says nothing of rows. Where `about` does not say how many
    rows, the message does; of a part of the offsets, its beginning may name other micro-batches.
    """
    if not open_.is_doubling or open_.check != check:
        return not open_.is_doubling
    if None not in (open_.finding.about, finding.about):
        return open_.finding.about == finding.about
    mine, other = open_.finding.message, finding.message
    if open_.finding.span != finding.span:
        mine, other = (message.rpartition(") ")[2] for message in (mine, other))
    return mine == other


def _is_answered(finding: Finding, known: Sequence[_Known]) -> bool:
    """Whether a question about offsets without a row was answered before: they were found to be lost.

    A witness that answered then may be out of reach now, and has not taken its answer back.
    """
    if finding.level is not Level.UNPROVED or finding.span is None:
        return False
    lost = (o for _, o in known if o.is_loss and o.finding.sink == finding.sink and o.is_at(finding))
    return not Spans((finding.span,)).minus(Spans.of(span for open_ in lost for span in open_.spans))


def _with_age(finding: Finding, known: Sequence[_Known]) -> Finding:
    """The finding, with its id and age where it is one that is open."""
    same = (open_ for _, open_ in known if open_.includes(finding) and open_.finding.span == finding.span)
    first = next(same, None)
    return finding if first is None else replace(finding, message=finding.message + first.since)


def _judged(ledger: LedgerSlice, finding: Finding) -> npt.NDArray[np.bool_]:
    """Which ranges with offsets are those of judged entries, and of the finding's topic partition."""
    ranges = ledger.ranges
    topics = [i for i, (_, name, topic_id) in enumerate(ranges.topics) if is_of(finding, name, topic_id)]
    mine: npt.NDArray[np.bool_] = (ranges.entry >= ledger.anchors) & (ranges.partition == finding.partition)
    return mine & np.isin(ranges.topic, topics) & (ranges.start < ranges.end)


def _spans(ledger: LedgerSlice, which: npt.NDArray[np.bool_]) -> Spans:
    """The offsets of some of the ranges."""
    start, end = ledger.ranges.start[which], ledger.ranges.end[which]
    return Spans.of(zip(start.tolist(), np.maximum(start, end).tolist(), strict=True))


@kept
def _read_whole(ledger: LedgerSlice) -> Collection[int]:
    """The entries that read as many records as their ranges have offsets, each once as far as a fingerprint shows."""
    each = zip(ledger.heads, widths(ledger), of_entries(ledger.ranges, len(ledger.heads)).tolist(), strict=True)
    return {
        entry
        for entry, (head, width, fingerprint) in enumerate(each)
        if head.rows_read == width and head.fingerprint_read in (None, fingerprint)
    }


@dataclass(frozen=True)
class _Recheck:
    """What this audit says of one open finding of a check; `found` is what it found at the same place."""

    open: OpenFinding
    case: SinkCase
    verdict: Verdict
    found: Sequence[Finding]

    def told(self) -> Iterator[Finding]:
        """What is left of it, and what was repaired of it."""
        again = replace(self.finding, message=self.finding.message + self.open.since)
        if again.span is None:
            if not any(map(self.open.includes, self.found)):
                yield from self._of_no_offsets(again)
            return
        left = self.open.spans.minus(self._found_again)
        repaired = left.intersect(self._repaired).minus(self._in_question)
        where = Key(0, self.finding.topic or "", self.finding.partition or 0)
        for span in repaired:
            message = f"{where}: {where.offsets(*span)} are accounted for: {self._is_repaired}"
            yield replace(_part(self.finding, span), code=Code.REPAIRED, message=message)
        for span in left.minus(repaired):
            yield _part(again, span)

    def _of_no_offsets(self, again: Finding) -> Iterator[Finding]:
        """What is said of a finding without offsets that the check did not find again."""
        if self._is_put_back:
            yield replace(self.finding, code=Code.REPAIRED, message=f"{self.finding.message}: {self._is_repaired}")
        elif not self._is_judged_again:
            yield again

    @property
    def _is_repaired(self) -> str:
        """The end of a message: since when it was known, and by which RESTORE it was put right, if by one."""
        restore = self._restore
        by = (
            "" if restore is None else f" by version {restore.version}, a RESTORE to version {restore.restored_version}"
        )
        at = "" if restore is None else f" at {restore.timestamp:%Y-%m-%d %H:%M:%S}Z"
        return f"{self.finding.code}, found on {self.open.first_seen:%Y-%m-%d}, is repaired{by}{at}"

    @property
    def _restore(self) -> TableCommit | None:
        """The RESTORE that undid all that changed the table, where the audit before saw the same table."""
        table, known = self.case.table, memory_of(self.case.proof, TableVersion)
        if table is None or known is None or known.table_id != table.log.table_id:
            return None
        return table.restored_over(self.finding.changed_by or ())

    @property
    def _is_put_back(self) -> bool:
        """Whether rows that a commit took away are there again: a RESTORE undid it, and the table lacks no file."""
        if self.finding.code is not Code.GAP or not self._is_evaluated or self._restore is None:
            return False
        files = self.case.table.log.files_gone if self.case.table is not None else ()
        return not isinstance(files, Unavailable) and not files

    @property
    def finding(self) -> Finding:
        """What was found."""
        return self.open.finding

    @property
    def _ledger(self) -> LedgerSlice | None:
        """The sink's entries; None where they were not read."""
        return self.case.witnesses.ledger

    @property
    def _nothing_repeated(self) -> bool:
        """Whether the sink counts its rows, and no two of them have one source offset."""
        return self.case.record is not None and self.case.record.nothing_repeated

    @cached_property
    def _at(self) -> Sequence[tuple[Finding, Span]]:
        """What was found of the same topic partition, by offsets."""
        return [(f, f.span) for f in self.found if f.span is not None and self.open.is_at(f)]

    @property
    def _found_again(self) -> Spans:
        """The offsets of findings that take its place: a question does not take that of a refutation."""
        levels = (Level.FAIL, self.finding.level)
        return Spans.of(span for f, span in self._at if f.level in levels or f.code is Code.ACCEPTED)

    @property
    def _in_question(self) -> Spans:
        """The offsets that this audit could not decide: they are not repaired.

        Whether a record without a row is lost is no question of doubled rows.
        """
        asked = Spans.of(span for f, span in self._at if f.level is Level.UNPROVED)
        return asked.intersect(self._present) if self.open.is_doubling and self._rows is not None else asked

    @cached_property
    def _without_record(self) -> Spans:
        """The offsets that hold no record for the stream, as the source shows now."""
        return Spans.of(span for f, span in self._at if f.code is Code.EXPLAINED)

    @property
    def _rows(self) -> RowsWitness | None:
        """The rows of the sink, where they were read and say which offsets they have."""
        rows = self.case.witnesses.rows
        return rows if isinstance(rows, RowsWitness) and rows.has_source_columns else None

    @cached_property
    def _groups(self) -> Sequence[RowGroup]:
        """Those of its topic partition."""
        groups = self._rows.groups if self._rows is not None else ()
        return [group for group in groups if self.open.is_in(group.topic, group.partition)]

    @cached_property
    def _present(self) -> Spans:
        """The offsets of its topic partition that have a row."""
        return Spans.of(span for group in self._groups for span in group.present)

    @property
    def _doubled(self) -> Spans:
        """The offsets of its topic partition that may have several rows."""
        several = held_by(2, (span for group in self._groups for span in group.present))
        return several.union(Spans.of(span for group in self._groups for span in group.maybe_doubled))

    @cached_property
    def _waits(self) -> Spans:
        """The offsets of its topic partition whose rows wait in quarantine, as far as these were read."""
        groups = self._rows.quarantined if self._rows is not None else ()
        waiting = (g for g in groups if g.release is None and self.open.is_in(g.topic, g.partition))
        return Spans.of(span for group in waiting for span in group.present)

    @property
    def _repaired(self) -> Spans:
        """The offsets that this audit saw to be in order."""
        ledger, unread = self._ledger, self.open.check in OF_UNREAD_RANGES
        if ledger is None:
            return Spans()
        if self.finding.level is Level.UNPROVED:
            return self._decided(ledger) if self._is_evaluated else Spans()
        if unread and self.open.is_loss:
            return self._read(ledger).union(self._without_record)
        if unread:  # what was read twice, and its doubled rows removed
            mine = self.finding.topic, self.finding.partition
            return cleaned(ledger, *mine, after=ledger.anchors - 1) if self.open.is_doubling else Spans()
        return self._in_rows(ledger)

    def _decided(self, ledger: LedgerSlice) -> Spans:
        """The offsets of a question that the check could decide now, if it saw all that it needed."""
        if self.open.check in OF_UNREAD_RANGES:
            return self._read(ledger).union(self._without_record)
        if self.open.check == "delta_history":  # whether the table has them, its rows alone say
            return self._in_rows(ledger)
        # Rows of another topic of the name may hide that this one's are missing.
        hides = self.open.check == "source_rows" and len(self._ids(ledger)) > 1
        return Spans() if hides else _spans(ledger, _judged(ledger, self.finding))

    def _in_rows(self, ledger: LedgerSlice) -> Spans:
        """The offsets that have their row, and no second one."""
        if self.open.is_doubling and self.open.check == "source_rows" and self._nothing_repeated:
            return self.open.spans
        if self._rows is None or not self._is_evaluated:
            return Spans()
        judged = _spans(ledger, _judged(ledger, self.finding))
        if self.open.is_doubling:  # rows that do not show may be there all the same, as those from before the hook
            return judged.intersect(self._present).minus(self._doubled)
        # Rows do not tell which incarnation of a topic they are of: another one's row at that offset mends nothing.
        missing = self.open.is_loss or self.finding.level is Level.UNPROVED
        if not missing or len(self._ids(ledger)) > 1:
            return Spans()
        return judged.intersect(self._present.union(self._waits).union(self._read_again(ledger)))

    def _read(self, ledger: LedgerSlice) -> Spans:
        """The offsets of which judged entries are known to have read every record that was there.

        Where several sources of the query read the topic, the finding may be of any: repairs alone read for all.
        """
        ranges, finding = ledger.ranges, self.finding
        several = len({source for source, name, topic_id in ranges.topics if is_of(finding, name, topic_id)}) > 1
        rows = np.flatnonzero(_judged(ledger, finding)).tolist()
        reading = (row for row in rows if not several or ledger.heads[ranges.entry[row]].is_repair)
        return Spans.of(span for row in reading for span in self._read_of(ledger, row))

    def _read_of(self, ledger: LedgerSlice, row: int) -> Spans:
        """The offsets of one range of which its entry is known to have read every record that was there.

        A range alone does not show it: Spark plans a range, and passes over what Kafka deleted. An entry shows it by as
        many records as offsets, each once, or where Kafka had not deleted them after it had read.
        """
        ranges = ledger.ranges
        entry, span = int(ranges.entry[row]), Span(int(ranges.start[row]), int(ranges.end[row]))
        head, (source, topic, topic_id) = ledger.heads[entry], ranges.topics[int(ranges.topic[row])]
        if not head.reads:
            return Spans()
        if entry in _read_whole(ledger):
            return Spans((span,))
        now = self.case.source.topic(topic)
        # Of several topics of a name, the broker's answers do not say of which they are.
        alone = not is_kafka(topic) or (now is not None and self._ids(ledger) == {now.topic_id})
        if not alone or self.case.source.is_compacted(topic):
            return Spans()
        key = Key(source, topic, self.finding.partition or 0)
        if was_held(ledger, head.sequence, key[1:], span.start):
            return Spans((span,))
        log_start, _ = self.case.source.log_start(key, topic_id)
        start = span.end if log_start is None else max(span.start, log_start)
        return Spans.of([(min(start, span.end), span.end)])

    def _read_again(self, ledger: LedgerSlice) -> Spans:
        """The offsets that judged repairs read, which say how many rows they filtered of them.

        One that still lacks its row is a finding of this audit.
        """
        repairs = [i for i, head in enumerate(ledger.heads) if head.is_repair and head.rows_filtered is not None]
        return _spans(ledger, _judged(ledger, self.finding) & np.isin(ledger.ranges.entry, repairs))

    def _ids(self, ledger: LedgerSlice) -> set[str]:
        """The ids of topics of the name that the ledger, or what was proved of it, knows."""
        proof = self.case.proof
        known = {(c.topic, c.topic_id) for c in (proof.coverage if proof is not None else ())}
        known |= {(name, topic_id) for _, name, topic_id in ledger.ranges.topics}
        return {topic_id for name, topic_id in known if name == self.finding.topic and topic_id is not None}

    @property
    def _is_judged_again(self) -> bool:
        """Whether its micro-batch, or all, were judged again, and the check found nothing."""
        ledger, finding = self._ledger, self.finding
        if is_of_the_present(self.open.check, finding):
            return self._is_evaluated
        if not self._is_evaluated or ledger is None or finding.batch_id is None:
            return self._is_evaluated and self._is_answered_by_all
        return self._names_one_of(ledger.heads[ledger.anchors :])

    def _names_one_of(self, judged: Sequence[EntryHead]) -> bool:
        """Whether its micro-batch is one of these; of a file of the checkpoint, the plan's."""
        finding = self.finding
        if finding.epoch is None and self.open.check == "checkpoint_commits":
            return any((head.query_id, head.batch_id) == self._plan for head in judged if head.is_micro_batch)
        return any((head.epoch, head.batch_id) == (finding.epoch, finding.batch_id) for head in judged)

    @property
    def _plan(self) -> tuple[str, int] | None:
        """The query and number of the plan that it is about, where the checkpoint has it whole."""
        checkpoint = known(self.case.witnesses.checkpoint)
        batches = checkpoint.batches if checkpoint is not None else ()
        mine = [batch for batch in batches if batch.batch_id == self.finding.batch_id and batch.starts_known]
        return (checkpoint.query_id, mine[0].batch_id) if checkpoint is not None and mine else None

    @property
    def _is_answered_by_all(self) -> bool:
        """Whether all that the check saw shows that it is in order."""
        if self.finding.code is Code.DUPLICATE and self._nothing_repeated:
            return True
        # What changed a table or the ledger may have left both logs since: not finding it again proves nothing.
        if self._ledger is None or not self._ledger.complete:
            return False
        return self.finding.level is Level.UNPROVED and self.finding.changed_by is None

    @property
    def _is_evaluated(self) -> bool:
        """Whether the check saw all that it needed; one that could not decide a question did."""
        if self.verdict.skipped is not None or self.verdict.evidence.keys() & {"unread", "probe"}:
            return False
        return self.verdict.unproved is None or any(f.level is Level.UNPROVED for f in self.verdict.findings)


def _part(finding: Finding, span: Span) -> Finding:
    """A finding of a part of its offsets; the number of rows is known where each offset has one."""
    rows, whole = finding.rows, finding.span
    if span != whole:
        rows = span.size if whole is not None and rows == whole.size else None
    return replace(finding, start_offset=span.start, end_offset=span.end, rows=rows)


def _rejudged(verdict: Verdict, found: Sequence[Finding], carried: Sequence[Finding]) -> Verdict:
    """The verdict with other findings; a witness that could not be read stays unread.

    A check that is skipped, as one that needs Spark, is not skipped over what is open: it says what the others said.
    """
    findings = [*found, *carried]
    failed, asked = _of(Level.FAIL, verdict.findings), _of(Level.UNPROVED, verdict.findings)
    failing, asking = _of(Level.FAIL, findings), _of(Level.UNPROVED, findings)
    unread = verdict.skipped or (None if asked else verdict.unproved)
    reason = unread or (asking[0].message if asking else None)
    failures = max(verdict.failures - len(failed), 0) + len(failing)
    return replace(
        verdict,
        failures=failures,
        findings=tuple(sorted(findings, key=lambda f: f.level.rank)),
        message=_leading(verdict, findings, failures + len(asking)),
        unproved=None if failing else reason,
        skipped=None if failing or _of(Level.UNPROVED, carried) else verdict.skipped,
        evidence={**verdict.evidence, "unread": unread} if unread else verdict.evidence,
    )


def _of(level: Level, findings: Sequence[Finding]) -> Sequence[Finding]:
    return [finding for finding in findings if finding.level is level]


def _leading(verdict: Verdict, findings: Sequence[Finding], deviating: int) -> str:
    """The message of the first that deviates; else that of what was accepted, or the verdict's own."""
    first = next((f for level in _DEVIATES for f in _of(level, findings)), None)
    if first is not None:
        return first.message + (f" (and {deviating - 1} more)" if deviating > 1 else "")
    accepted = (finding.message for finding in findings if finding.code is Code.ACCEPTED)
    had_any = any(finding.level in _DEVIATES for finding in verdict.findings)
    return next(accepted, "") if had_any else verdict.message


def unread_before(proof: SinkProof | None, topic: str, topic_id: str | None, partition: int) -> Spans:
    """Offsets that earlier audits found to be read by no micro-batch: reading them now is a repair, no repetition.

    Without a topic id, those of any topic of the name.
    """
    return proof.unread(topic, topic_id, partition) if proof is not None else Spans()
