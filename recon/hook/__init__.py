"""The foreachBatch door: every sink write is stamped, confirmed and entered in the ledger.

`door` is what users call, `batch` one pipeline's writer into one sink, `routed` into several, `offsets` where a fresh
checkpoint goes on.
"""

from __future__ import annotations

from recon.hook.foreach_batch import foreach_batch
from recon.hook.routes import RoutedForeachBatch
from recon.hook.writer import ForeachBatch
from recon.sinks import find_sink

__all__ = ["ForeachBatch", "RoutedForeachBatch", "find_sink", "foreach_batch"]
