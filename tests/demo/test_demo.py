"""The whole demo, as a newcomer runs it, and the commands it suggests afterwards."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from recon.local.demo import events
from recon.local.kafka import running_broker, stop_detached
from recon.local.process import command_line

# One run is before the first test: a minute or five, and three times that on a busy machine.
pytestmark = pytest.mark.timeout(2400)

RECON = [sys.executable, "-m", "recon.cli"]
# Only a run that stands still meets it.
LIMIT_S = 1800.0


def recon(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command, as it is typed in the demo's folder."""
    env = {k: v for k, v in os.environ.items() if k != "KAFKA_BOOTSTRAP"}
    return subprocess.run(
        [*RECON, *arguments], cwd=folder, capture_output=True, text=True, timeout=LIMIT_S, check=False, env=env
    )


@dataclass
class Demo:
    folder: Path
    output: str
    errors: str
    code: int

    @property
    def results(self) -> dict[str, Any]:
        """Those of the first audit."""
        return json.loads((self.folder / "target" / "run_results.json").read_text())

    @property
    def repaired(self) -> dict[str, Any]:
        """Those of the audit after the repair."""
        return json.loads((self.folder / "target" / "repaired" / "run_results.json").read_text())


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    """One run for all tests; the broker is kept, so that both worlds can be looked at."""
    folder = tmp_path_factory.mktemp("demo") / "demo-lake"
    # A broker of the user's own must not be touched: the demo has to ignore this one.
    env = {**os.environ, "KAFKA_BOOTSTRAP": "127.0.0.1:1"}
    ran = subprocess.run(
        [*RECON, "demo", "--dir", str(folder), "--keep-broker"],
        capture_output=True, text=True, timeout=LIMIT_S, check=False, env=env,
    )  # fmt: skip
    try:
        yield Demo(folder, ran.stdout, ran.stderr, ran.returncode)
    finally:
        stop_detached(folder / "kafka")


