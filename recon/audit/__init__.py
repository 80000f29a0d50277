"""Runs audits: collects evidence, evaluates checks, stores and summarises the result.

`run` is the audit, `summary` computes the answer per pipeline and the charts from the results. `compliance` gathers
what the ledger and the stored audits of a period prove.

An audit reads, and writes nothing but results. May import every room but `hook`, `cli`, `local`, `demo` and the rooms
beside it (`recovery`, `streams`, `convert`); reports are drawn by the caller.
"""
