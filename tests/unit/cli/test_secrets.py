"""Fifty secrets in recon.yml, the environment and --vars, and every output searched for them."""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from recon.base.credentials import SECRET_NAME, in_text, spellings, without_credentials
from recon.base.errors import ConfigError, LedgerError
from recon.project import load
from recon.project.load import without_yaml
from recon.project.secrets import secret_parts
from recon.reports.forms import FORMS
from recon.write.ledger import open_ledger
from tests.support.channels import Received, http  # noqa: F401
from tests.support.ledger_entries import entry
from tests.support.sample_run import sample_run
from tests.unit.cli.test_cli import Ended, recon  # noqa: F401

NAMES = {
    "kafka": (
        "sasl.password",
        "ssl.key.password",
        "ssl.key.pem",
        "ssl.keystore.password",
        "sasl.oauthbearer.client.secret",
        "sasl.jaas.config",
        "ssl.truststore.password",
        "schema.registry.basic.auth.token",
        "rest.api.key",
        "schema.registry.basic.auth.user.info",
    ),
    "storage_options": (
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AZURE_STORAGE_KEY",
        "AZURE_STORAGE_ACCOUNT_KEY",
        "AZURE_STORAGE_SAS_TOKEN",
        "sas_key",
        "AZURE_CLIENT_SECRET",
        "GOOGLE_SERVICE_ACCOUNT_PRIVATE_KEY",
        "connection_string",
        "api_key",
        "private_key",
        "access_key",
        "auth_key",
        "signing_key",
        "hmac_key",
        "subscription-key",
        "bearer",
    ),
    "conf": (
        "spark.hadoop.fs.s3a.secret.key",
        "spark.hadoop.fs.azure.account.key.lake.dfs.core.windows.net",
        "spark.hadoop.fs.azure.account.oauth2.client.secret",
        "spark.ssl.keyStorePassword",
        "spark.authenticate.secret",
        "spark.hadoop.fs.azure.sas.fixed.token",
    ),
    "vars": ("db_password", "apiKey", "sas", "client_secret", "auth_token", "passphrase", "pw", "db_pass", "pat"),
    "env": ("DB_PASSWORD", "PGPASSWORD", "LAKE_SAS", "WEBHOOK_TOKEN"),
}
PARTS = ("pa55word-of-a-url", "key-of-a-connection", "sig-of-a-sas-url", "one-line-of-a-key")


