"""ledger_integrity: the chain of entries is whole and nobody edited it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from recon.checks.base import EvidenceCheck
from recon.checks.evidence.findings import Findings, ledger_of, named, no_entries, quiet
from recon.model import Code, LedgerSlice, Verdict, Witnesses
from recon.text import plural, some

# What appends, or only keeps house. A change of rows or a table put in its place is nothing a ledger needs.
_LAWFUL = re.compile(
    r"WRITE|CREATE TABLE( AS SELECT)?|OPTIMIZE|VACUUM (START|END)|(UN)?SET TBLPROPERTIES|UPGRADE PROTOCOL|"
    r"ADD (COLUMNS?|CONSTRAINT|FEATURE)|SET (TABLE|COLUMN).*|CHANGE COLUMN|CLUSTER BY|COMPUTE STATS.*|",
    re.IGNORECASE,
)


@dataclass(frozen=True, kw_only=True)
class LedgerIntegrity(EvidenceCheck):
    """The ledger's chain of entries is whole: none edited, none removed.

    Every entry carries a SHA-256 over its content, its ranges and the hash of the entry before it. This check looks
    at the seals of the whole slice, anchors included, at the history of the ledger's own table, and at the head
    of the chain that the previous audit wrote down. It needs the ledger alone. Every other check trusts what is
    verified here.

    Codes:
        TAMPERED: an entry does not match its own hash, or follows an entry that is not there; the first entries of
            the chain are missing; the entry that the previous audit saw last is gone; the ledger's table was
            changed by something else than an append.
        ATTESTED_ONLY: the ledger table's own log was cleaned up since the previous audit (warns).
        UNUSUAL: two entries follow the same entry: two queries wrote this sink at the same time.
        REBUILT: entries that were restored from the Delta log after a crash.
    """

    test: ClassVar[str] = "ledger_integrity"
    needs: ClassVar[Sequence[str]] = ("ledgers",)
    scope: ClassVar[str] = "sink"

    def judge(self, witnesses: Witnesses) -> Verdict:
        """TAMPERED fails, two entries behind one warn."""
        findings = Findings.of(witnesses)
        ledger = ledger_of(witnesses)
        if ledger is None:
            _judge_previous(witnesses, None, findings)
            return findings.verdict("") if findings.found else no_entries(witnesses)
        _judge_seals(ledger, findings)
        _judge_links(ledger, findings)
        _judge_previous(witnesses, ledger, findings)
        _judge_operations(witnesses, ledger, findings)
        rebuilt = [head for head in ledger.heads[ledger.anchors :] if head.status == "rebuilt"]
        if rebuilt:
            findings.add(
                Code.REBUILT,
                f"{plural(len(rebuilt), 'entry')} restored from the Delta log: {some(named(head) for head in rebuilt)}",
                head=rebuilt[0] if len(rebuilt) == 1 else None,
            )
        if len(ledger.heads) == ledger.anchors:
            message = quiet(ledger)
        else:
            message = f"{len(ledger.heads):,} entries match their hashes and follow each other"
        return findings.verdict(
            message,
            entries=len(ledger.heads),
            chain_head=ledger.heads[-1].entry_hash,
            ledger_version=_looked_up_to(witnesses, ledger),
        )


def _looked_up_to(witnesses: Witnesses, ledger: LedgerSlice) -> int | None:
    """The version of the ledger's table up to which its operations were judged, for the next audit to go on from."""
    known = witnesses.previous.ledger_version if witnesses.previous is not None else None
    return max((version for version, _ in ledger.operations), default=known)


def _judge_seals(ledger: LedgerSlice, findings: Findings) -> None:
    for entry in ledger.broken:
        head = ledger.heads[entry]
        findings.add(
            Code.TAMPERED,
            f"the ledger entry of {named(head)}, committed {head.committed_at:%Y-%m-%d %H:%M:%S}Z, does not match its "
            "own entry_hash: it was edited; compare it with the user_metadata of "
            + (f"version {head.sink_version} of the sink" if head.sink_version is not None else "its commit"),
            head=head,
        )


def _judge_links(ledger: LedgerSlice, findings: Findings) -> None:
    heads = ledger.heads
    seen: set[str] = set()
    followed: dict[str, int] = {}
    for i, head in enumerate(heads):
        if i < ledger.anchors - 1:
            seen.add(head.entry_hash)  # an earlier epoch's end: nothing here need follow it
            continue
        twin = followed.get(head.prev_hash)
        if head.entry_hash in seen:
            findings.add(
                Code.UNUSUAL,
                f"the ledger entry of {named(head)} is stored twice: the same append was made again",
                head=head,
            )
            continue
        if twin is not None:
            findings.add(
                Code.UNUSUAL,
                f"the ledger entries of {named(heads[twin])} and {named(head)} follow the same entry: two queries "
                "wrote this sink at the same time; make sure that only one of them runs",
                head=head,
            )
        elif i == 0 or i == ledger.anchors - 1:
            if ledger.complete and head.prev_hash:
                findings.add(
                    Code.TAMPERED,
                    f"the chain begins with {named(head)}, which follows an entry that is not there: the first "
                    "entries were removed from the ledger",
                    head=head,
                )
        elif head.prev_hash not in seen:
            findings.add(
                Code.TAMPERED,
                f"the ledger entry of {named(head)} does not follow the entry of {named(heads[i - 1])} that stands "
                "before it: an entry between them was removed, or one of the two was changed; `recon ledger rebuild` "
                "restores what the Delta log still holds",
                head=head,
            )
        followed.setdefault(head.prev_hash, i)
        seen.add(head.entry_hash)


def _judge_previous(witnesses: Witnesses, ledger: LedgerSlice | None, findings: Findings) -> None:
    """The head of the chain at the previous audit must still be there, if this slice reaches from before to after."""
    previous = witnesses.previous
    if previous is None or witnesses.period_to < previous.generated_at:
        return
    known = previous.chain_heads.get(witnesses.sink or "")
    if not known:
        return
    heads = ledger.heads if ledger is not None else ()
    reaches = ledger is None or ledger.complete or heads[0].committed_at <= previous.generated_at
    if not reaches or (heads and heads[0].prev_hash == known) or any(head.entry_hash == known for head in heads):
        return
    findings.add(
        Code.TAMPERED,
        f"the entry {known[:12]}… that ended the chain at the audit of {previous.generated_at:%Y-%m-%d %H:%M:%S}Z is "
        "no longer in the ledger: entries were removed since",
    )


def _judge_operations(witnesses: Witnesses, ledger: LedgerSlice, findings: Findings) -> None:
    since = witnesses.previous.ledger_version if witnesses.previous else None
    first = min((version for version, _ in ledger.operations), default=None)
    if since is not None and first is not None and first > since + 1:
        findings.add(
            Code.ATTESTED_ONLY,
            f"versions {since + 1} to {first - 1} of the ledger's table are cleaned up from its log: who made them "
            "nobody can tell, the hash chain alone vouches for the entries; audit at least every second day",
        )
    for version, operation in ledger.operations:
        if not _LAWFUL.fullmatch(operation.strip()) and operation.strip().upper() != "WRITE APPEND":
            findings.add(
                Code.TAMPERED,
                f"version {version} of the ledger's table was made by {operation}, where only appends are lawful: look "
                "at who ran it, and compare with the version before it",
            )
