"""Everything that an audit knows of one sink, before a check asks for more.

`SinkCase` takes what it was given apart: its properties are the facts that the judge's functions rest on. None of them
rests on rows, on data files of commits or on Kafka's records: a check reads these while it judges.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from recon.judge.history.entries import with_unrecorded_commits
from recon.judge.history.quarantine_log import Quarantine
from recon.judge.history.record_history import RecordHistory, may_repeat, record_of
from recon.judge.history.row_balance import RowBalance
from recon.judge.history.sink_history import SinkHistory
from recon.judge.history.table_history import TableHistory, history_of
from recon.judge.row_counts import Counts, Filtered, Processing, counted_entries
from recon.judge.source import Source
from recon.judge.stateful_operators import Operators, operators_of
from recon.judge.subscription import Subscription
from recon.model import LedgerSlice, SinkCommit, Witnesses, Writing, known
from recon.model.once import Derived
from recon.model.proof import memory_of


def with_deletions(witnesses: Witnesses) -> Witnesses:
    """The witnesses with what the declared deletions of the judged sink deleted, as far as a check needs to read it."""
    table = SinkCase(witnesses).table if witnesses.deletes.get(witnesses.sink or "") else None
    questions = table.questions if table is not None else ()
    instants = {at for question in questions if (at := question.read_before) is not None}
    return witnesses.with_deletions([question.rows for question in questions], instants)


class SinkCase:
    """One sink in one audit. What is asked for is found once.

    `entered` are the sink's entries, none where they were not read; `proof` is the state that earlier audits left.
    `declared` is what recon.yml says of the transform, `observed` whether the query writes without recon; `rewrites` is
    whether later micro-batches may replace rows of earlier ones, so that a missing row proves nothing. `is_route` is
    whether a route of the pipeline leads to the sink. `rows_lack_source` is whether no row says which record it was
    made of: rows that Spark's own sink wrote without source columns do not, nor do those of another source than Kafka.
    """

    def __init__(self, witnesses: Witnesses) -> None:
        self.witnesses, self.sink, self.time = witnesses, witnesses.sink or "", witnesses.time
        self.entered = witnesses.ledger or LedgerSlice.empty(witnesses.pipeline, self.sink)
        self.proof, self.source = witnesses.proof, Source.of(witnesses)
        self.declared, self.observed = witnesses.declared, witnesses.observed
        self.rewrites, self.is_route = self.sink in witnesses.rewriting, self.sink in witnesses.routed
        guarantee = witnesses.guarantees.get(self.sink, "exactly-once")
        self.writing = Writing(self.observed, self.rewrites, guarantee, self.declared)
        self.rows_lack_source = self.source.log is not None or (self.observed and not witnesses.source_columns)
        self.judged_by_counts = self.rewrites or self.rows_lack_source
        self._checkpoint = known(witnesses.checkpoint)
        self.derived: Derived = {}  # see `kept`

    @cached_property
    def ledger(self) -> LedgerSlice:
        """The entries, with an entry more for each commit that lacks one. Nobody asks where there is no entry."""
        if self.history is None:
            return self.entered
        return with_unrecorded_commits(self.entered, self.history, self.time, self._checkpoint)

    @cached_property
    def subscription(self) -> Subscription:
        """Which topic partitions the query is to read, and up to where it has."""
        return Subscription.of(self.witnesses)

    @cached_property
    def unrecorded(self) -> Sequence[SinkCommit]:
        """The writes that no entry records."""
        return self.history.unrecorded(self.time, self._checkpoint) if self.history is not None else ()

    @cached_property
    def history(self) -> SinkHistory | None:
        """What happened to the sink, whatever its kind, as `entered` knows it; None where it was not read."""
        return history_of(self.witnesses, self.entered) or self.record

    @cached_property
    def record(self) -> RecordHistory | None:
        """The same of a sink that has a record of its own; None for a table with a log."""
        return record_of(self.witnesses, self.entered)

    @cached_property
    def table(self) -> TableHistory | None:
        """What happened to a table with a log, as `ledger` knows it; None for any other sink."""
        return history_of(self.witnesses, self.ledger)

    @cached_property
    def balance(self) -> RowBalance | None:
        """The rows of that table against those of `ledger`."""
        return RowBalance.of(self.witnesses, self.table) if self.table is not None else None

    @cached_property
    def quarantine(self) -> Quarantine:
        """The sink's quarantine table."""
        return Quarantine.of(self.ledger, self.witnesses)

    @cached_property
    def operators(self) -> Operators:
        """The query's stateful operators."""
        return operators_of(known(self.witnesses.progress), self._checkpoint)

    @cached_property
    def may_repeat(self) -> bool:
        """Whether the query lawfully writes several rows with one source offset, as far as is known."""
        return may_repeat(self.entered, self.proof, self.declared, self.operators)

    @cached_property
    def counts(self) -> Counts:
        """Rows and offsets of each micro-batch."""
        how = Processing(
            operators=self.operators,
            filtered_before=memory_of(self.proof, Filtered) is not None,
            records=self.source.records_of(self.ledger),
        )
        if self.rewrites:
            return counted_entries(self.ledger, how._replace(given=self._given, reduces=True))
        appends = self.table.appends if self.table is not None else {}
        how = how._replace(
            # An entry may have counted rows that a retried stage wrote twice.
            in_files={key: commit.rows_added for key, commit in appends.items() if commit.rows_added is not None},
            # In a route's entry, the rows of other routes count as filtered.
            filters=None if self.is_route else self.declared.filters,
            explodes=self.declared.explodes,
        )
        return counted_entries(self.ledger, how)

    @property
    def _given(self) -> Mapping[tuple[int, int], int]:
        """Rows given to the sink per (epoch, batch_id), where its own record has that count."""
        stamps = [write.stamp for write in (self.history.own_writes if self.history is not None else ())]
        return {(stamp.epoch, stamp.batch_id): stamp.given for stamp in stamps if stamp.given is not None}
