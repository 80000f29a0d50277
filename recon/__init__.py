"""recon proves, batch by batch, that streamed data arrived: from the source's offsets to the sink's commits.

Three entry points: `foreach_batch` inside a streaming query, `run_audit` once a day, `compliance_report` for a period.
Names are imported when first used, so that `import recon` takes milliseconds. Public are also `recon.checks`,
`recon.testing` and `recon.reports`; all other modules may change in any version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recon._version import __version__
from recon.base.errors import (
    ConfigError,
    EvidenceError,
    GateError,
    LedgerError,
    NewEpochError,
    ReconError,
    SinkError,
    TableReplacedError,
)
from recon.base.lazy import lazy_exports

if TYPE_CHECKING:
    from recon.audits.accept import accept, open_findings
    from recon.audits.account import account
    from recon.audits.compliance import compliance as compliance_report
    from recon.audits.run import run_audit
    from recon.audits.run import run_audit as audit
    from recon.checks.comparison import ColumnDifference, Comparison, RowDifference, SchemaDifference, compare
    from recon.model import (
        CheckResult,
        Code,
        Finding,
        LedgerEntry,
        Level,
        LostWrite,
        ReconStamp,
        RunResult,
        SinkChanges,
        SinkCommit,
        SinkLog,
    )
    from recon.project import Guarantee, Project, Sink
    from recon.project import load as load_project
    from recon.project.sinks.repairs import RepairAbility
    from recon.recovery.explain import Explanation, already_processed, explain
    from recon.recovery.repair.plan import LeftOpen, PlannedRange, RepairPlan
    from recon.recovery.repair.run import Repaired, repair
    from recon.recovery.repair.witnesses import repair_plans
    from recon.recovery.starting_offsets import starting_offsets
    from recon.recovery.trace import Trace, trace
    from recon.reports.account import OffsetAccount
    from recon.reports.audit_run import AuditRun
    from recon.write.hook import ForeachBatch, RoutedForeachBatch, foreach_batch, read_kafka
    from recon.write.ledger import Ledger, open_ledger
    from recon.write.quarantine.release import Released, release
    from recon.write.sinks import BatchSink, ConfirmedWrite
    from recon.write.sinks.custom import Batch
    from recon.write.sinks.files.reading import batch_files, read_batches
    from recon.write.sinks.repair import RepairStore
    from recon.write.streams.listener import ProgressListener

__all__ = [
    "AuditRun",
    "Batch",
    "BatchSink",
    "CheckResult",
    "Code",
    "ColumnDifference",
    "Comparison",
    "ConfigError",
    "ConfirmedWrite",
    "EvidenceError",
    "Explanation",
    "Finding",
    "ForeachBatch",
    "GateError",
    "Guarantee",
    "Ledger",
    "LedgerEntry",
    "LedgerError",
    "LeftOpen",
    "Level",
    "LostWrite",
    "NewEpochError",
    "OffsetAccount",
    "PlannedRange",
    "ProgressListener",
    "Project",
    "ReconError",
    "ReconStamp",
    "Released",
    "RepairAbility",
    "RepairPlan",
    "RepairStore",
    "Repaired",
    "RoutedForeachBatch",
    "RowDifference",
    "RunResult",
    "SchemaDifference",
    "Sink",
    "SinkChanges",
    "SinkCommit",
    "SinkError",
    "SinkLog",
    "TableReplacedError",
    "Trace",
    "__version__",
    "accept",
    "account",
    "already_processed",
    "audit",
    "batch_files",
    "compare",
    "compliance_report",
    "explain",
    "foreach_batch",
    "load_project",
    "open_findings",
    "open_ledger",
    "read_batches",
    "read_kafka",
    "release",
    "repair",
    "repair_plans",
    "run_audit",
    "starting_offsets",
    "trace",
]

_MODULES = {
    "recon.audits.accept": ("accept", "open_findings"),
    "recon.audits.account": ("account",),
    "recon.audits.run": ("run_audit",),
    "recon.checks.comparison": ("ColumnDifference", "Comparison", "RowDifference", "SchemaDifference", "compare"),
    "recon.write.hook": ("ForeachBatch", "RoutedForeachBatch", "foreach_batch", "read_kafka"),
    "recon.write.ledger": ("Ledger", "open_ledger"),
    "recon.model": (
        "CheckResult",
        "Code",
        "Finding",
        "LedgerEntry",
        "Level",
        "LostWrite",
        "ReconStamp",
        "RunResult",
        "SinkChanges",
        "SinkCommit",
        "SinkLog",
    ),
    "recon.project": ("Guarantee", "Project", "Sink"),
    "recon.project.sinks.repairs": ("RepairAbility",),
    "recon.write.quarantine.release": ("Released", "release"),
    "recon.recovery.explain": ("Explanation", "already_processed", "explain"),
    "recon.recovery.repair.plan": ("LeftOpen", "PlannedRange", "RepairPlan"),
    "recon.recovery.repair.run": ("Repaired", "repair"),
    "recon.recovery.repair.witnesses": ("repair_plans",),
    "recon.recovery.starting_offsets": ("starting_offsets",),
    "recon.recovery.trace": ("Trace", "trace"),
    "recon.reports.account": ("OffsetAccount",),
    "recon.reports.audit_run": ("AuditRun",),
    "recon.write.sinks": ("BatchSink", "ConfirmedWrite"),
    "recon.write.sinks.custom": ("Batch",),
    "recon.write.sinks.files.reading": ("batch_files", "read_batches"),
    "recon.write.sinks.repair": ("RepairStore",),
    "recon.write.streams.listener": ("ProgressListener",),
}
_RENAMED = {
    "audit": "recon.audits.run:run_audit",
    "compliance_report": "recon.audits.compliance:compliance",
    "load_project": "recon.project:load",
}
__getattr__, __dir__ = lazy_exports(
    __name__, __all__, {name: module for module, names in _MODULES.items() for name in names} | _RENAMED
)
