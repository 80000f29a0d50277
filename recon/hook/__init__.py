"""The foreachBatch door: every sink write is stamped, confirmed and entered in the ledger.

`door` is what users call, `batch` one pipeline's writer into one sink, `routed` into several, `offsets` where a fresh
checkpoint goes on.
"""

from __future__ import annotations

from recon.hook.batch import ForeachBatch
from recon.hook.door import foreach_batch
from recon.hook.offsets import starting_offsets
from recon.hook.routed import RoutedForeachBatch
from recon.sinks import find_sink

__all__ = ["ForeachBatch", "RoutedForeachBatch", "find_sink", "foreach_batch", "starting_offsets"]
