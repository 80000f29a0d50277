"""Application ids: of Delta transactions (txn), and of Kafka's transactional producers.

recon.yml allows no `:` and no `/` in the names of pipelines and sinks, nor does Kafka in those of topics.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from recon.model.ledger import RELEASES

_QUARANTINE = "quarantine"
_CLAIM = "claim"


@dataclass(frozen=True)
class AppId:
    """A Delta app id: of the writes of a sink, which are numbered across epochs, or of what is numbered on its own.

    Without `epoch` and `part` it is the sink's. `part` is "quarantine" for its quarantine table, numbered by batch_id
    in each epoch; "claim" for claims of releases there; or the number of a release.
    """

    pipeline: str
    sink: str
    epoch: int | None = None
    part: str = ""

    def dump(self) -> str:
        """`recon:<pipeline>:<sink>`, and `:<epoch>:<part>` where there are such.

        >>> AppId("orders", "lake").dump()
        'recon:orders:lake'
        """
        more = () if self.epoch is None else (str(self.epoch), self.part)
        return ":".join(["recon", self.pipeline, self.sink, *more])

    @property
    def number(self) -> int | None:
        """The number of a release; None for what is numbered across epochs, and for other tables than the sink's."""
        of_its_own = self.epoch is not None and self.epoch < 0 and self.part.isdecimal()
        return int(self.part) if of_its_own else None


def parse_app_id(text: str) -> AppId | None:
    """The app id that a text stands for; None for one that is not recon's."""
    match = re.fullmatch(r"recon:([^:]+):([^:]+)(?::(-?\d+):([^:]+))?", text)
    if match is None:
        return None
    return AppId(match[1], match[2]) if match[3] is None else AppId(match[1], match[2], int(match[3]), match[4])


def app_id(pipeline: str, sink: str) -> str:
    """The app id of a Delta sink's writes; the txn version is the number of the write."""
    return AppId(pipeline, sink).dump()


def quarantine_app_id(pipeline: str, sink: str, epoch: int) -> str:
    """The app id of appends to a sink's quarantine table."""
    return AppId(pipeline, sink, epoch, _QUARANTINE).dump()


def claim_app_id(pipeline: str, sink: str) -> str:
    """The app id of commits to a quarantine table that claim rows for a release; the txn version is its number."""
    return AppId(pipeline, sink, RELEASES, _CLAIM).dump()


def numbered_app_id(pipeline: str, sink: str, epoch: int, number: int) -> str:
    """The app id of one release: under a shared one, Delta would skip whichever of two is written later."""
    return AppId(pipeline, sink, epoch, str(number)).dump()


def numbers_taken(txns: Iterable[str], pipeline: str, sink: str, epoch: int) -> set[int]:
    """The numbers of the releases that wrote to a table, by the app ids of its transactions."""
    apps = (app for app in map(parse_app_id, txns) if app is not None)
    mine = (app.number for app in apps if (app.pipeline, app.sink, app.epoch) == (pipeline, sink, epoch))
    return {number for number in mine if number is not None}


def chain_id(pipeline: str, sink: str) -> str:
    """The app id of the ledger's entries of one sink; the txn version is the length of the chain."""
    return f"chain:{pipeline}/{sink}"


# Commits to one of the ledger's tables by which a process says that it merges small files: write.ledger.store.merging.
MERGE_APP_ID = "recon:merge"
# The commit by which one says that it removes the files that merges replaced; its txn version is the Unix time, s.
VACUUM_APP_ID = "recon:vacuum"


def parse_chain_id(text: str) -> tuple[str, str]:
    """The (pipeline, sink) of a `chain_id`."""
    pipeline, _, sink = text.removeprefix("chain:").partition("/")
    return pipeline, sink


def transactional_id(pipeline: str, sink: str, topic: str, producer: str | int) -> str:
    """The transactional.id of one of a Kafka sink's producers: a task's number, or "driver".

    The target topic is in it because names are unique in one project only.
    """
    return f"recon:{pipeline}:{sink}:{topic}:{producer}"
