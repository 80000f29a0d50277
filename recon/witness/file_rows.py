"""Looks single source records up in the Parquet files that manifests of a file sink name, without Spark."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from recon.base.errors import EvidenceError
from recon.base.storage import Storage
from recon.base.text import first_line
from recon.model.sample import FoundRow, Place
from recon.model.wire.columns import SOURCE_COLUMNS
from recon.model.wire.manifests import Manifest
from recon.witness import manifests
from recon.witness.delta_rows import one_of, placed


def find(target: Storage, written: Iterable[Manifest], places: Collection[Place]) -> dict[Place, list[FoundRow]]:
    """The rows of some micro-batches' files that carry these source offsets.

    Raises:
        EvidenceError: a file is gone or cannot be read, is not Parquet, or has no source columns.
    """
    found: dict[Place, list[FoundRow]] = {}
    formats: dict[str, str] = {}
    for manifest in written:
        if manifest.layout not in formats:
            formats[manifest.layout] = manifests.layout(target, manifest.layout).format
        if formats[manifest.layout] != "parquet":
            raise EvidenceError(f"files of format {formats[manifest.layout]} are read by Spark alone")
        for path in manifest.paths:
            for place, where in _in_file(target, path, places):
                found.setdefault(place, []).append(FoundRow(where, manifest.batch_id))
    return found


def _in_file(target: Storage, path: str, places: Collection[Place]) -> list[tuple[Place, str]]:
    import pyarrow.dataset as ds
    import pyarrow.parquet as pq

    try:
        with target.opened(path) as opened:
            file = pq.ParquetFile(opened)
            lacking = [name for name in SOURCE_COLUMNS if name not in file.schema_arrow.names]
            if lacking:
                where = f"{target.uri}/{path}"
                raise EvidenceError(f"{where} has no column {lacking[0]}, so its rows name no source record")
            table = file.read(columns=list(SOURCE_COLUMNS))
        return [(place, path) for place, _ in placed(ds.dataset(table).to_table(filter=one_of(places)))]
    except EvidenceError:
        raise
    except Exception as error:  # whatever a store or a damaged file raises
        raise EvidenceError(f"{target.uri}/{path} cannot be read: {first_line(error)}") from error
