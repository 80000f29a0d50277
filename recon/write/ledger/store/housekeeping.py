"""When a table of the ledger is tidied up, and how much of it is left as it is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Housekeeping:
    """From which sizes on small files are merged and the log is shortened.

    Attributes:
        many_files: of one day; more are merged, and a stream looks for them at every so many appends.
        large: bytes; a day that grows and is smaller is merged whole, and later no file is rewritten that is as large.
        checkpoint_interval: versions. An append reads the commits of others since its last one, and the log since the
            newest checkpoint: with Delta's 100 versions between two of these it takes up to twice the time.
        log_versions: whose commit files stay in the log folder of a local table.
        log_at_once: versions; fewer commit files are not worth a shortening.
    """

    many_files: int = 100
    large: int = 2_000_000
    checkpoint_interval: int = 25
    log_versions: int = 2_000
    log_at_once: int = 1_000


USUAL = Housekeeping()
