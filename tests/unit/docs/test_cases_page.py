"""The fault cases in docs/verdicts.md and their catalogue are those of the tests that make them."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from recon.model import Code
from tests.truth.stories import STORIES

ROOT = Path(__file__).parents[3]
_spec = importlib.util.spec_from_file_location("cases_page", ROOT / "scripts" / "cases_page.py")
assert _spec is not None and _spec.loader is not None
cases_page = sys.modules["cases_page"] = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(cases_page)


def test_the_tables_are_those_that_are_generated() -> None:
    assert cases_page.CATALOGUE.read_text() == cases_page.catalogue(), "run python scripts/cases_page.py"
    assert cases_page.PAGE.read_text() == cases_page.page(), "run python scripts/cases_page.py"


def test_the_table_of_the_model_is_what_the_judge_answers() -> None:
    text = cases_page.PAGE.read_text()
    assert f"<!-- stories -->\n{cases_page.stories()}<!-- /stories -->" in text, "run python scripts/cases_page.py"


def test_the_model_has_the_cases_from_41_on() -> None:
    assert set(range(41, 91)) <= {one.case for one in STORIES.values()}


def test_every_case_has_a_test_or_a_reason_and_an_answer() -> None:
    assert list(cases_page.CASES) == list(range(1, 91))
    marked = cases_page.marked()
    tested = {test.case for test in (*marked, *cases_page.standing_in(marked))}
    assert tested | set(cases_page.ELSEWHERE) == set(cases_page.CASES)
    assert not tested & set(cases_page.ELSEWHERE)
    assert "not run yet" not in cases_page.catalogue(), "run the tests, then python scripts/cases_page.py"


def test_codes_of_a_story_that_stands_for_a_test_are_found_on_real_parts() -> None:
    marked = cases_page.marked()
    stories = cases_page.standing_in(marked)
    assert stories
    for story in stories:
        names = {test.name for test in story.real}
        found = {code for test in marked if test.name in names and not test.xfail for code in test.codes}
        assert set(story.codes) <= found, (story.name, found)


def test_codes_are_those_of_recon() -> None:
    unknown = {code for test in cases_page.marked() if not test.xfail for code in test.codes} - set(map(str, Code))
    assert unknown == set()


def test_users_are_shown_no_names_of_tests() -> None:
    assert "test_" not in cases_page.PAGE.read_text()


def test_the_tests_that_the_catalogue_names_exist() -> None:
    for line in cases_page.catalogue().splitlines():
        for name, file in cases_page.TEST.findall(line) if line.startswith("| ") else ():
            assert f"\ndef {name}(" in (ROOT / file).read_text(), (name, file)
