"""The Spark session of an audit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recon.errors import LedgerError
from recon.model import Unavailable
from recon.project import Project
from recon.spark.errors import spark_error
from recon.spark.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NO_SPARK = "rows were not read (--no-spark)"


class AuditSession:
    """The Spark session of an audit, found or started when something first needs it: an audit may need no JVM."""

    def __init__(self, project: Project, no_spark: bool, spark: SparkSession | None) -> None:
        """`spark` is a session to use; without it the active one, or one built from `spark:` in recon.yml."""
        self._project, self._no_spark = project, no_spark
        self.running: SparkSession | None = spark

    def for_rows(self) -> SparkSession | Unavailable:
        """The session to read rows with; none with --no-spark."""
        return Unavailable("rows", _NO_SPARK, skipped=True) if self._no_spark else self._started()

    def for_ledger(self) -> SparkSession | None:
        """The session to read the ledger with; None where Spark is not needed for that and none is running.

        A ledger that Spark keeps cannot be read without it, whatever --no-spark says about rows.

        Raises:
            LedgerError: Spark keeps the ledger and cannot be started.
        """
        config = self._project.ledger
        if not (config.table or config.writer == "spark"):
            return self.running
        spark = self._started()
        if isinstance(spark, Unavailable):
            raise LedgerError(f"the ledger is kept by Spark: {spark.reason}")
        return spark

    def _started(self) -> SparkSession | Unavailable:
        if self.running is None:
            try:
                self.running = session(self._project)
            except Exception as error:  # the JVM fails in many ways; each is one reason
                return Unavailable("rows", f"no Spark session could be started: {spark_error(error)}")
        return self.running
