"""How the stream runs: throughput, lag and state over time, from what Spark said of each micro-batch.

They judge the `progress` witness, which `recon.ProgressListener` records; none of them says whether data arrived, and a
pipeline's answer does not rest on them. Too little history is *skipped*, with what is lacking.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, ClassVar, NamedTuple

from recon.checks.base import EvidenceCheck
from recon.checks.evidence.findings import Findings, Period
from recon.checks.evidence.trend import Trend, median, trend
from recon.model import Code, KafkaWitness, Unavailable, Verdict, Witnesses
from recon.model.progress import BatchProgress, ProgressWitness, TopicPartition
from recon.text import plural

_DAY, _HOUR = Period(1, "day"), Period(1, "hour")


@dataclass(frozen=True, kw_only=True)
class Throughput(EvidenceCheck):
    """The stream is slower than agreed, or than Kafka fills.

    Two figures over the period, each against its own limits. *Rows per second* are the rows of all micro-batches over
    the time that their triggers took, waiting left out: what the stream manages while it works. *Kept up* is the share
    of the offsets that arrived in Kafka, between the period's first micro-batch and its last, that were read in that
    time: 0.9 means that lag grew by a tenth of what arrived. A share below its limit counts only where more offsets are
    left behind than the largest micro-batch reads; less than that is the next one on its way.

    It needs the progress of micro-batches ([progress](progress.md)); with fewer than `min_batches` that read rows it is
    skipped, and the limits on kept up where Spark did not tell Kafka's latest offsets.

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
    needs: ClassVar[Sequence[str]] = ("progress",)
    scope: ClassVar[str] = "pipeline"

    warn_below: float | None = None
    error_below: float | None = None
    warn_kept_up: float | None = 0.95
    error_kept_up: float | None = None
    min_batches: int = 10

    def judge(self, witnesses: Witnesses) -> Verdict:
        """A figure below its limit warns or fails."""
        batches = _batches(witnesses)
        working = [batch for batch in batches if batch.rows and batch.seconds]
        if len(working) < max(1, self.min_batches):
            return _too_few(witnesses, len(working), self.min_batches, "that read rows")
        rows, seconds = sum(batch.rows for batch in working), sum(batch.seconds for batch in working)
        rate = rows / seconds
        share = kept_up(batches)
        of = f"{plural(len(working), 'micro-batch')}, {rows:,} rows in {seconds:,.1f} s"
        told = f"{rate:,.0f} rows/s while working ({of})"
        evidence: dict[str, Any] = {"batches": len(working), "rows": rows, "seconds": seconds, "rows_per_second": rate}
        if share is None:
            if self.error_kept_up is not None:
                return Verdict(
                    unproved=f"Spark did not tell Kafka's latest offsets, so error_kept_up cannot be judged; {told}",
                    evidence=evidence,
                )
            said = f"{told}; how far that keeps up with Kafka is not known"
        else:
            evidence |= {"offsets_read": share.read, "offsets_arrived": share.arrived, "kept_up": share.share}
            said = f"{told}; {share.read:,} of {share.arrived:,} offsets that arrived were read"
        # A limit of 0.95 on 1,000 offsets would otherwise warn of the one micro-batch that is just being read.
        behind = share is not None and share.left_behind > max(batch.offsets or 0 for batch in batches)
        ratio = share.share if share is not None and behind else None
        for fails, below, kept in (
            (True, self.error_below, self.error_kept_up),
            (False, self.warn_below, self.warn_kept_up),
        ):
            why = []
            if below is not None and rate < below:
                why.append(f"below {below:,g} rows/s")
            if kept is not None and ratio is not None and ratio < kept:
                why.append(f"kept up with {ratio:.1%}, below {kept:.1%}")
            if why:
                message = f"{' and '.join(why)}: {said}; `recon advise` tells what would help"
                return Verdict(failures=int(fails), warnings=int(not fails), message=message, evidence=evidence)
        return Verdict(message=said, evidence=evidence)


