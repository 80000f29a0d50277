"""Measures checks: the only room under `checks` that runs Spark jobs, in as few as possible.

`runner` runs all checks; `reading` is what an evidence check asks for while it judges. `scan` measures the data checks
of one table: it gives each to the executor of its kind, and samples those that fail. An executor returns verdicts for
all checks measured by the same Spark job: `aggregates`, `groupings` with `hashed`, `queries`, `external`; `executor` is
their base class. `context` is what a scan gets besides its table.

A new kind of check is a class in `recon.checks.data_check` and an executor here, listed in `scan`. The engine knows no
check by name, and tests count its jobs (tests/spark/test_runner_jobs.py).
"""
