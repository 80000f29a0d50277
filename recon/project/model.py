"""recon.yml as typed values: pipelines, their sources and sinks, tables, the ledger, Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

from pydantic import Field, PrivateAttr, ValidationInfo, field_validator, model_validator

from recon.base.credentials import without_credentials
from recon.base.errors import ConfigError
from recon.base.storage import CATALOG, DBFS, unlocated
from recon.base.text import did_you_mean, plural
from recon.model import FileListing
from recon.model.result import RUNBOOK_URL
from recon.model.wire.columns import OWN_NAMES, SourceNames
from recon.project import locations
from recon.project.alerts import Alerts, PipelineAlerts
from recon.project.catalogs import UnityCatalog
from recon.project.checks import CheckConfig, WithColumns, WithTests
from recon.project.compliance import Compliance
from recon.project.fields import Name, Share, Strict, Texts, require_unique
from recon.project.heads import Heads
from recon.project.messages import BadValue
from recon.project.samples import NEEDS_KEY, keeps_key, kept_hash_key
from recon.project.secrets import in_locations, mask, masked
from recon.project.sinks import Sink
from recon.project.source import Source
from recon.project.sql_tests import SqlTests
from recon.project.telemetry import OpenLineageKey, OpenTelemetryKey, PrometheusKey, Reporting
from recon.project.templates import TemplateContext

T = TypeVar("T")
# Where audits of a project without pipelines keep their results, by default.
RESULTS_OF_TABLES = "_recon"


class Table(WithColumns):
    """A table besides the sinks: tests of its own are about its rows, and checks may read it as `ref('name')`.

    `format` and `options` go to Spark's reader (`delta`, `parquet`, `jdbc`, …). `target` is a path or URI, or for
    `delta` and `table` the name of a table or view in a catalog or of the session.
    """

    noun: ClassVar[str] = "table"

    format: str = "delta"
    target: str | None = None
    description: str | None = None
    options: Texts = Field(default_factory=dict, repr=False)

    @model_validator(mode="after")
    def _somewhere(self) -> Table:
        if self.target is None and not self.options:
            raise BadValue("needs 'target' (a path, URI or catalog table), or 'options' that locate it")
        return self

    @property
    def in_files(self) -> bool:
        """Whether `target` is a path or URI, relative to recon.yml."""
        return self.target is not None and self.format not in ("table", "jdbc")


class Routes(Strict):
    """How each micro-batch is split between sinks of the pipeline.

    `by`: a column, or an SQL expression over the result of the transform. `to`: the sink for each of its
    values. `otherwise`: the sink for every other value and NULL; without it such rows stop the query before anything
    is written. `persist`: keep the split micro-batch while the sinks are written.
    """

    by: str
    to: Texts = Field(min_length=1)
    otherwise: str | None = None
    persist: bool = True

    @field_validator("to", mode="before")
    @classmethod
    def _values_as_spark_writes_them(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        return {str(key).lower() if isinstance(key, bool) else str(key): sink for key, sink in value.items()}

    @property
    def sinks(self) -> tuple[str, ...]:
        """The sinks that rows are routed to, without duplicates."""
        return tuple(dict.fromkeys([*self.to.values(), *([self.otherwise] if self.otherwise else [])]))


class Rows(Strict):
    """What the transform does with rows. None is undeclared.

    `filters`: it drops rows; where it must not, every dropped row is a GAP. `explodes`: it makes several rows of one
    record; where it does not say so, rows that share an offset are DUPLICATE.
    """

    filters: bool | None = None
    explodes: bool | None = None


# Keys of a Delta sink that say how the hook writes; who writes without recon knows nothing of them.
_OF_THE_HOOK = (
    "stamp_source_offsets",
    "on_new_epoch",
    "trim_replayed_offsets",
    "quarantine",
    "post_batch",
    "partition_by",
    "options",
)


class Pipeline(WithTests):
    """One streaming query: its checkpoint, its source, its sinks, its tests; `routes` split it between the sinks.

    `write` is who writes: `recon`, by the callable of `foreach_batch`; `native`, Spark's own Delta sink; or
    `foreach_batch`, a function of your own. Without recon's callable, recon observes what checkpoint and table show.
    `rows` declares what its transform does with rows, `max_filtered` the share of a micro-batch that it may drop.
    `owner`, or dbt's `meta: {owner: …}`, is who answers for it.
    """

    name: Name
    checkpoint: str
    write: Literal["recon", "native", "foreach_batch"] = "recon"
    description: str | None = None
    owner: str | None = None
    meta: dict[str, Any] = Field(default_factory=dict)
    source: Source = Source()
    defaults: CheckConfig = CheckConfig()
    sinks: tuple[Sink, ...] = Field(min_length=1)
    routes: Routes | None = None
    alerts: PipelineAlerts | None = None
    rows: Rows = Rows()
    max_filtered: Share | None = None

    @property
    def owned_by(self) -> str:
        """Who answers for it; "" where recon.yml does not say."""
        return self.owner or str(self.meta.get("owner") or "")

    @property
    def is_observed(self) -> bool:
        """Whether the query writes without recon."""
        return self.write != "recon"

    @property
    def of_kafka(self) -> bool:
        """Whether it reads Kafka, and neither a Delta table nor files."""
        return self.source.kind == "Kafka"

    def source_names(self, sink: Sink) -> SourceNames | None:
        """The columns of a sink's table that say which record a row was made of; None where nothing says it."""
        if not self.of_kafka:
            return None
        if not self.is_observed:
            return OWN_NAMES
        names = sink.named_source
        return names if names is None or names.topic is not None else replace(names, only_topic=self.source.topics[0])

    @property
    def placed_by_rows(self) -> bool:
        """Whether nothing but the rows of a commit says which micro-batch it is of."""
        return self.write == "foreach_batch" and self.sinks[0].fixed_app_id is None

    @model_validator(mode="after")
    def _names_source_columns(self) -> Pipeline:
        for sink in self.sinks:
            if sink.named_source is not None and not self.is_observed:
                raise BadValue(
                    f"source_columns of sink '{sink.name}' are for rows that are written without recon (write: native "
                    "or foreach_batch); recon's hook adds columns of its own: leave them out",
                    "sinks",
                    whole=True,
                )
            if sink.named_source is not None and sink.named_source.topic is None and len(self.source.topics) != 1:
                raise BadValue(
                    f"source_columns of sink '{sink.name}' have no topic, and pipeline '{self.name}' reads "
                    f"{plural(len(self.source.topics), 'topic')} as recon.yml says: name the column with the topic, or "
                    "the one topic that it reads (source: topics)",
                    "sinks",
                    whole=True,
                )
        return self

    @model_validator(mode="after")
    def _rows_tell_what_was_deleted(self) -> Pipeline:
        for sink in self.sinks:
            if sink.deletes and self.source_names(sink) is None:
                without_columns = "its rows are written without recon, and recon.yml names no source_columns"
                needed = without_columns if self.of_kafka else f"rows of {self.source.named} carry no offsets"
                raise BadValue(
                    f"deletes of sink '{sink.name}' cannot be judged: {needed}, so that nothing shows which records a "
                    f"deletion took; leave it out{', or name these columns' if self.of_kafka else ''}",
                    "sinks",
                    whole=True,
                )
        return self

    @model_validator(mode="after")
    def _rows_of_others_carry_no_offsets(self) -> Pipeline:
        for sink in self.sinks if not self.of_kafka else ():
            for key in ("source_columns", "trim_replayed_offsets"):
                if getattr(sink, key, None):
                    raise BadValue(
                        f"{key} of sink '{sink.name}' needs Kafka's topic, partition and offset, and the pipeline "
                        f"reads {self.source.named}: leave it out",
                        "sinks",
                        whole=True,
                    )
            if sink.stamp_source_offsets and "stamp_source_offsets" in sink.model_fields_set:
                raise BadValue(
                    f"stamp_source_offsets of sink '{sink.name}' stamps Kafka's offsets, and the pipeline reads "
                    f"{self.source.named}: leave it out; source columns that its rows have are kept",
                    "sinks",
                    whole=True,
                )
            if sink.ordered_by_offsets:
                raise BadValue(
                    f"sink '{sink.name}' needs newer_wins or order_by: rows of {self.source.named} carry no "
                    "source offsets, and nothing else says which of two rows of a key is the latest",
                    "sinks",
                    whole=True,
                )
        return self

    @model_validator(mode="after")
    def _observed_as_spark_writes(self) -> Pipeline:
        if not self.is_observed:
            return self
        if self.routes is not None or len(self.sinks) > 1:
            raise BadValue(
                f"is {self.write}, and recon observes one table of a pipeline; pipeline '{self.name}' has "
                f"{'routes' if self.routes is not None else plural(len(self.sinks), 'sink')}: write a pipeline for "
                "each table",
                "write",
            )
        (sink,) = self.sinks
        if not sink.appends_to_delta:
            raise BadValue(
                f"is {self.write}, and sink '{sink.name}' is of kind {sink.kind}: recon observes tables that are "
                "appended to (kind: delta) alone; other sinks need the hook, recon.foreach_batch",
                "write",
            )
        of_the_hook = _OF_THE_HOOK if self.write == "foreach_batch" else (*_OF_THE_HOOK, "txn_app_id")
        written = [key for key in of_the_hook if key in sink.model_fields_set]
        if written:
            raise BadValue(
                f"is {self.write}, and '{written[0]}' of sink '{sink.name}' is for what recon writes; leave it out, or "
                "let recon write (write: recon)",
                "write",
            )
        if self.write == "foreach_batch" and sink.fixed_app_id is None and self.source_names(sink) is None:
            raise BadValue(
                f"is foreach_batch, and sink '{sink.name}' has neither txn_app_id nor source_columns: nothing then "
                "says which micro-batch a commit is of; let the function write with Delta's options txnAppId and "
                "txnVersion (the batch_id), which also keep a retry from doubling rows, and name that txnAppId here; "
                "or, where rows carry Kafka's partition and offset, name these columns in source_columns; or let "
                "recon write (write: recon)",
                "write",
            )
        return self

    @model_validator(mode="after")
    def _filters_where_some_may_be_filtered(self) -> Pipeline:
        if self.max_filtered and self.rows.filters is False:
            raise BadValue(
                "allows filtered rows, and rows: filters: false allows none; keep one of them", "max_filtered"
            )
        return self

    @model_validator(mode="after")
    def _sinks_differ(self) -> Pipeline:
        require_unique("sinks", f" of pipeline '{self.name}'", (s.name for s in self.sinks))
        return self

    @model_validator(mode="after")
    def _routes_lead_to_sinks(self) -> Pipeline:
        names = [sink.name for sink in self.sinks]
        for name in self.routes.sinks if self.routes else ():
            if name not in names:
                raise BadValue(
                    f"routes of pipeline '{self.name}' name sink '{name}', which it does not have"
                    f"{did_you_mean(name, names, 'it has:')}",
                    "routes",
                    whole=True,
                )
        return self


