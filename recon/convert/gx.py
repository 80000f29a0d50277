"""Writes a sink's data checks as a Great Expectations suite, in the JSON that GX 1.x reads.

GX need not be installed. Checks without a counterpart in GX are listed in the suite's meta and reported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from recon.checks.bound import Bound

Expectation = tuple[str, dict[str, Any]]


@dataclass(frozen=True)
class Exported:
    """A suite in GX's JSON, and the checks left out: (name, reason)."""

    suite: Mapping[str, Any]
    left_out: tuple[tuple[str, str], ...]


class _NoCounterpart(Exception):
    """A check cannot be an expectation; the message says why."""


def suite_of(bounds: Sequence[Bound], name: str) -> Exported:
    """The data checks among `bounds`, all of one sink, as a suite of this name.

    A check's `where` becomes the expectation's row condition, `severity: warn` GX's `warning`. Thresholds (`warn_if`,
    `error_if`) have no counterpart of the same meaning: a check with one is left out.
    """
    expectations: list[Mapping[str, Any]] = []
    left_out: list[tuple[str, str]] = []
    for bound in bounds:
        if bound.kind != "data":
            continue
        try:
            expectations.append(_written(bound, *_counterpart(bound)))
        except _NoCounterpart as reason:
            left_out.append((bound.name, str(reason)))
    meta = {"recon": {"left_out": [{"name": check, "reason": reason} for check, reason in left_out]}}
    return Exported({"name": name, "expectations": expectations, "meta": meta}, tuple(left_out))


