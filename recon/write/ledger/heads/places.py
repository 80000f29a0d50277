"""Publishes documents of signed heads, and reads back those of places that can be read.

Where a place fails, a sentence says so and nothing is raised: the verdict of an audit does not depend on it.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path

from recon.base.errors import EvidenceError, LedgerError, ReconError
from recon.base.limits import STORE_S, within
from recon.base.storage import Storage, read_ahead
from recon.base.text import first_line
from recon.project import Place, Project
from recon.write.ledger.heads.documents import MOST_BYTES, Document, read, too_large

# `Document.name`: a clone of a git repository may hold other files, too.
_NAME = re.compile(r"[0-9]{8}T[0-9]{6}Z-[0-9a-f]{12}\.json")
# Of `git log --raw`: the blob and the name of a plain file that a commit added or changed.
_ADDED = re.compile(rf":[0-7]{{6}} 100[0-7]{{3}} [0-9a-f]+ ([0-9a-f]+) [A-Z]\t({_NAME.pattern})")
_AT_ONCE = 1 << 25  # bytes of documents in memory
_COMMAND_S = 60.0
_MOST_SAID = 500  # characters of why a place does not have a document
_KAFKA_S = 15.0
_CONSUMERS = ("group.id", "group.instance.id", "auto.offset.reset", "enable.auto.commit", "isolation.level")


def publish(project: Project, document: Document) -> tuple[list[str], list[str]]:
    """Publishes a document at every place of recon.yml: the names of those that have it, and why others do not."""
    published, failed = [], []
    for place in project.heads.publish:
        try:
            _writer(project, place)(document)
            published.append(project.mask(place.name))
        except Exception as error:  # whatever a client library raises
            reason = str(error) if isinstance(error, ReconError) else f"{type(error).__name__}: {first_line(error)}"
            # Cut last: of a secret that was cut before, the rest would be shown.
            failed.append(project.mask(f"{place.name}: {reason}")[:_MOST_SAID])
    return published, failed


def _writer(project: Project, place: Place) -> Callable[[Document], None]:
    if place.topic:
        conf = place.kafka or project.kafka
        return lambda document: _produce(str(place.topic), conf, document)
    if place.git:
        clone = project.local_path(place.git)
        return lambda document: _commit(clone, document)
    if place.command:
        return lambda document: _tell(place.command, project.project_dir, document)
    folder = folder_of(project, place)
    assert folder is not None
    return lambda document: within(
        STORE_S, lambda: _write(folder, document), f"{folder.uri} cannot be written: the store did not answer"
    )


def folder_of(project: Project, place: Place) -> Storage | None:
    """Where a place's documents can be read; None for one that cannot be read back."""
    if place.git:
        return Storage(project.resolve(place.git))
    if place.folder:
        return Storage(project.resolve(place.folder), place.storage_options or project.storage_options)
    return None


def options_at(project: Project, uri: str) -> Mapping[str, str]:
    """The `storage_options` that reach a URI: of the place whose folder it is, or is in; else the project's."""
    for place in project.heads.publish:
        folder = folder_of(project, place)
        if folder is not None and f"{uri.rstrip('/')}/".startswith(f"{folder.uri.rstrip('/')}/"):
            return folder.options
    return project.storage_options


def is_clone(project: Project, uri: str) -> bool:
    """Whether a folder is the clone of a git repository that recon.yml names: git runs in no other folder."""
    local = Storage(uri).local
    clones = [project.local_path(place.git) for place in project.heads.publish if place.git]
    return local is not None and local.resolve() in [clone.resolve() for clone in clones]


def _write(folder: Storage, document: Document) -> None:
    # Never over another: a document that is there already is the same one.
    folder.create(document.name, document.dump())


def _produce(topic: str, conf: Mapping[str, str], document: Document) -> None:
    from confluent_kafka import Producer

    errors: list[str] = []

    def reported(error: object, _: object) -> None:
        errors.extend([str(error)] if error is not None else [])

    own = {"acks": "all", "enable.idempotence": "true", "message.timeout.ms": int(_KAFKA_S * 1000), "log_level": 0}
    given = {name: value for name, value in conf.items() if name not in _CONSUMERS}
    producer = Producer({**given, **own, "error_cb": lambda _: None})
    producer.produce(topic, key=document.origin.encode(), value=document.dump(), on_delivery=reported)
    if producer.flush(_KAFKA_S + 1) or errors:
        raise EvidenceError(f"the broker did not take the document: {' '.join(errors) or 'it did not answer'}")


def _commit(clone: Path, document: Document) -> None:
    git = [*_git_of(clone), "-c", "user.name=recon", "-c", "user.email=recon@localhost"]
    _write(Storage(str(clone)), document)
    _run([*git, "add", "--", document.name])
    if _run([*git, "status", "--porcelain", "--", document.name]):
        _run([*git, "commit", "-q", "-m", f"Heads of {document.origin}", "--", document.name])
    if _run([*git, "remote"]):
        _run([*git, "push", "-q"])


