"""Quality rules of ODCS as tests of recon, and tests of recon as quality rules.

A rule compares a figure, of rows for most metrics, with a number; a test of recon counts failing rows, which `warn_if`
and `error_if` compare. Both say the same where the figure is that count.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml

from recon.base.errors import ConfigError
from recon.convert.dbt.nodes import recon_name
from recon.project.sql_tests import sql_literal

if TYPE_CHECKING:
    from open_data_contract_standard.model import DataQuality

# The condition on failing rows by which a test fails, for each comparison that must hold.
_FAILS = {
    "mustBe": "!={}",
    "mustNotBe": "={}",
    "mustBeGreaterThan": "<={}",
    "mustBeGreaterOrEqualTo": "<{}",
    "mustBeLessThan": ">={}",
    "mustBeLessOrEqualTo": ">{}",
    "mustBeBetween": "not between {} and {}",
    "mustNotBeBetween": "between {} and {}",
}
_SQL = {
    "mustBe": "value = {}",
    "mustNotBe": "value <> {}",
    "mustBeGreaterThan": "value > {}",
    "mustBeGreaterOrEqualTo": "value >= {}",
    "mustBeLessThan": "value < {}",
    "mustBeLessOrEqualTo": "value <= {}",
    "mustBeBetween": "value between {} and {}",
    "mustNotBeBetween": "value not between {} and {}",
}
KEPT_IN_META = ("dimension", "businessImpact", "method", "scheduler", "schedule")
_WARNINGS = ("warn", "warning", "info", "information", "low")


@dataclass(frozen=True)
class Test:
    """A test of recon: below a column or, without one, below the sink."""

    name: str
    arguments: Mapping[str, Any]
    config: Mapping[str, Any]
    column: str | None = None


@dataclass(frozen=True)
class SqlFile:
    """A rule of SQL that needs a file of its own in data_tests."""

    name: str
    text: str


def named(rule: DataQuality) -> str:
    """A rule in a message."""
    return rule.name or rule.id or rule.metric or rule.rule or rule.description or f"rule of type {rule.type}"


def config_of(rule: DataQuality) -> dict[str, Any]:
    """The config that a rule's own keys give its test, without thresholds."""
    meta = {key: value for key in KEPT_IN_META if (value := getattr(rule, key)) is not None}
    config: dict[str, Any] = {
        "severity": "warn" if (rule.severity or "").lower() in _WARNINGS else None,
        "alias": recon_name(rule.name) if rule.name else None,
        "description": rule.description,
        "tags": rule.tags,
        "meta": meta or None,
    }
    return {key: value for key, value in config.items() if value}


def tests_of(rule: DataQuality, column: str | None) -> list[Test]:
    """The tests that say what a rule of the standard's library says.

    Raises:
        ConfigError: recon has none; the message says why.
    """
    metric, arguments = rule.metric or rule.rule, dict(rule.arguments or {})
    if metric == "rowCount":
        return [Test("row_count", _row_counts(rule), config_of(rule))]
    if (rule.unit or "rows").lower() in ("percent", "%"):
        return [_share(rule, metric, column)]
    config = {**config_of(rule), **_thresholds(rule)}
    if metric == "duplicateValues":
        return [_duplicates(rule, arguments, config, column)]
    if column is None:
        raise ConfigError(f"the metric {metric} needs a property")
    match metric:
        case "nullValues":
            return [Test("not_null", {}, config, column)]
        case "missingValues":
            return [_missing(arguments.get("missingValues"), config, column)]
        case "invalidValues":
            return _invalid(rule, arguments, config, column)
    raise ConfigError(f"recon knows no metric {metric!r}")


def _thresholds(rule: DataQuality) -> dict[str, Any]:
    operator, numbers = _comparison(rule)
    if operator == "mustBe" and numbers == [0]:
        return {}
    if any(number < 0 for number in numbers):
        raise ConfigError(f"{operator} compares with a negative number of rows")
    condition = _FAILS[operator].format(*numbers)
    return {"warn_if": condition, "error_if": condition}


def _comparison(rule: DataQuality) -> tuple[str, list[int]]:
    """The rule's one comparison with whole numbers."""
    operator, value = _operator(rule)
    numbers = value if isinstance(value, list) else [value]
    for number in numbers:
        if isinstance(number, bool) or not isinstance(number, (int, float)) or number != int(number):
            raise ConfigError(f"{operator} compares with {number!r}, which is no whole number")
    return operator, [int(number) for number in numbers]


def _operator(rule: DataQuality) -> tuple[str, Any]:
    given = [(name, value) for name in _FAILS if (value := getattr(rule, name)) is not None]
    if len(given) != 1:
        raise ConfigError("it must compare by one operator, such as mustBe: 0")
    return given[0]


def _row_counts(rule: DataQuality) -> dict[str, int]:
    if (rule.unit or "rows").lower() != "rows":
        raise ConfigError(f"rowCount in {rule.unit} has no counterpart")
    operator, numbers = _comparison(rule)
    first, last = numbers[0], numbers[-1]
    bounds: dict[str, dict[str, int]] = {
        "mustBe": {"min_value": first, "max_value": first},
        "mustBeGreaterThan": {"min_value": first + 1},
        "mustBeGreaterOrEqualTo": {"min_value": first},
        "mustBeLessThan": {"max_value": first - 1},
        "mustBeLessOrEqualTo": {"max_value": first},
        "mustBeBetween": {"min_value": first, "max_value": last},
    }
    if operator not in bounds:
        raise ConfigError(f"rowCount with {operator} has no counterpart")
    return bounds[operator]


