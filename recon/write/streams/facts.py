"""The input and the output of a rule: the facts about one pipeline, and the advice that follows from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal

from recon.checks.evidence.throughput import kept_up
from recon.model import KafkaTopic
from recon.model.progress import BatchProgress

FEWEST = 10  # micro-batches that a rule needs

Decision = Literal["change", "keep", "unknown"]


@dataclass(frozen=True, kw_only=True)
class Advice:
    """The result of one rule for one pipeline, which `advise` names.

    `setting` and `value` are what to set, where that is one thing; `because` is the arithmetic in words, and `figures`
    are its numbers. For the decision "unknown", `because` names the missing data.
    """

    rule: str = ""
    pipeline: str = ""
    decision: Decision
    recommendation: str
    because: str
    setting: str | None = None
    value: Any = None
    figures: Mapping[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {"says" if name == "decision" else name: value for name, value in vars(self).items()}


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Everything that the rules read about one pipeline; None where it is not known.

    `cores` run the query's tasks; `topics` are their state in Kafka now; `unread_for` is the age of the oldest unread
    record; `kinds` are those of the pipeline's sinks.
    """

    batches: Sequence[BatchProgress]
    target: timedelta
    cores: int | None = None
    topics: Mapping[str, KafkaTopic] | None = None
    unread_for: timedelta | None = None
    kinds: Sequence[str] = ()

    @property
    def settled(self) -> list[BatchProgress]:
        """Micro-batches that read rows, without the first of each run, which also pays for warming up."""
        started: set[str] = set()
        batches = []
        for batch in self.batches:
            if batch.run_id in started and batch.rows and batch.seconds:
                batches.append(batch)
            started.add(batch.run_id)
        return batches

    @property
    def runs(self) -> list[list[BatchProgress]]:
        """The micro-batches of each run."""
        by_run: dict[str, list[BatchProgress]] = {}
        for batch in self.batches:
            by_run.setdefault(batch.run_id, []).append(batch)
        return list(by_run.values())

    @property
    def rows_per_second(self) -> float | None:
        """The rate at which rows arrive, over the time from the first micro-batch of each run to its last."""
        rows, seconds = 0, 0.0
        for run in self.runs:
            rows += sum(batch.rows for batch in run[1:])
            seconds += (run[-1].at - run[0].at).total_seconds()
        if not seconds or not rows:
            return None
        share = kept_up(self.batches)
        growth = 1.0 if share is None or not share.read else max(1.0, share.arrived / share.read)
        return rows / seconds * growth


def unknown(facts: Facts, missing: str, setting: str | None = None) -> Advice:
    """The advice of a rule that cannot decide; `missing` says which data it needs."""
    if not facts.batches:
        missing += "; progress is recorded by spark.streams.addListener(recon.ProgressListener('.'))"
    return Advice(
        decision="unknown",
        recommendation="cannot be decided yet",
        because=missing,
        setting=setting,
        figures={"batches": len(facts.batches)},
    )
