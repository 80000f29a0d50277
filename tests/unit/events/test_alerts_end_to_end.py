"""Alerts from an audit, from the hook and by `recon alerts test`, on real servers; secrets in no output."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recon.audits.run import run_audit
from recon.events import Emitter
from recon.events.alerts.alerts import ChannelAlerts
from recon.project import CustomSink, Project, load
from recon.project.alerts import Alerts, Channel
from recon.write.hook import ForeachBatch
from tests.support.channels import Mails, Received, http, smtp  # noqa: F401
from tests.support.events import Install, consumers  # noqa: F401
from tests.support.heads import grow
from tests.unit.audits.test_anchor import _project
from tests.unit.cli.test_cli import Ended, recon  # noqa: F401
from tests.unit.hook.test_writer import Rows, Sink, plan_three, sink  # noqa: F401

LONG = 60.0
PASSWORD = "tr0ub4dor"
Recon = Callable[..., Ended]


def alerts(*urls: str) -> Alerts:
    return Alerts(channels=tuple(Channel(name=f"channel{n}", url=url) for n, url in enumerate(urls)))


def _audited(project: Project) -> Any:
    return run_audit(project, select="test_name:ledger_integrity", no_spark=True)


def test_an_audit_tells_what_it_found_once(tmp_path: Path, http: Received) -> None:  # noqa: F811
    project = _project(tmp_path).model_copy(update={"alerts": alerts(http.url)})
    run = _audited(project)  # there is no ledger yet
    assert run.pipelines[0].answer != "complete"
    assert http.titles == [f"{project.name}, pipeline orders: 1 new"]
    assert "ledger_integrity" in http.posts[0]["message"]
    assert _audited(project).exit_code == run.exit_code
    assert len(http.posts) == 1
    grow(project, 3)
    assert _audited(project).exit_code == 0
    assert len(http.posts) == 1 or "OVER ledger_integrity" in http.posts[1]["message"]


def test_channels_that_fail_or_hang_change_nothing_but_a_note(
    tmp_path: Path,
    http: Received,  # noqa: F811
    smtp: Mails,  # noqa: F811
    consumers: Install,  # noqa: F811
) -> None:
    quiet = _audited(_project(tmp_path / "quiet"))
    nobody = f"json://recon:{PASSWORD}@127.0.0.1:9/alerts"
    http.go.clear()
    project = _project(tmp_path / "told").model_copy(update={"alerts": alerts(nobody, http.url, smtp.url)})
    consumers(*(ChannelAlerts(project, channel, within_s=1.0) for channel in project.alerts.channels))
    run = _audited(project)
    assert (run.exit_code, run.counts()) == (quiet.exit_code, quiet.counts())
    notes = [note for note in run.notes if note.startswith("alerts to ")]
    assert [note.partition(":")[0] for note in notes] == ["alerts to channel0", "alerts to channel1"]
    assert "did not take the message" in notes[0] and "within 1 s" in notes[1]
    assert PASSWORD not in json.dumps(run.notes)
    assert len(smtp.mails) == 1
    http.go.set()


def _hook(folder: Path, sink: Sink, told: Alerts) -> ForeachBatch:  # noqa: F811
    plan_three(folder / "cp")
    out = CustomSink(
        name="s", kind="custom", target="t", declares="exactly-once", write=sink.write, confirm=sink.confirm
    )
    project = Project.model_validate(
        {
            "name": "x",
            "ledger": "l",
            "pipelines": [{"name": "p", "checkpoint": "cp", "sinks": [{"name": "s", "target": "t"}]}],
            "project_dir": folder,
        }
    )
    pipeline = project.pipelines[0].model_copy(update={"sinks": (out,)})
    project = project.model_copy(update={"pipelines": (pipeline,), "alerts": told})
    return ForeachBatch(project, pipeline, out)


def test_micro_batches_are_written_while_a_channel_fails_and_another_hangs(
    tmp_path: Path,
    http: Received,  # noqa: F811
    sink: Sink,  # noqa: F811
) -> None:
    http.go.clear()
    hook = _hook(tmp_path, sink, alerts(http.url, f"json://recon:{PASSWORD}@127.0.0.1:9/alerts"))
    sink.confirms = None
    with pytest.raises(Exception, match="confirm"):
        hook.write(Rows(10), 0)
    assert http.asked.wait(LONG)  # the first channel hangs from now on
    sink.confirms = {"rows": 8}
    for n in range(3):
        hook.write(Rows(10), n)
    assert len(sink.writes) >= 3 and http.posts == []
    http.go.set()
    http.await_count(2)  # that it failed, and that it is over
    notes = hook.emitter.close(LONG)
    assert http.titles == ["x, pipeline p: 1 new", "x, pipeline p: 1 over"]
    assert [note.partition(":")[0] for note in notes] in ([], ["alerts to channel1"])
    assert PASSWORD not in str(notes)


def test_an_event_costs_the_hook_a_place_in_a_queue(tmp_path: Path, http: Received, sink: Sink) -> None:  # noqa: F811
    http.go.clear()
    hook = _hook(tmp_path, sink, alerts(http.url))
    taken: list[str] = []
    emitter: Emitter = hook.emitter
    put = emitter.emit_each

    def counted(make: Any, **options: Any) -> None:
        taken.append("put")
        put(make, **options)

    emitter.emit_each = counted  # type: ignore[method-assign]
    for n in range(3):
        hook.write(Rows(10), n)
    assert taken == ["put"] * 3 and not http.asked.is_set()  # nothing is wrong, so nothing is sent
    http.go.set()


SCRIPT = """\
import sys
from recon.events import Emitter, MicroBatchFailed
from recon.base.clock import utc_now
from recon.project import load

