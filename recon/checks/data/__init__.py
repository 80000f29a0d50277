"""Checks that users write in YAML: they build columns and frames, and never collect."""
