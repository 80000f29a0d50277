"""Why something could not be sent, in a few words; and no log lines of a library that say it again."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from recon.base.text import first_line


def reason(error: BaseException) -> str:
    """What the operating system said, where the libraries wrapped it in their own words; else their first line.

    >>> reason(OSError("Max retries exceeded (Caused by New('[Errno 111] Connection refused'))"))
    'Connection refused'
    """
    said = re.search(r"\[Errno -?\d+\] ([\w ,.-]+)", str(error))
    return said[1].strip() if said else first_line(error)


@contextmanager
def quiet(*loggers: str) -> Iterator[None]:
    """Drops what this thread logs there meanwhile: recon says it itself, once."""
    mine = threading.get_ident()

    def of_others(record: logging.LogRecord) -> bool:
        return record.thread != mine

    for name in loggers:
        logging.getLogger(name).addFilter(of_others)
    try:
        yield
    finally:
        for name in loggers:
            logging.getLogger(name).removeFilter(of_others)
