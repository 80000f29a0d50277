"""Deletions of a sink's rows that recon.yml declares: who may delete, and how old the rows have to be."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from recon.base.text import plural
from recon.model.deletion import DeclaredDeletion
from recon.project.fields import Strict, Texts, one_tag
from recon.project.messages import BadValue

OF_DELTA = ("predicate", "user_metadata", "job", "user")
OF_ICEBERG = ("snapshot_property",)


class Age(Strict):
    """The age that deleted rows must have.

    `count`, `period`: as of dbt's freshness. `column`: the column of the rows with their time; by default their age is
    counted from when the stream read their record, as the ledger says.
    """

    count: int = Field(ge=1)
    period: Literal["minute", "hour", "day"]
    column: str | None = None

    @property
    def length(self) -> timedelta:
        """The same as a timedelta."""
        return self.count * timedelta(**{f"{self.period}s": 1})


class DeletedBy(Strict):
    """By what the commit of a deletion is recognized; every key that is given has to fit.

    `predicate`: the columns that the condition of the DELETE names, and no others, whatever it compares them with.
    `user_metadata`: the commit's userMetadata, or its beginning and `*`. `job`, `user`: the name of the job and of the
    user, as Databricks records them. `snapshot_property`: properties of an Iceberg snapshot.
    """

    predicate: tuple[str, ...] = ()
    user_metadata: str | None = Field(default=None, min_length=1)
    job: str | None = Field(default=None, min_length=1)
    user: str | None = Field(default=None, min_length=1)
    snapshot_property: Texts = Field(default_factory=dict)

    _one_column = field_validator("predicate", mode="before")(one_tag)

    @model_validator(mode="after")
    def _names_somebody(self) -> DeletedBy:
        if not self.keys:
            raise BadValue(
                "names nobody: a deletion is recognized by predicate, user_metadata, job or user of a Delta commit, or "
                "by snapshot_property of an Iceberg snapshot"
            )
        if self.user_metadata == "*":
            raise BadValue("is '*', which every commit has; name the beginning of the text", "user_metadata")
        return self

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys that it gives."""
        return tuple(key for key in (*OF_DELTA, *OF_ICEBERG) if getattr(self, key))


class Deletes(Strict):
    """A deletion that is lawful: `by` whom, and `older_than` which age the rows have to be.

    Rows that such a commit deletes are counted and reported, and are no finding. Every other row that is gone is one.
    """

    by: DeletedBy
    older_than: Age | None = None

    @model_validator(mode="after")
    def _an_age_where_anybody_may_delete(self) -> Deletes:
        if self.older_than is None and self.by.keys == ("predicate",):
            raise BadValue(
                "names a predicate alone, which anybody's DELETE may have, and no age: add older_than, such as "
                "{count: 30, period: day}, or who deletes (user_metadata, job or user)",
                "by",
            )
        return self

    @property
    def declared(self) -> DeclaredDeletion:
        """The same for the judge."""
        made_by = {name: text for name, text in (("job", self.by.job), ("user", self.by.user)) if text is not None}
        age = self.older_than
        return DeclaredDeletion(
            columns=self.by.predicate,
            user_metadata=self.by.user_metadata or "",
            made_by=made_by,
            properties=self.by.snapshot_property,
            older_than=age.length if age is not None else None,
            age=plural(age.count, age.period) if age is not None else "",
            column=(age.column or "") if age is not None else "",
        )


def several_deletes(value: Any) -> Any:
    """One declaration as a list of one."""
    return (value,) if isinstance(value, (Mapping, Deletes)) else value
