"""`F`: Spark's functions, imported when one is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recon.lazy import LazyModule

if TYPE_CHECKING:
    from pyspark.sql import functions as F
else:
    F = LazyModule("pyspark.sql.functions")

__all__ = ["F"]
