"""dbt's schema.yml as recon.yml: models and sources with their tests, and the freshness of sources.

dbt reads its YAML before Jinja, so Jinja is text here and is written unchanged. Every test is built as a check of recon
before it is written. A test that recon does not have, or whose arguments do not fit, becomes a comment with the reason.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recon.base.errors import ConfigError, ReconError
from recon.base.text import complaint, plural, some
from recon.checks import registry
from recon.convert.dbt.jinja import JINJA, REF, SOURCE, WRAPPED, calls_in_braces, unknown_jinja
from recon.convert.dbt.nodes import (
    Comment,
    Table,
    as_list,
    as_map,
    as_maps,
    description_of,
    number_of_tests,
    read_yaml,
    recon_name,
    tests_of,
)
from recon.convert.dbt.packages import COUNTERPARTS
from recon.convert.dbt.project import DbtProject, Level, Node
from recon.convert.dbt.tests import CONFIG_KEYS, taken_apart, translated
from recon.convert.dbt.writing import dumped, project_text
from recon.project import CheckConfig, CheckSpec

_OF_ITSELF = "their own config says enabled: false"
_OF_TABLE = "their table's config says enabled: false"


@dataclass(frozen=True)
class Imported:
    """recon.yml's text, how many tests and tables are in it, and a sentence for each thing that is left out.

    `differs` has a sentence for each kind of test that is taken over and in some case gives another status than in dbt.
    """

    text: str
    tests: int
    tables: int
    left_out: tuple[str, ...]
    differs: tuple[str, ...] = ()


def read(path: Path, variables: Mapping[str, Any] | None = None) -> Imported:
    """Reads one schema.yml, or all of a dbt project's folder.

    Args:
        path: a YAML file with `models`, `sources`, `seeds` or `snapshots`, or a folder: a dbt project, or any folder
            with such files.
        variables: values of `var` that go before those of dbt_project.yml.

    Raises:
        ConfigError: nothing is there, a file is not YAML, or no test is in any of them.
    """
    return _Reading(path, variables or {}).result()


class _Reading:
    """The state of one import: tables by name, references to tables, and what is left out."""

    _KINDS = ("models", "seeds", "snapshots")

    def __init__(self, path: Path, variables: Mapping[str, Any]) -> None:
        self.path = path
        self.project = DbtProject(path, variables)
        self.left_out: list[str] = []
        self.tables: dict[str, Table] = {}
        self.referred: set[str] = set()
        self.sources: dict[tuple[str, str], str] = {}
        self.undecided: set[str] = set()  # tables of which only dbt knows whether they are disabled
        self.in_doubt: Counter[str] = Counter()  # how many tests they have
        self.off: dict[str, str] = {}  # disabled tables, by their names in recon.yml, and why
        self.not_run: dict[str, Counter[str]] = defaultdict(Counter)  # why dbt runs no test: how many, of which tables
        self.comments: dict[str, Counter[str]] = defaultdict(Counter)  # why tests are comments
        self.overridden: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        self.defaults: Mapping[str, Any] = {}  # the config of all tests of the project
        self.ephemeral: set[str] = set()  # models that are no table in dbt
        self.views: set[str] = set()  # models that are views in dbt
        self.without_table: Counter[str] = Counter()  # how many tests ephemeral models have
        self.differences: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)  # what a check judges otherwise
        self.configured: set[str] = set()  # places of data_tests that hold for a table

    def result(self) -> Imported:
        documents = list(self._documents())
        # All names first, so that source('a', 'b') can be resolved in every file, and tests that refer to what is
        # disabled are known.
        nodes = {str(n.get("name")) for _, d in documents for kind in self._KINDS for n in as_maps(d.get(kind))}
        for _, document in documents:
            self._name_sources(document, nodes)
        self._find_disabled(documents)
        self.defaults = self._defaults()
        for file, document in documents:
            self._read(file, document)
        tables = [table for table in self.tables.values() if table.tests or any(c[2] for c in table.columns)]
        if not tables and (self.not_run or self.without_table):
            reasons = [*self._not_run(), *self._without_table()]
            raise ConfigError(f"{self.path} has no test that dbt runs on a table: {'; '.join(reasons)}")
        if not tables:
            raise ConfigError(f"{self.path} has no tests: no model, source, seed or snapshot lists data_tests or tests")
        self._summarise()
        text = project_text(
            recon_name(self.project.name or self.path.absolute().stem),
            command="recon import dbt",
            written_from=self.path.absolute().name,
            defaults=self.defaults,
            tables=tables,
            others=sorted(self.referred - {table.name for table in tables}),
        )
        differs = tuple(f"{_number_of(of)}: {test}: {how}" for (test, how), of in self.differences.items())
        return Imported(text, sum(table.count() for table in tables), len(tables), tuple(self.left_out), differs)

    def _summarise(self) -> None:
        """Adds to `left_out` what is said once for many tests."""
        self._singular_tests()
        self.left_out[:0] = [
            f"{next(iter(tables)) if tables.total() == 1 else _number_of(tables)}: {why}"
            for why, tables in self.comments.items()
        ]
        if self.in_doubt.total():
            tests = _number_of(+self.in_doubt)
            self.left_out.append(f"{tests} are taken over, though only dbt knows whether they are enabled")
        self.left_out += [*self._not_run(), *self._without_table()]
        if views := sorted(self.views & {name for name, table in self.tables.items() if table.count()}):
            self.left_out.append(
                f"dbt makes views of {some(Counter(views))}, and recon reads tables; give each sink a table with the "
                "same rows as its target"
            )
        for (test, file), tables in self.overridden.items():
            self.left_out.append(
                f"{_number_of(tables)}, left as comments: {file} overrides {test}, and recon's own check could judge "
                "otherwise; write it as a test in data_tests/generic under another name"
            )
        for level in self.project.places("data_tests"):
            if level.place not in self.configured:
                self.left_out.append(f"dbt_project.yml: {level.place} has config, and no tests are there")
        for name in self.project.variables.written:
            self.left_out.append(
                f"dbt_project.yml: the value of var {name} is no text, so it stands in the tests, and --vars does not "
                "change it"
            )

    def _not_run(self) -> list[str]:
        return [f"{_number_of(tables)}, which dbt does not run: {why}" for why, tables in self.not_run.items()]

    def _without_table(self) -> list[str]:
        if not self.without_table:
            return []
        return [
            f"{_number_of(self.without_table)}, left out: the model is ephemeral, and no table holds its rows; test "
            "the models that select from it"
        ]

    # -- files --------------------------------------------------------------------------------------------------

    def _documents(self) -> Iterator[tuple[Path, Mapping[str, Any]]]:
        if self.path.is_dir():
            paths = {"model-paths": "models", "seed-paths": "seeds", "snapshot-paths": "snapshots"}
            named = [folder for key, default in paths.items() for folder in self.project.paths(key, default)]
            folders = named if self.project else [self.path]
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

    def _singular_tests(self) -> None:
        if not self.path.is_dir():
            return
        for folder in self.project.paths("test-paths", "tests"):
            if files := [f for f in folder.rglob("*.sql") if "generic" not in f.parts]:
                place = folder.relative_to(self.path)
                self.left_out.append(
                    f"{plural(len(files), 'SQL test')} in {place}/: copy them into data_tests/ next to recon.yml"
                )

    # -- models and sources ---------------------------------------------------------------------------------------

    def _name_sources(self, document: Mapping[str, Any], nodes: Collection[str]) -> None:
        for source in as_maps(document.get("sources")):
            for table in as_maps(source.get("tables")):
                group, name = str(source.get("name")), str(table.get("name"))
                taken = name in nodes or name in self.sources.values()
                self.sources[group, name] = recon_name(f"{group}_{name}" if taken else name)

    def _find_disabled(self, documents: Sequence[tuple[Path, Mapping[str, Any]]]) -> None:
        """Fills `off`: what a model's file says goes before its YAML, and that before dbt_project.yml."""
        held = {str(n.get("name")): n for _, d in documents for k in self._KINDS for n in as_maps(d.get(k))}
        for name in {*held, *self.project.nodes}:
            node, of_yaml = self.project.nodes.get(name), as_map(as_map(held.get(name)).get("config"))
            in_file, value = self.project.set_in_file(node, "enabled") if node is not None else (False, None)
            why = "the model's file says config(enabled=false)"
            if not in_file and "enabled" in of_yaml:
                value, why = self.project.variables.evaluated(of_yaml["enabled"]), _OF_TABLE
            elif not in_file:
                value, place = self.project.enabled(node.kind, node.fqn) if node is not None else (True, "")
                why = f"dbt_project.yml says enabled: false at {place}"
            self._note_whether_enabled(recon_name(name), value, why)
            if node is not None and node.kind == "models":
                self._note_materialization(name, node, of_yaml)
        for file, document in documents:
            for source in as_maps(document.get("sources")):
                for table in as_maps(source.get("tables")):
                    self._find_disabled_source(file, source, table)

    def _find_disabled_source(self, file: Path, source: Mapping[str, Any], table: Mapping[str, Any]) -> None:
        group, name = str(source.get("name")), str(table.get("name"))
        levels = [as_map(table.get("config")), as_map(source.get("config"))]
        given = next((config["enabled"] for config in levels if "enabled" in config), None)
        value, why = self.project.variables.evaluated(given), _OF_TABLE
        if given is None:
            value, place = self.project.enabled("sources", (*self.project.prefix(file), group, name))
            why = f"dbt_project.yml says enabled: false at {place}"
        self._note_whether_enabled(self.sources[group, name], value, why)

    def _note_materialization(self, name: str, node: Node, of_yaml: Mapping[str, Any]) -> None:
        """A model is a view unless its file, its YAML or dbt_project.yml says otherwise."""
        in_file, value = self.project.set_in_file(node, "materialized")
        if not in_file and "materialized" in of_yaml:
            value = self.project.variables.evaluated(of_yaml["materialized"])
        elif not in_file:
            value, _ = self.project.configured("models", node.fqn, "materialized", default="view")
        if value == "ephemeral":
            self.ephemeral.add(recon_name(name))
        elif value == "view":
            self.views.add(recon_name(name))
        elif value is None:
            self._leave(name, "only dbt knows how it is materialized; recon reads the table of that name")

    def _note_whether_enabled(self, table: str, value: Any, why: str) -> None:
        if _is_false(value):
            self.off[table] = why
        elif not _is_true(value):
            self.undecided.add(table)

    def _read(self, file: Path, document: Mapping[str, Any]) -> None:
        for kind in self._KINDS:
            for node in as_maps(document.get(kind)):
                name = recon_name(str(node.get("name")))
                if self._left_out(name, node):
                    continue
                self._table(name, node, file)
                if node.get("versions"):
                    self._leave(name, "tests of its versions; list them below the sink of that version")
        for source in as_maps(document.get("sources")):
            for node in as_maps(source.get("tables")):
                name = self.sources[str(source.get("name")), str(node.get("name"))]
                if self._left_out(name, node):
                    continue
                self._table(name, node, file)
                self._freshness(self.tables[name], source, node)
        if unit := as_list(document.get("unit_tests")):
            self.left_out.append(f"{file.name}: {plural(len(unit), 'unit test')} of SQL, which say nothing of data")

    def _left_out(self, name: str, node: Mapping[str, Any]) -> bool:
        """Whether the table is disabled, so that dbt runs none of its tests, or is none; notes its tests."""
        if name not in self.off and name not in self.ephemeral:
            return False
        if number := number_of_tests(node):
            (self.not_run[self.off[name]] if name in self.off else self.without_table)[name] += number
        return True

    def _table(self, name: str, node: Mapping[str, Any], file: Path) -> None:
        if name in self.tables and (tests_of(node) or as_maps(node.get("columns"))):
            earlier = self.tables[name]
            if earlier.tests or earlier.columns:
                self._leave(name, "a second list of tests under the same name")
                return
        table = self.tables.setdefault(name, Table(name, description_of(node)))
        prefix = self.project.prefix(file)
        if number_of_tests(node):
            table.defaults = self._config_of_folder(prefix)
        table.enabled = self.project.enabled("data_tests", prefix)
        if name in self.undecided or table.enabled[0] is None:
            self.in_doubt[name] += number_of_tests(node)
        for item in tests_of(node):
            self._test(table, item, None, (), table.tests)
        for column in as_maps(node.get("columns")):
            tags = as_list(column.get("tags")) or as_list(as_map(column.get("config")).get("tags"))
            column_name = str(column.get("name"))
            quoted = column.get("quote") and not column_name.isidentifier()
            named = f"`{column_name}`" if quoted else column_name
            tests: list[Any] = []
            for item in tests_of(column):
                self._test(table, item, named, tags, tests)
            if tests:
                table.columns.append((named, description_of(column), tests))

    def _freshness(self, table: Table, source: Mapping[str, Any], node: Mapping[str, Any]) -> None:
        """Adds the source's freshness with the table's own over it, as dbt merges them; null turns either off."""
        levels = [as_map(node.get("config")), node, as_map(source.get("config")), source]
        freshness: dict[str, Any] = {}
        for level in (level for level in reversed(levels) if "freshness" in level):
            freshness = _over(freshness, level["freshness"]) if level["freshness"] is not None else {}
        field, query = _loaded_at(source, node)
        arguments: dict[str, Any] = {"loaded_at_field": field}
        for key in ("warn_after", "error_after"):
            after = freshness.get(key)
            if isinstance(after, Mapping) and after.get("count") is not None:
                arguments[key] = dict(after)
        if len(arguments) == 1:
            return
        if freshness.get("filter"):
            arguments["filter"] = freshness["filter"]
        if query is not None or field is None:
            item = {"freshness": freshness if query is None else {"loaded_at_query": query, **freshness}}
            reason = "it has no loaded_at_field, and dbt asks when the table was written; name a column with the time"
            if query is not None:
                reason = "its loaded_at_query has no counterpart; write the time that it selects as loaded_at_field"
            table.tests.append(self._comment(table.name, item, reason))
            return
        table.tests.append(self._checked(table.name, "freshness", arguments, {}, None, {"freshness": freshness}))

    # -- tests ----------------------------------------------------------------------------------------------------

    def _test(self, table: Table, item: Any, column: str | None, tags: Sequence[Any], tests: list[Any]) -> None:
        """Adds one item of a list of tests to `tests`, or to the table's where recon has it there.

        It is added as recon.yml has it, or as a comment; what dbt does not run is not added.
        """
        try:
            test, arguments, config, odd = taken_apart(item)
        except ConfigError as error:
            tests.append(self._comment(table.name, item, str(error)))
            return
        # As it stands in dbt_project.yml: by its folder, and by the name that it was given.
        enabled, place = table.enabled
        if "enabled" in config:
            enabled, place = self.project.variables.evaluated(config["enabled"]), ""
        if _is_false(enabled):
            why = f"dbt_project.yml says enabled: false at {place}" if place else _OF_ITSELF
            self.not_run[why][table.name] += 1
            return
        if _is_true(enabled) and unknown_jinja(config.get("enabled")) is not None:
            del config["enabled"]
        if file := self._override(test):
            self.overridden[test, file][table.name] += 1
            tests.append(Comment(f"TODO: {file} overrides it\n{dumped([item])}"))
            return
        arguments = self.project.variables.resolved(calls_in_braces(arguments))
        config = self.project.variables.resolved(config)
        if tags:
            config["tags"] = list(dict.fromkeys((*as_list(config.get("tags")), *tags)))
        if odd:
            self._leave(table.name, f"config {', '.join(sorted(odd))} of {test}, which recon does not have")
        if (macros := unknown_jinja([arguments, config])) is not None:
            tests.append(self._comment(table.name, item, f"recon.yml's Jinja has no {macros}"))
            return
        try:
            where = {**self.defaults, **table.defaults}.get("where")
            found = translated(test, arguments, config, column, where)
        except ConfigError as error:
            tests.append(self._comment(table.name, item, str(error)))
            return
        named = self._named_in(arguments)
        for off in sorted(named & self.off.keys()):
            self.not_run[f"they refer to {off}, which is disabled"][table.name] += 1
            return
        for ephemeral in sorted(named & self.ephemeral):
            reason = f"it refers to {ephemeral}, an ephemeral model, and no table holds its rows"
            tests.append(self._comment(table.name, item, reason))
            return
        arguments = dict(found.arguments)
        check = self._checked(table.name, found.test, arguments, config, None if found.of_table else column, item)
        (table.tests if found.of_table else tests).append(check)
        if found.differs and not isinstance(check, Comment):
            self.differences[test, found.differs][table.name] += 1

    def _override(self, test: str) -> str | None:
        """The file with a test of the project's own in the place of this one, which recon has too."""
        plain = test.rpartition(".")[2]
        if not registry.known(plain) and test not in COUNTERPARTS:
            return None
        return self.project.dispatched.get(plain) or (self.project.tests.get(test) if plain == test else None)

    def _named_in(self, value: Any) -> set[str]:
        """The tables that a test's arguments refer to, by their names in recon.yml."""
        if isinstance(value, (Mapping, list)):
            inner = value.values() if isinstance(value, Mapping) else value
            return set().union(*(self._named_in(each) for each in inner))
        if not isinstance(value, str):
            return set()
        of_sources = {self.sources.get(named, recon_name(named[1])) for named in SOURCE.findall(value)}
        return of_sources | {recon_name(name) for name in REF.findall(value)}

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
        self.comments[f"{name}: {' '.join(reason.split())}"][table] += 1
        return Comment(f"TODO: {' '.join(reason.split())}\n{dumped([item])}")

    def _leave(self, table: str, what: str) -> None:
        self.left_out.append(f"{table}: {' '.join(what.split())}")

    def _defaults(self) -> dict[str, Any]:
        """dbt_project.yml's `data_tests` as far as it is the config of all tests of the project."""
        return self._config_at(list(self.project.levels("data_tests", (self.project.name,))))

    def _config_of_folder(self, prefix: Sequence[str]) -> dict[str, Any]:
        """dbt_project.yml's `data_tests` for a folder of the project."""
        return self._config_at(list(self.project.levels("data_tests", prefix))[2:])

    def _config_at(self, levels: Sequence[Level]) -> dict[str, Any]:
        config: dict[str, Any] = {}
        for level in levels:
            left = []
            for key, value in level.config.items():
                resolved = self.project.variables.resolved(value)
                if key == "fail_calc":  # most checks refuse it
                    self._leave_once(
                        f"dbt_project.yml: fail_calc of {level.place}; write it at the SQL tests it is for"
                    )
                elif key == "store_failures_as":
                    config["store_failures"] = resolved != "ephemeral"
                elif key in CONFIG_KEYS and unknown_jinja(resolved) is None:
                    config.update({} if key == "enabled" else {key: resolved})  # tests that it disables are left out
                else:
                    left.append(key)
            if left:
                self._leave_once(f"dbt_project.yml: {', '.join(left)} of {level.place}, which recon does not have")
            self.configured.add(level.place)
        return config

    def _leave_once(self, what: str) -> None:
        if what not in self.left_out:
            self.left_out.append(what)