@dataclass(frozen=True, kw_only=True)
class LagTrend(EvidenceCheck):
    """The stream falls behind Kafka for good, or Kafka will delete records before they are read.

    Lag is what Kafka held beyond each micro-batch when it was planned, in offsets. It *grows* when its slope over the
    period (Theil and Sen's median of slopes) is up beyond chance (Mann and Kendall's test, one in a hundred) and it
    gained more than the largest micro-batch reads. One burst that is worked off is no trend.

    The forecast says when Kafka's log start passes the position of the slowest partition that has unread records. It is
    made in two ways, and the earlier one counts. *By log starts*: from how fast the log start moved since an earlier
    audit, and how fast the stream reads. *By retention*: from the age of the oldest unread record, the topic's
    `retention.ms` and the rate at which that age grows. A query that has stopped reads nothing any more. Segments are
    deleted whole, so that Kafka may keep records a little longer than forecast.

    It needs the progress of micro-batches ([progress](progress.md)), and for the forecast a broker, where the ledger
    gives the positions. With fewer than `min_batches` that tell their lag it is skipped.

    Args:
        warn_if_within: warn when unread records will be deleted within this time, as `{count: 1, period: day}`.
        error_if_within: fail when they will be deleted within it. Periods are minute, hour and day.
        min_batches: so many micro-batches with a known lag are needed for a verdict.

    Codes:
        LAG: lag grows (warns).
        RETENTION_NEAR: unread records will be deleted within `warn_if_within` (warns).
        LOSS_AHEAD: they will be deleted within `error_if_within`.
        INCONCLUSIVE: lag grows, `error_if_within` is set, and nothing was there to make a forecast from.

    Example:
        data_tests:
          - lag_trend:
              arguments:
                warn_if_within: {count: 1, period: day}
                error_if_within: {count: 6, period: hour}
    """

    test: ClassVar[str] = "lag_trend"
    needs: ClassVar[Sequence[str]] = ("progress",)
    uses: ClassVar[Sequence[str]] = ("kafka", "progress_offsets")
    scope: ClassVar[str] = "pipeline"

    warn_if_within: Period | None = _DAY
    error_if_within: Period | None = None
    min_batches: int = 20

    def judge(self, witnesses: Witnesses) -> Verdict:
        """Growing lag warns; records that will be deleted unread within `error_if_within` fail."""
        progress = witnesses.progress
        assert not isinstance(progress, Unavailable)
        progress = progress.newest_query
        known = [batch for batch in progress.batches if batch.lag is not None]
        if len(known) < max(3, self.min_batches):
            return _too_few(witnesses, len(known), max(3, self.min_batches), "that tell their lag")
        lags = [float(batch.lag or 0) for batch in known]
        found = trend(_seconds(known), lags)
        if found is None:
            return _too_few(witnesses, 1, self.min_batches, "at different times")
        span = (known[-1].at - known[0].at).total_seconds()
        largest = max((batch.offsets or 0 for batch in progress.batches), default=0)
        grows = found.rises and found.line.slope * span > largest
        per_hour = found.line.slope * 3600
        said = (
            f"lag went from {lags[0]:,.0f} to {lags[-1]:,.0f} offsets over {_length(span)}"
            f" ({per_hour:+,.0f} offsets an hour, {plural(len(known), 'micro-batch')})"
        )
        findings = Findings.of(witnesses)
        if grows:
            findings.add(Code.LAG, f"the stream falls behind: {said}; `recon advise` tells what would help")
        forecasts = sorted(forecast(progress, witnesses, found if grows else None), key=lambda f: f.seconds)
        if forecasts:
            self._tell(forecasts[0], len(forecasts), findings)
        elif grows and self.error_if_within is not None:
            kafka = witnesses.kafka
            why = kafka.reason if isinstance(kafka, Unavailable) else "no log start seen before, no retention.ms known"
            findings.add(
                Code.INCONCLUSIVE, f"when Kafka will delete what is unread cannot be forecast ({why}), and {said}"
            )
        kafka = witnesses.kafka
        starts = [] if isinstance(kafka, Unavailable) else _log_starts(kafka)
        return findings.verdict(
            said,
            batches=len(known),
            offsets_per_hour=per_hour,
            z=found.z,
            lag=lags[-1],
            log_starts=starts,
            forecast=[f._asdict() | {"key": f"{f.key[0]}-{f.key[1]}"} for f in forecasts[:5]],
        )

    def _tell(self, soonest: Forecast, count: int, findings: Findings) -> None:
        for code, limit in ((Code.LOSS_AHEAD, self.error_if_within), (Code.RETENTION_NEAR, self.warn_if_within)):
            if limit is None or soonest.seconds > limit.length.total_seconds():
                continue
            topic, partition = soonest.key
            when = f"in {_length(soonest.seconds)}" if soonest.seconds else "any moment now"
            more = f", the first of {plural(count, 'partition')}" if count > 1 else ""
            findings.add(
                code,
                f"{topic}-{partition}: Kafka will delete unread records {when}{more} ({soonest.how}); read faster, or "
                "let the topic keep them longer",
                topic=topic,
                partition=partition,
                start_offset=soonest.committed,
            )
            return


