"""docs/checks.md is what the docstrings say, and they say all there is."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
import yaml

from recon.checks.base import Check
from recon.checks.registry import REGISTRY, build_all, check_class
from recon.project import DeltaSink

ROOT = Path(__file__).parents[3]
_spec = importlib.util.spec_from_file_location("checks_page", ROOT / "scripts" / "checks_page.py")
assert _spec is not None and _spec.loader is not None
checks_page = sys.modules["checks_page"] = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(checks_page)


def test_the_page_is_the_one_that_is_generated():
    assert checks_page.PAGE.read_text() == checks_page.page(), "run python scripts/checks_page.py"


def test_every_check_has_its_section_and_line():
    page = checks_page.page()
    for name in REGISTRY:
        assert page.count(f"\n### {name}\n") == 1
        assert page.count(f"\n| [`{name}`](#{name}) |") == 1


@pytest.mark.parametrize("name", REGISTRY)
def test_a_docstring_tells_every_argument_and_no_other(name):
    check = check_class(name)
    docs = checks_page.read(check)
    assert set(docs.arguments) <= set(checks_page.arguments(check))
    assert set(checks_page.argument_texts(check)) == set(checks_page.arguments(check))
    assert all(checks_page.argument_texts(check).values())
    assert docs.summary.endswith(".")
    assert docs.prose or docs.arguments or docs.summary.startswith("The same as ")


@pytest.mark.parametrize("name", [n for n in REGISTRY if check_class(n).kind == "data"])
def test_a_data_checks_docstring_speaks_of_null_rows_and_cost(name):
    check = check_class(name)
    docs = checks_page.read(check)
    text = " ".join(
        [*docs.notes.values(), docs.summary, *docs.prose, *(checks_page.read(base).summary for base in check.__mro__)]
    )
    text += " ".join(paragraph for base in check.__mro__ for paragraph in checks_page.read(base).prose)
    assert "null" in text.lower()
    assert checks_page.note(check, "Zero rows")
    assert checks_page.note(check, "Cost")


@pytest.mark.parametrize("name", REGISTRY)
def test_an_example_can_be_written_in_recon_yml(name):
    example = yaml.safe_load(checks_page.example(check_class(name)))
    sink = DeltaSink.model_validate({"name": "s", "target": "t", **example})
    specs = [*sink.data_tests, *(spec for column in sink.columns for spec in column.data_tests)]
    mine = [spec for spec in specs if spec.test.removeprefix("dbt_utils.") == name]
    assert mine
    for spec in mine:
        assert set(spec.arguments) <= set(checks_page.arguments(check_class(name)))
        if check_class(name).variants.__func__ is Check.variants.__func__:  # a suite's file is not there
            assert build_all(spec, "here", ROOT)