def _written(bound: Bound, kind: str, kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
    config = bound.config
    meta: dict[str, Any] = {"name": bound.name, "check": bound.check.test}
    if bound.tags:
        meta["tags"] = list(bound.tags)
    written: dict[str, Any] = {
        "type": kind,
        "kwargs": dict(kwargs),
        "meta": {**config.meta, "recon": meta},
        "severity": "warning" if config.severity == "warn" else "critical",
    }
    if config.description:
        written["description"] = config.description
    return written


def _counterpart(bound: Bound) -> Expectation:
    """The expectation that means the same as the check."""
    config = bound.config
    for threshold in (config.warn_if, config.error_if):
        if threshold.replace(" ", "") not in ("!=0", "<>0", ">0", ">=1"):
            raise _NoCounterpart(
                f"the threshold '{threshold}' has no counterpart: an expectation fails at the first row"
            )
    make = COUNTERPARTS.get(bound.check.test)
    if make is None:
        raise _NoCounterpart(f"{bound.check.test} has no counterpart in Great Expectations")
    kind, kwargs = make(bound.check)
    if config.where is None:
        return kind, kwargs
    if kind == _QUERY:
        return kind, {_QUERY_TEXT: f"{kwargs[_QUERY_TEXT]} AND ({_braced(config.where)})"}
    if kind.startswith("expect_table_"):
        raise _NoCounterpart(f"{kind} takes no row condition, and the check has where: {config.where}")
    return kind, {**kwargs, "row_condition": config.where, "condition_parser": "spark"}


# -- one function for each kind of expectation; `of` is the check ----------------------------------------------

_QUERY, _QUERY_TEXT = "unexpected_rows_expectation", "unexpected_rows_query"
# Any character except those that recon trims: blanks, tabs, line ends.
_NOT_BLANK = r"[^ \t\n\x0B\f\r]"


def _of_column(kind: str) -> Callable[[Any], Expectation]:
    return lambda of: (kind, {"column": of.column_name})


def _unique_combination(of: Any) -> Expectation:
    columns = list(of.combination_of_columns)
    if len(columns) == 1:
        raise _NoCounterpart("a combination of one column, in which NULL equals NULL, has no counterpart")
    # By default GX leaves out rows whose columns are all NULL; here NULL equals NULL.
    return "expect_compound_columns_to_be_unique", {"column_list": columns, "ignore_row_if": "never"}


def _accepted_values(of: Any) -> Expectation:
    if not of.quote and any(isinstance(value, str) for value in of.values):
        raise _NoCounterpart("values that are SQL expressions (quote: false) have no counterpart")
    values = [_plain(value) for value in of.values]
    return "expect_column_values_to_be_in_set", {"column": of.column_name, "value_set": values}


def _accepted_range(of: Any) -> Expectation:
    if any(isinstance(bound, str) and not _is_time(bound) for bound in (of.min_value, of.max_value)):
        signs = (">=", "<=") if of.inclusive else (">", "<")
        conditions = [
            f"{of.column_name} {sign} {_sql(bound)}"
            for sign, bound in zip(signs, (of.min_value, of.max_value), strict=True)
            if bound is not None
        ]
        return _failing(f"NOT ({' AND '.join(conditions)})")
    return "expect_column_values_to_be_between", {"column": of.column_name, **_strict_bounds(of)}


def _expression(of: Any) -> Expectation:
    return _failing(f"NOT ({of.condition()})")


def _regex(of: Any) -> Expectation:
    kind = "expect_column_values_to_not_match_regex" if of.negate else "expect_column_values_to_match_regex"
    return kind, {"column": of.column_name, "regex": of.pattern()}


def _not_empty_string(of: Any) -> Expectation:
    if of.trim_whitespace:
        return "expect_column_values_to_match_regex", {"column": of.column_name, "regex": _NOT_BLANK}
    return "expect_column_value_lengths_to_be_between", {"column": of.column_name, "min_value": 1}


def _not_null_proportion(of: Any) -> Expectation:
    _refuse_groups(of)
    if of.at_most == 1:
        return "expect_column_values_to_not_be_null", {"column": of.column_name, "mostly": of.at_least}
    bounds = {"min_value": of.at_least, "max_value": of.at_most}
    return "expect_column_proportion_of_non_null_values_to_be_between", {"column": of.column_name, **bounds}


def _distinct_at_least(number: int) -> Callable[[Any], Expectation]:
    def make(of: Any) -> Expectation:
        _refuse_groups(of)
        return "expect_column_unique_value_count_to_be_between", {"column": of.column_name, "min_value": number}

    return make


def _row_count(of: Any) -> Expectation:
    inside = 0 if of.inclusive else 1
    bounds = {
        "min_value": None if of.min_value is None else of.min_value + inside,
        "max_value": None if of.max_value is None else of.max_value - inside,
    }
    return "expect_table_row_count_to_be_between", {key: bound for key, bound in bounds.items() if bound is not None}


def _statistic(kind: str) -> Callable[[Any], Expectation]:
    def make(of: Any) -> Expectation:
        _refuse_expressions(of)
        return kind, {"column": of.column_name, **_strict_bounds(of)}

    return make


def _quantile(of: Any) -> Expectation:
    _refuse_expressions(of)
    if not of.inclusive:
        raise _NoCounterpart("a quantile with bounds that are not accepted themselves has no counterpart")
    ranges = {"quantiles": [of.quantile], "value_ranges": [[_plain(of.min_value), _plain(of.max_value)]]}
    return "expect_column_quantile_values_to_be_between", {"column": of.column_name, "quantile_ranges": ranges}


def _suite(of: Any) -> Expectation:
    expectation = of.parsed()
    if "problem" in expectation:
        raise _NoCounterpart(expectation["problem"])
    return expectation["type"], expectation["kwargs"]


COUNTERPARTS: Mapping[str, Callable[[Any], Expectation]] = {
    "not_null": _of_column("expect_column_values_to_not_be_null"),
    "unique": _of_column("expect_column_values_to_be_unique"),
    "unique_combination_of_columns": _unique_combination,
    "accepted_values": _accepted_values,
    "accepted_range": _accepted_range,
    "expression_is_true": _expression,
    "matches_regex": _regex,
    "not_empty_string": _not_empty_string,
    "not_null_proportion": _not_null_proportion,
    "not_constant": _distinct_at_least(2),
    "at_least_one": _distinct_at_least(1),
    "row_count": _row_count,
    "column_mean": _statistic("expect_column_mean_to_be_between"),
    "column_min": _statistic("expect_column_min_to_be_between"),
    "column_max": _statistic("expect_column_max_to_be_between"),
    "column_sum": _statistic("expect_column_sum_to_be_between"),
    "column_stddev": _statistic("expect_column_stdev_to_be_between"),
    "column_quantile": _quantile,
    "expectation_suite": _suite,
}


def _failing(condition: str) -> Expectation:
    """GX's query for the rows that meet a condition."""
    return _QUERY, {_QUERY_TEXT: f"SELECT * FROM {{batch}} WHERE ({_braced(condition)})"}


def _braced(sql: str) -> str:
    """SQL for a query in which GX replaces names in braces: braces are doubled."""
    return sql.replace("{", "{{").replace("}", "}}")


def _strict_bounds(of: Any) -> dict[str, Any]:
    bounds: dict[str, Any] = {}
    for end in ("min", "max"):
        if (bound := getattr(of, f"{end}_value")) is not None:
            bounds[f"{end}_value"] = _plain(bound)
            if not of.inclusive:
                bounds[f"strict_{end}"] = True
    return bounds


def _refuse_expressions(of: Any) -> None:
    for bound in (of.min_value, of.max_value):
        if isinstance(bound, str) and not _is_time(bound):
            raise _NoCounterpart(f"the bound '{bound}' is an SQL expression, which has no counterpart")


def _refuse_groups(of: Any) -> None:
    if of.group_by_columns:
        raise _NoCounterpart("group_by_columns has no counterpart")


def _is_time(text: str) -> bool:
    """Whether text is a date or time, which GX compares as such."""
    try:
        date.fromisoformat(text[:10])
    except ValueError:
        return False
    return len(text) == 10 or text[10] in " T"


def _plain(value: Any) -> Any:
    """A value that JSON can hold."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, date):
        return value.isoformat()
    return float(value)


def _sql(bound: Any) -> str:
    if isinstance(bound, str):
        return f"'{bound}'" if _is_time(bound) else f"({bound})"
    return f"'{bound.isoformat()}'" if isinstance(bound, date) else str(bound)