class LedgerConfig(Strict):
    """Where the ledger is stored, and what writes it: a folder, or a catalog table written by Spark.

    With `location`, the Delta tables `<location>/ledger` and `<location>/results` are used. With `table`
    (`catalog.schema.name`) Spark writes `name` and `name_results`.
    """

    location: str | None = None
    table: str | None = None
    writer: Literal["deltalake", "spark"] = "deltalake"

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: Any) -> Any:
        if isinstance(value, str):
            return {"location": value}
        if not isinstance(value, (Mapping, LedgerConfig)):
            raise BadValue("must be a folder, or a mapping with 'location' or 'table'", show_value=True)
        if isinstance(value, Mapping) and value.get("table") is not None:
            return {"writer": "spark", **value}
        return value

    @model_validator(mode="after")
    def _one_place(self) -> LedgerConfig:
        if self.location is None and self.table is None:
            raise BadValue("needs 'location' (a folder) or 'table' (a catalog table)")
        if self.location is not None and self.table is not None:
            raise BadValue("has both 'location' and 'table'; keep one of them", "table", owner=True)
        if self.table is not None and self.writer != "spark":
            raise BadValue("is a catalog 'table', which only Spark can write; set writer: spark", "writer", owner=True)
        return self


class SparkConfig(Strict):
    """How the audit builds a session when none is active; `packages` are Maven coordinates."""

    master: str | None = None
    conf: Texts = Field(default_factory=dict)
    packages: tuple[str, ...] = ()


