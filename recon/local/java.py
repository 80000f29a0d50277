"""Finds a Java that can run Spark 4 and Kafka 4, 17 or newer: JAVA_HOME first, then PATH."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from recon.base.errors import ConfigError

MINIMUM = 17


def find_java(env: Mapping[str, str] | None = None) -> Path:
    """The `java` binary to use, symbolic links resolved.

    Args:
        env: where JAVA_HOME and PATH are looked up; the process's environment when None.

    Raises:
        ConfigError: there is none, or only older ones.
    """
    rejected = []
    for where, java in _candidates(os.environ if env is None else env):
        major = major_version(java)
        if major is not None and major >= MINIMUM:
            return java.resolve()
        rejected.append(f"{where} gives {java} ({'not a working Java' if major is None else f'Java {major}'})")
    reasons = "; ".join(rejected) or "JAVA_HOME is not set and PATH has no java"
    raise ConfigError(
        f"Java {MINIMUM} or newer is needed and was not found: {reasons}; "
        f"install openjdk-{MINIMUM}-jre-headless (or any JDK {MINIMUM}+) or set JAVA_HOME"
    )


def java_home(env: Mapping[str, str] | None = None) -> Path:
    """The folder that `JAVA_HOME` should name for `find_java`'s binary."""
    return find_java(env).parent.parent


def major_version(java: Path) -> int | None:
    """The major version that `java -version` prints (8 for `1.8.0`); None when it is not a working Java."""
    try:
        completed = subprocess.run([str(java), "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = re.search(r'version "(\d+)(?:\.(\d+))?', completed.stderr + completed.stdout)
    if version is None:
        return None
    first, second = version.groups()
    return int(second) if first == "1" and second else int(first)


def _candidates(env: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if home := env.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    # An empty PATH means that no folder is searched; with None shutil.which would search a default path.
    if on_path := shutil.which("java", path=env.get("PATH", "")):
        yield "PATH", Path(on_path)
