"""OpenLineage run events: their names, their facets, and that they are what OpenLineage's schema says."""

from __future__ import annotations

import json
import os
import types
import typing
from collections.abc import Iterator
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import attr
import jsonschema
import openlineage.client.event_v2 as event_v2
import openlineage.client.facet_v2 as facet_v2
import pytest
from openlineage.client.serde import Serde
from referencing import Registry, Resource

from recon.base.errors import ReconError
from recon.events.exporters.datasets import Dataset, of_database, of_files, of_sink, of_topic
from recon.events.exporters.openlineage import SCHEMA_URL, Lineage, OpenLineageExporter
from recon.project import Project
from tests.support import telemetry as events
from tests.support.http import Receiver, receiver

CORE = "https://openlineage.io/spec/2-0-2/OpenLineage.json"


@pytest.fixture
def server() -> Iterator[Receiver]:
    with receiver() as one:
        yield one


@pytest.fixture
def lineage(tmp_path) -> Lineage:
    return Lineage(events.project_with(tmp_path, "openlineage: {file: lineage.jsonl, namespace: prod}\n"))


def told(lineage: Lineage, *given: Any) -> list[dict[str, Any]]:
    return [json.loads(Serde.to_json(each)) for event in given for each in lineage.of(event)]


ALL = (
    events.audit_started(),
    events.audit_finished(),
    events.audit_failed(),
    events.batch_written(),
    events.batch_written(3, status="already_committed", sink_version=None, rows_written=None, run_id="r"),
    events.batch_failed(),
)


# -- the schema -------------------------------------------------------------------------------------------------------


def test_every_event_is_what_openlineage_generated_from_its_schema(lineage):
    """The classes of openlineage-python are generated from the schema: keys, types, and what is required."""
    of_facets = {
        "dataQualityAssertions": facet_v2.data_quality_assertions_dataset.DataQualityAssertionsDatasetFacet,
        "dataQualityMetrics": facet_v2.data_quality_metrics_dataset.DataQualityMetricsDatasetFacet,
        "outputStatistics": facet_v2.output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet,
        "version": facet_v2.dataset_version_dataset.DatasetVersionDatasetFacet,
        "errorMessage": facet_v2.error_message_run.ErrorMessageRunFacet,
        "processing_engine": facet_v2.processing_engine_run.ProcessingEngineRunFacet,
        "jobType": facet_v2.job_type_job.JobTypeJobFacet,
    }
    seen = set()
    for event in told(lineage, *ALL):
        conforms(event, event_v2.RunEvent, "event")
        for name, facet in facets(event):
            assert facet["_producer"] and facet["_schemaURL"]
            if not name.startswith("recon_"):
                seen.add(name)
                conforms(facet, of_facets[name], name)
    assert seen == set(of_facets)


def test_a_facet_that_is_wrong_is_noticed():
    wrong = {"assertions": [{"assertion": "unique"}], "_producer": "p", "_schemaURL": "s"}
    with pytest.raises(AssertionError, match="success"):
        conforms(wrong, facet_v2.data_quality_assertions_dataset.DataQualityAssertionsDatasetFacet, "facet")


def test_own_facets_are_what_their_schema_says(lineage):
    own = json.loads((resources.files("recon.events.exporters") / "schemas" / "openlineage_v1.json").read_text())
    base = {name: {"type": "object"} for name in ("RunFacet", "InputDatasetFacet")}
    registry = Registry().with_resources(
        [
            (SCHEMA_URL, Resource.from_contents(own)),
            (CORE, Resource.from_contents({**own, "$id": CORE, "$defs": base, "properties": {}})),
        ]
    )
    assert own["$id"] == SCHEMA_URL
    seen = set()
    for event in told(lineage, *ALL):
        for name, facet in facets(event):
            if name.startswith("recon_"):
                seen.add(name)
                reference = own["properties"][name]["$ref"]
                assert facet["_schemaURL"] == SCHEMA_URL + reference
                of_facet = {"$ref": SCHEMA_URL + reference, "unevaluatedProperties": False}
                bare = {key: value for key, value in facet.items() if not key.startswith("_")}
                jsonschema.Draft202012Validator(of_facet, registry=registry).validate(bare)
    assert seen == set(own["properties"])


