"""`F` and `T`: Spark's functions and types, imported when one is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recon.base.lazy import LazyModule

if TYPE_CHECKING:
    from pyspark.sql import functions as F
    from pyspark.sql import types as T
else:
    F = LazyModule("pyspark.sql.functions")
    T = LazyModule("pyspark.sql.types")

__all__ = ["F", "T"]
