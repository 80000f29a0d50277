"""dbt's schema.yml as recon.yml: models and sources with their tests, and the freshness of sources.

dbt reads its YAML before Jinja, so Jinja is text here and is written unchanged. Every test is built as a check of recon
before it is written; a test that recon does not have, or whose arguments do not fit, is written as a comment with the
reason.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from recon.checks import registry
from recon.convert.dbt.jinja import JINJA, REF, SOURCE, WRAPPED, unknown_jinja
from recon.convert.dbt.nodes import (
    Comment,
    Table,
    as_list,
    as_map,
    as_maps,
    description_of,
    read_yaml,
    recon_name,
    tests_of,
)
from recon.convert.dbt.tests import CONFIG_KEYS, taken_apart, translated
from recon.convert.dbt.writing import dumped, project_text
from recon.errors import ConfigError, ReconError
from recon.project import CheckConfig, CheckSpec
from recon.text import complaint


@dataclass(frozen=True)
class Imported:
    """recon.yml's text, how many tests and tables are in it, and a sentence for each thing that is left out."""

    text: str
    tests: int
    tables: int
    left_out: tuple[str, ...]


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
    """The state of one import: tables by name, references to tables, and what is left out."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.left_out: list[str] = []
        self.tables: dict[str, Table] = {}
        self.referred: set[str] = set()
        self.sources: dict[tuple[str, str], str] = {}

    def result(self) -> Imported:
        documents = list(self._documents())
        # All names first, so that source('a', 'b') can be resolved in every file.
        kinds = ("models", "seeds", "snapshots")
        nodes = {str(n.get("name")) for _, d in documents for kind in kinds for n in as_maps(d.get(kind))}
        for _, document in documents:
            self._name_sources(document, nodes)
        for file, document in documents:
            self._read(file, document)
        tables = [table for table in self.tables.values() if table.tests or any(c[2] for c in table.columns)]
        if not tables:
            raise ConfigError(f"{self.path} has no tests: no model, source, seed or snapshot lists data_tests or tests")
        self._singular_tests()
        text = project_text(
            recon_name(str(self.project.get("name") or self.path.absolute().stem)),
            written_from=self.path.absolute().name,
            defaults=self._defaults(),
            tables=tables,
            others=sorted(self.referred - {table.name for table in tables}),
        )
        return Imported(text, sum(table.count() for table in tables), len(tables), tuple(self.left_out))

    # -- files --------------------------------------------------------------------------------------------------

    def _documents(self) -> Iterator[tuple[Path, Mapping[str, Any]]]:
        if self.path.is_dir():
            paths = {"model-paths": ["models"], "seed-paths": ["seeds"], "snapshot-paths": ["snapshots"]}
            named = [name for key, default in paths.items() for name in as_list(self.project.get(key, default))]
            folders = [self.path / str(name) for name in named] if self.project else [self.path]
            files = sorted(f for folder in folders for f in folder.rglob("*") if f.suffix in (".yml", ".yaml"))
            if not files:
                raise ConfigError(f"{self.path} holds no .yml file with models or sources; point to a dbt project")
        elif self.path.is_file():
            files = [self.path]
        else:
            raise ConfigError(f"{self.path} does not exist; give a dbt schema.yml or the folder of a dbt project")
        for file in files:
            if isinstance(document := read_yaml(file), Mapping):
                yield file, document

    @cached_property
    def project(self) -> Mapping[str, Any]:
        """dbt_project.yml; empty where there is none."""
        file = self.path / "dbt_project.yml"
        return as_map(read_yaml(file) if file.is_file() else None)

    def _singular_tests(self) -> None:
        if not self.path.is_dir():
            return
        for name in as_list(self.project.get("test-paths", ["tests"])):
            files = [f for f in (self.path / str(name)).rglob("*.sql") if "generic" not in f.parts]
            if files:
                self.left_out.append(f"{len(files)} SQL tests in {name}/: copy them into data_tests/ next to recon.yml")

    # -- models and sources ---------------------------------------------------------------------------------------

    def _name_sources(self, document: Mapping[str, Any], nodes: Collection[str]) -> None:
        for source in as_maps(document.get("sources")):
            for table in as_maps(source.get("tables")):
                group, name = str(source.get("name")), str(table.get("name"))
                taken = name in nodes or name in self.sources.values()
                self.sources[group, name] = recon_name(f"{group}_{name}" if taken else name)

    def _read(self, file: Path, document: Mapping[str, Any]) -> None:
        for kind in ("models", "seeds", "snapshots"):
            for node in as_maps(document.get(kind)):
                name = recon_name(str(node.get("name")))
                if self._disabled(name, node):
                    continue
                self._table(name, node)
                if node.get("versions"):
                    self._leave(name, "tests of its versions; list them below the sink of that version")
        for source in as_maps(document.get("sources")):
            for node in as_maps(source.get("tables")):
                name = self.sources[str(source.get("name")), str(node.get("name"))]
                if self._disabled(name, node, source):
                    continue
                self._table(name, node)
                self._freshness(self.tables[name], source, node)
        if unit := as_list(document.get("unit_tests")):
            self.left_out.append(f"{file.name}: {len(unit)} unit tests, which are about SQL and not about data")

    def _disabled(self, name: str, *held: Mapping[str, Any]) -> bool:
        """Whether the nearest `config: {enabled: …}` is false; dbt then runs none of its tests."""
        enabled = next((c["enabled"] for c in (as_map(node.get("config")) for node in held) if "enabled" in c), True)
        if enabled is False:
            self._leave(name, "its tests, which dbt does not run: its config says enabled: false")
        return enabled is False

    def _table(self, name: str, node: Mapping[str, Any]) -> None:
        if name in self.tables and (tests_of(node) or as_maps(node.get("columns"))):
            earlier = self.tables[name]
            if earlier.tests or earlier.columns:
                self._leave(name, "a second list of tests under the same name")
                return
        table = self.tables.setdefault(name, Table(name, description_of(node)))
        table.tests += [self._test(name, item, None, ()) for item in tests_of(node)]
        for column in as_maps(node.get("columns")):
            tags = as_list(column.get("tags")) or as_list(as_map(column.get("config")).get("tags"))
            column_name = str(column.get("name"))
            quoted = column.get("quote") and not column_name.isidentifier()
            named = f"`{column_name}`" if quoted else column_name
            tests: list[Any] = []
            for item in tests_of(column):
                test = self._test(name, item, named, tags)
                # A test that names its column as `field` is the table's in recon.
                of_table = isinstance(test, dict) and "recency" in test
                (table.tests if of_table else tests).append(test)
            if tests:
                table.columns.append((named, description_of(column), tests))

    def _freshness(self, table: Table, source: Mapping[str, Any], node: Mapping[str, Any]) -> None:
        """Adds the table's own freshness, else its source's; `freshness: null` turns it off."""
        levels = [as_map(node.get("config")), node, as_map(source.get("config")), source]
        freshness = next((h["freshness"] for h in levels if "freshness" in h), None)
        if not isinstance(freshness, Mapping):
            return
        arguments: dict[str, Any] = {
            "loaded_at_field": next((h["loaded_at_field"] for h in levels if h.get("loaded_at_field")), None)
        }
        for key in ("warn_after", "error_after"):
            after = freshness.get(key)
            if isinstance(after, Mapping) and after.get("count") is not None:
                arguments[key] = dict(after)
        if len(arguments) == 1:
            return
        if freshness.get("filter"):
            arguments["filter"] = freshness["filter"]
        if arguments["loaded_at_field"] is None:
            table.tests.append(self._comment(table.name, {"freshness": freshness}, "it has no loaded_at_field"))
            return
        table.tests.append(self._checked(table.name, "freshness", arguments, {}, None, {"freshness": freshness}))

    # -- tests ----------------------------------------------------------------------------------------------------

    def _test(self, table: str, item: Any, column: str | None, tags: Sequence[Any]) -> Any:
        """One item of a list of tests: as recon.yml has it, or the lines of a comment."""
        try:
            test, arguments, config, odd = taken_apart(item)
        except ConfigError as error:
            return self._comment(table, item, str(error))
        if tags:
            config["tags"] = list(dict.fromkeys((*as_list(config.get("tags")), *tags)))
        if odd:
            self._leave(table, f"config {', '.join(sorted(odd))} of {test}, which recon does not have")
        if (macros := unknown_jinja([arguments, config])) is not None:
            return self._comment(table, item, f"recon.yml's Jinja has no {macros}")
        try:
            test, arguments = translated(test, arguments, config)
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
        # Arguments with Jinja cannot be checked before Jinja has run; recon.yml checks them when it is read.
        certain = not JINJA.search(json.dumps([arguments, config], default=str))
        try:
            if certain:
                spec = CheckSpec(test=test, arguments=arguments, config=CheckConfig(**config), column=column)
                registry.build(spec, "")
            else:
                registry.refuse_fail_calc(registry.check_class(test), test, config.get("fail_calc"))
        except ReconError as error:
            return self._comment(table, item, str(error).removeprefix(": "))
        except ValueError as error:  # pydantic's, about config
            return self._comment(table, item, f"its config is not understood: {complaint(error)}")
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
        text = SOURCE.sub(lambda m: f"ref('{self.sources.get((m[1], m[2]), recon_name(m[2]))}')", value)
        self.referred.update(REF.findall(text))
        # An argument that is a reference and nothing else is written as dbt's docs write it.
        return match[1] if (match := WRAPPED.fullmatch(text.strip())) else text

    def _comment(self, table: str, item: Any, reason: str) -> Comment:
        name = item if isinstance(item, str) else str(item.get("test_name") or next(iter(item), "test"))
        self._leave(table, f"{name}: {reason}")
        return Comment(f"TODO: {' '.join(reason.split())}\n{dumped([item])}")

    def _leave(self, table: str, what: str) -> None:
        self.left_out.append(f"{table}: {' '.join(what.split())}")

    def _defaults(self) -> dict[str, Any]:
        """dbt_project.yml's `data_tests`: the config of all tests of the project."""
        configured = as_map(self.project.get("data_tests") or self.project.get("tests"))
        own = configured.get(str(self.project.get("name")))
        config, left = {}, []
        for key, value in {**configured, **as_map(own)}.items():
            plain = str(key).removeprefix("+")
            if plain == "fail_calc":  # most checks refuse it
                self.left_out.append("dbt_project.yml: fail_calc of data_tests; write it at the SQL tests it is for")
            elif plain in CONFIG_KEYS and unknown_jinja(value) is None:
                config[plain] = value
            elif value is not own:
                left.append(str(key))
        if left:
            self.left_out.append(f"dbt_project.yml: data_tests of {', '.join(left)}; write them as defaults of sinks")
        return config