@dataclass(frozen=True, kw_only=True)
class StateGrowth(EvidenceCheck):
    """The query's state grows without end, or its watermark stands still.

    State *grows* when the rows or the bytes of all stateful operators rise beyond chance (as `lag_trend` says it), over
    the whole period and over its second half: what fills up to its watermark and stays there is no growth. At the pace
    of the second half it doubles in a time that the limits are held against. A watermark *stands still* when it was the
    same in all micro-batches that read rows for `watermark_still`, or was never set: then no state is ever dropped.

    It needs the progress of micro-batches ([progress](progress.md)). A query without state, or with fewer than
    `min_batches`, is skipped.

    Args:
        warn_if_doubling_within: warn when the state doubles within this time, as `{count: 1, period: day}`.
        error_if_doubling_within: fail when it does.
        error_above_bytes: fail when the state's bytes in the last micro-batch are more.
        watermark_still: warn when the watermark has not moved for so long though rows were read; null asks nothing.
        min_batches: so many micro-batches with state are needed for a verdict.

    Example:
        data_tests:
          - state_growth:
              arguments:
                error_if_doubling_within: {count: 6, period: hour}
                watermark_still: {count: 30, period: minute}
    """

    test: ClassVar[str] = "state_growth"
    needs: ClassVar[Sequence[str]] = ("progress",)
    scope: ClassVar[str] = "pipeline"

    warn_if_doubling_within: Period | None = _DAY
    error_if_doubling_within: Period | None = None
    error_above_bytes: int | None = None
    watermark_still: Period | None = _HOUR
    min_batches: int = 20

    def judge(self, witnesses: Witnesses) -> Verdict:
        """Growth beyond a limit warns or fails; a watermark that stands still warns."""
        batches = [batch for batch in _batches(witnesses) if batch.state_rows is not None]
        if not batches and _batches(witnesses):
            return Verdict(skipped="the query keeps no state")
        if len(batches) < max(6, self.min_batches):
            return _too_few(witnesses, len(batches), max(6, self.min_batches), "with state")
        last = batches[-1]
        evidence: dict[str, Any] = {
            "batches": len(batches),
            "state_rows": last.state_rows,
            "state_bytes": last.state_bytes,
            "watermark": None if last.watermark is None else last.watermark.isoformat(),
        }
        failing: list[str] = []
        warning: list[str] = []
        for what, values in (
            ("rows", [float(batch.state_rows or 0) for batch in batches]),
            ("bytes", [float(batch.state_bytes or 0) for batch in batches]),
        ):
            growth = _growth(_seconds(batches), values)
            evidence[f"{what}_per_hour"] = None if growth is None else growth.per_hour
            evidence[f"{what}_double_in_seconds"] = None if growth is None else growth.doubles_in
            if growth is None:
                continue
            said = (
                f"state {what} grow by {growth.per_hour:,.0f} an hour and double in {_length(growth.doubles_in)} "
                f"(now {values[-1]:,.0f})"
            )
            if _within(growth.doubles_in, self.error_if_doubling_within):
                failing.append(said)
            elif _within(growth.doubles_in, self.warn_if_doubling_within):
                warning.append(said)
        if self.error_above_bytes is not None and (last.state_bytes or 0) > self.error_above_bytes:
            failing.append(f"the state holds {last.state_bytes:,} bytes, more than {self.error_above_bytes:,}")
        warning.extend(self._still(batches))
        told = (
            f"{last.state_rows or 0:,} rows, {last.state_bytes or 0:,} bytes in {plural(len(batches), 'micro-batch')}"
        )
        message = "; ".join([*failing, *warning]) or f"the state does not grow: {told}"
        return Verdict(
            failures=len(failing), warnings=len(warning), message=message, evidence={**evidence, "said": told}
        )

    def _still(self, batches: Sequence[BatchProgress]) -> Iterator[str]:
        """Why the watermark drops no state, if it does not."""
        if self.watermark_still is None:
            return
        last = batches[-1]
        # The first micro-batch of a query has none yet; its rows set that of the next.
        reading = [batch for batch in batches if batch.rows and batch.batch_id > 0]
        span = timedelta(0) if not reading else reading[-1].at - reading[0].at
        if last.watermark is None:
            if reading and span >= self.watermark_still.length:
                yield (
                    "the query keeps state and no watermark was ever set, so none of it is dropped; set withWatermark "
                    "on its event time"
                )
            return
        same = []
        for batch in reversed(reading):
            if batch.watermark != last.watermark:
                break
            same.append(batch)
        if same and same[0].at - same[-1].at >= self.watermark_still.length:
            yield (
                f"the watermark stands at {last.watermark:%Y-%m-%d %H:%M:%S}Z since {same[-1].at:%Y-%m-%d %H:%M:%S}Z, "
                f"though {sum(batch.rows for batch in same):,} rows were read: their event times do not advance, and "
                "no state is dropped"
            )


