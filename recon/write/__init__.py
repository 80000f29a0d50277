"""Write: what stamps, confirms and enters each write of a micro-batch.

In reading order: `hook` is what users call in `foreachBatch`. `sinks` has one room per kind of sink. `ledger` has one
entry per write, hashed and chained. `quarantine` keeps rows that fail a check. `observer` enters what a stream writes
without recon. `streams` records a stream's progress, and gives advice on it.
"""
