"""recon try: an audit of recorded streams, without Java, a broker or a network."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from recon.base.clock import clock
from recon.base.errors import ConfigError
from recon.cli import main
from recon.cli.shared import called
from recon.local.demo import trial
from recon.local.demo.folder import TRY_MARKER
from recon.model import Level, RunResult
from recon.reports import run_results

ROOT = Path(__file__).parents[3]
RECORDING = ROOT / "recon" / "local" / "demo" / "recording.zip"
# What scripts/record_try.py did: 25 records of payments-1 deleted unread, micro-batch 1 of payments committed twice,
# and a lost checkpoint of clicks after 40 records of each partition, whose successor began 20 later.
FOUND = {
    ("payments", "LOSS_RETENTION", 1, 60, 85),
    ("payments", "DUPLICATE", None, None, None),
    ("payments", "DUPLICATE", 0, 30, 60),
    ("payments", "DUPLICATE", 1, 30, 60),
    ("clicks", "GAP", 0, 40, 60),
    ("clicks", "GAP", 1, 40, 60),
}
ANSWERS = {"orders": "complete", "payments": "not complete", "clicks": "not complete"}


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, subprocess.CompletedProcess[str]]]:
    """`recon try` in a process of its own, in which no process can be started and no connection opened."""
    folder = tmp_path_factory.mktemp("try")
    guard = folder / "guard"
    guard.mkdir()
    # Neither a JVM nor a broker is reached: each of these events ends the process.
    (guard / "sitecustomize.py").write_text(
        "import sys\n"
        "def refuse(event, arguments):\n"
        "    if event in ('subprocess.Popen', 'os.posix_spawn', 'os.fork', 'os.exec', 'socket.connect', 'os.system'):\n"
        "        raise SystemExit(f'{event} {arguments}')\n"
        "sys.addaudithook(refuse)\n"
    )
    env = {**os.environ, "PYTHONPATH": f"{guard}{os.pathsep}{ROOT}", "NO_COLOR": "1", "PATH": "/nonexistent"}
    code = (
        "import sys; sys.argv[1:] = ['try']\n"
        "import atexit; atexit.register(lambda: print('py4j' in sys.modules, 'confluent_kafka' in sys.modules))\n"
        "from recon.cli import main; main()\n"
    )
    yield (
        folder,
        subprocess.run([sys.executable, "-c", code], cwd=folder, env=env, capture_output=True, text=True, check=False),
    )


def found(run: RunResult) -> set[tuple[object, ...]]:
    return {
        (f.pipeline, str(f.code), f.partition, f.start_offset, f.end_offset)
        for r in run.results
        for f in r.findings
        if f.level is not Level.INFO
    }


def test_it_ends_well_and_starts_nothing(tried: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    _, ended = tried
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == ""
    assert ended.stdout.splitlines()[-1] == "False False"


def test_the_guard_would_notice(tried: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    folder, _ = tried
    env = {**os.environ, "PYTHONPATH": str(folder / "guard")}
    line = "import subprocess; subprocess.run(['true'])"
    ended = subprocess.run([sys.executable, "-c", line], env=env, capture_output=True, text=True, check=False)
    assert ended.returncode != 0 and "subprocess.Popen" in ended.stderr


def test_it_finds_what_was_done(tried: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    folder, ended = tried
    run = run_results.read(folder / "recon-try" / "target" / "run_results.json")
    assert found(run) == FOUND
    assert {p.name: p.answer for p in run.pipelines} == ANSWERS
    assert {r.status for r in run.results} == {"pass", "fail"}, "nothing was skipped or could not be evaluated"
    codes = {str(f.code) for r in run.results for f in r.findings}
    assert {"EXPLAINED", "REBUILT", "NEW_EPOCH"} <= codes
    for code in ("LOSS_RETENTION", "DUPLICATE", "GAP"):
        assert f"  {code}  " in ended.stdout


def test_it_says_what_to_do_next(tried: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    folder, ended = tried
    report = folder / "recon-try" / "target" / "report.html"
    assert report.is_file()
    _, _, after = ended.stdout.partition("What to do next:\n")
    first, second, third, *_ = (line.split("  #")[0].strip() for line in after.splitlines())
    assert first.endswith(f"python -m webbrowser {report.as_uri()}")
    assert second.endswith("recon runbook LOSS_RETENTION") and "recon init " in third
    # As printed, whether the environment is on PATH or not.
    shell = subprocess.run(second, shell=True, cwd=folder, capture_output=True, text=True, check=False)
    assert (shell.returncode, shell.stdout.splitlines()[0]) == (0, "# LOSS_RETENTION"), shell.stderr


@pytest.mark.parametrize("on_path", [True, False])
def test_a_command_is_named_as_the_shell_finds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_path: bool
) -> None:
    bin_ = tmp_path / "env" / "bin"
    bin_.mkdir(parents=True)
    for name in ("python", "recon"):
        (bin_ / name).write_text("#!/bin/sh\n")
        (bin_ / name).chmod(0o700)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "executable", str(bin_ / "python"))
    monkeypatch.setenv("PATH", str(bin_) if on_path else str(tmp_path))
    assert called("recon") == ("recon" if on_path else "env/bin/recon")
    assert called("nosuch") == "nosuch"


def test_the_recording_is_small_and_names_no_machine() -> None:
    assert RECORDING.stat().st_size < 300_000
    with zipfile.ZipFile(RECORDING) as packed:
        assert not [name for name in packed.namelist() if name.endswith(".crc")]
        content = b"".join(packed.read(name) for name in packed.namelist())
    assert b"/home/" not in content and b"/work" not in content


def test_ages_are_those_of_the_recording(tmp_path: Path) -> None:
    recorded_at = trial.unpack(tmp_path)
    assert recorded_at < datetime.now(UTC)
    later = recorded_at + timedelta(days=2000)
    for path in tmp_path.rglob("*"):
        os.utime(path, (0, 0))
    with clock(lambda: later):
        run = trial.audited(tmp_path, recorded_at)
    assert found(run) == FOUND and {p.name: p.answer for p in run.pipelines} == ANSWERS
    assert run.period_to == run.generated_at == recorded_at and run.elapsed_time == 0
    assert any(f"as of {recorded_at:%Y-%m-%d %H:%M}" in note and f"{later:%Y-%m-%d}" in note for note in run.notes)
    assert {i.first_seen for p in run.pipelines for i in p.incidents} == {recorded_at}
    assert run.past is not None and (run.past.audits, run.past.last_day) == (1, recorded_at.date())


def test_a_second_run_replaces_the_first(tmp_path: Path) -> None:
    folder = tmp_path / "here"
    trial.unpack(folder)
    (folder / "lake" / "left.txt").write_text("of the first run")
    recorded_at = trial.unpack(folder)
    assert not (folder / "lake" / "left.txt").exists()
    assert found(trial.audited(folder, recorded_at)) == FOUND


def test_a_folder_with_other_files_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(SystemExit) as end:
        main(["try", "--dir", str(tmp_path)])
    assert end.value.code == 2
    assert capsys.readouterr().err.startswith(f"Error: {tmp_path} holds files that are not from an earlier recon try")
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_a_file_in_the_place_of_the_folder_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be used for recon try"):
        trial.unpack(tmp_path / "file")
    assert not (tmp_path / TRY_MARKER).exists()
