"""The lake that audits are measured on is one that recon itself could have written."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import evidence_lake
from recon.project import load
from recon.write.ledger import open_ledger


def test_its_ledger_is_sealed_and_joins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence_lake, "BATCHES", 250)
    monkeypatch.setattr(evidence_lake, "PARTITIONS", 3)
    lake = evidence_lake.Lake(tmp_path / "lake", 2, "events", "AAAAAAAAAAAAAAAAAAAAAA")
    ends = lake.build(evidence_lake.midnight())
    lake.write_yml("127.0.0.1:1")
    ledger = open_ledger(load(lake.path))
    assert ledger.verify() == []
    (chain,) = ledger.chains()
    newest = ledger.tail(*chain)
    assert newest is not None and newest.sequence == 500
    assert [span.end_offset for span in newest.offsets] == ends.tolist()
    assert newest.fingerprint_given is not None
