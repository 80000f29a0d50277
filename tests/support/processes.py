"""Small things that many tests need: `from helpers import until`."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path


def until(done: Callable[[], object], seconds: float = 30.0) -> bool:
    """Ask until the answer is true; False when it never was. Assert it: `assert until(lambda: …)`."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if done():
            return True
        time.sleep(0.02)
    return bool(done())


def of_session(session: int) -> Iterator[tuple[int, list[str]]]:
    """Pid and fields of /proc/<pid>/stat, from the state on, of a session's processes; others end while we look."""
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (process / "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) == session:
                    yield int(process.name), fields


def recon(
    *arguments: str, cwd: Path | None = None, env: Mapping[str, str] | None = None, timeout: float = 300.0
) -> subprocess.CompletedProcess[str]:
    """Run the installed `recon` command of this Python and return what it said; never raises on its exit code."""
    command = [str(Path(sys.executable).with_name("recon")), *arguments]
    merged = {**os.environ, "NO_COLOR": "1", **(env or {})}
    return subprocess.run(command, cwd=cwd, env=merged, capture_output=True, text=True, timeout=timeout, check=False)
