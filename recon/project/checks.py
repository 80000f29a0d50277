"""The tests of recon.yml, in any of dbt's forms, with dbt's config and recon's additions for streams."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, ValidationError, field_validator, model_validator
from typing_extensions import override

from recon.base.errors import ConfigError
from recon.base.text import did_you_mean, nearest
from recon.project.fields import Name, Strict, Tags, require_unique
from recon.project.messages import BadValue
from recon.project.samples import SamplesPolicy


class CheckConfig(Strict):
    """dbt's test config, and recon's additions for streams.

    `limit` caps samples and stored failures. `if_empty` is the result for zero rows. `incremental` measures new
    micro-batches only and merges them with the saved state of earlier runs. `on_failure` is for post-batch checks.
    `samples` is what failing rows show, `never_show` are columns that they never show.
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
    tags: Tags = ()
    meta: dict[str, Any] = Field(default_factory=dict)
    enabled: bool = True
    alias: str | None = None
    description: str | None = None
    on_failure: Literal["warn", "quarantine", "stop"] = "warn"
    samples: SamplesPolicy = "keys"
    never_show: Tags = ()

    def over(self, defaults: CheckConfig) -> CheckConfig:
        """This config with defaults for what it does not set; tags and never_show are united, and meta is merged."""
        merged = {**defaults.model_dump(exclude_unset=True), **self.model_dump(exclude_unset=True)}
        if tags := tuple(dict.fromkeys((*defaults.tags, *self.tags))):
            merged["tags"] = tags
        if never_show := tuple(dict.fromkeys((*defaults.never_show, *self.never_show))):
            merged["never_show"] = never_show
        if meta := {**defaults.meta, **self.meta}:
            merged["meta"] = meta
        return CheckConfig.model_construct(**merged)

    @model_validator(mode="before")
    @classmethod
    def _without_plus(cls, value: Any) -> Any:
        """Accepts `+severity` for `severity`, as dbt does in defaults."""
        if not isinstance(value, Mapping):
            return value
        return {k.removeprefix("+") if isinstance(k, str) else k: v for k, v in value.items()}

    @field_validator("severity", mode="before")
    @classmethod
    def _any_case(cls, value: Any) -> Any:
        return value.lower() if isinstance(value, str) else value


class CheckSpec(Strict):
    """One item of a `data_tests` list: the check's name, its arguments and config.

    `column` is set for a test that is listed below a column; `line` is its line in recon.yml. All of dbt's forms are
    read: a name; a name with `arguments` and `config` below it; the older flat form; the form with `test_name`.
    """

    test: str
    arguments: dict[str, Any] = Field(default_factory=dict)
    config: CheckConfig = CheckConfig()
    column: str | None = None
    line: int | None = None

    @model_validator(mode="before")
    @classmethod
    def _any_form(cls, value: Any) -> Any:
        return value if isinstance(value, Mapping) and "test" in value else check_item(value)

    def inheriting(self, defaults: CheckConfig, **fields: Any) -> CheckSpec:
        """With the defaults for what its config does not set, and with these fields replaced."""
        return self.model_copy(update={"config": self.config.over(defaults), **fields})


