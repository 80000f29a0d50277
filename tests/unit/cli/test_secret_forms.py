"""Each way to write a credential into a text or into recon.yml, with credentials made by chance."""

from __future__ import annotations

import json
import logging
import string
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from recon.base.credentials import in_text, without_credentials
from recon.base.errors import ConfigError, LedgerError
from recon.base.text import first_line
from recon.project import load
from recon.project.secrets import mask, secret_parts
from recon.write.ledger import open_ledger
from tests.support.channels import Received, http  # noqa: F401
from tests.support.ledger_entries import entry
from tests.unit.cli.test_cli import Ended, recon  # noqa: F401

LETTERS = string.ascii_letters + string.digits
IN_QUERY = LETTERS + "/+=_-.~%@:,()"
# What a text shows, and the characters that a credential there may have beside letters.
TEXTS = {
    "sas": ("abfss://c@lake.dfs.core.windows.net/x?sv=2024-11-04&sig={}", IN_QUERY),
    "keys": ("s3://AKIAKEY:{}@bucket/x", LETTERS + "/+="),
    "presigned": ("https://b.s3.amazonaws.com/x?X-Amz-Signature={}&X-Amz-Expires=60", IN_QUERY),
    "code": ("https://f.azurewebsites.net/api/x?code={}&x=1", IN_QUERY),
    "bearer": ("it said: Authorization: Bearer {} is refused", LETTERS + "/+=_-.~"),
    "header in JSON": ('{{"Authorization": "Basic {}"}}', LETTERS + "/+="),
    "token of a user": ("git+https://{}@example.org/x", LETTERS + "_-."),
    "password with slashes": ("postgresql://u:{}@h/db", LETTERS + "/+"),
    "password with an @": ("postgresql://u:{}@h:5432/db", LETTERS + "@+"),
    "password with a question mark": ("jdbc:postgresql://u:{}@h/db", LETTERS + "?#;"),
    "encoded name": ("https://h/x?pass%77ord={}&x=1", IN_QUERY),
    "MySQL's addresses": ("jdbc:mysql://address=(host=h)(port=1)(user=u)(password={})/db", LETTERS + "/+=_-.~%@:"),
    "MySQL's keys": ("jdbc:mysql://(host=h,port=1,user=u,password={})/db", LETTERS + "/+=_-.~%@:"),
    "SQL Server": ("jdbc:sqlserver://h:1433;user=u;password={};encrypt=true", IN_QUERY + "&?"),
    "SQL Server's braces": ("jdbc:sqlserver://h:1433;user=u;password={{{}}};encrypt=true", LETTERS + ";&"),
    "Oracle": ("jdbc:oracle:oci:u/{}@h:1521/x", LETTERS + "/@"),
    "Teradata": ("jdbc:teradata://h/USER=u,PASSWORD={}", LETTERS + "/+_-.~"),
    "fragment": ("https://h/x#access_token={}&token_type=b", IN_QUERY),
    "semicolon in a query": ("https://h/x?token={}&x=1", IN_QUERY + ";?"),
}
# What recon.yml has as a setting; known from there, it is hidden wherever it is quoted.
SETTINGS = {
    "escaped quote": ('x.LoginModule required username="u" password="a\\"{}";', LETTERS + " ;,/@"),
    "libpq": ("host=h user=u password='{}' dbname=d", LETTERS + " ;,/@"),
    "ADO": ("Server=h;Database=d;Uid=u;Pwd={};Encrypt=True", LETTERS + " ,/@&"),
    "Azure": ("AccountName=a;AccountKey={};EndpointSuffix=core.windows.net", LETTERS + "/+="),
    "blanks": ("https://u:a {}@h/x", LETTERS + " <>`'\""),
    "header": ("Authorization: Token {}", LETTERS + "-_"),
}


def parts_shown(secret: str, text: str) -> list[str]:
    """The parts of five characters of a credential that a text shows."""
    parts = [secret[n : n + 5] for n in range(len(secret) - 4)]
    return [part for part in parts if part in text and sum(map(str.isalnum, part)) > 2]


def credentials(alphabet: str, number: int = 0) -> st.SearchStrategy[str]:
    # Begins and ends with letters, as what stands at an end may also be the sentence's.
    # The digit between two characters keeps words of messages out.
    text = st.text(alphabet, min_size=4, max_size=12)
    return text.map(lambda text: f"Zq{number:02}x{'7'.join(text)}9{number:02}Vw")


