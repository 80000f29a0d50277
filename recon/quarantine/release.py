"""Release: rows that wait in quarantine are repaired, checked again and written through their sink, once.

A release is claimed first (its number is written to its rows, by a MERGE that carries a txn), then written (under a
txn app id of its own, so that releases may be written in any order), then entered in the ledger: epoch -1, batch_id is
its number, no offsets. Whatever a crash leaves behind, the next release finishes it under the same number. Where the
sink refuses the rows, the number is closed (an empty commit of the sink takes its txn) and they wait again.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from recon._version import __version__
from recon.checks import registry
from recon.errors import ConfigError, SinkError
from recon.evidence import delta_log
from recon.ledger import Ledger, open_ledger, quarantined
from recon.ledger.ledger import checks_fingerprint, utc_now
from recon.ledger.rebuild import recorded
from recon.model import RELEASES, DeltaCommit, LedgerEntry, ReconStamp
from recon.model.wire.app_ids import claim_app_id, parse_app_id, release_app_id
from recon.model.wire.columns import QUARANTINE_COLUMNS, REASONS, RELEASE, ROW_ID, STAMPED_COLUMNS
from recon.model.wire.quarantine import ClaimNote, dump_claim, dump_closed, dump_returned, parse_claim
from recon.project import DeltaSink, Pipeline, Project, Sink, load
from recon.quarantine.rows import RowChecks
from recon.quarantine.table import QuarantineTable, open_quarantine
from recon.sinks import BatchSink, Landed, find_sink, open_sink
from recon.sinks.failpoints import BEFORE_LEDGER, BEFORE_WRITE, Failpoint, no_failpoint
from recon.spark.errors import spark_error
from recon.spark.lazy import F
from recon.spark.session import session
from recon.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

log = logging.getLogger("recon")

Repair = Callable[["DataFrame"], "DataFrame"] | Mapping[str, str]

QUERY = "release"  # the query_id of entries that no query wrote
_CONF = "spark.databricks.delta"


@dataclass(frozen=True, kw_only=True)
class Released:
    """What a release did. `number` is None when no row could be released.

    `rows` were written to the sink as its `version`; `failing` were looked at and wait on because they still fail.
    `finished` are the numbers of interrupted releases that were finished on the way.
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
    spark: SparkSession | None = None,
    failpoint: Failpoint = no_failpoint,
) -> Released:
    """Write rows that wait in quarantine into their sink, with a ledger entry of their own.

    The sink's row checks with `on_failure: quarantine` or `stop` are put to the repaired rows; rows that still fail
    wait on. Rows keep `_batch_id` and their source coordinates, so that an audit finds them where they belong.
    Post-batch checks that judge a micro-batch as a whole are not asked.

    Args:
        project: where recon.yml is, or a `Project`.
        pipeline: the pipeline's name.
        sink: the sink's name; may be left out when the pipeline has one.
        repair: SQL expressions by column, or a function that gets the waiting rows (the sink's columns, `_recon_id`
            and `_recon_reasons`) and returns them repaired, row by row; it must keep `_recon_id` and the stamps.
        where: SQL on the waiting rows; the others are not looked at.
        force: write rows that still fail, too.
        spark: the session; the active one, or one built from `spark:`, by default.
        failpoint: for tests: called before the rows are written to the sink, and before the ledger entry.

    Raises:
        ConfigError: unknown names, a `where` or `repair` that Spark does not accept.
        SinkError: the sink did not take the rows; run the release again.
        LedgerError: the rows are in the sink and the entry could not be written; run the release again.
    """
    if not isinstance(project, Project):
        project = load(project)
    pipe, out = find_sink(project, pipeline, sink)
    if not isinstance(out, DeltaSink):
        raise ConfigError(
            f"pipeline {pipeline}, sink {out.name}: rows can be released into sinks of kind delta, and this one is "
            f"{out.kind}; repair the rows in {quarantined.location(project, pipeline, out)} and write them through the "
            "stream's own source"
        )
    found = spark or session(project)
    return _ReleaseRun(project, pipe, out, found, open_ledger(project, found), failpoint).release(repair, where, force)


