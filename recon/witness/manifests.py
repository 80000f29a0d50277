"""Reads the manifests of a file sink (recon.model.wire.manifests)."""

from __future__ import annotations

import gzip
import io
import re
import zlib
from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import partial
from operator import itemgetter

from recon.base.counts import sum_of
from recon.base.errors import EvidenceError
from recon.base.storage import Storage
from recon.model import RecordCount, SinkCommit, SinkLog
from recon.model.wire.manifests import (
    FOLDER,
    LAYOUTS,
    WRITES,
    Layout,
    Manifest,
    group_of,
    layout_path,
    manifest_path,
    merged_path,
    name_of_layout,
    parse_layout,
    parse_manifest,
    write_path,
)

_THREADS = 16
_WHOLE = 100  # groups of a thousand micro-batches, some 20 s, up to which all of a sink is looked at
_MOST_BYTES = 512 * 1024 * 1024  # of a thousand manifests; those of 1,000 files each take 80 MB


def find(target: Storage, epoch: int, batch_id: int) -> Manifest | None:
    """The manifest of one micro-batch; None when there is none."""
    merged = (
        manifest for manifest in _merged(target, epoch, group_of(batch_id)) if manifest.stamp.batch_id == batch_id
    )
    return _single(target, manifest_path(epoch, batch_id)) or next(merged, None)


def numbers(target: Storage) -> list[int]:
    """The numbers of the newest writes, ascending."""
    return sorted(int(match[1]) for name in target.names(WRITES) if (match := re.fullmatch(r"(\d+)\.json", name)))


def numbered(target: Storage, number: int) -> Manifest | None:
    """The manifest of the write with this number; None when there is none, or it is older than those kept."""
    return _single(target, write_path(number))


def _single(target: Storage, name: str) -> Manifest | None:
    """The manifest of a file; None when there is no such file."""
    raw = target.find(name)
    return None if raw is None else parse_manifest(raw, f"{target.uri}/{name}")


def read(target: Storage, *, since: datetime | None = None, batches: Collection[int] | None = None) -> list[Manifest]:
    """All manifests, oldest first, those of repairs before them.

    Args:
        target: the sink's target.
        since: read back to the group that holds this instant; micro-batches of an epoch are written in order.
        batches: only rows of these batch ids, of whatever epoch.
    """
    wanted = None if batches is None else {group_of(batch) for batch in batches}
    known = sorted(epochs(target), reverse=True)
    # Repairs are few, are written at any time, and have rows of any micro-batch.
    of_repairs = [(epoch, group) for epoch in known if epoch < 0 for group in groups(target, epoch)]
    manifests = [manifest for epoch, group in of_repairs for manifest in read_group(target, epoch, group)]
    for epoch in (epoch for epoch in known if epoch >= 0):
        for group in sorted(groups(target, epoch), reverse=True):
            if wanted is not None and group not in wanted:
                continue
            mine = read_group(target, epoch, group)
            manifests += mine
            if since is not None and mine and max(manifest.at for manifest in mine) < since:
                return _in_order(manifests, since, batches)
    return _in_order(manifests, since, batches)


def _in_order(manifests: Iterable[Manifest], since: datetime | None, batches: Collection[int] | None) -> list[Manifest]:
    kept = (
        manifest
        for manifest in manifests
        if (since is None or manifest.at >= since) and (batches is None or manifest.batch_id in batches)
    )
    return sorted(kept, key=lambda manifest: (manifest.stamp.epoch, manifest.stamp.batch_id))


def log(target: Storage, since: datetime | None = None) -> SinkLog:
    """The manifests as the sink's own record of its writes."""
    commits = tuple(
        SinkCommit(version=None, stamp=manifest.stamp, rows=manifest.row_count, at=manifest.at)
        for manifest in read(target, since=since)
    )
    exists = bool(commits) or FOLDER in target.names()
    return SinkLog(location=target.uri, exists=exists, commits=commits, since=since)


def epochs(target: Storage) -> list[int]:
    """The epochs that have manifests."""
    return [int(name) for name in target.names(FOLDER) if re.fullmatch(r"-?\d+", name)]


