"""What a person who installed the wheel can rely on. Run by scripts/try_wheel.sh from outside the checkout.

python smoke.py CHECKOUT
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from importlib.metadata import metadata, version
from importlib.resources import files
from pathlib import Path


def tell(*command: str) -> str:
    """The standard output of a command that must succeed."""
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    assert told.returncode == 0, f"{' '.join(command)} ended with {told.returncode}: {told.stderr[-2000:]}"
    return told.stdout


def seconds(command: list[str]) -> float:
    """The best of five runs, in seconds: what the command costs, not what else the machine was doing."""
    best = float("inf")
    for _ in range(5):
        began = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        best = min(best, time.perf_counter() - began)
    return best


def it_comes_from_the_wheel(checkout: Path) -> None:
    import recon

    found = Path(recon.__file__).resolve()
    assert not found.is_relative_to(checkout), f"recon was imported from the checkout: {found}"
    assert found.is_relative_to(Path(sys.prefix).resolve()), f"recon was imported from {found}"
    assert recon.__version__ == version("spark-recon")
    assert metadata("spark-recon")["License-Expression"] == "Apache-2.0 AND OFL-1.1"


def every_public_name_exists() -> None:
    import recon

    missing = [name for name in recon.__all__ if not hasattr(recon, name)]
    assert not missing, f"recon.__all__ names what is not there: {missing}"


def the_data_files_are_in_the_wheel(checkout: Path) -> None:
    assert files("recon").joinpath("py.typed").is_file()
    assert files("recon.spark").joinpath("jars.txt").is_file()
    for folder in (
        "reports/templates",
        "reports/schemas",
        "reports/runbooks",
        "reports/fonts",
        "cli/templates",
        "local/demo/templates",
    ):
        wanted = {path.name for path in (checkout / "recon" / folder).glob("*") if path.is_file()}
        packed = {path.name for path in files("recon").joinpath(folder).iterdir()}
        assert wanted and wanted <= packed, f"recon/{folder} lacks {sorted(wanted - packed)} in the wheel"
    assert not [name for name in ("tests", "bench", "examples") if (Path(sys.prefix) / name).exists()]


def the_command_answers_fast() -> None:
    command = str(Path(sys.executable).with_name("recon"))
    assert version("spark-recon") in tell(command, "--version"), "recon --version tells another version"
    assert "audit" in tell(command, "--help"), "recon --help does not list the audit"
    # Twice the bare interpreter on top of half a second: a slow machine is slow at both.
    bare = seconds([sys.executable, "-c", ""])
    for what, line in (
        ("recon --help", [command, "--help"]),
        ("import recon", [sys.executable, "-c", "import recon"]),
    ):
        took = seconds(line)
        print(f"smoke: {what} takes {took:.2f} s (python alone {bare:.2f} s)")
        assert took < 0.5 + 2 * bare, f"{what} takes {took:.2f} s"


def a_first_verdict_needs_no_java() -> None:
    command = str(Path(sys.executable).with_name("recon"))
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        told = tell(command, "try", "--dir", f"{folder}/try")
        print(f"smoke: recon try takes {time.perf_counter() - began:.2f} s")
        assert "Pipeline orders: complete." in told and "Pipeline payments: not complete." in told, told
        assert (Path(folder) / "try" / "target" / "report.html").is_file()
    assert tell(command, "runbook", "LOSS_RETENTION").startswith("# LOSS_RETENTION")


def debug_condemns_nothing_of_what_pip_brought() -> None:
    command = str(Path(sys.executable).with_name("recon"))
    told = subprocess.run([command, "debug"], capture_output=True, text=True, check=False).stdout
    for what in ("Python", "Spark", "Delta"):
        assert f"{what}: OK, " in told, told


def a_report_can_be_drawn() -> None:
    from recon.model import CheckResult, RunResult
    from recon.reports import html, run_results

    now = datetime(2026, 3, 17, 6, tzinfo=UTC)
    line = CheckResult(
        unique_id="test.smoke.not_null_t_c",
        name="not_null_t_c",
        check="not_null",
        kind="data",
        status="fail",
        failures=7,
        message="7 rows where c is NULL",
    )
    run = RunResult(
        invocation_id="smoke",
        project="smoke",
        recon_version=version("spark-recon"),
        generated_at=now,
        period_from=None,
        period_to=now,
        elapsed_time=0.1,
        results=(line,),
    )
    page = html.render(run)
    assert "not_null_t_c" in page and "7 rows where c is NULL" in page
    with tempfile.TemporaryDirectory() as folder:
        written = run_results.write(run, Path(folder) / "run_results.json")
        assert run_results.read(written).results == run.results


def main() -> None:
    checkout = Path(sys.argv[1]).resolve()
    it_comes_from_the_wheel(checkout)
    every_public_name_exists()
    the_data_files_are_in_the_wheel(checkout)
    the_command_answers_fast()
    a_report_can_be_drawn()
    a_first_verdict_needs_no_java()
    debug_condemns_nothing_of_what_pip_brought()
    print(f"smoke: spark-recon {version('spark-recon')} works from its wheel")


if __name__ == "__main__":
    main()
