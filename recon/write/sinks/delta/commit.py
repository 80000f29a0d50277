"""Gives the commit of a MERGE or an UPDATE a txn and userMetadata; both take them from the session alone.

A micro-batch has a session of its own. Over Spark Connect it has that of its client, where another query's write into a
Delta table would take them, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from recon.base.errors import SinkError
from recon.spark.connect import running_queries
from recon.spark.settings import settings_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CONF = "spark.databricks.delta"


@contextmanager
def committing_with(
    spark: SparkSession, metadata: str, app_id: str | None = None, version: int = 0, *, query_id: str | None = None
) -> Iterator[None]:
    """Gives the MERGE or UPDATE inside userMetadata, and a txn where there is an `app_id`; reset whatever happens.

    Raises:
        SinkError: over Spark Connect, the session runs another query than `query_id`.
    """
    others = running_queries(spark).keys() - {query_id}
    if others:
        raise SinkError(
            f"query {min(others)} runs in the same session of Spark Connect as this MERGE or UPDATE, whose txn Delta "
            "takes from the session's settings: what that query writes would carry it, too; nothing was written: give "
            "one of the two a session of its own, SparkSession.builder.remote(…).create(), then start it again"
        )
    settings = {f"{_CONF}.commitInfo.userMetadata": metadata}
    if app_id is not None:
        settings |= {f"{_CONF}.write.txnAppId": app_id, f"{_CONF}.write.txnVersion": str(version)}
    with settings_of(spark, settings):
        yield
