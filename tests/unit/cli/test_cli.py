"""The command line: options, exit codes, one line per error, and the commands that need no stream."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import pytest
import typer
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from recon import __version__
from recon.base.errors import ConfigError, EvidenceError
from recon.base.requirements import requirements
from recon.cli import main
from recon.cli.commands import Group, new_app
from recon.cli.shared import Session, period
from recon.project import load
from recon.reports import run_results
from recon.write.ledger import open_ledger
from tests.support.ledger_entries import entry
from tests.support.sample_run import sample_run

ROOT = Path(__file__).parents[3]
BASE = """\
name: lake
ledger: _recon
kafka: {sasl.password: "{{ env_var('RECON_TEST_PW', 'nothing-secret') }}"}
pipelines:
  - name: orders
    checkpoint: cp
    sinks:
      - name: orders
        target: orders
        data_tests:
          - unique_combination_of_columns: {arguments: {combination_of_columns: [a, b]}}
        columns:
          - name: status
            data_tests: [{not_null: {config: {severity: warn, tags: nightly}}}]
"""


class Ended(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def recon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ended]:
    """Runs a command in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")

    def run(*arguments: str) -> Ended:
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main(arguments)
        captured = capsys.readouterr()
        return Ended(int(end.value.code or 0), captured.out, captured.err)

    return run


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "recon.yml").write_text(BASE)
    return tmp_path


# --- the frame --------------------------------------------------------------------------------------------


def test_version(recon: Callable[..., Ended]) -> None:
    assert recon("--version") == Ended(0, f"recon {__version__}\n", "")


def test_the_installed_command() -> None:
    command = Path(sys.executable).with_name("recon")
    done = subprocess.run([command, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"recon {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nope"], "No such command 'nope'"),
        (["audit", "--nope"], "No such option"),
        (["list", "--output", "xml"], "'xml' is not one of"),
        (["compliance"], "give the begin of the period: --from … --to …"),
        (["ledger", "show", "--limit", "0"], "'--limit': "),
    ],
)
def test_usage_errors_exit_2(recon: Callable[..., Ended], arguments: list[str], message: str) -> None:
    ended = recon(*arguments)
    assert (ended.code, ended.out) == (2, "")
    assert message in ended.err


def test_no_recon_yml(recon: Callable[..., Ended], tmp_path: Path) -> None:
    for arguments in (["list"], ["audit"], ["ledger", "show"], ["offsets", "--pipeline", "x"], ["report"]):
        ended = recon(*arguments)
        assert (ended.code, ended.out) == (2, "")
        assert ended.err == (
            f"Error: no recon.yml in {tmp_path} or any folder above it; write one with 'recon init', "
            "or point to one with --project-dir\n"
        )
    assert recon("list", "--project-dir", "sub").err.startswith(f"Error: no recon.yml at {tmp_path}/sub")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nme: x", "recon.yml:1: unknown key 'nme' in recon.yml; did you mean 'name'? (and 1 more)"),
        ("name: [", "recon.yml:1: not valid YAML: "),
        ("name: {{ x }}", "recon.yml:1: 'x' is undefined; "),
        (BASE.replace("not_null", "not_nul"), "there is no check 'not_nul'; did you mean 'not_null'?"),
        (
            BASE + "      - {name: orders, target: x}\n",
            "recon.yml:15: two sinks of pipeline 'orders' are named 'orders'",
        ),
    ],
)
def test_a_bad_recon_yml_is_one_line_and_exit_2(
    recon: Callable[..., Ended], tmp_path: Path, text: str, message: str
) -> None:
    (tmp_path / "recon.yml").write_text(text)
    for arguments in (["list"], ["audit", "--no-spark"]):
        ended = recon(*arguments)
        assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
        assert ended.err.startswith("Error: ")
        assert message in ended.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["recon.yml"]


def test_the_project_is_found_upwards_and_by_option(
    recon: Callable[..., Ended], project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "a" / "b").mkdir(parents=True)
    monkeypatch.chdir(project / "a" / "b")
    assert recon("ledger", "verify").err.startswith(f"Error: there is no ledger at {project}/_recon/ledger")
    monkeypatch.chdir("/")
    for arguments in (
        ["--project-dir", str(project), "ledger", "show"],
        ["ledger", "show", "--project-dir", str(project)],
    ):
        assert recon(*arguments).err.startswith(f"Error: there is no ledger at {project}/_recon/ledger")


