"""A server process with its own folder: started, stopped in order, killed as in a crash, started again."""

from __future__ import annotations

import shutil
import tempfile
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Self

from recon.local.process import ChildProcess


class LocalServer(ABC):
    """One process with its data and log in `data_dir`; starts on `start()` or `with`."""

    def __init__(self, data_dir: Path | None, name: str) -> None:
        """Without `data_dir` a temporary folder is made, which leaving `with` removes."""
        self._temporary = data_dir is None
        folder = Path(tempfile.mkdtemp(prefix=f"recon-{name}-")) if data_dir is None else Path(data_dir)
        self.data_dir = folder.absolute()
        self.log_file = self.data_dir / "server.log"
        self._process: ChildProcess | None = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
        if self._temporary:
            shutil.rmtree(self.data_dir, ignore_errors=True)

    @property
    def alive(self) -> bool:
        """Whether the server's process runs."""
        return self._process is not None and self._process.alive

    @abstractmethod
    def start(self) -> Self:
        """Start the server and return when it answers; does nothing when it runs."""

    def stop(self) -> None:
        """Stop the server in order (SIGTERM, then SIGKILL); its data and log stay."""
        if self._process is not None:
            self._process.stop()
            self._process = None

    def kill(self) -> None:
        """Ends the server as in a crash (SIGKILL)."""
        if self._process is not None:
            self._process.kill()
            self._process = None
