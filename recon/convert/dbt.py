"""dbt's schema.yml as recon.yml: models and sources with their tests, and the freshness of sources.

dbt reads its YAML before Jinja, so Jinja is text here and stays what it is. Every test is put to the check it becomes
before it is written; one that is none, or whose arguments do not fit, is written as a comment that says why.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from recon.checks import registry
from recon.errors import ConfigError, ReconError
from recon.project import CheckConfig, CheckSpec

_CONFIG_KEYS = tuple(CheckConfig.model_fields)
_JINJA = re.compile(r"\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}", re.DOTALL)
# What recon.yml's Jinja knows; anything else would stop the whole file from being read.
_KNOWN_JINJA = re.compile(r"\{\{-?\s*(?:var|env_var|ref)\s*\(")
_SOURCE = re.compile(r"""\bsource\(\s*['"]([^'"]+)['"]\s*,\s*['"]([^'"]+)['"]\s*\)""")
_REF = re.compile(r"""\bref\(\s*(?:['"][^'"]+['"]\s*,\s*)?['"]([^'"]+)['"][^)]*\)""")
_WRAPPED = re.compile(r"\{\{-?\s*(ref\([^)]*\))\s*-?\}\}")


@dataclass(frozen=True)
class Imported:
    """recon.yml's text, the number of tests it holds, and a sentence for each thing it does not."""

    text: str
    tests: int
    tables: int
    left_out: tuple[str, ...]


class _Comment(str):
    """A test that is none of recon's, as the lines of a comment."""


@dataclass
class _Table:
    """One model or source table with what became of its tests."""

    name: str
    description: str | None = None
    tests: list[Any] = field(default_factory=list)
    columns: list[tuple[str, str | None, list[Any]]] = field(default_factory=list)

    def count(self) -> int:
        items = (*self.tests, *(item for _, _, tests in self.columns for item in tests))
        return sum(not isinstance(item, _Comment) for item in items)


def read(path: Path) -> Imported:
    """Reads one schema.yml, or all of a dbt project's folder.

    Args:
        path: a YAML file with `models`, `sources`, `seeds` or `snapshots`, or a folder: a dbt project, or any folder
            with such files.

    Raises:
        ConfigError: nothing is there, a file is not YAML, or no test is in any of them.
    """
    return _Reading(path).result()


