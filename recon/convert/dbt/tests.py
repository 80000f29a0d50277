"""One test of dbt as recon's: its name, arguments and config; those of packages by their counterparts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from recon.base.errors import ConfigError
from recon.checks import registry
from recon.convert.dbt.nodes import as_list, as_map
from recon.convert.dbt.packages import COUNTERPARTS, Counterpart, Given, difference, keys
from recon.project import CheckConfig

CONFIG_KEYS = tuple(CheckConfig.model_fields)
_DBT_CONFIG = ("database", "schema", "store_failures_as", "group", "sql_header", "docs", "event_time")
# The keys of `arguments` that dbt reads as config, or as the test's name and description (dbt-core 1.10 and later,
# `TestBuilder`). Any other key there is an argument of the test.
_CONFIG_IN_ARGUMENTS = (
    *("severity", "tags", "enabled", "where", "limit", "warn_if", "error_if", "fail_calc", "store_failures"),
    *("store_failures_as", "sql_header", "meta", "database", "schema", "alias", "name", "description"),
)


def taken_apart(item: Any) -> tuple[str, dict[str, Any], dict[str, Any], list[str]]:
    """Takes one item of a list of tests apart.

    dbt merges `arguments` over the keys beside it, and looks for config in the result. So config within `arguments`
    counts, and takes precedence.

    Returns:
        The test's name, its arguments, its config, and the keys of config that recon does not have.

    Raises:
        ConfigError: the item is neither a name nor a mapping from one.
    """
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
    body = dict(as_map(body))
    arguments = dict(as_map(body.pop("arguments", None)))
    dbt_config = dict(as_map(arguments.pop("config", None) or body.pop("config", None)))
    body.pop("config", None)
    within = {key: arguments.pop(key) for key in _CONFIG_IN_ARGUMENTS if key in arguments}
    dbt_config.update({{"name": "alias"}.get(key, key): value for key, value in within.items()})
    for key, value in body.items():
        plain = {"name": "alias"}.get(key, key)
        if plain in CONFIG_KEYS or plain in _DBT_CONFIG:
            dbt_config.setdefault(plain, value)
        else:
            arguments[key] = value
    config = {key: value for key, value in dbt_config.items() if key in CONFIG_KEYS and value is not None}
    odd = [key for key in dbt_config if key not in CONFIG_KEYS]
    if (store_as := dbt_config.get("store_failures_as")) is not None:
        config.setdefault("store_failures", store_as != "ephemeral")
        odd.remove("store_failures_as")
    if str(config.get("severity", "")).lower() in ("warn", "error"):
        config["severity"] = str(config["severity"]).lower()
    return str(test), arguments, config, odd


def translated(
    test: str, given: Mapping[str, Any], config: dict[str, Any], column: str | None, default_where: str | None = None
) -> Counterpart:
    """The check that recon has for a test; conditions on the rows that it judges are added to `config`.

    Args:
        test: its name in dbt.
        given: its arguments.
        config: its config.
        column: the column that it is listed below.
        default_where: the `where` of its folder, which one of its own would replace.

    Raises:
        ConfigError: recon has no counterpart.
    """
    plain = test.removeprefix("dbt_utils.").removeprefix("dbt.")
    full = f"dbt_utils.{plain}" if registry.known(plain) else test
    if full in COUNTERPARTS:
        found = _of_package(full, Given(given, column), config, default_where)
    elif registry.known(plain):
        groups = {"group_by_columns": keys(as_list(given["group_by_columns"]))} if "group_by_columns" in given else {}
        found = Counterpart(plain, {**given, **groups})
    else:
        raise ConfigError("recon has no check of this name; a test of your own can be a macro in data_tests/generic")
    if found.test == "recency" and column is not None:  # the column is its `field`
        found = replace(found, arguments={"field": column, **found.arguments}, of_table=True)
    elif not found.of_table and column is None and "column_name" in given:
        found = replace(found, arguments={"column_name": given["column_name"], **found.arguments})
    differs = found.differs or difference(plain, given)
    return replace(found, arguments=_as_dbt_writes_them(found.test, found.arguments), differs=differs)


def _of_package(test: str, given: Given, config: dict[str, Any], default_where: str | None) -> Counterpart:
    found = COUNTERPARTS[test](given)
    row_condition = given.take("row_condition")
    given.refuse_the_rest()
    if added := [condition for condition in (row_condition, *found.where) if condition]:
        where = config.get("where", default_where)
        conditions = [where, *added] if where else added
        config["where"] = conditions[0] if len(conditions) == 1 else " and ".join(f"({c})" for c in conditions)
    return found


def _as_dbt_writes_them(test: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments with the values of `accepted_values` as dbt's SQL has them.

    dbt writes each value between quotes: null is the text 'None', true the text 'True'. Without quotes None is a column
    that no table has. A null in the SQL makes `not in (…)` NULL for every row, so that the test never fails.

    Raises:
        ConfigError: dbt's test fails to run, or never fails.
    """
    values = arguments.get("values")
    if test != "accepted_values" or not isinstance(values, list):
        return dict(arguments)
    if arguments.get("quote", True) is not False:
        return {**arguments, "values": [str(v) if v is None or isinstance(v, bool) else v for v in values]}
    if None in values:
        raise ConfigError("dbt writes the null among its values as None, which no SQL knows (quote: false)")
    if any(isinstance(value, str) and value.strip().lower() == "null" for value in values):
        raise ConfigError(
            "NULL among its values (quote: false) makes dbt's SQL NULL for every row, so that it never fails there"
        )
    return dict(arguments)
