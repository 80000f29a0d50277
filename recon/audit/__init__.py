"""Audit: collects evidence, evaluates checks, stores and summarises the result; the compliance report of a period."""
