"""Fifty secrets in recon.yml, the environment and --vars, and every output searched for them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from recon.ledger import open_ledger
from recon.project import load
from recon.project.secrets import SECRET_NAME, secret_parts
from recon.reports.forms import FORMS
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
        ("url", "postgresql://me:abc2@h/db", {"abc2"}),
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
    assert set(secret_parts(name, value)) == parts


def test_names_that_are_no_credentials() -> None:
    assert [
        n
        for n in ("bootstrap.servers", "partition_key", "unique_key", "signature_algorithm", "sasl.mechanism", "key")
        if SECRET_NAME.search(n)
    ] == []
