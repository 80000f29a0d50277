"""What would make a stream run better, with the arithmetic: rules over recorded progress, recon.yml and Kafka.

A rule is a function from `Facts` to one `Advice`: it recommends a value, says that what is there is right, or says what
it lacks to tell. Rules are pure; `advise` gathers the facts. Nothing is changed anywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise
from typing import Any, Literal

from recon.checks.evidence.progress import kept_up
from recon.checks.evidence.trend import Line, median, quantile, theil_sen
from recon.errors import ReconError
from recon.ledger.progress import open_progress, read_progress
from recon.model import KafkaTopic, KafkaWitness
from recon.model.progress import BatchProgress, ProgressWitness
from recon.project import Pipeline, Project

LOOK_BACK = timedelta(days=7)
FULL = 0.8  # of the target time is planned for: what is left takes the slower micro-batches
FIXED_SHARE = 0.2  # of the time may go to fixed costs
SAFETY = 2.0  # times the longest downtime must fit into retention
STATE_BUDGET = 1 << 30  # bytes of state that a query may keep without a second thought
ROCKSDB_FROM = 256 << 20  # bytes of state on the heap from which the garbage collector feels it
_FEWEST = 10  # micro-batches for a rule
_FARTHEST = 3  # times the largest micro-batch seen, a line is followed
_STEPS = (0.5, 1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1800, 3600)

Says = Literal["change", "keep", "unknown"]


@dataclass(frozen=True, kw_only=True)
class Advice:
    """One rule's answer for one pipeline.

    `says` is "change", "keep" or "unknown"; `setting` and `value` are what to set, where that is one thing; `because`
    is the arithmetic in words, `figures` the numbers it rests on. For "unknown", `because` says what is lacking.
    """

    rule: str
    pipeline: str
    says: Says
    recommendation: str
    because: str
    setting: str | None = None
    value: Any = None
    figures: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What the rules look at; None where it is not known.

    `cores` run the query's tasks. `topics` is what Kafka says now, `unread_for` the age of the oldest unread record.
    `kinds` are the kinds of the pipeline's sinks.
    """

    pipeline: str
    batches: Sequence[BatchProgress]
    target: timedelta
    cores: int | None = None
    topics: Mapping[str, KafkaTopic] | None = None
    unread_for: timedelta | None = None
    kinds: Sequence[str] = ()

    @property
    def settled(self) -> list[BatchProgress]:
        """Micro-batches that read rows, without the first of each run, which warms up."""
        started: set[str] = set()
        found = []
        for batch in self.batches:
            if batch.run_id in started and batch.rows and batch.seconds:
                found.append(batch)
            started.add(batch.run_id)
        return found

    @property
    def rows_per_second(self) -> float | None:
        """How fast rows come in: over the runs' time, from the first micro-batch of each to its last."""
        rows, seconds = 0, 0.0
        for run in _runs(self.batches):
            rows += sum(batch.rows for batch in run[1:])
            seconds += (run[-1].at - run[0].at).total_seconds()
        if not seconds or not rows:
            return None
        share = kept_up(self.batches)
        grown = 1.0 if share is None or not share.read else max(1.0, share.arrived / share.read)
        return rows / seconds * grown


@dataclass(frozen=True)
class Cost:
    """What a micro-batch costs: `fixed` seconds and `per_row` seconds for each row, over `count` micro-batches.

    `worst` is the 95th percentile of measured over expected time, `least` and `most` the 5th and 95th of rows.
    """

    fixed: float
    per_row: float
    worst: float
    count: int
    least: float
    most: float

    def of(self, rows: float) -> float:
        """The expected seconds of a micro-batch."""
        return self.fixed + self.per_row * rows

    def __str__(self) -> str:
        return (
            f"a micro-batch takes {self.fixed:.2f} s + {self.per_row * 1e6:,.2f} µs a row (robust line through "
            f"{self.count} micro-batches of {self.least:,.0f} to {self.most:,.0f} rows; the 95th percentile takes "
            f"{self.worst:.2f} times that)"
        )

    @property
    def figures(self) -> dict[str, Any]:
        """The numbers of the sentence."""
        return {
            "fixed_seconds": self.fixed,
            "seconds_per_row": self.per_row,
            "p95_over_expected": self.worst,
            "batches": self.count,
            "rows_p5": self.least,
            "rows_p95": self.most,
        }


