"""The kinds of sinks: the built-in ones, and those of installed packages.

A new sink is its config class (with its keys, its `promise` and its `writer`), the writer's module, a test and one line
in `BUILT_IN`. A sink of your own is the same, with the line in the entry points `recon.sinks` of your package.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any

BUILT_IN: Mapping[str, str] = {
    "delta": "recon.project.sinks.delta:DeltaSink",
    "delta_merge": "recon.project.sinks.delta:DeltaMergeSink",
    "jdbc_upsert": "recon.project.sinks.jdbc:JdbcUpsertSink",
    "jdbc_append": "recon.project.sinks.jdbc:JdbcAppendSink",
    "kafka": "recon.project.sinks.kafka:KafkaSink",
    "parquet": "recon.project.sinks.files:FileSink",
    "json": "recon.project.sinks.files:FileSink",
    "csv": "recon.project.sinks.files:FileSink",
    "custom": "recon.project.sinks.custom:CustomSink",
}
_ENTRY_POINTS = "recon.sinks"


@lru_cache(maxsize=1)
def _installed() -> Mapping[str, EntryPoint]:
    """The kinds that installed packages offer; a built-in kind cannot be taken."""
    return {entry.name: entry for entry in entry_points(group=_ENTRY_POINTS) if entry.name not in BUILT_IN}


def names() -> list[str]:
    """All kinds, built-in ones first."""
    return [*BUILT_IN, *_installed()]


def offered(kind: str) -> tuple[str, Any] | None:
    """What is offered for a kind: `module:Class` and the imported object; None where the kind is unknown.

    Raises:
        Exception: whatever the import of an installed package raises.
    """
    if kind in BUILT_IN:
        module, _, name = BUILT_IN[kind].partition(":")
        return BUILT_IN[kind], getattr(import_module(module), name)
    entry = _installed().get(kind)
    return None if entry is None else (entry.value, entry.load())
