"""The jars that recon fetches, with their SHA-256 digests: a fetched jar is compared with them before it is loaded.

The list is `jars.txt` of this room, made by `make digests`. It has the jars of the pinned versions; a jar of another
version is not on it and is not compared.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Collection, Iterable
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from recon.base.errors import ConfigError

BROKER, SPARK, TESTS = "broker", "spark", "tests"
# A file that differs and did not change for so long is not being written.
_SETTLE_S = 1.0


class Jar(NamedTuple):
    """A jar on the list: who uses it (the broker, Spark, or tests only), its Maven coordinate, its digest."""

    used_by: str
    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def file_name(self) -> str:
        """What the file is called where Spark keeps fetched jars; the broker's are called without the group."""
        name = f"{self.artifact}-{self.version}.jar"
        return name if self.used_by == BROKER else f"{self.group}_{name}"


def read_list(text: str) -> tuple[Jar, ...]:
    """The jars of a list: a line has the digest, who uses the jar, and `group:artifact:version`.

    >>> read_list("ab12  spark   org.x:y_2.13:1.0")
    (Jar(used_by='spark', group='org.x', artifact='y_2.13', version='1.0', sha256='ab12'),)
    """
    lines = (line.split() for line in text.splitlines() if line and not line.startswith("#"))
    parts = ((sha256, used_by, *coordinate.split(":")) for sha256, used_by, coordinate in lines)
    return tuple(Jar(used_by, group, artifact, version, sha256) for sha256, used_by, group, artifact, version in parts)


@cache
def listed_jars() -> tuple[Jar, ...]:
    """The jars of `jars.txt`."""
    return read_list(files("recon.spark").joinpath("jars.txt").read_text(encoding="utf-8"))


def digest(path: Path) -> str:
    """The SHA-256 digest of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def refuse_changed(paths: Iterable[Path], used_by: Collection[str]) -> None:
    """Compares each jar that is on the list with its digest there.

    Args:
        paths: jars as Ivy named them.
        used_by: the parts of the list: Spark's jars and the broker's are named in different ways.

    Raises:
        ConfigError: one differs; names the first, and what to remove before the next try.
    """
    known = {jar.file_name: jar for jar in listed_jars() if jar.used_by in used_by}
    for path in paths:
        jar = known.get(path.name)
        if jar is not None and (found := _written_digest(path, jar.sha256)) != jar.sha256:
            raise ConfigError(
                f"{path.name} is not the jar that was published: its SHA-256 digest is {found}, that of "
                f"{jar.group}:{jar.artifact}:{jar.version} is {jar.sha256}; remove {_copies(path, jar)} and run this "
                "again; if the digest differs again, the Maven repository gives a changed jar: do not use it, and ask "
                "who runs the repository"
            )


def refuse_others(paths: Collection[Path], used_by: Collection[str]) -> None:
    """Compares all jars that were fetched for something with the list of them: no other jar, none missing.

    Raises:
        ConfigError: one differs, is not on the list, or is missing.
    """
    listed = {jar.file_name for jar in listed_jars() if jar.used_by in used_by}
    fetched = {path.name for path in paths}
    if fetched != listed:
        differences = [
            f"{len(names)} {what} ({', '.join(sorted(names)[:3])}{', …' if len(names) > 3 else ''})"
            for names, what in ((fetched - listed, "not on the list"), (listed - fetched, "missing"))
            if names
        ]
        raise ConfigError(
            f"the jars that were fetched are not those of recon's list of digests: {' and '.join(differences)}; look "
            "whether versions in constraints.txt or recon/local/jars.py changed (then `make digests` makes the list "
            "anew) or the Maven repository resolves them in another way (then use another one)"
        )
    refuse_changed(paths, used_by)


def _written_digest(path: Path, wanted: str) -> str:
    """The digest of a file; where another process's Ivy is still copying the jar there, when it has."""
    while (found := digest(path)) != wanted:
        before = path.stat()
        time.sleep(_SETTLE_S)
        after = path.stat()
        if (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns):
            break
    return found


def _copies(path: Path, jar: Jar) -> str:
    """The files to remove: the jar, where it stays, and Ivy's copy, from which it would be taken again."""
    if jar.used_by == BROKER:
        return str(Path.home() / ".ivy2" / "cache" / jar.group / jar.artifact)
    return f"{path} and {path.parent.parent / 'cache' / jar.group / jar.artifact}"
