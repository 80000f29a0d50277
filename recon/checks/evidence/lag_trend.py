"""lag_trend: whether the stream falls behind Kafka, and when Kafka deletes records that it has not read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import median
from typing import Any, ClassVar, NamedTuple

from typing_extensions import override

from recon.base.text import duration, plural
from recon.base.trend import Trend, trend
from recon.checks.period import Period
from recon.checks.progress_check import ProgressCheck, seconds
from recon.judge.coverage import Key
from recon.judge.findings import Findings
from recon.model import Code, KafkaPartition, KafkaTopic, KafkaWitness, Verdict, Witnesses, known, why_unknown
from recon.model.positions import SourceKind
from recon.model.progress import BatchProgress, ProgressWitness, TopicPartition

_DAY = Period(1, "day")


@dataclass(frozen=True, kw_only=True)
class LagTrend(ProgressCheck):
    """The stream falls behind Kafka for good, or Kafka will delete records before they are read.

    Lag is what Kafka held beyond each micro-batch when it was planned, in offsets. It *grows* when its slope over the
    period (Theil and Sen's median of slopes) is up beyond chance (Mann and Kendall's test, one in a hundred) and it
    gained more than the largest micro-batch reads. One burst that is worked off is no trend.

    Args:
        warn_if_within: warn when unread records will be deleted within this time, as `{count: 1, period: day}`.
        error_if_within: fail when they will be deleted within it. Periods are minute, hour and day.
        min_batches: so many micro-batches with a known lag are needed for a verdict.

    Example:
        data_tests:
          - lag_trend:
              arguments:
                warn_if_within: {count: 1, period: day}
                error_if_within: {count: 6, period: hour}
    """

    test: ClassVar[str] = "lag_trend"
    uses: ClassVar[Sequence[str]] = ("kafka", "progress_offsets")
    about: ClassVar[SourceKind | None] = "Kafka"
    judged: ClassVar[str] = "whose lag is known"
    fewest: ClassVar[int] = 3

    warn_if_within: Period | None = _DAY
    error_if_within: Period | None = None

    @override
    def counts(self, batch: BatchProgress) -> bool:
        return batch.lag is not None

    @override
    def verdict(self, batches: Sequence[BatchProgress], progress: ProgressWitness, witnesses: Witnesses) -> Verdict:
        lags = [float(batch.lag or 0) for batch in batches]
        lag_trend = trend(seconds(batches), lags)
        if lag_trend is None:
            return self.too_few(1, "at different times", progress)
        span = (batches[-1].at - batches[0].at).total_seconds()
        largest = max(batch.offsets or 0 for batch in progress.batches)
        grows = lag_trend.rises and lag_trend.line.slope * span > largest
        per_hour = lag_trend.line.slope * 3600
        lag_text = (
            f"lag went from {lags[0]:,.0f} to {lags[-1]:,.0f} offsets over {duration(span)}"
            f" ({per_hour:+,.0f} offsets an hour, {plural(len(batches), 'micro-batch')})"
        )
        findings = Findings.of(witnesses)
        if grows:
            findings.add(Code.LAG, f"the stream falls behind: {lag_text}; `recon advise` names what would help")
        forecasts = sorted(forecast(progress, witnesses, lag_trend if grows else None), key=lambda f: f.seconds)
        if forecasts:
            self._report(forecasts[0], len(forecasts), findings)
        elif grows and self.error_if_within is not None:
            why = why_unknown(witnesses.kafka, "no log start seen before, no retention.ms known")
            message = f"when Kafka will delete what is unread cannot be forecast ({why}), and {lag_text}"
            findings.add(Code.INCONCLUSIVE, message, about="no forecast")
        return findings.verdict(
            lag_text,
            batches=len(batches),
            offsets_per_hour=per_hour,
            z=lag_trend.z,
            lag=lags[-1],
            log_starts=_log_starts(known(witnesses.kafka)),
            forecast=[f._asdict() | {"key": str(f.key)} for f in forecasts[:5]],
        )

    def _report(self, soonest: Forecast, count: int, findings: Findings) -> None:
        for code, limit in ((Code.LOSS_AHEAD, self.error_if_within), (Code.RETENTION_NEAR, self.warn_if_within)):
            if limit is None or soonest.seconds > limit.length.total_seconds():
                continue
            when = f"in {duration(soonest.seconds)}" if soonest.seconds else "any moment now"
            more = f", the first of {plural(count, 'partition')}" if count > 1 else ""
            message = (
                f"{soonest.key}: Kafka will delete unread records {when}{more} ({soonest.how}); read faster, or "
                "let the topic keep them longer"
            )
            findings.add(code, message, key=soonest.key, start_offset=soonest.committed)
            return


class Forecast(NamedTuple):
    """When the log start of a partition passes its first unread record, in seconds from now, and how that was found."""

    key: Key
    seconds: float
    committed: int
    how: str


class _Pace(NamedTuple):
    """A partition's position, and offsets a second that are read and that lag gains."""

    committed: int
    reads: float
    gains: float


