"""What takes events: alerts, and the exporters to other systems."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from recon.events.model import Event


class Consumer(Protocol):
    """Takes events in a thread of its own, in their order; it may be slow, and it may raise.

    Attributes:
        name: in messages; holds no secret.
        kinds: the events it takes; one that ends in `.*` takes all that begin so.
        every: seconds after which `take` is called with nothing, where no event came; None for never.
    """

    @property
    def name(self) -> str: ...  # noqa: D102

    @property
    def kinds(self) -> frozenset[str]: ...  # noqa: D102

    @property
    def every(self) -> float | None: ...  # noqa: D102

    def take(self, events: Sequence[Event]) -> None:
        """Takes the events that wait, masked, oldest first.

        Whatever it raises becomes a note of an audit and a line of the hook's log; the events are not given again.
        """

    def close(self) -> None:
        """Sends what waits; the last call. The process may end without it."""


def takes(consumer: Consumer, kind: str) -> bool:
    """Whether a consumer takes events of a kind."""
    return kind in consumer.kinds or f"{kind.partition('.')[0]}.*" in consumer.kinds
