"""The process that is killed: real streams, one per pipeline, Kafka → hook → sink, all in one driver.

    python -m tests.crash.child PLAN.json

Each query runs until it reaches the point that the plan names for it, writes that down (fsync) and stands still there.
When all stand, or after `within` seconds, the whole process group gets SIGKILL from inside: Python and JVM at once,
each stream exactly at its point. With no point to stop at, the streams drain the topic and the process ends by itself.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recon.project import load
from recon.write.sinks.failpoints import BEFORE_WRITE
from tests.crash.plan import IN_SOAK, Plan
from tests.crash.sinks import parsed
from tests.support.checkpoints import CHECKPOINTS
from tests.support.processes import of_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from recon.model import ReconStamp
    from recon.project import Project

# So many streams work at a time, the others wait or stand: they share two cores, and a database has time limits.
_AT_ONCE = 12
# A task of this partition stands still when the point is "during": the others finish, and leave what they wrote.
_HELD_PARTITION = 1


class Stops:
    """Who stands where; the hits go to a file that outlives us."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.batch: dict[str, int] = {}
        self.standing: set[str] = set()
        self._lock = threading.Lock()
        self._file = os.open(plan.hits, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def armed(self, name: str, point: str) -> bool:
        return self.plan.stop_at.get(name) == point and self.batch[name] >= self.plan.from_batch.get(name, 0)

    def reached(self, name: str, point: str) -> None:
        """Stands still for ever if this is the point; the caller's thread ends with the process."""
        if point == BEFORE_WRITE and name in self.plan.meets:
            self._meet(name)
        if self.armed(name, point):
            self.hit(name, point)
            threading.Event().wait()

    def _meet(self, name: str) -> None:
        """Waits, once, until the same stream of the other driver is here, too."""
        for start in (self.plan.start, self.plan.meets[name]):
            place = Path(f"{self.plan.hits}.meeting.{start}.{name}")
            if start == self.plan.start:
                if place.exists():
                    return
                place.touch()
            else:
                deadline = time.monotonic() + self.plan.within
                while not place.exists() and time.monotonic() < deadline:
                    time.sleep(0.01)
                _say(f"{name}: met start {start}: {place.exists()}")

    def hit(self, name: str, point: str) -> None:
        with self._lock:
            if name not in self.standing:
                _say(f"{name}: stands at {point}, micro-batch {self.batch[name]}")
                self.note(sink=name, point=point, batch=self.batch[name])
                self.standing.add(name)

    def note(self, **what: Any) -> None:
        os.write(self._file, (json.dumps({"start": self.plan.start, **what}) + "\n").encode())
        os.fsync(self._file)

    def all_stand(self) -> bool:
        for name, point in self.plan.stop_at.items():
            if point == "during" and self.mark(name).exists():
                self.hit(name, point)
        return self.standing >= set(self.plan.stop_at)

    def mark(self, name: str) -> Path:
        """Where a worker process says that it stands in the middle of a task."""
        return Path(f"{self.plan.hits}.{self.plan.start}.{name}")

    def missing(self) -> list[str]:
        return sorted(set(self.plan.stop_at) - self.standing)


def held_up(mark: str) -> Callable[[int], bool]:
    """A row function that stands still at a row in the middle of the write."""

    def keep(partition: int) -> bool:
        if partition == _HELD_PARTITION:
            os.close(os.open(mark, os.O_WRONLY | os.O_CREAT))
            while True:
                time.sleep(60)
        return True

    return keep


def run(plan: Plan) -> int:
    if os.getpgrp() != os.getpid():
        raise RuntimeError("the child must lead its own process group: start it in a new session")
    stops = Stops(plan)
    spark = _session(plan)
    _say("session")
    project, waiting, queries = load(plan.project), list(plan.pipelines), dict[str, Any]()
    deadline = time.monotonic() + plan.within
    while waiting or plan.stop_at:
        busy = [name for name, query in queries.items() if name not in stops.standing and query.isActive]
        if plan.stop_at and (ended := queries.keys() - stops.standing - set(busy)):
            _failed(name := min(ended), queries[name])
            return 3
        while waiting and len(busy) < _AT_ONCE:
            busy.append(waiting.pop(0))
            queries[busy[-1]] = _start(spark, plan, project, stops, busy[-1])
        if plan.stop_at and (stops.all_stand() or time.monotonic() > deadline):
            break
        time.sleep(0.5)
    if not plan.stop_at:
        return _drain(spark, queries)
    time.sleep(plan.settle)  # other tasks of a write that is held up come to their end
    if missing := stops.missing():
        print(f"after {plan.within:.0f} s not all stand: {', '.join(missing)}", flush=True)
    kill_all(spark, stops)
    raise AssertionError("unreachable")


def kill_all(spark: SparkSession, stops: Stops) -> None:
    """SIGKILL to this process and the JVM at once; the first start of a run keeps the JVM's classes before."""
    if stops.plan.archive:
        _keep_classes(spark, Path(stops.plan.archive))
    _say("killed")
    stops.note(killed=True)
    os.killpg(os.getpgrp(), signal.SIGKILL)


_INVOKE = ("javax.management.ObjectName", "java.lang.String", "[Ljava.lang.Object;", "[Ljava.lang.String;")


def _keep_classes(spark: SparkSession, archive: Path) -> None:
    """Makes the class data archive (JEP 350) of the running JVM: later starts take half the time.

    A JVM that cannot do that says so in the log, and later starts go without.
    """
    part = archive.with_suffix(f".{os.getpid()}")
    gateway: Any = spark.sparkContext._gateway
    jvm = gateway.jvm

    def array(of: Any, *values: Any) -> Any:
        made = gateway.new_array(of, len(values))
        for place, value in enumerate(values):
            made[place] = value
        return made

    try:
        beans = jvm.java.lang.management.ManagementFactory.getPlatformMBeanServer()
        command = jvm.javax.management.ObjectName("com.sun.management:type=DiagnosticCommand"), "vmCds"
        arguments = array(jvm.Object, array(jvm.String, "dynamic_dump", str(part)))
        signature = array(jvm.String, "[Ljava.lang.String;")
        # By the interface's method: the class that implements it is not visible outside its module.
        of_name = jvm.java.lang.Class.forName
        types = array(jvm.java.lang.Class, *map(of_name, _INVOKE))
        invoke = of_name("javax.management.MBeanServer").getMethod("invoke", types)
        invoke.invoke(beans, array(jvm.Object, *command, arguments, signature))
        # Another process of the run may have made one meanwhile.
        if not archive.exists():
            part.replace(archive)
        _say(f"{archive.stat().st_size >> 20} MB of classes kept")
    except Exception as error:
        _say(f"no class data archive: {error}")


_BEGAN = time.monotonic()


def _say(what: str) -> None:
    """For the child's log: where its time goes."""
    print(f"{time.monotonic() - _BEGAN:6.1f} s  {_cpu():5.1f} s CPU  {what}", flush=True)


def _cpu() -> float:
    """CPU seconds of our session so far, ended processes included: on a busy machine the clock says little."""
    ticks = sum(int(ticks) for _, fields in of_session(os.getpid()) for ticks in fields[11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


def _session(plan: Plan) -> SparkSession:
    from recon.local.spark import spark_session

    conf = {
        "spark.driver.memory": "2g",
        "spark.driver.extraJavaOptions": plan.java_options,
        "spark.python.daemon.module": "tests.crash.daemon",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        # A start lives for a micro-batch or two: compiling their plans would be most of its work.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    }
    if not IN_SOAK:
        # Spark's checkpoint has no seam of recon's. Kills at random moments, in it as well, find Spark's default.
        conf |= CHECKPOINTS
    conf |= plan.spark_conf
    if plan.classpath:
        conf |= {"spark.jars.packages": "", "spark.driver.extraClassPath": plan.classpath}
    # A task that stands still must not starve another stream.
    slots = 4 + 2 * sum(point == "during" for point in plan.stop_at.values())
    return spark_session("crash", master=f"local[{slots}]", extra_packages=plan.packages, conf=conf)


def _start(spark: SparkSession, plan: Plan, project: Project, stops: Stops, name: str) -> StreamingQuery:
    import recon

    def transform(frame: DataFrame, batch_id: int) -> DataFrame:
        from pyspark.sql import functions as F

        # Routes run the transform once more on a replay that writes nothing: that is no write to be held up in.
        if stops.armed(name, "during") and not entered(batch_id):
            frame = frame.filter(F.udf(held_up(str(stops.mark(name))), "boolean")("_source_partition"))
        return parsed(frame)

    def entered(batch_id: int) -> bool:
        return any(e.batch_id == batch_id for e in recon.open_ledger(project).last(name, sinks[-1], 5))

    def failpoint(point: str, stamp: ReconStamp) -> None:
        """The points of the last route's sink; those of another route are named after the first."""
        stops.reached(name, point if stamp.sink == sinks[-1] else f"first_route_{point}")

    hook = recon.foreach_batch(project, pipeline=name, transform=transform, failpoint=failpoint)
    sinks = [sink.name for sink in hook.pipeline.sinks]

    def write(frame: DataFrame, batch_id: int) -> None:
        stops.batch[name] = batch_id
        _say(f"{name}: micro-batch {batch_id} begins")
        hook(frame, batch_id)
        _say(f"{name}: micro-batch {batch_id} is through the hook")
        stops.reached(name, "before_spark_commit")

    writer = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", plan.bootstrap)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", plan.topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", plan.per_trigger)
        .load()
        .writeStream.queryName(name)
        .foreachBatch(write)
        .option("checkpointLocation", str(Path(plan.project) / plan.checkpoints / name))
    )
    return (writer if plan.stop_at else writer.trigger(availableNow=True)).start()


def _drain(spark: SparkSession, queries: dict[str, StreamingQuery]) -> int:
    failed = [name for name, query in queries.items() if _failed(name, query)]
    _say("drained")
    gateway = spark.sparkContext._gateway
    spark.stop()
    # The JVM ends when its input does.
    gateway.proc.stdin.close()
    gateway.proc.wait(120)
    return 3 if failed else 0


def _failed(name: str, query: StreamingQuery) -> bool:
    """Waits for the end of a query and says how it failed, if it did."""
    try:
        query.awaitTermination()
    except Exception as error:
        # The first line of what was raised in the hook, or of what Spark itself says.
        ours = re.search(r"^recon\.base\.errors\.(\w+: .*)$", str(error), re.MULTILINE)
        print(f"query {name} ended: {ours[1] if ours else str(error).splitlines()[0]}", flush=True)
        traceback.print_exception(error)
        return True
    return False


def jars(packages: list[str]) -> str:
    """The classpath of Spark's packages as Ivy resolves them, for starts that need not ask it again."""
    from recon.local.jars import pyspark_home
    from recon.local.spark import fetch_packages

    found = fetch_packages(packages)
    # This classpath stands before Spark's own, where `spark.jars` stands behind it: Spark's jars must stay its own.
    own = {jar.name.rpartition("-")[0] for jar in (pyspark_home() / "jars").glob("*.jar")}
    return ":".join(str(jar) for jar in sorted(found) if jar.name.rpartition("-")[0].partition("_")[2] not in own)


if __name__ == "__main__":
    if sys.argv[1] == "--jars":
        print(jars(sys.argv[2:]))
        sys.exit()
    code = run(Plan.read(Path(sys.argv[1])))
    sys.stdout.flush()
    os._exit(code)
