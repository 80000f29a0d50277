"""Runs audits: collects evidence, evaluates checks, stores and summarises the result.

`run` is the audit, with its `options`: `collect` decides what is read in which order, `sources` reads one witness at a
time, `session` makes the Spark session, `summary` computes the answer per pipeline and the charts, `store` keeps
results, `retry` says what to run again. `compliance` gathers what the ledger and the stored audits of a period prove.

An audit changes no witness; it writes results, and what later audits build on, beside the ledger. Imports neither
`hook` nor the rooms beside and above it (`recovery`, `streams`, `convert`, `local`, `cli`); the caller renders
reports.
"""