def secret(group: str, name: str) -> str:
    return f"S3CR3T-{group}-{name}".lower()


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A project that holds fifty secrets; yields them."""
    monkeypatch.chdir(tmp_path)
    kafka = {name: secret("kafka", name) for name in NAMES["kafka"]}
    kafka["ssl.key.pem"] = "-----BEGIN PRIVATE KEY-----\n" + PARTS[3] + "\n-----END PRIVATE KEY-----"
    options = {name: secret("storage", name) for name in NAMES["storage_options"]}
    options["endpoint"] = f"https://me:{PARTS[0]}@127.0.0.1:1/x?sig={PARTS[2]}&v=1"
    options["dsn"] = f"Endpoint=sb://x/;AccountKey={PARTS[1]};x=1"
    conf = {name: secret("conf", name) for name in NAMES["conf"]}
    for name in NAMES["env"]:
        monkeypatch.setenv(name, secret("env", name))
    config = {
        "version": 2,
        "name": "shop",
        "ledger": "_recon",
        "kafka": {"bootstrap.servers": "127.0.0.1:1", **kafka},
        "storage_options": options,
        "spark": {"conf": conf},
        "pipelines": [
            {
                "name": "orders",
                "checkpoint": "checkpoint/{{ env_var('DB_PASSWORD') }}",
                "source": {"topics": ["orders", "{{ var('db_password') }}"]},
                "sinks": [
                    {
                        "name": "lake",
                        "target": "lake/{{ env_var('LAKE_SAS') }}/{{ env_var('PGPASSWORD') }}",
                        "data_tests": [
                            "source_rows",
                            "delta_history",
                            {
                                "expression_is_true": {
                                    "arguments": {"expression": "a <> \"{{ env_var('WEBHOOK_TOKEN') }}\""}
                                }
                            },
                        ],
                    }
                ],
            }
        ],
    }
    (tmp_path / "recon.yml").write_text(json.dumps(config))
    known = [secret("kafka", name) for name in NAMES["kafka"] if name != "ssl.key.pem"]
    known += [
        secret(group, name) for group, of in (("storage", "storage_options"), ("conf", "conf")) for name in NAMES[of]
    ]
    known += [secret(group, name) for group in ("vars", "env") for name in NAMES[group]]
    yield [*known, *PARTS]


VARIABLES = json.dumps({name: secret("vars", name) for name in NAMES["vars"]} | {"region": "eu-central-1"})


def shown(planted: list[str], text: str) -> list[str]:
    return [one for one in planted if one in text]


def test_no_output_shows_one(planted: list[str], recon: Callable[..., Ended], tmp_path: Path) -> None:  # noqa: F811
    assert len(planted) == 49
    open_ledger(load(tmp_path, json.loads(VARIABLES))).append(entry(0, pipeline="orders", sink="lake"))
    commands = (
        ("audit", "--no-spark", "--annotate", "github"),
        ("list",),
        ("sinks",),
        ("explain", "--pipeline", "orders", "--debug"),
        ("offsets", "--pipeline", "orders", "--debug"),
        ("findings",),
        ("ledger", "show"),
        ("report", "--format", "csv", "--output", "-"),
        ("report", "--output", "-"),
        ("audit", "--select", "nosuch", "--debug"),
        ("debug",),
        *(
            (*command, "--from", "2026-11-20", "--to", "2026-11-21", "--debug")
            for command in (
                ("compliance",),
                ("compliance", "--format", "json", "--output", "-"),
                ("compliance", "sample", "--n", "3"),
                ("compliance", "pack"),
            )
        ),
        ("quarantine", "show", "--pipeline", "orders", "--debug"),
        ("ledger", "verify", "--debug"),
        ("advise", "--debug"),
        (
            "audit",
            "--no-spark",
            "--debug",
            *(part for form in ("markdown", "junit", "csv", "parquet") for part in ("--write", form)),
        ),
    )
    printed = {}
    for command in commands:
        ended = recon(*command, "--vars", VARIABLES)
        printed[" ".join(command)] = ended.out + ended.err
    assert {command: shown(planted, text) for command, text in printed.items() if shown(planted, text)} == {}
    assert "***" in "".join(printed.values()) and "eu-central-1" in (tmp_path / "target/run_results.json").read_text()
    files = [file for folder in ("target", "_recon") for file in (tmp_path / folder).rglob("*") if file.is_file()]
    assert len(files) > 5
    assert {str(file): found for file in files if (found := shown(planted, _content(file)))} == {}


def _content(file: Path) -> str:
    """A file's text; of Parquet, the values of its columns, which are compressed."""
    if file.suffix == ".parquet":
        import pyarrow.parquet as pq

        return str(pq.ParquetFile(file).read().to_pylist())
    return file.read_bytes().decode(errors="replace")


def test_a_whole_run_is_masked(planted: list[str], tmp_path: Path) -> None:
    """Findings, samples, evidence, notes and arguments too, wherever a witness put them."""
    project = load(tmp_path, json.loads(VARIABLES))
    text = " ".join(planted)
    run = sample_run()
    results = tuple(
        replace(
            r,
            message=text,
            findings=tuple(replace(f, message=text, topic=text) for f in r.findings),
            samples=({text: text, "n": 1},),
            evidence={"a": {"b": [text, 2]}},
        )
        for r in run.results
    )
    facts = tuple(replace(p, because=text, checkpoint=text) for p in run.pipelines)
    hidden = project.masked(replace(run, results=results, pipelines=facts, notes=(text,), args={"vars": {"x": text}}))
    from recon.reports import forms, html, run_results

    outputs = [json.dumps(run_results.as_dict(hidden)), html.render(hidden)]
    outputs += [forms.text(hidden, form) for form in FORMS if form != "parquet"]
    assert [shown(planted, output) for output in outputs] == [[]] * len(outputs)
    assert hidden.results[0].samples[0]["n"] == 1 and type(hidden) is type(run)
    assert project.masked(run) == run, "what holds no secret stays as it is"


