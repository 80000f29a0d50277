"""Checks with `incremental: true`: loads saved state, measures new micro-batches, saves the merged state.

The Delta log says which micro-batches are new: the appends that recon made since the version that a state covers. After
any other change the whole table is read, and the results say so. A check whose values cannot be merged is measured on
the whole table every time.
"""

from __future__ import annotations

from recon.incremental.run import SinkScan, results

__all__ = ["SinkScan", "results"]
