"""Signs the heads of a project's trees: what an audit does when everything else is stored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice

from recon.errors import ConfigError, ReconError
from recon.ledger.heads import leaves, timestamps
from recon.ledger.heads.documents import Document
from recon.ledger.heads.keys import PublicKey, SigningKey, signing_key
from recon.ledger.heads.merkle import consistency
from recon.ledger.heads.notes import Head, signed
from recon.ledger.heads.places import documents, folder_of
from recon.ledger.heads.tiles import TiledLeaves, Unusable, kept
from recon.ledger.ledger import Ledger
from recon.ledger.results import hashes_of_audits
from recon.project import Project
from recon.storage import Storage

Chain = tuple[str, str]
_LOOKED_AT = 20  # documents of a place, from the newest on: a chain that none of them has is a chain without a head


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


def newest_heads(
    project: Project, keys: Sequence[PublicKey], until: datetime | None = None
) -> tuple[dict[Chain, Head], list[str]]:
    """The largest signed head of each chain that is known here, and which places could not be read.

    With `until`, of those that were signed up to that time.

    What lies beside the ledger is as easily changed as the ledger: it is believed for its signatures alone, and one
    that is missing there is found at a place outside that can be read.
    """
    newest: dict[Chain, Head] = {}
    unread = []
    outside = [(place.name, folder_of(project, place)) for place in project.heads.publish]
    for name, folder in [("", kept_documents(project)), *outside]:
        if folder is None:
            continue
        try:
            for document in islice(documents(folder, keys), _LOOKED_AT):
                for head in document.heads:
                    if until is not None and head.at > until:
                        continue
                    if head.ledger == origin_of(project) and _is_newer(head, newest.get(head.chain)):
                        newest[head.chain] = head
                if all(chain in newest for chain in chains_of(project)):
                    break
        except (ReconError, OSError) as error:
            if name:
                unread.append(f"earlier heads at {name} could not be compared: {error}")
    return newest, unread


def _is_newer(head: Head, known: Head | None) -> bool:
    return known is None or head.size > known.size


def tree_of(project: Project, ledger: Ledger, chain: Chain, newest: Head | None) -> tuple[TiledLeaves, int]:
    """The tree over a chain's entries, and how many leaves of it are kept: those that a signed head vouches for.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    folder = _hashes_of(project, chain)
    if folder is not None and newest is not None:
        with suppress(Unusable):
            before = kept(folder)
            if before.size <= newest.size:
                tree = leaves.continued(before, ledger.store, *chain)
                if leads_to(tree, newest):
                    return tree, before.size
    return leaves.whole(ledger.store, *chain), 0


def leads_to(tree: TiledLeaves, head: Head) -> bool:
    """Whether a tree begins with the one of a head."""
    return head.size <= tree.size and tree.root(0, head.size) == head.root


def sign(project: Project, ledger: Ledger, at: datetime, audit: tuple[str, datetime] | None = None) -> Signing:
    """Signs the head of every chain of recon.yml that has entries, and keeps hashes and heads beside the ledger.

    A chain that contradicts a signed head is not signed: whoever changed the ledger gets no signature for it. `audit`
    is the invocation id and the time of an audit, whose stored results the heads cover.

    Raises:
        ConfigError: the key is none.
        LedgerError: the ledger cannot be read.
    """
    key = key_of(project)
    if key is None:
        return Signing(document=None)
    newest, notes = newest_heads(project, public_keys(project))
    results = _results(ledger, *audit) if audit is not None else None
    heads, proofs, contradictions, trees = [], {}, [], {}
    for chain in chains_of(project):
        before = newest.get(chain)
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
    if not heads:
        return Signing(document=None, contradictions=tuple(contradictions), notes=tuple(notes))
    document = Document(origin=origin_of(project), heads=tuple(heads), consistency=proofs)
    document, more = _stamped(project, document)
    more += _keep(project, document, trees)
    return Signing(document=document, contradictions=tuple(contradictions), notes=(*notes, *more))


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
