"""recon ledger verify: the chain against the commits of its sink."""

from __future__ import annotations

from pathlib import Path

from recon.ledger import open_ledger
from recon.model import Code
from recon.recovery.verify import verify
from tests.support.ledger_entries import entry, project
from tests.support.messages import same_message


def test_a_sink_whose_commits_cannot_be_read_is_said_and_the_chain_is_verified(tmp_path: Path) -> None:
    lake = project(tmp_path)
    ledger = open_ledger(lake)
    for batch_id in range(2):
        ledger.append(entry(batch_id))
    assert verify(lake, ledger) == []
    log = tmp_path / "orders/_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020d}.json").write_text('{"commitInfo": {')
    (found,) = verify(lake, ledger)
    assert (found.code, found.pipeline, found.sink) == (Code.INCONCLUSIVE, "orders", "orders")
    assert same_message(found.message)
    assert verify(lake, ledger, sink="other") == []
