"""A project's sinks and data tests as a contract of ODCS."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

import yaml

from recon.base.text import plural
from recon.checks import registry
from recon.convert.odcs.document import WRITTEN, validated
from recon.convert.odcs.rules import KEPT_IN_META
from recon.project import CheckConfig, CheckSpec, Project, Sink

# What a rule of the standard can say of a test's config; a test with more is kept as a rule of `engine: recon`.
_SAID_BY_RULES = {"severity", "alias", "description", "tags", "meta", "warn_if", "error_if"}
_OPERATORS = {">=": "mustBeLessThan", ">": "mustBeLessOrEqualTo", "!=": "mustBe", "=": "mustNotBe"}
_LOGICAL = {
    **dict.fromkeys(("string",), "string"),
    **dict.fromkeys(("tinyint", "smallint", "int", "integer", "bigint", "long"), "integer"),
    **dict.fromkeys(("float", "double", "decimal"), "number"),
    **dict.fromkeys(("date", "boolean"), None),
    **dict.fromkeys(("timestamp", "timestamp_ntz"), "timestamp"),
    **dict.fromkeys(("array",), "array"),
    **dict.fromkeys(("struct",), "object"),
}


@dataclass(frozen=True)
class Exported:
    """A contract's text, how many tests and objects are in it, and a sentence for each thing that is left out."""

    text: str
    tests: int
    objects: int
    left_out: tuple[str, ...]


def contract_of(project: Project, sinks: Sequence[tuple[str, Sink]]) -> Exported:
    """The contract of these sinks, each with the name of its pipeline.

    Raises:
        ConfigError: the package with the standard's model is not installed.
    """
    writing = _Writing(project)
    names = [sink.name for _, sink in sinks]
    schema = [writing.object_of(pipe, sink, unique=names.count(sink.name) == 1) for pipe, sink in sinks]
    content: dict[str, Any] = {
        "version": "1.0.0",
        "apiVersion": WRITTEN,
        "kind": "DataContract",
        "id": project.name,
        "name": project.name,
        "status": "draft",
        "schema": schema,
    }
    if writing.sla:
        content["slaProperties"] = writing.sla
    validated(content, "the contract")
    if files := project.sql_tests.singular:
        writing.left_out.append(f"{plural(len(files), 'SQL file')} of data_tests")
    text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=1_000_000)
    return Exported(project.mask(text), writing.tests, len(schema), tuple(writing.left_out))


class _Writing:
    """The state of one export."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.sla: list[dict[str, Any]] = []
        self.left_out: list[str] = []
        self.tests = 0

    def object_of(self, pipeline: str, sink: Sink, unique: bool) -> dict[str, Any]:
        """One sink as an object of the schema."""
        name = sink.name if unique else f"{pipeline}.{sink.name}"
        about_rows = [spec for spec in sink.data_tests if self._is_about_rows(spec)]
        if skipped := len(sink.data_tests) - len(about_rows):
            self.left_out.append(f"{name}: {plural(skipped, 'check')} of evidence, which are about the stream")
        if sink.post_batch:
            self.left_out.append(f"{name}: {plural(len(sink.post_batch), 'check')} of post_batch")
        columns = {column.name: column for column in sink.columns}
        properties: dict[str, dict[str, Any]] = {
            column: {"name": column, **_type_of(of.data_type), **_described(of.description)}
            for column, of in columns.items()
        }
        of_object: list[dict[str, Any]] = []
        for spec in (*about_rows, *(spec for column in sink.columns for spec in column.data_tests)):
            column = spec.column or spec.arguments.get("column_name")
            latency = _latency(spec, name)
            prop = properties.get(str(latency["element"]).rpartition(".")[2]) if latency else None
            if latency is not None and prop is not None:
                self.sla.append(latency)
            elif isinstance(column, str) and (spec.column or _is_plain(spec, column)):
                self._of_property(properties.setdefault(column, {"name": column}), spec)
            else:
                of_object.append(_rule(spec, None))
            self.tests += 1
        written: dict[str, Any] = {
            "name": name,
            "physicalName": sink.target,
            "logicalType": "object",
            **_described(sink.description),
            "properties": list(properties.values()),
            "quality": of_object,
        }
        return {key: value for key, value in written.items() if value != []}

    def _of_property(self, prop: dict[str, Any], spec: CheckSpec) -> None:
        """Adds a column's test to its property: as what the standard has for it, else as a quality rule."""
        plain = _is_default(spec.config)
        arguments = {key: value for key, value in spec.arguments.items() if key != "column_name"}
        key = {"not_null": "required", "unique": "unique"}.get(spec.test)
        to = re.fullmatch(r"ref\('([A-Za-z_][\w-]*)'\)", str(arguments.get("to")))
        if plain and key is not None and not arguments:
            prop[key] = True
        elif plain and spec.test == "relationships" and to and set(arguments) == {"to", "field"}:
            relationship = {"type": "foreignKey", "to": f"{to[1]}.{arguments['field']}"}
            prop.setdefault("relationships", []).append(relationship)
        else:
            prop.setdefault("quality", []).append(_rule(spec, prop["name"]))

    def _is_about_rows(self, spec: CheckSpec) -> bool:
        return not registry.known(spec.test) or registry.check_class(spec.test).scope == "table"


