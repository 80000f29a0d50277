"""What a sink is: it writes a micro-batch, confirms what landed, and remembers it where it can."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from recon.model import ReconStamp, SinkLog
from recon.sinks.failpoints import Failpoint, no_failpoint

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, kw_only=True)
class Landed:
    """A confirmed write.

    Attributes:
        version: the sink's version that holds it; None where the sink has none.
        rows: rows that the sink took in; None where unknown.
        given: rows that the sink was given, where it reduces them itself (one per key, only newer ones) and reports
            it; the ledger counts the rest as filtered.
        computed_again: whether the write computed the rows in more than one Spark job. An Observation of them keeps
            the count of the first job that ended, failed or not.
    """

    version: int | None
    rows: int | None
    given: int | None = None
    computed_again: bool = False


class BatchSink(ABC):
    """One place a micro-batch is written to.

    The hook asks `log` once when it starts, and `landed` for a micro-batch that the ledger knows; else it calls `write`
    and then `confirm`. What a retried `write` does is the sink's guarantee, told by its class in recon.project.
    """

    # Called at the sink's own moments of a write (recon.sinks.failpoints); a crash test's ends the process there.
    failpoint: Failpoint = staticmethod(no_failpoint)

    @abstractmethod
    def write(self, frame: DataFrame, stamp: ReconStamp) -> None:
        """Write the micro-batch so that `stamp` can be found again; raises SinkError, or what Spark raises.

        Whatever an attempt that failed here leaves behind, the next one repairs.
        """

    @abstractmethod
    def confirm(self, stamp: ReconStamp) -> Landed:
        """Find what `write` just did.

        Raises:
            SinkError: nothing landed, or something else stands under this micro-batch's name.
        """

    @abstractmethod
    def landed(self, stamp: ReconStamp, version: int | None) -> Landed | None:
        """What an earlier attempt of a micro-batch that the ledger knows left; `version` is the ledger's.

        None has the micro-batch written again. A sink that keeps no record of its own trusts the ledger.
        """

    @abstractmethod
    def log(self, after: int | None = None, since: datetime | None = None) -> SinkLog:
        """What the sink itself remembers of recon's writes.

        Args:
            after: the version up to which everything is known, for sinks that have versions.
            since: the instant up to which everything is known, for sinks that have none.

        Raises:
            EvidenceError: the record cannot be read.
        """

    @abstractmethod
    def table(self, spark: SparkSession) -> DataFrame:
        """All rows that a reader of the sink sees now, with recon's columns.

        Raises:
            EvidenceError: the sink's rows cannot be read back.
        """

    @abstractmethod
    def rows_of(self, spark: SparkSession, landed: Landed, stamp: ReconStamp) -> DataFrame:
        """Exactly the rows that one write left, for post-batch checks."""
