"""A whole recon.yml as typed values: pipelines, their sources and sinks, tables, the ledger, Spark."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, PrivateAttr, field_validator, model_validator

from recon.errors import ConfigError
from recon.project.checks import CheckConfig, Tested, config_of, over, tests_over
from recon.project.fields import Name, Strict, Texts, refuse_doubles
from recon.project.messages import Problem
from recon.project.sinks import Sink
from recon.project.sql_tests import SqlTests
from recon.project.yaml import hide
from recon.text import did_you_mean


class Table(Strict):
    """A table that checks may look at besides the sinks: `ref('name')` finds it.

    `format` and `options` go to Spark's reader (`delta`, `parquet`, `jdbc`, …); `target` is its path or URI, or a
    catalog table for `format: table`.
    """

    name: Name
    format: str = "delta"
    target: str | None = None
    description: str | None = None
    options: Texts = Field(default_factory=dict, repr=False)

    @model_validator(mode="after")
    def _somewhere(self) -> Table:
        if self.target is None and not self.options:
            raise Problem("needs 'target' (a path, URI or catalog table), or 'options' that say where it is")
        return self


class Source(Strict):
    """The Kafka side of a pipeline. `isolation_level` is the stream's `kafka.isolation.level`."""

    topics: tuple[str, ...] = ()
    isolation_level: Literal["read_committed", "read_uncommitted"] = "read_uncommitted"


class Routes(Strict):
    """How each micro-batch is split between sinks of the pipeline.

    `by`: a column, or an SQL expression over the micro-batch as the transform gives it. `to`: the sink for each of its
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
        """The sinks that rows are routed to, each once."""
        return tuple(dict.fromkeys([*self.to.values(), *([self.otherwise] if self.otherwise else [])]))


class Pipeline(Tested):
    """One streaming query: its checkpoint, its source, its sinks, its tests; `routes` split it between the sinks."""

    name: Name
    checkpoint: str
    description: str | None = None
    source: Source = Source()
    defaults: CheckConfig = CheckConfig()
    sinks: tuple[Sink, ...] = Field(min_length=1)
    routes: Routes | None = None

    @model_validator(mode="after")
    def _sinks_differ(self) -> Pipeline:
        refuse_doubles("sinks", f" of pipeline '{self.name}'", (s.name for s in self.sinks))
        return self

    @model_validator(mode="after")
    def _routes_lead_to_sinks(self) -> Pipeline:
        names = [sink.name for sink in self.sinks]
        for name in self.routes.sinks if self.routes else ():
            if name not in names:
                raise Problem(
                    f"routes of pipeline '{self.name}' lead to sink '{name}', which it does not have"
                    f"{did_you_mean(name, names, 'it has:')}",
                    "routes",
                    whole=True,
                )
        return self


class LedgerConfig(Strict):
    """Where the ledger lives and who writes it: a folder, or a catalog table written by Spark.

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
            raise Problem("must be a folder, or a mapping with 'location' or 'table'", found=True)
        if isinstance(value, Mapping) and value.get("table") is not None:
            return {"writer": "spark", **value}
        return value

    @model_validator(mode="after")
    def _one_place(self) -> LedgerConfig:
        if self.location is None and self.table is None:
            raise Problem("needs 'location' (a folder) or 'table' (a catalog table)")
        if self.location is not None and self.table is not None:
            raise Problem("has both 'location' and 'table'; keep one of them", "table", owner=True)
        if self.table is not None and self.writer != "spark":
            raise Problem("is a catalog 'table', which only Spark can write; set writer: spark", "writer", owner=True)
        return self


class SparkConfig(Strict):
    """How the audit builds a session when none is active; `packages` are Maven coordinates."""

    master: str | None = None
    conf: Texts = Field(default_factory=dict)
    packages: tuple[str, ...] = ()


class Project(Strict):
    """A whole recon.yml. Relative paths are relative to `project_dir`, the folder that holds it."""

    version: Literal[2] = 2
    name: Name
    ledger: LedgerConfig
    kafka: Texts = Field(default_factory=dict, repr=False)
    spark: SparkConfig = SparkConfig()
    storage_options: Texts = Field(default_factory=dict, repr=False)
    target_path: str = "target"
    test_paths: tuple[str, ...] = ("data_tests",)
    tables: tuple[Table, ...] = ()
    defaults: CheckConfig = CheckConfig()
    pipelines: tuple[Pipeline, ...] = Field(min_length=1)
    project_dir: Path = Path()

    _secrets: frozenset[str] = PrivateAttr(default=frozenset())
    _variables: dict[str, Any] = PrivateAttr(default_factory=dict)
    _sql_tests: SqlTests | None = PrivateAttr(default=None)

    @model_validator(mode="after")
    def _pipelines_differ(self) -> Project:
        refuse_doubles("pipelines", "", (p.name for p in self.pipelines))
        refuse_doubles("tables", "", (t.name for t in self.tables))
        return self

    @model_validator(mode="after")
    def _defaults_reach_the_tests(self) -> Project:
        """Every test's config over its sink's defaults, over its pipeline's, over the project's."""
        pipelines = tuple(_with_defaults(pipeline, self.defaults) for pipeline in self.pipelines)
        object.__setattr__(self, "pipelines", pipelines)
        return self

    def resolve(self, location: str) -> str:
        """A path or URI of recon.yml as an absolute one."""
        if "://" in location or location.startswith("file:"):
            return location
        return str((self.project_dir / location).absolute())

    def location(self, sink: Sink) -> str:
        """Where a sink is, for people and for the ledger: an absolute path or URI, or its target as it stands."""
        return self.resolve(sink.target) if sink.in_files else sink.target

    def mask(self, text: str) -> str:
        """The text without the project's secrets.

        Secret is what env_var gave to `kafka` (but bootstrap.servers), `storage_options`, `spark.conf` and a
        sink's `options`, and every value there whose key speaks of a password, secret, key or token. Values
        shorter than four characters are left alone: masking them would only garble the text.
        """
        return hide(text, self._secrets, shortest=4)

    @property
    def variables(self) -> Mapping[str, Any]:
        """What --vars gave."""
        return self._variables

    @property
    def sql_tests(self) -> SqlTests:
        """The project's own SQL tests and macros; files are read when first asked for."""
        if self._sql_tests is None or self._sql_tests.folder != self.project_dir:
            self._sql_tests = SqlTests(
                self.project_dir,
                self.test_paths,
                self._variables,
                config_of,
                must_exist="test_paths" in self.model_fields_set,
            )
        return self._sql_tests

    def find_table(self, name: str) -> tuple[Pipeline, Sink] | Table | None:
        """What `ref` finds: an entry of `tables`, or a sink by its name or `pipeline.sink`; None when there is none.

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
            raise ConfigError(f"several pipelines have a sink {name!r}; write which: {several}")
        return (exact or sinks)[0] if sinks else None

    def table_names(self) -> list[str]:
        """The names that `find_table` knows."""
        return [*(t.name for t in self.tables), *(s.name for p in self.pipelines for s in p.sinks)]


def _with_defaults(pipeline: Pipeline, around: CheckConfig) -> Pipeline:
    below = pipeline.defaults.over(around)
    sinks = []
    for sink in pipeline.sinks:
        inner = sink.defaults.over(below)
        columns = tuple(tests_over(column, inner) for column in sink.columns)
        post_batch = tuple(over(spec, inner) for spec in sink.post_batch)
        sinks.append(tests_over(sink, inner).model_copy(update={"columns": columns, "post_batch": post_batch}))
    return tests_over(pipeline, below).model_copy(update={"sinks": tuple(sinks)})
