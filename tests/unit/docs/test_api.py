"""The public API: what is exported exists, and the page says so."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import recon
from tests.support.messages import raises

DOCS = Path(__file__).parents[3] / "docs"


def test_every_exported_name_exists_and_has_a_docstring() -> None:
    for name in recon.__all__:
        assert getattr(recon, name) is not None
        if name != "__version__":
            assert getattr(recon, name).__doc__


def test_the_page_documents_exactly_what_is_exported() -> None:
    exported, *_ = (DOCS / "api.md").read_text().partition("\n## ")
    assert sorted(re.findall(r"^\| `(\w+)", exported, flags=re.MULTILINE)) == sorted(recon.__all__)


def test_the_page_documents_the_arguments_of_the_audit() -> None:
    _, _, audit = (DOCS / "api.md").read_text().partition("\n## The audit\n")
    cells = re.findall(r"^\| (`[^|]+) \|", audit, flags=re.MULTILINE)
    assert re.findall(r"`(\w+)`", " ".join(cells)) == list(inspect.signature(recon.run_audit).parameters)


def test_a_name_that_is_not_there() -> None:
    with raises(AttributeError):
        recon.foreach_bach  # noqa: B018


def test_the_version_is_the_distributions() -> None:
    from importlib.metadata import version

    assert recon.__version__ == version("spark-recon")