@pytest.mark.skipif("OPENLINEAGE_SPEC" not in os.environ, reason="OPENLINEAGE_SPEC: the folder spec of OpenLineage")
def test_every_event_is_valid_by_openlineages_own_schema(lineage):
    spec = Path(os.environ["OPENLINEAGE_SPEC"])
    contents = [json.loads(file.read_text()) for file in (spec / "OpenLineage.json", *(spec / "facets").glob("*.json"))]
    registry = Registry().with_resources([(one["$id"], Resource.from_contents(one)) for one in contents])
    by_name = {name: one["$id"] for one in contents for name in one.get("properties", ())}
    checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
    whole = jsonschema.Draft202012Validator({"$ref": CORE}, registry=registry, format_checker=checker)
    for event in told(lineage, *ALL):
        whole.validate(event)
        for name, facet in facets(event):
            if not name.startswith("recon_"):
                schema = {"$ref": by_name[name]}
                jsonschema.Draft202012Validator(schema, registry=registry, format_checker=checker).validate(
                    {name: facet}
                )


def facets(event: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    holders = [event["run"]["facets"], event["job"]["facets"]]
    for dataset in (*event["inputs"], *event["outputs"]):
        holders += [dataset.get(key, {}) for key in ("facets", "inputFacets", "outputFacets")]
    for holder in holders:
        yield from holder.items()


def conforms(value: dict[str, Any], cls: type, where: str) -> None:
    """The value has what the generated class requires, nothing else, and of the types that it names."""
    attr.resolve_types(cls)
    known = {field.name: field for field in attr.fields(cls)}
    assert not value.keys() - known.keys(), f"{where} has unknown keys {value.keys() - known.keys()}"
    for name, field in known.items():
        required = field.default is attr.NOTHING or field.name in ("_producer", "_schemaURL", "producer", "schemaURL")
        assert name in value or not required, f"{where} has no {name}"
        if name in value:
            _fits(value[name], field.type, f"{where}.{name}")


def _fits(value: Any, of: Any, where: str) -> None:
    origin, arguments = typing.get_origin(of), typing.get_args(of)
    if origin in (typing.Union, types.UnionType):
        (of,) = (one for one in arguments if one is not type(None))
        _fits(value, of, where)
    elif origin is list:
        assert isinstance(value, list), where
        for n, each in enumerate(value):
            _fits(each, arguments[0], f"{where}[{n}]")
    elif origin is dict:
        assert isinstance(value, dict), where  # facets are looked at one by one
    elif of is event_v2.RunState:
        assert value in event_v2.RunState.__members__, where
    elif attr.has(of):
        conforms(value, of, where)
    elif of is not Any:
        assert isinstance(value, of), f"{where} is {value!r}, and must be {of}"


# -- audits -----------------------------------------------------------------------------------------------------------


def test_an_audit_is_a_run_of_each_pipeline_that_starts_and_completes(lineage):
    begun, done = told(lineage, events.audit_started()), told(lineage, events.audit_finished())
    assert [event["job"]["name"] for event in begun] == ["orders.audit", "payments.audit", "clicks.audit"]
    assert {event["eventType"] for event in begun} == {"START"}
    # An audit that finds a loss has done its work.
    assert {event["eventType"] for event in done} == {"COMPLETE"}
    assert [event["run"]["runId"] for event in begun] == [event["run"]["runId"] for event in done]
    assert len({event["run"]["runId"] for event in begun}) == 3
    assert {event["job"]["namespace"] for event in begun} == {"prod"}


def test_an_audit_that_ends_by_an_error_fails_its_runs(lineage):
    begun, failed = told(lineage, events.audit_started()), told(lineage, events.audit_failed())
    assert {event["eventType"] for event in failed} == {"FAIL"}
    assert [event["run"]["runId"] for event in begun] == [event["run"]["runId"] for event in failed]
    assert "LedgerError" in failed[0]["run"]["facets"]["errorMessage"]["message"]


def test_a_check_that_was_not_evaluated_is_no_assertion(lineage):
    finished = events.audit_finished()
    by_job = {event["job"]["name"]: event for event in told(lineage, finished)}
    for facts in finished.run.pipelines:
        results = [result for result in finished.run.results if result.pipeline == facts.name]
        event = by_job[f"{facts.name}.audit"]
        assertions = {
            (each["name"], each["success"], each.get("column"))
            for dataset in event["inputs"]
            for each in dataset["inputFacets"].get("dataQualityAssertions", {}).get("assertions", [])
        }
        evaluated = {"pass": True, "warn": False, "fail": False}
        assert assertions == {
            (one.name, evaluated[one.status], one.column) for one in results if one.status in evaluated
        }
        answer = event["run"]["facets"]["recon_answer"]
        assert answer["answer"] == facts.answer
        assert set(answer["notEvaluated"]) == {one.name for one in results if one.status not in evaluated}


def test_an_audit_examines_topics_and_tables_and_writes_none(lineage):
    event = {one["job"]["name"]: one for one in told(lineage, events.audit_finished())}["orders.audit"]
    topic, table = event["inputs"]
    assert (topic["namespace"], topic["name"]) == ("kafka://broker-1:9092", "orders")
    assert (table["namespace"], table["name"]) == ("s3://lake", "orders")
    assert event["outputs"] == []
    ranges = topic["inputFacets"]["recon_offsets"]["ranges"]
    assert [one["partition"] for one in ranges] == list(range(8))
    assert all(one["startOffset"] == 0 < one["endOffset"] for one in ranges)
    sink = events.audit_finished().run.pipelines[0].sinks[0]
    assert table["facets"]["dataQualityMetrics"]["rowCount"] in (sink.rows_written, sink.account.rows)


# -- micro-batches ----------------------------------------------------------------------------------------------------


def test_a_micro_batch_is_a_run_from_its_topics_into_the_sink(lineage):
    start, complete = told(lineage, events.batch_written())
    assert (start["eventType"], complete["eventType"]) == ("START", "COMPLETE")
    assert start["run"]["runId"] == complete["run"]["runId"]
    assert start["eventTime"] < complete["eventTime"]
    assert complete["job"]["name"] == "orders.orders"
    (topic,), (table,) = complete["inputs"], complete["outputs"]
    assert topic["inputFacets"]["recon_offsets"]["ranges"] == [
        {"partition": p, "startOffset": 0, "endOffset": 10, "topicId": "id-1"} for p in range(2)
    ]
    assert table["outputFacets"]["outputStatistics"]["rowCount"] == 20
    assert table["outputFacets"]["outputStatistics"]["size"] == 512
    assert table["facets"]["version"]["datasetVersion"] == "0"


def test_a_replayed_micro_batch_wrote_no_rows(lineage):
    _, complete = told(lineage, events.batch_written(status="already_committed"))
    assert "outputFacets" not in complete["outputs"][0] or not complete["outputs"][0]["outputFacets"]
    assert complete["run"]["facets"]["recon_batch"]["status"] == "already_committed"


def test_each_attempt_of_a_micro_batch_is_a_run_of_its_own(lineage):
    failed, written = told(lineage, events.batch_failed(1)), told(lineage, events.batch_written(1))
    assert [event["eventType"] for event in failed] == ["START", "FAIL"]
    assert failed[0]["run"]["runId"] == failed[1]["run"]["runId"] != written[0]["run"]["runId"]


# -- transports -------------------------------------------------------------------------------------------------------


def exporter(folder: Path, openlineage: str) -> OpenLineageExporter:
    return OpenLineageExporter(events.project_with(folder, f"openlineage: {openlineage}\n"))


def test_lines_are_appended_to_the_file(tmp_path):
    exporting = exporter(tmp_path, "{file: lineage/events.jsonl}")
    exporting.take([events.audit_started()])
    exporting.take([events.audit_finished()])
    lines = (tmp_path / "lineage" / "events.jsonl").read_text().splitlines()
    assert [json.loads(line)["eventType"] for line in lines] == ["START"] * 3 + ["COMPLETE"] * 3


def test_a_server_gets_events_with_the_key(tmp_path, server, monkeypatch):
    monkeypatch.setenv("LINEAGE_KEY", "s3cret-lineage")
    key = "\"{{ env_var('LINEAGE_KEY') }}\""
    exporter(tmp_path, f"{{url: '{server.url}/base', api_key: {key}}}").take([events.batch_written()])
    assert [request.path for request in server.requests] == ["/base/api/v1/lineage"] * 2
    assert {request.headers["Authorization"] for request in server.requests} == {"Bearer s3cret-lineage"}
    assert json.loads(server.requests[1].body)["eventType"] == "COMPLETE"


def test_micro_batches_can_be_left_out(tmp_path):
    assert "micro_batch.*" in exporter(tmp_path, "{file: a}").kinds
    assert exporter(tmp_path, "{file: a, micro_batches: false}").kinds == {"audit.*"}


@pytest.mark.parametrize("fault", ["refuses", "hangs"])
def test_a_server_that_does_not_take_events_is_said_without_its_secrets(tmp_path, server, monkeypatch, fault):
    monkeypatch.setenv("LINEAGE_KEY", "s3cret-lineage")
    server.status, server.hangs = (401, False) if fault == "refuses" else (200, True)
    key = "\"{{ env_var('LINEAGE_KEY') }}\""
    exporting = exporter(tmp_path, f"{{url: '{server.url}', timeout: 0.2, api_key: {key}}}")
    with pytest.raises(ReconError, match="did not take an OpenLineage event") as caught:
        exporting.take([events.batch_written()])
    assert "s3cret" not in str(caught.value)


def test_a_file_that_cannot_be_written_is_said(tmp_path):
    exporting = exporter(tmp_path, "{file: lineage}")
    (tmp_path / "lineage").mkdir()
    with pytest.raises(ReconError, match="did not take an OpenLineage event"):
        exporting.take([events.batch_written()])


# -- names of datasets ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        ("/srv/lake/a b?c#d/", ("file", "/srv/lake/a b?c#d")),
        ("file:/srv/lake", ("file", "/srv/lake")),
        ("file:///srv/lake", ("file", "/srv/lake")),
        ("s3a://bucket/a/b/", ("s3://bucket", "a/b")),
        ("s3://bucket", ("s3://bucket", "/")),
        ("gs://bucket/a", ("gs://bucket", "a")),
        ("abfss://c@acc.dfs.core.windows.net/a/b", ("abfss://c@acc.dfs.core.windows.net", "a/b")),
        ("wasb://c@acc.blob.core.windows.net/a", ("wasbs://c@acc.blob.core.windows.net", "a")),
        ("hdfs://namenode:8020/a", ("hdfs://namenode:8020", "/a")),
        ("dbfs:///mnt/a", ("dbfs://", "/mnt/a")),
    ],
)
def test_names_of_files(location, expected):
    assert of_files(location) == Dataset(*expected)


