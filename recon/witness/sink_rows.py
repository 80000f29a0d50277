"""The sink's own rows as a witness: the offsets of each topic partition that each micro-batch wrote.

Offsets are packed into 64-bit words before the shuffle, and full words into blocks. So a million contiguous offsets
reach the driver as some 250 numbers, and every hole stays exact.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import reduce
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from recon.base.errors import EvidenceError
from recon.model import WITHOUT_NUMBER, RowGroup, RowSearch, RowsWitness
from recon.model.fingerprint import PRIME, of_offsets
from recon.model.offsets import Span, Spans
from recon.model.wire.columns import BATCH_ID, OWN_NAMES, SOURCE_COLUMNS, SOURCE_TOPIC, SourceNames
from recon.spark.errors import spark_error
from recon.spark.fingerprint import row_fingerprint, total_fingerprint
from recon.spark.lazy import F
from recon.spark.releases import to_arrow
from recon.spark.settings import settings_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

_FULL = -1  # a word whose 64 offsets are all there, as a signed long
_WORD = 64
_UNNUMBERED, _FILE = "_recon_unnumbered", "_recon_file"  # columns of a search
_IGNORE_MISSING = "spark.sql.files.ignoreMissingFiles"


def read(
    spark: SparkSession,
    table: str | DataFrame,
    *,
    version: int | None = None,
    location: str | None = None,
    batches: Collection[int] | None = None,
    first_batch: int | None = None,
    last_batch: int | None = None,
) -> RowsWitness:
    """Counts the rows of a table per (batch_id, topic, partition), with the exact set of their offsets.

    One Spark query over the four stamped columns. The driver gets one row per group and 4,096 offsets, and 16 bytes for
    each word of 64 offsets that is neither full nor empty. Batch ids that start over (a new epoch) are in the same
    group: their offsets differ.

    Args:
        spark: the session that reads.
        table: the path or URI of a Delta table, or its rows.
        version: a Delta version of it; the newest when None. For a DataFrame it is only recorded in the result.
        location: the table's name in the result; its path when None.
        batches: read only these micro-batches; Delta skips other files by their statistics.
        first_batch: read only micro-batches from this one.
        last_batch: read only micro-batches up to this one, included.

    Returns:
        Groups ascending by (batch_id, topic, partition), of rows that carry all of it. `rows` also counts rows
        without `_batch_id` (`unstamped_rows`, read in any case), and stamped rows in which a source column is NULL,
        which are in no group.

    Raises:
        EvidenceError: the table is missing or cannot be read.
    """
    name = location or (table if isinstance(table, str) else "the table")
    try:
        rows = _open(spark, table, version)
        columns = set(rows.columns)
        rows = _restrict(rows, columns, batches, first_batch, last_batch)
        if BATCH_ID in columns and columns.issuperset(SOURCE_COLUMNS):
            return _decode(to_arrow(_words(rows)), name, version)
        return _count(rows, columns, name, version)
    except EvidenceError:
        raise
    except Exception as error:
        raise EvidenceError(f"the rows of {name} cannot be read: {spark_error(error)}") from error


def read_named(
    spark: SparkSession,
    location: str,
    names: SourceNames,
    *,
    version: int | None = None,
    within: Mapping[tuple[str, int], Span] | None = None,
) -> RowsWitness:
    """Counts the rows of a Delta table that recon did not write per (topic, partition), as `read` does.

    No row says which micro-batch wrote it: the batch_id of all groups is `WITHOUT_NUMBER`.

    Args:
        spark: the session that reads.
        location: the path or URI of the table.
        names: its columns with the source of each row; a row that has NULL in one of them is in no group.
        version: a Delta version of it; the newest when None.
        within: read only rows of these topic partitions, between these offsets; all when None.

    Raises:
        EvidenceError: the table is missing, cannot be read, or lacks one of the columns.
    """
    try:
        rows = _named(_open(spark, location, version), location, names)
        if within is not None:
            rows = rows.filter(_is_within({where: (span,) for where, span in within.items()}))
        return _decode(to_arrow(_words(rows.withColumn(BATCH_ID, F.lit(WITHOUT_NUMBER)))), location, version)
    except EvidenceError:
        raise
    except Exception as error:
        raise EvidenceError(f"the rows of {location} cannot be read: {spark_error(error)}") from error


def _is_within(offsets: Mapping[tuple[str, int], Iterable[Span]]) -> Column:
    """Whether a row is of these offsets, by topic partition, as its source columns say by recon's names."""
    topic, partition, offset = (F.col(column) for column in SOURCE_COLUMNS)
    return _any_of(
        [
            (topic == name) & (partition == number) & _any_of([(offset >= a) & (offset < b) for a, b in spans])
            for (name, number), spans in sorted(offsets.items())
        ]
    )


