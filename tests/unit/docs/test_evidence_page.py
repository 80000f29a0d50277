"""docs/evidence_checks.md has a section for each evidence check; tests/truth looks at the codes that they report."""

from __future__ import annotations

from recon.checks.registry import REGISTRY, check_class
from recon.model import Code
from tests.support.codes_page import listed

EVIDENCE = [name for name in REGISTRY if check_class(name).kind == "evidence"]


def test_each_check_has_a_section() -> None:
    assert sorted(listed()) == sorted(EVIDENCE)


def test_codes_are_those_of_recon() -> None:
    assert set().union(*listed().values()) <= set(map(str, Code))


def test_a_docstring_is_short() -> None:
    long = {name for name in EVIDENCE if len((check_class(name).__doc__ or "").splitlines()) > 25}
    assert long == set()
