"""Checks that users write in YAML: each names what to measure and judges the measured values.

One module per family, among them `rows`, `keys`, `statistics`, `relations`, `order`, `freshness`, `schema`,
`compare`, `anomaly`, `sql`, `gx`. They build columns and frames and never collect: `recon.checks.engine` does, and
they do not import it.
"""