def _any_of(conditions: Sequence[Column]) -> Column:
    """One condition or another; halved, since Spark descends into expressions, and a thousand in a row are too deep."""
    if len(conditions) < 2:
        return conditions[0] if conditions else F.lit(False)
    half = len(conditions) // 2
    return _any_of(conditions[:half]) | _any_of(conditions[half:])


def _named(rows: DataFrame, location: str, names: SourceNames, *more: str) -> DataFrame:
    """The source columns alone, by recon's names, and `more` columns."""
    lacking = [column for column in names.renamed if column not in rows.columns]
    if lacking:
        raise EvidenceError(
            f"{location} has no column {', '.join(lacking)}, which source_columns names in recon.yml; it has "
            f"{', '.join(rows.columns)}"
        )
    columns = {name: F.col(f"`{column}`") for column, name in names.renamed.items()}
    columns.setdefault(SOURCE_TOPIC, F.lit(names.only_topic))
    types = dict(zip(SOURCE_COLUMNS, ("string", "bigint", "bigint"), strict=True))
    return rows.select(*(columns[name].cast(types[name]).alias(name) for name in SOURCE_COLUMNS), *more)


def look_for(
    spark: SparkSession,
    location: str,
    names: Collection[str] | None,
    search: RowSearch | None = None,
    columns_named: SourceNames = OWN_NAMES,
    table: DataFrame | None = None,
) -> Sequence[RowGroup]:
    """How many rows of the whole table have the source offsets that some of its rows have.

    One Spark job joins these rows with the table by (topic, partition, offset). Another one looks whether the data
    files with these rows are still part of the table.

    Args:
        spark: the session that reads.
        location: the path or URI of a Delta table; the name of another, whose rows are `table`.
        names: the names, without folder, of data files with rows that are looked for. None for all rows of the table,
            as where one of the files is no longer part of it.
        search: which rows are looked for besides, whatever the versions are that it names.
        columns_named: its columns with the source of each row.
        table: the rows of a table that is no Delta table.

    Returns:
        A group per topic partition and number of rows that each of its offsets has. Its `batch_id` is `WITHOUT_NUMBER`
        where a row that was looked for has no `_batch_id`, else 0. None where rows have no source columns.

    Raises:
        EvidenceError: the table is missing or cannot be read.
    """
    try:
        whole = _open(spark, location if table is None else table, None)
        if not set(whole.columns).issuperset(columns_named.renamed):
            return ()
        may_lack = BATCH_ID in whole.columns and columns_named == OWN_NAMES
        rows = whole.withColumn(_UNNUMBERED, F.col(BATCH_ID).isNull() if may_lack else F.lit(False))
        if names:
            rows = rows.withColumn(_FILE, F.element_at(F.split("_metadata.file_path", "/"), -1))
        every = _named(rows, location, columns_named, _UNNUMBERED, *([_FILE] if names else []))
        found = _counted(every) if names is None else _found(every, names, search or RowSearch())
        groups = read(
            spark, found.withColumn(BATCH_ID, F.expr(f"2 * n + int({_UNNUMBERED})")), location=location
        ).groups
    except EvidenceError:
        raise
    except Exception as error:
        raise EvidenceError(f"the rows of {location} cannot be read: {spark_error(error)}") from error
    return [
        RowGroup(
            batch_id=WITHOUT_NUMBER if group.batch_id % 2 else 0,
            topic=group.topic,
            partition=group.partition,
            rows=group.batch_id // 2 * group.present.size,
            present=group.present,
        )
        for group in groups
    ]


def _found(every: DataFrame, names: Collection[str], search: RowSearch) -> DataFrame:
    """The offsets of the rows that are looked for, each with its number of rows in the table."""
    wanted = [F.col(_UNNUMBERED)] if search.unnumbered else []
    wanted += [_is_within(search.offsets)] if search.offsets else []
    if names:
        of_files = F.col(_FILE).isin(*names)
        if every.filter(of_files).select(_FILE).distinct().count() != len(set(names)):
            return _counted(every)  # OPTIMIZE, or a rewrite, may have moved these rows to other files
        wanted.append(of_files)
    looked_for = every.filter(_any_of(wanted)).groupBy(*SOURCE_COLUMNS).agg(F.max(_UNNUMBERED).alias(_UNNUMBERED))
    return _counted(every.select(*SOURCE_COLUMNS).join(looked_for, list(SOURCE_COLUMNS)))


