"""Write each micro-batch into a folder of its own, and its manifest last.

`<target>/_recon_epoch=<e>/_batch_id=<n>/_recon_attempt=<a>/` holds a micro-batch; batch ids start over in a new epoch,
hence both, and each attempt has a folder of its own. A folder without a manifest is no part of the data: it is half
written, and removed after the replay. The manifest names the files with their rows, so that files which a dead writer's
late task adds to the folder are not read either.

Before the manifest, its content is made as the file of the write's number, which must not exist: that is the commit. Of
two drivers that have read the same entries one makes it, and the other's files stay without a manifest.
"""

from __future__ import annotations

import gzip
import json
import logging
import re
import secrets
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from recon.base.clock import utc_now
from recon.base.errors import EvidenceError, RefusedError, SinkError
from recon.base.storage import Storage
from recon.model import REPAIRS, ReconStamp, RecordCount, SinkChanges, SinkLog, parse_offsets
from recon.model.sample import FoundRow, Place
from recon.model.wire.columns import ATTEMPT, BATCH_ID, EPOCH
from recon.model.wire.manifests import (
    FOLDER,
    PER_GROUP,
    DataFile,
    Layout,
    Manifest,
    dump_layout,
    dump_manifest,
    folder_of,
    group_of,
    is_data,
    layout_path,
    manifest_path,
    merged_path,
    name_of_layout,
    write_path,
)
from recon.model.wire.stamp import offsets_text
from recon.project import FileSink, Project, Sink
from recon.spark.observation import Counter
from recon.witness import file_rows, manifest_files, manifests
from recon.write.sinks import failpoints
from recon.write.sinks.base import ConfirmedWrite
from recon.write.sinks.files.append import FileAppend
from recon.write.sinks.files.reading import open_batches, read_batches
from recon.write.sinks.path import PathSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

log = logging.getLogger("recon")

_THREADS = 16
_NUMBERS_KEPT = 10  # files of writes' numbers; the newest is enough, others are there to be looked at
_JOB = re.compile(r"part-\d+-(?:.*-)?([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})")
# What a reader must know to read what a writer with these options wrote; others (and secrets) are not kept.
_SHARED_OPTIONS = frozenset(
    name.lower()
    for name in (
        *("header", "sep", "delimiter", "quote", "escape", "charToEscapeQuoteEscaping", "nullValue", "emptyValue"),
        *("dateFormat", "timestampFormat", "timestampNTZFormat", "encoding", "charset", "lineSep", "locale"),
    )
)


