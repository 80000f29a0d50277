"""The kinds of sinks: the built-in ones, and those of installed packages.

A new sink is its config class (with its keys, its `promise` and its `writer`), the writer's module, a test and one line
in `BUILT_IN`. A sink of your own is the same, with the line in the entry points `recon.sinks` of your package.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points

BUILT_IN: Mapping[str, str] = {
    "delta": "recon.project.sinks.delta:DeltaSink",
    "delta_merge": "recon.project.sinks.delta:DeltaMergeSink",
    "iceberg": "recon.project.sinks.iceberg:IcebergSink",
    "iceberg_merge": "recon.project.sinks.iceberg:IcebergMergeSink",
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


def forget_installed() -> None:
    """Lets the next call ask the installed packages again, after one was installed in this process."""
    _installed.cache_clear()


def names() -> list[str]:
    """All kinds, built-in ones first."""
    return [*BUILT_IN, *_installed()]


def location(kind: str) -> str | None:
    """The config class of a kind, as `module:Class`; None where the kind is unknown."""
    entry = _installed().get(kind)
    return BUILT_IN.get(kind) if entry is None else f"{entry.module}:{entry.attr}"
