"""Benchmarks: `python -m bench [name ...]` measures, prints a table and keeps bench/results.json."""
