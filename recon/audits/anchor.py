"""Signs the heads of the ledger's trees after an audit and publishes them; compares the ledger with earlier heads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Protocol

from recon.base.clock import utc_now
from recon.base.errors import ReconError
from recon.base.text import plural, some
from recon.model import NOT_ANCHORED, RunResult
from recon.model.proof import Tampering
from recon.project import Project
from recon.write.ledger import Ledger
from recon.write.ledger.heads import signing
from recon.write.ledger.heads.notes import Head
from recon.write.ledger.heads.places import folder_of, publish
from recon.write.ledger.heads.verifying import results_changed

_NOT_READ_BACK = (
    "; no audit reads them there, so an older copy of the ledger shows only in `recon ledger verify --heads`"
)


class Opens(Protocol):
    """What opens the ledger: the session of the audit."""

    def ledger(self) -> Ledger:
        """The ledger."""

    def compared(self) -> Compared:
        """Its chains, compared with signed heads."""


def anchor(project: Project, session: Opens, run: RunResult) -> RunResult:
    """Signs and publishes the ledger's heads; the run with what became of it. Its results stay as they are."""
    if project.heads.key is None and project.heads.key_file is None:
        return replace(run, notes=(*run.notes, *map(project.mask, session.compared().notes)))
    try:
        done = signing.sign(project, session.ledger(), utc_now(), (run.invocation_id, run.generated_at))
    except Exception as error:  # the verdict does not depend on it
        return replace(
            run, heads=NOT_ANCHORED, notes=(*run.notes, f"the ledger's heads were not signed: {signing.why(error)}")
        )
    notes = [*done.notes, *(contradiction(head, size) for head, size in done.contradictions)]
    if done.document is None:
        return replace(run, heads=NOT_ANCHORED, notes=(*run.notes, *map(project.mask, notes)))
    published, failed = publish(project, done.document)
    notes += [f"the ledger's heads were not published at {reason}" for reason in failed]
    heads = plural(len(done.document.heads), "head")
    said = f"{heads} signed, published at {some(published)}" if published else f"{heads} signed, {NOT_ANCHORED}"
    if published and not any(folder_of(project, place) for place in project.heads.publish):
        said += _NOT_READ_BACK
    return replace(run, heads=said, notes=(*run.notes, *map(project.mask, notes)))


@dataclass(frozen=True)
class Compared:
    """The ledger's chains, compared with the signed heads that are known here.

    `contradicted` are those whose entries do not lead to their head; `unknown` is why others could not be compared.
    `unread` names a place that could not be read, where any of them may have a larger head. `results` are the chains
    whose head covers other results of its audit than are stored: when it was signed, and a sentence. `notes` are what
    an audit says of the places.
    """

    contradicted: Mapping[signing.Chain, Tampering] = field(default_factory=dict)
    unknown: Mapping[signing.Chain, str] = field(default_factory=dict)
    unread: str = ""
    results: Mapping[signing.Chain, tuple[datetime, str]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def compared(project: Project, opened: Callable[[], Ledger]) -> Compared:
    """Compares every chain of recon.yml with its largest signed head; raises nothing, `opened` gives the ledger."""
    try:
        keys = signing.public_keys(project)
        if not keys:
            return Compared()
        known = signing.known_heads(project, keys)
        ledger = opened()
    except Exception as error:  # whatever a place or a store raises
        return Compared(unknown=dict.fromkeys(signing.chains_of(project), signing.why(error)))
    contradicted, unknown = {}, {}
    heads = {chain: known.newest[chain] for chain in signing.chains_of(project) if chain in known.newest}
    for chain, head in heads.items():
        try:
            tree, _ = signing.tree_of(project, ledger, chain, head)
            if not signing.leads_to(tree, head):
                has = f"{tree.size} entries" if tree.size < head.size else "other entries"
                about = f"{has}, head of {head.size}: {head.root.hex()}"
                contradicted[chain] = Tampering(contradiction(head, tree.size), about)
        except Exception as error:  # whatever its entries hold: the other chains are compared all the same
            unknown[chain] = signing.why(error)
    results: Mapping[signing.Chain, tuple[datetime, str]] = {}
    try:
        results = _results(ledger, heads)
    except Exception as error:  # whatever a store raises
        unknown = {**dict.fromkeys(heads, signing.why(error)), **unknown}
    return Compared(contradicted, unknown, project.mask("; ".join(known.unread)), results, known.notes)


def _results(ledger: Ledger, heads: Mapping[signing.Chain, Head]) -> Mapping[signing.Chain, tuple[datetime, str]]:
    changed = results_changed(ledger, heads.values())
    of_heads = ((chain, head.at, changed.get(head.results or ("", ""))) for chain, head in heads.items())
    return {chain: (at, sentence) for chain, at, sentence in of_heads if sentence}


def contradiction(head: Head, size: int) -> str:
    """What it means that entries do not lead to a signed head."""
    advice = "no new head of it is signed (a ledger that was rebuilt needs another `origin` in heads)"
    if size < head.size:
        return (
            f"the ledger has {plural(size, 'entry')} and {head}, has more: entries were removed, or an older copy was "
            f"put in its place; {advice}"
        )
    return (
        f"the ledger's entries do not lead to {head}: entries were edited, removed or put in another order since; "
        f"{advice}"
    )


def signed(project: Project, until: datetime | None = None) -> Mapping[signing.Chain, str]:
    """What a report says of each chain's largest signed head, signed up to a time; nothing of those without one."""
    try:
        known = signing.known_heads(project, signing.public_keys(project), until)
    except ReconError:  # a key that is none; an audit says so
        return {}
    places = project.mask(some(place.name for place in project.heads.publish))
    where = f"published at {places}" if places else NOT_ANCHORED
    return {
        chain: f"{plural(head.size, 'entry')}, signed {head.at:%Y-%m-%d %H:%M:%S} UTC, {where}"
        for chain, head in known.newest.items()
    }
