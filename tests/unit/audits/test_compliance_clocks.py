"""A compliance report of a period leaves no micro-batch out because the driver's clock jumped."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from recon.audits.compliance import compliance
from recon.write.ledger import open_ledger
from tests.support.ledger_entries import entry, project
from tests.truth.world import START

DAY = timedelta(days=1)


@pytest.mark.parametrize(
    "clock",
    [
        (0, 0.2, 365.3, 0.4, 0.6),  # a year ahead, once
        (0, 0.2, -0.7, -0.6, 0.6),  # a day behind, twice
        (0, 0.2, 365.3, -0.6, 0.6),  # to and fro
    ],
)
def test_a_clock_that_jumped_drops_no_micro_batch(tmp_path: Path, clock: tuple[float, ...]) -> None:
    ledger = open_ledger(project(tmp_path))
    for n, day in enumerate(clock):
        ledger.append(entry(n, at=START + day * DAY))
    report = compliance(project(tmp_path), START - DAY / 100, START + 0.7 * DAY)
    assert (report.sinks[0].batches, report.sinks[0].chain.entries) == (len(clock), len(clock))
    assert report.sinks[0].chain.verified and report.answer != "complete", "no audit has seen them"
