"""A MariaDB server of our own on a free loopback port, from Debian's `mariadb-server`: for tests and the demo."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any, ClassVar

from recon.base.errors import ConfigError
from tests.support.database import LocalDatabase


class LocalMariaDB(LocalDatabase):
    """A MariaDB server whose user `recon` may do anything."""

    product: ClassVar[str] = "MariaDB"
    scheme: ClassVar[str] = "mariadb"

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

    @property
    def _used_before(self) -> bool:
        return (self.data_dir / "data" / "mysql").is_dir()

    def _command(self) -> list[str]:
        command = [str(find_mariadb()), *self._options(), f"--port={self.port}", "--bind-address=127.0.0.1"]
        # The init file makes our user and database; it runs before the server answers, each time.
        command += [f"--socket={self.data_dir / 's'}", f"--init-file={self.data_dir / 'init.sql'}"]
        command += [f"--pid-file={self.data_dir / 'pid'}", "--skip-name-resolve", "--innodb-buffer-pool-size=64M"]
        # Durable against the end of the process, which is what tests cause, and not against that of the machine.
        return [*command, "--innodb-flush-log-at-trx-commit=2", "--performance-schema=OFF", "--max-connections=60"]

    def _options(self) -> list[str]:
        # Without the machine's own option files; as root it only starts when told who to be.
        options = ["--no-defaults", f"--datadir={self.data_dir / 'data'}"]
        return [*options, "--user=root"] if os.geteuid() == 0 else options

    def _initialise(self) -> None:
        (self.data_dir / "init.sql").write_text(
            f"CREATE DATABASE IF NOT EXISTS `{self.database}` CHARACTER SET utf8mb4;\n"
            f"CREATE USER IF NOT EXISTS '{self.user}'@'127.0.0.1' IDENTIFIED BY '{self.password}';\n"
            f"GRANT ALL ON *.* TO '{self.user}'@'127.0.0.1' WITH GRANT OPTION;\n"
        )
        (self.data_dir / "init.sql").chmod(0o600)
        tool = shutil.which("mariadb-install-db") or shutil.which("mysql_install_db") or "mariadb-install-db"
        options = [*self._options(), "--auth-root-authentication-method=normal", "--skip-test-db"]
        self._made_by([tool, *options], "give it an empty folder")

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
        program = shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/libexec"]))
        if program:
            return Path(program)
    raise ConfigError("no mariadbd was found; install mariadb-server (Debian)")


__all__ = ["LocalMariaDB", "find_mariadb"]
