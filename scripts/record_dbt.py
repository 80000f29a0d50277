"""Writes what dbt's own macros say of tests/golden/dbt/cases.yml into recorded.json beside it.

usage: python -m scripts.record_dbt DBT PACKAGES

`DBT` is the dbt command of an environment with dbt-core and dbt-duckdb. `PACKAGES` is a folder with dbt_utils,
dbt_expectations and dbt_date.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parents[1] / "tests/golden/dbt"
_PACKAGES = ("dbt_utils", "dbt_expectations", "dbt_date")
_PROJECT = {
    "dbt_project.yml": {
        "name": "shop",
        "profile": "shop",
        "models": {"+materialized": "table"},
        "vars": {"dbt_date:time_zone": "UTC"},
    },
    "profiles.yml": {"shop": {"target": "dev", "outputs": {"dev": {"type": "duckdb", "path": "shop.duckdb"}}}},
}


def cases() -> Mapping[str, Any]:
    """The content of cases.yml."""
    content: Mapping[str, Any] = yaml.safe_load((FOLDER / "cases.yml").read_text())
    return content


def table_sql(content: Mapping[str, Any], table: str) -> str:
    """The query that gives a table's rows."""
    rows = {**content["tables"], **content["others"]}[table]
    width = next(iter(content["tables"].values()))[0].count(",") + 1
    values = ", ".join(rows or [f"({', '.join(['null'] * width)})"])
    return str(content["rows"]).replace("{rows}", values) + ("" if rows else " where 1 = 0")


def schema(content: Mapping[str, Any], table: str) -> Mapping[str, Any]:
    """One model with all cases as its tests; each is named by its case and the table."""
    model: dict[str, Any] = {"name": table, "data_tests": [], "columns": {}}
    for name, case in content["cases"].items():
        ((test, body),) = case["test"].items()
        item = {test: {"name": f"{name}__{table}", **body}}
        column = case.get("column")
        tests = model["data_tests"] if column is None else model["columns"].setdefault(column, [])
        tests.append(item)
    model["columns"] = [{"name": name, "data_tests": tests} for name, tests in model["columns"].items()]
    return {"models": [model]}


def main() -> None:
    """Builds a project of all tables and cases, runs its tests, and writes their statuses."""
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    dbt, packages = sys.argv[1], Path(sys.argv[2])
    content = cases()
    with tempfile.TemporaryDirectory() as folder:
        _write_project(Path(folder), packages, content)
        subprocess.run([dbt, "--quiet", "--no-send-anonymous-usage-stats", "build"], cwd=folder, check=False)
        results = json.loads((Path(folder) / "target/run_results.json").read_text())
    recorded: dict[str, dict[str, str]] = {name: {} for name in content["cases"]}
    for name, table, result in _of_tests(results):
        if result["status"] == "error":
            sys.stderr.write(f"{name} on {table}: {result['message']}\n")
        recorded[name][table] = result["status"]
    versions = dict(sorted(_versions(dbt, packages).items()))
    text = json.dumps({"versions": versions, "statuses": recorded}, indent=1)
    (FOLDER / "recorded.json").write_text(text + "\n")


def _write_project(folder: Path, packages: Path, content: Mapping[str, Any]) -> None:
    for name, value in _PROJECT.items():
        (folder / name).write_text(yaml.safe_dump(value))
    for package in _PACKAGES:
        shutil.copytree(packages / package, folder / "dbt_packages" / package)
        (folder / "dbt_packages" / package / "packages.yml").unlink(missing_ok=True)
    (folder / "models").mkdir()
    for table in (*content["tables"], *content["others"]):
        (folder / f"models/{table}.sql").write_text(table_sql(content, table))
    for table in content["tables"]:
        (folder / f"models/{table}.yml").write_text(yaml.safe_dump(schema(content, table), sort_keys=False))


def _of_tests(results: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    for result in results["results"]:
        kind, _, name, *_ = result["unique_id"].split(".")
        if kind == "test":
            case, _, table = name.rpartition("__")
            yield case, table, result


def _versions(dbt: str, packages: Path) -> Mapping[str, str]:
    shown = subprocess.run([dbt, "--version"], capture_output=True, text=True, check=True).stdout
    found = dict(re.findall(r"- (\w+):\s+(\d\S*)", shown))
    described = {name: (packages / name / "VERSION") for name in _PACKAGES}
    of_packages = {name: file.read_text().strip() for name, file in described.items() if file.is_file()}
    return {"dbt-core": found["installed"], "dbt-duckdb": found["duckdb"], **of_packages}


if __name__ == "__main__":
    main()
