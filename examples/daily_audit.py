"""The daily audit from a scheduler: run the checks, write the report, exit like the command does.

python examples/daily_audit.py recon.yml
spark-submit --packages … examples/daily_audit.py recon.yml
"""

from __future__ import annotations

import sys
from pathlib import Path

import recon
from recon.reports import html, run_results


def main(project_path: str) -> int:
    project = recon.load_project(project_path)
    run = recon.run_audit(project)
    target = Path(project.resolve(project.target_path))
    run_results.write(run, target / "run_results.json")
    html.write(run, target / "report.html")
    for pipeline in run.pipelines:
        print(f"{pipeline.name}: {pipeline.answer}: {pipeline.because}")
    return run.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
