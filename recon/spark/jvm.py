"""Starts Spark's JVM, which fetches packages, and compares what it fetched before it loads any of it."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from recon.spark.connect import will_connect
from recon.spark.jars import SPARK, TESTS, refuse_changed

if TYPE_CHECKING:
    from pyspark import SparkConf

# Where spark-submit says which jars it resolved: for local, standalone and Kubernetes masters, and for YARN.
_JARS = ("spark.jars", "spark.yarn.dist.jars")


def start_jvm(settings: Mapping[str, str], log: Path | None = None) -> list[Path]:
    """Starts Spark's JVM with these settings, if none is running here; the next session uses it.

    The JVM fetches the packages when it starts, and loads their classes when a session is made.

    Args:
        settings: Spark's settings.
        log: the file for what the JVM prints; the console when None.

    Returns:
        The jars that were fetched or were in Ivy's cache; none where no JVM was started.

    Raises:
        ConfigError: a jar differs from the one that was published; the JVM has ended.
    """
    if "PYSPARK_GATEWAY_PORT" in os.environ or will_connect(settings):
        return []
    from pyspark import SparkConf, SparkContext

    with SparkContext._lock:
        if SparkContext._gateway is not None:
            return []
        conf = SparkConf(loadDefaults=False)
        for name, value in settings.items():
            conf.set(name, value)
        gateway = _launch(conf, log)
        try:
            jars = _resolved(gateway)
            refuse_changed(jars, (SPARK, TESTS))
        except BaseException:
            # Not yet PySpark's: a next session starts a JVM of its own and is refused, too.
            _end(gateway)
            raise
        SparkContext._ensure_initialized(gateway=gateway, conf=conf)
    return jars


def _launch(conf: SparkConf, log: Path | None) -> Any:
    from pyspark.java_gateway import launch_gateway

    if log is None:
        return launch_gateway(conf)  # type: ignore[no-untyped-call]
    log.parent.mkdir(parents=True, exist_ok=True)
    log.unlink(missing_ok=True)
    # Nobody else's to read, as all of recon's files are; the process keeps its own handle.
    with os.fdopen(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as output:
        return launch_gateway(conf, {"stdout": output, "stderr": subprocess.STDOUT})  # type: ignore[no-untyped-call]


def _resolved(gateway: Any) -> list[Path]:
    """The local files among the jars of the JVM's settings."""
    system = gateway.jvm.java.lang.System
    addresses = {address for name in _JARS for address in (system.getProperty(name) or "").split(",") if address}
    paths = (
        Path(unquote(urlsplit(address).path))
        for address in sorted(addresses)
        if urlsplit(address).scheme in ("", "file")
    )
    return [path for path in paths if path.is_file()]


def _end(gateway: Any) -> None:
    with contextlib.suppress(Exception):
        gateway.shutdown()
    # The JVM ends when its standard input does.
    with contextlib.suppress(Exception):
        gateway.proc.stdin.close()
