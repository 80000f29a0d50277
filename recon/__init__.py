"""recon proves, batch by batch, that streamed data arrived: from the source's offsets to the sink's commits.

Three entry points: `foreach_batch` inside a streaming query, `run_audit` once a day, `compliance_report` for a period.
Names are imported when first used, so that `import recon` takes milliseconds. Public are also `recon.checks`,
`recon.testing` and `recon.reports`; all other modules may change in any version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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
from recon.lazy import lazy_exports

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

_PLACES = {
    "Batch": "recon.sinks.custom",
    "BatchSink": "recon.sinks",
    "CheckResult": "recon.model",
    "Code": "recon.model",
    "ColumnDifference": "recon.comparison",
    "Comparison": "recon.comparison",
    "Explanation": "recon.recovery.explain",
    "Finding": "recon.model",
    "ForeachBatch": "recon.hook",
    "Guarantee": "recon.project",
    "Landed": "recon.sinks",
    "Ledger": "recon.ledger",
    "LedgerEntry": "recon.model",
    "Level": "recon.model",
    "ProgressListener": "recon.streams.listener",
    "Project": "recon.project",
    "ReconStamp": "recon.model",
    "Released": "recon.quarantine.release",
    "RoutedForeachBatch": "recon.hook",
    "RowDifference": "recon.comparison",
    "RunResult": "recon.model",
    "SchemaDifference": "recon.comparison",
    "Sink": "recon.project",
    "SinkCommit": "recon.model",
    "SinkLog": "recon.model",
    "already_processed": "recon.recovery.explain",
    "batch_files": "recon.sinks.files.reading",
    "compare": "recon.comparison",
    "compliance_report": "recon.audit.compliance:compliance",
    "explain": "recon.recovery.explain",
    "foreach_batch": "recon.hook",
    "load_project": "recon.project:load",
    "open_ledger": "recon.ledger",
    "read_batches": "recon.sinks.files.reading",
    "release": "recon.quarantine.release",
    "run_audit": "recon.audit.run",
    "starting_offsets": "recon.recovery.starting_offsets",
}
__getattr__, __dir__ = lazy_exports(__name__, __all__, _PLACES)
