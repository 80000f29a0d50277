"""The recipes of docs/schedule.md: what can be held to the code and to the tools that are there."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer
import yaml

from recon.cli.app import app
from recon.reports import forms
from tests.support.pages import ROOT

FOLDER = ROOT / "examples/schedule"
AUDIT = re.compile(r"(?:^|[ /])recon (audit(?: +\S+)*)$", re.MULTILINE)


def test_every_recipe_is_on_the_page() -> None:
    page = (ROOT / "docs/schedule.md").read_text()
    assert [file.name for file in FOLDER.iterdir() if f"examples/schedule/{file.name}" not in page] == []
    line = next(one for one in (FOLDER / "crontab").read_text().splitlines() if one.startswith("0 6"))
    assert f"```\n{line}\n```" in page


@pytest.mark.parametrize("name", ["crontab", "recon-audit.service", "audit-workflow.yml"])
def test_the_options_of_its_audit_exist(name: str) -> None:
    (found,) = AUDIT.findall((FOLDER / name).read_text())
    command = typer.main.get_command(app).commands["audit"]  # type: ignore[attr-defined]
    command.make_context("audit", shlex.split(found)[1:], resilient_parsing=True)
    options = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in shlex.split(found) if word.startswith("--")} <= options


def test_the_workflow_shows_what_the_audit_writes() -> None:
    workflow = yaml.safe_load((FOLDER / "audit-workflow.yml").read_text())
    steps = workflow["jobs"]["audit"]["steps"]
    assert all(("run" in step) != ("uses" in step) for step in steps)
    summary = next(step["run"] for step in steps if "GITHUB_STEP_SUMMARY" in step.get("run", ""))
    assert f"cat target/{forms.FORMS['markdown']} " in summary


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_systemd_takes_the_units(tmp_path: Path) -> None:
    recon = Path(sys.executable).with_name("recon")
    for name in ("recon-audit.service", "recon-audit.timer"):
        text = (FOLDER / name).read_text().replace("/srv/shop/.venv/bin/recon", str(recon))
        (tmp_path / name).write_text(text.replace("/srv/shop", str(tmp_path)))
    command = ["systemd-analyze", "verify", "--man=no", str(tmp_path / "recon-audit.timer")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = [line for line in done.stderr.splitlines() if "recon-audit" in line]
    assert (done.returncode, said) == (0, []), done.stderr
    calendar = re.search(r"OnCalendar=(.+)", (FOLDER / "recon-audit.timer").read_text())
    assert calendar is not None
    subprocess.run(["systemd-analyze", "calendar", calendar[1]], check=True, capture_output=True)
