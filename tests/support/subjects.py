"""What stays open is known by what it is about: a finding without a place says it beside its message."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from recon.model.proof import stays_open

if TYPE_CHECKING:
    from recon.model import CheckResult


def assert_subjects(results: Iterable[CheckResult]) -> None:
    """Fails where a finding that stays open would be known by its message alone."""
    by_message = [
        (result.check, finding.code, finding.message)
        for result in results
        for finding in result.findings
        if finding.span is None and finding.batch_id is None and finding.about is None
        if result.kind == "evidence" and stays_open(result.check, finding)
    ]
    assert by_message == []