def forecast(progress: ProgressWitness, witnesses: Witnesses, growing: Trend | None) -> Iterator[Forecast]:
    """The forecast of each partition that has unread records, where there is anything to forecast from."""
    kafka = known(witnesses.kafka)
    if kafka is None:
        return
    previous = known(witnesses.previous)
    before = previous.log_starts if previous else {}
    for where, pace in _paces(progress, kafka.read_at, growing).items():
        topic = kafka.topics.get(where[0])
        now = topic.partitions.get(where[1]) if topic is not None else None
        if topic is None or now is None or now.log_end <= pace.committed:
            continue
        ways = (
            _by_log_starts(now, pace, before.get(where), kafka.read_at),
            _by_retention(topic, now, pace, kafka.read_at),
        )
        forecasts = [Forecast(Key(0, *where), left, pace.committed, how) for left, how in filter(None, ways)]
        if forecasts:
            yield min(forecasts, key=lambda found: found.seconds)


def _by_log_starts(
    now: KafkaPartition, pace: _Pace, before: tuple[datetime, int] | None, at: datetime
) -> tuple[float, str] | None:
    """Seconds left, and how that was found: by how fast the log start moved since an earlier audit."""
    if before is None or (at - before[0]).total_seconds() < 600 or now.log_start <= before[1]:
        return None
    deletes = (now.log_start - before[1]) / (at - before[0]).total_seconds()
    if deletes <= pace.reads:
        return None
    between = max(pace.committed - now.log_start, 0)
    how = (
        f"the log start moves by {deletes:,.1f} offsets/s, the stream reads {pace.reads:,.1f}, and {between:,} offsets"
    )
    return between / (deletes - pace.reads), f"{how} lie between"


def _by_retention(topic: KafkaTopic, now: KafkaPartition, pace: _Pace, at: datetime) -> tuple[float, str] | None:
    """Seconds left, and how that was found: by the age of the oldest unread record."""
    if topic.retention_ms is None or topic.retention_ms < 0 or "delete" not in topic.cleanup_policy:
        return None
    if now.unread_since is None:
        return None
    age, keeps = (at - now.unread_since).total_seconds(), topic.retention_ms / 1000
    ages = 1.0 if pace.reads <= 0 else max(pace.gains, 0) / (pace.reads + max(pace.gains, 0))
    how = f"the oldest unread record is {duration(age)} old, gains {ages:.2f} s of age a second, and retention.ms is"
    if age >= keeps:
        return 0.0, f"{how} {duration(keeps)}"
    return ((keeps - age) / ages, f"{how} {duration(keeps)}") if ages > 0 else None


def _paces(progress: ProgressWitness, now: datetime, growing: Trend | None) -> dict[TopicPartition, _Pace]:
    """How each partition moves, from the first and the last micro-batch whose offsets are told."""
    places = sorted(progress.offsets)
    if not places:
        return {}
    first, last = progress.batches[places[0]], progress.batches[places[-1]]
    begin, end = progress.offsets[places[0]], progress.offsets[places[-1]]
    span = (last.at - first.at).total_seconds()
    gaps = [(b.at - a.at).total_seconds() for a, b in zip(progress.batches, progress.batches[1:], strict=False)]
    silent = (now - progress.batches[-1].done).total_seconds()
    stopped = silent > max(600.0, 10 * median(gaps) if gaps else 0.0)
    paces = {}
    for key, committed in end.end.items():
        came_from = begin.end.get(key, committed)
        reads = 0.0 if stopped or span <= 0 else max(committed - came_from, 0) / span
        lag_then = begin.latest.get(key, came_from) - came_from
        lag_now = end.latest.get(key, committed) - committed
        gains = (lag_now - lag_then) / span if growing is not None and span > 0 else 0.0
        paces[key] = _Pace(committed, reads, gains)
    return paces


def _log_starts(kafka: KafkaWitness | None) -> list[list[Any]]:
    return [
        [name, number, partition.log_start]
        for name, topic in sorted(kafka.topics.items() if kafka is not None else ())
        for number, partition in sorted(topic.partitions.items())
    ]