def cost(batches: Sequence[BatchProgress]) -> Cost | str:
    """The line through micro-batches' rows and seconds, or why there is none."""
    if len(batches) < _FEWEST:
        return f"{len(batches)} micro-batches with rows are recorded after each run's first, and {_FEWEST} are needed"
    rows, seconds = [float(b.rows) for b in batches], [b.seconds for b in batches]
    least, most = quantile(rows, 0.05), quantile(rows, 0.95)
    if most < 1.5 * max(least, 1.0):
        return (
            f"all {len(batches)} micro-batches have about the same rows ({least:,.0f} to {most:,.0f}), so fixed cost "
            "and cost per row cannot be told apart; let it run once with another maxOffsetsPerTrigger, or work off a "
            "backlog"
        )
    line = theil_sen(rows, seconds)
    if line is None or line.slope <= 0:
        return (
            f"over {len(batches)} micro-batches of {least:,.0f} to {most:,.0f} rows, more rows did not take longer: "
            "fixed cost is all there is to see; larger micro-batches would show the cost of a row"
        )
    # Through the origin at least: a negative fixed cost is noise.
    line = line if line.intercept >= 0 else Line(median([s / r for s, r in zip(seconds, rows, strict=True)]), 0.0)
    ratios = [s / max(line.at(r), 1e-9) for s, r in zip(seconds, rows, strict=True)]
    return Cost(line.intercept, line.slope, max(1.0, quantile(ratios, 0.95)), len(batches), least, most)


# -- rules -----------------------------------------------------------------------------------------------------------


def max_offsets_per_trigger(facts: Facts) -> Advice:
    """How many offsets a micro-batch may read so that it is done within the target time."""
    rule, setting = "max_offsets_per_trigger", "maxOffsetsPerTrigger"
    say = partial(Advice, rule=rule, pipeline=facts.pipeline)
    found = cost(facts.settled)
    if isinstance(found, str):
        return _unknown(rule, facts, found, setting)
    target = facts.target.total_seconds()
    room = target * min(FULL, 1 / found.worst)
    figures = {**found.figures, "target_seconds": target, "planned_seconds": room}
    if found.fixed >= room:
        return say(
            says="change",
            recommendation=f"choose a longer target than {target:g} s: at least {_nice(found.fixed / FULL * 2):g} s",
            because=f"{found}; its fixed cost alone takes the {room:.1f} s that can be planned of {target:g} s",
            setting="--target-batch-time",
            value=_nice(found.fixed / FULL * 2),
            figures=figures,
        )
    per_row = _offsets_per_row(facts.settled)
    fits = (room - found.fixed) / found.per_row
    farthest = _FARTHEST * max(float(batch.rows) for batch in facts.settled)
    rows = min(fits, farthest)
    value = _round_down(rows * per_row)
    arithmetic = (
        f"{found}; of {target:g} s {room:.1f} s are planned, so ({room:.1f} - {found.fixed:.2f}) / "
        f"{found.per_row * 1e6:,.2f} µs = {fits:,.0f} rows"
    )
    if rows < fits:
        arithmetic += (
            f"; no micro-batch seen was larger than a third of {farthest:,.0f}, and the line is followed no farther"
        )
    if per_row > 1.005:
        arithmetic += f"; a row takes {per_row:.2f} offsets (transaction markers, compaction)"
    figures |= {"rows": rows, "offsets_per_row": per_row, "value": value}
    arrives = facts.rows_per_second
    if arrives is not None:
        able = rows / target
        figures |= {"rows_per_second_arriving": arrives, "rows_per_second_able": able}
        arithmetic += f"; that is {able:,.0f} rows/s where {arrives:,.0f} arrive"
        if able < arrives:
            arithmetic += (
                ", which is too little: lag would grow; take a longer target, or more cores and partitions"
                if rows == fits
                else ", which is too little: raise it again when such micro-batches have been measured"
            )
    return say(
        says="change",
        recommendation=f"set maxOffsetsPerTrigger to {value:,} for micro-batches of at most {target:g} s",
        because=arithmetic,
        setting=setting,
        value=value,
        figures=figures,
    )


