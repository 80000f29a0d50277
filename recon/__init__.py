"""recon proves, batch by batch, that streamed data arrived: from the source's offsets to the sink's commits.

The three entry points: `foreach_batch` inside a streaming query, `run_audit` once a day, `compliance_report` for a
period.
Names are loaded when first used, so that importing recon costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from recon._version import __version__
from recon.errors import (
    ConfigError,
    EvidenceError,
    GateError,
    LedgerError,
    NewEpochError,
    ReconError,
    SinkError,
)

if TYPE_CHECKING:
    from recon.audit.compliance import compliance as compliance_report
    from recon.audit.run import run_audit
    from recon.comparison import ColumnDifference, Comparison, RowDifference, SchemaDifference, compare
    from recon.hook import ForeachBatch, RoutedForeachBatch, foreach_batch
    from recon.ledger import Ledger, open_ledger
    from recon.model import CheckResult, Code, Finding, LedgerEntry, Level, ReconStamp, RunResult, SinkCommit, SinkLog
    from recon.project import Guarantee, Project, Sink
    from recon.project import load as load_project
    from recon.quarantine.release import Released, release
    from recon.recovery.explain import Explanation, already_processed, explain
    from recon.recovery.starting_offsets import starting_offsets
    from recon.sinks import BatchSink, Landed
    from recon.sinks.custom import Batch
    from recon.sinks.files.reading import batch_files, read_batches
    from recon.streams.listener import ProgressListener

__all__ = [
    "Batch",
    "BatchSink",
    "CheckResult",
    "Code",
    "ColumnDifference",
    "Comparison",
    "ConfigError",
    "EvidenceError",
    "Explanation",
    "Finding",
    "ForeachBatch",
    "GateError",
    "Guarantee",
    "Landed",
    "Ledger",
    "LedgerEntry",
    "LedgerError",
    "Level",
    "NewEpochError",
    "ProgressListener",
    "Project",
    "ReconError",
    "ReconStamp",
    "Released",
    "RoutedForeachBatch",
    "RowDifference",
    "RunResult",
    "SchemaDifference",
    "Sink",
    "SinkCommit",
    "SinkError",
    "SinkLog",
    "__version__",
    "already_processed",
    "batch_files",
    "compare",
    "compliance_report",
    "explain",
    "foreach_batch",
    "load_project",
    "open_ledger",
    "read_batches",
    "release",
    "run_audit",
    "starting_offsets",
]

_LATE = {
    "Batch": "recon.sinks.custom:Batch",
    "BatchSink": "recon.sinks:BatchSink",
    "CheckResult": "recon.model:CheckResult",
    "Code": "recon.model:Code",
    "ColumnDifference": "recon.comparison:ColumnDifference",
    "Comparison": "recon.comparison:Comparison",
    "Explanation": "recon.recovery.explain:Explanation",
    "Finding": "recon.model:Finding",
    "ForeachBatch": "recon.hook:ForeachBatch",
    "Guarantee": "recon.project:Guarantee",
    "Landed": "recon.sinks:Landed",
    "Ledger": "recon.ledger:Ledger",
    "LedgerEntry": "recon.model:LedgerEntry",
    "Level": "recon.model:Level",
    "ProgressListener": "recon.streams.listener:ProgressListener",
    "Project": "recon.project:Project",
    "ReconStamp": "recon.model:ReconStamp",
    "Released": "recon.quarantine.release:Released",
    "RoutedForeachBatch": "recon.hook:RoutedForeachBatch",
    "RowDifference": "recon.comparison:RowDifference",
    "RunResult": "recon.model:RunResult",
    "SchemaDifference": "recon.comparison:SchemaDifference",
    "Sink": "recon.project:Sink",
    "SinkCommit": "recon.model:SinkCommit",
    "SinkLog": "recon.model:SinkLog",
    "already_processed": "recon.recovery.explain:already_processed",
    "batch_files": "recon.sinks.files.reading:batch_files",
    "compare": "recon.comparison:compare",
    "compliance_report": "recon.audit.compliance:compliance",
    "explain": "recon.recovery.explain:explain",
    "foreach_batch": "recon.hook:foreach_batch",
    "load_project": "recon.project:load",
    "open_ledger": "recon.ledger:open_ledger",
    "read_batches": "recon.sinks.files.reading:read_batches",
    "release": "recon.quarantine.release:release",
    "run_audit": "recon.audit.run:run_audit",
    "starting_offsets": "recon.recovery.starting_offsets:starting_offsets",
}


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module 'recon' has no attribute {name!r}")
    module, _, attribute = _LATE[name].partition(":")
    return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    return sorted(__all__)
