"""throughput: how fast the stream reads, against limits and against how fast Kafka fills."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from typing_extensions import override

from recon.base.text import plural
from recon.checks.progress_check import ProgressCheck
from recon.model import Verdict, Witnesses
from recon.model.progress import BatchProgress, ProgressWitness


@dataclass(frozen=True, kw_only=True)
class Throughput(ProgressCheck):
    """The stream is slower than agreed, or than Kafka fills.

    Two figures over the period, each against its own limits. *Rows per second* are the rows of all micro-batches over
    the time that their triggers took, waiting left out: what the stream reaches while it works. *Kept up* is the share
    of the offsets that arrived in Kafka, between the period's first micro-batch and its last, that were read in that
    time: 0.9 means that lag grew by a tenth of what arrived. A share below its limit counts only where more offsets are
    left behind than the largest micro-batch reads; fewer are what the next micro-batch reads.

    It needs the progress of micro-batches ([progress](progress.md)); with fewer than `min_batches` that read rows it is
    skipped, and the limits on kept up where Spark did not report Kafka's latest offsets.

    Args:
        warn_below: rows per second below which it warns.
        error_below: rows per second below which it fails.
        warn_kept_up: the share below which it warns.
        error_kept_up: the share below which it fails.
        min_batches: so many micro-batches with rows are needed for a verdict.

    Example:
        data_tests:
          - throughput:
              arguments: {error_below: 500, warn_kept_up: 0.95}
    """

    test: ClassVar[str] = "throughput"
    judged: ClassVar[str] = "that read rows"

    warn_below: float | None = None
    error_below: float | None = None
    warn_kept_up: float | None = 0.95
    error_kept_up: float | None = None
    min_batches: int = 10

    @override
    def counts(self, batch: BatchProgress) -> bool:
        return bool(batch.rows and batch.seconds)

    @override
    def verdict(self, batches: Sequence[BatchProgress], progress: ProgressWitness, witnesses: Witnesses) -> Verdict:
        rows, seconds = sum(batch.rows for batch in batches), sum(batch.seconds for batch in batches)
        rate = rows / seconds
        share = kept_up(progress.batches)
        of = f"{plural(len(batches), 'micro-batch')}, {rows:,} rows in {seconds:,.1f} s"
        rate_text = f"{rate:,.0f} rows/s while working ({of})"
        evidence: dict[str, Any] = {"batches": len(batches), "rows": rows, "seconds": seconds, "rows_per_second": rate}
        if share is None:
            if self.error_kept_up is not None:
                return Verdict(
                    unproved="Spark did not report Kafka's latest offsets, so error_kept_up cannot be judged; "
                    f"{rate_text}",
                    evidence=evidence,
                )
            ratio, message = None, f"{rate_text}; whether that keeps up with Kafka is not known"
        else:
            evidence |= {"offsets_read": share.read, "offsets_arrived": share.arrived, "kept_up": share.share}
            message = f"{rate_text}; {share.read:,} of {share.arrived:,} offsets that arrived were read"
            # A limit of 0.95 on 1,000 offsets would otherwise warn of the one micro-batch that is just being read.
            largest = max(batch.offsets or 0 for batch in progress.batches)
            ratio = share.share if share.left_behind > largest else None
        for fails, below, kept in (
            (True, self.error_below, self.error_kept_up),
            (False, self.warn_below, self.warn_kept_up),
        ):
            if why := _why(rate, below, ratio, kept):
                message = f"{' and '.join(why)}: {message}; `recon advise` names what would help"
                return Verdict(failures=int(fails), warnings=int(not fails), message=message, evidence=evidence)
        return Verdict(message=message, evidence=evidence)


def _why(rate: float, below: float | None, ratio: float | None, kept: float | None) -> list[str]:
    why = [f"below {below:,g} rows/s"] if below is not None and rate < below else []
    if kept is not None and ratio is not None and ratio < kept:
        why.append(f"kept up with {ratio:.1%}, below {kept:.1%}")
    return why


class KeptUp(NamedTuple):
    """Offsets that arrived in Kafka between the first and the last micro-batch, and how many of as many were read."""

    read: int
    arrived: int

    @property
    def left_behind(self) -> int:
        """How much lag grew."""
        return self.arrived - self.read

    @property
    def share(self) -> float:
        """1 when everything that arrived was read, more when older lag was worked off as well."""
        return self.read / self.arrived if self.arrived else 1.0


def kept_up(batches: Sequence[BatchProgress]) -> KeptUp | None:
    """What was read of what arrived; None where lag or widths are not known, or partitions came or went."""
    lags = [(batch, batch.lag) for batch in batches if batch.lag is not None]
    if len(lags) < 2:
        return None
    (first, first_lag), (last, last_lag) = lags[0], lags[-1]
    between = [batch for batch in batches if first.at < batch.at <= last.at]
    read = [b.offsets for b in between if b.offsets is not None and b.partitions == first.partitions]
    return KeptUp(sum(read), sum(read) + last_lag - first_lag) if len(read) == len(between) else None
