"""OpenLineage run events of audits and micro-batches, for a file or a server that takes them over HTTP.

An audit of a pipeline is a run of the job `<pipeline>.audit`. It writes no data, so the tables that it examined are its
inputs, where OpenLineage has the facets of data quality. A micro-batch is a run of the job `<pipeline>.<sink>`, from
topics into the sink.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from recon._version import __version__
from recon.base.errors import ConfigError, ReconError
from recon.base.requirements import how_to_install
from recon.events.exporters.datasets import Dataset, of_sink, of_source
from recon.events.exporters.reasons import reason
from recon.events.model import (
    AuditFailed,
    AuditFinished,
    AuditStarted,
    Event,
    MicroBatchFailed,
    MicroBatchWritten,
)
from recon.model import CheckResult, PipelineFacts, SinkFacts
from recon.model.offsets import OffsetSpan
from recon.project import Pipeline, Project
from recon.project.telemetry import OpenLineage

try:
    import attr
    from openlineage.client import OpenLineageClient
    from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
    from openlineage.client.facet_v2 import (
        InputDatasetFacet,
        RunFacet,
        data_quality_assertions_dataset,
        data_quality_metrics_dataset,
        dataset_version_dataset,
        error_message_run,
        job_type_job,
        output_statistics_output_dataset,
        processing_engine_run,
    )
    from openlineage.client.transport.file import FileConfig, FileTransport
    from openlineage.client.transport.http import ApiKeyTokenProvider, HttpConfig, HttpTransport
except ImportError as error:
    raise ConfigError(
        f"openlineage: needs openlineage-python, which is not installed; {how_to_install('openlineage')}"
    ) from error

PRODUCER = f"https://spark-recon.github.io/recon/{__version__}"
SCHEMA_URL = "https://spark-recon.github.io/schemas/openlineage/v1.json"
# Of a server that is busy, once; one that does not answer is given up after `timeout`.
_RETRY = {"total": 1, "backoff_factor": 0.3, "status_forcelist": [502, 503, 504], "allowed_methods": ["POST"]}


@attr.define
class AnswerRunFacet(RunFacet):
    """The answer of an audit; `notEvaluated` are the checks that say neither that a test passed nor that it failed."""

    answer: str
    because: str
    says: str
    invocationId: str
    accepted: list[str]
    notEvaluated: list[str]

    @staticmethod
    def _get_schema() -> str:
        return f"{SCHEMA_URL}#/$defs/AnswerRunFacet"


@attr.define
class BatchRunFacet(RunFacet):
    """Which micro-batch it was, and what became of its rows."""

    batchId: int
    epoch: int | None = None
    attempt: int | None = None
    status: str | None = None
    queryId: str | None = None
    rowsRead: int | None = None
    rowsFiltered: int | None = None
    rowsQuarantined: int | None = None

    @staticmethod
    def _get_schema() -> str:
        return f"{SCHEMA_URL}#/$defs/BatchRunFacet"


@attr.define
class OffsetsInputDatasetFacet(InputDatasetFacet):
    """Offsets of a topic, [startOffset, endOffset) of each partition."""

    ranges: list[dict[str, Any]]

    @staticmethod
    def _get_schema() -> str:
        return f"{SCHEMA_URL}#/$defs/OffsetsInputDatasetFacet"


class OpenLineageExporter:
    """Sends run events as they come."""

    name = "openlineage"
    every = None

    def __init__(self, project: Project) -> None:
        """Sends nothing.

        Raises:
            ConfigError: the folder of `file` cannot be made.
        """
        assert project.openlineage is not None
        self._config, self._mask = project.openlineage, project.mask
        batches = ("micro_batch.*",) if self._config.micro_batches else ()
        self.kinds = frozenset({"audit.*", *batches})
        self._lineage = Lineage(project)
        try:
            self._client = OpenLineageClient(transport=_transport(project, self._config))
        except ConfigError:
            raise
        except Exception as error:  # its own settings: openlineage.yml and OPENLINEAGE_*
            raise ConfigError(
                f"openlineage: openlineage-python cannot be set up: {self._mask(reason(error))}; see openlineage.yml "
                "and the variables OPENLINEAGE_*"
            ) from error

    def take(self, events: Sequence[Event]) -> None:
        """Sends the run events of these events.

        Raises:
            ReconError: the file or the server did not take one; those behind it are not sent.
        """
        for event in events:
            for run_event in self._lineage.of(event):
                try:
                    self._client.emit(run_event)
                except Exception as error:  # those of requests, urllib3 and the file's
                    where = self._config.url or self._config.file
                    raise ReconError(
                        self._mask(f"{where} did not take an OpenLineage event: {reason(error)}")
                    ) from error

    def close(self) -> None:
        """Nothing waits: `take` has sent everything."""
        self._client.close(0)


def _transport(project: Project, config: OpenLineage) -> FileTransport | HttpTransport:
    if config.url is None:
        file = project.local_path(config.file or "")
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                f"openlineage: the folder {file.parent} cannot be made ({error.strerror}); give another `file`"
            ) from error
        return FileTransport(FileConfig(log_file_path=str(file), append=True))
    http = HttpConfig(url=config.url.rstrip("/") + "/", endpoint=config.endpoint.lstrip("/"), timeout=config.timeout)
    http.retry = _RETRY
    if config.api_key:
        http.auth = ApiKeyTokenProvider({"apiKey": config.api_key})
    return HttpTransport(http)


class Lineage:
    """The run events of events; pure."""

    def __init__(self, project: Project) -> None:
        """Names the datasets of a project."""
        config = project.openlineage
        self.namespace = project.mask((config.namespace if config is not None else None) or project.name)
        self._project = project
        self._pipelines = {pipeline.name: pipeline for pipeline in project.pipelines}

    def of(self, event: Event) -> Iterator[RunEvent]:
        """The run events that an event makes."""
        if isinstance(event, AuditStarted):
            for name in event.pipelines:
                yield self._audit(RunState.START, event.at, event.invocation_id, name)
        elif isinstance(event, AuditFinished):
            for facts in event.run.pipelines:
                yield self._audited(event, facts)
        elif isinstance(event, AuditFailed):
            for name in event.pipelines:
                yield self._audit(
                    RunState.FAIL, event.at, event.invocation_id, name, facets=_failed(event.error, event.message)
                )
        elif isinstance(event, MicroBatchWritten):
            yield from self._written(event)
        elif isinstance(event, MicroBatchFailed):
            yield from self._batch_failed(event)

    # -- audits ------------------------------------------------------------------------------------

    def _audited(self, event: AuditFinished, facts: PipelineFacts) -> RunEvent:
        results = [result for result in event.run.results if result.pipeline == facts.name]
        answer = AnswerRunFacet(
            answer=facts.answer,
            because=facts.because,
            says=facts.says,
            invocationId=event.invocation_id,
            accepted=list(facts.accepted),
            notEvaluated=[result.name for result in results if _success(result) is None],
            producer=PRODUCER,
        )
        return self._audit(
            RunState.COMPLETE,
            event.run.generated_at,
            event.invocation_id,
            facts.name,
            facets={"recon_answer": answer},
            inputs=self._examined(facts, results),
        )

    def _audit(
        self,
        state: RunState,
        at: datetime,
        invocation_id: str,
        pipeline: str,
        *,
        facets: Mapping[str, RunFacet] | None = None,
        inputs: list[InputDataset] | None = None,
    ) -> RunEvent:
        return self._event(
            state, at, _run_id(invocation_id, pipeline), f"{pipeline}.audit", ("BATCH", "AUDIT"), facets, inputs
        )

    def _examined(self, facts: PipelineFacts, results: Sequence[CheckResult]) -> list[InputDataset]:
        """The topics and sinks that an audit examined, each with what it found."""
        pipeline = self._pipelines[facts.name]
        of_pipeline = [result for result in results if result.sink is None]
        inputs = []
        for topic in facts.topics:
            dataset = of_source(self._project, pipeline, topic)
            if dataset is not None:
                found: dict[str, Any] = _assertions(of_pipeline)
                ranges = _audited_ranges(facts.sinks, topic)
                inputs.append(InputDataset(*dataset, inputFacets=found | ({"recon_offsets": ranges} if ranges else {})))
        for sink in facts.sinks:
            own = [result for result in results if result.sink == sink.name or (not inputs and result.sink is None)]
            inputs.append(
                InputDataset(*self._sink(pipeline, sink.name), facets=_numbers(sink), inputFacets=_assertions(own))
            )
        return inputs

    # -- micro-batches -----------------------------------------------------------------------------

    def _written(self, event: MicroBatchWritten) -> Iterator[RunEvent]:
        entry = event.entry
        run_id = _run_id(
            *(str(part) for part in (entry.query_id, entry.sink, entry.epoch, entry.batch_id, entry.started_at))
        )
        job = (f"{entry.pipeline}.{entry.sink}", ("STREAMING", "MICRO_BATCH"))
        topics = dict.fromkeys(span.topic for span in entry.offsets)
        inputs = [
            InputDataset(*dataset, inputFacets={"recon_offsets": _ranges(entry.offsets, topic)})
            for topic in topics
            if (dataset := of_source(self._project, self._pipelines[entry.pipeline], topic)) is not None
        ]
        output = self._sink(self._pipelines[entry.pipeline], entry.sink)
        yield self._event(RunState.START, entry.started_at, run_id, *job, None, inputs, [OutputDataset(*output)])
        facets: dict[str, RunFacet] = {
            "recon_batch": BatchRunFacet(
                batchId=entry.batch_id,
                epoch=entry.epoch,
                attempt=entry.attempt,
                status=entry.status,
                queryId=entry.query_id,
                rowsRead=entry.rows_read,
                rowsFiltered=entry.rows_filtered,
                rowsQuarantined=entry.rows_quarantined,
                producer=PRODUCER,
            )
        }
        if entry.spark_version:
            facets["processing_engine"] = processing_engine_run.ProcessingEngineRunFacet(
                version=entry.spark_version, name="spark", openlineageAdapterVersion=__version__, producer=PRODUCER
            )
        written = OutputDataset(*output)
        if entry.rows_written is not None and entry.status != "already_committed":
            written.outputFacets = {
                "outputStatistics": output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
                    rowCount=entry.rows_written, size=event.bytes_written, producer=PRODUCER
                )
            }
        if entry.sink_version is not None:
            written.facets = {
                "version": dataset_version_dataset.DatasetVersionDatasetFacet(
                    datasetVersion=str(entry.sink_version), producer=PRODUCER
                )
            }
        end = max(entry.started_at, entry.committed_at)  # the driver's clock may have jumped
        yield self._event(RunState.COMPLETE, end, run_id, *job, facets, inputs, [written])

    def _batch_failed(self, event: MicroBatchFailed) -> Iterator[RunEvent]:
        run_id = _run_id(event.pipeline, event.sink, event.batch_id, event.started_at)
        pipeline = self._pipelines[event.pipeline]
        job = (f"{event.pipeline}.{event.sink}", ("STREAMING", "MICRO_BATCH"))
        inputs = [
            InputDataset(*dataset)
            for topic in pipeline.source.names
            if (dataset := of_source(self._project, pipeline, topic)) is not None
        ]
        outputs = [OutputDataset(*self._sink(pipeline, event.sink))]
        facets = {
            **_failed(event.error, event.message),
            "recon_batch": BatchRunFacet(event.batch_id, producer=PRODUCER),
        }
        yield self._event(RunState.START, event.started_at, run_id, *job, None, inputs, outputs)
        yield self._event(RunState.FAIL, event.at, run_id, *job, facets, inputs, outputs)

    def _event(
        self,
        state: RunState,
        at: datetime,
        run_id: str,
        job: str,
        kind: tuple[str, str],
        facets: Mapping[str, RunFacet] | None = None,
        inputs: list[InputDataset] | None = None,
        outputs: list[OutputDataset] | None = None,
    ) -> RunEvent:
        processing, job_type = kind
        of_job = job_type_job.JobTypeJobFacet(
            processingType=processing, integration="RECON", jobType=job_type, producer=PRODUCER
        )
        return RunEvent(
            eventType=state,
            eventTime=at.isoformat(),
            run=Run(runId=run_id, facets=dict(facets or {})),
            job=Job(namespace=self.namespace, name=job, facets={"jobType": of_job}),
            inputs=inputs or [],
            outputs=outputs or [],
            producer=PRODUCER,
        )

    def _sink(self, pipeline: Pipeline, name: str) -> Dataset:
        sink = next(sink for sink in pipeline.sinks if sink.name == name)
        return of_sink(self._project, pipeline, sink, self.namespace)


def _run_id(*parts: object) -> str:
    """The same id for START and the event that ends the run, in whichever process it is made."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, "\n".join(map(str, (SCHEMA_URL, *parts)))))


