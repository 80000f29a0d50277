"""What the tests of your own check or sink need. Public: names here are not renamed without notice.

`checks` evaluates a check on a DataFrame or on witnesses, `evidence` makes witnesses, `sinks` makes a micro-batch and
holds a sink to the contract of every sink. recon's own tests and other packages may import this room; no other room
does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from recon.testing.checks import evaluate
    from recon.testing.evidence import Entry, checkpoint, kafka, ledger, planned, witnesses
    from recon.testing.sinks import MicroBatch, micro_batch, verify_sink

_MODULES = {
    "Entry": "evidence",
    "MicroBatch": "sinks",
    "checkpoint": "evidence",
    "evaluate": "checks",
    "kafka": "evidence",
    "ledger": "evidence",
    "micro_batch": "sinks",
    "planned": "evidence",
    "verify_sink": "sinks",
    "witnesses": "evidence",
}

__all__ = [
    "Entry",
    "MicroBatch",
    "checkpoint",
    "evaluate",
    "kafka",
    "ledger",
    "micro_batch",
    "planned",
    "verify_sink",
    "witnesses",
]


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in __all__:
        raise AttributeError(f"module 'recon.testing' has no attribute {name!r}")
    return getattr(import_module(f"recon.testing.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