@pytest.mark.parametrize(
    ("url", "table", "expected"),
    [
        ("jdbc:postgresql://db:5433/shop", "orders", ("postgres://db:5433", "shop.public.orders")),
        ("jdbc:postgresql://db/shop", 'sales."orders"', ("postgres://db:5432", "shop.sales.orders")),
        ("jdbc:sqlserver://db;databaseName=shop", "[orders]", ("mssql://db:1433", "shop.dbo.orders")),
        ("jdbc:sqlserver://db;databaseName=shop", "other.sales.orders", ("mssql://db:1433", "other.sales.orders")),
        ("jdbc:mariadb://db/shop", "orders", ("mysql://db:3306", "shop.orders")),
        ("jdbc:mysql://db/shop", "`other`.`orders`", ("mysql://db:3306", "other.orders")),
    ],
)
def test_names_of_database_tables(url, table, expected):
    assert of_database(url, table) == Dataset(*expected)


def test_names_of_topics():
    assert of_topic({"bootstrap.servers": " SASL_SSL://b:9093 , c:9092"}, "t") == Dataset("kafka://b:9093", "t")
    assert of_topic({"bootstrap.servers": "b"}, "t") == Dataset("kafka://b:9092", "t")
    assert of_topic({}, "t") is None


def test_names_of_sinks_that_have_no_place(tmp_path):
    project: Project = events.project_with(tmp_path)
    pipeline = project.pipelines[0]
    from recon.project import CustomSink, KafkaSink

    custom = CustomSink(kind="custom", name="api")
    assert of_sink(project, pipeline, custom, "prod") == Dataset("prod", "orders.api")
    topic = KafkaSink(kind="kafka", name="out", target="clean")
    assert of_sink(project, pipeline, topic, "prod") == Dataset("kafka://broker-1:9092", "clean")
    elsewhere = replace_kafka(topic, {"bootstrap.servers": "other:9092"})
    assert of_sink(project, pipeline, elsewhere, "prod") == Dataset("kafka://other:9092", "clean")


def replace_kafka(sink: Any, kafka: dict[str, str]) -> Any:
    return sink.model_copy(update={"kafka": kafka})


def test_events_of_an_answer_that_changes_keep_the_schema(lineage):
    finished = events.audit_finished()
    accepted = tuple(replace(facts, accepted=("test data, by Ada",), since="3") for facts in finished.run.pipelines)
    for event in told(lineage, replace(finished, run=replace(finished.run, pipelines=accepted))):
        assert event["run"]["facets"]["recon_answer"]["accepted"] == ["test data, by Ada"]
