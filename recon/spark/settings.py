"""Settings of a session that hold for one statement."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def settings_of(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Gives the session these settings for what runs inside; each is as before afterwards, whatever happens."""
    before = {name: spark.conf.get(name, None) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)


@contextmanager
def without_constraints(spark: SparkSession) -> Iterator[None]:
    """Has Spark plan what runs inside without the constraints of its columns, where the session allows that.

    Spark derives filters from them. Its time for that grows with the third power of the number of computed columns:
    minutes for 40, where the query itself takes seconds.
    """
    with ExitStack() as stack:
        # Some services let nobody change the settings of a session; the query then runs as it is.
        with suppress(Exception):
            stack.enter_context(settings_of(spark, {"spark.sql.constraintPropagation.enabled": "false"}))
        yield
