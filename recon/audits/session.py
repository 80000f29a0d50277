"""What all pipelines of an audit share: the Spark session and the ledger."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from recon.audits.anchor import Compared, compared
from recon.audits.gone import GoneSinks
from recon.base.errors import ConfigError, LedgerError
from recon.base.text import first_line
from recon.model import Unavailable
from recon.project import Project
from recon.spark.catalog import active_session, ask_active, locate
from recon.spark.catalogs import asked_of
from recon.spark.errors import spark_error
from recon.spark.session import session
from recon.write.ledger import Ledger, open_ledger
from recon.write.ledger.erasures import ERASURES
from recon.write.ledger.progress import PROGRESS
from recon.write.ledger.store import USUAL, Housekeeping, Store, open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("recon")

_NO_SPARK = "rows were not read (--no-spark)"


class AuditSession:
    """The Spark session and the ledger of an audit, opened when something first needs them; it may need no JVM."""

    def __init__(
        self,
        project: Project,
        no_spark: bool,
        spark: SparkSession | None,
        *,
        tidies: Housekeeping | None = None,
        spark_log: Path | None = None,
    ) -> None:
        """Nothing is opened yet.

        Args:
            project: a loaded recon.yml.
            no_spark: read no rows.
            spark: a session to use; without it the active one, or one built from `spark:` in recon.yml.
            tidies: from which sizes on the small files of the ledger's tables are merged before the first of them is
                read; they are left as they are when None.
            spark_log: a file for what a JVM that is started prints; the console when None.
        """
        self._project, self._no_spark, self._tidies, self._spark_log = project, no_spark, tidies, spark_log
        self.running: SparkSession | None = spark
        self._refused: ConfigError | None = None
        self._unstarted: Unavailable | None = None
        self._ledger: Ledger | None = None
        self._progress: Store | None = None
        self._erasures: Store | None = None
        self._compared: Compared | None = None
        self._gone: GoneSinks | None = None
        self._looked_for = False  # the catalog tables

    def ledger(self) -> Ledger:
        """The ledger; each of its tables looks for newer versions before every read.

        Raises:
            ConfigError: recon.yml names no place for it.
            LedgerError: Spark keeps the ledger and cannot be started.
        """
        if self._ledger is None:
            ledger = open_ledger(self._project, self._for_ledger(), self._tidies or USUAL)
            if self._tidies is not None:
                _tidy(ledger)
            self._ledger = ledger
        return self._ledger

    def compared(self) -> Compared:
        """The ledger's chains, compared with signed heads once for all pipelines."""
        if self._compared is None:
            self._compared = compared(self._project, self.ledger)
        return self._compared

    def gone(self) -> GoneSinks:
        """The sinks that recon.yml no longer has, read once for all pipelines; raises what `ledger` raises."""
        if self._gone is None:
            self._gone = GoneSinks(self._project, self.ledger())
        return self._gone

    def progress(self) -> Store:
        """The table of what a listener recorded of each micro-batch; raises what `ledger` raises."""
        if self._progress is None:
            self._progress = open_store(self._project, PROGRESS, self._for_ledger())
        return self._progress

    def erasures(self) -> Store:
        """The table of erasures; raises what `ledger` raises."""
        if self._erasures is None:
            self._erasures = open_store(self._project, ERASURES, self._for_ledger())
        return self._erasures

    def for_rows(self) -> SparkSession | Unavailable:
        """The session to read rows with; none with --no-spark."""
        return Unavailable("rows", _NO_SPARK, skipped=True) if self._no_spark else self._started()

    def locate(self) -> None:
        """Finds out where the catalog tables are that sinks name: logs are read by their path.

        A session that is there is asked, then the catalogs that recon.yml names. For what is left one is started, but
        with --no-spark. Once for all pipelines: a catalog that does not answer costs its time once.
        """
        if self._looked_for:
            return
        self._looked_for = True
        running = self.running or active_session()
        ask_active(self._project, running)
        left = [name for name in self._project.catalog_tables() if asked_of(self._project, name) is None]
        if not left or self._no_spark or running is not None:
            return
        spark = self._started()
        if not isinstance(spark, Unavailable):
            locate(self._project, spark, left)
            return
        for name in left:
            self._project.set_unlocated(name, f"the location of {name} is known to a catalog alone, and {spark.reason}")

    def raise_refusal(self) -> None:
        """Ends an audit for which Spark was refused: no check of rows could have another answer.

        Where a witness is read, whatever is raised becomes the witness's state; so the audit asks here.

        Raises:
            ConfigError: a jar that Spark fetched differs from the one that was published.
        """
        if self._refused is not None:
            raise self._refused

    def _for_ledger(self) -> SparkSession | None:
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
        if self._refused is not None:
            return Unavailable("rows", str(self._refused))
        if self._unstarted is not None:  # what failed once is not tried again for each table
            return self._unstarted
        if self.running is None:
            try:
                self.running = session(self._project, log=self._spark_log)
            except ConfigError as error:
                self._refused = error
                return Unavailable("rows", str(error))
            except Exception as error:  # the JVM fails in many ways; each is one reason
                printed = "" if self._spark_log is None else f"; what it printed is in {self._spark_log}"
                self._unstarted = Unavailable(
                    "rows", f"no Spark session could be started: {spark_error(error)}{printed}"
                )
                return self._unstarted
        return self.running


def _tidy(ledger: Ledger) -> None:
    """Merges small files: every pipeline's entries are looked for in each of them."""
    try:
        ledger.tidy()
    except Exception as error:  # the tables are read as they are, and say themselves what is wrong with them
        log.info("the ledger's small files are not merged: %s", first_line(error))
