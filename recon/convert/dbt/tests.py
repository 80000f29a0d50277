"""One test of dbt as recon's: its name, arguments and config; dbt_utils and dbt_expectations by their counterparts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recon.checks import registry
from recon.convert.dbt.nodes import as_map
from recon.errors import ConfigError
from recon.project import CheckConfig

CONFIG_KEYS = tuple(CheckConfig.model_fields)
_DBT_CONFIG = ("database", "schema", "store_failures_as", "group", "sql_header", "docs", "event_time")
# The keys that dbt takes for config, and for the test's name and description, where they stand in `arguments`
# (dbt-core 1.10 and later, `TestBuilder`); any other key there is an argument of the test.
_CONFIG_IN_ARGUMENTS = (
    *("severity", "tags", "enabled", "where", "limit", "warn_if", "error_if", "fail_calc", "store_failures"),
    *("store_failures_as", "sql_header", "meta", "database", "schema", "alias", "name", "description"),
)
_EXPECT = "dbt_expectations.expect_"
STATISTICS = {
    "column_mean_to_be_between": "column_mean",
    "column_min_to_be_between": "column_min",
    "column_max_to_be_between": "column_max",
    "column_sum_to_be_between": "column_sum",
    "column_stdev_to_be_between": "column_stddev",
    "column_median_to_be_between": "column_quantile",
    "column_quantile_values_to_be_between": "column_quantile",
}


def taken_apart(item: Any) -> tuple[str, dict[str, Any], dict[str, Any], list[str]]:
    """Takes one item of a list of tests apart.

    dbt puts what is in `arguments` over what stands beside it, and looks for config in the result: config within
    `arguments` is the test's, and it wins.

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


def translated(test: str, arguments: Mapping[str, Any], config: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The test's name and arguments in recon; a `row_condition` is added to `config`.

    Raises:
        ConfigError: recon has no counterpart.
    """
    plain = test.removeprefix("dbt_utils.").removeprefix("dbt.")
    if registry.known(plain):
        return plain, _as_dbt_writes_them(plain, arguments)
    if not test.startswith(_EXPECT):
        raise ConfigError("recon has no check of this name; a test of your own can be a macro in data_tests/generic")
    left = dict(arguments)
    if condition := left.pop("row_condition", None):
        where = config.get("where")
        config["where"] = f"({where}) and ({condition})" if where else condition
    name, recon_arguments = _expectation(test.removeprefix(_EXPECT), left)
    # Ignoring the rest would change what the test means.
    odd = [key for key, value in left.items() if value not in (None, False)]
    if odd:
        raise ConfigError(f"its argument {', '.join(odd)} has no counterpart")
    return name, _as_dbt_writes_them(name, recon_arguments)


def _as_dbt_writes_them(test: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments with the values of `accepted_values` as dbt's SQL has them.

    dbt writes each value between quotes: null is the text 'None', true the text 'True'. Without quotes null is a name
    that no table has, and the word null makes `not in (…)` NULL for every row, so that the test never fails.

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


def _expectation(kind: str, left: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Recon's name and arguments for a test of dbt_expectations; removes from `left` the arguments that have one."""
    if kind in STATISTICS:
        name = STATISTICS[kind]
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
