"""The hook that users call in `foreachBatch`: it stamps, confirms and records every sink write.

`read_kafka` opens the stream with the options that recon.yml names.
`foreach_batch` makes the hook from recon.yml or from arguments. `writer` writes into one sink, `routes` into several.
`writer` uses `identify` (query and offset ranges of the micro-batch, with `broker`), `epochs` (new or a replay),
`calls` (another call of the same run), `prepare` (transform and stamp), `gate` (post-batch checks), `row_counts`, and
`repair` (commits that a crash left without a ledger entry). `sent` is what a hook carries to a Connect server. The
order of write, quarantine and ledger entry is what the crash tests hold: keep it.
"""

from __future__ import annotations

from recon.hook.foreach_batch import foreach_batch
from recon.hook.read_kafka import read_kafka
from recon.hook.routes import RoutedForeachBatch
from recon.hook.writer import ForeachBatch

__all__ = ["ForeachBatch", "RoutedForeachBatch", "foreach_batch", "read_kafka"]