def trigger_interval(facts: Facts) -> Advice:
    """A processing-time trigger whose fixed costs are a small share of the time, and that keeps up."""
    rule, setting = "trigger_interval", "trigger(processingTime=…)"
    say = partial(Advice, rule=rule, pipeline=facts.pipeline)
    found = cost(facts.settled)
    if isinstance(found, str):
        return _unknown(rule, facts, found, setting)
    arrives = facts.rows_per_second
    if arrives is None:
        return _unknown(rule, facts, "no run has two micro-batches to take a rate from", setting)
    gaps = [(b.at - a.at).total_seconds() for run in _runs(facts.batches) for a, b in pairwise(run)]
    now = median(gaps)
    busy = found.per_row * arrives
    figures = {**found.figures, "rows_per_second": arrives, "interval_seconds": now, "busy_share_of_rows": busy}
    figures["fixed_share"] = found.fixed / now if now else 1.0
    if busy >= FULL:
        return say(
            says="change",
            recommendation="no trigger interval helps: give the query more cores, or make the work per row cheaper",
            because=f"{found}; {arrives:,.0f} rows/s take {busy:.0%} of the time, and {FULL:.0%} can be planned",
            figures=figures,
        )
    keeps_up, cheap = found.fixed / (FULL - busy), found.fixed / FIXED_SHARE
    best = _nice(max(keeps_up, cheap))
    share = found.fixed / now if now else 1.0
    arithmetic = (
        f"{found}; at {arrives:,.0f} rows/s rows take {busy:.0%} of the time; fixed costs stay below {FIXED_SHARE:.0%} "
        f"from {cheap:.1f} s on, and a micro-batch is done in {FULL:.0%} of its interval from {keeps_up:.1f} s on; now "
        f"a micro-batch starts every {now:.1f} s (median of {len(gaps)}), {min(share, 1):.0%} of it fixed costs"
    )
    right = now >= max(keeps_up, cheap) * 0.99
    figures["value"] = best
    return say(
        says="keep" if right else "change",
        recommendation=(
            f"the interval of about {now:.3g} s is right; {best:g} s would do, too"
            if right
            else f"set the trigger to processingTime='{best:g} seconds'"
        ),
        because=arithmetic,
        setting=setting,
        value=best,
        figures=figures,
    )


def partitions(facts: Facts) -> Advice:
    """Kafka partitions and shuffle partitions against the cores that run their tasks."""
    rule = "partitions"
    say = partial(Advice, rule=rule, pipeline=facts.pipeline)
    cores = facts.cores
    if not cores:
        return _unknown(rule, facts, "the number of cores is not known; give --cores", None)
    last = facts.batches[-1] if facts.batches else None
    if facts.topics is not None:
        count = sum(len(topic.partitions) for topic in facts.topics.values())
    else:
        count = (last.partitions if last is not None else None) or 0
    if not count:
        return _unknown(rule, facts, "neither Kafka nor the recorded progress tells the number of partitions", None)
    waves = math.ceil(count / cores)
    used = count / (waves * cores)
    figures: dict[str, Any] = {"partitions": count, "cores": cores, "waves": waves, "cores_used": used}
    in_waves = f"{waves} waves that use" if waves > 1 else "one wave that uses"
    told = [f"{count} Kafka partitions are {count} tasks on {cores} cores: {in_waves} {used:.0%} of them"]
    says: Says = "keep"
    setting, value = None, None
    advice = f"{count} Kafka partitions suit {cores} cores"
    if count < cores:
        says, setting, value = "change", "minPartitions", cores
        advice = f"set minPartitions to {cores}, or give the topics {cores} partitions: {cores - count} cores are idle"
    elif waves > 1 and used < 0.75:
        says, setting = "change", "partitions"
        value = (waves - 1) * cores if count - (waves - 1) * cores <= cores // 4 else waves * cores
        advice = (
            f"use a multiple of {cores} tasks, such as {value}: the last wave leaves {1 - used:.0%} of the cores idle"
        )
    elif waves > 20:
        says, setting, value = "change", "coalesce", 3 * cores
        advice = (
            f"put the {count} partitions into about {3 * cores} tasks (coalesce in the transform), or use more cores: "
            f"{waves} waves of small tasks cost scheduling in every micro-batch"
        )
    shuffle = next((b.state_partitions for b in reversed(facts.batches) if b.state_partitions), None)
    if shuffle:
        figures["shuffle_partitions"] = shuffle
        told.append(f"the state has {shuffle} shuffle partitions, {shuffle / cores:.1f} for each core")
        if shuffle < cores or shuffle > 3 * cores:
            says = "change"
            more = f"set spark.sql.shuffle.partitions to {cores} to {3 * cores} (a new checkpoint is needed)"
            advice = f"{more}; {advice}"
            setting, value = setting or "spark.sql.shuffle.partitions", value or 2 * cores
    return say(
        says=says,
        recommendation=advice,
        because="; ".join(told),
        setting=setting,
        value=value,
        figures=figures,
    )


