"""Judge: what a check is, all checks by name, and three rooms of checks.

Read `base` first (the classes to derive from; the class says what a check costs), then `registry` (names, and
recon.yml's tests bound to them), `select`, `threshold` (severity, warn_if, error_if). `data` holds the checks that
users write in YAML, `evidence` the pure ones that judge witnesses, `engine` measures and is the only one that runs
Spark jobs.

A check of your own derives from one of the names below and is registered by `register` or by an entry point of the
group `recon.checks`. Imports neither `ledger` nor `sinks`, nor any room that imports them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recon.lazy import lazy_exports

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

_ELSEWHERE = {"Verdict": "recon.model", "register": "recon.checks.registry"}
__getattr__, __dir__ = lazy_exports(__name__, __all__, dict.fromkeys(__all__, "recon.checks.base") | _ELSEWHERE)
