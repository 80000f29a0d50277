"""Claims: a release writes its number to the quarantined rows that it is going to write, before it writes them.

A claim is a MERGE into the quarantine table with a note in userMetadata and a txn, whose version is the release's
number. So two releases never write the same row, and an interrupted release can be finished later.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from recon.base.decision import Decision
from recon.base.errors import SinkError
from recon.base.storage import Storage
from recon.model import RELEASES
from recon.model.wire.app_ids import claim_app_id, numbers_taken
from recon.model.wire.columns import ERASED, REASONS, RELEASE, ROW_ID
from recon.model.wire.quarantine import ClaimNote, dump_claim, dump_returned, parse_claim
from recon.spark.delta_tables import Merge, update
from recon.spark.lazy import F
from recon.spark.merge import Clause
from recon.witness import delta_log
from recon.write.ledger import Ledger
from recon.write.ledger.rebuild import recorded
from recon.write.quarantine.repair import Repair
from recon.write.quarantine.table import QuarantineTable
from recon.write.sinks.delta.commit import committing_with

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class Claim:
    """A claimed release: its number, the note of its commit, and how many rows it claimed (None where unknown)."""

    number: int
    note: ClaimNote
    rows: int | None = None


class Claims:
    """The claims on one sink's quarantined rows."""

    def __init__(
        self, spark: SparkSession, table: QuarantineTable, ledger: Ledger, pipeline: str, sink: str, target: Storage
    ) -> None:
        """`target` is the sink's own table. Nothing is read yet."""
        self._spark, self._table, self._ledger = spark, table, ledger
        self._pipeline, self._sink, self._target = pipeline, sink, target
        self._app_id = claim_app_id(pipeline, sink)

    def waiting(self) -> DataFrame:
        """Quarantined rows that no release has claimed; those whose values were erased can never be released."""
        waiting = self._table.rows(self._spark).filter(F.col(RELEASE).isNull())
        return waiting.filter(~F.coalesce(F.array_contains(REASONS, ERASED), F.lit(False)))

    def rows(self, number: int) -> DataFrame:
        """The rows that a release has claimed."""
        return self._table.rows(self._spark).filter(F.col(RELEASE) == number)

    def recorded(self) -> set[int]:
        """The numbers of releases with a ledger entry."""
        entries = recorded(self._ledger, self._pipeline, self._sink)
        return {number for epoch, number in entries if epoch == RELEASES}

    def unfinished(self) -> list[Claim]:
        """Claims without a ledger entry, oldest first."""
        claimed = self._table.rows(self._spark).select(RELEASE).distinct().collect()
        numbers = sorted({int(row[0]) for row in claimed if row[0] is not None} - self.recorded())
        if not numbers:
            return []
        notes = {
            commit.txn[self._app_id]: parse_claim(commit.user_metadata)
            for commit in delta_log.read(self._table.storage).commits.values()
            if self._app_id in commit.txn
        }
        return [Claim(number, notes.get(number, ClaimNote())) for number in numbers]

    def claim(self, passing: DataFrame, repair: Repair | None, force: bool, decision: Decision) -> Claim:
        """Writes the next free number to the rows; of two releases at once, each gets a number of its own.

        Raises:
            SinkError: another release took the number at the same moment.
        """
        number = self._next_number()
        note = ClaimNote(
            token=str(uuid.uuid4()),
            expressions=dict(repair) if isinstance(repair, Mapping) else None,
            function=callable(repair),
            force=force,
            by=decision.by,
            reason=decision.reason,
        )
        metadata = dump_claim(note)
        before = delta_log.latest_version(self._table.storage)
        with committing_with(self._spark, metadata, self._app_id, number):
            Merge(
                target=self._table.target,
                source=passing,
                on=f"t.{ROW_ID} = s.{ROW_ID} AND t.{RELEASE} IS NULL",
                clauses=[Clause(matched=True, values={RELEASE: f"{number}L"})],
            ).execute()
        after = -1 if before is None else before
        commit = delta_log.find_stamped(self._table.storage, self._app_id, number, after=after)
        if commit is None or commit.user_metadata != metadata:
            raise SinkError(
                f"another release of pipeline {self._pipeline}, sink {self._sink} took number {number} at the same "
                "moment; nothing was claimed here: run it again"
            )
        updated = str(commit.operation_metrics.get("numTargetRowsUpdated"))
        return Claim(number, note, int(updated) if updated.isdecimal() else None)

    def return_rows(self, number: int) -> None:
        """Lets the rows of a release wait in quarantine again."""
        with committing_with(self._spark, dump_returned(number)):
            update(self._spark, self._table.target, {RELEASE: "NULL"}, where=f"{RELEASE} = {number}")

    def _next_number(self) -> int:
        """A number that no claim, no entry and, as far as its newest version has txns, no commit of the sink has."""
        latest = delta_log.latest_version(self._target)
        txns = {} if latest is None else delta_log.read(self._target, from_version=latest).txns
        written = numbers_taken(txns, self._pipeline, self._sink, RELEASES)
        claimed = delta_log.transaction_version(self._table.storage, self._app_id)
        return 1 + max([-1, *self.recorded(), *written, *([] if claimed is None else [claimed])])
