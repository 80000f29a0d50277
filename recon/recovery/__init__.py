"""Crash repair: predicts the next start, computes startingOffsets, restores lost ledger entries."""
