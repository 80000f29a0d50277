"""Reads and writes the files of other tools.

`dbt` makes a recon.yml from the tests of a dbt project; `gx` writes a sink's checks as a Great Expectations suite.
Text in, text out: no Spark, and neither tool has to be installed.
"""
