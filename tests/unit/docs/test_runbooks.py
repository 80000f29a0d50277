"""docs/runbooks: a page for each code, with all sections, and commands that exist."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer

from recon.base.errors import ConfigError
from recon.cli import main
from recon.cli.app import app
from recon.model import Code, Level, RunResult
from recon.project import load
from recon.reports import forms, html, run_results, runbook
from recon.reports.codes import MEANINGS
from recon.reports.console import Console
from tests.support.sample_run import healthy_run, sample_run

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "docs" / "runbooks"
SECTIONS = [
    "What it means",
    "What recon saw",
    "Look at first",
    "What can still be saved",
    "Repair or accept",
    "What not to do",
    "How it ends",
    "Example",
]
LEVELS = {"fail": "fail", "warn": "warning", "info": "information", "unproved": "could not be proved"}


def page(code: Code) -> str:
    return (FOLDER / f"{code}.md").read_text()


def in_one_line(text: str) -> str:
    return " ".join(text.split())


def test_each_code_has_a_page_and_no_page_is_without_a_code() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == {*map(str, Code), "index"}


@pytest.mark.parametrize("code", list(Code), ids=str)
def test_a_page_says_what_the_legend_says_and_has_every_section(code: Code) -> None:
    title, meaning, level, *_ = page(code).split("\n\n")
    assert (title, in_one_line(meaning)) == (f"# {code}", MEANINGS[code])
    assert level == f"Level: {LEVELS[code.level]}."
    assert re.findall(r"^## (.*)$", page(code), re.MULTILINE) == SECTIONS
    for section in re.split(r"^## .*$", page(code), flags=re.MULTILINE)[1:]:
        assert section.strip()


def _commands(text: str) -> Iterator[str]:
    """Every command of recon that a page names, in a block or in a sentence."""
    yield from re.findall(r"^\$ (recon .*)$", text, re.MULTILINE)
    yield from re.findall(r"`(recon [^`]*)`", in_one_line(text))


def _complaint(command: str) -> str:
    """What is wrong with a command's words; "" for nothing."""
    group: Any = typer.main.get_command(app)
    _, *words = shlex.split(command)
    while words and hasattr(group, "commands"):
        if words[0] not in group.commands:
            return f"{command}: there is no command {words[0]}"
        group = group.commands[words.pop(0)]
    options = {name for parameter in group.params for name in (*parameter.opts, *parameter.secondary_opts)}
    unknown = [word for word in words if word.startswith("-") and word not in options]
    return f"{command}: {group.name} has no {unknown[0]}" if unknown else ""


@pytest.mark.parametrize("code", list(Code), ids=str)
def test_the_commands_of_a_page_exist(code: Code) -> None:
    commands = list(_commands(page(code)))
    assert commands and [wrong for wrong in map(_complaint, commands) if wrong] == []


def test_a_command_that_does_not_exist_is_noticed() -> None:
    assert _complaint("recon repair undo") == "recon repair undo: there is no command undo"
    assert _complaint("recon audit --fully") == "recon audit --fully: audit has no --fully"


@pytest.mark.parametrize("code", list(Code), ids=str)
def test_an_example_is_of_a_test_that_exists_and_links_lead_somewhere(code: Code) -> None:
    file, _, name = re.findall(r"^From the test `(.*)`\.$", page(code), re.MULTILINE)[0].partition("::")
    assert re.search(rf"^def {name}\(", (ROOT / file).read_text(), re.MULTILINE)
    example = page(code).partition("## Example")[2]
    assert re.search(rf"```\n{code}\b", example)
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page(code)):
        assert (FOLDER / target).exists(), target


def _example(code: Code) -> tuple[str, str]:
    """The test that a page's example is of, and its message."""
    block, _, rest = page(code).partition("## Example\n\n```\n")[2].partition("```")
    _, _, message = block.partition("\n")  # behind the code and its place
    return re.findall(r"^From the test `(.*)`\.$", rest, re.MULTILINE)[0], _compared(message)


def _compared(message: str) -> str:
    """A message without its times, which may be those of the run."""
    return re.sub(r"\d{4}-\d\d-\d\d( \d\d:\d\d:\d\dZ)?", "<time>", in_one_line(message))


def test_examples_are_what_their_tests_make(tmp_path: Path) -> None:
    # The demo takes minutes; its own test compares what it finds.
    examples = {code: _example(code) for code in Code if not _example(code)[0].startswith("tests/demo/")}
    assert len(examples) == len(Code) - 1
    seen = tmp_path / "seen.json"
    tests = sorted({test for test, _ in examples.values()})
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "tests.support.findings_seen",
        "-p",
        "no:cacheprovider",
        *tests,
    ]
    env = {**os.environ, "RECON_FINDINGS_SEEN": str(seen)}
    ended = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout
    made = {(test, code, _compared(message)) for test, code, message in json.loads(seen.read_text())}
    assert [str(code) for code, (test, message) in examples.items() if (test, str(code), message) not in made] == []


