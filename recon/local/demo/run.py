"""`recon demo`: a real broker, two real streams, faults made on purpose, the audit that finds them, and their repair.

Every part is a process of its own: the broker, the two jobs (orders.py and payments.py in the demo's folder), and
recon's commands, which share one Spark session. The versions and counts that the demo prints are read from the Delta
log and the ledger. What the audits find is compared with the faults that were made.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from recon.audits.accept import open_findings
from recon.base.clock import utc_now
from recon.base.errors import ReconError
from recon.base.storage import Storage
from recon.base.text import short_path
from recon.local.client import KafkaClient
from recon.local.demo import events
from recon.local.demo.expected import differences
from recon.local.demo.folder import DemoFolder
from recon.local.demo.shell import Shell
from recon.local.java import java_home
from recon.local.kafka import LocalKafka, start_detached, stop_detached
from recon.local.process import ChildProcess, tail
from recon.model import Code, Finding, LedgerEntry, RunResult, TableCommit
from recon.project import Project, load
from recon.reports import run_results
from recon.witness import delta_log
from recon.write.ledger import open_ledger

if TYPE_CHECKING:
    from rich.status import Status

_AS_EXPECTED, _DIFFERENT = 0, 1


def run(dir: Path, keep_broker: bool) -> int:
    """Runs the demo in a folder; returns 0 when the audits found exactly the faults that were made, else 1.

    Args:
        dir: an empty or new folder, or one of an earlier demo, which is replaced.
        keep_broker: leave the broker running.

    Raises:
        ConfigError: the folder holds other files, or Java or the jars are missing.
        ReconError: a job did not run.
    """
    began = time.monotonic()
    console = _Narrator()
    with DemoFolder(dir) as folder:
        console.say(
            "Everything here is real and runs on this machine: a Kafka broker, two Spark streams into Delta tables, "
            "faults made on purpose, and their repair. It takes about two minutes."
        )
        console.say(f"All of it stays in {short_path(folder.path)} to look at afterwards.")
        with _broker(folder, keep_broker, console) as kafka:
            folder.write_project(kafka.bootstrap_servers)
            demo = _Demo(folder, kafka, load(folder.path), console)
            demo.orders()
            demo.payments()
            code = demo.answers()
        console.step("What to try next")
        _print_next_commands(folder, kafka, keep_broker, console)
        console.say(f"The demo took {time.monotonic() - began:.0f} s.")
    return code


class _Narrator:
    """Prints sentences on the console, and a progress line while something takes long."""

    def __init__(self) -> None:
        from rich.console import Console

        self._out = Console(highlight=False, markup=False, emoji=False)
        self._step = 0

    def step(self, title: str) -> None:
        self._step += 1
        self._out.print()
        self._out.print(f"{self._step}. {title}", style="bold")

    def say(self, sentence: str, style: str | None = None) -> None:
        from rich.padding import Padding
        from rich.text import Text

        self._out.print(Padding(Text(sentence, style=style or ""), (0, 0, 0, 3 if self._step else 0)))

    def command(self, words: str, comment: str = "") -> None:
        """Prints a command; never wrapped, so that it can be copied."""
        from rich.text import Text

        line = Text("   $ ", style="dim").append(words, style="bold not dim")
        self._out.print(line.append(f"   # {comment}" if comment else ""), soft_wrap=True)

    def blank(self) -> None:
        self._out.print()

    @contextmanager
    def working(self, on_what: str) -> Iterator[Callable[[str], None]]:
        """Shows a progress line on a terminal; yields a function that changes its text."""
        if not self._out.is_terminal:
            yield lambda _: None
            return
        status: Status
        with self._out.status(f"   {on_what}") as status:
            yield lambda text: status.update(f"   {text}")


@contextmanager
def _broker(folder: DemoFolder, keep: bool, console: _Narrator) -> Iterator[KafkaClient]:
    """Runs the broker until the demo ends; with `keep` it runs on, unless the demo fails."""
    console.step("A Kafka broker")
    began = time.monotonic()
    if not keep:
        with console.working("starting"):
            broker = LocalKafka(folder.kafka).start()
        with broker:
            console.say(_broker_runs(broker.pid, broker.bootstrap_servers, time.monotonic() - began))
            yield broker
        return
    try:
        with console.working("starting"):
            info = start_detached(folder.kafka)
        console.say(_broker_runs(info.pid, info.bootstrap_servers, time.monotonic() - began))
        yield KafkaClient(info.bootstrap_servers)
    except BaseException:
        stop_detached(folder.kafka)
        raise


def _broker_runs(pid: int, address: str, seconds: float) -> str:
    return f"Process {pid} listens on {address} (ready in {seconds:.0f} s; its log is kafka/broker.log)."


class _Demo:
    """The demo's steps, in order."""

    def __init__(self, folder: DemoFolder, kafka: KafkaClient, project: Project, console: _Narrator) -> None:
        self.folder, self.kafka, self.project, self.console = folder, kafka, project, console
        # Spark's launcher runs the Java of JAVA_HOME; KAFKA_BOOTSTRAP in the user's environment may be another broker.
        settings = {"JAVA_HOME": str(java_home()), "KAFKA_BOOTSTRAP": kafka.bootstrap_servers}
        self._env = {**os.environ, **settings}

    # -- orders ------------------------------------------------------------------------------------

    def orders(self) -> None:
        """Writes transactions, runs the stream, kills its process, restarts it."""
        console = self.console
        console.step(f"orders: {events.ORDERS_EVENTS:,} events, written in transactions")
        self.kafka.create_topic("orders", events.ORDERS_PARTITIONS)
        with console.working("producing"):
            sent = events.send_orders(self.kafka, "orders")
        console.say(
            f"{events.ORDERS_TRANSACTIONS} transactions over {events.ORDERS_PARTITIONS} partitions were committed. "
            f"{len(events.ORDERS_ABORTED)} of them had been aborted first and were sent again: their "
            f"{sent.aborted:,} records are in the topic too, and must not arrive in the table."
        )
        console.say(
            f"Transaction markers take offsets as well: {sent.offsets:,} offsets for {sent.committed:,} events. "
            "Comparing the number of offsets with the number of rows therefore proves nothing."
        )

        console.step("orders: the stream, and its process is killed")
        console.say("orders.py reads the topic with read_committed and writes each micro-batch through recon's hook.")
        self._crash()
        self._restart(sent)

    def _crash(self) -> None:
        job = self._start("orders", ["-m", "recon.local.demo.crash", "orders.py", str(events.CRASH_AT)])
        self._await(job, "orders")
        if job.exit_code != -signal.SIGKILL:
            raise ReconError(self._failed(job, "orders.py was to be killed and"))
        commit, entry = self._commits("orders")[-1], self._entries("orders")[-1]
        landed = commit.stamp.batch_id if commit.stamp else None
        if (landed, entry.batch_id) != (events.CRASH_AT, events.CRASH_AT - 1):
            raise ReconError(
                f"the crash was not where it was meant to be: Delta ends with micro-batch {landed}, the ledger with "
                f"{entry.batch_id}; run the demo again"
            )
        self.console.say(
            f"Process {job.pid} was killed (SIGKILL) after Delta version {commit.version}, before its ledger entry: "
            f"the rows of micro-batch {landed} are in the table, the ledger ends with micro-batch {entry.batch_id}. "
            "Spark has not recorded the micro-batch as done, and will run it again.",
            style="yellow",
        )

    def _restart(self, sent: events.OrdersSent) -> None:
        job = self._start("orders", ["orders.py"])
        self._finish(job, "orders")
        entries, commits = self._entries("orders"), self._commits("orders")
        again = [entry for entry in entries if entry.batch_id == events.CRASH_AT]
        statuses = ", then ".join(f"{entry.status} (attempt {entry.attempt})" for entry in again)
        self.console.say(
            f"It was started again as process {job.pid}. The hook found version {again[0].sink_version} in the Delta "
            f"log and restored its entry; when Spark ran micro-batch {events.CRASH_AT} once more, nothing was written "
            f"a second time. Its ledger entries: {statuses}."
        )
        rows = sum(commit.rows_added or 0 for commit in commits)
        self.console.say(
            f"{len(commits)} commits for {len({entry.batch_id for entry in entries})} micro-batches, {rows:,} rows: "
            f"{'each event once' if rows == sent.committed else f'{sent.committed:,} were expected'}.",
        )

    # -- payments ----------------------------------------------------------------------------------

    def payments(self) -> None:
        """Sends records twice, lets the broker delete unread records, deletes rows of the table."""
        console = self.console
        console.step("payments: a pipeline with three faults")
        self.kafka.create_topic("payments", events.PAYMENTS_PARTITIONS)
        events.send_payments(self.kafka, "payments")
        self._finish(self._start("payments", ["payments.py"]), "payments")
        console.say(
            f"The producer sent {events.PAYMENTS_BEFORE:,} payments, and {events.SENT_TWICE} of them twice, as new "
            "records. payments.py has written them all, and stops."
        )
        start, end = events.expired_offsets()
        events.send_later_payments(self.kafka, "payments")
        self.kafka.delete_records({("payments", events.EXPIRED_PARTITION): end})
        console.say(
            f"While it is down {events.PAYMENTS_AFTER:,} more payments arrive, and the broker deletes "
            f"{events.EXPIRED_RECORDS} of them (DeleteRecords, as retention does): partition "
            f"{events.EXPIRED_PARTITION}, offsets [{start}, {end}).",
            style="yellow",
        )
        self._finish(self._start("payments", ["payments.py"]), "payments")
        console.say("payments.py continues with failOnDataLoss=false: Spark skips them and reports success.")
        version, rows = self._delete()
        console.say(
            f"Then somebody runs DELETE FROM payments WHERE {events.DELETED_WHERE}: {rows} rows are gone (Delta "
            f"version {version}).",
            style="yellow",
        )

    def _delete(self) -> tuple[int, int]:
        """Deletes rows by delta-rs; returns (version, rows deleted)."""
        from deltalake import DeltaTable

        table = DeltaTable(self._table("payments").uri)
        metrics = table.delete(events.DELETED_WHERE)
        return table.version(), int(metrics["num_deleted_rows"])

    # -- audit and repair --------------------------------------------------------------------------

    def answers(self) -> int:
        """Audits, repairs and accepts as a user would; compares both audits with the faults that were made."""
        with Shell(self.folder.path, self.folder.logs / "recon.log", self._env) as shell:
            as_expected = self._audit(shell) and self._repair(shell)
        # The folder of session artefacts, which Spark may leave and a killed Spark always leaves.
        shutil.rmtree(self.folder.path / "artifacts", ignore_errors=True)
        return _AS_EXPECTED if as_expected else _DIFFERENT

    def _audit(self, shell: Shell) -> bool:
        console = self.console
        console.step("The audit")
        console.say("It compares the ledger, Spark's checkpoints, the Delta logs, Kafka and, where needed, the rows.")
        self._recon(shell, "audit", ends_with=1)
        console.step("What that proves")
        if not self._is_expected(differences(self._results("target"))):
            return False
        console.say(
            "The audit found exactly the faults that were made. orders is complete in spite of the aborted "
            "transactions, the markers and the killed process.",
            style="bold green",
        )
        console.say(
            "payments is not: the audit names the offsets that expired unread, the rows that were deleted and the "
            "keys that are there twice. That is why `recon audit` ended with exit code 1. Every later audit reports it "
            "again, until it is repaired or somebody accepts it:"
        )
        self._recon(shell, "findings")
        return True

    def _repair(self, shell: Shell) -> bool:
        """Repairs what Kafka still has, accepts the rest, and audits again."""
        console = self.console
        console.step("The repair")
        console.say("What can be read again from Kafka, and what cannot:")
        self._recon(shell, "repair", "plan")
        console.say("Kafka has no copy of the records that expired: whoever answers for them accepts the loss.")
        self._accept(shell, "demo data, not needed", lambda finding: finding.code is Code.LOSS_RETENTION)
        console.say("Kafka still has the records of the deleted rows. They go through the transform of payments.py:")
        what = ("--pipeline", "payments", "--transform", "payments:parsed", "--yes", "--no-audit")
        self._recon(shell, "repair", "apply", *what)
        console.say("The DELETE itself stays on record, in two findings. Its rows are there again:")
        self._accept(shell, "its rows were read again", lambda finding: finding.span is None)

        console.step("The audit after the repair")
        where = "target/repaired"
        self._recon(shell, "audit", "--select", "pipeline:payments", "--target-path", where, ends_with=1)
        if not self._is_expected(differences(self._results(where), repaired=True)):
            return False
        console.say(
            "payments is complete, but for what was accepted, and the report says by whom and why.", style="bold green"
        )
        console.say(
            f"{events.SENT_TWICE} keys are there twice because Kafka has two records of each: that check fails until "
            "their producer corrects them, so that this audit, too, ended with 1. The demo ends with 0, because all of "
            "it was expected."
        )
        return True

    def _is_expected(self, errors: Sequence[str]) -> bool:
        if errors:
            self.console.say("The audit did not find exactly the faults that were made:", style="bold red")
        for sentence in errors:
            self.console.say(f"- {sentence}", style="red")
        return not errors

    def _accept(self, shell: Shell, reason: str, which: Callable[[Finding], bool]) -> None:
        """Accepts such findings that are open, as their owner would."""
        ids = {
            open_finding.id
            for open_finding in open_findings(self.project)
            if open_finding.accepted is None and which(open_finding.finding)
        }
        if not ids:
            raise ReconError(f"recon findings lists nothing to accept because of '{reason}'; run the demo again")
        for id_ in sorted(ids):
            self._recon(shell, "accept", id_, "--by", "Ada Lovelace", "--reason", reason)

    def _recon(self, shell: Shell, *arguments: str, ends_with: int = 0) -> None:
        """Runs a command of recon as a user would, and shows what it prints."""
        self.console.command(shlex.join(("recon", *arguments)))
        self.console.blank()
        code = shell.run(*arguments)
        if code != ends_with:
            what = " ".join(("recon", *arguments[:2]))
            raise ReconError(f"{what} ended with exit code {code}, not {ends_with} (its log is {shell.log})")
        self.console.blank()

    def _results(self, target_path: str) -> RunResult:
        return run_results.read(self.folder.path / target_path / "run_results.json")

    # -- processes and witnesses -------------------------------------------------------------------

    def _start(self, name: str, arguments: Sequence[str], *, shown: bool = False) -> ChildProcess:
        """Starts a Python process in the demo's folder; its output goes to logs/."""
        log = self.folder.logs / f"{name}.log"
        return ChildProcess([sys.executable, *arguments], log, env=self._env, cwd=self.folder.path, shown=shown)

    def _await(self, child: ChildProcess, pipeline: str | None = None) -> None:
        """Waits for a process, shows its progress on a terminal, and stops it when the demo is interrupted."""
        try:
            if pipeline is None:
                while child.alive:
                    time.sleep(0.05)
                return
            with self.console.working(f"{pipeline}.py starts Spark") as progress:
                while child.alive:
                    latest = delta_log.latest_version(self._table(pipeline))
                    if latest is not None:
                        progress(f"{pipeline}.py runs: Delta version {latest}")
                    time.sleep(0.2)
        except BaseException:
            child.stop()
            raise

    def _finish(self, job: ChildProcess, pipeline: str) -> None:
        self._await(job, pipeline)
        if job.exit_code != 0:
            raise ReconError(self._failed(job, f"{pipeline}.py"))

    def _failed(self, child: ChildProcess, what: str) -> str:
        last = next((line for line in reversed(tail(child.log, 40).splitlines()) if line.strip()), "nothing")
        return f"{what} ended with exit code {child.exit_code}: {last.strip()} (all of it is in {child.log})"

    def _table(self, name: str) -> Storage:
        return Storage(self.project.resolve(f"lake/{name}"))

    def _commits(self, name: str) -> list[TableCommit]:
        """The stamped data commits of a table, oldest first."""
        commits = delta_log.read(self._table(name)).commits
        return [commits[version] for version in sorted(commits) if commits[version].stamp]

    def _entries(self, name: str) -> list[LedgerEntry]:
        return list(open_ledger(self.project).entries(name))


def _print_next_commands(folder: DemoFolder, kafka: KafkaClient, keep_broker: bool, console: _Narrator) -> None:
    here = short_path(folder.path)
    report = folder.path / "target" / "report.html"
    console.say(f"The report with the faults: {report}")
    console.say(f"The report after the repair: {report.parent / 'repaired' / report.name}")
    console.say("Tables, ledger, checkpoints, jobs and results stay in the folder. Try:")
    console.command(f"cd {shlex.quote(here)}")
    console.command("recon ledger show --pipeline orders")
    console.command("recon offsets --pipeline orders")
    console.command("recon findings")
    console.command("recon audit --no-spark")
    today = utc_now().date()
    console.command(f"recon compliance --from {today} --to {today}")
    if keep_broker:
        console.say(f"The broker still runs on {kafka.bootstrap_servers}. To stop it:")
        console.command(f"recon local kafka stop --dir {shlex.quote(short_path(folder.kafka))}")
    else:
        console.say(
            "The broker has been stopped: checks that need Kafka are now `error`, not `pass`. "
            "(--keep-broker leaves it running.)"
        )
