"""Holds the files of a file sink against its manifests: names and sizes, from a listing; no data file is opened."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime

from recon.base.errors import EvidenceError
from recon.base.storage import Storage
from recon.base.text import first_line, some
from recon.model import LostWrite, ReconStamp, SinkChanges
from recon.model.wire.columns import EPOCH
from recon.model.wire.manifests import DataFile, Manifest, attempt_of, is_data
from recon.witness import manifests

_THREADS = 16


def changes(target: Storage, kind: str, since: datetime | None = None) -> SinkChanges:
    """Files of the sink that are gone or have another size than was written, and files that no manifest names.

    A layout that is gone or was edited counts as lost of all manifests that name it: without it nobody reads their
    files.

    The files of a folder without a manifest are an attempt that is under way, or that failed: they are left out.

    Args:
        target: the sink's target.
        kind: the format. Outside recon's folders, only files whose name has it are looked at.
        since: of a sink with more than 100,000 micro-batches, only the folders of those finished from this instant on
            are looked at.

    Raises:
        EvidenceError: a manifest or a folder cannot be read.
    """
    is_large = manifests.is_large(target)
    written = manifests.read(target, since=since if is_large else None)
    files = _in_folders(target, written) if is_large and since is not None else target.files()
    doubtful = [manifest for manifest in written if _lacks(manifest, files)]
    # A replay that finds a file of its micro-batch gone writes another attempt and removes this one.
    lost = [LostWrite(stamp=again.stamp, lacks=some(lacks)) for again, lacks in _looked_again(target, doubtful)]
    lost += _without_layout(target, written, {write.stamp for write in lost})
    return SinkChanges(lost=tuple(lost), foreign=tuple(_foreign(files, written, kind)))


def _without_layout(target: Storage, written: Sequence[Manifest], told: Collection[ReconStamp]) -> Iterator[LostWrite]:
    """Of micro-batches with files, those whose layout cannot be read."""
    unreadable: dict[str, str] = {}
    for name in {manifest.layout for manifest in written}:
        try:
            manifests.layout(target, name)
        except EvidenceError as error:
            unreadable[name] = first_line(error)
    for manifest in written:
        if manifest.layout in unreadable and manifest.files and manifest.stamp not in told:
            yield LostWrite(stamp=manifest.stamp, lacks=unreadable[manifest.layout])


def _in_folders(target: Storage, written: Sequence[Manifest]) -> dict[str, int]:
    """Sizes of the files in the folders of some micro-batches, by their path relative to the target."""
    folders = [manifest.folder for manifest in written]
    with ThreadPoolExecutor(_THREADS) as pool:
        listed = pool.map(target.files, folders)
        return {
            f"{folder}/{path}": size
            for folder, files in zip(folders, listed, strict=True)
            for path, size in files.items()
        }


def left(target: Storage) -> list[Manifest]:
    """All manifests, of each the files that are there."""
    files = target.files()
    found = []
    for manifest in manifests.read(target):
        kept = tuple(file for file in manifest.files if f"{manifest.folder}/{file.path}" in files)
        found.append(replace(manifest, files=kept))
    return found


def _looked_again(target: Storage, doubtful: Collection[Manifest]) -> list[tuple[Manifest, list[str]]]:
    names = {(manifest.stamp.epoch, manifest.stamp.batch_id) for manifest in doubtful}
    if not names:
        return []
    again = manifests.read(target, batches={manifest.batch_id for manifest in doubtful})
    mine = [manifest for manifest in again if (manifest.stamp.epoch, manifest.stamp.batch_id) in names]
    files = _in_folders(target, mine)
    return [(manifest, lacks) for manifest in mine if (lacks := _lacks(manifest, files))]


def _lacks(manifest: Manifest, files: Mapping[str, int]) -> list[str]:
    """What a micro-batch lacks, a clause for each of its files that is not as it was written."""
    clauses = []
    for file in manifest.files:
        path = f"{manifest.folder}/{file.path}"
        if files.get(path) != file.size:
            clauses.append(_clause(path, file, files.get(path)))
    return clauses


def _clause(path: str, file: DataFile, size: int | None) -> str:
    if size is None:
        return f"{path} is gone"
    return f"{path} has {size:,} bytes and was written with {file.size:,}"


def _foreign(files: Mapping[str, int], written: Sequence[Manifest], kind: str) -> list[str]:
    named = {path for manifest in written for path in manifest.paths}
    finished = {manifest.folder for manifest in written}

    def is_foreign(path: str) -> bool:
        attempt = attempt_of(path)
        if attempt is not None:
            return attempt in finished
        return path.startswith(f"{EPOCH}=") or f".{kind}" in path.rpartition("/")[2]

    return sorted(path for path in files if path not in named and is_data(path) and is_foreign(path))


__all__ = ["changes", "left"]
