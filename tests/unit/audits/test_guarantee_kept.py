"""Whether a sink kept what it claims."""

from __future__ import annotations

import pytest

from recon.audits.summary import kept_guarantee
from recon.model import Code, Finding


def found(*codes: Code) -> list[Finding]:
    return [Finding(code=code, message="m") for code in codes]


@pytest.mark.parametrize(
    ("guarantee", "codes", "proved", "kept"),
    [
        ("exactly-once", (), True, True),
        ("exactly-once", (Code.REPLAYED,), True, True),
        ("exactly-once", (), False, None),
        ("exactly-once", (Code.INCONCLUSIVE,), True, None),
        ("exactly-once", (Code.DUPLICATE,), True, False),
        ("exactly-once", (Code.OVERLAP,), False, False),
        ("exactly-once", (Code.GAP,), True, False),
        ("exactly-once within one checkpoint", (Code.SKIPPED,), True, False),
        ("at-least-once", (Code.REPEATED,), True, True),
        ("at-least-once", (Code.LOSS,), True, False),
        ("at-most-once", (Code.GAP,), True, True),
        ("at-most-once", (Code.DUPLICATE,), True, False),
    ],
)
def test_a_claim_is_kept_broken_or_not_proved(
    guarantee: str, codes: tuple[Code, ...], proved: bool, kept: bool | None
) -> None:
    assert kept_guarantee(guarantee, found(*codes), proved) is kept
