"""dbt's --select and --exclude for checks.

`name` or `unique_id` (with `*`, `?`, `[…]`), `tag:x`, `pipeline:x`, `sink:x`, `test_name:x`,
`config.severity:x`; spaces or several items unite, commas intersect.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Any

from recon.checks.bound import Bound
from recon.checks.registry import nearest
from recon.errors import ConfigError

_METHODS: dict[str, Callable[[Bound], Sequence[str]]] = {
    "tag": lambda b: b.tags,
    "pipeline": lambda b: (b.pipeline,),
    "sink": lambda b: (b.sink,) if b.sink else (),
    "column": lambda b: (b.column,) if b.column else (),
    "test_name": lambda b: (b.check.test,),
}


def select(bounds: Sequence[Bound], select: Sequence[str] = (), exclude: Sequence[str] = ()) -> list[Bound]:
    """The checks that `select` names (all when it is empty) and `exclude` does not, in their order.

    Raises:
        ConfigError: a selector's method is unknown.
    """
    wanted, unwanted = _selectors(select), _selectors(exclude)
    return [
        b
        for b in bounds
        if (not wanted or any(_meets(b, s) for s in wanted)) and not any(_meets(b, s) for s in unwanted)
    ]


def unmatched(bounds: Sequence[Bound], selectors: Sequence[str]) -> list[str]:
    """One sentence for each selector that no check meets; as in dbt, a warning rather than an error."""
    names = [b.name for b in bounds]
    return [
        f"selector {s!r} matches no check{'' if ':' in s else nearest(s, names) if names else ''}"
        for s in _selectors(selectors)
        if not any(_meets(b, s) for b in bounds)
    ]


def _selectors(items: Sequence[str]) -> list[str]:
    return [part for item in ([items] if isinstance(items, str) else items) for part in item.split()]


def _meets(bound: Bound, selector: str) -> bool:
    """Whether a check meets every comma-separated term."""
    return all(any(fnmatchcase(v, pattern) for v in values) for values, pattern in _terms(bound, selector))


def _terms(bound: Bound, selector: str) -> list[tuple[Sequence[str], str]]:
    terms: list[tuple[Sequence[str], str]] = []
    for term in selector.split(","):
        method, colon, value = term.partition(":")
        if not colon:
            terms.append(((bound.name, bound.unique_id), term))
        elif method.startswith("config."):
            terms.append((_config(bound, method.removeprefix("config."), term), value))
        elif method in _METHODS:
            terms.append((_METHODS[method](bound), value))
        else:
            raise ConfigError(
                f"selector {term!r} has an unknown method{nearest(method, [*_METHODS, 'config.severity'])}"
            )
    return terms


def _config(bound: Bound, path: str, term: str) -> Sequence[str]:
    """The values at a path of the check's config, as text; a list or mapping gives its items or keys."""
    at: Any = bound.config.model_dump()
    key, *below = path.split(".")
    if key not in at:
        raise ConfigError(f"selector {term!r} names an unknown config{nearest(key, at)}")
    at = at[key]
    for part in below:
        at = at.get(part) if isinstance(at, dict) else None
    if at is None:
        return ()
    found = at if isinstance(at, (list, tuple, dict)) else (at,)
    return [str(v).lower() if isinstance(v, bool) else str(v) for v in found]