def test_vars_before_and_after_the_command(recon: Callable[..., Ended], project: Path) -> None:
    (project / "recon.yml").write_text(BASE.replace("_recon", "{{ var('a') }}-{{ var('b') }}"))
    ended = recon("--vars", "{a: 1, b: 1}", "ledger", "show", "--vars", '{"b": "x"}')
    assert f"no ledger at {project}/1-x/ledger" in ended.err
    assert "variable a is not given" in recon("ledger", "show").err
    assert recon("list", "--vars", "a=1").err.startswith("Error: --vars must be a mapping")
    assert recon("list", "--vars", "{a: ").err.startswith("Error: --vars must be a mapping")


def _failing(error: BaseException) -> typer.Typer:
    def fail(session: Session, password: Annotated[bool, typer.Option("--load")] = False) -> None:
        """Fails."""
        if password:
            session.project()
        raise error

    return new_app(Group("for a test", {"fail": fail, "other": fail}))


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (EvidenceError("a witness\nis gone"), 2, "Error: a witness is gone\n"),
        (
            ValueError("odd\nsecond line"),
            2,
            "Error: unexpected ValueError: odd; run it again with --debug for the traceback\n",
        ),
        (ValueError(), 2, "Error: unexpected ValueError; run it again with --debug for the traceback\n"),
        (KeyboardInterrupt(), 130, "Error: interrupted\n"),
    ],
)
def test_every_error_is_one_line(
    capsys: pytest.CaptureFixture[str], error: BaseException, code: int, message: str
) -> None:
    with pytest.raises(SystemExit) as end:
        _failing(error)(args=["fail"])
    assert (end.value.code, *capsys.readouterr()) == (code, "", message)


def test_debug_shows_the_traceback_without_secrets(
    capsys: pytest.CaptureFixture[str], project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    monkeypatch.setenv("RECON_TEST_PW", "hunter2-secret")
    with pytest.raises(SystemExit) as end:
        _failing(ValueError("login with hunter2-secret failed"))(args=["fail", "--load", "--debug"])
    errors = capsys.readouterr().err
    assert end.value.code == 2
    assert "Traceback" in errors
    assert errors.endswith("Error: unexpected ValueError: login with *** failed\n")
    assert "hunter2" not in errors


def test_a_reader_that_leaves_is_no_error(project: Path) -> None:
    script = "from recon.cli import main; main(['ledger', 'show', '--output', 'json'])"
    ledger = open_ledger(load(project))
    for n in range(40):
        ledger.append(entry(n))
    with subprocess.Popen(
        [sys.executable, "-c", script], cwd=project, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == ""


# --- times ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("from_", "to", "expected"),
    [
        ("2026-11-01", "2026-11-30", (datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 12, 1, tzinfo=UTC))),
        (
            "2026-11-01T06:00",
            "2026-11-01 07:30",
            (datetime(2026, 11, 1, 6, tzinfo=UTC), datetime(2026, 11, 1, 7, 30, tzinfo=UTC)),
        ),
        (
            "2026-11-01T06:00+02:00",
            "2026-11-01T06:00Z",
            (datetime(2026, 11, 1, 4, tzinfo=UTC), datetime(2026, 11, 1, 6, tzinfo=UTC)),
        ),
        (None, None, (None, None)),
    ],
)
def test_times(from_: str | None, to: str | None, expected: tuple[Any, Any]) -> None:
    assert period(from_, to) == expected


def test_times_ago() -> None:
    start, end = period("7d", "24h")
    assert start is not None
    assert end is not None
    assert end - start == timedelta(days=6)
    assert abs(datetime.now(UTC) - timedelta(hours=24) - end) < timedelta(minutes=1)


