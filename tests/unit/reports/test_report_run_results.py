"""run_results.json: dbt's shape, our evidence, and the way back."""

from __future__ import annotations

import dataclasses
import json
import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from importlib.resources import files
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recon.base.errors import EvidenceError
from recon.model import Code
from recon.reports import run_results
from tests.support import sample_run
from tests.support.messages import raises

SCHEMA = json.loads((files("recon.reports") / "schemas" / "run_results_v1.json").read_text())
NEWER = json.dumps(
    {"metadata": {"dbt_schema_version": run_results.SCHEMA_URL.replace("v1.", "v2."), "recon_version": "9.1"}}
)
RUNS = {
    "sample": sample_run.sample_run,
    "healthy": sample_run.healthy_run,
    "hostile": sample_run.hostile_run,
    "big": sample_run.big_run,
}


@pytest.mark.parametrize("name", RUNS)
def test_what_was_written_is_read_back_exactly(name, tmp_path):
    run = RUNS[name]()
    path = run_results.write(run, tmp_path / "target" / "run_results.json")
    assert run_results.read(path) == run
    assert [p.name for p in path.parent.iterdir()] == ["run_results.json"]


@pytest.mark.parametrize("name", RUNS)
def test_the_artefact_keeps_its_schema(name):
    document = json.loads(json.dumps(run_results.as_dict(RUNS[name]())))
    validator = jsonschema.Draft202012Validator(SCHEMA, format_checker=jsonschema.FormatChecker())
    assert list(validator.iter_errors(document)) == []
    assert document["metadata"]["dbt_schema_version"] == SCHEMA["$id"] == run_results.SCHEMA_URL


def test_the_schema_is_strict_enough_to_refuse():
    validator = jsonschema.Draft202012Validator(SCHEMA)
    document = run_results.as_dict(sample_run.sample_run())
    document["results"][0]["status"] = "ok"
    document["results"][8]["adapter_response"]["findings"][0]["code"] = "NONSENSE"
    del document["recon"]["period_to"]
    assert len(list(validator.iter_errors(document))) == 3


def test_the_schema_knows_every_code():
    assert SCHEMA["$defs"]["finding"]["properties"]["code"]["enum"] == [str(code) for code in Code]


def test_dbts_keys_hold_what_dbts_readers_expect():
    document = run_results.as_dict(sample_run.sample_run())
    assert {"metadata", "results", "elapsed_time", "args"} <= set(document)
    unique = next(r for r in document["results"] if r["unique_id"] == "test.lake.unique_payments_payment_id")
    assert set(unique) == {
        "status",
        "timing",
        "thread_id",
        "execution_time",
        "adapter_response",
        "message",
        "failures",
        "unique_id",
        "compiled",
        "compiled_code",
        "relation_name",
    }
    assert (unique["status"], unique["failures"]) == ("fail", 7)
    assert unique["timing"] == [
        {
            "name": "execute",
            "started_at": "2026-03-18T06:00:00Z",
            "completed_at": "2026-03-18T06:00:01.871000Z",
        }
    ]
    skipped = document["results"][-1]
    assert (skipped["status"], skipped["timing"], skipped["failures"]) == ("skipped", [], None)


def test_a_finding_has_its_keys():
    finding = run_results.as_dict(sample_run.sample_run())["results"][8]["adapter_response"]["findings"][0]
    assert list(finding) == [
        "code",
        "pipeline",
        "sink",
        "topic",
        "topic_id",
        "partition",
        "start_offset",
        "end_offset",
        "batch_id",
        "epoch",
        "message",
        "rows",
        "changed_by",
        "about",
        "undecidable",
    ]
    assert (finding["code"], finding["start_offset"], finding["end_offset"]) == ("GAP", 15_340, 15_962)


def test_values_json_does_not_know_become_text(tmp_path):
    run = sample_run.sample_run()
    sample = {
        "amount": Decimal("10.10"),
        "at": datetime(2026, 1, 2, 3, tzinfo=UTC),
        "day": date(2026, 1, 2),
        "raw": b"\x00\xff",
        "ratio": math.nan,
        "big": math.inf,
        "took": timedelta(seconds=90),
        "n": np.int64(7),
        "many": {3, 1},
        "half": 0.5,
        "none": None,
        "yes": True,
    }
    strange = dataclasses.replace(run.results[0], samples=(sample,))
    path = run_results.write(dataclasses.replace(run, results=(strange,)), tmp_path / "r.json")
    assert run_results.read(path).results[0].samples == (
        {
            "amount": "10.10",
            "at": "2026-01-02T03:00:00Z",
            "day": "2026-01-02",
            "raw": "0x00ff",
            "ratio": "nan",
            "big": "inf",
            "took": "90s",
            "n": 7,
            "many": [1, 3],
            "half": 0.5,
            "none": None,
            "yes": True,
        },
    )


plain_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(plain_json)
def test_what_json_knows_is_left_alone(value):
    assert run_results.json_value(value) == value


def test_text_that_utf8_cannot_hold_is_still_written(tmp_path):
    run = dataclasses.replace(sample_run.healthy_run(), notes=("torn \ud800 text",))
    path = run_results.write(run, tmp_path / "r.json")
    assert "torn" in run_results.read(path).notes[0]


def test_a_failing_write_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    path = run_results.write(sample_run.healthy_run(), tmp_path / "r.json")
    before = path.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(run_results.os, "fsync", full)
    with raises(OSError):
        run_results.write(sample_run.sample_run(), path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "does not exist; run 'recon audit' first"),
        ('{"metadata": {"dbt_sch', "cannot be read as JSON"),
        ("[]", "is not a run of recon"),
        ('{"metadata": {"dbt_schema_version": "https://example.org/v6.json"}}', "example.org/v6.json"),
        (f'{{"metadata": {{"dbt_schema_version": "{run_results.SCHEMA_URL}"}}}}', "not a whole run of recon"),
        (NEWER, "was written by a newer version of recon ('9.1')"),
    ],
)
def test_a_file_that_is_no_run_is_an_error_that_names_it(tmp_path, content, message):
    path = Path(tmp_path / "r.json")
    if content is not None:
        path.write_text(content)
    with raises(EvidenceError) as error:
        run_results.read(path)
    assert message in str(error.value)


def edit_a_status(document):
    document["results"][0]["status"] = "pass" if document["results"][0]["status"] != "pass" else "warn"


def take_a_pipeline_away(document):
    document["recon"]["pipelines"].pop()


def take_the_sinks_away(document):
    del document["recon"]["pipelines"][0]["sinks"]


@pytest.mark.parametrize("edit", [edit_a_status, take_a_pipeline_away, take_the_sinks_away])
def test_a_file_that_was_edited_is_an_error(tmp_path, edit):
    path = run_results.write(sample_run.sample_run(), tmp_path / "r.json")
    document = json.loads(path.read_text())
    edit(document)
    path.write_text(json.dumps(document))
    with raises(EvidenceError) as error:
        run_results.read(path)
    assert "was edited after it was written" in str(error.value)


@pytest.mark.parametrize("name", RUNS)
def test_another_layout_of_the_same_json_is_no_edit(name, tmp_path):
    path = run_results.write(RUNS[name](), tmp_path / "r.json")
    path.write_text(json.dumps(json.loads(path.read_text()), indent=2, sort_keys=True))
    assert run_results.read(path) == RUNS[name]()


def test_a_file_of_an_earlier_version_has_no_hash(tmp_path):
    document = run_results.as_dict(sample_run.sample_run())
    del document["recon"]["sha256"]
    assert run_results.from_dict(document) == sample_run.sample_run()
