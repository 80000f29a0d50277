"""Signs the heads of a project's trees: what an audit does when everything else is stored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache

from recon.base.errors import ConfigError, EvidenceError, LedgerError, ReconError
from recon.base.storage import Storage
from recon.base.text import first_line, plural
from recon.project import Project
from recon.write.ledger.heads import leaves, timestamps
from recon.write.ledger.heads.documents import Document, verified
from recon.write.ledger.heads.keys import PublicKey, SigningKey, signing_key
from recon.write.ledger.heads.merkle import consistency
from recon.write.ledger.heads.notes import Head, signed
from recon.write.ledger.heads.places import documents, folder_of
from recon.write.ledger.heads.tiles import TiledLeaves, Unusable, kept
from recon.write.ledger.ledger import Ledger
from recon.write.ledger.results import hashes_of_audits

Chain = tuple[str, str]
_UNREAD = "no head was signed: a place that could not be compared may have a head that the ledger does not lead to"
_NAMED = 5  # files that are left out; `recon ledger verify --heads` names all


@dataclass(frozen=True, kw_only=True)
class Signing:
    """What became of it: the document, None where there was nothing to sign; which chains contradict a signed head."""

    document: Document | None
    # A signed head that the entries of its chain do not lead to, and how many entries there are.
    contradictions: tuple[tuple[Head, int], ...] = ()
    notes: tuple[str, ...] = ()


def origin_of(project: Project) -> str:
    """The name of the project's ledger in signed heads."""
    return project.heads.origin or project.name


def chains_of(project: Project) -> list[Chain]:
    """The chains that recon.yml names."""
    return [(pipeline.name, sink.name) for pipeline in project.pipelines for sink in pipeline.sinks]


def key_of(project: Project) -> SigningKey | None:
    """The key that signs; None where recon.yml names none.

    Raises:
        ConfigError: it cannot be read, or it is none.
    """
    heads = project.heads
    if heads.key_file is not None:
        file = project.local_path(heads.key_file)
        try:
            return signing_key(origin_of(project), file.read_text(), f"heads: key_file {file}")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is no text"
            raise ConfigError(f"the key file {file} of heads cannot be read: {reason}") from error
    return None if heads.key is None else signing_key(origin_of(project), heads.key, "heads: key")


def public_keys(project: Project, more: Iterable[str] = ()) -> list[PublicKey]:
    """The keys whose signatures are accepted: those given, those of recon.yml, and the signing key's own.

    Raises:
        ConfigError: one of them is no key.
    """
    keys = [PublicKey.parse(text) for text in (*more, *project.heads.public_keys)]
    own = key_of(project)
    return keys if own is None else [*keys, own.public]


def kept_documents(project: Project) -> Storage | None:
    """Where the ledger keeps the documents itself; None for a catalog table, which has no folder."""
    place = _beside(project)
    return None if place is None else place.child("documents")


def _beside(project: Project) -> Storage | None:
    location = project.ledger.location
    if location is None:
        return None
    return Storage(f"{project.resolve(location).rstrip('/')}/heads", project.storage_options)


def _hashes_of(project: Project, chain: Chain) -> Storage | None:
    # Names of pipelines and sinks hold no '@', and a folder is never '..'.
    place = _beside(project)
    return None if place is None else place.child(f"hashes/{chain[0]}@{chain[1]}")


@dataclass(frozen=True, kw_only=True)
class Known:
    """The largest signed head of each chain, of all documents beside the ledger and at each place that can be read.

    `left_out` has a sentence for each file that is no document of heads, or is another one than its name says.
    `unread` says why places could not be compared: they may have larger heads.
    """

    newest: Mapping[Chain, Head]
    left_out: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """What an audit says of it: why places could not be compared, and the first files that were left out."""
        more = len(self.left_out) - _NAMED
        named = [f"a file was left out of the signed heads: {sentence}" for sentence in self.left_out[:_NAMED]]
        also = [f"left out of the signed heads, too: {plural(more, 'more file')}"] if more > 0 else []
        return (*self.unread, *named, *also)


def known_heads(project: Project, keys: Sequence[PublicKey], until: datetime | None = None) -> Known:
    """The signed heads that are known here; with `until`, of those that were signed up to that time.

    All documents of a place are read, so that a document which somebody adds, under whatever name, hides none. What
    lies beside the ledger is as easily changed as the ledger, so only its signatures count. A document that is missing
    there is found at a place outside that can be read. Raises nothing.
    """
    newest: dict[Chain, Head] = {}
    left_out: list[str] = []
    unread: list[str] = []
    outside = [(f"at {place.name}", folder_of(project, place), bool(place.git)) for place in project.heads.publish]
    for place, folder, clone in [("beside the ledger", kept_documents(project), False), *outside]:
        if folder is None:
            continue
        here: dict[Chain, Head] = {}
        bad: list[str] = []
        why_not: list[str] = []
        try:
            right = _take(project, keys, until, documents(folder, clone=clone), here, bad, why_not)
            if bad and not right and not why_not:
                why_not.append(f"no document there is right: {bad[0]}")
        except Exception as error:  # whatever a client library raises
            why_not.append(why(error))
        unread += [_not_compared(place, why_not)] if why_not else []
        left_out += bad
        for head in here.values():
            if _is_larger(head, newest):
                newest[head.chain] = head
    return Known(newest=newest, left_out=tuple(left_out), unread=tuple(unread))


