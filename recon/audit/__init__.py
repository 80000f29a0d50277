"""Runs audits: collects evidence, evaluates checks, stores and summarises the result.

`run` is the audit, with its `options`: `collect` decides what is read in which order, `sources` reads one witness at a
time, `session` makes the Spark session, `summary` computes the answer per pipeline and the charts, `store` keeps
results, `retry` says what to run again. `compliance` gathers what the ledger and the stored audits of a period prove.

An audit changes no witness; it writes results, and what later audits build on, beside the ledger. Imports neither
`hook` nor the rooms beside and above it (`recovery`, `streams`, `convert`, `local`, `cli`); the caller renders
reports. `recon.audit(…)` is `recon.run_audit(…)`.
"""

from __future__ import annotations

import sys
from inspect import Signature, signature
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    """`recon.audit` is this package, as Python has it; called, it runs an audit."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        from recon.audit.run import run_audit

        return run_audit(*arguments, **options)

    @property
    def __signature__(self) -> Signature:
        """What an editor or a notebook shows of `recon.audit(…)`."""
        from recon.audit.run import run_audit

        return signature(run_audit)


package = sys.modules[__name__]
package.__class__ = _Callable
