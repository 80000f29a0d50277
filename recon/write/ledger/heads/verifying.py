"""Compares the ledger with published heads, and these with each other.

Published heads are enough for this, whoever may have written the ledger. An entry that was edited, removed, inserted or
moved changes every root above it. A ledger that was cut off is shorter than a head says. Two different histories that
were both signed cannot both be the beginning of one ledger.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

from recon.base.errors import EvidenceError, LedgerError
from recon.base.storage import Storage
from recon.base.text import plural, some
from recon.model import Code, Finding
from recon.project import Project
from recon.write.ledger.heads import leaves, timestamps
from recon.write.ledger.heads.documents import MOST_BYTES, Document, verified
from recon.write.ledger.heads.documents import read as read_document
from recon.write.ledger.heads.keys import PublicKey
from recon.write.ledger.heads.merkle import is_consistent
from recon.write.ledger.heads.notes import Head
from recon.write.ledger.heads.places import documents, is_clone, options_at
from recon.write.ledger.heads.signing import Chain, leads_to, origin_of
from recon.write.ledger.heads.tiles import TiledLeaves
from recon.write.ledger.ledger import Ledger
from recon.write.ledger.results import hashes_of_audits

_LONGEST_AUDIT = timedelta(days=2)  # between the start of an audit and its signature
_AUDITS_AT_ONCE = timedelta(hours=1)  # audits that run at the same moment may sign in another order than they read


@dataclass(frozen=True, kw_only=True)
class Compared:
    """The result of comparing: `findings`, and sentences about what the heads cover."""

    findings: tuple[Finding, ...]
    sentences: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Published:
    """The documents of a project's heads at some places, and findings about the places.

    `findings` are of files that were left out (UNUSUAL), and of places without one that is right (INCONCLUSIVE).
    """

    documents: tuple[Document, ...]
    findings: tuple[Finding, ...]


def read(places: Sequence[str], keys: Sequence[PublicKey], project: Project) -> list[Document]:
    """The documents of `published`; raises what it raises."""
    return list(published(places, keys, project).documents)


def published(places: Sequence[str], keys: Sequence[PublicKey], project: Project) -> Published:
    """The documents of the project's heads in folders and files, their signatures verified.

    Raises:
        LedgerError: a place does not exist, or none of them has a document that is right.
    """
    mine: list[Document] = []
    others: set[str] = set()
    findings: list[Finding] = []
    for place in places:
        here: list[Document] = []
        bad: list[str] = []
        unread: list[str] = []
        try:
            for where, document in _at(place, options_at(project, place), is_clone(project, place)):
                if isinstance(document, EvidenceError):
                    unread.append(str(document))
                elif isinstance(document, LedgerError):
                    bad.append(str(document))
                elif document.origin != origin_of(project):
                    others.add(document.origin)
                else:
                    _add(here, bad, document, keys, where)
        except EvidenceError as error:
            unread.append(str(error))
        if bad and not here and not unread:
            unread.append(f"no document there is right: {bad[0]}")
        for sentence in unread:
            about = f"the heads at {place} cannot be compared: {sentence}"
            findings.append(Finding(code=Code.INCONCLUSIVE, message=about))
        findings += [Finding(code=Code.UNUSUAL, message=f"{sentence}; it was left out") for sentence in bad]
        mine += here
    if not mine:
        said = f"the heads there are of {some(sorted(others))}" if others else "no document of signed heads is there"
        said = findings[0].message if findings else said
        raise LedgerError(f"there is no head of {origin_of(project)} at {some(places)}: {said}")
    return Published(documents=tuple(mine), findings=tuple(findings))


def _at(
    place: str, options: Mapping[str, str], clone: bool
) -> Iterator[tuple[str, Document | LedgerError | EvidenceError]]:
    """Every document of a folder, or the one that a file is, under whatever name; signatures are not verified."""
    folder = Storage(place, options)
    if folder.local is not None and not folder.local.exists():
        raise LedgerError(f"there are no heads at {place}: it does not exist")
    if folder.names() or (folder.local is not None and folder.local.is_dir()):
        yield from documents(folder, clone=clone)
        return
    above, _, name = place.rpartition("/")
    try:
        yield place, read_document(Storage(above or ".", options).read(name, MOST_BYTES + 1), place)
    except FileNotFoundError:
        raise LedgerError(f"there are no heads at {place}: it does not exist") from None
    except LedgerError as error:
        yield place, error


def _add(here: list[Document], bad: list[str], document: Document, keys: Sequence[PublicKey], where: str) -> None:
    """Adds a document whose signatures are right, or the sentence that says why they are not."""
    try:
        verified(document, keys, where)
        here.append(document)
    except LedgerError as error:
        bad.append(str(error))


def compare(
    project: Project,
    ledger: Ledger,
    published: Sequence[Document],
    pipeline: str | None = None,
    sink: str | None = None,
) -> Compared:
    """What the ledger, as it is now, and the published heads say of each other.

    Raises:
        LedgerError: the ledger cannot be read.
        ConfigError: timestamps are there, and the root certificates of recon.yml cannot be read.
    """
    of_chain: dict[Chain, list[Head]] = defaultdict(list)
    for document in published:
        for head in document.heads:
            if head.ledger == origin_of(project):
                of_chain[head.chain].append(head)
    heads_of_all = [head for heads in of_chain.values() for head in heads]
    changed = [Finding(code=Code.TAMPERED, message=said) for said in results_changed(ledger, heads_of_all).values()]
    findings = [*_missing_timestamps(project, published), *_timestamps(project, published), *changed]
    sentences: list[str] = []
    proofs = _growth(published)
    for chain, heads in sorted(of_chain.items()):
        if pipeline not in (None, chain[0]) or sink not in (None, chain[1]):
            continue
        heads = sorted({head.note: head for head in heads}.values(), key=lambda head: (head.size, head.at))
        tree = leaves.whole(ledger.store, *chain)
        messages = [*_forks(heads), *_faults(heads, tree), *proofs.get(chain, ())]
        findings += [
            Finding(code=Code.TAMPERED, message=message, pipeline=chain[0], sink=chain[1]) for message in messages
        ]
        findings += [
            Finding(code=Code.UNUSUAL, message=message, pipeline=chain[0], sink=chain[1]) for message in _shrunk(heads)
        ]
        newest = heads[-1]
        behind = max(tree.size - newest.size, 0)
        sentences.append(
            f"{'.'.join(chain)}: {plural(len(heads), 'head')}, the newest of {plural(newest.size, 'entry')}, signed "
            f"{newest.at:%Y-%m-%d %H:%M:%S}Z; {plural(behind, 'entry')} of the ledger behind it"
        )
    stamps = sum(document.timestamp is not None for document in published)
    if stamps and (project.heads.timestamp is None or project.heads.timestamp.roots is None):
        sentences.append(
            f"{plural(stamps, 'timestamp')} not verified: `timestamp` of heads in recon.yml has no `roots`."
        )
    missing = [".".join(chain) for chain in ledger.chains() if chain not in of_chain]
    if missing:
        sentences.append(f"No head speaks of {some(missing)}.")
    return Compared(findings=tuple(findings), sentences=tuple(sentences))


def results_changed(ledger: Ledger, heads: Iterable[Head]) -> Mapping[tuple[str, str], str]:
    """Audits whose stored results are not those that a head covers (`Head.results`), each with a sentence.

    Raises:
        LedgerError: the table of results cannot be read.
    """
    covering = {head.results: head for head in heads if head.results is not None}
    if not covering:
        return {}
    stored = hashes_of_audits(ledger.results, min(head.at for head in covering.values()) - _LONGEST_AUDIT)
    return {
        (invocation_id, expected): (
            f"the results of audit {invocation_id}, which signed heads at {head.at:%Y-%m-%d %H:%M:%S}Z, "
            + ("were edited, or some of them removed or added" if invocation_id in stored else "are gone")
            + ": what it found is no longer what the table `results` says"
        )
        for (invocation_id, expected), head in covering.items()
        if stored.get(invocation_id) != expected
    }


def _forks(heads: Sequence[Head]) -> Iterator[str]:
    """Heads of one size with different roots; `heads` ascend."""
    for head, other in pairwise(heads):
        if head.size == other.size and head.root != other.root:
            yield (
                f"{head} and {other} have different roots: two histories of the ledger were signed (a fork); find out "
                "who holds the key, and compare the copies of the ledger from then"
            )


def _faults(heads: Sequence[Head], tree: TiledLeaves) -> Iterator[str]:
    """Heads that the ledger does not lead to; `heads` ascend."""
    right = [head for head in heads if leads_to(tree, head)]
    cut_off = [head for head in heads if head.size > tree.size]
    changed = [head for head in heads if head.size <= tree.size and head not in right]
    if cut_off:
        yield (
            f"the ledger has {plural(tree.size, 'entry')} of {'.'.join(heads[0].chain)}, and {cut_off[-1]}, has more: "
            "its newest entries were removed, or an older copy was put in its place"
        )
    if changed:
        first, more = changed[0], len(changed) - 1
        others = f" (and {plural(more, 'larger one')})" if more else ""
        after = [head for head in right if head.size > first.size]
        before = max((head.size for head in right if head.size < first.size), default=0)
        if after:
            yield (
                f"the ledger leads to {after[0]}, and not to {first}{others}, which was signed of fewer entries: two "
                "histories were signed (a fork), or entries were changed between the two"
            )
        else:
            yield (
                f"the ledger does not lead to {first}{others}: of its entries {before + 1:,} to {first.size:,} one was "
                "edited, removed, inserted or put in another place since, or the whole ledger was written anew"
            )


def _shrunk(heads: Sequence[Head]) -> Iterator[str]:
    """A head that was signed later than one of more entries."""
    for earlier, later in pairwise(sorted(heads, key=lambda head: head.at)):
        if later.size < earlier.size and later.at - earlier.at > _AUDITS_AT_ONCE:
            yield (
                f"{later} has fewer entries than {earlier}: an older copy of the ledger was in its place then, or the "
                "clock of an audit was wrong"
            )


def _growth(published: Sequence[Document]) -> Mapping[Chain, Sequence[str]]:
    """What the consistency proofs of the documents themselves refute, by chain."""
    by_size: dict[tuple[str, int], list[Head]] = defaultdict(list)
    for document in published:
        for head in document.heads:
            by_size[head.origin, head.size].append(head)
    messages: dict[Chain, list[str]] = defaultdict(list)
    for document in published:
        for head in document.heads:
            old, path = document.consistency.get(head.origin, (0, ()))
            for before in by_size.get((head.origin, old), ()):
                if not is_consistent(before.root, before.size, head.root, head.size, path):
                    messages[head.chain].append(
                        f"{head} does not continue {before}, though its document says so: two histories were signed (a "
                        "fork), or the document was edited"
                    )
    return messages


def _missing_timestamps(project: Project, published: Sequence[Document]) -> Iterator[Finding]:
    """Documents without a timestamp: copies of one that has it, and others where recon.yml names an authority."""
    stamped = {document.name for document in published if document.timestamp is not None}
    without = {document.name for document in published if document.timestamp is None}
    for name in sorted(without & stamped):
        yield Finding(
            code=Code.TAMPERED,
            message=f"a copy of {name} has no timestamp, and another copy has it: somebody removed it from the first, "
            "as recon publishes the same document everywhere",
        )
    never = sorted(without - stamped)
    if project.heads.timestamp is not None and never:
        documents = f"{plural(len(never), 'document')} of heads {'has' if len(never) == 1 else 'have'} no timestamp"
        yield Finding(
            code=Code.UNUSUAL,
            message=f"{documents} ({some(never)}), and recon.yml names an authority: it was not named yet, it did not "
            "answer, or somebody removed the timestamp; the report of the audit that signed says whether it answered",
        )


def _timestamps(project: Project, published: Sequence[Document]) -> Iterator[Finding]:
    """Timestamps that are not right, or far from the time of signing."""
    authority = project.heads.timestamp
    if authority is None or authority.roots is None:
        return
    roots = project.local_path(authority.roots)
    stamps = {(document.name, document.timestamp): document for document in published}
    for (_, stamp), document in stamps.items():
        if stamp is None:
            continue
        try:
            at: datetime = timestamps.verified(stamp, document.stamped, roots, document.name)
        except LedgerError as error:
            yield Finding(code=Code.TAMPERED, message=str(error))
            continue
        late = [head for head in document.heads if abs(head.at - at) > _AUDITS_AT_ONCE]
        if late:
            yield Finding(
                code=Code.UNUSUAL,
                message=f"{late[0]} has a timestamp of {at:%Y-%m-%d %H:%M:%S}Z: the clock of the audit was wrong, or "
                "the timestamp was asked for later",
            )