def _take(
    project: Project,
    keys: Sequence[PublicKey],
    until: datetime | None,
    found: Iterable[tuple[str, Document | LedgerError | EvidenceError]],
    here: dict[Chain, Head],
    bad: list[str],
    unread: list[str],
) -> bool:
    """Takes the largest heads of a place, the sentences about files that are left out, and why others are not read.

    Returns whether any document was right. The newest documents come first, so that nearly all signatures that must be
    verified are theirs.
    """
    right = False
    for where, document in found:
        if not isinstance(document, Document):
            (unread if isinstance(document, EvidenceError) else bad).append(str(document))
            continue
        if document.origin != origin_of(project):
            continue
        larger = {head for head in document.heads if (until is None or head.at <= until) and _is_larger(head, here)}
        try:
            verified(document, keys, where, larger if right else None)
        except LedgerError as error:
            bad.append(str(error))
            continue
        right = True
        here.update((head.chain, head) for head in larger)
    return right


def _is_larger(head: Head, known: Mapping[Chain, Head]) -> bool:
    """Whether a head is larger than the one that is known; of one size the newest covers the results of more audits."""
    before = known.get(head.chain)
    return before is None or (head.size, head.at) > (before.size, before.at)


def _not_compared(place: str, reasons: Sequence[str]) -> str:
    more = f" (and {plural(len(reasons) - 1, 'more file')})" if len(reasons) > 1 else ""
    return f"earlier heads {place} could not be compared: {reasons[0]}{more}"


def why(error: Exception) -> str:
    """What an error says, in a line."""
    return str(error) if isinstance(error, ReconError) else f"{type(error).__name__}: {first_line(error)}"


def tree_of(project: Project, ledger: Ledger, chain: Chain, newest: Head | None) -> tuple[TiledLeaves, int]:
    """The tree over a chain's entries, and how many leaves of it are kept: those that a signed head vouches for.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    entries = cache(lambda: leaves.whole(ledger.store, *chain))
    folder = _hashes_of(project, chain)
    if folder is not None and newest is not None:
        with suppress(Unusable):
            before = kept(folder, entries, newest.size)
            tree = leaves.continued(before, ledger.store, *chain)
            if leads_to(tree, newest):
                return tree, before.size
    return entries(), 0


def leads_to(tree: TiledLeaves, head: Head) -> bool:
    """Whether a tree begins with the one of a head."""
    return head.size <= tree.size and tree.root(0, head.size) == head.root


def sign(project: Project, ledger: Ledger, at: datetime, audit: tuple[str, datetime] | None = None) -> Signing:
    """Signs the head of every chain of recon.yml that has entries, and keeps hashes and heads beside the ledger.

    A chain that contradicts a signed head is not signed: whoever changed the ledger gets no signature for it. While a
    place cannot be compared, nothing is signed: it may have a head that a chain contradicts. `audit` is the invocation
    id and the time of an audit, whose stored results the heads cover.

    Raises:
        ConfigError: the key is none.
        LedgerError: the ledger cannot be read.
    """
    key = key_of(project)
    if key is None:
        return Signing(document=None)
    known = known_heads(project, public_keys(project))
    results = _results(ledger, *audit) if audit is not None else None
    heads, proofs, contradictions, trees = [], {}, [], {}
    for chain in chains_of(project):
        before = known.newest.get(chain)
        tree, kept_size = tree_of(project, ledger, chain, before)
        if before is not None and not leads_to(tree, before):
            contradictions.append((before, tree.size))
            continue
        if not tree.size:
            continue
        origin = "/".join((origin_of(project), *chain))
        heads.append(signed(key, origin, tree.size, tree.root(0, tree.size), at, results))
        trees[chain] = tree, kept_size
        if before is not None and before.size:
            proofs[origin] = (before.size, tuple(consistency(tree, before.size, tree.size)))
    if not heads or known.unread:
        refused = [_UNREAD] if known.unread else []
        return Signing(document=None, contradictions=tuple(contradictions), notes=(*known.notes, *refused))
    document = Document(origin=origin_of(project), heads=tuple(heads), consistency=proofs)
    document, more = _stamped(project, document)
    more += _keep(project, document, trees)
    return Signing(document=document, contradictions=tuple(contradictions), notes=(*known.notes, *more))


def _results(ledger: Ledger, invocation_id: str, generated_at: datetime) -> tuple[str, str] | None:
    """The hash of an audit's results as they are stored; None where none are."""
    stored = hashes_of_audits(ledger.results, generated_at).get(invocation_id)
    return (invocation_id, stored) if stored else None


def _stamped(project: Project, document: Document) -> tuple[Document, list[str]]:
    """The document with a timestamp, where recon.yml names an authority."""
    authority = project.heads.timestamp
    if authority is None:
        return document, []
    try:
        return replace(document, timestamp=timestamps.request(authority.url, document.stamped)), []
    except Exception as error:  # an authority's answer, whatever it is, does not stop the signing
        return document, [f"the heads have no timestamp: {error}"]


def _keep(project: Project, document: Document, trees: Mapping[Chain, tuple[TiledLeaves, int]]) -> list[str]:
    """Keeps document and hashes beside the ledger; why not, where that fails."""
    folder = kept_documents(project)
    if folder is None:
        return []
    try:
        folder.create(document.name, document.dump())
        for chain, (tree, kept_size) in trees.items():
            hashes = _hashes_of(project, chain)
            assert hashes is not None
            tree.keep(hashes, kept_size)
    except (OSError, ReconError, Unusable) as error:
        return [f"heads and hashes could not be kept beside the ledger: {error}"]
    return []