class _Reading:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.left_out: list[str] = []
        self.tables: dict[str, _Table] = {}
        self.referred: set[str] = set()
        self.sources: dict[tuple[str, str], str] = {}

    def result(self) -> Imported:
        documents = list(self._documents())
        project = self._project_file()
        # First all names, so that source('a', 'b') is known wherever it is met.
        kinds = ("models", "seeds", "snapshots")
        nodes = {str(n.get("name")) for _, d in documents for kind in kinds for n in _maps(d.get(kind))}
        for _, document in documents:
            self._name_sources(document, nodes)
        for file, document in documents:
            self._read(file, document)
        tables = [table for table in self.tables.values() if table.tests or any(c[2] for c in table.columns)]
        if not tables:
            raise ConfigError(f"{self.path} has no tests: no model, source, seed or snapshot lists data_tests or tests")
        self._singular_tests()
        tests = sum(table.count() for table in tables)
        text = self._text(tables, project)
        return Imported(text, tests, len(tables), tuple(self.left_out))

    # -- files --------------------------------------------------------------------------------------------------

    def _documents(self) -> Iterator[tuple[Path, Mapping[str, Any]]]:
        if self.path.is_dir():
            project = self._project_file()
            keys = ("model-paths", "seed-paths", "snapshot-paths")
            defaults = (["models"], ["seeds"], ["snapshots"])
            named = [d for key, default in zip(keys, defaults, strict=True) for d in _list(project.get(key, default))]
            folders = [self.path / str(name) for name in named] if project else [self.path]
            files = sorted(f for folder in folders for f in folder.rglob("*") if f.suffix in (".yml", ".yaml"))
            if not files:
                raise ConfigError(f"{self.path} holds no .yml file with models or sources; point to a dbt project")
        elif self.path.is_file():
            files = [self.path]
        else:
            raise ConfigError(f"{self.path} does not exist; give a dbt schema.yml or the folder of a dbt project")
        for file in files:
            if isinstance(found := _yaml(file), Mapping):
                yield file, found

    def _project_file(self) -> Mapping[str, Any]:
        file = self.path / "dbt_project.yml"
        found = _yaml(file) if file.is_file() else None
        return found if isinstance(found, Mapping) else {}

    def _singular_tests(self) -> None:
        if not self.path.is_dir():
            return
        folders = _list(self._project_file().get("test-paths", ["tests"]))
        for name in folders:
            files = [f for f in (self.path / str(name)).rglob("*.sql") if "generic" not in f.parts]
            if files:
                self.left_out.append(f"{len(files)} SQL tests in {name}/: copy them into data_tests/ next to recon.yml")

    # -- models and sources ---------------------------------------------------------------------------------------

    def _name_sources(self, document: Mapping[str, Any], nodes: Collection[str]) -> None:
        for source in _maps(document.get("sources")):
            for table in _maps(source.get("tables")):
                group, name = str(source.get("name")), str(table.get("name"))
                taken = name in nodes or name in self.sources.values()
                self.sources[group, name] = _name(f"{group}_{name}" if taken else name)

    def _read(self, file: Path, document: Mapping[str, Any]) -> None:
        for kind in ("models", "seeds", "snapshots"):
            for node in _maps(document.get(kind)):
                name = _name(str(node.get("name")))
                if self._disabled(name, node):
                    continue
                self._table(name, node)
                if node.get("versions"):
                    self._leave(name, "tests of its versions; list them below the sink of that version")
        for source in _maps(document.get("sources")):
            for node in _maps(source.get("tables")):
                name = self.sources[str(source.get("name")), str(node.get("name"))]
                if self._disabled(name, node, source):
                    continue
                self._table(name, node)
                self._freshness(self.tables[name], source, node)
        if unit := _list(document.get("unit_tests")):
            self.left_out.append(f"{file.name}: {len(unit)} unit tests, which are about SQL and not about data")

    def _disabled(self, name: str, *held: Mapping[str, Any]) -> bool:
        """Whether the nearest `config: {enabled: …}` is false; dbt then runs none of its tests."""
        said = next((c["enabled"] for c in (_map(node.get("config")) for node in held) if "enabled" in c), True)
        if said is False:
            self._leave(name, "its tests, which dbt does not run: its config says enabled: false")
        return said is False

    def _table(self, name: str, node: Mapping[str, Any]) -> None:
        if name in self.tables and (_tests(node) or _maps(node.get("columns"))):
            earlier = self.tables[name]
            if earlier.tests or earlier.columns:
                self._leave(name, "a second list of tests under the same name")
                return
        table = self.tables.setdefault(name, _Table(name, _described(node)))
        table.tests += [self._test(name, item, None, ()) for item in _tests(node)]
        for column in _maps(node.get("columns")):
            tags = _list(column.get("tags")) or _list(_map(column.get("config")).get("tags"))
            about = str(column.get("name"))
            named = f"`{about}`" if column.get("quote") and not about.isidentifier() else about
            tests: list[Any] = []
            for item in _tests(column):
                found = self._test(name, item, named, tags)
                # A test that names its column as `field` is the table's in recon.
                of_table = isinstance(found, dict) and "recency" in found
                (table.tests if of_table else tests).append(found)
            if tests:
                table.columns.append((named, _described(column), tests))

    def _freshness(self, table: _Table, source: Mapping[str, Any], node: Mapping[str, Any]) -> None:
        """The table's own, over its source's; `freshness: null` turns it off."""
        held = [_map(node.get("config")), node, _map(source.get("config")), source]
        found = next((h["freshness"] for h in held if "freshness" in h), None)
        if not isinstance(found, Mapping):
            return
        arguments: dict[str, Any] = {
            "loaded_at_field": next((h["loaded_at_field"] for h in held if h.get("loaded_at_field")), None)
        }
        for key in ("warn_after", "error_after"):
            after = found.get(key)
            if isinstance(after, Mapping) and after.get("count") is not None:
                arguments[key] = dict(after)
        if len(arguments) == 1:
            return
        if found.get("filter"):
            arguments["filter"] = found["filter"]
        if arguments["loaded_at_field"] is None:
            table.tests.append(self._comment(table.name, {"freshness": found}, "it has no loaded_at_field"))
            return
        table.tests.append(self._checked(table.name, "freshness", arguments, {}, None, {"freshness": found}))

    # -- tests ----------------------------------------------------------------------------------------------------

    def _test(self, table: str, item: Any, column: str | None, tags: Sequence[Any]) -> Any:
        """One item of a list of tests: as recon.yml has it, or the lines of a comment."""
        try:
            test, arguments, config, odd = _taken_apart(item)
        except ConfigError as error:
            return self._comment(table, item, str(error))
        if tags:
            config["tags"] = list(dict.fromkeys((*_list(config.get("tags")), *tags)))
        if odd:
            self._leave(table, f"config {', '.join(sorted(odd))} of {test}, which recon has not")
        if (macros := _unknown_jinja([arguments, config])) is not None:
            return self._comment(table, item, f"recon.yml's Jinja has no {macros}")
        try:
            test, arguments = _translated(test, arguments, config)
        except ConfigError as error:
            return self._comment(table, item, str(error))
        if test == "recency" and column is not None:
            arguments, column = {"field": column, **arguments}, None
        return self._checked(table, test, arguments, config, column, item)

    def _checked(
        self, table: str, test: str, arguments: dict[str, Any], config: dict[str, Any], column: str | None, item: Any
    ) -> Any:
        """The test if its check takes the arguments, else the lines of a comment."""
        arguments, config = self._with_refs(arguments), self._with_refs(config)
        # What Jinja will put in is not known yet; the check says so when it is.
        certain = not _JINJA.search(json.dumps([arguments, config], default=str))
        try:
            if certain:
                spec = CheckSpec(test=test, arguments=arguments, config=CheckConfig(**config), column=column)
                registry.build(spec, "")
            else:
                registry.refuse_fail_calc(registry.check_class(test), test, config.get("fail_calc"))
        except ReconError as error:
            return self._comment(table, item, str(error).removeprefix(": "))
        except ValueError as error:  # pydantic's, about config
            return self._comment(table, item, f"its config is not understood: {_first(error)}")
        body = {key: value for key, value in (("arguments", arguments), ("config", config)) if value}
        return {test: body} if body else test

    def _with_refs(self, value: Any) -> Any:
        """`source('a', 'b')` and `{{ ref('b') }}` as recon's `ref('b')`."""
        if isinstance(value, Mapping):
            return {key: self._with_refs(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [self._with_refs(inner) for inner in value]
        if not isinstance(value, str):
            return value
        text = _SOURCE.sub(lambda m: f"ref('{self.sources.get((m[1], m[2]), _name(m[2]))}')", value)
        self.referred.update(_REF.findall(text))
        # An argument that is a reference and nothing else is written as dbt's docs write it.
        return found[1] if (found := _WRAPPED.fullmatch(text.strip())) else text

    def _comment(self, table: str, item: Any, reason: str) -> _Comment:
        name = item if isinstance(item, str) else str(item.get("test_name") or next(iter(item), "test"))
        self._leave(table, f"{name}: {reason}")
        return _Comment(f"TODO: {' '.join(reason.split())}\n{_dumped([item])}")

    def _leave(self, table: str, what: str) -> None:
        self.left_out.append(f"{table}: {' '.join(what.split())}")

    # -- writing --------------------------------------------------------------------------------------------------

    def _text(self, tables: Sequence[_Table], project: Mapping[str, Any]) -> str:
        name = _name(str(project.get("name") or self.path.absolute().stem))
        lines = [
            f"# Written by 'recon import dbt' from {self.path.absolute().name}.",
            "# TODO marks what to look at: topics and folders are guesses. 'recon list' says what would run.",
            "version: 2",
            f"name: {_scalar(name)}",
            "ledger: lake/_recon",
            "kafka:",
            "  bootstrap.servers: \"{{ env_var('KAFKA_BOOTSTRAP', 'localhost:9092') }}\"",
        ]
        if defaults := self._defaults(project):
            lines += _indented(_dumped({"defaults": defaults}), "")
        others = sorted(self.referred - {table.name for table in tables})
        if others:
            lines += ["tables:  # TODO: where the tables are that tests refer to"]
            for other in others:
                lines += [f"  - name: {_scalar(_name(other))}", f"    target: {_scalar(f'lake/{_name(other)}')}"]
        lines += ["pipelines:"]
        for table in tables:
            lines += [
                f"  - name: {_scalar(table.name)}",
                f"    checkpoint: {_scalar(f'checkpoints/{table.name}')}  # TODO: the stream's checkpointLocation",
                f"    source: {{topics: [{_scalar(table.name)}]}}  # TODO: its Kafka topics",
                "    sinks:",
                f"      - name: {_scalar(table.name)}",
                f"        target: {_scalar(f'lake/{table.name}')}  # TODO: the Delta table's path or URI",
                *_description(table.description, " " * 8),
                *_items("data_tests", table.tests, " " * 8),
            ]
            if table.columns:
                lines += ["        columns:"]
            for column, description, tests in table.columns:
                lines += [
                    f"          - name: {_scalar(column)}",
                    *_description(description, " " * 12),
                    *_items("data_tests", tests, " " * 12),
                ]
        return "\n".join(lines) + "\n"

    def _defaults(self, project: Mapping[str, Any]) -> dict[str, Any]:
        """dbt_project.yml's `data_tests`: what holds for the whole project."""
        found = _map(project.get("data_tests") or project.get("tests"))
        own = found.get(str(project.get("name")))
        config, left = {}, []
        for key, value in {**found, **_map(own)}.items():
            plain = str(key).removeprefix("+")
            if plain == "fail_calc":  # most checks refuse it
                self.left_out.append("dbt_project.yml: fail_calc of data_tests; write it at the SQL tests it is for")
            elif plain in _CONFIG_KEYS and _unknown_jinja(value) is None:
                config[plain] = value
            elif value is not own:
                left.append(str(key))
        if left:
            self.left_out.append(f"dbt_project.yml: data_tests of {', '.join(left)}; write them as defaults of sinks")
        return config


def _taken_apart(item: Any) -> tuple[str, dict[str, Any], dict[str, Any], list[str]]:
    """A test's name, arguments, config, and the config that recon has not."""
    if isinstance(item, str):
        item = {item: None}
    if not isinstance(item, Mapping) or not item:
        raise ConfigError("it is neither a name nor a mapping")
    if "test_name" in item:
        test, body = item["test_name"], {key: value for key, value in item.items() if key != "test_name"}
    elif len(item) == 1:
        ((test, body),) = item.items()
    else:
        raise ConfigError(f"it must be one name, found {', '.join(map(str, item))}")
    body = dict(_map(body))
    arguments = dict(_map(body.pop("arguments", None)))
    given = dict(_map(body.pop("config", None)))
    for key, value in body.items():
        plain = {"name": "alias"}.get(key, key)
        if plain in _CONFIG_KEYS or plain in _DBT_CONFIG:
            given.setdefault(plain, value)
        else:
            arguments[key] = value
    config = {key: value for key, value in given.items() if key in _CONFIG_KEYS and value is not None}
    odd = [key for key in given if key not in _CONFIG_KEYS]
    if (kept := given.get("store_failures_as")) is not None:
        config.setdefault("store_failures", kept != "ephemeral")
        odd.remove("store_failures_as")
    if str(config.get("severity", "")).lower() in ("warn", "error"):
        config["severity"] = str(config["severity"]).lower()
    return str(test), arguments, config, odd


_DBT_CONFIG = ("database", "schema", "store_failures_as", "group", "sql_header", "docs", "event_time")


# -- names that are others' -----------------------------------------------------------------------------------------

_EXPECT = "dbt_expectations.expect_"
_STATISTICS = {
    "column_mean_to_be_between": "column_mean",
    "column_min_to_be_between": "column_min",
    "column_max_to_be_between": "column_max",
    "column_sum_to_be_between": "column_sum",
    "column_stdev_to_be_between": "column_stddev",
    "column_median_to_be_between": "column_quantile",
    "column_quantile_values_to_be_between": "column_quantile",
}


def _translated(test: str, arguments: Mapping[str, Any], config: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The name and arguments in recon of a test; `config` gains a row condition.

    Raises:
        ConfigError: recon has no counterpart.
    """
    plain = test.removeprefix("dbt_utils.").removeprefix("dbt.")
    if registry.known(plain):
        return plain, dict(arguments)
    if not test.startswith(_EXPECT):
        raise ConfigError("recon has no check of this name; a test of your own can be a macro in data_tests/generic")
    left = dict(arguments)
    if condition := left.pop("row_condition", None):
        where = config.get("where")
        config["where"] = f"({where}) and ({condition})" if where else condition
    name, made = _expectation(test.removeprefix(_EXPECT), left)
    # What is left over would be dropped in silence.
    odd = [key for key, value in left.items() if value not in (None, False)]
    if odd:
        raise ConfigError(f"its argument {', '.join(odd)} has no counterpart")
    return name, made


def _expectation(kind: str, left: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """A test of dbt_expectations; takes out of `left` what it understands."""
    if kind in _STATISTICS:
        name = _STATISTICS[kind]
        quantile = {"quantile": 0.5 if "median" in kind else left.pop("quantile", None)}
        left.pop("sigma", None) if left.get("sigma") == 0 else None
        return name, {**(quantile if name == "column_quantile" else {}), **_range(left)}
    match kind:
        case "column_values_to_not_be_null":
            return "not_null", {}
        case "column_values_to_be_unique":
            return "unique", {}
        case "column_values_to_be_in_set":
            quote = {"quote": False} if left.pop("quote_values", True) is False else {}
            return "accepted_values", {"values": left.pop("value_set", None), **quote}
        case "column_values_to_be_between":
            return "accepted_range", _range(left)
        case "column_values_to_match_regex" | "column_values_to_not_match_regex":
            left.pop("is_raw", None)
            negate = {"negate": True} if "not" in kind.split("_") else {}
            return "matches_regex", {"regex": left.pop("regex", None), **negate}
        case "table_row_count_to_be_between":
            return "row_count", _range(left)
        case "table_row_count_to_equal":
            value = left.pop("value", None)
            return "row_count", {"min_value": value, "max_value": value}
        case "table_row_count_to_equal_other_table":
            return "equal_rowcount", {"compare_model": left.pop("compare_model", None)}
        case "compound_columns_to_be_unique":
            if left.get("ignore_row_if") not in (None, "all_values_are_missing"):
                raise ConfigError("its argument ignore_row_if has no counterpart")
            left.pop("ignore_row_if", None)
            return "unique_combination_of_columns", {"combination_of_columns": left.pop("column_list", None)}
        case "row_values_to_have_recent_data":
            return "recency", {key: left.pop(key, None) for key in ("datepart", "interval")}
    if kind == "expression_is_true" or kind == "row_values_expression_is_true":
        return "expression_is_true", {"expression": left.pop("expression", None)}
    raise ConfigError("recon has no counterpart")


def _range(left: dict[str, Any]) -> dict[str, Any]:
    bounds = {key: left.pop(key) for key in ("min_value", "max_value") if left.get(key) is not None}
    return {**bounds, "inclusive": False} if left.pop("strictly", False) else bounds


# -- YAML -----------------------------------------------------------------------------------------------------------


class _Dumper(yaml.SafeDumper):
    """Writes YAML as people do: lists indented, text of several lines as a block."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text.strip() and text == text.strip() else None
    if found := _HELD.search(text):
        style = '"' if found[1] else "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent)
# Private-use characters, which YAML lets through: Jinja that is put back when the YAML is written, and whether it
# holds single quotes.
_HELD = re.compile("\ue010(\ue012?)(\\d+)\ue011")


def _dumped(value: Any) -> str:
    """YAML with Jinja as it was: recon.yml's Jinja comes before its YAML, so no quote of it may be escaped."""
    held: list[str] = []

    def hold(inner: Any) -> Any:
        if isinstance(inner, Mapping):
            return {key: hold(each) for key, each in inner.items()}
        if isinstance(inner, (list, tuple)):
            return [hold(each) for each in inner]
        return _JINJA.sub(held_back, inner) if isinstance(inner, str) else inner

    def held_back(found: re.Match[str]) -> str:
        held.append(found[0])
        quotes = "\ue012" if "'" in found[0] else ""
        return f"\ue010{quotes}{len(held) - 1}\ue011"

    text = yaml.dump(hold(value), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1_000_000)
    return _HELD.sub(lambda found: held[int(found[2])], text).rstrip("\n")


def _scalar(text: str) -> str:
    """A text as it stands behind a key on one line."""
    return _dumped({"k": text}).removeprefix("k: ")


def _indented(text: str, indent: str, mark: str = "") -> list[str]:
    return [f"{indent}{mark}{line}".rstrip() for line in text.split("\n")]


def _description(text: str | None, indent: str) -> list[str]:
    if not text or _unknown_jinja(text) is not None:  # such as {{ doc('x') }}, which only dbt can look up
        return []
    return _indented(_dumped({"description": text.strip()}), indent)


def _items(key: str, items: Iterable[Any], indent: str) -> list[str]:
    """A list of tests; texts among them are comments."""
    items = list(items)
    if not items:
        return []
    real = [item for item in items if not isinstance(item, _Comment)]
    lines = [f"{indent}{key}:" if real else f"{indent}{key}: []"]
    for item in items:
        if isinstance(item, _Comment):
            lines += _indented(item, f"{indent}  ", "# ")
        else:
            lines += _indented(_dumped([item]), f"{indent}  ")
    return lines


def _yaml(file: Path) -> Any:
    try:
        return yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror or error}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} is not valid YAML: {' '.join(str(error).split())[:200]}") from error


def _tests(node: Mapping[str, Any]) -> list[Any]:
    """`data_tests`, which dbt used to call `tests`."""
    return _list(node.get("data_tests")) or _list(node.get("tests"))


def _described(node: Mapping[str, Any]) -> str | None:
    found = node.get("description")
    return found if isinstance(found, str) and found.strip() else None


def _unknown_jinja(value: Any) -> str | None:
    """The first Jinja in a value that recon.yml does not know; None when there is none."""
    found: Iterator[str | None]
    if isinstance(value, Mapping):
        found = (_unknown_jinja(inner) for inner in value.values())
    elif isinstance(value, list):
        found = (_unknown_jinja(inner) for inner in value)
    elif isinstance(value, str):
        text = _SOURCE.sub("ref('x')", value)
        odd = [part for part in _JINJA.findall(text) if not _KNOWN_JINJA.match(part)]
        # What is opened and not closed is no Jinja, and stops Jinja from reading the file.
        found = iter([*odd, *re.findall(r"\{[{%#].*", _JINJA.sub("", text))])
    else:
        return None
    return next((part for part in found if part is not None), None)


def _name(text: str) -> str:
    """A name as recon.yml takes it."""
    return re.sub(r"[^\w.-]+", "_", text)


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [] if value is None else [value]


def _map(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _maps(value: Any) -> list[Mapping[str, Any]]:
    return [item for item in _list(value) if isinstance(item, Mapping)]


def _first(error: Exception) -> str:
    errors = getattr(error, "errors", None)
    if callable(errors) and (found := errors()):
        return f"{'.'.join(str(part) for part in found[0]['loc'])}: {found[0]['msg']}"
    return str(error).split("\n", 1)[0]
