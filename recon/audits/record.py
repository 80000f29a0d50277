"""Who runs an audit, and with which recon.yml: what an auditor asks of the results themselves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from recon.base.decision import this_user
from recon.checks.bound import Bound
from recon.model import CheckResult, RunRecord
from recon.project import Project

STOPPED = "--fail-fast stopped the audit before this check"


def record_of(project: Project, configured: Sequence[Bound], results: Sequence[CheckResult]) -> RunRecord:
    """The record of a run that ends now; `configured` are all checks of recon.yml."""
    name, digest = project.file or ("", None)
    return RunRecord(
        by=this_user(),
        config=name,
        config_hash=digest,
        checks=dict(Counter(bound.pipeline for bound in configured if bound.pipeline)),
        stopped=any(result.message == STOPPED for result in results),
    )
