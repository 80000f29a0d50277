"""The findings of one sink, capped for a report, and the sentences that evidence checks share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from recon.model import Code, EntryHead, Finding, LedgerSlice, Level, Unavailable, Verdict, Witnesses
from recon.model.ledger import named

LIMIT = 1000  # findings that a check returns; the last one says how many more there were
_ORDER = (Level.FAIL, Level.UNPROVED, Level.WARN, Level.INFO)


@dataclass(frozen=True)
class Findings:
    """Collects the findings of one (pipeline, sink)."""

    pipeline: str
    sink: str | None
    found: list[Finding] = field(default_factory=list)

    @classmethod
    def of(cls, witnesses: Witnesses) -> Findings:
        """An empty collection for what these witnesses speak of."""
        return cls(witnesses.pipeline, witnesses.sink)

    def add(self, code: Code, message: str, *, head: EntryHead | None = None, **where: Any) -> None:
        """One more; `head` names the micro-batch, `where` are further fields of `Finding`."""
        if head is not None:
            where = {"batch_id": head.batch_id, "epoch": head.epoch, **where}
        self.found.append(Finding(code=code, message=message, pipeline=self.pipeline, sink=self.sink, **where))

    def __contains__(self, code: Code) -> bool:
        return any(finding.code is code for finding in self.found)

    def verdict(self, message: str, **evidence: Any) -> Verdict:
        """The verdict on everything found; `message` stands when nothing deviates.

        All findings are counted; at most `LIMIT` are returned, the heaviest first.
        """
        worst_first = sorted(self.found, key=lambda f: _ORDER.index(f.level))
        verdict = Verdict.of_findings(worst_first, message="", **evidence)
        deviating = [f for f in worst_first if f.level is not Level.INFO]
        if deviating:
            more = len(deviating) - 1
            message = deviating[0].message + (f" (and {more} more)" if more else "")
        return replace(verdict, message=message, findings=tuple(self._capped(worst_first)))

    def _capped(self, findings: Sequence[Finding]) -> Sequence[Finding]:
        if len(findings) <= LIMIT:
            return findings
        kept, left = findings[: LIMIT - 1], findings[LIMIT - 1 :]
        counts = Counter(str(f.code) for f in left)
        by_code = ", ".join(f"{count} {code}" for code, count in counts.most_common())
        last = Finding(
            code=left[0].code,
            message=f"{len(left)} more findings are not listed: {by_code}",
            pipeline=self.pipeline,
            sink=self.sink,
        )
        return [*kept, last]


def ledger_of(witnesses: Witnesses) -> LedgerSlice | None:
    """The sink's slice of the ledger; None when the ledger holds no entry of it."""
    if isinstance(witnesses.ledgers, Unavailable) or witnesses.sink is None:
        return None
    found = witnesses.ledgers.get(witnesses.sink)
    return found if found is not None and len(found.heads) else None


def no_entries(witnesses: Witnesses) -> Verdict:
    """Nothing in the ledger is no proof of anything: the verdict is `error`, never `pass`."""
    return Verdict(
        unproved=f"the ledger holds no entry for pipeline {witnesses.pipeline}, sink {witnesses.sink}, so nothing "
        "can be proved; let the query write one micro-batch through the hook, or run `recon ledger rebuild`"
    )


def quiet(slice_: LedgerSlice) -> str:
    """What a check says of a period without a micro-batch."""
    last = slice_.heads[-1]
    return f"no micro-batch in the period; the ledger ends with {named(last)} at {last.committed_at:%Y-%m-%d %H:%M:%S}Z"


def offsets(start: int, end: int) -> str:
    """A range in a sentence.

    >>> offsets(3, 9)
    'offsets [3, 9)'
    """
    return f"offsets [{start}, {end})"


__all__ = [
    "LIMIT",
    "Findings",
    "ledger_of",
    "named",
    "no_entries",
    "offsets",
    "quiet",
]
