"""What recon.yml asks for: extras, bad settings, secrets, and an audit whose endpoints are dead or hang."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from recon.audits.run import run_audit
from recon.base.errors import ConfigError
from recon.base.requirements import how_to_install
from recon.events.registry import consumers_of
from tests.support import telemetry as events
from tests.support.http import Receiver, receiver

KEYS = {
    "openlineage": ("openlineage: {file: lineage.jsonl}", "openlineage.client"),
    "prometheus": ("prometheus: {textfile: metrics}", "prometheus_client"),
    "otel": ("otel:", "opentelemetry"),
}


@pytest.fixture
def server() -> Iterator[Receiver]:
    with receiver() as one:
        yield one


@pytest.mark.parametrize("extra", KEYS)
def test_a_missing_extra_is_one_sentence_before_the_audit(tmp_path, monkeypatch, extra):
    key, module = KEYS[extra]
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delitem(sys.modules, f"recon.events.exporters.{extra}", raising=False)
    with pytest.raises(ConfigError, match=rf"^{extra}: needs .* {re.escape(how_to_install(extra))}$"):
        run_audit(events.project_with(tmp_path, key + "\n"), no_spark=True)


@pytest.mark.parametrize("extra", KEYS)
def test_a_key_of_recon_yml_makes_one_consumer(tmp_path, extra):
    (consumer,) = consumers_of(events.project_with(tmp_path, KEYS[extra][0] + "\n"))
    assert consumer.name == extra


def test_settings_of_openlineage_python_that_cannot_be_used_are_known_before_the_audit(tmp_path, monkeypatch):
    (tmp_path / "openlineage.yml").write_text("facets: {nosuch: 1}")
    monkeypatch.setenv("OPENLINEAGE_CONFIG", str(tmp_path / "openlineage.yml"))
    with pytest.raises(ConfigError, match=r"openlineage-python cannot be set up: .*see openlineage\.yml"):
        consumers_of(events.project_with(tmp_path, "openlineage: {file: a}\n"))


@pytest.mark.parametrize(
    ("yml", "message"),
    [
        ("openlineage: {}", "needs one of file, url, and has none"),
        ("openlineage: {file: a, url: 'http://b'}", "needs one of file, url, and has both"),
        ("openlineage: {url: marquez}", "must be a URL that begins with http:// or https://"),
        ("openlineage: {url: 'http://m', api_key: abcdef}", "api_key of openlineage is written into the file"),
        ("prometheus: {}", "needs 'textfile' (a folder), 'pushgateway' (a URL), or both"),
        ("prometheus: {pushgateway: gateway}", "must be a URL that begins with http:// or https://"),
        (
            "prometheus: {pushgateway: {url: 'http://p', password: abcdef}}",
            "password of prometheus.pushgateway is written into the file",
        ),
        ("otel: {headers: {Authorization: abcdef}}", "header Authorization of otel is written into the file"),
        ("otel: {timeout: 0}", "timeout"),
        ("otel: {endpiont: 'http://c'}", "endpoint"),
    ],
)
def test_settings_that_cannot_be_used_name_the_line_and_show_no_secret(tmp_path, yml, message):
    with pytest.raises(ConfigError) as caught:
        events.project_with(tmp_path, yml + "\n")
    assert message in str(caught.value)
    assert "recon.yml" in str(caught.value)
    assert "abcdef" not in str(caught.value)


def test_credentials_are_masked(tmp_path, monkeypatch):
    secrets = {"LINEAGE": "s3cret-lineage", "PUSH": "s3cret-push", "OTEL": "s3cret-otel"}
    for name, value in secrets.items():
        monkeypatch.setenv(f"{name}_VALUE", value)
    project = events.project_with(
        tmp_path,
        """
openlineage: {url: "http://user:s3cret-url@m", api_key: "{{ env_var('LINEAGE_VALUE') }}"}
prometheus: {pushgateway: {url: "http://p", user: u, password: "{{ env_var('PUSH_VALUE') }}"}}
otel: {headers: {x-scope: "{{ env_var('OTEL_VALUE') }}"}}
""",
    )
    for secret in (*secrets.values(), "s3cret-url"):
        assert secret not in project.mask(f"got {secret}")
        assert secret not in repr(project) or secret == "s3cret-url"


def test_an_audit_reports_to_all_of_them(tmp_path, server):
    project = events.project_with(
        tmp_path,
        f"""
openlineage: {{file: lineage.jsonl}}
prometheus: {{textfile: metrics, pushgateway: "{server.url}"}}
otel: {{endpoint: "{server.url}"}}
""",
        broker=False,
    )
    run = run_audit(project, no_spark=True)
    assert not [note for note in run.notes if "not delivered" in note or "did not take" in note]
    lines = [json.loads(line) for line in (tmp_path / "lineage.jsonl").read_text().splitlines()]
    assert [line["eventType"] for line in lines] == ["START"] * 3 + ["COMPLETE"] * 3
    assert {line["run"]["facets"].get("recon_answer", {}).get("invocationId") for line in lines[3:]} == {
        run.invocation_id
    }
    assert {file.name for file in (tmp_path / "metrics").iterdir()} == {
        "recon_audit~lake.prom",
        *(f"recon_audit~lake~{name}.prom" for name in events.PIPELINES),
    }
    assert {request.path for request in server.requests} > {"/v1/traces", "/v1/metrics"}


@pytest.mark.parametrize("fault", ["dead", "hangs"])
def test_endpoints_that_do_not_answer_change_nothing_but_the_notes(tmp_path, server, fault):
    url = server.url
    if fault == "dead":
        server.close()
    server.hangs = True
    project = events.project_with(
        tmp_path,
        f"""
openlineage: {{url: "{url}", timeout: 0.2}}
prometheus: {{pushgateway: {{url: "{url}", timeout: 0.2}}}}
otel: {{endpoint: "{url}", timeout: 0.2}}
""",
        broker=False,
    )
    quiet = run_audit(events.project_with(_folder(tmp_path / "quiet"), broker=False), no_spark=True)
    run = run_audit(project, no_spark=True)
    assert run.exit_code == quiet.exit_code
    assert [(p.name, p.answer) for p in run.pipelines] == [(p.name, p.answer) for p in quiet.pipelines]
    for name in KEYS:
        assert [note for note in run.notes if note.startswith(f"{name}: ")], name


def test_a_selection_of_checks_names_its_partial_pipelines(tmp_path):
    project = events.project_with(tmp_path, "prometheus: {textfile: metrics}\n", broker=False)
    run_audit(project, no_spark=True, select="pipeline:orders")
    files = {file.name for file in (tmp_path / "metrics").iterdir()}
    assert files == {"recon_audit~lake.prom", "recon_audit~lake~orders.prom"}
    run_audit(project, no_spark=True, select="ledger_integrity_payments")
    assert {file.name for file in (tmp_path / "metrics").iterdir()} == files


def _folder(path: Path) -> Path:
    path.mkdir()
    return path
