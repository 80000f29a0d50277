"""A contract of ODCS as recon.yml: its objects as sinks, what it promises of their rows as data tests."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recon.base.errors import ConfigError, ReconError
from recon.base.text import complaint, plural, some
from recon.checks import registry
from recon.convert.dbt.nodes import Comment, Table, recon_name
from recon.convert.dbt.writing import dumped, project_text
from recon.convert.odcs.document import contract
from recon.convert.odcs.rules import SqlFile, Test, item_of, named, test_of_sql, tests_of
from recon.project import CheckConfig, CheckSpec

if TYPE_CHECKING:
    from open_data_contract_standard.model import (
        DataQuality,
        OpenDataContractStandard,
        Relationship,
        SchemaObject,
        SchemaProperty,
        ServiceLevelAgreementProperty,
    )

_JINJA = re.compile(r"\{\{|\{%|\{#")
# Units of slaProperties as periods of freshness; `m` may be a month or a minute, and is neither.
_PERIODS = {
    **dict.fromkeys(("d", "day", "days"), ("day", 1)),
    **dict.fromkeys(("w", "week", "weeks"), ("day", 7)),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), ("hour", 1)),
    **dict.fromkeys(("min", "mins", "minute", "minutes"), ("minute", 1)),
}
_OPTIONS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "pattern", "minLength", "maxLength")


@dataclass(frozen=True)
class Imported:
    """recon.yml's text, the SQL files beside it, how many tests and tables there are, and what is left out."""

    text: str
    files: Mapping[str, str]
    tests: int
    tables: int
    left_out: tuple[str, ...]


def read(file: Path) -> Imported:
    """Reads a contract.

    Raises:
        ConfigError: the file is no contract that recon reads, or promises nothing that a test could hold.
    """
    return _Reading(file).result()


@dataclass
class _Object:
    """An object of the contract, and the sink that it becomes."""

    of: SchemaObject
    table: Table
    columns: dict[str, str] = field(default_factory=dict)  # names of columns by names of properties
    tests: dict[str, list[Any]] = field(default_factory=dict)  # by column
    seen: set[str] = field(default_factory=set)  # tests that are there already

    @property
    def name(self) -> str:
        return self.table.name


