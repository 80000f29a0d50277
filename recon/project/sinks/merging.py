"""What sinks that merge into a table by keys have in common."""

from __future__ import annotations

from pydantic import Field, field_validator, model_validator
from typing_extensions import override

from recon.project.fields import one_tag, require_unique
from recon.project.messages import BadValue
from recon.project.sinks.base import Sink


class MergeSink(Sink):
    """Merges into the table at `target`: one row per key.

    `keys`: the columns that identify a row; a NULL in one of them stops the micro-batch.
    `newer_wins`: a column by which a row replaces only an older one. `order_by`: SQL expressions that rank the rows of
    one key within a micro-batch after `newer_wins` and before the source offset; the greatest is kept.
    `update_when`, `insert_when`: SQL conditions on the source row `s` and, for an update, the target row `t`.
    `delete_when`: an SQL condition on the source row that makes it a tombstone of its key.
    """

    rewrites = True

    keys: tuple[str, ...] = Field(min_length=1)
    newer_wins: str | None = None
    order_by: tuple[str, ...] = ()
    update_when: str | None = None
    insert_when: str | None = None
    delete_when: str | None = None

    _one_column = field_validator("keys", "order_by", mode="before")(one_tag)

    @model_validator(mode="after")
    def _keys_fit(self) -> MergeSink:
        require_unique("keys", f" of sink '{self.name}'", self.keys)
        if self.newer_wins in self.keys:
            raise BadValue(f"is '{self.newer_wins}', one of the keys; it has to tell rows of a key apart", "newer_wins")
        if not self.stamp_source_offsets and self.ordered_by_offsets:
            raise BadValue(
                f"sink '{self.name}' needs newer_wins or order_by: without source offsets nothing says which of two "
                "rows of a key is the latest",
                "stamp_source_offsets",
                whole=True,
            )
        return self

    @property
    @override
    def ordered_by_offsets(self) -> bool:
        return not (self.newer_wins or self.order_by)
