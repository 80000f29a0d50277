"""Starts the child, lets it be killed, starts it again; then holds source, sinks and ledger against each other."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from recon.local.process import ChildProcess, tail
from recon.model import LedgerEntry, Level
from recon.project import load
from recon.write.ledger import Ledger, open_ledger
from recon.write.sinks.failpoints import BEFORE_WRITE
from tests.crash.plan import POINTS, Plan
from tests.crash.sinks import Adapter, Where, World, expected, record
from tests.support.kafka import LocalKafka
from tests.support.processes import of_session, recon

ROOT = Path(__file__).parents[2]
# Twenty repairs and an audit take two minutes, and ten on a busy machine: a child that takes longer makes no progress.
CHILD_TIMEOUT_S = 1800.0
_ALL_THERE_IS = 1_000_000  # records in a micro-batch
# Starting fast is what makes many rounds cheap; none of this changes what a crash leaves.
_FAST = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC -Xlog:disable"
_MAKES_ARCHIVE = " -XX:+IgnoreUnrecognizedVMOptions -XX:+RecordDynamicDumpInfo"


def resolve(packages: Iterable[str], kept: Path) -> str:
    """The classpath of Delta, the Kafka connector and further packages, resolved once for many starts.

    `kept`: the file that has it, for the other processes of a run.
    """
    with kept.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        if classpath := file.read():
            return classpath
        command = [sys.executable, "-m", "tests.crash.child", "--jars", *sorted(set(packages))]
        ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
        assert ended.returncode == 0, ended.stderr[-3000:]
        classpath = ended.stdout.strip().splitlines()[-1]
        file.write(classpath)
        return classpath


@dataclass(frozen=True, kw_only=True)
class Hit:
    """One stream that stood exactly at a point when its process was killed."""

    start: int
    sink: str
    point: str
    batch: int
    again: bool  # the micro-batch had been planned by an earlier start


class Child:
    """A child of our own, in a session of its own; it does not outlive us."""

    def __init__(self, plan: Path, log: Path, module: Sequence[str] = ("tests.crash.child",)) -> None:
        self.log, self.began = log, time.monotonic()
        self._process = ChildProcess([sys.executable, "-m", *module, str(plan)], log, cwd=ROOT)

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self._process.alive

    def wait(self, seconds: float = CHILD_TIMEOUT_S) -> int:
        """Its exit code; whatever it started is gone on return."""
        deadline = time.monotonic() + seconds
        while self.alive and time.monotonic() < deadline:
            time.sleep(0.05)
        code = self._process.exit_code
        self.kill()
        assert code is not None, f"the child did not end within {seconds:.0f} s:\n{tail(self.log, 60)}"
        return code

    def endings(self) -> dict[str, str]:
        """Sink → the sentence with which its query failed."""
        found = re.findall(r"^query (\S+) ended: (.*)$", self.log.read_text(errors="replace"), re.MULTILINE)
        return dict(found)

    def kill(self) -> None:
        """SIGKILL to the child and to all of its session: the JVM, Python workers."""
        self._process.kill()
        deadline = time.monotonic() + 20
        while (left := _of_session(self._process.pid)) and time.monotonic() < deadline:
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)
        assert not left, f"processes {left} of the child's session survived SIGKILL"


def _of_session(session: int) -> list[int]:
    """Processes of a session that still run; the session's id is the pid of the child that began it."""
    return [pid for pid, (state, *_) in of_session(session) if state not in "ZX"]