class WithTests(Strict):
    """A part of recon.yml with `data_tests`, which older versions of dbt call `tests`."""

    data_tests: tuple[CheckSpec, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _older_key(cls, value: Any) -> Any:
        if not isinstance(value, Mapping) or "tests" not in value:
            return value
        if "data_tests" in value:
            raise BadValue("has both 'data_tests' and 'tests'; keep 'data_tests'", "tests", owner=True)
        return {("data_tests" if k == "tests" else k): v for k, v in value.items()}

    def inheriting(self, defaults: CheckConfig, **fields: Any) -> Self:
        """With `CheckSpec.inheriting` applied to each of its tests."""
        tests = tuple(test.inheriting(defaults, **fields) for test in self.data_tests)
        return self.model_copy(update={"data_tests": tests})


class Column(WithTests):
    """A column of a table with its tests, which inherit its `tags`.

    `data_type`, `meta` and `quote` are dbt's; they are accepted and have no effect.
    """

    name: str
    description: str | None = None
    data_type: str | None = None
    meta: dict[str, Any] = Field(default_factory=dict)
    quote: bool | None = None
    tags: Tags = ()

    def naming_tests(self) -> Column:
        """With tests that know their column, and that inherit its tags."""
        tags = CheckConfig(tags=self.tags) if self.tags else CheckConfig()
        return self.inheriting(tags, column=self.name)


class WithColumns(WithTests):
    """A table whose tests, and those of its columns, are about its rows."""

    # What messages call it.
    noun: ClassVar[str]

    name: Name
    defaults: CheckConfig = CheckConfig()
    columns: tuple[Column, ...] = ()

    @field_validator("columns")
    @classmethod
    def _tests_know_their_column(cls, columns: tuple[Column, ...]) -> tuple[Column, ...]:
        return tuple(column.naming_tests() for column in columns)

    @model_validator(mode="after")
    def _columns_differ(self) -> Self:
        require_unique("columns", f" of {self.noun} '{self.name}'", (column.name for column in self.columns))
        return self

    @override
    def inheriting(self, defaults: CheckConfig, **fields: Any) -> Self:
        columns = tuple(column.inheriting(defaults, **fields) for column in self.columns)
        return super().inheriting(defaults, **fields).model_copy(update={"columns": columns})

    def every_test(self) -> Iterator[CheckSpec]:
        """Its tests and those of its columns."""
        yield from self.data_tests
        for column in self.columns:
            yield from column.data_tests


def config_of(values: Mapping[str, Any]) -> CheckConfig:
    """A SQL test's `config(…)` as typed values.

    Raises:
        ConfigError: a key is unknown, or its value cannot be used.
    """
    try:
        return CheckConfig.model_validate(dict(values))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = str(first["loc"][0])
        if first["type"] == "extra_forbidden":
            raise ConfigError(
                f"config has no key {key!r}{did_you_mean(key, list(CheckConfig.model_fields), 'known keys:')}"
            ) from None
        raise ConfigError(f"config's {key!r} cannot be {first['input']!r}: {first['msg'].lower()}") from None


# --- tests as dbt writes them -----------------------------------------------------------------------------

_CONFIG_KEYS = tuple(CheckConfig.model_fields)
_BODY_KEYS = ("arguments", "config", "name", "description")


def check_item(item: Any) -> dict[str, Any]:
    """The fields of CheckSpec from an item of a `data_tests` list in any of dbt's forms."""
    if isinstance(item, str):
        return {"test": item}
    if not isinstance(item, Mapping):
        raise BadValue("a test must be its name, or its name with arguments and config below it", whole=True)
    if "test_name" in item:
        test, body = item["test_name"], {k: v for k, v in item.items() if k != "test_name"}
    elif len(item) == 1:
        ((test, body),) = item.items()
    else:
        keys = ", ".join(f"'{key}'" for key in item)
        raise BadValue(
            f"a test must be one name, found the keys {keys}; indent what belongs below the name", whole=True
        )
    if body is not None and not isinstance(body, Mapping):
        raise BadValue(f"the content of {test} must be a mapping: arguments and config", test, whole=True)
    return {"test": test, **_check_body(test, dict(body or {}))}


def _check_body(test: str, body: dict[str, Any]) -> dict[str, Any]:
    """Sorts the keys below a test's name into arguments and config."""
    nested = "arguments" in body
    arguments, config = body.pop("arguments", None), body.pop("config", None)
    arguments, config = {} if arguments is None else arguments, {} if config is None else config
    if not isinstance(arguments, Mapping) or not isinstance(config, Mapping):
        return {"arguments": arguments, "config": config}  # pydantic refuses them
    arguments, config = dict(arguments), dict(config)
    for key, value in body.items():
        target = {"name": "alias"}.get(key, key)
        if target in _CONFIG_KEYS:
            if target in config:
                raise BadValue(f"'{key}' is given twice for {test}; keep the one in config", key, whole=True)
            config[target] = value
        elif nested:
            raise BadValue(
                f"unknown key '{key}' in {test}{did_you_mean(key, [*_BODY_KEYS, *_CONFIG_KEYS], 'known keys:')}",
                key,
                whole=True,
            )
        elif near := nearest(key, [*_BODY_KEYS, *_CONFIG_KEYS], 0.85):
            raise BadValue(f"unknown key '{key}' in {test}; did you mean '{near[0]}'?", key, whole=True)
        else:
            arguments[key] = value  # dbt's older form: arguments directly below the name
    return {"arguments": arguments, "config": config}
