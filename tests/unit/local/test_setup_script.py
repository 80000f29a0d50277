"""scripts/setup.sh uses sudo only where it was asked to."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "scripts" / "setup.sh"


@pytest.mark.parametrize("asked", [None, "0", "1"])
def test_sudo_is_used_when_asked_for(tmp_path: Path, asked: str | None) -> None:
    for name, does in (("id", "echo 1000"), ("apt-get", "exit 1"), ("sudo", f'echo "$@" >> {tmp_path}/called; exit 0')):
        (tmp_path / name).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / name).chmod(0o755)
    text = SCRIPT.read_text()
    functions = text[text.index("say()") : text.index("# A Python that is new enough")]
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    environment.pop("RECON_SUDO", None)
    environment |= {} if asked is None else {"RECON_SUDO": asked}
    command = ["bash", "-c", f"{functions}\napt_install somepackage"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if asked == "1":
        assert done.returncode == 0 and "install" in (tmp_path / "called").read_text()
    else:
        assert done.returncode == 1 and not (tmp_path / "called").exists()
        assert "somepackage is missing; run 'sudo apt-get install somepackage'" in done.stdout
