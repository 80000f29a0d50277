"""Runs commands of recon one after another in a process of their own, which starts Spark once for all of them.

    python -m recon.local.demo.shell ANSWERS

The process reads the arguments of a command from each line of its standard input (JSON). It runs the command in the
current folder as `recon` would, and writes its exit code as a line to the file descriptor ANSWERS.
"""

from __future__ import annotations

import contextlib
import json
import os
import runpy
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from recon.local.process import ChildProcess


class Shell:
    """The process, as the demo sees it. What the commands print is shown; what Spark logs goes to `log`."""

    def __init__(self, folder: Path, log: Path, env: Mapping[str, str]) -> None:
        self.log = log
        commands, self._commands = os.pipe()
        self._answers, answers = os.pipe()
        try:
            self._process = ChildProcess(
                [sys.executable, "-m", "recon.local.demo.shell", str(answers)],
                log,
                # A repair imports the job whose transform it uses; the folder is the user's to look at.
                env={**env, "PYTHONDONTWRITEBYTECODE": "1"},
                cwd=folder,
                shown=True,
                stdin=commands,
                pass_fds=(answers,),
            )
        finally:
            os.close(commands)
            os.close(answers)

    def __enter__(self) -> Shell:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        os.close(self._commands)
        os.close(self._answers)
        deadline = time.monotonic() + (15 if kind is None else 0)
        while self._process.alive and time.monotonic() < deadline:
            time.sleep(0.05)
        self._process.stop()

    def run(self, *arguments: str) -> int:
        """Runs `recon` with these arguments; returns its exit code, or that of the process where it has ended."""
        answer = b""
        with contextlib.suppress(BrokenPipeError):
            os.write(self._commands, json.dumps(arguments).encode() + b"\n")
            while not answer.endswith(b"\n") and (part := os.read(self._answers, 16)):
                answer += part
        if answer:
            return int(answer)
        while self._process.alive:
            time.sleep(0.05)
        return self._process.exit_code or 1


def serve(answers: int) -> None:
    """Runs the commands that standard input names, until it ends."""
    # The session of a repair, which reads Kafka; commands that need Spark find it and start no other.
    from recon.project import load
    from recon.spark.session import session

    session(load(Path.cwd()), kafka=True)
    for line in sys.stdin:
        sys.argv = ["recon", *json.loads(line)]
        code: object = 0
        try:
            runpy.run_module("recon.cli", run_name="__main__")
        except SystemExit as end:
            code = end.code
        sys.stdout.flush()
        os.write(answers, f"{code if isinstance(code, int) else int(code is not None)}\n".encode())


if __name__ == "__main__":
    serve(int(sys.argv[1]))
