"""veraPDF, the validator of PDF/A, in a JVM of its own: its jars are fetched once, and compared with their digests."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from recon.local.jars import cache_dir, fetch, pyspark_home
from recon.spark.jars import digest

VERSION = "1.26.1"
_LIST = Path(__file__).with_name("verapdf_jars.txt")  # digest, file name


def jars() -> list[Path]:
    """The validator's jars.

    Raises:
        ConfigError: they could not be fetched.
    """
    folder = cache_dir() / f"verapdf-{VERSION}"
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".fetch-") as scratch:
            fetched = Path(scratch) / "jars"
            fetch(fetched, ("org.verapdf", "validation-model", VERSION), f"the jars of veraPDF {VERSION}")
            found = sorted(f"{digest(file)}  {file.name}" for file in fetched.iterdir())
            assert found == sorted(_LIST.read_text().splitlines()), f"the jars are not those of {_LIST.name}"
            if not folder.is_dir():
                fetched.rename(folder)
    return sorted(folder.iterdir())


@contextmanager
def validator() -> Iterator[Any]:
    """A function that gives what a file breaks of PDF/A-3a: (clause, number of the test, message, place) each."""
    from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

    py4j = next(iter(sorted((pyspark_home() / "jars").glob("py4j-*.jar"))))
    port = launch_gateway(jarpath=str(py4j), classpath=":".join(map(str, jars())), die_on_exit=True)
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
    try:
        java = gateway.jvm
        java.org.verapdf.gf.foundry.VeraGreenfieldFoundryProvider.initialise()
        foundry = java.org.verapdf.pdfa.Foundries.defaultInstance()
        flavour = java.org.verapdf.pdfa.flavours.PDFAFlavour.PDFA_3_A

        def faults(file: Path) -> list[tuple[str, int, str, str]]:
            parser = foundry.createParser(java.java.io.FileInputStream(str(file)), flavour)
            result = foundry.createValidator(flavour, False).validate(parser)
            assert result.getTotalAssertions() > 1000, "it looked at nothing"
            found = [
                (
                    assertion.getRuleId().getClause(),
                    assertion.getRuleId().getTestNumber(),
                    assertion.getMessage(),
                    assertion.getLocation().getContext(),
                )
                for assertion in result.getTestAssertions()
            ]
            assert bool(found) != result.isCompliant()
            return found

        yield faults
    finally:
        gateway.shutdown()