def _counted(rows: DataFrame) -> DataFrame:
    return rows.groupBy(*SOURCE_COLUMNS).agg(F.count(F.lit(1)).alias("n"), F.max(_UNNUMBERED).alias(_UNNUMBERED))


def group_of(batch_id: int, topic: str, partition: int, offsets: Collection[int]) -> RowGroup:
    """The rows of one (batch_id, topic, partition) by the offset of each, as `read` tells them, without Spark."""
    times = Counter(offsets)
    return RowGroup(
        batch_id=batch_id,
        topic=topic,
        partition=partition,
        rows=len(offsets),
        present=Spans.of_offsets(times),
        fingerprint=of_offsets(topic, partition, offsets),
        twice=Spans.of_offsets(offset for offset, rows in times.items() if rows == 2),
    )


def repeated(found: Iterable[RowGroup]) -> Sequence[RowGroup]:
    """Of what was looked for, the offsets that have more rows than one.

    Returns:
        A group, its `batch_id` 0, per topic partition and number of rows that such offsets have each.
    """
    spans: dict[tuple[int, str, int], list[Span]] = {}
    for group in found:
        spans.setdefault((group.rows // group.present.size, group.topic, group.partition), []).extend(group.present)
    return [
        RowGroup(batch_id=0, topic=topic, partition=partition, rows=each * present.size, present=present)
        for each, topic, partition in sorted(spans)
        if each > 1
        for present in (Spans.of(spans[each, topic, partition]),)
    ]


def without_missing_files(spark: SparkSession) -> AbstractContextManager[None]:
    """Reads inside leave out data files that a table's log names and the store lacks, where Spark else stops."""
    return settings_of(spark, {_IGNORE_MISSING: "true"})


def _open(spark: SparkSession, table: str | DataFrame, version: int | None) -> DataFrame:
    if not isinstance(table, str):
        return table
    reader = spark.read.format("delta")
    if version is not None:
        reader = reader.option("versionAsOf", version)
    return reader.load(table)


def _restrict(
    rows: DataFrame,
    columns: Collection[str],
    batches: Collection[int] | None,
    first_batch: int | None,
    last_batch: int | None,
) -> DataFrame:
    """Rows of the wanted micro-batches, and rows without a `_batch_id`."""
    if BATCH_ID not in columns or (batches is None and first_batch is None and last_batch is None):
        return rows
    batch = F.col(BATCH_ID)
    wanted: Column = F.lit(True)
    if first_batch is not None:
        wanted = wanted & (batch >= first_batch)
    if last_batch is not None:
        wanted = wanted & (batch <= last_batch)
    if batches is not None:
        runs = (batch.between(run.start, run.end - 1) for run in Spans.of_offsets(batches))
        wanted = wanted & reduce(lambda a, b: a | b, runs, F.lit(False))
    return rows.filter(wanted | batch.isNull())


def _words(rows: DataFrame) -> DataFrame:
    """One row per group and block: its rows, which of its words are full, and the bits of those that are not.

    A word is 64 neighbouring offsets as bits, a block 64 neighbouring words. Rows that lack a stamped value have
    no block. `twice` has the offsets of each word that have two rows, if none has more. This holds where as many bits
    occur an even number of times as the word has surplus rows.
    """
    group = ["batch", "topic", "partition"]
    topic, partition, offset = SOURCE_COLUMNS
    placed = f"{BATCH_ID} IS NOT NULL AND {topic} IS NOT NULL AND {partition} IS NOT NULL"
    words = (
        rows.select(
            F.col(BATCH_ID).cast("bigint").alias("batch"),
            F.col(topic).alias("topic"),
            F.col(partition).cast("bigint").alias("partition"),
            F.expr(f"CASE WHEN {placed} THEN shiftright(CAST({offset} AS BIGINT), 6) END").alias("word"),
            F.expr(f"shiftleft(1L, CAST({offset} & 63 AS INT))").alias("bit"),
            row_fingerprint(*SOURCE_COLUMNS).alias("fingerprint"),
        )
        .groupBy(*group, "word")
        .agg(
            F.bit_or("bit").alias("bits"),
            F.expr("bit_or(bit) & ~bit_xor(bit)").alias("even"),
            F.count(F.lit(1)).alias("n"),
            F.sum("fingerprint").alias("fingerprint"),
        )
    )
    full, twice = f"bits = {_FULL}", "even <> 0 AND n - bit_count(bits) = bit_count(even)"
    return words.groupBy(*group, F.expr("shiftright(word, 6)").alias("block")).agg(
        F.sum("n").alias("rows"),
        total_fingerprint("fingerprint").alias("fingerprint"),
        F.expr(f"bit_or(shiftleft(1L, CAST(word & 63 AS INT))) FILTER (WHERE {full})").alias("full"),
        F.expr(f"collect_list(struct(word, bits)) FILTER (WHERE NOT {full})").alias("partial"),
        F.expr(f"collect_list(struct(word, even)) FILTER (WHERE {twice})").alias("twice"),
    )


def _decode(table: pa.Table, name: str, version: int | None) -> RowsWitness:
    batch, topic, partition, block, rows, full, fingerprints = (
        table.column(column).to_pylist()
        for column in ("batch", "topic", "partition", "block", "rows", "full", "fingerprint")
    )
    partial, twice = _words_of(table, "partial"), _words_of(table, "twice")
    unstamped = 0
    blocks: dict[tuple[int, str, int], list[int]] = {}  # indexes of a group's blocks
    for i, b in enumerate(batch):
        if b is None:
            unstamped += rows[i]
        elif block[i] is not None:
            blocks.setdefault((b, topic[i], partition[i]), []).append(i)
    groups: list[RowGroup] = []
    for (b, t, p), members in sorted(blocks.items()):
        whole = [(block[i], full[i]) for i in members if full[i]]
        present = spans_of(whole, [word for i in members for word in partial[i]])
        groups.append(
            RowGroup(
                batch_id=b,
                topic=t,
                partition=p,
                rows=sum(rows[i] for i in members),
                present=present,
                fingerprint=_total(fingerprints[i] for i in members),
                twice=spans_of((), [word for i in members for word in twice[i]]),
            )
        )
    return RowsWitness(
        location=name,
        version=version,
        rows=sum(rows),
        unstamped_rows=unstamped,
        has_source_columns=True,
        groups=groups,
    )


def _words_of(table: pa.Table, column: str) -> Sequence[Sequence[tuple[int, int]]]:
    """The (word, bits) of each block, from a column of lists of them."""
    lists = table.column(column).combine_chunks()
    words = list(zip(*(lists.flatten().field(i).to_pylist() for i in range(2)), strict=True))
    ends = accumulate(lists.value_lengths().to_pylist(), initial=0)
    return [words[start:end] for start, end in pairwise(ends)]


def _total(fingerprints: Iterable[int | None]) -> int | None:
    """The fingerprint of all blocks; None where that of one is not known."""
    known = list(fingerprints)
    return None if None in known else sum(fingerprint for fingerprint in known if fingerprint is not None) % PRIME


def _count(rows: DataFrame, columns: Collection[str], name: str, version: int | None) -> RowsWitness:
    """The counts of a table without source columns."""
    unstamped = F.count_if(F.col(BATCH_ID).isNull()) if BATCH_ID in columns else F.count(F.lit(1))
    counted = rows.agg(F.count(F.lit(1)).alias("rows"), unstamped.alias("unstamped")).collect()[0]
    return RowsWitness(
        location=name,
        version=version,
        rows=counted["rows"],
        unstamped_rows=counted["unstamped"],
        has_source_columns=False,
        groups=(),
    )


def spans_of(full: Iterable[tuple[int, int]], partial: Iterable[tuple[int, int]]) -> Spans:
    """The offsets of a group.

    Args:
        full: (block, bits), a bit for each word of the block whose 64 offsets are all there.
        partial: (word, bits), a bit for each offset of a word that is not full.

    >>> spans_of([(0, 0b11)], [(2, 0b1011)])
    Spans(((0, 130), (131, 132)))
    """
    ranges = [
        ((block * _WORD + start) * _WORD, (block * _WORD + end) * _WORD)
        for block, bits in full
        for start, end in _runs(bits)
    ]
    ranges += [(word * _WORD + start, word * _WORD + end) for word, bits in partial for start, end in _runs(bits)]
    return Spans.of(ranges)


def _runs(bits: int) -> Iterable[tuple[int, int]]:
    """Runs of set bits in a signed 64-bit word, lowest first, half-open."""
    left, at = bits & (1 << _WORD) - 1, 0
    while left:
        zeros = (left & -left).bit_length() - 1
        left >>= zeros
        ones = (~left & (left + 1)).bit_length() - 1
        left >>= ones
        yield at + zeros, at + zeros + ones
        at += zeros + ones
