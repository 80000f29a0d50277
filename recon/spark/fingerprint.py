"""The fingerprint of source offsets (recon.model.fingerprint) as an aggregate of Spark's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recon.model.fingerprint import PRIME
from recon.spark.columns import quoted
from recon.spark.lazy import F
from recon.spark.releases import try_cast

if TYPE_CHECKING:
    from pyspark.sql import Column


def row_fingerprint(topic: str, partition: str, offset: str) -> Column:
    """The fingerprint of each row with these columns; NULL where one of them is no partition or offset.

    It never fails, whatever the columns hold: the rows are being written.
    """
    prime = F.lit(PRIME)
    hashed = F.xxhash64(F.col(quoted(topic)).cast("string"), try_cast(F.col(quoted(partition)), "int"))
    a, b = hashed.bitwiseAND(prime), F.shiftrightunsigned(hashed, 33)
    c = F.xxhash64(hashed).bitwiseAND(prime)
    o = F.pmod(try_cast(F.col(quoted(offset)), "long"), prime)
    # Every product is below 2^63: of c and o, and of (p - 1 + b) and o.
    return ((c * o % prime + b) * o % prime + a) * o % prime


def total_fingerprint(column: str) -> Column:
    """The fingerprint of all rows, from the column of theirs; NULL of no rows, and where the sum exceeds 64 bits.

    A row whose own is NULL is left out, so the fingerprint differs from the expected one.
    """
    return F.try_sum(F.col(column)) % F.lit(PRIME)