@pytest.mark.parametrize(
    ("from_", "to", "message"),
    [
        ("yesterday", None, "--from 'yesterday' is not a time; give 2026-11-01,"),
        (None, "2026-13-01", "--to '2026-13-01' is not a time"),
        ("99999999999w", None, "--from '99999999999w' is not a time"),
        ("2026-11-02", "2026-11-01", "the period is empty: --from 2026-11-02 is not before --to 2026-11-01"),
        ("2999-01-01", None, "the period is empty: --from 2999-01-01 is not before now"),
    ],
)
def test_bad_times(from_: str | None, to: str | None, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        period(from_, to)
    assert str(error.value).startswith(message)


# --- list, report -----------------------------------------------------------------------------------------


def test_list_as_json(recon: Callable[..., Ended], project: Path) -> None:
    ended = recon("list", "--output", "json")
    assert (ended.code, ended.err) == (0, "")
    checks = json.loads(ended.out)
    assert [(c["check"], c["kind"], c["column"], c["config"]["severity"]) for c in checks if c["kind"] == "data"] == [
        ("unique_combination_of_columns", "data", None, "error"),
        ("not_null", "data", "status", "warn"),
    ]
    (one,) = json.loads(recon("list", "-s", "tag:nightly", "--output", "json").out)
    assert (one["check"], one["pipeline"], one["sink"], one["tags"]) == ("not_null", "orders", "orders", ["nightly"])


def test_list_as_text_is_not_cut_in_a_pipe(recon: Callable[..., Ended], project: Path) -> None:
    ended = recon("list", "--exclude", "tag:nightly")
    names = [c["name"] for c in json.loads(recon("list", "--exclude", "tag:nightly", "--output", "json").out)]
    assert [line.split()[0] for line in ended.out.splitlines()] == ["name", *names]
    assert "…" not in ended.out


def test_list_selects_nothing(recon: Callable[..., Ended], project: Path) -> None:
    ended = recon("list", "--select", "tag:weekly")
    assert (ended.code, ended.out) == (0, "")
    assert ended.err == "Warning: selector 'tag:weekly' matches no check\nNo check is selected.\n"
    assert recon("list", "--select", "tga:weekly").code == 2


def test_report_is_drawn_from_the_results(recon: Callable[..., Ended], project: Path) -> None:
    assert recon("report") == Ended(
        2,
        "",
        f"Error: no {project}/target/run_results.json; run 'recon audit' first, "
        "or point to its folder with --target-path\n",
    )
    run_results.write(sample_run(), project / "target" / "run_results.json")
    assert recon("report") == Ended(0, "Report:  target/report.html\n", "")
    assert "payments" in (project / "target" / "report.html").read_text()
    run_results.write(sample_run(), project / "other" / "run_results.json")
    assert recon("report", "--target-path", "other", "--output", "x/page.html").code == 0
    assert (project / "x" / "page.html").is_file()


@pytest.mark.parametrize("options", [("--run", "x"), ("--last", "30d")])
def test_report_of_an_earlier_audit_without_one(
    recon: Callable[..., Ended], project: Path, options: tuple[str, str]
) -> None:
    ended = recon("report", *options)
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert not (project / "target" / "report.html").exists()


def test_report_of_one_audit_and_of_a_time_exclude_each_other(recon: Callable[..., Ended], project: Path) -> None:
    assert recon("report", "--run", "x", "--last", "30d").code == 2


def test_a_folder_that_cannot_be_written(recon: Callable[..., Ended], project: Path) -> None:
    run_results.write(sample_run(), project / "target" / "run_results.json")
    (project / "file").write_text("")
    ended = recon("report", "--output", "file/page.html")
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert ended.err.startswith(f"Error: {project}/file/page.html cannot be written: ")


# --- audit, compliance ------------------------------------------------------------------------------------


def test_audit_says_first_that_it_cannot_keep_what_it_finds(
    recon: Callable[..., Ended], project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(load(project).resolve(load(project).ledger.location))
    folder.mkdir(parents=True)
    assert recon("audit", "--no-spark").err == ""
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != folder and access(path, mode))
    assert recon("audit", "--no-spark").err == (
        f"Warning: {folder} cannot be written by this user: what this audit finds is not kept beside the ledger, and "
        "the next one begins where this one did\n"
    )


def test_audit_writes_results_and_exits_1_when_nothing_can_be_proved(
    recon: Callable[..., Ended], project: Path
) -> None:
    ended = recon("audit", "--no-spark")
    assert (ended.code, ended.err) == (1, "")
    assert ended.out.startswith("1 of 3 ")
    assert "ERROR ledger_integrity" in ended.out
    assert "PASS=0 WARN=0 ERROR=1 SKIP=2 TOTAL=3" in ended.out
    assert ended.out.endswith("Results: target/run_results.json\nReport:  target/report.html\n")
    run = run_results.read(project / "target" / "run_results.json")
    assert (run.exit_code, len(run.results)) == (1, 3)
    assert "could not be proved" in (project / "target" / "report.html").read_text()


def test_audit_options_reach_the_audit(
    recon: Callable[..., Ended], project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "below").mkdir()
    monkeypatch.chdir(project / "below")
    period = ("--from", "2026-11-01", "--to", "2026-11-02")
    ended = recon("audit", "--no-spark", "-s", "test_name:not_null", "--target-path", "out", *period)
    assert ended.code == 0
    assert ended.out.startswith("1 of 1 SKIP not_null_orders_status")
    run = run_results.read(project / "below" / "out" / "run_results.json")
    assert run.period_from == datetime(2026, 11, 1, tzinfo=UTC)
    assert run.period_to == datetime(2026, 11, 3, tzinfo=UTC)
    assert not (project / "target").exists()


def test_audit_that_breaks_leaves_no_earlier_report(
    recon: Callable[..., Ended], project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recon("audit", "--no-spark")
    written = [project / "target" / name for name in ("run_results.json", "report.html")]
    assert all(file.is_file() for file in written)
    assert recon("audit", "--no-spark", "--from", "x").code == 2
    assert all(file.is_file() for file in written), "an audit that did not begin says nothing about the data"
    monkeypatch.setattr("recon.audits.run.store", lambda *_: 1 / 0)
    ended = recon("audit", "--no-spark")
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert not any(file.exists() for file in written)


def test_audit_that_cannot_run_writes_nothing(recon: Callable[..., Ended], project: Path) -> None:
    assert recon("audit", "--select", "tga:x").code == 2
    assert recon("audit", "--from", "x").code == 2
    assert sorted(path.name for path in project.iterdir()) == ["recon.yml"]


def test_a_sample_for_an_auditor(recon: Callable[..., Ended], ledger: Path) -> None:
    november = ("--from", "2026-11-01", "--to", "2026-11-30")
    ended = recon("compliance", "sample", *november, "--n", "2", "--seed", "s", "--format", "csv")
    assert ended.code == 0 and "2 not read." in ended.out and "Seed s, key " in ended.out
    assert ended.out.endswith("Sample: target/sample.csv\n")
    assert (ledger / "target" / "sample.csv").read_text().startswith("number,pipeline,")
    document = json.loads(recon("compliance", "sample", *november, "--format", "json", "--output", "-").out)
    assert (document["asked"], len(document["seed"])) == (25, 16)
    assert recon("compliance", "sample", *november, "--select", "sink:orders").code == 0
    assert recon("compliance", "sample", *november, "--select", "nosuch").code == 2
    assert recon("compliance", "sample", "--to", "2026-11-30").code == 2
    assert recon("compliance", "sample", *november, "--n", "0").code == 2


def test_a_report_is_verified(recon: Callable[..., Ended], ledger: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    november = ("--from", "2026-11-01", "--to", "2026-11-30")
    assert recon("compliance", *november, "--format", "json").code == 0
    file = ledger / "target" / "compliance.json"
    ended = recon("compliance", "verify", str(file))
    assert ended.code == 0 and ended.out.startswith("target/compliance.json: lake, 2026-11-01 to 2026-11-30\n")
    assert re.search(
        r"^Same: \d+ values derived again from ledger and proof, as of .* UTC, its own time\.$", ended.out, re.MULTILINE
    )
    with monkeypatch.context() as later:
        later.setattr("recon.audits.verify_report.since", lambda before, now: ["finding 3f9c02aa; accepted by Ada"])
        ended = recon("compliance", "verify", str(file))
        assert ended.code == 0 and ended.out.endswith("\nSince then: finding 3f9c02aa; accepted by Ada\n")
        assert json.loads(recon("compliance", "verify", str(file), "--output", "json").out)["since"]
    open_ledger(load(ledger)).append(entry(7, rows_written=4))
    ended = recon("compliance", "verify", str(file))
    assert ended.code == 1 and "\nDifferent: sinks[orders.orders].batches: " in ended.out
    document = json.loads(recon("compliance", "verify", str(file), "--output", "json").out)
    assert document["same"] is False and {"path", "document", "now"} == set(document["differences"][0])
    file.write_text(file.read_text().replace('"batches": ', '"batches": 1'))
    ended = recon("compliance", "verify", str(file))
    assert ended.code == 2 and "was edited: its content has the SHA-256" in ended.err
    assert recon("compliance", "verify", "nothing.html").code == 2


def test_a_compliance_report_is_printed(recon: Callable[..., Ended], ledger: Path) -> None:
    period = ("compliance", "--from", "2026-11-01", "--to", "2026-11-30", "--output", "-")
    assert recon(*period, "--format", "md").out.startswith("# Compliance report: ")
    assert json.loads(recon(*period, "--format", "json").out)["format"] == "recon-compliance"
    assert recon(*period, "--format", "pdf").code == 2
    assert not Path("-").exists()


def test_compliance(recon: Callable[..., Ended], ledger: Path) -> None:
    november = ("--from", "2026-11-01", "--to", "2026-11-30")
    assert recon("compliance", *november) == Ended(0, "Compliance report: target/compliance.html\n", "")
    assert "<html" in (ledger / "target" / "compliance.html").read_text()
    assert recon("compliance", *november, "--format", "md", "--output", "c.md").code == 0
    assert "orders" in (ledger / "c.md").read_text()
    assert recon("compliance", "--from", "2026-11-02", "--to", "2026-11-01").err.startswith(
        "Error: the period is empty"
    )


# --- the ledger -------------------------------------------------------------------------------------------


@pytest.fixture
def ledger(project: Path) -> Path:
    open_ = open_ledger(load(project))
    for n in range(3):
        open_.append(entry(n, at=datetime(2026, 11, 20, 12, n, tzinfo=UTC)))
    return project


def test_ledger_show(recon: Callable[..., Ended], ledger: Path) -> None:
    header, *rows = recon("ledger", "show").out.splitlines()
    assert " ".join(header.split()) == (
        "committed_at pipeline sink sequence epoch batch_id attempt status rows_written quarantined offsets version "
        "hash"
    )
    last = open_ledger(load(ledger)).entries()[-1]
    assert len(rows) == 3
    assert rows[-1].split() == [
        "2026-11-20", "12:02:00", "orders", "orders", "3", "0", "2", "1", "committed", "20", "0", "20", "2",
        last.entry_hash[:12],
    ]  # fmt: skip


def test_ledger_show_as_json_within_a_period(recon: Callable[..., Ended], ledger: Path) -> None:
    def batches(*options: str) -> list[int]:
        return [e["batch_id"] for e in json.loads(recon("ledger", "show", "--output", "json", *options).out)]

    assert batches() == [0, 1, 2]
    assert batches("--limit", "1") == [2]
    assert batches("--from", "2026-11-20T12:01", "--to", "2026-11-20T12:02") == [1]
    assert batches("--to", "2026-11-20") == [0, 1, 2]
    assert batches("--to", "2026-11-19") == []
    newest = json.loads(recon("ledger", "show", "--output", "json").out)[0]
    assert newest["committed_at"] == "2026-11-20T12:00:00Z"


def test_unknown_names(recon: Callable[..., Ended], ledger: Path) -> None:
    assert recon("ledger", "show", "--pipeline", "oders").err == (
        "Error: recon.yml has no pipeline 'oders'; did you mean 'orders'?\n"
    )
    assert recon("ledger", "verify", "--pipeline", "orders", "--sink", "x").err == (
        "Error: pipeline orders has no sink 'x'; it has orders\n"
    )
    assert recon("offsets", "--pipeline", "x").err == "Error: recon.yml has no pipeline 'x'; it has orders\n"


def test_offsets_stand_alone_on_stdout(recon: Callable[..., Ended], ledger: Path) -> None:
    ended = recon("offsets", "--pipeline", "orders")
    assert (ended.code, ended.err) == (0, "")
    assert json.loads(ended.out) == {"orders": {"0": 30, "1": 30}}


def test_ledger_verify(recon: Callable[..., Ended], ledger: Path) -> None:
    intact = recon("ledger", "verify")
    assert (intact.code, intact.err, intact.out.count("\n")) == (0, "", 1)
    from deltalake import DeltaTable

    DeltaTable(ledger / "_recon" / "ledger").update({"rows_written": "19"}, predicate="batch_id = 1")
    ended = recon("ledger", "verify")
    assert ended.code == 1
    assert "TAMPERED" in ended.out
    findings = json.loads(recon("ledger", "verify", "--output", "json").out)
    assert "TAMPERED" in {f["code"] for f in findings}


def test_ledger_compact(recon: Callable[..., Ended], ledger: Path) -> None:
    ended = recon("ledger", "compact")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith("ledger: ")
    assert len(json.loads(recon("ledger", "show", "--output", "json").out)) == 3


# --- init -------------------------------------------------------------------------------------------------


def test_init_writes_a_project_that_loads_and_lists(recon: Callable[..., Ended], tmp_path: Path) -> None:
    ended = recon("init", "mine", "--topic", "my topic: #1", "--target", 's3a://b/it\'s "x"', "--checkpoint", "/cp/ü")
    assert (ended.code, ended.err) == (0, "")
    project = load(tmp_path / "mine")
    (pipeline,) = project.pipelines
    assert (project.name, pipeline.name, pipeline.checkpoint) == ("mine", "my_topic_1", "/cp/ü")
    assert (pipeline.source.topics, pipeline.sinks[0].target) == (("my topic: #1",), 's3a://b/it\'s "x"')
    listed = json.loads(recon("list", "--project-dir", "mine", "--output", "json").out)
    assert {"offset_continuity", "checkpoint_commits", "kafka_end_offsets", "delta_history"} <= {
        c["check"] for c in listed
    }


def test_init_never_overwrites(recon: Callable[..., Ended], project: Path) -> None:
    ended = recon("init")
    assert ended.code == 2
    assert ended.err.startswith(f"Error: {project}/recon.yml exists already")
    assert (project / "recon.yml").read_text() == BASE


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [("--target", "{{ x }}", "looks like Jinja"), ("--pipeline", "a b", "may hold only letters")],
)
def test_init_leaves_nothing_half(
    recon: Callable[..., Ended], tmp_path: Path, option: str, value: str, message: str
) -> None:
    ended = recon("init", option, value)
    assert ended.code == 2
    assert message in ended.err
    assert list(tmp_path.iterdir()) == []


def test_the_commented_out_parts_of_the_template_load_too(recon: Callable[..., Ended], tmp_path: Path) -> None:
    recon("init")
    file = tmp_path / "recon.yml"
    lines = file.read_text().splitlines()
    start = next(n for n, line in enumerate(lines) if "# data_tests" in line or "# columns:" in line)
    opened = [line.replace("# ", "", 1) if n >= start else line for n, line in enumerate(lines)]
    file.write_text("\n".join(opened))
    sink = load(tmp_path).pipelines[0].sinks[0]
    assert [spec.test for spec in sink.columns[0].data_tests] == ["not_null", "accepted_values"]
    assert [spec.config.on_failure for spec in sink.post_batch] == ["stop"]


# --- debug ------------------------------------------------------------------------------------------------


def told(ended: Ended) -> dict[str, str]:
    return dict(line.split(": ", 1) for line in ended.out.splitlines() if ": " in line)


def micro_batches(checkpoint: Path, offsets: int, commits: int) -> None:
    """A checkpoint as Spark writes it."""
    for folder, number, body in (("offsets", offsets, 'v1\n{}\n{"orders":{"0":5}}'), ("commits", commits, "v1\n{}")):
        (checkpoint / folder).mkdir(parents=True, exist_ok=True)
        for batch_id in range(number):
            (checkpoint / folder / str(batch_id)).write_text(body)
    (checkpoint / "metadata").write_text('{"id":"7c6d5e0c-0000-4000-8000-000000000001"}')


def test_debug_says_what_is_missing(
    recon: Callable[..., Ended], project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECON_TEST_PW", "hunter2-secret")
    ended = recon("debug")
    lines = told(ended)
    assert (ended.code, ended.err) == (1, "")
    assert lines["Python"].startswith("OK, 3.")
    assert lines["Java"].startswith("OK, Java ")
    assert lines["Spark"].startswith("OK, pyspark ")
    assert lines["recon.yml"] == f"OK, project lake in {project}, 1 pipeline, 3 checks"
    assert lines["checkpoint of orders"].startswith(f"not yet, there is no checkpoint at {project}/cp yet")
    assert lines["table of orders.orders"].startswith(f"not yet, there is no Delta table at {project}/orders yet")
    assert lines["Kafka for orders"] == "not OK, kafka has no bootstrap.servers in recon.yml"
    assert lines["ledger"].startswith(f"not yet, there is no ledger at {project}/_recon/ledger yet")
    assert ended.out.endswith("\n1 not OK, 3 not yet.\n")
    assert "hunter2" not in ended.out


def test_debug_before_the_first_micro_batch_is_no_error(recon: Callable[..., Ended], tmp_path: Path) -> None:
    """A project as its first day finds it: nothing that a micro-batch makes is there."""
    (tmp_path / "landing").mkdir()
    (tmp_path / "recon.yml").write_text(
        "name: lake\nledger: _recon\npipelines:\n  - name: orders\n    checkpoint: cp\n    source: {files: landing}\n"
        "    sinks:\n      - {name: orders, target: orders}\n"
        "      - {name: copies, kind: parquet, target: copies}\n"
    )
    ended = recon("debug")
    words = {what: line.split(", ")[0] for what, line in told(ended).items()}
    assert words.pop("Java") and set(words.values()) == {"OK", "not yet"}, ended.out
    of_the_stream = {"checkpoint of orders", "table of orders.orders", "table of orders.copies", "ledger"}
    assert {what for what, word in words.items() if word == "not yet"} == of_the_stream
    assert (ended.code, ended.out.splitlines()[-1]) == (0, "4 not yet.")
    micro_batches(tmp_path / "cp", 0, 0)
    assert told(recon("debug"))["checkpoint of orders"].startswith("not yet, query_id 7c6d5e0c")


def test_debug_of_what_a_micro_batch_made_and_is_gone(recon: Callable[..., Ended], project: Path) -> None:
    micro_batches(project / "cp", 1, 0)
    assert told(recon("debug"))["table of orders.orders"].startswith("not yet, "), "planned, and never committed"
    micro_batches(project / "cp", 2, 1)
    line = told(recon("debug"))["table of orders.orders"]
    assert line.startswith(f"not OK, there is no Delta table at {project}/orders, but ") and "micro-batch 0" in line


def test_debug_of_what_the_ledger_says_was_there(recon: Callable[..., Ended], ledger: Path) -> None:
    lines = told(recon("debug"))
    assert lines["checkpoint of orders"].startswith(
        f"not OK, there is no checkpoint at {ledger}/cp, but the ledger has"
    )
    assert lines["table of orders.orders"].startswith(
        f"not OK, there is no Delta table at {ledger}/orders, but the led"
    )


@pytest.mark.parametrize(
    ("pyspark", "delta", "right"),
    [
        ("3.5.7", "3.3.3", True),
        ("4.0.4", "4.4.0", True),
        ("4.2.0", "4.4.0", True),
        ("3.4.4", "2.4.0", False),
        ("4.1.1", "4.1.0", False),
        ("4.3.0", "5.0.0", False),
    ],
)
def test_debug_compares_versions_with_what_recon_requires(
    recon: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch, pyspark: str, delta: str, right: bool
) -> None:
    installed = {"pyspark": pyspark, "delta-spark": delta}
    monkeypatch.setattr("recon.cli.debug.version", lambda name: installed.get(name) or version(name))
    lines = told(recon("debug"))
    for what, name, found in (("Spark", "pyspark", pyspark), ("Delta", "delta-spark", delta)):
        if right:
            assert lines[what].startswith(f"OK, {name} {found}")
        else:
            assert lines[what].startswith(f"not OK, {name} {found} is not supported; pip install '{name}")
            ranges = lines[what].split("'")[1].removeprefix(name)
            assert found not in SpecifierSet(ranges) and version(name) in SpecifierSet(ranges), "the next step"


def test_debug_knows_the_ranges_of_pyproject() -> None:
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert {str(Requirement(one)) for one in wanted} >= {str(one) for one in requirements()} != set()


def test_debug_where_recon_is_not_installed(recon: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recon.base.requirements.DISTRIBUTION", "not-there")
    assert told(recon("debug"))["Spark"].endswith("recon is not installed here")


def test_debug_sees_a_table_and_a_ledger(recon: Callable[..., Ended], ledger: Path) -> None:
    import pyarrow as pa
    from deltalake import write_deltalake

    write_deltalake(str(ledger / "orders"), pa.table({"a": [1]}))
    out = recon("debug").out
    assert "table of orders.orders: OK, Delta table at version 0\n" in out
    assert f"ledger: OK, at {ledger}/_recon/ledger, last entry 2026-11-20 12:02:00 UTC\n" in out


def test_debug_without_a_project(recon: Callable[..., Ended]) -> None:
    ended = recon("debug")
    assert ended.code == 1
    assert "recon.yml: not OK, no recon.yml in " in ended.out
    assert "1 not OK." in ended.out


def test_a_ledger_cannot_be_rebuilt_from_nothing(recon: Callable[..., Ended], project: Path) -> None:
    ended = recon("ledger", "rebuild")
    assert (ended.code, ended.out) == (2, "")
    assert "no sink has a record of recon's writes to make it from; has the hook ever written?" in ended.err
