"""Gives the commit of a MERGE or an UPDATE a txn and userMetadata; both take them from the session alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CONF = "spark.databricks.delta"


@contextmanager
def committing_with(spark: SparkSession, metadata: str, app_id: str | None = None, version: int = 0) -> Iterator[None]:
    """Gives the MERGE or UPDATE inside userMetadata, and a txn where there is an `app_id`; reset whatever happens."""
    settings = {f"{_CONF}.commitInfo.userMetadata": metadata}
    if app_id is not None:
        settings |= {f"{_CONF}.write.txnAppId": app_id, f"{_CONF}.write.txnVersion": str(version)}
    before = {key: spark.conf.get(key, None) for key in settings}
    try:
        for key, value in settings.items():
            spark.conf.set(key, value)
        yield
    finally:
        for key, old in before.items():
            if old is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, old)
