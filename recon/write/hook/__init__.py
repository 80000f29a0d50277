"""The hook that users call in `foreachBatch`: it stamps, confirms and records every sink write.

In reading order:

- `read_kafka` opens the stream with the options that recon.yml names.
- `foreach_batch` makes the hook, from recon.yml or from arguments.
- `writer` writes a micro-batch into one sink. Its steps: `identify` (query and offset ranges, with `broker`), `adopt`
  (a stream written without recon until now), `epochs` (new or a replay), `calls` (a second call in the same run),
  `prepare` (transform and stamp), `gate` (post-batch checks), `row_counts`.
- `repair` enters commits that a crash left without a ledger entry.
- `routes` writes a micro-batch into several sinks; `routing` says which row goes where.
- `version_guard` refuses a hook that another version of recon sent to a Spark Connect server.

Keep the order of write, quarantine and ledger entry: the crash tests rest on it.
"""

from __future__ import annotations

from recon.write.hook.foreach_batch import foreach_batch
from recon.write.hook.read_kafka import read_kafka
from recon.write.hook.routes import RoutedForeachBatch
from recon.write.hook.writer import ForeachBatch

__all__ = ["ForeachBatch", "RoutedForeachBatch", "foreach_batch", "read_kafka"]
