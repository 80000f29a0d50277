"""The ledger: one sealed row per sink write. `open_ledger` is the door to this room."""

from __future__ import annotations

from recon.ledger.ledger import Ledger, open_ledger

__all__ = ["Ledger", "open_ledger"]
