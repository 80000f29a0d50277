"""recon repair on the command line: what it refuses before anything is read or written."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path

import pytest
import typer

from recon.base.errors import ConfigError
from recon.cli.repair import ask
from recon.model import Code, Finding
from recon.model.offsets import OffsetSpan
from recon.model.proof import OpenFinding, SinkProof
from recon.project import load
from recon.recovery.repair.passed import _is_same
from recon.testing.evidence import kafka
from recon.write.hook.prepare import name_of
from recon.write.ledger import open_ledger
from tests.support.broker import Broker
from tests.support.ledger_entries import entry
from tests.unit.cli.test_cli import BASE, Ended, project, recon  # noqa: F401
from tests.unit.hook.test_writer import plan_three

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)
UNREACHABLE = BASE.replace("kafka: {", "kafka: {bootstrap.servers: 'localhost:1', ")


@pytest.fixture
def with_finding(project: Path) -> str:  # noqa: F811
    """A project with one open finding; its id."""
    (project / "recon.yml").write_text(UNREACHABLE)
    ledger, pipeline = open_ledger(load(project)), load(project).pipelines[0]
    name, sink = pipeline.name, pipeline.sinks[0].name
    spans = (OffsetSpan("orders", "id-1", 0, 0, 10),)
    ledger.append(entry(pipeline=name, sink=sink, offsets=spans))
    found = Finding(
        code=Code.GAP,
        pipeline=name,
        sink=sink,
        topic="orders",
        partition=0,
        start_offset=3,
        end_offset=9,
        message="gone",
    )
    one = OpenFinding(finding=found, check="source_rows", first_seen=NOW, last_seen=NOW)
    state = SinkProof(
        pipeline=name,
        sink=sink,
        at=NOW,
        invocation_id="a",
        position=1,
        chain_head="",
        first_epoch=0,
        first_batch_id=0,
        open=(one,),
    )
    assert ledger.proofs.append(state, after=0, prev_hash="", cause="audit", at=NOW)
    return one.id


def test_without_a_broker(recon: Callable[..., Ended], project: Path) -> None:  # noqa: F811
    ended = recon("repair", "plan")
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert "a repair reads missing offsets again from Kafka" in ended.err


def test_without_an_open_finding(recon: Callable[..., Ended], project: Path) -> None:  # noqa: F811
    (project / "recon.yml").write_text(UNREACHABLE)
    ended = recon("repair", "plan")
    assert (ended.code, ended.err) == (0, "No finding is open.\n")


def test_an_unknown_finding(recon: Callable[..., Ended], with_finding: str) -> None:  # noqa: F811
    ended = recon("repair", "plan", "--finding", "ffff0000")
    assert ended.code == 2 and f"no open finding with id 'ffff0000'; open are {with_finding}" in ended.err


def test_a_broker_that_does_not_answer(recon: Callable[..., Ended], with_finding: str) -> None:  # noqa: F811
    ended = recon("repair", "plan", "--finding", with_finding[:4])
    assert ended.code == 2 and "cannot be reached" in ended.err


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("parse", "is not of the form module:function"),
        ("no_such_module:parse", "cannot be imported: ModuleNotFoundError"),
        ("json:no_such_function", "cannot be imported: AttributeError"),
        ("sys:version", "is no function"),
    ],
)
def test_a_transform_that_is_none(
    recon: Callable[..., Ended],  # noqa: F811
    project: Path,  # noqa: F811
    name: str,
    message: str,
) -> None:
    pipeline = load(project).pipelines[0].name
    ended = recon("repair", "apply", "--pipeline", pipeline, "--transform", name)
    assert ended.code == 2 and message in ended.err


class Terminal(io.StringIO):
    """Somebody at a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("answer", "goes_on"), [("y\n", True), ("n\n", False), ("\n", False)])
def test_whoever_does_not_say_yes_changes_nothing(
    answer: str, goes_on: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal(answer))
    with nullcontext() if goes_on else pytest.raises(typer.Exit) as ended:
        ask("lake/orders will be changed")
    told = capsys.readouterr()
    assert "lake/orders will be changed. Go on?" in told.out
    if ended is not None:
        assert ended.value.exit_code == 1 and "Nothing was changed." in told.err


def test_where_nobody_can_be_asked_the_command_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    with pytest.raises(ConfigError, match="there is nobody to ask: add --yes"):
        ask("lake/orders will be changed")


def test_names_of_a_transform() -> None:
    assert name_of(load) == "recon.project.load:load"
    assert _is_same("__main__:parse", "orders_job:parse") and _is_same(None, None)
    assert (
        not _is_same("a:parse", "b:parse") and not _is_same("__main__:parse", "a:clean") and not _is_same(None, "a:b")
    )


def test_a_plan(
    recon: Callable[..., Ended],  # noqa: F811
    project: Path,  # noqa: F811
    with_finding: str,
    broker: Broker,
) -> None:
    broker.has(kafka(log_start=5, log_end=50, topic_id="id-1"))
    plan_three(project / "cp")
    ended = recon("repair", "plan", "--output", "json")
    assert ended.code == 0, ended.err
    (plan,) = json.loads(ended.out)
    keys = ("action", "topic", "partition", "start_offset", "end_offset", "batch_id", "findings")
    assert plan["refused"] == "" and [tuple(one[key] for key in keys) for one in plan["ranges"]] == [
        ("gone", "orders", 0, 3, 5, 0, [with_finding]),
        ("read", "orders", 0, 5, 9, 0, [with_finding]),
    ]
    text = recon("repair", "plan").out
    assert "orders-0" in text and "Kafka still has them (log start 5)" in text
    ended = recon("repair", "apply", "--pipeline", "orders")
    assert ended.code == 2 and "there is nobody to ask: add --yes" in ended.err
    (project / "cp/state/0/0/1").mkdir(parents=True)
    ended = recon("repair", "apply", "--pipeline", "orders", "--yes")
    assert ended.code == 2 and "keeps state" in ended.err
