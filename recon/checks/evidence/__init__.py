"""Checks that judge witnesses, one module per check, named like the check in recon.yml.

A new check is such a module with a class derived from `EvidenceCheck` (or `ProgressCheck`), its line in
recon.checks.registry and its tests. It adds `Findings`; messages may be bettered freely, while codes and the keys of
`evidence` are read by reports and by the next audit. What checks share is in recon.judge.
"""
