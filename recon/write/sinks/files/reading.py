"""Read the finished micro-batches of a file sink: only files that manifests name."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from functools import reduce
from typing import TYPE_CHECKING, Any, cast

from recon.base.errors import EvidenceError
from recon.base.storage import Storage
from recon.model.wire.columns import BATCH_ID, EPOCH
from recon.model.wire.manifests import FOLDER, Layout, Manifest
from recon.spark.columns import quoted
from recon.witness import manifests

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read_batches(
    spark: SparkSession,
    location: str,
    *,
    batches: Collection[int] | None = None,
    since: datetime | None = None,
    options: Mapping[str, str] | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> DataFrame:
    """The rows of a file sink's finished micro-batches, with `_batch_id` and `_recon_epoch`.

    Only files that manifests name are read, none of half-written folders or failed attempts. The
    DataFrame holds the micro-batches that were finished when it was made.

    Args:
        spark: the session that reads.
        location: the sink's target.
        batches: only these batch ids (of every epoch).
        since: only micro-batches finished from this instant on, with a time zone.
        options: further options of Spark's reader.
        storage_options: credentials for the manifests, as in recon.yml.

    Raises:
        EvidenceError: there are no manifests, or columns changed their type so that files cannot be read together.
    """
    target = Storage(location, dict(storage_options or {}))
    return open_batches(spark, target, _manifests(target, batches, since), options)


def _manifests(target: Storage, batches: Collection[int] | None, since: datetime | None) -> list[Manifest]:
    finished = manifests.read(target, since=since, batches=batches)
    if not finished and FOLDER not in target.names():
        raise EvidenceError(f"{target.uri} has no folder {FOLDER}: no file sink with `mode: replace` has written there")
    return finished


def batch_files(
    location: str,
    *,
    batches: Collection[int] | None = None,
    since: datetime | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> list[str]:
    """The files that manifests name, for readers other than Spark; arguments and errors as of `read_batches`."""
    finished = _manifests(Storage(location, dict(storage_options or {})), batches, since)
    return [f"{location.rstrip('/')}/{path}" for manifest in finished for path in manifest.paths]


def open_batches(
    spark: SparkSession, target: Storage, finished: Sequence[Manifest], options: Mapping[str, str] | None = None
) -> DataFrame:
    """The rows of these manifests' files; files of one layout are read together."""
    from pyspark.sql.types import IntegerType, LongType, StructType

    files_of: dict[str, list[str]] = {}
    root = target.uri.rstrip("/")
    for manifest in finished:
        files_of.setdefault(manifest.layout, []).extend(f"{root}/{path}" for path in manifest.paths)
    if not files_of:  # no micro-batch is finished, but the columns may be known
        files_of = {name: [] for name in manifests.layout_names(target)[:1]}
    layouts = {name: manifests.layout(target, name) for name in files_of}
    columns = _columns(target.uri, layouts.values())
    frames = []
    for name, files in files_of.items():
        layout = layouts[name]
        schema = StructType.fromJson(cast(dict[str, Any], layout.schema))
        mine = [column for column in columns if column in schema.names]
        schema = schema.add(EPOCH, IntegerType()).add(BATCH_ID, LongType())
        if not files:
            frames.append(spark.createDataFrame([], schema).select(*_quoted([*mine, BATCH_ID, EPOCH])))
            continue
        # A missing or torn file is an error here, whatever the session's settings are.
        strict = {"ignoreMissingFiles": "false", "ignoreCorruptFiles": "false"}
        reader = spark.read.format(layout.format).options(**{**layout.options, **(options or {}), **strict})
        rows = reader.option("basePath", root).schema(schema).load(files)
        frames.append(rows.select(*_quoted([*mine, BATCH_ID, EPOCH])))
    if not frames:
        return spark.createDataFrame([], f"{BATCH_ID} long, {EPOCH} int")
    whole = reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), frames)
    return whole.select(*_quoted([*columns, BATCH_ID, EPOCH]))


def _quoted(columns: Iterable[str]) -> list[str]:
    return [quoted(column) for column in columns]


def _columns(location: str, layouts: Iterable[Layout]) -> list[str]:
    """The columns of all layouts, each of one type."""
    from pyspark.sql.types import DataType, StructType

    types: dict[str, DataType] = {}
    for layout in layouts:
        for column in StructType.fromJson(cast(dict[str, Any], layout.schema)).fields:
            known = types.setdefault(column.name, column.dataType)
            if known != column.dataType:
                raise EvidenceError(
                    f"column {column.name} of {location} is {known.simpleString()} in some micro-batches and "
                    f"{column.dataType.simpleString()} in others, so they cannot be read together; name the "
                    "micro-batches of one type with batches= or since="
                )
    return list(types)
