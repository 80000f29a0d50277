"""Reports, results and stored failures are their owner's alone, unless RECON_FILE_MODE says otherwise."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from recon.base.errors import ConfigError
from recon.base.storage import FILE_MODE, write_private
from recon.project import load
from recon.reports import html, run_results
from recon.write.ledger import open_ledger
from recon.write.ledger.failures import FAILURES, append_failures
from recon.write.ledger.store import open_store
from tests.support.ledger_entries import entry
from tests.support.messages import same_message
from tests.support.sample_run import sample_run
from tests.unit.cli.test_cli import Ended, project, recon  # noqa: F401 - fixtures


@pytest.fixture(autouse=True)
def _usual_umask(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv(FILE_MODE, raising=False)
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def audited(recon: Callable[..., Ended], project: Path) -> list[Path]:  # noqa: F811
    open_ledger(load(project)).append(entry(0, pipeline="orders", sink="orders"))
    writing = [part for form in ("markdown", "junit", "csv", "parquet") for part in ("--write", form)]
    assert recon("audit", "--no-spark", *writing).code in (0, 1)
    return [file for file in (project / "target").iterdir() if file.is_file()]


def test_an_audits_files(recon: Callable[..., Ended], project: Path) -> None:  # noqa: F811
    files = audited(recon, project)
    assert len(files) >= 6 and {mode(file) for file in files} == {0o600}
    assert mode(project / "target") == 0o700


def test_a_file_of_an_earlier_version_is_replaced_by_a_private_one(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text("earlier")
    path.chmod(0o644)
    html.write(sample_run(), path)
    assert mode(path) == 0o600 and mode(run_results.write(sample_run(), tmp_path / "run_results.json")) == 0o600


@pytest.mark.parametrize(
    ("text", "file", "folder"), [("640", 0o640, 0o750), ("0644", 0o644, 0o755), ("0o660", 0o660, 0o770)]
)
def test_who_else_may_read(
    recon: Callable[..., Ended],  # noqa: F811
    project: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    file: int,
    folder: int,
) -> None:
    monkeypatch.setenv(FILE_MODE, text)
    assert {mode(one) for one in audited(recon, project)} == {file}
    assert mode(project / "target") == folder


def test_a_folder_that_is_there_keeps_its_permissions(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir(mode=0o755)
    write_private(tmp_path / "shared" / "a.html", b"")
    assert mode(tmp_path / "shared") == 0o755 and mode(tmp_path / "shared" / "a.html") == 0o600


def test_a_wrong_mode_keeps_the_old_report(
    recon: Callable[..., Ended],  # noqa: F811
    project: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    audited(recon, project)
    before = (project / "target" / "report.html").read_bytes()
    for wrong in ("rw-r--r--", "044", "8"):
        monkeypatch.setenv(FILE_MODE, wrong)
        ended = recon("audit", "--no-spark")
        assert ended.code == 2 and same_message(ended.err)
        assert (project / "target" / "report.html").read_bytes() == before
        with pytest.raises(ConfigError):
            write_private(project / "x", b"")


def test_stored_failures(project: Path) -> None:  # noqa: F811
    run = sample_run()
    store = open_store(load(project), FAILURES)
    append_failures(store, run, {run.results[0].unique_id: [{"a": 1}]})
    assert mode(project / "_recon" / "failures") == 0o700
