"""Renders a finished run (`RunResult`) or a period (`ComplianceReport`) as text, and computes no verdict.

- A run: `audit_run` is what Python gets; `run_results` writes and reads run_results.json; `console` prints; `html`
  draws a page (`picture`: its charts, `trends`: earlier audits, `books`, `sums`); `forms` has JUnit, Markdown and
  others.
- A period: `compliance` writes the document, with `document` (its JSON), `control_days`, `pdf`; `sample` and `pack` are
  for auditors.
- `account` is what became of every offset, `runbook` what to do about each code.
- What they share: `codes` (what each code means), `words` (numbers, times, places), `pages` (Jinja, `templates/`) with
  `own_templates` (those of a project).

A report is computed from these two values and nothing else: no Spark, no ledger, no recon.yml.
"""
