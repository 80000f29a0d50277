"""Tests of dbt_utils and dbt_expectations as checks of recon that fail where the macro's query gives rows.

tests/golden/dbt has what the macros say of a clean table and of tables that differ from it. A test holds recon's checks
against that. Where a check judges otherwise, `differs` says how, and the import repeats it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from recon.base.errors import ConfigError
from recon.convert.dbt.jinja import JINJA
from recon.convert.dbt.nodes import as_list
from recon.spark.columns import is_expression, literal, quoted


@dataclass(frozen=True)
class Counterpart:
    """A check of recon: its test and arguments, listed below the column unless it is `of_table`.

    `where` are conditions on the rows that are judged. `differs` says in which case the status is not dbt's.
    """

    test: str
    arguments: Mapping[str, Any]
    of_table: bool = False
    where: tuple[str, ...] = ()
    differs: str | None = None


class Given:
    """The arguments of a test; each is taken once, and what is left has no counterpart."""

    def __init__(self, arguments: Mapping[str, Any], column: str | None) -> None:
        self._left = dict(arguments)
        self.column = str(column if column is not None else self._left.pop("column_name", None))

    def take(self, name: str, default: Any = None) -> Any:
        """An argument's value; `default` where it is not given."""
        value = self._left.pop(name, None)
        return default if value is None else value

    def range(self) -> dict[str, Any]:
        """The arguments of a check against a range."""
        bounds = {name: self.take(name) for name in ("min_value", "max_value")}
        given = {name: bound for name, bound in bounds.items() if bound is not None}
        return {**given, "inclusive": False} if self.take("strictly", False) else given

    def within(self, figure: str) -> str:
        """The condition that an SQL expression lies in the range."""
        bounds = self.range()
        equal = "" if bounds.pop("inclusive", True) is False else "="
        if not bounds:
            raise ConfigError("it has neither min_value nor max_value, so that nothing can fail")
        signs = {"min_value": f">{equal}", "max_value": f"<{equal}"}
        return " and ".join(f"{figure} {signs[name]} {bound}" for name, bound in bounds.items())

    def values(self, name: str, quote: str) -> str:
        """A list of values as the SQL that dbt writes: in quotes, unless told otherwise."""
        values = self.take(name)
        if not isinstance(values, list) or not values:
            raise ConfigError(f"its {name} is no list of values")
        as_text = self.take(quote, True)
        if not as_text and None in values:
            raise ConfigError(f"dbt writes the null among its values as None, which no SQL knows ({quote}: false)")
        return ", ".join(_text(value) if as_text else str(value) for value in values)

    def names(self, name: str) -> list[str]:
        """A list of columns, with `quote_columns` by their exact names, or of expressions."""
        names = [str(each) for each in as_list(self.take(name))]
        return [quoted(each) for each in names] if self.take("quote_columns", False) else keys(names)

    def refuse_the_rest(self) -> None:
        """Raises ConfigError for what was not taken: ignoring it would change what the test means."""
        if odd := [name for name, value in self._left.items() if value not in (None, False)]:
            raise ConfigError(f"its argument {', '.join(odd)} has no counterpart")


def keys(names: Iterable[str]) -> list[str]:
    """Columns and expressions of dbt's SQL as recon's keys: an expression has a parenthesis, and a name backticks."""

    def key(name: str) -> str:
        if re.fullmatch(r'"[^"]+"', name):
            return quoted(name[1:-1])
        return name if re.fullmatch(r"[\w.]+|`[^`]+`", name) or is_expression(name) else f"({name})"

    return [key(str(name)) for name in names]


def _text(value: Any) -> str:
    """A value between quotes, as dbt writes it; recon.yml's Jinja stays as it is."""
    text = str(value)
    return f"'{text}'" if JINJA.search(text) else literal(text)


def _test(name: str) -> Callable[[Given], Counterpart]:
    return lambda given: Counterpart(name, {})


def _ranged(name: str) -> Callable[[Given], Counterpart]:
    def counterpart(given: Given) -> Counterpart:
        bounds = given.range()
        return Counterpart(name, bounds, differs=None if name == "row_count" else _of_nan(bounds))

    return counterpart


def _row(expression: str) -> Counterpart:
    """A condition on each row; NULL passes, as there."""
    return Counterpart("expression_is_true", {"expression": expression}, of_table=True)


def _of_column(rest: str) -> Counterpart:
    """A condition on each row that begins with the column's name."""
    return Counterpart("expression_is_true", {"expression": rest})


def _in_set(given: Given) -> Counterpart:
    # A join finds the values there, and NULL has no equal.
    return _row(f"coalesce({given.column} in ({given.values('value_set', 'quote_values')}), false)")


def _lengths(given: Given) -> Counterpart:
    return _row(given.within(f"length({given.column})"))


