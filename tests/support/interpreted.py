"""Sessions that interpret plans: a query that runs once, over a few rows, takes most of its time to be compiled."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SETTINGS = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}


@contextmanager
def interpreted(spark: SparkSession) -> Iterator[None]:
    """Lets Spark interpret plans, and compile them again afterwards."""
    for key, value in _SETTINGS.items():
        spark.conf.set(key, value)
    yield
    for key in _SETTINGS:
        spark.conf.unset(key)