def test_retry_asks_for_a_variable_that_was_a_secret(
    planted: list[str],
    recon: Callable[..., Ended],  # noqa: F811
) -> None:
    recon("audit", "--no-spark", "--vars", VARIABLES)
    ended = recon("retry", "--no-spark")
    assert (ended.code, shown(planted, ended.err)) == (2, [])
    assert "do not hold the value of variable db_password, since it is a credential" in ended.err


@pytest.mark.parametrize(
    ("name", "value", "parts"),
    [
        ("url", "jdbc:postgresql://h/db?user=me&password=abc1", {"abc1"}),
        ("url", "postgresql://me:abc2@h/db", {"abc2", "me:abc2"}),
        ("dsn", "AccountName=me;AccountKey=abc3==;x=1", {"abc3=="}),
        (
            "sasl.jaas.config",
            'x required username="me" password="abc4";',
            {"abc4", 'x required username="me" password="abc4";'},
        ),
        ("bootstrap.servers", "broker:9092", set()),
        ("key.serializer", "String", set()),
    ],
)
def test_the_parts_of_a_value(name: str, value: str, parts: set[str]) -> None:
    found = set(secret_parts(name, value))
    assert parts <= found <= {spelling for part in parts for spelling in spellings(part)}


def test_names_that_are_no_credentials() -> None:
    assert [
        n
        for n in ("bootstrap.servers", "partition_key", "unique_key", "signature_algorithm", "sasl.mechanism", "key")
        if SECRET_NAME.search(n)
    ] == []


# Locations of each kind, with a place for the secret.
LOCATIONS = {
    # Of schemes that pyarrow does not know: nothing is asked of a network.
    "sas": "wasbs://c@lake.blob.core.windows.net/{place}?sv=2024-11-04&sig={secret}",
    "sas, encoded": "adl://c@lake.azuredatalakestore.net/{place}?sv=2024-11-04&sig={secret}%2Bq%3D",
    "user info": "ftp://AKIAKEYOFALAKE:{secret}@bucket/{place}",
    "user info with slashes": "swift://AKIAKEYOFALAKE:a/b/{secret}@bucket/{place}",
    "code": "https://127.0.0.1:1/{place}?code={secret}",
    "presigned": "https://127.0.0.1:1/{place}?X-Amz-Credential=AKIAKEYOFALAKE&X-Amz-Signature={secret}&X-Amz-Expires=60",
    "token of a user": "https://{secret}@127.0.0.1:1/{place}",
    "short": "swift://K:q7@bucket/{place}?token={secret}",
}
DATABASES = {
    "user info": "jdbc:postgresql://u:{secret}@127.0.0.1:1/db",
    "parameter": "jdbc:sqlserver://127.0.0.1:1;databaseName=db;user=u;password={secret};encrypt=true",
    "braces": "jdbc:sqlserver://127.0.0.1:1;databaseName=db;user=u;password={{{secret};x}}",
    "query": "jdbc:mysql://127.0.0.1:1/db?user=u&password={secret}",
    "encoded name": "jdbc:mysql://127.0.0.1:1/db?user=u&pass%77ord={secret}",
    "address": "jdbc:mysql://address=(host=127.0.0.1)(port=1)(user=u)(password={secret})/db",
}
UNREACHED = {
    "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
    "AZURE_STORAGE_ENDPOINT": "http://127.0.0.1:1",
    "allow_http": "true",
    "max_retries": "0",
    "timeout": "1s",
    "AWS_ACCESS_KEY_ID": "AKIAKEYOFALAKE",
    "AWS_SECRET_ACCESS_KEY": "s3cr3t-option-key",
    "AWS_REGION": "eu-central-1",
    "AZURE_STORAGE_ACCOUNT_NAME": "lake",
    "AZURE_STORAGE_ACCOUNT_KEY": "czNjcjN0LW9wdGlvbi1henVyZQ==",
}
OF_OPTIONS = ("s3cr3t-option-key", "czNjcjN0LW9wdGlvbi1henVyZQ==", "s3cr3t-jaas", "s3cr3t-sasl", "s3cr3t-ssl")