def test_the_index_names_each_code_with_its_meaning() -> None:
    index = (FOLDER / "index.md").read_text()
    rows = re.findall(r"^\| \[`(\w+)`\]\((\w+)\.md\) \| (.*) \|$", index, re.MULTILINE)
    assert {(name, target): meaning for name, target, meaning in rows} == {
        (str(code), str(code)): meaning for code, meaning in MEANINGS.items()
    }


def test_a_page_that_is_printed_has_no_link_to_a_file() -> None:
    text = runbook.page_of(Code.MUTATED)
    assert "](" in page(Code.MUTATED) and "](" not in text
    assert "look at GAP" in text or "GAP" in text


def test_a_code_is_found_in_whatever_case() -> None:
    assert runbook.code_named("loss-retention") is Code.LOSS_RETENTION
    with pytest.raises(ConfigError, match="there is no code 'GAPS'; did you mean 'GAP'"):
        runbook.code_named("GAPS")


def test_the_command_prints_a_page_and_lists_all(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # no recon.yml
    with pytest.raises(SystemExit) as end:
        main(["runbook", "GAP"])
    assert end.value.code == 0 and capsys.readouterr().out == runbook.page_of(Code.GAP)
    with pytest.raises(SystemExit):
        main(["runbook"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == [str(code) for code in runbook.worst_first(Code)]
    with pytest.raises(SystemExit) as end:
        main(["runbook", "GAPS"])
    assert end.value.code == 2


def told_codes(run: RunResult) -> list[Code]:
    return [one.code for one in runbook.of_run(run)]


def test_a_run_names_each_code_once_worst_first_and_none_that_only_explains() -> None:
    run = sample_run()
    told = {f.code for r in run.results if r.status in ("fail", "warn", "error") for f in r.findings}
    codes = told_codes(run)
    assert set(codes) == {code for code in told if code.level is not Level.INFO} and len(codes) == len(set(codes))
    assert [code.level.rank for code in codes] == sorted(code.level.rank for code in codes)
    assert told_codes(healthy_run()) == []


def test_the_console_names_each_once() -> None:
    run = sample_run()
    out = io.StringIO()
    Console(out).summary(run)
    for code in told_codes(run):
        assert out.getvalue().count(f"  recon runbook {code}\n") == 1
    quiet = io.StringIO()
    Console(quiet).summary(healthy_run())
    assert "runbook" not in quiet.getvalue()


def test_every_form_names_them_with_the_address_of_recon_yml() -> None:
    run = replace(sample_run(), runbook_url="https://wiki.example.com/recon/{code}")
    out = io.StringIO()
    Console(out).summary(run)
    assert "  recon runbook GAP  https://wiki.example.com/recon/GAP\n" in out.getvalue()
    assert "[`recon runbook GAP`](https://wiki.example.com/recon/GAP)" in forms.text(run, "markdown")
    for form in ("junit", "github", "azure"):
        assert "what to do about it: recon runbook GAP (https://wiki.example.com/recon/GAP)" in forms.text(run, form)
    assert 'href="https://wiki.example.com/recon/GAP"' in html.render(run)


def test_the_report_has_the_pages_of_its_codes_in_itself() -> None:
    run = sample_run()
    page_of_run = html.render(run)
    anchors = re.findall(r'id="runbook-(\w+)"', page_of_run)
    assert anchors == [str(code) for code in told_codes(run)]
    linked = set(re.findall(r'href="#runbook-(\w+)"', page_of_run))
    assert linked and linked <= set(anchors)
    assert "<h4>What can still be saved</h4>" in page_of_run and "<h4>Example" not in page_of_run
    assert "What to do about" not in html.render(healthy_run())


@pytest.mark.parametrize(
    "url",
    ["javascript:alert('{code}')", "https://wiki/no-place", "https://wiki/{code} x", 'https://w/{code}"><script>'],
)
def test_what_is_no_address_is_refused_and_never_a_link(url: str, tmp_path: Path) -> None:
    ledger = "pipelines: [{name: p, checkpoint: c, sinks: [{name: s, target: t}]}]\nledger: l\nname: x\n"
    (tmp_path / "recon.yml").write_text(f"{ledger}reports: {{runbook_url: {json.dumps(url)}}}\n")
    with pytest.raises(ConfigError, match="runbook_url"):
        load(tmp_path)
    page_of_run = html.render(replace(sample_run(), runbook_url=url))  # as results that somebody edited may have
    assert "alert(" not in page_of_run and "https://w" not in page_of_run


def test_results_keep_the_address(tmp_path: Path) -> None:
    run = replace(sample_run(), runbook_url="https://wiki.example.com/{code}")
    assert run_results.read(run_results.write(run, tmp_path / "r.json")).runbook_url == run.runbook_url
