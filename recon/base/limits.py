"""Time limits of recon's own on calls to other systems, whose libraries have none or long ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import Thread
from typing import TypeVar

from recon.base.errors import EvidenceError

T = TypeVar("T")

STORE_S = 20.0  # a file or a listing of an object store
STATEMENT_S = 60.0  # an SQL statement by which an audit reads
# A write of a ledger table that others write at the same moment. Giving up ends the query, though its rows are in the
# sink. A stream that waits longer than a few triggers does not catch up.
CONTENTION_S = 30.0

# object_store, under delta-rs: requests that fail are tried again within this time, and one may take as long.
_DELTA_RS = {"timeout": "19s", "connect_timeout": "5s", "retry_timeout": "19s"}
# pyarrow's S3, and pyiceberg's, which is the same, tries three times.
S3_S = 5.0


def within(seconds: float, call: Callable[[], T], otherwise: str, error: type[Exception] = EvidenceError) -> T:
    """What a call returns, or raises, if it does so in time.

    A call that takes longer is left to itself, in a thread that does not keep the process alive.

    Raises:
        EvidenceError: it took longer; the message is `otherwise`, the limit, and what to do. Or another `error`.
    """
    returned: list[T] = []
    raised: list[BaseException] = []

    def run() -> None:
        try:
            returned.append(call())
        except BaseException as of_call:  # raised again where the call is waited for
            raised.append(of_call)

    thread = Thread(target=run, name="recon-limited", daemon=True)
    thread.start()
    thread.join(seconds)
    if raised:
        raise raised[0]
    if not returned:
        raise error(f"{otherwise} within {seconds:g} s; see whether it can be reached from here, then try again")
    return returned[0]


def delta_rs_options(uri: str, options: Mapping[str, str]) -> dict[str, str] | None:
    """A project's storage_options for delta-rs, with time limits where the table is not on this machine's disks.

    None where there are none.
    """
    remote = "://" in uri and not uri.startswith("file:")
    return ({**_DELTA_RS, **options} if remote else dict(options)) or None