def _rule(spec: CheckSpec, column: str | None) -> dict[str, Any]:
    """A test as a rule of the standard's library, or of `engine: recon`."""
    metric = _metric(spec, column)
    config = spec.config
    if metric is None:
        arguments = {k: v for k, v in spec.arguments.items() if column is None or spec.column or k != "column_name"}
        body = {"arguments": arguments, "config": config.model_dump(mode="json", exclude_defaults=True)}
        implementation = {spec.test: {key: value for key, value in body.items() if value}}
        return {"type": "custom", "engine": "recon", "implementation": _plain(implementation)}
    rule: dict[str, Any] = {"type": "library", **metric}
    rule |= {"name": config.alias} if config.alias else {}
    rule |= {"severity": "warning"} if config.severity == "warn" else {}
    rule |= {"tags": list(config.tags)} if config.tags else {}
    return {**rule, **_described(config.description), **{key: str(value) for key, value in config.meta.items()}}


def _metric(spec: CheckSpec, column: str | None) -> dict[str, Any] | None:
    """The metric of the standard's library that says the same as a test, with its comparison; None where none does."""
    given = {key: value for key, value in spec.arguments.items() if key != "column_name" and value is not None}
    config = spec.config
    strings = all(isinstance(value, str) for value in config.meta.values())
    if set(_changed(config)) - _SAID_BY_RULES or set(config.meta) - set(KEPT_IN_META) or not strings:
        return None
    compared = _comparison(config)
    only_zero = {"mustBe": 0} if compared == {"mustBe": 0} else None
    match spec.test, set(given), column is not None:
        case "not_null", keys, True if not keys and compared:
            return {"metric": "nullValues", **compared}
        case "unique", keys, True if not keys and only_zero:
            return {"metric": "duplicateValues", **only_zero}
        case "accepted_values", keys, True if keys == {"values"} and compared:
            return {"metric": "invalidValues", "arguments": {"validValues": _plain(given["values"])}, **compared}
        case "matches_regex", keys, True if keys == {"regex"} and compared:
            return {"metric": "invalidValues", "arguments": {"pattern": given["regex"]}, **compared}
        case "unique_combination_of_columns", keys, False if keys == {"combination_of_columns"} and only_zero:
            columns = _plain(given["combination_of_columns"])
            return {"metric": "duplicateValues", "arguments": {"properties": columns}, **only_zero}
        case "row_count", keys, False if only_zero and (bounds := _bounds(given)):
            return {"metric": "rowCount", **bounds}
        case "not_null_proportion", keys, True if keys == {"at_least"} and only_zero:
            percent = round((1 - float(given["at_least"])) * 100, 9)
            if round(1 - percent / 100, 12) == given["at_least"]:
                return {"metric": "nullValues", "unit": "percent", "mustBeLessOrEqualTo": percent}
    return None


def _bounds(given: Mapping[str, Any]) -> dict[str, Any] | None:
    low, high = given.get("min_value"), given.get("max_value")
    numbers = all(isinstance(value, int) for value in given.values())
    if set(given) - {"min_value", "max_value"} or not given or not numbers:
        return None
    if low is not None and low == high:
        return {"mustBe": low}
    if low is not None and high is not None:
        return {"mustBeBetween": [low, high]}
    return {"mustBeGreaterOrEqualTo": low} if low is not None else {"mustBeLessOrEqualTo": high}


def _comparison(config: CheckConfig) -> dict[str, int] | None:
    """A test's thresholds as one comparison of the standard; None where they are two."""
    conditions = {re.sub(r"\s", "", text) for text in (config.warn_if, config.error_if)}
    match = re.fullmatch(r"(>=|>|!=|=)(\d+)", conditions.pop()) if len(conditions) == 1 else None
    return {_OPERATORS[match[1]]: int(match[2])} if match else None


def _latency(spec: CheckSpec, name: str) -> dict[str, Any] | None:
    """A freshness as a service level; None where it says more than one."""
    given = {key: value for key, value in spec.arguments.items() if value is not None}
    changed = set(_changed(spec.config)) - {"description"}
    if spec.test != "freshness" or changed or set(given) != {"loaded_at_field", "error_after"}:
        return None
    field, after = given["loaded_at_field"], given["error_after"]
    if not str(field).isidentifier() or not isinstance(after, Mapping):
        return None
    unit = {"minute": "min", "hour": "h", "day": "d"}[after["period"]]
    level = {"property": "latency", "value": after["count"], "unit": unit, "element": f"{name}.{field}"}
    return {**level, **_described(spec.config.description)}


def _changed(config: CheckConfig) -> dict[str, Any]:
    return config.model_dump(exclude_defaults=True)


def _is_default(config: CheckConfig) -> bool:
    return not _changed(config)


def _is_plain(spec: CheckSpec, column: str) -> bool:
    """Whether a test below the sink is about one column alone and can be written below it."""
    return registry.known(spec.test) and "column_name" in registry.check_class(spec.test).argument_fields()


def _described(text: str | None) -> dict[str, Any]:
    return {"description": text} if text else {}


def _type_of(data_type: str | None) -> dict[str, Any]:
    if not data_type:
        return {}
    name = re.split(r"[(<]", data_type.lower())[0].strip()
    logical = {"logicalType": _LOGICAL[name] or name} if name in _LOGICAL else {}
    return {**logical, "physicalType": data_type}


def _plain(value: Any) -> Any:
    """A value that every reader of YAML knows: tuples are lists."""
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes)):
        return [_plain(inner) for inner in value]
    return value if value is None or isinstance(value, (bool, int, float, str, date)) else str(value)
