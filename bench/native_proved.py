"""How much of a native stream of 1,000 micro-batches is proved, and which faults are found in it.

A real query with Spark's own Delta sink, 20 offsets a micro-batch, Spark's default of 100 micro-batches in the
checkpoint; `recon.ProgressListener` in its driver is all that recon has of it. Then each fault is made in a copy of
what the query left, the query goes on, and an audit judges. Ours: the offsets that are proved without a fault; floor:
all offsets of the topic. The faults are in the table that is printed; a "complete" to one of them ends the bench.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

BATCHES = 1_000
PER_BATCH = 20
MORE = 5  # micro-batches after a fault
_YML = """\
version: 2
name: shop
ledger: recon
kafka:
  bootstrap.servers: "{bootstrap}"
pipelines:
  - name: orders
    write: native
    checkpoint: checkpoints/orders
    source: {{topics: [orders]}}
    rows: {{filters: false}}
    sinks:
      - name: orders
        target: lake/orders
        {columns}
        data_tests: [ledger_integrity, offset_continuity, checkpoint_commits, delta_history, source_rows]
"""
_COLUMNS = "source_columns: {partition: kafka_partition, offset: kafka_offset}"


@dataclass
class Shop:
    """The stream's folder, its broker and session; `ends` is how many records were produced so far."""

    folder: Path
    broker: Any
    spark: Any
    produced: int = 0
    found: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def stream(self) -> Any:
        from bench.native_stream import NativeStream

        return NativeStream(self.spark, self.broker.bootstrap_servers, "orders", self.folder)

    @property
    def table(self) -> str:
        return f"delta.`{self.stream.table}`"

    def produce(self, batches: int) -> None:
        count = batches * PER_BATCH
        self.broker.produce("orders", [(f"k{i}", f"v{i}", i % 2) for i in range(count)])
        self.produced += count

    def go_on(self, *, listens: bool = True, **options: str) -> None:
        """The query reads what is there, with the listener in its driver."""
        from recon.write.streams.listener import ProgressListener

        listener = ProgressListener(self.folder)
        if listens:
            self.spark.streams.addListener(listener)
        try:
            self.stream.drain(per_trigger=PER_BATCH, **options)
            time.sleep(2)  # the last events come after the query ended
            listener.looks.wait(60)
        finally:
            if listens:
                self.spark.streams.removeListener(listener)

    def audit(self, named: bool) -> Any:
        from recon.audits.run import run_audit

        self.write_yml(named)
        return run_audit(self.folder, spark=self.spark)

    def write_yml(self, named: bool) -> None:
        columns = _COLUMNS if named else ""
        (self.folder / "recon.yml").write_text(_YML.format(bootstrap=self.broker.bootstrap_servers, columns=columns))


def run() -> dict[str, Any]:
    from recon.local.spark import spark_session
    from tests.support.kafka import LocalKafka

    with tempfile.TemporaryDirectory() as scratch, LocalKafka(Path(scratch) / "kafka") as broker:
        spark = spark_session("native_proved", conf={"spark.driver.memory": "2g"})
        shop = Shop(Path(scratch) / "shop", broker, spark)
        shop.folder.mkdir()
        broker.create_topic("orders", 2)
        try:
            shop.produce(BATCHES)
            shop.write_yml(named=True)
            began = time.perf_counter()
            shop.go_on()
            print(f"  {BATCHES} micro-batches in {time.perf_counter() - began:.0f} s", file=sys.stderr)
            shares = {named: _share(shop, named) for named in (True, False)}
            _faults(shop, Path(scratch) / "kept")
        finally:
            spark.stop()
    print(table(shares, shop.found))
    ours = shares[True]["proved"]
    return {
        "name": "native_proved",
        "ours": float(ours),
        "floor": float(BATCHES * PER_BATCH),
        "ratio": ours / (BATCHES * PER_BATCH),
        "unit": "offsets",
        "peers": {"counts alone": shares[False]["proved"] / (BATCHES * PER_BATCH)},
    }


def _share(shop: Shop, named: bool) -> dict[str, Any]:
    """The offsets that an audit from nothing proves; the ledger is the listener's alone."""
    shutil.rmtree(shop.folder / "recon/proof", ignore_errors=True)
    shutil.rmtree(shop.folder / "recon/results", ignore_errors=True)
    run = shop.audit(named)
    (sink,) = run.pipelines[0].sinks
    assert run.pipelines[0].answer == "complete", _told(run)
    assert sink.account is not None and sink.batches_proved == sink.batches, sink
    return {"answer": run.pipelines[0].answer, "batches": sink.batches, "proved": sink.account.offsets}