def groups(target: Storage, epoch: int) -> set[int]:
    """The groups of an epoch that have manifests, merged or not."""
    names = target.names(f"{FOLDER}/{epoch}")
    return {int(match[1]) for name in names if (match := re.fullmatch(r"(\d+)(\.jsonl\.gz)?", name))}


def loose(target: Storage, epoch: int) -> list[int]:
    """The groups of an epoch that are not merged yet."""
    return [int(name) for name in target.names(f"{FOLDER}/{epoch}") if re.fullmatch(r"-?\d+", name)]


def counted(target: Storage, up_to: int) -> RecordCount | None:
    """How many writes the manifests are of, and how many up to a number; None for more than 100,000 micro-batches.

    The newest one is left out: a replay that finds a file of it gone writes it again, under another number.
    """
    if is_large(target):
        return None
    numbered = sorted(((manifest.stamp.number or 0, manifest) for manifest in read(target)), key=itemgetter(0))[:-1]
    kept = [manifest for number, manifest in numbered if number <= up_to]
    return RecordCount(
        newest=max((number for number, _ in numbered), default=0),
        writes=len(numbered),
        rows=sum_of(manifest.row_count for _, manifest in numbered),
        kept=(len(kept), sum_of(manifest.row_count for manifest in kept)),
    )


def is_large(target: Storage) -> bool:
    """Whether there are so many manifests that an audit does not read all of them."""
    return sum(len(groups(target, epoch)) for epoch in epochs(target)) > _WHOLE


def read_group(target: Storage, epoch: int, group: int) -> list[Manifest]:
    """The manifests of one group of micro-batches.

    Single files are read first: they are removed only after the merged file is written. A single file is newer than
    the merged manifest of the same micro-batch.
    """
    folder = f"{FOLDER}/{epoch}/{group}"
    names = [f"{folder}/{name}" for name in target.names(folder) if re.fullmatch(r"\d+\.json", name)]
    single = partial(_single, target)
    if target.local is not None or len(names) < 2:
        singles = [single(name) for name in names]
    else:
        with ThreadPoolExecutor(_THREADS) as pool:
            singles = list(pool.map(single, names))
    of_batch = {manifest.stamp.batch_id: manifest for manifest in _merged(target, epoch, group)}
    of_batch |= {manifest.stamp.batch_id: manifest for manifest in singles if manifest is not None}  # else merged since
    return [manifest for _, manifest in sorted(of_batch.items())]


def _merged(target: Storage, epoch: int, group: int) -> Iterator[Manifest]:
    name = merged_path(epoch, group)
    raw = target.find(name)
    if raw is None:
        return
    try:
        with gzip.open(io.BytesIO(raw)) as packed:
            content = packed.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise OSError(f"it unpacks to more than {_MOST_BYTES:,} bytes")
    except (OSError, EOFError, zlib.error) as error:
        raise EvidenceError(
            f"{target.uri}/{name}, which holds the manifests of a thousand micro-batches, cannot be read ({error}): "
            "restore the file from a copy"
        ) from error
    for line in filter(None, content.split(b"\n")):
        yield parse_manifest(line, f"{target.uri}/{name}")


def layout(target: Storage, name: str) -> Layout:
    """How the files of manifests with this layout are to be read.

    Raises:
        EvidenceError: the layout's file is missing or torn, or was edited.
    """
    try:
        content = target.read(layout_path(name))
        found = parse_layout(content)
    except (FileNotFoundError, ValueError, TypeError, KeyError) as error:
        raise EvidenceError(
            f"{target.uri}/{layout_path(name)}, with the format and schema of the sink's files, is missing or torn "
            f"({type(error).__name__}); restore the file from a backup, or read the files yourself"
        ) from error
    if name != name_of_layout(content):
        raise EvidenceError(
            f"{target.uri}/{layout_path(name)}, with the format and schema of the sink's files, was edited, as its "
            "name tells; restore the file from a backup, or read the files yourself"
        )
    return found


def layout_names(target: Storage) -> list[str]:
    """The layouts that are stored."""
    return sorted(name.removesuffix(".json") for name in target.names(LAYOUTS))
