"""Measuring: the only room under `checks` that runs Spark jobs."""