def _share(rule: DataQuality, metric: str | None, column: str | None) -> Test:
    """A share of NULLs; recon has no check of other shares."""
    operator, value = _operator(rule)
    number = value if isinstance(value, (int, float)) and not isinstance(value, bool) else None
    if metric != "nullValues" or number is None or operator not in ("mustBe", "mustBeLessThan", "mustBeLessOrEqualTo"):
        raise ConfigError(f"{metric} in percent with {operator} has no counterpart")
    if operator == "mustBe" and number != 0:
        raise ConfigError(f"{metric} in percent with {operator} has no counterpart")
    at_least = round(1 - number / 100, 12)
    if operator == "mustBeLessThan":  # recon's bound is inclusive: the next number takes its place
        at_least = math.nextafter(at_least, 2)
    if not 0 <= at_least <= 1:
        raise ConfigError(f"{operator} compares with {number}, which is no share that rows can have")
    return Test("not_null_proportion", {"at_least": at_least}, config_of(rule), column)


def _duplicates(rule: DataQuality, arguments: dict[str, Any], config: dict[str, Any], column: str | None) -> Test:
    if "warn_if" in config:
        raise ConfigError("recon counts values that occur more than once, the rule may count each of their rows")
    if column is not None:
        return Test("unique", {}, config, column)
    columns = arguments.get("properties")
    if not isinstance(columns, list) or not columns:
        raise ConfigError("duplicateValues of an object needs the argument properties")
    return Test("unique_combination_of_columns", {"combination_of_columns": columns}, config)


def _missing(values: Any, config: dict[str, Any], column: str) -> Test:
    if not isinstance(values, list) or not values:
        raise ConfigError("missingValues needs the argument missingValues")
    texts = [value for value in values if value is not None]
    if not texts:
        return Test("not_null", {}, config, column)
    listed = f"{_quoted(column)} not in {sql_literal(texts)}"
    expression = f"{_quoted(column)} is not null and {listed}" if None in values else listed
    return Test("expression_is_true", {"expression": expression}, config)


def _invalid(rule: DataQuality, arguments: dict[str, Any], config: dict[str, Any], column: str) -> list[Test]:
    tests = []
    if isinstance(valid := arguments.get("validValues"), list):
        # NULL is accepted anyway.
        tests.append(Test("accepted_values", {"values": [v for v in valid if v is not None]}, config, column))
    if isinstance(pattern := arguments.get("pattern"), str):
        tests.append(Test("matches_regex", {"regex": pattern}, config, column))
    if not tests:
        raise ConfigError("invalidValues needs the argument validValues or pattern")
    if len(tests) > 1 and "warn_if" in config:
        raise ConfigError("a threshold over validValues and pattern together has no counterpart")
    return tests


_COUNT = re.compile(
    r"\s*select\s+count\s*\(\s*(?:\*|1)\s*\)\s+from\s+(\S+)(?:\s+where\s+(.+?))?\s*;?\s*", re.IGNORECASE | re.DOTALL
)
_MORE_THAN_A_CONDITION = re.compile(r"\b(select|group|having|limit|union|intersect|except|order|join)\b|;|--|/\*", re.I)


def test_of_sql(rule: DataQuality, table: str, column: str | None, named_so: Sequence[str]) -> Test | SqlFile:
    """A rule of SQL: a condition on rows where the query counts them, else a file with the query.

    Args:
        rule: with its query.
        table: the sink.
        column: the property's column.
        named_so: the names by which the query may mean the table.

    Raises:
        ConfigError: the query is not about the table, or holds Jinja.
    """
    query = re.sub(r"\$?\{property\}|\$\{column\}", lambda _: column or "", (rule.query or "").strip().rstrip(";"))
    if not query or re.search(r"\{\{|\{%|\{#", query):
        raise ConfigError("its query is empty, or has what recon would take for Jinja")
    names = "|".join([r"\$?\{object\}|\$\{table\}", *(rf"[`\"]?{re.escape(name)}[`\"]?" for name in named_so)])
    counted = _COUNT.fullmatch(query)
    if counted and counted[2] and re.fullmatch(names, counted[1]) and not _MORE_THAN_A_CONDITION.search(counted[2]):
        return Test(
            "expression_is_true", {"expression": f"not ({counted[2]})"}, {**config_of(rule), **_thresholds(rule)}
        )
    operator, value = _operator(rule)
    numbers = value if isinstance(value, list) else [value]
    own = re.sub(
        rf"(?:(\b(?:from|join)\s+)|(?=\$?\{{))(?:{names})(?![\w.])",
        lambda match: f"{match[1] or ''}{{{{ ref('{table}') }}}}",
        query,
        flags=re.IGNORECASE,
    )
    if "{{" not in own:
        raise ConfigError(f"its query does not read {table}, as {{object}} or by its name")
    config = {key: value for key, value in config_of(rule).items() if key != "alias"}
    header = f"{{{{ config({', '.join(f'{key}={value!r}' for key, value in config.items())}) }}}}\n" if config else ""
    condition = _SQL[operator].format(*map(sql_literal, numbers))
    text = f"{header}select value from (\n{own}\n) as rule(value)\nwhere not coalesce({condition}, false)\n"
    return SqlFile(recon_name(f"{table}_{rule.name or rule.id or 'rule'}"), text)


def item_of(implementation: Any) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """A test that `engine: recon` holds: its name, arguments and config.

    Raises:
        ConfigError: it is none.
    """
    item = yaml.safe_load(implementation) if isinstance(implementation, str) else implementation
    if not isinstance(item, Mapping) or len(item) != 1:
        raise ConfigError("its implementation is no test of recon")
    ((name, body),) = item.items()
    body = body or {}
    return str(name), dict(body.get("arguments") or {}), dict(body.get("config") or {})


def _quoted(column: str) -> str:
    return column if column.isidentifier() else f"`{column}`"