class Reports(Strict):
    """How reports are written.

    `templates` is a folder whose templates replace recon's, or blocks of them; `runbook_url` the address of your own
    pages about codes.
    """

    templates: str | None = None
    runbook_url: str = ""

    @field_validator("runbook_url")
    @classmethod
    def _is_a_link(cls, url: str) -> str:
        if url and not RUNBOOK_URL.fullmatch(url):
            raise BadValue(
                f"{url!r} is no address with {{code}} in it, such as https://wiki.example.com/recon/{{code}}"
            )
        return url


class Project(Strict):
    """recon.yml. Relative paths are relative to `project_dir`, the folder that holds it."""

    version: Literal[2] = 2
    name: Name
    ledger: LedgerConfig
    heads: Heads = Heads()
    openlineage: OpenLineageKey = None
    prometheus: PrometheusKey = None
    otel: OpenTelemetryKey = None
    alerts: Alerts = Alerts()
    compliance: Compliance = Compliance()
    kafka: Texts = Field(default_factory=dict, repr=False)
    spark: SparkConfig = SparkConfig()
    storage_options: Texts = Field(default_factory=dict, repr=False)
    catalogs: dict[str, UnityCatalog] = Field(default_factory=dict)
    target_path: str = "target"
    reports: Reports = Reports()
    test_paths: tuple[str, ...] = ("data_tests",)
    defaults: CheckConfig = CheckConfig()
    tables: tuple[Table, ...] = ()
    hash_key: str | None = Field(default=None, repr=False, min_length=16)
    pipelines: tuple[Pipeline, ...] = ()
    project_dir: Path = Path()

    _secrets: frozenset[str] = PrivateAttr(default=frozenset())
    _variables: dict[str, Any] = PrivateAttr(default_factory=dict)
    _file: tuple[str, str] | None = PrivateAttr(default=None)
    # Of catalog tables: where they are, and why that could not be found out.
    _located: dict[str, str] = PrivateAttr(default_factory=dict)
    _unlocated: dict[str, str] = PrivateAttr(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _of_tables_alone(cls, value: Any) -> Any:
        """Where no stream writes, there is no ledger, and what audits keep needs no place of the user's choice."""
        if not isinstance(value, Mapping) or value.get("pipelines") or not value.get("tables"):
            return value
        return {"ledger": RESULTS_OF_TABLES, **value}

    @model_validator(mode="after")
    def _something_to_audit(self) -> Project:
        if not self.pipelines and not self.tables:
            raise BadValue("has neither 'pipelines' nor 'tables' with data_tests: there is nothing to audit")
        return self

    @model_validator(mode="after")
    def _credentials_of_locations_are_known(self) -> Project:
        self._secrets = frozenset(in_locations(self))
        return self

    @model_validator(mode="after")
    def _pipelines_differ(self) -> Project:
        require_unique("pipelines", "", (p.name for p in self.pipelines))
        require_unique("tables", "", (t.name for t in self.tables))
        return self

    @model_validator(mode="after")
    def _locations_can_be_used(self) -> Project:
        for path, location, rule in _locations(self):
            problem = locations.misplaced(location, self.project_dir, **rule)
            if problem:
                raise BadValue(problem, *path)
        ledger = self.ledger.location
        if ledger is not None and ledger.startswith(DBFS) and self.ledger.writer == "deltalake":
            raise BadValue(
                f"is {ledger}, where deltalake cannot keep two writers of the ledger apart: the mount /dbfs has no "
                f"hard links; write `ledger: {{location: {ledger}, writer: spark}}`, or the URI of the store",
                "ledger",
                "location",
            )
        return self

    @model_validator(mode="after")
    def _source_columns_tell_pipelines_apart(self) -> Project:
        """Rows of two topics have the same partitions and offsets: nothing but the topic says whose a row is."""
        for n, pipeline in enumerate(self.pipelines):
            for m, sink in enumerate(pipeline.sinks):
                names, writers = sink.named_source, self.other_writers(pipeline, sink)
                others = [of.name for of, _ in writers if {*of.source.topics} != {*pipeline.source.topics}]
                if names is not None and names.topic is None and others:
                    columns = f"partition: {names.partition}, offset: {names.offset}"
                    raise BadValue(
                        f"have no topic, and pipeline '{others[0]}' writes {sink.target} "
                        f"as well: the rows of the two cannot be told apart. Name the column with the topic (`topic: "
                        f"COLUMN, {columns}`); where rows have none, leave source_columns out",
                        "pipelines",
                        n,
                        "sinks",
                        m,
                        "source_columns",
                    )
        return self

    @model_validator(mode="after")
    def _hashes_have_a_key(self) -> Project:
        if self.hash_key is None and not keeps_key(self.ledger.location) and "hash" in _policies(self):
            raise BadValue(NEEDS_KEY, "ledger", whole=True)
        return self

    @model_validator(mode="after")
    def _alerts_go_to_channels(self) -> Project:
        names = [channel.name for channel in self.alerts.channels]
        for n, pipeline in enumerate(self.pipelines):
            for name in (pipeline.alerts.channels or ()) if pipeline.alerts is not None else ():
                if name not in names:
                    raise BadValue(
                        f"alerts of pipeline '{pipeline.name}' name channel '{name}', which the project's alerts do "
                        f"not have{did_you_mean(name, names, 'there is:')}",
                        "pipelines",
                        n,
                        "alerts",
                        whole=True,
                    )
        return self

    @field_validator("pipelines")
    @classmethod
    def _defaults_reach_the_tests(cls, pipelines: tuple[Pipeline, ...], info: ValidationInfo) -> tuple[Pipeline, ...]:
        defaults = info.data.get("defaults", CheckConfig())  # absent where it is not valid, which is reported
        return tuple(_with_defaults(pipeline, defaults) for pipeline in pipelines)

    @field_validator("tables")
    @classmethod
    def _defaults_reach_the_tables(cls, tables: tuple[Table, ...], info: ValidationInfo) -> tuple[Table, ...]:
        defaults = info.data.get("defaults", CheckConfig())
        return tuple(table.inheriting(table.defaults.over(defaults)) for table in tables)

    @property
    def reporting(self) -> Sequence[Reporting]:
        """The keys that report to other systems."""
        keys: tuple[Reporting | None, ...] = (self.openlineage, self.prometheus, self.otel)
        return [key for key in keys if key is not None]

    def resolve(self, location: str) -> str:
        """A path or URI of recon.yml as an absolute one; `~` is the home of the user."""
        return locations.absolute(location, self.project_dir)

    def listing(self, source: Source) -> FileListing:
        """Which files of the folder a query reads, with the place of their archive made absolute."""
        listing = source.listing
        archive = listing.options.get("sourcearchivedir")
        if archive is None:
            return listing
        return replace(listing, options={**listing.options, "sourcearchivedir": self.resolve(archive)})

    def local_path(self, location: str) -> Path:
        """A path of recon.yml that must be on this machine.

        Raises:
            ConfigError: it is elsewhere.
        """
        return locations.on_this_machine(location, self.project_dir)

    def table_location(self, target: str) -> str:
        """Where a Delta table of recon.yml is: an absolute path or URI.

        Of a catalog table it is what `recon.spark.catalogs` or `recon.spark.catalog` found out; before that,
        `catalog:` and its name, where nothing can be read or written.
        """
        name = locations.catalog_name(target, self.project_dir)
        return self.resolve(target) if name is None else self._located.get(name, f"{CATALOG}{name}")

    def catalog_tables(self, sinks: Iterable[Sink] | None = None) -> Sequence[str]:
        """The catalog tables among targets and quarantines of sinks whose location is not known.

        By default of all sinks, and those that pipelines read.
        """
        chosen = [sink for pipeline in self.pipelines for sink in pipeline.sinks] if sinks is None else sinks
        of_delta = [sink.target for sink in chosen if sink.is_delta]
        of_delta += [p.source.delta for p in self.pipelines if sinks is None and p.source.delta is not None]
        of_delta += [sink.quarantine.target for sink in chosen if sink.quarantine.target is not None]
        names = [locations.catalog_name(target, self.project_dir) for target in of_delta]
        return [name for name in dict.fromkeys(names) if name is not None and name not in self._located]

    def set_location(self, table: str, location: str) -> None:
        """Remembers where a catalog table is, for this object and its copies."""
        self._located[table] = location

    def set_unlocated(self, table: str, reason: str) -> None:
        """Remembers why it could not be found out where a catalog table is."""
        self._unlocated[table] = reason

    def why_unlocated(self, location: str) -> str:
        """Why it is not known where the table of a `table_location` is; "" where it is known."""
        if not location.startswith(CATALOG):
            return ""
        name = location.removeprefix(CATALOG)
        return self._unlocated.get(name, unlocated(name))

    def location(self, table: Sink | Table) -> str:
        """Its target for messages and the ledger: an absolute path or URI for files, else as in recon.yml.

        Of an entry of `tables` that only `options` locate it is the name.
        """
        if isinstance(table, Table):
            target, of_delta, in_files = table.target or table.name, table.format == "delta", table.in_files
        else:
            target, of_delta, in_files = table.target, table.is_delta, table.in_files
        if of_delta and in_files:
            return self.table_location(target)
        return self.resolve(target) if in_files else target

    def defaults_of(self, pipeline: Pipeline | None, table: Sink | Table) -> CheckConfig:
        """The config that holds for the rows of a sink or table where a check sets nothing itself."""
        return table.defaults.over(self.defaults if pipeline is None else pipeline.defaults.over(self.defaults))

    def sample_hash_key(self) -> bytes:
        """The key of `samples: hash`: `hash_key`, or a random one that is kept beside the ledger, mode 0600.

        Raises:
            ConfigError: there is none, and it cannot be kept there.
        """
        if self.hash_key is not None:
            return self.hash_key.encode()
        return kept_hash_key(self.resolve(self.ledger.location) if self.ledger.location else None)

    def mask(self, text: str) -> str:
        """The text without the project's secrets.

        A value is secret if env_var returned it for `kafka` (except bootstrap.servers), `storage_options`,
        `spark.conf`, a sink's `options`, a place of `heads` or a channel of `alerts`. So it is if its key there, its
        environment variable or its variable of --vars has the name of a credential (password, secret, token, sas, …).
        So is every credential in a URL or a connection string, whichever key of recon.yml has that, each line of a key,
        and each token in a channel's URL. Values shorter than four characters are masked in URLs alone: they also occur
        in ordinary words.
        """
        return without_credentials(mask(text, self._secrets, shortest=4))

    def masked(self, value: T) -> T:
        """A value, a dataclass or a mapping for example, with every text in it masked."""
        return masked(value, self.mask)

    @property
    def report_templates(self) -> Path | None:
        """The folder of the user's report templates; None for none."""
        return None if self.reports.templates is None else self.local_path(self.reports.templates)

    @property
    def variables(self) -> Mapping[str, Any]:
        """The variables of --vars."""
        return self._variables

    @property
    def file(self) -> tuple[str, str] | None:
        """The name of the file that the project was read from, and SHA-256 of its bytes; None where there is none."""
        return self._file

    @cached_property
    def sql_tests(self) -> SqlTests:
        """The project's own SQL tests and macros; files are read on first use."""
        must_exist = "test_paths" in self.model_fields_set
        return SqlTests(self.project_dir, self.test_paths, TemplateContext(self._variables), must_exist)

    def require_pipelines(self) -> Sequence[Pipeline]:
        """The pipelines; raises ConfigError where there is none, and what was asked for is of pipelines alone."""
        if not self.pipelines:
            raise ConfigError(
                "recon.yml has tables and no pipeline, and this is about the sinks of pipelines; tables have tests, "
                "which recon audit runs"
            )
        return self.pipelines

    def find_pipeline(self, name: str) -> Pipeline:
        """A pipeline by name.

        Raises:
            ConfigError: there is none.
        """
        pipelines = {pipeline.name: pipeline for pipeline in self.pipelines}
        if name not in pipelines:
            raise ConfigError(f"recon.yml has no pipeline {name!r}{did_you_mean(name, pipelines, 'it has')}")
        return pipelines[name]

    def find_sink(self, pipeline: str, sink: str | None = None) -> tuple[Pipeline, Sink]:
        """A pipeline and its sink by name; the only sink when none is named.

        Raises:
            ConfigError: there is no such pipeline or sink, or the pipeline has several sinks and none was named.
        """
        owner = self.find_pipeline(pipeline)
        sinks = {known.name: known for known in owner.sinks}
        if sink is None:
            if len(sinks) > 1:
                raise ConfigError(
                    f"pipeline {pipeline} has several sinks and none was named; it has {', '.join(sinks)}"
                )
            return owner, owner.sinks[0]
        if sink not in sinks:
            raise ConfigError(f"pipeline {pipeline} has no sink {sink!r}{did_you_mean(sink, sinks, 'it has')}")
        return owner, sinks[sink]

    def other_writers(self, pipeline: Pipeline, sink: Sink) -> Sequence[tuple[Pipeline, Sink]]:
        """The other pipelines that write the table of a sink, each with its sink."""
        mine = self.location(sink).rstrip("/")
        return [
            (other, its)
            for other in self.pipelines
            for its in other.sinks
            if (other.name, its.name) != (pipeline.name, sink.name)
            and its.in_files == sink.in_files
            and self.location(its).rstrip("/") == mine
        ]

    def find_table(self, name: str) -> tuple[Pipeline, Sink] | Table | None:
        """The table of a `ref`: an entry of `tables`, or a sink by its name or `pipeline.sink`; None for no such name.

        Raises:
            ConfigError: sinks of several pipelines have the name.
        """
        for table in self.tables:
            if table.name == name:
                return table
        sinks = [(p, s) for p in self.pipelines for s in p.sinks if name in (s.name, f"{p.name}.{s.name}")]
        exact = [(p, s) for p, s in sinks if f"{p.name}.{s.name}" == name]
        if len(exact or sinks) > 1:
            several = ", ".join(f"{pipeline.name}.{name}" for pipeline, _ in sinks)
            raise ConfigError(f"several pipelines have a sink {name!r}; write one of {several}")
        return (exact or sinks)[0] if sinks else None

    def table_names(self) -> list[str]:
        """The names that `find_table` accepts."""
        return [*(t.name for t in self.tables), *(s.name for p in self.pipelines for s in p.sinks)]


_FOLDER = "this is a folder: write its path or URI"
_LOCAL = {"local": True}


def _locations(project: Project) -> Iterator[tuple[tuple[str | int, ...], str, dict[str, Any]]]:
    """Each location in recon.yml: the keys to it, its text, and what `locations.misplaced` has to know of it."""
    ledger, heads = project.ledger.location, project.heads
    in_table = f"this is a folder: write its path or URI, or for a table `ledger: {{table: {ledger}}}`"
    roots = heads.timestamp.roots if heads.timestamp is not None else None
    yield from (
        (path, location, rule)
        for path, location, rule in (
            (("ledger", "location"), ledger, {"instead": in_table}),
            (("target_path",), project.target_path, {**_LOCAL, "instead": _FOLDER}),
            (("reports", "templates"), project.reports.templates, _LOCAL),
            (("heads", "key_file"), heads.key_file, _LOCAL),
            (("heads", "timestamp", "roots"), roots, _LOCAL),
        )
        if location is not None
    )
    for n, place in enumerate(heads.publish):
        if place.folder is not None:
            yield ("heads", "publish", n, "folder"), place.folder, {"instead": _FOLDER}
        if place.git is not None:
            yield ("heads", "publish", n, "git"), place.git, _LOCAL
    for n, table in enumerate(project.tables):
        if table.target is not None and table.in_files:
            by_path = f"format {table.format} reads a path or URI: write one, or `format: table`"
            yield ("tables", n, "target"), table.target, {"instead": None if table.format == "delta" else by_path}
    for n, pipeline in enumerate(project.pipelines):
        yield ("pipelines", n, "checkpoint"), pipeline.checkpoint, {"instead": _FOLDER}
        if pipeline.source.delta is not None:
            yield ("pipelines", n, "source", "delta"), pipeline.source.delta, {}
        if pipeline.source.files is not None:
            yield ("pipelines", n, "source", "files"), pipeline.source.files, {"instead": _FOLDER}
        for m, sink in enumerate(pipeline.sinks):
            place_of = ("pipelines", n, "sinks", m)
            files = f"kind {sink.kind} writes to a path or URI: write one, or a sink of kind delta"
            if sink.in_files:
                yield (*place_of, "target"), sink.target, {"instead": None if sink.is_delta else files}
            if sink.quarantine.target is not None:
                yield (*place_of, "quarantine", "target"), sink.quarantine.target, {}


def _policies(project: Project) -> Iterator[str]:
    """The `samples` of every default and every test."""
    yield project.defaults.samples
    sinks = [sink for pipeline in project.pipelines for sink in pipeline.sinks]
    yield from (pipeline.defaults.samples for pipeline in project.pipelines)
    yield from (table.defaults.samples for table in (*sinks, *project.tables))
    tests = [test for table in (*sinks, *project.tables) for test in table.every_test()]
    yield from (test.config.samples for test in (*tests, *(test for sink in sinks for test in sink.post_batch)))


def _with_defaults(pipeline: Pipeline, defaults: CheckConfig) -> Pipeline:
    """Applies the defaults of the sink, the pipeline and the project, in this order, to every test's config."""
    of_pipeline = pipeline.defaults.over(defaults)
    sinks = []
    for sink in pipeline.sinks:
        of_sink = sink.defaults.over(of_pipeline)
        post_batch = tuple(spec.inheriting(of_sink) for spec in sink.post_batch)
        sink = sink.inheriting(of_sink).model_copy(update={"post_batch": post_batch})
        if not pipeline.of_kafka:
            sink = sink.model_copy(update={"stamp_source_offsets": False})
        sinks.append(sink.as_observed() if pipeline.is_observed else sink)
    return pipeline.inheriting(of_pipeline).model_copy(update={"sinks": tuple(sinks)})
