"""The leaf hashes of a tree in tiles of 4,096, in memory or kept in files: a proof reads a few of three million."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from recon.base.errors import ReconError
from recon.base.storage import Storage
from recon.model.wire.values import loads, mapping, whole
from recon.write.ledger.heads.merkle import folded

WIDTH = 4096  # a power of two, so that a full tile is a subtree
HASH = 32  # bytes
_TOPS, _EXTENT = "tops", "extent.json"
_EXTENT_BYTES, _MOST = 1024, 2**40  # bounds on a file that somebody may have edited: its size, and the leaves it names


class Unusable(Exception):
    """The kept hashes are missing or damaged; they are made again from the entries."""


class TiledLeaves:
    """A tree (`merkle.Tree`) over tiles; the roots of full tiles are computed once, or were kept.

    `size` counts the leaves, `sequence` is that of the last one's entry; a full tile has `width` of them.
    """

    def __init__(
        self, read: Callable[[int], bytes], tops: Sequence[bytes], size: int, sequence: int, width: int = WIDTH
    ) -> None:
        self._read, self._tops, self.width = read, dict(enumerate(tops)), width
        self.size, self.sequence = size, sequence

    @classmethod
    def of(cls, hashes: bytes, sequence: int, width: int = WIDTH) -> TiledLeaves:
        """The tree over leaf hashes, one behind the other."""
        tile = HASH * width
        return cls(lambda at: hashes[at * tile : (at + 1) * tile], (), len(hashes) // HASH, sequence, width)

    def tile(self, at: int) -> bytes:
        """The leaf hashes of one tile, one behind the other."""
        return self._read(at)

    def leaves(self, begin: int, end: int) -> list[bytes]:
        """The leaf hashes [begin, end) of one tile."""
        tile, first = self._read(begin // self.width), begin // self.width * self.width
        return [tile[at * HASH : (at + 1) * HASH] for at in range(begin - first, end - first)]

    def root(self, begin: int, end: int) -> bytes:
        """The root of the leaves [begin, end), a range that RFC 6962 divides the tree into."""
        if end - begin <= self.width:
            return folded(self.leaves(begin, end))
        last = (end - 1) // self.width
        tops = [self._top(tile) for tile in range(begin // self.width, last)]
        return folded([*tops, self.root(last * self.width, end)])

    def _top(self, tile: int) -> bytes:
        if tile not in self._tops:
            self._tops[tile] = folded(self.leaves(tile * self.width, (tile + 1) * self.width))
        return self._tops[tile]

    def find(self, leaf: bytes, guess: int) -> int | None:
        """The index of a leaf, looked for at a guess first; None where there is none."""
        if 0 <= guess < self.size and self.leaves(guess, guess + 1) == [leaf]:
            return guess
        for tile in range((self.size + self.width - 1) // self.width):
            begin = tile * self.width
            leaves = self.leaves(begin, min(begin + self.width, self.size))
            if leaf in leaves:
                return begin + leaves.index(leaf)
        return None

    def extended(self, hashes: bytes, sequence: int) -> TiledLeaves:
        """The tree with more leaves behind its last; full tiles are not read again."""
        full = self.size // self.width
        rest = b"".join(self.leaves(full * self.width, self.size)) if self.size % self.width else b""
        more, tile = rest + hashes, HASH * self.width

        def read(at: int) -> bytes:
            return self._read(at) if at < full else more[(at - full) * tile : (at - full + 1) * tile]

        tops = [self._top(at) for at in range(full)]
        return TiledLeaves(read, tops, self.size + len(hashes) // HASH, sequence, self.width)

    def keep(self, folder: Storage, after: int) -> None:
        """Writes what a tree of `after` leaves does not have yet; the extent last, which says what is there.

        Raises:
            OSError: a file cannot be written.
        """
        for tile in range(after // self.width, (self.size + self.width - 1) // self.width):
            begin = tile * self.width
            folder.write(f"leaves-{tile}", b"".join(self.leaves(begin, min(begin + self.width, self.size))))
        folder.write(_TOPS, b"".join(self._top(tile) for tile in range(self.size // self.width)))
        extent = {"size": self.size, "sequence": self.sequence}
        folder.write(_EXTENT, json.dumps(extent).encode())


def kept(folder: Storage, entries: Callable[[], TiledLeaves], most: int = _MOST, width: int = WIDTH) -> TiledLeaves:
    """The tree whose hashes were kept in a folder, of `most` leaves.

    A signed root vouches for the roots of full tiles (`tops`), and these for the leaves. A tile that is missing, or has
    another root, is taken from the tree that `entries` makes of the ledger.

    Raises:
        Unusable: there is none, it has more leaves, or its files are damaged.
    """
    try:
        extent = mapping(loads(folder.read(_EXTENT, _EXTENT_BYTES)))
        size, sequence = whole(extent["size"], 0, most), whole(extent["sequence"], 0)
        tops = folder.read(_TOPS, size // width * HASH)
    except (FileNotFoundError, ReconError, ValueError, TypeError, KeyError) as error:
        raise Unusable(str(error)) from error
    if len(tops) < size // width * HASH:
        raise Unusable(f"{folder.uri}/{_TOPS} is too short")
    roots = [tops[at * HASH : (at + 1) * HASH] for at in range(size // width)]
    tiles: dict[int, bytes] = {}

    def read(at: int) -> bytes:
        if at not in tiles:
            stored = _stored(folder, at, width)
            last = at == len(roots)  # its leaves are behind the last root
            whole = len(stored) >= (size % width if last else width) * HASH
            right = whole and (last or folded([stored[i : i + HASH] for i in range(0, len(stored), HASH)]) == roots[at])
            tiles[at] = stored if right else entries().tile(at)
        return tiles[at]

    return TiledLeaves(read, roots, size, sequence, width)


def _stored(folder: Storage, tile: int, width: int) -> bytes:
    """The leaf hashes of a tile, as they were kept; nothing where they cannot be read."""
    try:
        return folder.read(f"leaves-{tile}", width * HASH)
    except (FileNotFoundError, ReconError):
        return b""
