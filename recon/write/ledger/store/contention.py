"""Retries writes of the ledger's tables that conflict with those of others, for a while.

Of several commits made at the same moment Delta accepts one. delta-rs reads the log again and retries the others up to
15 times without a pause. It gives up where more writers are ahead, or where another one created the table or added a
column at the same moment. None of that means that the folder cannot be written.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable
from typing import TypeVar

from recon.base.errors import LedgerError
from recon.base.limits import CONTENTION_S

T = TypeVar("T")

# Pauses are random, so that the same writers do not conflict again; their bound grows, so that many writers need fewer
# retries.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 1.0

_OTHERS_WROTE = re.compile(
    r"Failed to commit transaction: \d+$"  # delta-rs: after so many versions of others
    r"|DELTA_MAX_COMMIT_RETRIES_EXCEEDED"  # Delta on Spark: the same
    r"|[Mm]etadata ?[Cc]hanged|[Pp]rotocol ?[Cc]hanged"  # the table was made, or a column was added
    # Files that a deletion or a merge reads were added or removed.
    r"|concurrent transactions? (added|deleted)|Concurrent(Append|Write|Delete\w*)Exception"
)


class Contended(LedgerError):
    """Others wrote a table of the ledger at the same time; nothing of the write is there."""

    def __init__(self, table: str, then: str) -> None:
        """`table` is its kind and place, `then` what to do once fewer write it."""
        super().__init__(
            f"{table} is being written by others at the same time; spread the triggers of the streams and the times of "
            f"the audits, or give some pipelines a ledger of their own, and {then}"
        )


def others_wrote(error: Exception) -> bool:
    """Whether delta-rs or Spark refused a commit because of commits of others."""
    return bool(_OTHERS_WROTE.search(str(error)))


def deadline() -> float:
    """When a write that begins now is given up, on the clock of `time.monotonic`."""
    return time.monotonic() + CONTENTION_S


def again(call: Callable[[], T], on: type[Exception], until: float) -> T:
    """What a call returns, made again after a random pause while it raises `on`, up to a `deadline`.

    A call that was begun in time is not ended.

    Raises:
        Exception: what the last call raised.
    """
    longest = _FIRST_PAUSE_S
    while True:
        try:
            return call()
        except on:
            pause = random.uniform(0, longest)
            if time.monotonic() + pause > until:
                raise
        time.sleep(pause)
        longest = min(longest + _FIRST_PAUSE_S, _LONGEST_PAUSE_S)