def _regex(negate: bool) -> Callable[[Given], Counterpart]:
    def counterpart(given: Given) -> Counterpart:
        given.take("is_raw")
        flags = str(given.take("flags", ""))
        if set(flags) - set("ims"):  # those that mean the same to Java as to the databases that know them
            raise ConfigError(f"its flags {flags!r} have no counterpart; write them into the regex, as (?i)")
        regex = given.take("regex")
        arguments = {"regex": f"(?{flags}){regex}" if flags else regex}
        return Counterpart("matches_regex", {**arguments, "negate": True} if negate else arguments)

    return counterpart


def _pair(sign: str) -> Callable[[Given], Counterpart]:
    def counterpart(given: Given) -> Counterpart:
        or_equal = "=" if given.take("or_equal", False) else ""
        return _row(f"{given.take('column_A')} {sign}{or_equal} {given.take('column_B')}")

    return counterpart


def _quantile(quantile: float | None) -> Callable[[Given], Counterpart]:
    def counterpart(given: Given) -> Counterpart:
        wanted = given.take("quantile") if quantile is None else quantile
        return Counterpart("column_quantile", {"quantile": wanted, **given.range()})

    return counterpart


def _row_count(given: Given) -> Counterpart:
    value = given.take("value")
    return Counterpart("row_count", {"min_value": value, "max_value": value})


def _as_many_rows(given: Given) -> Counterpart:
    """The macro applies `row_condition` to both tables, unless the other has a condition of its own."""
    if given.take("factor", 1) != 1:
        raise ConfigError("its factor has no counterpart")
    arguments: dict[str, Any] = {"compare_model": given.take("compare_model")}
    groups, theirs = given.names("group_by"), given.names("compare_group_by")
    if theirs not in ([], groups):
        raise ConfigError("its compare_group_by names other columns than group_by; recon groups both tables alike")
    here = given.take("row_condition")
    there = given.take("compare_row_condition", here)
    if there is not None:
        arguments["to_condition"] = there
    where = (here,) if here else ()
    if not groups:
        return Counterpart("equal_rowcount", arguments, where=where)
    differs = "groups that are NULL in both tables are equal in recon, and a difference in dbt_expectations"
    return Counterpart("equal_rowcount", {**arguments, "group_by_columns": groups}, where=where, differs=differs)


def _compound(given: Given) -> Counterpart:
    ignored = given.take("ignore_row_if", "all_values_are_missing")
    if ignored not in ("all_values_are_missing", "any_value_is_missing"):
        raise ConfigError(f"its ignore_row_if {ignored!r} is neither all_values_are_missing nor any_value_is_missing")
    names = given.names("column_list")
    joined = " or " if ignored == "all_values_are_missing" else " and "
    judged = joined.join(f"{name} is not null" for name in names)
    return Counterpart("unique_combination_of_columns", {"combination_of_columns": names}, where=(judged,))


def _recent(given: Given) -> Counterpart:
    age = {name: given.take(name) for name in ("datepart", "interval")}
    return Counterpart("recency", {"field": given.column, **age}, of_table=True)


def _recent_by_group(given: Given) -> Counterpart:
    """The macro takes groups of the rows up to now alone, and joins them by keys that are not NULL."""
    arguments = {name: given.take(name) for name in ("datepart", "interval")}
    time, groups = given.take("timestamp_column"), given.names("group_by")
    judged = (f"{time} <= current_timestamp()", *(f"{name} is not null" for name in groups))
    return Counterpart("recency", {"field": time, **arguments, "group_by_columns": groups}, where=judged)


_SPARK_TYPE = re.compile(
    r"boolean|tinyint|smallint|int|bigint|float|double|string|binary|date|timestamp(_ntz)?|variant"
    r"|decimal(\(\d+(, ?\d+)?\))?|(var)?char\(\d+\)|(array|map|struct)<.+>"
)
_OTHER_NAMES = {"integer": "int", "long": "bigint", "short": "smallint", "byte": "tinyint", "real": "float"}


def _spark_types(argument: str, types: Any) -> list[str]:
    """Names of types as Spark shows them; other databases have names that no column has in Spark."""
    named = [str(each).lower() for each in as_list(types)]
    found = [_OTHER_NAMES.get(each, each) for each in named]
    if not any(_SPARK_TYPE.fullmatch(each) for each in found):
        raise ConfigError(f"its {argument} {', '.join(named)} is no type of Spark SQL; name the column's type in Spark")
    return found


def _type(given: Given) -> Counterpart:
    (data_type,) = _spark_types("column_type", [given.take("column_type")])
    promised = {"name": given.column, "data_type": data_type}
    return Counterpart("schema_contract", {"mode": "open", "columns": [promised]}, of_table=True)


def _types(given: Given) -> Counterpart:
    types = _spark_types("column_type_list", given.take("column_type_list"))
    return _row(f"typeof({given.column}) in ({', '.join(map(literal, types))})")


def _exists(given: Given) -> Counterpart:
    given.take("transform")
    return Counterpart("schema_contract", {"mode": "open", "columns": [{"name": given.column}]}, of_table=True)


