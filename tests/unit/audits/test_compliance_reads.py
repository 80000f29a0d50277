"""The compliance report reads each table once, however many pipelines and days there are."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest

from bench import compliance_year
from recon.audits.compliance import compliance
from recon.project import load
from recon.write.ledger import files, open_ledger

WEEK = 7 * compliance_year.DAY


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("year")
    compliance_year.build(folder, pipelines=5, days=7)
    return folder


@pytest.mark.parametrize("before", [0, 300])
def test_files_are_read_once_for_all_pipelines(lake: Path, monkeypatch: pytest.MonkeyPatch, before: int) -> None:
    reads: Counter[str] = Counter()
    read = files.read
    monkeypatch.setattr(files, "read", lambda path, *of: (reads.update([path]), read(path, *of))[1])
    report = compliance(load(lake), compliance_year.BEGIN - timedelta(days=before), compliance_year.BEGIN + WEEK)
    assert len(report.sinks) == 5 and all(sink.batches == 7 * 24 for sink in report.sinks)
    # What comes before the period is looked for in its first day, too, by each pipeline.
    first = f"date={compliance_year.BEGIN:%Y-%m-%d}"
    of_ledger = {path: count for path, count in reads.items() if "/ledger/" in path}
    assert len(of_ledger) == 7 and {count for path, count in of_ledger.items() if first not in path} == {1}


def test_many_slices_are_what_each_is(lake: Path) -> None:
    ledger = open_ledger(load(lake))
    begin = compliance_year.BEGIN + 2 * compliance_year.DAY
    names = [(name, name) for name in compliance_year.names(5)]
    for end in (begin + 3 * compliance_year.DAY, None):
        together, others = ledger.slices(names, begin, end)
        assert others == [] and ledger.slices(names[1:], begin, end)[1] == names[:1]
        for chain in names:
            alone = ledger.slice(*chain, begin, end)
            assert (together[chain].heads, together[chain].anchors) == (alone.heads, alone.anchors)
            assert together[chain].offsets_texts == alone.offsets_texts and not together[chain].broken


def test_the_bench_is_a_lake_that_recon_could_have_written(lake: Path) -> None:
    project = load(lake)
    assert open_ledger(project).verify() == []
    report = compliance(project, compliance_year.BEGIN, compliance_year.BEGIN + WEEK)
    assert report.controls[1].state == "shown" and report.controls[0].state == "answered"


@pytest.mark.parametrize("before", [0, 9])
def test_days_before_the_first_entry_are_told(lake: Path, before: int) -> None:
    begin = compliance_year.BEGIN - timedelta(days=before)
    told = [
        one for one in compliance(load(lake), begin, compliance_year.BEGIN + WEEK).unproved if "first ledger" in one
    ]
    assert len(told) == (5 if before else 0)
    for one, name in zip(told, compliance_year.names(5), strict=False):
        assert one.startswith(
            f"The first ledger entry of pipeline {name}, sink {name}, is of {compliance_year.BEGIN:%F}"
        )
        assert f"nothing was recorded on {before} days of the period before that" in one
    later = compliance(load(lake), compliance_year.BEGIN + compliance_year.DAY, compliance_year.BEGIN + WEEK)
    assert not any("first ledger" in one for one in later.unproved)
