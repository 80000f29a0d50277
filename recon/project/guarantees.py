"""What each kind of sink promises, as one table: for `recon sinks` and for docs/sinks.md."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from recon.project.sinks import KINDS, Guarantee

# A kind's name as recon.yml has it, and the keys that change what it promises.
_VARIANTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("delta", {}),
    ("delta", {"txn_app_id": "own"}),
    ("delta_merge", {}),
    ("jdbc_upsert", {}),
    ("jdbc_append", {}),
    ("jdbc_append", {"guard": False}),
    ("kafka", {}),
    ("kafka", {"mode": "at_least_once"}),
    ("parquet", {}),
    ("parquet", {"mode": "append"}),
    ("custom", {}),
)


def guarantees() -> Iterator[tuple[str, Guarantee]]:
    """(kind and the keys that matter, what it promises) of every sink there is."""
    for kind, keys in _VARIANTS:
        # The promise rests on these keys alone; what else a sink needs to be valid does not matter here.
        sink = KINDS[kind].model_construct(kind=kind, name=kind, target="t", **keys)
        alike = [other for other, found in KINDS.items() if found is KINDS[kind]]
        told = ", ".join(f"{key}: {str(value).lower()}" for key, value in keys.items())
        yield f"{', '.join(alike)}{f' ({told})' if told else ''}", sink.promise
    yield (
        "routes",
        Guarantee(
            label="of each route",
            how="every route is a sink with a ledger, an epoch and a commit of its own; a retry skips what has it",
            needs="a route for every value, or `otherwise`",
        ),
    )


__all__ = ["guarantees"]
