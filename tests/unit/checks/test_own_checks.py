"""Checks of a user's own: by register, and by the entry points of an installed package."""

from __future__ import annotations

import re
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from recon.base.errors import ConfigError
from recon.checks import EachRow, EvidenceCheck, Verdict, register
from recon.checks import registry as known_checks
from recon.checks.binding import bind
from recon.project import load
from recon.testing import only_built_in
from tests.support.messages import raises, same_message

PAGE = Path(__file__).parents[3] / "docs" / "own_checks.md"


def blocks(language: str) -> list[str]:
    """The page's code blocks of a language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(), flags=re.MULTILINE | re.DOTALL)


@pytest.fixture(autouse=True)
def nothing_is_left_known():
    with only_built_in():
        yield
    sys.modules.pop("lake_checks", None)


def install(folder: Path, monkeypatch, entry_points: str) -> None:
    """A package as pip leaves it: the module of the page, and metadata with these entry points."""
    (folder / "lake_checks.py").write_text(blocks("python")[0])
    about = folder / "lake_checks-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: lake-checks\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[recon.checks]\n{entry_points}\n")
    monkeypatch.syspath_prepend(str(folder))


def entry_points_of_the_page() -> str:
    lines = tomllib.loads(blocks("toml")[0])["project"]["entry-points"]["recon.checks"]
    return "\n".join(f"{name} = {target}" for name, target in lines.items())


def project(folder: Path, text: str | None = None):
    (folder / "recon.yml").write_text(text or blocks("yaml")[0])
    return load(folder)


def test_a_check_of_an_installed_package_is_bound_like_a_built_in(tmp_path, monkeypatch):
    install(tmp_path, monkeypatch, entry_points_of_the_page())
    assert "lake_checks" not in sys.modules
    assert known_checks.known("within_credit")
    assert "lake_checks" not in sys.modules  # a package is imported when one of its checks is asked for, not before
    (bound,) = [b for b in bind(project(tmp_path)) if b.kind == "data"]
    assert (bound.name, bound.column, bound.config.severity) == ("within_credit_orders_amount", "amount", "warn")
    assert (bound.check.column_name, bound.check.credit, bound.check.slack) == ("amount", "credit", 5)


@pytest.mark.parametrize(
    "asked",
    ["within_credit: {arguments: {slak: 5}}", "within_credit: {arguments: {slack: some}}", "within_credits"],
)
def test_its_arguments_are_checked_by_its_fields(tmp_path, monkeypatch, asked):
    install(tmp_path, monkeypatch, entry_points_of_the_page())
    head = blocks("yaml")[0].partition("              - within_credit")[0]
    with raises(ConfigError):
        bind(project(tmp_path, f"{head}              - {asked}\n"))


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("lake_chekcs:WithinCredit", "No module named 'lake_chekcs'"),
        ("lake_checks:Within", "has no attribute 'Within'"),
        ("lake_checks:dataclass", "is no check; derive it from RowCheck, KeyCheck, … of recon.checks"),
    ],
)
def test_a_package_that_is_broken_is_named(tmp_path, monkeypatch, target, why):
    install(tmp_path, monkeypatch, f"within_credit = {target}")
    with pytest.raises(ConfigError) as caught:
        bind(project(tmp_path))
    assert same_message(str(caught.value))
    assert why in str(caught.value)


def test_a_package_cannot_take_a_built_in_name(tmp_path, monkeypatch):
    install(tmp_path, monkeypatch, "not_null = lake_checks:WithinCredit")
    assert known_checks.check_class("not_null").__name__ == "NotNull"


@dataclass(frozen=True, kw_only=True)
class Quiet(EvidenceCheck):
    """Never finds anything."""

    test: ClassVar[str] = "quiet"
    least: int = 1

    def judge(self, witnesses):
        return Verdict(failures=0)


def test_register_makes_a_check_known_and_is_a_decorator(tmp_path):
    text = (
        "name: lake\nledger: _recon\npipelines:\n  - name: p\n    checkpoint: c\n"
        "    data_tests: [{quiet: {least: 2}}]\n    sinks: [{name: s, target: t}]\n"
    )
    with raises(ConfigError):
        bind(project(tmp_path, text))
    assert register(Quiet) is Quiet
    quiet = bind(project(tmp_path, text))[0]
    assert (quiet.name, quiet.kind, quiet.check) == ("quiet_p", "evidence", Quiet(least=2))
    with raises(ConfigError):
        bind(project(tmp_path, text.replace("least", "most")))


def test_the_pages_check_of_evidence_passes_its_test():
    page: dict = {"__name__": "page"}
    for block in blocks("python")[-2:]:
        exec(compile(block, "own_checks.md", "exec", dont_inherit=True), page)
    page["test_recent_batch"]()


def test_evaluate_refuses_what_the_check_does_not_judge():
    from recon.testing import evaluate, witnesses

    with raises(ConfigError):
        evaluate(Quiet(), object())
    with raises(ConfigError):
        evaluate(known_checks.check_class("not_null")(column_name="id"), witnesses())
    assert evaluate(Quiet(), witnesses(), severity="warn").severity == "warn"


@dataclass(frozen=True, kw_only=True)
class Taken(EachRow):
    test: ClassVar[str] = "unique"


@dataclass(frozen=True, kw_only=True)
class Nameless(EachRow):
    pass


@pytest.mark.parametrize("given", [Taken, Nameless, int, Quiet()])
def test_register_refuses_what_is_no_check_of_its_own(given):
    with raises(ConfigError):
        register(given)
