"""The demo's folder: recon.yml, the two jobs, a marker file; one demo at a time. `recon try` has one, too."""

from __future__ import annotations

import fcntl
import os
import shutil
from importlib import resources
from pathlib import Path
from string import Template

from recon.base.errors import ConfigError
from recon.local.kafka import stop_detached

MARKER = ".recon-demo"
TRY_MARKER = ".recon-try"
_MARKER_TEXT = "Made by `recon demo`, which may replace everything in this folder.\n"
FILES = ("recon.yml", "orders.py", "payments.py")


def require_ours(folder: Path, marker: str, what: str) -> None:
    """Checks that a folder is empty, or that its marker says that recon made all of it.

    Raises:
        ConfigError: it has files of another origin.
    """
    if not (folder / marker).is_file() and any(folder.iterdir()):
        raise ConfigError(
            f"{folder} holds files that are not from an earlier {what}, and is not changed; choose another folder "
            "with --dir, or empty it first"
        )


def empty(folder: Path) -> None:
    """Removes everything from a folder of ours but its marker."""
    for path in folder.iterdir():
        if path.name in (MARKER, TRY_MARKER):
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


class DemoFolder:
    """An empty folder for one run; entering it removes the files of an earlier demo, and no others.

    Raises:
        ConfigError: the folder has files of another origin, or a demo runs there now.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.kafka = self.path / "kafka"
        self.logs = self.path / "logs"
        self._lock: int | None = None

    def __enter__(self) -> DemoFolder:
        try:
            self._take()
            self._clear()
            self.logs.mkdir()
        except OSError as error:
            raise ConfigError(
                f"{self.path} cannot be used for the demo: {error.strerror or error}; choose another with --dir"
            ) from error
        return self

    def __exit__(self, *_: object) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _take(self) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        require_ours(self.path, MARKER, "demo")
        marker = self.path / MARKER
        self._lock = os.open(marker, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            self._lock = None
            raise ConfigError(
                f"another demo runs in {self.path} now; wait for it, or choose another folder with --dir"
            ) from None
        marker.write_text(_MARKER_TEXT)

    def _clear(self) -> None:
        if (self.kafka / "server.properties").exists():
            stop_detached(self.kafka)  # left running by --keep-broker
        empty(self.path)

    def write_project(self, bootstrap_servers: str) -> None:
        """Writes recon.yml for this broker, and the two jobs."""
        for name in FILES:
            text = (resources.files("recon.local.demo") / "templates" / name).read_text(encoding="utf-8")
            if name.endswith(".yml"):
                text = Template(text).substitute(bootstrap=bootstrap_servers)
            (self.path / name).write_text(text, encoding="utf-8")
