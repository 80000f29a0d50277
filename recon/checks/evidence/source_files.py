"""source_files: whether the query reads every file of the folder, once; and what changed in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from itertools import chain
from typing import Any, ClassVar

from typing_extensions import override

from recon.base.text import plural, some
from recon.checks.age_check import AgeCheck, Limits, exceeded
from recon.judge.case import SinkCase
from recon.judge.coverage import Key, coverage, read_last
from recon.judge.findings import Findings, no_entries
from recon.model import Code, LedgerSlice, SourceFile, SourceFiles, Verdict, Witnesses, why_unknown
from recon.model.file_offsets import described, is_files, query_of
from recon.model.ledger import named
from recon.model.positions import SourceKind


@dataclass(frozen=True, kw_only=True)
class SourceFilesRead(AgeCheck):
    """The files of the folder that the query reads (`source: {files: …}`), against the log of Spark's file source.

    Proves that every file of the folder was read, once. It says which files wait, which ones Spark passes over without
    an error, and which ones were written again after they had been read. "complete" rests on it. It needs the ledger,
    the checkpoint's log of files and a listing of the folder, and no Spark.

    Args:
        warn_after: the age of the oldest file that waits from which on lag warns, as `{count: 5, period: minute}`.
        error_after: the age from which on it fails. Periods are minute, hour and day.

    Example:
        data_tests:
          - source_files: {arguments: {warn_after: {count: 15, period: minute}}}
    """

    test: ClassVar[str] = "source_files"
    needs: ClassVar[Sequence[str]] = ("ledgers", "kafka")
    uses: ClassVar[Sequence[str]] = ("delta", "sink_logs", "checkpoint")
    about: ClassVar[SourceKind | None] = "a folder of files"
    scope: ClassVar[str] = "sink"

    @override
    def judge(self, witnesses: Witnesses) -> Verdict:
        case, source = SinkCase(witnesses), witnesses.source_log
        if not isinstance(source, SourceFiles):
            return Verdict(unproved=why_unknown(source, f"pipeline {witnesses.pipeline} reads no folder of files"))
        if not case.entered.heads:
            return no_entries(witnesses)
        ledger = case.ledger
        incarnations = coverage(ledger).incarnations
        read = {key: of[-1].walked.frontier for key, of in incarnations.items() if is_files(key.topic)}
        if not read:
            return Verdict(unproved=f"no micro-batch of sink {witnesses.sink} read a folder of files")
        if reason := _why_unproved(source):
            return Verdict(unproved=reason)
        findings = Findings.of(witnesses)
        newest = next(key for key in read_last(ledger) if key in read)
        if newest.topic != source.topic:
            message = (
                f"the checkpoint is of query {source.query_id}, and query {query_of(newest.topic)} read last: which "
                "files that one read is not known any more; correct the pipeline's checkpoint, or restore it"
            )
            findings.add(Code.RECREATED, message, about=f"query {source.query_id}", key=newest)
            return findings.verdict("")
        folder = _Folder(newest, read[newest], source, ledger, witnesses, findings)
        folder.judge(self.limits)
        return findings.verdict(
            _message(source, folder.come_to, len(folder.waiting)),
            log_entries=folder.log_end,
            files=source.files,
            read_up_to=folder.come_to,
            waiting=len(folder.waiting),
            gone=source.gone,
            subfolders=source.below,
            limits=self.limits_told,
        )


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


@dataclass(frozen=True)
class _Folder:
    """How far the newest query came in the folder."""

    key: Key
    come_to: int
    source: SourceFiles
    ledger: LedgerSlice
    witnesses: Witnesses
    findings: Findings

    @cached_property
    def waiting(self) -> Sequence[SourceFile]:
        """Files that are to be read: no log entry has them, or no micro-batch in the ledger has read it yet."""
        logged = (files for number, files in self.source.entries.items() if number >= self.come_to)
        return [*self.source.waiting, *chain.from_iterable(logged)]

    @property
    def log_end(self) -> int:
        """The number behind the last log entry."""
        return 0 if self.source.last is None else self.source.last + 1

    def judge(self, limits: Limits) -> None:
        """Judges what was not read, and what changed in what was; `limits` are those of the age."""
        self._judge_log()
        self._judge_history()
        if self.witnesses.sink not in self.witnesses.rewriting:  # else rows replace those of the first time
            self._judge_begun_again()
            self._judge_twice()
        self._judge_replaced()
        for file, why in self.source.passed_over:
            of = f"{file.path} of {_at(file.modified)}"
            rest = f"was never read, and Spark passes over it: {why}; write it to the folder under a new name"
            self._add(Code.GAP, f"{of} {rest}", about=of)
        if self.waiting and not self.ledger.later:
            self._judge_waiting(limits)

    def _judge_waiting(self, limits: Limits) -> None:
        self._add(Code.INFLIGHT, f"{plural(len(self.waiting), 'file')} to be read")
        oldest = min(self.waiting, key=lambda file: file.modified)
        late = exceeded(limits, self.witnesses.now - oldest.modified)
        if late is not None:
            why = f"{oldest.path} of {_at(oldest.modified)} is not read, longer than {limits[late]}"
            self._add(late, f"{why}; see whether the query runs and keeps up", about="waiting")

    def _judge_log(self) -> None:
        end = self.log_end
        if self.come_to > end:
            sentence = (
                f"the log of files has {plural(end, 'entry', 'entries')}, and entry {self.come_to - 1} of it was read: "
                "an older copy of the checkpoint was put in its place, and which files were read beyond is not known"
            )
            self._add(Code.MUTATED, sentence, span=(end, self.come_to))
        for span in self.source.missing:
            lacks = f"the log of files lacks {described(*span)}"
            message = f"{lacks}: which files they had is not known; restore the checkpoint"
            self._add(Code.INCONCLUSIVE, message, span=span)

    def _judge_history(self) -> None:
        """Whether the log is still the one that was read: an older copy of a checkpoint goes on with other files."""
        for entry, head in enumerate(self.ledger.heads):
            ends = [read.end_offset for read in self.ledger.ranges.of(entry) if read.topic == self.key.topic]
            now = self.source.digests.get(max(ends, default=-1))
            if None not in (head.files_digest, now) and head.files_digest != now:
                message = (
                    f"the log of files up to log entry {max(ends) - 1} is another one than {named(head)} read: an "
                    "older copy of the checkpoint went on with other files; compare the rows, then accept this"
                )
                self._add(Code.MUTATED, message, head=head)
                return

    def _judge_begun_again(self) -> None:
        """A query with a log of its own reads every file that is in the folder, also those that were read before."""
        covered, heads = coverage(self.ledger), self.ledger.heads
        first = covered.incarnations[self.key][0].stretches[0].first
        others = {
            key: of for key, of in covered.incarnations.items() if is_files(key.topic) and key.topic != self.key.topic
        }
        before = [(of[-1].stretches[-1].last, key) for key, of in others.items()]
        if not before or not covered.judged(first):
            return
        last, key = max(before)
        logged = chain.from_iterable(self.source.entries.values())
        again = [file for file in logged if file.modified <= heads[last].committed_at]
        if again:
            message = (
                f"query {query_of(self.key.topic)} began with a log of its own and read {plural(len(again), 'file')} "
                f"from before {named(heads[last])} of query {query_of(key.topic)}: those that this one had read are in "
                "the sink twice; compare the rows, then accept this"
            )
            self._add(Code.INCONCLUSIVE, message, head=heads[first])

    def _judge_twice(self) -> None:
        """Files that were read twice; a finding of each: by its log entry it would be that of another file there."""
        for taken in self.source.twice:
            same = taken.modified == taken.modified_again
            rest = "its rows" if same else f"written again at {_at(taken.modified_again)}: rows that were in it before"
            what = (
                f"{taken.path} was read in log entry {taken.entry} and in {taken.again}: {rest} are in the sink twice"
            )
            about = f"{taken.path} in {taken.entry} and {taken.again}"
            self._add(Code.DUPLICATE if same else Code.INCONCLUSIVE, what, about=about)
        for taken in self.source.renamed:
            self._add(
                Code.INCONCLUSIVE,
                f"{taken.path}, read in log entry {taken.again}, has exactly the modification time of {taken.before}, "
                f"which was read in log entry {taken.entry} and is gone: where it was renamed, its rows are in the "
                "sink twice; compare them, then accept this",
                about=f"{taken.path} in {taken.again}, {taken.before} in {taken.entry}",
            )

    def _judge_replaced(self) -> None:
        """Files that changed after they were read."""
        for taken in self.source.replaced:
            again = _at(taken.modified_again)
            message = (
                f"{taken.path} was written again at {again}, after it was read in log entry {taken.entry}, and Spark "
                "reads a file once: rows new in it are in no sink; compare them, then accept this"
            )
            self._add(Code.INCONCLUSIVE, message, about=f"{taken.path} in {taken.entry}, again {again}")

    def _add(self, code: Code, message: str, **where: Any) -> None:
        self.findings.add(code, f"{self.source.location}: {message}", key=self.key, **where)


def _at(instant: datetime) -> str:
    return f"{instant:%Y-%m-%d %H:%M:%S}Z"