class FileReplace(PathSink):
    """Writes each micro-batch into a folder of its own, and its manifest when all files are there."""

    owner: int | None = None  # the micro-batch that the rows of a repair belong to

    def __init__(self, target: str, kind: str, **options: Any) -> None:
        super().__init__(target, kind, **options)
        self._layouts: set[str] = set()  # names of layouts that are in the target
        self._merged = False  # whether older manifests were merged since the start
        self._tidy = False  # whether folders of crashed attempts were removed since the start

    @classmethod
    @override
    def of(cls, project: Project, pipeline: str, sink: Sink) -> PathSink:
        assert isinstance(sink, FileSink)
        return super().of(project, pipeline, sink) if sink.mode == "replace" else FileAppend.of(project, pipeline, sink)

    @override
    def newest_number(self, pipeline: str, sink: str) -> int | None:
        """The newest number that has a file; its manifest is written where a crash came before that."""
        numbers = manifests.numbers(self.storage)
        newest = manifests.numbered(self.storage, numbers[-1]) if numbers else None
        if newest is None:
            return 0
        known = manifests.find(self.storage, newest.stamp.epoch, newest.stamp.batch_id)
        if known is None or (known.stamp.number or 0) < numbers[-1]:
            self._put(_path_of(newest), dump_manifest(newest).encode())
        return numbers[-1]

    @override
    def repair_of(self, pipeline: str, sink: str, number: int) -> ReconStamp | None:
        taken = manifests.numbered(self.storage, number)
        is_repair = taken is not None and taken.stamp.is_of(pipeline, sink) and taken.stamp.epoch == REPAIRS
        return taken.stamp if taken is not None and is_repair else None

    @override
    def write(self, frame: DataFrame, stamp: ReconStamp) -> None:
        """Write the micro-batch's files into a folder of this attempt, then commit them by number and manifest."""
        manifest = self._manifest(stamp)
        if manifest is not None and self._missing(manifest) is None:
            if manifest.stamp.number != stamp.number:
                raise self._overtaken(stamp)
            log.warning("%s already holds micro-batch %d (epoch %d)", self.target, stamp.batch_id, stamp.epoch)
            return
        attempt = f"a{secrets.token_hex(4)}"
        of_batch = stamp.batch_id if self.owner is None else self.owner
        folder = f"{folder_of(stamp.epoch, of_batch)}/{ATTEMPT}={attempt}"
        for name in (EPOCH, ATTEMPT):
            if name in frame.columns:
                raise SinkError(
                    f"{stamp.label} has a column {name}, which the sink's folders have; rename it in the rows"
                )
        # Parquet's footers have the counts; Spark counts the rows of other formats while it writes them.
        counter = None if self.kind == "parquet" else Counter(frame.drop(BATCH_ID))
        out = frame.drop(BATCH_ID) if counter is None else counter.frame
        # Dynamic overwriting would keep partitions that only a failed attempt wrote.
        writer = self._writer(out, "overwrite").option("partitionOverwriteMode", "static")
        writer.save(f"{self.target.rstrip('/')}/{folder}")
        self.failpoint(failpoints.FILES_WRITTEN, stamp)
        files = self._files(folder)
        self._require_one_writer(files, folder, stamp)
        layout = self._layout(out.schema)
        rows = sum(file.rows or 0 for file in files) if counter is None else counter.rows()
        manifest = Manifest(
            stamp=stamp,
            attempt=attempt,
            at=utc_now(),
            rows=rows,
            layout=layout,
            files=tuple(files),
            owner=self.owner,
        )
        if rows is None:  # Spark reported no count, so the files are read
            rows = open_batches(frame.sparkSession, self.storage, [manifest]).count()
            manifest = replace(manifest, rows=rows)
        self._commit(manifest)
        self.failpoint(failpoints.MANIFEST_WRITTEN, stamp)
        if self.owner is None:  # of a micro-batch, repairs may write at any time, and beside its query
            self._remove_other_attempts(manifest)
            self._merge(stamp)

    def _commit(self, manifest: Manifest) -> None:
        """Make the file of the write's number, and then the manifest."""
        stamp, content = manifest.stamp, dump_manifest(manifest).encode()
        self._manifest(stamp)  # raises where another writer has written a manifest meanwhile
        if stamp.number is None:
            raise SinkError(f"{stamp.label} has no number, by which this sink tells its writes apart")
        name = write_path(stamp.number)
        try:
            made = self.storage.create(name, content)
        except OSError as error:
            raise self._not_written(name, error) from error
        numbers = manifests.numbers(self.storage)
        if made and numbers[-1] > stamp.number:  # older files are removed, so ours could be made though it is taken
            self.storage.remove(name)
        if not made or numbers[-1] > stamp.number:
            self._remove(manifest.folder)
            raise self._overtaken(stamp)
        self._put(_path_of(manifest), content)
        for number in numbers[:-_NUMBERS_KEPT]:
            self.storage.remove(write_path(number))

    def _overtaken(self, stamp: ReconStamp) -> RefusedError:
        return RefusedError(
            f"{stamp.label} was not written: {self.target} has write {stamp.number} of this sink, or later ones, which "
            "another driver made after this one had read the ledger; stop one of them, then restart the other, which "
            "reads what was written",
            stamp.number,
        )

    def _remove_other_attempts(self, manifest: Manifest) -> None:
        """Remove what crashed attempts of the micro-batch left; once per start, since only a replay has such."""
        if self._tidy:
            return
        self._tidy = True
        folder = folder_of(manifest.stamp.epoch, manifest.stamp.batch_id)
        for name in self.storage.names(folder):
            if name != f"{ATTEMPT}={manifest.attempt}":
                self._remove(f"{folder}/{name}")

    def _remove(self, folder: str) -> None:
        """Remove files that no manifest names; where that fails they stay, and are not read."""
        try:
            self.storage.remove(folder)
        except OSError as error:
            log.warning(
                "%s/%s holds files that no manifest names and could not be removed: %s", self.target, folder, error
            )

    @override
    def confirm(self, stamp: ReconStamp) -> ConfirmedWrite:
        manifest = self._manifest(stamp)
        if manifest is None:
            raise SinkError(
                f"{stamp.label} has no manifest in {self.target}, though it was just written: something removes files "
                "there; stop it, then restart the query"
            )
        missing = self._missing(manifest)
        if missing is not None:
            raise SinkError(
                f"{stamp.label}: {self.target}/{manifest.folder} has no file {missing}, which its manifest names: two "
                "queries write this target, or something removes files there; stop it, then restart the query"
            )
        return ConfirmedWrite(rows=manifest.rows)

    @override
    def landed(self, stamp: ReconStamp, version: int | None) -> ConfirmedWrite | None:
        manifest = self._manifest(stamp)
        return ConfirmedWrite(rows=manifest.rows) if manifest is not None and self._missing(manifest) is None else None

    @override
    def log(self, after: int | None = None, since: datetime | None = None) -> SinkLog:
        return manifests.log(self.storage, since)

    @override
    def record_count(self, up_to: int) -> RecordCount | None:
        return manifests.counted(self.storage, up_to)

    @override
    def changes(self, since: datetime | None = None) -> SinkChanges:
        return manifest_files.changes(self.storage, self.kind, since)

    @override
    def rows_at(self, places: Mapping[Place, Collection[int]]) -> Mapping[Place, Sequence[FoundRow]]:
        """Looks into the files of the micro-batches that the ledger names."""
        batches = {batch_id for batch_ids in places.values() for batch_id in batch_ids}
        return file_rows.find(self.storage, manifests.read(self.storage, batches=batches), places)

    @override
    def rows_left(self, spark: SparkSession) -> DataFrame:
        return open_batches(spark, self.storage, manifest_files.left(self.storage))

    @override
    def table(self, spark: SparkSession) -> DataFrame:
        return read_batches(spark, self.target, storage_options=self.storage.options)

    @override
    def rows_of(self, spark: SparkSession, landed: ConfirmedWrite, stamp: ReconStamp) -> DataFrame:
        manifest = self._manifest(stamp)
        if manifest is None:
            raise SinkError(f"{stamp.label} has no manifest in {self.target}; nothing to check")
        return open_batches(spark, self.storage, [manifest])

    def _manifest(self, stamp: ReconStamp) -> Manifest | None:
        """The micro-batch's manifest; None when there is none. Raises SinkError where it is another writer's."""
        manifest = manifests.find(self.storage, stamp.epoch, stamp.batch_id)
        if manifest is None:
            return None
        theirs = manifest.stamp
        if (theirs.pipeline, theirs.sink) != (stamp.pipeline, stamp.sink):
            raise SinkError(
                f"{self.target} holds micro-batch {stamp.batch_id} (epoch {stamp.epoch}) of pipeline {theirs.pipeline}"
                f", sink {theirs.sink}: two sinks write one target; give pipeline {stamp.pipeline}, sink {stamp.sink} "
                "a target of its own"
            )
        if (theirs.query_id, _ranges(theirs)) != (stamp.query_id, _ranges(stamp)):
            raise SinkError(
                f"{stamp.label}: {self.target} already holds another micro-batch of this number, of "
                f"query {theirs.query_id}: two queries write this sink, or the ledger was restored to an older state; "
                "stop one of them, or run `recon ledger rebuild`, then restart the query"
            )
        return manifest

    def _missing(self, manifest: Manifest) -> str | None:
        """A file that the manifest names and that is missing or has another size."""
        sizes = self.storage.files(manifest.folder)
        return next((file.path for file in manifest.files if sizes.get(file.path) != file.size), None)

    def _files(self, folder: str) -> list[DataFile]:
        """The data files of a folder, with the number of rows for Parquet."""
        sizes = self.storage.files(folder)
        names = sorted(name for name in sizes if is_data(name))
        rows: Sequence[int | None] = [None] * len(names)
        if self.kind == "parquet":
            with ThreadPoolExecutor(_THREADS) as pool:
                rows = list(pool.map(lambda name: _parquet_rows(self.storage, f"{folder}/{name}"), names))
        return [DataFile(path=name, size=sizes[name], rows=count) for name, count in zip(names, rows, strict=True)]

    def _require_one_writer(self, files: Sequence[DataFile], folder: str, stamp: ReconStamp) -> None:
        """Refuse files of two jobs, which Spark names in each file: rows would be twice in the manifest."""
        jobs = {match[1] for file in files if (match := _JOB.search(file.path))}
        if len(jobs) > 1:
            raise SinkError(
                f"{stamp.label}: {self.target}/{folder} holds files of {len(jobs)} writers: two queries write this "
                "target at once, or a task of a dead one finished late; stop the other query, then restart this one, "
                "which writes the micro-batch again"
            )

    def _layout(self, schema: StructType) -> str:
        """Write the layout of files with this schema, unless it is there; returns its name."""
        layout = Layout(
            format=self.kind,
            schema=json.loads(schema.json()),
            partition_by=tuple(self._partition_by),
            options={name: value for name, value in self._options.items() if name.lower() in _SHARED_OPTIONS},
        )
        content = dump_layout(layout)
        name = name_of_layout(content)
        if name not in self._layouts:
            self._put(layout_path(name), content)
            self._layouts.add(name)
        return name

    def _put(self, name: str, content: bytes) -> None:
        try:
            self.storage.write(name, content)
        except OSError as error:
            raise self._not_written(name, error) from error

    def _not_written(self, name: str, error: OSError) -> SinkError:
        return SinkError(
            f"{self.target}/{name} cannot be written: {error}; the micro-batch counts as not written until it is, "
            "so repair the cause and restart the query"
        )

    def _merge(self, stamp: ReconStamp) -> None:
        """Merge the manifests of earlier thousands, at a start and with each new thousand; a failure is only logged."""
        if self._merged and stamp.batch_id % PER_GROUP:
            return
        self._merged = True
        try:
            merge(self.storage, keep=(stamp.epoch, group_of(stamp.batch_id)))
        except (OSError, EvidenceError) as error:
            log.warning("manifests of %s could not be merged: %s", self.target, error)


def merge(target: Storage, keep: tuple[int, int]) -> int:
    """Merge single manifests of every thousand but `keep` (epoch, thousand); returns the number of thousands.

    Those of repairs are left: one may be written meanwhile.
    """
    done = 0
    for epoch in (epoch for epoch in manifests.epochs(target) if epoch >= 0):
        for group in manifests.loose(target, epoch):
            if (epoch, group) == keep:
                continue
            lines = "".join(f"{dump_manifest(manifest)}\n" for manifest in manifests.read_group(target, epoch, group))
            if lines:
                target.write(merged_path(epoch, group), gzip.compress(lines.encode()))
            target.remove(f"{FOLDER}/{epoch}/{group}")
            done += 1
    return done


def _path_of(manifest: Manifest) -> str:
    return manifest_path(manifest.stamp.epoch, manifest.stamp.batch_id)


def _parquet_rows(storage: Storage, name: str) -> int:
    import pyarrow.parquet as pq

    with storage.opened(name) as file:
        return int(pq.read_metadata(file).num_rows)


def _ranges(stamp: ReconStamp) -> str:
    # A replay may meet a broker that the first attempt did not, or the other way round.
    return offsets_text(span._replace(topic_id=None) for span in parse_offsets(stamp.offsets_text))