# -- throughput ------------------------------------------------------------------------------------------------------


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
    known = [batch for batch in batches if batch.lag is not None]
    if len(known) < 2:
        return None
    first, last = known[0], known[-1]
    between = [batch for batch in batches if first.at < batch.at <= last.at]
    if any(batch.offsets is None or batch.partitions != first.partitions for batch in between):
        return None
    read = sum(batch.offsets or 0 for batch in between)
    return KeptUp(read, read + (last.lag or 0) - (first.lag or 0))


# -- lag -------------------------------------------------------------------------------------------------------------


class Forecast(NamedTuple):
    """When the log start of a partition passes its first unread record, in seconds from now, and how that was found."""

    key: TopicPartition
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
    kafka = witnesses.kafka
    if isinstance(kafka, Unavailable):
        return
    paces = _paces(progress, kafka.read_at, growing)
    before = witnesses.previous.log_starts if witnesses.previous else {}
    for key, pace in paces.items():
        topic = kafka.topics.get(key[0])
        now = topic.partitions.get(key[1]) if topic is not None else None
        if topic is None or now is None or now.log_end <= pace.committed:
            continue
        found = []
        seen = before.get(key)
        if seen is not None and (kafka.read_at - seen[0]).total_seconds() >= 600 and now.log_start > seen[1]:
            deletes = (now.log_start - seen[1]) / (kafka.read_at - seen[0]).total_seconds()
            if deletes > pace.reads:
                left = max(pace.committed - now.log_start, 0) / (deletes - pace.reads)
                found.append(
                    Forecast(
                        key,
                        left,
                        pace.committed,
                        f"the log start moves by {deletes:,.1f} offsets/s, the stream reads {pace.reads:,.1f}, and "
                        f"{max(pace.committed - now.log_start, 0):,} offsets lie between",
                    )
                )
        deleting = topic.retention_ms is not None and topic.retention_ms >= 0 and "delete" in topic.cleanup_policy
        if deleting and topic.retention_ms is not None and now.unread_since is not None:
            age, keeps = (kafka.read_at - now.unread_since).total_seconds(), topic.retention_ms / 1000
            ages = 1.0 if pace.reads <= 0 else max(pace.gains, 0) / (pace.reads + max(pace.gains, 0))
            if ages > 0 or age >= keeps:
                found.append(
                    Forecast(
                        key,
                        0.0 if age >= keeps else (keeps - age) / ages,
                        pace.committed,
                        f"the oldest unread record is {_length(age)} old, gains {ages:.2f} s of age a second, and "
                        f"retention.ms is {_length(keeps)}",
                    )
                )
        if found:
            yield min(found, key=lambda one: one.seconds)


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
    found = {}
    for key, committed in end.end.items():
        came_from = begin.end.get(key, committed)
        reads = 0.0 if stopped or span <= 0 else max(committed - came_from, 0) / span
        lag_then = begin.latest.get(key, came_from) - came_from
        lag_now = end.latest.get(key, committed) - committed
        gains = (lag_now - lag_then) / span if growing is not None and span > 0 else 0.0
        found[key] = _Pace(committed, reads, gains)
    return found


def _log_starts(kafka: KafkaWitness) -> list[list[Any]]:
    return [
        [name, number, partition.log_start]
        for name, topic in sorted(kafka.topics.items())
        for number, partition in sorted(topic.partitions.items())
    ]


# -- state -----------------------------------------------------------------------------------------------------------


class _Growth(NamedTuple):
    per_hour: float
    doubles_in: float


def _growth(seconds: Sequence[float], values: Sequence[float]) -> _Growth | None:
    """How fast a figure grows, by its second half; None when it does not."""
    half = len(values) // 2
    whole, late = trend(seconds, values), trend(seconds[half:], values[half:])
    if whole is None or late is None or not (whole.rises and late.rises):
        return None
    now = max(median(values[-3:]), 1.0)
    return _Growth(late.line.slope * 3600, now / late.line.slope)


def _within(seconds: float, limit: Period | None) -> bool:
    return limit is not None and seconds <= limit.length.total_seconds()


# -- shared ----------------------------------------------------------------------------------------------------------


def _batches(witnesses: Witnesses) -> Sequence[BatchProgress]:
    progress = witnesses.progress
    assert not isinstance(progress, Unavailable)
    return progress.newest_query.batches


def _seconds(batches: Sequence[BatchProgress]) -> list[float]:
    return [(batch.at - batches[0].at).total_seconds() for batch in batches]


def _too_few(witnesses: Witnesses, found: int, wanted: int, which: str) -> Verdict:
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


def _length(seconds: float) -> str:
    """A length of time as people say it.

    >>> _length(5400), _length(59), _length(3 * 86400)
    ('1.5 hours', '59 s', '3.0 days')
    """
    for unit, size in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


__all__ = ["Forecast", "KeptUp", "LagTrend", "StateGrowth", "Throughput", "forecast", "kept_up"]
