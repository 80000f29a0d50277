"""The jars of Kafka's broker, downloaded once by the Ivy of pyspark."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from recon.base.errors import ConfigError
from recon.local.java import find_java
from recon.spark.jars import BROKER, refuse_others

KAFKA_VERSION = "4.1.1"
_SCALA = "2.13"


def cache_dir() -> Path:
    """The folder of downloaded jars: `RECON_CACHE`, else `~/.cache/spark-recon`."""
    return Path(os.environ.get("RECON_CACHE") or Path.home() / ".cache" / "spark-recon")


def pyspark_home() -> Path:
    """The folder of the installed pyspark: its `jars/` and `bin/`."""
    import pyspark

    return Path(pyspark.__file__).parent


def kafka_jars() -> Path:
    """The folder of the broker's jars, downloaded on first use; no network is needed after that.

    Raises:
        ConfigError: they are not cached and could not be fetched, or one is not the jar that was published.
    """
    cache = cache_dir()
    final = cache / f"kafka_{_SCALA}-{KAFKA_VERSION}"
    if final.is_dir():
        return final
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / ".lock").open("w") as lock:
        # Two processes on a cold cache: the second waits and finds the folder.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not final.is_dir():
            with tempfile.TemporaryDirectory(dir=cache, prefix=".fetch-") as scratch:
                fetched = Path(scratch) / "jars"
                retrieve(fetched)
                refuse_others(list(fetched.iterdir()), [BROKER])
                # The folder gets its name only when it is complete and each jar is the published one.
                fetched.rename(final)
    return final


def broker_classpath() -> str:
    """The broker's classpath: logging from pyspark first, then Kafka's jars.

    Kafka's Maven artefacts have no SLF4J binding; without one the broker writes no log at all.
    """
    jars = pyspark_home() / "jars"
    logging = [
        str(jar)
        for name in ("slf4j-api-*", "log4j-slf4j2-impl-*", "log4j-api-*", "log4j-core-*")
        for jar in sorted(jars.glob(f"{name}.jar"))
    ]
    return os.pathsep.join([*logging, f"{kafka_jars()}/*"])


def retrieve(into: Path) -> None:
    """Lets Ivy fetch the broker's jars into a new folder, and compares them with nothing.

    Raises:
        ConfigError: they could not be fetched.
    """
    fetch(into, ("org.apache.kafka", f"kafka_{_SCALA}", KAFKA_VERSION), f"the jars of Kafka {KAFKA_VERSION}")


def fetch(into: Path, dependency: tuple[str, str, str], what: str) -> None:
    """Lets the Ivy of pyspark fetch an artefact (group, name, version) with all that it needs into a new folder.

    Raises:
        ConfigError: it could not be fetched; `what` begins the sentence.
    """
    java = find_java()
    ivy = next(iter(sorted((pyspark_home() / "jars").glob("ivy-*.jar"))), None)
    if ivy is None:
        raise ConfigError(f"pyspark in {pyspark_home()} carries no ivy-*.jar; reinstall pyspark")
    # `-types jar bundle`: some artefacts (snakeyaml) are published as OSGi bundles.
    command = [str(java), "-jar", str(ivy), "-types", "jar", "bundle"]
    command += ["-dependency", *dependency, "-confs", "default"]
    command += ["-retrieve", f"{into}/[artifact]-[revision](-[classifier]).[ext]"]
    # Ivy resolves relative to, and leaves reports in, its working folder.
    completed = subprocess.run(command, capture_output=True, text=True, cwd=into.parent, check=False)
    if completed.returncode == 0 and any(into.glob(f"{dependency[1]}-*.jar")):
        return
    shutil.rmtree(into, ignore_errors=True)
    output = (completed.stdout + completed.stderr).splitlines()
    reason = next(
        (line.strip(" \t:") for line in output if any(w in line for w in ("UnknownHost", "unresolved", "[FAILED"))),
        f"Ivy ended with exit code {completed.returncode}",
    )
    raise ConfigError(
        f"{what} could not be fetched from Maven Central: {reason}; "
        f"check the network (and _JAVA_OPTIONS for a proxy), or copy them to {cache_dir()}"
    )
