"""dbt's --select and --exclude for checks.

An item is `name` or `unique_id` (with `*`, `?`, `[…]`), `tag:x`, `pipeline:x`, `sink:x`, `table:x` (an entry of
`tables`), `column:x`, `test_name:x`, `test_type:x` (evidence, data, singular, generic), `config.severity:x` or
`result:x` (of the last run: pass, warn, fail, error, skipped). Spaces or several items unite, commas intersect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, get_args

from recon.base.errors import ConfigError
from recon.base.text import did_you_mean
from recon.checks.bound import Bound
from recon.model import Status

LastRun = Mapping[str, str]

_METHODS: dict[str, Callable[[Bound], Sequence[str]]] = {
    "tag": lambda b: b.tags,
    "pipeline": lambda b: (b.pipeline,) if b.pipeline else (),
    "sink": lambda b: (b.sink,) if b.sink and b.pipeline else (),
    "table": lambda b: (b.table,) if b.table else (),
    "column": lambda b: (b.column,) if b.column else (),
    "test_name": lambda b: (b.check.test,),
    "test_type": lambda b: _types(b),
}
_RESULT = "result"


def select(
    bounds: Sequence[Bound],
    select: Sequence[str] = (),
    exclude: Sequence[str] = (),
    last: LastRun | None = None,
) -> list[Bound]:
    """The checks that `select` names (all when it is empty) and `exclude` does not, in their order.

    Args:
        bounds: the checks to choose from.
        select: selectors.
        exclude: selectors of what to leave out.
        last: the status of each unique_id in the last run, for `result:`; None when there was none.

    Raises:
        ConfigError: a selector's method is unknown, or it asks for a last run that there is not.
    """
    wanted, unwanted = _selectors(select), _selectors(exclude)
    return [
        b
        for b in bounds
        if (not wanted or any(_meets(b, s, last) for s in wanted)) and not any(_meets(b, s, last) for s in unwanted)
    ]


def unmatched(bounds: Sequence[Bound], selectors: Sequence[str], last: LastRun | None = None) -> list[str]:
    """One sentence for each selector that no check meets; as in dbt, a warning rather than an error."""
    names = [b.name for b in bounds]
    return [
        f"selector {s!r} matches no check{'' if ':' in s else did_you_mean(s, names) if names else ''}"
        for s in _selectors(selectors)
        if not any(_meets(b, s, last) for b in bounds)
    ]


def asks_last_run(selectors: Sequence[str]) -> bool:
    """Whether a selector can only be answered by the last run."""
    return any(term.startswith(f"{_RESULT}:") for s in _selectors(selectors) for term in s.split(","))


def _selectors(items: Sequence[str]) -> list[str]:
    return [part for item in ([items] if isinstance(items, str) else items) for part in item.split()]


def _meets(bound: Bound, selector: str, last: LastRun | None) -> bool:
    """Whether a check meets every comma-separated term."""
    return all(any(fnmatchcase(v, pattern) for v in values) for values, pattern in _terms(bound, selector, last))


def _terms(bound: Bound, selector: str, last: LastRun | None) -> list[tuple[Sequence[str], str]]:
    terms: list[tuple[Sequence[str], str]] = []
    for term in selector.split(","):
        method, colon, value = term.partition(":")
        if not colon:
            terms.append(((bound.name, bound.unique_id), term))
        elif method.startswith("config."):
            terms.append((_config(bound, method.removeprefix("config."), term), value))
        elif method == _RESULT:
            terms.append((_result(bound, term, value, last), value))
        elif method in _METHODS:
            terms.append((_METHODS[method](bound), value))
        else:
            methods = [*_METHODS, _RESULT, "config.severity"]
            raise ConfigError(f"selector {term!r} has an unknown method{did_you_mean(method, methods)}")
    return terms


def _types(bound: Bound) -> Sequence[str]:
    if bound.kind == "evidence":
        return ("evidence",)
    return ("data", "singular" if getattr(bound.check, "singular", False) else "generic")


def _result(bound: Bound, term: str, value: str, last: LastRun | None) -> Sequence[str]:
    """The check's status in the last run; none for a check that was not in it."""
    statuses = get_args(Status)
    if not any(fnmatchcase(status, value) for status in statuses):
        raise ConfigError(f"selector {term!r} names no status{did_you_mean(value, statuses)}")
    if last is None:
        raise ConfigError(
            f"selector {term!r} asks for the last run, and there is no run_results.json in the target folder; "
            "run 'recon audit' first"
        )
    return (last[bound.unique_id],) if bound.unique_id in last else ()


def _config(bound: Bound, path: str, term: str) -> Sequence[str]:
    """The values at a path of the check's config, as text; a list or mapping gives its items or keys."""
    at: Any = bound.config.model_dump()
    key, *below = path.split(".")
    if key not in at:
        raise ConfigError(f"selector {term!r} names an unknown config{did_you_mean(key, at)}")
    at = at[key]
    for part in below:
        at = at.get(part) if isinstance(at, dict) else None
    if at is None:
        return ()
    values = at if isinstance(at, (list, tuple, dict)) else (at,)
    return [str(v).lower() if isinstance(v, bool) else str(v) for v in values]
