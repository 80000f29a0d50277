"""Every step that a message of recon names has a test that follows it, or a reason why none does."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from tests.support.advice import Step, printed_step, steps, steps_of

ROOT = Path(__file__).parents[3]
_spec = importlib.util.spec_from_file_location("advice_page", ROOT / "scripts" / "advice_page.py")
assert _spec is not None and _spec.loader is not None
advice_page = sys.modules["advice_page"] = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(advice_page)


def test_every_step_has_a_test_or_a_reason() -> None:
    assert advice_page.without_test() == [], "mark a test that follows it, or list it in scripts/advice_page.py"


def test_what_is_marked_and_listed_is_printed() -> None:
    known, tests = {step.text for step in steps()}, advice_page.followed()
    listed = {text for texts in advice_page.NOT_YET.values() for text in texts}
    assert not set(tests) - known, "marks name steps that no message has"
    assert not listed - known, "the list names steps that no message has"
    assert not listed & set(tests), "a test follows them now"


def test_the_page_is_the_one_that_is_generated() -> None:
    assert advice_page.PAGE.read_text(encoding="utf-8") == advice_page.page(), "run python scripts/advice_page.py"


def test_a_step_without_a_test_is_noticed() -> None:
    (restart,) = steps_of("the table was painted: paint it once more, then restart the query")
    step = Step("recon/judge/new.py", restart)
    assert not step.looks_only and not advice_page.reason(step)


def test_a_step_is_taken_with_what_the_code_put_in() -> None:
    message = "offsets/3 was edited. Stop the query and put the end offsets back into cp/offsets/3: 25 for orders-0"
    found = printed_step(message, "and put the end offsets back into …/offsets/…")
    assert found.groups() == ("cp", "3")
