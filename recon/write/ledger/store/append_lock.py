"""Processes of one host append to a table on its disk one after another.

Of several commits made at the same moment Delta accepts one. The others read the log again and retry, so that twelve
streams with an aligned trigger spend most of their time on retries. A lock file in the host's temporary folder makes
them wait for each other instead.

It saves time only: Delta refuses a commit that conflicts with another one, whoever holds the lock. So a writer that
cannot have it, because it runs in another container or waited for two seconds, appends without it.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_WAIT_S = 2.0
_LOOK_EVERY_S = 0.003  # an append takes about 15 ms


@contextmanager
def turn(folder: Path | None, wait_s: float = _WAIT_S) -> Iterator[None]:
    """Waits until no other process of this host appends to the table in `folder`; at once for None."""
    if folder is None:
        yield
        return
    from filelock import FileLock, Timeout

    # One of 256 lock files, so that a host gathers no more of them; two tables that share one wait for each other.
    name = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:2]
    lock = FileLock(Path(tempfile.gettempdir()) / f"recon-{name}.lock", wait_s, poll_interval=_LOOK_EVERY_S)
    try:
        lock.acquire()
    except (Timeout, OSError, NotImplementedError):  # the last: a temporary folder whose disk has no locks
        yield
        return
    try:
        yield
    finally:
        lock.release()
