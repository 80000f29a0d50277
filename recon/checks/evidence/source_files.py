"""source_files: whether the query reads every file of the folder, once; and what changed in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from typing_extensions import override

from recon.checks.base import EvidenceCheck
from recon.checks.period import Period
from recon.judge.coverage import Coverage, Key, coverage, read_last
from recon.judge.findings import Findings, ledger_of, named, no_entries
from recon.judge.history.entries import entries_with_unrecorded_commits
from recon.model import Code, LedgerSlice, SourceFile, SourceFiles, Verdict, Witnesses, why_unknown
from recon.model.file_offsets import described, is_files, query_of
from recon.model.positions import SourceKind
from recon.model.source_files import ChangedFile
from recon.text import plural, some


@dataclass(frozen=True, kw_only=True)
class SourceFilesRead(EvidenceCheck):
    """The files of the folder that the query reads (`source: {files: …}`), against the log of Spark's file source.

    Proves that every file of the folder was read, once, and says which wait, which Spark passes over without an
    error, and which were written again after they had been read. "complete" rests on it. It needs the ledger, the
    checkpoint's log of files and a listing of the folder, and no Spark.

    Args:
        warn_after: the age of the oldest file that waits from which on lag warns, as `{count: 5, period: minute}`.
        error_after: the age from which on it fails. Periods are minute, hour and day.

    Example:
        data_tests:
          - source_files: {arguments: {warn_after: {count: 15, period: minute}}}
    """

    test: ClassVar[str] = "source_files"
    needs: ClassVar[Sequence[str]] = ("ledgers", "kafka")
    uses: ClassVar[Sequence[str]] = ("delta", "sink_logs")
    about: ClassVar[SourceKind | None] = "a folder of files"
    scope: ClassVar[str] = "sink"

    warn_after: Period | None = None
    error_after: Period | None = None

    @override
    def judge(self, witnesses: Witnesses) -> Verdict:
        source, ledger = witnesses.source_log, entries_with_unrecorded_commits(witnesses)
        if not isinstance(source, SourceFiles):
            return Verdict(unproved=why_unknown(source, f"pipeline {witnesses.pipeline} reads no folder of files"))
        if ledger is None:
            return no_entries(witnesses)
        covered = coverage(ledger)
        read = {key: of[-1].walked.frontier for key, of in covered.incarnations.items() if is_files(key.topic)}
        if not read:
            return Verdict(unproved=f"no micro-batch of sink {witnesses.sink} read a folder of files")
        if reason := _why_unproved(source):
            return Verdict(unproved=reason)
        findings = Findings.of(witnesses)
        newest = next(key for key in read_last(ledger) if key in read)
        if newest.topic != source.topic:
            findings.add(
                Code.RECREATED,
                f"the checkpoint is of query {source.query_id}, and query {query_of(newest.topic)} read last: which "
                "files that one read is not known any more; correct the pipeline's checkpoint, or restore it",
                about=f"query {source.query_id}",
                key=newest,
            )
            return findings.verdict("")
        come_to = read[newest]
        _judge_log(newest, come_to, source, findings)
        _judge_history(newest, ledger, source, findings)
        _judge_begun_again(newest, covered, source, witnesses, findings)
        _judge_read_again(newest, source, witnesses, findings)
        for file, why in source.passed_over:
            what = f"{source.location}: {file.path} of {_at(file.modified)} was never read, and Spark passes over it"
            message = f"{what}: {why}; write it to the folder under a new name"
            findings.add(Code.GAP, message, about=f"{file.path} of {_at(file.modified)}", key=newest)
        waiting = [*source.waiting, *_logged(source, come_to)]
        entries = ledger_of(witnesses)
        if waiting and (entries is None or not entries.later):
            self._judge_waiting(newest, waiting, source, findings, witnesses.now)
        limits = {"warn_after": self.warn_after, "error_after": self.error_after}
        return findings.verdict(
            _message(source, come_to, len(waiting)),
            log_entries=0 if source.last is None else source.last + 1,
            files=source.files,
            read_up_to=come_to,
            waiting=len(waiting),
            gone=source.gone,
            subfolders=source.below,
            limits={name: str(limit) if limit else None for name, limit in limits.items()},
        )

    def _judge_waiting(
        self, key: Key, waiting: Sequence[SourceFile], source: SourceFiles, findings: Findings, now: datetime
    ) -> None:
        told = f"{plural(len(waiting), 'file')} {'waits' if len(waiting) == 1 else 'wait'} to be read"
        findings.add(Code.INFLIGHT, f"{source.location}: {told}", key=key)
        oldest = min(waiting, key=lambda file: file.modified)
        for code, limit in ((Code.STALLED, self.error_after), (Code.LAG, self.warn_after)):
            if limit is not None and now - oldest.modified > limit.length:
                why = f"{oldest.path} of {_at(oldest.modified)} is not read, longer than {limit}"
                message = f"{source.location}: {why}; see whether the query runs and keeps up"
                findings.add(code, message, about="waiting", key=key)
                return


def _why_unproved(source: SourceFiles) -> str:
    """Why the folder and the log say nothing of each other; "" where they do."""
    if source.sources > 1:
        return f"the query reads {source.sources} folders, and recon.yml names one: what it reads of each is not known"
    if not source.exists:
        return f"there is no folder at {source.location}: correct the pipeline's source (files)"
    if source.elsewhere:
        return (
            f"of {plural(source.files, 'file')} that the query read, {source.elsewhere:,} cannot be in "
            f"{source.location}: recon.yml names another folder than the query reads, or a part of it"
        )
    if source.unlisted:
        return (
            f"the query read {some(source.unlisted)} in {source.location}, which it does not read by what recon.yml "
            "says of it: name the very folder that it reads (files), and its recursiveFileLookup and pathGlobFilter "
            "(options)"
        )
    return ""


def _message(source: SourceFiles, come_to: int, waiting: int) -> str:
    read = f"read up to log entry {come_to - 1}" if come_to else "nothing read yet"
    told = f"{source.location}: {plural(source.files, 'file')} in the log, {read}; {plural(waiting, 'file')} to read"
    return f"{told}; {plural(source.below, 'file')} in subfolders, which Spark does not read" if source.below else told


def _logged(source: SourceFiles, come_to: int) -> Iterator[SourceFile]:
    """The files of log entries that no micro-batch in the ledger has read yet."""
    for number, files in source.entries.items():
        yield from files if number >= come_to else ()


def _judge_log(key: Key, come_to: int, source: SourceFiles, findings: Findings) -> None:
    end = 0 if source.last is None else source.last + 1
    if come_to > end:
        has = "has no entry" if source.last is None else f"ends with entry {source.last}"
        findings.add(
            Code.MUTATED,
            f"the log of files {has}, and entry {come_to - 1} of it was read: it was removed, or an older copy of the "
            "checkpoint was put in its place, and which files were read beyond is not known any more",
            key=key,
            span=(end, come_to),
        )
    for span in source.missing:
        findings.add(
            Code.INCONCLUSIVE,
            f"the log of files lacks {described(*span)}: which files they had is not known; restore the checkpoint",
            key=key,
            span=span,
        )


def _judge_history(key: Key, ledger: LedgerSlice, source: SourceFiles, findings: Findings) -> None:
    """Whether the log is still the one that was read: an older copy of a checkpoint goes on with other files."""
    for entry, head in enumerate(ledger.heads):
        ends = [read.end_offset for read in ledger.ranges.of(entry) if read.topic == key.topic]
        now = source.digests.get(max(ends, default=-1))
        if None not in (head.files_digest, now) and head.files_digest != now:
            findings.add(
                Code.MUTATED,
                f"the log of files up to log entry {max(ends) - 1} is another one than {named(head)} read: an older "
                "copy of the checkpoint was put in its place and went on with other files, which may be in no sink, "
                "while others are there twice; compare the rows, then accept this",
                head=head,
                key=key,
            )
            return


def _judge_begun_again(
    newest: Key, covered: Coverage, source: SourceFiles, witnesses: Witnesses, findings: Findings
) -> None:
    """A query with a log of its own reads every file that is in the folder, also those that were read before."""
    if witnesses.sink in witnesses.rewriting:
        return
    first = covered.incarnations[newest][0].stretches[0].first
    before = [
        (of[-1].stretches[-1].last, key)
        for key, of in covered.incarnations.items()
        if is_files(key.topic) and key.topic != newest.topic
    ]
    if not before or not covered.judged(first):
        return
    last, key = max(before)
    head = covered.slice.heads[last]
    again = [f for files in source.entries.values() for f in files if f.modified <= head.committed_at]
    if again:
        findings.add(
            Code.INCONCLUSIVE,
            f"{source.location}: query {query_of(newest.topic)} began with a log of its own and read "
            f"{plural(len(again), 'file')} from before {named(head)} of query {query_of(key.topic)}: those that this "
            "one had read are in the sink twice; compare the rows, then accept this",
            head=covered.slice.heads[first],
            key=newest,
        )


def _judge_read_again(key: Key, source: SourceFiles, witnesses: Witnesses, findings: Findings) -> None:
    """Files that were read twice, or changed after they were read; a finding of each.

    By its log entry it would be the same finding as that of another file there.
    """
    for taken in source.twice:
        if witnesses.sink in witnesses.rewriting:
            continue  # its rows replace those of the first time
        what = f"{source.location}: {taken.path} was read in log entry {taken.entry} and in {taken.again}"
        if taken.modified == taken.modified_again:
            findings.add(Code.DUPLICATE, f"{what}: its rows are in the sink twice", about=_twice(taken), key=key)
        else:
            written = f"written again at {_at(taken.modified_again)}"
            findings.add(
                Code.INCONCLUSIVE,
                f"{what}, {written}: rows that were in it before are in the sink twice; compare them, then accept this",
                about=_twice(taken),
                key=key,
            )
    for taken in source.renamed:
        if witnesses.sink not in witnesses.rewriting:
            findings.add(
                Code.INCONCLUSIVE,
                f"{source.location}: {taken.path}, read in log entry {taken.again}, has exactly the "
                f"modification time of {taken.before}, which was read in log entry {taken.entry} and is gone: where it "
                "was renamed, its rows are in the sink twice; compare them, then accept this",
                about=f"{taken.path} in {taken.again}, {taken.before} in {taken.entry}",
                key=key,
            )
    for taken in source.replaced:
        findings.add(
            Code.INCONCLUSIVE,
            f"{source.location}: {taken.path} was written again at {_at(taken.modified_again)}, after it was read in "
            f"log entry {taken.entry} as of {_at(taken.modified)}, and Spark reads a file once: rows new in it "
            "are in no sink; compare them, write new rows to new files, then accept this",
            about=f"{taken.path} in {taken.entry}, again {_at(taken.modified_again)}",
            key=key,
        )


def _twice(taken: ChangedFile) -> str:
    """A file and its two log entries, which tell it from others."""
    return f"{taken.path} in {taken.entry} and {taken.again}"


def _at(instant: datetime) -> str:
    return f"{instant:%Y-%m-%d %H:%M:%S}Z"