@pytest.mark.parametrize("kind", TEXTS)
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_a_text_shows_no_part_of_a_credential(kind: str, data: st.DataObject) -> None:
    form, alphabet = TEXTS[kind]
    secret = data.draw(credentials(alphabet))
    text = form.format(secret)
    assert parts_shown(secret, without_credentials(f"{text} cannot be read")) == []
    assert parts_shown(secret, mask(f"a library quotes {secret}", in_text(text))) == []


@pytest.mark.parametrize("kind", SETTINGS)
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_a_setting_s_credential_is_known(kind: str, data: st.DataObject) -> None:
    form, alphabet = SETTINGS[kind]
    secret = data.draw(credentials(alphabet))
    known = set(secret_parts("x", form.format(secret)))
    whole = form.format(secret)
    password = {"escaped quote": f'a"{secret}', "blanks": f"a {secret}"}.get(kind, secret)
    for quoted in (whole, json.dumps(whole), f"a library quotes {password}", repr(password), json.dumps(password)):
        assert parts_shown(secret, without_credentials(mask(quoted, known))) == []


def test_what_is_no_credential_stays() -> None:
    for text in (
        "hdfs://namenode:8020/user/a@b/x",
        "hdfs://nn1:8020,nn2:8020/user/a@b",
        "http://[::1]:8020/a@b",
        "s3://bucket/a:b@c",
        "s3://bucket/token=abc/date=2024-01-01/x.parquet",
        "https://wiki.example.com/recon?code={code}",
        "https://wiki.example.com/recon?code=GAP&key=orders",
        "https://example.com/countries?code=DE&key=12345",
        "postgresql://user@host/db",
        "jdbc:oracle:thin:@//h:1521/x",
        "jdbc:postgresql://h:5432/db?user=me@corp&ssl=true",
        "jdbc:sqlserver://h:1433;user=me@corp;encrypt=true",
        "jdbc:mysql://address=(host=h)(port=1)(user=u)/db",
        "the bearer of this, authorization = 'abc', Authorization: failed, authorization failed: no rights",
        "lake/token=abc/password=x",
        "password = 'd' and token = 'e'",
        "password=d",
        "file:/a/b:c@d",
        "git@example.org:shop/lake.git",
    ):
        assert without_credentials(text) == text
        assert "=" in text.partition("://")[0] or not set(secret_parts("", text)), "of a setting, assignments are known"


@pytest.mark.parametrize(
    "text",
    [
        "a-" * 200_000 + " x://h",
        "x://" + "{" * 200_000,
        "jdbc:x://h" + ";password={" * 20_000,
        "x://h?" + "&password=a" * 20_000,
        "authorization:" + " " * 200_000 + "x://",
        "password" + " " * 200_000 + "x",
        "x://" + "a:@" * 70_000,
        "jdbc:x://" + "(password=" * 20_000,
        'password="' * 20_000,
        'password="' + "\\" * 200_001,
        "a=;" * 70_000,
    ],
    ids=lambda text: text[:20],
)
def test_no_text_takes_long(text: str) -> None:
    began = time.thread_time()
    without_credentials(text)
    set(secret_parts("", text))
    assert time.thread_time() - began < 4, "not a figure: what is read twice for each character takes minutes"


def test_a_sentence_is_cut_between_words() -> None:
    """The begin of a credential is none that is known."""
    secret = "s3cr3t-0123456789"
    said = first_line(ValueError(f"{'x' * 390} {secret} is refused"))
    assert "s3cr3t" not in said and said == "x" * 390


@pytest.mark.parametrize("location", ["s3://AKIAKEY:s3cr3t@bucket/x", "s3a://AKIAKEY:a/s3cr3t z@bucket/x"])
def test_a_key_in_the_location_of_a_bucket_is_refused(location: str, tmp_path: Path) -> None:
    """Neither Spark nor delta-rs reads it there, and delta-rs may say that there is no table."""
    sink = {"name": "lake", "target": location}
    config = {
        "version": 2,
        "name": "x",
        "ledger": "l",
        "pipelines": [{"name": "p", "checkpoint": "c", "sinks": [sink]}],
    }
    (tmp_path / "recon.yml").write_text(json.dumps(config, indent=1))
    with pytest.raises(ConfigError) as caught:
        load(tmp_path)
    line = 1 + json.dumps(config, indent=1).split("\n").index(f'     "target": {json.dumps(location)}')
    said = "".join(traceback.format_exception(caught.value))
    assert f"recon.yml:{line}: target of sink 'lake'" in said and "AWS_SECRET_ACCESS_KEY" in said
    assert "env_var('…')" in said and "s3cr3t" not in said and "AKIAKEY" not in said