def deduplication(facts: Facts) -> Advice:
    """Duplicates dropped by state (watermark + dropDuplicates) or by the sink's MERGE: which window fits into state."""
    rule = "deduplication"
    say = partial(Advice, rule=rule, pipeline=facts.pipeline)
    arrives = facts.rows_per_second
    state = [b for b in facts.batches if any(name.startswith("dedupe") for name in b.state_operators)]
    merges = [kind for kind in facts.kinds if kind in ("delta_merge", "jdbc_upsert")]
    if arrives is None or len(facts.settled) < _FEWEST:
        lacks = f"{len(facts.settled)} micro-batches with rows are recorded, and {_FEWEST} are needed for a rate"
        return _unknown(rule, facts, lacks, None)
    stored = [b for b in state if b.state_rows and b.state_bytes]
    each = median([(b.state_bytes or 0) / (b.state_rows or 1) for b in stored]) if stored else None
    known = each is not None
    # 60 short keys took 12,032 bytes of the state store on the heap (Spark 4.0).
    each = each if each is not None else 200.0
    window = STATE_BUDGET / (each * arrives)
    source = f"measured over {len(stored)} micro-batches" if known else "assumed, as the query keeps no such state"
    arithmetic = (
        f"{arrives:,.0f} rows/s of {each:,.0f} bytes of state each ({source}) fill {_bytes(STATE_BUDGET)} in "
        f"{_span(window)}: "
        + ", ".join(
            f"{name} takes {_bytes(each * arrives * s)}"
            for name, s in (("1 hour", 3600), ("1 day", 86400), ("7 days", 604800))
        )
    )
    figures: dict[str, Any] = {
        "rows_per_second": arrives,
        "bytes_per_key": each,
        "measured": known,
        "window_seconds": window,
        "budget_bytes": STATE_BUDGET,
    }
    if state:
        last = state[-1]
        figures |= {"state_bytes": last.state_bytes, "state_rows": last.state_rows}
        if last.watermark is None:
            return say(
                says="change",
                recommendation=(
                    f"set withWatermark before dropDuplicates, of at most {_span(window)}: now every key is kept for "
                    "ever"
                ),
                because=f"no watermark in {len(state)} micro-batches, {last.state_rows or 0:,} keys kept; {arithmetic}",
                setting="withWatermark",
                value=window,
                figures=figures,
            )
        delays = [(b.at - b.watermark).total_seconds() for b in state if b.watermark is not None]
        delay = median(delays)
        figures["window_now_seconds"] = delay
        arithmetic += f"; the watermark lies {_span(delay)} back (median of {len(delays)})"
        if delay > window:
            return say(
                says="change",
                recommendation=(
                    f"use MERGE on the key for a window of {_span(delay)}, and keep state for at most {_span(window)}"
                ),
                because=arithmetic,
                setting="kind",
                value="delta_merge",
                figures=figures,
            )
        return say(
            says="keep",
            recommendation=f"watermark and dropDuplicates suit a window of {_span(delay)}",
            because=arithmetic,
            figures=figures,
        )
    if merges:
        return say(
            says="keep",
            recommendation=(
                f"{merges[0]} drops duplicates of any age; if they are never more than {_span(window)} apart, "
                "withWatermark and dropDuplicates before a plain append cost less"
            ),
            because=arithmetic,
            figures=figures,
        )
    return say(
        says="keep",
        recommendation=(
            f"nothing drops duplicates here; if the producer sends any, withWatermark and dropDuplicates do for up to "
            f"{_span(window)} between them, and a delta_merge sink beyond"
        ),
        because=arithmetic,
        figures=figures,
    )


