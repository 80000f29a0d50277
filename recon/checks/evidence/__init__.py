"""Checks that judge evidence: pure functions of what the witnesses say; no I/O, no Spark."""
