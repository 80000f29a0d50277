"""recon.yml as typed values, and `load`, which reads it.

dbt's keys mean what they mean in dbt; Kafka's are librdkafka's; Spark's are Spark's. Every mistake becomes a
ConfigError of one sentence that names file, line and the nearest right key.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    field_validator,
    model_validator,
)

from recon.complaint import Problem, complaint, meant, unknown_key
from recon.document import Located, hide, read
from recon.errors import ConfigError
from recon.sql_tests import SqlTests

FILE_NAME = "recon.yml"


def _name(value: str) -> str:
    # Names are joined with ':' in Delta application ids and with '.' and '_' in check ids.
    if not re.fullmatch(r"[\w.-]+", value):
        raise Problem("may hold only letters, digits, '_', '-' and '.'", found=True)
    return value


def _texts(value: Any) -> Any:
    """Numbers and booleans as the text that librdkafka, Spark and object stores read."""
    if not isinstance(value, Mapping):
        return value
    return {k: _text(v) if isinstance(v, (bool, int, float)) else v for k, v in value.items()}


def _text(value: bool | int | float) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


Name = Annotated[str, AfterValidator(_name)]
Texts = Annotated[dict[str, str], BeforeValidator(_texts)]


def _one_tag(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class CheckConfig(_Strict):
    """dbt's test config, and what streams add to it.

    `limit` caps samples and stored failures. `if_empty` is what zero rows give. `incremental` measures new
    micro-batches only and merges them with what earlier runs measured. `on_failure` is for post-batch checks.
    """

    severity: Literal["error", "warn"] = "error"
    warn_if: str = "!=0"
    error_if: str = "!=0"
    fail_calc: str | None = None
    where: str | None = None
    limit: int | None = Field(default=None, ge=1)
    store_failures: bool = False
    if_empty: Literal["skip", "pass", "fail"] = "skip"
    incremental: bool = False
    tags: tuple[str, ...] = ()
    meta: dict[str, Any] = Field(default_factory=dict)
    enabled: bool = True
    alias: str | None = None
    description: str | None = None
    on_failure: Literal["warn", "quarantine", "stop"] = "warn"

    def over(self, defaults: CheckConfig) -> CheckConfig:
        """This config over what is the default around it: what is set here wins; tags unite, meta merges."""
        given = {name: getattr(self, name) for name in self.model_fields_set}
        merged = {**{name: getattr(defaults, name) for name in defaults.model_fields_set}, **given}
        if tags := tuple(dict.fromkeys((*defaults.tags, *self.tags))):
            merged["tags"] = tags
        if meta := {**defaults.meta, **self.meta}:
            merged["meta"] = meta
        return CheckConfig.model_construct(_fields_set=set(merged), **{**CheckConfig().__dict__, **merged})

    @model_validator(mode="before")
    @classmethod
    def _without_plus(cls, value: Any) -> Any:
        """Both `severity` and `+severity`, as dbt writes defaults."""
        if not isinstance(value, Mapping):
            return value
        return {k.removeprefix("+") if isinstance(k, str) else k: v for k, v in value.items()}

    @field_validator("severity", mode="before")
    @classmethod
    def _any_case(cls, value: Any) -> Any:
        return value.lower() if isinstance(value, str) else value

    _one_tag = field_validator("tags", mode="before")(_one_tag)


class CheckSpec(_Strict):
    """One item of a `data_tests` list: the check's name, its arguments and config.

    `column` is filled in for a test listed below a column; `line` is its line in recon.yml.
    dbt's ways of writing an item (a name; a name over `arguments` and `config`; the older flat form; the form
    with `test_name`) are all read.
    """

    test: str
    arguments: dict[str, Any] = Field(default_factory=dict)
    config: CheckConfig = CheckConfig()
    column: str | None = None
    line: int | None = None

    @model_validator(mode="before")
    @classmethod
    def _any_form(cls, value: Any) -> Any:
        return value if isinstance(value, Mapping) and "test" in value else _check_item(value)


class _Tested(_Strict):
    """Whatever has `data_tests`, which dbt used to call `tests`."""

    data_tests: tuple[CheckSpec, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _older_key(cls, value: Any) -> Any:
        if not isinstance(value, Mapping) or "tests" not in value:
            return value
        if "data_tests" in value:
            raise Problem("has both 'data_tests' and 'tests'; keep 'data_tests'", "tests")
        return {("data_tests" if k == "tests" else k): v for k, v in value.items()}


class Column(_Tested):
    """A column of a sink with its tests, which take its `tags`.

    `data_type`, `meta` and `quote` are dbt's; they are read and change nothing.
    """

    name: str
    description: str | None = None
    data_type: str | None = None
    meta: dict[str, Any] = Field(default_factory=dict)
    quote: bool | None = None
    tags: tuple[str, ...] = ()

    _one_tag = field_validator("tags", mode="before")(_one_tag)

    @model_validator(mode="after")
    def _tests_know_their_column(self) -> Column:
        around = CheckConfig(tags=self.tags) if self.tags else CheckConfig()
        known = tuple(_over(spec, around).model_copy(update={"column": self.name}) for spec in self.data_tests)
        object.__setattr__(self, "data_tests", known)
        return self


class QuarantineConfig(_Strict):
    """Where rows go that fail a post-batch check with `on_failure: quarantine`, and how many may.

    `target`: the Delta table; by default one per sink in the ledger's folder. `stop_above`: the share of a
    micro-batch's rows, 0 to 1 or such as `1%`, above which nothing of it is written and the query stops.
    """

    target: str | None = None
    stop_above: float | None = None

    @field_validator("stop_above", mode="before")
    @classmethod
    def _percent(cls, value: Any) -> Any:
        found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*%\s*", value) if isinstance(value, str) else None
        share = float(found[1]) / 100 if found else value
        known = isinstance(share, (int, float)) and not isinstance(share, bool) and 0 <= share <= 1
        if value is not None and not known:
            raise Problem("must be a share of the rows, from 0 to 1 or such as 1%", found=True)
        return share


class Table(_Strict):
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


class Sink(_Tested):
    """Where a pipeline writes. `kind: delta` appends to the Delta table at `target` (a path or URI).

    `stamp_source_offsets`: also stamp `_source_topic`, `_source_partition`, `_source_offset`.
    `on_new_epoch`: what a checkpoint that starts over does when its ranges overlap or miss the ledger's end.
    `trim_replayed_offsets`: drop rows whose (topic, partition, offset) the ledger already holds.
    `txn_app_id`: a fixed Delta application id, for tables that already have one; recon's own is safer.
    `partition_by`, `options`: passed to Spark's writer.
    """

    name: Name
    kind: Literal["delta"] = "delta"
    target: str
    description: str | None = None
    stamp_source_offsets: bool = True
    on_new_epoch: Literal["stop", "warn"] = "stop"
    trim_replayed_offsets: bool = False
    txn_app_id: str | None = None
    partition_by: tuple[str, ...] = ()
    options: Texts = Field(default_factory=dict)
    quarantine: QuarantineConfig = QuarantineConfig()
    defaults: CheckConfig = CheckConfig()
    columns: tuple[Column, ...] = ()
    post_batch: tuple[CheckSpec, ...] = ()

    @model_validator(mode="after")
    def _columns_differ(self) -> Sink:
        _refuse_doubles("columns", f" of sink '{self.name}'", (c.name for c in self.columns))
        return self

    @property
    def guarantee(self) -> str:
        """What a retried micro-batch does in this sink; the ledger records it with every entry."""
        # A fixed app id cannot tell a new checkpoint's batch 0 from the old one's.
        return "exactly-once" if self.txn_app_id is None else "exactly-once within one checkpoint"


class Source(_Strict):
    """The Kafka side of a pipeline. `isolation_level` is the stream's `kafka.isolation.level`."""

    topics: tuple[str, ...] = ()
    isolation_level: Literal["read_committed", "read_uncommitted"] = "read_uncommitted"


