"""Which fault cases the tests make (`@pytest.mark.case(41, "GAP")`), and what recon answered of each in a run.

The answers of a run are kept in `OUTCOMES`, which is not tracked; scripts/cases_page.py writes tests/cases/catalogue.md
from them. A test whose mark names no answer must get the one that the catalogue has of it, unless
RECON_CASES_ANEW is set, as one does to write another one there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from scripts import cases_page
from tests.support.codes_page import unlisted
from tests.support.subjects import assert_subjects

if TYPE_CHECKING:
    from recon.model import RunResult

OUTCOMES = Path(__file__).parents[1] / "cases" / ".results.json"
_PROPERTY = "fault cases"
_audits: list[RunResult] = []
_seen: dict[str, Any] = {}


def audit(project: Any, **options: Any) -> RunResult:
    """`run_audit`, whose result is compared with the test's cases and kept for the page."""
    from recon.audits.run import run_audit

    run = run_audit(project, **options)
    _audits.append(run)
    assert_subjects(run.results)
    assert unlisted(run.results) == set(), "docs/evidence_checks.md lists the codes of each check"
    return run


def watched(item: pytest.Item) -> Generator[None, Any, Any]:
    """Runs a test; then its audits must have found the codes of its cases."""
    _audits.clear()
    done = yield
    for mark in item.iter_markers("case"):
        number, *codes = mark.args
        answer = mark.kwargs.get("answer")
        if _audits:
            expected = [answer] if answer is not None else _in_the_catalogue(item.name.partition("[")[0], number, codes)
            found = [(_answer(run), set(_codes(run))) for run in _audits]
            fitting = [said for said, told in found if set(codes) <= told and (not expected or said in expected)]
            assert fitting, f"case {number}: no audit of the test found {codes} and answered {expected}: {found}"
            answer = fitting[-1]
        assert answer is not None, "a test without an audit of its own names the answer: case(34, answer='complete')"
        item.user_properties.append((_PROPERTY, {"case": number, "codes": codes, "answer": answer}))
    return done


def _in_the_catalogue(test: str, case: int, codes: Sequence[str]) -> list[str]:
    """The answers that the catalogue has of a test; [] for one that it does not have yet."""
    if os.environ.get("RECON_CASES_ANEW"):
        return []
    shown = cases_page.shown().get((test, case, tuple(codes)), "")
    return [] if shown == "" or shown.startswith(("not run yet", "not so yet")) else shown.split(" or ")


def _answer(run: RunResult) -> str:
    return "; ".join(dict.fromkeys(pipeline.says for pipeline in run.pipelines))


def _codes(run: RunResult) -> Iterator[str]:
    return (str(finding.code) for result in run.results for finding in result.findings)


def note(report: pytest.TestReport) -> None:
    """Remembers what a test found, of whichever process ran it."""
    if report.when == "call":
        found = [value for name, value in report.user_properties if name == _PROPERTY]
        if found:
            _seen[report.nodeid] = found


def keep() -> None:
    """Writes what the run found to `OUTCOMES`, beside what earlier runs found of other tests."""
    if _seen:
        before = json.loads(OUTCOMES.read_text()) if OUTCOMES.exists() else {}
        OUTCOMES.write_text(json.dumps(dict(sorted((before | _seen).items())), indent=1) + "\n")
