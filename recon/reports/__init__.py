"""Reports: one module per format, each drawn from RunResult (or ComplianceReport) and from nothing else.

`run_results` writes and reads the artefact, `console` and `html` show a run, `compliance` a period.
"""
