"""Fingerprints of source offsets: one number for the records of many topic partitions, whose expected value is known.

A row of offset `o` counts `(a*o + b*o^2 + c*o^3) mod p`. Here a, b and c come from a hash of its topic and partition,
and `p` is the prime 2^31 - 1. The fingerprint of rows is the sum, mod p. The order of rows does not matter, and
fingerprints of micro-batches add. That of a range [start, end) follows in closed form, without rows and without Kafka.

Rows lost and doubled leave it as it was in about one case of p. In one partition, they are never noticed where the
sums, sums of squares and sums of cubes of lost and doubled offsets are equal. That takes at least four of each, such as
0, 4, 7, 11 and 1, 2, 9, 10.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

from recon.base.lazy import np
from recon.model.ledger import DENSE, RangeTable
from recon.model.offsets import OffsetSpan

if TYPE_CHECKING:
    import numpy.typing as npt

PRIME = 2**31 - 1  # a product of two numbers below it fits into 64 bits
SEED = 42  # of Spark's xxhash64()
_BLOCK = 16_384  # ranges at a time: what is made of so few stays in the processor's cache
_HALF, _SIXTH = pow(2, -1, PRIME), pow(6, -1, PRIME)
_MASK = 2**64 - 1
_P1, _P2, _P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P4, _P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5

Coefficients = tuple[int, int, int]
_Numbers: TypeAlias = "npt.NDArray[np.uint64]"


@lru_cache(maxsize=100_000)
def coefficients(topic: str, partition: int) -> Coefficients:
    """(a, b, c) of a topic partition; the same that `recon.spark.fingerprint` computes per row."""
    hashed = xxhash64(partition.to_bytes(4, "little", signed=True), xxhash64(topic.encode(), SEED))
    return hashed & PRIME, hashed >> 33, xxhash64(hashed.to_bytes(8, "little"), SEED) & PRIME


def of_offsets(topic: str, partition: int, offsets: Iterable[int]) -> int:
    """The fingerprint of rows of one topic partition, one offset per row."""
    a, b, c = coefficients(topic, partition)
    return sum((a + (b + c * o) * o) * o for o in offsets) % PRIME


def of_sums(topic: str, partition: int, ones: int, squares: int, cubes: int) -> int:
    """`of_offsets` of rows of which the sums of their offsets, of these squared, and cubed, are known, each mod p."""
    a, b, c = coefficients(topic, partition)
    return (a * ones + b * squares + c * cubes) % PRIME


def of_columns(
    offsets: npt.NDArray[np.int64], a: npt.NDArray[np.int64], b: npt.NDArray[np.int64], c: npt.NDArray[np.int64]
) -> int:
    """`of_offsets` of rows in columns: the offset of each, and the coefficients of its topic partition."""
    o = offsets % PRIME
    return int((((c * o % PRIME + b) * o % PRIME + a) * o % PRIME).sum()) % PRIME


def of_ranges(ranges: Iterable[OffsetSpan]) -> int:
    """The fingerprint of one row for every offset of the ranges; a range that runs backward has none.

    >>> of_ranges([OffsetSpan("t", None, 0, 3, 9)]) == of_offsets("t", 0, range(3, 9))
    True
    """
    return sum(_below(s, s.end_offset) - _below(s, s.start_offset) for s in ranges if s.span.size > 0) % PRIME


def _below(span: OffsetSpan, end: int) -> int:
    a, b, c = coefficients(span.topic, span.partition)
    ones = end * (end - 1) // 2
    return a * ones + b * (ones * (2 * end - 1) // 3) + c * ones * ones


def of_entries(table: RangeTable, count: int) -> npt.NDArray[np.int64]:
    """`of_ranges` of each of `count` entries: a day's 1.7 million ranges in columns."""
    sums = np.zeros(count, np.int64)
    if not len(table):
        return sums
    width = int(table.partition.max()) + 1
    code = table.topic.astype(np.int64) * width + table.partition
    if int(code.max()) < DENSE:
        values, known = np.arange(int(code.max()) + 1), np.flatnonzero(np.bincount(code))
    else:  # an edited ledger may name any partition: no table is made of all below it
        values, code = np.unique(code, return_inverse=True)
        known = np.arange(len(values))
    of_code = np.zeros((3, len(values)), np.uint64)
    for at in known.tolist():
        of_code[:, at] = coefficients(table.topics[int(values[at]) // width][1], int(values[at]) % width)
    end = np.maximum(table.end, table.start)
    ends = _all_below(end, code, of_code)
    # A micro-batch mostly has the partitions of the one before it, and starts where that one ended.
    step = int(np.searchsorted(table.entry, table.entry[0], side="right"))
    goes_on = np.zeros(len(code), np.bool_)
    goes_on[step:] = (table.start[step:] == end[:-step]) & (code[step:] == code[:-step])
    begins, other = np.roll(ends, step), np.flatnonzero(~goes_on)
    begins[other] = _all_below(table.start[other], code[other], of_code)
    low = np.flatnonzero(np.append(True, table.entry[1:] != table.entry[:-1]))
    np.add.at(sums, table.entry[low], np.add.reduceat(ends - begins, low))
    return sums % PRIME


def _all_below(offsets: npt.NDArray[np.int64], code: npt.NDArray[np.int64], of_code: _Numbers) -> npt.NDArray[np.int64]:
    """`_below` in columns, up to multiples of p; `of_code` are a, b and c of each code."""
    below = np.empty(len(offsets), np.int64)
    for begin in range(0, len(offsets), _BLOCK):
        block = slice(begin, begin + _BLOCK)
        below[block] = _block_below(offsets[block], *(column[code[block]] for column in of_code))
    return below


def _block_below(offsets: npt.NDArray[np.int64], a: _Numbers, b: _Numbers, c: _Numbers) -> _Numbers:
    # A factor is at most a little above 2^32, and the other one below 2^32 then: the product has 64 bits.
    end = _folded((offsets % PRIME if offsets.min() < 0 else offsets).astype(np.uint64), times=2)
    minus_one = np.uint64(PRIME - 1)
    twice_ones = _folded(end * (end + minus_one), times=2)
    ones = _folded(twice_ones * np.uint64(_HALF))
    squares = _folded(_folded(twice_ones * _folded(end + end + minus_one), times=2) * np.uint64(_SIXTH))
    cubes = _folded(ones * ones, times=2)
    return _folded(a * ones) + _folded(b * squares) + _folded(c * cubes)


def _folded(values: _Numbers, times: int = 1) -> _Numbers:
    """The same mod p and smaller, in place: 2^31 is 1 mod p. NumPy takes many times as long for `%`."""
    for _ in range(times):
        high = values >> np.uint64(31)
        values &= np.uint64(PRIME)
        values += high
    return values


def xxhash64(data: bytes, seed: int) -> int:
    """The hash XXH64, which Spark's function is: of strings as UTF-8, of integers as 4 or 8 bytes, lowest first."""
    size, at = len(data), 0
    if size >= 32:
        lanes = [seed + _P1 + _P2, seed + _P2, seed, seed - _P1]
        while at + 32 <= size:
            lanes = [_round(lane, data[at + 8 * i : at + 8 * i + 8]) for i, lane in enumerate(lanes)]
            at += 32
        hashed = sum(_rotated(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True))
        for lane in lanes:
            hashed = (hashed ^ _mixed(lane)) * _P1 + _P4
    else:
        hashed = seed + _P5
    hashed = (hashed + size) & _MASK
    while at + 8 <= size:
        hashed = (_rotated(hashed ^ _round(0, data[at : at + 8]), 27) * _P1 + _P4) & _MASK
        at += 8
    if at + 4 <= size:
        hashed = (_rotated(hashed ^ (int.from_bytes(data[at : at + 4], "little") * _P1), 23) * _P2 + _P3) & _MASK
        at += 4
    for byte in data[at:]:
        hashed = _rotated(hashed ^ (byte * _P5), 11) * _P1 & _MASK
    hashed = (hashed ^ hashed >> 33) * _P2 & _MASK
    hashed = (hashed ^ hashed >> 29) * _P3 & _MASK
    return hashed ^ hashed >> 32


def _rotated(value: int, by: int) -> int:
    value &= _MASK
    return (value << by | value >> (64 - by)) & _MASK


def _mixed(lane: int) -> int:
    return _rotated(lane * _P2, 31) * _P1 & _MASK


def _round(lane: int, word: bytes) -> int:
    return _rotated(lane + int.from_bytes(word, "little") * _P2, 31) * _P1 & _MASK
