"""Child processes: ended in order, and not left behind when their parent is killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from recon.local.process import ChildProcess, command_line, free_ports, stop_pid, tail
from tests.support.processes import until


def test_stop_sends_sigterm_and_keeps_the_log(tmp_path: Path) -> None:
    script = "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.05; done"
    child = ChildProcess(["sh", "-c", script], tmp_path / "log")
    assert until(lambda: "up" in tail(child.log))
    assert child.alive
    child.stop()
    assert not child.alive
    assert tail(child.log) == "up\nbye"


def test_a_process_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    child = ChildProcess(["sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.05; done"], tmp_path / "log")
    assert until(lambda: "up" in tail(child.log))
    child.stop(patience=0.3)
    assert not child.alive
    assert command_line(child.pid) is None


def test_a_child_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    parent = f"""
import time
from pathlib import Path
from recon.local.process import ChildProcess
child = ChildProcess(["sleep", "600"], Path({str(tmp_path / "log")!r}))
print(child.pid, flush=True)
time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        try:
            assert until(lambda: command_line(pid) == "sleep 600")  # before its exec, it has Python's own
        finally:
            process.kill()
    # Orphans are reaped by whoever adopted them; a zombie has no command line.
    assert until(lambda: command_line(pid) is None)


def test_stop_pid_ends_a_process_that_is_not_our_child(tmp_path: Path) -> None:
    # The shell ends at once, so the sleeper is an orphan like a detached broker.
    completed = subprocess.run(
        ["sh", "-c", "sleep 601 >/dev/null 2>&1 & echo $!"], capture_output=True, text=True, check=True
    )
    pid = int(completed.stdout)
    assert command_line(pid) == "sleep 601"
    stop_pid(pid)
    assert command_line(pid) is None
    stop_pid(pid)  # gone already: nothing to do


def test_free_ports_are_different() -> None:
    assert len(set(free_ports(20))) == 20
