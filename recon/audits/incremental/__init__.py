"""Checks with `incremental: true`: loads saved state, measures new micro-batches, saves the merged state.

The Delta log says which micro-batches are new: the appends that recon made since the version that a state covers. After
any other change the whole table is read, and the results say so. A check whose values cannot be merged is measured on
the whole table every time.

`run` is one run over a sink. `plan` says whether and how a check's values merge; `changes` finds the new micro-batches
in the log. `memory` takes part in the scan and makes the new states; `merge` is their arithmetic, `values` their JSON.
Imports no other module of `audits`; writes nothing but states and key indexes beside the ledger.
"""

from __future__ import annotations

from recon.audits.incremental.run import SinkScan, results

__all__ = ["SinkScan", "results"]
