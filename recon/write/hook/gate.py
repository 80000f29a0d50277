"""The gate of the post-batch checks: decides whether a micro-batch may be written, and then committed."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from recon.base.clock import utc_now
from recon.base.errors import GateError
from recon.model import CheckResult
from recon.project import Project, Sink
from recon.spark.observation import ROWS
from recon.write.quarantine.rows import FAILING, RowChecks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger("recon")


class Gate:
    """Applies `on_failure` to the results of a sink's post-batch checks: logs them, or stops the micro-batch."""

    def __init__(self, project: Project, sink: Sink, checks: RowChecks, quarantine: str | None) -> None:
        """`quarantine` is where the sink's quarantine table is, None where no check quarantines rows."""
        self._project, self._sink, self._checks, self._quarantine = project, sink, checks, quarantine
        self._actions = {bound.name: bound.config.on_failure for bound in checks.bounds}

    def before_write(self, results: Iterable[CheckResult], batch_id: int) -> None:
        """Logs the results of row checks before anything is written.

        Raises:
            GateError: a check with `on_failure: stop` failed, or one that is not `warn` could not be evaluated.
        """
        for result in results:
            if result.status == "error" and self._actions[result.name] != "warn":
                raise GateError(
                    f"post-batch check {result.name}: {result.message}; rows that cannot be checked are not written: "
                    f"nothing of micro-batch {batch_id} was written; correct the check, then restart the query"
                )
            self._apply(result, batch_id)

    def after_write(self, results: Iterable[CheckResult], batch_id: int) -> None:
        """Logs the results of row checks that were evaluated during the write."""
        for result in results:
            self._apply(result, batch_id)

    def _apply(self, result: CheckResult, batch_id: int) -> None:
        action = self._actions[result.name]
        if result.status == "fail" and action == "stop":
            raise GateError(
                f"{_sentence(result)}; nothing of micro-batch {batch_id} was written: repair the rows in the "
                "transform or relax the check, then restart the query, which reads the micro-batch again"
            )
        if action == "quarantine" and result.failures:
            log.warning("%s; the rows are written to quarantine, %s", _sentence(result), self._quarantine)
        elif result.status not in ("pass", "skipped"):
            log.warning("%s", _sentence(result))

    def require_few_failing(self, counts: Mapping[str, Any], batch_id: int) -> None:
        """Raises GateError where a larger share of the rows fails than `quarantine: stop_above` allows."""
        limit, rows = self._sink.quarantine.stop_above, counts[ROWS]
        failing = counts.get(FAILING, 0)
        if limit is None or not rows or failing <= limit * rows:
            return
        names = ", ".join(name for name, action in self._actions.items() if action == "quarantine")
        raise GateError(
            f"{failing:,} of {rows:,} rows of micro-batch {batch_id} ({failing / rows:.2%}) fail {names}, and "
            f"quarantine: stop_above allows {limit:.2%}; nothing of it was written: repair the rows in the transform, "
            "relax the checks or raise stop_above, then restart the query, which reads the micro-batch again"
        )

    def require_whole_batch(self, rows: DataFrame, version: int | None) -> None:
        """Runs the checks that judge the micro-batch as a whole, on the rows that the sink holds of it.

        Raises:
            GateError: one with `on_failure: stop` failed or could not be evaluated; Spark does not commit the
                micro-batch then.
        """
        from recon.checks.engine import runner
        from recon.checks.engine.context import ScanContext
        from recon.checks.samples import Samples
        from recon.write.sinks.catalog import ProjectTables

        spark: SparkSession = rows.sparkSession
        bounds, location = self._checks.others, self._project.location(self._sink)
        context = ScanContext(tables=ProjectTables(self._project, spark), samples=Samples.of(self._project, self._sink))
        for bound, result in zip(bounds, runner.run_table(bounds, rows, location, utc_now, context), strict=True):
            if result.status in ("pass", "skipped"):
                continue
            if bound.config.on_failure == "stop" and result.status in ("fail", "error"):
                where = "the sink" if version is None else f"version {version}"
                raise GateError(
                    f"{_sentence(result)}; the rows are in {where}, the micro-batch is not committed: "
                    "repair them or relax the check, then restart the query"
                )
            log.warning("%s", _sentence(result))


def _sentence(result: CheckResult) -> str:
    return f"post-batch check {result.name}: {result.status} {result.failures or ''} {result.message}".strip()