@pytest.fixture(params=["written", "env_var"])
def located(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    http: Received,  # noqa: F811
) -> list[str]:
    """A project with a secret of each kind in each location, in the file or from the environment; the secrets."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CHANNEL", http.url)
    known: list[str] = [*OF_OPTIONS, ":q7@"]

    def at(form: str, place: str) -> str:
        known.append(f"s3cr3t{len(known)}{''.join(filter(str.isalpha, place))}")
        text = form.format(place=place, secret=known[-1])
        if request.param == "written":
            return text
        name = f"PLACE_{len(known)}"
        monkeypatch.setenv(name, text)
        return f"{{{{ env_var('{name}') }}}}"

    pipelines = []
    for n, form in enumerate(LOCATIONS.values()):
        sink = {"name": "lake", "target": at(form, "target"), "quarantine": {"target": at(form, "quarantine")}}
        source = {"delta": at(form, "table")}
        if "?" not in form:  # in which Hadoop reads a pattern
            source = {"files": at(form, "files")}
        sink["data_tests"] = ["delta_history", "source_rows", {"not_null": {"arguments": {"column_name": "a"}}}]
        checkpoint = f"checkpoints/{n}" if n % 3 else at(form, "checkpoint")
        pipelines.append({"name": f"p{n}", "checkpoint": checkpoint, "source": source, "sinks": [sink]})
    pipelines[1]["sinks"][0]["target"] = "lake/p1"
    kafka = {
        "bootstrap.servers": "127.0.0.1:1",
        "sasl.password": OF_OPTIONS[3],
        "ssl.key.password": OF_OPTIONS[4],
        "sasl.jaas.config": f'x.PlainLoginModule required username="u" password="{OF_OPTIONS[2]}";',
    }
    config = {
        "version": 2,
        "name": "shop",
        "ledger": "_recon",
        "kafka": kafka,
        "storage_options": UNREACHED,
        "openlineage": {"file": "target/lineage.jsonl"},
        "alerts": {"channels": [{"name": "oncall", "url": "{{ env_var('CHANNEL') }}"}]},
        "tables": [
            {"name": f"t{n}", "format": "jdbc", "options": {"url": at(form, "options"), "dbtable": "t"}}
            for n, form in enumerate(DATABASES.values())
        ]
        + [
            {"name": f"f{n}", "format": "parquet", "target": at(form, "files")}
            for n, form in enumerate(LOCATIONS.values())
        ],
        "pipelines": pipelines,
    }
    (tmp_path / "recon.yml").write_text(json.dumps(config))
    return known


COMMANDS = (
    ("debug",),
    ("list",),
    ("sinks",),
    ("audit", "--no-spark", "--annotate", "github"),
    (
        *("audit", "--no-spark", "--debug"),
        *(part for form in ("markdown", "junit", "csv") for part in ("--write", form)),
    ),
    ("report", "--output", "-"),
    *(
        (command, *more, "--pipeline", name, "--debug")
        for name in ("p0", "p2", "p4")
        for command, *more in (("explain",), ("offsets",), ("quarantine", "show"), ("ledger", "rebuild"))
    ),
    ("ledger", "show"),
    ("ledger", "show", "--output", "json"),
    ("ledger", "verify", "--debug"),
    ("compliance", "--from", "2026-11-20", "--to", "2026-11-21", "--format", "json", "--output", "-"),
    ("compliance", "--from", "2026-11-20", "--to", "2026-11-21", "--format", "md", "--output", "-"),
    ("findings",),
    ("export", "odcs", "--debug"),
    ("audit", "--select", "nosuch", "--debug"),
)


def test_no_output_shows_a_secret_of_a_location(
    located: list[str],
    recon: Callable[..., Ended],  # noqa: F811
    tmp_path: Path,
    http: Received,  # noqa: F811
    caplog: pytest.LogCaptureFixture,
) -> None:
    project = load(tmp_path)
    ledger = open_ledger(project)
    for pipeline in project.pipelines:  # as the hook enters a micro-batch
        (sink,) = pipeline.sinks
        ledger.append(
            replace(
                entry(0, pipeline=pipeline.name, sink=sink.name), target=project.location(sink), sink_kind=sink.kind
            )
        )
    printed = {" ".join(command): recon(*command) for command in COMMANDS}
    told = {name: ended.out + ended.err for name, ended in printed.items()}
    told |= {"logs": caplog.text, "alerts": json.dumps(http.posts)}
    assert {name: found for name, text in told.items() if (found := shown(located, text))} == {}
    files = [file for file in tmp_path.rglob("*") if file.is_file() and file.name != "recon.yml"]
    assert http.posts and "target/lineage.jsonl" in {str(file.relative_to(tmp_path)) for file in files}
    assert {str(file): found for file in files if (found := shown(located, _content(file)))} == {}
    everything = "".join([*told.values(), *(_content(file) for file in files)])
    for seen in ("wasbs://c@lake.blob.core.windows.net/target?sv=2024-11-04&sig=***", "ftp://***@bucket/target"):
        assert seen in everything, "what is no secret stays"


@pytest.mark.parametrize("form", LOCATIONS.values(), ids=LOCATIONS)
def test_an_error_of_recon_shows_no_secret_of_a_location(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever calls recon from Python, with or without recon.yml, reads and logs the same sentences."""
    place = form.format(place="x", secret="s3cr3t-of-mine")
    error = LedgerError(f"there is no ledger at {place}; nothing was recorded")
    logging.getLogger("recon").warning("%s is not reached: %s", place, error)
    for text in (str(error), "".join(traceback.format_exception(error)), caplog.text):
        assert "s3cr3t" not in text and "***" in text and "q7@" not in text
    assert "nothing was recorded" in str(error)
    project = without_yaml(
        "here", ledger="_recon", pipeline={"name": "p", "checkpoint": "c", "sinks": [{"name": "s", "target": place}]}
    )
    for alone in in_text(place):
        assert "s3cr3t" not in project.mask(f"{place}, of which a library quotes {alone}")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recon.yml").write_text(
        json.dumps({"version": 2, "name": "x", "ledger": "_recon", "target_path": place, "pipelines": [{"name": "p"}]})
    )
    with pytest.raises(ConfigError) as caught:
        load(tmp_path)
    assert "s3cr3t" not in str(caught.value)


