"""Recon's own writes in a sink's record, a Delta log or another, compared with the ledger's entries."""

from __future__ import annotations

from datetime import datetime, timedelta

from recon.checks.evidence.findings import Findings
from recon.model import (
    Code,
    DeltaCommit,
    DeltaWitness,
    EntryHead,
    LedgerSlice,
    ReconStamp,
    Witnesses,
    offsets_text,
    same_ranges,
)
from recon.model.ledger import named

_EDGE = timedelta(minutes=5)  # how long after its write a ledger entry may come, at the end of a period


def own_commits(log: DeltaWitness, pipeline: str, sink: str | None) -> list[tuple[DeltaCommit, ReconStamp]]:
    """The commits that recon made for a sink, by version."""
    commits = [commit for _, commit in sorted(log.commits.items())]
    return [(c, c.stamp) for c in commits if c.stamp is not None and c.stamp.is_of(pipeline, sink)]


def same_offsets(ledger: LedgerSlice, entry: int, stamp: ReconStamp) -> bool:
    """Whether a write carries the ranges of a ledger entry."""
    texts = ledger.offsets_texts
    text = texts[entry] if texts else offsets_text(ledger.ranges.of(entry))
    return stamp.offsets_text == text or same_ranges(stamp.offsets_text, text)


def doubled(witnesses: Witnesses) -> tuple[Code, str]:
    """The code of doubled rows in a sink, and the guarantee that it claims: perhaps only that no row is lost."""
    claimed = witnesses.guarantees.get(witnesses.sink or "", "exactly-once")
    return Code.DUPLICATE if claimed.startswith("exactly-once") else Code.REPEATED, claimed


def entry_may_follow(at: datetime, witnesses: Witnesses) -> bool:
    """Whether a write was so late that its entry need not be in this audit's slice of the ledger."""
    return at > witnesses.now or (witnesses.period_to < witnesses.now and at > witnesses.period_to - _EDGE)


def report_orphan(head: EntryHead, write: str, reason: str, findings: Findings) -> None:
    """Adds a finding for an entry without its write, which the sink calls a `write` or a `commit`."""
    sentence = f"{named(head)} has a ledger entry without the {write} that belongs to it: {reason}"
    findings.add(Code.LEDGER_ORPHAN, sentence, head=head)


def report_unrecorded(holder: str, stamp: ReconStamp, findings: Findings) -> None:
    """Adds a finding for a write that no entry records."""
    findings.add(
        Code.LEDGER_MISSING,
        f"{holder} holds {named(stamp)}, and the ledger has no entry of it; the query's next start, or `recon ledger "
        "rebuild`, restores it",
        head=stamp,
    )
