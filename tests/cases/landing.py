"""A folder of files that a stream reads, and the table that it writes."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from time import time

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from recon.model import FileFormat, RunResult
from recon.project import Source
from tests.cases.layers import Layers
from tests.support import fault_cases


@dataclass
class Landing(Layers):
    """One pipeline `p` from the folder `landing` to sink `s`, silver."""

    format: FileFormat = "json"

    @property
    def folder(self) -> Path:
        return self.path / "landing"

    @property
    def source(self) -> Source:
        return Source(files="landing", format=self.format, options=dict(self.options))

    def read(self) -> DataFrame:
        reader = self.spark.readStream.format(self.format).options(**self.options, **self.unsaid)
        schema = "value STRING" if self.format == "text" else "id LONG, name STRING"
        return reader.schema(schema).load(str(self.folder))

    def audit_as(self, folder: str) -> RunResult:
        """An audit by a recon.yml that spells the folder otherwise."""
        project = self.project
        (pipeline,) = project.pipelines
        source = pipeline.source.model_copy(update={"files": folder})
        other = project.model_copy(update={"pipelines": (pipeline.model_copy(update={"source": source}),)})
        return fault_cases.audit(other, spark=self.spark)

    def put(self, name: str, rows: int, *, first: int = 0, age: timedelta = timedelta()) -> Path:
        """A file with so many rows, written at once as a file of that age."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        hidden = path.with_name(f".{path.name}")
        self._write(hidden, range(first, first + rows))
        then = time() - age.total_seconds()
        os.utime(hidden, (then, then))
        hidden.rename(path)
        return path

    def _write(self, path: Path, ids: Iterable[int]) -> None:
        records = [{"id": n, "name": f"n{n}"} for n in ids]
        if self.format in ("parquet", "orc"):
            table = pa.table(
                {
                    "id": pa.array([r["id"] for r in records], pa.int64()),
                    "name": pa.array([r["name"] for r in records], pa.string()),
                }
            )
            (pq.write_table if self.format == "parquet" else orc.write_table)(table, str(path))
            return
        lines = [f"{r['id']},{r['name']}" if self.format == "csv" else json.dumps(r) for r in records]
        if self.format == "csv" and self.options.get("header") == "true":
            lines.insert(0, "id,name")
        text = "".join(f"{line}\n" for line in lines).encode()
        path.write_bytes(gzip.compress(text) if path.name.endswith(".gz") else text)