def _expression(given: Given) -> Counterpart:
    if given.take("test_condition", "= true") != "= true":
        raise ConfigError("its test_condition has no counterpart; write it into the expression")
    return _row(given.take("expression"))


def _rejected_values(given: Given) -> Counterpart:
    return _of_column(f"not in ({given.values('values', 'quote')})")


def _combination(given: Given) -> Counterpart:
    return Counterpart(
        "unique_combination_of_columns", {"combination_of_columns": given.names("combination_of_columns")}
    )


_COLUMN = "dbt_expectations.expect_column_"
_TABLE = "dbt_expectations.expect_"

COUNTERPARTS: Mapping[str, Callable[[Given], Counterpart]] = {
    "dbt_utils.not_accepted_values": _rejected_values,
    "dbt_utils.unique_combination_of_columns": _combination,
    "dbt_expectations.expression_is_true": _expression,
    "dbt_expectations.expression_between": lambda given: _row(given.within(f"({given.take('expression')})")),
    f"{_COLUMN}values_to_not_be_null": _test("not_null"),
    f"{_COLUMN}values_to_be_null": lambda given: _of_column("is null"),
    f"{_COLUMN}values_to_be_unique": _test("unique"),
    f"{_COLUMN}values_to_be_in_set": _in_set,
    f"{_COLUMN}distinct_values_to_be_in_set": _in_set,
    f"{_COLUMN}values_to_not_be_in_set": lambda g: _of_column(f"not in ({g.values('value_set', 'quote_values')})"),
    f"{_COLUMN}values_to_be_between": _ranged("accepted_range"),
    f"{_COLUMN}value_lengths_to_be_between": _lengths,
    f"{_COLUMN}value_lengths_to_equal": lambda given: _row(f"length({given.column}) = {given.take('value')}"),
    f"{_COLUMN}values_to_match_regex": _regex(negate=False),
    f"{_COLUMN}values_to_not_match_regex": _regex(negate=True),
    f"{_COLUMN}values_to_match_like_pattern": lambda given: _of_column(f"like {_text(given.take('like_pattern'))}"),
    f"{_COLUMN}values_to_not_match_like_pattern": lambda g: _of_column(f"not like {_text(g.take('like_pattern'))}"),
    f"{_COLUMN}values_to_be_of_type": _type,
    f"{_COLUMN}values_to_be_in_type_list": _types,
    f"{_COLUMN}to_exist": _exists,
    f"{_COLUMN}pair_values_A_to_be_greater_than_B": _pair(">"),
    f"{_COLUMN}pair_values_to_be_equal": _pair("="),
    f"{_COLUMN}mean_to_be_between": _ranged("column_mean"),
    f"{_COLUMN}min_to_be_between": _ranged("column_min"),
    f"{_COLUMN}max_to_be_between": _ranged("column_max"),
    f"{_COLUMN}sum_to_be_between": _ranged("column_sum"),
    f"{_COLUMN}stdev_to_be_between": _ranged("column_stddev"),
    f"{_COLUMN}median_to_be_between": _quantile(0.5),
    f"{_COLUMN}quantile_values_to_be_between": _quantile(None),
    f"{_TABLE}table_row_count_to_be_between": _ranged("row_count"),
    f"{_TABLE}table_row_count_to_equal": _row_count,
    f"{_TABLE}table_row_count_to_equal_other_table": _as_many_rows,
    f"{_TABLE}compound_columns_to_be_unique": _compound,
    f"{_TABLE}row_values_to_have_recent_data": _recent,
    f"{_TABLE}grouped_row_values_to_have_recent_data": _recent_by_group,
}

_MISSING_GROUP = "a group that one table lacks fails in recon, and passes in dbt_utils"
_FUTURE = "a time in the future is left out by recon, and is recent to dbt_utils"
# Of checks that have dbt's name and arguments, by whether they judge groups.
_DIFFERENCES: Mapping[tuple[str, bool], str] = {
    ("not_constant", False): "a column that is NULL throughout fails in recon, and passes in dbt_utils",
    ("not_constant", True): "a group that is NULL throughout fails in recon, and passes in dbt_utils",
    ("equal_rowcount", False): "a table without rows fails in recon, and passes in dbt_utils",
    ("equal_rowcount", True): _MISSING_GROUP,
    ("fewer_rows_than", True): _MISSING_GROUP,
    ("equality", False): "a row that occurs more often in one table fails in recon; dbt_utils compares sets",
    ("recency", False): _FUTURE,
    ("recency", True): _FUTURE,
}


def difference(test: str, arguments: Mapping[str, Any]) -> str | None:
    """In which case a check that has dbt's name and arguments gives another status than dbt."""
    if test == "accepted_range":
        return _of_nan(arguments)
    return _DIFFERENCES.get((test, bool(arguments.get("group_by_columns"))))


def _of_nan(bounds: Mapping[str, Any]) -> str | None:
    return "NaN is in no range in recon, and above every number in dbt" if bounds.get("max_value") is None else None
