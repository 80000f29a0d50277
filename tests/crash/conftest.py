"""A broker of the kit's own (it is stopped and started) and the classpath of the children."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.harness import resolve
from tests.crash.sinks import ADAPTERS
from tests.support.kafka import LocalKafka


@pytest.fixture(scope="package")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    """A broker that a test of this package may stop and start again."""
    with LocalKafka(tmp_path_factory.mktemp("kafka")) as kafka:
        yield kafka


@pytest.fixture(scope="package")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all processes of a run share."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest.fixture(scope="package")
def classpath(shared: Path) -> str:
    packages = (package for adapter in ADAPTERS.values() for package in adapter.packages)
    return resolve(packages, shared / "classpath.txt")


@pytest.fixture(scope="package")
def archive(shared: Path) -> Path:
    """The file of the JVM's classes, which the first start makes."""
    return shared / "classes.jsa"


@pytest.fixture(scope="package")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where projects, sinks and the children's logs lie; RECON_CRASH_DIR keeps them."""
    kept = os.environ.get("RECON_CRASH_DIR")
    return Path(kept) if kept else tmp_path_factory.mktemp("crash")