class Pipeline(_Tested):
    """One streaming query: its checkpoint, its source, its sinks, its tests."""

    name: Name
    checkpoint: str
    description: str | None = None
    source: Source = Source()
    defaults: CheckConfig = CheckConfig()
    sinks: tuple[Sink, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _sinks_differ(self) -> Pipeline:
        _refuse_doubles("sinks", f" of pipeline '{self.name}'", (s.name for s in self.sinks))
        return self


class LedgerConfig(_Strict):
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
            raise Problem("has both 'location' and 'table'; keep one of them", "table")
        if self.table is not None and self.writer != "spark":
            raise Problem("is a catalog 'table', which only Spark can write; set writer: spark", "writer")
        return self


class SparkConfig(_Strict):
    """How the audit builds a session when none is active; `packages` are Maven coordinates."""

    master: str | None = None
    conf: Texts = Field(default_factory=dict)
    packages: tuple[str, ...] = ()


class Project(_Strict):
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
        _refuse_doubles("pipelines", "", (p.name for p in self.pipelines))
        _refuse_doubles("tables", "", (t.name for t in self.tables))
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


def config_of(given: Mapping[str, Any]) -> CheckConfig:
    """A SQL test's `config(…)` as typed values.

    Raises:
        ConfigError: a key is unknown, or its value cannot be used.
    """
    try:
        return CheckConfig.model_validate(dict(given))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = str(first["loc"][0])
        if first["type"] == "extra_forbidden":
            raise ConfigError(f"config has no key {key!r}{meant(key, list(CheckConfig.model_fields))}") from None
        raise ConfigError(f"config's {key!r} cannot be {first['input']!r}: {first['msg'].lower()}") from None


Tested = TypeVar("Tested", bound=_Tested)


def _with_defaults(pipeline: Pipeline, around: CheckConfig) -> Pipeline:
    below = pipeline.defaults.over(around)
    sinks = []
    for sink in pipeline.sinks:
        inner = sink.defaults.over(below)
        columns = tuple(_tests_over(column, inner) for column in sink.columns)
        post_batch = tuple(_over(spec, inner) for spec in sink.post_batch)
        sinks.append(_tests_over(sink, inner).model_copy(update={"columns": columns, "post_batch": post_batch}))
    return _tests_over(pipeline, below).model_copy(update={"sinks": tuple(sinks)})


def _tests_over(of: Tested, defaults: CheckConfig) -> Tested:
    return of.model_copy(update={"data_tests": tuple(_over(spec, defaults) for spec in of.data_tests)})


def _over(spec: CheckSpec, defaults: CheckConfig) -> CheckSpec:
    return spec.model_copy(update={"config": spec.config.over(defaults)})


def find(start: Path) -> Path:
    """The nearest folder with a recon.yml, from `start` upwards.

    Raises:
        ConfigError: there is none.
    """
    for folder in (start.absolute(), *start.absolute().parents):
        if (folder / FILE_NAME).is_file():
            return folder
    raise ConfigError(
        f"no {FILE_NAME} in {start.absolute()} or any folder above it; write one with 'recon init', "
        "or point to one with --project-dir"
    )


def load(path: str | Path, vars: Mapping[str, Any] | None = None) -> Project:
    """Reads recon.yml: Jinja, then YAML, then types.

    Args:
        path: the file, or the folder that holds it.
        vars: what `var('name')` finds.

    Raises:
        ConfigError: one sentence with file and line; values from the environment are never in it.
    """
    file = Path(path)
    if file.is_dir():
        file = file / FILE_NAME
    if not file.is_file():
        raise ConfigError(f"no {FILE_NAME} at {file.absolute()}; write one with 'recon init'")
    document = read(file, vars or {})
    data = document.root.value
    if data is None:
        raise ConfigError(f"{document.name} is empty; 'recon init' writes one to start from")
    if not isinstance(data, dict):
        raise ConfigError(f"{document.name}:{document.root.line}: must be a mapping (key: value) at the top")
    if "project_dir" in data:
        raise ConfigError(unknown_key(Project, document, ("project_dir",)))
    _number_tests(document.root)
    try:
        project = Project.model_validate({**data, "project_dir": file.parent.absolute()})
    except ValidationError as error:
        raise ConfigError(complaint(error, Project, document)) from None
    project._secrets = frozenset(_secrets(project, document.secrets))
    project._variables = dict(vars or {})
    return project


def _refuse_doubles(key: str, where: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for n, name in enumerate(names):
        if name in seen:
            raise Problem(f"two {key}{where} are named '{name}'; give one of them another name", key, n, whole=True)
        seen.add(name)


# --- tests as dbt writes them -----------------------------------------------------------------------------

_CONFIG_KEYS = tuple(CheckConfig.model_fields)
_BODY_KEYS = ("arguments", "config", "name", "description")


def _check_item(item: Any) -> dict[str, Any]:
    """An item of a `data_tests` list in any of dbt's forms, as CheckSpec's fields."""
    if isinstance(item, str):
        return {"test": item}
    if not isinstance(item, Mapping):
        raise Problem("a test must be its name, or its name with arguments and config below it", whole=True)
    if "test_name" in item:
        test, body = item["test_name"], {k: v for k, v in item.items() if k != "test_name"}
    elif len(item) == 1:
        ((test, body),) = item.items()
    else:
        keys = ", ".join(f"'{key}'" for key in item)
        raise Problem(f"a test must be one name, found the keys {keys}; indent what belongs below the name", whole=True)
    if body is not None and not isinstance(body, Mapping):
        raise Problem(f"what stands below {test} must be a mapping: arguments and config", test, whole=True)
    return {"test": test, **_check_body(test, dict(body or {}))}


def _check_body(test: str, body: dict[str, Any]) -> dict[str, Any]:
    """Sorts what stands below a test's name into arguments and config."""
    nested = "arguments" in body
    arguments, config = body.pop("arguments", None), body.pop("config", None)
    arguments, config = {} if arguments is None else arguments, {} if config is None else config
    if not isinstance(arguments, Mapping) or not isinstance(config, Mapping):
        return {"arguments": arguments, "config": config}  # the types say what is wrong
    arguments, config = dict(arguments), dict(config)
    for key, value in body.items():
        target = {"name": "alias"}.get(key, key)
        if target in _CONFIG_KEYS:
            if target in config:
                raise Problem(f"'{key}' is given twice for {test}; keep the one in config", key, whole=True)
            config[target] = value
        elif nested:
            raise Problem(f"unknown key '{key}' in {test}{meant(key, [*_BODY_KEYS, *_CONFIG_KEYS])}", key, whole=True)
        elif near := difflib.get_close_matches(key, [*_BODY_KEYS, *_CONFIG_KEYS], 1, 0.85):
            raise Problem(f"unknown key '{key}' in {test}; did you mean '{near[0]}'?", key, whole=True)
        else:
            arguments[key] = value  # dbt's older form: arguments directly below the name
    return {"arguments": arguments, "config": config}


def _number_tests(root: Located) -> None:
    """Gives each test of the tree its line."""
    for holder in _test_holders(root):
        for key in ("data_tests", "tests", "post_batch"):
            if isinstance(found := holder.items.get(key), Located) and isinstance(found.value, list):
                for n, item in found.items.items():
                    try:
                        found.value[int(n)] = {**_check_item(item.value), "line": item.line}
                    except Problem:
                        continue  # validation meets it again and says so


def _test_holders(root: Located) -> Iterator[Located]:
    def children(of: Located, key: str) -> Iterable[Located]:
        return of.items[key].items.values() if key in of.items else ()

    for pipeline in children(root, "pipelines"):
        yield pipeline
        for sink in children(pipeline, "sinks"):
            yield sink
            yield from children(sink, "columns")


# --- what must not be printed -----------------------------------------------------------------------------

_SECRET_KEY = re.compile(r"password|passwd|secret|token|jaas|access.?key|account.?key|\bsas\b", re.IGNORECASE)


def _secrets(project: Project, given: frozenset[str]) -> Iterator[str]:
    sinks = [sink for pipeline in project.pipelines for sink in pipeline.sinks]
    options = [*(sink.options for sink in sinks), *(table.options for table in project.tables)]
    places = [project.kafka, project.storage_options, project.spark.conf, *options]
    for place in places:
        for key, value in place.items():
            if key == "bootstrap.servers":
                continue
            if _SECRET_KEY.search(key):
                yield value
            yield from (secret for secret in given if secret in value)
