"""Child processes that are stopped in order, and that end when their parent is killed."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path


class ChildProcess:
    """One process in a session of its own, its output appended to `log`.

    In a session of its own it does not get Ctrl-C, so that the parent can stop it in order. When the parent is killed,
    a guard process sends it SIGTERM: a shell that waits for the parent's end of a pipe to close. A `detached` process
    has no guard and runs on. With `shown` it writes to the parent's standard output, and the log gets standard error
    alone. `stdin` and `pass_fds` are those of `subprocess.Popen`.
    """

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        detached: bool = False,
        shown: bool = False,
        stdin: int = subprocess.DEVNULL,
        pass_fds: Sequence[int] = (),
    ) -> None:
        self.log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                list(command),
                stdin=stdin,
                stdout=None if shown else output,
                stderr=output,
                pass_fds=pass_fds,
                env=None if env is None else dict(env),
                cwd=cwd,
                start_new_session=True,
            )
        self._guard: subprocess.Popen[bytes] | None = None
        if not detached:
            self._guard = subprocess.Popen(
                ["sh", "-c", 'read -r _; kill -TERM "$1"', "recon-guard", str(self._process.pid)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        if self._process.poll() is None:
            return True
        self._end_guard()
        return False

    @property
    def exit_code(self) -> int | None:
        """Its exit code, minus the signal's number when a signal ended it; None while it runs."""
        return self._process.returncode if not self.alive else None

    def stop(self, patience: float = 15.0) -> None:
        """SIGTERM; after `patience` seconds SIGKILL to it and its children. Returns when it has ended."""
        # The guard ends first: once the process is reaped, its pid may belong to another one.
        self._end_guard()
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(patience)
            except subprocess.TimeoutExpired:
                self.kill()

    def kill(self) -> None:
        """SIGKILL, as in a crash: to the process and to its children in its session."""
        self._end_guard()
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _end_guard(self) -> None:
        if self._guard is None:
            return
        guard, self._guard = self._guard, None
        guard.kill()
        guard.wait()
        if guard.stdin is not None:
            guard.stdin.close()


def tail(log: Path, lines: int = 15) -> str:
    """The last `lines` lines of a log file; empty when there is none."""
    try:
        return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
    except FileNotFoundError:
        return ""


def free_ports(count: int) -> tuple[int, ...]:
    """`count` different TCP ports of the loopback interface on which no process listens now."""
    with contextlib.ExitStack() as sockets:
        ports = []
        for _ in range(count):
            sock = sockets.enter_context(socket.socket())
            sock.bind(("127.0.0.1", 0))
            ports.append(int(sock.getsockname()[1]))
        return tuple(ports)


def command_line(pid: int) -> str | None:
    """The command line of a running process, words joined by spaces; None when there is no such process."""
    proc = Path(f"/proc/{pid}/cmdline")
    if Path("/proc/self/cmdline").exists():
        try:
            words = proc.read_bytes()
        except OSError:
            return None
        return words.replace(b"\0", b" ").decode(errors="replace").strip() or None
    completed = subprocess.run(["ps", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return completed.stdout.strip() or None


def stop_pid(pid: int, patience: float = 15.0) -> None:
    """Ends a process that is not a child of this one: SIGTERM, then SIGKILL. The caller has verified what it is."""
    for sent, wait in ((signal.SIGTERM, patience), (signal.SIGKILL, 5.0)):
        try:
            os.kill(pid, sent)
        except ProcessLookupError:
            return
        deadline = time.monotonic() + wait
        while time.monotonic() < deadline:
            if command_line(pid) is None:
                return
            time.sleep(0.05)