def test_a_server_s_password_with_a_slash_is_refused(tmp_path: Path) -> None:
    """Python's URL parser takes what is before the slash for a port, and its errors quote it."""
    gateway = {"pushgateway": "http://u:s3cr3t/x@127.0.0.1:9091"}
    table = {"name": "t", "target": "t", "data_tests": ["row_count"]}
    (tmp_path / "recon.yml").write_text(
        json.dumps({"version": 2, "name": "x", "prometheus": gateway, "tables": [table]})
    )
    with pytest.raises(ConfigError, match="write %2F for '/'") as caught:
        load(tmp_path)
    assert "s3cr3t" not in str(caught.value)


# --- recon.yml ------------------------------------------------------------------------------------------------

# Credentials as people have them: also with what YAML, JSON, HTML, URLs or Python write in another way.
WRITTEN = string.ascii_letters + "/+=_-.~!$*'\"\\<>&,äß "
SAFE = string.ascii_letters + "/+=_-.~!$"


def _config(written: Callable[[str], str], safe: Callable[[str], str]) -> dict[str, Any]:
    """A recon.yml with a credential in every text where one can stand; `written` and `safe` make them."""

    def setting(name: str) -> str:
        return "{{ env_var('" + written(name) + "') }}"

    files = f"swift://u:{safe('files')}@store/{{}}"
    sink = {
        "name": "lake",
        "target": f"wasbs://c@lake.blob.core.windows.net/orders?sv=1&sig={safe('target')}",
        "quarantine": {"target": f"ftp://u:{safe('quarantine')}@h/q"},
        "description": f"see https://wiki.example.com/?token={safe('description')}",
        "options": {"comment.token": safe("option")},
        "data_tests": [
            "source_rows",
            "delta_history",
            {"expression_is_true": {"arguments": {"expression": f"a <> 'https://x/?sig={safe('expression')}'"}}},
        ],
    }
    jdbc = {
        "name": "db",
        "kind": "jdbc_append",
        "target": "t",
        "connection": {
            "url": "jdbc:postgresql://127.0.0.1:1/d",
            "user": "u",
            "password": setting("connection"),
        },
    }
    return {
        "version": 2,
        "name": "shop",
        "ledger": "_recon",
        "kafka": {
            "bootstrap.servers": "127.0.0.1:1",
            "sasl.password": setting("sasl"),
            "sasl.jaas.config": f'x.LoginModule required username="u" password="a\\"{safe("jaas")}";',
        },
        "storage_options": {
            "AZURE_STORAGE_ACCOUNT_NAME": "lake",
            "AZURE_STORAGE_ACCOUNT_KEY": setting("account"),
            "dsn": f"Server=h;Pwd={safe('dsn')};x=1",
            "endpoint": f"https://{safe('endpoint').replace('/', '')}@127.0.0.1:1/",
            "AZURE_STORAGE_ENDPOINT": "http://127.0.0.1:1",
            "allow_http": "true",
            "max_retries": "0",
            "timeout": "1s",
        },
        "spark": {
            "conf": {
                "spark.hadoop.fs.azure.sas.x": setting("conf"),
                "spark.x.header": f"Authorization: Bearer {safe('bearer')}",
            }
        },
        "catalogs": {
            "main": {"uri": f"http://u:{safe('catalog').replace('/', '%2F')}@127.0.0.1:1", "token": setting("token")}
        },
        "openlineage": {"file": "target/lineage.jsonl", "namespace": f"https://u:{safe('namespace')}@lineage"},
        "prometheus": {
            "textfile": "target",
            "pushgateway": {
                "url": f"http://u:{safe('gateway').replace('/', '%2F')}@127.0.0.1:1",
                "password": setting("push"),
                "timeout": 1,
            },
        },
        "otel": None,
        "alerts": {
            "channels": [{"name": "oncall", "url": "{{ env_var('CHANNEL') }}"}],
            "report_url": f"https://reports.example.com/x?X-Amz-Signature={safe('report')}",
        },
        "reports": {"runbook_url": f"https://u:{safe('runbook').replace('<', '')}@wiki.example.com/{{code}}"},
        "hash_key": setting("hash"),
        "tables": [
            {"name": "files", "format": "parquet", "target": files.format("t")},
            {
                "name": "db",
                "format": "jdbc",
                "options": {"url": f"jdbc:mysql://h/d?pass%77ord={safe('url')}", "dbtable": "t"},
            },
            {
                "name": "db2",
                "format": "jdbc",
                "options": {"url": f"jdbc:mysql://address=(host=h)(password={safe('address')})/d", "dbtable": "t"},
            },
        ],
        "pipelines": [
            {
                "name": "orders",
                "checkpoint": f"swift://u:{safe('checkpoint')}@store/c",
                "owner": f"team, https://u:{safe('owner')}@chat.example.com/x",
                "meta": {"link": f"https://wiki.example.com/x?code=9{safe('meta')}"},
                "source": {"topics": ["orders"]},
                "sinks": [sink, jdbc],
            },
            {
                "name": "files",
                "checkpoint": "checkpoints/files",
                "source": {"files": f"https://{safe('source').replace('/', '')}@127.0.0.1:1/in"},
                "sinks": [{"name": "out", "target": "lake/out", "data_tests": ["source_rows"]}],
            },
        ],
    }


