"""docs/cli.md tells every command and every option of the command line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from recon.cli.app import app

PAGE = (Path(__file__).parents[3] / "docs" / "cli.md").read_text()
SHARED = {"--project-dir", "--vars", "--debug", "--wide", "--no-color", "--help", "--version"}


def _commands(group: Any, path: str = "recon") -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if getattr(command, "invoke_without_command", False):
            yield f"{path} {name}", command
        if hasattr(command, "commands"):
            yield from _commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


COMMANDS = dict(_commands(typer.main.get_command(app)))


def _section(command: str) -> str:
    section = re.search(rf"^## {re.escape(command)}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    return section[1] if section else ""


def test_there_are_the_commands_we_promise() -> None:
    alone = [
        "audit",
        "retry",
        "failures show",
        "list",
        "report",
        "compliance",
        "compliance pack",
        "compliance sample",
        "compliance verify",
        "compare",
        "offsets",
        "init",
        "debug",
        "advise",
        "findings",
        "accept",
    ]
    alone += ["account", "explain", "trace", "sinks", "runbook", "try", "forget", "observe"]
    ledger = [f"ledger {c}" for c in ("show", "verify", "prove", "key", "rebuild", "compact")]
    local = [f"local kafka {c}" for c in ("start", "stop")]
    aside = [f"quarantine {c}" for c in ("show", "release")] + [f"repair {c}" for c in ("plan", "apply")]
    others = ["import dbt", "import odcs", "export gx", "export odcs", "alerts test"]
    assert sorted(COMMANDS) == sorted(f"recon {c}" for c in (*alone, "demo", *ledger, *local, *aside, *others))


def test_every_command_and_option_is_documented() -> None:
    missing = []
    for command, cli_command in COMMANDS.items():
        section = _section(command)
        if not section:
            missing.append(command)
        options = {o for p in cli_command.params for o in p.opts if o.startswith("-")}
        assert SHARED - {"--version", "--help"} <= options
        missing += [f"{command} {o}" for o in sorted(options - SHARED) if not re.search(rf"{o}\b", section)]
    missing += [o for o in SHARED if f"`{o}`" not in PAGE and f"`recon {o}`" not in PAGE]
    assert missing == []


def test_nothing_is_documented_that_does_not_exist() -> None:
    documented = re.findall(r"^## (recon .*)$", PAGE, re.MULTILINE)
    assert sorted(documented) == sorted(COMMANDS)
    for command in documented:
        options = {o for p in COMMANDS[command].params for o in p.opts}
        usage = re.search(r"```\n(.*?)```", _section(command), re.DOTALL)
        assert usage is not None
        assert set(re.findall(r"--[a-z-]+", usage[1])) <= options
