"""The sinks of kind `delta` and `delta_merge`: a Delta table that is appended to, or merged into by keys."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator, model_validator
from typing_extensions import override

from recon.model.wire.columns import SourceNames
from recon.project.fields import Strict, Texts, one_tag
from recon.project.messages import BadValue
from recon.project.sinks.base import Guarantee, Sink
from recon.project.sinks.merging import MergeSink
from recon.project.sinks.repairs import RepairAbility, of_replaced_rows


class SourceColumns(Strict):
    """Columns of your own that say which record a row was made of, where the query writes without recon.

    `topic`: the column with Kafka's topic; may be left out where the pipeline reads one topic. `partition`, `offset`:
    those with Kafka's partition and offset.
    """

    topic: str | None = None
    partition: str
    offset: str

    @model_validator(mode="after")
    def _differ(self) -> SourceColumns:
        names = [name for name in (self.topic, self.partition, self.offset) if name is not None]
        for name in names:
            if names.count(name) > 1:
                raise BadValue(
                    f"name column '{name}' twice; each of topic, partition and offset is a column of its own"
                )
        return self


class DeltaSink(Sink):
    """Appends to the Delta table at `target`: a path, a URI, or its name in a catalog.

    `txn_app_id`: a fixed Delta application id, for tables that already have one; recon's own is safer. With
    `write: foreach_batch` the one that your function writes with, as Delta's option txnAppId; its txnVersion is then
    the batch_id.
    `partition_by`, `options`: passed to Spark's writer.
    `source_columns`: with `write: native` or `foreach_batch`, columns of your own with Kafka's topic, partition and
    offset.
    """

    writer = "recon.write.sinks.delta.append:DeltaAppend"
    repairs = "recon.write.sinks.delta.repair:DeltaStore"
    variants = ({}, {"txn_app_id": "own"})
    is_delta = True
    has_history = True

    kind: Literal["delta"] = "delta"
    txn_app_id: str | None = None
    partition_by: tuple[str, ...] = ()
    options: Texts = Field(default_factory=dict)
    source_columns: SourceColumns | None = None

    @property
    @override
    def fixed_app_id(self) -> str | None:
        return self.txn_app_id

    @property
    @override
    def named_source(self) -> SourceNames | None:
        columns = self.source_columns
        return None if columns is None else SourceNames(columns.topic, columns.partition, columns.offset)

    @property
    @override
    def promise(self) -> Guarantee:
        # With a fixed app id a new checkpoint's batch 0 cannot be distinguished from the old one's.
        return Guarantee(
            label="exactly-once" if self.txn_app_id is None else "exactly-once within one checkpoint",
            how="the commit carries a txn with the number of the write, which Delta takes once"
            if self.txn_app_id is None
            else "the commit carries a txn with the batch id, so Delta drops a second write of the micro-batch",
            needs="a Delta table that only recon's app id writes with txn",
        )

    @property
    @override
    def repair_ability(self) -> RepairAbility:
        return RepairAbility()


class PruneBy(Strict):
    """A column of the target by whose values in a micro-batch a MERGE leaves out files.

    `immutable`: every row of a key has the same value there, for ever; needed where the column is none of the keys.
    """

    column: str
    immutable: bool = False

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: Any) -> Any:
        return {"column": value} if isinstance(value, str) else value


class History(Strict):
    """Keeps every version of a key (slowly changing dimension, type 2) instead of the newest alone.

    `effective`: the source column with the instant from which on a version is valid. `valid_from`, `valid_to`,
    `is_current`: the names of the target's columns; `valid_to` is NULL for the version that is valid now.
    """

    effective: str
    valid_from: str = "valid_from"
    valid_to: str = "valid_to"
    is_current: str = "is_current"


class DeltaMergeSink(MergeSink):
    """Merges into the Delta table at `target`: one row per key, or with `scd2` one per version of a key.

    `scd2`: keep history, see History. `evolve_schema`: add columns that the table lacks.
    `prune_by`: columns by which the MERGE leaves out files, see PruneBy.
    `partition_by`, `options`: for the table that the first micro-batch makes, passed to Spark's writer.
    """

    writer = "recon.write.sinks.delta.merge:DeltaMerge"
    repairs = "recon.write.sinks.delta.repair:MergeStore"
    is_delta = True
    has_history = True

    kind: Literal["delta_merge"]
    scd2: History | None = None
    evolve_schema: bool = False
    prune_by: tuple[PruneBy, ...] = ()
    partition_by: tuple[str, ...] = ()
    options: Texts = Field(default_factory=dict)

    _one_name = field_validator("prune_by", "partition_by", mode="before")(one_tag)

    @model_validator(mode="after")
    def _columns_fit(self) -> DeltaMergeSink:
        for n, prune in enumerate(self.prune_by):
            if prune.column not in self.keys and not prune.immutable:
                raise BadValue(
                    f"names '{prune.column}', which is none of the keys: where a key's value changes there, its old "
                    "row would not be found and stay beside the new one; make it a key, or declare that it never "
                    f"changes: {{column: {prune.column}, immutable: true}}",
                    "prune_by",
                    n,
                )
        if self.scd2 is not None:
            self._history_fits(self.scd2)
        return self

    def _history_fits(self, scd2: History) -> None:
        for key in ("newer_wins", "update_when", "insert_when"):
            if getattr(self, key) is not None:
                raise BadValue(
                    f"cannot be combined with scd2, which keeps every version by its instant in {scd2.effective}; "
                    "filter rows in the transform",
                    key,
                )
        if scd2.effective in self.keys:
            raise BadValue(f"is '{scd2.effective}', one of the keys; leave it out of them", "scd2", "effective")
        taken = {column.lower() for column in self.keys}
        for name in ("valid_from", "valid_to", "is_current"):
            column = getattr(scd2, name)
            if column.lower() in taken:
                raise BadValue(f"is '{column}', which is another column of the sink; name it otherwise", "scd2", name)
            taken.add(column.lower())

    @property
    @override
    def promise(self) -> Guarantee:
        return Guarantee(
            label="exactly-once",
            how="the MERGE's commit carries a txn with the number of the write, which Delta takes once",
            needs="a Delta table that only this sink writes, and keys that are never NULL",
        )

    @property
    @override
    def repair_ability(self) -> RepairAbility:
        keys = ("delete_when", "insert_when", "update_when")
        ranked = self.order_by and self.newer_wins is None and self.scd2 is None
        conditions = (key for key in keys if getattr(self, key) is not None)
        return of_replaced_rows(next(conditions, "order_by" if ranked else None))
