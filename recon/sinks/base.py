"""What a sink is: it writes a micro-batch and confirms what landed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from recon.model import ReconStamp

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, kw_only=True)
class Landed:
    """A confirmed write: the sink's version that holds it and the rows it added, None where unknown."""

    version: int | None
    rows: int | None


class BatchSink(ABC):
    """One place a micro-batch is written to. The hook asks `landed` first and after the write `confirm`."""

    @abstractmethod
    def write(self, frame: DataFrame, stamp: ReconStamp) -> None:
        """Write the micro-batch so that `stamp` can be found again; raises SinkError, or what Spark raises."""

    @abstractmethod
    def confirm(self, stamp: ReconStamp) -> Landed:
        """Find what `write` just did.

        Raises:
            SinkError: nothing landed, or something else stands under this micro-batch's name.
        """

    @abstractmethod
    def landed(self, stamp: ReconStamp, version: int | None) -> Landed | None:
        """What an earlier attempt of the same micro-batch left, at `version` if the ledger knows it."""

    @abstractmethod
    def rows_of(self, spark: SparkSession, landed: Landed, like: Sequence[str]) -> DataFrame:
        """Exactly the rows that landed, with the columns `like` if given, for post-batch checks."""
