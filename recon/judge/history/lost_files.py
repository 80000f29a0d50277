"""Data files that a table's log names and the store no longer has."""

from __future__ import annotations

from recon.base.lazy import np
from recon.base.text import plural, some
from recon.judge.coverage import Key
from recon.judge.findings import Findings, exactly, offsets
from recon.judge.history.table_history import TableHistory, rows_in_all
from recon.model import Code, DataFile, EntryHead, LedgerSlice, Unavailable
from recon.model.ledger import named


def judge_files(history: TableHistory, ledger: LedgerSlice, findings: Findings) -> None:
    """Adds findings for files that are gone, and for files that could not be looked for."""
    gone, where = history.files_gone, history.location
    if isinstance(gone, Unavailable):
        message = f"whether the data files of {where} are all there is not known: {gone.reason}"
        findings.add(Code.INCONCLUSIVE, message, about="data files")
        return
    if not gone:
        return
    findings.add(
        Code.MUTATED,
        f"{where} lacks {plural(len(gone), 'data file')} that its log names ({some(file.path for file in gone)}), with "
        f"{rows_in_all(file.rows for file in gone)}; restore them from a copy, and find out what removes files past "
        "Delta",
        about=f"data files {exactly(sorted(file.path for file in gone))}",
        changed_by=(),
    )
    if unnamed := [file for file in sorted(gone, key=_place) if not _report(file, ledger, findings)]:
        sentence = (
            f"rows are gone with {plural(len(unnamed), 'data file')} whose statistics do not name offsets; source_rows "
            "names them"
        )
        findings.add(Code.GAP, sentence, about=f"data files {exactly(file.path for file in unnamed)}", changed_by=())


def _place(file: DataFile) -> tuple[str, int, tuple[int, int]]:
    return file.topic or "", file.partition or 0, file.offsets or (0, 0)


def _report(file: DataFile, ledger: LedgerSlice, findings: Findings) -> bool:
    """Adds a GAP where the statistics of the file name a range of one partition; False where they do not."""
    if file.topic is None or file.partition is None or file.offsets is None:
        return False
    readers = _readers(file, ledger)
    if ledger.complete and not readers:
        return True  # another pipeline's, or a stranger's
    source, head = readers[0] if readers else (0, None)
    key = Key(source, file.topic, file.partition)
    by = f" of {named(head)}" if head is not None else ""
    message = (
        f"{key}: {offsets(*file.offsets)}{by} ({plural(file.rows or 0, 'row')}) were in a data file that is gone from "
        "the store; a restart does not read them again"
    )
    findings.add(Code.GAP, message, head=head, key=key, span=file.offsets, changed_by=())
    return True


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
