"""Writes a sample of source records for an auditor: HTML, Markdown, CSV or JSON, with room for the auditor's marks."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from recon.model import plain
from recon.model.sample import Sample, SampledPath, SampledRecord, SampledWrite
from recon.reports import pages
from recon.reports.forms.findings import cell
from recon.reports.run_results import write_text
from recon.reports.words import one_line, when

Format = Literal["html", "md", "csv", "json"]

COLUMNS = (
    *("number", "pipeline", "source", "topic", "topic_id", "partition", "offset", "sink", "kind", "target"),
    *("epoch", "batch_id", "entry", "status", "version", "written_at", "written_by", "commit", "outcome", "why"),
    *("places", "entry_hash", "checked", "remarks"),
)


def rows(sample: Sample) -> Iterator[dict[str, Any]]:
    """A row per record, sink and write; `checked` and `remarks` are empty, for the auditor."""
    for sampled in sample.records:
        for path in sampled.paths:
            for write in path.writes or (None,):
                yield _row(sampled, path, write)


def _row(sampled: SampledRecord, path: SampledPath, write: SampledWrite | None) -> dict[str, Any]:
    record = sampled.record
    row: dict[str, Any] = dict.fromkeys(COLUMNS)
    row |= {"number": sampled.number, **record._asdict(), "sink": path.sink, "kind": path.kind, "target": path.target}
    row |= {"outcome": path.outcome, "why": path.said, "places": " ".join(path.places)}
    if write is not None:
        row |= {name: getattr(write, name) for name in ("epoch", "batch_id", "status", "version", "entry_hash")}
        row |= {"entry": write.sequence, "written_at": write.at or write.committed_at, "written_by": write.by}
        row["commit"] = write.said
    return row


def table(sample: Sample) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
    """Headers and rows for the console."""
    headers = ("#", "record", "sink", "micro-batch", "version", "written", "outcome", "why")
    body = []
    for sampled in sample.records:
        record = f"{sampled.record.topic}-{sampled.record.partition}@{sampled.record.offset}"
        for path in sampled.paths:
            last = path.writes[-1] if path.writes else None
            batch = "-" if last is None else f"{last.batch_id} (epoch {last.epoch})"
            version, at = (None, None) if last is None else (last.version, last.at or last.committed_at)
            written = "-" if at is None else when(at)
            texts = (record, f"{path.pipeline}.{path.sink}", batch, "-" if version is None else str(version), written)
            body.append((sampled.number, *map(one_line, (*texts, path.outcome, path.said))))
    return headers, body


def as_csv(sample: Sample) -> str:
    """CSV (RFC 4180) with a header. A text that a spreadsheet would take for a formula begins with an apostrophe."""
    lines = io.StringIO()
    writer = csv.writer(lines)
    writer.writerow(COLUMNS)
    for row in rows(sample):
        writer.writerow(cell(value) for value in row.values())
    return lines.getvalue()


def as_json(sample: Sample) -> str:
    """The sample with its population: all that is needed to make the choice again."""
    return json.dumps(plain(sample.as_dict()), indent=2, ensure_ascii=False) + "\n"


def as_html(sample: Sample) -> str:
    """One self-contained page, for the screen and for paper."""
    return pages.html("sample.html.j2", sample=sample, outcomes=sample.outcomes())


def as_markdown(sample: Sample) -> str:
    """The same as Markdown."""
    return pages.markdown("sample.md.j2", sample=sample, outcomes=sample.outcomes())


_FORMS: Mapping[str, Callable[[Sample], str]] = {
    "html": as_html,
    "md": as_markdown,
    "csv": as_csv,
    "json": as_json,
}


def text(sample: Sample, format: Format) -> str:
    """The sample in one of its forms."""
    return _FORMS[format](sample)


def write(sample: Sample, path: str | os.PathLike[str], format: Format = "html") -> Path:
    """Writes the sample in one of its forms, whole or not at all."""
    return write_text(text(sample, format), path)
