"""What the pipelines of an audit share."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from recon import run_audit
from recon.audits.session import AuditSession
from recon.base.errors import ConfigError, LedgerError
from recon.project import Pipeline, Project
from recon.write.ledger import Ledger, open_ledger
from recon.write.ledger.store import Housekeeping
from tests.support.ledger_entries import entry, project

FEW = Housekeeping(many_files=3)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project whose ledger has four small files, one more than FEW leaves."""
    ledger = open_ledger(project(tmp_path))
    for batch_id in range(4):
        ledger.append(entry(batch_id))
    return tmp_path


@pytest.mark.parametrize(("tidies", "files"), [(FEW, 1), (None, 4)])
def test_the_ledger_is_opened_once_and_its_small_files_are_merged_before_it_is_read(
    folder: Path, tidies: Housekeeping | None, files: int
) -> None:
    session = AuditSession(project(folder), True, None, tidies=tidies)
    ledger = session.ledger()
    assert session.ledger() is ledger and session.progress() is session.progress()
    assert ledger.store.small_files() == files
    open_ledger(project(folder)).append(entry(4))
    assert [found.batch_id for found in ledger.entries()] == [0, 1, 2, 3, 4], "entries written meanwhile are read"


def test_files_that_cannot_be_merged_are_read_as_they_are(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: Ledger) -> None:
        raise LedgerError("another audit merges them")

    monkeypatch.setattr(Ledger, "tidy", broken)
    ledger = AuditSession(project(folder), True, None, tidies=FEW).ledger()
    assert ledger.store.small_files() == 4 and len(ledger.entries()) == 4


def test_a_spark_that_cannot_be_started_is_tried_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks of each table ask for it, and so does what stores the results in a ledger that Spark keeps."""
    starts = []

    def broken(*_: Any, **__: Any) -> None:
        starts.append(1)
        raise RuntimeError("Java gateway process exited before sending its port number")

    monkeypatch.setattr("recon.audits.session.session", broken)
    of_audit = AuditSession(project(tmp_path, location="_recon", writer="spark"), False, None)
    assert of_audit.for_rows() == of_audit.for_rows()
    for _ in range(2):
        with pytest.raises(LedgerError, match="the ledger is kept by Spark: no Spark session could be started"):
            of_audit.ledger()
    assert len(starts) == 1


@pytest.mark.parametrize(
    ("tests", "writer"), [({"columns": [{"name": "id", "data_tests": ["not_null"]}]}, "deltalake"), ({}, "spark")]
)
def test_an_audit_whose_spark_has_a_changed_jar_ends_and_stores_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tests: Mapping[str, Any], writer: str
) -> None:
    starts = []

    def refused(*_: Any, **__: Any) -> None:
        starts.append(1)
        raise ConfigError(f"x-1.0.jar is not the jar that was published: {'long' * 120}")

    monkeypatch.setattr("recon.audits.session.session", refused)
    sinks = [{"name": name, "kind": "delta", "target": name, **tests} for name in ("orders", "refunds")]
    pipeline = Pipeline.model_validate(
        {"name": "orders", "checkpoint": "cp", "data_tests": ["offset_continuity"], "sinks": sinks}
    )
    lake = Project(
        name="lake",
        ledger=project(tmp_path, location="_recon", writer=writer).ledger,
        pipelines=(pipeline,),
        project_dir=tmp_path,
    )
    told: list[str] = []
    # The whole sentence: an error of Spark's own would be cut.
    with pytest.raises(ConfigError, match=r"x-1\.0\.jar is not the jar that was published: (long){120}$"):
        run_audit(lake, on_result=lambda _index, _total, result: told.append(result.check))
    assert len(starts) == 1 and ("offset_continuity" in told, "not_null" in told) == (bool(tests), False)
    assert [*tmp_path.rglob("*.parquet")] == []
