"""Checks that users write in YAML: each names what to measure and judges the measured values.

One module per family: `rows`, `counts`, `keys`, `statistics`, `freshness`, `order`, `relations`, `row_counts`,
`compare`, `schema`, `anomaly`, `sql`, `gx`. They share base classes (`bounds`: a column, a range; `grouped`: per group
of rows; `pairs`: with another table) and figures of a column (`figures`, `sketch`).

A new check is a class in its family's module or in a module of its own, its test, and one line in
`recon.checks.registry`. Its docstring is its section of docs/checks.md (scripts/checks_page.py). Checks build columns
and frames and never collect: `recon.checks.engine` does, and they do not import it. Users read the names, arguments,
evidence keys and messages of a check. Values that `remembers` and mergeable measures name are saved between runs.
"""
