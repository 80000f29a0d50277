"""What ended one of xdist's processes, and which tests it leaves undone.

xdist says that a process "crashed" and ends the run. A library in C++ or Rust that aborts, the kernel that needs memory
and a test that ends the wrong process look the same then: the summary has the signal and the stack of each thread.
xdist can start another process instead, but then waits without end where the death came late. So the tests that did
not run are listed in the file that RECON_TESTS_LEFT names, for a pytest of their own: scripts/test.sh.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

import pytest

_STACK_LINES = 60
_kept_open: list[TextIO] = []  # faulthandler writes into it by its descriptor


def watch(config: pytest.Config) -> None:
    """In one of xdist's processes: its stacks go to a file. In the one that divides the tests: reads it."""
    if hasattr(config, "workerinput"):
        # pytest's own handler, which this one takes the place of, writes them among what the other processes print.
        _kept_open.append(_stacks_of(os.getpid()).open("w", encoding="utf-8"))
        faulthandler.enable(_kept_open[-1])
    else:
        config.pluginmanager.register(_Divider())


class _Divider:
    """Hooks of the process that divides the tests."""

    def __init__(self) -> None:
        self._died: list[str] = []
        self._tests: Sequence[str] = ()
        self._reported: set[str] = set()

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        self._tests = ids

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._reported.add(report.nodeid)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object | None) -> None:
        popen = node.gateway._io.popen  # noqa: SLF001 - execnet has no other way to the exit code
        stacks = _stacks_of(popen.pid)
        if error is not None:
            written = stacks.read_text(encoding="utf-8", errors="replace") if stacks.exists() else ""
            shown = "\n".join(written.splitlines()[:_STACK_LINES]) or "(no stack: faulthandler did not see it)"
            self._died.append(f"{node.gateway.id} (process {popen.pid}) {_ended(popen)}\n{shown}")
        stacks.unlink(missing_ok=True)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        left = [test for test in self._tests if test not in self._reported] if self._died else []
        for each in self._died:
            terminalreporter.section("a process died")
            terminalreporter.write_line(each)
            terminalreporter.write_line(f"{len(left)} tests did not run")
        if left and (listed := os.environ.get("RECON_TESTS_LEFT")):
            Path(listed).write_text("\n".join(left) + "\n", encoding="utf-8")


def _ended(process: subprocess.Popen[bytes]) -> str:
    try:
        code = process.wait(10)
    except subprocess.TimeoutExpired:
        return "still runs, and does not answer"
    return f"ended by signal {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


def _stacks_of(pid: int) -> Path:
    return Path(tempfile.gettempdir()) / f"recon-tests-stacks-{pid}.txt"