def by_name(results: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {r["unique_id"].removeprefix("test.demo."): r for r in results["results"]}


def codes(result: dict[str, Any]) -> list[tuple[Any, ...]]:
    findings = result["adapter_response"]["findings"]
    return [(f["code"], f["partition"], f["start_offset"], f["end_offset"]) for f in findings]


def test_it_ends_well(demo: Demo) -> None:
    assert demo.code == 0, demo.output[-3000:] + demo.errors[-3000:]
    assert demo.errors == ""


def test_it_tells_what_happens(demo: Demo) -> None:
    output = " ".join(demo.output.split())
    assert re.search(r"Process \d+ was killed \(SIGKILL\) after Delta version 5, before its ledger entry", output)
    assert "rebuilt (attempt 1), then already_committed (attempt 2)" in output
    assert "12 commits for 12 micro-batches, 200,000 rows: each event once" in output
    assert "offsets [3010, 3710)" in output
    assert "100 rows are gone" in output
    assert "The audit found exactly the faults that were made" in output
    assert "payments.payments: 100 offsets were read again and 100 rows written" in output
    accepted = "complete, but for 3 accepted findings (700 offsets lost, 100 records removed)"
    assert f"Pipeline payments: {accepted}" in " ".join(output.split())
    unbroken = "".join(demo.output.split())  # a long path is broken across lines
    assert str(demo.folder / "target" / "report.html") in unbroken
    assert str(demo.folder / "target" / "repaired" / "report.html") in unbroken


def test_the_audits_lines_are_clean(demo: Demo) -> None:
    lines = [line for line in demo.output.splitlines() if re.match(r"\d+ of \d+ (PASS|FAIL|WARN|ERROR|SKIP)", line)]
    assert len(lines) == len(demo.results["results"]) + len(demo.repaired["results"])
    assert sum(" PASS " in line for line in lines) == len(lines) - 3 - 1
    for noise in ("ivy", " WARN ", "log4j", "Setting default log level", "incubator"):
        assert noise not in demo.output, noise


def test_orders_is_complete(demo: Demo) -> None:
    results = by_name(demo.results)
    of_orders = {name: r for name, r in results.items() if r["adapter_response"]["pipeline"] == "orders"}
    assert len(of_orders) == 10
    assert {r["status"] for r in of_orders.values()} == {"pass"}
    assert "REPLAYED" in {code for code, *_ in codes(of_orders["offset_continuity_orders"])}
    assert "REBUILT" in {code for code, *_ in codes(of_orders["ledger_integrity_orders"])}


def test_payments_has_exactly_its_faults(demo: Demo) -> None:
    results = by_name(demo.results)
    of_payments = {name: r for name, r in results.items() if r["adapter_response"]["pipeline"] == "payments"}
    failed = {name for name, r in of_payments.items() if r["status"] == "fail"}
    assert failed == {"delta_history_payments", "source_rows_payments", "unique_payments_payment_id"}
    assert {r["status"] for name, r in of_payments.items() if name not in failed} == {"pass"}
    assert {code for code, *_ in codes(of_payments["delta_history_payments"])} == {"MUTATED", "GAP"}
    refuting = [f for f in codes(of_payments["source_rows_payments"]) if f[0] not in ("EXPLAINED", "EMPTY")]
    assert sorted(refuting) == [("GAP", p, 4260, 4285) for p in range(4)] + [("LOSS_RETENTION", 2, 3010, 3710)]
    assert of_payments["unique_payments_payment_id"]["failures"] == events.SENT_TWICE


def test_the_pipelines_answers(demo: Demo) -> None:
    text = json.dumps(demo.results)
    assert '"orders"' in text
    answers = {p["name"]: p["answer"] for p in find(demo.results, "pipelines")}
    assert answers == {"orders": "complete", "payments": "not complete"}


def test_the_repair_is_judged(demo: Demo) -> None:
    results = by_name(demo.repaired)
    assert {name for name, r in results.items() if r["status"] != "pass"} == {"unique_payments_payment_id"}
    repaired = [f for f in codes(results["source_rows_payments"]) if f[0] == "REPAIRED"]
    assert sorted(repaired) == [("REPAIRED", p, 4260, 4285) for p in range(events.PAYMENTS_PARTITIONS)]
    (payments,) = find(demo.repaired, "pipelines")
    assert payments["answer"] == "complete"
    assert sum("accepted by Ada Lovelace" in sentence for sentence in payments["accepted"]) == 3
    assert "accepted by Ada Lovelace" in (demo.folder / "target" / "repaired" / "report.html").read_text()


def find(tree: Any, key: str) -> Any:
    """The first value of a key anywhere in a JSON tree."""
    if isinstance(tree, dict):
        if key in tree:
            return tree[key]
        tree = list(tree.values())
    if isinstance(tree, list):
        for branch in tree:
            if (value := find(branch, key)) is not None:
                return value
    return None


def test_its_findings_are_listed_and_what_stays_is_accepted(demo: Demo) -> None:
    listed = recon(demo.folder, "findings", "--pipeline", "payments", "--output", "json")
    assert listed.returncode == 0, listed.stderr
    findings = json.loads(listed.stdout)
    assert all(one["accepted"] for one in findings)
    assert sorted((one["finding"]["code"], one["finding"]["partition"] or -1) for one in findings) == [
        ("GAP", -1), ("LOSS_RETENTION", events.EXPIRED_PARTITION), ("MUTATED", -1),
    ]  # fmt: skip
    for one in findings:
        assert one["id"] in demo.output


def test_the_ledger_shows_the_repair(demo: Demo) -> None:
    shown = recon(demo.folder, "ledger", "show", "--pipeline", "payments", "--output", "json")
    assert shown.returncode == 0, shown.stderr
    last = json.loads(shown.stdout)[-1]
    assert (last["epoch"], last["status"], last["rows_written"]) == (-2, "repaired", 100)


def test_what_is_left(demo: Demo) -> None:
    left = {path.name for path in demo.folder.iterdir()}
    assert left == {
        ".recon-demo", "checkpoints", "kafka", "lake", "logs", "orders.py", "payments.py", "recon.yml", "target",
    }  # fmt: skip
    files = {"report.html", "run_results.json"}
    assert {path.name for path in (demo.folder / "target").iterdir()} == files | {"repaired"}
    assert {path.name for path in (demo.folder / "target" / "repaired").iterdir()} == files
    assert {path.name for path in (demo.folder / "lake").iterdir()} == {"_recon", "orders", "payments"}


def test_the_ledger_shows_the_crash(demo: Demo) -> None:
    shown = recon(demo.folder, "ledger", "show", "--pipeline", "orders", "--output", "json")
    assert shown.returncode == 0, shown.stderr
    entries = json.loads(shown.stdout)
    assert len(entries) == 13
    assert [e["status"] for e in entries if e["batch_id"] == events.CRASH_AT] == ["rebuilt", "already_committed"]
    assert sum(e["rows_written"] for e in entries if e["status"] != "already_committed") == events.ORDERS_EVENTS
    verified = recon(demo.folder, "ledger", "verify")
    assert verified.returncode == 0, verified.stdout


def test_offsets_continue_at_the_end(demo: Demo) -> None:
    completed = recon(demo.folder, "offsets", "--pipeline", "orders")
    assert completed.returncode == 0, completed.stderr
    ends = json.loads(completed.stdout)["orders"]
    assert len(ends) == events.ORDERS_PARTITIONS
    # Events, records of aborted transactions, and a marker per transaction and partition.
    aborted = len(events.ORDERS_ABORTED)
    markers = (events.ORDERS_TRANSACTIONS + aborted) * events.ORDERS_PARTITIONS
    assert sum(ends.values()) == events.ORDERS_EVENTS + aborted * events.EVENTS_PER_TRANSACTION + markers


def test_report_and_compliance_are_drawn(demo: Demo, tmp_path: Path) -> None:
    drawn = recon(demo.folder, "report", "--output", str(tmp_path / "again.html"))
    assert drawn.returncode == 0, drawn.stderr
    assert "LOSS_RETENTION" in (tmp_path / "again.html").read_text()
    today = str(datetime.now(UTC).date())
    yesterday = "1d"  # the demo may have begun before midnight
    made = recon(demo.folder, "compliance", "--from", yesterday, "--to", today, "--output", str(tmp_path / "c.html"))
    assert made.returncode == 0, made.stderr
    assert "payments" in (tmp_path / "c.html").read_text()


def test_with_the_broker_and_then_without(demo: Demo, tmp_path: Path) -> None:
    broker = running_broker(demo.folder / "kafka")
    assert broker is not None, "--keep-broker kept it"
    assert "recon local kafka stop --dir" in demo.output
    with_it = recon(demo.folder, "audit", "--no-spark", "--target-path", str(tmp_path / "with"))
    assert with_it.returncode == 0, with_it.stderr
    results = by_name(json.loads((tmp_path / "with" / "run_results.json").read_text()))
    assert results["kafka_end_offsets_orders"]["status"] == "pass"
    assert results["source_rows_orders"]["status"] == "skipped"
    assert "--no-spark" in results["source_rows_orders"]["message"]

    stopped = recon(demo.folder, "local", "kafka", "stop", "--dir", "kafka")
    assert stopped.returncode == 0, stopped.stderr
    assert command_line(broker.pid) is None

    without = recon(demo.folder, "audit", "--no-spark", "--target-path", str(tmp_path / "without"))
    assert without.returncode == 1, without.stderr
    results = by_name(json.loads((tmp_path / "without" / "run_results.json").read_text()))
    for pipeline in ("orders", "payments"):
        result = results[f"kafka_end_offsets_{pipeline}"]
        assert result["status"] == "error"
        assert broker.bootstrap_servers in result["message"]
    assert results["offset_continuity_orders"]["status"] == "pass", "needs no broker"
    assert results["delta_history_payments"]["status"] == "pass"


def test_ctrl_c_stops_everything(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    with log.open("w") as out:
        # A shell starts what runs behind it (`make test &`) with Ctrl-C ignored, and this process would inherit that.
        process = subprocess.Popen(
            [*RECON, "demo", "--dir", str(tmp_path / "lake")],
            stdout=out,
            stderr=out,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
    job = None
    deadline = time.monotonic() + 120
    while job is None and time.monotonic() < deadline and process.poll() is None:
        job = job_of(tmp_path / "lake")
        time.sleep(0.1)
    assert job is not None, log.read_text()
    broker = re.search(r"Process (\d+) listens", log.read_text())
    assert broker is not None, log.read_text()
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    assert "interrupted" in log.read_text()
    assert command_line(int(broker[1])) is None, "the broker still runs"
    assert command_line(job) is None, "the job still runs"


def job_of(folder: Path) -> int | None:
    """The process that runs orders.py in this folder."""
    for proc in Path("/proc").glob("[0-9]*"):
        words = command_line(int(proc.name)) or ""
        try:
            here = (proc / "cwd").resolve() == folder.resolve()
        except OSError:
            continue
        if here and "orders.py" in words and words.startswith(sys.executable):
            return int(proc.name)
    return None
