"""Personal values in rows of a table, and every output of an audit searched for them under each policy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from recon.cli import main
from tests.support.marks import long
from tests.unit.cli.test_secrets import _content as content

pytestmark = pytest.mark.usefixtures("interpreted")

# What a policy of `keys` shows of it: the key of the sink, and of a check of keys.
CUSTOMERS = ("customer-4711", "customer-4712", "customer-4713")
VALUES = ("ada@example.org", "bob@example.org", "Ada Lovelace", "Bob Babbage", "AB-123-45", "CD-678-90", "not-a-number")
NEVER = ("AB-123-45", "CD-678-90")  # the column passport

TEST = """\
{% test odd_names(model, column_name) %}
select * from {{ model }} where {{ column_name }} like '%a%'
{% endtest %}
"""


def config(policy: str) -> dict[str, Any]:
    tests = [
        {"unique": {"column_name": "customer"}},
        {"accepted_values": {"column_name": "email", "values": ["nobody@example.org"]}},
        {"expression_is_true": {"expression": "passport is null"}},
        {"expression_is_true": {"expression": "cast(age as int) > 0", "name": "age_is_a_number"}},
        {"odd_names": {"column_name": "name"}},
        {"compare": {"to": "ref('crm')", "key": "customer"}},
        {"schema_contract": {"columns": [{"name": "customer"}, {"name": "birthday"}], "mode": "open"}},
    ]
    return {
        "name": "shop",
        "ledger": "_recon",
        "spark": {"conf": {"spark.sql.ansi.enabled": "true"}},
        "tables": [{"name": "crm", "target": "crm"}],
        "defaults": {"samples": policy, "never_show": "passport", "store_failures": True},
        "pipelines": [
            {
                "name": "people",
                "checkpoint": "checkpoint",
                "source": {"topics": ["people"]},
                "sinks": [
                    {
                        "name": "lake",
                        "kind": "delta_merge",
                        "keys": ["customer"],
                        "target": "lake",
                        "data_tests": tests,
                    }
                ],
            }
        ],
    }


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    rows = {
        "customer": [CUSTOMERS[0], CUSTOMERS[0], CUSTOMERS[1]],
        "email": [VALUES[0], VALUES[0], VALUES[1]],
        "name": [VALUES[2], VALUES[2], VALUES[3]],
        "passport": [NEVER[0], NEVER[0], NEVER[1]],
        "age": ["36", "36", VALUES[6]],
    }
    write_deltalake("lake", pa.table(rows))
    write_deltalake("crm", pa.table({**rows, "name": ["Someone"] * 3, "customer": [*CUSTOMERS]}))
    quarantined = pa.table(
        {
            **{name: column[:1] for name, column in rows.items()},
            "_recon_id": ["1"],
            "_recon_reasons": [["odd_names"]],
            "_recon_epoch": pa.array([0], pa.int32()),
            "_recon_release": pa.array([None], pa.int64()),
            "_recon_quarantined_at": pa.array([0], pa.timestamp("us", "UTC")),
            "_batch_id": pa.array([3], pa.int64()),
        }
    )
    write_deltalake("_recon/quarantine/people/lake", quarantined)
    (tmp_path / "data_tests" / "generic").mkdir(parents=True)
    (tmp_path / "data_tests" / "generic" / "names.sql").write_text(TEST)
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    capsys.readouterr()
    with pytest.raises(SystemExit):
        main(arguments)
    captured = capsys.readouterr()
    return captured.out + captured.err


def outputs(folder: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """Everything that is printed or written, by what it is."""
    writing = [part for form in ("markdown", "junit", "csv", "parquet") for part in ("--write", form)]
    found = {
        "audit": run(capsys, "audit", "--select", "test_type:data", "--annotate", "github", *writing),
        "annotations": run(capsys, "report", "--format", "azure", "--output", "-"),
        "failures": run(capsys, "failures", "show", "--output", "json"),
        "quarantine": run(capsys, "quarantine", "show"),
        "compare": run(capsys, "compare", "lake", "crm", "--key", "customer"),
        "compare json": run(capsys, "compare", "ref('lake')", "crm", "--key", "customer", "--output", "json"),
    }
    files = [file for place in ("target", "_recon") for file in (folder / place).rglob("*") if file.is_file()]
    assert {"report.html", "run_results.json"} < {file.name for file in files}, found["audit"]
    return found | {str(file.relative_to(folder)): content(file) for file in files if "quarantine" not in file.parts}


def those_in(found: dict[str, str], values: tuple[str, ...]) -> dict[str, list[str]]:
    return {name: shown for name, text in found.items() if (shown := [one for one in values if one in text])}


@pytest.mark.parametrize("policy", ["hash", *long("none", "keys", "full")])
def test_no_output_shows_more_than_the_policy(
    spark: Any, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    from pyspark.logger import PySparkLogger

    # A session that recon starts logs no errors of queries; this one is the tests'.
    monkeypatch.setattr(PySparkLogger.getLogger("SQLQueryContextLogger"), "disabled", True)
    (folder / "recon.yml").write_text(json.dumps(config(policy)))
    found = outputs(folder, capsys)
    results = json.loads((folder / "target" / "run_results.json").read_text())["results"]
    failed = {r["unique_id"].split(".")[2]: r["adapter_response"] for r in results if r["status"] == "fail"}
    assert len(failed) == 6, "the policy changes no verdict"
    assert failed["schema_contract_lake_open"]["samples"], "these show columns, and no values"
    seen = {value for shown in those_in(found, VALUES).values() for value in shown}
    assert seen == ({*VALUES} - {*NEVER} if policy == "full" else set()), those_in(found, VALUES)
    assert not those_in(found, NEVER)
    customers = those_in(found, CUSTOMERS)
    if policy in ("none", "hash"):
        assert not customers
    else:
        assert {"audit", "failures", "quarantine", "compare", "compare json", "target/run_results.json"} <= set(
            customers
        )
        assert {"target/report.html"} <= set(customers)
    assert ("hash:" in found["failures"]) == (policy == "hash") == ("hash:" in found["target/report.html"])
    if policy == "none":
        stored = folder / "_recon" / "failures"
        rows = [r for file in stored.rglob("*.parquet") for r in pq.ParquetFile(file).read().to_pylist()]
        assert {row["check"] for row in rows} <= {"schema_contract"}


def test_erased_rows_are_never_released(spark: Any, folder: Path) -> None:
    from recon.base.storage import Storage
    from recon.project import load
    from recon.recovery.forget import Forgetting
    from recon.write.ledger import open_ledger
    from recon.write.quarantine.claims import Claims
    from recon.write.quarantine.table import open_quarantine

    (folder / "recon.yml").write_text(json.dumps(config("keys")))
    project = load(folder)
    pipeline, sink = project.find_sink("people")
    table = open_quarantine(project, pipeline, sink)
    claims = Claims(spark, table, open_ledger(project), "people", "lake", Storage(str(folder / "lake")))
    assert claims.waiting().count() == 1
    forgetting = Forgetting(project, f"customer = '{CUSTOMERS[0]}'")
    forgetting.erase(forgetting.found(), by="Carol", reason="ticket 12")
    assert claims.waiting().count() == 0 and table.rows(spark).count() == 1
