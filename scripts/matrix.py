"""Runs the same tests on real parts with each supported pair of Spark and Delta; writes docs/compatibility.md's table.

    make matrix                      every line
    make matrix LINES=4.2.0+4.4.0    some lines: the others stay as published
    python -m scripts.matrix --row compare 4.2.0+4.4.0       one row of a line: its others stay as published

Each line has an environment of its own in build/matrix, which pip makes by the ranges of pyproject.toml and, but for
Spark and Delta, by constraints.txt. The results are in scripts/matrix.json; a test that was skipped is not counted.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import venv
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from recon.base.errors import ConfigError
from recon.local.jars import pyspark_home
from recon.local.java import find_java
from recon.spark.packages import iceberg_package, scala

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "scripts" / "matrix.json"
PAGE = ROOT / "docs" / "compatibility.md"
_TABLE = re.compile(r"(?<=<!-- matrix -->\n).*?(?=\n<!-- /matrix -->)", re.DOTALL)
_EXTRAS = "dev,iceberg,mysql,postgres"
_POOL = "org.apache.commons:commons-pool2:2.12.0"  # what the connector needs besides the token provider
# The line has its own; delta-spark 4.4 wants an older importlib_metadata.
_OWN_PINS = ("pyspark", "delta-spark", "py4j", "importlib_metadata")


class Line(NamedTuple):
    """A pair of Python packages; and the release of Spark whose token provider the connector gets, where a mirror may
    lack its own.
    """

    spark: str
    delta: str
    token_provider: str | None = None

    @property
    def name(self) -> str:
        """What the line is called: pyspark+delta-spark."""
        return f"{self.spark}+{self.delta}"


# For each Spark the Delta that pip takes for it. All tests are run with the pinned pair, which is none of these.
LINES = (
    Line("3.5.7", "3.3.3"),
    Line("4.0.4", "4.4.0", token_provider="4.0.0"),
    Line("4.1.3", "4.4.0", token_provider="4.1.1"),
    Line("4.2.0", "4.4.0"),
)

# What a row of the table is called, and its tests.
TESTED: Mapping[str, tuple[str, ...]] = {
    "hook, append to Delta": ("tests/kafka/test_documented_stream.py", "tests/cases/test_hook.py"),
    "`read_kafka`, and the options of the running query": ("tests/cases/test_read_kafka.py",),
    "hook, MERGE": ("tests/cases/test_delta_merge.py",),
    "hook, PostgreSQL and MariaDB": ("tests/spark/test_jdbc_sink.py",),
    "hook, files": ("tests/spark/test_files_sink.py",),
    "native Delta sink, observed": ("tests/cases/test_native.py",),
    "`foreachBatch` of your own, observed": ("tests/cases/test_own_function.py",),
    "replay after a kill": ("tests/crash/test_killed.py",),
    "a Delta table as source": ("tests/cases/test_source_table.py",),
    "files as source": ("tests/cases/test_source_files.py",),
    "quarantine": ("tests/cases/test_quarantine.py",),
    "checks of rows": tuple(
        f"tests/spark/test_{name}.py"
        for name in (
            "column_checks",
            "key_checks",
            "order_checks",
            "range_checks",
            "relation_checks",
            "releases",
            "row_checks",
            "schema_and_anomaly",
        )
    ),
    "checks of new rows only": ("tests/spark/test_incremental.py",),
    "compare": ("tests/spark/test_compare.py",),
    "tables of a catalog": ("tests/spark/test_catalog_tables.py",),
    "ledger written by Spark": ("tests/spark/test_spark_ledger.py",),
    "checkpoint and log of this Spark": ("tests/spark/test_evidence_real.py",),
    "hook, Iceberg": ("tests/cases/test_iceberg.py", "tests/spark/test_iceberg_sink.py"),
    "Spark Connect": ("tests/connect/test_connect.py",),
}
# Rows that need a process of their own: one that has sessions of Spark Connect has no others.
_APART = ("Spark Connect",)


def rows_of(line: Line) -> Collection[str]:
    """The rows that a line can have: Iceberg has no build for each Spark, and Connect's server comes with Spark 4."""
    without = set()
    try:
        iceberg_package(line.spark)
    except ConfigError:
        without.add("hook, Iceberg")
    if line.spark.startswith("3."):
        without.add("Spark Connect")
    return [what for what in TESTED if what not in without]


# line → what → how many tests passed and failed
Results = Mapping[str, Mapping[str, Mapping[str, int]]]


def environment(line: Line) -> Path:
    """The line's environment; made where it is not there, or was made from other files.

    Raises:
        CalledProcessError: pip found no versions that fit, or an index did not answer.
    """
    folder = ROOT / "build" / "matrix" / line.name
    constraints, stamp = folder / "constraints.txt", folder / ".installed"
    pins = [pin for pin in (ROOT / "constraints.txt").read_text().splitlines() if not pin.startswith(_own_pins())]
    pins += [f"pyspark=={line.spark}", f"delta-spark=={line.delta}"]
    want = "\n".join([*pins, (ROOT / "pyproject.toml").read_text()])
    if stamp.exists() and stamp.read_text() == want:
        return folder
    print(f"matrix: installing pyspark {line.spark} and delta-spark {line.delta}", flush=True)  # noqa: T201
    venv.create(folder, with_pip=True, clear=True)
    constraints.write_text("\n".join(pins) + "\n")
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    subprocess.run([*pip, "-c", str(constraints), "-e", f".[{_EXTRAS}]"], cwd=ROOT, check=True)
    stamp.write_text(want)
    return folder


