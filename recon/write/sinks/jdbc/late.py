"""Writers of a repair: records that are read again long after those behind them were written.

A repair takes a number of the sink's writes, as a micro-batch does, so that one of two writers that meet is refused.
Which number is decided in the transaction: the query may write on meanwhile, as long as it writes other offsets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from recon._version import __version__
from recon.base.clock import utc_now
from recon.base.errors import SinkError
from recon.base.text import plural
from recon.model import ReconStamp, parse_offsets
from recon.model.offsets import OffsetSpan, Span, Spans
from recon.model.wire.ledger_row import LEDGER_TABLE, JdbcEntry, dump_ledger_row
from recon.project.sinks import JdbcAppendSink, JdbcUpsertSink
from recon.witness import jdbc_ledger
from recon.witness.jdbc_ledger import ledger_table
from recon.write.sinks import failpoints
from recon.write.sinks.jdbc.staged import AlreadyThereError, Stage, StagedWriter
from recon.write.sinks.jdbc.table import Tries
from recon.write.sinks.jdbc.writers import JdbcAppend, JdbcUpsert

if TYPE_CHECKING:
    from sqlalchemy import ColumnClause
    from sqlalchemy.engine import Connection


class LateWriter(StagedWriter):
    """Writes one repair under the next free number, if no write behind `seen` has offsets in common with it."""

    seen = 0  # the number of the sink's newest write when the repair looked at it

    @override
    def _is_mine(self, entry: JdbcEntry, stamp: ReconStamp) -> bool:
        return True  # whose it is, its query_id says, and that was compared

    @override
    def _move(self, stage: Stage, stamp: ReconStamp) -> None:
        tries = Tries(self.sink.retry)
        while True:
            try:
                super()._move(stage, replace(stamp, number=self._next_number(stamp)))
                break
            except AlreadyThereError:
                # The number went to a micro-batch, or another repair has the name of this one: `write` looks.
                if self.landed(stamp, None) is not None or not tries.again():
                    raise

    def remove_doubled(
        self, owned: Sequence[tuple[tuple[str, int], Span, int | None]], stamp: ReconStamp, *, held: int, doubled: int
    ) -> None:
        """Deletes all rows but one of each offset, in one transaction with a row of recon_ledger.

        Args:
            owned: topic partitions, offsets, and the micro-batch of whose rows one is kept.
            stamp: of the removal.
            held: how many of the offsets have a row.
            doubled: how many rows there are to delete; where there are others, nothing is.

        Raises:
            SinkError: somebody wrote meanwhile; nothing was changed.
        """
        from sqlalchemy import literal_column
        from sqlalchemy.exc import IntegrityError

        self._make_ledger()
        ledger = ledger_table(self.work_schema)
        tries = Tries(self.sink.retry)
        while True:
            entry = JdbcEntry(
                stamp=replace(stamp, number=self._next_number(stamp)),
                target=str(self.target),
                given=held,
                rows=doubled,
                at=utc_now(),
                recon_version=__version__,
            )
            now: ColumnClause[Any] = literal_column(self.dialect.utc_now)
            with self.engine.connect() as connection, connection.begin():
                try:
                    connection.execute(ledger.insert().values(**{**dump_ledger_row(entry), "committed_at": now}))
                except IntegrityError as error:
                    if self._entry(stamp) is not None or not tries.again():
                        raise self.failed(error, stamp) from None
                    continue
                self.failpoint(failpoints.TRANSACTION_OPEN, stamp)
                deleted = sum(self._delete(connection, *place) for place in owned)
                if deleted != doubled:
                    raise SinkError(
                        f"{stamp.label}: {doubled:,} doubled rows of {self.where} were to be removed, and there are "
                        f"{deleted:,} by now: somebody changes its rows; nothing was removed, run it again"
                    )
                self.failpoint(failpoints.BEFORE_COMMIT, stamp)
            return

    def _delete(self, connection: Connection, where: tuple[str, int], span: Span, owner: int | None) -> int:
        from sqlalchemy import text

        at = {"topic": where[0], "partition": where[1], "low": span.start, "high": span.end}
        of_range = {**at, "owner": -1 if owner is None else owner}
        delete = text(self.dialect.delete_doubled(self.target))
        if self.dialect.deletes_by_range:
            return connection.execute(delete, of_range).rowcount
        several = connection.execute(text(self.dialect.doubled(self.target)), at).all()
        return sum(
            connection.execute(delete, {**of_range, "low": offset, "high": offset + 1, "rows": count - 1}).rowcount
            for offset, count in several
        )

    def _next_number(self, stamp: ReconStamp) -> int:
        mine = parse_offsets(stamp.offsets_text)
        with self.engine.connect() as connection:
            newest = jdbc_ledger.newest_number(connection, self.work_schema, self.pipeline, self.sink.name)
            for entry in jdbc_ledger.numbered_behind(
                connection, self.work_schema, self.pipeline, self.sink.name, self.seen
            ):
                if _meet(mine, parse_offsets(entry.stamp.offsets_text)):
                    raise SinkError(
                        f"{stamp.label} was not written to {self.where}: {LEDGER_TABLE} has a write of its offsets "
                        "that was committed after this repair had looked at the sink; nothing was written here: run "
                        "it again, it looks at what is missing anew"
                    )
        return newest + 1


def _meet(some: Sequence[OffsetSpan], others: Sequence[OffsetSpan]) -> bool:
    return any(
        Spans.of([read.span]).intersect(Spans.of([other.span]))
        for read in some
        for other in others
        if (read.topic, read.partition) == (other.topic, other.partition) and read.span.size > 0 and other.span.size > 0
    )


class LateAppend(LateWriter, JdbcAppend):
    """Inserts the rows."""


class LateUpsert(LateWriter, JdbcUpsert):
    """Inserts new keys, and updates those rows alone that are older than the record."""

    @override
    def _move_rows(self, connection: Connection, stage: Stage) -> int:
        upsert = self._upsert(stage)
        undecided = int(connection.exec_driver_sql(self.dialect.count_undecided(upsert)).scalar_one())
        if undecided:
            by = f"they are equal in {upsert.newer_wins}" if upsert.newer_wins else "the sink has no newer_wins"
            raise SinkError(
                f"pipeline {self.pipeline}, sink {self.sink.name}: {plural(undecided, 'record')} to be read again have "
                "a key whose row came through another topic partition, so that their offsets do not say which of them "
                f"is the newer ({by}): a repair could put an older record in place of a newer row, and nothing was "
                "written: compare these keys with the table, correct the rows, then accept the finding"
            )
        connection.exec_driver_sql(self.dialect.delete_older(upsert))
        return super()._move_rows(connection, stage)


def late_writer(pipeline: str, sink: JdbcAppendSink | JdbcUpsertSink, seen: int) -> LateWriter:
    """The writer of a repair of a sink whose newest write was number `seen` when it was looked at."""
    writer = LateUpsert(pipeline, sink) if isinstance(sink, JdbcUpsertSink) else LateAppend(pipeline, sink)
    writer.seen = seen
    return writer
