"""The account of what became of every offset, as `recon.account` returns it: a table, and its sums."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from recon.base.errors import ConfigError
from recon.base.lazy import np, pa
from recon.base.text import did_you_mean, plural, some
from recon.model.account import CLASSES, KNOWN, HowKnown, OffsetClass, SinkAccount
from recon.model.positions import partition_name
from recon.reports import pages

if TYPE_CHECKING:
    import numpy.typing as npt
    import pandas as pd

FORMATS = (".parquet", ".csv")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class OffsetAccount:
    """What became of every offset that the streams went past, sink by sink; it shows its sums in a notebook.

    Attributes:
        project: its name.
        period_from: begin of the period, UTC; None from the ledger's first entry on.
        period_to: its end, UTC.
        sinks: the account of each sink.
        without: the sinks that have no account, since the ledger has no entry of them: "pipeline orders, sink lake".
    """

    project: str
    period_from: datetime | None
    period_to: datetime
    sinks: tuple[SinkAccount, ...]
    without: tuple[str, ...] = ()

    @property
    def offsets(self) -> int:
        """How many offsets there are; each class's number, over all sinks, adds up to it."""
        return sum(sink.read for sink in self.sinks)

    @property
    def sums(self) -> Mapping[OffsetClass, int]:
        """How many offsets each class has, over all sinks."""
        return {of: sum(sink.sums[of] for sink in self.sinks) for of in OffsetClass}

    def only(self, *, partition: str | None = None, offset_class: str | None = None) -> OffsetAccount:
        """The lines of one topic partition, or of one class.

        Args:
            partition: such as `orders-3`. Lines of which only a number is known name no partition, and are left out.
            offset_class: such as `lost`.

        Raises:
            ConfigError: no such partition was read, or there is no such class.
        """
        sinks: Sequence[SinkAccount] = self.sinks
        if partition is not None:
            known = dict.fromkeys(name for sink in self.sinks for name in partitions_of(sink))
            if partition not in known:
                raise ConfigError(f"the account has no partition {partition!r}; it has {some(known)}")
            sinks = [_of_partition(sink, partition) for sink in sinks]
        if offset_class is not None:
            if offset_class not in CLASSES:
                classes = did_you_mean(str(offset_class), map(str, CLASSES), "the classes are")
                raise ConfigError(f"there is no class {offset_class!r}{classes}")
            wanted = CLASSES.index(OffsetClass(offset_class))
            sinks = [sink.take(sink.offset_class == wanted) for sink in sinks]
        return replace(self, sinks=tuple(sinks))

    def to_arrow(self) -> pa.Table:
        """A row per line, ordered by sink, topic, partition and offset; docs/account.md lists the columns.

        `start_offset` and `end_offset` are a half-open range, and null with `topic` and `partition` where only the
        number of `offsets` of a micro-batch is known. `batch_id` is null where no micro-batch read them.
        """
        return pa.concat_tables(_table(sink.ordered()) for sink in self.sinks).unify_dictionaries()

    def to_pandas(self) -> pd.DataFrame:
        """The same as a frame; numbers that may be missing are Int64."""
        import pandas as pd

        types = {pa.int64(): pd.Int64Dtype(), pa.int32(): pd.Int32Dtype()}
        frame: pd.DataFrame = self.to_arrow().to_pandas(types_mapper=types.get)
        return frame

    def write(self, place: str | os.PathLike[str]) -> Path:
        """Writes the rows of `to_arrow` to a .parquet or .csv file; returns its path.

        Raises:
            ConfigError: the file has another ending, or cannot be written.
        """
        place = written_to(place)
        try:
            if place.suffix == ".csv":
                from pyarrow import csv

                csv.write_csv(_plain(self.to_arrow()), place)
            else:
                from pyarrow import parquet

                parquet.write_table(self.to_arrow(), place)
        except OSError as error:
            raise ConfigError(f"{place} cannot be written: {error.strerror or error}; choose another place") from error
        return place

    def rows(self) -> Iterator[tuple[str, str, OffsetClass, HowKnown, int]]:
        """(pipeline, sink, class, how known, offsets) of each sum that is not zero."""
        for sink in self.sinks:
            totals = np.zeros((len(CLASSES), len(KNOWN)), np.int64)
            np.add.at(totals, (sink.offset_class, sink.how), sink.offsets)
            for of, how in zip(*(at.tolist() for at in np.nonzero(totals)), strict=True):
                yield sink.pipeline, sink.sink, CLASSES[of], KNOWN[how], int(totals[of, how])

    @override
    def __repr__(self) -> str:
        sums = ", ".join(f"{count:,} {of}" for of, count in self.sums.items() if count)
        return f"<OffsetAccount {self.project}: {plural(self.offsets, 'offset')}: {sums or 'none'}>"

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return pages.fragment("account.html.j2", account=self)