@dataclass
class _Claim:
    """A claimed release: its number, the note of its commit in the quarantine table, and the rows it claimed."""

    number: int
    note: ClaimNote
    rows: int | None = None


@dataclass
class _ReleaseRun:
    """Releases of one sink."""

    project: Project
    pipeline: Pipeline
    sink: Sink
    spark: SparkSession
    ledger: Ledger
    failpoint: Failpoint
    table: QuarantineTable = field(init=False)

    def __post_init__(self) -> None:
        self.table = open_quarantine(self.project, self.pipeline, self.sink)

    def release(self, repair: Repair | None, where: str | None, force: bool) -> Released:
        done = Released(pipeline=self.pipeline.name, sink=self.sink.name, number=None, rows=0, failing=0)
        if not self.table.exists():
            return done
        done = replace(done, finished=tuple(self._finish(claim, repair) for claim in self._unfinished()))
        started = utc_now()
        judged = self._judged(self._repaired(self._waiting(where), repair), force)
        passing, failing = self._counted(judged)
        done = replace(done, failing=failing)
        if not passing:
            return done
        claim = self._claim(judged.filter("NOT refused").select(ROW_ID), repair, force)
        entry = self._write(claim, repair, started)
        return replace(done, number=claim.number, rows=entry.rows_written or 0, version=entry.sink_version)

    # -- which rows ----------------------------------------------------------------------------------

    def _waiting(self, where: str | None) -> DataFrame:
        rows = self.table.rows(self.spark)
        waiting = rows.filter(F.col(RELEASE).isNull())
        if where is None:
            return waiting
        try:
            chosen = waiting.filter(F.expr(where))
            _ = chosen.schema
        except Exception as error:
            raise ConfigError(
                f"where {where!r} is no condition on the quarantined rows of {self.table.target}: {spark_error(error)}"
            ) from error
        return chosen

    def _repaired(self, rows: DataFrame, repair: Repair | None) -> DataFrame:
        """The rows after the repair, with `_recon_id`."""
        offered = rows.drop(*(name for name in QUARANTINE_COLUMNS if name not in (ROW_ID, REASONS)))
        if repair is None:
            return offered
        if callable(repair):
            done = repair(offered)
            missing = [
                name for name in (ROW_ID, *STAMPED_COLUMNS) if name in offered.columns and name not in done.columns
            ]
            if missing:
                raise ConfigError(
                    f"the repair returned rows without {missing[0]}; keep {ROW_ID} and the stamped columns in its rows"
                )
            return done
        for column in repair:
            if column in (*QUARANTINE_COLUMNS, *STAMPED_COLUMNS):
                raise ConfigError(f"{column} says where a row came from and cannot be set by a repair")
            if column not in offered.columns:
                raise ConfigError(
                    f"the quarantined rows of {self.table.target} have no column {column!r}; they have "
                    f"{', '.join(c for c in offered.columns if c not in QUARANTINE_COLUMNS)}"
                )
        try:
            done = offered.withColumns({column: F.expr(expression) for column, expression in repair.items()})
            # A repair must not change a column's type unseen: the sink would refuse the rows, or widen itself.
            done = done.withColumns({column: F.col(column).cast(offered.schema[column].dataType) for column in repair})
            _ = done.schema
        except Exception as error:
            told = ", ".join(f"{column} = {expression}" for column, expression in repair.items())
            raise ConfigError(f"the repair {told} cannot be applied: {spark_error(error)}") from error
        return done

    @cached_property
    def _checks(self) -> RowChecks:
        return RowChecks(registry.bind_post_batch(self.project, self.pipeline.name, self.sink.name))

    def _refused(self, rows: DataFrame) -> Column | None:
        checks = self._checks.fitted(rows, f"the quarantined rows of {self.table.target}")
        kept = [(b, reason) for b, reason in checks.broken if b.config.on_failure != "warn"]
        if kept:
            bound, reason = kept[0]
            raise ConfigError(
                f"post-batch check {bound.name}: {reason}; what cannot be judged is not released: correct the check, "
                "or release with force"
            )
        return checks.refusal_condition()

    def _judged(self, rows: DataFrame, force: bool) -> DataFrame:
        """Each row's id and whether it is `refused`. A row that a repair made several of goes whole or not at all."""
        condition = None if force else self._refused(rows)
        refused = F.lit(False) if condition is None else condition
        return rows.groupBy(ROW_ID).agg(F.bool_or(refused).alias("refused"))

    def _counted(self, judged: DataFrame) -> tuple[int, int]:
        """How many may go, and how many may not."""
        try:
            counted = judged.agg(F.count_if(~F.col("refused")), F.count_if("refused")).collect()[0]
        except Exception as error:
            raise ConfigError(
                f"the quarantined rows of {self.table.target} cannot be repaired and checked: {spark_error(error)}"
            ) from error
        return int(counted[0]), int(counted[1])

    # -- claim ---------------------------------------------------------------------------------------

    @property
    def _claims(self) -> str:
        return claim_app_id(self.pipeline.name, self.sink.name)

    def _recorded(self) -> set[int]:
        entries = recorded(self.ledger, self.pipeline.name, self.sink.name) if self.ledger.exists() else set()
        return {number for epoch, number in entries if epoch == RELEASES}

    def _entries(self) -> list[LedgerEntry]:
        return [entry for entry in self.ledger.entries(self.pipeline.name, self.sink.name) if entry.is_release]

    def _claimed(self) -> set[int]:
        rows = self.table.rows(self.spark).select(RELEASE).distinct().collect()
        return {int(row[0]) for row in rows if row[0] is not None}

    def _next(self) -> int:
        """A number that no claim, no entry and, as far as the newest version tells, no commit of the sink has."""
        latest = delta_log.latest_version(self._storage)
        txns = {} if latest is None else delta_log.read(self._storage, from_version=latest).txns
        ours = (self.pipeline.name, self.sink.name)
        apps = [app for app in map(parse_app_id, txns) if app is not None and (app.pipeline, app.sink) == ours]
        taken = delta_log.transaction_version(self.table.storage, self._claims)
        known = [
            *self._recorded(),
            *(app.release for app in apps if app.release is not None),
            -1 if taken is None else taken,
        ]
        return max(known) + 1

    def _claim(self, passing: DataFrame, repair: Repair | None, force: bool) -> _Claim:
        """Writes the next free number to the rows; of two releases at once, each gets a number of its own."""
        from delta.tables import DeltaTable

        number = self._next()
        note = ClaimNote(
            token=str(uuid.uuid4()),
            expressions=dict(repair) if isinstance(repair, Mapping) else None,
            function=callable(repair),
            force=force,
        )
        claim = _Claim(number, note)
        metadata = dump_claim(claim.note)
        before = delta_log.latest_version(self.table.storage)
        with self._as_commit(metadata, self._claims, number):
            (
                DeltaTable.forPath(self.spark, self.table.target)
                .alias("t")
                .merge(passing.alias("s"), f"t.{ROW_ID} = s.{ROW_ID} AND t.{RELEASE} IS NULL")
                .whenMatchedUpdate(set={RELEASE: F.lit(number).cast("long")})
                .execute()
            )
        after = -1 if before is None else before
        commit = delta_log.find_stamped(self.table.storage, self._claims, number, after=after)
        if commit is None or commit.user_metadata != metadata:
            raise SinkError(
                f"another release of pipeline {self.pipeline.name}, sink {self.sink.name} took number {number} at the "
                "same moment; nothing was claimed here: run it again"
            )
        counted = str(commit.operation_metrics.get("numTargetRowsUpdated"))
        claim.rows = int(counted) if counted.isdecimal() else None
        return claim

    @contextmanager
    def _as_commit(self, said: str, app: str | None = None, number: int = 0) -> Iterator[None]:
        """Lets the MERGE or UPDATE inside carry userMetadata, and a txn, which it takes from the session alone."""
        wanted = {f"{_CONF}.commitInfo.userMetadata": said}
        if app is not None:
            wanted |= {f"{_CONF}.write.txnAppId": app, f"{_CONF}.write.txnVersion": str(number)}
        before = {key: self.spark.conf.get(key, None) for key in wanted}
        try:
            for key, value in wanted.items():
                self.spark.conf.set(key, value)
            yield
        finally:
            for key, old in before.items():
                if old is None:
                    self.spark.conf.unset(key)
                else:
                    self.spark.conf.set(key, old)

    # -- write and record ------------------------------------------------------------------------------

    def _stamp(self, claim: _Claim) -> ReconStamp:
        return ReconStamp(
            pipeline=self.pipeline.name,
            sink=self.sink.name,
            epoch=RELEASES,
            batch_id=claim.number,
            query_id=QUERY,
            run_id=claim.note.token,
            prev_hash=self.ledger.head_hash(self.pipeline.name, self.sink.name),
            offsets_text="[]",
        )

    def _write(self, claim: _Claim, repair: Repair | None, started: datetime) -> LedgerEntry:
        claimed = self.table.rows(self.spark).filter(F.col(RELEASE) == claim.number)
        rows = self._repaired(claimed, repair)
        stamp = self._stamp(claim)
        self.failpoint(BEFORE_WRITE, stamp)
        landed = self._landed(self._writer(claim), rows.drop(*QUARANTINE_COLUMNS), stamp, claim)
        self.failpoint(BEFORE_LEDGER, stamp)
        read = claimed.count() if claim.rows is None else claim.rows
        return self._enter(claim, read, landed.rows, landed.version, started)

    def _landed(self, writer: BatchSink, rows: DataFrame, stamp: ReconStamp, claim: _Claim) -> Landed:
        """Writes the rows. Another release may have found this one unfinished, and written or closed it meanwhile."""
        name = f"release {claim.number} of pipeline {self.pipeline.name}, sink {self.sink.name}"
        try:
            writer.write(rows, stamp)
            return writer.confirm(stamp)
        except Exception as error:
            try:
                commit = self._commit(claim) or self._give_back(claim)
            except Exception as again:
                raise SinkError(
                    f"{name}: the sink did not take the rows ({spark_error(error)}), and whether it has them cannot be "
                    f"told ({spark_error(again)}); they stay claimed: run a release again"
                ) from error
            if commit is None:
                raise SinkError(
                    f"{name}: the sink did not take the rows: {spark_error(error)}; nothing was written and they wait "
                    "in quarantine again: release them with a repair that makes them fit"
                ) from error
            return Landed(version=commit.version, rows=commit.rows_added)

    def _give_back(self, claim: _Claim) -> DeltaCommit | None:
        """Lets claimed rows wait again, or gives the commit that has them after all.

        An empty commit takes the release's txn first: from then on Delta skips a write of it that still runs somewhere.
        """
        from delta.tables import DeltaTable

        if delta_log.latest_version(self._storage) is not None:
            target = self.project.location(self.sink)
            (
                self.spark.read.format("delta")
                .load(target)
                .limit(0)
                .write.format("delta")
                .mode("append")
                .option("txnAppId", self._app(claim.number))
                .option("txnVersion", claim.number)
                .option("userMetadata", dump_closed(claim.number))
                .save(target)
            )
            commit = self._commit(claim)
            if commit is not None:
                return commit
        waiting: dict[str, str | Column] = {RELEASE: F.lit(None).cast("long")}
        with self._as_commit(dump_returned(claim.number)):
            DeltaTable.forPath(self.spark, self.table.target).update(F.col(RELEASE) == claim.number, waiting)
        return None

    def _app(self, number: int) -> str:
        return release_app_id(self.pipeline.name, self.sink.name, number)

    def _writer(self, claim: _Claim) -> BatchSink:
        return open_sink(
            self.project, self.pipeline.name, self.sink.model_copy(update={"txn_app_id": self._app(claim.number)})
        )

    def _enter(
        self, claim: _Claim, read: int, written: int | None, version: int | None, started: datetime
    ) -> LedgerEntry:
        for entry in self._entries() if claim.number in self._recorded() else ():
            if entry.batch_id == claim.number:  # another release, or a restart of the query, was quicker
                return entry
        return self.ledger.append(
            LedgerEntry(
                pipeline=self.pipeline.name,
                sink=self.sink.name,
                sink_kind=self.sink.kind,
                target=self.project.location(self.sink),
                guarantee="exactly-once",
                query_id=QUERY,
                run_id=claim.note.token,
                epoch=RELEASES,
                batch_id=claim.number,
                attempt=1,
                status="released",
                offsets=(),
                rows_read=read,
                rows_written=written,
                rows_quarantined=0,
                rows_filtered=read - written if written is not None and written <= read else None,
                sink_version=version,
                started_at=started,
                committed_at=utc_now(),
                spark_version=self.spark.version,
                recon_version=__version__,
                checks_fingerprint=None if claim.note.force else checks_fingerprint(self.sink),
                prev_hash="",
                entry_hash="",
            )
        )

    # -- finish what a crash left ------------------------------------------------------------------------

    def _unfinished(self) -> list[_Claim]:
        """Claims without a ledger entry, oldest first."""
        numbers = sorted(self._claimed() - self._recorded())
        if not numbers:
            return []
        notes = {
            commit.txn[self._claims]: parse_claim(commit.user_metadata)
            for commit in delta_log.read(self.table.storage).commits.values()
            if self._claims in commit.txn
        }
        return [_Claim(number, notes.get(number, ClaimNote())) for number in numbers]

    def _finish(self, claim: _Claim, repair: Repair | None) -> int:
        """Writes a claimed release that was interrupted, unless its rows are in the sink already; enters it."""
        started = utc_now()
        name = f"release {claim.number} of pipeline {self.pipeline.name}, sink {self.sink.name}"
        commit = self._commit(claim)
        if commit is not None:
            read = self.table.rows(self.spark).filter(F.col(RELEASE) == claim.number).count()
            self._enter(claim, read, commit.rows_added, commit.version, started)
            log.warning("%s was interrupted after its write; its ledger entry was added", name)
            return claim.number
        if claim.note.function and not callable(repair):
            raise ConfigError(
                f"{name} was interrupted before its write, and its repair was a function: call recon.release with the "
                "same function, which finishes it"
            )
        with_ = repair if claim.note.function else claim.note.expressions
        if not claim.note.force:
            claimed = self.table.rows(self.spark).filter(F.col(RELEASE) == claim.number)
            _, failing = self._counted(self._judged(self._repaired(claimed, with_), False))
            if failing and self._give_back(claim) is None:
                raise SinkError(
                    f"{name} was interrupted before its write, and {failing} of its rows now fail the checks; they "
                    "wait in quarantine again: release them with a repair that makes them pass"
                )
        self._write(claim, with_, started)
        log.warning("%s was interrupted before its write and is now finished", name)
        return claim.number

    @property
    def _storage(self) -> Storage:
        return Storage(self.project.location(self.sink), self.project.storage_options)

    def _commit(self, claim: _Claim) -> DeltaCommit | None:
        """The sink's commit of a claim, if it came to that."""
        app = self._app(claim.number)
        if delta_log.transaction_version(self._storage, app) is None:
            return None
        for commit in delta_log.read(self._storage).commits.values():
            if app in commit.txn and commit.stamp is None:  # closed
                return None
            if app in commit.txn and commit.stamp is not None and claim.note.token in (None, commit.stamp.run_id):
                return commit
        raise SinkError(
            f"{self.project.location(self.sink)} knows txn ({app}, {claim.number}), and its log has no commit of "
            f"this release of pipeline {self.pipeline.name}, sink {self.sink.name}: another ledger released into this "
            "table; look at its history before you release again"
        )


__all__ = ["Released", "Repair", "release"]
