"""A repair without Spark: what is missing, which rows are there, and what writes are given by a test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from typing_extensions import override

from recon.base.decision import Decision
from recon.model.offsets import Spans
from recon.project import Project
from recon.recovery.repair.plan import PlannedRange, RepairPlan
from recon.recovery.repair.run import Repaired, SinkRepair
from recon.write.sinks.failpoints import no_failpoint


@dataclass
class Given:
    """What a repair finds, and its hook: a subclass has the `write_repair` of `ForeachBatch`.

    Attributes:
        missing: of which findings are open.
        rows: of partition 0 of the topic orders, that the sink has.
        counted: rows read again, and those of them that the transform dropped.
        frame: the rows themselves.
        reads: how often they were read.
    """

    missing: Sequence[PlannedRange] = ()
    rows: Spans = field(default_factory=Spans)
    counted: tuple[int, int] = (0, 0)
    frame: Any = None
    reads: int = 0
    writer: Any = None
    quarantines: bool = False


class _Repair(SinkRepair):
    given: Given

    @override
    def plan(self, findings: Any) -> RepairPlan:
        return RepairPlan(pipeline=self.pipeline.name, sink=self.sink.name, ranges=tuple(self.given.missing))

    @override
    def read(self, spans: Any, ranges: Any, table: Any) -> Any:
        self.given.reads += 1
        return SimpleNamespace(frame=self.given.frame, close=lambda: None, counted=lambda batch: self.given.counted)

    @override
    def there(self, ranges: Any, look: Any) -> Any:
        return {("orders", 0): self.given.rows}

    @override
    def hook(self) -> Any:
        return self.given


def repaired(project: Project, given: Given) -> Repaired:
    """Repairs the only sink of a project, with a session that reads an empty table."""
    reader = SimpleNamespace(load=lambda uri: SimpleNamespace(columns=["n"]))
    reader.option = reader.format = lambda *args: reader
    spark: Any = SimpleNamespace(read=reader, version="4.0.0")
    (pipeline,) = project.pipelines
    decision = Decision.of(None, None)
    made = _Repair(project, pipeline, pipeline.sinks[0], None, {}, decision, spark, no_failpoint)
    made.given = given
    return made.run(None, True)
