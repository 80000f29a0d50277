"""What data can hold (topic names, messages, values) does nothing in a terminal or in a CI server's log."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import typer

from recon.base.text import inert
from recon.cli.shared import Session, SharedOptions, print_json
from recon.reports.forms import text
from recon.reports.words import one_line
from tests.support.sample_run import sample_run
from tests.unit.cli.test_cli import Ended, project, recon  # noqa: F401 - fixtures

COMMANDS = ("##vso[task.setvariable variable=a]b", "##[error]gone", "::error::x", "  ::set-output name=a::b")
LINK = "\x1b]8;;http://evil.example\x07here\x1b]8;;\x07"
ESCAPES = (LINK, "\x1b[2J", "\x9b31m", "a\u202eb", "\u2066x\u2069", "\x00", "\r")


def acts(output: str) -> list[str]:
    """What a CI server or a terminal would act upon."""
    found = re.findall(
        r"##vso\[|##\[|^\s*::|[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]", output, re.M
    )
    return [one for one in found if one != "\r"]


@pytest.mark.parametrize("hostile", [*COMMANDS, *ESCAPES])
def test_text_is_inert(hostile: str) -> None:
    for shown in (inert(hostile), inert(f"orders\n{hostile}\n"), inert(f"a: {hostile}"), one_line(hostile)):
        assert acts(shown) == []
    assert "evil.example" in inert(LINK), "it is shown, and does nothing"


def test_what_is_no_command_stays() -> None:
    for plain in ("a::b", "C:: d", "# 1", "## a [b]", "tab\tand\nline\r\n", "café 日本 ✅ \u200b", "[1] 2"):
        assert inert(plain) == plain
    assert inert("\x1b[1;31mred\x1b[0m", styled=True) == "\x1b[1;31mred\x1b[0m" != inert("\x1b[1;31mred\x1b[0m")
    assert acts(inert("\x1b[31m\x1b[5;5H\x1b]0;title\x07", styled=True).replace("\x1b[31m", "")) == []


def test_annotations_of_recon_itself_act_and_nothing_in_them_does() -> None:
    message = " ".join(COMMANDS)
    run = sample_run()
    run = replace(run, results=tuple(replace(r, message=message) for r in run.results))
    for form, begin in (("github", "::"), ("azure", "##vso[task.logissue ")):
        lines = text(run, form).splitlines()
        assert lines and all(line.startswith(begin) for line in lines)
        for line in lines:
            assert "##vso[" not in line[len(begin) :] and "##[" not in line
            assert inert(line) == line, "printed as it is"


def test_all_that_a_command_prints_is_inert(capsys: pytest.CaptureFixture[str]) -> None:
    hostile = "\n".join((*COMMANDS, *ESCAPES))
    with Session(SharedOptions()).guarded():
        typer.echo(hostile)
        typer.echo(hostile, err=True)
        print_json({"topic": hostile})
    captured = capsys.readouterr()
    assert acts(captured.out) == [] and acts(captured.err) == []
    document = captured.out[captured.out.index("{") :]
    assert json.loads(document) == {"topic": hostile}, "JSON holds the same value"


def test_an_error_is_inert(recon: Callable[..., Ended], project: Path) -> None:  # noqa: F811
    for command in COMMANDS:
        ended = recon("audit", "--select", f"x\n{command}")
        assert ended.code == 2 and acts(ended.err) == [] and "task" not in ended.out
