"""`alerts:` of recon.yml: the channels that are told of problems, and which problems."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, field_validator

from recon.project.fields import Name, Strict, one_tag, require_unique

Severity = Literal["failure", "unproved", "warning", "stream"]
Told = Literal["failure", "unproved", "warning", "stream", "recovery"]
On = Annotated[tuple[Told, ...], BeforeValidator(one_tag)]
BY_DEFAULT: tuple[Told, ...] = ("failure", "unproved", "stream", "recovery")


class Length(Strict):
    """A number of minutes, hours or days, as dbt's freshness writes it: `{count: 30, period: minute}`."""

    count: int = Field(ge=1)
    period: Literal["minute", "hour", "day"]

    @property
    def seconds(self) -> float:
        """The same in seconds."""
        return self.count * timedelta(**{f"{self.period}s": 1}).total_seconds()


class RateLimit(Strict):
    """At most so many messages in a period: `{count: 20, period: hour}`."""

    count: int = Field(ge=1)
    period: Literal["minute", "hour", "day"]

    @property
    def within(self) -> timedelta:
        """The period."""
        return timedelta(**{f"{self.period}s": 1})


class Channel(Strict):
    """Where alerts go: an apprise URL, from the environment; `on` is what it is told, instead of that of `alerts`."""

    name: Name
    url: str = Field(repr=False)
    on: On | None = None


class PipelineAlerts(Strict):
    """Of one pipeline: what is told of it, on every channel, and which channels; None is as the project says."""

    on: On | None = None
    channels: tuple[str, ...] | None = None


class Alerts(Strict):
    """Who is told of problems, and of which. Without a channel nobody is.

    `rate_limit` is the number of messages that a channel gets within a period, `report_url` a link in each message.
    `stalled_after`: after this time without a word, the listener says that a query stalls.
    """

    channels: tuple[Channel, ...] = ()
    on: On = BY_DEFAULT
    report_url: str | None = None
    rate_limit: RateLimit = RateLimit(count=20, period="hour")
    stalled_after: Length | None = None

    @field_validator("channels")
    @classmethod
    def _channels_differ(cls, channels: tuple[Channel, ...]) -> tuple[Channel, ...]:
        require_unique("channels", "", (channel.name for channel in channels))
        return channels

    def told_of(self, channel: Channel, pipeline: PipelineAlerts | None) -> frozenset[str]:
        """What a channel is told of a pipeline; None for what is about no pipeline alone."""
        if pipeline is not None and pipeline.channels is not None and channel.name not in pipeline.channels:
            return frozenset()
        of_pipeline = pipeline.on if pipeline is not None else None
        on = of_pipeline if of_pipeline is not None else channel.on if channel.on is not None else self.on
        return frozenset(on)
