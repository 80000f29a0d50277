"""The sinks of kind `iceberg` and `iceberg_merge`: an Iceberg table that is appended to, or merged into by keys."""

from __future__ import annotations

import re
from typing import ClassVar, Literal

from pydantic import Field, field_validator
from typing_extensions import override

from recon.project.fields import Texts, one_tag
from recon.project.messages import BadValue
from recon.project.sinks.base import Guarantee, Sink
from recon.project.sinks.merging import MergeSink

_NAME = re.compile(r"[^.`]+(\.[^.`]+){2,}")


class IcebergTableSink(Sink):
    """A sink that is an Iceberg table, whose name `target` begins with the catalog's, such as `lake.sales.orders`.

    Spark writes with the session's catalog of that name. `catalog`: pyiceberg's properties of the same catalog (`type`,
    `uri`, `warehouse`, credentials), for confirming and auditing without Spark. What is left out comes from pyiceberg's
    own configuration. `partition_by`, `table_properties`: of the table that the first micro-batch makes; the former are
    Iceberg's transforms, such as `days(order_time)`.
    """

    in_files = False
    has_history = True
    in_iceberg = True
    secrets_from_environment = True

    catalog: Texts = Field(default_factory=dict, repr=False)
    partition_by: tuple[str, ...] = ()
    table_properties: Texts = Field(default_factory=dict)

    _one_transform = field_validator("partition_by", mode="before")(one_tag)

    @field_validator("target")
    @classmethod
    def _names_a_table(cls, target: str) -> str:
        if not _NAME.fullmatch(target):
            raise BadValue(
                "must be the table's name with catalog and namespace, such as lake.sales.orders", show_value=True
            )
        return target


class IcebergSink(IcebergTableSink):
    """Appends to an Iceberg table, see IcebergTableSink.

    `options`: passed to Spark's writer.
    """

    writer = "recon.write.sinks.iceberg.append:IcebergAppend"

    kind: Literal["iceberg"]
    options: Texts = Field(default_factory=dict)

    @property
    @override
    def promise(self) -> Guarantee:
        return Guarantee(
            label="exactly-once",
            how="the write is staged on a branch; one commit makes it current and sets the number of the write, where "
            "the table is still as it was read",
            needs="a catalog that pyiceberg and Spark both reach, and a table of format version 2",
        )


class IcebergMergeSink(IcebergTableSink, MergeSink):
    """Merges into an Iceberg table, see IcebergTableSink and MergeSink."""

    writer = "recon.write.sinks.iceberg.merge:IcebergMerge"

    # What `delta_merge` has besides: recon.write.sinks.reduce asks for it.
    scd2: ClassVar[None] = None
    evolve_schema: ClassVar[bool] = False
    prune_by: ClassVar[tuple[()]] = ()

    kind: Literal["iceberg_merge"]

    @property
    @override
    def promise(self) -> Guarantee:
        return Guarantee(
            label="exactly-once",
            how="the MERGE is staged on a branch; one commit makes it current and sets the number of the write, where "
            "the table is still as it was read",
            needs="what `iceberg` needs, a table that only this sink writes, and keys that are never NULL",
        )
