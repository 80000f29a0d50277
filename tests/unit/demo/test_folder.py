"""The demo's folder: nobody else's files are touched, an earlier demo's are replaced, one demo at a time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from recon.base.errors import ConfigError
from recon.local.demo.folder import FILES, MARKER, DemoFolder
from recon.project import load
from tests.support.messages import raises


def test_a_new_folder_is_made_and_marked(tmp_path: Path) -> None:
    with DemoFolder(tmp_path / "a" / "lake") as folder:
        assert {path.name for path in folder.path.iterdir()} == {MARKER, "logs"}


def test_an_earlier_demo_is_replaced(tmp_path: Path) -> None:
    with DemoFolder(tmp_path / "lake") as folder:
        (folder.path / "lake").mkdir()
        (folder.path / "lake" / "old.parquet").touch()
        (folder.path / "recon.yml").touch()
        kept = tmp_path / "elsewhere"
        kept.mkdir()
        (kept / "mine").touch()
        (folder.path / "link").symlink_to(kept)
    with DemoFolder(tmp_path / "lake") as folder:
        assert {path.name for path in folder.path.iterdir()} == {MARKER, "logs"}
    assert (kept / "mine").exists(), "what a link leads to is not the demo's"


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with raises(ConfigError), DemoFolder(tmp_path):
        pytest.fail("the folder was taken")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    file = tmp_path / "lake"
    file.write_text("x")
    with raises(ConfigError), DemoFolder(file):
        pytest.fail("the file was taken")
    assert file.read_text() == "x"


def test_one_demo_at_a_time(tmp_path: Path) -> None:
    other = (
        "import sys, pathlib\n"
        "from recon.local.demo.folder import DemoFolder\n"
        f"with DemoFolder(pathlib.Path({str(tmp_path / 'lake')!r})):\n"
        "    print('taken', flush=True)\n"
        "    sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", other], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None and running.stdin is not None
        assert running.stdout.readline() == "taken\n"
        with raises(ConfigError), DemoFolder(tmp_path / "lake"):
            pytest.fail("the folder was taken twice")
        assert (tmp_path / "lake" / "logs").is_dir(), "the running demo's files are still there"
        running.stdin.close()
    with DemoFolder(tmp_path / "lake"):
        pass


def test_the_project_is_valid_and_follows_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KAFKA_BOOTSTRAP", raising=False)
    with DemoFolder(tmp_path / "lake") as folder:
        folder.write_project("127.0.0.1:4711")
        assert {path.name for path in folder.path.iterdir()} >= set(FILES)
        assert load(folder.path).kafka["bootstrap.servers"] == "127.0.0.1:4711"
        monkeypatch.setenv("KAFKA_BOOTSTRAP", "broker:9092")
        assert load(folder.path).kafka["bootstrap.servers"] == "broker:9092"
