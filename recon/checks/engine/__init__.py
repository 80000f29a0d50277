"""Measures checks: the only room under `checks` that runs Spark jobs, in as few as possible.

`scan` measures the data checks of one table and `runner` runs all checks; each executor returns verdicts for all
checks measured by the same Spark job: `aggregates`, `groupings` with `hashed`, `queries`, `external`. `context` is
what a scan gets besides its table. Knows no check by name.
"""
