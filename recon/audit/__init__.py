"""Runs audits: collects evidence, evaluates checks, stores and summarises the result.

`run` is the audit, `summary` computes the answer per pipeline and the charts from the results. `compliance` gathers
what the ledger and the stored audits of a period prove.

An audit changes no witness; it writes results, and what later audits build on, beside the ledger. Imports neither
`hook` nor the rooms beside and above it (`recovery`, `streams`, `convert`, `local`, `cli`); the caller renders reports.
"""
