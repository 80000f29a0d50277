"""docs/compatibility.md shows what `make matrix` ran, and pyproject.toml accepts no other Spark or Delta."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from xml.etree import ElementTree

import pytest
from packaging.requirements import Requirement

from recon.spark.packages import delta_package
from scripts import matrix

ROOT = Path(__file__).parents[3]
PAGE = matrix.PAGE.read_text(encoding="utf-8")
PINS = dict(pin.split("==") for pin in (ROOT / "constraints.txt").read_text().splitlines() if "==" in pin)
SPARKS = {PINS["pyspark"], *(line.spark for line in matrix.LINES)}
DELTAS = {PINS["delta-spark"], *(line.delta for line in matrix.LINES)}


def lines(versions: set[str]) -> set[str]:
    return {version.rpartition(".")[0] for version in versions}


def test_the_page_shows_the_published_results() -> None:
    assert f"<!-- matrix -->\n{matrix.table(matrix.load())}\n<!-- /matrix -->" in PAGE, "run make matrix"


def test_every_line_was_run_whole_and_nothing_failed() -> None:
    results = matrix.load()
    assert list(results) == [line.name for line in matrix.LINES]
    for line in matrix.LINES:
        rows = results[line.name]
        assert list(rows) == list(matrix.rows_of(line))
        assert all(counts["passed"] > 0 == counts["failed"] for counts in rows.values())


def test_what_a_row_stands_for_exists() -> None:
    targets = [target for targets in matrix.TESTED.values() for target in targets]
    assert len(set(targets)) == len(targets)
    assert all((ROOT / target).is_file() for target in targets)


def test_the_accepted_versions_are_those_that_were_run() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    accepted = {r.name: r.specifier for r in map(Requirement, project["dependencies"])}
    for name, run in (("pyspark", SPARKS), ("delta-spark", DELTAS)):
        assert all(version in accepted[name] for version in run)
        # Lines that were never released, and so are accepted by nobody.
        never = {"3.4", "3.5"} if name == "delta-spark" else set[str]()
        minors = ["3.2", "3.3", "3.4", "3.5", *(f"{major}.{minor}" for major in (4, 5) for minor in range(10))]
        assert {n for n in minors if f"{n}.3" in accepted[name] or f"{n}.0" in accepted[name]} - never == lines(run)


def test_every_line_has_a_jar_and_the_pinned_pair_is_none_of_them() -> None:
    assert all(line.delta in delta_package(line.spark, line.delta) for line in matrix.LINES)
    assert f"{PINS['pyspark']}+{PINS['delta-spark']}" not in {line.name for line in matrix.LINES}


def test_the_readme_names_the_lines() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for package, run in (("pyspark", SPARKS), ("delta-spark", DELTAS)):
        row = re.search(rf"^\| \w+ \(`{package}`\) \|([^|]*)\|([^|:]*)", readme, re.MULTILINE)
        assert row is not None
        assert set(re.findall(r"\d\.\d", row[1])) == lines(run)
        assert set(re.findall(r"\d\.\d\.\d", row[2])) == run


def test_cells() -> None:
    first, second, *rest = matrix.TESTED
    case = '<testcase file="{}" name="a"{}</testcase>'
    tree = ElementTree.fromstring(
        "<all>"
        + case.format(matrix.TESTED[first][0], ">")
        + case.format(matrix.TESTED[first][0], "><failure/>")
        + case.format(matrix.TESTED[second][0], "><skipped/>")
        + case.format("tests/other.py", ">")
        + "</all>"
    )
    counts = matrix.counted(tree, matrix.TESTED)
    assert counts[first] == {"passed": 1, "failed": 1}
    # Of which no test ran, nothing is known.
    assert all(counts[what] == {"passed": 0, "failed": 1} for what in (second, *rest))
    table = matrix.table({matrix.LINES[0].name: counts})
    assert f"| {first} | 1 passed, **1 failed** |" in table


def test_a_line_that_is_not_known_runs_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert matrix.main(["9.9.9+9.9.9"]) == 2
    assert "no line 9.9.9+9.9.9; there are 3.5.7+3.3.3, " in capsys.readouterr().err
