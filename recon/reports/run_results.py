"""Writes and reads run_results.json, the one artefact of a run; every other report can be rendered from it again.

Its shape is dbt's run_results v6, so that tools which read dbt's artefacts find status, failures, timing and
message where they expect them. What dbt has no key for is in each result's `adapter_response` (findings, samples,
evidence) and, for the whole run, under the top-level key `recon`.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from pathlib import Path
from typing import Any

from recon.base.errors import EvidenceError
from recon.base.storage import write_private
from recon.base.text import complaint
from recon.model import CheckResult, RunResult
from recon.reports.document import hash_of

VERSION = 1
_SCHEMAS = "https://spark-recon.github.io/schemas/run-results/"
SCHEMA_URL = f"{_SCHEMAS}v{VERSION}.json"
# Fields of a CheckResult: those that a result of dbt has, and ours, which are in its adapter_response.
_DBT_KEYS = ("status", "execution_time", "failures", "unique_id", "relation_name")
_OWN_KEYS = ("name", "check", "kind", "severity", "pipeline", "sink", "column", "tags", "samples", "evidence")


def write(run: RunResult, path: str | os.PathLike[str]) -> Path:
    """Writes the artefact in one step."""
    text = json.dumps(as_dict(run), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return write_text(text + "\n", path)


def read(path: str | os.PathLike[str]) -> RunResult:
    """The run that `write` wrote.

    Raises:
        EvidenceError: the file is missing, incomplete, edited, or not one of recon's.
    """
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise EvidenceError(f"{path} does not exist; run 'recon audit' first") from error
    except OSError as error:
        raise EvidenceError(f"{path} cannot be read: {error.strerror}; check what this user may read there") from error
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deep" if isinstance(error, RecursionError) else error
        raise EvidenceError(f"{path} cannot be read as JSON: {reason}; run 'recon audit' again") from error
    return from_dict(content, where=str(path))


def as_dict(run: RunResult) -> dict[str, Any]:
    """The artefact as plain JSON values, as its schema (`schemas/run_results_v1.json`) describes it.

    `sha256` is the hash of all the rest. It shows that the file was edited, as long as nobody computes it anew.
    """
    content: dict[str, Any] = {
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
            "pipelines": json_value(run.pipelines),
            "versions": json_value(run.versions),
            "notes": json_value(run.notes),
            "heads": run.heads,
            "runbook_url": run.runbook_url,
            "record": json_value(run.record),
            "past": json_value(run.past),
            "books": json_value(run.books),
        },
    }
    content["recon"]["sha256"] = hash_of(content)
    return content


def from_dict(content: Any, *, where: str = "run_results") -> RunResult:
    """The run that `as_dict` described; `where` names the file in errors.

    Raises:
        EvidenceError: the content has another schema, is incomplete, or was edited.
    """
    _require_this_version(content, where)
    _require_unedited(content, where)
    from pydantic import TypeAdapter

    try:
        metadata, own = content["metadata"], content["recon"]
        values = {key: metadata[key] for key in ("invocation_id", "recon_version", "generated_at")}
        values |= {key: own[key] for key in ("project", "period_from", "period_to", "pipelines", "versions", "notes")}
        values |= {
            key: own[key] for key in ("heads", "runbook_url", "record", "past", "books") if key in own
        }  # not in earlier versions
        values |= {"elapsed_time": content["elapsed_time"], "args": content["args"]}
        values["results"] = [_values(item) for item in content["results"]]
        return TypeAdapter(RunResult).validate_python(values)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
        problem = f"{error} is missing" if isinstance(error, KeyError) else complaint(error)
        raise EvidenceError(f"{where} is not a whole run of recon ({problem}); run 'recon audit' again") from error


def _require_this_version(content: Any, where: str) -> None:
    metadata = content.get("metadata") if isinstance(content, dict) else None
    schema = metadata.get("dbt_schema_version") if isinstance(metadata, dict) else None
    if schema == SCHEMA_URL:
        return
    newer = re.fullmatch(re.escape(_SCHEMAS) + r"v(\d{1,6})\.json", str(schema))
    if metadata is not None and newer is not None and int(newer[1]) > VERSION:
        raise EvidenceError(
            f"{where} was written by a newer version of recon ({metadata.get('recon_version')!r}): its format is "
            f"{int(newer[1])}, and this version reads {VERSION}; use that version, or run 'recon audit' with this one"
        )
    raise EvidenceError(
        f"{where} is not a run of recon: its schema is {schema!r} and this version reads {SCHEMA_URL!r}; "
        "run 'recon audit' with this version"
    )


def _require_unedited(content: Mapping[str, Any], where: str) -> None:
    """Refuses content that is another one than was written; earlier versions wrote no hash."""
    own = content.get("recon")
    if not isinstance(own, dict) or "sha256" not in own:
        return
    rest = {**content, "recon": {key: value for key, value in own.items() if key != "sha256"}}
    if own["sha256"] != hash_of(rest):
        raise EvidenceError(
            f"{where} was edited after it was written: its content has another SHA-256 than it says; run "
            "'recon audit' again, or `recon report --run ID`, which reads the stored results"
        )


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
    if hasattr(value, "__dataclass_fields__"):
        return {name: json_value(getattr(value, name)) for name in value.__dataclass_fields__}
    return str(value)


def write_text(text: str, path: str | os.PathLike[str]) -> Path:
    """Writes `text` to `path` in one step: a reader sees the old file or the new one, never half of it."""
    return write_private(Path(path), text.encode("utf-8", errors="backslashreplace"))


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
            **{key: json_value(getattr(result, key)) for key in _OWN_KEYS},
            "findings": [finding.as_dict() for finding in result.findings],
        },
        "message": result.message or None,
        "failures": result.failures,
        "unique_id": result.unique_id,
        "compiled": None,
        "compiled_code": None,
        "relation_name": result.relation_name,
    }


def _values(item: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a CheckResult, as JSON has them."""
    timing = item["timing"][0] if item["timing"] else {}
    return {
        **{key: item[key] for key in _DBT_KEYS},
        **{key: item["adapter_response"][key] for key in (*_OWN_KEYS, "findings")},
        "message": item["message"] or "",
        "started_at": timing.get("started_at"),
        "completed_at": timing.get("completed_at"),
    }


def _text(value: datetime | date | time | None) -> str | None:
    """ISO 8601, with `Z` for UTC."""
    return None if value is None else value.isoformat().replace("+00:00", "Z")