class _Reading:
    """The state of one import."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.left_out: list[str] = []
        self.files: dict[str, str] = {}
        self.objects: dict[str, _Object] = {}
        self.others: set[str] = set()

    def result(self) -> Imported:
        of, unknown = contract(self.file)
        self.left_out += [f"{' '.join(place.split())}: ODCS has no such key" for place in unknown]
        for declared in of.schema_ or ():
            self._name(declared)
        for schema in self.objects.values():
            self._read(schema)
        self._types()
        for sla in of.slaProperties or ():
            self._sla(sla, of)
        for schema in self.objects.values():
            for prop in schema.of.properties or ():
                if tests := schema.tests.get(column := schema.columns[str(prop.name)]):
                    schema.table.columns.append((column, _text(prop.description), tests))
        tables = [schema.table for schema in self.objects.values() if schema.table.tests or schema.table.columns]
        if not tables and not self.files:
            raise ConfigError(f"{self.file} promises nothing of rows that recon could test: {self._reasons()}")
        sinks = [schema.table for schema in self.objects.values() if schema.table in tables or self._has_file(schema)]
        text = project_text(
            recon_name(of.name or of.id or self.file.stem),
            command="recon import odcs",
            written_from=recon_name(self.file.name),
            defaults={},
            tables=sinks,
            others=sorted(self.others),
        )
        number = sum(table.count() for table in tables) + len(self.files)
        return Imported(text, self.files, number, len(sinks), tuple(self.left_out))

    def _has_file(self, schema: _Object) -> bool:
        return any(f"ref('{schema.name}')" in text for text in self.files.values())

    def _reasons(self) -> str:
        return "; ".join(self.left_out) or "it has no schema with required or unique properties, keys or quality rules"

    # -- objects and properties ---------------------------------------------------------------------------------

    def _name(self, schema: SchemaObject) -> None:
        name = recon_name(str(schema.name or schema.physicalName or schema.id or "table"))
        if name in self.objects:
            self._leave(name, "a second object of this name")
            return
        physical = schema.physicalName or ""
        target = physical if "/" in physical and not _JINJA.search(physical) else None
        of_schema = _Object(schema, Table(name, _text(schema.description), target))
        for prop in schema.properties or ():
            of_schema.columns[str(prop.name)] = str(prop.physicalName or prop.name)
        self.objects[name] = of_schema

    def _read(self, schema: _Object) -> None:
        keys = [prop for prop in schema.of.properties or () if prop.primaryKey]
        for prop in schema.of.properties or ():
            column = schema.columns[str(prop.name)]
            self._constraints(schema, prop, column, alone=len(keys) == 1)
            for rule in prop.quality or ():
                self._rule(schema, rule, column)
            for relationship in prop.relationships or ():
                self._relationship(schema, relationship, column)
            nested = [*(prop.properties or ()), *([prop.items] if prop.items else ())]
            if any(_promises(inner) for inner in nested):
                self._leave(schema.name, f"what {column} promises of values within it")
        if len(keys) > 1:
            in_order = sorted(keys, key=lambda prop: prop.primaryKeyPosition or 0)
            columns = [schema.columns[str(prop.name)] for prop in in_order]
            self._add(schema, Test("unique_combination_of_columns", {"combination_of_columns": columns}, {}))
        for rule in schema.of.quality or ():
            self._rule(schema, rule, None)
        for relationship in schema.of.relationships or ():
            start = relationship.from_
            column_of = str(start).rpartition(".")[2] if isinstance(start, str) else None
            self._relationship(schema, relationship, schema.columns.get(column_of or ""))

    def _types(self) -> None:
        """Says that types are not tested: those of the contract may be those of another system."""
        typed = {
            schema.name: sum(bool(prop.physicalType or prop.logicalType) for prop in schema.of.properties or ())
            for schema in self.objects.values()
        }
        if number := sum(typed.values()):
            tables = some(name for name, count in typed.items() if count)
            properties = plural(number, "property", "properties")
            self.left_out.append(f"the types of {properties} of {tables}, which a schema_contract would test")

    def _constraints(self, schema: _Object, prop: SchemaProperty, column: str, alone: bool) -> None:
        """What a property promises besides its quality rules."""
        if prop.required or prop.primaryKey:
            self._add(schema, Test("not_null", {}, {}, column))
        if prop.unique or (prop.primaryKey and alone):
            self._add(schema, Test("unique", {}, {}, column))
        if prop.enum:
            values = [item.value for item in prop.enum if item.value is not None]
            self._add(schema, Test("accepted_values", {"values": values}, {}, column))
        options = dict(prop.logicalTypeOptions or {})
        for inclusive, low, high in ((True, "minimum", "maximum"), (False, "exclusiveMinimum", "exclusiveMaximum")):
            bounds = {"min_value": options.get(low), "max_value": options.get(high)}
            if given := {key: value for key, value in bounds.items() if value is not None}:
                exclusive = {} if inclusive else {"inclusive": False}
                self._add(schema, Test("accepted_range", {**given, **exclusive}, {}, column))
        if (pattern := options.get("pattern")) is not None:
            self._add(schema, Test("matches_regex", {"regex": pattern}, {}, column))
        for key, sign in (("minLength", ">="), ("maxLength", "<=")):
            if (length := options.get(key)) is not None:
                quoted = column if column.isidentifier() else f"`{column}`"
                self._add(schema, Test("expression_is_true", {"expression": f"length({quoted}) {sign} {length}"}, {}))
        if odd := sorted(set(options) - set(_OPTIONS)):
            self._leave(schema.name, f"logicalTypeOptions {', '.join(odd)} of {column}")

    # -- rules --------------------------------------------------------------------------------------------------

    def _rule(self, schema: _Object, rule: DataQuality, column: str | None) -> None:
        """Adds the tests of a quality rule, or a comment that says why there are none."""
        kind = rule.type or "library"
        try:
            if kind == "library":
                tests = tests_of(rule, column)
                for test in tests:
                    self._add(schema, _by_column(schema, test), rule)
            elif kind == "sql":
                names = [str(name) for name in (schema.of.name, schema.of.physicalName) if name]
                made = test_of_sql(rule, schema.name, column, names)
                if isinstance(made, SqlFile):
                    self._add_file(made)
                else:
                    self._add(schema, made, rule)
            elif kind == "custom" and rule.engine == "recon":
                name, arguments, config = item_of(rule.implementation)
                self._add(schema, Test(name, arguments, config, column), rule)
            elif kind == "custom":
                raise ConfigError(f"it is for {rule.engine}")
            else:
                raise ConfigError("it is a text for people")
        except ReconError as error:
            self._comment(schema, rule.model_dump(exclude_none=True), named(rule), str(error), column)

    def _add(self, schema: _Object, test: Test, rule: DataQuality | None = None) -> None:
        """Adds a test if its check takes the arguments, else a comment."""
        item: dict[str, Any] = {
            test.name: {
                key: dict(value) for key, value in (("arguments", test.arguments), ("config", test.config)) if value
            }
        }
        text = dumped([item])
        if text + str(test.column) in schema.seen:
            return
        reason = (
            "recon would take what it holds for Jinja" if _JINJA.search(text + str(test.column)) else _refusal(test)
        )
        if reason:
            self._comment(schema, item, named(rule) if rule is not None else test.name, reason, test.column)
            return
        schema.seen.add(text + str(test.column))
        self.others |= self._referred(test.arguments.get("to"))
        tests = schema.table.tests if test.column is None else schema.tests.setdefault(test.column, [])
        tests.append(item if item[test.name] else test.name)

    def _referred(self, to: Any) -> set[str]:
        match = re.fullmatch(r"ref\('([\w.-]+)'\)", to) if isinstance(to, str) else None
        return {match[1]} - self.objects.keys() if match else set()

    def _add_file(self, file: SqlFile) -> None:
        name, number = file.name, 2
        while f"data_tests/{name}.sql" in self.files:
            name, number = f"{file.name}_{number}", number + 1
        self.files[f"data_tests/{name}.sql"] = file.text

    def _comment(self, schema: _Object, item: Any, name: str, reason: str, column: str | None) -> None:
        said = " ".join(reason.split()).removeprefix(": ")
        self._leave(schema.name, f"{f'{column}: ' if column else ''}{' '.join(name.split())}: {said}")
        comment = Comment(f"TODO: {said}\n{dumped([item])}")
        if column is None or _JINJA.search(column):
            schema.table.tests.append(comment)
        else:
            schema.tests.setdefault(column, []).append(comment)

    def _relationship(self, schema: _Object, relationship: Relationship, column: str | None) -> None:
        to = relationship.to
        match = re.fullmatch(r"([\w-]+)\.([\w-]+)", to) if isinstance(to, str) else None
        if match is None or column is None or relationship.type not in (None, "foreignKey"):
            self._leave(schema.name, f"the relationship to {to}, which is not one column of one object")
            return
        target = self.objects.get(recon_name(match[1]))
        theirs = target.columns.get(match[2], match[2]) if target is not None else match[2]
        arguments = {"to": f"ref('{recon_name(match[1])}')", "field": theirs}
        self._add(schema, Test("relationships", arguments, {}, column))

    # -- service levels -----------------------------------------------------------------------------------------

    def _sla(self, sla: ServiceLevelAgreementProperty, of: OpenDataContractStandard) -> None:
        if str(sla.property).lower() not in ("latency", "ly", "freshness"):
            self.left_out.append(f"slaProperties: {sla.property}, which recon has no check for")
            return
        elements = [text.strip() for text in str(sla.element or of.slaDefaultElement or "").split(",") if text.strip()]
        for element in elements or [""]:
            schema, prop = self._object_of(element), element.rpartition(".")[2]
            if schema is None or prop not in schema.columns:
                self.left_out.append(
                    f"slaProperties: {sla.property} of {element or 'no element'}, which is no property of the contract"
                )
            elif (after := _period(sla)) is None:
                self.left_out.append(
                    f"slaProperties: {sla.property} of {element} within {sla.value} {sla.unit}, which is no whole "
                    "number of minutes (min), hours, days or weeks"
                )
            else:
                config = {"description": sla.description} if sla.description else {}
                self._add(
                    schema, Test("freshness", {"loaded_at_field": schema.columns[prop], "error_after": after}, config)
                )

    def _object_of(self, element: str) -> _Object | None:
        """The object that an element is of; without a name, the only one."""
        name = element.rpartition(".")[0]
        if not name and len(self.objects) == 1:
            return next(iter(self.objects.values()))
        physical = (schema for schema in self.objects.values() if name and schema.of.physicalName == name)
        return self.objects.get(recon_name(name)) or next(physical, None)

    def _leave(self, table: str, what: str) -> None:
        self.left_out.append(f"{table}: {what}")


def _period(sla: ServiceLevelAgreementProperty) -> dict[str, Any] | None:
    """The level's length of time as freshness takes it; None for one that is not whole, or of another unit."""
    period, value = _PERIODS.get(str(sla.unit or "").lower()), sla.value
    if period is None or isinstance(value, (bool, str)) or value is None or value != int(value):
        return None
    name, times = period
    return {"count": int(value) * times, "period": name}


