"""Judge: what a check is (base), the checks by name (registry), and the runner.

A check of your own derives from one of the names below and is made known by `register`, or by an entry point of the
group `recon.checks`.
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
