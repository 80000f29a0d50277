"""What the parent tells a child: one JSON file per start."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path

from recon.write.sinks.failpoints import AFTER_LEDGER, AFTER_WRITE, BEFORE_WRITE

# The seams of every sink, in the order a micro-batch passes them. "during" (a task stands still at a row) and
# "before_spark_commit" (the hook has returned) are the child's own, the others the hook's.
POINTS = (BEFORE_WRITE, "during", AFTER_WRITE, AFTER_LEDGER, "before_spark_commit")


# How often each (sink, point) is hit; `make soak` sets more, and kills variants of a repair as well.
ROUNDS = int(os.environ.get("RECON_CRASH_ROUNDS", "1"))
IN_SOAK = ROUNDS > 2


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One start of the child.

    `stop_at`: pipeline → the point at which it is to stand when the process is killed; empty: drain and end.
    `from_batch`: pipeline → the first micro-batch whose points count (to skip a replayed one).
    `doubled`: the pipelines whose first micro-batch a repair test writes twice.
    `meets`: pipeline → the start that it waits for before its first write, so that two drivers write at once.
    `archive`: where the start keeps the JVM's classes before it is killed; empty: nowhere.
    `within`: seconds after which the kill comes even if not all stand.
    """

    project: str
    topic: str
    bootstrap: str
    pipelines: tuple[str, ...]
    hits: str
    start: int = 0
    stop_at: dict[str, str] = field(default_factory=dict)
    from_batch: dict[str, int] = field(default_factory=dict)
    doubled: tuple[str, ...] = ()
    meets: dict[str, int] = field(default_factory=dict)
    per_trigger: int = 30
    within: float = 1500.0
    settle: float = 0.5
    checkpoints: str = "checkpoints"
    classpath: str = ""
    packages: tuple[str, ...] = ()
    java_options: str = ""
    archive: str = ""
    spark_conf: dict[str, str] = field(default_factory=dict)

    def write(self, path: Path) -> Path:
        path.write_text(json.dumps(asdict(self), indent=1))
        return path

    @classmethod
    def read(cls, path: Path) -> Plan:
        document = json.loads(path.read_text())
        return cls(**{k: tuple(v) if isinstance(v, list) else v for k, v in document.items()})
