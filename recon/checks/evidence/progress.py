"""What the checks of Spark's query progress share: throughput, lag_trend and state_growth.

They judge the `progress` witness, which `recon.ProgressListener` records. None of them says whether data arrived, and a
pipeline's answer does not rest on them. With too little history they are *skipped*, and say what is lacking.
"""

from __future__ import annotations

from collections.abc import Sequence

from recon.model import Unavailable, Verdict, Witnesses
from recon.model.progress import BatchProgress
from recon.text import plural


def batches_of(witnesses: Witnesses) -> Sequence[BatchProgress]:
    """The micro-batches of the newest query in the period, oldest first."""
    progress = witnesses.progress
    assert not isinstance(progress, Unavailable)
    return progress.newest_query.batches


def seconds(batches: Sequence[BatchProgress]) -> list[float]:
    """When each micro-batch ran, in seconds from the first."""
    return [(batch.at - batches[0].at).total_seconds() for batch in batches]


def too_few(witnesses: Witnesses, found: int, wanted: int, which: str) -> Verdict:
    """Skipped, because `found` micro-batches are fewer than `wanted`; `which` says of what kind."""
    progress = witnesses.progress
    nothing = not isinstance(progress, Unavailable) and not progress.batches
    why = (
        "; let the query record it: spark.streams.addListener(recon.ProgressListener('.'))"
        if nothing
        else "; audit a longer period, or lower min_batches"
    )
    return Verdict(
        skipped=f"the period's progress has {plural(found, 'micro-batch')} {which}, and {wanted} are needed{why}"
    )


def duration(seconds: float) -> str:
    """A length of time as people say it.

    >>> duration(5400), duration(59), duration(3 * 86400)
    ('1.5 hours', '59 s', '3.0 days')
    """
    for unit, size in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


__all__ = ["batches_of", "duration", "seconds", "too_few"]
