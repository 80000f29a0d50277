"""What the local database servers share: a user, a database, a folder made by a program, a process that answers."""

from __future__ import annotations

import secrets
import subprocess
import time
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

from recon.base.errors import ConfigError
from recon.local.process import ChildProcess, free_ports, tail
from recon.local.server import LocalServer

_READY_SECONDS = 60.0


class LocalDatabase(LocalServer):
    """A server on a free loopback port with one user `recon` and one database `recon`; starts on `start()` or `with`.

    Args:
        data_dir: a folder of its own for data, settings and log, which the server's user can reach. None makes a
            temporary one that leaving `with` removes. A folder that was used before is used again.
    """

    product: ClassVar[str]
    scheme: ClassVar[str]  # of the JDBC URL

    def __init__(self, data_dir: Path | None = None) -> None:
        super().__init__(data_dir, self.product.lower())
        self.user, self.database, self.password, self.port = "recon", "recon", "", 0

    @property
    def url(self) -> str:
        """The JDBC URL, without credentials."""
        return f"jdbc:{self.scheme}://127.0.0.1:{self.port}/{self.database}"

    @property
    def connection(self) -> dict[str, str]:
        """What a sink's `connection` needs."""
        return {"url": self.url, "user": self.user, "password": self.password}

    @abstractmethod
    def connect(self, **more: Any) -> Any:
        """A connection of the database's Python driver in autocommit mode, as `recon` unless told otherwise."""

    @abstractmethod
    def sql(self, *statements: str) -> list[tuple[Any, ...]]:
        """Runs statements and returns the rows of the last one."""

    def start(self) -> Self:
        """Start the server and return when it answers; does nothing when it runs.

        Raises:
            ConfigError: the server's programs are not there, or it did not come up; names its log file.
        """
        if self.alive:
            return self
        if again := self._used_before:
            self.password = (self.data_dir / "password").read_text()
            self.port = int((self.data_dir / "port").read_text())
        else:
            self._make_folder()
        self._process = ChildProcess(self._command(), self.log_file, cwd=self.data_dir)
        deadline = time.monotonic() + _READY_SECONDS
        while (self._process.alive or again) and time.monotonic() < deadline:
            if self._answers():
                return self
            time.sleep(0.05)
            if not self._process.alive and again:  # what a killed server left running still holds its memory
                time.sleep(0.5)
                self._process = ChildProcess(self._command(), self.log_file, cwd=self.data_dir)
        self.kill()
        raise ConfigError(
            f"the local {self.product} server did not come up on port {self.port}: "
            f"{tail(self.log_file, 1).strip()}; its log is {self.log_file}"
        )

    def _make_folder(self) -> None:
        self.data_dir.mkdir(parents=True, exist_ok=True)
        self.password = secrets.token_urlsafe(12)
        (self.port,) = free_ports(1)
        (self.data_dir / "password").write_text(self.password)
        (self.data_dir / "port").write_text(str(self.port))
        self._initialise()

    def _made_by(self, command: Sequence[str], hint: str) -> None:
        """Run the program that makes the data folder."""
        completed = subprocess.run(command, capture_output=True, text=True, cwd=self.data_dir, check=False)
        if completed.returncode != 0:
            output = (completed.stderr + completed.stdout).strip().splitlines()
            raise ConfigError(
                f"the local {self.product} data folder {self.data_dir} could not be made: "
                f"{output[-1] if output else f'exit code {completed.returncode}'}; {hint}"
            )

    @property
    @abstractmethod
    def _used_before(self) -> bool:
        """Whether the folder holds a server's data."""

    @abstractmethod
    def _initialise(self) -> None:
        """Make the server's data, for `user`, `password` and `port`."""

    @abstractmethod
    def _command(self) -> list[str]:
        """What starts the server."""

    @abstractmethod
    def _answers(self) -> bool:
        """Whether `recon` can connect to the database by now."""
