"""A MariaDB server of our own on a free loopback port, from Debian's `mariadb-server`: for tests and the demo."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from recon.errors import ConfigError
from recon.local.process import ChildProcess, free_ports, tail

_READY_SECONDS = 60.0


class LocalMariaDB:
    """A server with one user `recon`, who may do anything, and one database `recon`; starts on `start()` or `with`.

    Args:
        data_dir: a folder of its own for data and log. None makes a temporary one that leaving `with` removes. A
            folder that was used before is used again.
    """

    def __init__(self, data_dir: Path | None = None) -> None:
        self._temporary = data_dir is None
        folder = Path(tempfile.mkdtemp(prefix="recon-mariadb-")) if data_dir is None else Path(data_dir)
        self.data_dir = folder.absolute()
        self.log_file = self.data_dir / "server.log"
        self.user, self.database, self.password, self.port = "recon", "recon", "", 0
        self._process: ChildProcess | None = None

    def __enter__(self) -> LocalMariaDB:
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
        return f"jdbc:mariadb://127.0.0.1:{self.port}/{self.database}"

    @property
    def connection(self) -> dict[str, str]:
        """What a sink's `connection` needs."""
        return {"url": self.url, "user": self.user, "password": self.password}

    @property
    def alive(self) -> bool:
        """Whether the server's process runs."""
        return self._process is not None and self._process.alive

    def connect(self, **more: Any) -> Any:
        """A PyMySQL connection in autocommit mode."""
        import pymysql

        given = {"user": self.user, "password": self.password, "database": self.database, **more}
        return pymysql.connect(host="127.0.0.1", port=self.port, autocommit=True, connect_timeout=5, **given)

    def sql(self, *statements: str) -> list[tuple[Any, ...]]:
        """Runs statements and returns the rows of the last one."""
        rows: list[tuple[Any, ...]] = []
        with self.connect() as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
                rows = list(cursor.fetchall()) if cursor.description else []
        return rows

    def start(self) -> LocalMariaDB:
        """Start the server and return when it answers; does nothing when it runs.

        Raises:
            ConfigError: no MariaDB programs, or the server did not come up; names its log file.
        """
        if self.alive:
            return self
        server = find_mariadb()
        if not (self.data_dir / "data" / "mysql").is_dir():
            self._initialise()
        else:
            self.password = (self.data_dir / "password").read_text()
            self.port = int((self.data_dir / "port").read_text())
        command = [str(server), *self._options(), f"--port={self.port}", "--bind-address=127.0.0.1"]
        # The init file makes our user and database; it runs before the server answers, each time.
        command += [f"--socket={self.data_dir / 's'}", f"--init-file={self.data_dir / 'init.sql'}"]
        command += [f"--pid-file={self.data_dir / 'pid'}", "--skip-name-resolve", "--innodb-buffer-pool-size=64M"]
        # Durable against the end of the process, which is what tests cause, and not against that of the machine.
        command += ["--innodb-flush-log-at-trx-commit=2", "--performance-schema=OFF", "--max-connections=60"]
        self._process = ChildProcess(command, self.log_file, cwd=self.data_dir)
        deadline = time.monotonic() + _READY_SECONDS
        while self._process.alive and time.monotonic() < deadline:
            if self._answers():
                return self
            time.sleep(0.05)
        self.kill()
        raise ConfigError(
            f"the local MariaDB server did not come up on port {self.port}: {tail(self.log_file, 1).strip()}; "
            f"its log is {self.log_file}"
        )

    def stop(self) -> None:
        """Stop the server in order; its data stays."""
        if self._process is not None:
            self._process.stop()
            self._process = None

    def kill(self) -> None:
        """End the server as a crash would (SIGKILL)."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    def restart(self) -> LocalMariaDB:
        """Stop, then start on the same port and data."""
        self.stop()
        return self.start()

    def _options(self) -> list[str]:
        # Without the machine's own option files; as root it only starts when told who to be.
        options = ["--no-defaults", f"--datadir={self.data_dir / 'data'}"]
        return [*options, "--user=root"] if os.geteuid() == 0 else options

    def _initialise(self) -> None:
        self.data_dir.mkdir(parents=True, exist_ok=True)
        self.password = secrets.token_urlsafe(12)
        (self.port,) = free_ports(1)
        (self.data_dir / "password").write_text(self.password)
        (self.data_dir / "port").write_text(str(self.port))
        (self.data_dir / "init.sql").write_text(
            f"CREATE DATABASE IF NOT EXISTS `{self.database}` CHARACTER SET utf8mb4;\n"
            f"CREATE USER IF NOT EXISTS '{self.user}'@'127.0.0.1' IDENTIFIED BY '{self.password}';\n"
            f"GRANT ALL ON *.* TO '{self.user}'@'127.0.0.1' WITH GRANT OPTION;\n"
        )
        (self.data_dir / "init.sql").chmod(0o600)
        tool = shutil.which("mariadb-install-db") or shutil.which("mysql_install_db") or "mariadb-install-db"
        options = [*self._options(), "--auth-root-authentication-method=normal", "--skip-test-db"]
        told = subprocess.run([tool, *options], capture_output=True, text=True, cwd=self.data_dir, check=False)
        if told.returncode != 0:
            said = (told.stderr + told.stdout).strip().splitlines()
            raise ConfigError(
                f"the local MariaDB data folder {self.data_dir} could not be made: "
                f"{said[-1] if said else f'exit code {told.returncode}'}; give it an empty folder"
            )

    def _answers(self) -> bool:
        import pymysql

        try:
            self.connect().close()
            return True
        except pymysql.err.OperationalError:
            return False


def find_mariadb() -> Path:
    """The `mariadbd` program.

    Raises:
        ConfigError: there is none.
    """
    for name in ("mariadbd", "mysqld"):
        found = shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/libexec"]))
        if found:
            return Path(found)
    raise ConfigError("no mariadbd was found; install mariadb-server (Debian)")


__all__ = ["LocalMariaDB", "find_mariadb"]