OUTPUTS = (
    ("debug",),
    ("list", "--output", "json"),
    ("audit", "--no-spark", "--debug", "--write", "markdown", "--write", "junit", "--write", "csv"),
    ("report", "--output", "-"),
    ("explain", "--pipeline", "orders", "--debug"),
    ("quarantine", "show", "--pipeline", "orders", "--debug"),
    ("ledger", "show", "--output", "json"),
    ("audit", "--select", "nosuch", "--debug"),
    ("compliance", "--from", "2026-11-20", "--to", "2026-11-21", "--format", "json", "--output", "-"),
)


@given(data=st.data())
@settings(
    max_examples=2,
    deadline=None,
    phases=(Phase.generate,),  # each example is a dozen commands
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    database=None,
)
def test_no_output_shows_a_credential_of_recon_yml(
    data: st.DataObject,
    tmp_path_factory: pytest.TempPathFactory,
    recon: Callable[..., Ended],  # noqa: F811
    http: Received,  # noqa: F811
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.clear()
    folder, planted = tmp_path_factory.mktemp("secrets"), {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("CHANNEL", f"{http.url}?+Authorization=Bearer%20s3cr3t0a1b2c3d")
        planted["channel"] = "s3cr3t0a1b2c3d"

        def written(name: str) -> str:
            planted[name] = data.draw(credentials(WRITTEN, len(planted)), label=name) + "QxVzQxVz"
            patch.setenv(f"VALUE_{name}", planted[name])
            return f"VALUE_{name}"

        def safe(name: str) -> str:
            planted[name] = data.draw(credentials(SAFE, len(planted)), label=name)
            return planted[name]

        (folder / "recon.yml").write_text(json.dumps(_config(written, safe)))
        project = load(folder)
        ledger = open_ledger(project)
        for pipeline in project.pipelines:
            for sink in pipeline.sinks:
                of = entry(0, pipeline=pipeline.name, sink=sink.name)
                ledger.append(replace(of, target=project.location(sink), sink_kind=sink.kind))
        posts = len(http.posts)
        printed = {" ".join(command): recon(*command) for command in OUTPUTS}
        told = {name: ended.out + ended.err for name, ended in printed.items()}
        told |= {"logs": caplog.text, "alerts": json.dumps(http.posts[posts:], default=str)}
        text = json.dumps(_config(lambda name: f"VALUE_{name}", planted.__getitem__))
        (folder / "recon.yml").write_text(text.replace('"version": 2', '"version": 2, "unknown": 1'))
        told["unknown key"] = recon("debug", "--debug").err
        for file in folder.rglob("*"):
            if file.is_file() and file.name != "recon.yml":
                told[str(file.relative_to(folder))] = _content(file)
    assert any(name.endswith(".prom") for name in told) and "target/lineage.jsonl" in told
    found = {name: [key for key, secret in planted.items() if parts_shown(secret, text)] for name, text in told.items()}
    assert {name: keys for name, keys in found.items() if keys} == {}


def _content(file: Path) -> str:
    if file.suffix == ".parquet":
        import pyarrow.parquet as pq

        return str(pq.ParquetFile(file).read().to_pylist())
    return file.read_bytes().decode(errors="replace")


def test_a_python_caller_s_traceback_shows_none(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What pyarrow says of a location quotes it."""
    from recon.base.storage import Storage

    location = "abfss://c@lake.dfs.core.windows.net/a b?sig=s3cr3t-of-a-sas"
    with pytest.raises(ConfigError) as caught:
        Storage(location).names()
    logging.getLogger("recon").warning("it failed", exc_info=caught.value)
    logging.getLogger("recon").warning("%s", LedgerError(f"{location} is not there"))
    assert "s3cr3t" not in "".join(traceback.format_exception(caught.value)) + caplog.text
