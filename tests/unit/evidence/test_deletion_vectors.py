"""Deletion vectors: the forms of a roaring bitmap, written here by hand as RoaringFormatSpec says."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from recon.base.errors import EvidenceError
from recon.base.storage import Storage
from recon.witness.deletion_vectors import marked, numbers

LISTED = struct.pack("<II", 12346, 1) + struct.pack("<HH", 0, 2) + struct.pack("<I", 16) + struct.pack("<3H", 1, 5, 9)
BITS = np.packbits(np.isin(np.arange(65536), np.arange(0, 10000, 2)), bitorder="little").tobytes()
BITMAP = struct.pack("<II", 12346, 1) + struct.pack("<HH", 1, 4999) + struct.pack("<I", 16) + BITS
RUNS = struct.pack("<I", 12347) + b"\x01" + struct.pack("<HH", 0, 6) + struct.pack("<5H", 2, 3, 4, 20, 1)


def stored(*bitmaps: tuple[int, bytes]) -> bytes:
    parts = [struct.pack("<i", high) + bitmap for high, bitmap in bitmaps]
    return struct.pack("<iq", 1681511377, len(bitmaps)) + b"".join(parts)


def test_each_kind_of_container() -> None:
    assert numbers(stored((0, LISTED))).tolist() == [1, 5, 9]
    assert numbers(stored((0, BITMAP))).tolist() == list(range(65536, 75536, 2))
    assert numbers(stored((0, RUNS))).tolist() == [3, 4, 5, 6, 7, 20, 21]
    assert numbers(stored((0, LISTED), (2, RUNS))).tolist()[3:5] == [(2 << 32) + 3, (2 << 32) + 4]
    assert numbers(stored()).tolist() == []


@pytest.mark.parametrize("torn", [b"", b"\0" * 12, stored((0, LISTED[:-3])), stored((0, b"\1\2\3\4"))])
def test_a_torn_vector_is_an_error(torn: bytes) -> None:
    with pytest.raises((ValueError, struct.error, IndexError)):
        numbers(torn)


def test_a_vector_of_an_unknown_kind() -> None:
    vector = {"storageType": "p", "pathOrInlineDv": "/x", "sizeInBytes": 4, "cardinality": 1}
    with pytest.raises(EvidenceError, match="storageType"):
        marked(Storage("nowhere"), vector)
    assert marked(Storage("nowhere"), None).tolist() == []
