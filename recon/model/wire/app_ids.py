"""Application ids: of Delta transactions (txn), and of Kafka's transactional producers.

recon.yml allows no `:` and no `/` in the names of pipelines and sinks, nor does Kafka in those of topics.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from recon.model.ledger import RELEASES

_QUARANTINE = "quarantine"
_CLAIM = "claim"


@dataclass(frozen=True)
class AppId:
    """The Delta app id under which a sink's commits of one epoch are numbered by batch_id.

    `part` tells apart what is numbered on its own: "" is the sink's table, "quarantine" its quarantine table, "claim"
    the claims of releases there, and a number one release from quarantine.
    """

    pipeline: str
    sink: str
    epoch: int
    part: str = ""

    def dump(self) -> str:
        """`recon:<pipeline>:<sink>:<epoch>`, and `:<part>` where there is one.

        >>> AppId("orders", "lake", 0).dump()
        'recon:orders:lake:0'
        """
        return ":".join(["recon", self.pipeline, self.sink, str(self.epoch), *filter(None, [self.part])])

    @property
    def release(self) -> int | None:
        """The number of the release from quarantine; None for every other write."""
        return int(self.part) if self.epoch == RELEASES and self.part.isdecimal() else None


def parse_app_id(text: str) -> AppId | None:
    """The app id that a text stands for; None for one that is not recon's."""
    match = re.fullmatch(r"recon:([^:]+):([^:]+):(-?\d+)(?::([^:]+))?", text)
    return None if match is None else AppId(match[1], match[2], int(match[3]), match[4] or "")


def app_id(pipeline: str, sink: str, epoch: int) -> str:
    """The app id of a Delta sink's commits in one epoch."""
    return AppId(pipeline, sink, epoch).dump()


def quarantine_app_id(pipeline: str, sink: str, epoch: int) -> str:
    """The app id of appends to a sink's quarantine table."""
    return AppId(pipeline, sink, epoch, _QUARANTINE).dump()


def claim_app_id(pipeline: str, sink: str) -> str:
    """The app id of commits to a quarantine table that claim rows for a release; the txn version is its number."""
    return AppId(pipeline, sink, RELEASES, _CLAIM).dump()


def release_app_id(pipeline: str, sink: str, number: int) -> str:
    """The app id of one release: under a shared one, Delta would skip whichever of two is written later."""
    return AppId(pipeline, sink, RELEASES, str(number)).dump()


def chain_id(pipeline: str, sink: str) -> str:
    """The app id of the ledger's entries of one sink; the txn version is the length of the chain."""
    return f"chain:{pipeline}/{sink}"


def parse_chain_id(text: str) -> tuple[str, str]:
    """The (pipeline, sink) of a `chain_id`."""
    pipeline, _, sink = text.removeprefix("chain:").partition("/")
    return pipeline, sink


def transactional_id(pipeline: str, sink: str, topic: str, producer: str | int) -> str:
    """The transactional.id of one of a Kafka sink's producers: a task's number, or "driver".

    The target topic is in it because names are unique in one project only.
    """
    return f"recon:{pipeline}:{sink}:{topic}:{producer}"