def fail_on_data_loss(facts: Facts) -> Advice:
    """Whether Kafka keeps records long enough for the longest downtime, so that failOnDataLoss may stay true."""
    rule, setting = "fail_on_data_loss", "failOnDataLoss"
    say = partial(Advice, rule=rule, pipeline=facts.pipeline)
    if facts.topics is None:
        return _unknown(rule, facts, "Kafka did not answer or was not asked, so retention.ms is not known", setting)
    deleting = {t.topic: t.retention_ms for t in facts.topics.values() if t.exists and "delete" in t.cleanup_policy}
    if any(ms is None for ms in deleting.values()):
        return _unknown(rule, facts, "Kafka does not tell retention.ms of the topics to this user", setting)
    if len(facts.batches) < 2:
        return _unknown(rule, facts, "fewer than 2 micro-batches are recorded, so no downtime can be seen", setting)
    # Time in which a query lives and finds nothing to do is no downtime; between two runs it is not known which.
    down = max(
        ((b.at - a.done).total_seconds() for a, b in pairwise(facts.batches) if a.run_id != b.run_id), default=0.0
    )
    age = facts.unread_for.total_seconds() if facts.unread_for is not None else 0.0
    limits = [ms / 1000 for ms in deleting.values() if ms is not None and ms >= 0]
    figures = {"downtime_seconds": down, "unread_for_seconds": age, "retention_seconds": min(limits, default=None)}
    if not limits:
        return say(
            says="keep",
            recommendation="keep failOnDataLoss at true: Kafka deletes nothing by age here",
            because="no topic has a retention.ms that deletes",
            setting=setting,
            value=True,
            figures=figures,
        )
    shortest, needs = min(limits), SAFETY * (down + age)
    runs = len(_runs(facts.batches))
    arithmetic = (
        f"the shortest retention.ms is {_span(shortest)}; the longest time between two of {runs} runs was "
        f"{_span(down)} and the oldest unread record is {_span(age)} old, {SAFETY:g} times their sum is {_span(needs)}"
    )
    if needs <= shortest:
        return say(
            says="keep",
            recommendation=(
                "keep failOnDataLoss at true: retention outlasts the downtimes seen, and a loss should stop the query"
            ),
            because=arithmetic,
            setting=setting,
            value=True,
            figures=figures,
        )
    wanted = math.ceil(needs / 3600) * 3_600_000
    return say(
        says="change",
        recommendation=(
            f"raise retention.ms to {wanted:,} and keep failOnDataLoss at true: with false, Spark steps over what was "
            "deleted, and only the audit (LOSS_RETENTION) tells"
        ),
        because=arithmetic,
        setting="retention.ms",
        value=wanted,
        figures=figures,
    )


def state_store(facts: Facts) -> Advice:
    """Whether state has outgrown the heap, and belongs into RocksDB."""
    rule, setting = "state_store", "spark.sql.streaming.stateStore.providerClass"
    say = partial(Advice, rule=rule, pipeline=facts.pipeline)
    state = [b for b in facts.batches if b.state_bytes is not None]
    if not facts.batches:
        return _unknown(rule, facts, "no micro-batch is recorded", setting)
    if not state:
        return say(
            says="keep",
            recommendation="nothing to choose: the query keeps no state",
            because=f"none of {len(facts.batches)} micro-batches had a stateful operator",
        )
    sizes = [float(b.state_bytes or 0) for b in state]
    high, last = quantile(sizes, 0.95), state[-1]
    figures = {"state_bytes_p95": high, "state_rows": last.state_rows, "rocksdb": last.rocksdb, "batches": len(state)}
    arithmetic = (
        f"the state takes {_bytes(median(sizes))} (median of {len(sizes)} micro-batches; 95th percentile "
        f"{_bytes(high)}), {last.state_rows or 0:,} rows; on the heap {_bytes(ROCKSDB_FROM)} is where pauses begin to "
        "show"
    )
    if last.rocksdb:
        told = "RocksDB is in use, and right for a state of this size or one that grows"
    elif high < ROCKSDB_FROM:
        told = "the state store on the heap is right for a state of this size"
    else:
        return say(
            says="change",
            recommendation=(
                "use the RocksDB state store, with changelog checkpointing; a new checkpoint is needed, as the "
                "provider of one cannot be changed"
            ),
            because=arithmetic,
            setting=setting,
            value="org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
            figures=figures,
        )
    return say(says="keep", recommendation=told, because=arithmetic, figures=figures)


RULES: tuple[Callable[[Facts], Advice], ...] = (
    max_offsets_per_trigger,
    trigger_interval,
    partitions,
    deduplication,
    fail_on_data_loss,
    state_store,
)


# -- gather ----------------------------------------------------------------------------------------------------------


