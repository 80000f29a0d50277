"""Numbers, durations, times, offsets and places as text, the same in every report."""

from __future__ import annotations

from datetime import UTC, date, datetime

from recon.base.text import inert, plural
from recon.model import Finding, HarmCount, HarmedRange
from recon.model.incident import Harm
from recon.model.positions import described, is_kafka, partition_name


def one_line(text: str) -> str:
    r"""Text from data as one printable line: control characters, terminal escapes among them, become `\x1b` and such.

    What a CI server would take for a command of its own is none any more.

    >>> one_line("a\nb\x1b[31m")
    'a b\\x1b[31m'
    """
    joined = " ".join(text.split("\n"))
    return inert("".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in joined))


def number(value: int | float | None) -> str:
    """A number with thousands separators; None is "unknown", never 0."""
    if value is None:
        return "unknown"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"


def duration(seconds: float) -> str:
    """A duration as dbt writes it.

    >>> duration(61.5)
    '0 hours 1 minutes and 1.50 seconds'
    """
    hours, rest = divmod(seconds, 3600)
    minutes, left = divmod(rest, 60)
    return f"{int(hours)} hours {int(minutes)} minutes and {left:.2f} seconds"


def offsets(start: int | None, end: int | None, topic: str | None = None) -> str:
    """A half-open range of offsets, `[5, 9)`, or versions, or log entries; an empty text when there is none."""
    if start is not None and end is not None and topic is not None and not is_kafka(topic):
        return described(topic, start, end)
    if start is None or end is None:
        return "" if start is None else f"from {start}"
    return f"[{start}, {end})"


def topic_partition(finding: Finding) -> str:
    """`orders-3`, the way Kafka's own tools write a topic partition."""
    if finding.topic is None:
        return ""
    return finding.topic if finding.partition is None else partition_name(finding.topic, finding.partition)


def located(finding: Finding) -> str:
    """The place of a finding: topic partition, offset range, micro-batch."""
    batch = "" if finding.batch_id is None else f"batch {finding.batch_id}"
    parts = (topic_partition(finding), offsets(finding.start_offset, finding.end_offset, finding.topic), batch)
    return one_line(" ".join(part for part in parts if part))


def size(harmed: HarmedRange) -> str:
    """How many offsets a range holds; none of another source than Kafka, whose offsets are positions."""
    return number(harmed.end_offset - harmed.start_offset) if is_kafka(harmed.topic) else ""


HARMS: dict[Harm, str] = {
    "lost": "lost for good",
    "missing": "missing",
    "removed": "removed since",
    "twice": "twice",
    "other": "wrong",
    "undecided": "could not be decided",
}


def harm(count: HarmCount) -> str:
    """How much was lost, removed or doubled: rows where these are known, else the offsets that findings name.

    >>> harm(HarmCount(harm="lost", offsets=700, rows=None)), harm(HarmCount(harm="removed", offsets=0, rows=100))
    ('700 offsets lost for good', "100 rows removed since, by the sink's log")
    """
    word = HARMS[count.harm]
    if count.rows is not None:
        by = ", by the sink's log" if count.harm == "removed" and not count.offsets else ""
        return f"{plural(count.rows, 'row')} {word}{by}"
    return f"{plural(count.offsets, 'offset')} {word}" if count.offsets else word


def age(since: datetime, now: datetime) -> str:
    """How long ago something was, in its largest unit; what is younger than a minute is of this audit.

    >>> age(datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 3, 5, tzinfo=UTC))
    '2 days'
    """
    seconds = max((now - since).total_seconds(), 0)
    for unit, size in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= size:
            return plural(int(seconds // size), unit)
    return "in this audit"


def sink_name(pipeline: str | None, sink: str | None) -> str:
    """A pipeline and its sink; one name when both have the same.

    >>> sink_name("orders", "orders"), sink_name("orders", "daily"), sink_name("orders", None)
    ('orders', 'orders → daily', 'orders')
    """
    if pipeline is None:
        return "whole project"
    return pipeline if sink in (None, pipeline) else f"{pipeline} → {sink}"


def when(value: datetime | None) -> str:
    """A time in UTC, to the second.

    >>> when(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
    '2026-01-02 03:04:05 UTC'
    """
    if value is None:
        return "unknown"
    return f"{_utc(value):%Y-%m-%d %H:%M:%S} UTC"


def day(value: date | datetime | None) -> str:
    """A day, ISO 8601."""
    if value is None:
        return "unknown"
    return _utc(value).date().isoformat() if isinstance(value, datetime) else value.isoformat()


def period(start: datetime | None, end: datetime) -> str:
    """The audited period as text."""
    if start is None:
        return f"from the beginning to {when(end)}"
    return f"{when(start).removesuffix(' UTC')} to {when(end)}"


def _utc(value: datetime) -> datetime:
    return value.astimezone(UTC) if value.tzinfo is not None else value
