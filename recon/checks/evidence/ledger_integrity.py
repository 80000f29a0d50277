"""ledger_integrity: the chain of entries is whole and unedited."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from typing_extensions import override

from recon.checks.base import EvidenceCheck
from recon.judge.case import SinkCase
from recon.judge.findings import Findings, no_entries, quiet
from recon.model import ChainEnd, Code, EntryHead, LedgerSlice, Unavailable, Verdict, Witnesses, known
from recon.model.integrity import verify


@dataclass(frozen=True, kw_only=True)
class LedgerIntegrity(EvidenceCheck):
    """The ledger's chain of entries is whole: none edited, none removed.

    Every entry carries a SHA-256 over its content, its ranges and the hash of the entry before it. This check verifies
    the hashes of the period's entries, and of those that the period continues from. It verifies the history of the
    ledger's own table, and that the last entry of the previous audit is still there. It needs the ledger alone. Every
    other check relies on what is verified here.
    """

    test: ClassVar[str] = "ledger_integrity"
    scope: ClassVar[str] = "sink"

    @override
    def judge(self, witnesses: Witnesses) -> Verdict:
        findings, ledger = Findings.of(witnesses), SinkCase(witnesses).entered
        findings.items.extend(verify(ledger))
        _judge_previous(witnesses, findings)
        _judge_states(witnesses, findings)
        _judge_position(witnesses, ledger.heads, findings)
        if not ledger.heads:
            return no_entries(witnesses, findings)
        _judge_history(witnesses, ledger, findings)
        if len(ledger.heads) == ledger.anchors:
            message = quiet(ledger)
        else:
            message = f"{len(ledger.heads):,} entries match their hashes and follow each other"
        return findings.verdict(
            message,
            entries=len(ledger.heads),
            chain_head=ledger.heads[-1].entry_hash,
            chain_position=ledger.heads[-1].sequence,
            ledger_version=_looked_up_to(witnesses, ledger),
            judged=_judged(ledger),
            proof_states=witnesses.proofs.lengths.get(witnesses.sink or "", 0),
            erasures=list(witnesses.proofs.erasures.get(witnesses.sink or "", ())),
        )


def _judged(ledger: LedgerSlice) -> list[int]:
    """The sequences of the first and the last judged entry; empty where there is none."""
    judged = ledger.heads[ledger.anchors :]
    return [judged[0].sequence, judged[-1].sequence] if judged else []


def _looked_up_to(witnesses: Witnesses, ledger: LedgerSlice) -> int | None:
    """The version of the ledger's table up to which its operations were judged, for the next audit to go on from."""
    previous = known(witnesses.previous)
    before = previous.ledger_version if previous is not None else None
    return max((version for version, _ in ledger.operations), default=before)


def _judge_previous(witnesses: Witnesses, findings: Findings) -> None:
    if isinstance(witnesses.previous, Unavailable):
        reason = witnesses.previous.reason
        message = f"how far the chain had come at earlier audits cannot be compared: {reason}"
        findings.add(Code.INCONCLUSIVE, message, about="chain at earlier audits")


def _judge_states(witnesses: Witnesses, findings: Findings) -> None:
    """The state that earlier audits left of the sink must stand as they left it."""
    sink, proofs = witnesses.sink or "", witnesses.proofs
    if sink in proofs.damaged:
        damage = proofs.damaged[sink]
        lost = (
            "this audit judged the whole ledger; what the results of the last 30 days refute is open again, also where "
            "it was accepted since, and what is older may be forgotten"
        )
        findings.add(Code.TAMPERED, f"{damage.sentence}; {lost}", about=damage.about)
    if sink in proofs.erasures_edited:
        findings.add(Code.TAMPERED, proofs.erasures_edited[sink], about=f"erasures {proofs.erasures.get(sink)}")
    if sink in proofs.erasures_unknown:
        message = f"what was erased on somebody's request cannot be read: {proofs.erasures_unknown[sink]}"
        findings.add(Code.INCONCLUSIVE, message, about="erasures")
    for erasure in proofs.erased.get(sink, ()):
        findings.add(Code.ERASED, erasure.sentence)
    if sink in proofs.contradicted:
        conflict = proofs.contradicted[sink]
        findings.add(Code.TAMPERED, conflict.sentence, about=conflict.about)
    if sink in proofs.results_changed:
        sentence = (
            f"{proofs.results_changed[sink]}; what it refuted is in the proof and stays open, and what else its "
            "results recorded for later audits may be forgotten"
        )
        findings.add(Code.TAMPERED, sentence, about=f"results of {proofs.of_sink[sink].invocation_id}")
    if sink in proofs.heads_unknown:
        message = f"whether the entries lead to the head that was signed is not known: {proofs.heads_unknown[sink]}"
        findings.add(Code.INCONCLUSIVE, message, about="signed heads")
    if sink in proofs.unreadable:
        lost = "what they refuted is not known; this audit judged the whole ledger"
        message = f"the state that earlier audits left cannot be read ({proofs.unreadable[sink]}): {lost}"
        findings.add(Code.INCONCLUSIVE, message, about="proof")


def _judge_position(witnesses: Witnesses, heads: Sequence[EntryHead], findings: Findings) -> None:
    """The newest entry that earlier audits judged must stand where it stood."""
    known_end = _known_end(witnesses)
    if known_end is None:
        return
    at = next((head for head in heads if head.sequence == known_end.sequence), None)
    # A period that ends before now leaves out entries that are there.
    unbounded = witnesses.period_to >= witnesses.now
    if at is not None and at.entry_hash != known_end.entry_hash:
        message = (
            f"entry {at.sequence} of the ledger is another one than at the audit of {known_end.at:%Y-%m-%d %H:%M:%S}Z: "
            "entries were replaced since"
        )
        findings.add(Code.TAMPERED, message, head=at)
    elif at is None and unbounded and (heads[-1].sequence if heads else 0) < known_end.sequence:
        message = (
            f"the ledger has no entry {known_end.sequence} any more, which the audit of "
            f"{known_end.at:%Y-%m-%d %H:%M:%S}Z saw: entries were removed since"
        )
        findings.add(Code.TAMPERED, message, about=f"entry {known_end.sequence} {known_end.entry_hash}")


def _known_end(witnesses: Witnesses) -> ChainEnd | None:
    """The newest entry that was judged, as the proof has it; where nothing is proved yet, the newest that was read."""
    sink, previous = witnesses.sink or "", known(witnesses.previous)
    proof = witnesses.proofs.of_sink.get(sink)
    if proof is not None and proof.position:
        return ChainEnd(proof.position, proof.chain_head, proof.at)
    return None if previous is None else previous.chain_ends.get(sink)


def _judge_history(witnesses: Witnesses, ledger: LedgerSlice, findings: Findings) -> None:
    """The history of the ledger's table must reach back to the version that the previous audit saw last."""
    previous = known(witnesses.previous)
    since = previous.ledger_version if previous else None
    first = min((version for version, _ in ledger.operations), default=None)
    if since is not None and first is not None and first > since + 1:
        findings.add(
            Code.ATTESTED_ONLY,
            f"versions {since + 1} to {first - 1} of the ledger's table are cleaned up from its log: who wrote them "
            "is unknown, and the hash chain is the only evidence for the entries; audit at least every second day",
        )
