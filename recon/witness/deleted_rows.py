"""The rows that commits of a table deleted, read without Spark from the data files that they removed and added.

A DELETE writes the rows that it leaves into other files, or marks the others in a deletion vector. Its deleted rows are
those of the removed files that are in no added file. They are known until VACUUM removes the files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple

from recon.base.errors import EvidenceError
from recon.base.lazy import np, pa, pc
from recon.base.limits import STORE_S, within
from recon.base.storage import Storage
from recon.base.text import first_line
from recon.model import Unavailable
from recon.model.deletion import AskedDeletion, DeletedRows, TopicPartition
from recon.model.offsets import Spans
from recon.model.wire.columns import OWN_NAMES, SOURCE_COLUMNS, SOURCE_TOPIC, SourceNames
from recon.witness import delta_log
from recon.witness.deletion_vectors import marked
from recon.witness.delta_commits import actions, file_name, num_records

if TYPE_CHECKING:
    import numpy.typing as npt

    Ints = npt.NDArray[np.int64]

ROWS_AT_MOST = 50_000_000  # of the files of one commit: their offsets are held in memory
_TIME = "_time"  # of a row, in microseconds
_NO_TIME = np.iinfo(np.int64).max
_DAY = timedelta(days=1)
_MICROSECOND = timedelta(microseconds=1)


def read(
    storage: Storage, asked: Sequence[AskedDeletion], names: SourceNames = OWN_NAMES
) -> Mapping[int, DeletedRows | Unavailable]:
    """The rows that each of these versions of a Delta table deleted, or why they were not looked at."""
    physical = delta_log.physical_names(storage) if asked else {}
    return {question.version: _deleted(_Files(storage, names, physical, question)) for question in asked}


def _deleted(files: _Files) -> DeletedRows | Unavailable:
    version = files.question.version
    slow = f"version {version} of {files.storage.uri} cannot be read: the store did not answer"
    try:
        return within(STORE_S, lambda: compared(files.question, files.tables), slow)
    except FileNotFoundError:
        return Unavailable("deleted_rows", "data files that it removed are no longer in the store")
    except Exception as error:  # whatever a store or a damaged file raises: nothing was looked at
        return Unavailable("deleted_rows", first_line(error))


class Side(NamedTuple):
    """Rows of a data file; `left` is whether they are still there after the commit."""

    rows: pa.Table
    left: bool


@dataclass(frozen=True)
class _Files:
    """The data files of a Delta commit."""

    storage: Storage
    names: SourceNames
    physical: Mapping[str, str]
    question: AskedDeletion

    def tables(self) -> Iterator[Side]:
        """The rows of the files that the commit removed, and of those that it added."""
        removed, added = self._actions()
        marks = removed.keys() & added.keys()  # the same file with another deletion vector
        counts = (num_records(action.get("stats")) for of in (removed, added) for action in of.values())
        if sum(filter(None, counts)) > ROWS_AT_MOST:
            raise EvidenceError(f"its data files have more than {ROWS_AT_MOST:,} rows")
        for path in removed.keys() - marks:
            yield Side(self._rows(path, removed[path], without=self._marked(removed[path])), left=False)
        for path in added.keys() - marks:
            yield Side(self._rows(path, added[path], without=self._marked(added[path])), left=True)
        for path in marks:
            before, after = self._marked(removed[path]), self._marked(added[path])
            if len(np.setdiff1d(before, after)):
                raise EvidenceError("a deletion vector brings rows back")
            yield Side(self._rows(path, added[path], only=np.setdiff1d(after, before)), left=False)

    def _actions(self) -> tuple[dict[str, Mapping[str, Any]], dict[str, Mapping[str, Any]]]:
        log, version = self.storage.child("_delta_log"), self.question.version
        raw = log.find(file_name(version))
        if raw is None:
            raise EvidenceError("its commit was cleaned up from the log")
        removed: dict[str, Mapping[str, Any]] = {}
        added: dict[str, Mapping[str, Any]] = {}
        for action in actions(log, file_name(version), raw):
            for kind, found in (("remove", removed), ("add", added)):
                if (body := action.get(kind)) is not None and body.get("dataChange", True):
                    found[body["path"]] = body
        return removed, added

    def _marked(self, action: Mapping[str, Any]) -> Ints:
        return marked(self.storage, action.get("deletionVector"))

    def _rows(
        self, path: str, action: Mapping[str, Any], *, without: Ints | None = None, only: Ints | None = None
    ) -> pa.Table:
        """The source columns of a data file, and the time of each row; NULL where it has none."""
        import pyarrow.parquet as pq

        (place,) = delta_log.data_files(self.storage, [path])
        folder, _, name = place.rpartition("/")
        wanted = {self.physical.get(column, column): named for column, named in self.names.renamed.items()}
        if self.question.column:
            wanted[self.physical.get(self.question.column, self.question.column)] = _TIME
        parts = {wanted[key]: value for key, value in (action.get("partitionValues") or {}).items() if key in wanted}
        if self.names.topic is None:
            parts[SOURCE_TOPIC] = self.names.only_topic
        with Storage(folder, self.storage.options).opened(name) as opened:
            file = pq.ParquetFile(opened)
            stored = [column for column in wanted if column in file.schema_arrow.names]
            rows = file.read(columns=stored, use_threads=False)
            rows = rows if stored else pa.table({"": pa.nulls(file.metadata.num_rows)})
        if only is not None:
            rows = rows.take(pa.array(only))
        elif without is not None and len(without):
            rows = rows.take(pa.array(np.setdiff1d(np.arange(rows.num_rows), without)))
        columns = {wanted[column]: rows.column(column) for column in stored}
        for column, value in parts.items():
            columns[column] = pa.chunked_array([pa.array([value] * rows.num_rows, pa.string())])
        return of_columns(columns, rows.num_rows, self.question.column)


def of_columns(columns: Mapping[str, pa.ChunkedArray], size: int, column: str) -> pa.Table:
    """Rows by recon's names of the source columns, with their time; `column` is where that is from, "" for none.

    Raises:
        EvidenceError: the column is there, and has no times.
    """
    types = (pa.string(), pa.int64(), pa.int64())
    nothing = pa.chunked_array([pa.nulls(size)])
    found = {name: columns.get(name, nothing).cast(of) for name, of in zip(SOURCE_COLUMNS, types, strict=True)}
    times = columns.get(_TIME, columns.get(column)) if column else None
    found[_TIME] = nothing.cast(pa.int64()) if times is None else _micros(times, column)
    return pa.table(found)


def _micros(times: pa.ChunkedArray, column: str) -> pa.ChunkedArray:
    """Times in microseconds, UTC where they have no time zone; a day counts until its end."""
    if pa.types.is_timestamp(times.type):
        return times.cast(pa.timestamp("us", times.type.tz), safe=False).cast(pa.int64())
    if pa.types.is_date(times.type):
        days = times.cast(pa.date32()).cast(pa.int32()).cast(pa.int64())
        return pc.multiply(pc.add(days, 1), _DAY // _MICROSECOND)
    if pa.types.is_string(times.type):  # of a partition
        return pa.chunked_array([pa.array([_micros_of(value, column) for value in times.to_pylist()], pa.int64())])
    raise EvidenceError(f"column {column} is of type {times.type}, and has no times")


def _micros_of(text: str | None, column: str) -> int | None:
    if text is None:
        return None
    try:
        at = datetime.combine(date.fromisoformat(text), datetime.min.time()) + _DAY if len(text) == 10 else None
        at = at or datetime.fromisoformat(text)
    except ValueError:
        raise EvidenceError(f"column {column} has {text!r:.40}, which is no time") from None
    return micros(at if at.tzinfo else at.replace(tzinfo=UTC))


def micros(at: datetime) -> int:
    """An instant in microseconds."""
    return (at - datetime.fromtimestamp(0, UTC)) // _MICROSECOND


def compared(question: AskedDeletion, tables: Any, changed: str = "") -> DeletedRows:
    """The rows of files that a commit removed, less those of files that it added.

    `tables` gives them, `changed` is as in `DeletedRows`.
    """
    sides = list(tables())
    before, after = (_by_partition([side.rows for side in sides if side.left is left]) for left in (False, True))
    gone: dict[TopicPartition, Ints] = {}
    for where in before.keys() | after.keys():
        deleted, is_new = _difference(before.get(where, _NONE), after.get(where, _NONE))
        changed = changed or ("it added rows" if is_new else "")
        if where is not None and len(deleted):
            gone[where] = deleted
    older: dict[TopicPartition, Spans] = {}
    ageless: dict[TopicPartition, Spans] = {}
    limit = 0 if question.before is None else micros(question.before)
    for where, offsets in gone.items() if question.column else ():
        newest = _newest(before[where], offsets)
        older[where] = Spans.of_offsets(offsets[newest < limit].tolist())
        ageless[where] = Spans.of_offsets(offsets[newest == _NO_TIME].tolist())
    return DeletedRows(
        version=question.version,
        rows=_size(before.values()) - _size(after.values()),
        unplaced=len(before.get(None, _NONE).offsets) - len(after.get(None, _NONE).offsets),
        offsets={where: Spans.of_offsets(offsets.tolist()) for where, offsets in gone.items()},
        older={where: spans for where, spans in older.items() if spans},
        ageless={where: spans for where, spans in ageless.items() if spans},
        changed=changed,
    )


class _Rows(NamedTuple):
    """The rows of a topic partition: their offsets, and their times."""

    offsets: Ints
    times: Ints


_NONE = _Rows(np.zeros(0, np.int64), np.zeros(0, np.int64))


def _size(of: Iterable[_Rows]) -> int:
    return sum(len(rows.offsets) for rows in of)


def _by_partition(tables: Sequence[pa.Table]) -> Mapping[TopicPartition | None, _Rows]:
    """Rows by topic and partition; under None those that do not say which record they were made of."""
    if not tables:
        return {}
    rows = pa.concat_tables(tables).combine_chunks()
    placed = reduce(pc.and_, (pc.is_valid(rows[name]) for name in SOURCE_COLUMNS))
    others, rows = rows.num_rows - (count := pc.sum(placed).as_py() or 0), rows.filter(placed)
    found: dict[TopicPartition | None, _Rows] = {}
    if others:
        found[None] = _Rows(np.zeros(others, np.int64), np.full(others, _NO_TIME))
    if not count:
        return found
    coded = rows[SOURCE_COLUMNS[0]].combine_chunks().dictionary_encode()
    topics, codes = coded.dictionary.to_pylist(), coded.indices.to_numpy().astype(np.int64)
    partitions, offsets = (rows[name].to_numpy() for name in SOURCE_COLUMNS[1:])
    times = pc.fill_null(rows[_TIME], int(_NO_TIME)).to_numpy()
    which, of_row = np.unique(codes << 32 | partitions, return_inverse=True)
    for place, code in enumerate(which.tolist()):
        mine = of_row == place
        found[topics[code >> 32], code & 0xFFFFFFFF] = _Rows(offsets[mine], times[mine])
    return found


def _difference(before: _Rows, after: _Rows) -> tuple[Ints, bool]:
    """The offsets of which there are fewer rows after than before; and whether there are more of any."""
    offsets, had = np.unique(before.offsets, return_counts=True)
    left, has = np.unique(after.offsets, return_counts=True)
    remaining = np.zeros(len(offsets), np.int64)
    common, place, of_left = np.intersect1d(offsets, left, assume_unique=True, return_indices=True)
    remaining[place] = has[of_left]
    return offsets[remaining < had], bool(len(common) < len(left) or (remaining > had).any())


def _newest(rows: _Rows, offsets: Ints) -> Ints:
    """The newest time of the rows of each of some offsets, which ascend."""
    newest = np.full(len(offsets), np.iinfo(np.int64).min)
    place = np.searchsorted(offsets, rows.offsets)
    place[place == len(offsets)] = 0
    mine = offsets[place] == rows.offsets
    np.maximum.at(newest, place[mine], rows.times[mine])
    return newest
