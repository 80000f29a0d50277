"""Reads and writes the files of other tools.

`dbt` makes a recon.yml from the tests of a dbt project; `gx` writes a sink's data checks as a Great Expectations suite;
`odcs` makes a recon.yml from a data contract, and a contract from recon.yml, with the writer of `dbt`.
Text in, text out: no Spark, and neither tool has to be installed. What has no counterpart is left out and reported,
never approximated. A check that is to be exported gets a function and a line in `gx`; a test that is to be imported
under another name, a case in `dbt.tests`.
"""
