"""What each kind of sink promises, as one table: for `recon sinks` and for docs/sinks.md."""

from __future__ import annotations

from collections.abc import Iterator

from recon.base.errors import ConfigError
from recon.project.messages import BadValue
from recon.project.sinks import Guarantee, Sink, sink_class, sink_kinds

_ROUTES = Guarantee(
    label="of each route",
    how="every route is a sink with a ledger, an epoch and a commit of its own; a retry skips what has it",
    needs="a route for every value, or `otherwise`",
)


def guarantees() -> Iterator[tuple[str, Guarantee]]:
    """Every kind of sink, with the keys that change its promise, and the promise.

    Raises:
        ConfigError: the installed package that offers a kind is broken.
    """
    kinds_of: dict[type[Sink], list[str]] = {}
    try:
        for kind in sink_kinds():
            kinds_of.setdefault(sink_class(kind), []).append(kind)
    except BadValue as problem:
        raise ConfigError(f"the kind of a sink {problem}") from problem
    for config, kinds in kinds_of.items():
        for keys in config.variants:
            # The promise depends on these keys alone, so the keys that a valid sink also needs are left out.
            sink = config.model_construct(kind=kinds[0], name=kinds[0], target="t", **keys)
            settings = ", ".join(f"{key}: {str(value).lower()}" for key, value in keys.items())
            yield ", ".join(kinds) + (f" ({settings})" if settings else ""), sink.promise
    yield "routes", _ROUTES