def _faults(shop: Shop, kept: Path) -> None:
    shutil.rmtree(shop.folder / "recon/proof", ignore_errors=True)
    shutil.rmtree(shop.folder / "recon/results", ignore_errors=True)
    shutil.copytree(shop.folder, kept)
    for name, fault in FAULTS.items():
        for named in (True, False):
            shutil.rmtree(shop.folder)
            shutil.copytree(kept, shop.folder)
            shop.audit(named)
            fault(shop)
            run = shop.audit(named)
            answer = run.pipelines[0].answer
            codes = sorted(
                {str(f.code) for r in run.results for f in r.findings if f.level.name in ("FAIL", "UNPROVED")}
            )
            assert answer != "complete", (name, named, _told(run))
            shop.found.setdefault(name, {})[named] = f"{answer}: {', '.join(codes)}"
            print(f"  {name}, {'rows named' if named else 'counts'}: {answer} {codes}", file=sys.stderr)


def _told(run: Any) -> list[str]:
    return [f"{f.code}: {f.message}" for r in run.results for f in r.findings]


def _gap(shop: Shop) -> None:
    """The checkpoint is lost, and the query begins again at the end of the topic."""
    shop.produce(MORE)
    shutil.rmtree(shop.stream.checkpoint)
    shop.go_on(starting="latest")
    shop.produce(MORE)
    shop.go_on(starting="latest")


def _swallowed(shop: Shop) -> None:
    """Another writer has used the query's next number: Delta drops the micro-batch, and Spark commits it."""
    query_id = json.loads((shop.stream.checkpoint / "metadata").read_text())["id"]
    newest = max(int(file.name) for file in (shop.stream.checkpoint / "commits").iterdir() if file.name.isdigit())
    (
        shop.spark.read.format("delta")
        .load(str(shop.stream.table))
        .limit(0)
        .write.format("delta")
        .option("txnAppId", query_id)
        .option("txnVersion", newest + 1)
        .mode("append")
        .save(str(shop.stream.table))
    )
    shop.produce(MORE)
    shop.go_on()


def _deleted(shop: Shop) -> None:
    shop.spark.sql(f"DELETE FROM {shop.table} WHERE kafka_offset BETWEEN 2000 AND 2009")
    shop.produce(MORE)
    shop.go_on()


def _restored(shop: Shop) -> None:
    shop.spark.sql(f"RESTORE TABLE {shop.table} TO VERSION AS OF {BATCHES - 20}")
    shop.produce(MORE)
    shop.go_on()


def _read_again(shop: Shop) -> None:
    """The checkpoint is lost, and the query begins again far back."""
    starting = json.dumps({"orders": {"0": BATCHES * PER_BATCH // 2 - 100, "1": BATCHES * PER_BATCH // 2 - 100}})
    shutil.rmtree(shop.stream.checkpoint)
    shop.produce(1)
    shop.go_on(starting=starting)


def _expired(shop: Shop) -> None:
    """Kafka deletes records that were not read yet, and failOnDataLoss=false lets Spark go on."""
    shop.produce(MORE)
    shop.broker.delete_records({("orders", 0): shop.produced // 2 - 30, ("orders", 1): shop.produced // 2 - 30})
    shop.produce(MORE)
    shop.go_on(failOnDataLoss="false")


FAULTS: Mapping[str, Callable[[Shop], None]] = {
    "a gap: lost checkpoint, goes on at the end": _gap,
    "a swallowed micro-batch": _swallowed,
    "DELETE of 20 rows": _deleted,
    "RESTORE to 20 versions before": _restored,
    "lost checkpoint, reads again": _read_again,
    "records expired unread": _expired,
}


def table(shares: Mapping[bool, Mapping[str, Any]], found: Mapping[str, Mapping[bool, str]]) -> str:
    """What was found, as docs/observe.md shows it."""
    total = BATCHES * PER_BATCH
    lines = ["| fault | rows carry their source | counts alone |", "| --- | --- | --- |"]
    ours = [f"complete: {shares[named]['proved']:,} of {total:,} offsets proved" for named in (True, False)]
    lines.append(f"| none | {ours[0]} | {ours[1]} |")
    lines += [f"| {name} | {of[True]} | {of[False]} |" for name, of in found.items()]
    return "\n".join(lines)
