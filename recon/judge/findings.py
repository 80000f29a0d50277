"""The findings of one sink, capped for a report, and the sentences that evidence checks share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any

from recon.base.text import some
from recon.judge.coverage import Key
from recon.model import Code, EntryHead, Finding, LedgerSlice, Level, TableCommit, Verdict, Witnesses
from recon.model.grouping import grouped
from recon.model.ledger import Numbered, named
from recon.model.offsets import Spans

# Of a function of the user's that left a micro-batch without a commit.
WROTE_NOTHING = (
    "because its function filtered every record, because it failed and raised no error, or because Delta dropped the "
    "write under a number that it had; where the function drops no record, say `rows: {filters: false}`"
)
LIMIT = 1000  # findings that a check returns; the last one says how many more there were
NOT_LISTED = "not listed: "  # begins `Finding.about` of that one


@dataclass(frozen=True)
class Findings:
    """Collects the findings of one (pipeline, sink)."""

    pipeline: str
    sink: str | None
    items: list[Finding] = field(default_factory=list)

    @classmethod
    def of(cls, witnesses: Witnesses) -> Findings:
        """An empty collection for the pipeline and the sink of these witnesses."""
        return cls(witnesses.pipeline, witnesses.sink)

    def add(
        self,
        code: Code,
        message: str,
        *,
        head: Numbered | None = None,
        key: Key | None = None,
        span: tuple[int, int] | None = None,
        **where: Any,
    ) -> None:
        """Adds a finding about the micro-batch of `head`, the topic partition `key`, and offsets [start, end).

        `where` are further fields of `Finding`.
        """
        if head is not None:
            where = {"batch_id": head.batch_id, "epoch": head.epoch, **where}
        if key is not None:
            where |= {"topic": key.topic, "partition": key.partition}
        if span is not None:
            where |= {"start_offset": span[0], "end_offset": span[1]}
        self.items.append(Finding(code=code, message=message, pipeline=self.pipeline, sink=self.sink, **where))

    def add_for_all(self, code: Code, heads: Sequence[EntryHead], message: str) -> None:
        """Adds one finding about several micro-batches, if any, of a code that does not stay open."""
        if heads:
            ids = some(head.batch_id for head in heads)
            self.add(code, f"{message}: batch_id {ids}", head=heads[0] if len(heads) == 1 else None)

    def add_for_each(self, code: Code, heads: Sequence[EntryHead], message: str) -> None:
        """Adds a finding about each micro-batch: what stays open is accepted for those that somebody saw."""
        for head in heads:
            self.add(code, f"{named(head)}: {message}", head=head)

    def __contains__(self, code: Code) -> bool:
        return any(finding.code is code for finding in self.items)

    def verdict(self, message: str, **evidence: Any) -> Verdict:
        """The verdict on all findings; `message` stands when nothing deviates.

        All are counted; at most `LIMIT` are returned, the worst first.
        """
        worst_first = sorted(self.items, key=lambda f: f.level.rank)
        deviating = [f for f in worst_first if f.level is not Level.INFO]
        if deviating:
            more = len(deviating) - 1
            message = deviating[0].message + (f" (and {more} more)" if more else "")
        verdict = Verdict.of_findings(worst_first, message=message, **evidence)
        return replace(verdict, findings=tuple(self._capped(worst_first))) if len(self.items) > LIMIT else verdict

    def _capped(self, findings: Sequence[Finding]) -> Sequence[Finding]:
        kept, left = findings[: LIMIT - 1], findings[LIMIT - 1 :]
        counts = Counter(str(f.code) for f in left)
        by_code = ", ".join(f"{count} {code}" for code, count in counts.most_common())
        # Who accepts them accepts these, and not as many others.
        digest = sha256(repr([f.subject for f in left]).encode()).hexdigest()[:8]
        rows = [f.rows for f in left if f.rows is not None and f.code is left[0].code]
        last = Finding(
            code=left[0].code,
            message=f"{len(left)} more findings are not listed: {by_code} (digest {digest})",
            about=f"{NOT_LISTED}{digest}",
            rows=sum(rows) if len(rows) == len(left) else None,
            pipeline=self.pipeline,
            sink=self.sink,
        )
        return [*kept, last]


def exactly(values: Iterable[object]) -> str:
    """A digest of all these values, in their order, for `Finding.about`: a message names the first of them."""
    return sha256(repr([str(value) for value in values]).encode()).hexdigest()[:16]


def commit_of(commit: TableCommit) -> str:
    """What tells a commit of others from every other one, for `Finding.about`; numbers begin anew in a new table."""
    return f"version {commit.version} of {commit.timestamp:%Y-%m-%d %H:%M:%S}Z"


def every_number(heads: Iterable[Numbered]) -> str:
    """The numbers of micro-batches, none left out: what is said of these is accepted for these alone."""
    of_epoch = grouped((head.epoch, head.batch_id) for head in heads)
    parts = []
    for epoch, ids in of_epoch.items():
        runs = (f"{a} to {b - 1}" if b - a > 1 else f"{a}" for a, b in Spans.of_offsets(ids))
        parts.append(f"{', '.join(runs)} (epoch {epoch})")
    return f"batch_id {', '.join(parts)}"


def no_entries(witnesses: Witnesses, findings: Findings | None = None) -> Verdict:
    """The verdict without an entry in the ledger: what was found elsewhere, else `error`; never `pass`."""
    if findings is not None and findings.items:
        return findings.verdict("")
    rest = ", so nothing can be proved; let the query write one micro-batch through the hook, or run "
    rest += "`recon ledger rebuild`"
    if witnesses.observed:
        rest = ": of what its query wrote, nothing could be entered yet; compare checkpoint and target in recon.yml "
        rest += "with the query's"
    return Verdict(unproved=f"the ledger holds no entry for pipeline {witnesses.pipeline}, sink {witnesses.sink}{rest}")


def quiet(slice_: LedgerSlice) -> str:
    """The message of a period without a micro-batch."""
    last = slice_.heads[-1]
    return f"no micro-batch in the period; the ledger ends with {named(last)} at {last.committed_at:%Y-%m-%d %H:%M:%S}Z"


def offsets(start: int, end: int) -> str:
    """A range in a sentence.

    >>> offsets(3, 9)
    'offsets [3, 9)'
    """
    return f"offsets [{start}, {end})"
