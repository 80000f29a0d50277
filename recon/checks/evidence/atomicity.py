"""atomicity: every route of a micro-batch was written, and together the routes hold what was read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter
from typing import ClassVar, NamedTuple

from typing_extensions import override

from recon.base.text import plural, some
from recon.checks.base import EvidenceCheck
from recon.judge.coverage import Key, by_key, coverage, ranges_of
from recon.judge.findings import Findings
from recon.model import CheckpointWitness, Code, EntryHead, LedgerSlice, Verdict, Witnesses, known
from recon.model.ledger import named
from recon.model.offsets import Span, Spans

Which = tuple[str, int]  # query_id, batch_id: what the sinks of one query have in common, whatever their epochs


@dataclass(frozen=True, kw_only=True)
class Atomicity(EvidenceCheck):
    """A micro-batch that is in some sinks of the pipeline and not in others, or rows lost between its routes.

    Of a pipeline with `routes` the sinks they lead to are judged, of others all sinks. First: a micro-batch that one
    sink's ledger has, every other's has too, unless its offsets came there with another micro-batch or a repair. The
    newest one may still be on its way; Spark's checkpoint, where it can be read, says whether it is finished. A sink
    that was added later is judged from its first micro-batch on. Second, for routes: the numbers add up. A route took
    in rows (written, quarantined, reduced by the sink itself); other records were counted for other routes, or dropped
    by the transform. Together these are as many as were read. It needs the ledger only; with fewer than two sinks it is
    skipped.

    Example:
        data_tests:
          - atomicity
    """

    test: ClassVar[str] = "atomicity"
    uses: ClassVar[Sequence[str]] = ("checkpoint",)

    @override
    def judge(self, witnesses: Witnesses) -> Verdict:
        sinks = {
            name: _Sink(ledger)
            for name, ledger in (known(witnesses.ledgers) or {}).items()
            if not witnesses.routed or name in witnesses.routed
        }
        if len(sinks) < 2:
            why = f"pipeline {witnesses.pipeline} has one sink, so there are no two sinks to compare"
            return Verdict(skipped=why, message=why)
        if not any(sink.batches for sink in sinks.values()):
            return Verdict(
                unproved=f"the ledger holds no entry of any sink of pipeline {witnesses.pipeline}, so nothing can be "
                "proved; let the query write one micro-batch through the hook"
            )
        return _Evaluation(witnesses, sinks, Findings.of(witnesses)).verdict()


_COUNTS = ("rows_read", "rows_written", "rows_quarantined", "rows_filtered")
_counts = attrgetter(*_COUNTS)


class _Counts(NamedTuple):
    """What a sink counted of one micro-batch, or of a repair."""

    read: int
    written: int
    quarantined: int
    filtered: int

    @classmethod
    def of(cls, values: Iterable[int | None]) -> _Counts | None:
        """The counts; None where one of them is not known."""
        known_values = [value for value in values if value is not None]
        return cls(*known_values) if len(known_values) == len(cls._fields) else None

    @property
    def taken(self) -> int:
        """Rows in the sink or in its quarantine."""
        return self.written + self.quarantined

    @property
    def lost(self) -> int:
        """Rows that are not accounted for; below 0 where the transform makes rows."""
        return self.read - self.taken - self.filtered


@dataclass
class _Sink:
    """One sink's slice of the ledger, by micro-batch."""

    slice: LedgerSlice
    batches: dict[Which, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for i, head in enumerate(self.slice.heads):
            if head.is_micro_batch:
                self.batches.setdefault((head.query_id, head.batch_id), []).append(i)

    def head(self, which: Which) -> EntryHead:
        """The first entry of a micro-batch."""
        return self.slice.heads[self.batches[which][0]]

    def judged(self, which: Which) -> bool:
        """Whether an entry of it belongs to the period."""
        return any(i >= self.slice.anchors for i in self.batches.get(which, ()))

    def again(self, which: Which) -> bool:
        """Whether one query used the number in two epochs, so that numbers alone do not tell them apart."""
        return len({self.slice.heads[i].epoch for i in self.batches.get(which, ())}) > 1

    @cached_property
    def first(self) -> EntryHead | None:
        """The entry that the chain begins with; None when that is not in the slice or was removed."""
        heads = [head for head in self.slice.heads if head.is_micro_batch]
        begins = self.slice.complete and bool(self.slice.heads) and not self.slice.heads[0].prev_hash
        return min(heads, key=lambda head: head.started_at) if begins and heads else None

    @cached_property
    def covered(self) -> Mapping[Key, Spans]:
        """All offsets that the slice's entries read."""
        return {
            key: Spans.of((s.start, s.end) for of in incarnations for s in of.stretches if s.end > s.start)
            for key, incarnations in coverage(self.slice).incarnations.items()
        }

    def lacks(self, offsets_read: Mapping[Key, Spans]) -> list[tuple[Key, Span]]:
        """Those of the offsets that no entry of this sink read."""
        return [
            (key, span) for key, spans in offsets_read.items() for span in spans.minus(self.covered.get(key, Spans()))
        ]

    def known(self, which: Which, key: str) -> list[int]:
        """The different values that entries of a micro-batch have for a count, the first first."""
        heads = [self.slice.heads[i] for i in self.batches[which]]
        if key in ("rows_read", "rows_filtered"):
            # A restored entry knows what the sink itself left out, and nothing of the other routes.
            heads = [head for head in heads if not head.is_uncounted or head.rows_read is not None]
        values = (getattr(head, key) for head in heads)
        return list(dict.fromkeys(value for value in values if value is not None))

    def repaired(self, which: Which) -> int:
        """Rows that came to the sink by repairs which read offsets of a micro-batch again, and lost none."""
        mine = self._ranges(self.batches[which][0])
        of_repairs = (
            _Counts.of(_counts(head))
            for i, head in enumerate(self.slice.heads)
            if head.is_repair and any(mine.get(k, Spans()).intersect(spans) for k, spans in self._ranges(i).items())
        )
        return sum(counts.taken for counts in of_repairs if counts is not None and not counts.lost)

    def _ranges(self, entry: int) -> Mapping[Key, Spans]:
        return by_key(ranges_of(self.slice, entry))

    def counts(self, which: Which) -> _Counts | None:
        """The counts of a micro-batch; what a restored entry lacks, its replay may have."""
        return _Counts.of([next(iter(self.known(which, key)), None) for key in _COUNTS])


@dataclass
class _Evaluation:
    """The sinks of one pipeline against each other."""

    witnesses: Witnesses
    sinks: Mapping[str, _Sink]
    findings: Findings
    later: dict[str, list[EntryHead]] = field(default_factory=dict)
    otherwise: dict[str, list[EntryHead]] = field(default_factory=dict)
    landed: int = 0
    unjudged: int = 0
    read: int = 0
    taken: int = 0

    def _judge(self) -> None:
        for which in self.order:
            if any(sink.judged(which) for sink in self.sinks.values()):
                has = [name for name, sink in self.sinks.items() if which in sink.batches]
                self._judge_landing(which, has)
                self._judge_counts(which, has)
        self._judge_repairs()
        self._report_silent()
        for name, heads in self.later.items():
            others = f"{plural(len(heads), 'micro-batch')} that other sinks have, the last of them {named(heads[-1])}"
            self._of(name).add(Code.EXPLAINED, f"sink {name} begins after {others}: it was added later")
        for name, heads in self.otherwise.items():
            message = f"the offsets of {some(named(head) for head in heads)} came to sink {name} with other writes"
            self._of(name).add(Code.EXPLAINED, message)

    @cached_property
    def order(self) -> Sequence[Which]:
        """Every micro-batch, by the time of its last commit."""
        times = [(sink.head(which).committed_at, which) for sink in self.sinks.values() for which in sink.batches]
        last = {which: at for at, which in sorted(times)}
        return sorted(last, key=lambda which: (last[which], which))

    def _judge_landing(self, which: Which, has: Sequence[str]) -> None:
        """Whether every sink has a micro-batch."""
        head, whole = self.sinks[has[0]].head(which), True
        for name, lacking in self._lacking(which, has):
            if name in has and not lacking:
                continue
            first = self.sinks[name].first
            if first is not None and head.committed_at <= first.started_at:
                self.later.setdefault(name, []).append(head)
            elif not lacking:
                self.otherwise.setdefault(name, []).append(head)
            else:
                whole = False
                self._report_partial(name, has, head, lacking, newest=which == self.order[-1])
        self.landed += whole

    def _lacking(self, which: Which, has: Sequence[str]) -> Sequence[tuple[str, Sequence[tuple[Key, Span]]]]:
        """The sinks that may lack a micro-batch, and which of its offsets none of their entries read.

        Where one query used the number in two epochs, offsets alone tell.
        """
        doubtful = any(sink.again(which) for sink in self.sinks.values())
        names = [name for name, sink in self.sinks.items() if sink.batches and (doubtful or name not in has)]
        offsets_read = self._offsets_read(which, has) if names else {}
        return [(name, self.sinks[name].lacks(offsets_read)) for name in names]

    def _of(self, sink: str) -> Findings:
        """The same collection, for a finding about one sink."""
        return Findings(self.findings.pipeline, sink, self.findings.items)

    def _offsets_read(self, which: Which, has: Sequence[str]) -> Mapping[Key, Spans]:
        slices = [(self.sinks[name].slice, entry) for name in has for entry in self.sinks[name].batches[which]]
        offsets_read = by_key(each for slice_, entry in slices for each in ranges_of(slice_, entry))
        return dict(sorted(offsets_read.items()))

    def _report_partial(
        self, sink: str, has: Sequence[str], head: EntryHead, lacking: Sequence[tuple[Key, Span]], newest: bool
    ) -> None:
        where = some(f"{key} {key.offsets(*span)}" for key, span in lacking)
        others = [name for name in has if name != sink]
        sentence = (
            f"micro-batch {head.batch_id} of query {head.query_id} is in {some(others)} and not in {sink} ({where})"
        )
        if newest and not self._finished(head):
            message = f"{sentence}: it is the newest, and Spark tries it again until every sink has it"
            self._of(sink).add(Code.INFLIGHT, message, head=head)
            return
        key, span = lacking[0] if len(lacking) == 1 else (None, None)
        self._of(sink).add(
            Code.PARTIAL,
            f"{sentence}: its write failed and was skipped, or its ledger entry is gone; compare ledger_integrity, "
            "then read exactly this range once more into that sink",
            head=head,
            key=key,
            span=span,
        )

    def _finished(self, head: EntryHead) -> bool:
        """Whether Spark will not try the micro-batch again, as far as the checkpoint tells."""
        checkpoint = self.witnesses.checkpoint
        if not isinstance(checkpoint, CheckpointWitness) or checkpoint.query_id != head.query_id:
            return False
        if self.witnesses.period_to < self.witnesses.now:  # the other sinks may have it behind the period's end
            return False
        return any(batch.batch_id == head.batch_id and batch.committed for batch in checkpoint.batches)

    def _report_silent(self) -> None:
        order = self.order
        for name in (name for name, sink in self.sinks.items() if not sink.batches):
            if len(order) > 1:
                message = (
                    f"the ledger has no entry of sink {name}, and of others {plural(len(order), 'micro-batch')}: if it "
                    "is new, restart the query and it begins with the next one; else run `recon ledger rebuild`"
                )
                self._of(name).add(Code.INCONCLUSIVE, message, about="no entry of the sink")
            else:
                has = [other for other in self.sinks if order[0] in self.sinks[other].batches]
                lacking = self.sinks[name].lacks(self._offsets_read(order[0], has))
                self._report_partial(name, has, self.sinks[has[0]].head(order[0]), lacking, newest=True)

    # -- counts --------------------------------------------------------------------------------------------------

    def _judge_counts(self, which: Which, has: Sequence[str]) -> None:
        """Whether each route took in what was routed to it, and all together no more than was read."""
        if not self.witnesses.routed:
            return
        for name in has:
            self._judge_attempts(name, which)
        counts = {name: counted for name in has if (counted := self.sinks[name].counts(which)) and counted.lost >= 0}
        if len(counts) < len(has):
            self.unjudged += 1
            return
        for name, counted in counts.items():
            self._report_lost(name, self.sinks[name].head(which), counted)
            self.taken += counted.taken
        self.read += max(counted.read for counted in counts.values())
        self._judge_given(self.sinks[has[0]].head(which), counts)

    def _judge_given(self, head: EntryHead, counts: Mapping[str, _Counts]) -> None:
        """Where a route read less because it trimmed what it had, the sum says nothing."""
        reads = {counted.read for counted in counts.values()}
        given = sum(counted.read - counted.filtered for counted in counts.values())
        if len(reads) == 1 and given > max(reads):
            message = (
                f"{named(head)}: {plural(max(reads), 'row')} were read, and {given:,} given to {some(counts)}: some "
                "are in two routes, because `by` or the transform changed between two attempts"
            )
            self.findings.add(Code.DUPLICATE, message, head=head)

    def _judge_repairs(self) -> None:
        """Whether a route took in what a repair routed to it; the other routes have no such entry to compare."""
        for name, sink in self.sinks.items():
            for head in sink.slice.heads[sink.slice.anchors :]:
                if self.witnesses.routed and head.is_repair and (counts := _Counts.of(_counts(head))):
                    self._report_lost(name, head, counts)

    def _report_lost(self, name: str, head: EntryHead, counts: _Counts) -> None:
        """Rows that were routed to a sink and are not accounted for.

        Rows that came there when offsets of a micro-batch were read again may be these: rows alone can tell.
        """
        if counts.lost <= 0:
            return
        repaired = 0 if head.is_repair else self.sinks[name].repaired((head.query_id, head.batch_id))
        lost = f"{named(head)} of sink {name}: {plural(counts.lost, 'row')} that were routed to it"
        if counts.lost <= repaired:
            code, step = Code.EXPLAINED, "source_rows tells whether each offset has its own"
            rest = f"did not arrive, and repairs read its offsets again and wrote {plural(repaired, 'row')}: {step}"
        else:
            code, step = Code.PARTIAL, "look for a nondeterministic transform or `by`; source_rows names the offsets"
            rest = f"are neither in it nor in its quarantine: {step}"
        self._of(name).add(code, f"{lost} {rest}", head=head)

    def _judge_attempts(self, name: str, which: Which) -> None:
        """A retry that counts a route anew must count what the first attempt did."""
        sink = self.sinks[name]
        if sink.again(which):
            return
        for key, of in (("rows_read", "read"), ("rows_filtered", "for other routes or dropped")):
            values = sink.known(which, key)
            if len(values) > 1:
                head = sink.head(which)
                message = (
                    f"{named(head)} of sink {name} was counted as {values[0]:,} rows {of} when it was written, and as "
                    f"{values[-1]:,} on a retry: the transform or `by` does not give the same each time, so a row may "
                    "be in two routes or in none"
                )
                self._of(name).add(Code.NONDETERMINISTIC, message, head=head)

    def verdict(self) -> Verdict:
        """Judges every micro-batch of the period."""
        self._judge()
        message = f"{plural(self.landed, 'micro-batch')} are in every sink: {some(self.sinks)}"
        if self.witnesses.routed and self.read:
            message += f"; of {plural(self.read, 'row')} read {self.taken:,} are in a route or in quarantine"
        return self.findings.verdict(
            message,
            sinks=list(self.sinks),
            landed=self.landed,
            counts_unknown=self.unjudged,
            rows_read=self.read,
            rows_in_routes=self.taken,
        )
