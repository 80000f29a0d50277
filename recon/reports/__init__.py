"""Tell: renders a finished run (`RunResult`) or a period (`ComplianceReport`), and computes no verdict.

One module per format, in reading order: `run_results` writes and reads run_results.json, `console` prints a run, `html`
draws it as a page (`picture` computes the positions of its charts), `compliance` writes the document of a period. They
share `codes` (what each code means), `words` (numbers, times, places) and `pages` (Jinja, `templates/`).

A report sees these two values and nothing else: no Spark, no ledger, no recon.yml.
"""
