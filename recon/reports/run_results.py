"""Writes and reads run_results.json, the one artefact of a run; every other report can be rendered from it again.

Its shape is dbt's run_results v6, so that tools which read dbt's artefacts find status, failures, timing and
message where they expect them. What dbt has no key for is in each result's `adapter_response` (findings, samples,
evidence) and, for the whole run, under the top-level key `recon`.
"""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from pathlib import Path
from typing import Any

from recon.errors import EvidenceError
from recon.model import CheckResult, Code, Finding, PipelineFacts, RunResult

SCHEMA_URL = "https://spark-recon.github.io/schemas/run-results/v1.json"


def write(run: RunResult, path: str | os.PathLike[str]) -> Path:
    """Writes the artefact in one step."""
    text = json.dumps(as_dict(run), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return write_text(text + "\n", path)


def read(path: str | os.PathLike[str]) -> RunResult:
    """The run that `write` wrote.

    Raises:
        EvidenceError: the file is missing, incomplete, or not one of recon's.
    """
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise EvidenceError(f"{path} does not exist; run 'recon audit' first") from error
    except (OSError, ValueError) as error:
        raise EvidenceError(f"{path} cannot be read as JSON: {error}; run 'recon audit' again") from error
    return from_dict(content, where=str(path))


def as_dict(run: RunResult) -> dict[str, Any]:
    """The artefact as plain JSON values, as its schema (`schemas/run_results_v1.json`) describes it."""
    return {
        "metadata": {
            "dbt_schema_version": SCHEMA_URL,
            "dbt_version": None,
            "generated_at": _text(run.generated_at),
            "invocation_id": run.invocation_id,
            "env": {},
            "recon_version": run.recon_version,
        },
        "results": [_result(result) for result in run.results],
        "elapsed_time": run.elapsed_time,
        "args": json_value(run.args),
        "recon": {
            "project": run.project,
            "period_from": _text(run.period_from),
            "period_to": _text(run.period_to),
            "pipelines": [json_value(_fields(pipeline)) for pipeline in run.pipelines],
            "versions": dict(run.versions),
            "notes": list(run.notes),
        },
    }


def from_dict(content: Any, *, where: str = "run_results") -> RunResult:
    """The run that `as_dict` described; `where` names the file in errors.

    Raises:
        EvidenceError: the content has another schema or is incomplete.
    """
    schema = content.get("metadata", {}).get("dbt_schema_version") if isinstance(content, dict) else None
    if schema != SCHEMA_URL:
        raise EvidenceError(
            f"{where} is not a run of recon: its schema is {schema!r} and this version reads {SCHEMA_URL!r}; "
            "run 'recon audit' with this version"
        )
    from pydantic import TypeAdapter

    try:
        metadata, ours = content["metadata"], content["recon"]
        return RunResult(
            invocation_id=metadata["invocation_id"],
            project=ours["project"],
            recon_version=metadata["recon_version"],
            generated_at=datetime.fromisoformat(metadata["generated_at"]),
            period_from=_time(ours["period_from"]),
            period_to=datetime.fromisoformat(ours["period_to"]),
            elapsed_time=content["elapsed_time"],
            results=tuple(_read_result(item) for item in content["results"]),
            pipelines=TypeAdapter(tuple[PipelineFacts, ...]).validate_python(ours["pipelines"]),
            args=content["args"],
            versions=ours["versions"],
            notes=tuple(ours["notes"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise EvidenceError(
            f"{where} is not a whole run of recon ({type(error).__name__}: {error}); run 'recon audit' again"
        ) from error


def json_value(value: Any) -> Any:
    r"""A value as JSON can hold it; types that JSON does not have (Decimal, datetime, bytes, NaN) become text.

    >>> json_value({"amount": __import__("decimal").Decimal("1.10"), "at": date(2026, 1, 2), "raw": b"a\xff"})
    {'amount': '1.10', 'at': '2026-01-02', 'raw': '0x61ff'}
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str(value)  # also a StrEnum, as the plain text it comes back as
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if isinstance(value, (datetime, date, time)):
        return _text(value)
    if isinstance(value, timedelta):
        return f"{value.total_seconds():g}s"
    if isinstance(value, (bytes, bytearray, memoryview)):
        return "0x" + bytes(value).hex()
    if isinstance(value, Mapping):
        return {str(k): json_value(v) for k, v in value.items()}
    if hasattr(value, "dtype") and hasattr(value, "tolist"):  # NumPy's scalars and arrays
        return json_value(value.tolist())
    if hasattr(value, "asDict"):  # a Spark Row
        return json_value(value.asDict(recursive=False))
    if isinstance(value, (list, tuple)):
        return [json_value(v) for v in value]
    if isinstance(value, (set, frozenset)):
        return sorted((json_value(v) for v in value), key=str)
    return str(value)


def write_text(text: str, path: str | os.PathLike[str]) -> Path:
    """Writes `text` to `path` in one step: a reader sees the old file or the new one, never half of it."""
    return write_bytes(text.encode("utf-8", errors="backslashreplace"), path)


def write_bytes(content: bytes, path: str | os.PathLike[str]) -> Path:
    """Like `write_text`, for bytes; makes the folder when it is missing."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        # mkstemp makes files readable by their owner only; a report gets the permissions of any other new file.
        umask = os.umask(0)
        os.umask(umask)
        Path(temporary).chmod(0o666 & ~umask)
        Path(temporary).replace(target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return target


def _result(result: CheckResult) -> dict[str, Any]:
    timing = []
    if result.started_at is not None or result.completed_at is not None:
        # dbt also has "compile"; a check has no separate compile step.
        timing.append(
            {
                "name": "execute",
                "started_at": _text(result.started_at),
                "completed_at": _text(result.completed_at),
            }
        )
    return {
        "status": result.status,
        "timing": timing,
        "thread_id": "MainThread",
        "execution_time": result.execution_time,
        "adapter_response": {
            "name": result.name,
            "check": result.check,
            "kind": result.kind,
            "severity": result.severity,
            "pipeline": result.pipeline,
            "sink": result.sink,
            "column": result.column,
            "tags": list(result.tags),
            "findings": [finding.as_dict() for finding in result.findings],
            "samples": [json_value(sample) for sample in result.samples],
            "evidence": json_value(result.evidence),
        },
        "message": result.message or None,
        "failures": result.failures,
        "unique_id": result.unique_id,
        "compiled": None,
        "compiled_code": None,
        "relation_name": result.relation_name,
    }


def _read_result(item: Mapping[str, Any]) -> CheckResult:
    ours = item["adapter_response"]
    timing = item["timing"][0] if item["timing"] else {}
    return CheckResult(
        unique_id=item["unique_id"],
        name=ours["name"],
        check=ours["check"],
        kind=ours["kind"],
        status=item["status"],
        failures=item["failures"],
        message=item["message"] or "",
        severity=ours["severity"],
        pipeline=ours["pipeline"],
        sink=ours["sink"],
        column=ours["column"],
        tags=tuple(ours["tags"]),
        findings=tuple(Finding(**{**f, "code": Code(f["code"])}) for f in ours["findings"]),
        samples=tuple(ours["samples"]),
        evidence=ours["evidence"],
        relation_name=item["relation_name"],
        started_at=_time(timing.get("started_at")),
        completed_at=_time(timing.get("completed_at")),
        execution_time=item["execution_time"],
    )


def _fields(value: Any) -> dict[str, Any]:
    """One level of a dataclass, and the dataclasses in its tuples; cheaper than `asdict`'s deep copies."""
    fields: dict[str, Any] = {}
    for name in value.__dataclass_fields__:
        item = getattr(value, name)
        if isinstance(item, tuple):
            item = [_fields(i) if hasattr(i, "__dataclass_fields__") else i for i in item]
        fields[name] = item
    return fields


def _text(value: datetime | date | time | None) -> str | None:
    """ISO 8601, with `Z` for UTC."""
    return None if value is None else value.isoformat().replace("+00:00", "Z")


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
