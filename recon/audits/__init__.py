"""Runs audits: collects evidence, evaluates checks, stores and summarises the result.

- The audit: `run`, with its `options` and `session` (Spark and the ledger). `collect` decides what is read in which
  order, `sources` reads one witness at a time, `scope` says what a verdict speaks of. `incremental` measures new
  micro-batches only.
- What it stores: `store` (results and failing rows), `proof` (what is judged, what stays open), `record` (who ran it),
  `anchor` (signed heads). `audit_events` tells others, `retry` says what to run again.
- What its report shows: `summary` (the answer, the charts), `incidents` (findings by cause), `past` (trends), `books`
  (hop by hop), `accounting` (sums of the account), `stored_report` (an earlier run).
- The compliance report: `compliance`, from `stored_audits`, `extent` (what belongs to the period), `exceptions` with
  `exception_history`, `controls` with `control_days`. Afterwards: `as_of`, `verify_report`, `pack`.
- Of their own: `accept` (answers a finding), `account` (what became of every offset).

An audit changes no witness; it writes results, and what later audits build on, beside the ledger. Imports neither
`write.hook` nor the rooms beside and above it (`recovery`, `convert`, `local`, `cli`); the caller renders reports.
"""
