"""Write recon/spark/jars.txt: the SHA-256 digest of each jar that recon fetches. `make digests` runs it.

For new versions only: a jar of the list that now has another digest was changed, and the list stays as it is.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from recon.base.errors import ReconError
from recon.local.jars import retrieve
from recon.local.spark import fetch_packages
from recon.spark.jars import BROKER, SPARK, TESTS, Jar, digest, read_list
from tests.support.drivers import ICEBERG, JDBC_DRIVERS

LIST = Path(__file__).parents[1] / "recon" / "spark" / "jars.txt"
HEADER = """\
# SHA-256 digests of the jars that recon fetches from Maven Central, made by `make digests`: who uses the jar (the local
# broker, Spark, or tests only), and its Maven coordinate.
"""


def jars(files: Iterable[Path], used_by: str, ivy_cache: Path) -> Iterator[Jar]:
    """Each file with the coordinate under which Ivy's cache, `group/artifact/type/artifact-version.jar`, has it."""
    cached = {}
    for copy in ivy_cache.glob("*/*/*/*.jar"):
        group, artifact = copy.parts[-4:-2]
        version = copy.stem.removeprefix(f"{artifact}-")
        jar = Jar(used_by, group, artifact, version, "")
        cached[jar.file_name] = jar
    for file in files:
        jar = cached[file.name]._replace(sha256=digest(file))
        if used_by == SPARK and f"{jar.group}:{jar.artifact}:{jar.version}" in JDBC_DRIVERS:
            jar = jar._replace(used_by=TESTS)
        yield jar


def listing(found: Iterable[Jar], before: Iterable[Jar]) -> str:
    """The list's text.

    Raises:
        ReconError: a jar of the list before has another digest now.
    """
    was = {jar[1:4]: jar.sha256 for jar in before}
    lines = []
    for jar in sorted(found):
        coordinate = f"{jar.group}:{jar.artifact}:{jar.version}"
        if was.get(jar[1:4], jar.sha256) != jar.sha256:
            raise ReconError(
                f"{coordinate} had the digest {was[jar[1:4]]} and was fetched with {jar.sha256}: a published version "
                f"does not change; find out which one is right before you write it into {LIST.name} by hand"
            )
        lines.append(f"{jar.sha256}  {jar.used_by:<6}  {coordinate}\n")
    return HEADER + "".join(lines)


def main() -> None:
    """Fetch, and write the list."""
    try:
        with tempfile.TemporaryDirectory() as scratch:
            broker = Path(scratch) / "broker"
            retrieve(broker)
            found = [*jars(broker.iterdir(), BROKER, Path.home() / ".ivy2" / "cache")]
        files = fetch_packages([*JDBC_DRIVERS, *ICEBERG])
        found += jars(files, SPARK, files[0].parent.parent / "cache")
        LIST.write_text(listing(found, read_list(LIST.read_text(encoding="utf-8"))), encoding="utf-8")
    except ReconError as error:
        sys.exit(f"digests: {error}")


if __name__ == "__main__":
    main()
