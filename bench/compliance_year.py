"""The compliance report of a year: 20 pipelines, 365 days, an audit a day, as a whole process without a JVM.

The ledger has an entry an hour of each pipeline, of four partitions, sealed and chained, in a file a day as a merge of
small files leaves it; each day's audit ran ten checks of every pipeline and left the states of proofs. One pipeline in
five has a gap every fortnight, which is accepted or stays open; five days have no audit.

`compliance_year`: `recon compliance` from exec to exit, HTML written; its floor is a Python process that reads the same
rows by deltalake. `compliance_year_pdf`: the same report as PDF/A; its floor is the HTML. `python -m
bench.compliance_year` measures both in one run and prints the sizes, too.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from deltalake import CommitProperties, Transaction, write_deltalake

from recon.model import CheckResult, Code, Finding, LedgerEntry, RunRecord, RunResult
from recon.model.offsets import OffsetSpan
from recon.model.proof import Acceptance, OpenFinding, SinkProof
from recon.model.wire.app_ids import chain_id
from recon.project import load
from recon.write.ledger import Ledger, arrow, columns, open_ledger
from recon.write.ledger.chain import link
from recon.write.ledger.proofs import sealed_state
from recon.write.ledger.results import append_run, hash_of, rows_of

PIPELINES, DAYS, A_DAY, PARTITIONS = 20, 365, 24, 4
NO_AUDIT = (17, 18, 90, 200, 201)
BEGIN = datetime(2025, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
EVIDENCE = ("ledger_integrity", "offset_continuity", "checkpoint_commits", "delta_history", "source_rows")
TESTS = ("not_null", "unique", "accepted_values", "row_count")
TURNS = 3
_READ = """
import sys
from deltalake import DeltaTable
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem
for kind in ("ledger", "results", "proof"):
    folder = f"{sys.argv[1]}/_recon/{kind}"
    DeltaTable(folder).to_pyarrow_table(filesystem=SubTreeFileSystem(folder, LocalFileSystem()))
