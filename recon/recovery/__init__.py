"""After a crash: what the next start will do, where to start, and how lost ledger entries are restored."""