def _tell(command: Sequence[str], folder: Path, document: Document) -> None:
    _run(command, folder, document.dump())


def _run(command: Sequence[str], folder: Path | None = None, given: bytes = b"") -> bytes:
    """What a command prints.

    Raises:
        LedgerError: it cannot be started, takes longer than a minute, or fails.
    """
    environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0"}
    try:
        done = subprocess.run(
            command, cwd=folder, input=given, capture_output=True, timeout=_COMMAND_S, env=environment, check=False
        )
    except FileNotFoundError:
        raise LedgerError(f"{command[0]} is not installed, or its folder is not there") from None
    except subprocess.TimeoutExpired:
        raise LedgerError(f"it took longer than {_COMMAND_S:g} s") from None
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()[:1]
        raise LedgerError(f"it ended with exit code {done.returncode}{f': {said[0]}' if said else ''}")
    return done.stdout


def documents(folder: Storage, *, clone: bool = False) -> Iterator[tuple[str, Document | LedgerError | EvidenceError]]:
    """Every document of a folder with its path, the newest first; its signatures are not verified.

    With `clone`, those follow that the folder lacks, or has otherwise, and a commit of the git repository or of its
    remotes has: the folder may be an older copy, and a commit may remove files.

    A file under the name of a document that is none, or has the content of another one, is the LedgerError that says
    so. One that cannot be read is an EvidenceError: what it holds is not known.

    Raises:
        EvidenceError: the folder cannot be listed, or a remote of the clone cannot be read.
    """
    right: set[str] = set()

    def content(name: str) -> bytes | EvidenceError:
        try:
            return folder.read(name, MOST_BYTES + 1)
        except FileNotFoundError:
            where = f"{folder.uri.rstrip('/')}/{name}"
            return EvidenceError(f"{where} was there a moment ago, and is gone; see who removed it")
        except EvidenceError as error:
            return error

    sizes = {name: size for name, size in folder.sizes().items() if _NAME.fullmatch(name)}
    for names in _together(sizes):
        for name, given in zip(names, read_ahead(content, names, remote=folder.local is None), strict=True):
            where = f"{folder.uri.rstrip('/')}/{name}"
            document = given if isinstance(given, EvidenceError) else _named(name, given, where)
            right |= {name} if isinstance(document, Document) else set()
            yield where, document
    if clone and folder.local is not None:
        yield from _committed(folder.local, right)


def _committed(clone: Path, known: Collection[str]) -> Iterator[tuple[str, Document | LedgerError]]:
    """The documents that any commit of a clone or its remotes added, but for those of some names."""
    try:
        git = [*_git_of(clone), "-c", "log.showRoot=true"]
        if _run([*git, "remote"]):
            _run([*git, "fetch", "-q", "--all"])
        # A line for each file of each commit that another one lacks: modes, blobs, a letter, a tab, the path.
        changes = _run([*git, "log", "--all", "-m", "--format=", "--raw", "--no-abbrev", "--no-renames"])
        added = filter(None, map(_ADDED.fullmatch, changes.decode(errors="replace").splitlines()))
        for name, blob in sorted({(line[2], line[1]) for line in added if line[2] not in known}, reverse=True):
            where = f"{clone}, {name} of the commit that has its blob {blob[:12]}"
            large = int(_run([*git, "cat-file", "-s", blob])) > MOST_BYTES
            yield where, too_large(where) if large else _named(name, _run([*git, "cat-file", "blob", blob]), where)
    except LedgerError as error:
        raise EvidenceError(f"the commits of {clone} and of its remotes cannot be read: {error}") from error


def _git_of(clone: Path) -> list[str]:
    """How a git command of a clone begins.

    Raises:
        LedgerError: there is none.
    """
    if not (clone / ".git").exists():
        raise LedgerError(f"there is no clone of a git repository at {clone}; clone it there")
    return ["git", "-C", str(clone)]


def _together(sizes: Mapping[str, int]) -> Iterator[list[str]]:
    """Names in the order in which files are read, those together that fit into memory."""
    names: list[str] = []
    left = _AT_ONCE
    for name in sorted(sizes, reverse=True):
        size = min(sizes[name], MOST_BYTES + 1)
        if size > left:
            yield names
            names, left = [], _AT_ONCE
        names.append(name)
        left -= size
    yield names


def _named(name: str, content: bytes, where: str) -> Document | LedgerError:
    """The document of a file, which must have the file's name."""
    try:
        document = read(content, where)
    except LedgerError as error:
        return error
    if document.name == name:
        return document
    return LedgerError(f"{where} has the content of {document.name}: it was copied to another name; see who did")
