"""Processes of one host append to a table on its disk one after another.

Of several commits made at the same moment Delta lets one through; the others read the log again and try once more, so
that twelve streams with an aligned trigger spend most of their time on tries in vain. A lock file of the host, in its
temporary folder, makes them wait for each other instead.

Nothing but time depends on it: Delta refuses a commit that another one contradicts, whoever holds the lock. So a writer
that cannot have it, because it runs in another container or waited for two seconds, appends without it.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

WAIT_S = 2.0
_LOOK_EVERY_S = 0.003  # an append takes about 15 ms


@contextmanager
def turn(folder: Path | None) -> Iterator[None]:
    """Waits until no other process of this host appends to the table in `folder`; at once for None."""
    if folder is None:
        yield
        return
    from filelock import FileLock, Timeout

    # One of 256 lock files, so that a host gathers no more of them; two tables that share one wait for each other.
    name = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:2]
    lock = FileLock(Path(tempfile.gettempdir()) / f"recon-{name}.lock", WAIT_S, poll_interval=_LOOK_EVERY_S)
    try:
        lock.acquire()
    except (Timeout, OSError, NotImplementedError):  # the last: a temporary folder whose disk has no locks
        yield
        return
    try:
        yield
    finally:
        lock.release()
