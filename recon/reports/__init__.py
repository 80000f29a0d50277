"""Renders a finished run (`RunResult`) or a period (`ComplianceReport`) as text, and computes no verdict.

One module per format, in reading order: `run_results` writes and reads run_results.json, `console` prints a run, `html`
draws it as a page (`picture` computes the positions of its charts), `compliance` writes the document of a period. They
share `codes` (what each code means, the order of levels), `words` (numbers, times, places) and `pages` (Jinja,
`templates/`).

A report is computed from these two values and nothing else: no Spark, no ledger, no recon.yml.
"""