def advise(
    project: Project,
    pipeline: str | None = None,
    *,
    target: timedelta = timedelta(seconds=10),
    cores: int | None = None,
    now: datetime | None = None,
) -> list[Advice]:
    """Every rule's answer for one pipeline, or for all.

    Args:
        project: a loaded recon.yml.
        pipeline: only this one.
        target: the time that a micro-batch may take.
        cores: that run the query's tasks; by default what its session had, as recorded.
        now: the end of the time looked at, which is a week.

    Raises:
        ConfigError: the ledger's place is not known.
        LedgerError: the progress cannot be read.
    """
    at = now or datetime.now(UTC)
    found: list[Advice] = []
    for pipe in project.pipelines:
        if pipeline in (None, pipe.name):
            progress = read_progress(open_progress(project), pipe.name, at - LOOK_BACK, at).newest_query
            facts = gather(project, pipe, progress, target=target, cores=cores, now=at)
            found.extend(rule(facts) for rule in RULES)
    return found


def gather(
    project: Project,
    pipeline: Pipeline,
    progress: ProgressWitness,
    *,
    target: timedelta,
    cores: int | None,
    now: datetime,
) -> Facts:
    """One pipeline's facts; a broker that does not answer leaves what it would have said unknown."""
    kafka = _kafka(project, pipeline, progress)
    since = (
        []
        if kafka is None
        else [p.unread_since for topic in kafka.topics.values() for p in topic.partitions.values() if p.unread_since]
    )
    recorded = next((b.cores for b in reversed(progress.batches) if b.cores), None)
    return Facts(
        pipeline=pipeline.name,
        batches=progress.batches,
        target=target,
        cores=cores or recorded,
        topics=None if kafka is None else kafka.topics,
        unread_for=now - min(since) if since else None,
        kinds=tuple(sink.kind for sink in pipeline.sinks),
    )


def _kafka(project: Project, pipeline: Pipeline, progress: ProgressWitness) -> KafkaWitness | None:
    from recon.evidence import kafka

    ends = progress.offsets[max(progress.offsets)].end if progress.offsets else {}
    topics = sorted({*pipeline.source.topics, *(topic for topic, _ in ends)})
    if "bootstrap.servers" not in project.kafka or not topics:
        return None
    try:
        return kafka.read(
            project.kafka, topics, isolation_level=pipeline.source.isolation_level, positions=dict(ends), timeout_s=5
        )
    except ReconError:
        return None


# -- shared ----------------------------------------------------------------------------------------------------------


def _unknown(rule: str, facts: Facts, lacks: str, setting: str | None) -> Advice:
    recommendation = "cannot be told yet"
    if not facts.batches:
        lacks += "; progress is recorded by spark.streams.addListener(recon.ProgressListener('.'))"
    return Advice(
        rule=rule,
        pipeline=facts.pipeline,
        says="unknown",
        recommendation=recommendation,
        because=lacks,
        setting=setting,
        figures={"batches": len(facts.batches)},
    )


def _runs(batches: Sequence[BatchProgress]) -> list[list[BatchProgress]]:
    found: dict[str, list[BatchProgress]] = {}
    for batch in batches:
        found.setdefault(batch.run_id, []).append(batch)
    return list(found.values())


def _offsets_per_row(batches: Iterable[BatchProgress]) -> float:
    known = [b.offsets / b.rows for b in batches if b.offsets and b.rows]
    return max(1.0, median(known)) if known else 1.0


def _nice(seconds: float) -> float:
    """The next interval that people write."""
    return next((float(step) for step in _STEPS if step >= seconds * 0.999), float(math.ceil(seconds / 3600) * 3600))


def _round_down(value: float) -> int:
    """Two significant digits, never more than the value.

    >>> _round_down(123456), _round_down(7.9)
    (120000, 7)
    """
    if value < 10:
        return max(1, int(value))
    unit = int(10 ** (int(math.log10(value)) - 1))
    return int(value // unit) * unit


def _bytes(count: float) -> str:
    """A size as people say it.

    >>> _bytes(1 << 30), _bytes(700)
    ('1.0 GiB', '700 B')
    """
    for unit, size in (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:,.1f} {unit}"
    return f"{count:.0f} B"


def _span(seconds: float) -> str:
    """A length of time as people say it."""
    for unit, size in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 1.5 * size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:.0f} s"


__all__ = ["RULES", "Advice", "Cost", "Facts", "advise", "cost", "gather"]
