"""A finding is known by what it is about: its message may be worded anew, and nothing reopens."""

from __future__ import annotations

import itertools
import os
from typing import Any

import pytest

from recon.judge.findings import Findings
from recon.model import Code
from tests.truth.histories import history
from tests.truth.world import SINK, World

HISTORIES = int(os.environ.get("RECON_REWORDED", "300"))


def _kept(world: World) -> set[tuple[Any, ...]]:
    """What is open or accepted after the last audit, by check and id."""
    state = world.ledger.proofs.newest("orders", SINK)
    return {
        (open_finding.check, open_finding.id, open_finding.first_seen, open_finding.accepted is not None)
        for open_finding in (state.open if state else ())
    }


@pytest.mark.parametrize("first", range(0, HISTORIES, 100))
def test_messages_that_differ_at_every_audit_change_no_answer(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    as_worded = [history(seed) for seed in range(first, first + 100)]
    add, count = Findings.add, itertools.count()

    def reworded(self: Findings, code: Code, message: str, **where: Any) -> None:
        add(self, code, f"{next(count)} in other words", **where)

    monkeypatch.setattr(Findings, "add", reworded)
    for seed, (_, world, judgement) in zip(range(first, first + 100), as_worded, strict=True):
        _, other, anew = history(seed)
        assert (anew.answer, anew.codes) == (judgement.answer, judgement.codes), seed
        assert _kept(other) == _kept(world), seed
