"""What every sink of recon.yml has: its keys, its promise, and the class that writes it.

A micro-batch is retried after a crash, and what a retry does depends on the sink. Each sink's class declares it in
`promise`, from its keys alone. The ledger records its label with every write, and audits check that the sink keeps it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Any, ClassVar, Literal, Self, get_args

from pydantic import ModelWrapValidatorHandler, PrivateAttr, field_validator, model_validator

from recon.base.text import did_you_mean
from recon.model.deletion import DeclaredDeletion
from recon.model.wire.columns import SourceNames
from recon.project.checks import CheckSpec, WithColumns
from recon.project.fields import Share, Strict
from recon.project.messages import BadValue
from recon.project.sinks import kinds
from recon.project.sinks.deletes import OF_DELTA, OF_ICEBERG, Deletes, several_deletes
from recon.project.sinks.repairs import READ_ONCE_MORE, RepairAbility, of_replaced_rows

Label = Literal[
    "exactly-once", "exactly-once within one checkpoint", "at-least-once", "at-most-once", "of each route", "observed"
]


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """What a retried micro-batch does in a sink: the label, the mechanism behind it, and what that needs."""

    label: Label
    how: str
    needs: str


# What recon can say of a sink that the stream writes without recon (`write: native` or `foreach_batch`).
OBSERVED = Guarantee(
    label="observed",
    how="the query writes without recon, which enters afterwards what the checkpoint planned and what the table's log "
    "holds; nothing was counted during the write",
    needs="an audit or `recon observe` before Spark removes a micro-batch from the checkpoint, which keeps about 100",
)


class QuarantineConfig(Strict):
    """Where rows are written that fail a post-batch check with `on_failure: quarantine`, and how many may fail.

    `target`: the Delta table; by default one per sink in the ledger's folder. `stop_above`: the share of a
    micro-batch's rows, 0 to 1 or such as `1%`, above which nothing of it is written and the query stops.
    """

    target: str | None = None
    stop_above: Share | None = None


class Sink(WithColumns):
    """The keys that every sink has; `kind` says which subclass a sink of recon.yml is.

    `stamp_source_offsets`: also stamp `_source_topic`, `_source_partition`, `_source_offset`.
    `on_new_epoch`: stop or warn, when a new checkpoint's ranges overlap or miss the ledger's end, or the sink's table
    is not the one that the ledger knows. `trim_replayed_offsets`: drop rows whose (topic, partition, offset) the ledger
    already holds. `deletes`: who may delete rows, see Deletes.
    """

    # The class that writes the sink, as `module:Class`: a BatchSink with a class method `of(project, pipeline, sink)`.
    writer: ClassVar[str]
    # What `recon repair` writes the sink through, as `module:Class`: a RepairStore; "" where it writes no such sink.
    repairs: ClassVar[str] = ""
    # Keys that change the promise, one mapping for each line of `recon sinks --kinds`.
    variants: ClassVar[tuple[Mapping[str, Any], ...]] = ({},)
    # Whether later micro-batches may replace the rows of earlier ones.
    rewrites: ClassVar[bool] = False
    # Whether `target` is a path or URI, relative to recon.yml.
    in_files: ClassVar[bool] = True
    # Whether the sink is a Delta table, whose log is a witness of its own.
    is_delta: ClassVar[bool] = False
    # Whether the table records every commit, others' too, so that its history is a witness; its writer reads it.
    has_history: ClassVar[bool] = False
    # Whether a session needs Iceberg's jars for it.
    in_iceberg: ClassVar[bool] = False
    # Whether the user's own functions write it.
    takes_functions: ClassVar[bool] = False
    # Whether the passwords in `settings` must come from environment variables.
    secrets_from_environment: ClassVar[bool] = False

    noun: ClassVar[str] = "sink"

    kind: str
    target: str
    description: str | None = None
    stamp_source_offsets: bool = True
    on_new_epoch: Literal["stop", "warn"] = "stop"
    trim_replayed_offsets: bool = False
    quarantine: QuarantineConfig = QuarantineConfig()
    post_batch: tuple[CheckSpec, ...] = ()
    deletes: tuple[Deletes, ...] = ()

    _several_deletes = field_validator("deletes", mode="before")(several_deletes)

    _observed: bool = PrivateAttr(default=False)

    @model_validator(mode="wrap")
    @classmethod
    def _of_its_kind(cls, value: Any, validate: ModelWrapValidatorHandler[Sink]) -> Sink:
        return cls.class_for(value).model_validate(value) if cls is Sink else validate(value)

    @classmethod
    def class_for(cls, value: Any) -> type[Sink]:
        """The subclass that a sink of recon.yml is validated by.

        Raises:
            BadValue: there is no such kind, or the installed package that offers it is broken.
        """
        if isinstance(value, Sink):
            return type(value)
        return sink_class(value.get("kind", "delta") if isinstance(value, Mapping) else "delta")

    @model_validator(mode="after")
    def _can_tell_deletions(self) -> Sink:
        known = OF_ICEBERG if self.in_iceberg else OF_DELTA
        for at, declared in enumerate(self.deletes):
            if self.deletes_refused:
                raise BadValue(f"cannot be judged: {self.deletes_refused}", "deletes")
            for key in declared.by.keys:
                if key not in known:
                    log = "an Iceberg snapshot" if self.in_iceberg else "a commit of a Delta table"
                    raise BadValue(
                        f"is not recorded by {log}: in a sink of kind {self.kind} a deletion is recognized by "
                        f"{' or '.join(known)}",
                        "deletes",
                        at,
                        "by",
                        key,
                    )
        return self

    @property
    def deletes_refused(self) -> str:
        """Why the sink does not show who deleted which rows, so that `deletes` is refused; "" where it does."""
        if not self.has_history:
            return f"a sink of kind {self.kind} has no log that says who deleted rows; accept the finding instead"
        if self.rewrites:
            return (
                f"rows of a sink of kind {self.kind} are replaced by later ones, so that nothing shows which records a "
                "deletion took; accept the finding instead"
            )
        if not self.stamp_source_offsets:
            return "with stamp_source_offsets: false no row says which record it was made of; remove that key"
        return ""

    @property
    def declared_deletions(self) -> tuple[DeclaredDeletion, ...]:
        """The deletions that are lawful."""
        return tuple(declared.declared for declared in self.deletes)

    @property
    @abstractmethod
    def promise(self) -> Guarantee:
        """What a retried micro-batch does in this sink."""

    @property
    def repair_ability(self) -> RepairAbility:
        """What a repair can do for this sink."""
        if not self.repairs:
            return RepairAbility(refused=f"a repair writes no sinks of kind {self.kind}", by_hand=READ_ONCE_MORE)
        if self.rewrites:
            return of_replaced_rows(None)
        return RepairAbility(
            no_removal=f"a repair removes no rows of a sink of kind {self.kind}: remove all but one row of each offset "
            "by hand, then accept the finding"
        )

    @property
    def observed(self) -> bool:
        """Whether the stream writes it without recon, which observes: `write: native` or `foreach_batch`."""
        return self._observed

    def as_observed(self) -> Self:
        """The sink of a pipeline that writes without recon."""
        copy = self.model_copy()
        copy._observed = True
        return copy

    @property
    def observed_app_id(self) -> str | None:
        """Delta's application id by which commits of a sink that recon observes name their micro-batches, if any."""
        return self.fixed_app_id if self._observed else None

    @property
    def appends_to_delta(self) -> bool:
        """Whether it is a Delta table that is appended to: such alone are observed, and get rows from quarantine."""
        return self.is_delta and not self.rewrites

    @property
    def fixed_app_id(self) -> str | None:
        """The application id of Delta that recon.yml says commits carry; None where recon's own is used."""
        return None

    @property
    def named_source(self) -> SourceNames | None:
        """The columns of its table that recon.yml says have Kafka's coordinates; None where it names none."""
        return None

    @property
    def ordered_by_offsets(self) -> bool:
        """Whether nothing but source offsets says which of two rows of a key is the latest."""
        return False

    @property
    def jdbc_url(self) -> str | None:
        """The JDBC URL of its database; None where it is in none."""
        return None

    def client_settings(self, kafka: Mapping[str, str]) -> dict[str, str] | None:
        """The settings of its Kafka client, those of the project being `kafka`; None where it is no topic."""
        return None

    @property
    def kept(self) -> Guarantee:
        """What holds for the rows in this sink: its promise, or what can be said of a sink that recon observes."""
        return OBSERVED if self._observed else self.promise

    @property
    def guarantee(self) -> Label:
        """The label of what holds, which the ledger records with every entry."""
        return self.kept.label

    def settings(self) -> Iterable[Mapping[str, str]]:
        """The texts in the sink's mappings (options, a connection), which may hold secrets."""
        for name in type(self).model_fields:
            value = getattr(self, name)
            if isinstance(value, Mapping):
                yield {key: text for key, text in value.items() if isinstance(text, str)}


def sink_class(kind: Any) -> type[Sink]:
    """The config class of a kind of sink.

    Raises:
        BadValue: there is no such kind, or the installed package that offers it is broken.
    """
    location = kinds.location(kind) if isinstance(kind, str) else None
    if location is None:
        known = kinds.names()
        listed = " or ".join(f"'{name}'" for name in known)
        raise BadValue(f"must be {listed}, found {kind!r}{did_you_mean(str(kind), known, '')}", "kind")
    try:
        config = resolve_name(location)
    except Exception as error:  # importing runs the package's module
        raise BadValue(
            f"is {kind!r}, whose config class {location} of an installed package cannot be imported "
            f"({type(error).__name__}: {error}); repair or reinstall that package",
            "kind",
        ) from error
    if not (isinstance(config, type) and issubclass(config, Sink) and hasattr(config, "writer")):
        raise BadValue(
            f"is {kind!r}, and {location} is no config class of a sink; derive it from recon.Sink and give it "
            "`writer = 'module:Class'`",
            "kind",
        )
    if kind not in get_args(config.model_fields["kind"].annotation):
        raise BadValue(
            f"is {kind!r}, which {location} does not accept; declare `kind: Literal[{kind!r}]` there", "kind"
        )
    return config
