"""recon sinks on the command line: what each sink promises, and whether the ledger shows that the hook writes it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from tests.unit.cli.test_cli import BASE, Ended, project, recon  # noqa: F401
from tests.unit.recovery.test_starting_offsets import Table


def test_a_sink_that_the_hook_has_not_written(
    project: Path,  # noqa: F811
    recon: Callable[..., Ended],  # noqa: F811
) -> None:
    (project / "recon.yml").write_text(BASE.replace("    sinks:\n", "    sinks:\n      - {name: copy, target: copy}\n"))
    notes = {row["sink"]: row["note"] for row in json.loads(recon("sinks", "--output", "json").out)}
    assert all("it has no micro-batch of this sink" in note for note in notes.values()) and len(notes) == 2
    Table(project).write(0, 0, 10)
    notes = {row["sink"]: row["note"] for row in json.loads(recon("sinks", "--output", "json").out)}
    assert [name for name, note in notes.items() if note is not None] == ["orders.copy"]
    text = recon("sinks").out
    assert text.count("not shown by the ledger") == 1 and "_recon" in text


def test_a_ledger_that_cannot_be_read(
    project: Path,  # noqa: F811
    recon: Callable[..., Ended],  # noqa: F811
) -> None:
    log = project / "_recon/ledger/_delta_log"
    log.mkdir(parents=True)
    (log / "00000000000000000000.json").write_text("no JSON")
    ended = recon("sinks")
    assert ended.code == 0 and "whether the hook writes it is not known: " in ended.out


def test_every_kind_needs_no_project(recon: Callable[..., Ended], tmp_path: Path) -> None:  # noqa: F811
    assert "note" not in json.loads(recon("sinks", "--kinds", "--output", "json").out)[0]