def _by_column(schema: _Object, test: Test) -> Test:
    """The test with columns' names where the rule names properties."""
    if "combination_of_columns" not in test.arguments:
        return test
    columns: Sequence[Any] = test.arguments["combination_of_columns"]
    renamed = [schema.columns.get(str(name), str(name)) for name in columns]
    return Test(test.name, {"combination_of_columns": renamed}, test.config)


def _refusal(test: Test) -> str:
    """Why recon cannot build the test; empty where it can."""
    try:
        config = CheckConfig(**test.config)
        spec = CheckSpec(test=test.name, arguments=dict(test.arguments), config=config, column=test.column)
        registry.build(spec, "")
    except ReconError as error:
        return str(error)
    except ValueError as error:  # pydantic's, about config
        return complaint(error)
    return ""


def _promises(prop: SchemaProperty) -> bool:
    """Whether a nested property promises something that a column of its own would have tests for."""
    inner: Iterable[SchemaProperty] = [*(prop.properties or ()), *([prop.items] if prop.items else ())]
    own = prop.required or prop.unique or prop.primaryKey or prop.enum or prop.quality or prop.relationships
    return bool(own) or any(_promises(property_) for property_ in inner)


def _text(text: str | None) -> str | None:
    """A description that recon.yml's Jinja leaves as it is; a contract may come from anywhere."""
    return text if text and text.strip() and not _JINJA.search(text) else None