def run(line: Line, rows: Collection[str]) -> dict[str, dict[str, int]]:
    """Runs the tests of these rows with the line's Spark and Delta; where a run breaks off, all of its rows failed."""
    folder = environment(line)
    together = [what for what in rows if what not in _APART]
    return {
        what: counts
        for group in (together, *([what] for what in rows if what in _APART))
        if group
        for what, counts in _run(line, folder, group).items()
    }


def _run(line: Line, folder: Path, rows: Collection[str]) -> dict[str, dict[str, int]]:
    report = folder / "report.xml"
    report.unlink(missing_ok=True)
    env = {**os.environ, "RECON_CRASH_SINKS": "delta", "RECON_CRASH_ROUNDS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    if line.token_provider:
        env |= connector(line, folder)
    targets = [target for what in rows for target in TESTED[what]]
    options = ["-q", "-p", "no:cacheprovider"]
    options += [] if set(rows) <= set(_APART) else ["-n", "2", "--dist", "loadfile", "--max-worker-restart=0"]
    options += [f"--junitxml={report}", "-o", "junit_family=xunit1"]
    ended = subprocess.run([str(folder / "bin" / "pytest"), *options, *targets], cwd=ROOT, env=env, check=False)
    whole = ended.returncode in (0, 1) and report.exists()  # pytest's codes for a run that reached its end
    return counted(ElementTree.parse(report).iter("testcase") if whole else (), rows)


def connector(line: Line, folder: Path) -> dict[str, str]:
    """The environment in which Spark has the connector of its own release with the token provider of another one."""
    artifact = f"spark-sql-kafka-0-10_{scala(line.spark)}"
    conf = folder / "conf"
    conf.mkdir(exist_ok=True)
    ivy = next((pyspark_home() / "jars").glob("ivy-*.jar"))
    fetch = [str(find_java()), "-jar", str(ivy), "-notransitive", "-types", "jar", "-confs", "default", "-dependency"]
    fetch += ["org.apache.spark", artifact, line.spark, "-retrieve", f"{conf}/[artifact].[ext]"]
    subprocess.run(fetch, cwd=conf, check=True, stdout=subprocess.DEVNULL)
    (conf / "spark-defaults.conf").write_text(f"spark.jars {conf}/{artifact}.jar\n")
    others = [f"org.apache.spark:spark-token-provider-kafka-0-10_{scala(line.spark)}:{line.token_provider}", _POOL]
    return {"SPARK_CONF_DIR": str(conf), "RECON_KAFKA_CONNECTOR": ",".join(others)}


def counted(cases: Iterable[ElementTree.Element], rows: Collection[str]) -> dict[str, dict[str, int]]:
    """How many tests of each row passed and failed; a row of which none ran counts one failure."""
    counts = {what: Counter(passed=0, failed=0) for what in rows}
    whats = {target: what for what in rows for target in TESTED[what]}
    for case in cases:
        if case.find("skipped") is None and (what := whats.get(case.get("file", ""))):
            broken = case.find("failure") is not None or case.find("error") is not None
            counts[what]["failed" if broken else "passed"] += 1
    return {what: dict(n) if sum(n.values()) else {"passed": 0, "failed": 1} for what, n in counts.items()}


def load() -> Results:
    """The published results."""
    return json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}


def table(results: Results) -> str:
    """The table: a column for each line, a row for what was tested, and in it how many tests passed."""
    lines = [line for line in LINES if line.name in results]
    rows = [
        ["", *(f"Spark {line.spark}, Delta {line.delta}" for line in lines)],
        ["---"] * (len(lines) + 1),
        *([what, *(_cell(line, results[line.name].get(what), what) for line in lines)] for what in TESTED),
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def publish(results: Results) -> None:
    """Puts the table into the page."""
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(_TABLE.sub(lambda _: table(results), page), encoding="utf-8")


def _cell(line: Line, counts: Mapping[str, int] | None, what: str) -> str:
    if counts is None:
        return "not run" if what in rows_of(line) else "—"
    return f"{counts['passed']} passed" + (f", **{counts['failed']} failed**" if counts["failed"] else "")


def _own_pins() -> tuple[str, ...]:
    return tuple(f"{name}==" for name in _OWN_PINS)


def main(arguments: Sequence[str]) -> int:
    """Run the lines that are wanted, or all; 1 when a test failed, 2 when a line is not known."""
    names = [line.name for line in LINES]
    parser = ArgumentParser(prog="scripts.matrix")
    parser.add_argument("lines", nargs="*", metavar="line", help=", ".join(names))
    parser.add_argument("--row", action="append", choices=TESTED, help="only this row of the table; repeatable")
    wanted = parser.parse_args(arguments)
    if unknown := set(wanted.lines) - set(names):
        print(f"no line {min(unknown)}; there are {', '.join(names)}", file=sys.stderr)  # noqa: T201
        return 2
    results = {name: dict(rows) for name, rows in load().items() if name in names}
    for line in LINES:
        if not wanted.lines or line.name in wanted.lines:
            rows = [what for what in rows_of(line) if not wanted.row or what in wanted.row]
            found = {**results.get(line.name, {}), **run(line, rows)}
            results[line.name] = {what: found[what] for what in TESTED if what in found}
            results = {name: results[name] for name in names if name in results}
            RESULTS.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
            publish(results)
    failed = [(name, what) for name, rows in results.items() for what, counts in rows.items() if counts["failed"]]
    for name, what in failed:
        print(f"matrix: {name}: {what}: {results[name][what]['failed']} failed", file=sys.stderr)  # noqa: T201
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
