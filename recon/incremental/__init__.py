"""Checks with `incremental: true`: new micro-batches are measured alone and added to what earlier audits measured.

What is new is read from the table's Delta log: appends of ours since the version that a state covers. Where anything
else changed the table, the table is read whole, and the results say so. A check whose kind cannot be added up is
measured on the whole table every time.
"""

from __future__ import annotations

from recon.incremental.run import Place, results

__all__ = ["Place", "results"]