"""


def main() -> None:
    """Prints the medians of reports as HTML and as PDF, and of readings, taken in turn."""
    with year() as folder:
        turns = [(_html(folder), _pdf(folder), _reading(folder)) for _ in range(TURNS)]
        sizes = [(folder / f"target/compliance.{kind}").stat().st_size / 1e6 for kind in ("html", "pdf")]
    html, pdf, reading = (statistics.median(times) for times in zip(*turns, strict=True))
    print(
        f"report {html:.1f} s, reading alone {reading:.1f} s, PDF {pdf:.1f} s; "
        f"HTML {sizes[0]:.1f} MB, PDF {sizes[1]:.1f} MB"
    )


def as_html() -> dict[str, Any]:
    """The report as HTML beside reading its rows."""
    return _result("compliance_year", _html, _reading)


def as_pdf() -> dict[str, Any]:
    """The report as PDF/A beside the same as HTML."""
    return _result("compliance_year_pdf", _pdf, _html)


def _result(name: str, ours: Callable[[Path], float], floor: Callable[[Path], float]) -> dict[str, Any]:
    with year() as folder:
        turns = [(ours(folder), floor(folder)) for _ in range(TURNS + 1)][1:]  # the first warms the page cache
    mine, least = (statistics.median(times) for times in zip(*turns, strict=True))
    return {"name": name, "ours": mine, "floor": least, "ratio": mine / least, "unit": "s", "peers": {}}


@contextmanager
def year() -> Iterator[Path]:
    """The folder of a project with a year of entries and audits."""
    folder = Path(tempfile.mkdtemp(prefix="recon-year-"))
    try:
        begun = time.perf_counter()
        build(folder)
        print(f"built in {time.perf_counter() - begun:.0f} s", file=sys.stderr)
        yield folder
    finally:
        shutil.rmtree(folder)


def _html(folder: Path) -> float:
    return _report(folder, "html")


def _pdf(folder: Path) -> float:
    return _report(folder, "pdf")


def _reading(folder: Path) -> float:
    return _seconds(lambda: _python("-c", _READ, str(folder)))


def _report(folder: Path, kind: str) -> float:
    end = BEGIN + DAYS * DAY
    period = ("--from", f"{BEGIN:%Y-%m-%d}", "--to", f"{end - DAY:%Y-%m-%d}", "--format", kind)
    return _seconds(lambda: _python("-m", "recon.cli", "compliance", *period, "--project-dir", str(folder)))


def _python(*arguments: str) -> None:
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)


def _seconds(call: Callable[[], object]) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def names(pipelines: int) -> list[str]:
    """The names of the pipelines; the sink of each has the same."""
    return [f"p{n:02}" for n in range(pipelines)]


def build(folder: Path, pipelines: int = PIPELINES, days: int = DAYS) -> None:
    """A project with its ledger, results and proofs."""
    listed = "\n".join(
        f"  - {{name: {name}, checkpoint: cp/{name}, owner: team, "
        f"sinks: [{{name: {name}, kind: delta, target: t/{name}}}]}}"
        for name in names(pipelines)
    )
    (folder / "recon.yml").write_text(f"version: 2\nname: lake\nledger: _recon\npipelines:\n{listed}\n")
    ledger = open_ledger(load(folder))
    _audits(ledger, pipelines, days, _entries(ledger, pipelines, days))


def _entries(ledger: Ledger, pipelines: int, days: int) -> dict[tuple[str, int], str]:
    """Appends the entries; the hash of the last one of each pipeline and day."""
    heads = dict.fromkeys(names(pipelines), "")
    ends: dict[tuple[str, int], str] = {}
    location = ledger.location
    for day in range(days):
        of_day: list[LedgerEntry] = []
        for name in names(pipelines):
            for hour in range(A_DAY):
                linked = link(
                    _entry(name, day * A_DAY + hour, BEGIN + day * DAY + hour * timedelta(hours=1)), heads[name]
                )
                heads[name] = linked.entry_hash
                of_day.append(linked)
            ends[name, day] = heads[name]
        table = columns.to_table(of_day)
        if day == 0:
            ledger.store.append(table)
        else:
            last = day == days - 1
            txn = [Transaction(chain_id(name, name), days * A_DAY, None) for name in heads] if last else None
            write_deltalake(location, table, mode="append", commit_properties=CommitProperties(app_transactions=txn))
    return ends


def _entry(name: str, batch_id: int, at: datetime) -> LedgerEntry:
    start = batch_id * 1000
    return LedgerEntry(
        pipeline=name, sink=name, sequence=batch_id + 1, sink_kind="delta", target=f"t/{name}",
        guarantee="exactly-once", query_id=f"q-{name}", run_id=None, epoch=0, batch_id=batch_id, attempt=1,
        status="committed", rows_read=4000, rows_written=4000, rows_quarantined=0, rows_filtered=0,
        sink_version=batch_id, started_at=at, committed_at=at + timedelta(seconds=4), spark_version="4.0.0",
        recon_version="0.1.0", checks_fingerprint=None, prev_hash="", entry_hash="",
        offsets=tuple(OffsetSpan(name, f"id-{name}", p, start, start + 1000) for p in range(PARTITIONS)),
    )  # fmt: skip


def _audits(ledger: Ledger, pipelines: int, days: int, ends: Mapping[tuple[str, int], str]) -> None:
    """An audit a day, and the states that these leave, each behind the one before; `ends` are of `_entries`."""
    heads = dict.fromkeys(names(pipelines), "")
    lengths = dict.fromkeys(names(pipelines), 0)
    known: dict[str, list[OpenFinding]] = {name: [] for name in names(pipelines)}
    for day in range(days):
        if day in NO_AUDIT:
            continue
        at = BEGIN + (day + 1) * DAY + timedelta(hours=1)
        begin = BEGIN + day * DAY
        results = tuple(r for n, name in enumerate(names(pipelines)) for r in _results(name, day, n, at, known))
        record = RunRecord(by="cron on lake-1", config="recon.yml", config_hash=f"{day // 90:064x}",
                           checks=dict.fromkeys(names(pipelines), len(EVIDENCE) + len(TESTS) + 1))  # fmt: skip
        run = RunResult(
            invocation_id=f"audit-{day:04}", project="lake", recon_version="0.1.0", generated_at=at,
            period_from=begin, period_to=at, elapsed_time=1.0, results=results, record=record,
        )  # fmt: skip
        append_run(ledger.results, run)
        by_pipeline: dict[str, list[Any]] = {}
        for row in rows_of(run):
            by_pipeline.setdefault(row["pipeline"], []).append(row)
        states = []
        for name in names(pipelines):
            lengths[name] += 1
            state = SinkProof(
                pipeline=name, sink=name, at=at, invocation_id=run.invocation_id, position=(day + 1) * A_DAY,
                chain_head=ends[name, day], first_epoch=0, first_batch_id=0,
                results_hash=hash_of(by_pipeline[name]), open=tuple(known[name]),
            )  # fmt: skip
            row = sealed_state(state, number=lengths[name], prev_hash=heads[name], cause="audit", at=at)
            heads[name] = row["entry_hash"]
            states.append(row)
        store = ledger.proofs.store
        table = arrow.table(states, store.schema)
        if not store.exists():
            store.append(table)
        else:
            txn = [Transaction(chain_id(name, name), lengths[name], None) for name in heads]
            write_deltalake(store.location, table, mode="append",
                            commit_properties=CommitProperties(app_transactions=txn))  # fmt: skip


def _results(
    name: str, day: int, number: int, at: datetime, known: dict[str, list[OpenFinding]]
) -> Iterator[CheckResult]:
    findings = [open_finding.finding for open_finding in known[name] if open_finding.accepted is None]
    known[name] = [
        open_finding if open_finding.accepted or number % 2 else _accepted(open_finding, at)
        for open_finding in known[name]
    ]
    if number % 5 == 0 and day % 14 == 0:
        start = day * A_DAY * 1000 + 500
        gap = Finding(
            code=Code.GAP, message=f"{name}-0: offsets [{start}, {start + 2}) have no row", pipeline=name, sink=name,
            topic=name, topic_id=f"id-{name}", partition=0, start_offset=start, end_offset=start + 2,
        )  # fmt: skip
        findings.append(gap)
        known[name].append(OpenFinding(finding=gap, check="source_rows", first_seen=at, last_seen=at))
    for check in (*EVIDENCE, "kafka_end_offsets", *TESTS):
        found = tuple(findings) if check == "source_rows" else ()
        evidence: dict[str, Any] = {}
        if check == "ledger_integrity":
            evidence = {"judged": [day * A_DAY + 1, (day + 1) * A_DAY], "chain_head": "h", "chain_position": day}
        elif check == "kafka_end_offsets":
            evidence = {"limits": {"warn_after": "5 minutes", "error_after": None}, "lag": 0}
        yield CheckResult(
            unique_id=f"test.lake.{check}_{name}", name=f"{check}_{name}", check=check,
            kind="data" if check in TESTS else "evidence", status="fail" if found else "pass", failures=len(found),
            message="", pipeline=name, sink=name, findings=found, evidence=evidence,
        )  # fmt: skip


def _accepted(open_finding: OpenFinding, at: datetime) -> OpenFinding:
    return replace(open_finding, accepted=Acceptance(by="Ada Lovelace", reason="test data", at=at))


if __name__ == "__main__":
    main()
