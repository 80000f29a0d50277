"""The sinks of kind `parquet`, `json` and `csv`: a folder of files."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator
from typing_extensions import override

from recon.model.wire.columns import BATCH_ID, EPOCH
from recon.project.fields import Texts
from recon.project.messages import BadValue
from recon.project.sinks.base import Guarantee, Sink
from recon.project.sinks.repairs import RepairAbility, without_record


class FileSink(Sink):
    """Writes Parquet, JSON or CSV files below `target`.

    `mode`: `replace` gives each micro-batch a folder of its own and a manifest, which is written last; `append` is
    Spark's append. `partition_by`, `options`: passed to Spark's writer.
    """

    writer = "recon.write.sinks.files.replace:FileReplace"
    repairs = "recon.write.sinks.files.repair:FileStore"
    variants = ({}, {"mode": "append"})

    kind: Literal["parquet", "json", "csv"]
    mode: Literal["replace", "append"] = "replace"
    partition_by: tuple[str, ...] = ()
    options: Texts = Field(default_factory=dict)

    @model_validator(mode="after")
    def _columns_of_recon(self) -> FileSink:
        for column in self.partition_by:
            if column in (BATCH_ID, EPOCH):
                raise BadValue(
                    f"names {column}, by which the sink's folders are divided anyway; remove it", "partition_by"
                )
        return self

    @property
    @override
    def promise(self) -> Guarantee:
        if self.mode == "append":
            return Guarantee(
                label="at-least-once",
                how="Spark's append; a retry adds files beside those of the failed attempt",
                needs="nothing but the folder",
            )
        return Guarantee(
            label="exactly-once",
            how="each attempt has a folder; the file of the write's number, made once, and a manifest name one",
            needs="readers that read what the manifests name (recon.read_batches)",
        )

    @property
    @override
    def repair_ability(self) -> RepairAbility:
        if self.mode == "append":
            return without_record("mode: append")
        return RepairAbility(
            no_removal="rows of several files cannot be taken out in one step, so a repair removes none: let readers "
            "keep one row of each offset, or write the rows into another target without the others; then accept the "
            "finding"
        )
