"""Runs the recipes of docs/schedule.md for Airflow and Dagster in environments of their own.

    make recipes

Airflow gets an environment without recon, whose command it starts; Dagster one with recon. Both are made in
build/recipes, and tests/recipes finds them there.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
ENVIRONMENTS = ROOT / "build" / "recipes"
# What is installed for each tool, and the version that was run.
TOOLS = {
    "airflow": ("apache-airflow==3.3.2",),
    "dagster": ("dagster==1.13.29", "-e", ".", "pyspark==4.0.0", "delta-spark==4.0.1"),
}


def python(tool: str) -> Path:
    """The Python of a tool's environment; it need not be there."""
    return ENVIRONMENTS / tool / "bin" / "python"


def install(tool: str, packages: Sequence[str]) -> None:
    """Makes the environment, if it is not there."""
    folder = ENVIRONMENTS / tool
    stamp = folder / ".installed"
    if stamp.exists() and stamp.read_text() == repr(packages):
        return
    print(f"recipes: installing {packages[0]}", flush=True)  # noqa: T201
    venv.create(folder, with_pip=True, clear=True)
    subprocess.run(
        [str(python(tool)), "-m", "pip", "install", "-q", "--disable-pip-version-check", *packages],
        cwd=ROOT,
        check=True,
    )
    stamp.write_text(repr(packages))


def main(arguments: Sequence[str]) -> int:
    """Installs the tools and runs the tests."""
    for tool, packages in TOOLS.items():
        install(tool, packages)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "tests/recipes", *arguments], cwd=ROOT, check=False
    ).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
