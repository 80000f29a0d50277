"""Merkle trees as RFC 6962, section 2.1, defines them: root, inclusion and consistency proofs, and their verification.

Everything follows from the root of a range of leaves (`Tree.root`). `Leaves` computes it from a list of leaf hashes,
`tiles.TiledLeaves` mostly from kept ones. Pure functions of bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Protocol

EMPTY = hashlib.sha256(b"").digest()


class Tree(Protocol):
    """Leaves whose ranges have roots."""

    def root(self, begin: int, end: int) -> bytes:
        """The root of the leaves [begin, end), a range that RFC 6962 divides the tree into."""


def leaf_hash(data: bytes) -> bytes:
    """The hash of a leaf."""
    return hashlib.sha256(b"\x00" + data).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """The hash of a node over its two children."""
    return hashlib.sha256(b"\x01" + left + right).digest()


def folded(hashes: Sequence[bytes]) -> bytes:
    """The root over the hashes of leaves, or of subtrees that are all of one size but for the last."""
    if not hashes:
        return EMPTY
    level, sha256 = list(hashes), hashlib.sha256
    while len(level) > 1:
        pairs = zip(level[::2], level[1::2], strict=False)
        above = [sha256(b"\x01" + left + right).digest() for left, right in pairs]
        # The last of an odd number has no sibling, and is the node above itself.
        level = above + level[-1:] if len(level) % 2 else above
    return level[0]


class Leaves:
    """A tree over leaf hashes in memory."""

    def __init__(self, hashes: Sequence[bytes]) -> None:
        self.hashes = hashes

    def root(self, begin: int, end: int) -> bytes:
        """The root of the leaves [begin, end)."""
        return folded(self.hashes[begin:end])


def _split(size: int) -> int:
    """The largest power of two that is smaller than a size of at least 2."""
    return 1 << (size - 1).bit_length() - 1


def inclusion(tree: Tree, index: int, size: int) -> list[bytes]:
    """The hashes that lead from a leaf to the root of the first `size` leaves, the nearest first (PATH).

    Raises:
        ValueError: there is no such leaf.
    """
    if not 0 <= index < size:
        raise ValueError(f"a tree of {size} leaves has no leaf {index}")
    path, begin, end = [], 0, size
    while end - begin > 1:
        middle = begin + _split(end - begin)
        if index < middle:
            path.append(tree.root(middle, end))
            end = middle
        else:
            path.append(tree.root(begin, middle))
            begin = middle
    return path[::-1]


def consistency(tree: Tree, old: int, size: int) -> list[bytes]:
    """The hashes that show that the first `old` leaves are the beginning of the first `size` (PROOF).

    Raises:
        ValueError: the old tree is empty, or larger than the new one.
    """
    if not 0 < old <= size:
        raise ValueError(f"no proof leads from a tree of {old} leaves to one of {size}")
    path, begin, end = [], 0, size
    while old != end:
        middle = begin + _split(end - begin)
        if old <= middle:
            path.append(tree.root(middle, end))
            end = middle
        else:
            path.append(tree.root(begin, middle))
            begin = middle
    return [*([tree.root(begin, end)] if begin else []), *path[::-1]]


def beside(tree: Tree, begin: int, end: int, size: int) -> list[bytes]:
    """The roots of the subtrees beside the leaves [begin, end) that lead to the root of `size`, from left to right."""

    def of(low: int, high: int) -> list[bytes]:
        if high <= begin or low >= end:
            return [tree.root(low, high)]
        if begin <= low and high <= end:
            return []
        middle = low + _split(high - low)
        return [*of(low, middle), *of(middle, high)]

    return of(0, size)


def includes(root: bytes, size: int, index: int, leaf: bytes, path: Sequence[bytes]) -> bool:
    """Whether the path shows that a leaf hash is at an index of the tree with this root (RFC 9162, section 2.1.3.2)."""
    if not 0 <= index < size:
        return False
    at, last, found = index, size - 1, leaf
    for sibling in path:
        if last == 0:
            return False
        if at % 2 or at == last:
            found = node_hash(sibling, found)
            while at and not at % 2:
                at, last = at // 2, last // 2
        else:
            found = node_hash(found, sibling)
        at, last = at // 2, last // 2
    return last == 0 and found == root


def is_consistent(old_root: bytes, old: int, root: bytes, size: int, path: Sequence[bytes]) -> bool:
    """Whether the path shows that the tree with one root begins with the other one (RFC 9162, section 2.1.4.2)."""
    if not 0 < old <= size:
        return False
    if old == size:
        return not path and old_root == root
    hashes: Iterator[bytes] = iter(path if old & (old - 1) else [old_root, *path])
    at, last = old - 1, size - 1
    while at % 2:
        at, last = at // 2, last // 2
    before = after = next(hashes, b"")
    for sibling in hashes:
        if last == 0:
            return False
        if at % 2 or at == last:
            before, after = node_hash(sibling, before), node_hash(sibling, after)
            while at and not at % 2:
                at, last = at // 2, last // 2
        else:
            after = node_hash(after, sibling)
        at, last = at // 2, last // 2
    return last == 0 and before == old_root and after == root