def written_to(place: str | os.PathLike[str]) -> Path:
    """The file that an account is to be written to.

    Raises:
        ConfigError: its ending says no format, or its folder does not exist.
    """
    if not isinstance(place, (str, os.PathLike)):
        raise ConfigError(f"the file of an account is {place!r}; give a path that ends with .parquet or .csv")
    path = Path(place)
    if path.suffix not in FORMATS:
        raise ConfigError(f"{path} ends with neither {' nor '.join(FORMATS)}; name the file so, to say its format")
    if not path.parent.is_dir():
        raise ConfigError(f"{path} cannot be written: there is no folder {path.parent}; make it, or choose another")
    return path


def partitions_of(sink: SinkAccount) -> list[str]:
    """The topic partitions that were read, as `orders-3`."""
    return [partition_name(topic, number) for topic, number in sink.partitions]


def _of_partition(sink: SinkAccount, name: str) -> SinkAccount:
    """The lines, and the doubled offsets, of one topic partition."""
    places = {partition_name(topic, number): (topic, number) for topic, number in sink.partitions}
    topic, number = places.get(name, ("", -2))
    topics = [at for at, (_, known, _) in enumerate(sink.topics) if known == topic]
    mine = sink.take(np.isin(sink.topic, topics) & (sink.partition == number))
    return mine.replace(doubled=[offsets for offsets in sink.doubled if offsets[:2] == (topic, number)])


# -- the table -------------------------------------------------------------------------------------------------------


def _table(sink: SinkAccount) -> pa.Table:
    none = sink.topic < 0
    columns = {
        "pipeline": _constant(sink.pipeline, len(sink)),
        "sink": _constant(sink.sink, len(sink)),
        "source": _of(sink.topic, [source for source, _, _ in sink.topics], pa.int32()),
        "topic": _named(sink.topic, [name for _, name, _ in sink.topics]),
        "topic_id": _named(sink.topic, [topic_id for _, _, topic_id in sink.topics]),
        "partition": pa.array(sink.partition, pa.int32(), mask=none),
        "start_offset": pa.array(sink.start, pa.int64(), mask=none),
        "end_offset": pa.array(sink.end, pa.int64(), mask=none),
        "offsets": pa.array(sink.offsets, pa.int64()),
        "class": _named(sink.offset_class, CLASSES),
        "how_known": _named(sink.how, KNOWN),
        "epoch": _of(sink.entry, [write.epoch for write in sink.writes], pa.int32()),
        "batch_id": _of(sink.entry, [write.batch_id for write in sink.writes], pa.int64()),
        "sink_version": _of(sink.entry, [write.version for write in sink.writes], pa.int64()),
    }
    return pa.table(columns)


def _constant(text: str, size: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(np.zeros(size, np.int32), pa.array([text], pa.string()))


def _named(codes: npt.NDArray[np.integer[Any]], names: Sequence[str | None]) -> pa.Array:
    """Names by their codes; null for -1, and where the name is None."""
    known = [name for name in dict.fromkeys(names) if name is not None]
    place = np.array([-1 if name is None else known.index(name) for name in names] + [-1], np.int32)
    indices = place[codes]  # -1 is the last place
    return pa.DictionaryArray.from_arrays(
        pa.array(indices, pa.int32(), mask=indices < 0), pa.array([str(name) for name in known], pa.string())
    )


def _of(codes: npt.NDArray[np.integer[Any]], values: Sequence[int | None], of: pa.DataType) -> pa.Array:
    """Values by their codes; null for -1, and where the value is None."""
    numbers = np.array([0 if value is None else value for value in values] + [0], np.int64)
    lacks = np.array([value is None for value in values] + [True], np.bool_)
    return pa.array(numbers[codes], mask=lacks[codes]).cast(of)


def _plain(table: pa.Table) -> pa.Table:
    """The table without dictionaries, which CSV does not know."""
    columns = [column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column for column in table.columns]
    return pa.table(dict(zip(table.column_names, columns, strict=True)))