def work():
    emitter = Emitter(load(sys.argv[1]))
    failed = MicroBatchFailed(project="lake", pipeline="orders", sink="orders", batch_id=1, started_at=utc_now(),
                              error="SinkError", message="no space left")
    emitter.put(failed)
    raise SystemExit(3)

work()
"""


def test_a_process_that_ends_at_once_still_tells_why(lake: Path, http: Received) -> None:  # noqa: F811
    ended = subprocess.run([sys.executable, "-c", SCRIPT, str(lake)], cwd=Path(__file__).parents[3], timeout=120)
    assert ended.returncode == 3
    assert http.titles == ["lake, pipeline orders: 1 new"]


def test_the_hook_is_pickled_for_spark_connect(tmp_path: Path, sink: Sink) -> None:  # noqa: F811
    hook = _hook(tmp_path, sink, alerts("json://127.0.0.1:9/alerts"))
    assert pickle.loads(pickle.dumps(hook.emitter)).active


# -- recon alerts test ------------------------------------------------------------------------------------------------

YML = """\
name: lake
ledger: _recon
alerts:
  channels:
    - {name: oncall, url: "{{ env_var('ONCALL_URL') }}"}
    - {name: mail, url: "{{ env_var('MAIL_URL') }}"}
pipelines:
  - {name: orders, checkpoint: cp, sinks: [{name: orders, target: orders}]}
"""


@pytest.fixture
def lake(tmp_path: Path, http: Received, smtp: Mails, monkeypatch: pytest.MonkeyPatch) -> Path:  # noqa: F811
    (tmp_path / "recon.yml").write_text(YML)
    monkeypatch.setenv("ONCALL_URL", http.url)
    monkeypatch.setenv("MAIL_URL", smtp.url)
    return tmp_path


def test_every_channel_gets_a_test_message(lake: Path, recon: Recon, http: Received, smtp: Mails) -> None:  # noqa: F811
    ended = recon("alerts", "test")
    assert (ended.code, ended.out.splitlines()) == (0, ["oncall: sent", "mail: sent"])
    assert http.titles == ["lake: a test of alerts"] and len(smtp.mails) == 1
    assert recon("alerts", "test", "--channel", "mail").out.splitlines() == ["mail: sent"]
    assert (len(http.posts), len(smtp.mails)) == (1, 2)
    assert not (lake / "_recon").exists()


def test_a_channel_that_fails_is_named_and_the_others_get_theirs(
    lake: Path,
    recon: Recon,  # noqa: F811
    http: Received,  # noqa: F811
    smtp: Mails,  # noqa: F811
) -> None:
    http.status = 404
    ended = recon("alerts", "test")
    first, second = ended.out.splitlines()
    assert ended.code == 2 and second == "mail: sent" and len(smtp.mails) == 1
    assert first.startswith("oncall: not sent: channel oncall did not take the message") and "404" in first
    assert PASSWORD not in ended.out + ended.err


def test_what_cannot_be_tested(lake: Path, recon: Recon, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    ended = recon("alerts", "test", "--channel", "onkall")
    assert ended.code == 2 and "did you mean 'oncall'" in ended.err
    monkeypatch.setenv("ONCALL_URL", f"nosuch://recon:{PASSWORD}@localhost")
    ended = recon("alerts", "test")
    assert ended.code == 2 and "apprise" in ended.out and PASSWORD not in ended.out + ended.err
    ended = recon("audit", "--no-spark")
    assert ended.code == 2 and "apprise" in ended.err and PASSWORD not in ended.out + ended.err
    text = (lake / "recon.yml").read_text()
    (lake / "recon.yml").write_text(text[: text.index("alerts:")] + text[text.index("pipelines:") :])
    ended = recon("alerts", "test")
    assert ended.code == 2 and "no channel" in ended.err


@pytest.mark.parametrize("arguments", [("audit", "--no-spark"), ("alerts", "test"), ("audit", "--no-spark", "--debug")])
def test_no_url_and_no_password_is_in_any_output(
    lake: Path,
    recon: Recon,  # noqa: F811
    http: Received,  # noqa: F811
    arguments: tuple[str, ...],
) -> None:
    http.status = 500
    ended = recon(*arguments)
    written = [file.read_text(errors="replace") for file in lake.rglob("*") if file.is_file()]
    assert load(lake).alerts.channels[0].url == http.url
    for text in (ended.out, ended.err, *written):
        assert PASSWORD not in text and http.url not in text
