"""Checks of rows build columns and frames; the engine runs the jobs."""

from __future__ import annotations

import re
from pathlib import Path

import recon.checks.data

ROOM = Path(recon.checks.data.__file__).parent
_RUNS_A_JOB = re.compile(r"(?<!\bF)\.(collect|count|toPandas|toArrow|take|first|head|show|write|foreach\w*)\(\)?")
# Spark compiles a regular expression, and reads values as a type, on a table of one value, for which no job runs.
ALLOWED = {"rows.py": [".collect()"]}


def test_no_check_of_rows_runs_a_job():
    calls = {file.name: [m[0] for m in _RUNS_A_JOB.finditer(file.read_text())] for file in ROOM.glob("*.py")}
    assert {name: found for name, found in calls.items() if found} == ALLOWED
