"""Judge: what a check is, all checks by name, and three rooms of checks.

Read `base` first (the classes to derive from; the class says what a check costs), then `registry` (names, and
recon.yml's tests bound to them), `select`, `threshold` (severity, warn_if, error_if). `data` holds the checks that
users write in YAML, `evidence` the pure ones that judge witnesses, `engine` measures and is the only one that runs
Spark jobs.

A check of your own derives from one of the names below and is registered by `register` or by an entry point of the
group `recon.checks`. Imports neither `ledger` nor `sinks`, nor any room that imports them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from recon.checks.base import (
        EachRow,
        EvidenceCheck,
        JointCheck,
        KeyCheck,
        Measure,
        QueryCheck,
        RowCheck,
        SchemaCheck,
        Tables,
        WholeCheck,
        count_if,
        greatest,
        least,
        total,
    )
    from recon.checks.registry import register
    from recon.model import Verdict

_LATE = {"register": "registry", "Verdict": "recon.model"}

__all__ = [
    "EachRow",
    "EvidenceCheck",
    "JointCheck",
    "KeyCheck",
    "Measure",
    "QueryCheck",
    "RowCheck",
    "SchemaCheck",
    "Tables",
    "Verdict",
    "WholeCheck",
    "count_if",
    "greatest",
    "least",
    "register",
    "total",
]


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in __all__:
        raise AttributeError(f"module 'recon.checks' has no attribute {name!r}")
    module = _LATE.get(name, "base")
    return getattr(import_module(module if "." in module else f"recon.checks.{module}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
