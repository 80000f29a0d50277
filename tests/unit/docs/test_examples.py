"""Every example on the pages is run, or held to the code: Python, recon.yml, commands, SQL, TOML, JSON."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from sybil import Example

import recon
from recon.base.errors import ConfigError
from recon.project.guarantees import guarantees
from recon.reports import compliance
from recon.testing import only_built_in
from tests.support import own_sinks, pages
from tests.support.sample_run import sample_compliance

# What a page takes for given, beside `recon.yml`, which is the page's own first block of YAML.
CRM = "def put(frame, batch): ...\ndef confirm(batch): ...\ndef rows(spark): ...\n"
MOST_NOT_RUN = 5


def blocks(*languages: str) -> list[Any]:
    """The blocks of all pages in these languages that are evaluated here."""
    return [
        pytest.param(example, id=f"{path.name}:{example.line}")
        for path in pages.PAGES
        for example in pages.examples(path, *languages)
        if not pages.run_by(example) and pages.why_not_run(example) is None
    ]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A folder with the module of docs/custom_sink.md and the document of docs/compliance.md."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "crm.py").write_text(CRM)
    compliance.write(sample_compliance(), tmp_path / "target" / "compliance.json", "json")
    with only_built_in():
        yield tmp_path
    for name in ("shop", "shop.crm", "lake_sinks", "lake_checks"):
        sys.modules.pop(name, None)


def ready(example: Example, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Example:
    example.namespace.update(folder=folder, monkeypatch=monkeypatch)
    return example


@pytest.mark.parametrize("example", blocks("yaml"))
def test_recon_loads_yaml_and_binds_its_checks(example: Example, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ready(example, folder, monkeypatch).evaluate()


@pytest.mark.parametrize("example", blocks("console", ""))
def test_commands_exist_and_take_their_options(example: Example, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ready(example, folder, monkeypatch).evaluate()


@pytest.mark.parametrize("example", blocks("json", "toml", "sql"))
def test_json_toml_and_sql_can_be_read(example: Example, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ready(example, folder, monkeypatch).evaluate()


@pytest.mark.parametrize("example", blocks("python"))
def test_python_runs(example: Example, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = Path(example.path)
    first = pages.examples(path, "yaml")
    pages.check_project(first[0].parsed if first else "sinks: [{name: orders, target: t}]", folder, monkeypatch)
    example.namespace |= {"recon": recon, "parse": lambda batch: batch}
    example.evaluate()


# No block is overlooked


def test_a_page_that_runs_elsewhere_runs_there() -> None:
    for page, tests in pages.RUN_BY.items():
        for test in tests:
            assert page in (pages.ROOT / test).read_text(), f"{test} does not name {page}"


def test_few_blocks_are_not_run_and_say_why() -> None:
    every = [example for path in pages.PAGES for example in pages.examples(path)]
    reasons = [reason for example in every if (reason := pages.why_not_run(example))]
    assert len(reasons) <= MOST_NOT_RUN, reasons
    comments = sum(f"\n{path.read_text()}".count("\n<!-- not run") for path in pages.PAGES)
    assert len(reasons) == comments, "a comment stands in the line above its block: <!-- not run: reason -->"


# What holds a block does refuse what is wrong


@pytest.mark.parametrize(
    "fragment",
    [
        "sinks: [{name: orders, target: t, kindd: delta}]",
        "sinks: [{name: orders, target: t, data_tests: [nosuch_check]}]",
        "data_tests: [{accepted_values: {valuess: [a]}}]",
        "heads: {origin: example.org/lake, keyy: x}",
    ],
)
def test_a_fragment_that_recon_refuses(fragment: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError):
        pages.check_project(fragment, folder, monkeypatch)


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("recon audti", AssertionError),
        ("recon ledger shwo", AssertionError),
        ("recon audit --selct x", typer.BadParameter.__mro__[1]),
        ("recon compliance --from", Exception),
        ("make tset", AssertionError),
        ("python nosuch.py", AssertionError),
        ("recno audit", AssertionError),
    ],
)
def test_a_command_that_does_not_exist(line: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        for words in pages.commands(f"$ {line}\noutput --of it\n"):
            pages.check_command(words)


def test_a_sql_test_that_recon_refuses(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "data_tests").mkdir()
    (folder / "data_tests" / "wrong.sql").write_text("select * from {{ ref('nosuch') }}")
    with pytest.raises(ConfigError, match="nosuch"):
        pages.check_project("defaults: {severity: warn}", folder, monkeypatch)


def test_the_cookbook_shows_the_guarantee_of_an_upsert() -> None:
    promised = {kind: promise.label for kind, promise in guarantees()}
    shown = pages.examples(pages.ROOT / "docs/cookbook/azure_sql.md", "console")[1].parsed.splitlines()[1:]
    assert shown == [f"jdbc_upsert: {promised['jdbc_upsert']}"]


def test_the_packages_of_the_pages_are_those_that_tests_install() -> None:
    # docs/own_sinks.md and docs/own_checks.md are run as installed packages.
    assert own_sinks.blocks("python")[0] == str(pages.examples(own_sinks.PAGE, "python")[0].parsed)
