"""Data files that a Delta table's log names and the store no longer has."""

from __future__ import annotations

from collections.abc import Sequence

from recon.judge.coverage import Key
from recon.judge.findings import Findings, exactly, named, offsets
from recon.lazy import np
from recon.model import Code, DataFile, DeltaWitness, EntryHead, LedgerSlice, LiveFiles, Unavailable
from recon.text import plural, some


def judge_files(ledger: LedgerSlice, delta: DeltaWitness, findings: Findings) -> None:
    """Adds findings for files that are gone, and for files that could not be looked for."""
    gone = delta.files.gone if isinstance(delta.files, LiveFiles) else delta.files
    if isinstance(gone, Unavailable):
        findings.add(
            Code.INCONCLUSIVE,
            f"whether the data files of {delta.location} are all there is not known: {gone.reason}",
            about="data files",
        )
        return
    if not gone:
        return
    counts = [file.rows for file in gone if file.rows is not None]
    rows = plural(sum(counts), "row") if len(counts) == len(gone) else "an unknown number of rows"
    findings.add(
        Code.MUTATED,
        f"{delta.location} lacks {plural(len(gone), 'data file')} that its log names, with {rows}: "
        f"{some(file.path for file in gone)}; restore them from a copy, and find out what removes files past Delta",
        about=f"data files {exactly(sorted(file.path for file in gone))}",
        changed_by=(),
    )
    unnamed: list[DataFile] = []
    for file in sorted(gone, key=lambda file: (file.topic or "", file.partition or 0, file.offsets or (0, 0))):
        if not _report(file, ledger, findings):
            unnamed.append(file)
    if unnamed:
        _report_unnamed(unnamed, findings)


def _report(file: DataFile, ledger: LedgerSlice, findings: Findings) -> bool:
    """Adds a GAP where the statistics of the file name a range of one partition; False where they do not."""
    if file.topic is None or file.partition is None or file.offsets is None:
        return False
    readers = _readers(file, ledger)
    if ledger.complete and not readers:
        return True  # another pipeline's, or a stranger's
    source, head = readers[0] if readers else (0, None)
    key = Key(source, file.topic, file.partition)
    several = "" if file.rows == file.offsets.size else f" ({plural(file.rows or 0, 'row')} among them)"
    by = f" of {named(head)}" if head is not None else ""
    findings.add(
        Code.GAP,
        f"{key}: {offsets(*file.offsets)}{by}{several} were in a data file that is gone from the store; a restart "
        "does not read them again",
        head=head,
        key=key,
        span=file.offsets,
        changed_by=(),
    )
    return True


def _report_unnamed(files: Sequence[DataFile], findings: Findings) -> None:
    """One GAP for files whose statistics do not name offsets."""
    batches = [file.batch_ids for file in files if file.batch_ids is not None]
    written = f" of micro-batches {min(b[0] for b in batches)} to {max(b[1] for b in batches)}" if batches else ""
    findings.add(
        Code.GAP,
        f"rows{written} are gone with {plural(len(files), 'data file')} whose statistics do not name offsets; "
        "source_rows names them",
        about=f"data files {exactly(file.path for file in files)}",
        changed_by=(),
    )


def _readers(file: DataFile, ledger: LedgerSlice) -> list[tuple[int, EntryHead]]:
    """The entries of the slice that read offsets of the file, with the number of the source that read them."""
    ranges, low, high = ledger.ranges, *(file.offsets or (0, 0))
    topics = [place for place, (_, name, _) in enumerate(ranges.topics) if name == file.topic]
    met = np.isin(ranges.topic, topics) & (ranges.partition == file.partition)
    met &= (ranges.start < high) & (ranges.end > low)
    found = [
        (ranges.topics[int(ranges.topic[row])][0], ledger.heads[int(ranges.entry[row])])
        for row in np.flatnonzero(met).tolist()
    ]
    of_batch = [(source, head) for source, head in found if file.batch_ids == (head.batch_id, head.batch_id)]
    return of_batch or found