def _failed(error: str, message: str) -> dict[str, RunFacet]:
    said = error_message_run.ErrorMessageRunFacet(
        message=f"{error}: {message}", programmingLanguage="PYTHON", producer=PRODUCER
    )
    return {"errorMessage": said}


def _success(result: CheckResult) -> bool | None:
    """Whether a check's test holds; None where it was not evaluated, which is neither."""
    return {"pass": True, "warn": False, "fail": False}.get(result.status)


def _assertions(results: Iterable[CheckResult]) -> dict[str, Any]:
    """The facet of checks that were evaluated; nothing where none was."""
    assertions = [
        data_quality_assertions_dataset.Assertion(
            assertion=result.check,
            success=success,
            column=result.column,
            severity="warn" if result.status == "warn" else result.severity,
            name=result.name,
            description=result.message or None,
        )
        for result in results
        if (success := _success(result)) is not None
    ]
    if not assertions:
        return {}
    facet = data_quality_assertions_dataset.DataQualityAssertionsDatasetFacet(assertions, producer=PRODUCER)
    return {"dataQualityAssertions": facet}


def _numbers(sink: SinkFacts) -> dict[str, Any]:
    """The rows of the sink that the audit evaluated, where they are known."""
    account = sink.account
    rows = account.rows if account is not None and account.rows_read else sink.rows_written
    if rows is None:
        return {}
    facet = data_quality_metrics_dataset.DataQualityMetricsDatasetFacet(
        columnMetrics={}, rowCount=rows, producer=PRODUCER
    )
    return {"dataQualityMetrics": facet}


def _audited_ranges(sinks: Iterable[SinkFacts], topic: str) -> OffsetsInputDatasetFacet | None:
    """The offsets of a topic that the judged entries of the sinks speak of."""
    extents: dict[int, tuple[int, int]] = {}
    for facts in (partition for sink in sinks for partition in sink.partitions if partition.topic == topic):
        start, end = extents.get(facts.partition, (facts.start_offset, facts.end_offset))
        extents[facts.partition] = min(start, facts.start_offset), max(end, facts.end_offset)
    if not extents:
        return None
    return OffsetsInputDatasetFacet(
        [
            {"partition": partition, "startOffset": start, "endOffset": end}
            for partition, (start, end) in sorted(extents.items())
        ],
        producer=PRODUCER,
    )


def _ranges(offsets: Iterable[OffsetSpan], topic: str) -> OffsetsInputDatasetFacet:
    return OffsetsInputDatasetFacet(
        [
            {
                "partition": span.partition,
                "startOffset": span.start_offset,
                "endOffset": span.end_offset,
                **({} if span.topic_id is None else {"topicId": span.topic_id}),
            }
            for span in offsets
            if span.topic == topic
        ],
        producer=PRODUCER,
    )
