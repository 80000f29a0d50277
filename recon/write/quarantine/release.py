"""Release: rows that wait in quarantine are repaired, checked again and written through their sink, once.

A release is claimed first (`claims`), then written, then entered in the ledger: epoch -1, batch_id is its number, no
offsets. Each is written under a txn app id of its own, so that releases may be written in any order. A release that a
crash interrupted is finished by the next one, under the same number. Where the sink refuses the rows, the number is
closed (an empty commit of the sink takes its txn) and they wait again.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from recon.base.clock import utc_now
from recon.base.decision import Decision
from recon.base.errors import ConfigError, SinkError
from recon.base.storage import Storage
from recon.checks.binding import bind_post_batch
from recon.model import RELEASES, LedgerEntry, ReconStamp
from recon.model.wire.app_ids import numbered_app_id
from recon.model.wire.columns import QUARANTINE_COLUMNS, ROW_ID
from recon.model.wire.quarantine import dump_closed
from recon.project import Pipeline, Project, Sink, as_project
from recon.spark.catalog import require_located
from recon.spark.columns import filtered
from recon.spark.errors import spark_error
from recon.spark.lazy import F
from recon.spark.session import session
from recon.witness import delta_log
from recon.write.ledger import open_ledger, quarantined
from recon.write.ledger.entries import new_entry
from recon.write.ledger.ledger import checks_fingerprint
from recon.write.quarantine.claims import Claim, Claims
from recon.write.quarantine.once import require_kept, require_single
from recon.write.quarantine.repair import Repair, repaired
from recon.write.quarantine.rows import RowChecks
from recon.write.quarantine.table import open_quarantine
from recon.write.sinks import ConfirmedWrite, open_sink
from recon.write.sinks.delta.append import commit_nothing, commit_options
from recon.write.sinks.failpoints import BEFORE_LEDGER, BEFORE_WRITE, Failpoint, no_failpoint

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

log = logging.getLogger("recon")

QUERY = "release"  # the query_id of entries that no query wrote


@dataclass(frozen=True, kw_only=True)
class Released:
    """What a release did.

    Attributes:
        pipeline: the pipeline's name.
        sink: the sink's name.
        number: the release's number; None when no row could be released.
        rows: rows written to the sink.
        failing: rows that still fail their checks and stay in quarantine.
        version: the sink's version that holds the rows.
        finished: the numbers of interrupted releases that were finished first.
    """

    pipeline: str
    sink: str
    number: int | None
    rows: int
    failing: int
    version: int | None = None
    finished: tuple[int, ...] = ()


def release(
    project: str | Path | Project,
    pipeline: str,
    sink: str | None = None,
    *,
    repair: Repair | None = None,
    where: str | None = None,
    force: bool = False,
    by: str | None = None,
    reason: str | None = None,
    spark: SparkSession | None = None,
    failpoint: Failpoint = no_failpoint,
) -> Released:
    """Write rows that wait in quarantine into their sink, with a ledger entry of their own.

    The sink's row checks with `on_failure: quarantine` or `stop` are evaluated on the repaired rows; rows that still
    fail stay in quarantine. Rows keep `_batch_id` and their source columns, so that an audit counts them with the
    micro-batch that read them. Post-batch checks that judge a micro-batch as a whole are not evaluated.

    Args:
        project: where recon.yml is, or a `Project`.
        pipeline: the pipeline's name.
        sink: the sink's name; may be left out when the pipeline has one.
        repair: SQL expressions by column, or a function that gets the waiting rows and returns them repaired, each once
            at most. Rows have the sink's columns, `_recon_id` and `_recon_reasons`; `_recon_id` and the stamps must
            stay.
        where: an SQL condition on the waiting rows; the others are left alone.
        force: write rows that still fail, too.
        by: who releases, for the ledger and the compliance report; the user of the operating system by default.
        reason: why. A release that a crash interrupted keeps those of who began it.
        spark: the session; the active one, or one built from `spark:`, by default.
        failpoint: for tests: called before the rows are written to the sink, and before the ledger entry.

    Raises:
        ConfigError: unknown names; a `where` or `repair` that Spark does not accept; a repair that changes stamps or
            doubles rows. Rows that another program doubled in quarantine; `by` or `reason` is empty.
        SinkError: the sink did not take the rows; run the release again.
        LedgerError: the rows are in the sink and the entry could not be written; run the release again.
    """
    decision = Decision.of(by, reason)
    project = as_project(project)
    pipe, out = project.find_sink(pipeline, sink)
    if out.observed:
        raise ConfigError(
            f"pipeline {pipeline} has `write: {pipe.write}`: recon does not write sink {out.name}, and nothing of it "
            "is in quarantine"
        )
    if not out.appends_to_delta:
        raise ConfigError(
            f"pipeline {pipeline}, sink {out.name}: rows can be released into sinks of kind delta, and this one is "
            f"{out.kind}; repair the rows in {quarantined.location(project, pipeline, out)} and write them through the "
            "stream's own source"
        )
    spark = spark or session(project)
    require_located(project, [out], spark)
    run = ReleaseRun(project, pipe, out, spark, force=force, failpoint=failpoint)
    return run.release(repair, where, decision)


class ReleaseRun:
    """One call of `release`, for one sink."""

    def __init__(
        self,
        project: Project,
        pipeline: Pipeline,
        sink: Sink,
        spark: SparkSession,
        *,
        force: bool,
        failpoint: Failpoint,
    ) -> None:
        """Nothing is read yet.

        Raises:
            ConfigError: the place of the quarantine table cannot be used.
        """
        self._project, self._pipeline, self._sink, self._spark = project, pipeline, sink, spark
        self._force, self._failpoint = force, failpoint
        self._ledger = open_ledger(project, spark)
        self._table = open_quarantine(project, pipeline, sink)
        self._target = Storage(project.location(sink), project.storage_options)
        self._claims = Claims(spark, self._table, self._ledger, pipeline.name, sink.name, self._target)

    def release(self, repair: Repair | None, where: str | None, decision: Decision) -> Released:
        """Finishes interrupted releases, then releases the waiting rows that pass."""
        result = Released(pipeline=self._pipeline.name, sink=self._sink.name, number=None, rows=0, failing=0)
        if not self._table.exists():
            return result
        result = replace(result, finished=tuple(self._finish(claim, repair) for claim in self._claims.unfinished()))
        started_at = utc_now()
        checked = self._checked(self._repaired(self._waiting(where), repair), self._force)
        passing, failing = self._counted(checked)
        result = replace(result, failing=failing)
        if not passing:
            return result
        claim = self._claims.claim(checked.filter("NOT refused").select(ROW_ID), repair, self._force, decision)
        entry = self._write(claim, repair, started_at)
        return replace(result, number=claim.number, rows=entry.rows_written or 0, version=entry.sink_version)

    def _name(self, claim: Claim) -> str:
        return f"release {claim.number} of pipeline {self._pipeline.name}, sink {self._sink.name}"

    # -- which rows ----------------------------------------------------------------------------------

    def _waiting(self, where: str | None) -> DataFrame:
        return filtered(self._claims.waiting(), where, "where", f"the quarantined rows of {self._table.target}")

    def _repaired(self, waiting: DataFrame, repair: Repair | None) -> DataFrame:
        """The rows after the repair, of which each waits once, and was returned once with its stamps."""
        names = self._pipeline.name, self._sink.name
        require_single(
            waiting, self._table.rows(self._spark), lambda: self._ledger.quarantined(*names)[0], self._table.target
        )
        rows = repaired(waiting, repair, self._table.target)
        if callable(repair):
            require_kept(waiting, rows, self._table.target)
        return rows

    def _checked(self, rows: DataFrame, force: bool) -> DataFrame:
        """Each `_recon_id` and whether it is `refused`."""
        condition = None if force else self._refusal_condition(rows)
        refused = F.lit(False) if condition is None else condition
        return rows.groupBy(ROW_ID).agg(F.bool_or(refused).alias("refused"))

    def _refusal_condition(self, rows: DataFrame) -> Column | None:
        bounds = bind_post_batch(self._project, self._pipeline.name, self._sink.name)
        checks = RowChecks(bounds).fitted(rows, f"the quarantined rows of {self._table.target}")
        for bound, reason in checks.broken:
            if bound.config.on_failure != "warn":
                raise ConfigError(
                    f"post-batch check {bound.name}: {reason}; rows that cannot be checked are not released: correct "
                    "the check, or release with force"
                )
        return checks.refusal_condition()

    def _counted(self, checked: DataFrame) -> tuple[int, int]:
        """The number of rows that pass, and of those that fail."""
        try:
            counts = checked.agg(F.count_if(~F.col("refused")), F.count_if("refused")).collect()[0]
        except Exception as error:
            raise ConfigError(
                f"the quarantined rows of {self._table.target} cannot be repaired and checked: {spark_error(error)}"
            ) from error
        return int(counts[0]), int(counts[1])

    # -- write and record ------------------------------------------------------------------------------

    def _write(self, claim: Claim, repair: Repair | None, started_at: datetime) -> LedgerEntry:
        claimed = self._claims.rows(claim.number)
        rows = repaired(claimed, repair, self._table.target).drop(*QUARANTINE_COLUMNS)
        stamp = self._stamp(claim)
        self._failpoint(BEFORE_WRITE, stamp)
        landed = self._write_to_sink(rows, stamp, claim)
        self._failpoint(BEFORE_LEDGER, stamp)
        read = claimed.count() if claim.rows is None else claim.rows
        return self._record(claim, read, landed, started_at)

    def _stamp(self, claim: Claim) -> ReconStamp:
        return ReconStamp(
            pipeline=self._pipeline.name,
            sink=self._sink.name,
            epoch=RELEASES,
            batch_id=claim.number,
            query_id=QUERY,
            run_id=claim.note.token,
            prev_hash=self._ledger.head_hash(self._pipeline.name, self._sink.name),
            offsets_text="[]",
            by=claim.note.by,
            reason=claim.note.reason,
        )

    def _write_to_sink(self, rows: DataFrame, stamp: ReconStamp, claim: Claim) -> ConfirmedWrite:
        """Writes the rows. Another release may have found this one unfinished, and written or closed it meanwhile."""
        sink = self._sink.model_copy(update={"txn_app_id": self._app_id(claim)})
        writer = open_sink(self._project, self._pipeline.name, sink)
        try:
            writer.write(rows, stamp)
            return writer.confirm(stamp)
        except Exception as error:
            try:
                landed = self._landed(claim) or self._close(claim)
            except Exception as unknown:
                raise SinkError(
                    f"{self._name(claim)}: the sink did not take the rows ({spark_error(error)}), and whether it has "
                    f"them is unknown ({spark_error(unknown)}); they stay claimed: run a release again"
                ) from error
            if landed is None:
                raise SinkError(
                    f"{self._name(claim)}: the sink did not take the rows: {spark_error(error)}; nothing was written "
                    "and they wait in quarantine again: release them with a repair that makes them fit"
                ) from error
            return landed

    def _record(self, claim: Claim, read: int, landed: ConfirmedWrite, started_at: datetime) -> LedgerEntry:
        if claim.number in self._claims.recorded():  # by another release, or by a restart of the query
            entries = self._ledger.entries(self._pipeline.name, self._sink.name)
            for entry in entries:
                if entry.is_release and entry.batch_id == claim.number:
                    return entry
        entry = new_entry(
            self._stamp(claim),
            self._sink,
            "released",
            target=self._project.location(self._sink),
            offsets=(),
            read=read,
            written=landed.rows,
            quarantined=0,
            filtered=read - landed.rows if landed.rows is not None and landed.rows <= read else None,
            version=landed.version,
            started_at=started_at,
            guarantee="exactly-once",
            spark_version=self._spark.version,
            fingerprint=None if claim.note.force else checks_fingerprint(self._sink),
        )
        return self._ledger.append(entry)

    # -- finish what a crash left ------------------------------------------------------------------------

    def _finish(self, claim: Claim, repair: Repair | None) -> int:
        """Writes an interrupted release, unless its rows are in the sink already, and records it; its number."""
        started_at = utc_now()
        landed = self._landed(claim)
        if landed is not None:
            self._record(claim, self._claims.rows(claim.number).count(), landed, started_at)
            log.warning("%s was interrupted after its write; its ledger entry was added", self._name(claim))
            return claim.number
        if claim.note.function and not callable(repair):
            raise ConfigError(
                f"{self._name(claim)} was interrupted before its write, and its repair was a function: call "
                "recon.release with the same function, which finishes it"
            )
        original = repair if claim.note.function else claim.note.expressions
        rows = self._repaired(self._claims.rows(claim.number), original)
        if not claim.note.force:
            _, failing = self._counted(self._checked(rows, False))
            if failing and self._close(claim) is None:
                raise SinkError(
                    f"{self._name(claim)} was interrupted before its write, and {failing} of its rows now fail the "
                    "checks; they wait in quarantine again: release them with a repair that makes them pass"
                )
        self._write(claim, original, started_at)
        log.warning("%s was interrupted before its write and is now finished", self._name(claim))
        return claim.number

    def _close(self, claim: Claim) -> ConfirmedWrite | None:
        """Lets the claimed rows wait again; if the sink has them after all, what it has.

        An empty commit takes the release's txn first, so that Delta skips a write of it that is still running.
        """
        if delta_log.latest_version(self._target) is not None:
            options = commit_options(self._app_id(claim), claim.number, dump_closed(claim.number))
            commit_nothing(self._spark, self._project.location(self._sink), options)
            landed = self._landed(claim)
            if landed is not None:
                return landed
        self._claims.return_rows(claim.number)
        return None

    def _app_id(self, claim: Claim) -> str:
        return numbered_app_id(self._pipeline.name, self._sink.name, RELEASES, claim.number)

    def _landed(self, claim: Claim) -> ConfirmedWrite | None:
        """What the sink has of a claim; None where it was not written, or was closed."""
        app_id = self._app_id(claim)
        if delta_log.transaction_version(self._target, app_id) is None:
            return None
        for commit in delta_log.read(self._target).commits.values():
            if app_id in commit.txn and commit.stamp is None:  # closed
                return None
            if app_id in commit.txn and commit.stamp is not None and claim.note.token in (None, commit.stamp.run_id):
                return ConfirmedWrite(version=commit.version, rows=commit.rows_added)
        raise SinkError(
            f"{self._project.location(self._sink)} has txn ({app_id}, {claim.number}), and its log has no commit of "
            f"this release of pipeline {self._pipeline.name}, sink {self._sink.name}: another ledger released into "
            "this table; look at its history before you release again"
        )
