"""recon offsets on the command line: JSON alone on stdout, whatever the ledger lacks."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from recon.model.offsets import OffsetSpan
from recon.project import load
from recon.write.ledger import open_ledger
from tests.support.ledger_entries import entry
from tests.support.messages import same_message
from tests.unit.cli.test_cli import BASE, Ended, project, recon  # noqa: F401
from tests.unit.recovery.test_starting_offsets import Table, span

TWO_SINKS = BASE.replace("    sinks:\n", "    sinks:\n      - {name: copy, target: copy}\n")


def test_a_commit_without_entry_and_a_restore_behind_it(
    project: Path,  # noqa: F811
    recon: Callable[..., Ended],  # noqa: F811
    caplog: pytest.LogCaptureFixture,  # what else goes to stderr
) -> None:
    table = Table(project)
    table.write(0, 0, 10)
    table.write(1, 10, 20, entered=False)
    assert recon("offsets", "--pipeline", "orders") == Ended(0, '{"orders":{"0":20}}\n', "")
    table.commit({"operation": "RESTORE", "operationParameters": {"version": "1"}})
    ended = recon("offsets", "--pipeline", "orders")
    assert (ended.code, ended.out) == (0, '{"orders":{"0":20}}\n')
    assert "a RESTORE or a rollback undid version 2" in caplog.text


def test_no_broker_answers(
    project: Path,  # noqa: F811
    recon: Callable[..., Ended],  # noqa: F811
    caplog: pytest.LogCaptureFixture,
) -> None:
    (project / "recon.yml").write_text(BASE.replace("kafka: {", "kafka: {bootstrap.servers: 'localhost:1', "))
    Table(project).write(0, 0, 10)
    ended = recon("offsets", "--pipeline", "orders")
    assert (ended.code, json.loads(ended.out)) == (0, {"orders": {"0": 10}})
    assert "whether the topics are those in the ledger is not known" in caplog.text


def test_sinks_that_do_not_agree(project: Path, recon: Callable[..., Ended]) -> None:  # noqa: F811
    (project / "recon.yml").write_text(TWO_SINKS)
    Table(project).write(0, 0, 10)
    open_ledger(load(project)).append(entry(sink="copy", sink_version=None, offsets=(span(0, 7),)))
    ended = recon("offsets", "--pipeline", "orders")
    assert (ended.code, ended.out) == (2, "") and same_message(ended.err)
    assert recon("offsets", "--pipeline", "orders", "--sink", "copy").out == '{"orders":{"0":7}}\n'
    assert recon("offsets", "--pipeline", "orders", "--sink", "other").code == 2


@pytest.mark.parametrize("sources", [1, 2])
def test_a_topic_in_several_sources(
    project: Path,  # noqa: F811
    recon: Callable[..., Ended],  # noqa: F811
    sources: int,
) -> None:
    read = tuple(OffsetSpan("orders", "id-1", n, 0, 10, source=n % sources) for n in range(2))
    open_ledger(load(project)).append(entry(sink_version=None, offsets=read))
    ended = recon("offsets", "--pipeline", "orders")
    if sources == 1:
        assert ended == Ended(0, '{"orders":{"0":10,"1":10}}\n', "")
    else:
        assert (ended.code, ended.out) == (2, "") and "several sources" in ended.err