def _loaded_at(source: Mapping[str, Any], table: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """A source table's `loaded_at_field` and `loaded_at_query`, of which dbt asks the query where there is one.

    What the table says goes before what its source says. A field that it sets, even to null, turns the query of its
    source off, and null turns off the field, too (dbt-core, `calculate_loaded_at_field_query_from_raw_target`).
    """

    def said(key: str, of: Mapping[str, Any]) -> Any:
        return of.get(key) or as_map(of.get("config")).get(key)

    own = "loaded_at_field" in table
    field = said("loaded_at_field", table if own or said("loaded_at_field", table) else source)
    query = said("loaded_at_query", table) or (None if own else said("loaded_at_query", source))
    return field, query


def _over(freshness: Mapping[str, Any], update: Any) -> dict[str, Any]:
    """A source's freshness with a table's over it: each limit is merged, and one that is null is turned off."""
    merged = {**freshness, **as_map(update)}
    for key in ("warn_after", "error_after"):
        if merged.get(key) is not None:
            merged[key] = {**as_map(freshness.get(key)), **as_map(merged[key])}
    return merged


def _number_of(tables: Counter[str]) -> str:
    return f"{plural(tables.total(), 'test')} of {some(tables)}"


def _is_false(value: Any) -> bool:
    return value is False or (isinstance(value, str) and value.strip().lower() == "false")


def _is_true(value: Any) -> bool:
    return value is True or (isinstance(value, str) and value.strip().lower() == "true")
