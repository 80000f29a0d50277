"""What the checks of Spark's query progress share: throughput, lag_trend and state_growth.

They judge the `progress` witness, which `recon.ProgressListener` records. None of them says whether data arrived, and a
pipeline's answer does not rest on them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from typing_extensions import override

from recon.base.text import plural
from recon.checks.base import EvidenceCheck
from recon.model import Verdict, Witnesses, known
from recon.model.progress import BatchProgress, ProgressWitness


@dataclass(frozen=True, kw_only=True)
class ProgressCheck(EvidenceCheck):
    """Judges the micro-batches of the newest query in the period; with too few of them it is skipped.

    `judged` says in messages which micro-batches count, `fewest` how many any verdict takes at least.
    """

    needs: ClassVar[Sequence[str]] = ("progress",)
    judged: ClassVar[str]
    fewest: ClassVar[int] = 1

    min_batches: int = 20

    @abstractmethod
    def counts(self, batch: BatchProgress) -> bool:
        """Whether a micro-batch can be judged."""

    @abstractmethod
    def verdict(self, batches: Sequence[BatchProgress], progress: ProgressWitness, witnesses: Witnesses) -> Verdict:
        """The verdict; `batches` are those of `progress` that count, oldest first."""

    @override
    def judge(self, witnesses: Witnesses) -> Verdict:
        progress = newest_query(witnesses)
        batches = [batch for batch in progress.batches if self.counts(batch)]
        if len(batches) < max(self.fewest, self.min_batches):
            return self.too_few(len(batches), self.judged, progress)
        return self.verdict(batches, progress, witnesses)

    def too_few(self, count: int, which: str, progress: ProgressWitness) -> Verdict:
        """Skipped, because the progress has only so many micro-batches of a kind."""
        why = "audit a longer period, or lower min_batches"
        if not progress.batches:
            why = "let the query record it: spark.streams.addListener(recon.ProgressListener('.'))"
        return Verdict(
            skipped=f"the period's progress has {plural(count, 'micro-batch')} {which}, and "
            f"{max(self.fewest, self.min_batches)} are needed; {why}"
        )


def newest_query(witnesses: Witnesses) -> ProgressWitness:
    """The progress of the newest query in the period."""
    progress = known(witnesses.progress)
    assert progress is not None  # the runner does not call a check without a witness that it needs
    return progress.newest_query


def seconds(batches: Sequence[BatchProgress]) -> list[float]:
    """When each micro-batch ran, in seconds from the first."""
    return [(batch.at - batches[0].at).total_seconds() for batch in batches]
