"""`recon.account` and `recon account`, on recorded streams: three pipelines with their faults, no JVM and no broker."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyarrow import csv, parquet

import recon
from recon.base.errors import ConfigError
from recon.cli import main
from recon.local.demo import trial
from recon.model.account import OffsetClass
from recon.reports.account import OffsetAccount
from tests.support.messages import raises

COLUMNS = [
    "pipeline",
    "sink",
    "source",
    "topic",
    "topic_id",
    "partition",
    "start_offset",
    "end_offset",
    "offsets",
    "class",
    "how_known",
    "epoch",
    "batch_id",
    "sink_version",
]


class Ended(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recorded") / "try"
    trial.unpack(folder)
    return folder


@pytest.fixture
def command(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ended]:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("NO_COLOR", "1")

    def run(*arguments: str) -> Ended:
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main(["account", *arguments])
        captured = capsys.readouterr()
        return Ended(int(end.value.code or 0), captured.out, captured.err)

    return run


@pytest.fixture(scope="module")
def account(folder: Path) -> OffsetAccount:
    return recon.account(folder, no_spark=True)


def test_the_classes_of_each_sink_add_up(account: OffsetAccount) -> None:
    assert [(sink.pipeline, sink.read) for sink in account.sinks] == [
        ("orders", 310),
        ("payments", 240),
        ("clicks", 140),
    ]
    assert sum(account.sums.values()) == account.offsets == 690
    assert account.sums[OffsetClass.NOT_KNOWN] > 0  # no broker answers, and no rows were read
    assert sum(offsets for *_, offsets in account.rows()) == 690


def test_as_a_table(account: OffsetAccount) -> None:
    table, frame = account.to_arrow(), account.to_pandas()
    assert table.column_names == COLUMNS
    assert int(frame["offsets"].sum()) == 690
    clicks = frame[frame["pipeline"] == "clicks"]
    unread = clicks[clicks["batch_id"].isna()]
    told = unread[["partition", "start_offset", "end_offset", "class"]].to_numpy().tolist()
    assert told == [[0, 40, 60, "not known"], [1, 40, 60, "not known"]]
    ranges = frame[frame["start_offset"].notna()]
    assert ((ranges["end_offset"] - ranges["start_offset"]) == ranges["offsets"]).all()


@pytest.mark.parametrize("name", ["account.parquet", "account.csv"])
def test_written_to_a_file(account: OffsetAccount, tmp_path: Path, name: str) -> None:
    place = account.write(tmp_path / name)
    table = csv.read_csv(place) if name.endswith("csv") else parquet.read_table(place)
    assert table.column_names == COLUMNS and table.num_rows == sum(map(len, account.sinks))
    assert sum(table["offsets"].to_pylist()) == 690


def test_one_partition_and_one_class(account: OffsetAccount) -> None:
    some = account.only(partition="clicks-1", offset_class="not known")
    assert [len(sink) for sink in some.sinks] == [0, 0, 1] and some.offsets == 20
    assert some.to_arrow().num_rows == 1
    with raises(ConfigError):
        account.only(partition="clicks-7")
    with raises(ConfigError):
        account.only(partition="clicks")
    with raises(ConfigError):
        account.only(offset_class="lots")
    for wrong in ({"partition": 3}, {"offset_class": 5}):
        with pytest.raises(ConfigError):
            account.only(**wrong)  # type: ignore[arg-type]


def test_doubled_offsets_are_listed_beside_the_classes(account: OffsetAccount) -> None:
    """The log shows that a micro-batch was committed twice; its offsets are in rows."""
    doubled = {sink.sink: sink.doubled for sink in account.sinks}
    assert doubled == {"orders": [], "payments": [("payments", 0, 30, 60, 2), ("payments", 1, 30, 60, 2)], "clicks": []}


def change(folder: Path, fault: str) -> None:
    if fault == "the table is gone":
        shutil.rmtree(folder / "lake" / "orders")
    elif fault == "the table was made anew":
        shutil.rmtree(folder / "lake" / "orders")
        write_deltalake(folder / "lake" / "orders", pa.table({"n": [1]}))
    elif fault == "the log cannot be read":
        (folder / "lake" / "orders" / "_delta_log" / f"{0:020}.json").write_text("{")
    else:
        DeltaTable(folder / "lake" / "orders").delete("true")


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("the table is gone", "there is no table at "),
        ("the table was made anew", "has other commits than those of micro-batch 0"),
        ("the log cannot be read", "what the sink has now was not read: "),
        ("all rows are deleted", "of the sink changed rows"),
    ],
)
def test_what_was_counted_and_may_be_gone_is_not_known(tmp_path: Path, fault: str, says: str) -> None:
    trial.unpack(tmp_path / "try")
    whole = recon.account(tmp_path / "try", pipeline="orders", no_spark=True)
    change(tmp_path / "try", fault)
    account = recon.account(tmp_path / "try", pipeline="orders", no_spark=True)
    assert whole.sums[OffsetClass.IN_A_ROW] > 0 and account.sums[OffsetClass.IN_A_ROW] == 0
    assert account.offsets == whole.offsets
    (sink,) = account.sinks
    assert any(says in doubt for doubt in sink.doubts), sink.doubts


def test_in_a_notebook_and_at_a_prompt(account: OffsetAccount) -> None:
    assert repr(account).startswith("<OffsetAccount try: 690 offsets: 555 in a row, ")
    page = account._repr_html_()
    assert "<th>690</th>" in page and "counted during the write" in page


def test_what_is_no_name(folder: Path) -> None:
    with raises(ConfigError):
        recon.account(folder, no_spark=True, pipeline=5)  # type: ignore[arg-type]


def test_a_period(folder: Path) -> None:
    with raises(ConfigError):
        recon.account(folder, no_spark=True, from_="2020-01-01", to="2020-01-02")


def test_the_command(command: Callable[..., Ended], tmp_path: Path) -> None:
    ended = command("--no-spark", "--pipeline", "clicks")
    assert ended.code == 0 and ended.err == ""
    lines = [line.split() for line in ended.out.splitlines()]
    assert ["clicks", "clicks", "=", "offsets", "140"] in lines
    assert "[40, 60)" not in ended.out
    ended = command("--no-spark", "--pipeline", "clicks", "--class", "not known", "--output", str(tmp_path / "a.csv"))
    assert "[40, 60)" in ended.out and (tmp_path / "a.csv").is_file()
    ended = command("--no-spark", "--partition", "clicks-0")
    assert "clicks-0" in ended.out and "payments-0" not in ended.out
    assert "[60, 70)" in command("--no-spark", "--pipeline", "clicks", "--ranges").out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--pipeline", "click"], "did you mean 'clicks'?"),
        (["--sink", "gone"], "recon.yml has no sink 'gone'"),
        (
            ["--partition", "clicks-9"],
            "the account has no partition 'clicks-9'; it has orders-0",
        ),
        (["--partition", "clicks"], "the account has no partition 'clicks'"),
        (["--partition", "clicks-0x0"], "the account has no partition 'clicks-0x0'"),
        (["--class", "losst"], "there is no class 'losst'; did you mean 'lost'?"),
        (["--output", "account.xlsx"], "account.xlsx ends with neither .parquet nor .csv"),
        (["--output", "nowhere/account.csv"], "there is no folder nowhere; make it, or choose another"),
        (["--from", "2020-01-01", "--to", "2020-01-02"], "the ledger has no entry of the period of pipeline orders"),
    ],
)
def test_bad_input_is_one_sentence(command: Callable[..., Ended], arguments: list[str], says: str) -> None:
    ended = command("--no-spark", *arguments)
    assert (ended.code, ended.out) == (2, "") and len(ended.err.splitlines()) == 1
    assert says in ended.err


def test_without_a_ledger(tmp_path: Path, command: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "recon.yml").write_text(
        "name: lake\nledger: _recon\n"
        "pipelines: [{name: orders, checkpoint: cp, sinks: [{name: orders, target: orders}]}]\n"
    )
    monkeypatch.chdir(tmp_path)
    ended = command("--no-spark")
    assert ended.code == 2 and "there is no ledger at" in ended.err and len(ended.err.splitlines()) == 1