@pytest.mark.parametrize("form", DATABASES.values(), ids=DATABASES)
def test_a_database_sinks_url_with_a_password_is_refused_without_it(form: str, tmp_path: Path) -> None:
    connection = {"url": form.format(secret="s3cr3t-of-mine"), "user": "u", "password": "{{ env_var('PW', 'x') }}"}
    sink = {"name": "db", "kind": "jdbc_append", "target": "t", "connection": connection}
    pipeline = {"name": "p", "checkpoint": "c", "sinks": [sink]}
    config = {"version": 2, "name": "x", "ledger": "_recon", "pipelines": [pipeline]}
    (tmp_path / "recon.yml").write_text(json.dumps(config))
    with pytest.raises(ConfigError) as caught:
        load(tmp_path)
    assert "s3cr3t" not in str(caught.value) and "env_var('…')" in str(caught.value)


def test_what_only_looks_like_a_credential_stays() -> None:
    for text in (
        "hdfs://namenode:8020/user/a@b/x",
        "abfss://container@account.dfs.core.windows.net/x",
        "s3://bucket/x?versionId=3",
        "kafka://broker-1:9092,broker-2:9092",
        "https://example.org/a:b@c?page=2",
        "token = 'abc' and password = 'd'",
        "jdbc:postgresql://h:5432/db?user=me&ssl=true",
    ):
        assert without_credentials(text) == text and not set(in_text(text))