class Crashes:
    """One topic, one project with a pipeline per sink kind, and a child that dies and is started again.

    Args:
        folder: project, sinks and logs.
        kafka: a running broker.
        adapters: the sink kinds.
        classpath: the jars for the child.
        archive: where the JVM's classes of this classpath are kept (JEP 350), for faster starts.
        seed: of every random choice here.
        servers: `postgres`, `mariadb`, where an adapter needs them.
    """

    def __init__(
        self,
        folder: Path,
        kafka: LocalKafka,
        adapters: Sequence[Adapter],
        *,
        classpath: str,
        archive: Path,
        topic: str = "events",
        keys: int = 60,
        partitions: int = 3,
        per_trigger: int = 30,
        seed: int = 1,
        **servers: Any,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.kafka, self.topic = folder, kafka, topic
        self.adapters = {adapter.name: adapter for adapter in adapters}
        self.world = World(folder=folder, kafka=kafka, **servers)
        os.environ.update(self.world.environment)
        self.keys, self.partitions, self.per_trigger = keys, partitions, per_trigger
        self.classpath, self.archive = classpath, archive
        self.random = random.Random(seed)
        self.produced = 0
        self.starts = 0
        self.seconds: list[float] = []
        self.hits: list[Hit] = []
        self._hits_file = folder / "hits.jsonl"
        kafka.create_topic(topic, partitions)
        self.world.make_databases()
        for adapter in adapters:
            adapter.prepare(self.world)
        self._write_project()
        self.project = load(folder)

    # -- the project -------------------------------------------------------------------------------

    def _write_project(self) -> None:
        pipelines = [adapter.pipeline(self.world, self.topic) for adapter in self.adapters.values()]
        document = {
            "version": 2,
            "name": "crash",
            "ledger": "recon",
            "kafka": {"bootstrap.servers": self.kafka.bootstrap_servers},
            "spark": {"master": "local[2]", "conf": self._audit_conf},
            "pipelines": pipelines,
        }
        (self.folder / "recon.yml").write_text(yaml.safe_dump(document, sort_keys=False))

    @property
    def _packages(self) -> set[str]:
        return {package for adapter in self.adapters.values() for package in adapter.packages}

    @property
    def _spark_conf(self) -> dict[str, str]:
        found = (adapter.spark_conf(self.world) for adapter in self.adapters.values())
        return {key: value for conf in found for key, value in conf.items()}

    @property
    def _audit_conf(self) -> dict[str, Any]:
        """An audit's JVM starts as the children's do: with the jars on its classpath, so that it can share classes."""
        return {
            "spark.ui.enabled": False,
            "spark.sql.shuffle.partitions": 2,
            "spark.jars.packages": "",
            "spark.driver.extraClassPath": self.classpath,
            "spark.driver.extraJavaOptions": f"{_FAST} -XX:SharedArchiveFile={self.archive}",
            **self._spark_conf,
        }

    @cached_property
    def ledger(self) -> Ledger:
        return open_ledger(self.project)

    def entries(self, name: str) -> dict[str, list[LedgerEntry]]:
        """Sink → its entries; one sink, but for routes."""
        return {sink: self.ledger.entries(name, sink) for sink in self.adapters[name].entered}

    # -- the source --------------------------------------------------------------------------------

    def produce(self, count: int) -> None:
        """Transactions of 20 records; after every third one that is aborted, so that offsets have holes."""
        producer = self.kafka.transactional()
        done = 0
        while done < count:
            some = min(20, count - done)
            numbers = range(self.produced, self.produced + some)
            producer.send(self.topic, [record(n, self.keys, self.partitions) for n in numbers])
            if self.produced // 20 % 3 == 2:
                lost = [record(n, self.keys, self.partitions) for n in numbers[:6]]
                producer.send(self.topic, lost, "abort")
            self.produced += some
            done += some

    def source(self) -> dict[Where, str]:
        """What a read_committed consumer sees."""
        seen = self.kafka.read(self.topic, "read_committed")
        return {(record.partition, record.offset): (record.value or b"").decode() for record in seen}

    # -- starts ------------------------------------------------------------------------------------

    def plan(self, **changes: Any) -> Plan:
        # The start that finds no archive records what it needs to make it, if it is one that makes it.
        known = self.archive.exists()
        options = f" -XX:SharedArchiveFile={self.archive}" if known else _MAKES_ARCHIVE
        plan = Plan(
            project=str(self.folder),
            topic=self.topic,
            bootstrap=self.kafka.bootstrap_servers,
            pipelines=tuple(self.adapters),
            hits=str(self._hits_file),
            start=self.starts,
            per_trigger=self.per_trigger,
            classpath=self.classpath,
            packages=tuple(sorted(self._packages)),
            java_options=_FAST + options,
            archive="" if known else str(self.archive),
            spark_conf=self._spark_conf,
        )
        return replace(plan, **changes)

    def launch(self, plan: Plan, *module: str) -> Child:
        """Start a child and return at once; `module` runs instead of tests.crash.child, with its arguments."""
        where = plan.write(self.folder / f"plan-{self.starts}.json")
        log = self.folder / f"child-{self.starts}.log"
        self.starts += 1
        return Child(where, log, *([module] if module else []))

    def drain(self, meeting: Sequence[str] = ()) -> list[Child]:
        """Starts without a point to stop at: the streams read to the end of the topic.

        Args:
            meeting: pipelines that two drivers write at once, as when a scheduler loses sight of a driver and starts
                another one: before its first write a stream of one driver waits for that of the other. Then each
                reads to the end, or stops.

        Returns:
            The driver of all pipelines, and the other one of those that meet.
        """
        others = [name for name in self.adapters if name not in meeting]
        first, second = self.starts, self.starts + 1
        drivers = [self._drain([*meeting, *others], dict.fromkeys(meeting, second))]
        if meeting:
            drivers.append(self._drain(meeting, dict.fromkeys(meeting, first)))
        for driver in drivers:
            code, ended = self._wait(driver), driver.endings()
            said = tail(driver.log, 60)
            assert code == (3 if ended else 0) and ended.keys() <= set(meeting), f"a driver ended with {code}:\n{said}"
        if gave_way := [name for name in meeting if all(name in driver.endings() for driver in drivers)]:
            assert self._wait(self._drain(gave_way, {})) == 0
        return drivers

    def _drain(self, names: Sequence[str], meets: Mapping[str, int]) -> Child:
        return self.launch(self.plan(pipelines=tuple(names), meets=dict(meets), per_trigger=_ALL_THERE_IS))

    def _wait(self, child: Child) -> int:
        code = child.wait()
        self.seconds.append(time.monotonic() - child.began)
        return code

    def kill_at(self, stop_at: Mapping[str, str], *, fresh: bool = False) -> list[Hit]:
        """One start that ends by SIGKILL, with each stream at its point; what stood where, as the child wrote it.

        Args:
            stop_at: sink → point; the streams of other sinks are not started.
            fresh: points of a micro-batch that is replayed do not count, only those of the next one.
        """
        planned = {name: self.planned(name) for name in self.adapters}
        from_batch = {name: _next(planned[name]) for name in stop_at} if fresh else {}
        plan = self.plan(stop_at=dict(stop_at), from_batch=from_batch, pipelines=tuple(stop_at))
        child = self.launch(plan)
        code = self._wait(child)
        assert code == -signal.SIGKILL, f"start {plan.start} ended with {code}:\n{tail(child.log, 60)}"
        lines = [json.loads(line) for line in self._hits_file.read_text().splitlines()]
        mine = [line for line in lines if line["start"] == plan.start]
        assert mine and mine[-1].get("killed"), f"start {plan.start} died before its time:\n{tail(child.log, 60)}"
        hits = [
            Hit(
                start=plan.start,
                sink=line["sink"],
                point=line["point"],
                batch=line["batch"],
                again=line["batch"] <= planned[line["sink"]][0],
            )
            for line in mine
            if "sink" in line
        ]
        for hit in hits:
            self._require_at_point(hit)
        self.hits += hits
        return hits

    def kill_at_random(self, names: Sequence[str]) -> None:
        """One start of these pipelines that is killed from outside at a random moment of its work."""
        planned = {name: self.planned(name) for name in names}
        # Armed at a micro-batch that never comes: it runs until it is killed.
        plan = self.plan(stop_at=dict.fromkeys(names, BEFORE_WRITE), pipelines=tuple(names), within=600.0)
        plan = replace(plan, from_batch=dict.fromkeys(names, sys.maxsize))
        child = self.launch(plan)
        try:
            at_work = lambda: any(self.planned(name) != was for name, was in planned.items())  # noqa: E731
            deadline = time.monotonic() + 120
            while not at_work() and child.alive and time.monotonic() < deadline:
                time.sleep(0.05)
            time.sleep(self.random.uniform(0, 12))
            assert child.alive, f"start {plan.start} ended by itself:\n{tail(child.log, 60)}"
        finally:
            child.kill()
        self.seconds.append(time.monotonic() - child.began)
        for name, was in planned.items():
            batch, committed = self.planned(name)
            if not committed:
                self.hits.append(Hit(start=plan.start, sink=name, point="random", batch=batch, again=batch <= was[0]))

    def planned(self, name: str) -> tuple[int, bool]:
        """The last micro-batch planned in the checkpoint, and whether Spark committed it; (-1, True) for none."""
        folder = self.folder / "checkpoints" / name
        offsets = [int(file.name) for file in (folder / "offsets").glob("[0-9]*")]
        last = max(offsets, default=-1)
        return last, last < 0 or (folder / "commits" / str(last)).exists()

    def _require_at_point(self, hit: Hit) -> None:
        """That the files say the same as the hit: where a kill came is not a matter of hope."""
        last, committed = self.planned(hit.sink)
        assert (last, committed) == (hit.batch, False), f"{hit}: the checkpoint stands at {last}, {committed}"
        last_sink = self.adapters[hit.sink].entered[-1]
        entered = any(e.batch_id == hit.batch for e in self.ledger.last(hit.sink, last_sink, 5))
        assert entered == (hit.point in ("after_ledger", "before_spark_commit")), (
            f"{hit}: entered in the ledger: {entered}"
        )

    # -- schedules ---------------------------------------------------------------------------------

    def rounds(
        self, kinds: Mapping[str, Sequence[str]], count: int, own_count: int, variant_count: int
    ) -> list[tuple[dict[str, str], bool]]:
        """The kills of some rounds, each of which hits every sink at every point: where each start stops, and if fresh.

        The pipelines of a kind share its points out, so that a round has fewer starts. In odd rounds a kill may hit a
        micro-batch that is being recovered; in even ones the recovery goes through first.

        Args:
            kinds: sink kind → its pipelines.
            count: how many rounds.
            own_count: seams of the sink itself are hit in so many of them.
            variant_count: variants take part in so many of them.
        """
        starts: list[tuple[dict[str, str], bool]] = []
        for number in range(count):
            began = len(starts)
            for names in kinds.values():
                adapter = self.adapters[names[0]]
                if adapter.variant and number >= variant_count:
                    continue
                points = [*POINTS, *(adapter.points if number < own_count else ())]
                self.random.shuffle(points)
                if len(names) > 1:
                    # A kill before the write leaves a micro-batch in whose recovery every other point comes.
                    points.sort(key=lambda point: point != BEFORE_WRITE)
                for place, point in enumerate(points):
                    start, pipeline = divmod(place, len(names))
                    while len(starts) <= began + start:
                        starts.append(({}, number % 2 == 1))
                    starts[began + start][0][names[pipeline]] = point
        return starts

    def counts(self) -> Counter[tuple[str, str]]:
        """(sink kind, point) → kills that hit it, from what the children wrote."""
        return Counter((self.adapters[hit.sink].kind, hit.point) for hit in self.hits)

    # -- what is there -----------------------------------------------------------------------------

    def compare(self, name: str) -> Outcome:
        """The source's records against the sink's rows and the ledger, exactly."""
        adapter, records = self.adapters[name], self.source()
        outcome = Outcome(sink=name, label=adapter.label, records=len(records), kills=self._kills(name))
        for sink, entries in self.entries(name).items():
            outcome.attempts += Counter(entry.status for entry in entries)
            outcome.labels |= {entry.guarantee for entry in entries}
            committed = Counter(e.batch_id for e in entries if e.status == "committed")
            outcome.twice_committed += sorted(batch for batch, n in committed.items() if n > 1)
            outcome.unentered += sorted(records.keys() - _covered(entries))
            found = self.ledger.verify(name, sink)
            outcome.broken_chain += [finding.message for finding in found if finding.level is Level.FAIL]
        if adapter.rewrites:
            want, have = expected(records, deletes=adapter.deletes), adapter.state(self.world)
            outcome.rows = len(have)
            outcome.lost = sorted(str(key) for key in want if have.get(key) != want[key])
            outcome.foreign = sorted(str(key) for key in have if key not in want)
        else:
            rows = adapter.rows(self.world)
            outcome.rows = rows.total()
            outcome.lost = sorted(str(where) for where in records if not rows[where])
            outcome.doubled = sorted(str(where) for where, n in rows.items() if n > 1)
            outcome.foreign = sorted(str(where) for where in rows if where not in records)
        return outcome

    def _kills(self, name: str) -> Counter[str]:
        return Counter(hit.point for hit in self.hits if hit.sink == name)

    def report(self, outcomes: Iterable[Outcome]) -> str:
        """What docs/crash_tests.md shows of a run: kills by point, and what came of them."""
        outcomes = list(outcomes)
        points = list(dict.fromkeys(hit.point for hit in self.hits))
        lines = [
            f"{self.starts} starts, {sum(self.seconds) / 60:.1f} minutes in children",
            "",
            "| sink | " + " | ".join(points) + " |",
            "| --- " * (len(points) + 1) + "|",
            *("| " + " | ".join([o.sink, *(str(o.kills[point]) for point in points)]) + " |" for o in outcomes),
            "",
            "| sink | label | kills | records | rows | lost | doubled | replays recognised | entries restored |",
            "| --- " * 9 + "|",
            *(outcome.line() for outcome in outcomes),
        ]
        return "\n".join(lines) + "\n"

    def audit(self) -> tuple[int, str, dict[str, str]]:
        """`recon audit` as a whole process: exit code, output, status of each check."""
        ended = recon("audit", "--project-dir", str(self.folder), cwd=self.folder, timeout=CHILD_TIMEOUT_S)
        kept = self.folder / "target" / "run_results.json"
        assert kept.exists(), f"the audit ended with {ended.returncode} and no results:\n{ended.stdout}{ended.stderr}"
        statuses = {r["unique_id"]: r["status"] for r in json.loads(kept.read_text())["results"]}
        return ended.returncode, ended.stdout + ended.stderr, statuses


@dataclass
class Outcome:
    """A drained sink against its source: all lists empty where nothing is wrong."""

    sink: str
    label: str
    records: int
    kills: Counter[str]
    rows: int = 0
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    twice_committed: list[int] = field(default_factory=list)
    unentered: list[Where] = field(default_factory=list)
    broken_chain: list[str] = field(default_factory=list)
    attempts: Counter[str] = field(default_factory=Counter)
    labels: set[str] = field(default_factory=set)

    def line(self) -> str:
        """A line of the table in docs/crash_tests.md."""
        again = self.attempts["already_committed"]
        restored = self.attempts["rebuilt"]
        cells = [self.sink, self.label, sum(self.kills.values()), self.records, self.rows, len(self.lost)]
        return "| " + " | ".join(str(c) for c in (*cells, len(self.doubled), again, restored)) + " |"


def together(kind: str, outcomes: Sequence[Outcome]) -> Outcome:
    """What came of all pipelines of a kind."""
    whole = Outcome(sink=kind, label=outcomes[0].label, records=sum(o.records for o in outcomes), kills=Counter())
    for outcome in outcomes:
        whole.rows += outcome.rows
        whole.kills += outcome.kills
        whole.attempts += outcome.attempts
        whole.labels |= outcome.labels
        for name in ("lost", "doubled", "foreign", "twice_committed", "unentered", "broken_chain"):
            getattr(whole, name).extend((outcome.sink, what) for what in getattr(outcome, name))
    return whole


def _next(planned: tuple[int, bool]) -> int:
    """The first micro-batch that a start plans itself: the one after the last that was planned."""
    return planned[0] + 1


def _covered(entries: Iterable[LedgerEntry]) -> set[Where]:
    return {
        (span.partition, offset)
        for entry in entries
        for span in entry.offsets
        for offset in range(span.start_offset, span.end_offset)
    }
