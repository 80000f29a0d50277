"""Reads and writes the files of other tools.

`dbt` makes a recon.yml from the tests of a dbt project. `gx` writes a sink's data checks as a Great Expectations suite.
`odcs` makes a recon.yml from a data contract, with the writer of `dbt`, and a contract from recon.yml. Text in, text
out: no Spark, and neither tool has to be installed. What has no counterpart is left out and reported, never
approximated. To export a further check, add a function and a line in `gx`. To import a test under another name, add a
case in `dbt.tests`.
"""
