"""Fingerprints of source offsets: one number for the records of many topic partitions, whose expected value is known.

A row of offset `o` counts `(a*o + b*o^2 + c*o^3) mod p`; a, b and c come from a hash of its topic and partition, and
`p` is the prime 2^31 - 1. The fingerprint of rows is the sum, mod p. Rows in any order have the same fingerprint, those
of several micro-batches add, and of a range [start, end) it follows in closed form, without rows and without Kafka.

Rows lost and doubled leave it as it was in about one case of p. Of one partition, though, offsets lost and offsets
doubled are never noticed where their sums, sums of squares and sums of cubes are equal: at least four of each, such as
0, 4, 7, 11 and 1, 2, 9, 10.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING

from recon.lazy import np
from recon.model.ledger import RangeTable
from recon.model.offsets import OffsetSpan

if TYPE_CHECKING:
    import numpy.typing as npt

PRIME = 2**31 - 1  # a product of two numbers below it fits into 64 bits
SEED = 42  # of Spark's xxhash64()
_BLOCK = 65_536  # ranges at a time: what is made of so few stays in the processor's cache
_HALF, _SIXTH = pow(2, -1, PRIME), pow(6, -1, PRIME)
_MASK = 2**64 - 1
_P1, _P2, _P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P4, _P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5

Coefficients = tuple[int, int, int]


@lru_cache(maxsize=100_000)
def coefficients(topic: str, partition: int) -> Coefficients:
    """(a, b, c) of a topic partition; the same that `recon.spark.fingerprint` computes per row."""
    hashed = xxhash64(partition.to_bytes(4, "little", signed=True), xxhash64(topic.encode(), SEED))
    return hashed & PRIME, hashed >> 33, xxhash64(hashed.to_bytes(8, "little"), SEED) & PRIME


def of_offsets(topic: str, partition: int, offsets: Iterable[int]) -> int:
    """The fingerprint of rows of one topic partition, one offset per row."""
    a, b, c = coefficients(topic, partition)
    return sum((a + (b + c * o) * o) * o for o in offsets) % PRIME


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
    known = np.flatnonzero(np.bincount(code))
    of_code = np.zeros((3, int(known[-1]) + 1), np.int64)
    for at in known.tolist():
        of_code[:, at] = coefficients(table.topics[at // width][1], at % width)
    values = np.empty(len(table), np.int64)
    for begin in range(0, len(table), _BLOCK):
        block = slice(begin, begin + _BLOCK)
        start, end = table.start[block], table.end[block]
        of_range = [column[code[block]] for column in of_code]
        values[block] = _all_below(np.maximum(end, start), *of_range) - _all_below(start, *of_range)
    low = np.flatnonzero(np.append(True, table.entry[1:] != table.entry[:-1]))
    np.add.at(sums, table.entry[low], np.add.reduceat(values, low))
    return sums % PRIME


def _all_below(
    end: npt.NDArray[np.int64], a: npt.NDArray[np.int64], b: npt.NDArray[np.int64], c: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """`_below` in columns, mod p; every product is of two numbers below 2^31, or nearly."""
    end = end % PRIME
    twice_ones = end * (end - 1) % PRIME  # a negative product has a positive remainder in NumPy
    ones = twice_ones * _HALF % PRIME
    squares = twice_ones * (2 * end - 1) % PRIME * _SIXTH % PRIME
    cubes = ones * ones % PRIME
    below: npt.NDArray[np.int64] = (a * ones % PRIME + b * squares % PRIME + c * cubes % PRIME) % PRIME
    return below


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
